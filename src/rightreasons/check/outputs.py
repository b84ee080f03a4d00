"""Do the label's values fit the outputs of a model, and in the order that they are named in?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
from scipy.optimize import linear_sum_assignment

from rightreasons.check import words
from rightreasons.data.images import Geometry
from rightreasons.data.schema import Problem, Table
from rightreasons.errors import SettingError

MOST_SAMPLE_ROWS = 256
PERMUTATIONS = 199
CLEARLY_BETTER = 0.1  # of balanced accuracy

Sample = tuple[Sequence[int] | np.ndarray, np.ndarray]


class Model(Protocol):
    """What is asked of a classifier here."""

    geometry: Geometry
    classes: tuple[Any, ...]

    @property
    def C(self) -> int: ...


def class_problems(table: Table, classifier: Model) -> Iterator[Problem]:
    """Label values without an output, and outputs without a label value."""
    column, values = table.schema.label, table.schema.classes
    classes = [str(c) for c in classifier.classes or ()]
    if column is None or not values:
        return
    if len(values) > classifier.C:
        message = f"the label has {len(values)} values ({words.some(values)}) and the model {classifier.C} outputs"
        yield Problem(message, None, column, kind="class-count")
    if len(set(classes)) != len(classes):
        yield Problem(f"the model's classes are not distinct: {words.some(classes)}", None, column, kind="class-names")
    if not classes:
        return
    for code, value in enumerate(values):
        rows = np.flatnonzero(table.label == code)
        if str(value) not in classes and len(rows):
            message = (
                f"label {value!r} ({words.rows(len(rows))}) is not among the model's classes ({words.some(classes)}): "
                "give classes= with the label value of every output"
            )
            yield Problem(message, int(rows[0]), column, kind="class-unknown")
    named = {str(v) for v in values}
    unused = [c for c in classes if c not in named]
    if unused:
        yield Problem(f"outputs that no label names: {words.some(unused)}", None, column, "info", "class-unused")


def order_problems(table: Table, classifier: Model, sample: Sample, rng: np.random.Generator) -> Iterator[Problem]:
    """Does another assignment of label values to outputs score a higher balanced accuracy, and higher than chance would?"""
    rows, logits = checked_sample(sample, table, classifier)
    column = str(table.schema.label)
    is_finite = np.isfinite(logits).all(axis=1)
    for row in rows[~is_finite]:
        yield Problem("the model's logits are not finite on this row", int(row), column, kind="logits-not-finite")
    true_output = true_outputs(table, classifier)[rows]
    usable = np.flatnonzero((true_output >= 0) & is_finite)[:MOST_SAMPLE_ROWS]
    present, label = np.unique(true_output[usable], return_inverse=True)
    if len(present) < 2:
        return
    predicted = logits[usable].argmax(axis=1)
    recall = recall_of(label, predicted, classifier.C)
    as_named = float(recall[np.arange(len(present)), present].mean())
    best, order = best_assignment(recall)
    if best <= as_named + 1e-9:
        return
    by_chance = [best_assignment(recall_of(rng.permutation(label), predicted, classifier.C))[0] for _ in range(PERMUTATIONS)]
    is_clear = sum(c >= best for c in by_chance) <= 1 and best - as_named >= CLEARLY_BETTER  # p <= 0.01
    names = [str(c) for c in classifier.classes]
    moved = ", ".join(f"{names[p]} → output {o}" for p, o in zip(present, order, strict=True) if p != o)
    message = (
        f"on {len(usable)} rows the outputs score a balanced accuracy of {as_named:.2f} as they are named, and {best:.2f} with "
        f"{moved}: {'check the order of classes=' if is_clear else 'too little to tell from chance'}"
    )
    yield Problem(message, None, column, "warning" if is_clear else "info", "class-order")


def checked_sample(sample: Sample, table: Table, classifier: Model) -> tuple[np.ndarray, np.ndarray]:
    """Rows (m,) and logits (m, C) of a sample."""
    rows, logits = np.asarray(sample[0], dtype=np.int64), np.asarray(sample[1], dtype=np.float64)
    if logits.size == len(rows):  # one logit z is read as (0, z)
        logits = np.stack([np.zeros(len(rows)), logits.ravel()], axis=1)
    if logits.shape != (len(rows), classifier.C):
        raise SettingError(f"sample= has {len(rows)} rows and logits of {logits.shape}: expected ({len(rows)}, {classifier.C})")
    if len(rows) and (rows.min() < 0 or rows.max() >= len(table.frame)):
        raise SettingError(f"sample= names rows {rows.min()} to {rows.max()} of a table with {len(table.frame)}")
    return rows, logits


def true_outputs(table: Table, classifier: Model) -> np.ndarray:
    """(n,) which output each row's label names, -1 where none does."""
    outputs = {str(c): i for i, c in enumerate(classifier.classes or ())}
    by_code = [outputs.get(str(value), -1) for value in table.schema.classes]
    return np.array([*by_code, -1], dtype=np.int64)[table.label]


def recall_of(label: np.ndarray, predicted: np.ndarray, outputs: int) -> np.ndarray:
    """Share (K, C) of the rows of each label that each output takes."""
    confusion = np.zeros((label.max() + 1, outputs))
    np.add.at(confusion, (label, predicted), 1)
    return confusion / confusion.sum(axis=1, keepdims=True)


def best_assignment(recall: np.ndarray) -> tuple[float, np.ndarray]:
    labels, outputs = linear_sum_assignment(recall, maximize=True)
    return float(recall[labels, outputs].mean()), outputs
