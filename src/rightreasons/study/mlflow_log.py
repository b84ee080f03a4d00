"""Finished units to MLflow, where `track = "mlflow"` asks for it (pip install rightreasons[track])."""

from __future__ import annotations

import importlib
import math
from types import ModuleType
from typing import Any

from rightreasons.errors import SettingError
from rightreasons.study.folder import Study


def tracker(name: str) -> ModuleType | None:
    """The library that logs, None where nothing is asked for."""
    if not name:
        return None
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise SettingError(f"track = {name!r} needs {name}: pip install rightreasons[track], or leave track out") from error


def log(library: ModuleType | None, study: Study, unit: str) -> None:
    """One MLflow run for each unit, in the experiment of the study's name: its plan as parameters, its numbers as metrics."""
    row = study.row(unit)
    if library is None or row is None:
        return
    plan = study.plan.units[unit].columns
    library.set_experiment(study.name)
    with library.start_run(run_name=unit):
        library.log_params({key: value for key, value in plan.items() if value is not None})
        library.log_metrics({key: float(value) for key, value in row["columns"].items() if key not in plan and _is_number(value)})


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
