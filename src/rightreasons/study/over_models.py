"""What a study says over all its models: numbers by regime, one number against another, one regime against another. No torch.

    [tables.NAME]      columns = […]                means over seeds by architecture and regime, and every model
    [relations.NAME]   x = […], y = […]             does x go with y over models? Correlations and lines
    [pairs.NAME]       of = ["A", "B"], columns = […]   what B changes against A, seed by seed

A number is named as in [curves]: a column of table.parquet, or "AUDIT: NAME OF AN ESTIMATE". Each takes a `title` and `regimes`,
by default all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, product
from typing import Any

import numpy as np
import pandas as pd

from rightreasons import families
from rightreasons.errors import SettingError
from rightreasons.families import suggest
from rightreasons.findings import Cell, Check, Estimate, Exhibit, Finding, Row, Scatter, Table
from rightreasons.stats.over_models import (
    Correlation,
    Paired,
    Regression,
    SeedStability,
    correlations,
    over_seeds,
    paired,
    regression,
    seed_stability,
)
from rightreasons.stats.resampling import Interval, benjamini_hochberg, task_rng
from rightreasons.study import curves
from rightreasons.study.file import StudyFile
from rightreasons.study.folder import Study
from rightreasons.study.plan import PLAIN, OverModels

KINDS = ("tables", "relations", "pairs")
KEYS = {"tables": ("columns",), "relations": ("x", "y"), "pairs": ("of", "columns")}
METHODS = ("spearman", "pearson")
# Columns and rows by which the checklist knows the tables of a finding.
ANALYSIS, REGRESSION, R_SQUARED, DIFFERENCE = "analysis", "linear regression", "R²", "difference"
LOOKS = {
    "": "over models",
    "within": "within architecture",
    "clusters": "clusters of architecture and regime",
    "seeds": "within architecture and regime",
}
SURE = 0.05


def read(file: StudyFile, regimes: Sequence[str]) -> dict[str, dict[str, OverModels]]:
    """The tables of a file, checked; for a pair also what its second regime changes by construction."""
    relations: dict[str, dict[str, OverModels]] = {kind: {} for kind in KINDS}
    for kind in KINDS:
        for name, table in getattr(file, kind).items():
            named = {key: _list(getattr(table, key)) for key in KEYS[kind]}
            compared = _list(regimes if table.regimes is None else table.regimes)
            for regime in [*compared, *named.get("of", [])]:
                if regime not in regimes:
                    raise SettingError(f"[{kind}.{name}]: no regime {regime!r}; {suggest(str(regime), regimes)}")
            more = {}
            if kind == "pairs":
                more["by_construction"] = _by_construction(file, named["of"][1], named["columns"])
            relations[kind][name] = OverModels(**named, regimes=compared, title=table.title, **more)
    return relations


def findings(study: Study, estimates: pd.DataFrame) -> list[Finding]:
    """A finding for every table, relation and pair that the study asks for."""
    make = {"tables": _table, "relations": _relation, "pairs": _pair}
    shown = []
    for kind in KINDS:
        for name, asked in getattr(study.plan, kind).items():
            shown.append(make[kind](study, estimates, f"{kind}-{name}", asked))
    return shown


def _list(names: str | Sequence[str]) -> list[str]:
    if isinstance(names, str):
        return [names]
    return list(names)


def _by_construction(file: StudyFile, regime: str, columns: Iterable[str]) -> dict[str, str]:
    """Column → why a change of it under this regime is no evidence, where the regime's method says so of the audit."""
    method = file.regimes[regime].method
    if method == PLAIN:
        return {}
    reasons = getattr(families.member("mitigations", method), "BY_CONSTRUCTION", {})
    reasons_of = {}
    for column in columns:
        name = column.partition(":")[0]
        audit = (file.audits or {}).get(name)
        audited = name
        if audit is not None and audit.method:
            audited = audit.method
        if audited in reasons:
            reasons_of[column] = reasons[audited]
    return reasons_of


# ---- values --------------------------------------------------------------------------------------------------------------


