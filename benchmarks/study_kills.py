"""A study of 30 small CNNs whose driver, or whose workers, are killed (SIGKILL) 10 times: the same table as undisturbed?"""

from __future__ import annotations

import json
import multiprocessing
import os
import platform
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from benchmarks._thirty import thirty_units
from rich.console import Console
from rich.table import Table

from rightreasons.study import Study
from rightreasons.study.folder import DONE, RUNNING
from rightreasons.study.sweep import sweep

NEEDS_GPU = False

KILLS = 10


@dataclass(frozen=True)
class Outcome:
    """Of one study: kills that hit, units that are done, equality of the tables, and units that began training more than once."""

    kills: int
    units: int
    done: int
    equal: bool
    trained_again: int
    trained_again_without_cause: int
    seconds: float


def main() -> None:
    """Print the table and, as the last line, the JSON object."""
    os.environ["RIGHTREASONS_QUIET"] = "1"
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "kills.toml").write_text(thirty_units("kills", n=300, epochs=8, settings="attempts = 12"))
        undisturbed, seconds = timed(lambda: finish(Path(folder), "undisturbed"))
        expected = table_of(Study.open(undisturbed))
        outcomes = {
            "undisturbed": judged(Study.open(undisturbed), expected, 0, seconds),
            "driver killed": disturbed(Path(folder), "driver", lambda place: kill_drivers(place, seconds), expected),
            "workers killed": disturbed(Path(folder), "workers", kill_workers, expected),
        }
    show(outcomes)


def show(outcomes: dict[str, Outcome]) -> None:
    table = Table(title="30 units, killed by SIGKILL and resumed")
    for heading in ("", "kills", "done", "table equal", "trained again", "of these without cause", "seconds"):
        table.add_column(heading, justify="right")
    for name, o in outcomes.items():
        counts = (o.kills, f"{o.done} of {o.units}", o.equal, o.trained_again, o.trained_again_without_cause)
        table.add_row(name, *map(str, counts), f"{o.seconds:.0f}")
    Console().print(table)
    told = {
        "name": "study-kills",
        "measured": "studies killed at random moments whose table equals the undisturbed one apart from times",
        "equal": all(o.equal for o in outcomes.values()),
        "kills": sum(o.kills for o in outcomes.values()),
        "without_cause": sum(o.trained_again_without_cause for o in outcomes.values()),
        "lost": sum(o.units - o.done for o in outcomes.values()),
        "outcomes": {name: asdict(o) for name, o in outcomes.items()},
        "versions": {"python": platform.python_version(), "numpy": np.__version__, "torch": torch.__version__},
    }
    print(json.dumps(told))


# ---- killing -------------------------------------------------------------------------------------------------------------


def start(folder: Path, place: Path) -> multiprocessing.process.BaseProcess:
    """A driver in a process of its own, forked: what it imports, this process has imported."""
    process = multiprocessing.get_context("fork").Process(target=_drive, args=(folder / "kills.toml", place))
    process.start()
    return process


def _drive(source: Path, place: Path) -> None:
    sweep(source, place, say=lambda _: None)


def finish(folder: Path, name: str) -> Path:
    process = start(folder, folder / name)
    process.join()
    if process.exitcode != 0:
        raise RuntimeError(f"the sweep of {name} ended with status {process.exitcode}")
    return folder / name


def kill_drivers(place: Path, seconds: float) -> int:
    """Kill drivers at random moments: every third while it plans and starts its workers, the others while they work."""
    rng, hits = np.random.default_rng(0), 0
    while hits < KILLS:
        process = start(place.parent, place)
        if hits % 3 == 0:
            process.join(rng.uniform(0.01, 0.2) * seconds)
        else:
            while process.is_alive() and not working(place):
                time.sleep(0.01)
            process.join(rng.uniform(0, 0.05) * seconds)
        if not process.is_alive():
            break  # nothing is left to do
        process.kill()
        process.join()
        hits += 1
    return hits


def kill_workers(place: Path) -> int:
    """Kill a running worker at random moments while one driver goes on."""
    rng, hits = np.random.default_rng(1), 0
    process = start(place.parent, place)
    while hits < KILLS and process.is_alive():
        time.sleep(rng.uniform(0.1, 1.5))
        running = working(place)
        if running:
            os.kill(int(rng.choice(running)), signal.SIGKILL)
            hits += 1
    process.join()
    return hits


def working(place: Path) -> list[int]:
    """Ids of the processes that are at work on a unit now."""
    told = [json.loads(file.read_bytes()) for file in place.glob("runs/*/run.json")]
    ids = [run["attempts"][-1]["pid"] for run in told if run["status"] == RUNNING and not run["attempts"][-1]["cause"]]
    return [pid for pid in ids if _is_worker(pid)]


def _is_worker(pid: int) -> bool:
    try:
        return b"rightreasons.study.engines.local" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


# ---- judging -------------------------------------------------------------------------------------------------------------


def disturbed(folder: Path, name: str, kill: Callable[[Path], int], expected: pd.DataFrame) -> Outcome:
    def run() -> int:
        hits = kill(folder / name)
        finish(folder, name)
        return hits

    hits, seconds = timed(run)
    return judged(Study.open(folder / name), expected, hits, seconds)


def judged(study: Study, expected: pd.DataFrame, kills: int, seconds: float) -> Outcome:
    done = sum(study.status(unit) == DONE for unit in study.units)
    again = [causes for unit in study.units if len(causes := trainings(study, unit)) > 1]
    unexplained = sum(not all(causes[:-1]) or "done" in causes[:-1] for causes in again)
    equal = table_of(study).equals(expected)
    return Outcome(kills, len(study.units), done, equal, len(again), unexplained, seconds)


def trainings(study: Study, unit: str) -> list[str]:
    """Why each attempt that began or resumed the unit's training ended."""
    return [attempt["cause"] for attempt in study.run(unit)["attempts"] if attempt.get("training")]


def table_of(study: Study) -> pd.DataFrame:
    table = pd.read_parquet(study.folder / "table.parquet")
    return table.drop(columns=[name for name in table if name.startswith("time_")])


def timed(run: Callable[[], Any]) -> tuple[Any, float]:
    began = time.perf_counter()
    return run(), time.perf_counter() - began


if __name__ == "__main__":
    main()
