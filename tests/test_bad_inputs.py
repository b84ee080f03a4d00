"""No bad input ends in a traceback: each is one sentence and an exit status, writes nothing it may not, and runs nothing."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bad_inputs
from bad_inputs import Bad
from rightreasons import cli

CASES = bad_inputs.every()
KEYWORD = re.compile(
    r"(?<![-\w.\]'\"])(?:label|attribute|image|bins|kinds|twin|mapping|size|mean|std|classes|num_classes|output|split|box|mask|root)="
)


@pytest.fixture(scope="session")
def shared(tmp_path_factory) -> Path:
    """What every case may read and none may change: a table with its images, predictions, findings and, with torch, weights."""
    from PIL import Image

    folder = tmp_path_factory.mktemp("shared")
    rng = np.random.default_rng(0)
    n = 24
    for i in range(n):
        Image.fromarray(rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(folder / f"{i}.png")
    table = pd.DataFrame({
        "image": [f"{i}.png" for i in range(n)], "y": [i % 2 for i in range(n)], "sex": ["f", "f", "m", "m"] * (n // 4),
        "split": ["train"] * 8 + ["val"] * 4 + ["audit"] * 4 + ["test"] * 8,
    })  # fmt: skip
    table.to_csv(folder / "data.csv", index=False)
    scored = pd.DataFrame({"id": [f"r{i}" for i in range(60)], "y": [i % 2 for i in range(60)], "sex": ["f", "m", "m"] * 20})
    scored.assign(p=rng.uniform(size=60)).to_csv(folder / "p.csv", index=False)
    _findings(folder)
    try:
        import torch
    except ModuleNotFoundError:
        return folder
    _weights(folder, torch)
    return folder


def _findings(folder: Path) -> None:
    from rightreasons.audits import audit_all
    from rightreasons.evidence import Evidence
    from rightreasons.study.folder import save_findings

    evidence = Evidence.from_predictions(folder / "p.csv", label="y", attribute="sex", id="id")
    save_findings(audit_all(evidence, audits=["groups"], settings={"groups": {"B": 50}}), folder / "audit")


def _weights(folder: Path, torch) -> None:
    from safetensors.torch import save_file

    from rightreasons.models.classifier import Classifier
    from rightreasons.models.small import small_cnn

    state, other = small_cnn(2).state_dict(), small_cnn(2).state_dict()
    changed = {key: value + 1 if value.is_floating_point() else value for key, value in other.items()}
    save_file(state, folder / "w.safetensors")
    save_file(small_cnn(2, width=8).state_dict(), folder / "other.safetensors")
    (folder / "cut.safetensors").write_bytes((folder / "w.safetensors").read_bytes()[:300])
    files = {
        "two.pt": {f"student.{key}": value for key, value in state.items()} | {f"teacher.{key}": v for key, v in changed.items()},
        "ema.pt": {"state_dict": state, "state_dict_ema": changed},
        "int8.pt": {key: value.to(torch.int8) for key, value in state.items()},
        "nan.pt": {key: value * float("nan") if value.is_floating_point() else value for key, value in state.items()},
        "mixed.pt": {"state_dict": state, "class_to_idx": {"a": 0, 1: "b"}},
        "words.pt": {"state_dict": state, "class_to_idx": {"a": "first", "b": "second"}},
        "three.pt": {"state_dict": state, "classes": ["a", "b", "c"]},
        "list.pt": [1, 2, 3],
        "tensor.pt": torch.zeros(3),
    }
    for name, content in files.items():
        torch.save(content, folder / name)
    (folder / "cut.pt").write_bytes((folder / "ema.pt").read_bytes()[:500])
    (folder / "evil.pt").write_bytes(b"cos\nsystem\n(S'touch executed'\ntR.")
    Classifier.load("rightreasons.models.small:small_cnn", num_classes=2, size=16).save(folder / "model")


def listed(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(p.relative_to(folder)): (p.stat().st_size, p.stat().st_mtime_ns) for p in folder.rglob("*") if not p.is_dir()}


def placed(bad: Bad, folder: Path, data: Path) -> None:
    for name, content in bad.files.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            target.write_bytes(content)
        else:
            target.write_text(content.replace("{data}", str(data)), encoding="utf-8")


@pytest.mark.parametrize("bad", [pytest.param(bad, id=bad.name, marks=[pytest.mark.torch] if bad.torch else []) for bad in CASES])
def test_a_bad_input_is_one_sentence(bad, shared, tmp_path, monkeypatch, capsys):
    work, out = tmp_path / "work", tmp_path / "out"
    work.mkdir()
    placed(bad, work, shared)
    before, data_before = listed(work), listed(shared)
    typed = bad.command.replace("{data}", str(shared)).replace("{out}", str(out))
    monkeypatch.chdir(work)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", ["rightreasons", *shlex.split(typed)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    said = capsys.readouterr()
    assert ended.value.code == bad.status, said
    assert "Traceback" not in said.err + said.out
    text = said.err if bad.status == 2 else " ".join((said.out + said.err).split())
    if bad.status == 2:
        lines = [line for line in said.err.splitlines() if not line.startswith("note: ")]
        assert len(lines) == 1 and lines[0].startswith("error: "), said.err
        assert len(said.err) < 1000, said.err
        assert not KEYWORD.search(said.err), said.err
    for word in bad.says:
        assert word in text, (word, text)
    assert listed(work) == before and listed(shared) == data_before
    assert not (work / "executed").exists()


def test_the_table_is_long_and_has_every_command():
    commands = {bad.command.split()[0] for bad in CASES}
    assert len(CASES) >= 300
    assert commands >= {
        "demo",
        "check",
        "train",
        "extract",
        "audit",
        "init",
        "template",
        "mitigate",
        "sweep",
        "verify",
        "report",
        "export",
        "gate",
        "serve",
    }
    assert len({bad.name for bad in CASES}) == len(CASES)