def _values(study: Study, estimates: pd.DataFrame, names: Iterable[str], regimes: Sequence[str]) -> tuple[pd.DataFrame, Row]:
    """A row for each model, with architecture, regime, seed and an `Interval` for every name; and the row of the first name."""
    frames, row = [], None
    for name in names:
        points = curves.points(study, estimates, name)
        row = row or points.row
        frame = points.frame[points.frame["regime"].isin(list(regimes))]
        cells = []
        for v, lo, hi in zip(frame["value"], frame["low"], frame["high"], strict=True):
            cells.append(Interval(v, lo, hi))
        frames.append(pd.Series(cells, index=frame["model"].tolist(), name=name, dtype=object))
    named, every = [], []
    for unit in chain.from_iterable(study.groups().values()):
        if any(unit in column.index for column in frames):
            planned = study.plan.units[unit]
            named.append((planned.architecture, planned.regime, planned.seed))
            every.append(unit)
    values = pd.DataFrame(named, columns=["architecture", "regime", "seed"], index=every)
    nothing = Interval(np.nan, np.nan, np.nan, reason="no finished model has it")
    for column in frames:
        values[str(column.name)] = pd.Series([column.get(unit, nothing) for unit in every], index=every, dtype=object)
    return values, row or "behaviour"


def _numbers(frame: pd.DataFrame, name: str) -> np.ndarray:
    return np.array([interval.value for interval in frame[name]], dtype=np.float64)


def _cell(found: Interval) -> Cell:
    return Cell(value=found.value, low=found.low, high=found.high, reason=found.reason if np.isnan(found.value) else "")


def _finding(study: Study, name: str, asked: OverModels, frame: pd.DataFrame, row: Row, **fields: Any) -> Finding:
    """A finding over models; without any it says so."""
    settings = asked.model_dump(exclude_defaults=True)
    said = {"name": name, "audit": name.partition("-")[0], "row": row, "settings": settings, "seed": study.plan.seed}
    if not len(frame):
        question = fields.get("question", "What do the models of this study say?")
        return Finding(**said, question=question, not_run="no finished model has any of the numbers asked for")
    return Finding(**said, model=f"{len(frame)} models of {study.name}", **fields)


# ---- numbers by regime ---------------------------------------------------------------------------------------------------


def _table(study: Study, estimates: pd.DataFrame, name: str, asked: OverModels) -> Finding:
    columns = asked.columns
    frame, row = _values(study, estimates, columns, asked.regimes)
    title = asked.title or name.partition("-")[2]
    means = []
    if len(frame):
        for key, part in frame.groupby(["architecture", "regime"], sort=False):
            means.append([*key, len(part), *(_cell(over_seeds(_numbers(part, c))) for c in columns)])
    every = []
    for unit, own in frame.iterrows():
        every.append([unit, own["seed"], *(_cell(own[c]) for c in columns)])
    return _finding(
        study, name, asked, frame, row,
        question=f"{title}: what do models of each architecture and regime show?",
        sentence=f"{title}: {len(means)} groups of models that differ in the seed alone. This describes and gives no verdict.",
        exhibits=[
            Table(
                title=title,
                caption="Mean over seeds with its t interval: how far models of other seeds may differ.",
                columns=("architecture", "regime", "seeds", *columns),
                rows=means,
            ),
            Table(
                title=f"{title}, every model",
                caption="Each model with its own interval over resamples of the images, the same resamples for all models.",
                columns=("model", "seed", *columns),
                rows=every,
            ),
        ],
    )  # fmt: skip


# ---- one number against another ------------------------------------------------------------------------------------------


def _relation(study: Study, estimates: pd.DataFrame, name: str, asked: OverModels) -> Finding:
    pairs = list(product(asked.x, asked.y))
    frame, row = _values(study, estimates, dict.fromkeys([*asked.x, *asked.y]), asked.regimes)
    title = asked.title or name.partition("-")[2]
    question = f"{title}: does {asked.x[0]} go with {asked.y[0]} over models?"
    if not len(frame):
        return _finding(study, name, asked, frame, row, question=question)
    relation = _Relation(frame, pairs, study.plan.seed, name)
    return _finding(
        study, name, asked, frame, row,
        question=question, sentence=relation.sentence(), estimates=relation.estimates(row), checks=relation.checks(),
        exhibits=relation.exhibits(title),
    )  # fmt: skip


