"""Which column of a table plays which part, how its values become codes, and what can be wrong with it."""

from __future__ import annotations

import json
import math
import re
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

LARGEST_EXACT = 2**53  # floats tell whole numbers apart up to here
CONTINUOUS_ABOVE = 10  # distinct numeric values; fewer are categories
ID = "rightreasons.id"  # the column that keeps derived ids

IMAGE_SUFFIXES = (
    ".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".webp", ".gif", ".dcm", ".dicom", ".nii", ".nii.gz", ".mgh", ".mgz",
    ".npy",
)  # fmt: skip

TEXT_PARTS = ("id", "image", "split", "subject", "case", "site", "mask", "transform", "twin")
SINGLE_PARTS = ("image", "label", "id", "split", "subject", "case", "site", "weight", "mask", "transform", "twin")
"""The parts that one column plays; an attribute, a box and a twin's attribute may need several."""

Kind = Literal["categorical", "continuous"]
Value = int | float | str
Bins = Mapping[str, int | Sequence[float]]


@dataclass(frozen=True)
class Attribute:
    """One attribute of a cohort's rows.

    Attributes
    ----------
    values : (n,) integer codes into `levels`, -1 where missing; floats with NaN where missing if continuous
    present : (n,) True where the value is known
    """

    name: str
    kind: Kind
    values: np.ndarray
    levels: tuple[Value, ...] = ()
    present: np.ndarray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.kind == "continuous":
            present = ~np.isnan(self.values)
        else:
            present = self.values >= 0
        object.__setattr__(self, "present", frozen(present))


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
        mapping = given.get("mapping") or {}
        for key in ("mapping", "bins", "kinds"):
            if key in given and not isinstance(given[key] or {}, Mapping):
                raise SettingError(f"{key}={given[key]!r}: give a table of names and values")
        given["mapping"] = {text(k): v.item() if isinstance(v, np.generic) else v for k, v in mapping.items()}
        given["missing"] = tuple(text(m) for m in _names(given.get("missing")))
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
        named = {}
        for part in SINGLE_PARTS:
            if getattr(self, part):
                named[getattr(self, part)] = part
        named.update(dict.fromkeys(self.attribute, "attribute"))
        named.update(dict.fromkeys(self.box, "box"))
        named.update(dict.fromkeys(self.twin_attribute.values(), "twin_attribute"))
        return named

    def text_columns(self) -> dict[str, str | None]:
        """The parts whose values are text, each with its column; None where it has none."""
        return {part: getattr(self, part) or None for part in TEXT_PARTS}


@dataclass(frozen=True, eq=False)
class Table:
    """A whole manifest as arrays, one for every part that a column plays; made once and shared by all views.

    Attributes
    ----------
    frame : the manifest's own columns
    id : (n,) the ids; without a column of ids the image references where they are unique, else the numbers of the rows
    label : (n,) codes into the schema's classes, -1 where the label is missing
    image, split, subject, case, site, mask, transform, twin : (n,) text, '' where missing; None where no column plays the part
    weight : (n,) floats, or None
    digests : image reference → hash of its content, filled when a fingerprint is asked for
    """

    frame: pd.DataFrame
    schema: Schema
    id: np.ndarray
    label: np.ndarray
    attributes: dict[str, Attribute]
    image: np.ndarray | None
    split: np.ndarray | None
    subject: np.ndarray | None
    case: np.ndarray | None
    site: np.ndarray | None
    mask: np.ndarray | None
    transform: np.ndarray | None
    twin: np.ndarray | None
    weight: np.ndarray | None
    digests: dict[str, str]

    @classmethod
    def of(cls, frame: pd.DataFrame, schema: Schema, digests: dict[str, str] | None = None) -> Table:
        """The columns of a frame in the parts that a resolved schema gives them, whatever is wrong with them."""
        texts = {}
        for part, column in schema.text_columns().items():
            texts[part] = None if column is None else _texts(frame[column])
        return cls(
            frame=frame,
            schema=schema,
            id=_ids(texts.pop("id"), texts["image"], len(frame)),
            label=_label_codes(frame, schema),
            attributes={name: attribute_column(frame, schema, name) for name in schema.attribute},
            weight=_numbers(frame[schema.weight]) if schema.weight else None,
            digests={} if digests is None else digests,
            **texts,
        )

    @cached_property
    def boxes(self) -> list[np.ndarray]:
        return [parse_boxes(v) for v in box_values(self.frame, self.schema)]


