"""Which column of a table plays which part, how its values become codes, and what can be wrong with it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd

from rightreasons.errors import DataError, SettingError
from rightreasons.families import suggest

CONTINUOUS_ABOVE = 10  # distinct numeric values; fewer are categories
ID = "rightreasons.id"  # the column that keeps derived ids

Kind = Literal["categorical", "continuous"]
Value = int | float | str


@dataclass(frozen=True)
class Attribute:
    """One attribute of a cohort's rows.

    Attributes
    ----------
    values : (n,) integer codes into `levels`, -1 where missing; floats with NaN where missing if continuous
    """

    name: str
    kind: Kind
    values: np.ndarray
    levels: tuple[Value, ...] = ()

    @property
    def present(self) -> np.ndarray:
        """(n,) True where the value is known."""
        return ~np.isnan(self.values) if self.kind == "continuous" else self.values >= 0


@dataclass(frozen=True)
class Problem:
    """One thing wrong with one row (or, with `row` None, with the table)."""

    message: str
    row: int | None = None  # 0-based row of the table
    column: str = ""
    level: Literal["error", "warning", "info"] = "error"
    kind: str = ""  # a short machine-readable name
    id: str = ""
    line: int | None = None  # of the manifest's file, counted from 1


@dataclass(frozen=True)
class Schema:
    """Which column plays which part, and the codes of labels and attributes."""

    image: str | None = "image"
    label: str | None = "label"
    attribute: tuple[str, ...] = ()
    id: str | None = None
    split: str | None = None
    subject: str | None = None
    case: str | None = None
    site: str | None = None
    weight: str | None = None
    box: tuple[str, ...] = ()
    mask: str | None = None
    transform: str | None = None
    twin: str | None = None
    twin_attribute: dict[str, str] = field(default_factory=dict)
    mapping: dict[str, Any] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    bins: dict[str, tuple[float, ...]] = field(default_factory=dict)
    kinds: dict[str, Kind] = field(default_factory=dict)
    classes: tuple[Value, ...] = ()
    levels: dict[str, tuple[Value, ...]] = field(default_factory=dict)
    root: str = "."
    resolved: bool = False  # classes, levels, kinds and bins are settled

    @classmethod
    def of(cls, **given: Any) -> Schema:
        """A schema from a caller's keywords: one name or several, any mapping, any path; unknown keywords are refused."""
        known = [key for key in cls.__dataclass_fields__ if key not in ("classes", "levels", "bins", "resolved")]
        for key in given:
            if key not in known:
                raise SettingError(f"a cohort has no keyword {key!r}; {suggest(key, [*known, 'bins'])}")
        given["attribute"], given["box"] = _names(given.get("attribute")), _names(given.get("box"))
        given["mapping"] = {
            text(k): v.item() if isinstance(v, np.generic) else v for k, v in (given.get("mapping") or {}).items()
        }
        given["missing"] = tuple(text(m) for m in given.get("missing") or ())
        given["kinds"] = dict(given.get("kinds") or {})
        for name, kind in given["kinds"].items():
            if kind not in get_args(Kind):
                raise SettingError(f"kinds={{{name!r}: {kind!r}}}: an attribute is one of {', '.join(get_args(Kind))}")
        given["root"] = "" if given.get("root") is None else str(given["root"])
        twin_attribute = given.pop("twin_attribute", None)
        schema = cls(**given)
        return replace(schema, twin_attribute=_twin_attribute(twin_attribute, schema))

    def columns(self) -> dict[str, str]:
        """Every column the schema names, with the part it plays."""
        single = ("image", "label", "id", "split", "subject", "case", "site", "weight", "mask", "transform", "twin")
        named = {getattr(self, part): part for part in single if getattr(self, part)}
        named.update(dict.fromkeys(self.attribute, "attribute"))
        named.update(dict.fromkeys(self.box, "box"))
        named.update(dict.fromkeys(self.twin_attribute.values(), "twin_attribute"))
        return named


