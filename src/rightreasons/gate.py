"""Findings to an exit status: a policy is judged item by item, with a line for people and JUnit XML for machines."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args
from xml.etree import ElementTree

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from rightreasons.case import Case, cases
from rightreasons.errors import DataError, SettingError
from rightreasons.families import suggest
from rightreasons.files import parse_toml, read_text, write
from rightreasons.findings import Estimate, Finding, Verdict, as_line, as_xml

Outcome = Literal["passed", "failed", "skipped"]
Pattern = Annotated[str, Field(min_length=1)]


# ---- the policy ----------------------------------------------------------------------------------------------------------


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class _Which(_Table):
    """Which findings a rule is about; names may be patterns, as for files."""

    finding: Pattern = "*"
    audit: Pattern = "*"
    attribute: Pattern = "*"
    model: Pattern = "*"

    def means(self, finding: Finding | _Said) -> bool:
        return all(_named(getattr(finding, _FIELD[key]), getattr(self, key)) for key in _FIELD)

    def __str__(self) -> str:
        said = []
        for key in _FIELD:
            if getattr(self, key) != "*":
                said.append(f"{key} {getattr(self, key)}")
        return ", ".join(said) or "every finding"


_FIELD = {"finding": "name", "audit": "audit", "attribute": "attribute", "model": "model"}


class Threshold(_Which):
    """A bound that an estimate must keep.

    Parameters
    ----------
    estimate : its name, or a pattern
    by : "value", or "interval" if the whole interval must keep the bound
    """

    estimate: Pattern
    at_least: float | None = None
    at_most: float | None = None
    by: Literal["value", "interval"] = "value"

    @model_validator(mode="after")
    def _has_a_bound(self) -> Self:
        if self.at_least is None and self.at_most is None:
            raise ValueError("a threshold needs at_least or at_most")
        for name, bound in (("at_least", self.at_least), ("at_most", self.at_most)):
            if bound is not None and not math.isfinite(bound):
                raise ValueError(f"{name} is {bound}, which says nothing: give a number")
        if self.at_least is not None and self.at_most is not None and self.at_least > self.at_most:
            raise ValueError(f"at_least {self.at_least:g} is above at_most {self.at_most:g}, which no number can keep")
        return self


class Accepted(_Which):
    """A verdict that is known and accepted, with the reason."""

    verdict: Literal["shortcut", "inconclusive"]
    reason: Annotated[str, Field(min_length=1)]


class Policy(_Table):
    """What findings must satisfy.

    Parameters
    ----------
    judge : whose verdicts count: those of findings, of cases (one for each model and attribute, over all audits), or both
    allow_inconclusive : True, or the findings or audits that may be inconclusive; "case*" for cases
    allow_not_run : the same for findings that did not run; True by default, since an audit runs what the data allow
    required : findings or audits that must be present and have run
    """

    judge: Literal["both", "findings", "cases"] = "both"
    allow_inconclusive: bool | tuple[Pattern, ...] = False
    allow_not_run: bool | tuple[Pattern, ...] = True
    required: tuple[Pattern, ...] = ()
    thresholds: tuple[Threshold, ...] = ()
    accepted: tuple[Accepted, ...] = ()

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Policy:
        try:
            text = read_text(path)
        except OSError as error:
            raise SettingError(f"the policy {str(path)!r} cannot be read: {error.strerror or error}") from error
        return cls.of(parse_toml(text, f"the policy {str(path)!r}"), str(path))

    @classmethod
    def of(cls, keys: dict[str, Any], where: str = "policy") -> Policy:
        """A policy from what its TOML file says; `where` names it in errors."""
        _refuse_unknown(keys, cls, where)
        for table, kind in (("thresholds", Threshold), ("accepted", Accepted)):
            entries = keys.get(table, [])
            if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
                raise SettingError(f"{where}: {table} must be a list of tables; begin each with [[{table}]]")
            for number, entry in enumerate(entries, 1):
                _refuse_unknown(entry, kind, f"{where}: [[{table}]] number {number}")
        try:
            return cls.model_validate(_tuples(keys))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(str(part + 1 if isinstance(part, int) else part) for part in first["loc"])
            raise SettingError(f"{where}: {place}: {first['msg']} (found {first['input']!r})") from error


def _refuse_unknown(keys: dict[str, Any], kind: type[BaseModel], where: str) -> None:
    for key in keys:
        if key not in kind.model_fields:
            raise SettingError(f"{where} has no key {key!r}; {suggest(key, kind.model_fields)}")


def _tuples(value: Any) -> Any:
    """TOML's arrays as the tuples that strict fields require, and whole numbers as numbers."""
    if isinstance(value, list):
        return tuple(map(_tuples, value))
    if isinstance(value, dict):
        return {key: float(item) if type(item) is int else _tuples(item) for key, item in value.items()}
    return value


