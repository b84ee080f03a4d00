"""ART's finding in words, tables and pictures."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from rightreasons.audits.art.comparison import PROBES, TARGETS, comparison, mean_over
from rightreasons.audits.art.judge import (
    CLOSED,
    DECOUPLED,
    DELETED,
    GATE_OPEN,
    MISS,
    RESTORABLE,
    SUBSTANTIAL,
    Judged,
    change_over_models,
    joint_effect,
    over_models,
)
from rightreasons.audits.art.pictures import gallery
from rightreasons.audits.art.pieces import Change, Changes, Control, Projection, Shares
from rightreasons.audits.art.procedure import say_gated
from rightreasons.findings import Band, Bars, Cell, Curve, Curves, Estimate, Exhibit, Scatter, Table
from rightreasons.stats.resampling import Interval, p_value

DROP_OF_WGA = "drop of worst-group accuracy"
GAIN_OF_CSR = "gain of conflict shortcut rate"
SHARED = 0.3  # cosine from which a label direction that brings the attribute's errors back is not the label's alone
MEANING = {
    RESTORABLE: "readable and usable by the head",
    MISS: "usable by the head although the probe does not read it",
    DECOUPLED: "in the features, but the head does not use it when it is amplified",
    DELETED: "no longer readable within the label, and nothing to amplify",
}


# ---- words ---------------------------------------------------------------------------------------------------------------


def sentence(j: Judged) -> str:
    cue = f"“{j.members[0].association.attribute}”"
    if j.verdict == "inconclusive":
        return _could_not_be_judged(j, cue)
    if j.reading == "paper":
        return _restored(j, cue)
    return _swung(j, cue)


def _swung(j: Judged, cue: str) -> str:
    swing = j.swing
    moved = (
        f"Amplifying {cue} inside the features and turning it round moves the decisions with it by {swing.value:.3f}{_over(j)}"
    )
    beside = f"a head that gains nothing from it moves by {swing.refitted.value:.3f}"
    if j.verdict == "shortcut":
        beyond = f"{beside}, so {swing.excess:.3f} of that is use, p = {swing.p:.3f} against a shuffled attribute"
        return f"{moved}; {beyond} ({j.taxonomy}: {MEANING[j.taxonomy]}).{_disagreement(j)}"
    if swing.is_the_labels_look:
        look = f"{cue} goes with how strongly the label shows, and the head does not use it beyond that"
        return f"{moved}, and {beside}: {look}.{_disagreement(j)}"
    return f"{moved}: the head does not use it ({DECOUPLED}: {MEANING[DECOUPLED]}).{_disagreement(j)}"


def _disagreement(j: Judged) -> str:
    """What the paper's reading says where it points the other way."""
    if not j.paper_disagrees:
        return ""
    return (
        f" The paper's reading (only amplified, rho = {j.members[0].procedure.rho:g}) points the other way: errors that follow "
        f"the attribute change by {_points(j.change.csr)}."
    )


def _restored(j: Judged, cue: str) -> str:
    effect = (
        f"Amplifying {cue} inside the features raises the errors that follow it on conflicting rows by {_points(j.change.csr)} "
        f"and lowers worst-group accuracy by {_points(j.change.wga)}{_over(j)}, p = {j.p:.3f} against a shuffled attribute"
    )
    if j.verdict == "shortcut":
        return f"{effect}: the head still uses it ({j.taxonomy}: {MEANING[j.taxonomy]})."
    damage = ""
    if j.effect == "damage":
        damage = " What it does is damage: errors that do not follow the attribute."
    return f"{effect}: no restorable shortcut ({DECOUPLED}: {MEANING[DECOUPLED]}).{damage}"


def _over(j: Judged) -> str:
    return f" (mean of {len(j.members)} models)" if len(j.members) > 1 else ""


