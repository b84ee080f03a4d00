"""A study.toml → the plan of a study: cohorts, audits, and units with every setting resolved.

The id of a unit changes when its numbers could, so that nothing is mistaken for what another plan made. This file plans models
that are trained here; `brought.py` plans, with the same `Planner`, the one that was trained elsewhere.
"""

from __future__ import annotations

import hashlib
import inspect
import itertools
import json
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import rightreasons
from rightreasons import families, measurements
from rightreasons.data.cohort import Cohort
from rightreasons.errors import DataError, SettingError
from rightreasons.extraction import extract
from rightreasons.families import refuse_unknown, suggest
from rightreasons.files import write, write_json
from rightreasons.models import batched
from rightreasons.models.classifier import Classifier
from rightreasons.stats.resampling import task_rng
from rightreasons.study import cohorts, curves, engines, over_models, severities
from rightreasons.study.file import Audit, Regime, StudyFile, TrainingSet, parsed, read_text
from rightreasons.study.folder import PLAN, Study
from rightreasons.study.keywords import full, refuse_wrong_values
from rightreasons.study.performance import performance
from rightreasons.study.plan import BROUGHT, DATA, FORMAT, PLAIN, AuditPlan, Calibration, CohortPlan, Driver, Plan, Unit
from rightreasons.study.references import References, planned_audit, with_groups
from rightreasons.study.trainings import (
    DECODING,
    Draft,
    Point,
    in_order,
    needed_regimes,
    references_of,
    refuse_unnamed,
    start_of,
    training_settings,
)

LOADING = ("rng", "spec", "verify")  # keywords of Classifier.load that a plan does not set
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
    return plan_runs(file, folder, text, {"name": name, "base": str(base), **page}, save=save)


def plan_runs(file: StudyFile, folder: Path, text: str, named: Mapping[str, str], *, save: bool = True) -> Study:
    """The study of a file with [[runs]].

    Parameters
    ----------
    text : the file as it is kept in the study's folder
    named : fields of the plan that are no numbers: name, base, and what the page says of the command
    """
    if file.model is not None:
        raise SettingError("the study.toml has [model], a model that is there already: run rightreasons audit STUDY.toml")
    data = cohorts.with_roles(cohorts.data_of(file, folder), file.seed, trains=True)
    inside = {DATA: data, **cohorts.training_sets(file, data, folder)}
    outside = cohorts.external_cohorts(file, folder)
    rows = with_groups(file.audits or {}, {**inside, **outside})
    planner = Planner(file, folder, rows, set(outside))
    study = Study(folder, planner.plan(named))
    if save:
        save_plan(study, rows, text)
    return study


def save_plan(study: Study, rows: Mapping[str, Cohort], text: str) -> None:
    """Write the cohorts, study.toml and, last, plan.json."""
    for name, cohort in rows.items():
        cohort.save(study.folder / "cohorts" / f"{name}.parquet")
    write(study.folder / "study.toml", text)
    write_json(study.folder / PLAN, study.plan.model_dump(mode="json"))


def default_folder(source: Path) -> Path:
    """Where a study goes when nobody says: `rightreasons-<name>` in the current folder."""
    if source.is_dir():
        return source
    name = parsed(read_text(source), source).name or source.stem
    if Path(name).name != name:
        raise SettingError(f"{source} name is {name!r}; expected is a name without folders, or say --out")
    return Path(f"rightreasons-{name}")


def code_version() -> dict[str, str]:
    """The package's version and, where it is run from a repository of its own, the commit."""
    home = Path(rightreasons.__file__).parent
    try:
        # `ls-files` first: a package inside some other project's environment has no commit of its own.
        subprocess.run(["git", "ls-files", "--error-unmatch", "__init__.py"], cwd=home, capture_output=True, check=True)
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=home, capture_output=True, check=True, text=True)
    except (OSError, subprocess.CalledProcessError):
        return {"version": rightreasons.__version__, "commit": ""}
    return {"version": rightreasons.__version__, "commit": head.stdout.strip()}


