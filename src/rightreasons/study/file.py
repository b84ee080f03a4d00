"""study.toml: its tables with their types, read, checked and written.

A study is about a brought model ([model]) or about models to be trained ([architectures], [[runs]]). Most tables are keywords of
one function, which explains them: [train] of `train`, [extract] of `extract`, [audits.NAME] of that audit. A wrong key, type
or value is one sentence with the file, the key, what was found and what is allowed, before anything runs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from rightreasons import files
from rightreasons.errors import SettingError
from rightreasons.families import suggest
from rightreasons.files import write
from rightreasons.study.safe import refuse_unsafe

Depth: TypeAlias = Literal["quick", "usual", "full"]
DEPTHS: tuple[Depth, ...] = ("quick", "usual", "full")
Settings: TypeAlias = dict[str, Any]
Names: TypeAlias = str | list[str]
Seed: TypeAlias = Annotated[int, Field(ge=0)]
Choice: TypeAlias = Names | dict[str, Names | int | float | list[int | float]]
"""Units that serve in a role: regimes, or conditions such as {regime = "erm", lr = "*"}."""


class _Table(BaseModel):
    """A table whose keys are all known."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class _Keywords(BaseModel):
    """A table that also takes keywords of a function; those are checked against the function's signature."""

    model_config = ConfigDict(extra="allow", frozen=True)

    @property
    def keywords(self) -> Settings:
        """The keys of the table that are keywords of its function."""
        return dict(self.model_extra or {})


class Data(_Keywords):
    """[data], [external.NAME]: a table of images (keywords of `Cohort.read`), or a planted world (keywords of that world).

    `truth` names a column of adjudicated labels in [data], for the audits that compare the labels with them.
    """

    manifest: str | None = None
    world: str | None = None
    truth: str | None = None


class Model(_Keywords):
    """[model]: a trained model that is brought, with keywords of `Classifier.load`.

    `start` says what its training began with: "fresh", "given", a folder or a checkpoint.
    """

    model: str | None = None
    start: str | None = None


class Architecture(_Keywords):
    """[architectures.NAME]: a network to be trained, with keywords of `Classifier.load` and of the network's own factory."""

    model: str | None = None


class Regime(_Keywords):
    """[regimes.NAME]: a way to train, with keywords of `train` or of a mitigation."""

    method: str = "erm"
    cohort: str = "data"
    start: str = ""
    references: dict[str, str] = {}


class References(_Keywords):
    """[references]: models that audits compare with. Folders of models that are there already, and keywords of `train`."""

    baseline: list[str] = []
    attribute: list[str] = []
    seed: Seed | list[Seed] = []
    rows: str | None = None


class Baseline(_Table):
    """The model of the study that severities are calibrated on; its first by default."""

    architecture: str | None = None
    regime: str | None = None
    seed: int | None = None


class SeverityTable(_Keywords):
    """[severities]: keywords of `calibrate`; `reference` is a regime that does not know the cue."""

    baseline: Baseline = Baseline()
    reference: str = ""


class Audit(_Keywords):
    """[audits.NAME]: keywords of the audit; `method` where the table has another name; `roles` choose units for its roles."""

    method: str | None = None
    roles: dict[str, Choice] = {}


class Curve(_Table):
    """[curves.NAME]: what is drawn against which axis."""

    y: str
    x: str | None = None


class NumbersByRegime(_Table):
    """[tables.NAME]: means over seeds by architecture and regime."""

    columns: Names
    regimes: Names | None = None
    title: str = ""


class Relation(_Table):
    """[relations.NAME]: does x go with y over models?"""

    x: Names
    y: Names
    regimes: Names | None = None
    title: str = ""


class Pair(_Table):
    """[pairs.NAME]: what the second regime changes against the first."""

    of: Annotated[list[str], Field(min_length=2, max_length=2)]
    columns: Names
    regimes: Names | None = None
    title: str = ""


class TrainingSet(_Table):
    """[cohorts.NAME]: other training rows. Exactly one of three ways to choose them."""

    redrawn: Annotated[int, Field(ge=1)] | None = None
    balance: Settings | None = None
    bias: Settings | None = None


