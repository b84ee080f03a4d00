"""study.toml → what it means: cohorts, and units with every setting resolved and an id that changes when their numbers could.

A key of a table is a keyword of the function of that name; an unknown one is an error that lists the known and the nearest.
"""

from __future__ import annotations

import hashlib
import inspect
import itertools
import json
import subprocess
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import rightreasons
from rightreasons import families
from rightreasons.data import planted
from rightreasons.data.cohort import Cohort
from rightreasons.data.schema import hash_of
from rightreasons.errors import DataError, SettingError
from rightreasons.extraction import extract
from rightreasons.families import suggest
from rightreasons.files import write, write_json
from rightreasons.models.classifier import Classifier
from rightreasons.stats.resampling import task_rng
from rightreasons.study import curves, engines, overall, regimes, severities
from rightreasons.study.performance import performance
from rightreasons.study.record import PLAIN, PLAN, Study
from rightreasons.study.references import References, read_audit, with_groups
from rightreasons.study.regimes import DECODING, Point
from rightreasons.study.regimes import refuse_unknown as _refuse_unknown

FORMAT = 1  # of plan.json and of a unit's identity
DATA = "data"  # the name of the cohort that [data] describes
TABLES = (
    "name", "seed", "engine", "data", "split", "cohorts", "external", "architectures", "regimes", "references", "train", "runs",
    "severities", "extract", "performance", "audits", "curves", *overall.KINDS, "engine_settings",
)  # fmt: skip
WORLDS: dict[str, Callable[..., Cohort]] = {"digits": planted.digits, "fundus": planted.fundus, "blobs": planted.blobs}
LOADING = ("rng", "spec", "verify")  # keywords of Classifier.load that a plan does not set
NOT_EXTRACTION = ("out", "training", "needs", "device", "threads", "seed")  # keywords of extract() that a plan does not set


@dataclass(frozen=True)
class Driver:
    """The keys of [engine_settings] that are the driver's own, whatever the engine.

    Parameters
    ----------
    attempts : how often a task whose worker died is run in all
    batched : train units that differ only in seed, lr, weight decay and (gradient scaling) scale as one model: true, false, or
        "auto" where it pays
    split_rows : a cohort of more rows is extracted in pieces, by several workers
    track : "mlflow" logs every finished unit there
    """

    attempts: int = 3
    batched: bool | str = False
    split_rows: int = 50_000
    track: str = ""

    def __post_init__(self) -> None:
        options = {"batched": (True, False, "auto"), "track": ("", "mlflow")}
        for key, known in options.items():
            value = getattr(self, key)
            if value not in known:
                raise SettingError(f"[engine_settings] {key} is {value!r}; {suggest(str(value), map(str, known))}")
        if self.attempts < 1 or self.split_rows < 1:
            raise SettingError("[engine_settings] attempts and split_rows: give at least 1")


def plan(source: Path, folder: Path, *, save: bool = True) -> Study:
    """Resolve a study.toml (or the one that `folder` was made from) and write plan.json, study.toml and the cohorts."""
    text, base = _read(source)
    asked = _parse(text, source)
    seed = int(asked.get("seed", 0))
    cohorts = with_groups(asked.get("audits", {}), _cohorts(asked, base, folder, seed))
    driver, engine = _engine(asked)
    extraction = _settings(asked.get("extract", {}), extract, where="[extract]", without=NOT_EXTRACTION)
    points = _points(asked, seed)
    axes = _axes(points)
    resolved: dict[str, Any] = {
        "format": FORMAT,
        "name": str(asked.get("name", source.stem if source.suffix == ".toml" else folder.name)),
        "seed": seed,
        "base": str(base),
        "code": code_version(),
        "engine": str(asked.get("engine", "local")),
        "engine_settings": engine,
        "driver": vars(driver),
        "decoding": {key: asked.get("train", {}).get(key) for key in DECODING},
        "extract": extraction,
        "performance": _settings(asked.get("performance", {}), performance, where="[performance]", without=("seed",)),
        "axes": axes,
        "audits": {
            name: read_audit(name, table, cohorts[DATA], axes) for name, table in asked.get("audits", {"groups": {}}).items()
        },
        "curves": {name: curves.read(name, table, axes) for name, table in asked.get("curves", {}).items()},
        **overall.read(asked, list(_regimes(asked))),
    }
    resolved |= _planned(asked, resolved, points, cohorts, base, folder, driver)
    external = {name: told["hash"] for name, told in resolved["cohorts"].items() if told["external"]}
    deciding = [resolved[key] for key in ("seed", "performance", "audits")] + [external]
    resolved["measured"] = _hash(deciding)
    resolved = json.loads(json.dumps(resolved))
    if save:
        for name, cohort in cohorts.items():
            cohort.save(folder / "cohorts" / f"{name}.parquet")
        write(folder / "study.toml", text.encode())
        write_json(folder / PLAN, resolved)
    return Study(folder, resolved)


