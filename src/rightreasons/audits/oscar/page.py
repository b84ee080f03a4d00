"""What OSCAR found, in words and in numbers."""

from __future__ import annotations

from typing import Literal

import numpy as np

from rightreasons.audits.oscar.compare import DEVIATION, PARTIAL, TEST_ATTRIBUTE, Compared, Comparison
from rightreasons.audits.oscar.judge import (
    ANSWERS_FOLLOW,
    ATTRIBUTE_LEARNT,
    EVERYWHERE,
    FIXED_PLACE,
    Judgement,
    has_no_fixed_place,
    mean_covers,
)
from rightreasons.audits.oscar.measurement import Measurement
from rightreasons.audits.oscar.wording import CORRELATIONS, MODELS
from rightreasons.findings import Check, Estimate, Row
from rightreasons.stats.replicates import Replicates
from rightreasons.stats.resampling import Interval

ROW: Row = "place"
# What both models use more is localised where it reaches no farther than this, or is worth no larger a share of the regions; it
# is diffuse where it reaches and is spread beyond the other pair.
NEAR, FEW = 0.75, 0.08
FAR, MANY = 0.85, 0.15

Extent = Literal["localised", "diffuse", "neither localised nor diffuse"]


# ---- in words ------------------------------------------------------------------------------------------------------------


def sentence(comparison: Comparison, judgement: Judgement) -> str:
    """The finding in one sentence, or two."""
    attribute = comparison.models.first.attribute
    number = f"partial correlation {_say_interval(comparison.deciding.interval)}"
    if judgement.verdict == "inconclusive":
        return f"{_say_failure(comparison, judgement)} ({number})."
    test = _say_test(comparison)
    if judgement.verdict == "shortcut":
        return (
            f"The test model looks where a model of “{attribute}” looks, beyond what a balanced model does: {number}, {test}. "
            f"{place(comparison)}"
        )
    if judgement.direction == "away":
        return (
            f"The test model looks away from where a model of “{attribute}” looks (counter-alignment, {number}, {test}): no "
            "evidence of a shortcut through it."
        )
    return (
        f"Beyond what a balanced model does, the test model looks where a model of “{attribute}” looks no more than chance "
        f"allows: {number}, {test}."
    )


def place(comparison: Comparison) -> str:
    """Whether what the two models share lies in one place or everywhere, in words."""
    first, attribute_models = comparison.compared[0], comparison.models.attribute
    if has_no_fixed_place(attribute_models):
        return "The maps of the attribute model have no fixed place, so no place is claimed."
    effective, R = first.spread.effective, first.profiles.shape[1]
    if np.isnan(effective):
        return "No region is used more by both: they agree on what they ignore."
    covers = mean_covers(attribute_models)
    return (
        f"What they share is {extent(first, covers)}: worth {effective:.0f} of {R} regions, reaching {first.reach:.0%} as far as "
        f"the whole image, where a single map of the attribute model covers {covers:.0%} of it."
    )


def extent(compared: Compared, covers: float) -> Extent:
    """Is what both models use more in one place or everywhere? `covers`: of the regions, by a map of the attribute model."""
    share = compared.spread.effective / compared.profiles.shape[1]
    if covers >= EVERYWHERE or (compared.reach >= FAR and share >= MANY):
        return "diffuse"
    if compared.reach <= NEAR or share <= FEW:
        return "localised"
    return "neither localised nor diffuse"


def _say_failure(comparison: Comparison, judgement: Judgement) -> str:
    """Why the finding is inconclusive."""
    attribute = comparison.models.first.attribute
    failed = {check.id: check for check in judgement.failed}
    # The maps of a model that has not learnt the attribute have no fixed place either, and say nothing about the cue.
    if has_no_fixed_place(comparison.models.attribute) and ATTRIBUTE_LEARNT not in failed:
        said = (
            f"The model of “{attribute}” looks at no fixed place: alignment fails, so OSCAR can neither find nor place a "
            "shortcut through it"
        )
        others = "; ".join(check.name for check in judgement.failed if check.id != FIXED_PLACE)
        if not others:
            return said
        return f"{said}. Other conditions that fail: {others}"
    if list(failed) == [ANSWERS_FOLLOW]:
        return (
            f"The test model looks where a model of “{attribute}” looks, beyond what a balanced model does, but its answers do "
            f"not follow it: {failed[ANSWERS_FOLLOW].note}"
        )
    return "The test's own conditions fail: " + "; ".join(map(_say_failed, judgement.failed))


