"""Files that are whole wherever they are seen: written under another name, flushed to the disk, then renamed.

What others wrote may be anything: JSON and TOML that cannot be read are one sentence with the path.
"""

from __future__ import annotations

import json
import os
import stat
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rightreasons.errors import DataError, SettingError


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary path beside `path` to write to; when the block ends it takes `path`'s place.

    If the block fails, `path` stays as it was and nothing is left beside it.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:50]}.", suffix=".partial")
    os.close(handle)
    partial = Path(name)
    try:
        yield partial
        _flush(partial)
        partial.chmod(0o666 & ~_umask())  # mkstemp lets nobody else read, and a study may be shared
        partial.replace(target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def write(path: str | os.PathLike[str], data: bytes | str) -> Path:
    """Write a whole file, text as UTF-8; readers see the old content or the new."""
    with replacing(path) as partial:
        partial.write_bytes(data.encode() if isinstance(data, str) else data)
    return Path(path)


def write_json(path: str | os.PathLike[str], data: Any) -> Path:
    """Write plain data as JSON."""
    return write(path, json.dumps(data, indent=1) + "\n")


def read_json(path: str | os.PathLike[str]) -> Any:
    """What `write_json` wrote."""
    data = read_bytes(path)
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is no JSON that can be read ({reason(error)}): make it again, or restore it") from error


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """A whole file; a pipe or a device of that name is refused, because reading it may never end."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe would wait for somebody who writes
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        raise DataError(f"{path} is a {'folder' if stat.S_ISDIR(mode) else 'pipe or a device'} and not a file")
    with open(handle, "rb") as file:  # noqa: PTH123  Path has no open() of a handle
        return file.read()


def read_text(path: str | os.PathLike[str]) -> str:
    """A text that somebody wrote, refused where it is not UTF-8."""
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise SettingError(f"{path} is not UTF-8 text ({error.reason} at byte {error.start}): save it as UTF-8") from error


def parse_toml(text: str, source: str | os.PathLike[str]) -> dict[str, Any]:
    """The tables of a TOML text; `source` is named in errors."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a number of thousands of digits is a bare ValueError
        raise SettingError(f"{source} is not TOML: {reason(error)}") from error


def reason(error: Exception) -> str:
    """Why a text cannot be parsed, in few words: Python says "maximum recursion depth exceeded" for a text nested too deeply."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def as_folder(path: str | os.PathLike[str]) -> Path:
    """A folder to write to, there or not yet; refused before any work where it cannot be one."""
    target = Path(path)
    for place in (target, *target.absolute().parents):
        if place.is_dir():
            if not os.access(place, os.W_OK | os.X_OK):
                raise SettingError(
                    f"nothing can be written to {target}: {place} may not be written by you; choose another folder"
                )
            return target
        if place.exists() or place.is_symlink():
            what = "is a file" if place.exists() else "is a link that leads nowhere"
            raise SettingError(f"nothing can be written to {target}: {place} {what}; choose another folder")
    return target


def _flush(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
