"""Folders that earlier versions wrote are opened, read and judged by this one; those of later versions are refused."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import zarr

from rightreasons import cli
from rightreasons.case import Sheet
from rightreasons.data.cohort import Cohort
from rightreasons.errors import DataError, RightReasonsError
from rightreasons.evidence import Evidence
from rightreasons.findings import Finding
from rightreasons.gate import Policy, judge
from rightreasons.report import report
from rightreasons.seal import check
from rightreasons.stored import known_format
from rightreasons.study import Study
from rightreasons.study.checklist import verify

HOME = Path(__file__).parent / "stored"
VERSIONS = sorted(place.name for place in HOME.iterdir() if place.is_dir() and place.name[0].isdigit())


@pytest.fixture(params=VERSIONS)
def stored(request, tmp_path: Path) -> Path:
    """A copy of what one version wrote."""
    return Path(shutil.copytree(HOME / request.param, tmp_path / "stored"))


def test_there_is_something_of_this_version():
    assert VERSIONS


def test_folders_are_small():
    for version in VERSIONS:
        assert sum(file.stat().st_size for file in (HOME / version).rglob("*") if file.is_file()) < 200_000


# ---- of earlier versions -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["study", "audit", "answers"])
def test_a_stored_folder_is_as_it_was_written_and_reading_changes_nothing(stored, name):
    assert check(stored / name).is_whole
    for file in (stored / name).rglob("evidence/zarr.json"):
        evidence = Evidence.open(file.parent)
        for cohort in evidence.cohorts:
            assert np.isfinite(evidence.on(cohort)["logits"]).all()
    if (stored / name / "plan.json").exists():
        verify(Study.open(stored / name))
    Finding.read_all(stored / name)
    assert check(stored / name).lines == []


def test_a_stored_study_tells_its_units_measurements_and_predictions(stored):
    study = Study.open(stored / "study")
    (unit,) = study.units
    assert study.status(unit) == "done"
    assert 0 <= study.table.set_index("unit").loc[unit, "test_auc"] <= 1
    assert study.measurement(unit, "groups").n_rows > 0
    assert set(study.predictions(unit).columns) >= {"id", "label", "cue", "p_0", "p_1"}
    assert len(study.evidence(unit).on("test").decisions().label) == len(study.predictions(unit))
    assert [gap.what for gap in verify(study)] == [
        "no table.parquet: run rightreasons sweep again"
    ]  # it is left out, for its size


def test_stored_findings_tell_their_circumstances(stored):
    for name in ("study", "audit", "answers"):
        for finding in Finding.read_all(stored / name):
            assert finding.versions["rightreasons"]
            assert finding.created


def test_stored_findings_are_judged_compared_and_shown(stored, tmp_path):
    findings = Finding.read_all(stored / "answers")
    assert judge(findings, Policy()).one_line()
    page = report(findings, tmp_path / "page.html", sheet=Sheet.read(stored / "answers"))
    assert "groups" in page.read_text()


def test_a_stored_cohort_is_read(stored):
    (file,) = (stored / "study" / "cohorts").glob("data.parquet")
    assert Cohort.read(file).attributes == ("cue",)


@pytest.mark.torch
def test_a_stored_model_is_built_again_and_is_the_one_of_its_evidence(stored):
    pytest.importorskip("torch")
    from rightreasons.models.classifier import Classifier

    (folder,) = (stored / "study" / "runs").glob("*/model")
    model, evidence = Classifier.open(folder), Evidence.open(folder.parent / "evidence")
    assert model.fingerprint == evidence.card.model
    assert tuple(model.classes) == evidence.card.classes


def test_the_command_line_verifies_what_was_stored(stored, monkeypatch, capsys):
    for name, complete in (("study", False), ("audit", True), ("answers", True)):
        monkeypatch.setattr(sys, "argv", ["rightreasons", "verify", str(stored / name)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capsys.readouterr()
        assert ended.value.code == (0 if complete else 1), said
        files = len(json.loads((stored / name / "seal.json").read_text())["results"])
        assert files and re.search(r"(\d+) of \1 files are as they were written", said.out), said


# ---- of later versions ---------------------------------------------------------------------------------------------------


def in_json(file: Path, format: object = 99) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), "format": format}))


def of_evidence(stored: Path):
    place = next((stored / "study" / "runs").glob("*/evidence"))
    zarr.open_group(str(place), mode="a").attrs["format"] = 99
    return lambda: Evidence.open(place)


def of_a_measurement(stored: Path):
    file = next((stored / "study" / "runs").glob("*/measurements/groups.npz"))
    with np.load(file) as held:
        arrays = dict(held)
    header = json.loads(str(arrays["rightreasons.measurement"]))
    arrays["rightreasons.measurement"] = np.array(json.dumps({**header, "format": 99}))
    np.savez(file, **arrays)
    study = Study.open(stored / "study")
    return lambda: study.measurement(study.units[0], "groups")


def of_a_cohort(stored: Path):
    import pyarrow.parquet as pq

    file = stored / "study" / "cohorts" / "data.parquet"
    table = pq.read_table(file)
    schema = {**json.loads(table.schema.metadata[b"rightreasons.schema"]), "format": 99}
    pq.write_table(table.replace_schema_metadata({b"rightreasons.schema": json.dumps(schema).encode()}), file)
    return lambda: Cohort.read(file)


def of_a_plan(stored: Path):
    in_json(stored / "study" / "plan.json")
    return lambda: Study.open(stored / "study")


def of_a_finding(stored: Path):
    file = next((stored / "answers" / "findings").iterdir())
    in_json(file)
    return lambda: Finding.read(file)


def of_a_sheet(stored: Path):
    in_json(stored / "answers" / "sheet.json")
    return lambda: Sheet.read(stored / "answers")


def of_a_seal(stored: Path):
    in_json(stored / "answers" / "seal.json")
    return lambda: check(stored / "answers")


LATER = [of_evidence, of_a_measurement, of_a_cohort, of_a_plan, of_a_finding, of_a_sheet, of_a_seal]


def refused(read) -> None:
    with pytest.raises(RightReasonsError) as told:
        read()
    sentence = str(told.value)
    assert re.search(r"format 99, written by a later version of rightreasons", sentence), sentence
    assert "install the later version" in sentence
    assert "\n" not in sentence


@pytest.mark.parametrize("later", LATER)
def test_a_later_format_is_refused_in_a_sentence(later, tmp_path):
    refused(later(Path(shutil.copytree(HOME / VERSIONS[-1], tmp_path / "stored"))))


@pytest.mark.torch
def test_a_later_format_of_a_model_is_refused_in_a_sentence(tmp_path):
    pytest.importorskip("torch")
    from rightreasons.models.classifier import Classifier

    shutil.copytree(HOME / VERSIONS[-1], tmp_path / "stored")
    folder = next((tmp_path / "stored" / "study" / "runs").glob("*/model"))
    in_json(folder / "model.json")
    refused(lambda: Classifier.open(folder))


@pytest.mark.parametrize("told", ["1", 1.0, True, 0, -1, [1]])
def test_a_format_that_is_no_number_is_refused(told):
    with pytest.raises(DataError, match="a whole number from 1 to 3"):
        known_format(told, 3, "a file")


def test_a_file_of_before_formats_had_numbers_has_the_first():
    assert known_format(None, 3, "a file") == 1


def test_a_finding_that_holds_its_own_circumstances_is_still_read(tmp_path):
    """Format 1, which had no number and no folder of circumstances."""
    made = Finding(name="n", audit="groups", question="q?", row="behaviour", sentence="s.")
    told = json.loads(made.to_json())
    del told["format"]
    told |= {"created": "2026-01-02T03:04:05+00:00", "seconds": 2.0, "versions": {"rightreasons": "0.0.9"}}
    (tmp_path / "n.json").write_text(json.dumps(told))
    read = Finding.read(tmp_path / "n.json")
    assert (read.created, read.seconds, read.versions) == (told["created"], 2.0, {"rightreasons": "0.0.9"})
    read.save(tmp_path)
    assert Finding.read(tmp_path / "findings" / "n.json") == read
