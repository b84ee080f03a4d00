"""The rows that an audit of decisions is about: test decisions that have a label and the attribute."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rightreasons.audits._contract import refuse_mixed_cases
from rightreasons.data.cohort import Attribute
from rightreasons.errors import NotRun
from rightreasons.evidence import Decisions, Evidence


@dataclass(frozen=True)
class AuditedRows:
    """Test decisions that have a label and, where there is one, the attribute.

    Attributes
    ----------
    attribute : of these rows; None where the cohort has none
    missing : decisions left out because they lack either
    """

    decisions: Decisions
    attribute: Attribute | None
    missing: int


def audited_rows(evidence: Evidence, attribute: str | None) -> AuditedRows:
    """Test decisions with label and attribute, one per case where images form cases."""
    view = evidence.on("test")
    decisions = view.decisions()
    if not decisions.cohort.attributes:
        kept = decisions.label >= 0
        if not kept.any():
            raise NotRun("no test row has both a label and an attribute")
        return AuditedRows(decisions.select(np.flatnonzero(kept)), None, int((~kept).sum()))
    a = decisions.cohort.attribute(attribute)
    refuse_mixed_cases(view, a.name)
    kept = (decisions.label >= 0) & a.present
    if not kept.any():
        raise NotRun(f"no test row has both a label and {a.name}")
    rows = decisions.select(np.flatnonzero(kept))
    return AuditedRows(rows, rows.cohort.attribute(attribute), int((~kept).sum()))


def named_attribute(evidence: Evidence, attribute: str | None) -> Attribute:
    """The attribute of the test rows that is asked for; an audit that compares its values cannot do without one."""
    cohort = evidence.on("test").cohort
    if not cohort.attributes:
        raise NotRun("no attribute: name one with attribute=")
    a = cohort.attribute(attribute)
    if a.kind == "continuous":
        raise NotRun(f"{a.name} is continuous: needs bins")
    return a
