"""Did it help? One model before and after a mitigation on the same rows, with intervals of the paired difference."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rightreasons.errors import NotRun
from rightreasons.evidence import Evidence, View
from rightreasons.findings import Bars, Cell, Check, Estimate, Exhibit, Finding, Heatmap, Table
from rightreasons.stats import groups
from rightreasons.stats.groups import SMALLEST_GROUP
from rightreasons.stats.resampling import Interval, interval, resamples, share_interval, task_rng, whole

QUESTION = "What did the mitigation change?"
HELD_OUT = "What did the mitigation gain on rows that it held out while it was tuned?"
WORST, BALANCED, ACCURACY, GROUP, FLIP = (
    "worst-group accuracy",
    "balanced accuracy",
    "accuracy",
    "group accuracy",
    "change when the cue is flipped",
)
FLIP_NOTE = "mean distance between the probabilities of an image and of its twin, which differs in the cue only: 0 is no change"

Draws = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Line:
    """One metric before and after, and its change; `n` rows."""

    metric: str
    group: str
    n: int
    before: Interval
    after: Interval
    difference: Interval


@dataclass(frozen=True)
class Comparison:
    """The same rows before and after.

    Attributes
    ----------
    rows : which rows these are, in words
    left_out : groups that are too small for the worst-group accuracy, in words
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
        return {
            **dataclasses.asdict(self),
            "lines": [{**vars(line), **{part: _plain(getattr(line, part)) for part in _PARTS}} for line in self.lines],
        }

    @classmethod
    def from_plain(cls, told: Mapping[str, Any]) -> Comparison:
        """What `to_plain` gave, also after JSON."""
        lines = tuple(Line(**{**line, **{part: _read(line[part]) for part in _PARTS}}) for line in told["lines"])
        return cls(**{**told, "lines": lines})


def compare(
    label: np.ndarray,
    before: np.ndarray,
    after: np.ndarray,
    attribute: np.ndarray | None = None,
    *,
    rng: np.random.Generator,
    twins: tuple[np.ndarray, np.ndarray] | None = None,
    subject: np.ndarray | None = None,
    rows: str = "test rows",
    names: tuple[Sequence[Any], Sequence[Any]] = ((), ()),
    columns: tuple[str, str] = ("label", ""),
    B: int = 10_000,
    level: float = 0.95,
) -> Comparison:
    """Metrics of two sets of decisions on the same rows; every resample is drawn once for both, so the difference is paired.

    Parameters
    ----------
    label, before, after : (n,) right and decided outputs
    attribute : (n,) levels, -1 where missing; None where there are no groups
    twins : (n,) how far the probabilities of each row's twin are away, before and after; NaN for rows without one
    subject : (n,) whole subjects are drawn
    names, columns : values of outputs and levels, and the names of the two columns
    """
    entries = _entries(label, (before, after), attribute, twins, names, columns)
    sample = resamples(len(label), rng=rng, B=B, subject=subject)
    drawn = sample.apply(lambda counts: np.stack([draw(counts) for _, _, _, pair in entries for draw in pair], axis=1))
    once = whole(len(label))
    weight = sample.units / len(label)
    lines = []
    for k, (metric, group, n, pair) in enumerate(entries):
        values = [float(draw(once)[0]) for draw in pair]
        draws = drawn[:, 2 * k], drawn[:, 2 * k + 1]
        why = f"no group of at least {SMALLEST_GROUP} rows" if metric == WORST else ""
        shares = metric in (WORST, ACCURACY, GROUP)
        each = [
            share_interval(value, draw, weight * n, level, why) if shares else interval(value, draw, level, why)
            for value, draw in zip(values, draws, strict=True)
        ]
        change = interval(values[1] - values[0], draws[1] - draws[0], level, why)
        lines.append(Line(metric, group, n, each[0], each[1], change))
    units = None if subject is None else sample.units
    return Comparison(tuple(lines), rows, columns[1], len(label), units, _small(label, attribute, names, columns))


