"""How source is shaped: conditional expressions, comprehensions, private functions and parameters, by room.

    make bench NAME=shape                                src/rightreasons, room by room
    FOLDER=path make bench NAME=shape                    another package, room by room
    ANCHORS="timm zennit path" make bench NAME=shape     beside ours, a row for each installed package or folder

It counts syntax, not quality: a room far above the others is a place to read. A comprehension counts as nested where it stands
inside another one. A private function (or method) counts as used once where its file names it in one place. Parameters leave out
self, cls, *args and **kwargs. Pairs of places that share six lines are counted by a tool of ours outside this repository.
"""

from __future__ import annotations

import ast
import importlib.util
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

PACKAGE = Path(__file__).parents[1] / "src" / "rightreasons"
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
MOST_PARAMETERS = 8
RATES = ("conditional expressions", "comprehensions", "nested comprehensions")  # per 1,000 lines
VAGUE = ("found", "told")  # names that fit everything


def main() -> None:
    """Print a row for each room and one for all; then a row for each anchor."""
    package = Path(os.environ.get("FOLDER", PACKAGE))
    rooms: dict[str, Counter[str]] = {}
    for path in sorted(package.rglob("*.py")):
        room = path.relative_to(package).parts[0]
        rooms.setdefault(room if not room.endswith(".py") else "(top)", Counter()).update(counted(path.read_text("utf-8")))
    rates = [f"{rate}\nper 1,000" for rate in RATES]
    table = Table("room", "lines", *rates, "private\nfunctions", "used\nonce", "over 8\nparameters", *VAGUE)
    for room, counts in rooms.items():
        table.add_row(room, *_cells(counts))
    table.add_section()
    table.add_row(f"all of {package.name}", *_cells(sum(rooms.values(), Counter())))
    for anchor in os.environ.get("ANCHORS", "").split():
        place = folder_of(anchor)
        table.add_row(place.name, *_cells(whole(place)))
    Console(width=140).print(table)


def folder_of(name: str) -> Path:
    """The folder of an installed package, or the folder named."""
    if Path(name).is_dir():
        return Path(name)
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"{name!r} is neither a folder nor an installed package")
    return Path(spec.submodule_search_locations[0])


def whole(package: Path) -> Counter[str]:
    """The counts of all files below a folder, its tests left out."""
    counts: Counter[str] = Counter()
    for path in package.rglob("*.py"):
        if "tests" not in path.relative_to(package).parts:
            counts.update(counted(path.read_text("utf-8")))
    return counts


def counted(text: str) -> Counter[str]:
    """The counts of one file."""
    tree = ast.parse(text)
    counts = Counter(_kinds(tree))
    counts["lines"] = len(text.splitlines())
    counts["nested comprehensions"] = sum(1 for _ in _nested(tree, inside=False))
    counts["private functions used once"] = _used_once(tree)
    return counts


def _kinds(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.IfExp):
            yield "conditional expressions"
        elif isinstance(node, COMPREHENSIONS):
            yield "comprehensions"
        elif isinstance(node, FUNCTIONS):
            yield from _function(node)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in VAGUE:
            yield node.id


def _nested(node: ast.AST, *, inside: bool) -> Iterator[ast.AST]:
    """Comprehensions that stand inside another one."""
    for child in ast.iter_child_nodes(node):
        is_one = isinstance(child, COMPREHENSIONS)
        if is_one and inside:
            yield child
        yield from _nested(child, inside=inside or is_one)


def _function(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    yield "functions"
    if _is_private(node.name):
        yield "private functions"
    parameters = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    if sum(1 for parameter in parameters if parameter.arg not in ("self", "cls")) > MOST_PARAMETERS:
        yield "over 8 parameters"


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _used_once(tree: ast.Module) -> int:
    """Private functions and methods that their file names in exactly one place."""
    defined, uses = set(), Counter[str]()
    for node in ast.walk(tree):
        if isinstance(node, FUNCTIONS) and _is_private(node.name):
            defined.add(node.name)
        elif isinstance(node, ast.Name):
            uses[node.id] += 1
        elif isinstance(node, ast.Attribute):
            uses[node.attr] += 1
    return sum(1 for name in defined if uses[name] == 1)


def _cells(counts: Counter[str]) -> list[str]:
    rates = [f"{1000 * counts[rate] / max(1, counts['lines']):.1f}" for rate in RATES]
    private = f"{counts['private functions'] / max(1, counts['functions']):.0%}"
    once = f"{counts['private functions used once'] / max(1, counts['private functions']):.0%}"
    others = [str(counts[name]) for name in ("over 8 parameters", *VAGUE)]
    return [f"{counts['lines']:,}", *rates, private, once, *others]


if __name__ == "__main__":
    main()
