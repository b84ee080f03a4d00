"""The driver of a study: what is missing becomes tasks, an engine runs them, then come the table, the findings and the page."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from rightreasons.errors import SettingError
from rightreasons.files import read_json, write_json
from rightreasons.progress import duration
from rightreasons.seal import renew, seal
from rightreasons.study import logged
from rightreasons.study.conclude import SUMMARY, conclude
from rightreasons.study.engines import Engine, Event, connect
from rightreasons.study.engines.local import cores
from rightreasons.study.file import parsed, read_text
from rightreasons.study.folder import ASKED, CONCLUDED, DONE, FAILED, PLAN, RUN, TABLE, Study, locked, now
from rightreasons.study.live import Watch
from rightreasons.study.runs import default_folder, plan
from rightreasons.study.tasks import Graph, tasks, uncalibrated
from rightreasons.trust import trusting

POLL_SECONDS = 0.5


def sweep(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    retry_failed: bool = True,
    say: Callable[[str], None] = print,
    trust: str | Sequence[str] = (),
) -> Study:
    """Do what a study lacks and nothing else; a second call goes on where the first was ended.

    Parameters
    ----------
    source : a study.toml, or the folder of a study
    out : the study's folder; `rightreasons-<name>` in the current one by default
    retry_failed : run units that failed in an earlier sweep once more
    trust : modules of your own that the file names and whose code may run; no file can say so itself
    """
    with trusting(trust):
        return run(planned(source, out), retry_failed=retry_failed, say=say)


def run(study: Study, *, retry_failed: bool = True, say: Callable[[str], None] = print) -> Study:
    """Do what a planned study lacks: train, extract and measure its units, then conclude over them."""
    todo = []
    for unit in study.units:
        if study.missing(unit) and (retry_failed or study.status(unit) != FAILED):
            todo.append(unit)
    lacks_something, concluded = bool(todo) or uncalibrated(study), _when_concluded(study)
    if not study.plan.brought:
        say(f"study {study.name} in {study.folder}: {len(study.units)} units, {len(todo)} to do")
    for note in study.plan.notes:
        say(note)
    if study.plan.brought:
        _work_here(study, todo)
        _raise_failure(study)
    elif lacks_something:
        _drive(study, todo)
    conclude(study)
    if lacks_something or _when_concluded(study) != concluded:
        seal(study.folder, inputs=_inputs(study))
    else:
        renew(study.folder, _written_by_planning(study))
    return study


def _when_concluded(study: Study) -> int:
    """When the findings were last made; 0 where they never were."""
    file = study.folder / CONCLUDED
    return file.stat().st_mtime_ns if file.is_file() else 0


def _inputs(study: Study) -> dict[str, Path]:
    """The files that a study was read from: its table, and the weights of the model that was brought."""
    file = study.folder / ASKED
    if not file.is_file():
        return {}
    asked = parsed(read_text(file), file, Path(study.plan.base))
    given: dict[str, str | None] = {}
    if asked.data is not None:
        given["table"] = asked.data.manifest
    if asked.model is not None:
        given["checkpoint"] = asked.model.keywords.get("checkpoint")
    if asked.model is not None and asked.model.model is not None:
        given["model"] = f"{asked.model.model}/model.safetensors"
    return {what: Path(path) for what, path in given.items() if path is not None and Path(path).is_file()}


def _written_by_planning(study: Study) -> list[str]:
    """What is written again whenever a study is opened to run, though nothing is missing."""
    cohorts = [f"cohorts/{name}.parquet" for name in study.plan.cohorts]
    return [PLAN, ASKED, TABLE, SUMMARY, *cohorts]


def planned(source: str | os.PathLike[str], out: str | os.PathLike[str] | None = None, *, save: bool = True) -> Study:
    """The study that a file describes, resolved against its data."""
    place = Path(source)
    if out is not None:
        folder = Path(out)
    else:
        folder = default_folder(place)
    if place.is_dir() and folder.absolute() != place.absolute():
        raise SettingError(f"{place} is a study's own folder; to make another, give its study.toml and --out {folder}")
    return plan(place, folder, save=save)


def dry_run(study: Study) -> pd.DataFrame:
    """A row a unit: its status, the steps it lacks, and the seconds they may take (NaN where nothing like it was timed yet)."""
    typical = _typical_seconds(study)
    rows = []
    for unit in study.units:
        architecture, missing = study.plan.units[unit].architecture, study.missing(unit)
        seconds = sum(typical.get((architecture, step), typical.get(("", step), float("nan"))) for step in missing)
        steps = [_after(study, unit) if step == "train" else step for step in missing]
        rows.append({"unit": unit, "status": study.status(unit), "missing": ", ".join(steps), "seconds": seconds})
    return pd.DataFrame(rows, columns=["unit", "status", "missing", "seconds"])


def estimate(study: Study, units: pd.DataFrame) -> str:
    """How long what is missing (`units` of `dry_run`) may take, and what the plan has added, in words."""
    return "; ".join([_time(study, units), *study.plan.notes])


def _time(study: Study, units: pd.DataFrame) -> str:
    settings = study.plan.engine_settings
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
    more = ""
    if len(others) > 1:
        more = f" and {len(others) - 1} more"
    if not others:
        return "train"
    return f"train (after {others[0]}{more})"


# ---- running -------------------------------------------------------------------------------------------------------------


def _work_here(study: Study, todo: list[str]) -> None:
    """Do the tasks of a brought model in this process, which has the model and its rows in memory."""
    from rightreasons.study.unit import work  # it runs networks

    graph = tasks(study, todo)
    while ready := list(graph.ready()):
        for task in ready:
            if work(study, task) == "done":
                graph.done(task)
            else:
                graph.drop(task)


def _raise_failure(study: Study) -> None:
    """An error of the brought model's own work ends the audit, as the error that it was."""
    error = study.held.errors.get(study.plan.brought)
    if error is not None and study.status(study.plan.brought) == FAILED:
        raise error


