"""Findings for other programs: JSON with its schema, tables, figures, a model card, a PDF of the page, MLflow and W&B."""

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
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

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
from rightreasons.report.attributes import uneven_lines
from rightreasons.report.figures import draw
from rightreasons.report.standalone import standalone
from rightreasons.tracking import Run, tracker

BROWSERS = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome", "msedge")
BROWSER_SECONDS = 120
SCALE = 2  # pixels of a PNG for one of the drawing
SHEET_PIXELS = 4000  # of drawings that a browser rasterises at once
SCHEMA_NAME = "finding.schema.json"
CALIBRATION_NAME = "calibration.json"
CARD_NAME = "model-card.md"


@dataclass(frozen=True)
class Exported:
    """What an export did: kind → number of files written, and kind → why none were."""

    written: dict[str, int] = field(default_factory=dict)
    lacking: dict[str, str] = field(default_factory=dict)


def export(folder: str | os.PathLike[str], to: str | os.PathLike[str], *, kinds: Sequence[str] | None = None) -> Exported:
    """Write the findings of a folder in other formats; for those that this machine cannot write, say what they need.

    Parameters
    ----------
    kinds : of json, csv, parquet, svg, png, markdown and pdf; all by default
    """
    for kind in kinds or ():
        if kind not in KINDS:
            raise SettingError(f"cannot export as {kind!r}; {suggest(kind, KINDS)}")
    source = _Source(Path(folder), tuple(Finding.read_all(Path(folder))))
    target = Path(to)
    if target.resolve() in (Path(folder).resolve(), (Path(folder) / "findings").resolve()):
        raise SettingError(
            f"{target} is where the findings are, and copies beside them would be read as findings: choose another"
        )
    done = Exported()
    for kind in kinds or KINDS:
        try:
            done.written[kind] = KINDS[kind](source, target)
        except _Lacking as lacking:
            done.lacking[kind] = str(lacking)
    return done


def log(folder: str | os.PathLike[str], library: str, *, project: str = "rightreasons") -> None:
    """Log the findings of a folder as one run of MLflow ("mlflow") or Weights & Biases ("wandb").

    Numbers are the score of every case and the first estimate of every finding with its interval; the page, the findings and
    the model card are kept with the run.
    """
    send = tracker(library)
    source = _Source(Path(folder), tuple(Finding.read_all(Path(folder))))
    sheet = Sheet.read(source.folder)
    with tempfile.TemporaryDirectory() as place:
        _markdown(source, Path(place))
        send(_run(source, sheet or Sheet(), project, Path(place) / CARD_NAME))


def _run(source: _Source, sheet: Sheet, project: str, card: Path) -> Run:
    judged = cases(source.findings, sheet)
    models = {f.model for f in source.findings}
    numbers: dict[str, float] = {}
    words: dict[str, str] = {}
    for case in judged:
        about = "/".join(filter(None, (case.model if len(models) > 1 else "", case.attribute, "case")))
        numbers[f"{about}/score"] = case.score
        words |= {f"{about}/verdict": str(case.verdict), f"{about}/sentence": case.sentence}
    for f in source.findings:
        about = "/".join(filter(None, (f.model if len(models) > 1 else "", f.name)))
        words[f"{about}/verdict"] = f.headline
        for e in f.estimates[:1]:
            limits = {e.name: e.value, f"{e.name} low": e.low, f"{e.name} high": e.high}
            numbers |= {f"{about}/{name}": value for name, value in limits.items() if value is not None}
    kept = {card.name: card}
    for path in (source.folder / "report.html", source.folder / "summary.json", source.folder / "sheet.json"):
        if path.is_file():
            kept[path.name] = path
    for path in sorted((source.folder / "findings").glob(f"*{Finding.SUFFIX}")):
        kept[f"findings/{path.name}"] = path
    about_run = {
        "models": ", ".join(sorted(filter(None, models))),
        "audits": ", ".join(dict.fromkeys(f.audit for f in source.findings)),
    }
    return Run(
        project, source.folder.resolve().name, settings={**about_run, **sheet.facts}, numbers=numbers, words=words, files=kept
    )


