"""A network that learns a number by squared error, as the models that bound its encoding do (ShorT, Methods, lower error bound).

A classifier's head has classes, so the head learns groups of the number beside: from the features as they are, so that its
gradient never reaches the network. It is what training stops by, and what makes such a model one like any other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from rightreasons.errors import TrainingError
from rightreasons.models._examples import Examples
from rightreasons.models.classifier import Classifier
from rightreasons.stats.resampling import task_rng


class Rows(Protocol):
    """What is read of a batch."""

    @property
    def x(self) -> Tensor: ...

    @property
    def y(self) -> Tensor: ...

    @property
    def attributes(self) -> Mapping[str, Tensor]: ...

    @property
    def weight(self) -> Tensor: ...


class Regression(nn.Module):
    """The objective: squared error of a linear reading of the features, over the number's training variance; the head apart.

    Parameters
    ----------
    d : width of the features
    number : the attribute that is learnt
    mean, variance : of it in the training rows
    """

    def __init__(self, d: int, number: str, mean: float, variance: float, rng: np.random.Generator) -> None:
        super().__init__()
        self.number, self.mean, self.variance = number, mean, variance
        self.reading = nn.utils.skip_init(nn.Linear, d, 1)
        with torch.no_grad():
            drawn = rng.uniform(-1, 1, (1, d)) / math.sqrt(d)
            self.reading.weight.copy_(torch.from_numpy(drawn.astype(np.float32)))
            self.reading.bias.zero_()

    def forward(self, classifier: Classifier, batch: Rows) -> Tensor:
        z, _ = classifier.read(batch.x)
        a = batch.attributes[self.number]
        known = ~a.isnan()
        target = torch.where(known, (a - self.mean) / math.sqrt(self.variance), 0.0).float()
        squared = (self.reading(z).float()[:, 0] - target).square() * batch.weight * known
        apart = nn.functional.cross_entropy(classifier.head(z.detach()).float(), batch.y, reduction="none")
        return squared.sum() / known.sum().clamp(min=1) + (apart * batch.weight).mean()


def regression(classifier: Classifier, fit: Examples, number: str, seed: int) -> Regression:
    """The objective for these training rows."""
    if number not in fit.cohort.attributes or fit.cohort.attribute(number).kind != "continuous":
        raise TrainingError(f"regress={number!r} is no number of cohort {fit.cohort.name!r}: name a continuous attribute")
    column = fit.cohort.attribute(number)
    values = column.values[column.present]
    if len(np.unique(values)) < 2:
        raise TrainingError(f"regress={number!r} has {len(np.unique(values))} values in the training rows: nothing to learn")
    rng = task_rng(seed, f"reading of {number}")
    return Regression(classifier.d, number, float(values.mean()), float(values.var()), rng)