# ---- judging -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Judged:
    """One item that was judged; `group` is the finding or case that it belongs to."""

    group: str
    name: str
    outcome: Outcome
    why: str = ""


@dataclass(frozen=True)
class Judgement:
    """What a policy says about findings, item by item."""

    items: tuple[Judged, ...]

    @property
    def passed(self) -> bool:
        return not self.of("failed")

    @property
    def exit_status(self) -> int:
        if self.passed:
            return 0
        return 1

    def of(self, outcome: Outcome) -> list[Judged]:
        return [item for item in self.items if item.outcome == outcome]

    def one_line(self) -> str:
        counts = ", ".join(f"{len(self.of(outcome))} {outcome}" for outcome in get_args(Outcome))
        failed = "; ".join(f"{item.group}: {item.why}" for item in self.of("failed"))
        return as_line(f"gate: {'PASS' if self.passed else 'FAIL'}: {counts}{': ' if failed else ''}{failed}")

    def junit(self, name: str = "rightreasons") -> bytes:
        """JUnit XML, which CI systems read."""
        counts = {"tests": len(self.items), "failures": len(self.of("failed")), "skipped": len(self.of("skipped")), "errors": 0}
        attributes = {key: str(value) for key, value in counts.items()}
        suites = ElementTree.Element("testsuites", attributes)
        suite = ElementTree.SubElement(suites, "testsuite", {"name": as_xml(name), **attributes})
        for item in self.items:
            element = ElementTree.SubElement(suite, "testcase", {"classname": as_xml(item.group), "name": as_xml(item.name)})
            if item.outcome != "passed":
                tag = "failure" if item.outcome == "failed" else "skipped"
                ElementTree.SubElement(element, tag, {"message": as_xml(item.why)}).text = as_xml(item.why)
            elif item.why:
                ElementTree.SubElement(element, "system-out").text = as_xml(item.why)
        ElementTree.indent(suites)
        return ElementTree.tostring(suites, encoding="utf-8", xml_declaration=True) + b"\n"

    def save_junit(self, path: str | os.PathLike[str], name: str = "rightreasons") -> Path:
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        write(target, self.junit(name))
        return target


def judge(findings: Iterable[Finding], policy: Policy | None = None) -> Judgement:
    """Judge findings by a policy: every verdict, every finding that must be present, every threshold.

    A gate that has nothing to judge does not pass: it fails where no verdict was given and no threshold was checked.
    """
    audited, rules = list(findings), policy or Policy()
    if not audited:
        raise DataError("there are no findings to judge; run an audit first")
    verdicts: list[_Said] = []
    if rules.judge != "findings":
        for case in cases(audited):
            verdicts.append(_Said.of(case))
    if rules.judge != "cases":
        for f in audited:
            if f.verdict is not None or f.not_run:
                verdicts.append(_Said.of(f))
    items = [_verdict(said, rules) for said in verdicts]
    for pattern in rules.required:
        items += _required(pattern, audited)
    for threshold in rules.thresholds:
        items += _threshold(threshold, audited, rules)
    if all(item.outcome == "skipped" for item in items):
        items.append(Judged("findings", "something was judged", "failed", "no verdict was given and no threshold was checked"))
    return Judgement(tuple(items))