def remedy(
    before: Evidence,
    after: Evidence,
    *,
    attribute: str | None = None,
    seed: int = 0,
    B: int = 10_000,
    name: str = "remedy",
    mitigation: Mapping[str, Any] | None = None,
    question: str = QUESTION,
    change: str = "",
) -> Finding:
    """The finding of a mitigation from the evidence of both models on the test rows that neither was fitted on.

    Parameters
    ----------
    attribute : whose groups are compared; the cohort's first by default
    mitigation : `card["mitigation"]` of the new model
    change : what made the difference, in words; the mitigation by default
    """
    order = _outputs(before, after)
    one, other = _shared(before.on("test"), after.on("test"))
    decided, changed = one.decisions(), other.decisions()
    a = decided.cohort.attribute(attribute) if decided.cohort.attributes else None
    codes = a.values if a is not None and a.kind == "categorical" else None
    keep = decided.label >= 0
    comparison = compare(
        decided.label[keep],
        decided.probability.argmax(axis=1)[keep],
        changed.probability[:, order].argmax(axis=1)[keep],
        None if codes is None else codes[keep],
        rng=task_rng(seed, "remedy"),
        twins=_twins(before, after, decided.cohort.id[keep], decided, changed, keep),
        subject=None if decided.cohort.subject is None else decided.cohort.subject[keep],
        names=(before.card.classes, () if a is None else a.levels),
        columns=(before.card.target or decided.cohort.label_name, "" if a is None else a.name),
        B=B,
    )
    return finding(
        comparison,
        name=name,
        model=after.card.name,
        of=before.card.name,
        mitigation=mitigation,
        seed=seed,
        settings={"B": B},
        question=question,
        change=change,
    )


def finding(
    comparison: Comparison,
    *,
    name: str = "remedy",
    model: str = "",
    of: str = "",
    mitigation: Mapping[str, Any] | None = None,
    seed: int | None = None,
    settings: Mapping[str, Any] | None = None,
    checks: Sequence[Check] = (),
    exhibits: Sequence[Exhibit] = (),
    more: str = "",
    question: str = QUESTION,
    change: str = "",
) -> Finding:
    """A comparison as a finding of the row *remedy*; it describes and gives no verdict.

    Parameters
    ----------
    more : a further sentence, such as whether the gain is specific to a map
    change : what made the difference, in words; the mitigation by default
    """
    told = _without_arrays(mitigation or {}) if mitigation else {}
    method = change or str(told.get("method") or "the mitigation")
    return Finding(
        name=name,
        audit="remedy",
        question=question,
        row="remedy",
        verdict=None,
        sentence=" ".join(part for part in (_sentence(comparison, method), more) if part),
        estimates=tuple(_estimates(comparison)),
        checks=(*_checks(comparison, told), *checks),
        exhibits=(*_exhibits(comparison, of or "before", model or "after"), *exhibits),
        settings={**dict(settings or {}), **({"before": of} if of else {}), **({"mitigation": told} if told else {})},
        model=model,
        cohort="test" if comparison.rows == "test rows" else "audit",
        attribute=comparison.attribute,
        n_rows=comparison.n_rows,
        n_subjects=comparison.n_subjects,
        seed=seed,
    )


