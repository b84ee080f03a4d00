"""Checks that several audits make of their rows, and of which way to look."""

from __future__ import annotations

from rightreasons.audits._alignment import UNKNOWN_TRAINING
from rightreasons.findings import Check


def enough_rows(n: int, fewest: int) -> Check:
    return Check(id="rows", name=f"at least {fewest} test rows", passed=n >= fewest, note=f"{n} rows", decides=True)


def has_direction(is_defined: bool, aligned: str, source: str) -> Check:
    """Whether there is a label to be drawn to: `aligned` in words, empty where no value stands for one, and its source."""
    return Check(
        id="direction",
        name="a value of the attribute stands for a label",
        passed=is_defined,
        note=f"{aligned} ({source})" if aligned else source,
        decides=True,
    )


def training_rows_known(is_known: bool) -> Check:
    note = "" if is_known else UNKNOWN_TRAINING
    return Check(id="training rows", name="training rows known", passed=is_known, note=note)


def complete_rows(missing: int) -> Check:
    note = f"{missing} rows left out" if missing else ""
    return Check(id="complete rows", name="every row has a label and the attribute", passed=not missing, note=note)