@dataclass(frozen=True)
class _Said:
    """The verdict of a finding or of a case, and whose it is."""

    name: str
    audit: str
    attribute: str
    model: str
    verdict: Verdict
    sentence: str
    not_run: str = ""

    @classmethod
    def of(cls, source: Finding | Case) -> _Said:
        same = {}
        for key in ("attribute", "model", "verdict", "sentence"):
            same[key] = getattr(source, key)
        if isinstance(source, Finding):
            return cls(**same, name=source.name, audit=source.audit, not_run=source.not_run)
        return cls(**same, name=" ".join(filter(None, ("case", source.model, source.attribute))), audit="case")


def _verdict(said: _Said, rules: Policy) -> Judged:
    name = "verdict"
    if said.not_run:
        allowed = _allows(rules.allow_not_run, said)
        return Judged(said.name, name, "skipped" if allowed else "failed", f"not run: {said.not_run}")
    why = f"{said.verdict}: {said.sentence}"
    if said.verdict == "no evidence":
        return Judged(said.name, name, "passed", why)
    for accepted in rules.accepted:
        if accepted.verdict == said.verdict and accepted.means(said):
            return Judged(said.name, name, "passed", f"{why} Accepted: {accepted.reason}")
    if said.verdict == "inconclusive" and _allows(rules.allow_inconclusive, said):
        return Judged(said.name, name, "skipped", why)
    return Judged(said.name, name, "failed", why)


def _required(pattern: str, findings: Sequence[Finding]) -> Iterable[Judged]:
    name = f"required: {pattern}"
    meant = [f for f in findings if _named(f.name, pattern) or _named(f.audit, pattern)]
    if not meant:
        yield Judged(pattern, name, "failed", f"there is no such finding; {suggest(pattern, [f.name for f in findings])}")
    for finding in meant:
        yield Judged(finding.name, name, "failed" if finding.not_run else "passed", finding.not_run)


def _threshold(rule: Threshold, findings: Sequence[Finding], rules: Policy) -> Iterable[Judged]:
    meant = [finding for finding in findings if rule.means(finding) and not finding.not_run]
    bounds = [("at least", rule.at_least), ("at most", rule.at_most)]
    required = " and ".join(f"{words} {bound:g}" for words, bound in bounds if bound is not None)
    is_known = False
    for finding in meant:
        for estimate in finding.estimates:
            if not _named(estimate.name, rule.estimate):
                continue
            is_known = True
            yield Judged(
                finding.name, f"{estimate.name} {required}", *_outcome(rule, estimate, _allows(rules.allow_inconclusive, finding))
            )
    if not is_known:
        known: set[str] = set()
        for finding in meant:
            known.update(estimate.name for estimate in finding.estimates)
        why = f"no such estimate; {suggest(rule.estimate, known)}"
        yield Judged(str(rule), f"{rule.estimate} {required}", "failed", why)


def _outcome(rule: Threshold, estimate: Estimate, may_be_open: bool) -> tuple[Outcome, str]:
    """Whether the estimate keeps the bounds, and its numbers; where that cannot be told, it is skipped or fails."""
    if rule.by == "interval":
        low, high = (estimate.low, estimate.high)
    else:
        low, high = (estimate.value, estimate.value)
    keeps = True
    for bound, limit, sign in ((rule.at_least, low, 1), (rule.at_most, high, -1)):
        if bound is None:
            continue
        if limit is None:
            missing = "undefined" if estimate.value is None else "no interval"
            return "skipped" if may_be_open else "failed", f"{estimate}: {missing}"
        keeps = keeps and sign * limit >= sign * bound
    return "passed" if keeps else "failed", str(estimate)


def _named(name: str, pattern: str) -> bool:
    return name == pattern or fnmatchcase(name, pattern)


def _allows(rule: bool | tuple[str, ...], finding: Finding | _Said) -> bool:
    if isinstance(rule, bool):
        return rule
    return any(_named(finding.name, pattern) or _named(finding.audit, pattern) for pattern in rule)
