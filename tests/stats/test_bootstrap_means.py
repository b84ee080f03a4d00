"""Means of columns with gaps: the point is a plain mean, rows without a value count nowhere, shares of 0 and 1 keep a width."""

from __future__ import annotations

import numpy as np
import pytest

from rightreasons.errors import DataError
from rightreasons.stats.bootstrap_means import column_means


def test_the_value_is_the_mean_of_what_is_defined(rng):
    values = rng.normal(2.0, 1.0, 300)
    values[::3] = np.nan
    found = column_means({"a": values, "b": np.full(300, np.nan)}, rng=rng, B=500)
    assert found["a"].value == pytest.approx(np.nanmean(values), abs=1e-12)
    half = 1.96 * np.nanstd(values) / np.sqrt(200)
    assert found["a"].high - found["a"].low == pytest.approx(2 * half, rel=0.15)
    assert np.isnan(found["b"].value) and found["b"].reason == "no row has a value"


def test_shares_of_which_all_agree_keep_an_interval_and_subjects_widen_it(rng):
    ones, who = np.ones(40), np.repeat(np.arange(8).astype(str), 5)
    alone, grouped = (column_means({"x": ones}, rng=rng, subject=s, shares=("x",), B=100)["x"] for s in (None, who))
    assert grouped.low < alone.low < 1.0 == alone.high
    plain = column_means({"x": ones}, rng=rng, B=100)["x"]
    assert plain.low == plain.high == 1.0


def test_nothing_in_nothing_out_and_ragged_columns_are_refused(rng):
    assert column_means({}, rng=rng) == {}
    assert np.isnan(column_means({"x": []}, rng=rng)["x"].value)
    with pytest.raises(DataError, match="same rows"):
        column_means({"x": [1.0], "y": [1.0, 2.0]}, rng=rng)
