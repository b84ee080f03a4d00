"""From the measurements of a family of models to ShorT's verdict: floor, tests over models, validity, performance clause.

What decides is the removal side: the baselines and the models that encode the attribute less. Those that were made to show it
more may come to use what the baseline leaves alone; that side stands apart. The sign of the scale does not tell the sides alone,
because strong reversal overshoots: the network shows the attribute again, the other way round.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rightreasons.audits.short.measurement import SHAPE, Measurement
from rightreasons.audits.short.settings import Rules
from rightreasons.errors import DataError, NotRun
from rightreasons.findings import Check, Verdict
from rightreasons.stats import sweeps
from rightreasons.stats.resampling import Interval, benjamini_hochberg, interval, p_value

BELOW = 0.08  # how far below the mean baseline AUC the floor lies
READABLE = 0.4  # share of the way from chance to a perfect reading that the strongest model must go to stand in for the bound
FLOORS = 12


# ---- what is judged ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Family:
    """The models that are compared, M of them: the sweep, then the baselines given beside it.

    Attributes
    ----------
    encoding : (M,) within the label, oriented so that more is more
    disparity : (M,) signed, positive along the training association where its direction is known
    kept : (M,) above the performance floor
    floor_from : where the floor comes from
    """

    models: tuple[Measurement, ...]
    is_baseline: np.ndarray
    encoding: np.ndarray
    auc: np.ndarray
    disparity: np.ndarray
    kept: np.ndarray
    floor: float
    floor_from: str

    @property
    def removal(self) -> np.ndarray:
        """(M,) models above the floor that were not made to show the attribute more, and encode it no more than the baselines."""
        return self.kept & ~(self.scale > 0) & (self.encoding <= self._of_baselines(np.max, math.inf))

    @property
    def amplification(self) -> np.ndarray:
        """(M,) models above the floor that were not made to hide it, and encode it no less than the baselines; else none."""
        return self.kept & ~(self.scale < 0) & (self.encoding >= self._of_baselines(np.min, math.inf))

    @property
    def scale(self) -> np.ndarray:
        """(M,) of the attribute's gradient; NaN of models that were made in another way."""
        return np.array([m.scale for m in self.models])

    def _of_baselines(self, extreme: Callable[[np.ndarray], float], otherwise: float) -> float:
        encoding = self.encoding[self.is_baseline & self.kept & ~np.isnan(self.encoding)]
        return float(extreme(encoding)) if len(encoding) else otherwise

    @property
    def lead(self) -> Measurement:
        """The first baseline, else the first model: it says what all models share."""
        return self.models[int(self.is_baseline.argmax())] if self.is_baseline.any() else self.models[0]


@dataclass(frozen=True)
class Bound:
    """The encoding that can be reached, in the encoding's own unit, and the part of the way there that the models span.

    Attributes
    ----------
    source : whose encoding it is
    covered : between the weakest and the strongest model above the floor, as a part of the range from chance to the bound
    encoded : what the baselines encode above chance, as a part of the same range
    removed : between the baselines' mean and that of the weakest quarter of the removal side, as a part of what the baselines
        encode above chance
    """

    value: float
    source: str
    covered: float
    encoded: float
    removed: float


@dataclass(frozen=True)
class Metric:
    """One fairness metric over the models above the floor.

    Attributes
    ----------
    test : against the encoding within the label, over the models of the removal side
    whole, marginal : over all models, also against the encoding over all rows (the paper's)
    amplified : over the models of the amplification side
    adjusted : p of `test` over several metrics (or attribute values), Benjamini-Hochberg
    visible : the smallest |rho| of the removal side that would be called in four families of five
    spread, draws : of rho over models and examples, (B,)
    baseline, baseline_p : its mean over baseline models with its interval over examples, and p of that under exchange
    taken : that less its mean over the weakest quarter of the removal side
    partial : rank correlation given AUC
    """

    name: str
    test: sweeps.Test
    whole: sweeps.Test
    marginal: sweeps.Test
    amplified: sweeps.Test
    adjusted: float
    visible: float
    spread: Interval
    draws: np.ndarray
    baseline: Interval
    baseline_p: float
    taken: Interval
    partial: float


@dataclass(frozen=True)
class OverFloors:
    """The correlation of the models above each of F floors, and how many these are, (F,) all."""

    floors: np.ndarray
    rho: np.ndarray
    models: np.ndarray


