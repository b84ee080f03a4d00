"""Numbers and words as the page writes them: rounding, verdicts, rows of evidence, and a glossary of statistics."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from rightreasons.findings import Cell, Estimate, Finding

MINUS = "\u2212"
DASH = "\u2013"


def number(value: float | None, like: Iterable[float | None] = ()) -> str:
    """A number as people read it, with as many decimals as the largest of it and `like` deserves."""
    if value is None:
        return "undefined"
    largest = max(abs(v) for v in (value, *like) if v is not None)
    if largest == 0:
        text = "0"
    elif largest >= 1e6 or largest < 1e-3:
        text = _scientific(value)
    elif isinstance(value, int) or (largest >= 10 and all(v is None or float(v).is_integer() for v in (value, *like))):
        text = f"{value:,.0f}".replace(",", "\u202f") if abs(value) >= 10_000 else f"{value:.0f}"
    else:
        text = f"{value:.{3 if largest < 10 else 2 if largest < 100 else 1}f}"
    return text.replace("-", MINUS)


def _scientific(value: float) -> str:
    if value == 0:
        return "0"
    mantissa, exponent = f"{value:.2e}".split("e")
    return f"{mantissa} × 10^{int(exponent)}"


def interval(low: float | None, high: float | None, like: Iterable[float | None] = ()) -> str:
    """An interval, or the empty text where neither limit is known."""
    if low is None and high is None:
        return ""
    among = (low, high, *like)
    left, right = ("?" if limit is None else number(limit, among) for limit in (low, high))
    return f"[{left}, {right}]"


def value_and_interval(item: Estimate | Cell) -> str:
    """The number and its interval in one text; where undefined, the reason."""
    if item.value is None:
        return f"undefined: {item.reason}"
    return f"{number(item.value, (item.low, item.high))} {interval(item.low, item.high, (item.value,))}".strip()


def p_value(p: float) -> str:
    """A p-value as text; never zero, which no test of finitely many draws can show."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def percent(level: float) -> str:
    return f"{100 * level:.4g} %"


def duration(seconds: float | None) -> str:
    if seconds is None:
        return DASH
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


class Tone(NamedTuple):
    """How a verdict is said: its word, the sign beside it (colour is never the only mark), its class in the style sheet."""

    word: str
    sign: str
    css: str
    weight: int


TONES = {
    "shortcut": Tone("Shortcut", "▲", "shortcut", 0),
    "inconclusive": Tone("Inconclusive", "◆", "inconclusive", 1),
    "no evidence": Tone("No evidence", "●", "clear", 2),
    "described": Tone("Described", "≡", "described", 3),
    "not run": Tone("Not run", "○", "notrun", 4),
}


def tone(finding: Finding) -> Tone:
    return TONES[finding.headline]


class RowWords(NamedTuple):
    """A row of evidence and the question it answers."""

    row: str
    title: str
    asks: str


ROW_WORDS = (
    RowWords("behaviour", "Behaviour", "Does the model treat groups differently?"),
    RowWords("encoding", "Encoding", "Is the cue readable inside the model?"),
    RowWords("reliance", "Reliance", "Does the model use the cue to decide?"),
    RowWords("place", "Place", "Where in the image does it look?"),
    RowWords("remedy", "Remedy", "Did a correction help?"),
)


class Term(NamedTuple):
    """A statistic in plain language; it is listed on a page where `pattern` occurs among the names shown."""

    name: str
    pattern: str
    means: str
    does_not: str


