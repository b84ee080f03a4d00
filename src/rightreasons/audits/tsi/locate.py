"""Influence and object of one cohort's images, token by token (sec. 3.1.2)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rightreasons.audits.tsi import arrays
from rightreasons.audits.tsi.settings import Settings
from rightreasons.errors import EvidenceError, NotRun
from rightreasons.evidence import View
from rightreasons.stats import tokens

OTHER = {"box": "mask", "mask": "box"}


@dataclass(frozen=True)
class Located:
    """Influence and object, both (n, T).

    Attributes
    ----------
    share : how much of each token the object covers; NaN in rows without an annotation
    inside : B_in of the paper; a row without an annotation has no token inside
    region : what says where the object is
    other : the other annotation, empty where there is none, with its own `other_inside`
    """

    influence: np.ndarray
    share: np.ndarray
    inside: np.ndarray
    grid: tuple[int, ...]
    region: str
    other: str = ""
    other_inside: np.ndarray | None = None

    @property
    def covered(self) -> np.ndarray:
        """(n,) tokens that the object covers, -1 where the row has no annotation."""
        return np.where(self._annotated, self.inside.sum(axis=1), -1)

    @property
    def area(self) -> np.ndarray:
        """(n,) share of the image that it covers."""
        return np.where(self._annotated, np.nan_to_num(self.share).mean(axis=1), np.nan)

    @property
    def _annotated(self) -> np.ndarray:
        return ~np.isnan(self.share).all(axis=1)


def locate(view: View, settings: Settings) -> Located:
    """Read the influence and where the object is."""
    maps, explain = settings.maps, settings.explain
    influence = _influence(view, arrays.influence_array(maps, explain))
    grid = influence.shape[1:]
    flat = influence.reshape(len(influence), -1)
    if settings.region == "attention":
        attention = read_map(view, arrays.map_array("attention", explain), grid)
        inside = tokens.core_region(attention, min(settings.top, flat.shape[1]))
        return Located(flat, inside.astype(float), inside, grid, settings.region)
    region = _annotation(view, settings.region, maps)
    share = read_map(view, arrays.tokens_array(region, maps), grid)
    inside = _inside(share, settings.least_share)
    second = _other_share(view, region, maps, grid)
    if second is None:
        return Located(flat, share, inside, grid, region)
    return Located(flat, share, inside, grid, region, OTHER[region], _inside(second, settings.least_share))


def read_map(view: View, name: str, grid: tuple[int, ...]) -> np.ndarray:
    """(n, T) a map on the influence's grid."""
    values = _read(view, name)
    if values.shape[1:] != grid:
        raise EvidenceError(
            f"{name!r} of {view.evidence.card.name} has a grid of {values.shape[1:]} and the influence one of {grid}: extract "
            "both with the same patch="
        )
    return values.reshape(len(values), -1)


def _influence(view: View, name: str) -> np.ndarray:
    if name not in view:
        raise NotRun(
            f"{name!r} is not in the evidence of {view.evidence.card.name} on {view.name}: extract it; for a network without a "
            "sequence of tokens (convolutions, windows) give maps='token_influence(by=occlusion,patch=16)'"
        )
    return _read(view, name)


def _read(view: View, name: str) -> np.ndarray:
    values = view[name]
    if values.ndim < 2:
        raise EvidenceError(f"{name!r} has shape {values.shape}; maps (n, *grid) expected: extract it again")
    return values.astype(np.float64)


def _annotation(view: View, region: str, maps: str) -> str:
    """Which annotation says where the object is."""
    if region != "auto":
        return region
    for kind in ("box", "mask"):
        name = arrays.tokens_array(kind, maps)
        if name in view and not np.isnan(view[name]).all():
            return kind
    raise NotRun(
        f"nothing says where the object is: {view.evidence.card.name} has neither {arrays.tokens_array('box', maps)!r} nor "
        f"{arrays.tokens_array('mask', maps)!r} on {view.name}. Name a column with boxes or masks (box=, mask=) and extract, or "
        "use region='fov' or region='attention', with which TSI only describes"
    )


def _other_share(view: View, region: str, maps: str, grid: tuple[int, ...]) -> np.ndarray | None:
    """Shares of tokens by the other annotation, None where there is none."""
    if region not in OTHER:
        return None
    name = arrays.tokens_array(OTHER[region], maps)
    share = None
    if name in view:
        share = read_map(view, name, grid)
    return None if share is None or np.isnan(share).all() else share


def _inside(share: np.ndarray, least: float) -> np.ndarray:
    """Any overlap, or at least the given share of a token."""
    with np.errstate(invalid="ignore"):
        if least <= 0:
            return share > 0
        return share >= least
