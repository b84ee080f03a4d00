"""Findings to one HTML file: the case first, then each finding, then data and how to repeat it. It names no audit."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from rightreasons import files
from rightreasons.calibration import CASE, calibration
from rightreasons.case import Case, Sheet, cases
from rightreasons.errors import DataError
from rightreasons.findings import ROWS, Estimate, Exhibit, Finding, Gallery, Heatmap
from rightreasons.report import figures, wording

HERE = Path(__file__).parent
UNFOLDED_ESTIMATES = 14
UNFOLDED_SECTIONS = 40  # a page of more findings opens with the others folded
PAGE_PICTURES = 360  # at 10 to 20 kB each: a page that opens at once
LEAST_PICTURES = 6
TELLING_PICTURES = 4  # of a gallery on the first screen
MOST_TELLING = 12  # cases with a picture on the first screen; the others have theirs in their sections


def write(
    findings: Iterable[Finding],
    path: str | os.PathLike[str],
    *,
    title: str,
    subtitle: str = "",
    sheet: Sheet | None = None,
    lead: str = "",
) -> Path:
    """Render and write under a temporary name, then rename."""
    text = render(findings, title=title, subtitle=subtitle, sheet=sheet, lead=lead)
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    files.write(target, text.encode("utf-8", "backslashreplace"))
    return target


def render(findings: Iterable[Finding], *, title: str, subtitle: str = "", sheet: Sheet | None = None, lead: str = "") -> str:
    """The page as text.

    Findings come model by model, each in order of verdict (shortcut, inconclusive, no evidence, described, not run). A `lead`
    stands in place of the cases, for findings that make none, such as differences between models.
    """
    given = list(findings)
    for item in given:
        if not isinstance(item, Finding):
            raise DataError(
                f"a report is made of findings, not of {type(item).__name__}; use result.finding() or Finding.read(path)"
            )
    models = list(dict.fromkeys(finding.model for finding in given))
    ordered = sorted(given, key=lambda finding: (models.index(finding.model), wording.tone(finding).weight))
    galleries = sum(isinstance(exhibit, Gallery) for finding in ordered for exhibit in finding.exhibits)
    each = max(LEAST_PICTURES, PAGE_PICTURES // max(galleries, 1))
    sections = [section(finding, number, each) for number, finding in enumerate(ordered, 1)]
    judged = [panel(case, number, sections) for number, case in enumerate([] if lead else cases(given, sheet), 1)]
    style, script = ((HERE / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    return (
        _environment()
        .get_template("page.html")
        .render(
            title=title,
            subtitle=subtitle,
            panels=judged,
            lead=lead,
            several_attributes=any(entry.case.q or entry.case.harm for entry in judged),
            sections=sections,
            filters=_filters(ordered),
            about=_about(ordered),
            several_models=len(models) > 1,
            sheet=sheet or Sheet(),
            sheet_tables=[figures.draw(exhibit) for exhibit in sheet.tables] if sheet else [],
            rows_of=_rows_of(ordered),
            versions=_versions(ordered),
            terms=wording.glossary(_texts(ordered)),
            style=Markup(style),
            script=Markup(script),
            policy=_policy(style, script),
            words=wording,
            tones=wording.TONES,
        )
    )


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["setting"] = _setting
    environment.filters["prose"] = _prose
    return environment


def _policy(style: str, script: str) -> str:
    """Only this very style sheet, this very script and pictures inside the file may be used; nothing may be fetched or sent."""
    sha = {
        name: base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for name, text in (("s", style), ("j", script))
    }
    return (
        f"default-src 'none'; img-src data:; style-src 'sha256-{sha['s']}'; script-src 'sha256-{sha['j']}'; "
        "base-uri 'none'; form-action 'none'"
    )


@dataclass(frozen=True)
class EstimateLine:
    """An estimate and its drawing."""

    estimate: Estimate
    drawing: Markup


@dataclass(frozen=True)
class EstimateBlock:
    """Estimates of one group and unit, which share an axis."""

    group: str
    unit: str
    lines: list[EstimateLine]
    scale: Markup
    unfolded: bool

    @property
    def level(self) -> str:
        levels = {line.estimate.level for line in self.lines}
        return wording.percent(levels.pop()) if len(levels) == 1 else ""


@dataclass(frozen=True)
class Drawn:
    """An exhibit and its drawing."""

    exhibit: Exhibit
    drawing: Markup
    wide: bool


@dataclass(frozen=True)
class Section:
    """One finding, ready for the template."""

    anchor: str
    finding: Finding
    tone: wording.Tone
    blocks: list[EstimateBlock]
    drawn: list[Drawn]
    unfolded: bool = True

    @property
    def calibrated(self) -> str:
        """How often this audit's verdicts are wrong, where it gave one."""
        return calibration().line(self.finding.audit) if self.finding.verdict is not None else ""


