"""The tables and figures of a study around SDI and CCR as Markdown and SVG, from its stored findings.

python examples/sdi/page.py STUDY --to docs/results/sdi-planted.md
"""

from __future__ import annotations

import argparse
import base64
import io
import re
from collections.abc import Iterable
from pathlib import Path

from PIL import Image

from rightreasons.findings import Cell, Exhibit, Finding, Gallery, Table, file_name
from rightreasons.report.figures import draw
from rightreasons.report.standalone import standalone
from rightreasons.report.wording import number

ORDER = (
    "tables-internal",
    "tables-dependence",
    "tables-external",
    "relations-degradation",
    "pairs-ccr",
    "tables-ablation",
    "tables-focus",
)
MOST_ROWS = 70
PICTURES, SIDE = 6, 96


def main() -> None:
    parser = argparse.ArgumentParser(description="Tables and figures of an SDI and CCR study")
    parser.add_argument("study", type=Path, help="folder of the study, or of findings")
    parser.add_argument("--to", type=Path, required=True, help="the Markdown file; figures lie beside it")
    parser.add_argument("--title", default="")
    parser.add_argument("--no-pictures", action="store_true", help="show no image of the data, where they may not be passed on")
    given = parser.parse_args()
    findings = {finding.name: finding for finding in Finding.read_all(given.study)}
    lines = [f"## {given.title}\n"] if given.title else []
    for name in ORDER:
        if name in findings:
            lines += _section(findings[name], given.to)
    if not given.no_pictures:
        lines += _maps([finding for finding in findings.values() if finding.audit == "focus"], given.to)
    lines += _verdicts(findings.values())
    given.to.write_text("\n".join(lines))
    print(f"{given.to}: {len(lines)} lines")


def _section(finding: Finding, to: Path) -> Iterable[str]:
    yield f"{finding.not_run or finding.sentence}\n"
    for check in finding.checks:
        if check.passed is False:
            yield f"- Not so: {check.name}{f' ({check.note})' if check.note else ''}"
    for count, exhibit in enumerate(finding.exhibits):
        if isinstance(exhibit, Table):
            if len(exhibit.rows) <= MOST_ROWS:
                yield from _table(exhibit)
        elif not isinstance(exhibit, Gallery):
            file = to.with_name(f"{to.stem}-{file_name(finding.name)}-{count + 1}.svg")
            if (drawing := _drawing(exhibit)) is not None:
                file.write_text(drawing)
                yield f"\n![{exhibit.title}]({file.name})\n\n*{exhibit.title}.* {exhibit.caption}\n"


def _drawing(exhibit: Exhibit) -> str | None:
    found = re.search(r"<svg .*?</svg>", draw(exhibit), re.DOTALL)
    return standalone(found.group()) if found else None


def _table(exhibit: Table) -> Iterable[str]:
    yield f"\n**{exhibit.title}.** {exhibit.caption}\n"
    yield "| " + " | ".join(exhibit.columns) + " |"
    yield "|" + "---|" * len(exhibit.columns)
    for row in exhibit.rows:
        yield "| " + " | ".join(map(_cell, row)) + " |"
    yield ""


def _cell(cell: object) -> str:
    if isinstance(cell, Cell):
        limits = f" ({number(cell.low)} to {number(cell.high)})" if cell.low is not None and cell.high is not None else ""
        return f"{number(cell.value)}{limits}"
    if isinstance(cell, float):
        return number(cell)
    return "" if cell is None else str(cell)


def _maps(findings: Iterable[Finding], to: Path) -> Iterable[str]:
    """One row of pictures a finding, the same images in all of them."""
    rows = [(f, e.items[:PICTURES]) for f in findings for e in f.exhibits if isinstance(e, Gallery)]
    if not rows:
        return
    sheet = Image.new("RGB", (PICTURES * SIDE, len(rows) * SIDE))
    for down, (_, items) in enumerate(rows):
        for across, item in enumerate(items):
            picture = Image.open(io.BytesIO(base64.b64decode(item.png))).convert("RGB").resize((SIDE, SIDE))
            sheet.paste(picture, (across * SIDE, down * SIDE))
    file = to.with_name(f"{to.stem}-maps.png")
    sheet.quantize(128).save(file, optimize=True)
    yield f"\n![Figure 4. Grad-CAM]({file.name})\n"
    yield f"*Figure 4. Grad-CAM of the first seed on the same images, from above: {', '.join(f.model for f, _ in rows)}.*\n"


def _verdicts(findings: Iterable[Finding]) -> Iterable[str]:
    judged = [f for f in findings if f.verdict is not None or f.not_run]
    if judged:
        yield "\n| audit and models | verdict | |\n|---|---|---|"
        for finding in judged:
            told = f"{finding.not_run or finding.sentence}{_seeds(finding)}"
            yield f"| {finding.name} | {finding.verdict or 'not run'} | {told} |"
        yield ""


def _seeds(finding: Finding) -> str:
    """What single seeds say where they do not agree."""
    others = [check.note for check in finding.checks if check.name.startswith("every seed") and check.passed is False]
    return f" Seeds differ: {others[0]}." if others else ""


if __name__ == "__main__":
    main()
