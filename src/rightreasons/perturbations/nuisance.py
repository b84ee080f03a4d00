"""Nuisance operators (SDI's T_nc): what an acquisition adds or changes, and the disease does not.

Each takes pixels (b, c, h, w) in [0, 1] before normalisation and one seed per image. `severity` runs from 0, which gives the
pixels back to the bit, to 1; the default is the operator's reference severity s_ref, where calibration starts. Effects grow with
severity; what is drawn (a hue, a corner, a direction) depends on the seed alone.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from rightreasons.perturbations._fields import aperture, blurred, checked, each, kept, mean_over, normal, places, sampled, uniform

BLOCK = 8
BINS = 256
GRID = 6


# ---- the border ----------------------------------------------------------------------------------------------------------


def border(pixels: Tensor, seeds: np.ndarray, *, severity: float = 0.3) -> Tensor:
    """A dark border is inserted: all beyond 1 - 0.4 severity of the field's outline takes a dark level drawn from [0, 0.1].

    Round for round fields, a frame for rectangular ones and full frames; what lies farther in is untouched. s_ref 0.3.
    """
    if not checked(pixels, severity):
        return pixels
    seen = aperture(pixels)
    level = 0.1 * uniform(seeds, 1, 1, pixels.device)
    return kept(torch.where((seen.distance > 1 - 0.4 * severity)[:, None], each(level).to(pixels.dtype), pixels), pixels)


def unborder(pixels: Tensor, seeds: np.ndarray, *, severity: float = 0.5) -> Tensor:
    """The surround of the field is filled, by the share `severity`, with the mean colour of the field's outermost fifth.

    Nothing changes inside the field, nor in images that fill the frame. s_ref 0.5.
    """
    if not checked(pixels, severity):
        return pixels
    seen = aperture(pixels)
    rim = seen.field & (seen.distance > 0.8) & (seen.distance <= 1)
    filled = torch.lerp(pixels, each(mean_over(pixels, rim)), severity)
    return kept(torch.where(seen.field[:, None], pixels, filled), pixels)


def resize(pixels: Tensor, seeds: np.ndarray, *, severity: float = 0.3) -> Tensor:
    """The field grows or shrinks (drawn) about its centre, by a factor 1 + 0.3 severity; beyond the image its surround goes on.

    Shapes inside stay, their size changes. s_ref 0.3.
    """
    if not checked(pixels, severity):
        return pixels
    seen, (down, across) = aperture(pixels), places(pixels)
    grows = (uniform(seeds, 1, 2, pixels.device) < 0.5)[:, :, None]
    step = torch.where(grows, 1 / (1 + 0.3 * severity), 1 + 0.3 * severity)
    rows, columns = seen.centre[:, :1, None], seen.centre[:, 1:, None]
    shape = pixels[:, 0].shape
    source = [(rows + (down - rows) * step).expand(shape), (columns + (across - columns) * step).expand(shape)]
    return kept(_on_level(pixels, source[0], source[1], each(mean_over(pixels, ~seen.field))), pixels)


def pad(pixels: Tensor, seeds: np.ndarray, *, severity: float = 0.3) -> Tensor:
    """The whole image is shrunk by 1 - 0.3 severity and laid at a drawn place on a frame of a drawn grey level. s_ref 0.3."""
    if not checked(pixels, severity):
        return pixels
    drawn, (down, across) = uniform(seeds, 3, 3, pixels.device), places(pixels)
    share = 1 - 0.3 * severity
    h, w = pixels.shape[2:]
    top = drawn[:, 0, None, None] * (1 - share) * h
    left = drawn[:, 1, None, None] * (1 - share) * w
    shape = pixels[:, 0].shape
    source = []
    for at, first in ((down, top), (across, left)):
        source.append(((at + 0.5 - first) / share - 0.5).expand(shape))
    return kept(_on_level(pixels, source[0], source[1], each(drawn[:, 2])), pixels)


def periphery(pixels: Tensor, seeds: np.ndarray, *, severity: float = 1.0) -> Tensor:
    """What lies outside the outline of the field (surround, tags on it) is darkened by the share `severity`. s_ref 1.

    Nothing changes inside the outline, nor in images that fill the frame.
    """
    if not checked(pixels, severity):
        return pixels
    outside = aperture(pixels).distance > 1.02
    return kept(torch.where(outside[:, None], pixels * (1 - severity), pixels), pixels)


def tags(pixels: Tensor, seeds: np.ndarray, *, severity: float = 0.7) -> Tensor:
    """A row of bright signs (laterality, a date) is laid over a drawn corner with the opacity `severity`.

    0.14 of the side high and 0.34 wide, 0.02 from the edges; nothing else changes. s_ref 0.7.
    """
    if not checked(pixels, severity):
        return pixels
    h, w = pixels.shape[2:]
    drawn = uniform(seeds, 2 + 5 * 12, 4, pixels.device)
    down, across = places(pixels)
    rows = torch.where((drawn[:, 0] < 0.5)[:, None, None], down, h - 1 - down) / h - 0.02
    columns = torch.where((drawn[:, 1] < 0.5)[:, None, None], across, w - 1 - across) / w - 0.02
    i, j = (rows / 0.14 * 5).floor().long(), (columns / 0.34 * 12).floor().long()
    inside = (rows >= 0) & (i < 5) & (columns >= 0) & (j < 12)
    cell = (i.clamp(0, 4) * 12 + j.clamp(0, 11)).expand(pixels[:, 0].shape)
    ink = drawn[:, 2:].gather(1, cell.flatten(1)).view(cell.shape) < 0.6
    is_ink = (inside & ink & (j % 3 != 2))[:, None]  # gaps between the signs
    return kept(torch.where(is_ink, torch.lerp(pixels, torch.full_like(pixels, 0.95), severity), pixels), pixels)


# ---- colour and light ----------------------------------------------------------------------------------------------------


def channels(pixels: Tensor, seeds: np.ndarray, *, severity: float = 0.5) -> Tensor:
    """Each channel is multiplied by 1 + 0.4 severity u, u drawn from [-1, 1]; black stays black. s_ref 0.5."""
    if not checked(pixels, severity):
        return pixels
    gain = 1 + 0.4 * severity * (2 * uniform(seeds, pixels.shape[1], 5, pixels.device) - 1)
    return kept(pixels * each(gain), pixels)


def cast(pixels: Tensor, seeds: np.ndarray, *, severity: float = 0.5) -> Tensor:
    """A cast of a drawn hue: channel gains 1 + 0.35 severity cos(hue - channel), of mean 1; grey images stay. s_ref 0.5."""
    if not checked(pixels, severity) or pixels.shape[1] == 1:
        return pixels
    c = pixels.shape[1]
    turn = uniform(seeds, 1, 6, pixels.device) - torch.arange(c, device=pixels.device) / c
    return kept(pixels * each(1 + 0.35 * severity * torch.cos(2 * math.pi * turn)), pixels)


def illumination(pixels: Tensor, seeds: np.ndarray, *, severity: float = 0.5) -> Tensor:
    """Light from a drawn side: a gain that runs from 1 - 0.6 severity to 1 + 0.6 severity across the image. s_ref 0.5."""
    if not checked(pixels, severity):
        return pixels
    angle = 2 * math.pi * uniform(seeds, 1, 7, pixels.device)[:, :, None]
    down, across = places(pixels)
    h, w = pixels.shape[2:]
    slope = torch.cos(angle) * (2 * across + 1 - w) / w + torch.sin(angle) * (2 * down + 1 - h) / h
    return kept(pixels * (1 + 0.6 * severity * slope / math.sqrt(2))[:, None], pixels)


def flatfield(pixels: Tensor, seeds: np.ndarray, *, severity: float = 1.0) -> Tensor:
    """Illumination is evened out: the field's brightness in a coarse grid of 6 x 6 goes, by the share `severity`, to its mean.

    A gain of 0.5 to 2, the same for all channels, so that colours and fine structure stay. Nothing changes outside the field.
    s_ref 1.
    """
    if not checked(pixels, severity):
        return pixels
    field = aperture(pixels).field
    weight = field[:, None].to(pixels.dtype)
    light = (pixels.mean(1, keepdim=True) * weight).clamp(min=1e-3)
    share = F.adaptive_avg_pool2d(weight, GRID)
    mean = each((light * weight).sum((1, 2, 3)) / weight.sum((1, 2, 3)).clamp(min=1))
    coarse = torch.where(share > 0.05, F.adaptive_avg_pool2d(light * weight, GRID) / share.clamp(min=1e-6), mean)
    smooth = F.interpolate(coarse, size=pixels.shape[2:], mode="bilinear", align_corners=False)
    gain = (mean / smooth.clamp(min=1e-3)).clamp(0.5, 2) ** severity
    return kept(torch.where(field[:, None], pixels * gain, pixels), pixels)


def histogram(pixels: Tensor, seeds: np.ndarray, *, severity: float = 0.5, mean: float = 0.45, sd: float = 0.18) -> Tensor:
    """The values of each channel inside the field are matched to a reference, blended in by the share `severity`.

    The reference are the quantiles of a normal distribution, the same for all channels: a cast and a camera's curve go, the order
    of values in a channel stays. Nothing changes outside the field. s_ref 0.5.

    Parameters
    ----------
    mean, sd : of the reference
    """
    if not checked(pixels, severity):
        return pixels
    field = aperture(pixels).field
    b, c = pixels.shape[:2]
    at = (pixels * (BINS - 1)).flatten(2)
    low = at.floor().clamp(0, BINS - 2).long()
    part = at - low
    weight = field.flatten(1)[:, None].expand(b, c, -1).to(pixels.dtype)
    count = torch.zeros(b, c, BINS, device=pixels.device, dtype=pixels.dtype)
    count.scatter_add_(2, low, weight * (1 - part)).scatter_add_(2, low + 1, weight * part)
    total = count.sum(2, keepdim=True).clamp(min=1)
    rank = ((count.cumsum(2) - count / 2) / total).clamp(1e-3, 1 - 1e-3)
    wanted = (mean + sd * torch.special.ndtri(rank)).clamp(0, 1)
    matched = torch.lerp(wanted.gather(2, low), wanted.gather(2, low + 1), part).view_as(pixels)
    return kept(torch.where(field[:, None], torch.lerp(pixels, matched, severity), pixels), pixels)


# ---- the device ----------------------------------------------------------------------------------------------------------


def blur(pixels: Tensor, seeds: np.ndarray, *, severity: float = 0.3) -> Tensor:
    """The lens: Gaussian blur of standard deviation 0.03 severity of the shorter side. s_ref 0.3."""
    if not checked(pixels, severity):
        return pixels
    return kept(blurred(pixels, max(1e-3, 0.03 * severity * min(pixels.shape[2:]))), pixels)


def grain(pixels: Tensor, seeds: np.ndarray, *, severity: float = 0.3) -> Tensor:
    """The sensor: Gaussian noise of standard deviation 0.15 severity on every value. s_ref 0.3."""
    if not checked(pixels, severity):
        return pixels
    return kept(pixels + 0.15 * severity * normal(seeds, pixels.shape[1:], 8, pixels.device), pixels)


def jpeg(pixels: Tensor, seeds: np.ndarray, *, severity: float = 0.5) -> Tensor:
    """The file: JPEG's 8 x 8 cosine coefficients rounded as at quality 100 - 90 severity, chroma at full size. s_ref 0.5."""
    if not checked(pixels, severity):
        return pixels
    h, w = pixels.shape[2:]
    quality = 100 - 90 * severity
    scale = (5000 / quality if quality < 50 else 200 - 2 * quality) / 100
    matrix, to_colour = _cosines(pixels.device), _colours(pixels.device)
    values = 255 * pixels.float() - 128
    is_colour = pixels.shape[1] == 3
    if is_colour:
        values = torch.einsum("kc,bchw->bkhw", to_colour, values)
    wide = F.pad(values.round(), (0, -w % BLOCK, 0, -h % BLOCK), mode="replicate")
    blocks = wide.unfold(2, BLOCK, BLOCK).unfold(3, BLOCK, BLOCK)
    table = torch.stack([_table(LUMINANCE if k == 0 or not is_colour else CHROMINANCE, scale) for k in range(pixels.shape[1])])
    step = table.to(pixels.device)[:, None, None]
    quantised = torch.round(matrix @ blocks @ matrix.T / step) * step
    back = (matrix.T @ quantised @ matrix).transpose(3, 4).reshape(wide.shape)[:, :, :h, :w]
    if is_colour:
        back = torch.einsum("kc,bchw->bkhw", torch.linalg.inv(to_colour), back)
    return kept((back + 128) / 255, pixels)


