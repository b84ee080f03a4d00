"""ART, the association restoration test: is a shortcut that the decisions no longer show still usable by the model's own head?

Find class-conditional attribute directions in the features, gate the unreliable ones, amplify what is left of them in each test
row, and read the result with the original head (ART, sec. 3). Controls run the same procedure on a shuffled attribute; probes
beside it say whether the attribute is readable at all (sec. 4 and 5).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rightreasons.audits import _art_layers, _art_page, _art_pictures
from rightreasons.audits._alignment import alignment_of, say_alignment
from rightreasons.audits._art_judge import CLOSED, NO_PI, Judged, Measurement, by_method
from rightreasons.audits._art_runs import (
    Audit,
    Controls,
    Outcome,
    Procedure,
    Sample,
    Stage,
    complete,
    outcome,
    run_controls,
    shares,
)
from rightreasons.audits._contract import Context, Need, Role, refuse_mixed_cases
from rightreasons.audits._pull import pull_beside
from rightreasons.data.cohort import Attribute, Cohort
from rightreasons.errors import DataError, NotRun, SettingError
from rightreasons.evidence import Evidence, View
from rightreasons.findings import MAX_PICTURES, Finding, Row, Verdict
from rightreasons.stats import probes, resampling, restoration
from rightreasons.stats.groups import SMALLEST_GROUP, aligned_label
from rightreasons.stats.resampling import Interval, interval, p_value, resamples, share_interval
from rightreasons.stats.restoration import Directions, find, gate, restore

__all__ = [
    "QUESTION", "ROW", "Directions", "Measurement", "Result", "aligned_label", "conclude", "find", "gate", "measure", "needs",
    "restore", "roles",
]  # fmt: skip

QUESTION = "Can an association that the decisions may no longer show be brought back under the model's own head?"
ROW: Row = "reliance"

BETAS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0)
RHOS = (0.0, 0.25, 0.5, 0.75, 1.0)
ROUTINGS = ("true", "predicted")
FEWEST_DRAWS = 19  # with fewer no p can reach 0.05
SHOWN = 300  # rows of the projection


def needs(
    attribute: str | None = None,
    direction: str = "class-conditional",
    rho: float = 0.5,
    gated: bool = True,
    tau: float = 0.5,
    n_min: int = 20,
    routing: str = "true",
    beta: float = 2.0,
    twins: bool = False,
    layers: Sequence[str] = (),
    layer_controls: int = _art_layers.DRAWS,
    pictures: int = 0,
) -> tuple[Need, ...]:
    procedure = Procedure(direction, rho, tau, n_min, gated, routing)
    audited, reported = _art_layers.arrays(layers, procedure, beta, attribute, layer_controls)

    def of(role: str, optional: bool) -> tuple[Need, ...]:
        return (
            Need(role, "audit", "features", optional),
            Need(role, "test", "features", optional),
            *((Need(role, "twin", "features", optional),) if twins else ()),
            Need(role, "audit", "logits", True),
            Need(role, "test", "logits", True),
        )

    inside = (
        *((Need("test", "test", "spatial", True),) if pictures else ()),
        *(Need("test", "audit", array, True) for array in audited),
        *(Need("test", "test", array, True) for array in reported),
        *(Need("test", "twin", array, True) for array in ("logits", *reported) if twins and layers),
    )
    return of("test", False) + of("panel", True) + inside


def roles() -> tuple[Role, ...]:
    return ()


@dataclass(frozen=True)
class Result:
    """What ART says: of the tested model or its seeds, and of every other method given beside it.

    The verdict is that of the first method of the role `test`.
    """

    methods: tuple[Judged, ...]
    context: Context = field(default_factory=Context)

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        return tuple(m for method in self.methods for m in method.members)

    @property
    def verdict(self) -> Verdict:
        return self.methods[0].verdict

    @property
    def taxonomy(self) -> str:
        """Restorable shortcut, probe miss, functional decoupling, representational deletion; empty where none can be said."""
        return self.methods[0].taxonomy

    def finding(self) -> Finding:
        return self._finding(self.methods[0])

    def findings(self) -> list[Finding]:
        """One finding per method, each with the comparison of all; the names end in the method where there are several."""
        if len(self.methods) == 1:
            return [self.finding()]
        return [
            self._finding(method).model_copy(update={"name": f"{self.context.name}-{method.name}", "model": method.name})
            for method in self.methods
        ]

    def _finding(self, judged: Judged) -> Finding:
        return self.context.finding(
            question=QUESTION,
            row=ROW,
            verdict=judged.verdict,
            sentence=_art_page.sentence(judged),
            estimates=_art_page.estimates(judged),
            checks=_art_page.checks(judged),
            exhibits=_art_page.exhibits(judged, self.methods),
        )


def measure(
    evidence: Evidence,
    *,
    rng: np.random.Generator,
    attribute: str | None = None,
    aligned: Mapping[Any, Any] | None = None,
    direction: str = "class-conditional",
    rho: float = 0.5,
    gated: bool = True,
    tau: float = 0.5,
    n_min: int = 20,
    routing: str = "true",
    beta: float = 2.0,
    betas: Sequence[float] = BETAS,
    twins: bool = False,
    layers: Sequence[str] = (),
    layer_controls: int = _art_layers.DRAWS,
    pictures: int = 0,
    controls: int = 300,
    B: int = 1_000,
    level: float = 0.95,
    C: float = 1.0,
) -> Measurement:
    """Find and gate on two halves of the audit rows, restore on test rows.

    Parameters
    ----------
    aligned : the label that each attribute value stands for; else by lift on the training rows, else from the model's errors
    direction : class-conditional, or the ablations global and label
    gated : whether the gate may close a direction
    routing : "true" amplifies along the directions of a row's label, "predicted" along those of its decision
    beta, betas : the strength that decides, and those of the curve
    twins : also report on the twin of every test row (clean and stamped images), with its attribute
    layers : names of layers inside the network at which to restore too, in their order; of tested models alone
    layer_controls : shuffles of the attribute at every layer
    pictures : how many images to show with Grad-CAM before and after, where the features are the average of a map
    controls : draws of every control
    B : resamples of the test rows (of subjects where they are known; a row and its twin are one)
    C : inverse penalty of the linear probe
    """
    strengths = _strengths(beta, betas)
    _refuse_settings(direction, routing, controls, layer_controls, pictures)
    test_view, audit_view, a, head = _parts(evidence, attribute)
    halving, shuffling, drawing, showing, pulling = rng.spawn(5)
    rows, missing_audit = complete(audit_view, a.name)[:2]
    test, missing, reported = _test_rows(evidence, test_view, a.name, twins)
    if not len(rows) or not len(test):
        raise NotRun(f"{len(rows)} audit rows and {len(test)} test rows have a label and {a.name}: ART needs both")
    to_find, to_gate = restoration.halves(rows.y, rows.a, rng=halving, subject=rows.subject)
    if not len(to_gate):
        raise NotRun(f"the {len(rows)} audit rows cannot be halved: directions are found on one half and gated on the other")
    finding, gating = rows.select(to_find), rows.select(to_gate)
    pi, source = alignment_of(evidence, a, aligned)
    stage = Stage(test, head, pi, SMALLEST_GROUP)
    procedure = Procedure(direction, rho, tau, n_min, gated, routing)
    directions = procedure.directions(finding, gating)
    audit = Audit(stage, finding, gating, procedure, directions, strengths, strengths.index(float(beta)))

    decided = stage.decisions(directions, strengths, routing)
    variants = _ablations(procedure)
    ablated = [stage.decisions(p.directions(finding, gating), (beta,), p.routing) for _, _, p in variants]
    beside, overlap = _label_beside(audit, beta)
    sample = resamples(len(test), rng=drawing, B=B, subject=test.subject)
    all_decided = np.concatenate([stage.readout.decided[None], decided, *ablated, beside])
    found = outcome(stage, all_decided, sample)
    change = found.change
    drawn = run_controls(audit, controls, shuffling)
    readings = [
        probes.read(rows.z, rows.y, rows.a, test.z, test.y, test.a, target=target, kind=kind, resamples=sample, C=C)
        for target in ("class-conditional", "global", "joint")
        for kind in probes.KINDS
    ]
    b, at = len(strengths), 1 + audit.main
    names = _Names(evidence, a, test_view.cohort)
    return Measurement(
        model=evidence.card.name,
        regime=_method(evidence),
        architecture=evidence.card.architecture,
        seed=evidence.card.seed,
        attribute=a.name,
        label_name=names.label_name,
        classes=tuple(names.label(c) for c in directions.labels),
        values=tuple(names.value(v) for v in directions.values) if direction != "label" else ("the label",),
        aligned=say_alignment(pi, a, evidence),
        aligned_from=source,
        twins=twins,
        linear_head=head.is_linear,
        direction=direction,
        gated=gated,
        routing=routing,
        rho=rho,
        tau=tau,
        n_min=n_min,
        n=len(test),
        n_subjects=None if test_view.cohort.subject is None else sample.units,
        n_find=len(finding),
        n_gate=len(gating),
        n_conflict=int(stage.conflict.sum()),
        missing=missing,
        missing_audit=missing_audit,
        agreement=_agreement(reported[0], a.name, stage.readout.decided, head.is_linear),
        exchangeable=drawn.exchangeable,
        exchange_reason=drawn.reason,
        betas=np.array(strengths),
        main=audit.main,
        curve=_table(found, slice(1, 1 + b), level),
        change=_table(change, slice(1, 1 + b), level),
        **_deciding(stage, found, change, at, directions.is_open, level),
        worst=_worst(stage, names),
        left_out="; ".join(f"{names.group(g)} ({n})" for g, n, ok in zip(stage.names, stage.size, stage.large) if not ok),
        p=p_value(change.value[at, 1], drawn.change[0, audit.main, :, 1], "greater") if directions.is_open else math.nan,
        gate_T=directions.T,
        gate_found=directions.found,
        gate_counts=directions.counts,
        gate_open=directions.open,
        gate_reason=tuple(why for row in directions.reason for why in row),
        control=drawn.change[:, audit.main],
        band=_band(drawn),
        closed_share=float(drawn.closed.mean()),
        **_by_group(stage, sample, np.stack([stage.readout.decided, decided[audit.main]]), names, level),
        ablation_step=tuple(step for step, _, _ in variants),
        ablation_name=tuple(name for _, name, _ in variants),
        ablation_change=_table(change, slice(1 + b, -1), level),
        ablation_excess=_excess(change, slice(1 + b, -1), level),
        label_change=_table(change, slice(-1, None), level)[0],
        label_excess=_excess(change, slice(-1, None), level)[0],
        label_overlap=overlap,
        **_readings(readings),
        **_projection(stage, directions, beta, names, showing),
        **_art_pictures.draw_pictures(
            evidence, reported[0], _known(reported[0], a.name), stage, directions, beta, decided[audit.main], pictures
        ),
        **_art_layers.measure_layers(
            evidence, reported, stage, sample, layers, procedure, float(beta), a.name, layer_controls, level, C
        ),
        pull=pull_beside(evidence, a.name, aligned, rng=pulling, B=B, level=level),
    )


def conclude(measurements: Mapping[str, Sequence[Measurement]], *, rng: np.random.Generator) -> Result:
    """Judge each method: the models of `test`, then those of `panel`; seeds of one method together."""
    found = [*measurements.get("test", ()), *measurements.get("panel", ())]
    methods = tuple(by_method(found))
    m = found[0]
    return Result(methods, Context(attribute=m.attribute, n_rows=m.n, n_subjects=m.n_subjects))


# ---- the rows ------------------------------------------------------------------------------------------------------------


def _strengths(beta: float, betas: Sequence[float]) -> tuple[float, ...]:
    if not beta > 0 or any(not b >= 0 for b in betas):
        raise SettingError(f"found beta={beta} and betas={list(betas)}; beta must be above 0 and betas 0 or more")
    return tuple(sorted({0.0, float(beta), *map(float, betas)}))


def _refuse_settings(direction: str, routing: str, controls: int, layer_controls: int, pictures: int) -> None:
    if direction not in restoration.KINDS:
        raise SettingError(f"no direction {direction!r}; known: {', '.join(restoration.KINDS)}")
    if routing not in ROUTINGS:
        raise SettingError(f"no routing {routing!r}; known: {', '.join(ROUTINGS)}")
    if not 0 <= pictures <= MAX_PICTURES:
        raise SettingError(f"pictures={pictures}: give 0 to {MAX_PICTURES}")
    if min(controls, layer_controls) < FEWEST_DRAWS:
        given = f"controls={controls}, layer_controls={layer_controls}"
        raise SettingError(f"{given}: with fewer than {FEWEST_DRAWS} draws no p can reach 0.05; 200 or more are due")


def _parts(evidence: Evidence, attribute: str | None) -> tuple[View, View, Attribute, Any]:
    test, audit = evidence.on("test"), evidence.on("audit")
    if not test.cohort.attributes:
        raise NotRun("no attribute: name one with attribute=")
    a = test.cohort.attribute(attribute)
    if a.kind == "continuous":
        raise NotRun(f"{a.name} is continuous, and ART compares its values within each class: needs bins")
    if evidence.head is None:
        raise NotRun(f"the head of {evidence.card.name} is not known as data, and ART reads restored features with it")
    for view in (test, audit):
        refuse_mixed_cases(view, a.name)
    _same_levels(evidence, a)
    return test, audit, a, evidence.head


def _same_levels(evidence: Evidence, a: Attribute) -> None:
    """Codes mean the same only where the values are listed alike, as in views of one table."""
    cohorts = [evidence.on(name).cohort for name in ("audit", "twin") if name in evidence.cohorts]
    cohorts += [] if evidence.training is None else [evidence.training]
    for cohort in cohorts:
        if a.name in cohort.attributes and (levels := cohort.attribute(a.name).levels) != a.levels:
            raise DataError(
                f"{a.name!r} has the values {list(a.levels)} on test rows and {list(levels)} on {cohort.name} rows: "
                "read all of them from one table"
            )


def _test_rows(evidence: Evidence, test: View, attribute: str, twins: bool) -> tuple[Sample, int, tuple[View, ...]]:
    """The rows reported on, how many are left out, and where they come from: test rows, then twins.

    With twins: each test row that has one, and its twin; both are resampled together.
    """
    if not twins:
        rows, missing, _ = complete(test, attribute)
        return rows, missing, (test,)
    twin = evidence.on("twin")
    place = {i: k for k, i in enumerate(twin.cohort.id)}
    paired = np.array([k for k, i in enumerate(test.cohort.id) if i in place], dtype=np.int64)
    if not len(paired):
        raise NotRun("no test row has a twin: leave twins= out", lacks="twins")
    shown, other = test.select(paired), twin.select(np.array([place[i] for i in test.cohort.id[paired]], dtype=np.int64))
    refuse_mixed_cases(other, attribute)
    (first, lacking, ids), (second, also, twin_ids) = complete(shown, attribute), complete(other, attribute)
    # A row without a subject is its own unit, together with its twin.
    units = [
        names if part.subject is None else np.where(part.subject == "", names, part.subject)
        for part, names in ((first, ids), (second, twin_ids))
    ]
    rows = Sample(
        np.concatenate([first.z, second.z]), np.concatenate([first.y, second.y]), np.concatenate([first.a, second.a]),
        np.concatenate(units),
    )  # fmt: skip
    return rows, len(test) - len(paired) + lacking + also, (shown, other)


def _known(test: View, attribute: str) -> np.ndarray:
    return (test.label >= 0) & (test.cohort.attribute(attribute).values >= 0)


def _agreement(test: View, attribute: str, decided: np.ndarray, is_linear: bool) -> float:
    """Share of test rows on which the head as data decides what the stored logits say; 1 where that cannot be compared."""
    if "logits" not in test or not (is_linear or test.cohort.case is None):
        return 1.0
    cohort, label, logits = test.by_case("logits")
    known = (label >= 0) & (cohort.attribute(attribute).values >= 0)
    stored = logits[known].argmax(axis=1)
    return float(np.mean(stored == decided[: len(stored)])) if len(stored) else 1.0


def _method(evidence: Evidence) -> str:
    """The regime, and where it went on from a model that was not trained as usual, that model's: `art_head_neggrad`."""
    regime, start = evidence.card.regime, str(evidence.card.settings.get("regime") or "")
    return f"{regime}_{start}" if regime and start not in ("", regime, "erm") else regime


