"""verify names what is missing, unit by unit, and nothing else."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

pytest.importorskip("torch")  # the finished study is trained here

from rightreasons.study import Study
from rightreasons.study.checklist import notes, told, verify

pytestmark = pytest.mark.torch


@pytest.fixture
def study(finished: Path, tmp_path: Path) -> Study:
    return Study.open(shutil.copytree(finished, tmp_path / "study"))


def test_a_finished_study_lacks_nothing(study: Study) -> None:
    assert verify(study) == []
    assert notes(study) == ["no sdi audit in the study: 4 to 7 are not applicable"]
    assert told(study, [])["complete"] is True


@pytest.mark.parametrize(
    ("file", "item", "what"),
    [
        ("model/model.safetensors", "1", "no weights"),
        ("model/curves.csv", "1", "no curves"),
        ("predictions/test.parquet", "1", "no predictions on test"),
        ("predictions/siteb.parquet", "1", "no predictions on siteb"),
        ("measurements/groups.npz", "audits", "no measurement of groups"),
    ],
)
def test_a_missing_file_is_named(study: Study, file: str, item: str, what: str) -> None:
    unit = study.units[1]
    (study.path(unit) / file).unlink()
    (gap,) = verify(study)
    assert gap.unit == unit
    assert gap.item.startswith(item)
    assert gap.what.startswith(what)


def test_missing_distributions_are_missing_inside_and_outside(study: Study) -> None:
    (study.path(study.units[0]) / "measurements" / "performance.npz").write_bytes(b"cut o")
    assert [gap.item[0] for gap in verify(study)] == ["2", "3"]


def test_an_undefined_metric_is_named(study: Study) -> None:
    file = study.path(study.units[0]) / "row.json"
    row = json.loads(file.read_text())
    row["columns"]["siteb_delta_auc"] = float("nan")
    del row["columns"]["test_ece"]
    file.write_text(json.dumps(row))
    said = [gap.what for gap in verify(study)]
    assert said == ["no test_ece: it was not computed", "no siteb_delta_auc: it is undefined on these rows"]


def test_a_unit_that_is_not_done_says_what_it_lacks(study: Study) -> None:
    unit = study.units[0]
    shutil.rmtree(study.path(unit))
    first, second = verify(study)
    assert first.unit == unit
    assert "planned" in first.what
    assert "train, extract, measure" in first.what
    assert second.unit == ""
    assert "does not count the 1 seeds" in second.what


def test_another_configuration_is_noticed(study: Study) -> None:
    file = study.path(study.units[0]) / "run.json"
    run = json.loads(file.read_text())
    run["plan"]["train"]["lr"] = 1.0
    file.write_text(json.dumps(run))
    (gap,) = verify(study)
    assert "configuration" in gap.what


def test_lost_tables_are_the_studys_own_gap(study: Study) -> None:
    for name in ("table.parquet", "summary.parquet"):
        (study.folder / name).unlink()
    assert [gap.unit for gap in verify(study)] == ["", ""]
