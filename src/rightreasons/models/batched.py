"""Many small classifiers trained as one batched model (torch.func): the losses of `training.train` for each, in far fewer kernels.

What `train` does one after the other is done for S seeds x L settings at once. Models of one seed share their batches, so that
their first layer is one product. Everything a model leaves behind is what `train` would leave.
"""

from __future__ import annotations

import copy
import inspect
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, nullcontext
from dataclasses import dataclass, field, fields
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from rightreasons.data.cohort import Cohort
from rightreasons.data.schema import hash_of
from rightreasons.errors import SettingError, TrainingError
from rightreasons.families import suggest
from rightreasons.models import training
from rightreasons.models._examples import Examples, examples
from rightreasons.models._meter import Meter
from rightreasons.models._plan import Settings, claim, write
from rightreasons.models._stacked import StackedOptimizer, schedule_factors
from rightreasons.models.classifier import Classifier
from rightreasons.models.training import Batch, Objective, evaluate, train

VARIES = ("seed", "lr", "weight_decay")
"""Settings in which the models of one group may differ, beside `regime` and the numbers of their objectives."""

MOST_PARAMETERS = 2_000_000
GROUP = "group.pt"
TRIAL_TOLERANCE = 1e-3


def train_batched(
    classifiers: Sequence[Classifier],
    cohort: Cohort,
    settings: Sequence[Mapping[str, Any]],
    *,
    folders: Sequence[str | os.PathLike[str]] | None = None,
    threads: int | None = None,
) -> list[Classifier | TrainingError]:
    """Train copies of networks of one architecture as one; every result is that of `train` within float tolerance.

    A model that stops early, or whose loss is no longer finite, leaves the group: the others go on, and in its place the list
    has its TrainingError.

    Parameters
    ----------
    settings : keywords of `train`, one mapping a model; equal but for `VARIES`, `regime`, and numbers that objectives of one class
        (or `functools.partial` of one function) hold as attributes
    folders : one a model, for what `train` writes. The first also holds the group's checkpoint: a second call with the same
        plan goes on after the last whole epoch. A model's plan names its group, because the others may change its last bits.
    threads : overrides those of `settings`
    """
    members = _members(classifiers, cohort, settings, folders, threads)
    group = _Group(members)
    places = [m.folder for m in members]
    if all(place is not None and claim(place, m.plan) for place, m in zip(places, members)):
        (Path(places[0] or "") / GROUP).unlink(missing_ok=True)
        return [training._finished(Path(m.folder or ""), m.objective, m.classifier) for m in members]
    first = members[0]
    with training._threads(first.settings.threads), training._own_randomness(group.device):
        group.decode()
        reason = group.refusal()
        if reason:
            raise TrainingError(f"{len(members)} copies of {first.classifier.name} cannot train as one: {reason}")
        group.begin()
        group.resume(first.folder)
        _loop(group, first.folder)
        done = [group.finish(m) for m in members]
    if first.folder is not None and not group.errors:
        (first.folder / GROUP).unlink(missing_ok=True)
    return done


def refusal(classifier: Classifier) -> str:
    """Why copies of this network cannot be trained as one; empty if they can."""
    size = sum(p.numel() for p in classifier.module.parameters())
    if size > MOST_PARAMETERS:
        return f"it has {size:,} parameters, and batching serves small networks of at most {MOST_PARAMETERS:,}"
    x = torch.randn(4, classifier.geometry.channels, *classifier.geometry.size, generator=torch.Generator().manual_seed(0))
    y = torch.arange(4) % classifier.C
    return _trial(classifier.copy(), training.cross_entropy, _Seen(x.to(classifier.device), y, {}, torch.ones(4)))


def is_small(classifier: Classifier) -> bool:
    """Whether batching pays: kernels so short that starting them is most of the time."""
    with torch.no_grad(), _Work() as work:
        x = torch.zeros(2, classifier.geometry.channels, *classifier.geometry.size, device=classifier.device)
        classifier.logits(x)
    return work.products / 2 <= SMALL_PRODUCTS


# ---- the group ----------------------------------------------------------------------------------------------------------


@dataclass
class _Member:
    """One model of a group: what was asked for, and what has come of it so far."""

    number: int
    classifier: Classifier
    settings: Settings
    objective: Objective
    fit: Examples
    stop: Examples
    augment: training.Augment | None
    folder: Path | None
    workers: int | None
    cache: str | os.PathLike[str] | None
    plan: dict[str, Any] = field(default_factory=dict)
    curves: list[dict[str, float]] = field(default_factory=list)
    best: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class _Seen:
    """What a vmapped loss sees of a batch: x, y, attributes and weight of one seed, or of all along a first axis."""

    x: Tensor
    y: Tensor
    attributes: dict[str, Tensor]
    weight: Tensor

    def __iter__(self) -> Any:
        return iter((self.x, self.y, self.attributes, self.weight))
