"""A scheme of models → the plan of a study: the models that audits ask for join it, and every unit gets an id.

The id of a unit changes when its numbers could, so that nothing is mistaken for what another plan made. `runs.py` makes the
scheme of models that are trained here, `brought.py` that of a model that was trained elsewhere.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import rightreasons
from rightreasons import families, measurements
from rightreasons.data.cohort import Cohort
from rightreasons.errors import DataError, SettingError
from rightreasons.families import refuse_unknown, suggest
from rightreasons.files import write, write_json
from rightreasons.findings import file_name
from rightreasons.models import batched
from rightreasons.models.classifier import Classifier
from rightreasons.stats.resampling import task_rng
from rightreasons.study import cohorts, curves, over_models, severities
from rightreasons.study.file import Regime, StudyFile, TrainingSet
from rightreasons.study.folder import PLAN, Study
from rightreasons.study.keywords import refuse_wrong_types
from rightreasons.study.plan import BROUGHT, DATA, FORMAT, PLAIN, AuditPlan, Calibration, CohortPlan, Driver, Plan, Unit
from rightreasons.study.references import References
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

LOADING = ("rng", "spec", "verify", "trust")  # keywords of Classifier.load that a plan does not set


@dataclass(frozen=True)
class BroughtNetwork:
    """The network that every unit of a scheme has, where a model was brought.

    Attributes
    ----------
    unit : the id of the brought model's own unit
    weights : what the trainings of other units begin with, see `plan.Unit`
    refusal : audit → why nothing is trained for it; empty where the audit itself will say
    compared : unit → fingerprint of the models that are there already to compare with
    """

    classifier: Classifier
    unit: str
    weights: str
    refusal: Mapping[str, str]
    compared: Mapping[str, str]


@dataclass
class Scheme:
    """The models of a study before audits have asked for more, and the settings that all of them share.

    Attributes
    ----------
    rows : cohorts by name, the data first; training sets for reference models join them
    external : names of those from elsewhere
    points : what is known of every unit; `regimes` are their ways to train
    threads : of every training, which change its last bits
    """

    file: StudyFile
    folder: Path
    rows: dict[str, Cohort]
    external: set[str]
    points: list[Point]
    regimes: dict[str, Regime]
    audits: dict[str, AuditPlan]
    driver: Driver
    engine_settings: dict[str, Any]
    threads: int | None
    extraction: dict[str, Any]
    performance: dict[str, Any]
    brought: BroughtNetwork | None = None
    _cohorts: dict[str, CohortPlan] = field(default_factory=dict)

    def cohort(self, name: str) -> CohortPlan:
        """A cohort as the plan describes it; its images are hashed once."""
        if name not in self._cohorts:
            self._cohorts[name] = cohorts.planned(self.rows[name], self.folder, name in self.external)
        return self._cohorts[name]

    # ---- the models that audits ask for --------------------------------------------------------------------------------

    def references(self) -> References:
        """What is added for audits that compare with other models."""
        is_planted = self.brought is None and self.file.data is not None and self.file.data.world is not None
        return References(
            self.file.references,
            self.rows[DATA],
            self._training_set,
            is_planted,
            dict(self.regimes),
            self.rows,
            start="" if self.brought is None else BROUGHT,
            refusal={} if self.brought is None else self.brought.refusal,
        )

    def _training_set(self, name: str, way: TrainingSet) -> Cohort:
        return cohorts.training_set(name, way, self.rows[DATA], self.folder, self.file.seed)

    def drafts(self, references: References) -> list[Draft]:
        """The units of the scheme and those that audits ask for, whose roles are filled in."""
        units = [(point, self._draft(point, references.regimes)) for point in self.points]
        own = list(units)
        for name, audit in self.audits.items():
            for point in references.add(name, audit, own):
                units.append((point, self._draft(point, references.regimes)))
        drafts = [draft for _, draft in units]
        refuse_unnamed(drafts, references.regimes)
        _try_building(drafts)
        return self._batched(drafts)

    def _draft(self, point: Point, regimes: Mapping[str, Regime]) -> Draft:
        """What a point means, every default filled in."""
        regime = regimes[point.regime]
        cohort = str(point.settings.get("cohort", regime.cohort))
        training = [name for name in self.rows if name not in self.external]
        if cohort not in training:
            if "cohort" in point.settings:
                where = point.where
            else:
                where = f"[regimes.{point.regime}]"
            raise SettingError(f"{where} cohort = {cohort!r} is no training set; {suggest(cohort, training)}")
        draft = Draft(
            architecture=point.architecture,
            regime=point.regime,
            seed=point.seed,
            cohort=cohort,
            method=regime.method,
            start="",
            references={},
            axes={key: point.settings[key] for key in point.axes},
            load={},
            train={},
            extract={key: self.extraction[key] for key in ("batch", "chunk")},
            threads=self.threads,
            rows=self.cohort(cohort).hash,
        )
        if regime.method == BROUGHT:
            return draft
        start, references = needed_regimes(point.regime, regime, regimes)
        settings = {**training_settings(point, regime, self.file.train), "seed": point.seed}
        if regime.method == PLAIN:
            settings["regime"] = point.regime if self.brought is None else PLAIN
        values = outputs_of(settings.get("target"), self.rows[cohort])
        trained = replace(draft, start=start, references=references, train=settings)
        if self.brought is not None:
            return replace(trained, weights=self.brought.weights)
        return replace(trained, load=self._loading(point, values))

    def _loading(self, point: Point, values: tuple[Any, ...]) -> dict[str, Any]:
        """Full settings of Classifier.load, `model` being the specification."""
        name, table = point.architecture, self.file.architectures[point.architecture]
        if table.model is None:
            raise SettingError(f"[architectures.{name}] has no model: timm:NAME, torchvision:NAME, … or package.module:factory")
        refuse_wrong_types(table.keywords, Classifier.load, where=f"[architectures.{name}]")
        usual = {key: value for key, value in families.settings_of(Classifier.load).items() if key not in LOADING}
        classes = {} if "num_classes" in table.keywords else {"num_classes": len(values), "classes": list(values)}
        return {**usual, **classes, "model": table.model, **table.keywords}

    def _batched(self, drafts: list[Draft]) -> list[Draft]:
        """Mark the units that train as one batched model; each names all members, because they may change its last bits."""
        if self.driver.batched is False:
            return drafts
        groups: dict[str, list[int]] = {}
        for position, draft in enumerate(drafts):
            if (kind := _batched_kind(draft)) is not None:
                groups.setdefault(kind, []).append(position)
        together = list(drafts)
        for members in groups.values():
            if self._trains_as_one([drafts[k] for k in members]):
                hashes = sorted(_draft_hash(drafts[k]) for k in members)
                for k in members:
                    together[k] = replace(drafts[k], batched=hashes)
        return together

    def _trains_as_one(self, members: list[Draft]) -> bool:
        first = members[0]
        if (first.start and first.weights == "given") or "stopping" in first.train or len(members) < 2:
            return False
        if self.brought is None:
            network = load(first.load, first.seed)
        else:
            network = self.brought.classifier
        reason = batched.refusal(network)
        if self.driver.batched is True:
            if reason:
                raise SettingError(f"[engine_settings] batched = true, but {first.architecture} cannot be: {reason}")
            return True
        return not reason and batched.is_small(network)

    # ---- ids -----------------------------------------------------------------------------------------------------------

    def units(self, drafts: list[Draft]) -> tuple[dict[str, Unit], dict[str, Calibration]]:
        """Units by id, those first that others need, and the calibration of severities with the ids of its models."""
        table = self.file.severities
        calibration = None
        if table is not None:
            calibration = severities.asked(table, self.points)
        needs: dict[str, set[str]] = {}
        for draft in drafts:
            needs.setdefault(draft.regime, set()).update(filter(None, (draft.start, *draft.references.values())))
            if calibration is not None and severities.are_wanted(draft.train):
                needs[draft.regime] |= calibration.regimes
        order = {regime: number for number, regime in enumerate(in_order(needs))}
        named: dict[tuple[str, str], dict[str, Draft]] = {}
        units: dict[str, Unit] = {}
        for planned in sorted(drafts, key=lambda draft: order[draft.regime]):
            draft = planned
            if calibration is not None and severities.are_wanted(draft.train):
                draft = replace(planned, train={**planned.train, "severities": calibration.placed(named).file})
            start = ""
            if draft.start:
                start = start_of(draft, named)
            name, unit = self._identified(draft, start, references_of(draft, named))
            named.setdefault((draft.regime, draft.architecture), {})[name] = draft
            units[name] = unit
        if calibration is None:
            placed = {}
        else:
            placed = {"": calibration.placed(named)}
        for audit in self.audits.values():
            if placed and severities.are_wanted(audit.settings):
                audit.settings["severities"] = placed[""].file
        return dict(sorted(units.items())), placed

    def _identified(self, draft: Draft, start: str, references: dict[str, list[str]]) -> tuple[str, Unit]:
        """A unit with its id: a readable name and a hash of everything that decides its numbers.

        Where a model was brought there is one of it, and what it is compared with lies beside it, named by what it is.
        """
        content = _content_hash(draft, start, references)
        unit = Unit(**{**asdict(draft), "start": start, "references": references, "hash": content})
        if self.brought is None:
            settings = "".join(f"-{key}={value}" for key, value in draft.axes.items())
            name = f"{draft.architecture}-{draft.regime}-s{draft.seed}{settings}-{content[:8]}"
            return "".join(c if c.isalnum() or c in "-_=." else "_" for c in name), unit
        if draft.regime == BROUGHT:
            return self.brought.unit, unit.model_copy(update={"place": "."})
        if draft.method == BROUGHT:
            seed = str(draft.seed)
        else:
            seed = f"s{draft.seed}"
        scales = "".join(f"{scale:+g}" for scale in draft.axes.values())
        name = file_name(f"{draft.regime}-{seed}{scales}")
        return name, unit.model_copy(update={"place": f"references/{name}"})

    # ---- the whole -----------------------------------------------------------------------------------------------------

    def plan(self, units: dict[str, Unit], calibrations: dict[str, Calibration], references: References, **named: Any) -> Plan:
        """The plan of all this; `named` are its fields that decide no number."""
        axes = axes_of(self.points)
        return Plan(
            seed=self.file.seed,
            code=code_version(),
            engine=self.file.engine,
            engine_settings=self.engine_settings,
            driver=self.driver,
            decoding={key: self.file.train.get(key) for key in DECODING},
            extract=self.extraction,
            performance=self.performance,
            axes=axes,
            audits=self.audits,
            curves={name: curves.read(name, table, axes) for name, table in self.file.curves.items()},
            **over_models.read(self.file, list(self.regimes)),
            cohorts={name: self.cohort(name) for name in self.rows},
            references=references.added,
            severities=calibrations,
            units=units,
            measured=hash_of(self._deciding()),
            **named,
        )

    def _deciding(self) -> list[Any]:
        """What decides a measurement beside the unit itself."""
        outside = {}
        for name in self.rows:
            if name in self.external:
                outside[name] = self.cohort(name).hash
        audited = {name: audit.model_dump() for name, audit in self.audits.items()}
        deciding = [measurements.FORMAT, self.file.seed, self.performance, audited, outside]
        if self.brought is not None:  # its unit has no id that would change with the model, the rows or this package
            model, data = self.brought.classifier.fingerprint, self.cohort(DATA).hash
            extraction = {key: value for key, value in self.extraction.items() if key not in DECODING}
            deciding += [model, data, extraction, rightreasons.__version__, dict(self.brought.compared)]
        return deciding


def save_plan(study: Study, rows: Mapping[str, Cohort], text: str) -> None:
    """Write the cohorts, study.toml (if there is a text) and, last, plan.json."""
    for name, cohort in rows.items():
        cohort.save(study.folder / "cohorts" / f"{name}.parquet")
    if text:  # a model and rows in memory have no file that could say them again
        write(study.folder / "study.toml", text)
    write_json(study.folder / PLAN, study.plan.model_dump(mode="json"))


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


# ---- what the planner uses -----------------------------------------------------------------------------------------------


def load(settings: Mapping[str, Any], seed: int) -> Classifier:
    """The classifier that a unit starts from; its random weights belong to the seed."""
    given = dict(settings)
    return Classifier.load(given.pop("model"), **given, trust=(), rng=task_rng(seed, "starting weights"))


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


def axes_of(points: list[Point]) -> dict[str, list[Any]]:
    """The settings in which units differ, each with its values in the order of the file."""
    axes: dict[str, list[Any]] = {}
    for point in points:
        for key in point.axes:
            values = axes.setdefault(key, [])
            if point.settings[key] not in values:
                values.append(point.settings[key])
    return axes


def _try_building(drafts: list[Draft]) -> None:
    """Refuse a network that cannot be built before anything runs."""
    usual = families.settings_of(Classifier.load)
    for draft in {hash_of(draft.load): draft for draft in drafts if draft.load}.values():
        where = f"[architectures.{draft.architecture}]"
        extra = [key for key in draft.load if key not in usual and key != "model"]
        factory = None
        if extra:
            factory = _factory_settings(draft.load["model"])
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
    """A draft as plain data; which weights its network starts from is part of it only where a model was brought."""
    fields = asdict(draft)
    if draft.weights == "given":
        fields.pop("weights")
    return fields


def _draft_hash(draft: Draft) -> str:
    return hash_of({key: value for key, value in _as_planned(draft).items() if key != "batched"})


def _content_hash(draft: Draft, start: str, references: Mapping[str, list[str]]) -> str:
    """Of all that decides a unit's numbers. What it is called decides nothing; the ids of the models that it needs do."""
    deciding = {}
    for k, v in _as_planned(draft).items():
        if k not in ("architecture", "regime", "cohort", "axes"):
            deciding[k] = v
    for key, value in (("start", start), ("references", dict(references))):
        deciding.pop(key)
        if value:
            deciding[key] = value
    weights = draft.load.get("checkpoint")
    content = ""
    if weights is not None:
        content = hashlib.blake2b(Path(weights).read_bytes(), digest_size=16).hexdigest()
    return hash_of({**deciding, "format": FORMAT, "load": {**draft.load, "checkpoint": content}})
