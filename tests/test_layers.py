"""Rooms stay apart: imports go one way, and the numbers wing knows nothing of torch."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "rightreasons"
TORCH = {"torch", "torchvision", "timm", "captum", "zennit", "monai", "transformers"}

TORCH_WING = {"models", "attributions", "perturbations", "mitigations"}
DRIVERS = {"cli", "demo", "serve", "gate", "study", "__main__", "__init__"}
# What each room of the numbers wing and of the ground floor may import, beside errors, families and progress.
MAY_IMPORT = {
    "errors": set(),
    "files": set(),
    "measurements": {"stats"},
    "families": set(),
    "progress": set(),
    "display": set(),
    "data": set(),
    "head": set(),
    "findings": set(),
    "stats": set(),
    "partitions": {"data"},
    "evidence": {"data", "head"},
    "check": {"data", "evidence", "head", "stats", "audits"},
    "audits": {"stats", "measurements", "evidence", "findings", "data", "head", "partitions"},
    "calibration": set(),
    "report": {"findings", "case", "calibration"},
    "case": {"findings", "stats"},
    "remedy": {"stats", "evidence", "findings"},
    "compare": {"remedy", "evidence", "findings"},
    "exports": {"findings", "report", "case", "calibration"},
    "testing": {"audits", "stats", "evidence", "findings", "data", "head"},
}
GROUND = {"errors", "families", "files", "progress", "display"}


def _imports(file: Path) -> set[str]:
    """Full dotted names of everything a file imports, at any depth, except under TYPE_CHECKING."""
    tree = ast.parse(file.read_text())
    hidden = {
        child
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for child in ast.walk(node)
    }
    found = set()
    for node in ast.walk(tree):
        if node in hidden:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def _room(file: Path) -> str:
    parts = file.relative_to(SOURCE).parts
    return parts[0].removesuffix(".py")


FILES = sorted(SOURCE.rglob("*.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(SOURCE)))
def test_a_file_imports_only_what_its_room_may(file: Path) -> None:
    room = _room(file)
    imported = {name.split(".")[1] for name in _imports(file) if name.startswith("rightreasons.")}
    third_party = {name.split(".")[0] for name in _imports(file)}
    if room in TORCH_WING | DRIVERS:
        return
    assert room in MAY_IMPORT, f"{room} is a new room: say in MAY_IMPORT what it may import"
    assert not third_party & TORCH, f"{file} imports {third_party & TORCH}: the numbers wing never imports torch"
    assert imported <= MAY_IMPORT[room] | GROUND | {room}, f"{file} imports {imported - MAY_IMPORT[room] - GROUND - {room}}"


def test_audits_never_import_each_other() -> None:
    files = [f for f in (SOURCE / "audits").glob("*.py") if not f.name.startswith("_")]
    names = {f.stem for f in files}
    for file in files:
        others = {n.split(".")[2] for n in _imports(file) if n.startswith("rightreasons.audits.")} & names
        assert not others, f"{file.name} imports the audits {others}"


def test_the_torch_wing_imports_no_driver() -> None:
    for file in FILES:
        if _room(file) in TORCH_WING:
            imported = {name.split(".")[1] for name in _imports(file) if name.startswith("rightreasons.")}
            assert not imported & (DRIVERS - {"__init__"}), f"{file} imports {imported & DRIVERS}"


def test_importing_and_auditing_never_loads_torch() -> None:
    program = (
        "import sys, rightreasons as rr; from rightreasons.testing import synthetic_evidence;"
        "rr.audit('groups', synthetic_evidence(), B=50).finding(); import rightreasons.cli;"
        "bad = {'torch', 'timm'} & set(sys.modules); sys.exit(str(bad) if bad else 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
