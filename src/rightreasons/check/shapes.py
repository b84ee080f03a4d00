"""Do the images and their boxes fit each other, and the input of a model?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Literal

import numpy as np

from rightreasons.check import words
from rightreasons.data.images import Geometry, place_boxes
from rightreasons.data.schema import Problem, Table, box_values, parse_boxes

Shapes = Mapping[int, tuple[int, ...]]
"""Row → shape of its image, channels last; only of images that can be read."""

KINDS = {2: "an image", 3: "a volume"}
LOSSES = {"center": "more than half of it is cropped", "squash": "it is squashed", "border": "more than half is padding"}


def box_problems(table: Table, shapes: Shapes, geometry: Geometry | None) -> Iterator[Problem]:
    """Boxes that do not lie in their image, or not in what the model sees of it; what cannot be parsed is listed before."""
    column = table.schema.box[0] if table.schema.box else ""
    for row, value in enumerate(box_values(table.frame, table.schema)):
        try:
            boxes = parse_boxes(value)
        except ValueError:
            continue
        if row not in shapes or not len(boxes):
            continue
        size = shapes[row][:-1]
        if len(size) == 3:
            yield Problem(f"a box on a volume of {words.size(size)}: give a mask instead", row, column, kind="box-on-volume")
        else:
            yield from _box_places(boxes, size, geometry, row, column)


def _box_places(boxes: np.ndarray, size: tuple[int, ...], geometry: Geometry | None, row: int, column: str) -> Iterator[Problem]:
    inside = np.clip(boxes, 0, np.array([size[1], size[0]] * 2))
    has_input = geometry is not None and len(geometry.size) == 2
    placed = place_boxes(boxes, size, geometry) if geometry is not None and has_input else None
    for k, box in enumerate(boxes):
        named = f"box {' '.join(f'{v:g}' for v in box)}"
        if box[2] <= box[0] or box[3] <= box[1]:
            continue
        if _area(inside[k]) == 0:
            yield Problem(f"{named} lies outside the image of {words.size(size)}", row, column, kind="box-outside")
        elif (inside[k] != box).any():
            lost = 1 - _area(inside[k]) / _area(box)
            message = f"{named} reaches out of the image of {words.size(size)}: {lost:.0%} of it is cut"
            yield Problem(message, row, column, "warning", "box-reaches-out")
        elif placed is not None and _area(placed[k]) == 0:
            message = f"{named} lies outside the centre crop that the model sees of an image of {words.size(size)}"
            yield Problem(message, row, column, "warning", "box-cropped-away")


def _area(box: np.ndarray) -> float:
    return float((box[2] - box[0]) * (box[3] - box[1]))


def shape_problems(shapes: Shapes, geometry: Geometry | None, column: str) -> Iterator[Problem]:
    """Images that differ among each other, or from what the model takes."""
    if not shapes:
        return
    yield from _mixed(shapes, column)
    if geometry is None:
        if len({len(shape) for shape in shapes.values()}) > 1:
            volumes = {row: "a volume among images" for row, shape in shapes.items() if len(shape) == 4}
            yield from _by_row(volumes, len(shapes), "error", "mixed-axes", column)
        return
    axes = len(geometry.size)
    wrong = {
        row: f"{KINDS[len(s) - 1]} of {words.size(s[:-1])}, and the model takes {KINDS[axes]} of {words.size(geometry.size)}"
        for row, s in shapes.items()
        if len(s) - 1 != axes
    }
    yield from _by_row(wrong, len(shapes), "error", "image-axes", column)
    fitting = {row: shape for row, shape in shapes.items() if row not in wrong}
    yield from _channel_problems(fitting, geometry, column)
    yield from _size_problems(fitting, geometry, column)


def _mixed(shapes: Shapes, column: str) -> Iterator[Problem]:
    sizes = Counter(shape[:-1] for shape in shapes.values())
    if len(sizes) > 1:
        usual, n = sizes.most_common(1)[0]
        smallest, largest = words.size(min(sizes)), words.size(max(sizes))
        message = f"{len(sizes)} image sizes, from {smallest} to {largest}; {n} images are {words.size(usual)}"
        yield Problem(message, None, column, "info", "mixed-sizes")
    channels = Counter(shape[-1] for shape in shapes.values())
    if len(channels) > 1:
        listed = ", ".join(f"{n} with {c}" for c, n in sorted(channels.items()))
        message = f"numbers of channels differ: {listed}; a model can tell them apart"
        yield Problem(message, None, column, "info", "mixed-channels")


def _channel_problems(shapes: Shapes, geometry: Geometry, column: str) -> Iterator[Problem]:
    grey, colour, unusable = {}, {}, {}
    wanted = geometry.channels
    for row, shape in shapes.items():
        channels = shape[-1]
        if channels == 1 < wanted:
            grey[row] = f"a grey image, and the model takes {wanted} channels: it will be repeated"
        elif channels == 3 and wanted == 1:
            colour[row] = "a colour image, and the model takes one channel: its luminance will be used"
        elif channels != wanted:
            unusable[row] = f"{channels} channels, and the model takes {wanted}: convert the image or use another model"
    yield from _by_row(grey, len(shapes), "warning", "image-grey", column)
    yield from _by_row(colour, len(shapes), "warning", "image-colour", column)
    yield from _by_row(unusable, len(shapes), "error", "image-channels", column)


def _size_problems(shapes: Shapes, geometry: Geometry, column: str) -> Iterator[Problem]:
    wanted = words.size(geometry.size)
    small, long = {}, {}
    for row, shape in shapes.items():
        size = shape[:-1]
        if any(2 * a < b for a, b in zip(size, geometry.size, strict=True)):
            small[row] = f"{words.size(size)} is less than half of the model's input of {wanted}"
        stretch = [a / b for a, b in zip(size, geometry.size, strict=True)]
        if max(stretch) > 2 * min(stretch):
            long[row] = f"{words.size(size)} is long for an input of {wanted}: {LOSSES[geometry.mode]}"
    yield from _by_row(small, len(shapes), "warning", "image-small", column)
    yield from _by_row(long, len(shapes), "warning", "image-aspect", column)


def _by_row(
    messages: Mapping[int, str], total: int, level: Literal["error", "warning"], kind: str, column: str
) -> Iterator[Problem]:
    """One problem a row; one for all where most images have it, because then it is the set that does not fit."""
    if len(messages) > max(20, total / 2):
        first = min(messages)
        message = f"{len(messages)} of {total} images, such as row {first + 1}: {messages[first]}"
        yield Problem(message, None, column, level, kind)
        return
    for row, message in messages.items():
        yield Problem(message, row, column, level, kind)
