"""One drawing per kind of exhibit, as HTML with inline SVG: data in, escaped markup out; no audit is named here."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby, pairwise

import numpy as np
from markupsafe import Markup
from PIL import Image

from rightreasons.findings import (
    MAX_PICTURES,
    Band,
    Bars,
    Cell,
    Curve,
    Curves,
    Estimate,
    Exhibit,
    Gallery,
    Heatmap,
    Picture,
    Scatter,
    Table,
)
from rightreasons.report import wording
from rightreasons.report.svg import (
    DASHES,
    Axis,
    axis_over,
    colour,
    coordinate,
    legend,
    line,
    mark,
    picture,
    points,
    shorten,
    tag,
    text,
    text_width,
)

WIDTH = 470.0
PLOT_HEIGHT = 250.0
MAX_BARS = 200
MAX_LABELLED_POINTS = 400
MAX_POINTS = 6000
MAX_CELLS = 900
MAX_PRINTED_CELLS = 120
MAX_LISTED = 400

Block = Sequence[Markup]


def draw(exhibit: Exhibit, pictures: int = MAX_PICTURES) -> Markup:
    """The exhibit's drawing, without its title and caption; a gallery shows at most so many `pictures`."""
    return gallery(exhibit, pictures) if isinstance(exhibit, Gallery) else DRAWINGS[exhibit.kind](exhibit)


def is_wide(exhibit: Exhibit) -> bool:
    """Whether it needs the page's whole width."""
    if isinstance(exhibit, Gallery):
        return True
    if isinstance(exhibit, Table):
        return len(exhibit.columns) > 4 or sum(max(map(_cell_length, column), default=0) for column in _columns(exhibit)) > 52
    return isinstance(exhibit, Heatmap) and len(exhibit.values[0]) > 12 and not exhibit.background


# ----------------------------------------------------------------------------------------------------------------- estimates


def forest(estimates: Sequence[Estimate]) -> tuple[list[Markup], Markup]:
    """One small picture of value and interval per estimate, all on one axis, and the axis itself."""
    width, height = 240.0, 24.0
    central = [e.value for e in estimates if e.value is not None]
    limits = [limit for e in estimates if e.value is not None for limit in (e.low, e.high) if limit is not None]
    if not central:
        return [Markup("")] * len(estimates), Markup("")
    axis = _forest_axis(central, limits, width)
    zero = [line(axis(0), 0, axis(0), height, "zero")] if axis.low <= 0 <= axis.high else []
    rows = [_whisker(estimate, axis, width, height, zero) for estimate in estimates]
    ticks = [text(axis(value), 13, label, "tick", "middle") for value, label in axis.ticks(4)]
    marks = [line(axis(value), 0, axis(value), 3, "axis") for value, _ in axis.ticks(4)]
    base = line(axis.start, 0.5, axis.end, 0.5, "axis")
    described = "Scale of the intervals above, from {} to {}".format(*(wording.number(v) for v in (axis.low, axis.high)))
    return rows, picture(width, 18, "scale", described, base, *marks, *ticks, class_="forest")


def _forest_axis(central: list[float], limits: list[float], width: float) -> Axis:
    """All values and, unless one is so wide that it would hide the others, all intervals."""
    everything = [*central, *limits]
    inner = axis_over(central, 0, 1, include=[0.0] if min(map(abs, central)) < max(map(abs, central)) else [])
    span = max(inner.high - inner.low, 2 * float(np.median([abs(a - b) for a in limits for b in central] or [0.0])))
    kept = [v for v in everything if inner.low - 4 * span <= v <= inner.high + 4 * span]
    include = [0.0] if 0 <= min(kept) < 0.5 * max(kept) or 0.5 * min(kept) < max(kept) <= 0 else []
    bounds = [*include, *([1.0] if 0.7 < max(kept) <= 1 and min(kept) >= 0 else [])]
    return axis_over(kept, 12, width - 12, include=bounds)


def _whisker(estimate: Estimate, axis: Axis, width: float, height: float, behind: Block) -> Markup:
    spoken = f"{estimate.name}: {wording.value_and_interval(estimate)}"
    if estimate.value is None:
        return picture(width, height, spoken, "undefined, nothing to draw", *behind, class_="forest")
    y = height / 2
    drawn: list[Markup] = []
    if estimate.low is not None or estimate.high is not None:
        low = axis.low if estimate.low is None else estimate.low
        high = axis.high if estimate.high is None else estimate.high
        left, right = axis(max(low, axis.low)), axis(min(high, axis.high))
        drawn.append(line(left, y, right, y, "whisker"))
        for limit, x, outside, way in ((estimate.low, left, low < axis.low, -1), (estimate.high, right, high > axis.high, 1)):
            if outside or limit is None:  # goes on beyond the picture
                drawn.append(tag("polygon", points=points([(x, y - 4), (x + 6 * way, y), (x, y + 4)]), class_="ink"))
            else:
                drawn.append(line(x, y - 5.5, x, y + 5.5, "whisker"))
    drawn.append(tag("rect", x=axis(estimate.value) - 2.5, y=y - 3.5, width=5.0, height=7.0, rx=1.2, class_="dot"))
    return picture(width, height, spoken, "value and interval", *behind, *drawn, class_="forest")