def _drive(study: Study, todo: list[str]) -> None:
    driver = study.plan.driver
    log = logged.to(driver.track, study)
    graph = tasks(study, todo)
    engine = connect(study.plan.engine, study, study.plan.engine_settings)
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
                elif event.kind == "died" and _try_again(study, event, tries, driver.attempts):
                    watch.ended(event.task, f"died ({event.cause}), tried again", is_unit=False)
                    engine.submit(event.task)
                else:
                    _settle(study, event, graph, watch)
                    open_tasks += _submit(graph, engine) - 1
                    if event.kind == "done" and event.task.step == "all":
                        log(event.task.units[0])
    finally:
        engine.close()


def _submit(graph: Graph, engine: Engine) -> int:
    ready = list(graph.ready())
    for task in ready:
        engine.submit(task)
    return len(ready)


def _settle(study: Study, event: Event, graph: Graph, watch: Watch) -> None:
    """A task is over for good; units that waited for the model of one that failed have failed with it."""
    if event.kind == "done":
        graph.done(event.task)
        watch.ended(event.task, DONE, is_unit=event.task.step == "all")
        return
    lost = graph.drop(event.task)
    over = {unit for task in (event.task, *lost) if task.step == "all" for unit in task.units}
    watch.failed += len(over)
    waited = sorted(over - set(event.task.units))
    with locked(study.paths(waited)):
        for unit in waited:
            message = f"{event.task.units[0]}, whose model it needs, has failed: {_why(study, event)}"
            _fail(study, unit, study.run(unit), "DependencyFailed", message)
    watch.ended(event.task, f"failed: {_why(study, event)}", is_unit=False)


def _why(study: Study, event: Event) -> str:
    error = study.run(event.task.units[0]).get("error")
    if error is None:
        return event.cause
    return f"{error['type']}: {error['message']}"


def _try_again(study: Study, event: Event, tries: dict[str, int], attempts: int) -> bool:
    """Write the cause of a worker's death into run.json of its units; after the last attempt they have failed."""
    tries[event.task.key] = tries.get(event.task.key, 0) + 1
    is_last = tries[event.task.key] >= attempts
    with locked(study.paths(event.task.units)):
        for unit in event.task.units:
            record = study.run(unit)
            if study.row(unit) is not None:
                continue
            if not record["attempts"] or record["attempts"][-1]["cause"]:
                record["attempts"].append({"time": now(), "step": event.task.step, "did": [], "cause": ""})
            record["attempts"][-1]["cause"] = event.cause
            record["status"] = "planned"
            if is_last:
                message = f"the worker died {attempts} times, last: {event.cause}; its words are in runs/{unit}/log.txt"
                _fail(study, unit, record, "WorkerDied", message)
            else:
                write_json(study.path(unit) / RUN, record)
    return not is_last


def _fail(study: Study, unit: str, record: dict[str, Any], kind: str, message: str) -> None:
    """Write into run.json that a unit has failed outside a worker."""
    error = {"type": kind, "message": message, "traceback": ""}
    write_json(study.path(unit) / RUN, {**record, "status": FAILED, "finished": now(), "error": error})


# ---- times ---------------------------------------------------------------------------------------------------------------


def _typical_seconds(study: Study) -> dict[tuple[str, str], float]:
    """(architecture, step) → mean seconds of what was timed; the architecture is "" for the mean over all."""
    times: dict[tuple[str, str], list[float]] = {}
    for file in study.folder.glob(f"runs/*/{RUN}"):
        record = read_json(file)
        for step, seconds in record.get("times", {}).items():
            for architecture in (record["plan"]["architecture"], ""):
                times.setdefault((architecture, step), []).append(seconds)
    return {key: sum(values) / len(values) for key, values in times.items()}


def _expected(study: Study) -> float | None:
    typical = _typical_seconds(study)
    steps = []
    for (architecture, _), seconds in typical.items():
        if not architecture:
            steps.append(seconds)
    if not steps:
        return None
    return sum(steps)
