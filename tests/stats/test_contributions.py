"""Contribution maps: both directions, RCS* and the quadrant map are what the formulas say, term by term."""

from __future__ import annotations

import numpy as np
import pytest

from rightreasons.stats.contributions import contribution_maps, rcs_star, shortcut_map
from rightreasons.stats.correlation import partial


@pytest.fixture
def profiles():
    rng = np.random.default_rng(3)
    shared = rng.normal(size=60)
    return [shared + rng.normal(size=60) for _ in range(3)]


def literal_residual(a, given):
    design = np.stack([np.ones(len(a)), given], axis=1)
    return a - design @ np.linalg.lstsq(design, a, rcond=None)[0]


def literal_rcs(a, b, given):
    left, right = literal_residual(a, given), literal_residual(b, given)
    out = []
    for r in range(len(a)):
        out.append((left[r] - left.mean()) / left.std(ddof=1) * (right[r] - right.mean()) / right.std(ddof=1))
    return np.array(out), (left < 0) & (right < 0)


def test_both_directions_are_products_of_standardised_residuals(profiles):
    test, baseline, attribute = profiles
    maps = contribution_maps(test, baseline, attribute)
    np.testing.assert_allclose(maps.shortcut, literal_rcs(test, attribute, baseline)[0], atol=1e-10)
    np.testing.assert_allclose(maps.task, literal_rcs(test, baseline, attribute)[0], atol=1e-10)
    np.testing.assert_array_equal(maps.shortcut_quadrant == 0, literal_rcs(test, attribute, baseline)[1])
    assert maps.shortcut.sum() / 59 == pytest.approx(partial(test, attribute, baseline), abs=1e-12)
    assert maps.task.sum() / 59 == pytest.approx(partial(test, baseline, attribute), abs=1e-12)


def test_rcs_star_is_the_difference_of_the_normalised_maps(profiles):
    test, baseline, attribute = profiles
    first, second = literal_rcs(test, attribute, baseline)[0], literal_rcs(test, baseline, attribute)[0]
    expected = first / np.abs(first).sum() - second / np.abs(second).sum()
    np.testing.assert_allclose(rcs_star(test, baseline, attribute), expected, atol=1e-10)


def test_the_shortcut_map_holds_what_both_use_more_less_the_task(profiles):
    test, baseline, attribute = profiles
    (s, s_more), (t, t_more) = literal_rcs(test, attribute, baseline), literal_rcs(test, baseline, attribute)
    s, t = np.where(s_more, s, 0.0), np.where(t_more, t, 0.0)
    left = np.maximum(s - (s @ t) / (t @ t) * t, 0)
    found = shortcut_map(test, baseline, attribute)
    np.testing.assert_allclose(found, left / left.max(), atol=1e-10)
    assert found.min() == 0
    assert found.max() == 1
    assert not found[~s_more].any()


def test_regions_that_both_ignore_are_positive_but_no_shortcut():
    rng = np.random.default_rng(0)
    baseline, noise = rng.normal(size=(2, 40))
    cue = np.zeros(40)
    cue[:4] = 5.0  # a large rank: not important
    maps = contribution_maps(baseline + cue, baseline, 0.1 * noise + cue)
    assert (maps.shortcut[:4] > 0).all()
    assert (maps.shortcut_quadrant[:4] == 3).all()
    assert not maps.shortcut_part[:4].any()


def test_a_constant_profile_leaves_maps_undefined():
    rng = np.random.default_rng(0)
    test, attribute = rng.normal(size=(2, 20))
    assert np.isnan(contribution_maps(test, np.ones(20), attribute).shortcut).all()
    assert np.isnan(shortcut_map(test, np.ones(20), attribute)).all()


def test_maps_of_many_triplets_are_those_of_each(profiles):
    stacked = [np.stack([p, p[::-1], np.roll(p, 5)]) for p in profiles]
    for function in (rcs_star, shortcut_map):
        together = function(*stacked)
        for k in range(3):
            np.testing.assert_allclose(together[k], function(*(p[k] for p in stacked)), atol=1e-12)