@dataclass(frozen=True)
class _Source:
    folder: Path
    findings: tuple[Finding, ...]

    def exhibits(self) -> Iterable[tuple[str, Exhibit]]:
        """Every exhibit with the name of its files, `<finding>/<number>-<title>`."""
        for finding in self.findings:
            for number, exhibit in enumerate(finding.exhibits, 1):
                yield f"{file_name(finding.name)}/{number:02d}-{file_name(exhibit.title)[:60]}", exhibit


class _Lacking(Exception):
    """This machine cannot write a kind of file; the message says what that needs."""


# ---- JSON ----------------------------------------------------------------------------------------------------------------


def schema() -> str:
    """JSON Schema of a finding's file, as published in docs/schema."""
    published = {"$schema": "https://json-schema.org/draft/2020-12/schema", **Finding.schema()}
    return json.dumps(published, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def _json(source: _Source, to: Path) -> int:
    for finding in source.findings:
        finding.save(to)
    _write(to / SCHEMA_NAME, schema())
    _write(to / CALIBRATION_NAME, calibration().model_dump_json(indent=1) + "\n")
    return len(source.findings) + 2


# ---- tables --------------------------------------------------------------------------------------------------------------


def estimates(findings: Iterable[Finding]) -> pd.DataFrame:
    """One row for every estimate of every finding."""
    rows = []
    for f in findings:
        about = {"finding": f.name, "audit": f.audit, "model": f.model, "cohort": f.cohort, "attribute": f.attribute}
        about["verdict"] = f.headline
        for e in f.estimates:
            rows.append({**about, "estimate": e.name, **e.model_dump(exclude={"name"})})
    return pd.DataFrame(rows, columns=None if rows else ["finding", "estimate", *Estimate.model_fields])


def checks(findings: Iterable[Finding]) -> pd.DataFrame:
    """One row for every check of every finding."""
    rows = []
    for f in findings:
        for check in f.checks:
            rows.append({"finding": f.name, "check": check.name, **check.model_dump(exclude={"name"})})
    return pd.DataFrame(rows, columns=["finding", "check", "passed", "decides", "note"])


def frame(exhibit: Exhibit) -> pd.DataFrame:
    """The data of an exhibit as a table with one row for each value; of pictures, their captions and values."""
    if isinstance(exhibit, Table):
        return _columns_of(exhibit)
    if isinstance(exhibit, Scatter):
        names = ("x", "x_low", "x_high", "y", "y_low", "y_high", "label", "group")
        columns = {name: getattr(exhibit, name) for name in names}
        return pd.DataFrame({name: list(values) for name, values in columns.items() if values})
    if isinstance(exhibit, Bars):
        return pd.DataFrame(_rows_of_bars(exhibit))
    if isinstance(exhibit, Curves):
        return pd.DataFrame(_rows_of_curves(exhibit))
    if isinstance(exhibit, Heatmap):
        return pd.DataFrame(_rows_of_heatmap(exhibit))
    pictures = enumerate(exhibit.items, 1)
    return pd.DataFrame([{"picture": k, "caption": p.caption, "group": p.group, **p.values} for k, p in pictures])


def _rows_of_bars(exhibit: Bars) -> Iterator[dict[str, Any]]:
    for name, values in exhibit.series.items():
        low, high = exhibit.low.get(name), exhibit.high.get(name)
        for k, label in enumerate(exhibit.labels):
            yield {"label": label, "series": name, "value": values[k], "low": low and low[k], "high": high and high[k]}


def _rows_of_curves(exhibit: Curves) -> Iterator[dict[str, Any]]:
    for name, curve in exhibit.series.items():
        for k, x in enumerate(exhibit.x if curve.x is None else curve.x):
            low, high = curve.low and curve.low[k], curve.high and curve.high[k]
            yield {"series": name, "x": x, "y": curve.y[k], "low": low, "high": high}


def _rows_of_heatmap(exhibit: Heatmap) -> Iterator[dict[str, Any]]:
    for i, values in enumerate(exhibit.values):
        for k, value in enumerate(values):
            row: dict[str, Any] = {"row": exhibit.row_labels[i] if exhibit.row_labels else i + 1}
            if exhibit.col_labels:
                row["column"] = exhibit.col_labels[k]
            else:
                row["column"] = k + 1
            row["value"] = value
            if exhibit.low:
                row |= {"low": exhibit.low[i][k], "high": exhibit.high[i][k]}
            yield row


def _columns_of(exhibit: Table) -> pd.DataFrame:
    """A column whose cells have intervals becomes three: the value, its low and its high."""
    columns: dict[str, list[Any]] = {}
    for k, column in enumerate(exhibit.columns):
        if column not in columns:
            name = column
        else:
            name = f"{column} ({k + 1})"
        cells = [row[k] for row in exhibit.rows]
        columns[name] = [cell.value if isinstance(cell, Cell) else cell for cell in cells]
        if any(isinstance(cell, Cell) for cell in cells):
            columns[f"{name} low"] = [cell.low if isinstance(cell, Cell) else None for cell in cells]
            columns[f"{name} high"] = [cell.high if isinstance(cell, Cell) else None for cell in cells]
    return pd.DataFrame(columns)


def _tables(suffix: str, write: Callable[[pd.DataFrame, Path], None]) -> Callable[[_Source, Path], int]:
    def run(source: _Source, to: Path) -> int:
        tables = {"estimates": estimates(source.findings), "checks": checks(source.findings)}
        for name, exhibit in source.exhibits():
            tables[f"tables/{name}"] = frame(exhibit)
        for name, table in tables.items():
            path = to / f"{name}{suffix}"
            path.parent.mkdir(parents=True, exist_ok=True)
            write(table, path)
        return len(tables)

    return run


def _csv(table: pd.DataFrame, path: Path) -> None:
    guarded = table.rename(columns=_no_formula).map(_no_formula)
    files.write(path, guarded.to_csv(index=False).encode("utf-8", "backslashreplace"))


def _no_formula(value: Any) -> Any:
    """Spreadsheets run a text that begins like a formula; an apostrophe in front of it keeps it a text."""
    is_formula = isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r"))
    if is_formula:
        return f"'{value}"
    return value


def _parquet(table: pd.DataFrame, path: Path) -> None:
    columns = table.copy()
    for name in columns:  # a column with several kinds of value is written as text
        if len({type(value) for value in columns[name] if value is not None and value == value}) > 1:
            columns[name] = [None if value is None or value != value else str(value) for value in columns[name]]
    with files.replacing(path) as partial:
        columns.to_parquet(partial, index=False)


# ---- figures -------------------------------------------------------------------------------------------------------------


def _drawings(source: _Source) -> list[tuple[str, str]]:
    """Name and SVG of every exhibit that is a drawing."""
    drawings = []
    for name, exhibit in source.exhibits():
        if isinstance(exhibit, Table | Gallery):
            continue
        svg = re.search(r"<svg .*?</svg>", draw(exhibit), re.DOTALL)
        if svg is not None:
            drawings.append((f"figures/{name}", standalone(svg.group())))
    return drawings


def _svg(source: _Source, to: Path) -> int:
    """Drawings as SVG, and the pictures of galleries unchanged."""
    drawings = _drawings(source)
    for name, drawing in drawings:
        _write(to / f"{name}.svg", drawing)
    return len(drawings) + _pictures(source, to)


def _png(source: _Source, to: Path) -> int:
    """Drawings rasterised by a browser or, less faithfully, by CairoSVG; the pictures of galleries unchanged."""
    drawings = _drawings(source)
    if drawings:
        drawn = _rasteriser()([drawing for _, drawing in drawings])
    else:
        drawn = []
    for (name, _), data in zip(drawings, drawn, strict=True):
        _save(to / f"{name}.png", data)
    return len(drawings) + _pictures(source, to)


def _pictures(source: _Source, to: Path) -> int:
    count = 0
    for name, exhibit in source.exhibits():
        if isinstance(exhibit, Gallery):
            for k, picture in enumerate(exhibit.items, 1):
                _save(to / f"figures/{name}/{k:02d}.png", base64.b64decode(picture.png))
                count += 1
    return count


def _rasteriser() -> Callable[[Sequence[str]], list[bytes]]:
    if browser() is not None:
        return _by_browser
    if importlib.util.find_spec("cairosvg") is not None:
        return _by_cairo
    raise _Lacking(f"needs one of the browsers {', '.join(BROWSERS)}, or CairoSVG (pip install cairosvg)")


def _by_cairo(drawings: Sequence[str]) -> list[bytes]:
    cairosvg: Any = importlib.import_module("cairosvg")
    return [cairosvg.svg2png(drawing.encode(), scale=SCALE, background_color="white") for drawing in track(drawings, "figures")]


class _Size(NamedTuple):
    """Pixels of a drawing, rounded up."""

    width: int
    height: int


def _by_browser(drawings: Sequence[str]) -> list[bytes]:
    """Draw many on one tall sheet, take a picture of it and cut it apart, as a browser takes a second to start."""
    sizes = []
    for drawing in drawings:
        width, height = re.findall(r' (?:width|height)="([\d.]+)"', drawing)[:2]
        sizes.append(_Size(math.ceil(float(width)), math.ceil(float(height))))
    sheets: list[list[int]] = []
    for k, size in enumerate(sizes):
        if not sheets or sum(sizes[m].height for m in sheets[-1]) + size.height > SHEET_PIXELS:
            sheets.append([])
        sheets[-1].append(k)
    pictures: list[bytes] = []
    for sheet in track(sheets, "figures"):
        pictures += _sheet([drawings[k] for k in sheet], [sizes[k] for k in sheet])
    return pictures


def _sheet(drawings: Sequence[str], sizes: Sequence[_Size]) -> Iterator[bytes]:
    boxes = []
    for drawing, size in zip(drawings, sizes, strict=True):
        boxes.append(f'<div style="height:{size.height}px">{drawing[drawing.index("<svg") :]}</div>')
    style = "<style>body{margin:0;background:#fff}svg{display:block}</style>"
    with tempfile.TemporaryDirectory() as place:
        page, made = Path(place) / "figures.html", Path(place) / "figures.png"
        page.write_text(f'<!doctype html><meta charset="utf-8">{style}{"".join(boxes)}', encoding="utf-8")
        window = f"--window-size={max(size.width for size in sizes)},{sum(size.height for size in sizes)}"
        _browse(page, f"--screenshot={made}", window, f"--force-device-scale-factor={SCALE}", "--hide-scrollbars", made=made)
        with Image.open(made) as sheet:
            top = 0
            for size in sizes:
                buffer = io.BytesIO()
                bottom = top + SCALE * size.height
                sheet.convert("RGB").crop((0, top, SCALE * size.width, bottom)).save(buffer, "PNG", optimize=True)
                top = bottom
                yield buffer.getvalue()


# ---- a browser -----------------------------------------------------------------------------------------------------------


def browser() -> str | None:
    """The browser that prints and rasterises: the one named by RIGHTREASONS_BROWSER, else the first that is installed."""
    named = os.environ.get("RIGHTREASONS_BROWSER")
    if named:
        return shutil.which(named)
    return next((path for path in map(shutil.which, BROWSERS) if path is not None), None)


def _browse(page: Path, *options: str, made: Path) -> None:
    """Open a local file in a browser without a window, which then writes `made`."""
    program = browser()
    if program is None:
        raise _Lacking(f"needs one of the browsers {', '.join(BROWSERS)}")
    # A browser's last processes may still write to its profile while that is being removed.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        usual = ["--headless", "--disable-gpu", "--no-first-run", f"--user-data-dir={profile}"]
        if os.geteuid() == 0:  # Chromium refuses its sandbox to root; the file is our own and asks for nothing
            usual.append("--no-sandbox")
        command = [program, *usual, *options, page.as_uri()]
        try:
            run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=BROWSER_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise DataError(f"{program} did not finish within {BROWSER_SECONDS} s; try again") from error
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
    "“No evidence” means that a test could have seen a shortcut and did not; it does not prove that there is none. "
    "“Inconclusive” means that a condition of the test is not met. Intervals account for chance in drawing these rows, not for "
    "wrong labels or a population unlike this cohort. Only the attributes named here were examined."
)


