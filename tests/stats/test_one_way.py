"""The part of a change that goes one way: a slow twin of the formula, what disturbs and what draws, and how often it is wrong."""

from __future__ import annotations

import numpy as np
import pytest

from rightreasons.stats.one_way import Steps, along, halves, one_way, ways


def literal(difference, steps, first):
    """For every row: the label of the largest mean signed change of its step in the other half, and the change towards it."""
    found = []
    for row in range(len(difference)):
        others = [k for k in range(len(difference)) if first[k] != first[row] and steps.step[k] == steps.step[row]]
        if steps.step[row] < 0 or not others:
            found.append(np.nan)
            continue
        mean = [sum(steps.sign[k] * difference[k, c] for k in others) / len(others) for c in range(difference.shape[1])]
        label = max(range(len(mean)), key=lambda c: abs(mean[c]))
        way = 1 if mean[label] >= 0 else -1
        found.append(way * steps.sign[row] * difference[row, label])
    return np.array(found)


def drawn(rng, n, classes, steps):
    difference = rng.normal(size=(n, classes))
    difference -= difference.mean(axis=1, keepdims=True)
    return difference, Steps(rng.integers(-1, steps, n), rng.choice([-1.0, 1.0], n))


@pytest.mark.parametrize("classes, steps", [(3, 1), (4, 3), (3, 6)])
def test_it_is_the_literal_formula(rng, classes, steps):
    difference, between = drawn(rng, 60, classes, steps)
    first = halves(60, None, rng)
    assert np.allclose(one_way(difference, between, first), literal(difference, between, first), equal_nan=True)


def test_halves_keep_subjects_whole_and_are_equal_in_size(rng):
    subject = np.repeat([f"s{i}" for i in range(20)], rng.integers(1, 9, 20))
    first = halves(len(subject), subject, rng)
    assert all(len(set(first[subject == s])) == 1 for s in np.unique(subject))
    assert sum(first[subject == s][0] for s in np.unique(subject)) == 10
    assert halves(41, None, rng).sum() == 20


def test_a_step_that_the_other_half_does_not_make_has_no_direction(rng):
    difference, _ = drawn(rng, 10, 2, 1)
    steps = Steps(np.array([0] * 5 + [1] * 5), np.ones(10))
    first = np.arange(10) < 5
    assert np.isnan(one_way(difference, steps, first)).all()
    assert set(ways(difference, steps, first)) == {0} and np.isnan(along(difference, steps, {})).all()


def test_the_larger_of_rising_and_falling_is_the_way():
    difference = np.array([[0.1, 0.2, -0.3]])
    (way,) = ways(difference, Steps(np.array([0]), np.array([1.0])), np.array([True])).values()
    assert (way.label, way.sign) == (2, -1.0)
    (way,) = ways(-difference, Steps(np.array([0]), np.array([1.0])), np.array([True])).values()
    assert (way.label, way.sign) == (2, 1.0)


def test_chance_cannot_choose_its_own_direction():
    """Learnt on the very rows, the mean is positive in every world; learnt on the others it is as often negative."""
    naive, crossed = [], []
    for seed in range(300):
        rng = np.random.default_rng(seed)
        difference, steps = drawn(rng, 40, 2, 1)
        first = halves(40, None, rng)
        naive.append(np.nanmean(along(difference, steps, ways(difference, steps, np.ones(40, bool)))))
        crossed.append(np.nanmean(one_way(difference, steps, first)))
    assert min(naive) >= 0
    assert abs(np.mean(np.array(crossed) > 0) - 0.5) < 0.1
