"""Occlusion (Zeiler and Fergus 2014) through captum: how much of the explained score is lost when a patch is covered."""

from __future__ import annotations

import torch
from captum.attr import Occlusion
from torch import Tensor

from rightreasons.attributions._explained_score import checked, explaining, score
from rightreasons.errors import SettingError
from rightreasons.models.classifier import Classifier
from rightreasons.models.fills import filled


def maps(classifier: Classifier, x: Tensor, *, target: Tensor, patch: int = 16, fill: str = "zero", together: int = 4) -> Tensor:
    """(b, *grid) score of the image minus its score with that patch covered; patches lie side by side, the last one may be cut.

    Parameters
    ----------
    patch : pixels along each side
    fill : "zero" (in normalised space), "black", "mean" or "blur": see `_fill.filled`
    together : patches covered in one forward pass, each on its own copy of the batch
    """
    if not 1 <= patch <= min(x.shape[2:]):
        raise SettingError(f"patch={patch} of images of {tuple(x.shape[2:])} pixels: give 1 to {min(x.shape[2:])}")
    if together < 1:
        raise SettingError(f"together={together}: give at least 1")
    window = (x.shape[1], *(patch for _ in x.shape[2:]))
    with explaining(classifier, x, target) as (x, target), torch.no_grad():
        attributed = Occlusion(lambda images, outputs: score(classifier, images, outputs)).attribute(
            x,
            sliding_window_shapes=window,
            strides=window,
            baselines=filled(classifier, x, fill),
            additional_forward_args=(target,),
            perturbations_per_eval=together,
        )
        # Every pixel of a patch has the patch's value.
        corners = (slice(None), 0, *(slice(None, None, patch) for _ in x.shape[2:]))
        return checked(attributed[corners].contiguous(), "occlusion", classifier)
