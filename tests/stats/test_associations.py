"""Does an attribute go with the label? Against statsmodels, and over worlds where it does not."""

from __future__ import annotations

import math

import numpy as np
import pytest
import statsmodels.api as sm

from rightreasons.errors import DataError, SettingError
from rightreasons.stats import associations
from rightreasons.stats.associations import Rules


def test_what_goes_with_the_label_is_there_with_its_sign() -> None:
    rng = np.random.default_rng(5)
    y = rng.integers(0, 2, 500)
    for share, sign in ((0.7, 1), (0.3, -1)):
        found = associations.of_values(y, np.where(rng.random(500) < share, y, 1 - y), 2)
        assert (found.answer, found.sign.tolist()) == ("there", [sign])
    assert associations.of_values(y, y, 2).sign.tolist() == [1]
    age = rng.normal(50, 10, 500) - 5 * y
    found = associations.of_number(y, age)
    assert found.answer == "there"
    assert found.sign.tolist() == [-1.0, 0.0]  # the slope says it, and the shape is no second test
    assert associations.of_number(y, 10.0 * y + rng.random(500)).sign[0] == 1


def test_one_value_against_the_other_has_walds_interval() -> None:
    rng = np.random.default_rng(0)
    y, a = rng.integers(0, 2, 400), rng.integers(0, 2, 400)
    found = associations.of_values(y, a, 2)
    model = sm.Logit(y, sm.add_constant(a.astype(float))).fit(disp=0)
    assert found.value[0] == pytest.approx(model.params[1], abs=1e-6)
    np.testing.assert_allclose([found.low[0], found.high[0]], model.conf_int()[1], rtol=0.01)


def test_subjects_widen_the_interval_as_robust_errors_do() -> None:
    rng = np.random.default_rng(1)
    subject = np.repeat(np.arange(120), 5)
    y, a = (np.repeat(rng.integers(0, 2, 120), 5) for _ in range(2))
    y = np.where(rng.random(600) < 0.15, 1 - y, y)
    found = associations.of_values(y, a, 2, subject=subject)
    design = sm.add_constant(a.astype(float))
    robust = sm.Logit(y, design).fit(disp=0, cov_type="cluster", cov_kwds={"groups": subject})
    assert found.high[0] - found.low[0] == pytest.approx(2 * 1.96 * robust.bse[1], rel=0.1)
    assert found.units == 120
    assert 2 < found.design_effect < 6


@pytest.mark.parametrize("images", [1, 5])
@pytest.mark.parametrize("levels", [2, 10])
def test_without_an_association_one_is_rarely_there(images: int, levels: int) -> None:
    answers = []
    for world in range(150):
        rng = np.random.default_rng(world)
        y, a = (np.repeat(rng.integers(0, k, 1000 // images), images) for k in (2, levels))
        answers.append(associations.of_values(y, a, levels, subject=np.repeat(np.arange(1000 // images), images)).answer)
    assert answers.count("there") <= 6
    if images * levels == 2:
        assert answers.count("small") > 100


def test_a_u_is_there_although_its_slope_is_not() -> None:
    """48, 6 and 47 per cent in the thirds of a number."""
    rng = np.random.default_rng(0)
    age = rng.uniform(0, 90, 900)
    y = (rng.random(900) < np.select([age < 30, age < 60], [0.48, 0.06], 0.47)).astype(int)
    found = associations.of_number(y, age)
    assert found.answer == "there"
    assert found.answers[0] != "there"
    assert found.sign.tolist() == [0.0, 1.0]
    log_odds = found.shape([10.0, 45.0, 80.0])
    assert log_odds[1] < -2 < log_odds[0]


def test_small_is_said_only_where_there_is_no_room_for_more() -> None:
    rng = np.random.default_rng(3)
    few, many = (associations.of_values(*rng.integers(0, 2, (2, n)), 2) for n in (100, 20_000))
    assert (few.answer, many.answer) == ("not known", "small")
    assert max(-many.low[0], many.high[0]) < math.log(1.5)
    weak = rng.integers(0, 2, 20_000)
    y = (rng.random(20_000) < 0.5 + 0.04 * weak).astype(int)
    assert associations.of_values(y, weak, 2).answer == "there"  # small as it is
    number = associations.of_number(rng.integers(0, 2, 5000), rng.normal(size=5000))
    assert number.answers == ("small", "small")


def test_what_cannot_be_told_is_not_known_and_what_is_no_column_is_refused() -> None:
    y = np.array([0, 1] * 20)
    assert associations.of_values(np.zeros(40, int), y, 2).answer == "not known"
    assert associations.of_number(y, np.ones(40)).answer == "not known"
    two = associations.of_values(y, y, 2, subject=y)
    assert two.answer == "not known"  # two subjects tell nothing, whatever their images
    with pytest.raises(DataError, match="0 and 1"):
        associations.of_values([0, 2], [0, 1], 2)
    with pytest.raises(DataError, match="one subject for every row"):
        associations.of_values(y, y, 2, subject=[1])
    with pytest.raises(SettingError, match="confidences"):
        Rules(small=0.9)
