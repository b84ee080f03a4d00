"""Numbers along an axis of a study: the estimates of all findings as a table, and what is drawn from it. No torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from rightreasons import families
from rightreasons.errors import SettingError
from rightreasons.families import suggest
from rightreasons.findings import Bars, Cell, Curves, Estimate, Exhibit, Finding, Heatmap, Row, Table
from rightreasons.stats.over_models import over_seeds
from rightreasons.stats.resampling import Interval
from rightreasons.study.file import Curve
from rightreasons.study.folder import DONE, Study
from rightreasons.study.plan import CurvePlan
from rightreasons.study.roles import TEST

NAMES = ("regime", "architecture")  # what units may be compared by beside the axes; their values have no order
AXIS = "axis_"  # how columns that hold axes begin in estimates.parquet
FEWEST_LEVELS = 3  # for a rank correlation
OF_ESTIMATES = ("group", "value", "low", "high", "p", "level", "n", "unit", "row", "reason")
"""Columns of estimates.parquet that are fields of an estimate."""
FIXED = ("audit", "architecture", "regime", "model", "seed", "estimate", "headline", "value", "low", "high")
"""Columns of estimates.parquet where no audit has concluded yet."""


@dataclass(frozen=True)
class Concluded:
    """What an audit says of some units that differ in the seed alone, and of each of them."""

    audit: str
    group: tuple[str, ...]
    finding: Finding
    alone: Mapping[str, Finding]
    result: Any = None  # of a family of models, which others of its kind are compared with


def read(name: str, table: Curve, axes: Mapping[str, Sequence[Any]]) -> CurvePlan:
    """A table [curves.NAME] of a file: what is drawn against what."""
    known = [*axes, *NAMES]
    x = next(iter(axes), "") if table.x is None else table.x
    if x not in known:
        raise SettingError(f"[curves.{name}] x = {x!r} is nothing that the units differ in; {suggest(str(x), known)}")
    return CurvePlan(y=table.y, x=x)


def estimates(study: Study, concluded: Iterable[Concluded]) -> pd.DataFrame:
    """A row for every estimate of every finding: over all seeds (`model` is empty), and of every model alone.

    `headline` marks the first estimate of a finding, the one that the page shows beside the verdict.
    """
    rows, groups = [], study.groups()
    for case in concluded:
        named = _named(study, case.group, groups.get(case.group, []))
        for model, finding in {"": case.finding, **case.alone}.items():
            seed = study.plan.units[model].seed if model else None
            for number, estimate in enumerate(finding.estimates):
                row = {"audit": case.audit, **named, "model": model, "seed": seed}
                row |= {"estimate": estimate.name, "headline": number == 0}
                for key in OF_ESTIMATES:
                    row[key] = getattr(estimate, key)
                row["verdict"] = finding.verdict
                rows.append(row)
    if not rows:
        return pd.DataFrame(columns=FIXED).astype(dict.fromkeys(("seed", "value", "low", "high"), "float64"))
    return pd.DataFrame(rows).astype(dict.fromkeys(("seed", "value", "low", "high", "p", "n"), "float64"))


def findings(study: Study, frame: pd.DataFrame) -> list[Finding]:
    """Curves of what [curves] asks for, and of every audit's headline along every axis."""
    curves = []
    for name, asked in study.plan.curves.items():
        curves.append(_finding(study, f"curves-{name}", asked.y, asked.x, points(study, frame, asked.y)))
    for audit, planned in study.plan.audits.items():
        for axis in study.plan.axes if planned.subject == TEST else ():
            if CurvePlan(y=audit, x=axis) not in study.plan.curves.values():
                curves.append(_finding(study, f"curves-{audit}-{axis}", audit, axis, points(study, frame, audit)))
    return [finding for finding in curves if finding is not None]


# ---- what is drawn -------------------------------------------------------------------------------------------------------


def _named(study: Study, group: tuple[str, ...], units: list[str]) -> dict[str, Any]:
    """Architecture, regime and axes of a case; a family of models has no axes."""
    named = {"architecture": group[0], "regime": group[1]}
    axes = study.plan.units[units[0]].axes if units else {}
    return named | _axes_columns(study, axes)


