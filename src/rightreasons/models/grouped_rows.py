"""Rows coded by a classifier's outputs and by attribute groups, and the metric on validation rows that selects a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np

from rightreasons.data.cohort import Cohort
from rightreasons.errors import DataError, SettingError
from rightreasons.evidence import as_outputs
from rightreasons.families import suggest
from rightreasons.models.classifier import Classifier
from rightreasons.stats import groups

Select = Literal["wga", "accuracy"]
"""The metric of the val rows by which a model is selected: accuracy of the worst group, or of all rows."""


@dataclass(frozen=True)
class Rows:
    """Rows with a known label (and attribute, where it is asked for), coded as the classifier's outputs.

    Attributes
    ----------
    y : (n,) the output that is right
    a : (n,) level of the attribute; None where the cohort has no attribute that makes groups
    names : value of every output, and of every level
    left_out : rows that lack the label or the attribute and are not here
    """

    cohort: Cohort
    y: np.ndarray
    a: np.ndarray | None
    attribute: str
    names: tuple[tuple[Any, ...], tuple[Any, ...]]
    left_out: int

    def __len__(self) -> int:
        return len(self.y)

    @property
    def group(self) -> np.ndarray:
        """(n,) number of the (label, attribute) group, `y * A + a`, empty groups counted."""
        if self.a is None:
            raise DataError(f"cohort {self.cohort.name!r} has no attribute that makes groups: give attribute= when reading it")
        return self.y * self.A + self.a

    @property
    def C(self) -> int:
        return len(self.names[0])

    @property
    def A(self) -> int:
        return len(self.names[1])

    def name(self, group: int) -> str:
        """`label=1, cue=0` of a group's number."""
        y, a = divmod(int(group), self.A)
        return f"{self.cohort.label_name}={self.names[0][y]}, {self.attribute}={self.names[1][a]}"

    def select(self, rows: np.ndarray) -> Rows:
        a = None
        if self.a is not None:
            a = self.a[rows]
        return Rows(self.cohort.select(rows), self.y[rows], a, self.attribute, self.names, self.left_out)


def row_weights(cohort: Cohort) -> np.ndarray:
    """(n,) the cohort's weight of every row, 1 where it has no column of weights."""
    if cohort.weight is None:
        return np.ones(len(cohort))
    return cohort.weight


def grouped(classifier: Classifier, cohort: Cohort, attribute: str | None = None) -> Rows:
    """The rows of a cohort that have label and attribute; refused where the attribute is unknown or continuous.

    Parameters
    ----------
    attribute : the cohort's first by default
    """
    if not cohort.attributes:
        raise DataError(f"cohort {cohort.name!r} has no attribute and forms no groups: give attribute= when reading the manifest")
    if attribute is not None and attribute not in cohort.attributes:
        raise SettingError(f"no attribute {attribute!r} in cohort {cohort.name!r}; {suggest(attribute, cohort.attributes)}")
    a = cohort.attribute(attribute)
    if a.kind == "continuous":
        raise DataError(f"attribute {a.name!r} is continuous and forms no groups: give bins={{{a.name!r}: …}} when reading")
    y = as_outputs(cohort.label, cohort.classes, classifier.classes)
    kept = (y >= 0) & (a.values >= 0)
    if not kept.any():
        raise DataError(f"no row of cohort {cohort.name!r} has both {cohort.label_name!r} and {a.name!r}: look at those columns")
    names = (tuple(classifier.classes), tuple(a.levels))
    return Rows(cohort.select(kept), y[kept], a.values[kept].astype(np.int64), a.name, names, int((~kept).sum()))


def labelled(classifier: Classifier, cohort: Cohort, attribute: str | None = None) -> Rows:
    """`grouped` where the cohort has an attribute that makes groups; else the rows that have a label, `a` being None."""
    named = attribute is not None or bool(cohort.attributes)
    if named and (attribute not in (None, *cohort.attributes) or cohort.attribute(attribute).kind == "categorical"):
        return grouped(classifier, cohort, attribute)
    if attribute is not None:
        return grouped(classifier, cohort, attribute)  # a named one must make groups
    y = as_outputs(cohort.label, cohort.classes, classifier.classes)
    return Rows(cohort.select(y >= 0), y[y >= 0], None, "", (tuple(classifier.classes), ()), int((y < 0).sum()))


def every_group(rows: Rows, least: int = 1, what: str = "") -> np.ndarray:
    """(C·A,) size of every group; refused where one of a class and a level that both occur has fewer than `least` rows."""
    size = np.bincount(rows.group, minlength=rows.C * rows.A)
    table = size.reshape(rows.C, rows.A)
    expected = np.outer(table.sum(axis=1) > 0, table.sum(axis=0) > 0).reshape(-1)
    few = np.flatnonzero(expected & (size < least))
    if len(few):
        listed = "; ".join(f"{rows.name(g)}: {size[g]}" for g in few.tolist())
        raise DataError(
            f"{what or 'this mitigation'} needs at least {least} rows of every group of {rows.cohort.name!r}: {listed}"
        )
    return size


def selection(classifier: Classifier, cohort: Cohort, attribute: str | None = None) -> Select:
    """The validation metric to select by (`stop_on` of `train`): "wga" where the val rows define it, else "accuracy"."""
    if not cohort.has("val"):
        raise DataError(
            f"cohort {cohort.name!r} has no rows in split 'val', nor train rows to take them from: name some rows val"
        )
    rows = labelled(classifier, cohort.on("val"), attribute)
    if rows.a is not None and not np.isnan(score(rows, np.eye(rows.C)[rows.y], "wga")):
        return "wga"
    return "accuracy"


def score(rows: Rows, logits: np.ndarray, by: Select) -> float:
    """The selecting metric, computed from logits (n, C) on these rows."""
    predicted = logits.argmax(axis=1)
    if by == "accuracy":
        return groups.accuracy(rows.y, predicted)
    # As in training: the small groups are those that a selection must not leave out.
    return groups.worst_group_accuracy(rows.y, predicted, cast(np.ndarray, rows.a), smallest=1)


def completed(cohort: Cohort, rng: np.random.Generator) -> Cohort:
    """The cohort with all four roles: `val` from `train` and `audit` from `test` where it lacks them."""
    return cohort.with_roles(rng=rng, trains=True)


def audit_half(cohort: Cohort, rng: np.random.Generator, attribute: str | None = None) -> Cohort:
    """A seeded half of the audit rows, stratified on (label, attribute), whole subjects; the other half is left for audits."""
    if not cohort.has("audit"):
        raise DataError(
            f"cohort {cohort.name!r} has no rows in split 'audit', nor test rows to take them from: name some rows audit"
        )
    return cohort.on("audit").split({"fit": 0.5, "rest": 0.5}, rng=rng, attribute=attribute).on("fit")


def seed_of(rng: np.random.Generator) -> int:
    """Draw a seed for `train`."""
    return int(rng.integers(2**31))
