"""OSCAR: does the test model look where an attribute model looks, beyond what a balanced model does, and where is that?

Attribution maps of a test (TS), a baseline (BA) and an attribute model (SA) on the same balanced test images become rank profiles
of image regions. Their partial correlation says whether the test model follows the attribute model beyond the baseline, and the
region contribution scores say where.

| paper | function |
|---|---|
| III-C, balanced and attribute model | `roles` |
| III-D, attribution maps | `needs`, `measure.array_names` |
| III-E, partition, scores, ranks | `regions.cut_images`, `regions.score_regions`, `rank_regions` |
| III-F, rank profiles | `profile`, `Measurement.profile_drawer` |
| III-G, correlations | `compare.correlations_of` |
| III-G, permutation p, bootstrap interval | `compare.correlation_p`, `compare.compare_profiles`, `bootstrap_profiles` |
| III-G, aligned images | `steadiness.steadiness_of` |
| III-H, region contribution scores | `contributions`, `contribution_maps` |
| IV-C, balanced test rows, groups | `rows.balance_within_label`, `behaviour.decisions_of` |
| V-A, A2, leakage, removed direction | `behaviour.leakage_of`, `behaviour.without_direction` |
| V-E, seeds | `compare.by_seed` |
| – : balanced models as replicates (ours) | `compare.among_replicates` |
| – : verdict and its conditions (ours) | `judge.judge` |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rightreasons.audits._contract import Context, Need, Role
from rightreasons.audits.oscar import exhibits, judge, page
from rightreasons.audits.oscar.compare import (
    REPLICATES,
    SPATIAL,
    Comparison,
    Procedure,
    among_replicates,
    by_seed,
    by_slice,
    compare_profiles,
    jitter_curve,
)
from rightreasons.audits.oscar.measure import Settings, array_names, measure
from rightreasons.audits.oscar.measurement import Measurement
from rightreasons.audits.oscar.models import ROLES, shared_models
from rightreasons.errors import SettingError
from rightreasons.findings import Check, Finding, Row, Verdict
from rightreasons.stats.contributions import ContributionMaps, contribution_maps, rcs_star, shortcut_map
from rightreasons.stats.profiles import (
    bootstrap_profiles,
    contributions,
    empty_maps,
    profile,
    quadrants,
    rank_regions,
    region_scores,
    spread,
)
from rightreasons.stats.replicates import step
from rightreasons.stats.resampling import resamples
from rightreasons.stats.spatial import NULLS

__all__ = [
    "QUESTION", "ROW", "ContributionMaps", "Measurement", "Result", "Settings", "array_names", "bootstrap_profiles", "conclude",
    "contribution_maps", "contributions", "empty_maps", "measure", "needs", "profile", "quadrants", "rank_regions", "rcs_star",
    "region_scores", "roles", "shortcut_map", "spread", "step",
]  # fmt: skip

QUESTION = "Does the model look where an attribute model looks, beyond what a balanced model does, and where is that?"
ROW: Row = "place"
COMPARES_GROUPS = True

AUDITED = "@attribute"  # stands for the attribute audited, where a role is declared before one is named
TESTS = ("auto", SPATIAL, REPLICATES)


def needs(attribution: str | Mapping[str, Any] = "gradcam", explain: str = "predicted") -> tuple[Need, ...]:
    """Maps and answers of all three models; features of the label's models for leakage, where they are there."""
    arrays = array_names(attribution, explain)
    read = []
    for role in ROLES:
        read += [Need(role, "test", arrays.maps), Need(role, "test", "logits")]
        if arrays.sums:
            read.append(Need(role, "test", arrays.sums, optional=True))
    for role in ("test", "baseline"):
        for cohort in ("audit", "test"):
            read.append(Need(role, cohort, "features", optional=True))
    read.append(Need("test", "audit", "logits", optional=True))  # which way to look, where the training rows do not say
    return tuple(read)


def roles(attribute: str | None = None) -> tuple[Role, ...]:
    """A model trained on balanced rows, and one trained on the same rows to predict the attribute (sec. III-C)."""
    return (
        Role("baseline", regime="balanced", rows="balanced"),
        Role("attribute", rows="balanced", target=attribute or AUDITED),
    )


@dataclass(frozen=True)
class Result(Comparison):
    """OSCAR over three roles."""

    context: Context = field(default_factory=Context)

    @property
    def judgement(self) -> judge.Judgement:
        return judge.judge(self)

    @property
    def checks(self) -> tuple[Check, ...]:
        return self.judgement.checks

    @property
    def verdict(self) -> Verdict:
        return self.judgement.verdict

    def finding(self) -> Finding:
        judgement = self.judgement
        return self.context.finding(
            question=QUESTION,
            row=ROW,
            verdict=judgement.verdict,
            sentence=page.sentence(self, judgement),
            estimates=page.estimates(self),
            checks=judgement.checks,
            exhibits=exhibits.exhibits(self),
        )


def conclude(
    measurements: Mapping[str, Sequence[Measurement]],
    *,
    rng: np.random.Generator,
    null: str | None = None,
    decide: str = "auto",
    alpha: float = 0.05,
    level: float = 0.95,
    B: int = 10_000,
) -> Result:
    """Correlate the three profiles, test them, and say where the correlation comes from.

    Several models of a role are its seeds: their mean profile is taken, and every test model is also shown on its own.

    Parameters
    ----------
    null : the spatial null whose p decides; the best one for the partition by default (`stats.spatial`)
    decide : "spatial": the partial correlation by a null that knows neighbouring regions to be alike; "replicates": the step from
        the balanced models to the attribute model, against that of balanced models in the test model's place. By default
        replicates where there are four balanced models or more: on trained CNNs they find most of what the other misses
        (`make bench NAME=oscar-models`)
    alpha : level at which the test that decides counts as significant
    B : resamples of the images (of subjects where they are known) and draws of the nulls
    """
    if decide not in TESTS or (null is not None and null not in NULLS):
        raise SettingError(f"found decide={decide!r}, null={null!r}; known: {', '.join(TESTS)}; {', '.join(NULLS)}")
    models = shared_models(measurements)
    sample = resamples(models.n, rng=rng, B=B, subject=models.subject)
    procedure = Procedure(null, B, level, rng)
    among = among_replicates(models, alpha)
    if decide == "auto":
        decide = SPATIAL if among.reason else REPLICATES
    n_subjects = None if models.subject is None else sample.units
    return Result(
        models=models,
        compared=compare_profiles(models, sample, procedure),
        replicates=among,
        seeds=by_seed(models, procedure),
        slices=by_slice(models, procedure),
        jitter=jitter_curve(models),
        decide=decide,
        alpha=alpha,
        n_subjects=n_subjects,
        context=Context(attribute=models.first.attribute, n_rows=models.n, n_subjects=n_subjects),
    )
