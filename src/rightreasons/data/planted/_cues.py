"""Cues: where they are in an image and how their value is painted. Every value lies between 0 and 1 (its *look*)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from skimage.color import hsv2rgb

from rightreasons.errors import SettingError
from rightreasons.families import suggest

KINDS = ("tag", "patch", "ring", "texture", "cast", "frequency", "slant", "none")
DEFAULT_SIZE = {"tag": 5 / 32, "patch": 8 / 32, "ring": 2 / 32}  # shares of the image's side
PLACES = {"top-left": (0, 0), "top-right": (0, 1), "bottom-left": (1, 0), "bottom-right": (1, 1), "centre": (0.5, 0.5)}
PLACED = ("tag", "patch")

RED, GREEN = np.array([0.85, 0.15, 0.15]), np.array([0.15, 0.70, 0.20])
AMPLITUDE = {"texture": 0.12, "frequency": 0.06, "cast": 0.15}  # at strength 1: sd of the pattern, gain of a channel
STRIPES = 4.0  # pixels in a period of the patch and of the background's texture, at 32 pixels a side
LEAN = 0.25  # pixels that a row is moved for every row that it lies above the middle, at strength 1
BAND = (0.06, 0.30)  # cycles per pixel of the diffuse pattern at look 0 and 1, at 32 pixels a side


@dataclass(frozen=True)
class Cue:
    """A cue as asked for, checked.

    Parameters
    ----------
    size : side of a tag or patch, width of a ring, in pixels; 0 for cues that fill the image
    place : corner, "centre", "random", or (row, column) of the top left pixel; None for cues that fill the image
    strength : contrast, above 0 up to 1
    noise : standard deviation of pixel noise on a tag, patch or ring
    values : number of values; 0 is continuous
    """

    kind: str
    size: int
    place: str | tuple[int, int] | None
    strength: float
    noise: float
    values: int

    @classmethod
    def of(
        cls,
        kind: str,
        *,
        pixels: int,
        size: int | None,
        place: str | Sequence[int] | None,
        strength: float,
        noise: float,
        values: int,
    ) -> Cue:
        if kind not in KINDS:
            raise SettingError(f"no cue named {kind!r}; {suggest(kind, KINDS)}")
        if size is not None and kind not in DEFAULT_SIZE:
            raise SettingError(f"a {kind} cue has no size (size={size}): {', '.join(DEFAULT_SIZE)} have")
        if place is not None and kind not in PLACED:
            raise SettingError(f"a {kind} cue has no place (place={place!r}): {' and '.join(PLACED)} have")
        if not 0 < strength <= 1 or noise < 0:
            raise SettingError(
                f"strength={strength}, cue_noise={noise}: strength above 0 up to 1 and noise of at least 0 expected"
            )
        if size is None:
            side = round(DEFAULT_SIZE.get(kind, 0) * pixels)
        else:
            side = size
        if kind == "ring":
            most = (pixels - 1) // 2
        else:
            most = pixels
        if kind in DEFAULT_SIZE and not 1 <= side <= most:
            raise SettingError(f"a {kind} of {side} pixels does not fit an image of {pixels}: give size= from 1 to {most}")
        where = None
        if kind in PLACED:
            where = _where("top-left" if place is None else place, side, pixels)
        return cls(kind, side, where, float(strength), float(noise), values)


def locate(cue: Cue, objects: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(n, h, w) which pixels the cue may change; the same for every value of the cue.

    Parameters
    ----------
    objects : (n, h, w) bool; a random place avoids them where it can, a background texture leaves them alone
    """
    height, width = objects.shape[1:]
    if cue.kind == "none":
        return np.zeros(objects.shape, bool)
    if cue.kind in ("cast", "frequency", "slant"):
        return np.ones(objects.shape, bool)
    if cue.kind == "texture":
        return ~objects
    rows, columns = np.arange(height), np.arange(width)
    if cue.kind == "ring":
        edge = []
        for at, length in ((rows, height), (columns, width)):
            edge.append((at < cue.size) | (at >= length - cue.size))
        return np.broadcast_to(edge[0][:, None] | edge[1], objects.shape).copy()
    top, left = _corner(cue, objects, rng)
    inside_rows = (rows >= top[:, None]) & (rows < top[:, None] + cue.size)
    inside_columns = (columns >= left[:, None]) & (columns < left[:, None] + cue.size)
    return inside_rows[:, :, None] & inside_columns[:, None, :]


def paint(cue: Cue, images: np.ndarray, look: np.ndarray, mask: np.ndarray, grain: np.ndarray) -> np.ndarray:
    """Images (n, h, w, 3) in [0, 1] with the cue, changed nowhere but in its mask.

    Parameters
    ----------
    look : (n,) the cue's value from 0 to 1
    grain : (n, h, w) white noise of the row, the same for a row's every value
    """
    if cue.kind == "none":
        return images
    if cue.kind == "slant":
        return slanted(cue, images, look)
    if cue.kind == "cast":
        gain = 1 + cue.strength * AMPLITUDE["cast"] * _warmth(look, cue.values)
        painted = images * gain[:, None, None, :].astype(images.dtype)
    elif cue.kind in ("texture", "frequency"):
        painted = images + cue.strength * AMPLITUDE[cue.kind] * _pattern(cue, look, grain)[..., None].astype(images.dtype)
    else:
        if cue.kind == "patch":
            ink = _stripes(look, cue.values, images.shape[1:3])
        else:
            ink = _colour(look, cue.values)[:, None, None, :]
        painted = images + cue.strength * (ink.astype(images.dtype) - images) + cue.noise * grain[..., None]
    return np.where(mask[..., None], np.clip(painted, 0, 1), images)


