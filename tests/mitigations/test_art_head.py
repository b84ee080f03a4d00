"""ART-head: restored features no longer move the decision, the features stay, and which rows it touches."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from digit_worlds import cnn, digits, vit  # noqa: E402
from sklearn.linear_model import LogisticRegression  # noqa: E402

from rightreasons.audits.art import find, restore  # noqa: E402
from rightreasons.errors import DataError, SettingError  # noqa: E402
from rightreasons.extraction import read  # noqa: E402
from rightreasons.mitigations import art_head  # noqa: E402
from rightreasons.mitigations._last_layer import l2_heads  # noqa: E402
from rightreasons.models.grouped_rows import grouped  # noqa: E402
from rightreasons.models.training import train  # noqa: E402

pytestmark = pytest.mark.torch

SHARES = {"train": 0.3, "val": 0.15, "audit": 0.45, "test": 0.1}


cohort = digits(n=600, agreement=0.9, fractions=SHARES)
three = digits(n=900, three=True, fractions=SHARES)


@pytest.fixture(scope="module")
def biased(cohort):
    return train(cnn(), cohort, epochs=4, lr=1e-2, batch=16, seed=0, threads=1, device="cpu")


def wrong_towards_the_cue(model, cohort, z, rows):
    """Share of conflicting rows that are given the label of their cue."""
    decided = model.head_data(z.astype(np.float32)).argmax(1)
    conflict = rows.y != rows.a
    return (decided == rows.a)[conflict].mean()


def test_restoring_other_rows_directions_no_longer_moves_the_decision(cohort, biased):
    new = art_head.mitigate(biased, cohort, rng=np.random.default_rng(0), n_min=5)
    audit = cohort.on("audit")
    rest = grouped(new, audit.select(~np.isin(audit.id.astype(str), sorted(new.used))))
    assert 100 < len(rest) < len(audit)
    z = read(new, rest.cohort, ("features",))["features"]
    np.testing.assert_array_equal(z, read(biased, rest.cohort, ("features",))["features"])
    restored = restore(z, rest.y, find(z, rest.y, rest.a), 2.0)
    before = [wrong_towards_the_cue(biased, cohort, features, rest) for features in (z, restored)]
    after = [wrong_towards_the_cue(new, cohort, features, rest) for features in (z, restored)]
    assert before[1] - before[0] > 0.1
    assert after[1] - after[0] < 0.05
    assert after[0] < before[0]


@pytest.mark.parametrize("which", ["cnn", "vit"])
def test_only_the_last_layer_changes_and_the_old_model_stays(which, cohort, biased, three):
    old, rows = (biased, cohort) if which == "cnn" else (vit(three.classes), three)
    before = old.fingerprint
    new = art_head.mitigate(old, rows, rng=np.random.default_rng(0), n_min=3, tau=0.01)
    assert old.fingerprint == before != new.fingerprint
    changed = [k for k, v in new.module.state_dict().items() if not torch.equal(v, old.module.state_dict()[k])]
    assert {name.rsplit(".", 1)[0] for name in changed} == {old.cut.head[-1]}
    audit = set(rows.on("audit").id)
    assert new.used >= set(rows.on("val").id) | old.used
    assert abs(len(new.used & audit) - len(audit) / 2) <= 9
    assert not new.used & set(rows.on("test").id)
    told = new.card["mitigation"]
    assert (new.card["regime"], told["selected_by"]) == ("art_head", "validation WGA")
    assert any(state.startswith("open") for state in told["chosen"]["gates"].values())
    new.verify()


@pytest.mark.parametrize("classes", [2, 3])
def test_a_refitted_head_is_the_logistic_regression_of_standardised_inputs(classes, rng):
    y = np.arange(90) % classes
    x = rng.normal(3, 2, (90, 5)) + y[:, None]
    z = (x - x.mean(0)) / x.std(0)
    expected = LogisticRegression(C=0.1, max_iter=2000).fit(z, y).predict_proba(z)
    logits = l2_heads(x, y, [0.1], classes)[0.1](x)
    np.testing.assert_allclose(torch.softmax(torch.as_tensor(logits), 1).numpy(), expected, atol=1e-5)


def test_closed_gates_are_told_and_not_passed_over(cohort, biased):
    with pytest.raises(DataError, match=r"every gate is closed .*too few rows"):
        art_head.mitigate(biased, cohort, rng=np.random.default_rng(0), n_min=500)
    with pytest.raises(SettingError, match="beta"):
        art_head.mitigate(biased, cohort, rng=np.random.default_rng(0), beta=0.0)


def test_the_control_without_restored_rows_is_fitted_and_scored_every_time(cohort, biased):
    told = art_head.mitigate(biased, cohort, rng=np.random.default_rng(0), n_min=5).card["mitigation"]["chosen"]
    control = told["control"]
    assert 0 <= control["clean"] <= 1 and 0 <= control["restored"] <= 1
    assert told["beats_control"] == (told["wga"] > control["wga"])
    assert told["restored"] >= control["restored"] - 0.05  # what it was fitted for
