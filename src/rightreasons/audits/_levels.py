"""Values of an attribute as levels: as they are, or by quartile where the attribute is a number."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rightreasons.data.cohort import Attribute, Cohort
from rightreasons.evidence import Evidence

QUARTERS = (0.25, 0.5, 0.75)


@dataclass(frozen=True)
class Levels:
    """Where the values of an attribute are cut; `edges` are empty for an attribute that has levels of its own."""

    edges: tuple[float, ...]

    def of(self, attribute: Attribute) -> Attribute:
        """The attribute with levels: itself, or its quarters."""
        if attribute.kind != "continuous":
            return attribute
        code = np.where(attribute.present, np.searchsorted(self.edges, attribute.values, side="left"), -1)
        return Attribute(attribute.name, "categorical", code.astype(np.int64), self.names)

    @property
    def names(self) -> tuple[str, ...]:
        if not self.edges:
            return ("all",)
        middle = [f"{low:.4g} to {high:.4g}" for low, high in zip(self.edges, self.edges[1:], strict=False)]
        return (f"up to {self.edges[0]:.4g}", *middle, f"above {self.edges[-1]:.4g}")


def levels_of(evidence: Evidence, name: str) -> Levels:
    """Quartiles of the training rows, else of the audit rows, else of the test rows: not of those reported on, if possible."""
    cohort = _rows_to_cut_by(evidence, name)
    attribute = cohort.attribute(name)
    if attribute.kind != "continuous":
        return Levels(())
    values = attribute.values[attribute.present]
    if not len(values):
        return Levels(())
    return Levels(tuple(float(edge) for edge in np.unique(np.quantile(values, QUARTERS))))


def _rows_to_cut_by(evidence: Evidence, name: str) -> Cohort:
    """The first of these rows that have the attribute: a model may be audited for a column that its training table lacks."""
    if evidence.training is not None and name in evidence.training.attributes:
        return evidence.training
    if "audit" in evidence.cohorts and name in evidence.on("audit").cohort.attributes:
        return evidence.on("audit").cohort
    return evidence.on("test").cohort