def read_table(frame: pd.DataFrame, schema: Schema, bins: Bins, path: Path) -> Table:
    """The table of a manifest's cells; one that was saved brings its schema resolved, any other is checked and resolved."""
    if schema.resolved:
        return Table.of(frame, schema)
    table = Table.of(frame, resolve(frame, schema, bins))
    refuse(table_problems(table), path)
    return table


def frozen(array: np.ndarray) -> np.ndarray:
    """The array, which nobody can write to from now on."""
    array.setflags(write=False)
    return array


def _texts(series: pd.Series) -> np.ndarray:
    """(n,) the column as text, '' where missing."""
    cells, place = distinct(series)
    return frozen(np.array([text(v) for v in cells.tolist()], dtype=object)[place])


def distinct(series: pd.Series) -> tuple[pd.Series, np.ndarray]:
    """The distinct cells of a column, and where each row's cell (n,) is among them: a million rows have few.

    Where cells are of several kinds they stay as they are, because 1, 1.0 and True count as equal and are not the same text.
    """
    is_plain = isinstance(series.dtype, pd.StringDtype) or getattr(series.dtype, "kind", "O") in "iufb"
    if not is_plain and pd.api.types.infer_dtype(series, skipna=True) != "string":
        return series, np.arange(len(series))
    place, cells = pd.factorize(series, use_na_sentinel=False)
    return pd.Series(cells, dtype=series.dtype), place


def _ids(ids: np.ndarray | None, references: np.ndarray | None, n: int) -> np.ndarray:
    if ids is not None:
        return ids
    if references is not None and not pd.Series(references).duplicated().any():
        return references
    return frozen(np.array([str(i) for i in range(n)], dtype=object))


def _label_codes(frame: pd.DataFrame, schema: Schema) -> np.ndarray:
    if schema.label is None:
        return frozen(np.full(len(frame), -1))
    cells, place = distinct(frame[schema.label])
    return frozen(_codes(label_values(cells.to_frame(schema.label), schema), schema.classes)[place])


def _numbers(series: pd.Series) -> np.ndarray:
    """(n,) the column as numbers, NaN where it has none."""
    return frozen(pd.to_numeric(series, errors="coerce").to_numpy(dtype=np.float64, copy=True))


def attribute_column(frame: pd.DataFrame, schema: Schema, name: str) -> Attribute:
    """One attribute of all rows of a frame, in the codes of a resolved schema."""
    kind, levels = schema.kinds[name], schema.levels[name]
    cells, place = distinct(frame[name])
    if name in schema.bins:
        return Attribute(name, kind, frozen(_bin(tidy(cells, schema.missing), schema.bins[name])[place]), levels)
    values = _settled(cells, schema.missing, levels)
    if kind == "continuous":
        numbers = np.array([np.nan if v is None else float(v) for v in values], dtype=np.float64)
        return Attribute(name, kind, frozen(numbers[place]))
    return Attribute(name, kind, frozen(_codes(values, levels)[place]), levels)


def table_problems(table: Table) -> Iterator[Problem]:
    """Everything that can be wrong with the table itself, images unread."""
    frame, schema = table.frame, table.schema
    if not len(frame):
        yield Problem("the table has no rows", kind="empty-table")
        return
    yield from _id_problems(table)
    if table.image is not None:
        for row in np.flatnonzero(table.image == ""):
            yield Problem("no image is named", int(row), str(schema.image), kind="no-image")
    yield from _box_problems(frame, schema)
    if table.weight is not None:
        for row in np.flatnonzero(~((table.weight >= 0) & np.isfinite(table.weight))):
            cell = text(frame[schema.weight].iloc[row])
            yield Problem(f"weight {cell!r} is not a number of at least 0", int(row), str(schema.weight), kind="bad-weight")
    if table.split is not None:
        yield from _divided(table.subject, table.split, "subject", "split", schema.subject)
        yield from _divided(table.case, table.split, "case", "split", schema.case)
    if schema.label:
        label = np.array([*map(text, schema.classes), ""], dtype=object)[table.label]
        yield from _divided(table.case, label, "case", "label", schema.case)


