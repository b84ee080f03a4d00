"""The rows that heads are fitted on and compared on: labels, levels of the attributes, answers, inputs of the last layer."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from rightreasons.audits._levels import levels_of
from rightreasons.audits._rows import refuse_mixed_cases
from rightreasons.data.cohort import Attribute, Cohort
from rightreasons.errors import NotRun
from rightreasons.evidence import Decisions, Evidence, as_outputs

MOST_LEVELS = 20  # of another attribute that is held fixed
FEWEST_IN_CELL = 5  # audit rows of a (label, level) of another attribute that the refit is weighted by


@dataclass(frozen=True)
class Side:
    """Decisions of one cohort that have a label and the attribute.

    Attributes
    ----------
    label : (n,) which of `classes` is true: the adjudicated label where there is one
    given : (n,) the label as it stands in the table
    classes : outputs that occur as labels
    names : the label that each of them stands for, in the table's words
    attribute : the attribute with levels
    inputs : (n, d) what the model's last layer reads
    logits, answers : (n, C) of those outputs; answers sum to 1
    """

    decisions: Decisions
    label: np.ndarray
    given: np.ndarray
    classes: np.ndarray
    names: tuple[str, ...]
    attribute: Attribute
    inputs: np.ndarray
    logits: np.ndarray
    answers: np.ndarray
    missing: int

    @property
    def cohort(self) -> Cohort:
        return self.decisions.cohort

    def towards(self, aligned: Mapping[Hashable, Hashable]) -> dict[Hashable, int]:
        """Value → column of `answers`, of those values that stand for an output that occurs."""
        place = {int(output): k for k, output in enumerate(self.classes)}
        return {value: place[output] for value, output in aligned.items() if output in place}  # type: ignore[index]


def side(evidence: Evidence, cohort: str, attribute: str, truth: str | None, classes: np.ndarray) -> Side:
    """The decisions of one cohort, with the outputs in `classes` alone."""
    view = evidence.on(cohort)
    refuse_mixed_cases(view, attribute)
    decisions = view.decisions()
    given = decisions.label
    label = given if truth is None else adjudicated(decisions.cohort, truth, evidence)
    a = levels_of(evidence, attribute).of(decisions.cohort.attribute(attribute))
    kept = np.flatnonzero(np.isin(label, classes) & np.isin(given, classes) & a.present)
    if not len(kept):
        raise NotRun(f"no {cohort} row has both a label and {attribute}: look at those two columns")
    place = np.full(int(classes.max()) + 1, -1)
    place[classes] = np.arange(len(classes))
    rows = decisions.select(kept)
    levels = Attribute(a.name, a.kind, a.values[kept], a.levels)
    inputs = last_layer_inputs(evidence, view.by_case("features")[2][kept])
    answers = rows.probability[:, classes]
    return Side(
        decisions=rows,
        label=place[label[kept]],
        given=place[given[kept]],
        classes=classes,
        names=tuple(str(evidence.card.classes[output]) for output in classes),
        attribute=levels,
        inputs=inputs,
        logits=rows.logits[:, classes],
        answers=answers / answers.sum(axis=1, keepdims=True),
        missing=len(label) - len(kept),
    )


def labelled_outputs(evidence: Evidence, truth: str | None) -> np.ndarray:
    """Outputs that are some test or audit row's label: a network of a thousand outputs is judged on those that occur."""
    seen = []
    for cohort in ("audit", "test"):
        decisions = evidence.on(cohort).decisions()
        seen.append(decisions.label)
        if truth is not None:
            seen.append(adjudicated(decisions.cohort, truth, evidence))
    outputs = np.unique(np.concatenate(seen))
    outputs = outputs[outputs >= 0]
    if len(outputs) < 2:
        raise NotRun("the audit and test rows have one label only, so nothing can be compared within labels")
    return outputs


def adjudicated(cohort: Cohort, truth: str, evidence: Evidence) -> np.ndarray:
    """(n,) which output the adjudicated label is, -1 where a row has none."""
    column = pd.Series(cohort.column(truth))
    known = column.notna() & (column.astype(str) != "")
    codes, values = pd.factorize(column.where(known))
    return as_outputs(codes, list(values), evidence.card.classes)


def last_layer_inputs(evidence: Evidence, features: np.ndarray) -> np.ndarray:
    """What the last layer reads: the features, or what the layers of the head before the last make of them."""
    head = evidence.head
    if head is None or head.is_linear:
        return np.asarray(features, dtype=np.float64)
    return head.before_last(np.asarray(features, dtype=np.float64))


def cell_sizes(rows: Side, levels: int) -> np.ndarray:
    """(C, L) rows of every cell."""
    cell = rows.label * levels + rows.attribute.values
    return np.bincount(cell, minlength=len(rows.classes) * levels).reshape(len(rows.classes), levels)


@dataclass(frozen=True)
class Other:
    """Another attribute that is held fixed; `audit` and `test` are codes (n,), a missing value being a code of its own."""

    name: str
    audit: np.ndarray
    test: np.ndarray
    levels: Attribute


def other_attributes(evidence: Evidence, audit: Side, test: Side) -> tuple[list[Other], tuple[str, ...]]:
    """The other attributes of the table that can be held fixed, and the names of those that cannot."""
    kept, left_out = [], []
    for name in test.cohort.attributes:
        if name == test.attribute.name:
            continue
        levels = levels_of(evidence, name)
        of_audit, of_test = (levels.of(rows.cohort.attribute(name)) for rows in (audit, test))
        other = Other(name, _with_missing(of_audit), _with_missing(of_test), of_test)
        if _can_be_held_fixed(other, audit):
            kept.append(other)
        else:
            left_out.append(name)
    return kept, tuple(left_out)


def _with_missing(attribute: Attribute) -> np.ndarray:
    return np.where(attribute.present, attribute.values, len(attribute.levels)).astype(np.int64)


def _can_be_held_fixed(other: Other, audit: Side) -> bool:
    """It has two levels or more, not too many, and audit rows of every label in each that occurs."""
    levels = np.unique(other.test)
    if not 2 <= len(levels) <= MOST_LEVELS:
        return False
    table = pd.crosstab(audit.label, other.audit)
    return bool((table.to_numpy() >= FEWEST_IN_CELL).all()) and table.shape[1] >= 2
