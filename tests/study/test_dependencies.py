"""Units that start from other units' models: resolved in the plan, trained in order, failed with a reason, resumed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

pytest.importorskip("torch")

import torch

from rightreasons.errors import SettingError
from rightreasons.files import read_json
from rightreasons.models.classifier import Classifier
from rightreasons.study import Study
from rightreasons.study.checklist import verify
from rightreasons.study.engines import Task
from rightreasons.study.engines.ray import Post
from rightreasons.study.runs import plan
from rightreasons.study.sweep import dry_run, sweep, tasks
from rightreasons.study.unit import work
from rightreasons.trust import trusting

pytestmark = pytest.mark.torch

SHRINKS = '''
"""A mitigation for tests: the model's weights times a factor, averaged with those of its references."""
import os
import time

STARTS = "model"


def mitigate(classifier, cohort, *, rng, factor=0.5, fails=False, references=None, folder=None, threads=None):
    while os.path.exists(os.environ.get("HELD", "")):
        time.sleep(0.01)
    if fails:
        raise ValueError("as asked")
    new = classifier.copy()
    others = [model for models in (references or {}).values() for model in models]
    state = new.module.state_dict()
    for name, value in state.items():
        if value.is_floating_point():
            state[name] = factor * value + sum(other.module.state_dict()[name] for other in others)
    new.module.load_state_dict(state)
    new.used = classifier.used | set(cohort.on("audit").id[:5])
    new.card = {**classifier.card, "regime": "shrinks"}
    return new
