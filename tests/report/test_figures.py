"""Drawings survive the worst data, stay small, and put values where they belong."""

import base64
import io
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from rightreasons.findings import Band, Bars, Cell, Curve, Curves, Estimate, Gallery, Heatmap, Picture, Scatter, Table
from rightreasons.report.figures import Limits, draw, forest, is_wide
from rightreasons.report.heatmaps import picture_source
from rightreasons.report.svg import Axis, axis_over, dots_path, shorten, shorten_all, tag, text_width, tick_text, wrapped
from rightreasons.report.wording import duration, interval, number, p_value

WORST = {
    "one": [0.5],
    "equal": [3.0, 3.0, 3.0],
    "zeros": [0.0, 0.0],
    "huge": [-1.7e308, 1.7e308],
    "tiny": [0.0, 5e-324],
    "close": [1.0, 1.0 + 1e-15],
    "far": [1e-300, 1e300],
    "negative": [-3.0, -1.0],
    "gaps": [None, 1.0, None, 2.0, None],
}


def root_of(markup):
    return ElementTree.fromstring(re.search(r"<svg.*?</svg>", str(markup), re.DOTALL).group(0))


@pytest.mark.parametrize("scale", ["linear", "log"])
@pytest.mark.parametrize("name", WORST)
def test_the_worst_numbers_are_drawn_inside_the_picture(name, scale):
    values = WORST[name]
    x = list(range(len(values)))
    low = [None if v is None else min(v, v * 0.5) for v in values]
    drawings = [
        draw(Bars(title="b", labels=x, series=values, low=low, reference=1.0)),
        draw(Curves(title="c", x=x, series={"a": Curve(y=values), "b": Curve(y=values, low=values, high=values)}, y_scale=scale)),
        draw(Curves(title="c", x=x, series=values, style="steps", y_scale=scale)),
        draw(Scatter(title="s", x=values, y=values, x_scale=scale, y_scale=scale, diagonal=True, bands=[Band(axis="x", low=0)])),
        draw(Heatmap(title="h", values=[values])),
        draw(Heatmap(title="h", values=[values], scale="diverging")),
        forest([Estimate(name="e", value=v, low=v, row="place") for v in values if v is not None]).rows[0],
    ]
    for drawing in drawings:
        root = root_of(drawing)
        _, _, width, height = map(float, root.get("viewBox").split())
        for element in root.iter():
            for key, limit in (
                ("x", width),
                ("cx", width),
                ("x1", width),
                ("x2", width),
                ("y", height),
                ("cy", height),
                ("y1", height),
            ):
                assert -30 <= float(element.get(key, 0)) <= limit + 30, (element.tag, element.attrib)
            assert all("nan" not in v and "inf" not in v for k, v in element.attrib.items() if k not in ("aria-label", "class"))


def test_bars_are_as_long_as_their_values():
    root = root_of(draw(Bars(title="b", labels=["a", "b", "c"], series=[0.2, 0.4, 0.8])))
    lengths = [float(r.get("width")) for r in root.iter("rect") if "fill" in r.get("class", "")]
    assert lengths[1] / lengths[0] == pytest.approx(2, rel=0.02) and lengths[2] / lengths[0] == pytest.approx(4, rel=0.02)


def test_bars_begin_at_zero_even_where_all_values_are_large():
    root = root_of(draw(Bars(title="b", labels=["a", "b"], series=[0.98, 0.99])))
    lengths = [float(r.get("width")) for r in root.iter("rect") if "fill" in r.get("class", "")]
    assert lengths[0] / lengths[1] == pytest.approx(98 / 99, rel=0.01)


def test_a_gap_in_a_curve_stays_a_gap():
    root = root_of(draw(Curves(title="c", x=range(7), series=[1, 2, None, 3, None, 4, 5])))
    assert len(list(root.iter("polyline"))) == 2
    assert len([m for m in root.iter("circle") if "mark" in m.get("class")]) == 5


def test_an_empty_exhibit_says_that_there_is_nothing_to_draw():
    for exhibit in (
        Bars(title="b", labels=[], series=[]),
        Curves(title="c", x=[1], series=[None]),
        Scatter(title="s", x=[None], y=[1]),
        Heatmap(title="h", values=[[None]]),
        Gallery(title="g", items=[]),
    ):
        assert "Nothing to draw" in draw(exhibit)
    assert draw(Table(title="t", columns=["a"], rows=[]))


