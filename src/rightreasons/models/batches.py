"""Normalised tensors of a cohort's images, batch by batch, decoded in threads; and the pixels of their masks and boxes."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from itertools import islice
from typing import Protocol

import numpy as np
import torch

from rightreasons.data import images
from rightreasons.data.cohort import Cohort
from rightreasons.data.images import Geometry, stack
from rightreasons.errors import DataError, ImageError, SettingError

BATCHES_AHEAD = 3


class Pixels(Protocol):
    """Decoded pixels (n, *size, c): `Facts.pixels()`."""

    shape: tuple[int, ...]

    def __getitem__(self, rows: np.ndarray, /) -> np.ndarray: ...


def batches(  # noqa: PLR0913  each keyword is a documented setting
    cohort: Cohort,
    geometry: Geometry,
    mean: Sequence[float],
    std: Sequence[float],
    *,
    batch: int = 32,
    order: np.ndarray | None = None,
    workers: int | None = None,
    pixels: Pixels | None = None,
    device: str | torch.device = "cpu",
) -> Generator[tuple[np.ndarray, torch.Tensor], None, None]:
    """Yield (rows (b,), x float32 (b, c, *size)): the numbers of torchvision's ToTensor and Normalize, to the bit.

    A bounded number of batches is made ahead, in order. Closing the generator, or leaving its loop, ends the threads.

    Parameters
    ----------
    mean, std : one number per channel, or one for all
    order : row numbers to yield, e.g. a shuffled epoch; the cohort's own order by default
    pixels : decoded pixels of this cohort at this geometry (`Facts.pixels()`), read instead of the image files
    """
    if batch < 1:
        raise SettingError(f"batch is {batch}: give at least 1")
    if order is None:
        rows = np.arange(len(cohort))
    else:
        rows = _checked(order, len(cohort))
    expected = (len(cohort), *geometry.size, geometry.channels)
    if pixels is not None and tuple(pixels.shape) != expected:
        raise DataError(
            f"pixels are {tuple(pixels.shape)}, expected {expected} for cohort '{cohort.name}': "
            "take them from Facts of the same cohort and geometry"
        )
    normalise = Normalise(mean, std, geometry, device)
    parts = [rows[start : start + batch] for start in range(0, len(rows), batch)]
    if pixels is None:
        arrays = _decoded(cohort, geometry, parts, batch, workers)
    else:
        arrays = images.in_order(lambda part: np.asarray(pixels[part]), parts, workers=1, ahead=BATCHES_AHEAD)
    return _tensors(parts, arrays, normalise)


class Normalise:
    """uint8 or float32 pixels (b, *size, c) to a normalised float32 tensor (b, c, *size) on a device."""

    def __init__(self, mean: Sequence[float], std: Sequence[float], geometry: Geometry, device: str | torch.device) -> None:
        for name, values in (("mean", mean), ("std", std)):
            if len(values) not in (1, geometry.channels):
                raise SettingError(f"{name} has {len(values)} values, expected {geometry.channels}, one per channel")
        if not all(value > 0 for value in std):
            raise SettingError(f"std is {tuple(std)}: every value must be above 0")
        shape = (-1, *(1 for _ in geometry.size))
        self.device = torch.device(device)
        self.mean = torch.tensor(mean, dtype=torch.float32, device=self.device).view(shape)
        self.std = torch.tensor(std, dtype=torch.float32, device=self.device).view(shape)
        # A tensor on the device: CUDA replaces division by a plain number with a product, which may differ in the last bit.
        self.top = torch.tensor([255.0], device=self.device)

    def __call__(self, pixels: np.ndarray) -> torch.Tensor:
        raw = torch.from_numpy(pixels).to(self.device)
        x = raw.movedim(-1, 1).to(torch.float32, memory_format=torch.contiguous_format, copy=True)
        if pixels.dtype == np.uint8:
            x.div_(self.top)
        return x.sub_(self.mean).div_(self.std)


def regions(cohort: Cohort, geometry: Geometry, rows: np.ndarray | Sequence[int] | None = None) -> np.ndarray:
    """Which input pixels lie in a row's mask or, where it has none, in its boxes: (b, *size) bool.

    A row with neither has no True. Boxes lie where `images.load` puts the pixels they were drawn on.
    """
    masks, boxes = cohort.mask, cohort.box
    if masks is None and boxes is None:
        raise DataError(f"cohort '{cohort.name}' has neither masks nor boxes: give mask= or box= when reading the manifest")
    numbers = _checked(range(len(cohort)) if rows is None else rows, len(cohort))
    references, ids = cohort.image, cohort.id

    def one(row: int) -> np.ndarray:
        try:
            if masks is not None and masks[row]:
                return images.load_mask(masks[row], geometry, root=cohort.root)
            if boxes is None or len(boxes[row]) == 0:
                return np.zeros(geometry.size, bool)
            source = images.shape(references[row], root=cohort.root)
            return images.boxes_to_mask(images.place_boxes(boxes[row], source, geometry), geometry.size)
        except ImageError as error:
            raise ImageError(f"row '{ids[row]}': {error}") from error

    out = np.zeros((len(numbers), *geometry.size), bool)
    with closing(images.in_order(one, numbers)) as made:
        for slot, region in zip(out, made):
            slot[...] = region
    return out


def _checked(order: np.ndarray | Sequence[int], n: int) -> np.ndarray:
    rows = np.asarray(order)
    if rows.ndim != 1 or (rows.size and rows.dtype.kind not in "iu"):
        raise SettingError(f"rows are {rows.dtype} of shape {rows.shape}, expected whole numbers of shape (b,)")
    if rows.size and (rows.min() < 0 or rows.max() >= n):
        raise SettingError(f"rows go from {rows.min()} to {rows.max()}, expected 0 to {n - 1}: the cohort has {n} rows")
    return rows.astype(np.int64)


def _decoded(
    cohort: Cohort, geometry: Geometry, parts: list[np.ndarray], batch: int, workers: int | None
) -> Generator[np.ndarray, None, None]:
    if parts:
        rows = np.concatenate(parts)
    else:
        rows = np.empty(0, np.int64)
    pictures = images.stream(
        cohort.image[rows], geometry, root=cohort.root, ids=cohort.id[rows], workers=workers, ahead=batch * BATCHES_AHEAD
    )
    with closing(pictures):
        for part in parts:
            yield stack(list(islice(pictures, len(part))))


def _tensors(
    parts: list[np.ndarray], arrays: Generator[np.ndarray, None, None], normalise: Normalise
) -> Generator[tuple[np.ndarray, torch.Tensor], None, None]:
    with closing(arrays):
        for part, pixels in zip(parts, arrays):
            yield part, normalise(pixels)
