"""A cohort: the rows of a table of images with labels, attributes and splits, frozen; views share the table.

The table keeps the manifest's own columns. A `Schema` says which column plays which part and fixes the codes of labels and
attributes, so that every view, and every cohort read back from disk, counts classes and levels in the same way.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from itertools import islice, pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rightreasons.data import images, sampling
from rightreasons.data.schema import ID, Attribute, Kind, Schema, Table, frozen, read_table, text
from rightreasons.data.sources import read_frame, write_frame
from rightreasons.display import table
from rightreasons.errors import DataError, NoAttribute, SettingError
from rightreasons.families import suggest

FRACTIONS = {"train": 0.6, "val": 0.1, "audit": 0.15, "test": 0.15}
HASHED_AT_ONCE = 4096
SPLIT = "rightreasons.split"  # the column that keeps splits made here


class Cohort:
    """Rows of a frozen table of images.

    Made by `Cohort.read` or `Cohort.from_columns`. `select`, `balance` and `bias` give views of rows; `split` names them.
    Axis 0 of every array is the cohort's rows in its order; the arrays below are read-only.

    Attributes
    ----------
    schema : which column plays which part
    id : (n,) identifiers as strings, unique
    label : (n,) codes into `classes`, -1 where the label is missing
    classes : the label's values
    label_name : the label's column
    attributes : names of the attributes; `attribute(name)` has the values
    splits, subject, case : (n,) names, '' where missing; None where no column plays the part
    has_images : False for a table of predictions
    root : folder that relative image references start from
    """

    def __init__(self, table: Table, rows: np.ndarray | None = None, name: str = "cohort") -> None:
        self.name = name
        self.schema = table.schema
        self.root = Path(table.schema.root)
        self.classes = table.schema.classes
        self.label_name = table.schema.label or ""
        self.attributes = table.schema.attribute
        self.has_images = table.image is not None
        self._table = table
        if rows is None:
            self._rows = np.arange(len(table.frame))
        else:
            self._rows = np.asarray(rows, dtype=np.int64)
        frozen(self._rows)
        self._attributes = {key: replace(a, values=frozen(a.values[self._rows])) for key, a in table.attributes.items()}
        self.id: np.ndarray = frozen(table.id[self._rows])
        self.label: np.ndarray = frozen(table.label[self._rows])
        self.splits = _at(table.split, self._rows)
        self.subject = _at(table.subject, self._rows)
        self.case = _at(table.case, self._rows)

    # ---- reading and writing ------------------------------------------------------------------------------------------

    @classmethod
    def read(  # noqa: PLR0913  each keyword is a documented setting
        cls,
        path: str | os.PathLike[str],
        *,
        image: str | None = "image",
        label: str | None = "label",
        attribute: str | Sequence[str] = (),
        id: str | None = None,
        split: str | None = None,
        subject: str | None = None,
        case: str | None = None,
        site: str | None = None,
        weight: str | None = None,
        box: str | Sequence[str] = (),
        mask: str | None = None,
        transform: str | None = None,
        twin: str | None = None,
        twin_attribute: str | Mapping[str, str] | None = None,
        mapping: Mapping[Any, Any] | None = None,
        kinds: Mapping[str, Kind] | None = None,
        bins: Mapping[str, int | Sequence[float]] | None = None,
        missing: str | int | float | Sequence[str | int | float] = (),
        root: str | os.PathLike[str] | None = None,
        name: str | None = None,
    ) -> Cohort:
        """Read a CSV or Parquet manifest, a folder of class folders, or a dataset saved by Hugging Face `datasets`.

        Parameters
        ----------
        image, label, id, split, subject, case, site, weight, mask, transform, twin : names of columns. `image=None` is a
            table of predictions without images; `case` groups several images of one decision; `twin` is the same image but
            for the cue.
        attribute : one name or several.
        twin_attribute : the column with the twin's attribute; a mapping attribute → column where there are several.
        box : one column with `x0 y0 x1 y1` (several boxes separated by `;`) or JSON, or the names of four columns.
        mapping : label value → class, e.g. `{-1: 0}` for uncertain to negative; None makes a label missing. A value that no
            row has is refused.
        weight : kept with the rows for methods of your own; no audit, training or mitigation of ours reads it.
        kinds : attribute → "categorical" or "continuous". Without it, a numeric attribute with more than 10 distinct values
            is continuous.
        bins : attribute → edges, or a number of quantile bins: makes a continuous attribute categorical.
        missing : a value that means "not known", beside empty and NaN, or several.
        root : folder that relative image paths start from; the manifest's own by default.
        """
        path = Path(path)
        schema = Schema.of(
            image=image,
            label=label,
            attribute=attribute,
            id=id,
            split=split,
            subject=subject,
            case=case,
            site=site,
            weight=weight,
            box=box,
            mask=mask,
            transform=transform,
            twin=twin,
            twin_attribute=twin_attribute,
            mapping=mapping,
            missing=missing,
            kinds=kinds,
            root=root,
        )
        frame, schema = read_frame(path, schema)
        return cls(read_table(frame, schema, bins or {}, path), name=name or path.stem)

    @classmethod
    def from_columns(cls, columns: Mapping[str, Any], *, name: str = "cohort", **schema: Any) -> Cohort:
        """A cohort from arrays: `columns` by name, keywords as for `read`."""
        lengths = {key: len(values) for key, values in columns.items()}
        if len(set(lengths.values())) > 1:
            raise DataError(f"columns have different lengths: {lengths}")
        bins = schema.pop("bins", None) or {}
        for part in ("image", "label", "id"):
            schema.setdefault(part, part if part in columns else None)
        frame = pd.DataFrame({key: list(values) for key, values in columns.items()})
        return cls(read_table(frame, Schema.of(**schema), bins, Path(name)), name=name)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write these rows with their schema as Parquet; `Cohort.read` needs no keyword to read them back."""
        frame, schema = self.with_ids()
        return write_frame(frame, replace(schema, root=str(self.root.absolute())), Path(path))

    def with_ids(self) -> tuple[pd.DataFrame, Schema]:
        """The manifest's columns of these rows and their schema. Ids that were derived become a column: a view must keep them."""
        frame = self._table.frame.iloc[self._rows].reset_index(drop=True)
        if self.schema.id is not None:
            return frame, self.schema
        return frame.assign(**{ID: self.id}), replace(self.schema, id=ID)

    # ---- columns ------------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        parts = [f"{len(self)} rows", f"label {self.label_name} {list(self.classes)}"]
        for name in self.attributes:
            parts.append(f"{name} {self.attribute(name).kind}")
        return f"<Cohort {self.name}: {', '.join(parts)}>"

    def _repr_html_(self) -> str:
        """For notebooks: rows by label and, where it has levels, by the first attribute."""
        heading = f"{self.name}: {len(self)} rows"
        if self.attributes:
            heading += f", {', '.join(self.attributes)}"
        if not self.classes:
            return table(heading)
        with_levels = []
        for name in self.attributes:
            if self.attribute(name).kind == "categorical":
                with_levels.append(name)
        if not with_levels:
            sizes = np.bincount(self.label[self.label >= 0], minlength=len(self.classes))
            return table(heading, (self.label_name, "rows"), list(zip(self.classes, sizes, strict=True)))
        counts = self.counts(with_levels[0])
        columns = [f"{with_levels[0]} = {level}" for level in counts.columns]
        rows = [(value, *sizes) for value, sizes in zip(self.classes, counts.to_numpy(), strict=True)]
        return table(heading, (self.label_name, *columns), rows)

    @property
    def image(self) -> np.ndarray:
        """(n,) image references, as `rightreasons.data.images.read` takes them."""
        references = self._table.image
        if references is None:
            raise DataError(f"cohort {self.name!r} has no image column: give image= when reading the manifest")
        return references[self._rows]

    def attribute(self, name: str | None = None) -> Attribute:
        """One attribute of these rows; the first one named at reading where `name` is None."""
        if name is None:
            if not self.attributes:
                raise NoAttribute(f"cohort {self.name!r} has no attribute: name one with attribute= when reading the manifest")
            name = self.attributes[0]
        if name not in self.attributes:
            raise DataError(f"cohort {self.name!r} has no attribute {name!r}; {suggest(name, self.attributes)}")
        return self._attributes[name]

    # Seldom asked for, and so taken from the table only then: a view copies what it holds.

    @property
    def site(self) -> np.ndarray | None:
        return _at(self._table.site, self._rows)

    @property
    def mask(self) -> np.ndarray | None:
        """(n,) references of masks, '' where a row has none."""
        return _at(self._table.mask, self._rows)

    @property
    def transform(self) -> np.ndarray | None:
        return _at(self._table.transform, self._rows)

    @property
    def twin(self) -> np.ndarray | None:
        """(n,) references of twins, '' where a row has none."""
        return _at(self._table.twin, self._rows)

    @property
    def weight(self) -> np.ndarray | None:
        return _at(self._table.weight, self._rows)

    @property
    def box(self) -> list[np.ndarray] | None:
        """Per row a (k, 4) array of x0, y0, x1, y1 in source pixels; k is 0 where a row has none."""
        if not self.schema.box:
            return None
        return [self._table.boxes[r] for r in self._rows]

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the manifest's columns."""
        return tuple(map(str, self._table.frame.columns))

    def column(self, name: str) -> np.ndarray:
        """Any column of the manifest, as it stands there."""
        if name not in self._table.frame.columns:
            raise DataError(f"cohort {self.name!r} has no column {name!r}; {suggest(name, self.columns)}")
        return self._table.frame[name].to_numpy()[self._rows]

    def complete(self, *names: str) -> np.ndarray:
        """(n,) True where the label and every named attribute are known."""
        if self.classes:
            known = self.label >= 0
        else:
            known = np.ones(len(self), bool)
        for name in names:
            known &= self.attribute(name).present
        return known

    def column_hash(self, part: str) -> str:
        """Hash of one part's values (label, box, mask, an attribute's name …), for recipes that read it."""
        if part == "label":
            values: Iterable[str] = (str(v) for v in np.array([*self.classes, None], object)[self.label])
        elif part == "box":
            values = (b.tobytes().hex() for b in self.box or [])
        elif part in ("mask", "transform", "twin"):
            references = getattr(self, part)
            if references is None:
                values = []
            else:
                values = self._digest_all(references)
        else:
            values = (str(v) for v in self.attribute(part).values)
        return hash_of(values)

    @cached_property
    def digests(self) -> np.ndarray:
        """(n,) content hashes of the images; empty strings where the cohort has no images."""
        if self.has_images:
            digests = self._digest_all(self.image)
        else:
            digests = [""] * len(self)
        return np.array(digests, dtype=object)

    @cached_property
    def fingerprint(self) -> str:
        """Of the ids and the content of the images, order included."""
        return hash_of(f"{i}\x00{d}" for i, d in zip(self.id, self.digests, strict=True))

    # ---- views --------------------------------------------------------------------------------------------------------

    def select(self, rows: np.ndarray | Sequence[int] | Mapping[str, Any], name: str | None = None) -> Cohort:
        """Rows by a boolean mask, by positions, or by the values of columns (`{"site": "A"}`, a list means any of them)."""
        if isinstance(rows, Mapping):
            index = self._where(rows)
        else:
            index = np.asarray(rows)
        if index.dtype == bool:
            if len(index) != len(self):
                raise DataError(f"a mask of {len(index)} values cannot select from cohort {self.name!r} of {len(self)} rows")
            index = np.flatnonzero(index)
        if are_all(index, len(self)) and name in (None, self.name):
            return self
        if len(index) and (index.dtype.kind not in "iu" or index.min() < -len(self) or index.max() >= len(self)):
            raise DataError(
                f"positions must be whole numbers below the {len(self)} rows of cohort {self.name!r}, not {index[:5]}"
            )
        return Cohort(self._table, self._rows[index.astype(np.int64)], name or self.name)

    def on(self, split: str) -> Cohort:
        """The rows of one split, named after it."""
        names = self.splits
        if names is None:
            raise DataError(f"cohort {self.name!r} has no splits: give split= when reading, or call cohort.split(rng=…)")
        if split not in names:
            raise DataError(f"cohort {self.name!r} has no rows in split {split!r}; {suggest(split, set(names))}")
        return self.select(names == split, name=split)

    def has(self, split: str) -> bool:
        return self.splits is not None and bool((self.splits == split).any())

    def group(self, attribute: str | None = None) -> np.ndarray:
        """(n,) number of each row's (label, attribute level) group, label-major; -1 where either is missing."""
        a = self.attribute(attribute)
        if self.schema.label is None:
            raise DataError(f"cohort {self.name!r} has no label and forms no groups: give label= when reading the manifest")
        if a.kind == "continuous":
            raise DataError(f"attribute {a.name!r} is continuous and forms no groups: give bins={{{a.name!r}: …}} when reading")
        return np.where((self.label >= 0) & (a.values >= 0), self.label * len(a.levels) + a.values, -1)

    def counts(self, attribute: str | None = None) -> pd.DataFrame:
        """Rows per (label, attribute level)."""
        a = self.attribute(attribute)
        groups = self.group(attribute)
        size = np.bincount(groups[groups >= 0], minlength=len(self.classes) * len(a.levels))
        size = size.reshape(len(self.classes), len(a.levels))
        return pd.DataFrame(size, index=pd.Index(self.classes, name=self.label_name), columns=pd.Index(a.levels, name=a.name))

    def balance(self, *, rng: np.random.Generator, attribute: str | None = None, within_label: bool = False) -> Cohort:
        """Subsample to equal (label, attribute) groups.

        `within_label` makes the attribute's levels equal within each label and lets the labels keep different sizes.
        An empty group is an error, because nothing can be balanced against it.
        """
        groups = self.group(attribute)
        counts = self.counts(attribute).to_numpy()
        if not counts.size or not counts.all():
            raise DataError(f"cannot balance cohort {self.name!r}: an empty group in\n{self.counts(attribute)}")
        if within_label:
            per_label = counts.min(axis=1)
        else:
            per_label = np.full(len(counts), counts.min())
        size = np.repeat(per_label, counts.shape[1])
        kept = []
        for g in range(counts.size):
            kept.append(rng.permutation(np.flatnonzero(groups == g))[: size[g]])
        return self.select(np.sort(np.concatenate(kept)), name=f"{self.name}-balanced")

    def bias(
        self,
        *,
        rng: np.random.Generator,
        attribute: str | None = None,
        discordant: int | float | None = None,
        size: int | None = None,
        pairs: Mapping[Any, Any] | None = None,
        logistic: tuple[float, float, float] | None = None,
        gap: float | None = None,
        complement: bool = False,
    ) -> Cohort:
        """Subsample so that the attribute goes with the label, or no longer does; `Cohort.gap` is what was achieved.

        Parameters
        ----------
        discordant : an integer is the number of rows in each discordant group, beside all concordant rows; a share below 1
            is the discordant part of the whole, groups of one kind equal in size.
        size : rows in all, with a share; the largest that the groups allow by default. Hold it fixed over a sweep of shares.
        pairs : attribute value → label that it goes with; by default the i-th level with the i-th class.
        logistic : `(k, a0, m)`: keep with probability clip(m·sigmoid(k(a − a0)), 0, 1) the positives (last class) and with
            clip(m·(1 − sigmoid), 0, 1) the others (ShorT, Supplementary Methods). For numeric attributes.
        gap : the same with the slope found for this expected gap, 0 for a balanced set. a0 is the mean and m is 2, so that a set
            that has the gap already is kept whole
        complement : keep the others with 1 − clip(m·sigmoid, 0, 1) instead, as the paper writes it
        """
        if sum(target is not None for target in (discordant, logistic, gap)) != 1:
            raise SettingError("Cohort.bias takes one of discordant=, logistic= and gap=")
        if size is not None and size < 1:
            raise SettingError(f"Cohort.bias was given size={size}: give at least 1 row, or leave it out")
        if discordant is None:
            numeric = self._numeric(attribute)
            if gap is not None:
                keep = sampling.keep_for_gap(numeric, self._is_last, float(gap), self.attribute(attribute).name)
            else:
                keep = sampling.keep_by_logistic(numeric, self._is_last, logistic or (0.0, 0.0, 2.0), complement)
            return self.select(np.flatnonzero(rng.random(len(self)) < keep), name=f"{self.name}-biased")
        groups = self.group(attribute)
        agrees = self._concordant(attribute, pairs)
        counts = self.counts(attribute).to_numpy()
        # A class or level that a view left behind is no group; an empty meeting of two that are there is one.
        present = np.flatnonzero(np.outer(counts.sum(axis=1), counts.sum(axis=0)))
        members = {int(g): rng.permutation(np.flatnonzero(groups == g)) for g in present}
        take = sampling.rows_by_group(members, agrees, discordant, size)
        for g, rows in members.items():
            if take[g] > len(rows):
                raise DataError(f"cannot take {take[g]} rows from a group of {len(rows)}:\n{self.counts(attribute)}")
        kept = np.concatenate([rows[: take[g]] for g, rows in members.items()])
        return self.select(np.sort(kept), name=f"{self.name}-biased")

    def in_groups(self, attribute: str, number: int = 8, *, of: Cohort | None = None) -> Cohort:
        """The same rows with a further attribute, `<attribute> groups`: a number in groups, because classifiers learn classes.

        The groups are of equal size in the train rows of the cohort `of`, this one by default; where many rows share a value
        there can be fewer of them.
        """
        source = self if of is None else of
        if source.has("train"):
            training = source.on("train")
        else:
            training = source
        a = self.attribute(attribute)
        if a.kind != "continuous":
            raise DataError(f"attribute {a.name!r} forms the groups {list(a.levels)} as it is")
        known = training.attribute(attribute)
        edges = np.unique(np.quantile(known.values[known.present], np.arange(1, number) / number))
        levels = tuple(f"{low:g} to {high:g}" for low, high in pairwise([-np.inf, *edges, np.inf]))
        every = self._table.attributes[attribute].values
        place = np.where(np.isnan(every), len(levels), np.searchsorted(edges, every, side="right"))
        column = np.array([*levels, None], dtype=object)[place]
        name = f"{attribute} groups"
        schema = replace(
            self.schema,
            attribute=(*self.attributes, name),
            kinds={**self.schema.kinds, name: "categorical"},
            levels={**self.schema.levels, name: levels},
        )
        frame = self._table.frame.assign(**{name: column})
        return Cohort(Table.of(frame, schema, self._table.digests), self._rows, self.name)

    def gap(self, attribute: str | None = None) -> float:
        """Mean of a numeric attribute at the last class less its mean at the others; NaN where either has no rows."""
        return sampling.gap(self._numeric(attribute), self._is_last, np.ones(len(self)))

    def split(
        self,
        fractions: Mapping[str, float] | None = None,
        *,
        rng: np.random.Generator,
        attribute: str | None = None,
    ) -> Cohort:
        """Name the rows train, val, audit and test: stratified on (label, attribute), no subject in two splits.

        Continuous attributes are stratified on their quartiles. Earlier split names are replaced. Fractions that sum to less
        than 1 leave the other rows in no split. Without subjects, the images of a case stay together.
        """
        fractions = dict(fractions or FRACTIONS)
        if any(f <= 0 for f in fractions.values()) or sum(fractions.values()) > 1 + 1e-9:
            raise SettingError(f"fractions must be positive and sum to at most 1, not {fractions}")
        rest = 1 - sum(fractions.values())
        if rest > 1e-9:
            fractions[""] = rest
        return self._renamed(self._assign(fractions, rng, attribute))

    def with_roles(self, *, rng: np.random.Generator, trains: bool = False) -> Cohort:
        """Complete the splits that a study needs.

        No `audit`: a half of `test` (with no splits at all, of everything), stratified. Where a model is to be trained,
        no `val`: 15 % of `train`; with no splits at all, all four are made.
        """
        if self.splits is None:
            if trains:
                return self.split(rng=rng)
            return self.split({"audit": 0.5, "test": 0.5}, rng=rng)
        named = self.splits.copy()
        for missing, source, fraction in (("audit", "test", 0.5), ("val", "train", 0.15)):
            if not self.has(missing) and self.has(source) and (missing == "audit" or trains):
                rows = np.flatnonzero(named == source)
                part = self.select(rows)._assign({missing: fraction, source: 1 - fraction}, rng, None)
                named[rows] = part
        if (named == self.splits).all():
            return self
        return self._renamed(named)

    def twins(self) -> Cohort:
        """The twins of the rows that have one: same ids and labels, the twin's image and attributes."""
        references = self.twin
        if references is None:
            raise DataError(f"cohort {self.name!r} has no twins: give twin= when reading the manifest")
        schema = self.schema
        view = self.select(references != "")
        frame, _ = view.with_ids()
        unknown = pd.Series([None] * len(frame), dtype=object)  # a twin whose attribute is not told
        columns = {a: schema.twin_attribute.get(a) for a in schema.attribute}
        changed = {}
        for a, column in columns.items():
            changed[a] = unknown if column is None else frame[column]
        changed |= {str(schema.image): frame[schema.twin], ID: pd.Series(view.id, dtype=object)}
        frame = frame.assign(**changed)
        derived = replace(schema, id=ID, twin=None, twin_attribute={}, mask=None, box=())
        return Cohort(Table.of(frame, derived, self._table.digests), name="twin")

    # ---- what the methods above use -----------------------------------------------------------------------------------

    def _where(self, wanted: Mapping[str, Any]) -> np.ndarray:
        """(n,) True where every column has the value wanted, or one of them."""
        mask = np.ones(len(self), bool)
        for column, values in wanted.items():
            if isinstance(values, list | tuple | set | np.ndarray):
                options = values
            else:
                options = [values]
            texts = {text(v) for v in options}
            mask &= np.array([text(v) in texts for v in self.column(column)], dtype=bool)
        return mask

    def _digest_all(self, references: np.ndarray) -> list[str]:
        cache = self._table.digests
        missing = [r for r in dict.fromkeys(references) if r and r not in cache]
        with ThreadPoolExecutor() as pool:
            cache.update(zip(missing, pool.map(lambda r: images.digest(r, root=self.root), missing), strict=True))
        return [cache[r] if r else "" for r in references]

    def _concordant(self, attribute: str | None, pairs: Mapping[Any, Any] | None) -> np.ndarray:
        """Whether each group, numbered as in `group`, is a level with the class that it goes with."""
        a = self.attribute(attribute)
        levels, names = [text(v) for v in a.levels], [text(c) for c in self.classes]
        if pairs is None:
            if len(levels) != len(names):
                raise SettingError(
                    f"{a.name!r} has {len(levels)} levels and {self.label_name!r} {len(names)} classes: "
                    "say which go together with pairs={level: class}"
                )
            pairs = dict(zip(levels, names, strict=True))
        goes_with = {text(level): text(value) for level, value in pairs.items()}
        if not set(goes_with) <= set(levels) or not set(goes_with.values()) <= set(names):
            raise SettingError(
                f"pairs={dict(pairs)} must go from levels of {a.name!r} {levels} to classes of {self.label_name!r} {names}"
            )
        return np.array([goes_with.get(level) == name for name, level in product(names, levels)])

    def _numeric(self, attribute: str | None) -> np.ndarray:
        """(n,) the attribute as numbers, NaN where it or the label is missing."""
        a = self.attribute(attribute)
        if any(isinstance(v, str) for v in a.levels):
            raise DataError(f"{a.name!r} has the values {list(a.levels)[:5]}, and only numbers have a mean: code it as numbers")
        if a.kind == "continuous":
            numeric = a.values
        else:
            numeric = np.array([*a.levels, np.nan], dtype=np.float64)[a.values]
        return np.where(a.present & (self.label >= 0), numeric, np.nan)

    @property
    def _is_last(self) -> np.ndarray:
        return np.asarray(self.label == len(self.classes) - 1)

    def _stratum(self, attribute: str | None) -> np.ndarray:
        """(n,) stratum of each row: its label and its attribute (quartile)."""
        if not self.attributes:
            return self.label
        a = self.attribute(attribute)
        codes = a.values
        if a.kind == "continuous":
            if a.present.any():
                edges = np.nanquantile(a.values, [0.25, 0.5, 0.75])
            else:
                edges = np.zeros(0)
            codes = np.where(a.present, np.searchsorted(edges, a.values), -1)
        return self.label * (codes.max(initial=0) + 2) + codes

    def _assign(self, fractions: Mapping[str, float], rng: np.random.Generator, attribute: str | None) -> np.ndarray:
        """(n,) split names, the same for all rows of a subject or, where subjects are not known, of a case."""
        named = self.subject if self.subject is not None else self.case
        unit = np.arange(len(self))
        if named is not None:  # rows of unknown subjects are each on their own
            unit = np.unique([f"={name}" if name else str(row) for row, name in enumerate(named)], return_inverse=True)[1]
        first = np.unique(unit, return_index=True)[1]
        stratum = self._stratum(attribute)[first]  # a subject counts in the stratum of its first row
        chosen = sampling.assign(stratum, np.bincount(unit), np.array(list(fractions.values())), rng)
        return np.array(list(fractions), dtype=object)[chosen][unit]

    def _renamed(self, names: np.ndarray) -> Cohort:
        """The same rows in splits of these names."""
        column = self.schema.split or SPLIT
        frame, schema = self.with_ids()
        table = Table.of(frame.assign(**{column: names}), replace(schema, split=column), self._table.digests)
        return Cohort(table, name=self.name)


def are_all(rows: Any, n: int) -> bool:
    """Whether positions or a mask are all `n` rows in their order: what is frozen needs no copy then."""
    index = np.asarray(rows)
    if len(index) != n or index.dtype.kind not in "biu":
        return False
    return bool(index.all() if index.dtype == bool else (index == np.arange(n)).all())


def _at(column: np.ndarray | None, rows: np.ndarray) -> np.ndarray | None:
    if column is None:
        return None
    return frozen(column[rows])


def hash_of(values: Iterable[str]) -> str:
    """One hash of texts and their order."""
    digest = hashlib.blake2b(digest_size=16)
    remaining = iter(values)
    while some := list(islice(remaining, HASHED_AT_ONCE)):
        digest.update(("\x1e".join(some) + "\x1e").encode())
    return digest.hexdigest()
