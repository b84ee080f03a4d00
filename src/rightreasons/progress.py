"""A progress bar for anything longer than a few seconds: live in a terminal or a notebook, a line now and then elsewhere."""

from __future__ import annotations

import html
import importlib
import os
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

T = TypeVar("T")

PLAIN_EVERY_SECONDS = 15.0
NOTEBOOK_EVERY_SECONDS = 0.5


def track(items: Iterable[T], what: str, total: int | None = None, done: int = 0, each: int = 1, unit: str = "") -> Iterator[T]:
    """Yield `items` and show how many of them are done.

    Parameters
    ----------
    total : number of items, where `len(items)` does not know it
    done : how many were finished before (a resumed job)
    each, unit : with a unit, how many of it a second are done is shown too, an item being `each` of them

    `RIGHTREASONS_QUIET=1` in the environment shows nothing.
    """
    if total is None:
        total = len(items) if hasattr(items, "__len__") else None  # type: ignore[arg-type]
    if os.environ.get("RIGHTREASONS_QUIET"):
        yield from items
    elif (bar := NotebookBar.here(what, None if total is None else total + done, done)) is not None:
        yield from _notebook(items, bar, done)
    elif Console(stderr=True).is_terminal:
        yield from _live(items, what, total, done, each, unit)
    else:
        yield from _plain(items, what, total, done, each, unit)


def _live(items: Iterable[T], what: str, total: int | None, done: int, each: int, unit: str) -> Iterator[T]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    rate = (TextColumn("{task.fields[rate]}"),) if unit else ()
    start = time.monotonic()
    with Progress(*columns, *rate, console=Console(stderr=True), transient=False) as bar:
        task = bar.add_task(what, total=None if total is None else total + done, completed=done, rate="")
        for count, item in enumerate(items, 1):
            yield item
            bar.update(task, advance=1, rate=_rate(count, time.monotonic() - start, each, unit))


class NotebookBar:
    """A bar of the browser's own in a notebook, redrawn in place."""

    def __init__(self, kernel: Any, what: str, total: int | None, done: int) -> None:
        self._kernel, self.what, self.total = kernel, what, total
        self._shown = kernel.display(self._drawn(done, ""), display_id=True)
        self._last = time.monotonic()

    @classmethod
    def here(cls, what: str, total: int | None, done: int = 0) -> NotebookBar | None:
        """A new bar where the kernel of a notebook runs this, else None; IPython is not imported for it."""
        shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
        return cls(importlib.import_module("IPython.display"), what, total, done) if hasattr(shell, "kernel") else None

    def show(self, done: int, remark: str = "", *, last: bool = False) -> None:
        """Redraw it, unless that was done a moment ago."""
        if last or time.monotonic() - self._last >= NOTEBOOK_EVERY_SECONDS:
            self._last = time.monotonic()
            self._shown.update(self._drawn(done, remark))

    def _drawn(self, done: int, remark: str) -> Any:
        known = self.total is not None
        bar = f"<progress max='{self.total}' value='{done}'></progress>" if known else "<progress></progress>"
        said = f"{done} of {self.total}" if known else f"{done}"
        return self._kernel.HTML(f"{html.escape(self.what)} {bar} {said} {html.escape(remark)}".rstrip())


def _notebook(items: Iterable[T], bar: NotebookBar, done: int) -> Iterator[T]:
    count = 0
    for count, item in enumerate(items, 1):
        yield item
        bar.show(count + done)
    bar.show(count + done, last=True)


def _plain(items: Iterable[T], what: str, total: int | None, done: int, each: int, unit: str) -> Iterator[T]:
    start = last = time.monotonic()
    for count, item in enumerate(items, 1):
        yield item
        now = time.monotonic()
        if now - last >= PLAIN_EVERY_SECONDS:
            last = now
            of = "" if total is None else f" of {total + done}"
            left = "" if total is None else f", about {(now - start) / count * (total - count):.0f} s left"
            rate = f", {_rate(count, now - start, each, unit)}" if unit else ""
            print(f"{what}: {count + done}{of}{rate}{left}", file=sys.stderr, flush=True)


def _rate(count: int, seconds: float, each: int, unit: str) -> str:
    return f"{count * each / max(seconds, 1e-9):.3g} {unit}/s"
