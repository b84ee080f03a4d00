"""At a glance: shares that one can count oneself, intervals that hold, and rows that are what they are called."""

from __future__ import annotations

import numpy as np
import pytest

from rightreasons.audits import audit
from rightreasons.audits.groups import Measurement
from rightreasons.data.cohort import Cohort
from rightreasons.evidence import Evidence
from rightreasons.measurements import load_measurement, save_measurement


def evidence(label, answer, columns, trained=True, sure=2.0):
    """A model that gives these answers, trained on rows in which a value goes with the label of its number."""
    classes = sorted(set(map(str, np.concatenate([label, answer]))))
    logits = sure * (np.array(classes)[None] == np.asarray(answer).astype(str)[:, None])
    ids = [f"t{k}" for k in range(len(label))]
    about = {"attribute": list(columns)} if columns else {}
    rows = Cohort.from_columns({"id": ids, "y": np.asarray(label).astype(str), **columns}, label="y", **about)
    training = None
    if trained:
        values = {name: np.resize(np.unique(column), 40) for name, column in columns.items()}
        learnt = np.array(classes)[np.resize(np.arange(len(classes)), 40)]
        training = Cohort.from_columns({"id": [f"r{k}" for k in range(40)], "y": learnt, **values}, label="y", **about)
    return Evidence.from_arrays({"test": rows}, {"test": {"logits": logits}}, classes=classes, training=training)


def seen(given, **settings):
    return audit("groups", given, B=300, **settings).first.glance


def two_by_two(rng, n=200):
    """Labels a and b; films of scanner s1 are drawn to b. Training rows have s0 with a and s1 with b."""
    label = np.array(["a", "b"])[rng.integers(0, 2, n)]
    scanner = np.array(["s0", "s1"])[rng.integers(0, 2, n)]
    follows = rng.random(n) < 0.4
    answer = np.where(follows, np.where(scanner == "s1", "b", "a"), label)
    return label, scanner, answer


def test_the_shares_are_those_that_one_counts(rng):
    label, scanner, answer = two_by_two(rng)
    told = seen(evidence(label, answer, {"scanner": scanner})).contrast
    here = (label == told.label) & (scanner == told.value)
    there = (label == told.label) & (scanner == told.other)
    assert {told.label, told.answer} == {"a", "b"} and {told.value, told.other} == {"s0", "s1"}
    assert told.share.value == pytest.approx((answer[here] == told.answer).mean())
    assert told.share_of_other.value == pytest.approx((answer[there] == told.answer).mean())
    assert told.difference.value == pytest.approx(told.share.value - told.share_of_other.value)
    assert (told.n, told.n_other, told.of) == (here.sum(), there.sum(), 2)
    assert told.share.low < told.share.value < told.share.high
    assert 0.1 < told.difference.low < told.difference.value < told.difference.high


def test_where_values_stand_for_labels_only_their_answers_are_asked_for(rng):
    label, scanner, answer = two_by_two(rng)
    stands_for = {"s0": "a", "s1": "b"}
    told = seen(evidence(label, answer, {"scanner": scanner})).contrast
    assert told.answer == stands_for[told.value]
    other_way = seen(evidence(label, answer, {"scanner": scanner}), aligned={"s0": "b", "s1": "a"}).contrast
    assert other_way.answer != stands_for[other_way.value] and other_way.difference.value < 0


def test_the_interval_of_the_chosen_difference_holds_for_all_that_it_was_chosen_among(rng):
    """Noise: the largest of many differences is called different from 0 no more often than one alone would be."""
    called = 0
    for _ in range(60):
        label, scanner = rng.integers(0, 3, 150).astype(str), rng.integers(0, 3, 150).astype(str)
        told = seen(evidence(label, rng.integers(0, 3, 150).astype(str), {"scanner": scanner}, trained=False)).contrast
        assert 12 <= told.of <= 18 and told.other == ""
        called += told.difference.low > 0
    assert called <= 8  # 0.05 * 60 is 3, and a bootstrap of small groups is a little narrow