def _could_not_be_judged(j: Judged, cue: str) -> str:
    question = f"the head uses {cue}"
    if j.reading == "paper":
        question = f"the association with {cue} can be restored"
    said = f"This test cannot say whether {question}: {'; '.join(failed.why for failed in j.failed)}."
    if j.why(GATE_OPEN):
        said += " A closed gate means that this test could not look, not that there is no shortcut."
    if j.taxonomy == DELETED:
        said += f" {cue} is not readable within the label either: {DELETED}."
    return said


def _points(change: Interval) -> str:
    if math.isnan(change.value):
        return "an undefined amount"
    limits = ""
    if not math.isnan(change.low):
        limits = f" ({100 * change.low:.1f} to {100 * change.high:.1f})"
    return f"{100 * change.value:.1f} points{limits}"


def estimates(j: Judged) -> list[Estimate]:
    m, n, conflicts = j.members[0], j.members[0].counts.n, j.members[0].counts.n_conflict
    seeds = ""
    if len(j.members) != 1:
        seeds = f"mean over {len(j.members)} models with its t interval"
    gain = f"at beta = {m.curve.beta:g}; p is one-sided, against the shuffled attribute with its own gate"
    floor = f"floor: worst-group accuracy starts at {j.before.wga.value:.2f} and cannot drop much" if j.floor else ""
    restoring = [
        Estimate.of(
            "gain of the conflict shortcut rate", j.change.csr, "reliance", unit="change", n=conflicts, group="Restoring",
            p=None if math.isnan(j.p) else j.p, note=_joined(gain, seeds),
        ),
        Estimate.of(
            DROP_OF_WGA, j.change.wga, "reliance", unit="change", n=n, group="Restoring", note=_joined(floor, seeds),
        ),
        Estimate.of(
            "gain beyond errors on aligned rows", j.change.excess, "reliance", unit="change", n=n, group="Restoring",
            note="errors that follow the attribute, less those against it; noise raises both",
        ),
    ]  # fmt: skip
    shown = [*_swings(j), *restoring]
    if j.reading == "paper":
        shown = [*restoring, *_swings(j)]
    shown += [
        Estimate.of(
            "worst-group accuracy", j.before.wga, "behaviour", unit="share", n=n, group="Before restoring", note=m.groups.worst,
        ),
        Estimate.of("conflict shortcut rate", j.before.csr, "behaviour", unit="share", n=conflicts, group="Before restoring"),
        Estimate.of(
            "linear probe within label", j.probe.accuracy, "encoding", unit="balanced accuracy", n=n, group="Readable",
            note=f"chance {j.probe.chance:.2f}; counts as readable from {j.probe.line:.2f}",
        ),
    ]  # fmt: skip
    if len(j.members) == 1:
        shown += _rates_by_value(m.groups.rate)
    return shown


def _swings(j: Judged) -> list[Estimate]:
    """What decides by default, and what it is read beside."""
    m, swing, n = j.members[0], j.swing, j.members[0].counts.n
    both = f"decisions between beta = {-m.swing.beta:g} and {m.swing.beta:g}, rho = 0"
    cosine = Interval(mean_over(j, lambda m: m.swing.cosine), math.nan, math.nan)
    return [
        Estimate.of(
            "swing beyond a head that gains nothing", swing.excess, "reliance", unit="change", n=n, group="Swing",
            p=None if math.isnan(swing.p) else swing.p,
            note=f"{both}; p is of the model's swing, one-sided, against the shuffled attribute with its own gates",
        ),
        Estimate.of("swing of the model", swing.value, "reliance", unit="change", n=n, group="Swing"),
        Estimate.of(
            "swing of the refitted head", swing.refitted, "reliance", unit="change", n=n, group="Swing", note=m.swing.guard,
        ),
        Estimate.of(
            "cosine of direction and label", cosine, "encoding", unit="cosine", group="Swing",
            note="how far the attribute's direction lies in the space of the class means; the largest of the open ones",
        ),
    ]  # fmt: skip


