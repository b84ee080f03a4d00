"""Regions: every pixel in exactly one cell, superpixels in reading order, atlases without their background."""

from __future__ import annotations

import numpy as np
import pytest

from rightreasons.errors import DataError, SettingError
from rightreasons.partitions import OUTSIDE, atlas, atlas_labels, grid, superpixel


@pytest.mark.parametrize(("shape", "cells"), [((32, 32), 8), ((33, 31), 8), ((7, 7), (7, 3)), ((9, 10, 11), 4), ((5,), 2)])
def test_a_grid_gives_every_pixel_one_of_all_its_cells(shape, cells) -> None:
    regions = grid(shape, cells)
    counts = (cells,) * len(shape) if isinstance(cells, int) else cells
    assert regions.shape == shape
    assert np.array_equal(np.unique(regions), np.arange(np.prod(counts)))


def test_cells_of_a_grid_differ_by_at_most_one_pixel_a_side() -> None:
    widths = np.unique(grid((1, 31), (1, 8)), return_counts=True)[1]
    assert widths.max() - widths.min() == 1
    assert widths.sum() == 31


def test_a_grid_is_numbered_row_by_row() -> None:
    assert grid((2, 4), (2, 2)).tolist() == [[0, 0, 1, 1], [2, 2, 3, 3]]


@pytest.mark.parametrize("cells", [0, 9, (2, 2, 2)])
def test_a_grid_that_cannot_be_is_refused(cells) -> None:
    with pytest.raises(SettingError):
        grid((8, 8), cells)


def test_superpixels_are_numbered_by_their_centroids_row_by_row(rng) -> None:
    edges = np.abs(rng.normal(size=(64, 64)))
    regions = superpixel(edges, 16)
    rows = np.array([np.argwhere(regions == r).mean(axis=0) for r in range(regions.max() + 1)])
    assert np.array_equal(np.unique(regions), np.arange(regions.max() + 1))
    assert (np.diff(rows[:, 0]) >= 0).all()


def test_superpixels_follow_an_edge() -> None:
    edges = np.zeros((40, 40))
    edges[:, 20:] = 50.0
    regions = superpixel(edges, 8, compactness=0.1)
    left, right = set(regions[:, :20].ravel()), set(regions[:, 20:].ravel())
    assert not left & right


def test_an_atlas_leaves_its_background_out_and_counts_its_labels_in_order() -> None:
    labels = np.array([[0, 7, 7], [0, 3, 12]])
    assert atlas(labels).tolist() == [[OUTSIDE, 1, 1], [OUTSIDE, 0, 2]]
    kept, dropped = atlas_labels(labels)
    assert kept.tolist() == [3, 7, 12]
    assert not len(dropped)


def test_an_atlas_of_another_shape_is_resampled_and_lost_labels_are_named() -> None:
    labels = np.ones((8, 8), dtype=int)
    labels[0, 0] = 5
    regions = atlas(labels, (2, 2))
    kept, dropped = atlas_labels(labels, (2, 2))
    assert regions.shape == (2, 2)
    assert kept.tolist() == [1]
    assert dropped.tolist() == [5]


def test_an_atlas_is_resampled_by_its_affine() -> None:
    labels = np.zeros((4, 4, 4), dtype=int)
    labels[2, 1, 0] = 9
    fine = np.diag([0.5, 0.5, 0.5, 1.0])  # maps at twice the resolution, origins at voxel centres
    regions = atlas(labels, (8, 8, 8), affine=np.eye(4), target_affine=fine)
    assert {tuple(p) for p in np.argwhere(regions == 0)} >= {(4, 2, 0)}
    assert regions[0, 0, 0] == OUTSIDE


def test_an_atlas_is_read_from_nifti_npy_and_png(tmp_path) -> None:
    from PIL import Image

    labels = np.array([[0, 1], [2, 2]], dtype=np.uint8)
    np.save(tmp_path / "a.npy", labels)
    Image.fromarray(labels).save(tmp_path / "a.png")
    assert np.array_equal(atlas(tmp_path / "a.npy"), atlas(tmp_path / "a.png"))
    nibabel = pytest.importorskip("nibabel")
    volume = np.zeros((3, 3, 3), dtype=np.int16)
    volume[1, 1, 1] = 4
    nibabel.save(nibabel.Nifti1Image(volume, np.eye(4)), tmp_path / "a.nii.gz")
    assert atlas(str(tmp_path / "a.nii.gz"))[1, 1, 1] == 0


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (np.array([[0.5, 1.0]]), "whole numbers"),
        (np.array([[-1, 1]]), "from 0"),
        (np.zeros((2, 2), int), "no label but 0"),
    ],
)
def test_an_atlas_that_is_none_is_refused(labels, said) -> None:
    with pytest.raises(DataError, match=said):
        atlas(labels)
    with pytest.raises(DataError, match="same"):
        atlas(np.ones((2, 2), int), (2, 2, 2))
