"""What is wrong with a manifest, its images and their fit to a model: everything, row by row, in one run.

`Cohort.read` refuses at the first sight of an error; here a defect never hides another: what cannot be settled is listed and
left aside, and the rest is checked.
"""

from __future__ import annotations

import csv
import hashlib
import os
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text
from scipy.optimize import linear_sum_assignment

from rightreasons.data.cohort import Cohort
from rightreasons.data.formats import decode
from rightreasons.data.images import Geometry, digest, in_order, place_boxes, shape
from rightreasons.data.schema import (
    CONTINUOUS_ABOVE,
    ID,
    Attribute,
    Problem,
    Schema,
    Table,
    box_values,
    label_values,
    parse_boxes,
    resolve,
    table_problems,
    text,
    tidy,
)
from rightreasons.data.sources import read_frame
from rightreasons.errors import DataError, ImageError, SettingError
from rightreasons.families import suggest
from rightreasons.progress import track

__all__ = ["Problem", "Report", "check"]

SPLITS = ("train", "val", "audit", "test")
LEVELS = {"error": "bold red", "warning": "yellow", "info": "cyan"}  # in order of weight, with their colours

DECODED_AT_MOST = 20_000  # images; above, headers and a sample
DECODED_SAMPLE = 2_000
FEWEST_TWINS = 30  # flips is inconclusive with fewer
MANY_LEVELS = 20
MOST_SAMPLE_ROWS = 256

# What a (label, attribute) group must have, by split: rows, and what happens below. '' is a table that is still to be split.
NEEDS: dict[str, tuple[tuple[int, str], ...]] = {
    "train": ((1, "balancing and the group mitigations need every group"),),
    "audit": ((20, "ART's gate closes below n_min = 20"),),
    "test": (
        (1, "OSCAR is inconclusive with an empty group"),
        (10, "worst-group accuracy leaves out groups below 10"),
        (30, "ShorT is inconclusive below 30 a subgroup"),
    ),
}
NEEDS[""] = tuple(sorted(NEEDS["test"] + NEEDS["audit"]))
TINY = 10


class Model(Protocol):
    """What is asked of a classifier here."""

    geometry: Geometry
    classes: tuple[Any, ...]

    @property
    def C(self) -> int: ...


