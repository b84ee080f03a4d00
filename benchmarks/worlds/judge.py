"""One world: train its references and its models, measure their true reliance with the twins, audit them without."""

from __future__ import annotations

import functools
import inspect
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks._digits import PLAN
from benchmarks.worlds import networks, place, rivals, scenes
from benchmarks.worlds.kinds import PROJECTED, SIDE, TWO_TASKS, World
from benchmarks.worlds.tables import ATTRIBUTE, JOINT, WITH_TWINS
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from rightreasons import families
from rightreasons.audits import audit, needs_of
from rightreasons.case import cases
from rightreasons.case.votes import COUNTS_ONCE
from rightreasons.case.words import looked
from rightreasons.check.preflight import preflight_of
from rightreasons.data import planted
from rightreasons.data.cohort import Cohort
from rightreasons.errors import NotRun, TrainingError
from rightreasons.evidence import Evidence
from rightreasons.extraction import extract, read
from rightreasons.extraction.severities import calibrate
from rightreasons.findings import Finding
from rightreasons.findings.preflight import guarded
from rightreasons.mitigations import gradient_scaling
from rightreasons.models.batched import train_batched
from rightreasons.models.classifier import Classifier
from rightreasons.models.training import train
from rightreasons.stats.resampling import task_rng
from rightreasons.study.preflight import about_of

DEVICE = os.environ.get("DEVICE", "cpu")
# Kernels of so small networks are all start and no work: a GPU takes all rows at once.
IS_BATCHED = DEVICE != "cpu"
BATCH = 256 if IS_BATCHED else 32
BASELINES, ATTRIBUTES = 4, 2
PHOTO_BASELINES = 2  # beside large networks, of which each takes seconds
NETWORKS = {"cnn": ("small_cnn", PLAN), "vit": ("small_vit", {**PLAN, "epochs": 20, "lr": 1e-3, "warmup": 2.0})}
IMAGES = ("groups", "pull", "probes", "art", "excess", "oscar", "sdi")
AUDITS = {"cnn": IMAGES, "vit": (*IMAGES, "tsi")}
# Scenes ask whether answers follow an attribute, and why; where a model looks, the worlds above ask.
OF_SCENES = ("groups", "pull", "probes", "art", "excess", "sdi")
OF_PHOTOS = ("groups", "pull", "probes", "art", "excess")
# Fewer draws than a user would take: the rate of verdicts is what is measured, not the digits of a p-value.
SETTINGS: dict[str, dict[str, Any]] = {
    "groups": {"B": 200},
    "pull": {"B": 1000, "permutations": 200},
    "probes": {"B": 200},
    "art": {"controls": 200, "B": 300},
    "excess": {"B": 500, "refits": 12, "pictures": 0},
    "oscar": {"B": 1000, "pictures": 1},
    "sdi": {"B": 500},
    "tsi": {"B": 1000, "pictures": 1},
}
REFERENCES = {"oscar": ("baseline", "attribute"), "tsi": ("baseline",), "excess": ("baseline",)}
UNUSED = 0.015  # mean change of probability in the training rows that a projected head may have
ESTIMATES = 12  # of every finding, kept in its row
EMBEDDED = 300  # test rows whose features are kept for tools that run elsewhere

Row = dict[str, Any]


@dataclass(frozen=True)
class Judged:
    """Rows, one for every model and attribute; and arrays for tools that run elsewhere (`label`, attributes, features)."""

    rows: list[Row]
    arrays: dict[str, np.ndarray]


