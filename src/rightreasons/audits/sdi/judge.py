"""SDI's verdict: which operators remove the cue, what they take of its effect on predictions, and the checks behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np

from rightreasons.audits.sdi.effect import TOLERATED
from rightreasons.audits.sdi.formulas import COMPONENTS, Panel, combine, normalise
from rightreasons.audits.sdi.measurement import FEATURES, HEAD, SPACES, Measurement
from rightreasons.audits.sdi.severities import DEPENDS, Severities
from rightreasons.findings import Check, Verdict
from rightreasons.stats.resampling import Interval, benjamini_hochberg, interval

CUE_RULE, RATIO_RULE = "cue", "ratio"
RULES = (CUE_RULE, RATIO_RULE)
TOUCHED = 0.0  # fall of the probe's AUC beyond which an operator touches the cue
ALPHA = 0.05
# A test that finds nothing says so only where it could have seen something: an operator takes this share of what the probe reads
# beyond chance and leaves this share of the label's effect, and what it takes of the cue's effect is surely below UNSEEN.
SEES = 0.5
UNSEEN = 0.1
# By the rule "ratio": head-read R_sc below which the cue counts as unused.
UNUSED = 0.5


@dataclass(frozen=True)
class Model:
    """A measured model and its role."""

    role: str
    measurement: Measurement


@dataclass(frozen=True)
class Judged:
    """The tested model, judged, and the index of every model against the panel.

    Attributes
    ----------
    others : models of the other roles
    panel : None where there is neither a frozen panel nor a second model
    decide : the rule of the verdict
    """

    measurement: Measurement
    seeds: tuple[Measurement, ...]
    others: tuple[Model, ...]
    panel: Panel | None
    weights: tuple[float, ...]
    touched: float
    severities: Severities
    decide: str = CUE_RULE

    # ---- what each operator says, (k,) ----

    @property
    def touches(self) -> np.ndarray:
        """Operators that remove the cue from the features: the probe's AUC falls by more than `touched`, with its interval.

        An operator that costs the baseline AUC for an unknown reason counts for nothing.
        """
        return (self.measurement.probe.drop.low > self.touched) & self.measurement.operators.resolved

    @property
    def adjusted_taken(self) -> np.ndarray:
        """P of what is taken, Benjamini-Hochberg over operators that touch the cue: no other is tested."""
        return benjamini_hochberg(np.where(self.touches, self.measurement.effect.p, np.nan))

    @property
    def takes(self) -> np.ndarray:
        """Operators that take a part of the cue's effect on predictions, by its interval and adjusted p."""
        return (self.measurement.effect.taken.low > TOLERATED) & (self.adjusted_taken <= ALPHA)

    @property
    def adjusted(self) -> np.ndarray:
        """P of the head-read R_sc, Benjamini-Hochberg over operators."""
        return benjamini_hochberg(self.measurement.head.p)

    @property
    def moves(self) -> np.ndarray:
        """Operators that move what the head reads more than content does: R_sc above 1 by its interval and adjusted p."""
        return (self.measurement.head.r_sc.low > 1) & (self.adjusted <= ALPHA)

    @property
    def sees(self) -> np.ndarray:
        """Operators under which a use of the cue would show."""
        probe, effect = self.measurement.probe, self.measurement.effect
        cue_is_gone = probe.drop.value >= SEES * (probe.clean.value - 0.5)
        label_is_left = effect.left_label.value >= SEES * effect.label.value
        return self.touches & cue_is_gone & label_is_left

    @property
    def calls(self) -> np.ndarray:
        """Operators that speak for a shortcut."""
        return self.touches & (self.takes if self.decide == CUE_RULE else self.moves)

    # ---- the verdict ----

    @property
    def verdict(self) -> Verdict:
        if self.problem:
            return "inconclusive"
        return "shortcut" if self.calls.any() else "no evidence"

    @property
    def problem(self) -> str:
        """Why there can be no verdict; empty where there can."""
        m = self.measurement
        if not m.calibrated:
            return "the severities were not calibrated on a baseline"
        if not m.attribute:
            return "no cue is named"
        if np.isnan(m.probe.clean.value):
            return f"the cue cannot be probed ({m.probe.clean.reason})"
        if not self.touches.any():
            return f"no operator removes the cue from the features{self._unresolved()}"
        if self.calls.any():
            return ""
        if self.decide == CUE_RULE:
            return self._could_not_see()
        return self._could_not_compare()

    def _unresolved(self) -> str:
        names = self.measurement.calibration.unresolved
        if not names:
            return ""
        return f"; {', '.join(names)} cost the baseline AUC, and neither a balanced reference nor a mask says why"

    def _could_not_see(self) -> str:
        """Why finding nothing by the rule "cue" says nothing."""
        effect, sees = self.measurement.effect, self.sees
        if effect.reason:
            return effect.reason
        if not sees.any():
            return "no operator takes half of what the probe reads of the cue and leaves half of the label's effect"
        most = effect.taken.high[sees].max()
        if not most < UNSEEN:
            return f"with so few rows, operators that remove the cue may take up to {most:.2f} of its effect"
        return ""

    def _could_not_compare(self) -> str:
        """The same by the rule "ratio"."""
        r_sc, touches = self.measurement.head.r_sc, self.touches
        if np.isnan(r_sc.value[touches]).all():
            return "no operator that removes the cue could be compared with content operators of equal pixel change"
        if not np.nanmax(r_sc.high[touches]) < UNUSED:
            return (
                "under operators that remove the cue, what the head reads moves neither more than under content operators nor "
                f"clearly less (upper limit above {UNUSED:g}), and models that rely on a cue have shown that too"
            )
        return ""

    # ---- the index ----

    @property
    def models(self) -> tuple[Model, ...]:
        """Every model given, the tested one first."""
        tested = (self.measurement, *self.seeds)
        return (*(Model("test", m) for m in tested), *self.others)

    def index(self, measurement: Measurement, space: int = FEATURES) -> float:
        """The Shortcut Dependence Index against the panel; NaN without one."""
        if self.panel is None:
            return float("nan")
        return float(combine(measurement.components[space][None], self.panel.limits(space), self.weights)[0])

    def index_interval(self, measurement: Measurement, space: int = FEATURES) -> Interval:
        """The index with the interval of its components over the test rows; the panel is fixed."""
        value = self.index(measurement, space)
        if self.panel is None:
            return Interval(value, value, value, reason="one model alone has components but no index: give a panel")
        draws = combine(measurement.component_draws[:, space], self.panel.limits(space), self.weights)
        return interval(value, draws, reason="a component is undefined")

    def scaled(self, measurement: Measurement, space: int) -> np.ndarray:
        """(3,) components in the range of the panel (eq. 6); NaN without one."""
        if self.panel is None:
            return np.full(3, np.nan)
        components: np.ndarray = normalise(measurement.components[space][None], self.panel.limits(space))[0]
        return components


