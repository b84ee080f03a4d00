"""When OSCAR's number may be believed: the conditions of its test, and the verdict that they allow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from rightreasons.audits._following import followed_check, mean_pull
from rightreasons.audits.oscar.compare import Comparison
from rightreasons.audits.oscar.measurement import Measurement
from rightreasons.findings import Check, Verdict

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

ROLES_FIT = "roles-fit"
ROWS_BALANCED = "rows-balanced"
ENOUGH_IMAGES = "enough-images"
FEW_EMPTY_MAPS = "few-empty-maps"
BASELINE_BALANCED = "baseline-balanced"
BASELINE_LEARNT = "baseline-learnt"
ATTRIBUTE_LEARNT = "attribute-learnt"
ENOUGH_REPLICATES = "enough-replicates"
NULL_AVAILABLE = "null-available"
COULD_SEE = "could-see"
PARTITIONS_AGREE = "partitions-agree"
FIXED_PLACE = "fixed-place"
SOME_PLACE = "some-place"
ANSWERS_FOLLOW = "answers-follow"
GEOMETRY_KNOWN = "geometry-known"
CONSERVES = "relevance-conserved"
SEEDS_AGREE = "seeds-agree"

NAMES = {
    ROLES_FIT: "the models predict what their roles say",
    ROWS_BALANCED: "test rows are balanced",
    ENOUGH_IMAGES: f"at least {FEWEST_IMAGES} images",
    FEW_EMPTY_MAPS: f"at most {EMPTY_SHARE:.0%} of the maps are empty",
    BASELINE_BALANCED: "the baseline was trained on balanced rows",
    BASELINE_LEARNT: "the baseline model is better than chance",
    ATTRIBUTE_LEARNT: "the attribute model is better than chance",
    ENOUGH_REPLICATES: "enough balanced models",
    NULL_AVAILABLE: "a spatial null is available",
    COULD_SEE: "the test could have seen a shortcut",
    PARTITIONS_AGREE: "the partitions agree on the sign",
    FIXED_PLACE: "the attribute model looks at a fixed place",
    SOME_PLACE: "the attribute model looks at some regions more than at others",
    GEOMETRY_KNOWN: "the input geometry is known",
    CONSERVES: "relevance adds up to the explained score",
    SEEDS_AGREE: "all test models have the same sign",
}

Direction = Literal["towards", "away", "neither"]


@dataclass(frozen=True)
class Judgement:
    """What a comparison allows to say.

    Attributes
    ----------
    direction : where the test that decides finds the model significantly, seen from the attribute model
    """

    verdict: Verdict
    direction: Direction
    checks: tuple[Check, ...]

    @property
    def failed(self) -> tuple[Check, ...]:
        """The checks that make the verdict `inconclusive`."""
        return tuple(check for check in self.checks if check.decides and check.passed is False)


def judge(comparison: Comparison) -> Judgement:
    """`shortcut` where the test that decides is significant in the shortcut's direction and its conditions hold."""
    direction = significant_direction(comparison)
    verdict: Verdict = "shortcut" if direction == "towards" else "no evidence"
    judgement = Judgement(verdict, direction, checks(comparison, direction))
    if not judgement.failed:
        return judgement
    return Judgement("inconclusive", direction, judgement.checks)


def significant_direction(comparison: Comparison) -> Direction:
    """Does the test that decides find the test model significantly towards the attribute model, or away from it?"""
    correlation, alpha = comparison.deciding, comparison.alpha
    if comparison.by_replicates and comparison.replicates.p <= alpha:
        return "towards"
    if not correlation.spatial.p <= alpha:
        return "neither"
    if correlation.interval.value < 0:
        return "away"
    return "neither" if comparison.by_replicates else "towards"


def wandering(members: Sequence[Measurement]) -> float:
    """How much of the image that a single map leaves free the mean of all maps fills: 0 is one place, 1 is any."""
    return float(np.mean([0.0 if m.covers >= EVERYWHERE else m.wandering for m in members]))


def has_no_fixed_place(members: Sequence[Measurement]) -> bool:
    return wandering(members) > WANDERING


def mean_covers(members: Sequence[Measurement]) -> float:
    """Share of the regions that a single map covers, mean over models."""
    return float(np.mean([m.covers for m in members]))