class _Names:
    """Labels, values and groups in the manifest's words; the numbers know them by code."""

    def __init__(self, evidence: Evidence, a: Attribute, cohort: Cohort) -> None:
        self.classes, self.a = evidence.card.classes, a
        self.label_name = evidence.card.target or cohort.label_name

    def label(self, c: Hashable) -> str:
        return f"{self.label_name} = {self.classes[c]}"  # type: ignore[call-overload]

    def value(self, v: Hashable) -> str:
        return f"{self.a.name} = {self.a.levels[v]}"  # type: ignore[call-overload]

    def group(self, g: tuple[Hashable, Hashable]) -> str:
        return f"{self.label(g[0])}, {self.value(g[1])}"


# ---- the variants --------------------------------------------------------------------------------------------------------


def _ablations(p: Procedure) -> list[tuple[str, str, Procedure]]:
    """Each step with its alternatives, the rest as it was set (sec. 5.5, Table 6)."""
    changed = lambda **how: Procedure(**{**vars(p), **how})  # noqa: E731
    return [
        *(("find", f"{kind} direction", changed(kind=kind)) for kind in restoration.KINDS),
        *(("gate", "with gate" if on else "without gate", changed(gated=on)) for on in (True, False)),
        *(("restore", f"{routing} label", changed(routing=routing)) for routing in ROUTINGS),
        *(("rho", f"{rho:g}", changed(rho=rho)) for rho in sorted({*RHOS, p.rho})),
    ]


