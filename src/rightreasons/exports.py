"""Findings for other programs: JSON with its schema, tables, figures, a section of a model card, and a PDF of the page."""

from __future__ import annotations

import base64
import html
import importlib.util
import io
import json
import math
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from PIL import Image

from rightreasons import files
from rightreasons.calibration import calibration
from rightreasons.case import Case, Sheet, cases
from rightreasons.errors import DataError, SettingError
from rightreasons.families import suggest
from rightreasons.findings import (
    Bars,
    Cell,
    Curves,
    Estimate,
    Exhibit,
    Finding,
    Gallery,
    Heatmap,
    Scatter,
    Table,
    as_line,
    file_name,
)
from rightreasons.progress import track
from rightreasons.report import report
from rightreasons.report.figures import draw
from rightreasons.report.standalone import standalone

BROWSERS = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome", "msedge")
BROWSER_SECONDS = 120
SCALE = 2  # pixels of a PNG for one of the drawing
SHEET_PIXELS = 4000  # of drawings that a browser rasterises at once
SCHEMA_NAME = "finding.schema.json"
CALIBRATION_NAME = "calibration.json"


@dataclass(frozen=True)
class Exported:
    """Kind → how many files were written, and kind → why it was not."""

    written: dict[str, int] = field(default_factory=dict)
    lacking: dict[str, str] = field(default_factory=dict)


def export(folder: str | os.PathLike[str], to: str | os.PathLike[str], *, kinds: Sequence[str] | None = None) -> Exported:
    """Write the findings of a folder in other forms; what this machine cannot write is named with what it would need.

    Parameters
    ----------
    kinds : of json, csv, parquet, svg, png, markdown and pdf; all by default
    """
    for kind in kinds or ():
        if kind not in KINDS:
            raise SettingError(f"nothing is exported as {kind!r}; {suggest(kind, KINDS)}")
    source = _Source(Path(folder), tuple(Finding.read_all(Path(folder))))
    target = Path(to)
    done = Exported()
    for kind in kinds or KINDS:
        try:
            done.written[kind] = KINDS[kind](source, target)
        except _Lacking as lacking:
            done.lacking[kind] = str(lacking)
    return done


@dataclass(frozen=True)
class _Source:
    folder: Path
    findings: tuple[Finding, ...]

    def exhibits(self) -> Iterable[tuple[str, Exhibit]]:
        """Every exhibit under the name of its files, `<finding>/<number>-<title>`."""
        for finding in self.findings:
            for number, exhibit in enumerate(finding.exhibits, 1):
                yield f"{file_name(finding.name)}/{number:02d}-{file_name(exhibit.title)[:60]}", exhibit


class _Lacking(Exception):
    """A kind that this machine cannot write; the message says what it would need."""


# ---- JSON ----------------------------------------------------------------------------------------------------------------


