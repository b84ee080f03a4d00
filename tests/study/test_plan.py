"""study.toml means what it says: grids, defaults, cohorts, ids, and errors that help."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from rightreasons.errors import ModelError, RightReasonsError, SettingError
from rightreasons.study import Study
from rightreasons.study.planner import load
from rightreasons.study.runs import plan
from rightreasons.study.sweep import planned

pytestmark = pytest.mark.torch


def planned_from(tmp_path: Path, text: str, name: str = "study") -> Study:
    (tmp_path / "s.toml").write_text(text)
    return plan(tmp_path / "s.toml", tmp_path / name)


def test_a_grid_is_every_combination_of_its_lists(tmp_path: Path, tiny: str) -> None:
    study = planned_from(tmp_path, tiny.replace("seed = [0, 1]", "seed = [0, 1, 2]\nlr = [0.1, 0.01]"))
    assert len(study.units) == 6
    assert {(p.seed, p.train["lr"]) for p in study.plan.units.values()} == {(s, r) for s in range(3) for r in (0.1, 0.01)}
    assert all(f"lr={p.train['lr']}" in unit for unit, p in study.plan.units.items())


def test_every_default_is_in_the_plan(toml: Path) -> None:
    study = plan(toml, toml.parent / "study")
    unit = next(iter(study.plan.units.values()))
    assert unit.train["optimizer"] == "adamw"
    assert unit.train["epochs"] == 2
    assert unit.load["num_classes"] == 2
    assert study.plan.audits["groups"].settings["threshold"] == "argmax"
    assert study.plan.engine_settings == {"threads": 1}
    assert json.loads((study.folder / "plan.json").read_text()) == study.plan.model_dump(mode="json")


def test_the_same_file_gives_the_same_units_anywhere(toml: Path) -> None:
    assert plan(toml, toml.parent / "one").units == plan(toml, toml.parent / "two").units


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("epochs = 2", "epochs = 3"),
        ("agreement = 0.9", "agreement = 0.8"),
        ("width = 4", "width = 5"),
        ("threads = 1", "threads = 2"),
        ("batch = 32", "batch = 16"),
        ("[performance]", "[extract]\nbatch = 16\n[performance]"),
    ],
)
def test_what_changes_numbers_makes_new_units(tmp_path: Path, tiny: str, old: str, new: str) -> None:
    before, after = planned_from(tmp_path, tiny, "a"), planned_from(tmp_path, tiny.replace(old, new), "b")
    assert not set(before.units) & set(after.units)


@pytest.mark.parametrize(
    ("old", "new", "measures_again"),
    [
        ("[audits.flips]", "[audits.flips]\ntolerance = 0.1", True),
        ("[performance]\nB = 50", "[performance]\nB = 60", True),
        ("pixel_noise = 0.3", "pixel_noise = 0.4", True),
        ("threads = 1", "threads = 1\nattempts = 5", False),
        ('engine = "inline"', 'engine = "local"', False),
        ("batch = 32", "batch = 32\nworkers = 1", False),
    ],
)
def test_what_changes_no_weight_keeps_the_units(tmp_path: Path, tiny: str, old: str, new: str, measures_again: bool) -> None:
    before, after = planned_from(tmp_path, tiny, "a"), planned_from(tmp_path, tiny.replace(old, new), "b")
    assert before.units == after.units
    assert (before.plan.measured != after.plan.measured) == measures_again


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("name =", "nmae =", "did you mean 'name'?"),
        ("epochs = 2", "epoch = 2", "did you mean 'epochs'?"),
        ("agreement = 0.9", "agrement = 0.9", "did you mean 'agreement'?"),
        ('world = "digits"\nagreement', 'world = "digts"\nagreement', "did you mean 'digits'?"),
        ("width = 4", "widht = 4", "did you mean 'width'?"),
        ("seed = [0, 1]", "seed = [0, 1]\nlearning_rate = 1", r"\[\[runs\]\] 1 has no setting 'learning_rate'"),
        ('architecture = "cnn"', 'architecture = "cn"', "did you mean 'cnn'?"),
        ("[audits.flips]", "[audits.flip]", "did you mean 'flips'?"),
        ("[audits.groups]\nB", "[audits.groups]\nBB", "known: "),
        ("[audits.groups]\n", '[audits.groups]\nattribute = "cu"\n', "did you mean 'cue'?"),
        ("threads = 1", "thread = 1", "did you mean 'threads'?"),
        ("threads = 1", 'engine = "x"', "has no setting 'engine'"),
        ('engine = "inline"', 'engine = "lokal"', "did you mean 'local'?"),
        ("threads = 1", 'batched = "yes"', "batched is \"yes\"; expected true or false or 'auto'"),
        ("[performance]\nB", "[performance]\nb", "known: B, level"),
        ("[train]", "[cohorts.few]\nfewer = 1\n[train]", "known: balance, bias, redrawn"),
        ("[train]", "[cohorts.few]\n[train]", "exactly one of"),
        ("[train]", '[regimes.a]\ncohort = "b"\n[train]', "no training set"),
        ("[train]", '[regimes.a]\nmethod = "magic"\n[train]', "magic"),
        ('model = "rightreasons', 'mdel = "rightreasons', "has no model"),
        ('world = "digits"\nagreement', 'manifest = "a.csv"\nworld = "digits"\nagreement', "either manifest"),
        ('name = "tiny"', "name = ", "not TOML"),
        ("epochs = 2", 'epochs = "two"', r'\[train\] epochs is "two"; expected a whole number'),
        ("epochs = 2", 'optimizer = "adm"', r"\[train\] optimizer is \"adm\"; expected 'adamw' or 'adam' or 'sgd'"),
        ("agreement = 0.9", 'agreement = "much"', r'\[data\] agreement is "much"; expected a number'),
        ("seed = [0, 1]", "seed = [0, -1]", "seed is -1; expected a whole number from 0"),
        ("seed = [0, 1]", 'seed = ["a"]', "seed is 'a'; expected a whole number from 0"),
        ("[performance]\nB = 50", "[performance]\nB = 1.5", r"\[performance\] B is 1.5; expected a whole number"),
        ("[audits.groups]\nB = 50", '[audits.groups]\nB = "many"', r'\[audits.groups\] B is "many"; expected a whole number'),
        ("threads = 1", "threads = 1\nattempts = 0", "attempts is 0"),
        ("threads = 1", 'threads = "two"', r'\[engine_settings\] threads is "two"'),
        ("[performance]", "[extract]\nbatch = [1]\n[performance]", r"\[extract\] batch is \[1\]; expected a whole number"),
    ],
)
def test_a_wrong_key_is_an_error_that_names_the_nearest(tmp_path: Path, tiny: str, old: str, new: str, said: str) -> None:
    with pytest.raises(SettingError, match=said):
        planned_from(tmp_path, tiny.replace(old, new, 1))


def test_a_network_that_cannot_be_built_stops_the_plan(tmp_path: Path, tiny: str) -> None:
    with pytest.raises((ModelError, SettingError), match="small_cnn"):
        planned_from(tmp_path, tiny.replace(":small_cnn", ":smal_cnn"))


def test_training_sets_change_train_and_val_rows_only(tmp_path: Path, tiny: str) -> None:
    more = "[cohorts.even]\nbalance = {}\n[cohorts.few]\nbias = {discordant = 5}\n[cohorts.again]\nredrawn = 2\n"
    study = planned_from(tmp_path, tiny.replace("[external", more + "[external", 1).replace("n = 200", "n = 600", 1))
    data = study.cohort("data")
    for name in ("even", "few", "again"):
        other = study.cohort(name)
        for split in ("audit", "test"):
            assert other.on(split).fingerprint == data.on(split).fingerprint
        assert other.on("train").fingerprint != data.on("train").fingerprint
    assert study.cohort("even").on("train").counts().to_numpy().std() == 0
    few = study.cohort("few").on("train").counts().to_numpy()
    assert few[0, 1] == few[1, 0] == 5
    few = study.cohort("few").on("val").counts().to_numpy()
    assert few[0, 1] == few[1, 0] == 1  # 5 of 360 rows are about 1 of 60


def test_rows_without_splits_get_all_four(tmp_path: Path, tiny: str) -> None:
    study = planned_from(
        tmp_path, tiny.replace("[train]", "[split]\nfractions = {train = 0.5, val = 0.1, audit = 0.2, test = 0.2}\n[train]")
    )
    sizes = study.plan.cohorts["data"].splits
    assert sum(sizes.values()) == 200
    assert abs(sizes["train"] - 100) <= 2


def test_a_manifest_is_read_from_beside_the_file(tmp_path: Path, tiny: str) -> None:
    planned_from(tmp_path, tiny, "first")  # writes a world that serves as the user's own data
    columns = 'manifest = "first/world/manifest.csv"\nid = "id"\nattribute = "cue"\nsplit = "split"\n'
    head, tail = tiny.split("[external", 1)
    study = planned_from(tmp_path, head.split("[data]")[0] + "[data]\n" + columns + "[external" + tail, "second")
    assert len(study.units) == 2
    assert Path(study.plan.cohorts["data"].root).is_absolute()
    assert study.plan.cohorts["siteb"].root == "world-siteb"


def test_starting_weights_belong_to_the_seed(toml: Path) -> None:
    settings = next(iter(plan(toml, toml.parent / "study").plan.units.values())).load
    weights = [load(settings, seed).module.fc.weight.detach().numpy() for seed in (0, 0, 1)]
    assert np.array_equal(weights[0], weights[1])
    assert not np.array_equal(weights[0], weights[2])


def test_a_dry_plan_writes_no_plan(toml: Path) -> None:
    study = planned(toml, toml.parent / "study", save=False)
    assert len(study.units) == 2
    assert not (study.folder / "plan.json").exists()
    with pytest.raises(RightReasonsError, match="no study in"):
        Study.open(study.folder)


@pytest.mark.parametrize(
    ("name", "units"),
    [("digits/quick", 6), ("digits/study", 30), ("oscar/study", 11), ("oscar/sweep", 23), ("mitigations/study", 70)],
)
def test_the_examples_are_plans(tmp_path: Path, name: str, units: int) -> None:
    source = Path(__file__).parents[2] / "examples" / f"{name}.toml"
    assert len(plan(source, tmp_path).units) == units
