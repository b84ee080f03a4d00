"""What belongs to the images of a cohort and to no model, at one input geometry: pixels, field of view, mean images."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, suppress
from itertools import islice
from pathlib import Path

import numpy as np
from scipy import ndimage

from rightreasons import files
from rightreasons.data import images
from rightreasons.data.cohort import Cohort
from rightreasons.data.images import Geometry, stack, widen
from rightreasons.errors import DataError
from rightreasons.progress import track

CHUNK_BYTES = 16 << 20
PARTIAL = ".partial"
FEW_HEADERS = 8
DARK = 0.06
"""How much brighter than the border's darkest pixel, in [0, 1], the surround of a field of view may be."""


class Facts:
    """Facts of one cohort at one geometry, kept in a folder named by both fingerprints.

    A changed image, another order of rows or another geometry is another folder, so nothing old is ever served.

    Parameters
    ----------
    folder : where the facts of all cohorts lie; None keeps nothing and decodes on every use
    workers : decoding threads; one per core by default
    """

    def __init__(
        self, folder: str | os.PathLike[str] | None, cohort: Cohort, geometry: Geometry, *, workers: int | None = None
    ) -> None:
        self.cohort = cohort
        self.geometry = geometry
        self.workers = workers
        if folder is None:
            self.folder = None
        else:
            self.folder = Path(folder) / f"{cohort.fingerprint}-{geometry.key}"

    def pixels(self) -> np.ndarray | Decoded:
        """Pixels (n, *size, c) as `images.load` gives them: uint8, or float32 in [0, 1] where any image is not 8-bit.

        With a folder they are decoded once, in threads and with bounded memory, into a memory map; a run that was killed goes
        on after the last whole chunk. Without a folder they are decoded whenever they are indexed.
        """
        if self.folder is None:
            return Decoded(self.cohort, self.geometry, self.workers)
        if len(self.cohort) == 0:
            return np.empty(self._shape, np.uint8)
        self.folder.mkdir(parents=True, exist_ok=True)
        # One image beyond 8 bits makes the whole map float32, which shows while decoding.
        wide = self._path(np.float32)
        is_wide = wide.exists() or wide.with_suffix(PARTIAL).exists()
        if is_wide or not (self._path(np.uint8).exists() or self._fill(np.uint8)):
            if not wide.exists():
                self._fill(np.float32)
            return np.load(wide, mmap_mode="r")
        return np.load(self._path(np.uint8), mmap_mode="r")

    def field_of_view(self) -> np.ndarray:
        """(n, *size) bool: each image without its dark surround, see `field_of_view`; computed once."""
        path = None
        if self.folder is not None:
            path = self.folder / "field.npy"
        if path is None or not path.exists():
            pixels = self.pixels()
            parts = (_fields_of_view(pixels[rows]) for rows in self._chunks())
            if path is None:
                return np.concatenate([np.empty((0, *self.geometry.size), bool), *parts])
            _save_parts(path, self._shape[:-1], parts)
        return np.load(path, mmap_mode="r")

    def mean_image(self) -> np.ndarray:
        """Mean over the rows, (*size, c) float32 in [0, 1]."""
        return self._mean("mean", self._shape[1:], _total)

    def edge_image(self) -> np.ndarray:
        """Mean over the rows of the Sobel magnitude of the grey image, each scaled to [0, 1] first; (*size) float32.

        What superpixels follow (OSCAR, sec. III-E). A constant image has no edges and counts as such.
        """
        return self._mean("edges", self.geometry.size, lambda part: np.sum([_edges(picture) for picture in part], axis=0))

    def affine(self) -> np.ndarray | None:
        """Voxel of the input → world, where the images are NIfTI and so have one; None for other images.

        The headers of a few rows are read. Images that lie differently in the world share no voxel grid and are refused.
        """
        n = len(self.cohort)
        if n:
            few = dict.fromkeys(np.linspace(0, n - 1, FEW_HEADERS).astype(int).tolist())
        else:
            few = {}
        affines = {row: _input_affine(self.cohort.image[row], self.geometry, self.cohort.root) for row in few}
        first = next((affine for affine in affines.values() if affine is not None), None)
        if first is None:
            return None
        for row, affine in affines.items():
            if affine is None or not np.allclose(first, affine, atol=1e-3):
                raise DataError(
                    f"rows {self.cohort.id[0]!r} and {self.cohort.id[row]!r} of cohort {self.cohort.name!r} lie differently "
                    "in the world: register the images to one space, so that an atlas can be laid over them"
                )
        return first

    def _mean(self, name: str, shape: Sequence[int], total_of: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """Mean over the rows of what `total_of` sums over a chunk of pixels, kept as `<name>.npy`."""
        if len(self.cohort) == 0:
            raise DataError(
                f"cohort '{self.cohort.name}' has no rows, and the {name} image needs at least one: check the selection"
            )
        path = None
        if self.folder is not None:
            path = self.folder / f"{name}.npy"
        if path is not None and path.exists():
            return np.load(path)
        pixels, total = self.pixels(), np.zeros(shape, np.float64)
        for rows in self._chunks():
            total += total_of(pixels[rows])
        mean = (total / len(self.cohort)).astype(np.float32)
        if path is not None:
            _save(path, mean)
        return mean

    # ---- the memory map -------------------------------------------------------------------------------------------------

    @property
    def _shape(self) -> tuple[int, ...]:
        return (len(self.cohort), *self.geometry.size, self.geometry.channels)

    def _chunks(self) -> Iterator[slice]:
        step = max(1, CHUNK_BYTES // int(np.prod(self._shape[1:])))
        return (slice(start, min(start + step, len(self.cohort))) for start in range(0, len(self.cohort), step))

    def _path(self, dtype: type[np.generic]) -> Path:
        if self.folder is None:
            raise DataError("decoded pixels are kept in a folder, and these facts have none: give Facts a folder")
        return self.folder / f"pixels-{dtype.__name__}.npy"

    def _made(self) -> Path | None:
        if self.folder is None:
            return None
        paths = (self._path(dtype) for dtype in (np.float32, np.uint8))
        return next((path for path in paths if path.exists()), None)

    def _fill(self, dtype: type[np.generic]) -> bool:
        """Decode what is missing of the map and give it its name; False where an image does not fit `dtype`.

        Every write is the same whoever makes it, so that two processes may fill one map.
        """
        path, chunks = self._path(dtype), list(self._chunks())
        partial = path.with_suffix(PARTIAL)
        with closing(_Map(partial, self._shape, np.dtype(dtype), len(chunks))) as file:
            missing = [k for k in range(len(chunks)) if not file.is_done(k)]
            rows = np.concatenate([np.arange(len(self.cohort))[chunks[k]] for k in missing] or [np.empty(0, np.int64)])
            with closing(_decode(self.cohort, self.geometry, rows, self.workers)) as decoded:
                bar = iter(track(decoded, "decode images", total=len(rows), done=len(self.cohort) - len(rows)))
                for k in missing:
                    pictures = list(islice(bar, chunks[k].stop - chunks[k].start))
                    if dtype == np.uint8 and any(picture.dtype != np.uint8 for picture in pictures):
                        partial.unlink(missing_ok=True)
                        return False
                    pixels = stack(pictures)
                    file.write(k, chunks[k].start, pixels if dtype == np.uint8 else widen(pixels))
        with suppress(FileNotFoundError):  # another process was first
            partial.replace(path)
        return True


def field_of_view(bright: np.ndarray) -> np.ndarray:
    """(*size) bool: an image without its dark surround; all of it where it has none.

    The surround is every pixel that is connected to the border and as dark as the darkest pixel there (within `DARK`): the black
    around a round fundus, the collimation of an X-ray.

    Parameters
    ----------
    bright : (*size) in [0, 1], the largest value of each pixel over channels
    """
    border = np.zeros(bright.shape, bool)
    for axis in range(bright.ndim):
        for side in (0, -1):
            border[(slice(None),) * axis + (side,)] = True
    darkest = bright[border].min()
    dark = bright <= darkest + DARK
    pieces, _ = ndimage.label(dark)
    surround = np.isin(pieces, np.unique(pieces[border & dark]))
    if surround.all() or darkest > 2 * DARK:
        return np.ones(bright.shape, bool)
    return ~surround


class Decoded:
    """Pixels of a cohort that are decoded when indexed with rows; reads like the memory map."""

    def __init__(self, cohort: Cohort, geometry: Geometry, workers: int | None = None) -> None:
        self.cohort, self.geometry, self.workers = cohort, geometry, workers
        self.shape = (len(cohort), *geometry.size, geometry.channels)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice | np.ndarray | Sequence[int]) -> np.ndarray:
        view = np.arange(len(self))[rows]
        if view.ndim == 0:
            return self[[int(view)]][0]
        pictures = list(_decode(self.cohort, self.geometry, view, self.workers))
        if pictures:
            return stack(pictures)
        return np.empty((0, *self.shape[1:]), np.uint8)


def _decode(cohort: Cohort, geometry: Geometry, rows: np.ndarray, workers: int | None) -> Generator[np.ndarray, None, None]:
    return images.stream(cohort.image[rows], geometry, root=cohort.root, ids=cohort.id[rows], workers=workers)


def _fields_of_view(pictures: np.ndarray) -> np.ndarray:
    brightest = [widen(picture.max(axis=-1)) for picture in pictures]
    return np.stack([field_of_view(bright) for bright in brightest])


def _total(pixels: np.ndarray) -> np.ndarray:
    """Sum over the rows, of values in [0, 1]."""
    return pixels.sum(axis=0, dtype=np.float64) / (255 if pixels.dtype == np.uint8 else 1)


def _edges(picture: np.ndarray) -> np.ndarray:
    """Sobel magnitude (*size) of a picture (*size, c) in grey, scaled to [0, 1] before."""
    grey = picture.astype(np.float64)
    if picture.shape[-1] == 3:
        grey = grey @ np.array([0.299, 0.587, 0.114])
    else:
        grey = grey.mean(axis=-1)
    span = grey.max() - grey.min()
    if span == 0:
        return np.zeros(grey.shape)
    grey = (grey - grey.min()) / span
    return np.sqrt(sum(ndimage.sobel(grey, axis=axis, mode="nearest") ** 2 for axis in range(grey.ndim)))


def _input_affine(reference: str, geometry: Geometry, root: Path) -> np.ndarray | None:
    """Voxel of the input → world: the file's affine after resizing and cropping; None for images that are not NIfTI."""
    if not reference.lower().endswith((".nii", ".nii.gz", ".mgz", ".mgh")) or len(geometry.size) != 3:
        return None
    import nibabel  # there, or these images could not have been decoded

    volume = nibabel.as_closest_canonical(nibabel.load(root / reference))  # type: ignore[attr-defined]
    source = tuple(volume.shape[:3])
    resized, offset = images._placement(source, geometry)
    step = np.array(source) / np.array(resized)
    to_source = np.eye(4)
    to_source[:3, :3] = np.diag(step)
    to_source[:3, 3] = (np.array(offset) + 0.5) * step - 0.5  # pixel centres
    return np.asarray(volume.affine) @ to_source


class _Map:
    """An .npy file that is filled chunk by chunk, with a byte per chunk behind the array: 1 when the chunk is safe on disk."""

    def __init__(self, path: Path, shape: tuple[int, ...], dtype: np.dtype, n_chunks: int) -> None:
        self._path = path
        head = io.BytesIO()
        np.lib.format.write_array_header_1_0(
            head, {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
        )
        self._row_bytes = int(np.prod(shape[1:])) * dtype.itemsize
        self._start = head.tell()
        self._marks = self._start + shape[0] * self._row_bytes
        size = self._marks + n_chunks
        have = path.stat().st_size if path.exists() else 0  # sparse, but a second call has asked for the room before
        free = shutil.disk_usage(path.parent).free
        if size - have > free:
            raise DataError(
                f"{path.parent}: found {free / 1e9:.1f} GB free, expected {(size - have) / 1e9:.1f} GB for decoded pixels: "
                "make room, give another folder, or none (every use then decodes)"
            )
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o644)
        self._file = os.fdopen(descriptor, "r+b", buffering=0)
        if os.fstat(descriptor).st_size not in (0, size):
            self._file.truncate(0)  # cut in other chunks by another version
        self._file.truncate(size)
        self._put(0, head.getvalue())

    def is_done(self, chunk: int) -> bool:
        self._file.seek(self._marks + chunk)
        return self._file.read(1) == b"\x01"

    def write(self, chunk: int, first_row: int, pixels: np.ndarray) -> None:
        try:
            self._put(self._start + first_row * self._row_bytes, pixels.tobytes())
            os.fsync(self._file.fileno())
            self._put(self._marks + chunk, b"\x01")
        except OSError as error:
            raise DataError(
                f"{self._path}: decoded pixels cannot be written ({error.strerror}): make room or give another folder; "
                "what is written is kept"
            ) from error

    def _put(self, offset: int, data: bytes) -> None:
        self._file.seek(offset)
        rest = memoryview(data)
        while rest:
            rest = rest[self._file.write(rest) :]

    def close(self) -> None:
        self._file.close()


def _save_parts(path: Path, shape: tuple[int, ...], parts: Iterator[np.ndarray]) -> None:
    """Bool parts, one after the other, as one .npy that appears whole."""
    with files.replacing(path) as partial, partial.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "|b1", "fortran_order": False, "shape": shape})
        for part in parts:
            file.write(np.ascontiguousarray(part, dtype=bool).tobytes())


def _save(path: Path, array: np.ndarray) -> None:
    with files.replacing(path) as partial, partial.open("wb") as file:
        np.save(file, array)
