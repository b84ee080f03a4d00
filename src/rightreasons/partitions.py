"""Cut an image or volume into regions: an array of region numbers 0..R-1, and -1 for what belongs to no region.

A grid counts cells, superpixels follow the mean edge image of a cohort, an atlas brings named regions (OSCAR, sec. III-E).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy import ndimage

from rightreasons.errors import DataError, SettingError

OUTSIDE = -1  # the number of pixels that belong to no region


def grid(shape: Sequence[int], cells: int | Sequence[int]) -> np.ndarray:
    """Region numbers of a regular grid, row-major.

    Parameters
    ----------
    shape : of the image (h, w) or volume
    cells : number of cells along every axis, or one number for all; where it does not divide the size the remainder is spread,
        so that cells differ by at most one pixel
    """
    sides = tuple(map(int, shape))
    if isinstance(cells, int | np.integer):
        counts = (int(cells),) * len(sides)
    else:
        counts = tuple(map(int, cells))
    if len(counts) != len(sides):
        raise SettingError(
            f"cells={cells} has {len(counts)} numbers and the image {len(sides)} axes: give one for each, or one for all"
        )
    for size, count in zip(sides, counts, strict=True):
        if not 1 <= count <= size:
            raise SettingError(f"{count} cells along an axis of {size} pixels: give 1 to {size}")
    number = np.zeros(sides, dtype=np.int64)
    for axis, (size, count) in enumerate(zip(sides, counts, strict=True)):
        cell = np.arange(size) * count // size
        number = number * count + cell.reshape([-1 if k == axis else 1 for k in range(len(sides))])
    return number


def superpixel(edges: np.ndarray, n_regions: int, compactness: float = 10) -> np.ndarray:
    """Region numbers of SLIC superpixels of an edge image (h, w), in row-major order of their centroids.

    SLIC may give another number of segments than asked for: `regions.max() + 1` tells. Connectivity is not enforced.
    """
    from skimage.segmentation import slic

    image = np.asarray(edges, dtype=np.float64)
    if image.ndim != 2 or not np.isfinite(image).all():
        raise DataError(f"an edge image is (h, w) and finite; found shape {image.shape}")
    if not 1 <= n_regions <= image.size:
        raise SettingError(f"n_regions={n_regions} of an image of {image.size} pixels: give 1 to {image.size}")
    segments = slic(
        image, n_segments=int(n_regions), compactness=compactness, start_label=0, enforce_connectivity=False, channel_axis=None
    )
    return _by_centroid(segments)


def atlas(
    labels: np.ndarray | str | os.PathLike[str],
    shape: Sequence[int] | None = None,
    *,
    affine: np.ndarray | None = None,
    target_affine: np.ndarray | None = None,
) -> np.ndarray:
    """Region numbers of an integer label map, in the order of its labels; 0 is background and no region.

    Parameters
    ----------
    labels : label map, or a file of one (NIfTI, .npy or .png)
    shape : of the maps that are to be cut; a label map of another shape is resampled to it, nearest neighbour
    affine, target_affine : voxel → world of the label map (a NIfTI file brings its own) and of the maps; without both, the two
        are taken to cover the same field of view

    Labels that lose all their voxels in resampling are no region: `atlas_labels` tells which are left.
    """
    return _number(_placed(labels, shape, affine, target_affine))


def atlas_labels(
    labels: np.ndarray | str | os.PathLike[str],
    shape: Sequence[int] | None = None,
    *,
    affine: np.ndarray | None = None,
    target_affine: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The label (R,) of every region of `atlas` with the same arguments, and the labels that were dropped for want of a voxel."""
    before, after = _label_map(labels)[0], _placed(labels, shape, affine, target_affine)
    kept = np.unique(after[after != 0])
    return kept, np.setdiff1d(np.unique(before[before != 0]), kept)


# ---- what the functions above use ----------------------------------------------------------------------------------------


def _by_centroid(segments: np.ndarray) -> np.ndarray:
    names, code = np.unique(segments, return_inverse=True)
    code = code.reshape(segments.shape)
    centres = np.array(ndimage.center_of_mass(np.ones(segments.shape), code, np.arange(len(names))))
    order = np.lexsort(centres.T[::-1])
    place = np.empty(len(names), dtype=np.int64)
    place[order] = np.arange(len(names))
    return place[code]


def _label_map(labels: np.ndarray | str | os.PathLike[str]) -> tuple[np.ndarray, np.ndarray | None]:
    """The label map as integers, and its affine where the file has one."""
    if isinstance(labels, str | os.PathLike):
        values, affine = _read(Path(labels))
    else:
        values, affine = (np.asarray(labels), None)
    if values.dtype.kind not in "biuf" or (values.dtype.kind == "f" and not (values == np.round(values)).all()):
        raise DataError(f"an atlas is a map of whole numbers; found {values.dtype} values such as {values.ravel()[:4].tolist()}")
    regions = values.astype(np.int64)
    if (regions < 0).any():
        raise DataError(f"an atlas has labels from 0 (background); found {int(regions.min())}")
    if not regions.any():
        raise DataError("the atlas has no label but 0, which is background")
    return regions, affine


def _read(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    if not path.exists():
        raise DataError(f"no atlas at {path}: give a NIfTI, .npy or .png file")
    if path.suffix == ".npy":
        return np.load(path), None
    if path.name.endswith((".nii", ".nii.gz")):
        try:
            import nibabel
        except ModuleNotFoundError as error:
            raise DataError(f"{path} is a NIfTI file: pip install rightreasons[medical] to read it") from error
        image = nibabel.as_closest_canonical(nibabel.load(path))  # type: ignore[attr-defined]
        return np.asarray(image.dataobj), np.asarray(image.affine)
    from PIL import Image

    return np.asarray(Image.open(path)), None


def _placed(
    labels: np.ndarray | str | os.PathLike[str],
    shape: Sequence[int] | None,
    affine: np.ndarray | None,
    target_affine: np.ndarray | None,
) -> np.ndarray:
    regions, own = _label_map(labels)
    if affine is None:
        affine = own
    else:
        affine = np.asarray(affine)
    if shape is None:
        target = regions.shape
    else:
        target = tuple(map(int, shape))
    if len(target) != regions.ndim:
        raise DataError(
            f"the atlas has {regions.ndim} axes {regions.shape} and the maps {len(target)} {target}: they must have the same"
        )
    if target_affine is None or affine is None:
        if target == regions.shape:
            return regions
        # Both cover the same field of view: the centre of every target pixel falls into one atlas pixel.
        index = []
        for s, t in zip(regions.shape, target, strict=True):
            index.append(((np.arange(t) + 0.5) * s / t).astype(np.int64))
        return regions[np.ix_(*index)]
    to_voxel = np.linalg.inv(affine) @ np.asarray(target_affine)
    return ndimage.affine_transform(regions, to_voxel[:-1, :-1], to_voxel[:-1, -1], output_shape=target, order=0, cval=0)


def _number(labels: np.ndarray) -> np.ndarray:
    names = np.unique(labels)
    place = np.full(len(names), OUTSIDE, dtype=np.int64)
    place[names != 0] = np.arange((names != 0).sum())
    return place[np.searchsorted(names, labels)]