'''
REGIMES = """
[regimes.erm]
[regimes.small]
method = "shrinks"
start = "erm"
[train]
"""


@pytest.fixture(autouse=True)
def _toys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Modules on the path of this process and of the workers that it starts."""
    home = tmp_path / "modules" / "toymethods"
    home.mkdir(parents=True)
    (home / "__init__.py").write_text("")
    (home / "shrinks.py").write_text(SHRINKS)
    (home / "reads.py").write_text(SHRINKS + '\n\nREFERENCES = ("baseline",)\n')
    for name in [name for name in sys.modules if name.split(".")[0] == "toymethods"]:
        del sys.modules[name]
    monkeypatch.syspath_prepend(home.parent)
    monkeypatch.setenv("PYTHONPATH", str(home.parent))
    with trusting("toymethods"):
        yield


@pytest.fixture
def text(tiny: str) -> str:
    return tiny.replace("[train]", REGIMES.replace('"shrinks"', '"toymethods.shrinks"'))


def planned_from(tmp_path: Path, text: str, name: str = "study") -> Study:
    (tmp_path / "s.toml").write_text(text)
    return plan(tmp_path / "s.toml", tmp_path / name)


def swept(tmp_path: Path, text: str, name: str = "study") -> Study:
    (tmp_path / "s.toml").write_text(text)
    return sweep(tmp_path / "s.toml", tmp_path / name, say=lambda _: None)


def units_of(study: Study, regime: str) -> list[str]:
    return [unit for unit in study.units if study.plan.units[unit].regime == regime]


def test_a_unit_starts_from_the_same_architecture_seed_and_axes(tmp_path: Path, text: str) -> None:
    study = planned_from(tmp_path, text.replace("seed = [0, 1]", 'seed = [0, 1]\ncohort = ["data", "half"]').replace(
        "[train]", "[cohorts.half]\nbias = {discordant = 0.4}\n[train]", 1))  # fmt: skip
    assert len(study.units) == 8
    for unit in units_of(study, "small"):
        own = study.plan.units[unit]
        start = study.plan.units[own.start]
        assert start.regime == "erm"
        for key in ("architecture", "seed", "cohort", "axes"):
            assert getattr(start, key) == getattr(own, key)
        assert study.waits_for(unit) == (own.start,)
        assert f"train (after {own.start})" in dry_run(study).set_index("unit").loc[unit, "missing"]


def test_an_axis_of_its_own_does_not_part_a_unit_from_its_start(tmp_path: Path, text: str) -> None:
    more = '[[runs]]\narchitecture = "cnn"\nregime = "small"\nseed = 0\nfactor = [0.1, 0.2]\n[performance]'
    study = planned_from(tmp_path, text.replace("seed = [0, 1]", 'regime = "erm"\nseed = 0').replace("[performance]", more))
    (start,) = units_of(study, "erm")
    assert {study.plan.units[unit].start for unit in units_of(study, "small")} == {start}
    assert len(units_of(study, "small")) == 2


def test_another_start_is_another_unit(tmp_path: Path, text: str) -> None:
    a, b = planned_from(tmp_path, text, "a"), planned_from(tmp_path, text.replace("epochs = 2", "epochs = 3"), "b")
    assert not set(a.units) & set(b.units)
    assert all(u.train["factor"] == 0.5 for u in a.plan.units.values() if u.regime == "small")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('start = "erm"\n', "", 'goes on from a trained model: say whose with start = "REGIME"'),
        ('start = "erm"', 'start = "em"', "did you mean 'erm'?"),
        ('start = "erm"', 'start = "erm"\nfctor = 1', "did you mean 'factor'?"),
        ('start = "erm"', 'start = "erm"\nreferences = {baseline = "erm"}', "has no role 'baseline'"),
        ("toymethods.shrinks", "toymethods.reads", 'references = {baseline = "REGIME"}'),
        ("[regimes.erm]", '[regimes.erm]\nstart = "small"', "wait for each other"),
        ("seed = [0, 1]", 'seed = [0, 1]\nregime = "small"', "no unit of that regime has architecture 'cnn' and seed 0"),
        ("seed = [0, 1]", 'seed = [0, 1]\ncohort = "nowhere"', "is no training set"),
    ],
)
def test_a_start_that_is_not_there_is_an_error_that_helps(tmp_path: Path, text: str, old: str, new: str, said: str) -> None:
    with pytest.raises(SettingError, match=said):
        planned_from(tmp_path, text.replace(old, new, 1))


def test_models_are_changed_after_they_are_trained(tmp_path: Path, text: str) -> None:
    study = swept(tmp_path, text)
    assert {study.status(unit) for unit in study.units} == {"done"}
    assert verify(study) == []
    for unit in units_of(study, "small"):
        start = study.plan.units[unit].start
        new, old = (Classifier.open(study.path(u) / "model") for u in (unit, start))
        assert torch.equal(new.module.fc.weight, 0.5 * old.module.fc.weight)
        assert not (study.path(unit) / "model" / "curves.csv").exists()
        assert not (study.path(unit) / "work").exists()
        row = study.table.set_index("unit").loc[unit]
        assert row["epochs"] == 0
        assert row["time_train"] > 0
        assert row["start"] == start
        used = set(study.cohort("data").on("audit").id[:5])
        assert not used & set(study.evidence(unit).on("audit").cohort.id)
        assert used & set(study.evidence(start).on("audit").cohort.id)
    causes = [a["cause"] for a in study.run(start)["attempts"]]
    assert causes == ["part done", "done"]  # others waited for its training alone


def test_references_are_all_seeds_of_their_regime(tmp_path: Path, text: str) -> None:
    text = text.replace("toymethods.shrinks", "toymethods.reads")
    text = text.replace('start = "erm"', 'start = "erm"\nreferences = {baseline = "erm"}\nfactor = 0.0')
    study = swept(tmp_path, text)
    told = study.plan.units[units_of(study, "small")[0]]
    assert told.references == {"baseline": units_of(study, "erm")}
    weights = [Classifier.open(study.path(u) / "model").module.fc.weight for u in units_of(study, "erm")]
    mine = Classifier.open(study.path(units_of(study, "small")[0]) / "model").module.fc.weight
    assert torch.allclose(mine, weights[0] + weights[1])
    assert set(study.waits_for(units_of(study, "small")[0])) == set(units_of(study, "erm"))


def test_a_start_that_fails_fails_what_waits_for_it_with_the_reason(tmp_path: Path, text: str) -> None:
    third = '[regimes.smaller]\nmethod = "toymethods.shrinks"\nstart = "small"\n[train]'
    text = text.replace("[train]", third).replace("seed = [0, 1]", "seed = 0")
    text = text.replace('start = "erm"', 'start = "erm"\nfails = true')
    study = swept(tmp_path, text)
    (first,), (second,), (last,) = (units_of(study, name) for name in ("erm", "small", "smaller"))
    assert [study.status(unit) for unit in (first, second, last)] == ["done", "failed", "failed"]
    error = study.run(last)["error"]
    assert error["type"] == "DependencyFailed"
    assert second in error["message"]
    assert "ValueError: as asked" in error["message"]
    assert any("as asked" in gap.what for gap in verify(study) if gap.unit == last)
    assert study.table.set_index("unit")["status"].to_dict() == {first: "done", second: "failed", last: "failed"}
    # Without its start a unit that is asked for on its own says the same.
    assert work(study.folder, Task(last, (last,))) == "failed"
    assert f"the model of {second}" in study.run(last)["error"]["message"]


def test_only_training_is_waited_for(tmp_path: Path, text: str) -> None:
    study = planned_from(tmp_path, text.replace("seed = [0, 1]", "seed = 0"))
    (start,), (unit,) = units_of(study, "erm"), units_of(study, "small")
    graph = tasks(study, list(study.units))
    (first,) = graph.ready()
    assert first == Task(f"{start} train", (start,), "train")
    graph.done(first)
    assert {task.key: task.reads for task in graph.ready()} == {start: (), unit: (start,)}
    assert work(study.folder, first) == "done"
    assert [task.key for task in tasks(study, [unit]).ready()] == [unit]


def test_a_batched_start_is_waited_for_as_a_group(tmp_path: Path, text: str) -> None:
    study = planned_from(tmp_path, text.replace("threads = 1", "threads = 1\nbatched = true"))
    graph = tasks(study, list(study.units))
    (group,) = graph.ready()
    assert group.units == tuple(units_of(study, "erm"))
    graph.done(group)
    assert {task.key for task in graph.ready()} == set(study.units)


def test_a_worker_without_the_folder_is_sent_the_models_it_reads(tmp_path: Path, text: str) -> None:
    study = planned_from(tmp_path, text.replace("seed = [0, 1]", "seed = 0"))
    (start,), (unit,) = units_of(study, "erm"), units_of(study, "small")
    work(study.folder, Task(f"{start} train", (start,), "train"))
    sent = Post(str(tmp_path / "store"), study.folder, "", 60).pack(Task(unit, (unit,), reads=(start,))).inputs
    assert f"runs/{start}/model/model.safetensors" in sent
    assert not any("evidence" in path for path in sent)


@pytest.mark.slow
def test_a_killed_driver_is_resumed_to_the_same_table_in_order(tmp_path: Path, text: str) -> None:
    expected = swept(tmp_path, text, "undisturbed")
    (tmp_path / "s.toml").write_text(text.replace('engine = "inline"', 'engine = "local"'))
    folder, hold = tmp_path / "killed", tmp_path / "hold"
    hold.touch()  # what starts from another model begins and goes no further, however late we look
    sweeps = [sys.executable, "-m", "rightreasons", "sweep", str(tmp_path / "s.toml"), "--out", str(folder)]
    command = [*sweeps, "--trust", "toymethods"]
    driver = subprocess.Popen(command, env={**os.environ, "HELD": str(hold)})
    unit = units_of(expected, "small")[0]
    file, until = folder / "runs" / unit / "run.json", time.monotonic() + 600
    while not (file.exists() and read_json(file)["status"] == "running"):
        assert time.monotonic() < until and driver.poll() is None
        time.sleep(0.01)
    driver.kill()
    driver.wait()
    start = expected.plan.units[unit].start
    assert (folder / "runs" / start / "model" / "model.json").exists()
    study = sweep(folder, say=lambda _: None)
    assert len(study.run(unit)["attempts"]) == 2
    tables = [s.table[[c for c in s.table if not c.startswith("time_")]] for s in (study, expected)]
    pd.testing.assert_frame_equal(*tables)


def test_what_a_mitigation_left_half_done_is_cleared(tmp_path: Path, text: str) -> None:
    study = swept(tmp_path, text.replace("seed = [0, 1]", "seed = 0"))
    (unit,) = units_of(study, "small")
    (study.path(unit) / "work").mkdir()
    (study.path(unit) / "row.json").unlink()
    weights = study.path(unit) / "model" / "model.safetensors"
    before = weights.stat().st_mtime_ns
    assert work(study.folder, Task(unit, (unit,))) == "done"
    assert not (study.path(unit) / "work").exists()
    assert weights.stat().st_mtime_ns == before