def meter(score: float) -> Markup:
    """The score of a case on a line from 0 to 1, with its middle marked."""
    width, height = 220.0, 16.0
    axis = Axis(0.0, 1.0, 6, width - 6)
    parts = [
        line(axis(0), 8, axis(1), 8, "axis"),
        line(axis(0.5), 3, axis(0.5), 13, "axis"),
        tag("circle", cx=axis(score), cy=8.0, r=5.5, class_="tone-dot"),
    ]
    return picture(width, height, f"score {score:.2f}", "from 0, all against, to 1, all for a shortcut", *parts, class_="meter")


# --------------------------------------------------------------------------------------------------------------------- kinds


def table(exhibit: Table) -> Markup:
    head = tag("tr", *(tag("th", column, scope="col", class_=None if k else "first") for k, column in enumerate(exhibit.columns)))
    rows = []
    for number, row in enumerate(exhibit.rows):
        cells = [_table_cell(cell, first=k == 0) for k, cell in enumerate(row)]
        rows.append(tag("tr", *cells, class_="highlight" if number in exhibit.highlight else None))
    empty = any(cell is None for row in exhibit.rows for cell in row)
    note = tag("p", f"{wording.DASH} undefined or not applicable", class_="note") if empty else ""
    grid = tag("table", tag("thead", head), tag("tbody", *rows), class_="data")
    return Markup("{}{}").format(tag("div", grid, class_="scroll", tabindex="0", role="region", aria_label=exhibit.title), note)


def _table_cell(cell: object, first: bool) -> Markup:
    if first and isinstance(cell, str):
        return tag("th", tag("bdi", cell), scope="row")
    if isinstance(cell, Cell):
        if cell.value is None:
            return tag(
                "td", tag("span", "undefined", class_="undefined"), tag("span", f" {cell.reason}", class_="muted"), class_="num"
            )
        among = (cell.value, cell.low, cell.high)
        limits = wording.interval(cell.low, cell.high, among)
        return tag(
            "td", wording.number(cell.value, among), tag("span", f" {limits}", class_="muted") if limits else "", class_="num"
        )
    if isinstance(cell, bool):
        return tag("td", "yes" if cell else "no")
    if isinstance(cell, int | float):
        return tag("td", wording.number(cell), class_="num")
    return tag("td", wording.DASH if cell is None else tag("bdi", cell), class_="num" if cell is None else None)


def _columns(exhibit: Table) -> list[list[object]]:
    return [[name, *(row[k] for row in exhibit.rows)] for k, name in enumerate(exhibit.columns)]


def _cell_length(cell: object) -> int:
    if isinstance(cell, Cell):
        return len(wording.value_and_interval(cell))
    return min(len(cell), 40) if isinstance(cell, str) else 7


def bars(exhibit: Bars) -> Markup:
    """Horizontal, so that long labels stay readable, with every number and interval written beside its bar."""
    labels, names = exhibit.labels[:MAX_BARS], list(exhibit.series)
    if not labels or not names:
        return _nothing("no bars")
    thick = 16.0 if len(names) == 1 else 12.0
    gap = 10.0 if len(names) == 1 else 12.0
    written = {name: [_bar_text(exhibit, name, k) for k in range(len(labels))] for name in names}
    right = max(text_width(entry, 11) for entries in written.values() for entry in entries) + 8
    left = min(max(text_width(label) for label in labels) + 10, 0.45 * WIDTH)
    seen = [
        v for bunch in (exhibit.series, exhibit.low, exhibit.high) for values in bunch.values() for v in values[: len(labels)]
    ]
    finite = [v for v in (*seen, exhibit.reference) if v is not None]
    bounds = [0.0, *([1.0] if finite and 0.6 < max(finite) <= 1 and min(finite) >= 0 else [])]
    axis = axis_over(finite, left, WIDTH - right, include=bounds)
    key, top = legend(names, WIDTH, 0, "bars") if len(names) > 1 else (Markup(""), 0.0)
    top += 18 if exhibit.reference is not None and exhibit.reference_label else 4
    drawn, y = [], top
    for k, label in enumerate(labels):
        block = len(names) * (thick + 2) - 2
        shown = shorten(label, left - 10)
        drawn.append(text(left - 9, y + block / 2 + 4, shown, "", "end", hover=label if shown != label else ""))
        for number, name in enumerate(names):
            drawn += _bar(exhibit, name, number, k, axis, y + number * (thick + 2), thick)
            drawn.append(text(WIDTH, y + number * (thick + 2) + thick / 2 + 4, written[name][k], "small", "end"))
        y += block + gap
    frame, bottom = _bars_frame(exhibit, axis, top, y - gap + 4)
    spoken = f"{len(labels)} labels, {len(names)} series, {_range(finite)}"
    note = _left_out(len(labels), len(exhibit.labels), "labels")
    return Markup("{}{}").format(picture(WIDTH, bottom, exhibit.title, spoken, key, *frame, *drawn, class_="chart"), note)


