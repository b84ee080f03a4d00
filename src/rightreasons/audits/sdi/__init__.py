"""SDI: does the model move more with the acquisition than with the content?

Images are changed by nuisance operators (borders, colours, the device) and by content operators (contrast, shapes and patches
inside the field of view) that change pixels as much. The ratio of what both do to the features is the paper's, and that of what
the head reads stands beside it, because a cue may be encoded and unused. Neither has a scale of its own: both depend on how
strong the operator is and on how fragile the network. The verdict therefore rests on what an operator that takes the cue from the
features takes of the cue's effect on the predictions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from rightreasons.audits import _sdi_page as page
from rightreasons.audits._contract import Context, Need, Role
from rightreasons.audits._sdi_formulas import WEIGHTS, Panel, combine, head_read, normalise, ratio, sensitivity
from rightreasons.audits._sdi_measure import INSERTED, TOLERATED, Measurement, measured
from rightreasons.audits.sdi.severities import Severities, content_recipe, nuisance_recipe
from rightreasons.audits.sdi.severities import severities as _severities
from rightreasons.errors import NotRun, SettingError
from rightreasons.evidence import Evidence
from rightreasons.families import suggest
from rightreasons.findings import Finding, Row, Verdict
from rightreasons.stats.resampling import Interval, benjamini_hochberg, interval

__all__ = [
    "Measurement", "Panel", "Result", "combine", "conclude", "head_read", "measure", "needs", "normalise", "panel_of",
    "ratio", "roles", "sensitivity",
]  # fmt: skip

QUESTION = "Does the model move more with the acquisition than with the content?"
ROW: Row = "reliance"

ROLES = ("test", "baseline", "reference", "panel")
RULES = ("cue", "ratio")
TOUCHED = 0.0  # fall of the probe's AUC beyond which an operator touches the cue
ALPHA = 0.05
HEAD = 1  # the space of what the head reads
# A test that finds nothing says so only where it could have seen: an operator takes this share of what the probe reads beyond
# chance and leaves this share of the label's effect, and the interval of what it takes of the cue's effect ends below UNSEEN.
SEES = 0.5
UNSEEN = 0.1
# By the rule "ratio": head-read R_sc below which the cue counts as unused.
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
    adjusted, adjusted_taken : (k,) p of the head-read R_sc and of what is taken, Benjamini-Hochberg over operators
    decide : the rule of the verdict
    """

    measurement: Measurement
    seeds: tuple[Measurement, ...]
    others: tuple[tuple[str, Measurement], ...]
    panel: Panel | None
    weights: tuple[float, ...]
    touched: float
    severities: Severities
    decide: str = "cue"
    context: Context = field(default_factory=Context)

    @property
    def adjusted(self) -> np.ndarray:
        return benjamini_hochberg(self.measurement.p[HEAD])

    @property
    def adjusted_taken(self) -> np.ndarray:
        """Over operators that touch the cue: no other is asked."""
        return benjamini_hochberg(np.where(self.touches, self.measurement.taken_p, np.nan))

    @property
    def moves(self) -> np.ndarray:
        """(k,) operators that move what the head reads more than content does: R_sc above 1 with its interval and adjusted p."""
        return (self.measurement.r_sc[HEAD, :, 1] > 1) & (self.adjusted <= ALPHA)

    @property
    def takes(self) -> np.ndarray:
        """(k,) operators that take a part of the cue's effect on predictions, with its interval and adjusted p."""
        return (self.measurement.taken[:, 1] > TOLERATED) & (self.adjusted_taken <= ALPHA)

    @property
    def touches(self) -> np.ndarray:
        """(k,) operators that take the cue from the features: the probe's AUC falls by more than `touched`, with its interval.

        An operator that costs the baseline AUC for a reason unknown counts for nothing.
        """
        return (self.measurement.auc_drop[:, 1] > self.touched) & self.measurement.resolved

    @property
    def sees(self) -> np.ndarray:
        """(k,) operators under which a use of the cue would show."""
        m = self.measurement
        gone = m.auc_drop[:, 0] >= SEES * (m.auc_clean.value - 0.5)
        speaks = m.left_label[:, 0] >= SEES * m.label_effect[0]
        return self.touches & gone & speaks

    @property
    def calls(self) -> np.ndarray:
        """(k,) operators that speak for a shortcut."""
        return self.touches & (self.takes if self.decide == "cue" else self.moves)

    @property
    def problem(self) -> str:
        """Why there can be no verdict; empty where there can."""
        m = self.measurement
        if not m.calibrated:
            return "the severities were not calibrated on a baseline"
        if not m.attribute:
            return "no cue is named"
        if np.isnan(m.auc_clean.value):
            return f"the cue cannot be probed ({m.auc_clean.reason})"
        if not self.touches.any():
            return f"no operator takes the cue from the features{self._unresolved}"
        if self.calls.any():
            return ""
        return self._unseen if self.decide == "cue" else self._uncompared

    @property
    def _unresolved(self) -> str:
        names = self.measurement.unresolved
        return (
            f"; {', '.join(names)} cost the baseline AUC, and neither a balanced reference nor a mask says why" if names else ""
        )

    @property
    def _unseen(self) -> str:
        m = self.measurement
        if m.effect_reason:
            return m.effect_reason
        if not self.sees.any():
            return "no operator takes half of what the probe reads of the cue and leaves half of the label's effect"
        if not m.taken[self.sees, 2].max() < UNSEEN:
            return f"operators that take the cue may take up to {m.taken[self.sees, 2].max():.2f} of its effect: too few rows"
        return ""

    @property
    def _uncompared(self) -> str:
        m = self.measurement
        if np.isnan(m.r_sc[HEAD, self.touches, 0]).all():
            return "no operator that takes the cue could be compared with content operators of equal pixel change"
        if not np.nanmax(m.r_sc[HEAD, self.touches, 2]) < UNUSED:
            return (
                "what the head reads moves with the cue's operators neither more than with content nor clearly less (upper limit "
                f"above {UNUSED:g}), which models that rely on the cue have shown as well"
            )
        return ""

    @property
    def verdict(self) -> Verdict:
        if self.problem:
            return "inconclusive"
        return "shortcut" if self.calls.any() else "no evidence"

    def index(self, measurement: Measurement, space: int = 0) -> float:
        """The Shortcut Dependence Index against the panel; NaN without one."""
        if self.panel is None:
            return float("nan")
        return float(combine(measurement.components[space][None], self.panel.limits(space), self.weights)[0])

    def index_interval(self, measurement: Measurement, space: int = 0) -> Interval:
        """The index with the interval of its components over the test rows; the panel is fixed."""
        value = self.index(measurement, space)
        if self.panel is None:
            return Interval(value, value, value, reason="one model alone has components but no index: give a panel")
        draws = combine(measurement.component_draws[:, space], self.panel.limits(space), self.weights)
        return interval(value, draws, reason="a component is undefined")

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
    decide: str = "cue",
) -> Result:
    """`shortcut` when an operator that takes the cue from the features takes a part of its effect on the predictions.

    Parameters
    ----------
    decide : "cue", or "ratio": such an operator moves what the head reads more than content of equal pixel change does
    panel : file of a frozen panel (`Panel.save`); by default the models of the role `panel`, or all given, if two or more
    weights : of S_nc, R_sc and AUC_nc in the index (eq. 5)
    touched : fall of the probe's AUC, as the interval's lower limit, beyond which an operator takes the cue
    """
    if decide not in RULES:
        raise SettingError(f"decide={decide!r}: {suggest(decide, RULES)}")
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
        decide,
        Context(attribute=m.attribute, n_rows=m.n, n_subjects=m.n_subjects),
    )


def panel_of(models: Sequence[Measurement], name: str = "the models given here") -> Panel:
    """The panel of some models, to be saved and given to `conclude` with any other."""
    return Panel.fit(name, [m.model for m in models], np.stack([m.components for m in models]))


def _panel(measurements: Mapping[str, Sequence[Measurement]], tested: Sequence[Measurement]) -> Panel | None:
    named = list(measurements.get("panel", ()))
    if len(named) < 2:
        named = [*tested, *(m for role in ROLES[1:] for m in measurements.get(role, ()))]
    return panel_of(named) if len(named) > 1 else None