def _axes_columns(study: Study, axes: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{AXIS}{key}": axes.get(key) for key in study.plan.axes}


@dataclass(frozen=True)
class Points:
    """Values of single models: `frame` has model, architecture, regime, seed, the axes, value, low and high."""

    what: str
    row: Row
    unit: str
    frame: pd.DataFrame


def points(study: Study, frame: pd.DataFrame, y: str) -> Points:
    """The values of `y`: an audit's headline, one of its estimates, or a column of the table."""
    audit, _, name = y.partition(":")
    if audit in study.plan.audits:
        module = families.member("audits", study.plan.audits[audit].method)
        rows = frame[(frame["audit"] == audit) & (frame["model"] != "") & ~frame["regime"].isin(list(study.plan.references))]
        if name:
            rows = rows[rows["estimate"] == name.strip()]
        else:
            rows = rows[rows["headline"].astype(bool)]
        if len(rows):
            what = f"{audit}: {' or '.join(dict.fromkeys(rows['estimate']))}"
        else:
            what = y
        if not len(rows):
            return Points(what, module.ROW, "", rows)
        units = rows["unit"].unique().tolist()
        return Points(what, rows["row"].iloc[0], units[0] if len(units) == 1 else "", rows)
    return Points(y, "behaviour", "", _column(study, y))


def _column(study: Study, y: str) -> pd.DataFrame:
    """A column of the table, over finished units that were not trained as references."""
    table = study.table.set_index("unit")
    if y not in table:
        return pd.DataFrame(columns=["model", "architecture", "regime", "seed", "value", "low", "high"])
    rows = []
    for unit, planned in study.plan.units.items():
        if planned.regime in study.plan.references or planned.train.get("target") or table.loc[unit, "status"] != DONE:
            continue
        row = {"model": unit, "architecture": planned.architecture, "regime": planned.regime, "seed": planned.seed}
        row |= _axes_columns(study, planned.axes)
        for key, column in (("value", y), ("low", f"{y}_low"), ("high", f"{y}_high")):
            row[key] = table.loc[unit].get(column, np.nan)
        rows.append(row)
    return pd.DataFrame(rows)


def _finding(study: Study, name: str, y: str, x: str, points: Points) -> Finding | None:
    """The finding of one curve; None where no two values of `x` have a number."""
    column = x if x in NAMES else f"{AXIS}{x}"
    frame, levels = points.frame[:0], []
    if column in points.frame:
        frame = points.frame[points.frame[column].notna()]
        levels = _levels(study, x, frame[column].unique().tolist())
    if len(levels) < 2 or not frame["value"].notna().any():
        if name.removeprefix("curves-") in study.plan.curves:
            return Finding(
                name=name, audit="curves", question=f"How does {y} change with {x}?", row=points.row,
                not_run=f"fewer than two values of {x} have a number {y!r}: no finished unit has it, or it has another name",
            )  # fmt: skip
        return None
    series, trends = {}, []
    for key, part in _series(study, frame, x):
        series[key] = {level: _over(part[part[column] == level]) for level in levels}
        if x not in NAMES:
            trends.append(_trend(key, x, list(series[key].values()), points.row))
    return Finding(
        name=name,
        audit="curves",
        question=f"How does {points.what} change with {x}?",
        row=points.row,
        sentence=_sentence(points.what, x, levels, series),
        estimates=trends,
        exhibits=tuple(_exhibits(points, x, levels, series, frame, column)),
        model=", ".join(series),
        settings={"y": y, "x": x},
        seed=study.plan.seed,
    )


def _levels(study: Study, x: str, present: list[Any]) -> list[Any]:
    """Values of x in their order: numbers by size, names as in the file."""
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in present):
        return sorted(present)
    listed = study.plan.axes.get(x) or sorted(map(str, present))
    return [value for value in listed if value in present]


Line = dict[Any, Interval]


def _over(rows: pd.DataFrame) -> Interval:
    """Mean over seeds with its t interval; of one seed its own interval."""
    if len(rows) == 1:
        one = rows.iloc[0]
        return Interval(float(one["value"]), float(one["low"]), float(one["high"]), 1, 0, "")
    return over_seeds(rows["value"].to_numpy(dtype=np.float64))