def panel_of(models: Sequence[Measurement], name: str = "the models given here") -> Panel:
    """The panel of some models, to be saved and given to `conclude` with any other."""
    return Panel.fit(name, [m.model for m in models], np.stack([m.components for m in models]))


# ---- checks --------------------------------------------------------------------------------------------------------------


def checks(judged: Judged) -> list[Check]:
    m = judged.measurement
    return [
        Check(
            id="calibrated",
            name="severities were calibrated on a baseline",
            passed=m.calibrated,
            note=f"baseline {m.calibration.baseline}" if m.calibrated else "reference severities; calibrate them first",
            decides=True,
        ),
        _all_resolved(m),
        Check(
            id="cue-removed",
            name="an operator removes the cue from the features",
            passed=bool(judged.touches.any()) if m.attribute else None,
            note=_names(m, judged.touches) or "the probe reads the cue as well under every operator",
            decides=True,
        ),
        Check(
            id="use-would-show",
            name="a use of the cue would show under an operator",
            passed=bool(judged.sees.any()) if m.attribute and not m.effect.reason else None,
            note=_names(m, judged.sees)
            or "none takes half of what the probe reads of the cue and leaves half of the label's effect",
        ),
        Check(
            id="content-matched",
            name="content operators of equal pixel change exist",
            passed=not np.isnan(m.head.r_sc.value).any(),
            note="; ".join(f"{name}: {why}" for name, why in zip(m.operators.name, m.operators.uncompared) if why),
        ),
        _baseline_depends(judged),
        _all_used(m),
        Check(id="probe-converged", name="the probe converged", passed=m.probe.converged),
        _inside_panel(judged),
    ]


def _names(m: Measurement, chosen: np.ndarray) -> str:
    return ", ".join(compress(m.operators.name, chosen))


def _all_resolved(m: Measurement) -> Check:
    unresolved = ", ".join(m.calibration.unresolved)
    return Check(
        id="calibration-resolved",
        name="no operator is left unexplained by the calibration",
        passed=not unresolved,
        note=f"{unresolved} decide nothing: give a cue-balanced reference model or masks" if unresolved else "",
    )


def _baseline_depends(judged: Judged) -> Check:
    """An operator that upsets a model without any use for the cue as much says nothing about the baseline."""
    severities = judged.severities
    marked = [o for o in severities.operators if o.status == DEPENDS]
    evidence = []
    for o in marked:
        if o.drop is None or o.drop - (o.drop_reference or 0.0) > severities.tolerance:
            evidence.append(o.operator)
    alike = [o.operator for o in marked if o.operator not in evidence]
    notes = []
    if evidence:
        notes.append(f"its AUC falls under {', '.join(evidence)} for a reason that is not content: that is evidence")
    if alike:
        notes.append(f"its AUC falls under {', '.join(alike)}, but so does the reference's: no evidence")
    return Check(
        id="baseline-independent",
        name="the baseline does not depend on an operator",
        passed=not evidence if judged.measurement.calibrated else None,
        note="; ".join(notes),
    )


def _all_used(m: Measurement) -> Check:
    excluded, missing = m.calibration.excluded, m.calibration.missing
    return Check(
        id="operators-used",
        name="every operator was used",
        passed=not (excluded or missing),
        note="; ".join([*(f"excluded {each}" for each in excluded), *(f"not extracted: {name}" for name in missing)]),
    )


def _inside_panel(judged: Judged) -> Check:
    cut = [*_cut_to_panel(judged, FEATURES), *_cut_to_panel(judged, HEAD)]
    return Check(
        id="inside-panel",
        name="the model lies inside the panel's range",
        passed=None if judged.panel is None else not cut,
        note="; ".join(cut),
    )


def _cut_to_panel(judged: Judged, space: int) -> list[str]:
    """Components that lie outside the panel's range and were cut to it."""
    if judged.panel is None:
        return []
    low, high = judged.panel.limits(space)
    components, scaled = judged.measurement.components[space], judged.scaled(judged.measurement, space)
    cut = []
    for k, name in enumerate(COMPONENTS):
        if not np.isnan(scaled[k]) and not low[k] <= components[k] <= high[k]:
            cut.append(f"{name} of {SPACES[space]} is cut to the panel's range")
    return cut
