"""Findings → one verdict for each model and attribute, in five rows of evidence, with a score and one sentence.

No audit is named here. The rule is `combine`, a small function of votes, and `rule` puts it into words from the same constants.

| what | where |
|---|---|
| votes → a verdict and a score | `votes` |
| the sentence, what would help, where audits differ | `words` |
| attributes that go with each other | `companions` |
| which unevenness it is, and what to do about it | `unevenness` |
| what is seen, in plain numbers | `plainly` |
| the one thing to do next | `next_step` |
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, ValidationError

from rightreasons.case.companions import Among, Companion, among_of, companions_of, related
from rightreasons.case.next_step import Known, next_step
from rightreasons.case.plainly import answers_of, effect_of, named, what, what_of_failing
from rightreasons.case.unevenness import Advice, Commands, Uneven, unevenness_of
from rightreasons.case.votes import CALLS, COUNTS_ONCE, WEIGHT, Combined, Vote, combine, is_overruled, rule
from rightreasons.case.words import Heard, disagreements, looked, needs_of, sentence, with_others
from rightreasons.errors import DataError
from rightreasons.files import write
from rightreasons.findings import ROWS, Answers, Estimate, Finding, Table, Verdict
from rightreasons.findings.preflight import Preflight, objection_of
from rightreasons.stats.resampling import benjamini_hochberg
from rightreasons.stored import known_format

__all__ = [
    "ALPHA", "COUNTS_ONCE", "WEIGHT", "Advice", "Among", "Case", "Combined", "Companion", "Sheet", "Uneven", "Vote", "cases",
    "combine", "named", "rule",
]  # fmt: skip

ALPHA = 0.05  # false discovery rate over the attributes of one model


# ---- cases ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """The verdict on one model and one attribute.

    Attributes
    ----------
    rows : row of evidence → its findings
    score : see `Combined`
    disagreements : one sentence or more for each pair of findings that contradict each other
    needs : what would help most, where no audit of reliance could decide
    withdrawn : names of findings whose call does not survive the correction over all attributes
    q : finding → its p adjusted over attributes (Benjamini-Hochberg), where several were tested
    imbalance : association of label and attribute in the training rows; None where those are not known
    overruled : names of findings whose verdict another finding shows not to count
    could_not_look : names of findings whose conditions failed: they count as if they had not been run
    companions : other attributes that go with this one, and how
    among : how far answers follow this attribute and how far the model uses it, alone and within the others
    unevenness : the ways in which the attribute goes with the label or the answers, and what to do about each
    answers : how often which rows get which answer, and rows to look at; None where no finding tells
    next_step : what to do first, and what to type for it
    objections : why nothing can be concluded; empty where the model works on these rows
    card : the model's preflight, where there is one
    """

    model: str
    attribute: str
    verdict: Verdict
    score: float
    sentence: str
    rows: Mapping[str, tuple[Finding, ...]]
    disagreements: tuple[str, ...] = ()
    needs: str = ""
    withdrawn: tuple[str, ...] = ()
    q: Mapping[str, float] = field(default_factory=dict)
    imbalance: Estimate | None = None
    overruled: tuple[str, ...] = ()
    could_not_look: tuple[str, ...] = ()
    companions: tuple[Companion, ...] = ()
    among: Among = field(default_factory=Among)
    unevenness: tuple[Uneven, ...] = ()
    answers: Answers | None = None
    next_step: Advice = field(default_factory=Advice)
    objections: tuple[str, ...] = ()
    card: Preflight | None = None

    @property
    def works(self) -> bool:
        """Whether it can be taken that the model works on these rows: nothing says that it does not."""
        return not self.objections or self.card is None or self.card.works

    @property
    def what(self) -> str:
        """What is seen, in plain numbers; empty where no finding tells."""
        if self.answers is None:
            return ""
        if not self.works and self.card is not None and self.card.balanced is not None and self.card.chance is not None:
            return what_of_failing(self.answers, self.card.balanced, self.card.chance)
        return what(self.answers)

    @property
    def effect(self) -> Estimate | None:
        """The number that goes with the verdict: of what is seen, else the first one of a finding that agrees with it."""
        if self.answers is not None:
            return effect_of(self.answers)
        told = [finding for finding in self.findings if finding.estimates and not finding.not_run]
        agrees = [finding for finding in told if finding.verdict == self.verdict]
        return next((finding.estimates[0] for finding in agrees or told), None)

    @property
    def findings(self) -> tuple[Finding, ...]:
        return tuple(chain.from_iterable(self.rows[row] for row in ROWS))

    @property
    def smallest_q(self) -> float | None:
        return min(self.q.values(), default=None)


def cases(findings: Iterable[Finding], sheet: Sheet | None = None) -> list[Case]:
    """A case for every model and attribute, in the order of the findings; attributes of one model are corrected together.

    A finding without an attribute belongs to every attribute of its model, and votes if there is only one. A finding of the row
    `remedy` also belongs to the model that was mitigated (`settings["before"]`). Findings about a whole study make no case.
    """
    every = list(findings)
    commands = Commands.of(sheet.command, sheet.study) if sheet is not None else Commands()
    judged = []
    for model in _models(every):
        own = [f for f in every if f.model == model or (f.row == "remedy" and f.settings.get("before") == model)]
        attributes = list(dict.fromkeys(f.attribute for f in own if f.attribute)) or [""]
        q = _adjusted(own) if len(attributes) > 1 else {}
        of_model = []
        for attribute in attributes:
            about = [f for f in own if f.attribute in (attribute, "")]
            if len(attributes) == 1:
                voters = about
            else:
                voters = [f for f in about if f.attribute == attribute]
            card = None if sheet is None else next((card for card in sheet.preflight if card.model == model), None)
            given = _Given(model, attribute, about, voters, q, _imbalance(sheet, model, attribute), commands, card)
            of_model.append(_judged(given))
        judged += _referring_to_each_other(of_model)
    return judged


SHEET_FORMAT = 1  # of sheet.json


class Sheet(BaseModel):
    """What the page says about the data, and how to repeat the audit.

    Parameters
    ----------
    tables : group sizes, rows left out
    facts : fingerprints, versions, seeds: name → text
    imbalance : one estimate for each attribute, named after it: how strongly it goes with the label in the training rows;
        `group` is the model trained on those rows, empty where the estimate holds for all models
    command : the command that repeats the audit
    study : text of the study.toml
    preflight : a card for each model: does it work on these rows at all?
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: int = SHEET_FORMAT
    tables: tuple[Table, ...] = ()
    facts: dict[str, str] = {}
    imbalance: tuple[Estimate, ...] = ()
    command: str = ""
    study: str = ""
    preflight: tuple[Preflight, ...] = ()

    def save(self, folder: str | os.PathLike[str]) -> Path:
        return write(Path(folder) / "sheet.json", self.model_dump_json(indent=1))

    @classmethod
    def read(cls, folder: str | os.PathLike[str]) -> Self | None:
        """The sheet of a folder; None if it has none."""
        path = Path(folder) / "sheet.json"
        if not path.is_file():
            return None
        try:
            told = json.loads(path.read_bytes())
            known_format(told.get("format") if isinstance(told, dict) else None, SHEET_FORMAT, path)
            return cls.model_validate(told)
        except ValidationError as error:
            raise DataError(f"{path} is not a data sheet: {error.errors(include_url=False)[0]['msg']}") from error
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise DataError(f"{path} is not a data sheet: it is not JSON ({error})") from error


