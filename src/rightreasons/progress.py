"""A progress bar for anything longer than a few seconds: live in a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

T = TypeVar("T")

PLAIN_EVERY_SECONDS = 15.0


def track(items: Iterable[T], what: str, total: int | None = None, done: int = 0) -> Iterator[T]:
    """Yield `items` and show how many of them are done.

    Parameters
    ----------
    total : number of items, where `len(items)` does not know it
    done : how many were finished before (a resumed job)

    `RIGHTREASONS_QUIET=1` in the environment shows nothing.
    """
    if total is None:
        total = len(items) if hasattr(items, "__len__") else None  # type: ignore[arg-type]
    if os.environ.get("RIGHTREASONS_QUIET"):
        yield from items
    elif Console(stderr=True).is_terminal:
        yield from _live(items, what, total, done)
    else:
        yield from _plain(items, what, total, done)


def _live(items: Iterable[T], what: str, total: int | None, done: int) -> Iterator[T]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=False) as bar:
        task = bar.add_task(what, total=None if total is None else total + done, completed=done)
        for item in items:
            yield item
            bar.advance(task)


def _plain(items: Iterable[T], what: str, total: int | None, done: int) -> Iterator[T]:
    start = last = time.monotonic()
    for count, item in enumerate(items, 1):
        yield item
        now = time.monotonic()
        if now - last >= PLAIN_EVERY_SECONDS:
            last = now
            of = "" if total is None else f" of {total + done}"
            left = "" if total is None else f", about {(now - start) / count * (total - count):.0f} s left"
            print(f"{what}: {count + done}{of}{left}", file=sys.stderr, flush=True)