def parse_boxes(value: Any) -> np.ndarray:
    """(k, 4) boxes from `x0 y0 x1 y1; …`, JSON, a sequence of numbers or of boxes, or nothing."""
    if isinstance(value, str) and value.strip().startswith("["):
        value = json.loads(value)
    if isinstance(value, str):
        value = [part.replace(",", " ").split() for part in value.split(";") if part.strip()]
    elif not isinstance(value, list | tuple | np.ndarray):
        if text(value) == "":
            value = []
        else:
            value = [value]
    if not len(value):
        return np.zeros((0, 4))
    holds_boxes = any(isinstance(part, list | tuple | np.ndarray) for part in value)
    if holds_boxes:
        boxes = list(value)
    else:
        boxes = [value]
    try:
        numbers = [list(map(float, box)) for box in boxes]
    except TypeError as error:
        raise ValueError(f"{value!r} holds something that is not a number") from error
    if any(len(box) != 4 for box in numbers) or not np.isfinite(numbers).all():
        raise ValueError(f"{value!r} is not groups of four numbers")
    return np.array(numbers, dtype=np.float64).reshape(-1, 4)


def _id_problems(table: Table) -> Iterator[Problem]:
    column = table.schema.id or ""
    if column:
        for row in np.flatnonzero(table.id == "").tolist():
            yield Problem("the id is missing", row, column, kind="no-id")
    if pd.Index(table.id).is_unique:
        return
    first: dict[str, int] = {}
    for row, name in enumerate(list(table.id)):
        if name and first.setdefault(name, row) != row:
            yield Problem(f"id {name!r} is also the id of row {first[name] + 1}", row, column, kind="duplicate-id")


def _divided(unit: np.ndarray | None, part: np.ndarray, unit_name: str, part_name: str, column: str | None) -> Iterator[Problem]:
    """Rows whose unit (a subject, a case) was first seen in another part (a split, a label); '' is not known and passes."""
    if unit is None or column is None or not _are_divided(unit, part):
        return
    home: dict[str, tuple[str, int]] = {}
    for row, (name, here) in enumerate(zip(unit, part, strict=True)):
        if name and here and home.setdefault(name, (here, row))[0] != here:
            before, first = home[name]
            message = f"{unit_name} {name!r} has {part_name} {here!r} here and {before!r} in row {first + 1}"
            yield Problem(message, row, column, kind=f"{unit_name}-in-two-{part_name}s")


def _are_divided(unit: np.ndarray, part: np.ndarray) -> bool:
    """Whether any unit has rows in two parts."""
    known = np.flatnonzero((unit != "") & (part != ""))
    units, parts = pd.factorize(unit[known])[0], pd.factorize(part[known])[0]
    first = np.unique(units, return_index=True)[1]
    return bool((parts != parts[first][units]).any())


def _names(columns: str | int | float | Iterable[Any] | None) -> tuple[Any, ...]:
    """One name or value, or several, as a tuple."""
    if isinstance(columns, str | int | float):
        return (columns,)
    return tuple(columns or ())


def text(value: Any) -> str:
    """A cell as text: '' where it is missing, a whole float like the integer."""
    if isinstance(value, str):
        return value.strip()
    if value is None or value is pd.NA or value is pd.NaT or (isinstance(value, float | np.floating) and np.isnan(value)):
        return ""
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)


