"""Findings → one verdict for each model and attribute, in five rows of evidence, with a score and one sentence.

It names no audit. The rule is `combine`, one small function of votes; docs/how-to/read-a-finding.md says it in words.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from rightreasons.errors import DataError
from rightreasons.files import write
from rightreasons.findings import ROWS, Estimate, Finding, Row, Table, Verdict
from rightreasons.stats.resampling import benjamini_hochberg

WEIGHT: Mapping[str, float] = {"behaviour": 1.0, "reliance": 1.0, "place": 0.25}
"""What a vote of a row weighs, chosen in planted worlds (docs/calibration.md). Rows that are not here describe and have no vote:
what is encoded need not be used."""
DECIDES = ("behaviour", "reliance")  # rows whose votes can call a shortcut; looking at a cue is not yet use
PRIOR = 0.5  # weight on either side before anything was seen: the score of no votes is one half
COUNTS_ONCE = 0.2  # the effect with which a call counts once in the score: from there on a model leans on a cue
ALPHA = 0.05  # false discovery rate over the attributes of one model
IMBALANCED = 0.1  # association of label and attribute in the training rows from which there is something to learn


class Vote(NamedTuple):
    """What one finding says, in which row."""

    row: Row
    verdict: Verdict | None
    effect: float = COUNTS_ONCE  # from 0 to 1; of calls, for the score


class Combined(NamedTuple):
    """A verdict and, from 0 (all against) to 1 (all for a shortcut), how much speaks for one; one half is undecided.

    The verdict counts votes; in the score a call weighs as much as its effect is large.
    """

    verdict: Verdict
    score: float


def combine(votes: Iterable[Vote]) -> Combined:
    """The rule that makes one verdict of many.

    Shortcut: an audit of behaviour or of reliance calls it, and the votes for it outweigh those against. No evidence: such an
    audit could have seen it and did not, and no vote calls it. Inconclusive: everything else, first of all where no audit of
    reliance has looked: answers alone do not say why they go with an attribute.
    """
    given = [vote for vote in votes if vote.verdict is not None]
    voting = [vote for vote in given if vote.row in WEIGHT and vote.verdict != "inconclusive"]
    called = [vote for vote in voting if vote.verdict == "shortcut"]
    pro, contra = (sum(WEIGHT[v.row] for v in voting if v.verdict == said) for said in ("shortcut", "no evidence"))
    weighed = sum(WEIGHT[vote.row] * vote.effect / COUNTS_ONCE for vote in called)
    score = (PRIOR + weighed) / (2 * PRIOR + weighed + contra)
    decided = {vote.verdict for vote in voting if vote.row in DECIDES}
    looked = any(vote.row == "reliance" for vote in given)
    if looked and "shortcut" in decided and pro > contra:
        return Combined("shortcut", score)
    if looked and "no evidence" in decided and not called:
        return Combined("no evidence", score)
    return Combined("inconclusive", score)


@dataclass(frozen=True)
class Case:
    """One model and one attribute.

    Attributes
    ----------
    rows : row of evidence → its findings
    score : see `Combined`
    disagreements : findings that say opposite things, in words
    needs : what would help most, where no audit of reliance could decide
    withdrawn : names of findings whose call does not stand once all attributes are corrected together
    q : finding → p adjusted over attributes (Benjamini-Hochberg), where several were tested
    imbalance : association of label and attribute in the training rows; None where they are not known
    harm : whether that imbalance is harmful, in words; empty where it is not known
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
    harm: str = ""

    @property
    def findings(self) -> tuple[Finding, ...]:
        return tuple(finding for row in ROWS for finding in self.rows[row])

    @property
    def smallest_q(self) -> float | None:
        return min(self.q.values(), default=None)


def cases(findings: Iterable[Finding], sheet: Sheet | None = None) -> list[Case]:
    """A case for every model and attribute, in the order of the findings; attributes of one model are corrected together.

    A finding without attribute belongs to every attribute of its model, and votes where there is only one. A finding of the row
    `remedy` also belongs to the model that was mitigated (`settings["before"]`). What is told of a whole study makes no case.
    """
    given = list(findings)
    found = []
    for model in _models(given):
        own = [f for f in given if model in (f.model, *([f.settings.get("before")] if f.row == "remedy" else []))]
        attributes = list(dict.fromkeys(f.attribute for f in own if f.attribute)) or [""]
        q = _adjusted(own, attributes)
        withdrawn = tuple(f.name for f in own if f.verdict == "shortcut" and q.get(f.name, 0.0) > ALPHA)
        for attribute in attributes:
            of = [f for f in own if f.attribute in (attribute, "")]
            voters = [f for f in of if f.attribute == attribute or len(attributes) == 1]
            case = _case(model, attribute, of, voters, [name for name in withdrawn if name in {f.name for f in of}], q)
            found.append(_with_imbalance(case, sheet))
    return found


