"""Did it help? One model before and after a mitigation on the same rows, with intervals of the paired difference."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from rightreasons.errors import NotRun
from rightreasons.evidence import Evidence, View
from rightreasons.findings import Cell, Check, Estimate, Exhibit, Finding, Heatmap, Table
from rightreasons.findings.comparisons import Compared, comparison_bars, comparison_table
from rightreasons.stats import groups
from rightreasons.stats.groups import SMALLEST_GROUP
from rightreasons.stats.resampling import Interval, interval, resamples, share_interval, task_rng, whole

QUESTION = "What did the mitigation change?"
WORST_GROUP = "wga"  # the criterion on the card of a mitigation that was selected with the attribute
HELD_OUT = "What did the mitigation gain on the rows that it held out while tuning?"
WORST, BALANCED, ACCURACY, GROUP, FLIP = (
    "worst-group accuracy",
    "balanced accuracy",
    "accuracy",
    "group accuracy",
    "change when the cue is flipped",
)
FLIP_NOTE = "mean distance between the probabilities of an image and of its twin, which differs only in the cue: 0 is no change"

Draws = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Words:
    """Names of the two columns, and the values of their codes; without values the codes themselves are shown."""

    label: str = "label"
    attribute: str = ""
    classes: Sequence[Any] = ()
    levels: Sequence[Any] = ()


@dataclass(frozen=True)
class Pair:
    """What two models decided on the same rows.

    Parameters
    ----------
    label, before, after : (n,) right outputs, and those decided by either model
    attribute : (n,) levels, -1 where missing; None where there are no groups
    twins : (n,) for either model, how far the probabilities of a row's twin are from its own; NaN for rows without a twin
    subject : (n,) whole subjects are resampled
    """

    label: np.ndarray
    before: np.ndarray
    after: np.ndarray
    attribute: np.ndarray | None = None
    twins: tuple[np.ndarray, np.ndarray] | None = None
    subject: np.ndarray | None = None
    words: Words = Words()

    def __len__(self) -> int:
        return len(self.label)

    @property
    def group_sizes(self) -> dict[tuple[Any, Any], int]:
        """Group → rows; empty where there is no attribute."""
        if self.attribute is None:
            return {}
        return groups.group_sizes(self.label, self.attribute)

    def group_name(self, group: tuple[Any, Any]) -> str:
        label, level = group
        if len(self.words.classes):
            label = self.words.classes[int(label)]
        if len(self.words.levels):
            level = self.words.levels[int(level)]
        return f"{self.words.label} = {label}, {self.words.attribute} = {level}"


@dataclass(frozen=True)
class Line:
    """One metric on `n` rows before and after, and its change."""

    metric: str
    group: str
    n: int
    before: Interval
    after: Interval
    difference: Interval


@dataclass(frozen=True)
class Comparison:
    """Metrics of two models on the same rows.

    Attributes
    ----------
    rows : which rows these are, in words
    left_out : groups too small for the worst-group accuracy, in words
    """

    lines: tuple[Line, ...]
    rows: str
    attribute: str
    n_rows: int
    n_subjects: int | None
    left_out: str = ""

    def get(self, metric: str, group: str = "") -> Line:
        return next(line for line in self.lines if (line.metric, line.group) == (metric, group))

    def to_plain(self) -> dict[str, Any]:
        """As plain data, for a model's card."""
        lines = []
        for line in self.lines:
            parts = {part: _plain(getattr(line, part)) for part in _PARTS}
            lines.append({**vars(line), **parts})
        return {**dataclasses.asdict(self), "lines": lines}

    @classmethod
    def from_plain(cls, data: Mapping[str, Any]) -> Comparison:
        """The comparison that `to_plain` wrote, also after a round trip through JSON."""
        lines = []
        for line in data["lines"]:
            parts = {part: _read(line[part]) for part in _PARTS}
            lines.append(Line(**{**line, **parts}))
        return cls(**{**data, "lines": tuple(lines)})


