"""The last linear layer of a classifier: held-out rows to fit it on, what it reads, and a copy of the network with a new one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn

from rightreasons.data.cohort import Cohort
from rightreasons.errors import DataError, ModelError
from rightreasons.extraction import read
from rightreasons.families import without
from rightreasons.head import Head, Layer
from rightreasons.models.classifier import Classifier
from rightreasons.models.forward import layer
from rightreasons.models.grouped_rows import Rows, Select, audit_half, completed, every_group, grouped, labelled, selection
from rightreasons.models.head_layers import is_linear, read_layers

MOST_STEPS = 2_000


def held_out(classifier: Classifier, cohort: Cohort, rng: np.random.Generator, attribute: str | None = None) -> Rows:
    """A seeded half of the audit rows on which the classifier was not fitted by an earlier mitigation; every class is there."""
    if cohort.splits is not None:
        cohort = cohort.select(~(np.isin(cohort.id.astype(str), sorted(classifier.used)) & (cohort.splits == "audit")))
    rows = grouped(classifier, audit_half(cohort, rng, attribute), attribute)
    absent = [str(rows.names[0][c]) for c in range(rows.C) if c not in rows.y]
    if absent:
        raise DataError(
            f"the last layer of {classifier.name} is fitted on a half of the audit rows ({len(rows)}), which have none of class "
            f"{', '.join(absent[:12])}: give audit rows of every class, or a model that knows only the cohort's"
        )
    return rows


@dataclass(frozen=True, eq=False)
class Refitting:
    """What a last layer is fitted on, and what chooses among several.

    Attributes
    ----------
    fit, val : held-out rows, and the val rows
    features, val_features : (n, d) of both, float64
    by : what is scored on the val rows
    """

    classifier: Classifier
    fit: Rows
    val: Rows
    features: np.ndarray
    val_features: np.ndarray
    by: Select

    @classmethod
    def begin(
        cls,
        classifier: Classifier,
        cohort: Cohort,
        rng: np.random.Generator,
        attribute: str | None,
        reading: Mapping[str, Any],
        smallest: tuple[str, int] | None = None,
    ) -> Refitting:
        """Rows and their features.

        Parameters
        ----------
        reading : keywords of `extraction.read`
        smallest : name of a mitigation that needs so many rows of every group
        """
        cohort = completed(cohort, rng)
        fit = held_out(classifier, cohort, rng, attribute)
        if smallest is not None:
            mitigation, least = smallest
            every_group(fit, least, mitigation)
        val, by = labelled(classifier, cohort.on("val"), attribute), selection(classifier, cohort, attribute)
        reading = without(reading, ("folder",))
        features, val_features = (_features(classifier, rows, reading) for rows in (fit, val))
        return cls(classifier, fit, val, features, val_features, by)

    @property
    def inputs(self) -> np.ndarray:
        """(n, d') what the last linear layer reads of the rows to fit it on."""
        return last_inputs(self.classifier, self.features)

    @property
    def val_inputs(self) -> np.ndarray:
        return last_inputs(self.classifier, self.val_features)

    @property
    def used(self) -> list[Any]:
        """Ids of all rows that the new layer has seen."""
        return [*self.fit.cohort.id, *self.val.cohort.id]


def smallest_of_the_best(scores: Mapping[float, float]) -> float:
    """The penalty with the best score; of equally good ones the smallest."""
    return max(scores, key=lambda c: (scores[c], -c))


def standard(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation (d,) of inputs (n, d); the deviation of a constant one is 1."""
    mean, std = z.mean(axis=0), z.std(axis=0)
    return mean, np.where(std > 1e-8 * np.maximum(1.0, np.abs(mean)), std, 1.0)


def _features(classifier: Classifier, rows: Rows, reading: Mapping[str, Any]) -> np.ndarray:
    return read(classifier, rows.cohort, ("features",), **reading)["features"].astype(np.float64)


def l2_heads(
    x: np.ndarray, y: np.ndarray, C: Sequence[float], classes: int, weight: np.ndarray | None = None
) -> dict[float, Head]:
    """For each C a linear head on raw inputs (n, d'), fitted by l2 logistic regression on standardised ones.

    Parameters
    ----------
    weight : (n,) of the rows
    """
    mean, std = standard(x)
    heads = {}
    for c in C:
        model = LogisticRegression(C=c, max_iter=MOST_STEPS).fit((x - mean) / std, y, sample_weight=weight)
        rows, bias = model.coef_, model.intercept_
        if classes == 2:  # one row, of the second class
            rows, bias = np.concatenate([-rows, rows]) / 2, np.concatenate([-bias, bias]) / 2
        heads[c] = Head((Layer("linear", {"weight": rows, "bias": bias}),)).fold(mean, std)
    return heads


def last_inputs(classifier: Classifier, features: np.ndarray) -> np.ndarray:
    """Features (n, d) to what the last linear layer reads, (n, d'); no change where that layer is the head."""
    *before, last = classifier.head_data.layers
    if last.kind != "linear":
        raise ModelError(f"the head of {classifier.name} ends with {last.name or last.kind} and not with a linear layer to refit")
    for each in before:
        features = each(features)
    return features


def with_last_layer(classifier: Classifier, weight: np.ndarray, bias: np.ndarray) -> Classifier:
    """A copy whose logits are `weight @ last_inputs + bias`, weight (C, d') and bias (C,).

    A network with one logit, or read at one of several, gets the difference of the two rows: the logits (0, z) tell the same.
    """
    made = classifier.copy()
    homes = _homes(made)
    if made.output is not None or len(homes[0].weight) == 1:
        row = made.output or 0
        for home in homes:
            _write(home, weight[1] - weight[0], bias[1] - bias[0], row)
        weight, bias = weight - weight[0], bias - bias[0]
    elif made.cut.reads:  # the logits are the mean of several layers side by side
        widths = [homes[made.cut.reads.index(point)].weight[0].numel() for point in range(max(made.cut.reads) + 1)]
        blocks = np.split(weight, np.cumsum(widths)[:-1], axis=1)
        for home, point in zip(homes, made.cut.reads, strict=True):
            _write(home, blocks[point] * (len(homes) / made.cut.reads.count(point)), bias)
    else:
        _write(homes[0], weight, bias)
    written = made.head_data.layers[-1].arrays
    if not all(np.allclose(written[name], value, rtol=1e-3, atol=1e-4) for name, value in (("weight", weight), ("bias", bias))):
        raise ModelError(
            f"the last layer of {made.name} is unchanged by its new weights: the network computes it from other parameters"
        )
    return made


Home = nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d


def _homes(classifier: Classifier) -> list[Home]:
    """The modules of the last linear layer: one, or several side by side."""
    named = [name for name in classifier.cut.head if name.endswith("()") or read_layers(layer(classifier.module, name), name)]
    homes: list[Home] = []
    for name in named if classifier.cut.reads else named[-1:]:
        if name.endswith("()"):
            module = None
        else:
            module = layer(classifier.module, name)
        if not isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d) or not is_linear(module):
            raise ModelError(f"the head of {classifier.name} ends with {name!r}, which is no linear layer to refit")
        if module.bias is None:
            raise ModelError(f"{name!r} of {classifier.name} has no bias, and a refitted head needs one: build it with bias=True")
        homes.append(module)
    return homes


def _write(home: Home, weight: np.ndarray, bias: np.ndarray | float, row: int | None = None) -> None:
    where = slice(None) if row is None else row
    if home.bias is None:
        return
    with torch.no_grad():
        home.weight[where] = torch.as_tensor(weight).to(home.weight).reshape(home.weight[where].shape)
        home.bias[where] = torch.as_tensor(bias).to(home.bias)
