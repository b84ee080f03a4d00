"""What lies in a folder and what it is: a table, a checkpoint, their parts. For a caller who names nothing, and for `init`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rightreasons import files
from rightreasons.data.found import Found, Look, look
from rightreasons.errors import SettingError
from rightreasons.study.file import parsed

TABLES = (".csv", ".tsv", ".parquet", ".xlsx")
CHECKPOINTS = (".pt", ".pth", ".ckpt", ".safetensors")
STUDY = "study.toml"
INPUT = ("size", "mean", "std", "crop", "interpolation")
"""What a checkpoint can say of the input that it was trained with."""


@dataclass(frozen=True)
class Asked:
    """What a caller says of a table and a model, in keywords of `Cohort.read` and `Classifier.load`."""

    manifest: Path | None = None
    columns: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Around:
    """A table and a model with all that was found of them.

    Attributes
    ----------
    look : what the table is found to be
    model : [model] of a study.toml: what the caller said and what was found
    found : of the model, with the reasons
    """

    manifest: Path
    look: Look
    columns: dict[str, Any]
    model: dict[str, Any]
    found: tuple[Found, ...]

    def lines(self) -> list[str]:
        """One block for a terminal."""
        said = list(self.look.lines())
        if self.found:
            width = max(len(one.part) for one in self.found)
            said += ["found of the model:", *(f"  {one.part:<{width}}  {_shown(one.value)}  {one.why}" for one in self.found)]
        return said


def study_in(folder: Path) -> Path | None:
    """The study.toml of a folder, where it has one."""
    file = folder / STUDY
    return file if file.is_file() else None


def look_around(asked: Asked, folder: Path = Path()) -> Around:
    """Complete what a caller says of a table and a model with what lies in a folder, and what those files say."""
    manifest = asked.manifest or _one(_with_suffix(folder, TABLES), "table", f"one {', '.join(TABLES)}", folder)
    model, found = _model(asked, folder)
    seen = look(manifest, asked.columns, classes=_classes(model))
    return Around(manifest, seen, {**seen.keywords, **asked.columns}, model, tuple(found))


def init(asked: Asked, out: Path, *, force: bool = False) -> tuple[Around, Path]:
    """Write a study.toml with a comment on every choice; refuses to replace one unless told to."""
    if out.exists() and not force:
        raise SettingError(f"{out} is there already: give --force to replace it, or --out with another name")
    around = look_around(asked)
    text = _text(around, out)
    parsed(text, out)  # what is written can be read
    return around, files.write(out, text)


# ---- the model -----------------------------------------------------------------------------------------------------------


def _model(asked: Asked, folder: Path) -> tuple[dict[str, Any], list[Found]]:
    model, found = dict(asked.model), []
    if "model" not in model and "checkpoint" not in model:
        saved = [file.parent for file in sorted(folder.glob("*/model.json"))]
        weights = _with_suffix(folder, CHECKPOINTS)
        one = _one([*saved, *weights], "model", f"a folder that train wrote, or one {', '.join(CHECKPOINTS)}", folder)
        key = "model" if one in saved else "checkpoint"
        model[key] = str(one)
        found.append(Found(key, str(one), "the only one here"))
    if "checkpoint" not in model:
        return model, found
    if "model" not in model:
        model["model"], why = _recognised(Path(model["checkpoint"]), model.get("part"))
        found.append(Found("model", model["model"], why))
    for key, value in _says(model).items():
        if key not in model:
            model[key] = value
            found.append(Found(key, value, f"{model['checkpoint']} says so"))
    return model, found


def _recognised(checkpoint: Path, part: str | None) -> tuple[str, str]:
    from rightreasons.models.recognised import fitting

    specs = fitting(checkpoint, part)
    if not specs:
        raise SettingError(
            f"the tensors of {checkpoint} are those of no network that is known by name: give model=, such as "
            "package.module:factory for one of your own"
        )
    if len(specs) > 1:
        others = " and ".join(specs[:4])
        raise SettingError(
            f"{checkpoint} fits {others} alike, and they prepare images in different ways: say which it is, such as "
            f"model={specs[0]!r}"
        )
    return specs[0], f"the only known network with the tensors of {checkpoint}"


def _says(model: Mapping[str, Any]) -> dict[str, Any]:
    """What the checkpoint says of its input and its labels."""
    from rightreasons.models.checkpoints import read_checkpoint

    weights = read_checkpoint(model["checkpoint"], model.get("part"))
    said = {key: value for key, value in weights.says.items() if key in INPUT}
    if isinstance(said.get("size"), list) and len(set(said["size"])) == 1:
        said["size"] = said["size"][0]
    return said


def _classes(model: Mapping[str, Any]) -> list[str]:
    """The labels that the model knows, where it knows any."""
    if model.get("classes"):
        return [str(value) for value in model["classes"]]
    if "checkpoint" in model:
        from rightreasons.models.checkpoints import read_checkpoint

        return [str(value) for value in read_checkpoint(model["checkpoint"], model.get("part")).labels or ()]
    folder = Path(str(model.get("model", "")))
    if (folder / "model.json").is_file():
        from rightreasons.models.classifier import Classifier

        return [str(value) for value in Classifier.open(folder).classes]
    return []


# ---- files ---------------------------------------------------------------------------------------------------------------


def _with_suffix(folder: Path, suffixes: tuple[str, ...]) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.is_file() and file.suffix.lower() in suffixes)


def _one(candidates: list[Path], what: str, expected: str, folder: Path) -> Path:
    if len(candidates) == 1:
        return candidates[0]
    place = folder.resolve()
    if not candidates:
        raise SettingError(
            f"there is no {what} in {place} ({expected} is expected): give either a table of images with --model, or "
            "--predictions with a table of predictions"
        )
    names = ", ".join(file.name for file in candidates[:5]) + (", …" if len(candidates) > 5 else "")
    raise SettingError(f"{len(candidates)} files in {place} could be the {what} ({names}): name the one that is meant")


# ---- study.toml ----------------------------------------------------------------------------------------------------------


def _text(around: Around, out: Path) -> str:
    why = {one.part: one.why for one in (*around.look.found, *around.found) if one.part != "attribute"}
    attributes = {one.value: one.why for one in around.look.found if one.part == "attribute"}
    base = out.resolve().parent
    lines = [
        f"# Written by `rightreasons init` from {around.manifest}. Every line is a choice that you may change;",
        f"# `rightreasons audit {out}` runs it.",
        f"name = {_toml(base.name or 'audit')}",
        'depth = "usual"  # "quick" trains nothing but probes; "full" trains families of models and takes hours',
        "",
        "[data]",
        f"manifest = {_toml(_relative(around.manifest, base))}",
    ]
    for key, value in around.columns.items():
        shown = _relative(Path(value), base) if key == "root" else value
        comment = why.get(key, "" if key == "attribute" else "as said to init")
        lines.append(f"{key} = {_toml(shown)}" + (f"  # {comment}" if comment else ""))
    lines += [f"# attribute {name}: {said}" for name, said in attributes.items()]
    lines += [f"# not used: {name} ({said})" for name, said in around.look.left.items()]
    if "split" not in around.columns:
        lines.append("# no split column: half of the rows estimate (audit), the other half is reported on (test)")
    lines += ["", "[model]"]
    for key, value in around.model.items():
        shown = _relative(Path(value), base) if key == "checkpoint" or Path(str(value)).exists() else value
        lines.append(f"{key} = {_toml(shown)}  # {why.get(key, 'as said to init')}")
    if "checkpoint" in around.model:
        lines += [
            '# start = "fresh"  # what training began with; it lets the audit train reference models (oscar, sdi, tsi)',
            '# classes = ["…", "…"]  # the label of each output, where labels are words and the checkpoint does not say',
            "# size, mean, std, crop, interpolation: the network's own configuration, where nothing is said here",
        ]
    lines += [
        "",
        "# No [audits] table: all audits that these data allow. One table each, such as [audits.groups], asks for those alone.",
    ]
    return "\n".join(lines) + "\n"


def _relative(path: Path, base: Path) -> str:
    absolute = path.resolve()
    return str(absolute.relative_to(base)) if absolute.is_relative_to(base) else str(absolute)


def _toml(value: Any) -> str:
    """A value as TOML writes it: texts as JSON does, tables inline."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(str(key))} = {_toml(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, Path):
        return json.dumps(str(value), ensure_ascii=False)
    return json.dumps(value, ensure_ascii=False)


def _shown(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
