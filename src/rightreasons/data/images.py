"""Images at a model's input geometry, with their boxes and masks placed the same way. Decoding is in `formats`."""

from __future__ import annotations

import io
import math
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

import numpy as np
from PIL import Image
from scipy import ndimage

from rightreasons.data.formats import Reference, decode, digest, read, shape
from rightreasons.errors import ImageError, SettingError

__all__ = [
    "Geometry", "Reference", "boxes_to_mask", "digest", "in_order", "load", "load_mask", "place_boxes", "read", "shape", "stack",
    "stream", "thumbnail", "widen",
]  # fmt: skip

Item = TypeVar("Item")
Out = TypeVar("Out")


LEAST_CROP = 0.05  # images are resized to size / crop before the crop: below that they no longer fit into memory


@dataclass(frozen=True)
class Geometry:
    """How an image of any size becomes the model's input.

    Parameters
    ----------
    size : (h, w), or (x, y, z) for volumes
    crop : centre-crop share: sides are first resized to floor(size / crop) (timm's `crop_pct`)
    interpolation : nearest | bilinear | bicubic (for volumes: spline order 0, 1, 3)
    channels : 1 = grey, 3 = RGB, or what the source has
    mode : center (the short side fits, the rest is cropped) | squash (both sides fit, the aspect is lost) | border (the long
        side fits, the rest is padded)
    fill : colour of the padding per channel in [0, 1] (timm pads with the model's mean); black when empty
    """

    size: tuple[int, ...]
    crop: float = 1.0
    interpolation: str = "bilinear"
    channels: int = 3
    mode: str = "center"
    fill: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", tuple(map(int, self.size)))
        object.__setattr__(self, "fill", tuple(map(float, self.fill)))
        if len(self.size) not in (2, 3) or min(self.size) < 1:
            raise SettingError(f"size is {self.size}: give (h, w) for images or (x, y, z) for volumes, all positive")
        if not LEAST_CROP <= self.crop <= 1:
            raise SettingError(f"crop is {self.crop:g}: give a share from {LEAST_CROP:g} to 1 (1 = no crop)")
        if self.interpolation not in _RESAMPLE:
            raise SettingError(f"interpolation is '{self.interpolation}': give one of {', '.join(_RESAMPLE)}")
        if self.mode not in ("center", "squash", "border"):
            raise SettingError(f"mode is '{self.mode}': give center, squash or border")
        if self.channels < 1:
            raise SettingError(f"channels is {self.channels}: give 1 for grey, 3 for colour")
        if len(self.fill) not in (0, self.channels):
            raise SettingError(f"fill has {len(self.fill)} values: give one per channel ({self.channels}), or none for black")

    @property
    def key(self) -> str:
        """A name for files that depend on the geometry."""
        if self.mode == "border":
            fill = "".join(f"-{v:g}" for v in self.fill)
        else:
            fill = ""
        return f"{'x'.join(map(str, self.size))}x{self.channels}-{self.mode}{self.crop:g}-{self.interpolation}{fill}"


_RESAMPLE = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
}
_SPLINE = {"nearest": 0, "bilinear": 1, "bicubic": 3}


def load(reference: Reference, geometry: Geometry, *, root: Reference | None = None) -> np.ndarray:
    """Decode, fix channels, resize and crop to `geometry.size + (channels,)`; uint8 or float32 in [0, 1].

    For 8-bit images the pixels are, to the bit, those of torchvision's Resize and CenterCrop on a PIL image as timm chains them
    for evaluation. (For non-square sizes timm always resizes bilinearly; here `geometry.interpolation` is kept.)
    """
    pixels = read(reference, root=root)
    _check_axes(pixels.shape, geometry, reference)
    if pixels.shape[-1] == 3 and geometry.channels == 1:
        pixels = _luminance(pixels)
    if pixels.shape[-1] not in (1, geometry.channels):
        raise ImageError(
            f"{reference}: found {pixels.shape[-1]} channels, expected {geometry.channels}: convert the image, "
            f"or use a model with channels={pixels.shape[-1]}"
        )
    resized, offset = _placement(pixels.shape[:-1], geometry)
    pixels = _resize(pixels, resized, geometry.interpolation)
    if pixels.shape[-1] < geometry.channels:
        pixels = np.repeat(pixels, geometry.channels, axis=-1)
    return _window(pixels, offset, geometry)


def load_mask(reference: Reference, geometry: Geometry, *, root: Reference | None = None) -> np.ndarray:
    """Which input pixels lie in a mask, (*size) bool: resized by nearest neighbour and cropped as in `load`.

    A pixel is inside where any channel is not zero.
    """
    pixels = decode(reference, root, raw=True)
    _check_axes(pixels.shape, geometry, reference)
    inside = ((pixels != 0) & ~np.isnan(pixels)).any(axis=-1, keepdims=True).astype(np.uint8)
    resized, offset = _placement(inside.shape[:-1], geometry)
    return _window(_resize(inside, resized, "nearest"), offset, geometry, pad=False)[..., 0].astype(bool)


