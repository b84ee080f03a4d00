"""How often are the verdicts wrong? Planted worlds where the truth is known, every audit, the case, and what people use today.

`WORLDS=240 TESTS=4 WORKERS=16 SEED=1 OUT=build/worlds make bench NAME=worlds`. Worlds in OUT are not run again. The
first seed (SEED=0) tunes, others report.
"""

from __future__ import annotations

import json
import os
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pandas as pd
from benchmarks.worlds import tables
from benchmarks.worlds.kinds import World, worlds

from rightreasons.findings import write_atomically
from rightreasons.progress import track

NEEDS_GPU = False


def main(count: int = 240, tests: int = 4) -> None:
    """Print the tables and, as the last line, the JSON object."""
    seed = int(os.environ.get("SEED", "1"))
    folder = Path(os.environ.get("OUT", "build/worlds")) / f"seed-{seed}"
    architectures = tuple(os.environ.get("ARCHITECTURES", "cnn,vit").split(","))
    wanted = worlds(int(os.environ.get("WORLDS", str(count))), seed, architectures)
    rows = run(wanted, folder, int(os.environ.get("TESTS", str(tests))), float(os.environ.get("SECONDS", "inf")))
    told = tables.show(rows)
    print(json.dumps({"name": "worlds", "measured": "verdicts on models of known reliance", "seed": seed, **told}))


def run(wanted: list[World], folder: Path, tests: int, seconds: float) -> pd.DataFrame:
    """What is in the folder, and what is missing there as far as the seconds reach."""
    folder.mkdir(parents=True, exist_ok=True)
    missing = [world for world in wanted if not (folder / f"{world.name}.json").exists()]
    end = time.monotonic() + seconds
    workers = int(os.environ.get("WORKERS", str(os.cpu_count() or 1)))
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        waiting = [pool.submit(_world, world, folder, tests, end) for world in missing]
        for done in track(as_completed(waiting), "worlds", total=len(waiting)):
            done.result()
    found = [json.loads((folder / f"{w.name}.json").read_text()) for w in wanted if (folder / f"{w.name}.json").exists()]
    return pd.DataFrame([row for rows in found for row in rows])


def _world(world: World, folder: Path, tests: int, end: float) -> None:
    from benchmarks.worlds.judge import judged  # torch, in the workers alone

    if time.monotonic() > end:
        return
    rows: list[dict[str, Any]] = judged(world, tests)
    write_atomically(folder / f"{world.name}.json", json.dumps(rows))
