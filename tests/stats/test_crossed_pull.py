"""The crossed pull: the same numbers as `groups.pull` half by half, and no direction made of chance."""

from __future__ import annotations

import numpy as np
import pytest

from rightreasons.stats import groups
from rightreasons.stats.crossed_pull import crossed, crossed_pull, level_of
from rightreasons.stats.resampling import interval, resamples, whole


def rows(effect, n=300, values=2, seed=0):
    rng = np.random.default_rng(seed)
    y, a = rng.integers(0, 2, n), rng.integers(0, values, n)
    z = (2 * y - 1) + effect * (2 * (a == 0) - 1) + rng.normal(size=n)
    p = 1 / (1 + np.exp(-z))
    return y, np.stack([1 - p, p], axis=1), a, rng


@pytest.mark.parametrize("values", [2, 3])
def test_it_is_the_pull_of_each_half_in_the_direction_of_the_other(values):
    y, p, a, rng = rows(0.8, values=values)
    found = crossed(y, p, a, None, rng)
    literal = []
    for half in (0, 1):
        own, other = found.half == half, found.half != half
        towards = groups.aligned_by_pull(y[other], p[other], a[other])
        assert found.towards[half] == towards
        literal.append(groups.pull(y[own], p[own], a[own], towards))
    assert crossed_pull(y, p, a, found.half) == pytest.approx(np.mean(literal), abs=1e-12)
    assert found.draws(y, p, a, whole(len(y)))[0] == pytest.approx(np.mean(literal), abs=1e-12)
    assert found.agreed[0] == 1


def test_subjects_stay_in_one_half():
    y, p, a, rng = rows(1.0)
    who = np.array([f"s{i // 3}" for i in range(len(y))], dtype=object)
    half = crossed(y, p, a, who, rng).half
    assert all(len(set(half[who == name])) == 1 for name in set(who))


def test_chance_has_no_direction():
    values, lows = [], []
    for seed in range(300):
        y, p, a, rng = rows(0.0, n=120, seed=seed)
        found = crossed(y, p, a, None, rng)
        pull = crossed_pull(y, p, a, found.half)
        draws = resamples(len(y), rng=rng, B=200).apply(lambda counts, f=found, y=y, p=p, a=a: f.draws(y, p, a, counts))
        values.append(pull)
        lows.append(interval(pull, draws, level_of(0.95)).low)
    assert abs(np.nanmean(values)) < 3 * np.nanstd(values) / np.sqrt(300)  # one learnt on the same rows would lie above zero
    assert np.mean(np.array(lows) > 0) <= 0.05


def test_without_rows_of_both_values_it_is_undefined():
    y, p, a, rng = rows(0.0)
    found = crossed(y, p, np.zeros_like(a), None, rng)
    assert np.isnan(crossed_pull(y, p, np.zeros_like(a), found.half))
    assert np.isnan(found.draws(y, p, np.zeros_like(a), whole(len(y)))[0])
