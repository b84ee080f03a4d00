"""Files that are whole wherever they are seen: written under another name, flushed to the disk, then renamed."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


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
    return json.loads(Path(path).read_bytes())


def _flush(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
