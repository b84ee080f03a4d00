"""The pull within other attributes is the coefficient of a regression within every label."""

from __future__ import annotations

import numpy as np
import pytest

from rightreasons.stats import groups
from rightreasons.stats.partial_pull import partial_pull_draws
from rightreasons.stats.resampling import resamples, whole


def rows(n=600, seed=0, goes_with=0.8):
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 2, n)
    cue = rng.integers(0, 2, n)
    proxy = np.where(rng.random(n) < goes_with, cue, 1 - cue)
    p = np.clip(0.3 + 0.3 * label + 0.2 * cue + 0.05 * rng.normal(size=n), 0, 1)
    return label, np.stack([1 - p, p], axis=1), cue, proxy


def literal(label, probability, attribute, aligned, others):
    """Least squares within every label, value by value."""
    values = []
    for value, column in aligned.items():
        effects = []
        for y in np.unique(label):
            here = np.flatnonzero(label == y)
            design = [np.ones(len(here)), (attribute[here] == value).astype(float)]
            for other in others:
                design += [(other[here] == level).astype(float) for level in np.unique(other)[1:]]
            effects.append(np.linalg.lstsq(np.stack(design, axis=1), probability[here, column], rcond=None)[0][1])
        values.append(np.mean(effects))
    return np.mean(values)


def one(*given):
    return float(partial_pull_draws(*given, whole(len(given[0])))[0])


def test_it_is_the_literal_regression_with_several_others_of_several_values():
    label, p, cue, proxy = rows()
    third = np.random.default_rng(3).integers(0, 4, len(label))
    aligned = {0: 0, 1: 1}
    for others in ([proxy], [proxy, third]):
        assert one(label, p, cue, aligned, others) == pytest.approx(literal(label, p, cue, aligned, others), abs=1e-9)


def test_without_others_it_is_the_pull():
    label, p, cue, _ = rows()
    assert one(label, p, cue, {1: 1}, []) == pytest.approx(groups.pull(label, p, cue, {1: 1}), abs=1e-12)


def test_a_proxy_loses_its_pull_within_the_cue_and_the_cue_keeps_its_own():
    label, p, cue, proxy = rows(3_000)
    assert groups.pull(label, p, proxy, {1: 1}) > 0.1
    assert abs(one(label, p, proxy, {1: 1}, [cue])) < 0.02
    assert one(label, p, cue, {1: 1}, [proxy]) == pytest.approx(0.2, abs=0.02)


def test_two_that_always_go_together_are_undefined():
    label, p, cue, _ = rows()
    assert np.isnan(one(label, p, cue, {1: 1}, [cue]))


def test_a_resample_is_the_regression_on_repeated_rows():
    label, p, cue, proxy = rows(200)
    sample = resamples(200, rng=np.random.default_rng(0), B=5, subject=np.arange(200) // 2)
    draws = partial_pull_draws(label, p, cue, {1: 1}, [proxy], sample.counts())
    for counts, draw in zip(sample.counts(), draws, strict=True):
        picked = np.repeat(np.arange(200), counts)
        assert draw == pytest.approx(literal(label[picked], p[picked], cue[picked], {1: 1}, [proxy[picked]]), abs=1e-9)


def test_values_that_stand_for_nothing_are_undefined():
    label, p, cue, proxy = rows(100)
    assert np.isnan(one(label, p, cue, {}, [proxy]))
