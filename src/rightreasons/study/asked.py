"""A study.toml to be audited: a brought model ([model]) or models to be trained ([[runs]]); it need not name its audits."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rightreasons import families
from rightreasons.errors import SettingError
from rightreasons.extraction import extract, named_cohorts
from rightreasons.files import write
from rightreasons.findings import Finding
from rightreasons.models.classifier import Classifier
from rightreasons.stats.resampling import task_rng
from rightreasons.study import toml
from rightreasons.study.choose import Depth, choose
from rightreasons.study.plan import read_source
from rightreasons.study.record import PLAIN
from rightreasons.study.regimes import known as training_settings
from rightreasons.study.regimes import refuse_unknown
from rightreasons.study.sheet import sheet_of
from rightreasons.study.sweep import sweep
from rightreasons.study.whole import FAMILY, FAMILY_SEEDS, SCALES, Whole, command_line

TABLES = ("name", "seed", "depth", "data", "external", "model", "references", "extract", "audits", "title", "subtitle")
MODEL_FOLDER = "model.json"


def read(source: Path) -> dict[str, Any]:
    """A study.toml as plain data whose paths are absolute, so that it means the same wherever it is written again."""
    try:
        asked = tomllib.loads(source.read_text())
    except tomllib.TOMLDecodeError as error:
        raise SettingError(f"{source} is no TOML: {error}") from error
    return absolute(asked, source.parent)


def absolute(asked: Mapping[str, Any], base: Path) -> dict[str, Any]:
    """Paths of [data], [external], [model], [architectures] and [references] as absolute ones."""

    def table(given: Mapping[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
        return {key: _place(value, base) if key in keys else value for key, value in given.items()}

    found = dict(asked)
    if "data" in found:
        found["data"] = table(found["data"], ("manifest", "root"))
    for name in ("external", "architectures"):
        if name in found:
            found[name] = {key: table(one, ("manifest", "root", "checkpoint")) for key, one in found[name].items()}
    if "model" in found:
        found["model"] = table(found["model"], ("checkpoint",))
        for key in ("model", "start"):
            if key in found["model"] and (base / str(found["model"][key])).exists():
                found["model"][key] = _place(found["model"][key], base)
    if "references" in found:
        folders = {
            k: [_place(v, base) for v in values] for k, values in found["references"].items() if k in ("baseline", "attribute")
        }
        found["references"] = {**found["references"], **folders}
    return found


def _place(value: Any, base: Path) -> Any:
    return value if str(value).startswith("world:") else str((base / os.fspath(value)).absolute())


def audit_study(
    source: str | os.PathLike[str], out: str | os.PathLike[str] | None = None, *, depth: Depth | None = None,
    say: Callable[[str], None] = print,
) -> list[Finding]:  # fmt: skip
    """Run what a study.toml asks for, with what the data allow where it names no audits, and write the page.

    Parameters
    ----------
    depth : "quick", "usual" or "full"; what the file says by default, else usual
    """
    asked = read(Path(source))
    return run(asked, Path(out) if out is not None else default_folder(Path(source)), depth=depth, say=say)


def default_folder(source: Path) -> Path:
    """Where an audit goes when nobody says: `rightreasons-<name>` in the current folder."""
    return Path(f"rightreasons-{read(source).get('name', source.stem)}")


def run(
    asked: Mapping[str, Any], folder: Path, *, depth: Depth | None = None, say: Callable[[str], None] = print
) -> list[Finding]:
    """The same from plain data with absolute paths; they are written to `folder/study.toml`."""
    full = {**asked, "depth": depth or asked.get("depth", "usual")}
    if "model" in asked:
        return whole(full, folder).run(say)
    filled = _filled(full, folder)
    write(folder / "study.toml", toml.dumps(filled).encode())
    study = sweep(folder / "study.toml", folder, say=say)
    return study.findings()


# ---- a model that is brought ---------------------------------------------------------------------------------------------


def whole(asked: Mapping[str, Any], folder: Path) -> Whole:
    """What a file with [model] asks for; it is written to the folder before anything runs."""
    refuse_unknown(asked, TABLES, "a study.toml with [model]")
    if not asked.get("data"):
        raise SettingError("the study.toml has no [data]: say manifest = and the names of its columns")
    seed = int(asked.get("seed", 0))
    references, extraction = dict(asked.get("references", {})), dict(asked.get("extract", {}))
    given = {role: references.pop(role) for role in ("baseline", "attribute") if role in references}
    refuse_unknown(references, [*training_settings(PLAIN), "baseline", "attribute", "workers", "cache"], "[references]")
    usual = families.settings_of(extract)
    refuse_unknown(extraction, [key for key in usual if key not in ("out", "needs", "training", "seed")], "[extract]")
    model = dict(asked["model"])
    start = model.pop("start", None)
    cohort = read_source(asked["data"], Path(), folder / "world", seed, "[data]")
    classifier = classifier_of(model)
    external = {
        name: read_source(table, Path(), folder / f"world-{name}", seed, f"[external.{name}]", folder / "world")
        for name, table in asked.get("external", {}).items()
    }
    text = toml.dumps(asked)
    write(folder / "study.toml", text.encode())
    return Whole(
        classifier=classifier, cohort=cohort, folder=folder, audits=asked.get("audits"), external=external,
        depth=asked.get("depth", "usual"), seed=seed, start=start, references=given, training=references, extraction=extraction,
        title=str(asked.get("title", "")), subtitle=str(asked.get("subtitle", asked["data"].get("manifest", ""))), study=text,
        command=command_line(folder),
    )  # fmt: skip


def classifier_of(table: Mapping[str, Any]) -> Classifier:
    """The network of a table [model]: the folder of a saved one, or a specification with keywords of `Classifier.load`."""
    settings = dict(table)
    if "model" not in settings:
        raise SettingError(
            "[model] has no model: timm:NAME, torchvision:NAME, … , package.module:factory, or a folder that train wrote"
        )
    spec = str(settings.pop("model"))
    if (Path(spec) / MODEL_FOLDER).is_file():
        if settings:
            raise SettingError(f"{spec} is a saved model and has its own settings: leave out {', '.join(settings)}")
        opened = Classifier.open(spec)
        opened.card.setdefault("name", Path(spec).resolve().name)
        return opened
    return Classifier.load(spec, **settings)


# ---- models that are trained here ----------------------------------------------------------------------------------------


def _filled(asked: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """A study of [[runs]] with the audits that it does not name: all, each for every attribute.

    What an audit compares with is trained unless it could not run anyway, or nothing shall be trained (quick). Families are
    trained with `full`. The data sheet is written on the way.
    """
    given = {key: value for key, value in asked.items() if key != "depth"}
    for key in ("data", "architectures", "runs"):
        if not given.get(key):
            raise SettingError(f"the study.toml has neither [model] nor [{key}]: give a model, or data, architectures and runs")
    seed, depth = int(given.get("seed", 0)), asked["depth"]
    cohort = read_source(given["data"], Path(), folder / "world", seed, "[data]")
    rows = cohort.with_roles(rng=task_rng(seed, "roles of the splits"), trains=True)
    text = toml.dumps(given)
    facts = {"seed": str(seed), "depth": str(depth)}
    sheet_of(rows, command=command_line(folder), study=text, facts=facts).save(folder)
    if "audits" in given:
        return given
    networks = [
        Classifier.load(
            **{"spec": table["model"], "num_classes": len(rows.classes), **{k: v for k, v in table.items() if k != "model"}}
        )
        for table in given["architectures"].values()
    ]
    named = named_cohorts(rows, seed)
    every = [choose(None, rows, named, network) for network in networks]
    tables: dict[str, dict[str, Any]] = {}
    balanced = ""
    for same in zip(*every, strict=True):
        one = same[0]
        table = tables[one.name] = {"method": one.method, **one.settings}
        if all(other.impossible for other in same) or depth == "quick":
            table["roles"] = {role.name: "none" for role in one.references}
        else:
            like = [f"{one.name}-{role.name}" for role in one.references if role.rows == "balanced" and not role.target]
            balanced = balanced or next(iter(like), "")  # the regime that the plan adds for it
        if one.is_family and depth == "full":
            regime, grid = f"family-{one.attribute}", {"seed": list(range(FAMILY_SEEDS)), "scale": list(SCALES)}
            given["regimes"] = {**given.get("regimes", {PLAIN: {}}), regime: {"method": FAMILY, "attribute": one.attribute}}
            given["runs"] = [*given["runs"], {"regime": regime, "architecture": list(given["architectures"]), **grid}]
            table["roles"] = {**table.get("roles", {}), one.subject: {"regime": regime}}
    own = list(asked.get("regimes", {PLAIN: {}}))
    given["runs"] = [run if "regime" in run else {**run, "regime": own} for run in given["runs"]]
    if balanced and "severities" not in given:
        given["severities"] = {"reference": balanced}
    return {**given, "audits": tables}
