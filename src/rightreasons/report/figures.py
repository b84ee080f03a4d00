"""One drawing for each kind of exhibit, as HTML with inline SVG: data in, escaped markup out; no audit is named here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from rightreasons.findings import (
    MAX_PICTURES,
    Bars,
    Cell,
    Curves,
    Estimate,
    Exhibit,
    Gallery,
    Heatmap,
    Picture,
    Scatter,
    Table,
)
from rightreasons.report import heatmaps, wording
from rightreasons.report.svg import (
    LINE_HEIGHT,
    SMALL,
    WIDTH,
    Axis,
    Bar,
    BarScale,
    Plane,
    axis_over,
    colour,
    dots_path,
    legend,
    line,
    lines_of_text,
    mark,
    picture,
    points,
    tag,
    text,
    text_width,
    tick_labels,
    wrapped,
)

MAX_BARS = 200
MAX_LABELLED_POINTS = 400
MAX_POINTS = 6000
MAX_LISTED = 400  # numbers in the folded table below a drawing
PAGE_PICTURES, LEAST_PICTURES = 360, 6  # on one page, and of one gallery however many there are
PAGE_POINTS, LEAST_POINTS = 60_000, 600
PAGE_CELLS = 6000  # on a page with more, a heatmap of many cells is one picture


@dataclass(frozen=True)
class Limits:
    """How much is drawn of one exhibit: pictures of a gallery, points of a scatter, cells of a heatmap that are elements."""

    pictures: int = MAX_PICTURES
    points: int = MAX_POINTS
    cells: int = heatmaps.MAX_CELLS

    @classmethod
    def of(cls, exhibits: Iterable[Exhibit]) -> Limits:
        """Limits under which a page with all of these opens at once, however many there are."""
        galleries, scatters, cells = 0, 0, 0
        for exhibit in exhibits:
            galleries += isinstance(exhibit, Gallery)
            scatters += isinstance(exhibit, Scatter)
            cells += len(exhibit.values) * len(exhibit.values[0]) if isinstance(exhibit, Heatmap) else 0
        return cls(
            pictures=min(MAX_PICTURES, max(LEAST_PICTURES, PAGE_PICTURES // max(galleries, 1))),
            points=min(MAX_POINTS, max(LEAST_POINTS, PAGE_POINTS // max(scatters, 1))),
            cells=heatmaps.MAX_CELLS if cells <= PAGE_CELLS else heatmaps.MAX_PRINTED_CELLS,
        )


def draw(exhibit: Exhibit, limits: Limits | None = None) -> Markup:
    """The exhibit's drawing, without its title and caption."""
    limits = limits or Limits()
    if isinstance(exhibit, Gallery):
        return gallery(exhibit, limits.pictures)
    if isinstance(exhibit, Scatter):
        return scatter(exhibit, limits.points)
    return heatmap(exhibit, limits.cells) if isinstance(exhibit, Heatmap) else DRAWINGS[exhibit.kind](exhibit)


def is_wide(exhibit: Exhibit) -> bool:
    """Whether it needs the page's whole width."""
    if isinstance(exhibit, Gallery):
        return True
    if isinstance(exhibit, Heatmap):
        return heatmaps.is_wide(exhibit)
    if not isinstance(exhibit, Table):
        return False
    if len(exhibit.columns) > 4:
        return True
    columns = zip(exhibit.columns, *exhibit.rows, strict=True)
    return sum(max(map(_cell_length, column)) for column in columns) > 52


def _cell_length(cell: object) -> int:
    if isinstance(cell, Cell):
        return len(wording.value_and_interval(cell))
    return min(len(cell), 40) if isinstance(cell, str) else 7


# ----------------------------------------------------------------------------------------------------------------- estimates


@dataclass(frozen=True)
class Forest:
    """One small picture of value and interval for each estimate, all on one axis, and the axis itself."""

    rows: Sequence[Markup]
    scale: Markup


