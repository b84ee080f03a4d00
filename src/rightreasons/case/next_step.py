"""The one thing to do next about a case: one sentence and one command to copy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rightreasons.case.unevenness import Advice, Commands, Uneven, about_use
from rightreasons.case.votes import CALLS, capital
from rightreasons.case.words import LOOKED, looked
from rightreasons.findings import Finding, Verdict
from rightreasons.findings.preflight import Preflight, State

MORE_ROWS = ("rows", "cells", "group sizes")
"""Ids of deciding checks that more rows would mend, beside those where an audit looked and could not tell."""

DOES_NOT_WORK: Mapping[State, str] = {
    "random": "Give the trained weights: no checkpoint was read.",
    "order": "Name the classes in the order of the network's outputs: in another order the answers fit much better.",
    "few": "Collect: so few labelled test rows cannot show whether the model works.",
}
"""What to do where a model does not work; of other states the card says what to look at."""


@dataclass(frozen=True)
class Known:
    """What the next step is decided by.

    Attributes
    ----------
    findings : those that vote
    could_tell : whether an audit of reliance has decided
    objections : why no verdict can stand; empty where the model works
    card : the model's preflight, where there is one
    """

    verdict: Verdict
    attribute: str
    findings: Sequence[Finding]
    uneven: Sequence[Uneven]
    could_tell: bool
    objections: Sequence[str]
    card: Preflight | None
    commands: Commands


def next_step(known: Known) -> Advice:
    """What to do first: make the model work, then what the verdict asks for."""
    if known.verdict == "shortcut":
        return _advised(known, "use") or about_use(known.verdict, known.attribute, known.commands)
    if known.verdict == "no evidence":
        return _advised(known, "companion", "annotation", "presentation") or _keep(known)
    if known.objections:
        return _make_it_work(known)
    if not known.attribute:
        todo = "Name what the model should not use: add it to the table as a column, and audit that."
        return Advice(todo, known.commands.audit("--attribute", "COLUMN"))
    return _advised(known, "companion") or _decide(known)


def _advised(known: Known, *kinds: str) -> Advice | None:
    """The advice on the first of these kinds of unevenness that has one."""
    for kind in kinds:
        for uneven in known.uneven:
            if uneven.kind == kind and uneven.todo and uneven.present is not False and (kind != "annotation" or uneven.present):
                return Advice(uneven.todo, uneven.command)
    return None


def _keep(known: Known) -> Advice:
    return Advice("Nothing to repair: audit again when the model or its data change.", known.commands.audit())


def _make_it_work(known: Known) -> Advice:
    card, commands = known.card, known.commands
    if card is None or known.attribute in card.doubts or "" in card.doubts:
        return Advice(f"{capital(known.objections[0])}.", commands.audit())
    if card.state == "random":
        return Advice(DOES_NOT_WORK["random"], commands.audit("--checkpoint", "WEIGHTS"))
    if card.state == "few":
        return Advice(DOES_NOT_WORK["few"], commands.audit())
    todo = DOES_NOT_WORK.get(card.state, f"Make the model work first: {card.advice}.")
    if commands.is_of_predictions or not any("fit-preprocessing" in option for option in card.options):
        return Advice(todo, commands.audit() if commands.is_of_predictions else commands.check())
    return Advice(todo, commands.check("--fit-preprocessing"))


def _decide(known: Known) -> Advice:
    """What would decide a case that is open although the model works."""
    attribute, commands = known.attribute, known.commands
    if known.could_tell:
        todo = (
            f"Decide by twins: add copies of test images in which nothing but {attribute} is changed; the audits that looked "
            "contradict each other."
        )
        return Advice(todo, commands.audit("--twin", "COLUMN"))
    if commands.is_of_predictions:
        why = f"a table of predictions shows whether answers follow {attribute}, and never why"
        if commands.has_features:
            return Advice(f"Ask for the model: {why}.", commands.anew())
        todo = f"Ask for the model, or first for features of every row, in the file that this command writes: {why}."
        return Advice(todo, commands.template())
    lacking = _lacking(known.findings)
    if lacking:
        return Advice(f"Collect rows and audit again: {lacking}.", commands.audit())
    if any(finding.lacks == "twins" for finding in known.findings):
        todo = f"Add twins, copies of test images in which nothing but {attribute} is changed: no other audit could decide."
        return Advice(todo, commands.audit("--twin", "COLUMN"))
    return Advice(
        f"Look at why no audit of the use of {attribute} could decide, listed below, and audit again.", commands.audit()
    )


def _lacking(findings: Sequence[Finding]) -> str:
    """What an audit of reliance lacked that more rows would give; the audit that counts most is asked first."""
    tried = [finding for finding in findings if finding.row == CALLS and finding.verdict == "inconclusive"]
    tried.sort(key=lambda finding: (finding.standing == "vote", not looked(finding)))
    for finding in tried:
        for check in finding.checks:
            if check.decides and check.passed is not True and check.id in (*MORE_ROWS, *LOOKED):
                return _said(check.name, check.note)
    return ""


def _said(name: str, note: str) -> str:
    short = note.split(":")[0] if len(note) > 120 else note
    return f"needed is {name}" + (f" ({short})" if short else "")
