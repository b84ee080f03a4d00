"""What the numbers on a page mean, and what they do not: a glossary of the verdicts and of the statistics shown."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from rightreasons.case import votes
from rightreasons.findings import ROWS


class Term(NamedTuple):
    """One entry; it is listed where `pattern` occurs in one of the texts shown, and always where it is empty."""

    name: str
    pattern: str
    means: str
    does_not: str


def glossary(shown: Iterable[str]) -> list[Term]:
    """The entries for a page that shows these texts."""
    text = "\n".join(shown)
    needed = [term for term in STATISTICS if not term.pattern or re.search(term.pattern, text, re.IGNORECASE)]
    silent = " and ".join(row for row in ROWS if row not in votes.WEIGHT)
    score = Term(
        "The case and its score",
        "",
        " ".join(("The verdict over all findings of one model and attribute.", *votes.rule())),
        f"The score is not a probability. Findings about {silent} do not change it: they do not show whether the model uses the "
        "attribute.",
    )
    return [VERDICTS, score, *needed]


VERDICTS = Term(
    "Shortcut, no evidence, inconclusive",
    "",
    "Shortcut: the effect is there, in the direction of a shortcut, and larger than chance explains. No evidence: the test could "
    "have seen a shortcut and did not. Inconclusive: a condition of the test is not met.",
    "No evidence is not proof of absence: other cues, and effects too weak for the test, remain possible.",
)
STATISTICS = (
    Term(
        "Interval [low, high]",
        "",
        "The range of values that are compatible with the data. If the study were repeated many times, about 95 of 100 such "
        "intervals (95 %) would contain the true value.",
        "It accounts only for chance in drawing these images or subjects: not for wrong labels, nor for future patients or users "
        "who are unlike this cohort.",
    ),
    Term(
        "p",
        "",
        "How often chance alone would produce an effect at least this large if there were none.",
        "It is not the probability that there is no effect, and a small p does not mean a large effect: read the estimate.",
    ),
    Term(
        "n",
        "",
        "How many units the number is based on.",
        "Several images of one subject are not independent: where subjects are known, whole subjects are resampled.",
    ),
    Term(
        "Validity check",
        "",
        "A condition that must hold for the finding to be believed, tested on these data.",
        "Passing the checks does not make the audit suitable for every cue; a check marked ? could not be judged.",
    ),
    Term(
        "Accuracy",
        r"accurac",
        "Share of correct decisions. Balanced accuracy averages it over the classes, group-balanced accuracy over the groups.",
        "A high average can hide a group in which the model fails; look at the worst group.",
    ),
    Term(
        "Worst-group accuracy",
        r"worst",
        "The lowest accuracy of any group, a group being one label together with one value of the attribute.",
        "The minimum of several noisy numbers is low by chance alone, more so when groups are small.",
    ),
    Term(
        "AUC",
        r"\bAU(RO)?C\b",
        "Probability that a positive case scores above a negative one: 0.5 is chance, 1 is a perfect ranking.",
        "It says nothing about the threshold in use, nor about calibration.",
    ),
    Term(
        "F1",
        r"\bF1\b",
        "Harmonic mean of precision (the share of alarms that are right) and recall (the share of cases that are found).",
        "It ignores true negatives and depends on how common the class is.",
    ),
    Term(
        "Calibration error (ECE)",
        r"\bECE\b|calibration",
        "Average gap between the model's confidence and its accuracy, over bins of confidence.",
        "It depends on the bins, and a small error does not mean that the decisions are good.",
    ),
    Term(
        "Brier score",
        r"brier",
        "Mean squared distance between the predicted probabilities and the outcome: 0 is perfect.",
        "It mixes calibration and discrimination; compare models only on the same cohort.",
    ),
    Term(
        "Fairness gaps",
        r"separation|independence|sufficiency|equali[sz]ed odds|parity|max(imum)?[ _-]gap",
        "How much decisions or scores differ between groups: given the true label (separation, equalised odds), overall "
        "(independence, demographic parity), or given the decision (sufficiency).",
        "The three cannot all be zero where one group has the label more often than another; a gap does not name its cause.",
    ),
    Term(
        "Conflict shortcut rate",
        r"\bCSR\b|conflict",
        "Of the images whose attribute points to the wrong label, the share that the model decides as the attribute suggests.",
        "Models err on such images for other reasons too; compare with the errors where attribute and label agree.",
    ),
    Term(
        "Drawn towards the attribute",
        r"nearer to what|where the attribute stands for it",
        "Among images of one true label: how much more probable the model finds a label where the attribute stands for it.",
        "Harder images cancel out. What goes with the attribute and is rightly used does not: sicker patients in one ward, say.",
    ),
    Term(
        "Probe",
        r"\bprobe|readab|decod",
        "A small classifier that reads the attribute from the model's features, scored on rows that it was not fitted on.",
        "That something can be read from the features does not mean that the model uses it.",
    ),
    Term(
        "Change with the cue swapped",
        r"twin|counterfactual|cue (is |was )?(swapped|changed)|change of (the )?(probability|decision)",
        "How far the model's answer moves when only the cue in the image is changed. This is reliance itself.",
        "It holds for this cue, changed in this way, and not for other cues.",
    ),
    Term(
        "Correlation",
        r"correlation|\brho\b|spearman|pearson",
        "How well two quantities rise and fall together, from −1 to 1; a partial correlation holds a third one fixed.",
        "It does not say which causes which; neighbouring regions and related models tell less than their number suggests.",
    ),
)