def forest(estimates: Sequence[Estimate]) -> Forest:
    """Estimates drawn on one axis; empty drawings where none is defined."""
    defined = [e for e in estimates if e.value is not None]
    if not defined:
        return Forest([Markup("")] * len(estimates), Markup(""))
    axis = _forest_axis(defined, FOREST_WIDTH)
    zero = [line(axis(0), 0, axis(0), FOREST_HEIGHT, "zero")] if axis.low <= 0 <= axis.high else []
    rows = [_whisker(estimate, axis, zero) for estimate in estimates]
    ticks = tick_labels(axis, axis.ticks(3), 14, 0, FOREST_WIDTH)
    marks = [line(axis(value), 0, axis(value), 3, "axis") for value, _ in axis.ticks(3)]
    base = line(axis.start, 0.5, axis.end, 0.5, "axis")
    described = f"Scale of the intervals above, from {wording.number(axis.low)} to {wording.number(axis.high)}"
    return Forest(rows, picture(FOREST_WIDTH, 19, "scale", described, base, *marks, *ticks, class_="forest"))


FOREST_WIDTH, FOREST_HEIGHT = 210.0, 24.0


def _forest_axis(estimates: Sequence[Estimate], width: float) -> Axis:
    """An axis with all values and all intervals, except those so wide that they would hide the others."""
    central = [e.value for e in estimates if e.value is not None]
    limits: list[float] = []
    for e in estimates:
        limits += [limit for limit in (e.low, e.high) if limit is not None]
    inner = axis_over(central, 0, 1, include=[0.0] if min(map(abs, central)) < max(map(abs, central)) else [])
    distances = [abs(limit - value) for limit in limits for value in central]
    span = max(inner.high - inner.low, 2 * float(np.median(distances or [0.0])))
    kept = [v for v in (*central, *limits) if inner.low - 4 * span <= v <= inner.high + 4 * span]
    lowest, highest = min(kept), max(kept)
    bounds = []
    if 0 <= lowest < 0.5 * highest or 0.5 * lowest < highest <= 0:
        bounds.append(0.0)
    if 0.7 < highest <= 1 and lowest >= 0:
        bounds.append(1.0)
    return axis_over(kept, 12, width - 12, include=bounds)


def _whisker(estimate: Estimate, axis: Axis, behind: Sequence[Markup]) -> Markup:
    spoken = f"{estimate.name}: {wording.value_and_interval(estimate)}"
    if estimate.value is None:
        return picture(FOREST_WIDTH, FOREST_HEIGHT, spoken, "undefined, nothing to draw", *behind, class_="forest")
    y = FOREST_HEIGHT / 2
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
    return picture(FOREST_WIDTH, FOREST_HEIGHT, spoken, "value and interval", *behind, *drawn, class_="forest")


def meter(score: float) -> Markup:
    """The score of a case on a line from 0 to 1, with its middle marked."""
    width, height = 220.0, 16.0
    axis = Axis(0.0, 1.0, 6, width - 6)
    parts = [
        line(axis(0), 8, axis(1), 8, "axis"),
        line(axis(0.5), 3, axis(0.5), 13, "axis"),
        tag("circle", cx=axis(score), cy=8.0, r=5.5, class_="tone-dot"),
    ]
    spoken = "from 0, everything against a shortcut, to 1, everything for one"
    return picture(width, height, f"score {score:.2f}", spoken, *parts, class_="meter")


# --------------------------------------------------------------------------------------------------------------------- kinds


def table(exhibit: Table) -> Markup:
    heads = [tag("th", column, scope="col", class_=None if k else "first") for k, column in enumerate(exhibit.columns)]
    rows = []
    for number, row in enumerate(exhibit.rows):
        cells = [_table_cell(cell, first=k == 0) for k, cell in enumerate(row)]
        rows.append(tag("tr", *cells, class_="highlight" if number in exhibit.highlight else None))
    has_gaps = any(None in row for row in exhibit.rows)
    note = tag("p", f"{wording.DASH} undefined or not applicable", class_="note") if has_gaps else ""
    grid = tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *rows), class_="data")
    return Markup("{}{}").format(tag("div", grid, class_="scroll", tabindex="0", role="region", aria_label=exhibit.title), note)


