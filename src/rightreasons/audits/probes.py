"""Probes: is the attribute readable from the features?

Linear and nearest-class-centre readouts, fitted on audit rows and read on test rows, of the attribute over all rows, within
each label, and of the joint group (ART, sec. 4; OSCAR, sec. V-B). Describes encoding and gives no verdict: what is encoded need
not be used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rightreasons.audits._contract import Context, Need, Role, estimate, refuse_mixed_cases
from rightreasons.data.cohort import Attribute
from rightreasons.errors import NotRun
from rightreasons.evidence import Evidence
from rightreasons.findings import Bars, Cell, Check, Estimate, Exhibit, Finding, Row, Table
from rightreasons.measurements import spread
from rightreasons.stats import probes
from rightreasons.stats.resampling import Interval, resamples

QUESTION = "Is the attribute readable from the features?"
ROW: Row = "encoding"


def needs() -> tuple[Need, ...]:
    return (Need("test", "audit", "features"), Need("test", "test", "features"))


def roles() -> tuple[Role, ...]:
    return ()


@dataclass(frozen=True)
class Measurement:
    """What probes read from one model's features: one entry per probe (kind and target).

    Attributes
    ----------
    kind : linear, centre or ridge (continuous attributes)
    target : global, class-conditional or joint
    auc, accuracy, within_auc, within_accuracy : (k, 3) value, low, high; NaN where a probe has no such reading
    """

    model: str
    attribute: str
    continuous: bool
    kind: tuple[str, ...]
    target: tuple[str, ...]
    auc: np.ndarray
    accuracy: np.ndarray
    within_auc: np.ndarray
    within_accuracy: np.ndarray
    reason: tuple[str, ...]
    chance: np.ndarray
    line: np.ndarray
    n_audit: int
    n_test: int
    n_subjects: int | None
    d: int
    converged: bool
    left_out: tuple[str, ...]
    missing_audit: int
    missing: int

    def scalars(self) -> dict[str, float | int | str]:
        """Every reading that is defined, as `<kind>_<target>_<what>` with its limits, for a row of a table."""
        found: dict[str, float | int | str] = {"attribute": self.attribute, "n_audit": self.n_audit, "n_test": self.n_test}
        tables = {name: getattr(self, name) for name in ("auc", "accuracy", "within_auc", "within_accuracy")}
        for k, probe in enumerate(zip(self.kind, self.target, strict=True)):
            for name, table in tables.items():
                if not np.isnan(table[k, 0]):
                    found |= spread("_".join((*probe, name)).replace("-", "_"), Interval(*table[k]))
        return found

    def decides(self, kind: str, target: str) -> tuple[Interval, float, float]:
        """The reading that is held against the readable line, with its chance level and the line."""
        k = list(zip(self.kind, self.target, strict=True)).index((kind, target))
        table = self.within_auc if self.continuous else self.within_accuracy if target == "class-conditional" else self.accuracy
        value, low, high = table[k]
        return Interval(value, low, high, reason=self.reason[k]), float(self.chance[k]), float(self.line[k])


@dataclass(frozen=True)
class Result:
    measurements: tuple[Measurement, ...]
    context: Context = field(default_factory=Context)

    def finding(self) -> Finding:
        m = self.measurements[0]
        return self.context.finding(
            question=QUESTION,
            row=ROW,
            sentence=_sentence(m),
            estimates=_estimates(m),
            checks=_checks(m),
            exhibits=_exhibits(self.measurements),
        )


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
    fit, read = audit.by_case("features"), test.by_case("features")
    rows = [column for cohort, label, z in (fit, read) for column in (z, label, cohort.attribute(a.name).values)]
    subject = read[0].subject
    sample = resamples(len(read[0]), rng=rng, B=B, subject=subject)
    if a.kind == "continuous":
        found = [probes.read_continuous(*rows, target=target, resamples=sample) for target in ("global", "class-conditional")]
    else:
        found = [
            probes.read(*rows, target=target, kind=kind, resamples=sample, C=C)
            for target in probes.TARGETS
            for kind in probes.KINDS
        ]
    lacking = [int((~((label >= 0) & cohort.attribute(a.name).present)).sum()) for cohort, label, _ in (fit, read)]
    return Measurement(
        model=evidence.card.name,
        attribute=a.name,
        continuous=a.kind == "continuous",
        kind=tuple(r.kind for r in found),
        target=tuple(r.target for r in found),
        auc=_table([r.auc for r in found]),
        accuracy=_table([r.accuracy for r in found]),
        within_auc=_table([r.within_auc for r in found]),
        within_accuracy=_table([r.within_accuracy for r in found]),
        reason=tuple(r.decides.reason if r.decides is not None else "" for r in found),
        chance=np.array([r.chance for r in found]),
        line=np.array([r.line for r in found]),
        n_audit=found[0].n_fit,
        n_test=found[0].n_test,
        n_subjects=None if subject is None else sample.units,
        d=rows[0].shape[1],
        converged=all(r.converged for r in found),
        left_out=tuple(dict.fromkeys(f"{_say(w, a, evidence)}: {why}" for r in found for w, why in r.left_out.items())),
        missing_audit=lacking[0],
        missing=lacking[1],
    )


def conclude(measurements: Mapping[str, Sequence[Measurement]], *, rng: np.random.Generator) -> Result:
    found = tuple(measurements["test"])
    m = found[0]
    return Result(found, Context(attribute=m.attribute, n_rows=m.n_test, n_subjects=m.n_subjects))


# ---- measuring -----------------------------------------------------------------------------------------------------------


def _say(what: Any, a: Attribute, evidence: Evidence) -> str:
    """A value, label or group that a probe left out, in the manifest's words; the probe knows them by number."""
    target = evidence.card.target or evidence.on("test").cohort.label_name
    if a.kind == "continuous":
        return f"{target} = {evidence.card.classes[what]}"
    if not isinstance(what, tuple):
        return f"{a.name} = {a.levels[what]}"
    label, level = (what[1], None) if what[0] == "label" else what
    return f"{target} = {evidence.card.classes[label]}" + ("" if level is None else f", {a.name} = {a.levels[level]}")


