"""Balanced models in the test model's place."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from rightreasons.errors import DataError
from rightreasons.stats.replicates import replicates, step

R = 30


def test_the_step_is_a_regression_over_regions():
    rng = np.random.default_rng(0)
    test, baseline, attribute = rng.normal(size=(3, R))
    literal = np.polyfit(attribute - baseline, test - baseline, 1)[0]
    assert float(step(test, baseline, attribute)) == pytest.approx(literal, abs=1e-10)
    assert float(step(baseline, baseline, attribute)) == 0
    assert float(step(attribute, baseline, attribute)) == pytest.approx(1)
    assert np.isnan(step(test, baseline, baseline + 3))


def test_the_prediction_limit_is_the_textbooks():
    rng = np.random.default_rng(1)
    pool, tests, attribute = rng.normal(size=(5, R)), rng.normal(size=(2, R)), 3 * rng.normal(size=R)
    found = replicates(tests, pool, attribute)
    steps = [float(step(pool[k], np.delete(pool, k, axis=0).mean(axis=0), attribute)) for k in range(5)]
    np.testing.assert_allclose(found.values, steps, atol=1e-12)
    tested = np.mean([step(test, pool.mean(axis=0), attribute) for test in tests])
    width = np.std(steps, ddof=1) * 4 / 5 * np.sqrt(1 / 2 + 1 / 5)
    assert found.upper == pytest.approx(np.mean(steps) + stats.t.ppf(0.95, 4) * width, abs=1e-12)
    assert found.p == pytest.approx(stats.t.sf((tested - np.mean(steps)) / width, 4), abs=1e-12)


@pytest.mark.parametrize("K", [4, 8])
@pytest.mark.parametrize("m", [1, 3])
def test_exchangeable_models_are_called_at_the_nominal_rate(K, m):
    rng = np.random.default_rng(2)
    worlds = 3_000
    task, cue = rng.normal(size=(2, R))
    called = 0
    for _ in range(worlds):
        seeds = task + rng.normal(size=(K + m, R)) * 0.7
        called += replicates(seeds[:m], seeds[m:], task + cue + 0.3 * rng.normal(size=R)).p <= 0.05
    assert 0.035 <= called / worlds <= 0.065


def test_a_model_that_moved_to_the_cue_is_found():
    rng = np.random.default_rng(3)
    task, cue = rng.normal(size=(2, R))
    found = [
        replicates((task + 0.6 * cue + 0.3 * rng.normal(size=R))[None], task + 0.3 * rng.normal(size=(6, R)), task + cue).p
        for _ in range(200)
    ]
    assert np.mean(np.array(found) <= 0.05) > 0.9


def test_undefined_cases_say_why():
    rng = np.random.default_rng(4)
    pool, attribute = rng.normal(size=(6, R)), rng.normal(size=R)
    assert "3 balanced models" in replicates(pool[:1], pool[:3], attribute).reason
    assert "all alike" in replicates(pool[:1], np.repeat(pool[:1], 4, axis=0), attribute).reason
    with pytest.raises(DataError, match="give"):
        replicates(pool[0], pool, attribute)