def checks(comparison: Comparison, direction: Direction) -> tuple[Check, ...]:
    """All conditions, in the order of the page."""
    models = comparison.models
    m = models.first
    conditions = [
        roles_fit(comparison),
        rows_balanced(m),
        enough_images(comparison),
        few_empty_maps(models.all),
        baseline_balanced(models.baseline),
        better_than_chance(BASELINE_LEARNT, models.baseline),
        better_than_chance(ATTRIBUTE_LEARNT, models.attribute),
        enough_replicates(comparison) if comparison.by_replicates else null_available(comparison),
        could_see(comparison, direction),
        partitions_agree(comparison),
        fixed_place(models.attribute, m.attribute),
        some_place(models.attribute, direction),
        answers_follow(comparison, direction),
        geometry_known(m),
    ]
    errors = [x.conservation for x in models.all if not np.isnan(x.conservation)]
    if errors:
        conditions.append(relevance_conserved(max(errors)))
    if comparison.seeds:
        signs = {np.sign(single.interval.value) for single in comparison.seeds}
        conditions.append(_check(SEEDS_AGREE, len(signs) == 1, decides=False))
    return tuple(conditions)


# ---- one by one ----------------------------------------------------------------------------------------------------------


def roles_fit(comparison: Comparison) -> Check:
    models = comparison.models
    wrong = [m for m in (*models.test, *models.baseline) if m.target != m.label_name]
    for m in models.attribute:
        if m.target != m.attribute:
            wrong.append(m)
    said = dict.fromkeys(f"{m.model} predicts {m.target}" for m in wrong)
    return _check(ROLES_FIT, not wrong, "; ".join(said))


def rows_balanced(m: Measurement) -> Check:
    empty_groups = np.argwhere(m.rows.group_sizes == 0)
    if len(empty_groups):
        said = "; ".join(f"{m.label_name} {m.classes[y]}, {m.attribute} {m.levels[a]}" for y, a in empty_groups)
        return _check(ROWS_BALANCED, False, f"no test row with {said}: the attribute cannot be told from the label there")
    note = f"{m.rows.left_out} of {m.rows.left_out + m.n} test rows left out to balance {m.attribute} within {m.label_name}"
    if m.rows.missing:
        note += f"; {m.rows.missing} without label or attribute"
    return _check(ROWS_BALANCED, True, note)


def enough_images(comparison: Comparison) -> Check:
    models = comparison.models
    most = max(m.n for m in models.all)
    note = f"{models.n} images"
    if comparison.n_subjects is not None:
        note += f" of {comparison.n_subjects} subjects"
    if most > models.n:
        note += f" that all models share, where one of them has {most}"
    return _check(ENOUGH_IMAGES, models.n >= FEWEST_IMAGES, note)


def few_empty_maps(members: Sequence[Measurement]) -> Check:
    worst = max(members, key=lambda m: m.ranking.empty / m.n)
    empty = worst.ranking.empty
    note = ""
    if empty:
        note = f"{empty} of {worst.n} maps of {worst.model} are empty and rank no region"
    return _check(FEW_EMPTY_MAPS, empty / worst.n <= EMPTY_SHARE, note, decides=False)


def baseline_balanced(members: Sequence[Measurement]) -> Check:
    known = [m.training for m in members if not np.isnan(m.training.association)]
    if not known:
        return _check(BASELINE_BALANCED, None, "its training rows are not known")
    worst = max(known, key=lambda training: training.association)
    note = f"label and attribute are associated with V = {worst.association:.2f} in its {worst.rows} training rows"
    return _check(BASELINE_BALANCED, worst.association <= ASSOCIATION, note)


def better_than_chance(check: str, members: Sequence[Measurement]) -> Check:
    worst = min((m.decisions for m in members), key=lambda d: np.nan_to_num(d.accuracy.low, nan=-1.0))
    accuracy, chance = worst.accuracy, worst.chance
    if np.isnan(accuracy.low):
        return _check(check, None, accuracy.reason)
    note = f"balanced accuracy {accuracy:.2f}, chance {chance:.2f}"
    return _check(check, accuracy.low > chance, note)


