"""What ShorT says and shows: sentence, estimates, checks and exhibits, from what was judged."""

from __future__ import annotations

import math

import numpy as np

from rightreasons.audits._contract import estimate
from rightreasons.audits._short_judge import Judged, Metric
from rightreasons.findings import Band, Bars, Cell, Check, Curves, Estimate, Exhibit, Scatter, Table
from rightreasons.stats.fairness import LOGISTIC

PRESENCE = "evidence that it is there, not how strong it is"
LEFT_OUT = "left out: below the floor"


def sentence(j: Judged) -> str:
    a = f"“{j.first.attribute}”"
    if j.has_association is False:
        return f"In the training rows {a} does not go with the label: there is no association to exploit.{_unfair(j)}"
    if j.verdict == "inconclusive":
        why = "; ".join(f"not shown that {name}" + (f" ({note})" if note else "") for name, note in j.failed)
        return f"The family of models cannot say whether {a} is a shortcut: {why or 'the correlation has no p'}."
    if j.signed is None:
        return f"The direction of a shortcut through {a} is not known."
    how = f"(rho {j.signed.test.rho:.2f}, p {_p(j.signed.adjusted)}, {j.signed.test.n} models)"
    if j.verdict == "shortcut":
        return (
            f"The more the models encode {a}, the more their decisions lean the way it leans in the training rows {how}: "
            f"a shortcut.{_legitimate(j)}"
        )
    if j.is_under_use:
        return (
            f"The more the models encode {a}, the less their decisions lean the way it leans in the training rows {how}: "
            f"under-use of the attribute, which is no shortcut.{_unfair(j)}"
        )
    return f"Disparity does not follow how strongly the models encode {a} {how}.{_unfair(j)}"


def _unfair(j: Judged) -> str:
    if not j.unfair:
        return ""
    names = ", ".join(_words(m.name) for m in j.unfair)
    return (
        f" Unfairness is there ({names}) but does not follow the encoding: harder images, labels or too few rows of one group "
        "are other reasons for it."
    )


def _legitimate(j: Judged) -> str:
    tolerance = j.rules.tolerance
    if math.isnan(j.cost.value) or j.cost.low <= tolerance:
        return ""
    return (
        f" Models that encode it least lose {j.cost.value:.3f} AUC ({j.cost.low:.3f} to {j.cost.high:.3f}) against the baseline, "
        f"more than {tolerance:g}: part of the use may be legitimate."
    )


def estimates(j: Judged) -> list[Estimate]:
    found: list[Estimate] = []
    if j.signed is not None:
        m = j.signed
        found.append(
            estimate("rho of encoding and signed disparity", m.spread, "reliance", p=_number(m.adjusted), n=m.test.n, unit="rho",
                     note=f"p by exchanging the attribute within label, interval over models and examples; {PRESENCE}")
        )  # fmt: skip
        found.append(
            Estimate(name="the same given AUC", value=m.partial, row="reliance", unit="rho", n=m.test.n,
                     reason="too few models, or one value only" if math.isnan(m.partial) else "", note="partial rank correlation")
        )  # fmt: skip
    for m in j.metrics:
        found.append(
            estimate(f"rho of encoding and {_words(m.name)}", m.spread, "reliance", p=_number(m.adjusted), n=m.test.n, unit="rho",
                     group="unsigned metrics", note=f"p for {len(j.metrics)} metrics; Spearman's own p {_p(m.test.usual_p)}")
        )  # fmt: skip
    found.append(estimate("AUC that the lowest encoding costs", j.cost, "remedy", unit="AUC"))
    base = [m for m, b in zip(j.models, j.is_baseline, strict=True) if b] or [j.first]
    lead = base[0]
    name = "baseline" if j.is_baseline.any() else lead.model
    found += [
        estimate(
            f"encoding within the label, {name}",
            lead.encoding,
            "encoding",
            p=_number(lead.encoding_p),
            unit=lead.unit,
            n=lead.n,
            note="first such model; p by exchanging the attribute within label",
        ),
        estimate(f"encoding over all rows, {name}", lead.marginal, "encoding", unit=lead.unit, n=lead.n, note="first such model"),
        estimate(f"AUC, {name}", lead.auc, "behaviour", unit="AUC", n=lead.n, note="first such model"),
    ]
    for (value, low, high), metric in zip(lead.association, lead.metrics[len(lead.metrics) - lead.n_signed :], strict=True):
        level = metric.partition(": ")[2]
        found.append(
            Estimate(
                name="association of label and attribute in the training rows" + (f": {level}" if level else ""),
                value=value,
                low=low,
                high=high,
                row="behaviour",
                unit="log odds" + (" per unit" if lead.kind == "continuous" else " ratio"),
                reason=f"direction {lead.association_from}" if math.isnan(value) else "",
            )
        )
    for k, metric in enumerate(lead.metrics):
        reason = lead.reason[k] if math.isnan(lead.value[k]) else ""
        found.append(
            Estimate(name=f"{_words(metric)}, {name}", value=lead.value[k], low=lead.low[k], high=lead.high[k],
                     p=_number(lead.p[k]), row="behaviour", group="fairness of the first baseline model", n=lead.n, reason=reason)
        )  # fmt: skip
        if lead.kind == "continuous" and metric in LOGISTIC and j.rules.delta is not None:
            ratio = np.exp(j.rules.delta * np.array([lead.value[k], lead.low[k], lead.high[k]]))
            found.append(
                Estimate(name=f"{_words(metric)} per {j.rules.delta:g} of {lead.attribute}, {name}", value=ratio[0], low=ratio[1],
                         high=ratio[2], row="behaviour", group="fairness of the first baseline model", n=lead.n,
                         unit="odds ratio", reason=reason)
            )  # fmt: skip
    return found


