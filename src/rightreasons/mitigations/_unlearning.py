"""What the unlearning methods share: the model they start from with its rows and association, and which of their models is kept.

A model is kept for its validation WGA among those that still do the task: accuracy at most `keep` below that of the model given.
That accuracy is the mean over the (label, attribute) groups that WGA counts, because on rows that carry the association plain
accuracy takes the shortcut's hits for skill and would refuse every model that has unlearned it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rightreasons.data.cohort import Cohort, hash_of
from rightreasons.errors import SettingError
from rightreasons.evidence import as_outputs
from rightreasons.extraction import read
from rightreasons.mitigations import handed_on
from rightreasons.mitigations._association import Association, Unlearning, fit_association
from rightreasons.models.classifier import Classifier
from rightreasons.models.grouped_rows import Rows, Select, completed, grouped, score, seed_of, selection
from rightreasons.models.running import device_of, on_threads
from rightreasons.models.trained import save_state
from rightreasons.models.training import train
from rightreasons.models.training_keywords import Places, Training
from rightreasons.stats import groups

Candidate = tuple[Classifier, dict[str, Any]]  # a model, and the settings that made it


class Running:
    """Where and how a method runs."""

    def __init__(
        self,
        folder: str | Path | None,
        device: str | torch.device | None,
        threads: int | None,
        workers: int | None,
        cache: str | Path | None,
    ) -> None:
        self.folder = None if folder is None else Path(folder)
        self.device = device_of(device)
        self.threads, self.workers, self.cache = threads, workers, cache

    @classmethod
    def of(cls, given: Training | Places) -> Running:
        return cls(given["folder"], given["device"], given["threads"], given["workers"], given["cache"])

    @property
    def keywords(self) -> dict[str, Any]:
        """As keywords of functions that run the network."""
        return {"device": self.device, "threads": self.threads, "workers": self.workers, "cache": self.cache}

    def on_threads(self) -> AbstractContextManager[None]:
        return on_threads(self.threads)


@dataclass(frozen=True)
class Start:
    """The model given, the rows it unlearns with, and the association that its features carry.

    Attributes
    ----------
    cohort : with all roles
    rows : training rows whose label and attribute are known
    val : validation rows
    by : what selects
    key : of the model and the training rows
    """

    classifier: Classifier
    cohort: Cohort
    rows: Rows
    val: Rows
    by: Select
    association: Association
    key: str
    seed: int
    batch: int
    runs: Running


def begin(
    classifier: Classifier, cohort: Cohort, rng: np.random.Generator, attribute: str | None, batch: int, runs: Running
) -> Start:
    """Rows and association of a model that is to unlearn."""
    seed = seed_of(rng)
    cohort = completed(cohort, rng)
    rows = grouped(classifier, cohort.on("train"), attribute)
    val, by = _validation(classifier, cohort, rows.attribute)
    key = hash_of([classifier.fingerprint, rows.cohort.fingerprint, rows.cohort.column_hash("label"), rows.group.tobytes().hex()])

    def fitted() -> dict[str, Tensor]:
        with runs.on_threads():
            return fit_association(classifier, rows, batch=batch, **runs.keywords).state_dict()

    state = remembered(runs.folder, "association.pt", key, fitted)
    association = Association(*(state[name] for name in ("share", "mean", "scale")))
    association.load_state_dict(state)
    return Start(classifier, cohort, rows, val, by, association, key, seed, batch, runs)


def tuned(
    start: Start,
    make: Callable[[Association, float], Unlearning],
    mu: Sequence[float],
    *,
    regime: str,
    training: Training,
) -> list[Candidate]:
    """The model given, trained on by an objective at every strength; each is at its best validation epoch."""
    candidates = []
    for strength in mu:
        objective = make(copy.deepcopy(start.association), strength)
        if start.runs.folder is None:
            place = None
        else:
            place = start.runs.folder / f"mu-{strength:g}"
        here: Training = {**training, "device": start.runs.device, "folder": place}
        try:
            made = train(
                start.classifier, start.cohort, objective=objective, attribute=start.rows.attribute, stop_on=start.by,
                seed=start.seed, regime=regime, **here,
            )  # fmt: skip
        finally:
            objective.release()
        candidates.append((made, {"mu": strength, "epoch": made.card["selected_epoch"]}))
    return candidates


def finish(
    start: Start, regime: str, settings: Mapping[str, Any], candidates: Iterable[Candidate], keep: float, **told: Any
) -> Classifier:
    """The candidate with the best validation score among those that still do the task, with its card; else the model as it was.

    A candidate must not lower the WGA of the model given either; of equal ones the one that does the task better is kept.
    """
    before, by = scores(start, start.classifier), start.by
    tried: list[dict[str, Any]] = []
    best: Candidate | None = None
    for model, made_by in candidates:
        candidate = {**made_by, **scores(start, model)}
        tried.append(candidate)
        does_the_task = candidate["task_accuracy"] >= before["task_accuracy"] - keep
        if (
            does_the_task
            and (by == "accuracy" or candidate[by] >= before[by])
            and (best is None or _rank(candidate, by) > _rank(best[1], by))
        ):
            best = (model, candidate)
    chosen: dict[str, Any] = {"before": before, "tried": tried, "too_few_validation_rows": _uncounted(start), **told}
    if best is None:
        chosen["unchanged"] = (
            f"no candidate kept the task accuracy on validation rows within {keep:g} of {before['task_accuracy']:.3f}"
            f"{f' and validation WGA at {before[by]:.3f} or above' if by == 'wga' else ''}: the model is as it was given"
        )
    if best is None:
        model, candidate = (start.classifier.copy(), before)
    else:
        model, candidate = best
    fitted = {*start.rows.cohort.id, *start.val.cohort.id}
    chosen = {**candidate, **chosen}
    return handed_on(model, start.classifier, regime, settings, selected=start.by, fitted=fitted, chosen=chosen, seed=start.seed)


def _rank(scores: Mapping[str, float], by: str) -> tuple[float, float]:
    return scores[by], scores["task_accuracy"]


def scores(start: Start, model: Classifier) -> dict[str, float]:
    """What selects and what must be kept, on the validation rows."""
    rows = start.val
    logits = read(model, rows.cohort, batch=start.batch, **start.runs.keywords)["logits"]
    accuracy = score(rows, logits, "accuracy")
    if start.by == "accuracy" or rows.a is None:
        return {"accuracy": accuracy, "task_accuracy": accuracy}
    predicted = logits.argmax(axis=1)
    left_out = groups.worst_group(rows.y, predicted, rows.a).left_out
    counted = []
    for group, share in groups.group_accuracy(rows.y, predicted, rows.a).items():
        if group not in left_out:
            counted.append(share)
    return {"wga": score(rows, logits, "wga"), "accuracy": accuracy, "task_accuracy": float(np.mean(counted))}


def strengths(name: str, given: float | Sequence[float]) -> tuple[float, ...]:
    """One or several values of a setting, all above 0."""
    if isinstance(given, Sequence):
        values = tuple(given)
    else:
        values = (given,)
    if not values or not all(isinstance(value, int | float) and 0 < value < np.inf for value in values):
        raise SettingError(f"{name} is {given}: give a number above 0, or several to select from")
    return tuple(map(float, values))


def refuse_share(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise SettingError(f"{name} is {value}: give a share from 0 to 1")


def remembered(folder: Path | None, name: str, key: str, make: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
    """What `make` gives, kept in a file: a GPU does not give the same bits twice, and a resumed run must go on with them."""
    if folder is None:
        return make()
    file = folder / name
    if file.exists():
        stored = torch.load(file, map_location="cpu", weights_only=True)
        if stored["key"] == key:
            return dict(stored["made"])
    made = {part: tensor.cpu() for part, tensor in make().items()}
    save_state(file, {"key": key, "made": made})
    return made


def _validation(classifier: Classifier, cohort: Cohort, attribute: str) -> tuple[Rows, Select]:
    """The validation rows, and what selects on them: accuracy where they lack the attribute."""
    rows = cohort.on("val")
    if rows.complete(attribute).any():
        return grouped(classifier, rows, attribute), selection(classifier, cohort, attribute)
    y = as_outputs(rows.label, rows.classes, classifier.classes)
    return Rows(rows.select(y >= 0), y[y >= 0], None, attribute, (tuple(classifier.classes), ()), int((y < 0).sum())), "accuracy"


def _uncounted(start: Start) -> list[str]:
    """Groups that have too few validation rows for WGA, so that selection ignores them."""
    if start.val.a is None:
        return []
    size = np.bincount(start.val.group, minlength=start.val.C * start.val.A)
    seen = np.bincount(start.rows.group, minlength=len(size)) > 0
    return [start.val.name(int(g)) for g in np.flatnonzero(seen & (size < groups.SMALLEST_GROUP))]
