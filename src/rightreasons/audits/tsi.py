"""TSI: which tokens a vision transformer leans on (Kang et al., Token-Based Detection of Spurious Correlations).

Every token is left out once; influence that lies outside the object's box or mask, relative to influence inside, is A-TSI
(average, eq. 1) and M-TSI (maximum, eq. 2). The verdict compares the share of images with M-TSI > 1 with a balanced model or
with clean twins on the same images. It names no attribute: it is about a cue outside the object.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import softmax

from rightreasons.audits import _overlay as drawing
from rightreasons.audits import _tsi_arrays as names
from rightreasons.audits import _tsi_compare as comparing
from rightreasons.audits import _tsi_measure as measuring
from rightreasons.audits import _tsi_say as say
from rightreasons.audits import _tsi_tables as tables
from rightreasons.audits._contract import Context, Need, Role
from rightreasons.audits._pull import is_followed, mean_pull
from rightreasons.audits._tsi_measure import Measurement
from rightreasons.errors import NotRun, SettingError
from rightreasons.evidence import Evidence
from rightreasons.findings import MAX_PICTURES, Finding, Row, Verdict
from rightreasons.stats import tokens
from rightreasons.stats.means import column_means
from rightreasons.stats.resampling import Interval
from rightreasons.stats.tokens import sample_weights, spuriosity

__all__ = [
    "QUESTION",
    "ROW",
    "Measurement",
    "Result",
    "conclude",
    "measure",
    "needs",
    "roles",
    "sample_weights",
    "spuriosity",
]

QUESTION = "Does the decision lean on something outside the object?"
ROW: Row = "place"

MARGIN = 0.05  # least difference of shares that counts
LEAST_DEFINED = 0.5  # share of the admissible images whose M-TSI must be defined
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
    return names.needed(region, maps, explain, cohort, extras, draws, sd, against)


def roles(against: str = "auto") -> tuple[Role, ...]:
    """A balanced model on the same images, unless the comparison is with twins or with nothing."""
    return (Role("baseline", regime="balanced", rows="balanced"),) if against in ("auto", "baseline") else ()


@dataclass(frozen=True)
class Result:
    """TSI over named models.

    Attributes
    ----------
    panel : every model that is shown side by side, on the images that all of them have: tested, baseline, others
    describing : intervals that decide nothing, by name
    """

    test: tuple[Measurement, ...]
    panel: comparing.Panel
    comparison: comparing.Comparison
    describing: Mapping[str, Any]
    margin: float
    tolerance: float | None
    tiny: int
    shown: np.ndarray
    context: Context = field(default_factory=Context)

    @property
    def verdict(self) -> Verdict:
        first, c = self.test[0], self.comparison
        if first.region in names.DESCRIBES or first.cohort != "test":
            return None
        if c.units[0] < comparing.FEWEST or not self.enough_defined:
            return "inconclusive"
        if not c.against:
            if self.tolerance is None or c.share[0].low <= self.tolerance < c.share[0].high:
                return "inconclusive"
            return "shortcut" if c.share[0].low > self.tolerance else "no evidence"
        if not c.significant(self.margin):
            return "no evidence"
        return "inconclusive" if c.above_seeds is False or is_followed(self.pull) is False else "shortcut"

    @property
    def pull(self) -> Interval:
        """Balanced models are balanced in what is known, and twins change it: what both can show is a cue that goes with that."""
        return mean_pull([m.pull for m in self.test])

    @property
    def enough_defined(self) -> bool:
        admissible = int(self.panel.admissible.sum())
        return admissible > 0 and self.comparison.undefined <= (1 - LEAST_DEFINED) * admissible

    @cached_property
    def classes(self) -> pd.DataFrame:
        """TSI by class, images and model, with ranks and how many models share a top class; `classes.to_csv(path)` exports it."""
        return tables.by_class(self.panel)

    @cached_property
    def problems(self) -> pd.DataFrame:
        """Annotations to look at: nearly the whole image, a token or so, nothing at all."""
        return tables.problems(self.panel, self.tiny)

    def finding(self) -> Finding:
        return self.context.finding(
            question=QUESTION,
            row=ROW,
            verdict=self.verdict,
            sentence=say.sentence(self),
            estimates=say.estimates(self),
            checks=say.checks(self),
            exhibits=say.exhibits(self),
        )


def measure(
    evidence: Evidence,
    *,
    rng: np.random.Generator,
    region: str = "auto",
    maps: str = "token_influence",
    explain: str = "label",
    rectify: str = "positive",
    least_share: float = 0.0,
    top: int = 40,
    cohort: str = "test",
    extras: Sequence[str] = (),
    draws: int = 4,
    sd: float = 0.25,
    aligned: Mapping[Any, Any] | None = None,
    B: int = 10_000,
    level: float = 0.95,
    pictures: int = 24,
) -> Measurement:
    """Scores of every image of one model.

    Parameters
    ----------
    region : what the object is: "box", "mask", boxes or else masks ("auto"); "fov", the computed field of view, or
        "attention", its `top` tokens; with these two TSI only describes
    maps : the influence: an attribution with its settings, such as `token_influence(by=occlusion,patch=16)`, or the whole name
        of an array
    explain : influence on the right class, or on the predicted one
    rectify : "positive" counts tokens that support the class, "signed" all with their sign, "abs" by their size
    least_share : share of a token that must lie in the object for it to be inside; 0 is any overlap
    cohort : rows to measure; only `test` gives a verdict
    extras : further analyses to extract for: substitutes, deletion, noise, keep, missingness, or all
    draws, sd : of the noise (NSI), pixels in [0, 1]
    aligned : attribute value → the label it stands for; learnt as in `groups` by default
    pictures : in the gallery
    """
    names.check_settings(region, explain, extras, draws, sd)
    if not 0 <= least_share <= 1:
        raise SettingError(f"least_share={least_share}: give a share of a token between 0 and 1")
    if not 0 <= pictures <= MAX_PICTURES:
        raise SettingError(f"pictures={pictures}: give 0 to {MAX_PICTURES}")
    view = evidence.on(cohort)
    if not len(view):
        raise NotRun(f"no row of {cohort!r} is left to measure")
    s = measuring.scored(view, region, maps, explain, least_share, top)
    average, maximum = tokens.spuriosity(s.influence, s.inside, rectify)
    p = softmax(view["logits"].astype(np.float64), axis=1)
    predicted, rows = p.argmax(axis=1), np.arange(len(view))
    target = predicted if explain == "predicted" else np.maximum(view.label, 0)
    covered = np.where(s.annotated, s.inside.sum(axis=1), -1)
    quarter = tokens.coverage_group(covered, s.inside.shape[1])
    admissible = (quarter >= 0) & (quarter < 4)
    more = measuring.extras(view, s, names.wanted(extras), maps, explain, rectify, target, draws, sd)
    subject = view.cohort.subject
    found = column_means(
        {
            "above": np.where(np.isnan(maximum), np.nan, maximum > 1)[admissible],
            "maximum": maximum[admissible],
            "average": average[admissible],
        },
        rng=rng,
        subject=None if subject is None else subject[admissible],
        shares=("above",),
        B=B,
        level=level,
    )
    twin, twin_reason = measuring.twin_maximum(evidence, view, s, maps, explain, rectify, aligned)
    cue, cue_from, agrees = measuring.agreement(evidence, view, aligned)
    pull, pulled_by = measuring.strongest_pull(evidence, view, aligned, rng=rng.spawn(1)[0], B=B, level=level)
    second = (np.zeros(0),) * 2 if s.other_inside is None else tokens.spuriosity(s.influence, s.other_inside, rectify)
    chosen = drawing.choose(np.where(admissible, maximum, np.nan), pictures)
    shown, problem = drawing.draw(evidence, view.cohort, chosen, s.influence, s.inside, s.grid)
    classes = tuple(str(c) for c in evidence.card.classes)
    return Measurement(
        model=evidence.card.name,
        cohort=cohort,
        region=s.region,
        maps=maps,
        explain=explain,
        rectify=rectify,
        tokens=s.inside.shape[1],
        classes=classes,
        id=np.array(view.cohort.id, dtype=np.str_),
        subject=np.zeros(0, np.str_) if subject is None else np.array(subject, dtype=np.str_),
        label=view.label,
        predicted=predicted,
        right=np.where(view.label >= 0, predicted == view.label, np.nan),
        confidence=p[rows, predicted],
        probability=p[rows, target],
        covered=covered,
        area=np.where(s.annotated, np.nan_to_num(s.share).mean(axis=1), np.nan),
        average=average,
        maximum=maximum,
        undefined=tokens.why_undefined(s.influence, s.inside, rectify),
        strongest_outside=tokens.strongest_outside(s.influence, s.inside),
        only_outside=tokens.only_outside(s.influence, s.inside),
        flat=np.fmax.reduce(np.abs(s.influence), axis=1) < measuring.FLAT,
        other=s.other,
        other_average=second[0],
        other_maximum=second[1],
        cue=cue,
        cue_from=cue_from,
        agrees=agrees,
        twin_maximum=twin,
        twin_reason=twin_reason,
        notes=more.notes,
        left_out=view.left_out,
        share=found["above"],
        mean_maximum=found["maximum"],
        mean_average=found["average"],
        pictures=shown,
        captions=say.captions(classes, view.label, predicted, p, chosen) if len(shown) else (),
        picture_row=chosen if len(shown) else np.zeros(0, np.int64),
        no_pictures=problem,
        pull=pull,
        pulled_by=pulled_by,
        **more.found,
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
    baseline, others = (tuple(measurements.get(role, ())) for role in ("baseline", "panel"))
    side_by_side = comparing.panel([*test, *baseline, *others])
    kind = _against(against, test, baseline)
    found = comparing.compare(test, baseline, kind, rng=rng, B=B, level=level)
    if tolerance is None and test[0].is_calibrated:
        tolerance = comparing.TOLERANCE
    describing = say.described(test[0], rng=rng, B=min(B, B_DESCRIBING), level=level)
    points = np.sort(rng.permutation(len(side_by_side.group))[: say.MOST_POINTS])
    first = test[0]
    context = Context(
        cohort=first.cohort,
        n_rows=len(first.id),
        n_subjects=len(set(first.subject.tolist())) if len(first.subject) else None,
    )
    return Result(test, side_by_side, found, describing, margin, tolerance, tiny, points, context)


def _against(against: str, test: Sequence[Measurement], baseline: Sequence[Measurement]) -> str:
    if against not in names.AGAINST:
        raise SettingError(f"against={against!r}; give one of {', '.join(names.AGAINST)}")
    twins = all((~np.isnan(m.twin_maximum)).any() for m in test)
    if against == "baseline" and not baseline:
        raise NotRun("there is no balanced model to compare with: give one in the role 'baseline'")
    if against == "twins" and not twins:
        raise NotRun(f"the twins cannot be compared: {next(m.twin_reason for m in test if m.twin_reason)}")
    if against == "auto":
        return "baseline" if baseline else "twins" if twins else ""
    return "" if against == "tolerance" else against