def _label_beside(audit: Audit, beta: float) -> tuple[np.ndarray, float]:
    """Decisions (1, n) along what the attribute leaves of the label direction, and how much of it the attribute shares (cosine).

    Features of a model that learned a shortcut may hold label and attribute in one direction; only the rest is the label alone.
    """
    finding = audit.finding
    label = restoration.find(finding.z, finding.y, finding.a, kind="label")
    attribute = restoration.find(finding.z, finding.y, finding.a, rho=0.0)
    left: dict[Hashable, np.ndarray] = {}
    shared = []
    for c in label.labels:
        whole, taken = label.basis(c), attribute.basis(c)
        rest = whole - (whole @ taken.T) @ taken
        length = np.linalg.norm(rest, axis=1, keepdims=True)
        left[c] = rest[length[:, 0] > 1e-8] / length[length[:, 0] > 1e-8]
        shared.append(float(np.linalg.norm(whole @ taken.T)))
    return audit.stage.along(left, label, (beta,), audit.procedure.routing), max(shared)


# ---- the numbers ---------------------------------------------------------------------------------------------------------


def _table(found: Outcome, which: slice, level: float) -> np.ndarray:
    """(v, 3, 3): WGA, CSR and errors on aligned rows, each as value, low, high."""
    value, draws = found.value[which], found.draws[:, which]
    made = [[interval(value[v, k], draws[:, v, k], level) for k in range(3)] for v in range(len(value))]
    return np.array([[[i.value, i.low, i.high] for i in row] for row in made]).reshape(-1, 3, 3)


