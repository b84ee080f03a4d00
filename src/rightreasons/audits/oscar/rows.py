"""The rows on which the three models are compared: test rows in which the attribute is balanced within the label (sec. IV-C)."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from rightreasons.data.cohort import Attribute, Cohort
from rightreasons.errors import NotRun
from rightreasons.evidence import View


@dataclass(frozen=True)
class Balance:
    """Which rows balancing keeps.

    Attributes
    ----------
    kept : numbers of the rows, rising
    group_sizes : (C, A) rows of every label and attribute value, before balancing
    """

    kept: np.ndarray
    group_sizes: np.ndarray


@dataclass(frozen=True)
class BalancedRows:
    """The balanced test rows of one model.

    Attributes
    ----------
    id, label, level : (n,) id, label code and attribute code of every row
    subject, slices : (n,) subject and value of the slicing column; empty where there are none
    group_sizes : (C, A) test rows of every label and attribute value, before balancing
    left_out : test rows that balancing leaves out
    missing : test rows without label or attribute
    """

    id: tuple[str, ...]
    label: np.ndarray
    level: np.ndarray
    subject: tuple[str, ...]
    slices: tuple[str, ...]
    group_sizes: np.ndarray
    left_out: int
    missing: int

    @property
    def n(self) -> int:
        return len(self.id)


def audited_attribute(view: View, attribute: str | None) -> Attribute:
    """The attribute, if it has groups that can be balanced."""
    if not view.cohort.attributes:
        raise NotRun("no attribute: name one with attribute=")
    a = view.cohort.attribute(attribute)
    if a.kind == "continuous":
        raise NotRun(f"{a.name} is continuous and OSCAR compares groups: needs bins, give bins={{{a.name!r}: […]}}")
    return a


def balance_within_label(cohort: Cohort, a: Attribute, rng: np.random.Generator) -> Balance:
    """Keep equally many rows of every attribute value within each label.

    A label that lacks an attribute value cannot be balanced and is left out; if every label lacks one, all rows stay, unbalanced.
    The draw depends on a row's id alone, so models that see the same rows keep the same ones.
    """
    salt = int(rng.integers(2**63))
    known = (cohort.label >= 0) & a.present
    if not known.any():
        raise NotRun(f"no test row has both {cohort.label_name} and {a.name}")
    sizes = np.zeros((len(cohort.classes), len(a.levels)), dtype=np.int64)
    np.add.at(sizes, (cohort.label[known], a.values[known]), 1)
    smallest = sizes.min(axis=1)
    if not smallest.any():
        return Balance(np.flatnonzero(known), sizes)
    lot = np.array([hashlib.blake2b(f"{salt} {i}".encode(), digest_size=8).digest() for i in cohort.id])
    kept = []
    for y, v in np.ndindex(*sizes.shape):
        rows = np.flatnonzero(known & (cohort.label == y) & (a.values == v))
        by_lot = rows[np.argsort(lot[rows], kind="stable")]
        kept.append(by_lot[: smallest[y]])
    return Balance(np.sort(np.concatenate(kept)), sizes)


def balanced_rows(test: View, a: Attribute, balance: Balance, slices: str | None) -> BalancedRows:
    """The rows that balancing keeps, as a measurement stores them; `slices` names the column to slice by."""
    cohort = test.select(balance.kept).cohort
    known = int(balance.group_sizes.sum())
    return BalancedRows(
        id=_texts(cohort.id),
        label=cohort.label.astype(np.int16),
        level=cohort.attribute(a.name).values.astype(np.int16),
        subject=_texts(cohort.subject),
        slices=() if slices is None else _texts(cohort.column(slices)),
        group_sizes=balance.group_sizes,
        left_out=known - len(balance.kept),
        missing=len(test) - known,
    )


def _texts(column: np.ndarray | None) -> tuple[str, ...]:
    if column is None:
        return ()
    return tuple(map(str, column))
