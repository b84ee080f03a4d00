"""Rooms stay apart: imports go one way, nothing private leaves its room, and the numbers wing knows nothing of torch.

A room is a file or folder right under `src/rightreasons`. Imports count wherever they stand: inside functions and under
TYPE_CHECKING too. The package's version and place (`rightreasons.__version__`, `__file__`) belong to no room.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "rightreasons"
FILES = sorted(SOURCE.rglob("*.py"))

TORCH = {"torch", "torchvision", "timm", "captum", "zennit", "monai", "transformers"}
TORCH_WING = {"models", "attributions", "perturbations", "extraction", "mitigations"}
DRIVERS = {"study", "demo", "cli", "serve", "gate", "__init__", "__main__"}

GROUND = {"errors", "families", "files", "progress", "display", "spoken", "stored", "trust"}
"""What every room above them may import."""

MAY_IMPORT: dict[str, set[str]] = {
    # the ground: no more than what stands here
    "errors": set(),
    "files": {"errors"},
    "display": set(),
    "spoken": set(),
    "progress": {"display"},
    "trust": {"errors"},
    "families": {"errors", "trust"},
    "stored": {"errors"},
    "seal": set(),
    "tracking": set(),
    # what both wings know
    "data": set(),
    "head": set(),
    "findings": set(),
    "stats": set(),
    "calibration": set(),
    "partitions": {"data"},
    "evidence": {"data", "head"},
    "measurements": {"stats"},
    # the numbers wing
    "audits": {"stats", "measurements", "evidence", "findings", "data", "head", "partitions"},
    "case": {"findings", "stats"},
    "check": {"data", "evidence", "findings", "head", "stats", "audits"},
    "report": {"findings", "case", "calibration"},
    "remedy": {"stats", "evidence", "findings"},
    "compare": {"remedy", "evidence", "findings"},
    "trend": {"case", "compare", "findings"},
    "exports": {"findings", "report", "case", "calibration", "tracking"},
    "testing": {"audits", "stats", "evidence", "findings", "data", "head"},
    # the torch wing; a mitigation or perturbation may use the formula of an audit
    "models": {"data", "evidence", "head", "stats"},
    "attributions": {"models", "evidence"},
    "perturbations": {"attributions", "models", "audits", "data", "evidence", "head", "stats"},
    "extraction": {"perturbations", "attributions", "models", "audits", "data", "evidence", "findings", "head", "stats"},
    "mitigations": {"extraction", "models", "audits", "data", "evidence", "head", "partitions", "remedy", "stats"},
    # the drivers
    "study": {
        "audits", "case", "check", "data", "evidence", "extraction", "findings", "measurements", "mitigations", "models",
        "remedy", "report", "seal", "stats", "tracking",
    },
    "gate": {"case", "findings"},
    "__init__": {"audits", "data", "evidence", "extraction", "findings", "mitigations", "models", "report", "study"},
    "serve": {"compare", "findings", "report", "study", "trend"},
    "demo": {
        "audits", "data", "evidence", "extraction", "findings", "mitigations", "models", "remedy", "report", "seal",
        "stats", "study",
    },
    "cli": {
        "audits", "case", "check", "compare", "data", "demo", "evidence", "exports", "extraction", "findings", "gate",
        "mitigations", "models", "remedy", "report", "seal", "serve", "stats", "study", "trend",
    },
    "__main__": {"cli"},
}  # fmt: skip


# ---- what a file imports ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Import:
    """One imported name: `rightreasons.models.forward.layer` from line 12 of a file."""

    file: Path
    line: int
    name: str

    def __str__(self) -> str:
        return f"{self.file.relative_to(SOURCE)}:{self.line} {self.name}"

    @property
    def is_ours(self) -> bool:
        return self.name.split(".")[0] == "rightreasons"

    @property
    def module(self) -> str:
        """The module of ours that is imported, or that the imported name stands in."""
        modules = _modules()
        return self.name if self.name in modules else self.name.rpartition(".")[0]

    @property
    def room(self) -> str:
        return _room(_modules()[self.module])

    @property
    def is_private(self) -> bool:
        """`_x`, in any part of the name."""
        return any(part.startswith("_") and not _is_dunder(part) for part in self.name.split("."))


@cache
def _modules() -> dict[str, Path]:
    return {_module_name(file): file for file in FILES}


def _module_name(file: Path) -> str:
    parts = ("rightreasons", *file.relative_to(SOURCE).with_suffix("").parts)
    return ".".join(parts).removesuffix(".__init__")


def _room(file: Path) -> str:
    return file.relative_to(SOURCE).parts[0].removesuffix(".py")


@cache
def _imports(file: Path) -> tuple[Import, ...]:
    return tuple(Import(file, line, name) for line, name in _imported_names(ast.parse(file.read_text()), file))


def _imported_names(tree: ast.Module, file: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names if alias.name != "rightreasons")
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module, f"{file} imports by a relative path: write the whole name"
            names = [alias.name for alias in node.names if not _is_dunder(alias.name)]
            yield from ((node.lineno, f"{node.module}.{name}") for name in names)
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "rightreasons" and not _is_dunder(node.attr):
            yield node.lineno, f"rightreasons.{node.attr}"


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _private_uses(file: Path) -> Iterator[Import]:
    """Private names and modules that are imported, reached through an imported module, or imported by a name in quotes."""
    tree = ast.parse(file.read_text())
    yield from (one for one in _imports(file) if one.is_ours and one.is_private)
    bound = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and bound.get(node.value.id) in _modules():
            reached = Import(file, node.lineno, f"{bound[node.value.id]}.{node.attr}")
            if reached.is_private:
                yield reached
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            argument = node.args[0]
            if isinstance(argument, ast.Constant) and str(argument.value).startswith("rightreasons."):
                named = Import(file, node.lineno, str(argument.value))
                if named.is_private:
                    yield named


def _refuse_cycle(edges: Mapping[str, set[str]]) -> None:
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        pytest.fail(f"a circle of imports: {' ← '.join(error.args[1])}")


# ---- rooms --------------------------------------------------------------------------------------------------------------


def test_every_room_says_what_it_may_import() -> None:
    rooms = {_room(file) for file in FILES}
    assert rooms == set(MAY_IMPORT), f"lines to add to MAY_IMPORT, or to remove: {rooms ^ set(MAY_IMPORT)}"


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_a_file_imports_only_what_its_room_may(file: Path) -> None:
    room = _room(file)
    allowed = MAY_IMPORT[room] | {room}
    if room not in GROUND:
        allowed |= GROUND
    beyond = [str(one) for one in _imports(file) if one.is_ours and one.room not in allowed]
    assert not beyond, f"{room} may not import {beyond}"


def test_no_room_imports_itself_through_others() -> None:
    edges: dict[str, set[str]] = defaultdict(set)
    for file in FILES:
        edges[_room(file)] |= {one.room for one in _imports(file) if one.is_ours} - {_room(file)}
    _refuse_cycle(edges)


def test_what_rooms_may_import_makes_no_circle_either() -> None:
    _refuse_cycle(MAY_IMPORT)


@pytest.mark.parametrize("room", sorted(MAY_IMPORT))
def test_no_module_imports_itself_through_others(room: str) -> None:
    edges: dict[str, set[str]] = defaultdict(set)
    for file in FILES:
        if _room(file) == room:
            name = _module_name(file)
            edges[name] |= {one.module for one in _imports(file) if one.is_ours} - {name}
    _refuse_cycle(edges)


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_nothing_private_leaves_its_room(file: Path) -> None:
    taken = [one for one in _private_uses(file) if one.room != _room(file)]
    assert not taken, f"private names of other rooms: {[str(one) for one in taken]}"


# ---- audits and torch ---------------------------------------------------------------------------------------------------


def test_audits_never_import_each_other() -> None:
    folder = SOURCE / "audits"
    audits = {path.stem for path in folder.iterdir() if not path.name.startswith("_") and (path.is_dir() or path.suffix == ".py")}
    for file in folder.rglob("*.py"):
        imported = {one.module.split(".")[2] for one in _imports(file) if one.module.startswith("rightreasons.audits.")}
        others = (imported & audits) - {_audit_of(file, audits)}
        assert not others, f"{file.relative_to(folder)} imports the audits {others}"


def _audit_of(file: Path, audits: set[str]) -> str:
    """The audit that a file belongs to; empty for what audits share, which imports none of them."""
    first = file.relative_to(SOURCE / "audits").parts[0].removesuffix(".py")
    if first in audits:
        return first
    return ""


@pytest.mark.parametrize("room", sorted(set(MAY_IMPORT) - TORCH_WING - DRIVERS))
def test_the_numbers_wing_never_imports_torch(room: str) -> None:
    assert not MAY_IMPORT[room] & (TORCH_WING | DRIVERS)
    for file in FILES:
        if _room(file) == room:
            loaded = {one.name.split(".")[0] for one in _imports(file)} & TORCH
            assert not loaded, f"{file} imports {loaded}"


@pytest.mark.parametrize("room", sorted(TORCH_WING))
def test_the_torch_wing_imports_no_driver(room: str) -> None:
    assert not MAY_IMPORT[room] & DRIVERS


def test_importing_and_auditing_never_loads_torch() -> None:
    program = (
        "import sys, rightreasons as rr; from rightreasons.testing import synthetic_evidence;"
        "rr.audit('groups', synthetic_evidence(), B=50).finding(); import rightreasons.cli;"
        "bad = {'torch', 'timm'} & set(sys.modules); sys.exit(str(bad) if bad else 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