def _rates_by_value(rate: Shares) -> list[Estimate]:
    """The shortcut rate of each value that stands for a label; with stamped twins, the timestamp shortcut rate (sec. 5.6)."""
    rates = []
    for k, name in enumerate(rate.name):
        for when, share in (("before", rate.before[k]), ("after", rate.after[k])):
            shown = Estimate.of(
                f"{name}, {when}", share, "behaviour", unit="share", n=int(rate.size[k]),
                group="Shortcut rate by attribute value", note="other labels decided as this one",
            )  # fmt: skip
            rates.append(shown)
    return rates


def _joined(*notes: str) -> str:
    return "; ".join(note for note in notes if note)


# ---- exhibits ------------------------------------------------------------------------------------------------------------


def exhibits(j: Judged, methods: Sequence[Judged]) -> list[Exhibit]:
    m = j.members[0]
    figures: list[Exhibit] = [swing_curves(j)] if m.swing.has_looked else []
    figures += [gain_curves(j), drop_curves(j), taxonomy_scatter(j, methods), group_bars(j)]
    if len(methods) > 1 or len(j.members) > 1:
        figures += comparison(methods)
    figures += [gate_table(j), control_table(j), ablation_table(j), probe_table(j)]
    if m.layers.name and all(one.layers.name == m.layers.name for one in j.members):
        figures += [layer_bars(j), layer_table(j)]
    if m.projection.group:
        figures += [
            feature_scatter("Features before", m.projection, m.projection.before),
            feature_scatter(f"Features after restoring with beta = {m.curve.beta:g}", m.projection, m.projection.after),
        ]
    if len(m.pictures.images):
        figures.append(gallery(m.pictures))
    return figures


def swing_curves(j: Judged) -> Curves:
    members = [m for m in j.members if m.swing.has_looked]
    m = members[0]
    series: dict[str, Sequence[Interval]] = {"the model": _over_strengths([one.swing.model for one in members])}
    guarded = [one.swing.refitted for one in members if one.swing.refitted]
    if guarded:
        series["a head that gains nothing"] = _over_strengths(guarded)
    return Curves(
        title="Decisions that follow the attribute, by strength",
        caption="Errors towards what the attribute stands for, less errors away from it, as its part of the features is turned "
        "round (left of 0), taken out (at -1), left as it is (0) and amplified. A model that uses the attribute rises from left "
        "to right. So does a head that gains nothing from it, where the attribute goes with how strongly the label shows; only "
        "what the model rises beyond it is use.",
        x=m.swing.betas,
        series=series,
        x_label="beta",
        y_label="follows the attribute",
        hline=0.0,
        vline=m.swing.beta,
        vline_label="decides",
    )


def gain_curves(j: Judged) -> Curves:
    change = _over_strengths([m.curve.change.csr for m in j.members])
    bands = {}
    for name, controls in _shown_controls(j).items():
        bands[name] = [control.csr_band for control in controls]
    return _by_strength(j, GAIN_OF_CSR, change, bands)


def drop_curves(j: Judged) -> Curves:
    change = _over_strengths([m.curve.change.wga for m in j.members])
    bands = {}
    for name, controls in _shown_controls(j).items():
        bands[name] = [control.wga_band for control in controls]
    return _by_strength(j, DROP_OF_WGA, change, bands)


def _shown_controls(j: Judged) -> dict[str, list[Control]]:
    """Of every model; a random subspace is left to the table."""
    controls = [m.controls for m in j.members]
    return {
        "shuffled, own gate (decides)": [c.shuffled for c in controls],
        "shuffled, gate forced open": [c.forced for c in controls],
        "random direction": [c.direction for c in controls],
    }


def _over_strengths(changes: Sequence[Sequence[Interval]]) -> list[Interval]:
    """Over models, strength by strength."""
    return [over_models(of_models) for of_models in zip(*changes, strict=True)]


