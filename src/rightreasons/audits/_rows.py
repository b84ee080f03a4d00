"""The rows that an audit of decisions is about: test decisions that have a label and the attribute."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rightreasons.audits._levels import levels_of
from rightreasons.data.cohort import Attribute
from rightreasons.errors import NotRun
from rightreasons.evidence import Decisions, Evidence, View


@dataclass(frozen=True)
class AuditedRows:
    """Test decisions that have a label and, where there is one, the attribute.

    Attributes
    ----------
    attribute : of these rows; None where the cohort has none
    missing : decisions left out because they lack either
    left_out : test rows left out because the model was fitted or tuned on them
    """

    decisions: Decisions
    attribute: Attribute | None
    missing: int
    left_out: int


def audited_rows(evidence: Evidence, attribute: str | None) -> AuditedRows:
    """Test decisions with label and attribute, one per case where images form cases."""
    view = evidence.on("test")
    decisions = view.decisions()
    if decisions.cohort.attributes:
        a = decisions.cohort.attribute(attribute)
    else:
        a = None
    kept = decisions.label >= 0
    if a is not None:
        kept = kept & a.present
        refuse_mixed_cases(view, a.name)
    if not kept.any():
        raise NotRun(f"no test row has both a label and {a.name if a else 'an attribute'}")
    rows = decisions.select(np.flatnonzero(kept))
    return AuditedRows(rows, rows.cohort.attribute(a.name) if a else None, int((~kept).sum()), view.left_out)


def rows_with_values(evidence: Evidence, attribute: str | None) -> tuple[AuditedRows, Attribute]:
    """`audited_rows` for an audit that compares the values of an attribute; a number is compared by its quarters."""
    cohort = evidence.on("test").cohort
    if not cohort.attributes:
        raise NotRun("no attribute: name one with attribute=")
    named = cohort.attribute(attribute)
    rows = audited_rows(evidence, named.name)
    return rows, levels_of(evidence, named.name).of(rows.attribute or named)


def refuse_mixed_cases(view: View, attribute: str) -> None:
    """A decision over several images has one attribute value, or the audit cannot say whose decision it was."""
    if view.cohort.case is None:
        return
    seen: dict[str, float] = {}
    a = view.cohort.attribute(attribute)
    for case, value in zip(view.cohort.case, np.where(a.present, a.values, -1), strict=True):
        if case and seen.setdefault(case, value) != value:
            raise NotRun(
                f"{attribute} differs between the images of case {case!r}, and one decision has one value: leave case= out, or "
                "name an attribute of the case"
            )
