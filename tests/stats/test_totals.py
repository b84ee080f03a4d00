"""Large tables: resamples of sums say what resamples of rows say, metric by metric, and p-values stop when they are decided."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from rightreasons.stats import behaviour, groups, resampling, totals
from rightreasons.stats.behaviour import Decided
from rightreasons.stats.exchanged_pull import pull_null


def decided(n: int, C: int = 2, A: int = 3, seed: int = 0, numbers: bool = False) -> Decided:
    rng = np.random.default_rng(seed)
    y, a = rng.integers(0, C, n), rng.integers(0, A, n)
    z = 1.2 * rng.normal(size=(n, C)) + 1.5 * np.eye(C)[y] + 0.5 * np.eye(C)[a % C]
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    attribute = a + rng.normal(size=n) if numbers else a
    return Decided(y, p.argmax(axis=1), p, attribute, 0 if numbers else A, "a")


def both_ways(rows: Decided, sample: resampling.Resamples, monkeypatch: pytest.MonkeyPatch):
    """Intervals from sums and from rows, of the metrics that are defined."""
    metrics = behaviour.describe(rows, {0: 0, 1: 1}, "", 1)
    found = []
    for large in (0, 10**9):
        monkeypatch.setattr(totals, "LARGE", large)
        found.append(behaviour.intervals(metrics, sample))
    return [(metric, *pair) for metric, *pair in zip(metrics, *found, strict=True)]


@pytest.mark.parametrize("kind", ["two classes", "three classes", "a number", "no attribute"])
def test_on_the_same_draws_of_subjects_sums_and_rows_give_the_same_intervals(kind, monkeypatch):
    rows = decided(3000, C=3 if kind == "three classes" else 2, numbers=kind == "a number")
    if kind == "no attribute":
        rows = Decided(rows.label, rows.predicted, rows.probability)
    subject = np.random.default_rng(1).integers(0, 700, 3000)
    sample = resampling.resamples(3000, rng=np.random.default_rng(2), B=200, subject=subject)
    for metric, sums, plain in both_ways(rows, sample, monkeypatch):
        assert sums.undefined == plain.undefined and sums.reason == plain.reason, metric.name
        expected = [plain.value, plain.low, plain.high]
        assert [sums.value, sums.low, sums.high] == pytest.approx(expected, abs=1e-8, nan_ok=True), (metric.name, metric.part)


def test_a_metric_that_is_undefined_in_some_resamples_is_so_from_sums_too(monkeypatch):
    rows = decided(400)
    rare = np.where(np.arange(400) < 3, 2, rows.attribute % 2)  # one value with three rows
    rows = Decided(rows.label, rows.predicted, rows.probability, rare, 3, "a")
    sample = resampling.resamples(400, rng=np.random.default_rng(2), B=300)
    pairs = both_ways(rows, sample, monkeypatch)
    assert any(plain.undefined for _, _, plain in pairs)
    for metric, sums, plain in pairs:
        assert sums.undefined == plain.undefined, (metric.name, metric.part)


def test_linearised_metrics_of_many_rows_differ_from_the_exact_ones_by_less_than_a_hundredth_of_their_width(monkeypatch):
    monkeypatch.setattr(totals, "EXACT", 5000)
    rows = decided(30_000, C=2, numbers=True)
    subject = np.random.default_rng(1).integers(0, 9000, 30_000)
    sample = resampling.resamples(30_000, rng=np.random.default_rng(2), B=150, subject=subject)
    compared = 0
    for metric, sums, plain in both_ways(rows, sample, monkeypatch):
        if metric.name in ("AUC", "separation", "independence", "sufficiency"):
            compared += 1
            width = plain.high - plain.low
            assert sums.value == pytest.approx(plain.value, abs=1e-9)
            assert [sums.low, sums.high] == pytest.approx([plain.low, plain.high], abs=0.01 * width), metric.name
    assert compared == 4


def test_bundles_leave_the_spread_of_sums_as_it_is(monkeypatch):
    monkeypatch.setattr(totals, "BUNDLES", 2000)
    rng = np.random.default_rng(0)
    values = rng.exponential(size=50_000)
    subject = rng.integers(0, 20_000, 50_000)
    sample = resampling.resamples(50_000, rng=rng, B=4000, subject=subject)
    drawn = totals.bundled(sample)
    assert drawn.units == 2000 and np.bincount(np.unique(np.stack([subject, drawn.unit]), axis=1)[1]).std() < 0.7
    for name in range(20_000)[:50]:
        assert len(np.unique(drawn.unit[subject == name])) <= 1  # rows of a subject stay together
    total = totals.Sum("values", 1, lambda: (np.zeros(50_000, dtype=np.int64), values))
    mean = totals.Formula((total,), lambda sums: sums[:, 0] / 50_000)
    value, found = totals.draws([mean], sample)
    by_subject = np.bincount(subject, values, minlength=20_000)
    expected = np.sqrt(20_000 * by_subject.var()) / 50_000
    assert value[0] == pytest.approx(values.mean(), abs=1e-9)
    assert found.std() == pytest.approx(expected, rel=4 * np.sqrt(1 / (2 * 2000) + 1 / (2 * 4000)))


def test_few_units_are_not_bundled():
    sample = resampling.resamples(30, rng=np.random.default_rng(0), B=3, subject=np.arange(30) // 3)
    assert totals.bundled(sample) is sample


def test_sums_do_not_depend_on_the_size_of_blocks(monkeypatch):
    rows = decided(3000)
    sample = resampling.resamples(3000, rng=np.random.default_rng(2), B=100)
    formulas = [metric.formula() for metric in behaviour.describe(rows, {0: 0}, "", 1)]
    whole = totals.draws(formulas, sample)[1]
    monkeypatch.setattr(totals, "BLOCK_BYTES", 1)
    assert np.array_equal(whole, totals.draws(formulas, sample)[1], equal_nan=True)


@pytest.mark.parametrize("decimals", [1, 12])
def test_the_means_of_placements_are_the_auc(decimals):
    rng = np.random.default_rng(0)
    y, score = rng.integers(0, 2, 300), rng.normal(size=300).round(decimals)
    placed = totals.placements(y == 1, score)
    literal = [np.mean((score[y == 0] < s) + (score[y == 0] == s) / 2) for s in score[y == 1]]
    assert placed[y == 1] == pytest.approx(literal)
    assert placed[y == 0].mean() == pytest.approx(roc_auc_score(y, score)) == pytest.approx(placed[y == 1].mean())


@pytest.mark.parametrize("kind", ["rows", "constant in subjects", "varying in subjects"])
def test_the_null_of_the_pull_from_sums_is_that_of_permuted_rows(kind):
    rng = np.random.default_rng(0)
    rows = decided(1500, C=3, seed=3)
    subject, attribute = rng.integers(0, 400, 1500), rows.attribute
    if kind == "constant in subjects":
        attribute = rng.integers(0, 3, 400)[subject]
    exchange = resampling.exchange_within_label(rows.label, attribute, None if kind == "rows" else subject)
    given = (rows.label, rows.probability, attribute)
    null = np.concatenate(list(pull_null(*given, {0: 1, 2: 0}, exchange, rng=rng, B=3000)))
    literal = []
    for order in exchange.permutations(1000, rng):
        literal.append(groups.pull(rows.label, rows.probability, attribute[order], {0: 1, 2: 0}))
    assert len(null) == 3000
    assert null.mean() == pytest.approx(np.mean(literal), abs=5 * np.std(literal) / np.sqrt(1000))
    assert null.std() == pytest.approx(np.std(literal), rel=0.1)


def test_the_pull_of_a_permutation_that_changes_nothing_is_the_pull():
    rows = decided(600)
    exchange = resampling.exchange_within_label(rows.label, rows.attribute, np.arange(600))
    alone = resampling.Exchange(exchange.source, np.arange(600), exchange.unit, 600, "")  # every row exchanges with itself
    (null,) = pull_null(rows.label, rows.probability, rows.attribute, {0: 1, 1: 0}, alone, rng=np.random.default_rng(0), B=1)
    assert null == pytest.approx(groups.pull(rows.label, rows.probability, rows.attribute, {0: 1, 1: 0}))


def test_a_sequential_p_is_that_of_all_permutations_where_it_does_not_stop():
    null = np.random.default_rng(0).normal(size=2000)
    assert resampling.sequential_p(2.5, iter(np.split(null, 20)), 2000) == resampling.p_value(2.5, null)
    assert np.isnan(resampling.sequential_p(np.nan, iter([null]), 2000))


def test_a_sequential_p_stops_where_it_is_decided_and_keeps_its_level():
    rng = np.random.default_rng(0)
    drawn = []

    def blocks():
        for _ in range(125):
            drawn.append(16)
            yield rng.normal(size=16)

    assert resampling.sequential_p(50.0, blocks(), 2000) == 1 / 2001 and sum(drawn) == resampling.FEWEST_DRAWN
    drawn.clear()
    assert resampling.sequential_p(0.1, blocks(), 2000) > 0.7 and sum(drawn) < 160
    found = np.array([resampling.sequential_p(t, blocks(), 2000) for t in rng.normal(size=400)])
    for level in (0.05, 0.2, 0.5):
        assert np.mean(found <= level) == pytest.approx(level, abs=3.5 * np.sqrt(level * (1 - level) / 400))
