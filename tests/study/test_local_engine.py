"""Workers of the local engine: they run, they die, they never outlive their driver."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

pytest.importorskip("torch")

from rightreasons.errors import SettingError
from rightreasons.study import Study
from rightreasons.study.engines import Event, Task, connect, settings_of
from rightreasons.study.engines.local import Engine, cores, said
from rightreasons.study.runs import plan
from rightreasons.study.unit import preload

pytestmark = pytest.mark.torch


def events_until_over(engine: Engine, tasks: int, seconds: float = 600) -> Iterator[Event]:
    over, until = 0, time.monotonic() + seconds
    while over < tasks:
        assert time.monotonic() < until, "the engine is silent"
        event = engine.next_event(1)
        if event is not None:
            over += event.kind != "started"
            yield event


@pytest.fixture
def study(toml: Path) -> Study:
    toml.write_text(toml.read_text().replace('engine = "inline"', 'engine = "local"'))
    return plan(toml, toml.parent / "study")


@pytest.fixture
def endless(held: Path, study: Study) -> Study:
    """A study whose workers go on until `held` is gone: none can be over before it is killed."""
    assert study.plan.units[study.units[0]].load["model"] == "held:network"
    return study


def test_tasks_start_in_order_and_end_with_the_numbers_of_this_process(study: Study, finished: Path) -> None:
    engine = connect("local", study, {"workers": 1})
    try:
        for unit in study.units:
            engine.submit(Task(unit, (unit,)))
        found = list(events_until_over(engine, 2))  # type: ignore[arg-type]
    finally:
        engine.close()
    assert [(event.kind, event.task.key) for event in found] == [
        (kind, unit) for unit in study.units for kind in ("started", "done")
    ]
    assert all(study.status(unit) == "done" for unit in study.units)
    study.save_table()
    table, expected = (pd.read_parquet(folder / "table.parquet") for folder in (study.folder, finished))
    numbers = [name for name in table if not name.startswith("time_")]
    pd.testing.assert_frame_equal(table[numbers], expected[numbers])


@pytest.mark.slow
def test_a_worker_that_is_killed_is_an_event_with_its_cause(endless: Study) -> None:
    engine = Engine(endless, workers=1)
    unit = endless.units[0]
    try:
        engine.submit(Task(unit, (unit,)))
        assert engine.next_event(1) == Event("started", Task(unit, (unit,)))
        os.kill(_pid(endless, unit), signal.SIGKILL)
        (event,) = events_until_over(engine, 1)
    finally:
        engine.close()
    assert (event.kind, event.cause) == ("died", "killed by signal 9 (SIGKILL)")


@pytest.mark.slow
def test_a_server_that_is_killed_is_replaced(endless: Study, held: Path) -> None:
    engine = Engine(endless, workers=1)
    unit = endless.units[0]
    try:
        engine.submit(Task(unit, (unit,)))
        worker = _pid(endless, unit)
        engine._server.kill()
        events = list(events_until_over(engine, 1))
        assert events[-1].kind == "died"
        assert "server" in events[-1].cause
        _gone(worker)
        held.unlink()
        engine.submit(Task("again", (unit,)))
        assert [event.kind for event in events_until_over(engine, 1)] == ["started", "done"]
    finally:
        engine.close()


@pytest.mark.slow
def test_closing_ends_what_runs(endless: Study) -> None:
    engine = Engine(endless, workers=1)
    engine.submit(Task("a", endless.units[:1]))
    worker = _pid(endless, endless.units[0])
    engine.close()
    _gone(worker)


@pytest.mark.slow
def test_workers_die_with_their_driver(endless: Study) -> None:
    program = (
        "import sys, time; from pathlib import Path; from rightreasons.study.engines import Task\n"
        "from rightreasons.study import Study\nfrom rightreasons.study.engines.local import Engine\n"
        "Engine(Study.open(sys.argv[1]), workers=1, gpus=[]).submit(Task('a', (sys.argv[2],))); time.sleep(1000)"
    )
    driver = subprocess.Popen([sys.executable, "-c", program, str(endless.folder), endless.units[0]])
    worker = _pid(endless, endless.units[0])
    driver.kill()
    driver.wait()
    _gone(worker)


def test_what_workers_are_forked_from_has_one_thread(finished: Path) -> None:
    # Arrow and jemalloc have threads of their own, and bring them through a fork.
    before = set(threading.enumerate())  # those of earlier tests may end meanwhile
    preload(Study.open(finished))
    assert set(threading.enumerate()) <= before


def test_a_task_survives_its_json() -> None:
    task = Task("k", ("a", "b"), "extract", "test", (3, 7))
    assert Task.from_json(task.to_json()) == task
    assert Task.from_json(Task("k", ("a",), reads=("b",)).to_json()) == Task("k", ("a",), reads=("b",))


def test_settings_are_resolved_or_refused() -> None:
    assert settings_of("local", {"workers": 3}) == {"workers": 3, "threads": 1, "gpus": None}
    with pytest.raises(SettingError, match="did you mean 'workers'"):
        settings_of("local", {"wrokers": 3})
    assert cores() >= 1
    assert said(3) == "ended with exit status 3"


def _pid(study: Study, unit: str) -> int:
    """The process that works on a unit, as soon as it says so."""
    until = time.monotonic() + 600
    while time.monotonic() < until:
        run = study.run(unit)
        if run["status"] == "running":
            return int(run["attempts"][-1]["pid"])
        time.sleep(0.01)
    raise AssertionError(f"{unit} never began")


def _gone(pid: int) -> None:
    """Wait for a process to end; when its new parent takes note of that is not ours to say."""
    until = time.monotonic() + 120
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return
        except (ProcessLookupError, FileNotFoundError):
            return
        time.sleep(0.02)
    raise AssertionError(f"process {pid} is still there")
