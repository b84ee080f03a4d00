"""A-SSD: weights that matter much more for the association than for the task are damped, without training (ART, sec. 4).

I_D, I_f     mean of the squared gradients of single rows: task CE, association CE (attribute-balanced)
I_f > alpha I_D:   weight ← weight · min(lambda I_D / I_f, 1)
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Unpack

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, vjp, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from rightreasons.data.cohort import Cohort
from rightreasons.errors import ModelError, SettingError
from rightreasons.families import with_settings
from rightreasons.mitigations import card_settings
from rightreasons.mitigations._association import Association
from rightreasons.mitigations._unlearning import Candidate, Running, Start, begin, finish, refuse_share, strengths
from rightreasons.models.batches import batches
from rightreasons.models.classifier import Classifier
from rightreasons.models.grouped_rows import row_weights
from rightreasons.models.training_keywords import Places, runs

STARTS = "model"
AT_ONCE = 1 << 27  # numbers of one loss's gradients held at a time

Importances = dict[str, Tensor]
RowGradients = Callable[[dict[str, Tensor], Tensor, Tensor, Tensor], tuple[dict[str, Tensor], dict[str, Tensor]]]


@dataclass(frozen=True)
class Settings:
    """What can be set of A-SSD.

    Parameters
    ----------
    alpha : how many times its task importance the association importance of a weight must be for the weight to be damped
    damping : lambda. Of several values of alpha and lambda, the pair that is best on validation rows is kept
    rows : at most this many training rows give the importances, drawn at random; None: all
    keep : task accuracy on validation rows (mean over groups) that may be lost
    chunk : rows whose gradients are held at a time; None: as many as 128 million numbers hold. 1 takes row after row without
        `torch.func.vmap`, for networks that it cannot take
    """

    attribute: str | None = None
    alpha: float | Sequence[float] = (1.0, 2.0, 5.0, 10.0, 30.0, 100.0)
    damping: float | Sequence[float] = 1.0
    rows: int | None = 4000
    keep: float = 0.05
    batch: int = 64
    chunk: int | None = None


@with_settings(Settings)
@runs
def mitigate(
    classifier: Classifier, cohort: Cohort, *, rng: np.random.Generator, settings: Settings, **places: Unpack[Places]
) -> Classifier:
    """A new model that unlearned the association of `attribute` with the label."""
    refuse_share("keep", settings.keep)
    alphas, dampings = strengths("alpha", settings.alpha), strengths("damping", settings.damping)
    for name, value in (("rows", settings.rows), ("chunk", settings.chunk)):
        if value is not None and value < 1:
            raise SettingError(f"{name} is {value}: give at least 1")
    start = begin(classifier, cohort, rng, settings.attribute, settings.batch, Running.of(places))
    chosen = np.arange(len(start.rows))
    if settings.rows is not None and settings.rows < len(chosen):
        chosen = np.sort(np.random.default_rng(start.seed).permutation(len(chosen))[: settings.rows])
    task, association = importances(start, chosen, settings.chunk)

    def candidates() -> Iterator[Candidate]:
        for a in alphas:
            for strength in dampings:
                model = classifier.copy()
                damped = damp(model.module, task, association, a, strength)
                yield model, {"alpha": a, "damping": strength, "damped_weights": damped}

    card = card_settings(**vars(settings))
    return finish(start, "ssd", card, candidates(), settings.keep, rows_of_importances=len(chosen))


def damp(network: nn.Module, task: Mapping[str, Tensor], association: Mapping[str, Tensor], alpha: float, damping: float) -> int:
    """Damp the weights of a network in place; returns how many were damped."""
    damped = 0
    with torch.no_grad():
        for name, weight in network.named_parameters():
            if name in task:
                i_d, i_f = task[name].to(weight.device), association[name].to(weight.device)
                is_damped = i_f > alpha * i_d
                factor = torch.where(is_damped, (damping * i_d / i_f).clamp(max=1.0), 1.0)
                weight.mul_(factor.to(weight.dtype))
                damped += int(is_damped.sum())
    return damped


def importances(start: Start, chosen: np.ndarray, chunk: int | None = None) -> tuple[Importances, Importances]:
    """Of every weight for the task and for the association: mean squared gradient of single rows, in evaluation mode.

    The association's mean is over classes and attribute values alike (the weights of the association loss).
    """
    model = start.classifier.copy().to(start.runs.device)
    model.module.eval()
    network = _Read(model, copy.deepcopy(start.association).to(start.runs.device))
    weights = {
        name: weight.detach()
        for name, weight in network.named_parameters()
        if name.startswith("network.") and weight.requires_grad
    }
    size = sum(weight.numel() for weight in weights.values())
    at_once = chunk or max(1, min(start.batch, AT_ONCE // max(1, size)))
    if at_once == 1:
        gradients = _row_after_row(network)
    else:
        gradients = _at_once(network)

    view = start.rows.select(chosen)
    y = torch.from_numpy(np.asarray(view.y)).to(start.runs.device)
    a = torch.from_numpy(np.asarray(view.a)).to(start.runs.device)
    weight_of = (
        torch.from_numpy(row_weights(view.cohort).copy()).to(start.runs.device),
        network.association.row_weight(y, a).double(),
    )
    zeros = {name: torch.zeros_like(weight, dtype=torch.float64) for name, weight in weights.items()}
    total = [zeros, {name: zero.clone() for name, zero in zeros.items()}]
    stream = batches(
        view.cohort, model.geometry, model.mean, model.std, batch=at_once, workers=start.runs.workers, device=start.runs.device
    )
    with closing(stream), start.runs.on_threads():
        for rows, x in stream:
            for sums, gradient_of, weight in zip(total, gradients(weights, x, y[rows], a[rows]), weight_of, strict=True):
                for name, gradient in gradient_of.items():
                    sums[name] += torch.tensordot(weight[rows], gradient.double().square(), dims=1)

    def mean(sums: Mapping[str, Tensor], weight: Tensor) -> Importances:
        return {name.removeprefix("network."): (value / weight.sum()).cpu() for name, value in sums.items()}

    return mean(total[0], weight_of[0]), mean(total[1], weight_of[1])


class _Read(nn.Module):
    """Losses of single rows under weights passed in: `functional_call` swaps those of a module, not of a Classifier."""

    def __init__(self, model: Classifier, association: Association) -> None:
        super().__init__()
        self.network, self.association = model.module, association
        self._model = model

    def forward(self, x: Tensor, y: Tensor, a: Tensor) -> Tensor:
        """(2, b) task and association losses."""
        z, logits = self._model.read(x)
        task = nn.functional.cross_entropy(logits.float(), y, reduction="none")
        return torch.stack([task, self.association.losses(z, y, a, learns=False)])


def _at_once(network: _Read) -> RowGradients:
    def of_one(weights: dict[str, Tensor], x: Tensor, y: Tensor, a: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        losses, pull = vjp(lambda w: functional_call(network, w, (x[None], y[None], a[None]))[:, 0], weights)  # type: ignore[misc]
        pick = torch.eye(2, device=losses.device, dtype=losses.dtype)
        return pull(pick[0])[0], pull(pick[1])[0]

    every = vmap(of_one, in_dims=(None, 0, 0, 0))

    def gradients_of(weights: dict[str, Tensor], x: Tensor, y: Tensor, a: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        try:
            with sdpa_kernel(SDPBackend.MATH):  # the other kinds of attention have no batched gradients
                return every(weights, x, y, a)
        except (RuntimeError, ValueError, NotImplementedError) as error:
            raise ModelError(
                f"torch.func.vmap cannot run {network._model.name} ({type(error).__name__}: {str(error).splitlines()[0]}): "
                "give chunk=1, which goes row by row"
            ) from error

    return gradients_of


def _row_after_row(network: _Read) -> RowGradients:
    def with_zeros(gradients: Sequence[Tensor | None], weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """(1, …) gradients by name, 0 where a weight has no part in the loss."""
        pairs = zip(weights.items(), gradients, strict=True)
        return {name: (torch.zeros_like(weight) if own is None else own)[None] for (name, weight), own in pairs}

    def gradients_of(weights: dict[str, Tensor], x: Tensor, y: Tensor, a: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        own = dict(network.named_parameters())
        named = {name: own[name] for name in weights}
        task, association = network(x, y, a)[:, 0]
        of_task = torch.autograd.grad(task, list(named.values()), retain_graph=True, allow_unused=True)
        of_association = torch.autograd.grad(association, list(named.values()), retain_graph=True, allow_unused=True)
        return with_zeros(of_task, named), with_zeros(of_association, named)

    return gradients_of
