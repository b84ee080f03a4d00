"""No other process: the driver does the tasks itself, one after the other. For debuggers, notebooks and very small studies."""

from __future__ import annotations

import time
from collections import deque

from rightreasons.study.engines import Event, Task
from rightreasons.study.folder import Study


class Engine:
    """Tasks in this process, in their order; `threads` is the number that torch uses for them."""

    def __init__(self, study: Study, *, threads: int | None = 1) -> None:
        self.study, self.threads, self.workers = study, threads, 1
        self._waiting: deque[Task] = deque()
        self._started: Task | None = None

    def submit(self, task: Task) -> None:
        self._waiting.append(task)

    def next_event(self, timeout: float) -> Event | None:
        """The start of a task and, in the call after, its end: it is done inside that call, however long it takes."""
        if self._started is None:
            if not self._waiting:
                return None
            self._started = self._waiting.popleft()
            return Event("started", self._started)
        from rightreasons.study.unit import work  # an engine is read about without torch

        task, self._started = self._started, None
        began = time.monotonic()
        kind = work(self.study, task)
        return Event(kind, task, seconds=time.monotonic() - began)

    def close(self) -> None:
        self._waiting.clear()
