"""JTT: what an early ERM model gets wrong is upweighted in a second training (Liu et al. 2021, algorithm 1).

Needs no attribute to train. The epochs of stage one and the upweighting are chosen on `val`, by worst-group accuracy where the
attribute is known there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Unpack

import numpy as np
import torch
from torch import Tensor

from rightreasons import files
from rightreasons.data.cohort import Cohort
from rightreasons.errors import SettingError, TrainingError
from rightreasons.evidence import as_outputs
from rightreasons.families import with_settings, without
from rightreasons.mitigations import card_settings, handed_on
from rightreasons.models.batches import batches
from rightreasons.models.classifier import Classifier
from rightreasons.models.grouped_rows import Select, completed, row_weights, seed_of, selection
from rightreasons.models.starting import fresh
from rightreasons.models.training import Batch, cross_entropy, train
from rightreasons.models.training_keywords import Training, trains

STARTS = "start"
AUTO = "training"


@dataclass(frozen=True)
class Settings:
    """What can be set of JTT beside the training.

    Parameters
    ----------
    attribute : whose worst group selects; it is not trained on
    early : epochs of stage one (T)
    early_lr : a tenth of `lr` by default. At the full rate the errors of an early network with batch normalisation jump from
        class to class between epochs; at this one they settle on the rows that disagree with what is learnt first.
    upweight : lambda
    weight : "copies": an error counts as lambda + 1 copies of its row, as in the released code; "paper": as lambda
    start : starting weights of both stages, see `models.starting.fresh`
    select : "wga" or "accuracy" of the val rows; by default the first where the attribute makes groups there
    """

    attribute: str | None = None
    early: Sequence[int] = (2, 4, 8)
    early_lr: float | None = None
    upweight: Sequence[float] = (5.0, 20.0, 50.0)
    weight: Literal["copies", "paper"] = "copies"
    start: str | None = None
    select: Select | None = None

    def refuse_wrong(self) -> None:
        fitting = self.early and self.upweight and min(self.early) >= 1 and min(self.upweight) > 0
        if not fitting or self.weight not in ("copies", "paper"):
            raise SettingError(
                f"early={list(self.early)}, upweight={list(self.upweight)}, weight={self.weight!r}: give epochs of at least 1, "
                "upweights above 0, and copies or paper"
            )


@with_settings(Settings)
@trains(patience=None)
def mitigate(
    classifier: Classifier, cohort: Cohort, *, rng: np.random.Generator, settings: Settings, **training: Unpack[Training]
) -> Classifier:
    """Train twice anew; the second time for every pair of `early` and `upweight`, and keep the pair that is best on the val rows.

    Stage one trains at the rate `early_lr` throughout; stage two at `lr` by the schedule. Of equally good pairs the first is
    kept. A number of epochs after which there is no error, or the same errors as after fewer, is not tried again. Stage one and
    every pair have a folder in `folder`, and what is finished there is not done again.
    """
    settings.refuse_wrong()
    card = card_settings(**vars(settings), **training)
    attribute = settings.attribute
    seed = seed_of(rng)
    cohort = completed(cohort, rng)
    by = settings.select or selection(classifier, cohort, attribute)
    starting = fresh(classifier, rng, settings.start)
    given_folder = training.pop("folder")
    folder = None if given_folder is None else Path(given_folder)
    both: dict[str, Any] = {**training, "attribute": attribute, "stop_on": by, "seed": seed}
    stage_one = without(both, ("epochs", "schedule", "warmup"))
    stage_one["lr"] = training["lr"] / 10 if settings.early_lr is None else settings.early_lr
    errors = _different(early_errors(starting, cohort, settings.early, folder, **stage_one))
    if not errors:
        raise TrainingError(
            f"stage one makes no error on the train rows after {', '.join(map(str, settings.early))} epochs, so that nothing can "
            "be upweighted: give fewer epochs in early=, or a lower lr"
        )
    tried: list[dict[str, Any]] = []
    best, chosen = starting, dict[str, Any]()  # there is at least one pair
    for T, wrong in errors.items():
        for lam in settings.upweight:
            own_folder = None
            if folder is not None:
                own_folder = folder / f"early-{T}-upweight-{lam:g}"
            weights = upweighted(cohort, wrong, lam, settings.weight)
            new = train(starting, cohort, weights=weights, regime="jtt", folder=own_folder, **both)
            pair = {"early": T, "upweight": lam, "errors": len(wrong), by: new.card["metric"]["value"]}
            if not chosen or pair[by] > chosen[by]:  # of equal ones the first stays
                best, chosen = new, pair
            tried.append(pair)
    return handed_on(best, classifier, "jtt", card, selected=by, keeps=False, chosen={**chosen, "tried": tried})


def upweighted(cohort: Cohort, wrong: frozenset[str], lam: float, weight: str = "copies") -> np.ndarray:
    """(n,) weight of every row: its own, times lambda + 1 ("copies") or lambda ("paper") where its id is among the errors."""
    return row_weights(cohort) * np.where([name in wrong for name in cohort.id], lam + (weight == "copies"), 1.0)


def early_errors(
    starting: Classifier, cohort: Cohort, early: Sequence[int], folder: Path | None, **training: Any
) -> dict[int, frozenset[str]]:
    """Ids of the train rows that ERM gets wrong after each number of epochs."""
    train_rows = cohort.on("train")
    y = as_outputs(train_rows.label, train_rows.classes, starting.classes)
    rows, y = train_rows.select(y >= 0), y[y >= 0]
    seen: dict[int, frozenset[str]] = {}

    def look(epoch: int, model: Classifier) -> None:
        wrong = sorted(map(str, rows.id[_predicted(model, rows, training["batch"]) != y]))
        seen[epoch] = frozenset(wrong)
        if folder is not None:
            files.write(_errors_file(folder, epoch), json.dumps(wrong))

    wanted = sorted(set(map(int, early)))
    # An epoch more than needed: the weights after T epochs are those at the beginning of the next.
    erm = {**training, "patience": None, "epochs": wanted[-1] + 1, "schedule": None, "regime": "jtt stage one"}
    train(starting, cohort, objective=Looking(wanted, look), folder=None if folder is None else folder / STAGE_ONE, **erm)
    for epoch in set(wanted) - set(seen):  # seen by an earlier run
        if folder is not None:
            seen[epoch] = frozenset(json.loads(_errors_file(folder, epoch).read_text()))
    return {epoch: seen[epoch] for epoch in wanted}


STAGE_ONE = "stage-one"


def _errors_file(folder: Path, epoch: int) -> Path:
    return folder / STAGE_ONE / f"errors-{epoch}.json"


class Looking:
    """Cross-entropy that shows the model to `look(epoch, model)` when `epoch` epochs are over, before the next begins."""

    def __init__(self, epochs: Sequence[int], look: Callable[[int, Classifier], None]) -> None:
        self.epochs = tuple(epochs)
        self._look = look
        self._last = 0

    def __call__(self, classifier: Classifier, batch: Batch) -> Tensor:
        if batch.epoch != self._last and batch.epoch in self.epochs:
            classifier.module.eval()
            self._look(batch.epoch, classifier)
            classifier.module.train()
        self._last = batch.epoch
        return cross_entropy(classifier, batch)


def _different(errors: dict[int, frozenset[str]]) -> dict[int, frozenset[str]]:
    """Errors by epoch, without epochs that made no error or the same errors as an earlier one."""
    kept: dict[int, frozenset[str]] = {}
    for epoch, wrong in errors.items():
        if wrong and wrong not in kept.values():
            kept[epoch] = wrong
    return kept


def _predicted(model: Classifier, rows: Cohort, batch: int) -> np.ndarray:
    """(n,) outputs of a model in evaluation mode, in full precision."""
    stream = batches(rows, model.geometry, model.mean, model.std, batch=batch, device=model.device)
    with closing(stream), torch.no_grad(), torch.autocast(model.device.type, enabled=False):
        return torch.cat([model.logits(x).argmax(dim=1) for _, x in stream]).cpu().numpy()
