"""Pull where nobody says which label an attribute stands for: each half of the rows says it for the other half.

A direction learnt on the rows that are reported on would make a pull of chance. Here one half learns it and the other is
measured, both ways, and the two are averaged. The halves can still share a direction by chance, so that a model that does not
follow the attribute is called as often as by a two-sided test: `level_of` widens the interval for that.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rightreasons.stats import groups, totals
from rightreasons.stats.one_way import halves
from rightreasons.stats.resampling import Counts
from rightreasons.stats.totals import Formula

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Towards = Mapping[Hashable, int]


@dataclass(frozen=True)
class Crossed:
    """Two halves of the rows, and the direction that each is measured in.

    Attributes
    ----------
    half : (n,) 0 or 1
    towards : for each half, value of the attribute → column of the probabilities, as the other half says
    """

    half: Ints
    towards: tuple[Towards, Towards]

    @property
    def agreed(self) -> dict[Hashable, int]:
        """What both halves say."""
        first, second = self.towards
        return {value: column for value, column in first.items() if second.get(value) == column}

    def draws(self, label: Ints, probability: Floats, attribute: Ints, counts: Counts) -> Floats:
        """The pull of each resample, counts (B, n) to (B,): of each half in its direction, averaged."""
        found = []
        for number, towards in enumerate(self.towards):
            own = np.where(self.half == number, label, -1)
            found.append(groups.pull_draws(own, probability, attribute, towards, counts))
        defined = [pulls for pulls in found if not np.isnan(pulls).all()]
        return np.mean(defined, axis=0) if defined else np.full(len(counts), np.nan)

    def formula(self, label: Ints, probability: Floats, attribute: Ints) -> Formula:
        """The same of sums over rows, for large tables."""
        parts = []
        for number, towards in enumerate(self.towards):
            own = np.where(self.half == number, label, -1)
            if not np.isnan(groups.pull(own, probability, attribute, towards)):
                parts.append(groups.pull_formula(own, probability, attribute, towards, name=f"pull of half {number}"))
        return totals.mean_of(parts) if parts else Formula((), lambda: np.full(1, np.nan))


def crossed(
    label: Ints, probability: Floats, attribute: Ints, subject: NDArray[np.object_] | None, rng: np.random.Generator
) -> Crossed:
    """Halves of the rows, subjects kept together, with the direction that each learns from the other."""
    half = halves(len(label), subject, rng).astype(np.int64)
    return _learnt(label, probability, attribute, half)


def crossed_pull(label: Ints, probability: Floats, attribute: Ints, half: Ints) -> float:
    """The crossed pull of given halves; NaN where no half can be measured. Made for permutations: directions are learnt anew."""
    return _crossed_of([_by_value(label[half == h], probability[half == h], attribute[half == h]) for h in (0, 1)])


def crossed_of_tables(rows: Floats, sums: Floats) -> float:
    """The crossed pull of numbers of rows by half, label and value, (2, C, A), and sums of probabilities, (2, T, C, A)."""
    return _crossed_of([_of_table(rows[h], sums[h]) for h in (0, 1)])


def _crossed_of(tables: Sequence[Mapping[Hashable, Floats]]) -> float:
    found = []
    for measured, other in (tables, tables[::-1]):
        pulls = [measured[value][column] for value, column in _directions(other).items() if value in measured]
        defined = [pull for pull in pulls if not np.isnan(pull)]
        if defined:
            found.append(np.mean(defined))
    return float(np.mean(found)) if found else float("nan")


def level_of(level: float) -> float:
    """The level at which a direction that the rows themselves gave is wrongly followed no more often than a given one."""
    return 1 - (1 - level) / 2


def _learnt(label: Ints, probability: Floats, attribute: Ints, half: Ints) -> Crossed:
    said = [_directions(_by_value(label[half == h], probability[half == h], attribute[half == h])) for h in (0, 1)]
    return Crossed(half, (said[1], said[0]))


def _directions(table: Mapping[Hashable, Floats]) -> dict[Hashable, int]:
    """Value → the column towards which it pulls most, where it pulls at all."""
    found: dict[Hashable, int] = {}
    for value, pulls in table.items():
        known = np.nan_to_num(pulls)
        if known.max() > 0:
            found[value] = int(known.argmax())
    return found


def _by_value(label: ArrayLike, probability: ArrayLike, attribute: ArrayLike) -> dict[Hashable, Floats]:
    """Value → (C,) its pull towards every column, as `groups.pull` has it, from one table of sums."""
    y, a, p = np.asarray(label), np.asarray(attribute), np.asarray(probability, dtype=np.float64)
    keep = (y >= 0) & (a >= 0)
    y, a, p = y[keep], a[keep], p[keep]
    if not len(y):
        return {}
    Y, A = int(y.max()) + 1, int(a.max()) + 1
    cell = y * A + a
    rows = np.bincount(cell, minlength=Y * A).reshape(Y, A)
    return _of_table(rows, np.stack([np.bincount(cell, p[:, c], Y * A).reshape(Y, A) for c in range(p.shape[1])]))


def _of_table(rows: NDArray, sums: Floats) -> dict[Hashable, Floats]:
    """`_by_value` of numbers of rows by label and value, (C, A), and sums of probabilities, (T, C, A)."""
    found: dict[Hashable, Floats] = {}
    for value in range(rows.shape[1]):
        here, there = rows[:, value], rows.sum(axis=1) - rows[:, value]
        compared = np.minimum(here, there) >= groups.FEWEST
        if not rows[:, value].any():
            continue
        if not compared.any():
            found[value] = np.full(len(sums), np.nan)
            continue
        mean_here = sums[:, compared, value] / here[compared]
        mean_there = (sums[:, compared].sum(axis=2) - sums[:, compared, value]) / there[compared]
        found[value] = (mean_here - mean_there).mean(axis=1)
    return found
