"""What a training run leaves behind: the best model with its card, its curves, and the state of its objective."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from rightreasons import files
from rightreasons.models._examples import Examples, outputs_of
from rightreasons.models.classifier import Classifier
from rightreasons.models.training_plan import Settings

CHECKPOINT, CURVES, OBJECTIVE = "checkpoint.pt", "curves.csv", "objective.pt"


@dataclass(frozen=True)
class Outcome:
    """How a training run ended.

    Attributes
    ----------
    selected : number of the epoch that was kept, counted from 1
    curves : one row for each epoch
    objective : state of the objective after that epoch, empty where it has none
    device, precision : of the training steps; None is float32
    """

    settings: Settings
    selected: int
    curves: Sequence[Mapping[str, float]]
    objective: Mapping[str, Any]
    device: torch.device
    precision: torch.dtype | None


@dataclass(frozen=True)
class Given:
    """What a training run was given: the classifier, the rows that fit and stop, and the plan of it all."""

    classifier: Classifier
    fit: Examples
    stop: Examples
    plan: Mapping[str, Any]


def finish(model: Classifier, outcome: Outcome, given: Given, folder: Path | None) -> Classifier:
    """The trained model, evaluating and on the device of the classifier given, with its card; saved where there is a folder."""
    model = model.to(given.classifier.device)
    model.module.eval()
    model.classes = outputs_of(given.classifier, given.fit.cohort, outcome.settings.target)
    model.used = frozenset(given.classifier.used) | set(given.fit.cohort.id) | set(given.stop.cohort.id)
    model.training = given.fit.cohort.fingerprint
    model.card = _card(outcome, given)
    if folder is not None:
        if outcome.objective:
            save_state(folder / OBJECTIVE, outcome.objective)
        model.save(folder)
        (folder / CHECKPOINT).unlink(missing_ok=True)
    return model


def finished(folder: Path, objective: Any, given: Classifier) -> Classifier:
    """The model of a finished run; the objective gets the state that goes with it."""
    if (folder / OBJECTIVE).exists() and hasattr(objective, "load_state_dict"):
        objective.load_state_dict(torch.load(folder / OBJECTIVE, map_location="cpu", weights_only=True))
    (folder / CHECKPOINT).unlink(missing_ok=True)
    return Classifier.open(folder, module=given.copy().module).to(given.device)


def save_state(path: Path, state: Any) -> None:
    """Write tensors and plain values with `torch.save`; the file appears whole or not at all."""
    with files.replacing(path) as partial, partial.open("wb") as stream:  # by its own name torch would write another file
        torch.save(state, stream)


def save_curves(folder: Path, curves: Sequence[Mapping[str, float]]) -> None:
    files.write(folder / CURVES, pd.DataFrame(curves).to_csv(index=False))


def copied(state: Any) -> Any:
    """A copy of the state, on the CPU."""
    if isinstance(state, Tensor):
        return state.detach().to("cpu", copy=True)
    if isinstance(state, Mapping):
        return {key: copied(value) for key, value in state.items()}
    return state


def ask_objective(objective: Any, name: str, default: Any, *arguments: Any) -> Any:
    """Call a method of the objective; the default where it has no such method."""
    if hasattr(objective, name):
        return getattr(objective, name)(*arguments)
    return default


def _card(outcome: Outcome, given: Given) -> dict[str, Any]:
    settings, classifier, fit, stop = outcome.settings, given.classifier, given.fit, given.stop
    is_fresh = classifier.training is None and classifier.card.get("start") == "fresh"
    selected_row = outcome.curves[outcome.selected - 1]
    return {
        **({"name": classifier.card["name"]} if classifier.card.get("name") else {}),
        "architecture": classifier.card.get("architecture") or classifier.name,
        "regime": settings.regime,
        "seed": settings.seed,
        "target": settings.target or "",  # empty is the label, whatever its column is called elsewhere
        "start": "fresh" if is_fresh else classifier.fingerprint,
        "settings": {**asdict(settings), "objective": given.plan["objective"], "augment": given.plan["augment"]},
        "rows": {"train": len(fit.y), "stopping": len(stop.y)},
        "left_out": {"train": fit.left_out, "stopping": stop.left_out},
        "selected_epoch": outcome.selected,
        "metric": {"name": settings.stop_on, "value": selected_row[f"val_{settings.stop_on}"]},
        "curves": [_without_times(row) for row in outcome.curves],
        "ran": {
            "device": outcome.device.type,
            "threads": torch.get_num_threads(),
            "precision": str(outcome.precision or torch.float32),
        },
        "versions": {name: version(name) for name in ("rightreasons", "torch", "numpy")},
    }


def _without_times(row: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in row.items() if not name.startswith("time_")}