@dataclass(frozen=True)
class Judged:
    """Everything that the page says.

    Attributes
    ----------
    signed : the metric that decides, oriented along the training association; None where that is not known or is none
    direction : of that association, in words
    metrics : the unsigned ones
    with_auc : rank correlation of encoding and AUC
    cost : AUC that the lowest encoding costs against the baseline
    front : (M,) models that no other one above the floor beats
    conditions : under which the test could have seen a shortcut
    has_association : whether label and attribute go together in training; None where that is not known
    level : position of the signed disparity that decides among those of a model; None where none has a direction
    """

    family: Family
    bound: Bound
    signed: Metric | None
    direction: str
    metrics: tuple[Metric, ...]
    with_auc: float
    cost: Interval
    over_floors: OverFloors
    front: np.ndarray
    conditions: tuple[Check, ...]
    has_association: bool | None
    level: int | None
    verdict: Verdict
    rules: Rules

    @property
    def first(self) -> Measurement:
        return self.family.models[0]

    @property
    def failed(self) -> list[Check]:
        """Conditions that decide, and failed or could not be judged."""
        return [check for check in self.conditions if check.decides and check.passed is not True]

    @property
    def unfair(self) -> list[Metric]:
        """The metrics by which the baseline is unfair."""
        return [metric for metric in self.metrics if metric.baseline_p < self.rules.alpha]

    @property
    def is_under_use(self) -> bool:
        """Whether more encoding goes with less disparity: the attribute is used too little rather than too much."""
        if self.verdict != "no evidence" or self.signed is None:
            return False
        return self.signed.test.rho < 0 and self.signed.adjusted < self.rules.alpha

    def pick(self, tolerance: float | None = None) -> int | None:
        """Position of the least disparity among models at most `tolerance` AUC below the baseline (without one: the best)."""
        auc, disparity = self.family.auc, self.family.disparity
        is_baseline = self.family.is_baseline
        reference = np.nanmean(auc[is_baseline]) if is_baseline.any() else np.nanmax(auc)
        lost = self.rules.tolerance if tolerance is None else tolerance
        able = np.flatnonzero((auc >= reference - lost) & ~np.isnan(disparity))
        return int(able[np.abs(disparity[able]).argmin()]) if len(able) else None


# ---- judging -------------------------------------------------------------------------------------------------------------


def judge(measurements: Mapping[str, Sequence[Measurement]], rules: Rules, rng: np.random.Generator) -> Judged:
    """Test whether disparity follows encoding over the models above the floor ("ShorT: testing for shortcut learning")."""
    family = family_of(measurements, rules.floor)
    unsigned, signed = metrics_over_models(family, rules, rng)
    which = deciding_level(signed, family)
    deciding, direction, with_auc = None, "", math.nan
    if which is not None:
        deciding, direction = signed[which], _direction(family.lead, which)
    family = replace(family, disparity=_disparity(family, which))
    bound = bound_of(family, measurements.get("attribute", ()), rules.bound)
    has_association = family.lead.association.is_there
    conditions = conditions_of(family, bound, deciding, has_association, rules)
    kept = family.kept
    if kept.sum() >= sweeps.FEWEST:
        with_auc = float(sweeps.spearman(family.encoding[kept], family.auc[kept]))
    return Judged(
        family=family,
        bound=bound,
        signed=deciding,
        direction=direction,
        metrics=unsigned,
        with_auc=with_auc,
        cost=cost_of_low_encoding(family, rules.level),
        over_floors=_over_floors(family),
        front=kept & sweeps.pareto_front(np.where(kept, family.auc, np.nan), np.abs(family.disparity)),
        conditions=conditions,
        has_association=has_association,
        level=which,
        verdict=verdict_of(has_association, conditions, deciding, rules.alpha),
        rules=rules,
    )


