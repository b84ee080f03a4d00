"""ShorT's simulation (Supp. Note 1): how often is `shortcut` called where there is one, and where there is none?

Every world is a sweep of 25 scales x 5 seeds (`_short_worlds`), and “called” is the verdict of `audits.short` with all of its
conditions. What every world gave is a line of a file in `--results`: a run that was stopped goes on where it was, and lines that
other machines wrote count once their files lie there. `--page` writes the tables of docs/results/short-simulation.md from them.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks._short_told import Row, rewritten, show
from benchmarks._short_worlds import HARDER, Kind, Plan, Sweep, disparities, draw, measurements, source, sweep

from rightreasons.audits import short
from rightreasons.stats import sweeps
from rightreasons.stats.resampling import task_rng

NEEDS_GPU = False
ROOT = Path(__file__).parents[1]
AT_ONCE = 50  # worlds trained as one batched model on a GPU; one by one on a CPU
LEVEL = (0.5, 0.5)

KINDS = (
    Kind("no association", 200, LEVEL, LEVEL),
    Kind("no association, noisier group", 200, LEVEL, LEVEL, harder=HARDER),
    Kind("no association, dealt exactly", 50, LEVEL, LEVEL, dealt=True),
    Kind("0.6 / 0.4", 50, (0.6, 0.6), (0.4, 0.4)),
    Kind("0.7 / 0.3", 50, (0.7, 0.7), (0.3, 0.3)),
    Kind("0.8 / 0.2", 50, (0.8, 0.8), (0.2, 0.2)),
    Kind("0.9 / 0.1", 50, (0.9, 0.9), (0.1, 0.1)),
    Kind("0.9-0.98 / 0.15-0.23", 50, (0.9, 0.98), (0.15, 0.23)),
    Kind("0.4-0.6 (the paper's low)", 50, (0.4, 0.6), (0.4, 0.6)),
    Kind("Fig. S8a", 60, (0.5, 0.15), (0.5, 0.95), steps=20),
)


def main(arguments: list[str] | None = None) -> None:
    """Print the tables and, as the last line, the JSON object."""
    given = options(arguments)
    plan = Plan(given.scales, given.seeds, given.steps)
    chosen = [k for k in KINDS if not given.worlds or k.name in given.worlds]
    stop = time.perf_counter() + given.seconds if given.seconds else float("inf")
    folder = Path(given.results)
    folder.mkdir(parents=True, exist_ok=True)
    common = {"seed": given.seed, "data": "MNIST" if given.mnist else "digits", "plan": asdict(plan)}
    done = stored(folder, common)
    began, machine = time.perf_counter(), torch.cuda.get_device_name() if given.device == "cuda" else "CPU"
    own = {"run": f"{time.time():.0f}", "machine": machine, "workers": given.workers}
    with (folder / f"{given.name}.jsonl").open("a") as file:
        for row in run(chosen, given, plan, done, stop):
            row = common | row | own | {"at": time.perf_counter() - began}
            file.write(json.dumps(row) + "\n")
            file.flush()
            done[row["kind"], row["number"]] = row
    found = {k: [done[key] for key in sorted(done) if key[0] == k.name] for k in KINDS}
    told = show({k: rows for k, rows in found.items() if rows}, len(plan.scales) * plan.seeds)
    if given.page:
        path = Path(given.page)
        path.write_text(rewritten(path.read_text(encoding="utf-8"), found, told), encoding="utf-8")
    print(json.dumps(told))


def options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.short_simulation", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--worlds", nargs="*", default=(), choices=[k.name for k in KINDS], metavar="KIND", help="all by default")
    parser.add_argument("--share", type=float, default=1.0, help="of the worlds of every kind")
    parser.add_argument("--mnist", default="", help="folder with MNIST's idx files; the embedded digits by default")
    parser.add_argument("--results", default=str(ROOT / "build" / "short-simulation"), help="folder of one line a world")
    parser.add_argument("--name", default="worlds", help="of the file there to write to")
    parser.add_argument(
        "--page", nargs="?", const=str(ROOT / "docs" / "results" / "short-simulation.md"), help="write its tables"
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--seconds", type=float, default=0.0, help="begin nothing after so many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scales", type=int, default=Plan.number)
    parser.add_argument("--seeds", type=int, default=Plan.seeds)
    parser.add_argument("--steps", type=int, default=Plan.steps)
    return parser.parse_args([] if arguments is None else arguments)


def stored(folder: Path, common: Row) -> dict[tuple[str, int], Row]:
    """What the files of a folder tell of worlds with these settings, {(kind, number): row}."""
    rows = [json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()]
    return {(r["kind"], r["number"]): r for r in rows if all(r[key] == value for key, value in common.items())}


def run(
    kinds: Sequence[Kind], given: argparse.Namespace, plan: Plan, done: dict[tuple[str, int], Row], stop: float
) -> Iterator[Row]:
    """Rows of the worlds that are not done. A GPU trains many at once and processes judge them; else a process does both."""
    size = (AT_ONCE if not given.mnist else AT_ONCE // 10) if given.device == "cuda" else 1
    groups = []
    for kind in kinds:
        left = [n for n in range(max(1, round(given.share * kind.worlds))) if (kind.name, n) not in done]
        groups += [(kind, left[k : k + size]) for k in range(0, len(left), size)]
    tasks = [(kind, numbers, given.seed, plan, given.mnist, given.device) for kind, numbers in groups]
    with ProcessPoolExecutor(
        given.workers, mp_context=get_context("spawn"), initializer=torch.set_num_threads, initargs=(1,)
    ) as pool:
        if size == 1:
            # A process has one world at a time, so that a run that is stopped has written what it did.
            for start in range(0, len(tasks), given.workers):
                if time.perf_counter() < stop:
                    for rows in pool.map(world_rows, tasks[start : start + given.workers]):
                        yield from rows
            return
        judging: list[Future[Row]] = []  # while the next worlds are trained
        for task in tasks:
            if time.perf_counter() < stop:
                new = [pool.submit(judged, *args) for args in trained(*task)]
                yield from (f.result() for f in judging)
                judging = new
        yield from (f.result() for f in judging)


def world_rows(task: tuple[Any, ...]) -> list[Row]:
    return [judged(*args) for args in trained(*task)]


def trained(
    kind: Kind, numbers: Sequence[int], seed: int, plan: Plan, mnist: str, device: str
) -> list[tuple[str, int, int, Sweep, float]]:
    """The sweeps of some worlds: what `judged` takes. Every world has generators of its own, whatever it is trained beside."""
    began = time.perf_counter()
    parts = [task_rng(seed, f"{kind.name} {n}").spawn(3) for n in numbers]
    of = source(mnist)
    worlds = [draw(kind, n, of, part[0]) for n, part in zip(numbers, parts)]
    found = sweep(worlds, [part[1] for part in parts], plan, device)
    seconds = (time.perf_counter() - began) / len(numbers)
    return [(kind.name, n, seed, s, seconds) for n, s in zip(numbers, found)]


def judged(kind: str, number: int, seed: int, s: Sweep, seconds: float) -> Row:
    """The audit's verdict on one world, and beside it what its parts would have said alone."""
    began = time.perf_counter()
    rng = task_rng(seed, f"{kind} {number}, judged")
    models = measurements(s, rng)
    j = short.conclude(models, rng=rng).judged
    kept, encoding = j.family.kept, j.family.encoding[j.family.kept]
    value = np.array([m.fairness.value[1] for m in j.family.models])[kept]
    null = np.stack([m.fairness.null[1] for m in j.family.models])[kept]
    value_of, low, high = (float(v) for v in j.first.association.estimate[0])
    alone = sweeps.permutation_test(encoding, value, null)  # orientation: the colour, not the training rows' association
    # Models whose decisions do not know the recorded colour: whoever is called here is called by chance.
    value, _, null, _ = disparities(s.redrawn(rng)[kept], s.label, s.colour, rng)
    blind = sweeps.permutation_test(encoding, value, null)
    gap = j.metrics[0]
    baseline = s.scale == 0
    return {
        "kind": kind, "number": number, "verdict": j.verdict, "failed": [check.name for check in j.failed],
        "shares": s.shares, "association": value_of, "association_low": low, "association_high": high,
        "sign": int(j.first.association.sign[0]), "rho": alone.rho, "p": alone.p,
        "direct_rho": float(sweeps.spearman(encoding, s.lean[kept])), "redrawn_p": blind.p,
        "unsigned_p": gap.test.p, "paper_rho": gap.marginal.rho, "paper_p": gap.marginal.usual_p,
        "flips": float(s.flips[baseline].mean()), "accuracy": float((s.decided[baseline] == s.label).mean()),
        "accuracy_alike": float(s.accuracy_alike[baseline].mean()),
        "auc": float(s.auc[baseline].mean()), "kept": int(kept.sum()), "models": len(kept), "bound": j.bound.value,
        "covered": j.bound.covered, "train_seconds": seconds, "judge_seconds": time.perf_counter() - began,
    }  # fmt: skip


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
