"""TSI of one model: the scores of every image, and what the further arrays add where they were extracted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import softmax

from rightreasons.audits import _tsi_arrays as names
from rightreasons.audits._alignment import alignment_of, say_alignment
from rightreasons.audits._pull import NOT_MEASURED, pull_beside
from rightreasons.data.cohort import Cohort
from rightreasons.errors import EvidenceError, NotRun
from rightreasons.evidence import Evidence, View
from rightreasons.measurements import spread
from rightreasons.stats import tokens
from rightreasons.stats.resampling import Interval

FLAT = 1e-6  # where no token moves the probability by this much, the ratio of two of them is rounding
NOTHING = np.zeros(0)


@dataclass(frozen=True)
class Measurement:
    """TSI of one model, image by image, in the order of its rows; arrays of what was not extracted are empty.

    Attributes
    ----------
    maps : the influence, as it was asked for
    tokens : T, of the model's grid
    right : (n,) 1 where the decision is right, 0 where wrong, NaN where the label is missing
    confidence, probability : (n,) of the predicted class, and of the class whose influence this is
    covered : (n,) tokens that the object covers, -1 where the row has no annotation
    area : (n,) share of the image that it covers
    average, maximum : (n,) A-TSI and M-TSI, NaN where undefined
    undefined : (n,) why M-TSI is undefined, numbers into `stats.tokens.REASONS`
    other_average, other_maximum : (n,) with the other annotation (`other`: mask beside box, or box beside mask)
    substitute_average, substitute_maximum : (k, n) with the maps `substitute` in place of the influence
    core_average, core_maximum : (5, n) with the top 5, 10, 20, 40, 80 tokens of the attention as the object
    dropped : (m, 5, n) probability lost when the top 1, 3, 5, 10, 20 tokens of the maps `deletion` are dropped
    noise, noise_core, noise_outside : (n,) NSI and the probability that noise in and outside the object takes away
    kept : (2, n) whether the decision is right from the tokens inside alone, and outside alone; NaN where there are none
    missing_same, missing_right, missing_lost : (k, n) after the same tokens were removed in the ways `missing`
    agrees : (c, n) by attribute in `cue`: 1 where its value stands for the image's label, 0 for another, -1 for none
    twin_maximum : (n,) M-TSI of the image's twin; NaN where it has none that can be compared
    notes : why something was not computed, one sentence each
    share : of the admissible, defined images with M-TSI > 1
    pull, pulled_by : of the attribute that the answers follow most, its limits widened by how many attributes there are
    """

    model: str
    cohort: str
    region: str
    maps: str
    explain: str
    rectify: str
    tokens: int
    classes: tuple[str, ...]
    id: np.ndarray
    subject: np.ndarray
    label: np.ndarray
    predicted: np.ndarray
    right: np.ndarray
    confidence: np.ndarray
    probability: np.ndarray
    covered: np.ndarray
    area: np.ndarray
    average: np.ndarray
    maximum: np.ndarray
    undefined: np.ndarray
    strongest_outside: np.ndarray
    only_outside: np.ndarray
    flat: np.ndarray
    other: str
    other_average: np.ndarray
    other_maximum: np.ndarray
    substitute: tuple[str, ...]
    substitute_average: np.ndarray
    substitute_maximum: np.ndarray
    core_average: np.ndarray
    core_maximum: np.ndarray
    deletion: tuple[str, ...]
    dropped: np.ndarray
    noise: np.ndarray
    noise_core: np.ndarray
    noise_outside: np.ndarray
    noise_draws: int
    kept: np.ndarray
    missing: tuple[str, ...]
    missing_same: np.ndarray
    missing_right: np.ndarray
    missing_lost: np.ndarray
    cue: tuple[str, ...]
    cue_from: tuple[str, ...]
    agrees: np.ndarray
    twin_maximum: np.ndarray
    twin_reason: str
    notes: tuple[str, ...]
    left_out: int
    share: Interval
    mean_maximum: Interval
    mean_average: Interval
    pictures: np.ndarray
    captions: tuple[str, ...]
    picture_row: np.ndarray
    no_pictures: str
    pull: Interval = NOT_MEASURED
    pulled_by: str = ""

    @property
    def admissible(self) -> np.ndarray:
        """(n,) objects that cover a token and not too many."""
        return (self.covered > 0) & (tokens.coverage_group(self.covered, self.tokens) < 4)

    @property
    def is_calibrated(self) -> bool:
        """Whether this is the influence that the tolerance was calibrated for: support by tokens that are left out."""
        return "token_influence" in self.maps and "occlusion" not in self.maps and self.rectify == "positive"

    def scalars(self) -> dict[str, float | int | str]:
        found: dict[str, float | int | str] = {"region": self.region, "tokens": self.tokens, "n": int(self.admissible.sum())}
        found |= spread("share_above_1", self.share)
        found |= spread("mean_M_TSI", self.mean_maximum) | spread("mean_A_TSI", self.mean_average)
        if len(self.noise):
            found["median_NSI"] = _median(self.noise[self.admissible])
        for name, values in zip(("inside", "outside"), self.kept, strict=False):
            found[f"accuracy_{name}_alone"] = _mean(values[self.admissible])
        return found


@dataclass(frozen=True)
class Scored:
    """Influence and object of one cohort's rows, both (n, T), and what follows from them."""

    influence: np.ndarray
    share: np.ndarray
    inside: np.ndarray
    grid: tuple[int, ...]
    region: str
    other: str
    other_inside: np.ndarray | None

    @property
    def annotated(self) -> np.ndarray:
        return ~np.isnan(self.share).all(axis=1)