def judged(world: World, tests: int) -> Judged:
    """Judge so many models: what each is, its true reliance, what every audit, the case and the rivals say."""
    torch.set_num_threads(1)
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder, remembered():
        with clock("draw"):
            tables = Tables.of(world, Path(folder) / "world")
        with clock("train"):
            references = trained_references(world, tables)
            models = judged_models(world, tables, tests)
        severities = str(Path(folder) / "severities.json")
        audits = audits_of(world)
        if "sdi" in audits:
            with clock("calibrate"):
                calibrate(models[0], tables.hidden, reference=references["baseline"][0], batch=BATCH, out=severities)
        with clock("references"):
            compared = [name for name in audits if name in REFERENCES]
            seen = {
                role: [extract_here(model, tables.hidden, needs_of(compared), tables.free) for model in members]
                for role, members in references.items()
            }
        bench = Bench(world, tables, seen, severities, clock)
        rows: list[Row] = []
        arrays = _shared_arrays(tables)
        for k, model in enumerate(models):
            found, features = bench.judge(k, model)
            rows += found
            arrays[f"features {k}"] = features
    seconds = {name: round(value, 2) for name, value in clock.seconds.items()}
    return Judged([{**row, "world seconds": seconds} for row in rows], arrays)


@contextmanager
def remembered() -> Iterator[None]:
    """Operators give what they gave for the same images: the models of a world share the perturbed pixels, most of the work."""
    known: dict[Any, Any] = {}
    modules = [families.member("perturbations", name) for name in ("nuisance", "content")]
    operators = [(m, n, f) for m in modules for n, f in vars(m).items() if _is_operator(m, f)]
    try:
        for module, name, function in operators:
            setattr(module, name, _remembering(function, known))
        yield
    finally:
        for module, name, function in operators:
            setattr(module, name, function)


def _is_operator(module: Any, function: Any) -> bool:
    own = inspect.isfunction(function) and function.__module__ == module.__name__ and not function.__name__.startswith("_")
    return own and list(inspect.signature(function).parameters)[:2] == ["pixels", "seeds"]


