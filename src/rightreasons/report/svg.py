"""A canvas for charts: escaped tags, axes with readable ticks, texts that fit, bars, marks and a plane of x and y.

Data and plain texts in, markup out. Colours live in page.css, by class.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from markupsafe import Markup, escape

from rightreasons.findings import Band, Curves, Scatter
from rightreasons.report.wording import MINUS, power

WIDTH = 350.0  # what a phone has room for: a drawing is enlarged where there is more room, never made smaller
PLOT_HEIGHT = 215.0
FONT, SMALL = 12.0, 11.4  # as in page.css
LINE_HEIGHT = 15.0
COLOURS = 6  # series classes s0 … s5 in page.css
DASHES = ("", "6 3", "2 3", "9 3 2 3")
HUGE = 1e300
THIN_SPACE = "\u202f"
VOID = ("img", "input")


def tag(name: str, *children: object, **attributes: object) -> Markup:
    """One element. Attribute values and texts are escaped; `text_anchor` is written `text-anchor`; None is left out."""
    written = Markup("")
    for key, value in attributes.items():
        if value is not None:
            shown = coordinate(value) if isinstance(value, float) else value
            written += Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), shown)
    if name in VOID:
        return Markup("<{}{}>").format(Markup(name), written)
    inside = Markup("").join(escape(child) for child in children)
    return Markup("<{}{}>{}</{}>").format(Markup(name), written, inside, Markup(name))


def picture(width: float, height: float, label: str, description: str, *children: object, **attributes: object) -> Markup:
    """An <svg> that scales with the page and tells a screen reader what it shows."""
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
    title = [tag("title", hover)] if hover else []
    text_anchor = None if anchor == "start" else anchor
    return tag("text", content, *title, x=x, y=y, class_=class_ or None, text_anchor=text_anchor, **attributes)


def lines_of_text(
    x: float, y: float, lines: Sequence[str], class_: str = "", anchor: str = "start", hover: str = ""
) -> list[Markup]:
    """Lines of a text below each other, the first with its baseline at `y`."""
    return [text(x, y + k * LINE_HEIGHT, written, class_, anchor, hover) for k, written in enumerate(lines)]


def line(x1: float, y1: float, x2: float, y2: float, class_: str, **attributes: object) -> Markup:
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_, **attributes)


def coordinate(value: float) -> str:
    return "0" if abs(value) < 0.05 else f"{value:.1f}".removesuffix(".0")


def points(pairs: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{coordinate(x)},{coordinate(y)}" for x, y in pairs)


def dots_path(places: Iterable[tuple[float, float]]) -> str:
    """A path of dots, in half pixels from one to the next and each place once: a third of the bytes of whole coordinates."""
    x = y = 0
    path = []
    for right, down in sorted({(round(2 * a), round(2 * b)) for a, b in places}):
        path.append(f"m{_half(right - x)}{_half(down - y, after=True)}h0")
        x, y = right, down
    return "".join(path)


def _half(steps: int, after: bool = False) -> str:
    """A number of half pixels as a coordinate; one that comes after another needs a space unless it has a sign."""
    written = f"{steps / 2:g}"
    return f" {written}" if after and steps >= 0 else written


@dataclass(frozen=True)
class Axis:
    """Maps data to pixels, `low` to `start` and `high` to `end`; `names` are equally spaced texts in place of numbers."""

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
            powers = [10.0**k for k in range(first, last + 1)]
            marks = [m * power for power in powers for m in (1, 2, 5)]
        else:
            marks = [10.0**k for k in range(first, last + 1, math.ceil((last - first) / about))]
        return [(mark, _power_text(mark)) for mark in marks if self.low <= mark * 1.000001 and mark <= self.high * 1.000001]


def axis_over(
    values: Iterable[object], start: float, end: float, *, log: bool = False, include: Sequence[float] = (), pad: float = 0.04
) -> Axis:
    """An axis that shows all of `values`, texts by name and numbers with a margin, and always the numbers in `include`."""
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
    """The step of 1, 2 or 5 times a power of ten that cuts `span` into about `about` pieces."""
    rough = span / max(about, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    return next((step * power for step in (1, 2, 5) if step * power >= rough * 0.75), 10 * power)


def tick_text(value: float, step: float) -> str:
    if abs(value) < step * 1e-6:
        return "0"
    if abs(value) >= 1e7 or step < 1e-4:
        return _power_text(value)
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    grouped = "," if abs(value) >= 10_000 else ""
    return f"{value:{grouped}.{decimals}f}".replace(",", THIN_SPACE).replace("-", MINUS)


def _power_text(value: float) -> str:
    """A number of any size in few characters, with powers of ten as people write them."""
    if 1e-3 <= abs(value) < 1e4:
        return f"{value:g}".replace("-", MINUS)
    mantissa, exponent = f"{value:.2e}".split("e")
    size = f"10{power(int(exponent))}"
    rounded = mantissa.rstrip("0").rstrip(".").replace("-", MINUS)
    return size if rounded == "1" else f"{rounded}·{size}"


def text_width(content: str, size: float = FONT) -> float:
    """About how many pixels wide a text is in a sans-serif face; a little generous, as fonts differ between machines."""
    return size * sum(_em(character) for character in content)


def _em(character: str) -> float:
    if ord(character) > 0x2E7F:
        return 1.15
    if character in "ijltfrI.,:;|!'()[] ":
        return 0.34
    if character in "mwMW@%":
        return 0.9
    return 0.67 if character.isupper() else 0.58


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


def shorten_all(names: Sequence[str], width: float, size: float = FONT) -> list[str]:
    """Names of at most `width` pixels; cut in front where they would look alike cut at their end, as layers do."""
    cut = [shorten(name, width, size) for name in names]
    if len(set(cut)) == len(set(names)):
        return cut
    return [shorten(name[::-1], width, size)[::-1] for name in names]


def wrapped(content: str, width: float, most: int = 2, size: float = FONT) -> list[str]:
    """The text in lines of at most `width` pixels, broken between words; what does not fit into `most` lines is cut."""
    lines: list[str] = []
    for word in content.split():
        joined = f"{lines[-1]} {word}" if lines else word
        if not lines or (text_width(joined, size) > width and len(lines) < most):
            lines.append(word)
        else:
            lines[-1] = joined
    return [shorten(written, width, size) for written in lines]


def colour(number: int) -> str:
    """CSS class of the series with this number; dashes and marks tell apart series that share a colour."""
    return f"s{number % COLOURS}"


def dash(number: int) -> str | None:
    """Dashes of the line of the series with this number; None for a solid line."""
    return DASHES[number % len(DASHES)] or None


def mark(number: int, x: float, y: float, size: float = 3.6, hover: str = "", hollow: bool = False) -> Markup:
    """A small sign whose shape tells the series: circle, square, diamond, triangle, then the same again hollow."""
    title = [tag("title", hover)] if hover else []
    class_ = f"mark {colour(number)}" + (" hollow" if hollow or number // 4 % 2 else "")
    shape = number % 4
    if shape == 0:
        return tag("circle", *title, cx=x, cy=y, r=size, class_=class_)
    if shape == 1:
        return tag("rect", *title, x=x - size * 0.9, y=y - size * 0.9, width=size * 1.8, height=size * 1.8, class_=class_)
    across = {2: [(0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)], 3: [(0, -1.25), (1.25, 1), (-1.25, 1)]}[shape]
    return tag("polygon", *title, points=points((x + size * dx, y + size * dy) for dx, dy in across), class_=class_)


def label_near(x: float, y: float, label: str, left: float, right: float) -> Markup:
    """A small label centred on x, or moved so far that it stays between `left` and `right`."""
    if not label:
        return Markup("")
    shown = shorten(label, right - left, SMALL)
    middle = centred(x, text_width(shown, SMALL), left, right)
    return text(middle, y, shown, "small", "middle", label if shown != label else "")


def centred(x: float, width: float, left: float, right: float) -> float:
    """The middle of a text of this width that is centred on x, or moved just so far that it stays inside."""
    return max(left + width / 2, min(x, right - width / 2))


@dataclass(frozen=True)
class Legend:
    """The names of the series with their signs, and the height that they take."""

    drawing: Markup
    height: float


def legend(names: Sequence[str], signs: str, hollow: Sequence[str] = ()) -> Legend:
    """Names in rows with the sign of their series (`signs`: "bars", "lines" or "marks"); nothing for a single series."""
    if len(names) < 2:
        return Legend(Markup(""), 0.0)
    x, y, drawn = 0.0, 12.0, []
    for number, name in enumerate(names):
        shown = shorten(name or "(unnamed)", WIDTH - 40)
        needed = 24 + text_width(shown) + 16
        if x and x + needed > WIDTH:
            x, y = 0.0, y + 19
        if signs == "bars":
            drawn.append(tag("rect", x=x + 2, y=y - 10, width=14.0, height=11.0, rx=2, class_=f"fill {colour(number)}"))
        if signs == "lines":
            drawn.append(line(x, y - 4, x + 19, y - 4, f"stroke {colour(number)}", stroke_dasharray=dash(number)))
        if signs == "marks":
            drawn.append(mark(number, x + 10, y - 4, 4.2, hollow=name in hollow))
        drawn.append(text(x + 24, y, shown, hover=name if shown != name else ""))
        x += needed
    return Legend(tag("g", *drawn, class_="legend"), y + 14)


def tick_labels(axis: Axis, ticks: Sequence[tuple[float, str]], y: float, left: float, right: float) -> list[Markup]:
    """Labels below a horizontal axis, inside the picture; one that would touch the label before it is left out."""
    drawn, end = [], -math.inf
    for value, label in ticks:
        width = text_width(label, SMALL)
        middle = centred(axis(value), width, left, right)
        if middle - width / 2 > end + 3:
            drawn.append(text(middle, y, label, "tick", "middle"))
            end = middle + width / 2
    return drawn


# ---- bars ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bar:
    """One horizontal bar from zero to `value`, with an error bar where limits are known."""

    value: float | None
    low: float | None
    high: float | None
    number: int  # of its series
    hover: str

    def draw(self, axis: Axis, y: float, thick: float) -> list[Markup]:
        if self.value is None:
            return []
        left, right = sorted((axis(0), axis(self.value)))
        size = {"x": left, "y": y, "width": max(right - left, 0.6), "height": thick}
        drawn = [tag("rect", tag("title", self.hover), **size, class_=f"fill {colour(self.number)}")]
        if self.low is None and self.high is None:
            return drawn
        middle = y + thick / 2
        x_low = axis(self.value if self.low is None else self.low)
        x_high = axis(self.value if self.high is None else self.high)
        drawn.append(line(x_low, middle, x_high, middle, "error"))
        for x, limit in ((x_low, self.low), (x_high, self.high)):
            if limit is not None:
                drawn.append(line(x, middle - 3.5, x, middle + 3.5, "error"))
        return drawn


@dataclass(frozen=True)
class BarScale:
    """Ticks, grid and label of the value axis below bars, and a reference line across them."""

    axis: Axis
    label: str
    reference: float | None
    reference_label: str

    @property
    def height(self) -> float:
        return 20.0 + (3 + LINE_HEIGHT * len(self._lines) if self.label else 0)

    @property
    def _lines(self) -> list[str]:
        return wrapped(self.label, WIDTH)

    def draw(self, top: float, bottom: float, blocks: Sequence[tuple[float, float]]) -> list[Markup]:
        """Lines stand behind the `blocks` of bars, given as (top, bottom), and not behind their labels."""
        drawn = []
        for value, _ in self.axis.ticks(4):
            for begin, end in blocks:
                drawn.append(line(self.axis(value), begin, self.axis(value), end, "zero" if value == 0 else "grid"))
        drawn += tick_labels(self.axis, self.axis.ticks(4), bottom + 14, 0, WIDTH)
        for k, written in enumerate(self._lines):
            middle = centred((self.axis.start + self.axis.end) / 2, text_width(written), 0, WIDTH)
            drawn.append(text(middle, bottom + 31 + k * LINE_HEIGHT, written, "label", "middle"))
        if self.reference is not None:
            x = self.axis(self.reference)
            for begin, end in blocks:
                drawn.append(line(x, begin, x, end, "reference"))
            drawn.append(label_near(x, top - 9, self.reference_label, 0, WIDTH))
            drawn.append(line(x, top - 6, x, top - 1, "reference") if self.reference_label else Markup(""))
        return drawn


# ---- a plane of x and y --------------------------------------------------------------------------------------------------


class Plane:
    """A plot of y over x: axes, grid, bands and reference lines, and shapes given in the units of the data."""

    def __init__(
        self, exhibit: Curves | Scatter, xs: Iterable[object], ys: Iterable[object], top: float, floor: bool = False
    ) -> None:
        self.exhibit, self.top = exhibit, top + 14
        self.bottom = self.top + PLOT_HEIGHT
        xs, ys = [*xs, exhibit.vline], [*ys, exhibit.hline]
        finite = [y for y in ys if isinstance(y, float)]
        unit = [0.0, 1.0] if exhibit.diagonal and finite and min(finite) >= 0 and max(finite) <= 1 else []
        include = [0.0] if floor else unit
        self.y = axis_over(ys, self.bottom, self.top, log=exhibit.y_scale == "log", include=include)
        widest = max((text_width(label, SMALL) for _, label in self.y.ticks(5)), default=0.0)
        self.left = widest + 12 + (20 if exhibit.y_label else 0)
        self.right = WIDTH - 10
        self.x = axis_over(xs, self.left, self.right, log=exhibit.x_scale == "log", include=unit)
        self.hidden = 0
        for scale, values in ((exhibit.x_scale, xs), (exhibit.y_scale, ys)):
            if scale == "log":
                self.hidden += sum(isinstance(v, float) and v <= 0 for v in values)
        self.notes = _Notes(self.left, self.right, self.top, self.bottom, said=exhibit.vline_label)
        self.names = _AxisNames.of(self.x) if self.x.names else None
        self.below = self.bottom + (self.names.height if self.names else 20)
        self.said_below = wrapped(exhibit.x_label, WIDTH)
        self.height = self.below + 6 + LINE_HEIGHT * len(self.said_below)

    def shows(self, x: object, *ys: object) -> bool:
        return self.x.can_show(x) and all(self.y.can_show(y) for y in ys)

    def runs(self, xs: Sequence[object], *ys: Sequence[float | None]) -> Iterable[list[tuple[float, ...]]]:
        """Runs of neighbouring points that are all defined, in pixels; a gap stays a gap."""
        rows = list(zip(xs, *ys))
        for defined, run in groupby(rows, key=lambda row: self.shows(*row)):
            if defined:
                yield [(self.x(row[0]), *(self.y(value) for value in row[1:])) for row in run]  # type: ignore[arg-type]

    def area(self, xs: Sequence[object], low: Sequence[float | None], high: Sequence[float | None], number: int) -> list[Markup]:
        """The shaded interval of a curve."""
        drawn = []
        for run in self.runs(xs, low, high):
            outline = [(x, bottom) for x, bottom, _ in run] + [(x, top) for x, _, top in reversed(run)]
            drawn.append(tag("polygon", points=points(outline), class_=f"area {colour(number)}"))
        return drawn

    def line(self, xs: Sequence[object], ys: Sequence[float | None], number: int) -> list[Markup]:
        """A curve, broken at its gaps; a point between two gaps has no line."""
        drawn = []
        for run in self.runs(xs, ys):
            if len(run) > 1:
                shape = points((x, y) for x, y in run)
                drawn.append(tag("polyline", points=shape, class_=f"stroke {colour(number)}", stroke_dasharray=dash(number)))
        return drawn

    def steps(self, xs: Sequence[object], ys: Sequence[float | None], number: int) -> list[Markup]:
        """Counts in bins whose centres are `xs`."""
        drawn: list[Markup] = []
        base = self.y(max(self.y.low, 0.0))
        for run in self.runs(xs, ys):
            centres = [point[0] for point in run]
            half = min((b - a for a, b in pairwise(centres)), default=12.0) / 2
            edges = []
            for x, y in run:
                edges += [(x - half, y), (x + half, y)]
            outline = points([(edges[0][0], base), *edges, (edges[-1][0], base)])
            drawn.append(tag("polygon", points=outline, class_=f"area strong {colour(number)}"))
            drawn.append(tag("polyline", points=outline, class_=f"stroke {colour(number)}", stroke_dasharray=dash(number)))
        return drawn

    def picture(self, key: Legend, spoken: str, shapes: Sequence[Markup]) -> Markup:
        """The whole plot: the frame, the shapes and what is drawn over them."""
        inside = (key.drawing, *self.frame(), *shapes, *self.lines(), *self.notes.draw())
        return picture(WIDTH, self.height, self.exhibit.title, spoken, *inside, class_="chart")

    def frame(self) -> list[Markup]:
        drawn = [self._band(band) for band in self.exhibit.bands]
        for value, label in self.y.ticks(5):
            drawn.append(line(self.left, self.y(value), self.right, self.y(value), "grid"))
            drawn.append(text(self.left - 6, self.y(value) + 4, label, "tick", "end"))
        ticks = self.x.ticks(len(self.x.names) if self.x.names else 5)
        for value, _ in ticks:
            drawn.append(line(self.x(value), self.bottom, self.x(value), self.bottom + 4, "axis"))
        if self.names:
            drawn += self.names.draw(self.x, self.bottom)
        else:
            drawn += tick_labels(self.x, ticks, self.bottom + 17, self.left - 12, WIDTH)
        drawn.append(line(self.left, self.bottom, self.right, self.bottom, "axis"))
        middle = (self.top + self.bottom) / 2
        if self.exhibit.y_label:
            turned = f"rotate(-90 11 {coordinate(middle)})"
            shown = shorten(self.exhibit.y_label, PLOT_HEIGHT)
            hover = self.exhibit.y_label if shown != self.exhibit.y_label else ""
            drawn.append(text(11, middle, shown, "label", "middle", hover, transform=turned))
        for k, written in enumerate(self.said_below):
            x = centred((self.left + self.right) / 2, text_width(written), 0, WIDTH)
            drawn.append(text(x, self.below + 14 + k * LINE_HEIGHT, written, "label", "middle"))
        return drawn

    def _band(self, band: Band) -> Markup:
        across, along = (self.x, self.y) if band.axis == "x" else (self.y, self.x)
        low = across.low if band.low is None else band.low
        high = across.high if band.high is None else band.high
        near, far = sorted(across(min(max(v, across.low), across.high)) for v in (low, high))
        begin, end = sorted((along.start, along.end))
        if band.axis == "x":
            x, y, width, height = near, begin, far - near, end - begin
        else:
            x, y, width, height = begin, near, end - begin, far - near
        if band.label:
            self.notes.add(
                band.label, ((x + 5, y + 13, "start"), (x + width - 5, y + 13, "end"), (x + 5, y + height - 5, "start"))
            )
        return tag("rect", x=x, y=y, width=max(width, 0.0), height=max(height, 0.0), class_="band")

    def lines(self) -> list[Markup]:
        drawn: list[Markup] = []
        if self.exhibit.diagonal and not self.x.names:
            low, high = max(self.x.low, self.y.low), min(self.x.high, self.y.high)
            if low < high:
                drawn.append(line(self.x(low), self.y(low), self.x(high), self.y(high), "reference"))
        if self.exhibit.hline is not None and self.y.can_show(self.exhibit.hline):
            y = self.y(self.exhibit.hline)
            drawn.append(line(self.left, y, self.right, y, "reference"))
            above, below, inner = y - 5, y + 14, self.right - 3
            places = (
                (inner, above, "end"),
                (inner, below, "end"),
                (self.left + 5, above, "start"),
                (self.left + 5, below, "start"),
            )
            self.notes.add(self.exhibit.hline_label, places)
        if self.exhibit.vline is not None and self.x.can_show(self.exhibit.vline):
            x = self.x(self.exhibit.vline)
            drawn.append(line(x, self.top - 2, x, self.bottom, "reference"))
            drawn.append(label_near(x, self.top - 5, self.exhibit.vline_label, self.left, self.right))
        return drawn

    def note(self) -> Markup:
        if not self.hidden:
            return Markup("")
        return tag("p", f"{self.hidden} value(s) at or below zero cannot be shown on a logarithmic axis.", class_="note")


@dataclass(frozen=True)
class _AxisNames:
    """Names below an axis: upright where there is room for all of them side by side, else slanted."""

    shown: tuple[str, ...]
    slanted: bool
    stride: int

    @classmethod
    def of(cls, axis: Axis) -> _AxisNames:
        apart = abs(axis(1) - axis(0)) if len(axis.names) > 1 else abs(axis.end - axis.start)
        widest = max(text_width(name, SMALL) for name in axis.names)
        if widest + 6 <= apart:
            return cls(axis.names, False, 1)
        stride = max(1, math.ceil(1.5 * LINE_HEIGHT / apart))  # lines at 45 degrees stand further apart than they are high
        return cls(tuple(shorten_all(axis.names, min(100.0, (axis(0.0) + 4) / 0.71), SMALL)), True, stride)

    @property
    def height(self) -> float:
        if not self.slanted:
            return 20.0
        return 14 + 0.71 * max(text_width(name, SMALL) for name in self.shown)

    def draw(self, axis: Axis, bottom: float) -> list[Markup]:
        drawn = []
        for k in range(0, len(self.shown), self.stride):
            name, x = axis.names[k], axis(float(k))
            shown = self.shown[k]
            hover = name if shown != name else ""
            if self.slanted:
                turn = f"rotate(-45 {coordinate(x + 4)} {coordinate(bottom + 14)})"
                drawn.append(text(x + 4, bottom + 14, shown, "tick", "end", hover, transform=turn))
            else:
                drawn.append(text(x, bottom + 17, shown, "tick", "middle", hover))
        return drawn


class _Notes:
    """Texts inside a plot (what a band or a line means), each at the first of its places where it touches no other."""

    def __init__(self, left: float, right: float, top: float, bottom: float, said: str = "") -> None:
        self._left, self._right, self._top, self._bottom = left, right, top, bottom
        self._taken: list[tuple[float, float, float, float]] = []
        self._drawn: list[Markup] = []
        self._said = {said}

    def add(self, label: str, places: Sequence[tuple[float, float, str]]) -> None:
        """Places are (x, baseline, "start" or "end"); where all of them are taken, the next free line from the top is used."""
        if not label or label in self._said:  # a line at the edge of a band is often called as the band is
            return
        self._said.add(label)
        shown = shorten(label, self._right - self._left - 8, SMALL)
        width = text_width(shown, SMALL)
        lines = [(self._right - 3, self._top + 13 + k * LINE_HEIGHT, "end") for k in range(int(PLOT_HEIGHT / LINE_HEIGHT))]
        for x, y, anchor in (*places, *lines):
            start = x - width if anchor == "end" else x
            box = (start, y - SMALL, start + width, y + 3)
            inside = self._left <= start and start + width <= self._right and self._top <= y - SMALL + 2 and y <= self._bottom
            if inside and not any(_touch(box, other) for other in self._taken):
                self._taken.append(box)
                self._drawn.append(text(x, y, shown, "small halo", anchor, label if shown != label else ""))
                return

    def draw(self) -> list[Markup]:
        return self._drawn


def _touch(a: tuple[float, float, float, float], b: tuple[float, float, float, float]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
