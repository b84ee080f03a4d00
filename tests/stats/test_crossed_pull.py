"""The crossed pull: the same numbers as `groups.pull` half by half, and no direction made of chance."""

from __future__ import annotations

import numpy as np
import pytest

from rightreasons.stats import groups, totals
from rightreasons.stats.crossed_pull import crossed, crossed_pull, level_of
from rightreasons.stats.exchanged_pull import crossed_pull_null
from rightreasons.stats.resampling import exchange_within_label, interval, resamples, whole


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


@pytest.mark.parametrize("values", [2, 3])
def test_of_sums_it_is_the_same(values):
    y, p, a, rng = rows(0.8, values=values)
    found = crossed(y, p, a, None, rng)
    sample = resamples(len(y), rng=rng, B=50)
    value, drawn = totals.draws([found.formula(y, p, a)], sample)
    assert value[0] == pytest.approx(crossed_pull(y, p, a, found.half))
    assert drawn[:, 0] == pytest.approx(sample.apply(lambda counts: found.draws(y, p, a, counts)))
    nobody = np.zeros_like(a)
    assert np.isnan(totals.draws([crossed(y, p, nobody, None, rng).formula(y, p, nobody)], sample)[0][0])


@pytest.mark.parametrize("by_subject", [False, True])
def test_its_null_from_sums_is_that_of_permuted_rows(by_subject):
    y, p, a, rng = rows(0.5, n=900, values=3)
    who = None
    if by_subject:
        who = rng.integers(0, 300, 900)
        a = rng.integers(0, 3, 300)[who]
    half = crossed(y, p, a, who, rng).half
    exchange = exchange_within_label(y, a, who)
    null = np.concatenate(list(crossed_pull_null(y, p, a, half, exchange, rng=rng, B=1500)))
    literal = [crossed_pull(y, p, a[order], half) for order in exchange.permutations(1000, rng)]
    assert len(null) == 1500
    assert null.mean() == pytest.approx(np.mean(literal), abs=6 * np.std(literal) / np.sqrt(1000))
    assert null.std() == pytest.approx(np.std(literal), rel=0.12)
