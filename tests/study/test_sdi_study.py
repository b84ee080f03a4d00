"""A study around SDI and CCR: severities come first, tables and figures come from what is stored, and verify misses nothing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

pytest.importorskip("torch")

from rightreasons.audits.sdi import Panel, panel_of
from rightreasons.errors import SettingError
from rightreasons.exports import export
from rightreasons.findings import Finding, Scatter, Table
from rightreasons.study import Study, panels
from rightreasons.study.checklist import notes, verify
from rightreasons.study.runs import plan
from rightreasons.study.sweep import sweep
from rightreasons.study.tasks import CALIBRATION as SEVERITIES
from rightreasons.study.tasks import tasks

pytestmark = pytest.mark.torch

INDEX, FALL = "sdi: SDI (features)", "siteb_delta_auc"
TOML = f"""
name = "small"
engine = "inline"
[data]
world = "fundus"
n = 160
n_external = 60
pixels = 32
agreement = 0.9
agreement_test = 0.9
[external.siteb]
manifest = "world:external"
[cohorts.redrawn]
redrawn = 1
[architectures.cnn]
model = "rightreasons.models.small:small_cnn"
size = 32
width = 4
[architectures.vit]
model = "rightreasons.models.small:small_vit"
size = 32
dim = 16
depth = 1
heads = 2
patch = 8
[regimes.baseline]
[regimes.redrawn]
cohort = "redrawn"
[regimes.ccr]
method = "ccr"
strength = 3.0
[regimes.no-invariance]
method = "ccr"
strength = 3.0
representation = 0.0
prediction = 0.0
[regimes.no-sensitivity]
method = "ccr"
strengths = [3.0, 0.0]
sensitivity = 0.0
[train]
epochs = 1
batch = 32
[[runs]]
regime = ["baseline", "ccr"]
seed = [0, 1]
[[runs]]
architecture = "cnn"
regime = ["redrawn", "no-invariance", "no-sensitivity"]
seed = 0
[severities]
reference = "redrawn"
operators = ["border", "grain"]
most = 20
[performance]
B = 20
[audits.sdi]
attribute = "device"
B = 20
roles = {{panel = {{architecture = "*", regime = ["baseline", "ccr"]}}}}
[audits.two-probes]
method = "sdi"
attribute = "device"
B = 20
weights = [0.5, 0.5, 0.0]
roles = {{panel = {{architecture = "*", regime = ["baseline", "ccr"]}}}}
[audits.focus]
same = true
B = 20
[tables.ablation]
columns = ["{INDEX}", "two-probes: SDI (features)", "{FALL}"]
[relations.degradation]
regimes = ["baseline", "ccr"]
x = "{INDEX}"
y = ["{FALL}", "siteb_delta_ece"]
[pairs.ccr]
of = ["baseline", "ccr"]
columns = ["{INDEX}", "{FALL}"]
[engine_settings]
threads = 1
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdi")
    (folder / "small.toml").write_text(TOML)
    return sweep(folder / "small.toml", folder / "study", say=lambda _: None).folder


@pytest.fixture
def study(whole: Path, tmp_path: Path) -> Study:
    return Study.open(shutil.copytree(whole, tmp_path / "study"))


def unit_of(study: Study, architecture: str, regime: str, seed: int = 0) -> str:
    named = {(u.architecture, u.regime, u.seed): name for name, u in study.plan.units.items()}
    return named[architecture, regime, seed]


def finding(study: Study, name: str) -> Finding:
    return Finding.read(study.folder / "findings" / f"{name}.json")


def values(study: Study) -> pd.DataFrame:
    """Index and fall of AUC of every unit, from the stored tables."""
    frame = pd.read_parquet(study.folder / "estimates.parquet")
    rows = frame[(frame["audit"] == "sdi") & (frame["estimate"] == "SDI (features)") & (frame["model"] != "")]
    table = study.table.set_index("unit")
    return table.assign(index=rows.set_index("model")["value"])[["architecture", "regime", "seed", "index", FALL]]


