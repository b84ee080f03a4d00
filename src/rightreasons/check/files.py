"""The files that a table names, each read once: images, twins and masks that cannot be read, are blank, or are the same."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from rightreasons.check import words
from rightreasons.check.shapes import Shapes, box_problems, shape_problems
from rightreasons.data.formats import decode
from rightreasons.data.images import Geometry, digest, in_order, shape
from rightreasons.data.schema import Problem, Table
from rightreasons.errors import ImageError
from rightreasons.progress import track

DECODED_AT_MOST = 20_000  # images; above, headers and a sample
DECODED_SAMPLE = 2_000
END_BYTES = 4096  # of a file that are compared at first

Depth = bool | Literal["header", "full"]


@dataclass(frozen=True)
class File:
    """What one file is, or why it cannot be read."""

    shape: tuple[int, ...] = ()
    error: str = ""
    is_missing: bool = False
    is_blank: bool = False  # one value throughout; for a mask, nothing marked
    mark: str = ""  # equal for equal bytes, almost always different for others


@dataclass
class Files:
    """Every file that the table names.

    Attributes
    ----------
    depth : True decodes up to `DECODED_AT_MOST` files, and above reads all headers and decodes a sample; "header" decodes none,
        "full" all
    notes : what was not looked at, and why
    pictures, masks : reference → what it is
    """

    table: Table
    depth: Depth
    workers: int | None
    notes: list[str] = field(default_factory=list)
    pictures: dict[str, File] = field(default_factory=dict)
    masks: dict[str, File] = field(default_factory=dict)

    def problems(self, geometry: Geometry | None) -> list[Problem]:
        """What is wrong with the files, and with their fit to a model's input."""
        image, twin, mask = self.table.image, self.table.twin, self.table.mask
        if image is None:
            return []
        self._read([*image, *(() if twin is None else twin)], () if mask is None else mask)
        content = self._contents()
        problems = [*self._file_problems("image", image, self.pictures), *self._duplicates(image, content)]
        if twin is not None:
            problems += self._file_problems("twin", twin, self.pictures)
            problems += self._size_problems("twin", image, twin, self.pictures)
            problems += self._identical_twins(image, twin, content)
        if mask is not None:
            problems += self._file_problems("mask", mask, self.masks)
            problems += self._size_problems("mask", image, mask, self.masks)
        shapes = self._shapes(image)
        problems += box_problems(self.table, shapes, geometry)
        problems += shape_problems(shapes, geometry, str(self.table.schema.image))
        return problems

    def _read(self, pictures: Iterable[str], masks: Iterable[str]) -> None:
        """Fill `pictures` and `masks`: files are decoded, or their headers read, in threads."""
        jobs = [(r, False) for r in dict.fromkeys(pictures) if r] + [(r, True) for r in dict.fromkeys(masks) if r]
        is_decoded = np.full(len(jobs), self.depth in (True, "full"))
        if self.depth is True and len(jobs) > DECODED_AT_MOST:
            is_decoded[:] = False
            is_decoded[np.linspace(0, len(jobs) - 1, DECODED_SAMPLE).astype(np.int64)] = True
            self.notes.append(
                f"{len(jobs)} files: all headers were read and {is_decoded.sum()} files, evenly spaced, were decoded; "
                "images='full' decodes all"
            )
        elif self.depth == "header":
            self.notes.append("only the headers of images were read: a file that is cut short, or blank, is not seen")
        root = Path(self.table.schema.root)

        def look(job: int) -> File:
            return _look(*jobs[job], root, bool(is_decoded[job]))

        results = in_order(look, range(len(jobs)), workers=self.workers, ahead=256)
        for (reference, is_mask), file in zip(jobs, track(results, "reading images", total=len(jobs)), strict=True):
            (self.masks if is_mask else self.pictures)[reference] = file

    def _contents(self) -> dict[str, str]:
        """For each readable picture a text that is equal for equal bytes; only files that look alike are read whole for it."""
        content = {reference: file.mark for reference, file in self.pictures.items() if not file.error}
        alike = Counter(content.values())
        doubtful = [reference for reference, mark in content.items() if alike[mark] > 1]
        root = Path(self.table.schema.root)
        content.update(zip(doubtful, in_order(lambda r: digest(r, root=root), doubtful, workers=self.workers), strict=True))
        return content

    def _shapes(self, image: np.ndarray) -> Shapes:
        return {row: self.pictures[r].shape for row, r in enumerate(image) if r and not self.pictures[r].error}

    def _both_readable(self, image: np.ndarray, partner: np.ndarray, files: Mapping[str, File]) -> Iterator[int]:
        """Rows whose image and partner (a twin, a mask) can both be read."""
        for row, (a, b) in enumerate(zip(image, partner, strict=True)):
            if a and b and not self.pictures[a].error and not files[b].error:
                yield row

    def _file_problems(self, part: str, references: np.ndarray, files: Mapping[str, File]) -> Iterator[Problem]:
        column = getattr(self.table.schema, part)
        for row, reference in enumerate(references):
            if not reference:
                continue
            file = files[reference]
            if file.error:
                yield Problem(file.error, row, column, kind=f"{part}-{'missing' if file.is_missing else 'unreadable'}")
            elif file.is_blank and part == "mask":
                yield Problem("nothing is marked in the mask", row, column, "warning", "mask-empty")
            elif file.is_blank:
                yield Problem(f"every pixel of the {part} has the same value", row, column, "warning", f"{part}-blank")

    def _size_problems(self, part: str, image: np.ndarray, partner: np.ndarray, files: Mapping[str, File]) -> Iterator[Problem]:
        for row in self._both_readable(image, partner, files):
            own, its = self.pictures[image[row]].shape[:-1], files[partner[row]].shape[:-1]
            if own != its:
                message = f"the {part} is {words.size(its)} and the image {words.size(own)}"
                yield Problem(message, row, getattr(self.table.schema, part), kind=f"{part}-size")

    def _identical_twins(self, image: np.ndarray, twin: np.ndarray, content: Mapping[str, str]) -> Iterator[Problem]:
        for row in self._both_readable(image, twin, self.pictures):
            if content[image[row]] == content[twin[row]]:
                message = "the twin is the same file as the image, byte for byte"
                yield Problem(message, row, str(self.table.schema.twin), "warning", "twin-identical")

    def _duplicates(self, image: np.ndarray, content: Mapping[str, str]) -> Iterator[Problem]:
        """Rows with the bytes of an earlier row: a leak where the splits differ."""
        unnamed = np.full(len(image), "", dtype=object)
        splits = unnamed if self.table.split is None else self.table.split
        transform = unnamed if self.table.transform is None else self.table.transform
        earlier: dict[tuple[str, str], list[int]] = defaultdict(list)
        for row, reference in enumerate(image):
            if reference not in content:
                continue
            before = earlier[content[reference], transform[row]]
            if before:
                yield self._duplicate(row, before, splits)
            before.append(row)

    def _duplicate(self, row: int, before: list[int], splits: np.ndarray) -> Problem:
        column, classes, label = str(self.table.schema.image), self.table.schema.classes, self.table.label
        elsewhere = [b for b in before if splits[b] and splits[row] and splits[b] != splits[row]]
        first = elsewhere[0] if elsewhere else before[0]
        message = f"the same image as row {first + 1}"
        if elsewhere:
            message += f", which is in split {splits[first]!r} while this row is in {splits[row]!r}"
        if label[row] >= 0 and label[first] >= 0 and label[row] != label[first]:
            message += f"; the label is {classes[label[row]]!r} here and {classes[label[first]]!r} there"
        if elsewhere:
            return Problem(message, row, column, "error", "image-in-two-splits")
        return Problem(message, row, column, "warning", "duplicate-image")


def _look(reference: str, is_mask: bool, root: Path, is_decoded: bool) -> File:
    path = root / (reference.rpartition("#")[0] if ".npy#" in reference else reference)
    try:
        if not path.is_file():
            return File(error=f"no file at {path} (paths start from root=)", is_missing=True)
        if not is_decoded:
            return File(shape(reference, root=root), mark=_mark(reference, path, root))
        pixels = decode(reference, root, raw=is_mask)
        is_blank = not pixels.any() if is_mask else bool(pixels.size) and bool((pixels == pixels.flat[0]).all())
        return File(pixels.shape, is_blank=is_blank, mark=_mark(reference, path, root))
    except (ImageError, OSError) as error:  # OSError: a name that the file system refuses, a file that may not be read
        return File(error=str(error))


def _mark(reference: str, path: Path, root: Path) -> str:
    """The length of a file and a hash of its ends; the content of one row of a stack."""
    if ".npy#" in reference:
        return digest(reference, root=root)
    size = path.stat().st_size
    with path.open("rb") as file:
        ends = file.read(END_BYTES)
        file.seek(max(0, size - END_BYTES))
        ends += file.read(END_BYTES)
    return f"{size}-{hashlib.blake2b(ends, digest_size=16).hexdigest()}"
