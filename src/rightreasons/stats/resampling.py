"""Bootstrap and permutation: resamples drawn as counts, intervals, p-values, corrections for many tests."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from types import ModuleType

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.stats import norm

from rightreasons.errors import DataError, SettingError
from rightreasons.families import refuse_bad_seed

Counts = NDArray[np.integer]
Floats = NDArray[np.float64]

# Bytes of counts that one block holds: large enough to hide the call, small enough to stay in the cache of one core.
BLOCK_BYTES = 1 << 22
# A statistic prepares (sorts, codes) once a block; with many rows that must still be shared by several resamples.
FEWEST_IN_BLOCK = 64
# An interval from fewer than this share of the resamples would be one of the easy resamples only.
DEFINED_SHARE = 0.95
FEWEST_EXCHANGEABLE = 20
# When a large table is exchanged no further: so many permutations reach what was observed that p is known to a tenth, or it lies
# so many standard deviations beyond all of at least so many that none will.
ENOUGH = 100
BEYOND = 10.0
FEWEST_DRAWN = 32


def task_rng(seed: int, task: str) -> np.random.Generator:
    """The generator of one task, e.g. `task_rng(0, "groups test")`: the same for every model, so that all share resamples."""
    refuse_bad_seed(seed)
    return np.random.default_rng(np.random.SeedSequence([seed, zlib.crc32(task.encode())]))


@dataclass(frozen=True)
class Resamples:
    """`B` bootstrap resamples of `n` rows, made block by block when they are used.

    Each resample has its own generator, so a resample depends neither on blocks nor on threads.

    Attributes
    ----------
    states : (B, 4) the seeds
    unit : (n,) number of the subject of each row, or None where every row is its own
    units : how many are drawn: subjects or rows
    """

    n: int
    states: NDArray[np.uint64]
    unit: NDArray[np.int64] | None
    units: int

    @property
    def B(self) -> int:
        return len(self.states)

    def counts(self, start: int = 0, stop: int | None = None) -> NDArray[np.uint8]:
        """How often each row is in resamples `start` to `stop`: (b, n), rows of one subject alike."""
        drawn = self.unit_counts(start, stop)
        if self.unit is None:
            return drawn
        return np.take(drawn, self.unit, axis=1)

    def unit_counts(self, start: int = 0, stop: int | None = None) -> NDArray[np.uint8]:
        """How often each unit is in resamples `start` to `stop`: (b, units)."""
        states = self.states[start:stop]
        # A byte is enough: 256 copies of one unit have a probability below 1/256!.
        drawn = np.zeros((len(states), self.units), dtype=np.uint8)
        kernels().draw_counts(states, self.units, drawn)
        return drawn

    def apply(self, statistic: Callable[[NDArray[np.uint8]], ArrayLike], threads: int | None = None) -> Floats:
        """`statistic` of every resample, (B, ...): it takes counts (b, n) and gives (b, ...). Blocks run in threads."""
        block = min(self.B, max(FEWEST_IN_BLOCK, BLOCK_BYTES // self.n))
        starts = range(0, self.B, block)

        def one(start: int) -> Floats:
            values = np.asarray(statistic(self.counts(start, start + block)), dtype=np.float64)
            rows = min(block, self.B - start)
            if values.ndim == 0 or len(values) != rows:
                raise DataError(f"the statistic gave shape {values.shape} for {rows} resamples; expected ({rows}, ...)")
            return values

        threads = threads or available_threads()
        if threads == 1 or len(starts) == 1:
            return np.concatenate([one(start) for start in starts])
        with ThreadPoolExecutor(min(threads, len(starts))) as pool:
            return np.concatenate(list(pool.map(one, starts)))


def resamples(n: int, *, rng: np.random.Generator, B: int = 10_000, subject: ArrayLike | None = None) -> Resamples:
    """Resamples of `n` rows with replacement, of whole subjects where `subject` (n,) is given (a missing one stands alone)."""
    if n < 1 or B < 1:
        raise SettingError(f"found n={n} rows and B={B} resamples; both must be at least 1")
    unit = None
    if subject is not None:
        unit = subject_codes(subject)
    if unit is not None and len(unit) != n:
        raise DataError(f"found {len(unit)} subjects for {n} rows; give one subject for every row")
    states = generator_states(B, rng)
    return Resamples(n, states, unit, n if unit is None else int(unit.max()) + 1)


def generator_states(B: int, rng: np.random.Generator) -> NDArray[np.uint64]:
    """(B, 4) seeds of one generator each."""
    states = rng.integers(0, 2**64, size=(B, 4), dtype=np.uint64)
    states[:, 0] |= np.uint64(1)  # the all-zero state is the one that this generator cannot leave
    return states


def sums(counts: Counts, matrix: ArrayLike) -> Floats:
    """Weighted sums over rows, counts (B, n) times matrix (n, k) to (B, k); a vector (n,) gives (B,)."""
    values = np.ascontiguousarray(matrix, dtype=np.float64)
    counts = as_counts(counts, len(values))
    out = np.zeros((len(counts), values[0].size if values.ndim > 1 else 1))
    kernels().weighted_sums(counts, values.reshape(len(values), -1), out)
    if values.ndim == 1:
        return out[:, 0]
    return out


def tally(counts: Counts, code: ArrayLike, K: int, values: ArrayLike | None = None) -> NDArray:
    """Rows per code, (B, K): sums of counts, or of counts times `values` (n,), by code (n,) in 0..K-1; -1 is left out."""
    codes = np.ascontiguousarray(code, dtype=np.int64)
    if codes.size and codes.max() >= K:
        raise DataError(f"found code {codes.max()} with K={K}; codes must lie in 0..{K - 1}, negative for rows to leave out")
    counts = as_counts(counts, len(codes))
    if values is None:
        number = np.zeros((len(counts), K), dtype=np.int64)
        kernels().tally(counts, codes, number)
        return number
    out = np.zeros((len(counts), K))
    kernels().tally_values(counts, codes, np.ascontiguousarray(values, dtype=np.float64), out)
    return out


def auc_draws(positive: ArrayLike, score: ArrayLike, counts: Counts) -> Floats:
    """Area under the ROC curve of each resample, (B,): ties count 1/2, NaN where a class is missing; one sort serves all."""
    truth, values = np.asarray(positive, dtype=bool), np.asarray(score, dtype=np.float64)
    if np.isnan(values).any():
        raise DataError(f"{int(np.isnan(values).sum())} of {len(values)} scores are NaN; leave those rows out")
    counts = as_counts(counts, len(values))
    order, starts = _runs(values)
    out = np.empty(len(counts))
    sorted_truth = truth[order].astype(np.int64)
    if len(starts) == len(values) + 1:
        kernels().auc_untied(counts, order, sorted_truth, out)
    else:
        kernels().auc(counts, order, sorted_truth, starts, out)
    return out


def concordance_draws(target: ArrayLike, score: ArrayLike, counts: Counts) -> Floats:
    """Concordance index of each resample, (B,): how often the larger target has the larger score, ties 1/2.

    With a target of two values it is the AUC; without two different targets NaN.
    """
    truth, values = np.asarray(target, dtype=np.float64), np.asarray(score, dtype=np.float64)
    if np.isnan(values).any() or np.isnan(truth).any():
        raise DataError("targets or scores are NaN; leave those rows out")
    counts = as_counts(counts, len(values))
    order, starts = _runs(truth)
    distinct, rank = np.unique(values, return_inverse=True)
    out = np.empty(len(counts))
    kernels().concordance(counts, order, starts, rank[order].astype(np.int64), len(distinct), out)
    return out


def whole(n: int) -> NDArray[np.uint8]:
    """Counts (1, n) of the data as they are: the one resample that gives the point estimate."""
    return np.ones((1, n), dtype=np.uint8)


@dataclass(frozen=True)
class Interval:
    """A value with its percentile interval; `undefined` of the `draws` resamples had no value."""

    value: float
    low: float
    high: float
    draws: int = 0
    undefined: int = 0
    reason: str = ""
    level: float = 0.95

    def __format__(self, spec: str) -> str:
        """`f"{interval:.2f}"` is "0.31 (0.25 to 0.37)", or the value alone where there are no limits."""
        if not spec:
            return str(self)
        if np.isnan(self.low):
            return f"{self.value:{spec}}"
        return f"{self.value:{spec}} ({self.low:{spec}} to {self.high:{spec}})"


def interval(value: float, draws: ArrayLike, level: float = 0.95, reason: str = "") -> Interval:
    """Percentile interval from draws (B,). With more than 5 % of them undefined the limits are NaN and the reason says so.

    `reason` says why `value` is NaN, where it is.
    """
    values = np.asarray(draws, dtype=np.float64)
    missing = int(np.isnan(values).sum())
    low = high = np.nan
    if np.isnan(value):
        reason = reason or "undefined"
    elif missing > (1 - DEFINED_SHARE) * len(values) or not len(values):
        reason = f"no interval: undefined in {missing} of {len(values)} resamples"
    else:
        reason = ""
        low, high = np.nanquantile(values, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(value), float(low), float(high), len(values), missing, reason, level)


def limits_of(intervals: Iterable[Interval]) -> NDArray[np.float64]:
    """(k, 3) value, low and high of k intervals."""
    return np.array([(i.value, i.low, i.high) for i in intervals], dtype=np.float64).reshape(-1, 3)


def share_interval(value: float, draws: ArrayLike, n: float, level: float = 0.95, reason: str = "") -> Interval:
    """`interval` of a share of `n` units. Where it is 0 or 1 every resample is, too, and Wilson's interval takes its place.

    Nobody is certain of a share because 20 of 20 were right: the bootstrap's interval of no width would say so.
    """
    bootstrap = interval(value, draws, level, reason)
    if value not in (0.0, 1.0) or bootstrap.low != bootstrap.high or n <= 0:
        return bootstrap
    z2 = norm.ppf((1 + level) / 2) ** 2
    reach = z2 / (n + z2)
    if value:
        low, high = (1 - reach, 1.0)
    else:
        low, high = (0.0, reach)
    return replace(bootstrap, low=low, high=high)


def p_value(observed: float, null: ArrayLike, alternative: str = "two-sided") -> float:
    """(1 + #{|t_b| >= |t|}) / (B + 1); `greater` compares t itself. An undefined t_b counts as reached. An undefined t: NaN."""
    if alternative not in ("two-sided", "greater"):
        raise SettingError(f"no alternative {alternative!r}; known: two-sided, greater")
    draws = np.asarray(null, dtype=np.float64)
    if np.isnan(observed):
        return float("nan")
    if alternative == "two-sided":
        observed, draws = abs(observed), np.abs(draws)
    return float((1 + np.sum(_reaches(draws, observed))) / (len(draws) + 1))


def _reaches(draws: Floats, observed: float) -> NDArray[np.bool_]:
    """Which draws reach what was observed. Equal permutations can differ in the last bits, by the order of their sums."""
    return ~(draws < observed - 1e-12 * max(1.0, abs(observed)))


def sequential_p(observed: float, null: Iterable[Floats], B: int) -> float:
    """The two-sided p of at most `B` permutations, `null`, which come some at a time and are drawn no further than they decide.

    Once `ENOUGH` of the t_b reach t, after l draws, p is ENOUGH / l (Besag and Clifford 1991), a valid p whatever B is. Once
    t lies `BEYOND` standard deviations from all that `FEWEST_DRAWN` and more draws show, no other would reach it: p is
    1 / (B + 1), as if all had been drawn. Else it is that of `p_value`.
    """
    draws = np.zeros(0)
    if np.isnan(observed):
        return float("nan")
    for block in null:
        draws = np.concatenate([draws, block])
        reached = np.cumsum(_reaches(np.abs(draws), abs(observed)))
        if reached[-1] >= ENOUGH:
            return ENOUGH / (1 + int(np.searchsorted(reached, ENOUGH)))
        if len(draws) >= FEWEST_DRAWN and reached[-1] == 0:
            distance = abs(observed) - np.abs(draws).max()
            if distance > BEYOND * draws.std():
                return 1 / (B + 1)
    return p_value(observed, draws)


def benjamini_hochberg(p: ArrayLike) -> Floats:
    """p-values adjusted for the false discovery rate; NaN stay NaN and are not counted as tests."""
    p = np.asarray(p, dtype=np.float64)
    adjusted = np.full(p.shape, np.nan)
    tests = np.flatnonzero(~np.isnan(p))
    order = tests[np.argsort(p[tests], kind="stable")]
    scaled = p[order] * len(order) / np.arange(1, len(order) + 1)
    adjusted[order] = np.minimum(np.minimum.accumulate(scaled[::-1])[::-1], 1.0)
    return adjusted


@dataclass(frozen=True)
class Exchange:
    """Which rows or subjects may exchange their attribute under the null of no effect within label.

    Attributes
    ----------
    source : (u,) one row of every unit that exchanges; a unit is a row, or a subject where the attribute is constant in subjects
    stratum : (u,) units exchange within a stratum only
    unit : (n,) the unit of every row
    exchangeable : subjects (rows where there are no subjects) that could come to hold another value
    reason : why the permutation test is `inconclusive`, empty if it is not
    """

    source: NDArray[np.int64]
    stratum: NDArray[np.int64]
    unit: NDArray[np.int64]
    exchangeable: int
    reason: str

    def permutation(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """Rows (n,) from which every row takes its attribute: `attribute[permutation]`."""
        by_stratum = np.argsort(self.stratum, kind="stable")
        shuffled = np.lexsort((rng.random(len(self.stratum)), self.stratum))
        donor = np.empty_like(self.source)
        donor[by_stratum] = self.source[shuffled]
        return donor[self.unit]

    def permutations(self, B: int, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
        return (self.permutation(rng) for _ in range(B))


def exchange_within_label(label: ArrayLike, attribute: ArrayLike, subject: ArrayLike | None = None) -> Exchange:
    """How to permute an attribute within label, all (n,), without breaking up subjects.

    Constant within subjects: subjects exchange it among those with the same set of labels. Varying within subjects: rows
    exchange it within (subject, label), and subjects of one row among each other within label.
    """
    labels, values = _present(label, "label"), _present(attribute, "attribute")
    n = len(labels)
    if len(values) != n:
        raise DataError(f"found {n} labels and {len(values)} attribute values; give both over the same rows")
    rows = np.arange(n)
    if subject is None:
        subjects = rows
    else:
        subjects = subject_codes(subject)
    if len(subjects) != n:
        raise DataError(f"found {len(subjects)} subjects for {n} rows; give one subject for every row")
    first = np.unique(subjects, return_index=True)[1]
    if (values == values[first[subjects]]).all():
        patterns = np.zeros((len(first), int(labels.max()) + 1), dtype=bool)
        patterns[subjects, labels] = True
        packed = np.packbits(patterns, axis=1)  # in the order of the patterns
        source, stratum, unit = first, np.unique(_as_one(packed), return_inverse=True)[1].reshape(-1), subjects
        owner = np.arange(len(first))
    else:
        alone = np.bincount(subjects)[subjects] == 1
        key = np.where(alone, 0, subjects + 1) * (int(labels.max()) + 1) + labels
        source, stratum, unit = rows, np.unique(key, return_inverse=True)[1].reshape(-1), rows
        owner = subjects
    lowest = np.full(stratum.max() + 1, n)
    highest = np.full(stratum.max() + 1, -1)
    np.minimum.at(lowest, stratum, values[source])
    np.maximum.at(highest, stratum, values[source])
    exchangeable = len(np.unique(owner[(lowest < highest)[stratum]]))
    what = "rows" if subject is None else "subjects"
    few = exchangeable < FEWEST_EXCHANGEABLE
    reason = ""
    if few:
        reason = f"{exchangeable} exchangeable {what}, at least {FEWEST_EXCHANGEABLE} needed"
    return Exchange(source.astype(np.int64), stratum.astype(np.int64), unit.astype(np.int64), exchangeable, reason)


def _as_one(packed: NDArray[np.uint8]) -> NDArray:
    """Rows of bytes (n, k) as one value each, in the same order."""
    if packed.shape[1] == 1:
        return packed[:, 0]
    return np.ascontiguousarray(packed).view(f"V{packed.shape[1]}").reshape(-1)


def subject_codes(subject: ArrayLike) -> NDArray[np.int64]:
    """Numbers 0..S-1 in order of appearance; every row without a subject (None, NaN, empty) is its own."""
    names = pd.Series(np.asarray(subject), dtype=object)
    code = pd.factorize(names.where(names != "", None))[0].astype(np.int64)
    lacking = code < 0
    code[lacking] = code.max(initial=-1) + 1 + np.arange(lacking.sum())
    return code


def _present(column: ArrayLike, what: str) -> NDArray[np.int64]:
    array = np.asarray(column)
    code = pd.factorize(array)[0].astype(np.int64)
    missing = int(np.sum((code < 0) | (array == -1 if array.dtype.kind == "i" else False)))
    if missing:
        raise DataError(f"{missing} of {len(code)} rows have no {what} (-1, NaN or None); leave them out")
    return code


def kernels() -> ModuleType:
    """The compiled loops, imported on first use: numba costs a second that most commands never need."""
    from rightreasons.stats import _kernels

    return _kernels


def _runs(values: Floats) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    order = np.argsort(values, kind="stable")
    sorted_values = values[order]
    starts = np.flatnonzero(np.r_[True, sorted_values[1:] != sorted_values[:-1]])
    return order, np.r_[starts, len(values)]


def as_counts(counts: Counts, n: int) -> Counts:
    """Counts as the kernels want them: contiguous bytes or 64-bit integers, (B, n)."""
    counts = np.asarray(counts)
    if counts.ndim != 2 or counts.shape[1] != n or counts.dtype.kind not in "iu":
        raise DataError(f"found counts of shape {counts.shape} and type {counts.dtype}; expected integers (B, {n})")
    return np.ascontiguousarray(counts, dtype=np.uint8 if counts.dtype == np.uint8 else np.int64)


def available_threads() -> int:
    wanted = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    if hasattr(os, "sched_getaffinity"):
        available = len(os.sched_getaffinity(0))
    else:
        available = os.cpu_count() or 1
    if wanted.isdigit() and int(wanted) > 0:
        return min(int(wanted), available)
    return available
