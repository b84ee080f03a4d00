"""Flips: does the prediction change when nothing but the cue changes?

A twin is the same image but for the cue. The change of probability between an image and its twin is reliance itself, measured
by intervention: no other audit is needed to interpret it.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from rightreasons.audits._alignment import alignment_of, say_alignment
from rightreasons.audits._contract import Context, Need, OneModelResult, Role
from rightreasons.audits._rows import refuse_mixed_cases
from rightreasons.data import images
from rightreasons.data.cohort import Attribute
from rightreasons.errors import ImageError, NotRun
from rightreasons.evidence import Decisions, Evidence
from rightreasons.findings import Bars, Check, Curves, Estimate, Exhibit, Gallery, Picture, Row, Verdict
from rightreasons.stats.bootstrap_means import column_means
from rightreasons.stats.resampling import Interval, subject_codes

QUESTION = "Does the prediction change when nothing but the cue changes?"
ROW: Row = "reliance"

FEWEST_TWINS = 30
TOLERANCE = 0.02  # mean change of probability that counts as reliance
BINS = 40
PIXELS = 96  # height and width of a picture of the gallery
UNALIGNED = "no row with an aligned label"


def needs() -> tuple[Need, ...]:
    return (
        Need("test", "test", "logits"),
        Need("test", "twin", "logits"),
        Need("test", "audit", "logits", optional=True),
    )


def roles() -> tuple[Role, ...]:
    return ()


# ---- measuring -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ByGroup:
    """Mean change by group, k of them: "label, attribute → the twin's attribute"; mean, low, high, size (k,)."""

    name: tuple[str, ...]
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    size: np.ndarray


@dataclass(frozen=True)
class Pictures:
    """The most changed images beside their twins, (k, h, 2w, 3), with the change of each, (k,); k is 0 where there are none."""

    pixels: np.ndarray = field(default_factory=lambda: np.zeros((0, 1, 1, 3), np.uint8))
    captions: tuple[str, ...] = ()
    change: np.ndarray = field(default_factory=lambda: np.zeros(0))


@dataclass(frozen=True)
class Measurement:
    """Change between test images and their twins.

    Attributes
    ----------
    n : decisions that the mean change rests on
    change : (n,) change of probability towards the label that the twin's attribute stands for, NaN where it stands for none;
        absolute where no value stands for one
    flipped : (n,) whether the decision differs
    group : (n,) "label, attribute → the twin's attribute"
    one_way : where no value stands for a label, how much of the change goes to one label with one of two values, `drawn` (in
        words): a cue can disturb answers without drawing them anywhere
    """

    model: str
    attribute: str
    directed: bool
    aligned: str
    aligned_from: str
    n: int
    n_subjects: int | None
    without_twin: int
    same_attribute: int
    without_label: int
    mean: Interval
    absolute: Interval
    flips: Interval
    towards: Interval
    one_way: Interval
    drawn: str
    change: np.ndarray
    flipped: np.ndarray
    group: tuple[str, ...]
    by_group: ByGroup
    pictures: Pictures
    no_pictures: str


def measure(
    evidence: Evidence,
    *,
    rng: np.random.Generator,
    attribute: str | None = None,
    aligned: Mapping[Any, Any] | None = None,
    B: int = 10_000,
    level: float = 0.95,
    pictures: int = 12,
) -> Measurement:
    """Compare test images with their twins.

    Parameters
    ----------
    aligned : attribute value → the label it stands for; learnt as in `groups` by default. Where nothing is aligned the
        absolute change counts (half the sum of absolute changes over classes).
    pictures : pairs shown, the most changed first
    """
    pairs = pairs_of(evidence, attribute)
    pi, source = alignment_of(evidence, pairs.attribute, aligned)
    changes = changes_of(pairs, pi, evidence.card.classes)
    subject = pairs.test.cohort.subject
    groups = _group_names(pairs)
    group_of_row = np.array(groups, dtype=object)
    by_group = {name: np.where(group_of_row == name, changes.change, np.nan) for name in sorted(set(groups))}
    means = column_means(
        {**changes.columns(), **by_group},
        rng=rng,
        subject=subject,
        shares=("flipped", "towards"),
        B=B,
        level=level,
        reason=UNALIGNED,
    )
    shown, no_pictures = _pictures(pairs, changes.change, groups, evidence.card.classes, pictures)
    undirected = np.isnan(changes.change)
    return Measurement(
        model=evidence.card.name,
        attribute=pairs.attribute.name if pairs.attribute else "",
        directed=changes.directed,
        aligned=say_alignment(pi, pairs.attribute, evidence),
        aligned_from=source,
        n=int((~undirected).sum()),
        n_subjects=None if subject is None else len(np.unique(subject_codes(subject))),
        without_twin=pairs.without_twin,
        same_attribute=pairs.same_attribute,
        without_label=int(undirected.sum()),
        mean=means["change"],
        absolute=means["absolute"],
        flips=means["flipped"],
        towards=means["towards"],
        one_way=means["one way"],
        drawn=changes.drawn,
        change=changes.change,
        flipped=changes.flipped,
        group=groups,
        by_group=_by_group({name: means[name] for name in by_group}, groups),
        pictures=shown,
        no_pictures=no_pictures,
    )


@dataclass(frozen=True)
class Pairs:
    """Test decisions and those of their twins, row by row, where the twin's attribute differs.

    Attributes
    ----------
    attribute, twin_attribute : None where the cohort has none
    without_twin, same_attribute : test images left out
    """

    test: Decisions
    twin: Decisions
    attribute: Attribute | None
    twin_attribute: Attribute | None
    without_twin: int
    same_attribute: int


def pairs_of(evidence: Evidence, attribute: str | None) -> Pairs:
    """Test decisions beside their twins.

    Images are paired before a case's are averaged, so that both sides of a case rest on the same images.
    """
    if "twin" not in evidence.cohorts:
        raise NotRun("no twins: name the column with the same images but for the cue with twin=", lacks="twins")
    test_view, twin_view = evidence.on("test"), evidence.on("twin")
    ids = test_view.cohort.id
    place = {i: k for k, i in enumerate(twin_view.cohort.id)}
    rows = np.array([k for k, i in enumerate(ids) if i in place], dtype=np.int64)
    if not len(rows):
        raise NotRun("no test row has a twin", lacks="twins")
    twin_rows = np.array([place[i] for i in ids[rows]], dtype=np.int64)
    test, twin = test_view.select(rows).decisions(), twin_view.select(twin_rows).decisions()
    without_twin = len(ids) - len(rows)
    if not test.cohort.attributes:
        return Pairs(test, twin, None, None, without_twin, 0)
    a = test.cohort.attribute(attribute)
    refuse_mixed_cases(test_view, a.name)
    b = twin.cohort.attribute(attribute)
    same = b.present & (b.values == a.values)
    if same.all():
        raise NotRun("every twin has the attribute of its image: nothing was changed", lacks="twins")
    keep = np.flatnonzero(~same)
    test, twin = test.select(keep), twin.select(keep)
    a, b = test.cohort.attribute(attribute), twin.cohort.attribute(attribute)
    return Pairs(test, twin, a, b, without_twin, int(same.sum()))


@dataclass(frozen=True)
class Changes:
    """How every prediction changes from an image to its twin, (n,) each; NaN where it is not defined.

    Attributes
    ----------
    directed : whether any value stands for a label; then `change` is towards that label, else it is absolute
    towards : whether the decision flips to the label that the twin's attribute stands for
    one_way, drawn : see `Measurement`
    """

    directed: bool
    change: np.ndarray
    absolute: np.ndarray
    flipped: np.ndarray
    towards: np.ndarray
    one_way: np.ndarray
    drawn: str

    def columns(self) -> dict[str, np.ndarray]:
        return {
            "change": self.change,
            "absolute": self.absolute,
            "flipped": self.flipped,
            "towards": self.towards,
            "one way": self.one_way,
        }


def changes_of(pairs: Pairs, aligned: Mapping[Hashable, Hashable], classes: Sequence[Any]) -> Changes:
    """The change of probability from each image to its twin, in the direction of what the twin's attribute stands for."""
    difference = pairs.twin.probability - pairs.test.probability
    n = len(difference)
    absolute = np.abs(difference).sum(axis=1) / 2
    decided, twin_decided = pairs.test.logits.argmax(axis=1), pairs.twin.logits.argmax(axis=1)
    flipped = decided != twin_decided
    label = np.full(n, -1)  # that the twin's attribute stands for
    if pairs.twin_attribute is not None:
        label = np.array([aligned.get(value, -1) for value in pairs.twin_attribute.values.tolist()])
    undefined = np.full(n, np.nan)
    if not (label >= 0).any():
        one_way, drawn = _one_way(pairs, difference, classes)
        return Changes(False, absolute, absolute, flipped, undefined, one_way, drawn)
    change = np.where(label >= 0, difference[np.arange(n), label], np.nan)
    towards = np.where(label >= 0, flipped & (twin_decided == label), np.nan)
    return Changes(True, change, absolute, flipped, towards, undefined, "")


