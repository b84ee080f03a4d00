"""A Ray cluster, by its address. Workers share the study's folder, or meet the driver in a store and need no disk in common."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import hashlib
import logging
import os
import shutil
import socket
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import IO, Any

import rightreasons
from rightreasons import trust
from rightreasons.errors import DataError, SettingError
from rightreasons.study.engines import THREAD_VARIABLES, Event, Task
from rightreasons.study.engines._store import Listing, Publisher, Store, files_in, replace_folder
from rightreasons.study.engines.local import cores
from rightreasons.study.folder import Study

LOOPBACK = "127.0.0.2"  # Ray exchanges 127.0.0.1 for an address that others can reach
LOCAL_OBJECTS = 128 << 20  # bytes of Ray's own object store when it is started here: results travel as files
CANCEL_SECONDS = 10.0
# Said before Ray is imported: it asks nobody's servers, and is silent about what the events of this engine say.
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": r"(?s).*",
    "RAY_SCHEDULER_EVENTS": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


class Engine:
    """Tasks of a Ray cluster.

    Parameters
    ----------
    workers : how many tasks at once; by default as many as the cluster has room for, also when it grows
    threads : per task; part of the plan, because they change the last bits of a result
    cpus, gpus, resources : what Ray reserves for a task: `threads` CPUs, one GPU where the cluster has some, and custom resources
    address : `host:port`, `ray://host:port` or `auto`; a cluster of this machine alone is started where none is given
    store : fsspec URL through which files travel; without one every worker must see the study's folder under the same path
    scratch : where workers keep their files when there is a store; the system's temporary folder by default
    every : seconds between two states of a running task in the store, from which it goes on if its worker dies
    """

    def __init__(  # noqa: PLR0913  each keyword is a documented setting
        self,
        study: Study,
        *,
        workers: int | None = None,
        threads: int = 1,
        cpus: float | None = None,
        gpus: float | None = None,
        resources: dict[str, float] | None = None,
        address: str | None = None,
        store: str = "",
        scratch: str = "",
        every: float = 60.0,
    ) -> None:
        if threads < 1 or (workers is not None and workers < 1) or every <= 0:
            raise SettingError(f"workers={workers}, threads={threads}, every={every}: give at least 1, and more than 0 seconds")
        self.folder, self.threads = study.folder.absolute(), threads
        self.ray = imported()
        self._started_here = join(self.ray, address)
        total = self.ray.cluster_resources()
        if gpus is None:
            self.gpus = 1.0 if total.get("GPU") else 0.0
        else:
            self.gpus = float(gpus)
        self.needs = {"CPU": float(threads if cpus is None else cpus), "GPU": self.gpus, **(resources or {})}
        self._asked_workers = workers
        self._post = None
        if store:
            self._post = Post(store, self.folder, scratch, every)
        self._function = self.ray.remote(perform).options(
            num_cpus=self.needs["CPU"],
            num_gpus=self.gpus,
            resources=dict(resources or {}),
            max_retries=0,  # the driver runs it again, and writes down why
            runtime_env={"env_vars": self._environment()},
        )
        self._waiting: deque[Task] = deque()
        self._running: dict[Any, tuple[Task, float]] = {}  # reference → task, when it was handed over
        self._events: deque[Event] = deque()

    @property
    def workers(self) -> int:
        """How many tasks run at once, on the nodes that there are now."""
        if self._asked_workers is not None:
            return self._asked_workers
        total = self.ray.cluster_resources()
        return max(1, min(int(total.get(name, 0.0) // amount) for name, amount in self.needs.items() if amount > 0))

    def submit(self, task: Task) -> None:
        self._waiting.append(task)

    def next_event(self, timeout: float) -> Event | None:
        until = time.monotonic() + timeout
        self._fill()
        while not self._events:
            left = until - time.monotonic()
            if left <= 0:
                return None
            if not self._running:
                time.sleep(left)
                return None
            over, _ = self.ray.wait(list(self._running), num_returns=1, timeout=left)
            for reference in over:
                self._ended(reference)
            self._fill()
        return self._events.popleft()

    def close(self) -> None:
        self._waiting.clear()
        for reference in self._running:
            self.ray.cancel(reference, force=True)
        if self._running:
            self.ray.wait(list(self._running), num_returns=len(self._running), timeout=CANCEL_SECONDS)
        elif self._post is not None:
            self._post.clear()
        if self._started_here:
            self.ray.shutdown()

    def _environment(self) -> dict[str, str]:
        limits = dict.fromkeys(THREAD_VARIABLES, str(self.threads))
        no_gpu = {} if self.gpus else {"CUDA_VISIBLE_DEVICES": ""}
        return {**limits, **trust.to_environment(), "RIGHTREASONS_QUIET": "1", **no_gpu}

    def _fill(self) -> None:
        """Hand over as many of the waiting tasks as there is room for."""
        room = 0
        if self._waiting:
            room = self.workers - len(self._running)
        for _ in range(min(room, len(self._waiting))):
            task = self._waiting.popleft()
            parcel = None
            if self._post is not None:
                parcel = self._post.pack(task)
            order = Order(task.to_json(), str(self.folder), self.threads, rightreasons.__version__, parcel)
            self._running[self._function.remote(order)] = (task, time.monotonic())
            self._events.append(Event("started", task))

    def _ended(self, reference: Any) -> None:
        task, began = self._running.pop(reference)
        try:
            said, listing = self.ray.get(reference)
        except self.ray.exceptions.RayError as error:
            if self._post is not None:
                self._post.collect(task, None)
            self._events.append(Event("died", task, cause(error), time.monotonic() - began))
            return
        if self._post is not None:
            self._post.collect(task, listing, failed=said == "failed")
        self._events.append(Event(said, task, seconds=time.monotonic() - began))


def imported() -> ModuleType:
    """Ray, with its own messages switched off."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        raise SettingError('engine = "ray" needs Ray: pip install "rightreasons[ray]", on every node') from error
    return ray


