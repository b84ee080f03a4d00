"""Numbers and words as a reader sees them: rounding, intervals, verdicts and rows of evidence."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from rightreasons.findings import Estimate, WithLimits

MINUS = "\u2212"
DASH = "\u2013"
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def number(value: float | None, like: Iterable[float | None] = ()) -> str:
    """A number for reading, with as many decimals as suit the largest of it and `like`."""
    if value is None:
        return "undefined"
    among = [v for v in (value, *like) if v is not None]
    largest = max(abs(v) for v in among)
    if largest == 0:
        text = "0"
    elif largest >= 1e6 or largest < 1e-3:
        text = _scientific(value)
    elif isinstance(value, int) or (largest >= 10 and all(float(v).is_integer() for v in among)):
        text = f"{value:,.0f}".replace(",", "\u202f") if abs(value) >= 10_000 else f"{value:.0f}"
    else:
        decimals = 1 if largest >= 100 else 2
        text = f"{value:.{3 if largest < 10 else decimals}f}"
        text = text.removeprefix("-") if float(text) == 0 else text
    return text.replace("-", MINUS)


def _scientific(value: float) -> str:
    if value == 0:
        return "0"
    mantissa, exponent = f"{value:.2e}".split("e")
    return f"{mantissa} × 10{power(int(exponent))}"


def power(exponent: int) -> str:
    """An exponent in raised figures."""
    return str(exponent).translate(RAISED)


def interval(low: float | None, high: float | None, like: Iterable[float | None] = ()) -> str:
    """An interval, or the empty text where neither limit is known."""
    if low is None and high is None:
        return ""
    among = (low, high, *like)
    left, right = ("?" if limit is None else number(limit, among) for limit in (low, high))
    return f"[{left}, {right}]"


def with_limits(value: float | None, low: float | None, high: float | None) -> str:
    """A number and its interval in one text."""
    return f"{number(value, (low, high))} {interval(low, high, (value,))}".strip()


def value_and_interval(item: WithLimits) -> str:
    """A number and its interval in one text; where undefined, the reason."""
    return f"undefined: {item.reason}" if item.value is None else with_limits(item.value, item.low, item.high)


def brief(estimate: Estimate) -> str:
    """An estimate's number, interval, p and n in one line, without its name."""
    parts = [value_and_interval(estimate)]
    if estimate.p is not None:
        parts.append(f"p {p_value(estimate.p)}" if estimate.p < 0.001 else f"p = {p_value(estimate.p)}")
    if estimate.n is not None:
        parts.append(f"n {number(estimate.n)}")
    return " · ".join(parts)


def p_value(p: float) -> str:
    """A p-value as text; never zero, which no test with finitely many draws can show."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def count(n: int | None, unknown: str = DASH) -> str:
    """A number of things, or what stands for one that is not known."""
    return unknown if n is None else number(n)


def percent(level: float) -> str:
    return f"{100 * level:.4g} %"


def duration(seconds: float | None) -> str:
    if seconds is None:
        return DASH
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


class Tone(NamedTuple):
    """How a verdict is shown: its word, a sign (colour is never the only mark), its class in the style sheet, and its rank.

    A smaller `weight` comes first on the page.
    """

    word: str
    sign: str
    css: str
    weight: int


TONES = {
    "shortcut": Tone("Shortcut", "▲", "shortcut", 0),
    "inconclusive": Tone("Inconclusive", "◆", "inconclusive", 1),
    "no evidence": Tone("No evidence", "●", "clear", 2),
    "described": Tone("Described", "≡", "described", 3),
    "not run": Tone("Not run", "○", "notrun", 4),
}


class RowWords(NamedTuple):
    """A row of evidence, and the question that it answers."""

    row: str
    title: str
    asks: str


ROW_WORDS = (
    RowWords("behaviour", "Behaviour", "Does the model treat groups differently?"),
    RowWords("encoding", "Encoding", "Is the cue readable inside the model?"),
    RowWords("reliance", "Reliance", "Does the model use the cue to decide?"),
    RowWords("place", "Place", "Where in the image does the model look?"),
    RowWords("remedy", "Remedy", "Did a correction help?"),
)