def own_finding(mitigation: Mapping[str, Any], *, name: str = "remedy-held-out", model: str = "", of: str = "") -> Finding | None:
    """What a mitigation measured itself on rows that it held out (`card["mitigation"]["chosen"]`); None where it did not.

    With `random gains`, those of maps with the same values in other places, it says whether the gain is specific to the map.
    """
    chosen = dict(mitigation.get("chosen") or {})
    if "comparison" not in chosen:
        return None
    comparison = Comparison.from_plain(chosen["comparison"])
    gains = [float(g) for g in chosen.get("random gains", ())]
    more = f"The model handed on is unchanged: {chosen['unchanged']}." if chosen.get("unchanged") else ""
    exhibits: list[Exhibit] = []
    checks: list[Check] = []
    if gains:
        gain = comparison.lines[0].difference.value
        specific = gain > max(gains)
        verdict = "is specific to the map: none of" if specific else "is not specific to the map: at least one of"
        told = f"{verdict} {len(gains)} maps with the same values far from where they belong gained as much"
        more = f"{more} The gain {told} (mean {np.mean(gains):+.3f}, largest {max(gains):+.3f}).".strip()
        checks.append(Check(name="the gain is specific to the map", passed=specific, note=f"the gain {told}"))
        exhibits += _random_maps(comparison, gains, chosen)
    return finding(
        comparison,
        name=name,
        model=model,
        of=of,
        mitigation=mitigation,
        checks=checks,
        exhibits=exhibits,
        more=more,
        question=HELD_OUT,
    )


def _random_maps(comparison: Comparison, gains: Sequence[float], chosen: Mapping[str, Any]) -> list[Exhibit]:
    cost = [float(g) for g in chosen.get("random balanced accuracy", ())]
    line, balanced = comparison.lines[0].difference, comparison.get(BALANCED).difference
    spread = float(np.std(gains, ddof=1)) if len(gains) > 1 else np.nan
    table = Table(
        title="The true map and random ones",
        caption="Random maps have the values of the true one, each at least half the side of the image from where it belongs, "
        "and were tuned in the same folds. Where they gain as much, weighting as such helps and the place is no evidence.",
        columns=("map", f"gain in {comparison.lines[0].metric}", "change of balanced accuracy"),
        rows=(
            (
                "true",
                Cell(value=line.value, low=line.low, high=line.high),
                Cell(value=balanced.value, low=balanced.low, high=balanced.high),
            ),
            (f"random, mean of {len(gains)}", float(np.mean(gains)), float(np.mean(cost)) if cost else None),
            ("random, standard deviation", None if np.isnan(spread) else spread, None),
            ("random, largest", max(gains), max(cost) if cost else None),
        ),
        highlight=(0,),
    )
    values = np.asarray(chosen.get("map", ()), dtype=np.float64)
    if values.ndim != 2 or not values.any():
        return [table]
    heat = Heatmap(
        title="Where the feature map is weakened",
        caption="The map of the model handed on, at the resolution of the features before the pool: positive places are "
        "weakened, negative ones (form `paper` only) strengthened.",
        values=tuple(tuple(float(v) for v in row) for row in values),
        scale="diverging" if (values < 0).any() else "sequential",
        value_label="weakened",
    )
    return [table, heat]


def _without_arrays(mitigation: Mapping[str, Any]) -> dict[str, Any]:
    """The card's entry without the tables that stand in the finding themselves."""
    chosen = {k: v for k, v in dict(mitigation.get("chosen") or {}).items() if k not in ("comparison", "map")}
    return {**mitigation, "chosen": chosen}


# ---- as plain data -------------------------------------------------------------------------------------------------------

_PARTS = ("before", "after", "difference")


def _plain(found: Interval) -> dict[str, Any]:
    """An interval whose undefined numbers are None, as strict JSON wants them."""
    return {k: None if isinstance(v, float) and np.isnan(v) else v for k, v in dataclasses.asdict(found).items()}


def _read(told: Mapping[str, Any]) -> Interval:
    fields: dict[str, Any] = {k: float("nan") if v is None else v for k, v in told.items()}
    return Interval(**fields)


# ---- comparing -----------------------------------------------------------------------------------------------------------

Entry = tuple[str, str, int, tuple[Draws, Draws]]  # metric, group, rows, draws before and after


