"""The arrays of one cohort, chunk by chunk: what exists is not made again, and everything missing shares one forward pass."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import zarr

from rightreasons.data.cohort import Cohort
from rightreasons.data.facts import Facts
from rightreasons.errors import DataError, EvidenceError
from rightreasons.evidence import Evidence, View, missing_chunks
from rightreasons.models.batches import Pixels, batches
from rightreasons.models.classifier import Classifier
from rightreasons.models.passes import Maker, Pass
from rightreasons.progress import track


@dataclass(frozen=True)
class Feed:
    """How images reach the network: images per forward pass, rows per chunk, decoding threads, folder of decoded pixels."""

    batch: int
    chunk: int
    workers: int | None
    cache: str | os.PathLike[str] | None


@dataclass(frozen=True)
class CohortArrays:
    """One cohort of one model's evidence, how each of its arrays is made, and which chunks of unfinished ones exist."""

    classifier: Classifier
    evidence: Evidence
    name: str
    cohort: Cohort
    makers: Mapping[str, Maker]
    unfinished: Mapping[str, zarr.Array | None]
    feed: Feed

    def make(self, asked: Sequence[str]) -> None:
        """Make and keep those of the arrays that are not finished."""
        makers = {}
        for array in asked:
            if array in self.unfinished:
                makers[array] = _fitted(self.makers[array], self.evidence)
        if makers and len(self.cohort):
            _Making(self, makers).run()


def is_late(arrays: Mapping[str, Maker], array: str) -> bool:
    """Whether an array is made from whole arrays of the evidence, itself or through an array that it reads."""
    maker = arrays[array]
    return maker.fit is not None or any(is_late(arrays, other) for other in maker.arrays if "/" not in other)


def _fitted(maker: Maker, evidence: Evidence) -> Maker:
    """A maker that needs whole arrays, once these exist."""
    if maker.fit is None:
        return maker
    return replace(maker, make=maker.fit(evidence), fit=None)