def _bar_text(exhibit: Bars, name: str, k: int) -> str:
    value, low, high = (bunch[name][k] if name in bunch else None for bunch in (exhibit.series, exhibit.low, exhibit.high))
    return (
        f"{wording.number(value, (low, high))} {wording.interval(low, high, (value,))}".strip()
        if value is not None
        else "undefined"
    )


def _bar(exhibit: Bars, name: str, number: int, k: int, axis: Axis, y: float, thick: float) -> list[Markup]:
    value = exhibit.series[name][k]
    if value is None:
        return []
    hover = tag("title", f"{exhibit.labels[k]}{' · ' + name if name else ''}: {_bar_text(exhibit, name, k)}")
    a, b = sorted((axis(0), axis(value)))
    drawn = [tag("rect", hover, x=a, y=y, width=max(b - a, 0.6), height=thick, class_=f"fill {colour(number)}")]
    low, high = (bunch[name][k] if name in bunch else None for bunch in (exhibit.low, exhibit.high))
    if low is not None or high is not None:
        x1, x2, middle = axis(value if low is None else low), axis(value if high is None else high), y + thick / 2
        drawn.append(line(x1, middle, x2, middle, "error"))
        drawn += [line(x, middle - 3.5, x, middle + 3.5, "error") for x, v in ((x1, low), (x2, high)) if v is not None]
    return drawn


def _bars_frame(exhibit: Bars, axis: Axis, top: float, bottom: float) -> tuple[list[Markup], float]:
    drawn = []
    for value, label in axis.ticks(4):
        drawn.append(line(axis(value), top - 2, axis(value), bottom, "zero" if value == 0 else "grid"))
        drawn.append(text(axis(value), bottom + 14, label, "tick", "middle"))
    end = bottom + 20
    if exhibit.value_label:
        drawn.append(text((axis.start + axis.end) / 2, bottom + 31, exhibit.value_label, "label", "middle"))
        end += 17
    if exhibit.reference is not None:
        x = axis(exhibit.reference)
        drawn.append(line(x, top - 5, x, bottom, "reference"))
        drawn.append(_label_near(x, top - 9, exhibit.reference_label, 0, WIDTH))
    return drawn, end


def curves(exhibit: Curves) -> Markup:
    names = list(exhibit.series)
    xs = {name: curve.x or exhibit.x for name, curve in exhibit.series.items()}
    ys = [v for c in exhibit.series.values() for part in (c.y, c.low, c.high) if part is not None for v in part]
    if not any(y is not None for c in exhibit.series.values() for y in c.y):
        return _nothing("no defined values")
    key, top = legend(names, WIDTH, 0, "lines") if len(names) > 1 else (Markup(""), 0.0)
    plane = _Plane(exhibit, [x for name in names for x in xs[name]], ys, top, floor=exhibit.style == "steps")
    shapes = []
    for number, name in enumerate(names):
        drawer = _steps if exhibit.style == "steps" else _line
        shapes += drawer(plane, exhibit.series[name], xs[name], number, name)
    spoken = f"{len(names)} series over {exhibit.x_label or 'x'}, {_range(ys)}"
    chart = picture(WIDTH, plane.height, exhibit.title, spoken, key, *plane.frame(), *shapes, *plane.lines(), class_="chart")
    return Markup("{}{}{}").format(chart, plane.note(), _curve_numbers(exhibit, xs))


def _line(plane: _Plane, curve: Curve, xs: Sequence[object], number: int, name: str) -> list[Markup]:
    drawn: list[Markup] = []
    if curve.low is not None and curve.high is not None:
        for run in plane.runs(xs, curve.low, curve.high):
            outline = [(p[0], p[1]) for p in run] + [(p[0], p[2]) for p in reversed(run)]
            drawn.append(tag("polygon", points=points(outline), class_=f"area {colour(number)}"))
    dash = DASHES[number % len(DASHES)] or None
    runs = [[(p[0], p[1]) for p in run] for run in plane.runs(xs, curve.y)]
    drawn += [
        tag("polyline", points=points(run), class_=f"stroke {colour(number)}", stroke_dasharray=dash)
        for run in runs
        if len(run) > 1
    ]
    if sum(map(len, runs)) <= 30 or any(len(run) == 1 for run in runs):
        for k, (x, y) in enumerate(zip(xs, curve.y)):
            if plane.shows(x, y):
                hover = f"{name + ': ' if name else ''}{_plain(x)}, {_value_of(curve, k)}"
                drawn.append(mark(number, plane.x(x), plane.y(y), hover=hover))  # type: ignore[arg-type]
    return drawn