def place_boxes(boxes: np.ndarray | Sequence[Sequence[float]], shape: tuple[int, ...], geometry: Geometry) -> np.ndarray:
    """Boxes (k, 4) of x0, y0, x1, y1 in source pixels to input pixels, clipped to the input.

    Coordinates are edges of pixels: a box over the first pixel is (0, 0, 1, 1). A box that the crop removes comes back with no
    area.

    Parameters
    ----------
    shape : (h, w) or (h, w, c) of the source, as `shape` gives it
    """
    if len(geometry.size) != 2:
        raise ImageError(f"boxes are for images, and the input is a volume {geometry.size}: give masks instead")
    boxes = np.asarray(boxes, dtype=float).reshape(-1, 4)
    (height, width), (top, left) = _placement(tuple(shape[:2]), geometry)
    scale = np.array([width / shape[1], height / shape[0]] * 2)
    limits = np.array([geometry.size[1], geometry.size[0]] * 2)
    return np.clip(boxes * scale - np.array([left, top] * 2), 0, limits)


def boxes_to_mask(boxes: np.ndarray, size: tuple[int, ...]) -> np.ndarray:
    """Pixels (h, w) whose centre lies in a box; a box with area but no pixel centre inside takes the pixel at its middle."""
    mask = np.zeros(size, dtype=bool)
    for x0, y0, x1, y1 in np.asarray(boxes, dtype=float).reshape(-1, 4):
        if x1 > x0 and y1 > y0:
            mask[_pixels_between(y0, y1, size[0]), _pixels_between(x0, x1, size[1])] = True
    return mask


