"""One model, one case: the audits that its data allow, the reference models they lack, evidence once, findings and page.

A study.toml with a table [model] describes it; `rightreasons audit` writes one from its options. Everything lies in one folder,
and a second run makes only what is missing:

    study.toml  sheet.json  findings/*.json  report.html
    evidence/                    what the model said
    references/<name>/model/ evidence/   what it is compared with
    severities/<attribute>.json  how strongly images are changed, for audits that change them
"""

from __future__ import annotations

import itertools
import os
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from rightreasons import audits, families
from rightreasons.audits import Need, Role
from rightreasons.data.cohort import Cohort
from rightreasons.errors import DataError, EvidenceError, ModelError, NotRun, SettingError, TrainingError
from rightreasons.evidence import Evidence
from rightreasons.extraction import extract, named_cohorts
from rightreasons.extraction.severities import calibrate
from rightreasons.findings import Finding, file_name, not_run
from rightreasons.mitigations import gradient_scaling, mitigate
from rightreasons.models import batched
from rightreasons.models.classifier import Classifier
from rightreasons.models.starting import fresh
from rightreasons.models.training import train
from rightreasons.progress import track
from rightreasons.report import report
from rightreasons.stats.resampling import task_rng
from rightreasons.study.choose import DEPTHS, SEVERITIES, Chosen, Depth, choose
from rightreasons.study.plan import training_set
from rightreasons.study.record import PLAIN, save_findings
from rightreasons.study.sheet import sheet_of

REPLICATES: Mapping[Depth, int] = {"quick": 0, "usual": 1, "full": 4}
"""Seeds of every reference model. With four there is a spread of balanced models to judge the tested one by."""
SCALES = (-0.4, -0.1, -0.02, 0.0, 0.02, 0.1, 0.4)
"""Of the family that is trained where an audit is about one: how strongly the attribute's gradient reaches the network."""
FAMILY_SEEDS = 3
FAMILY = "gradient_scaling"
LIKE = ("epochs", "batch", "lr", "optimizer", "weight_decay", "schedule", "warmup", "stop_on", "patience", "clip", "augment")
"""Settings of a training that the reference models take from the tested one."""


@dataclass(frozen=True)
class Whole:
    """What is asked for.

    Parameters
    ----------
    audits : table → settings (`method` where it is not the table's name); all audits by default
    external : cohorts from elsewhere: what the model does there is described beside
    depth : "quick" trains nothing but probes; "usual" trains the reference models; "full" trains four of each, and families
    start : starting weights of the reference models: "fresh", "given", a folder or a checkpoint; by default what the model's
        card says, and of a brought checkpoint it says nothing
    references : role → folders of models that are there already
    training : keywords of `train` for the reference models
    extraction : keywords of `extract`
    study, command : the text that says all this, and how to repeat it, for the page
    """

    classifier: Classifier
    cohort: Cohort
    folder: Path
    audits: Mapping[str, Mapping[str, Any]] | None = None
    external: Mapping[str, Cohort] = field(default_factory=dict)
    depth: Depth = "usual"
    seed: int = 0
    start: str | None = None
    references: Mapping[str, Sequence[str | os.PathLike[str]]] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    extraction: Mapping[str, Any] = field(default_factory=dict)
    title: str = ""
    subtitle: str = ""
    study: str = ""
    command: str = ""

    def __post_init__(self) -> None:
        if self.depth not in DEPTHS:
            raise SettingError(f"depth={self.depth!r}; {families.suggest(str(self.depth), DEPTHS)}")

    @property
    def name(self) -> str:
        return str(self.classifier.card.get("name") or self.classifier.name)

    @cached_property
    def rows(self) -> Cohort:
        """The cohort with all the splits it can have: `train` and `val` only where the table names training rows."""
        return self.cohort.with_roles(rng=task_rng(self.seed, "roles of the splits"), trains=self.cohort.has("train"))

    @property
    def trained_like(self) -> dict[str, Any]:
        """Settings of `train` for reference models: those of the tested model where it was trained here, then what is asked."""
        own = self.classifier.card.get("settings") or {} if self.classifier.training is not None else {}
        return {**{key: own[key] for key in LIKE if key in own}, **self.training}

    @cached_property
    def chosen(self) -> list[Chosen]:
        return choose(self.audits, self.rows, named_cohorts(self.cohort, self.seed), self.classifier)

    def run(self, say: Callable[[str], None] = print) -> list[Finding]:
        """Do what is missing, write findings, sheet and page, and give the findings."""
        say(self.plan())
        models = Models(self)
        findings = [models.finding(one) for one in track(self.chosen, "audits")]
        findings += [f for name, rows in self.external.items() for f in self._elsewhere(name, rows)]
        sheet = sheet_of(
            self.rows, evidence=models.tested, external=self.external, command=self.command, study=self.study,
            facts={"seed": str(self.seed), "depth": self.depth}, trained=self.cohort.has("train"),
        )  # fmt: skip
        sheet.save(self.folder)
        save_findings(findings, self.folder)
        report(
            findings,
            self.folder / "report.html",
            title=self.title or f"Audit of {self.name}",
            subtitle=self.subtitle,
            sheet=sheet,
        )
        return findings

    def plan(self) -> str:
        """What will run, and what it takes, in words."""
        able = [one.name for one in self.chosen if not one.impossible]
        lines = [f"{self.depth} audit of {self.name} on {len(self.rows)} rows: {', '.join(able) or 'nothing can run'}"]
        lines += [f"  {one.name} cannot: {one.impossible}" for one in self.chosen if one.impossible]
        return "\n".join(lines)

    def _elsewhere(self, name: str, rows: Cohort) -> list[Finding]:
        """What the outputs do on rows from elsewhere: audits that need them alone. They describe: the case is about test rows."""
        place = self.folder / "external" / name
        seen = extract(self.classifier, {"test": rows}, ["logits"], out=place, **self.extraction)
        alone = [m for m in families.members("audits") if _reads_outputs_alone(m)]
        found = audits.audit_all(seen, audits=alone, seed=self.seed)
        return [f.model_copy(update={"name": f"{f.name}-{name}", "cohort": name, "verdict": None}) for f in found]


