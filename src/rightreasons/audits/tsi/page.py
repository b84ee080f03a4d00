"""What TSI says of its result: the sentence and the estimates; the exhibits are in `exhibits`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rightreasons.audits._following import say_pull
from rightreasons.audits.tsi import arrays
from rightreasons.audits.tsi.compare import FEWEST, TWINS, Shares
from rightreasons.audits.tsi.judge import ELSEWHERE, Judged
from rightreasons.findings import Estimate, Row
from rightreasons.stats.resampling import Interval

ROW: Row = "place"
OBJECTS = {"box": "the boxes", "mask": "the masks", "fov": "the computed field of view", "attention": "the attention"}
LEANS = "the decisions lean on a cue outside the object"


# ---- one sentence --------------------------------------------------------------------------------------------------------


def sentence(judged: Judged) -> str:
    c = judged.comparison
    share = c.overall.share
    if np.isnan(share.value):
        return f"M-TSI is defined on no image that can be judged ({share.reason})."
    where = OBJECTS[judged.first.influence.region]
    which = "images whose cue can be taken away" if c.against == TWINS else "images"
    what = f"On {share:.1%} of the {c.overall.images} {which} a single token outside {where} outweighs every token inside"
    if judged.only_describes:
        return f"{what}. This describes: {_why_no_verdict(judged)}."
    if not judged.enough_units:
        return f"{what}, but only {c.overall.units} can be judged; at least {FEWEST} are needed."
    if not judged.enough_defined:
        admissible = int(judged.panel.admissible.sum())
        return f"{what}, but M-TSI is undefined on {c.undefined} of {admissible} images: too many to judge."
    if c.against:
        return _compared(judged, what)
    return _by_tolerance(judged, what)


def _compared(judged: Judged, what: str) -> str:
    c = judged.comparison
    overall, verdict = c.overall, judged.verdict
    if overall.other is None or overall.difference is None:  # cannot be: there is something to compare with
        return f"{what}."
    both = f"{what}, and on {overall.other:.1%} {ELSEWHERE[c.against]}"
    if verdict == "shortcut":
        groups = c.significant(judged.margin)
        only = ""
        if overall not in groups:
            only = f" Only objects of {', '.join(group.name for group in groups)} show it."
        return f"{both}: {LEANS}.{only}"
    if verdict == "inconclusive" and c.above_seeds is False:
        return f"{both}: more, but not more than balanced models differ among themselves ({c.seeds})."
    if verdict == "inconclusive":
        followed = say_pull(judged.pull, judged.pulled_by)
        return f"{both}: more, and the answers follow no attribute that is known. Of the strongest, {followed}."
    if overall.difference.high < 0:
        return f"{both}: fewer, which is no sign of a cue outside the object."
    return f"{both}: not more by the margin of {judged.margin:g}."


def _by_tolerance(judged: Judged, what: str) -> str:
    if judged.tolerance is None:
        return (
            f"{what}. Inconclusive: uncalibrated. There is no balanced model (role “baseline”) and no clean twin to compare "
            "with, and how many such images are normal for these objects is not known."
        )
    limit = f"the {judged.tolerance:.0%} that models without such a cue stay below"
    if judged.verdict == "shortcut":
        return f"{what}: above {limit}: {LEANS}."
    if judged.verdict == "no evidence":
        return f"{what}: not above {limit}."
    return f"{what}: neither clearly above nor below {limit}."


def _why_no_verdict(judged: Judged) -> str:
    region = judged.first.influence.region
    if region in arrays.DESCRIBES:
        return f"nobody drew {OBJECTS[region]} around an object"
    return f"the rows are “{judged.first.cohort}”, and only test rows are judged"


# ---- estimates -----------------------------------------------------------------------------------------------------------


def estimates(judged: Judged) -> tuple[Estimate, ...]:
    shares: list[Estimate] = []
    for k, group in enumerate(judged.comparison.groups):
        of = "images with M-TSI > 1"
        if k != 0:
            of = f"images with M-TSI > 1, {group.name}"
        shares += _shares(group, of, judged.comparison.against, "" if k == 0 else "By size of the object")
    m = judged.first
    shares += [_mean("M-TSI", m.means.maximum, m.maximum[m.admissible]), _mean("A-TSI", m.means.average, m.average[m.admissible])]
    return (*shares, *_described(judged))


def _shares(group: Shares, of: str, against: str, heading: str) -> Iterator[Estimate]:
    """The difference, the share itself, and the share elsewhere."""
    n = group.images
    if group.difference is not None:
        yield Estimate.of(
            f"{of}: more than {ELSEWHERE[against]}",
            group.difference,
            ROW,
            unit="share",
            n=n,
            p=None if np.isnan(group.p) else group.p,
            note=_tested(group),
            group=heading,
        )
    yield Estimate.of(of, group.share, ROW, unit="share", n=n, group=heading)
    if group.other is not None:
        yield Estimate.of(f"{of}, {ELSEWHERE[against]}", group.other, ROW, unit="share", n=n, group=heading)


def _tested(group: Shares) -> str:
    if np.isnan(group.adjusted):
        return f"fewer than {FEWEST} images: not tested"
    return f"paired on the same images; p after Benjamini-Hochberg {group.adjusted:.3g}"


def _mean(name: str, mean: Interval, scores: np.ndarray) -> Estimate:
    defined = scores[~np.isnan(scores)]
    note = ""
    if len(defined):
        note = f"median {np.median(defined):.3g}"
    return Estimate.of(f"mean {name}", mean, ROW, n=len(defined), note=note)


def _described(judged: Judged) -> Iterator[Estimate]:
    for name, described in judged.describing.items():
        if described.group is not None:
            yield Estimate.of(name, described.mean, ROW, unit=described.unit, group=described.group)
