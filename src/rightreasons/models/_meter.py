"""A progress bar whose words change as it goes, in the manner of `rightreasons.progress.track`."""

from __future__ import annotations

import os
import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from rightreasons.progress import PLAIN_EVERY_SECONDS, NotebookBar


class Meter:
    """Steps of a known number with a remark: live in a terminal or a notebook, a plain line now and then elsewhere.

    `RIGHTREASONS_QUIET=1` in the environment shows nothing.
    """

    def __init__(self, what: str, total: int, done: int = 0) -> None:
        self.what, self.total, self.done = what, total, done
        self._said = time.monotonic()
        self._is_quiet = bool(os.environ.get("RIGHTREASONS_QUIET"))
        self._notebook = None if self._is_quiet else NotebookBar.here(what, total, done)
        self._remark = ""
        self._bar: Progress | None = None
        if not self._is_quiet and Console(stderr=True).is_terminal:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[said]}"),
            )
            self._bar = Progress(*columns, console=Console(stderr=True))
            self._task = self._bar.add_task(what, total=total, completed=done, said="")

    def __enter__(self) -> Meter:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()
        if self._notebook is not None:
            self._notebook.show(self.done, self._remark, last=True)

    def advance(self) -> None:
        self.done += 1
        if self._bar is not None:
            self._bar.update(self._task, completed=self.done)
        if self._notebook is not None:
            self._notebook.show(self.done, self._remark)

    def say(self, remark: str) -> None:
        self._remark = remark
        if self._notebook is not None:
            return
        if self._bar is not None:
            self._bar.update(self._task, said=remark)
        elif not self._is_quiet and time.monotonic() - self._said >= PLAIN_EVERY_SECONDS:
            self._said = time.monotonic()
            print(f"{self.what}: {remark} ({self.done} of {self.total} steps)", file=sys.stderr, flush=True)
