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
from pathlib import Path
from typing import Any

from rightreasons import remedy
from rightreasons.errors import EvidenceError, NotRun
from rightreasons.evidence import Evidence
from rightreasons.findings import Bars, Cell, Check, Estimate, Exhibit, Finding, Table, not_run

AUDIT, OVERVIEW = "compare", "changes"
INDEPENDENT = (
    "from the intervals of the two sides, as if their rows had been drawn apart; on shared rows it is mostly wider than need be"
)


@dataclass(frozen=True)
class Side:
    """One of the two: its findings, and its evidence where it is at hand."""

    name: str
    findings: tuple[Finding, ...] = ()
    evidence: Evidence | None = None

    @classmethod
    def read(cls, path: str | os.PathLike[str], name: str | None = None) -> Side:
        """A folder that `audit` or `sweep` wrote, a folder of evidence, or a single finding (.json)."""
        place = Path(path)
        evidence = [folder for folder in (place, place / "evidence") if (folder / "zarr.json").is_file()]
        if place.suffix == Finding.SUFFIX:
            findings = [Finding.read(place)]
        elif evidence and not (place / "findings").is_dir():
            findings = []
        else:
            findings = Finding.read_all(place)
        return cls(name or place.name, tuple(findings), Evidence.open(evidence[0]) if evidence else None)


def sides(before: str | os.PathLike[str], after: str | os.PathLike[str]) -> tuple[Side, Side]:
    """Both sides, named by the parts of their paths that differ."""
    one, other = (Path(path).resolve().parts for path in (before, after))
    while one and other and one[-1] == other[-1] and one != other:
        one, other = one[:-1], other[:-1]
    shared = next((k for k, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))
    names = ["/".join(parts[shared:]).removesuffix(Finding.SUFFIX) or parts[-1] for parts in (one, other)]
    return Side.read(before, names[0]), Side.read(after, names[1])


def compare(before: Side, after: Side, *, seed: int = 0, B: int = 10_000) -> list[Finding]:
    """What changed, as findings for a page: paired differences, an overview of the verdicts, and audit by audit.

    Parameters
    ----------
    B : resamples of the paired differences
    """
    pairs, alone = matched(before.findings, after.findings)
    overview = [_overview(pairs, alone, (before.name, after.name))] if before.findings or after.findings else []
    return [*_paired(before, after, seed, B), *overview, *(_difference(a, b, (before.name, after.name)) for a, b in pairs)]


def lead(found: Sequence[Finding]) -> str:
    """What the page says first: how verdicts changed and, where rows were paired, by how much."""
    overview = [f.sentence for f in found if f.name == OVERVIEW]
    paired = [f.sentence for f in found if f.audit == "remedy" and f.sentence][:1]
    return " ".join((*overview, *paired)) or "Nothing could be compared."


def matched(
    before: Sequence[Finding], after: Sequence[Finding]
) -> tuple[list[tuple[Finding, Finding]], tuple[list[Finding], list[Finding]]]:
    """Findings of one audit that share the name or, where names differ, the attribute, in turn; and those that are left over."""
    pairs: dict[int, tuple[Finding, Finding]] = {}
    left = list(after)
    for key in (lambda f: (f.audit, f.name), lambda f: (f.audit, f.attribute)):
        for number, finding in enumerate(before):
            other = next((f for f in left if number not in pairs and key(f) == key(finding)), None)
            if other is not None:
                pairs[number] = (finding, other)
                left.remove(other)
    return [pairs[k] for k in sorted(pairs)], ([f for k, f in enumerate(before) if k not in pairs], left)


def difference(before: Estimate | None, after: Estimate | None) -> Cell:
    """After minus before, with limits from the two intervals (MOVER: Zou and Donner, 2008), which need not be symmetric."""
    if before is None or after is None:
        return Cell(value=None, reason="on one side only")
    if before.value is None or after.value is None:
        return Cell(value=None, reason=before.reason if before.value is None else after.reason)
    value = after.value - before.value
    limits = (before.low, before.high, after.low, after.high)
    if None in limits or before.level != after.level:
        why = "no interval on both sides" if None in limits else "the intervals have different levels"
        return Cell(value=value, reason=why)
    low = value - math.hypot(after.value - after.low, before.high - before.value)  # type: ignore[operator]
    high = value + math.hypot(after.high - after.value, before.value - before.low)  # type: ignore[operator]
    return Cell(value=value, low=low, high=high)


# ---- paired --------------------------------------------------------------------------------------------------------------


