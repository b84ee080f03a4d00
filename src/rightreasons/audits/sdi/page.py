"""How SDI's result is said and shown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import compress
from typing import Any

import numpy as np

from rightreasons.audits.sdi.effect import TOLERATED
from rightreasons.audits.sdi.formulas import COMPONENTS, combine
from rightreasons.audits.sdi.judge import CUE_RULE, RATIO_RULE, Judged
from rightreasons.audits.sdi.measurement import FEATURES, HEAD, SPACES, Intervals, Measurement, Sensitivities
from rightreasons.audits.sdi.severities import EXCLUDED, FIELD
from rightreasons.findings import Bars, Cell, Estimate, Exhibit, Gallery, Picture, Table
from rightreasons.stats.resampling import Interval

FAMILIES = {
    "border": ("border", "unborder", "resize", "pad", "periphery", "tags"),
    "colour and light": ("channels", "cast", "illumination", "flatfield", "histogram"),
    "device": ("jpeg", "blur", "grain"),
}
INDEX_NAMES = tuple(f"SDI ({space})" for space in SPACES)  # the estimates of the index
SUBSETS = ((1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0), (1, 0, 1), (0, 1, 1))  # which of COMPONENTS each has


# ---- one sentence --------------------------------------------------------------------------------------------------------


def sentence(judged: Judged) -> str:
    k = _shown(judged, judged.decide)
    if judged.verdict == "inconclusive":
        return f"No verdict: {judged.problem}. {_said_anyway(judged, k)}".strip()
    if k is None:  # cannot be: a verdict rests on an operator
        return ""
    m = judged.measurement
    cue, operator, by_ratio = m.attribute, m.operators.name[k], judged.decide == RATIO_RULE
    taken, differ, moved = m.effect.taken.at(k), m.effect.cue, m.head.r_sc.at(k)
    if judged.verdict == "shortcut" and by_ratio:
        return (
            f"The model relies on {cue}: {operator}, which removes it from the features, moves what the head reads {moved:.2f} "
            "times as far as content changes of equal pixel size."
        )
    if judged.verdict == "shortcut":
        return (
            f"The model relies on {cue}: within a label its predictions differ with {cue} by {differ:.2f}, and "
            f"{operator}, which removes it from the features, takes away {taken:.2f} of that."
        )
    if by_ratio:
        return (
            f"No evidence that the model relies on {cue}: operators that remove it from the features move what the head "
            f"reads at most {moved:.2f} times as far as content changes of equal pixel size ({operator})."
        )
    return (
        f"No evidence that the model relies on {cue}: within a label its predictions differ with {cue} by {differ:.2f}, and "
        f"operators that remove it from the features take away at most {taken:.2f} of that ({operator})."
    )


def _said_anyway(judged: Judged, k: int | None) -> str:
    """The largest number, where there is no verdict."""
    m = judged.measurement
    if k is None:
        return ""
    operator = m.operators.name[k]
    if judged.decide == RATIO_RULE:
        return f"The largest head-read R_sc is {m.head.r_sc.at(k):.2f} ({operator})."
    return f"{operator.capitalize()} takes away {m.effect.taken.at(k):.2f} of the cue's effect of {m.effect.cue:.2f}."


def _shown(judged: Judged, rule: str) -> int | None:
    """The operator to speak of: the one with the largest value among those that count most for the verdict."""
    m = judged.measurement
    values = m.head.r_sc.value if rule == RATIO_RULE else m.effect.taken.value
    defined = ~np.isnan(values)
    touches = judged.touches & defined
    for among in (judged.calls & defined, touches & judged.sees, touches, defined):
        if among.any():
            return int(np.where(among, np.nan_to_num(values, nan=-np.inf), -np.inf).argmax())
    return None


# ---- estimates -----------------------------------------------------------------------------------------------------------


def estimates(judged: Judged) -> list[Estimate]:
    """What decides comes first."""
    taken, cue_effect, ratio = _taken(judged), _cue_effect(judged.measurement), _ratio(judged)
    if judged.decide == RATIO_RULE:
        first = [ratio, taken, cue_effect]
    else:
        first = [taken, cue_effect, ratio]
    return [*first, _family_ratio(judged.measurement), *_encoding(judged.measurement), *_indices(judged)]


def _taken(judged: Judged) -> Estimate:
    m, k = judged.measurement, _shown(judged, CUE_RULE)
    if k is None:
        nothing = Interval(math.nan, math.nan, math.nan, reason=m.effect.reason or "no operator")
        return _reliance("taken of the cue's effect", nothing, "probability")
    return _reliance(
        f"taken of the cue's effect, {m.operators.name[k]}",
        m.effect.taken.at(k),
        "probability",
        m.probe.n_cue,
        f"beyond what it takes of the label's; p: more than {TOLERATED:g}, Benjamini-Hochberg over operators",
        judged.adjusted_taken[k],
    )


def _cue_effect(m: Measurement) -> Estimate:
    note = "how far predictions differ with the cue within the label, on unchanged images"
    return _reliance("the cue's effect", m.effect.cue, "probability", m.probe.n_cue, note)


def _ratio(judged: Judged) -> Estimate:
    m, k = judged.measurement, _shown(judged, RATIO_RULE)
    if k is None:
        nothing = Interval(math.nan, math.nan, math.nan, reason="no operator has one")
        return _reliance("head-read R_sc", nothing, "ratio")
    number, note = m.head.r_sc.at(k, m.operators.uncompared[k]), "p: differs from 1, Benjamini-Hochberg over operators"
    return _reliance(f"head-read R_sc, {m.operators.name[k]}", number, "ratio", m.n, note, judged.adjusted[k])


def _family_ratio(m: Measurement) -> Estimate:
    note = "decides nothing: the family dilutes the one operator that touches the cue"
    return _reliance("head-read R_sc, all operators", m.head.family_r_sc, "ratio", m.n, note)


def _reliance(name: str, number: Interval, unit: str, n: int | None = None, note: str = "", p: float | None = None) -> Estimate:
    return Estimate.of(name, number, "reliance", unit=unit, n=n, note=note, p=p, group="Reliance")


def _encoding(m: Measurement) -> list[Estimate]:
    family, paper = m.features, "the paper's; a cue that is encoded and unused raises it too"

    def encoded(name: str, number: Interval, unit: str, n: int, note: str) -> Estimate:
        return Estimate.of(name, number, "encoding", unit=unit, n=n, note=note, group="Encoding")

    return [
        encoded("AUC_nc, of the cue's probe", m.probe.auc, "AUC", m.probe.n_cue, _cue_note(m)),
        encoded("S_nc of the features, all operators", family.family_s_nc, "feature norms", m.n, "decides nothing"),
        encoded("R_sc of the features, all operators", family.family_r_sc, "ratio", m.n, paper),
    ]


def _cue_note(m: Measurement) -> str:
    if not m.attribute:
        return "no cue column: a border was inserted in a random half of the rows"
    if m.continuous:
        return "concordance"
    return f"{m.attribute}, on held-out rows"


def _indices(judged: Judged) -> list[Estimate]:
    panel = judged.panel
    note = ""
    if panel is not None:
        note = f"against {panel.name} ({len(panel.models)} models), held fixed"
    more: dict[str, Any] = {"unit": "index", "note": note, "group": "Index"}
    features = judged.index_interval(judged.measurement, FEATURES)
    head = judged.index_interval(judged.measurement, HEAD)
    return [
        Estimate.of(INDEX_NAMES[FEATURES], features, "encoding", **more),
        Estimate.of(INDEX_NAMES[HEAD], head, "reliance", **more),
    ]


# ---- figures -------------------------------------------------------------------------------------------------------------


def exhibits(judged: Judged) -> list[Exhibit]:
    figures: list[Exhibit] = [effect_bars(judged), probe_bars(judged), ratio_bars(judged)]
    figures += [operator_table(judged), sensitivity_table(judged), component_table(judged)]
    if judged.panel is not None:
        figures += [reduced_index_table(judged), family_table(judged)]
    return [*figures, *perturbed_galleries(judged)]


def _bars(labels: Sequence[str], series: dict[str, Intervals], **more: Any) -> Bars:
    return Bars(
        labels=tuple(labels),
        series={name: each.value for name, each in series.items()},
        low={name: each.low for name, each in series.items()},
        high={name: each.high for name, each in series.items()},
        **more,
    )


def effect_bars(judged: Judged) -> Bars:
    effect = judged.measurement.effect
    return _bars(
        ("as it is", *judged.measurement.operators.name),
        {"of the cue": _before(effect.cue, effect.left_cue), "of the label": _before(effect.label, effect.left_label)},
        title="The cue's effect on predictions under each operator",
        caption="How far mean predicted probabilities differ with the cue within the label, and with the label within the cue, "
        "with 95 % intervals. An operator that spoils the images lowers both; one that removes a cue on which the model relies "
        "lowers only the first.",
        value_label="difference of probability",
    )


def _before(first: Interval, others: Intervals) -> Intervals:
    return Intervals(
        np.append(first.value, others.value), np.append(first.low, others.low), np.append(first.high, others.high)
    )  # fmt: skip


def probe_bars(judged: Judged) -> Bars:
    m = judged.measurement
    within = ", within the label." if m.probe.within else "."
    return _bars(
        m.operators.name,
        {"fall of AUC": m.probe.drop},
        title="Which operators take the cue from the features",
        caption="How far the AUC falls with which a probe, fitted on unchanged audit rows, reads the cue from changed test rows"
        + within,
        reference=judged.touched,
        reference_label="counts as taken beyond",
        value_label="AUC",
    )


def ratio_bars(judged: Judged) -> Bars:
    m = judged.measurement
    return _bars(
        m.operators.name,
        {name: space.r_sc for name, space in zip(SPACES, m.spaces)},
        title="How far each operator moves the model, against content of equal pixel change",
        caption="R_sc with 95 % intervals. Above 1 the model reacts more to the acquisition than to the content. The features "
        "also move with what is encoded and not used. Both depend on how strong the operator is.",
        reference=1.0,
        reference_label="as much as content",
        value_label="R_sc",
    )


# ---- tables --------------------------------------------------------------------------------------------------------------


def operator_table(judged: Judged) -> Table:
    m = judged.measurement
    effect, p = m.effect, judged.adjusted_taken
    rows = []
    for k, name in enumerate(m.operators.name):
        effects = (effect.left_cue, effect.left_label, effect.taken)
        cells = [Cell.of(m.probe.drop.at(k, "no cue")), *(Cell.of(each.at(k, effect.reason)) for each in effects)]
        rows.append([name, m.operators.severity[k], m.operators.status[k], *cells, p[k]])
    return Table(
        title="Every operator and the cue",
        caption="Severity and status of the calibration; how much of the probe's AUC the operator takes; what it leaves of the "
        "cue's and the label's effect on predictions; and what it takes of the cue's beyond what it takes of the label's, with p "
        f"(more than {TOLERATED:g}, Benjamini-Hochberg over operators).",
        columns=(
            "operator", "severity", "calibration", "fall of the probe's AUC", "cue's effect", "label's effect", "taken", "p",
        ),
        rows=rows,
        highlight=tuple(np.flatnonzero(judged.calls).tolist()),
    )  # fmt: skip


def sensitivity_table(judged: Judged) -> Table:
    m = judged.measurement
    rows = []
    for k, name in enumerate(m.operators.name):
        why = m.operators.uncompared[k]
        cells = [*_sensitivity_cells(m.features, k, why), *_sensitivity_cells(m.head, k, why)]
        rows.append([name, m.operators.change[k], m.operators.content[k] or "none", *cells, judged.adjusted[k]])
    return Table(
        title="Every operator and content of equal pixel change",
        caption="Mean change of a pixel, the content operators with the same change, and how far both move the features and what "
        "the head reads. p: R_sc of what the head reads differs from 1, Benjamini-Hochberg over operators.",
        columns=(
            "operator", "pixel change", "compared with", "S_nc (features)", "S_c (features)", "R_sc (features)", "S_nc (head)",
            "S_c (head)", "R_sc (head)", "p",
        ),
        rows=rows,
        highlight=tuple(np.flatnonzero(judged.moves & judged.touches).tolist()),
    )  # fmt: skip


def _sensitivity_cells(space: Sensitivities, k: int, reason: str) -> list[Cell]:
    return [Cell.of(each.at(k, reason)) for each in (space.s_nc, space.s_c, space.r_sc)]


def component_table(judged: Judged) -> Table:
    rows = []
    for model in judged.models:
        m = model.measurement
        for space, name in enumerate(SPACES):
            index = Cell.of(judged.index_interval(m, space))
            rows.append([m.model, model.role, name, *m.components[space], *judged.scaled(m, space), index])
    return Table(
        title="Components of the index",
        caption="Components over all operators, raw and in the panel's range (0 its smallest value, 1 its largest), and their "
        "weighted mean, the Shortcut Dependence Index. It compares models and is no verdict. Training for consistency (CCR) "
        "lowers S_nc by construction.",
        columns=("model", "role", "of", *COMPONENTS, *(f"{name} in the panel's range" for name in COMPONENTS), "SDI"),
        rows=rows,
    )


def reduced_index_table(judged: Judged) -> Table:
    rows = []
    for model in judged.models:
        indices = [_index_from(judged, model.measurement, chosen) for chosen in SUBSETS]
        rows.append([model.measurement.model, model.role, judged.index(model.measurement), *indices])
    names = [" and ".join(compress(COMPONENTS, chosen)) for chosen in SUBSETS]
    return Table(
        title="The index from fewer components",
        caption="Equal weights over the components named.",
        columns=("model", "role", "SDI", *names),
        rows=rows,
    )


def _index_from(judged: Judged, m: Measurement, chosen: tuple[int, ...]) -> float:
    """The index of the features from some components, with equal weights."""
    if judged.panel is None:
        return np.nan
    weights = [each / sum(chosen) for each in chosen]
    return float(combine(m.components[FEATURES][None], judged.panel.limits(FEATURES), weights)[0])


def family_table(judged: Judged) -> Table:
    """S_nc and R_sc of one family of operators; the index in the range of these models, as a frozen panel has no such range."""
    several = len(judged.models) > 1
    rows = []
    for family, members in FAMILIES.items():
        components = np.array([_components_of(model.measurement, members) for model in judged.models])
        limits = _range(components)
        for model, own in zip(judged.models, components):
            if several:
                index = combine(own[None], limits, judged.weights)[0]
            else:
                index = np.nan
            rows.append([family, model.measurement.model, model.role, *own[:2], index])
    return Table(
        title="The index from one family of operators",
        caption="Of the features. Here the range is that of the models in this table.",
        columns=("operators", "model", "role", "S_nc", "R_sc", "SDI"),
        rows=rows,
    )


def _components_of(m: Measurement, operators: tuple[str, ...]) -> np.ndarray:
    """(3,) the components of the features over some operators."""
    s_nc, s_c = m.features.s_nc.value, m.features.s_c.value
    chosen = np.isin(m.operators.name, operators)
    compared = chosen & ~np.isnan(s_c)
    mean = s_nc[chosen].mean() if chosen.any() else np.nan
    if compared.any():
        ratio = s_nc[compared].mean() / s_c[compared].mean()
    else:
        ratio = np.nan
    return np.array([mean, ratio, m.probe.auc.value])


def _range(components: np.ndarray) -> np.ndarray:
    """(2, 3) smallest and largest of each component (m, 3); 0 where no model has it."""
    known = ~np.isnan(components).all(axis=0)
    filled = np.where(known, components, 0.0)
    return np.stack([np.where(known, np.nanmin(filled, axis=0), 0.0), np.where(known, np.nanmax(filled, axis=0), 0.0)])


# ---- pictures ------------------------------------------------------------------------------------------------------------


def perturbed_galleries(judged: Judged) -> list[Exhibit]:
    pictures = judged.severities.pictures
    excluded = {o.operator for o in judged.severities.operators if o.status == EXCLUDED}
    fields, items = [], []
    for name, severity, png in pictures:
        if name == FIELD:
            fields.append(Picture(png=png, caption=""))
        else:
            note = " (excluded)" if name in excluded else ""
            items.append(Picture(png=png, caption=f"{name}, severity {severity:.2g}{note}", group=name))
    galleries: list[Exhibit] = []
    if pictures:
        galleries.append(
            Gallery(
                title="What the operators do",
                caption="One validation image under every operator, at its severity and at others.",
                items=items,
            )
        )
    if fields:
        galleries.append(
            Gallery(
                title="The field of view",
                caption="Grey is what surrounds the field of view, as computed from the pixels: everything as dark as the border "
                "that is connected to it. Border operators work at its outline, content operators inside.",
                items=fields,
            )
        )
    return galleries
