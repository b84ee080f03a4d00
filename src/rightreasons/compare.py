"""Two sides compared: two models, or one before and after a mitigation. What changed, with intervals of the difference.

Where both sides have their evidence the difference is paired, row by row (`remedy`). What the audits say is compared finding by
finding, and its intervals come from those of the two sides.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from rightreasons import remedy
from rightreasons.errors import DataError, EvidenceError, NotRun
from rightreasons.evidence import Evidence
from rightreasons.findings import Cell, Check, Estimate, Exhibit, Finding, not_run
from rightreasons.findings.comparisons import Compared, comparison_bars, comparison_table

AUDIT, OVERVIEW = "compare", "changes"
INDEPENDENT = (
    "from the intervals of the two sides, as if their rows were drawn independently; "
    "on shared rows it is mostly wider than necessary"
)


@dataclass(frozen=True)
class Side:
    """One of the two sides: its findings, and its evidence where it is at hand."""

    name: str
    findings: tuple[Finding, ...] = ()
    evidence: Evidence | None = None

    @classmethod
    def read(cls, path: str | os.PathLike[str], name: str | None = None) -> Side:
        """A folder that `audit` or `sweep` wrote, a folder of evidence, or a single finding (.json)."""
        place = Path(path)
        evidence = []
        for folder in (place, place / "evidence"):
            if (folder / "zarr.json").is_file():
                evidence.append(folder)
        if place.suffix == Finding.SUFFIX:
            findings = [Finding.read(place)]
        elif evidence and not (place / "findings").is_dir():
            findings = []
        else:
            findings = Finding.read_all(place)
        return cls(name or place.name, tuple(findings), Evidence.open(evidence[0]) if evidence else None)


def sides(*paths: str | os.PathLike[str]) -> tuple[Side, ...]:
    """Two sides or more, named by the parts of their paths that differ."""
    if len(paths) < 2:
        given = f"here is one ({paths[0]})" if paths else "here is none"
        raise DataError(f"a comparison takes two folders or more, and {given}; name the other one as well")
    for path in paths:
        if not Path(path).exists():
            raise DataError(f"{path} does not exist; name folders that audit or sweep wrote")
    twice = [path for path, count in Counter(Path(path).resolve() for path in paths).items() if count > 1]
    if twice:
        raise DataError(f"{twice[0]} is named more than once; each side of a comparison is another folder")
    told = [Path(path).resolve().parts for path in paths]
    while all(told) and len({parts[-1] for parts in told}) == 1:
        told = [parts[:-1] for parts in told]
    shared = 0
    while all(len(parts) > shared + 1 for parts in told) and len({parts[shared] for parts in told}) == 1:
        shared += 1
    names = ["/".join(parts[shared:]).removesuffix(Finding.SUFFIX) or parts[-1] for parts in told]
    return tuple(Side.read(path, name) for path, name in zip(paths, names, strict=True))


def first(findings: Sequence[Finding]) -> list[Exhibit]:
    """What the page shows first: both sides next to each other, their verdicts and, where rows were paired, how well they do."""
    shown = [f.exhibits[:1] for f in findings if f.name == OVERVIEW]
    shown += [f.exhibits[:1] for f in findings if f.audit == "remedy"][:1]
    return list(chain.from_iterable(shown))


@dataclass(frozen=True)
class Matched:
    """Findings that both sides have, as pairs, and those that only one side has."""

    pairs: list[tuple[Finding, Finding]]
    only_before: list[Finding]
    only_after: list[Finding]


def compare(before: Side, after: Side, *, seed: int = 0, B: int = 10_000) -> list[Finding]:
    """What changed, as findings for a page: paired differences, an overview of the verdicts, and each audit in turn.

    Parameters
    ----------
    B : resamples of the paired differences
    """
    both = matched(before.findings, after.findings)
    names = (before.name, after.name)
    findings = paired(before, after, seed, B)
    if before.findings or after.findings:
        findings.append(_overview(both, names))
    return [*findings, *(_difference(a, b, names) for a, b in both.pairs)]


def lead(findings: Sequence[Finding]) -> str:
    """What the page says first: how the verdicts changed and, where rows were paired, by how much."""
    overview = [f.sentence for f in findings if f.name == OVERVIEW]
    paired = [f.sentence for f in findings if f.audit == "remedy" and f.sentence][:1]
    return " ".join((*overview, *paired)) or "Nothing could be compared."


def matched(before: Sequence[Finding], after: Sequence[Finding]) -> Matched:
    """Match findings of the same audit by name first, then, where names differ, by attribute; each is used once."""
    partner: dict[int, Finding] = {}
    left = list(after)
    for field in ("name", "attribute"):
        for number, finding in enumerate(before):
            if number in partner:
                continue
            for other in left:
                if other.audit == finding.audit and getattr(other, field) == getattr(finding, field):
                    partner[number] = other
                    left.remove(other)
                    break
    pairs = [(finding, partner[k]) for k, finding in enumerate(before) if k in partner]
    return Matched(pairs, [finding for k, finding in enumerate(before) if k not in partner], left)


def difference(before: Estimate | None, after: Estimate | None) -> Cell:
    """After minus before, with limits from the two intervals (MOVER: Zou and Donner, 2008), which need not be symmetric."""
    if before is None or after is None:
        return Cell(value=None, reason="on one side only")
    if before.value is None or after.value is None:
        return Cell(value=None, reason=before.reason if before.value is None else after.reason)
    value = after.value - before.value
    if before.low is None or before.high is None or after.low is None or after.high is None:
        return Cell(value=value, reason="no interval on both sides")
    if before.level != after.level:
        return Cell(value=value, reason="the intervals have different levels")
    low = value - math.hypot(after.value - after.low, before.high - before.value)
    high = value + math.hypot(after.high - after.value, before.value - before.low)
    return Cell(value=value, low=low, high=high)


# ---- paired --------------------------------------------------------------------------------------------------------------


def paired(before: Side, after: Side, seed: int, B: int) -> list[Finding]:
    """What changed on the rows that both models have answered, with the same resamples for both; a finding for each attribute."""
    if before.evidence is None or after.evidence is None:
        return []
    question = f"What changed from {before.name} to {after.name} on the rows that both have answered?"
    change = remedy.Change(question, f"going from {before.name} to {after.name}")
    if "test" in before.evidence.cohorts:
        known = before.evidence.on("test").cohort.attributes
    else:
        known = ()
    attributes = known or (None,)
    findings = []
    for attribute in attributes:
        if attribute is None or len(attributes) == 1:
            name = "paired"
        else:
            name = f"paired-{attribute}"
        try:
            finding = remedy.remedy(
                before.evidence, after.evidence, attribute=attribute, seed=seed, B=B, name=name, change=change
            )
            checks = (*finding.checks, _same_rows(before.evidence, after.evidence))
            findings.append(finding.model_copy(update={"checks": checks}))
        except (NotRun, EvidenceError) as error:
            findings.append(not_run(name, "remedy", question, "remedy", str(error), attribute=attribute or ""))
    return findings


def _same_rows(before: Evidence, after: Evidence) -> Check:
    same = before.fingerprint("test") == after.fingerprint("test")
    if same:
        note = ""
    else:
        note = "other rows, or other images under the same ids: only rows with an id on both sides are compared"
    return Check(id="same images", name="both models have seen the same images", passed=same, note=note)


# ---- finding by finding --------------------------------------------------------------------------------------------------


def _overview(both: Matched, names: tuple[str, str]) -> Finding:
    changed = [(a, b) for a, b in both.pairs if a.headline != b.headline]
    lines = [_first_estimates(a, b) for a, b in both.pairs]
    for f in both.only_before:
        lines.append(Compared((f.name, f.attribute, f.headline, "–"), _estimate(f), None, None))
    for f in both.only_after:
        lines.append(Compared((f.name, f.attribute, "–", f.headline), None, _estimate(f), None))
    table = comparison_table(
        title="Verdicts and first estimates",
        caption=f"What each audit says of {names[0]} and of {names[1]}; different verdicts are marked. The difference of the "
        f"first estimate is {names[1]} minus {names[0]}, its interval {INDEPENDENT}.",
        heads=("finding", "attribute", *names),
        sides=(f"{names[0]}: estimate", f"{names[1]}: estimate"),
        lines=lines,
        highlight=[k for k, (a, b) in enumerate(both.pairs) if a.headline != b.headline],
    )
    alone = [f"{f.name} (only {names[0]})" for f in both.only_before]
    for f in both.only_after:
        alone.append(f"{f.name} (only {names[1]})")
    complete = Check(id="complete", name="both sides have every finding", passed=not alone, note=", ".join(alone))
    return Finding(
        name=OVERVIEW,
        audit=AUDIT,
        question=f"What changed from {names[0]} to {names[1]}?",
        row="remedy",
        sentence=_overview_sentence(both.pairs, changed),
        checks=(complete,),
        exhibits=(table,),
        model=" and ".join(names),
    )


def _overview_sentence(pairs: Sequence[tuple[Finding, Finding]], changed: Sequence[tuple[Finding, Finding]]) -> str:
    if changed:
        said = "; ".join(f"{_title(a, b)}: {a.headline} → {b.headline}" for a, b in changed)
        return f"{len(changed)} of the {len(pairs)} findings on both sides changed: {said}."
    judged = sum(bool(a.verdict or b.verdict) for a, b in pairs)
    if judged:
        return f"Both sides give the same verdict{'' if judged == 1 else 's'}, {judged} in all."
    return "No verdict was given on both sides."


def _first_estimates(before: Finding, after: Finding) -> Compared:
    """The first estimates of both sides, with their difference where they are the same quantity."""
    a, b = _estimate(before), _estimate(after)
    comparable = a is not None and b is not None and (a.name, a.group) == (b.name, b.group)
    labels = (_title(before, after), before.attribute, before.headline, after.headline)
    return Compared(labels, a, b, difference(a, b) if comparable else None)


def _difference(before: Finding, after: Finding, names: tuple[str, str]) -> Finding:
    """One audit on both sides: every estimate before and after, and the difference."""
    about = {
        "name": f"change of {_title(before, after)}",
        "audit": AUDIT,
        "question": before.question,
        "row": before.row,
        "attribute": before.attribute,
        "cohort": ", ".join(dict.fromkeys(filter(None, (before.cohort, after.cohort)))),
        "model": " and ".join(names),
        "n_rows": before.n_rows if before.n_rows == after.n_rows else None,
    }
    if before.not_run or after.not_run:
        reasons = zip(names, (before.not_run, after.not_run), strict=True)
        return Finding(**about, not_run="; ".join(f"{name}: {reason}" for name, reason in reasons if reason))
    lines = _estimate_by_estimate(before, after)
    estimates = []
    for line in lines:
        if line.before is not None and line.after is not None:
            estimates.append(_changed(line.before, line.after))
    return Finding(
        **about,
        sentence=_sentence(before, after, names),
        estimates=estimates,
        checks=_checks(before, after, names),
        exhibits=_exhibits(lines, names),
        settings=after.settings,
        seed=after.seed,
    )


@dataclass(frozen=True)
class _EstimateLine:
    """An estimate of both sides, None on a side that has none."""

    group: str
    name: str
    before: Estimate | None
    after: Estimate | None

    def compared(self) -> Compared:
        return Compared((self.name, self.group), self.before, self.after, difference(self.before, self.after))


def _estimate_by_estimate(before: Finding, after: Finding) -> list[_EstimateLine]:
    """Estimates of the same group and name; those that share both are matched in their order."""
    known_before, known_after = _by_key(before), _by_key(after)
    keys = dict.fromkeys((*known_before, *known_after))
    return [_EstimateLine(key[0], key[1], known_before.get(key), known_after.get(key)) for key in keys]


def _by_key(finding: Finding) -> dict[tuple[str, str, int], Estimate]:
    """Estimates by group and name; a number tells apart those that share both."""
    seen: Counter[tuple[str, str]] = Counter()
    estimates = {}
    for estimate in finding.estimates:
        key = (estimate.group, estimate.name)
        estimates[*key, seen[key]] = estimate
        seen[key] += 1
    return estimates


def _changed(before: Estimate, after: Estimate) -> Estimate:
    change = difference(before, after)
    return Estimate.of(
        after.name,
        change,
        after.row,
        level=after.level,
        n=None if before.n is None or after.n is None else min(before.n, after.n),
        unit=after.unit,
        group=after.group,
        note="" if change.low is None else INDEPENDENT,
    )


def _sentence(before: Finding, after: Finding, names: tuple[str, str]) -> str:
    if before.verdict == after.verdict:
        if after.verdict is None:
            said = ""
        else:
            said = f"Both sides say “{after.verdict}”. "
    else:
        said = f"{names[0]}: {before.headline}; {names[1]}: {after.headline}. "
    first, second = _estimate(before), _estimate(after)
    if first is None or second is None or (first.name, first.group) != (second.name, second.group):
        return said or "The two sides have no first estimate in common."
    change = difference(first, second)
    if change.value is None:
        return f"{said}The change of “{first.name}” is undefined: {change.reason}."
    if change.low is None or change.high is None:
        limits = ""
    else:
        limits = f", {change.low:+.3f} to {change.high:+.3f}"
    if change.low is not None and change.low <= 0 <= (change.high or 0):
        chance = "; chance alone could explain it"
    else:
        chance = ""
    return f"{said}“{first.name}” goes from {first.value:.3f} to {second.value:.3f} (change {change.value:+.3f}{limits}{chance})."


def _checks(before: Finding, after: Finding, names: tuple[str, str]) -> list[Check]:
    keys = sorted({*before.settings, *after.settings})
    changed = []
    for key in keys:
        if before.settings.get(key) != after.settings.get(key):
            changed.append(key)
    settings = []
    for key in changed:
        settings.append(f"{key}: {before.settings.get(key)} and {after.settings.get(key)}")
    same_rows = (before.n_rows, before.cohort) == (after.n_rows, after.cohort)
    rows, failed = [], []
    for name, finding in zip(names, (before, after), strict=True):
        rows.append(f"{name}: {finding.n_rows} rows of {finding.cohort}")
        for check in finding.checks:
            if check.passed is False:
                failed.append(f"{name}: {check.name}")
    return [
        Check(
            id="settings",
            name="both sides were audited with the same settings",
            passed=not changed,
            note="; ".join(settings),
        ),
        Check(
            id="rows",
            name="both sides have as many rows of the same cohort",
            passed=same_rows,
            note="" if same_rows else "; ".join(rows),
        ),
        Check(id="checks", name="every check of both sides passed", passed=not failed, note="; ".join(failed)),
    ]


def _exhibits(lines: Sequence[_EstimateLine], names: tuple[str, str]) -> list[Exhibit]:
    if not lines:
        return []
    compared = [line.compared() for line in lines]
    table = comparison_table(
        title="Estimate by estimate",
        caption=f"The difference is {names[1]} minus {names[0]}. Its interval comes {INDEPENDENT}.",
        heads=("estimate", "of"),
        sides=names,
        lines=compared,
        highlight=[k for k, line in enumerate(compared) if line.is_clear],
    )
    first = lines[0].before or lines[0].after
    unit = "" if first is None else first.unit
    shown = []
    for line in lines:
        if line.before and line.after and line.before.unit == line.after.unit == unit:
            shown.append(line)
    if len(shown) < 2:
        return [table]
    bars = comparison_bars(
        title="Both sides",
        caption="Each side with its own interval. Two sides can differ although their intervals overlap: see the table.",
        sides=names,
        lines=[line.compared() for line in shown],
        labels=[", ".join(filter(None, (line.group, line.name))) for line in shown],
        value_label=unit,
    )
    return [table, bars]


# ---- what the above use --------------------------------------------------------------------------------------------------


def _title(before: Finding, after: Finding) -> str:
    if before.name == after.name:
        return before.name
    return f"{before.name} → {after.name}"


def _estimate(finding: Finding) -> Estimate | None:
    if finding.estimates:
        return finding.estimates[0]
    return None