# ---- one case ------------------------------------------------------------------------------------------------------------


def _models(findings: Sequence[Finding]) -> list[str]:
    """Models for which an audit with a vote was run; failing that, every model with a finding other than a remedy."""
    voting = [f for f in findings if f.row in WEIGHT and (f.verdict is not None or f.not_run)]
    described = [f for f in findings if f.row != "remedy"]
    return list(dict.fromkeys(f.model for f in voting or described or findings))


def _adjusted(findings: Sequence[Finding]) -> dict[str, float]:
    """Finding → p of its first estimate, adjusted over the attributes for which the same audit was run."""
    p_of_audit: dict[str, dict[str, float]] = {}
    for f in findings:
        if f.attribute and f.verdict is not None and f.estimates and f.estimates[0].p is not None:
            p_of_audit.setdefault(f.audit, {})[f.name] = f.estimates[0].p
    adjusted: dict[str, float] = {}
    for p in p_of_audit.values():
        adjusted |= {name: float(q) for name, q in zip(p, benjamini_hochberg(list(p.values())), strict=True)}
    return adjusted


def _imbalance(sheet: Sheet | None, model: str, attribute: str) -> Estimate | None:
    if sheet is None:
        return None
    for estimate in sheet.imbalance:
        if estimate.name == attribute and estimate.group in ("", model):
            return estimate
    return None