def join(ray: ModuleType, address: str | None) -> bool:
    """Connect to the cluster, or start one of this machine alone; false where this process is connected already."""
    if ray.is_initialized():
        return False
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address is None:
        if sys.platform == "linux":
            here = {"_node_ip_address": LOOPBACK}
        else:
            here = {}
        ray.init(address="local", num_cpus=cores(), include_dashboard=False, object_store_memory=LOCAL_OBJECTS, **here, **quiet)
        return True
    host = address.rsplit(":", 1)[0]
    if host.startswith("127."):
        here = {"_node_ip_address": host}
    else:
        here = {}
    try:
        ray.init(address=address, **here, **quiet)
    except ConnectionError as error:
        raise SettingError(f"no Ray cluster at {address}: {error}; start one with ray start --head") from error
    return True


def cause(error: BaseException) -> str:
    """Why a task has no result, in one line."""
    inner = getattr(error, "cause", None)
    if isinstance(inner, BaseException):  # raised by the worker's own code
        error = inner
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if lines:
        return f"{type(error).__name__}: {lines[0]}"
    return type(error).__name__


# ---- on the worker -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Parcel:
    """What a worker without the study's folder needs to know.

    Attributes
    ----------
    url, place : the store, and where in it this task's files go
    study : name of the study in the store
    base : the plan, the cohorts and planted worlds
    inputs : what there is of the task's units, and the models that it reads
    """

    url: str
    place: str
    study: str
    base: Listing
    inputs: Listing
    scratch: str
    every: float


@dataclass(frozen=True)
class Order:
    """All that is sent to a worker."""

    task: dict[str, Any]
    folder: str
    threads: int
    version: str
    parcel: Parcel | None


def perform(order: Order) -> tuple[str, Listing | None]:
    """Do a task on a worker: how it ended, and what it left in the store."""
    if order.version != rightreasons.__version__:
        raise SettingError(
            f"{socket.gethostname()} has rightreasons {rightreasons.__version__}, the driver {order.version}: install one version"
        )
    task = Task.from_json(order.task)
    if order.parcel is None:
        return _work(Path(order.folder), task, order.threads), None
    parcel, store = order.parcel, Store(order.parcel.url)
    home = _home(parcel, store)
    folders = [f"runs/{unit}" for unit in task.units]
    try:
        store.fetch(parcel.inputs, home)
        with Publisher(store, home, folders, parcel.place, parcel.every) as publisher:
            said = _work(home, task, order.threads)
        return said, publisher.finish()
    finally:
        for folder in (*folders, *(f"runs/{unit}" for unit in task.reads)):
            shutil.rmtree(home / folder, ignore_errors=True)


def _work(folder: Path, task: Task, threads: int) -> str:
    import torch

    from rightreasons.study.unit import work

    torch.set_num_threads(threads)
    log = folder / "runs" / task.units[0] / "log.txt"
    log.parent.mkdir(parents=True, exist_ok=True)
    with (
        log.open("a") as words,
        contextlib.redirect_stdout(words),
        contextlib.redirect_stderr(words),
        trust.trusting(trust.from_environment()),
    ):
        return work(folder, task)


@dataclass
class _Home:
    folder: Path
    lock: IO[str]
    has: Listing

    def leave(self) -> None:
        shutil.rmtree(self.folder.parent, ignore_errors=True)
        self.lock.close()


_homes: dict[str, _Home] = {}  # by study; a worker process serves many tasks