def default_folder(source: Path) -> Path:
    """Where a study goes when nobody says: `rightreasons-<name>` in the current folder."""
    if source.is_dir():
        return source
    return Path(f"rightreasons-{_parse(_read(source)[0], source).get('name', source.stem)}")


# ---- the file ------------------------------------------------------------------------------------------------------------


def _read(source: Path) -> tuple[str, Path]:
    """The text of a study.toml, and the folder that its paths start from."""
    if source.is_dir():
        told = Study.open(source).plan
        return (source / "study.toml").read_text(), Path(told["base"])
    if not source.is_file():
        raise SettingError(f"no study at {source}: give a study.toml, or the folder of a study")
    return source.read_text(), source.parent.absolute()


def _parse(text: str, source: Path) -> dict[str, Any]:
    try:
        asked = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingError(f"{source} is no TOML: {error}") from error
    _refuse_unknown(asked, TABLES, f"{source}")
    for key in ("data", "architectures", "runs"):
        if not asked.get(key):
            raise SettingError(f"{source} has no [{key}]: a study needs data, architectures and runs")
    return asked


def _settings(given: Mapping[str, Any], function: Callable[..., Any], where: str, without: Iterable[str] = ()) -> dict[str, Any]:
    """Full settings: the defaults of `function`, overridden by `given`; keywords in `without` are not the file's to set."""
    known = {key: value for key, value in families.settings_of(function).items() if key not in set(without)}
    _refuse_unknown(given, known, where)
    return {**known, **given}


def _engine(asked: Mapping[str, Any]) -> tuple[Driver, dict[str, Any]]:
    given = dict(asked.get("engine_settings", {}))
    own = families.settings_of(Driver)
    driver = Driver(**{key: given.pop(key) for key in list(given) if key in own})
    name = str(asked.get("engine", "local"))
    module = families.member("study.engines", name)
    _refuse_unknown(given, [*families.settings_of(module.Engine), *own], "[engine_settings]")
    return driver, engines.settings_of(name, given)


# ---- cohorts -------------------------------------------------------------------------------------------------------------


def _cohorts(asked: Mapping[str, Any], base: Path, folder: Path, seed: int) -> dict[str, Cohort]:
    """The data with all four splits, the training sets made from them, and the external cohorts."""
    data = read_source(asked["data"], base, folder / "world", seed, "[data]")
    if "split" in asked:
        keywords = _settings(asked["split"], data.split, where="[split]")
        data = data.split(rng=task_rng(seed, "split"), **keywords)
    data = data.with_roles(rng=task_rng(seed, "roles of the splits"), trains=True)
    found = {DATA: data}
    for name, table in asked.get("cohorts", {}).items():
        if name in found:
            raise SettingError(f"[cohorts.{name}]: the name {name!r} is taken by [data]")
        found[name] = training_set(name, table, data, folder, seed)
    for name, table in asked.get("external", {}).items():
        if name in found or name in ("train", "val", "audit", "test", "twin"):
            raise SettingError(f"[external.{name}]: the name {name!r} is taken; choose another")
        whole = read_source(table, base, folder / f"world-{name}", seed, f"[external.{name}]", folder / "world")
        found[name] = whole.on("test") if whole.has("test") else whole
    return found