def _by_strength(j: Judged, number: str, change: Sequence[Interval], bands: dict[str, list[np.ndarray]]) -> Curves:
    curve = j.members[0].curve
    series: dict[str, Curve | Sequence[Interval]] = {"ART": change}
    for name, of_models in bands.items():
        band = np.mean(of_models, axis=0)
        known = ~np.isnan(band[:, 0])
        x = tuple(map(float, curve.betas[known]))
        series[name] = Curve(y=band[known, 0], low=band[known, 1], high=band[known, 2], x=x)
    closed = np.mean([m.controls.closed_share for m in j.members])
    return Curves(
        title=f"{number.capitalize()} by strength",
        caption="How the decisions change as the attribute's part of the features is amplified. ART with its 95 % interval; "
        f"controls with their mean and the range from 5 % to 95 %. {closed:.0%} of the shuffles closed every gate and so change "
        "nothing, which is part of the procedure.",
        x=curve.betas,
        series=series,
        x_label="beta",
        y_label=number,
        hline=SUBSTANTIAL,
        hline_label="counts as an effect",
        vline=curve.beta,
        vline_label="decides",
    )


def taxonomy_scatter(j: Judged, methods: Sequence[Judged]) -> Scatter:
    readable, restorable, names, labels = [], [], [], []
    for method in methods:
        for m in method.members:
            readable.append(m.probes.read().accuracy.value)
            restorable.append(m.change.csr.value if m.gates.is_open else 0.0)
            names.append(method.name)
            labels.append(method.name if m.model.seed is None else f"{method.name}, seed {m.model.seed}")
    return Scatter(
        title="Readable against restorable",
        caption=f"Right of the line the attribute is readable within the label, above the line restoring brings its errors back. "
        f"Upper right: {RESTORABLE}. Lower right: {DECOUPLED}. Upper left: {MISS}. Lower left: {DELETED}. "
        "The gain of the conflict shortcut rate is shown because a worst-group accuracy that starts low cannot drop.",
        x=readable,
        y=restorable,
        label=labels,
        group=names,
        x_label="balanced accuracy of the linear probe within label",
        y_label=GAIN_OF_CSR,
        vline=j.probe.line,
        vline_label="readable",
        hline=SUBSTANTIAL,
        hline_label="restorable",
        bands=(Band(axis="x", low=j.probe.line, label="readable"), Band(axis="y", low=SUBSTANTIAL, label="restorable")),
    )


def group_bars(j: Judged) -> Bars:
    m = j.members[0]
    accuracy = m.groups.accuracy
    return Bars(
        title="Accuracy by group, before and after",
        caption="With 95 % intervals. A restored shortcut costs the groups whose attribute points to another label and spares "
        "the others; damage costs all.",
        labels=[f"{group} (n = {n})" for group, n in zip(accuracy.name, accuracy.size, strict=True)],
        series={"before": accuracy.before, f"after, beta = {m.curve.beta:g}": accuracy.after},
        value_label="accuracy",
    )


def gate_table(j: Judged) -> Table:
    m = j.members[0]
    gates, p = m.gates, m.procedure
    rows: list[list[object]] = []
    for c, label in enumerate(m.association.classes):
        for v, value in enumerate(m.association.values):
            state = "open"
            if not gates.open[c, v]:
                state = f"closed: {gates.reason[c][v]}"
            rows.append([label, value, state, gates.T[c, v], int(gates.found[c, v]), int(gates.counts[c, v])])
    return Table(
        title="Gates",
        caption=f"A direction is open where the value stands {p.tau:g} standard deviations or more from the rest of its class "
        f"along it (T), on rows that did not choose it, with at least {p.n_min} rows on either side. "
        + ("" if p.gated else "The gate was switched off: nothing is closed for T or counts."),
        columns=("class", "value against the rest", "gate", "T", "rows to find", "rows to gate"),
        rows=rows,
    )