def model_card(findings: Sequence[Finding], sheet: Sheet | None = None) -> str:
    """A model card in Markdown, with the sections of Hugging Face's template and of Mitchell et al. (2019) that an audit fills.

    The block in front has every number as a `model-index`. Every text from the findings is escaped.
    """
    ran = [f for f in findings if not f.not_run]
    judged = cases(findings, sheet)
    names = ", ".join(dict.fromkeys(_md(f.model) for f in findings if f.model)) or "this model"
    parts = [_metadata(findings, judged), f"# Model card for {names}"]
    parts += ["## Bias, Risks, and Limitations", "Is it right for the right reasons?", *_case_lines(judged)]
    failed = []
    for f in ran:
        for check in f.checks:
            if check.passed is False:
                note = ""
                if check.note:
                    note = f": {_md(check.note)}"
                failed.append(f"- {_md(f.name)}: {_md(check.name)}{note}")
    if failed:
        parts += ["### Conditions that are not met", *failed]
    missing = [f"- {_md(f.name)}: {_md(f.not_run)}" for f in findings if f.not_run]
    if missing:
        parts += ["### Asked for and not run", *missing]
    parts += ["### Caveats", LIMITS, *_recommendations(judged)]
    parts += ["## Evaluation", "### Testing Data, Factors & Metrics", "#### Testing Data", *_testing_data(ran)]
    factors = dict.fromkeys(_md(f.attribute) for f in findings if f.attribute)
    parts += ["#### Factors", ", ".join(factors) or "No attribute was named."]
    parts += ["#### Metrics", _grid(("finding", "question"), ((_md(f.name), _md(f.question)) for f in ran))]
    parts += ["### Results", _grid(("finding", "verdict", "first estimate", "images"), map(_asked, ran))]
    parts += ["#### Summary", *(f"- **{_md(f.name)}**: {_md(f.sentence)}" for f in ran)]
    made = max((f.created for f in findings), default="")[:10]
    versions = ", ".join(f"{_md(k)} {_md(v)}" for k, v in (findings[-1].versions if findings else {}).items())
    parts += [f"Made by rightreasons on {_md(made)} with {versions}."]
    return re.sub(r"(?m)^(- .*)\n\n(?=- )", r"\1\n", "\n\n".join(parts)) + "\n"


