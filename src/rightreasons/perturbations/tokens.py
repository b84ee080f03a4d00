"""Tokens and regions that are left out, filled or disturbed: deletion, missingness and noise (TSI, appendices B, C.1 and C.3)."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from rightreasons import attributions
from rightreasons.attributions.token_influence import cells, patch_of
from rightreasons.data import facts, images
from rightreasons.data.cohort import Cohort
from rightreasons.errors import DataError, SettingError
from rightreasons.evidence import Recipe
from rightreasons.families import suggest
from rightreasons.models import tokens as sequence
from rightreasons.models.classifier import Classifier
from rightreasons.models.fills import FILLS, filled
from rightreasons.models.passes import Maker, Pass
from rightreasons.perturbations import Perturbation, generator, seeds

OBJECTS = ("box", "mask", "fov")
REGIONS = ("inside", "outside")


def cover(*, by: str = "box", patch: int = 0) -> Maker:
    """`tokens@box`, `tokens@mask`, `tokens@fov`: (b, gh, gw) share of each token that the row's object covers.

    NaN where a row has no object; one that the crop removed covers 0 of every token. The field of view (fov) is computed from the
    pixels (`field_of_view`), so every row has one.

    Parameters
    ----------
    patch : pixels along a side of a cell, for networks without tokens; 0: the network's own patches
    """
    _refuse_unknown("tokens", by, OBJECTS)

    def make(batch: Pass) -> Tensor:
        cohort, rows = batch.source
        sides = patch_of(batch.classifier, patch)
        grid = _grid(batch.classifier, sides, patch)
        if by == "fov":
            share = np.stack([_cell_means(field_of_view(p), sides, grid) for p in batch.pixels.cpu().numpy()])
        else:
            share = np.stack([_share(cohort, row, by, batch.classifier, sides, grid) for row in rows])
        return torch.from_numpy(share).to(batch.x)

    return Maker(make, _read_columns(by), check=_has_cells(patch), may_lack=True)


def drop(*, map: str = "token_influence", top: int = 1, explain: str = "label", draw: int = 0) -> Perturbation:
    """The network without the tokens of largest map value.

    Parameters
    ----------
    map : an attribution, with at most one setting, such as `gradcam(layer=norm)`; or "random"
    explain : whose class the map explains: "label" or "predicted"
    draw : for "random": which draw, seeded by each row's id
    """
    arrays, rank = _ranking(map, top, explain, draw)

    def change(batch: Pass) -> Pass:
        seen = _read(batch)
        gone = rank(batch, seen.grid)
        kept = torch.ones(len(gone), seen.count, dtype=torch.bool, device=gone.device).scatter_(1, gone, False)
        return batch.with_network(lambda x: _kept(seen, kept))

    return Perturbation(change, _columns(arrays), arrays, check=sequence.check)


def keep(*, region: str = "inside", by: str = "box") -> Perturbation:
    """The network on the tokens inside the object alone, or on all others; undefined where there are none."""
    _refuse_unknown("region", region, REGIONS)
    _refuse_unknown("by", by, OBJECTS)

    def change(batch: Pass) -> Pass:
        seen, covered = _read(batch), batch.arrays[f"tokens@{by}"].flatten(1)
        if region == "inside":
            kept = covered > 0
        else:
            kept = covered == 0
        undefined = ~kept.any(1)
        return batch.with_network(lambda x: _kept(seen, kept | undefined[:, None]), undefined)

    return Perturbation(change, _read_columns(by), (f"tokens@{by}",), check=sequence.check, may_lack=True)


def fill(
    *, map: str = "token_influence", top: int = 1, fill: str = "zero", patch: int = 0, explain: str = "label", draw: int = 0
) -> Perturbation:
    """The patches that `drop` leaves out, covered instead: what a network does with missing pixels (TSI, appendix B).

    Parameters
    ----------
    fill : "zero" (in normalised space), "black", "mean" or "blur"
    patch : pixels along a side of a cell, for networks without tokens
    """
    _refuse_unknown("fill", fill, FILLS)
    arrays, rank = _ranking(map, top, explain, draw)

    def change(batch: Pass) -> Pass:
        sides = patch_of(batch.classifier, patch)
        grid = _grid(batch.classifier, sides, patch)
        gone = torch.zeros(len(batch.x), prod(grid), dtype=torch.bool, device=batch.x.device)
        gone.scatter_(1, rank(batch, grid), True)
        here = gone[:, cells(batch.x.shape[2:], sides, batch.x.device).clamp(max=prod(grid) - 1)]
        x = torch.where(here[:, None], filled(batch.classifier, batch.x, fill), batch.x)
        return batch.with_network(lambda _: batch.classifier.read(x))

    return Perturbation(change, _columns(arrays), arrays, check=_has_cells(patch))


def noise(*, region: str = "inside", by: str = "box", sd: float = 0.25, draw: int = 0) -> Perturbation:
    """Gaussian noise on the pixels inside the object, or outside it (TSI, eq. 3); undefined where there are none.

    The noise of a row and a draw is one field, of which the inside and the outside are parts.

    Parameters
    ----------
    sd : standard deviation, of pixels in [0, 1]
    """
    _refuse_unknown("region", region, REGIONS)
    _refuse_unknown("by", by, OBJECTS)
    if not sd > 0:
        raise SettingError(f"sd={sd}: give a standard deviation above 0, of pixels in [0, 1]")

    def change(batch: Pass) -> Pass:
        cohort, rows = batch.source
        views = batch.pixels.cpu().numpy()
        areas = []
        for view, row in zip(views, rows):
            inside = field_of_view(view) if by == "fov" else _pixels(cohort, row, by, batch.classifier)
            if inside is None:
                areas.append(np.zeros(batch.x.shape[2:], bool))
            else:
                areas.append(inside if region == "inside" else ~inside)
        area = torch.from_numpy(np.stack(areas)).to(batch.x.device)
        field = torch.stack(
            [torch.randn(batch.x.shape[1:], generator=generator(s)) for s in seeds(cohort.id[rows], "noise", draw)]
        )
        disturbed = (batch.pixels + sd * field.to(batch.x) * area[:, None]).clamp(0, 1)
        return batch.with_pixels(disturbed, ~area.flatten(1).any(1))

    return Perturbation(change, _read_columns(by), may_lack=True)


def field_of_view(pixels: np.ndarray) -> np.ndarray:
    """(*size) the part of an image (c, *size) in [0, 1] that its dark surround does not reach: all of it where it has none."""
    return facts.field_of_view(pixels.max(0))


# ---- which tokens --------------------------------------------------------------------------------------------------------


def _ranking(map: str, top: int, explain: str, draw: int) -> tuple[tuple[str, ...], Callable[[Pass, tuple[int, ...]], Tensor]]:
    """Arrays that are read, and a function of a pass and a grid: (b, top) the cells to take away."""
    if not isinstance(top, int) or top < 1:
        raise SettingError(f"top={top}: give how many tokens, 1 or more")
    if map == "random":
        return (), lambda batch, grid: _random(batch, _few(top, grid), prod(grid), draw)
    name = attributions.map_name(map, explain)
    attributions.explanation_of(Recipe.parse(name))  # refuses what cannot be made

    def ranked(batch: Pass, grid: tuple[int, ...]) -> Tensor:
        values = batch.arrays[name]
        if tuple(values.shape[1:]) != grid:
            if any(v < g for v, g in zip(values.shape[1:], grid)):
                raise SettingError(
                    f"{name!r} has cells {tuple(values.shape[1:])} and there are tokens {grid}: rank by a finer map"
                )
            values = F.adaptive_avg_pool2d(values[:, None], (grid[0], grid[1]))[:, 0]
        # A stable order, so that equal values always rank the same.
        return torch.argsort(values.flatten(1), dim=1, descending=True, stable=True)[:, : _few(top, grid)]

    return (name,), ranked


def _random(batch: Pass, top: int, count: int, draw: int) -> Tensor:
    cohort, rows = batch.source
    orders = []
    for s in seeds(cohort.id[rows], "random tokens", draw):
        orders.append(torch.randperm(count, generator=generator(s)))
    return torch.stack(orders)[:, :top].to(batch.x.device)


def _few(top: int, grid: tuple[int, ...]) -> int:
    if top >= prod(grid):
        raise SettingError(f"top={top} of {prod(grid)} tokens: give fewer, so that some remain")
    return top


def _columns(arrays: tuple[str, ...]) -> tuple[str, ...]:
    """Columns of the cohort that the maps read."""
    columns: dict[str, None] = {}
    for name in arrays:
        columns |= dict.fromkeys(attributions.explanation_of(Recipe.parse(name)).reads)
    return tuple(columns)


def _read(batch: Pass) -> sequence.Tokens:
    """The batch as it enters the first block, read once for everything that leaves tokens out."""
    return batch.once("tokens", lambda: sequence.read(batch.classifier, batch.x))  # type: ignore[no-any-return]


def _kept(seen: sequence.Tokens, kept: Tensor) -> tuple[Tensor, Tensor]:
    """(b, d) features and (b, C) logits through the tokens that are kept, (b, T); images of equal count run together."""
    count, order = kept.sum(1), []
    outputs: list[tuple[Tensor, Tensor]] = []
    for n in count.unique().tolist():
        image = (count == n).nonzero()[:, 0]
        patches = kept[image].nonzero()[:, 1].view(len(image), n)
        outputs.append(seen.read(image, seen.keeping(patches)))
        order.append(image)
    back = torch.cat(order).argsort()
    features, logits = (torch.cat(parts)[back] for parts in zip(*outputs))
    return features, logits


# ---- where an object lies ------------------------------------------------------------------------------------------------


def _share(
    cohort: Cohort, row: int, by: str, classifier: Classifier, sides: tuple[int, ...], grid: tuple[int, ...]
) -> np.ndarray:
    """(gh, gw) share of each cell that the object of a row covers."""
    if not _has(cohort, row, by):
        return np.full(grid, np.nan, np.float32)
    if by == "box":
        source = images.shape(cohort.image[row], root=cohort.root)
        placed = images.place_boxes(_boxes(cohort)[row], source, classifier.geometry)
        return united(placed, sides, grid)
    return _cell_means(_mask(cohort, row, classifier), sides, grid)


def _cell_means(mask: np.ndarray, sides: tuple[int, ...], grid: tuple[int, ...]) -> np.ndarray:
    """(gh, gw) share of each cell's pixels that are in a mask."""
    mask = mask[tuple(slice(0, side * g) for side, g in zip(sides, grid))]
    total = np.add.reduceat(mask.astype(np.float32), np.arange(0, mask.shape[0], sides[0]), axis=0)
    area = np.add.reduceat(np.ones(mask.shape, np.float32), np.arange(0, mask.shape[0], sides[0]), axis=0)
    for axis in range(1, mask.ndim):
        at = np.arange(0, mask.shape[axis], sides[axis])
        total, area = np.add.reduceat(total, at, axis=axis), np.add.reduceat(area, at, axis=axis)
    return (total / area).astype(np.float32)