@dataclass(frozen=True)
class _Given:
    """What the case of one model and attribute is made from: all findings `about` it and those among them that vote."""

    model: str
    attribute: str
    about: Sequence[Finding]
    voters: Sequence[Finding]
    q: Mapping[str, float]
    imbalance: Estimate | None
    commands: Commands
    card: Preflight | None = None

    @property
    def withdrawn(self) -> tuple[str, ...]:
        return tuple(f.name for f in self.about if f.verdict == "shortcut" and self.q.get(f.name, 0.0) > ALPHA)

    def votes(self) -> list[tuple[Finding, Vote]]:
        """The voting findings, each with its vote; a call that was withdrawn has looked and cannot tell."""
        withdrawn = self.withdrawn
        found = []
        for finding in self.voters:
            if finding.row not in WEIGHT:
                continue
            verdict: Verdict = finding.verdict
            has_looked = looked(finding)
            if finding.name in withdrawn:
                verdict, has_looked = "inconclusive", True
            effect, standing = _effect(finding), finding.standing
            found.append((finding, Vote(finding.row, verdict, effect, standing, finding.alike, has_looked)))
        return found


def _judged(given: _Given) -> Case:
    votes = given.votes()
    combined = combine(vote for _, vote in votes)
    heard = _heard(votes)
    attribute = given.attribute
    rows = {row: _of_row(row, given.about) for row in ROWS}
    has_decided = any(vote.row == CALLS and vote.is_decided for _, vote in votes)
    needs = "" if has_decided else needs_of(attribute, rows[CALLS])
    said = sentence(combined.verdict, given.model, attribute, heard, needs)
    objections = list(dict.fromkeys(filter(None, map(objection_of, given.voters))))
    if objections and combined.verdict == "inconclusive":  # what audits lacked is no question before the model works
        needs = ""
        said = f"It is undecided whether {given.model or 'the model'} uses {attribute or 'a cue'}: {'; '.join(objections)}."
    uneven = unevenness_of(combined.verdict, attribute, given.voters, given.imbalance, given.commands)
    known = Known(combined.verdict, attribute, given.voters, uneven, has_decided, objections, given.card, given.commands)
    return Case(
        model=given.model,
        attribute=attribute,
        verdict=combined.verdict,
        score=combined.score,
        sentence=said,
        rows=rows,
        disagreements=tuple(disagreements(heard)),
        needs=needs,
        withdrawn=given.withdrawn,
        q={f.name: given.q[f.name] for f in given.voters if f.name in given.q and f.verdict != "inconclusive"},
        imbalance=given.imbalance,
        overruled=tuple(f.name for f in heard.overruled),
        could_not_look=tuple(f.name for f in given.about if f.verdict == "inconclusive" and not looked(f)),
        companions=tuple(heard.companions),
        among=among_of(given.voters),
        unevenness=uneven,
        answers=answers_of(given.about, attribute),
        next_step=next_step(known),
        objections=tuple(objections),
        card=given.card,
    )


def _heard(votes: Sequence[tuple[Finding, Vote]]) -> Heard:
    every = [vote for _, vote in votes]
    findings = [finding for finding, _ in votes]
    shown = [uneven.present for finding in findings for uneven in finding.unevenness if uneven.kind == "presentation"]
    return Heard(
        called=[finding for finding, vote in votes if vote.verdict == "shortcut"],
        cleared=[finding for finding, vote in votes if vote.verdict == "no evidence"],
        overruled=[finding for finding, vote in votes if is_overruled(vote, every)],
        undecided=[finding for finding, vote in votes if vote.is_undecided_guard],
        companions=companions_of(findings),
        shows_more=shown[0] if shown else None,
    )


def _referring_to_each_other(judged: Sequence[Case]) -> list[Case]:
    """The cases of one model: the sentence of an attribute names the others that go with it and are explained by it."""
    found = []
    for case in judged:
        explains = [other.attribute for other in judged if case.attribute in related(other.companions, "explained by")]
        found.append(replace(case, sentence=with_others(case.sentence, case.verdict, explains)))
    return found


def _of_row(row: str, findings: Sequence[Finding]) -> tuple[Finding, ...]:
    return tuple(f for f in findings if f.row == row)


def _effect(finding: Finding) -> float:
    """Size of the effect that decided, a share or a correlation; a finding that gives none counts once."""
    value = finding.estimates[0].value if finding.estimates else None
    if value is None:
        return COUNTS_ONCE
    return min(abs(value), 1.0)
