"""A-SalUn: only the weights that carry the association are trained on; all others stay as they are to the bit (ART, sec. 4).

The mask is the top half of all weights by |∂ association CE / ∂ weight| of the model given, whole network. They then learn

    task CE + mu · association CE with random attribute values

SalUn's random labels, here averaged over all draws, so that the head's best answer becomes "any value"; the head follows as in
A-NegGrad+.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any, Unpack

import numpy as np
import torch
from torch import Tensor, nn

from rightreasons.data.cohort import Cohort
from rightreasons.mitigations import card_settings
from rightreasons.mitigations._association import Association, Unlearning
from rightreasons.mitigations._unlearning import Running, Start, begin, finish, refuse_share, remembered, strengths, tuned
from rightreasons.models.batches import batches
from rightreasons.models.classifier import Classifier
from rightreasons.models.training import Batch
from rightreasons.models.training_keywords import Training, trains

STARTS = "model"


@trains(epochs=10, patience=None)
def mitigate(
    classifier: Classifier,
    cohort: Cohort,
    *,
    rng: np.random.Generator,
    attribute: str | None = None,
    mu: float | Sequence[float] = (0.3, 1.0, 3.0),
    share: float = 0.5,
    keep: float = 0.05,
    **training: Unpack[Training],
) -> Classifier:
    """A new model that unlearned the association of `attribute` with the label. What is not explained here is `train`'s.

    Parameters
    ----------
    mu : weight of the association; of several, the best on validation rows is kept
    share : of all weights that may change
    keep : task accuracy on validation rows (mean over groups) that may be lost
    """
    settings = card_settings(attribute=attribute, mu=mu, share=share, keep=keep, **training)
    refuse_share("keep", keep)
    refuse_share("share", share)
    values = strengths("mu", mu)
    start = begin(classifier, cohort, rng, attribute, training["batch"], Running.of(training))
    mask = remembered(start.runs.folder, f"mask-{share:g}.pt", start.key, lambda: salient(saliency(start), share))
    candidates = tuned(
        start, lambda head, m: SalUn(head, start.rows.attribute, m, mask), values, regime="salun", training=training
    )
    free = sum(int(part.sum()) for part in mask.values())
    weights = sum(parameter.numel() for parameter in classifier.module.parameters())
    return finish(start, "salun", settings, candidates, keep, weights_that_may_change=free, weights=weights)


def saliency(start: Start) -> dict[str, Tensor]:
    """Gradient of the association loss over all training rows with respect to every weight, in evaluation mode."""
    model, rows = start.classifier.copy().to(start.runs.device), start.rows
    model.module.eval()
    association = copy.deepcopy(start.association).to(start.runs.device)
    names = {name: weight for name, weight in model.module.named_parameters() if weight.requires_grad}
    total = {name: torch.zeros_like(weight, dtype=torch.float64) for name, weight in names.items()}
    y, a = torch.from_numpy(rows.y).to(start.runs.device), torch.from_numpy(np.asarray(rows.a)).to(start.runs.device)
    stream = batches(
        rows.cohort,
        model.geometry,
        model.mean,
        model.std,
        batch=start.batch,
        workers=start.runs.workers,
        device=start.runs.device,
    )
    with closing(stream), start.runs.on_threads():
        for at, x in stream:
            z = model.features(x)
            loss = (association.row_weight(y[at], a[at]) * association.losses(z, y[at], a[at], learns=False)).sum()
            gradients = torch.autograd.grad(loss, list(names.values()), allow_unused=True)
            for name, gradient in zip(names, gradients, strict=True):
                if gradient is not None:
                    total[name] += gradient
    return total


def salient(gradients: Mapping[str, Tensor], share: float) -> dict[str, Tensor]:
    """True for the `share` of all weights whose gradients are largest; a weight without any gradient is never among them."""
    size = torch.cat([gradient.abs().flatten() for gradient in gradients.values()])
    top = torch.argsort(size, descending=True, stable=True)[: round(share * len(size))]
    chosen = torch.zeros_like(size, dtype=torch.bool)
    chosen[top] = size[top] > 0
    parts = chosen.split([gradient.numel() for gradient in gradients.values()])
    return {name: part.view_as(gradients[name]) for name, part in zip(gradients, parts, strict=True)}


class SalUn(Unlearning):
    """Task and confusion of the attribute head; weights outside the mask are held.

    An optimizer moves a weight without gradient too, by weight decay and by its momentum. So gradients are masked (which also
    keeps them out of the norm that is clipped), and the held weights are put back before every forward pass of the network. After
    a step, the next pass of training or validation finds them as they were, and a model is kept only after a validation pass.
    """

    def __init__(self, association: Association, attribute: str, mu: float, mask: Mapping[str, Tensor]) -> None:
        super().__init__(association, attribute, mu)
        self._mask = dict(mask)
        self._handles: list[Any] = []

    def forward(self, classifier: Classifier, batch: Batch) -> Tensor:
        if not self._handles:
            self._hold(classifier.module)
        z, logits = classifier.read(batch.x)
        confusion = self.association.confusion(z, batch.y, batch.attributes[self.attribute])
        return self.task(logits, batch) + self.mu * confusion + self.head_only(z, batch)

    def release(self) -> None:
        while self._handles:
            self._handles.pop().remove()

    def _hold(self, network: nn.Module) -> None:
        held = []
        for name, weight in network.named_parameters():
            if weight.requires_grad:
                free = self._mask[name].to(weight.device)
                held.append((weight, free, weight.detach().clone()))
                self._handles.append(weight.register_hook(free.mul))

        def put_back(*_: Any) -> None:
            with torch.no_grad():
                for weight, free, was in held:
                    weight.copy_(torch.where(free, weight, was))

        self._handles.append(network.register_forward_pre_hook(put_back))