def test_a_hundred_thousand_points_stay_small_and_say_so():
    rng = np.random.default_rng(0)
    drawing = draw(Scatter(title="s", x=rng.random(100_000), y=rng.random(100_000), group=["a", "b"] * 50_000))
    assert len(drawing) < 120_000
    assert "points are drawn" in drawing


def test_a_large_heatmap_becomes_one_picture():
    drawing = draw(Heatmap(title="h", values=np.random.default_rng(0).random((224, 224))))
    assert len(drawing) < 300_000 and "<rect" not in drawing


def test_a_cell_whose_interval_holds_the_centre_is_marked():
    drawing = draw(Heatmap(title="h", values=[[0.5, 0.2]], low=[[0.3, -0.1]], high=[[0.7, 0.5]], scale="diverging"))
    assert drawing.count("0.2 °") == 1 and "0.5 °" not in drawing
    assert "[0.300, 0.700]" in drawing and "marks a cell whose interval contains" in drawing
    with pytest.raises(ValueError, match="one limit"):
        Heatmap(title="h", values=[[0.5]], low=[[0.3]])
    with pytest.raises(ValueError, match="row 0 of high"):
        Heatmap(title="h", values=[[0.5, 1.0]], low=[[0.3, 0.2]], high=[[0.7]])


def test_values_at_or_below_zero_on_a_logarithmic_axis_are_named():
    assert "1 value(s) at or below zero" in draw(Curves(title="c", x=[1, 2], series=[0.0, 2.0], y_scale="log"))


def test_long_labels_are_cut_and_kept_in_full_for_hover():
    label = "a very long label that no picture of this width can hold in one line " * 3
    drawing = draw(Bars(title="b", labels=[label], series=[1.0]))
    assert "…" in drawing and f"<title>{label}</title>" in drawing
    assert text_width(shorten(label, 100)) <= 100


def test_an_interval_far_wider_than_the_rest_does_not_hide_them():
    estimates = [Estimate(name=str(k), value=0.5 + k / 10, low=0.4, high=0.9, row="place") for k in range(4)]
    drawings = forest([*estimates, Estimate(name="wild", value=0.6, low=-1e6, high=1e6, row="place")]).rows
    widths = [
        float(line.get("x2")) - float(line.get("x1"))
        for line in root_of(drawings[0]).iter("line")
        if line.get("class") == "whisker"
    ]
    assert max(widths) > 25
    assert len(list(root_of(drawings[-1]).iter("polygon"))) == 2  # arrows: it goes on


def test_a_cell_with_an_interval_and_one_without_a_value():
    drawing = draw(
        Table(
            title="t",
            columns=["a", "b"],
            rows=[["x", Cell(value=0.5, low=0.4, high=0.6)], ["y", Cell(value=np.nan, reason="empty")]],
        )
    )
    assert "[0.400, 0.600]" in drawing and "empty" in drawing and "undefined" in drawing


def test_galleries_come_sorted_and_pictures_without_the_value_come_last():
    items = [Picture(png=np.zeros((4, 4)), values={"v": v}) for v in (1.0, None, 3.0, -2.0)]
    drawing = draw(Gallery(title="g", items=items, sort="v"))
    assert re.findall(r'data-order="(\d)"', drawing) == ["2", "0", "3", "1"]
    assert re.findall(r'data-v0="([^"]*)"', drawing) == ["3.0", "1.0", "-2.0"]
    assert is_wide(Gallery(title="g", items=items))


@pytest.mark.parametrize(("low", "high"), [(0, 1), (-3, 7), (0.00012, 0.00034), (1e5, 3e6), (-1e-12, 1e-12)])
def test_ticks_are_few_round_and_inside(low, high):
    ticks = Axis(low, high, 0, 100).ticks(5)
    assert 3 <= len(ticks) <= 9
    assert all(low - 1e-9 * abs(high) <= value <= high + 1e-9 * abs(high) for value, _ in ticks)
    assert len({label for _, label in ticks}) == len(ticks)


def test_names_on_an_axis_keep_their_order():
    axis = axis_over(["stem", "layer1", "head"], 0, 100)
    assert axis("stem") < axis("layer1") < axis("head")


def test_tags_escape_values_and_texts():
    assert str(tag("a", "<b>", class_='"x"')) == '<a class="&#34;x&#34;">&lt;b&gt;</a>'


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.5, "0.500"),
        (-0.25, "−0.250"),
        (12.345, "12.35"),
        (900, "900"),
        (12345, "12\u202f345"),
        (1e-7, "1.00 × 10⁻⁷"),
        (None, "undefined"),
    ],
)
def test_numbers_read_as_people_write_them(value, text):
    assert number(value) == text


