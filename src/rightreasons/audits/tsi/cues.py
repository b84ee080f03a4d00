"""Where an attribute names the cue: which images it agrees with, which answers follow it, and twins without it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rightreasons.audits._alignment import alignment_of, say_alignment
from rightreasons.audits._following import pull_beside
from rightreasons.audits.tsi import arrays
from rightreasons.audits.tsi.locate import Located, read_map
from rightreasons.audits.tsi.measurement import Cues, Followed, Twins
from rightreasons.audits.tsi.settings import Settings
from rightreasons.data.cohort import Attribute, Cohort
from rightreasons.evidence import Evidence, View
from rightreasons.stats import tokens
from rightreasons.stats.resampling import Interval


def agreement(evidence: Evidence, view: View, aligned: Mapping[Any, Any] | None) -> Cues:
    """Attributes that stand for labels, and whether each image's value stands for its own."""
    names, sources, agrees = [], [], []
    for name in view.cohort.attributes:
        a = view.cohort.attribute(name)
        if a.kind == "continuous":
            continue
        pi, source = alignment_of(evidence, a, aligned)
        towards = _towards(pi, a.values)
        if (towards >= 0).any():
            names.append(name)
            sources.append(f"{say_alignment(pi, a, evidence)} ({source})")
            agrees.append(np.where((towards < 0) | (view.label < 0), -1, towards == view.label))
    return Cues(tuple(names), tuple(sources), np.array(agrees, dtype=np.int8).reshape(len(names), len(view)))


def _towards(pi: Mapping[Any, Any], codes: np.ndarray) -> np.ndarray:
    """(n,) the label that each row's value stands for, -1 for none."""
    return np.array([pi.get(code, -1) for code in codes.tolist()], dtype=np.int64)


def most_followed(evidence: Evidence, view: View, settings: Settings, rng: np.random.Generator) -> Followed:
    """The pull of the attribute that the answers follow most."""
    known = [name for name in view.cohort.attributes if view.cohort.attribute(name).kind == "categorical"]
    if view.name != "test" or not known:
        return Followed(Interval(np.nan, np.nan, np.nan, reason="no attribute with groups is known on test rows"))
    joint = 1 - (1 - settings.level) / len(known)
    attributes = []
    for name in known:
        pull = pull_beside(evidence, name, settings.aligned, rng=rng, B=settings.B, level=joint)
        attributes.append(Followed(pull, name))
    return max(attributes, key=lambda followed: np.nan_to_num(followed.pull.low, nan=-np.inf))


# ---- twins ---------------------------------------------------------------------------------------------------------------


def score_twins(evidence: Evidence, view: View, located: Located, settings: Settings) -> Twins:
    """M-TSI of each image's twin with the same object, where the two can be compared.

    A cue moves the influence outwards where it stands for the image's own label. So an image whose cue agrees is compared with
    its twin whose cue is gone or stands for another label; where nothing stands for a label, the cue must be gone.
    """
    maximum = np.full(len(view), np.nan)
    if view.name != "test" or "twin" not in evidence.cohorts:
        return Twins(maximum, "the cohort has no twins")
    twins, name = evidence.on("twin"), arrays.influence_array(settings.maps, settings.explain)
    if name not in twins:
        return Twins(maximum, f"{name!r} was not extracted for the twins")
    place = {i: k for k, i in enumerate(twins.cohort.id)}
    pair = np.array([place.get(i, -1) for i in view.cohort.id], dtype=np.int64)
    rows = np.flatnonzero(pair >= 0)
    if not len(rows):
        return Twins(maximum, "no image has a twin")
    comparable = _comparable(evidence, view.select(rows), twins.select(pair[rows]).cohort, settings.aligned)
    rows = rows[comparable.rows]
    if not len(rows):
        return Twins(maximum, comparable.reason or "no image whose cue stands for its own label has a twin without it")
    influence = read_map(twins.select(pair[rows]), name, located.grid)
    maximum[rows] = tokens.spuriosity(influence, located.inside[rows], settings.rectify)[1]
    return Twins(maximum, "")


@dataclass(frozen=True)
class Comparable:
    """Which rows can be compared with their twins, (n,), and why none can."""

    rows: np.ndarray
    reason: str = ""


def _comparable(evidence: Evidence, view: View, twins: Cohort, aligned: Mapping[Any, Any] | None) -> Comparable:
    """By the first attribute in which twins differ from their images."""
    everything = np.ones(len(view), bool)
    if not view.cohort.attributes:
        return Comparable(everything)
    for name in view.cohort.attributes:
        a = view.cohort.attribute(name)
        if a.kind == "continuous" or name not in twins.attributes:
            continue
        after = _in_codes_of(a, twins.attribute(name))
        changed = after != a.values
        if not changed.any():
            continue
        pi, _ = alignment_of(evidence, a, aligned)
        if pi:
            own = _towards(pi, a.values)
            agreed = (own >= 0) & (own == view.label)
            return Comparable(changed & agreed & (_towards(pi, after) != view.label))
        if (after[changed] == -1).all():
            return Comparable(changed)
        reason = f"the twins carry other values of {name}, and no value is known to stand for a label (aligned=)"
        return Comparable(~everything, reason)
    return Comparable(~everything, "no attribute says that the twins differ from their images")


def _in_codes_of(a: Attribute, twin: Attribute) -> np.ndarray:
    """The twins' values in the codes of their images' table, -1 missing, -2 unknown there: values are compared, not codes."""
    code = {str(value): k for k, value in enumerate(a.levels)}
    by_twin_code = [code.get(str(value), -2) for value in twin.levels]
    return np.array([by_twin_code[v] if v >= 0 else -1 for v in twin.values.tolist()], dtype=np.int64)
