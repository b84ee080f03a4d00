"""Means of columns in which some rows have no value, each with its bootstrap interval; all columns share their resamples."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from rightreasons.errors import DataError
from rightreasons.stats.resampling import Interval, interval, resamples, share_interval, sums, whole


def column_means(
    columns: Mapping[str, ArrayLike],
    *,
    rng: np.random.Generator,
    subject: ArrayLike | None = None,
    shares: tuple[str, ...] = (),
    B: int = 10_000,
    level: float = 0.95,
    reason: str = "no row has a value",
) -> dict[str, Interval]:
    """Mean of the defined values of every column (n,), by name; NaN where none is defined.

    Parameters
    ----------
    reason : why a column without a value has no mean
    shares : columns of zeros and ones; where all agree, Wilson's interval takes the place of one without width
    """
    if not columns:
        return {}
    arrays = {name: np.asarray(column, dtype=np.float64) for name, column in columns.items()}
    shapes = {column.shape for column in arrays.values()}
    if len(shapes) > 1 or len(next(iter(shapes))) != 1:
        raise DataError(f"found columns of shapes {sorted(shapes)}; give columns of one value per row, (n,), over the same rows")
    values = np.stack(list(arrays.values()), axis=1)
    if not len(values):
        return {name: Interval(np.nan, np.nan, np.nan, reason=reason, level=level) for name in arrays}
    k, known = values.shape[1], ~np.isnan(values)
    filled = np.concatenate([np.where(known, values, 0.0), known], axis=1)
    sample = resamples(len(values), rng=rng, B=B, subject=subject)

    def mean(counts: np.ndarray) -> np.ndarray:
        total = sums(counts, filled)
        return np.divide(total[:, :k], total[:, k:], out=np.full((len(total), k), np.nan), where=total[:, k:] > 0)

    drawn, point = sample.apply(mean), mean(whole(len(values)))[0]
    number = known.sum(axis=0) * sample.units / len(values)
    means = {}
    for c, name in enumerate(arrays):
        if name in shares:
            means[name] = share_interval(point[c], drawn[:, c], number[c], level, reason)
        else:
            means[name] = interval(point[c], drawn[:, c], level, reason)
    return means
