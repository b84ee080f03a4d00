"""SDI: does the model move more with the acquisition than with the content?

Images are changed by nuisance operators (borders, colours, the device) and by content operators (contrast, shapes and patches
inside the field of view) that change pixels as much. The ratio of what both do to the features is the paper's; the verdict rests
on the part of the features that the head reads, because a cue may be encoded and unused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from rightreasons.audits import _sdi_page as page
from rightreasons.audits._contract import Context, Need, Role
from rightreasons.audits._sdi_formulas import WEIGHTS, Panel, combine, head_read, normalise, ratio, sensitivity
from rightreasons.audits._sdi_measure import INSERTED, Measurement, measured
from rightreasons.audits._sdi_severities import Severities, content_recipe, nuisance_recipe
from rightreasons.audits._sdi_severities import severities as _severities
from rightreasons.errors import NotRun, SettingError
from rightreasons.evidence import Evidence
from rightreasons.findings import Finding, Row, Verdict
from rightreasons.stats.resampling import benjamini_hochberg

__all__ = [
    "Measurement", "Panel", "Result", "combine", "conclude", "head_read", "measure", "needs", "normalise", "ratio", "roles",
    "sensitivity",
]  # fmt: skip

QUESTION = "Does the model move more with the acquisition than with the content?"
ROW: Row = "reliance"

ROLES = ("test", "baseline", "reference", "panel")
TOUCHED = 0.0  # fall of the probe's AUC beyond which an operator touches the cue
ALPHA = 0.05
HEAD = 1  # the space that decides
# Head-read ratio below which the cue counts as unused. Models that encode a cue and ignore it had 0.05 to 0.46; models that
# rely on one had 1.3 to 1.9, but also 0.6 and 1.0 where the operator that takes the cue changes many pixels.
UNUSED = 0.5


def needs(severities: str | None = None, operators: Sequence[str] | None = None, draws: int = 1) -> tuple[Need, ...]:
    """Features as they are and under every operator; and how much the pixels change.

    Without severities nor operators only the features as they are: some thirty passes for no verdict are nobody's default.
    """
    if severities is None and operators is None:
        return tuple(Need(role, cohort, "features", role != "test") for role in ROLES for cohort in ("audit", "test"))
    found: dict[Need, None] = {}
    for role in ROLES:
        optional = role != "test"
        for cohort in ("audit", "test"):
            found[Need(role, cohort, "features", optional)] = None
        for draw in range(draws):
            for operator in _severities(severities, operators).used:
                names = [(nuisance_recipe("features", operator, draw), nuisance_recipe("change", operator, draw))]
                names += [
                    (content_recipe("features", c, s, draw), content_recipe("change", c, s, draw))
                    for c, s in operator.content.items()
                ]
                for features, change in names:
                    found[Need(role, "test", features, optional)] = None
                    found[Need(role, "test", change, True)] = None
                if operator.operator == INSERTED and draw == 0:  # the cue of rows that have none
                    found[Need(role, "audit", names[0][0], True)] = None
    return tuple(found)


def roles() -> tuple[Role, ...]:
    return ()


@dataclass(frozen=True)
class Result:
    """What SDI says of the tested model, and the index of every model against the panel.

    Attributes
    ----------
    others : models of the other roles, with their role
    panel : None where there is neither a frozen panel nor a second model
    adjusted : (k,) p of the head-read R_sc, Benjamini-Hochberg over operators
    """

    measurement: Measurement
    seeds: tuple[Measurement, ...]
    others: tuple[tuple[str, Measurement], ...]
    panel: Panel | None
    weights: tuple[float, ...]
    touched: float
    severities: Severities
    context: Context = field(default_factory=Context)

    @property
    def adjusted(self) -> np.ndarray:
        return benjamini_hochberg(self.measurement.p[HEAD])

    @property
    def moves(self) -> np.ndarray:
        """(k,) operators that move what the head reads more than content does: R_sc above 1 with its interval and adjusted p."""
        return (self.measurement.r_sc[HEAD, :, 1] > 1) & (self.adjusted <= ALPHA)

    @property
    def touches(self) -> np.ndarray:
        """(k,) operators that take the cue from the features: the probe's AUC falls by more than `touched`, with its interval."""
        return self.measurement.auc_drop[:, 1] > self.touched

    @property
    def problem(self) -> str:
        """Why there can be no verdict; empty where there can."""
        m = self.measurement
        if not m.calibrated:
            return "the severities were not calibrated on a baseline"
        if m.unresolved:
            return f"{', '.join(m.unresolved)} cost the baseline AUC, and neither a balanced reference nor a mask says why"
        if not m.attribute:
            return "no cue is named"
        if np.isnan(m.auc_clean.value):
            return f"the cue cannot be probed ({m.auc_clean.reason})"
        if np.isnan(m.r_sc[HEAD, :, 0]).all():
            return "no operator could be compared with content operators of equal pixel change"
        if not self.touches.any():
            return "no operator takes the cue from the features"
        if np.isnan(m.r_sc[HEAD, self.touches, 0]).all():
            return "no operator that takes the cue could be compared with content operators of equal pixel change"
        if not (self.moves & self.touches).any() and not np.nanmax(m.r_sc[HEAD, self.touches, 2]) < UNUSED:
            return (
                "what the head reads moves with the cue's operators neither more than with content nor clearly less (upper limit "
                f"above {UNUSED:g}), which models that rely on the cue have shown as well"
            )
        return ""

    @property
    def verdict(self) -> Verdict:
        if self.problem:
            return "inconclusive"
        return "shortcut" if (self.moves & self.touches).any() else "no evidence"

    def index(self, measurement: Measurement, space: int = 0) -> float:
        """The Shortcut Dependence Index against the panel; NaN without one."""
        if self.panel is None:
            return float("nan")
        return float(combine(measurement.components[space][None], self.panel.limits(space), self.weights)[0])

    def finding(self) -> Finding:
        return self.context.finding(
            question=QUESTION,
            row=ROW,
            verdict=self.verdict,
            sentence=page.sentence(self),
            estimates=page.estimates(self),
            checks=page.checks(self),
            exhibits=page.exhibits(self),
        )


