"""Two users' walks, end to end: the commands of the pages in docs/paths, in a folder with the files of that user alone."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rightreasons.findings import Finding

ROOT = Path(__file__).parents[1]
PATHS = ROOT / "docs" / "paths"


def commands(page: str) -> list[str]:
    """Every command of a page's sh blocks, in order."""
    blocks = re.findall(r"^```sh\n(.*?)^```", (PATHS / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return [line for block in blocks for line in block.replace("\\\n", " ").splitlines() if line.strip()]


@pytest.fixture
def shell(tmp_path, monkeypatch):
    """Runs a command of a page as a user would: in a process of its own, in the folder with the user's files."""
    monkeypatch.chdir(tmp_path)
    beyond = {"RIGHTREASONS_QUIET": "1", "OMP_NUM_THREADS": "2", "PYTHONPATH": os.pathsep.join(sys.path)}

    def run(command: str, status: int = 0) -> str:
        program, *rest = shlex.split(command)
        assert program == "rightreasons", command
        done = subprocess.run(
            [sys.executable, "-m", "rightreasons", *rest],
            cwd=tmp_path, env={**os.environ, **beyond}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == status, (command, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        return done.stdout

    return run


# ---- the auditor ---------------------------------------------------------------------------------------------------------


def vendor_table(folder: Path, n: int = 400) -> pd.DataFrame:
    """Predictions of a vendor's model that leans on the view and not on sex or age."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, n)
    view = np.where(rng.random(n) < 0.5 + 0.2 * (2 * y - 1), "AP", "PA")
    z = 1.2 * (2 * y - 1) + 1.2 * (view == "AP") - 0.4 + rng.normal(size=n)
    table = pd.DataFrame({
        "study_id": [f"s{i:04d}" for i in range(n)], "patient_id": [f"p{i // 2}" for i in range(n)], "ground_truth": y,
        "view": view, "sex": rng.choice(["f", "m"], n), "age": rng.integers(20, 90, n), "risk": (1 / (1 + np.exp(-z))).round(3),
    })  # fmt: skip
    table.to_csv(folder / "vendor.csv", index=False)
    return table


@pytest.mark.slow
def test_the_auditors_walk(shell, tmp_path):
    table = vendor_table(tmp_path)
    walk = iter(commands("auditor.md"))

    said = shell(next(walk))
    found = {finding.name: finding for finding in Finding.read_all(tmp_path / "audit")}
    assert set(found) == {f"{audit}-{name}" for audit in ("groups", "pull") for name in ("view", "sex", "age")}
    assert found["pull-view"].verdict == "shortcut" and found["pull-sex"].verdict == "no evidence"
    called = table["risk"] > 0.5
    rate = next(e for e in found["groups-view"].estimates if e.name == "false positive rate, view = AP")
    assert rate.value == pytest.approx(called[(table["view"] == "AP") & (table["ground_truth"] == 0)].mean()) and rate.low
    (line,) = (line for line in said.splitlines() if line.startswith("behaviour, view: "))
    assert "answers follow it" in line and f"{rate.value:.1%} where view = AP" in line
    assert "cut at its quartiles" in said and said.count("other audits need") == 1 and "not run" not in said

    at = shell(next(walk))
    assert "threshold 0.3" in str(Finding.read_all(tmp_path / "audit-at-0.3")[0].exhibits) and "behaviour, view" in at
    shell(next(walk))
    assert "each half of the test rows" in str(Finding.read_all(tmp_path / "audit-f1")[0].exhibits)

    assert "the ids of 400 rows" in shell(next(walk))
    sent = pd.read_csv(tmp_path / "features.csv", dtype={"id": str})
    assert list(sent["id"]) == list(table["study_id"])
    rng = np.random.default_rng(1)
    filled = pd.DataFrame(
        {"id": sent["id"], **{f"f_{k}": rng.normal(size=400) + (k == 0) * 3 * (table["view"] == "AP") for k in range(8)}}
    )
    filled.sample(frac=1, random_state=0).to_csv(tmp_path / "features.csv", index=False)  # in another order
    shell(next(walk))
    probes = {
        finding.attribute: finding for finding in Finding.read_all(tmp_path / "audit-features") if finding.audit == "probes"
    }
    assert probes["view"].estimates[0].value > 0.8 > probes["sex"].estimates[0].value

    assert "files are as they were written" in shell(next(walk))
    shell(next(walk))
    assert (tmp_path / "exported").is_dir() and next(walk, None) is None


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["xlsx", "parquet"])
def test_excel_and_parquet_say_the_same_as_csv(shell, tmp_path, suffix):
    if suffix == "xlsx":
        pytest.importorskip("openpyxl")
    table = vendor_table(tmp_path)
    if suffix == "xlsx":
        table.to_excel(tmp_path / "vendor.xlsx", index=False)
    else:
        table.to_parquet(tmp_path / "vendor.parquet")
    command = commands("auditor.md")[0] + " --audits groups --set groups.B=50"
    for name in ("csv", suffix):
        shell(command.replace("vendor.csv", f"vendor.{name}").replace("--out audit", f"--out {name}"))
    one, other = (Finding.read_all(tmp_path / name) for name in ("csv", suffix))
    assert [finding.estimates for finding in one] == [finding.estimates for finding in other]


# ---- the engineer --------------------------------------------------------------------------------------------------------

SIDE, ROWS = 64, 360


def films(folder: Path) -> None:
    """Films with a finding in the middle and, in one view, a marker in the corner that goes with it in the training rows."""
    from PIL import Image

    rng = np.random.default_rng(0)
    (folder / "films").mkdir()
    y = rng.integers(0, 2, ROWS)
    split = np.array(["train", "train", "train", "val", "test", "test"])[np.arange(ROWS) % 6]
    ap = np.where(rng.random(ROWS) < np.where(split == "train", 0.95, 0.5), y, 1 - y)
    for i in range(ROWS):
        pixels = rng.normal(110, 12, (SIDE, SIDE))
        pixels[24:40, 24:40] += rng.uniform(0, 45) * y[i]  # some findings are faint, and there the marker decides
        pixels[4:14, 4:24] += 70 * ap[i]
        Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(folder / "films" / f"{i:04d}.png")
    pd.DataFrame({
        "file": [f"{i:04d}.png" for i in range(ROWS)], "y": y, "view": np.where(ap, "AP", "PA"),
        "age": rng.integers(20, 90, ROWS), "patient_id": [f"p{i}" for i in range(ROWS)], "split": split,
    }).to_csv(folder / "films.csv", index=False)  # fmt: skip


def train_and_save(folder: Path) -> None:
    """A small network of torchvision, trained briefly and saved as a training script would."""
    import torch
    from PIL import Image
    from torchvision.models import mobilenet_v3_small

    table = pd.read_csv(folder / "films.csv")
    stack = np.stack([np.asarray(Image.open(folder / "films" / name).convert("RGB")) for name in table["file"]])
    mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    x = torch.from_numpy(((stack / 255 - mean) / std).transpose(0, 3, 1, 2).astype(np.float32))
    y, rows = torch.tensor(table["y"].tolist()), torch.from_numpy(np.flatnonzero(table["split"] == "train"))
    torch.manual_seed(0)
    network = mobilenet_v3_small(num_classes=2)
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = 0.2  # few steps
    optimizer = torch.optim.AdamW(network.parameters(), 2e-3)
    for _ in range(10):
        for batch in rows[torch.randperm(len(rows))].split(20):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(network(x[batch]), y[batch]).backward()
            optimizer.step()
    torch.save({"state_dict": network.state_dict(), "img_size": SIDE, "crop_pct": 1.0}, folder / "weights.pt")


@pytest.mark.slow
@pytest.mark.torch
def test_the_engineers_walk(shell, tmp_path):
    pytest.importorskip("torch")
    films(tmp_path)
    train_and_save(tmp_path)
    walk = iter(commands("engineer.md"))

    said = " ".join(shell(next(walk)).split())
    for words in ("image file", "root films", "label y", "split split", "attribute view AP, PA", "size 64 weights.pt says so"):
        assert words in said
    study = (tmp_path / "study.toml").read_text()
    assert 'model = "torchvision:mobilenet_v3_small"  # the only known network' in study
    shell(next(walk))

    said = shell(next(walk))
    found = {finding.name: finding for finding in Finding.read_all(tmp_path / "audit")}
    planned = next(line for line in said.splitlines() if line.startswith("  will run: ")).removeprefix("  will run: ").split(", ")
    assert sorted(planned) == sorted(name for name, finding in found.items() if not finding.not_run)
    assert found["pull-view"].verdict == "shortcut" and found["pull-age"].verdict != "shortcut"
    assert "shortcut" in said.splitlines()[-1] and (tmp_path / "audit" / "report.html").stat().st_size > 10_000

    assert "files are as they were written" in shell(next(walk))
    shell(next(walk), status=1)  # there is a shortcut
    assert next(walk, None) is None
