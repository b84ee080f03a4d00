"""What restoring does to one model: the steps of the paper in their order, each a function, gathered in one Measurement."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

import numpy as np

from rightreasons.audits._alignment import alignment_of, say_alignment
from rightreasons.audits._following import pull_beside
from rightreasons.audits.art.controls import run_controls
from rightreasons.audits.art.judge import CLOSED, Measurement
from rightreasons.audits.art.layers import measure_layers
from rightreasons.audits.art.pictures import draw_pictures
from rightreasons.audits.art.pieces import (
    Ablations,
    Association,
    BetaCurve,
    Change,
    Counts,
    Gates,
    Groups,
    HeadAsData,
    LabelDirection,
    Model,
    Probes,
    Projection,
    Rates,
    Shares,
)
from rightreasons.audits.art.procedure import (
    ALIGNED,
    CSR,
    WGA,
    Ablation,
    Audit,
    Outcome,
    Restored,
    Stage,
    ablations_of,
    restore_test_rows,
    shares,
)
from rightreasons.audits.art.rows import Rows, audited_attribute, head_of, read_rows
from rightreasons.audits.art.settings import Settings
from rightreasons.audits.art.swing import measure_swing
from rightreasons.data.cohort import Attribute
from rightreasons.evidence import Evidence
from rightreasons.families import with_settings
from rightreasons.stats import probes, resampling
from rightreasons.stats.groups import SMALLEST_GROUP
from rightreasons.stats.probes import Sample
from rightreasons.stats.resampling import Interval, Resamples, p_value, resamples, share_interval
from rightreasons.stats.restoration import Directions, restore

SHOWN = 300  # rows of the projection


@with_settings(Settings)
def measure(evidence: Evidence, *, rng: np.random.Generator, settings: Settings) -> Measurement:
    """Find and gate on two halves of the audit rows, restore the test rows, and read them with the model's own head."""
    settings.refuse_impossible()
    halving, shuffling, drawing, showing, pulling, swinging = rng.spawn(6)
    attribute = audited_attribute(evidence, settings.attribute)
    rows = read_rows(evidence, attribute.name, settings.twins, halving)
    names = Names(evidence, attribute)
    audit, source = start_audit(evidence, attribute, rows, settings)
    sample = resamples(len(rows.test), rng=drawing, B=settings.B, subject=rows.test.subject)
    ablations = ablations_of(audit.procedure)
    restored = restore_test_rows(audit, ablations, sample)
    controls = run_controls(audit, settings.controls, shuffling).summary(audit.main)
    curve = _curve_of(audit, restored, settings.level)
    change = deciding_change(audit, curve, settings.level)
    return Measurement(
        model=_model_of(evidence),
        association=_association_of(evidence, attribute, audit, source, names),
        procedure=audit.procedure,
        counts=_counts_of(rows, audit.stage, sample, settings.twins),
        head=_head_as_data(evidence, rows, audit.stage),
        gates=_gates_of(audit.directions),
        before=rates(audit.stage, restored.before, 0, settings.level),
        after=rates(audit.stage, restored.curve, audit.main, settings.level),
        change=change,
        p=p_value(change.csr.value, controls.shuffled.draws.csr, "greater") if audit.directions.is_open else math.nan,
        curve=curve,
        controls=controls,
        groups=_groups_of(audit.stage, sample, restored.decided, names, settings.level),
        ablations=_ablations_of(ablations, restored, settings.level),
        label=LabelDirection(restored.label.against(restored.before).as_changes(settings.level)[0], restored.label_overlap),
        probes=read_probes(rows.audit, rows.test, sample, settings.C),
        projection=project(audit, names, showing),
        pictures=draw_pictures(evidence, rows, audit, restored.decided, settings.pictures),
        layers=measure_layers(evidence, rows, audit.stage, sample, settings),
        reading=settings.reading,
        swing=measure_swing(audit, settings, sample, swinging),
        pull=pull_beside(evidence, attribute.name, settings.aligned, rng=pulling, B=settings.B, level=settings.level),
    )


class Names:
    """Labels, values and groups in the manifest's words; the numbers know them by code."""

    def __init__(self, evidence: Evidence, attribute: Attribute) -> None:
        self.classes, self.attribute = evidence.card.classes, attribute
        self.label_name = evidence.card.target or evidence.on("test").cohort.label_name

    def label(self, c: Hashable) -> str:
        return f"{self.label_name} = {self.classes[c]}"  # type: ignore[call-overload]

    def value(self, v: Hashable) -> str:
        return f"{self.attribute.name} = {self.attribute.levels[v]}"  # type: ignore[call-overload]

    def group(self, g: tuple[Hashable, Hashable]) -> str:
        return f"{self.label(g[0])}, {self.value(g[1])}"