class _Making:
    """Arrays that are made in one go over the images: their chunks on disk, and which of them are still missing."""

    def __init__(self, of: CohortArrays, makers: Mapping[str, Maker]) -> None:
        self.of, self.makers = of, makers
        self.evidence, self.name, self.cohort, self.feed = of.evidence, of.name, of.cohort, of.feed
        self.columns = {array: _columns(of.makers, array, of.evidence, of.cohort) for array in makers}
        self.labels = _labels(of.evidence, of.name, of.cohort, [a for a, maker in makers.items() if "label" in maker.reads])
        self.chunks = -(-len(of.cohort) // of.feed.chunk)
        self.stored: dict[str, zarr.Array] = {}
        for array in makers:  # what was begun with other batches or chunks is refused here, before anything runs
            begun = of.unfinished[array]
            if begun is not None:
                self.stored[array] = self._begin(array, begun.shape[1:], begun.dtype)
        self.missing = {array: self._missing(array) for array in makers}

    def run(self) -> None:
        todo = sorted(set().union(*self.missing.values()))
        # The last chunk alone may be ragged, so every batch holds the rows that it holds in an undisturbed run.
        order = np.concatenate([np.arange(rows.start, rows.stop) for rows in map(self._rows, todo)])
        what = f"extract {self.name} ({self.evidence.card.name})"
        size = min(self.feed.chunk, len(self.cohort))
        pixels = None
        if self.feed.cache is not None:
            pixels = Facts(self.feed.cache, self.cohort, self.of.classifier.geometry, workers=self.feed.workers).pixels()
        with closing(self._images(order, pixels)) as feed, torch.inference_mode():
            for chunk in track(todo, what, done=self.chunks - len(todo), each=size, unit="images"):
                self._make_chunk(chunk, feed)

    def _make_chunk(self, chunk: int, feed: Iterator[tuple[np.ndarray, torch.Tensor]]) -> None:
        rows = self._rows(chunk)
        now = {array: maker for array, maker in self.makers.items() if chunk in self.missing[array]}
        values: dict[str, list[np.ndarray]] = {array: [] for array in now}
        notes: dict[str, dict[str, Any]] = {array: {} for array in now}
        earlier = {array: self._stored_rows(array, rows) for array in _read_by(now) if array not in now}
        for _ in range(-(-(rows.stop - rows.start) // self.feed.batch)):
            numbers, x = next(feed)
            label = None
            if self.labels is not None:
                label = torch.from_numpy(self.labels[numbers]).to(x.device)
            arrays = {array: torch.from_numpy(part[numbers - rows.start]).to(x.device) for array, part in earlier.items()}
            batch = Pass(self.of.classifier, x, label, self.cohort, numbers, arrays)
            for array, maker in now.items():
                batch.arrays[array] = maker(batch).float()
                values[array].append(batch.arrays[array].cpu().numpy())
                notes[array] |= batch.notes.get(array, {})
        for array, parts in values.items():
            self._keep(array, chunk, np.concatenate(parts), notes[array])

    def _stored_rows(self, array: str, rows: slice) -> np.ndarray:
        """Rows of an array that was made earlier, or whose chunk was."""
        if array in self.stored:
            stored = self.stored[array]
        else:
            stored = self.evidence.array(self.name, array)
        return np.asarray(stored[rows])

    def _keep(self, array: str, chunk: int, values: np.ndarray, notes: Mapping[str, Any]) -> None:
        rows = self._rows(chunk)
        _refuse_odd(values, array, self.cohort, rows, self.evidence, self.makers[array].may_lack)
        if array not in self.stored:
            self.stored[array] = self._begin(array, values.shape[1:], values.dtype)
        stored = self.stored[array]
        if notes:
            stored.attrs["notes"] = {**_notes(stored), str(chunk): dict(notes)}
        stored[rows] = values

    def _begin(self, array: str, shape: tuple[int, ...], dtype: Any) -> zarr.Array:
        made_with: dict[str, Any] = {"batch": self.feed.batch}
        if self.makers[array].arrays:
            made_with["arrays"] = list(self.makers[array].arrays)
        return self.evidence.begin(self.name, array, shape, dtype, self.feed.chunk, self.columns[array], **made_with)

    def _missing(self, array: str) -> set[int]:
        if array in self.stored:
            return set(missing_chunks(self.stored[array]).tolist())
        return set(range(self.chunks))

    def _rows(self, chunk: int) -> slice:
        return slice(chunk * self.feed.chunk, min((chunk + 1) * self.feed.chunk, len(self.cohort)))

    def _images(self, order: np.ndarray, pixels: Pixels | None) -> Generator[tuple[np.ndarray, torch.Tensor], None, None]:
        """Row numbers and images, batch by batch; nothing is decoded before the first is asked for."""
        classifier = self.of.classifier
        yield from batches(
            self.cohort,
            classifier.geometry,
            classifier.mean,
            classifier.std,
            batch=self.feed.batch,
            order=order,
            workers=self.feed.workers,
            pixels=pixels,
            device=classifier.device,
        )


def _columns(arrays: Mapping[str, Maker], array: str, evidence: Evidence, cohort: Cohort) -> list[str]:
    """Columns that an array is tied to, through the arrays of the same cohort that it reads too."""
    columns: dict[str, None] = {}
    for column in arrays[array].reads:
        columns.setdefault(_target(evidence, cohort) if column == "label" else column)
    for other in arrays[array].arrays:
        if "/" not in other:
            columns |= dict.fromkeys(_columns(arrays, other, evidence, cohort))
    return list(columns)


def _read_by(makers: Mapping[str, Maker]) -> list[str]:
    return list(dict.fromkeys(other for maker in makers.values() for other in maker.arrays if "/" not in other))


def _notes(array: zarr.Array) -> dict[str, Any]:
    notes: Any = array.attrs.asdict().get("notes", {})
    return dict(notes)


def _target(evidence: Evidence, cohort: Cohort) -> str:
    """The column of the cohort that the model predicts."""
    target = evidence.card.target
    return target if target and target != cohort.label_name else "label"


def _labels(evidence: Evidence, name: str, cohort: Cohort, readers: Sequence[str]) -> np.ndarray | None:
    """(n,) which output is right, where an array's recipe reads it; every row must have one."""
    if not readers:
        return None
    label = View(evidence, name, np.arange(len(cohort))).label
    if (label < 0).any():
        first = int(np.argmax(label < 0))
        raise DataError(
            f"{', '.join(readers)} explain the label, and {int((label < 0).sum())} rows of cohort {name!r} have none, first id "
            f"{cohort.id[first]!r}: explain=predicted, or leave those rows out"
        )
    return label


def _refuse_odd(values: np.ndarray, array: str, cohort: Cohort, rows: slice, evidence: Evidence, may_lack: bool = False) -> None:
    flat = values.reshape(len(values), -1)
    finite = (~np.isinf(flat) if may_lack else np.isfinite(flat)).all(axis=1)
    if not finite.all():
        first = rows.start + int(np.argmin(finite))
        raise EvidenceError(
            f"{array!r} of {evidence.card.name} is not finite for {int((~finite).sum())} images of cohort {cohort.name!r}, first "
            f"for id {cohort.id[first]!r} ({cohort.image[first]}): look at the weights, at mean= and std=, and at that image; "
            "chunks that were finished before are kept"
        )