def _metadata(findings: Sequence[Finding], judged: Sequence[Case]) -> str:
    """YAML in front of the card: a result for each model and cohort, with its numbers under the names that they have here."""
    lines = ["---", "tags:", "- image-classification", "- rightreasons"]
    models = dict.fromkeys(f.model for f in findings)
    lines += ["model-index:"] if models else []
    for model in models:
        lines += [f"- name: {_yaml(model or 'this model')}", "  results:"]
        own = [f for f in findings if f.model == model and not f.not_run]
        for cohort in dict.fromkeys(f.cohort for f in own) or [""]:
            on = [f for f in own if f.cohort == cohort]
            scores = [
                _metric("shortcut-score", f"{case.attribute}: {case.verdict}", case.score)
                for case in judged
                if case.model == model
            ]
            lines += ["  - task:", "      type: image-classification", "      name: Image Classification"]
            lines += [
                "    dataset:",
                f"      type: {_yaml(cohort or 'unnamed')}",
                f"      name: {_yaml(cohort or 'unnamed cohort')}",
            ]
            lines += ["    metrics:", *chain.from_iterable([*scores, *_metrics(on)])]
    return "\n".join([*lines, "---"])


def _metrics(findings: Iterable[Finding]) -> Iterator[list[str]]:
    for f in findings:
        for e in f.estimates if f.row == "behaviour" and f.verdict is None else f.estimates[:1]:
            if e.value is not None:
                limits = "" if e.low is None or e.high is None else f", {100 * e.level:g} % interval {e.low:.4g} to {e.high:.4g}"
                yield _metric(e.name, f"{f.name}: {e.name}{limits}", e.value)


