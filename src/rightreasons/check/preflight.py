"""Does the model work on these rows? From labels and logits alone: chance, one answer, the order of classes, levels that are one.

The rule: its balanced accuracy is above chance at p <= 0.01, by permuted labels, and by at least a tenth of the way from chance
to 1; and no other order of the classes is clearly better.
"""

from __future__ import annotations

import math
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation

import numpy as np
from scipy.stats import random_table

from rightreasons.check.outputs import (
    CLEARLY_BETTER,
    Model,
    Sample,
    best_assignment,
    checked_sample,
    recall_of,
    true_outputs,
)
from rightreasons.data.cohort import Cohort
from rightreasons.data.schema import Attribute, Problem, Table, text
from rightreasons.evidence import Evidence, View
from rightreasons.findings.preflight import ClassLine, Fact, Preflight, State
from rightreasons.stats.correlation import cramers_v

ALPHA = 0.01
LEAST_SKILL = 0.1  # of the way from chance to 1
ONE_ANSWER = 0.99  # share of the rows that get the same answer
FOLLOWS = 0.5  # Cramér's V of answers and attribute from which answers follow it
REPEATED = 0.05  # share of rows that are repeated from which nothing can be said
DRAWS = 999
OTHER_COHORTS = ("val", "train")
FEWEST = 10
INPUT = {"size": "--size", "mean": "--mean", "std": "--std", "crop": "--crop"}


@dataclass(frozen=True)
class Answers:
    """What a model answers on labelled rows.

    Attributes
    ----------
    label : (n,) which of `present` is true, `predicted` (n,) which output was answered
    recall : (K, C) share of the rows of each label that each output takes
    balanced, chance, p : balanced accuracy as the classes are named, of guessing, and of permuted labels doing as well
    p_below : the same for doing as badly
    best, order, p_best : balanced accuracy under the best other order of the classes, that order, and its p
    """

    label: np.ndarray
    predicted: np.ndarray
    present: np.ndarray
    recall: np.ndarray
    balanced: float
    chance: float
    p: float
    p_below: float
    best: float
    order: np.ndarray
    p_best: float

    @property
    def n(self) -> int:
        return len(self.label)

    @property
    def accuracy(self) -> float:
        return float((self.present[self.label] == self.predicted).mean())

    @property
    def state(self) -> State:
        other_is_better = self.best - self.balanced >= CLEARLY_BETTER and self.p_best <= ALPHA
        if other_is_better:
            return "order"
        if self.balanced - self.chance >= LEAST_SKILL * (1 - self.chance):
            return "works" if self.p <= ALPHA else "few"
        if np.bincount(self.predicted).max() >= ONE_ANSWER * self.n:
            return "constant"
        return "below" if self.p_below <= ALPHA else "chance"


def answers(label: np.ndarray, logits: np.ndarray, rng: np.random.Generator | None = None) -> Answers | None:
    """What logits (n, C) answer against labels (n,), codes of outputs with -1 for missing; None below 10 rows or 2 classes."""
    known = (label >= 0) & np.isfinite(logits).all(axis=1)
    present, codes = np.unique(label[known], return_inverse=True)
    if len(present) < 2 or known.sum() < FEWEST:
        return None
    predicted = logits[known].argmax(axis=1)
    outputs = logits.shape[1]
    recall = recall_of(codes, predicted, outputs)
    own = np.arange(len(present)), present
    best, order = best_assignment(recall)
    drawn = _permuted(codes, predicted, outputs, np.random.default_rng(0) if rng is None else rng)
    balanced, by_chance = float(recall[own].mean()), drawn[:, own[0], own[1]].mean(axis=1)
    p_best = 1.0
    if best - balanced >= CLEARLY_BETTER:
        p_best = _p(np.array([best_assignment(each)[0] for each in drawn]) >= best - 1e-12)
    return Answers(
        label=codes,
        predicted=predicted,
        present=present,
        recall=recall,
        balanced=balanced,
        chance=float(by_chance.mean()) if outputs > len(present) else 1 / len(present),
        p=_p(by_chance >= balanced - 1e-12),
        p_below=_p(by_chance <= balanced + 1e-12),
        best=best,
        order=order,
        p_best=p_best,
    )


