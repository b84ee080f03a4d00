"""When OSCAR's number may be believed: its validity checks, and the verdict that they allow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from rightreasons.audits._oscar_measurement import Measurement
from rightreasons.audits._oscar_regions import ASSUMED
from rightreasons.audits._pull import followed_check, mean_pull
from rightreasons.findings import Check, Verdict

if TYPE_CHECKING:
    from rightreasons.audits.oscar import Result

FEWEST_IMAGES = 40
EMPTY_SHARE = 0.01
ASSOCIATION = 0.1  # Cramér's V of label and attribute up to which training rows count as balanced
CONSERVED = 0.05
# Maps that share no place: their mean fills this much of the image that a single map leaves free. On trained CNNs (digits) 0.88
# for a tag with no fixed place and 0 to 0.25 for a fixed one; on simulated maps 0.84 to 0.91 and 0.14 to 0.40.
WANDERING = 0.75
# What a test that finds nothing must have been able to see: a model a quarter of the way to the attribute model, or a correlation
# of one half. On trained CNNs (digits) the limits were 0.05 to 0.1 of the way with eight balanced models.
SEEN_STEP, SEEN_CORRELATION = 0.25, 0.5
# A map that covers this share of the regions lies everywhere, and so has no place to lose.
EVERYWHERE = 0.8
LEARNT = "the attribute model is better than chance"
FIXED = "the attribute model looks at a fixed place"


def verdict(result: Result) -> Verdict:
    """`shortcut` where the test that decides is significant in the shortcut's direction and its conditions hold."""
    if any(check.decides and check.passed is False for check in checks(result)):
        return "inconclusive"
    return "shortcut" if significance(result) == 1 else "no evidence"


def significance(result: Result) -> int:
    """1 where the test that decides finds the model significantly towards the attribute model, -1 away from it, 0 neither."""
    decides = result.compared[0].correlation()
    if result.decide == "replicates":
        if result.replicates.p <= result.alpha:
            return 1
        return -1 if decides.interval.value < 0 and decides.spatial.p <= result.alpha else 0
    return int(np.sign(decides.interval.value)) if decides.spatial.p <= result.alpha else 0


def wandering(members: Sequence[Measurement]) -> float:
    """How much of the image that a single map leaves free the mean of all maps fills: 0 is one place, 1 is any."""
    return float(np.mean([0.0 if m.covers >= EVERYWHERE else m.wandering for m in members]))


def checks(result: Result) -> list[Check]:
    models = result.models
    m = models.first
    found = [
        _targets(result),
        _balanced(m),
        Check(
            name=f"at least {FEWEST_IMAGES} images",
            passed=models.n >= FEWEST_IMAGES,
            note=_shared(result),
            decides=True,
        ),
        _empty(models.all),
        _reference_rows(models.baseline),
        _better_than_chance("the baseline model is better than chance", models.baseline),
        _better_than_chance(LEARNT, models.attribute),
        _null(result),
        _could_see(result),
        _partitions_agree(result),
        _alignment(models.attribute, m.attribute),
        _has_place(result),
        followed_check(mean_pull([x.pull for x in models.test]), m.attribute, decides=significance(result) == 1),
        _geometry(m),
    ]
    errors = [x.conservation for x in models.all if not np.isnan(x.conservation)]
    if errors:
        worst = max(errors)
        found.append(
            Check(
                name="relevance adds up to the explained score",
                passed=worst <= CONSERVED,
                note=f"median relative error {worst:.3g} in the worst model, at most {CONSERVED:g} expected",
            )
        )
    if result.seeds:
        signs = {np.sign(one.interval.value) for one in result.seeds}
        found.append(Check(name="all test models have the same sign", passed=len(signs) == 1))
    return found


# ---- one by one ----------------------------------------------------------------------------------------------------------


def _targets(result: Result) -> Check:
    models = result.models
    wrong = [f"{m.model} predicts {m.target}" for m in (*models.test, *models.baseline) if m.target != m.label_name]
    wrong += [f"{m.model} predicts {m.target}" for m in models.attribute if m.target != m.attribute]
    return Check(
        name="the models predict what their roles say", passed=not wrong, note="; ".join(dict.fromkeys(wrong)), decides=True
    )


def _balanced(m: Measurement) -> Check:
    lacking = [f"{m.label_name} {m.classes[y]}, {m.attribute} {m.levels[a]}" for y, a in np.argwhere(m.group_sizes == 0)]
    if lacking:
        note = f"no test row with {'; '.join(lacking)}: the attribute cannot be told from the label there"
        return Check(name="test rows are balanced", passed=False, note=note, decides=True)
    left = f"{m.left_out} of {m.left_out + m.n} test rows left out to balance {m.attribute} within {m.label_name}"
    missing = f"; {m.missing} without label or attribute" if m.missing else ""
    return Check(name="test rows are balanced", passed=True, note=left + missing, decides=True)


def _shared(result: Result) -> str:
    most = max(m.n for m in result.models.all)
    few = f", of {most} of a single model" if most > result.models.n else ""
    subjects = result.context.n_subjects
    return f"{result.models.n} images{few}" + ("" if subjects is None else f" of {subjects} subjects")


