"""Three and more versions of a model in a row: how verdict, effect, accuracy and the worst group moved from one to the next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

from rightreasons import compare
from rightreasons.case import Case, cases
from rightreasons.compare import AUDIT, Side, paired
from rightreasons.errors import DataError
from rightreasons.findings import Cell, Check, Curve, Curves, Estimate, Exhibit, Finding, Table

ACCURACY, WORST = "accuracy", "worst-group accuracy"
ROWS_BY_WEIGHT = ("reliance", "behaviour", "place")  # where the effect of an attribute is looked for, the nearest to use first
LEAST = 2


@dataclass(frozen=True)
class Compared:
    """What a page of two sides, or of more versions, consists of.

    Attributes
    ----------
    lead : what it says first
    first : exhibits that stand before all findings
    """

    title: str
    lead: str
    first: tuple[Exhibit, ...]
    findings: tuple[Finding, ...]


def compared(sides: Sequence[Side]) -> Compared:
    """Two sides by what changed between them, three and more by how they moved."""
    names = [side.name for side in sides]
    if len(sides) == LEAST:
        found = compare.compare(*sides)
        title = f"{names[0]} → {names[1]}: what changed"
        return Compared(title, compare.lead(found), tuple(compare.first(found)), tuple(found))
    found = trend(sides)
    return Compared(f"{names[0]} to {names[-1]}: {len(names)} versions", lead(found), tuple(first(found)), tuple(found))


@dataclass(frozen=True)
class Version:
    """What one version says of one attribute."""

    name: str
    case: Case
    findings: tuple[Finding, ...]

    def estimate(self, key: tuple[str, str]) -> Estimate | None:
        """The first estimate of an audit's finding, by audit and name of the estimate."""
        audit, name = key
        firsts = (f.estimates[0] for f in self.findings if f.audit == audit and f.estimates)
        return next((estimate for estimate in firsts if estimate.name == name), None)

    def performance(self, name: str) -> Estimate | None:
        described = (e for f in self.findings if f.row == "behaviour" and f.verdict is None for e in f.estimates)
        return next((estimate for estimate in described if estimate.name == name), None)

    @property
    def rows(self) -> int | None:
        """How many rows its numbers rest on: those that most of its findings were made from."""
        counts = Counter(f.n_rows for f in self.findings if f.n_rows is not None)
        return counts.most_common(1)[0][0] if counts else None


def trend(versions: Sequence[Side], *, seed: int = 0, B: int = 10_000) -> list[Finding]:
    """How versions of a model moved, as findings for a page: one for every attribute, then the paired differences of neighbours.

    Parameters
    ----------
    versions : the oldest first; each says something of one model, or all say it of the same models
    B : resamples of the paired differences, which need the evidence of both neighbours
    """
    if len(versions) < LEAST:
        raise DataError(f"a trend needs {LEAST} versions or more, and here is {len(versions)}: name more folders")
    findings = [_of_attribute(named, line) for named, line in _lines(versions).items()]
    for before, after in pairwise(versions):
        for found in paired(before, after, seed, B):
            findings.append(found.model_copy(update={"name": f"{before.name} → {after.name}, {found.name}"}))
    return findings


def lead(findings: Sequence[Finding]) -> str:
    """What the page says first."""
    return " ".join(f.sentence for f in findings if f.audit == AUDIT)


def first(findings: Sequence[Finding]) -> list[Exhibit]:
    """What the page shows first: the versions of each attribute, as a table and as lines."""
    return list(chain.from_iterable(f.exhibits for f in findings if f.audit == AUDIT))


# ---- which versions belong together --------------------------------------------------------------------------------------


def _lines(versions: Sequence[Side]) -> dict[str, list[Version]]:
    """The versions of each attribute (and model, where each folder has several), by what they are about."""
    without = [version.name for version in versions if not version.findings]
    if without:
        raise DataError(f"{', '.join(without)}: no findings there, only evidence; a trend is made of findings, so audit it first")
    judged = [_cases(version) for version in versions]
    several = any(len({model for model, _ in told}) > 1 for told in judged)
    keyed: list[dict[str, Version]] = []
    for version, told in zip(versions, judged, strict=True):
        by_name = {}
        for (model, attribute), case in told.items():
            by_name[" · ".join(filter(None, (model if several else "", attribute)))] = Version(version.name, case, case.findings)
        keyed.append(by_name)
    shared = [name for name in keyed[0] if all(name in by_name for by_name in keyed[1:])]
    if not shared:
        told_by = "; ".join(f"{v.name} has {', '.join(k) or 'none'}" for v, k in zip(versions, keyed, strict=True))
        what = "model and attribute" if several else "attribute"
        raise DataError(f"these versions have no {what} in common, so nothing can be followed: {told_by}")
    return {name: [by_name[name] for by_name in keyed] for name in shared}


def _cases(version: Side) -> dict[tuple[str, str], Case]:
    return {(case.model, case.attribute): case for case in cases(version.findings)}


# ---- one attribute -------------------------------------------------------------------------------------------------------


def _of_attribute(name: str, line: Sequence[Version]) -> Finding:
    effect = _effect(line)
    return Finding(
        name=f"trend of {name}" if name else "trend",
        audit=AUDIT,
        question=f"How did the model move over {len(line)} versions" + (f", with regard to {name}?" if name else "?"),
        row="behaviour",
        sentence=_sentence(line, effect),
        estimates=_last_step(line, effect),
        checks=_checks(line),
        exhibits=_exhibits(line, effect),
        attribute=line[-1].case.attribute,
        model=" → ".join(version.name for version in line),
    )


