"""The same run again, by one worker or by four, gives findings that are equal to the byte, and a seal that says so."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

pytest.importorskip("torch")

from rightreasons import seal
from rightreasons.study import Study
from rightreasons.study.sweep import sweep

pytestmark = pytest.mark.torch

MORE_AUDITS = "[audits.pull]\nB = 50\n"


def findings_of(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted((folder / "findings").iterdir())}


def assert_equal(one: Path, other: Path) -> None:
    assert findings_of(one) and findings_of(one) == findings_of(other)
    assert seal.read(one).results == seal.read(other).results
    assert seal.read(one).digest == seal.read(other).digest
    assert (one / "concluded.json").read_bytes() == (other / "concluded.json").read_bytes()  # their order on the page


def test_what_a_sweep_wrote_is_whole_and_a_sweep_that_does_nothing_leaves_it_so(finished: Path, tmp_path: Path) -> None:
    study = Path(shutil.copytree(finished, tmp_path / "study"))
    assert seal.check(study).is_whole
    weights = f"runs/{Study.open(study).units[0]}/model/model.safetensors"
    assert weights in seal.read(study).results
    damaged = (study / weights).read_bytes()[:-1] + b"\x00"
    (study / weights).write_bytes(damaged)
    sweep(study, say=lambda _: None)  # nothing is missing: what was damaged before stays seen
    assert seal.check(study).lines == [f"changed: {weights}"]


def test_findings_that_no_longer_hold_are_removed_with_their_circumstances(finished: Path) -> None:
    names = {file.name for file in (finished / "circumstances").iterdir()}
    assert names == set(findings_of(finished))


@pytest.mark.slow
def test_one_worker_and_four_give_a_study_equal_to_the_byte(tmp_path: Path, tiny: str) -> None:
    for workers in (1, 4):
        asked = tiny.replace('engine = "inline"', 'engine = "local"')
        (tmp_path / f"{workers}.toml").write_text(f"{asked}workers = {workers}\n{MORE_AUDITS}")
        sweep(tmp_path / f"{workers}.toml", tmp_path / str(workers), say=lambda _: None)
    assert_equal(tmp_path / "1", tmp_path / "4")
