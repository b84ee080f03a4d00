from __future__ import annotations

import inspect
from dataclasses import dataclass

import pytest

from rightreasons import families
from rightreasons.errors import SettingError


@dataclass(frozen=True)
class Settings:
    beta: float = 2.0
    betas: tuple[float, ...] = (0.0, 1.0)


@families.with_settings(Settings)
def measure(evidence, *, rng, settings: Settings):
    """Measure one model."""
    return evidence, rng, settings


@families.with_settings(Settings)
def needs(settings: Settings):
    return settings


def conclude(measurements, *, rng, level=0.95):
    return level


def test_fields_of_a_settings_object_are_settings_of_the_function():
    assert families.settings_of(measure, conclude) == {"beta": 2.0, "betas": (0.0, 1.0), "level": 0.95}
    assert list(inspect.signature(measure).parameters) == ["evidence", "rng", "beta", "betas"]
    assert measure.__name__ == "measure" and measure.__doc__ == "Measure one model."


def test_a_function_gets_the_accepted_part_of_full_settings_as_its_object():
    full = families.resolve({"beta": 3.0, "level": 0.9}, measure, conclude, where="here")
    assert measure("evidence", rng=1, **families.accepted(measure, full)) == ("evidence", 1, Settings(beta=3.0))
    assert needs(**families.accepted(needs, full)) == Settings(beta=3.0)
    assert conclude({}, rng=1, **families.accepted(conclude, full)) == 0.9


def test_settings_are_given_as_keywords_or_as_the_object_and_not_as_both():
    assert measure("evidence", rng=1) == ("evidence", 1, Settings())
    assert measure("evidence", rng=1, settings=Settings(beta=3.0)) == measure("evidence", rng=1, beta=3.0)
    with pytest.raises(SettingError, match=r"given settings= and beta=: give either"):
        measure("evidence", rng=1, settings=Settings(), beta=3.0)


def test_an_unknown_setting_is_refused():
    with pytest.raises(SettingError, match="here has no setting 'btea'; did you mean 'beta'"):
        families.resolve({"btea": 3.0}, measure, conclude, where="here")
    with pytest.raises(TypeError, match="btea"):
        measure("evidence", rng=1, btea=3.0)
