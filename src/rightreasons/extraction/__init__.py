"""Run a model over cohorts and keep what it says as evidence: once per need, chunk by chunk, resumable, bounded memory.

wanted      audits and arrays that are asked for → every array to make, in order
recipes     the name of an array → how it is made from a batch
chunks      one cohort: batches through the network, chunks to the disk
severities  how strong SDI's operators may be, calibrated on a baseline
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from rightreasons.audits import Need
from rightreasons.data.cohort import Cohort
from rightreasons.errors import SettingError
from rightreasons.evidence import CHUNK_ROWS, Card, Evidence
from rightreasons.extraction.chunks import CohortArrays, Feed, is_late
from rightreasons.extraction.wanted import named_cohorts, refusal, refuse_other_classes, wanted_arrays
from rightreasons.families import refuse_beyond_limits
from rightreasons.models.classifier import Classifier
from rightreasons.models.running import device_of, on_threads

__all__ = ["card_of", "extract", "named_cohorts", "read", "refusal", "refuse_ragged_chunks"]


def extract(  # noqa: PLR0913  each keyword is a documented setting
    classifier: Classifier,
    cohorts: Cohort | Mapping[str, Cohort],
    needs: Iterable[Need | str] = ("groups", "flips", "probes"),
    *,
    out: str | os.PathLike[str] | None = None,
    training: Cohort | None = None,
    batch: int = 32,
    chunk: int = CHUNK_ROWS,
    device: str | None = None,
    threads: int | None = None,
    workers: int | None = None,
    cache: str | os.PathLike[str] | None = None,
    seed: int = 0,
) -> Evidence:
    """Evidence of one model: what audits need and is not there yet.

    Parameters
    ----------
    cohorts : cohorts by name; or one cohort, whose splits are the names. A single cohort without splits is halved into
        `audit` and `test`; where it has twins, those of the test rows are the cohort `twin`.
    needs : names of audits, or arrays: a `Need`, or a recipe such as "features" (on `test`)
    out : folder of the evidence; in memory by default. What is already in it is not made again.
    training : the rows the model was trained on, where known; by default those of the `train` split that the model says
        it was fitted on
    batch, chunk : images per forward pass, and rows per chunk (a multiple of `batch`, because ragged batches change the
        last bits of a number)
    cache : folder for decoded pixels (`rightreasons.data.facts`); images are decoded on the fly by default
    seed : of the halving of a cohort without splits
    """
    refuse_beyond_limits({"batch": batch, "chunk": chunk, "workers": workers, "threads": threads, "seed": seed})
    refuse_ragged_chunks(batch, chunk)
    named = named_cohorts(cohorts, seed)
    card = card_of(classifier)
    if training is None:
        training = _training(classifier, named)
    place = device_of(device)
    wanted = wanted_arrays(needs, named, classifier)
    refuse_other_classes(classifier, named)
    evidence = Evidence.create(out, card, head=classifier.head_data, training=training, used=classifier.used)
    feed = Feed(batch, chunk, workers, cache)
    cohort_arrays = []
    for name, makers in wanted.items():
        evidence.add(name, named[name])
        unfinished = evidence.unfinished(name, makers)
        cohort_arrays.append(CohortArrays(classifier, evidence, name, named[name], makers, unfinished, feed))
    with on_threads(threads), classifier.evaluating(place):
        for late in (False, True):  # what is made from whole arrays comes when these are whole
            for one in cohort_arrays:
                one.make([array for array in one.makers if is_late(one.makers, array) == late])
    return evidence


def refuse_ragged_chunks(batch: int, chunk: int) -> None:
    """Refuse batches that do not fill a chunk: the last bits of the numbers of a smaller one differ."""
    if chunk % batch == 0:
        return
    fitting = [n for n in range(1, chunk + 1) if chunk % n == 0]
    smaller, larger = [n for n in fitting if n < batch], [n for n in fitting if n > batch]
    nearest = " or ".join(map(str, [*smaller[-1:], *larger[:1]]))
    raise SettingError(
        f"batch is {batch}, and the {chunk} rows of a chunk are not a whole number of such batches: give {nearest}, because an "
        "incomplete batch would change the last bits of an extraction that is resumed"
    )


def read(
    classifier: Classifier,
    cohort: Cohort,
    arrays: Sequence[str] = ("logits",),
    *,
    batch: int = 32,
    device: str | torch.device | None = None,
    threads: int | None = None,
    workers: int | None = None,
    cache: str | os.PathLike[str] | None = None,
) -> dict[str, np.ndarray]:
    """Arrays by recipe ("logits", "features", "spatial", "maps@gradcam", …), rows as in the cohort; the model stays as it was."""
    evidence = extract(
        classifier,
        {"rows": cohort},
        [Need("test", "rows", name) for name in arrays],
        batch=batch,
        chunk=-(-CHUNK_ROWS // batch) * batch,
        device=None if device is None else str(device),
        threads=threads,
        workers=workers,
        cache=cache,
    )
    view = evidence.on("rows")
    return {name: view[name] for name in arrays}


def card_of(classifier: Classifier) -> Card:
    """The card of a classifier's evidence."""
    card = classifier.card
    return Card(
        name=str(card.get("name") or classifier.name),
        architecture=str(card.get("architecture") or classifier.name),
        regime=str(card.get("regime") or ""),
        seed=card.get("seed"),
        target=str(card.get("target") or ""),
        classes=tuple(classifier.classes),
        start=str(card.get("start") or ""),
        model=classifier.fingerprint,
        training=str(classifier.training or ""),
        settings={**dict(card.get("settings") or {}), **_input_of(classifier)},
    )


def _input_of(classifier: Classifier) -> dict[str, Any]:
    """What the network reads and which weights it has, each with where it came from."""
    known = {key: classifier.card[key] for key in ("input", "weights", "says") if classifier.card.get(key)}
    return {"geometry": asdict(classifier.geometry), "mean": list(classifier.mean), "std": list(classifier.std), **known}


def _training(classifier: Classifier, named: Mapping[str, Cohort]) -> Cohort | None:
    train = named.get("train")
    if train is None or classifier.training is None:
        return None
    rows = np.array([i in classifier.used for i in train.id])
    if not rows.any():
        return None
    return train.select(rows, name="train")
