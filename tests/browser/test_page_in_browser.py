"""The page in a real browser: it asks for nothing, draws everything, and works by mouse, by keyboard, on a phone and on paper."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rightreasons.report import report
from sample_findings import EVIL, exhibits, finding, some

Visit = Callable[..., Any]
GALLERY = "figure.exhibit.gallery .gallery"
TILES = f"{GALLERY} .tiles > figure:not([hidden])"

# Every exhibit has something of a size, or says why there is nothing, and every picture has pixels.
NOT_DRAWN = """() => [...document.querySelectorAll('figure.exhibit')].filter(figure => {
  const drawn = figure.querySelector('svg.chart, table.data, .tiles img, p.nothing');
  const box = drawn && drawn.getBoundingClientRect();
  const pictures = [...figure.querySelectorAll('img')].every(i => i.complete && i.naturalWidth > 0);
  return !box || box.width < 20 || box.height < 10 || !pictures;
}).map(figure => figure.innerText)"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    findings = [*some(), finding("sdi", "no evidence", attribute="age", exhibits=exhibits("more")[:2])]
    return report(findings, tmp_path_factory.mktemp("page") / "report.html", title="A page", subtitle="for a browser")


def test_the_page_asks_for_nothing_and_complains_of_nothing(visit: Visit, path: Path) -> None:
    seen = visit(path)
    seen.wait_for_load_state("networkidle")
    assert [url for url in seen.requests if not url.startswith("data:")] == [path.as_uri()]
    assert seen.complaints == []


def test_every_exhibit_is_drawn(visit: Visit, path: Path) -> None:
    seen = visit(path).unfold()
    assert seen.locator("figure.exhibit").count() == 9
    assert seen.evaluate(NOT_DRAWN) == []


def test_a_gallery_is_sorted_and_filtered(visit: Visit, path: Path) -> None:
    seen = visit(path).unfold()

    def captions() -> list[str]:
        return [text.splitlines()[0] for text in seen.locator(f"{TILES} figcaption").all_inner_texts()]

    assert captions() == ["plain 1", "plain 3", "plain 0", "plain 2"]  # by score, as the exhibit asks
    choices = seen.locator(f"{GALLERY} .sort option").evaluate_all("options => options.map(o => o.value)")
    rising = next(value for value in choices if value.startswith("+"))
    seen.locator(f"{GALLERY} .sort").select_option(rising)
    assert captions() == ["plain 2", "plain 0", "plain 3", "plain 1"]
    seen.locator(f"{GALLERY} .filter").select_option("=odd")
    assert captions() == ["plain 3", "plain 1"]
    assert seen.locator(f"{GALLERY} .count").inner_text() == "2 pictures"


def test_a_picture_is_enlarged_by_mouse_and_by_keyboard(visit: Visit, path: Path) -> None:
    seen = visit(path).unfold()
    dialog = seen.expect("dialog")
    seen.locator(f"{TILES} > button").first.click()
    dialog.to_contain_text("plain 1")
    seen.keyboard.press("ArrowRight")
    dialog.to_contain_text("plain 3")
    seen.keyboard.press("ArrowLeft")
    seen.keyboard.press("ArrowLeft")
    dialog.to_contain_text("plain 2")
    seen.keyboard.press("Escape")
    dialog.to_be_hidden()
    seen.expect(".tiles > figure:focus-within").to_contain_text("plain 2")  # one goes on where one was
    seen.keyboard.press("Enter")
    dialog.to_be_visible()
    seen.locator("dialog").get_by_role("button", name="Close").click()
    dialog.to_be_hidden()
    assert seen.complaints == []


def test_everything_is_reached_by_keyboard(visit: Visit, path: Path) -> None:
    seen = visit(path)
    reached = []
    for _ in range(120):
        seen.keyboard.press("Tab")
        reached.append(seen.evaluate("() => { const e = document.activeElement; return e.tagName + '.' + e.className; }"))
    assert reached[0].startswith("A.skip")  # past the contents
    assert sum(name.startswith("SELECT") for name in reached) >= 2
    assert sum(name.startswith("SUMMARY") for name in reached) >= 3
    assert "INPUT.overlay-switch" in reached
    tiles = seen.evaluate("document.querySelectorAll('.tiles > figure > button').length")
    assert tiles == 4