def _effect(line: Sequence[Version]) -> tuple[str, str] | None:
    """The audit and estimate to follow: defined in most versions, then the one nearest to use."""
    known: Counter[tuple[str, str]] = Counter()
    weight: dict[tuple[str, str], int] = {}
    for version in line:
        seen = set()
        for f in version.findings:
            if (
                f.row in ROWS_BY_WEIGHT
                and f.estimates
                and f.estimates[0].value is not None
                and (f.verdict or f.row == "reliance")
            ):
                seen.add((f.audit, f.estimates[0].name))
                weight.setdefault((f.audit, f.estimates[0].name), ROWS_BY_WEIGHT.index(f.row))
        known.update(seen)
    return min(known, key=lambda key: (-known[key], weight[key]), default=None)


def _sentence(line: Sequence[Version], effect: tuple[str, str] | None) -> str:
    verdicts = [str(version.case.verdict) for version in line]
    about = f"{line[-1].case.attribute}: " if line[-1].case.attribute else ""
    if len(set(verdicts)) == 1:
        said = f"{about}all {len(line)} versions say “{verdicts[0]}”."
    else:
        said = about + ", then ".join(f"“{verdict}” ({name})" for verdict, name in _runs(line)) + "."
    moved = []
    for what, found in _followed(line, effect):
        first, last = found[0], found[-1]
        if first is not None and last is not None and first.value is not None and last.value is not None:
            moved.append(f"{what} {_number(first)} → {_number(last)}")
    if moved:
        said += f" From {line[0].name} to {line[-1].name}: {'; '.join(moved)}."
    return said[0].upper() + said[1:]


def _runs(line: Sequence[Version]) -> list[tuple[str, str]]:
    """Verdicts with the versions that gave them, neighbours that agree together."""
    runs: list[tuple[str, list[str]]] = []
    for version in line:
        verdict = str(version.case.verdict)
        if runs and runs[-1][0] == verdict:
            runs[-1][1].append(version.name)
        else:
            runs.append((verdict, [version.name]))
    return [(verdict, names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}") for verdict, names in runs]


def _followed(line: Sequence[Version], effect: tuple[str, str] | None) -> list[tuple[str, list[Estimate | None]]]:
    """What is followed over the versions, with its name: the effect, the worst group and the accuracy."""
    found = []
    if effect is not None:
        found.append((f"{effect[1]} ({effect[0]})", [version.estimate(effect) for version in line]))
    for name in (WORST, ACCURACY):
        found.append((name, [version.performance(name) for version in line]))
    return [(what, values) for what, values in found if any(e is not None and e.value is not None for e in values)]


def _number(estimate: Estimate) -> str:
    limits = "" if estimate.low is None or estimate.high is None else f" [{estimate.low:z.3f}, {estimate.high:z.3f}]"
    return f"{estimate.value:z.3f}{limits}"


def _last_step(line: Sequence[Version], effect: tuple[str, str] | None) -> list[Estimate]:
    """Where the newest version stands."""
    last = [values[-1] for _, values in _followed(line, effect)]
    return [estimate for estimate in last if estimate is not None]


def _checks(line: Sequence[Version]) -> list[Check]:
    counts = {version.name: version.rows for version in line}
    cohorts = {version.name: ", ".join(sorted({f.cohort for f in version.findings if f.cohort})) for version in line}
    same = len(set(counts.values())) == 1 and len(set(cohorts.values())) == 1
    told = "; ".join(f"{name}: {rows} rows of {cohorts[name] or 'an unnamed cohort'}" for name, rows in counts.items())
    note = "" if same else f"{told}: what moved may be the rows and not the model"
    return [Check(id="rows", name="all versions were audited on as many rows of the same cohort", passed=same, note=note)]


def _exhibits(line: Sequence[Version], effect: tuple[str, str] | None) -> list[Exhibit]:
    followed = _followed(line, effect)
    exhibits: list[Exhibit] = [_table(line, followed)]
    caption = "One point for each version, the oldest first, with its own interval."
    names = tuple(version.name for version in line)
    for what, values in followed[: 1 if effect is not None else 0]:
        unit = next((e.unit for e in values if e is not None and e.unit), "")
        zero = {"hline": 0.0, "hline_label": "no effect"}
        exhibits.append(
            Curves(
                title="Effect by version", caption=caption, x=names, series={what: _curve(values)}, y_label=unit or what, **zero
            )
        )
    performance = {what: _curve(values) for what, values in followed if what in (WORST, ACCURACY)}
    if performance:
        about = {"title": "Accuracy by version", "caption": caption, "y_label": "share of right decisions"}
        exhibits.append(Curves(x=names, series=performance, **about))
    return exhibits


def _curve(values: Iterable[Estimate | None]) -> Curve:
    known = list(values)
    return Curve(
        y=tuple(None if e is None else e.value for e in known),
        low=tuple(None if e is None else e.low for e in known),
        high=tuple(None if e is None else e.high for e in known),
    )


def _table(line: Sequence[Version], followed: Sequence[tuple[str, list[Estimate | None]]]) -> Table:
    rows, changed = [], []
    for k, version in enumerate(line):
        numbers = [None if values[k] is None else Cell.of(values[k]) for _, values in followed]  # type: ignore[arg-type]
        rows.append((version.name, str(version.case.verdict), version.case.score, *numbers, version.rows))
        if k and version.case.verdict != line[k - 1].case.verdict:
            changed.append(k)
    return Table(
        title="Version by version",
        caption="The oldest version first. A version whose verdict differs from that of the version before is marked. "
        "The score goes from 0, everything against a shortcut, to 1, everything for one.",
        columns=("version", "verdict", "score", *(what for what, _ in followed), "images"),
        rows=tuple(rows),
        highlight=tuple(changed),
    )