def _one_way(pairs: Pairs, difference: np.ndarray, classes: Sequence[Any]) -> tuple[np.ndarray, str]:
    """Change of every row towards the label that most of the change goes to with one value, and which they are, in words.

    NaN where the attribute has other than two values (there is no one way between more), or is not known.
    """
    b = pairs.twin_attribute
    if b is None or b.kind == "continuous" or len(b.levels) != 2:
        return np.full(len(difference), np.nan), ""
    signed = difference * np.select([b.values == 0, b.values == 1], [-1.0, 1.0], np.nan)[:, None]
    if np.isnan(signed).all():
        return signed[:, 0], ""
    mean = np.nanmean(signed, axis=0)
    label = int(np.abs(mean).argmax())
    sign = 1.0 if mean[label] >= 0 else -1.0
    level = b.levels[1 if sign > 0 else 0]
    return sign * signed[:, label], f"{pairs.twin.cohort.label_name} = {classes[label]} with {b.name} = {level}"


def _group_names(pairs: Pairs) -> tuple[str, ...]:
    """Label of every row, and what the cue was changed from and to."""
    cohort = pairs.test.cohort
    labels = [f"{cohort.label_name} = {cohort.classes[y]}" if y >= 0 else "label unknown" for y in cohort.label]
    a, b = pairs.attribute, pairs.twin_attribute
    if a is None or b is None or a.kind == "continuous":
        return tuple(labels)
    level = [str(v) for v in a.levels] + ["unknown"]
    return tuple(f"{y}, {a.name} {level[i]} → {level[j]}" for y, i, j in zip(labels, a.values, b.values, strict=True))