def _entries(
    label: np.ndarray,
    decided: tuple[np.ndarray, np.ndarray],
    attribute: np.ndarray | None,
    twins: tuple[np.ndarray, np.ndarray] | None,
    names: tuple[Sequence[Any], Sequence[Any]],
    columns: tuple[str, str],
) -> list[Entry]:
    n = len(label)

    def both(make: Callable[[np.ndarray], Draws]) -> tuple[Draws, Draws]:
        return make(decided[0]), make(decided[1])

    found: list[Entry] = [
        (ACCURACY, "", n, both(lambda p: lambda c: groups.accuracy_draws(label, p, c))),
        (BALANCED, "", n, both(lambda p: lambda c: groups.balanced_accuracy_draws(label, p, c))),
    ]
    if attribute is not None:
        sizes = groups.group_sizes(label, attribute)
        smallest = min((size for size in sizes.values() if size >= SMALLEST_GROUP), default=0)
        found.insert(
            0, (WORST, "", smallest, both(lambda p: lambda c: groups.worst_group_accuracy_draws(label, p, attribute, c)))
        )
        for k, (group, size) in enumerate(sizes.items()):
            found.append((GROUP, _named(group, names, columns), size, both(lambda p, k=k: _one_group(label, p, attribute, k))))  # type: ignore[misc]
    if twins is not None and not np.isnan(twins[0]).all():
        size = int(np.sum(~np.isnan(twins[0])))
        found.append((FLIP, "", size, (_mean_of(twins[0]), _mean_of(twins[1]))))
    return found


def _one_group(label: np.ndarray, predicted: np.ndarray, attribute: np.ndarray, k: int) -> Draws:
    return lambda counts: groups.group_accuracy_draws(label, predicted, attribute, counts)[:, k]


def _mean_of(values: np.ndarray) -> Draws:
    known = ~np.isnan(values)

    def draw(counts: np.ndarray) -> np.ndarray:
        weight = counts[:, known].astype(np.float64)
        total = weight.sum(axis=1)
        with np.errstate(invalid="ignore"):
            return np.asarray(weight @ values[known] / np.where(total > 0, total, np.nan))

    return draw


def _outputs(before: Evidence, after: Evidence) -> list[int]:
    """Where the outputs of the first model stand among those of the second."""
    one, other = before.card, after.card
    if one.target != other.target or sorted(map(str, one.classes)) != sorted(map(str, other.classes)):
        raise NotRun(
            f"{one.name} answers {one.target or 'the label'} with {list(one.classes)} and {other.name} "
            f"{other.target or 'the label'} with {list(other.classes)}: only models of one question can be compared"
        )
    place = [str(value) for value in other.classes]
    return [place.index(str(value)) for value in one.classes]


def _shared(before: View, after: View) -> tuple[View, View]:
    """The rows that both have, in one order."""
    place = {row: k for k, row in enumerate(after.cohort.id)}
    kept = [(k, place[row]) for k, row in enumerate(before.cohort.id) if row in place]
    if not kept:
        raise NotRun("no test row is new to both models")
    rows = np.array(kept)
    return before.select(rows[:, 0]), after.select(rows[:, 1])


def _twins(
    before: Evidence, after: Evidence, ids: np.ndarray, decided: Any, changed: Any, keep: np.ndarray
) -> tuple[np.ndarray, np.ndarray] | None:
    """(n,) total variation between the probabilities of every row and of its twin, for both models."""
    if any("twin" not in e.cohorts or "logits" not in e.arrays("twin") for e in (before, after)):
        return None
    found = []
    for evidence, own in ((before, decided.probability[keep]), (after, changed.probability[keep])):
        twin = evidence.on("twin").decisions()
        place = {i: k for k, i in enumerate(twin.cohort.id)}
        rows = np.array([place.get(i, -1) for i in ids])
        distance = np.full(len(ids), np.nan)
        known = rows >= 0
        distance[known] = 0.5 * np.abs(twin.probability[rows[known]] - own[known]).sum(axis=1)
        found.append(distance)
    return found[0], found[1]


