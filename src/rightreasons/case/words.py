"""What is said of a case: one sentence for its verdict, what would help most, and where audits differ."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rightreasons.case.companions import Companion, related
from rightreasons.case.votes import ASKS_WHY, CALLS, capital, listed
from rightreasons.findings import Finding, Verdict

LOOKED = ("power", "told apart")
"""Ids of deciding checks that fail where an audit looked and could not tell; where another one fails it could not look."""


@dataclass(frozen=True)
class Heard:
    """The findings behind a verdict.

    Attributes
    ----------
    called, cleared : findings with a vote that call a shortcut, and those that find no evidence of one, overruled ones included
    overruled : those of both that another one overrules
    undecided : guards that looked and could not tell
    companions : other attributes that go with this one
    shows_more : whether the label shows more strongly with the attribute; None where that was not measured
    """

    called: Sequence[Finding]
    cleared: Sequence[Finding]
    overruled: Sequence[Finding] = ()
    undecided: Sequence[Finding] = ()
    companions: Sequence[Companion] = ()
    shows_more: bool | None = None

    @property
    def is_stand_in(self) -> bool:
        """Whether answers follow something that the images show, that goes with the attribute and is no column."""
        uneven = [one for finding in self.cleared for one in finding.unevenness]
        return any(one.kind == "companion" and not one.companion and one.present for one in uneven)

    def counted(self, findings: Sequence[Finding], *rows: str) -> list[Finding]:
        """Those that are not overruled, of some rows."""
        lost = {id(finding) for finding in self.overruled}
        return [finding for finding in findings if finding.row in rows and id(finding) not in lost]

    @property
    def deciding(self) -> list[Finding]:
        return self.counted(self.called, CALLS)

    @property
    def could_see(self) -> list[Finding]:
        return self.counted(self.cleared, CALLS)

    @property
    def place(self) -> list[Finding]:
        return self.counted(self.called, "place")

    @property
    def following(self) -> list[Finding]:
        """Those that see answers follow the attribute."""
        return [finding for finding in self.called if finding.row == ASKS_WHY]

    @property
    def not_following(self) -> list[Finding]:
        return [finding for finding in self.cleared if finding.row == ASKS_WHY]


def looked(finding: Finding) -> bool:
    """Whether an audit looked: it gave a verdict, or nothing but power kept it from one."""
    if finding.verdict != "inconclusive":
        return finding.verdict is not None
    failed = [check.id for check in finding.checks if check.decides and check.passed is not True]
    return bool(failed) and all(each in LOOKED for each in failed)


# ---- the sentence --------------------------------------------------------------------------------------------------------


def sentence(verdict: Verdict, model: str, attribute: str, heard: Heard, needs: str) -> str:
    cue = attribute or "a cue that it should not use"
    if verdict == "shortcut":
        return _shortcut(model or "The model", cue, heard)
    who = model or "the model"
    if verdict == "no evidence":
        return _no_evidence(who, cue, heard)
    return _undecided(who, cue, heard, needs)


def _shortcut(who: str, cue: str, heard: Heard) -> str:
    said = f"{who} uses {cue} to decide: {_subject(heard.deciding, 'says', 'say')} so"
    if heard.place:
        said += f", and {_subject(heard.place, 'finds', 'find')} it in the image"
    if heard.cleared:
        said += f"; {_subject(heard.cleared, 'does', 'do')} not see it"
    beside = related(heard.companions, "used beside")
    if beside:
        said += f". It uses {listed(beside)} as well"
    if all(finding.standing == "vote" for finding in heard.deciding):
        said += f". No audit that looked can tell this from a label that shows more strongly with {cue}"
    return f"{said}."


def _no_evidence(who: str, cue: str, heard: Heard) -> str:
    others = related(heard.companions, "explained by")
    seen = _names(heard.could_see)
    if others:
        why = f"its answers follow {cue} because {cue} goes with {listed(others)} ({seen})"
    elif heard.is_stand_in:
        why = f"its answers follow something that the images show, that {cue} goes with and that is not in the table ({seen})"
    elif heard.following and heard.shows_more:
        why = f"its answers follow {cue} because the label shows more strongly with it ({seen})"
    else:
        why = f"{seen} could have seen it and did not"
    said = f"No evidence that {who} uses {cue}: {why}"
    unsure = [finding for finding in heard.overruled if finding.row != ASKS_WHY]
    if unsure:
        said += f". {_subject(unsure, 'calls', 'call')} a shortcut and cannot tell that from use"
    return f"{said}."


def _undecided(who: str, cue: str, heard: Heard, needs: str) -> str:
    rivals = related(heard.companions, "not told from")
    if rivals and not heard.could_see:
        either = f"{cue} or {listed(rivals)}"
        return f"It is undecided whether {who} uses {either}: they go together, and these rows cannot tell which."
    if not (heard.deciding or heard.could_see):
        return _of_answers_alone(who, cue, heard, needs)
    return f"It is undecided whether {who} uses {cue}: {_conflict(heard)}."


def _conflict(heard: Heard) -> str:
    """Votes of reliance that did not suffice."""
    if heard.deciding and heard.undecided:
        cannot = f"{_names(heard.undecided)} looked and cannot tell"
        return f"{_subject(heard.deciding, 'says', 'say')} so, but {cannot} use from a label that shows more strongly with it"
    if heard.deciding:
        against = heard.counted(heard.cleared, ASKS_WHY, CALLS, "place")
        return f"{_subject(heard.deciding, 'says', 'say')} so, but {_subject(against, 'does', 'do')} not"
    no_use = f"{_subject(heard.could_see, 'finds', 'find')} no use of it"
    return f"{no_use}, but {' and '.join(_hints(heard))}"


def _of_answers_alone(who: str, cue: str, heard: Heard, needs: str) -> str:
    """Where no audit of reliance has decided: what is known of the answers, and that this does not say why."""
    if heard.following:
        said = f"The answers of {who} follow {cue}, and it is undecided why"
    elif heard.not_following:
        said = f"The answers of {who} do not follow {cue}, but whether it uses {cue} is undecided"
    else:
        said = f"It is undecided whether {who} uses {cue}"
    if heard.undecided:
        why = f"{_names(heard.undecided)} looked and could not tell"
    else:
        why = "no audit of reliance could look"
    hint = ""
    if heard.place:
        hint = f" {capital(_subject(heard.place, 'sees', 'see'))} it look where the cue is, but that is not yet use."
    help_most = f" What would help most is {needs}." if needs else ""
    return f"{said}: {why}.{hint}{help_most}"


def _hints(heard: Heard) -> list[str]:
    hints = []
    if heard.following:
        hints.append(f"{_subject(heard.following, 'sees', 'see')} its answers follow it")
    if heard.place:
        hints.append(f"{_subject(heard.place, 'finds', 'find')} the model looking where it is")
    return hints or ["other votes say otherwise"]


def with_others(said: str, verdict: Verdict, explains: Sequence[str]) -> str:
    """The sentence with a word about the attributes that this one explains."""
    if not explains:
        return said
    if verdict == "shortcut":
        return f"{said} That is why its answers also follow {listed(explains)}."
    return f"{said} Its answers follow {listed(explains)} only because of it."


# ---- what would help -----------------------------------------------------------------------------------------------------


def needs_of(attribute: str, reliance: Sequence[Finding]) -> str:
    """What would help most, where no audit of reliance has decided."""
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


# ---- where they differ ---------------------------------------------------------------------------------------------------


def disagreements(heard: Heard) -> Iterable[str]:
    """Every contradiction that a vote of reliance or behaviour is part of, each side with its question."""
    for caller in heard.called:
        for clearer in heard.cleared:
            if {caller.row, clearer.row} & {ASKS_WHY, CALLS}:
                yield _disagreement(caller, clearer, heard)


def _disagreement(caller: Finding, clearer: Finding, heard: Heard) -> str:
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
        f"{rows} {_who_counts(caller, clearer, heard)}{doubt}"
    )


def _who_counts(caller: Finding, clearer: Finding, heard: Heard) -> str:
    lost = {id(finding) for finding in heard.overruled}
    for winner, loser in ((clearer, caller), (caller, clearer)):
        if id(loser) in lost and id(winner) not in lost and winner.standing in WHY:
            return f"{winner.audit} counts: {WHY[winner.standing]}. "
    return ""


WHY = {
    "guard": "it tells use of the attribute from what merely goes with it",
    "intervention": "it changes the cue itself",
}
"""Why a finding of a higher standing overrules another."""


def _subject(findings: Sequence[Finding], singular: str, plural: str) -> str:
    """The audits' names and the verb that goes with them: "a says", "a and b say"."""
    return f"{_names(findings)} {singular if len({f.audit for f in findings}) == 1 else plural}"


def _names(findings: Sequence[Finding]) -> str:
    return listed(list(dict.fromkeys(f.audit for f in findings))) or "no audit"
