"""Findings are exact on disk, refuse what cannot be true, and say why a number is missing."""

import base64
import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError

from rightreasons.errors import DataError
from rightreasons.findings import (
    MAX_PICTURES,
    Band,
    Bars,
    Cell,
    Check,
    Curve,
    Curves,
    Estimate,
    Finding,
    Gallery,
    Heatmap,
    Picture,
    Scatter,
    Table,
    file_name,
    not_run,
    png,
)
from rightreasons.stats.resampling import Interval

ODD_NAMES = [
    "<script>alert(1)</script>",
    "a/b",
    "..",
    ".hidden",
    "",
    'quote"s',
    "مرحبا",
    "🩻",
    "x" * 500,
    "a\x00b",
    "CON%2F",
    "é\u0301",
]


def finding(**fields):
    given = {
        "name": "a",
        "audit": "b",
        "question": "Is it?",
        "row": "reliance",
        "verdict": "shortcut",
        "sentence": "It is.",
        "estimates": [Estimate(name="effect", value=0.3, low=0.1, high=0.5, p=0.01, n=50, row="reliance")],
    }
    return Finding(**{**given, **fields})


def every_exhibit():
    rng = np.random.default_rng(0)
    return [
        Table(
            title="t", columns=["a", "b"], rows=[["x", 1], [2.5, None], [True, Cell(value=0.5, low=0.4, high=0.6)], [0, math.nan]]
        ),
        Bars(
            title="b", labels=np.array([1, 2]), series={"m": np.float32([0.1, 0.2])}, low={"m": [0, 0.1]}, high={"m": [1, np.inf]}
        ),
        Curves(title="c", x=np.arange(3), series={"p": rng.random(3), "q": Curve(y=[1, np.nan, 3], low=[0, 0, 0], x=[5, 6, 7])}),
        Curves(title="layers", x=["stem", "head"], series=[0.1, 0.2], bands=[Band(low=0, high=1)], style="steps"),
        Scatter(title="s", x=rng.random(5), y=rng.random(5), group=list("aabbc"), label=range(5), hline=0.5, x_scale="log"),
        Heatmap(title="h", values=rng.random((3, 4)), background=rng.random((600, 300)), scale="diverging"),
        Gallery(
            title="g", items=[Picture(png=rng.random((30, 20, 3)), caption="é", values={"d": np.float64(1)}, group=1)], sort="d"
        ),
    ]


def test_a_finding_comes_back_from_disk_exactly_as_it_was(tmp_path):
    values = [0.1, 1 / 3, 1e-308, 5e-324, 1.7976931348623157e308, -0.0, 123456789.123456789]
    estimates = [Estimate(name=str(v), value=v, row="place") for v in values]
    saved = finding(
        estimates=estimates, exhibits=every_exhibit(), checks=[Check(name="c", passed=None)], settings={"a": (1, 2.0, "x")}
    )
    path = saved.save(tmp_path)
    assert path == tmp_path / "findings" / "a.json"
    again = Finding.read(path)
    assert again == saved
    assert again.to_json() == saved.to_json()
    assert [e.value for e in again.estimates] == values
    assert again.exhibits[0].rows[0] == ("x", 1) and isinstance(again.exhibits[0].rows[1][0], float)
    assert again.exhibits[0].rows[2][0] is True
    assert [type(e) for e in again.exhibits] == [type(e) for e in saved.exhibits]


@pytest.mark.parametrize("name", [n for n in ODD_NAMES if n])
def test_any_name_can_be_saved_inside_the_folder_and_read_again(tmp_path, name):
    path = finding(name=name).save(tmp_path)
    assert path.parent == tmp_path / "findings" and path.suffix == ".json"
    assert Finding.read(path).name == name
    assert Finding.read_all(tmp_path) == [Finding.read(path)]


def test_different_names_have_different_files():
    names = [*ODD_NAMES, "a%2Fb", "x" * 501, "%", "%25"]
    assert len({file_name(name) for name in names}) == len(names)


def test_saving_leaves_no_temporary_file_and_replaces_the_old_one(tmp_path):
    finding(sentence="old").save(tmp_path)
    finding(sentence="new").save(tmp_path)
    assert [p.name for p in (tmp_path / "findings").iterdir()] == ["a.json"]
    assert Finding.read(tmp_path / "findings" / "a.json").sentence == "new"


def test_a_save_that_fails_leaves_the_old_file_whole(tmp_path, monkeypatch):
    path = finding(sentence="old").save(tmp_path)

    def broken(*_):
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", broken)
    with pytest.raises(OSError, match="disk full"):
        finding(sentence="new").save(tmp_path)
    assert [p.name for p in path.parent.iterdir()] == ["a.json"]
    assert Finding.read(path).sentence == "old"


