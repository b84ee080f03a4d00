"""What the operators on pixels share: numbers drawn from a seed on any device, the field of view, and blurring."""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from rightreasons.data.facts import DARK
from rightreasons.errors import SettingError

CHORD = 0.25
"""A row or column crosses the field where it has at least this share of the widest one's pixels: a tag in a corner does not."""
ROUND = 0.92
"""A field that fills less of its bounding box than this is round (an ellipse fills 0.79 of its own)."""
_LOW = 0xFFFFFFFF


# ---- numbers from seeds --------------------------------------------------------------------------------------------------


def uniform(seeds: np.ndarray | Tensor, count: int | Sequence[int], stream: int, device: torch.device | str = "cpu") -> Tensor:
    """(b, *count) float32 in [0, 1): a function of seed, position and stream alone, so neither batch nor device matters."""
    shape = _shape(count)
    if isinstance(seeds, Tensor):
        as_bits = seeds
    else:
        as_bits = torch.from_numpy(np.asarray(seeds, dtype=np.uint64).view(np.int64))
    key = as_bits.to(device)
    first = _mixed((key & _LOW) ^ _mixed(torch.full_like(key, stream + 1)))
    second = _mixed(((key >> 32) & _LOW) ^ first)
    place = torch.arange(math.prod(shape), device=device)
    bits = _mixed(_mixed(place[None] ^ first[:, None]) ^ second[:, None])
    return ((bits >> 8).float() / 2**24).view(len(key), *shape)


def normal(seeds: np.ndarray | Tensor, count: int | Sequence[int], stream: int, device: torch.device | str = "cpu") -> Tensor:
    """(b, *count) standard normal numbers, by Box and Muller."""
    u = uniform(seeds, (2, *_shape(count)), stream, device)
    return (-2 * torch.log1p(-u[:, 0])).sqrt() * torch.cos(2 * math.pi * u[:, 1])


def _shape(count: int | Sequence[int]) -> tuple[int, ...]:
    if isinstance(count, int):
        return (count,)
    return tuple(count)


def _mixed(x: Tensor) -> Tensor:
    """The last step of MurmurHash3 on the lower 32 bits: every bit of the input moves every bit of the output."""
    x = x & _LOW
    x = ((x ^ (x >> 16)) * 0x85EBCA6B) & _LOW
    x = ((x ^ (x >> 13)) * 0xC2B2AE35) & _LOW
    return x ^ (x >> 16)


# ---- the field of view ---------------------------------------------------------------------------------------------------


def field_of_view(pixels: Tensor) -> Tensor:
    """(b, h, w) bool: what the dark surround does not reach; everything where an image (b, c, h, w) has no dark surround.

    The surround is the pixels as dark as the darkest of the border (within `DARK`) that connect to the border through
    their sides. The same as `facts.field_of_view`, for a batch on any device.
    """
    bright = pixels.amax(1)
    edge = torch.zeros(bright.shape[1:], dtype=torch.bool, device=pixels.device)
    edge[[0, -1]], edge[:, [0, -1]] = True, True
    darkest = bright[:, edge].amin(1)
    is_dark = darkest <= 2 * DARK
    field = torch.ones_like(bright, dtype=torch.bool)
    if bool(is_dark.any()):
        field[is_dark] = _unreached(bright[is_dark], darkest[is_dark][:, None, None], edge)
    return field


def _unreached(bright: Tensor, darkest: Tensor, edge: Tensor) -> Tensor:
    dark = bright <= darkest + DARK
    across, down = _Way(dark, 2), _Way(dark, 1)
    reached, before = dark & edge, -1
    while (size := int(reached.sum())) != before:  # a convex field takes two rounds, a maze more
        before = size
        reached = down.swept(across.swept(reached))
    return ~reached | reached.flatten(1).all(1)[:, None, None]


class _Way:
    """What can be reached along an axis, forwards and backwards, without leaving the dark (b, h, w)."""

    def __init__(self, dark: Tensor, axis: int) -> None:
        self.axis = axis
        shape = [1, 1, 1]
        shape[axis] = dark.shape[axis]
        self.place = torch.arange(dark.shape[axis], device=dark.device, dtype=torch.int16).view(shape)
        self.last_bright = self._last(~dark)

    def swept(self, reached: Tensor) -> Tensor:
        forwards, backwards = (self._last(reached) > self.last_bright).chunk(2)
        return forwards | backwards.flip(self.axis)

    def _last(self, where: Tensor) -> Tensor:
        """(2 b, h, w) the last place so far that is one of `where`, seen from either end; -1 before the first."""
        both = torch.cat([where, where.flip(self.axis)])
        return torch.where(both, self.place, -1).cummax(self.axis).values


@dataclass(frozen=True)
class Aperture:
    """The outline of the field of view: an ellipse or a rectangle.

    Attributes
    ----------
    field : (b, h, w) bool
    centre, half : (b, 2) in pixels, down and across
    distance : (b, h, w) from the centre, 1 on the outline
    is_full : (b,) whether the whole image is the field
    """

    field: Tensor
    centre: Tensor
    half: Tensor
    distance: Tensor
    is_full: Tensor


