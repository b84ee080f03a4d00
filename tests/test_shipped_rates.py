"""The rates that ship with the package: a page says of every verdict how often such verdicts are wrong."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path

import pytest

from rightreasons import calibration, families
from rightreasons.calibration import CASE, PUBLISHED, Calibration, Rate, Rates
from rightreasons.errors import DataError
from rightreasons.exports import CALIBRATION_NAME, export
from rightreasons.report import page
from sample_findings import finding, some

MADE_UP = Calibration(
    version="0.0",
    made="2026-01-01",
    command="python -m benchmarks.worlds.page",
    seeds=(1,),
    worlds=120,
    relies=0.2,
    judges={
        "art": Rates(
            alarms=Rate(n=400, called=9, low=0.0103, high=0.0423),
            power=Rate(n=200, called=192, low=0.923, high=0.98),
            inconclusive=0.08,
        ),
        "short": Rates(unit="sweep", alarms=Rate(n=450, called=9, low=0.009, high=0.038), note="a note"),
        CASE: Rates(power=Rate(n=10, called=10, low=0.69, high=1.0)),
        "empty": Rates(),
    },
)
ART = (
    "In 400 audits of models without a shortcut (planted worlds) this test raised a false alarm in 2.2 % (1 to 4.2); of 200 "
    "models with a true reliance of 0.2 or more it called 96 % (92.3 to 98); 8 % were inconclusive."
)


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "calibration", lambda: MADE_UP)


def text(html: str) -> str:
    return unescape(re.sub(r"<[^>]+>", "", html)).replace("\u00a0", " ")


def test_a_line_says_alarms_power_and_what_is_open() -> None:
    assert MADE_UP.line("art") == ART
    assert (
        MADE_UP.line(CASE)
        == "Of 10 models with a true reliance of 0.2 or more this verdict called 100 % (69 to 100); 0 % were inconclusive."
    )
    assert "450 audits of sweeps without a shortcut (planted worlds)" in MADE_UP.line("short")
    assert MADE_UP.line("short").endswith("; a note.")


def test_a_line_says_what_the_rule_as_published_does() -> None:
    paper = Rates(alarms=Rate(n=400, called=160, low=0.35, high=0.45))
    both = MADE_UP.model_copy(update={"judges": {**MADE_UP.judges, "art as published": paper}})
    assert both.line("art") == f"{ART[:-1]}; the rule as published raised a false alarm in 40 % (35 to 45)."


def test_what_was_not_measured_has_no_line() -> None:
    assert MADE_UP.line("somebody's own audit") == ""
    assert MADE_UP.line("empty") == ""


def test_a_page_shows_the_line_of_every_verdict_and_of_the_case(made_up: None) -> None:
    shown = text(page.render([finding("art"), finding("own")], title="t"))
    assert shown.count(ART) == 1
    assert shown.count(MADE_UP.line(CASE)) == 1


def test_what_gave_no_verdict_shows_no_line(made_up: None) -> None:
    described = finding("art", None, row="behaviour", estimates=[])
    assert "without a shortcut" not in text(page.render([described], title="t"))


def test_the_shipped_rates_are_whole_and_name_audits_that_exist() -> None:
    found = calibration.calibration()
    assert found.judges
    for name, rates in found.judges.items():
        assert name == CASE or name.removesuffix(PUBLISHED) in families.members("audits")
        assert found.line(name)
        for rate in (rates.alarms, rates.power):
            assert rate is None or rate.low <= rate.called / rate.n <= rate.high


def test_the_shipped_file_is_package_data() -> None:
    tomllib = pytest.importorskip("tomllib")
    settings = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
    assert calibration.FILE.name in settings["tool"]["setuptools"]["package-data"]["rightreasons"]


def test_an_export_of_json_has_the_rates_beside_it(tmp_path: Path) -> None:
    for one in some():
        one.save(tmp_path / "study")
    export(tmp_path / "study", tmp_path / "out", kinds=["json"])
    assert Calibration.read(tmp_path / "out" / CALIBRATION_NAME) == calibration.calibration()


@pytest.mark.parametrize(
    "change",
    [
        {"relies": 2.0},
        {"judges": {"art": {"alarms": {"n": 3, "called": 4, "low": 0, "high": 1}}}},
        {"more": 1},
        {"version": None},
    ],
)
def test_a_file_that_is_no_calibration_is_refused(change: dict[str, object], tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    path.write_text(json.dumps(json.loads(MADE_UP.model_dump_json()) | change))
    with pytest.raises(DataError, match="is not a calibration"):
        Calibration.read(path)


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nothing"):
        Calibration.read(tmp_path / "nothing.json")