# ---- severities ----------------------------------------------------------------------------------------------------------


def test_severities_are_calibrated_before_anybody_reads_them(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(TOML)
    planned = plan(tmp_path / "small.toml", tmp_path / "study")
    baseline, redrawn, ccr = (unit_of(planned, "cnn", regime) for regime in ("baseline", "redrawn", "ccr"))
    waiting = tasks(planned, list(planned.units)).waiting
    task, after = waiting[SEVERITIES]
    assert (task.step, task.units, task.reads) == ("calibrate", (baseline,), (redrawn,))
    assert after == {f"{baseline} train", f"{redrawn} train"}
    assert all(SEVERITIES in after for key, (task, after) in waiting.items() if task.step == "all")
    assert set(planned.waits_for(ccr)) == {baseline, redrawn}
    assert planned.settings("sdi")["severities"] is None  # they are not there yet


def test_every_unit_is_trained_and_measured_with_the_same_severities(study: Study) -> None:
    (calibration,) = study.plan.severities.values()
    severities = study.folder / calibration.file
    assert severities.is_file()
    told = json.loads(severities.read_text())
    assert {o["operator"] for o in told["operators"]} == {"border", "grain"}
    assert study.settings("sdi")["severities"] == str(severities)
    arrays = [study.evidence(unit).arrays("test") for unit in study.units]
    assert all(set(arrays[0]) == set(other) for other in arrays)
    assert all(study.measurement(unit, "sdi").calibrated for unit in study.units)


def test_other_calibrations_make_other_ccr_units(tmp_path: Path) -> None:
    named = []
    for text in (TOML, TOML.replace("most = 20", "most = 30")):
        (tmp_path / "small.toml").write_text(text)
        planned = plan(tmp_path / "small.toml", tmp_path / "study", save=False)
        named.append([unit_of(planned, "cnn", regime) for regime in ("baseline", "ccr")])
    assert named[0][0] == named[1][0]
    assert named[0][1] != named[1][1]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('reference = "redrawn"', 'reference = "redrawn"\nbaseline = {seed = 7}', "no unit of regime 'baseline'"),
        ('reference = "redrawn"', "severity = 1", "no setting 'severity'"),
        ('of = ["baseline", "ccr"]', 'of = ["baseline"]', "two regimes"),
        ('of = ["baseline", "ccr"]', 'of = ["baseline", "crc"]', "no regime 'crc'"),
        ("[tables.ablation]\n", "[tables.ablation]\nrows = 1\n", "no setting 'rows'"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, old: str, new: str, says: str) -> None:
    (tmp_path / "small.toml").write_text(TOML.replace(old, new))
    with pytest.raises(SettingError, match=says):
        plan(tmp_path / "small.toml", tmp_path / "study", save=False)


# ---- what it says --------------------------------------------------------------------------------------------------------


def test_a_table_has_the_mean_over_seeds_and_every_model(study: Study) -> None:
    over, each = (e for e in finding(study, "tables-ablation").exhibits if isinstance(e, Table))
    known = values(study)
    for row in over.rows:
        same = known[(known["architecture"] == row[0]) & (known["regime"] == row[1])]
        assert row[2] == len(same)
        assert row[3].value == pytest.approx(same["index"].mean())
        assert row[5].value == pytest.approx(same[FALL].mean())
    assert [row[0] for row in each.rows] and {row[0] for row in each.rows} == set(study.units)
    assert all(cell.low <= cell.value <= cell.high for row in each.rows for cell in row[4:])  # over resamples of the images


def test_a_relation_is_over_the_units_that_it_names(study: Study) -> None:
    found = finding(study, "relations-degradation")
    known = values(study).query("regime in ['baseline', 'ccr']")
    rank = stats.spearmanr(known["index"], known[FALL]).statistic
    line = stats.linregress(known["index"], known[FALL])
    assert found.estimates[0].value == pytest.approx(rank)
    cloud = next(e for e in found.exhibits if isinstance(e, Scatter))
    assert sorted(cloud.label) == sorted(known.index)
    analysis = next(e for e in found.exhibits if isinstance(e, Table))
    rows = {(row[0], row[1], row[2]): row[3] for row in analysis.rows}
    assert rows[f"{INDEX} and {FALL}", "linear regression", "slope"].value == pytest.approx(line.slope)
    within = known[["index", FALL]] - known.groupby("architecture")[["index", FALL]].transform("mean")
    assert rows[f"{INDEX} and {FALL}", "Pearson, within architecture", "ρ"].value == pytest.approx(within.corr().iloc[0, 1])
    assert rows[f"{INDEX} and {FALL}", "Spearman, clusters of architecture and regime", "ρ"].value == pytest.approx(rank)


def test_pairs_are_of_one_architecture_and_seed(study: Study) -> None:
    found = finding(study, "pairs-ccr")
    known = values(study).set_index(["architecture", "regime", "seed"])
    every = next(e for e in found.exhibits if e.title.endswith("every pair"))
    assert isinstance(every, Table) and len(every.rows) == 2 * 4
    for column, architecture, seed, before, after, difference in every.rows:
        name = "index" if column == INDEX else FALL
        assert before == pytest.approx(known.loc[(architecture, "baseline", seed), name])
        assert after == pytest.approx(known.loc[(architecture, "ccr", seed), name])
        assert difference == pytest.approx(after - before)
    boxes = [e for e in found.exhibits if isinstance(e, Scatter)]
    assert len(boxes) == 2 and all(e.boxes and set(e.x) == {"cnn", "vit"} for e in boxes)


def test_a_lower_index_under_ccr_is_said_to_be_no_evidence(study: Study) -> None:
    found = finding(study, "pairs-ccr")
    assert "by construction, and no evidence that a shortcut is gone" in found.sentence
    assert [check.name for check in found.checks if check.passed is False] == [f"{INDEX} is evidence"]
    page = " ".join((study.folder / "report.html").read_text().split())
    assert "a lower index under CCR is by construction, and no evidence that a shortcut is gone" in page


def test_a_model_that_comes_later_changes_no_other_index(study: Study, tmp_path: Path) -> None:
    (file,) = (study.folder / "panels").glob("sdi-*.json")
    panel, before = Panel.read(file), values(study)["index"]
    assert set(panel.models) == {u for u in study.units if study.plan.units[u].regime in ("baseline", "ccr")}
    (tmp_path / "more.toml").write_text(TOML + '[[runs]]\narchitecture = "cnn"\nregime = "baseline"\nseed = 7\n')
    more = sweep(tmp_path / "more.toml", study.folder, say=lambda _: None)
    after = values(more)["index"]
    assert len(after) == len(before) + 1 and after.notna().all()
    assert after[before.index].equals(before)
    assert Panel.read(file) == panel
    components = [more.measurement(unit, "sdi").components for unit in panel.models]
    assert Panel.fit(panel.name, panel.models, components) == panel


def test_a_panel_is_frozen_when_its_models_are_there_and_thaws_when_one_of_them_leaves_the_study(study: Study) -> None:
    group, models = ("cnn", "baseline"), [u for u in study.units if study.plan.units[u].regime in ("baseline", "ccr")]
    measured = {"panel": [study.measurement(unit, "sdi") for unit in models]}
    file = panels.place(study, "sdi", group)
    assert file is not None and panels.freeze(study, "sdi", group, models, measured) == {"panel": str(file)}
    file.unlink()
    (study.path(models[0]) / "row.json").rename(study.path(models[0]) / "row.away")
    assert panels.freeze(study, "sdi", group, models, measured) == {} and not file.exists()
    (study.path(models[0]) / "row.away").rename(study.path(models[0]) / "row.json")
    panel_of(measured["panel"], "another").save(file)
    kept = file.read_text().replace(models[0], "gone-0")
    file.write_text(kept)
    assert panels.freeze(study, "sdi", group, models, measured) == {"panel": str(file)}
    assert "gone-0" not in Panel.read(file).models


def test_everything_is_made_again_without_training(study: Study) -> None:
    before = {name: finding(study, name) for name in ("relations-degradation", "pairs-ccr", "tables-ablation")}
    trained = {unit: study.run(unit)["attempts"] for unit in study.units}
    shutil.rmtree(study.folder / "findings")
    (study.folder / "estimates.parquet").unlink()
    again = sweep(study.folder, say=lambda _: None)
    assert {unit: again.run(unit)["attempts"] for unit in again.units} == trained
    for name, found in before.items():
        assert finding(again, name).exhibits == found.exhibits


def test_tables_and_figures_are_written_from_what_is_stored(study: Study, tmp_path: Path) -> None:
    shutil.rmtree(study.folder / "runs")  # no model, no evidence, no measurement
    assert not export(study.folder, tmp_path / "out", kinds=("csv", "svg")).lacking
    written = {path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    for name in ("tables-ablation", "relations-degradation", "pairs-ccr"):
        assert any(path.startswith(f"tables/{name}/") and path.endswith(".csv") for path in written)
    for name in ("relations-degradation", "pairs-ccr"):
        assert any(path.startswith(f"figures/{name}/") and path.endswith(".svg") for path in written)
    maps = [path for path in written if path.startswith("figures/focus-cnn-ccr/") and path.endswith(".png")]
    operators = [path for path in written if path.startswith("figures/sdi-cnn-ccr/") and path.endswith(".png")]
    assert maps and operators


# ---- the checklist -------------------------------------------------------------------------------------------------------


def test_the_study_is_complete(study: Study) -> None:
    assert verify(study) == []
    assert notes(study) == []


def _without(file: Path, *names: str) -> None:
    """The .npz without some arrays."""
    with np.load(file) as stored:
        kept = {name: stored[name] for name in stored.files if name not in names}
    np.savez(file, **kept)


def _emptied(text: str, *tables: str) -> str:
    """A plan without some of its tables."""
    told = json.loads(text)
    return json.dumps({key: {} if key in tables else value for key, value in told.items()})


@pytest.mark.parametrize(
    ("file", "item"),
    [
        ("model/model.safetensors", "1"),
        ("model/model.json", "1"),
        ("model/curves.csv", "1"),
        ("predictions/test.parquet", "1"),
        ("predictions/siteb.parquet", "1"),
        ("run.json", "1"),
        ("row.json", "1"),
        ("measurements/performance.npz", "2"),
        ("evidence/test/features", "4"),
        ("evidence/audit/features", "4"),
        ("evidence/test/features@patches*", "4"),
        ("evidence/test/features@border*", "4"),
        ("evidence", "4"),
        ("measurements/sdi.npz", "audits"),
        ("measurements/focus.npz", "audits"),
    ],
)
def test_an_artefact_of_a_unit_that_is_gone_is_named(study: Study, file: str, item: str) -> None:
    unit = unit_of(study, "vit", "ccr", 1)
    gone = [path for path in study.path(unit).rglob("*") if path.relative_to(study.path(unit)).match(file)]
    assert gone
    for path in gone:
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    gaps = verify(study)
    assert gaps[0].unit == unit and gaps[0].item.startswith(item)


@pytest.mark.parametrize("array", ["features.s_nc.value", "features.r_sc.value", "probe.drop.value", "component_draws"])
def test_a_probe_that_is_gone_is_named(study: Study, array: str) -> None:
    unit = study.units[0]
    _without(study.path(unit) / "measurements" / "sdi.npz", array)
    (gap,) = verify(study)
    assert (gap.unit, gap.item[0]) == (unit, "4")


@pytest.mark.parametrize(
    ("file", "item"),
    [
        ("table.parquet", "2"),
        ("summary.parquet", "2"),
        ("estimates.parquet", "4"),
        ("runs/*/model/severities-*.json", "4"),
        ("panels/sdi-*.json", "4"),
        ("panels/two-probes-*.json", "4"),
        ("findings/pairs-ccr.json", "5"),
        ("findings/relations-degradation.json", "6"),
        ("findings/tables-ablation.json", "tables"),
    ],
)
def test_an_artefact_of_the_study_that_is_gone_is_named(study: Study, file: str, item: str) -> None:
    (path,) = study.folder.glob(file)
    path.unlink()
    assert verify(study)[0].item.startswith(item)


@pytest.mark.parametrize(("array", "items"), [("draws", "23"), ("degradation", "3")])
def test_bootstrap_distributions_that_are_gone_are_named(study: Study, array: str, items: str) -> None:
    unit = study.units[0]
    _without(study.path(unit) / "measurements" / "performance.npz", array)
    assert {(gap.unit, gap.item[0]) for gap in verify(study)} == {(unit, item) for item in items}


def test_a_metric_that_is_gone_is_named(study: Study) -> None:
    file = study.path(study.units[0]) / "row.json"
    whole = file.read_text()
    inside = [f"test_{metric}" for metric in ("auc", "accuracy", "ece", "brier")]
    outside = [f"siteb_{metric}" for metric in ("auc", "accuracy", "ece", "brier", "delta_auc", "delta_ece")]
    for name in inside + outside:
        row = json.loads(whole)
        del row["columns"][name]
        file.write_text(json.dumps(row))
        (gap,) = verify(study)
        assert gap.item[0] == ("2" if name in inside else "3") and name in gap.what


def test_a_part_of_a_finding_that_is_gone_is_named(study: Study) -> None:
    for name, part, gone, says in (
        ("relations-degradation", "exhibits", "SDI (features) against", "one point for each"),
        ("relations-degradation", "estimates", "Spearman", "Spearman"),
        ("relations-degradation", "estimates", "Pearson", "Pearson"),
        ("relations-degradation", "exhibits", "linear regression", "coefficients"),
        ("relations-degradation", "exhibits", "R²", "diagnostics"),
        ("pairs-ccr", "exhibits", "every pair", "difference of every pair"),
    ):
        found = finding(study, name)
        kept = [one for one in getattr(found, part) if gone not in one.model_dump_json()]
        assert len(kept) < len(getattr(found, part))
        found.model_copy(update={part: tuple(kept)}).save(study.folder)
        assert [says in gap.what for gap in verify(study)] == [True]
        found.save(study.folder)


def test_a_table_of_the_ablations_is_asked_for(study: Study) -> None:
    file = study.folder / "plan.json"
    file.write_text(_emptied(file.read_text(), "tables"))
    (gap,) = verify(Study.open(study.folder))
    assert gap.item.startswith("7") and "table" in gap.what


@pytest.mark.parametrize(("table", "item"), [("pairs", "5"), ("relations", "6")])
def test_what_an_sdi_and_ccr_study_must_ask_for_is_named(study: Study, table: str, item: str) -> None:
    file = study.folder / "plan.json"
    file.write_text(_emptied(file.read_text(), table))
    assert {gap.item[0] for gap in verify(Study.open(study.folder))} == {item}


def test_ablations_that_are_not_asked_for_are_named(study: Study) -> None:
    file = study.folder / "plan.json"
    told: dict[str, Any] = json.loads(file.read_text())
    told["units"] = {name: unit for name, unit in told["units"].items() if not unit["regime"].startswith("no-")}
    del told["audits"]["two-probes"]
    file.write_text(json.dumps(told))
    gaps = [gap for gap in verify(Study.open(study.folder)) if gap.item.startswith("7")]
    assert len(gaps) == 3


def test_a_study_that_shows_no_maps_is_told_so(study: Study) -> None:
    file = study.folder / "plan.json"
    told: dict[str, Any] = json.loads(file.read_text())
    del told["audits"]["focus"]
    file.write_text(json.dumps(told))
    assert [gap.item for gap in verify(Study.open(study.folder))] == ["explainability"]