def _permuted(codes: np.ndarray, predicted: np.ndarray, outputs: int, rng: np.random.Generator) -> np.ndarray:
    """Recall (DRAWS, K, C) for labels that are permuted: tables with the margins that were seen."""
    rows, columns = np.bincount(codes), np.bincount(predicted, minlength=outputs)
    drawn = random_table.rvs(rows, columns, size=DRAWS, random_state=rng)
    return np.asarray(drawn / rows[:, None])


def _p(is_as_extreme: np.ndarray) -> float:
    return float((1 + is_as_extreme.sum()) / (1 + len(is_as_extreme)))


# ---- the card ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class About:
    """What is known of the model beside its answers.

    Attributes
    ----------
    name : as findings name it
    is_random : no weights were read, and nobody trained it
    is_trained_here : its preprocessing and order of classes are those that it was trained with
    has_network : whether the input settings could be others; not of a table of predictions
    facts : settings of the input, and which weights were read, each with where it came from
    disagreements : option → what a checkpoint says of itself that is not in use
    """

    name: str
    is_random: bool = False
    is_trained_here: bool = False
    has_network: bool = True
    facts: tuple[Fact, ...] = ()
    disagreements: Mapping[str, str] = field(default_factory=dict)


def preflight(
    label: np.ndarray,
    logits: np.ndarray,
    cohort: Cohort,
    classes: Sequence[object],
    about: About,
    *,
    elsewhere: Mapping[str, Answers] | None = None,
    name: str = "test",
) -> Preflight:
    """The card of a model.

    Parameters
    ----------
    label, logits : (n,) and (n, C) of the rows of `cohort`
    elsewhere : the same model's answers on rows that were not held out, by their name
    """
    found = answers(label, logits)
    other = {split: one.balanced for split, one in (elsewhere or {}).items()}
    common = {
        "model": about.name,
        "cohort": name,
        "may_call": about.is_trained_here or any(one.state == "works" for one in (elsewhere or {}).values()),
        "doubts": doubts(cohort),
        "facts": about.facts,
        "elsewhere": other,
    }
    warned = [f"the checkpoint says of itself {said}: give {option}" for option, said in about.disagreements.items()]
    warned += warnings_of(cohort)
    if found is None:
        reason = f"of {len(label)} rows too few have a label of two classes: at least {FEWEST} are needed"
        return Preflight(state="few", reason=reason, warnings=tuple(warned), **common)
    state = "random" if about.is_random else found.state
    return Preflight(
        state=state,
        reason=_reason(state, found, classes),
        options=_options(state, found, classes, about),
        follows=tuple(_followed(found, label, logits, cohort)),
        n=found.n,
        accuracy=found.accuracy,
        balanced=found.balanced,
        chance=found.chance,
        classes=_lines(found, classes),
        warnings=tuple(warned),
        **common,
    )


def preflight_of(evidence: Evidence, about: About, *, name: str = "test") -> Preflight | None:
    """The card of what evidence says; None where it holds no logits of the test rows."""
    seen = _seen(evidence, name)
    if seen is None:
        return None
    elsewhere = {}
    for other in OTHER_COHORTS:
        view = _seen(evidence, other)
        judged = None if view is None else answers(view.label, view["logits"])
        if judged is not None:
            elsewhere[other] = judged
    card = preflight(seen.label, seen["logits"], seen.cohort, evidence.card.classes, about, elsewhere=elsewhere, name=name)
    splits = {split: len(evidence.on(split)) for split in evidence.cohorts}
    return card.model_copy(update={"splits": splits})


def _seen(evidence: Evidence, cohort: str) -> View | None:
    if cohort not in evidence.cohorts or "logits" not in evidence.arrays(cohort):
        return None
    return evidence.on(cohort)