def compare(pair: Pair, *, rng: np.random.Generator, rows: str = "test rows", B: int = 10_000, level: float = 0.95) -> Comparison:
    """Metrics of both models' decisions; every resample is drawn once for both, so that the difference is paired."""
    metrics = _metrics(pair)
    sample = resamples(len(pair), rng=rng, B=B, subject=pair.subject)
    statistics: list[Draws] = []
    for metric in metrics:
        statistics += [metric.before, metric.after]
    drawn = sample.apply(lambda counts: np.stack([draw(counts) for draw in statistics], axis=1))
    once = whole(len(pair))
    units_per_row = sample.units / len(pair)
    lines = []
    for k, metric in enumerate(metrics):
        lines.append(_line(metric, once, (drawn[:, 2 * k], drawn[:, 2 * k + 1]), units_per_row * metric.n, level))
    few = {}
    for group, size in pair.group_sizes.items():
        if size < SMALLEST_GROUP:
            few[group] = size
    return Comparison(
        lines=tuple(lines),
        rows=rows,
        attribute=pair.words.attribute,
        n_rows=len(pair),
        n_subjects=None if pair.subject is None else sample.units,
        left_out="; ".join(f"{pair.group_name(group)}: {size} rows" for group, size in few.items()),
    )


class Change(NamedTuple):
    """What was changed between before and after.

    `question` is the finding's, `by` says what made the change (the mitigation by default), `cohort` names the rows compared.
    """

    question: str = QUESTION
    by: str = ""
    cohort: str = "test"


def remedy(
    before: Evidence,
    after: Evidence,
    *,
    attribute: str | None = None,
    seed: int = 0,
    B: int = 10_000,
    name: str = "remedy",
    mitigation: Mapping[str, Any] | None = None,
    change: Change = Change(),
) -> Finding:
    """What a mitigation changed, from the evidence of both models on the test rows that neither was fitted on.

    Parameters
    ----------
    attribute : the attribute whose groups are compared; the cohort's first by default
    mitigation : `card["mitigation"]` of the new model
    """
    comparison = compare(pair_of(before, after, attribute), rng=task_rng(seed, "remedy"), B=B)
    return finding(
        comparison,
        name=name,
        models=Models(before.card.name, after.card.name),
        mitigation=mitigation,
        seed=seed,
        settings={"B": B},
        change=change,
    )


class Models(NamedTuple):
    """Names of the two models."""

    before: str = ""
    after: str = ""


@dataclass(frozen=True)
class Further:
    """What a mitigation adds to the finding, such as whether its gain is specific to a map."""

    sentence: str = ""
    checks: Sequence[Check] = ()
    exhibits: Sequence[Exhibit] = ()


def finding(
    comparison: Comparison,
    *,
    name: str = "remedy",
    models: Models = Models(),
    mitigation: Mapping[str, Any] | None = None,
    seed: int | None = None,
    settings: Mapping[str, Any] | None = None,
    change: Change = Change(),
    further: Further = Further(),
) -> Finding:
    """A comparison as a finding of the row *remedy*; it describes and gives no verdict."""
    if mitigation:
        card = _without_arrays(mitigation)
    else:
        card = {}
    every_setting = dict(settings or {})
    if models.before:
        every_setting["before"] = models.before
    if card:
        every_setting["mitigation"] = card
    sentence = _sentence(comparison, change.by or str(card.get("method") or "the mitigation"))
    return Finding(
        name=name,
        audit="remedy",
        question=change.question,
        row="remedy",
        verdict=None,
        sentence=f"{sentence} {further.sentence}".strip(),
        estimates=tuple(_estimates(comparison)),
        checks=(*_checks(comparison, card), *further.checks),
        exhibits=(*_exhibits(comparison, models), *further.exhibits),
        settings=every_setting,
        model=models.after,
        cohort=change.cohort,
        attribute=comparison.attribute,
        n_rows=comparison.n_rows,
        n_subjects=comparison.n_subjects,
        seed=seed,
    )


def own_finding(mitigation: Mapping[str, Any], *, name: str = "remedy-held-out", model: str = "", of: str = "") -> Finding | None:
    """What a mitigation measured itself on rows that it held out (`card["mitigation"]["chosen"]`); None if it did not.

    With `random gains`, those of maps with the same values in other places, it says whether the gain is specific to the map.
    """
    chosen = dict(mitigation.get("chosen") or {})
    if "comparison" not in chosen:
        return None
    comparison = Comparison.from_plain(chosen["comparison"])
    if chosen.get("unchanged"):
        unchanged = f"The model handed on is unchanged: {chosen['unchanged']}."
    else:
        unchanged = ""
    gains = [float(gain) for gain in chosen.get("random gains", ())]
    if gains:
        further = _specific_to_the_map(comparison, gains, chosen)
    else:
        further = Further()
    return finding(
        comparison,
        name=name,
        models=Models(of, model),
        mitigation=mitigation,
        change=Change(HELD_OUT, cohort="audit"),
        further=dataclasses.replace(further, sentence=f"{unchanged} {further.sentence}".strip()),
    )