def measure(
    evidence: Evidence,
    *,
    rng: np.random.Generator,
    attribute: str | None = None,
    severities: str | None = None,
    operators: Sequence[str] | None = None,
    draws: int = 1,
    C: float = 1.0,
    B: int = 2_000,
    level: float = 0.95,
) -> Measurement:
    """Sensitivities under every operator, on test rows; the cue's probe is fitted on audit rows and read on test rows.

    Parameters
    ----------
    attribute : the cue. A cohort without attributes gets a border inserted in a random half of its rows, and no verdict.
    severities : file that `rightreasons.perturbations.calibration` wrote; without it reference severities, and no verdict
    operators : nuisance operators to use; all of the file by default. One of the two must be given
    draws : perturbed copies of each image
    C : inverse penalty of the probe
    """
    if draws < 1:
        raise SettingError(f"draws={draws}: give 1 or more")
    if severities is None and operators is None:
        raise NotRun(
            "no severities: calibrate them on a baseline (rightreasons.perturbations.calibration.calibrate) and give its file as "
            "severities=, or name operators= to see their effect at reference severities, without a verdict"
        )
    return measured(evidence, _severities(severities, operators), attribute, draws, C, B, level, rng)


def conclude(
    measurements: Mapping[str, Sequence[Measurement]],
    *,
    rng: np.random.Generator,
    severities: str | None = None,
    operators: Sequence[str] | None = None,
    panel: str | None = None,
    weights: Sequence[float] = WEIGHTS,
    touched: float = TOUCHED,
) -> Result:
    """`shortcut` when an operator that takes the cue moves what the head reads more than content of equal pixel change does.

    Parameters
    ----------
    panel : file of a frozen panel (`Panel.save`); by default the models of the role `panel`, or all given, if two or more
    weights : of S_nc, R_sc and AUC_nc in the index (eq. 5)
    touched : fall of the probe's AUC, as the interval's lower limit, beyond which an operator takes the cue
    """
    tested = tuple(measurements["test"])
    others = tuple((role, m) for role in ROLES[1:] for m in measurements.get(role, ()))
    chosen = Panel.read(Path(panel)) if panel else _panel(measurements, tested)
    if chosen is not None:
        combine(np.zeros((1, 3)), np.zeros((2, 3)), weights)  # refuses weights before anything is said with them
    m = tested[0]
    return Result(
        m,
        tested[1:],
        others,
        chosen,
        tuple(float(w) for w in weights),
        touched,
        _severities(severities, operators),
        Context(attribute=m.attribute, n_rows=m.n, n_subjects=m.n_subjects),
    )


def _panel(measurements: Mapping[str, Sequence[Measurement]], tested: Sequence[Measurement]) -> Panel | None:
    named = list(measurements.get("panel", ()))
    if len(named) < 2:
        named = [*tested, *(m for role in ROLES[1:] for m in measurements.get(role, ()))]
    if len(named) < 2:
        return None
    return Panel.fit("the models given here", [m.model for m in named], np.stack([m.components for m in named]))
