"""What can be served: the studies and audits below one folder, their progress and their files. Nothing is written."""

from __future__ import annotations

import json
import os
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from statistics import median
from threading import Lock
from typing import Any, TypeVar
from urllib.parse import quote, unquote

from pydantic import ValidationError

from rightreasons.errors import DataError
from rightreasons.files import read_json
from rightreasons.findings import Finding
from rightreasons.study.folder import DONE, FAILED, PLAN, PLANNED, ROW, RUN, RUNNING, Study
from rightreasons.study.plan import Plan

T = TypeVar("T")

PAGE, FINDINGS = "report.html", "findings"
DOWNLOADS = ("table.parquet", "summary.parquet", "estimates.parquet")
INSIDE = {"runs", "evidence", "findings", "cohorts", "models", "model", "references", "world", "measurements"}  # of one entry
DEEPEST, MOST = 4, 500
LIST_SECONDS, PROGRESS_SECONDS = 5.0, 2.0
SHOWN_UNITS = 40


class NotFound(Exception):
    """There is nothing at this address that may be shown."""


@dataclass(frozen=True)
class Entry:
    """A study, or the folder of an audit."""

    path: str  # below the folder that is served, with slashes; empty for that folder itself
    name: str
    is_study: bool
    has_page: bool
    changed: float
    verdicts: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Progress:
    """The progress of a study."""

    units: int
    done: int
    running: tuple[dict[str, Any], ...]  # unit, step, since (seconds)
    failed: tuple[dict[str, str], ...]  # unit, error
    planned: int
    a_minute: float | None
    seconds_left: float | None

    def to_json(self) -> str:
        return json.dumps({**asdict(self), "running": self.running[:SHOWN_UNITS], "failed": self.failed[:SHOWN_UNITS],
                           "running_count": len(self.running), "failed_count": len(self.failed)})  # fmt: skip


class Folder:
    """The one folder that may be seen. Frequent answers are kept for a moment, so that watching costs little."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root).resolve()
        if not self.root.is_dir():
            raise DataError(f"{root} is not a folder; name the folder with your studies and audits")
        self._entries = _Kept(LIST_SECONDS)
        self._progress: dict[str, _Kept] = {}
        self._units: dict[str, _Units] = {}
        self._lock = Lock()

    # ---- addresses -----------------------------------------------------------------------------------------------------

    def at(self, address: str) -> Path:
        """The path at an address below the root.

        An address is decoded once. Hidden names, `..` and links that leave the folder are not found.
        """
        parts = []
        for part in unquote(address, errors="surrogateescape").split("/"):
            if part:
                parts.append(part)
        if any(part.startswith(".") or "\\" in part or "\0" in part for part in parts):
            raise NotFound
        try:
            path = self.root.joinpath(*parts).resolve(strict=True)
        except (OSError, RuntimeError, ValueError) as error:
            raise NotFound from error
        if not path.is_relative_to(self.root) or any(part.startswith(".") for part in path.relative_to(self.root).parts):
            raise NotFound
        return path

    def entry(self, address: str) -> Entry:
        path = self.at(address)
        if not path.is_dir():
            raise NotFound
        found = _entry(self.root, path)
        if found is None:
            raise NotFound
        return found

    def file(self, address: str, name: str) -> Path:
        """One of the few files of an entry that may be shown: its page, its tables, its findings."""
        if name not in (PAGE, *DOWNLOADS) and not (name.startswith(f"{FINDINGS}/") and name.endswith(Finding.SUFFIX)):
            raise NotFound
        entry = self.entry(address)
        path = self.at("/".join(quoted(part) for part in (*entry.path.split("/"), *name.split("/")) if part))
        if not stat.S_ISREG(path.stat().st_mode):
            raise NotFound
        return path

    # ---- what is there -------------------------------------------------------------------------------------------------

    def entries(self) -> list[Entry]:
        """Studies and audits, the latest first; at most `MOST`."""
        return self._entries.get(lambda: sorted(self._walk(), key=lambda entry: -entry.changed))

    def _walk(self) -> Iterator[Entry]:
        found = 0
        for place, folders, _ in os.walk(self.root):
            depth = len(Path(place).relative_to(self.root).parts)
            folders[:] = sorted(f for f in folders if not f.startswith(".") and f not in INSIDE) if depth < DEEPEST else []
            entry = _entry(self.root, Path(place))
            if entry is not None:
                yield entry
                found += 1
            if found >= MOST:
                return

    def findings(self, address: str) -> list[Finding]:
        found = []
        for file in _files(self.root, self.at(address)):
            try:
                found.append(_finding(file, *_stamp(file)))
            except DataError:
                if file.exists():
                    raise
                # A sweep that ends removes findings that no longer hold.
        return found

    def progress(self, address: str) -> Progress:
        path = self.at(address)
        if not path.is_dir() or _plan(path) is None:
            raise NotFound
        key = str(path)
        with self._lock:
            kept = self._progress.setdefault(key, _Kept(PROGRESS_SECONDS))
            units = self._units.setdefault(key, _Units(path))
        return kept.get(units.progress)


class _Kept:
    """A value that is computed again only after so many seconds, and by one thread at a time."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._lock = seconds, Lock()
        self._made, self._value = -float("inf"), None

    def get(self, make: Callable[[], T]) -> T:
        with self._lock:
            if time.monotonic() - self._made > self._seconds:
                self._value, self._made = make(), time.monotonic()  # type: ignore[assignment]
            return self._value  # type: ignore[return-value]