def _excess(change: Outcome, which: slice, level: float) -> np.ndarray:
    """(v, 3) gain of CSR less the gain of errors on aligned rows: value, low, high."""
    value = change.value[which, 1] - change.value[which, 2]
    draws = change.draws[:, which, 1] - change.draws[:, which, 2]
    made = [interval(x, d, level) for x, d in zip(value, draws.T)]
    return np.array([[i.value, i.low, i.high] for i in made]).reshape(-1, 3)


def _deciding(stage: Stage, found: Outcome, change: Outcome, at: int, is_open: bool, level: float) -> dict[str, Any]:
    no_group = f"no group of at least {SMALLEST_GROUP} rows"
    no_rate = "no conflicting test rows" if stage.aligned else NO_PI
    n, smallest = float(stage.conflict.sum()), float(np.min(stage.size[stage.large], initial=len(stage.rows)))

    def changed(k: int, reason: str) -> Interval:
        if not is_open:
            return Interval(math.nan, math.nan, math.nan, reason=CLOSED, level=level)
        return interval(change.value[at, k], change.draws[:, at, k], level, reason)

    excess = change.value[at, 1] - change.value[at, 2]
    return {
        "wga": share_interval(found.value[0, 0], found.draws[:, 0, 0], smallest, level, no_group),
        "csr": share_interval(found.value[0, 1], found.draws[:, 0, 1], n, level, no_rate),
        "wga_after": share_interval(found.value[at, 0], found.draws[:, at, 0], smallest, level, no_group),
        "csr_after": share_interval(found.value[at, 1], found.draws[:, at, 1], n, level, no_rate),
        "delta_wga": changed(0, no_group),
        "delta_csr": changed(1, no_rate),
        "delta_aligned": changed(2, "no aligned test rows"),
        "excess": interval(excess, change.draws[:, at, 1] - change.draws[:, at, 2], level, no_rate)
        if is_open
        else Interval(math.nan, math.nan, math.nan, reason=CLOSED, level=level),
    }