def checks(j: Judged) -> list[Check]:
    found = [
        Check(name=name, passed=passed, note=note, decides=j.has_association is not False) for name, passed, note in j.checks
    ]
    found.append(
        Check(
            name="the attribute goes with the label in the training rows",
            passed=j.has_association,
            note=j.direction or ("no association to exploit" if j.has_association is False else j.first.association_from),
        )
    )
    lead = j.models[int(j.is_baseline.argmax())] if j.is_baseline.any() else j.first
    if lead.kind == "continuous":
        p = lead.monotone
        found.append(
            Check(
                name="one slope describes how decisions vary with the attribute",
                passed=None if np.isnan(p).all() else bool(np.nanmin(p) > 0.05),
                note="; ".join(f"test for a U at label {y}: p {_p(v)}" for y, v in zip((1, 0), p, strict=True)),
            )
        )
    if not lead.converged:
        found.append(Check(name="the readout converged", passed=False, note="its solver stopped at the iteration limit"))
    readout = "training" if lead.fit_on == "train" else "audit"
    found.append(
        Check(name="the readout was fitted on training rows", passed=lead.fit_on == "train", note=f"{lead.n_fit} {readout} rows")
    )
    undefined = {m.name: int(j.kept.sum()) - m.test.n for m in (*j.metrics, *([j.signed] if j.signed else []))}
    told = "; ".join(f"{_words(name)}: {number} models" for name, number in undefined.items() if number)
    found.append(Check(name="every metric is defined for every model above the floor", passed=not told, note=told))
    return found


def exhibits(j: Judged) -> list[Exhibit]:
    found: list[Exhibit] = [_follows(j), _over_scales(j), _trade_off(j), _table(j), _distribution(j)]
    if len(j.models) >= 4:
        found += [_floors(j), _front(j)]
    return found


def _follows(j: Judged) -> Scatter:
    m = j.signed
    rho = "" if m is None else f" rho {m.test.rho:.2f} ({m.spread.low:.2f} to {m.spread.high:.2f}), p {_p(m.adjusted)}."
    return Scatter(
        title="Disparity against encoding",
        caption=f"One point per model.{rho} A shortcut makes disparity grow with encoding. Models below the performance floor "
        f"(AUC {j.floor:.3f}, {j.floor_from}) are shown and left out. The correlation is {PRESENCE}.",
        x=_encodings(j),
        y=j.disparity,
        label=_labels(j),
        group=tuple(LEFT_OUT if not k else "baseline" if b else "swept" for k, b in zip(j.kept, j.is_baseline)),
        hollow=(LEFT_OUT,),
        x_label=_axis(j),
        y_label="signed disparity (positive: the training association)",
        hline=0.0,
        bands=_bands(j),
    )


def _over_scales(j: Judged) -> Curves | Scatter:
    scale = np.array([m.scale for m in j.models])
    values, overall = _encodings(j), np.array([m.marginal.value for m in j.models])
    bounds = {"no information within the label": j.first.chance}
    if not math.isnan(j.bound):
        bounds[f"bound ({j.bound_from})"] = j.bound
    caption = "Mean over seeds, with the smallest and largest."
    if np.isnan(scale).all():
        keys, name = np.array([m.regime or "?" for m in j.models]), "regime"
        ordered = sorted(set(keys.tolist()))
    else:
        keys, name = np.array([f"{s:.3g}" if not math.isnan(s) else "none" for s in scale]), "scale of the attribute's gradient"
        ordered = sorted(set(keys.tolist()), key=lambda k: math.inf if k == "none" else float(k))
    part = [values[keys == k] for k in ordered]
    series: dict[str, object] = {
        "within the label": {"y": [p.mean() for p in part], "low": [p.min() for p in part], "high": [p.max() for p in part]},
        "over all rows": [overall[keys == k].mean() for k in ordered],
        **{what: [value] * len(ordered) for what, value in bounds.items()},
    }
    return Curves(
        title="Encoding over the family",
        caption=f"{caption} How well a linear readout of the frozen features tells the attribute"
        f"{' (mean absolute error: less is more encoding)' if j.first.unit == 'MAE' else ''}. Over all rows no information gives "
        f"{j.first.no_information:.3g} and the label alone {j.first.label_alone:.3g}.",
        x=ordered,
        series=series,
        x_label=name,
        y_label=_axis(j),
    )


