"""What the page says of attributes beside their verdicts: which unevenness it is, and all attributes of a model at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rightreasons.case import Case, Uneven
from rightreasons.findings import Bars, Estimate
from rightreasons.report import wording

STATES = {True: ("there", "▲", "shortcut"), False: ("not there", "●", "clear"), None: ("not known", "◆", "inconclusive")}
"""Whether a kind of unevenness is present → its word, its sign (colour is never the only mark) and its class."""
PASSIVE = {"explained by": "explained by", "not told from": "cannot be told from"}


@dataclass(frozen=True)
class UnevenLine:
    """One kind of unevenness of one attribute, in words."""

    kind: str
    means: str
    what: str
    number: str
    word: str
    sign: str
    css: str
    todo: str
    command: str


UNRECORDED = "something that the images show and that is no column"


def uneven_lines(case: Case) -> list[UnevenLine]:
    lines = []
    for uneven in case.unevenness:
        word, sign, css = STATES[uneven.present]
        what, number = _estimate(uneven)
        means = uneven.means
        if uneven.kind == "companion":
            means, word = uneven.companion or UNRECORDED, _companion_word(uneven.present)
        lines.append(UnevenLine(uneven.kind, means, what, number, word, sign, css, uneven.todo, uneven.command))
    return lines


def _estimate(uneven: Uneven) -> tuple[str, str]:
    if uneven.estimate is None:
        return "", "not measured"
    if uneven.kind == "prevalence":
        what = "association with the label in the training rows"
    else:
        what = uneven.estimate.name
    return what, wording.value_and_interval(uneven.estimate)


def _companion_word(present: bool | None) -> str:
    return {True: "explains it", None: "cannot be told apart", False: "both used"}[present]


# ---- all attributes of a model -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AttributeLine:
    """One attribute of a model, in words; a number that was not measured is a dash."""

    attribute: str
    following: str
    following_within: str
    use: str
    use_within: str
    read_as: str
    tone: wording.Tone
    q: str


@dataclass(frozen=True)
class Together:
    """The attributes of one model at once.

    Attributes
    ----------
    has_numbers, is_corrected : whether any attribute has such numbers, and a p that is corrected
    drawing : None where fewer than two attributes have a number
    """

    model: str
    lines: Sequence[AttributeLine]
    has_numbers: bool
    is_corrected: bool
    drawing: Bars | None


def together(judged: Iterable[Case]) -> list[Together]:
    """One for each model with several attributes."""
    of_model: dict[str, list[Case]] = {}
    for case in judged:
        of_model.setdefault(case.model, []).append(case)
    found = []
    for model, members in of_model.items():
        if len(members) > 1:
            lines = [_attribute_line(case) for case in members]
            has_numbers = any(case.among.is_known for case in members)
            is_corrected = any(case.q for case in members)
            found.append(Together(model, lines, has_numbers, is_corrected, _drawing(members)))
    return found


def _attribute_line(case: Case) -> AttributeLine:
    among = case.among
    return AttributeLine(
        attribute=case.attribute,
        following=_number(among.following),
        following_within=_number(among.following_within),
        use=_number(among.use),
        use_within=_number(among.use_within),
        read_as=read_as(case),
        tone=wording.TONES[str(case.verdict)],
        q=wording.DASH if case.smallest_q is None else wording.p_value(case.smallest_q),
    )


def _number(estimate: Estimate | None) -> str:
    if estimate is None or estimate.value is None:
        return wording.DASH
    return wording.value_and_interval(estimate)


def read_as(case: Case) -> str:
    """What an attribute is among the others: used, explained by another, not to be told from one, not used, or open."""
    said = {"shortcut": "used", "no evidence": "no evidence of use", "inconclusive": "open"}[str(case.verdict)]
    relations: dict[str, list[str]] = {}
    for companion in case.companions:
        relations.setdefault(companion.relation, []).append(companion.attribute)
    if case.verdict == "shortcut":
        beside = relations.get("used beside")
        return f"both used: {case.attribute} and {', '.join(beside)}" if beside else said
    for relation in ("explained by", "not told from"):
        if relation in relations:
            return f"{PASSIVE[relation]} {', '.join(relations[relation])}"
    return said


USE = (
    "How far the model uses each attribute, alone and among rows that are alike in all other attributes. One that another "
    "explains shrinks there; one that is used stays."
)
FOLLOWING = "How far the answers follow each attribute within a label. This does not say why."


def _drawing(members: Sequence[Case]) -> Bars | None:
    """The use of every attribute, alone and within the others; how far answers follow it where no use was measured."""
    known = [case for case in members if case.among.is_known]
    if len(known) < 2:
        return None
    names = [case.attribute for case in known]
    use = {"use": [case.among.use for case in known], "use within the others": [case.among.use_within for case in known]}
    if any(use["use"]):
        return _bars(names, {name: estimates for name, estimates in use.items() if any(estimates)}, USE)
    return _bars(names, {"following": [case.among.following for case in known]}, FOLLOWING)


def _bars(names: Sequence[str], series: Mapping[str, Sequence[Estimate | None]], caption: str) -> Bars:
    return Bars(
        title="All attributes at once",
        caption=caption,
        labels=names,
        series={name: [_part(e, "value") for e in estimates] for name, estimates in series.items()},
        low={name: [_part(e, "low") for e in estimates] for name, estimates in series.items()},
        high={name: [_part(e, "high") for e in estimates] for name, estimates in series.items()},
        reference=0.0,
        value_label="difference of probability",
    )


def _part(estimate: Estimate | None, part: str) -> float | None:
    return None if estimate is None else getattr(estimate, part)
