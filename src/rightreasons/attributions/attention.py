"""Attention: how much the class token attends to each patch in the last block (TSI, C.2 and C.4). It explains no class.

Attention shows what a network reads, not what it uses (TSI, C.5): look at it beside token influence, not instead of it.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from rightreasons.attributions._explained_score import checked, explaining
from rightreasons.errors import ModelError
from rightreasons.models import tokens
from rightreasons.models.classifier import Classifier

IS_CLASSLESS = True


def maps(classifier: Classifier, x: Tensor, *, target: Tensor) -> Tensor:
    """(b, gh, gw) attention of the class token to each patch, mean over heads; what goes to other tokens is left out.

    The mean over all patches as queries where there is no token in front of them.

    Parameters
    ----------
    target : (b,) is not used: attention is the same for every class
    """
    with explaining(classifier, x, target) as (images, _), torch.no_grad():
        weights, prefix, grid = weights_of(classifier, images)
        return checked(on_grid(weights[-1], prefix, grid), "attention", classifier)


def check(classifier: Classifier) -> None:
    """Refuse a network that has no sequence of tokens, before anything runs."""
    tokens.check(classifier)


def weights_of(classifier: Classifier, x: Tensor) -> tuple[list[Tensor], int, tuple[int, ...]]:
    """(b, N, N) attention of every block, mean over heads, with the number of tokens in front of the patches and their grid."""
    weights: list[Tensor] = []

    def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float | None) -> Tensor:
        weights.append(tokens.attention_logits(q, k, mask, scale).softmax(-1).mean(1))
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)

    seen = tokens.read(classifier, x)
    y = seen.start
    with tokens.attending(attend):
        for i in range(len(seen.blocks)):
            y = seen.block(i, y, None)
    if len(weights) != len(seen.blocks):
        raise ModelError(
            f"the attention of {classifier.name} cannot be seen: {len(weights)} of its {len(seen.blocks)} blocks call torch's "
            "scaled dot-product attention. Use token_influence or gradcam"
        )
    return weights, seen.prefix, seen.grid


def on_grid(weights: Tensor, prefix: int, grid: tuple[int, ...]) -> Tensor:
    """(b, gh, gw) the row of the first token, or the mean row where all tokens are patches."""
    if prefix:
        row = weights[:, 0]
    else:
        row = weights.mean(1)
    return row[:, prefix:].unflatten(1, grid)