class _Relation:
    """Correlations and lines of some pairs of numbers over models."""

    def __init__(self, frame: pd.DataFrame, pairs: Sequence[tuple[str, str]], seed: int, name: str) -> None:
        self.frame, self.pairs = frame, {f"{x} and {y}": (x, y) for x, y in pairs}
        self.values: dict[str, np.ndarray] = {}
        tests = {}
        for key, (x, y) in self.pairs.items():
            self.values[x], self.values[y] = _numbers(frame, x), _numbers(frame, y)
            tests[key] = (self.values[x], self.values[y])
        architecture = frame["architecture"].to_numpy()
        both = self._groups()
        several = len(set(architecture)) > 1
        looks: dict[str, dict[str, Any]] = {
            "": {}, "within": {"within": architecture}, "clusters": {"cluster": both}, "seeds": {"within": both},
        }  # fmt: skip
        shown = {"": True, "within": several, "clusters": several, "seeds": len(set(both)) > 1}
        self.looks = [look for look in looks if shown[look]]
        self.found: dict[tuple[str, str], dict[str, Correlation]] = {}
        for look in self.looks:
            for method in METHODS:
                rng = task_rng(seed, f"{name} {look} {method}")
                self.found[look, method] = correlations(tests, rng=rng, method=method, **looks[look])
        clusters = both if several else None
        seeds = frame["seed"].to_numpy()
        self.lines: dict[str, Regression] = {}
        self.stable: dict[str, SeedStability] = {}
        for key, (x_values, y_values) in tests.items():
            self.lines[key] = regression(x_values, y_values, cluster=clusters)
            self.stable[key] = seed_stability(x_values, y_values, seeds, rng=task_rng(seed, f"{name} seeds"))

    def _groups(self) -> list[str]:
        """Architecture and regime of every model."""
        return [f"{a} {r}" for a, r in zip(self.frame["architecture"], self.frame["regime"])]

    @property
    def first(self) -> str:
        return next(iter(self.pairs))

    def sentence(self) -> str:
        one = self.found["", "spearman"][self.first]
        if np.isnan(one.coefficient.value):
            return f"{self.first}: no correlation over {one.n} models ({one.coefficient.reason})."
        said = f"Over {one.n} models {self.first} have a rank correlation of {one.coefficient:.2f}, p {one.p_adjusted:.2g}"
        others = []
        for look in self.looks:
            if look in ("within", "seeds"):
                others.append(f"{LOOKS[look]} {self.found[look, 'spearman'][self.first].coefficient.value:.2f}")
        sentence = f"{'; '.join([said, *others])}."
        if not self._one_sign(self.first):
            sentence += f" {DISAGREE}"
        return sentence

    def estimates(self, row: Row) -> list[Estimate]:
        estimates = []
        for (look, method), by_pair in self.found.items():
            among = f", {LOOKS[look]}" if look else ""
            for key, one in by_pair.items():
                note = "p by permutation, Benjamini-Hochberg over the pairs of numbers"
                if one.p_reason:
                    note += f"; {one.p_reason}"
                name = f"{correlation_name(method, key)}{among}"
                rho = one.coefficient
                estimates.append(
                    Estimate(
                        name=name, value=rho.value, low=rho.low, high=rho.high, reason=rho.reason, p=one.p_adjusted, n=one.n,
                        row=row, unit="correlation", group=key, note=note,
                    )
                )  # fmt: skip
        return estimates

    def checks(self) -> list[Check]:
        checks = []
        for key, line in self.lines.items():
            stable = self.stable[key]
            units = self.frame.index[line.influential].tolist()
            checks += [
                Check(name=f"the sign is the same within architecture and over clusters: {key}", passed=self._one_sign(key)),
                _sign_in_subsets(stable, key),
                _even_residuals(line, key),
                Check(
                    name=f"no model alone moves the line: {key}", passed=None if line.reason else not units, note=", ".join(units)
                ),
            ]
        return checks

    def exhibits(self, title: str) -> list[Exhibit]:
        return [*self._clouds(title), self._table(title), self._diagnostics(title), self._fewer_seeds(title)]

    def _clouds(self, title: str) -> Iterator[Scatter]:
        for x, y in self.pairs.values():
            yield Scatter(
                title=f"{title}: {x} against {y}", caption="Each point is one model.", x=self.values[x], y=self.values[y],
                label=self.frame.index.tolist(), group=self._groups(), x_label=x, y_label=y,
            )  # fmt: skip

    def _table(self, title: str) -> Table:
        rows = []
        for key in self.pairs:
            rows += self._analysis(key)
        return Table(
            title=title,
            caption="Correlations with percentile intervals over resampled models, or clusters of them, and p by permutation; "
            "the line by least squares with t intervals, robust to unequal variance or to clusters where it says so. Adjusted p: "
            "Benjamini-Hochberg over the pairs of numbers. A regime that moves both numbers makes them correlate in any world: "
            "within architecture and regime only seeds differ.",
            columns=("numbers", ANALYSIS, "statistic", "estimate", "p", "adjusted p", "models"),
            rows=rows,
        )

    def _diagnostics(self, title: str) -> Table:
        rows = []
        for key, r in self.lines.items():
            influential = int(r.influential.sum())
            rows.append([key, r.r2, r.normal_p, r.jarque_bera_p, r.equal_variance_p, r.cook_max, r.leverage_max, influential])
        return Table(
            title=f"{title}: the lines' residuals",
            columns=("numbers", R_SQUARED, "Shapiro-Wilk p", "Jarque-Bera p", "Breusch-Pagan p", "largest Cook's distance",
                     "largest leverage", "models that move the line"),
            rows=rows,
        )  # fmt: skip

    def _fewer_seeds(self, title: str) -> Table:
        rows = []
        for key, s in self.stable.items():
            for k in range(len(s.seeds)):
                mean = Cell(value=s.mean[k], low=s.low[k], high=s.high[k])
                rows.append([key, int(s.seeds[k]), int(s.subsets[k]), mean, s.same_sign[k]])
        return Table(
            title=f"{title}: with fewer seeds",
            caption="Rank correlation over the models of every subset of seeds: mean, least and greatest, and how often its sign "
            "is that of all seeds.",
            columns=("numbers", "seeds", "subsets", "rank correlation", "same sign"),
            rows=rows,
        )

    def _analysis(self, key: str) -> list[list[Any]]:
        rows: list[list[Any]] = []
        for (look, method), by_pair in self.found.items():
            one = by_pair[key]
            name = f"{method.capitalize()}, {LOOKS[look]}"
            rows.append([key, name, "ρ", _cell(one.coefficient), one.p, one.p_adjusted, one.n])
        line = self.lines[key]
        robust = "clusters" if "clusters" in self.looks else "unequal variance"
        rows += [
            [key, REGRESSION, "slope", _cell(line.slope), line.p, None, line.n],
            [key, REGRESSION, "intercept", _cell(line.intercept), None, None, line.n],
            [key, f"{REGRESSION}, robust to {robust}", "slope", _cell(line.slope_robust), line.p_robust, None, line.n],
        ]
        return rows

    def _one_sign(self, key: str) -> bool | None:
        values = []
        for look in self.looks:
            if look != "seeds":
                values.append(self.found[look, "spearman"][key].coefficient.value)
        if np.isnan(values).any():
            return None
        return len(set(np.sign(values))) == 1


