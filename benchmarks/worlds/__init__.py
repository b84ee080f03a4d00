"""How often are the verdicts wrong? Planted worlds where the truth is known, every audit, the case, and what people use today.

`DEVICE=cuda WORLDS=120 TESTS=8 WORKERS=14 SEED=1 OUT=build/worlds make bench NAME=worlds`. One JSON file of rows for every world
(and an .npz with features of its models, for tools installed apart); worlds that are there are not run again, and none is begun
after SECONDS. SEED=0 tunes, others report.
"""

from __future__ import annotations

import io
import json
import os
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pandas as pd
from benchmarks.worlds import tables
from benchmarks.worlds.kinds import World, worlds
from rich.console import Console
from rich.table import Table

from rightreasons.files import write
from rightreasons.progress import track

NEEDS_GPU = False
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")


def main(count: int = 120, tests: int = 8, name: str = "worlds", out: str = "build/worlds") -> None:
    """Print the tables and, as the last line, the JSON object."""
    seed = int(os.environ.get("SEED", "1"))
    folder = Path(os.environ.get("OUT", out)) / f"seed-{seed}"
    wanted = drawn(os.environ.get("FAMILY", "planted"), int(os.environ.get("WORLDS", str(count))), seed)
    rows = run(wanted, folder, int(os.environ.get("TESTS", str(tests))), float(os.environ.get("SECONDS", "inf")))
    if not len(rows):
        raise SystemExit(f"no world of {len(wanted)} is finished in {folder}: give more SECONDS")
    show_truth(rows)
    show_seconds(rows)
    told = tables.show(rows)
    print(json.dumps({"name": name, "measured": "verdicts on models of known reliance", "seed": seed, **told}))


def drawn(family: str, count: int, seed: int) -> list[World]:
    """The worlds of a family: planted, scenes (planted, of kinds that confound), real, or all of them in turn."""
    from benchmarks.worlds.scenes import scene_worlds

    small = tuple(os.environ.get("ARCHITECTURES", "cnn,vit").split(","))
    large = tuple(os.environ.get("NETWORKS", "resnet18,efficientnet_lite0,vit_ti").split(","))
    families = {
        "planted": lambda n: worlds(n, seed, small),
        "scenes": lambda n: scene_worlds(n, seed, "planted", small),
        "real": lambda n: scene_worlds(n, seed, "real", large),
    }
    if family != "all":
        return families[family](count)
    found = [families["real"](count // 2), families["scenes"](count // 3), families["planted"](count - count // 2 - count // 3)]
    places = [(k / len(of), world) for of in found for k, world in enumerate(of)]
    return [world for _, world in sorted(places, key=lambda place: place[0])]


def run(wanted: list[World], folder: Path, tests: int, seconds: float) -> pd.DataFrame:
    """What is in the folder, and what is missing there as far as the seconds reach."""
    folder.mkdir(parents=True, exist_ok=True)
    missing = [world for world in wanted if not (folder / f"{world.name}.json").exists()]
    end = time.monotonic() + seconds
    workers = int(os.environ.get("WORKERS", str(os.cpu_count() or 1)))
    os.environ.update({name: os.environ.get(name, "1") for name in THREADS})  # a worker is a core
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_silence) as pool:
        waiting = [pool.submit(_world, world, folder, tests, end) for world in missing]
        failed = [done.exception() for done in track(as_completed(waiting), "worlds", total=len(waiting)) if done.exception()]
    if failed:  # the others are stored all the same
        raise RuntimeError(f"{len(failed)} of {len(waiting)} worlds failed; run it again for those") from failed[0]
    return read(wanted, folder)


def read(wanted: list[World], folder: Path) -> pd.DataFrame:
    """The rows of the worlds that are finished."""
    found = [json.loads((folder / f"{w.name}.json").read_text()) for w in wanted if (folder / f"{w.name}.json").exists()]
    return pd.DataFrame([row for rows in found for row in rows])


def _silence() -> None:
    """Of a dozen workers only the pool's own bar is shown."""
    os.environ["RIGHTREASONS_QUIET"] = "1"


def _world(world: World, folder: Path, tests: int, end: float) -> None:
    from benchmarks.worlds.judge import judged  # torch, in the workers alone

    if time.monotonic() > end:
        return
    found = judged(world, tests)
    packed = io.BytesIO()
    np.savez_compressed(packed, **found.arrays)  # type: ignore[arg-type]
    write(folder / f"{world.name}.npz", packed.getvalue())
    write(folder / f"{world.name}.json", json.dumps(found.rows).encode())  # last: it says that the world is finished


def show_truth(rows: pd.DataFrame) -> None:
    """Are the nulls nulls, and are there shortcuts enough?"""
    table = Table(
        "kind", "worlds", "models", "rows", "reliance: median", "95 %", "most", f"of {tables.RELIES:g} or more", "accuracy"
    )
    for kind, of in rows.groupby("kind"):
        reliance = of["reliance"]
        spread = [f"{value:.3f}" for value in (reliance.median(), reliance.quantile(0.95), reliance.max())]
        models = of.groupby(["world", "model"]).ngroups
        many = int((reliance >= tables.RELIES).sum())
        counts = [str(n) for n in (of["world"].nunique(), models, len(of))]
        table.add_row(str(kind), *counts, *spread, str(many), f"{of['accuracy'].mean():.3f}")
    Console(width=160).print(table)


def show_seconds(rows: pd.DataFrame) -> None:
    """Seconds of a world by what they went to, mean over worlds."""
    first = rows.drop_duplicates("world")
    spent = pd.DataFrame(list(first["world seconds"])).assign(architecture=first["architecture"].to_numpy())
    models = rows.groupby("world")["model"].nunique()
    told = spent.groupby("architecture").mean()
    table = Table("architecture", "models a world", *told, "all")
    for architecture, of in told.iterrows():
        names = first.loc[first["architecture"] == architecture, "world"]
        cells = [f"{value:.1f}" for value in (models[names].mean(), *of, of.sum())]
        table.add_row(str(architecture), *cells)
    Console(width=160).print(table)
