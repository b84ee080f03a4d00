"""The driver: does what is missing and nothing else, survives deaths, says what it would do."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pandas as pd
import pytest

pytest.importorskip("torch")

from rightreasons.errors import SettingError
from rightreasons.files import read_json, write_json
from rightreasons.findings import Finding
from rightreasons.study import Study, logged
from rightreasons.study.engines import Task
from rightreasons.study.live import Watch, duration
from rightreasons.study.plan import Plan
from rightreasons.study.runs import plan
from rightreasons.study.sweep import dry_run, estimate, planned, sweep, tasks
from rightreasons.study.unit import SILENT

pytestmark = pytest.mark.torch


def quiet(_: str) -> None:
    pass


def numbers(folder: Path) -> pd.DataFrame:
    table = pd.read_parquet(folder / "table.parquet")
    return table.drop(columns=[name for name in table if name.startswith("time_")])


@pytest.fixture
def study(finished: Path, tmp_path: Path) -> Study:
    return Study.open(shutil.copytree(finished, tmp_path / "study"))


def test_a_finished_study_leaves_table_findings_and_page(finished: Path) -> None:
    names = {finding.name for finding in Study.open(finished).findings()}
    assert names == {"groups-cnn-erm", "flips-cnn-erm"}
    assert (finished / "report.html").stat().st_size > 10_000
    summary = pd.read_parquet(finished / "summary.parquet")
    row = summary[summary["metric"] == "test_auc"].iloc[0]
    table = numbers(finished)
    assert row["mean"] == pytest.approx(table["test_auc"].mean())
    assert row["low"] < row["mean"] < row["high"]
    assert row["seeds"] == 2


def test_a_finding_is_over_seeds_and_says_where_they_differ(finished: Path) -> None:
    (finding,) = [f for f in Finding.read_all(finished) if f.audit == "flips"]
    assert finding.model == "cnn erm (2 seeds)"
    assert finding.checks[-1].name == "every seed on its own gives this verdict"
    assert [row[0] for row in finding.exhibits[-1].rows][:2] == list(Study.open(finished).units)  # type: ignore[union-attr]


def test_sweeping_again_does_nothing(study: Study) -> None:
    before = {file: file.stat().st_mtime_ns for file in (study.folder / "runs").rglob("*") if file.is_file()}
    findings = (study.folder / "findings" / "groups-cnn-erm.json").read_bytes()
    sweep(study.folder, say=quiet)
    assert before == {file: file.stat().st_mtime_ns for file in (study.folder / "runs").rglob("*") if file.is_file()}
    assert (study.folder / "findings" / "groups-cnn-erm.json").read_bytes() == findings


def test_a_changed_plan_makes_new_units_and_leaves_the_old(study: Study, tiny: str) -> None:
    changed = study.folder.parent / "tiny.toml"
    changed.write_text(tiny.replace("seed = [0, 1]", "seed = [1, 2]"))
    again = sweep(changed, study.folder, say=quiet)
    assert len(again.units) == 2
    assert len(list((study.folder / "runs").iterdir())) == 3
    assert set(study.units) & set(again.units) == {again.units[0]}
    assert len(again.run(again.units[0])["attempts"]) == 1
    assert again.table["seed"].tolist() == [1, 2]


def test_a_dry_run_names_units_and_what_they_lack(study: Study) -> None:
    unit = study.units[0]
    shutil.rmtree(study.path(unit) / "measurements")
    (study.path(unit) / "row.json").unlink()
    found = dry_run(study).set_index("unit")
    assert found.loc[unit, "missing"] == "measure"
    assert found.loc[unit, "seconds"] > 0
    assert found.loc[study.units[1], "missing"] == ""
    assert estimate(study, found.reset_index()).startswith("1 units to do, about")
    shutil.rmtree(study.folder / "runs")
    assert "unknown" in estimate(study, dry_run(study))


def test_a_failed_unit_keeps_its_error_and_stops_no_other(study: Study) -> None:
    first, second = study.units
    for unit in study.units:
        (study.path(unit) / "row.json").unlink()
    (study.path(first) / "model" / "model.safetensors").write_bytes(b"broken")
    shutil.rmtree(study.path(first) / "predictions")
    again = sweep(study.folder, say=quiet)
    assert (again.status(first), again.status(second)) == ("failed", "done")
    assert again.table.set_index("unit")["status"].to_dict() == {first: "failed", second: "done"}
    sweep(study.folder, say=quiet, retry_failed=False)
    assert len(again.run(first)["attempts"]) == 2  # the first one trained it
    sweep(study.folder, say=quiet)
    assert len(again.run(first)["attempts"]) == 3


@pytest.mark.slow
def test_a_worker_that_dies_has_its_unit_run_again_with_the_cause_kept(toml: Path, held: Path) -> None:
    folder = toml.parent / "study"
    toml.write_text(toml.read_text().replace('engine = "inline"', ""))
    unit = plan(toml, folder).units[0]

    def kill_once() -> None:
        os.kill(_wait_for_running(folder, unit), signal.SIGKILL)
        held.unlink()

    killer = threading.Thread(target=kill_once)
    killer.start()
    study = sweep(toml, folder, say=quiet)
    killer.join()
    attempts = study.run(unit)["attempts"]
    assert [attempt["cause"] for attempt in attempts] == ["killed by signal 9 (SIGKILL)", "done"]


@pytest.mark.slow
def test_a_unit_whose_workers_always_die_fails_after_a_bounded_number(toml: Path) -> None:
    folder = toml.parent / "study"
    text = (
        toml.read_text()
        .replace('engine = "inline"', "")
        .replace("threads = 1", "attempts = 2")
        .replace("seed = [0, 1]", "seed = 0")
    )
    text = text.replace("rightreasons.models.small:small_cnn", "deadly:network").replace("width = 4", "mean = 0.5\nstd = 0.5")
    toml.write_text(text)
    (toml.parent / "deadly.py").write_text(
        "import os, signal, sys\nfrom rightreasons.models.small import small_cnn\n"
        "def network(num_classes):\n"
        "    if 'rightreasons.study.engines.local' in open('/proc/self/cmdline').read():\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return small_cnn(num_classes, width=4)\n"
    )
    program = f"from rightreasons.study.sweep import sweep; sweep({str(toml)!r}, {str(folder)!r}, trust='deadly')"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(toml.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    study = Study.open(folder)
    run = study.run(study.units[0])
    assert run["status"] == "failed"
    assert run["error"]["type"] == "WorkerDied"
    assert [attempt["cause"] for attempt in run["attempts"]] == ["killed by signal 9 (SIGKILL)"] * 2


@pytest.mark.slow
def test_a_killed_driver_is_resumed_to_the_same_table(toml: Path, held: Path) -> None:
    undisturbed = sweep(toml, toml.parent / "undisturbed", say=quiet)  # in this process: nothing holds it
    folder = toml.parent / "study"
    toml.write_text(toml.read_text().replace('engine = "inline"', ""))
    unit = plan(toml, folder).units[0]
    command = [sys.executable, "-m", "rightreasons", "sweep", str(toml), "--out", str(folder), "--trust", "held"]
    driver = subprocess.Popen(command)
    _wait_for_running(folder, unit, driver)
    driver.kill()
    driver.wait()
    held.unlink()
    study = sweep(folder, say=quiet)
    assert [attempt["cause"] for attempt in study.run(unit)["attempts"]] == [SILENT, "done"]
    pd.testing.assert_frame_equal(numbers(folder), numbers(undisturbed.folder))


def test_batched_units_wait_for_their_group(study: Study) -> None:
    plan_file = study.folder / "plan.json"
    told = read_json(plan_file)
    for unit in told["units"].values():
        unit["batched"] = ["a", "b"]
    write_json(plan_file, told)
    shutil.rmtree(study.folder / "runs")
    graph = tasks(Study.open(study.folder), list(study.units))
    (group,) = graph.ready()
    assert (group.step, group.units) == ("train", study.units)
    assert not list(graph.ready())
    graph.done(group)
    assert [task.units[0] for task in graph.ready()] == list(study.units)


def test_large_cohorts_are_split_after_training(study: Study) -> None:
    told = read_json(study.folder / "plan.json")
    told["driver"]["split_rows"], told["extract"]["chunk"] = 16, 16
    split = Study(study.folder / "elsewhere", Plan(**told))
    unit = study.units[0]
    graph = tasks(split, [unit])
    (first,) = graph.ready()
    assert first == Task(f"{unit} train", (unit,), "train")
    graph.done(first)
    pieces = list(graph.ready())
    rows = told["cohorts"]["siteb"]["rows"]
    own = [piece.pieces for piece in pieces if piece.cohort == "siteb"]
    assert own == [(k, k + 1) for k in range(-(-rows // 16))]
    assert all(piece.step == "extract" for piece in pieces)
    lost = graph.drop(pieces[0])
    assert [task.key for task in lost] == [unit]


def test_a_split_extraction_gives_the_same_numbers(toml: Path, finished: Path) -> None:
    toml.write_text(
        toml.read_text()
        .replace("threads = 1", "split_rows = 20")
        .replace("[performance]", "[extract]\nchunk = 32\n[performance]")
    )
    study = sweep(toml, toml.parent / "study", say=quiet)
    table, expected = numbers(study.folder), numbers(finished)
    measured = [name for name in table if name.startswith(("test_", "siteb_", "groups_", "flips_"))]
    pd.testing.assert_frame_equal(table[measured], expected[measured])


def test_a_folder_is_swept_where_it_lies(study: Study, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="own folder"):
        planned(study.folder, tmp_path / "other")
    with pytest.raises(SettingError, match="no study at"):
        planned(tmp_path / "none.toml")


def test_finished_units_are_logged(study: Study) -> None:
    run = logged.run_of(study, study.units[0])
    assert run is not None
    assert (run.project, run.name, run.settings["seed"]) == (study.name, study.units[0], 0)
    assert run.numbers["test_auc"] == study.table["test_auc"].iloc[0]
    assert not set(run.numbers) & set(run.settings)
    logged.to("", study)(study.units[0])  # nothing is asked for, nothing is done
    with pytest.raises(SettingError, match="cannot log to 'no_such_tracker'"):
        logged.to("no_such_tracker", study)


def test_watching_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("RIGHTREASONS_QUIET")
    with Watch("study", total=4, done=1, workers=2, expected=10) as watch:
        assert watch.seconds_left == 15
        watch.started(Task("a", ("a",)))
        watch.ended(Task("a", ("a",)), "done")
        watch.tick()
    assert "a: done after" in capsys.readouterr().err
    assert watch.state().startswith("2 of 4 done, 0 running, 0 failed")
    assert Watch("study", 4, 0, 1).state().endswith("time left unknown")
    assert [duration(s) for s in (4, 600, 7200)] == ["4 s", "10 min", "2.0 h"]


def test_a_terminal_gets_a_live_table(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("RIGHTREASONS_QUIET")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    with Watch("study", total=4, done=1, workers=2) as watch:
        watch.started(Task("unit-a", ("a",)))
        watch.tick()
        watch.ended(Task("unit-b", ("b",)), "done")
    shown = capsys.readouterr().err
    assert "time left" in shown
    assert "unit-a" in shown


def _wait_for_running(folder: Path, unit: str, driver: subprocess.Popen[bytes] | None = None) -> int:
    until = time.monotonic() + 600
    file = folder / "runs" / unit / "run.json"
    while time.monotonic() < until and (driver is None or driver.poll() is None):
        if file.exists() and (run := read_json(file))["status"] == "running":
            return int(run["attempts"][-1]["pid"])
        time.sleep(0.01)
    raise AssertionError(f"{unit} never began")
