"""Augmentations, `f(x, generator) -> x` on a batch of normalised images: `train(augment=<name>)` finds them here by name."""

from __future__ import annotations

import torch
from torch import Tensor


def flip_and_shift(x: Tensor, generator: torch.Generator, share: float = 0.1) -> Tensor:
    """Mirror half of the images left to right and move each by up to `share` of every side, edges repeated.

    x is (b, c, *space); volumes are mirrored along their last axis.
    """
    for axis in range(2, x.ndim):
        side = x.shape[axis]
        reach = int(share * side)
        offset = torch.randint(-reach, reach + 1, (len(x), 1), generator=generator, device=x.device)
        place = (torch.arange(side, device=x.device) + offset).clamp(0, side - 1)
        if axis == x.ndim - 1:
            mirrored = torch.rand((len(x), 1), generator=generator, device=x.device) < 0.5
            place = torch.where(mirrored, side - 1 - place, place)
        shape = [len(x)] + [side if a == axis else 1 for a in range(1, x.ndim)]
        x = x.gather(axis, place.view(shape).expand_as(x))
    return x
