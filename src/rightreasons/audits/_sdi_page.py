"""How SDI's result is said and shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rightreasons.audits._contract import estimate
from rightreasons.audits._sdi_formulas import COMPONENTS, combine, normalise
from rightreasons.audits._sdi_measure import SPACES, Measurement
from rightreasons.audits._sdi_severities import DEPENDS, EXCLUDED
from rightreasons.findings import Bars, Cell, Check, Estimate, Exhibit, Gallery, Picture, Table
from rightreasons.stats.resampling import Interval

if TYPE_CHECKING:
    from rightreasons.audits.sdi import Result

FEATURES, HEAD = 0, 1
FAMILIES = {
    "border": ("border", "unborder", "resize", "pad", "periphery", "tags"),
    "colour and light": ("channels", "cast", "illumination", "histogram"),
    "device": ("jpeg", "blur", "grain"),
}
SUBSETS = ((0,), (1,), (2,), (0, 1), (0, 2), (1, 2))


def sentence(result: Result) -> str:
    m = result.measurement
    if result.verdict == "inconclusive":
        return f"SDI gives no verdict: {result.problem}. {_said_ratio(result)}".strip()
    if result.verdict == "shortcut":
        k = _leading(result, result.moves & result.touches)
        return (
            f"{m.operator[k].capitalize()}, which takes {m.attribute} from the features, moves what the head reads "
            f"{_value(m.r_sc[HEAD, k])} times as much as content changes of equal pixel size: the model relies on it."
        )
    k = _leading(result, result.touches & ~np.isnan(m.r_sc[HEAD, :, 0]))
    return (
        f"Operators that take {m.attribute} from the features move what the head reads at most {_value(m.r_sc[HEAD, k])} "
        f"times as much as content changes of equal pixel size ({m.operator[k]}): no evidence that the model relies on it."
    )


def estimates(result: Result) -> list[Estimate]:
    m = result.measurement
    first = [estimate_of("head-read R_sc", m, result, _shown(result))]
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
    index = [
        Estimate(
            name=f"SDI ({SPACES[space]})",
            value=result.index(m, space),
            row="encoding" if space == FEATURES else "reliance",
            reason="" if result.panel else "one model alone has components but no index: give a panel",
            note="" if result.panel is None else f"against {result.panel.name} ({len(result.panel.models)} models)",
            unit="index",
            group="Index",
        )
        for space in (FEATURES, HEAD)
    ]
    return [*first, reliance, *encoding, *index]


def checks(result: Result) -> list[Check]:
    m, s = result.measurement, result.severities
    off = [o.operator for o in s.operators if o.status == DEPENDS]
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
            note=f"{', '.join(m.unresolved)}: give a cue-balanced reference model or masks" if m.unresolved else "",
            decides=True,
        ),
        Check(
            name="an operator takes the cue from the features",
            passed=bool(result.touches.any()) if m.attribute else None,
            note=", ".join(np.array(m.operator)[result.touches]) or "the probe reads the cue as well under every operator",
            decides=True,
        ),
        Check(
            name="content operators of equal pixel change exist",
            passed=not np.isnan(m.r_sc[HEAD, :, 0]).any(),
            note="; ".join(f"{o}: {why}" for o, why in zip(m.operator, m.reason) if why),
        ),
        Check(
            name="the baseline does not depend on an operator",
            passed=not off if m.calibrated else None,
            note=f"its AUC falls under {', '.join(off)} for a reason that is not content: that is evidence" if off else "",
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
    return [_ratios(result), _falls(result), _operators(result), _components(result), *_ablations(result), *_gallery(result)]


# ---- the exhibits --------------------------------------------------------------------------------------------------------


def _ratios(result: Result) -> Bars:
    m = result.measurement
    return Bars(
        title="How far each operator moves the model, against content of equal pixel change",
        caption="R_sc with 95 % intervals. Above 1 the model reacts more to the acquisition than to the content. What the head "
        "reads decides; the features also move with what is encoded and not used.",
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
    adjusted = result.adjusted
    rows = [
        [
            name,
            m.severity[k],
            m.status[k],
            m.change[k],
            m.content[k] or "none",
            *(_cell(table[space, k], m.reason[k]) for space in (FEATURES, HEAD) for table in (m.s_nc, m.s_c, m.r_sc)),
            adjusted[k],
            _cell(m.auc_drop[k], "no cue"),
        ]
        for k, name in enumerate(m.operator)
    ]
    spaces = [f"{what} ({where})" for where in ("features", "head") for what in ("S_nc", "S_c", "R_sc")]
    return Table(
        title="Every operator",
        caption="Severity and status of the calibration, mean change of a pixel, the content operators with the same change, and "
        "what moves. p: R_sc of what the head reads differs from 1, Benjamini-Hochberg over operators.",
        columns=("operator", "severity", "calibration", "pixel change", "compared with", *spaces, "p", "fall of the probe's AUC"),
        rows=rows,
        highlight=tuple(np.flatnonzero(result.moves & result.touches).tolist()),
    )


def _components(result: Result) -> Table:
    rows = []
    for role, m in _all(result):
        for space in (FEATURES, HEAD):
            rows.append([m.model, role, SPACES[space], *m.components[space], result.index(m, space)])
    return Table(
        title="Components of the index",
        caption="Raw components over all operators and, against the panel, the Shortcut Dependence Index: 0 is the least of the "
        "panel, 1 the most. It compares models and is no verdict. Training for consistency (CCR) lowers S_nc by construction.",
        columns=("model", "role", "of", *COMPONENTS, "SDI"),
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
    items = [
        Picture(png=picture, caption=f"{name}, severity {severity:.2g}" + _excluded(status.get(name, "")), group=name)
        for name, severity, picture in s.pictures[:60]
    ]
    return [
        Gallery(
            title="What the operators do",
            caption="One validation image under every operator at half, once and twice its severity.",
            items=items,
        )
    ]


def _excluded(status: str) -> str:
    return " (excluded)" if status == EXCLUDED else ""


# ---- words and cells -----------------------------------------------------------------------------------------------------


def estimate_of(name: str, m: Measurement, result: Result, k: int | None) -> Estimate:
    if k is None:
        return Estimate(name=name, value=None, row="reliance", reason="no operator has one", unit="ratio", group="Reliance")
    return Estimate(
        name=f"{name}, {m.operator[k]}",
        **_three(m.r_sc[HEAD, k]),
        p=result.adjusted[k],
        row="reliance",
        n=m.n,
        unit="ratio",
        group="Reliance",
        note="p: differs from 1, Benjamini-Hochberg over operators",
        reason=m.reason[k] if np.isnan(m.r_sc[HEAD, k, 0]) else "",
    )


def _shown(result: Result) -> int | None:
    """The operator to speak of: the largest ratio among those that count most for the verdict."""
    m = result.measurement
    defined = ~np.isnan(m.r_sc[HEAD, :, 0])
    for among in (result.moves & result.touches, result.touches & defined, defined):
        if among.any():
            return _leading(result, among)
    return None


def _leading(result: Result, among: np.ndarray) -> int:
    ratios = result.measurement.r_sc[HEAD, :, 0]
    return int(np.where(among, np.nan_to_num(ratios, nan=-np.inf), -np.inf).argmax())


def _said_ratio(result: Result) -> str:
    k = _shown(result)
    if k is None:
        return ""
    m = result.measurement
    return f"The largest head-read R_sc is {_value(m.r_sc[HEAD, k])} ({m.operator[k]})."


def _clipped(result: Result) -> str:
    if result.panel is None:
        return ""
    m, found = result.measurement, []
    for space in (FEATURES, HEAD):
        low, high = result.panel.limits(space)
        scaled = normalise(m.components[space][None], result.panel.limits(space))[0]
        for k, name in enumerate(COMPONENTS):
            if not np.isnan(scaled[k]) and not low[k] <= m.components[space, k] <= high[k]:
                found.append(f"{name} of {SPACES[space]} is cut to the panel's range")
    return "; ".join(found)


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
