"""Files of every kind to numpy arrays: PNG, JPEG, TIFF and what else Pillow reads, DICOM, NIfTI, npy and rows of npy stacks.

What is decided here:

- EXIF orientation is applied: a picture is what a viewer shows, and boxes are drawn on what a viewer shows.
- Alpha is dropped, as `PIL.Image.convert("RGB")` does in almost every training pipeline; palette, CMYK, YCbCr and the like
  become RGB the same way, 1-bit becomes grey 0/255. 16-bit grey is kept (float32, /65535); 16-bit colour is read at 8 bits,
  as Pillow does. The pages of a TIFF, if all of one size, are a volume (h, w, page).
- DICOM: rescale, then the first VOI window or look-up table, then MONOCHROME1 inverted, in [0, 1]; without a window from the
  image's own minimum to its maximum. 8-bit grey without rescale and window, and 8-bit colour, stay uint8. Several frames are
  a volume (h, w, frame).
- NIfTI and MGH: axes in the closest canonical order (RAS), a fourth axis is channels, values from the volume's own minimum to
  its maximum (order is kept and nothing is clipped, so no cue is lost); NaN is background. uint8 without a slope stays uint8.
- npy: uint8, uint16 (/65535), bool (0/255) or floats that are in [0, 1] already.
"""

from __future__ import annotations

import hashlib
import math
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, UnidentifiedImageError

from rightreasons.errors import ImageError

Reference = str | os.PathLike[str]
"""A path, or `stack.npy#17`: row 17 of an array (n, h, w), (n, h, w, c) or (n, x, y, z, c), read alone."""


def read(reference: Reference, *, root: Reference | None = None) -> np.ndarray:
    """Decode an image to (h, w, c), or a volume to (x, y, z, c): uint8 for 8-bit sources, else float32 in [0, 1]."""
    return decode(reference, root, raw=False)


def shape(reference: Reference, *, root: Reference | None = None) -> tuple[int, ...]:
    """Shape of what `read` would give, from the header where the format allows."""
    path, row = _locate(reference, root)
    kind = _kind(path)
    if kind == "npy":
        return _npy_shape(_npy(path, row), path, row)
    if kind == "dicom":
        return _dicom_shape(path)
    if kind == "nifti":
        return _nifti_shape(path)
    with _pil(path) as image:
        frames, (width, height) = _frames(image), image.size
        if _orientation(image) in _QUARTER_TURNS:
            width, height = height, width
        channels = 1 if image.mode in _GREY_MODES else 3
    if frames == 1:
        return (height, width, channels)
    return (height, width, frames, channels)


def digest(reference: Reference, *, root: Reference | None = None) -> str:
    """Blake2b-128 of the file's bytes (of the row's bytes for a stack), in hex."""
    path, row = _locate(reference, root)
    hasher = hashlib.blake2b(digest_size=16)
    if row is not None:
        hasher.update(np.ascontiguousarray(_npy(path, row)).data)
        return hasher.hexdigest()
    try:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                hasher.update(block)
    except OSError as error:
        raise ImageError(f"{path}: cannot be read ({error.strerror}): check the image column and root=") from error
    return hasher.hexdigest()


def decode(reference: Reference, root: Reference | None, *, raw: bool) -> np.ndarray:
    """Pixels with channels last; `raw` leaves the values as they are stored (masks)."""
    path, row = _locate(reference, root)
    kind = _kind(path)
    if kind == "npy":
        return _decode_npy(path, row, raw=raw)
    if kind == "dicom":
        return _decode_dicom(path, raw=raw)
    if kind == "nifti":
        return _decode_nifti(path, raw=raw)
    return _decode_pil(path, raw=raw)


# ---- which file --------------------------------------------------------------------------------------------------------------


def _locate(reference: Reference, root: Reference | None) -> tuple[Path, int | None]:
    name, row = os.fspath(reference), None
    if not name:
        raise ImageError("found an empty image reference, expected a path: fill it in or drop its row")
    if ".npy#" in name:
        name, _, number = name.rpartition("#")
        if not number.isdecimal():
            raise ImageError(f"{reference}: found '{number}' after #, expected a row number such as {name}#0")
        row = int(number)
    if root is None:
        path = Path(name)
    else:
        path = Path(root) / name
    if not path.is_file():
        there = "a folder" if path.is_dir() else "nothing"
        raise ImageError(
            f"{name}: found {there} at {path.absolute()}, expected an image file: check the image column, and name the folder "
            "that its paths start from with root="
        )
    return path, row


