"""Runs to MLflow or Weights & Biases, by their own libraries, which are imported only where they are asked for.

Where a run goes is theirs to say: MLFLOW_TRACKING_URI, WANDB_MODE=offline, WANDB_DIR and the like.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from rightreasons.errors import SettingError
from rightreasons.families import suggest

MOST_TEXT = 500  # characters of a value that every version of MLflow stores


@dataclass(frozen=True)
class Run:
    """What is logged of one run.

    Attributes
    ----------
    project : what it belongs to: an experiment of MLflow, a project of Weights & Biases
    settings : what was set beforehand
    numbers, words : what came out
    files : what is kept with it, by its name there
    """

    project: str
    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, Path] = field(default_factory=dict)


def tracker(name: str) -> Callable[[Run], None]:
    """A function that logs a run with the library of this name."""
    if name not in TRACKERS:
        raise SettingError(f"cannot log to {name!r}; {suggest(name, TRACKERS)}")
    try:
        library = importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise SettingError(f"logging to {name} needs its library: pip install rightreasons[{EXTRA[name]}]") from error
    return lambda run: TRACKERS[name](library, run)


def _to_mlflow(mlflow: ModuleType, run: Run) -> None:
    try:
        mlflow.set_experiment(run.project)
        with mlflow.start_run(run_name=run.name):
            mlflow.log_params({_plain(key): str(value)[:MOST_TEXT] for key, value in run.settings.items() if value is not None})
            mlflow.log_metrics({_plain(key): float(value) for key, value in run.numbers.items()})
            mlflow.set_tags({_plain(key): value for key, value in run.words.items()})
            for name, path in run.files.items():
                mlflow.log_artifact(str(path), name.rpartition("/")[0] or None)
    except mlflow.exceptions.MlflowException as error:
        raise SettingError(f"MLflow did not take the run: {error}") from error


def _to_wandb(wandb: ModuleType, run: Run) -> None:
    settings = {key: value for key, value in run.settings.items() if value is not None}
    try:
        with wandb.init(project=_plain(run.project, "-")[:128], name=run.name, config=settings) as logged:
            logged.summary.update({**run.numbers, **run.words})
            if run.files:
                artifact = wandb.Artifact(re.sub(r"[^\w.-]", "-", run.name)[:128] or "run", type="audit")
                for name, path in run.files.items():
                    artifact.add_file(str(path), name=name)
                logged.log_artifact(artifact)
    except wandb.errors.Error as error:
        raise SettingError(f"Weights & Biases did not take the run: {error}") from error


def _plain(name: str, allowed: str = " ./-") -> str:
    """A name of the characters that both libraries allow."""
    return re.sub(rf"[^A-Za-z0-9_{re.escape(allowed)}]", "_", name)


TRACKERS: dict[str, Callable[[ModuleType, Run], None]] = {"mlflow": _to_mlflow, "wandb": _to_wandb}
EXTRA = {"mlflow": "track", "wandb": "wandb"}