@pytest.mark.parametrize("value", [math.nan, np.float32("nan"), np.inf, -np.inf, None, pd.NA, np.array(np.nan)])
def test_an_undefined_value_is_none_and_always_has_a_reason(value):
    estimate = Estimate(name="x", value=value, row="place")
    assert estimate.value is None and estimate.reason
    given = Estimate(name="x", value=value, reason="empty group", row="place")
    assert given.reason == "empty group"
    assert "NaN" not in json.dumps(estimate.model_dump(), allow_nan=False)


def test_an_infinite_limit_is_dropped_and_said():
    estimate = Estimate(name="odds", value=2.0, low=1.0, high=np.inf, row="place")
    assert (estimate.low, estimate.high) == (1.0, None) and "high is infinite" in estimate.reason


def test_undefined_values_of_exhibits_are_counted():
    assert Bars(title="b", labels=["a", "b"], series=[np.nan, 1.0]).reason == "1 value is undefined"
    assert Curves(title="c", x=[1, 2], series={"a": Curve(y=[np.nan, np.inf])}).reason == "2 values are undefined"
    assert Heatmap(title="h", values=[[np.nan, 1.0]], reason="no image there").reason == "no image there"
    assert Scatter(title="s", x=[1.0], y=[2.0]).reason == ""


@pytest.mark.parametrize(
    "fields",
    [
        {"low": 0.5, "high": 0.4},
        {"p": 1.5},
        {"p": -0.1},
        {"level": 1.0},
        {"n": -1},
        {"row": "elsewhere"},
        {"unknown": 1},
        {"value": "many"},
    ],
)
def test_an_impossible_estimate_is_refused(fields):
    with pytest.raises(ValidationError):
        Estimate(**{"name": "x", "value": 0.3, "row": "place", **fields})


def test_a_shortcut_needs_a_defined_estimate():
    for estimates in ([], [Estimate(name="x", value=np.nan, row="place")]):
        with pytest.raises(ValidationError, match="without one defined estimate"):
            finding(estimates=estimates)
        assert finding(estimates=estimates, verdict="inconclusive").verdict == "inconclusive"


def test_what_did_not_run_has_a_reason_and_no_verdict():
    silent = not_run("tsi", "tsi", "Which tokens?", "place", "the model has no tokens", settings={"top": 20})
    assert silent.verdict is None and silent.headline == "not run"
    assert silent.one_line() == "tsi: not run: the model has no tokens"
    with pytest.raises(ValidationError, match="did not run"):
        finding(not_run="no boxes")
    with pytest.raises(DataError, match="no reason"):
        not_run("tsi", "tsi", "Which tokens?", "place", " ")


def test_a_verdict_needs_a_sentence():
    with pytest.raises(ValidationError, match="no sentence"):
        finding(sentence="")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Table(title="t", columns=["a"], rows=[[1, 2]]), "row 0"),
        (lambda: Table(title="t", columns=["a"], rows=[[1]], highlight=[1]), "highlights row 1"),
        (lambda: Bars(title="b", labels=["a", "b"], series=[1.0]), "1 value"),
        (lambda: Bars(title="b", labels=["a"], series=[1.0], low=[2.0], high=[1.0]), "lies above"),
        (lambda: Bars(title="b", labels=["a"], series={"m": [1.0]}, low={"n": [1.0]}), "but the series are"),
        (lambda: Curves(title="c", x=[1, 2], series=[1.0]), "2 x values"),
        (lambda: Curves(title="c", x=[1, "a"], series=[1.0, 2.0]), "mix"),
        (lambda: Curves(title="c", x=[1], series={"a": {"y": [1], "low": [2], "high": [1]}}), "lies above"),
        (lambda: Scatter(title="s", x=[1], y=[]), "0 value"),
        (lambda: Scatter(title="s", x=[1], y=[1], group=["a", "b"]), "2 value"),
        (lambda: Heatmap(title="h", values=[[1, 2], [3]]), "row 1"),
        (lambda: Heatmap(title="h", values=[]), "no values"),
        (lambda: Gallery(title="g", items=[Picture(png=np.zeros((2, 2)))], sort="size"), "sorted by"),
        (lambda: Gallery(title="g", items=[Picture(png=np.zeros((2, 2)))] * (MAX_PICTURES + 1)), "at most 60"),
    ],
)
def test_an_exhibit_that_does_not_fit_together_says_where(make, message):
    with pytest.raises(ValidationError, match=message):
        make()


def test_pictures_are_bounded_png_whatever_was_given():
    large = Picture(png=np.zeros((400, 300, 3), np.uint8)).png
    raw = base64.b64decode(large)
    assert raw[:4] == b"\x89PNG" and int.from_bytes(raw[20:24], "big") == 128 and int.from_bytes(raw[16:20], "big") == 96
    assert Picture(png=raw).png == Picture(png=large).png == large
    for shape in ((5, 5), (5, 5, 1), (5, 5, 4)):
        assert Picture(png=np.full(shape, np.nan)).png
    assert png(np.eye(3, dtype=bool))


