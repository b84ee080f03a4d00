"""What a worker does: train, extract and measure one unit, each step skipped where its files are already there.

Everything a step writes appears whole or not at all, and row.json comes last, so a unit may be killed at any moment.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import shutil
import socket
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch

from rightreasons import families
from rightreasons.data.cohort import Cohort
from rightreasons.errors import EvidenceError, NotRun, TrainingError
from rightreasons.evidence import Decisions, Evidence
from rightreasons.extraction import extract, named_cohorts
from rightreasons.extraction.severities import calibrate
from rightreasons.files import read_json, write_json
from rightreasons.measurements import load_measurement, made_from, save_measurement, scalars
from rightreasons.models.batched import train_batched
from rightreasons.models.classifier import Classifier
from rightreasons.models.training import CURVES, evaluate, train
from rightreasons.progress import track
from rightreasons.stats.resampling import task_rng
from rightreasons.study.engines import Task
from rightreasons.study.folder import (
    DONE,
    EXTRACTED,
    FAILED,
    PLANNED,
    ROW,
    RUN,
    RUNNING,
    Study,
    Unmeasured,
    locked,
    now,
    read_measurement,
    write_table,
)
from rightreasons.study.performance import INTERNAL, Performance, performance
from rightreasons.study.plan import BROUGHT, PLAIN, AuditPlan, Calibration
from rightreasons.study.planner import load, outputs_of
from rightreasons.study.starting import begin
from rightreasons.study.trainings import settings_of_method

WORK = "work"  # folder of a unit where a mitigation keeps what it is at
SILENT = "the worker ended without a word: it, or its driver, was killed"
PACKAGES = ("rightreasons", "torch", "numpy", "scipy", "pandas", "zarr", "scikit-learn", "timm")


def work(place: Path | Study, task: Task) -> Literal["done", "failed"]:
    """Do a task of a study, given by its folder; an error is kept in run.json of its units and said in one word."""
    if isinstance(place, Study):
        study = place
    else:
        study = Study.open(Path(place))
    if task.step == "extract":
        return _extract_piece(study, task)
    with locked(study.paths(task.units)):
        runs = [_Run(study, unit) for unit in task.units]
        todo = [run for run in runs if task.step != "all" or study.row(run.unit) is None]
        for run in todo:
            run.begin(task.step)
        with _Kept(todo) as kept, _threads(study.plan.units[task.units[0]].threads):
            _do(study, task, todo)
    return "failed" if kept.error else "done"


def _extract_piece(study: Study, task: Task) -> Literal["done", "failed"]:
    """A piece is locked by itself, so that several workers extract one unit; only an error is written to the unit's run.json."""
    (unit,) = task.units
    lo, hi = task.pieces or (0, 0)
    threads = study.plan.units[unit].threads
    with locked(study.paths(task.units), f"lock-{task.cohort}-{lo}-{hi}"), _Kept([]) as kept, _threads(threads):
        _Run(study, unit).extract_piece(task)
    if kept.error is None:
        return "done"
    with locked(study.paths(task.units)):
        run = _Run(study, unit)
        run.begin(task.step)
        run.fail(kept.error)
    return "failed"


@contextmanager
def _threads(number: int | None) -> Iterator[None]:
    if number is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class _Kept:
    """Whatever error a unit's own code raises is that unit's result: it is kept, and goes no further."""

    def __init__(self, runs: list[_Run]) -> None:
        self.runs = runs
        self.error: Exception | None = None

    def __enter__(self) -> _Kept:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        if not isinstance(error, Exception):
            return False  # an interrupt ends the worker
        self.error = error
        for run in self.runs:
            run.fail(error)
            run.study.held.errors[run.unit] = error
        return True


def _do(study: Study, task: Task, todo: list[_Run]) -> None:
    if task.step == "train":
        train_group(study, todo)
    if task.step == "calibrate":
        todo[0].calibrate(study.plan.severities[task.calibration])
    for run in todo:
        if task.step == "all":
            run.train()
            run.extract()
            run.measure()
            run.finish()
        elif run.record["status"] != FAILED:
            run.pause()


