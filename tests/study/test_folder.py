"""A study on disk reads back as what was written, without torch."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rightreasons.errors import DataError
from rightreasons.files import read_json, write_json
from rightreasons.measurements import load_measurement, made_from, save_measurement, scalars
from rightreasons.stats.resampling import Interval
from rightreasons.study import Study
from rightreasons.study.folder import locked, write_table


@dataclass(frozen=True)
class Sample:
    number: float
    name: str
    names: tuple[str, ...]
    nested: tuple[tuple[int, ...], ...]
    effect: Interval
    missing: int | None
    values: np.ndarray
    mapping: dict[int, str]


SAMPLE = Sample(
    float("nan"), "a", ("x", "y"), ((1, 2), (3,)), Interval(0.5, 0.1, 0.9, 100, 3, "why", 0.9), None, np.arange(4.0), {1: "one"}
)


def test_a_measurement_survives_its_file(tmp_path: Path) -> None:
    path = save_measurement(SAMPLE, tmp_path / "deep" / "m.npz", seed=3)
    found = load_measurement(Sample, path)
    assert np.isnan(found.number)
    assert np.array_equal(found.values, SAMPLE.values)
    for name in ("name", "names", "nested", "effect", "missing", "mapping"):
        assert getattr(found, name) == getattr(SAMPLE, name)
    assert made_from(path) == {"seed": 3}
    assert made_from(tmp_path / "none.npz") == {}
    assert [file.name for file in path.parent.iterdir()] == ["m.npz"]


def test_a_measurement_of_another_class_is_refused(tmp_path: Path) -> None:
    path = save_measurement(SAMPLE, tmp_path / "m.npz")
    with pytest.raises(DataError, match="holds a Sample and not a Interval"):
        load_measurement(Interval, path)


def test_objects_are_refused(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Odd:
        value: object

    with pytest.raises(DataError, match="not a set"):
        save_measurement(Odd({1}), tmp_path / "m.npz")
    with pytest.raises(DataError, match="array of objects"):
        save_measurement(Odd(np.array([None])), tmp_path / "m.npz")


def test_scalars_are_numbers_texts_and_limits() -> None:
    found = scalars(SAMPLE)
    assert set(found) == {"number", "name", "effect", "effect_low", "effect_high"}
    assert (found["effect"], found["effect_low"], found["effect_high"]) == (0.5, 0.1, 0.9)


def test_a_column_of_several_kinds_is_written_as_text(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": ["x", 1, None], "b": [1, 2, 3]})
    found = pd.read_parquet(write_table(frame, tmp_path / "t.parquet"))
    assert found["a"].tolist()[:2] == ["x", "1"]
    assert pd.isna(found["a"].iloc[2])


def test_a_unit_is_held_by_one_process(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from rightreasons.study.folder import locked\n"
        "with locked([Path(sys.argv[1], 'a'), Path(sys.argv[1], 'b')]):\n"
        "  print('held', flush=True); time.sleep(1.5); Path(sys.argv[1], 'letting go').touch()"
    )
    other = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE)
    assert other.stdout is not None
    assert other.stdout.readline() == b"held\n"
    with locked([tmp_path / "b"]):
        assert (tmp_path / "letting go").exists()  # it held them until then
    assert other.wait(120) == 0
    other.stdout.close()


def test_no_study_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no study in"):
        Study.open(tmp_path)


@pytest.mark.torch
def test_a_finished_study_tells_everything(finished: Path) -> None:
    study = Study.open(finished)
    assert repr(study) == "<Study tiny: 2 units, 2 done>"
    table = study.table
    assert table["unit"].tolist() == sorted(study.units)
    assert (table["status"] == "done").all()
    assert {"architecture", "regime", "seed", "train_lr", "groups_accuracy", "flips_mean", "test_auc", "siteb_delta_auc"} <= set(
        table
    )
    assert [name for name in table if name.startswith("time_")] == list(table.columns[-5:])
    pd.testing.assert_frame_equal(table, pd.read_parquet(finished / "table.parquet"), check_dtype=False)
    unit = study.units[0]
    assert study.missing(unit) == ()
    assert study.run(unit)["status"] == "done"
    evidence = study.evidence(unit)
    assert evidence.card.name == unit
    assert study.measurement(unit, "groups").model == unit
    predicted = study.predictions(unit, "siteb")
    assert np.allclose(predicted[["p_0", "p_1"]].sum(axis=1), 1)
    assert predicted["id"].tolist() == study.cohort("siteb").id.tolist()
    with pytest.raises(DataError, match="did you mean"):
        study.path(unit[:-1])


@pytest.mark.torch
def test_the_table_holds_what_the_audits_say(finished: Path) -> None:
    from rightreasons.audits import audit

    study = Study.open(finished)
    for row in study.table.itertuples():
        measured = audit("groups", study.evidence(row.unit), B=50).measurements[0]
        assert row.groups_accuracy == measured.get("accuracy").value
        assert row.groups_accuracy_low == measured.get("accuracy").low
        assert row.test_accuracy == pytest.approx(measured.get("accuracy").value)
        assert row.siteb_delta_auc == pytest.approx(row.test_auc - row.siteb_auc)
        assert row.siteb_delta_ece == pytest.approx(row.siteb_ece - row.test_ece)


@pytest.mark.torch
def test_a_study_can_be_moved(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "elsewhere")
    study = Study.open(tmp_path / "elsewhere")
    assert study.cohort("data").root == tmp_path / "elsewhere" / "world"


def test_a_file_is_whole_or_not_there(tmp_path: Path) -> None:
    write_json(tmp_path / "a" / "b.json", {"x": float("nan")})
    assert np.isnan(read_json(tmp_path / "a" / "b.json")["x"])
    assert len(list((tmp_path / "a").iterdir())) == 1


@pytest.mark.torch
def test_reading_a_study_never_loads_torch(finished: Path) -> None:
    program = (
        "import sys, rightreasons as rr; from rightreasons.study.checklist import verify; s = rr.Study.open(sys.argv[1]);"
        "s.table, s.findings(), verify(s); sys.exit(1 if 'torch' in sys.modules else 0)"
    )
    assert subprocess.run([sys.executable, "-c", program, str(finished)], check=False).returncode == 0