def tidy(series: pd.Series, missing: Sequence[str]) -> list[Value | None]:
    """Plain values: None where missing; numbers where every known value is one; whole floats as integers."""
    if isinstance(series.dtype, np.dtype) and series.dtype.kind in "iu" and not missing:
        return series.tolist()
    if isinstance(series.dtype, np.dtype) and series.dtype.kind == "f" and not missing and not np.isinf(series).any():
        numbers = series.to_numpy(dtype=np.float64)
        is_known = ~np.isnan(numbers)
        plain: list[Value] = numbers.tolist()
        if (numbers[is_known] == np.round(numbers[is_known])).all():
            plain = np.where(is_known, numbers, 0).tolist()
            plain = [int(number) for number in plain]
        return [v if known else None for v, known in zip(plain, is_known.tolist(), strict=True)]
    unknown = {"", *missing}
    values = [None if text(v) in unknown else v for v in series.tolist()]
    known = [v for v in values if v is not None]
    if all(isinstance(v, bool | np.bool_) for v in known):
        return [None if v is None else int(v) for v in values]
    numbers = pd.to_numeric(pd.Series(known, dtype=object), errors="coerce").to_numpy(dtype=float)
    if not np.isfinite(numbers).all():  # "inf" is no measurement
        return [None if v is None else text(v) for v in values]
    are_whole = bool((numbers == np.round(numbers)).all())
    numeric = iter(_whole(known, numbers) if are_whole else numbers.tolist())
    return [None if v is None else next(numeric) for v in values]


def _whole(known: Sequence[Any], numbers: np.ndarray) -> list[int]:
    """Whole numbers of cells; large ones from what the cell says, because floats do not tell them apart."""
    if not len(numbers) or np.abs(numbers).max() < LARGEST_EXACT:
        return [int(number) for number in numbers]
    return [int(cell) if re.fullmatch(r"[+-]?\d+", text(cell)) else int(number) for cell, number in zip(known, numbers)]


def _settled(series: pd.Series, missing: Sequence[str], levels: Sequence[Value]) -> list[Value | None]:
    """Values in the type of their levels: where those are text, digits that happen to be alone in a view stay text."""
    if levels and isinstance(levels[0], str):
        unknown = {"", *missing}
        return [None if cell in unknown else cell for cell in map(text, series.tolist())]
    return tidy(series, missing)


def _codes(values: Sequence[Value | None], levels: Sequence[Value]) -> np.ndarray:
    lookup = {level: code for code, level in enumerate(levels)}
    return frozen(np.array([-1 if v is None else lookup.get(v, -1) for v in values], dtype=np.int64))


def label_values(frame: pd.DataFrame, schema: Schema) -> list[Value | None]:
    """The label of each row, mapped; None where it is not known."""
    values = _settled(frame[schema.label], schema.missing, schema.classes)
    if not schema.mapping:
        return values
    if schema.resolved:
        mapping = schema.mapping
    else:
        mapping = _spelled_out(frame, schema)
    cells = map(text, frame[schema.label].tolist())
    mapped = []
    for cell, v in zip(cells, values, strict=True):
        mapped.append(None if v is None else mapping.get(cell, v))
    return _settled(pd.Series(mapped, dtype=object), schema.missing, schema.classes)


def _spelled_out(frame: pd.DataFrame, schema: Schema) -> dict[str, Any]:
    """The mapping for every cell of the label's column, so that the rows of a view map as those of the whole table do.

    A key may be written as the cell is ("True", "01") or as it is understood (1).
    """
    raw, mapping = frame[schema.label], schema.mapping
    understood = list(zip(map(text, raw.tolist()), tidy(raw, schema.missing), strict=True))
    known = {cell for cell, v in understood if v is not None} | {text(v) for _, v in understood if v is not None}
    for key in mapping:
        if key not in known:
            values = ", ".join(sorted(known)[:10]) + (", …" if len(known) > 10 else "")
            raise DataError(f"mapping= names {key!r}, which is no known value of {schema.label!r} ({values}): leave it out")
    return mapping | {cell: mapping.get(cell, mapping.get(text(v), v)) for cell, v in understood if v is not None}


def _bin(values: Sequence[Value | None], edges: Sequence[float]) -> np.ndarray:
    return frozen(np.array([-1 if v is None else int(np.searchsorted(edges, float(v), side="right")) for v in values]))


