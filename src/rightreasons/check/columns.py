"""The table's columns: what cannot be settled is listed and left aside, and the values of the rest are looked at."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rightreasons.audits.flips import FEWEST_TWINS
from rightreasons.check import words
from rightreasons.data.cohort import Cohort
from rightreasons.data.schema import (
    CONTINUOUS_ABOVE,
    SINGLE_PARTS,
    Attribute,
    Problem,
    Schema,
    Table,
    label_values,
    no_column,
    resolve,
    text,
    tidy,
    two_parts,
)
from rightreasons.data.sources import read_frame
from rightreasons.errors import DataError, SettingError
from rightreasons.families import suggest

SPLITS = ("train", "val", "audit", "test")
MANY_LEVELS = 20


def open_table(source: Cohort | str | os.PathLike[str], keywords: Mapping[str, Any]) -> tuple[Table, list[Problem]]:
    """The table of a cohort or a manifest with as much of its schema as can be settled, and what cannot."""
    if isinstance(source, Cohort):
        if keywords:
            raise SettingError(f"a cohort knows its columns: {', '.join(keywords)} go with a path")
        return Table.of(*source.with_ids()), []
    given = dict(keywords)
    given.pop("name", None)
    bins = given.pop("bins", None) or {}
    frame, schema = read_frame(Path(source), Schema.of(**given))
    problems: list[Problem] = []
    if not schema.resolved:
        schema = _settled(frame, schema, bins, problems)
    return Table.of(frame, schema), problems


def column_problems(table: Table, fractional: set[int | None]) -> Iterator[Problem]:
    """What is wrong with the values of splits, labels, attributes and twins; `fractional` rows are listed already."""
    yield from _split_problems(table)
    yield from _label_problems(table, fractional)
    for name in table.schema.attribute:
        yield from _attribute_problems(table, table.attributes[name])
    yield from _twin_problems(table)


def rows_by_split(table: Table) -> dict[str, np.ndarray]:
    """The rows of every split that has a name."""
    if table.split is None:
        return {}
    return {name: np.array(rows) for name, rows in _rows_by_value(table.split).items() if name}


def _rows_by_value(values: np.ndarray) -> dict[str, list[int]]:
    rows: dict[str, list[int]] = defaultdict(list)
    for row, value in enumerate(values):
        rows[value].append(row)
    return dict(rows)


# ---- the schema, part by part --------------------------------------------------------------------------------------------


def _settled(frame: pd.DataFrame, given: Schema, bins: Mapping[str, Any], problems: list[Problem]) -> Schema:
    """The schema resolved part by part; a part that cannot be is left out and listed."""
    columns = [str(c) for c in frame.columns]
    for option, names in (("bins", bins), ("kinds", given.kinds)):
        for name in set(names) - set(given.attribute):
            hint = suggest(name, given.attribute)
            problems.append(Problem(f"{option}= names {name!r}, which is not an attribute; {hint}", kind="bad-setting"))
    for column, part in given.columns().items():
        if column not in columns:
            message = no_column(frame, column, part)
            problems.append(Problem(message, column=column, kind="no-column"))
    given = _with_columns(given, {*columns})
    for column, message in two_parts(given):
        problems.append(Problem(message, column=column, kind="two-parts"))
        given = replace(given, attribute=tuple(name for name in given.attribute if name != given.label))
        given = replace(given, twin=None if given.twin == given.image else given.twin)
    if len(given.box) not in (0, 1, 4):
        problems.append(Problem(f"box= takes one column or four, not {', '.join(given.box)}", kind="bad-setting"))
        given = replace(given, box=())
    if given.label:
        given = _without_fractions(frame, given, problems)
    for name in given.attribute:
        alone = _with_columns(given, {name, given.twin_attribute.get(name)})
        try:
            resolve(frame, replace(alone, label=None), {key: value for key, value in bins.items() if key == name})
        except (DataError, SettingError) as error:
            problems.append(Problem(str(error), column=name, kind="bad-attribute"))
            given = _with_columns(given, {*columns} - {name})
    return resolve(frame, given, {name: value for name, value in bins.items() if name in given.attribute})


def _with_columns(schema: Schema, columns: set[Any]) -> Schema:
    """The schema with only those parts whose columns are among these."""
    absent: dict[str, Any] = {part: None for part in SINGLE_PARTS if getattr(schema, part) not in columns}
    attribute = tuple(name for name in schema.attribute if name in columns)
    of_twins = {name: column for name, column in schema.twin_attribute.items() if name in attribute and column in columns}
    return replace(
        schema,
        **absent,
        attribute=attribute,
        box=schema.box if columns.issuperset(schema.box) else (),
        twin_attribute=of_twins,
        kinds={name: kind for name, kind in schema.kinds.items() if name in attribute},
    )


def _without_fractions(frame: pd.DataFrame, given: Schema, problems: list[Problem]) -> Schema:
    """Fractional labels are listed and then count as missing, so that the others can be checked."""
    values = label_values(frame, given)
    fractional = {row: value for row, value in enumerate(values) if isinstance(value, float) and not value.is_integer()}
    for row, value in fractional.items():
        message = f"label {value:g} is fractional: a label must be a class; bin it or name another column"
        problems.append(Problem(message, row, str(given.label), kind="fractional-label"))
    return replace(given, mapping={**given.mapping, **{text(value): None for value in fractional.values()}})


# ---- the values ----------------------------------------------------------------------------------------------------------


def _split_problems(table: Table) -> Iterator[Problem]:
    if table.subject is not None:
        for row in np.flatnonzero(table.subject == ""):
            message = "the subject is missing: the row counts as a subject of its own"
            yield Problem(message, int(row), str(table.schema.subject), "warning", "subject-missing")
    if table.split is None:
        return
    column = str(table.schema.split)
    for row in np.flatnonzero(table.split == ""):
        yield Problem("in no split: the row is left out", int(row), column, "warning", "no-split")
    for name, rows in _rows_by_value(table.split).items():
        if name and name not in SPLITS:
            message = f"split {name!r} ({words.rows(len(rows))}) has no role in an audit; {suggest(name, SPLITS)}"
            yield Problem(message, rows[0], column, "warning", "unknown-split")
    if "test" not in table.split:
        yield Problem("no row is in split 'test', which is reported on", None, column, "warning", "no-test-rows")


def _label_problems(table: Table, fractional: set[int | None]) -> Iterator[Problem]:
    column = table.schema.label
    if column is None:
        return
    known = table.label >= 0
    if not known.any():
        yield Problem("no row has a label that is a class", None, column, kind="label-missing")
        return
    for row in np.flatnonzero(~known):
        if row not in fractional:
            message = "the label is missing: the row leaves every audit that needs it"
            yield Problem(message, int(row), column, "warning", "label-missing")
    names = table.schema.classes
    yield from _constant(table, column, "label", _decoded(table.label, names))
    if len(names) > max(MANY_LEVELS, len(table.frame) / 5):
        message = f"the label has {len(names)} values in {words.rows(len(table.frame))}: is it an id or a measurement?"
        yield Problem(message, None, column, "warning", "label-many-values")


def _attribute_problems(table: Table, a: Attribute) -> Iterator[Problem]:
    if not a.present.any():
        yield Problem(f"attribute {a.name!r} has no known value", None, a.name, kind="attribute-missing")
        return
    for row in np.flatnonzero(~a.present):
        message = f"{a.name!r} is missing: the row leaves every audit that needs it"
        yield Problem(message, int(row), a.name, "warning", "attribute-missing")
    if a.kind == "continuous":
        numbers = [value if is_known else None for value, is_known in zip(a.values, a.present, strict=True)]
        yield from _constant(table, a.name, "attribute", numbers)
        message = (
            f"{a.name!r} is continuous: worst-group accuracy, conflict shortcut rate, ART, OSCAR and the group mitigations "
            f"need bins={{{a.name!r}: …}}, the other audits take it as it is"
        )
        yield Problem(message, None, a.name, "info", "attribute-continuous")
    else:
        yield from _constant(table, a.name, "attribute", _decoded(a.values, a.levels))
        if a.name not in table.schema.bins:
            yield from _level_problems(a)


def _decoded(codes: np.ndarray, levels: Sequence[Any]) -> list[Any]:
    return [levels[code] if code >= 0 else None for code in codes]


def _level_problems(a: Attribute) -> Iterator[Problem]:
    """Numbers that one word made into text, and levels so many that hardly any has rows."""
    numbers = pd.to_numeric(pd.Series(a.levels, dtype=object), errors="coerce").notna().to_numpy(dtype=bool)
    if isinstance(a.levels[0], str) and numbers.sum() > CONTINUOUS_ABOVE:
        for row in np.flatnonzero(a.present & ~numbers[a.values]):
            word = a.levels[a.values[row]]
            message = f"{a.name!r} is {word!r} among numbers, which makes all of them categories: missing=[{word!r}] if not known"
            yield Problem(message, int(row), a.name, "warning", "attribute-not-a-number")
    elif len(a.levels) > MANY_LEVELS:
        message = f"{a.name!r} has {len(a.levels)} levels: most groups will be small"
        yield Problem(message, None, a.name, "warning", "attribute-many-levels")


def _constant(table: Table, column: str, part: str, values: Sequence[Any]) -> Iterator[Problem]:
    """An error where a column has one known value, a warning where it has one in a split."""
    distinct = {v for v in values if v is not None}
    if len(distinct) == 1:
        message = f"{part} {column!r} is {text(distinct.pop())!r} in every row: there is nothing to tell apart"
        yield Problem(message, None, column, kind=f"{part}-constant")
        return
    for split, rows in rows_by_split(table).items():
        inside = {values[row] for row in rows} - {None}
        if len(inside) == 1 and len(rows) > 1:
            message = f"{part} {column!r} is {text(inside.pop())!r} in every row of split {split!r}"
            yield Problem(message, None, column, "warning", f"{part}-constant-in-split")


def _twin_problems(table: Table) -> Iterator[Problem]:
    if table.twin is None:
        return
    has_twin = table.twin != ""
    tested = has_twin if table.split is None else has_twin & (table.split == "test")
    if tested.sum() < FEWEST_TWINS:
        where = "" if table.split is None else " in split 'test'"
        message = f"{words.rows(int(tested.sum()))} with a twin{where}: flips is inconclusive below {FEWEST_TWINS}"
        yield Problem(message, None, str(table.schema.twin), "warning", "few-twins")
    for name, column in table.schema.twin_attribute.items():
        both = tidy(pd.concat([table.frame[name], table.frame[column]], ignore_index=True), table.schema.missing)
        for row in np.flatnonzero(has_twin):
            own, twins = both[row], both[row + len(table.frame)]
            if twins is None:
                yield Problem(f"the twin's {name!r} is missing", int(row), column, "warning", "twin-attribute-missing")
            elif own == twins:
                message = f"the twin's {name!r} is {twins!r} as the image's own: the cue does not change"
                yield Problem(message, int(row), column, "warning", "twin-attribute-same")