def _specific_to_the_map(comparison: Comparison, gains: Sequence[float], chosen: Mapping[str, Any]) -> Further:
    """Whether the gain exceeds those of all random maps."""
    specific = comparison.lines[0].difference.value > max(gains)
    if specific:
        verdict = "is specific to the map: none of"
    else:
        verdict = "is not specific to the map: at least one of"
    said = f"the gain {verdict} {len(gains)} maps with the same values far from their true places gained as much"
    check = Check(id="specific", name="the gain is specific to the map", passed=specific, note=said)
    sentence = f"{said[0].upper()}{said[1:]} (mean {np.mean(gains):+.3f}, largest {max(gains):+.3f})."
    return Further(sentence, (check,), _random_maps(comparison, gains, chosen))


def _random_maps(comparison: Comparison, gains: Sequence[float], chosen: Mapping[str, Any]) -> list[Exhibit]:
    cost = [float(change) for change in chosen.get("random balanced accuracy", ())]
    line, balanced = comparison.lines[0].difference, comparison.get(BALANCED).difference
    spread, mean_cost, largest_cost = None, None, None
    if len(gains) > 1:
        spread = float(np.std(gains, ddof=1))
    if cost:
        mean_cost, largest_cost = float(np.mean(cost)), max(cost)
    table = Table(
        title="The true map and random ones",
        caption="Random maps have the values of the true map, each moved by at least half an image side, and were tuned in "
        "the same folds. Where they gain as much, any weighting helps, and the place proves nothing.",
        columns=("map", f"gain in {comparison.lines[0].metric}", "change of balanced accuracy"),
        rows=(
            ("true", Cell.of(line), Cell.of(balanced)),
            (f"random, mean of {len(gains)}", float(np.mean(gains)), mean_cost),
            ("random, standard deviation", spread, None),
            ("random, largest", max(gains), largest_cost),
        ),
        highlight=(0,),
    )
    values = np.asarray(chosen.get("map", ()), dtype=np.float64)
    if values.ndim != 2 or not values.any():
        return [table]
    heat = Heatmap(
        title="Where the feature map is weakened",
        caption="The map of the model handed on, at the resolution of the features before pooling: positive places are "
        "weakened, negative ones (form `paper` only) strengthened.",
        values=tuple(map(tuple, values.tolist())),
        scale="diverging" if (values < 0).any() else "sequential",
        value_label="weakened",
    )
    return [table, heat]


def _without_arrays(mitigation: Mapping[str, Any]) -> dict[str, Any]:
    """The card's entry without the arrays that the finding shows itself."""
    chosen = dict(mitigation.get("chosen") or {})
    chosen.pop("comparison", None)
    chosen.pop("map", None)
    return {**mitigation, "chosen": chosen}


# ---- as plain data -------------------------------------------------------------------------------------------------------

_PARTS = ("before", "after", "difference")


def _plain(number: Interval) -> dict[str, Any]:
    """An interval with None for its undefined numbers, as strict JSON requires."""
    return {k: None if isinstance(v, float) and np.isnan(v) else v for k, v in dataclasses.asdict(number).items()}


def _read(data: Mapping[str, Any]) -> Interval:
    fields: dict[str, Any] = {}
    for k, v in data.items():
        fields[k] = float("nan") if v is None else v
    return Interval(**fields)


# ---- comparing -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Metric:
    """One metric on `n` rows, and its values over resamples for either model."""

    name: str
    group: str
    n: int
    before: Draws
    after: Draws


