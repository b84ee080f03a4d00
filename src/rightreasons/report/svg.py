"""Drawing primitives: escaped tags, axes with readable ticks, texts that fit. Colours live in page.css, by class."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from rightreasons.report.wording import MINUS

FONT = 12.0  # as in page.css
COLOURS = 6  # series classes s0 … s5 in page.css
DASHES = ("", "6 3", "2 3", "9 3 2 3")
HUGE = 1e300
VOID = ("img", "input")


def tag(name: str, *children: object, **attributes: object) -> Markup:
    """One element; attribute values and texts are escaped, `text_anchor` is written `text-anchor`, None is left out."""
    written = [
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), coordinate(value) if isinstance(value, float) else value)
        for key, value in attributes.items()
        if value is not None
    ]
    inside = Markup("").join(escape(child) for child in children)
    if name in VOID:
        return Markup("<{}{}>").format(Markup(name), Markup("").join(written))
    return Markup("<{}{}>{}</{}>").format(Markup(name), Markup("").join(written), inside, Markup(name))


def picture(width: float, height: float, label: str, description: str, *children: object, **attributes: object) -> Markup:
    """An <svg> that scales with the page and says to a screen reader what it shows."""
    return tag(
        "svg",
        tag("desc", description),
        *children,
        viewBox=f"0 0 {coordinate(width)} {coordinate(height)}",
        width=coordinate(width),
        height=coordinate(height),
        role="img",
        aria_label=label,
        **attributes,
    )


def text(
    x: float, y: float, content: object, class_: str = "", anchor: str = "start", hover: str = "", **attributes: object
) -> Markup:
    title = (tag("title", hover),) if hover else ()
    return tag(
        "text", content, *title, x=x, y=y, class_=class_ or None, text_anchor=anchor if anchor != "start" else None, **attributes
    )


def line(x1: float, y1: float, x2: float, y2: float, class_: str, **attributes: object) -> Markup:
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_, **attributes)


def coordinate(value: float) -> str:
    return "0" if abs(value) < 0.05 else f"{value:.1f}".removesuffix(".0")


def points(pairs: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{coordinate(x)},{coordinate(y)}" for x, y in pairs)


@dataclass(frozen=True)
class Axis:
    """Data to pixels, from `low` at `start` to `high` at `end`; `names` are equally spaced texts instead of numbers."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False
    names: tuple[str, ...] = ()

    def __call__(self, value: float | str) -> float:
        if isinstance(value, str):
            value = float(self.names.index(value))
        share = (self._scaled(value) - self._scaled(self.low)) / (self._scaled(self.high) - self._scaled(self.low))
        return self.start + min(max(share, -0.02), 1.02) * (self.end - self.start)

    def _scaled(self, value: float) -> float:
        return math.log10(value) if self.log else value

    def can_show(self, value: object) -> bool:
        if isinstance(value, str):
            return value in self.names
        return isinstance(value, float | int) and (not self.log or value > 0)

    def ticks(self, about: int = 5) -> list[tuple[float, str]]:
        """(value, text) pairs inside the axis."""
        if self.names:
            stride = math.ceil(len(self.names) / max(about, 2))
            return [(float(k), self.names[k]) for k in range(0, len(self.names), stride)]
        if self.log:
            return self._log_ticks(about)
        step = nice_step(self.high - self.low, about)
        first = math.ceil(self.low / step - 1e-9)
        count = min(math.floor((self.high - self.low) / step + 1e-9) + 2, 3 * about + 3)
        values = [(first + k) * step for k in range(count)]
        return [(value, tick_text(value, step)) for value in values if value <= self.high + step * 1e-6]

    def _log_ticks(self, about: int) -> list[tuple[float, str]]:
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        if last - first <= 2:
            marks = [m * 10.0**k for k in range(first, last + 1) for m in (1, 2, 5)]
        else:
            marks = [10.0**k for k in range(first, last + 1, math.ceil((last - first) / about))]
        return [(mark, f"{mark:g}") for mark in marks if self.low <= mark * 1.000001 and mark <= self.high * 1.000001]


