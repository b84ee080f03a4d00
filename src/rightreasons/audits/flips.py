"""Flips: does the prediction change when nothing but the cue changes?

A twin is the same image but for the cue. The change of probability between an image and its twin is reliance itself, measured
by intervention: no other audit is needed to interpret it.

A change can draw answers one way or merely disturb them. Where the twin's attribute stands for a label, the change towards that
label decides. Where it stands for none, the part that goes one way decides, in a direction learnt on other twins
(`stats.one_way`); the rest is fragility, which has no vote.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np

from rightreasons.audits._alignment import alignment_of, say_alignment
from rightreasons.audits._contract import Context, Need, OneModelResult, Role
from rightreasons.audits._rows import refuse_mixed_cases
from rightreasons.data import images
from rightreasons.data.cohort import Attribute, Cohort
from rightreasons.errors import ImageError, NotRun
from rightreasons.evidence import Decisions, Evidence, View
from rightreasons.findings import Bars, Check, Curves, Estimate, Exhibit, Gallery, Picture, Row, Standing, Verdict
from rightreasons.stats.bootstrap_means import column_means
from rightreasons.stats.one_way import Steps, halves, one_way, ways
from rightreasons.stats.resampling import Interval, limits_of, subject_codes

QUESTION = "Does the prediction change when nothing but the cue changes?"
ROW: Row = "reliance"

FEWEST_TWINS = 30
TOLERANCE = 0.02  # mean change of probability that counts as reliance
BINS = 40
PIXELS = 96  # height and width of a picture of the gallery
UNALIGNED = "no row with an aligned label"
NOT_TOLD = "the attribute of the twins is not told: give twin_attribute="
# What the one-way part must reach where the attribute stands for no label. Nothing in the training rows rewards its use there,
# and trainings find a little by chance (up to 0.2 in planted worlds): it is the size that audits without twins can exclude.
SEEN = 0.1
MOST_NAMED = 3  # directions that a sentence names

Deciding: TypeAlias = Literal["label", "one way", "absolute"]
"""Which change decides: towards the label that the twin's attribute stands for; one way; or any, where no attribute is known."""


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
    decides : which change decides
    change : (n,) the change that decides, NaN where it is not defined
    flipped : (n,) whether the decision differs
    group : (n,) "label, attribute → the twin's attribute"
    mean : of the change that decides
    disturbed : the part of the absolute change that goes elsewhere: fragility
    drawn : where the one-way part decides, which way that is, in words
    """

    model: str
    attribute: str
    decides: Deciding
    aligned: str
    aligned_from: str
    n: int
    n_subjects: int | None
    without_twin: int
    same_attribute: int
    undefined: int
    mean: Interval
    absolute: Interval
    flips: Interval
    towards: Interval
    disturbed: Interval
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
    aligned : attribute value → the label it stands for; learnt as in `groups` by default. Where nothing is aligned the part of
        the change that goes one way counts, and without an attribute the absolute change (half the sum over classes).
    pictures : pairs shown, the most changed first
    """
    pairs = pairs_of(evidence, attribute)
    pi, source = alignment_of(evidence, pairs.attribute, aligned)
    subject = pairs.test.cohort.subject
    changes = changes_of(pairs, pi, evidence.card.classes, rng)
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
        reason=UNALIGNED if changes.decides == "label" else NOT_TOLD,
    )
    shown, no_pictures = _pictures(pairs, changes.change, groups, evidence.card.classes, pictures)
    undirected = np.isnan(changes.change)
    return Measurement(
        model=evidence.card.name,
        attribute=pairs.attribute.name if pairs.attribute else "",
        decides=changes.decides,
        aligned=say_alignment(pi, pairs.attribute, evidence),
        aligned_from=source,
        n=int((~undirected).sum()),
        n_subjects=None if subject is None else len(np.unique(subject_codes(subject))),
        without_twin=pairs.without_twin,
        same_attribute=pairs.same_attribute,
        undefined=int(undirected.sum()),
        mean=means["change"],
        absolute=means["absolute"],
        flips=means["flipped"],
        towards=means["towards"],
        disturbed=means["disturbed"],
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
    without_twin, same_attribute : test images left out; one whose twin is the image itself has none
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
    rows, twin_rows = test_view.matched(twin_view)
    if not len(rows):
        raise NotRun("no test row has a twin: fill in the column of twins for test rows", lacks="twins")
    differs = ~_is_itself(test_view.select(rows), twin_view.select(twin_rows))
    if not differs.any():
        raise NotRun("every twin is its image, byte for byte: nothing was changed", lacks="twins")
    rows, twin_rows = rows[differs], twin_rows[differs]
    test, twin = test_view.select(rows).decisions(), twin_view.select(twin_rows).decisions()
    without_twin = len(test_view) - len(rows)
    if not test.cohort.attributes:
        return Pairs(test, twin, None, None, without_twin, 0)
    a = test.cohort.attribute(attribute)
    refuse_mixed_cases(test_view, a.name)
    b = _of_twins(test.cohort, a, twin.cohort.attribute(attribute))
    same = b.present & (b.values == a.values)
    if same.all():
        raise NotRun("every twin has the attribute of its image: nothing was changed", lacks="twins")
    keep = np.flatnonzero(~same)
    test, twin = test.select(keep), twin.select(keep)
    a = test.cohort.attribute(attribute)
    b = _of_twins(test.cohort, a, twin.cohort.attribute(attribute))
    return Pairs(test, twin, a, b, without_twin, int(same.sum()))


def _is_itself(test: View, twin: View) -> np.ndarray:
    """(n,) whether a twin is its image, byte for byte. Files are read only where the outputs are equal to the bit."""
    found = np.zeros(len(test.cohort), dtype=bool)
    equal = np.flatnonzero((test["logits"] == twin["logits"]).all(axis=1))
    if not len(equal) or not (test.cohort.has_images and twin.cohort.has_images):
        return found
    one, other = test.cohort.select(equal), twin.cohort.select(equal)
    try:
        found[equal] = one.digests == other.digests
    except ImageError:  # evidence is also audited where its images no longer lie
        found[equal] = one.image == other.image
    return found


def _of_twins(cohort: Cohort, a: Attribute, b: Attribute) -> Attribute:
    """The attribute of the twins: where it is not given and the table's only attribute has two values, the other value."""
    if b.present.any() or len(cohort.attributes) > 1 or a.kind == "continuous" or len(a.levels) != 2:
        return b
    return Attribute(a.name, a.kind, np.where(a.present, 1 - a.values, a.values), a.levels)


@dataclass(frozen=True)
class Changes:
    """How every prediction changes from an image to its twin, (n,) each; NaN where it is not defined.

    Attributes
    ----------
    decides, change, drawn : see `Measurement`
    towards : whether the decision flips to the label that the twin's attribute stands for
    """

    decides: Deciding
    change: np.ndarray
    absolute: np.ndarray
    flipped: np.ndarray
    towards: np.ndarray
    drawn: str = ""

    def columns(self) -> dict[str, np.ndarray]:
        return {
            "change": self.change,
            "absolute": self.absolute,
            "flipped": self.flipped,
            "towards": self.towards,
            "disturbed": self.absolute - self.change,
        }


def changes_of(pairs: Pairs, aligned: Mapping[Hashable, Hashable], classes: Sequence[Any], rng: np.random.Generator) -> Changes:
    """The change of probability from each image to its twin: towards what the twin's attribute stands for, or one way."""
    difference = pairs.twin.probability - pairs.test.probability
    n = len(difference)
    absolute = np.abs(difference).sum(axis=1) / 2
    decided, twin_decided = pairs.test.logits.argmax(axis=1), pairs.twin.logits.argmax(axis=1)
    flipped = decided != twin_decided
    undefined = np.full(n, np.nan)
    if pairs.twin_attribute is None:
        return Changes("absolute", absolute, absolute, flipped, undefined)
    label = np.array([aligned.get(value, -1) for value in pairs.twin_attribute.values.tolist()])  # the twin's
    if not (label >= 0).any():
        change, drawn = _one_way(pairs, difference, classes, rng)
        return Changes("one way", change, absolute, flipped, undefined, drawn)
    change = np.where(label >= 0, difference[np.arange(n), label], np.nan)
    towards = np.where(label >= 0, flipped & (twin_decided == label), np.nan)
    return Changes("label", change, absolute, flipped, towards)


def _one_way(pairs: Pairs, difference: np.ndarray, classes: Sequence[Any], rng: np.random.Generator) -> tuple[np.ndarray, str]:
    """Change of every row in the direction that the other half of the twins shows, and which that is over all, in words."""
    steps = steps_of(pairs)
    first = halves(len(difference), pairs.test.cohort.subject, rng)
    change = one_way(difference, steps, first)
    return change, _say_ways(pairs, difference, steps, classes)


def steps_of(pairs: Pairs) -> Steps:
    """Which values the attribute went between, and which way; a number goes up or down."""
    a, b = pairs.attribute, pairs.twin_attribute
    if a is None or b is None:
        unknown = np.full(len(pairs.test.label), -1)
        return Steps(unknown, unknown.astype(np.float64))
    known = a.present & b.present
    before, after = np.where(known, a.values, 0), np.where(known, b.values, 0)
    sign = np.sign(after - before).astype(np.float64)
    if a.kind == "continuous":
        step = np.zeros(len(sign), dtype=np.int64)
    else:
        step = np.minimum(before, after).astype(np.int64) * len(a.levels) + np.maximum(before, after).astype(np.int64)
    return Steps(np.where(known & (sign != 0), step, -1), sign)


def _say_ways(pairs: Pairs, difference: np.ndarray, steps: Steps, classes: Sequence[Any]) -> str:
    """Where answers go with which value, of the steps that most twins make."""
    a = pairs.attribute
    way_of = ways(difference, steps, np.ones(len(difference), dtype=bool))
    often = sorted(way_of, key=lambda step: -int((steps.step == step).sum()))
    named = []
    for step in often[:MOST_NAMED]:
        way = way_of[step]
        value = _say_value(a, step, rises=way.sign > 0)
        named.append(f"{pairs.twin.cohort.label_name} = {classes[way.label]} with {value}")
    said = "; ".join(named)
    if len(often) > MOST_NAMED:
        said += f" and {len(often) - MOST_NAMED} more"
    return said


def _say_value(a: Attribute | None, step: int, *, rises: bool) -> str:
    """Which value answers go with, of the two that a step lies between."""
    if a is None or a.kind == "continuous":
        direction = "higher" if rises else "lower"
        return f"{direction} {a.name if a else 'values'}"
    other, value = divmod(step, len(a.levels))
    if not rises:
        value, other = other, value
    if len(a.levels) == 2:
        return f"{a.name} = {a.levels[value]}"
    return f"{a.name} = {a.levels[value]} rather than {a.levels[other]}"


def _group_names(pairs: Pairs) -> tuple[str, ...]:
    """Label of every row, and what the cue was changed from and to."""
    cohort = pairs.test.cohort
    labels = []
    for y in cohort.label:
        labels.append(f"{cohort.label_name} = {cohort.classes[y]}" if y >= 0 else "label unknown")
    a, b = pairs.attribute, pairs.twin_attribute
    if a is None or b is None or a.kind == "continuous":
        return tuple(labels)
    level = [str(v) for v in a.levels] + ["unknown"]
    return tuple(f"{y}, {a.name} {level[i]} → {level[j]}" for y, i, j in zip(labels, a.values, b.values, strict=True))


def _by_group(means: Mapping[str, Interval], groups: Sequence[str]) -> ByGroup:
    mean, low, high = limits_of(means.values()).T
    return ByGroup(tuple(means), mean, low, high, size=np.array([groups.count(name) for name in means]))


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
    measurements: Mapping[str, Sequence[Measurement]],
    *,
    rng: np.random.Generator,
    tolerance: float = TOLERANCE,
    seen: float = SEEN,
) -> Result:
    """`shortcut` when the lower limit of the mean change exceeds `tolerance`.

    Where the one-way part decides, its mean must also reach `seen`, and there is no evidence where the upper limit stays below.
    """
    models = tuple(measurements["test"])
    first = models[0]
    context = Context(attribute=first.attribute, n_rows=first.n, n_subjects=first.n_subjects)
    return Result(models, context, tolerance=tolerance, seen=seen)