def united(boxes: np.ndarray, sides: tuple[int, ...], grid: tuple[int, ...]) -> np.ndarray:
    """(gh, gw) share of each cell of `sides` pixels that boxes (k, 4) of x0, y0, x1, y1 cover together."""
    x0, y0, x1, y1 = boxes.T
    # Between neighbouring edges, of cells and of boxes, a rectangle is covered whole or not at all.
    y, height, rows = _strips(np.concatenate([y0, y1]), grid[0], sides[0])
    x, width, columns = _strips(np.concatenate([x0, x1]), grid[1], sides[1])
    covered = np.zeros((len(y), len(x)))
    for left, top, right, bottom in boxes:
        covered[np.ix_((y > top) & (y < bottom), (x > left) & (x < right))] = 1.0
    out = np.zeros(grid)
    np.add.at(out, np.ix_(rows, columns), covered * height[:, None] * width[None])
    return (out / prod(sides)).astype(np.float32)


def _strips(edges_of_boxes: np.ndarray, cells: int, side: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Middle, length and cell of every strip between neighbouring edges along one axis."""
    grid = np.arange(cells + 1) * float(side)
    edges = np.clip(np.unique(np.concatenate([grid, edges_of_boxes])), 0, grid[-1])
    middle = (edges[:-1] + edges[1:]) / 2
    return middle, np.diff(edges), np.minimum(np.searchsorted(grid, middle, side="right") - 1, cells - 1)


def _pixels(cohort: Cohort, row: int, by: str, classifier: Classifier) -> np.ndarray | None:
    """(*size) input pixels in the object of a row; None where it has none."""
    if not _has(cohort, row, by):
        return None
    if by == "mask":
        return _mask(cohort, row, classifier)
    geometry = classifier.geometry
    source = images.shape(cohort.image[row], root=cohort.root)
    return images.boxes_to_mask(images.place_boxes(_boxes(cohort)[row], source, geometry), geometry.size)


def _read_columns(by: str) -> tuple[str, ...]:
    if by == "fov":
        return ()
    return (by,)


def _has(cohort: Cohort, row: int, by: str) -> bool:
    if by == "box":
        return len(_boxes(cohort)[row]) > 0
    return bool(_masks(cohort)[row])


def _mask(cohort: Cohort, row: int, classifier: Classifier) -> np.ndarray:
    return images.load_mask(_masks(cohort)[row], classifier.geometry, root=cohort.root)


def _boxes(cohort: Cohort) -> Any:
    if cohort.box is None:
        raise DataError(f"cohort '{cohort.name}' has no boxes: give box= when reading the manifest")
    return cohort.box


def _masks(cohort: Cohort) -> Any:
    if cohort.mask is None:
        raise DataError(f"cohort '{cohort.name}' has no masks: give mask= when reading the manifest")
    return cohort.mask


def _grid(classifier: Classifier, sides: tuple[int, ...], patch: int) -> tuple[int, ...]:
    """Cells along each axis; the network's own patches leave out what does not fill one; of given ones the last is cut."""
    size = classifier.geometry.size
    return tuple(-(-s // side) if patch else s // side for s, side in zip(size, sides))


def _has_cells(patch: int) -> Callable[[Classifier], None]:
    """Refuse a network without patches of its own where no cell size is given."""

    def check(classifier: Classifier) -> None:
        patch_of(classifier, patch)

    return check


def _refuse_unknown(what: str, given: str, known: tuple[str, ...]) -> None:
    if given not in known:
        raise SettingError(f"{what}={given}: {suggest(str(given), known)}")
