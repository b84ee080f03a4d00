"""The first screen of five kinds of case: verdict, number, pictures or ids, and next step, before anyone scrolls."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from benchmarks._page_cases import KINDS, case
from benchmarks.page import open_words

from rightreasons.report import report

Visit = Callable[..., Any]
MOST_WORDS = 1500  # open on the page of one attribute
PARTS = (".called", ".in-numbers", ".look", ".next", ".next .command")

# What is cut off at the right or hangs over another text is not seen.
SMALLEST_TEXT = """() => Math.min(...[...document.querySelectorAll('section.case *')].filter(e => e.checkVisibility()
  && [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())).map(e => parseFloat(getComputedStyle(e).fontSize)))"""


@pytest.fixture(scope="module", params=KINDS)
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    place = tmp_path_factory.mktemp("case")
    findings, sheet = case(request.param, place / "films")
    return request.param, report(findings, place / "report.html", title="Audit of net", sheet=sheet)


def boxes(seen: Any) -> dict[str, dict[str, float]]:
    return {part: seen.locator(f"section.case {part}").first.bounding_box() for part in PARTS}


def test_verdict_number_pictures_and_next_step_are_on_the_first_screen(visit: Visit, page: tuple[str, Path]) -> None:
    kind, path = page
    seen = visit(path, width=1280, height=800)
    placed = boxes(seen)
    assert max(box["y"] + box["height"] for box in placed.values()) <= 800, placed
    verdict = {"presentation": "No evidence", "does not work": "Inconclusive"}.get(kind, kind.capitalize())
    assert verdict in seen.locator(".called").inner_text()
    assert "%" in seen.locator(".in-numbers").inner_text()
    assert seen.locator(".look img").count() >= 3
    assert seen.locator(".by-group tbody tr").count() == 4
    assert seen.locator(".next p").inner_text().endswith(".")
    assert seen.locator(".next code").inner_text().startswith("rightreasons ")


def test_on_a_phone_they_come_in_the_same_order(visit: Visit, page: tuple[str, Path]) -> None:
    placed = boxes(visit(page[1], width=390, height=844))
    tops = [box["y"] for box in placed.values()]
    assert tops == sorted(tops)
    assert placed[".called"]["y"] + placed[".called"]["height"] <= 844
    assert placed[".in-numbers"]["y"] + placed[".in-numbers"]["height"] <= 844
    assert all(box["x"] >= 0 and box["x"] + box["width"] <= 390 for box in placed.values())


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (390, False)])
def test_axe_finds_nothing_serious_on_the_first_screen(visit: Visit, page: tuple[str, Path], width: int, dark: bool) -> None:
    seen = visit(page[1], width=width, dark=dark)
    assert seen.violations() == []
    assert seen.evaluate(SMALLEST_TEXT) >= 11
    assert seen.complaints == []


def test_few_words_are_open_and_no_number_of_the_first_screen_stands_there_twice(visit: Visit, page: tuple[str, Path]) -> None:
    seen = visit(page[1])
    assert open_words(seen.page) <= MOST_WORDS
    said = seen.locator(".in-numbers").inner_text().replace("\u00a0", " ").split(" ")
    shares = [word for word, unit in pairwise(said) if unit.startswith("%")]
    rest = " ".join(seen.locator(".says, .look figcaption, .next").all_inner_texts()).replace("\u00a0", " ")
    assert not [share for share in shares if f" {share} %" in rest]


def test_everything_that_is_folded_can_be_opened_and_is_printed(visit: Visit, page: tuple[str, Path]) -> None:
    seen = visit(page[1])
    folded = open_words(seen.page)
    assert open_words(seen.unfold().page) > folded + 400
    assert all(word in seen.inner_text("body") for word in ("Methods and settings", "Settings", "What it was made from"))


def test_the_command_is_copied(visit: Visit, page: tuple[str, Path]) -> None:
    seen = visit(page[1], permissions=["clipboard-read", "clipboard-write"])
    seen.locator("button.copy").click()
    assert seen.evaluate("getSelection().toString().trim()") == seen.locator(".next code").inner_text().strip()


def test_rows_without_pictures_are_named_by_their_ids(visit: Visit, tmp_path: Path) -> None:
    findings, sheet = case("shortcut")
    seen = visit(report(findings, tmp_path / "report.html", sheet=sheet), width=1280, height=800)
    assert seen.locator(".look .row-id").count() == 8
    assert seen.locator(".look .row-id").first.inner_text().startswith("film-")
    assert max(box["y"] + box["height"] for box in boxes(seen).values()) <= 800


def test_what_a_program_reads_is_what_the_page_says(visit: Visit, page: tuple[str, Path]) -> None:
    seen = visit(page[1])
    (told,) = json.loads((page[1].parent / "summary.json").read_text())["cases"]
    assert told["what"] == seen.locator(".in-numbers").inner_text().replace("\u00a0", " ")
    assert told["next_step"]["command"] == seen.locator(".next code").inner_text()
    assert told["verdict"] in seen.locator(".called").inner_text().lower()
