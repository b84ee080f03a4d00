"""Is the correlation of two maps over regions more than chance? Nulls that know neighbours to be alike, and the plain one.

A 7x7 map enlarged to 256 cells does not hold 256 independent numbers, so permuting regions calls far too much significant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import ndimage, stats

from rightreasons.errors import DataError, SettingError
from rightreasons.stats.correlation import pearson, residual
from rightreasons.stats.resampling import p_value

Floats = NDArray[np.float64]

NULLS = ("dutilleul", "torus", "moran", "spectral", "permutation", "paper")
B_DEFAULT = 10_000
# Degrees of freedom per effective region. Of factors from 0.3 to 1, with n_eff less 0 to 4 in t, this came nearest to the nominal
# level in eight kinds of simulated worlds, 20,000 in all: 3.6 to 6.3 % called at 5 %.
FREEDOM = 0.35
# Fewer effective regions than this leave no degree of freedom.
FEWEST_EFFECTIVE = 3.0
# More different distances than this are put into bins: irregular regions have nearly one distance a pair.
MOST_CLASSES = 160


@dataclass(frozen=True)
class Places:
    """Where regions lie.

    Attributes
    ----------
    centroids : (R, axes), see `region_centroids`
    cells : along every axis of a grid whose regions are numbered row-major; None where they are no grid
    """

    centroids: ArrayLike | None = None
    cells: Sequence[int] | None = None


@dataclass(frozen=True)
class NullTest:
    """A correlation with its p-value under one null.

    Attributes
    ----------
    value : the correlation of the two residual maps
    p : two-sided; NaN, with the reason, where it is undefined
    effective : regions the test counts as independent; R for plain permutations, NaN where the null does not say
    draws : null values compared, 0 for a formula
    """

    null: str
    value: float
    p: float
    effective: float
    draws: int
    reason: str = ""


def correlation_test(
    a: ArrayLike,
    b: ArrayLike,
    given: ArrayLike | None = None,
    *,
    null: str | None = None,
    places: Places = Places(),
    rng: np.random.Generator | None = None,
    B: int = B_DEFAULT,
    kind: str = "partial",
) -> NullTest:
    """Test the correlation of profiles a and b, given a third where there is one, all (R,).

    Parameters
    ----------
    null : "spectral" (needs cells, `rng`; the default where there are cells), "dutilleul" (centroids; the default elsewhere),
        "torus" (cells), "moran" (centroids, `rng`), "permutation" of one residual against the other, "paper", of the profile
        before `given` is taken out (`rng`)
    kind : "partial"; "deviation" takes `given` out of `a` only

    The defaults were chosen by measurement (`make bench NAME=oscar-nulls`): worlds without a shortcut, models independent or
    with a shared task region, 7x7 and 14x14 maps, rough and smooth, 16x16 cells, 2,000 or more worlds a kind. At the 5 % level
    "spectral" calls 4.9 to 6.6 % and "dutilleul" 3.6 to 6.3 %; torus shifts call up to 17 %, plain permutation 18 to 71 %. Of
    planted cues "spectral" finds more than "dutilleul", most on smooth maps: it estimates no autocorrelation. But it needs a
    whole grid, so other partitions have "dutilleul".
    """
    null = null or ("dutilleul" if places.cells is None else "spectral")
    if null not in NULLS:
        raise SettingError(f"no null {null!r}; known: {', '.join(NULLS)}")
    if kind not in ("partial", "deviation"):
        raise SettingError(f"no correlation {kind!r}; known: partial, deviation")
    a, b, given = _profiles(a, b, given)
    left, right = a, b
    if given is not None:
        left = residual(a, given)
        right = b if kind == "deviation" else residual(b, given)
    value = float(pearson(left, right))
    if np.isnan(value):
        return NullTest(null, value, np.nan, np.nan, 0, "a profile is constant, or nothing of it is left beside the third")
    x, y = _unit(left), _unit(right)
    if null == "dutilleul":
        return _dutilleul(value, x, y, _centroids(places, null))
    if null == "torus":
        draws = torus_draws(x, y, _grid(places, len(x), null))
        return NullTest(null, value, p_value(value, draws), np.nan, len(draws))
    rng = _generator(rng, null, B)
    effective = np.nan
    if null == "moran":
        draws = moran_draws(x, y, _centroids(places, null), given, rng=rng, B=B)
    elif null == "spectral":
        draws = spectral_draws(x, y, _grid(places, len(x), null), given, rng=rng, B=B)
    else:
        effective = float(len(x))
        if null == "permutation":
            draws = permutation_draws(x, y, rng=rng, B=B)
        else:
            draws = paper_draws(a, y, given, rng=rng, B=B)
    return NullTest(null, value, p_value(value, draws), effective, len(draws))


def region_centroids(regions: ArrayLike) -> Floats:
    """Centres of mass (R, axes) of regions numbered 0..R-1 over an image or volume, in pixels; negative is no region."""
    number = np.asarray(regions)
    R = int(number.max(initial=-1)) + 1
    if R < 1 or (np.bincount(number[number >= 0], minlength=R) == 0).any():
        raise DataError(f"found region numbers up to {R - 1} with gaps; number the regions 0..R-1")
    return np.array(ndimage.center_of_mass(np.ones(number.shape), number, np.arange(R)))


def correlation_variance(x: ArrayLike, y: ArrayLike, centroids: ArrayLike) -> Floats:
    """Variance of the correlation of maps x and y, (R,) or (W, R), if both are stationary and independent of each other.

    Var r = sum_k N_k C_x(k) C_y(k) / (N_0 C_x(0) N_0 C_y(0)), with C(k) the autocovariance of a centred map over the N_k ordered
    pairs of regions in distance class k, all classes (Clifford, Richardson & Hemon 1989; Dutilleul 1993): the variance of sum x y
    for given x if y has the autocovariance that it shows. At least 1 / (R - 1): R regions are never worth more than R.
    """
    code, pairs = distance_classes(centroids)
    first = _products(np.atleast_2d(np.asarray(x, dtype=np.float64)), code, len(pairs))
    second = _products(np.atleast_2d(np.asarray(y, dtype=np.float64)), code, len(pairs))
    with np.errstate(invalid="ignore", divide="ignore"):
        variance = np.sum(first * second / pairs, axis=1) / (first[:, 0] * second[:, 0])
    variance = np.maximum(variance, 1.0 / (len(code) - 1))
    if np.ndim(x) == 1 and np.ndim(y) == 1:
        return variance[0]
    return variance


def dutilleul_p(value: ArrayLike, variance: ArrayLike) -> Floats:
    """Two-sided p of correlations with the given variance under the null; NaN under `FEWEST_EFFECTIVE` effective regions.

    n_eff = 1 + 1 / Var r as in Dutilleul's test, t = r sqrt(n_eff / (1 - r^2)) on `FREEDOM` n_eff degrees of freedom: fewer than
    n_eff - 2, because Var r is itself estimated: in the simulated worlds its squared coefficient of variation is 0.04 at
    n_eff = 129, 0.09 at 45 and 0.16 at 15, and an estimate of variance with f degrees of freedom has 2 / f.
    """
    r, effective = np.asarray(value, dtype=np.float64), 1.0 + 1.0 / np.asarray(variance, dtype=np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        t = np.abs(r) * np.sqrt(effective / (1.0 - r**2))
        p = 2 * stats.t.sf(t, FREEDOM * effective)
    return np.where(effective < FEWEST_EFFECTIVE, np.nan, p)[()]


def distance_classes(centroids: ArrayLike) -> tuple[NDArray[np.int64], Floats]:
    """Class of every pair of regions by distance, (R, R) with 0 on the diagonal, and the ordered pairs (K,) of each.

    Every distance is a class of its own where there are few (grids); else bins of equal width, about half the spacing of regions.
    """
    places = np.asarray(centroids, dtype=np.float64)
    if places.ndim != 2 or len(places) < 3 or not np.isfinite(places).all():
        raise DataError(f"found centroids of shape {places.shape}; expected finite (R, axes) of at least 3 regions")
    return _classes(places.tobytes(), places.shape)


def permutation_draws(x: ArrayLike, y: ArrayLike, *, rng: np.random.Generator, B: int = B_DEFAULT) -> Floats:
    """Correlations (B,) of y with random permutations of x, both (R,)."""
    x, y = _unit(np.asarray(x, dtype=np.float64)), _unit(np.asarray(y, dtype=np.float64))
    return _permuted_products(x, y[None], rng, B)[:, 0]


def paper_draws(a: ArrayLike, y: ArrayLike, given: ArrayLike | None, *, rng: np.random.Generator, B: int = B_DEFAULT) -> Floats:
    """Correlations (B,) of y with what `given` leaves of random permutations of profile a: the paper's region permutation.

    y is centred and free of `given` for a partial correlation, so the residual is never formed: |residual|^2 = 1 - (a . given)^2.
    """
    start, y = _unit(np.asarray(a, dtype=np.float64)), _unit(np.asarray(y, dtype=np.float64))
    if given is None:
        return _permuted_products(start, y[None], rng, B)[:, 0]
    c = _unit(np.asarray(given, dtype=np.float64))
    along_y, along_c = _permuted_products(start, np.stack([y, c]), rng, B).T
    return (along_y - along_c * (c @ y)) / np.sqrt(np.maximum(1.0 - along_c**2, np.finfo(float).tiny))


def torus_draws(x: ArrayLike, y: ArrayLike, cells: Sequence[int]) -> Floats:
    """Correlations of y with every shift of x around the torus of a grid, (R - 1,), all by one Fourier transform."""
    x = _unit(np.asarray(x, dtype=np.float64)).reshape(tuple(cells))
    y = _unit(np.asarray(y, dtype=np.float64)).reshape(tuple(cells))
    return np.real(np.fft.ifftn(np.conj(np.fft.fftn(x)) * np.fft.fftn(y))).reshape(-1)[1:]


def moran_draws(
    x: ArrayLike,
    y: ArrayLike,
    centroids: ArrayLike,
    given: ArrayLike | None = None,
    *,
    rng: np.random.Generator,
    B: int = B_DEFAULT,
) -> Floats:
    """Correlations (B,) of y with surrogates of x that keep its Moran spectrum (singleton procedure, Wagner & Dray 2015).

    Eigenvectors of the doubly centred weights 1 / distance are maps of falling smoothness; a surrogate flips the signs of x's
    coefficients at random. `given` is taken out of every surrogate, as it was of x.
    """
    places = np.asarray(centroids, dtype=np.float64)
    distance_classes(places)  # refuses what are no centroids
    basis = _moran_basis(places.tobytes(), places.shape)
    return _flipped(x, y, given, lambda map_: map_ @ basis, rng, B)


def spectral_draws(
    x: ArrayLike,
    y: ArrayLike,
    cells: Sequence[int],
    given: ArrayLike | None = None,
    *,
    rng: np.random.Generator,
    B: int = B_DEFAULT,
) -> Floats:
    """Correlations (B,) of y with surrogates of x that keep its cosine spectrum: signs of the coefficients flipped at random.

    The cosine transform mirrors a grid at its border, as enlarging a map does, where the Fourier transform would join opposite
    sides. `given` is taken out of every surrogate, as it was of x: without that up to 7.6 % are called at the 5 % level.
    """
    from scipy.fft import dctn

    return _flipped(x, y, given, lambda map_: dctn(map_.reshape(tuple(cells)), norm="ortho").reshape(-1), rng, B)


# ---- what the functions above use ----------------------------------------------------------------------------------------


def _flipped(
    x: ArrayLike, y: ArrayLike, given: ArrayLike | None, transform: Callable[[Floats], Floats], rng: np.random.Generator, B: int
) -> Floats:
    """Correlations (B,) of y with what `given` leaves of x after random flips of its coefficients in an orthonormal transform."""
    first = _unit(np.asarray(x, dtype=np.float64))
    second = _unit(np.asarray(y, dtype=np.float64))
    coefficients = transform(first)
    signs = rng.choice(np.array([-1.0, 1.0]), size=(B, len(first)))
    along_y = signs @ (coefficients * transform(second))
    if given is None:
        return along_y
    c = _unit(np.asarray(given, dtype=np.float64))
    along_c = signs @ (coefficients * transform(c))
    return (along_y - along_c * (c @ second)) / np.sqrt(np.maximum(1.0 - along_c**2, np.finfo(float).tiny))


def _dutilleul(value: float, x: Floats, y: Floats, centroids: ArrayLike) -> NullTest:
    if len(np.asarray(centroids)) != len(x):
        raise DataError(
            f"found {len(np.asarray(centroids))} centroids for profiles of {len(x)} regions; give one centroid for every region"
        )
    variance = float(correlation_variance(x, y, centroids))
    effective = 1 + 1 / variance
    p, reason = float(dutilleul_p(value, variance)), ""
    if np.isnan(p):
        reason = f"the regions are worth {effective:.1f} independent ones, at least {FEWEST_EFFECTIVE:.0f} needed"
    return NullTest("dutilleul", value, p, effective, 0, reason)


def _profiles(a: ArrayLike, b: ArrayLike, given: ArrayLike | None) -> tuple[Floats, Floats, Floats | None]:
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    third = None
    if given is not None:
        third = np.asarray(given, dtype=np.float64)
    if third is None:
        profiles = [first, second]
    else:
        profiles = [first, second, third]
    shapes = [profile.shape for profile in profiles]
    if len(set(shapes)) != 1 or first.ndim != 1 or len(first) < 4:
        raise DataError(f"found profiles of shapes {shapes}; expected one number for each of at least 4 regions")
    if not all(np.isfinite(profile).all() for profile in profiles):
        raise DataError("a profile is not finite; leave out the regions or images that make it so")
    return first, second, third


def _unit(values: Floats) -> Floats:
    """Centred and of length one; NaN for a constant."""
    centred = values - values.mean()
    with np.errstate(invalid="ignore"):
        return centred / np.linalg.norm(centred)


def _centroids(places: Places, null: str) -> ArrayLike:
    if places.centroids is None:
        raise SettingError(f"the null {null!r} needs centroids= of the regions: give them, or another null")
    return places.centroids


def _grid(places: Places, R: int, null: str) -> tuple[int, ...]:
    cells = places.cells
    if cells is None or int(np.prod(cells)) != R:
        raise SettingError(
            f"the null {null!r} needs a whole grid: found cells={cells} for {R} regions; give cells= of every axis"
        )
    return tuple(map(int, cells))


def _generator(rng: np.random.Generator | None, null: str, B: int) -> np.random.Generator:
    if rng is None:
        raise SettingError(f"the null {null!r} draws at random: give rng=, a numpy Generator")
    if B < 1:
        raise SettingError(f"found B={B} draws; give at least 1")
    return rng


def _permuted_products(values: Floats, against: Floats, rng: np.random.Generator, B: int) -> Floats:
    """Products (B, k) of random permutations of values (R,) with every row of against (k, R)."""
    from rightreasons.stats import _region_kernels

    states = rng.integers(0, 2**64, size=(B, 4), dtype=np.uint64)
    states[:, 0] |= np.uint64(1)  # the all-zero state is the one that this generator cannot leave
    out = np.empty((B, len(against)))
    _region_kernels.permuted_products(states, np.ascontiguousarray(values), np.ascontiguousarray(against), out)
    return out


def _products(maps: Floats, code: NDArray[np.int64], K: int) -> Floats:
    from rightreasons.stats import _region_kernels

    if maps.shape[-1] != len(code):
        raise DataError(f"found maps of {maps.shape[-1]} regions and {len(code)} centroids; give one centroid for every region")
    out = np.zeros((len(maps), K))
    _region_kernels.class_products(np.ascontiguousarray(maps - maps.mean(axis=1, keepdims=True)), code, out)
    return out


@lru_cache(maxsize=8)
def _classes(content: bytes, shape: tuple[int, ...]) -> tuple[NDArray[np.int64], Floats]:
    distance = _distances(content, shape)
    # Equal distances of a grid differ in the last bits; the nearest neighbours set the scale.
    spacing = float(np.mean(np.min(distance + np.diag(np.full(len(distance), np.inf)), axis=1)))
    if spacing == 0:
        raise DataError("some regions have the same centroid, so no distance lies between them: use another partition")
    fine = np.unique(np.round(distance / spacing, 6), return_inverse=True)[1].reshape(distance.shape)
    if fine.max() >= MOST_CLASSES:
        coarse = np.floor(2 * distance / spacing + 0.5).astype(np.int64) + 1
        np.fill_diagonal(coarse, 0)
        fine = np.unique(coarse, return_inverse=True)[1].reshape(distance.shape)
    code = np.ascontiguousarray(fine, dtype=np.int64)
    return code, np.bincount(code.reshape(-1)).astype(np.float64)


@lru_cache(maxsize=8)
def _moran_basis(content: bytes, shape: tuple[int, ...]) -> Floats:
    distance = _distances(content, shape)
    with np.errstate(divide="ignore"):
        weights = 1.0 / distance
    np.fill_diagonal(weights, 0.0)
    centred = weights - weights.mean(axis=0) - weights.mean(axis=1, keepdims=True) + weights.mean()
    # One of the vectors is the constant, which a centred map does not have: it changes nothing.
    return np.linalg.eigh(centred)[1]


def _distances(content: bytes, shape: tuple[int, ...]) -> Floats:
    places = np.frombuffer(content, dtype=np.float64).reshape(shape)
    return np.sqrt(np.sum((places[:, None] - places[None]) ** 2, axis=-1))
