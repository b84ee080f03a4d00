"""Folders sent through any fsspec place (a bucket, a share, ssh) between a driver and workers that have no disk in common.

A file is stored under the hash of its content, and a listing says which path has which content. A listing is written last and
whole, so that whoever reads it finds one state of a folder, never half of two.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import threading
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType

from fsspec.core import url_to_fs

from rightreasons.errors import DataError, SettingError

Listing = dict[str, str]
"""Path inside a study's folder → name in the store."""

LISTING = "listing.json"
GROWING = (".txt", ".csv", ".log")
TRIES = 20
WAIT_SECONDS = 0.05


class Store:
    """A place for files, by URL: `s3://bucket/folder`, `gs://…`, `sftp://host/folder`, `file:///mnt/share` or a plain path."""

    def __init__(self, url: str) -> None:
        try:
            self.fs, self.root = url_to_fs(url)
        except (ValueError, ImportError) as error:
            raise SettingError(
                f"store = {url!r} cannot be used: {error}; give an fsspec URL whose library is installed"
            ) from error

    def send(self, home: Path, paths: Iterable[str], place: str, known: Listing | None = None) -> Listing:
        """Store files of `home` in a place of the store, each once; those in `known` are there."""
        listing: Listing = {}
        for path in paths:
            name = None
            if known:
                name = known.get(path)
            listing[path] = name or self._send_one(home / path, place)
        return listing

    def _send_one(self, file: Path, place: str) -> str:
        name = f"{place}/{content_hash(file)}"
        target = self._full(name)
        if not self.fs.exists(target):
            self._write(target, lambda partial: self.fs.put_file(str(file), partial))
        return name

    def fetch(self, listing: Listing, home: Path, have: Callable[[str], Path | None] = lambda path: None) -> None:
        """Bring files into `home`; `have(path)` is an older file, linked instead where its content is the same."""
        for path, name in listing.items():
            target, wanted = home / path, name.rsplit("/", 1)[1]
            target.parent.mkdir(parents=True, exist_ok=True)
            older = have(path)
            if older is not None and older.is_file() and content_hash(older) == wanted:
                link(older, target)
                continue
            partial = target.with_name(f".{target.name}.partial")
            self.fs.get_file(self._full(name), str(partial))
            if content_hash(partial) != wanted:
                raise DataError(f"{path} came out of the store {self.root} with another content than went in; sweep again")
            partial.replace(target)

    def publish(self, place: str, listing: Listing) -> None:
        """Say what the place holds, all at once."""
        self._write(f"{self._full(place)}/{LISTING}", lambda partial: self.fs.pipe_file(partial, json.dumps(listing).encode()))

    def published(self, place: str) -> Listing | None:
        file = f"{self._full(place)}/{LISTING}"
        try:
            return dict(json.loads(self.fs.cat_file(file)))
        except FileNotFoundError:
            return None

    def remove(self, name: str) -> None:
        """Remove a file or a place; one that is gone already is fine.

        A worker that was given up may still write or remove there: what the first look did not see is seen by the next.
        """
        full = self._full(name)
        for left in reversed(range(TRIES)):
            try:
                self.fs.rm(full, recursive=True)
                return
            except OSError as error:
                if isinstance(error, FileNotFoundError) and not self.fs.exists(full):
                    return
                if not left:
                    raise
            threading.Event().wait(WAIT_SECONDS)

    def _write(self, target: str, write: Callable[[str], object]) -> None:
        """Under another name and moved, where the place has folders; an object store shows nothing before it is whole."""
        if not self._has_folders:
            write(target)
            return
        self.fs.makedirs(target.rsplit("/", 1)[0], exist_ok=True)
        partial = f"{target}.{uuid.uuid4().hex[:8]}.partial"
        write(partial)
        self.fs.mv(partial, target)

    @property
    def _has_folders(self) -> bool:
        if isinstance(self.fs.protocol, str):
            spoken = {self.fs.protocol}
        else:
            spoken = set(self.fs.protocol)
        return bool(spoken & {"file", "local", "sftp", "ssh", "smb", "hdfs", "webhdfs", "arrow_hdfs"})

    def _full(self, name: str) -> str:
        return f"{self.root.rstrip('/')}/{name}"