def _reads_outputs_alone(method: str) -> bool:
    needs = audits.needs_of([method])
    return all(need.array == "logits" and need.cohort == "test" for need in needs if not need.optional)


@dataclass
class Models:
    """The models of one case: the tested one and what it is compared with, each trained and extracted once."""

    asked: Whole
    _trained: dict[str, Classifier] = field(default_factory=dict)
    _calibrated: dict[str, Path | None] = field(default_factory=dict)
    _seconds: list[float] = field(default_factory=list)

    @cached_property
    def tested(self) -> Evidence:
        """Everything that the audits read of the tested model, in one pass."""
        needs = [need for one in self.asked.chosen for need in one.needs("test", **self._settings(one))]
        return self._extract(self.asked.classifier, needs, self.asked.folder / "evidence", training=self._training())

    def finding(self, one: Chosen) -> Finding:
        lacking: dict[str, str] = {}
        severities = self._settings(one)
        if one.calibrates and not severities:
            lacking[SEVERITIES] = "not calibrated: that needs a model trained on balanced rows (not with --quick), or masks"
        settings = {**one.settings, **severities}
        try:
            own = {one.subject: self._family(one)} if one.is_family else {"test": [self.tested]}
            roles = {**own, **self._others(one, lacking)}
            result = audits.audit(one.method, roles, seed=self.asked.seed, name=one.name, **settings)
            found: Finding = result.finding()
        except (NotRun, EvidenceError) as error:
            reason = "; ".join([*lacking.values(), str(error)])
            about = {"attribute": one.attribute or "", "settings": settings, "seed": self.asked.seed}
            found = not_run(one.name, one.method, one.module.QUESTION, one.module.ROW, reason, **about)
        return found.model_copy(update={"model": self.asked.name})

    # ---- what it is compared with --------------------------------------------------------------------------------------

    def _others(self, one: Chosen, lacking: dict[str, str]) -> dict[str, list[Evidence]]:
        """Role → evidence; `lacking` is told why there is none."""
        asked = self.asked
        found = {}
        for role in one.references:
            try:
                models = self._role(one, role)
            except (NotRun, DataError, ModelError, TrainingError) as error:
                if not one.impossible:
                    lacking[role.name] = f"no {role.name} model: {error}"
                continue
            rows, needs = self._in_groups(asked.cohort, role)[0], one.needs(role.name)
            found[role.name] = [self._extract(model, needs, place / "evidence", rows=rows) for place, model in models]
        return found

    def _refuse_training(self, one: Chosen) -> None:
        asked = self.asked
        if one.impossible:
            raise NotRun(one.impossible)
        if asked.depth == "quick":
            raise NotRun("nothing is trained with --quick")
        if not asked.cohort.has("train"):
            raise NotRun("training rows unknown, name a split column with train rows")
        if asked.start is None and asked.classifier.training is None and not asked.classifier.card.get("regime"):
            raise NotRun('starting weights unknown, say start = "fresh" or name the file of the weights that training began with')

    def _role(self, one: Chosen, role: Role) -> list[tuple[Path, Classifier]]:
        """(folder, model) of every seed of a role: those that were given, or trained now."""
        asked = self.asked
        if given := asked.references.get(role.name):
            opened = [Classifier.open(Path(folder)) for folder in given]
            return [(asked.folder / "references" / f"{role.name}-{k}", model) for k, model in enumerate(opened)]
        self._refuse_training(one)
        column = one.attribute or next(iter(asked.rows.attributes), "")
        rows = f"balanced-{column}" if role.rows != "train" else "train"
        found = []
        for seed in range(REPLICATES[asked.depth]):
            title = "-".join(filter(None, (rows, f"predicts-{role.target}" if role.target else "", f"s{seed}")))
            place = asked.folder / "references" / file_name(title)
            if title not in self._trained:
                self._trained[title] = self._train(role, rows, column, seed, place / "model")
            found.append((place, self._trained[title]))
        return found

    def _train(self, role: Role, rows: str, column: str, seed: int, place: Path) -> Classifier:
        asked = self.asked
        cohort = asked.rows
        if role.rows != "train":
            cohort = training_set(rows, {"balance": {"attribute": column}}, asked.rows, asked.folder, asked.seed)
        cohort, target = self._in_groups(cohort, role)
        start = self._begin(cohort.attribute(target).levels if target else asked.classifier.classes, seed)
        start.card["name"] = place.parent.name
        began = time.perf_counter()
        settings = asked.trained_like
        if role.stopping != "val":
            settings["stopping"] = cohort.on(role.stopping)
        if role.regime in (PLAIN, role.rows):  # "balanced" on balanced rows is plain training on them
            made = train(start, cohort, target=target, seed=seed, folder=place, **settings)
        else:
            known = families.settings_of(families.member("mitigations", role.regime).mitigate)
            given = {key: value for key, value in settings.items() if key in known}
            made = mitigate(role.regime, start, cohort, seed=seed, folder=place, **given)
        self._seconds.append(time.perf_counter() - began)
        return made

    def _in_groups(self, cohort: Cohort, role: Role) -> tuple[Cohort, str | None]:
        """The rows and the column that a role's models predict: groups of a number, because a classifier learns classes."""
        if not role.target or cohort.attribute(role.target).kind == "categorical":
            return cohort, role.target or None
        if not role.groups:
            raise DataError(f"{role.target} is a number, and a classifier learns classes: give bins when reading it")
        return cohort.in_groups(role.target, role.groups, of=self.asked.rows), f"{role.target} groups"

    def _begin(self, values: Sequence[Any], seed: int) -> Classifier:
        """The network at its starting weights, with an output for every value: another number of them is another, random head."""
        asked, rng = self.asked, task_rng(seed, "starting weights")
        begun = fresh(asked.classifier, rng, asked.start)
        recipe, geometry = asked.classifier.recipe, asked.classifier.geometry
        if len(values) == asked.classifier.C:
            return begun
        if recipe is None:
            raise ModelError(
                f"{asked.classifier.name} is a wrapped network with {asked.classifier.C} outputs, and {len(values)} are needed: "
                "load it by a factory, 'package.module:factory', or bring such a model (--attribute-model)"
            )
        seen: dict[str, Any] = {key: getattr(geometry, key) for key in ("size", "crop", "interpolation", "mode", "channels")}
        seen |= {"mean": asked.classifier.mean, "std": asked.classifier.std, **recipe["settings"]}
        made = Classifier.load(recipe["spec"], num_classes=len(values), rng=rng, **seen)
        own, body = made.module.state_dict(), begun.module.state_dict()
        fits = {key: value for key, value in body.items() if key in own and own[key].shape == value.shape}
        made.module.load_state_dict({**own, **fits})
        made.card, made.used = {**begun.card}, begun.used
        return made

    def _family(self, one: Chosen) -> list[Evidence]:
        """Models that encode the attribute more or less strongly, for an audit that is about a family."""
        asked = self.asked
        if asked.depth != "full":
            raise NotRun(f"it is about a family of {len(SCALES) * FAMILY_SEEDS} models{self._time()}: ask for it with --full")
        self._refuse_training(one)
        grid = list(itertools.product(range(FAMILY_SEEDS), SCALES))
        places = [asked.folder / "references" / file_name(f"family-{one.attribute}-s{s}{scale:+g}") for s, scale in grid]
        missing = [k for k, place in enumerate(places) if not (place / "model" / "model.json").exists()]
        for k, model in self._members(one, [grid[k] for k in missing]):
            place = places[missing[k]]
            model.card["name"] = place.name
            model.save(place / "model")
        needs = one.needs(one.subject)
        return [self._extract(Classifier.open(place / "model"), needs, place / "evidence") for place in places]

    def _members(self, one: Chosen, grid: Sequence[tuple[int, float]]) -> Iterator[tuple[int, Classifier]]:
        """(position, model) of a family's members: small networks as one batched model, others one by one."""
        asked = self.asked
        known = families.settings_of(gradient_scaling.mitigate)
        like = {key: value for key, value in asked.trained_like.items() if key in known}
        settings = [{**like, "attribute": one.attribute, "scale": scale, "start": asked.start} for _, scale in grid]
        if grid and batched.is_small(asked.classifier) and not batched.refusal(asked.classifier):
            rngs = [task_rng(seed, f"mitigation {FAMILY}") for seed, _ in grid]
            made = gradient_scaling.together([asked.classifier] * len(grid), asked.rows, settings, rngs=rngs)
            for k, model in enumerate(made):
                if isinstance(model, TrainingError):
                    raise model
                yield k, model
            return
        for k, (seed, _) in enumerate(track(grid, "family of models")):
            yield k, mitigate(FAMILY, asked.classifier, asked.rows, seed=seed, **settings[k])

    def _time(self) -> str:
        if not self._seconds:
            return ""
        each = sum(self._seconds) / len(self._seconds)
        return f", about {max(1, round(each * len(SCALES) * FAMILY_SEEDS / 60))} min by what a reference model took"

    # ---- how strongly images are changed -------------------------------------------------------------------------------

    def _settings(self, one: Chosen) -> dict[str, Any]:
        """The calibrated severities of an audit that changes images; nothing for the others, or where they cannot be had."""
        if not one.calibrates or one.impossible or self.asked.depth == "quick":
            return {}
        key = one.attribute or ""
        if key not in self._calibrated:
            self._calibrated[key] = self._calibrate(one)
        place = self._calibrated[key]
        return {} if place is None else {SEVERITIES: str(place)}

    def _calibrate(self, one: Chosen) -> Path | None:
        """Without a model that cannot know the cue, or masks, nobody can say what an operator may cost: then there is no use."""
        asked = self.asked
        rows = asked.rows.on("val") if asked.rows.has("val") else asked.rows.on("audit")
        reference = self._balanced(one)
        if reference is None and rows.mask is None:
            return None
        place = asked.folder / "severities" / file_name(f"{one.attribute or 'all'}.json")
        try:
            calibrate(asked.classifier, rows, reference=reference, out=place)
        except DataError:
            return None
        return place

    def _balanced(self, one: Chosen) -> Classifier | None:
        """A model of balanced rows that some other audit asks for, of the same attribute."""
        for other in self.asked.chosen:
            for role in other.references:
                if role.rows == "balanced" and not role.target and other.attribute in (one.attribute, None):
                    with suppress(NotRun, DataError, ModelError, TrainingError):
                        return self._role(other, role)[0][1]
        return None

    def _training(self) -> Cohort | None:
        """The rows that the table calls `train`, for a brought model; one that was trained here knows its own."""
        asked = self.asked
        return asked.rows.on("train") if asked.classifier.training is None and asked.cohort.has("train") else None

    def _extract(
        self, model: Classifier, needs: Sequence[Need], out: Path, rows: Cohort | None = None, training: Cohort | None = None
    ) -> Evidence:
        settings = {"training": training, "seed": self.asked.seed, **self.asked.extraction}
        return extract(model, self.asked.cohort if rows is None else rows, needs, out=out, **settings)


def command_line(folder: Path) -> str:
    """What to type to do it again."""
    return shlex.join(["rightreasons", "audit", str(folder / "study.toml"), "--out", str(folder)])
