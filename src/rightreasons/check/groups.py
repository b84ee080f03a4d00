"""How many rows each (label, attribute) group has, and which audits want more. How many they want, the audits say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from rightreasons.audits import art, short
from rightreasons.check import words
from rightreasons.check.columns import rows_by_split
from rightreasons.data.schema import Problem, Table
from rightreasons.families import settings_of
from rightreasons.stats.groups import SMALLEST_GROUP


@dataclass(frozen=True)
class Least:
    """How many rows a group must have, and what happens below."""

    rows: int
    otherwise: str


ART_LEAST = settings_of(art.measure)["n_min"]
SHORT_LEAST = settings_of(short.conclude)["smallest_group"]

TRAIN = (Least(1, "balancing and the group mitigations need every group"),)
AUDIT = (Least(ART_LEAST, f"ART's gate closes below n_min = {ART_LEAST}"),)
TEST = (
    Least(1, "OSCAR is inconclusive with an empty group"),
    Least(SMALLEST_GROUP, f"worst-group accuracy leaves out groups below {SMALLEST_GROUP}"),
    Least(SHORT_LEAST, f"ShorT is inconclusive below {SHORT_LEAST} a subgroup"),
)
BY_SPLIT = {"train": TRAIN, "audit": AUDIT, "test": TEST}
STILL_TO_SPLIT = tuple(sorted((*TEST, *AUDIT), key=lambda least: (least.rows, least.otherwise)))


def group_sizes(table: Table) -> Iterator[dict[str, Any]]:
    """Rows per label, and per label and level of every attribute that has levels; of all rows ('') and of every split."""
    if table.schema.label is None:
        return
    classes = table.schema.classes
    scopes = {"": np.arange(len(table.frame)), **rows_by_split(table)}
    for split, rows in scopes.items():
        sizes = np.bincount(table.label[rows] + 1, minlength=len(classes) + 1)[1:]
        for label, n in zip(classes, sizes, strict=True):
            yield {"attribute": "", "split": split, "label": label, "level": "", "n": int(n)}
    for name, a in table.attributes.items():
        if a.kind != "categorical":
            continue
        for split, rows in scopes.items():
            known = rows[(table.label[rows] >= 0) & a.present[rows]]
            sizes = np.zeros((len(classes), len(a.levels)), dtype=np.int64)
            np.add.at(sizes, (table.label[known], a.values[known]), 1)
            for (c, v), n in np.ndenumerate(sizes):
                yield {"attribute": name, "split": split, "label": classes[c], "level": a.levels[v], "n": int(n)}


def group_problems(table: Table, groups: Iterable[Mapping[str, Any]]) -> Iterator[Problem]:
    """Groups too small for an audit, in the splits where it looks; without splits, in the half that would be its own."""
    has_splits = table.schema.split is not None
    for group in groups:
        split, n = group["split"], group["n"]
        if not group["attribute"] or has_splits != bool(split):
            continue
        in_its_split = n if has_splits else n // 2
        wanted = BY_SPLIT.get(split, ()) if has_splits else STILL_TO_SPLIT
        lacks = [least.otherwise for least in wanted if in_its_split < least.rows]
        if lacks:
            where = f" in split {split!r}" if has_splits else _once_halved(n)
            what = f"{table.schema.label}={group['label']}, {group['attribute']}={group['level']}"
            message = f"group {what} has {words.rows(n)}{where}: {'; '.join(lacks)}"
            kind = _kind(n, in_its_split)
            level: Literal["warning", "info"] = "info" if kind == "small-group" else "warning"
            yield Problem(message, None, group["attribute"], level, kind)


def _once_halved(n: int) -> str:
    return f", about {n // 2} of them in test once the rows are halved" if n else ""


def _kind(n: int, in_its_split: int) -> str:
    if n == 0:
        return "empty-group"
    return "tiny-group" if in_its_split < SMALLEST_GROUP else "small-group"