class Table:
    """The whole frame with its schema; arrays are derived once and shared by all views."""

    def __init__(self, frame: pd.DataFrame, schema: Schema, digests: dict[str, str] | None = None) -> None:
        self.frame = frame
        self.schema = schema
        self.digests = {} if digests is None else digests
        self._strings: dict[str, np.ndarray] = {}

    def strings(self, column: str) -> np.ndarray:
        """(n,) the column as text, '' where missing."""
        if column not in self._strings:
            self._strings[column] = np.array([text(v) for v in self.frame[column]], dtype=object)
        return self._strings[column]

    @cached_property
    def ids(self) -> np.ndarray:
        if self.schema.id:
            return self.strings(self.schema.id)
        if self.schema.image:
            references = self.strings(self.schema.image)
            if not pd.Series(references).duplicated().any():
                return references
        return np.array([str(i) for i in range(len(self.frame))], dtype=object)

    @cached_property
    def label(self) -> np.ndarray:
        if self.schema.label is None:
            return np.full(len(self.frame), -1)
        return _codes(label_values(self.frame, self.schema), self.schema.classes)

    @cached_property
    def attributes(self) -> dict[str, Attribute]:
        return {name: self._attribute(name) for name in self.schema.attribute}

    def _attribute(self, name: str) -> Attribute:
        kind, levels = self.schema.kinds[name], self.schema.levels[name]
        if name in self.schema.bins:
            return Attribute(name, kind, _bin(tidy(self.frame[name], self.schema.missing), self.schema.bins[name]), levels)
        values = _settled(self.frame[name], self.schema.missing, levels)
        if kind == "continuous":
            return Attribute(name, kind, np.array([np.nan if v is None else float(v) for v in values], dtype=np.float64))
        return Attribute(name, kind, _codes(values, levels), levels)

    @cached_property
    def boxes(self) -> list[np.ndarray]:
        return [parse_boxes(v) for v in box_values(self.frame, self.schema)]


def table_problems(frame: pd.DataFrame, schema: Schema) -> Iterator[Problem]:
    """Everything that can be wrong with the table itself, images unread."""
    table = Table(frame, schema)
    if not len(frame):
        yield Problem("the table has no rows", kind="empty-table")
        return
    yield from _id_problems(table)
    if schema.image:
        for row in np.flatnonzero(table.strings(schema.image) == ""):
            yield Problem("no image is named", int(row), schema.image, kind="no-image")
    yield from _box_problems(frame, schema)
    if schema.weight:
        weight = pd.to_numeric(frame[schema.weight], errors="coerce").to_numpy(dtype=float)
        for row in np.flatnonzero(~((weight >= 0) & np.isfinite(weight))):
            found = text(frame[schema.weight].iloc[row])
            yield Problem(f"weight {found!r} is not a number of at least 0", int(row), schema.weight, kind="bad-weight")
    for part in ("subject", "case"):
        column = getattr(schema, part)
        if column and schema.split:
            yield from _divided(table.strings(column), table.strings(schema.split), part, "split", column)
    if schema.case and schema.label:
        label = np.array([*map(text, schema.classes), ""], dtype=object)[table.label]
        yield from _divided(table.strings(schema.case), label, "case", "label", schema.case)


def parse_boxes(value: Any) -> np.ndarray:
    """(k, 4) boxes from `x0 y0 x1 y1; …`, JSON, a sequence of numbers or of boxes, or nothing."""
    if isinstance(value, str) and value.strip().startswith("["):
        value = json.loads(value)
    if isinstance(value, str):
        value = [part.replace(",", " ").split() for part in value.split(";") if part.strip()]
    elif not isinstance(value, list | tuple | np.ndarray):
        value = [] if text(value) == "" else [value]
    boxes = list(value) if any(isinstance(part, list | tuple | np.ndarray) for part in value) else [value] if len(value) else []
    try:
        numbers = [[float(number) for number in box] for box in boxes]
    except TypeError as error:
        raise ValueError(f"{value!r} holds something that is not a number") from error
    if any(len(box) != 4 for box in numbers) or not np.isfinite(numbers).all():
        raise ValueError(f"{value!r} is not groups of four numbers")
    return np.array(numbers, dtype=np.float64).reshape(-1, 4)


def _id_problems(table: Table) -> Iterator[Problem]:
    column = table.schema.id or ""
    if column:
        yield from (Problem("the id is missing", int(row), column, kind="no-id") for row in np.flatnonzero(table.ids == ""))
    first: dict[str, int] = {}
    for row, name in enumerate(table.ids.tolist()):
        if name and first.setdefault(name, row) != row:
            yield Problem(f"id {name!r} is also the id of row {first[name] + 1}", row, column, kind="duplicate-id")


def _divided(unit: np.ndarray, part: np.ndarray, unit_name: str, part_name: str, column: str) -> Iterator[Problem]:
    """Rows whose unit (a subject, a case) was first seen in another part (a split, a label); '' is not known and passes."""
    home: dict[str, tuple[str, int]] = {}
    for row, (name, found) in enumerate(zip(unit, part, strict=True)):
        if name and found and home.setdefault(name, (found, row))[0] != found:
            before, first = home[name]
            message = f"{unit_name} {name!r} has {part_name} {found!r} here and {before!r} in row {first + 1}"
            yield Problem(message, row, column, kind=f"{unit_name}-in-two-{part_name}s")


