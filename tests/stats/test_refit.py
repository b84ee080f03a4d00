"""Refit: weights under which the attribute says nothing, the penalised head of them, and two heads made equally sharp."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import log_softmax, softmax
from sklearn.linear_model import LogisticRegression

from rightreasons.errors import DataError
from rightreasons.stats import refit
from rightreasons.stats.resampling import subject_codes


def rows(n=400, seed=0, C=2, p=5):
    rng = np.random.default_rng(seed)
    label = rng.integers(0, C, n)
    cue = np.where(rng.random(n) < 0.8, label % 2, 1 - label % 2)
    z = rng.normal(size=(n, p))
    z[:, 0] += label
    z[:, 1] += 2 * cue
    return z, label, cue, rng


def literal_raking(label, attributes, steps=2_000):
    """Row by row: divide by what its cell weighs, attribute after attribute, over and over."""
    weight = [1.0] * len(label)
    for _ in range(steps):
        for attribute in attributes:
            total = {}
            for w, y, a in zip(weight, label, attribute, strict=True):
                total[y, a] = total.get((y, a), 0.0) + w
            weight = [w / total[y, a] for w, y, a in zip(weight, label, attribute, strict=True)]
    return np.array(weight) * len(weight) / sum(weight)


def test_raked_weights_are_those_of_the_literal_procedure():
    _, label, cue, rng = rows(80)
    other = rng.integers(0, 3, 80)
    assert refit.raked_weights(label, [cue]) == pytest.approx(literal_raking(label, [cue], 1))
    both = refit.raked_weights(label, [cue, other])
    assert both == pytest.approx(literal_raking(label, [cue, other]), rel=1e-3)


def test_every_cell_of_every_attribute_weighs_the_same():
    _, label, cue, rng = rows(500)
    other = np.where(rng.random(500) < 0.7, cue, rng.integers(0, 3, 500))
    weight = refit.raked_weights(label, [cue, other])
    for attribute in (cue, other):
        cells = np.array([[weight[(label == y) & (attribute == a)].sum() for a in np.unique(attribute)] for y in (0, 1)])
        assert np.ptp(cells) < 1e-4 * cells.mean()
    assert weight.mean() == pytest.approx(1)


def test_weights_begin_with_how_often_a_row_was_drawn():
    _, label, cue, _ = rows(200)
    drawn = np.random.default_rng(1).poisson(1.0, 200)
    picked = np.repeat(np.arange(200), drawn)
    repeated = refit.raked_weights(label[picked], [cue[picked]])
    base = refit.raked_weights(label, [cue], drawn)
    shares = np.bincount(picked, repeated, minlength=200)
    assert base / base.sum() == pytest.approx(shares / shares.sum(), abs=1e-9)


def test_rows_without_a_value_are_refused():
    with pytest.raises(DataError, match="leave them out"):
        refit.raked_weights([0, 1, 1], [[0, -1, 1]])


@pytest.mark.parametrize("penalty", [1.0, 1e-2, 1e-4])
@pytest.mark.parametrize("C", [2, 3])
def test_the_head_is_the_penalised_logistic_fit(penalty, C):
    z, label, cue, _ = rows(C=C)
    weight = refit.raked_weights(label, [cue])
    head = refit.fitted(z, label, C, weight, penalty)
    # scikit-learn sums the losses and divides by C; with two classes it fits one row, whose penalty is half of ours.
    strength = 1 / (penalty * weight.sum()) * (2 if C == 2 else 1)
    theirs = LogisticRegression(C=strength, tol=1e-9, max_iter=5_000).fit(z, label, sample_weight=weight)
    expected = theirs.predict_proba(z)
    assert softmax(head(z), axis=1) == pytest.approx(expected, abs=2e-3)


def test_the_penalty_has_the_least_loss_of_held_out_subjects():
    z, label, cue, _ = rows(300)
    subject = np.array([f"s{i // 3}" for i in range(300)])
    weight = refit.raked_weights(label, [cue])
    head = refit.refit(z, label, 2, weight, rng=np.random.default_rng(5), subject=subject)
    fold = np.random.default_rng(5).integers(refit.FOLDS, size=100)[subject_codes(subject)]
    losses = []
    for penalty in refit.PENALTIES:
        loss = 0.0
        for k in range(refit.FOLDS):
            one = refit.fitted(z[fold != k], label[fold != k], 2, weight[fold != k], penalty)
            log_p = log_softmax(one(z[fold == k]), axis=1)
            loss -= sum(w * row[y] for w, row, y in zip(weight[fold == k], log_p, label[fold == k], strict=True))
        losses.append(loss)
    assert losses[refit.PENALTIES.index(head.penalty)] <= min(losses) * (1 + 1e-4)


def test_a_head_of_even_rows_does_not_follow_what_it_cannot_gain_from():
    z, label, cue, rng = rows(3_000)
    even = refit.refit(z, label, 2, refit.raked_weights(label, [cue]), rng=rng)
    as_they_are = refit.refit(z, label, 2, np.ones(3_000), rng=rng)
    follows = [abs(head.weight[1, 1] - head.weight[0, 1]) for head in (even, as_they_are)]
    assert follows[0] < 0.15 < 0.6 < follows[1]


def test_columns_are_turned_and_nothing_is_lost():
    z, _, _, rng = rows(300, p=6)
    logits = z[:, :2] * 3
    columns = refit.columns_of(z, logits, rng)
    standard = [(x - x.mean(axis=0)) / x.std(axis=0) for x in (z, logits)]
    joined = np.concatenate(standard, axis=1)
    turned = columns(z, logits)
    assert turned @ turned.T == pytest.approx(joined @ joined.T, abs=1e-8)
    between = turned.T @ turned
    assert np.abs(between - np.diag(np.diag(between))).max() < 1e-6


def test_of_many_features_the_leading_directions_and_the_logits_stay(monkeypatch):
    monkeypatch.setattr(refit, "MOST_COLUMNS", 8)
    rng = np.random.default_rng(0)
    strong = rng.normal(size=(400, 3))
    z = strong @ rng.normal(size=(3, 40)) + 0.01 * rng.normal(size=(400, 40))
    columns = refit.columns_of(z, strong[:, :1], rng)
    found = columns(z, strong[:, :1])
    assert found.shape == (400, 9)
    back = found @ np.linalg.lstsq(found, strong, rcond=None)[0]
    assert np.abs(back - (strong - strong.mean(axis=0))).max() < 0.1


def test_matched_answers_are_as_sharp_and_as_even_as_those_they_are_compared_with():
    _, label, _, rng = rows(500)
    logits = np.stack([np.zeros(500), 2.0 * label - 1 + rng.normal(size=500)], axis=1)
    answers = softmax(3 * logits + (0.5, 0), axis=1)
    weight = rng.uniform(0.5, 1.5, 500)
    found = refit.matched(0.2 * logits, answers, label, weight)
    assert found == pytest.approx(answers, abs=0.01)
    share = weight / weight.sum()
    assert share @ found[np.arange(500), label] == pytest.approx(share @ answers[np.arange(500), label], abs=1e-3)


def test_a_head_that_knows_less_is_not_made_sharper_than_it_can_be():
    _, label, _, rng = rows(500)
    answers = softmax(8 * np.eye(2)[label], axis=1)
    noise = rng.normal(size=(500, 2))
    found = refit.matched(noise, answers, label, np.ones(500))
    assert np.isfinite(found).all()
    assert refit.shortfall(answers, found, label, np.ones(500)) == refit.MOST_SHORTFALL
    assert refit.shortfall(answers, answers, label, np.ones(500)) == 1.0
