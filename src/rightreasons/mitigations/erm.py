"""ERM: train anew, every row alike. What the other mitigations are compared with (ART, sec. 5)."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import torch

from rightreasons.data.cohort import Cohort
from rightreasons.mitigations._contract import Select, completed, fresh, handed_on, seed_of, selection, settings_in
from rightreasons.models.classifier import Classifier
from rightreasons.models.training import train

STARTS = "start"


def mitigate(
    classifier: Classifier,
    cohort: Cohort,
    *,
    rng: np.random.Generator,
    attribute: str | None = None,
    start: str | None = None,
    select: Select | None = None,
    epochs: int = 20,
    batch: int = 64,
    lr: float = 1e-3,
    optimizer: Literal["adamw", "adam", "sgd"] = "adamw",
    weight_decay: float = 0.01,
    schedule: Literal["cosine"] | None = "cosine",
    warmup: float = 0.0,
    patience: int | None = 5,
    clip: float | None = 1.0,
    amp: bool | Literal["bf16", "fp16"] | None = None,
    augment: str | None = None,
    folder: str | Path | None = None,
    device: str | torch.device | None = None,
    threads: int | None = None,
    workers: int | None = None,
    cache: str | Path | None = None,
) -> Classifier:
    """Cross-entropy on the train rows; the epoch is chosen on the val rows. What is not explained here is `train`'s.

    Parameters
    ----------
    attribute : whose worst group selects; the cohort's first by default
    start : starting weights, see `_contract.fresh`
    select : "wga" or "accuracy" of the val rows; by default the first where the attribute makes groups there
    """
    settings = settings_in(mitigate, locals())
    seed = seed_of(rng)
    cohort = completed(cohort, rng)
    by = select or selection(classifier, cohort, attribute)
    new = train(
        fresh(classifier, rng, start), cohort, attribute=attribute, epochs=epochs, batch=batch, lr=lr, optimizer=optimizer,
        weight_decay=weight_decay, schedule=schedule, warmup=warmup, stop_on=by, patience=patience, clip=clip, amp=amp,
        augment=augment, seed=seed, folder=folder, device=device, regime="erm", threads=threads, workers=workers, cache=cache,
    )  # fmt: skip
    return handed_on(new, classifier, "erm", settings, selected=by, keeps=False)
