"""`rightreasons mitigate`: from a table and a folder to a new model and a page, or one sentence about what is wrong."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

torch = pytest.importorskip("torch")

from typer.testing import CliRunner  # noqa: E402

from rightreasons.cli import app  # noqa: E402
from rightreasons.errors import SettingError  # noqa: E402
from rightreasons.findings import Finding  # noqa: E402
from rightreasons.mitigations import _check  # noqa: E402
from rightreasons.models.classifier import Classifier  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A manifest, and three models as `train` saves them."""
    place = tmp_path_factory.mktemp("mitigate")
    cohort = _check.world(place, 2)
    columns = {"id": cohort.id, "image": cohort.image, "label": cohort.label, "split": cohort.splits}
    frame = pd.DataFrame({**columns, "cue": cohort.attribute("cue").values, "twin": np.roll(cohort.image, 1)})
    frame.to_csv(place / "manifest.csv", index=False)
    _check._trained("cnn", cohort).save(place / "model")
    _check._trained("cnn", cohort, "cue").save(place / "attribute")
    return place


def _run(folder, method: str, *options: str):
    table = ["--attribute", "cue", "--split", "split", "--id", "id", "--device", "cpu", "--workers", "1"]
    command = ["mitigate", method, str(folder / "manifest.csv"), *table, "--model", str(folder / "model"), *options]
    return CliRunner().invoke(app, command, catch_exceptions=True)


def test_a_method_that_trains_writes_model_findings_and_page(folder, tmp_path) -> None:
    done = _run(folder, "balanced", "--out", str(tmp_path), "--set", "epochs=1", "--set", "how=reweight")
    assert done.exit_code == 0, done.output
    new = Classifier.open(tmp_path / "model")
    assert new.card["regime"] == "balanced"
    assert new.card["mitigation"]["settings"]["how"] == "reweight"
    names = {finding.name for finding in Finding.read_all(tmp_path)}
    assert {"remedy", "groups-before", "groups-after"} <= names
    assert "before and after balanced" in (tmp_path / "report.html").read_text()


def test_a_method_that_compares_takes_its_references_and_shows_its_own_table(folder, tmp_path) -> None:
    others = [
        "--baseline",
        str(folder / "model"),
        "--baseline",
        str(folder / "model"),
        "--attribute-model",
        str(folder / "attribute"),
    ]
    done = _run(
        folder, "attenuation", "--out", str(tmp_path), *others, "--set", "random_maps=2", "--set", "B=50", "--twin", "twin"
    )
    assert done.exit_code == 0, done.output
    names = {finding.name for finding in Finding.read_all(tmp_path)}
    assert {"remedy", "remedy-held-out", "flips-before", "flips-after"} <= names


@pytest.mark.parametrize(
    ("method", "options", "said"),
    [
        ("balance", [], "did you mean 'balanced'"),
        ("balanced", ["--set", "epoch=1"], "did you mean 'epochs'"),
        ("balanced", ["--set", "epochs"], "setting=value"),
        ("balanced", ["--baseline", "x"], "leave out --baseline"),
        ("attenuation", [], "give --baseline FOLDER"),
    ],
)
def test_what_is_wrong_is_one_sentence(folder, tmp_path, method, options, said) -> None:
    done = _run(folder, method, "--out", str(tmp_path), *options)
    assert isinstance(done.exception, SettingError)
    assert said in str(done.exception)
    assert not (tmp_path / "model").exists()


def test_a_brought_checkpoint_must_say_what_it_started_from(folder, tmp_path) -> None:
    table = ["--attribute", "cue", "--split", "split", "--id", "id"]
    brought = ["--model", "timm:test_resnet", "--checkpoint", str(tmp_path / "x.pt"), "--num-classes", "2"]
    done = CliRunner().invoke(app, ["mitigate", "erm", str(folder / "manifest.csv"), *table, *brought])
    assert isinstance(done.exception, SettingError)
    assert "--set start=fresh" in str(done.exception)


def test_auto_tries_the_last_layer_chooses_on_validation_rows_and_reports_all_of_them(folder, tmp_path) -> None:
    done = _run(folder, "auto", "--out", str(tmp_path))
    assert done.exit_code == 0, done.output
    finding = next(f for f in Finding.read_all(tmp_path) if f.name == "remedy-auto")
    (table,) = finding.exhibits
    methods = {str(row[0]) for row in table.rows}
    assert methods == {"art_head", "dfr", "refit"}
    refused = [row for row in table.rows if row[-1]]
    assert all(row[1] is None for row in refused) and len(refused) < 3
    wrote = (tmp_path / "model").exists()
    assert wrote == (finding.checks[0].passed is True)
    assert ("no model was written" in done.output) == (not wrote)


@pytest.mark.parametrize(
    ("method", "options", "said"),
    [("auto", ["--set", "batch=7"], "leave out --set"), ("dfr", ["--train"], "--train goes with auto")],
)
def test_auto_takes_no_settings_and_others_take_no_train(folder, tmp_path, method, options, said) -> None:
    done = _run(folder, method, "--out", str(tmp_path), *options)
    assert isinstance(done.exception, SettingError) and said in str(done.exception)