class Publisher:
    """Publishes some folders to the store while a worker fills them; a context, whose `finish` publishes the last state.

    Parameters
    ----------
    home, folders : the folders lie in `home`
    place : in the store
    every : seconds between two states
    """

    def __init__(self, store: Store, home: Path, folders: Iterable[str], place: str, every: float) -> None:
        self.store, self.home, self.folders, self.place, self.every = store, home, tuple(folders), place, every
        # A worker that was given up may still be alive: whatever it does, it does in a place of its own.
        self.own = f"{place}/{uuid.uuid4().hex[:12]}"
        self._sent: dict[str, tuple[Signature, str]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep_telling, daemon=True)

    def __enter__(self) -> Publisher:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()

    def finish(self) -> Listing:
        """The last state; call it when nobody writes any more."""
        listing = self._tell()
        if listing is None:
            raise DataError(f"files in {self.home} change although the work is over: is another process writing there?")
        return listing

    def _keep_telling(self) -> None:
        while not self._stop.wait(self.every):
            with contextlib.suppress(OSError):  # a store that is away for a while costs nothing unless the worker dies too
                self._tell()

    def _tell(self) -> Listing | None:
        """Store what has changed and publish the listing; None where the folders did not keep still."""
        links = self.home.parent / f"{self.home.name}-state"
        shutil.rmtree(links, ignore_errors=True)
        state = still(self.home, self.folders, links)
        if state is None:
            return None
        known = {path: name for path, (signature, name) in self._sent.items() if state.get(path) == signature}
        listing = self.store.send(links, state, self.own, known)
        self.store.publish(self.place, listing)
        for name in {name for _, name in self._sent.values()} - set(listing.values()):
            self.store.remove(name)
        self._sent = {path: (state[path], name) for path, name in listing.items()}
        shutil.rmtree(links, ignore_errors=True)
        return listing


Signature = tuple[int, int, int]


def files_in(home: Path, folders: Iterable[str]) -> dict[str, Signature]:
    """Path → (inode, size, time) of all files that count: no locks, nothing half written.

    A worker goes on meanwhile. `os.walk` passes over folders that have gone, where `Path.rglob` raises.
    """
    signatures: dict[str, Signature] = {}
    walked = (Path(place, name) for folder in folders for place, _, names in os.walk(home / folder) for name in sorted(names))
    for file in walked:
        if file.name == "lock" or file.name.endswith(".partial"):
            continue
        with contextlib.suppress(FileNotFoundError):  # renamed or removed while we looked
            stat = file.stat()
            signatures[file.relative_to(home).as_posix()] = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
    return signatures


def still(home: Path, folders: Iterable[str], target: Path) -> dict[str, Signature] | None:
    """Link the files of one moment into `target`; None where the folders would not keep still for so long.

    Files are replaced and not rewritten, so that a link keeps the content that it had; logs grow, and are copied.
    """
    for _ in range(TRIES):
        before = files_in(home, folders)
        try:
            for path in before:
                (target / path).parent.mkdir(parents=True, exist_ok=True)
                (shutil.copy2 if path.endswith(GROWING) else link)(home / path, target / path)
        except FileNotFoundError:
            before = {}
        if before and files_in(home, folders) == before:
            return before
        shutil.rmtree(target, ignore_errors=True)
        threading.Event().wait(WAIT_SECONDS)
    return None


def replace_folder(old: Path, new: Path) -> None:
    """Put a folder in another's place."""
    aside = new.with_name(f"{new.name}.old")
    shutil.rmtree(aside, ignore_errors=True)
    old.parent.mkdir(parents=True, exist_ok=True)
    if old.exists():
        old.replace(aside)
    new.replace(old)
    shutil.rmtree(aside, ignore_errors=True)


def link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:  # another disk, or one without links
        shutil.copy2(source, target)


def content_hash(file: Path) -> str:
    digest = hashlib.blake2b(digest_size=16)
    with file.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
