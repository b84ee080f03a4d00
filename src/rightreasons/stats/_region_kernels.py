"""The compiled loops over regions: medians of a bootstrap, ranks, permutations, sums of products by class of distance."""

from __future__ import annotations

import numpy as np

from rightreasons.stats._kernels import MASK32, S32, _compiled, xoshiro


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
            if j < n:
                here = np.int64(counts[b, order[r, j]])
            else:
                here = np.int64(0)
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


@_compiled
def permuted_products(states, values, against, out):  # type: ignore[no-untyped-def]
    """Write the products of random permutations of values (R,) with against (k, R) to out (B, k).

    states (B, 4) seed one xoshiro256++ each. Fisher and Yates from the end: a swapped place is final and enters the products.
    """
    R = values.shape[0]
    shuffled = np.empty(R)
    for b in range(states.shape[0]):
        s0, s1, s2, s3 = states[b, 0], states[b, 1], states[b, 2], states[b, 3]
        shuffled[:] = values
        for k in range(against.shape[0]):
            out[b, k] = 0.0
        for last in range(R - 1, -1, -1):
            n = np.uint64(last + 1)
            while True:
                x, s0, s1, s2, s3 = xoshiro(s0, s1, s2, s3)
                # Lemire's exact bounded integers; the division is needed once in 2^32 / n draws.
                product = (x >> S32) * n
                low = product & MASK32
                if low >= n or low >= (np.uint64(0x100000000) - n) % n:
                    break
            place = np.int64(product >> S32)
            value = shuffled[place]
            shuffled[place] = shuffled[last]
            shuffled[last] = value
            for k in range(against.shape[0]):
                out[b, k] += value * against[k, last]
