"""TSI: which tokens a vision transformer leans on (Kang et al., Token-Based Detection of Spurious Correlations).

Every token is left out once; influence that lies outside the object's box or mask, relative to influence inside, is A-TSI
(average, eq. 1) and M-TSI (maximum, eq. 2). The verdict compares the share of images with M-TSI > 1 with a balanced model or
with clean twins on the same images. It names no attribute: it is about a cue outside the object.

| paper | step | function |
|---|---|---|
| sec. 3.1.2 | influence, and the tokens inside the object | `locate.locate` |
| eq. 1, 2 | A-TSI and M-TSI | `stats.tokens.spuriosity` |
| sec. 3.2 | groups by coverage; images right by all models | `stats.tokens.coverage_group`, `compare.panel`, `tables.subsets` |
| Tables 1–3 | by size, confidence, class | `tables.by_coverage`, `tables.by_confidence`, `tables.by_class` |
| App. B | discarded against filled patches | `extras.missingness` |
| App. C.1, Table 4 | deletion curves | `extras.deletion` |
| App. C.2, Table 5 | other maps | `extras.substitutes`, `tables.substitutes` |
| App. C.3, eq. 3, 4, Table 6 | NSI, and whether it agrees | `extras.noise`, `tables.quadrants` |
| App. C.4, Table 7 | attention as the object | `extras.attention_core` |
| App. D | masks instead of boxes | `measurement.OtherAnnotation` |
| ours | the comparison, the verdict, its checks | `compare.compare`, `judge.Judged`, `judge.checks` |
| ours | cue, twins, answers that follow an attribute | `cues.agreement`, `cues.score_twins`, `cues.most_followed` |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rightreasons.audits._contract import Context, Need, Role
from rightreasons.audits.tsi import page
from rightreasons.audits.tsi.arrays import AGAINST
from rightreasons.audits.tsi.compare import BASELINE, NOTHING, TOLERANCE, TWINS, compare, panel
from rightreasons.audits.tsi.described import describe
from rightreasons.audits.tsi.exhibits import MOST_POINTS, exhibits
from rightreasons.audits.tsi.judge import Judged, checks
from rightreasons.audits.tsi.measure import measure
from rightreasons.audits.tsi.measurement import Measurement
from rightreasons.audits.tsi.needed import needed
from rightreasons.audits.tsi.page import ROW
from rightreasons.audits.tsi.settings import Settings
from rightreasons.errors import NotRun, SettingError
from rightreasons.findings import Finding
from rightreasons.stats.tokens import sample_weights, spuriosity

__all__ = [
    "QUESTION", "ROW", "Measurement", "Result", "conclude", "measure", "needs", "roles", "sample_weights", "spuriosity",
]  # fmt: skip

QUESTION = "Does the decision lean on something outside the object?"

MARGIN = 0.05  # least difference of shares that counts
B_DESCRIBING = 2_000  # resamples of what decides nothing


def needs(
    region: str = "auto",
    maps: str = "token_influence",
    explain: str = "label",
    cohort: str = "test",
    extras: Sequence[str] = (),
    draws: int = 4,
    sd: float = 0.25,
    against: str = "auto",
) -> tuple[Need, ...]:
    """Influence, logits and the object's tokens; what `extras` names is optional."""
    settings = Settings(region=region, maps=maps, explain=explain, cohort=cohort, extras=extras, draws=draws, sd=sd)
    return needed(settings, against)


def roles(against: str = "auto") -> tuple[Role, ...]:
    """A balanced model on the same images, unless the comparison is with twins or with nothing."""
    if against not in ("auto", BASELINE):
        return ()
    return (Role("baseline", regime="balanced", rows="balanced"),)


@dataclass(frozen=True)
class Result(Judged):
    """TSI over named models."""

    context: Context = field(default_factory=Context)

    def finding(self) -> Finding:
        return self.context.finding(
            question=QUESTION,
            row=ROW,
            verdict=self.verdict,
            sentence=page.sentence(self),
            estimates=page.estimates(self),
            checks=checks(self),
            exhibits=exhibits(self),
        )


def conclude(
    measurements: Mapping[str, Sequence[Measurement]],
    *,
    rng: np.random.Generator,
    against: str = "auto",
    margin: float = MARGIN,
    tolerance: float | None = None,
    tiny: int = 1,
    B: int = 10_000,
    level: float = 0.95,
) -> Result:
    """`shortcut` when more images have M-TSI > 1 than with a balanced model, or than their clean twins.

    Parameters
    ----------
    against : "baseline", "twins", "tolerance" (nothing), or the first of these that is there ("auto")
    margin : the lower limit of the difference of shares must exceed it, overall or in a coverage group (Benjamini-Hochberg)
    tolerance : share of images above 1 that models without such a cue stay below; it decides where nothing can be compared. By
        default `TOLERANCE` where tokens are left out and their support is counted, and none (`inconclusive`) elsewhere
    tiny : objects of at most so many tokens are listed
    """
    test = tuple(measurements["test"])
    baseline = tuple(measurements.get("baseline", ()))
    others = tuple(measurements.get("panel", ()))
    first = test[0]
    side_by_side = panel([*test, *baseline, *others])
    comparison = compare(test, baseline, _compared_with(against, test, baseline), rng=rng, B=B, level=level)
    if tolerance is None and first.influence.is_calibrated:
        tolerance = TOLERANCE
    describing = describe(first, rng=rng, B=min(B, B_DESCRIBING), level=level)
    points = np.sort(rng.permutation(len(side_by_side.group))[:MOST_POINTS])
    subject = first.images.subject
    n_subjects = None
    if len(subject):
        n_subjects = len(set(subject.tolist()))
    context = Context(cohort=first.cohort, n_rows=len(first.images.id), n_subjects=n_subjects)
    return Result(test, side_by_side, comparison, describing, margin, tolerance, tiny, points, context)


def _compared_with(against: str, test: Sequence[Measurement], baseline: Sequence[Measurement]) -> str:
    """What is there to compare with, of what was asked for."""
    if against not in AGAINST:
        raise SettingError(f"against={against!r}; give one of {', '.join(AGAINST)}")
    has_twins = all((~np.isnan(m.twins.maximum)).any() for m in test)
    if against == BASELINE and not baseline:
        raise NotRun("there is no balanced model to compare with: give one in the role 'baseline'")
    if against == TWINS and not has_twins:
        raise NotRun(f"the twins cannot be compared: {next(m.twins.reason for m in test if m.twins.reason)}")
    if against in (BASELINE, TWINS):
        return against
    if against == "auto" and baseline:
        return BASELINE
    return TWINS if against == "auto" and has_twins else NOTHING
