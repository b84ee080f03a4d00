"""Findings to one HTML file: verdict first, then how sure and why, then the pictures. It reads findings and names no audit."""

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

from rightreasons.errors import DataError
from rightreasons.findings import Estimate, Exhibit, Finding, Gallery, write_atomically
from rightreasons.report import figures, wording

HERE = Path(__file__).parent
UNFOLDED_ESTIMATES = 14
PAGE_PICTURES = 360  # at 10 to 20 kB each: a page that opens at once
LEAST_PICTURES = 6


def write(findings: Iterable[Finding], path: str | os.PathLike[str], *, title: str, subtitle: str = "") -> Path:
    """Render and write under a temporary name, then rename."""
    text = render(findings, title=title, subtitle=subtitle)
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(target, text.encode("utf-8", "backslashreplace"))
    return target


def render(findings: Iterable[Finding], *, title: str, subtitle: str = "") -> str:
    """The page as text.

    Findings come in order of verdict (shortcut, inconclusive, no evidence, described, not run), then as they were given.
    """
    given = list(findings)
    for item in given:
        if not isinstance(item, Finding):
            raise DataError(
                f"a report is made of findings, not of {type(item).__name__}; use result.finding() or Finding.read(path)"
            )
    ordered = sorted(given, key=lambda finding: wording.tone(finding).weight)
    galleries = sum(isinstance(exhibit, Gallery) for finding in ordered for exhibit in finding.exhibits)
    each = max(LEAST_PICTURES, PAGE_PICTURES // max(galleries, 1))
    sections = [section(finding, number, each) for number, finding in enumerate(ordered, 1)]
    style, script = ((HERE / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    return (
        _environment()
        .get_template("page.html")
        .render(
            title=title,
            subtitle=subtitle,
            summary=wording.summary(ordered) if ordered else "There are no findings.",
            mood=ordered[0].headline if ordered else "not run",
            rows=[EvidenceRow.of(words, sections) for words in wording.ROW_WORDS],
            sections=sections,
            about=_about(ordered),
            several_models=len({finding.model for finding in ordered}) > 1,
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

    @property
    def failed(self) -> list[str]:
        return [check.name for check in self.finding.checks if check.passed is False]


@dataclass(frozen=True)
class EvidenceRow:
    """One of the rows of evidence and the sections whose verdict counts there."""

    words: wording.RowWords
    sections: list[Section]

    @classmethod
    def of(cls, words: wording.RowWords, sections: Sequence[Section]) -> EvidenceRow:
        return cls(words, [entry for entry in sections if entry.finding.row == words.row])

    @property
    def tone(self) -> wording.Tone | None:
        return self.sections[0].tone if self.sections else None


def section(finding: Finding, number: int, pictures: int) -> Section:
    drawn = [Drawn(exhibit, figures.draw(exhibit, pictures), figures.is_wide(exhibit)) for exhibit in finding.exhibits]
    return Section(f"finding-{number}", finding, wording.tone(finding), _blocks(finding.estimates), drawn)


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
        ("Model", _listed(finding.model for finding in findings)),
        ("Cohort", _listed(finding.cohort for finding in findings)),
        ("Attribute", _listed(finding.attribute for finding in findings)),
        ("Images", _counted(finding.n_rows for finding in findings)),
        ("Subjects", _counted(finding.n_subjects for finding in findings)),
        ("Date", max((finding.created for finding in findings), default="")[:10]),
    ]
    return [(name, value) for name, value in facts if value]


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