def family_of(measurements: Mapping[str, Sequence[Measurement]], floor: float | None) -> Family:
    """The models of the label in the roles `sweep` and `baseline`; baselines are those of scale 0 and those of that role."""
    sweep = [m for m in measurements.get("sweep", ()) if not m.target]
    beside = [m for m in measurements.get("baseline", ()) if not m.target]
    if not sweep:
        raise NotRun(
            "no model of the label in the role sweep: ShorT is about a family of models, trained with a scaled gradient of the "
            "attribute (mitigation gradient_scaling); a study trains one"
        )
    models = (*sweep, *beside)
    _refuse_other_rows(models)
    is_baseline = np.array([m.scale == 0 for m in sweep] + [True] * len(beside))
    auc = np.array([m.performance.auc.value for m in models])
    level, source = floor_of(auc, is_baseline, floor)
    encoding = np.array([m.strength for m in models])
    return Family(models, is_baseline, encoding, auc, np.full(len(models), np.nan), auc >= level, level, source)


def _refuse_other_rows(models: Sequence[Measurement]) -> None:
    def measured_on(m: Measurement) -> tuple[object, ...]:
        return m.rows, m.attribute, m.positive, m.fairness.metrics

    for m in models:
        if measured_on(m) != measured_on(models[0]):
            raise DataError(
                f"{m.model} and {models[0].model} were measured on other test rows or another attribute: a family of models is "
                "compared on the same rows"
            )


def floor_of(auc: np.ndarray, is_baseline: np.ndarray, given: float | None) -> tuple[float, str]:
    """The AUC below which a model does not count, and where it comes from."""
    if given is not None:
        return given, "given"
    if is_baseline.any():
        return float(np.nanmean(auc[is_baseline])) - BELOW, f"mean baseline AUC less {BELOW:g}"
    return float(np.nanmax(auc)) - BELOW, f"best AUC less {BELOW:g}, because no model is a baseline (scale 0)"


# ---- tests over models ---------------------------------------------------------------------------------------------------


def metrics_over_models(family: Family, rules: Rules, rng: np.random.Generator) -> tuple[tuple[Metric, ...], tuple[Metric, ...]]:
    """Every metric against the encoding: the unsigned ones, and the signed ones oriented along the training association."""
    lead = family.lead
    metrics = []
    for k in range(len(lead.fairness.metrics)):
        metrics.append(_test_of_metric(family, k, rules, rng))
    cut = lead.fairness.n_unsigned
    unsigned = _adjusted(metrics[:cut], np.ones(cut, dtype=bool))
    # Values whose direction is not known are no tests, and take nothing from the others.
    return unsigned, _adjusted(metrics[cut:], lead.association.has_sign[: len(metrics) - cut])


def _test_of_metric(family: Family, k: int, rules: Rules, rng: np.random.Generator) -> Metric:
    lead, models = family.lead, family.models
    turn, o = _orientation(lead, k), lead.encoding.orientation
    value = turn * np.array([m.fairness.value[k] for m in models])
    null = turn * np.stack([m.fairness.null[k] for m in models])
    null = null if not np.isnan(null).all() else null[:, :0]
    marginal = np.array([m.encoding.marginal.value * o for m in models])

    def tested(on: np.ndarray, encoding: np.ndarray = family.encoding) -> sweeps.Test:
        return sweeps.permutation_test(encoding[on], value[on], null[on])

    removal = np.flatnonzero(family.removal)
    drawn_encoding = np.stack([m.encoding.draws * o for m in models])
    drawn_value = turn * np.stack([m.fairness.draws[k] for m in models])
    draws = sweeps.bootstrap(drawn_encoding[removal], drawn_value[removal], rng=rng)
    test = tested(family.removal)
    base = family.is_baseline if family.is_baseline.any() else family.kept
    baseline = float(_mean_over_models(value[base]))
    baseline_p = math.nan
    if null.shape[1] and not math.isnan(baseline):
        baseline_p = p_value(baseline, _mean_over_models(null[base]))
    weak = weakest(family)
    left, left_draws = float(_mean_over_models(value[weak])), _mean_over_models(drawn_value[weak])
    base_draws = _mean_over_models(drawn_value[base])
    return Metric(
        name=lead.fairness.metrics[k],
        test=test,
        whole=tested(family.kept),
        marginal=tested(family.kept, marginal),
        amplified=tested(family.amplification),
        adjusted=math.nan,
        visible=sweeps.smallest_visible(test.null, rules.alpha),
        spread=interval(test.rho, draws, rules.level, test.reason),
        draws=draws,
        baseline=interval(baseline, base_draws, rules.level),
        baseline_p=baseline_p,
        taken=interval(baseline - left, base_draws - left_draws, rules.level),
        partial=sweeps.partial_spearman(family.encoding[removal], value[removal], family.auc[removal]),
    )


