"""What can be set, and which settings are refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rightreasons.audits.art.procedure import ROUTINGS, Procedure
from rightreasons.errors import SettingError
from rightreasons.findings import MAX_PICTURES
from rightreasons.stats import restoration

BETAS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0)
SWING_BETAS = (-4.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 4.0)
READINGS = ("swing", "paper")
FEWEST_DRAWS = 19  # with fewer no p can reach 0.05
DUE_DRAWS = 200
LAYER_DRAWS = 20


@dataclass(frozen=True)
class Settings:
    """Settings of ART; `rho`, `tau`, `n_min` and `beta` are the paper's by default (sec. 3 and 4).

    Attributes
    ----------
    reading : what decides: "swing" amplifies and turns round without label-null correction, against a head that gains nothing
        from the attribute; "paper" only amplifies, with `rho`. Both are shown
    attribute : which one; the cohort's first by default
    aligned : the label that each attribute value stands for; else by lift on the training rows, else from the model's errors
    direction : class-conditional, or the ablations global and label
    rho : strength of the label-null correction in the paper's reading, 0 to 1
    gated : whether the gate may close a direction
    tau, n_min : a gate opens above this separation, with at least so many rows on either side
    routing : "true" amplifies along the directions of a row's label, "predicted" along those of its decision
    beta, betas : the strength that decides, and those of the curve
    twins : also report on the twin of every test row (clean and stamped images), with its attribute
    layers : names of layers inside the network at which to restore too, in their order; of tested models alone
    layer_controls : shuffles of the attribute at every layer
    pictures : how many images to show with Grad-CAM before and after, where the features are the average of a map
    controls : draws of every control
    B : resamples of the test rows (of subjects where they are known; a row and its twin are one)
    level : of the intervals
    C : inverse penalty of the linear probe
    refits : how often the refitted head of the swing is fitted again on resampled audit rows, for its interval
    """

    reading: str = "swing"
    attribute: str | None = None
    aligned: Mapping[Any, Any] | None = None
    direction: str = "class-conditional"
    rho: float = 0.5
    gated: bool = True
    tau: float = 0.5
    n_min: int = 20
    routing: str = "true"
    beta: float = 2.0
    betas: Sequence[float] = BETAS
    twins: bool = False
    layers: Sequence[str] = ()
    layer_controls: int = LAYER_DRAWS
    pictures: int = 0
    controls: int = 300
    B: int = 1_000
    level: float = 0.95
    C: float = 1.0
    refits: int = 12

    @property
    def procedure(self) -> Procedure:
        return Procedure(self.direction, self.rho, self.tau, self.n_min, self.gated, self.routing)

    @property
    def strengths(self) -> tuple[float, ...]:
        """The strengths of the curve, with 0 and the one that decides among them."""
        return tuple(sorted({0.0, float(self.beta), *map(float, self.betas)}))

    @property
    def swing_strengths(self) -> tuple[float, ...]:
        """The strengths of the swing's curves, with both ends of the swing among them."""
        return tuple(sorted({-float(self.beta), float(self.beta), *SWING_BETAS}))

    def refuse_impossible(self) -> None:
        """Raise SettingError for values that no run can use."""
        if not self.beta > 0 or any(not b >= 0 for b in self.betas):
            raise SettingError(f"found beta={self.beta} and betas={list(self.betas)}; beta must be above 0 and betas 0 or more")
        if self.reading not in READINGS:
            raise SettingError(f"no reading {self.reading!r}; known: {', '.join(READINGS)}")
        if self.refits < 2:
            raise SettingError(f"refits={self.refits}: give 2 or more, or there is no interval")
        if self.direction not in restoration.KINDS:
            raise SettingError(f"no direction {self.direction!r}; known: {', '.join(restoration.KINDS)}")
        if self.routing not in ROUTINGS:
            raise SettingError(f"no routing {self.routing!r}; known: {', '.join(ROUTINGS)}")
        if not 0 <= self.pictures <= MAX_PICTURES:
            raise SettingError(f"pictures={self.pictures}: give 0 to {MAX_PICTURES}")
        if min(self.controls, self.layer_controls) < FEWEST_DRAWS:
            given = f"controls={self.controls}, layer_controls={self.layer_controls}"
            raise SettingError(f"{given}: with fewer than {FEWEST_DRAWS} draws no p can reach 0.05; give {DUE_DRAWS} or more")
