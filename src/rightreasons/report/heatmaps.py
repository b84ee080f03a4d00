"""A heatmap as HTML with inline SVG: a grid of coloured cells, alone or over a picture, with its colour bar."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from markupsafe import Markup
from PIL import Image

from rightreasons.findings import Heatmap
from rightreasons.report import wording
from rightreasons.report.svg import (
    LINE_HEIGHT,
    SMALL,
    WIDTH,
    Axis,
    centred,
    coordinate,
    picture,
    shorten,
    shorten_all,
    tag,
    text,
    text_width,
    tick_labels,
    wrapped,
)

MAX_CELLS = 900  # more are drawn as one picture
MAX_PRINTED_CELLS = 120
LABEL_WIDTH = 130.0
COLUMN = 440.0  # what a column of a page on a desk has room for
KEY_WIDTH, RAMP_WIDTH = 300.0, 220.0
LARGE_PICTURE, WEBP_QUALITY = 6000, 88  # characters in base64 from which a picture is made smaller
UNSURE = " °"
SEQUENTIAL = ("#f4f7fb", "#c9dcee", "#8fb9dc", "#4f8fc4", "#1f639f", "#0b3a69", "#06223f")
DIVERGING = ("#0b3a69", "#2f78b3", "#9cc6e2", "#f7f6f4", "#f3b98a", "#cf6a1c", "#7a3303")
OVERLAY = ("#fff3c4", "#ffd166", "#f79009", "#d6400e", "#8f1414")


def is_wide(exhibit: Heatmap) -> bool:
    """Whether it needs the page's whole width."""
    if exhibit.background:
        return False
    rows, columns = len(exhibit.values), len(exhibit.values[0])
    needed = columns * _printed_width(exhibit) if rows * columns <= MAX_PRINTED_CELLS else 0.0
    return columns > 12 or _left_of(exhibit) + needed > COLUMN


def draw_heatmap(exhibit: Heatmap, values: np.ndarray, spoken: str, most: int = MAX_CELLS) -> Markup:
    """The drawing and its notes.

    Parameters
    ----------
    values : (rows, columns) of the exhibit, NaN where undefined
    spoken : what the drawing shows, for a screen reader
    most : cells that are elements of their own, with their value on hover; more are drawn as one picture
    """
    grid = _Grid.of(exhibit)
    ramp = _Ramp.of(values, exhibit)
    bottom = grid.top + grid.rows * grid.tall + 14
    key = _Key.of(exhibit, values, ramp)
    width = max(grid.left + grid.columns * grid.wide + grid.beyond, key.width)
    inside = (*_cells(values, exhibit, grid, ramp, most), *_labels(exhibit, grid), key.draw(bottom))
    chart = picture(width, bottom + key.height, exhibit.title, spoken, *inside, class_="chart heat")
    if width > WIDTH:  # a phone moves it along below its screen rather than making its texts too small to read
        chart = tag("div", chart, class_="scroll", tabindex="0", role="region", aria_label=exhibit.title)
    shown = Markup("{}{}").format(_overlay_switch() if exhibit.background else "", chart)
    if exhibit.low and grid.rows * grid.columns <= MAX_PRINTED_CELLS:
        centre = wording.number(exhibit.centre)
        note = f"{UNSURE.strip()} marks a cell whose interval contains {centre}; hover over a cell for its interval."
        shown += tag("p", note, class_="note")
    return shown


