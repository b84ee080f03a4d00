"""A study whose small networks are trained as one: the numbers of one by one, and one member's failure is its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from rightreasons.study.sweep import sweep

pytestmark = pytest.mark.torch


def _study(folder: Path, text: str, name: str):
    (folder / f"{name}.toml").write_text(text)
    return sweep(folder / f"{name}.toml", folder / name, say=lambda _: None)


def test_a_batched_study_has_the_numbers_of_one_by_one(tiny: str, finished: Path, tmp_path: Path) -> None:
    from rightreasons.study import Study

    batched = _study(tmp_path, tiny.replace("threads = 1", "threads = 1\nbatched = true"), "batched").table
    plain = Study.open(finished).table
    assert len(batched) == len(plain) == 2
    columns = [c for c in plain.columns if plain[c].dtype.kind == "f" and not c.startswith("time_")]
    assert columns
    order = [frame.sort_values("seed").reset_index(drop=True)[columns].to_numpy() for frame in (batched, plain)]
    assert np.allclose(*order, rtol=0.02, atol=0.02, equal_nan=True)
    assert not set(batched["unit"]) & set(plain["unit"])  # batching is part of the plan, and so of the unit's name


def test_a_member_that_diverges_fails_alone_and_keeps_its_reason(tiny: str, tmp_path: Path) -> None:
    text = tiny.replace("seed = [0, 1]", "seed = [0]\nlr = [1e-3, 1e30]").replace("threads = 1", "threads = 1\nbatched = true")
    study = _study(tmp_path, text.replace("[train]", "[train]\nclip = 1e30"), "diverging")
    status = {unit: study.status(unit) for unit in study.units}
    assert sorted(status.values()) == ["done", "failed"]
    failed = next(unit for unit, state in status.items() if state == "failed")
    error = study.run(failed)["error"]
    assert error["type"] == "TrainingError"
    assert "loss" in error["message"]


def test_a_sweep_of_scales_is_trained_as_one_and_ends_in_a_verdict(tiny: str, tmp_path: Path) -> None:
    text = tiny.replace("threads = 1", "threads = 1\nbatched = true").replace(
        "seed = [0, 1]", 'regime = "scaled"\nseed = [0, 1]\nscale = [-0.5, 0.0, 2.0]'
    )
    text += '\n[regimes.scaled]\nmethod = "gradient_scaling"\nhidden = [4]\n\n[references]\nseed = [0, 1]\n'
    text += '\n[audits.short]\nB = 20\npermutations = 19\nroles = {sweep = {regime = "scaled"}}\n'
    study = _study(tmp_path, text, "scaled")
    assert {study.status(unit) for unit in study.units} == {"done"}
    assert len(study.units) == 6 + 2
    groups = {tuple(unit.batched) for unit in study.plan.units.values()}
    assert sorted(map(len, groups)) == [2, 6]
    (found,) = [f for f in study.findings() if f.audit == "short"]
    assert found.verdict == "inconclusive"  # fewer models than it needs
    assert "of 6 models" in str(found.checks)
    assert not list(study.folder.glob("runs/*/work"))