def _lines(found: Answers, classes: Sequence[object]) -> tuple[ClassLine, ...]:
    answered = np.bincount(found.predicted, minlength=len(classes))
    rows = dict(zip(found.present.tolist(), np.bincount(found.label).tolist(), strict=True))
    recall = {int(output): float(found.recall[k, output]) for k, output in enumerate(found.present)}
    return tuple(
        ClassLine(name=str(value), rows=rows.get(output, 0), recall=recall.get(output), answered=int(answered[output]))
        for output, value in enumerate(classes)
    )


# ---- what `check` lists ----------------------------------------------------------------------------------------------------


def working_problems(table: Table, classifier: Model, sample: Sample) -> Iterator[Problem]:
    """Is the model at chance, below it, or does it give one answer to everything? The order of classes is listed elsewhere."""
    rows, logits = checked_sample(sample, table, classifier)
    found = answers(true_outputs(table, classifier)[rows], logits)
    if found is None or found.state in ("works", "order", "few"):
        return
    about = About(name="the model")
    options = ", ".join(_options(found.state, found, classifier.classes, about))
    reason = _reason(found.state, found, classifier.classes)
    message = f"the model does not work on these rows: {reason}; look at {options}"
    yield Problem(message, None, str(table.schema.label), "warning", f"model-{found.state}")


def near_level_problems(table: Table) -> Iterator[Problem]:
    """Levels of an attribute that look like one value in two spellings."""
    for name in table.schema.attribute:
        for one, other in near_levels(table.attributes[name]):
            message = f"{name!r} has the levels {one!r} and {other!r}: if they are one value, make them one in the table"
            yield Problem(message, None, name, "warning", "near-levels")


# ---- words ---------------------------------------------------------------------------------------------------------------


def _reason(state: State, found: Answers, classes: Sequence[object]) -> str:
    scored = f"balanced accuracy {found.balanced:.3f} on {found.n} rows, where chance is {found.chance:.3f}"
    if state == "random":
        return f"its weights are random, no checkpoint was read; {scored}"
    if state == "constant":
        answer = classes[int(np.bincount(found.predicted).argmax())]
        share = np.bincount(found.predicted).max() / found.n
        return f"it answers {answer} to {share:.0%} of the rows; {scored}"
    if state == "order":
        return f"{scored}, and {found.best:.3f} with the classes in another order: {_swapped(found, classes)}"
    if state == "below":
        return f"it is clearly worse than guessing: {scored}"
    if state == "few":
        return f"{scored}: so few rows could do that by chance (p = {found.p:.2g})"
    return scored


def _swapped(found: Answers, classes: Sequence[object]) -> str:
    pairs = zip(found.present, found.order, strict=True)
    return ", ".join(f"output {output} is {classes[own]}" for own, output in pairs if own != output)


def _options(state: State, found: Answers, classes: Sequence[object], about: About) -> tuple[str, ...]:
    if state in ("works", "few"):
        return ()
    if state == "random":
        return ("--checkpoint",)
    if not about.has_network:
        return ("--label", "the columns p_<class>, and which class each is")
    order = f"--classes (here {_order_option(found, classes)} scores {found.best:.3f})" if state == "order" else "--classes"
    if about.is_trained_here:
        return (order,) if state == "order" else ("how it was trained", "--label")
    inputs = [f"{option} ({said})" for option, said in about.disagreements.items()]
    inputs += [option for option in INPUT.values() if option not in about.disagreements]
    fit = "check --fit-preprocessing, which tries the usual ones"
    return (order, *inputs, fit) if state == "order" else (*inputs, order, "--checkpoint", fit)


def _order_option(found: Answers, classes: Sequence[object]) -> str:
    """The classes by output under the best other order."""
    named = [str(value) for value in classes]
    for own, output in zip(found.present, found.order, strict=True):
        named[int(output)] = str(classes[int(own)])
    return ",".join(named)


# ---- attributes ------------------------------------------------------------------------------------------------------------