@dataclass(frozen=True)
class EvidenceRow:
    """One of the rows of evidence and the sections that count there."""

    words: wording.RowWords
    sections: list[Section]

    @property
    def tone(self) -> wording.Tone | None:
        return min((entry.tone for entry in self.sections), key=lambda tone: tone.weight, default=None)

    @property
    def first(self) -> Estimate | None:
        """The first number of the gravest finding here that has one."""
        ran = [entry.finding for entry in self.sections if not entry.finding.not_run]
        return next((e for finding in ran for e in finding.estimates[:1] if e.value is not None), None)


@dataclass(frozen=True)
class Panel:
    """One case on the first screen: its rows and its most telling picture."""

    anchor: str
    case: Case
    tone: wording.Tone
    rows: list[EvidenceRow]
    meter: Markup
    telling: Drawn | None
    telling_from: Section | None

    @property
    def name(self) -> str:
        return " · ".join(filter(None, (self.case.model, self.case.attribute))) or "this model"

    @property
    def calibrated(self) -> str:
        return calibration().line(CASE)


def panel(case: Case, number: int, sections: Sequence[Section]) -> Panel:
    of = {id(finding) for finding in case.findings}
    own = [entry for entry in sections if id(entry.finding) in of]
    rows = [EvidenceRow(words, [s for s in own if s.finding.row == words.row]) for words in wording.ROW_WORDS]
    best = max(
        ((entry, exhibit) for entry in own for exhibit in entry.finding.exhibits),
        key=lambda pair: _telling(case, pair[0].finding, pair[1]),
        default=None,
    )
    if best is None or number > MOST_TELLING:
        return Panel(f"case-{number}", case, wording.TONES[str(case.verdict)], rows, figures.meter(case.score), None, None)
    drawn = Drawn(best[1], figures.draw(best[1], TELLING_PICTURES), False)
    return Panel(f"case-{number}", case, wording.TONES[str(case.verdict)], rows, figures.meter(case.score), drawn, best[0])


KINDS = ("table", "scatter", "curves", "bars", "gallery", "heatmap")
TELLING_ROWS = ("encoding", "remedy", "behaviour", "reliance", "place")


def _telling(case: Case, finding: Finding, exhibit: Exhibit) -> tuple[int, ...]:
    """What to show first: a picture of images, from a finding that agrees with the verdict, about place before reliance."""
    shows_images = isinstance(exhibit, Gallery) or (isinstance(exhibit, Heatmap) and exhibit.background is not None)
    agrees = finding.verdict == case.verdict
    return (agrees, shows_images, TELLING_ROWS.index(finding.row), KINDS.index(exhibit.kind))


def section(finding: Finding, number: int, pictures: int) -> Section:
    drawn = [Drawn(exhibit, figures.draw(exhibit, pictures), figures.is_wide(exhibit)) for exhibit in finding.exhibits]
    unfolded = number <= UNFOLDED_SECTIONS
    return Section(f"finding-{number}", finding, wording.tone(finding), _blocks(finding.estimates), drawn, unfolded)


