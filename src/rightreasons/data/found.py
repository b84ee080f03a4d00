"""Which column of a table plays which part, told from names and values, for a caller who names none.

Nothing is guessed between two that could be meant: they are refused, naming both. What was found, and why, is there to be shown.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rightreasons.data.schema import CONTINUOUS_ABOVE, IMAGE_SUFFIXES, SINGLE_PARTS, Schema, text, tidy
from rightreasons.data.sources import read_frame
from rightreasons.errors import DataError

LABELS = ("label", "y", "target", "ground_truth", "groundtruth", "gt", "y_true", "true_label", "diagnosis", "outcome", "class")
SPLITS = frozenset({"train", "val", "audit", "test"})
SUBJECTS = ("subject", "subject_id", "patient", "patient_id", "patientid", "participant", "participant_id", "person_id")
IDS = ("id", "image_id", "row_id", "study_id", "exam_id", "accession", "accession_number", "uid")
SCORES = ("p", "score", "prob", "probability", "y_score", "y_prob", "risk", "confidence")
DECISIONS = ("prediction", "predicted", "pred", "y_pred", "predicted_label", "decision")
SCORE_BEGINS = ("p_", "prob_", "probability_", "score_", "logit")
NOT_ATTRIBUTES = ("unnamed", "index", "weight", "seed", "path")
MOST_VALUES = 20  # of text that an attribute may have
MOST_ATTRIBUTES = 10
NESTED = (list, tuple, dict, set, bytes, np.ndarray)
SAMPLED = 50  # cells that tell what a column holds
DEEPEST, MOST_FOLDERS = 3, 2_000  # of folders that are searched for images


@dataclass(frozen=True)
class Found:
    """A part of a table, the column (or columns, or folder) that plays it, and why."""

    part: str
    value: Any
    why: str


@dataclass(frozen=True)
class Look:
    """What a table is found to be.

    Attributes
    ----------
    found : what was not said and was found
    left : column → why it plays no part
    frame : the raw table
    """

    path: Path
    found: tuple[Found, ...]
    left: Mapping[str, str]
    frame: pd.DataFrame = field(repr=False)

    @property
    def keywords(self) -> dict[str, Any]:
        """The parts that were found as keywords of `Cohort.read`."""
        keywords: dict[str, Any] = {}
        for one in self.found:
            if one.part == "attribute":
                keywords.setdefault("attribute", []).append(one.value)
            else:
                keywords[one.part] = one.value
        return keywords

    def lines(self) -> list[str]:
        """One block for a terminal: every part that was found, and every column that was left aside."""
        if not self.found:
            return []
        rows = [(one.part, str(one.value), one.why) for one in self.found]
        rows += [("not used", name, why) for name, why in self.left.items()]
        width = [max(len(row[k]) for row in rows) for k in (0, 1)]
        said = [f"  {part:<{width[0]}}  {value:<{width[1]}}  {why}".rstrip() for part, value, why in rows]
        return [f"found in {self.path} (an option of the same name says otherwise):", *said]


def look(
    path: str | os.PathLike[str],
    given: Mapping[str, Any] | None = None,
    *,
    classes: Sequence[Any] = (),
    has_images: bool = True,
) -> Look:
    """What the caller did not say of a table and the table says itself.

    Parameters
    ----------
    given : keywords of `Cohort.read` that are known; nothing is looked for in their place
    classes : labels of the model, where it knows them: they tell the column with the labels
    has_images : False for a table of predictions
    """
    known = dict(given or {})
    named = {key: value for key, value in known.items() if key in (*SINGLE_PARTS, "attribute", "box", "missing", "root")}
    frame, schema = read_frame(Path(path), Schema.of(**named))
    if schema.resolved or not len(frame):
        return Look(Path(path), (), {}, frame)
    return _Search(Path(path), frame, schema, known, [str(c) for c in classes], has_images).run()


@dataclass
class _Search:
    """One look at one table; parts are taken one after the other, and a column plays one part."""

    path: Path
    frame: pd.DataFrame
    schema: Schema
    given: dict[str, Any]
    classes: list[str]
    has_images: bool
    found: list[Found] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in self.frame.columns:
            cells = self.frame[name].tolist() if self.frame[name].dtype.kind == "O" else []
            if any(isinstance(cell, NESTED) for cell in cells):
                self.left[str(name)] = "lists or tables in its cells"

    def run(self) -> Look:
        if not self.path.is_dir():
            if self.has_images:
                self._images()
            self._label()
            self._split()
            self._named("subject", SUBJECTS)
            self._ids()
        if not self.given.get("attribute"):
            self._attributes()
        return Look(self.path, tuple(self.found), self.left, self.frame)

    # ---- parts ---------------------------------------------------------------------------------------------------------

    def _images(self) -> None:
        for part in ("mask", "twin"):
            files = [name for name in self._free() if _plain(name).startswith(part) and self._holds_files(name)]
            if part not in self.given and len(files) == 1:
                self._take(part, files[0], "its name, and file names in it")
        if "image" not in self.given and "image" not in self.frame.columns:
            files = [name for name in self._free() if self._holds_files(name)]
            if len(files) > 1:
                raise DataError(
                    f"the columns {_both(files)} of {self.path} hold file names: say which are the images with image="
                )
            if files:
                self._take("image", files[0], "file names in it")
        self._root()

    def _root(self) -> None:
        column = self.given.get("image") or next((one.value for one in self.found if one.part == "image"), "image")
        if "root" in self.given or column not in self.frame.columns:
            return
        references = [cell.partition("#")[0] for cell in self._cells(column)]
        if not references or (self.path.parent / references[0]).exists():
            return
        fitting = [
            folder for folder in _folders(self.path.parent) if all((folder / reference).exists() for reference in references)
        ]
        if len(fitting) > 1:
            raise DataError(f"the files of column {column!r} lie in {_both(map(str, fitting))}: say which with root=")
        if fitting:
            self.found.append(Found("root", str(fitting[0]), f"the folder with the files of {column!r}"))

    def _label(self) -> None:
        if "label" in self.given or "label" in self.frame.columns:
            return
        named = [name for name in self._free() if _plain(name) in LABELS]
        if len(named) != 1 and self.classes:
            fitting = [name for name in named or self._free() if self._has_values(name, self.classes)]
            if len(fitting) == 1:
                self._take("label", fitting[0], "its values are the model's classes")
                return
            named = named or fitting
        if len(named) > 1:
            raise DataError(f"the columns {_both(named)} of {self.path} could be the label: say which with label=")
        if not named:
            raise DataError(
                f"{self.path} has no column of the name label, y, target or ground_truth (it has "
                f"{', '.join(map(str, self.frame.columns[:12]))}): say which is the label with label="
            )
        self._take("label", named[0], f"its name; values {_values(self.frame[named[0]])}")

    def _split(self) -> None:
        if "split" in self.given:
            return
        fitting = [name for name in self._free() if (cells := self._distinct(name)) and len(cells) > 1 and cells <= SPLITS]
        if len(fitting) > 1:
            raise DataError(f"the columns {_both(fitting)} of {self.path} could be the split: say which with split=")
        if fitting:
            sizes = self.frame[fitting[0]].map(text).value_counts()
            self._take("split", fitting[0], ", ".join(f"{name} {n}" for name, n in sizes.items() if name))

    def _named(self, part: str, names: Sequence[str]) -> None:
        if part in self.given:
            return
        fitting = [name for name in self._free() if _plain(name) in names]
        if len(fitting) > 1:
            raise DataError(f"the columns {_both(fitting)} of {self.path} could be the {part}: say which with {part}=")
        if fitting:
            self._take(part, fitting[0], f"its name; {len(self._distinct(fitting[0]))} in all")

    def _ids(self) -> None:
        if "id" in self.given:
            return
        fitting = [name for name in self._free() if _plain(name) in IDS and self._is_unique(name)]
        if fitting:  # several that tell all rows apart are equally good
            self._take("id", fitting[0], "its name, and no value twice")

    def _attributes(self) -> None:
        labels = self._label_column()
        taken = []
        for name in self._free():
            why_not = self._no_attribute(name, labels)
            if why_not:
                self.left[name] = why_not
            else:
                taken.append(name)
        if len(taken) > MOST_ATTRIBUTES:
            raise DataError(
                f"{len(taken)} columns of {self.path} could be attributes ({', '.join(taken[:MOST_ATTRIBUTES])}, …): name those "
                "that the model should not use with attribute=, repeated for several"
            )
        for name in taken:
            self._take("attribute", name, _values(self.frame[name]))

    def _no_attribute(self, name: str, labels: pd.Series | None) -> str:
        """Why a column cannot be an attribute; empty where it can."""
        plain, distinct = _plain(name), self._distinct(name)
        is_number = _is_number(self.frame[name])
        if plain.startswith(NOT_ATTRIBUTES):
            return "its name is not an attribute's"
        if plain in (*SCORES, *DECISIONS) or plain.startswith(SCORE_BEGINS):
            return "its name is that of an answer"
        if self._holds_files(name):
            return "file names"
        if len(distinct) < 2:
            return "one value"
        if not is_number and len(distinct) > MOST_VALUES:
            return f"text of {len(distinct)} values"
        if is_number and self._is_unique(name) and self.frame[name].dtype.kind in "iu":
            return "a number of its own in every row"
        if labels is not None and self._says_label(name, labels):
            return "its values say the label"
        return ""

    # ---- what the parts ask --------------------------------------------------------------------------------------------

    def _free(self) -> list[str]:
        """Columns that play no part yet."""
        taken = set(self.schema.columns()) & set(self.frame.columns) - ({"image"} if not self.has_images else set())
        for one in self.found:
            taken.add(one.value)
        for value in self.given.values():
            taken |= {value} if isinstance(value, str) else set(value) if isinstance(value, list | tuple) else set()
        return [str(name) for name in self.frame.columns if name not in taken and name not in self.left]

    def _take(self, part: str, value: Any, why: str) -> None:
        self.found.append(Found(part, value, why))

    def _cells(self, name: str) -> list[str]:
        """Some cells of a column, evenly spread."""
        known = [cell for cell in map(text, self.frame[name].tolist()) if cell]
        return [known[k] for k in np.unique(np.linspace(0, len(known) - 1, SAMPLED).astype(int))] if known else []

    def _holds_files(self, name: str) -> bool:
        if self.frame[name].dtype.kind in "iufb":
            return False
        cells = self._cells(name)
        return bool(cells) and all(cell.partition("#")[0].lower().endswith(IMAGE_SUFFIXES) for cell in cells)

    def _distinct(self, name: str) -> set[str]:
        return set(map(text, self.frame[name].unique().tolist())) - {"", *self.schema.missing}

    def _is_unique(self, name: str) -> bool:
        return not self.frame[name].isna().any() and self.frame[name].is_unique

    def _has_values(self, name: str, wanted: Sequence[str]) -> bool:
        return self._distinct(name) == set(wanted)

    def _label_column(self) -> pd.Series | None:
        name = self.given.get("label") or next((one.value for one in self.found if one.part == "label"), self.schema.label)
        return self.frame[name].map(text) if name in self.frame.columns else None

    def _says_label(self, name: str, labels: pd.Series) -> bool:
        cells = self.frame[name].map(text)
        known = (cells != "") & (labels != "")
        return bool((labels[known].groupby(cells[known]).nunique() == 1).all())


def predicted_columns(look: Look, classes: Sequence[str], path: Path) -> list[Found]:
    """Where a table of predictions has its scores or, without any, its decisions.

    Parameters
    ----------
    classes : the labels, as text
    """
    names = [str(name) for name in look.frame.columns]
    by_class = {
        name: begin
        for name in names
        for begin in ("prob_", "probability_", "score_")
        if _plain(name).startswith(begin) and name[len(begin) :] in classes
    }
    if any(name == "p" or name.startswith("p_") for name in names):
        return []
    if len(set(by_class.values())) > 1:
        raise DataError(f"the columns {_both(by_class)} of {path} could be the scores: say which with score=")
    if by_class:
        return [Found("score", name, "its name") for name in by_class]
    for kind, wanted in (("score", SCORES), ("prediction", DECISIONS)):
        fitting = [name for name in names if _plain(name) in wanted]
        if len(fitting) > 1:
            raise DataError(f"the columns {_both(fitting)} of {path} could be the scores: say which with score=")
        if fitting:
            return [Found(kind, fitting[0], "its name")]
    return []


def _plain(name: str) -> str:
    """`Patient ID` and `patientId` as patient_id."""
    parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", str(name))
    return re.sub(r"[^a-z0-9]+", "_", parted.lower()).strip("_")


def _both(names: Any) -> str:
    return " and ".join(map(repr, list(names)[:4]))


def _is_number(series: pd.Series) -> bool:
    known = [value for value in tidy(series, ()) if value is not None]
    return bool(known) and not isinstance(known[0], str)


def _values(series: pd.Series) -> str:
    """The values of a column in a few words."""
    known = [value for value in tidy(series, ()) if value is not None]
    distinct = sorted(set(known), key=str)
    if known and not isinstance(known[0], str) and len(distinct) > CONTINUOUS_ABOVE:
        numbers = np.array(known, dtype=float)
        return f"a number, {numbers.min():g} to {numbers.max():g}, compared by its quartiles"
    shown = ", ".join(map(str, distinct[:6]))
    return f"{shown}, … ({len(distinct)} values)" if len(distinct) > 6 else shown


def _folders(base: Path) -> Iterator[Path]:
    """Folders below a table's own, the nearest first."""
    floor, seen = [base], 0
    for _ in range(DEEPEST):
        below = []
        for folder in floor:
            for entry in sorted(folder.iterdir()):
                if entry.is_dir() and not entry.name.startswith(".") and seen < MOST_FOLDERS:
                    seen += 1
                    below.append(entry)
                    yield entry
        floor = below
