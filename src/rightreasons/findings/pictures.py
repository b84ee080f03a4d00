"""Small pictures inside a finding: PNG as base64 text, so that the page needs no other file."""

from __future__ import annotations

import base64
import binascii
import io
import struct
from typing import Any

import numpy as np
from PIL import Image

MAX_PICTURES = 60
PICTURE_PIXELS = 128
BACKGROUND_PIXELS = 512


def png(picture: Any, pixels: int = PICTURE_PIXELS) -> str:
    """A PNG of at most `pixels` a side as base64 text. An array is shrunk to fit; a PNG that is too large is refused.

    Parameters
    ----------
    picture : PNG bytes, their base64 text, or an array (h, w), (h, w, 1), (h, w, 3) or (h, w, 4), uint8 or float in [0, 1]
    """
    if isinstance(picture, str | bytes | bytearray):
        return _checked_png(picture, pixels)
    image = Image.fromarray(_bytes_of_pixels(np.asarray(picture)))
    image.thumbnail((pixels, pixels), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    image.save(buffer, "PNG", optimize=True)
    return base64.b64encode(buffer.getvalue()).decode("ascii")


def _checked_png(picture: str | bytes | bytearray, pixels: int) -> str:
    try:
        if isinstance(picture, str):
            raw = base64.b64decode(picture, validate=True)
        else:
            raw = bytes(picture)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"a picture's text is not base64 ({error}); give PNG bytes, their base64 text or an array") from error
    if raw[:8] != b"\x89PNG\r\n\x1a\n" or raw[12:16] != b"IHDR" or len(raw) < 33:
        raise ValueError(f"a picture begins with {raw[:8]!r}, which is not PNG; give PNG bytes, their base64 text or an array")
    width, height = struct.unpack(">II", raw[16:24])
    if not 0 < max(width, height) <= pixels:
        raise ValueError(
            f"a picture is {width} x {height} pixels and may have at most {pixels} a side; shrink it, or give the array"
        )
    limit = 8 * pixels * pixels + 65_536  # 16-bit RGBA that does not compress, and room for headers
    if len(raw) > limit:
        raise ValueError(f"a picture has {len(raw)} bytes and may have at most {limit}; write it without metadata")
    return base64.b64encode(raw).decode("ascii")


def _bytes_of_pixels(array: np.ndarray) -> np.ndarray:
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.ndim not in (2, 3) or array.size == 0 or (array.ndim == 3 and array.shape[2] not in (3, 4)):
        raise ValueError(f"a picture has shape {array.shape}; expected (h, w), (h, w, 3) or (h, w, 4)")
    if array.dtype == np.uint8:
        return np.ascontiguousarray(array)
    if array.dtype == bool:
        return array.astype(np.uint8) * np.uint8(255)
    if not np.issubdtype(array.dtype, np.floating):
        raise ValueError(f"a picture has type {array.dtype}; expected uint8, or float in [0, 1]")
    return np.round(np.clip(np.nan_to_num(array), 0, 1) * 255).astype(np.uint8)