def _followed(found: Answers, label: np.ndarray, logits: np.ndarray, cohort: Cohort) -> list[str]:
    """Attributes that go with the answers at least half-way."""
    known = (label >= 0) & np.isfinite(logits).all(axis=1)
    followed = []
    for name in cohort.attributes:
        a = cohort.attribute(name)
        if a.kind != "categorical":
            continue
        rows = a.present[known]
        values, answered = a.values[known][rows], found.predicted[rows]
        if len(np.unique(values)) < 2 or len(np.unique(answered)) < 2:
            continue
        strength = cramers_v(answered, values)
        if not math.isnan(strength) and strength >= FOLLOWS:
            followed.append(name)
    return followed


def doubts(cohort: Cohort) -> dict[str, str]:
    """Attribute → why its groups cannot be what they seem: levels that are one value in two spellings."""
    found = {}
    for name in cohort.attributes:
        pairs = near_levels(cohort.attribute(name))
        if pairs:
            shown = ", ".join(f"{one!r} and {other!r}" for one, other in pairs[:4])
            found[name] = f"{name} has levels that look like one value in two spellings ({shown}): make them one in the table"
    return found | doubt_of_repeats(repeated(cohort), len(cohort))


def doubt_of_repeats(repeats: int, rows: int) -> dict[str, str]:
    """Why nothing can be said where many rows repeat the image of another."""
    if not repeats or repeats < REPEATED * rows:
        return {}
    return {"": f"{repeats} of {rows} rows repeat the image of another row: leave each image in once"}


def near_levels(a: Attribute) -> list[tuple[str, str]]:
    """Levels that differ in case, spaces, width or the spelling of a number alone."""
    if a.kind != "categorical":
        return []
    first: dict[str | Decimal, str] = {}
    pairs = []
    for level in map(text, a.levels):
        plain = _folded(level)
        if plain in first:
            pairs.append((first[plain], level))
        else:
            first[plain] = level
    return pairs


def _folded(level: str) -> str | Decimal:
    """A value without what people type in different ways; numbers are compared to the last digit."""
    plain = level if level.isascii() else unicodedata.normalize("NFKC", level)
    plain = " ".join(plain.casefold().replace("_", " ").replace("-", " ").split())
    if level.strip().startswith(("-", "+")):
        plain = level.strip()
    try:
        return Decimal(plain) if "n" not in plain and "i" not in plain else plain
    except InvalidOperation:
        return plain


def warnings_of(cohort: Cohort) -> list[str]:
    """What is odd about rows: repeats, and ids that are one number in two spellings."""
    found = []
    found += warning_of_repeats(repeated(cohort), len(cohort))
    has_ids = cohort.schema.id is not None or cohort.has_images  # else they are the numbers of the rows
    merged = _alike(cohort.id) if has_ids else 0
    if merged:
        found.append(f"{merged} ids would be one number in two spellings (1 and 1.0, 7 and 07): give ids as text")
    people = _alike(sorted({str(name) for name in cohort.subject} - {""})) if cohort.subject is not None else 0
    if people:
        found.append(
            f"{people} subjects look like others in another spelling (1 and 1.0, p7 and P7): if they are one person, "
            "name them alike, or intervals are too narrow"
        )
    return found


def warning_of_repeats(repeats: int, rows: int) -> list[str]:
    if not repeats:
        return []
    return [f"{repeats} of {rows} rows show an image that another row shows too: every repeat makes intervals too narrow"]


def _alike(names: Iterable[object]) -> int:
    """How many names are those of others too, spelled in another way."""
    counted = Counter(_folded(str(name)) for name in names)
    return sum(count for count in counted.values() if count > 1)


def repeats_by_content(cohort: Cohort) -> int:
    """How many rows have the same image, byte for byte, as an earlier row, whatever it is called; every image is read once."""
    if not cohort.has_images or cohort.case is not None:
        return 0
    return len(cohort) - len(set(cohort.digests))


def repeated(cohort: Cohort) -> int:
    """How many rows have the image of an earlier row; rows of one case, and rows without images, are no repeats."""
    if not cohort.has_images or cohort.case is not None:
        return 0
    names = [str(name) for name in cohort.image]
    return len(names) - len(set(names)) if all(names) else 0