def hash_of(data: Any) -> str:
    return hashlib.blake2b(json.dumps(data, sort_keys=True, default=str).encode(), digest_size=16).hexdigest()


# ---- the plan ------------------------------------------------------------------------------------------------------------


@dataclass
class Planner:
    """A file resolved against its rows.

    Attributes
    ----------
    rows : cohorts by name, the data first; training sets for reference models join them
    external : names of those from elsewhere
    """

    file: StudyFile
    folder: Path
    rows: dict[str, Cohort]
    external: set[str]
    _cohorts: dict[str, CohortPlan] = field(default_factory=dict)

    def plan(self, named: Mapping[str, str]) -> Plan:
        """The whole plan; `named` are its fields that decide no number."""
        points = self.points()
        audits = self.audits(_axes(points))
        references = self.references()
        drafts = self.drafts(points, audits, references)
        units, calibrations = self.units(drafts, audits)
        return Plan(
            **named,
            seed=self.file.seed,
            code=code_version(),
            engine=self.file.engine,
            engine_settings=self.engine_settings,
            driver=self.driver,
            decoding={key: self.file.train.get(key) for key in DECODING},
            extract=self.extraction,
            performance=self.performance,
            axes=_axes(points),
            audits=audits,
            curves={name: curves.read(name, table, _axes(points)) for name, table in self.file.curves.items()},
            **over_models.read(self.file, list(self.regimes)),
            cohorts={name: self.cohort(name) for name in self.rows},
            references=references.added,
            severities=calibrations,
            notes=self.notes(references),
            units=units,
            measured=hash_of(self.deciding(audits)),
        )

    # ---- settings of the whole study -----------------------------------------------------------------------------------

    @cached_property
    def driver(self) -> Driver:
        own = {key: value for key, value in self.file.engine_settings.items() if key in Driver.model_fields}
        return refuse_wrong_values(Driver, own, "[engine_settings]")

    @cached_property
    def engine_settings(self) -> dict[str, Any]:
        engine = families.member("study.engines", self.file.engine).Engine
        given = {key: value for key, value in self.file.engine_settings.items() if key not in Driver.model_fields}
        refuse_unknown(given, [*families.settings_of(engine), *Driver.model_fields], "[engine_settings]")
        return engines.settings_of(self.file.engine, given)

    @property
    def threads(self) -> int | None:
        """Threads of every training, which change its last bits."""
        return self.engine_settings.get("threads", 1)

    @cached_property
    def extraction(self) -> dict[str, Any]:
        return full(self.file.extract, extract, where="[extract]", without=NOT_EXTRACTION)

    @cached_property
    def performance(self) -> dict[str, Any]:
        return full(self.file.performance, performance, where="[performance]", without=("seed",))

    @cached_property
    def regimes(self) -> dict[str, Regime]:
        """The ways to train that the file names."""
        return dict(self.file.regimes) or {PLAIN: Regime()}

    def deciding(self, audits: Mapping[str, AuditPlan]) -> list[Any]:
        """What decides a measurement beside the unit itself."""
        outside = {name: self.cohort(name).hash for name in self.rows if name in self.external}
        audited = {name: audit.model_dump() for name, audit in audits.items()}
        return [measurements.FORMAT, self.file.seed, self.performance, audited, outside]

    def cohort(self, name: str) -> CohortPlan:
        """A cohort as the plan describes it; its images are hashed once."""
        if name not in self._cohorts:
            self._cohorts[name] = cohorts.planned(self.rows[name], self.folder, name in self.external)
        return self._cohorts[name]

    def audits(self, axes: Mapping[str, Any]) -> dict[str, AuditPlan]:
        tables = {"groups": Audit()} if self.file.audits is None else self.file.audits
        return {name: planned_audit(name, table, self.rows[DATA], axes) for name, table in tables.items()}

    def notes(self, references: References) -> list[str]:
        """What the plan has made of the file, in words."""
        return [*cohorts.described(self.rows, list(self.file.cohorts)), *references.notes]

    # ---- units ---------------------------------------------------------------------------------------------------------

    def points(self) -> list[Point]:
        """Every combination of the lists of every grid; what is no list is the same for all."""
        tables: dict[str, Mapping[str, Any]] = {"architecture": self.file.architectures, "regime": self.regimes}
        found = []
        for number, grid in enumerate(self.file.runs):
            where = f"[[runs]] {number + 1}"
            whole = {**{key: list(table) for key, table in tables.items()}, "seed": self.file.seed, **grid}
            lists = {key: _values(key, value) for key, value in whole.items()}
            for key, table in tables.items():
                for name in lists[key]:
                    if name not in table:
                        raise SettingError(f"{where}: no {key} {name!r}; {suggest(str(name), table)}")
            for seed in lists["seed"]:
                if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
                    raise SettingError(f"{where} seed is {seed!r}; expected is a whole number from 0, or a list of them")
            axes = tuple(key for key in sorted(grid) if len(lists[key]) > 1 and key not in (*tables, "seed"))
            for values in itertools.product(*lists.values()):
                point = dict(zip(lists, values, strict=True))
                found.append(Point(point.pop("architecture"), point.pop("regime"), point.pop("seed"), point, axes, where))
        return found

    def references(self) -> References:
        """What is added for audits that compare with other models."""
        is_planted = self.file.data is not None and self.file.data.world is not None
        return References(self.file.references, self.rows[DATA], self.training_set, is_planted, dict(self.regimes), self.rows)

    def training_set(self, name: str, way: TrainingSet) -> Cohort:
        return cohorts.training_set(name, way, self.rows[DATA], self.folder, self.file.seed)

    def drafts(self, points: list[Point], audits: Mapping[str, AuditPlan], references: References) -> list[Draft]:
        """The units of the grid and those that audits ask for, whose roles are filled in."""
        units = [(point, self.draft(point, references.regimes)) for point in points]
        own = list(units)
        for name, audit in audits.items():
            for point in references.add(name, audit, own):
                units.append((point, self.draft(point, references.regimes)))
        drafts = [draft for _, draft in units]
        refuse_unnamed(drafts, references.regimes)
        _try_building(drafts)
        return self.batched(drafts)

    def draft(self, point: Point, regimes: Mapping[str, Regime]) -> Draft:
        """What a point of a grid means, every default filled in."""
        regime = regimes[point.regime]
        cohort = str(point.settings.get("cohort", regime.cohort))
        training = [name for name in self.rows if name not in self.external]
        if cohort not in training:
            where = point.where if "cohort" in point.settings else f"[regimes.{point.regime}]"
            raise SettingError(f"{where} cohort = {cohort!r} is no training set; {suggest(cohort, training)}")
        settings = training_settings(point, regime, self.file.train)
        settings["seed"] = point.seed
        if regime.method == PLAIN:
            settings["regime"] = self.regime_of(point)
        start, references = needed_regimes(point.regime, regime, regimes)
        values = outputs_of(settings.get("target"), self.rows[cohort])
        return Draft(
            architecture=point.architecture,
            regime=point.regime,
            seed=point.seed,
            cohort=cohort,
            method=regime.method,
            start=start,
            references=references,
            axes={key: point.settings[key] for key in point.axes},
            load=self.loading(point, values),
            train=settings,
            extract={key: self.extraction[key] for key in ("batch", "chunk")},
            threads=self.threads,
            rows=self.cohort(cohort).hash,
            weights=self.weights,
        )

    weights = "given"  # see plan.Unit

    def regime_of(self, point: Point) -> str:
        """What the card of a model says of how it was trained."""
        return point.regime

    def loading(self, point: Point, values: tuple[Any, ...]) -> dict[str, Any]:
        """Full settings of Classifier.load, `model` being the specification."""
        name, table = point.architecture, self.file.architectures[point.architecture]
        if table.model is None:
            raise SettingError(f"[architectures.{name}] has no model: timm:NAME, torchvision:NAME, … or package.module:factory")
        usual = {key: value for key, value in families.settings_of(Classifier.load).items() if key not in LOADING}
        classes = {} if "num_classes" in table.keywords else {"num_classes": len(values), "classes": list(values)}
        return {**usual, **classes, "model": table.model, **table.keywords}

    def batched(self, drafts: list[Draft]) -> list[Draft]:
        """Mark the units that train as one batched model; each names all members, because they may change its last bits."""
        if self.driver.batched is False:
            return drafts
        groups: dict[str, list[int]] = {}
        for position, draft in enumerate(drafts):
            if (kind := _batched_kind(draft)) is not None:
                groups.setdefault(kind, []).append(position)
        found = list(drafts)
        for members in groups.values():
            if self._trains_as_one([drafts[k] for k in members]):
                hashes = sorted(_draft_hash(drafts[k]) for k in members)
                for k in members:
                    found[k] = replace(drafts[k], batched=hashes)
        return found

    def _trains_as_one(self, members: list[Draft]) -> bool:
        first = members[0]
        if (first.start and first.weights == "given") or "stopping" in first.train or len(members) < 2:
            return False
        network = self.network(first)
        reason = batched.refusal(network)
        if self.driver.batched is True:
            if reason:
                raise SettingError(f"[engine_settings] batched = true, but {first.architecture} cannot be: {reason}")
            return True
        return not reason and batched.is_small(network)

    def network(self, draft: Draft) -> Classifier:
        """The network that a unit trains."""
        return load(draft.load, draft.seed)

    def units(self, drafts: list[Draft], audits: Mapping[str, AuditPlan]) -> tuple[dict[str, Unit], dict[str, Calibration]]:
        """Units by id, those first that others need, and the calibration of severities with the ids of its models."""
        table = self.file.severities
        calibration = None if table is None else severities.asked(table, self.points())
        needs: dict[str, set[str]] = {}
        for draft in drafts:
            needs.setdefault(draft.regime, set()).update(filter(None, (draft.start, *draft.references.values())))
            if calibration is not None and severities.are_wanted(draft.train):
                needs[draft.regime] |= calibration.regimes
        order = {regime: number for number, regime in enumerate(in_order(needs))}
        named: dict[tuple[str, str], dict[str, Draft]] = {}
        units: dict[str, Unit] = {}
        for draft in sorted(drafts, key=lambda draft: order[draft.regime]):
            full_draft = draft
            if calibration is not None and severities.are_wanted(draft.train):
                full_draft = replace(draft, train={**draft.train, "severities": calibration.placed(named).file})
            start = start_of(draft, named) if draft.start else ""
            name, unit = self.identified(full_draft, start, references_of(draft, named))
            named.setdefault((draft.regime, draft.architecture), {})[name] = full_draft
            units[name] = unit
        placed = {} if calibration is None else {"": calibration.placed(named)}
        for audit in audits.values():
            if placed and severities.are_wanted(audit.settings):
                audit.settings["severities"] = placed[""].file
        return dict(sorted(units.items())), placed

    def identified(self, draft: Draft, start: str, references: dict[str, list[str]]) -> tuple[str, Unit]:
        """A unit with its id: a readable name and a hash of everything that decides its numbers."""
        settings = "".join(f"-{key}={value}" for key, value in draft.axes.items())
        content = _content_hash(draft, start, references)
        name = f"{draft.architecture}-{draft.regime}-s{draft.seed}{settings}-{content[:8]}"
        unit = Unit(**{**asdict(draft), "start": start, "references": references, "hash": content})
        return "".join(c if c.isalnum() or c in "-_=." else "_" for c in name), unit


