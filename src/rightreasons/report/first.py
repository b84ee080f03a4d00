"""The first screen of a case: what, how sure, see for yourself, do next. In words; the template lays them out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from rightreasons.calibration import CASE, Rate, calibration
from rightreasons.case import Case, named
from rightreasons.findings import Answers, GroupShare, ShownRow
from rightreasons.report import wording
from rightreasons.report.svg import picture, tag

FEW_ROWS = 4  # pictures of a case on a page with many
BAR, THICK = 120.0, 12.0


@dataclass(frozen=True)
class Look:
    """Test rows to see for oneself.

    Attributes
    ----------
    found : how many there are, and what they are, in one sentence
    rows : those with a picture, or all where none has one
    has_pictures : whether they have
    """

    found: str
    rows: Sequence[LookedAt]
    has_pictures: bool


@dataclass(frozen=True)
class LookedAt:
    """One row: its picture, what it is, and what it was called."""

    id: str
    png: str
    answer: str
    label: str
    value: str
    said: str
    probability: str


@dataclass(frozen=True)
class GroupLine:
    """Accuracy of one group: its name, a bar with its interval, and the numbers."""

    name: str
    bar: Markup
    value: str
    limits: str
    n: str


@dataclass(frozen=True)
class First:
    """What a panel says before anything is unfolded."""

    what: str
    says: str
    sure: str
    look: Look | None
    groups: Sequence[GroupLine]
    level: str
    todo: str
    command: str


def first_of(case: Case, most_rows: int = FEW_ROWS) -> First:
    """The first screen of a case; at most so many rows to look at."""
    answers = case.answers
    return First(
        what=case.what,
        says=_says(case),
        sure=how_sure(case),
        look=None if answers is None else _look(answers, most_rows, case.works),
        groups=() if answers is None else [_group(answers, group) for group in answers.groups],
        level="" if answers is None else wording.percent(answers.level),
        todo=case.next_step.todo,
        command=case.next_step.command,
    )


def _says(case: Case) -> str:
    """The sentence of the verdict; where the model does not work, its numbers stand above and its advice below."""
    if case.works:
        return case.sentence
    who, what = case.model or "the model", case.attribute or "a cue"
    return f"Nothing can be said of whether {who} uses {what}: it does not work on these rows."


# ---- how sure ------------------------------------------------------------------------------------------------------------


def how_sure(case: Case) -> str:
    """What the verdict rests on, and how often such verdicts are wrong."""
    return " ".join(filter(None, (_rests_on(case), rate_of(case))))


def _rests_on(case: Case) -> str:
    looked = [finding for finding in case.findings if finding.n_rows and not finding.not_run]
    if not looked:
        return ""
    most = max(looked, key=lambda finding: finding.n_rows or 0)
    noun = case.answers.noun if case.answers is not None else "rows"
    subjects = f" of {wording.number(most.n_subjects)} subjects" if most.n_subjects else ""
    return f"It rests on {wording.number(most.n_rows)} {most.cohort or 'test'} {noun}{subjects}."


def rate_of(case: Case) -> str:
    """How often such verdicts are wrong, where the truth is known; nothing is claimed by an open case."""
    rates = calibration().judges.get(CASE)
    if rates is None or case.verdict == "inconclusive":
        return ""
    if case.verdict == "shortcut" and _is_known(rates.alarms):
        unused = f"{_n(rates.alarms)} models that do not use what they were audited for"
        return f"Such a call was wrong for {rates.alarms} of {unused}."
    if case.verdict == "no evidence" and _is_known(rates.power):
        return f"It can be wrong: of {_n(rates.power)} models that do use what they were audited for, {rates.power} were called."
    return ""


def _is_known(rate: Rate | None) -> bool:
    return rate is not None and rate.n > 0


def _n(rate: Rate | None) -> int:
    return 0 if rate is None else rate.n


# ---- see for yourself ----------------------------------------------------------------------------------------------------


def _look(answers: Answers, most: int, works: bool) -> Look | None:
    if not answers.rows:
        return None
    with_picture = [row for row in answers.rows if row.png]
    rows = with_picture or list(answers.rows)
    return Look(_found(answers, works), [_looked_at(answers, row) for row in rows[:most]], bool(with_picture))


def _found(answers: Answers, works: bool) -> str:
    """Which rows these are, and how many there are of them."""
    noun, of = answers.noun, f"{answers.found} of {answers.among}"
    if not works and answers.kind != "unsure":
        return f"Some of the test {noun} that are answered wrongly."
    if answers.kind == "followed":
        return f"{of} test {noun} whose {answers.attribute} points to another label than their own are given that label."
    if answers.kind == "errors":
        none = f"No test {noun.removesuffix('s')} follows {answers.attribute} against its label. " if answers.attribute else ""
        return f"{none}{of} test {noun} are answered wrongly, such as these."
    return f"All {answers.among} test {noun} are answered right; of these the model is least sure."


def _looked_at(answers: Answers, row: ShownRow) -> LookedAt:
    value = f"{answers.attribute} {row.value}" if row.value else ""
    said = f"{row.id}: {answers.label_name} {row.label}{', ' + value if value else ''}, called {row.answer}"
    probability = "" if row.probability is None else f"with probability {row.probability:.2f}"
    return LookedAt(row.id, row.png or "", named(answers, row.answer), named(answers, row.label), value, said, probability)


def _group(answers: Answers, group: GroupShare) -> GroupLine:
    right = group.right
    name = " · ".join(filter(None, (named(answers, group.label), f"{answers.attribute} {group.value}" if group.value else "")))
    value = wording.DASH if right.value is None else f"{100 * right.value:.0f} %"
    limits = "" if right.low is None or right.high is None else f"{100 * right.low:.0f} to {100 * right.high:.0f}"
    return GroupLine(name, _bar(name, group), value, limits, wording.number(right.n))


def _bar(name: str, group: GroupShare) -> Markup:
    """A bar from 0 to 1 with its interval; the numbers stand beside it as text."""
    value, low, high = group.right.value, group.right.low, group.right.high
    said = f"{name}: {'undefined' if value is None else f'{100 * value:.0f} % are answered right'}"
    middle = THICK / 2
    drawn = [tag("rect", x=0, y=2, width=BAR, height=THICK - 4, class_="track")]
    if value is not None:
        drawn.append(tag("rect", x=0, y=2, width=round(BAR * value, 1), height=THICK - 4, class_="fill s0"))
    if low is not None and high is not None:
        drawn.append(tag("line", x1=round(BAR * low, 1), y1=middle, x2=round(BAR * high, 1), y2=middle, class_="error"))
    return picture(BAR, THICK, said, said, *drawn, class_="group-bar")
