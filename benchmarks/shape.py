"""How the source is shaped: conditional expressions, comprehensions, private functions and parameters, by room.

    make bench NAME=shape                      src/rightreasons
    FOLDER=path make bench NAME=shape          another package, such as an installed peer, for comparison

It counts syntax, not quality: a room far above the others is a place to read.
"""

from __future__ import annotations

import ast
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
    """Print a row per room and one for all."""
    package = Path(os.environ.get("FOLDER", PACKAGE))
    rooms: dict[str, Counter[str]] = {}
    for path in sorted(package.rglob("*.py")):
        room = path.relative_to(package).parts[0]
        rooms.setdefault(room if not room.endswith(".py") else "(top)", Counter()).update(_counts(path))
    table = Table("room", "lines", *(f"{rate}\nper 1,000" for rate in RATES), "private\nfunctions", "over 8\nparameters", *VAGUE)
    for room, counts in rooms.items():
        table.add_row(room, *_cells(counts))
    table.add_section()
    table.add_row("all", *_cells(sum(rooms.values(), Counter())))
    Console(width=140).print(table)


def _counts(path: Path) -> Counter[str]:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    counts = Counter(_kinds(tree))
    counts["lines"] = len(text.splitlines())
    return counts


def _kinds(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.IfExp):
            yield "conditional expressions"
        elif isinstance(node, COMPREHENSIONS):
            yield "comprehensions"
            if any(isinstance(inner, COMPREHENSIONS) for inner in ast.walk(node) if inner is not node):
                yield "nested comprehensions"
        elif isinstance(node, FUNCTIONS):
            yield from _function(node)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in VAGUE:
            yield node.id


def _function(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    yield "functions"
    if node.name.startswith("_") and not node.name.startswith("__"):
        yield "private functions"
    parameters = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    if len(parameters) > MOST_PARAMETERS:
        yield "over 8 parameters"


def _cells(counts: Counter[str]) -> list[str]:
    rates = [f"{1000 * counts[rate] / counts['lines']:.1f}" for rate in RATES]
    private = f"{counts['private functions'] / max(1, counts['functions']):.0%}"
    return [f"{counts['lines']:,}", *rates, private, str(counts["over 8 parameters"]), *(str(counts[name]) for name in VAGUE)]


if __name__ == "__main__":
    main()
