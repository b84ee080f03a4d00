"""Draw the pictures of the gallery: run notebooks, and photograph the first screen of the page that each leaves.

    python docs/draw.py                     every picture of docs/pictures/gallery
    python docs/draw.py oscar tsi           some of them
    python docs/draw.py films_shortcut      pages of made-up chest films, whose features are drawn
    python docs/draw.py demo=build/demo/report.html     of a page that is there already

Each notebook takes less than a minute on one core; a browser that rightreasons finds takes the pictures.
"""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image

from rightreasons.exports import browser
from rightreasons.report import report

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "pictures" / "gallery"
NOTEBOOKS = ("art", "oscar", "sdi_ccr", "short", "tsi", "volumes_with_atlas", "fixing_a_model")
FILMS = {"films_shortcut": "shortcut", "films_presentation": "presentation", "films_does_not_work": "does not work"}
WIDTH, HEIGHT = 1280, 1000
LARGEST = 300_000
"""Bytes of a picture."""


def page_of(notebook: str, folder: Path) -> Path:
    """Run a notebook in a folder, and give the page that it leaves."""
    names: dict[str, Any] = {"__name__": "__main__"}
    cells = json.loads((ROOT / "examples" / "notebooks" / f"{notebook}.ipynb").read_text(encoding="utf-8"))["cells"]
    with contextlib.chdir(folder):
        for cell in cells:
            if cell["cell_type"] == "code":
                exec(compile("".join(cell["source"]), notebook, "exec"), names)
        return Path(names["page"]).resolve()


def page_of_films(kind: str, folder: Path) -> Path:
    """The page of chest films on which a model uses the projection, sees more disease with it, or does not work."""
    sys.path.insert(0, str(ROOT))
    from benchmarks._page_cases import case

    findings, sheet = case(kind, folder / "films")
    return report(findings, folder / "report.html", title="Audit of net", subtitle="films.csv", sheet=sheet)


def photograph(page: Path, picture: Path) -> None:
    """The first screen of a page, with few enough colours to be small."""
    program = browser()
    if program is None:
        raise SystemExit("no browser was found: install chromium, or name one in RIGHTREASONS_BROWSER")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        shot = Path(profile) / "shot.png"
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={profile}"]
        options += [f"--window-size={WIDTH},{HEIGHT}", f"--screenshot={shot}", page.as_uri()]
        subprocess.run([program, *options], check=True, capture_output=True, timeout=120)
        image = Image.open(io.BytesIO(shot.read_bytes())).convert("RGB")
    picture.parent.mkdir(parents=True, exist_ok=True)
    image.quantize(128, dither=Image.Dither.NONE).save(picture, optimize=True)
    if picture.stat().st_size > LARGEST:
        raise SystemExit(f"{picture} has {picture.stat().st_size} bytes; at most {LARGEST} are allowed")


def main(names: list[str]) -> None:
    for name in names or [*FILMS, *NOTEBOOKS]:
        title, _, given = name.partition("=")
        with tempfile.TemporaryDirectory() as folder:
            if given:
                page = Path(given).resolve()
            elif title in FILMS:
                page = page_of_films(FILMS[title], Path(folder))
            else:
                page = page_of(title, Path(folder))
            photograph(page, PICTURES / f"{title}.png")
        print(PICTURES / f"{title}.png", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
