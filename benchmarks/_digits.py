"""The small CNN that benchmarks train on planted digits."""

from __future__ import annotations

from typing import Any

import numpy as np

from rightreasons.data.cohort import Cohort
from rightreasons.models.classifier import Classifier
from rightreasons.models.training import train

# All epochs: the cue alone has a good score on rows biased like the training rows, and patience would end there.
PLAN: dict[str, Any] = {"epochs": 12, "lr": 3e-3, "batch": 64, "patience": None}


def trained_cnn(cohort: Cohort, seed: int, target: str | None = None, **plan: Any) -> Classifier:
    """Trained on the label, or on an attribute; `plan` overrides keywords of `train`."""
    classes = cohort.classes if target is None else cohort.attribute(target).levels
    start = Classifier.load(
        "rightreasons.models.small:small_cnn",
        num_classes=len(classes),
        classes=classes,
        size=(32, 32),
        mean=0.5,
        std=0.5,
        rng=np.random.default_rng(seed),
    )
    return train(start, cohort, target=target, seed=seed, **{**PLAN, **plan})
