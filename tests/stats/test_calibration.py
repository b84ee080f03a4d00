"""Calibration error, Brier score and reliability curve."""

from __future__ import annotations

import numpy as np
import pytest

from rightreasons.errors import DataError
from rightreasons.stats import calibration as cal
from rightreasons.stats import resampling


def literal_ece(p: np.ndarray, y: np.ndarray) -> float:
    confidence, right = p.max(axis=1), p.argmax(axis=1) == y
    total = 0.0
    for k in range(15):
        inside = (confidence >= k / 15) & ((confidence < (k + 1) / 15) | (k == 14))
        if inside.any():
            total += inside.mean() * abs(right[inside].mean() - confidence[inside].mean())
    return total


@pytest.fixture
def rows() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 4, 500)
    return cal.probabilities(rng.normal(size=(500, 4)) + 2 * np.eye(4)[y]), y


def test_one_logit_is_read_as_zero_and_z() -> None:
    p = cal.probabilities([0.0, 3.0])
    np.testing.assert_allclose(p[:, 1], [0.5, 1 / (1 + np.exp(-3))])
    np.testing.assert_allclose(cal.probabilities([[1000.0, -1000.0]]), [[1, 0]])


def test_ece_equals_the_definition(rows: tuple) -> None:
    assert cal.ece(*rows) == pytest.approx(literal_ece(*rows), abs=1e-12)


def test_a_confidence_of_one_belongs_to_the_last_bin() -> None:
    assert cal.ece([[0.0, 1.0], [0.0, 1.0]], [1, 0]) == pytest.approx(0.5)
    curve = cal.reliability([[0.0, 1.0], [0.0, 1.0]], [1, 0])
    assert curve.count[-1] == 2
    assert curve.accuracy[-1] == 0.5
    assert np.isnan(curve.accuracy[:-1]).all()


def test_a_perfect_forecast_has_no_error_and_the_worst_a_brier_of_two() -> None:
    p = np.eye(3)[[0, 1, 2]]
    assert cal.ece(p, [0, 1, 2]) == 0
    assert cal.brier(p, [0, 1, 2]) == 0
    assert cal.brier(p, [1, 2, 0]) == 2


def test_draws_equal_the_metric_on_the_repeated_rows(rows: tuple) -> None:
    p, y = rows
    counts = resampling.resamples(500, rng=np.random.default_rng(1), B=10).counts()
    repeated = [np.repeat(np.arange(500), row) for row in counts]
    np.testing.assert_allclose(cal.ece_draws(p, y, counts), [literal_ece(p[r], y[r]) for r in repeated], atol=1e-12)
    np.testing.assert_allclose(cal.brier_draws(p, y, counts), [cal.brier(p[r], y[r]) for r in repeated], atol=1e-12)


def test_no_rows_are_undefined() -> None:
    assert np.isnan(cal.ece(np.zeros((0, 2)), np.zeros(0, int)))
    assert np.isnan(cal.brier(np.zeros((0, 2)), np.zeros(0, int)))
    assert np.isnan(cal.ece_draws([[0.5, 0.5]], [0], np.zeros((1, 1), int))[0])


@pytest.mark.parametrize(
    ("p", "y", "what"),
    [([[2.0, -3.0]], [0], "logits become"), ([[0.5, 0.5]], [-1], "codes 0..1"), ([[0.5, 0.5]], [0, 1], "expected")],
)
def test_what_is_no_probability_or_code_is_refused(p: list, y: list, what: str) -> None:
    with pytest.raises(DataError, match=what):
        cal.ece(p, y)