@dataclass(frozen=True)
class _Grid:
    """Where the cells are: `rows` by `columns` from (`left`, `top`), each `wide` by `tall` pixels."""

    rows: int
    columns: int
    left: float
    top: float
    wide: float
    tall: float
    slanted: bool  # whether the labels of columns are
    printed: bool  # whether each cell says its number
    beyond: float  # how far the labels of columns reach beyond the last cell

    @classmethod
    def of(cls, exhibit: Heatmap) -> _Grid:
        rows, columns = len(exhibit.values), len(exhibit.values[0])
        left = _left_of(exhibit)
        room = (2 * COLUMN if is_wide(exhibit) else COLUMN) - left
        printed = False
        if exhibit.background:
            width, height = _fitted(exhibit.background, WIDTH - left, 340.0)
            wide, tall = width / columns, height / rows
        else:
            needed = _printed_width(exhibit) if rows * columns <= MAX_PRINTED_CELLS else math.inf
            printed = needed * columns <= room
            wide = max(needed, min(room / columns, 46.0)) if printed else min(room / columns, 46.0)
            tall = wide if rows * columns > MAX_CELLS else min(wide, 30.0)
        top, slanted, beyond = 4.0, False, 2.0
        if exhibit.col_labels:
            longest = max(min(text_width(label), LABEL_WIDTH) for label in exhibit.col_labels)
            slanted = longest > wide - 4
            top = longest * 0.72 + 16 if slanted else 20.0
            beyond = max(2.0, longest * 0.72 + 8 - wide / 2) if slanted else 2.0
        top += 18 if exhibit.col_title else 0
        return cls(rows, columns, left, top, wide, tall, slanted, printed, beyond)


def _left_of(exhibit: Heatmap) -> float:
    """Room for what is said of the rows."""
    widest = max(map(text_width, exhibit.row_labels), default=0.0)
    return (min(widest, LABEL_WIDTH) + 8 if exhibit.row_labels else 0.0) + (18 if exhibit.row_title else 0.0)


def _printed_width(exhibit: Heatmap) -> float:
    """The width of a cell that has room for the longest number."""
    widest = 0.0
    for i, row in enumerate(exhibit.values):
        for k in range(len(row)):
            widest = max(widest, text_width(_number_in(exhibit, i, k), SMALL))
    return widest + 8


@dataclass(frozen=True)
class _Ramp:
    """Colours for values from `low` to `high`; over a picture, small values are nearly transparent."""

    low: float
    high: float
    colours: Sequence[str]
    diverging: bool
    over_picture: bool

    @classmethod
    def of(cls, values: np.ndarray, exhibit: Heatmap) -> _Ramp:
        low, high = (float(np.clip(limit, -1e300, 1e300)) for limit in (np.nanmin(values), np.nanmax(values)))
        over = exhibit.background is not None
        if exhibit.scale == "diverging":
            reach = max(high - exhibit.centre, exhibit.centre - low, 1e-12)
            return cls(exhibit.centre - reach, exhibit.centre + reach, DIVERGING, True, over)
        if high - low <= 1e-9 * max(abs(low), abs(high), 1e-280):
            low, high = low - 0.5, high + 0.5
        return cls(low, high, OVERLAY if over else SEQUENTIAL, False, over)

    def rgba(self, values: np.ndarray) -> np.ndarray:
        """RGBA bytes (rows, columns, 4); undefined values are transparent."""
        stops = np.array([[int(colour[k : k + 2], 16) for k in (1, 3, 5)] for colour in self.colours], dtype=float)
        share = np.clip((np.nan_to_num(values, nan=self.low) - self.low) / (self.high - self.low), 0, 1)
        rgb = np.stack([np.interp(share, np.linspace(0, 1, len(stops)), stops[:, k]) for k in range(3)], axis=-1)
        strength = np.abs(2 * share - 1) if self.diverging else share
        alpha = 0.04 + 0.76 * strength if self.over_picture else np.ones_like(share)
        alpha = np.where(np.isnan(values), 0.0, alpha)
        return np.round(np.concatenate([rgb, 255 * alpha[..., None]], axis=-1)).astype(np.uint8)