def _sign_in_subsets(stable: SeedStability, key: str) -> Check:
    same = stable.same_sign[~np.isnan(stable.same_sign)]
    passed, note = None, stable.reason
    if len(same):
        passed = bool((same >= 0.95).all())
        note = note or f"in {same.min():.0%} of the subsets at least"
    return Check(name=f"subsets of seeds have the same sign: {key}", passed=passed, note=note)


def _even_residuals(line: Regression, key: str) -> Check:
    passed = None
    if not np.isnan(line.normal_p):
        passed = min(line.normal_p, line.equal_variance_p) > SURE
    note = line.residual_reason or f"Shapiro-Wilk p {line.normal_p:.2g}, Breusch-Pagan p {line.equal_variance_p:.2g}"
    return Check(name=f"residuals of the line look normal and evenly spread: {key}", passed=passed, note=note)


DISAGREE = "Within architectures the sign is another one: architectures, not models, make the correlation."


def correlation_name(method: str, key: str) -> str:
    """What the correlation of a pair of numbers over all models is called."""
    return f"{method.capitalize()} correlation of {key}"


# ---- one regime against another ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BeforeAfter:
    """One number of the models of two regimes, pair by pair, (n,) each."""

    before: np.ndarray
    after: np.ndarray


def _pair(study: Study, estimates: pd.DataFrame, name: str, asked: OverModels) -> Finding:
    before, after = asked.of
    frame, row = _values(study, estimates, asked.columns, asked.of)
    title = asked.title or f"{after} against {before}"
    question = f"{title}: what does {after} change against {before}, seed by seed?"
    of_before, of_after = (frame[frame["regime"] == regime].set_index(["architecture", "seed"]) for regime in asked.of)
    common = of_before.index.intersection(of_after.index, sort=False)
    if not len(common):
        return _finding(study, name, asked, frame[:0], row, question=question)
    architectures = common.get_level_values(0).to_numpy()
    groups = {}
    for a in dict.fromkeys(architectures.tolist()):
        groups[a] = np.flatnonzero(architectures == a)
    if len(groups) > 1:
        groups["all architectures"] = np.arange(len(common))
    values, changes = {}, {}
    for c in asked.columns:
        values[c] = BeforeAfter(_numbers(of_before.loc[common], c), _numbers(of_after.loc[common], c))
        for a, rows in groups.items():
            changes[(c, a)] = paired(values[c].after[rows], values[c].before[rows])
    adjusted = dict(zip(changes, benjamini_hochberg([one.sign_p for one in changes.values()]), strict=True))
    return _finding(
        study, name, asked, frame, row,
        question=question,
        sentence=_said_pairs(after, before, asked, changes, list(groups)[-1]),
        estimates=[_change(c, a, one, adjusted[c, a], row) for (c, a), one in changes.items()],
        checks=[
            Check(name=f"{column} is evidence", passed=False, note=why) for column, why in asked.by_construction.items()
        ],
        exhibits=[
            *(_boxes(c, frame, title) for c in asked.columns),
            _changes(title, asked, changes, adjusted),
            _differences(title, asked, common, values),
        ],
    )  # fmt: skip