def _blocks(estimates: Sequence[Estimate]) -> list[EstimateBlock]:
    """By group and unit in the order of their first appearance; long lists fold all but the first block."""
    grouped: dict[tuple[str, str], list[Estimate]] = {}
    for estimate in estimates:
        grouped.setdefault((estimate.group, estimate.unit), []).append(estimate)
    blocks = []
    for position, ((group, unit), members) in enumerate(grouped.items()):
        drawings, scale = figures.forest(members)
        lines = [EstimateLine(*pair) for pair in zip(members, drawings)]
        blocks.append(EstimateBlock(group, unit, lines, scale, position == 0 or len(estimates) <= UNFOLDED_ESTIMATES))
    return blocks


def _about(findings: Sequence[Finding]) -> list[tuple[str, str]]:
    """What was audited, for the page's head: models, cohorts, attributes, images and the latest date."""
    facts = [
        ("Models", str(many))
        if (many := len({finding.model for finding in findings})) > 3
        else ("Model", _listed(f.model for f in findings)),
        ("Cohort", _listed(finding.cohort for finding in findings)),
        ("Attribute", _listed(finding.attribute for finding in findings)),
        ("Images", _counted(finding.n_rows for finding in findings)),
        ("Subjects", _counted(finding.n_subjects for finding in findings)),
        ("Date", max((finding.created for finding in findings), default="")[:10]),
    ]
    return [(name, value) for name, value in facts if value]


def _filters(findings: Sequence[Finding]) -> list[tuple[str, str, list[str]]]:
    """By what the findings can be chosen: (title, key, values), where there are several."""
    every = [
        ("Model", "model", [finding.model for finding in findings]),
        ("Attribute", "attribute", [finding.attribute for finding in findings]),
        ("Row", "row", [row for row in ROWS if any(finding.row == row for finding in findings)]),
        ("Verdict", "verdict", [word for word in wording.TONES if any(finding.headline == word for finding in findings)]),
    ]
    distinct = [(title, key, list(dict.fromkeys(filter(None, values)))) for title, key, values in every]
    return [entry for entry in distinct if len(entry[2]) > 1]


def _rows_of(findings: Sequence[Finding]) -> list[tuple[str, str, int | None, int | None]]:
    """(model, cohort, images, subjects) that findings rest on, each once."""
    known = ((f.model, f.cohort, f.n_rows, f.n_subjects) for f in findings if f.n_rows is not None)
    return list(dict.fromkeys(known))


def _versions(findings: Sequence[Finding]) -> list[tuple[str, str]]:
    found: dict[str, dict[str, None]] = {}
    for finding in findings:
        for name, version in finding.versions.items():
            found.setdefault(name, {})[version] = None
    return [(name, ", ".join(each)) for name, each in found.items()]


def _listed(names: Iterable[str], most: int = 4) -> str:
    known = list(dict.fromkeys(name for name in names if name))
    more = f" and {len(known) - most} more" if len(known) > most else ""
    return ", ".join(known[:most]) + more


def _counted(counts: Iterable[int | None]) -> str:
    known = sorted({count for count in counts if count is not None})
    if not known:
        return ""
    low, high = (wording.number(count) for count in (known[0], known[-1]))
    return low if low == high else f"{low} to {high}"


def _texts(findings: Sequence[Finding]) -> list[str]:
    """Names under which statistics are shown, for the glossary."""
    shown: list[str] = []
    for finding in findings:
        shown += [estimate.name for estimate in finding.estimates]
        for exhibit in finding.exhibits:
            shown += [exhibit.title, *getattr(exhibit, "columns", ()), getattr(exhibit, "value_label", "")]
            shown += [getattr(exhibit, "x_label", ""), getattr(exhibit, "y_label", "")]
    return shown


def _prose(text: str) -> str:
    """A sentence whose numbers stay with their percent sign at the end of a line."""
    return text.replace(" %", "\u00a0%")


def _setting(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
