"""ART's finding in words, tables and pictures."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from rightreasons.audits._art_judge import (
    AGREEMENT,
    CLOSED,
    DECOUPLED,
    DELETED,
    FLOOR,
    MISS,
    RESTORABLE,
    SUBSTANTIAL,
    Judged,
    Measurement,
    joint_effect,
)
from rightreasons.audits._art_pictures import gallery
from rightreasons.audits._art_runs import CONTROLS
from rightreasons.audits._contract import estimate
from rightreasons.audits._pull import is_followed, mean_pull, say_pull
from rightreasons.findings import Band, Bars, Cell, Check, Curve, Curves, Estimate, Exhibit, Scatter, Table
from rightreasons.stats.groups import SMALLEST_GROUP
from rightreasons.stats.resampling import FEWEST_EXCHANGEABLE, Interval, p_value
from rightreasons.stats.units import over_seeds

DUE_DRAWS = 200
SHARED = 0.3  # cosine from which a label direction that brings the attribute's errors back is not the label's alone
NUMBERS = ("worst-group accuracy", "conflict shortcut rate", "errors on aligned rows")
CHANGES = ("drop of worst-group accuracy", "gain of conflict shortcut rate", "gain of errors on aligned rows")
PROBES = {"linear": "linear probe", "centre": "nearest centre"}
TARGETS = {
    "class-conditional": "attribute, within label",
    "global": "attribute, all rows",
    "joint": "group (label and attribute)",
}
ART_HEAD = "art_head"
REFERENCES = ("erm", "balanced")  # what the paper's averages leave out
MEANING = {
    RESTORABLE: "readable and usable by the head",
    MISS: "usable by the head although the probe does not read it",
    DECOUPLED: "in the features, but the head does not use it when it is amplified",
    DELETED: "no longer readable within the label, and nothing to amplify",
}


# ---- words ---------------------------------------------------------------------------------------------------------------


def sentence(j: Judged) -> str:
    m = j.members[0]
    cue = f"“{m.attribute}”"
    over = f" (mean of {len(j.members)} models)" if len(j.members) > 1 else ""
    if j.verdict == "inconclusive":
        deleted = f" {cue} is not readable within the label either: {DELETED}." if j.taxonomy == DELETED else ""
        closed = "; a closed gate says that this test could not look, not that there is no shortcut" if CLOSED in j.why else ""
        return f"Whether the association with {cue} can be restored could not be judged: {'; '.join(j.why)}{closed}.{deleted}"
    effect = (
        f"raises the errors that follow it on conflicting rows by {_points(j.delta_csr)} and lowers worst-group accuracy by "
        f"{_points(j.delta_wga)}{over}, p = {j.p:.3f} against a shuffled attribute"
    )
    if j.verdict == "shortcut":
        return f"Amplifying {cue} inside the features {effect}: the head still uses it ({j.taxonomy}: {MEANING[j.taxonomy]})."
    damage = " What it does is damage: errors that do not follow the attribute." if j.effect == "damage" else ""
    return f"Amplifying {cue} inside the features {effect}: no restorable shortcut ({DECOUPLED}: {MEANING[DECOUPLED]}).{damage}"


def estimates(j: Judged) -> list[Estimate]:
    m = j.members[0]
    seeds = "" if len(j.members) == 1 else f"mean over {len(j.members)} models with its t interval"
    gain = f"at beta = {m.beta:g}; p is one-sided, against the shuffled attribute with its own gate"
    found = [
        estimate(
            "gain of the conflict shortcut rate", j.delta_csr, "reliance", unit="change", n=m.n_conflict, group="Restoring",
            p=None if math.isnan(j.p) else j.p, note="; ".join(filter(None, (gain, seeds))),
        ),
        estimate(
            "drop of worst-group accuracy", j.delta_wga, "reliance", unit="change", n=m.n, group="Restoring",
            note="; ".join(filter(None, (_floor(j), seeds))),
        ),
        estimate(
            "gain beyond errors on aligned rows", j.excess, "reliance", unit="change", n=m.n, group="Restoring",
            note="errors that follow the attribute, less those against it; noise raises both",
        ),
        estimate("worst-group accuracy", j.wga, "behaviour", unit="share", n=m.n, group="Before restoring", note=m.worst),
        estimate("conflict shortcut rate", j.csr, "behaviour", unit="share", n=m.n_conflict, group="Before restoring"),
        estimate(
            "linear probe within label", j.probe, "encoding", unit="balanced accuracy", n=m.n, group="Readable",
            note=f"chance {j.chance:.2f}; counts as readable from {j.line:.2f}",
        ),
    ]  # fmt: skip
    if len(j.members) == 1:
        for k, name in enumerate(m.value_name):
            for when, rate in (("before", m.value_rate[0, k]), ("after", m.value_rate[1, k])):
                shown = estimate(
                    f"{name}, {when}", Interval(*rate), "behaviour", unit="share", n=int(m.value_size[k]),
                    group="Shortcut rate by attribute value", note="other labels decided as this one",
                )  # fmt: skip
                found.append(shown)
    return found


def checks(j: Judged) -> list[Check]:
    m = j.members[0]
    several = len(j.members) > 1
    gates = f"{j.n_open} of {len(j.members)} models have an open gate" if several else _say_gates(m)
    fewest = min(one.exchangeable for one in j.members)
    conflicts = min(one.n_conflict for one in j.members)
    agreement = min(one.agreement for one in j.members)
    draws = min(one.control.shape[1] for one in j.members)
    lacking = sum(one.missing + one.missing_audit for one in j.members)
    gain = np.mean([one.control[2, :draws, 1] for one in j.members], axis=0)
    pull = mean_pull([one.pull for one in j.members])
    beside = math.nan if np.isnan(gain).any() else float(np.quantile(gain, 0.95))
    return [
        Check(name="a gate is open", passed=j.n_open > 0, decides=True, note=gates),
        Check(
            name="the attribute stands for a label", passed=all(one.aligned for one in j.members), decides=True,
            note=f"{m.aligned} ({m.aligned_from})" if m.aligned else m.aligned_from,
        ),
        Check(
            name=f"at least {SMALLEST_GROUP} conflicting test rows", passed=conflicts >= SMALLEST_GROUP, decides=True,
            note=f"{conflicts}",
        ),
        Check(
            name=f"at least {FEWEST_EXCHANGEABLE} rows or subjects can exchange the attribute",
            passed=all(not one.exchange_reason for one in j.members), decides=True, note=f"{fewest}",
        ),
        Check(
            name="the head as data decides like the model", passed=agreement >= AGREEMENT, decides=True,
            note=f"on {agreement:.1%} of the test rows",
        ),
        Check(name=f"at least {DUE_DRAWS} draws of every control", passed=draws >= DUE_DRAWS, note=f"{draws}"),
        Check(
            name="the new errors follow the attribute",
            passed=None if math.isnan(j.excess.value) else bool(j.excess.low > 0),
            note="the gain of the conflict shortcut rate exceeds that of errors on aligned rows",
        ),
        Check(
            name="beyond random directions of the same length",
            passed=None if math.isnan(j.delta_csr.value) or math.isnan(beside) else bool(j.delta_csr.value > beside),
            note="" if math.isnan(beside) else f"their 95th percentile is {beside:.3f}; decides nothing",
        ),
        Check(
            name="worst-group accuracy has room to drop", passed=not j.floor,
            note=f"floor: it starts below {FLOOR:g}, so that the drop says little" if j.floor else "",
        ),
        *(
            Check(name=name, passed=not said, note="; ".join(said), decides=True)
            for name, said in (
                ("the conflict shortcut rate has room to rise", _why(j, "ceiling")),
                ("what was restored is substantial or nothing", _why(j, "halfway")),
                ("what was restored is beyond shuffles or nothing", _why(j, "unproven")),
            )
        ),
        Check(
            name="answers do not follow what was not restored", decides=True,
            passed=None if is_followed(pull) is None else not _why(j, "followed"),
            note=say_pull(pull, m.attribute),
        ),
        Check(name="the probes converged", passed=all(one.converged for one in j.members)),
        Check(
            name="every group is large enough", passed=not any(one.left_out for one in j.members),
            note=f"left out of worst-group accuracy: {m.left_out}" if m.left_out else "",
        ),
        Check(
            name="every row has a label and the attribute", passed=not lacking,
            note=f"{m.missing_audit} audit rows and {m.missing} test rows left out" if lacking else "",
        ),
        *_layers_there(j),
        *([Check(name="Grad-CAM before and after", passed=None, note=m.no_pictures)] if m.no_pictures else []),
    ]  # fmt: skip


def _why(j: Judged, kind: str) -> list[str]:
    return [why for why in j.why if why.startswith(kind)]


def _layers_there(j: Judged) -> list[Check]:
    without = list(dict.fromkeys(name for one in j.members for name in one.layer_lacking))
    if not without and not any(one.layer_name for one in j.members):
        return []
    note = f"not in the evidence: {', '.join(without)}" if without else ""
    return [Check(name="every layer asked for was measured", passed=not without, note=note)]


def _points(change: Interval) -> str:
    if math.isnan(change.value):
        return "an undefined amount"
    limits = "" if math.isnan(change.low) else f" ({100 * change.low:.1f} to {100 * change.high:.1f})"
    return f"{100 * change.value:.1f} points{limits}"


def _floor(j: Judged) -> str:
    return f"floor: worst-group accuracy starts at {j.wga.value:.2f} and cannot drop much" if j.floor else ""


def _say_gates(m: Measurement) -> str:
    is_open = [bool(row.any()) for row in m.gate_open]
    return "; ".join(f"{name}: {'open' if ok else 'closed'}" for name, ok in zip(m.classes, is_open, strict=True))


# ---- exhibits ------------------------------------------------------------------------------------------------------------


def exhibits(j: Judged, methods: Sequence[Judged]) -> list[Exhibit]:
    m = j.members[0]
    found: list[Exhibit] = [_beta_curves(j, 1), _beta_curves(j, 0), _taxonomy(j, methods), _groups(m)]
    if len(methods) > 1 or len(j.members) > 1:
        found += _comparison(methods)
    found += [_gates(m), _controls(j), _ablations(j), _readability(m)]
    if m.layer_name and all(one.layer_name == m.layer_name for one in j.members):
        found += [_where(j), _layers(j)]
    if m.projection.shape[1]:
        found += [_projection(m, k) for k in (0, 1)]
    if len(m.pictures):
        found.append(gallery(m.pictures, m.captions))
    return found


def _beta_curves(j: Judged, k: int) -> Curves:
    m = j.members[0]
    curve = _mean_table([one.change[:, k] for one in j.members])
    band = np.mean([one.band[:, :, k] for one in j.members], axis=0)
    series = {"ART": Curve(y=curve[:, 0], low=curve[:, 1], high=curve[:, 2])}
    for c, name in ((0, "shuffled, own gate (decides)"), (1, "shuffled, gate forced open"), (2, "random direction")):
        known = ~np.isnan(band[c, :, 0])
        x = tuple(float(b) for b in m.betas[known])
        series[name] = Curve(y=band[c, known, 0], low=band[c, known, 1], high=band[c, known, 2], x=x)
    share = np.mean([one.closed_share for one in j.members])
    return Curves(
        title=f"{CHANGES[k].capitalize()} by strength",
        caption="How the decisions change as the attribute's part of the features is amplified. ART with its 95 % interval; "
        f"controls with their mean and the range from 5 % to 95 %. {share:.0%} of the shuffles closed every gate and change "
        "nothing, as the procedure has it.",
        x=m.betas,
        series=series,
        x_label="beta",
        y_label=CHANGES[k],
        hline=SUBSTANTIAL,
        hline_label="counts as an effect",
        vline=m.beta,
        vline_label="decides",
    )


def _taxonomy(j: Judged, methods: Sequence[Judged]) -> Scatter:
    points = [(one, method.name) for method in methods for one in method.members]
    gain = [0.0 if math.isnan(one.delta_csr.value) and not one.is_open else one.delta_csr.value for one, _ in points]
    return Scatter(
        title="Readable against restorable",
        caption=f"Right of the line the attribute is readable within the label, above the line restoring brings its errors back. "
        f"Upper right: {RESTORABLE}. Lower right: {DECOUPLED}. Upper left: {MISS}. Lower left: {DELETED}. "
        "The gain of the conflict shortcut rate is shown because a worst-group accuracy that starts low cannot drop.",
        x=[one.read()[0].value for one, _ in points],
        y=gain,
        label=[f"{name}{'' if one.seed is None else f', seed {one.seed}'}" for one, name in points],
        group=[name for _, name in points],
        x_label="balanced accuracy of the linear probe within label",
        y_label=CHANGES[1],
        vline=j.line,
        vline_label="readable",
        hline=SUBSTANTIAL,
        hline_label="restorable",
        bands=(Band(axis="x", low=j.line, label="readable"), Band(axis="y", low=SUBSTANTIAL, label="restorable")),
    )


def _groups(m: Measurement) -> Bars:
    names = ("before", f"after, beta = {m.beta:g}")
    return Bars(
        title="Accuracy by group, before and after",
        caption="With 95 % intervals. A restored shortcut costs the groups whose attribute points to another label and spares "
        "the others; damage costs all.",
        labels=[f"{g} (n = {n})" for g, n in zip(m.group_name, m.group_size, strict=True)],
        series={name: m.group_accuracy[k, :, 0] for k, name in enumerate(names)},
        low={name: m.group_accuracy[k, :, 1] for k, name in enumerate(names)},
        high={name: m.group_accuracy[k, :, 2] for k, name in enumerate(names)},
        value_label="accuracy",
    )


def _gates(m: Measurement) -> Table:
    C, A = m.gate_open.shape
    reason = np.array(m.gate_reason, dtype=object).reshape(C, A)
    rows = [
        [m.classes[c], m.values[v], "open" if m.gate_open[c, v] else f"closed: {reason[c, v]}", m.gate_T[c, v],
         int(m.gate_found[c, v]), int(m.gate_counts[c, v])]
        for c in range(C) for v in range(A)
    ]  # fmt: skip
    return Table(
        title="Gates",
        caption=f"A direction is open where the value stands {m.tau:g} standard deviations or more from the rest of its class "
        f"along it (T), on rows that did not choose it, with at least {m.n_min} rows on either side. "
        + ("" if m.gated else "The gate was switched off: nothing is closed for T or counts."),
        columns=("class", "value against the rest", "gate", "T", "rows to find", "rows to gate"),
        rows=rows,
    )


def _controls(j: Judged) -> Table:
    def cells(draws: np.ndarray) -> list[Cell | float]:
        """Mean over draws with 5 % and 95 %, and the largest, of the drop of WGA and the gain of CSR."""
        found: list[Cell | float] = []
        for k in (0, 1):
            value = draws[:, k]
            # Sums over draws leave 1e-17 where nothing changed.
            mean, low, high, largest = np.round([value.mean(), *np.quantile(value, [0.05, 0.95]), value.max()], 12) + 0.0
            found += [Cell(value=mean, low=low, high=high), float(largest)]
        return found

    D = min(one.control.shape[1] for one in j.members)
    mean = np.mean([one.control[:, :D] for one in j.members], axis=0)
    first = [_cell(j.delta_wga), None, _cell(j.delta_csr), None]
    rows: list[list[object]] = [["ART", *first, f"{j.effect}, p = {j.p:.3f}" if not math.isnan(j.p) else CLOSED]]
    said = ("decides", "beside", "beside", "beside")
    rows += [[name, *cells(mean[c]), said[c]] for c, name in enumerate(CONTROLS)]
    overlap = float(np.mean([one.label_overlap for one in j.members]))
    for name, changes, shared in (
        ("label direction", _label_changes(j), overlap),
        ("label direction less the attribute's", _label_beside(j), 0.0),
    ):
        effect = joint_effect(changes)
        if effect == "restoration" and shared >= SHARED:
            effect = f"the attribute's direction too (cosine {shared:.2f})"
        wga, csr = (_mean_table([np.array([c[k].value, c[k].low, c[k].high]) for c in changes]) for k in (0, 1))
        rows.append([name, _three(wga), None, _three(csr), None, effect])
    return Table(
        title="Controls",
        caption="Changes at the deciding strength. Shuffles exchange the attribute within each class and run everything again; "
        "random directions lie in the class's leading components beside the attribute's direction and move every row as far as "
        "ART did. Restoration makes errors that follow the attribute; damage lowers worst-group accuracy without them, or "
        "makes as many errors against it. Where label and attribute share a direction, amplifying the "
        "label amplifies the attribute too; what is left of it is the label alone.",
        columns=(
            "intervention", "drop of WGA", "largest", "gain of CSR", "largest", "what it is",
        ),
        rows=rows,
        highlight=(0, 1),
    )  # fmt: skip


def _label_changes(j: Judged) -> list[tuple[Interval, Interval, Interval]]:
    """Of every model, along the label direction: drop of WGA, gain of CSR and its part beyond errors on aligned rows."""
    k = j.members[0].ablation_name.index("label direction")
    return [
        (Interval(*one.ablation_change[k, 0]), Interval(*one.ablation_change[k, 1]), Interval(*one.ablation_excess[k]))
        for one in j.members
    ]


def _label_beside(j: Judged) -> list[tuple[Interval, Interval, Interval]]:
    """The same along what the attribute leaves of the label direction."""
    return [(Interval(*one.label_change[0]), Interval(*one.label_change[1]), Interval(*one.label_excess)) for one in j.members]


def _ablations(j: Judged) -> Table:
    m = j.members[0]
    change = _mean_table([one.ablation_change for one in j.members])
    curve = _mean_table([one.change for one in j.members])
    rows: list[list[object]] = [
        [step, name, _three(change[k, 0]), _three(change[k, 1])]
        for k, (step, name) in enumerate(zip(m.ablation_step, m.ablation_name, strict=True))
    ]
    rows += [["beta", f"{b:g}", _three(curve[k, 0]), _three(curve[k, 1])] for k, b in enumerate(m.betas)]
    used = {
        "find": f"{m.direction} direction", "gate": "with gate" if m.gated else "without gate", "restore": f"{m.routing} label",
        "rho": f"{m.rho:g}", "beta": f"{m.beta:g}",
    }  # fmt: skip
    return Table(
        title="Ablations",
        caption="One step changed at a time, the rest as it decides. Highlighted rows are the settings of this run.",
        columns=("step", "variant", "drop of WGA", "gain of CSR"),
        rows=rows,
        highlight=tuple(k for k, row in enumerate(rows) if used[str(row[0])] == row[1]),
    )


def _readability(m: Measurement) -> Table:
    return Table(
        title="What probes read",
        caption="Balanced accuracy on test rows of readouts fitted on audit rows. Readable says nothing about use.",
        columns=("probe", "target", "accuracy", "chance", "readable from"),
        rows=[
            [PROBES[kind], TARGETS[target], _three(m.probe[k]), m.probe_chance[k], m.probe_line[k]]
            for k, (kind, target) in enumerate(zip(m.probe_kind, m.probe_target, strict=True))
        ],
    )


def _projection(m: Measurement, k: int) -> Scatter:
    when = f"after restoring with beta = {m.beta:g}" if k else "before"
    return Scatter(
        title=f"Features {when}",
        caption="Some test rows on the two leading principal components of the rows before and after together. A picture, not a "
        "test: other directions are not shown.",
        x=m.projection[k, :, 0],
        y=m.projection[k, :, 1],
        group=m.projection_group,
        x_label="first component",
        y_label="second component",
    )


def _where(j: Judged) -> Bars:
    m = j.members[0]
    change, control = _by_layer(j)
    head = Interval(0.0, 0.0, 0.0) if math.isnan(j.delta_csr.value) and not j.n_open else j.delta_csr
    shuffled = float(np.mean([one.control[0, :, 1].max() for one in j.members]))
    names = ("restoring", "shuffled attribute, largest")
    return Bars(
        title="Where in the network the association can be restored",
        caption="Gain of the conflict shortcut rate when the attribute is amplified after each layer and the rest of the network "
        "runs on; in feature maps and tokens the shift is that of the channel means, at every position. Last: the features that "
        "the head reads. A gain at an early layer says that what follows still turns the attribute into decisions; no gain there "
        "says that this direction does not carry it yet.",
        labels=[*m.layer_name, "features"],
        series={names[0]: [*change[:, 1, 0], head.value], names[1]: [*control[:, 1], shuffled]},
        low={names[0]: [*change[:, 1, 1], head.low]},
        high={names[0]: [*change[:, 1, 2], head.high]},
        value_label=CHANGES[1],
    )


def _layers(j: Judged) -> Table:
    m = j.members[0]
    change, control = _by_layer(j)
    draws = m.layer_control.shape[1]
    probe = _mean_table([one.layer_probe for one in j.members])
    gain = np.mean([one.layer_control[:, :, 1] for one in j.members], axis=0)
    rows: list[list[object]] = []
    for k, name in enumerate(m.layer_name):
        is_open = any(one.layer_open[k] for one in j.members)
        p = p_value(change[k, 1, 0], gain[k], "greater") if is_open else None
        rows.append(
            [name, int(m.layer_width[k]), f"{_mean(j, 'layer_open', k):g} of {len(m.classes)}", _mean(j, "layer_T", k),
             _three(probe[k]), _three(change[k, 0]), _three(change[k, 1]), control[k, 1], p]
        )  # fmt: skip
    last = float(np.mean([np.nanmax(one.gate_T, initial=0.0) for one in j.members]))
    gates = float(np.mean([one.gate_open.any(axis=1).sum() for one in j.members]))
    shuffled = float(np.mean([one.control[0, :, 1].max() for one in j.members]))
    rows.append(
        ["features", None, f"{gates:g} of {len(m.classes)}", last, _cell(j.probe), _cell(j.delta_wga), _cell(j.delta_csr),
         shuffled, None if math.isnan(j.p) else j.p]
    )  # fmt: skip
    return Table(
        title="ART by layer",
        caption=f"p against {draws} shuffles of the attribute with their own gate, so that it cannot be smaller than "
        f"{1 / (draws + 1):.3f}; nothing is decided by it. The last row is the audit itself. Halves of the audit rows are drawn "
        "anew for the layers. A closed gate changes nothing.",
        columns=(
            "after", "channels", "classes with an open gate", "largest T", "linear probe within label", "drop of WGA",
            "gain of CSR", "largest gain of a shuffle", "p",
        ),
        rows=rows,
        highlight=(len(rows) - 1,),
    )  # fmt: skip


def _by_layer(j: Judged) -> tuple[np.ndarray, np.ndarray]:
    """(L, 3, 3) changes, and (L, 3) the largest change of a shuffle, mean over models."""
    change = _mean_table([one.layer_change for one in j.members])
    return change, np.mean([one.layer_control.max(axis=1) for one in j.members], axis=0)


def _mean(j: Judged, what: str, k: int) -> float:
    return float(np.mean([getattr(one, what)[k] for one in j.members]))


# ---- several models ------------------------------------------------------------------------------------------------------


def _comparison(methods: Sequence[Judged]) -> list[Exhibit]:
    """Tables 2 to 7: output behaviour, readability, restoration, controls, ablations, ART-head; averages name their members."""
    probes = list(zip(methods[0].members[0].probe_kind, methods[0].members[0].probe_target, strict=True))
    reading = [_probe_of(kind, target) for kind, target in probes]
    control = [_control_of(c) for c in range(len(CONTROLS))]
    verdicts = Table(
        title="Methods compared",
        caption="Verdict and place in the taxonomy of every method; seeds of one method are judged together.",
        columns=("method", "models", "open gate", "p", "verdict", "taxonomy", "what restoring does", "floor"),
        rows=[
            [j.name, len(j.members), j.n_open, j.p, str(j.verdict), j.taxonomy or "–", j.effect, "yes" if j.floor else ""]
            for j in methods
        ],
    )
    return [
        verdicts,
        _table_of(
            methods, "Before restoring", "Decisions as they are: higher WGA and lower CSR are better.",
            {"WGA": lambda one: one.wga.value, "CSR": lambda one: one.csr.value},
        ),
        _table_of(
            methods, "Readability by method", "Balanced accuracy of each probe.",
            {f"{PROBES[k]}: {TARGETS[t]}": read for (k, t), read in zip(probes, reading, strict=True)},
        ),
        _table_of(
            methods, "Restoration by method", "Changes by restoring; a model whose gates are all closed counts as unchanged.",
            {"drop of WGA": _change_of("delta_wga"), "gain of CSR": _change_of("delta_csr")},
        ),
        _table_of(
            methods, "Controls by method", "Mean drop of WGA under each control.",
            {"ART": _change_of("delta_wga"), **dict(zip(CONTROLS, control, strict=True))},
        ),
        _ablations_of(methods),
        _before_and_after(methods),
    ]  # fmt: skip


def _ablations_of(methods: Sequence[Judged]) -> Table:
    """Table 6: every variant of find, gate and restore, averaged over the audited methods, which are named."""
    audited = [j for j in methods if not j.name.startswith(REFERENCES)] or list(methods)
    names = ", ".join(j.name for j in audited)
    m = methods[0].members[0]
    steps = [k for k, step in enumerate(m.ablation_step) if step in ("find", "gate", "restore")]

    def cell(k: int, number: int, of: Sequence[Judged]) -> Cell:
        return _seeds([float(np.mean([one.ablation_change[k, number, 0] for one in j.members])) for j in of])

    return Table(
        title="Ablations over methods",
        caption=f"One step of ART changed at a time. Means over {len(audited)} methods ({names}) with "
        "95 % t intervals, beside the method that is tested. A variant that lowers worst-group accuracy without raising the "
        "conflict shortcut rate does damage.",
        columns=(
            "step", "variant", "drop of WGA", "gain of CSR", f"drop of WGA, {methods[0].name}", f"gain of CSR, {methods[0].name}",
        ),
        rows=[
            [m.ablation_step[k], m.ablation_name[k], cell(k, 0, audited), cell(k, 1, audited),
             *(_three(_mean_table([one.ablation_change[k, number] for one in methods[0].members])) for number in (0, 1))]
            for k in steps
        ],
    )  # fmt: skip


def _before_and_after(methods: Sequence[Judged]) -> Table:
    """Table 7: before and after restoring, and what a head that was fitted on restored features costs against its start."""
    reads: dict[str, Callable[[Measurement], float]] = {
        "WGA before": lambda one: one.wga.value,
        "WGA after": lambda one: one.wga_after.value,
        "drop of WGA": _change_of("delta_wga"),
        "CSR before": lambda one: one.csr.value,
        "CSR after": lambda one: one.csr_after.value,
        "gain of CSR": _change_of("delta_csr"),
    }
    rows: list[list[object]] = [[j.name, *(_seeds([read(one) for one in j.members]) for read in reads.values())] for j in methods]
    heads = [k for k, j in enumerate(methods) if j.name.startswith(ART_HEAD)]
    said = []
    for k in heads:
        start = _start_of(methods[k], methods)
        if start is not None:
            cost = methods[k].wga.value - start.wga.value
            verb = "raises" if cost >= 0 else "lowers"
            said.append(f"{methods[k].name} {verb} clean WGA by {100 * abs(cost):.1f} points against {start.name}")
    note = f" {'; '.join(said)}." if said else ""
    return Table(
        title="Before and after restoring",
        caption="Every method as it is and with the attribute amplified; means over seeds with 95 % t intervals. A head that was "
        f"fitted on clean and restored features (highlighted) should change little.{note}",
        columns=("method", *reads),
        rows=rows,
        highlight=tuple(heads),
    )


def _start_of(head: Judged, methods: Sequence[Judged]) -> Judged | None:
    """The method that an ART-head started from: the one that its name ends in, else the tested one."""
    named = head.name.removeprefix(ART_HEAD).lstrip("_- ")
    return next((j for j in methods if named and j.name == named), methods[0] if methods[0] is not head else None)


def _seeds(values: Sequence[float]) -> Cell:
    mean = over_seeds(values)
    return Cell(value=mean.value, low=mean.low, high=mean.high, reason=mean.reason)


def _table_of(methods: Sequence[Judged], title: str, caption: str, columns: dict[str, Callable[[Measurement], float]]) -> Table:
    rows: list[list[object]] = [
        [j.name, len(j.members), *(_seeds([read(one) for one in j.members]) for read in columns.values())] for j in methods
    ]
    averaged = [j for j in methods if not j.name.startswith(REFERENCES)]
    if len(averaged) > 1:
        means = [_seeds([float(np.mean([read(one) for one in j.members])) for j in averaged]) for read in columns.values()]
        rows.append([f"mean of {', '.join(j.name for j in averaged)}", sum(len(j.members) for j in averaged), *means])
    note = (
        " Means over seeds with 95 % t intervals; the last row names the methods that it averages." if len(averaged) > 1 else ""
    )
    return Table(title=title, caption=caption + note, columns=("method", "models", *columns), rows=rows)


def _probe_of(kind: str, target: str) -> Callable[[Measurement], float]:
    return lambda one: one.read(kind, target)[0].value


def _control_of(c: int) -> Callable[[Measurement], float]:
    return lambda one: float(one.control[c, :, 0].mean())


def _change_of(name: str) -> Callable[[Measurement], float]:
    return lambda one: 0.0 if not one.is_open else getattr(one, name).value


# ---- numbers -------------------------------------------------------------------------------------------------------------


def _mean_table(tables: Sequence[np.ndarray]) -> np.ndarray:
    """Value, low, high (…, 3) of one model as they are; of several, the mean over models with its t interval."""
    if len(tables) == 1:
        return tables[0]
    stacked = np.stack([t[..., 0] for t in tables], axis=-1)
    means = [over_seeds(values) for values in stacked.reshape(-1, len(tables))]
    return np.array([[i.value, i.low, i.high] for i in means]).reshape(*stacked.shape[:-1], 3)


def _cell(change: Interval) -> Cell:
    return Cell(value=change.value, low=change.low, high=change.high, reason=change.reason)


def _three(values: np.ndarray) -> Cell:
    return Cell(value=values[0], low=values[1], high=values[2])