def scored(view: View, region: str, maps: str, explain: str, least: float, top: int) -> Scored:
    """Read influence and object; rows without an annotation have no token inside."""
    name = names.influence_array(maps, explain)
    if name not in view:
        raise NotRun(
            f"{name!r} is not in the evidence of {view.evidence.card.name} on {view.name}: extract it; for a network without a "
            "sequence of tokens (convolutions, windows) give maps='token_influence(by=occlusion,patch=16)'"
        )
    influence = _read(view, name)
    grid = influence.shape[1:]
    flat = influence.reshape(len(influence), -1)
    if region == "attention":
        inside = tokens.core_region(_map(view, names.map_array("attention", explain), grid), min(top, flat.shape[1]))
        return Scored(flat, inside.astype(float), inside, grid, region, "", None)
    kind = _annotation(view, region, maps)
    share = _map(view, names.tokens_array(kind, maps), grid)
    other = {"box": "mask", "mask": "box"}.get(kind, "")
    beside = names.tokens_array(other, maps) if other else ""
    second = _map(view, beside, grid) if other and beside in view else None
    if second is not None and np.isnan(second).all():
        second = None
    return Scored(
        flat,
        share,
        _inside(share, least),
        grid,
        kind,
        other if second is not None else "",
        None if second is None else _inside(second, least),
    )


def _annotation(view: View, region: str, maps: str) -> str:
    """Which annotation says where the object is."""
    if region != "auto":
        return region
    for kind in ("box", "mask"):
        name = names.tokens_array(kind, maps)
        if name in view and not np.isnan(view[name]).all():
            return kind
    raise NotRun(
        f"nothing says where the object is: {view.evidence.card.name} has neither {names.tokens_array('box', maps)!r} nor "
        f"{names.tokens_array('mask', maps)!r} on {view.name}. Name a column with boxes or masks (box=, mask=) and extract, or "
        "use region='fov' or region='attention', with which TSI only describes"
    )


def _inside(share: np.ndarray, least: float) -> np.ndarray:
    """Any overlap, or at least the given share of a token."""
    with np.errstate(invalid="ignore"):
        return share > 0 if least <= 0 else share >= least


def _read(view: View, name: str) -> np.ndarray:
    values = view[name]
    if values.ndim < 2:
        raise EvidenceError(f"{name!r} has shape {values.shape}; maps (n, *grid) expected: extract it again")
    return values.astype(np.float64)