def _kind(path: Path) -> str:
    name = path.name.lower()
    if name.endswith(".npy"):
        return "npy"
    if name.endswith((".nii", ".nii.gz", ".mgz", ".mgh")):
        return "nifti"
    if name.endswith((".dcm", ".dicom")):
        return "dicom"
    if name.endswith((".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".gif", ".webp")):
        return "pil"
    with _parsing(path, "a readable file"), path.open("rb") as file:  # DICOM often has no suffix, or a number for one
        if file.read(132)[128:] == b"DICM":
            return "dicom"
        return "pil"


# What Pillow's, pydicom's and nibabel's parsers let out when bytes are not what they should be.
_PARSE_ERRORS = (
    OSError, EOFError, SyntaxError, ValueError, TypeError, KeyError, IndexError, AttributeError, ArithmeticError, MemoryError,
    NotImplementedError, RuntimeError, struct.error, zlib.error, AssertionError,
)  # fmt: skip


@contextmanager
def _parsing(path: Path, expected: str) -> Iterator[None]:
    try:
        yield
    except ImageError:
        raise
    except _PARSE_ERRORS as error:
        reason = " ".join(str(error).split())[:400] or type(error).__name__
        if "missing dependencies" in reason:
            way_out = "install a decoder named here"
        else:
            way_out = "restore the file or drop its row"
        raise ImageError(f"{path}: cannot be decoded ({reason}), expected {expected}: {way_out}") from error


# ---- Pillow ------------------------------------------------------------------------------------------------------------------

_GREY_MODES = ("1", "L", "LA", "La", "I", "I;16", "I;16L", "I;16B", "I;16N", "F")
_QUARTER_TURNS = (5, 6, 7, 8)
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


@contextmanager
def _pil(path: Path) -> Iterator[Image.Image]:
    """An open image, its pixels not yet decoded."""
    limit = Image.MAX_IMAGE_PIXELS
    bomb = (
        f"expected at most {limit} (a decompression bomb?): shrink it, or raise PIL.Image.MAX_IMAGE_PIXELS if you trust the file"
    )
    # A stream, not a path: for paths Pillow maps plain TIFFs into memory and garbles those with an orientation.
    with _parsing(path, "a whole image"), path.open("rb") as file:
        try:
            image = Image.open(file)
        except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
            raise ImageError(f"{path}: found more pixels than allowed, {bomb}") from error
        except UnidentifiedImageError as error:
            raise ImageError(
                f"{path}: found no known image format in its {path.stat().st_size} bytes, "
                "expected PNG, JPEG, TIFF, DICOM, NIfTI or npy: restore the file or drop its row"
            ) from error
        if limit is not None and image.width * image.height > limit:
            raise ImageError(f"{path}: found {image.width} x {image.height} pixels, {bomb}")
        yield image


def _frames(image: Image.Image) -> int:
    """Pages of a TIFF stack. Pages of several sizes are a picture and its reduced copies; a GIF or MPO is its first frame."""
    pages = 1
    if image.format == "TIFF":
        pages = int(getattr(image, "n_frames", 1))
    if pages == 1:
        return 1
    kinds = set()
    for page in range(pages):
        image.seek(page)
        kinds.add((image.size, image.mode))
    image.seek(0)
    if len(kinds) == 1:
        return pages
    return 1


def _orientation(image: Image.Image) -> int:
    # Pillow turns TIFF itself; PNG's getexif would decode the pixels to look for a late chunk
    if image.format == "TIFF" or (image.format == "PNG" and "exif" not in image.info):
        return 1
    return int(image.getexif().get(0x0112, 1) or 1)


def _decode_pil(path: Path, *, raw: bool) -> np.ndarray:
    pages = []
    with _pil(path) as image:
        frames, turn = _frames(image), _TURNS.get(_orientation(image))
        for frame in range(frames):
            if frames > 1:
                image.seek(frame)
            page = _plain(image, path, raw=raw)
            pages.append(np.asarray(page if turn is None else page.transpose(turn)))
    pixels = _stacked(pages)
    if raw or pixels.dtype == np.uint8:
        return pixels
    return _unit(pixels, path)


def _stacked(pages: Sequence[np.ndarray]) -> np.ndarray:
    """(h, w, c) of one page, (h, w, pages, c) of several; grey pages (h, w) have one channel."""
    coloured = [np.atleast_3d(page) for page in pages]
    if len(coloured) == 1:
        return coloured[0]
    return np.stack(coloured, axis=2)


def _plain(image: Image.Image, path: Path, *, raw: bool) -> Image.Image:
    """The frame in mode L, RGB, I;16 or F."""
    image.load()
    if image.mode in ("L", "RGB", "F") or image.mode.startswith("I;16"):
        return image
    if image.mode == "I":
        if not raw and image.format == "TIFF":
            raise ImageError(
                f"{path}: found 32-bit integers, expected 8 or 16 bits (their range is unknown): save it with 16 bits"
            )
        return image
    return image.convert("L" if image.mode in ("1", "LA", "La") else "RGB")


def _unit(pixels: np.ndarray, path: Path) -> np.ndarray:
    """Numbers of more than 8 bits to float32 in [0, 1]."""
    if pixels.dtype.kind in "iu":
        return pixels.astype(np.float32) / np.float32(65535)
    pixels = pixels.astype(np.float32)
    if pixels.size:
        low, high = (float(pixels.min()), float(pixels.max()))
    else:
        low, high = (math.nan, math.nan)
    if not (low >= 0 and high <= 1):
        raise ImageError(f"{path}: found floats from {low:g} to {high:g}, expected [0, 1]: scale them, or save 8 or 16 bits")
    return pixels


# ---- numpy -------------------------------------------------------------------------------------------------------------------


def _npy(path: Path, row: int | None) -> np.ndarray:
    """A memory map of the file, or one row of it in memory."""
    with _parsing(path, "an .npy array of numbers"):
        if row is None:
            return np.load(path, mmap_mode="r", allow_pickle=False)
        stat = path.stat()
        shape, dtype, offset, is_c_order = _npy_header(path, stat.st_mtime_ns, stat.st_size)
        if len(shape) < 3 or row >= shape[0]:
            raise ImageError(f"{path}#{row}: found an array of {shape}, expected more than {row} images: check the row number")
        if not is_c_order:
            return np.array(np.load(path, mmap_mode="r", allow_pickle=False)[row])
        count = math.prod(shape[1:])
        return np.fromfile(path, dtype, count, offset=offset + row * count * dtype.itemsize).reshape(shape[1:])


@lru_cache(maxsize=256)
def _npy_header(path: Path, modified: int, size: int) -> tuple[tuple[int, ...], np.dtype, int, bool]:
    """Shape, type, start of the data and order, read once per state of the file: parsing them takes longer than reading a row."""
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    return array.shape, array.dtype, int(array.offset), bool(array.flags.c_contiguous)


def _npy_shape(array: np.ndarray, path: Path, row: int | None) -> tuple[int, ...]:
    if array.ndim not in (2, 3, 4):
        name = str(path) if row is None else f"{path}#{row}"
        raise ImageError(
            f"{name}: found an image of {array.shape}, expected (h, w), (h, w, c) or (x, y, z, c): save it in one of these shapes"
        )
    if array.ndim == 2:
        return (*array.shape, 1)
    return array.shape


def _decode_npy(path: Path, row: int | None, *, raw: bool) -> np.ndarray:
    array = _npy(path, row)
    pixels = np.array(array).reshape(_npy_shape(array, path, row))
    if raw or pixels.dtype == np.uint8:
        return pixels
    if pixels.dtype == bool:
        return pixels.astype(np.uint8) * 255
    if pixels.dtype != np.uint16 and pixels.dtype.kind != "f":
        raise ImageError(
            f"{path}: found numbers of type {pixels.dtype}, expected uint8, uint16, bool or floats in [0, 1]: convert them"
        )
    return _unit(pixels, path)


# ---- NIfTI -------------------------------------------------------------------------------------------------------------------


def _nibabel(path: Path) -> Any:
    try:
        import nibabel
    except ImportError as error:
        raise ImageError(f"{path}: a NIfTI or MGH volume needs nibabel: pip install rightreasons[medical]") from error
    return nibabel


def _open_nifti(path: Path) -> Any:
    nibabel = _nibabel(path)
    with _parsing(path, "a NIfTI or MGH volume"):
        try:
            volume = nibabel.load(path)
        except (nibabel.filebasedimages.ImageFileError, nibabel.spatialimages.HeaderDataError) as error:
            raise ValueError(str(error)) from error
    if len(volume.shape) not in (3, 4):
        raise ImageError(f"{path}: found axes {volume.shape}, expected (x, y, z) or (x, y, z, c): squeeze or slice it")
    return volume


def _nifti_shape(path: Path) -> tuple[int, ...]:
    volume = _open_nifti(path)
    turns = _nibabel(path).io_orientation(volume.affine)
    size = tuple(volume.shape[int(i)] for i in np.argsort(turns[:, 0]))
    names = volume.get_data_dtype().names
    if names:  # RGB24
        return (*size, len(names))
    return (*size, volume.shape[3] if len(volume.shape) == 4 else 1)


def _decode_nifti(path: Path, *, raw: bool) -> np.ndarray:
    volume, nibabel = _open_nifti(path), _nibabel(path)
    with _parsing(path, f"a whole volume of {volume.shape}"):
        pixels = np.asanyarray(nibabel.as_closest_canonical(volume).dataobj)
    if pixels.dtype.names:  # RGB24
        pixels = np.stack([pixels[name] for name in pixels.dtype.names], axis=-1)
    if pixels.ndim == 3:
        pixels = pixels[..., None]
    if raw or pixels.dtype == np.uint8:
        return np.ascontiguousarray(pixels)
    return _span(np.ascontiguousarray(pixels, dtype=np.float32), path)


def _span(pixels: np.ndarray, path: Path) -> np.ndarray:
    """From the finite minimum to the maximum, to [0, 1]; NaN and infinities become the minimum; a constant becomes 0."""
    finite = np.isfinite(pixels)
    if not finite.any():
        raise ImageError(f"{path}: found no finite value, expected an image: restore the file or drop its row")
    low, high = pixels[finite].min(), pixels[finite].max()
    if high > low:
        scaled = (pixels - low) / (high - low)
    else:
        scaled = np.zeros_like(pixels)
    return np.where(finite, scaled, np.float32(0)).astype(np.float32)


# ---- DICOM -------------------------------------------------------------------------------------------------------------------


def _open_dicom(path: Path, *, pixels: bool) -> Any:
    try:
        import pydicom
    except ImportError as error:
        raise ImageError(f"{path}: a DICOM image needs pydicom: pip install rightreasons[medical]") from error
    with _parsing(path, "a DICOM file"):
        try:
            dataset = pydicom.dcmread(path, stop_before_pixels=not pixels)
        except pydicom.errors.InvalidDicomError as error:
            raise ValueError("no DICOM preamble") from error
    if "Rows" not in dataset or (pixels and "PixelData" not in dataset):
        modality = dataset.get("Modality", "no modality")
        raise ImageError(f"{path}: found a DICOM file without pixels ({modality}), expected an image: drop its row")
    return dataset


def _dicom_shape(path: Path) -> tuple[int, ...]:
    dataset = _open_dicom(path, pixels=False)
    with _parsing(path, "whole numbers for its size"):
        frames = int(dataset.get("NumberOfFrames") or 1)
        if dataset.get("PhotometricInterpretation") == "PALETTE COLOR":
            channels = 3
        else:
            channels = int(dataset.get("SamplesPerPixel", 1))
        size = (int(dataset.Rows), int(dataset.Columns))
    if frames == 1:
        return (*size, channels)
    return (*size, frames, channels)


def _decode_dicom(path: Path, *, raw: bool) -> np.ndarray:
    dataset = _open_dicom(path, pixels=True)
    with _parsing(path, f"whole pixels of {dataset.Rows} x {dataset.Columns}"):
        frames = int(dataset.get("NumberOfFrames") or 1)
        stored = dataset.pixel_array
        if frames == 1:
            pages = [stored]
        else:
            pages = list(stored)
        if not raw:
            pages = [_present(page, dataset, frame) for frame, page in enumerate(pages)]
    pixels = np.ascontiguousarray(_stacked(pages))
    if raw:
        return pixels
    if pixels.dtype == np.float64:  # no window: still in the units of the rescaled values
        pixels = _span(pixels.astype(np.float32), path)
    if dataset.get("PhotometricInterpretation") == "MONOCHROME1":
        if pixels.dtype == np.uint8:
            pixels = np.uint8(255) - pixels
        else:
            pixels = np.float32(1) - pixels
    return pixels


def _present(page: np.ndarray, dataset: Any, frame: int) -> np.ndarray:
    """One frame as uint8, as float32 in [0, 1], or, where the file gives no window, as float64 in rescaled units."""
    from pydicom.pixels import apply_color_lut, apply_modality_lut, apply_voi

    bits = int(dataset.get("BitsStored", 8))
    if dataset.get("PhotometricInterpretation") == "PALETTE COLOR":
        return _of_bits(apply_color_lut(page, dataset)[..., :3], int(dataset.RedPaletteColorLookupTableDescriptor[2]))
    if page.ndim == 3:
        return _of_bits(page, bits)
    if dataset.get("ModalityLUTSequence"):
        page, slope, intercept = apply_modality_lut(page, dataset), 1.0, 0.0
    else:
        slope = float(_in_force(dataset, frame, "RescaleSlope", 1))
        intercept = float(_in_force(dataset, frame, "RescaleIntercept", 0))
    width = float(_first(_in_force(dataset, frame, "WindowWidth", 0)))
    is_plain = (slope, intercept) == (1.0, 0.0)
    if dataset.get("VOILUTSequence"):
        # the table is looked up by whole numbers
        if is_plain:
            page = page
        else:
            page = np.rint(page * slope + intercept).astype(np.int64)
        depth = int(dataset.VOILUTSequence[0].LUTDescriptor[2])
        return (apply_voi(page, dataset) / (2.0**depth - 1)).astype(np.float32)
    if width < 1 and is_plain and bits <= 8 and page.dtype == np.uint8 and not dataset.get("ModalityLUTSequence"):
        return _of_bits(page, bits)
    values = page.astype(np.float64) * slope + intercept
    if width < 1:  # none, or the zero that some devices write for none
        return values
    centre = float(_first(_in_force(dataset, frame, "WindowCenter", 0)))
    return _windowed(values, centre, width, str(_in_force(dataset, frame, "VOILUTFunction", "LINEAR")).upper())


def _windowed(values: np.ndarray, centre: float, width: float, function: str) -> np.ndarray:
    """DICOM PS3.3 C.11.2.1.2 and C.11.2.1.3 with output from 0 to 1."""
    if function == "SIGMOID":
        out = 1 / (1 + np.exp(-4 * (values - centre) / width))
    elif function == "LINEAR_EXACT":
        out = (values - centre) / width + 0.5
    elif width > 1:
        out = (values - (centre - 0.5)) / (width - 1) + 0.5
    else:  # a window of one value is a threshold
        out = (values > centre - 0.5).astype(np.float64)
    return np.clip(out, 0, 1).astype(np.float32)


def _in_force(dataset: Any, frame: int, keyword: str, default: float | str) -> Any:
    """An attribute of one frame: its own functional group, then the shared one, then the file's."""
    if keyword.startswith(("Window", "VOI")):
        macro = "FrameVOILUTSequence"
    else:
        macro = "PixelValueTransformationSequence"
    for groups, index in (("PerFrameFunctionalGroupsSequence", frame), ("SharedFunctionalGroupsSequence", 0)):
        group = dataset.get(groups)
        if group and len(group) > index:
            values = group[index].get(macro)
        else:
            values = None
        if values and values[0].get(keyword) is not None:
            return values[0].get(keyword)
    value = dataset.get(keyword)
    if value is None or value == "":
        return default
    return value


def _first(value: Any) -> Any:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return value[0]
    return value


def _of_bits(page: np.ndarray, bits: int) -> np.ndarray:
    """Unsigned numbers of so many bits to uint8 (8 or fewer) or float32 in [0, 1]."""
    top = 2.0**bits - 1
    if bits == 8:
        return page.astype(np.uint8)
    if bits < 8:
        return np.rint(page * (255 / top)).astype(np.uint8)
    return (page / top).astype(np.float32)
