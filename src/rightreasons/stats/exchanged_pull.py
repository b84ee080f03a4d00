"""The pull under the null in large tables: rows or subjects exchange the attribute, and sums by label and value are kept."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rightreasons.stats import resampling
from rightreasons.stats.crossed_pull import crossed_of_tables
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
    column = np.array([aligned.get(value, -1) for value in attributes])
    p = np.asarray(probability, dtype=np.float64)
    whole = np.stack([np.bincount(y, p[:, c], minlength=len(labels)) for c in range(p.shape[1])], axis=1).astype(np.float64)
    for tables in _exchanged(y, p, a, (len(labels), len(attributes)), exchange, rng=rng, B=B):
        yield _pulls(tables, whole, column)


def crossed_pull_null(
    label: ArrayLike,
    probability: ArrayLike,
    attribute: ArrayLike,
    half: Ints,
    exchange: Exchange,
    *,
    rng: np.random.Generator,
    B: int,
) -> Iterator[Floats]:
    """`crossed_pull.crossed_pull` of B permutations, some at a time, each half learning its direction anew from the other."""
    y, labels = coded(label)
    a, attributes = coded(attribute)
    C, A = len(labels), len(attributes)
    p = np.asarray(probability, dtype=np.float64)
    for tables in _exchanged(np.asarray(half) * C + y, p, a, (2 * C, A), exchange, rng=rng, B=B):
        halves = tables.reshape(len(tables), 2, C, A, 1 + p.shape[1])
        yield np.array([crossed_of_tables(table[..., 0], np.moveaxis(table[..., 1:], -1, 1)) for table in halves])


def _exchanged(
    y: Ints, p: Floats, a: Ints, size: tuple[int, int], exchange: Exchange, *, rng: np.random.Generator, B: int
) -> Iterator[Floats]:
    """Numbers of rows and sums of p (n, T) by y and exchanged a, (b, *size, 1 + T) of some permutations at a time."""
    order = np.argsort(exchange.stratum, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    rows = np.argsort(place[exchange.unit], kind="stable")
    start = np.concatenate([[0], np.cumsum(np.bincount(place[exchange.unit], minlength=len(order)))])
    cuts = np.concatenate([[0], np.cumsum(np.bincount(exchange.stratum))])
    values = np.ascontiguousarray(p[rows])
    given = (cuts, a[exchange.source][order].astype(np.int32), start, y[rows].astype(np.int32), values)
    states = resampling.generator_states(B, rng)

    def some(first: int) -> Floats:
        drawn = states[first : first + AT_ONCE]
        tables = np.zeros((len(drawn), *size, 1 + p.shape[1]))
        resampling.kernels().exchanged_sums(drawn, *given, tables)
        return tables

    threads = resampling.available_threads()
    with ThreadPoolExecutor(threads) as pool:
        for first in range(0, B, AT_ONCE * threads):
            yield from pool.map(some, range(first, min(B, first + AT_ONCE * threads), AT_ONCE))


def _pulls(tables: Floats, whole: Floats, column: Ints) -> Floats:
    """The pulls (b,) of numbers and sums by label and value, (b, C, A, 1 + T); `whole` (C, T) has the sums over all values."""
    number = tables[..., 0]
    used = np.flatnonzero(column >= 0)
    sums = tables[:, :, used, 1 + column[used]]
    here, there = number[:, :, used], number.sum(axis=2, keepdims=True) - number[:, :, used]
    compared = np.minimum(here, there) >= FEWEST
    rest = whole[:, column[used]][None] - sums
    gaps = sums / np.maximum(here, 1) - rest / np.maximum(there, 1)
    within = compared.sum(axis=1)
    pulls = (gaps * compared).sum(axis=1) / np.maximum(within, 1)
    values = (within > 0).sum(axis=1)
    return np.where(values > 0, (pulls * (within > 0)).sum(axis=1) / np.maximum(values, 1), np.nan)
