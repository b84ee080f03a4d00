"""What every installation must do, with the lowest versions of what it needs, from a wheel, and without torch.

These tests need no other file of the repository: `make test-lowest` and `make test-wheel` run them on their own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import rightreasons
from rightreasons import cli
from rightreasons.findings import Finding

COMMANDS = [command.callback.__name__ for command in cli.app.registered_commands]
QUICK = ("--set", "groups.B=100", "--set", "pull.B=100", "--audits", "groups,pull,tsi")


@pytest.fixture
def run(monkeypatch, capsys):
    """Call the command line as a shell would: exit status, stdout, stderr."""

    def call(*arguments) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["rightreasons", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return call


@pytest.fixture
def predictions(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    label, sex, site = (rng.integers(0, k, 300) for k in (2, 2, 3))
    p = 1 / (1 + np.exp(-(rng.normal(size=300) + 2 * label + 1.5 * sex - 2)))
    told = {"id": [f"r{row}" for row in range(300)], "label": label, "sex": np.array(["f", "m"])[sex], "p": p}
    told |= {"site": np.array(["a", "b", "c"])[site], "subject": [f"s{row // 2}" for row in range(300)]}
    pd.DataFrame(told).to_csv(tmp_path / "p.csv", index=False)
    return tmp_path / "p.csv"


@pytest.fixture
def audited(run, predictions: Path, tmp_path: Path) -> Path:
    columns = ("--id", "id", "--attribute", "sex", "--attribute", "site", "--subject", "subject")
    status, out, err = run("audit", "--predictions", predictions, *columns, *QUICK, "--out", tmp_path / "audit")
    assert status == 0, (out, err)
    assert "groups-sex: " in out and "not run" in out
    return tmp_path / "audit"


def test_the_script_that_is_installed_starts():
    script = Path(sys.executable).parent / "rightreasons"
    told = subprocess.run([script, "version"], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == rightreasons.__version__


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_every_command_says_what_it_does(run, command):
    status, out, _ = run(*filter(None, [command]), "--help")
    assert status == 0
    assert "Usage: " in out and "--help" in out


def test_a_table_of_predictions_is_audited_and_its_folder_verified(run, audited):
    assert (audited / "report.html").stat().st_size > 50_000
    assert run("verify", audited)[0] == 0
    file = audited / "findings" / "groups-sex.json"
    file.write_text(file.read_text() + " ")
    status, out, _ = run("verify", audited)
    assert status == 1 and "changed: findings/groups-sex.json" in out
    assert run("seal", audited)[0] == 0
    assert run("verify", audited)[0] == 0


def test_findings_are_judged_by_the_gate(run, audited, tmp_path):
    status, out, err = run("gate", audited, "--junit", tmp_path / "junit.xml")
    assert status in (0, 1) and out.strip(), err
    assert (tmp_path / "junit.xml").read_text().startswith("<?xml")


def test_a_page_is_written_of_findings(run, audited, tmp_path):
    status, _, err = run("report", audited, "--out", tmp_path / "again.html")
    assert status == 0, err
    assert "groups-sex" in (tmp_path / "again.html").read_text()


def test_findings_are_exported(run, audited, tmp_path):
    status, out, err = run("export", audited, "--to", tmp_path / "exported", "--only", "json,csv,parquet,svg,markdown")
    assert status == 0, (out, err)
    names = {file.stem for file in (tmp_path / "exported" / "findings").iterdir()}
    assert names == {finding.name for finding in Finding.read_all(audited)}


def test_a_table_is_checked(run, tmp_path):
    from PIL import Image

    (tmp_path / "images").mkdir()
    for row in range(20):
        pixels = np.random.default_rng(row).integers(0, 255, (16, 16, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "images" / f"{row}.png")
    told = {"image": [f"images/{row}.png" for row in range(20)], "label": [0, 1] * 10, "sex": list("ffmm") * 5}
    pd.DataFrame(told).to_csv(tmp_path / "manifest.csv", index=False)
    status, out, err = run("check", tmp_path / "manifest.csv", "--attribute", "sex", "--json")
    assert status in (0, 1), err
    assert json.loads(out)


def test_what_cannot_be_read_is_one_sentence(run, tmp_path):
    status, _, err = run("report", tmp_path)
    assert status == 2
    assert err.startswith("error: ") and err.count("\n") == 1
