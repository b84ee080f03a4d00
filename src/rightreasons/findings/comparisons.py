"""Two sides next to each other: the table and the bars in which a finding shows before, after and the difference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rightreasons.findings import Bars, Cell, Table, WithLimits


@dataclass(frozen=True)
class Compared:
    """One number on both sides and its difference, None where a side has none; `labels` are the cells before them."""

    labels: tuple[str | int, ...]
    before: WithLimits | None
    after: WithLimits | None
    difference: WithLimits | None

    @property
    def is_clear(self) -> bool:
        """Whether the interval of the difference excludes zero."""
        change = self.difference
        return change is not None and change.low is not None and change.high is not None and not change.low <= 0 <= change.high


def comparison_table(
    title: str,
    caption: str,
    heads: Sequence[str],
    sides: tuple[str, str],
    lines: Sequence[Compared],
    highlight: Sequence[int],
) -> Table:
    """A table with one row for each number: its labels under `heads`, then both sides and the difference."""
    rows = []
    for line in lines:
        numbers = []
        for number in (line.before, line.after, line.difference):
            numbers.append(None if number is None else Cell.of(number))
        rows.append((*line.labels, *numbers))
    columns = (*heads, *sides, "difference")
    return Table(title=title, caption=caption, columns=columns, rows=tuple(rows), highlight=tuple(highlight))


def comparison_bars(
    title: str, caption: str, sides: tuple[str, str], lines: Sequence[Compared], labels: Sequence[str], value_label: str
) -> Bars:
    """Both sides as bars next to each other, each with its own interval; every line has both."""
    before = [line.before for line in lines if line.before is not None]
    after = [line.after for line in lines if line.after is not None]
    series = {sides[0]: before, sides[1]: after}
    return Bars(title=title, caption=caption, labels=tuple(labels), series=series, value_label=value_label)
