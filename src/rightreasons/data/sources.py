"""Where a table of images comes from: CSV, Parquet, Excel, class folders, a saved Hugging Face dataset."""

from __future__ import annotations

import codecs
import csv
import io
import json
import warnings
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from rightreasons import files
from rightreasons.data.schema import IMAGE_SUFFIXES, LARGEST_EXACT, SINGLE_PARTS, Schema, distinct, text
from rightreasons.errors import DataError
from rightreasons.families import suggest
from rightreasons.stored import known_format

SCHEMA = b"rightreasons.schema"
HEAD_BYTES = 1 << 20
LONGEST_CELL = 100_000
OTHER_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars (|)", ",": "commas"}
FORMAT = 1  # of the schema in a saved cohort

SPLIT_FOLDERS = {"train", "training", "val", "valid", "validation", "audit", "test", "testing"}
SPLIT_NAMES = {"training": "train", "valid": "val", "validation": "val", "testing": "test"}


def read_frame(path: Path, schema: Schema) -> tuple[pd.DataFrame, Schema]:
    """The raw table and the schema adapted to its source; a cohort that we saved brings its own, already resolved."""
    frame, found = _read_source(path, schema)
    _refuse_long_cells(frame, found, path)
    return frame, found


def _read_source(path: Path, schema: Schema) -> tuple[pd.DataFrame, Schema]:
    if not path.exists():
        raise DataError(f"no manifest at {path}: expected a CSV or Parquet file, an image folder or a saved dataset")
    located = replace(schema, root=schema.root or str(path if path.is_dir() else path.parent))
    if path.is_dir():
        is_dataset = (path / "dataset_info.json").exists() or (path / "dataset_dict.json").exists()
        if is_dataset:
            return _read_huggingface(path, located)
        return _read_folder(path, located)
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        frame, stored = _read_parquet(path)
        return frame, located if stored is None else _stored(stored, schema, path)
    if suffix == ".xlsx":
        return _read_excel(path, schema), located
    if suffix not in {".csv", ".tsv", ".txt"}:
        raise DataError(f"{path} is not a manifest that can be read: .csv, .tsv, .parquet or .xlsx expected")
    return _read_csv(path, "\t" if suffix == ".tsv" else ",", schema), located


def _read_parquet(path: Path) -> tuple[pd.DataFrame, bytes | None]:
    """The table, and the schema that `write_frame` left in it."""
    try:
        arrow = pq.read_table(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{path} cannot be read as Parquet: {error}") from error
    if len(set(arrow.column_names)) < len(arrow.column_names):
        raise DataError(f"{path} has two columns with the same name: {', '.join(arrow.column_names)}")
    return arrow.to_pandas(integer_object_nulls=True), (arrow.schema.metadata or {}).get(SCHEMA)


def _read_excel(path: Path, schema: Schema) -> pd.DataFrame:
    """The only sheet of a workbook that has anything on it; its cells as they would stand in a CSV file."""
    try:
        import openpyxl
    except ModuleNotFoundError as error:
        raise DataError(
            f"{path} is an Excel file: pip install rightreasons[excel] to read it, or save it as CSV in UTF-8"
        ) from error
    try:
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    except (openpyxl.utils.exceptions.InvalidFileException, zipfile.BadZipFile, KeyError, ValueError, OSError) as error:
        raise DataError(f"{path} cannot be read as an Excel file: {' '.join(str(error).split())}") from error
    with closing(book):
        sheets = {
            sheet.title: [row for row in sheet.values if any(cell is not None for cell in row)] for sheet in book.worksheets
        }
    filled = {name: rows for name, rows in sheets.items() if rows}
    if len(filled) != 1:
        found = "no sheet with cells" if not filled else f"{len(filled)} sheets with cells ({', '.join(filled)})"
        raise DataError(f"{path} has {found}, and one is expected: save the one that is meant as CSV in UTF-8")
    (rows,) = filled.values()
    names = ["" if cell is None else str(cell) for cell in rows[0]]
    twice = sorted({name for name in names if name and names.count(name) > 1})
    if twice:
        raise DataError(f"{path} has two columns of the name {twice[0]!r}: which is meant? Rename or remove one")
    frame = pd.DataFrame({name: [row[k] for row in rows[1:]] for k, name in enumerate(names) if name})
    as_text = {column for column in schema.text_columns().values() if column}
    for name in frame.columns.intersection(list(as_text)):
        frame[name] = frame[name].map(lambda cell: None if cell is None else text(cell))
    return frame


def _read_csv(path: Path, separator: str, schema: Schema) -> pd.DataFrame:
    _refuse_other_text(path, separator, schema)
    as_text = {column: str for column in schema.text_columns().values() if column}
    try:
        frame = _parsed(path, separator, as_text)
    except pd.errors.ParserWarning as error:
        raise DataError(f"{path} cannot be read as a table: rows have more cells than the header has names") from error
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError, ValueError) as error:
        raise DataError(f"{path} cannot be read as a table: {' '.join(str(error).split())}") from error
    rounded = [str(name) for name in frame.columns if name not in as_text.values() and _has_lost_digits(frame[name])]
    if rounded:  # whole numbers beside an empty cell were read as floats, which do not tell large ones apart
        frame = frame.assign(**_parsed(path, separator, dict.fromkeys(rounded, str), usecols=rounded))
    return frame


