"""Tensors are those of torchvision's own transforms, in order, and threads end with their loop."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from rightreasons.data import images  # noqa: E402
from rightreasons.data.cohort import Cohort  # noqa: E402
from rightreasons.data.facts import Facts  # noqa: E402
from rightreasons.data.images import Geometry  # noqa: E402
from rightreasons.errors import DataError, ImageError, SettingError  # noqa: E402
from rightreasons.models.batches import batches, regions  # noqa: E402

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
GEOMETRY = Geometry((32, 32), 0.875, "bicubic")


@pytest.fixture
def cohort(tmp_path: Path) -> Cohort:
    rng = np.random.default_rng(3)
    for k in range(11):
        Image.fromarray(rng.integers(0, 256, (40 + k, 60, 3), dtype=np.uint8)).save(tmp_path / f"{k}.png")
    columns = {"id": [f"p{k}" for k in range(11)], "image": [f"{k}.png" for k in range(11)], "label": [k % 2 for k in range(11)]}
    return Cohort.from_columns(columns, root=tmp_path)


@pytest.mark.parametrize("source", ["files", "map", "live"])
def test_tensors_are_those_of_totensor_and_normalize_to_the_bit(cohort, tmp_path, source):
    timm_data = pytest.importorskip("timm.data")
    transform = timm_data.create_transform((3, 32, 32), mean=MEAN, std=STD, crop_pct=0.875, interpolation="bicubic")
    expected = torch.stack([transform(Image.open(cohort.root / name).convert("RGB")) for name in cohort.image])
    folder = tmp_path / "facts" if source == "map" else None
    pixels = None if source == "files" else Facts(folder, cohort, GEOMETRY).pixels()
    order = np.array([10, 3, 3, 0, 7])
    rows, parts = zip(*batches(cohort, GEOMETRY, MEAN, STD, batch=2, order=order, pixels=pixels), strict=True)
    assert [len(r) for r in rows] == [2, 2, 1] and np.concatenate(rows).tolist() == order.tolist()
    found = torch.cat(parts)
    assert found.dtype == torch.float32 and found.is_contiguous() and torch.equal(found, expected[order])
    rows, parts = zip(*batches(cohort, GEOMETRY, MEAN, STD, batch=4, workers=3, pixels=pixels), strict=True)
    assert np.concatenate(rows).tolist() == list(range(11)) and torch.equal(torch.cat(parts), expected)


def test_floats_and_bytes_mix_in_a_batch(cohort, tmp_path):
    Image.fromarray(np.full((32, 32), 65535, np.uint16)).save(tmp_path / "1.png")
    ((_, x),) = batches(cohort.select(np.array([0, 1])), GEOMETRY, (0.0,), (1.0,))
    assert torch.equal(x[1], torch.ones(3, 32, 32))
    assert torch.equal(x[0], torch.from_numpy(images.load("0.png", GEOMETRY, root=tmp_path)).permute(2, 0, 1) / 255)


def test_volumes_have_channels_first(tmp_path):
    volume = np.random.default_rng(0).random((2, 4, 5, 6, 1), dtype=np.float32)
    np.save(tmp_path / "v.npy", volume)
    columns = {"id": ["a", "b"], "image": ["v.npy#0", "v.npy#1"], "label": [0, 1]}
    ((_, x),) = batches(Cohort.from_columns(columns, root=tmp_path), Geometry((4, 5, 6), channels=1), (0.5,), (0.25,))
    np.testing.assert_array_equal(x.numpy(), (volume.transpose(0, 4, 1, 2, 3) - np.float32(0.5)) / np.float32(0.25))


def test_an_unreadable_image_reaches_the_caller_with_its_row(cohort, tmp_path):
    (tmp_path / "6.png").write_bytes(b"broken")
    seen = []
    with pytest.raises(ImageError, match=r"row 'p6'.*6\.png"):
        for rows, _ in batches(cohort, GEOMETRY, MEAN, STD, batch=3):
            seen.extend(rows.tolist())
    assert seen == [0, 1, 2, 3, 4, 5]
    assert not threads()


def test_leaving_the_loop_ends_the_threads_and_little_is_decoded_in_vain(cohort, monkeypatch):
    opened: list[str] = []
    load = images.load
    monkeypatch.setattr(images, "load", lambda reference, *a, **k: opened.append(reference) or load(reference, *a, **k))
    generator = batches(cohort, GEOMETRY, MEAN, STD, batch=1, order=np.arange(11).repeat(100), workers=2)
    next(generator)
    generator.close()
    assert len(opened) <= 8 and not threads()


def threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("rightreasons")]


def test_wrong_settings_are_refused_at_the_call(cohort):
    for error, settings in [
        (SettingError, {"batch": 0}),
        (SettingError, {"order": np.array([0, 11])}),
        (SettingError, {"order": np.array([0.5])}),
        (SettingError, {"mean": (0.1, 0.2)}),
        (SettingError, {"std": (0.0, 1.0, 1.0)}),
        (DataError, {"pixels": np.zeros((11, 8, 8, 3), np.uint8)}),
    ]:
        with pytest.raises(error):
            batches(cohort, GEOMETRY, **{"mean": MEAN, "std": STD, **settings})
    assert list(batches(cohort, GEOMETRY, MEAN, STD, order=np.array([], int))) == []


def test_regions_come_from_masks_else_boxes_else_nothing(tmp_path):
    picture = np.zeros((40, 60), np.uint8)
    picture[10:30, 20:40] = 255
    Image.fromarray(picture).save(tmp_path / "a.png")
    columns = {
        "id": list("abc"),
        "image": ["a.png"] * 3,
        "label": [0, 1, 0],
        "mask": ["a.png", "", ""],
        "box": ["", "20 10 40 30", ""],
    }
    cohort = Cohort.from_columns(columns, root=tmp_path, mask="mask", box="box")
    geometry = Geometry((20, 20), channels=1)
    found = regions(cohort, geometry)
    expected = np.zeros((20, 20), bool)
    expected[5:15, 5:15] = True
    np.testing.assert_array_equal(found, [expected, expected, np.zeros_like(expected)])
    np.testing.assert_array_equal(regions(cohort, geometry, [2, 0]), found[[2, 0]])
    with pytest.raises(DataError, match="neither masks nor boxes"):
        regions(Cohort.from_columns({"id": ["a"], "image": ["a.png"], "label": [0]}, root=tmp_path), geometry)
