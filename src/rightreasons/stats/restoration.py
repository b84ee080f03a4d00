"""Association directions in feature space: find, gate, restore (ART, sec. 3), and the same for many shuffled attributes at once.

Rows without a label or an attribute value are left out of finding and gating. Within a class each attribute value is held
against the rest of the class, which has the direction of its mean minus the class mean; with two values that is the paper's
contrast. The open directions of a class are orthonormalised, and P projects on their span.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rightreasons.errors import DataError, SettingError
from rightreasons.stats.groups import coded
from rightreasons.stats.resampling import subject_codes

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

KINDS = ("class-conditional", "global", "label")
EPS = 1e-12  # the paper's epsilon, in norms and in T
SAME = 1e-8  # directions closer to dependence than this span nothing new

ONE_VALUE = "one attribute value"
NO_DIFFERENCE = "no difference of means"
FEW = "too few rows"
WEAK = "separation not above tau"


@dataclass(frozen=True, eq=False)
class Directions:
    """What `find` estimated and `gate` judged, for C labels and A attribute values (one column for the label direction).

    Attributes
    ----------
    kind : class-conditional, global (one contrast over all rows, the same for every class) or label
    mean : (C, d) class means
    centre : (d,) mean of all rows
    label_basis : (r, d) orthonormal, spans the class means' differences from `centre` (S_y)
    u : (C, A, d) unit directions, zero where there is none; with two values the first is minus the second
    found, counts : (C, A) rows of each group that `find` and `gate` saw
    T : (C, A) separation of each value from the rest along its direction, NaN before gating
    open : (C, A)
    reason : (C, A) texts: why a direction is closed, empty where it is open
    """

    kind: str
    rho: float
    labels: tuple[Hashable, ...]
    values: tuple[Hashable, ...]
    mean: Floats
    centre: Floats
    label_basis: Floats
    u: Floats
    found: Ints
    counts: Ints
    T: Floats
    open: Bools
    reason: tuple[tuple[str, ...], ...]

    @property
    def is_open(self) -> bool:
        """Whether any direction is open."""
        return bool(self.open.any())

    def basis(self, label: Hashable) -> Floats:
        """(k, d) orthonormal rows spanning the open directions of a class; k is 0 where all are closed."""
        c = self.labels.index(label)
        rows = _span(self.u[c], self.open[c])
        return rows[np.any(rows != 0, axis=1)]


def find(
    features: ArrayLike, label: ArrayLike, attribute: ArrayLike, rho: float = 0.5, *, kind: str = "class-conditional"
) -> Directions:
    """Directions that separate the attribute's values within each class; every direction that exists is open.

    Parameters
    ----------
    features : (n, d)
    rho : share of the label subspace's part that is taken out of the contrast (partial label-null correction), 0 to 1
    kind : "global" contrasts the values over all rows; "label" is the direction from the other classes' means to the class's
        own, each mean balanced over attribute values, so that it holds the label and not the attribute
    """
    if not 0 <= rho <= 1:
        raise SettingError(f"rho={rho} lies outside 0 to 1")
    if kind not in KINDS:
        raise SettingError(f"no kind of direction {kind!r}; known: {', '.join(KINDS)}")
    z, y, labels, a, values = _rows(features, label, attribute)
    if not len(z):
        raise DataError("no row has a label and an attribute value: directions cannot be found")
    C, A, d = len(labels), len(values), z.shape[1]
    mean = np.stack([z[y == c].mean(axis=0) for c in range(C)])
    centre = z.mean(axis=0)
    basis = _orthonormal(mean - centre)
    rows_of = _table(y, a, C, A)
    if kind == "label":
        u = _label_directions(z, y, a, rows_of)[:, None, :]
        rows_of, values = rows_of.sum(axis=1, keepdims=True), ("label",)
    elif kind == "global":
        u = np.repeat(contrasts(z - centre, _one_hot(a, A), basis, rho)[None], C, axis=0)
        rows_of = np.repeat(rows_of.sum(axis=0, keepdims=True), C, axis=0)
    else:
        u = np.zeros((C, A, d))
        for c in range(C):
            u[c] = contrasts(z[y == c] - mean[c], _one_hot(a[y == c], A), basis, rho)
    exists = np.any(u != 0, axis=2)
    return Directions(
        kind=kind,
        rho=rho,
        labels=labels,
        values=values,
        mean=mean,
        centre=centre,
        label_basis=basis,
        u=u,
        found=rows_of,
        counts=np.zeros_like(rows_of),
        T=np.full(exists.shape, np.nan),
        open=exists,
        reason=tuple(_why_none(here, rows) for here, rows in zip(exists, rows_of, strict=True)),
    )


def gate(
    directions: Directions, features: ArrayLike, label: ArrayLike, attribute: ArrayLike, tau: float = 0.5, n_min: int = 20
) -> Directions:
    """The same directions, closed where T is not above `tau` or a side of the contrast has fewer than `n_min` of these rows.

    Give rows that `find` did not see. The label direction is no contrast of the attribute and stays open.
    """
    if tau < 0 or n_min < 1:
        raise SettingError(f"found tau={tau} and n_min={n_min}; tau must be 0 or more and n_min 1 or more")
    z, y, labels, a, values = _rows(features, label, attribute)
    if z.shape[1] != directions.mean.shape[1]:
        raise DataError(f"the directions have {directions.mean.shape[1]} features and the rows {z.shape[1]}: give the same layer")
    if directions.kind == "label":
        return directions
    C, A = directions.open.shape
    y, a = _recoded(y, labels, directions.labels), _recoded(a, values, directions.values)
    T, counts, smaller = np.full((C, A), np.nan), np.zeros((C, A), dtype=np.int64), np.zeros((C, A), dtype=np.int64)
    for c in range(C):
        if directions.kind == "class-conditional":
            here = y == c
        else:
            here = y >= 0
        member = _one_hot(a[here], A)
        counts[c] = member.sum(axis=1)
        smaller[c] = np.minimum(counts[c], here.sum() - counts[c])
        T[c] = separation((z[here] @ _corrected(directions.u[c], directions.label_basis, directions.rho).T).T, member)
    exists = np.any(directions.u != 0, axis=2)
    T = np.where(exists, T, np.nan)
    is_open = exists & (smaller >= n_min) & np.greater(T, tau, where=~np.isnan(T), out=np.zeros(T.shape, dtype=bool))
    reason = tuple(_why_closed(is_open[c], exists[c], smaller[c] < n_min, directions.reason[c]) for c in range(C))
    return replace(directions, T=T, counts=counts, open=is_open, reason=reason)


def restore(features: ArrayLike, label: ArrayLike, directions: Directions, beta: float = 2.0) -> NDArray:
    """Features h + beta P(h - mu_c), by the class means and open directions of `label` (n,), in the features' own precision.

    Rows without a label (-1) stay as they are, and so do those of a class whose directions are all closed.
    """
    original = np.asarray(features)
    z = _features(original)
    y, labels = coded(label)
    if len(y) != len(z):
        raise DataError(f"found {len(z)} rows of features and {len(y)} labels; give both over the same rows")
    unknown = [value for value in labels if value not in directions.labels]
    if unknown:
        raise DataError(f"labels {unknown[:5]} have no directions (known: {list(directions.labels)}): find them on rows that do")
    restored = z.copy()
    for k, value in enumerate(labels):
        basis = directions.basis(value)
        if len(basis):
            rows = np.flatnonzero(y == k)
            residual = z[rows] - directions.mean[directions.labels.index(value)]
            restored[rows] += beta * (residual @ basis.T @ basis)
    if original.dtype.kind == "f":
        return restored.astype(original.dtype, copy=False)
    return restored


def halves(
    label: ArrayLike, attribute: ArrayLike, *, rng: np.random.Generator, subject: ArrayLike | None = None
) -> tuple[Ints, Ints]:
    """Rows for finding and rows for gating, (n_find,) and (n_gate,): halves of every subgroup, subjects kept together."""
    y, labels = coded(label)
    a, values = coded(attribute)
    group = y * len(values) + a
    known = np.flatnonzero((y >= 0) & (a >= 0))
    if subject is None:
        unit = np.arange(len(y))
    else:
        unit = subject_codes(subject)
    table = np.zeros((int(unit.max(initial=-1)) + 1, max(len(labels) * len(values), 1)), dtype=np.int64)
    np.add.at(table, (unit[known], group[known]), 1)
    units = np.unique(unit[known])
    stratum = np.unique(table[units] > 0, axis=0, return_inverse=True)[1].reshape(-1)
    # Large subjects first: the small ones then even out what remains.
    order = np.lexsort((rng.random(len(units)), -table[units].sum(axis=1), stratum))
    side = np.zeros(len(table), dtype=np.int64)
    filled = np.zeros((2, table.shape[1]), dtype=np.int64)
    for u in units[order]:
        mine = table[u] > 0
        side[u] = int(filled[0, mine].sum() > filled[1, mine].sum())
        filled[side[u]] += table[u]
    return known[side[unit[known]] == 0], known[side[unit[known]] == 1]


# ---- many draws at once --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Draws:
    """Directions of one class for D attribute columns: spans (D, k, d) with and without their gate, zeros beyond the rank.

    T and `open` are (D, A).
    """

    gated: Floats
    forced: Floats
    T: Floats
    open: Bools


@dataclass(frozen=True, eq=False)
class ShuffledRows:
    """Rows (n, d) of one class less their class mean, and attribute codes 0..A-1 (D, n) of each draw."""

    rows: Floats
    values: Ints

    def members(self, values: tuple[int, ...]) -> Bools:
        """(D * K, n) whether each row has each of K values."""
        return np.stack([self.values == v for v in values], axis=1).reshape(len(self.values) * len(values), -1)


def find_and_gate_draws(
    to_find: ShuffledRows, to_gate: ShuffledRows, A: int, label_basis: Floats, rho: float, tau: float, n_min: int
) -> Draws:
    """`find` and `gate` of one class for D attribute columns, as products of matrices.

    For the rows `to_gate` any shift will do in place of the class mean.
    """
    D, d = len(to_find.values), to_find.rows.shape[1]
    # With two values the second's direction is minus the first's: one is enough.
    contrasted = (1,) if A == 2 else tuple(range(A))
    K = len(contrasted)
    u = contrasts(to_find.rows, to_find.members(contrasted), label_basis, rho)
    member = to_gate.members(contrasted)
    inside = member.sum(axis=1)
    T = separation(_corrected(u, label_basis, rho) @ to_gate.rows.T, member).reshape(D, K)
    smaller = np.minimum(inside, member.shape[1] - inside).reshape(D, K)
    u = u.reshape(D, K, d)
    exists = np.any(u != 0, axis=2)
    is_open = exists & (smaller >= n_min) & (np.nan_to_num(T, nan=-1.0) > tau)
    return Draws(_span(u, is_open), _span(u, exists), T, is_open)


def contrasts(rows: Floats, member: Bools, label_basis: Floats, rho: float) -> Floats:
    """norm((I - rho P)(mean of the members - mean of the rest)), (n, d) rows and (D, n) members to (D, d).

    Zero where a side is empty, or where the sides do not differ.
    """
    weight = member.astype(np.float64)
    inside, n = weight.sum(axis=1), rows.shape[0]
    both = (inside > 0) & (inside < n)
    ones, zeros = np.maximum(inside, 1)[:, None], np.maximum(n - inside, 1)[:, None]
    weight = weight / ones - (1 - weight) / zeros
    raw = _corrected(weight @ rows, label_basis, rho)
    length = np.linalg.norm(raw, axis=1, keepdims=True)
    size = 0.0
    if rows.size:
        size = np.sqrt(np.mean(rows**2))
    some = both[:, None] & (length > 1e-13 * max(float(size), 1e-300))
    return np.where(some, raw / (length + EPS), 0.0)


def separation(projected: Floats, member: Bools) -> Floats:
    """T of each row of `projected` (D, n): members (D, n) against the rest, variances with divisor n; NaN for an empty side."""
    weight = member.astype(np.float64)
    inside = weight.sum(axis=1)
    outside = weight.shape[1] - inside
    means, variances = [], []
    for side, number in ((weight, inside), (1 - weight, outside)):
        number = np.where(number > 0, number, np.nan)
        mean = (side * projected).sum(axis=1) / number
        means.append(mean)
        variances.append((side * (projected - mean[:, None]) ** 2).sum(axis=1) / number)
    return np.abs(means[0] - means[1]) / np.sqrt(0.5 * (variances[0] + variances[1]) + EPS)


def leading_components(rows: Floats, without: Floats, q: int, share: float, rng: np.random.Generator) -> Floats:
    """(k, d) orthonormal leading components of `rows` (n, d), k <= q, that hold `share` of the variance outside `without` (r, d).

    Subspace iteration from random combinations of the rows: turning the feature space turns the components with it.
    """
    x = rows - rows.mean(axis=0)
    x = x - (x @ without.T) @ without
    total = float(np.sum(x**2))
    q = min(q, *x.shape)
    if q < 1 or total <= 0:
        return np.zeros((0, rows.shape[1]))
    block = x.T @ rng.normal(size=(len(x), min(q + 8, *x.shape)))
    for _ in range(4):
        block = x.T @ (x @ np.linalg.qr(block)[0])
    span = np.linalg.qr(block)[0].T
    left, size, turn = np.linalg.svd(x @ span.T, full_matrices=False)
    sign = np.sign(np.take_along_axis(left, np.abs(left).argmax(axis=0)[None], axis=0)[0])
    held = np.cumsum(size**2) / total
    real = int(np.sum(size > 1e-9 * size[0]))
    k = min(q, real, int(np.searchsorted(held, share)) + 1)
    return (sign[:k, None] * turn[:k]) @ span


# ---- what the functions above use ----------------------------------------------------------------------------------------


def _rows(
    features: ArrayLike, label: ArrayLike, attribute: ArrayLike
) -> tuple[Floats, Ints, tuple[Hashable, ...], Ints, tuple[Hashable, ...]]:
    z = _features(features)
    y, labels = coded(label)
    a, values = coded(attribute)
    if not len(z) == len(y) == len(a):
        raise DataError(
            f"found {len(z)} rows of features, {len(y)} labels and {len(a)} attribute values; give all over the same rows"
        )
    known = (y >= 0) & (a >= 0)
    if known.all():
        return (z, y, labels, a, values)
    return (z[known], y[known], labels, a[known], values)


def _features(features: ArrayLike) -> Floats:
    z = np.asarray(features, dtype=np.float64)
    if z.ndim != 2:
        raise DataError(f"found features of shape {z.shape}, expected (n, d)")
    # A sum is finite where every number is, and far cheaper to look at.
    if not np.isfinite(z.sum()):
        bad = ~np.isfinite(z).all(axis=1)
        if bad.any():
            raise DataError(
                f"features of {int(bad.sum())} of {len(z)} rows are not finite (first: row {int(bad.argmax())}); leave them out"
            )
    return z


def _table(y: Ints, a: Ints, C: int, A: int) -> Ints:
    table = np.zeros((C, A), dtype=np.int64)
    np.add.at(table, (y, a), 1)
    return table


def _one_hot(a: Ints, A: int) -> Bools:
    return a[None, :] == np.arange(A)[:, None]


def _recoded(code: Ints, values: tuple[Hashable, ...], known: tuple[Hashable, ...]) -> Ints:
    """Codes in `known`, -1 for values that it lacks."""
    place = {value: k for k, value in enumerate(known)}
    return np.array([place.get(value, -1) for value in values] + [-1], dtype=np.int64)[code]


def _orthonormal(rows: Floats) -> Floats:
    size, turn = np.linalg.svd(rows, full_matrices=False)[1:]
    return turn[size > SAME * max(size.max(initial=0.0), 1e-300)]


def _corrected(v: Floats, label_basis: Floats, rho: float) -> Floats:
    """(I - rho P) of each row; P is symmetric, so this also serves to project corrected residuals on a direction."""
    if rho and len(label_basis):
        return v - rho * (v @ label_basis.T) @ label_basis
    return v


def _span(u: Floats, is_open: Bools) -> Floats:
    """Orthonormal rows (..., k, d) that span the open ones of `u` (..., A, d); rows of zeros beyond the rank."""
    kept = u * is_open[..., None]
    if u.shape[-2] == 1:
        return kept / np.maximum(np.linalg.norm(kept, axis=-1, keepdims=True), 1e-300)
    size, turn = np.linalg.svd(kept, full_matrices=False)[1:]
    return turn * (size > SAME)[..., None]


def _label_directions(z: Floats, y: Ints, a: Ints, rows_of: Ints) -> Floats:
    """(C, d) from the other classes' means to the class's own; each mean is balanced over the attribute values that it has."""
    C, A = rows_of.shape
    if C == 1:
        return np.zeros((1, z.shape[1]))
    class_means = []
    for c in range(C):
        group_means = []
        for v in range(A):
            if rows_of[c, v]:
                group_means.append(z[(y == c) & (a == v)].mean(axis=0))
        class_means.append(np.mean(group_means, axis=0))
    balanced = np.stack(class_means)
    raw = balanced - (balanced.sum(axis=0) - balanced) / (C - 1)
    return raw / (np.linalg.norm(raw, axis=1, keepdims=True) + EPS)


def _why_none(exists: Bools, rows: Ints) -> tuple[str, ...]:
    """Why each value of one class has no direction, empty where it has one; `rows` (A,) are those of each value."""
    reasons = []
    for ok, number in zip(exists, rows, strict=True):
        if ok:
            reasons.append("")
        elif number in (0, rows.sum()):
            reasons.append(ONE_VALUE)
        else:
            reasons.append(NO_DIFFERENCE)
    return tuple(reasons)


def _why_closed(is_open: Bools, exists: Bools, is_small: Bools, before: tuple[str, ...]) -> tuple[str, ...]:
    """Why each gate of one class is closed, empty where it is open; a direction that never existed keeps its reason."""
    reasons = []
    for v, reason in enumerate(before):
        if is_open[v]:
            reasons.append("")
        elif not exists[v]:
            reasons.append(reason)
        else:
            reasons.append(FEW if is_small[v] else WEAK)
    return tuple(reasons)