def _paired(before: Side, after: Side, seed: int, B: int) -> list[Finding]:
    """Rows that both models have answered: the same resamples for both, once for every attribute."""
    if before.evidence is None or after.evidence is None:
        return []
    question = f"What changed from {before.name} to {after.name} on the rows that both have answered?"
    told: dict[str, Any] = {"question": question, "change": f"going from {before.name} to {after.name}"}
    known = before.evidence.on("test").cohort.attributes if "test" in before.evidence.cohorts else ()
    attributes = known or (None,)
    found = []
    for attribute in attributes:
        name = "paired" if attribute is None or len(attributes) == 1 else f"paired-{attribute}"
        try:
            one = remedy.remedy(before.evidence, after.evidence, attribute=attribute, seed=seed, B=B, name=name, **told)
            found.append(one.model_copy(update={"checks": (*one.checks, _same_rows(before.evidence, after.evidence))}))
        except (NotRun, EvidenceError) as error:
            found.append(not_run(name, "remedy", question, "remedy", str(error), attribute=attribute or ""))
    return found


def _same_rows(before: Evidence, after: Evidence) -> Check:
    same = before.fingerprint("test") == after.fingerprint("test")
    note = "" if same else "other rows, or other images under the same ids: only rows whose id both know are compared"
    return Check(name="both models have seen the same images", passed=same, note=note)


# ---- finding by finding --------------------------------------------------------------------------------------------------


def _overview(
    pairs: Sequence[tuple[Finding, Finding]], alone: tuple[list[Finding], list[Finding]], names: tuple[str, str]
) -> Finding:
    changed = [(a, b) for a, b in pairs if a.headline != b.headline]
    judged = [(a, b) for a, b in pairs if a.verdict or b.verdict]
    said = "; ".join(f"{_title(a, b)}: {a.headline} → {b.headline}" for a, b in changed)
    if changed:
        sentence = f"{len(changed)} of {len(pairs)} findings that both sides have say something else: {said}."
    elif judged:
        sentence = f"Both sides give the same verdict{'' if len(judged) == 1 else 's'}, {len(judged)} in all."
    else:
        sentence = "No verdict was given on both sides."
    rows = [[_title(a, b), a.attribute, a.headline, b.headline, *_first(a, b)] for a, b in pairs]
    rows += [[f.name, f.attribute, f.headline, "–", _cell(_estimate(f)), None, None] for f in alone[0]]
    rows += [[f.name, f.attribute, "–", f.headline, None, _cell(_estimate(f)), None] for f in alone[1]]
    table = Table(
        title="Verdicts and first estimates",
        caption=f"What each audit says of {names[0]} and of {names[1]}; marked where it is not the same. The difference of the "
        f"first estimate is {names[1]} minus {names[0]}, its interval {INDEPENDENT}.",
        columns=("finding", "attribute", names[0], names[1], f"{names[0]}: estimate", f"{names[1]}: estimate", "difference"),
        rows=rows,
        highlight=[k for k, (a, b) in enumerate(pairs) if a.headline != b.headline],
    )
    left = [f"{f.name} (only {name})" for name, findings in zip(names, alone, strict=True) for f in findings]
    every = Check(name="both sides have every finding", passed=not left, note=", ".join(left))
    return Finding(
        name=OVERVIEW,
        audit=AUDIT,
        question=f"What changed from {names[0]} to {names[1]}?",
        row="remedy",
        sentence=sentence,
        checks=(every,),
        exhibits=(table,),
        model=" and ".join(names),
    )


def _difference(before: Finding, after: Finding, names: tuple[str, str]) -> Finding:
    """One audit on both sides: every estimate, before, after and the difference."""
    about = {
        "name": f"change of {_title(before, after)}",
        "audit": AUDIT,
        "question": before.question,
        "row": before.row,
        "attribute": before.attribute,
        "cohort": before.cohort if before.cohort == after.cohort else f"{before.cohort}, {after.cohort}",
        "model": " and ".join(names),
        "n_rows": before.n_rows if before.n_rows == after.n_rows else None,
    }
    if before.not_run or after.not_run:
        reason = "; ".join(f"{name}: {f.not_run}" for name, f in zip(names, (before, after), strict=True) if f.not_run)
        return Finding(**about, not_run=reason)
    one, other = _by_key(before), _by_key(after)
    lines = [(key, one.get(key), other.get(key)) for key in dict.fromkeys((*one, *other))]
    estimates = [_changed(a, b) for _, a, b in lines if a is not None and b is not None]
    return Finding(
        **about,
        sentence=_sentence(before, after, names),
        estimates=estimates,
        checks=_checks(before, after, names),
        exhibits=_exhibits(lines, names),
        settings=after.settings,
        seed=after.seed,
    )


def _changed(before: Estimate, after: Estimate) -> Estimate:
    change = difference(before, after)
    return Estimate(
        **{**change.model_dump(), "reason": change.reason},
        name=after.name,
        level=after.level,
        n=None if before.n is None or after.n is None else min(before.n, after.n),
        row=after.row,
        unit=after.unit,
        group=after.group,
        note="" if change.low is None else INDEPENDENT,
    )


