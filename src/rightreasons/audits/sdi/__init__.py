"""SDI: does the model move more with the acquisition than with the content?

Images are changed by nuisance operators (borders, colours, the device) and by content operators (contrast, shapes and patches
inside the field of view) that change pixels as much. The paper compares how far both move the features; beside it stands the
same for what the head reads, because a cue may be encoded and unused. Neither ratio has a scale of its own: both depend on how
strong the operator is and on how fragile the network. The verdict therefore rests on what an operator that removes the cue from
the features takes of the cue's effect on the predictions.

| paper | step | function |
|---|---|---|
| eq. 1, 3 | distances, in mean feature norms | `formulas.sensitivity`, `perturbed.Perturbed.distance` |
| eq. 2–4 | probes 1 and 2: S_nc, S_c, R_sc | `perturbed.sensitivities`, `formulas.ratio` |
| sec. III-A4 | probe 3: is the cue readable? | `cue.find_cue`, `cue.probe_cue` |
| eq. 5, 6 | the index against a panel | `formulas.combine`, `formulas.normalise`, `formulas.Panel` |
| sec. IV-F | severities | `severities.Severities` |
| sec. IV-H | all of this for one model | `measure.measure` |
| ours | the cue's effect, and what an operator takes of it | `effect.Effects`, `effect.taken` |
| ours | the verdict and its checks | `judge.Judged`, `judge.checks` |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from rightreasons.audits._contract import Context, Need, Role
from rightreasons.audits.sdi import page
from rightreasons.audits.sdi.cue import INSERTED
from rightreasons.audits.sdi.formulas import WEIGHTS, Panel, check_weights, combine, head_read, normalise, ratio, sensitivity
from rightreasons.audits.sdi.judge import CUE_RULE, RULES, TOUCHED, Judged, Model, checks, panel_of
from rightreasons.audits.sdi.measure import measure
from rightreasons.audits.sdi.measurement import Measurement
from rightreasons.audits.sdi.page import INDEX_NAMES
from rightreasons.audits.sdi.severities import Severity, content_recipe, nuisance_recipe, read_severities
from rightreasons.errors import SettingError
from rightreasons.families import suggest
from rightreasons.findings import Finding, Row

__all__ = [
    "INDEX_NAMES", "QUESTION", "ROW", "RULES", "Measurement", "Panel", "Result", "combine", "conclude", "head_read", "measure",
    "needs", "normalise", "panel_of", "ratio", "roles", "sensitivity",
]  # fmt: skip

QUESTION = "Does the model move more with the acquisition than with the content?"
ROW: Row = "reliance"

ROLES = ("test", "baseline", "reference", "panel")
COHORTS = ("audit", "test")


def needs(severities: str | None = None, operators: Sequence[str] | None = None, draws: int = 1) -> tuple[Need, ...]:
    """Features as they are and under every operator; and how much the pixels change.

    Without severities and operators only the features as they are: nobody wants some thirty passes for no verdict by default.
    """
    used: Sequence[Severity] = ()
    if severities is not None or operators is not None:
        used = read_severities(severities, operators).used
    read: dict[Need, None] = {}
    for role in ROLES:
        optional = role != "test"
        read.update(dict.fromkeys(Need(role, cohort, "features", optional) for cohort in COHORTS))
        for draw in range(draws):
            for operator in used:
                read.update(dict.fromkeys(_needs_under(operator, draw, role, optional)))
    return tuple(read)


def _needs_under(operator: Severity, draw: int, role: str, optional: bool) -> list[Need]:
    """The arrays of one draw of an operator and of its content operators."""
    read = []
    for name, severity in {operator.operator: operator.severity, **operator.content}.items():
        read.append(Need(role, "test", content_recipe("features", name, severity, draw), optional))
        read.append(Need(role, "test", content_recipe("change", name, severity, draw), True))
    if operator.operator == INSERTED and draw == 0:
        read.append(Need(role, "audit", nuisance_recipe("features", operator, draw), True))
    return read


def roles() -> tuple[Role, ...]:
    return ()


@dataclass(frozen=True)
class Result(Judged):
    """What SDI says of the tested model, and the index of every model against the panel."""

    context: Context = field(default_factory=Context)

    def finding(self) -> Finding:
        return self.context.finding(
            question=QUESTION,
            row=ROW,
            verdict=self.verdict,
            sentence=page.sentence(self),
            estimates=page.estimates(self),
            checks=checks(self),
            exhibits=page.exhibits(self),
        )


def conclude(
    measurements: Mapping[str, Sequence[Measurement]],
    *,
    rng: np.random.Generator,
    severities: str | None = None,
    operators: Sequence[str] | None = None,
    panel: str | None = None,
    weights: Sequence[float] = WEIGHTS,
    touched: float = TOUCHED,
    decide: str = CUE_RULE,
) -> Result:
    """`shortcut` when an operator that removes the cue from the features takes a part of its effect on the predictions.

    Parameters
    ----------
    decide : "cue", or "ratio": such an operator moves what the head reads more than content of equal pixel change does
    panel : file of a frozen panel (`Panel.save`); by default the models of the role `panel`, or all given, if two or more
    weights : of S_nc, R_sc and AUC_nc in the index (eq. 5)
    touched : fall of the probe's AUC, as the interval's lower limit, beyond which an operator removes the cue
    """
    if decide not in RULES:
        raise SettingError(f"decide={decide!r}: {suggest(decide, RULES)}")
    tested, *seeds = measurements["test"]
    others: list[Model] = []
    for role in ROLES[1:]:
        for m in measurements.get(role, ()):
            others.append(Model(role, m))
    frozen = Panel.read(Path(panel)) if panel else _panel([tested, *seeds], others)
    if frozen is not None:
        check_weights(weights)
    return Result(
        measurement=tested,
        seeds=tuple(seeds),
        others=tuple(others),
        panel=frozen,
        weights=tuple(map(float, weights)),
        touched=touched,
        severities=read_severities(severities, operators),
        decide=decide,
        context=Context(attribute=tested.attribute, n_rows=tested.n, n_subjects=tested.n_subjects),
    )


def _panel(tested: Sequence[Measurement], others: Sequence[Model]) -> Panel | None:
    """Of the models named for it, or of all where they are fewer than two; one model alone makes no panel."""
    named = [model.measurement for model in others if model.role == "panel"]
    if len(named) < 2:
        named = [*tested, *(model.measurement for model in others)]
    if len(named) > 1:
        return panel_of(named)
    return None