@pytest.mark.parametrize(
    ("picture", "message"),
    [
        (base64.b64decode(png(np.zeros((300, 300)), 512)), "at most 128"),
        (b"<svg onload=alert(1)>", "not PNG"),
        ("not base64!", "not base64"),
        ("PHN2Zz4=", "not PNG"),
        (np.zeros((3, 3, 7)), "shape"),
        (np.zeros((3, 3), int), "type"),
        (np.zeros((0, 3)), "shape"),
        (base64.b64decode(png(np.zeros((3, 3)))) + b"x" * 300_000, "bytes"),
    ],
)
def test_a_picture_that_is_no_small_png_is_refused(picture, message):
    with pytest.raises(ValidationError, match=message):
        Picture(png=picture)


@dataclass
class Setting:
    severity: float
    where: Path


def test_settings_of_any_common_kind_are_written_plainly():
    given = {
        "a": np.float32(0.5),
        "b": (1, np.int64(2)),
        "c": Path("x/y"),
        "d": {3, 1},
        "e": np.nan,
        "f": Setting(math.inf, Path("z")),
        1: len,
    }
    saved = finding(settings=given)
    assert saved.settings["a"] == 0.5 and saved.settings["b"] == [1, 2] and saved.settings["d"] == [1, 3]
    assert (
        saved.settings["c"] == "x/y" and saved.settings["e"] == "nan" and saved.settings["f"] == {"severity": "inf", "where": "z"}
    )
    assert saved.settings["1"] == "builtins.len"
    assert Finding.from_json(saved.to_json()).to_json() == saved.to_json()
    with pytest.raises(ValidationError, match="cannot be written"):
        finding(settings={"odd": object()})


def test_a_name_that_utf8_cannot_hold_is_kept_readable():
    saved = finding(name="caf\udce9")
    assert saved.name == "caf\\udce9"
    assert Finding.from_json(saved.to_json()).to_json() == saved.to_json()


def test_findings_are_frozen():
    with pytest.raises(ValidationError):
        finding().verdict = None


def test_a_file_that_is_no_finding_is_refused_by_name(tmp_path):
    path = tmp_path / "broken.json"
    for text, message in (
        ("{", "not JSON"),
        ("[]", "not a finding"),
        ('{"name": "a"}', "problem"),
        (finding().to_json() + "x", "not JSON"),
    ):
        path.write_text(text)
        with pytest.raises(DataError, match=message) as caught:
            Finding.read(path)
        assert "broken.json" in str(caught.value)
    with pytest.raises(DataError, match="cannot be read"):
        Finding.read(tmp_path / "absent.json")
    with pytest.raises(DataError, match="no findings"):
        Finding.read_all(tmp_path / "nowhere")


def test_the_line_for_a_terminal_holds_no_control_character():
    line = finding(name="a\x1b[2J\nb", sentence="It\tis.").one_line()
    assert line.isprintable() and "SHORTCUT" in line and "effect 0.300 [0.100, 0.500], p = 0.010" in line


def test_the_notebook_view_is_escaped():
    shown = finding(
        name="x", sentence="<script>alert(1)</script>", estimates=[Estimate(name="<b>", value=1, row="place")]
    )._repr_html_()
    assert "<script>" not in shown and "<b>" not in shown and "&lt;script&gt;" in shown


def test_the_schema_describes_every_kind_of_exhibit():
    schema = Finding.schema()
    kinds = schema["properties"]["exhibits"]["items"]["discriminator"]["mapping"]
    assert set(kinds) == {"table", "bars", "curves", "scatter", "heatmap", "gallery"}
    json.dumps(schema)


def test_bars_curves_and_heatmaps_take_numbers_with_limits_as_they_are() -> None:
    numbers = [Interval(0.5, 0.4, 0.7), Interval(np.nan, np.nan, np.nan, reason="no rows")]
    parts = ((0.5, None), (0.4, None), (0.7, None))
    bars = Bars(title="b", labels=["a", "b"], series={"x": numbers, "chance": [0.1, 0.2]})
    assert (bars.series["x"], bars.low["x"], bars.high["x"]) == parts
    assert (bars.series["chance"], "chance" in bars.low) == ((0.1, 0.2), False)
    curve = Curves(title="c", x=[1, 2], series={"x": numbers}).series["x"]
    assert (curve.y, curve.low, curve.high) == parts
    heatmap = Heatmap(title="h", values=[numbers])
    assert ((heatmap.values, heatmap.low, heatmap.high)) == tuple((part,) for part in parts)