def _cells(values: np.ndarray, exhibit: Heatmap, grid: _Grid, ramp: _Ramp, most: int) -> list[Markup]:
    count = grid.rows * grid.columns
    colours = ramp.rgba(values)
    frame = {"x": grid.left, "y": grid.top, "width": grid.columns * grid.wide, "height": grid.rows * grid.tall}
    behind: list[Markup] = []
    if exhibit.background:
        behind.append(tag("image", href=picture_source(exhibit.background), **frame, preserveAspectRatio="none"))
    if count > most:
        return [*behind, tag("image", href=_as_png(colours), class_="overlay crisp", **frame, preserveAspectRatio="none")]
    drawn: list[Markup] = []
    for i in range(grid.rows):
        for k in range(grid.columns):
            drawn.append(_cell(exhibit, i, k, grid, colours[i, k]))
            if grid.printed and exhibit.values[i][k] is not None:
                drawn.append(_printed(exhibit, i, k, grid, colours[i, k]))
    return [*behind, tag("g", *drawn, class_="overlay")] if exhibit.background else drawn


def _cell(exhibit: Heatmap, i: int, k: int, grid: _Grid, colour: np.ndarray) -> Markup:
    row = exhibit.row_labels[i] if exhibit.row_labels else f"row {i + 1}"
    column = exhibit.col_labels[k] if exhibit.col_labels else f"column {k + 1}"
    low, high = _limits(exhibit, i, k)
    interval = "" if low is None or high is None else f" [{wording.number(low)}, {wording.number(high)}]"
    hover = tag("title", f"{row}, {column}: {wording.number(exhibit.values[i][k])}{interval}")
    red, green, blue, alpha = (int(part) for part in colour)
    fill, opacity = (f"#{red:02x}{green:02x}{blue:02x}", alpha / 255) if alpha else ("none", 1.0)
    place = {"x": grid.left + k * grid.wide, "y": grid.top + i * grid.tall, "width": grid.wide, "height": grid.tall}
    return tag("rect", hover, **place, fill=fill, fill_opacity=f"{opacity:.2f}", class_="cell")


def _printed(exhibit: Heatmap, i: int, k: int, grid: _Grid, colour: np.ndarray) -> Markup:
    """The number in a cell, with a sign where its interval contains the centre."""
    red, green, blue = (int(part) for part in colour[:3])
    ink = "on-dark" if 0.299 * red + 0.587 * green + 0.114 * blue < 140 else "on-light"
    label = _number_in(exhibit, i, k)
    x, y = grid.left + k * grid.wide + grid.wide / 2, grid.top + i * grid.tall + grid.tall / 2 + 4
    return text(x, y, label, f"small {ink}", "middle")


def _number_in(exhibit: Heatmap, i: int, k: int) -> str:
    value, (low, high) = exhibit.values[i][k], _limits(exhibit, i, k)
    if value is None:
        return ""
    is_unsure = low is not None and high is not None and low <= exhibit.centre <= high
    return f"{value:.2g}".replace("-", wording.MINUS) + (UNSURE if is_unsure else "")


def _limits(exhibit: Heatmap, i: int, k: int) -> tuple[float | None, float | None]:
    return (exhibit.low[i][k], exhibit.high[i][k]) if exhibit.low else (None, None)


def _labels(exhibit: Heatmap, grid: _Grid) -> list[Markup]:
    drawn = []
    every_row = max(1, math.ceil(LINE_HEIGHT / grid.tall))
    for i, shown in list(enumerate(shorten_all(exhibit.row_labels, LABEL_WIDTH)))[::every_row]:
        y = grid.top + (i + 0.5) * grid.tall + 4
        drawn.append(text(grid.left - 6, y, shown, "", "end", hover=exhibit.row_labels[i]))
    every_column = max(1, math.ceil(1.5 * LINE_HEIGHT / grid.wide)) if grid.slanted else 1
    for k, shown in list(enumerate(shorten_all(exhibit.col_labels, LABEL_WIDTH)))[::every_column]:
        x, y = grid.left + (k + 0.5) * grid.wide, grid.top - 7
        turn = f"rotate(-45 {coordinate(x)} {coordinate(y)})" if grid.slanted else None
        anchor = "start" if grid.slanted else "middle"
        drawn.append(text(x, y, shown, "", anchor, hover=exhibit.col_labels[k], transform=turn))
    middle = grid.top + grid.tall * grid.rows / 2
    if exhibit.row_title:
        title, turn = shorten(exhibit.row_title, max(grid.tall * grid.rows, 60)), f"rotate(-90 12 {coordinate(middle)})"
        drawn.append(text(12, middle, title, "label", "middle", transform=turn))
    if exhibit.col_title:
        wide = grid.left + grid.wide * grid.columns
        title = shorten(exhibit.col_title, max(wide, WIDTH))
        x = centred(grid.left + grid.wide * grid.columns / 2, text_width(title), 0, max(wide, WIDTH))
        drawn.append(text(x, 12, title, "label", "middle"))
    return drawn


