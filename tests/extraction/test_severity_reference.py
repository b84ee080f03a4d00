"""The costlier of two models decides a severity: a baseline that lives on the cue does not notice lost content."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

pytest.importorskip("torch")

from rightreasons.audits.sdi.severities import DEPENDS, KEPT, REDUCED
from rightreasons.extraction import severities as calibration

pytestmark = pytest.mark.torch


def found(drop: float, reference: float | None, exclude: bool = False) -> object:
    """An operator that costs the baseline `drop` times the severity and the reference `reference` times it."""
    stage = SimpleNamespace(
        change=lambda name, s: 0.1 * s,
        inside=lambda name, s: None,
        drop=lambda name, s: drop * s,
        drop_reference=lambda name, s: None if reference is None else reference * s,
    )
    return calibration._calibrated(stage, "cast", 0.5, 0.02, exclude)


def test_an_operator_that_only_the_reference_notices_is_reduced() -> None:
    severity = found(0.0, 0.16)
    assert severity.status == REDUCED and severity.resolved
    assert severity.severity == pytest.approx(0.02 / 0.16, abs=0.01)
    assert severity.drop_reference <= 0.02


@pytest.mark.parametrize(("drop", "reference", "status"), [(0.0, 0.0, KEPT), (0.0, None, KEPT), (0.16, 0.0, DEPENDS)])
def test_the_others_stay_at_their_reference_severity(drop: float, reference: float | None, status: str) -> None:
    severity = found(drop, reference)
    assert (severity.status, severity.severity) == (status, 0.5)


def test_the_papers_rule_asks_the_baseline_alone() -> None:
    assert found(0.0, 0.16, exclude=True).status == KEPT
