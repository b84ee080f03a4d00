"""What a study means, resolved: cohorts, units and audits with every default filled in. On disk it is plan.json. No torch.

A *unit* is one model of the study: one that is trained, or one that was brought. A brought model is a study of one unit that is
about it, and of the reference models that its audits compare it with.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

PLAIN = "erm"  # the method that is `train` itself
BROUGHT = "brought"  # the method of a unit whose model was trained elsewhere
DATA = "data"  # the name of the cohort that [data] describes
FORMAT = 1  # of plan.json and of a unit's identity

Settings: TypeAlias = dict[str, Any]
Choice: TypeAlias = dict[str, list[str]]
"""Column of a unit → patterns of which one must fit, and, with `!`, none may."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Unit(_Part):
    """One model, and all that decides its numbers.

    Attributes
    ----------
    cohort : the training rows
    method : how it is trained: `erm`, a mitigation, or `brought` where it is not
    start : the unit whose network it starts from; empty: the architecture itself
    weights : with `start`, the weights to begin with: "given", those which that unit has; or those which it began with: "card",
        where its card says which, "fresh", or a file or folder
    references : role → units whose models its method reads
    axes : the settings in which units of the study differ
    load : keywords of `Classifier.load`, and `model`
    train : keywords of its training
    rows : hash of the training rows
    batched : hashes of the units that are trained as one model with it
    place : its folder within the study's; `runs/<unit>` where empty
    """

    architecture: str
    regime: str
    seed: int
    cohort: str
    method: str
    start: str = ""
    weights: str = "given"
    references: dict[str, list[str]] = {}
    axes: Settings = {}
    load: Settings = {}
    train: Settings = {}
    extract: dict[str, int]
    threads: int | None
    rows: str
    batched: list[str] = []
    hash: str = ""
    place: str = ""

    @field_validator("place")
    @classmethod
    def _lies_in_the_study(cls, place: str) -> str:
        path = PurePosixPath(place)
        if path.is_absolute() or ".." in path.parts:
            raise ValueError(f"the folder of a unit lies within the study's, and {place!r} does not")
        return place

    @property
    def target(self) -> str | None:
        """The attribute that it predicts in place of the label."""
        return self.train.get("target")

    @property
    def columns(self) -> dict[str, Any]:
        """The unit as columns of the study's table."""
        named = {}
        for key in ("architecture", "regime", "seed", "cohort", "method", "start"):
            named[key] = getattr(self, key)
        settings = {}
        for key, value in sorted(self.train.items()):
            if key not in ("seed", "regime"):
                settings[f"train_{key}"] = value
        return {**named, **settings, "threads": self.threads, "batched": len(self.batched)}


class AuditPlan(_Part):
    """One audit of the study.

    Attributes
    ----------
    subject : the role that it is about: `test`, or that of a family of models
    references : roles of the reference models that it asks for
    roles : role → which units serve in it
    unavailable : role → why it has no models; `severities` where they cannot be calibrated
    """

    method: str
    settings: Settings
    subject: str
    references: list[str]
    roles: dict[str, Choice]
    unavailable: dict[str, str]

    @property
    def is_about_a_family(self) -> bool:
        return self.subject != "test"


class CohortPlan(_Part):
    """Rows of the study: how many, of which splits, and where their images lie."""

    rows: int
    splits: dict[str, int]
    attributes: list[str]
    hash: str
    root: str
    external: bool


class Calibration(_Part):
    """How strongly images may be changed, found once on one unit's model and kept in a file.

    Attributes
    ----------
    baseline, reference : units; the reference, if any, does not know the cue
    file : within the study's folder
    is_needed : whether the study fails without it; else the audits that read it say so
    """

    baseline: str
    reference: str
    settings: Settings
    file: str
    is_needed: bool = True


class Driver(_Part):
    """The keys of [engine_settings] that are the driver's own, whatever the engine.

    Attributes
    ----------
    attempts : how often a task whose worker died is run in all
    batched : train units that differ only in seed, lr, weight decay and (gradient scaling) scale as one model: true, false, or
        "auto" where it pays
    split_rows : a cohort of more rows is extracted in pieces, by several workers
    track : "mlflow" or "wandb" logs every finished unit there
    """

    attempts: Annotated[int, Field(ge=1)] = 3
    batched: bool | Literal["auto"] = False
    split_rows: Annotated[int, Field(ge=1)] = 50_000
    track: Literal["", "mlflow", "wandb"] = ""


class CurvePlan(_Part):
    """What is drawn against which axis."""

    y: str
    x: str


class OverModels(_Part):
    """One table, relation or pair over all models; `by_construction` says which changes of a pair are no evidence."""

    columns: list[str] = []
    x: list[str] = []
    y: list[str] = []
    of: list[str] = []
    regimes: list[str]
    title: str = ""
    by_construction: dict[str, str] = {}


class Plan(_Part):
    """A whole study.

    Attributes
    ----------
    base : the folder that relative paths of the file start from
    decoding : keywords of `train` that change no number
    axes : the settings in which units differ, with their values in the order of the file
    references : regime → the audit and role that it was added for
    notes : what the plan added to the file, in words
    measured : hash of all that decides a measurement beside the unit itself
    brought : the unit of the model that was brought, where the study is about one
    depth, command, title, subtitle : for the page, where `rightreasons audit` made the study
    """

    format: Annotated[int, Field(ge=1, le=FORMAT)] = FORMAT
    name: str
    seed: int
    base: str
    code: dict[str, str]
    engine: str
    engine_settings: Settings
    driver: Driver
    decoding: Settings
    extract: Settings
    performance: Settings
    axes: dict[str, list[Any]]
    audits: dict[str, AuditPlan]
    curves: dict[str, CurvePlan] = {}
    tables: dict[str, OverModels] = {}
    relations: dict[str, OverModels] = {}
    pairs: dict[str, OverModels] = {}
    cohorts: dict[str, CohortPlan]
    references: dict[str, dict[str, str]]
    severities: dict[str, Calibration] = {}
    notes: list[str] = []
    units: dict[str, Unit]
    measured: str
    brought: str = ""
    depth: str = ""
    command: str = ""
    title: str = ""
    subtitle: str = ""

    @model_validator(mode="before")
    @classmethod
    def _as_written_before(cls, given: Any) -> Any:
        """plan.json of earlier versions: one calibration for the whole study; what a pair changes by construction as `said`."""
        if not isinstance(given, dict):
            return given
        plan = dict(given)
        older = plan.get("severities")
        if isinstance(older, dict) and "baseline" in older:
            plan["severities"] = {"": older}
        for kind in ("tables", "relations", "pairs"):
            older = plan.get(kind, {})
            if not isinstance(older, dict):
                continue
            plan[kind] = dict(older)
            for name, table in older.items():
                if isinstance(table, dict):
                    plan[kind][name] = _renamed(table, "said", "by_construction")
        return plan

    def place(self, unit: str) -> PurePosixPath:
        """The folder of a unit within the study's."""
        return PurePosixPath(self.units[unit].place or f"runs/{unit}")

    @property
    def external(self) -> tuple[str, ...]:
        """Cohorts from elsewhere."""
        return tuple(name for name, cohort in self.cohorts.items() if cohort.external)


def _renamed(table: Mapping[str, Any], old: str, new: str) -> dict[str, Any]:
    return {(new if key == old else key): value for key, value in table.items()}
