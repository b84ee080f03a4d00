"""What ShorT says and shows: sentence, estimates, checks and exhibits, from what was judged."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from rightreasons.audits.short.judge import Judged, Metric
from rightreasons.audits.short.measurement import SHAPE, Measurement
from rightreasons.findings import Band, Bars, Cell, Check, Curves, Estimate, Exhibit, Scatter, Table
from rightreasons.stats.fairness import LOGISTIC
from rightreasons.stats.resampling import Interval
from rightreasons.stats.sweeps import Test

PRESENCE = "evidence that it is there, not how strong it is"
LEFT_OUT = "left out: below the floor"
FIRST = "fairness of the first baseline model"


def sentence(j: Judged) -> str:
    """What is said of the family, and then of the tested model (the baseline) alone."""
    return f"{_of_the_family(j)}{_of_the_model(j)}{_of_amplification(j)}"


def _of_the_family(j: Judged) -> str:
    a = f"“{j.first.attribute}”"
    if j.has_association is False:
        return (
            f"In the training rows {a} hardly goes with the label ({_association_note(j)}): there is no association to "
            f"exploit.{_unfair(j, 'for another reason than an association')}"
        )
    if j.verdict == "inconclusive":
        why = "; ".join(_not_shown(check) for check in j.failed)
        return f"The family of models cannot say whether {a} is a shortcut: {why or 'the correlation has no p'}."
    if j.signed is None:
        return f"The direction of a shortcut through {a} is not known."
    how = f"(rho {j.signed.test.rho:.2f}, p {_p(j.signed.adjusted)}, {j.signed.test.n} models)"
    if j.verdict == "shortcut":
        return (
            f"Across the family, the less a model encodes {a}, the less its decisions lean the way that {a} goes with the label "
            f"in the training rows {how}: a shortcut.{_legitimate(j)}"
        )
    if j.is_under_use:
        return (
            f"Across the family, the less a model encodes {a}, the more its decisions lean the way that {a} goes with the label "
            f"in the training rows {how}: the attribute is under-used, which is no shortcut.{_unfair(j, NOT_ENCODING)}"
        )
    return (
        f"Across the family, disparity does not follow how strongly a model encodes {a} {how}, and a correlation of "
        f"{j.signed.visible:.2f} would have been seen.{_unfair(j, NOT_ENCODING)}"
    )


NOT_ENCODING = "but does not follow the encoding"


def _association_note(j: Judged) -> str:
    return next(check.note for check in j.conditions if check.id == "direction")


def _of_the_model(j: Judged) -> str:
    """How far the tested model itself leans; empty where no baseline or no direction is there."""
    m = j.signed
    if m is None or not j.family.is_baseline.any() or math.isnan(m.baseline.value):
        return ""
    lean = _lean(j, m.baseline)
    leans = f" The baseline itself leans by {lean:.3f}, p {_p(m.baseline_p)}, {LEAN_UNIT}"
    if math.isnan(m.taken.value):
        return f"{leans}."
    return f"{leans}; where the encoding is removed, by {_lean(j, m.taken).value:.3f} less."


def _of_amplification(j: Judged) -> str:
    m = j.signed
    if m is None or j.verdict == "shortcut" or not m.amplified.p < j.rules.alpha or not m.amplified.rho > 0:
        return ""
    return (
        f" Models that were made to encode it more do lean on it (rho {m.amplified.rho:.2f}, p {_p(m.amplified.p)}, "
        f"{m.amplified.n} models): it can be used, which does not say that the baseline does."
    )


def _not_shown(check: Check) -> str:
    if not check.note:
        return f"not shown that {check.name}"
    return f"not shown that {check.name} ({check.note})"


def _unfair(j: Judged, why: str) -> str:
    if not j.unfair:
        return ""
    names = ", ".join(_words(m.name) for m in j.unfair)
    return f" Unfairness is there ({names}) {why}: harder images, labels or too few rows of one group are other reasons for it."


LEAN_UNIT = "difference in acceptance given the label"


def _lean(j: Judged, slope: Interval) -> Interval:
    """A lean as a difference in acceptance: as it is of groups; of a slope, between rows two standard deviations apart.

    On the scale of log odds these are 2 sd times the slope apart; around even odds that is a difference of tanh(sd slope / 2),
    and less elsewhere.
    """
    spread = math.nan if j.level is None else float(j.first.spreads[j.level])
    if math.isnan(spread):
        return slope
    value, low, high = (math.tanh(spread * v / 2) for v in (slope.value, slope.low, slope.high))
    return replace(slope, value=value, low=low, high=high)


def _legitimate(j: Judged) -> str:
    tolerance = j.rules.tolerance
    if math.isnan(j.cost.value) or j.cost.low <= tolerance:
        return ""
    return (
        f" Models that encode it least lose {j.cost.value:.3f} AUC ({j.cost.low:.3f} to {j.cost.high:.3f}) against the baseline, "
        f"more than {tolerance:g}: part of the use may be legitimate."
    )


def estimates(j: Judged) -> list[Estimate]:
    return [
        *_of_the_test(j),
        Estimate.of("AUC that the lowest encoding costs", j.cost, "remedy", unit="AUC"),
        *_of_the_baseline(j),
        *_associations(j.family.lead),
        *_fairness_of_the_baseline(j),
    ]


def _of_the_test(j: Judged) -> list[Estimate]:
    """The size of what removal takes away, with the p that decides; then the correlations over models."""
    numbers = []
    if j.signed is not None:
        m = j.signed
        note = f"p by exchanging the attribute within label, interval over models and examples; {PRESENCE}"
        # The size stands first: it is what a case weighs, and a correlation is no size.
        numbers += [
            _leaning(
                "lean that goes with the encoding",
                _lean(j, m.taken),
                m.adjusted,
                j,
                "baseline less the models that encode it least; p is that of the correlation over models",
            ),
            _leaning(
                f"lean of the {_lead_name(j)}",
                _lean(j, m.baseline),
                m.baseline_p,
                j,
                "towards the training association, mean over such models",
            ),
            _rho("rho of encoding and signed disparity", m, note=note),
            Estimate(
                name="smallest |rho| that could be seen",
                value=m.visible,
                row="reliance",
                unit="rho",
                n=m.test.n,
                reason="the attribute could not be exchanged" if math.isnan(m.visible) else "",
                note="called in four families of five",
            ),
            _apart("rho, models that were made to encode it more", m.amplified, "does not decide: others need not use it"),
            _apart("rho, all models", m.whole, "does not decide"),
            Estimate(
                name="the same given AUC",
                value=m.partial,
                row="reliance",
                unit="rho",
                n=m.test.n,
                reason="too few models, or one value only" if math.isnan(m.partial) else "",
                note="partial rank correlation",
            ),
        ]
    for m in j.metrics:
        note = f"p for {len(j.metrics)} metrics; Spearman's own p {_p(m.test.usual_p)}"
        numbers.append(_rho(f"rho of encoding and {_words(m.name)}", m, group="unsigned metrics", note=note))
    return numbers


def _leaning(name: str, lean: Interval, p: float, j: Judged, note: str) -> Estimate:
    return Estimate.of(name, lean, "reliance", p=_number(p), unit=LEAN_UNIT, n=j.first.n, note=note)


def _apart(name: str, test: Test, note: str) -> Estimate:
    return Estimate(
        name=name, value=test.rho, p=_number(test.p), row="reliance", unit="rho", n=test.n, reason=test.reason, note=note
    )


def _rho(name: str, m: Metric, **more: str) -> Estimate:
    return Estimate.of(name, m.spread, "reliance", p=_number(m.adjusted), n=m.test.n, unit="rho", **more)


def _of_the_baseline(j: Judged) -> list[Estimate]:
    """Encoding and performance of the first baseline, else of the first model."""
    lead, name = j.family.lead, _lead_name(j)
    e = lead.encoding
    note = "first such model"
    return [
        Estimate.of(
            f"encoding within the label, {name}",
            e.within,
            "encoding",
            p=_number(e.p),
            unit=e.unit,
            n=lead.n,
            note=f"{note}; p by exchanging the attribute within label",
        ),
        Estimate.of(f"encoding over all rows, {name}", e.marginal, "encoding", unit=e.unit, n=lead.n, note=note),
        Estimate.of(f"AUC, {name}", lead.performance.auc, "behaviour", unit="AUC", n=lead.n, note=note),
    ]


def _associations(lead: Measurement) -> list[Estimate]:
    association = lead.association
    unit = "log odds ratio of two standard deviations" if lead.kind == "continuous" else "log odds ratio"
    numbers = []
    for k in range(lead.fairness.n_signed):
        value, low, high = association.estimate[k]
        level = lead.fairness.level(k)
        missing = "a shape has no single ratio" if level == SHAPE else f"direction {association.source}"
        numbers.append(
            Estimate(
                name="association of label and attribute in the training rows" + (f": {level}" if level else ""),
                value=value,
                low=low,
                high=high,
                p=_number(association.p[k]),
                n=association.units,
                row="behaviour",
                unit=unit,
                reason=missing if math.isnan(value) else "",
                note=f"{association.answer}; by subject where they are known, interval and p over all values together",
            )
        )
    return numbers


def _fairness_of_the_baseline(j: Judged) -> list[Estimate]:
    lead, name, delta = j.family.lead, _lead_name(j), j.rules.delta
    f = lead.fairness
    numbers = []
    for k, metric in enumerate(f.metrics):
        limits = np.array([f.value[k], f.low[k], f.high[k]])
        common = {"row": "behaviour", "group": FIRST, "n": lead.n, "reason": f.reason[k] if math.isnan(f.value[k]) else ""}
        numbers.append(_with_limits(f"{_words(metric)}, {name}", limits, p=_number(f.p[k]), **common))
        if lead.kind == "continuous" and metric in LOGISTIC and delta is not None:
            per_delta = f"{_words(metric)} per {delta:g} of {lead.attribute}, {name}"
            numbers.append(_with_limits(per_delta, np.exp(delta * limits), unit="odds ratio", **common))
    return numbers


def _with_limits(name: str, limits: np.ndarray, **more: Any) -> Estimate:
    return Estimate(name=name, value=limits[0], low=limits[1], high=limits[2], **more)


def _lead_name(j: Judged) -> str:
    return "baseline" if j.family.is_baseline.any() else j.family.lead.model


def checks(j: Judged) -> list[Check]:
    """The conditions that decide, then what else a reader should know."""
    lead = j.family.lead
    conditions = [*j.conditions, _association_check(j)]
    if lead.kind == "continuous":
        conditions.append(_slope_check(lead.fairness.monotone))
    if not lead.encoding.converged:
        stopped = "its solver stopped at the iteration limit"
        conditions.append(Check(id="converged", name="the readout converged", passed=False, note=stopped))
    on_train = lead.encoding.fit_on == "train"
    readout = f"{lead.encoding.n_fit} {'training' if on_train else 'audit'} rows"
    conditions.append(Check(id="readout rows", name="the readout was fitted on training rows", passed=on_train, note=readout))
    undefined = _say_undefined(j)
    everywhere = "every metric is defined for every model above the floor"
    conditions.append(Check(id="defined", name=everywhere, passed=not undefined, note=undefined))
    return conditions


def _association_check(j: Judged) -> Check:
    note = "; ".join(part for part in (_association_note(j), j.direction) if part)
    name = "the attribute goes with the label in the training rows"
    return Check(id="association", name=name, passed=j.has_association, note=note)


def _slope_check(monotone: np.ndarray) -> Check:
    return Check(
        id="one slope",
        name="one slope describes how decisions vary with the attribute",
        passed=None if np.isnan(monotone).all() else bool(np.nanmin(monotone) > 0.05),
        note="; ".join(f"test for a U at label {y}: p {_p(v)}" for y, v in zip((1, 0), monotone, strict=True)),
    )


def _say_undefined(j: Judged) -> str:
    """The metrics that some models above the floor lack."""
    above = int(j.family.kept.sum())
    words = []
    for m in (*j.metrics, *_deciding(j)):
        if above > m.test.n:
            words.append(f"{_words(m.name)}: {above - m.test.n} models")
    return "; ".join(words)


def _deciding(j: Judged) -> list[Metric]:
    return [] if j.signed is None else [j.signed]


def exhibits(j: Judged) -> list[Exhibit]:
    figures: list[Exhibit] = [disparity_scatter(j), encoding_curves(j), trade_off_scatter(j), metric_table(j), training_shares(j)]
    if len(j.family.models) >= 4:
        figures += [floor_curves(j), front_scatter(j)]
    return figures


def disparity_scatter(j: Judged) -> Scatter:
    m, family = j.signed, j.family
    rho = ""
    if m is not None:
        rho = f" rho {m.test.rho:.2f} ({m.spread.low:.2f} to {m.spread.high:.2f}), p {_p(m.adjusted)}."
    side = np.where(family.removal, "encode it less", "encode it more")
    side = np.where(family.is_baseline, "baseline", side)
    encoding, disparity = [m.encoding.within for m in family.models], _disparity_intervals(j)
    return Scatter(
        title="Disparity against encoding",
        caption=f"One point per model, bars are intervals over examples.{rho} A shortcut makes disparity fall where encoding is "
        "removed; models that encode it more than the baseline do not decide. Models below the performance floor "
        f"(AUC {family.floor:.3f}, {family.floor_from}) are shown and left out. The correlation is {PRESENCE}.",
        x_low=[i.low for i in encoding],
        x_high=[i.high for i in encoding],
        y_low=disparity[0],
        y_high=disparity[1],
        x=_encodings(j),
        y=family.disparity,
        label=_labels(j),
        group=tuple(np.where(family.kept, side, LEFT_OUT).tolist()),
        hollow=(LEFT_OUT,),
        x_label=_axis(j),
        y_label="lean towards the training association",
        hline=0.0,
        bands=_bands(j),
    )


def _disparity_intervals(j: Judged) -> tuple[np.ndarray, np.ndarray]:
    """Limits (M,) of the signed disparity that is shown, turned as it is."""
    lead = j.family.lead
    k, turn = lead.fairness.n_unsigned, 1.0
    if j.level is not None:
        k, turn = k + j.level, lead.association.sign[j.level]
    limits = np.sort(turn * np.array([(m.fairness.low[k], m.fairness.high[k]) for m in j.family.models]), axis=1)
    return limits[:, 0], limits[:, 1]


def encoding_curves(j: Judged) -> Curves:
    values, overall = _encodings(j), np.array([m.encoding.marginal.value for m in j.family.models])
    keys, ordered, name = _by_scale(j)
    parts = [values[keys == k] for k in ordered]
    series: dict[str, object] = {
        "within the label": {"y": [p.mean() for p in parts], "low": [p.min() for p in parts], "high": [p.max() for p in parts]},
        "over all rows": [overall[keys == k].mean() for k in ordered],
        "no information within the label": [j.first.encoding.chance] * len(ordered),
    }
    if not math.isnan(j.bound.value):
        series[f"bound ({j.bound.source})"] = [j.bound.value] * len(ordered)
    e = j.first.encoding
    error = " (mean absolute error: less is more encoding)" if e.unit == "MAE" else ""
    return Curves(
        title="Encoding over the family",
        caption="Mean over seeds, with the smallest and largest. How well a linear readout of the frozen features tells the "
        f"attribute{error}. Over all rows no information gives {e.no_information:.3g} and the label alone {e.label_alone:.3g}.",
        x=ordered,
        series=series,
        x_label=name,
        y_label=_axis(j),
    )


def _by_scale(j: Judged) -> tuple[np.ndarray, list[str], str]:
    """What models are grouped by, (M,): their scale or, without one, their regime; the groups in order; what they are."""
    models = j.family.models
    if all(math.isnan(m.scale) for m in models):
        regimes = [m.regime or "?" for m in models]
        return np.array(regimes), sorted(set(regimes)), "regime"
    scales = ["none" if math.isnan(m.scale) else f"{m.scale:.3g}" for m in models]
    ordered = sorted(set(scales), key=lambda scale: math.inf if scale == "none" else float(scale))
    return np.array(scales), ordered, "scale of the attribute's gradient"


def trade_off_scatter(j: Judged) -> Scatter:
    encoding = j.family.encoding
    cuts = np.zeros(2)
    if not np.isnan(encoding).all():
        cuts = np.nanquantile(encoding, [1 / 3, 2 / 3])
    third = np.searchsorted(cuts, np.nan_to_num(encoding, nan=-np.inf))
    strength = np.array(["weak encoding", "medium encoding", "strong encoding"])[third]
    return Scatter(
        title="Fairness against performance",
        caption="The best models are at the lower right. Colour: encoding of the attribute, in thirds of the models, and the "
        "baseline.",
        x=j.family.auc,
        y=np.abs(j.family.disparity),
        label=_labels(j),
        group=tuple(np.where(j.family.is_baseline, "baseline", strength).tolist()),
        x_label="AUC",
        y_label="absolute disparity",
        vline=j.family.floor,
        vline_label="floor",
    )


# The columns of the table of metrics, and what stands in each.
COLUMNS: dict[str, Callable[[Metric], Cell | int | float | str | None]] = {
    "metric": lambda m: _words(m.name),
    "rho": lambda m: Cell.of(m.spread),
    "p (exchange)": lambda m: _number(m.test.p),
    "p adjusted": lambda m: _number(m.adjusted),
    "smallest visible": lambda m: _number(m.visible),
    "rho, made to encode it more": lambda m: _number(m.amplified.rho),
    "rho, all models": lambda m: _number(m.whole.rho),
    "its p (exchange)": lambda m: _number(m.whole.p),
    "rho, all models, encoding over all rows": lambda m: _number(m.marginal.rho),
    "its Spearman's p": lambda m: _number(m.marginal.usual_p),
    "rho given AUC": lambda m: _number(m.partial),
    "baseline": lambda m: Cell.of(m.baseline),
    "p of that": lambda m: _number(m.baseline_p),
    "models": lambda m: m.test.n,
}


def metric_table(j: Judged) -> Table:
    rows = [_row(m) for m in (*_deciding(j), *j.metrics)]
    return Table(
        title="Every metric",
        caption="Correlation of encoding and unfairness, positive where more is more unfair, over the models above the floor "
        "that encode the attribute no more than the baseline; then over the others. The first row decides. The paper's numbers "
        "are those of all models and all rows with Spearman's p, which takes the models for independent and calls too many. The "
        "last columns: the metric for the baseline, and whether that is unfair at all.",
        columns=tuple(COLUMNS),
        rows=rows,
        highlight=(0,) if j.signed is not None else (),
    )


def _row(m: Metric) -> tuple[Cell | int | float | str | None, ...]:
    return tuple(cell(m) for cell in COLUMNS.values())


def training_shares(j: Judged) -> Curves | Bars:
    m = j.first
    title = f"{m.attribute} by label in the training rows"
    caption = "Share of the training rows of each label. Where the two differ, the attribute tells something of the label."
    negative, positive = (count / max(1, count.sum()) for count in m.training.count)
    series = {f"{m.label_name} is not {m.positive}": negative, f"{m.label_name} = {m.positive}": positive}
    if m.kind == "continuous":
        centres = [float(name) for name in m.training.names]
        return Curves(title=title, caption=caption, x=centres, series=series, style="steps", x_label=m.attribute, y_label="share")
    return Bars(title=title, caption=caption, labels=m.training.names, series=series, value_label="share")


def floor_curves(j: Judged) -> Curves:
    over = j.over_floors
    return Curves(
        title="Does the floor matter?",
        caption="The correlation with other performance floors, and the share of the models that count.",
        x=over.floors,
        series={"rho": over.rho, "share of models": over.models / len(j.family.models)},
        x_label="AUC floor",
        y_label="rho, share",
        hline=0.0,
        vline=j.family.floor,
        vline_label="the floor used",
    )


def front_scatter(j: Judged) -> Scatter:
    best, chosen = j.pick(), ""
    if best is not None:
        chosen = f" The least disparity at most {j.rules.tolerance:g} AUC below the baseline: {_labels(j)[best]}."
    others = np.where(j.family.is_baseline, "baseline", "other")
    return Scatter(
        title="Models to choose from",
        caption=f"On the front no model above the floor has both more AUC and less disparity.{chosen} They were compared "
        "on these very rows: audit the chosen one again on others.",
        x=j.family.auc,
        y=np.abs(j.family.disparity),
        label=_labels(j),
        group=tuple(np.where(j.front, "front", others).tolist()),
        x_label="AUC",
        y_label="absolute disparity",
    )


# ---- words and numbers ---------------------------------------------------------------------------------------------------


def _labels(j: Judged) -> tuple[str, ...]:
    return tuple(_label(m) for m in j.family.models)


def _label(m: Measurement) -> str:
    """The model as a person would name it; its own name only where nothing else is known."""
    if m.scale == 0:
        made = "baseline"
    elif not math.isnan(m.scale):
        made = f"scale {m.scale:+.3g}"
    else:
        made = m.regime.replace("_", " ")
    parts = [m.architecture, made] if made else [m.model]
    if m.seed is not None:
        parts.append(f"seed {m.seed}")
    return ", ".join(part for part in parts if part)


def _encodings(j: Judged) -> np.ndarray:
    return np.array([m.encoding.within.value for m in j.family.models])


def _axis(j: Judged) -> str:
    unit = j.first.encoding.unit
    return f"encoding of {j.first.attribute} within the label ({'mean absolute error' if unit == 'MAE' else unit})"


def _bands(j: Judged) -> tuple[Band, ...]:
    if math.isnan(j.bound.value):
        return ()
    low, high = sorted((j.first.encoding.chance, j.bound.value))
    return (Band(axis="x", low=low, high=high, label="from no information to the bound"),)


def _words(name: str) -> str:
    return name.replace("_", " ")


def _number(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def _p(p: float) -> str:
    if math.isnan(p):
        return "undefined"
    return "< 0.001" if p < 0.001 else f"{p:.3f}"
