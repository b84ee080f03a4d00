"""Finished units to MLflow or Weights & Biases, where `track` asks for it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from rightreasons.study.folder import Study
from rightreasons.tracking import Run, tracker


def to(name: str, study: Study) -> Callable[[str], None]:
    """A function that logs a finished unit; it does nothing where nothing is asked for."""
    if not name:
        return lambda unit: None
    log = tracker(name)

    def one(unit: str) -> None:
        run = run_of(study, unit)
        if run is not None:
            log(run)

    return one


def run_of(study: Study, unit: str) -> Run | None:
    """A unit's plan as settings and its numbers, in the project of the study's name; None where it is not done."""
    row = study.row(unit)
    if row is None:
        return None
    plan = study.plan.units[unit].columns
    numbers = {key: float(value) for key, value in row["columns"].items() if key not in plan and _is_number(value)}
    return Run(study.name, unit, settings=plan, numbers=numbers)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
