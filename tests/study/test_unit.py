"""A worker's task: every step leaves its files, is skipped where they are, and an error is kept."""

from __future__ import annotations

import json
import shutil
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("torch")

from rightreasons.evidence import Evidence
from rightreasons.study import Study
from rightreasons.study.conclude import conclude
from rightreasons.study.engines import Task
from rightreasons.study.runs import plan
from rightreasons.study.unit import SILENT, work

pytestmark = pytest.mark.torch


@pytest.fixture
def study(finished: Path, tmp_path: Path) -> Study:
    return Study.open(shutil.copytree(finished, tmp_path / "study"))


def test_a_finished_unit_is_left_alone(study: Study) -> None:
    unit = study.units[0]
    before = {file: file.stat().st_mtime_ns for file in study.path(unit).rglob("*") if file.is_file() and file.name != "lock"}
    assert work(study.folder, Task(unit, (unit,))) == "done"
    assert before == {file: file.stat().st_mtime_ns for file in before}


@pytest.mark.parametrize(
    "lost", ["row.json", "measurements/performance.npz", "measurements/flips.npz", "predictions", "evidence"]
)
def test_what_is_lost_is_made_again_and_nothing_else(study: Study, lost: str) -> None:
    unit = study.units[0]
    row, weights = study.row(unit), study.path(unit) / "model" / "model.safetensors"
    assert row is not None
    trained = weights.stat().st_mtime_ns
    for name in {lost, "row.json"} | ({"predictions"} if lost == "evidence" else set()):
        place = study.path(unit) / name
        shutil.rmtree(place) if place.is_dir() else place.unlink()
    assert work(study.folder, Task(unit, (unit,))) == "done"
    again = study.row(unit)
    assert again is not None
    assert _numbers(again) == _numbers(row)
    assert weights.stat().st_mtime_ns == trained


def test_an_error_is_kept_with_its_traceback_and_mended_by_another_try(study: Study) -> None:
    unit = study.units[0]
    shutil.rmtree(study.path(unit) / "measurements")
    (study.path(unit) / "row.json").unlink()
    hidden = study.path(unit) / "evidence"
    hidden.rename(hidden.with_name("hidden"))
    assert work(study.folder, Task(unit, (unit,))) == "failed"
    run = study.run(unit)
    assert study.status(unit) == "failed"
    assert run["error"]["type"] == "EvidenceError"
    assert "Traceback" in run["error"]["traceback"]
    assert run["attempts"][-1]["cause"].startswith("EvidenceError: no evidence in")
    hidden.with_name("hidden").rename(hidden)
    assert work(study.folder, Task(unit, (unit,))) == "done"
    assert study.run(unit)["error"] is None


def test_an_attempt_that_ended_without_a_word_is_given_a_cause(study: Study) -> None:
    unit = study.units[0]
    (study.path(unit) / "row.json").unlink()
    run = study.run(unit)
    run["status"], run["attempts"][-1]["cause"] = "running", ""
    (study.path(unit) / "run.json").write_text(json.dumps(run))
    assert study.status(unit) == "running"
    work(study.folder, Task(unit, (unit,)))
    assert [attempt["cause"] for attempt in study.run(unit)["attempts"]] == [SILENT, "done"]


def test_run_json_tells_what_the_checklist_asks(study: Study) -> None:
    run = study.run(study.units[0])
    assert run["plan"] == study.plan.units[study.units[0]].model_dump(mode="json")
    assert run["packages"]["torch"] == version("torch")
    assert run["code"]["version"]
    assert run["seeds"] == {"unit": 0, "study": 0}
    assert run["device"]
    assert set(run["times"]) == {"train", "extract", "measure"}
    assert run["started"] < run["finished"]


