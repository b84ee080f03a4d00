"""Several attributes of one model: which explains which, which cannot be told apart, and which are both used."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from rightreasons.findings import Estimate, Finding

Relation: TypeAlias = Literal["explained by", "not told from", "used beside"]
RELATION_OF: dict[bool | None, Relation] = {True: "explained by", None: "not told from", False: "used beside"}
"""What it means that another attribute is, may be, or is not the reason why answers follow this one."""


@dataclass(frozen=True)
class Companion:
    """Another attribute that goes with this one.

    Attributes
    ----------
    relation : whether it explains this one, cannot be told from it, or is used as well
    estimate : what it still has where rows are alike in this attribute
    """

    attribute: str
    relation: Relation
    estimate: Estimate


def companions_of(findings: Iterable[Finding]) -> tuple[Companion, ...]:
    """The companions that findings about one attribute name, each once; an audit that came first is believed."""
    found: dict[str, Companion] = {}
    for finding in findings:
        for uneven in finding.unevenness:
            if uneven.kind == "companion" and uneven.companion:
                relation = RELATION_OF[uneven.present]
                found.setdefault(uneven.companion, Companion(uneven.companion, relation, uneven.estimate))
    return tuple(found.values())


def related(companions: Iterable[Companion], relation: Relation) -> list[str]:
    """The attributes that stand in one relation to this one."""
    return [companion.attribute for companion in companions if companion.relation == relation]


# ---- one attribute among the others --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Among:
    """How far answers follow one attribute, and how far the model uses it; None where that was not measured.

    Attributes
    ----------
    following_within, use_within : the same among rows that are alike in all other attributes
    """

    following: Estimate | None = None
    following_within: Estimate | None = None
    use: Estimate | None = None
    use_within: Estimate | None = None

    @property
    def is_known(self) -> bool:
        return self.use is not None or self.following is not None


IDS = ("following", "following within", "use", "use within")
"""The ids of the estimates that audits give of an attribute among others, in the order of `Among`."""


def among_of(findings: Sequence[Finding]) -> Among:
    """What findings about one attribute say of it among the others."""
    known: dict[str, Estimate] = {}
    for finding in findings:
        for estimate in finding.estimates:
            if estimate.id:
                known.setdefault(estimate.id, estimate)
    return Among(*(known.get(name) for name in IDS))
