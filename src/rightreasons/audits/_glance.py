"""What a reader sees at a glance: how often one answer is given with and without a value of the attribute, and rows to look at.

A contrast is about rows of one label: how often they get an answer that is not theirs where the attribute has one value, and
where it has another. It describes; audits with a verdict say why.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rightreasons.audits._alignment import alignment_of
from rightreasons.audits._following import direction_to_look
from rightreasons.audits._levels import levels_of
from rightreasons.audits._thumbnails import thumbnails
from rightreasons.data.cohort import Attribute
from rightreasons.evidence import Decisions, Evidence
from rightreasons.findings import Answers, Contrast, GroupShare, Share, ShownRow, png
from rightreasons.stats.groups import SMALLEST_GROUP
from rightreasons.stats.resampling import Interval, Resamples, interval, share_interval, tally, whole

SHOWN_ROWS = 8
SHOWN_GROUPS = 8
SURE = 1.96  # standard errors that a difference must keep to come first
NO_PIXELS = np.zeros((0, 1, 1, 3), np.uint8)


@dataclass(frozen=True)
class Told:
    """A contrast in words and numbers; `of` is among how many it was chosen, and its interval holds for all of these together."""

    label: str
    answer: str
    value: str
    other: str
    share: Interval
    share_of_other: Interval
    difference: Interval
    n: int
    n_other: int
    of: int


@dataclass(frozen=True)
class ByGroup:
    """Accuracy of a few groups, k of them: (k,) numbers; `value` is empty without an attribute."""

    label: tuple[str, ...]
    value: tuple[str, ...]
    right: np.ndarray
    low: np.ndarray
    high: np.ndarray
    size: np.ndarray


@dataclass(frozen=True)
class Rows:
    """Test rows to look at, k of them.

    Attributes
    ----------
    kind : "followed" where the attribute and not the label was followed, "errors" where no row was, "unsure" where all are right
    found, among : how many rows are of that kind, and among how many they could be
    pixels : (k, h, w, 3), or none and `reason` says why
    """

    kind: str
    found: int
    among: int
    id: tuple[str, ...]
    label: tuple[str, ...]
    value: tuple[str, ...]
    answer: tuple[str, ...]
    probability: np.ndarray
    pixels: np.ndarray
    reason: str


@dataclass(frozen=True)
class Glance:
    """What is seen at a glance of one model and one attribute.

    Attributes
    ----------
    noun : what a row is: images, rows or cases
    no_contrast : why there is none
    """

    noun: str
    label_name: str
    attribute: str
    n: int
    right: Interval
    contrast: Told | None
    no_contrast: str
    groups: ByGroup
    rows: Rows

    def shown(self) -> Answers:
        """The same as a part of a finding."""
        by = self.groups
        groups = []
        for k in range(len(by.size)):
            share = Share(value=by.right[k], low=by.low[k], high=by.high[k], n=int(by.size[k]))
            groups.append(GroupShare(label=by.label[k], value=by.value[k], right=share))
        return Answers(
            noun=self.noun,
            label_name=self.label_name,
            attribute=self.attribute,
            right=_share(self.right, self.n),
            level=self.right.level,
            contrast=None if self.contrast is None else _contrast(self.contrast),
            no_contrast=self.no_contrast,
            groups=tuple(groups),
            kind=self.rows.kind,
            found=self.rows.found,
            among=self.rows.among,
            rows=tuple(_shown_rows(self.rows)),
        )


def _share(number: Interval, n: int) -> Share:
    return Share(value=number.value, low=number.low, high=number.high, n=n)


def _contrast(told: Told) -> Contrast:
    return Contrast(
        label=told.label,
        answer=told.answer,
        value=told.value,
        other=told.other,
        share=_share(told.share, told.n),
        share_of_other=_share(told.share_of_other, told.n_other),
        difference=_share(told.difference, told.n + told.n_other),
        level=told.difference.level,
        of=told.of,
    )


def _shown_rows(rows: Rows) -> list[ShownRow]:
    shown = []
    for k, name in enumerate(rows.id):
        picture = png(rows.pixels[k]) if len(rows.pixels) else None
        probability = float(rows.probability[k])
        said = {"id": name, "label": rows.label[k], "value": rows.value[k], "answer": rows.answer[k]}
        shown.append(ShownRow(**said, probability=probability, png=picture))
    return shown


# ---- measuring -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Decided:
    """Decisions, with the attribute by its levels.

    Attributes
    ----------
    predicted : (n,)
    classes : names of the labels
    attribute : None without one
    aligned : value → the label it stands for; empty where that is not known
    """

    rows: Decisions
    predicted: np.ndarray
    classes: tuple[str, ...]
    attribute: Attribute | None
    aligned: Mapping[Hashable, Hashable]

    @property
    def label(self) -> np.ndarray:
        return self.rows.label

    @property
    def values(self) -> np.ndarray:
        """(n,) levels; 0 everywhere without an attribute."""
        return np.zeros(len(self.label), np.int64) if self.attribute is None else self.attribute.values

    def level(self, value: int) -> str:
        return "" if self.attribute is None else str(self.attribute.levels[value])

    def others(self, value: int) -> str:
        """The other one of two values; empty where there are more."""
        has_two = self.attribute is not None and len(self.attribute.levels) == 2
        return self.level(1 - value) if has_two else ""


def glance(
    evidence: Evidence, rows: Decisions, predicted: np.ndarray, attribute: Attribute | None, aligned: Mapping[Any, Any] | None,
    sample: Resamples, level: float = 0.95,
) -> Glance:  # fmt: skip
    """Of decided rows; a number is compared by its quarters.

    Parameters
    ----------
    aligned : attribute value → the label it stands for, as the user gave it
    """
    decided = _decided(evidence, rows, predicted, attribute, aligned)
    cohort = rows.cohort
    chosen, among, no_contrast = _chosen(decided)
    groups = _groups(decided, chosen)
    told, right, by_group = _intervals(decided, chosen, among, groups, sample, level)
    noun = "images" if cohort.has_images else "rows"
    return Glance(
        noun="cases" if cohort.case is not None else noun,
        label_name=evidence.card.target or cohort.label_name,
        attribute="" if decided.attribute is None else decided.attribute.name,
        n=len(predicted),
        right=right,
        contrast=told,
        no_contrast=no_contrast,
        groups=by_group,
        rows=_rows(decided, chosen),
    )


def _decided(
    evidence: Evidence, rows: Decisions, predicted: np.ndarray, attribute: Attribute | None, aligned: Mapping[Any, Any] | None
) -> Decided:
    classes = tuple(map(str, evidence.card.classes))
    if attribute is None:
        return Decided(rows, predicted, classes, None, {})
    leveled = levels_of(evidence, attribute.name).of(attribute)
    pi, _ = alignment_of(evidence, leveled, None if attribute.kind == "continuous" else aligned)
    if not pi and _has_answers(evidence, "audit", attribute.name):
        pi = direction_to_look(evidence, attribute.name)
    return Decided(rows, predicted, classes, leveled, pi)


def _has_answers(evidence: Evidence, cohort: str, attribute: str) -> bool:
    if cohort not in evidence.cohorts or "logits" not in evidence.on(cohort):
        return False
    return attribute in evidence.on(cohort).cohort.attributes


# ---- the contrast --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Choice:
    """Rows of one label, one answer that is not theirs, and one value of the attribute."""

    label: int
    answer: int
    value: int


def _chosen(decided: Decided) -> tuple[Choice | None, int, str]:
    """The contrast that is surely the largest, among how many it was, and why there is none."""
    if decided.attribute is None:
        return None, 0, "no attribute was named"
    counted = _counted(decided, len(decided.attribute.levels))
    choices = _choices(decided, counted)
    if choices:
        is_mirrored = len(decided.attribute.levels) == 2 and not decided.aligned  # each difference is there with both signs
        among = -(-len(choices) // 2) if is_mirrored else len(choices)
        return max(choices, key=lambda choice: _surely(counted, choice)), among, ""
    sizes = counted.sum(axis=2)[np.unique(decided.label)]
    why = f"no label has {SMALLEST_GROUP} test rows on both sides of {decided.attribute.name}"
    return None, 0, f"{why}; its largest groups have {', '.join(map(str, -np.sort(-sizes.ravel())[:2]))}"


def _counted(decided: Decided, levels: int) -> np.ndarray:
    """Rows by label, value and answer."""
    shape = len(decided.classes), levels, len(decided.classes)
    counted = np.zeros(shape, np.int64)
    np.add.at(counted, (decided.label, decided.values, decided.predicted), 1)
    return counted


def _choices(decided: Decided, counted: np.ndarray) -> list[Choice]:
    """Contrasts with enough rows on both sides. Where the values stand for labels, only their answers are asked for."""
    sizes = counted.sum(axis=2)
    found = []
    for y, value in zip(*np.nonzero(sizes >= SMALLEST_GROUP), strict=True):
        if sizes[y].sum() - sizes[y, value] < SMALLEST_GROUP:
            continue
        if decided.aligned:
            answers = [decided.aligned[value]] if value in decided.aligned else []
        else:
            answers = list(range(len(decided.classes)))
        found += [Choice(int(y), int(answer), int(value)) for answer in answers if answer != y]  # type: ignore[call-overload]
    return found


def _surely(counted: np.ndarray, choice: Choice) -> float:
    """The difference less what chance may make of it: each share with two more rows of either kind."""
    of_label = counted[choice.label]
    with_value, n = of_label[choice.value, choice.answer], of_label[choice.value].sum()
    without, m = of_label[:, choice.answer].sum() - with_value, of_label.sum() - n
    p, q = (with_value + 1) / (n + 2), (without + 1) / (m + 2)
    return float(with_value / n - without / m - SURE * np.sqrt(p * (1 - p) / (n + 2) + q * (1 - q) / (m + 2)))


# ---- intervals -----------------------------------------------------------------------------------------------------------


def _groups(decided: Decided, chosen: Choice | None) -> list[tuple[int, int]]:
    """(label, value) of the groups that are shown; where there are too many, those of the label in question come first."""
    cells = sorted(set(zip(decided.label.tolist(), decided.values.tolist(), strict=True)))
    if len(cells) > SHOWN_GROUPS and chosen is not None:
        cells.sort(key=lambda cell: cell[0] != chosen.label)
    return cells[:SHOWN_GROUPS]


def _intervals(
    decided: Decided, chosen: Choice | None, among: int, groups: list[tuple[int, int]], sample: Resamples, level: float
) -> tuple[Told | None, Interval, ByGroup]:
    """Of the contrast, of all rows and of the groups, over the same resamples."""
    label, values, predicted = decided.label, decided.values, decided.predicted
    right = predicted == label
    parts = [(np.ones(len(label), bool), right)]
    parts += [((label == y) & (values == value), right) for y, value in groups]
    if chosen is not None:
        here = label == chosen.label
        answered = predicted == chosen.answer
        parts += [(here & (values == chosen.value), answered), (here & (values != chosen.value), answered)]
    shares = _Shares.of_parts(parts)
    drawn = sample.apply(shares.drawn)
    value, size = shares.drawn(whole(sample.n))[0], np.array([int(part.sum()) for part, _ in parts])
    units = sample.units / sample.n

    def share(k: int, sure: float = level) -> Interval:
        return share_interval(float(value[k]), drawn[:, k], units * size[k], sure)

    several = [share(k) for k in range(1, 1 + len(groups))]
    by_group = ByGroup(
        label=tuple(decided.classes[y] for y, _ in groups),
        value=tuple(decided.level(v) for _, v in groups),
        right=np.array([i.value for i in several]),
        low=np.array([i.low for i in several]),
        high=np.array([i.high for i in several]),
        size=size[1 : 1 + len(groups)],
    )
    if chosen is None:
        return None, share(0), by_group
    together = 1 - (1 - level) / max(among, 1)  # it was chosen among several: its interval holds for all of them
    told = Told(
        label=decided.classes[chosen.label],
        answer=decided.classes[chosen.answer],
        value=decided.level(chosen.value),
        other=decided.others(chosen.value),
        share=share(-2),
        share_of_other=share(-1),
        difference=_difference(share(-2, together), share(-1, together), drawn[:, -2] - drawn[:, -1], together, level),
        n=int(size[-2]),
        n_other=int(size[-1]),
        of=among,
    )
    return told, share(0), by_group


@dataclass(frozen=True)
class _Shares:
    """k shares of the same rows. Rows that belong to the same parts are counted as one kind, so that a resample is read once.

    Attributes
    ----------
    kind : (n,) numbers 0..K-1
    of, hits : (K, k) whether a kind is part of a share's rows, and whether it counts there
    """

    kind: np.ndarray
    of: np.ndarray
    hits: np.ndarray

    @classmethod
    def of_parts(cls, parts: list[tuple[np.ndarray, np.ndarray]]) -> _Shares:
        """Each share is told by its rows (n,) and by which rows are hits (n,)."""
        every = np.stack([part for part, _ in parts] + [part & hit for part, hit in parts], axis=1)
        places = np.arange(every.shape[1])
        patterns, kind = np.unique(every @ (1 << places), return_inverse=True)
        told = (patterns[:, None] >> places & 1).astype(np.float64)
        return cls(kind.ravel(), told[:, : len(parts)], told[:, len(parts) :])

    def drawn(self, counts: np.ndarray) -> np.ndarray:
        """The shares in resamples (B, n): (B, k)."""
        counted = tally(counts, self.kind, len(self.of))
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray((counted @ self.hits) / (counted @ self.of))


def _difference(share: Interval, other: Interval, draws: np.ndarray, together: float, level: float) -> Interval:
    """Of two shares. Where one is 0 or 1 its resamples have no width: its limits come from those of both (Newcombe, 1998)."""
    value = share.value - other.value
    found = interval(value, draws, together)
    if share.value in (0.0, 1.0) or other.value in (0.0, 1.0):
        low = value - float(np.hypot(share.value - share.low, other.high - other.value))
        high = value + float(np.hypot(share.high - share.value, other.value - other.low))
        found = replace(found, low=low, high=high)
    return replace(found, level=level)


# ---- rows to look at -----------------------------------------------------------------------------------------------------


def _rows(decided: Decided, chosen: Choice | None) -> Rows:
    """Rows whose answer follows the attribute and not the label; where there are none, other errors, or the least sure rows."""
    label, predicted = decided.label, decided.predicted
    could, followed = _following(decided, chosen)
    kind, rows, among = "followed", np.flatnonzero(followed), int(could.sum())
    if not len(rows):
        kind, rows, among = "errors", np.flatnonzero(predicted != label), len(label)
    sure = decided.rows.probability[np.arange(len(label)), predicted]
    if not len(rows):
        kind, rows, sure = "unsure", np.arange(len(label)), -sure
    picked = _in_turn(rows, sure, decided, chosen)
    pixels, reason = thumbnails(decided.rows.cohort, picked)
    return Rows(
        kind=kind,
        found=len(rows),
        among=among,
        id=tuple(str(decided.rows.cohort.id[row]) for row in picked),
        label=tuple(decided.classes[label[row]] for row in picked),
        value=tuple(decided.level(int(decided.values[row])) for row in picked),
        answer=tuple(decided.classes[predicted[row]] for row in picked),
        probability=decided.rows.probability[picked, predicted[picked]],
        pixels=pixels if len(pixels) else NO_PIXELS,
        reason=reason,
    )


def _following(decided: Decided, chosen: Choice | None) -> tuple[np.ndarray, np.ndarray]:
    """Rows whose attribute points to another label than their own, and those of them that get that label."""
    label, values, predicted = decided.label, decided.values, decided.predicted
    if decided.attribute is not None and decided.aligned:
        points_to = np.array([int(decided.aligned.get(v, -1)) for v in range(len(decided.attribute.levels))])[values]  # type: ignore[call-overload]
        could = (points_to >= 0) & (points_to != label)
        return could, could & (predicted == points_to)
    if chosen is None:
        return np.zeros(len(label), bool), np.zeros(len(label), bool)
    could = (label == chosen.label) & (values == chosen.value)
    return could, could & (predicted == chosen.answer)


def _in_turn(rows: np.ndarray, sure: np.ndarray, decided: Decided, chosen: Choice | None) -> np.ndarray:
    """At most eight rows, the clearest of every group in turn, that of the contrast first."""
    ordered = rows[np.argsort(-sure[rows], kind="stable")]
    turn: dict[tuple[int, int], int] = {}
    keys = []
    for row in ordered.tolist():
        group = int(decided.label[row]), int(decided.values[row])
        turn[group] = turn.get(group, -1) + 1
        is_of_contrast = chosen is not None and group == (chosen.label, chosen.value)
        keys.append((turn[group], not is_of_contrast))
    order = sorted(range(len(ordered)), key=lambda k: keys[k])
    return ordered[order[:SHOWN_ROWS]]