@dataclass(frozen=True)
class Report:
    """All that `check` found.

    Attributes
    ----------
    problems : errors first, then warnings and remarks; by kind, then by row
    groups : rows per label, and per (label, level) of every attribute that has levels: `attribute` ('' for the label alone),
        `split` ('' for all rows), `label`, `level`, `n`
    notes : what was not looked at, and why
    """

    name: str
    rows: int
    problems: tuple[Problem, ...] = ()
    groups: tuple[dict[str, Any], ...] = ()
    notes: tuple[str, ...] = ()

    @cached_property
    def counts(self) -> dict[str, int]:
        """Problems by kind."""
        return dict(Counter(p.kind for p in self.problems))

    def level(self, level: str) -> tuple[Problem, ...]:
        """The problems of one level: error, warning or info."""
        return tuple(p for p in self.problems if p.level == level)

    @property
    def ok(self) -> bool:
        """No errors; there may be warnings."""
        return not self.level("error")

    @property
    def exit_status(self) -> int:
        return 0 if self.ok else 1

    def to_json(self) -> dict[str, Any]:
        """Plain values; rows count from 0, lines of the file from 1."""
        return {
            "name": self.name,
            "rows": self.rows,
            "ok": self.ok,
            "exit_status": self.exit_status,
            **{f"{level}s": len(self.level(level)) for level in ("error", "warning")},
            "counts": dict(self.counts),
            "problems": [asdict(p) for p in self.problems],
            "groups": [dict(g) for g in self.groups],
            "notes": list(self.notes),
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Report:
        problems = tuple(Problem(**p) for p in found["problems"])
        return cls(found["name"], found["rows"], problems, tuple(map(dict, found["groups"])), tuple(found["notes"]))

    def print(self, console: Console | None = None, *, all: bool = False, limit: int = 5) -> None:
        """Problems grouped by kind, `limit` rows of each unless `all`; group sizes; the sum in the last line."""
        console = console or Console()
        for (level, kind), group in groupby(self.problems, key=lambda p: (p.level, p.kind)):
            found = list(group)
            title = Text.assemble((level, LEVELS[level]), " ", (kind.replace("-", " "), "bold"), f" ({len(found)})")
            console.print(title)
            console.print(_listing(found if all else found[:limit]))
            if not all and len(found) > limit:
                console.print(Text(f"  and {len(found) - limit} more"))
        for attribute in dict.fromkeys(g["attribute"] for g in self.groups):
            console.print(Text(_shown(f"rows per label and {attribute}" if attribute else "rows per label"), style="bold"))
            console.print(_crosstab([g for g in self.groups if g["attribute"] == attribute and not g["split"]]))
        for note in self.notes:
            console.print(Text(_shown(note)))
        console.print(Text(self._sum(), style="green" if self.ok else "bold red"))

    def _sum(self) -> str:
        errors, warnings = (f"{len(self.level(w))} {w}{'' if len(self.level(w)) == 1 else 's'}" for w in ("error", "warning"))
        where = f"in {self.rows} row{'' if self.rows == 1 else 's'}"
        return f"{errors}, {warnings} {where}" + ("" if self.ok else ": fix the errors first")


def check(
    source: Cohort | str | os.PathLike[str],
    *,
    classifier: Model | None = None,
    sample: tuple[Sequence[int] | np.ndarray, np.ndarray] | None = None,
    images: bool | Literal["header", "full"] = True,
    workers: int | None = None,
    rng: np.random.Generator | None = None,
    **schema: Any,
) -> Report:
    """Report everything that is wrong with a manifest, its images and their fit to a model.

    Parameters
    ----------
    source : a manifest, an image folder, a saved dataset, or a cohort
    classifier : images are held against its `geometry`, labels against its `classes`
    sample : rows (m,) of the table, from 0, with the classifier's logits (m, C) on them: does another assignment of label values
        to outputs score higher?
    images : True decodes up to 20,000 images, and above reads all headers and decodes a sample; "header" decodes none, "full"
        all, False does not touch them
    workers : threads; one per core by default
    rng : draws what chance would score with `sample`; a fixed one by default
    schema : keywords as for `Cohort.read`
    """
    if images not in (True, False, "header", "full"):
        raise SettingError(f"images={images!r}: give True, False, 'header' or 'full'")
    if sample is not None and classifier is None:
        raise SettingError("sample= needs classifier=, whose outputs the logits are")
    name = source.name if isinstance(source, Cohort) else Path(source).name
    try:
        frame, settled, problems = _opened(source, schema)
    except DataError as error:
        return Report(name, 0, (Problem(str(error), kind="unreadable-table"),))
    table = Table(frame, settled)
    problems += table_problems(frame, settled)
    if not len(frame):
        return Report(name, 0, tuple(problems))
    fractional = {p.row for p in problems if p.kind == "fractional-label"}
    problems += _split_problems(table)
    problems += _label_problems(table, fractional)
    problems += _attribute_problems(table)
    problems += _twin_problems(table)
    groups = list(_group_sizes(table))
    problems += _group_problems(table, groups)
    notes: list[str] = []
    if images and settled.image:
        geometry = None if classifier is None else classifier.geometry
        problems += _Files(table, images, workers, notes).problems(geometry)
    if classifier is not None:
        problems += _class_problems(table, classifier)
        if sample is not None:
            problems += _order_problems(table, classifier, sample, np.random.default_rng(0) if rng is None else rng)
    path = None if isinstance(source, Cohort) else Path(source)
    return Report(name, len(frame), _in_place(problems, table, path), tuple(groups), tuple(notes))


# ---- the table ---------------------------------------------------------------------------------------------------------------


def _opened(source: Cohort | str | os.PathLike[str], keywords: Mapping[str, Any]) -> tuple[pd.DataFrame, Schema, list[Problem]]:
    if isinstance(source, Cohort):
        if keywords:
            raise SettingError(f"a cohort knows its columns: {', '.join(keywords)} go with a path")
        frame = source._table.frame.iloc[source._rows].reset_index(drop=True)
        if source.schema.id:
            return frame, source.schema, []
        return frame.assign(**{ID: source.id}), replace(source.schema, id=ID), []
    given = dict(keywords)
    given.pop("name", None)
    bins = given.pop("bins", None) or {}
    frame, found = read_frame(Path(source), Schema.of(**given))
    if found.resolved:
        return frame, found, []
    problems: list[Problem] = []
    settled = _settled(frame, found, bins, problems)
    return frame, settled, problems


def _settled(frame: pd.DataFrame, given: Schema, bins: Mapping[str, Any], problems: list[Problem]) -> Schema:
    """The schema resolved part by part; a part that cannot be is left out and listed."""
    columns = [str(c) for c in frame.columns]
    for option, names in (("bins", bins), ("kinds", given.kinds)):
        for name in set(names) - set(given.attribute):
            hint = suggest(name, given.attribute)
            problems.append(Problem(f"{option}= names {name!r}, which is not an attribute; {hint}", kind="bad-setting"))
    for column, part in given.columns().items():
        if column not in columns:
            message = f"the table has no column {column!r} ({part}=); {suggest(column, columns)}"
            problems.append(Problem(message, column=column, kind="no-column"))
    given = _kept(given, {*columns})
    if len(given.box) not in (0, 1, 4):
        problems.append(Problem(f"box= takes one column or four, not {', '.join(given.box)}", kind="bad-setting"))
        given = replace(given, box=())
    if given.label:
        given = _whole_labels(frame, given, problems)
    for name in given.attribute:
        alone = _kept(given, {name, given.twin_attribute.get(name)})
        try:
            resolve(frame, replace(alone, label=None), {key: value for key, value in bins.items() if key == name})
        except (DataError, SettingError) as error:
            problems.append(Problem(str(error), column=name, kind="bad-attribute"))
            given = _kept(given, {*columns} - {name})
    return resolve(frame, given, {name: value for name, value in bins.items() if name in given.attribute})


def _kept(schema: Schema, columns: set[Any]) -> Schema:
    """The schema with only those parts whose columns are among these."""
    single = ("image", "label", "id", "split", "subject", "case", "site", "weight", "mask", "transform", "twin")
    parts: dict[str, Any] = {part: None for part in single if getattr(schema, part) not in columns}
    attribute = tuple(name for name in schema.attribute if name in columns)
    return replace(
        schema,
        **parts,
        attribute=attribute,
        box=schema.box if columns.issuperset(schema.box) else (),
        twin_attribute={
            name: column for name, column in schema.twin_attribute.items() if name in attribute and column in columns
        },
        kinds={name: kind for name, kind in schema.kinds.items() if name in attribute},
    )


def _whole_labels(frame: pd.DataFrame, given: Schema, problems: list[Problem]) -> Schema:
    """Fractional labels are listed and then count as missing, so that the others can be checked."""
    values = label_values(frame, given)
    fractional = {row: value for row, value in enumerate(values) if isinstance(value, float) and not value.is_integer()}
    for row, value in fractional.items():
        message = f"label {value:g} is fractional: a label must be a class; bin it or name another column"
        problems.append(Problem(message, row, str(given.label), kind="fractional-label"))
    return replace(given, mapping={**given.mapping, **{text(value): None for value in fractional.values()}})


def _split_problems(table: Table) -> Iterator[Problem]:
    schema = table.schema
    if schema.subject:
        for row in np.flatnonzero(table.strings(schema.subject) == ""):
            message = "the subject is missing: the row counts as a subject of its own"
            yield Problem(message, int(row), schema.subject, "warning", "subject-missing")
    if not schema.split:
        return
    splits = table.strings(schema.split)
    for row in np.flatnonzero(splits == ""):
        yield Problem("in no split: the row is left out", int(row), schema.split, "warning", "no-split")
    for name, rows in _rows_by_value(splits).items():
        if name and name not in SPLITS:
            message = f"split {name!r} ({_rows(len(rows))}) has no role in an audit; {suggest(name, SPLITS)}"
            yield Problem(message, rows[0], schema.split, "warning", "unknown-split")
    if "test" not in splits:
        yield Problem("no row is in split 'test', which is reported on", None, schema.split, "warning", "no-test-rows")


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
    yield from _constant(table, column, "label", [names[c] if c >= 0 else None for c in table.label])
    if len(names) > max(MANY_LEVELS, len(table.frame) / 5):
        message = f"the label has {len(names)} values in {_rows(len(table.frame))}: is it an id or a measurement?"
        yield Problem(message, None, column, "warning", "label-many-values")


def _attribute_problems(table: Table) -> Iterator[Problem]:
    for name in table.schema.attribute:
        a = table.attributes[name]
        if not a.present.any():
            yield Problem(f"attribute {name!r} has no known value", None, name, kind="attribute-missing")
            continue
        for row in np.flatnonzero(~a.present):
            message = f"{name!r} is missing: the row leaves every audit that needs it"
            yield Problem(message, int(row), name, "warning", "attribute-missing")
        values = a.values if a.kind == "continuous" else [a.levels[c] if c >= 0 else None for c in a.values]
        yield from _constant(table, name, "attribute", [v if p else None for v, p in zip(values, a.present, strict=True)])
        if a.kind == "continuous":
            message = (
                f"{name!r} is continuous: worst-group accuracy, conflict shortcut rate, ART, OSCAR and the group mitigations "
                f"need bins={{{name!r}: …}}, the other audits take it as it is"
            )
            yield Problem(message, None, name, "info", "attribute-continuous")
        elif name not in table.schema.bins:
            yield from _level_problems(table, a)


def _level_problems(table: Table, a: Attribute) -> Iterator[Problem]:
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
    found = {v for v in values if v is not None}
    if len(found) == 1:
        message = f"{part} {column!r} is {text(found.pop())!r} in every row: there is nothing to tell apart"
        yield Problem(message, None, column, kind=f"{part}-constant")
        return
    for split, rows in _by_split(table).items():
        inside = {values[row] for row in rows} - {None}
        if len(inside) == 1 and len(rows) > 1:
            message = f"{part} {column!r} is {text(inside.pop())!r} in every row of split {split!r}"
            yield Problem(message, None, column, "warning", f"{part}-constant-in-split")


def _twin_problems(table: Table) -> Iterator[Problem]:
    schema = table.schema
    if not schema.twin:
        return
    has_twin = table.strings(schema.twin) != ""
    rows = np.flatnonzero(has_twin & (table.strings(schema.split) == "test")) if schema.split else np.flatnonzero(has_twin)
    if len(rows) < FEWEST_TWINS:
        where = " in split 'test'" if schema.split else ""
        message = f"{_rows(len(rows))} with a twin{where}: flips is inconclusive below {FEWEST_TWINS}"
        yield Problem(message, None, schema.twin, "warning", "few-twins")
    for name, column in schema.twin_attribute.items():
        both = tidy(pd.concat([table.frame[name], table.frame[column]], ignore_index=True), schema.missing)
        for row in np.flatnonzero(has_twin):
            own, other = both[row], both[row + len(table.frame)]
            if other is None:
                yield Problem(f"the twin's {name!r} is missing", int(row), column, "warning", "twin-attribute-missing")
            elif own == other:
                message = f"the twin's {name!r} is {other!r} as the image's own: the cue does not change"
                yield Problem(message, int(row), column, "warning", "twin-attribute-same")


# ---- groups ------------------------------------------------------------------------------------------------------------------


def _group_sizes(table: Table) -> Iterator[dict[str, Any]]:
    if table.schema.label is None:
        return
    classes = table.schema.classes
    scopes = {"": np.arange(len(table.frame)), **_by_split(table)}
    levels: dict[str, Attribute] = {name: a for name, a in table.attributes.items() if a.kind == "categorical"}
    for split, rows in scopes.items():
        sizes = np.bincount(table.label[rows] + 1, minlength=len(classes) + 1)[1:]
        for label, n in zip(classes, sizes, strict=True):
            yield {"attribute": "", "split": split, "label": label, "level": "", "n": int(n)}
    for name, a in levels.items():
        for split, rows in scopes.items():
            known = rows[(table.label[rows] >= 0) & (a.values[rows] >= 0)]
            sizes = np.zeros((len(classes), len(a.levels)), dtype=np.int64)
            np.add.at(sizes, (table.label[known], a.values[known]), 1)
            for (c, v), n in np.ndenumerate(sizes):
                yield {"attribute": name, "split": split, "label": classes[c], "level": a.levels[v], "n": int(n)}


def _group_problems(table: Table, groups: Iterable[Mapping[str, Any]]) -> Iterator[Problem]:
    """Groups too small for an audit, in the splits where it looks; without splits, in the half that would be its own."""
    has_splits = table.schema.split is not None
    for group in groups:
        split, n = group["split"], group["n"]
        if not group["attribute"] or (split == "" if has_splits else split != "") or split not in NEEDS:
            continue
        seen = n if has_splits else n // 2
        lacks = [reason for least, reason in NEEDS[split] if seen < least]
        if lacks:
            where = (
                f" in split {split!r}" if has_splits else f", about {seen} of them in test once the rows are halved" if n else ""
            )
            what = f"{table.schema.label}={group['label']}, {group['attribute']}={group['level']}"
            kind = "empty-group" if n == 0 else "tiny-group" if seen < TINY else "small-group"
            level: Literal["warning", "info"] = "info" if kind == "small-group" else "warning"
            yield Problem(f"group {what} has {_rows(n)}{where}: {'; '.join(lacks)}", None, group["attribute"], level, kind)


# ---- images, masks, twins and boxes --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Facts:
    """What one file is, or why it cannot be read."""

    shape: tuple[int, ...] = ()
    error: str = ""
    is_missing: bool = False
    is_blank: bool = False  # one value throughout; for a mask, nothing marked
    mark: str = ""  # equal for equal bytes, almost always different for others


@dataclass
class _Files:
    """Every file that the table names, each read once."""

    table: Table
    images: bool | Literal["header", "full"]
    workers: int | None
    notes: list[str]
    facts: dict[str, _Facts] = field(default_factory=dict)
    masks: dict[str, _Facts] = field(default_factory=dict)

    def problems(self, geometry: Geometry | None) -> list[Problem]:
        schema = self.table.schema
        image = self.table.strings(str(schema.image))
        twin = self.table.strings(schema.twin) if schema.twin else np.zeros(0, dtype=object)
        mask = self.table.strings(schema.mask) if schema.mask else np.zeros(0, dtype=object)
        self._read([*image, *twin], mask)
        content = self._contents()
        found = [*self._file_problems("image", image, self.facts), *self._duplicates(image, content)]
        if schema.twin:
            found += [*self._file_problems("twin", twin, self.facts), *self._paired("twin", image, twin, self.facts)]
            for row in self._whole(image, twin, self.facts):
                if content[image[row]] == content[twin[row]]:
                    message = "the twin is the same file as the image, byte for byte"
                    found.append(Problem(message, row, schema.twin, "warning", "twin-identical"))
        if schema.mask:
            found += [*self._file_problems("mask", mask, self.masks), *self._paired("mask", image, mask, self.masks)]
        shapes = {row: self.facts[r].shape for row, r in enumerate(image) if r and not self.facts[r].error}
        found += _box_places(self.table, shapes, geometry)
        found += _shape_problems(shapes, geometry, str(schema.image))
        return found

    def _read(self, pictures: Iterable[str], masks: Iterable[str]) -> None:
        """Fill `facts` and `masks`: files are decoded, or their headers read, in threads."""
        jobs = [(r, False) for r in dict.fromkeys(pictures) if r] + [(r, True) for r in dict.fromkeys(masks) if r]
        deep = np.full(len(jobs), self.images in (True, "full"))
        if self.images is True and len(jobs) > DECODED_AT_MOST:
            deep[:] = False
            deep[np.linspace(0, len(jobs) - 1, DECODED_SAMPLE).astype(np.int64)] = True
            self.notes.append(
                f"{len(jobs)} files: all headers were read and {deep.sum()} files, evenly spaced, were decoded; "
                "images='full' decodes all"
            )
        elif self.images == "header":
            self.notes.append("only the headers of images were read: a file that is cut short, or blank, is not seen")
        root = Path(self.table.schema.root)
        results = in_order(lambda i: _inspect(*jobs[i], root, bool(deep[i])), range(len(jobs)), workers=self.workers, ahead=256)
        for (reference, is_mask), facts in zip(jobs, track(results, "reading images", total=len(jobs)), strict=True):
            (self.masks if is_mask else self.facts)[reference] = facts

    def _contents(self) -> dict[str, str]:
        """For each readable picture a text that is equal for equal bytes; only files that look alike are read whole for it."""
        alike = Counter(facts.mark for facts in self.facts.values() if not facts.error)
        content = {r: facts.mark for r, facts in self.facts.items() if not facts.error}
        doubtful = [r for r, mark in content.items() if alike[mark] > 1]
        root = Path(self.table.schema.root)
        content.update(zip(doubtful, in_order(lambda r: digest(r, root=root), doubtful, workers=self.workers), strict=True))
        return content

    def _whole(self, image: np.ndarray, other: np.ndarray, facts: Mapping[str, _Facts]) -> Iterator[int]:
        """Rows whose image and other file can both be read."""
        for row, (a, b) in enumerate(zip(image, other, strict=True)):
            if a and b and not self.facts[a].error and not facts[b].error:
                yield row

    def _file_problems(self, part: str, references: np.ndarray, facts: Mapping[str, _Facts]) -> Iterator[Problem]:
        column = getattr(self.table.schema, part)
        for row, reference in enumerate(references):
            if not reference:
                continue
            found = facts[reference]
            if found.error:
                yield Problem(found.error, row, column, kind=f"{part}-{'missing' if found.is_missing else 'unreadable'}")
            elif found.is_blank:
                message = "nothing is marked in the mask" if part == "mask" else f"every pixel of the {part} has the same value"
                yield Problem(message, row, column, "warning", f"{part}-empty" if part == "mask" else f"{part}-blank")

    def _paired(self, part: str, image: np.ndarray, other: np.ndarray, facts: Mapping[str, _Facts]) -> Iterator[Problem]:
        for row in self._whole(image, other, facts):
            own, found = self.facts[image[row]].shape[:-1], facts[other[row]].shape[:-1]
            if own != found:
                message = f"the {part} is {_size(found)} and the image {_size(own)}"
                yield Problem(message, row, getattr(self.table.schema, part), kind=f"{part}-size")

    def _duplicates(self, image: np.ndarray, content: Mapping[str, str]) -> Iterator[Problem]:
        """Rows with the bytes of an earlier row: a leak where the splits differ."""
        schema, label = self.table.schema, self.table.label
        splits = self.table.strings(schema.split) if schema.split else np.full(len(image), "", dtype=object)
        transform = self.table.strings(schema.transform) if schema.transform else np.full(len(image), "", dtype=object)
        earlier: dict[tuple[str, str], list[int]] = defaultdict(list)
        for row, reference in enumerate(image):
            if reference not in content:
                continue
            before = earlier[content[reference], transform[row]]
            if before:
                leak = next((b for b in before if splits[b] and splits[row] and splits[b] != splits[row]), None)
                other = before[0] if leak is None else leak
                message = f"the same image as row {other + 1}"
                if leak is not None:
                    message += f", which is in split {splits[other]!r} while this row is in {splits[row]!r}"
                if label[row] >= 0 and label[other] >= 0 and label[row] != label[other]:
                    message += f"; the label is {schema.classes[label[row]]!r} here and {schema.classes[label[other]]!r} there"
                level: Literal["error", "warning"] = "warning" if leak is None else "error"
                kind = "duplicate-image" if leak is None else "image-in-two-splits"
                yield Problem(message, row, str(schema.image), level, kind)
            before.append(row)


def _inspect(reference: str, is_mask: bool, root: Path, deep: bool) -> _Facts:
    path = root / (reference.rpartition("#")[0] if ".npy#" in reference else reference)
    try:
        if not path.is_file():
            return _Facts(error=f"no file at {path}", is_missing=True)
        if not deep:
            return _Facts(shape(reference, root=root), mark=_mark(reference, path, root))
        pixels = decode(reference, root, raw=is_mask)
        is_blank = not pixels.any() if is_mask else bool(pixels.size) and bool((pixels == pixels.flat[0]).all())
        return _Facts(pixels.shape, is_blank=is_blank, mark=_mark(reference, path, root))
    except (ImageError, OSError) as error:  # OSError: a name that the file system refuses, a file that may not be read
        return _Facts(error=str(error))


def _mark(reference: str, path: Path, root: Path) -> str:
    """The length of a file and a hash of its ends; the content of one row of a stack."""
    if ".npy#" in reference:
        return digest(reference, root=root)
    size, piece = path.stat().st_size, 4096
    with path.open("rb") as file:
        ends = file.read(piece)
        file.seek(max(0, size - piece))
        ends += file.read(piece)
    return f"{size}-{hashlib.blake2b(ends, digest_size=16).hexdigest()}"


def _box_places(table: Table, shapes: Mapping[int, tuple[int, ...]], geometry: Geometry | None) -> Iterator[Problem]:
    """Boxes that do not lie in their image, or not in what the model sees of it; what cannot be parsed is listed before."""
    column = table.schema.box[0] if table.schema.box else ""
    for row, value in enumerate(box_values(table.frame, table.schema)):
        try:
            boxes = parse_boxes(value)
        except ValueError:
            continue
        if row not in shapes or not len(boxes):
            continue
        size = shapes[row][:-1]
        if len(size) == 3:
            yield Problem(f"a box on a volume of {_size(size)}: give a mask instead", row, column, kind="box-on-volume")
            continue
        inside = np.clip(boxes, 0, np.array([size[1], size[0]] * 2))
        placed = None if geometry is None or len(geometry.size) != 2 else place_boxes(boxes, size, geometry)
        for k, box in enumerate(boxes):
            named = f"box {' '.join(f'{v:g}' for v in box)}"
            if box[2] <= box[0] or box[3] <= box[1]:
                continue
            if _area(inside[k]) == 0:
                yield Problem(f"{named} lies outside the image of {_size(size)}", row, column, kind="box-outside")
            elif (inside[k] != box).any():
                message = (
                    f"{named} reaches out of the image of {_size(size)}: {1 - _area(inside[k]) / _area(box):.0%} of it is cut"
                )
                yield Problem(message, row, column, "warning", "box-reaches-out")
            elif placed is not None and _area(placed[k]) == 0:
                message = f"{named} lies outside the centre crop that the model sees of an image of {_size(size)}"
                yield Problem(message, row, column, "warning", "box-cropped-away")


def _area(box: np.ndarray) -> float:
    return float((box[2] - box[0]) * (box[3] - box[1]))


def _shape_problems(shapes: Mapping[int, tuple[int, ...]], geometry: Geometry | None, column: str) -> Iterator[Problem]:
    if not shapes:
        return
    sizes = Counter(s[:-1] for s in shapes.values())
    if len(sizes) > 1:
        usual, n = sizes.most_common(1)[0]
        message = f"{len(sizes)} image sizes, from {_size(min(sizes))} to {_size(max(sizes))}; {n} images are {_size(usual)}"
        yield Problem(message, None, column, "info", "mixed-sizes")
    channels = Counter(s[-1] for s in shapes.values())
    if len(channels) > 1:
        listed = ", ".join(f"{n} with {c}" for c, n in sorted(channels.items()))
        yield Problem(
            f"numbers of channels differ: {listed}; a model can tell them apart", None, column, "info", "mixed-channels"
        )
    if geometry is None:
        if len({len(size) for size in sizes}) > 1:
            volumes = {row: "a volume among images" for row, s in shapes.items() if len(s) == 4}
            yield from _fit(volumes, len(shapes), "error", "mixed-axes", column)
        return
    axes, kind = len(geometry.size), {2: "an image", 3: "a volume"}
    wrong = {
        row: f"{kind[len(s) - 1]} of {_size(s[:-1])}, and the model takes {kind[axes]} of {_size(geometry.size)}"
        for row, s in shapes.items()
        if len(s) - 1 != axes
    }
    yield from _fit(wrong, len(shapes), "error", "image-axes", column)
    fitting = {row: s for row, s in shapes.items() if row not in wrong}
    yield from _channel_problems(fitting, geometry, column)
    yield from _size_problems(fitting, geometry, column)


def _channel_problems(shapes: Mapping[int, tuple[int, ...]], geometry: Geometry, column: str) -> Iterator[Problem]:
    grey, colour, other = {}, {}, {}
    wanted = geometry.channels
    for row, found in ((row, s[-1]) for row, s in shapes.items()):
        if found == 1 < wanted:
            grey[row] = f"a grey image, and the model takes {wanted} channels: it will be repeated"
        elif found == 3 and wanted == 1:
            colour[row] = "a colour image, and the model takes one channel: its luminance will be used"
        elif found != wanted:
            other[row] = f"{found} channels, and the model takes {wanted}: convert the image or use another model"
    yield from _fit(grey, len(shapes), "warning", "image-grey", column)
    yield from _fit(colour, len(shapes), "warning", "image-colour", column)
    yield from _fit(other, len(shapes), "error", "image-channels", column)


def _size_problems(shapes: Mapping[int, tuple[int, ...]], geometry: Geometry, column: str) -> Iterator[Problem]:
    loss = {"center": "more than half of it is cropped", "squash": "it is squashed", "border": "more than half is padding"}
    small, long = {}, {}
    for row, size in ((row, s[:-1]) for row, s in shapes.items()):
        if any(2 * a < b for a, b in zip(size, geometry.size, strict=True)):
            small[row] = f"{_size(size)} is less than half of the model's input of {_size(geometry.size)}"
        stretch = [a / b for a, b in zip(size, geometry.size, strict=True)]
        if max(stretch) > 2 * min(stretch):
            long[row] = f"{_size(size)} is long for an input of {_size(geometry.size)}: {loss[geometry.mode]}"
    yield from _fit(small, len(shapes), "warning", "image-small", column)
    yield from _fit(long, len(shapes), "warning", "image-aspect", column)


def _fit(rows: Mapping[int, str], total: int, level: Literal["error", "warning"], kind: str, column: str) -> Iterator[Problem]:
    """One problem a row; one for all where most images have it, because then it is the set that does not fit."""
    if len(rows) > max(20, total / 2):
        first = min(rows)
        yield Problem(f"{len(rows)} of {total} images, such as row {first + 1}: {rows[first]}", None, column, level, kind)
    else:
        yield from (Problem(message, row, column, level, kind) for row, message in rows.items())


# ---- labels and outputs ------------------------------------------------------------------------------------------------------


def _class_problems(table: Table, classifier: Model) -> Iterator[Problem]:
    column, classes = table.schema.label, [str(c) for c in classifier.classes or ()]
    if column is None or not table.schema.classes:
        return
    values = table.schema.classes
    if len(values) > classifier.C:
        message = f"the label has {len(values)} values ({_some(values)}) and the model {classifier.C} outputs"
        yield Problem(message, None, column, kind="class-count")
    if len(set(classes)) != len(classes):
        yield Problem(f"the model's classes are not distinct: {_some(classes)}", None, column, kind="class-names")
    if not classes:
        return
    for code, value in enumerate(values):
        rows = np.flatnonzero(table.label == code)
        if str(value) not in classes and len(rows):
            message = (
                f"label {value!r} ({_rows(len(rows))}) is not among the model's classes ({_some(classes)}): "
                "give classes= with the label value of every output"
            )
            yield Problem(message, int(rows[0]), column, kind="class-unknown")
    unused = [c for c in classes if c not in {str(v) for v in values}]
    if unused:
        yield Problem(f"outputs that no label names: {_some(unused)}", None, column, "info", "class-unused")


def _order_problems(
    table: Table, classifier: Model, sample: tuple[Sequence[int] | np.ndarray, np.ndarray], rng: np.random.Generator
) -> Iterator[Problem]:
    """Does another assignment of label values to outputs score a higher balanced accuracy, and higher than chance would?"""
    rows, logits = _sample(sample, table, classifier)
    column = str(table.schema.label)
    for row in rows[~np.isfinite(logits).all(axis=1)]:
        yield Problem("the model's logits are not finite on this row", int(row), column, kind="logits-not-finite")
    outputs = {str(c): i for i, c in enumerate(classifier.classes or ())}
    home = np.array([*(outputs.get(str(v), -1) for v in table.schema.classes), -1], dtype=np.int64)[table.label[rows]]
    usable = np.flatnonzero((home >= 0) & np.isfinite(logits).all(axis=1))[:MOST_SAMPLE_ROWS]
    present, label = np.unique(home[usable], return_inverse=True)
    if len(present) < 2:
        return
    predicted = logits[usable].argmax(axis=1)
    recall = _recall(label, predicted, classifier.C)
    given = float(recall[np.arange(len(present)), present].mean())
    best, order = _best_assignment(recall)
    if best <= given + 1e-9:
        return
    chance = [_best_assignment(_recall(rng.permutation(label), predicted, classifier.C))[0] for _ in range(199)]
    is_clear = sum(c >= best for c in chance) <= 1 and best - given >= 0.1  # p <= 0.01
    names = [str(c) for c in classifier.classes]
    moved = ", ".join(f"{names[p]} → output {o}" for p, o in zip(present, order, strict=True) if p != o)
    message = (
        f"on {len(usable)} rows the outputs score a balanced accuracy of {given:.2f} as they are named, and {best:.2f} with "
        f"{moved}: {'check the order of classes=' if is_clear else 'too little to tell from chance'}"
    )
    yield Problem(message, None, column, "warning" if is_clear else "info", "class-order")


def _sample(sample: tuple[Any, Any], table: Table, classifier: Model) -> tuple[np.ndarray, np.ndarray]:
    rows, logits = np.asarray(sample[0], dtype=np.int64), np.asarray(sample[1], dtype=np.float64)
    if logits.size == len(rows):  # one logit z is read as (0, z)
        logits = np.stack([np.zeros(len(rows)), logits.ravel()], axis=1)
    if logits.shape != (len(rows), classifier.C):
        raise SettingError(f"sample= has {len(rows)} rows and logits of {logits.shape}: expected ({len(rows)}, {classifier.C})")
    if len(rows) and (rows.min() < 0 or rows.max() >= len(table.frame)):
        raise SettingError(f"sample= names rows {rows.min()} to {rows.max()} of a table with {len(table.frame)}")
    return rows, logits


def _recall(label: np.ndarray, predicted: np.ndarray, outputs: int) -> np.ndarray:
    """Share (K, C) of the rows of each label that each output takes."""
    confusion = np.zeros((label.max() + 1, outputs))
    np.add.at(confusion, (label, predicted), 1)
    return confusion / confusion.sum(axis=1, keepdims=True)


def _best_assignment(recall: np.ndarray) -> tuple[float, np.ndarray]:
    labels, outputs = linear_sum_assignment(recall, maximize=True)
    return float(recall[labels, outputs].mean()), outputs


# ---- words and places --------------------------------------------------------------------------------------------------------


def _in_place(problems: Iterable[Problem], table: Table, path: Path | None) -> tuple[Problem, ...]:
    """Problems in order, with the id and the line of their rows."""
    weight = {level: i for i, level in enumerate(LEVELS)}
    ordered = sorted(problems, key=lambda p: (weight[p.level], p.kind, -1 if p.row is None else p.row))
    lines = _lines(path, len(table.frame)) if any(p.row is not None for p in ordered) else None
    return tuple(
        p if p.row is None else replace(p, id=str(table.ids[p.row]), line=None if lines is None else lines[p.row])
        for p in ordered
    )


def _lines(path: Path | None, n: int) -> list[int] | None:
    """The line of the file on which each row begins; None where the manifest is not text or the lines cannot be told."""
    if path is None or not path.is_file() or path.suffix.lower() not in {".csv", ".tsv", ".txt"}:
        return None
    first: list[int] = []
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file, delimiter="\t" if path.suffix.lower() == ".tsv" else ",")
        before = 0
        try:
            for cells in reader:
                if any(cell.strip() for cell in cells) or len(cells) > 1:
                    first.append(before + 1)
                before = reader.line_num
        except csv.Error:
            return None
    return first[1:] if len(first) == n + 1 else None


