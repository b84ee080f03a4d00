"""What a check found, as data, as JSON and at a terminal."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from rightreasons.check import words
from rightreasons.data.schema import Problem

LEVELS = {"error": "bold red", "warning": "yellow", "info": "cyan"}  # in order of weight, with their colours
MOST_IN_CROSSTAB = 12


@dataclass(frozen=True)
class Report:
    """All that `check` found.

    Attributes
    ----------
    problems : errors first, then warnings and remarks; by kind, then by row
    groups : rows per label, and per (label, level) of every attribute that has levels: `attribute` ('' for the label alone),
        `split` ('' for all rows), `label`, `level`, `n`
    notes : what was not looked at, and why
    """

    name: str
    rows: int
    problems: tuple[Problem, ...] = ()
    groups: tuple[dict[str, Any], ...] = ()
    notes: tuple[str, ...] = ()

    @cached_property
    def counts(self) -> dict[str, int]:
        """Problems by kind."""
        return dict(Counter(p.kind for p in self.problems))

    def level(self, level: str) -> tuple[Problem, ...]:
        """The problems of one level: error, warning or info."""
        return tuple(p for p in self.problems if p.level == level)

    @property
    def ok(self) -> bool:
        """No errors; there may be warnings."""
        return not self.level("error")

    @property
    def exit_status(self) -> int:
        return 0 if self.ok else 1

    def to_json(self) -> dict[str, Any]:
        """Plain values; rows count from 0, lines of the file from 1."""
        return {
            "name": self.name,
            "rows": self.rows,
            "ok": self.ok,
            "exit_status": self.exit_status,
            "errors": len(self.level("error")),
            "warnings": len(self.level("warning")),
            "counts": dict(self.counts),
            "problems": [asdict(p) for p in self.problems],
            "groups": [dict(g) for g in self.groups],
            "notes": list(self.notes),
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Report:
        """What `to_json` gave."""
        problems = tuple(Problem(**p) for p in stored["problems"])
        return cls(stored["name"], stored["rows"], problems, tuple(map(dict, stored["groups"])), tuple(stored["notes"]))

    def print(self, console: Console | None = None, *, all: bool = False, limit: int = 5) -> None:
        """Problems grouped by kind, `limit` rows of each unless `all`; group sizes; the sum in the last line."""
        console = console or Console()
        for (level, kind), group in groupby(self.problems, key=lambda p: (p.level, p.kind)):
            problems = list(group)
            shown = problems if all else problems[:limit]
            title = Text.assemble((level, LEVELS[level]), " ", (kind.replace("-", " "), "bold"), f" ({len(problems)})")
            console.print(title)
            console.print(_listing(shown))
            if len(problems) > len(shown):
                console.print(Text(f"  and {len(problems) - len(shown)} more"))
        for attribute in dict.fromkeys(g["attribute"] for g in self.groups):
            heading = f"rows per label and {attribute}" if attribute else "rows per label"
            console.print(Text(_harmless(heading), style="bold"))
            console.print(_crosstab([g for g in self.groups if g["attribute"] == attribute and not g["split"]]))
        for note in self.notes:
            console.print(Text(_harmless(note)))
        console.print(Text(self._sum(), style="green" if self.ok else "bold red"))

    def _sum(self) -> str:
        errors, warnings = (_counted(len(self.level(level)), level) for level in ("error", "warning"))
        line = f"{errors}, {warnings} in {words.rows(self.rows)}"
        return line if self.ok else f"{line}: fix the errors first"


def _counted(n: int, level: str) -> str:
    return f"{n} {level}" if n == 1 else f"{n} {level}s"


def _listing(problems: Sequence[Problem]) -> Grid:
    grid = Grid.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold", max_width=32)
    grid.add_column(overflow="fold", ratio=1)
    for p in problems:
        grid.add_row(Text(_harmless(f"  {_place(p)}")), Text(_harmless(p.id)), Text(_harmless(p.message)))
    return grid


def _place(problem: Problem) -> str:
    """Where to look for it: the row and its line in the file, or the column."""
    if problem.row is None:
        return problem.column
    row = f"row {problem.row + 1}"
    return row if problem.line is None else f"{row} (line {problem.line})"


def _crosstab(groups: Sequence[Mapping[str, Any]]) -> Grid | Text:
    """Rows per label (down) and level (across)."""
    labels = list(dict.fromkeys(g["label"] for g in groups))
    levels = list(dict.fromkeys(g["level"] for g in groups))
    if max(len(labels), len(levels)) > MOST_IN_CROSSTAB:
        return Text(f"  {len(labels)} labels and {len(levels)} levels are too many for a table here: the JSON has their sizes")
    size = {(g["label"], g["level"]): g["n"] for g in groups}
    grid = Grid.grid(padding=(0, 2))
    grid.add_column()
    for _ in levels:
        grid.add_column(justify="right")
    if levels != [""]:
        grid.add_row("", *(Text(_harmless(str(level))) for level in levels))
    for label in labels:
        grid.add_row(Text(f"  {_harmless(str(label))}"), *(Text(str(size[label, level])) for level in levels))
    return grid


JOINERS = {"\u200d", "\ufe0f"}  # of emoji


def _harmless(words: str) -> str:
    """Names from a manifest as harmless text: control characters and turns of direction are spelled out."""
    return "".join(_spelled_out(c) if _is_control(c) else c for c in words)


def _is_control(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cf") and character not in JOINERS


def _spelled_out(character: str) -> str:
    return character.encode("unicode_escape").decode()