def _entry(root: Path, path: Path) -> Entry | None:
    plan, page, files = _plan(path), path / PAGE, _files(root, path)
    if plan is None and not files and not page.is_file():
        return None
    relative = path.relative_to(root)
    counts = Counter(filter(None, (_headline(file, *_stamp(file)) for file in files)))
    changed = max(_stamp(place)[0] for place in (path, path / "runs", path / FINDINGS, page)) / 1e9
    address = "" if relative == Path() else relative.as_posix()
    if plan:
        name = plan.name
    else:
        name = address or path.name
    return Entry(address, name, plan is not None, page.is_file(), changed, tuple(sorted(counts.items())))


def _files(root: Path, path: Path) -> list[Path]:
    """The findings of an entry that lie inside the root; none if the folder disappears while we look."""
    try:
        found = sorted((path / FINDINGS).glob("*" + Finding.SUFFIX))
    except FileNotFoundError:
        return []
    return [file for file in found if file.is_file() and file.resolve().is_relative_to(root)]  # a pipe would never end


def _plan(path: Path) -> Plan | None:
    """The plan of a study; None if there is none, if it is a link, or if the file is something else of the same name."""
    if (path / PLAN).is_symlink():
        return None
    try:
        plan = Plan.model_validate(_json_of(path / PLAN, *_stamp(path / PLAN)))
    except ValidationError:
        return None
    leaves_folder = any("/" in unit or unit.startswith(".") for unit in plan.units)
    return None if leaves_folder else plan


# ---- how far a study is --------------------------------------------------------------------------------------------------


class _Units:
    """The units of one study; a unit's files are read again only if they have changed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: dict[str, tuple[Any, dict[str, Any]]] = {}

    def progress(self) -> Progress:
        plan = _plan(self._folder)
        study = None
        if plan is not None:
            study = Study(self._folder, plan)
        if study is None:
            units = []
        else:
            units = [self._unit(study, unit) for unit in study.units]
        by_status: dict[str, list[dict[str, Any]]] = {PLANNED: [], RUNNING: [], DONE: [], FAILED: []}
        for unit in units:
            by_status.setdefault(unit["status"], []).append(unit)
        gaps = []
        for a, b in pairwise(sorted(unit["finished"] for unit in by_status[DONE])):
            gaps.append(b - a)
        seconds_each = None
        if gaps:
            seconds_each = median(gaps)
        left = len(units) - len(by_status[DONE]) - len(by_status[FAILED])
        now = time.time()
        running = []
        for unit in by_status[RUNNING]:
            running.append({"unit": unit["unit"], "step": unit["step"], "since": round(max(now - unit["began"], 0.0))})
        return Progress(
            units=len(units),
            done=len(by_status[DONE]),
            running=tuple(running),
            failed=tuple({"unit": unit["unit"], "error": unit["error"]} for unit in by_status[FAILED]),
            planned=len(by_status[PLANNED]),
            a_minute=60 / seconds_each if seconds_each else None,
            seconds_left=seconds_each * left if seconds_each is not None and left else None,
        )

    def _unit(self, study: Study, unit: str) -> dict[str, Any]:
        place = study.path(unit)
        stamps = (_stamp(place / ROW), _stamp(place / RUN), study.plan.measured)
        if unit not in self._seen or self._seen[unit][0] != stamps:
            if not all((place / name).resolve().is_relative_to(self._folder) for name in (ROW, RUN)):
                raise NotFound  # a link that leaves the study
            try:
                run, status = study.run(unit), study.status(unit)
            except DataError as broken:  # one broken file is told of its unit, and the others are shown
                run = {"attempts": [], "error": {"type": "unreadable", "message": str(broken)}}
                status = FAILED
            last = run["attempts"][-1] if run["attempts"] else {}
            error = run.get("error") or {}
            said = {
                "unit": unit,
                "status": status,
                "step": str(last.get("step", "")),
                "began": _seconds(last.get("time", "")),
                "finished": _seconds(run.get("finished", "")),
                "error": f"{error.get('type', '')}: {error.get('message', '')}" if error else "",
            }
            self._seen[unit] = (stamps, said)
        return self._seen[unit][1]


# ---- files ---------------------------------------------------------------------------------------------------------------


def quoted(part: str) -> str:
    """One part of an address."""
    return quote(part, safe="", errors="surrogateescape")


def _stamp(file: Path) -> tuple[int, int]:
    """When a file was changed, and its size; zeros if there is none."""
    try:
        status = file.stat()
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size


@lru_cache(maxsize=4096)
def _headline(file: Path, changed: int, size: int) -> str:
    """What a finding says in a word; empty if the file is not a finding."""
    finding = _json_of(file, changed, size)
    if not isinstance(finding, dict) or "verdict" not in finding:
        return ""
    if finding.get("not_run"):
        return "not run"
    return str(finding["verdict"] or "described")


@lru_cache(maxsize=256)
def _finding(file: Path, changed: int, size: int) -> Finding:
    return Finding.read(file)


@lru_cache(maxsize=64)
def _json_of(file: Path, changed: int, size: int) -> Any:
    """The contents of a JSON file; None if it cannot be read."""
    try:
        return read_json(file)
    except (OSError, DataError):
        return None


def _seconds(moment: Any) -> float:
    """A moment as run.json writes it; zero where it says none."""
    try:
        return datetime.fromisoformat(moment).timestamp()
    except (TypeError, ValueError, OverflowError):
        return 0.0