def _map(view: View, name: str, grid: tuple[int, ...]) -> np.ndarray:
    """(n, T) a map on the influence's grid."""
    values = _read(view, name)
    if values.shape[1:] != grid:
        raise EvidenceError(
            f"{name!r} of {view.evidence.card.name} has a grid of {values.shape[1:]} and the influence one of {grid}: extract "
            "both with the same patch="
        )
    return values.reshape(len(values), -1)


# ---- the extras ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Extras:
    """What arrays beside the influence say; see `Measurement` for the meaning of each."""

    found: dict[str, Any]
    notes: tuple[str, ...]


def extras(
    view: View, s: Scored, asked: Sequence[str], maps: str, explain: str, rectify: str, target: np.ndarray, draws: int, sd: float
) -> Extras:
    """Use what is there; a note says what was asked for and is not."""
    p = softmax(view["logits"].astype(np.float64), axis=1)
    rows = np.arange(len(p))
    by = "mask" if s.region == "mask" else "box"

    def confidence(name: str) -> np.ndarray:
        found: np.ndarray = softmax(view[name].astype(np.float64), axis=1)[rows, target]
        return found

    have = frozenset(view.evidence.arrays(view.name))
    original = p[rows, target]
    found: dict[str, Any] = {}
    notes: list[str] = []
    found |= _substitutes(view, have, s, explain, rectify, notes if "substitutes" in asked else [])
    found |= _deletion(have, explain, original, confidence, notes if "deletion" in asked else [])
    found |= _noise(have, by, draws, sd, original, confidence, notes if "noise" in asked else [])
    found |= _kept(view, have, by, notes if "keep" in asked else [])
    found |= _missing(view, have, maps, explain, p, confidence, target, notes if "missingness" in asked else [])
    return Extras(found, tuple(notes))


def _substitutes(view: View, have: frozenset[str], s: Scored, explain: str, rectify: str, notes: list[str]) -> dict[str, Any]:
    used, scores = [], []
    for method in names.SUBSTITUTES:
        name = names.map_array(method, explain)
        if name not in have:
            notes.append(f"{method} was not tried in place of token influence: {name!r} is not in the evidence")
        elif view[name].shape[1:] != s.grid:
            notes.append(f"{method} was not tried in place of token influence: its maps are no token grid of {s.grid}")
        else:
            used.append(method)
            scores.append(tokens.spuriosity(_map(view, name, s.grid), s.inside, rectify))
    core = np.zeros((0, len(s.influence)))
    core_average = core_maximum = core
    if "attention" in used and s.region != "attention":
        attention = _map(view, names.map_array("attention", explain), s.grid)
        T = attention.shape[1]
        pairs = [
            tokens.spuriosity(s.influence, tokens.core_region(attention, top), rectify)
            if top < T
            else (np.full(len(attention), np.nan),) * 2
            for top in names.CORE_TOPS
        ]
        core_average, core_maximum = (np.stack(part) for part in zip(*pairs, strict=True))
    both = np.array(scores).reshape(len(used), 2, len(s.influence))
    return {
        "substitute": tuple(used),
        "substitute_average": both[:, 0],
        "substitute_maximum": both[:, 1],
        "core_average": core_average,
        "core_maximum": core_maximum,
    }


def _deletion(have: frozenset[str], explain: str, p: np.ndarray, confidence: Any, notes: list[str]) -> dict[str, Any]:
    used, lost = [], []
    for by in names.DELETED_BY:
        there = [(k, names.drop_array(by, top, explain)) for k, top in enumerate(names.DELETED)]
        there = [(k, name) for k, name in there if name in have]
        if len(there) < 2:  # one point is no curve; the missingness check has one of its own
            notes.append(f"no deletion curve of {by}: {names.drop_array(by, 1, explain)!r} and the like are not in the evidence")
            continue
        one = np.full((len(names.DELETED), len(p)), np.nan)
        for k, name in there:
            one[k] = p - confidence(name)
        used.append(by)
        lost.append(one)
    return {"deletion": tuple(used), "dropped": np.array(lost).reshape(len(used), len(names.DELETED), len(p))}