def axis_over(
    values: Iterable[object], start: float, end: float, *, log: bool = False, include: Sequence[float] = (), pad: float = 0.04
) -> Axis:
    """An axis that shows all of `values`: texts by name, numbers with a margin, and `include` where it is a must."""
    seen = [value for value in values if value is not None]
    if any(isinstance(value, str) for value in seen):
        names = tuple(dict.fromkeys(str(value) for value in seen))
        return Axis(-0.4, len(names) - 0.6, start, end, names=names)
    numbers = [float(value) for value in seen if isinstance(value, float | int) and (not log or value > 0)]
    numbers = [min(max(value, -HUGE), HUGE) for value in (*numbers, *include) if not log or value > 0] or [1.0 if log else 0.0]
    low, high = min(numbers), max(numbers)
    if log:
        low, high = max(low, 1e-270), max(high, 1e-270)
        margin = 10 ** min(pad * max(math.log10(high) - math.log10(low), 1), 7)  # both ends stay finite
        return Axis(low / margin, high * margin, start, end, log=True)
    if high - low <= max(1e-9 * max(abs(low), abs(high)), 1e-290):  # one value, or as good as one
        half = 0.5 * abs(high) if abs(high) > 1e-280 else 0.5
        return Axis(low - half, high + half, start, end)
    margin = pad * (high - low)
    return Axis(low if low in include else low - margin, high if high in include else high + margin, start, end)


def nice_step(span: float, about: int) -> float:
    """The 1, 2 or 5 times a power of ten that cuts `span` into about `about` pieces."""
    rough = span / max(about, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    return next((step * power for step in (1, 2, 5) if step * power >= rough * 0.75), 10 * power)


def tick_text(value: float, step: float) -> str:
    if abs(value) < step * 1e-6:
        return "0"
    if abs(value) >= 1e5 or step < 1e-4:
        return f"{value:.3g}".replace("-", MINUS)
    return f"{value:.{max(0, -math.floor(math.log10(step) + 1e-9))}f}".replace("-", MINUS)


def text_width(content: str, size: float = FONT) -> float:
    """About how many pixels a text takes in a sans-serif face: fonts differ between readers' machines, so a little generous."""
    return size * sum(_em(character) for character in content)


def _em(character: str) -> float:
    if ord(character) > 0x2E7F:
        return 1.15
    if character in "ijltfrI.,:;|!'()[] ":
        return 0.34
    return 0.9 if character in "mwMW@%" else 0.67 if character.isupper() else 0.58


def shorten(content: str, width: float, size: float = FONT) -> str:
    """The text, cut with an ellipsis where it would be wider than `width` pixels."""
    if text_width(content, size) <= width:
        return content
    kept, used = "", text_width("…", size)
    for character in content:
        used += _em(character) * size
        if used > width:
            break
        kept += character
    return kept.rstrip() + "…"


def colour(number: int) -> str:
    """Class of the number-th series; dashes and marks tell apart what colours cannot."""
    return f"s{number % COLOURS}"


def mark(number: int, x: float, y: float, size: float = 3.6, hover: str = "", hollow: bool = False) -> Markup:
    """A small sign whose shape goes with the series: circle, square, diamond, triangle, and the same again hollow."""
    title = (tag("title", hover),) if hover else ()
    class_ = f"mark {colour(number)}" + (" hollow" if hollow or number // 4 % 2 else "")
    shape = number % 4
    if shape == 0:
        return tag("circle", *title, cx=x, cy=y, r=size, class_=class_)
    if shape == 1:
        return tag("rect", *title, x=x - size * 0.9, y=y - size * 0.9, width=size * 1.8, height=size * 1.8, class_=class_)
    across = {2: [(0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)], 3: [(0, -1.25), (1.25, 1), (-1.25, 1)]}[shape]
    return tag("polygon", *title, points=points((x + size * dx, y + size * dy) for dx, dy in across), class_=class_)


def legend(names: Sequence[str], width: float, top: float, signs: str, hollow: Sequence[str] = ()) -> tuple[Markup, float]:
    """Names in rows with the sign of their series (`signs`: "bars", "lines" or "marks"), and the height they take."""
    x, y, drawn = 0.0, top + 12, []
    for number, name in enumerate(names):
        shown = shorten(name or "(unnamed)", width - 40)
        needed = 24 + text_width(shown) + 16
        if x and x + needed > width:
            x, y = 0.0, y + 19
        if signs == "bars":
            drawn.append(tag("rect", x=x + 2, y=y - 10, width=14.0, height=11.0, rx=2, class_=f"fill {colour(number)}"))
        if signs == "lines":
            dash = DASHES[number % len(DASHES)] or None
            drawn.append(line(x, y - 4, x + 19, y - 4, f"stroke {colour(number)}", stroke_dasharray=dash))
        if signs == "marks":
            drawn.append(mark(number, x + 10, y - 4, 4.2, hollow=name in hollow))
        drawn.append(text(x + 24, y, shown, hover=name if shown != name else ""))
        x += needed
    return tag("g", *drawn, class_="legend"), (y - top + 14 if names else 0.0)
