"""What further forward passes add to TSI (App. B and C), as far as they were extracted."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy.special import softmax

from rightreasons.audits.tsi import arrays
from rightreasons.audits.tsi.locate import Located, read_map
from rightreasons.audits.tsi.measurement import Deletion, Extras, Kept, Missingness, Noise, Spuriosity, Substitutes
from rightreasons.audits.tsi.settings import Settings, wanted_extras
from rightreasons.evidence import View
from rightreasons.stats import tokens


@dataclass(frozen=True)
class Source:
    """What every extra reads.

    Attributes
    ----------
    probabilities : (n, C) of the unchanged images
    target : (n,) class whose influence was measured
    notes : one sentence for each thing that was asked for and is not there
    """

    view: View
    located: Located
    settings: Settings
    probabilities: np.ndarray
    target: np.ndarray
    notes: list[str] = field(default_factory=list)

    @property
    def by(self) -> str:
        """The annotation that noise and kept tokens go by."""
        return "mask" if self.located.region == "mask" else "box"

    @property
    def original(self) -> np.ndarray:
        """(n,) confidence in the target on unchanged images."""
        return self._of_target(self.probabilities)

    def confidence(self, name: str) -> np.ndarray:
        """(n,) confidence in the target from other logits."""
        return self._of_target(softmax(self.view[name].astype(np.float64), axis=1))

    def has(self, *names: str) -> bool:
        return self._stored.issuperset(names)

    def note(self, extra: str, sentence: str) -> None:
        """Say that something is missing, if its extra was asked for."""
        if extra in wanted_extras(self.settings.extras):
            self.notes.append(sentence)

    @cached_property
    def _stored(self) -> frozenset[str]:
        return frozenset(self.view.evidence.arrays(self.view.name))

    def _of_target(self, probabilities: np.ndarray) -> np.ndarray:
        chosen: np.ndarray = probabilities[np.arange(len(probabilities)), self.target]
        return chosen


def read_extras(source: Source) -> Extras:
    """Use what is there; notes say what was asked for and is not."""
    return Extras(
        substitutes=substitutes(source),
        deletion=deletion(source),
        noise=noise(source),
        kept=kept(source),
        missingness=missingness(source),
        notes=tuple(source.notes),
    )


def substitutes(source: Source) -> Substitutes:
    """App. C.2: other maps in place of the influence."""
    located, explain = source.located, source.settings.explain
    scores: dict[str, Spuriosity] = {}
    for method in arrays.SUBSTITUTES:
        name = arrays.map_array(method, explain)
        untried = f"{method} was not tried in place of token influence"
        if not source.has(name):
            source.note("substitutes", f"{untried}: {name!r} is not in the evidence")
        elif source.view[name].shape[1:] != located.grid:
            source.note("substitutes", f"{untried}: its maps are no token grid of {located.grid}")
        else:
            maps = read_map(source.view, name, located.grid)
            scores[method] = Spuriosity(*tokens.spuriosity(maps, located.inside, source.settings.rectify))
    n = len(located.influence)
    if "attention" in scores:
        core = [attention_core(source, top) for top in arrays.CORE_TOPS]
    else:
        core = []
    if located.region == "attention":  # the object is the attention already
        core = []
    return Substitutes(tuple(scores), _stacked(list(scores.values()), n), _stacked(core, n))


def attention_core(source: Source, top: int) -> Spuriosity:
    """App. C.4: the influence, with the `top` tokens of the attention as the object."""
    located = source.located
    attention = read_map(source.view, arrays.map_array("attention", source.settings.explain), located.grid)
    n, T = attention.shape
    if top >= T:
        return Spuriosity(np.full(n, np.nan), np.full(n, np.nan))
    return Spuriosity(
        *tokens.spuriosity(located.influence, tokens.core_region(attention, top), source.settings.rectify)
    )  # fmt: skip


def _stacked(scores: list[Spuriosity], n: int) -> Spuriosity:
    """(k, n)"""
    shape = len(scores), n
    return Spuriosity(
        np.array([each.average for each in scores]).reshape(shape), np.array([each.maximum for each in scores]).reshape(shape)
    )


def deletion(source: Source) -> Deletion:
    """App. C.1: probability lost without the top tokens of a map."""
    explain, original = source.settings.explain, source.original
    used, lost = [], []
    for by in arrays.DELETED_BY:
        curve = np.full((len(arrays.DELETED), len(original)), np.nan)
        points = 0
        for k, top in enumerate(arrays.DELETED):
            name = arrays.drop_array(by, top, explain)
            if source.has(name):
                curve[k] = original - source.confidence(name)
                points += 1
        if points < 2:  # one point is no curve; the missingness check has one of its own
            name = arrays.drop_array(by, 1, explain)
            source.note("deletion", f"no deletion curve of {by}: {name!r} and the like are not in the evidence")
        else:
            used.append(by)
            lost.append(curve)
    return Deletion(tuple(used), np.array(lost).reshape(len(used), len(arrays.DELETED), len(original)))


def noise(source: Source) -> Noise | None:
    """App. C.3: noise inside the object against noise outside it."""
    inside, outside = [], []
    for draw in range(source.settings.draws):
        names = []
        for side in ("inside", "outside"):
            names.append(arrays.noise_array(source.by, draw, side, source.settings.sd))
        if source.has(*names):
            inside.append(source.confidence(names[0]))
            outside.append(source.confidence(names[1]))
    if not inside:
        name = arrays.noise_array(source.by, 0, "inside", source.settings.sd)
        source.note("noise", f"no noise spuriousity index: {name!r} and the like are not in the evidence")
        return None
    lost = tokens.noise_spuriosity(source.original, np.stack(inside), np.stack(outside))
    return Noise(lost.nsi, lost.lost_core, lost.lost_outside, draws=len(inside))


def kept(source: Source) -> Kept | None:
    """Decisions from the object's tokens alone, and from the others alone."""
    inside = arrays.keep_array(source.by, "inside")
    outside = arrays.keep_array(source.by, "outside")
    if not source.has(inside, outside):
        source.note("keep", f"no accuracy from the object alone: {inside!r} and its counterpart are not in the evidence")
        return None
    return Kept(_right_from(source.view, inside), _right_from(source.view, outside))


