"""The rows that ShorT reads: test rows, the rows that the readout is fitted on, and what the training rows say."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rightreasons.audits._rows import refuse_mixed_cases
from rightreasons.audits.short.measurement import Association, Distribution, Subgroup
from rightreasons.audits.short.settings import Settings
from rightreasons.data.cohort import Attribute, Cohort
from rightreasons.errors import NotRun, SettingError
from rightreasons.evidence import Evidence, View
from rightreasons.families import suggest
from rightreasons.stats import associations
from rightreasons.stats.associations import Associations, Shape

FEWEST_FITTED = 20  # rows of a readout
BINS = 20  # of a continuous attribute's distribution


@dataclass(frozen=True)
class Rows:
    """Rows that have a label and the attribute.

    Attributes
    ----------
    z : (n, d) features
    y : (n,) whether the label is the positive one
    a : (n,) codes, or numbers
    kept : which decisions of the view these are
    """

    cohort: Cohort
    z: np.ndarray
    y: np.ndarray
    a: np.ndarray
    kept: np.ndarray

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True)
class Question:
    """What is asked of a model: about which attribute, and which class against the rest (its position)."""

    attribute: Attribute
    positive: int

    @property
    def is_continuous(self) -> bool:
        return self.attribute.kind == "continuous"

    @property
    def signed_levels(self) -> list[int | None]:
        """The attribute values that have a signed disparity each: of two the second; None for a slope per unit."""
        if self.is_continuous:
            return [None]
        return [1] if len(self.attribute.levels) == 2 else list(range(len(self.attribute.levels)))


def question_of(evidence: Evidence, settings: Settings) -> Question:
    view = evidence.on("test")
    if not view.cohort.attributes:
        raise NotRun("no attribute: name one with attribute=")
    a = view.cohort.attribute(settings.attribute)
    refuse_mixed_cases(view, a.name)
    return Question(a, _positive(view.cohort, settings.positive))


def _positive(cohort: Cohort, named: Any) -> int:
    """Position among the label's classes of the one that is taken against the rest."""
    classes = [str(c) for c in cohort.classes]
    if named is None:
        if len(classes) != 2:
            raise NotRun(f"the label has the classes {', '.join(classes)}: name one against the rest with positive=")
        return 1
    if str(named) not in classes:
        raise SettingError(f"positive={named!r} is no class of the label; {suggest(str(named), classes)}")
    return classes.index(str(named))


def rows_of(view: View, question: Question) -> Rows:
    """The rows of a view that have a label and the attribute, with their features."""
    cohort, _, z = view.by_case("features")
    column = cohort.attribute(question.attribute.name)
    kept = (cohort.label >= 0) & column.present
    part = cohort.select(kept)
    values = column.values[kept].astype(np.float64 if question.is_continuous else np.int64)
    return Rows(part, z[kept], (part.label == question.positive).astype(np.int64), values, kept)


def tested_rows(evidence: Evidence, question: Question) -> Rows:
    test = rows_of(evidence.on("test"), question)
    if not len(test) or len(np.unique(test.y)) < 2 or len(np.unique(test.a)) < 2:
        name = question.attribute.name
        raise NotRun(f"the {len(test)} test rows with a label and {name} have one value of either: nothing to compare")
    return test


def fitting_rows(evidence: Evidence, question: Question, most: int, rng: np.random.Generator) -> tuple[Rows, str]:
    """The rows that the readout is fitted on, at most so many: training rows, or audit rows where those have no features."""
    for name in ("train", "audit"):
        if name in evidence.cohorts and "features" in evidence.on(name):
            view = evidence.on(name)
            if len(view) > most:
                view = view.select(np.sort(rng.permutation(len(view))[:most]))
            rows = rows_of(view, question)
            if len(rows) < FEWEST_FITTED or len(np.unique(rows.a)) < 2:
                raise NotRun(f"{len(rows)} {name} rows have a label and {question.attribute.name}: too few to fit a readout")
            return rows, name
    raise NotRun(f"the evidence of {evidence.card.name} has no features of train or audit rows: the readout is fitted on them")


def fingerprint(rows: Rows) -> str:
    """Hash of the rows with their label and attribute: models are compared on the same rows only."""
    return _hash(rows.cohort.id, rows.y, rows.a)


def _hash(names: Sequence[Any] | np.ndarray, y: np.ndarray, a: np.ndarray) -> str:
    made = hashlib.blake2b(digest_size=16)
    made.update("\n".join(map(str, names)).encode())
    made.update(np.ascontiguousarray(y).tobytes())
    made.update(np.ascontiguousarray(a).tobytes())
    return made.hexdigest()


