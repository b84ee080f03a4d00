"""Refit: the last layer on rows weighted so that no attribute says anything about the label."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from digit_worlds import cnn, digits  # noqa: E402

from rightreasons.data.cohort import Cohort  # noqa: E402
from rightreasons.errors import DataError, SettingError  # noqa: E402
from rightreasons.extraction import read  # noqa: E402
from rightreasons.mitigations import refit, tried_by_auto  # noqa: E402
from rightreasons.models.grouped_rows import Rows, grouped, score  # noqa: E402
from rightreasons.models.training import train  # noqa: E402

pytestmark = pytest.mark.torch

cohort = digits(n=600, agreement=0.9, fractions={"train": 0.3, "val": 0.15, "audit": 0.35, "test": 0.2})


@pytest.fixture(scope="module")
def biased(cohort):
    return train(cnn(), cohort, epochs=4, lr=1e-2, batch=16, seed=0, threads=1, device="cpu")


def test_the_worst_group_gains_and_the_features_stay(cohort, biased):
    new = refit.mitigate(biased, cohort, rng=np.random.default_rng(0))
    rows = grouped(new, cohort.on("test"))
    worst = [score(rows, read(m, rows.cohort, ("logits",))["logits"], "wga") for m in (biased, new)]
    assert worst[1] > worst[0] + 0.05
    features = [read(m, rows.cohort, ("features",))["features"] for m in (biased, new)]
    np.testing.assert_array_equal(*features)
    told = new.card["mitigation"]["chosen"]
    assert told["independent_of"] == ["cue"] and new.card["regime"] == "refit"
    assert not new.used & set(rows.cohort.id)


def test_the_label_is_independent_of_every_attribute_under_the_weights():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 800)
    a = np.where(rng.random(800) < 0.8, y, 1 - y)
    b = np.where(rng.random(800) < 0.7, a, rng.integers(0, 3, 800))
    columns = {"id": np.arange(800), "label": y, "a": a, "b": b}
    table = Cohort.from_columns(columns, attribute=["a", "b"])
    rows = Rows(table, y, a, "a", ((0, 1), (0, 1)), 0)
    names, weight = refit.independent_weights(rows, others=True)
    assert names == ["a", "b"]
    for values in (a, b):
        for v in np.unique(values):
            assert np.average(y[values == v], weights=weight[values == v]) == pytest.approx(0.5, abs=1e-4)
    assert refit.independent_weights(rows, others=False)[0] == ["a"]


def test_what_it_cannot_use_is_refused(cohort, biased):
    with pytest.raises(SettingError, match="penalties above 0"):
        refit.mitigate(biased, cohort, rng=np.random.default_rng(0), C=[0.0])
    rows = Rows(cohort, cohort.label, None, "", ((0, 1), ()), 0)
    with pytest.raises(DataError, match="no attribute that makes groups"):
        refit.independent_weights(rows, others=True)


def test_auto_tries_the_last_layer_and_with_training_more():
    assert set(tried_by_auto(train=False)) == {"art_head", "dfr", "refit"}
    assert set(tried_by_auto(train=True)) >= {"balanced", "groupdro", "jtt"}
