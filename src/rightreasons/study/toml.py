"""Plain data as TOML: what a command was told, written so that a study.toml repeats it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any

from rightreasons.errors import SettingError


def dumps(data: Mapping[str, Any]) -> str:
    """TOML text of nested tables; keys that are None are left out, because TOML has no word for nothing."""
    return "\n\n".join(part for part in _tables(data, ()) if part) + "\n"


def _tables(table: Mapping[str, Any], path: tuple[str, ...]) -> list[str]:
    inner = {key: value for key, value in table.items() if isinstance(value, Mapping)}
    many = {key: value for key, value in table.items() if _is_tables(value)}
    own = [f"{_key(k)} = {_value(v)}" for k, v in table.items() if v is not None and k not in inner and k not in many]
    head = [f"[{'.'.join(map(_key, path))}]"] if path and (own or not (inner or many)) else []
    found = ["\n".join([*head, *own])]
    for key, value in inner.items():
        found += _tables(value, (*path, key))
    for key, values in many.items():
        for value in values:
            lines = [f"{_key(k)} = {_value(v)}" for k, v in value.items() if v is not None]
            found.append("\n".join([f"[[{'.'.join(map(_key, (*path, key)))}]]", *lines]))
    return found


def _is_tables(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(item, Mapping) for item in value)


def _key(name: object) -> str:
    return str(name) if re.fullmatch(r"[A-Za-z0-9_-]+", str(name)) else _text(str(name))


def _text(text: str) -> str:
    """A basic string; JSON's escapes are TOML's, but for the delete character."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str | os.PathLike):
        return _text(os.fspath(value))
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items() if v is not None) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    raise SettingError(f"{value!r} ({type(value).__name__}) cannot stand in a study.toml: give texts, numbers, lists or tables")
