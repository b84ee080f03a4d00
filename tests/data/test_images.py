"""Decoding, input geometry, boxes and masks."""

from __future__ import annotations

import contextlib
import io
import struct
import sys
import threading
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from rightreasons.data import images
from rightreasons.data.images import Geometry
from rightreasons.errors import ImageError, SettingError

RNG = np.random.default_rng(0)
COLOUR = RNG.integers(0, 256, (37, 53, 3), dtype=np.uint8)
GREY = COLOUR[..., 0]
DEEP = RNG.integers(0, 65536, (37, 53), dtype=np.uint16)


def save(folder: Path, name: str, picture: Image.Image, **options: object) -> Path:
    picture.save(folder / name, **options)
    return folder / name


def smooth(height: int, width: int) -> np.ndarray:
    y, x = np.mgrid[:height, :width]
    planes = [127 + 120 * np.sin(x / 17 + k) * np.cos(y / 11 - k) for k in range(3)]
    return np.stack(planes, axis=-1).astype(np.uint8)


# ---- geometry ---------------------------------------------------------------------------------------------------------------


@pytest.mark.torch
@pytest.mark.parametrize("source", [(300, 400), (401, 299), (64, 64), (224, 224), (97, 513), (256, 256), (333, 334)])
@pytest.mark.parametrize(
    ("size", "crop", "interpolation", "mode"),
    [
        ((224, 224), 0.875, "bicubic", "center"),
        ((224, 224), 0.9, "bilinear", "center"),
        ((224, 224), 1.0, "bicubic", "center"),
        ((224, 224), 0.95, "nearest", "center"),
        ((96, 160), 0.9, "bilinear", "center"),
        ((160, 96), 1.0, "bilinear", "center"),
        ((192, 192), 1.0, "bicubic", "squash"),
        ((128, 128), 0.9, "bilinear", "squash"),
        ((224, 224), 1.0, "bicubic", "border"),
        ((224, 160), 0.95, "bilinear", "border"),
    ],
)
def test_pixels_are_those_of_timm_to_the_bit(tmp_path, source, size, crop, interpolation, mode):
    timm_data = pytest.importorskip("timm.data")
    mean = (0.485, 0.456, 0.406)
    path = save(tmp_path, "a.png", Image.fromarray(smooth(*source)))
    transform = timm_data.create_transform(
        (3, *size), mean=mean, crop_pct=crop, crop_mode=mode, interpolation=interpolation, normalize=False
    )
    expected = np.asarray(transform(Image.open(path).convert("RGB"))).transpose(1, 2, 0)
    found = images.load(path, Geometry(size, crop, interpolation, mode=mode, fill=mean))
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("mode", ["center", "squash", "border"])
@pytest.mark.parametrize(
    ("source", "size", "crop"), [((200, 300), (112, 112), 0.875), ((310, 170), (96, 128), 1.0), ((50, 40), (64, 64), 0.9)]
)
def test_a_painted_box_lies_where_place_boxes_says(tmp_path, mode, source, size, crop):
    box = np.array([0.32 * source[1], 0.42 * source[0], 0.61 * source[1], 0.73 * source[0]]).round()
    x0, y0, x1, y1 = box.astype(int)
    picture = np.zeros(source, np.uint8)
    picture[y0:y1, x0:x1] = 255
    path = save(tmp_path, "box.png", Image.fromarray(picture))
    geometry = Geometry(size, crop, channels=1, mode=mode)
    placed = images.place_boxes([box], images.shape(path), geometry)
    inside = images.boxes_to_mask(placed, size)
    painted = images.load(path, geometry)[..., 0]
    assert inside.sum() == pytest.approx(np.prod(placed[0, 2:] - placed[0, :2]), rel=0.1)
    middle = placed[0].reshape(2, 2).mean(axis=0).astype(int)
    np.testing.assert_array_equal(
        painted[middle[1]] > 127, inside[middle[1]]
    )  # across the middle: corners are darker by resizing
    np.testing.assert_array_equal(painted[:, middle[0]] > 127, inside[:, middle[0]])
    assert (images.load_mask(path, geometry) != inside).mean() < 0.005  # nearest neighbour may differ along an edge


