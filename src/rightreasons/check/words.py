"""How rows, sizes and long lists are put into words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def rows(n: int) -> str:
    return f"{n} row" if n == 1 else f"{n} rows"


def size(sides: Sequence[int]) -> str:
    return " x ".join(map(str, sides))


def some(values: Sequence[Any], most: int = 8) -> str:
    """The first few values, and how many more there are."""
    shown = ", ".join(map(str, values[:most]))
    return f"{shown}, … {len(values) - most} more" if len(values) > most else shown
