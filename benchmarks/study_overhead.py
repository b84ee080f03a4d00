"""What the study layer costs: seconds a unit beside training, extraction and measuring; and a study of 2,000 finished units."""

from __future__ import annotations

import json
import os
import platform
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks._seeds import seeds_of_a_cnn
from rich.console import Console
from rich.table import Table

from rightreasons import families
from rightreasons.extraction import extract, named_cohorts
from rightreasons.files import read_json, write_json
from rightreasons.models.training import train
from rightreasons.stats.resampling import task_rng
from rightreasons.study import Study
from rightreasons.study.checklist import verify
from rightreasons.study.conclude import SUMMARY, summarise
from rightreasons.study.engines import Task
from rightreasons.study.engines.local import Engine
from rightreasons.study.folder import PLAN, ROW, RUN, write_table
from rightreasons.study.performance import performance
from rightreasons.study.planner import load
from rightreasons.study.runs import plan

NEEDS_GPU = False

UNITS, MANY, UNIT_SECONDS = 8, 2_000, 60


def main() -> None:
    """Print the table and, as the last line, the JSON object."""
    os.environ["RIGHTREASONS_QUIET"] = "1"
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "overhead.toml").write_text(seeds_of_a_cnn("overhead", units=UNITS, epochs=3, workers=1))
        study, planning = timed(lambda: plan(folder / "overhead.toml", folder / "study"))
        bare(study, folder / "warm", study.units[:1])  # imports, compiled kernels
        own = bare(study, folder / "bare", study.units)
        through, starting = engine_seconds(study)
        many = grow(study)
        listing = timed(lambda: statuses(Study.open(many)))[1]
        table = timed(lambda: Study.open(many).save_table())[1]
        write_table(summarise(Study.open(many)), many / SUMMARY)
        gaps, verifying = timed(lambda: verify(Study.open(many)))
    # The middle unit: on a busy machine single units are disturbed in both.
    overhead = float(np.median(through) - np.median(own))
    told = {
        "seconds_per_unit_bare": round(float(np.median(own)), 3),
        "seconds_per_unit_in_a_study": round(float(np.median(through)), 3),
        "overhead_seconds_per_unit": round(overhead, 3),
        "overhead_of_a_60_second_unit": round(overhead / UNIT_SECONDS, 5),
        "once_planning_seconds": round(planning, 2),
        "once_starting_workers_seconds": round(starting, 2),
        "list_2000_seconds": round(listing, 2),
        "tabulate_2000_seconds": round(table, 2),
        "verify_2000_seconds": round(verifying, 2),
        "list_tabulate_verify_2000_seconds": round(listing + table + verifying, 2),
    }
    shown = Table("what", "measured", title="The study layer")
    for what, value in {**told, "gaps_found_in_2000": len(gaps)}.items():
        shown.add_row(what.replace("_", " "), str(value))
    Console().print(shown)
    versions = {"python": platform.python_version(), "numpy": np.__version__, "torch": torch.__version__}
    holds = {"under_2_percent": overhead < 0.02 * UNIT_SECONDS, "under_10_seconds": listing + table + verifying < 10}
    print(json.dumps({"name": "study-overhead", **told, **holds, "gaps": len(gaps), "versions": versions}))


def statuses(study: Study) -> dict[str, str]:
    return {unit: study.status(unit) for unit in study.units}


def bare(study: Study, folder: Path, units: tuple[str, ...]) -> list[float]:
    """Seconds of each unit's training, extraction and measuring by the functions themselves; the cohort is read once."""
    cohort = study.cohort("data")
    named = named_cohorts(cohort)
    return [timed(lambda unit=unit: one(study, folder / unit, unit, cohort, named))[1] for unit in units]


def one(study: Study, folder: Path, unit: str, cohort: Any, named: Any) -> None:
    told = study.plan.units[unit]
    model = train(load(told.load, told.seed), cohort, folder=folder / "model", **told.train, threads=1)
    evidence = extract(model, named, study.needs(), out=folder / "evidence", threads=1)
    for audit in study.plan.audits.values():
        module = families.member("audits", audit.method)
        module.measure(evidence, rng=task_rng(0, "measure"), **families.accepted(module.measure, audit.settings))
    performance({"test": evidence.on("test").decisions()}, **study.plan.performance)


def engine_seconds(study: Study) -> tuple[list[float], float]:
    """Seconds of each unit through the engine, from a free worker to its end; and those of the first task that end nothing."""
    engine = Engine(study, workers=1)
    ends: list[float] = []
    began = time.perf_counter()
    try:
        # A task without work waits for the server's imports; what follows finds it ready.
        for unit in (study.units[0], *study.units):
            engine.submit(Task(f"{len(ends)} {unit}", (unit,)))
            while (event := engine.next_event(600)) is None or event.kind == "started":
                pass
            if event.kind != "done":
                raise RuntimeError(f"{unit}: {event.kind} {event.cause}")
            ends.append(time.perf_counter())
    finally:
        engine.close()
    # The first task was the first unit's own, with the imports; the second found it finished.
    return list(np.diff(ends)[1:]), ends[0] - began


def grow(study: Study) -> Path:
    """A study of 2,000 finished units, made of this one's: other names, the same files."""
    folder = study.folder.parent / "many"
    units = {}
    for number in range(MANY):
        source = study.units[number % len(study.units)]
        told = {**study.plan.units[source].model_dump(mode="json"), "seed": number}
        unit = f"cnn-erm-s{number}-{told['hash'][:8]}"
        units[unit] = told
        place = folder / "runs" / unit
        for file in study.path(source).rglob("*"):
            if file.is_file() and "evidence" not in file.parts and file.name not in (RUN, ROW):
                target = place / file.relative_to(study.path(source))
                target.parent.mkdir(parents=True, exist_ok=True)
                os.link(file, target)
        seeds = {"unit": number, "study": 0}
        write_json(place / RUN, {**read_json(study.path(source) / RUN), "unit": unit, "plan": told, "seeds": seeds})
        row = read_json(study.path(source) / ROW)
        write_json(place / ROW, {**row, "unit": unit, "columns": {**row["columns"], "seed": number}})
    write_json(folder / PLAN, {**study.plan.model_dump(mode="json"), "units": units})
    return folder


def timed(run: Callable[[], Any]) -> tuple[Any, float]:
    began = time.perf_counter()
    return run(), time.perf_counter() - began


if __name__ == "__main__":
    main()
