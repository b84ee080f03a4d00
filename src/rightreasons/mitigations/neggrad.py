"""A-NegGrad+: go on training on the task while the features lose the attribute within each class (ART, sec. 4).

    task CE − mu · association CE

The attribute head is trained to predict, the extractor to defeat it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from rightreasons.data.cohort import Cohort
from rightreasons.mitigations._association import Unlearning
from rightreasons.mitigations._contract import settings_in
from rightreasons.mitigations._unlearning import Running, begin, finish, refuse_share, strengths, tuned
from rightreasons.models.classifier import Classifier
from rightreasons.models.training import Batch

STARTS = "model"


def mitigate(
    classifier: Classifier,
    cohort: Cohort,
    *,
    rng: np.random.Generator,
    attribute: str | None = None,
    mu: float | Sequence[float] = (0.03, 0.1, 0.3),
    keep: float = 0.05,
    epochs: int = 10,
    batch: int = 64,
    lr: float = 1e-3,
    optimizer: Literal["adamw", "adam", "sgd"] = "adamw",
    weight_decay: float = 0.01,
    schedule: Literal["cosine"] | None = "cosine",
    warmup: float = 0.0,
    clip: float | None = 1.0,
    amp: bool | Literal["bf16", "fp16"] | None = None,
    augment: str | None = None,
    folder: str | Path | None = None,
    device: str | torch.device | None = None,
    threads: int | None = None,
    workers: int | None = None,
    cache: str | Path | None = None,
) -> Classifier:
    """A new model that unlearned the association of `attribute` with the label. What is not explained here is `train`'s.

    Parameters
    ----------
    mu : weight of the association; of several, the best on validation rows is kept
    keep : task accuracy on validation rows (mean over groups) that may be lost
    """
    settings = settings_in(mitigate, locals())
    refuse_share("keep", keep)
    values = strengths("mu", mu)
    start = begin(classifier, cohort, rng, attribute, batch, Running(folder, device, threads, workers, cache))
    candidates = tuned(start, lambda head, m: NegGrad(head, start.rows.attribute, m), values, regime="neggrad", settings=settings)
    return finish(start, "neggrad", settings, candidates, keep)


class NegGrad(Unlearning):
    """The value is task CE − mu · association CE."""

    def forward(self, classifier: Classifier, batch: Batch) -> Tensor:
        z, logits = classifier.read(batch.x)
        return self.task(logits, batch) - self.mu * self.features_only(z, batch) + self.head_only(z, batch)
