"""The association loss of the unlearning methods: how well a small head reads the attribute from the features within each class.

    L = (1/K) Σ_c (1/A_c) Σ_a  mean over the rows of class c with value a of  CE(head_c(z), a)

over the K classes that have two or more values of the attribute among the training rows, and the A_c values that class c has. So
a value counts as much as another of its class, however rare it is, and the label itself tells the head nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rightreasons.errors import DataError
from rightreasons.extraction import read
from rightreasons.models.classifier import Classifier
from rightreasons.models.grouped_rows import Rows
from rightreasons.models.training import Batch

RIDGE = 0.01  # on standardised features, beside a mean loss: the head of a separable class stays finite
ITERATIONS = 200
MISSING = -1


class Association(nn.Module):
    """One linear attribute head per class on standardised features, and the weight of every (class, value) in the loss.

    Attributes
    ----------
    share : (C, A) weight of a row of each group, of mean 1 over the training rows; 0 where nothing is to be told apart
    mean, scale : (d,) of the features of the model that is to unlearn, held fixed
    """

    share: Tensor
    mean: Tensor
    scale: Tensor

    def __init__(self, share: Tensor, mean: Tensor, scale: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(*share.shape, len(mean)))
        self.bias = nn.Parameter(torch.zeros(*share.shape))
        self.register_buffer("share", share)
        self.register_buffer("mean", mean)
        self.register_buffer("scale", scale)

    def logits(self, z: Tensor, y: Tensor, *, learns: bool = True) -> Tensor:
        """(b, A) of the head of each row's class; values that the class lacks are -inf.

        Parameters
        ----------
        learns : whether gradients reach the head; they always reach `z`
        """
        weight: Tensor = self.weight
        bias: Tensor = self.bias
        if not learns:
            weight, bias = weight.detach(), bias.detach()
        with torch.autocast(
            z.device.type, enabled=False
        ):  # a product in half precision would blur the head that is to be defeated
            standard = (z.to(weight.dtype) - self.mean) / self.scale
            every = standard @ weight.flatten(0, 1).T + bias.flatten()
        own = every.unflatten(1, bias.shape)[torch.arange(len(y), device=y.device), y]
        return own.masked_fill(self.share[y] == 0, -torch.inf)

    def row_weight(self, y: Tensor, a: Tensor) -> Tensor:
        """(b,) of each row in the loss, 0 where its attribute is missing."""
        return torch.where(a == MISSING, 0.0, self.share[y, a.clamp(min=0)])

    def losses(self, z: Tensor, y: Tensor, a: Tensor, *, learns: bool = True) -> Tensor:
        """(b,) cross-entropy of the attribute, unweighted; 0 for rows that do not count."""
        counts = self.row_weight(y, a) > 0
        log_p = torch.log_softmax(torch.where(counts[:, None], self.logits(z, y, learns=learns), 0.0), dim=1)
        return torch.where(counts, -log_p.gather(1, a.clamp(min=0)[:, None])[:, 0], 0.0)

    def loss(self, z: Tensor, y: Tensor, a: Tensor, *, learns: bool = True) -> Tensor:
        """The association loss of these rows; over all training rows it is the formula at the head of this file."""
        weight = self.row_weight(y, a)
        return (weight * self.losses(z, y, a, learns=learns)).sum() / (weight > 0).sum().clamp(min=1)

    def confusion(self, z: Tensor, y: Tensor, a: Tensor, *, learns: bool = False) -> Tensor:
        """The same with every row's value drawn anew, evenly among those of its class, averaged over all draws."""
        weight = self.row_weight(y, a)
        counts, present = weight > 0, self.share[y] > 0
        log_p = torch.log_softmax(torch.where(counts[:, None], self.logits(z, y, learns=learns), 0.0), dim=1)
        mean = -torch.where(present, log_p, 0.0).sum(dim=1) / present.sum(dim=1).clamp(min=1)
        return (weight * mean).sum() / counts.sum().clamp(min=1)


class Unlearning(nn.Module):
    """What the objectives of unlearning share: the task, the association that the features carry, and a head that follows it."""

    def __init__(self, association: Association, attribute: str, mu: float) -> None:
        super().__init__()
        self.association = association
        self.attribute = attribute
        self.mu = mu

    def task(self, logits: Tensor, batch: Batch) -> Tensor:
        return (nn.functional.cross_entropy(logits.float(), batch.y, reduction="none") * batch.weight).mean()

    def features_only(self, z: Tensor, batch: Batch) -> Tensor:
        """The association loss, whose gradient reaches the features and not the head."""
        return self.association.loss(z, batch.y, batch.attributes[self.attribute], learns=False)

    def head_only(self, z: Tensor, batch: Batch) -> Tensor:
        """A loss of value 0 whose gradient trains the head alone: the head keeps predicting what the extractor tries to hide."""
        loss = self.association.loss(z.detach(), batch.y, batch.attributes[self.attribute])
        return loss - loss.detach()

    def release(self) -> None:
        """Remove from the network everything that was attached for training."""


def shares(rows: Rows) -> np.ndarray:
    """(C, A) weight of a row of each group: classes count equally, and values within a class; of mean 1 over rows that count.

    A class with one value has nothing to tell apart and has weight 0.
    """
    size = np.bincount(rows.group, minlength=rows.C * rows.A).reshape(rows.C, rows.A)
    size = np.where((size > 0).sum(axis=1, keepdims=True) > 1, size, 0)
    values = (size > 0).sum(axis=1, keepdims=True)
    classes = int((values > 0).sum())
    if not classes:
        raise DataError(
            f"every class of {rows.cohort.label_name!r} has one value of {rows.attribute!r} among the training rows, so nothing "
            "tells what to unlearn: give training rows in which they disagree"
        )
    return np.divide(size.sum(), classes * values * size, out=np.zeros(size.shape), where=size > 0)


def fit_association(
    classifier: Classifier,
    rows: Rows,
    *,
    batch: int = 64,
    **runs: Any,
) -> Association:
    """The head that reads the attribute from a model's features: ridge logistic regression on the training rows."""
    z = torch.from_numpy(read(classifier, rows.cohort, ("features",), batch=batch, **runs)["features"])
    y, a = torch.from_numpy(rows.y), torch.from_numpy(np.asarray(rows.a))
    mean, deviation = z.double().mean(dim=0), z.double().std(dim=0, unbiased=False)
    scale = torch.where(deviation > 0, deviation, 1.0)
    standard = (z.double() - mean) / scale
    made = Association(torch.from_numpy(shares(rows)), torch.zeros_like(mean), torch.ones_like(scale)).double()
    optimizer = torch.optim.LBFGS(
        made.parameters(), max_iter=ITERATIONS, tolerance_grad=1e-7, history_size=10, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = made.loss(standard, y, a) + RIDGE / 2 * made.weight.square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    optimizer.zero_grad()
    made.mean, made.scale = mean, scale
    return made.float()