def _metrics(pair: Pair) -> list[_Metric]:
    """Every metric that these rows allow, the one that matters most first."""
    label, attribute = pair.label, pair.attribute

    def metric(name: str, group: str, n: int, draws: Callable[..., np.ndarray], *columns: Any) -> _Metric:
        return _Metric(name, group, n, partial(draws, label, pair.before, *columns), partial(draws, label, pair.after, *columns))

    metrics = [
        metric(ACCURACY, "", len(pair), groups.accuracy_draws),
        metric(BALANCED, "", len(pair), groups.balanced_accuracy_draws),
    ]
    if attribute is not None:
        smallest = min((size for size in pair.group_sizes.values() if size >= SMALLEST_GROUP), default=0)
        metrics.insert(0, metric(WORST, "", smallest, groups.worst_group_accuracy_draws, attribute))
        for k, (group, size) in enumerate(pair.group_sizes.items()):
            metrics.append(metric(GROUP, pair.group_name(group), size, _accuracy_of_group, attribute, k))
    if pair.twins is not None and not np.isnan(pair.twins[0]).all():
        known = int(np.sum(~np.isnan(pair.twins[0])))
        metrics.append(_Metric(FLIP, "", known, partial(_mean, pair.twins[0]), partial(_mean, pair.twins[1])))
    return metrics


def _line(metric: _Metric, once: np.ndarray, draws: tuple[np.ndarray, np.ndarray], units: float, level: float) -> Line:
    """One metric with its intervals, from all rows taken `once` and from the draws before and after."""
    why = ""
    if metric.name == WORST:
        why = f"no group has {SMALLEST_GROUP} rows or more"
    values = float(metric.before(once)[0]), float(metric.after(once)[0])
    if metric.name in (WORST, ACCURACY, GROUP):
        before, after = (share_interval(value, draw, units, level, why) for value, draw in zip(values, draws, strict=True))
    else:
        before, after = (interval(value, draw, level, why) for value, draw in zip(values, draws, strict=True))
    change = interval(values[1] - values[0], draws[1] - draws[0], level, why)
    return Line(metric.name, metric.group, metric.n, before, after, change)


def _accuracy_of_group(label: np.ndarray, predicted: np.ndarray, attribute: np.ndarray, k: int, counts: np.ndarray) -> np.ndarray:
    return np.asarray(groups.group_accuracy_draws(label, predicted, attribute, counts)[:, k])