def weakest(family: Family) -> np.ndarray:
    """Positions of the quarter of the removal side that encodes the attribute least; baselines are never among them."""
    rows = np.flatnonzero(family.removal & ~family.is_baseline & ~np.isnan(family.encoding))
    order = rows[np.argsort(family.encoding[rows], kind="stable")]
    return order[: max(1, len(order) // 4)]


def _orientation(lead: Measurement, k: int) -> float:
    """By which a metric is multiplied so that a shortcut is positive: the sign of the training association, where it is known."""
    signed = k - lead.fairness.n_unsigned
    if signed < 0 or not lead.association.has_sign[signed]:
        return 1.0
    return float(lead.association.sign[signed])


def _mean_over_models(values: np.ndarray) -> np.ndarray:
    """Of the defined values of each column."""
    known = ~np.isnan(values)
    total, number = np.where(known, values, 0.0).sum(axis=0), known.sum(axis=0)
    return np.divide(total, number, out=np.full(np.shape(total), np.nan), where=number > 0)


def _adjusted(metrics: Sequence[Metric], is_test: np.ndarray) -> tuple[Metric, ...]:
    """With Benjamini and Hochberg's p over those that are tests."""
    p = np.where(is_test, [metric.test.p for metric in metrics], np.nan)
    adjusted = benjamini_hochberg(p)
    return tuple(replace(metric, adjusted=float(q)) for metric, q in zip(metrics, adjusted, strict=True))


def deciding_level(signed: Sequence[Metric], family: Family) -> int | None:
    """Which signed disparity decides: of several attribute values the most significant one with a positive correlation."""
    known = [k for k in range(len(signed)) if family.lead.association.has_sign[k]]

    def rank(k: int) -> tuple[bool, float, float]:
        rho, p = signed[k].test.rho, signed[k].adjusted
        return (not rho > 0, 1.0 if math.isnan(p) else p, -abs(rho))

    return min(known, key=rank, default=None)


def _disparity(family: Family, which: int | None) -> np.ndarray:
    """(M,) the signed disparity that decides; the first as it is where none has a direction."""
    fairness = family.lead.fairness
    if not fairness.n_signed:
        return np.full(len(family.models), np.nan)
    k = fairness.n_unsigned + (which or 0)
    values = np.array([m.fairness.value[k] for m in family.models])
    if which is None:
        return values
    return np.asarray(family.lead.association.sign[which] * values)


def _direction(lead: Measurement, which: int) -> str:
    what = f"larger {lead.attribute}"
    if lead.fairness.level(which) == SHAPE:
        return f"{lead.attribute} goes with {lead.label_name} = {lead.positive} in the {lead.association.source}, along no slope"
    if lead.kind == "categorical":
        what = f"{lead.attribute} = {lead.fairness.level(which) or lead.training.names[-1]}"
    goes = "with" if lead.association.sign[which] > 0 else "against"
    return f"{what} goes {goes} {lead.label_name} = {lead.positive} in the {lead.association.source}"


# ---- validity ------------------------------------------------------------------------------------------------------------


def bound_of(family: Family, references: Sequence[Measurement], given: float | None) -> Bound:
    """What encoding a model of this architecture can reach (Supp. Fig. 7), and how much of the way there is covered."""
    value, source = given, "given"
    if value is None:
        value, source = _reachable_encoding(family.models, references)
    encoding = family.lead.encoding
    chance, top = encoding.chance * encoding.orientation, value * encoding.orientation
    kept = family.encoding[family.kept]
    known = kept[~np.isnan(kept)]
    weak, above = weakest(family), _of_the_baselines(family) - chance
    removed = math.nan
    if len(weak) and above > 0:
        removed = float(np.clip(1 - (family.encoding[weak].mean() - chance) / above, 0.0, 1.0))
    if math.isnan(top) or top <= chance or not len(known):
        return Bound(value, source, math.nan, math.nan, removed)
    inside = np.clip(known, chance, top)
    return Bound(value, source, float((inside.max() - inside.min()) / (top - chance)), above / (top - chance), removed)


def _of_the_baselines(family: Family) -> float:
    """Their mean encoding; without any, the strongest model's."""
    base = family.encoding[family.is_baseline & family.kept & ~np.isnan(family.encoding)]
    if len(base):
        return float(base.mean())
    return float(np.nanmax(family.encoding[family.kept], initial=-math.inf))


def _reachable_encoding(models: Sequence[Measurement], references: Sequence[Measurement]) -> tuple[float, str]:
    """Of the models trained on the attribute; without them the strongest of the sweep, if it reads the attribute well."""
    first = models[0]
    values = [m.encoding.within.value for m in references if m.rows == first.rows]
    trained = [value for value in values if not math.isnan(value)]
    if trained:
        return float(np.mean(trained)), f"{len(trained)} models trained on the attribute"
    swept = [m.encoding.within.value for m in models if not math.isnan(m.encoding.within.value)]
    best = max(swept, key=lambda value: first.encoding.orientation * value, default=math.nan)
    chance = first.encoding.chance
    perfect = 0.0 if first.encoding.orientation < 0 else 1.0
    if not math.isnan(best) and (best - chance) / (perfect - chance) >= READABLE:
        return best, "the strongest model of the sweep, because none was trained on the attribute"
    return math.nan, "no model was trained on the attribute, and none of the sweep reads it well enough to stand in"


@dataclass(frozen=True)
class Condition:
    """Something that must hold for the test to have seen a shortcut; `holds` is None where it cannot be judged."""

    id: str
    name: str
    holds: bool | None
    note: str

    def check(self, decides: bool) -> Check:
        return Check(id=self.id, name=self.name, passed=self.holds, note=self.note, decides=decides)


def conditions_of(
    family: Family, bound: Bound, deciding: Metric | None, has_association: bool | None, rules: Rules
) -> tuple[Check, ...]:
    """What must hold for the test to have seen a shortcut; nothing of it matters where there is no association to exploit."""
    m, number = family.lead, int(family.removal.sum())
    encoded, correlation, no_correlation = "", None, ""
    if not math.isnan(bound.encoded):
        encoded = f"{max(0.0, bound.encoded):.0%} of the way from chance to the bound"
    if deciding is not None:
        correlation, no_correlation = not math.isnan(deciding.test.rho), deciding.test.reason
    conditions = (
        Condition(
            "coverage",
            f"the models span at least {rules.coverage:.0%} of the range of encoding",
            _at_least(bound.covered, rules.coverage),
            _say_coverage(m, bound),
        ),
        Condition(
            "encoded",
            f"the baseline encodes at least {rules.encoded:.0%} of what can be encoded: there is something to remove",
            _at_least(bound.encoded, rules.encoded),
            encoded,
        ),
        Condition(
            "removal",
            f"removal takes away at least {rules.coverage:.0%} of what the baseline encodes",
            _at_least(bound.removed, rules.coverage),
            _say_removal(family, bound),
        ),
        Condition(
            "models",
            f"at least {rules.fewest_models} models above the floor that encode the attribute no more than the baseline",
            number >= rules.fewest_models,
            f"{number} of {len(family.models)} models",
        ),
        Condition(
            "subgroups",
            f"every subgroup has at least {rules.smallest_group} test rows",
            m.smallest.size >= rules.smallest_group,
            f"{m.smallest.size} rows with {m.smallest.name}",
        ),
        Condition("exchange", "the attribute can be exchanged within label", not m.fairness.no_exchange, m.fairness.no_exchange),
        Condition(
            "direction",
            "the attribute is known to go with the label in training, or known not to",
            None if has_association is None else True,
            _say_association(m),
        ),
        Condition("correlation", "the correlation is defined", correlation, no_correlation),
    )
    decides = has_association is not False
    checks = [condition.check(decides) for condition in conditions]
    return (*checks, _could_see(deciding, decides, rules), _is_not_contradicted(deciding, decides, rules))


def _at_least(part: float, wanted: float) -> bool | None:
    return None if math.isnan(part) else part >= wanted


def _could_see(deciding: Metric | None, decides: bool, rules: Rules) -> Check:
    """Whether a correlation worth the name could have been seen; where one was, in either direction, that is answered."""
    visible = math.nan if deciding is None else deciding.visible
    return Check(
        id="visible",
        name=f"a correlation of {rules.visible:g} could have been seen",
        passed=None if math.isnan(visible) else visible <= rules.visible,
        note="" if math.isnan(visible) else f"the smallest |rho| that it could see is {visible:.2f}",
        decides=decides and not (deciding is not None and deciding.adjusted < rules.alpha),
    )


def _is_not_contradicted(deciding: Metric | None, decides: bool, rules: Rules) -> Check:
    """Whether baseline and family leave it at what removal says: none is cleared that leans so itself, in a family that follows.

    Models that were made to encode it more may follow it although the baseline does not: that alone contradicts nothing.
    """
    passed, note = None, ""
    if deciding is not None and not math.isnan(deciding.whole.p) and not math.isnan(deciding.baseline_p):
        whole = deciding.whole
        follows = whole.p < rules.alpha and whole.rho > 0
        leans = deciding.baseline_p < rules.alpha and deciding.baseline.value > 0
        passed = is_called(deciding, rules.alpha) or not (follows and leans)
        if not passed:
            note = f"the baseline leans so too, and over all models rho is {whole.rho:.2f}, p = {whole.p:.2g}"
    return Check(
        id="all models",
        name="the baseline and all models together do not contradict the removal side",
        passed=passed,
        note=note,
        decides=decides and passed is False,
    )


def is_called(deciding: Metric | None, alpha: float) -> bool:
    """Whether disparity follows the encoding, in the direction of the training association."""
    return deciding is not None and deciding.adjusted < alpha and deciding.test.rho > 0


def _say_association(m: Measurement) -> str:
    a = m.association
    if a.answer in ("given", "unknown"):
        return a.source
    most = int(np.nanargmax(np.abs(a.estimate[:, 0]))) if not np.isnan(a.estimate[:, 0]).all() else None
    if most is None:
        return f"{a.source}: one label or one attribute value"
    odds_ratio = Interval(*np.exp(a.estimate[most]))
    level = m.fairness.level(most)
    of_level = f" of {level}" if level else ""
    return f"{a.source}, {a.units} of them: odds ratio {odds_ratio:.2f}{of_level}"


def _say_removal(family: Family, bound: Bound) -> str:
    if not len(weakest(family)):
        return "no other model encodes the attribute less than the baseline"
    if math.isnan(bound.removed):
        return "the baseline encodes no more of the attribute than chance"
    return (
        f"the quarter of the models that encode it least have lost {bound.removed:.0%} of what the baseline encodes above chance"
    )


def _say_coverage(m: Measurement, bound: Bound) -> str:
    if math.isnan(bound.value):
        return bound.source
    chance = f"{m.encoding.chance:.3g} (no information within the label)"
    range_ = f"from {chance} to {bound.value:.3g} ({bound.source}), {m.encoding.unit}"
    if math.isnan(bound.covered):
        return f"the attribute cannot be read: {range_}"
    return f"the models above the floor span {bound.covered:.0%} of the range {range_}"


def verdict_of(has_association: bool | None, conditions: Sequence[Check], deciding: Metric | None, alpha: float) -> Verdict:
    if has_association is False:
        return "no evidence"
    if any(check.decides and check.passed is not True for check in conditions):
        return "inconclusive"
    if deciding is None or math.isnan(deciding.adjusted):
        return "inconclusive"
    return "shortcut" if is_called(deciding, alpha) else "no evidence"


# ---- performance ---------------------------------------------------------------------------------------------------------


def cost_of_low_encoding(family: Family, level: float) -> Interval:
    """AUC of the baseline (else of the quarter with the strongest encoding) less that of the quarter with the weakest."""
    rows = np.flatnonzero(family.kept & ~np.isnan(family.encoding))
    if len(rows) < 4:
        return Interval(math.nan, math.nan, math.nan, reason=f"{len(rows)} models above the floor", level=level)
    order = rows[np.argsort(family.encoding[rows])]
    quarter = max(1, len(order) // 4)
    baseline = np.flatnonzero(family.is_baseline & family.kept)
    high, low = baseline if len(baseline) else order[-quarter:], order[:quarter]
    draws = np.stack([m.performance.draws for m in family.models])
    cost = family.auc[high].mean() - family.auc[low].mean()
    return interval(float(cost), draws[high].mean(axis=0) - draws[low].mean(axis=0), level)


def _over_floors(family: Family) -> OverFloors:
    floors = np.linspace(np.nanmin(family.auc), np.nanquantile(family.auc, 0.9), FLOORS)
    rho, models = sweeps.over_floors(family.encoding, family.disparity, family.auc, floors)
    return OverFloors(floors, rho, models)