def _say_failed(check: Check) -> str:
    if check.note:
        return f"{check.name} – no, {check.note}"
    return f"{check.name} – no"


def _say_interval(value: Interval) -> str:
    if np.isnan(value.value):
        return f"undefined: {value.reason}"
    return f"{value:.2f}"


def _say_test(comparison: Comparison) -> str:
    """The test that decides, with its p."""
    if comparison.by_replicates:
        r = comparison.replicates
        return (
            f"{r.tested:.0%} of the way from the balanced models to the attribute model (up to {r.upper:.0%} expected of "
            f"{len(r.values)} balanced models in its place), one-sided p = {r.p:.3g}"
        )
    return f"p = {comparison.deciding.spatial.p:.3g}"


# ---- in numbers ----------------------------------------------------------------------------------------------------------


def estimates(comparison: Comparison) -> list[Estimate]:
    """All estimates; the one that decides comes first, because a case reads the p and size of the first."""
    listed = _correlation_estimates(comparison) + _extent_estimates(comparison.compared[0])
    if not comparison.replicates.reason:
        step = _step_estimate(comparison.replicates)
        if comparison.by_replicates:
            listed = [step, *listed]
        else:
            listed = [*listed, step]
    for role in ("test", "baseline"):
        listed += _model_estimates(comparison.models.of(role)[0], MODELS[role])
    return listed


def _correlation_estimates(comparison: Comparison) -> list[Estimate]:
    listed = []
    for part in comparison.compared:
        for kind in (PARTIAL, DEVIATION, TEST_ATTRIBUTE):
            c = part.correlation(kind)
            listed.append(
                Estimate.of(
                    f"{CORRELATIONS[kind]}, {part.name}",
                    c.interval,
                    ROW,
                    p=None if np.isnan(c.spatial.p) else c.spatial.p,
                    n=comparison.models.n,
                    unit="correlation",
                    note=f"over {part.profiles.shape[1]} regions ({part.name}); interval: images; p: {c.spatial.null} null",
                )
            )
    return listed


def _extent_estimates(compared: Compared) -> list[Estimate]:
    spread, R = compared.spread, compared.profiles.shape[1]
    values = {
        "regions that test and attribute model use more (effective number)": spread.effective,
        "evenness of those regions (entropy, 1 = all alike)": spread.entropy,
        "concentration of those regions (Gini, 1 = one region)": spread.gini,
        "reach of those regions (0 = one place, 1 = the whole image)": compared.reach,
    }
    return [
        Estimate(name=name, value=value, n=R, row=ROW, reason=spread.reason, note="n: regions", group="extent")
        for name, value in values.items()
    ]


def _step_estimate(r: Replicates) -> Estimate:
    return Estimate(
        name="step from the balanced models towards the attribute model",
        value=r.tested,
        p=r.p,
        n=len(r.values),
        row=ROW,
        unit="share",
        group="replicates",
        note=f"0 is the balanced models, 1 the attribute model; one-sided p, prediction limit {r.upper:.2f}; n: balanced models",
    )


def _model_estimates(m: Measurement, who: str) -> list[Estimate]:
    worst, leakage = m.decisions.worst_group, m.leakage
    return [
        Estimate(
            name=f"worst-group accuracy, {who}",
            value=worst,
            n=m.n,
            row="behaviour",
            unit="share",
            group="models",
            reason="" if np.isfinite(worst) else "no group of ten rows, or no logits",
        ),
        _leakage_estimate(m, who),
        Estimate(
            name=f"decisions that change without the probe's direction, {who}",
            value=leakage.removed_flips,
            n=m.n,
            row="reliance",
            unit="share",
            group="models",
            reason=leakage.reason,
        ),
    ]


def _leakage_estimate(m: Measurement, who: str) -> Estimate:
    leakage = m.leakage
    if leakage.reason and not np.isfinite(leakage.auc.value):
        return Estimate(name=f"leakage, {who}", value=None, reason=leakage.reason, row="encoding", group="models")
    name = f"leakage: AUC of a probe of {m.attribute}, {who}"
    return Estimate.of(name, leakage.auc, "encoding", n=m.n, unit="AUC", group="models")
