"""What a page says first of a case: how often which rows get which answer, in the words of the table."""

from __future__ import annotations

from collections.abc import Iterable

from rightreasons.findings import Answers, Contrast, Estimate, Finding, GroupShare, Share

MINUS = "\u2212"


def answers_of(findings: Iterable[Finding], attribute: str) -> Answers | None:
    """The answers at a glance that findings about an attribute have, else those of a finding about all of them."""
    known = [finding for finding in findings if finding.answers is not None]
    exact = [finding.answers for finding in known if finding.attribute == attribute]
    return next(iter(exact or [finding.answers for finding in known]), None)


def what(answers: Answers) -> str:
    """The contrast in one sentence; without one, how many answers are right."""
    if answers.contrast is not None:
        return _contrast(answers, answers.contrast)
    said = f"{_percent(answers.right.value)} of {answers.right.n} {answers.noun} are answered right{_in_brackets(answers.right)}"
    worst = _worst(answers)
    if worst is not None:
        said += f", of those {labelled(answers, worst.label)} only {_percent(worst.right.value)}"
    return f"{said}."


def effect_of(answers: Answers) -> Estimate:
    """The number of `what`, with its interval."""
    if answers.contrast is None:
        number, level, name = answers.right, answers.level, "answered right"
    else:
        told = answers.contrast
        number, level = told.difference, told.level
        name = f"called {told.answer} though {told.label}: {answers.attribute} {told.value} less {told.other or 'other values'}"
    return Estimate(
        name=name, value=number.value, low=number.low, high=number.high, level=level, n=number.n, unit="share", row="behaviour"
    )


def labelled(answers: Answers, label: str) -> str:
    """Rows of one label; a number or a letter says little without the name of the column."""
    if speaks(label):
        return f"labelled {label}"
    return f"with {answers.label_name} = {label}"


def speaks(value: str) -> bool:
    """Whether a value of a column is a word by itself."""
    return sum(letter.isalpha() for letter in value) > 1 and value.lower() not in ("no", "yes", "true", "false", "nan")


def what_of_failing(answers: Answers, balanced: float, chance: float) -> str:
    """How many answers of a model that does not work are right, beside guessing."""
    said = f"Averaged over labels, {_percent(balanced)} of {answers.right.n} {answers.noun} are answered right"
    return f"{said}; guessing gives {_percent(chance)}."


def named(answers: Answers, label: str) -> str:
    """A label in one or two words."""
    return label if speaks(label) else f"{answers.label_name} {label}"


def _contrast(answers: Answers, told: Contrast) -> str:
    where = f"where {answers.attribute} is {told.other}" if told.other else f"with other values of {answers.attribute}"
    here, there = _percent(told.share.value), _percent(told.share_of_other.value)
    if speaks(told.answer):
        called = f"are called {told.answer} {here} of the time; {where}, {there}"
    else:
        called = f"are called {answers.label_name} = {told.answer} in {here}; {where}, in {there}"
    subject = f"{answers.noun} {labelled(answers, told.label)}"
    return f"Where {answers.attribute} is {told.value}, {subject} {called} (difference {_points(told)})."


def _worst(answers: Answers) -> GroupShare | None:
    """The label that is answered right least often, where there is no attribute to speak of."""
    known = [group for group in answers.groups if not group.value and group.right.value is not None]
    if len(known) < 2:
        return None
    return min(known, key=lambda group: group.right.value or 0.0)


def _percent(share: float | None) -> str:
    return "an unknown share" if share is None else f"{_hundredths(share)} %"


def _hundredths(share: float) -> str:
    """A share times a hundred, with a decimal below one and close to a hundred."""
    value = 100 * share
    is_whole = value == round(value) or 1 <= abs(value) <= 99
    return f"{value:.{0 if is_whole else 1}f}".replace("-", MINUS)


def _in_brackets(share: Share) -> str:
    if share.low is None or share.high is None:
        return ""
    return f" ({_hundredths(share.low)} to {_hundredths(share.high)} %)"


def _points(told: Contrast) -> str:
    """The difference of the two shares as they are shown, so that it is what a reader gets from them, and its limits."""
    here, there, limits = told.share.value, told.share_of_other.value, told.difference
    if here is None or there is None:
        return "unknown"
    said = f"{float(_hundredths(here)) - float(_hundredths(there)):.3g} points".replace("-", MINUS)
    if limits.low is None or limits.high is None:
        return said
    return f"{said}, {_whole(limits.low)} to {_whole(limits.high)}"


def _whole(share: float) -> str:
    text = f"{100 * share:.0f}"
    return "0" if text == "-0" else text.replace("-", MINUS)
