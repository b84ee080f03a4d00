"""Recorded values and what shows: no asymptotes where the record says what shows, those planted where it does not."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import check_grad
from scipy.special import expit

from rightreasons.stats import record
from rightreasons.stats.resampling import resamples


def rows(low=0.0, high=0.0, n=3_000, seed=0, gap=3.0):
    """Scores of what shows, the recorded value, and a label that goes with it."""
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 2, n)
    shown = np.where(rng.random(n) < 0.8, label, 1 - label)
    score = gap * (shown - 0.5) + rng.normal(size=n)
    wrong = rng.random(n) < np.where(shown == 1, high, low)
    return score / score.std(), np.where(wrong, 1 - shown, shown), label


def test_planted_shares_are_found_on_both_sides():
    found = record.curve(*rows(low=0.15, high=0.25))
    assert (found.low, found.high) == (pytest.approx(0.15, abs=0.03), pytest.approx(0.25, abs=0.03))
    assert found.ratio > 50 and found.otherwise == pytest.approx(0.2, abs=0.02)


def test_a_record_of_what_shows_has_no_asymptotes_however_faintly_it_shows():
    for seed in range(8):
        for gap in (1.0, 2.0, 5.0):
            assert record.curve(*rows(seed=seed, n=800, gap=gap)).ratio < 12


def test_the_ratio_is_a_test_of_its_level():
    beyond = [record.curve(*rows(seed=seed, n=500, gap=1.5)).ratio > 5.99 for seed in range(60)]
    assert np.mean(beyond) <= 0.1


def test_the_gradient_is_the_slope_of_the_loss():
    score, value, label = rows(0.1, 0.2, n=200)
    bins = record.binned(score, label)
    ones = np.bincount(bins.bin, value, minlength=len(bins.score))
    zeros = np.bincount(bins.bin, minlength=len(bins.score)) - ones
    loss = record._loss(bins, ones, zeros)
    at = np.array([0.3, -0.2, 1.7, 0.12, 0.2])
    assert check_grad(lambda x: loss(x)[0], lambda x: loss(x)[1], at) < 1e-3


def test_bins_hold_every_row_once_and_are_even():
    score, _, label = rows(n=1_001)
    bins = record.binned(score, label)
    sizes = np.bincount(bins.bin)
    assert sizes.sum() == 1_001 and sizes.max() - sizes.min() <= 2
    assert (bins.label[bins.bin] == label).all()
    few = record.binned(score[:9], label[:9])
    assert len(few.score) == 9 and sorted(few.score) == sorted(score[:9])


def test_the_curve_is_the_literal_formula():
    found = record.curve(*rows(0.1, 0.2))
    for s, y in ((-1.0, 0), (0.3, 1)):
        shown = expit(found.places[y] + found.slope * s)
        assert found([s], [y])[0] == pytest.approx(found.low * (1 - shown) + (1 - found.high) * shown)


def test_resamples_of_subjects_spread_the_asymptotes_around_the_estimate():
    score, value, label = rows(0.15, 0.15)
    found = record.curve(score, value, label)
    sample = resamples(len(score), rng=np.random.default_rng(1), B=60, subject=np.arange(len(score)) // 2)
    draws = record.asymptote_draws(score, value, label, sample.counts(), found)
    assert draws.shape == (60, 2)
    assert np.abs(draws.mean(axis=0) - (found.low, found.high)).max() < 0.02 and (draws.std(axis=0) < 0.05).all()
