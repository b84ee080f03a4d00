"""The rows of a training run: which fit, which stop, what is right for each, and their pixels."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Generator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from rightreasons.data.cohort import Cohort, hash_of
from rightreasons.data.facts import Facts
from rightreasons.data.images import Geometry
from rightreasons.data.schema import Value
from rightreasons.errors import TrainingError
from rightreasons.models.batches import Pixels, batches
from rightreasons.models.classifier import Classifier
from rightreasons.models.training_plan import Settings
from rightreasons.stats.resampling import task_rng

IN_MEMORY_BYTES = 1 << 30  # of decoded pixels; more are decoded anew in every epoch unless a cache folder keeps them


@dataclass(frozen=True)
class Examples:
    """Rows with what is to be learned from them.

    Attributes
    ----------
    y : (n,) outputs that are right
    weight : (n,) of mean 1
    groups : (n,) codes of the attribute that makes worst groups, -1 where missing
    left_out : rows without target or with weight 0, which are not here
    draw : (n,) chance of each row to be drawn, with replacement; None takes every row once an epoch
    """

    cohort: Cohort
    y: np.ndarray
    weight: np.ndarray
    groups: np.ndarray | None
    left_out: int
    draw: np.ndarray | None = None
    pixels: Pixels | None = None
    workers: int | None = None

    @cached_property
    def columns(self) -> str:
        """Hash of everything that decides training but is not in the cohort's fingerprint."""
        own = [self.y.tolist(), self.weight.tolist(), None if self.groups is None else self.groups.tolist()]
        if self.draw is not None:
            own.append(self.draw.tolist())
        return hash_of([*(json.dumps(part) for part in own), *(self.cohort.column_hash(a) for a in self.cohort.attributes)])

    def steps(self, batch: int) -> int:
        """Number of batches in one epoch."""
        return math.ceil(self._rows_of_an_epoch(batch) / batch)

    def order(self, batch: int, seed: int, epoch: int) -> np.ndarray:
        """Rows of one epoch, shuffled, or drawn."""
        if self.draw is not None:
            rng = task_rng(seed, f"rows drawn for epoch {epoch}")
            return rng.choice(len(self.y), size=self._rows_of_an_epoch(batch), p=self.draw)
        return task_rng(seed, f"order of epoch {epoch}").permutation(len(self.y))[: self._rows_of_an_epoch(batch)]

    def _rows_of_an_epoch(self, batch: int) -> int:
        n = len(self.y)
        return n - 1 if n > batch > 1 and n % batch == 1 else n  # batch normalisation cannot take a single row

    def batches(
        self, model: Classifier, batch: int, order: np.ndarray | None = None
    ) -> Generator[tuple[np.ndarray, Tensor], None, None]:
        return batches(
            self.cohort,
            model.geometry,
            model.mean,
            model.std,
            batch=batch,
            order=order,
            workers=self.workers,
            pixels=self.pixels,
            device=model.device,
        )

    def targets(self, rows: np.ndarray, device: torch.device) -> tuple[Tensor, dict[str, Tensor], Tensor]:
        """`y`, every attribute by name, and `weight` of some rows."""
        y, attributes, weight = self._tensors
        index = torch.from_numpy(rows)
        return y[index].to(device), {name: a[index].to(device) for name, a in attributes.items()}, weight[index].to(device)

    @cached_property
    def _tensors(self) -> tuple[Tensor, dict[str, Tensor], Tensor]:
        attributes = {}
        for name in self.cohort.attributes:
            attributes[name] = torch.from_numpy(self.cohort.attribute(name).values.copy())
        return torch.from_numpy(self.y), attributes, torch.from_numpy(self.weight.astype(np.float32))

    def decoded(self, geometry: Geometry, cache: str | os.PathLike[str] | None, workers: int | None) -> Examples:
        """The same rows with their pixels decoded: kept in `cache`, or in memory where they fit."""
        facts = Facts(cache, self.cohort, geometry, workers=workers)
        at_most = 4 * len(self.y) * math.prod(geometry.size) * geometry.channels
        if cache is not None:
            return replace(self, pixels=facts.pixels(), workers=workers)
        return replace(self, pixels=facts.pixels()[:] if at_most <= IN_MEMORY_BYTES else None, workers=workers)