def read_source(table: Mapping[str, Any], base: Path, folder: Path, seed: int, where: str, first: Path | None = None) -> Cohort:
    """A cohort from a manifest, from a planted world, or (`world:NAME`) from a further manifest of the data's own world."""
    given = dict(table)
    if ("world" in given) == ("manifest" in given):
        raise SettingError(f"{where} needs either manifest = (a table of images) or world = (a planted one: {', '.join(WORLDS)})")
    if "world" in given:
        world = given.pop("world")
        if world not in WORLDS:
            raise SettingError(f"{where} has no world {world!r}; {suggest(world, WORLDS)}")
        keywords = _settings(given, WORLDS[world], where=where)
        return WORLDS[world](folder, **{**keywords, "seed": given.get("seed", seed)})
    manifest = given.pop("manifest")
    if first is not None and manifest.startswith("world:"):
        return planted.read(first, manifest.removeprefix("world:"))
    _refuse_unknown(given, [*families.settings_of(Cohort.read), "manifest", "world"], where)
    if "root" in given:
        given["root"] = base / given["root"]
    return Cohort.read(base / manifest, **given)


def training_set(name: str, table: Mapping[str, Any], data: Cohort, folder: Path, seed: int) -> Cohort:
    """The data with other `train` and `val` rows; `audit` and `test` stay what they are."""
    where = f"[cohorts.{name}]"
    _refuse_unknown(table, ("redrawn", "balance", "bias"), where)
    if len(table) != 1:
        raise SettingError(f"{where} needs exactly one of redrawn, balance and bias, and has {', '.join(table) or 'none'}")
    ((how, given),) = table.items()
    if how == "redrawn":
        return planted.redrawn(folder / "world", draw=int(given))
    method = getattr(data, how)
    keywords = _settings(given, method, where=f"{where} {how}")
    kept = ~np.isin(np.asarray(data.splits), ("train", "val"))
    for split in ("train", "val"):
        part = data.on(split)
        scaled = keywords if split == "train" else _scaled(keywords, len(part) / len(data.on("train")))
        rows = getattr(part, how)(rng=task_rng(seed, f"cohort {name} {split}"), **scaled)
        kept |= np.isin(data.id, rows.id)
    return data.select(kept, name=name)


def _scaled(keywords: Mapping[str, Any], share: float) -> dict[str, Any]:
    """Numbers of rows that were meant for `train`, for the smaller `val`."""
    counts = {k: v for k, v in keywords.items() if k in ("discordant", "size") and isinstance(v, int) and not isinstance(v, bool)}
    return {**keywords, **{key: max(1, round(value * share)) for key, value in counts.items()}}


def _rows_told(cohorts: Mapping[str, Cohort], made: Iterable[str]) -> Iterator[str]:
    """What the training sets that the file describes have come to: rows, and how far numeric attributes go with the label."""
    for name in made:
        sizes = " and ".join(f"{len(cohorts[name].on(split))} {split}" for split in ("train", "val"))
        gaps = []
        for a in map(cohorts[name].attribute, cohorts[name].attributes):
            if not any(isinstance(level, str) for level in a.levels):
                own, data = (cohorts[of].on("train").gap(a.name) for of in (name, DATA))
                gaps.append(f"gap of {a.name} between the last class and the others {own:.3g} in train ({data:.3g} in the data)")
        yield "; ".join([f"cohort {name}: {sizes} rows", *gaps])


def _told(cohort: Cohort, folder: Path, external: bool) -> dict[str, Any]:
    root, home = cohort.root.absolute(), folder.absolute()
    place = root.relative_to(home) if root.is_relative_to(home) else root
    sizes = {} if cohort.splits is None else {str(name): int((cohort.splits == name).sum()) for name in np.unique(cohort.splits)}
    return {
        "rows": len(cohort),
        "splits": sizes,
        "attributes": list(cohort.attributes),
        "hash": rows_hash(cohort),
        "root": str(place),
        "external": external,
    }


def rows_hash(cohort: Cohort) -> str:
    """Of everything in a cohort that decides a number: ids, images, labels, attributes, splits, weights, subjects, cases."""
    parts = [cohort.fingerprint, cohort.column_hash("label"), *(cohort.column_hash(a) for a in cohort.attributes)]
    for name in ("splits", "subject", "case", "weight", "twin"):
        column = getattr(cohort, name)
        parts.append("" if column is None else hash_of(map(str, column)))
    return hash_of(parts)