# ---- what the planner uses -----------------------------------------------------------------------------------------------


def load(settings: Mapping[str, Any], seed: int) -> Classifier:
    """The classifier that a unit starts from; its random weights belong to the seed."""
    given = dict(settings)
    return Classifier.load(given.pop("model"), **given, rng=task_rng(seed, "starting weights"))


def outputs_of(target: str | None, cohort: Cohort) -> tuple[Any, ...]:
    """What the outputs stand for: the label's classes, or the levels of the attribute that is the target."""
    if not target:
        return cohort.classes
    if target not in cohort.attributes:
        raise SettingError(f"target = {target!r} is no attribute of the data; {suggest(str(target), cohort.attributes)}")
    attribute = cohort.attribute(target)
    if attribute.kind == "continuous":
        raise SettingError(f"target = {target!r} is continuous, and a classifier learns classes: give bins in [data]")
    return attribute.levels


def _axes(points: list[Point]) -> dict[str, list[Any]]:
    """The settings in which units differ, each with its values in the order of the file."""
    found: dict[str, list[Any]] = {}
    for point in points:
        for key in point.axes:
            values = found.setdefault(key, [])
            if point.settings[key] not in values:
                values.append(point.settings[key])
    return found


def _values(key: str, value: Any) -> list[Any]:
    """The values of an axis; `scale = {number = 25, largest = 3.0}` is a sweep of gradient scales around 0."""
    if key == "scale" and isinstance(value, Mapping):
        scales = families.member("mitigations", "gradient_scaling").scales
        if value and value.keys() <= families.settings_of(scales).keys():
            return [float(f"{scale:.3g}") for scale in scales(**value)]
    return value if isinstance(value, list) else [value]