def test_a_p_value_is_never_written_as_zero():
    assert p_value(0.00001) == "< 0.001" and p_value(0.0312) == "0.031"


def test_an_interval_has_the_decimals_of_its_value():
    assert interval(0.5, 12.0, (6.0,)) == "[0.50, 12.00]" and interval(None, None) == "" and interval(None, 1.0) == "[?, 1.000]"


def test_durations_are_short():
    assert [duration(s) for s in (1.23, 600, 8000, None)] == ["1.2 s", "10 min", "2.2 h", "–"]


def test_a_large_picture_becomes_smaller_and_looks_the_same():
    rng = np.random.default_rng(0)
    shown = np.clip(np.linspace(0, 1, 96)[:, None, None] + 0.02 * rng.standard_normal((96, 96, 1)), 0, 1)
    large = Picture(png=shown).png
    source = picture_source(large)
    assert source.startswith("data:image/webp") and len(source) < len(large) / 2
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(source.partition(",")[2]))).convert("RGB")) / 255
    assert np.abs(pixels - shown).mean() < 0.03
    small = Picture(png=np.zeros((8, 8))).png
    assert picture_source(small) == f"data:image/png;base64,{small}"  # nothing to gain: as it is, to the last pixel


def test_dots_are_where_the_points_are_and_coincident_ones_are_drawn_once():
    places = [(10.2, 5.0), (3.0, 7.4), (10.0, 5.1), (250.5, 0.0)]
    x = y = 0.0
    drawn = []
    for right, down in re.findall(r"m(-?[\d.]+) ?(-?[\d.]+)h0", dots_path(places)):
        x, y = x + float(right), y + float(down)
        drawn.append((x, y))
    assert drawn == [(3.0, 7.5), (10.0, 5.0), (250.5, 0.0)]


def test_a_page_with_many_exhibits_draws_less_of_each():
    gallery = Gallery(title="g", items=[])
    scatter = Scatter(title="s", x=[1], y=[1])
    heatmap = Heatmap(title="h", values=np.ones((16, 16)))
    assert Limits.of([gallery, scatter, heatmap]) == Limits()
    many = Limits.of([gallery, scatter, heatmap] * 90)
    assert (many.pictures, many.points) == (6, 666) and many.cells < 256
    assert "<rect" in draw(heatmap) and 'class="cell"' not in draw(heatmap, many)


def test_names_that_begin_alike_are_cut_in_front():
    layers = [f"features.denseblock1.denselayer{k}" for k in range(3)]
    assert len(set(shorten_all(layers, 80))) == 3 and all(name.startswith("…") for name in shorten_all(layers, 80))
    assert shorten_all(["stem", "a very long name of a layer"], 80)[1].endswith("…")


def test_a_text_is_broken_between_words_and_cut_where_the_lines_end():
    assert wrapped("one two three", text_width("one two ")) == ["one two", "three"]
    assert wrapped("one two three four five", text_width("one two ")) == ["one two", "three f…"]
    assert wrapped("", 100) == []


def test_a_note_at_the_edge_of_a_band_is_not_said_twice():
    band = Band(axis="y", high=0.5, label="too small")
    drawing = draw(Curves(title="c", x=[0, 1], series=[0.2, 0.8], bands=[band], hline=0.5, hline_label="too small"))
    assert drawing.count("too small</text>") == 1


def test_a_group_that_the_caption_says_is_not_said_twice():
    items = [
        Picture(png=np.zeros((4, 4)), caption="border, severity 0.3", group="border"),
        Picture(png=np.ones((4, 4)), group="b"),
    ]
    drawing = draw(Gallery(title="g", items=items))
    assert drawing.count(">border<") == 1 and 'data-group="border"' in drawing  # in the choice of groups alone


def test_bars_have_as_many_decimals_as_each_other():
    drawing = draw(Bars(title="b", labels=["a", "b"], series=[0.0004, 0.25], low=[-0.0001, 0.2], high=[0.0009, 0.3]))
    assert ">0.000 [0.000, 0.001]<" in drawing and ">0.250 [0.200, 0.300]<" in drawing


def test_large_and_small_ticks_are_written_with_powers_of_ten():
    assert next(label for _, label in Axis(1e-5, 1e5, 0, 100, log=True).ticks(5)) == "10⁻⁵"
    assert tick_text(3e7, 1e7) == "3·10⁷" and tick_text(-20_000, 10_000) == "−20\u202f000"
