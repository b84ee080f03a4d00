"""From the measurements of a family of models to ShorT's verdict: floor, tests, validity, performance clause."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rightreasons.audits._short_measure import Measurement
from rightreasons.errors import DataError, NotRun
from rightreasons.findings import Verdict
from rightreasons.stats import sweeps
from rightreasons.stats.resampling import Interval, benjamini_hochberg, interval, p_value

BELOW = 0.08  # how far below the mean baseline AUC the floor lies
READABLE = 0.4  # share of the way from chance to a perfect reading that the strongest model must go to stand in for the bound
FLOORS = 12


@dataclass(frozen=True)
class Rules:
    """The settings of `short.conclude`; explained there."""

    floor: float | None = None
    tolerance: float = 0.02
    coverage: float = 0.5
    fewest_models: int = 10
    smallest_group: int = 30
    bound: float | None = None
    delta: float | None = None
    alpha: float = 0.05
    level: float = 0.95


@dataclass(frozen=True)
class Metric:
    """One fairness metric over the models above the floor.

    Attributes
    ----------
    test, marginal : against the encoding within the label, and against that over all rows (the paper's)
    adjusted : p over several metrics (or attribute values), Benjamini-Hochberg
    spread, draws : of rho over models and examples, (B,)
    baseline, baseline_p : its mean over baseline models, and p of that under exchange
    partial : rank correlation given AUC
    """

    name: str
    test: sweeps.Test
    marginal: sweeps.Test
    adjusted: float
    spread: Interval
    draws: np.ndarray
    baseline: float
    baseline_p: float
    partial: float


@dataclass(frozen=True)
class Judged:
    """Everything that the page says.

    Attributes
    ----------
    kept : (M,) models above the floor; is_baseline : (M,)
    bound : encoding of models trained on the attribute, in the encoding's own unit; `bound_from` says whose
    covered : part of the range from chance to the bound that the models above the floor span
    signed : the metric that decides, oriented along the training association; None where that is not known or is none
    cost : AUC that the lowest encoding costs against the baseline
    rho_draws : (B,) of the disparity shown, over models and examples
    failed : validity conditions that failed or could not be judged
    """

    models: tuple[Measurement, ...]
    is_baseline: np.ndarray
    kept: np.ndarray
    floor: float
    floor_from: str
    encoding: np.ndarray
    auc: np.ndarray
    disparity: np.ndarray
    bound: float
    bound_from: str
    covered: float
    signed: Metric | None
    rho_draws: np.ndarray
    direction: str
    metrics: tuple[Metric, ...]
    with_auc: float
    cost: Interval
    floors: np.ndarray
    rho_over_floors: np.ndarray
    models_over_floors: np.ndarray
    front: np.ndarray
    checks: tuple[tuple[str, bool | None, str], ...]
    has_association: bool | None
    unfair: tuple[Metric, ...]
    verdict: Verdict
    rules: Rules

    @property
    def first(self) -> Measurement:
        return self.models[0]

    @property
    def failed(self) -> list[tuple[str, str]]:
        return [(name, note) for name, passed, note in self.checks if passed is not True]

    @property
    def is_under_use(self) -> bool:
        """Whether more encoding goes with less disparity: the attribute is used too little rather than too much."""
        return self.verdict == "no evidence" and self.signed is not None and self.signed.test.rho < 0 and self.significant

    @property
    def significant(self) -> bool:
        return self.signed is not None and self.signed.adjusted < self.rules.alpha

    def pick(self, tolerance: float | None = None) -> int | None:
        """Position of the least disparity among models at most `tolerance` AUC below the baseline (without one: the best)."""
        reference = np.nanmean(self.auc[self.is_baseline]) if self.is_baseline.any() else np.nanmax(self.auc)
        lost = self.rules.tolerance if tolerance is None else tolerance
        able = np.flatnonzero((self.auc >= reference - lost) & ~np.isnan(self.disparity))
        return int(able[np.abs(self.disparity[able]).argmin()]) if len(able) else None


def judge(measurements: Mapping[str, Sequence[Measurement]], rules: Rules, rng: np.random.Generator) -> Judged:
    sweep, given = list(measurements.get("sweep", ())), list(measurements.get("baseline", ()))
    models = tuple(m for m in (*sweep, *given) if not m.target)
    if all(m.target for m in sweep):
        raise NotRun(
            "no model of the label in the role sweep: ShorT is about a family of models, trained with a scaled gradient of the "
            "attribute (mitigation gradient_scaling); a study trains one"
        )
    _same_rows(models)
    is_baseline = np.array([m.scale == 0 for m in sweep if not m.target] + [True for m in given if not m.target])
    auc, e = np.array([m.auc.value for m in models]), np.array([m.strength for m in models])
    floor, floor_from = _floor(auc, is_baseline, rules.floor)
    kept = auc >= floor
    bound, bound_from = _bound(models, measurements.get("attribute", ()), rules.bound)
    lead = models[int(is_baseline.argmax())] if is_baseline.any() else models[0]
    metrics, signed = _metrics(models, lead, kept, is_baseline, e, auc, rng, rules)
    has_association = None if np.isnan(lead.sign).all() else bool((np.nan_to_num(lead.sign) != 0).any())
    main, direction, oriented = _main(signed, lead, models)
    drawn = (main or signed[0]).draws if signed else np.zeros(0)
    covered = _covered(lead, e[kept], bound)
    checks = _checks(lead, kept, covered, bound, bound_from, main, rules)
    cost = _cost(models, kept, is_baseline, e, rules.level)
    floors = np.linspace(np.nanmin(auc), np.nanquantile(auc, 0.9), FLOORS)
    rhos, numbers = sweeps.over_floors(e, oriented, auc, floors)
    baseline_is_unfair = tuple(m for m in metrics if m.baseline_p < rules.alpha)
    return Judged(
        models, is_baseline, kept, floor, floor_from, e, auc, oriented, bound, bound_from, covered, main, drawn, direction,
        metrics,
        float(sweeps.spearman(e[kept], auc[kept])) if kept.sum() >= sweeps.FEWEST else math.nan, cost, floors, rhos, numbers,
        kept & sweeps.pareto_front(np.where(kept, auc, np.nan), np.abs(oriented)), checks, has_association, baseline_is_unfair,
        _verdict(has_association, checks, main, rules.alpha), rules,
    )  # fmt: skip


def _same_rows(models: Sequence[Measurement]) -> None:
    for m in models:
        if (m.rows, m.attribute, m.positive, m.metrics) != (
            models[0].rows,
            models[0].attribute,
            models[0].positive,
            models[0].metrics,
        ):
            raise DataError(
                f"{m.model} and {models[0].model} were measured on other test rows or another attribute: a family of models is "
                "compared on the same rows"
            )


def _floor(auc: np.ndarray, is_baseline: np.ndarray, given: float | None) -> tuple[float, str]:
    if given is not None:
        return given, "given"
    if is_baseline.any():
        return float(np.nanmean(auc[is_baseline])) - BELOW, f"mean baseline AUC less {BELOW:g}"
    return float(np.nanmax(auc)) - BELOW, f"best AUC less {BELOW:g}, because no model is a baseline (scale 0)"


def _bound(models: Sequence[Measurement], references: Sequence[Measurement], given: float | None) -> tuple[float, str]:
    """What encoding a model of this architecture can reach, in the encoding's unit."""
    if given is not None:
        return given, "given"
    o = models[0].orientation
    found = [m.encoding.value for m in references if m.rows == models[0].rows and not math.isnan(m.encoding.value)]
    if found:
        return float(np.mean(found)), f"{len(found)} models trained on the attribute"
    best = max((m.encoding.value for m in models if not math.isnan(m.encoding.value)), key=lambda v: o * v, default=math.nan)
    chance = models[0].chance
    perfect = 0.0 if o < 0 else 1.0
    if not math.isnan(best) and (best - chance) / (perfect - chance) >= READABLE:
        return best, "the strongest model of the sweep, because none was trained on the attribute"
    return math.nan, "no model was trained on the attribute, and none of the sweep reads it well enough to stand in"


def _covered(m: Measurement, strength: np.ndarray, bound: float) -> float:
    """Part of the range from chance to the bound between the weakest and the strongest encoding."""
    chance, top = m.chance * m.orientation, bound * m.orientation
    known = strength[~np.isnan(strength)]
    if math.isnan(top) or top <= chance or not len(known):
        return math.nan
    inside = np.clip(known, chance, top)
    return float((inside.max() - inside.min()) / (top - chance))


def _metrics(
    models: Sequence[Measurement],
    lead: Measurement,
    kept: np.ndarray,
    is_baseline: np.ndarray,
    e: np.ndarray,
    auc: np.ndarray,
    rng: np.random.Generator,
    rules: Rules,
) -> tuple[tuple[Metric, ...], tuple[Metric, ...]]:
    """The unsigned metrics, and the signed ones oriented along the training association."""
    o = lead.orientation
    marginal = np.array([m.marginal.value * o for m in models])
    drawn = np.stack([m.encoding_draws * o for m in models])
    base = is_baseline if is_baseline.any() else kept
    rows = np.flatnonzero(kept)
    found = []
    for k, name in enumerate(lead.metrics):
        turn = 1.0
        if k >= len(lead.metrics) - lead.n_signed:
            sign = lead.sign[k - len(lead.metrics) + lead.n_signed]
            turn = sign if sign in (-1.0, 1.0) else 1.0
        value, null = turn * np.array([m.value[k] for m in models]), turn * np.stack([m.null[k] for m in models])
        has_null = not np.isnan(null).all()
        given = null[rows] if has_null else null[rows][:, :0]
        test = sweeps.permutation_test(e[rows], value[rows], given)
        overall = sweeps.permutation_test(marginal[rows], value[rows], given)
        shown = sweeps.bootstrap(drawn[rows], turn * np.stack([m.draws[k] for m in models])[rows], rng=rng)
        wide = interval(test.rho, shown, rules.level, test.reason)
        mean = float(_mean(value[base]))
        mean_p = p_value(mean, _mean(null[base])) if has_null and not math.isnan(mean) else math.nan
        given_auc = sweeps.partial_spearman(e[rows], value[rows], auc[rows])
        found.append(Metric(name, test, overall, math.nan, wide, shown, mean, mean_p, given_auc))
    cut = len(found) - lead.n_signed
    return _adjusted(found[:cut]), _adjusted(found[cut:], [s in (-1.0, 1.0) for s in lead.sign])


def _mean(values: np.ndarray) -> np.ndarray:
    """Of the defined values of each column."""
    known = ~np.isnan(values)
    total, number = np.where(known, values, 0.0).sum(axis=0), known.sum(axis=0)
    return np.divide(total, number, out=np.full(np.shape(total), np.nan), where=number > 0)


def _adjusted(found: Sequence[Metric], counts: Sequence[bool] | None = None) -> tuple[Metric, ...]:
    """With Benjamini and Hochberg's p over those that count as tests."""
    counted = [True] * len(found) if counts is None else list(counts)
    p = benjamini_hochberg([m.test.p if c else math.nan for m, c in zip(found, counted, strict=True)])
    return tuple(Metric(**{**vars(m), "adjusted": float(q)}) for m, q in zip(found, p, strict=True))


def _main(signed: Sequence[Metric], lead: Measurement, models: Sequence[Measurement]) -> tuple[Metric | None, str, np.ndarray]:
    """The signed disparity that decides (of several attribute values the most significant), in words, and of every model."""
    first = len(lead.metrics) - lead.n_signed
    told = [k for k in range(len(signed)) if lead.sign[k] in (-1.0, 1.0)]
    if not told:
        plain = np.array([m.value[first] for m in models]) if lead.n_signed else np.full(len(models), np.nan)
        return None, "", plain

    def order(k: int) -> tuple[bool, float, float]:
        rho, p = signed[k].test.rho, signed[k].adjusted
        return (not rho > 0, 1.0 if math.isnan(p) else p, -abs(rho))

    k = min(told, key=order)
    level = lead.metrics[first + k].partition(": ")[2]
    what = f"{lead.attribute} = {level or lead.edges[-1]}" if lead.kind == "categorical" else f"larger {lead.attribute}"
    goes = "with" if lead.sign[k] > 0 else "against"
    words = f"{what} goes {goes} {lead.label_name} = {lead.positive} in the {lead.association_from}"
    return signed[k], words, lead.sign[k] * np.array([m.value[first + k] for m in models])


def _checks(
    m: Measurement, kept: np.ndarray, covered: float, bound: float, bound_from: str, main: Metric | None, rules: Rules
) -> tuple[tuple[str, bool | None, str], ...]:
    spans = None if math.isnan(covered) else covered >= rules.coverage
    range_ = f"from {m.chance:.3g} (no information within the label) to {bound:.3g} ({bound_from}), {m.unit}"
    said = bound_from if math.isnan(bound) else f"the attribute cannot be read: {range_}" if spans is None else (
        f"the models above the floor span {covered:.0%} of the range {range_}"
    )  # fmt: skip
    number = int(kept.sum())
    return (
        (f"the models span at least {rules.coverage:.0%} of the range of encoding", spans, said),
        (
            f"at least {rules.fewest_models} models above the floor",
            number >= rules.fewest_models,
            f"{number} of {len(kept)} models",
        ),
        (
            f"every subgroup has at least {rules.smallest_group} test rows",
            m.smallest >= rules.smallest_group,
            f"{m.smallest} rows with {m.smallest_name}",
        ),
        ("the attribute can be exchanged within label", not m.exchange_reason, m.exchange_reason),
        (
            "the direction of a shortcut is known",
            None if np.isnan(m.sign).all() else True,
            m.association_from,
        ),
        (
            "the correlation is defined",
            None if main is None else not math.isnan(main.test.rho),
            "" if main is None else main.test.reason,
        ),
    )


def _cost(models: Sequence[Measurement], kept: np.ndarray, is_baseline: np.ndarray, e: np.ndarray, level: float) -> Interval:
    """AUC of the baseline (else of the quarter with the strongest encoding) less that of the quarter with the weakest."""
    rows = np.flatnonzero(kept & ~np.isnan(e))
    if len(rows) < 4:
        return Interval(math.nan, math.nan, math.nan, reason=f"{len(rows)} models above the floor", level=level)
    order = rows[np.argsort(e[rows])]
    quarter = max(1, len(order) // 4)
    high = np.flatnonzero(is_baseline & kept) if (is_baseline & kept).any() else order[-quarter:]
    values, draws = np.array([m.auc.value for m in models]), np.stack([m.auc_draws for m in models])
    value = values[high].mean() - values[order[:quarter]].mean()
    return interval(float(value), draws[high].mean(axis=0) - draws[order[:quarter]].mean(axis=0), level)


def _verdict(
    has_association: bool | None, checks: Sequence[tuple[str, bool | None, str]], main: Metric | None, alpha: float
) -> Verdict:
    if has_association is False:
        return "no evidence"
    if any(passed is not True for _, passed, _ in checks) or main is None or math.isnan(main.adjusted):
        return "inconclusive"
    return "shortcut" if main.adjusted < alpha and main.test.rho > 0 else "no evidence"