@dataclass(frozen=True)
class Result(OneModelResult[Measurement]):
    """What twins say of one model."""

    question: ClassVar[str] = QUESTION
    row: ClassVar[Row] = ROW
    standing: ClassVar[Standing] = "intervention"

    tolerance: float = TOLERANCE
    seen: float = SEEN

    @property
    def verdict(self) -> Verdict:
        m = self.first
        if m.n < FEWEST_TWINS or np.isnan(m.mean.low):
            return "inconclusive"
        if m.decides == "one way":
            return self._one_way_verdict(m)
        if m.mean.low > self.tolerance:
            return "shortcut"
        return "no evidence"

    def _one_way_verdict(self, m: Measurement) -> Verdict:
        if m.mean.low > self.tolerance and m.mean.value >= self.seen:
            return "shortcut"
        if m.mean.high < self.seen:
            return "no evidence"
        return "inconclusive"

    def is_fragile(self, m: Measurement) -> bool:
        """Whether changing the cue surely disturbs answers that it draws nowhere."""
        return m.decides != "absolute" and bool(m.disturbed.low > self.tolerance)

    def sentence(self, m: Measurement) -> str:
        if m.n < FEWEST_TWINS:
            return f"Only {m.n} test images have a twin{_whose(m)}; at least {FEWEST_TWINS} are needed to judge."
        if np.isnan(m.mean.low):
            return f"The change has no interval ({m.mean.reason}), so it cannot be judged."
        cue = f"“{m.attribute}”" if m.attribute else "the cue"
        if m.decides == "one way":
            said = f"Changing {cue} alone draws the predicted probability one way by {m.mean:.3f} ({m.drawn})"
        else:
            where = " towards the label that it stands for" if m.decides == "label" else ""
            said = f"Changing {cue} alone moves the predicted probability by {m.mean:.3f}{where}"
        said += f" and flips {m.flips.value:.1%} of the decisions"
        fragile = ""
        if self.is_fragile(m):
            fragile = f" Answers are also fragile: a further change of {m.disturbed:.3f} follows no direction."
        return f"{said}: {self._meaning(m, cue)}.{fragile}"

    def _meaning(self, m: Measurement, cue: str) -> str:
        if self.verdict == "shortcut":
            return "the model relies on it"
        if m.decides == "one way":
            if self.verdict == "inconclusive":
                return f"that could be {self.seen:g} or more, or less"
            return f"that is less than {self.seen:g}, and {cue} stands for no label"
        if m.decides == "label" and m.mean.high < -self.tolerance:
            return "the model moves against the cue, which is not a shortcut"
        return f"not beyond the tolerance of {self.tolerance:g}"

    def estimates(self, m: Measurement) -> list[Estimate]:
        names = {
            "label": "mean change of probability towards the twin's label",
            "one way": "change that goes one way",
            "absolute": "mean change of probability",
        }
        note = f"{m.drawn}; the direction is learnt on the other half of the twins" if m.decides == "one way" else ""
        shown = [
            Estimate.of(names[m.decides], m.mean, ROW, unit="probability", n=m.n, note=note),
            Estimate.of("mean absolute change of probability", m.absolute, ROW, unit="probability", n=m.n),
            Estimate.of("decisions that flip", m.flips, ROW, unit="share", n=m.n),
        ]
        if m.decides == "label":
            shown.append(Estimate.of("decisions that flip to the twin's label", m.towards, ROW, unit="share", n=m.n))
        if m.decides != "absolute":
            note = "of the absolute change: the cue disturbs these answers without drawing them; it has no vote"
            name = "fragility: change that goes no one way"
            shown.append(Estimate.of(name, m.disturbed, ROW, unit="probability", n=m.n, note=note))
        return shown

    def checks(self, m: Measurement) -> list[Check]:
        left_out = f"{m.without_twin} without a twin of its own, {m.same_attribute} with the same attribute; left out"
        complete = not (m.without_twin or m.same_attribute)
        checks = [
            Check(
                id="twins",
                name=f"at least {FEWEST_TWINS} twins",
                passed=m.n >= FEWEST_TWINS,
                note=f"{m.n} twins{_whose(m)}",
                decides=True,
            ),
            Check(
                id="direction",
                name="the twin's attribute stands for a label",
                passed=True if m.decides == "label" else None,
                note=_say_direction(m),
            ),
            Check(
                id="complete rows",
                name="every test row has a twin with another attribute",
                passed=complete,
                note="" if complete else left_out,
            ),
        ]
        if m.decides == "one way":
            wide = f"the interval holds {self.seen:g}: more twins would help"
            decided = self.verdict != "inconclusive"
            checks.append(
                Check(
                    id="power",
                    name=f"{self.seen:g} one way could be told from less",
                    passed=decided if m.n >= FEWEST_TWINS else None,
                    note="" if decided else wide,
                    decides=True,
                )
            )
        return checks

    def exhibits(self, m: Measurement) -> list[Exhibit]:
        exhibits: list[Exhibit] = [change_curves(m, self.tolerance), group_bars(m.by_group, self.tolerance)]
        if len(m.pictures.pixels):
            exhibits.append(twin_gallery(m.pictures))
        return exhibits


