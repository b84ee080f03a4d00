"""How far one has to walk to follow one command: functions, files, depth and changes of file, in the order they are first met.

The command is `rightreasons audit manifest.csv --quick --audits groups` on a small planted world with a brought CNN. Counted are
the package's own named functions, each once, when it is first called; what runs while a module is imported is not. A change of
file is a function that is met in another file than the one met before it.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console
from rich.table import Table

import rightreasons
from rightreasons import cli
from rightreasons.data import planted

HOME = str(Path(rightreasons.__file__).parent)
COLUMNS = "--label label --attribute cue --split split"
TRAIN = f"train manifest.csv {COLUMNS} --model rightreasons.models.small:small_cnn --size 16 --mean 0.5 --std 0.5 --epochs 2"
AUDIT = f"audit manifest.csv {COLUMNS} --model rightreasons-model --quick --audits groups --out audited"


@dataclass
class Walk:
    """A profile function that notes which named functions of the package are met."""

    met: dict[tuple[str, str], None] = field(default_factory=dict)
    depth: int = 0
    _stack: list[str] = field(default_factory=list)  # "" is a frame of somebody else, "import" one of a module at its import

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            self._stack.append(self._kind(frame))
        elif event == "return" and self._stack:
            self._stack.pop()

    def _kind(self, frame: FrameType) -> str:
        code = frame.f_code
        if code.co_name == "<module>":
            return "import"
        is_named = bool(code.co_flags & inspect.CO_OPTIMIZED) and not code.co_name.startswith("<")
        if not (is_named and code.co_filename.startswith(HOME)) or "import" in self._stack:
            return ""
        self.met.setdefault((code.co_filename, code.co_qualname))
        self.depth = max(self.depth, 1 + self._stack.count("own"))
        return "own"

    @property
    def files(self) -> list[str]:
        """The file of every function, in the order they are met."""
        return [str(Path(file).relative_to(HOME)) for file, _ in self.met]

    def counted(self) -> dict[str, int]:
        changes = sum(one != other for one, other in zip(self.files, self.files[1:], strict=False))
        return {
            "functions": len(self.met),
            "files": len(set(self.files)),
            "depth": self.depth,
            "changes_of_file": changes,
        }


def main() -> None:
    """Print files by the functions that are met in them and, as the last line, the JSON object."""
    os.environ["RIGHTREASONS_QUIET"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        planted.digits(folder, n=300, pixels=16)
        os.chdir(folder)
        command(TRAIN)
        walk = Walk()
        sys.setprofile(walk)
        try:
            command(AUDIT)
        finally:
            sys.setprofile(None)
        os.chdir(HOME)
    shown = Table("file", "functions met")
    for file, number in Counter(walk.files).most_common():
        shown.add_row(file, str(number))
    Console().print(shown)
    print(json.dumps({"benchmark": "walk", **walk.counted()}))


def command(line: str) -> None:
    sys.argv = ["rightreasons", *line.split()]
    try:
        cli.main()
    except SystemExit as end:
        if end.code:
            raise


if __name__ == "__main__":
    main()
