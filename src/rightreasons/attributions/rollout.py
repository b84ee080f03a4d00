"""Attention rollout (Abnar and Zuidema 2020): attention multiplied through the blocks, half of each for the residual."""

from __future__ import annotations

import torch
from torch import Tensor

from rightreasons.attributions._explained_score import checked, explaining
from rightreasons.attributions.attention import on_grid, weights_of
from rightreasons.models import tokens
from rightreasons.models.classifier import Classifier

IS_CLASSLESS = True


def maps(classifier: Classifier, x: Tensor, *, target: Tensor) -> Tensor:
    """(b, gh, gw) share of each patch in what the class token ends with (mean over patches where there is none in front of them).

    Parameters
    ----------
    target : (b,) is not used: rollout is the same for every class
    """
    with explaining(classifier, x, target) as (images, _), torch.no_grad():
        weights, prefix, grid = weights_of(classifier, images)
        identity = torch.eye(weights[0].shape[-1], dtype=weights[0].dtype, device=weights[0].device)
        rolled = identity.expand_as(weights[0])
        for each in weights:
            rolled = (0.5 * each + 0.5 * identity) @ rolled
        return checked(on_grid(rolled, prefix, grid), "rollout", classifier)


def check(classifier: Classifier) -> None:
    """Refuse a network that has no sequence of tokens, before anything runs."""
    tokens.check(classifier)
