"""From stored attribution maps to scores of regions: partitions (sec. III-E), and the cohort's transforms to a common space."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import ndimage

from rightreasons import partitions as cutting
from rightreasons.audits.oscar.pictures import drawing_step, thinned
from rightreasons.data import images
from rightreasons.data.facts import Facts
from rightreasons.data.images import Geometry
from rightreasons.errors import DataError, SettingError
from rightreasons.evidence import View
from rightreasons.stats import profiles
from rightreasons.stats.spatial import Places, region_centroids

SMALL = 64  # images of fewer pixels a side are cut into half as many cells
KINDS = ("grid:16", "grid:16x16", "superpixel:256", "atlas:labels.nii.gz")
FEWEST_REGIONS = 4  # that a correlation over regions needs


@dataclass(frozen=True)
class Partition:
    """Regions of the image that all models are cut by.

    Attributes
    ----------
    regions : (*size) region numbers, negative for no region
    cells : of a grid along every axis; empty for other partitions
    names : (R,) of the regions
    note : what the user should know about it, such as labels without a voxel
    """

    name: str
    regions: np.ndarray
    cells: tuple[int, ...]
    names: tuple[str, ...]
    note: str = ""

    @property
    def R(self) -> int:
        return len(self.names)

    @property
    def centroids(self) -> np.ndarray:
        return region_centroids(self.regions)


@dataclass(frozen=True)
class Cut:
    """How the images of a study are cut: by which partitions, at which geometry of the model's input.

    Attributes
    ----------
    partitions : the first one decides
    geometry_known : whether the model's card says at which size and crop it read its images
    """

    partitions: tuple[Partition, ...]
    geometry: Geometry
    geometry_known: bool

    @property
    def axes(self) -> int:
        return len(self.geometry.size)


@dataclass(frozen=True)
class Regions:
    """The regions that one model was cut by, as a measurement stores them: all partitions, one after the other.

    Attributes
    ----------
    partition, note : (P,) name of every partition, and what the user should know about it
    R : (P,) number of regions
    cells : (P, axes) cells along every axis; 0 where a partition is no grid
    name : (sum R,) names of the regions
    centroids : (sum R, axes)
    drawn : (P, *drawn) region numbers at drawing size
    geometry_known : whether the card says at which size and crop the model read its images
    """

    partition: tuple[str, ...]
    note: tuple[str, ...]
    R: np.ndarray
    cells: np.ndarray
    name: tuple[str, ...]
    centroids: np.ndarray
    drawn: np.ndarray
    geometry_known: bool

    def columns(self, k: int) -> slice:
        """The columns of partition k, where all partitions stand side by side."""
        end = np.cumsum(self.R)
        return slice(int(end[k] - self.R[k]), int(end[k]))

    def grid(self, k: int) -> tuple[int, ...] | None:
        """Cells along every axis of partition k; None where it is no grid."""
        if not self.cells[k].all():
            return None
        return tuple(map(int, self.cells[k]))

    def places(self, k: int) -> Places:
        """Where the regions of partition k lie."""
        return Places(self.centroids[self.columns(k)], self.grid(k))

    def same_as(self, other: Regions) -> bool:
        return self.partition == other.partition and np.array_equal(self.drawn, other.drawn)


def cut_images(
    view: View,
    space: Sequence[int],
    partitions: str | Sequence[str] | None = None,
    names: Mapping[Any, str] | str | None = None,
    size: int | Sequence[int] | None = None,
) -> Cut:
    """Cut the images that maps of the shape `space` explain, by the partitions asked for or the default ones (sec. III-E).

    Superpixels come from the edges of all test rows, not of the balanced ones alone.
    """
    test = view.evidence.on("test")
    geometry = input_geometry(view, space, size)
    facts = Facts(None, test.cohort, geometry)
    affine = facts.affine if test.cohort.has_images else _no_affine
    if isinstance(partitions, str):
        specs = [partitions]
    else:
        specs = list(partitions or default_partitions(geometry.size))
    made = tuple(partition(spec, geometry.size, edges=facts.edge_image, affine=affine, names=names) for spec in specs)
    if made[0].R < FEWEST_REGIONS:
        raise SettingError(
            f"{specs[0]!r} has {made[0].R} regions, and a correlation over regions needs at least {FEWEST_REGIONS}"
        )
    return Cut(made, geometry, geometry_known=size is None and bool(_geometry_on_card(view)))


def stored_regions(cut: Cut) -> Regions:
    """The regions of a cut, as a measurement keeps them."""
    parts, step = cut.partitions, drawing_step(cut.geometry.size)
    names: list[str] = []
    for part in parts:
        names += part.names
    return Regions(
        partition=tuple(part.name for part in parts),
        note=tuple(part.note for part in parts),
        R=np.array([part.R for part in parts]),
        cells=np.array([part.cells or (0,) * cut.axes for part in parts]),
        name=tuple(names),
        centroids=np.concatenate([part.centroids for part in parts]),
        drawn=np.stack([thinned(part.regions, step, cut.axes) for part in parts]).astype(np.int32),
        geometry_known=cut.geometry_known,
    )


def input_geometry(view: View, space: Sequence[int], size: int | Sequence[int] | None) -> Geometry:
    """The geometry at which the model read its images.

    The card says it where the evidence was extracted here. Otherwise `size`, or else the shape of the first image, is taken for
    the input's, and the images for whole; without images the maps are enlarged to at least `SMALL` pixels.
    """
    on_card = _geometry_on_card(view)
    if size is None and on_card:
        return Geometry(**on_card)
    axes = len(space)
    if size is not None:
        if isinstance(size, int):
            assumed = (size,) * axes
        else:
            assumed = tuple(size)
        if len(assumed) != axes:
            raise SettingError(
                f"size={size} has {len(assumed)} axes and the maps {axes} {tuple(space)}: give one number for each"
            )
    elif view.cohort.has_images:
        assumed = images.shape(view.cohort.image[0], root=view.cohort.root)[:-1]
        if len(assumed) != axes:
            raise DataError(f"the first image has {len(assumed)} axes {assumed} and the maps {axes} {tuple(space)}: give size=")
    else:
        assumed = tuple(s * max(1, -(-SMALL // s)) for s in space)
    if any(s < small for s, small in zip(assumed, space, strict=True)):
        raise SettingError(f"an input of {assumed} is smaller than its maps {tuple(space)}: give size= of the model's input")
    return Geometry(assumed, mode="squash")


def default_partitions(size: Sequence[int]) -> tuple[str, str]:
    """16x16 cells (8x8 in small images and in volumes, where cells are counted along three axes), and half as many beside."""
    cells = 16 if min(size) >= SMALL and len(size) == 2 else 8
    cells = min(cells, min(size))
    return f"grid:{cells}", f"grid:{max(1, cells // 2)}"


def partition(
    spec: str,
    size: Sequence[int],
    *,
    edges: Callable[[], np.ndarray],
    affine: Callable[[], np.ndarray | None],
    names: Mapping[Any, str] | str | None = None,
) -> Partition:
    """One partition by its name, such as those of `KINDS`.

    Parameters
    ----------
    edges, affine : called where needed: mean edge image, and voxel of the input → world
    names : label of an atlas → name of the region, or a file of them (JSON, or a table whose first two columns they are)
    """
    kind, _, rest = str(spec).partition(":")
    if kind == "grid" and re.fullmatch(r"\d+(x\d+)*", rest):
        counts = tuple(map(int, rest.split("x")))
        return _grid(size, counts * len(size) if len(counts) == 1 else counts)
    if kind == "superpixel" and rest.isdigit():
        if len(size) != 2:
            raise SettingError(
                f"{spec!r}: superpixels are for images, and these maps are volumes {tuple(size)}: give a grid or an atlas"
            )
        return _superpixels(edges(), int(rest))
    if kind == "atlas" and rest:
        return _atlas(rest, size, affine, names)
    raise SettingError(f"{spec!r} is no partition; give one such as {', '.join(KINDS)}")


def score_regions(view: View, recipe: str, cut: Cut, region: str | float) -> list[np.ndarray]:
    """Region scores (n, R) of every partition (Algorithm 1, lines 4 to 7).

    Maps are rectified and scaled to sum 1 each (sec. IV-D), brought to the common space where the cohort has transforms
    (sec. IV-E), and enlarged.

    Parameters
    ----------
    region : "mean", "saliency", or a percentile from 0 to 100
    """
    statistic, percentile = _statistic(region)
    affines = row_affines(view, cut.axes)
    blocks: list[list[np.ndarray]] = [[] for _ in cut.partitions]
    for rows, block in view.blocks(recipe, chunks=1):
        maps = normalised(block)
        if affines is not None:
            maps = np.stack([moved(m, affines[row], cut.geometry.size) for m, row in zip(maps, rows, strict=True)])
        for of_partition, part in zip(blocks, cut.partitions, strict=True):
            of_partition.append(profiles.region_scores(maps, part.regions, statistic, percentile))
    return [np.concatenate(of_partition) for of_partition in blocks]


def normalised(maps: np.ndarray) -> np.ndarray:
    """Maps (n, *space) without their negative part, of sum 1 each; an empty map stays zero (sec. IV-D)."""
    positive = np.maximum(np.asarray(maps, dtype=np.float64), 0.0)
    total = positive.reshape(len(positive), -1).sum(axis=1).reshape(-1, *(1,) * (positive.ndim - 1))
    return np.divide(positive, total, out=np.zeros_like(positive), where=total > 0)


def row_affines(view: View, axes: int) -> list[np.ndarray] | None:
    """The transform of every row to the common space, from the cohort's `transform` column; None without one.

    A transform is a file (.npy or text) of a matrix (axes + 1, axes + 1) from pixels of the model's input to pixels of the common
    space, which has the input's size. Displacement fields are refused: they are applied to images, before the model sees them.
    """
    if view.cohort.transform is None:
        return None
    return [_read_affine(str(name), view.cohort.root, axes) for name in view.cohort.transform]


def moved(values: np.ndarray, affine: np.ndarray, size: Sequence[int]) -> np.ndarray:
    """A map of the input, coarse or fine, in the common space at `size`: interpolated linearly, 0 outside the image."""
    scale = np.array(values.shape) / np.array(size)
    back = np.linalg.inv(affine)
    matrix = scale[:, None] * back[:-1, :-1]
    offset = scale * (back[:-1, -1] + 0.5) - 0.5
    # A pixel in the outer half of the image's last pixel is still in the image.
    padded = np.pad(values, 1, mode="edge")
    return ndimage.affine_transform(padded, matrix, offset + 1, output_shape=tuple(size), order=1, mode="constant")


# ---- what the functions above use ----------------------------------------------------------------------------------------


def _no_affine() -> None:
    """Of a cohort without images."""


def _geometry_on_card(view: View) -> dict[str, Any]:
    return dict(view.evidence.card.settings.get("geometry") or {})


def _grid(size: Sequence[int], cells: tuple[int, ...]) -> Partition:
    regions = cutting.grid(size, cells)
    names = tuple(map(_cell_name, np.ndindex(*cells)))
    return Partition("x".join(map(str, cells)) + " cells", regions, cells, names)


def _cell_name(place: tuple[int, ...]) -> str:
    """A cell of a grid by its place, counted from 1."""
    axes = ("row", "column") if len(place) == 2 else ("x", "y", "z")
    return ", ".join(f"{axis} {i + 1}" for axis, i in zip(axes, place, strict=True))


def _superpixels(edges: np.ndarray, number: int) -> Partition:
    regions = cutting.superpixel(edges, number)
    R = int(regions.max()) + 1
    note = ""
    if number != R:
        note = f"SLIC gave {R} superpixels where {number} were asked for"
    return Partition(f"{R} superpixels", regions, (), tuple(f"superpixel {r}" for r in range(R)), note)


def _atlas(
    path: str, size: Sequence[int], affine: Callable[[], np.ndarray | None], names: Mapping[Any, str] | str | None
) -> Partition:
    target = affine() if path.endswith((".nii", ".nii.gz")) else None
    regions = cutting.atlas(path, size, target_affine=target)
    labels, dropped = cutting.atlas_labels(path, size, target_affine=target)
    if len(labels) < FEWEST_REGIONS:
        raise DataError(
            f"{path}: {len(labels)} regions lie in the images, at least {FEWEST_REGIONS} are needed: check that the two overlap"
        )
    known = _region_names(names)
    called = tuple(known.get(int(label), f"label {label}") for label in labels)
    lost = ", ".join(known.get(int(label), str(label)) for label in dropped)
    note = ""
    if len(dropped):
        note = f"without a voxel at this resolution, and left out: {lost}"
    return Partition(f"atlas {Path(path).name}", regions, (), called, note)


def _region_names(given: Mapping[Any, str] | str | None) -> dict[int, str]:
    if given is None:
        return {}
    if not isinstance(given, str):
        return {int(label): str(name) for label, name in given.items()}
    path = Path(given)
    if not path.is_file():
        raise SettingError(f"no file of region names at {path}: give JSON, or a table whose first two columns are label and name")
    text = path.read_text(encoding="utf-8-sig")
    if path.suffix == ".json":
        return {int(label): str(name) for label, name in json.loads(text).items()}
    if path.suffix == ".csv":
        rows = list(csv.reader(text.splitlines()))
    else:
        rows = [re.split(r"\t|\s+", line.strip()) for line in text.splitlines()]
    by_label = {}
    for row in rows:
        if len(row) > 1 and row[0].strip().isdigit():
            by_label[int(row[0])] = row[1].strip()
    if not by_label:
        raise SettingError(f"{path} names no region: its first two columns must be a whole number and a name")
    return by_label


def _statistic(region: str | float) -> tuple[str, float]:
    if region in ("mean", "saliency"):
        return str(region), 50.0
    if isinstance(region, int | float) and not isinstance(region, bool):
        return "percentile", float(region)
    raise SettingError(f"region={region!r} is no statistic of a region; give mean, saliency, or a percentile from 0 to 100")


def _read_affine(name: str, root: Path, axes: int) -> np.ndarray:
    path = Path(root) / name
    if not name or not path.is_file():
        raise DataError(f"transform {name!r} is no file in {root}: every row needs one, or leave transform= out")
    if path.suffix not in (".npy", ".txt", ".mat"):
        raise DataError(
            f"transform {path} is not applied to maps: give a matrix (.npy, .txt) from pixels of the input to pixels of the "
            "common space; for a displacement field, warp the images themselves before the models see them"
        )
    try:
        if path.suffix == ".npy":
            numbers = np.load(path)
        else:
            numbers = np.loadtxt(path)
    except ValueError as error:
        raise DataError(f"transform {path} is no matrix of numbers ({error}): give ({axes + 1}, {axes + 1})") from error
    matrix = np.asarray(numbers, dtype=np.float64)
    if matrix.shape != (axes + 1, axes + 1) or not np.isfinite(matrix).all() or abs(np.linalg.det(matrix)) < 1e-12:
        raise DataError(
            f"transform {path} has shape {matrix.shape}; an invertible matrix ({axes + 1}, {axes + 1}) is expected. A "
            "displacement field is not applied to maps: warp the images themselves before the models see them"
        )
    return matrix