def aperture(pixels: Tensor) -> Aperture:
    """The outline of the field of view of each image, (b, c, h, w).

    The last one is kept, because operators that follow each other look at the same images.
    """
    if pixels.is_inference():  # such a tensor does not tell whether it has been changed since
        return _outline(pixels)
    for known, version, outline in tuple(_LAST):
        if known() is pixels and version == pixels._version:
            return outline
    outline = _outline(pixels)
    _LAST[:] = [(weakref.ref(pixels), pixels._version, outline)]
    return outline


_LAST: list[tuple[weakref.ref[Tensor], int, Aperture]] = []


def _outline(pixels: Tensor) -> Aperture:
    field = field_of_view(pixels)
    centres, halves, places = [], [], []
    for other in (2, 1):
        profile = field.sum(other).float()
        crossed = profile >= CHORD * profile.amax(1, keepdim=True)
        place = torch.arange(crossed.shape[1], device=pixels.device, dtype=torch.float32)
        low = torch.where(crossed, place, torch.inf).amin(1)
        high = torch.where(crossed, place, -torch.inf).amax(1)
        centres.append((low + high) / 2)
        halves.append((high - low + 1) / 2)
        places.append(place)
    centre, half = torch.stack(centres, 1), torch.stack(halves, 1)
    down = (places[0][None] - centre[:, :1]) / half[:, :1]
    across = (places[1][None] - centre[:, 1:]) / half[:, 1:]
    inside = (down.abs() <= 1)[:, :, None] & (across.abs() <= 1)[:, None, :]
    share = (field & inside).flatten(1).float().sum(1) / inside.flatten(1).float().sum(1)
    is_round = (share < ROUND)[:, None, None]
    # The chord at CHORD of the widest lies a little inside an ellipse's end.
    ellipse = (down[:, :, None] ** 2 + across[:, None, :] ** 2).sqrt() * math.sqrt(1 - CHORD**2)
    rectangle = torch.maximum(down.abs()[:, :, None], across.abs()[:, None, :])
    distance = torch.where(is_round, ellipse, rectangle)
    return Aperture(field, centre, half, distance, field.flatten(1).all(1))


# ---- pixels --------------------------------------------------------------------------------------------------------------


def checked(pixels: Tensor, severity: float) -> bool:
    """Whether there is anything to do; a batch that no operator can change is refused."""
    if not 0 <= severity <= 1:
        raise SettingError(f"severity={severity}: give a number from 0 (nothing changes) to 1")
    if pixels.ndim != 4:
        raise SettingError(f"pixels are {tuple(pixels.shape)}: these operators change images (b, c, h, w), not volumes")
    if not pixels.is_floating_point():
        raise SettingError(f"pixels are {pixels.dtype}: give floating point numbers in [0, 1]")
    return severity > 0 and len(pixels) > 0


def kept(changed: Tensor, pixels: Tensor) -> Tensor:
    """The changed pixels in the range and type of the given ones."""
    return changed.clamp(0, 1).to(pixels.dtype)


def each(values: Tensor) -> Tensor:
    """(b,) or (b, c) to what multiplies (b, c, h, w)."""
    return values.view(len(values), -1, 1, 1)


def blurred(pixels: Tensor, sigma: float) -> Tensor:
    """Gaussian blur with the border continued; `sigma` in pixels."""
    reach = max(1, min(round(3 * sigma), min(pixels.shape[2:]) - 1))
    place = torch.arange(-reach, reach + 1, device=pixels.device, dtype=pixels.dtype)
    kernel = torch.exp(-(place**2) / (2 * sigma**2))
    kernel = kernel / kernel.sum()
    c = pixels.shape[1]
    wide = F.pad(pixels, (reach, reach, reach, reach), mode="replicate")
    wide = F.conv2d(wide, kernel.view(1, 1, 1, -1).expand(c, 1, 1, -1), groups=c)
    return F.conv2d(wide, kernel.view(1, 1, -1, 1).expand(c, 1, -1, 1), groups=c)


def mean_over(pixels: Tensor, where: Tensor) -> Tensor:
    """(b, c) mean over the places (b, h, w) that count; 0 where there are none."""
    weight = where[:, None].to(pixels.dtype)
    return (pixels * weight).sum((2, 3)) / weight.sum((2, 3)).clamp(min=1)


def sampled(pixels: Tensor, down: Tensor, across: Tensor, *, beyond: str = "border") -> Tensor:
    """Pixels read at other places, (b, h, w) each, in pixels; bilinear."""
    h, w = pixels.shape[2:]
    grid = torch.stack([(2 * across + 1) / w - 1, (2 * down + 1) / h - 1], dim=3).to(pixels.dtype)
    return F.grid_sample(pixels, grid, mode="bilinear", padding_mode=beyond, align_corners=False)


def places(pixels: Tensor) -> tuple[Tensor, Tensor]:
    """(1, h, 1) and (1, 1, w): row and column of every pixel."""
    h, w = pixels.shape[2:]
    down = torch.arange(h, device=pixels.device, dtype=torch.float32)
    return down[None, :, None], torch.arange(w, device=pixels.device, dtype=torch.float32)[None, None, :]
