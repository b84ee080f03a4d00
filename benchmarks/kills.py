"""Training and extraction killed (SIGKILL) at 20 moments each and started again, against an undisturbed run: the same bytes?"""

from __future__ import annotations

import json
import multiprocessing
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from rich.console import Console
from rich.table import Table

from rightreasons.data import planted
from rightreasons.evidence import Evidence
from rightreasons.extraction import extract
from rightreasons.models.classifier import Classifier
from rightreasons.models.training import train
from rightreasons.progress import track

NEEDS_GPU = False

KILLS = 20
PRELOADED = ["benchmarks.kills", "rightreasons.models.small", "rightreasons.stats._kernels"]


@dataclass(frozen=True)
class Job:
    """What is killed, and what must be equal afterwards; `run` takes the folder of the data and its own."""

    run: Callable[[Path, Path], None]
    result: Callable[[Path], dict[str, bytes]]


@dataclass(frozen=True)
class Outcome:
    """How many runs were killed while they ran, and how many of them ended with equal bytes."""

    kills: int
    equal: int
    seconds: float


def run_training(data: Path, target: Path) -> None:
    """A small CNN with augmentation, 12 epochs on 400 digits."""
    cohort = planted.digits(data, n=400, pixels=16)
    start = Classifier.load("rightreasons.models.small:small_cnn", num_classes=2, size=(16, 16), width=8)
    train(start, cohort, epochs=12, batch=32, patience=None, augment="flip_and_shift", folder=target, threads=1, device="cpu")


def trained(target: Path) -> dict[str, bytes]:
    """Weights, card and metrics by epoch."""
    curves = pd.read_csv(target / "curves.csv").drop(columns="time_seconds").to_csv().encode()
    return {"curves": curves, **{name: (target / name).read_bytes() for name in ("model.safetensors", "model.json")}}


def run_extraction(data: Path, target: Path) -> None:
    """Logits and features of 400 digits in chunks of 8 rows."""
    cohort = planted.digits(data, n=400, pixels=16)
    model = Classifier.load("rightreasons.models.small:small_cnn", num_classes=2, size=(16, 16), width=8)
    extract(model, {"test": cohort}, ["logits", "features"], out=target, batch=8, chunk=8, threads=1, device="cpu")


def extracted(target: Path) -> dict[str, bytes]:
    """Every array, the rows it belongs to, and every chunk file as it lies on disk."""
    view = Evidence.open(target).on("test")
    arrays = {name: view[name].tobytes() for name in ("logits", "features")}
    # What a killed write leaves behind ends in .partial and is read by nobody.
    stored = [p for name in arrays for p in (target / "test" / name / "c").rglob("*") if p.is_file() and p.suffix != ".partial"]
    return {"rows": view.cohort.fingerprint.encode(), **arrays, **{str(p.relative_to(target)): p.read_bytes() for p in stored}}


JOBS = {"training": Job(run_training, trained), "extraction": Job(run_extraction, extracted)}


def main() -> None:
    """Print the table and, as the last line, the JSON object."""
    os.environ["RIGHTREASONS_QUIET"] = "1"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    with tempfile.TemporaryDirectory() as folder:
        outcomes = {name: kill_and_resume(job, Path(folder) / name, context) for name, job in JOBS.items()}
    table = Table(title=f"{KILLS} times SIGKILL, then started again")
    for heading in ("what", "seconds undisturbed", "killed", "equal to the undisturbed run"):
        table.add_column(heading)
    for name, found in outcomes.items():
        table.add_row(name, f"{found.seconds:.1f}", str(found.kills), f"{found.equal} of {found.kills}")
    Console().print(table)
    told = {name: {"kills": found.kills, "equal": found.equal} for name, found in outcomes.items()}
    print(
        json.dumps(
            {
                "name": "kills",
                "measured": "killed runs whose results, after a second start, equal an undisturbed run byte for byte",
                "kills": sum(found.kills for found in outcomes.values()),
                "equal": all(found.equal == KILLS for found in outcomes.values()),
                **told,
                "versions": {"python": platform.python_version(), "numpy": np.__version__, "torch": torch.__version__},
            }
        )
    )


def kill_and_resume(job: Job, folder: Path, context: multiprocessing.context.ForkServerContext, kills: int = KILLS) -> Outcome:
    """Kill runs at moments spread over the length of an undisturbed one, finish them, and compare."""

    def start(target: Path) -> multiprocessing.process.BaseProcess:
        process = context.Process(target=job.run, args=(folder / "data", target))
        process.start()
        return process

    def finish(target: Path) -> None:
        process = start(target)
        process.join()
        if process.exitcode != 0:
            raise RuntimeError(f"the run in {target} ended with status {process.exitcode}")

    finish(folder / "first")  # makes the data; what follows is timed with everything imported and compiled
    began = time.perf_counter()
    finish(folder / "whole")
    seconds = time.perf_counter() - began
    expected, equal, rng = job.result(folder / "whole"), 0, np.random.default_rng(0)
    for number in track(range(kills), f"kill {folder.name}"):
        target, length = folder / f"killed-{number}", seconds
        while not _killed(start(target), (number + rng.random()) / kills * length):
            shutil.rmtree(target)  # it was faster than the signal
            length *= 0.8
        finish(target)
        equal += job.result(target) == expected
    return Outcome(kills, equal, seconds)


def _killed(process: multiprocessing.process.BaseProcess, after: float) -> bool:
    """True where the process was still running."""
    process.join(after)
    process.kill()
    process.join()
    return process.exitcode != 0


if __name__ == "__main__":
    main()