def test_a_share_of_nothing_or_all_leaves_a_difference_with_a_width():
    label, scanner = np.repeat(["a", "b"], 40), np.tile(np.repeat(["s0", "s1"], 20), 2)
    told = seen(evidence(label, np.where(scanner == "s1", "b", "a"), {"scanner": scanner})).contrast
    assert told.difference.value == 1.0 and 0.6 < told.difference.low < 1.0 == told.difference.high
    same = seen(evidence(label, label, {"scanner": scanner})).contrast
    assert same.difference.value == 0.0 and same.difference.low < -0.1 and same.difference.high > 0.1


def test_a_number_is_compared_by_its_quarters(rng):
    age = rng.normal(60, 10, 300)
    label = np.array(["a", "b"])[rng.integers(0, 2, 300)]
    given = evidence(label, np.where(age > 65, "b", label), {"age": age}, trained=False)
    told = seen(given).contrast
    assert told.value.startswith("above") and (told.label, told.answer) == ("a", "b") and told.share.value > 0.9
    assert len(seen(given).groups.size) == 8


def test_too_few_rows_on_one_side_make_no_contrast_and_say_so(rng):
    label, scanner, answer = two_by_two(rng)
    scanner = np.where(np.arange(200) < 4, "s1", "s0")
    glance = seen(evidence(label, answer, {"scanner": scanner}))
    assert glance.contrast is None and "no label has 10 test rows on both sides of scanner" in glance.no_contrast


def test_without_an_attribute_groups_are_the_labels(rng):
    label, _, answer = two_by_two(rng)
    glance = seen(evidence(label, answer, {}))
    assert glance.contrast is None and glance.groups.label == ("a", "b") and glance.groups.value == ("", "")
    assert glance.right.value == pytest.approx((label == answer).mean())
    assert glance.rows.kind == "errors" and all(a != y for a, y in zip(glance.rows.answer, glance.rows.label, strict=True))


def test_rows_to_look_at_follow_the_attribute_and_not_the_label(rng):
    label, scanner, answer = two_by_two(rng)
    glance = seen(evidence(label, answer, {"scanner": scanner}))
    rows = glance.rows
    points_to = np.where(scanner == "s1", "b", "a")
    assert (rows.kind, rows.among) == ("followed", (points_to != label).sum())
    assert rows.found == ((points_to != label) & (answer == points_to)).sum()
    for name, value, given, true in zip(rows.id, rows.value, rows.answer, rows.label, strict=True):
        k = int(name[1:])
        assert (label[k], scanner[k], answer[k]) == (true, value, given) and given == points_to[k] != true
    assert (rows.label[0], rows.value[0]) == (glance.contrast.label, glance.contrast.value)
    assert len(rows.id) == 8 and not len(rows.pixels) and "no images" in rows.reason


def test_where_no_row_follows_errors_are_shown_and_where_none_is_wrong_the_least_sure():
    label, scanner = np.repeat(["a", "b"], 40), np.tile(np.repeat(["s0", "s1"], 20), 2)
    against = np.where((label == "a") & (scanner == "s0") & (np.arange(80) < 5), "b", label)
    rows = seen(evidence(label, against, {"scanner": scanner})).rows
    assert (rows.kind, rows.found, rows.among) == ("errors", 5, 80)
    assert seen(evidence(label, label, {"scanner": scanner})).rows.kind == "unsure"


def test_a_glance_comes_back_from_its_file(tmp_path, rng):
    label, scanner, answer = two_by_two(rng)
    for columns in ({"scanner": scanner}, {}):
        measured = audit("groups", evidence(label, answer, columns), B=300).first
        save_measurement(measured, tmp_path / "groups.npz")
        assert load_measurement(Measurement, tmp_path / "groups.npz").glance.shown() == measured.glance.shown()
