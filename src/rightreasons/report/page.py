"""Findings to one HTML file, in four stages: judge the cases, say everything, draw everything, fill the template.

The first screen has what was found, how sure that is, rows to see for oneself and what to do next. All else is folded: why, every
finding, methods, data, glossary. No audit is named here.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from rightreasons import files
from rightreasons.calibration import CASE, calibration
from rightreasons.case import Case, Sheet, cases
from rightreasons.errors import DataError
from rightreasons.findings import ROWS, Bars, Curves, Estimate, Exhibit, Finding, Gallery, Heatmap
from rightreasons.report import figures, wording
from rightreasons.report.attributes import Together, UnevenLine, together, uneven_lines
from rightreasons.report.first import FEW_ROWS, First, first_of
from rightreasons.report.glossary import glossary
from rightreasons.report.summary import summary_of, summary_path

HERE = Path(__file__).parent
UNFOLDED_ESTIMATES = 14
MOST_ROWS = 8  # to look at, of a case; fewer on a page of many cases
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
    first: Sequence[Exhibit] = (),
) -> Path:
    """Render the page and write it, whole or not at all; beside it the summary of its cases, for programs."""
    given = list(findings)
    text = render(given, title=title, subtitle=subtitle, sheet=sheet, lead=lead, first=first)
    page = files.write(path, text.encode("utf-8", "backslashreplace"))
    if not lead:
        files.write(summary_path(page), summary_of(given, sheet).to_json())
    return page


def render(
    findings: Iterable[Finding],
    *,
    title: str,
    subtitle: str = "",
    sheet: Sheet | None = None,
    lead: str = "",
    first: Sequence[Exhibit] = (),
) -> str:
    """The page as text.

    Findings come model by model, each in order of verdict (shortcut, inconclusive, no evidence, described, not run). A `lead`
    takes the place of the cases, for findings that make none, such as differences between models, with what it shows `first`.
    """
    given = list(findings)
    for item in given:
        if not isinstance(item, Finding):
            raise DataError(f"a report takes findings, not {type(item).__name__}; use result.finding() or Finding.read(path)")
    template, assets = _template()
    sheet = sheet or Sheet()
    terms = glossary(_statistics_shown(given))  # tells the rule by which the cases are judged next
    judged = [] if lead else sorted(cases(given, sheet), key=_gravity)
    rates = {audit: calibration().line(audit) for audit in (CASE, *(f.audit for f in given if f.verdict is not None))}

    models = list(dict.fromkeys(finding.model for finding in given))
    ordered = sorted(given, key=lambda finding: (models.index(finding.model), wording.TONES[finding.headline].weight))
    sections = [_section(finding, number, rates) for number, finding in enumerate(ordered, 1)]
    several = together(judged)
    most_rows = MOST_ROWS if len(judged) <= MOST_TELLING else FEW_ROWS
    panels = [_panel(case, number, sections, rates[CASE], most_rows) for number, case in enumerate(judged, 1)]
    said = {
        "title": title,
        "subtitle": subtitle,
        "lead": lead,
        "first": [(exhibit, figures.draw(exhibit), figures.is_wide(exhibit)) for exhibit in first],
        "panels": panels,
        "sections": sections,
        "ran": [section for section in sections if not section.finding.not_run],
        "not_run": [section for section in sections if section.finding.not_run],
        "several": several,
        "uneven_kinds": _uneven_kinds(panels),
        "several_models": len(models) > 1,
        "about": _about(ordered, has_cases=bool(judged)),
        "filters": _filters(ordered),
        "sheet": sheet,
        "rows_of": _rows_of(ordered),
        "versions": _versions(ordered),
        "terms": terms,
        "tones": wording.TONES,
    }

    return template.render(**said, drawn=_drawings(sections, panels, several, sheet), **assets)


@dataclass(frozen=True)
class Drawings:
    """Everything that the page draws, by the order of its sections and panels.

    Attributes
    ----------
    exhibits, forests : for each section, those of its exhibits and of its blocks of estimates
    wide : for each section, which exhibits need the page's whole width
    meters, telling : one for each panel; no telling picture where there is none
    several : one for each model with several attributes; empty where they have no numbers
    sheet_tables : those of the data sheet
    """

    exhibits: Sequence[Sequence[Markup]]
    wide: Sequence[Sequence[bool]]
    forests: Sequence[Sequence[figures.Forest]]
    meters: Sequence[Markup]
    telling: Sequence[Markup]
    several: Sequence[Markup]
    sheet_tables: Sequence[Markup]


def _drawings(sections: Sequence[Section], panels: Sequence[Panel], several: Sequence[Together], sheet: Sheet) -> Drawings:
    limits = figures.Limits.of(exhibit for section in sections for exhibit in section.finding.exhibits)
    exhibits, wide, forests = [], [], []
    for section in sections:
        exhibits.append([figures.draw(exhibit, limits) for exhibit in section.finding.exhibits])
        wide.append([figures.is_wide(exhibit) for exhibit in section.finding.exhibits])
        forests.append([figures.forest([line.estimate for line in block.lines]) for block in section.blocks])
    telling, few = [], replace(limits, pictures=TELLING_PICTURES)
    for panel in panels:
        telling.append(figures.draw(panel.telling.exhibit, few) if panel.telling else Markup(""))
    meters = [figures.meter(panel.case.score) for panel in panels]
    at_once = [figures.draw(each.drawing) if each.drawing else Markup("") for each in several]
    return Drawings(exhibits, wide, forests, meters, telling, at_once, [figures.draw(table) for table in sheet.tables])


def _template() -> tuple[Template, dict[str, object]]:
    """The template, with the style sheet, the script and the security policy that it needs.

    The policy allows only this very style sheet, this very script and pictures inside the file; nothing may be fetched or sent.
    """
    environment = Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    style, script = ((HERE / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script)]
    policy = (
        f"default-src 'none'; img-src data:; style-src 'sha256-{hashes[0]}'; script-src 'sha256-{hashes[1]}'; "
        "base-uri 'none'; form-action 'none'"
    )
    return environment.get_template("page.html"), {"style": Markup(style), "script": Markup(script), "policy": policy}


# ---- one finding ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EstimateLine:
    """An estimate and the texts of its parts."""

    estimate: Estimate
    value: str
    limits: str
    p: str
    n: str
    level: str


@dataclass(frozen=True)
class EstimateBlock:
    """Estimates of one group and unit, which share an axis; `level` is empty where their intervals differ in it."""

    group: str
    unit: str
    lines: Sequence[EstimateLine]
    level: str
    unfolded: bool
    says_nothing: bool


@dataclass(frozen=True)
class Section:
    """One finding, in words.

    Attributes
    ----------
    rates : how often this audit's verdicts are wrong, where it gave one
    first : its first number with interval, p and n; empty where it has none
    run : what was run, on what, and how long it took: name → text
    settings : name → text
    flat : for each exhibit, whether there is nothing to see in it: all its numbers are 0
    """

    anchor: str
    position: int
    finding: Finding
    tone: wording.Tone
    rates: str
    first: str
    blocks: Sequence[EstimateBlock]
    run: Mapping[str, str]
    settings: Mapping[str, str]
    flat: Sequence[bool]


def _section(finding: Finding, number: int, rates: Mapping[str, str]) -> Section:
    settings = {}
    for name, value in finding.settings.items():
        settings[name] = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    blocks = _blocks(finding.estimates)
    about = {"model": finding.model, "cohort": finding.cohort, "attribute": finding.attribute}
    run = {
        "audit": finding.audit,
        **{name: value for name, value in about.items() if value},
        "images": wording.count(finding.n_rows),
        "subjects": wording.count(finding.n_subjects, unknown="not known"),
        "seed": wording.DASH if finding.seed is None else str(finding.seed),
        "time": wording.duration(finding.seconds),
        "made": finding.created,
    }
    return Section(
        anchor=f"finding-{number}",
        position=number,
        finding=finding,
        tone=wording.TONES[finding.headline],
        rates=rates[finding.audit] if finding.verdict is not None else "",
        blocks=blocks,
        first=wording.brief(finding.estimates[0]) if finding.estimates and not finding.not_run else "",
        run=run,
        settings=settings,
        flat=[_is_flat(exhibit) for exhibit in finding.exhibits],
    )


def _blocks(estimates: Sequence[Estimate]) -> list[EstimateBlock]:
    """By group and unit, in the order in which they first appear; a long list folds all blocks but the first."""
    grouped: dict[tuple[str, str], list[Estimate]] = {}
    for estimate in estimates:
        grouped.setdefault((estimate.group, estimate.unit), []).append(estimate)
    blocks: list[EstimateBlock] = []
    for (group, unit), members in grouped.items():
        lines = [_line(estimate) for estimate in members]
        levels = {line.level for line in lines}
        says_nothing = _says_nothing(members)
        unfolded = (not blocks or len(estimates) <= UNFOLDED_ESTIMATES) and not says_nothing
        level = levels.pop() if len(levels) == 1 else ""
        blocks.append(EstimateBlock(group, unit, lines, level, unfolded, says_nothing))
    return blocks


def _says_nothing(estimates: Sequence[Estimate]) -> bool:
    """Several estimates that are all 0 or undefined: a gate that stayed closed leaves screens of them."""
    return len(estimates) > 2 and not any(estimate.value or estimate.low or estimate.high for estimate in estimates)


def _is_flat(exhibit: Exhibit) -> bool:
    """A drawing with values of which each is 0 or undefined."""
    if isinstance(exhibit, Bars):
        values = [value for series in exhibit.series.values() for value in series]
    elif isinstance(exhibit, Curves):
        values = [value for curve in exhibit.series.values() for value in curve.y]
    elif isinstance(exhibit, Heatmap):
        values = [value for row in exhibit.values for value in row]
    else:
        return False
    return len(values) > 1 and not any(values)


def _line(estimate: Estimate) -> EstimateLine:
    return EstimateLine(
        estimate=estimate,
        value=wording.number(estimate.value, (estimate.low, estimate.high)),
        limits=wording.interval(estimate.low, estimate.high, (estimate.value,)),
        p=wording.DASH if estimate.p is None else wording.p_value(estimate.p),
        n=wording.count(estimate.n),
        level=wording.percent(estimate.level),
    )


# ---- one case ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EvidenceRow:
    """One row of evidence of a case.

    Attributes
    ----------
    chips : a word for each section: its verdict, or that it does not count and why
    tone, first, first_number : of the gravest finding that counts, or failing that looked; the number of the gravest that has one
    """

    words: wording.RowWords
    sections: Sequence[Section]
    chips: Sequence[str]
    tone: wording.Tone | None
    first: Estimate | None
    first_number: str


class Telling(NamedTuple):
    """The exhibit on the first screen, and the finding it comes from."""

    exhibit: Exhibit
    section: Section


@dataclass(frozen=True)
class Panel:
    """One case, in words: its first screen and what is folded below it.

    Attributes
    ----------
    telling : the exhibit that tells most; on the first screen where there are no rows to look at
    """

    anchor: str
    name: str
    case: Case
    first: First
    tone: wording.Tone
    rates: str
    rows: Sequence[EvidenceRow]
    telling: Telling | None
    uneven: Sequence[UnevenLine]


def _panel(case: Case, number: int, sections: Sequence[Section], rates: str, most_rows: int) -> Panel:
    rows = []
    for words in wording.ROW_WORDS:
        belonging = {id(finding) for finding in case.rows[words.row]}
        rows.append(_evidence_row(words, [section for section in sections if id(section.finding) in belonging], case))
    return Panel(
        anchor=f"case-{number}",
        name=" · ".join(filter(None, (case.model, case.attribute))) or "this model",
        case=case,
        first=first_of(case, most_rows),
        tone=wording.TONES[str(case.verdict)],
        rates=rates,
        rows=rows,
        telling=_most_telling(case, rows) if number <= MOST_TELLING else None,
        uneven=uneven_lines(case),
    )


def _uneven_kinds(panels: Iterable[Panel]) -> list[str]:
    """The kinds of unevenness that are there, for the line that is folded; empty where none was measured."""
    lines = [line for panel in panels for line in panel.uneven]
    there = list(dict.fromkeys(line.kind for line in lines if line.css == "shortcut"))
    return there or (["none that was measured"] if lines else [])


def _evidence_row(words: wording.RowWords, sections: Sequence[Section], case: Case) -> EvidenceRow:
    silent = (*case.could_not_look, *case.overruled)
    saw = [s for s in sections if s.finding.name not in silent] or [s for s in sections if s.finding.name in case.overruled]
    firsts = [section.finding.estimates[0] for section in saw if section.first]
    first = next((estimate for estimate in firsts if estimate.value is not None), None)
    tone = min((section.tone for section in saw), key=lambda tone: tone.weight, default=None)
    chips = [_chip(section, case) for section in sections]
    return EvidenceRow(words, sections, chips, tone, first, "" if first is None else wording.value_and_interval(first))


def _chip(section: Section, case: Case) -> str:
    """The verdict of one finding as it counts in the case."""
    name, word = section.finding.name, section.tone.word.lower()
    if name in case.could_not_look:
        return "could not look"
    if name in case.withdrawn:
        return f"{word}, withdrawn"
    if name in case.overruled:
        return f"{word}, overruled"
    return word


KINDS = ("table", "scatter", "curves", "bars", "gallery", "heatmap")
TELLING_ROWS = ("encoding", "remedy", "behaviour", "reliance", "place")


def _most_telling(case: Case, rows: Sequence[EvidenceRow]) -> Telling | None:
    """What to show first: pictures of images, from a finding that agrees with the verdict, about place rather than reliance."""
    best: Telling | None = None
    rank: tuple[int, ...] = (-1,)
    own = sorted((section for row in rows for section in row.sections), key=lambda section: section.position)
    for section in own:
        for exhibit in section.finding.exhibits:
            shows_images = isinstance(exhibit, Gallery) or (isinstance(exhibit, Heatmap) and exhibit.background is not None)
            agrees = section.finding.verdict == case.verdict
            here = (agrees, shows_images, TELLING_ROWS.index(section.finding.row), KINDS.index(exhibit.kind))
            if here > rank:
                best, rank = Telling(exhibit, section), here
    return best


# ---- the page's head and its data ----------------------------------------------------------------------------------------


class Fact(NamedTuple):
    """One thing that the page's head says of what was audited."""

    name: str
    value: str