def control_table(j: Judged) -> Table:
    """Table 5, and the label direction beside it."""
    if math.isnan(j.p):
        what = CLOSED
    else:
        what = f"{j.effect}, p = {j.p:.3f}"
    rows: list[list[object]] = [["ART", Cell.of(j.change.wga), None, Cell.of(j.change.csr), None, what]]
    draws = min(m.controls.number for m in j.members)
    for k, of_models in enumerate(zip(*(m.controls.named() for m in j.members), strict=True)):
        name = of_models[0][0]
        drop = np.mean([control.draws.wga[:draws] for _, control in of_models], axis=0)
        gain = np.mean([control.draws.csr[:draws] for _, control in of_models], axis=0)
        rows.append([name, *_mean_and_largest(drop), *_mean_and_largest(gain), "beside" if k else "decides"])
    overlap = float(np.mean([m.label.overlap for m in j.members]))
    rows.append(
        _along_label("label direction", [_label_ablation(m.ablations.name, m.ablations.change) for m in j.members], overlap)
    )
    rows.append(_along_label("label direction less the attribute's", [m.label.change for m in j.members], 0.0))
    return Table(
        title="Controls",
        caption="Changes at the deciding strength. Shuffles exchange the attribute within each class and run everything again; "
        "random directions lie in the class's leading components beside the attribute's direction and move every row as far as "
        "ART did. Restoration makes errors that follow the attribute; damage lowers worst-group accuracy without them, or "
        "makes as many errors against it. Where label and attribute share a direction, amplifying the "
        "label amplifies the attribute too; what is left of it is the label alone.",
        columns=("intervention", "drop of WGA", "largest", "gain of CSR", "largest", "what it is"),
        rows=rows,
        highlight=(0, 1),
    )


def _mean_and_largest(draws: np.ndarray) -> tuple[Cell, float]:
    """Mean over draws with 5 % and 95 %, and the largest."""
    # Sums over draws leave 1e-17 where nothing changed.
    mean, low, high, largest = np.round([draws.mean(), *np.quantile(draws, [0.05, 0.95]), draws.max()], 12) + 0.0
    return Cell(value=mean, low=low, high=high), float(largest)


def _label_ablation(names: Sequence[str], change: Changes) -> Change:
    return change[list(names).index("label direction")]


def _along_label(name: str, changes: Sequence[Change], overlap: float) -> list[object]:
    effect = joint_effect(changes)
    if effect == "restoration" and overlap >= SHARED:
        effect = f"the attribute's direction too (cosine {overlap:.2f})"
    change = change_over_models(changes)
    return [name, Cell.of(change.wga), None, Cell.of(change.csr), None, effect]


def ablation_table(j: Judged) -> Table:
    m = j.members[0]
    p = m.procedure
    rows: list[list[object]] = []
    for k, (step, name) in enumerate(zip(m.ablations.step, m.ablations.name, strict=True)):
        change = change_over_models([one.ablations.change[k] for one in j.members])
        rows.append([step, name, Cell.of(change.wga), Cell.of(change.csr)])
    for k, beta in enumerate(m.curve.betas):
        change = change_over_models([one.curve.change[k] for one in j.members])
        rows.append(["beta", f"{beta:g}", Cell.of(change.wga), Cell.of(change.csr)])
    used = {
        "find": f"{p.kind} direction",
        "gate": say_gated(p.gated),
        "restore": f"{p.routing} label",
        "rho": f"{p.rho:g}",
        "beta": f"{m.curve.beta:g}",
    }
    return Table(
        title="Ablations",
        caption="One step changed at a time, the rest as set. Highlighted rows are the settings of this run.",
        columns=("step", "variant", "drop of WGA", "gain of CSR"),
        rows=rows,
        highlight=tuple(k for k, row in enumerate(rows) if used[str(row[0])] == row[1]),
    )


def probe_table(j: Judged) -> Table:
    probes = j.members[0].probes
    rows: list[list[object]] = []
    for kind, target in zip(probes.kind, probes.target, strict=True):
        reading = probes.read(kind, target)
        rows.append([PROBES[kind], TARGETS[target], Cell.of(reading.accuracy), reading.chance, reading.line])
    return Table(
        title="What probes read",
        caption="Balanced accuracy on test rows of readouts fitted on audit rows. Readable says nothing about use.",
        columns=("probe", "target", "accuracy", "chance", "readable from"),
        rows=rows,
    )


