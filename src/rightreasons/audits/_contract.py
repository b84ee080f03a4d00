"""What every audit shares: what it needs, which reference models it asks for, and the context of one run.

An audit is one file with `QUESTION` and `ROW`, two declarations that are plain data, and two steps:

    needs(**settings) -> tuple[Need, ...]        the arrays it reads
    roles(**settings) -> tuple[Role, ...]        the reference models it compares with; empty for audits of one model
    measure(evidence, *, rng, …) -> Measurement  what one model says: a flat frozen dataclass; runs no network
    conclude(measurements, *, rng, …) -> Result  over named models: {role: [Measurement, …]} -> a frozen dataclass with
                                                 a `context` and a `finding()`

A setting is a defaulted keyword of `measure` or `conclude`.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from rightreasons.errors import DataError, NotRun
from rightreasons.evidence import View
from rightreasons.findings import Estimate, Finding, Row
from rightreasons.stats.resampling import Interval


@dataclass(frozen=True)
class Need:
    """An array that an audit reads: of which role's model, on which cohort."""

    role: str
    cohort: str
    array: str
    optional: bool = False  # the audit says less without it, and still runs


@dataclass(frozen=True)
class Role:
    """A reference model that an audit compares with; a study trains it where it is missing."""

    name: str
    regime: str = "erm"
    rows: str = "train"  # train | balanced | redrawn
    target: str = ""  # column it predicts; empty means the label
    groups: int = 0  # a target that is a number is learnt in so many groups of equal size; 0 asks for classes
    stopping: str = "val"  # rows on which its training stops


@dataclass(frozen=True)
class Context:
    """Which run of which audit a result belongs to."""

    name: str = ""
    audit: str = ""
    model: str = ""
    cohort: str = "test"
    attribute: str = ""
    n_rows: int | None = None
    n_subjects: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    seconds: float | None = None

    def finding(self, **content: Any) -> Finding:
        """A finding with everything that this context knows filled in."""
        return Finding(
            **{
                "name": self.name,
                "audit": self.audit,
                "model": self.model,
                "cohort": self.cohort,
                "attribute": self.attribute,
                "n_rows": self.n_rows,
                "n_subjects": self.n_subjects,
                "settings": dict(self.settings),
                "seed": self.seed,
                "seconds": self.seconds,
                **content,
            }
        )


class Result(Protocol):
    """What an audit says over named models."""

    @property
    def context(self) -> Context: ...

    def finding(self) -> Finding: ...


def estimate(name: str, interval: Interval, row: Row, **more: Any) -> Estimate:
    """An interval of the statistics as an estimate of a finding."""
    return Estimate(
        name=name,
        value=interval.value,
        low=interval.low,
        high=interval.high,
        level=interval.level,
        reason=interval.reason,
        row=row,
        **more,
    )


def refuse_mixed_cases(view: View, attribute: str) -> None:
    """A decision over several images has one attribute value, or the audit cannot say whose decision it was."""
    if view.cohort.case is None:
        return
    seen: dict[str, float] = {}
    a = view.cohort.attribute(attribute)
    for case, value in zip(view.cohort.case, np.where(a.present, a.values, -1), strict=True):
        if case and seen.setdefault(case, value) != value:
            raise NotRun(
                f"{attribute} differs between the images of case {case!r}, and one decision has one value: leave case= out, or "
                "name an attribute of the case"
            )


# ---- measurements on disk and in tables ----------------------------------------------------------------------------------

M = TypeVar("M")


def save_measurement(measurement: Any, path: str | Path, **made_from: Any) -> Path:
    """Write a measurement as `.npz`: its arrays as they are, the rest as JSON, under a temporary name and renamed.

    `made_from` is plain data to be kept with it, such as the settings; `made_from(path)` reads it back.
    """
    path = Path(path)
    fields = {f.name: getattr(measurement, f.name) for f in dataclasses.fields(measurement)}
    arrays = {name: value for name, value in fields.items() if isinstance(value, np.ndarray)}
    for name, value in arrays.items():
        if value.dtype.hasobject:
            raise DataError(f"{type(measurement).__qualname__}.{name} is an array of objects; give numbers or a tuple of texts")
    rest = {name: _written(value) for name, value in fields.items() if name not in arrays}
    told = {"class": type(measurement).__qualname__, "made_from": made_from, "fields": rest}
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("wb") as stream:
        content: dict[str, Any] = {_TOLD: np.array(json.dumps(told)), **arrays}
        np.savez(stream, **content)
    partial.replace(path)
    return path


def load_measurement(cls: type[M], path: str | Path) -> M:
    """What `save_measurement` wrote."""
    with np.load(path) as stored:
        told = json.loads(str(stored[_TOLD]))
        if told["class"] != cls.__qualname__:
            raise DataError(f"{path} holds a {told['class']} and not a {cls.__qualname__}")
        arrays = {name: stored[name] for name in stored.files if name != _TOLD}
    return cls(**arrays, **{name: _read(value) for name, value in told["fields"].items()})


def made_from(path: str | Path) -> dict[str, Any]:
    """What was kept with a measurement; empty where there is none."""
    return dict(_told(path)["made_from"]) if Path(path).exists() else {}


def measured_class(path: str | Path) -> str:
    """Name of the class that a measurement was saved as."""
    return str(_told(path)["class"])


def scalars(measurement: Any) -> dict[str, float | int | str]:
    """The numbers and texts of a measurement, for a row of a table; an `Interval` is three of them.

    A measurement that knows better has a method `scalars()` of its own.
    """
    if hasattr(measurement, "scalars"):
        return dict(measurement.scalars())
    found: dict[str, float | int | str] = {}
    for f in dataclasses.fields(measurement):
        value = getattr(measurement, f.name)
        if isinstance(value, Interval):
            found |= spread(f.name, value)
        elif isinstance(value, bool | int | float | str | np.number | np.bool_):
            found[f.name] = value.item() if isinstance(value, np.generic) else value
    return found


def spread(name: str, interval: Interval) -> dict[str, float | int | str]:
    """An interval as columns: the value under the name itself, its limits under `_low` and `_high`."""
    return {name: float(interval.value), f"{name}_low": float(interval.low), f"{name}_high": float(interval.high)}


_TOLD = "rightreasons.measurement"


def _told(path: str | Path) -> dict[str, Any]:
    with np.load(path) as stored:
        found: dict[str, Any] = json.loads(str(stored[_TOLD]))
    return found


def _written(value: Any) -> Any:
    if isinstance(value, Interval):
        return {"Interval": dataclasses.asdict(value)}
    if isinstance(value, Mapping):
        return {"Mapping": [[_written(k), _written(v)] for k, v in value.items()]}
    if isinstance(value, list | tuple):
        return [_written(v) for v in value]
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise DataError(f"a measurement holds arrays, numbers, texts, intervals and tuples of them, not a {type(value).__qualname__}")


def _read(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_read(v) for v in value)
    if isinstance(value, dict):
        ((kind, content),) = value.items()
        return Interval(**content) if kind == "Interval" else {_read(k): _read(v) for k, v in content}
    return value


def subjects_of(view: View) -> int | None:
    """Number of distinct subjects of a view, None where subjects are not known."""
    subject = view.cohort.subject
    return None if subject is None else len(set(subject))