def _by_group(means: Mapping[str, Interval], groups: Sequence[str]) -> ByGroup:
    return ByGroup(
        name=tuple(means),
        mean=np.array([i.value for i in means.values()]),
        low=np.array([i.low for i in means.values()]),
        high=np.array([i.high for i in means.values()]),
        size=np.array([groups.count(name) for name in means]),
    )


def _pictures(
    pairs: Pairs, change: np.ndarray, groups: Sequence[str], classes: Sequence[Any], number: int
) -> tuple[Pictures, str]:
    """The most changed pairs, image and twin side by side; and why there are none."""
    cohorts = pairs.test.cohort, pairs.twin.cohort
    if not pairs.test.cohort.has_images or number < 1:
        return Pictures(), "the cohort has no images"
    order = np.argsort(-np.nan_to_num(change, nan=-np.inf))[:number]
    geometry = images.Geometry(size=(PIXELS, PIXELS), channels=3, mode="border")
    shown = []
    try:
        for row in order:
            both = [images.load(cohort.image[row], geometry, root=cohort.root) for cohort in cohorts]
            shown.append(np.concatenate([_eight_bit(pixels) for pixels in both], axis=1))
    except ImageError as error:
        return Pictures(), str(error)
    p, q = pairs.test.probability, pairs.twin.probability
    captions = tuple(
        f"{groups[r]}: decided {classes[p[r].argmax()]} with {p[r].max():.2f}, "
        f"the twin {classes[q[r].argmax()]} with {q[r].max():.2f}"
        for r in order
    )
    return Pictures(np.stack(shown), captions, change[order]), ""


def _eight_bit(pixels: np.ndarray) -> np.ndarray:
    if pixels.dtype == np.uint8:
        return pixels
    return np.round(np.clip(pixels, 0, 1) * 255).astype(np.uint8)


# ---- saying --------------------------------------------------------------------------------------------------------------


def conclude(
    measurements: Mapping[str, Sequence[Measurement]], *, rng: np.random.Generator, tolerance: float = TOLERANCE
) -> Result:
    """`shortcut` when the lower limit of the mean change exceeds `tolerance`."""
    models = tuple(measurements["test"])
    first = models[0]
    context = Context(attribute=first.attribute, n_rows=first.n, n_subjects=first.n_subjects)
    return Result(models, context, tolerance=tolerance)


