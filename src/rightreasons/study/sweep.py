"""The driver of a study: what is missing becomes tasks, an engine runs them, then come the table, the findings and the page."""

from __future__ import annotations

import graphlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from rightreasons.errors import SettingError
from rightreasons.study import summary, track
from rightreasons.study.engines import Engine, Event, Task, connect
from rightreasons.study.engines.local import cores
from rightreasons.study.plan import default_folder, plan
from rightreasons.study.record import DONE, FAILED, RUN, Study, locked, now, read_json, write_json
from rightreasons.study.watch import Watch, duration

POLL_SECONDS = 0.5
SEVERITIES = "severities"  # among the units that wait for each other: their calibration


def sweep(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    retry_failed: bool = True,
    say: Callable[[str], None] = print,
) -> Study:
    """Do what a study lacks and nothing else; a second call goes on where the first was ended.

    Parameters
    ----------
    source : a study.toml, or the folder of a study
    out : the study's folder; `rightreasons-<name>` in the current one by default
    retry_failed : run units that failed in an earlier sweep once more
    """
    study = planned(source, out)
    todo = [unit for unit in study.units if study.missing(unit) and (retry_failed or study.status(unit) != FAILED)]
    say(f"study {study.name} in {study.folder}: {len(study.units)} units, {len(todo)} to do")
    for note in study.plan["notes"]:
        say(note)
    if todo or _uncalibrated(study):
        _run(study, todo)
    study.save_table()
    summary.save_summary(study)
    summary.conclude(study)
    return study


def planned(source: str | os.PathLike[str], out: str | os.PathLike[str] | None = None, *, save: bool = True) -> Study:
    """The study that a file describes, resolved against its data."""
    place = Path(source)
    folder = Path(out) if out is not None else default_folder(place)
    if place.is_dir() and folder.absolute() != place.absolute():
        raise SettingError(f"{place} is a study's own folder; to make another, give its study.toml and --out {folder}")
    return plan(place, folder, save=save)


def dry_run(study: Study) -> pd.DataFrame:
    """A row a unit: its status, the steps it lacks, and the seconds they may take (NaN where nothing like it was timed yet)."""
    typical = _typical_seconds(study)
    rows = []
    for unit in study.units:
        architecture, missing = study.plan["units"][unit]["architecture"], study.missing(unit)
        seconds = sum(typical.get((architecture, step), typical.get(("", step), float("nan"))) for step in missing)
        told = [_after(study, unit) if step == "train" else step for step in missing]
        rows.append({"unit": unit, "status": study.status(unit), "missing": ", ".join(told), "seconds": seconds})
    return pd.DataFrame(rows, columns=["unit", "status", "missing", "seconds"])


def estimate(study: Study, units: pd.DataFrame) -> str:
    """How long what is missing (`units` of `dry_run`) may take, and what the plan has added, in words."""
    return "; ".join([_time(study, units), *study.plan["notes"]])