def _names(given: str | Sequence[str] | None) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given or ())


def text(value: Any) -> str:
    if isinstance(value, str):
        return value.strip()
    if value is None or value is pd.NA or value is pd.NaT or (isinstance(value, float | np.floating) and np.isnan(value)):
        return ""
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)


def hash_of(values: Iterable[str]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for value in values:
        digest.update(value.encode() + b"\x1e")
    return digest.hexdigest()


def tidy(series: pd.Series, missing: Sequence[str]) -> list[Value | None]:
    """Plain values: None where missing; numbers where every known value is one; whole floats as integers."""
    if isinstance(series.dtype, np.dtype) and series.dtype.kind in "iu" and not missing:
        return series.tolist()
    unknown = {"", *missing}
    values = [None if text(v) in unknown else v for v in series.tolist()]
    known = [v for v in values if v is not None]
    if all(isinstance(v, bool | np.bool_) for v in known):
        return [None if v is None else int(v) for v in values]
    numbers = pd.to_numeric(pd.Series(known, dtype=object), errors="coerce").to_numpy(dtype=float)
    if not np.isfinite(numbers).all():  # "inf" is no measurement
        return [None if v is None else text(v) for v in values]
    whole = bool((numbers == np.round(numbers)).all())
    numeric = iter(numbers.tolist())
    return [None if v is None else int(next(numeric)) if whole else next(numeric) for v in values]


def _settled(series: pd.Series, missing: Sequence[str], levels: Sequence[Value]) -> list[Value | None]:
    """Values in the type of their levels: where those are text, digits that happen to be alone in a view stay text."""
    if levels and isinstance(levels[0], str):
        unknown = {"", *missing}
        return [None if cell in unknown else cell for cell in map(text, series.tolist())]
    return tidy(series, missing)


def _codes(values: Sequence[Value | None], levels: Sequence[Value]) -> np.ndarray:
    lookup = {level: code for code, level in enumerate(levels)}
    return np.array([-1 if v is None else lookup.get(v, -1) for v in values], dtype=np.int64)


def label_values(frame: pd.DataFrame, schema: Schema) -> list[Value | None]:
    """The label of each row, mapped; None where it is not known."""
    values = _settled(frame[schema.label], schema.missing, schema.classes)
    if not schema.mapping:
        return values
    mapping = schema.mapping if schema.resolved else _spelled_out(frame, schema)
    cells = map(text, frame[schema.label].tolist())
    mapped = [None if v is None else mapping.get(cell, v) for cell, v in zip(cells, values, strict=True)]
    return _settled(pd.Series(mapped, dtype=object), schema.missing, schema.classes)


def _spelled_out(frame: pd.DataFrame, schema: Schema) -> dict[str, Any]:
    """The mapping for every cell of the label's column, so that the rows of a view map as those of the whole table do.

    A key may be written as the cell is ("True", "01") or as it is understood (1).
    """
    raw, mapping = frame[schema.label], schema.mapping
    understood = zip(map(text, raw.tolist()), tidy(raw, schema.missing), strict=True)
    return mapping | {cell: mapping.get(cell, mapping.get(text(v), v)) for cell, v in understood if v is not None}


def _bin(values: Sequence[Value | None], edges: Sequence[float]) -> np.ndarray:
    return np.array([-1 if v is None else int(np.searchsorted(edges, float(v), side="right")) for v in values])


def box_values(frame: pd.DataFrame, schema: Schema) -> list[Any]:
    if not schema.box:
        return []
    if len(schema.box) == 1:
        return frame[schema.box[0]].tolist()
    corners = frame[list(schema.box)].to_numpy(dtype=object)
    return [None if all(text(v) == "" for v in row) else [float("nan") if text(v) == "" else v for v in row] for row in corners]


def _box_problems(frame: pd.DataFrame, schema: Schema) -> Iterator[Problem]:
    column = schema.box[0] if schema.box else ""
    for row, value in enumerate(box_values(frame, schema)):
        try:
            boxes = parse_boxes(value)
        except ValueError as error:
            yield Problem(f"box cannot be read: {error}; expected x0 y0 x1 y1", row, column, kind="bad-box")
            continue
        for x0, y0, x1, y1 in boxes:
            if x1 <= x0 or y1 <= y0:
                yield Problem(
                    f"box {x0:g} {y0:g} {x1:g} {y1:g} is empty: x1 > x0 and y1 > y0 expected", row, column, kind="empty-box"
                )


def refuse(problems: Iterable[Problem], path: Path) -> None:
    errors = [p for p in problems if p.level == "error"]
    if errors:
        shown = "; ".join(p.message if p.row is None else f"row {p.row + 1}: {p.message}" for p in errors[:5])
        more = f"; and {len(errors) - 5} more" if len(errors) > 5 else ""
        raise DataError(f"{path}: {shown}{more}. `rightreasons check` lists every row")


def _twin_attribute(given: str | Mapping[str, str] | None, schema: Schema) -> dict[str, str]:
    if given is None:
        return {}
    if isinstance(given, str):
        if len(schema.attribute) != 1:
            raise SettingError(f"twin_attribute={given!r} needs exactly one attribute; with {schema.attribute} give a mapping")
        return {schema.attribute[0]: given}
    for name in given:
        if name not in schema.attribute:
            raise SettingError(f"twin_attribute names {name!r}, which is not an attribute; {suggest(name, schema.attribute)}")
    return dict(given)


def resolve(frame: pd.DataFrame, given: Schema, bins: Mapping[str, int | Sequence[float]]) -> Schema:
    """The schema with columns checked, classes and levels fixed, kinds decided and bins turned into edges."""
    known = [str(c) for c in frame.columns]
    for column, part in given.columns().items():
        if column not in known:
            raise DataError(f"the table has no column {column!r} ({part}=); {suggest(column, known)}")
    if given.box and len(given.box) not in (1, 4):
        raise DataError(f"box= takes one column or four (x0, y0, x1, y1), not {len(given.box)}: {', '.join(given.box)}")
    for option, names in (("bins", bins), ("kinds", given.kinds)):
        for name in names:
            if name not in given.attribute:
                raise SettingError(f"{option}= names {name!r}, which is not an attribute; {suggest(name, given.attribute)}")
    kinds: dict[str, Kind] = {}
    levels: dict[str, tuple[Value, ...]] = {}
    edges: dict[str, tuple[float, ...]] = {}
    for name in given.attribute:
        values = tidy(frame[name], given.missing)
        twin = given.twin_attribute.get(name)
        if twin:
            values = tidy(pd.concat([frame[name], frame[twin]], ignore_index=True), given.missing)
        distinct = sorted({v for v in values if v is not None}, key=lambda v: (isinstance(v, str), v))
        numeric = bool(distinct) and not isinstance(distinct[0], str)
        if name in bins:
            if not numeric:
                raise DataError(f"bins= for {name!r}, whose values are not numbers: {distinct[:5]}")
            edges[name] = _edges(values, bins[name], name)
            kinds[name], levels[name] = "categorical", _bin_names(edges[name])
            continue
        kind = given.kinds.get(name, "continuous" if numeric and len(distinct) > CONTINUOUS_ABOVE else "categorical")
        if kind == "continuous" and not numeric:
            raise DataError(f"attribute {name!r} cannot be continuous: its values are {distinct[:5]}")
        kinds[name] = kind
        levels[name] = () if kind == "continuous" else tuple(distinct)
    classes: tuple[Value, ...] = ()
    if given.label is not None:
        found = {v for v in label_values(frame, given) if v is not None}
        fractional = sorted(v for v in found if isinstance(v, float))
        if fractional:
            raise DataError(
                f"label {given.label!r} has fractional values ({', '.join(map(str, fractional[:3]))}): a label must be a class; "
                "bin it in the manifest or name another column"
            )
        classes = tuple(sorted(found, key=lambda v: (isinstance(v, str), v)))
    mapping = _spelled_out(frame, given) if given.label is not None and given.mapping else given.mapping
    return replace(given, mapping=mapping, classes=classes, levels=levels, kinds=kinds, bins=edges, resolved=True)


def _edges(values: Sequence[Value | None], bins: int | Sequence[float], name: str) -> tuple[float, ...]:
    if isinstance(bins, int | np.integer):
        known = np.array([float(v) for v in values if v is not None])
        cuts = np.unique(np.quantile(known, np.arange(1, bins) / bins)) if bins > 1 else np.zeros(0)
        cuts = cuts[cuts > known.min()]  # nothing lies below the minimum
        if not len(cuts):
            raise SettingError(f"bins={bins} leaves {name!r} in one piece: give at least 2, or edges between its values")
        return tuple(cuts.tolist())
    edges = tuple(float(b) for b in bins)
    if list(edges) != sorted(set(edges)) or not edges:
        raise SettingError(f"bins for {name!r} must be rising edges, not {list(bins)}")
    return edges


def _bin_names(edges: Sequence[float]) -> tuple[str, ...]:
    shown = [f"{edge:g}" for edge in edges]
    if len(set(shown)) < len(edges):  # six digits do not tell them apart
        shown = [repr(float(edge)) for edge in edges]
    return (f"below {shown[0]}", *(f"{low} to {high}" for low, high in pairwise(shown)), f"{shown[-1]} and above")