class StudyFile(_Table):
    """A whole study.toml."""

    name: Annotated[str, Field(min_length=1)] | None = None
    seed: Seed = 0
    depth: Depth = "usual"
    title: str = ""
    subtitle: str | None = None
    engine: str = "local"
    engine_settings: Settings = {}
    data: Data | None = None
    split: Settings | None = None
    cohorts: dict[str, TrainingSet] = {}
    external: dict[str, Data] = {}
    model: Model | None = None
    architectures: dict[str, Architecture] = {}
    regimes: dict[str, Regime] = {}
    references: References = References()
    train: Settings = {}
    runs: list[Settings] = []
    severities: SeverityTable | None = None
    extract: Settings = {}
    performance: Settings = {}
    audits: dict[str, Audit] | None = None
    curves: dict[str, Curve] = {}
    tables: dict[str, NumbersByRegime] = {}
    relations: dict[str, Relation] = {}
    pairs: dict[str, Pair] = {}

    def to_toml(self) -> str:
        """The text of the file; what has its default is left out, and so is None, for which TOML has no word."""
        return tomli_w.dumps(without_none(self.model_dump(exclude_unset=True)))

    def save(self, folder: Path) -> Path:
        return write(folder / "study.toml", self.to_toml())


RUNS_ONLY = (
    "engine", "engine_settings", "split", "cohorts", "architectures", "regimes", "train", "runs", "severities", "performance",
    "curves", "tables", "relations", "pairs",
)  # fmt: skip
"""Tables that mean nothing where a model is brought."""


def read(source: Path) -> StudyFile:
    """A study.toml, checked, with absolute paths: it means the same wherever it is written again."""
    return parsed(read_text(source), source)


def read_text(source: Path) -> str:
    if not source.is_file():
        raise SettingError(f"no study at {source}: give a study.toml, or the folder of a study")
    return files.read_text(source)


def parsed(text: str, source: Path, base: Path | None = None) -> StudyFile:
    """The tables of a study.toml; relative paths start from `base`, by default the folder of the file."""
    return checked(absolute(files.parse_toml(text, source), base or source.parent), str(source))


def checked(tables: Mapping[str, Any], source: str) -> StudyFile:
    """Tables as plain data, as a checked file; `source` is named in errors."""
    refuse_unsafe(tables, source)
    try:
        # Through JSON, because strict JSON takes a list for a tuple, as a file must, and no text for a number.
        file = StudyFile.model_validate_json(json.dumps(tables, default=str), strict=True)
    except ValidationError as error:
        raise SettingError(_sentence(error.errors()[0], tables, source)) from None
    if file.data is None:
        raise SettingError(f"{source} has no [data]: say manifest = and the names of its columns")
    if file.model is not None:
        for name in RUNS_ONLY:
            if name in file.model_fields_set:
                raise SettingError(f"{source} has [model], a brought model, and so cannot have {name!r}: leave one of them out")
        return file
    for name in ("architectures", "runs"):
        if not getattr(file, name):
            raise SettingError(
                f"{source} has neither [model] nor [{name}]: give a model that is there, or architectures and runs to train"
            )
    return file


@contextmanager
def naming(source: Path) -> Iterator[None]:
    """Errors about a table ("[train] epochs is …") name the file that it stands in."""
    try:
        yield
    except SettingError as error:
        if not str(error).startswith("["):
            raise
        raise SettingError(f"{source} {error}") from error


def schema() -> str:
    """The JSON Schema of a study.toml, for editors."""
    return json.dumps(StudyFile.model_json_schema(), indent=1) + "\n"


# ---- paths ---------------------------------------------------------------------------------------------------------------


def absolute(tables: Mapping[str, Any], base: Path) -> dict[str, Any]:
    """The same tables with absolute paths in [data], [external], [model], [architectures] and [references]."""
    resolved = dict(tables)
    if isinstance(resolved.get("data"), Mapping):
        resolved["data"] = _with_paths(resolved["data"], base, "manifest", "root")
    for name in ("external", "architectures"):
        if isinstance(resolved.get(name), Mapping):
            tables_of = resolved[name].items()
            resolved[name] = {key: _with_paths(table, base, "manifest", "root", "checkpoint") for key, table in tables_of}
    if isinstance(resolved.get("model"), Mapping):
        resolved["model"] = _with_paths(resolved["model"], base, "checkpoint")
        for key in ("model", "start"):  # a word, or a folder or file
            value = resolved["model"].get(key)
            if isinstance(value, str) and (base / value).exists():
                resolved["model"][key] = _absolute(value, base)
    if isinstance(resolved.get("references"), Mapping):
        resolved["references"] = dict(resolved["references"])
        for role in ("baseline", "attribute"):
            folders = resolved["references"].get(role)
            if isinstance(folders, list):
                resolved["references"][role] = [_absolute(folder, base) for folder in folders]
    return resolved


