"""Large tables: metrics that are formulas of sums over rows, and resamples of those sums instead of the rows.

Rates, accuracies, parity, calibration errors and pulls need of a resample nothing but sums by cell. So rows are added up once, by
unit, and a resample is one product of counts of units with that table. Units are subjects (rows where there are none) or,
where these are many, `BUNDLES` random bundles of them, drawn as subjects are: in expectation over the bundles the variance of a
sum is that of the plain bootstrap, and its standard deviation strays from it by 1 / √(2 · BUNDLES): 0.6 % of the width of an
interval, where 10,000 plain resamples leave 1.4 % open. What is no such formula is linearised where there are many rows (`area`,
`fairness.one_step`) and drawn exactly where there are few.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from rightreasons.stats import resampling
from rightreasons.stats.resampling import Counts, Resamples

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Above so many rows a table is large. Below, every row of every resample is counted.
LARGE = 2_000
BUNDLES = 16_384
# What is no formula of sums is drawn row by row up to so many rows, and linearised above: off by about 1 part in that number.
EXACT = 20_000
BLOCK_BYTES = 1 << 25  # of one block of resamples, as doubles


@dataclass(frozen=True, eq=False)
class Sum:
    """Sums over some rows by a code, K of them.

    Attributes
    ----------
    name : metrics that name the same sum share it
    of : gives the code (m,) in 0..K-1 of each row, negative where it counts nowhere, and what is added up (m,): None for numbers
        of rows
    rows : (m,) which rows; None for all
    """

    name: str
    size: int
    of: Callable[[], tuple[Ints, Floats | None]]
    rows: Ints | None = None

    def by_unit(self, unit: Ints | None, units: int) -> Floats:
        """The sums of every unit, (U, K)."""
        code, values = self.of()
        if unit is None:
            unit = np.arange(units)
        if self.rows is not None:
            unit = unit[self.rows]
        here = code >= 0
        if here.all():
            place = unit * self.size + code
        else:
            place = unit[here] * self.size + code[here]
            values = None if values is None else values[here]
        return _exact_in_any_order(
            np.bincount(place, values, minlength=units * self.size).reshape(units, self.size).astype(np.float64)
        )


@dataclass(frozen=True, eq=False)
class Exact:
    """What needs the counts (b, m) of the rows themselves, (m,): (b,) of every resample, or (b, K)."""

    rows: Ints
    draws: Callable[[Counts], Floats]


Term: TypeAlias = Sum | Exact


@dataclass(frozen=True, eq=False)
class Formula:
    """A metric as a formula of its terms, an array (B, K) for each in their order, to (B,)."""

    terms: tuple[Term, ...]
    value: Callable[..., Floats]


def is_large(n: int) -> bool:
    return n > LARGE


def said(n: int, subjects: int | None = None) -> str:
    """Where resamples of `n` rows are not the plain ones, for captions."""
    found = []
    units, what = (n, "rows") if subjects is None else (subjects, "subjects")
    if units > BUNDLES:
        found.append(f"More than {BUNDLES:,} {what} are resampled in {BUNDLES:,} random bundles.")
    if n > EXACT:
        found.append(f"The AUC of more than {EXACT:,} rows is resampled by its influence function.")
    return " ".join(found)


def bundled(sample: Resamples) -> Resamples:
    """The same number of resamples, of at most `BUNDLES` units: random bundles of the subjects or rows, of equal size."""
    if sample.units <= BUNDLES:
        return sample
    shuffled = np.random.default_rng(sample.states[0]).permutation(sample.units)
    bundle = np.empty(sample.units, dtype=np.int64)
    bundle[shuffled] = np.arange(sample.units) % BUNDLES
    return Resamples(sample.n, sample.states, bundle if sample.unit is None else bundle[sample.unit], BUNDLES)


def draws(formulas: Sequence[Formula], sample: Resamples) -> tuple[Floats, Floats]:
    """The value of every formula on the data as they are, (M,), and on every resample, (B, M)."""
    drawn = bundled(sample)
    tables: dict[str, Floats] = {}
    for term in (term for formula in formulas for term in formula.terms):
        if isinstance(term, Sum) and term.name not in tables:
            tables[term.name] = term.by_unit(drawn.unit, drawn.units)
    place = dict(zip(tables, np.cumsum([0, *(table.shape[1] for table in tables.values())]).tolist(), strict=False))
    matrix = np.concatenate([np.zeros((drawn.units, 0)), *tables.values()], axis=1)
    tables.clear()
    unit = np.arange(drawn.units) if drawn.unit is None else drawn.unit

    def every(counts: Counts) -> Floats:
        sums = counts.astype(np.float64) @ matrix

        def value(term: Term) -> Floats:
            if isinstance(term, Sum):
                return sums[:, place[term.name] : place[term.name] + term.size]
            return term.draws(np.take(counts, unit[term.rows], axis=1))

        found = np.empty((len(counts), len(formulas)))
        for k, formula in enumerate(formulas):
            found[:, k] = formula.value(*map(value, formula.terms))
        return found

    block = max(16, BLOCK_BYTES // (8 * (drawn.units + matrix.shape[1])))
    with ThreadPoolExecutor(resampling.available_threads()) as pool:
        found = list(pool.map(lambda start: every(drawn.unit_counts(start, start + block)), range(0, drawn.B, block)))
    return every(np.ones((1, drawn.units), dtype=np.uint8))[0], np.concatenate(found)


# ---- the area under the ROC curve ----------------------------------------------------------------------------------------


def placements(positive: NDArray[np.bool_], score: Floats) -> Floats:
    """(n,) of a positive row the share of negative ones with a lower score, of a negative row that of positive ones with a
    higher score, ties 1/2 (DeLong et al. 1988). The mean of either kind is the AUC.
    """
    order = np.argsort(score, kind="stable")
    ordered, truth = score[order], positive[order]
    new = np.ones(len(score), dtype=bool)
    new[1:] = ordered[1:] != ordered[:-1]
    run = np.cumsum(new) - 1
    above = np.bincount(run, truth)  # positive rows in each run of equal scores
    below = np.bincount(run) - above
    negative_before = np.cumsum(below) - below / 2
    positive_after = above.sum() - np.cumsum(above) + above / 2
    with np.errstate(invalid="ignore", divide="ignore"):
        placed = np.where(truth, negative_before[run] / below.sum(), positive_after[run] / above.sum())
    found = np.empty(len(score))
    found[order] = placed
    return found


def area(name: str, positive: NDArray[np.bool_], score: Floats, rows: Ints | None = None) -> Formula:
    """The AUC of rows with truth and score (m,), linearised where they are many: its two means of placements, drawn anew, less
    the AUC of the data (the Hájek projection; what it leaves out falls with the number of rows, not with its root).
    """
    if len(score) <= EXACT:
        here = np.arange(len(score)) if rows is None else rows
        return Formula((Exact(here, lambda counts: resampling.auc_draws(positive, score, counts)),), _as_it_is)
    n_positive = int(positive.sum())
    if n_positive in (0, len(positive)):
        return Formula((), lambda: np.full(1, np.nan))
    placed = placements(positive, score)
    whole = float(placed[positive].mean())
    code = positive.astype(np.int64)

    def value(sums: Floats, number: Floats) -> Floats:
        mean = np.divide(sums, number, out=np.full(sums.shape, np.nan), where=number > 0)
        return np.clip(mean[:, 0] + mean[:, 1] - whole, 0.0, 1.0)

    return Formula(
        (Sum(f"{name}: placements", 2, lambda: (code, placed), rows), Sum(f"{name}: rows", 2, lambda: (code, None), rows)), value
    )


def mean_of(formulas: Sequence[Formula]) -> Formula:
    """The mean of several formulas, undefined where one is."""
    cuts = np.cumsum([0, *(len(formula.terms) for formula in formulas)]).tolist()

    def value(*found: Floats) -> Floats:
        return np.mean([f.value(*found[a:b]) for f, a, b in zip(formulas, cuts, cuts[1:], strict=False)], axis=0)

    return Formula(tuple(term for formula in formulas for term in formula.terms), value)


def _exact_in_any_order(table: Floats) -> Floats:
    """The table in steps so coarse (2⁻³⁰ or so) that doubles add it up without rounding, whatever the threads and the blocks."""
    step = 2.0 ** (math.ceil(math.log2(8 * np.abs(table).sum() + 1)) - 52)
    return np.round(table / step) * step


def _as_it_is(drawn: Floats) -> Floats:
    return drawn
