"""Probes: is the attribute readable from the features?

Linear and nearest-class-centre readouts, fitted on audit rows and read on test rows, of the attribute over all rows, within
each label, and of the joint group (ART, sec. 5.2; OSCAR, sec. V-A). It describes encoding and gives no verdict: what is encoded
need not be used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from rightreasons.audits._contract import Context, Need, OneModelResult, Role
from rightreasons.audits._rows import refuse_mixed_cases
from rightreasons.data.cohort import Attribute
from rightreasons.errors import NotRun
from rightreasons.evidence import Evidence, View
from rightreasons.findings import Bars, Cell, Check, Estimate, Exhibit, Row, Table
from rightreasons.measurements import spread
from rightreasons.stats import probes
from rightreasons.stats.resampling import Interval, Resamples, resamples

QUESTION = "Is the attribute readable from the features?"
ROW: Row = "encoding"

PROBES = {"linear": "linear probe", "centre": "nearest centre", "ridge": "ridge probe"}
TARGETS = {
    "global": "attribute, all rows",
    "class-conditional": "attribute, within label",
    "joint": "group (label and attribute)",
}


def needs() -> tuple[Need, ...]:
    return (Need("test", "audit", "features"), Need("test", "test", "features"))


def roles() -> tuple[Role, ...]:
    return ()


@dataclass(frozen=True)
class Readings:
    """What each probe reads: one entry for each kind and target.

    Attributes
    ----------
    kind : linear, centre or ridge (continuous attributes)
    target : global, class-conditional or joint
    auc, accuracy, within_auc, within_accuracy : NaN where a probe has no such reading
    decides : the one that is held against `line`, from which the attribute counts as readable: within label for numbers and for
        probes within label, over all rows for the others
    """

    kind: tuple[str, ...]
    target: tuple[str, ...]
    auc: tuple[Interval, ...]
    accuracy: tuple[Interval, ...]
    within_auc: tuple[Interval, ...]
    within_accuracy: tuple[Interval, ...]
    decides: tuple[Interval, ...]
    chance: np.ndarray
    line: np.ndarray

    def of(self, kind: str, target: str) -> int:
        """Place of a probe."""
        return list(zip(self.kind, self.target, strict=True)).index((kind, target))


@dataclass(frozen=True)
class Measurement:
    """What probes read from one model's features; `missing` rows lack the label or the attribute."""

    model: str
    attribute: str
    continuous: bool
    readings: Readings
    n_audit: int
    n_test: int
    n_subjects: int | None
    d: int
    converged: bool
    left_out: tuple[str, ...]
    missing_audit: int
    missing: int

    @property
    def kind(self) -> str:
        """The kind of probe that the finding speaks of."""
        if self.continuous:
            return "ridge"
        return "linear"

    @property
    def unit(self) -> str:
        if self.continuous:
            return "concordance"
        return "balanced accuracy"

    def scalars(self) -> dict[str, float | int | str]:
        """Every reading that is defined, as `<kind>_<target>_<what>` with its limits, for a row of a table."""
        columns: dict[str, float | int | str] = {"attribute": self.attribute, "n_audit": self.n_audit, "n_test": self.n_test}
        readings = self.readings
        for k, (kind, target) in enumerate(zip(readings.kind, readings.target, strict=True)):
            for name in ("auc", "accuracy", "within_auc", "within_accuracy"):
                reading = getattr(readings, name)[k]
                if not np.isnan(reading.value):
                    columns |= spread(f"{kind}_{target}_{name}".replace("-", "_"), reading)
        return columns


