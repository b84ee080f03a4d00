"""The compiled loops over regions: weighted medians of a bootstrap, and sums of products by class of distance."""

from __future__ import annotations

import numpy as np

from rightreasons.stats._kernels import _compiled


@_compiled
def walk_medians(counts, total, below, order, values, start, out):  # type: ignore[no-untyped-def]
    """Write the weighted median of every resample and region to out (b, R).

    counts (b, n); total (b,) their sums; below (b, R) the counts of the `start` smallest values of a region; order and values
    (R, n): its rows and values, rising. From the middle, where `below` is known, a few steps reach the middle of the resample.
    """
    n = values.shape[1]
    for b in range(counts.shape[0]):
        if total[b] == 0:
            out[b, :] = np.nan
            continue
        # The two middle order statistics of the resample, the same one where the total is odd.
        low, high = (total[b] - 1) // 2, total[b] // 2
        for r in range(values.shape[0]):
            j = start
            upto = np.int64(below[b, r])
            # Now `upto` copies lie before position j; find the j with upto <= low < upto + count(j).
            while upto > low:
                j -= 1
                upto -= np.int64(counts[b, order[r, j]])
            here = np.int64(counts[b, order[r, j]]) if j < n else np.int64(0)
            while upto + here <= low:
                upto += here
                j += 1
                here = np.int64(counts[b, order[r, j]])
            value = values[r, j]
            if high >= upto + here:
                j += 1
                while counts[b, order[r, j]] == 0:
                    j += 1
                value = (value + values[r, j]) / 2.0
            out[b, r] = value


@_compiled
def average_ranks(scores, order, out):  # type: ignore[no-untyped-def]
    """Ranks of every row of scores (n, R), 1 = largest, ties their average; order (n, R): positions by rising score."""
    R = scores.shape[1]
    for i in range(scores.shape[0]):
        j = 0
        while j < R:
            k = j + 1
            while k < R and scores[i, order[i, k]] == scores[i, order[i, j]]:
                k += 1
            rank = R - (j + k - 1) / 2.0
            for position in range(j, k):
                out[i, order[i, position]] = rank
            j = k


@_compiled
def class_products(maps, code, out):  # type: ignore[no-untyped-def]
    """Sum the products x_i x_j of every map (b, R) over the ordered pairs of each class, code (R, R), into out (b, K)."""
    for b in range(maps.shape[0]):
        for i in range(maps.shape[1]):
            x = maps[b, i]
            out[b, code[i, i]] += x * x
            for j in range(i):
                out[b, code[i, j]] += 2.0 * x * maps[b, j]
