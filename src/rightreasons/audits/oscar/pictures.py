"""OSCAR's pictures as pixels: images with their maps, and scores of regions laid over the mean image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy import ndimage

from rightreasons.data import images
from rightreasons.data.cohort import Attribute
from rightreasons.data.facts import Facts, widen
from rightreasons.data.images import Geometry
from rightreasons.errors import ImageError
from rightreasons.evidence import View

DRAWN = 128  # pixels of the longest side
MEAN_ROWS = 200  # images that the mean image is made of; more change nothing that is seen
SLICES = 5

Colour = tuple[float, float, float]
MORE: Colour = (0.84, 0.12, 0.16)
LESS: Colour = (0.13, 0.42, 0.86)


@dataclass(frozen=True)
class Pictures:
    """What a page shows of one model, at drawing size.

    Attributes
    ----------
    mean_image : (*drawn, 3) of the test images
    images, maps : (k, h, w, 3) and (k, h, w) some images and their maps; of a volume the middle slice
    captions : (k,) label and attribute value of these images
    problem : why there are none
    """

    mean_image: np.ndarray
    images: np.ndarray
    maps: np.ndarray
    captions: tuple[str, ...]
    problem: str = ""


@dataclass(frozen=True)
class Layer:
    """Strengths (h, w) in [0, 1] to be laid over a picture in one colour."""

    strength: np.ndarray
    colour: Colour


@dataclass(frozen=True)
class Plane:
    """One plane of an image or volume, and its caption: none for an image, which is shown as it is."""

    caption: str
    where: tuple[slice | int, ...]

    def of(self, values: np.ndarray) -> np.ndarray:
        """This plane of an array; slices of a volume anterior up."""
        cut = values[self.where]
        if len(self.where) != 3:
            return cut
        return np.rot90(cut)


# ---- of one model --------------------------------------------------------------------------------------------------------


def rows_to_show(view: View, a: Attribute, number: int) -> np.ndarray:
    """The first row of every group, then the second, and so on; the same for all models."""
    group = view.cohort.label * len(a.levels) + view.cohort.attribute(a.name).values
    turn = np.zeros(len(view), dtype=np.int64)
    for g in np.unique(group):
        turn[group == g] = np.arange((group == g).sum())
    return np.lexsort((group, turn))[: max(0, number)]


def pictures_of(view: View, a: Attribute, geometry: Geometry, recipe: str, number: int) -> Pictures:
    """The mean image, and `number` images of the view with their maps."""
    rows = rows_to_show(view, a, number)
    axes, step = len(geometry.size), drawing_step(geometry.size)
    drawn = tuple(len(range(0, s, step)) for s in geometry.size)
    shape = drawn if axes == 2 else drawn[1::-1]  # slices of a volume are turned
    blank = np.full((*drawn, 3), 200, np.uint8)
    no_images, no_maps = np.zeros((0, *shape, 3), np.uint8), np.zeros((0, *shape), np.float32)
    if not view.cohort.has_images:
        return Pictures(blank, no_images, no_maps, (), "the cohort has no images")
    few = view.cohort.select(np.unique(np.linspace(0, len(view) - 1, MEAN_ROWS).astype(int)))
    try:
        mean = Facts(None, few, geometry).mean_image()
        loaded = []
        for row in rows:
            loaded.append(images.load(view.cohort.image[row], geometry, root=view.cohort.root))
    except ImageError as error:
        return Pictures(blank, no_images, no_maps, (), str(error))
    mean_image = thinned(coloured(mean), step, axes)
    if not len(rows):
        return Pictures(mean_image, no_images, no_maps, ())
    shown = np.stack([flat(thinned(coloured(picture), step, axes), colours=True) for picture in loaded])
    maps = np.stack([_drawn_map(view, recipe, row, drawn) for row in rows])
    return Pictures(mean_image, shown, maps, tuple(_caption(view, a, row) for row in rows))


def drawing_step(size: Sequence[int]) -> int:
    """How many pixels apart the drawn ones lie."""
    return max(1, -(-max(size) // DRAWN))


def thinned(values: np.ndarray, step: int, axes: int) -> np.ndarray:
    return values[(slice(None, None, step),) * axes]


def flat(values: np.ndarray, colours: bool = False) -> np.ndarray:
    """An image as it is; of a volume the middle slice, anterior up."""
    if values.ndim == (3 if colours else 2):
        return values
    return np.rot90(values[:, :, values.shape[2] // 2])


def coloured(pixels: np.ndarray) -> np.ndarray:
    """Pixels (*size, c) as uint8 with three channels."""
    values = np.clip(np.nan_to_num(widen(np.asarray(pixels))), 0, 1)
    if values.shape[-1] >= 3:
        values = values[..., :3]
    else:
        values = np.repeat(values[..., :1], 3, axis=-1)
    return np.rint(values * 255).astype(np.uint8)


def _drawn_map(view: View, recipe: str, row: int, drawn: Sequence[int]) -> np.ndarray:
    """The positive part of one map at drawing size, scaled to its own maximum."""
    small = np.maximum(view.select(np.array([row]))[recipe][0].astype(np.float64), 0.0)
    zoom = [s / t for s, t in zip(drawn, small.shape, strict=True)]
    large = ndimage.zoom(small, zoom, order=1, mode="nearest", grid_mode=True)
    return flat(large / max(float(large.max()), 1e-300)).astype(np.float32)


def _caption(view: View, a: Attribute, row: int) -> str:
    cohort = view.cohort
    label, level = cohort.label[row], cohort.attribute(a.name).values[row]
    return f"{cohort.label_name} {cohort.classes[label]}, {a.name} {a.levels[level]}"


# ---- over the mean image -------------------------------------------------------------------------------------------------


def heated(picture: np.ndarray, heat: np.ndarray) -> np.ndarray:
    """A map (h, w) in [0, 1] laid over a picture (h, w, 3): the picture in grey, the map in red."""
    return blended(picture, [Layer(heat, MORE)])


def blended(picture: np.ndarray, layers: Sequence[Layer]) -> np.ndarray:
    """A picture (h, w, 3) in grey with coloured layers over it, the last on top."""
    grey = np.repeat(picture.astype(np.float64).mean(axis=-1, keepdims=True) / 255, 3, axis=-1)
    out = 0.25 + 0.75 * grey  # lighter, so that colours show over black
    for layer in layers:
        alpha = 0.85 * np.sqrt(np.clip(np.nan_to_num(layer.strength), 0, 1))[..., None]
        out = out * (1 - alpha) + alpha * np.array(layer.colour)
    return np.rint(np.clip(out, 0, 1) * 255).astype(np.uint8)


def over_regions(regions: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Values (R,) at every pixel of their region, 0 elsewhere."""
    return np.append(values, 0.0)[regions]


def planes(regions: np.ndarray, weight: np.ndarray) -> list[Plane]:
    """What to draw of a map: an image whole; of a volume the axial slices that carry most of `weight` (R,), from below."""
    if regions.ndim == 2:
        return [Plane("", (slice(None), slice(None)))]
    load = np.abs(over_regions(regions, np.nan_to_num(weight))).sum(axis=(0, 1))
    depth, number = len(load), min(SLICES, len(load))
    # The heaviest slice of each of a few equal slabs, so that the slices are not all neighbours.
    cuts = np.linspace(0, depth, number + 1).astype(int)
    chosen = [low + int(np.argmax(load[low:high])) for low, high in pairwise(cuts)]
    return [Plane(f"slice {z + 1} of {depth}", (slice(None), slice(None), z)) for z in chosen]