def _table_cell(cell: object, first: bool) -> Markup:
    if cell is None:
        return tag("td", wording.DASH, class_="num")
    if isinstance(cell, Cell):
        if cell.value is None:  # a reason may be long, and takes as many lines as it needs
            return tag("td", tag("span", "undefined", class_="undefined"), tag("span", f" {cell.reason}", class_="muted"))
        limits = f" {wording.interval(cell.low, cell.high, (cell.value,))}".rstrip()
        value = wording.number(cell.value, (cell.low, cell.high))
        return tag("td", value, tag("span", limits, class_="muted") if limits else "", class_="num")
    if isinstance(cell, bool):
        return tag("td", "yes" if cell else "no")
    if isinstance(cell, int | float):
        return tag("td", wording.number(cell), class_="num")
    return tag("th", tag("bdi", cell), scope="row") if first else tag("td", tag("bdi", cell))


def bars(exhibit: Bars) -> Markup:
    """Horizontal bars with their label above, so that long labels stay readable, and number and interval beside each bar."""
    labels, names = exhibit.labels[:MAX_BARS], list(exhibit.series)
    if not labels or not names:
        return _nothing("no bars")
    blocks = [_bars_of_label(exhibit, k) for k in range(len(labels))]
    finite = [] if exhibit.reference is None else [exhibit.reference]
    for block in blocks:
        for bar in block:
            finite += [v for v in (bar.value, bar.low, bar.high) if v is not None]
    written = [[_bar_text(bar, finite) for bar in block] for block in blocks]
    bounds = [0.0, 1.0] if finite and 0.6 < max(finite) <= 1 and min(finite) >= 0 else [0.0]
    spoken = f"{len(labels)} labels, {len(names)} series, {_range(finite)}"
    note = _left_out(len(labels), len(exhibit.labels), "labels")

    thick, gap = (14.0, 9.0) if len(names) == 1 else (11.0, 11.0)
    right = max(text_width(entry, SMALL) for entries in written for entry in entries) + 9
    axis = axis_over(finite, 1, WIDTH - right, include=bounds)
    key = legend(names, "bars")
    top = key.height + (18 if exhibit.reference is not None and exhibit.reference_label else 4)
    drawn, y, spans = [], top, []
    for label, block, entries in zip(labels, blocks, written, strict=True):
        titles = wrapped(label, WIDTH)
        drawn += lines_of_text(0, y + 11, titles, hover=label if " ".join(titles) != label else "")
        y += LINE_HEIGHT * len(titles) + 2
        spans.append((y - 2, y + len(block) * (thick + 2)))
        for number, bar in enumerate(block):
            drawn += bar.draw(axis, y, thick)
            drawn.append(text(WIDTH, y + thick / 2 + 4, entries[number], "small", "end"))
            y += thick + 2
        y += gap - 2
    bottom = y - gap + 4
    scale = BarScale(axis, exhibit.value_label, exhibit.reference, exhibit.reference_label)
    inside = (key.drawing, *scale.draw(top, bottom, spans), *drawn)
    return picture(WIDTH, bottom + scale.height, exhibit.title, spoken, *inside, class_="chart") + note


def _bars_of_label(exhibit: Bars, k: int) -> list[Bar]:
    """The bars of one label, one for each series."""
    block = []
    for number, (name, values) in enumerate(exhibit.series.items()):
        low = exhibit.low[name][k] if name in exhibit.low else None
        high = exhibit.high[name][k] if name in exhibit.high else None
        title = f"{exhibit.labels[k]} · {name}" if name else exhibit.labels[k]
        block.append(Bar(values[k], low, high, number, f"{title}: {wording.with_limits(values[k], low, high)}"))
    return block


def _bar_text(bar: Bar, like: Sequence[float]) -> str:
    """Number and interval, with as many decimals as the other bars."""
    if bar.value is None:
        return "undefined"
    return f"{wording.number(bar.value, like)} {wording.interval(bar.low, bar.high, like)}".strip()


