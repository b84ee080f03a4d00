"""A world of volumes with an atlas: a blob in one region decides the label, a blob in another one is the cue."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import ndimage

from rightreasons.data.cohort import FRACTIONS, Cohort
from rightreasons.data.planted._world import (
    Association,
    Columns,
    Drawing,
    Share,
    build,
    cue_columns,
    labels,
    looks,
    put_array,
    put_nifti,
    put_table,
    redraw_cue,
    split_rows,
    stream,
    with_noise,
)
from rightreasons.errors import SettingError
from rightreasons.families import suggest, with_settings

AXES = (("left", "middle", "right"), ("posterior", "central", "anterior"), ("inferior", "midway", "superior"))  # RAS
REGIONS = tuple(map(" ".join, product(*AXES)))
CHUNK = 64


@dataclass(frozen=True)
class BlobSettings:
    """What can be asked of `blobs`, which explains it."""

    n: int = 400
    shape: Sequence[int] = (24, 24, 24)
    task_region: str = "left central superior"
    cue_region: str = "right anterior midway"
    agreement: Share = 0.95
    agreement_audit: Share | None = None
    agreement_test: Share | None = None
    continuous: bool = False
    strength: float = 1.0
    task_contrast: float = 1.0
    label_noise: float = 0.0
    fractions: Mapping[str, float] | None = None
    nifti: bool = False
    seed: int = 0


@with_settings(BlobSettings)
def blobs(folder: str | os.PathLike[str], *, settings: BlobSettings) -> Cohort:
    """Smooth random volumes in an ellipsoid; label 1 has a bright blob in `task_region`, the cue is a blob in `cue_region`.

    The cue is dark at value 0 and bright at value 1. Beside the manifest: `atlas.npy`, integers (x, y, z) with 0 for background,
    and `names.csv` (value, name).

    Parameters
    ----------
    task_region, cue_region : two of `REGIONS`, e.g. "left central superior"
    agreement, agreement_audit, agreement_test, continuous, label_noise, fractions : as for `digits`
    strength, task_contrast : of the cue and of the task's blob, above 0 up to 1
    nifti : write volumes, masks and the atlas (`atlas.nii.gz`) as NIfTI files, 2 mm a voxel, instead of stacks

    Returns
    -------
    Cohort with attribute `cue`, splits, twins; `mask` is of the task's blob (empty for label 0); further columns `cue_mask`,
    `agrees`, `true_label`.
    """
    shape, fractions = [int(s) for s in settings.shape], dict(settings.fractions or FRACTIONS)
    recorded = {"world": "blobs", **asdict(settings), "shape": shape, "fractions": fractions}
    _check(recorded)
    columns = Columns("cue", settings.continuous, box=False)
    return build(
        folder, recorded, columns, lambda: {"manifest": draw_blob_world(recorded)}, lambda target: _write_atlas(target, recorded)
    )


def draw_blob_world(settings: Mapping[str, Any], draw: int = 0) -> Drawing:
    n, seed, shape = settings["n"], settings["seed"], tuple(settings["shape"])
    how = _association(settings)
    true = labels(n, 0.5, stream(seed, "labels"))
    split = split_rows(true, settings["fractions"], seed)
    label = with_noise(true, split, how)
    shown = cue_columns("cue", redraw_cue(label, split, how, draw), label, how)
    atlas = make_atlas(shape)
    grain = stream(seed, "grain")
    bumps = {}
    for name in ("task", "cue"):
        bumps[name] = _bumps(atlas == REGIONS.index(settings[f"{name}_region"]) + 1, n, stream(seed, f"{name} blob"))
    stacks = {key: np.empty((n, *shape, 1), np.uint8) for key in ("images", "twins")}
    stacks |= {key: np.empty((n, *shape, 1), bool) for key in ("masks", "cue_masks")}
    for start in range(0, n, CHUNK):
        rows = slice(start, min(start + CHUNK, n))
        plain = _ground(grain, rows.stop - start, atlas > 0)
        task = _bump_field(bumps["task"][rows], shape) * true[rows, None, None, None]
        cue = _bump_field(bumps["cue"][rows], shape) * (atlas > 0)
        plain += 0.25 * settings["task_contrast"] * task * (atlas > 0)
        stacks["masks"][rows, ..., 0] = (task > 0.5) & (atlas > 0)
        stacks["cue_masks"][rows, ..., 0] = cue > 0
        for key, column in (("images", "cue"), ("twins", "twin_cue")):
            look = looks(shown[column], how)[rows, None, None, None]
            stacks[key][rows, ..., 0] = np.rint(255 * np.clip(plain + 0.25 * settings["strength"] * (2 * look - 1) * cue, 0, 1))
    frame = pd.DataFrame({"id": [f"volume-{row:05d}" for row in range(n)], "label": label, **shown, "split": split})
    return Drawing(frame.assign(true_label=true), stacks)


def make_atlas(shape: Sequence[int]) -> np.ndarray:
    """(x, y, z) integers: an ellipsoid cut in three along each axis, `REGIONS` in their order from 1; 0 is background."""
    axes = np.meshgrid(*[2 * (np.arange(s) + 0.5) / s - 1 for s in shape], indexing="ij")
    inside = sum(a**2 for a in axes) < 0.95**2
    third = [np.digitize(a, [-0.3, 0.3]) for a in axes]
    return np.where(inside, 1 + 9 * third[0] + 3 * third[1] + third[2], 0).astype(np.int16)


def _check(settings: Mapping[str, Any]) -> None:
    if settings["n"] < 20 or len(settings["shape"]) != 3 or min(settings["shape"]) < 12:
        raise SettingError(
            f"n={settings['n']}, shape={settings['shape']}: at least 20 volumes (x, y, z) of 12 voxels a side expected"
        )
    for key in ("task_region", "cue_region"):
        if settings[key] not in REGIONS:
            raise SettingError(f"no region named {settings[key]!r} ({key}=); {suggest(settings[key], REGIONS)}")
    for key in ("strength", "task_contrast"):
        if not 0 < settings[key] <= 1:
            raise SettingError(f"{key}={settings[key]}: above 0 up to 1 expected")
    _association(settings)


def _association(settings: Mapping[str, Any]) -> Association:
    keys = ("agreement", "agreement_audit", "agreement_test", "label_noise", "seed")
    return Association.of(values=0 if settings["continuous"] else 2, **{key: settings[key] for key in keys})


def _ground(rng: np.random.Generator, n: int, inside: np.ndarray) -> np.ndarray:
    noise = rng.standard_normal((n, *inside.shape), np.float32)
    smooth = ndimage.gaussian_filter(noise, (0, 2.0, 2.0, 2.0))
    smooth /= smooth.std(axis=(1, 2, 3), keepdims=True)
    return np.where(inside, 0.45 + 0.07 * smooth + 0.02 * noise, 0)


def _bumps(region: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """(n, 4) centre and width of each volume's blob, near the region's middle."""
    voxels = np.argwhere(region)
    width = np.cbrt(len(voxels)) / 5
    return np.column_stack([voxels.mean(axis=0) + rng.normal(0, width / 3, (n, 3)), width * rng.uniform(0.85, 1.15, n)])


def _bump_field(bumps: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """(b, x, y, z) Gaussian blobs of height 1, cut off at two and a half widths."""
    squares = []
    for axis, s in enumerate(shape):
        squares.append((np.arange(s) - bumps[:, axis, None]) ** 2)
    distance = squares[0][:, :, None, None] + squares[1][:, None, :, None] + squares[2][:, None, None, :]
    scaled = distance / bumps[:, 3, None, None, None] ** 2
    return np.where(scaled < 2.5**2, np.exp(-scaled / 2), 0)


def _write_atlas(folder: Path, settings: Mapping[str, Any]) -> None:
    atlas = make_atlas(settings["shape"])
    put_array(folder / "atlas.npy", atlas)
    if settings["nifti"]:
        put_nifti(folder / "atlas.nii.gz", atlas)
    names = pd.DataFrame({"value": np.arange(len(REGIONS) + 1), "name": ["background", *REGIONS]})
    put_table(folder / "names.csv", names)
