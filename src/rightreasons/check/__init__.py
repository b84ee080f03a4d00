"""What is wrong with a manifest, its images and their fit to a model: everything, row by row, in one run.

`Cohort.read` refuses at the first sight of an error; here a defect never hides another: what cannot be settled is listed and
left aside, and the rest is checked.

    columns    the schema and the values of splits, labels, attributes, twins
    groups     how many rows each (label, attribute) group has, against what the audits want
    files      images, twins and masks; `shapes` says whether they fit each other and the model
    outputs    do labels fit the model's outputs?
    preflight  does the model work on these rows? Also asked by every audit, before its verdicts
    report     what was found
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rightreasons.check.columns import column_problems, open_table
from rightreasons.check.files import Depth, Files
from rightreasons.check.groups import group_problems, group_sizes
from rightreasons.check.outputs import MOST_SAMPLE_ROWS, Model, Sample, class_problems, order_problems
from rightreasons.check.preflight import near_level_problems, working_problems
from rightreasons.check.report import LEVELS, Report
from rightreasons.data.cohort import Cohort
from rightreasons.data.schema import Problem, Table, table_problems
from rightreasons.errors import DataError, SettingError

__all__ = ["MOST_SAMPLE_ROWS", "Problem", "Report", "check"]


def check(
    source: Cohort | str | os.PathLike[str],
    *,
    classifier: Model | None = None,
    sample: Sample | None = None,
    images: Depth = True,
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
        table, problems = open_table(source, schema)
    except DataError as error:
        return Report(name, 0, (Problem(str(error), kind="unreadable-table"),))
    problems += table_problems(table)
    if not len(table.frame):
        return Report(name, 0, tuple(problems))
    fractional = {p.row for p in problems if p.kind == "fractional-label"}
    problems += column_problems(table, fractional)
    groups = tuple(group_sizes(table))
    problems += group_problems(table, groups)
    notes: list[str] = []
    if images:
        geometry = None if classifier is None else classifier.geometry
        problems += Files(table, images, workers, notes).problems(geometry)
    if classifier is not None:
        problems += class_problems(table, classifier)
    if classifier is not None and sample is not None:
        problems += order_problems(table, classifier, sample, np.random.default_rng(0) if rng is None else rng)
        problems += working_problems(table, classifier, sample)
    problems += near_level_problems(table)
    path = None if isinstance(source, Cohort) else Path(source)
    return Report(name, len(table.frame), _in_order(problems, table, path), groups, tuple(notes))


def _in_order(problems: Iterable[Problem], table: Table, path: Path | None) -> tuple[Problem, ...]:
    """Problems by level, kind and row, with the id and the line of their rows."""
    weight = {level: i for i, level in enumerate(LEVELS)}
    ordered = sorted(problems, key=lambda p: (weight[p.level], p.kind, -1 if p.row is None else p.row))
    lines = _lines(path, len(table.frame)) if any(p.row is not None for p in ordered) else None
    return tuple(_with_place(p, table, lines) for p in ordered)


def _with_place(problem: Problem, table: Table, lines: list[int] | None) -> Problem:
    if problem.row is None:
        return problem
    return replace(problem, id=str(table.id[problem.row]), line=None if lines is None else lines[problem.row])


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