def thumbnail(pixels: np.ndarray, side: int = 128) -> bytes:
    """PNG of an image (h, w), (h, w, c) or of the middle slice of a volume (x, y, z, c), no side longer than `side`."""
    pixels = np.asarray(pixels)
    if pixels.ndim == 4:
        pixels = np.rot90(pixels[:, :, pixels.shape[2] // 2])  # RAS: anterior up
    if pixels.ndim == 2:
        pixels = pixels[..., None]
    if pixels.dtype != np.uint8:
        pixels = np.rint(np.clip(np.nan_to_num(pixels.astype(np.float32)), 0, 1) * 255).astype(np.uint8)
    if pixels.shape[-1] >= 3:
        pixels = pixels[..., :3]
    else:
        pixels = pixels[..., 0]
    image = Image.fromarray(np.ascontiguousarray(pixels))
    image.thumbnail((side, side), Image.Resampling.BICUBIC)
    stream = io.BytesIO()
    image.save(stream, "PNG", optimize=True)
    return stream.getvalue()


def stack(pictures: Sequence[np.ndarray]) -> np.ndarray:
    """Pictures of one shape in one array: uint8 if all are, else float32 in [0, 1]."""
    if len({picture.dtype for picture in pictures}) > 1:
        pictures = [widen(picture) for picture in pictures]
    return np.stack(pictures)


def widen(picture: np.ndarray) -> np.ndarray:
    """uint8 to float32 in [0, 1], by the same division as torchvision's ToTensor."""
    if picture.dtype == np.uint8:
        return picture.astype(np.float32) / np.float32(255)
    return picture


def stream(
    references: Sequence[Reference] | np.ndarray,
    geometry: Geometry,
    *,
    root: Reference | None = None,
    ids: Sequence[str] | np.ndarray | None = None,
    workers: int | None = None,
    ahead: int | None = None,
) -> Generator[np.ndarray, None, None]:
    """`load` many images in threads: in order, at most `ahead` of them decoded and waiting (by default 64, or 256 MB of them).

    Closing the generator, or an error, ends the threads. An `ImageError` names the row by its id.
    """
    if ahead is None:
        ahead = min(64, max(2, 2**28 // (4 * geometry.channels * math.prod(geometry.size))))

    def one(row: int) -> np.ndarray:
        try:
            return load(references[row], geometry, root=root)
        except ImageError as error:
            if ids is None:
                name = f"row {row}"
            else:
                name = f"row '{ids[row]}'"
            raise ImageError(f"{name}: {error}") from error

    return in_order(one, range(len(references)), workers=workers, ahead=ahead)


def in_order(
    function: Callable[[Item], Out], items: Iterable[Item], *, workers: int | None = None, ahead: int = 64
) -> Generator[Out, None, None]:
    """Like `map`, computed in threads at most `ahead` items in front of the caller, who may stop at any time."""
    pool = ThreadPoolExecutor(workers or _cores(), thread_name_prefix="rightreasons")
    waiting: deque[Future[Out]] = deque()
    rest = iter(items)
    try:
        waiting.extend(pool.submit(function, item) for item in islice(rest, max(1, ahead)))
        while waiting:
            done = waiting.popleft().result()
            waiting.extend(pool.submit(function, item) for item in islice(rest, 1))
            yield done
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _cores() -> int:
    """Cores that this process may use; beyond 16 threads Python's lock eats the gain."""
    if hasattr(os, "sched_getaffinity"):
        allowed = len(os.sched_getaffinity(0))
    else:
        allowed = os.cpu_count() or 1
    return min(16, allowed)


# ---- from source to input geometry -----------------------------------------------------------------------------------------


def _check_axes(shape: tuple[int, ...], geometry: Geometry, reference: Reference) -> None:
    if len(shape) - 1 != len(geometry.size):
        kind = {2: "an image (h, w)", 3: "a volume (x, y, z)"}
        raise ImageError(
            f"{reference}: found {kind[len(shape) - 1]} of {shape[:-1]}, expected {kind[len(geometry.size)]} for the input size "
            f"{geometry.size}: give a model of that kind, or slice the volume"
        )


def _placement(source: tuple[int, ...], geometry: Geometry) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Size after resizing, and where the input window begins in it (negative: padding)."""
    target = tuple(math.floor(s / geometry.crop) for s in geometry.size)
    if geometry.mode == "squash":
        resized = target
    elif geometry.mode == "center" and len(source) == 2 and target[0] == target[1]:
        # torchvision's Resize truncates the long side, timm's ResizeKeepRatio (below) rounds both
        short = min(source)
        resized = tuple(target[0] if s == short else int(target[0] * s / short) for s in source)
    else:
        ratios = [s / t for s, t in zip(source, target)]
        if geometry.mode == "border":
            ratio = max(ratios)
        else:
            ratio = min(ratios)
        resized = tuple(max(1, round(s / ratio)) for s in source)
    return resized, tuple(_begin(r, s) for r, s in zip(resized, geometry.size))


def _begin(resized: int, size: int) -> int:
    # round() to even and floor division are torchvision's, for the crop and for the padding
    if resized >= size:
        return round((resized - size) / 2.0)
    return -((size - resized) // 2)


def _window(pixels: np.ndarray, offset: tuple[int, ...], geometry: Geometry, *, pad: bool = True) -> np.ndarray:
    """Cut `geometry.size` out of resized pixels, beginning at `offset`, padded where the window reaches outside."""
    cut = tuple(slice(max(o, 0), max(o, 0) + s) for o, s in zip(offset, geometry.size))
    inner = pixels[cut]
    if inner.shape[:-1] == geometry.size:
        return np.ascontiguousarray(inner)
    out = np.zeros((*geometry.size, pixels.shape[-1]), pixels.dtype)
    if pad and geometry.fill:
        colour = np.array(geometry.fill, np.float64)
        if pixels.dtype == np.uint8:
            out[...] = np.array([round(255 * v) for v in colour])
        else:
            out[...] = colour
    out[tuple(slice(max(-o, 0), max(-o, 0) + length) for o, length in zip(offset, inner.shape[:-1]))] = inner
    return out


def _resize(pixels: np.ndarray, resized: tuple[int, ...], interpolation: str) -> np.ndarray:
    if pixels.shape[:-1] == resized:
        return pixels
    if len(resized) == 3:
        return np.stack([_zoom(pixels[..., c], resized, _SPLINE[interpolation]) for c in range(pixels.shape[-1])], axis=-1)
    if pixels.dtype == np.uint8 and pixels.shape[-1] == 3:
        return _resize_pil(pixels, resized, interpolation)
    out = np.stack([_resize_pil(pixels[..., c], resized, interpolation) for c in range(pixels.shape[-1])], axis=-1)
    return np.clip(out, 0, 1) if out.dtype == np.float32 else out  # bicubic overshoots


def _resize_pil(plane: np.ndarray, resized: tuple[int, ...], interpolation: str) -> np.ndarray:
    return np.asarray(Image.fromarray(np.ascontiguousarray(plane)).resize((resized[1], resized[0]), _RESAMPLE[interpolation]))


def _zoom(volume: np.ndarray, resized: tuple[int, ...], order: int) -> np.ndarray:
    factors = [r / s for r, s in zip(resized, volume.shape)]
    # grid_mode: voxels are cells, not points, as pixels are in PIL
    out = ndimage.zoom(volume.astype(np.float32), factors, order=order, mode="nearest", grid_mode=True)
    if volume.dtype == np.uint8:
        return np.rint(np.clip(out, 0, 255)).astype(np.uint8)
    return np.clip(out, 0, 1)


def _luminance(pixels: np.ndarray) -> np.ndarray:
    if pixels.dtype == np.uint8 and pixels.ndim == 3:
        return np.asarray(Image.fromarray(np.ascontiguousarray(pixels)).convert("L"))[..., None]
    grey = pixels.astype(np.float32) @ np.array([[0.299], [0.587], [0.114]], np.float32)
    if pixels.dtype == np.uint8:
        return np.rint(grey).astype(np.uint8)
    return np.clip(grey, 0, 1)


def _pixels_between(low: float, high: float, size: int) -> slice:
    first, last = max(0, math.ceil(low - 0.5)), min(size, math.ceil(high - 0.5))
    if last > first:
        return slice(first, last)
    middle = min(size - 1, max(0, math.floor((low + high) / 2)))
    return slice(middle, middle + 1)
