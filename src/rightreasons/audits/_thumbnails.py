"""Small pictures of a cohort's rows, for galleries."""

from __future__ import annotations

import numpy as np

from rightreasons.data import images
from rightreasons.data.cohort import Cohort
from rightreasons.errors import ImageError

PIXELS = 96  # height and width


def thumbnails(cohort: Cohort, rows: np.ndarray) -> tuple[np.ndarray, str]:
    """The images of these rows, (k, h, w, 3) bytes; and why there are none."""
    none = np.zeros((0, PIXELS, PIXELS, 3), np.uint8)
    if not cohort.has_images:
        return none, "the cohort has no images"
    geometry = images.Geometry(size=(PIXELS, PIXELS), channels=3, mode="border")
    shown = []
    try:
        for row in rows:
            shown.append(_bytes(images.load(cohort.image[row], geometry, root=cohort.root)))
    except ImageError as error:
        return none, str(error)
    if not shown:
        return none, ""
    return np.stack(shown), ""


def _bytes(pixels: np.ndarray) -> np.ndarray:
    if pixels.dtype == np.uint8:
        return pixels
    return np.round(np.clip(pixels, 0, 1) * 255).astype(np.uint8)