def _steps(plane: _Plane, curve: Curve, xs: Sequence[object], number: int, name: str) -> list[Markup]:
    drawn: list[Markup] = []
    base = plane.y(max(plane.y.low, 0.0))
    for run in plane.runs(xs, curve.y):
        centres = [point[0] for point in run]
        half = min((b - a for a, b in pairwise(centres)), default=12.0) / 2
        edges = [pair for x, y in run for pair in ((x - half, y), (x + half, y))]
        closed = [(edges[0][0], base), *edges, (edges[-1][0], base)]
        drawn.append(tag("polygon", points=points(closed), class_=f"area strong {colour(number)}"))
        dash = DASHES[number % len(DASHES)] or None
        drawn.append(tag("polyline", points=points(closed), class_=f"stroke {colour(number)}", stroke_dasharray=dash))
    return drawn


def _value_of(curve: Curve, k: int) -> str:
    value, low, high = (None if part is None else part[k] for part in (curve.y, curve.low, curve.high))
    return f"{wording.number(value, (low, high))} {wording.interval(low, high, (value,))}".strip()


def _curve_numbers(exhibit: Curves, xs: dict[str, tuple[float | str | None, ...]]) -> Markup:
    several = len(exhibit.series) > 1
    rows = [
        (*((name,) if several else ()), _plain(x), _value_of(curve, k))
        for name, curve in exhibit.series.items()
        for k, x in enumerate(xs[name])
    ]
    return _numbers((*(("series",) if several else ()), exhibit.x_label or "x", exhibit.y_label or "value"), rows)


