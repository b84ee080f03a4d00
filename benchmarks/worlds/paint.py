"""Cues of acquisition that can be painted on any image: what a camera, a file format or an operator leaves behind.

Every painter takes images (n, h, w, 3) in [0, 1], the cue's look (n,) from 0 (nothing) to 1, and one generator for whatever is
random in a row; an image and its twin get generators of one seed, so that nothing but the look differs between them.
"""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
from PIL import Image
from scipy import ndimage

Painter = Callable[[np.ndarray, np.ndarray, np.random.Generator], np.ndarray]

BLUR = 1.5 / 96  # standard deviation at look 1, in lengths of the image's side
TICKS = 12  # of the ruler
RED = np.array([0.85, 0.15, 0.15], np.float32)


def vignette(images: np.ndarray, look: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Darker towards the corners."""
    row, column = _coordinates(images)
    return images * (1 - 0.45 * _column(look) * (row**2 + column**2)[None, ..., None])


def jpeg(images: np.ndarray, look: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Stored once at a quality from 95 down to 10."""
    stored = images.copy()
    for k in np.flatnonzero(look > 0):
        file = io.BytesIO()
        Image.fromarray(_eight_bit(images[k])).save(file, "JPEG", quality=round(95 - 85 * float(look[k])))
        stored[k] = np.asarray(Image.open(file).convert("RGB"), np.float32) / 255
    return stored


def temperature(images: np.ndarray, look: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A warmer white balance."""
    return images * (1 + _column(look) * np.array([0.15, 0.0, -0.2], np.float32))


def noise(images: np.ndarray, look: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Grain of the sensor."""
    return images + 0.08 * _column(look) * rng.standard_normal(images.shape, np.float32)


def corner(images: np.ndarray, look: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A dark corner, as of a finger or a holder."""
    row, column = _coordinates(images)
    inside = (row + column > 1.25)[None, ..., None]
    return images * (1 - 0.85 * _column(look) * inside)


def ruler(images: np.ndarray, look: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A scale along the lower edge."""
    side = images.shape[1]
    ticks = (np.arange(side) * 2 * TICKS // side) % 2 == 0
    inside = np.zeros(images.shape[1:3], bool)
    inside[-max(2, side // 16) :] = ticks
    return images + _column(look) * inside[None, ..., None] * (0.9 - images)


def glare(images: np.ndarray, look: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A reflection, at another place in every image."""
    row, column = _coordinates(images)
    centre = rng.uniform(-0.6, 0.6, (2, len(images), 1, 1)).astype(np.float32)
    spot = np.exp(-((row - centre[0]) ** 2 + (column - centre[1]) ** 2) / (2 * 0.12**2))
    return images + 0.7 * _column(look) * spot[..., None] * (1 - images)


def blur(images: np.ndarray, look: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Out of focus."""
    sigma = BLUR * images.shape[1]
    soft = ndimage.gaussian_filter(images, (0, sigma, sigma, 0))
    return images + _column(look) * (soft - images)


def tag(images: np.ndarray, look: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A red square in a corner."""
    side = max(3, images.shape[1] // 8)
    inside = np.zeros(images.shape[1:3], bool)
    inside[:side, :side] = True
    return images + _column(look) * inside[None, ..., None] * (RED - images)


PAINTERS: dict[str, Painter] = {
    "vignette": vignette, "jpeg": jpeg, "temperature": temperature, "noise": noise, "corner": corner, "ruler": ruler,
    "glare": glare, "blur": blur, "tag": tag,
}  # fmt: skip


def painted(images: np.ndarray, cue: str, look: np.ndarray, seed: int) -> np.ndarray:
    """Images (n, h, w, 3), uint8 in and out, with a cue of that look."""
    shown = PAINTERS[cue](images.astype(np.float32) / 255, look.astype(np.float32), np.random.default_rng(seed))
    return _eight_bit(shown)


def _eight_bit(images: np.ndarray) -> np.ndarray:
    return np.rint(255 * np.clip(images, 0, 1)).astype(np.uint8)


def _column(look: np.ndarray) -> np.ndarray:
    return look[:, None, None, None].astype(np.float32)


def _coordinates(images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(h, w) each, from -1 to 1."""
    height, width = images.shape[1:3]
    row, column = np.mgrid[:height, :width].astype(np.float32)
    return 2 * (row + 0.5) / height - 1, 2 * (column + 0.5) / width - 1
