"""Flips: does the prediction change when nothing but the cue changes?

A twin is the same image but for the cue. The change of probability between an image and its twin is reliance itself, measured
by intervention: no other audit is needed to interpret it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rightreasons.audits._alignment import alignment_of, say_alignment
from rightreasons.audits._contract import Context, Need, Role, estimate, refuse_mixed_cases
from rightreasons.data import images
from rightreasons.errors import ImageError, NotRun
from rightreasons.evidence import Decisions, Evidence
from rightreasons.findings import Bars, Check, Curves, Exhibit, Finding, Gallery, Picture, Row, Verdict
from rightreasons.stats.means import column_means
from rightreasons.stats.resampling import Interval, subject_codes

QUESTION = "Does the prediction change when nothing but the cue changes?"
ROW: Row = "reliance"

FEWEST_TWINS = 30
TOLERANCE = 0.02  # mean change of probability that counts as reliance
BINS = 40
UNALIGNED = "no row with an aligned label"


def needs() -> tuple[Need, ...]:
    return (
        Need("test", "test", "logits"),
        Need("test", "twin", "logits"),
        Need("test", "audit", "logits", optional=True),
    )


def roles() -> tuple[Role, ...]:
    return ()


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
        words): a cue can disturb answers and draw them nowhere
    pictures : (k, h, 2w, 3) the most changed images beside their twins; k is 0 where images cannot be read
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
    group_mean: np.ndarray
    group_low: np.ndarray
    group_high: np.ndarray
    group_size: np.ndarray
    group_name: tuple[str, ...]
    pictures: np.ndarray
    captions: tuple[str, ...]
    picture_change: np.ndarray
    no_pictures: str


@dataclass(frozen=True)
class Result:
    measurements: tuple[Measurement, ...]
    tolerance: float
    context: Context = field(default_factory=Context)

    @property
    def verdict(self) -> Verdict:
        m = self.measurements[0]
        if m.n < FEWEST_TWINS or np.isnan(m.mean.low):
            return "inconclusive"
        return "shortcut" if m.mean.low > self.tolerance else "no evidence"

    def finding(self) -> Finding:
        m = self.measurements[0]
        return self.context.finding(
            question=QUESTION,
            row=ROW,
            verdict=self.verdict,
            sentence=_sentence(m, self.verdict, self.tolerance),
            estimates=_estimates(m),
            checks=_checks(m),
            exhibits=_exhibits(m, self.tolerance),
        )


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
    if "twin" not in evidence.cohorts:
        raise NotRun("no twins: name the column with the same images but for the cue with twin=", lacks="twins")
    test, twin, without = _paired(evidence)
    a = test.cohort.attribute(attribute) if test.cohort.attributes else None
    if a is not None:
        refuse_mixed_cases(evidence.on("test"), a.name)
    b = twin.cohort.attribute(attribute) if a is not None else None
    same = np.zeros(len(test.label), bool) if a is None or b is None else b.present & (b.values == a.values)
    keep = np.flatnonzero(~same)
    test, twin = test.select(keep), twin.select(keep)
    if not len(keep):
        raise NotRun("every twin has the attribute of its image: nothing was changed", lacks="twins")
    pi, source = alignment_of(evidence, a, aligned)
    difference = twin.probability - test.probability
    absolute = np.abs(difference).sum(axis=1) / 2
    towards = np.array([pi.get(v, -1) for v in b.values[keep].tolist()]) if b is not None else np.full(len(keep), -1)
    directed = bool((towards >= 0).any())
    rows = np.arange(len(keep))
    change = np.where(towards >= 0, difference[rows, towards], np.nan) if directed else absolute
    flipped = test.logits.argmax(axis=1) != twin.logits.argmax(axis=1)
    to_aligned = (
        np.where(towards >= 0, flipped & (twin.logits.argmax(axis=1) == towards), np.nan) if directed else flipped * np.nan
    )
    names = _group_names(test, twin, attribute)
    one_way, drawn = (
        (np.full(len(keep), np.nan), "") if directed else _one_way(twin, difference, attribute, evidence.card.classes)
    )
    columns = {"change": change, "absolute": absolute, "flipped": flipped, "towards": to_aligned, "one way": one_way}
    groups = {name: np.where([name == g for g in names], change, np.nan) for name in sorted(set(names))}
    found = column_means(
        {**columns, **groups},
        rng=rng,
        subject=test.cohort.subject,
        shares=("flipped", "towards"),
        B=B,
        level=level,
        reason=UNALIGNED,
    )
    shown, captions, values, problem = _pictures(test, twin, change, names, evidence.card.classes, pictures)
    return Measurement(
        model=evidence.card.name,
        attribute=a.name if a else "",
        directed=directed,
        aligned=say_alignment(pi, a, evidence),
        aligned_from=source,
        n=int((~np.isnan(change)).sum()),
        n_subjects=None if test.cohort.subject is None else len(np.unique(subject_codes(test.cohort.subject))),
        without_twin=without,
        same_attribute=int(same.sum()),
        without_label=int(np.isnan(change).sum()),
        mean=found["change"],
        absolute=found["absolute"],
        flips=found["flipped"],
        towards=found["towards"],
        one_way=found["one way"],
        drawn=drawn,
        change=change,
        flipped=flipped,
        group=names,
        group_mean=np.array([found[g].value for g in groups]),
        group_low=np.array([found[g].low for g in groups]),
        group_high=np.array([found[g].high for g in groups]),
        group_size=np.array([names.count(g) for g in groups]),
        group_name=tuple(groups),
        pictures=shown,
        captions=captions,
        picture_change=values,
        no_pictures=problem,
    )


def conclude(
    measurements: Mapping[str, Sequence[Measurement]], *, rng: np.random.Generator, tolerance: float = TOLERANCE
) -> Result:
    """`shortcut` when the lower limit of the mean change exceeds `tolerance`."""
    found = tuple(measurements["test"])
    return Result(found, tolerance, Context(attribute=found[0].attribute, n_rows=found[0].n, n_subjects=found[0].n_subjects))


# ---- measuring -----------------------------------------------------------------------------------------------------------


def _paired(evidence: Evidence) -> tuple[Decisions, Decisions, int]:
    """Test decisions and their twins in the same order, and how many test images have none.

    Images are paired before a case's are averaged, so that both sides of a case rest on the same images.
    """
    test, twin = evidence.on("test"), evidence.on("twin")
    ids = test.cohort.id
    place = {i: k for k, i in enumerate(twin.cohort.id)}
    rows = np.array([k for k, i in enumerate(ids) if i in place], dtype=np.int64)
    if not len(rows):
        raise NotRun("no test row has a twin", lacks="twins")
    pair = np.array([place[i] for i in ids[rows]], dtype=np.int64)
    return test.select(rows).decisions(), twin.select(pair).decisions(), len(ids) - len(rows)


def _one_way(twin: Decisions, difference: np.ndarray, attribute: str | None, classes: Sequence[Any]) -> tuple[np.ndarray, str]:
    """Change of every row towards the label that most of the change goes to with one value, and which they are, in words.

    NaN where the attribute has other than two values (there is no one way between more), or is not known.
    """
    b = twin.cohort.attribute(attribute) if twin.cohort.attributes else None
    if b is None or b.kind == "continuous" or len(b.levels) != 2:
        return np.full(len(difference), np.nan), ""
    signed = difference * np.select([b.values == 0, b.values == 1], [-1.0, 1.0], np.nan)[:, None]
    if np.isnan(signed).all():
        return signed[:, 0], ""
    mean = np.nanmean(signed, axis=0)
    label = int(np.abs(mean).argmax())
    sign = 1.0 if mean[label] >= 0 else -1.0
    drawn = f"{twin.cohort.label_name} = {classes[label]} with {b.name} = {b.levels[1 if sign > 0 else 0]}"
    return sign * signed[:, label], drawn


def _group_names(test: Decisions, twin: Decisions, attribute: str | None) -> tuple[str, ...]:
    cohort = test.cohort
    label = [f"{cohort.label_name} = {cohort.classes[y]}" if y >= 0 else "label unknown" for y in cohort.label]
    if not cohort.attributes:
        return tuple(label)
    a, b = cohort.attribute(attribute), twin.cohort.attribute(attribute)
    if a.kind == "continuous":
        return tuple(label)
    level = [str(v) for v in a.levels] + ["unknown"]
    return tuple(f"{y}, {a.name} {level[i]} → {level[j]}" for y, i, j in zip(label, a.values, b.values, strict=True))


def _pictures(
    test: Decisions, twin: Decisions, change: np.ndarray, names: Sequence[str], classes: Sequence[Any], number: int
) -> tuple[np.ndarray, tuple[str, ...], np.ndarray, str]:
    """The most changed pairs, image and twin side by side."""
    none = np.zeros((0, 1, 1, 3), np.uint8)
    if not test.cohort.has_images or number < 1:
        return none, (), np.zeros(0), "the cohort has no images"
    order = np.argsort(-np.nan_to_num(change, nan=-np.inf))[:number]
    geometry = images.Geometry(size=(96, 96), channels=3, mode="border")
    shown = []
    try:
        for row in order:
            pair = [images.load(c.image[row], geometry, root=c.root) for c in (test.cohort, twin.cohort)]
            shown.append(np.concatenate([_eight_bit(p) for p in pair], axis=1))
    except ImageError as error:
        return none, (), np.zeros(0), str(error)
    p, q = test.probability, twin.probability
    captions = tuple(
        f"{names[r]}: decided {classes[p[r].argmax()]} with {p[r].max():.2f}, "
        f"the twin {classes[q[r].argmax()]} with {q[r].max():.2f}"
        for r in order
    )
    return np.stack(shown), captions, change[order], ""


def _eight_bit(pixels: np.ndarray) -> np.ndarray:
    return pixels if pixels.dtype == np.uint8 else np.round(np.clip(pixels, 0, 1) * 255).astype(np.uint8)


# ---- saying --------------------------------------------------------------------------------------------------------------


def _sentence(m: Measurement, verdict: Verdict, tolerance: float) -> str:
    cue = f"“{m.attribute}”" if m.attribute else "the cue"
    if verdict == "inconclusive" and m.n >= FEWEST_TWINS:
        return f"The change has no interval ({m.mean.reason}), so that it cannot be judged."
    if verdict == "inconclusive":
        whose = " whose attribute stands for a label" if m.without_label else ""
        return f"Only {m.n} test images have a twin{whose}; at least {FEWEST_TWINS} are needed to judge."
    how = f"moves the predicted probability by {m.mean.value:.3f} ({m.mean.low:.3f} to {m.mean.high:.3f})"
    where = " towards the label that it stands for" if m.directed else ""
    flips = f" and flips {m.flips.value:.1%} of the decisions"
    if m.drawn:
        flips += f"; {m.one_way.value:.3f} ({m.one_way.low:.3f} to {m.one_way.high:.3f}) of it goes to {m.drawn}"
    if verdict == "shortcut":
        return f"Changing {cue} alone {how}{where}{flips}: the model relies on it."
    if m.directed and m.mean.high < -tolerance:
        return f"Changing {cue} alone {how}{where}{flips}: the model moves against the cue, which is no shortcut through it."
    return f"Changing {cue} alone {how}{where}{flips}: not beyond the tolerance of {tolerance:g}."


def _estimates(m: Measurement) -> list[Any]:
    mean = "mean change of probability" + (" towards the twin's label" if m.directed else "")
    found = [
        estimate(mean, m.mean, ROW, unit="probability", n=m.n),
        estimate("mean absolute change of probability", m.absolute, ROW, unit="probability", n=m.n),
        estimate("decisions that flip", m.flips, ROW, unit="share", n=m.n),
    ]
    if m.directed:
        found.append(estimate("decisions that flip to the twin's label", m.towards, ROW, unit="share", n=m.n))
    if m.drawn:
        note = (
            f"to {m.drawn}, the way that most of it goes; decides nothing: near 0 the cue disturbs answers and draws them nowhere"
        )
        found.append(estimate("change that goes one way", m.one_way, ROW, unit="probability", n=m.n, note=note))
    return found


def _checks(m: Measurement) -> list[Check]:
    return [
        Check(name=f"at least {FEWEST_TWINS} twins", passed=m.n >= FEWEST_TWINS, note=f"{m.n} twins", decides=True),
        Check(
            name="the twin's attribute stands for a label",
            passed=True if m.directed else None,
            note=_say_direction(m),
        ),
        Check(
            name="every test row has a twin with another attribute",
            passed=not (m.without_twin or m.same_attribute),
            note=f"{m.without_twin} without a twin, {m.same_attribute} with the same attribute; left out"
            if m.without_twin or m.same_attribute
            else "",
        ),
    ]


def _say_direction(m: Measurement) -> str:
    if not m.directed:
        return f"{m.aligned_from}; the absolute change is used"
    left = f"; {m.without_label} twins without one left out" if m.without_label else ""
    return f"{m.aligned} ({m.aligned_from}){left}"


def _exhibits(m: Measurement, tolerance: float) -> list[Exhibit]:
    known = m.change[~np.isnan(m.change)]
    low, high = (-1.0, 1.0) if m.directed else (0.0, 1.0)
    count, edges = np.histogram(known, bins=BINS, range=(low, high))
    exhibits: list[Exhibit] = [
        Curves(
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
        ),
        Bars(
            title="Change by group",
            caption="Mean change with its 95 % interval, by label and by what the cue was changed from and to.",
            labels=[f"{g} (n = {n})" for g, n in zip(m.group_name, m.group_size, strict=True)],
            series={"change": m.group_mean},
            low={"change": m.group_low},
            high={"change": m.group_high},
            reference=tolerance,
            reference_label="tolerance",
            value_label="mean change of probability",
        ),
    ]
    if len(m.pictures):
        items = [
            Picture(png=pixels, caption=caption, values={"change": change})
            for pixels, caption, change in zip(m.pictures, m.captions, m.picture_change, strict=True)
        ]
        exhibits.append(
            Gallery(
                title="The images that change most",
                caption="Each image beside its twin. Only the cue differs.",
                items=items,
                sort="change",
            )
        )
    return exhibits
