"""Decoded pixels are kept beside the cohort, survive a kill, and never serve an old image."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from rightreasons.data import facts as facts_module
from rightreasons.data import images
from rightreasons.data.cohort import Cohort
from rightreasons.data.facts import Facts
from rightreasons.data.images import Geometry
from rightreasons.errors import DataError, ImageError

GEOMETRY = Geometry((12, 12), 0.9)


def cohort_of(folder: Path, n: int = 20, deep: tuple[int, ...] = ()) -> Cohort:
    rng = np.random.default_rng(n)
    for k in range(n):
        pixels = (
            rng.integers(0, 65536, (20, 24), dtype=np.uint16) if k in deep else rng.integers(0, 256, (20, 24, 3), dtype=np.uint8)
        )
        Image.fromarray(pixels).save(folder / f"{k}.png")
    columns = {"id": [f"p{k}" for k in range(n)], "image": [f"{k}.png" for k in range(n)], "label": [k % 2 for k in range(n)]}
    return Cohort.from_columns(columns, root=folder)


def literal(cohort: Cohort) -> np.ndarray:
    pictures = [images.load(reference, GEOMETRY, root=cohort.root) for reference in cohort.image]
    if any(p.dtype != np.uint8 for p in pictures):
        pictures = [p if p.dtype != np.uint8 else (p.astype(np.float32) / 255).astype(np.float32) for p in pictures]
    return np.stack(pictures)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(facts_module, "CHUNK_BYTES", 3 * 12 * 12 * 3)  # three rows


@pytest.mark.parametrize("deep", [(), (0,), (13,)])
def test_the_map_holds_what_load_gives(tmp_path, deep):
    cohort = cohort_of(tmp_path, deep=deep)
    found = Facts(tmp_path / "facts", cohort, GEOMETRY).pixels()
    assert isinstance(found, np.memmap) and found.dtype == (np.float32 if deep else np.uint8)
    np.testing.assert_array_equal(found, literal(cohort))
    live = Facts(None, cohort, GEOMETRY).pixels()
    assert live.shape == found.shape
    np.testing.assert_array_equal(live[np.array([13, 0, 3])], found[[13, 0, 3]])
    np.testing.assert_array_equal(live[:], found)


def test_pixels_are_decoded_once(tmp_path, monkeypatch):
    cohort = cohort_of(tmp_path)
    Facts(tmp_path / "facts", cohort, GEOMETRY).pixels()
    monkeypatch.setattr(images, "load", lambda *_, **__: pytest.fail("decoded again"))
    facts = Facts(tmp_path / "facts", cohort, GEOMETRY)
    assert len(facts.pixels()) == 20


def test_a_bad_image_is_named_and_the_rest_is_kept(tmp_path, monkeypatch):
    cohort = cohort_of(tmp_path)
    whole = (tmp_path / "10.png").read_bytes()
    fingerprint = cohort.fingerprint  # of the sound image
    (tmp_path / "10.png").write_bytes(whole[:100])
    with pytest.raises(ImageError, match=r"row 'p10': .*10\.png"):
        Facts(tmp_path / "facts", cohort, GEOMETRY).pixels()
    (tmp_path / "10.png").write_bytes(whole)
    opened: list[str] = []
    load = images.load
    monkeypatch.setattr(images, "load", lambda reference, *a, **k: opened.append(reference) or load(reference, *a, **k))
    found = Facts(tmp_path / "facts", cohort, GEOMETRY).pixels()
    assert cohort.fingerprint == fingerprint and sorted(opened, key=lambda name: int(name[:-4])) == [
        f"{k}.png" for k in range(9, 20)
    ]
    monkeypatch.undo()
    np.testing.assert_array_equal(found, literal(cohort))


def test_a_changed_image_makes_a_new_map(tmp_path):
    first = Facts(tmp_path / "facts", cohort_of(tmp_path), GEOMETRY)
    before = np.array(first.pixels()), first.mean_image()
    Image.fromarray(np.zeros((20, 24, 3), np.uint8)).save(tmp_path / "4.png")
    columns = {"id": first.cohort.id, "image": first.cohort.image, "label": first.cohort.label}
    second = Facts(tmp_path / "facts", Cohort.from_columns(columns, root=tmp_path), GEOMETRY)
    assert second.folder != first.folder
    after = second.pixels()
    assert (after[4] == 0).all() and (before[0][4] != 0).any()
    assert (second.mean_image() < before[1]).any()
    assert Facts(tmp_path / "facts", first.cohort, Geometry((12, 12), 0.8)).folder != first.folder


@pytest.mark.parametrize("deep", [(), (5,)])
@pytest.mark.parametrize("is_kept", [True, False])
def test_the_mean_image_is_the_mean(tmp_path, deep, is_kept):
    cohort = cohort_of(tmp_path, deep=deep)
    pixels = literal(cohort)
    expected = (pixels / 255 if pixels.dtype == np.uint8 else pixels).mean(axis=0, dtype=np.float64)
    facts = Facts(tmp_path / "facts" if is_kept else None, cohort, GEOMETRY)
    for _ in range(2):
        np.testing.assert_allclose(facts.mean_image(), expected, atol=1e-6)


def test_the_edge_image_is_the_mean_of_sobel_magnitudes_of_scaled_grey_images(tmp_path):
    cohort = cohort_of(tmp_path)
    expected = []
    for pixels in literal(cohort):
        grey = pixels @ np.array([0.299, 0.587, 0.114])
        grey = np.pad((grey - grey.min()) / (grey.max() - grey.min()), 1, mode="edge")
        total = np.zeros((12, 12))
        for kernel in (np.outer([1, 2, 1], [-1, 0, 1]), np.outer([-1, 0, 1], [1, 2, 1])):
            total += sum(kernel[i, j] * grey[i : i + 12, j : j + 12] for i in range(3) for j in range(3)) ** 2
        expected.append(np.sqrt(total))
    facts = Facts(tmp_path / "facts", cohort, GEOMETRY)
    for _ in range(2):  # made, and read back
        np.testing.assert_allclose(facts.edge_image(), np.mean(expected, axis=0), atol=1e-5)
    np.testing.assert_allclose(Facts(None, cohort, GEOMETRY).edge_image(), facts.edge_image(), atol=1e-6)


def test_an_image_without_edges_counts_as_such(tmp_path):
    for k in range(2):
        pixels = np.full((12, 12, 3), 90, np.uint8)
        pixels[:, 6:] += np.uint8(100 * k)
        Image.fromarray(pixels).save(tmp_path / f"{k}.png")
    cohort = Cohort.from_columns({"id": ["a", "b"], "image": ["0.png", "1.png"], "label": [0, 1]}, root=tmp_path)
    edges = Facts(None, cohort, images.Geometry((12, 12))).edge_image()
    np.testing.assert_allclose(edges[6, [2, 5, 6, 9]], [0, 2, 2, 0], atol=1e-6)  # half of 4, the step of one of the two


def test_volumes_have_an_affine_of_the_input_and_must_share_it(tmp_path):
    nibabel = pytest.importorskip("nibabel")
    world = np.array([[2.0, 0, 0, -10], [0, 2, 0, -20], [0, 0, 2, -30], [0, 0, 0, 1]])
    for k in range(3):
        moved = world + (np.eye(4, k=3) * 5 if k == 2 else 0)
        nibabel.save(
            nibabel.Nifti1Image(np.random.default_rng(k).random((8, 8, 8)).astype(np.float32), moved), tmp_path / f"{k}.nii.gz"
        )
    cohort = Cohort.from_columns(
        {"id": list("abc"), "image": [f"{k}.nii.gz" for k in range(3)], "label": [0, 1, 0]}, root=tmp_path
    )
    half = images.Geometry((4, 4, 4), channels=1)
    found = Facts(None, cohort.select(np.array([0, 1])), half).affine()
    # The first voxel of half the resolution lies between the first two of the source.
    np.testing.assert_allclose(found @ [0, 0, 0, 1], world @ [0.5, 0.5, 0.5, 1])
    np.testing.assert_allclose(found @ [3, 3, 3, 1], world @ [6.5, 6.5, 6.5, 1])
    with pytest.raises(DataError, match="lie differently"):
        Facts(None, cohort, half).affine()


def test_pictures_have_no_affine(tmp_path):
    assert Facts(None, cohort_of(tmp_path), GEOMETRY).affine() is None


def test_an_empty_cohort_has_no_mean(tmp_path):
    empty = cohort_of(tmp_path).select(np.zeros(20, bool))
    assert Facts(tmp_path / "facts", empty, GEOMETRY).pixels().shape == (0, 12, 12, 3)
    with pytest.raises(DataError, match="no rows"):
        Facts(None, empty, GEOMETRY).mean_image()


def test_a_full_disk_is_told_before_anything_is_decoded(tmp_path, monkeypatch):
    monkeypatch.setattr(facts_module.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 10})())
    with pytest.raises(DataError, match="GB free"):
        Facts(tmp_path / "facts", cohort_of(tmp_path), GEOMETRY).pixels()


FILL = """
import os, signal, sys
from pathlib import Path
from rightreasons.data import facts, images
from rightreasons.data.cohort import Cohort
facts.CHUNK_BYTES = 3 * 12 * 12 * 3
folder, fatal, calls, put = Path(sys.argv[1]), int(sys.argv[2]), 0, facts._Map._put
def dying(self, offset, data):
    global calls
    calls += 1
    if calls == fatal:
        put(self, offset, data[: len(data) // 2])  # a torn write
        os.kill(os.getpid(), signal.SIGKILL)
    put(self, offset, data)
facts._Map._put = dying
columns = {"id": [f"p{k}" for k in range(20)], "image": [f"{k}.png" for k in range(20)], "label": [k % 2 for k in range(20)]}
facts.Facts(folder / "facts", Cohort.from_columns(columns, root=folder), images.Geometry((12, 12), 0.9)).pixels()
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_killed_fills_go_on_and_end_in_the_same_bytes(tmp_path, monkeypatch):
    cohort = cohort_of(tmp_path)
    # Writes are the header, then pixels and mark of each chunk: die in the header, in pixels, in a mark, in the header again.
    for fatal in (1, 4, 5, 1):
        done = subprocess.run([sys.executable, "-c", FILL, str(tmp_path), str(fatal)], check=False)
        assert done.returncode == -signal.SIGKILL
    opened: list[str] = []
    load = images.load
    monkeypatch.setattr(images, "load", lambda reference, *a, **k: opened.append(reference) or load(reference, *a, **k))
    found = Facts(tmp_path / "facts", cohort, GEOMETRY).pixels()
    assert len(opened) == 20 - 2 * 3  # chunks with a mark: one of the second run, one of the third
    monkeypatch.undo()
    np.testing.assert_array_equal(found, literal(cohort))


# ---- the field of view ---------------------------------------------------------------------------------------------------


def test_the_field_of_view_is_computed_once_for_round_and_collimated_and_full_images(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    row, column = np.mgrid[:20, :20] - 9.5
    fields = [np.hypot(row, column) < 8, (np.abs(row) < 6) & (np.abs(column) < 8), np.ones((20, 20), bool)] * 2
    for k, field in enumerate(fields):
        Image.fromarray((rng.integers(90, 250, (20, 20, 3)) * field[..., None]).astype(np.uint8)).save(tmp_path / f"{k}.png")
    columns = {"id": list("abcdef"), "image": [f"{k}.png" for k in range(6)], "label": [0, 1] * 3}
    cohort, geometry = Cohort.from_columns(columns, root=tmp_path), Geometry((20, 20))
    found = Facts(tmp_path / "facts", cohort, geometry).field_of_view()
    np.testing.assert_array_equal(found, np.stack(fields))
    np.testing.assert_array_equal(Facts(None, cohort, geometry).field_of_view(), found)
    monkeypatch.setattr(facts_module, "field_of_view", None)
    np.testing.assert_array_equal(Facts(tmp_path / "facts", cohort, geometry).field_of_view(), found)


def test_a_hole_that_the_border_does_not_reach_belongs_to_the_field():
    bright = np.zeros((9, 9))
    bright[2:7, 2:7] = 0.8
    bright[4, 4] = 0.0
    field = facts_module.field_of_view(bright)
    assert field[4, 4] and field.sum() == 25
    assert facts_module.field_of_view(np.zeros((9, 9))).all() and facts_module.field_of_view(np.full((9, 9), 0.5)).all()