def train_group(study: Study, runs: list[_Run]) -> None:
    """Train units: one by one, or as one batched model where the plan says so."""
    if not runs or not runs[0].plan.batched:
        for run in runs:
            run.train()
        return
    began = time.perf_counter()
    for run, model in zip(runs, _train_as_one(study, runs), strict=True):
        if isinstance(model, Exception):  # this member diverged; the others are whole
            run.fail(model)
        else:
            run.note(train=(time.perf_counter() - began) / len(runs))


def _train_as_one(study: Study, runs: list[_Run]) -> list[Any]:
    """The models of a group, each in the folder of its unit, or why one has none."""
    starts, cohort = [run.start() for run in runs], study_cohort(study, runs[0].plan.cohort)
    settings, threads, method = [run.settings() for run in runs], runs[0].plan.threads, runs[0].plan.method
    if method == PLAIN:
        return list(train_batched(starts, cohort, settings, folders=[run.folder / "model" for run in runs], threads=threads))
    module = families.member("mitigations", method)
    decoding, usual = study.plan.decoding, families.settings_of(module.mitigate)
    given = []
    for run, own in zip(runs, settings, strict=True):
        every = {**decoding, **own, **run.starting_settings(usual)}
        given.append({key: value for key, value in every.items() if key in usual})
    rngs = [task_rng(run.plan.seed, f"mitigation {method}") for run in runs]
    trained = list(
        module.together(starts, cohort, given, rngs=rngs, folders=[run.folder / WORK for run in runs], threads=threads)
    )
    for run, model in zip(runs, trained, strict=True):
        if not isinstance(model, Exception):
            run.keep(model)
    for run in runs:  # not before all are kept: a second attempt goes on with what is there
        shutil.rmtree(run.folder / WORK, ignore_errors=True)
    return trained