def scatter(exhibit: Scatter) -> Markup:
    if not any(x is not None and y is not None for x, y in zip(exhibit.x, exhibit.y)):
        return _nothing("no defined points")
    names = list(dict.fromkeys(exhibit.group)) or [""]
    key, top = legend(names, WIDTH, 0, "marks", exhibit.hollow) if len(names) > 1 else (Markup(""), 0.0)
    plane = _Plane(exhibit, exhibit.x, exhibit.y, top)
    rows = [k for k in range(len(exhibit.x)) if plane.shows(exhibit.x[k], exhibit.y[k])]
    every = -(-len(rows) // MAX_POINTS)  # evenly through the rows, so that the picture does not depend on chance
    shown = rows[::every] if rows else []
    by_group = {name: [k for k in shown if not exhibit.group or exhibit.group[k] == name] for name in names}
    aside = _aside(plane, len(names))
    boxes = [_quartiles(plane, exhibit, by_group[name], number, aside) for number, name in enumerate(names) if exhibit.boxes]
    shapes = [*boxes, *(_cloud(plane, exhibit, by_group[name], number, aside[number]) for number, name in enumerate(names))]
    across = ", ".join(plane.x.names) if plane.x.names else _range(x for x in exhibit.x if not isinstance(x, str))
    spoken = f"{len(rows)} points in {len(names)} group(s), vertical {_range(exhibit.y)}, horizontal {across}"
    chart = picture(WIDTH, plane.height, exhibit.title, spoken, key, *plane.frame(), *shapes, *plane.lines(), class_="chart")
    listed = [
        (
            *((exhibit.label[k],) if exhibit.label else ()),
            *((exhibit.group[k],) if exhibit.group else ()),
            exhibit.x[k],
            exhibit.y[k],
        )
        for k in rows
    ]
    heads = (
        *(("point",) if exhibit.label else ()),
        *(("group",) if exhibit.group else ()),
        exhibit.x_label or "x",
        exhibit.y_label or "y",
    )
    numbers = _numbers(heads, [tuple(_plain(entry) for entry in row) for row in listed], most=120)
    return Markup("{}{}{}{}").format(chart, _left_out(len(shown), len(rows), "points"), plane.note(), numbers)


def _aside(plane: _Plane, groups: int) -> list[float]:
    """How far each group stands beside the middle of a name, so that they do not hide each other; 0 on an axis of numbers."""
    room = 0.7 * (plane.x(1) - plane.x(0)) if len(plane.x.names) > 1 else 0.35 * (plane.right - plane.left)
    return [room * ((number + 0.5) / groups - 0.5) if plane.x.names else 0.0 for number in range(groups)]


def _quartiles(plane: _Plane, exhibit: Scatter, rows: list[int], number: int, aside: Sequence[float]) -> Markup:
    """A box from quartile to quartile with the median, at every name."""
    half, drawn = min(16.0, 0.4 * abs(aside[0] - aside[-1]) or 16.0), []
    for name in plane.x.names:
        values = [exhibit.y[k] for k in rows if exhibit.x[k] == name]
        if values:
            middle = plane.x(name) + aside[number]
            low, median, high = (plane.y(float(q)) for q in np.quantile(np.array(values, dtype=float), (0.25, 0.5, 0.75)))
            drawn.append(
                tag(
                    "rect",
                    x=middle - half,
                    y=high,
                    width=2 * half,
                    height=max(low - high, 0.5),
                    class_=f"quartiles {colour(number)}",
                )
            )
            drawn.append(line(middle - half, median, middle + half, median, f"stroke {colour(number)}"))
    return tag("g", *drawn)


def _cloud(plane: _Plane, exhibit: Scatter, rows: list[int], number: int, aside: float) -> Markup:
    places = [(plane.x(exhibit.x[k]) + aside, plane.y(exhibit.y[k])) for k in rows]  # type: ignore[arg-type]
    if len(exhibit.x) > MAX_LABELLED_POINTS:  # one path of dots: a tenth of the bytes of one element each
        return tag("path", d="".join(f"M{coordinate(x)} {coordinate(y)}h0" for x, y in places), class_=f"dots {colour(number)}")
    drawn = []
    for k, (x, y) in zip(rows, places):
        label = f"{exhibit.label[k]}: " if exhibit.label else ""
        hover = f"{label}{_plain(exhibit.x[k])}, {_plain(exhibit.y[k])}"
        drawn.append(mark(number, x, y, 3.4, hover, bool(exhibit.group) and exhibit.group[k] in exhibit.hollow))
    return tag("g", *drawn, class_="cloud")


def heatmap(exhibit: Heatmap) -> Markup:
    values = np.array([[np.nan if v is None else v for v in row] for row in exhibit.values], dtype=float)
    if np.isnan(values).all():
        return _nothing("no defined values")
    low, high = _colour_range(values, exhibit)
    rows, columns = values.shape
    left = min(max((text_width(label) for label in exhibit.row_labels), default=0.0) + 8, 150.0) if exhibit.row_labels else 0.0
    left += 18 if exhibit.row_title else 0
    room = (2 * WIDTH if is_wide(exhibit) else WIDTH) - left
    cell = min(room / columns, 380 / rows) if exhibit.background else min(room / columns, 46.0)
    tall = cell if exhibit.background or rows * columns > MAX_CELLS else min(cell, 34.0)
    if exhibit.background:
        frame_width, frame_height = _fitted(exhibit.background, room, 340.0)
        cell, tall = frame_width / columns, frame_height / rows
    top = 4.0
    slanted = bool(exhibit.col_labels) and max(map(text_width, exhibit.col_labels)) > cell - 4
    if exhibit.col_labels:
        top = min(max(map(text_width, exhibit.col_labels)) * 0.72 + 14, 110) if slanted else 20.0
    top += 16 if exhibit.col_title else 0
    body = _cells(values, exhibit, low, high, left, top, cell, tall)
    labels = _heat_labels(exhibit, left, top, cell, tall, slanted)
    bottom = top + rows * tall + 14
    bar = _colour_bar(exhibit, low, high, left, bottom)
    width = max(left + columns * cell + (40 if slanted else 2), left + 260)
    spoken = f"{rows} rows and {columns} columns, {_range(values[~np.isnan(values)].tolist())}"
    chart = picture(width, bottom + 46, exhibit.title, spoken, *body, *labels, bar, class_="chart heat")
    shown = Markup("{}{}").format(_overlay_switch() if exhibit.background else "", chart)
    names = [exhibit.row_labels[k] if exhibit.row_labels else str(k + 1) for k in range(rows)]
    heads = ("", *(exhibit.col_labels or [str(k + 1) for k in range(columns)]))
    if exhibit.low and rows * columns <= MAX_PRINTED_CELLS:
        note = f"{UNSURE.strip()} marks a cell whose interval holds {wording.number(exhibit.centre)}; hover for the interval."
        shown = Markup("{}{}").format(shown, tag("p", note, class_="note"))
    numbers = _numbers(
        heads, [(name, *map(_plain, row)) for name, row in zip(names, exhibit.values)], most=MAX_LISTED // max(columns, 1)
    )
    return tag("div", shown, numbers, class_="overlayable")


def _cells(
    values: np.ndarray, exhibit: Heatmap, low: float, high: float, left: float, top: float, cell: float, tall: float
) -> list[Markup]:
    rows, columns = values.shape
    colours = _colours(values, exhibit, low, high)
    drawn: list[Markup] = []
    frame = {"x": left, "y": top, "width": columns * cell, "height": rows * tall, "preserveAspectRatio": "none"}
    if exhibit.background:
        drawn.append(tag("image", href=f"data:image/png;base64,{exhibit.background}", **frame))
    if rows * columns > MAX_CELLS:
        return [*drawn, tag("image", href=_as_png(colours), class_="overlay crisp", **frame)]
    printed = rows * columns <= MAX_PRINTED_CELLS and cell >= 34 and not exhibit.background
    for i in range(rows):
        for k in range(columns):
            x, y = left + k * cell, top + i * tall
            hover = tag("title", _cell_name(exhibit, i, k) + wording.number(exhibit.values[i][k]) + _limits(exhibit, i, k))
            red, green, blue, alpha = (int(c) for c in colours[i, k])
            fill, opacity = (f"#{red:02x}{green:02x}{blue:02x}", alpha / 255) if alpha else ("none", 1.0)
            drawn.append(
                tag("rect", hover, x=x, y=y, width=cell, height=tall, fill=fill, fill_opacity=f"{opacity:.2f}", class_="cell")
            )
            if printed and not np.isnan(values[i, k]):
                ink = "on-dark" if 0.299 * red + 0.587 * green + 0.114 * blue < 140 else "on-light"
                label = f"{values[i, k]:.2g}".replace("-", wording.MINUS) + (UNSURE if _holds_centre(exhibit, i, k) else "")
                drawn.append(text(x + cell / 2, y + tall / 2 + 4, label, f"small {ink}", "middle"))
    return [drawn[0], tag("g", *drawn[1:], class_="overlay")] if exhibit.background else drawn


def _heat_labels(exhibit: Heatmap, left: float, top: float, cell: float, tall: float, slanted: bool) -> list[Markup]:
    drawn = []
    for i, label in enumerate(exhibit.row_labels):
        drawn.append(text(left - 6, top + (i + 0.5) * tall + 4, shorten(label, 140), "", "end", hover=label))
    for k, label in enumerate(exhibit.col_labels):
        x, y = left + (k + 0.5) * cell, top - 7
        turn = f"rotate(-45 {coordinate(x)} {coordinate(y)})" if slanted else None
        drawn.append(text(x, y, shorten(label, 130), "", "start" if slanted else "middle", hover=label, transform=turn))
    middle = top + tall * len(exhibit.values) / 2
    if exhibit.row_title:
        drawn.append(text(12, middle, exhibit.row_title, "label", "middle", transform=f"rotate(-90 12 {coordinate(middle)})"))
    if exhibit.col_title:
        drawn.append(text(left + cell * len(exhibit.values[0]) / 2, 12, exhibit.col_title, "label", "middle"))
    return drawn


def _colour_bar(exhibit: Heatmap, low: float, high: float, left: float, top: float) -> Markup:
    ramp = np.linspace(low, high, 64)[None, :]
    solid = _colours(ramp, exhibit, low, high)
    solid[..., 3] = 255
    drawn = [tag("image", href=_as_png(solid), x=left, y=top, width=180.0, height=9.0, preserveAspectRatio="none", class_="ramp")]
    axis = Axis(low, high, left, left + 180)
    drawn += [text(axis(v), top + 22, label, "tick", "middle") for v, label in axis.ticks(3)]
    drawn.append(text(left, top + 38, exhibit.value_label, "label"))
    return tag("g", *drawn)


def _overlay_switch() -> Markup:
    box = tag("input", type="checkbox", checked="checked", class_="overlay-switch")
    return tag("label", box, " show the overlay", class_="switch")


def gallery(exhibit: Gallery, most: int = MAX_PICTURES) -> Markup:
    if not exhibit.items:
        return _nothing("no pictures")
    items = list(exhibit.items)
    if exhibit.sort:
        items.sort(key=lambda item: (item.values.get(exhibit.sort) is None, -(item.values.get(exhibit.sort) or 0.0)))
    items = items[:most]
    measures = list(dict.fromkeys(name for item in items for name in item.values))
    groups = list(dict.fromkeys(item.group for item in items if item.group))
    order = {id(item): k for k, item in enumerate(exhibit.items)}
    tiles = [_tile(item, order[id(item)], measures) for item in items]
    controls = _gallery_controls(len(items), exhibit.sort, measures, groups)
    note = _left_out(len(items), len(exhibit.items), "pictures")
    return tag("div", controls, tag("div", *tiles, class_="tiles"), note, class_="gallery")


def _tile(item: Picture, position: int, measures: Sequence[str]) -> Markup:
    width, height = _png_size(item.png)
    written = "; ".join(f"{name} {wording.number(value)}" for name, value in item.values.items())
    said = " · ".join(part for part in (item.caption, item.group, written) if part) or "picture"
    image = tag(
        "img",
        src=f"data:image/png;base64,{item.png}",
        alt=said,
        width=width,
        height=height,
        class_="crisp" if max(width, height) < 100 else None,
    )
    values = [tag("div", tag("dt", name), tag("dd", wording.number(value))) for name, value in item.values.items()]
    lines = [
        tag("span", tag("bdi", item.caption), class_="what") if item.caption else "",
        tag("span", tag("bdi", item.group), class_="of") if item.group else "",
    ]
    data = {f"data-v{k}": item.values.get(name) for k, name in enumerate(measures)}
    return tag(
        "figure",
        tag("button", image, type="button", aria_label=f"Enlarge: {said}"),
        tag("figcaption", *lines, tag("dl", *values) if values else ""),
        data_order=position,
        data_group=item.group,
        **{key.replace("-", "_"): None if value is None else repr(value) for key, value in data.items()},
    )


def _gallery_controls(count: int, sort: str, measures: Sequence[str], groups: Sequence[str]) -> Markup:
    """Hidden where scripts do not run: page.js shows them."""
    parts: list[Markup] = []
    if measures:
        choices = [tag("option", "as given", value="order", selected=None if sort else "selected")]
        for k, name in enumerate(measures):
            choices.append(tag("option", f"{name}, largest first", value=f"-v{k}", selected="selected" if name == sort else None))
            choices.append(tag("option", f"{name}, smallest first", value=f"+v{k}"))
        parts.append(tag("label", "Sort by ", tag("select", *choices, class_="sort")))
    if len(groups) > 1:
        choices = [tag("option", "all", value="*"), *(tag("option", name, value=f"={name}") for name in groups)]
        parts.append(tag("label", "Show ", tag("select", *choices, class_="filter")))
    counted = tag("span", f"{count} pictures", class_="count", aria_live="polite")
    return tag("div", *parts, counted, class_="controls", hidden="hidden") if parts else Markup("")


DRAWINGS: dict[str, Callable[..., Markup]] = {
    "table": table,
    "bars": bars,
    "curves": curves,
    "scatter": scatter,
    "heatmap": heatmap,
}


# ------------------------------------------------------------------------------------------------------------ the plot's plane


class _Plane:
    """Axes, grid, bands and reference lines of a plot of y over x."""

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
        widest = max((text_width(label, 11) for _, label in self.y.ticks(5)), default=0.0)
        self.left = widest + 12 + (20 if exhibit.y_label else 0)
        self.right = WIDTH - 10
        log = exhibit.x_scale == "log"
        self.x = axis_over(xs, self.left, self.right, log=log, include=unit)
        self.hidden = 0
        if log or exhibit.y_scale == "log":
            self.hidden = sum(isinstance(v, float) and v <= 0 for v in (xs if log else []))
            self.hidden += sum(isinstance(v, float) and v <= 0 for v in (ys if exhibit.y_scale == "log" else []))
        self.height = self.bottom + 24 + (18 if exhibit.x_label else 0)

    def shows(self, x: object, *ys: object) -> bool:
        return self.x.can_show(x) and all(self.y.can_show(y) for y in ys)

    def runs(self, xs: Sequence[object], *ys: Sequence[float | None]) -> Iterable[list[tuple[float, ...]]]:
        """Stretches of neighbouring points that are all defined, in pixels; a gap stays a gap."""
        rows = list(zip(xs, *ys))
        for defined, run in groupby(rows, key=lambda row: self.shows(*row)):
            if defined:
                yield [(self.x(row[0]), *(self.y(value) for value in row[1:])) for row in run]  # type: ignore[arg-type]

    def frame(self) -> list[Markup]:
        drawn = [self._band(band) for band in self.exhibit.bands]
        for value, label in self.y.ticks(5):
            drawn.append(line(self.left, self.y(value), self.right, self.y(value), "grid"))
            drawn.append(text(self.left - 6, self.y(value) + 4, label, "tick", "end"))
        about = 6 if not self.x.names else max(2, int((self.right - self.left) / (max(map(text_width, self.x.names)) + 10)))
        for value, label in self.x.ticks(min(about, 14)):
            drawn.append(line(self.x(value), self.bottom, self.x(value), self.bottom + 4, "axis"))
            drawn.append(
                text(
                    self.x(value), self.bottom + 17, shorten(label, 110), "tick", "middle", hover=label if len(label) > 12 else ""
                )
            )
        drawn.append(line(self.left, self.bottom, self.right, self.bottom, "axis"))
        middle = (self.top + self.bottom) / 2
        if self.exhibit.y_label:
            turned = f"rotate(-90 11 {coordinate(middle)})"
            drawn.append(text(11, middle, shorten(self.exhibit.y_label, PLOT_HEIGHT), "label", "middle", transform=turned))
        if self.exhibit.x_label:
            drawn.append(text((self.left + self.right) / 2, self.bottom + 35, self.exhibit.x_label, "label", "middle"))
        return drawn

    def _band(self, band: Band) -> Markup:
        across, along = (self.x, self.y) if band.axis == "x" else (self.y, self.x)
        low, high = (across.low if band.low is None else band.low, across.high if band.high is None else band.high)
        a, b = sorted(across(min(max(v, across.low), across.high)) for v in (low, high))
        c, d = sorted((along.start, along.end))
        box = (a, c, b - a, d - c) if band.axis == "x" else (c, a, d - c, b - a)
        shape = tag("rect", x=box[0], y=box[1], width=max(box[2], 0.0), height=max(box[3], 0.0), class_="band")
        return tag("g", shape, text(box[0] + 5, box[1] + 13, band.label, "small muted") if band.label else "")

    def lines(self) -> list[Markup]:
        drawn: list[Markup] = []
        if self.exhibit.diagonal and not self.x.names:
            low, high = max(self.x.low, self.y.low), min(self.x.high, self.y.high)
            if low < high:
                drawn.append(line(self.x(low), self.y(low), self.x(high), self.y(high), "reference"))
        if self.exhibit.hline is not None and self.y.can_show(self.exhibit.hline):
            y = self.y(self.exhibit.hline)
            drawn.append(line(self.left, y, self.right, y, "reference"))
            drawn.append(text(self.right - 3, y - 5, self.exhibit.hline_label, "small halo", "end"))
        if self.exhibit.vline is not None and self.x.can_show(self.exhibit.vline):
            x = self.x(self.exhibit.vline)
            drawn.append(line(x, self.top - 2, x, self.bottom, "reference"))
            drawn.append(_label_near(x, self.top - 5, self.exhibit.vline_label, self.left, self.right))
        return drawn

    def note(self) -> Markup:
        if not self.hidden:
            return Markup("")
        return tag("p", f"{self.hidden} value(s) at or below zero cannot stand on a logarithmic axis.", class_="note")


# --------------------------------------------------------------------------------------------------------------------- pieces


def _label_near(x: float, y: float, label: str, left: float, right: float) -> Markup:
    if not label:
        return Markup("")
    half = text_width(label, 11) / 2
    anchor = "start" if x - half < left else "end" if x + half > right else "middle"
    return text(x, y, label, "small", anchor)


def _numbers(columns: Sequence[str], rows: Sequence[Sequence[str]], most: int = MAX_LISTED) -> Markup:
    """The drawn numbers as a folded table: for screen readers, for copying, for doubt."""
    if not rows or len(rows) > most:
        return Markup("")
    head = tag("tr", *(tag("th", column, scope="col") for column in columns))
    body = [tag("tr", *(tag("td", tag("bdi", entry)) for entry in row)) for row in rows]
    grid = tag("table", tag("thead", head), tag("tbody", *body), class_="data dense")
    return tag("details", tag("summary", "Numbers"), tag("div", grid, class_="scroll"), class_="numbers")


def _plain(value: object) -> str:
    return value if isinstance(value, str) else wording.number(value if isinstance(value, float | int) else None)


def _range(values: Iterable[float | None]) -> str:
    finite = [v for v in values if v is not None]
    return f"from {wording.number(min(finite))} to {wording.number(max(finite))}" if finite else "nothing defined"


def _nothing(why: str) -> Markup:
    return tag("p", f"Nothing to draw: {why}.", class_="nothing")


def _left_out(shown: int, all_: int, what: str) -> Markup:
    return (
        tag("p", f"{wording.number(shown)} of {wording.number(all_)} {what} are drawn.", class_="note")
        if shown < all_
        else Markup("")
    )


def _limits(exhibit: Heatmap, i: int, k: int) -> str:
    low, high = (limits[i][k] if limits else None for limits in (exhibit.low, exhibit.high))
    return "" if low is None or high is None else f" [{wording.number(low)}, {wording.number(high)}]"


def _holds_centre(exhibit: Heatmap, i: int, k: int) -> bool:
    low, high = (limits[i][k] if limits else None for limits in (exhibit.low, exhibit.high))
    return low is not None and high is not None and low <= exhibit.centre <= high


def _cell_name(exhibit: Heatmap, i: int, k: int) -> str:
    row = exhibit.row_labels[i] if exhibit.row_labels else f"row {i + 1}"
    column = exhibit.col_labels[k] if exhibit.col_labels else f"column {k + 1}"
    return f"{row}, {column}: "


UNSURE = " °"
SEQUENTIAL = ("#f4f7fb", "#c9dcee", "#8fb9dc", "#4f8fc4", "#1f639f", "#0b3a69", "#06223f")
DIVERGING = ("#0b3a69", "#2f78b3", "#9cc6e2", "#f7f6f4", "#f3b98a", "#cf6a1c", "#7a3303")
OVERLAY = ("#fff3c4", "#ffd166", "#f79009", "#d6400e", "#8f1414")


def _colour_range(values: np.ndarray, exhibit: Heatmap) -> tuple[float, float]:
    low, high = (float(np.clip(limit, -1e300, 1e300)) for limit in (np.nanmin(values), np.nanmax(values)))
    if exhibit.scale == "diverging":
        reach = max(high - exhibit.centre, exhibit.centre - low, 1e-12)
        return exhibit.centre - reach, exhibit.centre + reach
    return (low, high) if high - low > 1e-9 * max(abs(low), abs(high), 1e-280) else (low - 0.5, high + 0.5)


def _colours(values: np.ndarray, exhibit: Heatmap, low: float, high: float) -> np.ndarray:
    """RGBA bytes (rows, columns, 4); over a picture, what matters little is clear."""
    over = exhibit.background is not None
    ramp = DIVERGING if exhibit.scale == "diverging" else OVERLAY if over else SEQUENTIAL
    stops = np.array([[int(c[k : k + 2], 16) for k in (1, 3, 5)] for c in ramp], dtype=float)
    share = np.clip((np.nan_to_num(values, nan=low) - low) / (high - low), 0, 1)
    rgb = np.stack([np.interp(share, np.linspace(0, 1, len(stops)), stops[:, k]) for k in range(3)], axis=-1)
    strength = np.abs(2 * share - 1) if exhibit.scale == "diverging" else share
    alpha = 0.04 + 0.76 * strength if over else np.ones_like(share)
    alpha = np.where(np.isnan(values), 0.0, alpha)
    return np.round(np.concatenate([rgb, 255 * alpha[..., None]], axis=-1)).astype(np.uint8)


def _as_png(colours: np.ndarray) -> str:
    buffer = io.BytesIO()
    Image.fromarray(colours).save(buffer, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def _png_size(encoded: str) -> tuple[int, int]:
    header = base64.b64decode(encoded[:32])
    return int.from_bytes(header[16:20], "big"), int.from_bytes(header[20:24], "big")


def _fitted(encoded: str, width: float, height: float) -> tuple[float, float]:
    w, h = _png_size(encoded)
    scale = min(width / w, height / h)
    return w * scale, h * scale
