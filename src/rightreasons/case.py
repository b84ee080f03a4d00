"""Findings → one verdict for each model and attribute, in five rows of evidence, with a score and one sentence.

No audit is named here. The rule is `combine`, a small function of votes, and `rule` puts it into words from the same constants.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import NamedTuple, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from rightreasons.errors import DataError
from rightreasons.files import write
from rightreasons.findings import ROWS, Estimate, Finding, Row, Table, Verdict
from rightreasons.stats.resampling import benjamini_hochberg

WEIGHT: Mapping[str, float] = {"behaviour": 1.0, "reliance": 1.0, "place": 0.25}
"""The weight of a vote in each row, chosen in planted worlds (docs/calibration.md). Other rows describe and have no vote: a model
need not use what it encodes."""
DECIDES = ("behaviour", "reliance")  # rows whose votes can call a shortcut; looking at a cue is not yet using it
MUST_LOOK = "reliance"  # without an audit of this row the case stays open: answers alone do not say why they follow an attribute
PRIOR = 0.5  # weight on either side before anything is known: without votes the score is one half
COUNTS_ONCE = 0.2  # effect at which a call counts once in the score: from there on a model leans on a cue
ALPHA = 0.05  # false discovery rate over the attributes of one model
IMBALANCED = 0.1  # association of label and attribute in the training rows from which there is something to learn


# ---- the rule ------------------------------------------------------------------------------------------------------------


class Vote(NamedTuple):
    """What one finding says, and in which row."""

    row: Row
    verdict: Verdict | None
    effect: float = COUNTS_ONCE  # from 0 to 1; the score weighs a call by it


class Combined(NamedTuple):
    """A verdict, and a score from 0 (everything against a shortcut) to 1 (everything for one); one half is undecided.

    The verdict counts votes. The score also weighs each call by the size of its effect.
    """

    verdict: Verdict
    score: float


def combine(votes: Iterable[Vote]) -> Combined:
    """Combine votes into one verdict.

    Shortcut: an audit of behaviour or reliance calls it, and the votes for it outweigh those against. No evidence: such an
    audit could have seen one and did not, and no vote calls it. Inconclusive: everything else, and always where no audit of
    reliance has looked.
    """
    heard = [vote for vote in votes if vote.verdict is not None]
    voting = [vote for vote in heard if vote.row in WEIGHT and vote.verdict != "inconclusive"]
    calls = [vote for vote in voting if vote.verdict == "shortcut"]
    weight_for = sum(WEIGHT[vote.row] for vote in calls)
    weight_against = sum(WEIGHT[vote.row] for vote in voting if vote.verdict == "no evidence")
    weighed = sum(WEIGHT[vote.row] * vote.effect / COUNTS_ONCE for vote in calls)
    score = (PRIOR + weighed) / (2 * PRIOR + weighed + weight_against)
    decided = {vote.verdict for vote in voting if vote.row in DECIDES}
    has_looked = any(vote.row == MUST_LOOK for vote in heard)
    if has_looked and "shortcut" in decided and weight_for > weight_against:
        return Combined("shortcut", score)
    if has_looked and "no evidence" in decided and not calls:
        return Combined("no evidence", score)
    return Combined("inconclusive", score)


def rule() -> tuple[str, ...]:
    """The rule of `combine` in plain sentences, made from its constants: what the page and the documentation say of it."""
    by_weight: dict[float, list[str]] = {}
    for row, weight in WEIGHT.items():
        by_weight.setdefault(weight, []).append(row)
    voting = ", ".join(f"audits of {_listed(rows)} vote with weight {_as_fraction(w)}" for w, rows in by_weight.items())
    silent = _listed([row for row in ROWS if row not in WEIGHT])
    return (
        f"{_capital(voting)}; audits of {silent} have no vote.",
        f"A shortcut needs a call by an audit of {' or '.join(DECIDES)}, and more weight for it than against it.",
        f"Without an audit of {MUST_LOOK} the case is inconclusive.",
        f"The score is ({_as_fraction(PRIOR)} + for) / ({_as_fraction(2 * PRIOR)} + for + against), so that "
        f"{_as_fraction(0.5)} is undecided.",
        f"In the score a call counts with its weight times its effect divided by {COUNTS_ONCE:g}.",
    )


def _as_fraction(number: float) -> str:
    """A simple fraction such as 1/4, where the number is one; else its decimals."""
    fraction = Fraction(number).limit_denominator(12)
    if float(fraction) == number:
        return str(fraction)
    return f"{number:g}"


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
    judged = []
    for model in _models(every):
        own = [f for f in every if f.model == model or (f.row == "remedy" and f.settings.get("before") == model)]
        attributes = list(dict.fromkeys(f.attribute for f in own if f.attribute)) or [""]
        q = _adjusted(own) if len(attributes) > 1 else {}
        for attribute in attributes:
            about = [f for f in own if f.attribute in (attribute, "")]
            if len(attributes) == 1:
                voters = about
            else:
                voters = [f for f in about if f.attribute == attribute]
            imbalance = _imbalance(sheet, model, attribute)
            judged.append(_judged(model, attribute, about, voters, q, imbalance))
    return judged


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
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    tables: tuple[Table, ...] = ()
    facts: dict[str, str] = {}
    imbalance: tuple[Estimate, ...] = ()
    command: str = ""
    study: str = ""

    def save(self, folder: str | os.PathLike[str]) -> Path:
        return write(Path(folder) / "sheet.json", self.model_dump_json(indent=1))

    @classmethod
    def read(cls, folder: str | os.PathLike[str]) -> Self | None:
        """The sheet of a folder; None if it has none."""
        path = Path(folder) / "sheet.json"
        if not path.is_file():
            return None
        try:
            return cls.model_validate_json(path.read_bytes())
        except ValidationError as error:
            raise DataError(f"{path} is not a data sheet: {error.errors(include_url=False)[0]['msg']}") from error


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


def _judged(
    model: str,
    attribute: str,
    about: Sequence[Finding],
    voters: Sequence[Finding],
    q: Mapping[str, float],
    imbalance: Estimate | None,
) -> Case:
    """The case of one model and attribute, from all findings `about` it and those among them that vote."""
    withdrawn = tuple(f.name for f in about if f.verdict == "shortcut" and q.get(f.name, 0.0) > ALPHA)
    votes = [Vote(f.row, "inconclusive" if f.name in withdrawn else f.verdict, _effect(f)) for f in voters]
    verdict, score = combine(votes)
    weighty = [(f, vote) for f, vote in zip(voters, votes, strict=True) if f.row in WEIGHT]
    called = [f for f, vote in weighty if vote.verdict == "shortcut"]
    cleared = [f for f, vote in weighty if vote.verdict == "no evidence"]
    rows = {row: _of_row(row, about) for row in ROWS}
    is_open = verdict == "inconclusive" and not any(f.row == MUST_LOOK for f in (*called, *cleared))
    needs = _needs(attribute, rows[MUST_LOOK]) if is_open else ""
    return Case(
        model=model,
        attribute=attribute,
        verdict=verdict,
        score=score,
        sentence=_sentence(verdict, model, attribute, _Sides(called, cleared), needs),
        rows=rows,
        disagreements=tuple(_disagreements(called, cleared)),
        needs=needs,
        withdrawn=withdrawn,
        q={f.name: q[f.name] for f in voters if f.name in q and f.verdict != "inconclusive"},
        imbalance=imbalance,
        harm=_harm(verdict, imbalance),
    )


def _of_row(row: str, findings: Sequence[Finding]) -> tuple[Finding, ...]:
    return tuple(f for f in findings if f.row == row)


def _effect(finding: Finding) -> float:
    """Size of the effect that decided, a share or a correlation; a finding that gives none counts once."""
    value = finding.estimates[0].value if finding.estimates else None
    if value is None:
        return COUNTS_ONCE
    return min(abs(value), 1.0)


# ---- words ---------------------------------------------------------------------------------------------------------------


def _needs(attribute: str, reliance: Sequence[Finding]) -> str:
    if not attribute:
        return "a column with an attribute: what the model should not use"
    tried = [f for f in reliance if f.verdict == "inconclusive"]
    if not tried or any(f.lacks == "twins" for f in reliance):
        return "a column of twins: the same images with nothing changed but the cue"
    return f"what the audits of reliance lacked: {'; '.join(dict.fromkeys(_lacked(f) for f in tried))}"


def _lacked(finding: Finding) -> str:
    failed = [check.name for check in finding.checks if check.decides and check.passed is not True]
    if failed:
        return f"{finding.audit}: {', '.join(failed)}"
    return finding.audit


class _Sides(NamedTuple):
    """The voting findings that call a shortcut, and those that find no evidence of one."""

    called: Sequence[Finding]
    cleared: Sequence[Finding]

    @property
    def deciding(self) -> list[Finding]:
        """Calls of a row that can decide."""
        return [f for f in self.called if f.row in DECIDES]

    @property
    def could_see(self) -> list[Finding]:
        """Findings of no evidence in a row that can decide."""
        return [f for f in self.cleared if f.row in DECIDES]

    @property
    def place(self) -> list[Finding]:
        return [f for f in self.called if f.row == "place"]


def _sentence(verdict: Verdict, model: str, attribute: str, sides: _Sides, needs: str) -> str:
    cue = attribute or "a cue that it should not use"
    if verdict == "shortcut":
        return _shortcut(model or "The model", cue, sides)
    who = model or "the model"
    if verdict == "no evidence":
        return f"No evidence that {who} uses {cue}: {_names(sides.could_see)} could have seen it and did not."
    return f"It is undecided whether {who} uses {cue}: {_why_undecided(sides, needs)}."


def _shortcut(who: str, cue: str, sides: _Sides) -> str:
    claim = f"follows {cue} in its answers"
    if any(f.row == MUST_LOOK for f in sides.deciding):
        claim = f"uses {cue} to decide"
    agree = but = ""
    if sides.place:
        agree = f", and {_subject(sides.place, 'finds', 'find')} it in the image"
    if sides.cleared:
        but = f"; {_subject(sides.cleared, 'does', 'do')} not see it"
    return f"{who} {claim}: {_subject(sides.deciding, 'says', 'say')} so{agree}{but}."


def _why_undecided(sides: _Sides, needs: str) -> str:
    if needs:
        return f"no audit of reliance could tell.{_hints(sides)} What would help most is {needs}"
    if sides.deciding:
        return f"{_subject(sides.called, 'says', 'say')} so, but {_subject(sides.cleared, 'does', 'do')} not"
    no_use = f"{_subject(sides.could_see, 'finds', 'find')} no use of it"
    return f"{no_use}, but {_subject(sides.place, 'finds', 'find')} the model looking where it is"


def _hints(sides: _Sides) -> str:
    """What other rows saw where no audit of reliance could tell, as a sentence; empty where they saw nothing."""
    hints = []
    if sides.deciding:
        hints.append(f"{_subject(sides.deciding, 'sees', 'see')} its answers follow it")
    if sides.place:
        hints.append(f"{_subject(sides.place, 'sees', 'see')} it look where the cue is")
    if not hints:
        return ""
    return f" {_capital(' and '.join(hints))}, but that is not yet use."


def _disagreements(called: Sequence[Finding], cleared: Sequence[Finding]) -> Iterable[str]:
    """Every contradiction that a deciding row is part of, each side with its question: most of them ask different questions."""
    for caller in called:
        for clearer in cleared:
            if caller.row in DECIDES or clearer.row in DECIDES:
                yield _disagreement(caller, clearer)


def _disagreement(caller: Finding, clearer: Finding) -> str:
    weaknesses = []
    for finding in (caller, clearer):
        for check in finding.checks:
            if check.passed is False:
                note = f" ({check.note})" if check.note else ""
                weaknesses.append(f"{finding.audit} failed its check {check.name!r}{note}")
    if caller.row == clearer.row:
        rows = f"Both are about {caller.row}, but they test it in different ways."
    else:
        rows = f"They ask different questions: {caller.audit} is about {caller.row}, {clearer.audit} about {clearer.row}."
    if weaknesses:
        doubt = f"When weighing them: {'; '.join(weaknesses)}."
    else:
        doubt = "Neither failed a check."
    return (
        f"{caller.audit} calls a shortcut ({caller.question}) and {clearer.audit} finds no evidence of one ({clearer.question}). "
        f"{rows} {doubt}"
    )


HARM: Mapping[tuple[str, bool], str] = {
    ("shortcut", True): "harmful: it goes with the label in the training rows, and the model uses it",
    (
        "shortcut",
        False,
    ): "used although it does not go with the label in these training rows: look at what else the model learnt from",
    ("no evidence", True): "not harmful as far as the audits can see: no need to give up rows to balance it",
    ("no evidence", False): "nothing to exploit: it does not go with the label in the training rows",
    ("inconclusive", True): "not decided: it goes with the label in the training rows, and whether the model uses it is open",
    ("inconclusive", False): "little to exploit: it hardly goes with the label in the training rows",
}
"""Verdict, and whether the attribute goes with the label in the training rows → what follows."""


def _harm(verdict: Verdict, imbalance: Estimate | None) -> str:
    if imbalance is None or imbalance.value is None:
        return ""
    return HARM[str(verdict), abs(imbalance.value) >= IMBALANCED]


def _subject(findings: Sequence[Finding], singular: str, plural: str) -> str:
    """The audits' names and the verb that goes with them: "a says", "a and b say"."""
    return f"{_names(findings)} {singular if len({f.audit for f in findings}) == 1 else plural}"


def _names(findings: Sequence[Finding]) -> str:
    return _listed(list(dict.fromkeys(f.audit for f in findings))) or "no audit"


def _listed(names: Sequence[str]) -> str:
    if len(names) > 1:
        return f"{', '.join(names[:-1])} and {names[-1]}"
    return "".join(names)


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]
