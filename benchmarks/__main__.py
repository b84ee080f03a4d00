"""`python -m benchmarks [NAME]`: one benchmark, or all that this machine can run; `all [NAME …]` writes docs/benchmarks.md."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from benchmarks import _scoreboard
from rich.console import Console

console = Console()


def main(arguments: list[str]) -> int:
    """Exit status: 0 if all ran, 2 for a name that nobody knows."""
    names = known()
    if arguments[:1] == ["all"] and all(name in names for name in arguments[1:]):
        return _scoreboard.main(arguments[1:] or [name for name in names if not cannot_run(_module(name))])
    if len(arguments) > 1 or (arguments and arguments[0] not in names):
        asked = " ".join(arguments)
        near = difflib.get_close_matches(asked, names, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        print(f"no benchmark named {asked!r}; known: {', '.join(names)}{hint}", file=sys.stderr)
        return 2
    for name in arguments or names:
        module = _module(name)
        if not arguments and (reason := cannot_run(module)):
            console.print(f"[dim]{name}: not run, {reason}[/dim]")
            continue
        if not arguments:
            console.rule(name)
        module.main()
    return 0


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"benchmarks.{name.replace('-', '_')}")


def known() -> list[str]:
    """A benchmark is a file of this folder with a `main()`; the file's name, with dashes, is its name."""
    here = pkgutil.iter_modules([str(Path(__file__).parent)])
    return sorted(m.name.replace("_", "-") for m in here if not m.name.startswith("_"))


def cannot_run(module: ModuleType) -> str:
    """Why this machine cannot run a benchmark; empty if it can."""
    if not getattr(module, "NEEDS_GPU", False):
        return ""
    if find_spec("torch") is None:
        return "torch is not installed"
    import torch

    return "" if torch.cuda.is_available() else "it needs a GPU"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
