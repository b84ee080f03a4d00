"""Do answers follow the attribute? How far predictions are drawn towards the label that the attribute stands for.

One number, for the audit `pull` and for audits whose call would mean nothing in a model that does not follow the attribute.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rightreasons.audits._alignment import alignment_of
from rightreasons.audits._levels import levels_of
from rightreasons.audits._rows import AuditedRows, rows_with_values
from rightreasons.data.cohort import Attribute
from rightreasons.errors import DataError, EvidenceError, NotRun
from rightreasons.evidence import Decisions, Evidence
from rightreasons.findings import Check
from rightreasons.stats import groups, totals
from rightreasons.stats.crossed_pull import Crossed, crossed, crossed_pull, level_of
from rightreasons.stats.resampling import Interval, Resamples, interval, limits_of, resamples, whole

NO_SIDES = "no label has rows with and without a value of the attribute that stands for one"
# What the lower limit must exceed where answers are said to follow the attribute. In planted worlds it reached 0.003 for heads
# that do not use it and 0.018 where one group is harder; every shortcut that OSCAR or TSI called had more than 0.045.
FOLLOWED = 0.02
FOLLOWS = "answers follow the attribute"
CROSSED = "each half of the test rows says it for the other half"
DISAGREED = "the two halves of the test rows say different things"
NOT_MEASURED = Interval(np.nan, np.nan, np.nan, reason="not measured")


@dataclass(frozen=True)
class Pull:
    """The pull on test rows, with what it rests on.

    Attributes
    ----------
    rows, attribute : test rows that have a label and the attribute
    aligned : value's code → output that it stands for
    source : where that comes from
    missing : test rows left out because they lack either
    crossed : where nothing says which label a value stands for: halves of the test rows that say it for each other; `aligned`
        is then what both say
    """

    interval: Interval
    rows: Decisions
    attribute: Attribute
    aligned: Mapping[Hashable, Hashable]
    source: str
    sample: Resamples
    missing: int
    crossed: Crossed | None = None

    def among(self, values: np.ndarray) -> float:
        """The pull if the rows had other values of the attribute, for permutations; a direction is learnt anew from them."""
        rows = self.rows
        if self.crossed is None:
            return groups.pull(rows.label, rows.probability, values, self.aligned)
        return crossed_pull(rows.label, rows.probability, values, self.crossed.half)


def pull_of(
    evidence: Evidence,
    attribute: str | None,
    aligned: Mapping[Any, Any] | None = None,
    *,
    rng: np.random.Generator,
    B: int,
    level: float = 0.95,
    by_halves: bool = False,
) -> Pull:
    """The pull with its bootstrap interval, by subject where subjects are known.

    Which label a value stands for is given, or learnt as in `groups`; where the training rows show none, the audit rows say in
    which direction to look, and the test rows whether there is anything. Without audit rows it is undefined, or each half of the
    test rows says it for the other: that sees less, so only the audit `pull` asks for it and no other audit's call waits for it.
    """
    test, a = rows_with_values(evidence, attribute)
    rows = test.decisions
    pi, source = alignment_of(evidence, a, aligned)
    if not pi and aligned is None:
        if "audit" in evidence.cohorts and "logits" in evidence.on("audit"):
            pi, source = direction_to_look(evidence, a.name), f"{source}: direction from the audit rows"
        elif by_halves:
            return _crossed_pull(test, a, rng=rng, B=B, level=level)
    sample = resamples(len(rows.label), rng=rng, B=B, subject=rows.cohort.subject)
    measured = pull_interval(rows.label, rows.probability, a.values, pi, sample, level, NO_SIDES if pi else source)
    return Pull(measured, rows, a, pi, source, sample, test.missing)


def _crossed_pull(test: AuditedRows, a: Attribute, *, rng: np.random.Generator, B: int, level: float) -> Pull:
    """The pull whose direction the test rows give, half for half."""
    rows = test.decisions
    found = crossed(rows.label, rows.probability, a.values, rows.cohort.subject, rng)
    sample = resamples(len(rows.label), rng=rng, B=B, subject=rows.cohort.subject)

    def draw(counts: np.ndarray) -> np.ndarray:
        return found.draws(rows.label, rows.probability, a.values, counts)

    def formula() -> totals.Formula:
        return found.formula(rows.label, rows.probability, a.values)

    measured = _interval(draw, formula, sample, level_of(level), NO_SIDES)
    source = CROSSED if found.agreed else DISAGREED
    return Pull(replace(measured, level=level), rows, a, found.agreed, source, sample, test.missing, found)


def pull_interval(
    label: np.ndarray,
    probability: np.ndarray,
    attribute: np.ndarray,
    aligned: Mapping[Hashable, Hashable],
    sample: Resamples,
    level: float,
    why: str,
) -> Interval:
    """A pull and its interval; `why` says why it is undefined, where it is."""

    def draw(counts: np.ndarray) -> np.ndarray:
        return groups.pull_draws(label, probability, attribute, aligned, counts)

    def formula() -> totals.Formula:
        return groups.pull_formula(label, probability, attribute, aligned)

    return _interval(draw, formula, sample, level, why)


def _interval(
    draw: Callable[[np.ndarray], np.ndarray], formula: Callable[[], totals.Formula], sample: Resamples, level: float, why: str
) -> Interval:
    """A number and its interval over resamples of the rows, or of their sums in large tables."""
    if totals.is_large(sample.n):
        (of_sums,) = formula_intervals([formula()], sample, level, why)
        return of_sums
    return interval(float(draw(whole(sample.n))[0]), sample.apply(draw), level, why)


def formula_intervals(formulas: Sequence[totals.Formula], sample: Resamples, level: float, why: str) -> list[Interval]:
    """Formulas of sums with their intervals, for large tables."""
    values, drawn = totals.draws(formulas, sample)
    return [interval(float(value), drawn[:, k], level, why) for k, value in enumerate(values)]


# ---- beside other audits -------------------------------------------------------------------------------------------------


def pull_beside(
    evidence: Evidence,
    attribute: str | None,
    aligned: Mapping[Any, Any] | None = None,
    *,
    rng: np.random.Generator,
    B: int,
    level: float = 0.95,
) -> Interval:
    """The pull for an audit that can do without it: undefined, with the reason, where it cannot be measured."""
    try:
        if "logits" not in evidence.on("test"):
            raise NotRun("no logits on the test rows")
        return pull_of(evidence, attribute, aligned, rng=rng, B=B, level=level).interval
    except (NotRun, EvidenceError, DataError) as why:
        return Interval(np.nan, np.nan, np.nan, reason=str(why), level=level)


def mean_pull(pulls: Sequence[Interval]) -> Interval:
    """Of several models on the same rows: the mean of their limits, which is never narrower than the limits of their mean."""
    if len(pulls) == 1:
        return pulls[0]
    value, low, high = limits_of(pulls).mean(axis=0)
    reasons = [pull.reason for pull in pulls if pull.reason]
    return Interval(value, low, high, reason=reasons[0] if reasons else "", level=pulls[0].level)


def is_followed(pull: Interval) -> bool | None:
    """Whether answers follow the attribute; None where the pull is undefined."""
    if np.isnan(pull.low):
        return None
    return bool(pull.low > FOLLOWED)


def say_pull(pull: Interval, attribute: str) -> str:
    if np.isnan(pull.low):
        return f"not judged: {pull.reason}"
    return f"within a label they lie {pull:.3f} nearer to what “{attribute}” stands for"


def followed_check(pull: Interval, attribute: str, decides: bool) -> Check:
    """A call needs answers that follow the attribute; where nothing is called it decides nothing."""
    return Check(id="follows", name=FOLLOWS, passed=is_followed(pull), note=say_pull(pull, attribute), decides=decides)


# ---- what the functions above use ----------------------------------------------------------------------------------------


def direction_to_look(evidence: Evidence, attribute: str) -> dict[Hashable, Hashable]:
    """Value → output towards which it pulls on the audit rows."""
    rows = evidence.on("audit").decisions()
    a = levels_of(evidence, attribute).of(rows.cohort.attribute(attribute))
    keep = np.flatnonzero((rows.label >= 0) & a.present)
    return dict(groups.aligned_by_pull(rows.label[keep], rows.probability[keep], a.values[keep]))
