"""The app in a real browser: from the list to a page, progress that moves by itself, a comparison."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rightreasons.files import write_json
from rightreasons.report import report
from sample_findings import EVIL, saved, some
from serving import plan_of, serving

Visit = Callable[..., Any]
UNITS = ("u0", "u1", "u2")


def _write(folder: Path, unit: str, status: str) -> None:
    place = folder / "runs" / unit
    began = [{"time": "2026-01-01T00:00:00+00:00", "step": "train"}]
    write_json(place / "run.json", {"status": status, "attempts": began, "finished": ""})  # whole, as a worker writes it
    if status == "done":
        write_json(place / "row.json", {"measured": "x", "columns": {}})


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for day, name, verdict in ((1, "before", "shortcut"), (2, "after", "no evidence")):
        made = {"created": f"2026-01-0{day}T00:00:00+00:00"}
        findings = [one.model_copy(update=made) for one in some(EVIL, verdict=verdict)]
        saved(tmp_path / name, findings)
        report(findings, tmp_path / name / "report.html", title=f"{name} {EVIL}")
    (tmp_path / "sweep").mkdir()
    plan = plan_of(f"sweep {EVIL}", UNITS)
    (tmp_path / "sweep" / "plan.json").write_text(json.dumps(plan))
    _write(tmp_path / "sweep", "u0", "done")
    _write(tmp_path / "sweep", "u1", "running")
    return tmp_path


@pytest.fixture
def address(place: Path) -> Iterator[str]:
    with serving(place) as server:
        yield server.address


def test_one_gets_from_the_list_to_a_page_and_the_page_works(visit: Visit, address: str) -> None:
    seen = visit(address)
    seen.get_by_role("link", name="before", exact=True).click()
    seen.get_by_role("link", name="Open the page").click()
    seen.wait_for_url("**/report.html")  # a click does not wait for the page that it leads to
    assert seen.locator("h1").inner_text().startswith("before <script>alert(1)</script>")
    seen.unfold().locator(".tiles > figure > button").first.click()
    seen.expect("dialog").to_be_visible()
    seen.locator("dialog").get_by_role("button", name="Close").click()
    seen.expect("dialog").to_be_hidden()
    assert seen.complaints == []
    assert all(url.startswith((address, "data:")) for url in seen.requests)
    # What lies in the folder may draw itself and ask nobody anything.
    blocked = seen.evaluate("() => fetch('/').then(() => 'reached', () => 'refused')")
    assert blocked == "refused"


def test_progress_moves_by_itself(visit: Visit, address: str, place: Path) -> None:
    seen = visit(f"{address}at/sweep/")
    assert seen.locator("[data-live=done]").inner_text() == "1"
    assert "u1" in seen.locator("tbody[data-live=running]").inner_text()
    _write(place / "sweep", "u2", "running")  # before the other is done: the page may ask between the two
    _write(place / "sweep", "u1", "done")
    seen.expect("[data-live=done]").to_have_text("2")
    assert "u2" in seen.locator("tbody[data-live=running]").inner_text()
    assert seen.complaints == []


def test_two_audits_are_compared(visit: Visit, address: str) -> None:
    seen = visit(address)
    for box in seen.locator("input[name=of]").all():
        box.set_checked(box.get_attribute("value") in ("before", "after"))
    seen.get_by_role("button", name="What changed?").click()
    seen.wait_for_url("**/compare?**")  # a click does not wait for the page that it leads to
    assert "shortcut → no evidence" in seen.unfold().locator("main").inner_text()
    assert seen.complaints == []


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("path", ["", "at/sweep/", "at/before/"])
def test_axe_finds_no_serious_violation_in_the_app(visit: Visit, address: str, path: str, dark: bool) -> None:
    seen = visit(address + path, dark=dark)
    assert seen.violations() == []
    assert "<script>alert(1)</script>" in seen.locator("main").inner_text() or path == "at/before/"


def test_the_list_fits_a_phone(visit: Visit, address: str) -> None:
    assert visit(address, width=390).evaluate("document.scrollingElement.scrollWidth") <= 390