def box_values(frame: pd.DataFrame, schema: Schema) -> list[Any]:
    """What the table says of each row's boxes, unread; four columns give one box."""
    if not schema.box:
        return []
    if len(schema.box) == 1:
        return frame[schema.box[0]].tolist()
    corners = frame[list(schema.box)].to_numpy(dtype=object)
    return [_one_box(row) for row in corners]


def _one_box(corners: np.ndarray) -> list[Any] | None:
    """Four cells as a box: None where all are empty, NaN where one is."""
    is_empty = [text(corner) == "" for corner in corners]
    if all(is_empty):
        return None
    return [math.nan if empty else corner for corner, empty in zip(corners, is_empty, strict=True)]


def _box_problems(frame: pd.DataFrame, schema: Schema) -> Iterator[Problem]:
    column = ""
    if schema.box:
        column = schema.box[0]
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
    """Raise the first few errors among the problems, where there are any."""
    errors = [p for p in problems if p.level == "error"]
    if errors:
        shown = "; ".join(p.message if p.row is None else f"row {p.row + 1}: {p.message}" for p in errors[:5])
        more = ""
        if len(errors) > 5:
            more = f"; and {len(errors) - 5} more"
        raise DataError(f"{path}: {shown}{more}. `rightreasons check` lists every row")


def _twin_attribute(twin_attribute: str | Mapping[str, str] | None, schema: Schema) -> dict[str, str]:
    if twin_attribute is None:
        return {}
    if isinstance(twin_attribute, str):
        if len(schema.attribute) != 1:
            raise SettingError(
                f"twin_attribute={twin_attribute!r} needs exactly one attribute; with {schema.attribute} give a mapping"
            )
        return {schema.attribute[0]: twin_attribute}
    for name in twin_attribute:
        if name not in schema.attribute:
            raise SettingError(f"twin_attribute names {name!r}, which is not an attribute; {suggest(name, schema.attribute)}")
    return dict(twin_attribute)


def resolve(frame: pd.DataFrame, named: Schema, bins: Bins) -> Schema:
    """The schema with columns checked, classes and levels fixed, kinds decided and bins turned into edges."""
    _refuse_unknown(frame, named, bins)
    kinds: dict[str, Kind] = {}
    levels: dict[str, tuple[Value, ...]] = {}
    edges: dict[str, tuple[float, ...]] = {}
    for name in named.attribute:
        values = _attribute_values(frame, named, name, every_row=name in bins)
        if name in bins:
            edges[name] = _edges(values, bins[name], name)
            kinds[name], levels[name] = "categorical", _bin_names(edges[name])
        else:
            kinds[name], levels[name] = _kind_and_levels(values, named.kinds.get(name), name)
    classes: tuple[Value, ...] = ()
    mapping = named.mapping
    if named.label is not None:
        labels = distinct(frame[named.label])[0].to_frame(named.label)
        classes = _classes(labels, named)
        if mapping:
            mapping = _spelled_out(labels, named)
    return replace(named, mapping=mapping, classes=classes, levels=levels, kinds=kinds, bins=edges, resolved=True)


def _refuse_unknown(frame: pd.DataFrame, schema: Schema, bins: Bins) -> None:
    """Columns that the table does not have, and settings of what is not an attribute."""
    known = [str(c) for c in frame.columns]
    for column, part in schema.columns().items():
        if column not in known:
            raise DataError(no_column(frame, column, part))
    for _, message in two_parts(schema):
        raise DataError(message)
    if schema.box and len(schema.box) not in (1, 4):
        raise DataError(f"box= takes one column or four (x0, y0, x1, y1), not {len(schema.box)}: {', '.join(schema.box)}")
    for option, names in (("bins", bins), ("kinds", schema.kinds)):
        for name in names:
            if name not in schema.attribute:
                raise SettingError(f"{option}= names {name!r}, which is not an attribute; {suggest(name, schema.attribute)}")


def two_parts(schema: Schema) -> Iterator[tuple[str, str]]:
    """Columns that play two parts of which an audit would compare one with the other, and what to say of them."""
    if schema.label is not None and schema.label in schema.attribute:
        yield schema.label, f"{schema.label!r} is both label= and attribute=: an attribute is something else than the label"
    if schema.twin is not None and schema.twin == schema.image:
        yield schema.twin, f"{schema.twin!r} is both image= and twin=: a twin is another image, with another cue"


