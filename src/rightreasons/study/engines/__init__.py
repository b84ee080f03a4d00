"""Where the tasks of a study run. An engine is one file of this folder with a class `Engine`.

    Engine(study, *, workers=None, threads=1, …)    its keywords are keys of [engine_settings] in study.toml
    workers                                         how many tasks run at once
    submit(task)                                    queue it; returns at once
    next_event(timeout)                             what has happened to one of them, None if nothing did in `timeout` seconds
    close()                                         end what runs

A worker calls `rightreasons.study.unit.work(study.folder, task)` with the plan's number of threads. Before an engine reports
`done` or `failed`, what the task wrote under `runs/` lies in the driver's folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol

from rightreasons import families
from rightreasons.study.folder import Study

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
"""What a worker's environment must say before numpy is imported, each the number of threads."""


@dataclass(frozen=True)
class Task:
    """One thing to do.

    Parameters
    ----------
    key : unique among the tasks of a sweep
    units : one, or the members of a batched group
    step : all that a unit lacks, its training or (part of) an extraction alone, or the calibration of severities on it
    cohort, pieces : of an extraction that is split: chunks `pieces[0]` to `pieces[1]` of that cohort's rows
    reads : other units, whose models it reads
    calibration : which of the plan's severities, of a calibration
    """

    key: str
    units: tuple[str, ...]
    step: Literal["all", "train", "extract", "calibrate"] = "all"
    cohort: str = ""
    pieces: tuple[int, int] | None = None
    reads: tuple[str, ...] = ()
    calibration: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Task:
        pieces = plain["pieces"]
        named = {key: tuple(plain[key]) for key in ("units", "reads")}
        return cls(**{**plain, **named, "pieces": None if pieces is None else (pieces[0], pieces[1])})


@dataclass(frozen=True)
class Event:
    """What happened to a task: `failed` is an error that run.json keeps, `died` a process that ended without a word."""

    kind: Literal["started", "done", "failed", "died"]
    task: Task
    cause: str = ""
    seconds: float = 0.0


class Engine(Protocol):
    workers: int

    def submit(self, task: Task) -> None: ...

    def next_event(self, timeout: float) -> Event | None: ...

    def close(self) -> None: ...


def settings_of(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The full settings of an engine; an unknown key is an error."""
    return families.resolve(dict(given), families.member("study.engines", name).Engine, where=f"engine {name!r}")


def connect(name: str, study: Study, settings: Mapping[str, Any]) -> Engine:
    """The engine of that name, at work on a study."""
    engine: Engine = families.member("study.engines", name).Engine(study, **settings_of(name, settings))
    return engine