def test_an_overlay_is_switched_off_and_on(visit: Visit, path: Path) -> None:
    seen = visit(path).unfold()
    overlay = seen.expect("figure.exhibit:has(.overlay-switch) >> nth=0 >> svg .overlay >> nth=0")
    overlay.to_be_visible()
    seen.locator("figure.exhibit .overlay-switch").first.focus()
    seen.keyboard.press("Space")
    overlay.to_be_hidden()
    seen.keyboard.press("Space")
    overlay.to_be_visible()


def test_findings_are_chosen_by_verdict(visit: Visit, path: Path) -> None:
    seen = visit(path)
    seen.locator(".choose select[data-key=verdict]").select_option("=shortcut")
    assert seen.locator("details.finding:visible").count() == 1
    assert seen.locator(".choose .count").inner_text() == "1 finding"


def test_cases_are_switched_by_keyboard(visit: Visit, path: Path) -> None:
    seen = visit(path)
    switches = seen.locator(".case-switch")
    assert switches.count() == 2
    assert seen.locator("section.case:visible").count() == 1
    first = seen.locator("section.case:visible").get_attribute("id")
    switches.first.focus()
    seen.keyboard.press("ArrowRight")
    seen.expect("section.case:visible").not_to_have_attribute("id", first)
    switches.first.click()
    seen.expect("section.case:visible").to_have_attribute("id", first)


def test_a_value_is_shown_where_the_pointer_is(visit: Visit, path: Path) -> None:
    seen = visit(path).unfold()
    seen.locator("figure.exhibit.bars svg.chart rect.fill:has(title)").first.hover()
    seen.expect("#hover").to_be_visible()
    seen.expect("#hover").to_have_text(re.compile(r"plain.*1"))


def test_a_chart_is_enlarged(visit: Visit, path: Path) -> None:
    seen = visit(path).unfold()
    chart = seen.locator("figure.exhibit.curves").first
    small = chart.locator("svg.chart").bounding_box()["width"]
    chart.locator("button.enlarge").click()
    assert seen.locator("dialog svg.chart").bounding_box()["width"] > small
    seen.keyboard.press("Escape")
    seen.expect("dialog").to_be_hidden()


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (390, False)])
def test_axe_finds_no_serious_violation(visit: Visit, path: Path, width: int, dark: bool) -> None:
    seen = visit(path, width=width, dark=dark)
    assert seen.violations() == []
    assert seen.unfold().violations() == []


def test_it_fits_a_phone_and_is_dark_in_the_dark(visit: Visit, path: Path) -> None:
    phone = visit(path, width=390, height=800, dark=True)
    assert phone.evaluate("document.scrollingElement.scrollWidth") <= 390
    colour = phone.evaluate("getComputedStyle(document.body).backgroundColor")
    assert max(map(int, re.findall(r"\d+", colour))) < 60


def test_odd_texts_run_nothing(visit: Visit, tmp_path: Path) -> None:
    findings = [*some(EVIL), finding(EVIL, model=EVIL, attribute=EVIL, question=EVIL, sentence=EVIL, settings={EVIL: EVIL})]
    seen = visit(report(findings, tmp_path / "odd.html", title=EVIL, subtitle=EVIL)).unfold()
    assert seen.complaints == []
    assert seen.locator("script").count() == 1
    assert "<script>alert(1)</script>" in seen.locator("h1").inner_text()
    assert seen.evaluate(NOT_DRAWN) == []


def test_paper_has_every_section(visit: Visit, path: Path) -> None:
    seen = visit(path)
    headings = [text.strip() for text in seen.locator("main h2").all_text_contents()]
    assert len(headings) >= 6
    seen.evaluate("document.querySelectorAll('details').forEach(d => { d.open = false; })")
    data = seen.pdf(outline=True, tagged=True)
    for heading in headings:
        assert heading in outline(data)
    assert len(re.findall(rb"/Type /Page\b", data)) >= 2


def outline(pdf: bytes) -> set[str]:
    """The headings that were printed: a PDF's outline is made of them."""
    found = re.findall(rb"/Title \((.*?[^\\])\)|/Title <([0-9A-Fa-f]+)>", pdf, re.DOTALL)
    return {" ".join(_title(raw).split()) for raw in found}


def _title(found: tuple[bytes, bytes]) -> str:
    raw = re.sub(rb"\\([()\\])", rb"\1", found[0]) if found[0] else bytes.fromhex(found[1].decode())
    return raw[2:].decode("utf-16-be") if raw.startswith(b"\xfe\xff") else raw.decode("latin-1")