def _metric(kind: str, name: str, value: float) -> list[str]:
    return [f"    - type: {_yaml(kind)}", f"      name: {_yaml(name)}", f"      value: {value!r}"]


def _yaml(text: str) -> str:
    """A text as YAML reads it back unchanged, whatever is in it: a JSON string, which YAML knows."""
    written = json.dumps(as_line(text), ensure_ascii=False)
    return re.sub(
        "[^\\x20-\\x7e\\xa0-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]", lambda m: f"\\u{ord(m.group()):04x}", written
    )


def _testing_data(findings: Sequence[Finding]) -> list[str]:
    rows: dict[tuple[str, ...], None] = {}
    for f in findings:
        if f.n_rows is not None:
            subjects = "not known" if f.n_subjects is None else str(f.n_subjects)
            rows[_md(f.model), _md(f.cohort), str(f.n_rows), subjects] = None
    return [_grid(("model", "cohort", "images", "subjects"), rows)] if rows else ["How many rows is not known."]


def _recommendations(judged: Sequence[Case]) -> list[str]:
    needs = [f"- {_md(case.needs)}" for case in judged if case.needs]
    return ["### Recommendations", *needs] if needs else []


def _case_lines(judged: Sequence[Case]) -> list[str]:
    rows = []
    for case in judged:
        verdict = f"**{_md(str(case.verdict))}**"
        rows.append((_md(case.model), _md(case.attribute), verdict, f"{case.score:.2f}", _md(case.sentence)))
    if not rows:
        return []
    return [_grid(("model", "attribute", "verdict", "score", "in a sentence"), rows), *_unevenness_lines(judged)]