class Sheet(BaseModel):
    """What a page says of the data, and how to do it again.

    Parameters
    ----------
    tables : group sizes, rows left out
    facts : fingerprints, versions, seeds: name → text
    imbalance : one estimate per attribute, under its name: how strongly it goes with the label in the training rows; `group` is
        the model that learnt from them, empty for all
    command : what to type to repeat it
    study : text of the study.toml
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    tables: tuple[Table, ...] = ()
    facts: dict[str, str] = {}
    imbalance: tuple[Estimate, ...] = ()
    command: str = ""
    study: str = ""

    def save(self, folder: str | os.PathLike[str]) -> Path:
        path = Path(folder) / "sheet.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, self.model_dump_json(indent=1))
        return path

    @classmethod
    def read(cls, folder: str | os.PathLike[str]) -> Self | None:
        """The sheet of a folder; None where there is none."""
        path = Path(folder) / "sheet.json"
        if not path.is_file():
            return None
        try:
            return cls.model_validate_json(path.read_bytes())
        except ValidationError as error:
            raise DataError(f"{path} is no data sheet: {error.errors(include_url=False)[0]['msg']}") from error


# ---- one case ------------------------------------------------------------------------------------------------------------


def _models(findings: Sequence[Finding]) -> list[str]:
    """Models that audits with a vote were run for; where there are none, all that something else than a remedy is told of."""
    asked = [f for f in findings if f.row in WEIGHT and (f.verdict is not None or f.not_run)]
    described = [f for f in findings if f.row != "remedy"]
    return list(dict.fromkeys(f.model for f in asked or described or findings))


def _case(
    model: str, attribute: str, of: Sequence[Finding], voters: Sequence[Finding], withdrawn: Sequence[str], q: Mapping[str, float]
) -> Case:
    said = {f.name: "inconclusive" if f.name in withdrawn else f.verdict for f in voters}
    verdict, score = combine(Vote(f.row, said[f.name], _effect(f)) for f in voters)  # type: ignore[arg-type]
    called, cleared = ([f for f in voters if f.row in WEIGHT and said[f.name] == v] for v in ("shortcut", "no evidence"))
    rows = {row: tuple(f for f in of if f.row == row) for row in ROWS}
    open_ = verdict == "inconclusive" and not _reliance(called) and not _reliance(cleared)
    needs = _needs(attribute, rows["reliance"]) if open_ else ""
    return Case(
        model=model,
        attribute=attribute,
        verdict=verdict,
        score=score,
        sentence=_sentence(verdict, model, attribute, called, cleared, needs),
        rows=rows,
        disagreements=tuple(_disagreement(c, n) for c in called for n in cleared if {c.row, n.row} & set(DECIDES)),
        needs=needs,
        withdrawn=tuple(withdrawn),
        q={f.name: q[f.name] for f in voters if f.name in q and f.verdict != "inconclusive"},
    )


def _effect(finding: Finding) -> float:
    """The size of what decided, a share or a correlation; of a finding that gives none, what counts once."""
    value = finding.estimates[0].value if finding.estimates else None
    return COUNTS_ONCE if value is None else min(abs(value), 1.0)


def _adjusted(findings: Sequence[Finding], attributes: Sequence[str]) -> dict[str, float]:
    """Finding → p of its first estimate, adjusted over the attributes that the same audit was run for."""
    if len(attributes) < 2:
        return {}
    found: dict[str, float] = {}
    for audit in dict.fromkeys(f.audit for f in findings):
        asked = [f for f in findings if f.audit == audit and f.attribute and f.verdict is not None and f.estimates]
        tested = {f.name: f.estimates[0].p for f in asked if f.estimates[0].p is not None}
        found |= {name: float(q) for name, q in zip(tested, benjamini_hochberg(list(tested.values())), strict=True)}
    return found


def _reliance(findings: Iterable[Finding]) -> list[Finding]:
    return [f for f in findings if f.row == "reliance"]


def _deciding(findings: Iterable[Finding]) -> list[Finding]:
    return [f for f in findings if f.row in DECIDES]


def _needs(attribute: str, reliance: Sequence[Finding]) -> str:
    if not attribute:
        return "a column with an attribute, the thing that the model should not use"
    tried = [f for f in reliance if f.verdict == "inconclusive"]
    if not tried or any("twin" in f.not_run for f in reliance):
        return "a column of twins: the same images with nothing changed but the cue"
    return f"what the audits of reliance lacked: {'; '.join(dict.fromkeys(_lack(f) for f in tried))}"


def _lack(finding: Finding) -> str:
    failed = [check.name for check in finding.checks if check.decides and check.passed is not True]
    return f"{finding.audit}: {', '.join(failed)}" if failed else finding.audit


# ---- words ---------------------------------------------------------------------------------------------------------------


def _sentence(
    verdict: Verdict, model: str, attribute: str, called: Sequence[Finding], cleared: Sequence[Finding], needs: str
) -> str:
    who, what = model or "The model", attribute or "a cue that it should not use"
    yes, no = _deciding(called), _deciding(cleared)
    place = [f for f in called if f.row == "place"]
    if verdict == "shortcut":
        agree = f", and {_names(place)} {_verb(place, 'finds', 'find')} it in the image" if place else ""
        but = f"; {_names(cleared)} {_verb(cleared, 'does', 'do')} not see it" if cleared else ""
        if _reliance(yes):
            return f"{who} uses {what} to decide: {_names(yes)} {_verb(yes, 'says', 'say')} so{agree}{but}."
        return f"{who} follows {what} in its answers: {_names(yes)} {_verb(yes, 'says', 'say')} so{agree}{but}."
    if verdict == "no evidence":
        return f"No evidence that {who} uses {what}: {_names(no)} could have seen it and {_verb(no, 'does', 'do')} not."
    undecided = f"It is not decided whether {who} uses {what}"
    if needs:
        seen = [f"{_names(yes)} {_verb(yes, 'sees', 'see')} its answers follow it"] if yes else []
        seen += [f"{_names(place)} {_verb(place, 'sees', 'see')} it look where the cue is"] if place else []
        also = f" {_capital(' and '.join(seen))}, which is not yet use." if seen else ""
        return f"{undecided}: no audit of reliance could decide.{also} What would help most is {needs}."
    if yes:
        so = f"{_names(called)} {_verb(called, 'says', 'say')} so, and {_names(cleared)} {_verb(cleared, 'does', 'do')} not"
        return f"{undecided}: {so}."
    return (
        f"{undecided}: {_names(no)} {_verb(no, 'finds', 'find')} no use of it, and yet "
        f"{_names(place)} {_verb(place, 'finds', 'find')} the model looking where it is."
    )


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def _names(findings: Sequence[Finding]) -> str:
    names = list(dict.fromkeys(f.audit for f in findings))
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else "no audit"


def _verb(findings: Sequence[Finding], one: str, many: str) -> str:
    return one if len({f.audit for f in findings}) == 1 else many


def _disagreement(called: Finding, cleared: Finding) -> str:
    """Both with the question that they answer: most contradictions are answers to different questions."""
    weak = [
        f"{f.audit} failed its check {check.name!r}{f' ({check.note})' if check.note else ''}"
        for f in (called, cleared)
        for check in f.checks
        if check.passed is False
    ]
    doubt = f" To weigh them: {'; '.join(weak)}." if weak else " Neither failed a check."
    rows = "both are about reliance, each in its own way" if called.row == cleared.row else f"{called.row}, and {cleared.row}"
    return (
        f"{called.audit} calls a shortcut ({called.question}) and {cleared.audit} finds no evidence of one ({cleared.question})."
        f" These are different questions: {rows}.{doubt}"
    )


def _with_imbalance(case: Case, sheet: Sheet | None) -> Case:
    told = [e for e in sheet.imbalance if e.name == case.attribute and e.group in ("", case.model)] if sheet is not None else []
    known = next(iter(told), None)
    if known is None or known.value is None:
        return replace(case, imbalance=known)
    there = abs(known.value) >= IMBALANCED
    words = {
        ("shortcut", True): "harmful: it goes with the label in the training rows, and the model uses it",
        (
            "shortcut",
            False,
        ): "used although it does not go with the label in these training rows: look at what else it was trained on",
        ("no evidence", True): "not harmful so far as the audits can see: rows need not be given up to balance it",
        ("no evidence", False): "nothing to exploit: it does not go with the label in the training rows",
        ("inconclusive", True): "not decided: it goes with the label in the training rows, and whether the model uses it is open",
        ("inconclusive", False): "little to exploit: it hardly goes with the label in the training rows",
    }
    return replace(case, imbalance=known, harm=words[(str(case.verdict), there)])