@dataclass(frozen=True)
class _Key:
    """What the colours mean: what is measured, the colours from least to most with round numbers, and what has no colour."""

    exhibit: Heatmap
    ramp: _Ramp
    said: tuple[str, ...]
    has_gaps: bool

    @classmethod
    def of(cls, exhibit: Heatmap, values: np.ndarray, ramp: _Ramp) -> _Key:
        said = wrapped(exhibit.value_label, KEY_WIDTH, most=3)
        return cls(exhibit, ramp, tuple(said), bool(np.isnan(values).any()))

    @property
    def width(self) -> float:
        return KEY_WIDTH + 2

    @property
    def height(self) -> float:
        return LINE_HEIGHT * len(self.said) + 34 + (LINE_HEIGHT + 4 if self.has_gaps else 0)

    def draw(self, top: float) -> Markup:
        drawn: list[Markup] = []
        for written in self.said:
            drawn.append(text(0, top + 10, written, "label"))
            top += LINE_HEIGHT
        solid = self.ramp.rgba(np.linspace(self.ramp.low, self.ramp.high, 64)[None, :])
        solid[..., 3] = 255
        frame = {"x": 0.0, "y": top, "width": RAMP_WIDTH, "height": 10.0}
        drawn.append(tag("image", href=_as_png(solid), **frame, preserveAspectRatio="none", class_="ramp"))
        ends = (self.ramp.low, self.ramp.high)
        axis = Axis(*ends, 0, RAMP_WIDTH)
        told = (ends[0], self.exhibit.centre, ends[1]) if self.ramp.diverging else ends
        drawn += tick_labels(axis, [(value, wording.number(value, ends)) for value in told], top + 24, 0, KEY_WIDTH)
        if self.has_gaps:
            drawn.append(tag("rect", x=1.0, y=top + 33, width=14.0, height=10.0, class_="gap"))
            drawn.append(text(22, top + 42, "undefined", "label"))
        return tag("g", *drawn, class_="key")


def _overlay_switch() -> Markup:
    box = tag("input", type="checkbox", checked="checked", class_="overlay-switch")
    return tag("label", box, " show the overlay", class_="switch")


@lru_cache(maxsize=512)
def picture_source(encoded: str) -> str:
    """A PNG in base64 as the address of a picture: as WebP where that halves it, which the eye does not notice."""
    if len(encoded) > LARGE_PICTURE:
        buffer = io.BytesIO()
        with Image.open(io.BytesIO(base64.b64decode(encoded))) as picture:
            picture.save(buffer, "WEBP", quality=WEBP_QUALITY, method=2)
        smaller = base64.b64encode(buffer.getvalue()).decode("ascii")
        if len(smaller) < len(encoded) / 2:
            return f"data:image/webp;base64,{smaller}"
    return f"data:image/png;base64,{encoded}"


def png_size(encoded: str) -> tuple[int, int]:
    """Width and height of a PNG in base64."""
    header = base64.b64decode(encoded[:32])
    return int.from_bytes(header[16:20], "big"), int.from_bytes(header[20:24], "big")


def _fitted(encoded: str, width: float, height: float) -> tuple[float, float]:
    w, h = png_size(encoded)
    scale = min(width / w, height / h)
    return w * scale, h * scale


def _as_png(colours: np.ndarray) -> str:
    buffer = io.BytesIO()
    Image.fromarray(colours).save(buffer, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