def measure(
    evidence: Evidence,
    *,
    rng: np.random.Generator,
    attribute: str | None = None,
    C: float = 1.0,
    B: int = 2_000,
) -> Measurement:
    """Fit the probes on audit rows, read them on test rows.

    Parameters
    ----------
    C : inverse penalty of the logistic regression
    B : resamples of the test rows (of subjects where they are known)
    """
    audit, test = evidence.on("audit"), evidence.on("test")
    if not test.cohort.attributes:
        raise NotRun("no attribute: name one with attribute=")
    a = test.cohort.attribute(attribute)
    for view in (audit, test):
        refuse_mixed_cases(view, a.name)
    (to_fit, missing_audit), (to_read, missing) = _rows(audit, a.name), _rows(test, a.name)
    subject = test.by_case("features")[0].subject
    sample = resamples(len(to_read.y), rng=rng, B=B, subject=subject)
    readings = _read_all(to_fit, to_read, a.kind == "continuous", sample, C)
    left_out: list[str] = []
    for reading in readings:
        for what, why in reading.left_out.items():
            left_out.append(f"{_say(what, a, evidence)}: {why}")
    return Measurement(
        model=evidence.card.name,
        attribute=a.name,
        continuous=a.kind == "continuous",
        readings=_readings(readings),
        n_audit=readings[0].n_fit,
        n_test=readings[0].n_test,
        n_subjects=None if subject is None else sample.units,
        d=to_fit.z.shape[1],
        converged=all(reading.converged for reading in readings),
        left_out=tuple(dict.fromkeys(left_out)),
        missing_audit=missing_audit,
        missing=missing,
    )


def conclude(measurements: Mapping[str, Sequence[Measurement]], *, rng: np.random.Generator) -> Result:
    models = tuple(measurements["test"])
    m = models[0]
    return Result(models, Context(attribute=m.attribute, n_rows=m.n_test, n_subjects=m.n_subjects))


# ---- measuring -----------------------------------------------------------------------------------------------------------


def _rows(view: View, attribute: str) -> tuple[probes.Sample, int]:
    """Features, label and attribute of a view, and how many of its rows lack one of the last two."""
    cohort, label, features = view.by_case("features")
    a = cohort.attribute(attribute)
    return probes.Sample(features, label, a.values), int((~((label >= 0) & a.present)).sum())


def _read_all(
    to_fit: probes.Sample, to_read: probes.Sample, continuous: bool, sample: Resamples, C: float
) -> list[probes.Reading]:
    if continuous:
        targets = ("global", "class-conditional")
        return [probes.read_continuous(to_fit, to_read, target=target, resamples=sample) for target in targets]
    readings = []
    for target in probes.TARGETS:
        for kind in probes.KINDS:
            readings.append(probes.read(to_fit, to_read, target=target, kind=kind, resamples=sample, C=C))
    return readings


def _readings(readings: Sequence[probes.Reading]) -> Readings:
    return Readings(
        kind=tuple(r.kind for r in readings),
        target=tuple(r.target for r in readings),
        auc=_defined([r.auc for r in readings]),
        accuracy=_defined([r.accuracy for r in readings]),
        within_auc=_defined([r.within_auc for r in readings]),
        within_accuracy=_defined([r.within_accuracy for r in readings]),
        decides=_defined([_held_against_line(r) for r in readings]),
        chance=np.array([r.chance for r in readings]),
        line=np.array([r.line for r in readings]),
    )


def _held_against_line(reading: probes.Reading) -> Interval | None:
    if reading.kind == "ridge":
        return reading.within_auc
    if reading.target == "class-conditional":
        return reading.within_accuracy
    return reading.accuracy


def _defined(intervals: Sequence[Interval | None]) -> tuple[Interval, ...]:
    return tuple(Interval(np.nan, np.nan, np.nan) if i is None else i for i in intervals)


def _say(what: Any, a: Attribute, evidence: Evidence) -> str:
    """A value, label or group that a probe left out, in the manifest's words; the probe knows them by number."""
    target = evidence.card.target or evidence.on("test").cohort.label_name
    if a.kind == "continuous":
        return f"{target} = {evidence.card.classes[what]}"
    if not isinstance(what, tuple):
        return f"{a.name} = {a.levels[what]}"
    if what[0] == "label":
        return f"{target} = {evidence.card.classes[what[1]]}"
    label, level = what
    return f"{target} = {evidence.card.classes[label]}, {a.name} = {a.levels[level]}"