def _by_split(table: Table) -> dict[str, np.ndarray]:
    if not table.schema.split:
        return {}
    return {name: np.array(rows) for name, rows in _rows_by_value(table.strings(table.schema.split)).items() if name}


def _rows_by_value(values: np.ndarray) -> dict[str, list[int]]:
    rows: dict[str, list[int]] = defaultdict(list)
    for row, value in enumerate(values):
        rows[value].append(row)
    return dict(rows)


def _rows(n: int) -> str:
    return f"{n} row" if n == 1 else f"{n} rows"


def _size(size: Sequence[int]) -> str:
    return " x ".join(map(str, size))


def _some(values: Sequence[Any], most: int = 8) -> str:
    return ", ".join(map(str, values[:most])) + (f", … {len(values) - most} more" if len(values) > most else "")


def _listing(problems: Sequence[Problem]) -> Grid:
    grid = Grid.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold", max_width=32)
    grid.add_column(overflow="fold", ratio=1)
    for p in problems:
        line = "" if p.line is None else f" (line {p.line})"
        where = f"  {p.column}" if p.row is None else f"  row {p.row + 1}{line}"
        grid.add_row(Text(_shown(where)), Text(_shown(p.id)), Text(_shown(p.message)))
    return grid


def _crosstab(groups: Sequence[Mapping[str, Any]], most: int = 12) -> Grid | Text:
    """Rows per label (down) and level (across)."""
    labels = list(dict.fromkeys(g["label"] for g in groups))
    levels = list(dict.fromkeys(g["level"] for g in groups))
    if max(len(labels), len(levels)) > most:
        return Text(f"  {len(labels)} labels and {len(levels)} levels are too many for a table here: the JSON has their sizes")
    size = {(g["label"], g["level"]): g["n"] for g in groups}
    grid = Grid.grid(padding=(0, 2))
    grid.add_column()
    for _ in levels:
        grid.add_column(justify="right")
    if levels != [""]:
        grid.add_row("", *(Text(_shown(str(level))) for level in levels))
    for label in labels:
        grid.add_row(Text(f"  {_shown(str(label))}"), *(Text(str(size[label, level])) for level in levels))
    return grid


def _shown(words: str) -> str:
    """Names from a manifest as harmless text: control characters and turns of direction are spelled out."""
    harmless = {"\u200d", "\ufe0f"}  # joiners of emoji
    return "".join(
        c if c in harmless or unicodedata.category(c) not in ("Cc", "Cf") else c.encode("unicode_escape").decode() for c in words
    )