def _whose(m: Measurement) -> str:
    """What twins must have to count, where some do not."""
    if not m.undefined:
        return ""
    return {"label": " whose attribute stands for a label", "one way": " whose attribute is known"}.get(m.decides, "")


def _say_direction(m: Measurement) -> str:
    if m.decides == "absolute":
        return "no attribute is known: the absolute change is used, and being drawn cannot be told from being disturbed"
    if m.decides == "one way":
        left = f"; {m.undefined} twins left out: {NOT_TOLD}" if m.undefined else ""
        return f"{m.aligned_from}; the part of the change that goes one way is used{left}"
    left = f"; {m.undefined} twins without one left out" if m.undefined else ""
    return f"{m.aligned} ({m.aligned_from}){left}"


TOWARDS = {"label": " towards the twin's label", "one way": " one way", "absolute": ""}


def change_curves(m: Measurement, tolerance: float) -> Curves:
    known = m.change[~np.isnan(m.change)]
    count, edges = np.histogram(known, bins=BINS, range=(0.0 if m.decides == "absolute" else -1.0, 1.0))
    return Curves(
        title="How much each prediction changes",
        caption="Images by the change of probability between them and their twins. A model that does not use the cue has "
        "them all at 0.",
        x=(edges[:-1] + edges[1:]) / 2,
        series={"images": count},
        x_label="change of probability" + TOWARDS[m.decides],
        y_label="images",
        style="steps",
        vline=tolerance,
        vline_label="tolerance",
    )


def group_bars(by_group: ByGroup, tolerance: float) -> Bars:
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


def twin_gallery(pictures: Pictures) -> Gallery:
    shown = zip(pictures.pixels, pictures.captions, pictures.change, strict=True)
    return Gallery(
        title="The images that change most",
        caption="Each image beside its twin. Only the cue differs.",
        items=[Picture(png=pixels, caption=caption, values={"change": change}) for pixels, caption, change in shown],
        sort="change",
    )
