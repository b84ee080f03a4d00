"""`rightreasons audit STUDY.toml`: what the data allow is found, run once, and can be repeated from what was written."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tomli_w

torch = pytest.importorskip("torch")

import rightreasons as rr  # noqa: E402
from rightreasons import families  # noqa: E402
from rightreasons.case import Sheet, cases  # noqa: E402
from rightreasons.data import planted  # noqa: E402
from rightreasons.errors import EvidenceError, SettingError  # noqa: E402
from rightreasons.extraction import named_cohorts  # noqa: E402
from rightreasons.stats.correlation import cramers_v  # noqa: E402
from rightreasons.study import brought as brought_model  # noqa: E402
from rightreasons.study.data_sheet import association, sheet_of  # noqa: E402
from rightreasons.study.entrances import audit_study  # noqa: E402
from rightreasons.study.file import Audit, absolute, parsed, read  # noqa: E402
from rightreasons.study.filled import filled  # noqa: E402
from rightreasons.study.selection import Rows, select  # noqa: E402

pytestmark = pytest.mark.torch
NETWORK = {"num_classes": 2, "size": 16, "mean": 0.5, "std": 0.5}
FEW = {"groups": {"B": 50}, "flips": {"B": 50}, "probes": {"B": 50}, "art": {"B": 50, "controls": 20}}


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> rr.Cohort:
    return planted.digits(tmp_path_factory.mktemp("world"), n=240, pixels=16, agreement=0.85, agreement_test=0.5)


@pytest.fixture(scope="module")
def cnn(world) -> rr.Classifier:
    start = rr.Classifier.load("rightreasons.models.small:small_cnn", width=4, **NETWORK)
    return rr.train(start, world, epochs=2, batch=32, threads=1)


def silent(_: str) -> None:
    pass


# ---- what is chosen ------------------------------------------------------------------------------------------------------


def test_a_network_without_tokens_and_rows_without_twins_are_known_before_anything_runs(world, cnn):
    found = {one.method: one for one in select(None, Rows(world, named_cohorts(world), cnn))}
    assert "no blocks of attention" in found["tsi"].impossible and not found["oscar"].impossible
    assert found["short"].is_about_a_family and found["sdi"].calibrates and not found["groups"].calibrates
    assert {role.name for role in found["oscar"].references} == {"baseline", "attribute"}
    without = {name: rows for name, rows in named_cohorts(world).items() if name != "twin"}
    assert "no twin rows" in {one.method: one for one in select(None, Rows(world, without, cnn))}["flips"].impossible
    vit = rr.Classifier.load("rightreasons.models.small:small_vit", **NETWORK)
    assert not next(one for one in select({"tsi": Audit()}, Rows(world, named_cohorts(world), vit))).impossible


def test_audits_run_once_for_every_attribute_and_their_settings_are_checked_first(cnn):
    rows = rr.Cohort.from_columns(
        {"id": list("abcd"), "image": list("abcd"), "y": [0, 1, 0, 1], "sex": list("fmfm"), "site": list("ABAB")},
        label="y", attribute=["sex", "site"],
    )  # fmt: skip
    where = Rows(rows, {}, cnn)
    tables = {"groups": Audit(), "g": Audit(**{"method": "groups", "attribute": "sex"})}
    names = [one.name for one in select(tables, where)]
    assert names == ["groups-sex", "groups-site", "g"]
    with pytest.raises(SettingError, match="no attribute 'age'"):
        select({"groups": Audit(**{"attribute": "age"})}, where)
    with pytest.raises(SettingError, match="no setting 'b'"):
        select({"groups": Audit(**{"b": 1})}, where)


def test_the_column_of_adjudicated_labels_reaches_the_audits_that_take_one(cnn):
    columns = {"id": list("abcd"), "image": list("abcd"), "y": [0, 1, 0, 1], "sex": list("fmfm"), "panel": [0, 1, 1, 1]}
    rows = rr.Cohort.from_columns(columns, label="y", attribute=["sex"])
    takes = {name: "truth" in families.settings_of(families.member("audits", name).measure) for name in ("groups", "excess")}
    assert takes == {"groups": False, "excess": True}
    tables = {"groups": Audit(), "excess": Audit(), "own": Audit(**{"method": "excess", "truth": "y"})}
    found = {one.name: one.settings.get("truth") for one in select(tables, Rows(rows, {}, cnn, "panel"))}
    assert found == {"groups": None, "excess": "panel", "own": "y"}
    assert all("truth" not in one.settings for one in select(tables, Rows(rows, {}, cnn)) if one.name != "own")
    with pytest.raises(SettingError, match="no column 'panle'; did you mean 'panel'"):
        select(tables, Rows(rows, {}, cnn, "panle"))


# ---- one model -----------------------------------------------------------------------------------------------------------


def test_quick_trains_nothing_and_says_what_the_rest_would_need(world, cnn, tmp_path):
    audits = ["groups", "flips", "probes", "oscar", "short", "sdi"]
    settings = {name: FEW[name] for name in ("groups", "flips", "probes")}
    found = rr.audit_all(cnn, world, out=tmp_path, depth="quick", audits=audits, settings=settings, say=silent)
    by = {f.audit: f for f in found}
    assert not (tmp_path / "references").exists()
    assert "nothing is trained with --quick" in by["oscar"].not_run and "family of 21 models" in by["short"].not_run
    assert "--full" in by["short"].not_run and "not calibrated" in by["sdi"].not_run
    assert {f.model for f in found} == {"rightreasons.models.small:small_cnn"} and not by["groups"].not_run
    assert (tmp_path / "report.html").is_file() and len(Sheet.read(tmp_path).tables) == 2


def test_reference_models_are_trained_like_the_tested_one_and_only_once(world, cnn, tmp_path):
    settings = {"oscar": {"B": 50, "partitions": ["grid:4"]}}
    given = {"audits": ["oscar"], "settings": settings, "training": {"threads": 1}, "out": tmp_path, "say": silent}
    (oscar,) = rr.audit_all(cnn, world, **given)
    assert not oscar.not_run, oscar.not_run
    places = sorted(p.name for p in (tmp_path / "references").iterdir())
    assert places == ["balanced-cue-predicts-cue-s0", "balanced-cue-s0"]
    made = rr.Classifier.open(tmp_path / "references" / "balanced-cue-s0" / "model")
    assert made.card["settings"]["epochs"] == 2 and made.card["settings"]["batch"] == 32
    balanced = world.select(np.isin(world.id, sorted(made.used)))
    assert len(set(balanced.on("train").counts("cue").to_numpy().ravel())) == 1
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*.safetensors")}
    rr.audit_all(cnn, world, **given)
    assert before == {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*.safetensors")}


def test_an_attribute_of_three_values_gets_a_head_of_its_own(world, cnn, tmp_path):
    site = np.array(["A", "B", "C"])[np.random.default_rng(0).integers(0, 3, len(world))]
    columns = {"id": world.id, "image": world.image, "y": world.label, "split": world.splits, "site": site}
    rows = rr.Cohort.from_columns(columns, label="y", attribute=["site"], split="split", root=world.root)
    settings = {"oscar": {"B": 50, "partitions": ["grid:4"], "pictures": 0}}
    (oscar,) = rr.audit_all(cnn, rows, out=tmp_path, audits=["oscar"], settings=settings, training={"threads": 1}, say=silent)
    assert not oscar.not_run, oscar.not_run
    made = rr.Classifier.open(tmp_path / "references" / "balanced-site-predicts-site-s0" / "model")
    assert made.C == 3 and made.classes == ("A", "B", "C")


def test_a_brought_checkpoint_needs_starting_weights_and_rows_need_a_split(world, tmp_path):
    brought = rr.Classifier.load("rightreasons.models.small:small_cnn", width=4, **NETWORK)
    (oscar,) = rr.audit_all(brought, world, out=tmp_path / "a", audits=["oscar"], settings={"oscar": {"pictures": 0}}, say=silent)
    assert "starting weights unknown" in oscar.not_run
    unsplit = rr.Cohort.from_columns(
        {"id": world.id, "image": world.image, "y": world.label, "cue": world.attribute("cue").values},
        label="y", attribute=["cue"], root=world.root,
    )  # fmt: skip
    (oscar,) = rr.audit_all(brought, unsplit, out=tmp_path / "b", audits=["oscar"], start="fresh", say=silent)
    assert "training rows unknown" in oscar.not_run
    with pytest.raises(SettingError, match="did you mean 'quick'"):
        rr.audit_all(brought, world, out=tmp_path / "c", depth="quik", say=silent)


def test_another_model_in_the_same_folder_is_refused_and_changes_nothing(world, cnn, tmp_path):
    given = {"audits": ["groups"], "settings": {"groups": {"B": 50}}, "out": tmp_path, "say": silent}
    rr.audit_all(cnn, world, **given)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    other = rr.Classifier.load("rightreasons.models.small:small_cnn", width=4, rng=np.random.default_rng(5), **NETWORK)
    with pytest.raises(EvidenceError, match="choose another folder"):
        rr.audit_all(other, world, **given)
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


def test_a_brought_model_is_a_study_of_one_unit(world, cnn, tmp_path):
    rr.audit_all(cnn, world, audits=["groups"], settings={"groups": {"B": 50}}, out=tmp_path, say=silent)
    study = rr.Study.open(tmp_path)
    (unit,) = study.units
    assert (study.plan.brought, study.status(unit), study.path(unit)) == (unit, "done", tmp_path)
    assert study.plan.units[unit].method == "brought" and len(study.table) == 1
    assert [finding.name for finding in study.concluded()] == ["groups"]


def test_external_rows_are_described_beside(world, cnn, tmp_path):
    given = {"audits": ["groups"], "settings": {"groups": {"B": 50}}, "external": {"site b": world.on("audit")}}
    found = rr.audit_all(cnn, world, out=tmp_path, say=silent, **given)
    assert [(f.name, f.cohort) for f in found] == [("groups", "test"), ("groups-site b", "site b"), ("pull-site b", "site b")]
    assert all(f.verdict is None for f in found[1:])
    assert "site b" in str(Sheet.read(tmp_path).tables)
    with pytest.raises(SettingError, match="the name 'test' is taken"):
        rr.audit_all(cnn, world, out=tmp_path / "other", audits=["groups"], external={"test": world.on("audit")}, say=silent)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["categorical", "continuous"])
def test_full_trains_a_family(world, cnn, tmp_path, monkeypatch, kind):
    monkeypatch.setattr(brought_model, "SCALES", (-0.1, 0.0, 0.1))
    monkeypatch.setattr(brought_model, "FAMILY_SEEDS", 2)
    monkeypatch.setattr(brought_model, "REPLICATES", {"full": 1})
    if kind == "continuous":
        shift = np.random.default_rng(0).normal(size=len(world))
        columns = {"id": world.id, "image": world.image, "y": world.label, "split": world.splits}
        world = rr.Cohort.from_columns(
            {**columns, "cue": world.attribute("cue").values + shift},
            label="y",
            attribute=["cue"],
            split="split",
            root=world.root,
        )
    settings = {"short": {"B": 20, "permutations": 19}}
    training = {"epochs": 1, "threads": 1}
    given = {"audits": ["short"], "settings": settings, "training": training, "depth": "full", "out": tmp_path, "say": silent}
    (short,) = rr.audit_all(cnn, world, **given)
    assert not short.not_run, short.not_run
    assert len(list((tmp_path / "references").glob("family-cue-*"))) == 6 and short.model == "rightreasons.models.small:small_cnn"


def test_evidence_is_audited_as_before(world, cnn):
    evidence = rr.extract(cnn, world, ["groups"])
    assert [f.audit for f in rr.audit_all(evidence, audits=["groups"], settings={"groups": {"B": 50}})] == ["groups"]
    with pytest.raises(SettingError, match="leave out cohort"):
        rr.audit_all(evidence, world)
    with pytest.raises(SettingError, match="cohort= and out="):
        rr.audit_all(cnn)


# ---- from a file ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def brought(world, cnn, tmp_path_factory) -> Path:
    """A folder as a user has it: a CSV, a checkpoint, and a study.toml with relative paths."""
    from safetensors.torch import save_file

    folder = tmp_path_factory.mktemp("mine")
    table = pd.DataFrame({"image": world.image, "y": world.label, "cue": world.attribute("cue").values, "split": world.splits})
    table.to_csv(folder / "data.csv", index=False)
    save_file(cnn.module.state_dict(), folder / "w.safetensors")
    asked = {
        "name": "mine",
        "data": {"manifest": "data.csv", "label": "y", "attribute": ["cue"], "split": "split", "root": str(world.root)},
        "model": {"model": "rightreasons.models.small:small_cnn", "checkpoint": "w.safetensors", "width": 4, **NETWORK},
        "audits": {name: FEW[name] for name in ("groups", "probes", "art")},
    }
    (folder / "study.toml").write_text(tomli_w.dumps(asked))
    return folder


def test_a_study_of_a_brought_model_is_written_so_that_it_can_be_repeated(brought, tmp_path):
    first = audit_study(brought / "study.toml", tmp_path / "a", say=silent)
    written = tomllib.loads((tmp_path / "a" / "study.toml").read_text())
    assert written["data"]["manifest"] == str(brought / "data.csv") and written["depth"] == "usual"
    again = audit_study(tmp_path / "a" / "study.toml", tmp_path / "b", say=silent)  # paths are absolute: it works from anywhere
    assert [f.estimates for f in first] == [f.estimates for f in again]
    text = (tmp_path / "a" / "report.html").read_text()
    assert "rightreasons audit" in text and "study.toml" in text


def test_an_unknown_table_or_key_is_an_error_that_lists_the_known(brought, tmp_path):
    text = (brought / "study.toml").read_text()
    for change, words in (
        ("[modell]\n", "did you mean 'model'"),
        ("[references]\nepoch = 1\n", "did you mean 'epochs'"),
        ("[extract]\nbach = 1\n", "did you mean 'batch'"),
    ):
        (tmp_path / "s.toml").write_text(text + "\n" + change)
        with pytest.raises(SettingError, match=words):
            audit_study(tmp_path / "s.toml", tmp_path / "o", say=silent)
    (tmp_path / "s.toml").write_text("name = ")
    with pytest.raises(SettingError, match="is not TOML"):
        audit_study(tmp_path / "s.toml", tmp_path / "o", say=silent)
    (tmp_path / "s.toml").write_text("name = 'x'\n[data]\nmanifest = 'd.csv'")
    with pytest.raises(SettingError, match="neither \\[model\\] nor"):
        audit_study(tmp_path / "s.toml", tmp_path / "o", say=silent)


def test_a_study_of_runs_gets_the_audits_that_it_does_not_name(tiny, tmp_path):
    text = tiny[: tiny.index("[audits.groups]")] + tiny[tiny.index("[engine_settings]") :]
    (tmp_path / "t.toml").write_text(text)
    found = audit_study(tmp_path / "t.toml", tmp_path / "o", depth="quick", say=silent)
    assert {f.audit for f in found} >= {"groups", "flips", "probes", "art", "oscar", "tsi", "short", "sdi"}
    oscar = next(f for f in found if f.audit == "oscar")
    assert "baseline" in oscar.not_run and not any("baseline" in p.name for p in (tmp_path / "o" / "runs").iterdir())
    assert cases(found)[0].attribute == "cue"
    assert "Data sheet" in (tmp_path / "o" / "report.html").read_text() and Sheet.read(tmp_path / "o").imbalance


def test_full_and_usual_ask_for_families_and_references(tiny, tmp_path):
    text = tiny[: tiny.index("[audits.groups]")] + tiny[tiny.index("[engine_settings]") :]
    file = parsed(text, tmp_path / "t.toml")
    usual, full = (filled(file.model_copy(update={"depth": depth}), tmp_path) for depth in ("usual", "full"))
    assert usual.audits["oscar"].roles == {} and usual.severities.reference == "oscar-baseline"
    assert usual.audits["tsi"].roles == {"baseline": "none"}  # a CNN has no tokens: nothing is trained for it
    assert full.audits["short"].roles["sweep"] == {"regime": "family-cue"} and len(full.runs) == len(usual.runs) + 1
    assert "family-cue" not in usual.regimes and full.runs[0]["regime"] == ["erm"]


def test_paths_become_absolute_and_worlds_stay(tmp_path):
    (tmp_path / "ref").mkdir()
    given = {"external": {"a": {"manifest": "world:external"}, "b": {"manifest": "b.csv"}}, "references": {"baseline": ["ref"]}}
    found = absolute(given, tmp_path)
    assert found["external"] == {"a": {"manifest": "world:external"}, "b": {"manifest": str(tmp_path / "b.csv")}}
    assert found["references"]["baseline"] == [str(tmp_path / "ref")]
    (tmp_path / "s.toml").write_text('[data]\nmanifest = "d.csv"\n[model]\nmodel = "ref"\nstart = "fresh"')
    model = read(tmp_path / "s.toml").model
    assert (model.model, model.start) == (str(tmp_path / "ref"), "fresh")


# ---- the sheet -----------------------------------------------------------------------------------------------------------


def test_cramers_v_is_one_for_a_full_association_and_near_nought_for_none():
    rng = np.random.default_rng(0)
    label = rng.integers(0, 2, 4000)
    assert cramers_v(label, 1 - label) == pytest.approx(1, abs=1e-3)
    assert cramers_v(label, rng.integers(0, 3, 4000)) < 0.05
    tag = np.where(rng.random(4000) < 0.9, label, 1 - label)
    assert cramers_v(label, tag) == pytest.approx(0.8, abs=0.03)


def test_the_sheet_counts_groups_and_what_is_missing():
    rows = rr.Cohort.from_columns(
        {"id": [f"r{k}" for k in range(8)], "y": [0, 0, 1, 1, 0, 0, 1, 1], "sex": ["f", "f", "m", "m", "f", "", "m", "m"],
         "age": [1.0, 2, 3, 4, 1, 2, 3, 4], "split": ["train"] * 4 + ["test"] * 4},
        label="y", attribute=["sex", "age"], split="split", missing=[""], kinds={"age": "continuous"},
    )  # fmt: skip
    sheet = sheet_of(rows, trained=True)
    sex, age, left_out = sheet.tables
    assert sex.rows == (("train", "0", 2, 0), ("train", "1", 0, 2), ("test", "0", 1, 0), ("test", "1", 0, 2))
    assert age.rows[0] == ("train", "0", 2, 1.5, 0.5) and left_out.rows[1][4] == 1
    assert association(rows.on("train"), "age").value > 0.8 and [e.name for e in sheet.imbalance] == ["sex", "age"]
    assert not sheet_of(rows).imbalance
