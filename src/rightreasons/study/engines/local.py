"""Processes of this machine, forked from a server that has torch imported: a worker starts in milliseconds.

The server is a child of the driver and ends with it; every worker is a child of the server and ends with it. So nothing is left
over when the driver is killed, and the server sees how each worker ended. Messages are lines of JSON on the server's pipes.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections import deque
from pathlib import Path
from typing import Any, NoReturn

from rightreasons import trust
from rightreasons.errors import SettingError
from rightreasons.study.engines import THREAD_VARIABLES, Event, Task
from rightreasons.study.folder import Study

DONE, FAILED, BROKEN = 0, 1, 70


class Engine:
    """Worker processes on this machine.

    Parameters
    ----------
    workers : how many at once; by default one per GPU, or as many as the cores serve
    threads : per worker; part of the plan, because they change the last bits of a result
    gpus : numbers of the GPUs to use, all by default; workers take them in turn
    """

    def __init__(self, study: Study, *, workers: int | None = None, threads: int = 1, gpus: list[int] | None = None) -> None:
        if gpus is None:
            self.gpus = visible_gpus()
        else:
            self.gpus = list(gpus)
        self.workers = workers or len(self.gpus) or max(1, cores() // threads)
        if self.workers < 1 or threads < 1:
            raise SettingError(f"workers={workers}, threads={threads}: give at least 1 of each")
        self.folder, self.threads = study.folder, threads
        self._waiting: deque[Task] = deque()
        self._running: dict[str, tuple[Task, float, int]] = {}  # key → task, when it started, which slot
        self._events: deque[Event] = deque()
        self._heard = b""
        self._server = self._start_server()

    def submit(self, task: Task) -> None:
        self._waiting.append(task)
        self._fill()

    def next_event(self, timeout: float) -> Event | None:
        until = time.monotonic() + timeout
        while not self._events:
            left = until - time.monotonic()
            if left <= 0:
                return None
            self._listen(left)
        return self._events.popleft()

    def close(self) -> None:
        self._waiting.clear()
        self._hang_up()
        try:
            self._server.wait(10)  # the end of its input ends it, and its workers with it
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()

    def _hang_up(self) -> None:
        for pipe in (self._server.stdin, self._server.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def _start_server(self) -> subprocess.Popen[bytes]:
        limits = dict.fromkeys(THREAD_VARIABLES, str(self.threads))
        # A session of its own: Ctrl-C in the terminal is for the driver, which ends the server in order.
        return subprocess.Popen(
            [sys.executable, "-m", __name__, str(self.folder), str(self.threads), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **limits, **trust.to_environment(), "RIGHTREASONS_QUIET": "1"},
            start_new_session=True,
        )

    def _fill(self) -> None:
        """Start as many of the waiting tasks as there are free slots."""
        free = sorted(set(range(self.workers)) - {slot for _, _, slot in self._running.values()})
        for slot in free:
            if not self._waiting:
                return
            task = self._waiting.popleft()
            self._running[task.key] = (task, time.monotonic(), slot)
            self._events.append(Event("started", task))
            gpu = None
            if self.gpus:
                gpu = self.gpus[slot % len(self.gpus)]
            self._say({"task": task.to_json(), "gpu": gpu})

    def _say(self, message: dict[str, Any]) -> None:
        pipe = self._server.stdin
        with contextlib.suppress(BrokenPipeError):  # a server that died is noticed where it is listened to
            if pipe is not None:
                pipe.write(json.dumps(message).encode() + b"\n")
                pipe.flush()

    def _listen(self, timeout: float) -> None:
        pipe = self._server.stdout
        if pipe is None:
            return
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            if not selector.select(timeout):
                return
        chunk = os.read(pipe.fileno(), 1 << 16)
        if not chunk:
            self._replace_server()
            return
        *lines, self._heard = (self._heard + chunk).split(b"\n")
        for line in lines:
            message = json.loads(line)
            self._ended(message["key"], message["status"])

    def _ended(self, key: str, status: int) -> None:
        task, started, _ = self._running.pop(key)
        seconds = time.monotonic() - started
        if status == DONE:
            self._events.append(Event("done", task, seconds=seconds))
        elif status == FAILED:
            self._events.append(Event("failed", task, seconds=seconds))
        else:
            self._events.append(Event("died", task, cause=said(status), seconds=seconds))
        self._fill()

    def _replace_server(self) -> None:
        """All workers died with the server; what waits goes to a new one."""
        status = self._server.wait()
        self._hang_up()
        lost, self._running, self._heard = list(self._running.values()), {}, b""
        if status == BROKEN or not lost:
            raise SettingError(f"the server of the local engine ended with status {status}: its errors stand above")
        self._server = self._start_server()
        for task, started, _ in lost:
            self._events.append(Event("died", task, f"the worker's server was {said(status)}", time.monotonic() - started))
        self._fill()


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def visible_gpus() -> list[int]:
    import torch  # asked of the driver, which plans with torch anyway

    return list(range(torch.cuda.device_count()))


def said(status: int) -> str:
    """How a process ended, in words; a negative status is a signal."""
    if status >= 0:
        return f"ended with exit status {status}"
    return f"killed by signal {-status} ({signal.Signals(-status).name})"


# ---- the server, a process of its own: python -m rightreasons.study.engines.local FOLDER THREADS DRIVER ----------------------


def serve(folder: Path, threads: int, driver: int) -> None:
    """Fork a worker for every task that comes in, and say how each ended, until the driver is gone."""
    die_with_parent(driver)
    tell = os.dup(1)
    os.dup2(2, 1)  # whatever an import prints must not stand among the messages
    import torch

    from rightreasons.study.folder import Study
    from rightreasons.study.unit import preload, work

    torch.set_num_threads(threads)
    preload(Study.open(folder))
    running: dict[int, str] = {}
    woken, wake = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    heard = b""
    with selectors.DefaultSelector() as selector:
        selector.register(0, selectors.EVENT_READ)
        selector.register(woken, selectors.EVENT_READ)
        while True:
            ready = {key.fd for key, _ in selector.select()}
            if woken in ready:
                os.read(woken, 4096)
            _report(running, tell)
            if 0 in ready:
                chunk = os.read(0, 1 << 16)
                if not chunk:
                    for pid in running:
                        os.kill(pid, signal.SIGKILL)
                    return
                *lines, heard = (heard + chunk).split(b"\n")
                for line in lines:
                    message = json.loads(line)
                    task = Task.from_json(message["task"])
                    pid = os.fork()
                    if pid == 0:
                        signal.set_wakeup_fd(-1)
                        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                        _be_worker(lambda task=task: work(folder, task), folder, task, message["gpu"], os.getppid())  # type: ignore[misc]
                    running[pid] = task.key


def _report(running: dict[int, str], tell: int) -> None:
    for pid in list(running):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            message = {"key": running.pop(pid), "status": os.waitstatus_to_exitcode(status)}
            os.write(tell, json.dumps(message).encode() + b"\n")


def _be_worker(run: Any, folder: Path, task: Task, gpu: int | None, server: int) -> NoReturn:
    """What a forked worker does: it runs its task, writes to the unit's log, and exits without the server's clean-up."""
    status = BROKEN
    try:
        die_with_parent(server)
        if gpu is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = str(gpu)
        place = folder / "runs" / task.units[0]
        place.mkdir(parents=True, exist_ok=True)
        log = os.open(place / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        status = DONE if run() == "done" else FAILED
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)  # a forked process must not run the server's own clean-up


def die_with_parent(parent: int) -> None:
    """End this process as soon as its parent is gone, however that ended."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    else:
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    if os.getppid() != parent:  # it was gone before
        os._exit(BROKEN)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(BROKEN)


if __name__ == "__main__":
    with trust.trusting(trust.from_environment()), trust.found_here():
        serve(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
