"""What one model said, cohort by cohort: arrays whose rows are a cohort's rows, tied to its ids and image contents.

    evidence/zarr.json                       what the model is (the card), which cohorts there are
    evidence/head.npz                        its head as data
    evidence/cohorts/<cohort>.parquet        the rows
    evidence/<cohort>/<array>/               one zarr array per recipe, chunked by rows

An array's name is its recipe: `logits`, `maps@gradcam(layer=layer4)`, `logits@noise(draw=3,region=outside)`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import numpy as np
import pandas as pd
import zarr
from scipy.special import softmax

from rightreasons import files
from rightreasons.data.cohort import Cohort, are_all
from rightreasons.data.schema import text
from rightreasons.display import table
from rightreasons.errors import DataError, EvidenceError, SettingError
from rightreasons.families import suggest
from rightreasons.head import Head, outputs_for
from rightreasons.stored import known_format

HELD_OUT = ("audit", "test")  # cohorts from which a model's own fitting rows are left out
CHUNK_ROWS = 256
MEMORY_CHUNK_BYTES = 1 << 20
PROBABILITY_TOLERANCE = 1e-3  # printed probabilities are rounded
FORMAT = 1  # of the folder
BROUGHT = "arrays of"  # how the fingerprint begins that stands for a model of which only arrays are known


@dataclass(frozen=True)
class Card:
    """What the model is."""

    name: str = "model"
    architecture: str = ""
    regime: str = ""
    seed: int | None = None
    target: str = ""  # the column it predicts; empty means the label
    classes: tuple[Any, ...] = ()  # the value that each output stands for
    start: str = ""
    model: str = ""  # fingerprint of the weights and the input geometry
    training: str = ""  # fingerprint of the training rows; empty means unknown
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Recipe:
    """`quantity@method(setting=value,…)`, settings in alphabetical order."""

    quantity: str
    method: str = ""
    settings: tuple[tuple[str, int | float | str | bool], ...] = ()

    @classmethod
    def parse(cls, name: str) -> Recipe:
        match = re.fullmatch(r"(\w+)(?:@(\w[\w.]*)(?:\((.*)\))?)?", name)
        if match is None:
            raise SettingError(f"{name!r} is not the name of an array: quantity@method(setting=value,…) expected")
        quantity, method, inner = match.groups()
        settings = {}
        for part in filter(None, (inner or "").split(",")):
            key, equals, value = part.partition("=")
            key = key.strip()
            if not equals or not key:
                raise SettingError(f"{part!r} in {name!r} is not setting=value")
            if key in settings:
                raise SettingError(f"{name!r} gives {key!r} twice: leave one out")
            settings[key] = _plain(value.strip())
        return cls(quantity, method or "", tuple(sorted(settings.items())))

    def __str__(self) -> str:
        if self.method:
            name = f"{self.quantity}@{self.method}"
        else:
            name = self.quantity
        inner = ",".join(f"{key}={value}" for key, value in self.settings)
        if not inner:
            return name
        return f"{name}({inner})"


class Evidence:
    """Arrays that one model gave for named cohorts.

    `evidence.on("test")` is a view with a cohort and arrays of exactly its rows; `evidence["logits"]` means `on("test")`.

    Attributes
    ----------
    card : what the model is
    head : its head as data, or None where it has no such form
    training : the rows that it was trained on, or None where they are not known
    used : ids of the rows that it was fitted or tuned on
    cohorts : names of the cohorts
    path : the folder, or None for evidence in memory
    """

    def __init__(
        self,
        group: zarr.Group,
        cohorts: dict[str, Cohort],
        head: Head | None = None,
        training: Cohort | None = None,
        used: frozenset[str] = frozenset(),
    ) -> None:
        self._group = group
        self._cohorts = cohorts
        attributes: dict[str, Any] = group.attrs.asdict()
        self._fingerprints: dict[str, str] = attributes["fingerprints"]
        self.card = _card(attributes["card"])
        self.cohorts = tuple(cohorts)
        self.path = None
        if isinstance(group.store, zarr.storage.LocalStore):
            self.path = Path(group.store.root)
        self.head = head
        self.training = training
        self.used = used

    # ---- making and opening -------------------------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str] | None,
        card: Card,
        *,
        head: Head | None = None,
        training: Cohort | None = None,
        used: Sequence[str] | frozenset[str] = frozenset(),
    ) -> Evidence:
        """New evidence in a folder (None: in memory), or the evidence already there if it is of the same model.

        The card, the training rows and the used ids that are given replace those in the folder.
        """
        if path is not None and (Path(path) / "zarr.json").exists():
            there = cls.open(path)
            there.refuse_other_model(card.name, card.model)
            there._update(card, training, frozenset(used))
            return there
        store: Any = _Memory()
        if path is not None:
            store = str(path)
        if path is not None:
            folder = Path(path)
            _save_used(folder, used)
            if head is not None:
                _save_arrays(folder / "head.npz", head.to_arrays())
            if training is not None:
                training.save(folder / "training.parquet")
        # The group is written last: a folder with zarr.json is whole.
        group = zarr.open_group(store, mode="a", attributes={"format": FORMAT, "card": _json(card), "fingerprints": {}})
        return cls(group, {}, head, training, frozenset(used))

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Evidence:
        folder = Path(path)
        if not (folder / "zarr.json").exists():
            raise EvidenceError(f"no evidence in {folder}: extract it first")
        group = zarr.open_group(str(folder), mode="a")
        stored: dict[str, Any] = group.attrs.asdict()
        known_format(stored.get("format"), FORMAT, folder, error=EvidenceError)
        names = stored["fingerprints"]
        cohorts = {}
        for name in names:
            cohorts[name] = Cohort.read(folder / "cohorts" / f"{name}.parquet", name=name)
        head = None
        if (folder / "head.npz").exists():
            head = Head.from_arrays(dict(np.load(folder / "head.npz")))
        training = None
        if (folder / "training.parquet").exists():
            training = Cohort.read(folder / "training.parquet", name="train")
        return cls(group, cohorts, head, training, frozenset(np.load(folder / "used.npz")["ids"].tolist()))

    def refuse_other_model(self, name: str, fingerprint: str) -> None:
        """Refuse a folder that holds what another model said."""
        if self.card.model != fingerprint:
            raise EvidenceError(
                f"{self.path} holds the evidence of {self.card.name} (model {self.card.model}) and not of {name} "
                f"(model {fingerprint}): choose another folder"
            )

    @classmethod
    def from_arrays(
        cls,
        cohort: Cohort | Mapping[str, Cohort],
        arrays: Mapping[str, Any],
        *,
        classes: Sequence[Any] | None = None,
        head: Head | None = None,
        name: str = "model",
        training: Cohort | None = None,
        used: Sequence[str] = (),
        path: str | os.PathLike[str] | None = None,
        **card: Any,
    ) -> Evidence:
        """Evidence from arrays that you already have.

        Parameters
        ----------
        cohort : one cohort, whose splits become the named cohorts (all rows are `test` where it has none); or several by name
        arrays : recipe → (n, …) array with the rows of `cohort`; with several cohorts, cohort name → such a mapping
        classes : the label value of every column of `logits`; the cohort's own classes by default
        card : what else is known of the model, as in `Card`, such as `target`, the column that it predicts
        """
        if isinstance(cohort, Cohort):
            by_name = {"": (cohort, arrays)}
        else:
            by_name = {key: (cohort[key], arrays[key]) for key in cohort}
        first, _ = next(iter(by_name.values()))
        values = tuple(classes if classes is not None else first.classes)
        about = Card(name=name, classes=values, model=f"{BROUGHT} {name}", **card)
        evidence = cls.create(path, about, head=head, training=training, used=frozenset(used))
        for key, (part, given) in by_name.items():
            checked = {array: _checked(np.asarray(v), array, part, values) for array, v in given.items()}
            for split, rows in _parts(part, key):
                evidence.add(split, part.select(rows, name=split))
                for array, v in checked.items():
                    evidence.put(split, array, v[rows])
        return evidence

    @classmethod
    def from_predictions(
        cls,
        path: str | os.PathLike[str],
        *,
        name: str | None = None,
        score: str | Sequence[str] | None = None,
        prediction: str | None = None,
        features: np.ndarray | None = None,
        rng: np.random.Generator | None = None,
        **columns: Any,
    ) -> Evidence:
        """Evidence from a table of predictions: id, label, attribute …, and `p_<class>` for each class.

        Of two classes one column is enough. `p` alone is the probability of the larger of two numbers, such as 0 and 1; where
        classes are words it does not say whose it is and is refused. Keywords are those of `Cohort.read`; no image column is
        needed.

        Parameters
        ----------
        score : columns of other names that hold probabilities: "risk", read as `p` is; "risk=ill", of that class; several that
            end in the name of their class
        prediction : column with decided classes, where there are no probabilities
        features : (n, d) of the rows, where they are known too; a table without audit rows then gives half of its test rows
        rng : halves them
        """
        cohort = Cohort.read(path, **{"image": None, **columns})
        if cohort.splits is not None and (lost := np.flatnonzero(cohort.splits == "")).size:
            raise DataError(
                f"{path}, row {lost[0] + 1}: in no split ({lost.size} such rows): name one, or leave the row out of the table"
            )
        if score is not None and prediction is not None:
            raise SettingError("give score= or prediction=, not both: probabilities say what is decided")
        if prediction is not None:
            p, classes = _decided(cohort, prediction, path)
        else:
            p, classes = _predicted(cohort, path, _scores(cohort, score, path))
        bad = ~((p >= 0).all(1) & (p <= 1).all(1) & (np.abs(p.sum(1) - 1) < PROBABILITY_TOLERANCE))
        if bad.any():
            row = int(bad.argmax())
            raise DataError(
                f"{path}, row {row + 1}: probabilities {p[row].tolist()} are not between 0 and 1 with sum 1 "
                f"({int(bad.sum())} such rows)"
            )
        logits = np.log(np.clip(p, 1e-12, None))
        arrays = {"logits": logits}
        if features is not None:
            arrays["features"] = np.asarray(features)
            cohort = cohort.with_roles(rng=np.random.default_rng(0) if rng is None else rng)
        return cls.from_arrays(cohort, arrays, classes=classes, name=name or Path(path).stem)

    # ---- reading ------------------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        listed = []
        for name, cohort in self._cohorts.items():
            listed.append(f"{name} ({len(cohort)} rows): {self._listed(name)}")
        return f"<Evidence of {self.card.name}: {'; '.join(listed) or 'empty'}>"

    def _repr_html_(self) -> str:
        """For notebooks: cohorts, their rows and arrays."""
        rows = [(name, len(self.on(name)), self._listed(name)) for name in self.cohorts]
        return table(f"Evidence of {self.card.name}", ("cohort", "rows", "arrays"), rows)

    def _listed(self, cohort: str) -> str:
        return ", ".join(self.arrays(cohort)) or "nothing"

    def arrays(self, cohort: str) -> tuple[str, ...]:
        """Names of the finished arrays of one cohort."""
        group = self._cohort_group(self._known(cohort))
        return tuple(sorted(unquote(k) for k, a in group.arrays() if not len(missing_chunks(a))))

    def on(self, cohort: str) -> View:
        """The rows of one cohort. Rows of `audit` and `test` that the model was fitted or tuned on are left out."""
        rows = np.arange(len(self._cohorts[self._known(cohort)]))
        if cohort in HELD_OUT and self.used:
            ids = self._cohorts[cohort].id
            rows = rows[[i not in self.used for i in ids]]
        return View(self, cohort, rows)

    def __getitem__(self, array: str) -> np.ndarray:
        return self.on("test")[array]

    def fingerprint(self, cohort: str) -> str:
        """Of the rows that arrays of this cohort were made from."""
        return str(self._fingerprints[cohort])

    def array(self, cohort: str, name: str) -> zarr.Array:
        """The whole array of a recipe; refused where it is unfinished, or made from other rows or by another model."""
        recipe = str(Recipe.parse(name))
        group = self._cohort_group(cohort)
        where = f"in the evidence of {self.card.name} on cohort {cohort}"
        if _key(recipe) not in group:
            raise EvidenceError(
                f"{recipe!r} is not {where} (it has {self._listed(cohort)}): {self._remedy('give it to from_arrays')}"
            )
        array = group[_key(recipe)]
        if not isinstance(array, zarr.Array):
            raise EvidenceError(f"{recipe!r} {where} is not an array")
        if array.attrs["cohort"] != self.fingerprint(cohort):
            raise EvidenceError(
                f"{recipe!r} {where} was made from rows {array.attrs['cohort']}, and the cohort is {self.fingerprint(cohort)}"
            )
        if array.attrs["model"] != self.card.model:
            raise EvidenceError(f"{recipe!r} {where} was made by model {array.attrs['model']} and not by {self.card.model}")
        if len(missing_chunks(array)):
            raise EvidenceError(
                f"{recipe!r} {where} is not finished ({len(missing_chunks(array))} chunks missing): extract again"
            )
        stored: dict[str, Any] = array.attrs.asdict()
        for column, made in stored["reads"].items():
            now = self._cohorts[cohort].column_hash(column)
            if now != made:
                raise EvidenceError(f"{recipe!r} {where} read column {column} ({made}), which has changed ({now}): extract again")
        return array

    # ---- writing ------------------------------------------------------------------------------------------------------

    def add(self, name: str, cohort: Cohort) -> None:
        """Name a cohort. A name that is taken must have the same rows; their other columns are replaced."""
        if not name or name.startswith(".") or "/" in name or "\\" in name:
            raise EvidenceError(f"{name!r} cannot name a cohort: it names a folder too, so leave out slashes and a leading dot")
        known = self._fingerprints.get(name)
        if known is not None and known != cohort.fingerprint:
            raise EvidenceError(
                f"cohort {name!r} in the evidence of {self.card.name} has fingerprint {known} and the one given "
                f"{cohort.fingerprint}: the ids, their order or the image contents differ; choose another folder"
            )
        if self.path is not None:
            cohort.save(self.path / "cohorts" / f"{name}.parquet")
        self._cohorts[name] = cohort
        self.cohorts = tuple(self._cohorts)
        if known is None:
            self._group.require_group(name)
            self._fingerprints = {**self._fingerprints, name: cohort.fingerprint}
            self._group.attrs["fingerprints"] = self._fingerprints

    def begin(
        self,
        cohort: str,
        name: str,
        row_shape: Sequence[int],
        dtype: Any,
        chunk: int = CHUNK_ROWS,
        reads: Sequence[str] = (),
        **made_from: Any,
    ) -> zarr.Array:
        """The zarr array of a recipe, new or begun earlier, to be filled chunk by chunk of rows.

        Parameters
        ----------
        reads : columns of the cohort that the recipe reads (label, box, mask, …); their hash is kept with the array
        made_from : anything else to be kept with it, such as the batch size; an array begun with other values is refused
        """
        recipe = str(Recipe.parse(name))
        rows = self._cohorts[self._known(cohort)]
        shape = (len(rows), *row_shape)
        attributes = {
            "recipe": recipe,
            "cohort": self.fingerprint(cohort),
            "model": self.card.model,
            "reads": {column: rows.column_hash(column) for column in reads},
            "chunk": chunk,
            **made_from,
        }
        group, key = self._cohort_group(cohort), _key(recipe)
        if key in group:
            array = self._writable(group, key)
            for what, value in attributes.items():
                if array.attrs.get(what) != value:
                    raise EvidenceError(
                        f"{recipe!r} of cohort {cohort!r} was made with {what} = {array.attrs.get(what)} and is now asked for "
                        f"with {what} = {value}: extract into another folder, or delete {group.path}/{key}"
                    )
            if array.shape != shape:
                raise EvidenceError(
                    f"{recipe!r} of cohort {cohort!r} has shape {array.shape} and is given now with {shape}: use another folder"
                )
            return array
        # Named chunks appear atomically (zarr writes a temporary file and renames it). Chunks of zeros must be written
        # too, else they look like chunks that were never made.
        return group.create_array(
            key,
            shape=shape,
            chunks=(min(chunk, max(len(rows), 1)), *row_shape),
            dtype=dtype,
            attributes=attributes,
            config={"write_empty_chunks": True},
        )

    def begun(self, cohort: str, name: str) -> zarr.Array | None:
        """The array of a recipe, finished or not; None where it was never begun."""
        group, key = self._cohort_group(cohort), _key(str(Recipe.parse(name)))
        if key not in group:
            return None
        return self._writable(group, key)

    def unfinished(self, cohort: str, names: Iterable[str]) -> dict[str, zarr.Array | None]:
        """Those of the named arrays that are not finished: what has been begun of each, None where nothing has."""
        finished = self.arrays(cohort)
        return {name: self.begun(cohort, name) for name in names if name not in finished}

    def put(self, cohort: str, name: str, values: np.ndarray, **made_from: Any) -> None:
        """Store a whole array."""
        rows = len(self._cohorts[self._known(cohort)])
        if len(values) != rows:
            raise EvidenceError(f"{name!r} has {len(values)} rows and cohort {cohort!r} has {rows}")
        if self.path is None:  # in memory nothing is resumed chunk by chunk
            row_bytes = max(1, values.dtype.itemsize * int(np.prod(values.shape[1:])))
            made_from = {"chunk": max(CHUNK_ROWS, MEMORY_CHUNK_BYTES // row_bytes), **made_from}
        array = self.begin(cohort, name, values.shape[1:], values.dtype, **made_from)
        array[:] = values

    def _remedy(self, brought: str) -> str:
        """What to do about a missing array: `brought` is said where the user brought the arrays, which cannot be extracted."""
        return brought if self.card.model.startswith(BROUGHT) else "extract it first"

    def _known(self, cohort: str) -> str:
        if cohort not in self._cohorts:
            raise EvidenceError(
                f"the evidence of {self.card.name} has no cohort {cohort!r} (it has {', '.join(self._cohorts) or 'none'}): "
                f"{self._remedy(f'name such rows {cohort!r} in a split column')}"
            )
        return cohort

    def _update(self, card: Card, training: Cohort | None, used: frozenset[str]) -> None:
        """Replace what is known about the model beside its weights: its classes, the rows that it was fitted on, and so on."""
        stored = _json(card)
        self._group.attrs["card"] = stored
        self.card = _card(stored)
        if training is not None:
            self.training = training
            if self.path is not None:
                training.save(self.path / "training.parquet")
        if used:
            self.used = used
            if self.path is not None:
                _save_used(self.path, used)

    def _cohort_group(self, cohort: str) -> zarr.Group:
        if cohort in self._group:
            group = self._group[cohort]
        else:
            group = self._group.create_group(cohort)
        if not isinstance(group, zarr.Group):
            raise EvidenceError(f"{cohort!r} in {self.path} is not a group of arrays")
        return group

    @staticmethod
    def _writable(group: zarr.Group, key: str) -> zarr.Array:
        # An array that is opened forgets how it was created, and would leave out chunks of zeros.
        return zarr.open_array(group.store_path / key, mode="r+").with_config({"write_empty_chunks": True})


class View:
    """Some rows of one cohort of one model's evidence: the cohort and arrays of exactly these rows, in this order.

    Attributes
    ----------
    cohort : the rows
    left_out : how many rows of the named cohort are not among them
    """

    def __init__(self, evidence: Evidence, name: str, rows: np.ndarray) -> None:
        self.evidence = evidence
        self.name = name
        self._rows = rows
        self.cohort = evidence._cohorts[name].select(rows, name=name)
        self.left_out = len(evidence._cohorts[name]) - len(rows)

    def __len__(self) -> int:
        return len(self._rows)

    def select(self, rows: np.ndarray) -> View:
        """Some of these rows, by mask or position."""
        index = np.asarray(rows)
        return View(self.evidence, self.name, self._rows[index if index.size else index.astype(np.int64)])

    def __contains__(self, array: str) -> bool:
        return str(Recipe.parse(array)) in self.evidence.arrays(self.name)

    def __getitem__(self, array: str) -> np.ndarray:
        if not len(self._rows):
            return np.asarray(self.evidence.array(self.name, array)[:0])
        return np.concatenate([block for _, block in self.blocks(array)])

    def matched(self, other: View) -> tuple[np.ndarray, np.ndarray]:
        """Positions of the rows whose ids another view has too, and their positions there."""
        place = {row: k for k, row in enumerate(other.cohort.id)}
        here = np.array([k for k, row in enumerate(self.cohort.id) if row in place], dtype=np.int64)
        there = np.array([place[row] for row in self.cohort.id[here]], dtype=np.int64)
        return here, there

    def blocks(self, array: str, chunks: int = 16) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Positions in this view and their part of an array, a few chunks at a time: for arrays larger than memory.

        Blocks come in the order of this view.
        """
        stored = self.evidence.array(self.name, array)
        size = stored.chunks[0] * chunks
        cuts = np.array([0, len(self)])
        if (np.diff(self._rows) > 0).all():
            cuts = np.searchsorted(self._rows, np.arange(0, stored.shape[0] + size, size))
        for start, stop in pairwise(cuts):
            if stop > start:
                rows = self._rows[start:stop]
                low = rows.min()
                block = np.asarray(stored[low : rows.max() + 1])
                yield np.arange(start, stop), block[rows - low]

    @property
    def label(self) -> np.ndarray:
        """(n,) which output the true class is, -1 where it is missing; of the model's own target column."""
        cohort, card = self.cohort, self.evidence.card
        if card.target and card.target != cohort.label_name:
            attribute = cohort.attribute(card.target)
            codes, values = attribute.values, attribute.levels
        else:
            codes, values = cohort.label, cohort.classes
        return as_outputs(codes, values, card.classes)

    def decisions(self) -> Decisions:
        """One row per decision: the images themselves or, where the cohort has cases, the mean of a case's images.

        A case's logits are the head of its mean features. Where features are not at hand and the head is linear or unknown,
        they are the mean logits, which is the same for a linear head.
        """
        head = self.evidence.head
        if self.cohort.case is None or head is None or head.is_linear:
            return Decisions(*self.by_case("logits"))
        if "features" not in self:
            raise EvidenceError(f"cases of cohort {self.name} need the features of {self.evidence.card.name}: extract them")
        cohort, label, features = self.by_case("features")
        return Decisions(cohort, label, head(features))

    def by_case(self, array: str) -> tuple[Cohort, np.ndarray, np.ndarray]:
        """Rows, labels and an array, one row per decision: a case's mean, or the image's own where it has no case."""
        cohort, label, values = self.cohort, self.label, self[array].astype(np.float64)
        if cohort.case is None:
            return cohort, label, values
        named = []
        for row, name in enumerate(cohort.case):
            named.append(f"={name}" if name else str(row))
        first, case = np.unique(named, return_index=True, return_inverse=True)[1:]
        mixed = label != label[first][case]
        if mixed.any():
            raise DataError(
                f"case {cohort.case[int(mixed.argmax())]!r} has images of different labels: one decision has one label"
            )
        return cohort.select(first, name=cohort.name), label[first], _mean_by(values, case, np.bincount(case))