# ---- the steps -----------------------------------------------------------------------------------------------------------


def start_audit(evidence: Evidence, attribute: Attribute, rows: Rows, settings: Settings) -> tuple[Audit, str]:
    """Find and gate the directions, and set the stage on which test rows are restored; also where π comes from."""
    pi, source = alignment_of(evidence, attribute, settings.aligned)
    stage = Stage(rows.test, head_of(evidence), pi, SMALLEST_GROUP)
    directions = settings.procedure.directions(rows.finding, rows.gating)
    main = settings.strengths.index(float(settings.beta))
    return Audit(stage, rows.finding, rows.gating, settings.procedure, directions, settings.strengths, main), source


def rates(stage: Stage, outcome: Outcome, k: int, level: float) -> Rates:
    """WGA and CSR of one set of decisions; a share of 0 or 1 has an interval with width too."""
    no_group, no_rate, _ = outcome.why_undefined
    value, draws = outcome.value[k], outcome.draws[:, k]
    smallest = float(np.min(stage.size[stage.large], initial=len(stage.rows)))
    return Rates(
        wga=share_interval(value[WGA], draws[:, WGA], smallest, level, no_group),
        csr=share_interval(value[CSR], draws[:, CSR], float(stage.conflict.sum()), level, no_rate),
    )


def deciding_change(audit: Audit, curve: BetaCurve, level: float) -> Change:
    """Δ_WGA and Δ_CSR with the strength that decides (sec. 5.3); undefined where every gate is closed."""
    if audit.directions.is_open:
        return curve.change[curve.main]
    closed = Interval(math.nan, math.nan, math.nan, reason=CLOSED, level=level)
    return Change(closed, closed, closed, closed)


def read_probes(audit: Sample, test: Sample, sample: Resamples, C: float) -> Probes:
    """Linear and nearest-centre probes of the attribute within label and over all rows, and of the group (sec. 5.2, Table 3)."""
    readings = []
    for target in ("class-conditional", "global", "joint"):
        for kind in probes.KINDS:
            reading = probes.read(audit, test, target=target, kind=kind, resamples=sample, C=C)
            readings.append(reading)
    nothing = Interval(math.nan, math.nan, math.nan, reason=probes.TOO_FEW)
    return Probes(
        kind=tuple(r.kind for r in readings),
        target=tuple(r.target for r in readings),
        accuracy=tuple(r.decides or nothing for r in readings),
        chance=np.array([r.chance for r in readings]),
        line=np.array([r.line for r in readings]),
        converged=all(r.converged for r in readings),
    )


def project(audit: Audit, names: Names, rng: np.random.Generator) -> Projection:
    """Some rows before and after restoring, on the two leading components of both together."""
    rows, directions = audit.stage.rows, audit.directions
    chosen = np.sort(rng.permutation(len(rows))[:SHOWN])
    known = chosen[np.isin(rows.y[chosen], np.array(directions.labels))]
    if len(known) < 3:
        return Projection(np.zeros((0, 2)), np.zeros((0, 2)), ())
    before = rows.z[known]
    both = np.concatenate([before, restore(before, rows.y[known], directions, audit.beta)])
    left, size, _ = np.linalg.svd(both - both.mean(axis=0), full_matrices=False)
    k = min(2, len(size))
    sign = np.sign(left[np.abs(left[:, :k]).argmax(axis=0), np.arange(k)])
    placed = np.zeros((len(both), 2))
    placed[:, :k] = left[:, :k] * size[:k] * sign
    groups = zip(rows.y[known].tolist(), rows.a[known].tolist(), strict=True)
    return Projection(placed[: len(known)], placed[len(known) :], tuple(map(names.group, groups)))


# ---- the pieces ----------------------------------------------------------------------------------------------------------


def _model_of(evidence: Evidence) -> Model:
    card = evidence.card
    start = str(card.settings.get("regime") or "")
    # A model that went on from one that was not trained as usual is named after both: `art_head_neggrad`.
    if card.regime and start not in ("", card.regime, "erm"):
        method = f"{card.regime}_{start}"
    else:
        method = card.regime
    return Model(card.name, method, card.architecture, card.seed)


