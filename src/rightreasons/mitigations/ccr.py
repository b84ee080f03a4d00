"""CCR: counterfactual consistency. Features and predictions stay under nuisance operators and move under content operators.

Every image is seen three times in a step: as it is, under one nuisance operator (a border, a colour, the device) and under one
content operator (contrast, shapes, patches inside the field of view), in one pass. The loss adds invariance to the first and a
margin for the second to the cross-entropy (SDI and CCR, eq. 7 to 10). No attribute is needed.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import torch
from torch import Tensor, nn

from rightreasons.audits.sdi.severities import CONTENT, DEPENDS, Severities, read_severities
from rightreasons.data.cohort import Cohort
from rightreasons.errors import SettingError
from rightreasons.extraction import read
from rightreasons.families import member, only, with_settings
from rightreasons.mitigations import card_settings, handed_on
from rightreasons.models.classifier import Classifier
from rightreasons.models.grouped_rows import completed, labelled, seed_of, selection
from rightreasons.models.starting import fresh
from rightreasons.models.training import CURVES, Batch, train
from rightreasons.models.training_keywords import Training, trains
from rightreasons.models.training_plan import Metric
from rightreasons.stats.groups import auc

STARTS = "start"
BY_CONSTRUCTION = {
    "sdi": "CCR trains for what SDI measures: a lower index under CCR is by construction, and no evidence that a shortcut is "
    "gone. Look at true flips and at external data."
}
"""Audit → why a change of what it measures is no evidence for this method."""

TOLERANCE = 0.02
STRENGTHS = (10.0, 3.0, 1.0, 0.3)
MOMENTUM = 0.99  # of the running mean feature norm
RECENT = 0.5  # weight of the newest step in what is known of an operator
LEAST = 0.2  # of the mean weight: no operator is forgotten


@dataclass(frozen=True)
class Settings:
    """What can be set of CCR beside the training.

    Parameters
    ----------
    attribute : whose worst group selects the epoch; the loss needs none
    strength : lambda_CCR (eq. 10). None: the largest of `strengths` with which the validation AUC stays within 0.02 of the
        baseline's, which is the model given or, where that was never trained here, the same network without consistency
    representation, prediction, sensitivity : weights of the parts: invariance of features, of predictions (lambda_p, eq. 7), and
        the margin (lambda_c, eq. 9); 0 leaves a part out
    margin : m (eq. 8), in mean feature norms
    normalised : distances in running mean feature norms, so that a margin means the same for every network; False is the paper's
    focus : draw nuisance operators in proportion to how much predictions still move under them. Alike (False, the paper's) the
        one operator that takes the cue comes up too seldom to matter among a dozen others
    severities : file of `extraction.severities.calibrate`; without it reference severities
    operators : nuisance operators to use. By default those on which the calibration's baseline depends, where there are such:
        the others take content with them and give nothing back. Else all
    start : starting weights, see `models.starting.fresh`
    """

    attribute: str | None = None
    strength: float | None = None
    strengths: Sequence[float] = STRENGTHS
    representation: float = 1.0
    prediction: float = 1.0
    sensitivity: float = 1.0
    margin: float = 0.3
    normalised: bool = True
    focus: bool = True
    severities: str | None = None
    operators: Sequence[str] | None = None
    start: str | None = None
    select: Metric | None = None

    def candidates(self) -> list[float]:
        """Strengths to try, the largest first."""
        given = self.strengths
        if self.strength is not None:
            given = (self.strength,)
        candidates = sorted(map(float, given), reverse=True)
        if not candidates or min(*candidates, self.representation, self.prediction, self.sensitivity, self.margin) < 0:
            raise SettingError(
                f"strength={self.strength}, strengths={list(self.strengths)}, representation={self.representation}, "
                f"prediction={self.prediction}, sensitivity={self.sensitivity}, margin={self.margin}: give numbers of at least "
                "0, and one strength or more"
            )
        return candidates


@with_settings(Settings)
@trains()
def mitigate(
    classifier: Classifier, cohort: Cohort, *, rng: np.random.Generator, settings: Settings, **training: Unpack[Training]
) -> Classifier:
    """Train anew for consistency; the epoch is chosen on the val rows. The other keywords are `train`'s."""
    candidates = settings.candidates()
    card = card_settings(**vars(settings), **training)
    seed = seed_of(rng)
    cohort = completed(cohort, rng)
    by = settings.select or selection(classifier, cohort, settings.attribute)
    labelled(classifier, cohort.on("val"), settings.attribute)
    begin = fresh(classifier, rng, settings.start)
    operators = _operators(read_severities(settings.severities, settings.operators), settings.operators is None)
    folder = None
    if training["folder"] is not None:
        folder = Path(training["folder"])

    def trained(weight: float) -> Classifier:
        objective = Consistency(
            operators,
            strength=weight,
            representation=settings.representation,
            prediction=settings.prediction,
            sensitivity=settings.sensitivity,
            margin=settings.margin,
            normalised=settings.normalised,
            focus=settings.focus,
        )
        own: Training = {**training}
        if folder is not None and settings.strength is None:
            own["folder"] = folder / _folder_name(weight)
        return train(
            begin,
            cohort,
            objective=objective if weight else None,
            attribute=settings.attribute,
            stop_on=by,
            seed=seed,
            regime="ccr",
            **own,
        )

    def validation_auc(model: Classifier) -> float:
        return _validation_auc(model, cohort, only(training, ("device", "threads", "workers", "cache")))

    if settings.strength is not None:
        chosen = {"strength": settings.strength}
        return handed_on(trained(settings.strength), classifier, "ccr", card, selected=by, keeps=False, chosen=chosen)
    is_trained = classifier.training is not None or bool(classifier.card.get("regime"))
    baseline = validation_auc(classifier if is_trained else trained(0.0))
    choice = _largest_acceptable(candidates, trained, validation_auc, baseline - TOLERANCE)
    if folder is not None:
        shutil.copy(folder / _folder_name(choice.strength) / CURVES, folder / CURVES)
    chosen = {
        "strength": choice.strength,
        "validation AUC": round(choice.auc, 6),
        "validation AUC of the baseline": round(baseline, 6),
        "within the tolerance": bool(choice.auc >= baseline - TOLERANCE),
    }
    return handed_on(choice.model, classifier, "ccr", card, selected=by, keeps=False, chosen=chosen)


@dataclass(frozen=True)
class _Choice:
    model: Classifier
    strength: float
    auc: float


def _largest_acceptable(
    descending: Sequence[float], trained: Callable[[float], Classifier], auc: Callable[[Classifier], float], least: float
) -> _Choice:
    """The model of the largest strength whose AUC is at least `least`; of the smallest where none is."""
    for strength in descending:
        model = trained(strength)
        choice = _Choice(model, strength, auc(model))
        if choice.auc >= least:
            break
    return choice


def _operators(calibrated: Severities, is_free: bool) -> dict[str, float]:
    """Nuisance operator → severity; where the choice is free, those on which the calibration's baseline depends."""
    dependent = [severity for severity in calibrated.used if severity.status == DEPENDS]
    chosen = dependent if is_free and dependent else calibrated.used
    return {severity.operator: severity.severity for severity in chosen}


def _folder_name(strength: float) -> str:
    return f"strength-{strength:g}"


class Consistency(nn.Module):
    """The objective: cross-entropy + strength · (invariance + sensitivity · margin loss), eq. 7 to 10.

    Parameters
    ----------
    operators : nuisance operator → severity
    focus : draw them in proportion to how much predictions still move under them, else all alike
    """

    norm: Tensor
    moved: Tensor

    def __init__(
        self,
        operators: dict[str, float],
        *,
        strength: float = 1.0,
        representation: float = 1.0,
        prediction: float = 1.0,
        sensitivity: float = 1.0,
        margin: float = 0.3,
        normalised: bool = True,
        focus: bool = True,
    ) -> None:
        super().__init__()
        if not operators:
            raise SettingError("every nuisance operator was excluded: consistency needs one")
        self.nuisance = [(getattr(member("perturbations", "nuisance"), name), s) for name, s in operators.items()]
        self.content = [(getattr(member("perturbations", "content"), name), s) for name, s in CONTENT.items()]
        self.strength, self.representation, self.prediction = strength, representation, prediction
        self.sensitivity, self.margin, self.normalised = sensitivity, margin, normalised
        self.focus = focus
        self.register_buffer("norm", torch.zeros(()))
        self.register_buffer("moved", torch.ones(len(self.nuisance)))

    def forward(self, classifier: Classifier, batch: Batch) -> Tensor:
        which = self.draw(batch.generator)
        z, logits = (t.float() for t in classifier.read(torch.cat([batch.x, *self.changed(classifier, batch, which)])))
        supervised = nn.functional.cross_entropy(logits[: len(batch.x)], batch.y, reduction="none")
        scale = self._scale(z[: len(batch.x)])
        (z, z_nc, z_c), (said, said_nc, _) = z.chunk(3), logits.chunk(3)
        self._remember(which, said, said_nc)
        losses = supervised + self.strength * self.consistency(z, z_nc, z_c, said, said_nc, scale)
        return (losses * batch.weight).mean()

    def consistency(
        self, z: Tensor, z_nc: Tensor, z_c: Tensor, logits: Tensor, logits_nc: Tensor, scale: Tensor | float = 1.0
    ) -> Tensor:
        """(b,) L_CCR of each image (eq. 9), distances divided by `scale`."""
        p = _probability(logits)
        p_nc = _probability(logits_nc)
        invariance = self.representation * (z - z_nc).square().sum(1) / scale**2
        invariance = invariance + self.prediction * (p - p_nc).square().sum(1)
        # The square root has no gradient at 0, where an operator changed nothing.
        away = ((z - z_c).square().sum(1) + 1e-12).sqrt() / scale
        return invariance + self.sensitivity * (self.margin - away).clamp(min=0)

    def _scale(self, z: Tensor) -> Tensor:
        """The detached running mean norm of the features (the unit of eq. 1)."""
        with torch.no_grad():
            now = z.norm(dim=1).mean()
            self.norm.copy_(torch.where(self.norm > 0, MOMENTUM * self.norm + (1 - MOMENTUM) * now, now))
        if self.normalised:
            return self.norm.clamp(min=1e-6)
        return torch.ones_like(self.norm)

    @torch.no_grad()
    def _remember(self, which: int, logits: Tensor, logits_nc: Tensor) -> None:
        """How much predictions move under a nuisance operator, as a running mean."""
        now = (_probability(logits) - _probability(logits_nc)).square().sum(1).mean()
        self.moved[which] = RECENT * now + (1 - RECENT) * self.moved[which]

    def draw(self, generator: torch.Generator) -> int:
        """The nuisance operator of a step; an operator that was never drawn counts as one that moves everything."""
        if self.focus:
            weight = self.moved + LEAST * self.moved.sum() / len(self.moved)
        else:
            weight = torch.ones_like(self.moved)
        return int(torch.multinomial(weight, 1, generator=generator))

    @torch.no_grad()
    def changed(self, classifier: Classifier, batch: Batch, which: int) -> tuple[Tensor, Tensor]:
        """(b, c, h, w) every image under the nuisance operator `which`, and under a content operator.

        All images of a step share the two operators, not what these draw: more operators would cost more than the network.
        """
        x = batch.x
        shape = (1, -1, *(1 for _ in x.shape[2:]))
        mean = x.new_tensor(classifier.mean).view(shape)
        std = x.new_tensor(classifier.std).view(shape)
        pixels = (x.float() * std + mean).clamp(0, 1)
        seeds = torch.randint(2**62, (2, len(x)), generator=batch.generator, device=x.device)
        content = int(torch.randint(len(self.content), (), generator=batch.generator, device=x.device))
        first, second = (
            (operator(pixels, own, severity=severity) - mean) / std
            for (operator, severity), own in zip((self.nuisance[which], self.content[content]), seeds)
        )
        return first, second


def _probability(logits: Tensor) -> Tensor:
    """(b, 1) of the second of two classes, (b, C) of more."""
    p = logits.softmax(1)
    if p.shape[1] == 2:
        return p[:, 1:]
    return p


def _validation_auc(classifier: Classifier, cohort: Cohort, running: dict[str, Any]) -> float:
    rows = labelled(classifier, cohort.on("val"), None)
    logits = torch.from_numpy(read(classifier, rows.cohort, ("logits",), **running)["logits"]).double()
    return auc(rows.y, logits.softmax(1).numpy())