def curves(exhibit: Curves) -> Markup:
    names = list(exhibit.series)
    xs: list[float | str | None] = []
    ys: list[float | None] = []
    for curve in exhibit.series.values():
        xs += curve.x or exhibit.x
        for part in (curve.y, curve.low, curve.high):
            ys += part or ()
    if not any(y is not None for curve in exhibit.series.values() for y in curve.y):
        return _nothing("no defined values")
    spoken = f"{len(names)} series over {exhibit.x_label or 'x'}, {_range(ys)}"
    curve_points = _points_of(exhibit)
    numbers = _curve_numbers(exhibit, curve_points)

    key = legend(names, "lines")
    plane = Plane(exhibit, xs, ys, key.height, floor=exhibit.style == "steps")
    shapes: list[Markup] = []
    for number, curve in enumerate(exhibit.series.values()):
        of = [point for point in curve_points if point.number == number]
        x = curve.x or exhibit.x
        if exhibit.style == "steps":
            shapes += plane.steps(x, curve.y, number)
            continue
        if curve.low is not None and curve.high is not None:
            shapes += plane.area(x, curve.low, curve.high, number)
        shapes += plane.line(x, curve.y, number)
        runs = [len(run) for run in plane.runs(x, curve.y)]
        if sum(runs) <= 30 or 1 in runs:
            for point in of:
                if plane.shows(point.x, point.y):
                    shapes.append(mark(number, plane.x(point.x), plane.y(point.y), hover=point.hover))  # type: ignore[arg-type]
    return Markup("{}{}{}").format(plane.picture(key, spoken, shapes), plane.note(), numbers)


@dataclass(frozen=True)
class _CurvePoint:
    """One point of a curve with the texts that tell it."""

    number: int  # of its series
    name: str
    x: float | str | None
    y: float | None
    shown_x: str
    shown_y: str
    hover: str


def _points_of(exhibit: Curves) -> list[_CurvePoint]:
    found = []
    for number, (name, curve) in enumerate(exhibit.series.items()):
        for k, x in enumerate(curve.x or exhibit.x):
            low = None if curve.low is None else curve.low[k]
            high = None if curve.high is None else curve.high[k]
            shown_x, shown_y = _plain(x), wording.with_limits(curve.y[k], low, high)
            hover = f"{name}: {shown_x}, {shown_y}" if name else f"{shown_x}, {shown_y}"
            found.append(_CurvePoint(number, name, x, curve.y[k], shown_x, shown_y, hover))
    return found


def _curve_numbers(exhibit: Curves, curve_points: Sequence[_CurvePoint]) -> Markup:
    heads = [exhibit.x_label or "x", exhibit.y_label or "value"]
    if len(exhibit.series) == 1:
        return _numbers(heads, [(point.shown_x, point.shown_y) for point in curve_points])
    return _numbers(["series", *heads], [(point.name, point.shown_x, point.shown_y) for point in curve_points])


