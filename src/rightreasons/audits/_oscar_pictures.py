"""OSCAR's pictures as pixels: images with their maps, and scores of regions laid over the mean image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy import ndimage

from rightreasons.data import images
from rightreasons.data.facts import Facts, widen
from rightreasons.data.images import Geometry
from rightreasons.errors import ImageError
from rightreasons.evidence import View

DRAWN = 128  # pixels of the longest side
MEAN_ROWS = 200  # images that the mean image is made of; more change nothing that is seen
MORE, LESS = (0.84, 0.12, 0.16), (0.13, 0.42, 0.86)
SLICES = 5


@dataclass(frozen=True)
class Pictures:
    mean_image: np.ndarray
    pictures: np.ndarray
    maps: np.ndarray
    captions: tuple[str, ...]
    problem: str = ""


def step_of(size: Sequence[int]) -> int:
    """Every how manieth pixel is drawn."""
    return max(1, -(-max(size) // DRAWN))


def thinned(values: np.ndarray, step: int, axes: int) -> np.ndarray:
    return values[(slice(None, None, step),) * axes]


def pictures_of(view: View, geometry: Geometry, recipe: str, rows: np.ndarray, captions: Sequence[str]) -> Pictures:
    """The mean image (*drawn, 3), and some images (k, h, w, 3) with their maps (k, h, w), all at drawing size."""
    axes, step = len(geometry.size), step_of(geometry.size)
    drawn = tuple(len(range(0, s, step)) for s in geometry.size)
    shape = drawn if axes == 2 else drawn[1::-1]  # slices of a volume are turned
    maps = np.zeros((len(rows), *shape), np.float32)
    for k, row in enumerate(rows):
        small = np.maximum(view.select(np.array([row]))[recipe][0].astype(np.float64), 0.0)
        large = ndimage.zoom(
            small, [s / t for s, t in zip(drawn, small.shape, strict=True)], order=1, mode="nearest", grid_mode=True
        )
        maps[k] = flat(large / max(float(large.max()), 1e-300))
    blank = Pictures(np.full((*drawn, 3), 200, np.uint8), np.zeros((0, *shape, 3), np.uint8), maps[:0], ())
    if not view.cohort.has_images:
        return Pictures(blank.mean_image, blank.pictures, blank.maps, (), "the cohort has no images")
    few = view.cohort.select(np.unique(np.linspace(0, len(view) - 1, MEAN_ROWS).astype(int)))
    try:
        mean = Facts(None, few, geometry).mean_image()
        shown = [images.load(view.cohort.image[row], geometry, root=view.cohort.root) for row in rows]
    except ImageError as error:
        return Pictures(blank.mean_image, blank.pictures, blank.maps, (), str(error))
    flats = [flat(thinned(coloured(picture), step, axes), colours=True) for picture in shown]
    pixels = np.stack(flats) if flats else blank.pictures
    return Pictures(thinned(coloured(mean), step, axes), pixels, maps, tuple(captions))


def flat(values: np.ndarray, colours: bool = False) -> np.ndarray:
    """An image as it is; of a volume the middle slice, anterior up."""
    if values.ndim == (3 if colours else 2):
        return values
    return np.rot90(values[:, :, values.shape[2] // 2])


def coloured(pixels: np.ndarray) -> np.ndarray:
    """Pixels (*size, c) as uint8 with three channels."""
    values = np.clip(np.nan_to_num(widen(np.asarray(pixels))), 0, 1)
    values = values[..., :3] if values.shape[-1] >= 3 else np.repeat(values[..., :1], 3, axis=-1)
    return np.rint(values * 255).astype(np.uint8)


def heated(picture: np.ndarray, heat: np.ndarray) -> np.ndarray:
    """A map (h, w) in [0, 1] laid over a picture (h, w, 3): the picture in grey, the map in red."""
    return blended(picture, [(heat, MORE)])


def blended(picture: np.ndarray, layers: Sequence[tuple[np.ndarray, tuple[float, float, float]]]) -> np.ndarray:
    grey = np.repeat(picture.astype(np.float64).mean(axis=-1, keepdims=True) / 255, 3, axis=-1)
    out = 0.25 + 0.75 * grey  # lighter, so that colours show over black
    for strength, colour in layers:
        alpha = 0.85 * np.sqrt(np.clip(np.nan_to_num(strength), 0, 1))[..., None]
        out = out * (1 - alpha) + alpha * np.array(colour)
    return np.rint(np.clip(out, 0, 1) * 255).astype(np.uint8)


def over_regions(regions: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Values (R,) at every pixel of their region, 0 elsewhere."""
    return np.append(values, 0.0)[regions]


def planes(regions: np.ndarray, weight: np.ndarray) -> list[tuple[str, tuple[slice | int, ...]]]:
    """What to draw of a map: an image whole; of a volume the axial slices that carry most of `weight` (R,), from below."""
    if regions.ndim == 2:
        return [("", (slice(None), slice(None)))]
    load = np.abs(over_regions(regions, np.nan_to_num(weight))).sum(axis=(0, 1))
    depth, number = len(load), min(SLICES, len(load))
    # The heaviest slice of each of a few equal slabs, so that the slices are not all neighbours.
    cuts = np.linspace(0, depth, number + 1).astype(int)
    chosen = [low + int(np.argmax(load[low:high])) for low, high in pairwise(cuts)]
    return [(f"slice {z + 1} of {depth}", (slice(None), slice(None), z)) for z in chosen]


def plane_of(values: np.ndarray, where: tuple[slice | int, ...]) -> np.ndarray:
    """One plane of an image or volume; slices of a volume anterior up."""
    cut = values[where]
    return np.rot90(cut) if len(where) == 3 else cut
