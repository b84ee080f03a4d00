"""How far a long job is: a live bar in a terminal or a notebook, a line now and then elsewhere.

`track` follows a loop; a `Meter` is told of every step and may say a word about it. `RIGHTREASONS_QUIET=1` in the environment
shows nothing.

How long it still takes is told from steps that were timed, kind by kind: one audit may take a hundred times as long as another.
While a kind of step that is still to come has not been timed, nothing is told.
"""

from __future__ import annotations

import html
import importlib
import os
import sys
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Protocol, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from rightreasons.display import notebook

T = TypeVar("T")

PLAIN_EVERY_SECONDS = 15.0
NOTEBOOK_EVERY_SECONDS = 0.5
FEWEST_TIMED = 2  # steps of one kind, where all are of one, before anything is told
RECENT = 50  # steps of a kind whose mean is told


def track(
    items: Iterable[T],
    what: str,
    total: int | None = None,
    done: int = 0,
    each: int = 1,
    unit: str = "",
    kinds: Sequence[str] = (),
) -> Iterator[T]:
    """Yield `items` and show how many of them are done.

    Parameters
    ----------
    total : number of items, where `len(items)` does not know it
    done : how many were finished before (a resumed job)
    each, unit : with a unit, how many of it a second are done is shown too, an item being `each` of them
    kinds : of every item, where they do not take about equally long
    """
    if total is None:
        total = len(items) if hasattr(items, "__len__") else None  # type: ignore[arg-type]
    with Meter(what, None if total is None else total + done, done, each, unit, kinds) as meter:
        for item in items:
            yield item
            meter.advance()


class Pace:
    """How long the steps of a job take, kind by kind, and so what is left.

    Parameters
    ----------
    total : number of steps still to do
    kinds : of every step in order; empty where all are of one kind
    start : when the first step began
    """

    def __init__(self, total: int | None, kinds: Sequence[str], start: float) -> None:
        self.total, self.kinds = total, tuple(kinds)
        self._last = start
        self._times: dict[str, deque[float]] = {}
        self._done = 0

    def step(self, now: float) -> None:
        """A step is done."""
        times = self._times.setdefault(self._kind(self._done), deque(maxlen=RECENT))
        times.append(now - self._last)
        self._last = now
        self._done += 1

    @property
    def seconds_left(self) -> float | None:
        """From the last steps of each kind that is still to come; None while one of these has not been timed often enough."""
        if self.total is None or self._done >= self.total:
            return None
        left = (
            Counter(self._kind(step) for step in range(self._done, self.total)) if self.kinds else {"": self.total - self._done}
        )
        seconds = 0.0
        for kind, steps in left.items():
            times = list(self._times.get(kind, ()))
            if len(times) < (1 if self.kinds else FEWEST_TIMED):
                return None
            # The first of equal steps also loads and compiles; of a kind of which one was timed it is all that is known.
            known = times[1:] if not self.kinds and len(times) == self._done else times
            seconds += steps * sum(known) / len(known)
        return seconds

    def _kind(self, step: int) -> str:
        return self.kinds[step] if step < len(self.kinds) else ""


def duration(seconds: float) -> str:
    """`40 s`, `12 min`, `3.5 h`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


class Display(Protocol):
    """Where a meter is seen; `now` is the clock that `time.monotonic` reads, `left` what is told of the time left."""

    def show(self, done: int, remark: str, now: float, left: str) -> None: ...

    def end(self, done: int, remark: str) -> None: ...


class Meter:
    """Steps of a job, with a remark that may change as it goes.

    Parameters
    ----------
    total : number of steps, or None where it is not known
    done : how many were finished before (a resumed job)
    each, unit : with a unit the remark is how many of it a second are done, a step being `each` of them
    kinds : of every step to do, where they do not take about equally long
    may_end_early : whether `total` is the most that it can take: then so is the time that is told
    """

    def __init__(
        self,
        what: str,
        total: int | None = None,
        done: int = 0,
        each: int = 1,
        unit: str = "",
        kinds: Sequence[str] = (),
        may_end_early: bool = False,
    ) -> None:
        self.what, self.total, self.done, self.each, self.unit = what, total, done, each, unit
        self.kinds, self.may_end_early = kinds, may_end_early
        self._before = done
        self._remark = ""
        self._display: Display | None = None

    def __enter__(self) -> Meter:
        self._start = time.monotonic()
        self._pace = Pace(None if self.total is None else self.total - self.done, self.kinds, self._start)
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
        self._pace.step(now)
        if self.unit:
            rate = (self.done - self._before) * self.each / max(now - self._start, 1e-9)
            self.say(f"{rate:.3g} {self.unit}/s")
        self._display.show(self.done, self._remark, now, self._left())

    def _left(self) -> str:
        seconds = self._pace.seconds_left
        if seconds is None or seconds < 1:
            return ""
        return f"{'at most ' if self.may_end_early else ''}about {duration(seconds)} left"

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
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[left]}"))
        self._bar = Progress(*columns, TextColumn("{task.fields[remark]}"), console=Console(stderr=True))
        self._task = self._bar.add_task(what, total=total, completed=done, remark="", left="")
        self._bar.start()

    def show(self, done: int, remark: str, now: float, left: str) -> None:
        self._bar.update(self._task, completed=done, remark=remark, left=left)

    def end(self, done: int, remark: str) -> None:
        self._bar.update(self._task, completed=done, remark=remark, left="")
        self._bar.stop()


class NotebookBar:
    """A bar of the browser's own in a notebook, redrawn in place."""

    def __init__(self, kernel: Any, what: str, total: int | None, done: int, now: float) -> None:
        self._kernel, self.what, self.total = kernel, what, total
        self._shown = kernel.display(self._drawn(done, ""), display_id=True)
        self._last = now

    def show(self, done: int, remark: str, now: float, left: str) -> None:
        """Redraw it, unless that was done a moment ago."""
        if now - self._last >= NOTEBOOK_EVERY_SECONDS:
            self._last = now
            self._shown.update(self._drawn(done, ", ".join(filter(None, (remark, left)))))

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
        self._last = now

    def show(self, done: int, remark: str, now: float, left: str) -> None:
        if now - self._last < PLAIN_EVERY_SECONDS:
            return
        self._last = now
        parts = [f"{self.what}: {done}" if self.total is None else f"{self.what}: {done} of {self.total}"]
        parts += filter(None, (remark, left))
        print(", ".join(parts), file=sys.stderr, flush=True)

    def end(self, done: int, remark: str) -> None:
        """The job says itself that it is over."""