def _parsed(path: Path, separator: str, as_text: Mapping[str, type], **more: Any) -> pd.DataFrame:
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)  # a row with more cells than the header would lose some
        # NA and None may be honest values of an attribute (a continent, a treatment): only empty and NaN are missing.
        return pd.read_csv(
            path,
            dtype=dict(as_text),
            keep_default_na=False,
            na_values=["", "nan", "NaN"],
            sep=separator,
            index_col=False,
            low_memory=False,
            encoding="utf-8",
            **more,
        )


def _refuse_other_text(path: Path, separator: str, schema: Schema) -> None:
    """Refuse a file that is no text, that has other separators, or the name of a column twice."""
    with path.open("rb") as file:
        start = file.read(HEAD_BYTES)
    if not start.strip():
        raise DataError(f"{path} cannot be read as a table: it is empty, and a table begins with a line of column names")
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in start:
        raise DataError(
            f"{path} cannot be read as a table: it is not UTF-8 text (UTF-16, or no text at all); save it as CSV in UTF-8"
        )
    try:
        text_of_start = codecs.getincrementaldecoder("utf-8-sig")().decode(start)
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} cannot be read as a table: it is not UTF-8 text ({error.reason} at byte {error.start}); save it as UTF-8"
        ) from error
    try:
        names = next(csv.reader(io.StringIO(text_of_start), delimiter=separator), [])
    except csv.Error as error:
        raise DataError(f"{path} cannot be read as a table: {error}") from error
    other = next((sign for sign in OTHER_SEPARATORS if len(names) == 1 and sign in names[0]), None)
    if other is not None and names[0] not in schema.columns():
        way_out = "save it with commas" if separator == "," else "save it as .csv"
        if other == "\t":
            way_out = "name the file .tsv"
        raise DataError(
            f"{path} has {OTHER_SEPARATORS[other]} between its cells where {OTHER_SEPARATORS[separator]} are expected "
            f"(the first line is {names[0][:60]!r}): {way_out}, with decimal points in numbers"
        )
    twice = sorted({name for name in names if name and names.count(name) > 1})
    if twice:
        raise DataError(f"{path} has two columns of the name {twice[0]!r}: which is meant? Rename or remove one")


def _has_lost_digits(series: pd.Series) -> bool:
    if series.dtype.kind != "f":
        return False
    return bool((np.abs(series.to_numpy()[np.isfinite(series.to_numpy())]) >= LARGEST_EXACT).any())


def _refuse_long_cells(frame: pd.DataFrame, schema: Schema, path: Path) -> None:
    """A cell of megabytes is a file that stands in the table; as a label or an id it would fill every page."""
    for name in schema.columns():
        if name not in frame.columns or frame[name].dtype.kind in "iufb":
            continue
        cells, place = distinct(frame[name])
        lengths = np.array([len(cell) if isinstance(cell, str) else 0 for cell in cells.tolist()], dtype=np.int64)[place]
        if lengths.max(initial=0) > LONGEST_CELL:
            row = int(lengths.argmax())
            raise DataError(
                f"{path}, row {row + 1}: the cell of {name!r} has {lengths[row]:,} characters, at most {LONGEST_CELL:,} are "
                "expected: name files by their paths, and leave long texts out"
            )


def write_frame(frame: pd.DataFrame, schema: Schema, path: Path) -> Path:
    """Parquet with the schema in its metadata."""
    mixed = [column for column, kind in frame.dtypes.items() if kind == np.object_]
    for column in mixed:  # one column of numbers and text would stop Arrow
        frame[column] = _writable(frame[column].tolist())
    arrow = pa.Table.from_pandas(frame, preserve_index=False)
    metadata = {**(arrow.schema.metadata or {}), SCHEMA: json.dumps({"format": FORMAT, **asdict(schema)}).encode()}
    with files.replacing(path) as partial:
        pq.write_table(arrow.replace_schema_metadata(metadata), partial)
    return path


