"""The compiled loops of the bootstrap. All release the lock, so that blocks of resamples run in plain threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

MASK32 = np.uint64(0xFFFFFFFF)
S17, S19, S23, S32, S41, S45 = map(np.uint64, (17, 19, 23, 32, 41, 45))


def _compiled(function: Callable[..., Any]) -> Any:
    """Compile on the first call and keep the machine code on disk, where there is a place to keep it."""
    try:
        return njit(cache=True, nogil=True)(function)
    except RuntimeError:  # numba found no writable folder for its cache
        return njit(nogil=True)(function)


@_compiled
def xoshiro(s0, s1, s2, s3):  # type: ignore[no-untyped-def]
    """One step of xoshiro256++: 64 random bits, and the state that follows."""
    x = s0 + s3
    x = ((x << S23) | (x >> S41)) + s0
    t = s1 << S17
    s2 ^= s0
    s3 ^= s1
    s1 ^= s2
    s0 ^= s3
    s2 ^= t
    s3 = (s3 << S45) | (s3 >> S19)
    return x, s0, s1, s2, s3


@_compiled
def draw_counts(states, units, counts):  # type: ignore[no-untyped-def]
    """Fill counts (b, units), zeros, with `units` draws with replacement a row; states (b, 4) seed one xoshiro256++ each."""
    n = np.uint64(units)
    # Lemire's exact bounded integers: low products under the threshold are drawn again.
    threshold = (np.uint64(0x100000000) - n) % n
    for b in range(states.shape[0]):
        s0, s1, s2, s3 = states[b, 0], states[b, 1], states[b, 2], states[b, 3]
        drawn = 0
        while drawn < units:
            x, s0, s1, s2, s3 = xoshiro(s0, s1, s2, s3)
            product = (x & MASK32) * n
            if (product & MASK32) >= threshold:
                counts[b, product >> S32] += np.uint8(1)
                drawn += 1
            if drawn < units:
                product = (x >> S32) * n
                if (product & MASK32) >= threshold:
                    counts[b, product >> S32] += np.uint8(1)
                    drawn += 1


@_compiled
def exchanged_sums(states, cuts, code, start, label, values, out):  # type: ignore[no-untyped-def]
    """Exchange codes within strata, once for each row of states (b, 4), and add up rows by label and code.

    Units lie in the order of their strata, rows in that of their units: stratum s is units cuts[s] to cuts[s + 1], which
    exchange code (u,), and unit i is rows start[i] to start[i + 1] with label (n,) and values (n, T). Numbers of rows and sums of
    values go to out (b, C, A, 1 + T).
    """
    held = np.empty_like(code)
    for b in range(states.shape[0]):
        s0, s1, s2, s3 = states[b, 0], states[b, 1], states[b, 2], states[b, 3]
        held[:] = code
        for s in range(cuts.shape[0] - 1):
            first = cuts[s]
            for i in range(cuts[s + 1] - 1, first - 1, -1):
                drawn = held[i]
                if i > first:
                    left = np.uint64(i - first + 1)
                    x, s0, s1, s2, s3 = xoshiro(s0, s1, s2, s3)
                    product = (x >> S32) * left
                    if (product & MASK32) < left:  # the division is dear, and seldom needed
                        threshold = (np.uint64(0x100000000) - left) % left
                        while (product & MASK32) < threshold:
                            x, s0, s1, s2, s3 = xoshiro(s0, s1, s2, s3)
                            product = (x >> S32) * left
                    j = first + np.int64(product >> S32)
                    drawn = held[j]
                    held[j] = held[i]
                for row in range(start[i], start[i + 1]):
                    out[b, label[row], drawn, 0] += 1.0
                    for t in range(values.shape[1]):
                        out[b, label[row], drawn, 1 + t] += values[row, t]


@_compiled
def tally(counts, codes, out):  # type: ignore[no-untyped-def]
    """Add up counts (b, n) by code (n,) into out (b, K); negative codes are left out."""
    for b in range(counts.shape[0]):
        for i in range(codes.shape[0]):
            if codes[i] >= 0:
                out[b, codes[i]] += counts[b, i]


@_compiled
def tally_values(counts, codes, values, out):  # type: ignore[no-untyped-def]
    """Add up counts * values by code."""
    for b in range(counts.shape[0]):
        for i in range(codes.shape[0]):
            if codes[i] >= 0:
                out[b, codes[i]] += counts[b, i] * values[i]


@_compiled
def weighted_sums(counts, matrix, out):  # type: ignore[no-untyped-def]
    """Write counts (b, n) @ matrix (n, k) to out (b, k), each sum in row order whatever the block."""
    for b in range(counts.shape[0]):
        for i in range(matrix.shape[0]):
            for k in range(matrix.shape[1]):
                out[b, k] += counts[b, i] * matrix[i, k]


@_compiled
def auc(counts, order, positive, starts, out):  # type: ignore[no-untyped-def]
    """Area under the ROC curve of every resample.

    order (m,): rows by rising score; positive (m,): 1 or 0 in that order; starts (g + 1,): where each run of equal scores begins.
    Twice the Mann-Whitney count is an integer, so the result does not depend on rounding.
    """
    for b in range(counts.shape[0]):
        below = np.int64(0)
        above = np.int64(0)
        twice = np.int64(0)
        for g in range(starts.shape[0] - 1):
            p = np.int64(0)
            q = np.int64(0)
            for j in range(starts[g], starts[g + 1]):
                c = np.int64(counts[b, order[j]])
                p += c * positive[j]
                q += c * (1 - positive[j])
            twice += p * (2 * below + q)
            below += q
            above += p
        out[b] = twice / (2.0 * above * below) if above > 0 and below > 0 else np.nan


@_compiled
def auc_untied(counts, order, positive, out):  # type: ignore[no-untyped-def]
    """`auc` where no two scores are equal."""
    for b in range(counts.shape[0]):
        below = np.int64(0)
        total = np.int64(0)
        wins = np.int64(0)
        for j in range(order.shape[0]):
            c = np.int64(counts[b, order[j]])
            p = c * positive[j]
            wins += p * below
            below += c - p
            total += c
            # Copies of one row tie with nothing but themselves, and those pairs are of one class.
        above = total - below
        out[b] = wins / (1.0 * above * below) if above > 0 and below > 0 else np.nan


@_compiled
def concordance(counts, order, starts, rank, n_ranks, out):  # type: ignore[no-untyped-def]
    """Share of pairs with different targets that the score puts in the right order, ties of the score 1/2.

    order (m,): rows by rising target; starts: runs of equal targets; rank (m,): dense rank of the score, in that order.
    A Fenwick tree over ranks counts the rows of smaller target below every score: O(n log n) a resample.
    """
    tree = np.zeros(n_ranks + 1, dtype=np.int64)
    for b in range(counts.shape[0]):
        tree[:] = 0
        seen = np.int64(0)
        twice = np.int64(0)
        pairs = np.int64(0)
        for g in range(starts.shape[0] - 1):
            here = np.int64(0)
            for j in range(starts[g], starts[g + 1]):
                c = np.int64(counts[b, order[j]])
                if c == 0:
                    continue
                here += c
                upto = 0
                k = rank[j] + 1
                while k > 0:
                    upto += tree[k]
                    k -= k & -k
                lower = 0
                k = rank[j]
                while k > 0:
                    lower += tree[k]
                    k -= k & -k
                twice += c * (lower + upto)
            pairs += here * seen
            seen += here
            for j in range(starts[g], starts[g + 1]):
                c = np.int64(counts[b, order[j]])
                if c == 0:
                    continue
                k = rank[j] + 1
                while k <= n_ranks:
                    tree[k] += c
                    k += k & -k
        out[b] = twice / (2.0 * pairs) if pairs > 0 else np.nan


@_compiled
def logistic_fits(counts, code, x, start, out):  # type: ignore[no-untyped-def]
    """Intercept and slope, out (b, 2), of the unpenalised logistic fit of every resample; NaN where there is no maximum.

    code (n,): 2 value + outcome of each row, -1 for rows to leave out; x (K,): the values, rising; start (2,): first guess.
    With one regressor a maximum exists just where the values of the two outcomes overlap.
    """
    K = x.shape[0]
    reach = max(abs(x[0]), abs(x[K - 1]))
    rows = np.zeros((K, 2), dtype=np.int64)
    for b in range(counts.shape[0]):
        rows[:] = 0
        for i in range(code.shape[0]):
            if code[i] >= 0:
                rows[code[i] >> 1, code[i] & 1] += counts[b, i]
        out[b, 0] = out[b, 1] = np.nan
        if not _overlap(rows):
            continue
        a, s = start[0], start[1]
        for _ in range(100):
            ga, gs, haa, has, hss = _derivatives(x, rows, a, s)
            det = haa * hss - has * has
            if not det > 0.0:
                if a == 0.0 and s == 0.0:
                    break
                a = s = 0.0
                continue
            da = (hss * ga - has * gs) / det
            ds = (haa * gs - has * ga) / det
            # Steps that move no log odds by more than 1/2 converge as they are; longer ones must not raise the loss.
            if abs(da) + abs(ds) * reach > 0.5:
                step = _halved_step(x, rows, a, s, da, ds)
                da *= step
                ds *= step
            a += da
            s += ds
            # Convergence is quadratic: after a step of this size what is left is rounding.
            if abs(da) + abs(ds) * reach < 1e-8:
                out[b, 0] = a
                out[b, 1] = s
                break


@_compiled
def _overlap(rows):  # type: ignore[no-untyped-def]
    """Whether both outcomes occur and the ranges of their values overlap; rows (K, 2) count each value with each outcome."""
    K = rows.shape[0]
    low0 = low1 = K
    high0 = high1 = -1
    for k in range(K):
        if rows[k, 0] > 0:
            low0 = min(low0, k)
            high0 = k
        if rows[k, 1] > 0:
            low1 = min(low1, k)
            high1 = k
    return high0 >= 0 and high1 >= 0 and high0 > low1 and high1 > low0


@_compiled
def _derivatives(x, rows, a, s):  # type: ignore[no-untyped-def]
    """Gradient (intercept, slope) of the log likelihood, and its negative Hessian (both intercept, mixed, both slope)."""
    ga = gs = haa = has = hss = 0.0
    for k in range(x.shape[0]):
        w = rows[k, 0] + rows[k, 1]
        if w > 0:
            p = 1.0 / (1.0 + np.exp(-(a + s * x[k])))
            r = rows[k, 1] - w * p
            h = w * p * (1.0 - p)
            ga += r
            gs += r * x[k]
            haa += h
            has += h * x[k]
            hss += h * x[k] * x[k]
    return ga, gs, haa, has, hss


@_compiled
def _halved_step(x, rows, a, s, da, ds):  # type: ignore[no-untyped-def]
    """The first of 1, 1/2, 1/4, … times the step (da, ds) that does not raise the loss."""
    now = _loss(x, rows, a, s)
    step = 1.0
    while step > 1e-8 and not _loss(x, rows, a + step * da, s + step * ds) <= now:
        step *= 0.5
    return step


@_compiled
def _loss(x, rows, a, s):  # type: ignore[no-untyped-def]
    total = 0.0
    for k in range(x.shape[0]):
        w = rows[k, 0] + rows[k, 1]
        if w > 0:
            eta = a + s * x[k]
            if eta > 0:
                softplus = eta + np.log1p(np.exp(-eta))
            else:
                softplus = np.log1p(np.exp(eta))
            total += w * softplus - rows[k, 1] * eta
    return total