def _with_paths(table: Any, base: Path, *keys: str) -> Any:
    """A table with absolute paths at these keys; what is no table is left to the checks."""
    if not isinstance(table, Mapping):
        return table
    absolute = {key: _absolute(table[key], base) for key in keys if key in table}
    return {**table, **absolute}


def _absolute(value: Any, base: Path) -> Any:
    if not isinstance(value, str | os.PathLike) or str(value).startswith("world:"):
        return value
    return str((base / value).absolute())


def without_none(value: Any) -> Any:
    """Plain data without what was not given: TOML has no word for nothing."""
    if isinstance(value, Mapping):
        return {str(key): without_none(each) for key, each in value.items() if each is not None}
    if isinstance(value, list | tuple):
        return [without_none(each) for each in value]
    if isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise SettingError(f"{value!r} ({type(value).__name__}) cannot stand in a study.toml: give texts, numbers, lists or tables")


# ---- errors --------------------------------------------------------------------------------------------------------------

EXPECTED = {
    "string_too_short": "a text that is not empty",
    "string_type": "a text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a table",
    "model_type": "a table",
    "model_attributes_type": "a table",
}


def _sentence(error: ErrorDetails, tables: Mapping[str, Any], source: str) -> str:
    """One error of pydantic as a sentence of ours."""
    path = [part for part in error["loc"] if isinstance(part, int) or not _is_branch(part)]
    if path and isinstance(path[-1], int):  # a whole table of a list
        return f"{source} {_place(path)} is {_shown(error['input'])}; expected a table"
    key, where = path[-1] if path else "", _place(path[:-1])
    within = f"{source} {where}".strip()
    if error["type"] == "extra_forbidden":
        return f"{within} has no setting {key!r}; {suggest(str(key), _known(path[:-1]))}"
    if error["type"] == "missing":
        return f"{within} needs {key}: {_meaning(path)}"
    if path[:1] == ["pairs"] and key == "of":
        return f'{within} of is {_shown(error["input"])}: give two regimes, of = ["baseline", "changed"]'
    if path[2:3] == ["roles"]:
        example = '{regime = "erm", lr = "*"}'
        return f"{within} {key} is {_shown(error['input'])}: give a regime, a list of them, or conditions such as {example}"
    if error["type"] == "greater_than_equal":
        return f"{within} {key} is {_shown(error['input'])}; expected a number from {error['ctx']['ge']}"
    expected = EXPECTED.get(error["type"]) or error["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
    return f"{within} {key} is {_shown(error['input'])}; expected {expected}"


def _meaning(path: list[str | int]) -> str:
    """What a key that is missing would say."""
    if path[0] == "curves":
        return 'an audit, "AUDIT: NAME OF AN ESTIMATE", or a column of table.parquet'
    return "give it"


def _is_branch(part: str) -> bool:
    """Names that pydantic adds for the branches of a union: `str`, `list[str]`."""
    return part in ("str", "int", "float", "bool") or "[" in part


def _place(path: list[str | int]) -> str:
    """[audits.groups], [[runs]] 1."""
    if not path:
        return ""
    numbers = [part for part in path if isinstance(part, int)]
    names = ".".join(str(part) for part in path if not isinstance(part, int))
    return f"[[{names}]] {numbers[0] + 1}" if numbers else f"[{names}]"


def _known(path: list[str | int]) -> list[str]:
    """The keys that the table at a path may have."""
    kind: Any = StudyFile
    for part in path:
        if not (isinstance(kind, type) and issubclass(kind, BaseModel)):
            break
        fields = kind.model_fields
        kind = _table_in(fields[str(part)].annotation) if str(part) in fields else kind
    return list(kind.model_fields) if isinstance(kind, type) and issubclass(kind, BaseModel) else []


def _table_in(annotation: Any) -> Any:
    """The table class inside an annotation such as `dict[str, Curve]` or `Data | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for part in getattr(annotation, "__args__", ()):
        if (table := _table_in(part)) is not None:
            return table
    return None


def _shown(value: Any) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "…"
