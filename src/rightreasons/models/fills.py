"""What stands in for a pixel that is taken away: the baseline of integrated gradients, the fill of occlusion; never random."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from rightreasons.errors import SettingError
from rightreasons.families import suggest
from rightreasons.models.classifier import Classifier

FILLS = ("zero", "black", "mean", "blur")


def filled(classifier: Classifier, x: Tensor, fill: str) -> Tensor:
    """Images like `x` with the content taken out.

    Parameters
    ----------
    fill : "zero" is 0 after normalisation, the mean colour of the images that the network's normalisation was made for;
        "black" is 0 before it; "mean" is each image's own mean per channel; "blur" is each image under a Gaussian with a
        standard deviation of a tenth of the shortest side
    """
    if fill == "zero":
        return torch.zeros_like(x)
    if fill == "black":
        shape = (1, -1, *(1 for _ in x.shape[2:]))
        mean = torch.tensor(classifier.mean, dtype=x.dtype, device=x.device).view(shape)
        std = torch.tensor(classifier.std, dtype=x.dtype, device=x.device).view(shape)
        return (-mean / std).expand_as(x).clone()
    if fill == "mean":
        return x.mean(tuple(range(2, x.ndim)), keepdim=True).expand_as(x).clone()
    if fill == "blur":
        return _blurred(x, min(x.shape[2:]) / 10)
    raise SettingError(f"no fill '{fill}'; {suggest(str(fill), FILLS)}")


def _blurred(x: Tensor, sigma: float) -> Tensor:
    """A separable Gaussian, the border continued."""
    radius = math.ceil(3 * sigma)
    steps = torch.arange(-radius, radius + 1, dtype=x.dtype, device=x.device)
    kernel = torch.exp(-0.5 * (steps / sigma) ** 2)
    kernel = (kernel / kernel.sum()).view(1, 1, -1)
    for axis in range(2, x.ndim):
        lines = x.movedim(axis, -1)
        flat = F.pad(lines.reshape(-1, 1, lines.shape[-1]), (radius, radius), mode="replicate")
        x = F.conv1d(flat, kernel).reshape(lines.shape).movedim(-1, axis)
    return x.contiguous()