def _association_of(evidence: Evidence, attribute: Attribute, audit: Audit, source: str, names: Names) -> Association:
    directions = audit.directions
    values = ("the label",) if directions.kind == "label" else tuple(map(names.value, directions.values))
    return Association(
        attribute=attribute.name,
        label=names.label_name,
        classes=tuple(map(names.label, directions.labels)),
        values=values,
        aligned=say_alignment(audit.stage.aligned, attribute, evidence),
        source=source,
    )


def _counts_of(rows: Rows, stage: Stage, sample: Resamples, twins: bool) -> Counts:
    return Counts(
        n=len(rows.test),
        n_subjects=None if rows.views[0].cohort.subject is None else sample.units,
        n_find=len(rows.finding),
        n_gate=len(rows.gating),
        n_conflict=int(stage.conflict.sum()),
        outputs=len(np.unique(stage.readout.decided)),
        missing=rows.missing,
        missing_audit=rows.missing_audit,
        twins=twins,
    )


def _head_as_data(evidence: Evidence, rows: Rows, stage: Stage) -> HeadAsData:
    test, is_linear = rows.views[0], head_of(evidence).is_linear
    if "logits" not in test or not (is_linear or test.cohort.case is None):
        return HeadAsData(is_linear, 1.0)
    cohort, label, logits = test.by_case("logits")
    known = (label >= 0) & (cohort.attribute(rows.attribute).values >= 0)
    stored = logits[known].argmax(axis=1)
    agreement = 1.0
    if len(stored):
        agreement = float(np.mean(stored == stage.readout.decided[: len(stored)]))
    return HeadAsData(is_linear, agreement)


def _gates_of(directions: Directions) -> Gates:
    return Gates(directions.T, directions.found, directions.counts, directions.open, directions.reason)


def _curve_of(audit: Audit, restored: Restored, level: float) -> BetaCurve:
    return BetaCurve(
        betas=np.array(audit.betas),
        main=audit.main,
        wga=restored.curve.intervals(WGA, level),
        csr=restored.curve.intervals(CSR, level),
        aligned=restored.curve.intervals(ALIGNED, level),
        change=restored.curve.against(restored.before).as_changes(level),
    )


def _ablations_of(ablations: Sequence[Ablation], restored: Restored, level: float) -> Ablations:
    change = restored.ablations.against(restored.before).as_changes(level)
    return Ablations(tuple(a.step for a in ablations), tuple(a.name for a in ablations), change)


def _groups_of(stage: Stage, sample: Resamples, after: np.ndarray, names: Names, level: float) -> Groups:
    """Accuracy by group and shortcut rate by attribute value, before and after."""
    values = []
    for v in sorted(stage.aligned, key=str):
        if (stage.conflict & (stage.rows.a == v)).any():
            values.append(v)
    place = {v: k for k, v in enumerate(values)}
    value = np.where(stage.conflict, [place.get(v, -1) for v in stage.rows.a.tolist()], -1)
    decided = (stage.readout.decided, after)
    right = [guess == stage.rows.y for guess in decided]
    follows = [guess == stage.towards for guess in decided]
    accuracy = _shares_of(stage.group, right, tuple(map(names.group, stage.names)), sample, level)
    said = tuple(f"{names.value(v)} → {names.label(stage.aligned[v])}" for v in values)
    small = []
    for g, n, ok in zip(stage.names, stage.size, stage.large, strict=True):
        if not ok:
            small.append(f"{names.group(g)} ({n})")
    return Groups(accuracy, _shares_of(value, follows, said, sample, level), _worst(stage, names), "; ".join(small))


def _shares_of(code: np.ndarray, hits: Sequence[np.ndarray], names: tuple[str, ...], sample: Resamples, level: float) -> Shares:
    """Share of hits before and after among the rows of each code; a code below 0 is none."""
    K = len(names)
    size = np.bincount(code[code >= 0], minlength=K)
    if not K:
        return Shares((), size, (), ())

    def numbers(counts: np.ndarray) -> np.ndarray:
        return np.stack([shares(counts, code, hit, K) for hit in hits], axis=1)  # (B, 2, K)

    point, draws = numbers(resampling.whole(len(code)))[0], sample.apply(numbers)
    before = tuple(share_interval(point[0, k], draws[:, 0, k], size[k], level) for k in range(K))
    after = tuple(share_interval(point[1, k], draws[:, 1, k], size[k], level) for k in range(K))
    return Shares(names, size, before, after)


def _worst(stage: Stage, names: Names) -> str:
    if not stage.large.any():
        return ""
    right = shares(resampling.whole(len(stage.rows)), stage.group, stage.readout.decided == stage.rows.y, len(stage.names))[0]
    return names.group(stage.names[int(np.where(stage.large, right, np.inf).argmin())])