def _noise(
    have: frozenset[str], by: str, draws: int, sd: float, p: np.ndarray, confidence: Any, notes: list[str]
) -> dict[str, Any]:
    pairs = [tuple(names.noise_array(by, draw, side, sd) for side in ("inside", "outside")) for draw in range(draws)]
    there = [pair for pair in pairs if pair[0] in have and pair[1] in have]
    if not there:
        notes.append(f"no noise spuriousity index: {pairs[0][0]!r} and the like are not in the evidence")
        return {"noise": NOTHING, "noise_core": NOTHING, "noise_outside": NOTHING, "noise_draws": 0}
    core, outside = (np.stack([confidence(pair[side]) for pair in there]) for side in (0, 1))
    index, lost_core, lost_outside = tokens.noise_spuriosity(p, core, outside)
    return {"noise": index, "noise_core": lost_core, "noise_outside": lost_outside, "noise_draws": len(there)}


def _kept(view: View, have: frozenset[str], by: str, notes: list[str]) -> dict[str, Any]:
    there = [names.keep_array(by, side) for side in ("inside", "outside")]
    if not have.issuperset(there):
        notes.append(f"no accuracy from the object alone: {there[0]!r} and its counterpart are not in the evidence")
        return {"kept": np.zeros((0, len(view)))}
    logits = [view[name].astype(np.float64) for name in there]
    known = view.label >= 0
    right = [
        np.where(known & ~np.isnan(one).any(axis=1), np.nan_to_num(one).argmax(axis=1) == view.label, np.nan) for one in logits
    ]
    return {"kept": np.stack(right)}


def _missing(
    view: View,
    have: frozenset[str],
    maps: str,
    explain: str,
    p: np.ndarray,
    confidence: Any,
    target: np.ndarray,
    notes: list[str],
) -> dict[str, Any]:
    """App. B: the same patches discarded as tokens, and filled with a colour or a blur."""
    ways = {"dropped": names.drop_array("random", names.MISSING, explain)}
    ways |= {f"filled ({fill})": names.fill_array(fill, maps) for fill in names.FILLS}
    there = {way: name for way, name in ways.items() if name in have}
    if not any(way != "dropped" for way in there):  # `dropped` alone is the deletion curve's
        notes.append(f"no missingness check: {names.fill_array('zero', maps)!r} and the like are not in the evidence")
        there = {}
    before, known = p.argmax(axis=1), view.label >= 0
    original = p[np.arange(len(p)), target]
    same, right, lost = [], [], []
    for name in there.values():
        after = view[name].argmax(axis=1)
        same.append((after == before).astype(np.float64))
        right.append(np.where(known, after == view.label, np.nan))
        lost.append(original - confidence(name))
    shape = (len(there), len(p))
    return {
        "missing": tuple(there),
        "missing_same": np.array(same).reshape(shape),
        "missing_right": np.array(right, dtype=np.float64).reshape(shape),
        "missing_lost": np.array(lost).reshape(shape),
    }


# ---- the cue, where an attribute names it --------------------------------------------------------------------------------


def agreement(
    evidence: Evidence, view: View, aligned: Mapping[Any, Any] | None
) -> tuple[tuple[str, ...], tuple[str, ...], np.ndarray]:
    """Attributes that stand for labels, where that is known from, and (c, n) whether each image's value stands for its label."""
    cues, sources, agrees = [], [], []
    for name in view.cohort.attributes:
        a = view.cohort.attribute(name)
        if a.kind == "continuous":
            continue
        pi, source = alignment_of(evidence, a, aligned)
        towards = np.array([pi.get(v, -1) for v in a.values.tolist()], dtype=np.int64)
        if pi and (towards >= 0).any():
            cues.append(name)
            sources.append(f"{say_alignment(pi, a, evidence)} ({source})")
            agrees.append(np.where((towards < 0) | (view.label < 0), -1, towards == view.label))
    return tuple(cues), tuple(sources), np.array(agrees, dtype=np.int8).reshape(len(cues), len(view))