def _band(drawn: Controls) -> np.ndarray:
    """(4, b, 3, 3) mean, 5 % and 95 % over draws of each control, strength and number."""
    low, high = np.quantile(drawn.change, [0.05, 0.95], axis=2)
    return np.stack([drawn.change.mean(axis=2), low, high], axis=-1)


def _worst(stage: Stage, names: _Names) -> str:
    if not stage.large.any():
        return ""
    right = shares(resampling.whole(len(stage.rows)), stage.group, stage.readout.decided == stage.rows.y, len(stage.names))[0]
    return names.group(stage.names[int(np.where(stage.large, right, np.inf).argmin())])


def _by_group(stage: Stage, sample: resampling.Resamples, decided: np.ndarray, names: _Names, level: float) -> dict[str, Any]:
    """Accuracy by group and shortcut rate by attribute value, before and after."""
    G, aligned = len(stage.names), [v for v in sorted(stage.aligned, key=str) if (stage.conflict & (stage.rows.a == v)).any()]
    place = {v: k for k, v in enumerate(aligned)}
    value = np.where(stage.conflict, [place.get(v, -1) for v in stage.rows.a.tolist()], -1)
    V = len(aligned)

    def numbers(counts: np.ndarray) -> np.ndarray:
        parts = [shares(counts, stage.group, guess == stage.rows.y, G) for guess in decided]
        parts += [shares(counts, value, guess == stage.towards, V) for guess in decided] if V else []
        return np.concatenate(parts, axis=1)

    point, draws = numbers(resampling.whole(len(stage.rows)))[0], sample.apply(numbers)
    size = np.concatenate([stage.size, stage.size, *[np.bincount(value[value >= 0], minlength=V)] * 2])
    made = np.array(
        [[i.value, i.low, i.high] for i in map(lambda x, d, n: share_interval(x, d, n, level), point, draws.T, size)]
    ).reshape(-1, 3)
    return {
        "group_name": tuple(names.group(g) for g in stage.names),
        "group_size": stage.size,
        "group_accuracy": made[: 2 * G].reshape(2, G, 3),
        "value_name": tuple(f"{names.value(v)} → {names.label(stage.aligned[v])}" for v in aligned),
        "value_size": np.bincount(value[value >= 0], minlength=V),
        "value_rate": made[2 * G :].reshape(2, V, 3),
    }


