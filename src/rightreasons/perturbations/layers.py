"""Channel means inside the network, and the network with an association restored there (ART at a layer)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rightreasons.audits.art import layers as art_layers
from rightreasons.audits.art.procedure import Procedure
from rightreasons.errors import ModelError, NotRun, SettingError
from rightreasons.evidence import Evidence
from rightreasons.models import forward
from rightreasons.models.classifier import Classifier
from rightreasons.models.passes import Pass
from rightreasons.perturbations import Perturbation
from rightreasons.stats.restoration import Directions


def layer(*, after: str = "") -> Perturbation:
    """`features@layer(after=…)`: (b, c) means over space or tokens of what a layer gives out; nothing is changed.

    Parameters
    ----------
    after : dotted name of the layer, such as `layer3` or `blocks.5`
    """
    name = _named(after)

    def change(batch: Pass) -> Pass:
        def network(x: Tensor) -> tuple[Tensor, Tensor]:
            outputs, logits = batch.classifier.activations(x, [name])
            return means(batch.classifier, name, outputs[name]), logits

        return batch.with_network(network)

    return Perturbation(change, check=lambda classifier: _check(classifier, name))


def restored(  # noqa: PLR0913  each keyword is a documented setting
    *,
    after: str = "",
    beta: float = 2.0,
    draw: int = 0,
    attribute: str = "",
    kind: str = "class-conditional",
    rho: float = 0.5,
    tau: float = 0.5,
    n_min: int = 20,
    gated: bool = True,
    routing: str = "true",
) -> Perturbation:
    """The network with the attribute's part of a layer's channel means amplified: the shift is added at every position.

    Directions are found and gated on the audit rows (`audits.art.layers.directions_at`). Where every gate is closed, the network
    is left as it is.

    Parameters
    ----------
    draw : 0, or the number of a shuffle of the attribute, with its own gate: the control that decides
    attribute : the first of the cohort where it is not given
    kind, rho, tau, n_min, gated, routing : as in the audit `art` (`kind` is its `direction`)
    """
    name, procedure = _named(after), Procedure(kind, rho, tau, n_min, gated, routing)

    def fit(evidence: Evidence) -> Callable[[Pass], Pass]:
        try:
            directions = art_layers.directions_at(evidence, name, procedure, str(attribute), draw)
        except NotRun:  # nothing to restore; the audit says why, and these numbers are undefined
            return lambda batch: batch.with_network(batch.classifier.read, _all(batch))
        shift = _Shift(directions, beta, len(evidence.card.classes))

        def change(batch: Pass) -> Pass:
            if not directions.is_open or beta == 0:
                return batch
            route = batch.target("label" if routing == "true" else "predicted")
            return batch.with_network(lambda x: _where_open(batch, name, x, shift, route))

        return change

    reads = []
    if routing == "true":
        reads.append("label")
    if attribute:
        reads.append(str(attribute))
    source = (f"audit/{art_layers.means_array(name)}",)
    check = lambda classifier: _check(classifier, name)  # noqa: E731
    return Perturbation(reads=tuple(reads), arrays=source, fit=fit, check=check, may_lack=True)


def means(classifier: Classifier, name: str, output: Tensor) -> Tensor:
    """(b, c) of a layer's output: maps over space, tokens over their number, vectors as they are."""
    channels = _channel_axis(classifier, name, output)
    over = [axis for axis in range(1, output.ndim) if axis != channels]
    if over:
        return output.mean(over)
    return output


# ---- what the functions above use ----------------------------------------------------------------------------------------


def _named(after: str) -> str:
    if after == "":
        raise SettingError("after= which layer? Give its dotted name, such as after=layer3 or after=blocks.5")
    return str(after)


class _Shift:
    """beta P_c (z - mu_c) of rows (b, c) by the class that each is routed to."""

    def __init__(self, directions: Directions, beta: float, classes: int) -> None:
        d = directions.mean.shape[1]
        bases: list[np.ndarray] = [np.zeros((0, d))] * classes
        mean = np.zeros((classes, d))
        for k, label in enumerate(directions.labels):
            bases[label] = directions.basis(label)  # type: ignore[call-overload]
            mean[label] = directions.mean[k]  # type: ignore[call-overload]
        rank = max(map(len, bases))
        self.basis = np.stack([np.concatenate([basis, np.zeros((rank - len(basis), d))]) for basis in bases])  # (C, k, d)
        self.mean, self.beta = mean, beta
        self.is_open = np.array([len(basis) > 0 for basis in bases])

    def __call__(self, z: Tensor, route: Tensor) -> Tensor:
        basis = torch.from_numpy(self.basis).to(z.device)[route]
        mean = torch.from_numpy(self.mean).to(z.device)[route]
        along = torch.einsum("bkd,bd->bk", basis, z.double() - mean)
        return (self.beta * torch.einsum("bkd,bk->bd", basis, along)).to(z.dtype)


def _where_open(batch: Pass, name: str, x: Tensor, shift: _Shift, route: Tensor) -> tuple[Tensor, Tensor]:
    """The rows of classes with an open gate are run again; the others stay what they are."""
    features, logits = (t.clone() for t in batch.read)
    rows = torch.from_numpy(shift.is_open).to(x.device)[route].nonzero()[:, 0]
    if len(rows):
        moved = _shifted(batch.classifier, name, x[rows], lambda z: shift(z, route[rows]))
        features[rows], logits[rows] = moved
    return features, logits


def _shifted(classifier: Classifier, name: str, x: Tensor, shift: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    """(b, d) features and (b, C) logits of the network whose layer's output is moved by `shift` of its channel means."""

    def hook(_module: Any, _given: Any, made: Any) -> Any:
        if isinstance(made, tuple):
            output = made[0]
        else:
            output = made
        channels = _channel_axis(classifier, name, output)
        moved = shift(means(classifier, name, output))
        shape = [1] * output.ndim
        shape[0], shape[channels] = len(output), output.shape[channels]
        changed = output + moved.view(shape)
        if isinstance(made, tuple):
            return (changed, *made[1:])
        return changed

    handle = forward.layer(classifier.module, name).register_forward_hook(hook)
    try:
        return classifier.read(x)
    finally:
        handle.remove()


def _channel_axis(classifier: Classifier, name: str, output: Tensor) -> int:
    if not isinstance(output, Tensor) or output.ndim < 2:
        raise ModelError(
            f"'{name}' of {classifier.name} gives no (n, …) tensor: name a layer that gives features, maps or tokens"
        )
    if output.ndim > 3 and not classifier.cut.spatial_last:
        return 1
    return output.ndim - 1


def _all(batch: Pass) -> Tensor:
    return torch.ones(len(batch.x), dtype=torch.bool, device=batch.x.device)


def _check(classifier: Classifier, name: str) -> None:
    forward.layer(classifier.module, name)
