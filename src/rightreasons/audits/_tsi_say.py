"""What TSI says of its result: the sentence, estimates and checks; the exhibits are in `_tsi_exhibits`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from rightreasons.audits import _tsi_arrays as names
from rightreasons.audits import _tsi_compare as comparing
from rightreasons.audits._contract import estimate
from rightreasons.audits._pull import followed_check, say_pull
from rightreasons.audits._tsi_exhibits import MOST_POINTS, exhibits
from rightreasons.audits._tsi_measure import FLAT, Measurement
from rightreasons.findings import Check, Estimate, Row
from rightreasons.stats import tokens
from rightreasons.stats.means import column_means
from rightreasons.stats.resampling import Interval

if TYPE_CHECKING:
    from rightreasons.audits.tsi import Result

__all__ = ["MOST_POINTS", "captions", "checks", "described", "estimates", "exhibits", "sentence"]

ROW: Row = "place"
OTHER = {"baseline": "with the balanced model", "twins": "for their twins, whose cue is gone or changed"}
ROUNDING_SHARE = 0.1  # of the images may have influences of rounding size
OBJECTS = {"box": "the boxes", "mask": "the masks", "fov": "the computed field of view", "attention": "the attention"}


# ---- one sentence --------------------------------------------------------------------------------------------------------


def sentence(result: Result) -> str:
    c, verdict = result.comparison, result.verdict
    share = c.share[0]
    if np.isnan(share.value):
        return f"M-TSI is defined on no image that can be judged ({share.reason})."
    where = OBJECTS[result.test[0].region]
    which = "images whose cue can be taken away" if c.against == "twins" else "images"
    what = f"On {_percent(share)} of the {c.images[0]} {which} a single token outside {where} outweighs every token inside"
    if verdict is None:
        return f"{what}. This describes: {_why_no_verdict(result)}."
    if c.units[0] < comparing.FEWEST:
        return f"{what}, but only {c.units[0]} can be judged; at least {comparing.FEWEST} are needed."
    if not result.enough_defined:
        return (
            f"{what}, but M-TSI is undefined on {c.undefined} of {int(result.panel.admissible.sum())} images: too many to judge."
        )
    if not c.against:
        return _against_nothing(result, what)
    other, gap = c.other[0], c.difference[0]
    against = f"{what}, and on {_percent(other)} {OTHER[c.against]}"
    if verdict == "shortcut":
        groups = c.significant(result.margin)
        only = "" if 0 in groups else f" Only objects of {', '.join(c.names[g] for g in groups)} show it."
        return f"{against}: the decisions lean on a cue outside the object.{only}"
    if verdict == "inconclusive" and c.above_seeds is not False:
        followed = say_pull(result.pull, _pulled_by(result))
        return f"{against}: more, and the answers follow no attribute that is known. Of the strongest, {followed}."
    if verdict == "inconclusive":
        return f"{against}: more, but not more than balanced models differ among themselves ({c.seeds})."
    if gap.high < 0:
        return f"{against}: fewer, which is no sign of a cue outside the object."
    return f"{against}: not more by the margin of {result.margin:g}."


def _against_nothing(result: Result, what: str) -> str:
    if result.tolerance is None:
        return (
            f"{what}. Inconclusive: uncalibrated. There is no balanced model (role “baseline”) and no clean twin to compare "
            "with, and how many such images are normal for these objects is not known."
        )
    side = {"shortcut": "above", "no evidence": "not above"}.get(str(result.verdict), "neither clearly above nor below")
    lean = ": the decisions lean on a cue outside the object" if result.verdict == "shortcut" else ""
    return f"{what}: {side} the {result.tolerance:.0%} that models without such a cue stay below{lean}."


def _why_no_verdict(result: Result) -> str:
    first = result.test[0]
    if first.region in names.DESCRIBES:
        return f"nobody drew {OBJECTS[first.region]} around an object"
    return f"the rows are “{first.cohort}”, and only test rows are judged"


def _percent(i: Interval) -> str:
    limits = f" ({i.low:.1%} to {i.high:.1%})" if not np.isnan(i.low) else ""
    return f"{i.value:.1%}{limits}"


def captions(
    classes: Sequence[str], label: np.ndarray, predicted: np.ndarray, p: np.ndarray, rows: np.ndarray
) -> tuple[str, ...]:
    return tuple(
        f"{'label unknown' if label[r] < 0 else classes[label[r]]}, decided {classes[predicted[r]]} with {p[r, predicted[r]]:.2f}"
        for r in rows
    )


# ---- numbers that decide nothing -----------------------------------------------------------------------------------------


def described(m: Measurement, *, rng: np.random.Generator, B: int, level: float) -> dict[str, Interval]:
    """Means over the admissible images with their intervals, by name."""
    rows = m.admissible
    if not rows.any():
        return {}
    subject = m.subject[rows] if len(m.subject) else None
    shares = _shares(m)
    columns = {name: values[rows] for name, values in (shares | _changes(m)).items()}
    return column_means(columns, rng=rng, subject=subject, shares=tuple(shares), B=B, level=level)


def _shares(m: Measurement) -> dict[str, np.ndarray]:
    """Columns of zeros and ones, NaN where a row does not count."""
    above = np.where(np.isnan(m.maximum), np.nan, m.maximum > 1)
    found = {
        "strongest token outside": m.strongest_outside,
        "above 1, or support outside only": np.where(m.only_outside, 1.0, above),
    }
    for cue, agrees in zip(m.cue, m.agrees, strict=True):
        for side, code in (("agrees", 1), ("conflicts", 0)):
            chosen = agrees == code
            found[f"{cue} {side}: above 1"] = np.where(chosen, above, np.nan)
            found[f"{cue} {side}: strongest token outside"] = np.where(chosen, m.strongest_outside, np.nan)
    if len(m.kept):
        found |= {"right with all tokens": m.right, "right from inside alone": m.kept[0], "right from outside alone": m.kept[1]}
    for way, same, right in zip(m.missing, m.missing_same, m.missing_right, strict=True):
        found |= {f"same decision, {way}": same, f"right, {way}": right}
    if len(m.noise):
        known = ~np.isnan(m.noise)
        for metric, tsi in (("M-TSI", m.maximum), ("A-TSI", m.average)):
            same = (np.nan_to_num(tsi) > 1) == (np.nan_to_num(m.noise) > 1)
            found[f"{metric} and NSI agree"] = np.where(known & ~np.isnan(tsi), same, np.nan)
    return found


def _changes(m: Measurement) -> dict[str, np.ndarray]:
    """Columns of differences of probability and of scores."""
    found: dict[str, np.ndarray] = {}
    right = np.where(m.right == 1, 1.0, np.nan)  # the paper's curves are over images that are decided rightly (App. C.1)
    for by, lost in zip(m.deletion, m.dropped, strict=True):
        found |= {f"lost, top {top} by {by}": lost[k] * right for k, top in enumerate(names.DELETED)}
    if "token_influence" in m.deletion and "gradcam" in m.deletion:
        first, second = (m.dropped[m.deletion.index(by)] for by in ("token_influence", "gradcam"))
        found |= {f"influence over gradcam, top {top}": (first - second)[k] * right for k, top in enumerate(names.DELETED)}
    found |= {f"lost, {way}": lost for way, lost in zip(m.missing, m.missing_lost, strict=True)}
    if len(m.noise):
        found |= {"lost by noise inside": m.noise_core, "lost by noise outside": m.noise_outside}
    if m.other:
        found |= {
            f"M-TSI, {m.other} minus {m.region}": m.other_maximum - m.maximum,
            f"A-TSI, {m.other} minus {m.region}": m.other_average - m.average,
        }
    return found


# ---- estimates -----------------------------------------------------------------------------------------------------------


def estimates(result: Result) -> tuple[Estimate, ...]:
    c, first = result.comparison, result.test[0]
    what = "images with M-TSI > 1"
    found = []
    for k, name in enumerate(c.names):
        group = "" if k == 0 else "By size of the object"
        of = what if k == 0 else f"{what}, {name}"
        if c.against:
            note = f"paired on the same images; p after Benjamini-Hochberg {c.adjusted[k]:.3g}" if c.adjusted[k] >= 0 else ""
            p = None if np.isnan(c.p[k]) else float(c.p[k])
            found.append(
                estimate(
                    f"{of}: more than {OTHER[c.against]}", c.difference[k], ROW, unit="share", n=int(c.images[k]), p=p
                ).model_copy(update={"note": note or f"fewer than {comparing.FEWEST} images: not tested", "group": group})
            )
        found.append(estimate(of, c.share[k], ROW, unit="share", n=int(c.images[k]), group=group))
        if c.against:
            found.append(estimate(f"{of}, {OTHER[c.against]}", c.other[k], ROW, unit="share", n=int(c.images[k]), group=group))
    found += [
        estimate(f"mean {name}", i, ROW, n=len(scores), note=f"median {np.median(scores):.3g}" if len(scores) else "")
        for name, i, scores in (
            ("M-TSI", first.mean_maximum, _defined(first, first.maximum)),
            ("A-TSI", first.mean_average, _defined(first, first.average)),
        )
    ]
    return tuple(found) + _described_estimates(result)


def _described_estimates(result: Result) -> tuple[Estimate, ...]:
    d, first = result.describing, result.test[0]
    found = []
    for name in ("strongest token outside", "above 1, or support outside only"):
        if name in d:
            found.append(estimate(name, d[name], ROW, unit="share"))
    for name, i in d.items():
        if any(name.startswith(f"{cue} ") for cue in first.cue):
            found.append(estimate(name, i, ROW, unit="share", group="Where the cue agrees with the label, and where not"))
        elif name.startswith("right ") or name.endswith("and NSI agree"):
            found.append(estimate(name, i, ROW, unit="share", group="Other views of the same question"))
        elif name.startswith("lost by noise"):
            found.append(estimate(name, i, ROW, unit="probability", group="Other views of the same question"))
        elif name.startswith("influence over gradcam"):
            found.append(estimate(name, i, ROW, unit="probability", group="Deletion: token influence against Grad-CAM"))
        elif " minus " in name:
            found.append(estimate(name, i, ROW, group="Mask against box"))
    return tuple(found)


def _defined(m: Measurement, values: np.ndarray) -> np.ndarray:
    return values[~np.isnan(values) & m.admissible]


# ---- checks --------------------------------------------------------------------------------------------------------------


def checks(result: Result) -> tuple[Check, ...]:
    c, first = result.comparison, result.test[0]
    admissible = int(result.panel.admissible.sum())
    units = "subjects" if len(first.subject) else "images"
    found = [
        Check(
            name=f"at least {comparing.FEWEST} {units} can be judged",
            passed=bool(c.units[0] >= comparing.FEWEST),
            note=f"{c.units[0]} {units}, {c.images[0]} images",
            decides=True,
        ),
        Check(
            name="M-TSI is defined on at least half of the images",
            passed=result.enough_defined,
            note=_say_undefined(result, admissible),
            decides=True,
        ),
        Check(
            name="there is something to compare with",
            passed=bool(c.against) or result.tolerance is not None,
            note={"baseline": "a balanced model", "twins": "the same images with the cue gone or changed"}.get(
                c.against, _say_tolerance(result)
            ),
            decides=not c.against and result.tolerance is None,
        ),
    ]
    if c.against == "baseline":
        found.append(
            Check(
                name="the difference exceeds what balanced seeds differ by",
                passed=c.above_seeds,
                note=c.seeds,
                decides=c.above_seeds is False,
            )
        )
    if c.against:
        found.append(followed_check(result.pull, _pulled_by(result), decides=bool(c.significant(result.margin))))
    return (*found, *_more_checks(result))


def _pulled_by(result: Result) -> str:
    return "” or “".join(dict.fromkeys(m.pulled_by for m in result.test))


def _more_checks(result: Result) -> list[Check]:
    first, c = result.test[0], result.comparison
    flat = int((first.flat & first.admissible).sum())
    count = max(int(first.admissible.sum()), 1)
    opposite = [c.names[k] for k, d in enumerate(c.difference) if d.high < -result.margin]
    large = int((result.panel.group == 4).sum())
    found = [
        Check(
            name="single tokens move the probability by more than rounding",
            passed=flat <= ROUNDING_SHARE * count,
            note=f"on {flat} of {count} images no token moves it by {FLAT:g}: there the ratio is rounding",
        ),
        Check(
            name="objects leave room outside",
            passed=large <= 0.5 * max(len(result.panel.group), 1),
            note=f"{large} of {len(result.panel.group)} objects cover nearly the whole image and are left out of all means",
        ),
    ]
    if c.against:
        note = f"fewer images above 1 than {OTHER[c.against]} for {', '.join(opposite)}" if opposite else ""
        found.append(Check(name="no size of object points the other way", passed=not opposite, note=note))
    for note in first.notes:
        found.append(Check(name="all that was asked for was extracted", passed=None, note=note))
    return found


def _say_undefined(result: Result, admissible: int) -> str:
    first = result.test[0]
    reasons = [
        f"{int((first.undefined == k).sum())} × {reason}"
        for k, reason in enumerate(tokens.REASONS)
        if reason and (first.undefined == k).any()
    ]
    outside = int((first.only_outside & first.admissible).sum())
    more = f"; on {outside} images only tokens outside support the class" if outside else ""
    said = f" ({'; '.join(reasons)}{more})" if reasons else ""
    return f"undefined on {result.comparison.undefined} of {admissible} images{said}"


def _say_tolerance(result: Result) -> str:
    if result.tolerance is not None:
        return f"a tolerance: models without such a cue stay below {result.tolerance:g}"
    twins = result.test[0].twin_reason
    return f"uncalibrated: no balanced model; {twins or 'no twins asked for'}; no tolerance is known for this kind of influence"
