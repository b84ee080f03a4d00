"""A-SCRUB: keep what a frozen teacher says while the features lose the attribute within each class (ART, sec. 4).

Steps alternate between

    min   T² · KL(teacher ‖ student at temperature T = 4) + task CE
    max   association CE

The last epochs have only the first kind, as in SCRUB, so that what the ascent disturbed is mended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
import torch
from torch import Tensor, nn

from rightreasons.data.cohort import Cohort
from rightreasons.errors import SettingError
from rightreasons.families import with_settings
from rightreasons.mitigations import card_settings
from rightreasons.mitigations._association import Association, Unlearning
from rightreasons.mitigations._unlearning import Running, begin, finish, refuse_share, strengths, tuned
from rightreasons.models.classifier import Classifier
from rightreasons.models.training import Batch
from rightreasons.models.training_keywords import Training, trains

STARTS = "model"


@dataclass(frozen=True)
class Settings:
    """What can be set of A-SCRUB beside the training.

    Parameters
    ----------
    mu : weight of the association in the ascent; of several, the best on validation rows is kept
    teacher : weight of the KL divergence from the model given
    ascent : share of the epochs, from the first, in which every other step ascends
    keep : task accuracy on validation rows (mean over groups) that may be lost
    """

    attribute: str | None = None
    mu: float | Sequence[float] = (0.1, 0.3, 1.0)
    temperature: float = 4.0
    teacher: float = 1.0
    ascent: float = 0.7
    keep: float = 0.05


@with_settings(Settings)
@trains(epochs=10, patience=None)
def mitigate(
    classifier: Classifier, cohort: Cohort, *, rng: np.random.Generator, settings: Settings, **training: Unpack[Training]
) -> Classifier:
    """A new model that unlearned the association of `attribute` with the label. The other keywords are `train`'s."""
    temperature, teacher = settings.temperature, settings.teacher
    refuse_share("keep", settings.keep)
    refuse_share("ascent", settings.ascent)
    if not 0 < temperature < np.inf or not 0 <= teacher < np.inf:
        raise SettingError(f"temperature is {temperature} and teacher {teacher}: give a number above 0, and one of at least 0")
    values = strengths("mu", settings.mu)
    start = begin(classifier, cohort, rng, settings.attribute, training["batch"], Running.of(training))
    ascends = round(settings.ascent * training["epochs"])

    def objective(head: Association, m: float) -> Scrub:
        return Scrub(head, start.rows.attribute, m, of=classifier, ascends=ascends, temperature=temperature, teacher=teacher)

    candidates = tuned(start, objective, values, regime="scrub", training=training)
    return finish(start, "scrub", card_settings(**vars(settings), **training), candidates, settings.keep)


def distillation(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """T² · KL(teacher ‖ student) of logits (b, C) at a temperature, mean over rows."""
    log_student = torch.log_softmax(student.float() / temperature, dim=1)
    log_teacher = torch.log_softmax(teacher.float() / temperature, dim=1)
    return nn.functional.kl_div(log_student, log_teacher, reduction="batchmean", log_target=True) * temperature**2


class Scrub(Unlearning):
    """Even steps of the first `ascends` epochs ascend on the association, all others descend on teacher and task."""

    def __init__(
        self,
        association: Association,
        attribute: str,
        mu: float,
        *,
        of: Classifier,
        ascends: int,
        temperature: float,
        teacher: float,
    ) -> None:
        super().__init__(association, attribute, mu)
        self.ascends, self.temperature, self.teacher = ascends, temperature, teacher
        self._teacher = of.copy()  # a Classifier is no module: its weights are neither trained nor stored with the checkpoints
        self._teacher.module.eval()

    def to(self, *args: Any, **kwargs: Any) -> Scrub:
        self._teacher.module.to(*args, **kwargs)
        return super().to(*args, **kwargs)

    def forward(self, classifier: Classifier, batch: Batch) -> Tensor:
        z, logits = classifier.read(batch.x)
        if batch.epoch < self.ascends and batch.step % 2 == 0:
            return -self.mu * self.features_only(z, batch) + self.head_only(z, batch)
        with torch.no_grad():
            said = self._teacher.logits(batch.x)
        kept = self.teacher * distillation(logits, said, self.temperature)
        return kept + self.task(logits, batch) + self.head_only(z, batch)
