"""Watching a sweep: a live table in a terminal, a plain line for every unit elsewhere."""

from __future__ import annotations

import os
import time
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.table import Table

from rightreasons.progress import duration
from rightreasons.study.engines import Task

SHOWN = 8  # running tasks named in the live table
REDRAW_SECONDS = 0.5


class Watch:
    """Counts of a sweep's units, shown as they change. `RIGHTREASONS_QUIET=1` in the environment shows nothing.

    Parameters
    ----------
    total : units of the study
    done : of which were finished before
    expected : seconds that a unit took so far, where some were timed before
    """

    def __init__(self, what: str, total: int, done: int, workers: int, expected: float | None = None) -> None:
        self.what, self.total, self.done, self.workers, self.expected = what, total, done, workers, expected
        self.failed = 0
        self.running: dict[str, float] = {}
        self._before = done
        self._began = time.monotonic()
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._is_quiet = bool(os.environ.get("RIGHTREASONS_QUIET"))
        is_live = self._console.is_terminal and not self._is_quiet
        self._live = None
        if is_live:
            self._live = Live(console=self._console, auto_refresh=False)
        self._drawn = 0.0

    def __enter__(self) -> Watch:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._live is not None:
            self._draw()
            self._live.stop()

    def started(self, task: Task) -> None:
        self.running[task.key] = time.monotonic()

    def ended(self, task: Task, how: str, is_unit: bool = True) -> None:
        """A task is over: `how` it ended; `is_unit` where its units are over with it."""
        seconds = time.monotonic() - self.running.pop(task.key, time.monotonic())
        if is_unit:
            self.done += how == "done"
            self.failed += (how != "done") * len(task.units)
        self._say(f"{task.key}: {how} after {seconds:.1f} s")

    def tick(self) -> None:
        if self._live is not None and time.monotonic() - self._drawn > REDRAW_SECONDS:
            self._draw()

    @property
    def seconds_left(self) -> float | None:
        """From this sweep's own rate or, before a unit has ended, from what was timed earlier; None where nothing was."""
        left = self.total - self.done - self.failed
        finished = self.done - self._before
        if finished:
            return (time.monotonic() - self._began) / finished * left
        if self.expected is None:
            return None
        return self.expected * left / self.workers

    def state(self) -> str:
        left = self.seconds_left
        rate = (self.done - self._before) / max(time.monotonic() - self._began, 1e-9) * 60
        parts = [
            f"{self.done} of {self.total} done",
            f"{len(self.running)} running",
            f"{self.failed} failed",
            f"{rate:.1f} a minute",
        ]
        return ", ".join([*parts, "time left unknown" if left is None else f"about {duration(left)} left"])

    def _say(self, line: str) -> None:
        if self._live is not None:
            self._draw()
        elif not self._is_quiet:
            self._console.print(f"{line} ({self.state()})", markup=False)

    def _draw(self) -> None:
        if self._live is None:
            return
        self._drawn = time.monotonic()
        table = Table(title=self.what, title_justify="left", box=None)
        for heading in ("done", "running", "failed", "a minute", "time left"):
            table.add_column(heading, justify="right")
        left = self.seconds_left
        rate = (self.done - self._before) / max(self._drawn - self._began, 1e-9) * 60
        remaining = "?"
        if left is not None:
            remaining = duration(left)
        table.add_row(f"{self.done} of {self.total}", str(len(self.running)), str(self.failed), f"{rate:.1f}", remaining)
        whole = Table.grid()
        whole.add_row(table)
        for key, since in list(self.running.items())[:SHOWN]:
            whole.add_row(f"  {key}  [dim]{self._drawn - since:.0f} s[/dim]")
        self._live.update(whole, refresh=True)