# ---- saying --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Result(OneModelResult[Measurement]):
    """What probes say of one model; it describes and gives no verdict."""

    question: ClassVar[str] = QUESTION
    row: ClassVar[Row] = ROW

    def sentence(self, m: Measurement) -> str:
        k = m.readings.of(m.kind, "class-conditional")
        reading, chance, line = m.readings.decides[k], m.readings.chance[k], m.readings.line[k]
        if np.isnan(reading.value):
            return f"Whether {m.attribute} is readable within the label could not be measured: {reading.reason}."
        readable = "is readable" if reading.value >= line else "is not readable"
        return (
            f"Within the label, {m.attribute} {readable} from the features: {m.unit} {reading:.2f}, "
            f"chance {chance:.2f}, counts as readable from {line:.2f}. What is encoded need not be used."
        )

    def estimates(self, m: Measurement) -> list[Estimate]:
        readings = m.readings
        within, over_all = readings.of(m.kind, "class-conditional"), readings.of(m.kind, "global")
        note = f"chance {readings.chance[within]:.2f}; counts as readable from {readings.line[within]:.2f}"
        inside, everywhere = "Within the label", "Over all rows"

        def shown(name: str, reading: Interval, group: str, note: str = "") -> Estimate:
            return Estimate.of(name, reading, ROW, unit=m.unit, n=m.n_test, group=group, note=note)

        estimates = [shown(f"{m.unit} within label", readings.decides[within], inside, note)]
        if m.continuous:
            beside = [shown("concordance over all rows", readings.auc[over_all], everywhere)]
        else:
            beside = [
                shown("AUC within label", readings.within_auc[within], inside),
                shown("AUC over all rows", readings.auc[over_all], everywhere),
                shown("balanced accuracy over all rows", readings.accuracy[over_all], everywhere),
            ]
        return estimates + [estimate for estimate in beside if estimate.value is not None]

    def checks(self, m: Measurement) -> list[Check]:
        missing, left_out = m.missing or m.missing_audit, ""
        if m.left_out:
            left_out = f"left out: {'; '.join(m.left_out)}"
        return [
            Check(id="probes-converged", name="the probes converged", passed=m.converged),
            Check(
                id="more-rows-than-features",
                name="more audit rows than features",
                passed=m.n_audit > m.d,
                note=f"{m.n_audit} rows, {m.d} features; held-out rows keep the reading honest either way",
            ),
            Check(
                id="large-groups",
                name="every value and group is large enough",
                passed=not m.left_out,
                note=left_out,
            ),
            Check(
                id="complete-rows",
                name="every row has a label and the attribute",
                passed=not missing,
                note=f"{m.missing_audit} audit rows and {m.missing} test rows left out" if missing else "",
            ),
        ]

    def exhibits(self, m: Measurement) -> list[Exhibit]:
        return [reading_bars(m), reading_table(m)]


def reading_bars(m: Measurement) -> Bars:
    readings = m.readings
    return Bars(
        title="How well each probe reads",
        caption="Balanced accuracy on held-out rows (concordance for numbers), with 95 % intervals. Chance is the bar beside it.",
        labels=[f"{PROBES[kind]}: {TARGETS[target]}" for kind, target in zip(readings.kind, readings.target, strict=True)],
        series={"probe": readings.decides, "chance": readings.chance},
        value_label=m.unit,
    )


def reading_table(m: Measurement) -> Table:
    readings = m.readings
    rows: list[list[object]] = []
    for k, (kind, target) in enumerate(zip(readings.kind, readings.target, strict=True)):
        shown = (readings.auc[k], readings.accuracy[k], readings.within_auc[k], readings.within_accuracy[k])
        cells = [None if np.isnan(i.value) else Cell.of(i) for i in shown]
        rows.append([PROBES[kind], TARGETS[target], *cells, readings.chance[k], readings.line[k]])
    return Table(
        title="All readings",
        caption="Within label: each label alone, averaged over labels, so that the label itself cannot tell the attribute.",
        columns=(
            "probe", "target", "AUC", "balanced accuracy", "AUC within label", "accuracy within label", "chance", "readable from",
        ),
        rows=rows,
    )  # fmt: skip
