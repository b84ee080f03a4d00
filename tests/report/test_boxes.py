"""Points at names: groups stand side by side, and boxes show their quartiles."""

from __future__ import annotations

import re

import pytest

from rightreasons.findings import Scatter
from rightreasons.report.figures import draw


def boxes(x: list[str], y: list[float | None], group: list[str]) -> list[tuple[float, float, float]]:
    """(left, top, height) of every box."""
    drawing = draw(Scatter(title="s", x=x, y=y, group=group, boxes=True))
    rects = re.findall(r"<rect[^>]*quartiles[^>]*>", drawing)
    return [tuple(float(re.search(rf'\b{key}="([\d.]+)"', r).group(1)) for key in ("x", "y", "height")) for r in rects]


def test_every_group_at_every_name_has_a_box_beside_the_others() -> None:
    found = boxes(["a"] * 4 + ["b"] * 4, [1, 2, 3, 4] * 2, ["one", "two"] * 4)
    assert len(found) == 4
    assert len({left for left, _, _ in found}) == 4


def test_a_box_goes_from_quartile_to_quartile() -> None:
    (_, _, all_), (_, _, half) = boxes(["a"] * 5 + ["b"] * 5, [0, 25, 50, 75, 100, 25, 37.5, 50, 62.5, 75], [""] * 10)
    assert all_ == pytest.approx(2 * half, rel=0.02)


def test_undefined_values_and_numbers_on_the_axis_make_no_box() -> None:
    assert boxes(["a", "b"], [None, 1.0], ["", ""]) and len(boxes(["a", "b"], [None, 1.0], ["", ""])) == 1
    drawing = draw(Scatter(title="s", x=[1, 2], y=[1, 2], boxes=True))
    assert "quartiles" not in drawing