def scatter(exhibit: Scatter, most: int = MAX_POINTS) -> Markup:
    if not any(x is not None and y is not None for x, y in zip(exhibit.x, exhibit.y)):
        return _nothing("no defined points")
    names = list(dict.fromkeys(exhibit.group)) or [""]
    key = legend(names, "marks", exhibit.hollow)
    xs, ys = (*exhibit.x, *exhibit.x_low, *exhibit.x_high), (*exhibit.y, *exhibit.y_low, *exhibit.y_high)
    plane = Plane(exhibit, xs, ys, key.height)
    rows = [k for k in range(len(exhibit.x)) if plane.shows(exhibit.x[k], exhibit.y[k])]
    every = -(-len(rows) // most)  # evenly through the rows, so that the picture does not depend on chance
    shown = rows[::every] if rows else []
    by_group = {name: [k for k in shown if not exhibit.group or exhibit.group[k] == name] for name in names}
    aside = _aside(plane, len(names))
    shapes: list[Markup] = []
    if exhibit.boxes:
        shapes += [_quartiles(plane, exhibit, by_group[name], number, aside) for number, name in enumerate(names)]
    shapes += [_point_intervals(plane, exhibit, by_group[name], number, aside[number]) for number, name in enumerate(names)]
    shapes += [_cloud(plane, exhibit, by_group[name], number, aside[number]) for number, name in enumerate(names)]
    across = ", ".join(plane.x.names) if plane.x.names else _range(x for x in exhibit.x if not isinstance(x, str))
    spoken = f"{len(rows)} points in {len(names)} group(s), vertical {_range(exhibit.y)}, horizontal {across}"
    chart = plane.picture(key, spoken, shapes)
    note = _left_out(len(shown), len(rows), "points")
    return Markup("{}{}{}{}").format(chart, note, plane.note(), _scatter_numbers(exhibit, rows))


def _scatter_numbers(exhibit: Scatter, rows: Sequence[int]) -> Markup:
    columns: dict[str, Sequence[object]] = {}
    if exhibit.label:
        columns["point"] = exhibit.label
    if exhibit.group:
        columns["group"] = exhibit.group
    heads = [*columns, exhibit.x_label or "x", exhibit.y_label or "y"]
    listed = [[*(_plain(c[k]) for c in columns.values()), _along(exhibit, "x", k), _along(exhibit, "y", k)] for k in rows]
    return _numbers(heads, listed, most=120)


def _along(exhibit: Scatter, axis: str, k: int) -> str:
    """A point's place along one axis, with its interval where it has one."""
    value, low, high = (getattr(exhibit, name) for name in (axis, f"{axis}_low", f"{axis}_high"))
    return wording.with_limits(value[k], low[k], high[k]) if low else _plain(value[k])


def _aside(plane: Plane, groups: int) -> list[float]:
    """How far each group is set off from the middle of a name, so that none hides another; 0 on an axis of numbers."""
    if not plane.x.names:
        return [0.0] * groups
    room = 0.7 * (plane.x(1) - plane.x(0)) if len(plane.x.names) > 1 else 0.35 * (plane.right - plane.left)
    return [room * ((number + 0.5) / groups - 0.5) for number in range(groups)]


def _quartiles(plane: Plane, exhibit: Scatter, rows: list[int], number: int, aside: Sequence[float]) -> Markup:
    """A box from quartile to quartile with the median, at every name."""
    half, drawn = min(16.0, 0.4 * abs(aside[0] - aside[-1]) or 16.0), []
    for name in plane.x.names:
        values = [exhibit.y[k] for k in rows if exhibit.x[k] == name]
        if values:
            middle = plane.x(name) + aside[number]
            low, median, high = (plane.y(float(q)) for q in np.quantile(np.array(values, dtype=float), (0.25, 0.5, 0.75)))
            box = {"x": middle - half, "y": high, "width": 2 * half, "height": max(low - high, 0.5)}
            drawn.append(tag("rect", **box, class_=f"quartiles {colour(number)}"))
            drawn.append(line(middle - half, median, middle + half, median, f"stroke {colour(number)}"))
    return tag("g", *drawn)


def _point_intervals(plane: Plane, exhibit: Scatter, rows: list[int], number: int, aside: float) -> Markup:
    """Thin bars behind the points, so that many of them stay readable."""
    drawn = []
    for k in rows:
        x, y = plane.x(exhibit.x[k]) + aside, plane.y(exhibit.y[k])  # type: ignore[arg-type]
        if exhibit.x_low and plane.x.can_show(exhibit.x_low[k]) and plane.x.can_show(exhibit.x_high[k]):
            drawn.append(line(plane.x(exhibit.x_low[k]), y, plane.x(exhibit.x_high[k]), y, f"spread {colour(number)}"))  # type: ignore[arg-type]
        if exhibit.y_low and plane.y.can_show(exhibit.y_low[k]) and plane.y.can_show(exhibit.y_high[k]):
            drawn.append(line(x, plane.y(exhibit.y_low[k]), x, plane.y(exhibit.y_high[k]), f"spread {colour(number)}"))  # type: ignore[arg-type]
    return tag("g", *drawn, class_="spreads") if drawn else Markup("")


def _cloud(plane: Plane, exhibit: Scatter, rows: list[int], number: int, aside: float) -> Markup:
    places = [(plane.x(exhibit.x[k]) + aside, plane.y(exhibit.y[k])) for k in rows]  # type: ignore[arg-type]
    if len(exhibit.x) > MAX_LABELLED_POINTS:  # one path of dots: a tenth of the bytes of one element each
        return tag("path", d=dots_path(places), class_=f"dots {colour(number)}")
    drawn = []
    for k, (x, y) in zip(rows, places):
        label = f"{exhibit.label[k]}: " if exhibit.label else ""
        hover = f"{label}{_along(exhibit, 'x', k)}, {_along(exhibit, 'y', k)}"
        drawn.append(mark(number, x, y, 3.4, hover, bool(exhibit.group) and exhibit.group[k] in exhibit.hollow))
    return tag("g", *drawn, class_="cloud")


def heatmap(exhibit: Heatmap, most: int = heatmaps.MAX_CELLS) -> Markup:
    values = np.array([[np.nan if v is None else v for v in row] for row in exhibit.values], dtype=float)
    if np.isnan(values).all():
        return _nothing("no defined values")
    rows, columns = values.shape
    spoken = f"{rows} rows and {columns} columns, {_range(values[~np.isnan(values)].tolist())}"
    shown = heatmaps.draw_heatmap(exhibit, values, spoken, most)
    names = exhibit.row_labels or [str(k + 1) for k in range(rows)]
    heads = ("", *(exhibit.col_labels or [str(k + 1) for k in range(columns)]))
    listed = [[name, *map(_plain, row)] for name, row in zip(names, exhibit.values)]
    return tag("div", shown, _numbers(heads, listed, most=MAX_LISTED // columns), class_="overlayable")


def gallery(exhibit: Gallery, most: int = MAX_PICTURES) -> Markup:
    if not exhibit.items:
        return _nothing("no pictures")
    items = list(exhibit.items)
    if exhibit.sort:
        items.sort(key=lambda item: (item.values.get(exhibit.sort) is None, -(item.values.get(exhibit.sort) or 0.0)))
    items = items[:most]
    measures: list[str] = []
    for item in items:
        measures += [name for name in item.values if name not in measures]
    groups = list(dict.fromkeys(item.group for item in items if item.group))
    order = {id(item): k for k, item in enumerate(exhibit.items)}
    tiles = [_tile(item, order[id(item)], measures) for item in items]
    controls = _gallery_controls(len(items), exhibit.sort, measures, groups)
    note = _left_out(len(items), len(exhibit.items), "pictures")
    return tag("div", controls, tag("div", *tiles, class_="tiles"), note, class_="gallery")


def _tile(item: Picture, position: int, measures: Sequence[str]) -> Markup:
    width, height = heatmaps.png_size(item.png)
    written = "; ".join(f"{name} {wording.number(value)}" for name, value in item.values.items())
    group = "" if item.group in item.caption else item.group
    said = " · ".join(part for part in (item.caption, group, written) if part) or "picture"
    image = tag(
        "img",
        src=heatmaps.picture_source(item.png),
        alt=said,
        width=width,
        height=height,
        class_="crisp" if max(width, height) < 100 else None,
        decoding="async",
    )
    values = [tag("div", tag("dt", name), tag("dd", wording.number(value))) for name, value in item.values.items()]
    lines = [
        tag("span", tag("bdi", item.caption), class_="what") if item.caption else "",
        tag("span", tag("bdi", group), class_="of") if group else "",
    ]
    sortable: dict[str, str | None] = {}
    for k, name in enumerate(measures):
        value = item.values.get(name)
        sortable[f"data_v{k}"] = None if value is None else repr(value)
    return tag(
        "figure",
        tag("button", image, type="button", aria_label=f"Enlarge: {said}"),
        tag("figcaption", *lines, tag("dl", *values) if values else ""),
        data_order=position,
        data_group=item.group,
        **sortable,
    )


def _gallery_controls(count: int, sort: str, measures: Sequence[str], groups: Sequence[str]) -> Markup:
    """Hidden at first: page.js shows them, so that a page without scripts has no dead controls."""
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
}


# --------------------------------------------------------------------------------------------------------------------- pieces


def _numbers(columns: Sequence[str], rows: Sequence[Sequence[str]], most: int = MAX_LISTED) -> Markup:
    """The drawn numbers as a folded table, for screen readers, for copying and for checking."""
    if not rows or len(rows) > most:
        return Markup("")
    head = tag("tr", *(tag("th", column, scope="col") for column in columns))
    body = []
    for row in rows:
        body.append(tag("tr", *(tag("td", tag("bdi", entry)) for entry in row)))
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
    if shown == all_:
        return Markup("")
    return tag("p", f"{wording.number(shown)} of {wording.number(all_)} {what} are drawn.", class_="note")