def strongest_pull(
    evidence: Evidence, view: View, aligned: Mapping[Any, Any] | None, *, rng: np.random.Generator, B: int, level: float
) -> tuple[Interval, str]:
    """The pull of the attribute that the answers follow most, and its name."""
    known = [name for name in view.cohort.attributes if view.cohort.attribute(name).kind == "categorical"]
    if view.name != "test" or not known:
        return Interval(np.nan, np.nan, np.nan, reason="no attribute with groups is known on test rows"), ""
    joint = 1 - (1 - level) / len(known)
    found = [pull_beside(evidence, name, aligned, rng=rng, B=B, level=joint) for name in known]
    return max(zip(found, known, strict=True), key=lambda one: np.nan_to_num(one[0].low, nan=-np.inf))


def twin_maximum(
    evidence: Evidence, view: View, s: Scored, maps: str, explain: str, rectify: str, aligned: Mapping[Any, Any] | None
) -> tuple[np.ndarray, str]:
    """M-TSI (n,) of each image's twin with the same object; NaN, and the reason, where they cannot be compared.

    A cue moves the influence outwards where it stands for the image's own label. So an image whose cue agrees is compared with
    its twin whose cue is gone or stands for another label; where nothing stands for a label, the cue must be gone.
    """
    nothing = np.full(len(view), np.nan)
    if view.name != "test" or "twin" not in evidence.cohorts:
        return nothing, "the cohort has no twins"
    twins, name = evidence.on("twin"), names.influence_array(maps, explain)
    if name not in twins:
        return nothing, f"{name!r} was not extracted for the twins"
    place = {i: k for k, i in enumerate(twins.cohort.id)}
    pair = np.array([place.get(i, -1) for i in view.cohort.id], dtype=np.int64)
    rows = np.flatnonzero(pair >= 0)
    if not len(rows):
        return nothing, "no image has a twin"
    usable, reason = _comparable(evidence, view.select(rows), twins.select(pair[rows]).cohort, aligned)
    rows = rows[usable]
    if not len(rows):
        return nothing, reason or "no image whose cue stands for its own label has a twin without it"
    influence = _map(twins.select(pair[rows]), name, s.grid)
    nothing[rows] = tokens.spuriosity(influence, s.inside[rows], rectify)[1]
    return nothing, ""


def _comparable(evidence: Evidence, view: View, twins: Cohort, aligned: Mapping[Any, Any] | None) -> tuple[np.ndarray, str]:
    everything = np.ones(len(view), bool)
    if not view.cohort.attributes:
        return everything, ""
    for name in view.cohort.attributes:
        a = view.cohort.attribute(name)
        if a.kind == "continuous" or name not in twins.attributes:
            continue
        b = twins.attribute(name)
        # Codes belong to their own table: values are compared by what they stand for.
        code = {str(v): k for k, v in enumerate(a.levels)}
        now = np.array([code.get(str(b.levels[v]), -2) if v >= 0 else -1 for v in b.values.tolist()], dtype=np.int64)
        changed = now != a.values
        if not changed.any():
            continue
        pi, _ = alignment_of(evidence, a, aligned)
        if pi:
            towards, after = (np.array([pi.get(v, -1) for v in codes.tolist()]) for codes in (a.values, now))
            return changed & (towards >= 0) & (towards == view.label) & (after != view.label), ""
        if (now[changed] == -1).all():
            return changed, ""
        return ~everything, f"the twins carry other values of {name}, and no value is known to stand for a label (aligned=)"
    return ~everything, "no attribute says that the twins differ from their images"


def _median(values: np.ndarray) -> float:
    known = values[~np.isnan(values)]
    return float(np.median(known)) if len(known) else float("nan")


def _mean(values: np.ndarray) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")