def no_column(frame: pd.DataFrame, column: str, part: str) -> str:
    """What is wrong where a table lacks the column for a part, and which one may be meant."""
    files = _with_file_names(frame) if part == "image" else []
    hint = f"{files[0]!r} holds file names: give image={files[0]!r}; " if files else ""
    return f"the table has no column {column!r} ({part}=); {hint}{suggest(column, map(str, frame.columns))}"


def _with_file_names(frame: pd.DataFrame) -> list[str]:
    """Columns whose first cell is the name of an image."""
    if not len(frame):
        return []
    return [str(name) for name in frame.columns if text(frame[name].iloc[0]).lower().endswith(IMAGE_SUFFIXES)]


def _attribute_values(frame: pd.DataFrame, schema: Schema, name: str, every_row: bool) -> list[Value | None]:
    """The values of an attribute and, where they have a column, those of the twins: both count in the same levels.

    Of every row, or each value at least once.
    """
    twin = schema.twin_attribute.get(name)
    if twin:
        series = pd.concat([frame[name], frame[twin]], ignore_index=True)
    else:
        series = frame[name]
    return tidy(series if every_row else distinct(series)[0], schema.missing)


def _in_order(values: Iterable[Value | None]) -> list[Value]:
    """The distinct values, numbers before text."""
    return sorted({v for v in values if v is not None}, key=lambda v: (isinstance(v, str), v))


def _kind_and_levels(values: Sequence[Value | None], kind: Kind | None, name: str) -> tuple[Kind, tuple[Value, ...]]:
    distinct = _in_order(values)
    is_numeric = bool(distinct) and not isinstance(distinct[0], str)
    if kind is None:
        if is_numeric and len(distinct) > CONTINUOUS_ABOVE:
            kind = "continuous"
        else:
            kind = "categorical"
    if kind == "continuous" and not is_numeric:
        raise DataError(f"attribute {name!r} cannot be continuous: its values are {distinct[:5]}")
    return kind, () if kind == "continuous" else tuple(distinct)


def _classes(frame: pd.DataFrame, schema: Schema) -> tuple[Value, ...]:
    values = _in_order(label_values(frame, schema))
    fractional = [v for v in values if isinstance(v, float)]
    if fractional:
        raise DataError(
            f"label {schema.label!r} has fractional values ({', '.join(map(str, fractional[:3]))}): a label must be a class; "
            "bin it in the manifest or name another column"
        )
    return tuple(values)


def _edges(values: Sequence[Value | None], bins: int | Sequence[float], name: str) -> tuple[float, ...]:
    distinct = _in_order(values)
    if not distinct or isinstance(distinct[0], str):
        raise DataError(f"bins= for {name!r}, whose values are not numbers: {distinct[:5]}")
    if isinstance(bins, int | np.integer):
        known = np.array([float(v) for v in values if v is not None])
        if bins > 1:
            cuts = np.unique(np.quantile(known, np.arange(1, bins) / bins))
        else:
            cuts = np.zeros(0)
        cuts = cuts[cuts > known.min()]  # nothing lies below the minimum
        if not len(cuts):
            raise SettingError(
                f"bins={bins} puts every value of {name!r} into one bin: give at least 2, or edges between its values"
            )
        return tuple(cuts.tolist())
    if isinstance(bins, str):
        raise SettingError(f"bins for {name!r} are the text {bins!r}: give a number of bins, or a list of edges")
    edges = tuple(float(b) for b in bins)
    if list(edges) != sorted(set(edges)) or not edges:
        raise SettingError(f"bins for {name!r} must be rising edges, not {list(bins)}")
    return edges


def _bin_names(edges: Sequence[float]) -> tuple[str, ...]:
    shown = [f"{edge:g}" for edge in edges]
    if len(set(shown)) < len(edges):  # six digits do not tell them apart
        shown = [repr(float(edge)) for edge in edges]
    return (f"below {shown[0]}", *(f"{low} to {high}" for low, high in pairwise(shown)), f"{shown[-1]} and above")