def _unevenness_lines(judged: Sequence[Case]) -> list[str]:
    """Which unevenness it is, and what to do about each kind that is there."""
    rows = []
    for case in judged:
        for line in uneven_lines(case):
            about = (case.model, case.attribute, line.kind, line.number, line.word, line.todo)
            rows.append(tuple(_md(text) for text in about))
    if not rows:
        return []
    return ["### Which unevenness is it?", _grid(("model", "attribute", "kind", "estimate", "is it there?", "what to do"), rows)]


def _asked(finding: Finding) -> tuple[str, ...]:
    first = None
    if finding.estimates:
        first = finding.estimates[0]
    rows = ""
    if finding.n_rows is not None:
        rows = str(finding.n_rows)
    return _md(finding.name), _md(finding.headline), _md(str(first)) if first else "", rows


def _grid(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *rows))


def _md(text: str) -> str:
    """Text that Markdown shows unchanged: it cannot open a tag, a link, an emphasis, a table cell or a new line."""
    plain = html.escape(as_line(text), quote=False)
    return re.sub(r"([\\`*_\[\]|~$#!])|(?<=\w)(:)(?=//)|(?<=www)(\.)", lambda m: "\\" + m.group(), plain).strip()


def _markdown(source: _Source, to: Path) -> int:
    _write(to / CARD_NAME, model_card(source.findings, Sheet.read(source.folder)))
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