def test_a_changed_audit_measures_again_and_never_trains(study: Study, tiny: str) -> None:
    changed = study.folder.parent / "tiny.toml"
    changed.write_text(tiny.replace("[audits.groups]\nB = 50", "[audits.groups]\nB = 60"))
    again = plan(changed, study.folder)
    unit = again.units[0]
    assert again.missing(unit) == ("measure",)
    assert again.status(unit) == "planned"
    assert work(again.folder, Task(unit, (unit,))) == "done"
    assert again.run(unit)["attempts"][-1]["did"] == ["measure"]
    assert again.measurement(unit, "groups").get("accuracy").draws == 60
    assert again.status(unit) == "done"


def test_a_changed_external_cohort_is_read_again(study: Study, tiny: str) -> None:
    changed = study.folder.parent / "tiny.toml"
    changed.write_text(tiny.replace("pixel_noise = 0.3", "pixel_noise = 0.5"))
    shutil.rmtree(study.folder / "world-siteb")
    before = study.predictions(study.units[0], "siteb")
    again = plan(changed, study.folder)
    unit = again.units[0]
    assert work(again.folder, Task(unit, (unit,))) == "done"
    assert "train" not in again.run(unit)["attempts"][-1]["did"]
    assert not again.predictions(unit, "siteb").equals(before)


def test_an_audit_that_cannot_run_says_why_and_stops_nothing(finished: Path, tmp_path: Path, tiny: str) -> None:
    columns = f'manifest = "{finished}/world/manifest.csv"\nid = "id"\nattribute = "cue"\nsplit = "split"\n'  # and no twins
    head, tail = tiny.split("[external", 1)
    (tmp_path / "s.toml").write_text(head.split("[data]")[0] + "[data]\n" + columns + "[external" + tail)
    study = plan(tmp_path / "s.toml", tmp_path / "study")
    unit = study.units[0]
    assert work(study.folder, Task(unit, (unit,))) == "done"
    assert "twin" in study.table.set_index("unit").loc[unit, "flips_not_run"]
    findings = {finding.audit: finding for finding in conclude(study)}
    assert "twin" in findings["flips"].not_run
    assert not findings["groups"].not_run


def test_pieces_of_an_extraction_join_to_the_same_bits(study: Study) -> None:
    unit = study.units[0]
    whole = {name: study.evidence(unit).on(name)["logits"] for name in ("test", "siteb")}
    row = study.row(unit)
    for name in ("evidence", "predictions", "row.json"):
        place = study.path(unit) / name
        shutil.rmtree(place) if place.is_dir() else place.unlink()
    plan_file = study.folder / "plan.json"
    told = json.loads(plan_file.read_text())
    told["extract"]["chunk"] = 32  # small enough for several pieces; a multiple of the batch changes no bit
    plan_file.write_text(json.dumps(told))
    rows = len(whole["siteb"])
    for lo in range(-(-rows // 32)):
        assert work(study.folder, Task(f"p{lo}", (unit,), "extract", "siteb", (lo, lo + 1))) == "done"
    assert study.status(unit) == "planned"
    assert len(list((study.path(unit) / "pieces").iterdir())) == -(-rows // 32)
    assert work(study.folder, Task(unit, (unit,))) == "done"
    assert not (study.path(unit) / "pieces").exists()
    joined = Evidence.open(study.path(unit) / "evidence")
    for name, logits in whole.items():
        assert np.array_equal(joined.on(name)["logits"], logits)
    again = study.row(unit)
    assert row is not None
    assert again is not None
    assert _numbers(again) == _numbers(row)


def test_predictions_are_a_table_that_can_be_audited(study: Study) -> None:
    unit = study.units[0]
    path = study.path(unit) / "predictions" / "test.parquet"
    assert list(pd.read_parquet(path)) == ["id", "label", "cue", "p_0", "p_1"]
    evidence = Evidence.from_predictions(path, label="label", attribute="cue", id="id")
    assert np.allclose(evidence.on("test").decisions().probability, study.evidence(unit).on("test").decisions().probability)


def _numbers(row: dict) -> dict:
    return {key: value if value == value else "nan" for key, value in row["columns"].items() if not key.startswith("time_")}