def _remembering(function: Callable[..., Any], known: dict[Any, Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def operator(pixels: torch.Tensor, seeds: np.ndarray, **settings: Any) -> torch.Tensor:
        # Seeds name the rows; the sum tells an image from its twin.
        key = (function.__name__, seeds.tobytes(), float(pixels.double().sum()), tuple(sorted(settings.items())))
        if key not in known:
            changed = function(pixels, seeds, **settings)
            known[key] = None if changed is pixels else changed
        return pixels if known[key] is None else known[key]

    return operator


class Clock:
    """Seconds by what they went to."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, what: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.seconds[what] = self.seconds.get(what, 0.0) + time.perf_counter() - began


# ---- rows ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class About:
    """What is known of an attribute: its kind, whether it is a null, how it is painted, which cue it stands in for."""

    kind: str
    is_null: bool
    cue: str = "none"
    used: str = ""


@dataclass(frozen=True)
class Tables:
    """A world's rows.

    Attributes
    ----------
    twins : painted attribute → rows with their twins
    hidden : as an audit may see them
    free : with every attribute of train and val drawn again
    attributes : name → what is known of it
    """

    twins: Mapping[str, Cohort]
    hidden: Cohort
    free: Cohort
    attributes: Mapping[str, About]

    @classmethod
    def of(cls, world: World, folder: Path) -> Tables:
        if world.family == "scene":
            made = scenes.cohorts_of(world, folder)
            about = {
                name: About(told.kind, told.is_null, told.cue or "none", told.used) for name, told in made.attributes.items()
            }
            return cls(made.twins, made.hidden, made.free, about)
        drawn = world.make(folder)
        again = planted.redrawn(folder)
        own = unrelated(world, drawn, world.unrelated, "unrelated")
        fitted = np.isin(drawn.splits, ("train", "val"))
        none = unrelated(world, drawn, [0.5] * len(world.unrelated), "unrelated, drawn again")
        other = {name: np.where(fitted, none[name], values) for name, values in own.items()}
        about = {ATTRIBUTE: About(world.kind, world.is_null, world.cue), **dict.fromkeys(own, About(world.kind, world.is_null))}
        return cls({ATTRIBUTE: _table(drawn, own, twins=True)}, _table(drawn, own), _table(again, other), about)

    @property
    def used(self) -> str:
        """The cue that a two-task model also learns to tell."""
        return next(iter(self.twins))


def unrelated(world: World, cohort: Cohort, agreements: Sequence[float], task: str) -> dict[str, np.ndarray]:
    """Attributes that no pixel shows; they go with the label in train and val so far as is said, and nowhere else."""
    found = {}
    for k, agreement in enumerate(agreements):
        rng = task_rng(world.seed, f"{world.name} {task} {k}")
        share = np.where(np.isin(cohort.splits, ("train", "val")), agreement, 0.5)
        found[f"unrelated {k}"] = np.where(rng.random(len(cohort)) < share, cohort.label, 1 - cohort.label)
    return found


def _table(cohort: Cohort, more: Mapping[str, np.ndarray], twins: bool = False) -> Cohort:
    names = ("id", "image", "label", "split", "box", "mask", *(("twin",) if twins else ()))
    columns: dict[str, Any] = {name: cohort.column(name) for name in names if name in cohort.columns}
    name = cohort.attributes[0]
    schema: dict[str, Any] = {part: part for part in ("split", "box", "mask", "twin") if part in columns}
    if twins:
        columns["twin_cue"] = cohort.column(f"twin_{name}")
        schema["twin_attribute"] = {ATTRIBUTE: "twin_cue"}
    columns |= {ATTRIBUTE: cohort.column(name), **more}
    return Cohort.from_columns(columns, label="label", attribute=[ATTRIBUTE, *more], root=cohort.root, **schema)


def _shared_arrays(tables: Tables) -> dict[str, np.ndarray]:
    test = tables.hidden.on("test")
    codes = {name: test.attribute(name).values for name in test.attributes if test.attribute(name).kind == "categorical"}
    return {name: values[:EMBEDDED].astype(np.int8) for name, values in {"label": test.label, **codes}.items()}


# ---- models --------------------------------------------------------------------------------------------------------------


def audits_of(world: World) -> tuple[str, ...]:
    """Which audits judge the models of a world."""
    if world.family == "planted":
        return AUDITS[world.architecture]
    return OF_PHOTOS if world.is_real else OF_SCENES


def baselines_of(world: World) -> int:
    """How many balanced reference networks its audits are given."""
    return PHOTO_BASELINES if world.is_real else BASELINES


def trained_references(world: World, tables: Tables) -> dict[str, list[Classifier]]:
    """Baselines, and models of every attribute, under the roles that audits give them; an attribute's role bears its name."""
    roles = {"baseline": trained(world, tables.free, [f"baseline {k}" for k in range(baselines_of(world))])}
    for name in tables.free.attributes if "oscar" in audits_of(world) else ():
        roles[f"attribute {name}"] = trained(world, tables.free, [f"{name} model {k}" for k in range(ATTRIBUTES)], name)
    return roles


def judged_models(world: World, tables: Tables, tests: int) -> list[Classifier]:
    if world.models == TWO_TASKS:
        return [two_tasks(world, tables.free, f"two tasks {k}", tables.used) for k in range(tests)]
    models = trained(world, tables.hidden, [f"model {k}" for k in range(tests)])
    return [projected(model, tables.twins[ATTRIBUTE]) for model in models] if world.models == PROJECTED else models


def trained(world: World, cohort: Cohort, names: Sequence[str], target: str | None = None) -> list[Classifier]:
    """Networks of these names on the label or on an attribute; on a GPU all as one."""
    seeds = [int(task_rng(world.seed, f"{world.name} {name}").integers(2**31)) for name in names]
    classes = cohort.classes if target is None else cohort.attribute(target).levels
    starts = [_start(world, classes, seed) for seed in seeds]
    plans = [{**_plan(world), "target": target, "seed": seed} for seed in seeds]
    if IS_BATCHED and not world.is_real:
        try:
            found = train_batched(starts, cohort, plans)
        except TrainingError:  # the proof that copies train alike is by gradients, and a GPU's rounding can fail it
            pass
        else:
            for model in found:
                if isinstance(model, TrainingError):
                    raise model
            return [model.to(DEVICE) for model in found if isinstance(model, Classifier)]
    return [train(begin, cohort, **plan).to(DEVICE) for begin, plan in zip(starts, plans)]


def two_tasks(world: World, free: Cohort, name: str, cue: str = ATTRIBUTE) -> Classifier:
    """It learns to tell the cue beside the label, where they have nothing to do with each other: encoded, and no use for it."""
    rng = task_rng(world.seed, f"{world.name} {name}")
    begin = _start(world, free.classes, int(rng.integers(2**31)))
    return gradient_scaling.mitigate(begin, free, rng=rng, scale=1.0, hidden=(), attribute=cue, **_plan(world)).to(DEVICE)


def projected(model: Classifier, cohort: Cohort) -> Classifier:
    """Encoded as before, and unused: a head fitted anew to features in which the cue's directions are shrunk.

    They are those in which training images and their twins differ, shrunk ten times more each time until the cue hardly moves
    the answers; it is fitted to images and twins.
    """
    rows = cohort.on("train")
    before, after = (_read(model, part, "features") for part in (rows, rows.twins()))
    _, lengths, directions = np.linalg.svd(after - before, full_matrices=False)
    both, label = np.concatenate([before, after]), np.concatenate([rows.label, rows.label])
    for factor in 10.0 ** np.arange(7):
        shrink = directions.T / np.sqrt(1 + factor * lengths**2 / len(rows)) @ directions
        fitted = LogisticRegression(C=10.0, max_iter=5000).fit(both @ shrink, label)
        w = shrink @ fitted.coef_[0]
        change = expit(after @ w + fitted.intercept_) - expit(before @ w + fitted.intercept_)
        if np.abs(change).mean() < UNUSED:
            break
    new = model.copy()
    layer = new.module.get_submodule(new.cut.head[-1])
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(np.stack([-w / 2, w / 2])))
        layer.bias.copy_(torch.from_numpy(np.concatenate([-fitted.intercept_ / 2, fitted.intercept_ / 2])))
    return new


def _read(model: Classifier, rows: Cohort, array: str) -> np.ndarray:
    return read(model, rows, [array], batch=BATCH, device=DEVICE, threads=1, workers=1)[array].astype(np.float64)


def _start(world: World, classes: tuple[Any, ...], number: int) -> Classifier:
    if world.is_real:
        return networks.start(world.architecture, classes, number)
    return Classifier.load(
        f"rightreasons.models.small:{NETWORKS[world.architecture][0]}", num_classes=len(classes), classes=classes,
        size=(SIDE, SIDE), mean=0.5, std=0.5, rng=np.random.default_rng(number),
    )  # fmt: skip


def _plan(world: World) -> dict[str, Any]:
    own = networks.PLANS[world.architecture] if world.is_real else NETWORKS[world.architecture][1]
    return {**own, "threads": 1, "workers": 1, "device": DEVICE}


# ---- verdicts ------------------------------------------------------------------------------------------------------------


FLIPS = needs_of(["flips"])
UNUSABLE = {"reliance": 0.0, "reliance low": 0.0, "reliance high": 0.0, "flips": 0.0, "directed": 0.0}


@dataclass(frozen=True)
class Truth:
    """What painting another value on the same test images does to one model."""

    result: Any
    directed: float

    @classmethod
    def of(cls, pairs: Evidence) -> Truth:
        return cls(audit("flips", pairs, B=200, pictures=0), towards(pairs))

    def numbers(self) -> Row:
        measured = self.result.measurements[0]
        reliance = measured.absolute
        return {
            "reliance": reliance.value, "reliance low": reliance.low, "reliance high": reliance.high,
            "flips": measured.flips.value, "directed": self.directed,
        }  # fmt: skip


@dataclass(frozen=True)
class Bench:
    """What the judged models of a world share; references are measured once for every audit and attribute."""

    world: World
    tables: Tables
    seen: Mapping[str, Sequence[Evidence]]
    severities: str
    clock: Clock
    measured: dict[tuple[str, str, str], list[Any]] = field(default_factory=dict)

    def judge(self, k: int, model: Classifier) -> tuple[list[Row], np.ndarray]:
        """A row for every attribute, and the features of test rows."""
        world, fitted = self.world, self.tables.free if self.world.models == TWO_TASKS else self.tables.hidden
        with self.clock("truth"):
            truths = {}
            for name, twins in self.tables.twins.items():
                if self.tables.attributes[name].cue != "none":  # else nothing is painted, and the twins are the images
                    truths[name] = Truth.of(extract_here(model, twins, FLIPS, fitted))
        with self.clock("extract"):
            needs = needs_of(audits_of(world), {"sdi": {"severities": self.severities}})
            evidence = extract_here(model, self.tables.hidden, needs, fitted)
        with self.clock("statistics"):
            judged_rows = [self._row(k, evidence, name, truths) for name in self.tables.hidden.attributes]
            rows = _with_joint_cases(judged_rows)
        return rows, evidence.on("test")["features"][:EMBEDDED].astype(np.float16)

    def _row(self, k: int, evidence: Evidence, attribute: str, truths: Mapping[str, Truth]) -> tuple[Row, list[Finding]]:
        world, about = self.world, self.tables.attributes[attribute]
        truth = truths.get(attribute) if about.cue != "none" else None  # what no pixel shows cannot be used
        told: Row = {
            "world": world.name, "family": "real" if world.is_real else "planted", "drawn as": world.family, "kind": about.kind,
            "base": world.base, "cue": about.cue, "architecture": world.architecture, "seed": world.seed, "model": k,
            "attribute": attribute, "is_null": about.is_null, "world kind": world.kind, **world.settings,
            **(UNUSABLE if truth is None else truth.numbers()),
        }  # fmt: skip
        if about.used:
            told["reliance on its cue"] = truths[about.used].result.measurements[0].absolute.value
        test = evidence.on("test")
        told["accuracy"] = float((test["logits"].argmax(axis=1) == test.cohort.label).mean())
        card = preflight_of(evidence, about_of(evidence.card, is_trained_here=True))
        if card is None:
            raise ValueError(f"{world.name}: no logits of test rows, so nobody can say whether the model works there")
        told["preflight"] = card.state
        findings: list[Finding] = []
        for name in audits_of(world):
            if name == "tsi" and attribute != ATTRIBUTE:  # it names no attribute, so it has said what it has to say
                continue
            began = time.process_time()
            result, finding, why = self._result(name, evidence, attribute)
            if finding is not None:
                finding = guarded(finding, card)  # as `rightreasons audit` would say it
                findings.append(finding)
            told |= _told(name, finding, why, time.process_time() - began)
            if finding is not None and name in PUBLISHED:
                told[f"{name} as published verdict"] = "shortcut" if PUBLISHED[name](result, finding) else "no evidence"
            if truth is not None and result is not None:
                told |= place.found(name, result, evidence, self.tables.twins[attribute].on("test"))
        told |= _case("case", findings)
        if truth is not None:
            known = guarded(truth.result.finding(), card)
            told |= _told("flips", known, "", known.seconds or 0.0) | _case(WITH_TWINS, [*findings, known])
        return told | rivals.scores(evidence, attribute), findings

    def _result(self, name: str, evidence: Evidence, attribute: str) -> tuple[Any, Finding | None, str]:
        """What `audits.audit` gives, without measuring the references anew for every model."""
        module = families.member("audits", name)
        given = {**SETTINGS[name], "attribute": attribute} | ({"severities": self.severities} if name == "sdi" else {})
        if name == "excess" and self.world.settings.get("truth told"):
            given["truth"] = scenes.TRUTH
        known = families.settings_of(module.measure, module.conclude)
        full = families.resolve({key: v for key, v in given.items() if key in known}, module.measure, module.conclude, where=name)
        measure = _measuring(name, module, full)
        try:
            measured = {"test": [measure(evidence)]}
            for role in REFERENCES.get(name, ()):
                measured[role] = self._reference(name, role, attribute, measure)
            result = module.conclude(measured, rng=task_rng(0, f"{name} conclude"), **families.accepted(module.conclude, full))
        except NotRun as reason:
            return None, None, str(reason)
        context = replace(result.context, name=name, audit=name, model=evidence.card.name, settings=full, seed=0)
        result = replace(result, context=context)
        return result, result.finding(), ""

    def _reference(self, name: str, role: str, attribute: str, measure: Callable[[Evidence], Any]) -> list[Any]:
        key = (name, role, attribute)
        if key not in self.measured:
            members = self.seen[role if role == "baseline" else f"{role} {attribute}"]
            self.measured[key] = [measure(member) for member in members]
        return self.measured[key]


def towards(evidence: Evidence) -> float:
    """Mean rise of the probability of label 1 from a lower cue value to a higher: near 0 where a cue disturbs and is not read."""
    images, twins = evidence.on("test"), evidence.on("twin")
    place_of = {name: k for k, name in enumerate(images.cohort.id)}
    own = np.array([place_of[name] for name in twins.cohort.id])
    before, after = (expit(np.diff(view["logits"].astype(np.float64), axis=1)[:, 0]) for view in (images, twins))
    rises = np.sign(twins.cohort.attribute().values - images.cohort.attribute().values[own])
    return float(((after - before[own]) * rises).mean())


def _measuring(name: str, module: Any, full: dict[str, Any]) -> Callable[[Evidence], Any]:
    settings = families.accepted(module.measure, full)
    return lambda evidence: module.measure(evidence, rng=task_rng(0, f"{name} measure"), **settings)


def _paper_of_oscar(result: Any, finding: Finding) -> bool:
    """A positive partial correlation whose regions were permuted as if neighbours had nothing to do with each other."""
    first = result.compared[0].correlations[0]
    return bool(first.interval.value > 0 and first.paper < 0.05)


def _paper_of_sdi(result: Any, finding: Finding) -> bool:
    """Features move more under acquisition than under content: the interval of R_sc lies above 1."""
    (ratio,) = [e for e in finding.estimates if e.name == "R_sc of the features, all operators"]
    return ratio.low is not None and ratio.low > 1


PUBLISHED: dict[str, Callable[[Any, Finding], bool]] = {"oscar": _paper_of_oscar, "sdi": _paper_of_sdi}
"""What the papers' own rules call, where ours differ and the numbers for theirs are there."""


def _told(name: str, finding: Finding | None, why: str, seconds: float) -> Row:
    """What one audit says, with what its rule was fed: other thresholds can be tried without running it again."""
    told: Row = {f"{name} verdict": str(finding.verdict) if finding else "not run", f"{name} seconds": round(seconds, 3)}
    if finding is None:
        return told | {f"{name} not run": why}
    first = finding.estimates[0].value if finding.estimates else None
    return told | {
        f"{name} effect": COUNTS_ONCE if first is None else min(abs(first), 1.0),
        f"{name} p": finding.estimates[0].p if finding.estimates else None,
        f"{name} row": finding.row,
        f"{name} standing": finding.standing,
        f"{name} alike": finding.alike,
        f"{name} looked": looked(finding),
        f"{name} failed": [check.name for check in finding.checks if check.decides and check.passed is not True],
        f"{name} estimates": [
            [e.name, *(None if v is None else float(f"{v:.5g}") for v in (e.value, e.low, e.high, e.p))]
            for e in finding.estimates[:ESTIMATES]
        ],
    }


def _with_joint_cases(rows: Sequence[tuple[Row, list[Finding]]]) -> list[Row]:
    """The case of every attribute as it is where all attributes of the table are judged together, beside that of each alone."""
    every = []
    for row, findings in rows:  # as an audit of several attributes names its findings: the correction knows them by name
        every += [f.model_copy(update={"name": f"{f.name}-{row['attribute']}"}) for f in findings]
    joint = {case.attribute: str(case.verdict) for case in cases(every)}
    return [row | {f"{JOINT} verdict": joint.get(row["attribute"], row["case verdict"])} for row, _ in rows]


def _case(name: str, findings: Sequence[Finding]) -> Row:
    case = cases(findings)[0]
    return {f"{name} verdict": str(case.verdict), f"{name} score": case.score}


def extract_here(model: Classifier, cohort: Cohort, needs: Iterable[Any], fitted: Cohort) -> Evidence:
    """Evidence in memory; `fitted` has the training rows as the model saw them."""
    return extract(model, cohort, needs, training=fitted.on("train"), batch=BATCH, chunk=256, device=DEVICE, threads=1, workers=1)
