"""Token spuriousity: how much influence lies outside an object (TSI, sec. 3.1.2, App. C.3, C.4). Arrays in, arrays out."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rightreasons.errors import DataError, SettingError
from rightreasons.families import suggest

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

RECTIFY = ("positive", "signed", "abs")
# Objects that cover more of the image leave too little outside to compare with (sec. 3.2: over 160 of 196 tokens).
ADMISSIBLE = (160, 196)
TOO_LARGE = 4  # the coverage group of such objects
REASONS = (
    "",
    "the object covers no token",
    "no token lies outside the object",
    "no token of the object supports the class",
)


def spuriosity(influence: ArrayLike, inside: ArrayLike, rectify: str = "positive") -> tuple[Floats, Floats]:
    """A-TSI (eq. 1) and M-TSI (eq. 2), each (n,), NaN where undefined.

    Parameters
    ----------
    influence : (n, T) or (n, *grid), signed; a NaN was not computed: the maximum passes over it, the average is undefined
    inside : the same shape, or one grid for all images; which tokens the object covers
    rectify : "positive" takes max(z, 0), "abs" |z|, "signed" z as it is. A denominator that is not positive is undefined
    """
    z, core = _tokens(influence, inside, rectify)
    n_in, n_out = core.sum(axis=1), (~core).sum(axis=1)
    average = _ratio(_mean(z, ~core, n_out), _mean(z, core, n_in))
    return average, _ratio(_largest(z, ~core), _largest(z, core))


def why_undefined(influence: ArrayLike, inside: ArrayLike, rectify: str = "positive") -> NDArray[np.int8]:
    """Numbers (n,) into `REASONS`: why M-TSI is undefined; 0 where it is defined."""
    z, core = _tokens(influence, inside, rectify)
    reason = np.zeros(len(z), np.int8)
    reason[~(_largest(z, core) > 0)] = 3
    reason[core.all(axis=1)] = 2
    reason[~core.any(axis=1)] = 1
    return reason


def strongest_outside(influence: ArrayLike, inside: ArrayLike) -> Floats:
    """(n,) 1 where the token of largest |influence| lies outside, 0 inside; NaN where all are 0 or a side is empty."""
    z, core = _tokens(influence, inside, "abs")
    place = np.where(np.isnan(z), -1.0, z).argmax(axis=1)
    rows = np.arange(len(z))
    known = core.any(axis=1) & ~core.all(axis=1) & (z[rows, place] > 0)
    return np.where(known, ~core[rows, place], np.nan).astype(np.float64)


def only_outside(influence: ArrayLike, inside: ArrayLike) -> Bools:
    """Where no token of the object supports the class and one outside does: M-TSI would be infinite, and is undefined."""
    z, core = _tokens(influence, inside, "positive")
    with np.errstate(invalid="ignore"):
        return (_largest(z, core) <= 0) & (_largest(z, ~core) > 0)


class NoiseSpuriosity(NamedTuple):
    """NSI (eq. 3, 4) with its two changes, each (n,): confidence lost by noise in the object, and outside it."""

    nsi: Floats
    lost_core: Floats
    lost_outside: Floats


def noise_spuriosity(original: ArrayLike, core: ArrayLike, outside: ArrayLike) -> NoiseSpuriosity:
    """NSI from the confidence in a class without noise, with noise in the object, and with noise outside it.

    Parameters
    ----------
    original : (n,) confidence in the class
    core, outside : (K, n) the same with noise there, one row a draw; the mean over draws counts
    """
    lost_core, lost_outside = _lost(original, core), _lost(original, outside)
    return NoiseSpuriosity(_ratio(lost_outside, lost_core), lost_core, lost_outside)


def core_region(maps: ArrayLike, top: int) -> Bools:
    """The `top` tokens of largest value as a region, (n, T) (App. C.4); ties go to the first."""
    flat = _flat(maps)
    if not 1 <= top <= flat.shape[1]:
        raise SettingError(f"top={top} tokens of {flat.shape[1]}: give 1 to {flat.shape[1]}")
    order = np.argsort(-flat, axis=1, kind="stable")[:, :top]
    region = np.zeros(flat.shape, dtype=bool)
    np.put_along_axis(region, order, True, axis=1)
    return region


def coverage_edges(T: int) -> NDArray[np.int64]:
    """Upper ends (5,) of the coverage groups, from 0: quarters of the range that is admissible; 0, 40, 80, 120, 160 of 196."""
    most = ADMISSIBLE[0] * T // ADMISSIBLE[1]
    return np.arange(5) * most // 4


def coverage_group(covered: ArrayLike, T: int) -> NDArray[np.int64]:
    """Quarter 0..3 of each object by the tokens that it covers, (n,); 4 (`TOO_LARGE`) where it covers too many, -1 where none."""
    tokens = np.asarray(covered)
    return np.where(tokens < 1, -1, np.searchsorted(coverage_edges(T)[1:], tokens, side="left"))


def is_admissible(group: ArrayLike) -> Bools:
    """Coverage groups (n,) of objects that cover a token and not too many."""
    quarter = np.asarray(group)
    return (quarter >= 0) & (quarter < TOO_LARGE)


def sample_weights(maximum: ArrayLike, label: ArrayLike | None = None, *, power: float = 1.0, least: float = 0.1) -> Floats:
    """Weights (n,) of mean 1 for training: images whose M-TSI exceeds 1 count less, M-TSI ** -power of the others (sec. 7).

    Parameters
    ----------
    maximum : (n,) M-TSI; an undefined one is weighted like an image within its object, an infinite one with `least`
    label : (n,) classes keep their total weight where it is given
    least : the smallest weight before scaling
    """
    scores = np.asarray(maximum, dtype=np.float64)
    if scores.ndim != 1 or not len(scores):
        raise DataError(f"found M-TSI of shape {scores.shape}; give one score per image, (n,)")
    if power < 0 or not 0 < least <= 1:
        raise SettingError(f"power={power} and least={least}: give a power of at least 0 and 0 < least <= 1")
    weight = np.maximum(np.maximum(np.where(np.isnan(scores), 1.0, scores), 1.0) ** -power, least)
    if label is None:
        group = np.zeros(len(weight), np.int64)
    else:
        group = np.unique(np.asarray(label), return_inverse=True)[1]
    if len(group) != len(weight):
        raise DataError(f"found {len(group)} labels for {len(weight)} scores; give both over the same images")
    return weight * (np.bincount(group) / np.bincount(group, weight))[group]


# ---- what the functions above use ----------------------------------------------------------------------------------------


def _tokens(influence: ArrayLike, inside: ArrayLike, rectify: str) -> tuple[Floats, Bools]:
    if rectify not in RECTIFY:
        raise SettingError(f"no rectification {rectify!r}; {suggest(str(rectify), RECTIFY)}")
    z, core = _flat(influence), np.asarray(inside)
    if core.dtype != bool:
        raise DataError(f"inside has type {core.dtype}; give booleans, such as share > 0")
    shape = np.shape(influence)
    if core.shape == shape[1:]:
        core = np.broadcast_to(core, shape)
    if core.shape != shape:
        raise DataError(f"found influence of shape {shape} and inside of shape {core.shape}; give both over the same tokens")
    if np.isinf(z).any():
        raise DataError(f"influence is infinite in row {int(np.isinf(z).any(axis=1).argmax())}: extract it again")
    if rectify == "positive":
        z = np.maximum(z, 0)
    elif rectify == "abs":
        z = np.abs(z)
    return z, core.reshape(z.shape)


def _flat(maps: ArrayLike) -> Floats:
    z = np.asarray(maps, dtype=np.float64)
    if z.ndim < 2:
        raise DataError(f"found maps of shape {z.shape}; give (n, T) or (n, *grid), the first axis images")
    return z.reshape(len(z), int(np.prod(z.shape[1:])))


def _lost(original: ArrayLike, noisy: ArrayLike) -> Floats:
    """(n,) confidence lost on average over draws."""
    confidence, draws = np.asarray(original, dtype=np.float64), np.atleast_2d(np.asarray(noisy, dtype=np.float64))
    return confidence - draws.mean(axis=0)


def _mean(z: Floats, where: Bools, number: NDArray) -> Floats:
    total = np.where(where, z, 0.0).sum(axis=1)
    return np.divide(total, number, out=np.full(len(z), np.nan), where=number > 0)


def _largest(z: Floats, where: Bools) -> Floats:
    known = where & ~np.isnan(z)
    largest = np.where(known, z, -np.inf).max(axis=1, initial=-np.inf)
    return np.where(known.any(axis=1), largest, np.nan)


def _ratio(outside: Floats, core: Floats) -> Floats:
    with np.errstate(invalid="ignore"):
        return np.divide(outside, core, out=np.full(len(core), np.nan), where=core > 0)
