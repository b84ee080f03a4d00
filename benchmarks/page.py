"""How large is a page, how soon can one use it, and how many words are open? Of 30 models with 10,000 images, of chest films that
all audits look at, and of a demo where DEMO names its folder.

A browser opens the file anew each time. Told are the median times from the start of loading until the page can be used (its
scripts have run), until all is loaded, and from a click on a picture until it is enlarged; the page is interactive once it is
usable and has answered its first click. A large study's page must be so within 2 s and have less than 10 MB. Also told are the
words that are seen before anything is unfolded, and after everything is.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks._page_cases import case
from rich.console import Console
from rich.table import Table as Shown
from scipy import ndimage

from rightreasons import families
from rightreasons.exports import browser
from rightreasons.findings import Curves, Estimate, Exhibit, Finding, Gallery, Heatmap, Picture, Scatter, Table
from rightreasons.report import report

MODELS, IMAGES, OPENED = 30, 10_000, 5
MOST_MEGABYTES, MOST_MS = 10, 2000
AUDITS = ("groups", "probes", "art", "sdi", "oscar", "tsi")
READY = "() => { const t = performance.getEntriesByType('navigation')[0]; return [t.domContentLoadedEventEnd, t.loadEventEnd]; }"

WORDS = """() => { const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT); let words = 0;
while (walker.nextNode()) { const around = walker.currentNode.parentElement;
if (!around.closest('script, style, option') && around.checkVisibility({visibilityProperty: true})) {
words += walker.currentNode.data.split(/\\s+/).filter(Boolean).length; } } return words; }"""
UNFOLD = "document.querySelectorAll('details').forEach(d => { d.open = true; })"


def main() -> None:
    """Print the table and, as the last line, the JSON object."""
    if browser() is None:
        sys.exit("it needs a browser such as chromium")
    with tempfile.TemporaryDirectory() as name:
        pages = {f"{MODELS} models, {IMAGES:,} images": report(many(), Path(name) / "many.html", title="Many models")}
        findings, sheet = case("shortcut", Path(name) / "films", families.members("audits"))
        pages["films, one attribute"] = report(findings, Path(name) / "films.html", title="Audit of net", sheet=sheet)
        if os.environ.get("DEMO"):
            pages["the demo"] = Path(os.environ["DEMO"]) / "report.html"
        told = {what: {"megabytes": round(path.stat().st_size / 1e6, 2), **opened(path)} for what, path in pages.items()}
    head = ("usable", "loaded", "first click answered", "interactive", "words open", "words in all")
    shown = Shown("page", "MB", *head)
    for what, one in told.items():
        times = [f"{one[key]} ms" for key in ("usable_ms", "loaded_ms", "click_ms", "interactive_ms")]
        shown.add_row(what, str(one["megabytes"]), *times, str(one["words"]), str(one["all_words"]))
    Console().print(shown)
    large = next(iter(told.values()))
    held = large["megabytes"] < MOST_MEGABYTES and large["interactive_ms"] < MOST_MS
    limits = {"megabytes": MOST_MEGABYTES, "interactive_ms": MOST_MS}
    print(json.dumps({"name": "page", "pages": told, "opened": OPENED, "limits": limits, "held": held}))


def opened(path: Path) -> dict[str, float]:
    from playwright.sync_api import sync_playwright

    times = []
    with sync_playwright() as playwright:
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        for _ in range(OPENED):
            launched = playwright.chromium.launch(executable_path=browser(), args=sandbox)
            times.append(_once(launched.new_page(), path))
            launched.close()
        launched = playwright.chromium.launch(executable_path=browser(), args=sandbox)
        page = launched.new_page(viewport={"width": 1280, "height": 800})
        page.goto(path.resolve().as_uri())
        words = {"words": open_words(page)}
        page.evaluate(UNFOLD)
        words["all_words"] = open_words(page)
        launched.close()
    names = ("usable_ms", "loaded_ms", "click_ms", "interactive_ms")
    medians = {name: round(statistics.median(column)) for name, column in zip(names, zip(*times, strict=True), strict=True)}
    return {**medians, **words}


def open_words(page: Any) -> int:
    """Words that are seen on a page without unfolding anything."""
    return int(page.evaluate(WORDS))


def _once(page: Any, path: Path) -> tuple[float, float, float, float]:
    page.goto(path.resolve().as_uri(), wait_until="load")
    usable, loaded = page.evaluate(READY)
    click = page.evaluate(
        """() => { const began = performance.now(); document.querySelector('.tiles > figure > button').click();
        if (!document.querySelector('dialog').open) { throw new Error('nothing opened'); } return performance.now() - began; }"""
    )
    return usable, loaded, click, usable + click


def many() -> list[Finding]:
    """What a study of many models finds: estimates, and every kind of exhibit at its largest."""
    rng = np.random.default_rng(0)
    photos = [_photo(rng) for _ in range(60)]
    return [_finding(rng, f"model {m}", audit, photos) for m in range(MODELS) for audit in AUDITS]


def _finding(rng: np.random.Generator, model: str, audit: str, photos: list[np.ndarray]) -> Finding:
    value = float(rng.random())
    row: Any = {"groups": "behaviour", "probes": "encoding", "oscar": "place", "tsi": "place"}.get(audit, "reliance")
    about = {"level": 0.95, "n": IMAGES, "row": row}
    estimates = [Estimate(name=f"estimate {k}", value=value, low=value - 0.1, high=value + 0.1, **about) for k in range(8)]
    return Finding(
        name=f"{audit} {model}",
        audit=audit,
        question=f"What does {audit} say of {model}?",
        row=row,
        verdict=None if row in ("behaviour", "encoding") else "no evidence",
        sentence=f"{audit} says {value:.2f} of {model}.",
        estimates=estimates,
        exhibits=_exhibits(rng, photos) if audit in ("oscar", "tsi") else _exhibits(rng, photos)[:2],
        model=model,
        attribute="sex",
        n_rows=IMAGES,
    )


def _exhibits(rng: np.random.Generator, photos: list[np.ndarray]) -> list[Exhibit]:
    xs = np.linspace(0, 1, 30)
    return [
        Table(
            title="By group",
            columns=("group", "rows", "accuracy"),
            rows=[(f"group {k}", k, float(rng.random())) for k in range(8)],
        ),
        Curves(title="Along the layers", x=xs, series={name: rng.random(30) for name in ("one", "other")}),
        Scatter(title="Every image", x=rng.random(IMAGES), y=rng.random(IMAGES)),
        Heatmap(title="Where", values=rng.random((16, 16)), background=photos[0]),
        Gallery(title="Images", items=[Picture(png=p, caption=f"image {k}", values={"score": k}) for k, p in enumerate(photos)]),
    ]


def _photo(rng: np.random.Generator) -> np.ndarray:
    """As smooth and as noisy as a photograph, so that it compresses like one."""
    smooth = ndimage.gaussian_filter(rng.random((128, 128, 3)), (6, 6, 0))
    smooth = (smooth - smooth.min()) / (smooth.max() - smooth.min())
    return np.asarray(np.clip(smooth + 0.02 * rng.standard_normal(smooth.shape), 0, 1))


if __name__ == "__main__":
    main()