def test_boxes_are_clipped_and_tiny_ones_keep_a_pixel():
    geometry = Geometry((10, 10))
    placed = images.place_boxes([[-50, -50, 1000, 1000], [0, 0, 1, 1], [0, 0, 4, 4]], (100, 200, 3), geometry)
    np.testing.assert_allclose(placed, [[0, 0, 10, 10], [0, 0, 0, 0.1], [0, 0, 0, 0.4]])  # the last two are in the cropped side
    assert images.boxes_to_mask(placed[1:], (10, 10)).sum() == 0
    tiny = images.boxes_to_mask(np.array([[3.6, 7.1, 3.9, 7.2]]), (10, 10))
    assert np.argwhere(tiny).tolist() == [[7, 3]]


def test_volumes_are_resized_cropped_and_masked_alike(tmp_path):
    volume = np.zeros((20, 24, 30, 1), np.float32)
    volume[4:14, 6:18, 10:20] = 1
    np.save(tmp_path / "v.npy", volume)
    geometry = Geometry((10, 12, 12), channels=1)
    found = images.load("v.npy", geometry, root=tmp_path)[..., 0]
    mask = images.load_mask("v.npy", geometry, root=tmp_path)
    assert found.shape == mask.shape == (10, 12, 12)
    np.testing.assert_array_equal(found > 0.5, mask)
    assert found[4, 5, 5] == 1 and found[0, 0, 0] == 0
    np.save(tmp_path / "same.npy", RNG.random((6, 5, 4, 2), dtype=np.float32))
    np.testing.assert_array_equal(
        images.load("same.npy", Geometry((6, 5, 4), channels=2), root=tmp_path), np.load(tmp_path / "same.npy")
    )


def test_colour_becomes_grey_as_in_pillow_and_grey_is_repeated(tmp_path):
    path = save(tmp_path, "c.png", Image.fromarray(COLOUR))
    np.testing.assert_array_equal(
        images.load(path, Geometry((37, 53), channels=1))[..., 0], np.asarray(Image.fromarray(COLOUR).convert("L"))
    )
    path = save(tmp_path, "g.png", Image.fromarray(GREY))
    np.testing.assert_array_equal(images.load(path, Geometry((37, 53))), np.repeat(GREY[..., None], 3, axis=-1))
    with pytest.raises(ImageError, match="found 3 channels, expected 4"):
        images.load(tmp_path / "c.png", Geometry((8, 8), channels=4))


def test_deep_images_resize_as_floats_close_to_8_bit(tmp_path):
    fine = smooth(90, 120)[..., 0]
    deep = save(tmp_path, "d.png", Image.fromarray(fine.astype(np.uint16) * 257))
    plain = save(tmp_path, "p.png", Image.fromarray(fine))
    geometry = Geometry((48, 48), 0.9, "bicubic", channels=1)
    found = images.load(deep, geometry)
    assert found.dtype == np.float32 and found.min() >= 0 and found.max() <= 1
    np.testing.assert_allclose(found * 255, images.load(plain, geometry), atol=1.01)


@pytest.mark.parametrize(
    "bad",
    [{"size": (0, 3)}, {"size": (3,)}, {"crop": 0}, {"crop": 1.2}, {"interpolation": "best"}, {"mode": "x"}, {"fill": (1, 2)}],
)
def test_an_impossible_geometry_is_refused(bad):
    with pytest.raises(SettingError):
        Geometry(**{"size": (8, 8), **bad})


def test_a_volume_does_not_pass_for_an_image(tmp_path):
    np.save(tmp_path / "v.npy", np.zeros((4, 4, 4, 1), np.uint8))
    with pytest.raises(ImageError, match="found a volume"):
        images.load(tmp_path / "v.npy", Geometry((4, 4)))


# ---- formats ----------------------------------------------------------------------------------------------------------------