# ---- units ---------------------------------------------------------------------------------------------------------------


def _points(asked: Mapping[str, Any], seed: int) -> list[Point]:
    """Every combination of the lists of every grid; what is no list is the same for all."""
    tables = {"architecture": asked["architectures"], "regime": _regimes(asked)}
    found = []
    for number, grid in enumerate(asked["runs"]):
        where = f"[[runs]] {number + 1}"
        full = {**{key: list(table) for key, table in tables.items()}, "seed": seed, **grid}
        lists = {key: _values(key, value) for key, value in full.items()}
        for key, table in tables.items():
            for name in lists[key]:
                if name not in table:
                    raise SettingError(f"{where}: no {key} {name!r}; {suggest(str(name), table)}")
        axes = tuple(key for key in sorted(grid) if len(lists[key]) > 1 and key not in (*tables, "seed"))
        for values in itertools.product(*lists.values()):
            point = dict(zip(lists, values, strict=True))
            found.append(Point(point.pop("architecture"), point.pop("regime"), point.pop("seed"), point, axes, where))
    return found


def _values(key: str, value: Any) -> list[Any]:
    """The values of an axis; `scale = {number = 25, largest = 3.0}` is a sweep of gradient scales around 0."""
    if key == "scale" and isinstance(value, Mapping):
        scales = families.member("mitigations", "gradient_scaling").scales
        if value and value.keys() <= families.settings_of(scales).keys():
            return [float(f"{scale:.3g}") for scale in scales(**value)]
    return value if isinstance(value, list) else [value]


