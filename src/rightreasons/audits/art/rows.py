"""The rows of one run of ART: audit rows in two halves, to find and to gate; test rows, to report on (sec. 4, protocol)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rightreasons.audits._rows import refuse_mixed_cases
from rightreasons.data.cohort import Attribute
from rightreasons.errors import DataError, NotRun
from rightreasons.evidence import Evidence, View
from rightreasons.head import Head
from rightreasons.stats.probes import Sample
from rightreasons.stats.restoration import halves

Floats = NDArray[np.float64]
Ints = NDArray[np.integer[Any]]


@dataclass(frozen=True, eq=False)
class Complete:
    """The rows of a view that have a label and the attribute, their ids, and how many lack one of the two."""

    rows: Sample
    ids: NDArray
    missing: int

    @property
    def unit(self) -> NDArray:
        """What is resampled as one: the subject, and a row without one by its id, which its twin shares."""
        if self.rows.subject is None:
            return self.ids
        return np.where(self.rows.subject == "", self.ids, self.rows.subject)


def complete(view: View, attribute: str, array: str = "features") -> Complete:
    """Rows of `view` that have a label and the attribute, with `array` as their features."""
    cohort, label, z = view.by_case(array)
    values = cohort.attribute(attribute).values.astype(np.int64)
    known = (label >= 0) & (values >= 0)
    rows = Sample(z, label, values, cohort.subject)
    return Complete(rows if known.all() else rows.select(known), cohort.id[known], int((~known).sum()))


@dataclass(frozen=True, eq=False)
class Rows:
    """Everything that one run of ART reads rows from.

    Attributes
    ----------
    audit : both halves, for the probes
    views : where the test rows come from: the test split, then its twins where they are reported on
    """

    attribute: str
    audit: Sample
    finding: Sample
    gating: Sample
    test: Sample
    views: tuple[View, ...]
    missing_audit: int
    missing: int


def audited_attribute(evidence: Evidence, name: str | None) -> Attribute:
    """The attribute to audit; refuses evidence on which ART cannot run."""
    test, audit = evidence.on("test"), evidence.on("audit")
    attribute = categorical_attribute(test, name)
    head_of(evidence)
    for view in (test, audit):
        refuse_mixed_cases(view, attribute.name)
    _refuse_other_codes(evidence, attribute)
    return attribute


def categorical_attribute(view: View, name: str | None) -> Attribute:
    if not view.cohort.attributes:
        raise NotRun("no attribute: name one with attribute=")
    attribute = view.cohort.attribute(name)
    if attribute.kind == "continuous":
        raise NotRun(
            f"{attribute.name} is continuous, and ART compares its values within each class: needs bins, give "
            f"bins={{{attribute.name!r}: […]}}"
        )
    return attribute


def head_of(evidence: Evidence) -> Head:
    if evidence.head is None:
        raise NotRun(f"the head of {evidence.card.name} is not known as data, and ART reads restored features with it")
    return evidence.head


def read_rows(evidence: Evidence, attribute: str, twins: bool, rng: np.random.Generator) -> Rows:
    """The audit rows in halves, and the test rows, with their twins if `twins`."""
    audit = complete(evidence.on("audit"), attribute)
    if twins:
        test = _rows_with_twins(evidence, attribute)
    else:
        test = _test_rows(evidence, attribute)
    if not len(audit.rows) or not len(test.rows):
        raise NotRun(f"{len(audit.rows)} audit rows and {len(test.rows)} test rows have a label and {attribute}: ART needs both")
    finding, gating = halved(audit.rows, rng)
    return Rows(attribute, audit.rows, finding, gating, test.rows, test.views, audit.missing, test.missing)


def halved(rows: Sample, rng: np.random.Generator) -> tuple[Sample, Sample]:
    """The audit rows on which directions are found, and those on which they are gated."""
    to_find, to_gate = halves(rows.y, rows.a, rng=rng, subject=rows.subject)
    if not len(to_gate):
        raise NotRun(f"the {len(rows)} audit rows cannot be halved: directions are found on one half and gated on the other")
    return rows.select(to_find), rows.select(to_gate)


# ---- what the functions above use ----------------------------------------------------------------------------------------


def _refuse_other_codes(evidence: Evidence, attribute: Attribute) -> None:
    """Codes mean the same only where the values are listed alike, as in views of one table."""
    cohorts = []
    for name in ("audit", "twin"):
        if name in evidence.cohorts:
            cohorts.append(evidence.on(name).cohort)
    if evidence.training is not None:
        cohorts.append(evidence.training)
    for cohort in cohorts:
        if attribute.name in cohort.attributes and (levels := cohort.attribute(attribute.name).levels) != attribute.levels:
            raise DataError(
                f"{attribute.name!r} has the values {list(attribute.levels)} on test rows and {list(levels)} on {cohort.name} "
                "rows: read all of them from one table"
            )


@dataclass(frozen=True, eq=False)
class Reported:
    """The rows that are reported on, how many lack the label or the attribute, and the views that they come from."""

    rows: Sample
    missing: int
    views: tuple[View, ...]


def _test_rows(evidence: Evidence, attribute: str) -> Reported:
    view = evidence.on("test")
    test = complete(view, attribute)
    return Reported(test.rows, test.missing, (view,))


def _rows_with_twins(evidence: Evidence, attribute: str) -> Reported:
    """Each test row that has a twin, then the twins; a row and its twin are resampled together."""
    test, twin = evidence.on("test"), evidence.on("twin")
    paired, twins = test.matched(twin)
    if not len(paired):
        raise NotRun("no test row has a twin: leave twins= out", lacks="twins")
    views = test.select(paired), twin.select(twins)
    refuse_mixed_cases(views[1], attribute)
    parts = [complete(view, attribute) for view in views]
    rows = Sample(
        np.concatenate([part.rows.z for part in parts]),
        np.concatenate([part.rows.y for part in parts]),
        np.concatenate([part.rows.a for part in parts]),
        np.concatenate([part.unit for part in parts]),
    )
    missing = len(test) - len(paired) + sum(part.missing for part in parts)
    return Reported(rows, missing, views)