class _Run:
    """One unit at work; its lock is held."""

    def __init__(self, study: Study, unit: str) -> None:
        self.study, self.unit = study, unit
        self.plan = study.plan.units[unit]
        self.folder = study.path(unit)
        self.record: dict[str, Any] = study.run(unit)
        self.before = self.record.get("error")  # of an earlier attempt

    # ---- run.json ------------------------------------------------------------------------------------------------------

    def begin(self, step: str) -> None:
        attempts = self.record["attempts"]
        if self.record["status"] == RUNNING and attempts and not attempts[-1]["cause"]:
            attempts[-1]["cause"] = SILENT
        attempts.append({"time": now(), "step": step, "pid": os.getpid(), "host": socket.gethostname(), "did": [], "cause": ""})
        self.record = {
            "unit": self.unit,
            "status": RUNNING,
            "plan": self.plan.model_dump(mode="json"),
            "seeds": {"unit": self.plan.seed, "study": self.study.plan.seed},
            "code": self.study.plan.code,
            "packages": _packages(),
            "device": _device(),
            "started": self.record.get("started") or now(),
            "finished": "",
            "times": self.record.get("times", {}),
            "attempts": attempts,
            "error": None,
        }
        self._write()

    def note(self, **seconds: float) -> None:
        """Steps that this attempt did, and how long they took."""
        self.record["times"] |= seconds
        self.record["attempts"][-1]["did"] += list(seconds)
        self._write()

    def pause(self) -> None:
        """A part is done and the unit is not."""
        self.record["status"] = PLANNED
        self.record["attempts"][-1]["cause"] = "part done"
        self._write()

    def fail(self, error: BaseException) -> None:
        text = "".join(traceback.format_exception(error))
        self.record |= {"status": FAILED, "finished": now()}
        self.record["error"] = {"type": type(error).__name__, "message": str(error), "traceback": text}
        self.record["attempts"][-1]["cause"] = f"{type(error).__name__}: {error}"
        self._write()

    def _write(self) -> None:
        write_json(self.folder / RUN, self.record)

    # ---- training ------------------------------------------------------------------------------------------------------

    def start(self) -> Classifier:
        """The network that training begins with: the architecture at its first weights, or another unit's network.

        A method that trains anew finds the first weights of a network itself: `starting_settings` tells it which.
        """
        if not self.plan.start:
            return load(self.plan.load, self.plan.seed)
        network = self._model_of(self.plan.start)
        if self.plan.weights == "given" or self.plan.method != PLAIN:
            return network
        values = outputs_of(self.plan.target, study_cohort(self.study, self.plan.cohort))
        classes = values if self.plan.target else network.classes
        started = begin(network, self._weights, classes, task_rng(self.plan.seed, "starting weights"))
        started.card["name"] = self.unit
        return started

    @property
    def _weights(self) -> str | None:
        return None if self.plan.weights == "card" else self.plan.weights

    def starting_settings(self, known: Mapping[str, Any]) -> dict[str, Any]:
        """The setting `start` of a method that would else go back to the first weights."""
        if self.plan.start and "start" in known:
            return {"start": self._weights}
        return {}

    def _model_of(self, unit: str) -> Classifier:
        if unit in self.study.held.models:
            return self.study.held.models[unit]
        place = self.study.path(unit) / "model"
        if not (place / "model.json").exists():
            error = self.study.run(unit).get("error")
            why = "it is not trained yet"
            if error:
                why = f"{error['type']}: {error['message']}"
            raise TrainingError(f"the model of {unit}, which this unit needs, is not there: {why}")
        return Classifier.open(place)

    def settings(self) -> dict[str, Any]:
        """Keywords of `train`."""
        return {**self.plan.train, "threads": self.plan.threads}

    def train(self) -> None:
        if self.plan.method == BROUGHT:
            return
        place = self.folder / "model"
        if (place / "model.json").exists():
            shutil.rmtree(self.folder / WORK, ignore_errors=True)
            return
        if self.plan.batched:  # its group was trained before, all but this member
            raise TrainingError(f"not trained with its group: {(self.before or {}).get('message', 'no error was kept')}")
        began = time.perf_counter()
        self.record["attempts"][-1]["training"] = True  # told before it is done: an attempt that dies here has trained
        self._write()
        cohort = study_cohort(self.study, self.plan.cohort)
        if self.plan.method == PLAIN:
            settings = {**self.settings(), **self.study.plan.decoding}
            if "stopping" in settings:
                settings["stopping"] = cohort.on(settings["stopping"])
            train(self.start(), cohort, folder=place, **settings)
        else:
            self._mitigate(cohort)
        self.note(train=time.perf_counter() - began)

    def _mitigate(self, cohort: Cohort) -> None:
        """A method of `mitigations/` keeps what it likes in a folder of its own; of that only the curves stay."""
        mitigate = families.member("mitigations", self.plan.method).mitigate
        first, work = self.start(), self.folder / WORK
        rng = task_rng(self.plan.seed, f"mitigation {self.plan.method}")
        usual = {**families.settings_of(mitigate), **settings_of_method(self.plan.method)}
        every = {**self.study.plan.decoding, **self.settings(), **self.starting_settings(usual), "folder": work}
        given = {key: value for key, value in every.items() if key in usual}
        for calibration in self.study.calibrations_of(self.unit):
            given["severities"] = str(self.study.folder / calibration.file)
        if self.plan.references:
            given["references"] = {}
            for role, units in self.plan.references.items():
                given["references"][role] = list(map(self._model_of, units))
        model = mitigate(first, cohort, rng=rng, **given)
        if self.plan.start and self.plan.weights == "given":
            model.used = frozenset(model.used) | frozenset(first.used)
        self.keep(model)
        shutil.rmtree(work, ignore_errors=True)

    def keep(self, model: Classifier) -> None:
        """Save the model of a mitigation; of what it left in its own folder the curves go with it."""
        place, curves = self.folder / "model", self.folder / WORK / CURVES
        place.mkdir(parents=True, exist_ok=True)
        if curves.exists():
            shutil.copy(curves, place / CURVES)
        model.save(place)

    def calibrate(self, calibration: Calibration) -> None:
        """Severities of the study's perturbations, on this unit's model."""
        began = time.perf_counter()
        device = "cuda" if torch.cuda.is_available() else "cpu"
        reference = None
        if calibration.reference:
            reference = self._model_of(calibration.reference).to(device)
        cohort = study_cohort(self.study, self.plan.cohort)
        if cohort.has("val"):
            rows = cohort
        else:
            rows = cohort.on("audit")
        model, place = self._model_of(self.unit).to(device), self.study.folder / calibration.file
        calibrate(model, rows, reference=reference, out=place, **calibration.settings)
        self.note(calibrate=time.perf_counter() - began)

    # ---- extraction ----------------------------------------------------------------------------------------------------

    def extract(self) -> None:
        """Evidence of every cohort, and predictions as tables."""
        named, needs = self._named(), self.study.needs(self.unit)
        arrays = sorted({f"{need.cohort}: {need.array}" for need in needs})
        wanted = {"arrays": arrays, "cohorts": {name: cohort.fingerprint for name, cohort in named.items()}}
        if self.study.plan.brought:  # no id of a unit would change with its labels and attributes
            wanted["rows"] = self.study.plan.cohorts[self.plan.cohort].hash
        if self.plan.method == BROUGHT:
            wanted["model"] = self._model_of(self.unit).fingerprint
        marker = self.folder / EXTRACTED
        if marker.exists() and read_json(marker) == wanted:
            return
        began, classifier = time.perf_counter(), self._classifier()
        place = self.folder / "evidence"
        is_made_here = not self.study.plan.brought
        if is_made_here and (place / "zarr.json").exists() and _is_of_other_rows(Evidence.open(place), named):
            shutil.rmtree(place)  # an external cohort has changed: what was said of its old rows can be made again
        self._join_pieces(classifier, named)
        evidence = extract(classifier, named, needs, out=place, **self._extraction(classifier))
        for name in evidence.cohorts:
            if "logits" in evidence.arrays(name):
                write_table(predictions(evidence, name), self.folder / "predictions" / f"{name}.parquet")
        write_json(marker, wanted)
        self.note(extract=time.perf_counter() - began)

    def _extraction(self, classifier: Classifier) -> dict[str, Any]:
        """Keywords of `extract`; a brought model learnt from the rows that the table calls `train`, unless it knows its own."""
        settings = {"threads": self.plan.threads, **self.study.plan.extract}
        data = study_cohort(self.study, self.plan.cohort)
        if self.unit == self.study.plan.brought and classifier.training is None and data.has("train"):
            settings["training"] = data.on("train")
        return settings

    def extract_piece(self, task: Task) -> None:
        """Some chunks of one cohort, as evidence of their own; `extract` joins them."""
        lo, hi = task.pieces or (0, 0)
        chunk = self.study.plan.extract["chunk"]
        cohort = self._named()[task.cohort]
        rows = np.arange(lo * chunk, min(hi * chunk, len(cohort)))
        place = self.folder / "pieces" / f"{task.cohort}-{lo}-{hi}"
        needs = []
        for need in self.study.needs(self.unit):
            if need.cohort == task.cohort:
                needs.append(need)
        piece = {task.cohort: cohort.select(rows)}
        classifier = self._classifier()
        extract(classifier, piece, needs, out=place, **self._extraction(classifier))

    def _join_pieces(self, classifier: Classifier, named: Mapping[str, Cohort]) -> None:
        """Copy what pieces hold into the unit's evidence, chunk by chunk."""
        pieces = sorted((self.folder / "pieces").glob("*/zarr.json"))
        if not pieces:
            return
        whole = extract(classifier, named, [], out=self.folder / "evidence", **self.study.plan.extract)
        chunk, batch = self.study.plan.extract["chunk"], self.study.plan.extract["batch"]
        for file in pieces:
            name, lo, _ = file.parent.name.rsplit("-", 2)
            piece = Evidence.open(file.parent)
            whole.add(name, named[name])
            for array in piece.arrays(name):
                part = piece.begun(name, array)
                if part is None:
                    continue
                stored = whole.begin(name, array, part.shape[1:], part.dtype, chunk, batch=batch)
                for k in range(0, part.shape[0], chunk):
                    values = np.asarray(part[k : k + chunk])
                    stored[int(lo) * chunk + k : int(lo) * chunk + k + len(values)] = values
        shutil.rmtree(self.folder / "pieces")

    def _named(self) -> dict[str, Cohort]:
        """The splits of the unit's own cohort, its twins, and the external cohorts."""
        inside = named_cohorts(study_cohort(self.study, self.plan.cohort), self.study.plan.seed)
        return {**inside, **{name: study_cohort(self.study, name) for name in self.study.external(self.unit)}}

    def _classifier(self) -> Classifier:
        classifier = self._model_of(self.unit)
        if self.unit != self.study.plan.brought:
            classifier.card["name"] = self.unit
        return classifier

    # ---- measuring -----------------------------------------------------------------------------------------------------

    def measure(self) -> None:
        """What each audit says of this unit, and its performance; a file made with other settings is made again."""
        began = time.perf_counter()
        evidence = Evidence.open(self.folder / "evidence")
        audits = self._audits()
        # Of a brought model nothing else tells how far it is; a sweep has its own table, and its workers are silent.
        kinds = [self.study.plan.audits[name].method for name in audits]
        for name in track(audits, f"audits of {self.unit}", kinds=kinds) if self.study.plan.brought else audits:
            start = time.perf_counter()
            self._measure_audit(name, self.study.plan.audits[name], evidence)
            self.record.setdefault("measured", {})[name] = time.perf_counter() - start
        path, source = self.folder / "measurements" / "performance.npz", self._made_from(self.study.plan.performance)
        if made_from(path) != source:
            decisions = {name: evidence.on(name).decisions() for name in (INTERNAL, *self.study.external(self.unit))}
            save_measurement(performance(decisions, seed=self.study.plan.seed, **self.study.plan.performance), path, **source)
        self.note(measure=time.perf_counter() - began)

    def _audits(self) -> list[str]:
        """The audits that look at this unit."""
        return [name for name in self.study.plan.audits if self.study.roles(self.unit, name)]

    def _measure_audit(self, name: str, audit: AuditPlan, evidence: Evidence) -> None:
        path = self.folder / "measurements" / f"{name}.npz"
        source = self._made_from({"method": audit.method, "settings": audit.settings})
        if made_from(path) == source:
            return
        module = families.member("audits", audit.method)
        rng = task_rng(self.study.plan.seed, f"{audit.method} measure")
        try:
            measured = module.measure(evidence, rng=rng, **families.accepted(module.measure, self.study.settings(name)))
        except (NotRun, EvidenceError) as error:
            measured = Unmeasured(str(error), getattr(error, "lacks", ""))
        save_measurement(measured, path, **source)

    def _made_from(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        plan = self.study.plan
        external = {name: plan.cohorts[name].hash for name in plan.external}
        deciding: dict[str, Any] = {"settings": settings, "seed": plan.seed, "external": external}
        if plan.brought:  # no id of a unit would change with the model or its rows
            deciding["measured"] = plan.measured
        return json.loads(json.dumps(deciding, default=str))

    def finish(self) -> None:
        """The row, last of all."""
        columns: dict[str, Any] = scalars(load_measurement(Performance, self.folder / "measurements" / "performance.npz"))
        for name in self._audits():
            method = self.study.plan.audits[name].method
            measured = read_measurement(method, self.folder / "measurements" / f"{name}.npz")
            for key, value in scalars(measured).items():
                if key != "model":
                    columns[f"{name}_{key}"] = value
        if self.plan.method == BROUGHT:
            card = self._model_of(self.unit).card
        else:
            card = read_json(self.folder / "model" / "model.json")["card"]
        seconds = self._epochs()
        if self.plan.method == PLAIN:
            self.record["times"]["train"] = sum(seconds)  # over all attempts
        row = {
            **self.plan.columns,
            "status": DONE,
            "epochs": len(seconds),
            "selected_epoch": card.get("selected_epoch"),
            **columns,
            **{f"time_{step}": seconds for step, seconds in self.record["times"].items()},
            "time_started": self.record["started"],
            "time_finished": now(),
        }
        self.record |= {"status": DONE, "finished": row["time_finished"]}
        self.record["attempts"][-1]["cause"] = "done"
        self._write()
        write_json(self.folder / ROW, {"unit": self.unit, "measured": self.study.plan.measured, "columns": row})

    def _epochs(self) -> list[float]:
        """Seconds of every epoch; a method without epochs has left no curves."""
        file = self.folder / "model" / CURVES
        if file.exists():
            curves = pd.read_csv(file)
        else:
            curves = pd.DataFrame()
        return [float(seconds) for seconds in curves.get("time_seconds", np.zeros(len(curves)))]


# ---- what the steps use --------------------------------------------------------------------------------------------------


@cache
def _read_cohort(folder: Path, name: str, content: str) -> Cohort:
    return Study.open(folder).cohort(name)


def study_cohort(study: Study, name: str) -> Cohort:
    """A cohort of the study, read and hashed once per process."""
    if name in study.held.cohorts:
        return study.held.cohorts[name]
    return _read_cohort(study.folder, name, study.plan.cohorts[name].hash)


def predictions(evidence: Evidence, name: str) -> pd.DataFrame:
    """id, label and attributes in their own values, and the probability of every class; one row a decision."""
    decided = evidence.on(name).decisions()
    rows = decided.cohort
    values = {"id": rows.id, "label": np.array([*rows.classes, None], dtype=object)[rows.label]}
    for attribute in map(rows.attribute, rows.attributes):
        column: np.ndarray = attribute.values
        if attribute.kind == "categorical":
            column = np.array([*attribute.levels, None], dtype=object)[attribute.values]
        values[attribute.name] = column
    p = decided.probability
    return pd.DataFrame(values | {f"p_{value}": p[:, k] for k, value in enumerate(evidence.card.classes)})


def _is_of_other_rows(evidence: Evidence, named: Mapping[str, Cohort]) -> bool:
    return any(evidence.fingerprint(name) != named[name].fingerprint for name in evidence.cohorts if name in named)


def preload(study: Study) -> None:
    """Import what the study's networks and audits need and hash its images, so that workers forked afterwards need not.

    No thread of ours may be left running here: a fork would lose it. (Arrow and jemalloc look after their own.)
    """
    for name, planned in study.plan.cohorts.items():
        cohort = study_cohort(study, name)
        for part in [cohort] if planned.external else named_cohorts(cohort, study.plan.seed).values():
            part.fingerprint  # noqa: B018  kept with the table that all its views share
    for unit in study.plan.units.values():
        home = unit.load["model"].partition(":")[0]
        importlib.import_module({"hf": "transformers", "monai": "monai.networks.nets"}.get(home, home))
        if unit.method != PLAIN:
            families.member("mitigations", unit.method)
    for audit in study.plan.audits.values():
        families.member("audits", audit.method)
    for name in ("pyarrow.dataset", "pyarrow.parquet", "PIL.ImageFile"):  # what reading tables and images imports late
        importlib.import_module(name)
    # Numba reads its kernels from its cache when they are first called.
    label = np.arange(40) % 2
    cohort = Cohort.from_columns({"id": [f"r{row}" for row in range(40)], "label": label}, label="label")
    evaluate(np.eye(2)[label], label, label)
    performance({INTERNAL: Decisions(cohort, label, np.eye(2)[label])}, B=2)


@cache
def _packages() -> dict[str, str]:
    return {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}}


def _device() -> str:
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    return f"{platform.machine()} CPU, {torch.get_num_threads()} threads"