def _right_from(view: View, name: str) -> np.ndarray:
    """(n,) 1 where the decision is right, 0 where wrong; NaN where the label is missing or no token was left."""
    logits = view[name].astype(np.float64)
    known = (view.label >= 0) & ~np.isnan(logits).any(axis=1)
    return np.where(known, np.nan_to_num(logits).argmax(axis=1) == view.label, np.nan)


def missingness(source: Source) -> Missingness:
    """App. B: the same patches left out as tokens, and filled with a colour or a blur."""
    view, settings = source.view, source.settings
    ways = {"dropped": arrays.drop_array("random", arrays.MISSING, settings.explain)}
    for fill in arrays.FILLS:
        ways[f"filled ({fill})"] = arrays.fill_array(fill, settings.maps)
    used = {way: name for way, name in ways.items() if source.has(name)}
    if not used.keys() - {"dropped"}:  # `dropped` alone is a point of the deletion curve
        zero = arrays.fill_array("zero", settings.maps)
        source.note("missingness", f"no missingness check: {zero!r} and the like are not in the evidence")
        used = {}
    before, original = source.probabilities.argmax(axis=1), source.original
    same, right, lost = [], [], []
    for name in used.values():
        after = view[name].argmax(axis=1)
        same.append((after == before).astype(np.float64))
        right.append(np.where(view.label >= 0, after == view.label, np.nan))
        lost.append(original - source.confidence(name))
    shape = len(used), len(before)
    return Missingness(
        way=tuple(used),
        same=np.array(same).reshape(shape),
        right=np.array(right, dtype=np.float64).reshape(shape),
        lost=np.array(lost).reshape(shape),
    )
