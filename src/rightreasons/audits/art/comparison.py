"""Methods side by side: the paper's Tables 2 to 7, with averages that name their members."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from rightreasons.audits.art.judge import Judged, Measurement, change_over_models
from rightreasons.audits.art.pieces import CONTROLS
from rightreasons.findings import Cell, Exhibit, Table
from rightreasons.stats.over_models import over_seeds

ART_HEAD = "art_head"
REFERENCES = ("erm", "balanced")  # what the paper's averages leave out
PROBES = {"linear": "linear probe", "centre": "nearest centre"}
TARGETS = {
    "class-conditional": "attribute, within label",
    "global": "attribute, all rows",
    "joint": "group (label and attribute)",
}

Number = Callable[[Measurement], float]


def comparison(methods: Sequence[Judged]) -> list[Exhibit]:
    return [
        verdicts(methods),
        output_behaviour(methods),
        readability(methods),
        restoration(methods),
        controls(methods),
        ablations(methods),
        before_and_after(methods),
    ]


def verdicts(methods: Sequence[Judged]) -> Table:
    rows: list[list[object]] = []
    for j in methods:
        floor = "yes" if j.floor else ""
        rows.append([j.name, len(j.members), j.n_open, j.p, str(j.verdict), j.taxonomy or "–", j.effect, floor])
    return Table(
        title="Methods compared",
        caption="Verdict and place in the taxonomy of every method; seeds of one method are judged together.",
        columns=("method", "models", "open gate", "p", "verdict", "taxonomy", "what restoring does", "floor"),
        rows=rows,
    )


def output_behaviour(methods: Sequence[Judged]) -> Table:
    """Table 2."""
    caption = "Decisions as they are: higher WGA and lower CSR are better."
    return _by_method(methods, "Before restoring", caption, {"WGA": wga_before, "CSR": csr_before})


def readability(methods: Sequence[Judged]) -> Table:
    """Table 3."""
    probes = methods[0].members[0].probes
    columns = {}
    for kind, target in zip(probes.kind, probes.target, strict=True):
        columns[f"{PROBES[kind]}: {TARGETS[target]}"] = _accuracy_of(kind, target)
    return _by_method(methods, "Readability by method", "Balanced accuracy of each probe.", columns)


def restoration(methods: Sequence[Judged]) -> Table:
    """Table 4."""
    caption = "Changes by restoring; a model whose gates are all closed counts as unchanged."
    return _by_method(methods, "Restoration by method", caption, {"drop of WGA": drop_of_wga, "gain of CSR": gain_of_csr})


def controls(methods: Sequence[Judged]) -> Table:
    """Table 5."""
    columns = {"ART": drop_of_wga} | {name: _mean_drop_under(control) for control, name in CONTROLS.items()}
    return _by_method(methods, "Controls by method", "Mean drop of WGA under each control.", columns)


def ablations(methods: Sequence[Judged]) -> Table:
    """Table 6: every variant of find, gate and restore, averaged over the audited methods, which are named."""
    tested, variants = methods[0], methods[0].members[0].ablations
    averaged = _averaged(methods) or list(methods)
    rows: list[list[object]] = []
    for k, (step, name) in enumerate(zip(variants.step, variants.name, strict=True)):
        if step not in ("find", "gate", "restore"):
            continue
        drop = over_methods(averaged, lambda m, k=k: m.ablations.change.wga[k].value)  # type: ignore[misc]
        gain = over_methods(averaged, lambda m, k=k: m.ablations.change.csr[k].value)  # type: ignore[misc]
        own = change_over_models([m.ablations.change[k] for m in tested.members])
        rows.append([step, name, drop, gain, Cell.of(own.wga), Cell.of(own.csr)])
    return Table(
        title="Ablations over methods",
        caption=f"One step of ART changed at a time. Means over {len(averaged)} methods ({_names(averaged)}) with 95 % t "
        "intervals, beside the method that is tested. A variant that lowers worst-group accuracy without raising the "
        "conflict shortcut rate does damage.",
        columns=(
            "step", "variant", "drop of WGA", "gain of CSR", f"drop of WGA, {tested.name}", f"gain of CSR, {tested.name}",
        ),
        rows=rows,
    )  # fmt: skip


def before_and_after(methods: Sequence[Judged]) -> Table:
    """Table 7: before and after restoring, and what a head that was fitted on restored features costs against its start."""
    columns: dict[str, Number] = {
        "WGA before": wga_before,
        "WGA after": lambda m: m.after.wga.value,
        "drop of WGA": drop_of_wga,
        "CSR before": csr_before,
        "CSR after": lambda m: m.after.csr.value,
        "gain of CSR": gain_of_csr,
    }
    heads = [k for k, j in enumerate(methods) if j.name.startswith(ART_HEAD)]
    costs = [cost for k in heads if (cost := _cost_of_head(methods[k], methods))]
    note = ""
    if costs:
        note = f" {'; '.join(costs)}."
    rows: list[list[object]] = []
    for j in methods:
        rows.append([j.name, *(over_members(j, read) for read in columns.values())])
    return Table(
        title="Before and after restoring",
        caption="Every method as it is and with the attribute amplified; means over seeds with 95 % t intervals. A head that was "
        f"fitted on clean and restored features (highlighted) should change little.{note}",
        columns=("method", *columns),
        rows=rows,
        highlight=tuple(heads),
    )


# ---- one number of a model, over models and over methods -----------------------------------------------------------------


def wga_before(m: Measurement) -> float:
    return m.before.wga.value


def csr_before(m: Measurement) -> float:
    return m.before.csr.value


def drop_of_wga(m: Measurement) -> float:
    """0 where every gate is closed."""
    return m.change.wga.value if m.gates.is_open else 0.0


def gain_of_csr(m: Measurement) -> float:
    """0 where every gate is closed."""
    return m.change.csr.value if m.gates.is_open else 0.0


def mean_over(j: Judged, read: Number) -> float:
    """Mean of a number over the models of one method."""
    return float(np.mean([read(m) for m in j.members]))


def over_members(j: Judged, read: Number) -> Cell:
    """Mean over the models of one method, with its t interval."""
    return Cell.of(over_seeds([read(m) for m in j.members]))


def over_methods(methods: Sequence[Judged], read: Number) -> Cell:
    """Mean over methods of their means, with its t interval."""
    return Cell.of(over_seeds([mean_over(j, read) for j in methods]))


# ---- what the functions above use ----------------------------------------------------------------------------------------


def _by_method(methods: Sequence[Judged], title: str, caption: str, columns: Mapping[str, Number]) -> Table:
    """A row for every method and, where there are two or more beside the references, one for their mean."""
    rows: list[list[object]] = []
    for j in methods:
        rows.append([j.name, len(j.members), *(over_members(j, read) for read in columns.values())])
    averaged = _averaged(methods)
    if len(averaged) > 1:
        models = sum(len(j.members) for j in averaged)
        rows.append([f"mean of {_names(averaged)}", models, *(over_methods(averaged, read) for read in columns.values())])
        caption += " Means over seeds with 95 % t intervals; the last row names the methods that it averages."
    return Table(title=title, caption=caption, columns=("method", "models", *columns), rows=rows)


def _averaged(methods: Sequence[Judged]) -> list[Judged]:
    return [j for j in methods if not j.name.startswith(REFERENCES)]


def _names(methods: Sequence[Judged]) -> str:
    return ", ".join(j.name for j in methods)


def _accuracy_of(kind: str, target: str) -> Number:
    return lambda m: m.probes.read(kind, target).accuracy.value


def _mean_drop_under(control: str) -> Number:
    return lambda m: float(getattr(m.controls, control).draws.wga.mean())


def _cost_of_head(head: Judged, methods: Sequence[Judged]) -> str:
    """What an ART-head does to clean WGA, in words; empty where its start is not among the methods."""
    start = _start_of(head, methods)
    if start is None:
        return ""
    cost = head.before.wga.value - start.before.wga.value
    verb = "raises" if cost >= 0 else "lowers"
    return f"{head.name} {verb} clean WGA by {100 * abs(cost):.1f} points against {start.name}"


def _start_of(head: Judged, methods: Sequence[Judged]) -> Judged | None:
    """The method that an ART-head started from: the one that its name ends in, else the tested one."""
    named = head.name.removeprefix(ART_HEAD).lstrip("_- ")
    for j in methods:
        if named and j.name == named:
            return j
    if methods[0] is head:
        return None
    return methods[0]