def _table(found: Sequence[Interval | None]) -> np.ndarray:
    return np.array([[np.nan] * 3 if i is None else [i.value, i.low, i.high] for i in found])


# ---- saying --------------------------------------------------------------------------------------------------------------


def _main(m: Measurement) -> tuple[Interval, float, float]:
    return m.decides("ridge" if m.continuous else "linear", "class-conditional")


def _sentence(m: Measurement) -> str:
    value, chance, line = _main(m)
    what = "concordance" if m.continuous else "balanced accuracy"
    if np.isnan(value.value):
        return f"Whether {m.attribute} is readable within the label could not be measured: {value.reason}."
    said = "is readable" if value.value >= line else "is not readable"
    return (
        f"Within the label, {m.attribute} {said} from the features: {what} {value.value:.2f} ({value.low:.2f} to "
        f"{value.high:.2f}), chance {chance:.2f}, counts as readable from {line:.2f}. What is encoded need not be used."
    )


NAMES = {"linear": "linear probe", "centre": "nearest centre", "ridge": "ridge probe"}
TARGETS = {
    "global": "attribute, all rows",
    "class-conditional": "attribute, within label",
    "joint": "group (label and attribute)",
}


def _estimates(m: Measurement) -> list[Estimate]:
    value, chance, line = _main(m)
    what = "concordance" if m.continuous else "balanced accuracy"
    note = f"chance {chance:.2f}; counts as readable from {line:.2f}"
    first = estimate(f"{what} within label", value, ROW, unit=what, n=m.n_test, note=note, group="Within the label")
    found = [first]
    kind = "ridge" if m.continuous else "linear"
    for target, table, name, group in (
        ("class-conditional", m.within_auc, "AUC within label", "Within the label"),
        ("global", m.auc, "AUC over all rows", "Over all rows"),
        ("global", m.accuracy, "balanced accuracy over all rows", "Over all rows"),
    ):
        k = list(zip(m.kind, m.target, strict=True)).index((kind, target))
        if not np.isnan(table[k, 0]) and not (m.continuous and table is m.within_auc):
            shown = name.replace("AUC", "concordance") if m.continuous else name
            found.append(estimate(shown, Interval(*table[k]), ROW, unit=what, n=m.n_test, group=group))
    return found


def _checks(m: Measurement) -> list[Check]:
    return [
        Check(name="the probes converged", passed=m.converged),
        Check(
            name="more audit rows than features",
            passed=m.n_audit > m.d,
            note=f"{m.n_audit} rows, {m.d} features; held-out rows keep the reading honest either way",
        ),
        Check(
            name="every value and group is large enough",
            passed=not m.left_out,
            note="left out: " + "; ".join(m.left_out) if m.left_out else "",
        ),
        Check(
            name="every row has a label and the attribute",
            passed=not (m.missing or m.missing_audit),
            note=f"{m.missing_audit} audit rows and {m.missing} test rows left out" if m.missing or m.missing_audit else "",
        ),
    ]


def _exhibits(found: Sequence[Measurement]) -> list[Exhibit]:
    m = found[0]
    keys = list(zip(m.kind, m.target, strict=True))
    decided = [m.decides(kind, target) for kind, target in keys]
    bars = Bars(
        title="How well each probe reads",
        caption="Balanced accuracy on held-out rows (concordance for numbers), with 95 % intervals. Chance is the bar beside it.",
        labels=[f"{NAMES[kind]}: {TARGETS[target]}" for kind, target in keys],
        series={"probe": [i.value for i, _, _ in decided], "chance": [chance for _, chance, _ in decided]},
        low={"probe": [i.low for i, _, _ in decided]},
        high={"probe": [i.high for i, _, _ in decided]},
        value_label="concordance" if m.continuous else "balanced accuracy",
    )
    table = Table(
        title="All readings",
        caption="Within label: each label alone, averaged over labels, so that the label itself cannot tell the attribute.",
        columns=(
            "probe",
            "target",
            "AUC",
            "balanced accuracy",
            "AUC within label",
            "accuracy within label",
            "chance",
            "readable from",
        ),
        rows=[
            [
                NAMES[kind],
                TARGETS[target],
                *(_cell(t[k]) for t in (m.auc, m.accuracy, m.within_auc, m.within_accuracy)),
                m.chance[k],
                m.line[k],
            ]
            for k, (kind, target) in enumerate(keys)
        ],
    )
    return [bars, table]


def _cell(values: np.ndarray) -> Cell | None:
    return None if np.isnan(values[0]) else Cell(value=values[0], low=values[1], high=values[2])