@dataclass(frozen=True)
class Result(OneModelResult[Measurement]):
    """What twins say of one model."""

    question: ClassVar[str] = QUESTION
    row: ClassVar[Row] = ROW

    tolerance: float = TOLERANCE

    @property
    def verdict(self) -> Verdict:
        m = self.first
        if m.n < FEWEST_TWINS or np.isnan(m.mean.low):
            return "inconclusive"
        if m.mean.low > self.tolerance:
            return "shortcut"
        return "no evidence"

    def sentence(self, m: Measurement) -> str:
        if m.n < FEWEST_TWINS:
            if m.without_label:
                whose = " whose attribute stands for a label"
            else:
                whose = ""
            return f"Only {m.n} test images have a twin{whose}; at least {FEWEST_TWINS} are needed to judge."
        if np.isnan(m.mean.low):
            return f"The change has no interval ({m.mean.reason}), so it cannot be judged."
        cue = f"“{m.attribute}”" if m.attribute else "the cue"
        where = " towards the label that it stands for" if m.directed else ""
        said = (
            f"Changing {cue} alone moves the predicted probability by {_limits(m.mean)}{where} "
            f"and flips {m.flips.value:.1%} of the decisions"
        )
        if m.drawn:
            said += f"; {_limits(m.one_way)} of it goes to {m.drawn}"
        if self.verdict == "shortcut":
            return f"{said}: the model relies on it."
        if m.directed and m.mean.high < -self.tolerance:
            return f"{said}: the model moves against the cue, which is not a shortcut."
        return f"{said}: not beyond the tolerance of {self.tolerance:g}."

    def estimates(self, m: Measurement) -> list[Estimate]:
        mean = "mean change of probability" + (" towards the twin's label" if m.directed else "")
        shown = [
            Estimate.of(mean, m.mean, ROW, unit="probability", n=m.n),
            Estimate.of("mean absolute change of probability", m.absolute, ROW, unit="probability", n=m.n),
            Estimate.of("decisions that flip", m.flips, ROW, unit="share", n=m.n),
        ]
        if m.directed:
            shown.append(Estimate.of("decisions that flip to the twin's label", m.towards, ROW, unit="share", n=m.n))
        if m.drawn:
            note = (
                f"to {m.drawn}, where most of it goes; decides nothing: near 0 the cue disturbs answers without drawing them "
                "anywhere"
            )
            shown.append(Estimate.of("change that goes one way", m.one_way, ROW, unit="probability", n=m.n, note=note))
        return shown

    def checks(self, m: Measurement) -> list[Check]:
        left_out = f"{m.without_twin} without a twin, {m.same_attribute} with the same attribute; left out"
        complete = not (m.without_twin or m.same_attribute)
        return [
            Check(
                id="twins",
                name=f"at least {FEWEST_TWINS} twins",
                passed=m.n >= FEWEST_TWINS,
                note=f"{m.n} twins",
                decides=True,
            ),
            Check(
                id="direction",
                name="the twin's attribute stands for a label",
                passed=True if m.directed else None,
                note=_say_direction(m),
            ),
            Check(
                id="complete rows",
                name="every test row has a twin with another attribute",
                passed=complete,
                note="" if complete else left_out,
            ),
        ]

    def exhibits(self, m: Measurement) -> list[Exhibit]:
        exhibits: list[Exhibit] = [_distribution(m, self.tolerance), _groups(m.by_group, self.tolerance)]
        if len(m.pictures.pixels):
            exhibits.append(_gallery(m.pictures))
        return exhibits


def _limits(i: Interval) -> str:
    return f"{i.value:.3f} ({i.low:.3f} to {i.high:.3f})"


def _say_direction(m: Measurement) -> str:
    if not m.directed:
        return f"{m.aligned_from}; the absolute change is used"
    if m.without_label:
        left = f"; {m.without_label} twins without one left out"
    else:
        left = ""
    return f"{m.aligned} ({m.aligned_from}){left}"


def _distribution(m: Measurement, tolerance: float) -> Curves:
    known = m.change[~np.isnan(m.change)]
    count, edges = np.histogram(known, bins=BINS, range=(-1.0 if m.directed else 0.0, 1.0))
    return Curves(
        title="How much each prediction changes",
        caption="Images by the change of probability between them and their twins. A model that does not use the cue has "
        "them all at 0.",
        x=(edges[:-1] + edges[1:]) / 2,
        series={"images": count},
        x_label="change of probability" + (" towards the twin's label" if m.directed else ""),
        y_label="images",
        style="steps",
        vline=tolerance,
        vline_label="tolerance",
    )


def _groups(by_group: ByGroup, tolerance: float) -> Bars:
    return Bars(
        title="Change by group",
        caption="Mean change with its 95 % interval, by label and by what the cue was changed from and to.",
        labels=[f"{name} (n = {n})" for name, n in zip(by_group.name, by_group.size, strict=True)],
        series={"change": by_group.mean},
        low={"change": by_group.low},
        high={"change": by_group.high},
        reference=tolerance,
        reference_label="tolerance",
        value_label="mean change of probability",
    )


def _gallery(pictures: Pictures) -> Gallery:
    shown = zip(pictures.pixels, pictures.captions, pictures.change, strict=True)
    return Gallery(
        title="The images that change most",
        caption="Each image beside its twin. Only the cue differs.",
        items=[Picture(png=pixels, caption=caption, values={"change": change}) for pixels, caption, change in shown],
        sort="change",
    )
