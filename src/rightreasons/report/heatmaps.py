"""A heatmap as HTML with inline SVG: a grid of coloured cells, alone or over a picture, with its colour bar."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup
from PIL import Image

from rightreasons.findings import Heatmap
from rightreasons.report import wording
from rightreasons.report.svg import WIDTH, Axis, coordinate, picture, shorten, tag, text, text_width

MAX_CELLS = 900  # more are drawn as one picture
MAX_PRINTED_CELLS = 120
UNSURE = " °"
SEQUENTIAL = ("#f4f7fb", "#c9dcee", "#8fb9dc", "#4f8fc4", "#1f639f", "#0b3a69", "#06223f")
DIVERGING = ("#0b3a69", "#2f78b3", "#9cc6e2", "#f7f6f4", "#f3b98a", "#cf6a1c", "#7a3303")
OVERLAY = ("#fff3c4", "#ffd166", "#f79009", "#d6400e", "#8f1414")


def is_wide(exhibit: Heatmap) -> bool:
    """Whether it needs the page's whole width."""
    return len(exhibit.values[0]) > 12 and not exhibit.background


def draw_heatmap(exhibit: Heatmap, values: np.ndarray, spoken: str) -> Markup:
    """The drawing and its notes.

    Parameters
    ----------
    values : (rows, columns) of the exhibit, NaN where undefined
    spoken : what the drawing shows, for a screen reader
    """
    grid = _Grid.of(exhibit)
    ramp = _Ramp.of(values, exhibit)
    bottom = grid.top + grid.rows * grid.tall + 14
    width = max(grid.left + grid.columns * grid.wide + (40 if grid.slanted else 2), grid.left + 260)
    inside = (*_cells(values, exhibit, grid, ramp), *_labels(exhibit, grid), _colour_bar(exhibit, ramp, grid.left, bottom))
    chart = picture(width, bottom + 46, exhibit.title, spoken, *inside, class_="chart heat")
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

    @classmethod
    def of(cls, exhibit: Heatmap) -> _Grid:
        rows, columns = len(exhibit.values), len(exhibit.values[0])
        left = min(max(map(text_width, exhibit.row_labels)) + 8, 150.0) if exhibit.row_labels else 0.0
        left += 18 if exhibit.row_title else 0
        room = (2 * WIDTH if is_wide(exhibit) else WIDTH) - left
        if exhibit.background:
            width, height = _fitted(exhibit.background, room, 340.0)
            wide, tall = width / columns, height / rows
        else:
            wide = min(room / columns, 46.0)
            tall = wide if rows * columns > MAX_CELLS else min(wide, 34.0)
        top, slanted = 4.0, False
        if exhibit.col_labels:
            longest = max(map(text_width, exhibit.col_labels))
            slanted = longest > wide - 4
            top = min(longest * 0.72 + 14, 110) if slanted else 20.0
        top += 16 if exhibit.col_title else 0
        return cls(rows, columns, left, top, wide, tall, slanted)


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


def _cells(values: np.ndarray, exhibit: Heatmap, grid: _Grid, ramp: _Ramp) -> list[Markup]:
    count = grid.rows * grid.columns
    colours = ramp.rgba(values)
    frame = {"x": grid.left, "y": grid.top, "width": grid.columns * grid.wide, "height": grid.rows * grid.tall}
    behind: list[Markup] = []
    if exhibit.background:
        source = f"data:image/png;base64,{exhibit.background}"
        behind.append(tag("image", href=source, **frame, preserveAspectRatio="none"))
    if count > MAX_CELLS:
        return [*behind, tag("image", href=_as_png(colours), class_="overlay crisp", **frame, preserveAspectRatio="none")]
    printed = count <= MAX_PRINTED_CELLS and grid.wide >= 34 and not exhibit.background
    drawn: list[Markup] = []
    for i in range(grid.rows):
        for k in range(grid.columns):
            drawn.append(_cell(exhibit, i, k, grid, colours[i, k]))
            if printed and exhibit.values[i][k] is not None:
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
    low, high = _limits(exhibit, i, k)
    is_unsure = low is not None and high is not None and low <= exhibit.centre <= high
    label = f"{exhibit.values[i][k]:.2g}".replace("-", wording.MINUS) + (UNSURE if is_unsure else "")
    x, y = grid.left + k * grid.wide + grid.wide / 2, grid.top + i * grid.tall + grid.tall / 2 + 4
    return text(x, y, label, f"small {ink}", "middle")


def _limits(exhibit: Heatmap, i: int, k: int) -> tuple[float | None, float | None]:
    return (exhibit.low[i][k], exhibit.high[i][k]) if exhibit.low else (None, None)


def _labels(exhibit: Heatmap, grid: _Grid) -> list[Markup]:
    drawn = []
    for i, label in enumerate(exhibit.row_labels):
        drawn.append(text(grid.left - 6, grid.top + (i + 0.5) * grid.tall + 4, shorten(label, 140), "", "end", hover=label))
    for k, label in enumerate(exhibit.col_labels):
        x, y = grid.left + (k + 0.5) * grid.wide, grid.top - 7
        turn = f"rotate(-45 {coordinate(x)} {coordinate(y)})" if grid.slanted else None
        anchor = "start" if grid.slanted else "middle"
        drawn.append(text(x, y, shorten(label, 130), "", anchor, hover=label, transform=turn))
    middle = grid.top + grid.tall * grid.rows / 2
    if exhibit.row_title:
        drawn.append(text(12, middle, exhibit.row_title, "label", "middle", transform=f"rotate(-90 12 {coordinate(middle)})"))
    if exhibit.col_title:
        drawn.append(text(grid.left + grid.wide * grid.columns / 2, 12, exhibit.col_title, "label", "middle"))
    return drawn


def _colour_bar(exhibit: Heatmap, ramp: _Ramp, left: float, top: float) -> Markup:
    solid = ramp.rgba(np.linspace(ramp.low, ramp.high, 64)[None, :])
    solid[..., 3] = 255
    drawn = [tag("image", href=_as_png(solid), x=left, y=top, width=180.0, height=9.0, preserveAspectRatio="none", class_="ramp")]
    axis = Axis(ramp.low, ramp.high, left, left + 180)
    drawn += [text(axis(value), top + 22, label, "tick", "middle") for value, label in axis.ticks(3)]
    drawn.append(text(left, top + 38, exhibit.value_label, "label"))
    return tag("g", *drawn)


def _overlay_switch() -> Markup:
    box = tag("input", type="checkbox", checked="checked", class_="overlay-switch")
    return tag("label", box, " show the overlay", class_="switch")


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