def _gravity(case: Case) -> int:
    """The gravest case comes first."""
    return wording.TONES[case.verdict or "described"].weight


def _about(findings: Sequence[Finding], has_cases: bool) -> list[Fact]:
    """What was audited. Cases name their model and attribute, and how many images they rest on."""
    models = {finding.model for finding in findings}
    facts = [Fact("Cohort", _listed(finding.cohort for finding in findings))]
    if not has_cases:
        named = Fact("Models", str(len(models))) if len(models) > 3 else Fact("Model", _listed(f.model for f in findings))
        attributes = Fact("Attribute", _listed(finding.attribute for finding in findings))
        images = Fact("Images", _counted(finding.n_rows for finding in findings))
        facts = [named, *facts, attributes, images, Fact("Subjects", _counted(finding.n_subjects for finding in findings))]
    facts.append(Fact("Date", max((finding.created for finding in findings), default="")[:10]))
    return [fact for fact in facts if fact.value]


def _listed(names: Iterable[str], most: int = 4) -> str:
    known = list(dict.fromkeys(name for name in names if name))
    more = f" and {len(known) - most} more" if len(known) > most else ""
    return ", ".join(known[:most]) + more


def _counted(counts: Iterable[int | None]) -> str:
    known = sorted({count for count in counts if count is not None})
    if not known:
        return ""
    low, high = wording.number(known[0]), wording.number(known[-1])
    return low if low == high else f"{low} to {high}"


