"""SDI of one model: the three probes of sec. III-A, and the cue's effect on predictions under every operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rightreasons.audits.sdi.cue import Cue, find_cue, probe_cue
from rightreasons.audits.sdi.effect import Effects, cue_effect, undefined_effect
from rightreasons.audits.sdi.measurement import Calibration, CueEffect, Measurement, Operators
from rightreasons.audits.sdi.perturbed import NO_HEAD, Perturbed, Shift, sensitivities
from rightreasons.audits.sdi.severities import Severities, Severity, nuisance_recipe, read_severities
from rightreasons.errors import NotRun, SettingError
from rightreasons.evidence import Evidence
from rightreasons.families import with_settings
from rightreasons.stats import resampling
from rightreasons.stats.resampling import Resamples


@dataclass(frozen=True)
class Settings:
    """Settings of `measure`.

    Attributes
    ----------
    attribute : the cue. A cohort without attributes gets a border inserted in a random half of its rows, and no verdict
    severities : file that `rightreasons.extraction.severities` wrote; without it reference severities, and no verdict
    operators : nuisance operators to use; all of the file by default. One of the two must be given
    draws : perturbed copies of each image
    C : inverse penalty of the probe
    """

    attribute: str | None = None
    severities: str | None = None
    operators: Sequence[str] | None = None
    draws: int = 1
    C: float = 1.0
    B: int = 2_000
    level: float = 0.95


@with_settings(Settings)
def measure(evidence: Evidence, *, rng: np.random.Generator, settings: Settings) -> Measurement:
    """Sensitivities under every operator on test rows; the cue's probe is fitted on audit rows and read on test rows."""
    severities = _severities(settings)
    operators = _extracted(evidence, severities, settings.draws)
    perturbed = Perturbed(evidence, settings.draws)
    for_rows, for_border = (np.random.default_rng(seed) for seed in rng.integers(2**63, size=2))
    subject = perturbed.cohort.subject
    sample = resampling.resamples(len(perturbed.z), rng=for_rows, B=settings.B, subject=subject)

    shifts = [perturbed.shift(operator) for operator in operators]
    moved = sensitivities(perturbed, shifts, sample, settings.level)
    cue = find_cue(evidence, perturbed, operators, settings.attribute, for_border)
    probed = probe_cue(cue, perturbed, operators, sample, settings.C, settings.level)
    auc_draws = np.tile(probed.auc_draws[:, None, None], (1, 2, 1))
    return Measurement(
        model=evidence.card.name,
        attribute=cue.name,
        continuous=cue.continuous,
        n=len(perturbed.z),
        n_subjects=None if subject is None else sample.units,
        calibration=_calibration(severities, operators),
        operators=_operators(operators, shifts, has_head=perturbed.head is not None),
        features=moved.features,
        head=moved.head,
        probe=probed.probe,
        effect=_effect(cue, perturbed, operators, sample, settings.level),
        component_draws=np.concatenate([moved.family_draws, auc_draws], axis=2).astype(np.float32),
    )


def _severities(settings: Settings) -> Severities:
    if settings.draws < 1:
        raise SettingError(f"draws={settings.draws}: give 1 or more")
    if settings.severities is None and settings.operators is None:
        raise NotRun(
            "no severities: calibrate them on a baseline (rightreasons.extraction.severities.calibrate) and give its file as "
            "severities=, or name operators= to see their effect at reference severities, without a verdict"
        )
    return read_severities(settings.severities, settings.operators)


def _extracted(evidence: Evidence, severities: Severities, draws: int) -> list[Severity]:
    """The operators whose features are in the evidence, every draw of them."""
    if not severities.used:
        raise NotRun("every nuisance operator was excluded by the calibration")
    arrays = frozenset(evidence.arrays("test"))
    extracted = []
    for operator in severities.used:
        if arrays.issuperset(nuisance_recipe("features", operator, draw) for draw in range(draws)):
            extracted.append(operator)
    if not extracted:
        raise NotRun("no features under a nuisance operator: extract what sdi needs with the same severities=")
    return extracted


def _calibration(severities: Severities, extracted: Sequence[Severity]) -> Calibration:
    return Calibration(
        calibrated=severities.calibrated,
        baseline=severities.baseline,
        excluded=tuple(f"{o.operator}: {o.reason}" for o in severities.operators if o not in severities.used),
        unresolved=tuple(o.operator for o in severities.operators if not o.resolved),
        missing=tuple(o.operator for o in severities.used if o not in extracted),
    )


def _operators(operators: Sequence[Severity], shifts: Sequence[Shift], has_head: bool) -> Operators:
    uncompared = tuple(shift.uncompared for shift in shifts)
    if not has_head:
        uncompared = tuple(f"{reason}; {NO_HEAD}" if reason else NO_HEAD for reason in uncompared)
    return Operators(
        name=tuple(o.operator for o in operators),
        severity=np.array([o.severity for o in operators]),
        status=tuple(o.status for o in operators),
        resolved=np.array([o.resolved for o in operators]),
        content=tuple(shift.compared for shift in shifts),
        change=np.array([shift.change for shift in shifts]),
        content_change=np.array([shift.content_change for shift in shifts]),
        uncompared=uncompared,
    )


def _effect(cue: Cue, perturbed: Perturbed, operators: Sequence[Severity], sample: Resamples, level: float) -> CueEffect:
    if perturbed.head is None:
        return undefined_effect(len(operators), NO_HEAD)
    if not cue.name:
        return undefined_effect(len(operators), "no cue is named")
    probabilities = perturbed.probabilities(operators)
    return cue_effect(Effects(probabilities, cue.test.y, cue.test.a, continuous=cue.continuous), sample, level)
