"""The study of models that are trained here: a study.toml with [architectures] and [[runs]]."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rightreasons import families
from rightreasons.errors import SettingError
from rightreasons.extraction import extract, refuse_ragged_chunks
from rightreasons.families import refuse_unknown, suggest
from rightreasons.study import cohorts, engines
from rightreasons.study.file import Audit, Regime, StudyFile, naming, parsed, read_text
from rightreasons.study.folder import Study
from rightreasons.study.keywords import full, refuse_wrong_types, refuse_wrong_values
from rightreasons.study.performance import performance
from rightreasons.study.plan import DATA, PLAIN, Driver
from rightreasons.study.planner import Scheme, axes_of, save_plan
from rightreasons.study.references import planned_audit, with_groups
from rightreasons.study.selection import with_truth
from rightreasons.study.trainings import Point

NOT_EXTRACTION = ("out", "training", "needs", "device", "threads", "seed")  # keywords of extract() that a plan does not set


def plan(source: Path, folder: Path, *, save: bool = True) -> Study:
    """The study of models that are trained here, from a study.toml or from the folder of a study."""
    if source.is_dir():
        known = Study.open(source).plan
        text, base, page = read_text(source / "study.toml"), Path(known.base), {"depth": known.depth, "command": known.command}
    else:
        text, base, page = read_text(source), source.parent.absolute(), {}
    file = parsed(text, source, base)
    name = file.name or (source.stem if source.suffix == ".toml" else folder.name)
    with naming(source):
        return plan_runs(file, folder, text, {"name": name, "base": str(base), **page}, save=save)


def plan_runs(file: StudyFile, folder: Path, text: str, named: Mapping[str, str], *, save: bool = True) -> Study:
    """The study of a checked file with [[runs]].

    Parameters
    ----------
    text : the file as it is kept in the study's folder
    named : fields of the plan that are no numbers: name, base, and what the page says of the command
    """
    if file.model is not None:
        raise SettingError("the study.toml has [model], a model that is there already: run rightreasons audit STUDY.toml")
    scheme = scheme_of(file, folder)
    references = scheme.references()
    units, calibrations = scheme.units(scheme.drafts(references))
    notes = [*cohorts.described(scheme.rows, list(file.cohorts)), *references.notes]
    study = Study(folder, scheme.plan(units, calibrations, references, notes=notes, **named))
    if save:
        save_plan(study, scheme.rows, text)
    return study


def scheme_of(file: StudyFile, folder: Path) -> Scheme:
    """The models and settings that a file names, resolved against its rows."""
    data = cohorts.with_roles(cohorts.data_of(file, folder), file.seed, trains=True)
    inside = {DATA: data, **cohorts.training_sets(file, data, folder)}
    outside = cohorts.external_cohorts(file, folder)
    rows = with_groups(file.audits or {}, {**inside, **outside})
    regimes = dict(file.regimes) or {PLAIN: Regime()}
    points = points_of(file, regimes)
    tables = {"groups": Audit()} if file.audits is None else file.audits
    tables = with_truth(tables, None if file.data is None else file.data.truth, rows[DATA])
    driver, engine_settings = engine_of(file)
    return Scheme(
        file=file,
        folder=folder,
        rows=rows,
        external=set(outside),
        points=points,
        regimes=regimes,
        audits={name: planned_audit(name, table, rows[DATA], axes_of(points)) for name, table in tables.items()},
        driver=driver,
        engine_settings=engine_settings,
        threads=engine_settings.get("threads", 1),
        extraction=_extraction(file),
        performance=full(file.performance, performance, where="[performance]", without=("seed",)),
    )


def _extraction(file: StudyFile) -> dict[str, Any]:
    """Full settings of [extract]."""
    settings = full(file.extract, extract, where="[extract]", without=NOT_EXTRACTION)
    refuse_ragged_chunks(settings["batch"], settings["chunk"])
    return settings


def default_folder(source: Path) -> Path:
    """Where a study goes when nobody says: `rightreasons-<name>` in the current folder."""
    if source.is_dir():
        return source
    name = parsed(read_text(source), source).name or source.stem
    if Path(name).name != name:
        raise SettingError(f"{source} name is {name!r}; expected a name without folders, or say --out")
    return Path(f"rightreasons-{name}")


def engine_of(file: StudyFile) -> tuple[Driver, dict[str, Any]]:
    """[engine_settings]: those of the driver, and those of the engine."""
    own = {}
    for key, value in file.engine_settings.items():
        if key in Driver.model_fields:
            own[key] = value
    others = {}
    for key, value in file.engine_settings.items():
        if key not in own:
            others[key] = value
    engine = families.member("study.engines", file.engine).Engine
    refuse_unknown(others, [*families.settings_of(engine), *Driver.model_fields], "[engine_settings]")
    refuse_wrong_types(others, engine, where="[engine_settings]")
    return refuse_wrong_values(Driver, own, "[engine_settings]"), engines.settings_of(file.engine, others)


def points_of(file: StudyFile, regimes: Mapping[str, Regime]) -> list[Point]:
    """Every combination of the lists of every grid; what is no list is the same for all."""
    tables: dict[str, Mapping[str, Any]] = {"architecture": file.architectures, "regime": regimes}
    points = []
    for number, grid in enumerate(file.runs):
        where = f"[[runs]] {number + 1}"
        whole = {**{key: list(table) for key, table in tables.items()}, "seed": file.seed, **grid}
        lists = {key: _values(key, value) for key, value in whole.items()}
        for key, table in tables.items():
            for name in lists[key]:
                if not isinstance(name, str) or name not in table:
                    raise SettingError(f"{where}: no {key} {name!r}; {suggest(str(name), table)}")
        for seed in lists["seed"]:
            if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
                raise SettingError(f"{where} seed is {seed!r}; expected a whole number from 0, or a list of them")
        axes = tuple(key for key in sorted(grid) if len(lists[key]) > 1 and key not in (*tables, "seed"))
        for values in itertools.product(*lists.values()):
            point = dict(zip(lists, values, strict=True))
            points.append(Point(point.pop("architecture"), point.pop("regime"), point.pop("seed"), point, axes, where))
    return points


def _values(key: str, value: Any) -> list[Any]:
    """The values of an axis; `scale = {number = 25, largest = 3.0}` is a sweep of gradient scales around 0."""
    if key == "scale" and isinstance(value, Mapping):
        scales = families.member("mitigations", "gradient_scaling").scales
        if value and value.keys() <= families.settings_of(scales).keys():
            return [float(f"{scale:.3g}") for scale in scales(**value)]
    if value == []:
        raise SettingError(f"[[runs]] {key} is an empty list, and so nothing would run: give a value, or several")
    return value if isinstance(value, list) else [value]