def _trade_off(j: Judged) -> Scatter:
    e = j.encoding
    cuts = np.nanquantile(e, [1 / 3, 2 / 3]) if not np.isnan(e).all() else np.zeros(2)
    third = np.searchsorted(cuts, np.nan_to_num(e, nan=-np.inf))
    names = ("weak encoding", "medium encoding", "strong encoding")
    return Scatter(
        title="Fairness against performance",
        caption="The best models are at the lower right. Colour: encoding of the attribute, in thirds of the models, and the "
        "baseline.",
        x=j.auc,
        y=np.abs(j.disparity),
        label=_labels(j),
        group=tuple("baseline" if b else names[t] for b, t in zip(j.is_baseline, third.tolist())),
        x_label="AUC",
        y_label="absolute disparity",
        vline=j.floor,
        vline_label="floor",
    )


def _table(j: Judged) -> Table:
    def row(m: Metric) -> tuple[Cell | int | float | str | None, ...]:
        rho = Cell(value=m.test.rho, low=_number(m.spread.low), high=_number(m.spread.high), reason=m.test.reason)
        return (
            _words(m.name), rho, _number(m.test.p), _number(m.adjusted), _number(m.test.usual_p), _number(m.marginal.rho),
            _number(m.marginal.usual_p), _number(m.partial), _number(m.baseline), _number(m.baseline_p), m.test.n,
        )  # fmt: skip

    every = [*([j.signed] if j.signed is not None else []), *j.metrics]
    return Table(
        title="Every metric",
        caption="Correlation of encoding and unfairness over models above the floor, positive where more is more unfair. "
        "The first row decides. The paper's numbers are those over all rows with Spearman's p, which takes the models for "
        "independent and calls too many. The last columns: the metric for the baseline, and whether that is unfair at all.",
        columns=(
            "metric", "rho", "p (exchange)", "p adjusted", "Spearman's p", "rho, encoding over all rows", "its Spearman's p",
            "rho given AUC", "baseline", "p of that", "models",
        ),
        rows=[row(m) for m in every],
        highlight=(0,) if j.signed is not None else (),
    )  # fmt: skip


def _distribution(j: Judged) -> Curves | Bars:
    m = j.first
    names = (f"{m.label_name} is not {m.positive}", f"{m.label_name} = {m.positive}")
    shares = [c / max(1, c.sum()) for c in m.histogram]
    caption = "Share of the training rows of each label. Where the two differ, the attribute tells something of the label."
    series = dict(zip(names, shares, strict=True))
    if m.kind == "continuous":
        return Curves(
            title=f"{m.attribute} by label in the training rows", caption=caption, x=[float(e) for e in m.edges], series=series,
            style="steps", x_label=m.attribute, y_label="share",
        )  # fmt: skip
    return Bars(
        title=f"{m.attribute} by label in the training rows", caption=caption, labels=m.edges, series=series, value_label="share"
    )


def _floors(j: Judged) -> Curves:
    return Curves(
        title="Does the floor matter?",
        caption="The correlation with other performance floors, and the share of the models that count.",
        x=j.floors,
        series={"rho": j.rho_over_floors, "share of models": j.models_over_floors / len(j.models)},
        x_label="AUC floor",
        y_label="rho, share",
        hline=0.0,
        vline=j.floor,
        vline_label="the floor used",
    )


def _front(j: Judged) -> Scatter:
    best = j.pick()
    chosen = (
        "" if best is None else f" The least disparity at most {j.rules.tolerance:g} AUC below the baseline: {_labels(j)[best]}."
    )
    return Scatter(
        title="Models to choose from",
        caption=f"On the front no model above the floor has both more AUC and less disparity.{chosen} They were compared "
        "on these very rows: audit the chosen one again on others.",
        x=j.auc,
        y=np.abs(j.disparity),
        label=_labels(j),
        group=tuple("front" if f else "baseline" if b else "other" for f, b in zip(j.front, j.is_baseline)),
        x_label="AUC",
        y_label="absolute disparity",
    )


def _labels(j: Judged) -> tuple[str, ...]:
    return tuple(m.model + ("" if math.isnan(m.scale) else f", scale {m.scale:.3g}") + f", seed {m.seed}" for m in j.models)


def _encodings(j: Judged) -> np.ndarray:
    return np.array([m.encoding.value for m in j.models])


def _axis(j: Judged) -> str:
    what = "mean absolute error" if j.first.unit == "MAE" else j.first.unit
    return f"encoding of {j.first.attribute} within the label ({what})"


def _bands(j: Judged) -> tuple[Band, ...]:
    if math.isnan(j.bound):
        return ()
    low, high = sorted((j.first.chance, j.bound))
    return (Band(axis="x", low=low, high=high, label="from no information to the bound"),)


def _words(name: str) -> str:
    return name.replace("_", " ")


def _number(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def _p(p: float) -> str:
    return "undefined" if math.isnan(p) else "< 0.001" if p < 0.001 else f"{p:.3f}"