def _mean(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Mean of the defined values in each resample."""
    known = ~np.isnan(values)
    weight = counts[:, known].astype(np.float64)
    total = weight.sum(axis=1)
    with np.errstate(invalid="ignore"):
        return np.asarray(weight @ values[known] / np.where(total > 0, total, np.nan))


def pair_of(before: Evidence, after: Evidence, attribute: str | None) -> Pair:
    """Both models' decisions on the test rows that they share and that have a label."""
    order = _outputs(before, after)
    rows_before, rows_after = _shared(before.on("test"), after.on("test"))
    decided, changed = rows_before.decisions(), rows_after.decisions()
    cohort = decided.cohort
    keep = decided.label >= 0
    codes, name = None, ""
    levels: Sequence[Any] = ()
    if cohort.attributes:
        a = cohort.attribute(attribute)
        levels, name = a.levels, a.name
        if a.kind == "categorical":
            codes = a.values[keep]
    return Pair(
        label=decided.label[keep],
        before=decided.probability.argmax(axis=1)[keep],
        after=changed.probability[:, order].argmax(axis=1)[keep],
        attribute=codes,
        twins=_twins(before, after, cohort.id[keep], (decided.probability[keep], changed.probability[keep])),
        subject=None if cohort.subject is None else cohort.subject[keep],
        words=Words(before.card.target or cohort.label_name, name, before.card.classes, levels),
    )


def _outputs(before: Evidence, after: Evidence) -> list[int]:
    """For each output of the first model, its position among those of the second."""
    first, second = before.card, after.card
    if first.target != second.target or sorted(map(str, first.classes)) != sorted(map(str, second.classes)):
        raise NotRun(
            f"{first.name} answers {first.target or 'the label'} with {list(first.classes)} and {second.name} "
            f"{second.target or 'the label'} with {list(second.classes)}: "
            "only models that answer the same question can be compared"
        )
    place = [str(value) for value in second.classes]
    return [place.index(str(value)) for value in first.classes]


def _shared(before: View, after: View) -> tuple[View, View]:
    """The rows that both have, in one order."""
    rows_before, rows_after = before.matched(after)
    if not len(rows_before):
        raise NotRun("no test row is new to both models: give test rows that neither was fitted or tuned on")
    return before.select(rows_before), after.select(rows_after)


def _twins(
    before: Evidence, after: Evidence, ids: np.ndarray, probabilities: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray] | None:
    """(n,) total variation between the probabilities of every row and of its twin, for both models; None without twins."""
    if any("twin" not in e.cohorts or "logits" not in e.arrays("twin") for e in (before, after)):
        return None
    distances = []
    for evidence, own in zip((before, after), probabilities, strict=True):
        twin = evidence.on("twin").decisions()
        place = {i: k for k, i in enumerate(twin.cohort.id)}
        rows = np.array([place.get(i, -1) for i in ids])
        distance = np.full(len(ids), np.nan)
        known = rows >= 0
        distance[known] = 0.5 * np.abs(twin.probability[rows[known]] - own[known]).sum(axis=1)
        distances.append(distance)
    return distances[0], distances[1]


# ---- words and exhibits --------------------------------------------------------------------------------------------------


def _sentence(comparison: Comparison, method: str) -> str:
    line = comparison.lines[0]
    if np.isnan(line.difference.value):
        return f"The {line.metric} is undefined on these rows: {line.difference.reason}."
    said = (
        f"{method} takes the {line.metric} from {line.before.value:.3f} to {line.after.value:.3f} on {comparison.n_rows} "
        f"{comparison.rows} (change {_signed(line.difference)})"
    )
    low, high = line.difference.low, line.difference.high
    sure = "which chance alone could explain"
    if low > 0:
        sure = "a gain beyond chance"
    elif high < 0:
        sure = "a loss beyond chance"
    cost = ""
    if line.metric == WORST:
        cost = f"; the balanced accuracy changes by {_signed(comparison.get(BALANCED).difference)}"
    return f"{said[0].upper()}{said[1:]}, {sure}{cost}."


def _signed(change: Interval) -> str:
    if np.isnan(change.low):
        limits = ""
    else:
        limits = f", {change.low:+.3f} to {change.high:+.3f}"
    return f"{change.value:+.3f}{limits}"


def _estimates(comparison: Comparison) -> list[Estimate]:
    """The change of every metric; its values before and after too, except by group, where the table has them."""
    estimates = []
    for line in comparison.lines:
        group = "change by group" if line.group else "all rows"
        note = "after minus before, on the same resampled rows"
        name = line.group or f"{line.metric}, difference"
        estimates.append(Estimate.of(name, line.difference, "remedy", n=line.n, group=group, note=note))
        if line.group:
            continue
        for when, number in (("before", line.before), ("after", line.after)):
            note = FLIP_NOTE if line.metric == FLIP else ""
            estimates.append(Estimate.of(f"{line.metric}, {when}", number, "remedy", n=line.n, group=group, note=note))
    return estimates


def _checks(comparison: Comparison, card: Mapping[str, Any]) -> list[Check]:
    left_out = ""
    if comparison.left_out:
        left_out = f"left out of the worst-group accuracy: {comparison.left_out}"
    checks = [Check(id="group sizes", name="every group is large enough", passed=not left_out, note=left_out)]
    if card:
        by = str(card.get("selected_by", ""))
        note = f"selected by {by}" if by else ""
        by_groups = card.get("criterion") == WORST_GROUP
        checks.append(Check(id="selection", name="selected with the attribute", passed=by_groups, note=note))
    return checks


def _exhibits(comparison: Comparison, models: Models) -> list[Exhibit]:
    before, after = models.before or "before", models.after or "after"
    table = comparison_table(
        title="Before and after",
        caption=f"{before} and {after} on {comparison.n_rows} {comparison.rows}. The difference is resampled on the same "
        "rows for both: a difference can be clear although the two intervals overlap.",
        heads=("metric", "group", "rows"),
        sides=("before", "after"),
        lines=[
            Compared((line.metric, line.group or "all rows", line.n), line.before, line.after, line.difference)
            for line in comparison.lines
        ],
        highlight=(0,),
    )
    by_group = [line for line in comparison.lines if line.metric == GROUP]
    if not by_group:
        return [table]
    bars = comparison_bars(
        title="Accuracy by group, before and after",
        caption="A shortcut shows in the groups whose attribute speaks against the label. A remedy raises those; what the others "
        "lose is its price.",
        sides=("before", "after"),
        lines=[Compared((line.group,), line.before, line.after, line.difference) for line in by_group],
        labels=[line.group for line in by_group],
        value_label="accuracy",
    )
    return [table, bars]
