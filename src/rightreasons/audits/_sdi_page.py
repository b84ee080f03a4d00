"""How SDI's result is said and shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rightreasons.audits._contract import estimate
from rightreasons.audits._sdi_formulas import COMPONENTS, combine, normalise
from rightreasons.audits._sdi_measure import SPACES, TOLERATED, Measurement
from rightreasons.audits.sdi.severities import DEPENDS, EXCLUDED, FIELD
from rightreasons.findings import Bars, Cell, Check, Estimate, Exhibit, Gallery, Picture, Table
from rightreasons.stats.resampling import Interval

if TYPE_CHECKING:
    from rightreasons.audits.sdi import Result

FEATURES, HEAD = 0, 1
FAMILIES = {
    "border": ("border", "unborder", "resize", "pad", "periphery", "tags"),
    "colour and light": ("channels", "cast", "illumination", "flatfield", "histogram"),
    "device": ("jpeg", "blur", "grain"),
}
SUBSETS = ((0,), (1,), (2,), (0, 1), (0, 2), (1, 2))


def sentence(result: Result) -> str:
    m = result.measurement
    if result.verdict == "inconclusive":
        return f"SDI gives no verdict: {result.problem}. {_said(result)}".strip()
    k = _shown(result)
    if k is None:  # a verdict rests on an operator
        return ""
    by_ratio = result.decide == "ratio"
    if result.verdict == "shortcut":
        does = (
            f"moves what the head reads {_value(m.r_sc[HEAD, k])} times as much as content changes of equal pixel size"
            if by_ratio
            else f"takes {_value(m.taken[k])} of the {_value(m.cue_effect)} by which predictions differ with it within the label"
        )
        return f"{m.operator[k].capitalize()}, which takes {m.attribute} from the features, {does}: the model relies on it."
    most = (
        f"move what the head reads at most {_value(m.r_sc[HEAD, k])} times as much as content changes of equal pixel size"
        if by_ratio
        else f"change how far predictions differ with it within the label by at most {_value(m.taken[k])}"
    )
    return (
        f"Operators that take {m.attribute} from the features {most} ({m.operator[k]}): no evidence that the model relies on it."
    )


def estimates(result: Result) -> list[Estimate]:
    m = result.measurement
    first = [_taken(result), _cue_effect(m), _ratio(result)]
    if result.decide == "ratio":
        first = [first[2], first[0], first[1]]
    encoding = [
        estimate("AUC_nc, of the cue's probe", m.auc, "encoding", unit="AUC", n=m.n_cue, note=_cue_note(m), group="Encoding"),
        Estimate(
            name="S_nc of the features, all operators", **_three(m.family_s_nc[FEATURES]), row="encoding", n=m.n,
            unit="feature norms", group="Encoding", note="decides nothing",
        ),
        Estimate(
            name="R_sc of the features, all operators", **_three(m.family_r_sc[FEATURES]), row="encoding", n=m.n, unit="ratio",
            group="Encoding", note="the paper's; a cue that is encoded and unused raises it too",
        ),
    ]  # fmt: skip
    reliance = Estimate(
        name="head-read R_sc, all operators", **_three(m.family_r_sc[HEAD]), row="reliance", n=m.n, unit="ratio",
        group="Reliance", note="decides nothing: the family dilutes the one operator that touches the cue",
    )  # fmt: skip
    against = "" if result.panel is None else f"against {result.panel.name} ({len(result.panel.models)} models), held fixed"
    index = [
        estimate(
            f"SDI ({SPACES[space]})", result.index_interval(m, space), "encoding" if space == FEATURES else "reliance",
            unit="index", note=against, group="Index",
        )
        for space in (FEATURES, HEAD)
    ]  # fmt: skip
    return [*first, reliance, *encoding, *index]


def checks(result: Result) -> list[Check]:
    m, s = result.measurement, result.severities
    marked = [o for o in s.operators if o.status == DEPENDS]
    # What upsets a model without use for the cue as much says nothing about the baseline.
    off = [o.operator for o in marked if o.drop is None or o.drop - (o.drop_reference or 0.0) > s.tolerance]
    alike = [o.operator for o in marked if o.operator not in off]
    clipped = _clipped(result)
    return [
        Check(
            name="severities were calibrated on a baseline",
            passed=m.calibrated,
            note=f"baseline {m.baseline}" if m.calibrated else "reference severities; calibrate them first",
            decides=True,
        ),
        Check(
            name="no operator is left unexplained by the calibration",
            passed=not m.unresolved,
            note=f"{', '.join(m.unresolved)} decide nothing: give a cue-balanced reference model or masks"
            if m.unresolved
            else "",
        ),
        Check(
            name="an operator takes the cue from the features",
            passed=bool(result.touches.any()) if m.attribute else None,
            note=", ".join(np.array(m.operator)[result.touches]) or "the probe reads the cue as well under every operator",
            decides=True,
        ),
        Check(
            name="a use of the cue would show under an operator",
            passed=bool(result.sees.any()) if m.attribute and not m.effect_reason else None,
            note=", ".join(np.array(m.operator)[result.sees])
            or "none takes half of what the probe reads of the cue and leaves half of the label's effect",
        ),
        Check(
            name="content operators of equal pixel change exist",
            passed=not np.isnan(m.r_sc[HEAD, :, 0]).any(),
            note="; ".join(f"{o}: {why}" for o, why in zip(m.operator, m.reason) if why),
        ),
        Check(
            name="the baseline does not depend on an operator",
            passed=not off if m.calibrated else None,
            note="; ".join(
                [f"its AUC falls under {', '.join(off)} for a reason that is not content: that is evidence"] * bool(off)
                + [f"its AUC falls under {', '.join(alike)}, but so does the reference's: no evidence"] * bool(alike)
            ),
        ),
        Check(
            name="every operator was used",
            passed=not (m.excluded or m.missing),
            note="; ".join([*(f"excluded {e}" for e in m.excluded), *(f"not extracted: {o}" for o in m.missing)]),
        ),
        Check(name="the probe converged", passed=m.converged),
        Check(name="the model lies inside the panel's range", passed=None if result.panel is None else not clipped, note=clipped),
    ]


def exhibits(result: Result) -> list[Exhibit]:
    bars = [_effects(result), _falls(result), _ratios(result)]
    tables = [_operators(result), _sensitivities(result), _components(result)]
    return [*bars, *tables, *_ablations(result), *_gallery(result)]


# ---- the exhibits --------------------------------------------------------------------------------------------------------


def _effects(result: Result) -> Bars:
    m = result.measurement
    of = {"of the cue": (m.cue_effect, m.left_cue), "of the label": (m.label_effect, m.left_label)}
    value, low, high = ({name: np.append(first[k], left[:, k]) for name, (first, left) in of.items()} for k in range(3))
    return Bars(
        title="The cue's effect on predictions under each operator",
        caption="How far mean predicted probabilities differ with the cue within the label, and with the label within the cue, "
        "with 95 % intervals. An operator that spoils the images lowers both; one that takes a cue on which the model relies "
        "lowers the first alone.",
        labels=("as it is", *m.operator),
        series=value,
        low=low,
        high=high,
        value_label="difference of probability",
    )


def _ratios(result: Result) -> Bars:
    m = result.measurement
    return Bars(
        title="How far each operator moves the model, against content of equal pixel change",
        caption="R_sc with 95 % intervals. Above 1 the model reacts more to the acquisition than to the content. The features "
        "also move with what is encoded and not used. Both depend on how strong the operator is.",
        labels=m.operator,
        series={name: m.r_sc[space, :, 0] for space, name in enumerate(SPACES)},
        low={name: m.r_sc[space, :, 1] for space, name in enumerate(SPACES)},
        high={name: m.r_sc[space, :, 2] for space, name in enumerate(SPACES)},
        reference=1.0,
        reference_label="as much as content",
        value_label="R_sc",
    )


def _falls(result: Result) -> Bars:
    m = result.measurement
    return Bars(
        title="Which operators take the cue from the features",
        caption="Fall of the AUC with which a probe, fitted on unchanged audit rows, reads the cue from changed test rows"
        + (", within the label." if m.within else "."),
        labels=m.operator,
        series={"fall of AUC": m.auc_drop[:, 0]},
        low={"fall of AUC": m.auc_drop[:, 1]},
        high={"fall of AUC": m.auc_drop[:, 2]},
        reference=result.touched,
        reference_label="counts as taken beyond",
        value_label="AUC",
    )


def _operators(result: Result) -> Table:
    m = result.measurement
    rows = [
        [
            name, m.severity[k], m.status[k], _cell(m.auc_drop[k], "no cue"), _cell(m.left_cue[k], m.effect_reason),
            _cell(m.left_label[k], m.effect_reason), _cell(m.taken[k], m.effect_reason), result.adjusted_taken[k],
        ]
        for k, name in enumerate(m.operator)
    ]  # fmt: skip
    return Table(
        title="Every operator and the cue",
        caption="Severity and status of the calibration; what the operator takes of the probe's reading; what it leaves of the "
        "cue's and the label's effect on predictions; and what it takes of the cue's beyond what it takes of the label's, with p "
        f"(more than {TOLERATED:g}, Benjamini-Hochberg over operators).",
        columns=(
            "operator", "severity", "calibration", "fall of the probe's AUC", "cue's effect", "label's effect", "taken", "p",
        ),
        rows=rows,
        highlight=tuple(np.flatnonzero(result.calls).tolist()),
    )  # fmt: skip


def _sensitivities(result: Result) -> Table:
    m = result.measurement
    rows = [
        [
            name,
            m.change[k],
            m.content[k] or "none",
            *(_cell(table[space, k], m.reason[k]) for space in (FEATURES, HEAD) for table in (m.s_nc, m.s_c, m.r_sc)),
            result.adjusted[k],
        ]
        for k, name in enumerate(m.operator)
    ]
    spaces = [f"{what} ({where})" for where in ("features", "head") for what in ("S_nc", "S_c", "R_sc")]
    return Table(
        title="Every operator and content of equal pixel change",
        caption="Mean change of a pixel, the content operators with the same change, and how far both move the features and what "
        "the head reads. p: R_sc of what the head reads differs from 1, Benjamini-Hochberg over operators.",
        columns=("operator", "pixel change", "compared with", *spaces, "p"),
        rows=rows,
        highlight=tuple(np.flatnonzero(result.moves & result.touches).tolist()),
    )


def _components(result: Result) -> Table:
    rows = []
    for role, m in _all(result):
        for space in (FEATURES, HEAD):
            index = result.index_interval(m, space)
            cell = Cell(value=index.value, low=index.low, high=index.high, reason=index.reason)
            rows.append([m.model, role, SPACES[space], *m.components[space], *_scaled(result, m, space), cell])
    return Table(
        title="Components of the index",
        caption="Components over all operators, raw and in the panel's range (0 its least value, 1 its largest), and their mean "
        "by weights, the Shortcut Dependence Index. It compares models and is no verdict. Training for consistency (CCR) lowers "
        "S_nc by construction.",
        columns=("model", "role", "of", *COMPONENTS, *(f"{name} in the panel's range" for name in COMPONENTS), "SDI"),
        rows=rows,
    )


def _ablations(result: Result) -> list[Exhibit]:
    if result.panel is None:
        return []
    rows = []
    for role, m in _all(result):
        cells = []
        for subset in SUBSETS:
            weights = [1 / len(subset) if k in subset else 0.0 for k in range(3)]
            cells.append(combine(m.components[FEATURES][None], result.panel.limits(FEATURES), weights)[0])
        rows.append([m.model, role, result.index(m), *cells])
    names = [" and ".join(COMPONENTS[k] for k in subset) for subset in SUBSETS]
    parts = Table(
        title="The index from fewer components",
        caption="Equal weights over the components named.",
        columns=("model", "role", "SDI", *names),
        rows=rows,
    )
    return [parts, _by_family(result)]


def _by_family(result: Result) -> Table:
    """S_nc and R_sc of one family of operators; the index in the range of these models, as a frozen panel has no such range."""
    models = _all(result)
    rows = []
    for name, members in FAMILIES.items():
        found = np.array([_restricted(m, members) for _, m in models])
        known = ~np.isnan(found).all(axis=0)
        limits = np.stack([np.where(known, np.nanmin(np.where(known, found, 0.0), axis=0), 0.0),
                           np.where(known, np.nanmax(np.where(known, found, 0.0), axis=0), 0.0)])  # fmt: skip
        for (role, m), components in zip(models, found):
            index = combine(components[None], limits, result.weights)[0] if len(models) > 1 else np.nan
            rows.append([name, m.model, role, *components[:2], index])
    return Table(
        title="The index from one family of operators",
        caption="Of the features. Here the range is that of the models in this table.",
        columns=("operators", "model", "role", "S_nc", "R_sc", "SDI"),
        rows=rows,
    )


def _restricted(m: Measurement, members: tuple[str, ...]) -> np.ndarray:
    chosen = np.isin(m.operator, members)
    both = chosen & ~np.isnan(m.s_c[FEATURES, :, 0])
    s_nc = m.s_nc[FEATURES, chosen, 0].mean() if chosen.any() else np.nan
    r_sc = m.s_nc[FEATURES, both, 0].mean() / m.s_c[FEATURES, both, 0].mean() if both.any() else np.nan
    return np.array([s_nc, r_sc, m.components[FEATURES, 2]])


def _gallery(result: Result) -> list[Exhibit]:
    s = result.severities
    if not s.pictures:
        return []
    status = {o.operator: o.status for o in s.operators}
    fields = [Picture(png=picture, caption="") for name, _, picture in s.pictures if name == FIELD]
    items = [
        Picture(png=picture, caption=f"{name}, severity {severity:.2g}" + _excluded(status.get(name, "")), group=name)
        for name, severity, picture in s.pictures
        if name != FIELD
    ]
    shown = Gallery(
        title="What the operators do",
        caption="One validation image under every operator, at its severity and at others.",
        items=items,
    )
    field = Gallery(
        title="The field of view",
        caption="Grey is what surrounds the field of view, as computed from the pixels: all that is as dark as the border and "
        "hangs together with it. Border operators work at its outline, content operators inside.",
        items=fields,
    )
    return [shown, field] if fields else [shown]


def _excluded(status: str) -> str:
    return " (excluded)" if status == EXCLUDED else ""


# ---- words and cells -----------------------------------------------------------------------------------------------------


def _taken(result: Result) -> Estimate:
    m, k = result.measurement, _shown(result, "cue")
    told = {"row": "reliance", "unit": "probability", "group": "Reliance"}
    if k is None:
        return Estimate(name="taken of the cue's effect", value=None, reason=m.effect_reason or "no operator", **told)
    return Estimate(
        name=f"taken of the cue's effect, {m.operator[k]}", **_three(m.taken[k]), p=result.adjusted_taken[k], n=m.n_cue,
        note=f"beyond what it takes of the label's; p: more than {TOLERATED:g}, Benjamini-Hochberg over operators", **told,
    )  # fmt: skip


def _cue_effect(m: Measurement) -> Estimate:
    return Estimate(
        name="the cue's effect", **_three(m.cue_effect), row="reliance", n=m.n_cue, unit="probability", group="Reliance",
        reason=m.effect_reason, note="how far predictions differ with the cue within the label, images as they are",
    )  # fmt: skip


def _ratio(result: Result) -> Estimate:
    m, k = result.measurement, _shown(result, "ratio")
    if k is None:
        return Estimate(
            name="head-read R_sc", value=None, row="reliance", reason="no operator has one", unit="ratio", group="Reliance"
        )
    return Estimate(
        name=f"head-read R_sc, {m.operator[k]}", **_three(m.r_sc[HEAD, k]), p=result.adjusted[k], row="reliance", n=m.n,
        unit="ratio", group="Reliance", note="p: differs from 1, Benjamini-Hochberg over operators",
        reason=m.reason[k] if np.isnan(m.r_sc[HEAD, k, 0]) else "",
    )  # fmt: skip


def _shown(result: Result, rule: str = "") -> int | None:
    """The operator to speak of: the largest value among those that count most for the verdict."""
    m = result.measurement
    by_ratio = (rule or result.decide) == "ratio"
    values = m.r_sc[HEAD, :, 0] if by_ratio else m.taken[:, 0]
    defined = ~np.isnan(values)
    for among in (result.calls & defined, result.touches & result.sees & defined, result.touches & defined, defined):
        if among.any():
            return int(np.where(among, np.nan_to_num(values, nan=-np.inf), -np.inf).argmax())
    return None


def _said(result: Result) -> str:
    m, k = result.measurement, _shown(result)
    if k is None:
        return ""
    if result.decide == "ratio":
        return f"The largest head-read R_sc is {_value(m.r_sc[HEAD, k])} ({m.operator[k]})."
    return f"{m.operator[k].capitalize()} takes {_value(m.taken[k])} of the cue's effect of {_value(m.cue_effect)}."


def _clipped(result: Result) -> str:
    if result.panel is None:
        return ""
    m, found = result.measurement, []
    for space in (FEATURES, HEAD):
        low, high = result.panel.limits(space)
        scaled = _scaled(result, m, space)
        for k, name in enumerate(COMPONENTS):
            if not np.isnan(scaled[k]) and not low[k] <= m.components[space, k] <= high[k]:
                found.append(f"{name} of {SPACES[space]} is cut to the panel's range")
    return "; ".join(found)


def _scaled(result: Result, m: Measurement, space: int) -> np.ndarray:
    """(3,) components in the range of the panel; NaN without one."""
    if result.panel is None:
        return np.full(3, np.nan)
    found: np.ndarray = normalise(m.components[space][None], result.panel.limits(space))[0]
    return found


def _cue_note(m: Measurement) -> str:
    if not m.attribute:
        return "no cue column: a border was inserted in a random half of the rows"
    return "concordance" if m.continuous else f"{m.attribute}, on held-out rows"


def _all(result: Result) -> list[tuple[str, Measurement]]:
    return [("test", result.measurement), *(("test", m) for m in result.seeds), *result.others]


def _three(values: np.ndarray) -> dict[str, float]:
    return dict(zip(("value", "low", "high"), values.tolist()))


def _value(values: np.ndarray) -> str:
    return f"{values[0]:.2f} ({values[1]:.2f} to {values[2]:.2f})"


def _cell(values: np.ndarray, reason: str) -> Cell:
    found = Interval(*values)
    return Cell(value=found.value, low=found.low, high=found.high, reason=reason if np.isnan(found.value) else "")
