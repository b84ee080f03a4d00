"""What SDI freezes for later models, as JSON with the name of its format."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rightreasons.errors import DataError, SettingError
from rightreasons.files import write


def save(path: str | Path, format: str, content: Mapping[str, Any]) -> Path:
    return write(path, json.dumps({"format": format, **content}, indent=1, allow_nan=False))


def read(path: str | Path, format: str, what: str, remedy: str) -> dict[str, Any]:
    """The content that `save` wrote; `what` it should be, and how to get one, are for the error."""
    try:
        stored = json.loads(Path(path).read_text())
    except FileNotFoundError as error:
        raise SettingError(f"no {what} in {path}: {remedy}") from error
    except json.JSONDecodeError as error:
        raise DataError(f"{path} is not JSON ({error}): {remedy}") from error
    if not isinstance(stored, dict) or stored.pop("format", None) != format:
        raise DataError(f"{path} holds no {what} ({format!r} expected): {remedy}")
    return stored