def _readings(readings: Sequence[probes.Reading]) -> dict[str, Any]:
    nothing = Interval(math.nan, math.nan, math.nan, reason="too few rows of two attribute values in both sets")
    decided = [r.decides or nothing for r in readings]
    return {
        "probe_kind": tuple(r.kind for r in readings),
        "probe_target": tuple(r.target for r in readings),
        "probe": np.array([[i.value, i.low, i.high] for i in decided]),
        "probe_chance": np.array([r.chance for r in readings]),
        "probe_line": np.array([r.line for r in readings]),
        "probe_reason": tuple(i.reason for i in decided),
        "converged": all(r.converged for r in readings),
    }


def _projection(stage: Stage, directions: Directions, beta: float, names: _Names, rng: np.random.Generator) -> dict[str, Any]:
    """Some rows before and after restoring, on the two leading components of both together."""
    rows = np.sort(rng.permutation(len(stage.rows))[:SHOWN])
    known = rows[np.isin(stage.rows.y[rows], np.array(directions.labels))]
    if len(known) < 3:
        return {"projection": np.zeros((2, 0, 2)), "projection_group": ()}
    before = stage.rows.z[known]
    both = np.concatenate([before, restore(before, stage.rows.y[known], directions, beta)])
    left, size, _ = np.linalg.svd(both - both.mean(axis=0), full_matrices=False)
    k = min(2, len(size))
    sign = np.sign(left[np.abs(left[:, :k]).argmax(axis=0), np.arange(k)])
    placed = np.zeros((len(both), 2))
    placed[:, :k] = left[:, :k] * size[:k] * sign
    return {
        "projection": placed.reshape(2, len(known), 2),
        "projection_group": tuple(
            names.group((y, v)) for y, v in zip(stage.rows.y[known].tolist(), stage.rows.a[known].tolist())
        ),
    }
