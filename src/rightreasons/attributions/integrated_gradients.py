"""Integrated gradients (Sundararajan et al. 2017) through captum: the gradient along the path from a baseline to the image."""

from __future__ import annotations

import torch
from captum.attr import IntegratedGradients
from torch import Tensor

from rightreasons.attributions._explained_score import checked, explaining, score
from rightreasons.errors import SettingError
from rightreasons.models.classifier import Classifier
from rightreasons.models.fills import filled


def maps(classifier: Classifier, x: Tensor, *, target: Tensor, baseline: str = "zero", steps: int = 32) -> Tensor:
    """(b, *size) signed, summed over channels.

    Parameters
    ----------
    baseline : "zero" (in normalised space), "black", "mean" or "blur": see `_fill.filled`
    steps : points of the Gauss-Legendre quadrature
    """
    return maps_and_conservation(classifier, x, target=target, baseline=baseline, steps=steps)[0]


def maps_and_conservation(
    classifier: Classifier, x: Tensor, *, target: Tensor, baseline: str = "zero", steps: int = 32
) -> tuple[Tensor, Tensor]:
    """The maps, and (b, 3): their sum, the baseline's score, the image's score. Completeness: the first two make the third."""
    if steps < 1:
        raise SettingError(f"steps={steps}: give at least 1")
    with explaining(classifier, x, target) as (x, target):
        start = filled(classifier, x, baseline)
        attributed = IntegratedGradients(lambda images, outputs: score(classifier, images, outputs)).attribute(
            x.requires_grad_(),
            baselines=start,
            additional_forward_args=(target,),
            n_steps=steps,
            internal_batch_size=len(x),  # one point of the path at a time: the memory of one pass
        )
        with torch.no_grad():
            scores = [score(classifier, images, target) for images in (start, x)]
        pixels = checked(attributed.sum(1), "integrated_gradients", classifier)
        return pixels, torch.stack([pixels.flatten(1).sum(1), *scores], dim=1)
