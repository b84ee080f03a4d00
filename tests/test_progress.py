"""Progress: what is done, how fast, and how long it takes still; nothing where nobody wants to see it."""

from __future__ import annotations

import pytest

from rightreasons import progress


@pytest.fixture
def clock(monkeypatch):
    """A second passes with every look at the clock."""
    seconds = iter(range(1_000))
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(seconds))
    monkeypatch.setattr(progress, "PLAIN_EVERY_SECONDS", 2.0)
    monkeypatch.delenv("RIGHTREASONS_QUIET", raising=False)


@pytest.mark.usefixtures("clock")
def test_a_line_now_and_then_tells_count_rate_and_time_left(capsys):
    assert list(progress.track(range(4), "extract", done=6, each=32, unit="images")) == [0, 1, 2, 3]
    assert capsys.readouterr().err.splitlines() == [
        "extract: 8 of 10, 32 images/s, about 2 s left",
        "extract: 10 of 10, 32 images/s, about 0 s left",
    ]


@pytest.mark.usefixtures("clock")
def test_without_a_unit_there_is_no_rate(capsys):
    list(progress.track(iter("ab"), "work"))
    assert capsys.readouterr().err == "work: 2\n"


@pytest.mark.usefixtures("clock")
def test_the_live_bar_tells_the_rate_too(capsys, monkeypatch):
    monkeypatch.setattr(progress, "display_for", lambda what, total, done, now: progress.TerminalBar(what, total, done))
    assert list(progress.track("abc", "extract", 3, each=10, unit="images")) == ["a", "b", "c"]
    assert "images/s" in capsys.readouterr().err


def test_quiet_is_quiet(capsys, monkeypatch):
    monkeypatch.setenv("RIGHTREASONS_QUIET", "1")
    assert list(progress.track("abc", "work", each=2, unit="images")) == ["a", "b", "c"]
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("clock")
def test_a_meter_says_its_remark_in_the_line(capsys):
    with progress.Meter("train", 4) as meter:
        meter.advance()
        meter.say("epoch 1: loss 0.5")
        meter.advance()
    assert capsys.readouterr().err == "train: 2 of 4, epoch 1: loss 0.5, about 2 s left\n"