# ---- what the operators use ----------------------------------------------------------------------------------------------

LUMINANCE = (
    16, 11, 10, 16, 24, 40, 51, 61, 12, 12, 14, 19, 26, 58, 60, 55,
    14, 13, 16, 24, 40, 57, 69, 56, 14, 17, 22, 29, 51, 87, 80, 62,
    18, 22, 37, 56, 68, 109, 103, 77, 24, 35, 55, 64, 81, 104, 113, 92,
    49, 64, 78, 87, 103, 121, 120, 101, 72, 92, 95, 98, 112, 100, 103, 99,
)  # fmt: skip
CHROMINANCE = (
    17, 18, 24, 47, 99, 99, 99, 99, 18, 21, 26, 66, 99, 99, 99, 99,
    24, 26, 56, 99, 99, 99, 99, 99, 47, 66, 99, 99, 99, 99, 99, 99,
    99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99,
    99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99,
)  # fmt: skip
"""The example tables of the JPEG standard (ITU-T T.81, annex K), which common encoders scale by quality."""


def _table(values: tuple[int, ...], scale: float) -> Tensor:
    return (torch.tensor(values, dtype=torch.float32) * scale).round().clamp(1, 255).view(BLOCK, BLOCK)


def _cosines(device: torch.device) -> Tensor:
    """(8, 8) orthonormal cosine transform."""
    k = torch.arange(BLOCK, device=device, dtype=torch.float32)
    matrix = torch.cos(math.pi * (2 * k[None] + 1) * k[:, None] / (2 * BLOCK)) * math.sqrt(2 / BLOCK)
    matrix[0] /= math.sqrt(2)
    return matrix


def _colours(device: torch.device) -> Tensor:
    """(3, 3) RGB to luminance and two colour differences."""
    return torch.tensor(
        [[0.299, 0.587, 0.114], [-0.168736, -0.331264, 0.5], [0.5, -0.418688, -0.081312]], device=device, dtype=torch.float32
    )


def _on_level(pixels: Tensor, down: Tensor, across: Tensor, level: Tensor) -> Tensor:
    """Pixels read at other places (b, h, w), with a level (b, c or 1, 1, 1) where these lie beyond the image."""
    h, w = pixels.shape[2:]
    inside = (down >= -0.5) & (down <= h - 0.5) & (across >= -0.5) & (across <= w - 0.5)
    return torch.where(inside[:, None], sampled(pixels, down, across), level.to(pixels.dtype))
