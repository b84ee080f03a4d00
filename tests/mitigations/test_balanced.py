"""Balanced training: equal groups, by leaving rows out or by weight."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from rightreasons.errors import DataError, SettingError  # noqa: E402
from rightreasons.mitigations import _check, mitigate  # noqa: E402
from rightreasons.mitigations.balanced import balance  # noqa: E402
from rightreasons.models.grouped_rows import grouped  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def cohort(tmp_path_factory):
    return _check.world(tmp_path_factory.mktemp("world"), 3)


@pytest.fixture(scope="module")
def model(cohort):
    return _check._trained("cnn", cohort)


def _train_rows(cohort, model):
    rows = grouped(model, cohort.on("train"), "cue")
    return rows, np.flatnonzero(cohort.splits == "train")


def test_subsampling_leaves_as_many_rows_of_every_group_as_the_smallest_has(cohort, model) -> None:
    weights, chosen = balance(model, cohort, "cue", "subsample", np.random.default_rng(0))
    rows, places = _train_rows(cohort, model)
    kept = np.bincount(rows.group[weights[places] > 0], minlength=6)
    assert chosen["rows per group"] == 16
    assert (kept == 16).all()
    assert (weights[cohort.splits != "train"] == 0).all()


def test_reweighting_keeps_all_rows_and_gives_every_group_the_same_sum(cohort, model) -> None:
    weights, _ = balance(model, cohort, "cue", "reweight", np.random.default_rng(0))
    rows, places = _train_rows(cohort, model)
    w = weights[places]
    assert (w > 0).all()
    np.testing.assert_allclose(np.bincount(rows.group, weights=w), len(rows) / 6)
    # the literal formula: n / (G n_g)
    size = np.bincount(rows.group)
    np.testing.assert_allclose(w, len(rows) / (6 * size[rows.group]))


def test_only_the_rows_that_were_kept_are_used(cohort, model) -> None:
    new = mitigate("balanced", model, cohort, epochs=1, batch=32, device="cpu", threads=1, workers=1)
    split = dict(zip(cohort.id, cohort.splits, strict=True))
    counted = {name: sum(split[i] == name for i in new.used) for name in ("train", "val", "audit", "test")}
    assert counted == {"train": 6 * 16, "val": 6 * 12, "audit": 0, "test": 0}
    assert new.card["mitigation"]["selected_by"] == "validation WGA"
    assert new.card["mitigation"]["chosen"]["epoch"] == 1


def test_a_group_without_rows_cannot_be_balanced(cohort, model) -> None:
    gone = (cohort.splits == "train") & (cohort.label == 1) & (cohort.attribute("cue").values == 0)
    with pytest.raises(DataError, match="label=1, cue=0: 0"):
        balance(model, cohort.select(~gone), "cue", "subsample", np.random.default_rng(0))


def test_other_ways_of_balancing_are_refused(cohort, model) -> None:
    with pytest.raises(SettingError, match="subsample or reweight"):
        mitigate("balanced", model, cohort, how="upsample")
