"""The worlds: images with a known cue, how it goes with the label, and which models are judged in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rightreasons.data import planted
from rightreasons.data.cohort import Cohort
from rightreasons.stats.resampling import task_rng

DIGITS = ("tag", "patch", "ring", "texture", "cast", "frequency", "slant")
EYES = ("rim", "notch", "gradient", "cast", "blur")
LOCALISED = ("tag", "patch", "ring", "rim", "notch")
AGREEMENTS = (0.6, 0.7, 0.8, 0.9, 0.95, 1.0)
STRENGTHS = (0.3, 0.6, 1.0)
NOISE = (0.0, 0.0, 0.05, 0.1)  # of the labels
SIZES = (900, 1797, 1797)
PREVALENCES = (0.5, 0.5, 0.3)
CAUSAL = 0.65  # agreement in the rows that are reported on, where the attribute is part of what the label means
UNRELATED = (0.5, 0.7, 0.95)  # agreements of attributes that stand in the table and in no pixel
FRACTIONS = {"train": 0.5, "val": 0.1, "audit": 0.2, "test": 0.2}
SIDE = 32

BIASED, TWO_TASKS, PROJECTED = "trained", "two tasks", "projected"
"""Sorts of judged models: trained on the world's rows; with the cue drawn again, and on the cue as a second task; trained on
the world's rows, the cue's directions then taken out of the head."""


@dataclass(frozen=True)
class World:
    """One set of images, and the models that are judged in it.

    Attributes
    ----------
    kind : of the shortcut, or of the null
    is_null : whether its models should not be called; the truth of each model is measured all the same
    settings : of the planted world
    models : their sort
    unrelated : agreement in the training rows of each further attribute, in the table alone, that its models are audited for
    family : planted, or scene (scenes.py makes those)
    """

    kind: str
    base: str
    cue: str
    architecture: str
    seed: int
    is_null: bool
    settings: dict[str, Any] = field(default_factory=dict)
    models: str = BIASED
    unrelated: tuple[float, ...] = ()
    family: str = "planted"

    @property
    def name(self) -> str:
        name = f"{self.kind}-{self.base}-{self.cue}-{self.architecture}-{self.seed}".replace(", ", "-").replace(" ", "-")
        return name if self.family == "planted" else f"{self.family}-{name}"

    @property
    def is_real(self) -> bool:
        return self.base not in ("digits", "eyes")

    def make(self, folder: Path) -> Cohort:
        given = dict(self.settings)
        if self.base == "digits":
            given["classes"] = _digit_classes(given.pop("prevalence", 0.5))
            return planted.digits(folder, cue=self.cue, fractions=FRACTIONS, seed=self.seed, **given)
        few = {"n": 1797, "n_external": 0, "pixels": SIDE}
        return planted.fundus(folder, cue=self.cue, fractions=FRACTIONS, seed=self.seed, **{**few, **given})


NULLS = ("no cue", "independent", "encoded, unused", "projected head", "same region", "harder group")


def worlds(count: int, seed: int, architectures: Sequence[str]) -> list[World]:
    """Worlds of shortcuts and of nulls in turn, the kinds of nulls in turn too: the beginning of the list is a fair sample."""
    found = []
    for number in range((count + 1) // 2):
        rng = task_rng(seed, f"world {number}")
        found.append(shortcut(10_000 * seed + number, str(rng.choice(architectures)), rng))
        found.append(null(NULLS[number % len(NULLS)], 10_000 * seed + number, str(rng.choice(architectures)), rng))
    return found[:count]


def shortcut(seed: int, architecture: str, rng: np.random.Generator) -> World:
    """A cue that goes with the label in the training rows, at any strength."""
    base, cue = _cue(rng)
    settings = {"agreement": float(rng.choice(AGREEMENTS)), "strength": float(rng.choice(STRENGTHS)), **_data(rng)}
    if cue == "slant":
        settings |= {"agreement_audit": CAUSAL, "agreement_test": CAUSAL}
    return World("shortcut", base, cue, architecture, seed, False, settings)


def null(kind: str, seed: int, architecture: str, rng: np.random.Generator) -> World:
    """A world whose models should not be called."""
    base, cue = _cue(rng)
    settings = {"agreement": 0.9 if kind in ("no cue", "encoded, unused", "projected head") else 0.5, **_data(rng)}
    models = {"encoded, unused": TWO_TASKS, "projected head": PROJECTED}.get(kind, BIASED)
    if kind == "no cue":  # the attributes go with the label in the table and are nowhere in the image
        return World(kind, base, "none", architecture, seed, True, settings, models, UNRELATED)
    if kind == "same region":  # the cue lies on the digit that the label is read from
        base, cue, settings["place"] = "digits", "patch", (12, 12)
    elif kind == "harder group":
        base, cue, settings["harder"] = "digits", str(rng.choice(("tag", "patch", "ring"))), 0.3
    return World(kind, base, cue, architecture, seed, True, settings, models)


def _cue(rng: np.random.Generator) -> tuple[str, str]:
    every = [("digits", cue) for cue in DIGITS] + [("eyes", cue) for cue in EYES]
    return every[rng.integers(len(every))]


def _data(rng: np.random.Generator) -> dict[str, Any]:
    """How many rows, how clean their labels, how even their classes."""
    return {
        "n": int(rng.choice(SIZES)),
        "label_noise": float(rng.choice(NOISE)),
        "prevalence": float(rng.choice(PREVALENCES)),
    }


def _digit_classes(prevalence: float) -> dict[int, int]:
    """The largest digits are label 1."""
    return {digit: int(digit >= round(10 * (1 - prevalence))) for digit in range(10)}
