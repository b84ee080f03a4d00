"""Runs reach MLflow and Weights & Biases: logged by the real libraries into a folder, and read back with them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rightreasons.cli import app
from rightreasons.errors import SettingError
from rightreasons.report import report
from rightreasons.tracking import Run, tracker
from sample_findings import EVIL, finding, saved, some


@pytest.fixture
def audit(tmp_path: Path) -> Path:
    """An audit's folder with its page, and a name that neither library allows as it stands."""
    folder = tmp_path / "an audit: 1"
    saved(folder, [*some(), finding("sdi", "no evidence", attribute="größe·cm")])
    report(some(), folder / "report.html", title="A page")
    return folder


@pytest.fixture
def mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """MLflow with a folder as its store."""
    library = pytest.importorskip("mlflow", reason="MLflow is not installed: pip install rightreasons[track]")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    before = library.get_tracking_uri()
    library.set_tracking_uri((tmp_path / "mlruns").as_uri())
    yield library
    library.set_tracking_uri(before)


@pytest.fixture
def wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Weights & Biases without a network."""
    library = pytest.importorskip("wandb", reason="Weights & Biases is not installed: pip install rightreasons[wandb]")
    for name, value in {"MODE": "offline", "DIR": str(tmp_path), "SILENT": "true", "CACHE_DIR": str(tmp_path / "cache")}.items():
        monkeypatch.setenv(f"WANDB_{name}", value)
    monkeypatch.setenv("WANDB_DATA_DIR", str(tmp_path / "data"))
    library.teardown()  # it reads its environment once
    yield library
    library.teardown()


def logged_to(library: str, audit: Path) -> None:
    done = CliRunner().invoke(app, ["export", str(audit), "--log", library, "--project", "audits"])
    assert done.exit_code == 0, (done.output, done.exception)
    assert f"logged to {library}, in audits" in " ".join(done.output.split())


@pytest.mark.slow
def test_mlflow_keeps_numbers_verdicts_findings_and_page(audit: Path, mlflow: Any) -> None:
    logged_to("mlflow", audit)
    client = mlflow.MlflowClient()
    experiment = client.get_experiment_by_name("audits")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.run_name == audit.name
    assert run.info.status == "FINISHED"
    assert run.data.params["audits"] == "art, groups, oscar, sdi"
    assert run.data.metrics["art/effect"] == 0.3
    assert run.data.metrics["art/effect low"] == pytest.approx(0.25)
    assert 0 <= run.data.metrics["sex/case/score"] <= 1
    assert run.data.tags["sex/case/verdict"] == "shortcut"
    assert run.data.tags["gr__e_cm/case/verdict"] == "no evidence"
    assert run.data.tags["oscar/verdict"] == "not run"
    names = {file.path for file in client.list_artifacts(run.info.run_id)}
    assert {"report.html", "model-card.md", "findings"} <= names
    kept = client.download_artifacts(run.info.run_id, "findings/art.json")
    assert json.loads(Path(kept).read_text()) == json.loads((audit / "findings" / "art.json").read_text())


@pytest.mark.slow
def test_wandb_keeps_numbers_verdicts_findings_and_page(audit: Path, tmp_path: Path, wandb: Any) -> None:
    logged_to("wandb", audit)
    records = read(wandb, tmp_path)
    assert (records["run"][0].project, records["run"][0].display_name) == ("audits", audit.name)
    summary = {}
    for record in records["summary"]:
        for update in record.update:
            summary[update.key] = json.loads(update.value_json)
    assert summary["art/effect"] == 0.3
    assert summary["sex/case/verdict"] == "shortcut"
    assert summary["größe·cm/case/verdict"] == "no evidence"
    (artifact,) = records["artifact"]
    assert (artifact.type, artifact.name) == ("audit", "an-audit--1")
    kept = {entry.path: entry.size for entry in artifact.manifest.contents}
    assert {"report.html", "model-card.md", "findings/art.json"} <= set(kept)
    assert kept["report.html"] == (audit / "report.html").stat().st_size


def read(wandb: Any, place: Path) -> dict[str, list[Any]]:
    """What an offline run would send: its records by kind."""
    from wandb.proto import wandb_internal_pb2 as protocol
    from wandb.sdk.internal.datastore import DataStore

    wandb.teardown()  # so that its service has written everything
    (file,) = (place / "wandb").glob("offline-run-*/*.wandb")
    store = DataStore()
    found: dict[str, list[Any]] = {}
    store.open_for_scan(str(file))
    with store._fp:  # which it never closes itself
        while (data := store.scan_data()) is not None:
            record = protocol.Record()
            record.ParseFromString(data)
            kind = record.WhichOneof("record_type")
            found.setdefault(kind, []).append(getattr(record, kind))
    return found


@pytest.mark.slow
def test_the_same_run_is_the_same_in_both(tmp_path: Path, mlflow: Any, wandb: Any) -> None:
    run = Run("study", "unit-1", settings={"seed": 0, "lr": 0.1, "none": None}, numbers={"test_auc": 0.75})
    for library in ("mlflow", "wandb"):
        tracker(library)(run)
    client = mlflow.MlflowClient()
    (kept,) = client.search_runs([client.get_experiment_by_name("study").experiment_id])
    assert (kept.data.params, kept.data.metrics) == ({"seed": "0", "lr": "0.1"}, {"test_auc": 0.75})
    records = read(wandb, tmp_path)
    config = {update.key: json.loads(update.value_json) for update in records["run"][0].config.update}
    assert (config["seed"], config["lr"]) == (0, 0.1)
    assert "artifact" not in records


@pytest.mark.slow
def test_odd_texts_are_logged_as_they_are(tmp_path: Path, mlflow: Any) -> None:
    folder = saved(tmp_path / "odd", [finding(EVIL, model=EVIL, attribute=EVIL, sentence=EVIL)])
    logged_to("mlflow", folder)
    client = mlflow.MlflowClient()
    (run,) = client.search_runs([client.get_experiment_by_name("audits").experiment_id])
    assert any(EVIL in value for value in run.data.tags.values())


@pytest.mark.slow
def test_what_mlflow_refuses_is_said(mlflow: Any) -> None:
    mlflow.set_tracking_uri("no-such-scheme://somewhere")
    with pytest.raises(SettingError, match="MLflow did not take the run"):
        tracker("mlflow")(Run("study", "unit"))


def test_a_library_that_is_not_known_or_not_there_is_named(audit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingError, match="cannot log to 'mlfow'; did you mean 'mlflow'"):
        tracker("mlfow")
    monkeypatch.setitem(__import__("sys").modules, "wandb", None)
    with pytest.raises(SettingError, match=r"pip install rightreasons\[wandb\]"):
        tracker("wandb")
    both = CliRunner().invoke(app, ["export", str(audit), "--log", "mlflow", "--only", "csv"])
    assert "give one of them" in str(both.exception)