def _empty(members: Sequence[Measurement]) -> Check:
    worst = max(members, key=lambda m: m.empty / m.n)
    share = worst.empty / worst.n
    note = f"{worst.empty} of {worst.n} maps of {worst.model} are empty and tell nothing" if worst.empty else ""
    return Check(name=f"at most {EMPTY_SHARE:.0%} of the maps are empty", passed=share <= EMPTY_SHARE, note=note)


def _reference_rows(members: Sequence[Measurement]) -> Check:
    name = "the baseline was trained on balanced rows"
    known = [m for m in members if not np.isnan(m.association)]
    if not known:
        return Check(name=name, passed=None, note="its training rows are not known", decides=True)
    worst = max(known, key=lambda m: m.association)
    note = f"label and attribute are associated with V = {worst.association:.2f} in its {worst.training_rows} training rows"
    return Check(name=name, passed=worst.association <= ASSOCIATION, note=note, decides=True)


def _better_than_chance(name: str, members: Sequence[Measurement]) -> Check:
    worst = min(members, key=lambda m: np.nan_to_num(m.accuracy.low, nan=-1.0))
    if np.isnan(worst.accuracy.low):
        return Check(name=name, passed=None, note=worst.accuracy.reason, decides=True)
    note = (
        f"balanced accuracy {worst.accuracy.value:.2f} ({worst.accuracy.low:.2f} to {worst.accuracy.high:.2f}), chance "
        f"{worst.chance:.2f}"
    )
    return Check(name=name, passed=worst.accuracy.low > worst.chance, note=note, decides=True)


def _null(result: Result) -> Check:
    if result.decide == "replicates":
        p, reason = result.replicates.p, result.replicates.reason
        note = reason or f"{len(result.replicates.values)} balanced models in the test model's place"
        return Check(name="enough balanced models", passed=not np.isnan(p), note=note, decides=True)
    test = result.compared[0].correlation().spatial
    note = test.reason or f"null “{test.null}”, which knows that neighbouring regions are alike"
    return Check(name="a spatial null is available", passed=not np.isnan(test.p), note=note, decides=True)


def _could_see(result: Result) -> Check:
    """Not finding says something only where the test could have found."""
    name = "the test could have seen a shortcut"
    if significance(result) != 0:
        return Check(name=name, passed=True, decides=True)
    if result.decide == "replicates":
        limit = result.replicates.upper
        note = f"balanced models alone may lie {limit:.0%} of the way to the attribute model, up to {SEEN_STEP:.0%} expected"
        return Check(name=name, passed=bool(limit <= SEEN_STEP), note=note + _more(limit > SEEN_STEP), decides=True)
    value = result.compared[0].correlation().interval.value
    note = (
        f"a partial correlation of {value:.2f} that the spatial null cannot tell from chance" if value > SEEN_CORRELATION else ""
    )
    return Check(name=name, passed=not value > SEEN_CORRELATION, note=note + _more(bool(note)), decides=True)


def _more(wanted: bool) -> str:
    return ": train more balanced models" if wanted else ""


def _partitions_agree(result: Result) -> Check:
    name = "the partitions agree on the sign"
    if len(result.compared) == 1:
        return Check(name=name, passed=None, note="one partition only", decides=True)
    values = {part.name: part.correlation().interval.value for part in result.compared}
    note = ", ".join(f"{part} {value:+.2f}" for part, value in values.items())
    signs = {np.sign(value) for value in values.values() if not np.isnan(value) and value != 0}
    return Check(name=name, passed=len(signs) <= 1, note=note, decides=True)


def _alignment(members: Sequence[Measurement], attribute: str) -> Check:
    name = FIXED
    ratio = wandering(members)
    if np.isnan(ratio):
        return Check(name=name, passed=None, note="all its maps are empty", decides=True)
    steady = float(np.mean([m.agreement for m in members]))
    note = (
        f"the mean of its maps fills {max(ratio, 0):.0%} of the image that a single map leaves free (up to {WANDERING:.0%} "
        f"expected), and the ranks of one image correlate {steady:.2f} with those of the others"
    )
    if ratio > WANDERING:
        note += (
            f": {attribute} shows at another place in every image, or the images are not aligned, or the model found nothing "
            "that holds for all of them; OSCAR cannot place such a cue"
        )
    return Check(name=name, passed=ratio <= WANDERING, note=note, decides=True)


def _has_place(result: Result) -> Check:
    """A comparison of places can find a cue that is everywhere, but not finding it tells nothing."""
    name = "the attribute model looks at some regions more than at others"
    covers = float(np.mean([m.covers for m in result.models.attribute]))
    if np.isnan(covers):
        return Check(name=name, passed=None, note="all its maps are empty")
    blind = covers >= EVERYWHERE and significance(result) != 1
    note = f"a single map covers {covers:.0%} of the regions"
    return Check(name=name, passed=not blind, note=note + (": there is no place to compare" if blind else ""), decides=True)


def _geometry(m: Measurement) -> Check:
    known = m.geometry != ASSUMED
    note = "" if known else "the card does not say at which size and crop the images were read: regions are cut from whole images"
    return Check(name="the input geometry is known", passed=True if known else None, note=note)