def enough_replicates(comparison: Comparison) -> Check:
    among = comparison.replicates
    note = among.reason or f"{len(among.values)} balanced models in the test model's place"
    return _check(ENOUGH_REPLICATES, not np.isnan(among.p), note)


def null_available(comparison: Comparison) -> Check:
    test = comparison.deciding.spatial
    note = test.reason or f"null “{test.null}”, which knows that neighbouring regions are alike"
    return _check(NULL_AVAILABLE, not np.isnan(test.p), note)


def could_see(comparison: Comparison, direction: Direction) -> Check:
    """Finding nothing says something only where the test could have found a shortcut."""
    if direction != "neither":
        return _check(COULD_SEE, True)
    if comparison.by_replicates:
        limit = comparison.replicates.upper
        note = f"balanced models alone may lie {limit:.0%} of the way to the attribute model, up to {SEEN_STEP:.0%} expected"
        if limit > SEEN_STEP:
            note += ": train more balanced models"
        return _check(COULD_SEE, limit <= SEEN_STEP, note)
    value = comparison.deciding.interval.value
    if not value > SEEN_CORRELATION:
        return _check(COULD_SEE, True)
    note = f"the spatial null cannot tell a partial correlation of {value:.2f} from chance: train more balanced models"
    return _check(COULD_SEE, False, note)


def partitions_agree(comparison: Comparison) -> Check:
    if len(comparison.compared) == 1:
        return _check(PARTITIONS_AGREE, None, "one partition only")
    values = {}
    for part in comparison.compared:
        values[part.name] = part.correlation().interval.value
    note = ", ".join(f"{part} {value:+.2f}" for part, value in values.items())
    signs = {np.sign(value) for value in values.values() if not np.isnan(value) and value != 0}
    return _check(PARTITIONS_AGREE, len(signs) <= 1, note)


def fixed_place(members: Sequence[Measurement], attribute: str) -> Check:
    ratio = wandering(members)
    if np.isnan(ratio):
        return _check(FIXED_PLACE, None, "all its maps are empty")
    agreement = float(np.mean([m.steadiness.agreement for m in members]))
    note = (
        f"the mean of its maps fills {max(ratio, 0):.0%} of the image that a single map leaves free (up to {WANDERING:.0%} "
        f"expected), and the ranks of one image correlate {agreement:.2f} with those of the others"
    )
    if ratio > WANDERING:
        note += (
            f": {attribute} shows at another place in every image, or the images are not aligned, or the model found nothing "
            "that holds for all of them; OSCAR cannot place such a cue"
        )
    return _check(FIXED_PLACE, ratio <= WANDERING, note)


def some_place(members: Sequence[Measurement], direction: Direction) -> Check:
    """A comparison of places can find a cue that is everywhere, but not finding it says nothing."""
    covers = mean_covers(members)
    if np.isnan(covers):
        return _check(SOME_PLACE, None, "all its maps are empty", decides=False)
    blind = covers >= EVERYWHERE and direction != "towards"
    note = f"a single map covers {covers:.0%} of the regions"
    if blind:
        note += ": there is no place to compare"
    return _check(SOME_PLACE, not blind, note)


def answers_follow(comparison: Comparison, direction: Direction) -> Check:
    """A call needs answers that follow the attribute; where nothing is called it decides nothing."""
    models = comparison.models
    pull = mean_pull([m.pull for m in models.test])
    check = followed_check(pull, models.first.attribute, decides=direction == "towards")
    return check.model_copy(update={"id": ANSWERS_FOLLOW})


def geometry_known(m: Measurement) -> Check:
    if m.regions.geometry_known:
        return _check(GEOMETRY_KNOWN, True, decides=False)
    note = "the card does not say at which size and crop the images were read: regions are cut from whole images"
    return _check(GEOMETRY_KNOWN, None, note, decides=False)


def relevance_conserved(worst: float) -> Check:
    note = f"median relative error {worst:.3g} in the worst model, at most {CONSERVED:g} expected"
    return _check(CONSERVES, worst <= CONSERVED, note, decides=False)


def _check(check: str, passed: bool | np.bool_ | None, note: str = "", decides: bool = True) -> Check:
    return Check(id=check, name=NAMES[check], passed=None if passed is None else bool(passed), note=note, decides=decides)