def _try_building(drafts: list[Draft]) -> None:
    """Refuse a network that cannot be built before anything runs."""
    usual = families.settings_of(Classifier.load)
    for draft in {hash_of(draft.load): draft for draft in drafts if draft.load}.values():
        where = f"[architectures.{draft.architecture}]"
        extra = [key for key in draft.load if key not in usual and key != "model"]
        factory = _factory_settings(draft.load["model"]) if extra else None
        if factory is not None:
            refuse_unknown(extra, [*(set(usual) - set(LOADING)), "model", *factory], where)
        try:
            load(draft.load, draft.seed)
        except DataError as error:
            raise SettingError(f"{where}: {error}") from error


def _factory_settings(spec: str) -> list[str] | None:
    """Names of a factory's own settings; None where the network is a library's, or takes any."""
    home, _, name = spec.partition(":")
    if "." not in home:
        return None
    factory = getattr(families.member("architectures", home), name, None)
    if factory is None:
        return None
    parameters = inspect.signature(factory).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return [parameter.name for parameter in parameters]


def _batched_kind(draft: Draft) -> str | None:
    """Units of one kind may train as one model; None where the method cannot."""
    if draft.method == BROUGHT:
        return None
    if draft.method == PLAIN:
        varies: tuple[str, ...] = batched.VARIES
    else:
        module = families.member("mitigations", draft.method)
        if not hasattr(module, "together"):
            return None
        varies = (*getattr(module, "TOGETHER", ()), "seed")
    same = {key: value for key, value in draft.train.items() if key not in varies}
    return hash_of({**_as_planned(draft), "axes": {}, "seed": 0, "train": same})


def _as_planned(draft: Draft) -> dict[str, Any]:
    """A draft as plain data; where its network starts from another's is told only where one was brought."""
    fields = asdict(draft)
    if draft.weights == "given":
        fields.pop("weights")
    return fields


def _draft_hash(draft: Draft) -> str:
    return hash_of({key: value for key, value in _as_planned(draft).items() if key != "batched"})


def _content_hash(draft: Draft, start: str, references: Mapping[str, list[str]]) -> str:
    """Of all that decides a unit's numbers. What it is called decides nothing; the ids of the models that it needs do."""
    deciding = {k: v for k, v in _as_planned(draft).items() if k not in ("architecture", "regime", "cohort", "axes")}
    for key, value in (("start", start), ("references", dict(references))):
        deciding.pop(key)
        if value:
            deciding[key] = value
    weights = draft.load.get("checkpoint")
    content = "" if weights is None else hashlib.blake2b(Path(weights).read_bytes(), digest_size=16).hexdigest()
    return hash_of({**deciding, "format": FORMAT, "load": {**draft.load, "checkpoint": content}})