def slanted(cue: Cue, images: np.ndarray, look: np.ndarray) -> np.ndarray:
    """Images (n, h, w, ...) that lean to the left at look 0 and to the right at 1.

    Rows are moved by whole pixels, so that no interpolation tells the value; what leaves at one side enters at the other.
    """
    height, width = images.shape[1:3]
    above = (height - 1) / 2 - np.arange(height)
    moved = np.rint(cue.strength * LEAN * (2 * look[:, None] - 1) * above).astype(np.int64)
    columns = (np.arange(width) - moved[..., None]) % width
    return images[np.arange(len(images))[:, None, None], np.arange(height)[:, None], columns]


def _where(place: str | Sequence[int], side: int, pixels: int) -> str | tuple[int, int]:
    if isinstance(place, str):
        if place != "random" and place not in PLACES:
            raise SettingError(f"no place named {place!r}; {suggest(place, [*PLACES, 'random'])}")
        return place
    corner = tuple(map(int, place))
    if len(corner) != 2 or any(not 0 <= p <= pixels - side for p in corner):
        raise SettingError(f"place={tuple(place)}: a cue of {side} pixels begins at (row, column) from 0 to {pixels - side}")
    return corner[0], corner[1]


def _corner(cue: Cue, objects: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    n, height, width = objects.shape
    if cue.place == "random":
        return _free_place(objects, cue.size, rng)
    if isinstance(cue.place, tuple):
        top, left = cue.place
    else:
        down, right = PLACES[str(cue.place)]
        top, left = int(down * (height - cue.size)), int(right * (width - cue.size))
    return np.full(n, top), np.full(n, left)


def _free_place(objects: np.ndarray, side: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A uniform place among those that cover least of the object."""
    total = np.pad(objects.astype(np.int32).cumsum(1).cumsum(2), ((0, 0), (1, 0), (1, 0)))
    covered = total[:, side:, side:] - total[:, :-side, side:] - total[:, side:, :-side] + total[:, :-side, :-side]
    score = np.where(covered == covered.min(axis=(1, 2), keepdims=True), rng.random(covered.shape), -1)
    top, left = np.unravel_index(score.reshape(len(score), -1).argmax(axis=1), covered.shape[1:])
    return top, left


def _turn(look: np.ndarray, values: int) -> np.ndarray:
    """Looks to shares of a full turn that no two values share; two values (and the ends of a scale) lie half a turn apart."""
    k = values or 2
    return look * (k - 1) / k


def _colour(look: np.ndarray, values: int) -> np.ndarray:
    """(n, 3) red to green; around the wheel for more than two values."""
    if values > 2:
        return hsv2rgb(np.stack([_turn(look, values), np.full(len(look), 0.85), np.full(len(look), 0.8)], axis=-1))
    return RED + look[:, None] * (GREEN - RED)


def _warmth(look: np.ndarray, values: int) -> np.ndarray:
    """(n, 3) channel gains in [-1, 1] whose sum is 0: warm to cool, or around the wheel."""
    if values > 2:
        return np.cos(2 * np.pi * (_turn(look, values)[:, None] - np.arange(3) / 3))
    return (1 - 2 * look[:, None]) * np.array([1.0, 0.0, -1.0])


def _stripes(look: np.ndarray, values: int, shape: Sequence[int]) -> np.ndarray:
    """(n, h, w, 1) black and white stripes, upright at look 0 and turned by it."""
    row, column = np.mgrid[: shape[0], : shape[1]] + 0.5
    angle = np.pi * _turn(look, values)[:, None, None]
    wave = np.sin(2 * np.pi * (column * np.cos(angle) + row * np.sin(angle)) / (STRIPES * shape[0] / 32))
    return np.where(wave > 0, 0.9, 0.1)[..., None]


def _pattern(cue: Cue, look: np.ndarray, grain: np.ndarray) -> np.ndarray:
    """(n, h, w) noise of unit variance whose direction (texture) or frequency band (diffuse) is the cue's value."""
    height, width = grain.shape[1:]
    down = np.fft.fftfreq(height)[:, None] * height / 32
    across = np.fft.rfftfreq(width)[None, :] * height / 32
    at = _turn(look, cue.values)[:, None, None]
    if cue.kind == "texture":
        distance = []
        for sign in (1, -1):
            distance.append(
                (across - np.cos(np.pi * at) * sign / STRIPES) ** 2 + (down - np.sin(np.pi * at) * sign / STRIPES) ** 2
            )
        keep = np.exp(-np.minimum(*distance) / (2 * 0.04**2))
    else:
        radius = np.maximum(np.hypot(across, down), 1e-3)
        centre = BAND[0] * (BAND[1] / BAND[0]) ** look[:, None, None]
        keep = np.exp(-(np.log(radius / centre) ** 2) / (2 * 0.25**2))
    keep[:, 0, 0] = 0  # no change of the mean
    pattern = np.fft.irfft2(np.fft.rfft2(grain) * keep, s=(height, width))
    return pattern / pattern.std(axis=(1, 2), keepdims=True)
