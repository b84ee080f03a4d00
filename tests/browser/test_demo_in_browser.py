"""The demo's page in a real browser. RIGHTREASONS_DEMO names the folder of a finished demo; else it is run."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_page_in_browser import NOT_DRAWN, outline

# The first test waits for the whole demo: minutes of processor time, of which a busy machine gives few.
pytestmark = [pytest.mark.slow, pytest.mark.torch, pytest.mark.timeout(2700)]
Visit = Callable[..., Any]


@pytest.fixture(scope="module")
def demo(chrome: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page; asked for after the browser, so that nothing is run for tests that are skipped."""
    folder = os.environ.get("RIGHTREASONS_DEMO")
    if folder:
        return Path(folder) / "report.html"
    pytest.importorskip("torch")
    from rightreasons.demo import demo as run

    return run(tmp_path_factory.mktemp("demo"), say=lambda _: None)[1]


def test_the_demo_page_is_small_asks_for_nothing_and_draws_everything(visit: Visit, demo: Path) -> None:
    assert demo.stat().st_size < 8e6
    seen = visit(demo)
    seen.wait_for_load_state("networkidle")
    assert [url for url in seen.requests if not url.startswith("data:")] == [demo.as_uri()]
    assert seen.complaints == []
    assert seen.locator("figure.exhibit").count() > 20
    assert seen.unfold().evaluate(NOT_DRAWN) == []


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (390, False)])
def test_axe_finds_no_serious_violation_in_the_demo(visit: Visit, demo: Path, width: int, dark: bool) -> None:
    seen = visit(demo, width=width, dark=dark)
    assert seen.violations() == []
    assert seen.unfold().violations() == []
    assert seen.evaluate("document.scrollingElement.scrollWidth") <= width


def test_the_pictures_of_the_demo_are_enlarged_and_sorted(visit: Visit, demo: Path) -> None:
    seen = visit(demo).unfold()
    gallery = seen.locator("figure.exhibit .gallery:has(.sort:visible)").first
    before = gallery.locator("figcaption").all_inner_texts()
    choices = gallery.locator(".sort option").evaluate_all("options => options.map(o => o.value)")
    gallery.locator(".sort").select_option(choices[-1])
    assert sorted(gallery.locator("figcaption").all_inner_texts()) == sorted(before)
    gallery.locator(".tiles > figure:not([hidden]) > button").first.click()
    seen.expect("dialog").to_be_visible()
    seen.keyboard.press("Escape")
    seen.expect("dialog").to_be_hidden()
    assert seen.complaints == []


def test_the_demo_on_paper_has_every_section(visit: Visit, demo: Path) -> None:
    seen = visit(demo)
    headings = ["".join(text.split()) for text in seen.locator("main h2").all_text_contents()]
    printed = {"".join(text.split()) for text in outline(seen.pdf(outline=True, tagged=True))}  # lines that wrap lose their space
    assert [heading for heading in headings if heading not in printed] == []