def spreads(test: Rows, question: Question, shape: Shape | None) -> np.ndarray:
    """Of what each signed disparity is a slope on: a number, and its shape; NaN of differences between values."""
    if not question.is_continuous:
        return np.full(len(question.signed_levels), np.nan)
    along = [] if shape is None else [float(shape(test.a).std())]
    return np.array([float(test.a.std()), *along])


def smallest_subgroup(test: Rows, question: Question) -> Subgroup:
    """Of the test rows, by label and value, or by label and quartile."""
    a, cohort = question.attribute, test.cohort
    positive = str(cohort.classes[question.positive])
    others = [str(value) for code, value in enumerate(cohort.classes) if code != question.positive]
    negative = others[0] if len(others) == 1 else f"not {positive}"
    if a.kind == "continuous":
        codes = np.searchsorted(np.quantile(test.a, [0.25, 0.5, 0.75]), test.a, side="right")
        names = [f"quartile {k + 1}" for k in range(4)]
    else:
        codes, names = test.a, [str(v) for v in a.levels]
    sizes = {}
    for y, label in ((0, negative), (1, positive)):
        for k in np.unique(codes).tolist():
            sizes[f"{cohort.label_name} {label}, {a.name} {names[k]}"] = int(((test.y == y) & (codes == k)).sum())
    name = min(sizes, key=lambda key: sizes[key])
    return Subgroup(sizes[name], name)


# ---- what the training rows say ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Training:
    """Label and attribute of the training rows that have both, (n,) each, their subjects, and a hash of which rows they are."""

    y: np.ndarray
    a: np.ndarray
    subject: np.ndarray | None
    fingerprint: str


def training_of(evidence: Evidence, question: Question) -> Training | None:
    """None where the training rows are not known."""
    cohort = evidence.training
    if cohort is None and "train" in evidence.cohorts:
        cohort = evidence.on("train").cohort
    if cohort is None or question.attribute.name not in cohort.attributes:
        return None
    column = cohort.attribute(question.attribute.name)
    kept = (cohort.label >= 0) & column.present
    subject = None if cohort.subject is None else np.asarray(cohort.subject)[kept]
    y = (cohort.label[kept] == question.positive).astype(np.int64)
    return Training(y, column.values[kept], subject, _hash(cohort.id[kept], y, column.values[kept]))


def distribution(training: Training | None, fit: Rows, question: Question) -> Distribution:
    """The attribute by label in the training rows; where these are not known, in the rows of the readout."""
    y, values = (fit.y, fit.a) if training is None else (training.y, training.a)
    if not question.is_continuous:
        levels = question.attribute.levels
        count = [np.bincount(values[y == k], minlength=len(levels)) for k in (0, 1)]
        return Distribution(np.array(count), tuple(str(v) for v in levels))
    edges = np.histogram_bin_edges(values, bins=BINS)
    count = [np.histogram(values[y == k], bins=edges)[0] for k in (0, 1)]
    return Distribution(np.array(count), tuple(f"{c:.6g}" for c in (edges[:-1] + edges[1:]) / 2))


@dataclass(frozen=True)
class Gate:
    """What the training rows say of each signed disparity, and the shape in which a number goes with the label."""

    association: Association
    shape: Shape | None


def gate_of(training: Training | None, question: Question, settings: Settings) -> Gate:
    """Is there an association to exploit, and which way would a shortcut lean: as given, else as the training rows say."""
    association = None if training is None else _association(training, question, settings)
    shape = None if association is None else association.shape
    count = len(question.signed_levels) + (shape is not None)
    unknown = np.full((count, 3), np.nan), np.full(count, np.nan)
    if settings.direction is not None:
        sign = np.full(count, float(np.sign(settings.direction)))
        sign[len(question.signed_levels) :] = 0.0  # a direction is one of the slope
        return Gate(Association("given", sign, *unknown, 0, "given"), shape)
    if association is None:
        why = "training rows unknown: give direction="
        return Gate(Association("unknown", np.full(count, np.nan), *unknown, 0, why), None)
    limits = np.stack([association.value, association.low, association.high], axis=1)
    shown = Association(
        association.answer, association.sign[:count], limits[:count], association.p[:count], association.units, "training rows"
    )
    return Gate(shown, shape)


def _association(training: Training, question: Question, settings: Settings) -> Associations:
    rules = associations.Rules(sure=settings.sure, small=settings.small, level=settings.level)
    if question.is_continuous:
        return associations.of_number(training.y, training.a, subject=training.subject, rules=rules)
    levels = len(question.attribute.levels)
    return associations.of_values(training.y, training.a, levels, subject=training.subject, rules=rules)


def no_association(question: Question) -> Association:
    """Of a model that does not predict the label."""
    k = len(question.signed_levels)
    return Association("unknown", np.full(k, np.nan), np.full((k, 3), np.nan), np.full(k, np.nan), 0, "")
