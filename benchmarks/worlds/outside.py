"""The same worlds through tools of other people, which need environments of their own.

    python -m venv A && A/bin/pip install shortkit-ml==0.1.0
    python -m venv C && C/bin/pip install "cleanlab[image]==2.9.0" "datasets>=3" "numpy>=2"
    python -m benchmarks.worlds.outside build/worlds/seed-1 --shortkit A/bin/python --cleanlab C/bin/python

ShortKit-ML reads the features that the worlds stored. Cleanlab's check looks at training images and labels, made again here, and
at no model: its score belongs to a world and counts for each of its models. Answers lie in `outside.jsonl` beside the worlds and
are not asked for twice.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from benchmarks.worlds.kinds import SIDE, World, worlds

from rightreasons.data.images import Geometry, load
from rightreasons.progress import track

ANSWERS = "outside.jsonl"
THERE = Path(__file__).with_name("_there.py")
Job = dict[str, Any]


def main(arguments: list[str] | None = None) -> None:
    """Ask what is not yet answered."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.worlds.outside", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="of one seed's worlds")
    parser.add_argument("--shortkit", default="", help="python of an environment with ShortKit-ML")
    parser.add_argument("--cleanlab", default="", help="python of an environment with cleanlab[image]")
    parser.add_argument("--workers", type=int, default=1)
    given = parser.parse_args(arguments)
    known = {(a["tool"], a["world"], a.get("model"), a.get("attribute")) for a in answers(given.folder)}
    names = sorted(path.stem for path in given.folder.glob("*.json"))
    tasks = []
    for name in names:
        asked = _shortkit(given.folder, name) if given.shortkit else []
        asked = [job for job in asked if (job["tool"], name, job["model"], job["attribute"]) not in known]
        tasks += [(given.shortkit, name, asked)] * bool(asked)
        if given.cleanlab and ("Cleanlab", name, None, None) not in known:
            tasks.append((given.cleanlab, name, [{"tool": "Cleanlab", "world": name}]))
    made = by_name(names)
    with ThreadPoolExecutor(given.workers) as pool, (given.folder / ANSWERS).open("a") as file:
        waiting = [pool.submit(ask, python, made.get(name), jobs) for python, name, jobs in tasks]
        for done in track(waiting, "other tools"):
            file.writelines(json.dumps(answer) + "\n" for answer in done.result())
            file.flush()


def answers(folder: Path) -> list[Job]:
    path = folder / ANSWERS
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def joined(rows: pd.DataFrame, folder: Path) -> pd.DataFrame:
    """Rows with what the other tools said: columns `<tool>` (the larger, the more suspicious) and `<tool> verdict`."""
    told = {(a["tool"], a["world"], a.get("model"), a.get("attribute")): a for a in answers(folder)}
    new = rows.copy()
    for tool in ("ShortKit-ML", "Cleanlab"):
        if not any(key[0] == tool for key in told):
            continue
        by_model = tool == "ShortKit-ML"
        keys = [
            (tool, row["world"], int(row["model"]) if by_model else None, str(row.get("attribute", "cue")) if by_model else None)
            for _, row in rows.iterrows()
        ]
        found = [told.get(key) for key in keys]
        new[tool] = [a["score"] if a else np.nan for a in found]
        new[f"{tool} verdict"] = [("shortcut" if a["called"] else "no evidence") if a else None for a in found]
    return new


def by_name(names: list[str]) -> dict[str, World]:
    """Stored worlds by name; a name ends with the number that its seed made of it."""
    numbers = {int(name.rpartition("-")[2]) for name in names}
    architectures = tuple(os.environ.get("ARCHITECTURES", "cnn,vit").split(","))  # as when they were run
    found: dict[str, World] = {}
    for seed in {number // 10_000 for number in numbers}:
        last = max(number for number in numbers if number // 10_000 == seed) % 10_000
        found |= {world.name: world for world in worlds(2 * (last + 1), seed, architectures)}
    return found


def ask(python: str, world: World | None, jobs: list[Job]) -> list[Job]:
    """Answers of one tool on one world."""
    with tempfile.TemporaryDirectory() as folder:
        for job in jobs:
            if "arrays" not in job:
                if world is None:
                    raise SystemExit(
                        f"{job['world']}: no world of this name is made from its seed; was it made by an older version?"
                    )
                job["arrays"] = _training_images(world, Path(folder))
        asked, told = Path(folder) / "jobs.json", Path(folder) / "answers.jsonl"
        asked.write_text(json.dumps(jobs))
        done = subprocess.run([python, str(THERE), str(asked), str(told)], capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{jobs[0]['tool']} on {jobs[0]['world']} failed:\n{done.stderr[-2000:]}")
        return [{k: v for k, v in json.loads(line).items() if k != "arrays"} for line in told.read_text().splitlines()]


def _shortkit(folder: Path, name: str) -> list[Job]:
    """One job for each model and attribute of the world's rows."""
    path = folder / f"{name}.npz"
    if not path.is_file():
        return []
    pairs = {(int(row["model"]), str(row["attribute"])) for row in json.loads((folder / f"{name}.json").read_text())}
    common = {"tool": "ShortKit-ML", "world": name, "arrays": str(path.resolve())}
    return [common | {"model": k, "attribute": a} for k, a in sorted(pairs)]


def _training_images(world: World, folder: Path) -> str:
    rows = world.make(folder / "world").on("train")
    geometry = Geometry((SIDE, SIDE))
    path = folder / "images.npz"
    np.savez(path, images=np.stack([load(image, geometry, root=rows.root) for image in rows.image]), label=rows.label)
    return str(path)


if __name__ == "__main__":
    main()