class Filter(NamedTuple):
    """A property by which a reader can choose findings, and its values."""

    title: str
    key: str
    values: Sequence[str]


def _filters(findings: Sequence[Finding]) -> list[Filter]:
    """Those with more than one value."""
    rows, headlines = {f.row for f in findings}, {f.headline for f in findings}
    filters = [
        Filter("Model", "model", list(dict.fromkeys(f.model for f in findings if f.model))),
        Filter("Attribute", "attribute", list(dict.fromkeys(f.attribute for f in findings if f.attribute))),
        Filter("Row", "row", [row for row in ROWS if row in rows]),
        Filter("Verdict", "verdict", [word for word in wording.TONES if word in headlines]),
    ]
    return [choice for choice in filters if len(choice.values) > 1]


class RowsOf(NamedTuple):
    """How many rows of which cohort findings rest on."""

    model: str
    cohort: str
    images: str
    subjects: str


def _rows_of(findings: Sequence[Finding]) -> list[RowsOf]:
    """Each of them once."""
    rows: dict[RowsOf, None] = {}
    for f in findings:
        if f.n_rows is not None:
            rows[RowsOf(f.model, f.cohort, wording.number(f.n_rows), wording.count(f.n_subjects, unknown="not known"))] = None
    return list(rows)


def _versions(findings: Sequence[Finding]) -> list[Fact]:
    versions: dict[str, dict[str, None]] = {}
    for finding in findings:
        for name, version in finding.versions.items():
            versions.setdefault(name, {})[version] = None
    return [Fact(name, ", ".join(known)) for name, known in versions.items()]


def _statistics_shown(findings: Sequence[Finding]) -> list[str]:
    """The names under which statistics are shown, for the glossary."""
    shown: list[str] = []
    for finding in findings:
        shown += [estimate.name for estimate in finding.estimates]
        for exhibit in finding.exhibits:
            shown += [exhibit.title, *getattr(exhibit, "columns", ()), getattr(exhibit, "value_label", "")]
            shown += [getattr(exhibit, "x_label", ""), getattr(exhibit, "y_label", "")]
    return shown