def _said_pairs(after: str, before: str, asked: OverModels, changes: Mapping[tuple[str, str], Paired], over: str) -> str:
    said = []
    for column in asked.columns:
        one = changes[column, over]
        said.append(f"{column} falls in {one.negative} and rises in {one.positive} of {one.negative + one.positive + one.zero}")
    why = " ".join(dict.fromkeys(asked.by_construction.values()))
    return f"{after} against {before}, pairs of equal seeds: {'; '.join(said)}. {why}".strip()


def _change(column: str, architecture: str, one: Paired, adjusted: float, row: Row) -> Estimate:
    d = one.difference
    note = f"p: sign test, Benjamini-Hochberg over all tests here; {one.negative} pairs fall, {one.positive} rise"
    if one.least_p > SURE:
        note += f"; so few pairs cannot give a p below {one.least_p:.2g}"
    return Estimate(
        name=f"change of {column}, {architecture}", value=d.value, low=d.low, high=d.high, p=adjusted, row=row, reason=d.reason,
        note=note, n=one.positive + one.negative + one.zero, group=column,
    )  # fmt: skip


def _boxes(column: str, frame: pd.DataFrame, title: str) -> Scatter:
    return Scatter(
        title=f"{title}: {column}",
        caption="Each point is one model; the boxes show quartiles and median over seeds.",
        x=frame["architecture"].tolist(),
        y=_numbers(frame, column),
        group=frame["regime"].tolist(),
        label=frame.index.tolist(),
        y_label=column,
        boxes=True,
    )


def _changes(
    title: str, asked: OverModels, changes: Mapping[tuple[str, str], Paired], adjusted: Mapping[tuple[str, str], float]
) -> Table:
    rows = []
    for (column, architecture), one in changes.items():
        signs = [one.negative, one.positive, one.zero]
        p = [one.sign_p, adjusted[column, architecture], one.wilcoxon_p, one.least_p]
        rows.append([column, architecture, _cell(one.difference), one.median, *signs, *p])
    return Table(
        title=title,
        caption="Second regime minus first, pairs of equal architecture and seed: mean with its t interval. Sign test and signed "
        "ranks are exact; with so few pairs no p can be below the last column.",
        columns=("number", "architecture", "mean change", "median", "fall", "rise", "equal", "sign test p", "adjusted p",
                 "signed-rank p", "least p"),
        rows=rows,
    )  # fmt: skip


def _differences(title: str, asked: OverModels, common: pd.Index, values: Mapping[str, BeforeAfter]) -> Table:
    rows: list[list[Any]] = []
    for column, sides in values.items():
        for (architecture, seed), before, after in zip(common, sides.before, sides.after, strict=True):
            rows.append([column, architecture, int(seed), before, after, after - before])
    return Table(title=f"{title}: every pair", columns=("number", "architecture", "seed", *asked.of, DIFFERENCE), rows=rows)