def feature_scatter(title: str, projection: Projection, placed: np.ndarray) -> Scatter:
    return Scatter(
        title=title,
        caption="Some test rows on the two leading principal components of the rows before and after together. A picture, not a "
        "test: other directions are not shown.",
        x=placed[:, 0],
        y=placed[:, 1],
        group=projection.group,
        x_label="first component",
        y_label="second component",
    )


# ---- inside the network --------------------------------------------------------------------------------------------------


def layer_bars(j: Judged) -> Bars:
    layers = j.members[0].layers
    gain = []
    for k in range(len(layers.name)):
        gain.append(change_over_models([m.layers.change[k] for m in j.members]).csr)
    nothing = math.isnan(j.change.csr.value) and not j.n_open
    gain.append(Interval(0.0, 0.0, 0.0) if nothing else j.change.csr)
    shuffled = [_largest_shuffle(j, k) for k in range(len(layers.name))]
    return Bars(
        title="Where in the network the association can be restored",
        caption="Gain of the conflict shortcut rate when the attribute is amplified after each layer and the rest of the network "
        "runs on; in feature maps and tokens the shift is that of the channel means, at every position. Last: the features that "
        "the head reads. A gain at an early layer says that what follows still turns the attribute into decisions; no gain there "
        "says that this direction does not carry it yet.",
        labels=[*layers.name, "features"],
        series={
            "restoring": gain,
            "shuffled attribute, largest": [*shuffled, mean_over(j, lambda m: m.controls.shuffled.draws.csr.max())],
        },
        value_label=GAIN_OF_CSR,
    )


def layer_table(j: Judged) -> Table:
    draws = j.members[0].layers.shuffled.csr.shape[1]
    rows = [_layer_row(j, k) for k in range(len(j.members[0].layers.name))]
    classes = len(j.members[0].association.classes)
    features: list[object] = [
        "features",
        None,
        f"{mean_over(j, lambda m: m.gates.open_classes):g} of {classes}",
        mean_over(j, lambda m: m.gates.largest_T),
        Cell.of(j.probe.accuracy),
        Cell.of(j.change.wga),
        Cell.of(j.change.csr),
        mean_over(j, lambda m: m.controls.shuffled.draws.csr.max()),
        None if math.isnan(j.p) else j.p,
    ]
    return Table(
        title="ART by layer",
        caption=f"p against {draws} shuffles of the attribute with their own gate, so that it cannot be smaller than "
        f"{1 / (draws + 1):.3f}; nothing is decided by it. The last row is the audit itself. Halves of the audit rows are drawn "
        "anew for the layers. A closed gate changes nothing.",
        columns=(
            "after", "channels", "classes with an open gate", "largest T", "linear probe within label", "drop of WGA",
            "gain of CSR", "largest gain of a shuffle", "p",
        ),
        rows=[*rows, features],
        highlight=(len(rows),),
    )  # fmt: skip


def _layer_row(j: Judged, k: int) -> list[object]:
    layers, classes = j.members[0].layers, len(j.members[0].association.classes)
    change = change_over_models([m.layers.change[k] for m in j.members])
    shuffled = np.mean([m.layers.shuffled.csr for m in j.members], axis=0)[k]
    is_open = any(m.layers.open[k] for m in j.members)
    return [
        layers.name[k],
        int(layers.width[k]),
        f"{mean_over(j, lambda m: m.layers.open[k]):g} of {classes}",
        mean_over(j, lambda m: m.layers.T[k]),
        Cell.of(over_models([m.layers.probe[k] for m in j.members])),
        Cell.of(change.wga),
        Cell.of(change.csr),
        _largest_shuffle(j, k),
        p_value(change.csr.value, shuffled, "greater") if is_open else None,
    ]


def _largest_shuffle(j: Judged, k: int) -> float:
    return mean_over(j, lambda m: m.layers.shuffled.csr[k].max())