def _regimes(asked: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {name: dict(table) for name, table in (asked.get("regimes") or {PLAIN: {}}).items()}


def _axes(points: list[Point]) -> dict[str, list[Any]]:
    """The settings in which units differ, each with its values in the order of the file."""
    found: dict[str, list[Any]] = {}
    for point in points:
        for key in point.axes:
            values = found.setdefault(key, [])
            if point.settings[key] not in values:
                values.append(point.settings[key])
    return found


def _planned(
    asked: Mapping[str, Any],
    resolved: Mapping[str, Any],
    points: list[Point],
    cohorts: dict[str, Cohort],
    base: Path,
    folder: Path,
    driver: Driver,
) -> dict[str, Any]:
    """Units by id with the reference models that audits ask for, the cohorts of all, and what was added."""
    calibration = severities.read(asked["severities"], points) if "severities" in asked else None
    references = References(
        asked.get("references", {}),
        cohorts[DATA],
        lambda name, how: training_set(name, how, cohorts[DATA], folder, resolved["seed"]),
        "world" in asked["data"],
        _regimes(asked),
        cohorts,
    )
    external = set(asked.get("external", {}))
    told: dict[str, dict[str, Any]] = {}

    def unit(point: Point) -> dict[str, Any]:
        for name in cohorts.keys() - told.keys():
            told[name] = _told(cohorts[name], folder, name in external)
        return _unit(point, asked, {**resolved, "cohorts": told}, references.regimes, cohorts, base)

    units = [(point, unit(point)) for point in points]
    own = list(units)
    for name, audit in resolved["audits"].items():
        units += [(point, unit(point)) for point in references.add(name, audit, own)]
    every = [unit for _, unit in units]
    regimes.refuse_unnamed(every, references.regimes)
    _try_building(every)
    named, placed = _named(_batched(every, driver.batched), calibration)
    for audit in resolved["audits"].values() if placed else ():
        if severities.wants(audit["settings"]):
            audit["settings"]["severities"] = placed["file"]
    return {
        "cohorts": {name: told[name] for name in cohorts},
        "references": references.added,
        "severities": placed,
        "notes": [*_rows_told(cohorts, list(asked.get("cohorts", {}))), *references.notes],
        "units": named,
    }


def _unit(
    point: Point,
    asked: Mapping[str, Any],
    resolved: Mapping[str, Any],
    tables: Mapping[str, Mapping[str, Any]],
    cohorts: Mapping[str, Cohort],
    base: Path,
) -> dict[str, Any]:
    """What a point of a grid means, every default filled in; `start` and `references` are still names of regimes."""
    table = tables[point.regime]
    method, cohort = table.get("method", PLAIN), point.settings.get("cohort", table.get("cohort", DATA))
    training = [name for name, told in resolved["cohorts"].items() if not told["external"]]
    if cohort not in training:
        where = point.where if "cohort" in point.settings else f"[regimes.{point.regime}]"
        raise SettingError(f"{where} cohort = {cohort!r} is no training set; {suggest(str(cohort), training)}")
    settings = regimes.training(point, table, asked.get("train", {}))
    settings |= {"seed": point.seed, **({"regime": point.regime} if method == PLAIN else {})}
    start, references = regimes.needed(point.regime, table, tables)
    return {
        "architecture": point.architecture,
        "regime": point.regime,
        "seed": point.seed,
        "cohort": cohort,
        "method": method,
        "start": start,
        "references": references,
        "axes": {key: point.settings[key] for key in point.axes},
        "load": _loading(
            point.architecture, asked["architectures"][point.architecture], _classes(settings, cohorts[cohort]), base
        ),
        "train": settings,
        "extract": {key: resolved["extract"][key] for key in ("batch", "chunk")},
        "threads": resolved["engine_settings"].get("threads", 1),
        "rows": resolved["cohorts"][cohort]["hash"],
        "batched": [],
    }


def _classes(settings: Mapping[str, Any], cohort: Cohort) -> tuple[Any, ...]:
    """What the outputs stand for: the label's classes, or the levels of the attribute that is the target."""
    target = settings.get("target")
    if not target:
        return cohort.classes
    if target not in cohort.attributes:
        raise SettingError(f"target = {target!r} is no attribute of the data; {suggest(str(target), cohort.attributes)}")
    attribute = cohort.attribute(target)
    if attribute.kind == "continuous":
        raise SettingError(f"target = {target!r} is continuous, and a classifier learns classes: give bins in [data]")
    return attribute.levels


def _loading(name: str, table: Mapping[str, Any], values: tuple[Any, ...], base: Path) -> dict[str, Any]:
    """Full settings of Classifier.load, `model` being the specification."""
    if "model" not in table:
        raise SettingError(f"[architectures.{name}] has no model: timm:NAME, torchvision:NAME, … or package.module:factory")
    usual = {key: value for key, value in families.settings_of(Classifier.load).items() if key not in LOADING}
    classes = {} if "num_classes" in table else {"num_classes": len(values), "classes": list(values)}
    found = {**usual, **classes, **table}
    if found["checkpoint"] is not None:
        found["checkpoint"] = str(base / found["checkpoint"])
    return found


def load(settings: Mapping[str, Any], seed: int) -> Classifier:
    """The classifier that a unit starts from; its random weights belong to the seed."""
    given = dict(settings)
    return Classifier.load(given.pop("model"), **given, rng=task_rng(seed, "starting weights"))


def _try_building(units: list[dict[str, Any]]) -> None:
    """Refuse a network that cannot be built before anything runs."""
    for unit in {_hash(unit["load"]): unit for unit in units}.values():
        settings, where = unit["load"], f"[architectures.{unit['architecture']}]"
        usual = families.settings_of(Classifier.load)
        extra = [key for key in settings if key not in usual and key != "model"]
        if extra and (factory := _factory(settings["model"])) is not None:
            _refuse_unknown(extra, [*(set(usual) - set(LOADING)), "model", *factory], where)
        try:
            load(settings, unit["seed"])
        except DataError as error:
            raise SettingError(f"{where}: {error}") from error


def _factory(spec: str) -> list[str] | None:
    """Names of a factory's own settings; None where the network is a library's, or takes any."""
    home, _, name = spec.partition(":")
    if "." not in home:
        return None
    factory = getattr(families.member("architectures", home), name, None)
    if factory is None:
        return None
    parameters = inspect.signature(factory).parameters.values()
    return None if any(p.kind is p.VAR_KEYWORD for p in parameters) else [p.name for p in parameters]


def _batched(units: list[dict[str, Any]], asked: bool | str) -> list[dict[str, Any]]:
    """Mark the units that train as one batched model; each names all members, because they may change its last bits."""
    if asked is False:
        return units
    from rightreasons.models import batched  # only a batched study needs it

    groups: dict[str, list[dict[str, Any]]] = {}
    for unit in units:
        module = None if unit["method"] == PLAIN else families.member("mitigations", unit["method"])
        varies = batched.VARIES if module is None else (*getattr(module, "TOGETHER", ()), "seed")
        if hasattr(module, "together") or module is None:
            same = {**unit, "axes": {}, "seed": 0, "train": {k: v for k, v in unit["train"].items() if k not in varies}}
            groups.setdefault(_hash(same), []).append(unit)
    for members in groups.values():
        first = members[0]
        if first["start"] or "stopping" in first["train"] or len(members) < 2:
            continue
        classifier = load(first["load"], first["seed"])
        why_not = batched.refusal(classifier)
        if why_not and asked is True:
            raise SettingError(f"[engine_settings] batched = true, but {first['architecture']} cannot be: {why_not}")
        if not why_not and (asked is True or batched.is_small(classifier)):
            told = sorted(_hash({k: v for k, v in unit.items() if k != "batched"}) for unit in members)
            for unit in members:
                unit["batched"] = told
    return units


def _named(units: list[dict[str, Any]], calibration: dict[str, Any] | None) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """Units by id, those first that others need, and the calibration with the ids of its models.

    An id is a readable name and a hash of everything that decides the unit's numbers.
    """
    needs: dict[str, set[str]] = {}
    for unit in units:
        needs.setdefault(unit["regime"], set()).update(filter(None, (unit["start"], *unit["references"].values())))
        if calibration and severities.wants(unit["train"]):
            needs[unit["regime"]] |= severities.regimes_of(calibration)
    place = {regime: number for number, regime in enumerate(regimes.in_order(needs))}
    named: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for unit in sorted(units, key=lambda unit: place[unit["regime"]]):
        full = {
            **unit,
            "start": regimes.start_of(unit, named) if unit["start"] else "",
            "references": regimes.references_of(unit, named),
        }
        if calibration and severities.wants(unit["train"]):
            full["train"] = {**unit["train"], "severities": severities.placed(calibration, named)["file"]}
        name, content = _identity(full)
        named.setdefault((unit["regime"], unit["architecture"]), {})[name] = {**full, "hash": content}
    placed = severities.placed(calibration, named) if calibration else {}
    return dict(sorted((name, unit) for part in named.values() for name, unit in part.items())), placed


def _identity(unit: Mapping[str, Any]) -> tuple[str, str]:
    """Name and hash. What a unit is called decides nothing; the ids of the models that it needs do."""
    settings = "".join(f"-{key}={value}" for key, value in unit["axes"].items())
    names = ("architecture", "regime", "cohort", "axes")
    deciding = {key: value for key, value in unit.items() if key not in names and (value or key not in ("start", "references"))}
    weights = unit["load"]["checkpoint"]
    content = "" if weights is None else hashlib.blake2b(Path(weights).read_bytes(), digest_size=16).hexdigest()
    found = _hash({**deciding, "format": FORMAT, "load": {**unit["load"], "checkpoint": content}})
    name = f"{unit['architecture']}-{unit['regime']}-s{unit['seed']}{settings}-{found[:8]}"
    return "".join(c if c.isalnum() or c in "-_=." else "_" for c in name), found


def code_version() -> dict[str, str]:
    """The package's version and, where it is run from a repository of its own, the commit."""
    home = Path(rightreasons.__file__).parent
    try:
        # `ls-files` first: a package inside some other project's environment has no commit of its own.
        subprocess.run(["git", "ls-files", "--error-unmatch", "__init__.py"], cwd=home, capture_output=True, check=True)
        told = subprocess.run(["git", "rev-parse", "HEAD"], cwd=home, capture_output=True, check=True, text=True)
    except (OSError, subprocess.CalledProcessError):
        return {"version": rightreasons.__version__, "commit": ""}
    return {"version": rightreasons.__version__, "commit": told.stdout.strip()}


def _hash(data: Any) -> str:
    return hashlib.blake2b(json.dumps(data, sort_keys=True).encode(), digest_size=16).hexdigest()
