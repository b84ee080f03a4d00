"""What is exported can be read by other programs, and says what the findings say."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from xml.etree import ElementTree

import pandas as pd
import pytest
from markdown_it import MarkdownIt
from PIL import Image
from typer.testing import CliRunner

from rightreasons import exports
from rightreasons.cli import app
from rightreasons.errors import SettingError
from rightreasons.exports import browser, checks, estimates, export, frame, model_card, schema
from rightreasons.findings import Bars, Curves, Finding, Gallery, Heatmap, Scatter, Table, as_line
from rightreasons.report.figures import draw
from rightreasons.report.standalone import standalone
from sample_findings import EVIL, estimate, exhibits, finding, saved, some

ROOT = Path(__file__).parents[1]
needs_browser = pytest.mark.skipif(browser() is None, reason="no browser such as chromium is installed")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return saved(tmp_path / "audit", some())


def test_the_published_schema_is_current() -> None:
    published = ROOT / "docs" / "schema" / exports.SCHEMA_NAME
    assert published.read_text(encoding="utf-8") == schema(), (
        "run python -c 'from rightreasons.exports import schema; print(schema(), end=\"\")' > docs/schema/finding.schema.json"
    )


def test_findings_keep_the_schema_and_what_is_no_finding_does_not() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    validator = jsonschema.Draft202012Validator(json.loads(schema()))
    validator.check_schema(json.loads(schema()))
    for one in some(EVIL):
        assert list(validator.iter_errors(json.loads(one.to_json()))) == []
    told = json.loads(finding().to_json())
    for broken in ({**told, "row": "elsewhere"}, {**told, "surprise": 1}, {**told, "verdict": "maybe"}):
        assert list(validator.iter_errors(broken))


def test_json_is_read_back_as_it_was(folder: Path, tmp_path: Path) -> None:
    export(folder, tmp_path / "out", kinds=["json"])
    assert Finding.read_all(tmp_path / "out") == Finding.read_all(folder)
    assert (tmp_path / "out" / exports.SCHEMA_NAME).is_file()


def test_estimates_and_checks_are_tables_of_one_row_each() -> None:
    found = some()
    table = estimates(found)
    assert len(table) == sum(len(f.estimates) for f in found)
    assert table.loc[0, ["finding", "estimate", "value", "low", "high"]].tolist() == [
        "art",
        "effect",
        0.3,
        0.25,
        pytest.approx(0.35),
    ]
    assert checks(found)["passed"].tolist() == [False]
    assert list(estimates([])) and len(estimates([])) == 0


def test_the_data_of_every_exhibit_are_a_table() -> None:
    kinds = {type(e): e for e in exhibits()}
    assert frame(kinds[Table]).columns.tolist() == ["plain", "b", "b low", "b high"]
    assert frame(kinds[Table])["b low"].tolist()[1] == 1.0
    assert frame(kinds[Bars])["value"].tolist()[:3] == [1.0, 2.0, 2.0]
    assert frame(kinds[Curves]).query("series == 'plain'")["high"].tolist() == [2.0, 3.0, 4.0]
    own = Curves(title="t", x=[1, 2], series={"one": [1, 2], "own": {"x": [5], "y": [6]}, "empty": {"x": [], "y": []}})
    assert frame(own)[["series", "x", "y"]].to_numpy().tolist() == [["one", 1, 1], ["one", 2, 2], ["own", 5, 6]]
    assert frame(kinds[Scatter])["group"].tolist() == ["plain", "other", "other"]
    assert frame(exhibits()[4]).query("row == 'b' and column == 'x'")["value"].tolist() == [3.0]
    assert len(frame(kinds[Heatmap])) == 4
    assert frame(kinds[Gallery])["score"].tolist() == [0.3, 0.9, 0.1, 0.5]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_tables_are_read_back_with_odd_names(tmp_path: Path, kind: str) -> None:
    saved(tmp_path / "audit", [*some(EVIL), finding(EVIL, exhibits=exhibits(EVIL))])
    done = export(tmp_path / "audit", tmp_path / "out", kinds=[kind])
    files = list((tmp_path / "out").rglob(f"*.{kind}"))
    assert len(files) == done.written[kind] == 2 + 14
    read = {"csv": pd.read_csv, "parquet": pd.read_parquet}[kind]
    assert EVIL in set(read(tmp_path / "out" / f"estimates.{kind}")["finding"])
    for file in files:
        assert file.resolve().is_relative_to((tmp_path / "out").resolve())
        read(file)


def test_a_spreadsheet_runs_nothing(tmp_path: Path) -> None:
    formula = "=HYPERLINK(A1)"
    table = Table(title="t", columns=[formula, "b"], rows=[["+1+1", -2.0], ["@x", "-y"]])
    saved(tmp_path / "audit", [finding(exhibits=[table])])
    export(tmp_path / "audit", tmp_path / "out", kinds=["csv"])
    text = next((tmp_path / "out" / "tables").rglob("*.csv")).read_text()
    assert text.splitlines() == ["'=HYPERLINK(A1),b", "'+1+1,-2.0", "'@x,'-y"]


def test_a_figure_stands_alone(tmp_path: Path) -> None:
    saved(tmp_path / "audit", [finding(exhibits=exhibits(EVIL))])
    written = export(tmp_path / "audit", tmp_path / "out", kinds=["svg"]).written
    found = {kind: len(list((tmp_path / "out" / "figures").rglob(f"*.{kind}"))) for kind in ("svg", "png")}
    assert found == {"svg": 5, "png": 4} and written == {"svg": 9}  # pictures of galleries as they are
    for file in (tmp_path / "out" / "figures").rglob("*.svg"):
        text = file.read_text(encoding="utf-8")
        root = ElementTree.fromstring(text)
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert "var(" not in text and "<script" not in text
        for element in root.iter():
            assert not [key for key in element.attrib if key.startswith("on")]
            assert element.get("href", "data:").startswith("data:")


def test_a_rule_of_the_style_sheet_becomes_an_attribute() -> None:
    drawn = standalone('<svg viewBox="0 0 10 10" class="chart"><g class="cloud"><circle class="mark s1" r="1"/></g></svg>')
    style = re.search(r'class="mark s1"[^>]*style="([^"]+)"', drawn)
    assert style is not None
    told = dict(part.split(":") for part in style.group(1).split(";"))
    assert re.fullmatch(r"#[0-9a-f]{6}", told["fill"])
    assert float(told["fill-opacity"]) < 1  # of `.cloud .mark`, which is about marks inside a cloud


def test_a_kind_that_nobody_knows_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="cannot export as 'svgg'; did you mean 'svg'"):
        export(folder, tmp_path / "out", kinds=["svgg"])


def test_what_cannot_be_written_is_named_with_what_it_needs(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exports, "browser", lambda: None)
    monkeypatch.setattr(exports.importlib.util, "find_spec", lambda name: None)
    done = export(folder, tmp_path / "out", kinds=["png", "pdf", "markdown"])
    assert set(done.lacking) == {"png", "pdf"}
    assert "chromium" in done.lacking["pdf"] and "cairosvg" in done.lacking["png"]
    assert done.written == {"markdown": 1}


def test_the_model_card_says_what_was_found() -> None:
    text = model_card(some())
    assert "Is it right for the right reasons?" in text
    for said in ("**shortcut**", "effect 0.300", "no reference models", "Conditions that are not met", "does not prove"):
        assert said in text
    headings = re.findall(r"(?m)^#+ (.*)$", text)
    template = [
        "Bias, Risks, and Limitations",
        "Evaluation",
        "Testing Data, Factors & Metrics",
        "Testing Data",
        "Factors",
        "Metrics",
    ]
    assert [name for name in headings if name in (*template, "Results", "Summary")] == [*template, "Results", "Summary"]


def test_hugging_face_reads_the_numbers_of_a_model_card() -> None:
    hub = pytest.importorskip("huggingface_hub")
    described = finding("groups", None, row="behaviour", cohort="test", estimates=[
        estimate(0.8, name="accuracy", row="behaviour"), estimate(0.4, name="worst-group accuracy", row="behaviour"),
    ])  # fmt: skip
    undefined = finding("flips", "inconclusive", cohort="test", estimates=[estimate(float("nan"), low=None, high=None)])
    card = hub.ModelCard(model_card([finding(cohort="test"), described, undefined, finding(model="other", cohort="elsewhere")]))
    read = {(result.dataset_name, result.metric_name): result.metric_value for result in card.data.eval_results}
    assert read["test", "art: effect, 95 % interval 0.25 to 0.35"] == 0.3
    assert read["test", "groups: worst-group accuracy, 95 % interval 0.35 to 0.45"] == 0.4
    assert read["elsewhere", "art: effect, 95 % interval 0.25 to 0.35"] == 0.3
    assert not any("flips" in name for _, name in read)
    assert {result.task_type for result in card.data.eval_results} == {"image-classification"}
    assert card.text.strip().startswith("# Model card for m, other")


def test_hugging_face_reads_odd_texts_as_they_are() -> None:
    hub = pytest.importorskip("huggingface_hub")
    odd = EVIL + "\x7f\x85 'quoted': - # \\n"
    card = hub.ModelCard(model_card([finding("art", model=odd, attribute=odd, cohort=odd, estimates=[estimate(name=odd)])]))
    (kinds,) = {result.dataset_type for result in card.data.eval_results}
    assert kinds == as_line(odd)
    assert as_line(odd) in {result.metric_type for result in card.data.eval_results}


def test_markdown_shows_odd_texts_as_text() -> None:
    evil = EVIL + "\n\n# heading\n| cell | https://example.org www.example.org"
    odd = [
        finding(
            evil, sentence=evil, question=evil, model=evil, attribute=evil, checks=[{"name": evil, "passed": False, "note": evil}]
        )
    ]
    card = model_card([*odd, *some(evil)])
    card = card.split("\n---\n", 1)[1]  # what is in front is read by programs
    parsed = MarkdownIt("commonmark", {"linkify": False}).enable("table").parse(card)
    inline = [child for token in parsed for child in token.children or ()]
    kinds = {token.type for token in (*parsed, *inline)}
    assert not kinds & {"html_block", "html_inline", "link_open", "image", "code_inline", "em_open", "fence", "code_block"}
    tags = [t.tag for t in parsed if t.type == "heading_open"]
    assert (tags.count("h1"), tags.count("h2")) == (1, 2)
    assert len(tags) == len(re.findall(r"(?m)^#+ ", card))  # each of them the card's own
    assert any("<script>alert(1)</script>" in "".join(c.content for c in t.children or ()) for t in parsed if t.type == "inline")
    assert not re.search(r"(?<!\\)://|www\.", card)  # nothing for a site to turn into a link


def _first_svg(stem: str) -> str:
    return re.findall(r"<svg .*?</svg>", draw(exhibits()[int(stem[:2]) - 1]), re.DOTALL)[0]


@needs_browser
def test_figures_and_page_are_drawn_by_a_browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exports, "BROWSER_SECONDS", 600)  # it is about what is drawn, not how soon
    one = saved(tmp_path / "one", [finding(exhibits=exhibits())])
    done = CliRunner().invoke(app, ["export", str(one), "--to", str(tmp_path / "out"), "--only", "png,pdf"])
    assert done.exit_code == 0, done.output
    drawn = sorted((tmp_path / "out" / "figures" / "art").glob("*.png"))
    assert len(drawn) == 5
    for file in drawn:
        size = re.findall(r' (?:width|height)="([\d.]+)"', standalone(_first_svg(file.stem)))[:2]
        with Image.open(file) as picture:
            assert picture.size == tuple(2 * math.ceil(float(side)) for side in size)
            assert picture.convert("RGB").getpixel((0, 0)) == (255, 255, 255)  # the margin: nothing of the one above
    with Image.open(drawn[0]) as picture:
        assert len(picture.convert("RGB").getcolors(1 << 24)) > 20
    assert len(list((tmp_path / "out" / "figures").rglob("0?.png"))) == 4
    assert (tmp_path / "out" / "report.pdf").read_bytes().startswith(b"%PDF")
