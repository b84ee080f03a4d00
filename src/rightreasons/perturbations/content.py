"""Content operators (SDI's T_c): what changes the evidence of disease inside the field of view and leaves the acquisition alone.

As in `nuisance`: pixels (b, c, h, w) in [0, 1], one seed per image, `severity` from 0 (the pixels to the bit) to 1, the default
being s_ref. Calibration sets it so that pixels change as much as under the nuisance operator that they are compared with. The
outermost fifth of the field, where rims, frames and tags are, stays as it is.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from rightreasons.errors import SettingError
from rightreasons.families import suggest
from rightreasons.perturbations._fields import (
    Aperture,
    aperture,
    blurred,
    checked,
    each,
    kept,
    mean_over,
    places,
    sampled,
    uniform,
)

REGIONS = 8
CELLS = 12
KNOTS = 7
INNER = 0.8
FILLS = ("zero", "mean")


def contrast(pixels: Tensor, seeds: np.ndarray, *, severity: float = 0.5) -> Tensor:
    """Local contrast goes up (times 1 + 3 severity) or down (times 1 - severity), as drawn, in eight soft regions of the field.

    s_ref 0.5.
    """
    if not checked(pixels, severity):
        return pixels
    seen, (down, across) = aperture(pixels), places(pixels)
    drawn = uniform(seeds, (REGIONS, 4), 11, pixels.device)
    radius, angle = INNER * drawn[..., 0].sqrt(), 2 * math.pi * drawn[..., 1]
    reach = (0.2 + 0.15 * drawn[..., 2]) * seen.half.amin(1, keepdim=True)
    row = (seen.centre[:, 0, None] + torch.sin(angle) * radius * seen.half[:, 0, None])[..., None, None]
    column = (seen.centre[:, 1, None] + torch.cos(angle) * radius * seen.half[:, 1, None])[..., None, None]
    soft = torch.exp(-((down[:, None] - row) ** 2 + (across[:, None] - column) ** 2) / (2 * reach[..., None, None] ** 2))
    factor = torch.where(drawn[..., 3] < 0.5, math.log1p(3 * severity), math.log1p(-min(severity, 0.98)))
    exponent = (soft * factor[..., None, None]).sum(1)
    gain = exponent.clamp(math.log1p(-min(severity, 0.98)), math.log1p(3 * severity)).exp()
    base = blurred(pixels, 0.06 * min(pixels.shape[2:]))
    changed = base + gain[:, None] * (pixels - base)
    return kept(_inside(seen, changed, pixels), pixels)


def elastic(pixels: Tensor, seeds: np.ndarray, *, severity: float = 0.5) -> Tensor:
    """Shapes inside the field are bent: smoothly moved by up to 0.2 severity of its half width, and not at its rim. s_ref 0.5."""
    if not checked(pixels, severity):
        return pixels
    seen, (down, across) = aperture(pixels), places(pixels)
    coarse = 2 * uniform(seeds, (2, KNOTS, KNOTS), 12, pixels.device) - 1
    field = F.interpolate(coarse, size=pixels.shape[2:], mode="bicubic", align_corners=True).clamp(-1, 1)
    still = (1 - (seen.distance / INNER) ** 4).clamp(min=0)
    reach = 0.2 * severity * seen.half.amin(1)[:, None, None] * still
    changed = sampled(pixels, down + field[:, 0] * reach, across + field[:, 1] * reach)
    return kept(_inside(seen, changed, pixels), pixels)


def patches(pixels: Tensor, seeds: np.ndarray, *, severity: float = 0.4, fill: str = "zero") -> Tensor:
    """Small patches, a twelfth of the side, a drawn share of 0.8 severity of them, drop out. s_ref 0.4.

    Parameters
    ----------
    fill : "zero" (spatial dropout) or "mean", the field's mean colour
    """
    if fill not in FILLS:
        raise SettingError(f"no fill {fill!r}; {suggest(fill, FILLS)}")
    if not checked(pixels, severity):
        return pixels
    seen = aperture(pixels)
    gone = (uniform(seeds, (CELLS, CELLS), 13, pixels.device) < 0.8 * severity)[:, None].float()
    where = F.interpolate(gone, size=pixels.shape[2:], mode="nearest") > 0
    if fill == "mean":
        level = each(mean_over(pixels, seen.field))
    else:
        level = torch.zeros_like(pixels)
    changed = torch.where(where, level, pixels)
    return kept(_inside(seen, changed, pixels), pixels)


def _inside(seen: Aperture, changed: Tensor, pixels: Tensor) -> Tensor:
    """The change in the inner part of the field alone."""
    return torch.where((seen.field & (seen.distance <= INNER))[:, None], changed, pixels)