def _writable(values: list[Any]) -> list[str | bool | None]:
    """Cells of any kind as one that Arrow takes and `tidy` and `parse_boxes` read back as the same."""
    if all(isinstance(v, bool | np.bool_) or text(v) == "" for v in values):
        return [None if text(v) == "" else bool(v) for v in values]
    return [_as_json(v) if isinstance(v, list | tuple | np.ndarray) else text(v) or None for v in values]


def _as_json(values: Sequence[Any] | np.ndarray) -> str:
    return json.dumps(values, default=lambda array: array.tolist())


def _stored(stored: bytes, schema: Schema, path: Path) -> Schema:
    """The schema that was saved. `root=` may say where the images are now; any other keyword given must agree with it."""
    parts = json.loads(stored)
    known_format(parts.pop("format", None), FORMAT, path)
    for key in ("attribute", "box", "missing", "classes"):
        parts[key] = tuple(parts[key])
    for key in ("bins", "levels"):
        parts[key] = {name: tuple(values) for name, values in parts[key].items()}
    saved = Schema(**parts)
    usual = Schema()
    for part in (*SINGLE_PARTS, "attribute", "box"):
        wanted = getattr(schema, part)
        if wanted not in (getattr(usual, part), getattr(saved, part)):
            raise DataError(
                f"{path} is a saved cohort whose {part} is {getattr(saved, part)!r}, not {wanted!r}: "
                f"leave {part}= out, or read the manifest that it was made from"
            )
    return replace(saved, root=schema.root or saved.root)


def _read_folder(path: Path, schema: Schema) -> tuple[pd.DataFrame, Schema]:
    """A folder of class folders; the class folders may lie in split folders."""
    folders = sorted(p for p in path.iterdir() if p.is_dir() and not p.name.startswith("."))
    splits = bool(folders) and all(p.name.lower() in SPLIT_FOLDERS for p in folders)
    rows = []
    for file in sorted(p for p in path.rglob("*") if p.name.lower().endswith(IMAGE_SUFFIXES)):
        parts = file.relative_to(path).parts
        if any(part.startswith(".") for part in parts):  # left by editors and file managers
            continue
        if splits:
            floor = parts[1:]
        else:
            floor = parts
        if len(floor) >= 2:
            name = SPLIT_NAMES.get(parts[0].lower(), parts[0].lower())
            rows.append({"image": str(file.relative_to(path)), "label": floor[0], **({"split": name} if splits else {})})
    if not rows:
        raise DataError(f"{path} has no images in class folders: expected {path}/<class>/<image>, or …/<split>/<class>/<image>")
    return pd.DataFrame(rows), replace(schema, image="image", label="label", split="split" if splits else None)


def _read_huggingface(path: Path, keywords: Schema) -> tuple[pd.DataFrame, Schema]:
    """A dataset saved with `save_to_disk`; images held inside it are written out once, beside it."""
    try:
        import datasets
    except ModuleNotFoundError as error:
        raise DataError(f"{path} is a Hugging Face dataset: pip install rightreasons[hf] to read it") from error
    loaded = datasets.load_from_disk(str(path))
    if isinstance(loaded, datasets.DatasetDict):
        parts = dict(loaded)
    else:
        parts = {"": loaded}
    column = keywords.image or "image"
    frames = []
    for split, part in parts.items():
        if column not in part.column_names:
            raise DataError(f"{path} has no column {column!r} (image=); {suggest(column, part.column_names)}")
        names = {key: feature.names for key, feature in part.features.items() if isinstance(feature, datasets.ClassLabel)}
        pictures = [key for key, feature in part.features.items() if isinstance(feature, datasets.Image)]
        table = {key: part[key] for key in part.column_names if key not in pictures}
        frame = pd.DataFrame({key: list(values) for key, values in table.items()})
        for key, values in names.items():
            frame[key] = [values[int(v)] if v is not None and v >= 0 else None for v in part[key]]
        for key in pictures:
            raw = part.cast_column(key, datasets.Image(decode=False))[key]
            frame[key] = [_written(path, split or "all", key, i, item) for i, item in enumerate(raw)]
        own = keywords.split in part.column_names
        frames.append(frame.assign(split=SPLIT_NAMES.get(split, split)) if split and not own else frame)
    if keywords.split or "" in parts:
        schema = keywords
    else:
        schema = replace(keywords, split="split")
    return pd.concat(frames, ignore_index=True), schema


def _written(folder: Path, split: str, column: str, row: int, item: Mapping[str, Any] | None) -> str:
    if item is None:
        return ""
    if item["bytes"] is None:
        return str(Path(item["path"]).absolute())
    suffix = Path(item["path"] or "image.png").suffix or ".png"
    target = folder / "images" / f"{split}-{column}-{row:07d}{suffix}"
    if not target.exists() or target.read_bytes() != item["bytes"]:  # the dataset may have been saved anew
        files.write(target, item["bytes"])
    return str(target.relative_to(folder))
