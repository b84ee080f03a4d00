"""Numbers along the axes of a study: curves, bars, heat maps and the table of estimates behind them."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("torch")

from rightreasons.findings import Finding
from rightreasons.study import Study
from rightreasons.study.sweep import sweep

pytestmark = pytest.mark.torch

AXES = """
[cohorts.few]
bias = {discordant = 0.1}
[cohorts.many]
bias = {discordant = 0.4}
[regimes.erm]
[regimes.hasty]
epochs = 1
[train]
"""
CURVES = """
[curves.auc]
y = "test_auc"
x = "lr"
[curves.regimes]
y = "groups: accuracy"
x = "regime"
[curves.misnamed]
y = "groups: acuracy"
"""


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory, tiny: str) -> Study:
    folder = tmp_path_factory.mktemp("curves")
    runs = 'seed = [0, 1]\nregime = ["erm", "hasty"]\ncohort = ["many", "few"]\n'
    text = (
        tiny.replace("[train]", AXES, 1)
        .replace("seed = [0, 1]", runs)
        .replace("agreement = 0.9\nn = 200", "agreement = 0.6\nn = 480")
    )
    text = text.replace("[performance]", '[[runs]]\nregime = "erm"\nseed = 0\nlr = [1e-3, 3e-3, 1e-2]\n[performance]')
    (folder / "s.toml").write_text(text.split("[audits.flips]")[0] + "[engine_settings]\nthreads = 1\n" + CURVES)
    return sweep(folder / "s.toml", folder / "study", say=lambda _: None)


def found(study: Study, name: str) -> Finding:
    return next(finding for finding in study.findings() if finding.name == name)


def test_every_estimate_is_in_the_table_over_seeds_and_alone(study: Study) -> None:
    frame = pd.read_parquet(study.folder / "estimates.parquet")
    rows = frame[(frame["regime"] == "hasty") & (frame["axis_cohort"] == "few") & frame["headline"]]
    assert rows["model"].tolist() == ["", *[u for u in study.units if "hasty" in u and "few" in u]]
    finding = found(study, "groups-cnn-hasty-cohort=few")
    assert rows["estimate"].unique().tolist() == [finding.estimates[0].name]
    assert rows["value"].iloc[0] == finding.estimates[0].value
    alone = study.table.set_index("unit")["groups_accuracy"]
    assert frame[frame["estimate"] == "accuracy"].query("model != '' and group == ''")["value"].isin(alone).all()


def test_an_axis_of_names_is_drawn_in_the_order_of_the_file(study: Study) -> None:
    finding = found(study, "curves-groups-cohort")
    curves, heat, numbers, models = finding.exhibits
    assert curves.x == ("many", "few")  # type: ignore[union-attr]
    assert set(curves.series) == {"erm", "hasty"}  # type: ignore[union-attr]
    assert heat.row_labels == tuple(curves.series)  # type: ignore[union-attr]
    assert numbers.columns == ("", "cohort = many", "cohort = few")  # type: ignore[union-attr]
    assert len(models.rows) == 8  # type: ignore[union-attr]
    headline = pd.read_parquet(study.folder / "estimates.parquet").query("headline and model != '' and axis_cohort == 'few'")
    mean = headline[headline["regime"] == "erm"]["value"].mean()
    assert curves.series["erm"].y[1] == pytest.approx(mean)  # type: ignore[union-attr]
    assert finding.estimates[0].value is None  # two levels have no trend
    assert finding.verdict is None


def test_an_axis_of_numbers_is_drawn_to_scale(study: Study) -> None:
    finding = found(study, "curves-auc")
    curves = finding.exhibits[0]
    assert curves.x == (1e-3, 3e-3, 1e-2)  # type: ignore[union-attr]
    table = study.table.query("train_lr != 1e-3 or cohort == 'data'").sort_values("train_lr")
    (series,) = curves.series.values()  # type: ignore[union-attr]
    assert np.allclose(np.array(series.y, dtype=float), table["test_auc"])
    assert np.allclose(np.array(series.low, dtype=float), table["test_auc_low"])
    assert finding.estimates[0].n == 3
    assert "goes from" in finding.sentence


def test_regimes_are_compared_by_bars(study: Study) -> None:
    finding = found(study, "curves-regimes")
    assert finding.exhibits[0].kind == "bars"
    assert finding.estimates == ()
    assert "largest for" in finding.sentence


def test_a_number_that_is_nowhere_is_said_so(study: Study) -> None:
    assert "it has another name" in found(study, "curves-misnamed").not_run


def test_a_study_without_axes_has_no_curves(finished: Path, tmp_path: Path) -> None:
    study = Study.open(shutil.copytree(finished, tmp_path / "study"))
    assert not any(finding.audit == "curves" for finding in study.findings())
    assert len(pd.read_parquet(study.folder / "estimates.parquet")) > 10