def _sentence(before: Finding, after: Finding, names: tuple[str, str]) -> str:
    if before.verdict == after.verdict:
        said = "" if after.verdict is None else f"Both sides say “{after.verdict}”. "
    else:
        said = f"{names[0]}: {before.headline}; {names[1]}: {after.headline}. "
    first, second = _estimate(before), _estimate(after)
    if first is None or second is None or (first.name, first.group) != (second.name, second.group):
        return said or "There is no estimate that both sides put first."
    change = difference(first, second)
    if change.value is None:
        return f"{said}The change of “{first.name}” is undefined: {change.reason}."
    limits = "" if change.low is None or change.high is None else f", {change.low:+.3f} to {change.high:+.3f}"
    chance = "; chance alone could give it" if change.low is not None and change.low <= 0 <= (change.high or 0) else ""
    return f"{said}“{first.name}” goes from {first.value:.3f} to {second.value:.3f} (change {change.value:+.3f}{limits}{chance})."


def _checks(before: Finding, after: Finding, names: tuple[str, str]) -> list[Check]:
    other = sorted(k for k in {*before.settings, *after.settings} if before.settings.get(k) != after.settings.get(k))
    said = [f"{k}: {before.settings.get(k)} and {after.settings.get(k)}" for k in other]
    rows = [f"{name}: {f.n_rows} rows of {f.cohort}" for name, f in zip(names, (before, after), strict=True)]
    same = (before.n_rows, before.cohort) == (after.n_rows, after.cohort)
    failed = [f"{name}: {c.name}" for name, f in zip(names, (before, after), strict=True) for c in f.checks if c.passed is False]
    return [
        Check(name="both sides were audited with the same settings", passed=not other, note="; ".join(said)),
        Check(name="both sides have as many rows of the same cohort", passed=same, note="" if same else "; ".join(rows)),
        Check(name="every check of both sides passed", passed=not failed, note="; ".join(failed)),
    ]


def _exhibits(lines: Sequence[tuple[Any, Estimate | None, Estimate | None]], names: tuple[str, str]) -> list[Exhibit]:
    if not lines:
        return []
    rows = [[key[1], key[0], _cell(a), _cell(b), difference(a, b)] for key, a, b in lines]
    table = Table(
        title="Estimate by estimate",
        caption=f"The difference is {names[1]} minus {names[0]}. Its interval comes {INDEPENDENT}.",
        columns=("estimate", "of", *names, "difference"),
        rows=rows,
        highlight=[k for k, row in enumerate(rows) if _is_clear(row[-1])],
    )
    unit = next(e.unit for _, a, b in lines for e in (a, b) if e is not None)
    shown = [(key, a, b) for key, a, b in lines if a is not None and b is not None and a.unit == b.unit == unit]
    if len(shown) < 2:
        return [table]
    parts = {
        part: {name: tuple(getattr(pair[k], part) for _, *pair in shown) for k, name in enumerate(names)}
        for part in ("value", "low", "high")
    }
    bars = Bars(
        title="Both sides",
        caption="Each side with its own interval: two that overlap can still differ, see the table.",
        labels=tuple(", ".join(filter(None, key[:2])) for key, _, _ in shown),
        series=parts["value"],
        low=parts["low"],
        high=parts["high"],
        value_label=unit,
    )
    return [table, bars]


# ---- what the above use --------------------------------------------------------------------------------------------------


def _by_key(finding: Finding) -> dict[tuple[str, str, int], Estimate]:
    """Estimates by group and name; a number tells apart those that share both."""
    seen: Counter[tuple[str, str]] = Counter()
    found = {}
    for estimate in finding.estimates:
        key = (estimate.group, estimate.name)
        found[*key, seen[key]] = estimate
        seen[key] += 1
    return found


def _title(before: Finding, after: Finding) -> str:
    return before.name if before.name == after.name else f"{before.name} → {after.name}"


def _estimate(finding: Finding) -> Estimate | None:
    return finding.estimates[0] if finding.estimates else None


def _first(before: Finding, after: Finding) -> tuple[Cell | None, Cell | None, Cell | None]:
    a, b = _estimate(before), _estimate(after)
    comparable = a is not None and b is not None and (a.name, a.group) == (b.name, b.group)
    return _cell(a), _cell(b), difference(a, b) if comparable else None


def _cell(estimate: Estimate | None) -> Cell | None:
    if estimate is None:
        return None
    return Cell(value=estimate.value, low=estimate.low, high=estimate.high, reason=estimate.reason)


def _is_clear(cell: Cell) -> bool:
    return cell.low is not None and cell.high is not None and not cell.low <= 0 <= cell.high