def pillow_cases(folder: Path) -> dict[str, tuple[Path, np.ndarray]]:
    colour, grey = Image.fromarray(COLOUR), Image.fromarray(GREY)
    alpha = Image.fromarray(GREY[::-1])
    rgba, la = colour.copy(), grey.copy()
    rgba.putalpha(alpha)
    la.putalpha(alpha)
    palette = colour.quantize(16)
    bit = grey.convert("1")
    cmyk = colour.convert("CMYK")
    floats = GREY.astype(np.float32) / 255
    jpeg = io.BytesIO()
    colour.save(jpeg, "JPEG")
    return {
        "rgb": (save(folder, "rgb.png", colour), COLOUR),
        "grey": (save(folder, "grey.png", grey), GREY[..., None]),
        "rgba": (save(folder, "rgba.png", rgba), COLOUR),
        "la": (save(folder, "la.png", la), GREY[..., None]),
        "palette": (save(folder, "p.png", palette), np.asarray(palette.convert("RGB"))),
        "bit": (save(folder, "bit.png", bit), np.asarray(bit.convert("L"))[..., None]),
        "cmyk": (save(folder, "cmyk.tif", cmyk), np.asarray(cmyk.convert("RGB"))),
        "jpeg": (save(folder, "c.jpg", colour), np.asarray(Image.open(jpeg))),
        "deep png": (save(folder, "deep.png", Image.fromarray(DEEP)), (DEEP / 65535).astype(np.float32)[..., None]),
        "deep tiff": (
            save(folder, "deep.tif", Image.fromarray(DEEP), compression="tiff_lzw"),
            (DEEP / 65535).astype(np.float32)[..., None],
        ),
        "float tiff": (save(folder, "f.tif", Image.fromarray(floats)), floats[..., None]),
        "stack": (
            save(folder, "s.tif", grey, save_all=True, append_images=[alpha, grey]),
            np.stack([GREY, GREY[::-1], GREY], axis=2)[..., None],
        ),
        "pyramid": (save(folder, "y.tif", colour, save_all=True, append_images=[colour.resize((9, 8))]), COLOUR),
    }


def test_every_pillow_mode_is_read_and_its_shape_known_from_the_header(tmp_path):
    for name, (path, expected) in pillow_cases(tmp_path).items():
        found = images.read(path)
        assert found.dtype == expected.dtype, name
        np.testing.assert_array_equal(found, expected, err_msg=name)
        assert images.shape(path) == expected.shape, name