@dataclass(frozen=True)
class Decisions:
    """What a model decided, one row a decision.

    Attributes
    ----------
    label : (n,) which output is true, -1 where missing
    logits : (n, C)
    probability : (n, C) of every output
    """

    cohort: Cohort
    label: np.ndarray
    logits: np.ndarray

    @cached_property
    def probability(self) -> np.ndarray:
        return np.asarray(softmax(self.logits, axis=1))

    def select(self, rows: np.ndarray) -> Decisions:
        """Some of the decisions, by mask or position."""
        if are_all(rows, len(self.label)):
            return self
        return Decisions(self.cohort.select(rows), self.label[rows], self.logits[rows])


def as_outputs(codes: np.ndarray, values: Sequence[Any], classes: Sequence[Any]) -> np.ndarray:
    """(n,) which output of the model stands for each code into `values`; -1, missing, stays -1."""
    place = np.append(outputs_for(values, classes), -1)
    return place[codes]


def missing_chunks(array: zarr.Array) -> np.ndarray:
    """Numbers of the row chunks that have not been written."""
    total = 0
    if array.shape[0]:
        total = -(-array.shape[0] // array.chunks[0])
    store = array.store_path.store
    written: set[int] = set()
    if isinstance(store, zarr.storage.LocalStore):
        written = _chunks_in_folder(Path(store.root) / array.store_path.path / "c", array.ndim)
    elif isinstance(store, _Memory):
        # zarr counts the keys that begin like this array's, which are also those of `logits@…` for `logits`.
        rest_of_key = "/0" * (array.ndim - 1)
        written = {c for c in range(total) if f"{array.store_path.path}/c/{c}{rest_of_key}" in store.held}
    return np.setdiff1d(np.arange(total), sorted(written)).astype(np.int64)


def _chunks_in_folder(folder: Path, ndim: int) -> set[int]:
    """Numbers of the row chunks that are files; a chunk lies below as many folders "0" as it has further axes."""
    written: set[int] = set()
    if not folder.is_dir():
        return written
    rest = Path(*["0"] * (ndim - 1))
    for path in folder.iterdir():
        # A killed write leaves a file of another name behind (`3.<hex>.partial`), which is no chunk.
        if path.name.isdigit() and (path / rest).is_file():
            written.add(int(path.name))
    return written


class _Memory(zarr.storage.MemoryStore):
    """Evidence that is kept in memory; `held` has a key for every chunk that was written."""

    def __init__(self) -> None:
        self.held: dict[str, Any] = {}
        super().__init__(store_dict=self.held)


# ---- what the classes above use ------------------------------------------------------------------------------------------


def _parts(cohort: Cohort, name: str) -> Iterator[tuple[str, np.ndarray]]:
    if name:
        yield name, np.arange(len(cohort))
    elif cohort.splits is None:
        yield "test", np.arange(len(cohort))
    else:
        for split in dict.fromkeys(cohort.splits):
            if split:
                yield split, np.flatnonzero(cohort.splits == split)


def _checked(values: np.ndarray, name: str, cohort: Cohort, classes: Sequence[Any]) -> np.ndarray:
    if values.ndim == 0 or len(values) != len(cohort):
        raise EvidenceError(f"{name!r} has shape {values.shape} and cohort {cohort.name!r} has {len(cohort)} rows")
    if not np.isfinite(values).all():
        row = int(np.argwhere(~np.isfinite(values))[0][0])
        raise EvidenceError(f"{name!r} is not finite in row {row + 1} (id {cohort.id[row]}): {values[row].ravel()[:4]}")
    if name == "logits":
        if values.ndim == 1 or values.shape[1] == 1:  # one logit z is read as (0, z)
            values = np.stack([np.zeros(len(values)), values.reshape(len(values))], axis=1)
        if values.shape[1] != len(classes):
            raise EvidenceError(
                f"logits have {values.shape[1]} columns and there are {len(classes)} classes {list(classes)}: give classes="
            )
    return values


def _scores(cohort: Cohort, score: str | Sequence[str] | None, path: str | os.PathLike[str]) -> dict[str, str]:
    """`p_<class>`, or `p` where the class is not said, → the column that the caller means by it."""
    found: dict[str, str] = {}
    if score is None:
        return found
    given = [score] if isinstance(score, str) else list(score)
    classes = [str(c) for c in cohort.classes]
    for column in given:
        name, whose = column, ""
        if column not in cohort.columns and "=" in column:
            name, _, whose = column.rpartition("=")
        if name not in cohort.columns:
            raise DataError(f"{path} has no column {name!r} (score=); {suggest(name, cohort.columns)}")
        if whose and whose not in classes:
            raise DataError(f"score={column}: {whose!r} is no label of {path} (they are {', '.join(classes)})")
        if not whose and len(given) > 1:
            whose = max((c for c in classes if name.endswith(f"_{c}")), key=len, default="")
        if not whose and (len(given) > 1 or any(isinstance(c, str) for c in cohort.classes)):
            example = classes[0] if classes else "class"
            raise DataError(
                f"score={name} does not say whose probability it is ({', '.join(classes)}): give score={name}={example}"
            )
        key = f"p_{whose}" if whose else "p"
        if key in found:
            raise DataError(f"score= names {found[key]!r} and {name!r} for one class: leave one of them out")
        found[key] = name
    return found


def _decided(cohort: Cohort, column: str, path: str | os.PathLike[str]) -> tuple[np.ndarray, list[Any]]:
    """(n, C) ones where a row was decided for a class, else zeros, and the class of each column."""
    if column not in cohort.columns:
        raise DataError(f"{path} has no column {column!r} (prediction=); {suggest(column, cohort.columns)}")
    classes = list(cohort.classes)
    place = {str(c): k for k, c in enumerate(classes)}
    cells = [text(cell) for cell in cohort.column(column)]
    for row, cell in enumerate(cells):
        if cell not in place:
            raise DataError(
                f"{path}, row {row + 1}: {column} is {cell!r}, and one of the labels is expected ({', '.join(place)}); "
                "a column of probabilities is named with score="
            )
    return np.eye(len(classes))[[place[cell] for cell in cells]], classes


def _predicted(cohort: Cohort, path: str | os.PathLike[str], scores: Mapping[str, str]) -> tuple[np.ndarray, list[Any]]:
    """(n, C) probabilities and the class of each column."""
    parts = cohort.schema.columns()  # a column that plays a part, such as an attribute p_site, is no prediction
    usual = [c for c in cohort.columns if (c == "p" or c.startswith("p_")) and c not in parts]
    present = list(scores) or usual
    classes = list(cohort.classes)
    wanted = [f"p_{c}" for c in classes]
    named = {c: _probabilities(cohort, scores.get(c, c), path) for c in wanted if c in present}
    if "p" in present:
        named = _with_bare(named, cohort, path, scores.get("p", "p"))
    if len(classes) == 2 and len(named) == 1:
        (only,) = named
        other = wanted[1 - wanted.index(only)]
        named[other] = 1 - named[only]
    if not wanted or not all(w in named for w in wanted):
        raise DataError(f"{path} has no predictions: a column 'p' or the columns {', '.join(wanted)} expected, found {present}")
    columns = [named[w] for w in wanted]
    if "p" in present:
        return np.stack(columns, axis=1), classes
    for extra in present:  # of classes that no row has
        if extra not in wanted:
            columns.append(_probabilities(cohort, extra, path))
            classes.append(extra.removeprefix("p_"))
    return np.stack(columns, axis=1), classes


def _with_bare(
    named: Mapping[str, np.ndarray], cohort: Cohort, path: str | os.PathLike[str], column: str
) -> dict[str, np.ndarray]:
    """The column `p` under the name of its class; refused where it does not say whose it is, or contradicts named ones."""
    classes = list(cohort.classes)
    if len(classes) != 2:
        raise DataError(f"column {column!r} needs two classes, and {cohort.label_name!r} has {classes}: give p_<class>")
    first, last = (f"p_{c}" for c in classes)
    if any(isinstance(c, str) for c in classes):
        raise DataError(
            f"{path}: column 'p' does not say whose probability it is, of {classes[0]!r} or of {classes[1]!r}: "
            f"rename it to {first} or {last}"
        )
    bare = _probabilities(cohort, column, path)
    for other, expected in ((last, bare), (first, 1 - bare)):
        off = np.abs(named.get(other, expected) - expected) > PROBABILITY_TOLERANCE
        if off.any():
            row = int(off.argmax())
            raise DataError(
                f"{path}, row {row + 1}: column 'p' is {bare[row]:g} and {other} {named[other][row]:g}, which contradict each "
                f"other ('p' is of class {classes[1]}; {int(off.sum())} such rows): leave one of them out"
            )
    return {last: bare, first: 1 - bare}


def _probabilities(cohort: Cohort, column: str, path: str | os.PathLike[str]) -> np.ndarray:
    numbers = pd.to_numeric(pd.Series(cohort.column(column)), errors="coerce").to_numpy(dtype=np.float64, copy=True)
    numbers[~np.isfinite(numbers)] = np.nan
    if np.isnan(numbers).any():
        row = int(np.isnan(numbers).argmax())
        cell = str(cohort.column(column)[row])
        raise DataError(
            f"{path}, row {row + 1}: {column} is {cell!r}, and a probability between 0 and 1 is expected, with a decimal "
            f"point ({int(np.isnan(numbers).sum())} such rows): fill it in or leave the row out"
        )
    return numbers


def _save_used(folder: Path, used: Sequence[str] | frozenset[str]) -> None:
    _save_arrays(folder / "used.npz", {"ids": np.array(sorted(used), dtype=np.str_)})


def _save_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    with files.replacing(path) as partial, partial.open("wb") as file:
        np.savez(file, **dict(arrays))  # type: ignore[arg-type]


def _mean_by(values: np.ndarray, case: np.ndarray, size: np.ndarray) -> np.ndarray:
    total = np.zeros((len(size), *values.shape[1:]))
    np.add.at(total, case, values)
    return total / size.reshape(-1, *(1 for _ in values.shape[1:]))


def _json(card: Card) -> dict[str, Any]:
    values = tuple(v.item() if isinstance(v, np.generic) else v for v in card.classes)
    return asdict(replace(card, classes=values, settings=dict(card.settings)))


def _card(stored: Mapping[str, Any]) -> Card:
    return Card(**{**stored, "classes": tuple(stored["classes"])})  # JSON knows lists only


def _plain(value: str) -> int | float | str | bool:
    if value in ("True", "False"):
        return value == "True"
    if re.fullmatch(r"[+-]?\d+", value):
        return int(value)
    if re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", value):
        return float(value)
    return value


def _key(recipe: str) -> str:
    return quote(recipe, safe="@(),=._-")