def schema() -> str:
    """JSON Schema of a finding's file, as it is published."""
    told = {"$schema": "https://json-schema.org/draft/2020-12/schema", **Finding.schema()}
    return json.dumps(told, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def _json(source: _Source, to: Path) -> int:
    for finding in source.findings:
        finding.save(to)
    _write(to / SCHEMA_NAME, schema())
    _write(to / CALIBRATION_NAME, calibration().model_dump_json(indent=1) + "\n")
    return len(source.findings) + 2


# ---- tables --------------------------------------------------------------------------------------------------------------


def estimates(findings: Iterable[Finding]) -> pd.DataFrame:
    """A row for every estimate of every finding."""
    rows = []
    for f in findings:
        about = {"finding": f.name, "audit": f.audit, "model": f.model, "cohort": f.cohort, "attribute": f.attribute}
        about["verdict"] = f.headline
        rows += [{**about, "estimate": e.name, **e.model_dump(exclude={"name"})} for e in f.estimates]
    return pd.DataFrame(rows, columns=None if rows else ["finding", "estimate", *Estimate.model_fields])


def checks(findings: Iterable[Finding]) -> pd.DataFrame:
    """A row for every check of every finding."""
    rows = [{"finding": f.name, "check": c.name, **c.model_dump(exclude={"name"})} for f in findings for c in f.checks]
    return pd.DataFrame(rows, columns=["finding", "check", "passed", "decides", "note"])


def frame(exhibit: Exhibit) -> pd.DataFrame:
    """The data of an exhibit as a table, one row a value; pictures by their captions and values."""
    if isinstance(exhibit, Table):
        return _columns_of(exhibit)
    if isinstance(exhibit, Bars):
        parts = {"value": exhibit.series, "low": exhibit.low, "high": exhibit.high}
        rows = [
            {"label": label, "series": name, **{part: of[name][k] if name in of else None for part, of in parts.items()}}
            for name in exhibit.series
            for k, label in enumerate(exhibit.labels)
        ]
    elif isinstance(exhibit, Curves):
        rows = [
            {"series": name, "x": x, **{part: None if of is None else of[k] for part, of in _limits(curve)}}
            for name, curve in exhibit.series.items()
            for k, x in enumerate(exhibit.x if curve.x is None else curve.x)
        ]
    elif isinstance(exhibit, Scatter):
        given = {"x": exhibit.x, "y": exhibit.y, "label": exhibit.label, "group": exhibit.group}
        return pd.DataFrame({name: list(values) for name, values in given.items() if values})
    elif isinstance(exhibit, Heatmap):
        rows = [
            {
                "row": exhibit.row_labels[i] if exhibit.row_labels else i + 1,
                "column": exhibit.col_labels[k] if exhibit.col_labels else k + 1,
                "value": value,
                **({"low": exhibit.low[i][k], "high": exhibit.high[i][k]} if exhibit.low else {}),
            }
            for i, values in enumerate(exhibit.values)
            for k, value in enumerate(values)
        ]
    else:
        rows = [{"picture": k, "caption": p.caption, "group": p.group, **p.values} for k, p in enumerate(exhibit.items, 1)]
    return pd.DataFrame(rows)


def _columns_of(exhibit: Table) -> pd.DataFrame:
    """A column whose cells have intervals is three: the value, its low and its high."""
    found: dict[str, list[Any]] = {}
    for k, column in enumerate(exhibit.columns):
        name = column if column not in found else f"{column} ({k + 1})"
        cells = [row[k] for row in exhibit.rows]
        found[name] = [cell.value if isinstance(cell, Cell) else cell for cell in cells]
        if any(isinstance(cell, Cell) for cell in cells):
            for part in ("low", "high"):
                found[f"{name} {part}"] = [getattr(cell, part) if isinstance(cell, Cell) else None for cell in cells]
    return pd.DataFrame(found)


def _limits(curve: Any) -> tuple[tuple[str, Any], ...]:
    return ("y", curve.y), ("low", curve.low), ("high", curve.high)


def _tables(suffix: str, write: Callable[[pd.DataFrame, Path], None]) -> Callable[[_Source, Path], int]:
    def run(source: _Source, to: Path) -> int:
        whole = {"estimates": estimates(source.findings), "checks": checks(source.findings)}
        parts = {f"tables/{name}": frame(exhibit) for name, exhibit in source.exhibits()}
        for name, table in {**whole, **parts}.items():
            path = to / f"{name}{suffix}"
            path.parent.mkdir(parents=True, exist_ok=True)
            write(table, path)
        return len(whole) + len(parts)

    return run


def _csv(table: pd.DataFrame, path: Path) -> None:
    guarded = table.rename(columns=_no_formula).map(_no_formula)
    files.write(path, guarded.to_csv(index=False).encode("utf-8", "backslashreplace"))


def _no_formula(value: Any) -> Any:
    """Spreadsheets run texts that begin like a formula; an apostrophe keeps them texts."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value


def _parquet(table: pd.DataFrame, path: Path) -> None:
    told = table.copy()
    for name in told:  # a column of several kinds of value is written as text
        if len({type(value) for value in told[name] if value is not None and value == value}) > 1:
            told[name] = [None if value is None or value != value else str(value) for value in told[name]]
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".writing-") as place:
        partial = Path(place) / "table"
        told.to_parquet(partial, index=False)
        partial.replace(path)


# ---- figures -------------------------------------------------------------------------------------------------------------


def _drawings(source: _Source) -> list[tuple[str, str]]:
    return [
        (f"figures/{name}", standalone(svg))
        for name, exhibit in source.exhibits()
        if not isinstance(exhibit, Table | Gallery)
        for svg in re.findall(r"<svg .*?</svg>", draw(exhibit), re.DOTALL)[:1]
    ]


def _svg(source: _Source, to: Path) -> int:
    """Drawings, and the pictures of galleries as they are."""
    drawings = _drawings(source)
    for name, drawing in drawings:
        _write(to / f"{name}.svg", drawing)
    return len(drawings) + _pictures(source, to)


def _png(source: _Source, to: Path) -> int:
    """Drawings by a browser or, less true in details, by CairoSVG; the pictures of galleries as they are."""
    drawings = _drawings(source)
    drawn = _rasteriser()([drawing for _, drawing in drawings]) if drawings else []
    for (name, _), data in zip(drawings, drawn, strict=True):
        _save(to / f"{name}.png", data)
    return len(drawings) + _pictures(source, to)


def _pictures(source: _Source, to: Path) -> int:
    found = [
        (f"figures/{name}/{k:02d}.png", picture.png)
        for name, exhibit in source.exhibits()
        if isinstance(exhibit, Gallery)
        for k, picture in enumerate(exhibit.items, 1)
    ]
    for name, data in found:
        _save(to / name, base64.b64decode(data))
    return len(found)


def _rasteriser() -> Callable[[Sequence[str]], list[bytes]]:
    if browser() is not None:
        return _by_browser
    if importlib.util.find_spec("cairosvg") is not None:
        return _by_cairo
    raise _Lacking(f"it needs one of the browsers {', '.join(BROWSERS)}, or CairoSVG (pip install cairosvg)")


def _by_cairo(drawings: Sequence[str]) -> list[bytes]:
    cairosvg: Any = importlib.import_module("cairosvg")
    return [cairosvg.svg2png(drawing.encode(), scale=SCALE, background_color="white") for drawing in track(drawings, "figures")]


def _by_browser(drawings: Sequence[str]) -> list[bytes]:
    """Sheets of drawings one below the other, a picture of each sheet, cut apart: a browser takes a second to begin."""
    sizes = [[math.ceil(float(side)) for side in re.findall(r' (?:width|height)="([\d.]+)"', d)[:2]] for d in drawings]
    sheets: list[list[int]] = []
    for k, (_, height) in enumerate(sizes):
        if not sheets or sum(sizes[m][1] for m in sheets[-1]) + height > SHEET_PIXELS:
            sheets.append([])
        sheets[-1].append(k)
    return [
        data for sheet in track(sheets, "figures") for data in _sheet([drawings[k] for k in sheet], [sizes[k] for k in sheet])
    ]


def _sheet(drawings: Sequence[str], sizes: Sequence[Sequence[int]]) -> Iterator[bytes]:
    boxes = [f'<div style="height:{h}px">{d[d.index("<svg") :]}</div>' for d, (_, h) in zip(drawings, sizes, strict=True)]
    style = "<style>body{margin:0;background:#fff}svg{display:block}</style>"
    with tempfile.TemporaryDirectory() as place:
        page, made = Path(place) / "figures.html", Path(place) / "figures.png"
        page.write_text(f'<!doctype html><meta charset="utf-8">{style}{"".join(boxes)}', encoding="utf-8")
        size = f"--window-size={max(w for w, _ in sizes)},{sum(h for _, h in sizes)}"
        _browse(page, f"--screenshot={made}", size, f"--force-device-scale-factor={SCALE}", "--hide-scrollbars", made=made)
        with Image.open(made) as whole:
            top = 0
            for width, height in sizes:
                buffer = io.BytesIO()
                whole.convert("RGB").crop((0, top, SCALE * width, top + SCALE * height)).save(buffer, "PNG", optimize=True)
                top += SCALE * height
                yield buffer.getvalue()


# ---- a browser -----------------------------------------------------------------------------------------------------------


def browser() -> str | None:
    """The browser that prints and rasterises: the one that RIGHTREASONS_BROWSER names, else the first that is installed."""
    named = os.environ.get("RIGHTREASONS_BROWSER")
    return shutil.which(named) if named else next(filter(None, map(shutil.which, BROWSERS)), None)


def _browse(page: Path, *options: str, made: Path) -> None:
    """Run a browser without a window over a local file."""
    program = browser()
    if program is None:
        raise _Lacking(f"it needs one of the browsers {', '.join(BROWSERS)}")
    # What a browser leaves running for a moment may still write there while it is removed.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        usual = ["--headless", "--disable-gpu", "--no-first-run", f"--user-data-dir={profile}"]
        if os.geteuid() == 0:  # Chromium refuses its sandbox to root; the file is our own and asks for nothing
            usual.append("--no-sandbox")
        command = [program, *usual, *options, page.as_uri()]
        try:
            run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=BROWSER_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise DataError(f"{program} did not finish within {BROWSER_SECONDS} s; end it and try again") from error
    if not made.is_file():
        raise DataError(f"{program} wrote nothing (exit status {run.returncode}): {run.stderr.strip()[-300:]}")


def _pdf(source: _Source, to: Path) -> int:
    with tempfile.TemporaryDirectory() as place:
        page, made = source.folder / "report.html", Path(place) / "report.pdf"
        if not page.is_file():
            page = report(source.findings, Path(place) / "report.html", sheet=Sheet.read(source.folder))
        _browse(page.resolve(), f"--print-to-pdf={made}", "--no-pdf-header-footer", made=made)
        to.mkdir(parents=True, exist_ok=True)
        files.write(to / "report.pdf", made.read_bytes())
    return 1


# ---- the model card ------------------------------------------------------------------------------------------------------

LIMITS = (
    "“No evidence” means that a test which could have seen a shortcut did not; it is no proof that there is none. “Inconclusive” "
    "means that a condition of the test is not met. Intervals cover chance in drawing these rows, not wrong labels nor a "
    "population unlike this cohort. Only the attributes named here were looked at."
)


def model_card(findings: Sequence[Finding], sheet: Sheet | None = None) -> str:
    """A section of a model card in Markdown; every text from the findings is escaped."""
    ran = [f for f in findings if not f.not_run]
    parts = ["## Is it right for the right reasons?", *_case_lines(cases(findings, sheet))]
    parts += ["### What was asked", _grid(("finding", "question", "verdict", "first estimate", "images"), map(_asked, ran))]
    parts += [f"- **{_md(f.name)}**: {_md(f.sentence)}" for f in ran]
    failed = [
        f"- {_md(f.name)}: {_md(c.name)}{': ' + _md(c.note) if c.note else ''}"
        for f in ran
        for c in f.checks
        if c.passed is False
    ]
    parts += ["### Conditions that are not met", *failed] if failed else []
    missing = [f"- {_md(f.name)}: {_md(f.not_run)}" for f in findings if f.not_run]
    parts += ["### Asked for and not run", *missing] if missing else []
    made = max((f.created for f in findings), default="")[:10]
    versions = ", ".join(f"{_md(k)} {_md(v)}" for k, v in (findings[-1].versions if findings else {}).items())
    parts += ["### Limits", LIMITS, f"Made by rightreasons on {_md(made)} with {versions}."]
    return re.sub(r"(?m)^(- .*)\n\n(?=- )", r"\1\n", "\n\n".join(parts)) + "\n"


def _case_lines(found: Sequence[Case]) -> list[str]:
    rows = [(_md(c.model), _md(c.attribute), f"**{_md(str(c.verdict))}**", f"{c.score:.2f}", _md(c.sentence)) for c in found]
    return [_grid(("model", "attribute", "verdict", "score", "in a sentence"), rows)] if rows else []


def _asked(finding: Finding) -> tuple[str, ...]:
    first = finding.estimates[0] if finding.estimates else None
    rows = "" if finding.n_rows is None else str(finding.n_rows)
    return _md(finding.name), _md(finding.question), _md(finding.headline), _md(str(first)) if first else "", rows


def _grid(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *rows))


def _md(text: str) -> str:
    """Text that Markdown shows as it is: no tag, link, emphasis, cell or line of its own."""
    plain = html.escape(as_line(text), quote=False)
    return re.sub(r"([\\`*_\[\]|~$#!])|(?<=\w)(:)(?=//)|(?<=www)(\.)", lambda m: "\\" + m.group(), plain).strip()


def _markdown(source: _Source, to: Path) -> int:
    _write(to / "model-card.md", model_card(source.findings, Sheet.read(source.folder)))
    return 1


def _write(path: Path, text: str) -> None:
    _save(path, text.encode("utf-8", "backslashreplace"))


def _save(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write(path, data)


KINDS: dict[str, Callable[[_Source, Path], int]] = {
    "json": _json,
    "csv": _tables(".csv", _csv),
    "parquet": _tables(".parquet", _parquet),
    "svg": _svg,
    "png": _png,
    "markdown": _markdown,
    "pdf": _pdf,
}