ALWAYS = "."
GLOSSARY = (
    Term(
        "Shortcut, no evidence, inconclusive",
        ALWAYS,
        "Shortcut: the effect is there, in the direction a shortcut would have, beyond chance. No evidence: the test could "
        "have seen a shortcut and did not. Inconclusive: a condition that the test needs is not met.",
        "No evidence is not proof of absence: other cues, or weaker effects than the test can see, are not excluded.",
    ),
    Term(
        "The case and its score",
        ALWAYS,
        "The verdict over all findings of one model and attribute. Only reliance (weight 1) and place (weight 1/2) vote; a "
        "shortcut needs a call of reliance. The score is (1/2 + votes for) / (1 + all votes): 1/2 is undecided.",
        "The score is no probability, and what is encoded or unequal between groups does not raise it: neither is use.",
    ),
    Term(
        "Interval [low, high]",
        ALWAYS,
        "The range of values that agree with the data. Over many repetitions of the study, intervals of 95 % would cover "
        "the true value in about 95 of 100.",
        "It covers chance in drawing these images or subjects only, not wrong labels, nor a cohort unlike the patients or users "
        "to come.",
    ),
    Term(
        "p",
        ALWAYS,
        "How often chance alone would give an effect at least as large as this one, were there none.",
        "It is not the probability that there is no effect, and a small p does not make an effect large: read the estimate.",
    ),
    Term(
        "n",
        ALWAYS,
        "How many units the number rests on.",
        "Several images of one subject are not independent: where subjects are known, they are what is resampled.",
    ),
    Term(
        "Validity check",
        ALWAYS,
        "A condition under which the finding can be believed, tested on these data.",
        "Passing the checks does not make the audit right for every cue; a check marked ? could not be judged.",
    ),
    Term(
        "Accuracy",
        r"accurac",
        "Share of right decisions. Balanced accuracy averages it over the classes, group-balanced accuracy over the groups.",
        "A high average can hide a group in which the model fails; look at the worst group.",
    ),
    Term(
        "Worst-group accuracy",
        r"worst",
        "Accuracy in the group (label and attribute together) where it is lowest.",
        "The minimum of several noisy numbers is low by chance too, the more so the smaller the groups.",
    ),
    Term(
        "AUC",
        r"\bAU(RO)?C\b",
        "Probability that a positive case scores above a negative one: 0.5 is chance, 1 is perfect order.",
        "It says nothing about the threshold in use, nor about calibration.",
    ),
    Term(
        "F1",
        r"\bF1\b",
        "Harmonic mean of precision (how many alarms are right) and recall (how many cases are found).",
        "It ignores true negatives and depends on how common the class is.",
    ),
    Term(
        "Calibration error (ECE)",
        r"\bECE\b|calibration",
        "Average gap between the stated confidence and the share that is right, over bins of confidence.",
        "It depends on the bins, and a small error does not mean that decisions are good.",
    ),
    Term(
        "Brier score",
        r"brier",
        "Mean squared distance between predicted probabilities and what happened: 0 is perfect.",
        "It mixes calibration and discrimination; compare models on the same cohort only.",
    ),
    Term(
        "Fairness gaps",
        r"separation|independence|sufficiency|equali[sz]ed odds|parity|max(imum)?[ _-]gap",
        "How far decisions or scores differ between groups: at equal true label (separation, equalised odds), overall "
        "(independence, demographic parity), or in what they mean (sufficiency).",
        "The three cannot all be zero where groups differ in how often the label occurs; a gap alone does not name its cause.",
    ),
    Term(
        "Conflict shortcut rate",
        r"\bCSR\b|conflict",
        "Among images whose attribute points to the wrong label: share that the model decides as the attribute suggests.",
        "Errors on such images also happen for other reasons; compare with the errors where attribute and label agree.",
    ),
    Term(
        "Drawn towards the attribute",
        r"nearer to what|where the attribute stands for it",
        "How much more probable a label is where the attribute stands for it than elsewhere, among images of one label.",
        "Harder images cancel in it. What goes with the attribute and is rightly read does not: the sicker patients in one ward.",
    ),
    Term(
        "Probe",
        r"\bprobe|readab|decod",
        "A small classifier that reads the attribute from the model's features, scored on rows it was not fitted on.",
        "That something can be read does not mean that the model uses it.",
    ),
    Term(
        "Change with the cue swapped",
        r"twin|counterfactual|cue (is |was )?(swapped|changed)|change of (the )?(probability|decision)",
        "The same image with only the cue changed: how far the model's answer moves. This is reliance itself.",
        "It holds for this cue as it was changed here, not for other cues.",
    ),
    Term(
        "Correlation",
        r"correlation|\brho\b|spearman|pearson",
        "How well two quantities rise and fall together, from −1 to 1; a partial correlation holds a third one fixed.",
        "It does not say which causes which, and neighbouring regions or related models count for less than their number.",
    ),
)


def glossary(shown: Iterable[str]) -> list[Term]:
    """The terms whose pattern occurs in one of the texts shown."""
    text = "\n".join(shown)
    return [term for term in GLOSSARY if term.pattern == ALWAYS or re.search(term.pattern, text, re.IGNORECASE)]
