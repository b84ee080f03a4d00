"""What every attribution shares: the explained score, the network held still while it is explained, and maps that are finite."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from rightreasons.errors import ModelError, SettingError
from rightreasons.models.classifier import Classifier
from rightreasons.models.forward import run


@contextmanager
def explaining(classifier: Classifier, x: Tensor, target: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """The network evaluating and with frozen weights, everything as it was afterwards; yields an input and targets to work on.

    Gradients are on inside, whatever the caller's mode: extraction runs in inference mode, whose tensors no gradient can pass.
    """
    if target.shape != x.shape[:1] or target.is_floating_point() or target.dtype == torch.bool:
        raise SettingError(
            f"target is {target.dtype} of shape {tuple(target.shape)}: give the explained output of each of {len(x)} images"
        )
    if len(target) and (int(target.min()) < 0 or int(target.max()) >= classifier.C):
        raise SettingError(
            f"target goes from {int(target.min())} to {int(target.max())}, and {classifier.name} has the outputs 0 to "
            f"{classifier.C - 1}"
        )
    modes = [(module, module.training) for module in classifier.module.modules()]
    flags = [(parameter, parameter.requires_grad) for parameter in classifier.module.parameters()]
    try:
        classifier.module.eval()
        with torch.inference_mode(False), torch.enable_grad():
            for parameter, _ in flags:
                parameter.requires_grad_(False)
            yield x.detach().clone(), target.detach().clone()
    finally:
        for module, mode in modes:
            module.training = mode
        for parameter, flag in flags:
            parameter.requires_grad_(flag)


def direction(classifier: Classifier, output: Tensor, target: Tensor) -> Tensor:
    """(b, width) of 0, 1 and -1, like the network's own output: their product, summed, is the explained score.

    The score of an output is its logit; a one-logit head explains class 1 by z and class 0 by -z.
    """
    weight = torch.zeros_like(output)
    if classifier.output is None and output.shape[1] > 1:
        return weight.scatter_(1, target[:, None], 1.0)
    weight[:, classifier.output or 0] = torch.where(target == 1, 1.0, -1.0).to(output)
    return weight


def score(classifier: Classifier, x: Tensor, target: Tensor) -> Tensor:
    """(b,) explained score of each image, with gradients."""
    output = run(classifier.module, x)[1]
    return (output * direction(classifier, output, target)).sum(1)


def checked(maps: Tensor, method: str, classifier: Classifier) -> Tensor:
    """The maps, cut from their graph; refused where one is not finite."""
    finite = torch.isfinite(maps).flatten(1).all(1)
    if not finite.all():
        raise ModelError(
            f"{method} of {classifier.name} is not finite for {int((~finite).sum())} of {len(maps)} images: look at its "
            "weights and at the images, or explain it by another method"
        )
    return maps.detach()


def refuse_changed(method: str, classifier: Classifier, output: Tensor, expected: Tensor, tolerance: float = 1e-3) -> None:
    """Refuse an output that the rules changed: they may change the backward pass only."""
    off = float((output - expected).abs().max())
    if not off <= tolerance * max(float(expected.abs().max()), 1e-3):
        raise ModelError(
            f"{method} changed the output of {classifier.name} by {off:.2g}, so its rules do not fit this "
            "network: explain it by gradcam, integrated_gradients or occlusion"
        )