@pytest.mark.parametrize("suffix", ["jpg", "png", "tif"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_picture_is_what_a_viewer_shows(tmp_path, suffix, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    plain = np.zeros((16, 32), np.uint8)
    plain[:8, :16] = 255
    path = save(tmp_path, f"a.{suffix}", Image.fromarray(plain), exif=exif)
    turned = {
        1: plain,
        2: plain[:, ::-1],
        3: plain[::-1, ::-1],
        4: plain[::-1],
        5: plain.T,
        6: plain.T[:, ::-1],
        7: plain.T[::-1, ::-1],
        8: plain.T[::-1],
    }
    np.testing.assert_array_equal(images.read(path)[..., 0] > 127, turned[orientation] > 127)
    assert images.shape(path) == (*turned[orientation].shape, 1)


@pytest.mark.filterwarnings("ignore::UserWarning:PIL")  # Pillow says that metadata is cut before it gives up
def test_broken_files_say_where_and_why(tmp_path):
    for name, (path, _) in pillow_cases(tmp_path).items():
        cut = tmp_path / f"cut-{path.name}"
        cut.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        with pytest.raises(ImageError, match=cut.name):
            images.read(cut)
            pytest.fail(name)
    (tmp_path / "text.png").write_text("not an image")
    (tmp_path / "empty.jpg").touch()
    np.save(tmp_path / "wide.npy", np.array([[0.0, 7.5]]))
    np.save(tmp_path / "nan.npy", np.array([[0.0, np.nan]]))
    np.save(tmp_path / "int.npy", np.zeros((2, 2), np.int64))
    (tmp_path / "cut.npy").write_bytes((tmp_path / "int.npy").read_bytes()[:70])
    for name, reason in {
        "text.png": "no known image format",
        "empty.jpg": "0 bytes",
        "absent.png": "found nothing",
        ".": "found a folder",
        "": "empty image reference",
        "wide.npy": "from 0 to 7.5",
        "nan.npy": "nan",
        "int.npy": "int64",
        "cut.npy": "cannot be decoded",
        "int.npy#x": "row number",
    }.items():
        with pytest.raises(ImageError, match=reason):
            images.read(name, root=tmp_path)


def test_damaged_bytes_never_escape_as_another_error(tmp_path):
    rng = np.random.default_rng(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow warns of damaged metadata
        for path, _ in pillow_cases(tmp_path).values():
            whole = np.frombuffer(path.read_bytes(), np.uint8)
            for trial in range(25):
                broken = whole.copy()
                broken[rng.integers(0, min(len(whole), 400 if trial % 2 else len(whole)), 4)] = rng.integers(0, 256, 4)
                target = tmp_path / f"broken{path.suffix}"
                target.write_bytes(broken.tobytes())
                for function in (images.read, images.shape):
                    with contextlib.suppress(ImageError):
                        function(target)


@pytest.mark.parametrize("side", [10_000, 20_000])
def test_a_decompression_bomb_is_an_image_error(tmp_path, side):
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    (tmp_path / "bomb.png").write_bytes(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")
    )
    with pytest.raises(ImageError, match="bomb"):
        images.read(tmp_path / "bomb.png")


def test_rows_of_a_stack_are_images(tmp_path):
    stack = RNG.integers(0, 256, (5, 9, 7), dtype=np.uint8)
    np.save(tmp_path / "stack.npy", stack)
    np.testing.assert_array_equal(images.read("stack.npy#3", root=tmp_path), stack[3][..., None])
    assert images.shape(tmp_path / "stack.npy#3") == (9, 7, 1)
    np.save(tmp_path / "fortran.npy", np.asfortranarray(stack))
    np.testing.assert_array_equal(images.read("fortran.npy#3", root=tmp_path), stack[3][..., None])
    with pytest.raises(ImageError, match="more than 5"):
        images.read("stack.npy#5", root=tmp_path)
    before = [images.digest(f"stack.npy#{k}", root=tmp_path) for k in range(5)]
    stack[3, 0, 0] ^= 1
    np.save(tmp_path / "stack.npy", stack)
    after = [images.digest(f"stack.npy#{k}", root=tmp_path) for k in range(5)]
    assert [a == b for a, b in zip(before, after)] == [True, True, True, False, True]


def test_the_digest_is_of_the_bytes(tmp_path):
    path = save(tmp_path, "a.png", Image.fromarray(COLOUR))
    (tmp_path / "b.png").write_bytes(path.read_bytes())
    assert images.digest(path) == images.digest("b.png", root=tmp_path) and len(images.digest(path)) == 32
    (tmp_path / "b.png").write_bytes(path.read_bytes() + b"\0")
    assert images.digest(path) != images.digest(tmp_path / "b.png")


# ---- DICOM and NIfTI --------------------------------------------------------------------------------------------------------


def dicom(path: Path, pixels: np.ndarray, **tags: object) -> Path:
    pydicom = pytest.importorskip("pydicom")
    meta = pydicom.dataset.FileMetaDataset()
    meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    meta.MediaStorageSOPClassUID = pydicom.uid.SecondaryCaptureImageStorage
    meta.MediaStorageSOPInstanceUID = "1.2.3"
    dataset = pydicom.Dataset()
    dataset.file_meta = meta
    dataset.SOPClassUID, dataset.SOPInstanceUID = meta.MediaStorageSOPClassUID, "1.2.3"
    is_colour = tags.get("PhotometricInterpretation") == "RGB"
    dataset.Rows, dataset.Columns = pixels.shape[-3:-1] if is_colour else pixels.shape[-2:]
    dataset.SamplesPerPixel = 3 if is_colour else 1
    if is_colour:
        dataset.PlanarConfiguration = 0
    dataset.PhotometricInterpretation = "MONOCHROME2"
    dataset.BitsAllocated = dataset.BitsStored = 8 * pixels.dtype.itemsize
    dataset.HighBit = dataset.BitsStored - 1
    dataset.PixelRepresentation = int(pixels.dtype.kind == "i")
    for name, value in tags.items():
        setattr(dataset, name, value)
    dataset.PixelData = pixels.tobytes() + b"\0" * (pixels.nbytes % 2)
    dataset.save_as(path, enforce_file_format=True)
    return path


@pytest.mark.parametrize("function", ["LINEAR", "LINEAR_EXACT", "SIGMOID"])
@pytest.mark.parametrize("photometric", ["MONOCHROME1", "MONOCHROME2"])
def test_dicom_windows_are_those_of_pydicom(tmp_path, function, photometric):
    pydicom = pytest.importorskip("pydicom")
    stored = RNG.integers(-1000, 3000, (20, 30)).astype(np.int16)
    path = dicom(
        tmp_path / "ct",  # no suffix: found by its preamble
        stored, RescaleSlope=2, RescaleIntercept=-100, WindowCenter=[40, 300], WindowWidth=[400, 1500], VOILUTFunction=function,
        PhotometricInterpretation=photometric,
    )  # fmt: skip
    dataset = pydicom.dcmread(path)
    values = pydicom.pixels.apply_windowing(pydicom.pixels.apply_modality_lut(stored, dataset), dataset)
    low, high = -(2**15) * 2.0 - 100, (2**15 - 1) * 2.0 - 100
    expected = (values - low) / (high - low)
    expected = 1 - expected if photometric == "MONOCHROME1" else expected
    found = images.read(path)
    assert found.dtype == np.float32 and images.shape(path) == found.shape == (20, 30, 1)
    np.testing.assert_allclose(found[..., 0], expected, atol=1e-6)


def test_dicom_without_a_window_colour_and_frames(tmp_path):
    eight = dicom(tmp_path / "a.dcm", GREY, PhotometricInterpretation="MONOCHROME1")
    np.testing.assert_array_equal(images.read(eight)[..., 0], 255 - GREY)
    deep = images.read(dicom(tmp_path / "b.dcm", DEEP))[..., 0]
    np.testing.assert_allclose(deep, (DEEP - DEEP.min()) / np.ptp(DEEP.astype(float)), atol=1e-6)
    colour = dicom(tmp_path / "c.dcm", COLOUR, PhotometricInterpretation="RGB")
    np.testing.assert_array_equal(images.read(colour), COLOUR)
    frames = dicom(tmp_path / "d.dcm", np.stack([GREY, GREY // 2]), NumberOfFrames=2)
    np.testing.assert_array_equal(images.read(frames), np.stack([GREY, GREY // 2], axis=2)[..., None])
    assert images.shape(colour) == (37, 53, 3) and images.shape(frames) == (37, 53, 2, 1)
    mask = dicom(tmp_path / "m.dcm", (DEEP > 30000).astype(np.uint16), WindowCenter=1, WindowWidth=5000)
    np.testing.assert_array_equal(images.load_mask(mask, Geometry((37, 53))), DEEP > 30000)


def test_each_dicom_frame_has_its_own_rescale(tmp_path):
    pydicom = pytest.importorskip("pydicom")
    groups = []
    for slope in (1, 3):
        rescale, group = pydicom.Dataset(), pydicom.Dataset()
        rescale.RescaleSlope, rescale.RescaleIntercept = slope, 0
        group.PixelValueTransformationSequence = [rescale]
        groups.append(group)
    stored = np.stack([DEEP // 4, DEEP // 4])
    path = dicom(tmp_path / "pet.dcm", stored, NumberOfFrames=2, PerFrameFunctionalGroupsSequence=groups)
    found = images.read(path)[..., 0]
    assert found.max() == 1 and found[..., 0].max() == pytest.approx(1 / 3, rel=1e-3)


def test_broken_dicom_is_an_image_error(tmp_path):
    whole = dicom(tmp_path / "a.dcm", DEEP).read_bytes()
    for name, data in {"cut.dcm": whole[: len(whole) // 2], "text.dcm": b"hello", "head.dcm": whole[:140]}.items():
        (tmp_path / name).write_bytes(data)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with pytest.raises(ImageError, match=name):
                images.read(tmp_path / name)


@pytest.mark.filterwarnings("ignore")  # pydicom warns of most of these
def test_pydicoms_own_files_are_read_or_refused_and_their_shapes_known():
    pydicom = pytest.importorskip("pydicom")
    found = {}
    for path in sorted((Path(pydicom.__file__).parent / "data" / "test_files").glob("*.dcm")):
        with contextlib.suppress(ImageError):
            found[path.name] = images.read(path)
            assert images.shape(path) == found[path.name].shape, path
    assert len(found) >= 40
    np.testing.assert_allclose(found["SC_rgb_dcmtk_+eb+cy+np.dcm"][5, 50], found["SC_rgb_rle.dcm"][5, 50], atol=3)  # YBR to RGB


def test_nifti_comes_in_canonical_axes(tmp_path):
    nibabel = pytest.importorskip("nibabel")
    canonical = RNG.normal(size=(4, 5, 6)).astype(np.float32)
    turned = canonical[::-1].transpose(2, 0, 1)  # stored as (z, -x, y)
    affine = np.array([[0, -1, 0, 3], [0, 0, 1, 0], [1, 0, 0, 0], [0, 0, 0, 1]], float)
    for name, data in {"a.nii": turned, "a.nii.gz": turned, "b.nii.gz": turned[..., None].repeat(2, -1)}.items():
        nibabel.save(nibabel.Nifti1Image(data, affine), tmp_path / name)
        found = images.read(name, root=tmp_path)
        expected = (canonical - canonical.min()) / np.ptp(canonical)
        np.testing.assert_allclose(found[..., 0], expected, atol=1e-6)
        assert images.shape(name, root=tmp_path) == found.shape == (4, 5, 6, data.shape[3] if data.ndim == 4 else 1)
    holes = canonical.copy()
    holes[0] = np.nan
    nibabel.save(nibabel.Nifti1Image(holes, np.eye(4)), tmp_path / "holes.nii")
    assert (images.read(tmp_path / "holes.nii")[0] == 0).all()
    nibabel.save(nibabel.Nifti1Image(np.ones((4, 5, 6), np.float32), np.eye(4)), tmp_path / "full.nii")
    assert images.load_mask(tmp_path / "full.nii", Geometry((4, 5, 6))).all()
    cut = (tmp_path / "a.nii.gz").read_bytes()
    (tmp_path / "cut.nii.gz").write_bytes(cut[: len(cut) // 2])
    with pytest.raises(ImageError, match=r"cut\.nii\.gz"):
        images.read(tmp_path / "cut.nii.gz")


@pytest.mark.parametrize(("module", "name"), [("nibabel", "a.nii.gz"), ("pydicom", "a.dcm")])
def test_a_missing_extra_says_what_to_install(tmp_path, monkeypatch, module, name):
    (tmp_path / name).touch()
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImageError, match=r"pip install rightreasons\[medical\]"):
        images.read(tmp_path / name)


# ---- many -------------------------------------------------------------------------------------------------------------------


def test_a_stream_keeps_order_is_bounded_and_ends_its_threads(tmp_path):
    np.save(tmp_path / "s.npy", np.arange(50, dtype=np.uint8)[:, None, None] * np.ones((1, 4, 4), np.uint8))
    references = [f"s.npy#{k}" for k in range(50)]
    found = [int(a[0, 0, 0]) for a in images.stream(references, Geometry((4, 4)), root=tmp_path, workers=3, ahead=5)]
    assert found == list(range(50))
    started: list[int] = []
    generator = images.in_order(lambda k: started.append(k) or k, range(1000), workers=3, ahead=5)
    assert next(generator) == 0
    generator.close()
    assert len(started) <= 7
    assert not [t for t in threading.enumerate() if t.name.startswith("rightreasons")]


def test_a_stream_names_the_row_that_failed(tmp_path):
    np.save(tmp_path / "s.npy", np.zeros((3, 4, 4), np.uint8))
    with pytest.raises(ImageError, match=r"row 'p7': .*s.npy#9"):
        list(images.stream(["s.npy#0", "s.npy#9"], Geometry((4, 4)), root=tmp_path, ids=["p1", "p7"]))


@pytest.mark.parametrize(
    "pixels", [COLOUR, GREY, COLOUR / 255, np.zeros((9, 8, 7, 1), np.float32), np.zeros((300, 500, 2), np.uint8)]
)
def test_thumbnails_are_small_png(pixels):
    picture = Image.open(io.BytesIO(images.thumbnail(pixels)))
    assert picture.format == "PNG" and max(picture.size) <= 128
