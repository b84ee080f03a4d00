"""How far a long job is: a live bar in a terminal or a notebook, a line now and then elsewhere.

`track` follows a loop; a `Meter` is told of every step and may say a word about it. `RIGHTREASONS_QUIET=1` in the environment
shows nothing.
"""

from __future__ import annotations

import html
import importlib
import os
import sys
import time
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Protocol, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from rightreasons.display import notebook

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
    """
    if total is None:
        total = len(items) if hasattr(items, "__len__") else None  # type: ignore[arg-type]
    with Meter(what, None if total is None else total + done, done, each, unit) as meter:
        for item in items:
            yield item
            meter.advance()


class Display(Protocol):
    """Where a meter is seen; `now` is the clock that `time.monotonic` reads."""

    def show(self, done: int, remark: str, now: float) -> None: ...

    def end(self, done: int, remark: str) -> None: ...


class Meter:
    """Steps of a job, with a remark that may change as it goes.

    Parameters
    ----------
    total : number of steps, or None where it is not known
    done : how many were finished before (a resumed job)
    each, unit : with a unit the remark is how many of it a second are done, a step being `each` of them
    """

    def __init__(self, what: str, total: int | None = None, done: int = 0, each: int = 1, unit: str = "") -> None:
        self.what, self.total, self.done, self.each, self.unit = what, total, done, each, unit
        self._before = done
        self._remark = ""
        self._display: Display | None = None

    def __enter__(self) -> Meter:
        self._start = time.monotonic()
        self._display = display_for(self.what, self.total, self.done, self._start)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._display is not None:
            self._display.end(self.done, self._remark)

    def advance(self) -> None:
        """A step is done."""
        self.done += 1
        if self._display is None:
            return
        now = time.monotonic()
        if self.unit:
            rate = (self.done - self._before) * self.each / max(now - self._start, 1e-9)
            self.say(f"{rate:.3g} {self.unit}/s")
        self._display.show(self.done, self._remark, now)

    def say(self, remark: str) -> None:
        """The remark that goes with the steps from now on."""
        self._remark = remark


def display_for(what: str, total: int | None, done: int, now: float) -> Display | None:
    """The display that fits where this runs; None where nobody wants to see it."""
    if os.environ.get("RIGHTREASONS_QUIET"):
        return None
    if notebook() is not None:
        return NotebookBar(importlib.import_module("IPython.display"), what, total, done, now)
    if Console(stderr=True).is_terminal:
        return TerminalBar(what, total, done)
    return Lines(what, total, done, now)


class TerminalBar:
    """A live bar on the terminal's standard error."""

    def __init__(self, what: str, total: int | None, done: int) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._bar = Progress(*columns, TextColumn("{task.fields[remark]}"), console=Console(stderr=True))
        self._task = self._bar.add_task(what, total=total, completed=done, remark="")
        self._bar.start()

    def show(self, done: int, remark: str, now: float) -> None:
        self._bar.update(self._task, completed=done, remark=remark)

    def end(self, done: int, remark: str) -> None:
        self._bar.update(self._task, completed=done, remark=remark)
        self._bar.stop()


class NotebookBar:
    """A bar of the browser's own in a notebook, redrawn in place."""

    def __init__(self, kernel: Any, what: str, total: int | None, done: int, now: float) -> None:
        self._kernel, self.what, self.total = kernel, what, total
        self._shown = kernel.display(self._drawn(done, ""), display_id=True)
        self._last = now

    def show(self, done: int, remark: str, now: float) -> None:
        """Redraw it, unless that was done a moment ago."""
        if now - self._last >= NOTEBOOK_EVERY_SECONDS:
            self._last = now
            self._shown.update(self._drawn(done, remark))

    def end(self, done: int, remark: str) -> None:
        self._shown.update(self._drawn(done, remark))

    def _drawn(self, done: int, remark: str) -> Any:
        if self.total is None:
            bar, count = "<progress></progress>", f"{done}"
        else:
            bar, count = f"<progress max='{self.total}' value='{done}'></progress>", f"{done} of {self.total}"
        return self._kernel.HTML(f"{html.escape(self.what)} {bar} {count} {html.escape(remark)}".rstrip())


class Lines:
    """A plain line on standard error now and then: for logs."""

    def __init__(self, what: str, total: int | None, done: int, now: float) -> None:
        self.what, self.total = what, total
        self._before = done
        self._start = self._last = now

    def show(self, done: int, remark: str, now: float) -> None:
        if now - self._last < PLAIN_EVERY_SECONDS:
            return
        self._last = now
        parts = [f"{self.what}: {done}" if self.total is None else f"{self.what}: {done} of {self.total}"]
        if remark:
            parts.append(remark)
        if self.total is not None:
            seconds_each = (now - self._start) / (done - self._before)
            parts.append(f"about {seconds_each * (self.total - done):.0f} s left")
        print(", ".join(parts), file=sys.stderr, flush=True)

    def end(self, done: int, remark: str) -> None:
        """The job says itself that it is over."""