def _time(study: Study, units: pd.DataFrame) -> str:
    settings = study.plan["engine_settings"]
    workers = settings.get("workers") or max(1, cores() // settings.get("threads", 1))
    todo = units[units["missing"] != ""]
    if not len(todo):
        return "nothing is missing"
    timed = todo["seconds"].dropna()
    if not len(timed):
        return f"{len(todo)} units to do; no unit has been timed yet, so the time is unknown"
    total = duration(timed.mean() * len(todo) / workers)
    return f"{len(todo)} units to do, about {total} at {workers} at a time, from what has been timed so far"


def _after(study: Study, unit: str) -> str:
    """`train`, and which models it waits for."""
    others = study.waits_for(unit)
    more = f" and {len(others) - 1} more" if len(others) > 1 else ""
    return f"train (after {others[0]}{more})" if others else "train"


# ---- running -------------------------------------------------------------------------------------------------------------


@dataclass
class _Graph:
    """Tasks that wait for others."""

    waiting: dict[str, tuple[Task, set[str]]] = field(default_factory=dict)

    def add(self, task: Task, *after: Task) -> Task:
        self.waiting[task.key] = (task, {before.key for before in after})
        return task

    def ready(self) -> Iterator[Task]:
        for key in [key for key, (_, after) in self.waiting.items() if not after]:
            yield self.waiting.pop(key)[0]

    def done(self, task: Task) -> None:
        for _, after in self.waiting.values():
            after.discard(task.key)

    def drop(self, task: Task) -> list[Task]:
        """Give up what waits for a task, and what waits for that."""
        lost = [other for other, after in self.waiting.values() if task.key in after]
        for other in lost:
            self.waiting.pop(other.key, None)
        return lost + [further for other in lost for further in self.drop(other)]


def _run(study: Study, todo: list[str]) -> None:
    driver = study.plan["driver"]
    library = track.tracker(driver["track"])
    graph = tasks(study, todo)
    engine = connect(study.plan["engine"], study.folder, study.plan["engine_settings"])
    tries: dict[str, int] = {}
    open_tasks = 0
    try:
        with Watch(
            f"study {study.name}", len(study.units), len(study.units) - len(todo), engine.workers, _expected(study)
        ) as watch:
            open_tasks += _submit(graph, engine)
            while open_tasks:
                watch.tick()
                event = engine.next_event(POLL_SECONDS)
                if event is None:
                    continue
                if event.kind == "started":
                    watch.started(event.task)
                elif event.kind == "died" and _try_again(study, event, tries, driver["attempts"]):
                    watch.ended(event.task, f"died ({event.cause}), tried again", is_unit=False)
                    engine.submit(event.task)
                else:
                    _settle(study, event, graph, watch)
                    open_tasks += _submit(graph, engine) - 1
                    if event.kind == "done" and event.task.step == "all":
                        track.log(library, study, event.task.units[0])
    finally:
        engine.close()


def _submit(graph: _Graph, engine: Engine) -> int:
    ready = list(graph.ready())
    for task in ready:
        engine.submit(task)
    return len(ready)


def _settle(study: Study, event: Event, graph: _Graph, watch: Watch) -> None:
    """A task is over for good; units that waited for the model of one that failed have failed with it."""
    if event.kind == "done":
        graph.done(event.task)
        watch.ended(event.task, DONE, is_unit=event.task.step == "all")
        return
    lost = graph.drop(event.task)
    over = {unit for task in (event.task, *lost) if task.step == "all" for unit in task.units}
    watch.failed += len(over)
    waited = sorted(over - set(event.task.units))
    with locked(study.folder, waited):
        for unit in waited:
            message = f"{event.task.units[0]}, whose model it needs, has failed: {_why(study, event)}"
            _fail(study, unit, study.run(unit), "DependencyFailed", message)
    watch.ended(event.task, f"failed: {_why(study, event)}", is_unit=False)


def _why(study: Study, event: Event) -> str:
    error = study.run(event.task.units[0]).get("error")
    return event.cause if error is None else f"{error['type']}: {error['message']}"


def _try_again(study: Study, event: Event, tries: dict[str, int], attempts: int) -> bool:
    """Write the cause of a worker's death into run.json of its units; after the last attempt they have failed."""
    tries[event.task.key] = tries.get(event.task.key, 0) + 1
    is_last = tries[event.task.key] >= attempts
    with locked(study.folder, event.task.units):
        for unit in event.task.units:
            told = study.run(unit)
            if study.row(unit) is not None:
                continue
            if not told["attempts"] or told["attempts"][-1]["cause"]:
                told["attempts"].append({"time": now(), "step": event.task.step, "did": [], "cause": ""})
            told["attempts"][-1]["cause"] = event.cause
            told["status"] = "planned"
            if is_last:
                message = f"the worker died {attempts} times, last: {event.cause}; its words are in runs/{unit}/log.txt"
                _fail(study, unit, told, "WorkerDied", message)
            else:
                write_json(study.path(unit) / RUN, told)
    return not is_last


def _fail(study: Study, unit: str, told: dict[str, Any], kind: str, message: str) -> None:
    """Write into run.json that a unit has failed outside a worker."""
    error = {"type": kind, "message": message, "traceback": ""}
    write_json(study.path(unit) / RUN, {**told, "status": FAILED, "finished": now(), "error": error})


def tasks(study: Study, todo: list[str]) -> _Graph:
    """What is missing, as tasks: trainings that others need, batched groups and large extractions come before those units."""
    graph = _Graph()
    untrained = {unit for unit in study.units if "train" in study.missing(unit)}
    waits = {unit: study.waits_for(unit) if unit in untrained else () for unit in todo}
    waits |= _calibration(study, waits)
    needed = {other for others in waits.values() for other in others}
    groups = _groups(study)
    first: dict[str, Task] = {}  # unit → the task that trains it, where that is one of its own
    for unit in _in_order(waits):
        before = [first[other] for other in waits[unit] if other in first]
        if unit == SEVERITIES:
            baseline, *reference = waits[unit]
            first[unit] = graph.add(Task(SEVERITIES, (baseline,), "calibrate", reads=tuple(reference)), *before)
        if unit not in untrained:
            continue
        group = groups.get(unit, ())
        if group and unit not in first:
            together = graph.add(Task(f"{group[0]} and {len(group) - 1} more, batched", group, "train"))
            first |= dict.fromkeys(group, together)
        elif not group and (unit in needed or any(_pieces(study, unit))):
            reads = tuple(other for other in waits[unit] if other != SEVERITIES)
            first[unit] = graph.add(Task(f"{unit} train", (unit,), "train", reads=reads), *before)
    keeper = (study.plan.get("severities") or {}).get("baseline", "")  # the severities lie with its model
    for unit in todo:
        others = () if unit in first else waits[unit]
        after = [first[other] for other in (unit, SEVERITIES, *others) if other in first]
        pieces = [graph.add(p, *after) for p in _pieces(study, unit)] if "extract" in study.missing(unit) else []
        reads = tuple(sorted({*others, keeper} - {unit, SEVERITIES, ""}))
        graph.add(Task(unit, (unit,), reads=reads), *(pieces or after))
    return graph


def _calibration(study: Study, waits: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """What waits for what where severities are to be made: they for their models, and whoever trains with them for them."""
    if not _uncalibrated(study):
        return {}
    models = tuple(filter(None, (study.plan["severities"][key] for key in ("baseline", "reference"))))
    users = {unit: (*others, SEVERITIES) for unit, others in waits.items() if others and study.trains_with_severities(unit)}
    return {**users, SEVERITIES: models}


def _uncalibrated(study: Study) -> bool:
    return study.severities is not None and not study.severities.exists()


def _groups(study: Study) -> dict[str, tuple[str, ...]]:
    """Unit → all units that are trained as one batched model with it."""
    members: dict[str, list[str]] = {}
    for unit in study.units:
        members.setdefault(",".join(study.plan["units"][unit]["batched"]), []).append(unit)
    return {unit: tuple(group) for key, group in members.items() if key for unit in group}


def _in_order(waits: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Units after those whose models they need."""
    return [unit for unit in graphlib.TopologicalSorter(waits).static_order() if unit in waits]


def _pieces(study: Study, unit: str) -> Iterator[Task]:
    """The extraction of large cohorts in pieces of whole chunks."""
    most, chunk = study.plan["driver"]["split_rows"], study.plan["extract"]["chunk"]
    inside = study.plan["cohorts"][study.plan["units"][unit]["cohort"]]["splits"]
    sizes = {
        **inside,
        "twin": inside.get("test", 0),
        **{name: study.plan["cohorts"][name]["rows"] for name in study.external(unit)},
    }
    for cohort in dict.fromkeys(need.cohort for need in study.needs(unit)):
        rows = sizes.get(cohort, 0)
        if rows <= most:
            continue
        step, total = max(1, most // chunk), -(-rows // chunk)
        for lo in range(0, total, step):
            hi = min(lo + step, total)
            yield Task(f"{unit} {cohort} rows {lo * chunk} to {min(hi * chunk, rows)}", (unit,), "extract", cohort, (lo, hi))


# ---- times ---------------------------------------------------------------------------------------------------------------


def _typical_seconds(study: Study) -> dict[tuple[str, str], float]:
    """(architecture, step) → mean seconds of what was timed; the architecture is "" for the mean over all."""
    times: dict[tuple[str, str], list[float]] = {}
    for file in study.folder.glob(f"runs/*/{RUN}"):
        told = read_json(file)
        for step, seconds in told.get("times", {}).items():
            for architecture in (told["plan"]["architecture"], ""):
                times.setdefault((architecture, step), []).append(seconds)
    return {key: sum(values) / len(values) for key, values in times.items()}


def _expected(study: Study) -> float | None:
    typical = _typical_seconds(study)
    steps = [seconds for (architecture, _), seconds in typical.items() if not architecture]
    return sum(steps) if steps else None