def examples(
    classifier: Classifier,
    cohort: Cohort,
    stopping: Cohort | None,
    settings: Settings,
    *,
    weights: np.ndarray | None = None,
    draw: np.ndarray | None = None,
) -> tuple[Examples, Examples]:
    """The rows that fit and the rows that stop."""
    weight = _weight(cohort, weights)
    chance = None if draw is None else _weight(cohort, draw)
    if stopping is None and not (cohort.has("train") and cohort.has("val")):
        cohort = cohort.with_roles(rng=task_rng(settings.seed, "roles of the splits"), trains=True)
    if cohort.splits is None:
        fits = np.ones(len(cohort), bool)
    else:
        fits = cohort.splits == "train"
    if not fits.any():
        raise TrainingError(f"cohort {cohort.name!r} has no rows in split 'train': name its training rows so in the split column")
    fit = _complete(cohort.select(fits, name="train"), weight[fits], classifier, settings)
    if chance is not None:
        fit = replace(fit, draw=_chances(fit.cohort, cohort, chance))
    stop_rows = cohort.on("val") if stopping is None else stopping
    stop = _complete(stop_rows, np.ones(len(stop_rows)), classifier, settings)
    what = settings.target or cohort.label_name
    if not len(fit.y) or not len(stop.y):
        name = "training" if not len(fit.y) else "stopping"
        raise TrainingError(
            f"there are no {name} rows with a known {what!r} and a weight above 0: look at that column and at the splits"
        )
    if len(np.unique(fit.y)) < 2:
        value = outputs_of(classifier, cohort, settings.target)[fit.y[0]]
        raise TrainingError(
            f"all {len(fit.y)} training rows have {what!r} = {value!r}, and training needs two classes: "
            "look at that column and at the splits"
        )
    return fit, stop


def outputs_of(classifier: Classifier, cohort: Cohort, target: str | None) -> tuple[Value, ...]:
    """The label value that each output of the trained model stands for."""
    if target is None:
        return tuple(classifier.classes)
    return cohort.attribute(target).levels


def _weight(cohort: Cohort, weights: np.ndarray | None) -> np.ndarray:
    if weights is None:
        own = cohort.weight
    else:
        own = np.asarray(weights, dtype=np.float64)
    if own is None:
        return np.ones(len(cohort))
    if own.shape != (len(cohort),):
        raise TrainingError(
            f"weights have the shape {own.shape}, expected ({len(cohort)},): one per row of cohort {cohort.name!r}"
        )
    odd = ~(np.isfinite(own) & (own >= 0))
    if odd.any():
        raise TrainingError(
            f"{int(odd.sum())} weights of cohort {cohort.name!r} are not numbers of at least 0, first {own[odd][0]} for id "
            f"{cohort.id[odd][0]!r}: 0 leaves a row out"
        )
    return own


def _chances(rows: Cohort, cohort: Cohort, chance: np.ndarray) -> np.ndarray:
    """(n,) chances of some rows of a cohort, summing to 1."""
    place = {name: k for k, name in enumerate(cohort.id)}
    own = chance[[place[name] for name in rows.id]]
    if not own.sum() > 0:
        raise TrainingError(f"no training row of cohort {cohort.name!r} has a chance above 0 to be drawn: look at draw=")
    return own / own.sum()


def _complete(cohort: Cohort, weight: np.ndarray, classifier: Classifier, settings: Settings) -> Examples:
    y = _right_outputs(cohort, classifier, settings.target)
    kept = (y >= 0) & (weight > 0)
    view = cohort.select(kept)
    name = settings.attribute or (cohort.attributes[0] if cohort.attributes else None)
    grouping = None
    if name is not None:
        grouping = view.attribute(name)
    if grouping is None or grouping.kind == "continuous":
        groups = None
    else:
        groups = grouping.values
    return Examples(view, y[kept], weight[kept] / (weight[kept].mean() if kept.any() else 1.0), groups, int((~kept).sum()))


def _right_outputs(cohort: Cohort, classifier: Classifier, target: str | None) -> np.ndarray:
    """(n,) the output that is right for each row, -1 where it is not known."""
    if target is None:
        return _label_outputs(cohort, classifier)
    attribute = cohort.attribute(target)
    if attribute.kind == "continuous":
        raise TrainingError(
            f"target {target!r} is continuous, and a classifier learns classes: "
            f"give bins={{{target!r}: …}} when reading the manifest"
        )
    if len(attribute.levels) != classifier.C:
        raise TrainingError(
            f"target {target!r} has the {len(attribute.levels)} levels {list(attribute.levels)} and "
            f"{classifier.name} has {classifier.C} outputs: load it with num_classes={len(attribute.levels)}"
        )
    return attribute.values.astype(np.int64)


def _label_outputs(cohort: Cohort, classifier: Classifier) -> np.ndarray:
    if not cohort.classes:
        raise TrainingError(f"cohort {cohort.name!r} has no label: give label= when reading the manifest, or train on target=")
    place = {str(value): k for k, value in enumerate(classifier.classes)}
    codes = np.unique(cohort.label[cohort.label >= 0])
    homeless = []
    for code in codes:
        if str(cohort.classes[code]) not in place:
            homeless.append(cohort.classes[code])
    if homeless:
        raise TrainingError(
            f"label {cohort.label_name!r} has the values {list(cohort.classes)} and {classifier.name} the classes "
            f"{list(classifier.classes)}: no output for {homeless}; give classes= when loading it, or mapping= when reading"
        )
    return np.array([*(place.get(str(value), -1) for value in cohort.classes), -1], dtype=np.int64)[cohort.label]
