"""What an audit measured of one model, on disk and in tables.

A measurement is a frozen dataclass of arrays, numbers, texts, intervals, tuples of them, and pieces that are such dataclasses
themselves (a gate, a control, a curve). In memory it keeps its pieces; in a file it is flat, `gate.threshold`.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from rightreasons.errors import DataError
from rightreasons.files import replacing
from rightreasons.stats.resampling import Interval
from rightreasons.stored import known_format

M = TypeVar("M")
FORMAT = 2  # 1 was flat in memory too: such a file is measured again
HEADER = "rightreasons.measurement"  # the entry of the .npz that holds everything but arrays, as JSON


def save_measurement(measurement: Any, path: str | Path, **made_from: Any) -> Path:
    """Write a measurement as `.npz`: its arrays as they are, the rest as JSON.

    `made_from` is plain data to be kept with it, such as the settings; `made_from(path)` reads it back.
    """
    arrays: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    for name, value in _flat(measurement):
        if not isinstance(value, np.ndarray):
            rest[name] = _to_json(value)
        elif value.dtype.hasobject:
            raise DataError(f"{type(measurement).__qualname__}.{name} is an array of objects; give numbers or a tuple of texts")
        else:
            arrays[name] = value
    header = {"format": FORMAT, "class": type(measurement).__qualname__, "made_from": made_from, "fields": rest}
    with replacing(path) as partial, partial.open("wb") as stream:
        np.savez(stream, **{HEADER: np.array(json.dumps(header)), **arrays})
    return Path(path)


def load_measurement(cls: type[M], path: str | Path) -> M:
    """What `save_measurement` wrote."""
    with np.load(path) as stored:
        header = json.loads(str(stored[HEADER]))
        if known_format(header.get("format"), FORMAT, path) != FORMAT:
            raise DataError(f"{path} was measured by an earlier version of rightreasons: run rightreasons sweep or audit again")
        if header["class"] != cls.__qualname__:
            raise DataError(f"{path} holds a {header['class']} and not a {cls.__qualname__}")
        fields = {name: stored[name] for name in stored.files if name != HEADER}
    for name, value in header["fields"].items():
        fields[name] = _from_json(value)
    return _assembled(cls, fields, "")


def made_from(path: str | Path) -> dict[str, Any]:
    """What was kept with a measurement; empty where there is none, or one of an earlier format."""
    if not Path(path).exists():
        return {}
    header = _header(path)
    if header.get("format") != FORMAT:
        return {}
    return dict(header["made_from"])


def measured_class(path: str | Path) -> str:
    """Name of the class that a measurement was saved as."""
    return str(_header(path)["class"])


def scalars(measurement: Any) -> dict[str, float | int | str]:
    """The numbers and texts of a measurement, for a row of a table; an `Interval` is three of them.

    A measurement that knows better has a method `scalars()` of its own.
    """
    if hasattr(measurement, "scalars"):
        return dict(measurement.scalars())
    columns: dict[str, float | int | str] = {}
    for name, value in _flat(measurement):
        column = name.replace(".", "_")
        if isinstance(value, Interval):
            columns |= spread(column, value)
        elif isinstance(value, bool | int | float | str | np.number | np.bool_):
            columns[column] = value.item() if isinstance(value, np.generic) else value
    return columns


def spread(name: str, interval: Interval) -> dict[str, float | int | str]:
    """An interval as columns: the value under the name itself, its limits under `_low` and `_high`."""
    return {name: float(interval.value), f"{name}_low": float(interval.low), f"{name}_high": float(interval.high)}


# ---- pieces --------------------------------------------------------------------------------------------------------------


def _is_piece(kind: Any) -> bool:
    return dataclasses.is_dataclass(kind) and kind is not Interval


def _flat(measurement: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(name, value) of every field; those of a piece are named `piece.field`."""
    for field in dataclasses.fields(measurement):
        value = getattr(measurement, field.name)
        if _is_piece(type(value)):
            yield from _flat(value, f"{prefix}{field.name}.")
        else:
            yield prefix + field.name, value


def _assembled(cls: type[M], fields: Mapping[str, Any], prefix: str) -> M:
    hints = typing.get_type_hints(cls)
    given: dict[str, Any] = {}
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        name = prefix + field.name
        if name in fields:
            given[field.name] = fields[name]
        elif any(key.startswith(f"{name}.") for key in fields):
            given[field.name] = _assembled(_piece_in(hints[field.name]), fields, f"{name}.")
    return cls(**given)


def _piece_in(hint: Any) -> Any:
    """The dataclass of a field's annotation, `Gate` or `Gate | None`."""
    if isinstance(hint, types.UnionType):
        options = typing.get_args(hint)
    else:
        options = (hint,)
    return next(option for option in options if _is_piece(option))


# ---- JSON ----------------------------------------------------------------------------------------------------------------


def _header(path: str | Path) -> dict[str, Any]:
    with np.load(path) as stored:
        header: dict[str, Any] = json.loads(str(stored[HEADER]))
    return header


def _to_json(value: Any) -> Any:
    if isinstance(value, Interval):
        return {"Interval": dataclasses.asdict(value)}
    if isinstance(value, Mapping):
        return {"Mapping": [[_to_json(k), _to_json(v)] for k, v in value.items()]}
    if isinstance(value, list | tuple):
        return [_to_json(v) for v in value]
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise DataError(f"a measurement holds arrays, numbers, texts, intervals and tuples of them, not a {type(value).__qualname__}")


def _from_json(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_from_json, value))
    if isinstance(value, dict):
        ((kind, content),) = value.items()
        if kind == "Interval":
            return Interval(**content)
        return {_from_json(k): _from_json(v) for k, v in content}
    return value
