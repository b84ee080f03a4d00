"""The pull under the null in large tables: rows or subjects exchange the attribute, and sums by label and value are kept."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rightreasons.stats import resampling
from rightreasons.stats.groups import FEWEST, coded
from rightreasons.stats.resampling import Exchange

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

AT_ONCE = 16  # permutations that one thread makes before anybody asks whether they are enough


def pull_null(
    label: ArrayLike,
    probability: ArrayLike,
    attribute: ArrayLike,
    aligned: Mapping[Hashable, Any],
    exchange: Exchange,
    *,
    rng: np.random.Generator,
    B: int,
) -> Iterator[Floats]:
    """`groups.pull` of B permutations, some at a time: it equals that of `attribute[exchange.permutation(rng)]` in law.

    Parameters
    ----------
    label, attribute : (n,) and probability (n, C), of rows that lack neither
    """
    y, labels = coded(label)
    a, attributes = coded(attribute)
    towards = [aligned.get(value, -1) for value in attributes]
    columns = sorted({t for t in towards if t >= 0})
    order = np.argsort(exchange.stratum, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    rows = np.argsort(place[exchange.unit], kind="stable")
    start = np.concatenate([[0], np.cumsum(np.bincount(place[exchange.unit], minlength=len(order)))])
    cuts = np.concatenate([[0], np.cumsum(np.bincount(exchange.stratum))])
    given = (cuts, a[exchange.source][order].astype(np.int32), start, y[rows].astype(np.int32))
    p = np.ascontiguousarray(np.asarray(probability, dtype=np.float64)[rows][:, columns])
    column = np.array([columns.index(t) if t >= 0 else -1 for t in towards])
    states = resampling.generator_states(B, rng)
    of_label = [np.bincount(y, np.asarray(probability)[:, c], minlength=len(labels)) for c in columns]
    whole = np.stack(of_label, axis=1).astype(np.float64)

    def some(first: int) -> Floats:
        drawn = states[first : first + AT_ONCE]
        tables = np.zeros((len(drawn), len(labels), len(attributes), 2))
        resampling.kernels().exchanged_sums(drawn, *given, p, column, tables)
        return _pulls(tables, whole, column)

    threads = resampling.available_threads()
    with ThreadPoolExecutor(threads) as pool:
        for first in range(0, B, AT_ONCE * threads):
            yield from pool.map(some, range(first, min(B, first + AT_ONCE * threads), AT_ONCE))


def _pulls(tables: Floats, whole: Floats, column: Ints) -> Floats:
    """The pulls (b,) of numbers and sums by label and value, (b, C, A, 2); `whole` (C, T) has the sums over all values."""
    number, sums = tables[..., 0], tables[..., 1]
    used = np.flatnonzero(column >= 0)
    here, there = number[:, :, used], number.sum(axis=2, keepdims=True) - number[:, :, used]
    compared = np.minimum(here, there) >= FEWEST
    rest = whole[:, column[used]][None] - sums[:, :, used]
    gaps = sums[:, :, used] / np.maximum(here, 1) - rest / np.maximum(there, 1)
    within = compared.sum(axis=1)
    pulls = (gaps * compared).sum(axis=1) / np.maximum(within, 1)
    values = (within > 0).sum(axis=1)
    return np.where(values > 0, (pulls * (within > 0)).sum(axis=1) / np.maximum(values, 1), np.nan)