def _series(study: Study, frame: pd.DataFrame, x: str) -> Iterable[tuple[str, pd.DataFrame]]:
    """Lines: units that are equal in all but x and the seed, called by what they differ in."""
    keys = []
    for key in (*NAMES, *(f"{AXIS}{axis}" for axis in study.plan.axes)):
        if key not in (x, f"{AXIS}{x}"):
            keys.append(key)
    text = frame[keys].astype(object).where(frame[keys].notna(), "").astype(str)
    varying = [key for key in keys if text[key].nunique() > 1] or [key for key in keys if key in NAMES]
    for values, rows in text.groupby(varying, sort=False):  # a tuple of values, also of a single key
        shown = []
        for key, v in zip(varying, values, strict=True):
            if v:
                shown.append(v if key in NAMES else f"{key.removeprefix(AXIS)}={v}")
        yield " ".join(map(str, shown)), frame.loc[rows.index]


# ---- how it is said ------------------------------------------------------------------------------------------------------


def _sentence(what: str, x: str, levels: list[Any], series: Mapping[str, Line]) -> str:
    name, line = next(iter(series.items()))
    known = []
    for level in levels:
        if np.isfinite(line[level].value):
            known.append((level, line[level].value))
    if len(known) < 2:
        return f"{what} against {x}: too few defined values to say how it changes."
    (first, low), (last, high) = known[0], known[-1]
    more = ""
    if len(series) != 1:
        more = f" {len(series) - 1} further lines are below."
    if x in NAMES:
        top, bottom = max(known, key=lambda pair: pair[1]), min(known, key=lambda pair: pair[1])
        return f"{what} is largest for {top[0]} ({top[1]:.3f}) and smallest for {bottom[0]} ({bottom[1]:.3f}) ({name}).{more}"
    return f"{what} goes from {low:.3f} at {x} = {first} to {high:.3f} at {x} = {last} ({name}).{more}"


def _trend(name: str, x: str, line: list[Interval], row: Row) -> Estimate:
    """Spearman correlation of the levels' order and their means."""
    means = np.array([point.value for point in line], dtype=np.float64)
    known = np.flatnonzero(np.isfinite(means))
    value, reason = np.nan, ""
    if len(known) < FEWEST_LEVELS:
        reason = f"fewer than {FEWEST_LEVELS} levels have a value"
    elif np.ptp(means[known]) == 0:
        reason = "all levels have the same value"
    else:
        value = float(stats.spearmanr(known, means[known]).statistic)
    note = f"over the means of {len(known)} levels; levels are chosen and no sample, so it has no interval"
    return Estimate(name=f"rank correlation with {x}: {name}", value=value, n=len(known), row=row, reason=reason, note=note)


def _exhibits(
    points: Points, x: str, levels: list[Any], series: Mapping[str, Line], frame: pd.DataFrame, column: str
) -> Iterable[Exhibit]:
    seeds = int(frame.groupby(column, sort=False).size().max())
    whose = "Mean over seeds with its t interval." if seeds > len(series) else "Each model with its own interval."
    caption = f"{whose} These models do not tell apart lines that lie within each other's intervals."
    lines = {key: list(line.values()) for key, line in series.items()}
    if x in NAMES:
        yield Bars(title=f"{points.what} by {x}", caption=caption, labels=levels, series=lines, value_label=points.unit)
    else:
        numbers = all(isinstance(level, int | float) for level in levels)
        yield Curves(
            title=f"{points.what} against {x}", caption=caption, x=levels if numbers else list(map(str, levels)),
            series=lines, x_label=x, y_label=points.unit,
        )  # fmt: skip
    if len(series) > 1:
        yield Heatmap(
            title=f"{points.what} at a glance", caption="Means over seeds; the intervals are in the table below.",
            values=list(lines.values()),
            row_labels=list(series), col_labels=levels, col_title=x, value_label=points.unit,
        )  # fmt: skip
    rows = [[key, *map(Cell.of, line)] for key, line in lines.items()]
    columns = ["", *(f"{x} = {level}" for level in levels)]
    yield Table(title=f"{points.what}, numbers", caption=caption, columns=columns, rows=rows)
    yield _every_model(frame, x, column)


def _every_model(frame: pd.DataFrame, x: str, column: str) -> Table:
    columns, named = ["architecture", "regime"], ["architecture", "regime"]
    if x not in NAMES:
        columns.append(x)
        named.append(column)
    rows = []
    for row in frame.to_dict("records"):
        seed = row.get("seed")
        value = Cell(value=row["value"], low=row["low"], high=row["high"], reason=row.get("reason") or "")
        rows.append([*(row[key] for key in named), None if seed is None or seed != seed else int(seed), value])
    return Table(
        title="Every model",
        caption="Each row is one model: how far apart do seeds with the same settings lie?",
        columns=[*columns, "seed", "value"],
        rows=rows,
    )
