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
        "extract: 10 of 10, 32 images/s",
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


class Clock:
    """A clock that a test sets."""

    def __init__(self, monkeypatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(progress.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(progress, "PLAIN_EVERY_SECONDS", 0.0)
        monkeypatch.delenv("RIGHTREASONS_QUIET", raising=False)

    def steps(self, seconds):
        """Items that take so many seconds each."""
        for took in seconds:
            self.now += took
            yield took


def told(capsys) -> list[str]:
    return [line.rpartition(", ")[2] if " left" in line else "" for line in capsys.readouterr().err.splitlines()]


def test_nothing_is_told_of_the_time_until_every_kind_still_to_come_was_timed(capsys, monkeypatch):
    clock = Clock(monkeypatch)
    seconds, kinds = [160, 5, 3, 140, 4, 3], ["art", "groups", "pull", "art", "groups", "pull"]
    list(progress.track(clock.steps(seconds), "audits", total=6, kinds=kinds))
    # at one rate for all steps the first line would have promised 800 s where 155 s were to come
    assert told(capsys) == ["", "", "about 3 min left", "about 8 s left", "about 3 s left", ""]


def test_the_first_of_many_equal_steps_which_also_compiles_is_no_rate(capsys, monkeypatch):
    clock = Clock(monkeypatch)
    list(progress.track(clock.steps([60, 1, 1, 1, 1]), "extract", total=5))
    assert told(capsys) == ["", "about 3 s left", "about 2 s left", "about 1 s left", ""]


def test_what_may_end_early_takes_at_most_so_long(capsys, monkeypatch):
    clock = Clock(monkeypatch)
    with progress.Meter("train", 10, may_end_early=True) as meter:
        for _ in range(4):
            clock.now += 2
            meter.advance()
    assert told(capsys)[-1] == "at most about 12 s left"


def test_what_was_done_before_has_taken_no_time_now(capsys, monkeypatch):
    clock = Clock(monkeypatch)
    list(progress.track(clock.steps([3, 3, 3]), "extract", total=3, done=97))
    assert told(capsys)[1] == "about 3 s left"
