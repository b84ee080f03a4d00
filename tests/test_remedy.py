"""Before and after: paired differences, plain data that comes back, and words that match the numbers."""

from __future__ import annotations

import json

import numpy as np
import pytest

from rightreasons.remedy import (
    ACCURACY,
    BALANCED,
    FLIP,
    GROUP,
    WORST,
    Comparison,
    Pair,
    Words,
    compare,
    finding,
    own_finding,
    remedy,
)
from rightreasons.stats import groups
from rightreasons.testing import synthetic_evidence

N = 400


@pytest.fixture
def decided(rng):
    label, attribute = rng.integers(0, 2, N), rng.integers(0, 2, N)
    before = np.where((label != attribute) & (rng.random(N) < 0.7), attribute, label)
    after = np.where((label != attribute) & (rng.random(N) < 0.2), attribute, label)
    return label, attribute, before, after


def _compared(decided, rng, **more) -> Comparison:
    label, attribute, before, after = decided
    pair = Pair(label, before, after, attribute, words=Words("y", "tag", (0, 1), ("a", "b")), **more)
    return compare(pair, rng=rng, B=400)


def test_values_are_those_of_the_statistics_and_differences_their_difference(decided, rng) -> None:
    label, attribute, before, after = decided
    found = _compared(decided, rng)
    line = found.get(WORST)
    assert line.before.value == groups.worst_group_accuracy(label, before, attribute)
    assert line.after.value == groups.worst_group_accuracy(label, after, attribute)
    assert line.difference.value == pytest.approx(line.after.value - line.before.value)
    assert found.get(BALANCED).after.value == groups.balanced_accuracy(label, after)
    assert found.get(ACCURACY).n == N
    by_group = {line.group: line for line in found.lines if line.metric == GROUP}
    expected = groups.group_accuracy(label, after, attribute)
    assert by_group["y = 1, tag = a"].after.value == pytest.approx(expected[1, 0])
    assert line.difference.low > 0.2


def test_the_same_decisions_differ_by_nothing_at_all(decided, rng) -> None:
    label, attribute, before, _ = decided
    found = _compared((label, attribute, before, before), rng)
    for line in found.lines:
        assert (line.difference.value, line.difference.low, line.difference.high) == (0, 0, 0)
    assert "chance alone" in finding(found, mitigation={"method": "balanced"}).sentence


def test_a_paired_difference_is_narrower_than_the_two_intervals(decided, rng) -> None:
    label, attribute, before, _ = decided
    after = before.copy()
    after[:8] = label[:8]
    line = _compared((label, attribute, before, after), rng).get(ACCURACY)
    assert line.difference.high - line.difference.low < (line.before.high - line.before.low) / 2


def test_a_comparison_survives_json_with_undefined_numbers(decided, rng) -> None:
    label, _, before, after = decided
    found = _compared((label, np.zeros(N, int) - (np.arange(N) > 5), before, after), rng)  # no group is large enough
    assert np.isnan(found.get(WORST).difference.value)
    assert "label = 0" not in found.left_out
    told = json.loads(json.dumps(found.to_plain(), allow_nan=False))
    again = Comparison.from_plain(told)
    assert again.to_plain() == found.to_plain()
    assert "undefined" in finding(again).sentence


def test_whole_subjects_are_drawn(decided, rng) -> None:
    alone = _compared(decided, np.random.default_rng(0)).get(ACCURACY).after
    subject = np.arange(N) // 20
    label, attribute, before, after = decided
    wrong = np.isin(subject, [1, 2, 3])
    after = np.where(wrong, 1 - label, label)
    one = _compared((label, attribute, before, after), np.random.default_rng(0)).get(ACCURACY).after
    many = _compared((label, attribute, before, after), np.random.default_rng(0), subject=subject).get(ACCURACY).after
    assert many.high - many.low > 2 * (one.high - one.low)
    assert alone.high > alone.low


def test_evidence_of_two_models_is_compared_on_the_same_test_rows_with_their_twins() -> None:
    told = {"method": "balanced", "criterion": "wga", "selected_by": "validation WGA", "chosen": {"map": [[1.0]]}}
    found = remedy(synthetic_evidence(seed=0), synthetic_evidence(seed=1), B=200, mitigation=told)
    assert found.row == "remedy"
    assert found.verdict is None
    assert found.n_rows == 120
    names = {estimate.name for estimate in found.estimates}
    assert {f"{WORST}, difference", f"{FLIP}, before"} <= names
    assert found.settings["mitigation"]["chosen"] == {}
    assert type(found).from_json(found.to_json()).to_json() == found.to_json()


@pytest.mark.parametrize(("criterion", "passed"), [("wga", True), ("accuracy", False)])
def test_whether_the_selection_saw_the_attribute_is_asked_of_its_criterion_and_not_of_its_words(criterion, passed) -> None:
    card = {"method": "balanced", "criterion": criterion, "selected_by": "whatever the card says, WGA or not"}
    found = remedy(synthetic_evidence(seed=0), synthetic_evidence(seed=1), B=200, mitigation=card)
    assert next(check for check in found.checks if check.id == "selection").passed is passed


def test_a_gain_that_random_maps_reach_is_not_specific(decided, rng) -> None:
    plain = _compared(decided, rng).to_plain()
    gain = _compared(decided, rng).get(WORST).difference.value
    for gains, said in (([0.0, gain / 2], "is specific"), ([0.0, gain], "is not specific")):
        chosen = {"comparison": plain, "random gains": gains, "random balanced accuracy": [0.0, 0.0], "map": [[0.0, 1.0]]}
        found = own_finding({"method": "attenuation", "chosen": chosen})
        assert found is not None
        assert said in found.sentence
        assert [e.kind for e in found.exhibits] == ["table", "bars", "table", "heatmap"]
    assert own_finding({"method": "erm", "chosen": {}}) is None
