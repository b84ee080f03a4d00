"""TSI's verdict, and the checks behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from rightreasons.audits._following import followed_check, is_followed, mean_pull
from rightreasons.audits.tsi import arrays, tables
from rightreasons.audits.tsi.compare import BASELINE, FEWEST, TWINS, Comparison, Panel
from rightreasons.audits.tsi.described import Described
from rightreasons.audits.tsi.measure import FLAT
from rightreasons.audits.tsi.measurement import Measurement
from rightreasons.findings import Check, Verdict
from rightreasons.stats import tokens
from rightreasons.stats.resampling import Interval

LEAST_DEFINED = 0.5  # share of the admissible images whose M-TSI must be defined
ROUNDING_SHARE = 0.1  # of the images may have influences of rounding size
LARGE_SHARE = 0.5  # of the objects may cover nearly the whole image
ELSEWHERE = {BASELINE: "with the balanced model", TWINS: "for their twins, whose cue is gone or changed"}


@dataclass(frozen=True)
class Judged:
    """TSI over named models, judged.

    Attributes
    ----------
    panel : every model that is shown side by side, on the images that all of them have: tested, baseline, others
    describing : means that decide nothing, by name
    tolerance : share of images above 1 that decides where nothing can be compared; None where none is known
    shown : images that are drawn as points
    """

    test: tuple[Measurement, ...]
    panel: Panel
    comparison: Comparison
    describing: Mapping[str, Described]
    margin: float
    tolerance: float | None
    tiny: int
    shown: np.ndarray

    @property
    def first(self) -> Measurement:
        """The tested model that is shown on its own."""
        return self.test[0]

    @property
    def only_describes(self) -> bool:
        """Whether nobody drew the region around an object, or the rows are not test rows."""
        return self.first.influence.region in arrays.DESCRIBES or self.first.cohort != "test"

    @property
    def enough_units(self) -> bool:
        return self.comparison.overall.units >= FEWEST

    @property
    def enough_defined(self) -> bool:
        admissible = int(self.panel.admissible.sum())
        return admissible > 0 and self.comparison.undefined <= (1 - LEAST_DEFINED) * admissible

    @property
    def verdict(self) -> Verdict:
        if self.only_describes:
            return None
        if not self.enough_units or not self.enough_defined:
            return "inconclusive"
        if self.comparison.against:
            return self._by_comparison()
        return self._by_tolerance()

    def _by_comparison(self) -> Verdict:
        if not self.comparison.significant(self.margin):
            return "no evidence"
        within_seeds = self.comparison.above_seeds is False
        follows_nothing = is_followed(self.pull) is False
        return "inconclusive" if within_seeds or follows_nothing else "shortcut"

    def _by_tolerance(self) -> Verdict:
        share = self.comparison.overall.share
        if self.tolerance is None or share.low <= self.tolerance < share.high:
            return "inconclusive"
        return "shortcut" if share.low > self.tolerance else "no evidence"

    @property
    def pull(self) -> Interval:
        """Balanced models are balanced in what is known, and twins change it: what both can show is a cue that goes with that."""
        return mean_pull([m.followed.pull for m in self.test])

    @property
    def pulled_by(self) -> str:
        return "” or “".join(dict.fromkeys(m.followed.attribute for m in self.test))

    @cached_property
    def classes(self) -> pd.DataFrame:
        """TSI by class, images and model, with ranks and how many models share a top class; `classes.to_csv(path)` exports it."""
        return tables.by_class(self.panel)

    @cached_property
    def problems(self) -> pd.DataFrame:
        """Annotations to look at: nearly the whole image, a token or so, nothing at all."""
        return tables.problems(self.panel, self.tiny)


# ---- checks --------------------------------------------------------------------------------------------------------------


def checks(judged: Judged) -> tuple[Check, ...]:
    c = judged.comparison
    conditions = [_enough_units(judged), _enough_defined(judged), _comparable(judged)]
    if c.against == BASELINE:
        conditions.append(
            Check(
                id="above-seeds",
                name="the difference exceeds what balanced seeds differ by",
                passed=c.above_seeds,
                note=c.seeds,
                decides=c.above_seeds is False,
            )
        )
    if c.against:
        conditions.append(followed_check(judged.pull, judged.pulled_by, decides=bool(c.significant(judged.margin))))
    conditions += [_above_rounding(judged), _room_outside(judged)]
    if c.against:
        conditions.append(_no_opposite(judged))
    for note in judged.first.extras.notes:
        conditions.append(Check(id="extracted", name="all that was asked for was extracted", passed=None, note=note))
    return tuple(conditions)


def _enough_units(judged: Judged) -> Check:
    overall = judged.comparison.overall
    units = "subjects" if len(judged.first.images.subject) else "images"
    return Check(
        id="enough-units",
        name=f"at least {FEWEST} {units} can be judged",
        passed=judged.enough_units,
        note=f"{overall.units} {units}, {overall.images} images",
        decides=True,
    )


def _enough_defined(judged: Judged) -> Check:
    return Check(
        id="enough-defined",
        name="M-TSI is defined on at least half of the images",
        passed=judged.enough_defined,
        note=_say_undefined(judged),
        decides=True,
    )


def _say_undefined(judged: Judged) -> str:
    first = judged.first
    reasons = []
    for number, reason in enumerate(tokens.REASONS):
        count = int((first.support.undefined == number).sum())
        if reason and count:
            reasons.append(f"{count} × {reason}")
    outside = int((first.support.only_outside & first.admissible).sum())
    more = ""
    if outside:
        more = f"; on {outside} images only tokens outside support the class"
    said = ""
    if reasons:
        said = f" ({'; '.join(reasons)}{more})"
    return f"undefined on {judged.comparison.undefined} of {int(judged.panel.admissible.sum())} images{said}"


def _comparable(judged: Judged) -> Check:
    against = judged.comparison.against
    compared = {BASELINE: "a balanced model", TWINS: "the same images with the cue gone or changed"}
    return Check(
        id="comparable",
        name="there is something to compare with",
        passed=bool(against) or judged.tolerance is not None,
        note=compared.get(against, _say_tolerance(judged)),
        decides=not against and judged.tolerance is None,
    )


def _say_tolerance(judged: Judged) -> str:
    if judged.tolerance is not None:
        return f"a tolerance: models without such a cue stay below {judged.tolerance:g}"
    twins = judged.first.twins.reason or "no twins asked for"
    return f"uncalibrated: no balanced model; {twins}; no tolerance is known for this kind of influence"


def _above_rounding(judged: Judged) -> Check:
    admissible = judged.first.admissible
    flat, count = int((judged.first.support.flat & admissible).sum()), max(int(admissible.sum()), 1)
    return Check(
        id="above-rounding",
        name="single tokens move the probability by more than rounding",
        passed=flat <= ROUNDING_SHARE * count,
        note=f"on {flat} of {count} images no token moves it by {FLAT:g}: there the ratio is rounding",
    )


def _room_outside(judged: Judged) -> Check:
    group = judged.panel.group
    large = int((group == tokens.TOO_LARGE).sum())
    return Check(
        id="room-outside",
        name="objects leave room outside",
        passed=large <= LARGE_SHARE * max(len(group), 1),
        note=f"{large} of {len(group)} objects cover nearly the whole image and are left out of all means",
    )


def _no_opposite(judged: Judged) -> Check:
    c = judged.comparison
    opposite = ", ".join(group.name for group in c.groups if group.falls_below(judged.margin))
    return Check(
        id="no-opposite",
        name="no size of object points the other way",
        passed=not opposite,
        note=f"fewer images above 1 than {ELSEWHERE[c.against]} for {opposite}" if opposite else "",
    )