def _home(parcel: Parcel, store: Store) -> Path:
    """This process's own copy of a study without its units, brought up to date."""
    place = Path(parcel.scratch or tempfile.gettempdir()) / f"rightreasons-{os.getuid()}"
    if parcel.study not in _homes:
        _remove_abandoned(place)
        folder = place / f"{parcel.study}-{os.getpid()}" / "study"
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder.parent / "lock").open("w")
        fcntl.flock(lock, fcntl.LOCK_EX)
        _homes[parcel.study] = _Home(folder, lock, {})
        atexit.register(_homes[parcel.study].leave)
    home = _homes[parcel.study]
    store.fetch({path: name for path, name in parcel.base.items() if home.has.get(path) != name}, home.folder)
    home.has = dict(parcel.base)
    return home.folder


def _remove_abandoned(place: Path) -> None:
    """Folders of worker processes that were killed: nobody holds their lock."""
    for lock in place.glob("*/lock"):
        with contextlib.suppress(OSError), lock.open("r+") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent, ignore_errors=True)


# ---- the driver's end of the store ---------------------------------------------------------------------------------------


class Post:
    """Sends a study's files to the store and brings finished units back."""

    def __init__(self, url: str, folder: Path, scratch: str, every: float) -> None:
        self.url, self.folder, self.scratch, self.every = url, folder, scratch, every
        self.store = Store(url)
        # One name for one folder on one machine, so that a later driver finds what an earlier one left.
        self.study = f"{folder.name}-{_hash(f'{socket.gethostname()} {folder}')}"
        self.base = self.store.send(folder, _base(folder), f"{self.study}/base")

    def pack(self, task: Task) -> Parcel:
        """Everything a worker needs for a task; what an earlier worker left in the store is brought home first."""
        place = self._place(task)
        self.collect(task, None)
        inputs = self.store.send(self.folder, self._inputs(task), f"{place}/driver")
        return Parcel(self.url, place, self.study, self.base, inputs, self.scratch, self.every)

    def collect(self, task: Task, listing: Listing | None, *, failed: bool = False) -> None:
        """Bring home what a task wrote: `listing`, or the last state that a worker published before it died."""
        place = self._place(task)
        if listing is None:
            published = self.store.published(place)
        else:
            published = listing
        if published:
            try:
                self._bring(task, published, failed)
            except (FileNotFoundError, DataError):
                if listing is not None:
                    raise
                # A dying worker's last state may be incomplete; the unit then starts from what is here.
        self.store.remove(place)

    def clear(self) -> None:
        """Leave nothing behind."""
        self.store.remove(self.study)

    def _bring(self, task: Task, listing: Listing, failed: bool) -> None:
        for unit in task.units:
            home = f"runs/{unit}"
            if task.step == "extract":  # others may be at work on this unit
                self._bring_folder(listing, f"{home}/{_piece(task)}")
                if failed:
                    wanted = {}
                    for path, name in listing.items():
                        if path in (f"{home}/run.json", f"{home}/log.txt"):
                            wanted[path] = name
                    self.store.fetch(wanted, self.folder)
            else:
                self._bring_folder(listing, home)

    def _bring_folder(self, listing: Listing, inside: str) -> None:
        """Replace a folder by its new state, in one step once everything has arrived."""
        wanted = {path: name for path, name in listing.items() if path.startswith(f"{inside}/")}
        if not wanted:
            return
        arriving = self.folder / ".arriving"
        shutil.rmtree(arriving, ignore_errors=True)
        self.store.fetch(wanted, arriving, lambda path: self.folder / path)
        replace_folder(self.folder / inside, arriving / inside)
        shutil.rmtree(arriving, ignore_errors=True)

    def _inputs(self, task: Task) -> Iterator[str]:
        for unit in task.units:
            home = f"runs/{unit}"
            if task.step != "extract":
                parts = [home]
            else:
                parts = [f"{home}/model", f"{home}/{_piece(task)}"]
            yield from files_in(self.folder, parts)
            if task.step == "extract" and (self.folder / home / "run.json").exists():
                yield f"{home}/run.json"
        yield from files_in(self.folder, [f"runs/{unit}/model" for unit in task.reads])

    def _place(self, task: Task) -> str:
        return f"{self.study}/tasks/{_hash(task.key)}"


def _base(folder: Path) -> Iterator[str]:
    """Files of a study that every task may read: the plan, the cohorts, and planted worlds with their images."""
    yield "plan.json"
    yield from files_in(folder, ["cohorts", *sorted(place.name for place in folder.glob("world*") if place.is_dir())])


def _piece(task: Task) -> str:
    lo, hi = task.pieces or (0, 0)
    return f"pieces/{task.cohort}-{lo}-{hi}"


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()
