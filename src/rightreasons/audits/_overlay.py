"""Pictures of images as a model saw them, with a map laid over them and a region outlined: for the galleries of audits."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rightreasons.data import images
from rightreasons.data.cohort import Cohort
from rightreasons.errors import ImageError
from rightreasons.evidence import Evidence

SIDE = 128
WARM, COLD, OUTLINE = np.array([255, 60, 0]), np.array([40, 80, 255]), np.array([0, 230, 60])
STRONGEST = 0.75  # opacity of the largest value
NONE = np.zeros((0, 1, 1, 3), np.uint8)


def choose(score: np.ndarray, number: int) -> np.ndarray:
    """Rows to show: the highest scores, and as many again spread over the others, so that low ones are seen too."""
    order = np.flatnonzero(~np.isnan(score))
    order = order[np.argsort(-score[order], kind="stable")]
    if len(order) <= number:
        return order
    first = order[: (number + 1) // 2]
    rest = order[len(first) :]
    spread = np.unique(np.linspace(0, len(rest) - 1, number - len(first)).round().astype(np.int64))
    return np.concatenate([first, rest[spread]])


def draw(
    evidence: Evidence, cohort: Cohort, rows: np.ndarray, maps: np.ndarray, inside: np.ndarray, grid: tuple[int, ...]
) -> tuple[np.ndarray, str]:
    """(k, h, w, 3) pictures of the rows with their maps (n, T) and regions (n, T) over a grid; or none, and why."""
    if not cohort.has_images:
        return NONE, "the cohort has no images"
    if len(grid) != 2:
        return NONE, "the images are volumes"
    if not len(rows):
        return NONE, "no image has a defined score"
    geometry = _geometry(evidence, grid)
    pictures = []
    for r in rows:
        try:
            pixels = images.load(cohort.image[r], geometry, root=cohort.root)
        except ImageError as error:
            return NONE, str(error)
        pictures.append(overlay(pixels, maps[r].reshape(grid), inside[r].reshape(grid)))
    return np.stack(pictures), ""


def overlay(pixels: np.ndarray, values: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """One image (h, w, 3) with a map (gh, gw) in colour, warm where positive and blue where negative, and a region outlined."""
    if pixels.dtype == np.uint8:
        base = pixels.astype(np.float64)
    else:
        base = np.clip(pixels, 0, 1) * 255.0
    z, size = np.nan_to_num(values), base.shape[:2]
    largest = np.abs(z).max()
    if largest > 0:
        share = np.abs(z) / largest
    else:
        share = np.zeros_like(z)
    strength = _enlarged(share, size)[..., None] * STRONGEST
    colour = np.where(_enlarged(z, size)[..., None] >= 0, WARM, COLD)
    shown = base * (1 - strength) + colour * strength
    region = _enlarged(inside, size)
    shown[region & ~_interior(region)] = OUTLINE
    return np.round(shown).astype(np.uint8)


def _interior(region: np.ndarray) -> np.ndarray:
    """Pixels whose four neighbours lie in the region; the frame of the image is outside."""
    padded = np.pad(region, 1, constant_values=False)
    interior: np.ndarray = padded[:-2, 1:-1] & padded[2:, 1:-1] & padded[1:-1, :-2] & padded[1:-1, 2:]
    return interior


def _enlarged(cells: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Nearest cell of every pixel."""
    rows, columns = (np.arange(size) * count // size for size, count in zip(shape, cells.shape, strict=True))
    return cells[np.ix_(rows, columns)]


def _geometry(evidence: Evidence, grid: tuple[int, ...]) -> images.Geometry:
    """The model's own crop where its card knows it, at the size of a picture; otherwise the largest centred square."""
    longest = max(grid)
    size = tuple(max(1, round(SIDE * g / longest)) for g in grid)
    on_card = evidence.card.settings.get("geometry")
    if isinstance(on_card, Mapping):
        return images.Geometry(**{**on_card, "size": size, "channels": 3, "fill": ()})
    return images.Geometry(size=size, channels=3)