def _named(group: tuple[Any, Any], names: tuple[Sequence[Any], Sequence[Any]], columns: tuple[str, str]) -> str:
    values = [of[int(code)] if len(of) else code for code, of in zip(group, names, strict=True)]
    return ", ".join(f"{column} = {value}" for column, value in zip(columns, values, strict=True))


def _small(
    label: np.ndarray, attribute: np.ndarray | None, names: tuple[Sequence[Any], Sequence[Any]], columns: tuple[str, str]
) -> str:
    if attribute is None:
        return ""
    few = {group: size for group, size in groups.group_sizes(label, attribute).items() if size < SMALLEST_GROUP}
    return "; ".join(f"{_named(group, names, columns)}: {size} rows" for group, size in few.items())


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
    sure = "" if np.isnan(low) else ", a gain beyond chance" if low > 0 else ", a loss beyond chance" if high < 0 else ""
    sure = sure or ", which chance alone could give"
    balanced = comparison.get(BALANCED).difference if line.metric == WORST else None
    cost = "" if balanced is None else f"; the balanced accuracy changes by {_signed(balanced)}"
    return f"{said[0].upper()}{said[1:]}{sure}{cost}."


def _signed(found: Interval) -> str:
    limits = "" if np.isnan(found.low) else f", {found.low:+.3f} to {found.high:+.3f}"
    return f"{found.value:+.3f}{limits}"


def _estimates(comparison: Comparison) -> list[Estimate]:
    found = []
    for line in comparison.lines:
        note = FLIP_NOTE if line.metric == FLIP else ""
        about: dict[str, Any] = {"row": "remedy", "n": line.n, "group": "change by group" if line.group else "all rows"}
        values = {"difference": line.difference, "before": line.before, "after": line.after}
        for when, value in list(values.items())[: 1 if line.group else 3]:  # the table has before and after of every group
            found.append(
                Estimate(
                    name=line.group or f"{line.metric}, {when}",
                    value=value.value,
                    low=value.low,
                    high=value.high,
                    level=value.level,
                    reason=value.reason,
                    note=note if when != "difference" else "after minus before, the same resampled rows for both",
                    **about,
                )
            )
    return found


def _checks(comparison: Comparison, told: Mapping[str, Any]) -> list[Check]:
    found = [
        Check(
            name="every group is large enough",
            passed=not comparison.left_out,
            note=f"left out of the worst-group accuracy: {comparison.left_out}" if comparison.left_out else "",
        )
    ]
    if told:
        by = str(told.get("selected_by", ""))
        found.append(Check(name="selected with the attribute", passed="WGA" in by, note=f"selected by {by}" if by else ""))
    return found


def _exhibits(comparison: Comparison, before: str, after: str) -> list[Exhibit]:
    def cell(value: Interval) -> Cell:
        return Cell(value=value.value, low=value.low, high=value.high, reason=value.reason)

    table = Table(
        title="Before and after",
        caption=f"On {comparison.n_rows} {comparison.rows}, {before} and {after}. The difference has its own interval, from the "
        "same resampled rows for both: two intervals that overlap can still differ.",
        columns=("metric", "group", "rows", "before", "after", "difference"),
        rows=tuple(
            (line.metric, line.group or "all rows", line.n, cell(line.before), cell(line.after), cell(line.difference))
            for line in comparison.lines
        ),
        highlight=(0,),
    )
    by_group = [line for line in comparison.lines if line.metric == GROUP]
    if not by_group:
        return [table]
    series = {"before": [line.before for line in by_group], "after": [line.after for line in by_group]}
    bars = Bars(
        title="Accuracy by group, before and after",
        caption="A shortcut shows where the attribute speaks against the label. A remedy raises those groups; what the others "
        "lose is its price.",
        labels=tuple(line.group for line in by_group),
        series={name: tuple(i.value for i in values) for name, values in series.items()},
        low={name: tuple(i.low for i in values) for name, values in series.items()},
        high={name: tuple(i.high for i in values) for name, values in series.items()},
        value_label="accuracy",
    )
    return [table, bars]
