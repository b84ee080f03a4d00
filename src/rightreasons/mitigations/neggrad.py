"""A-NegGrad+: go on training on the task while the features lose the attribute within each class (ART, sec. 4).

    task CE − mu · association CE

The attribute head is trained to predict, the extractor to defeat it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

import numpy as np
from torch import Tensor

from rightreasons.data.cohort import Cohort
from rightreasons.mitigations import card_settings
from rightreasons.mitigations._association import Unlearning
from rightreasons.mitigations._unlearning import Running, begin, finish, refuse_share, strengths, tuned
from rightreasons.models.classifier import Classifier
from rightreasons.models.training import Batch
from rightreasons.models.training_keywords import Training, trains

STARTS = "model"


@trains(epochs=10, patience=None)
def mitigate(
    classifier: Classifier,
    cohort: Cohort,
    *,
    rng: np.random.Generator,
    attribute: str | None = None,
    mu: float | Sequence[float] = (0.03, 0.1, 0.3),
    keep: float = 0.05,
    **training: Unpack[Training],
) -> Classifier:
    """A new model that unlearned the association of `attribute` with the label. What is not explained here is `train`'s.

    Parameters
    ----------
    mu : weight of the association; of several, the best on validation rows is kept
    keep : task accuracy on validation rows (mean over groups) that may be lost
    """
    settings = card_settings(attribute=attribute, mu=mu, keep=keep, **training)
    refuse_share("keep", keep)
    values = strengths("mu", mu)
    start = begin(classifier, cohort, rng, attribute, training["batch"], Running.of(training))
    candidates = tuned(start, lambda head, m: NegGrad(head, start.rows.attribute, m), values, regime="neggrad", training=training)
    return finish(start, "neggrad", settings, candidates, keep)


class NegGrad(Unlearning):
    """The value is task CE − mu · association CE."""

    def forward(self, classifier: Classifier, batch: Batch) -> Tensor:
        z, logits = classifier.read(batch.x)
        return self.task(logits, batch) - self.mu * self.features_only(z, batch) + self.head_only(z, batch)
