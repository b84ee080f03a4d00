"""Gradient scaling: learn the label beside an attribute whose gradient reaches the network scaled or reversed (ShorT, Methods).

A branch on the features predicts the attribute. A layer before it is the identity forward and multiplies by `scale` backward: the
branch learns the attribute as well as it can, and the network learns to show it (scale > 0) or to hide it (scale < 0). The branch
is dropped at the end: the model handed on has nothing but its own head.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, Unpack

import numpy as np
import torch
from torch import Tensor, nn

from rightreasons import families
from rightreasons.data.cohort import Cohort
from rightreasons.errors import DataError, SettingError, TrainingError
from rightreasons.evidence import as_outputs
from rightreasons.families import suggest, with_settings
from rightreasons.mitigations import SELECTED, card_settings, handed_on
from rightreasons.models.batched import train_batched
from rightreasons.models.classifier import Classifier
from rightreasons.models.grouped_rows import completed, seed_of
from rightreasons.models.starting import fresh
from rightreasons.models.training import Batch, cross_entropy, train
from rightreasons.models.training_keywords import Training, trains
from rightreasons.stats.resampling import task_rng

STARTS = "start"
CONTINUOUS = True  # takes attributes that form no groups
TOGETHER = ("scale", "lr", "weight_decay")  # settings in which models that train as one may differ, beside the seed

Select = Literal["auc", "accuracy", "balanced_accuracy", "macro_f1", "loss", "wga"]


@dataclass(frozen=True)
class Settings:
    """What can be set of gradient scaling beside the training.

    Parameters
    ----------
    attribute : one or several, categorical or continuous; the cohort's first by default
    scale : of the attribute's gradient on its way into the network, or one per attribute. 0 leaves the branch out: plain training
    weight : of the attribute's loss beside the label's, or one per attribute
    balance : also multiply it by what a constant answer costs on the label over what it costs on the attribute
    divisor : of a continuous attribute's squared error: its training variance, or a number (the paper's 100 for years)
    hidden : widths of the branch's hidden layers
    start : starting weights, see `models.starting.fresh`
    select : metric of the val rows that chooses the epoch. The attribute plays no part in it by default: a sweep asks what the
        gradient does, and a choice by the worst group would do some of it
    """

    attribute: str | Sequence[str] | None = None
    scale: float | Mapping[str, float] = -0.1
    weight: float | Mapping[str, float] = 1.0
    balance: bool = True
    divisor: Literal["variance"] | float = "variance"
    hidden: Sequence[int] = (512, 256)
    start: str | None = None
    select: Select = "auc"


@with_settings(Settings)
@trains()
def mitigate(
    classifier: Classifier, cohort: Cohort, *, rng: np.random.Generator, settings: Settings, **training: Unpack[Training]
) -> Classifier:
    """Train anew with an attribute branch behind a gradient layer. The other keywords are `train`'s.

    Rows without the attribute count for the label alone.
    """
    prepared = _prepared(classifier, cohort, card_settings(**vars(settings), **training), rng)
    return prepared.handed_on(train(prepared.start, prepared.cohort, **{**training, **prepared.training}))


def together(
    classifiers: Sequence[Classifier],
    cohort: Cohort,
    settings: Sequence[Mapping[str, Any]],
    *,
    rngs: Sequence[np.random.Generator],
    folders: Sequence[str | Path] | None = None,
    threads: int | None = None,
) -> list[Classifier | TrainingError]:
    """What `mitigate` gives for each of several models, trained as one batched model (see `models.batched.train_batched`).

    Parameters
    ----------
    settings : keywords of `mitigate`, one mapping a model; they may differ in `TOGETHER`, and where the scale is 0 the branch
        stays, with weight 0, so that all models have one shape
    rngs : one a model; equal ones give equal batches, which makes it faster
    """
    usual = families.settings_of(mitigate)
    prepared, keywords = [], []
    for model, own, rng in zip(classifiers, settings, rngs, strict=True):
        complete = usual | families.only(own, usual)
        model_of = _prepared(model, cohort, card_settings(**complete), rng, always=True)
        prepared.append(model_of)
        keywords.append(model_of.training | families.only(complete, ("device", "workers", "cache")))
    starts = [model_of.start for model_of in prepared]
    mitigated: list[Classifier | TrainingError] = []
    trained = train_batched(starts, prepared[0].cohort, keywords, folders=folders, threads=threads)
    for model_of, new in zip(prepared, trained, strict=True):
        mitigated.append(new if isinstance(new, TrainingError) else model_of.handed_on(new))
    return mitigated


def scales(number: int = 25, largest: float = 0.1, smallest: float = 1e-4) -> list[float]:
    """A sweep: 0 and as many magnitudes of either sign, spaced geometrically down from the largest (Supp. Methods)."""
    if number < 3 or number % 2 == 0 or not 0 < smallest <= largest:
        raise SettingError(
            f"number={number}, smallest={smallest}, largest={largest}: give an odd number and 0 < smallest <= largest"
        )
    magnitudes = np.geomspace(largest, smallest, number // 2)[::-1]
    return [float(s) for s in (*-magnitudes[::-1], 0.0, *magnitudes)]


def scaled(z: Tensor, scale: float | Tensor) -> Tensor:
    """The gradient layer: `z` itself, whose gradient is multiplied by `scale`."""
    fixed = z.detach()
    return fixed + (z - fixed) * scale


@dataclass(frozen=True)
class Branch:
    """One attribute to learn beside the label.

    Attributes
    ----------
    levels : outputs of the branch; 0 for a continuous attribute
    mean, divisor : of a continuous attribute: its training mean, and what its squared error is divided by
    """

    name: str
    scale: float
    weight: float
    levels: int
    mean: float = 0.0
    divisor: float = 1.0

    @property
    def outputs(self) -> int:
        if self.levels in (0, 2):
            return 1
        return self.levels


class WithAttributes(nn.Module):
    """The objective: cross-entropy of the label + for each attribute `weight` times its loss behind the gradient layer.

    An attribute's loss is a binary or multiclass cross-entropy, or a squared error over `divisor`, averaged over the rows of the
    batch that have the attribute.

    Parameters
    ----------
    always : keep branches of scale 0, with weight 0: models that train as one have one shape. Else they are left out altogether
    """

    def __init__(
        self,
        d: int,
        branches: Sequence[Branch],
        *,
        hidden: Sequence[int] = (512, 256),
        rng: np.random.Generator,
        always: bool = False,
    ) -> None:
        super().__init__()
        # Plain numbers that `train` writes into the card, where an audit finds the scale, and in which stacked copies may differ.
        self.attributes = [b.name for b in branches]
        self.scales = [b.scale for b in branches]
        self.weights = [b.weight if b.scale else 0.0 for b in branches]
        self.divisors = [b.divisor for b in branches]
        self.hidden = [int(h) for h in hidden]
        self.learned = [k for k, b in enumerate(branches) if always or b.scale != 0]
        self.heads = nn.ModuleList(_mlp(d, hidden, branches[k].outputs, rng) for k in self.learned)
        self._branches = tuple(branches)

    def forward(self, classifier: Classifier, batch: Batch) -> Tensor:
        if not self.heads:
            return cross_entropy(classifier, batch)
        z, logits = classifier.read(batch.x)
        losses = nn.functional.cross_entropy(logits.float(), batch.y, reduction="none")
        total = (losses * batch.weight).mean()
        for k, head in zip(self.learned, self.heads, strict=True):
            total = total + self.weights[k] * self._loss(self._branches[k], head(scaled(z, self.scales[k])), batch)
        return total

    @staticmethod
    def _loss(branch: Branch, output: Tensor, batch: Batch) -> Tensor:
        a = batch.attributes[branch.name]
        if branch.levels:
            known = a >= 0
        else:
            known = ~a.isnan()
        output, mass = output.float(), batch.weight * known
        if branch.levels == 0:
            target = torch.where(known, (a - branch.mean) / math.sqrt(branch.divisor), 0.0).float()
            losses = (output[:, 0] - target).square()
        elif branch.levels == 2:
            target = torch.where(known, a, 0).float()
            losses = nn.functional.binary_cross_entropy_with_logits(output[:, 0], target, reduction="none")
        else:
            losses = nn.functional.cross_entropy(output, torch.where(known, a, 0).long(), reduction="none")
        return (losses * mass).sum() / known.sum().clamp(min=1)


def _mlp(d: int, hidden: Sequence[int], outputs: int, rng: np.random.Generator) -> nn.Sequential:
    """ReLU layers drawn as nn.Linear draws them, from `rng`."""
    layers: list[nn.Module] = []
    widths = (d, *hidden, outputs)
    for into, out in pairwise(widths):
        layer = nn.utils.skip_init(nn.Linear, into, out)
        with torch.no_grad():
            for parameter in (layer.weight, layer.bias):
                drawn = rng.uniform(-1, 1, tuple(parameter.shape)) / math.sqrt(into)
                parameter.copy_(torch.from_numpy(drawn.astype(np.float32)))
        layers += [layer, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


# ---- what is given -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Prepared:
    """One model to train: from where, on which rows, with which keywords of `train`."""

    given: Classifier
    start: Classifier
    cohort: Cohort
    objective: WithAttributes
    settings: dict[str, Any]
    seed: int

    @property
    def training(self) -> dict[str, Any]:
        own = families.only(self.settings, families.settings_of(train))
        named = {"attribute": self.objective.attributes[0], "stop_on": self.settings["select"]}
        return {**own, **named, "objective": self.objective, "seed": self.seed, "regime": "gradient_scaling"}

    def handed_on(self, new: Classifier) -> Classifier:
        o, select = self.objective, self.settings["select"]
        weights = {"loss weights": {name: round(w, 6) for name, w in zip(o.attributes, o.weights, strict=True) if w}}
        by = SELECTED.get(select, f"validation {select}")
        return handed_on(
            new, self.given, "gradient_scaling", self.settings, selected=select, selected_by=by, keeps=False, chosen=weights
        )


def _prepared(
    classifier: Classifier, cohort: Cohort, settings: dict[str, Any], rng: np.random.Generator, *, always: bool = False
) -> _Prepared:
    names = _names(cohort, settings["attribute"])
    scales, weights = _each(settings["scale"], names, "scale"), _each(settings["weight"], names, "weight")
    divisor, hidden = settings["divisor"], settings["hidden"]
    _refuse(scales, weights, divisor, hidden)
    seed = seed_of(rng)
    cohort = completed(cohort, rng)
    start = fresh(classifier, rng, settings["start"])
    if start.card.get("start") == "fresh" and any(scales.values()):
        # Models of a sweep that begin alike are less independent than their number says.
        start = fresh(start, task_rng(seed, f"starting weights of scales {list(scales.values())}"), "fresh")
    rows = cohort.on("train")
    shares = {}
    for name in names:
        shares[name] = _share(classifier, rows, name) if settings["balance"] else 1.0
    branches = []
    for name in names:
        branches.append(_branch(name, rows, divisor, scales[name], weights[name] * shares[name]))
    objective = WithAttributes(start.d, branches, hidden=hidden, rng=rng, always=always)
    return _Prepared(classifier, start, cohort, objective, settings, seed)


def _names(cohort: Cohort, attribute: str | Sequence[str] | None) -> list[str]:
    if not cohort.attributes:
        raise DataError(f"cohort {cohort.name!r} has no attribute: give attribute= when reading the manifest")
    if attribute is None:
        named = [cohort.attributes[0]]
    else:
        if isinstance(attribute, str):
            named = [attribute]
        else:
            named = list(attribute)
    for name in named:
        if name not in cohort.attributes:
            raise SettingError(f"no attribute {name!r} in cohort {cohort.name!r}; {suggest(name, cohort.attributes)}")
    if not named or len(set(named)) < len(named):
        raise SettingError(f"attribute={named}: name one or several, each once")
    return named


def _each(setting: float | Mapping[str, float], names: Sequence[str], what: str) -> dict[str, float]:
    if not isinstance(setting, Mapping):
        return dict.fromkeys(names, float(setting))
    if set(setting) != set(names):
        raise SettingError(
            f"{what}= names {sorted(setting)} and the attributes are {sorted(names)}: give a number for each of them"
        )
    return {name: float(setting[name]) for name in names}


def _refuse(scales: Mapping[str, float], weights: Mapping[str, float], divisor: str | float, hidden: Sequence[int]) -> None:
    for name, value in scales.items():
        if not math.isfinite(value):
            raise SettingError(f"scale={value} of {name!r}: give a finite number; negative reverses the gradient")
    for name, value in weights.items():
        if not 0 <= value < math.inf:
            raise SettingError(f"weight={value} of {name!r}: give a number of at least 0; a negative scale reverses the gradient")
    if divisor != "variance" and (isinstance(divisor, str) or not 0 < divisor < math.inf):
        raise SettingError(f"divisor={divisor!r}: give 'variance' or a number above 0")
    if any(int(h) < 1 for h in hidden):
        raise SettingError(f"hidden={list(hidden)}: widths are at least 1; an empty list makes the branch linear")


def _branch(name: str, rows: Cohort, divisor: Literal["variance"] | float, scale: float, weight: float) -> Branch:
    a = rows.attribute(name)
    values = a.values[a.present]
    if len(np.unique(values)) < 2:
        raise DataError(
            f"attribute {name!r} has {len(np.unique(values))} values in the train rows, and a branch learns two or more"
        )
    if a.kind == "categorical":
        return Branch(name, scale, weight, len(a.levels))
    by = float(values.var()) if divisor == "variance" else float(divisor)
    return Branch(name, scale, weight, 0, float(values.mean()), by)


def _share(classifier: Classifier, rows: Cohort, name: str) -> float:
    """Entropy of the label over that of the attribute (1 for a continuous one, whose error is in variances)."""
    a = rows.attribute(name)
    label = as_outputs(rows.label, rows.classes, classifier.classes)
    own = 1.0
    if a.kind != "continuous":
        own = _entropy(a.values[a.present])
    if own > 0:
        return _entropy(label[label >= 0]) / own
    return 1.0


def _entropy(codes: np.ndarray) -> float:
    share = np.unique(codes, return_counts=True)[1] / max(1, len(codes))
    return float(-(share * np.log(share)).sum())
