"""ShorT's verdict and `compare` where the truth is known, over families of models that are drawn and not trained.

Where nothing is to be called, at most 5 % may be. Known models (`_short_models`) make 200 worlds a kind a matter of minutes; the
same rules on trained networks are those of short-simulation.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

from benchmarks._short_models import Kind, Plan, judged, pair
from rich.console import Console
from rich.table import Table
from scipy.stats import binomtest

from rightreasons.audits import short
from rightreasons.progress import track
from rightreasons.stats.resampling import task_rng

NEEDS_GPU = False
STRONG = (0.8, 0.2)

KINDS = (
    Kind("no association"),
    Kind("no association, noisier group", noisier=1.0),
    Kind("no association, five images a patient", images=5),
    Kind("no association, ten levels", levels=10),
    Kind("association, visible, unused", STRONG, use=0.0),
    Kind("association, visible, used only where amplified", STRONG, use=0.0, forced=1.0),
    Kind("association, unused, noisier group", STRONG, use=0.0, noisier=1.0),
    Kind("association, unused, five images a patient", STRONG, use=0.0, images=5),
    Kind("used, 0.6 / 0.4", (0.6, 0.4)),
    Kind("used, 0.7 / 0.3", (0.7, 0.3)),
    Kind("used, 0.9 / 0.1", (0.9, 0.1)),
)
PAIRS = {"no association": Kind("no association"), "used, 0.7 / 0.3": Kind("used", (0.7, 0.3))}
SIZES = {10: Plan(5, 2), 40: Plan(8, 5), 120: Plan(24, 5)}
OVER = ("seeds", "training resamples", "one draw each")


def main(arguments: list[str] | None = None) -> None:
    """Print the tables and, as the last line, the JSON object."""
    given = options(arguments)
    began = time.perf_counter()
    told: dict[str, Any] = {"name": "short-decisions", "worlds": given.worlds, "verdicts": {}, "compare": {}}
    for kind in [k for k in KINDS if given.only in k.name]:
        rows = track(range(given.worlds), f"worlds: {kind.name}")
        told["verdicts"][kind.name] = summary([judged(kind, Plan(), task_rng(given.seed, f"{kind.name} {n}")) for n in rows])
    for number, plan in SIZES.items():
        for name, kind in PAIRS.items():
            for over in OVER:
                if given.only not in f"{name}, {number} models, {over}":
                    continue
                rows = track(range(given.worlds), f"pairs: {name}, {number} models, {over}")
                p = [difference(kind, plan, over, task_rng(given.seed, f"pair {name} {over} {n}")) for n in rows]
                told["compare"][f"{name}, {number} models, {over}"] = called([one < 0.05 for one, _ in p]) | {
                    "exchange": sum(other < 0.05 for _, other in p)
                }
    told["seconds"] = round(time.perf_counter() - began)
    show(told)
    print(json.dumps(told))


def options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.short_decisions", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--worlds", type=int, default=200, help="of every kind")
    parser.add_argument("--only", default="", help="kinds of worlds and pairs whose name has this in it")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args([] if arguments is None else arguments)


def difference(kind: Kind, plan: Plan, over: str, rng: Any) -> tuple[float, float]:
    """P of the difference of two equal families, and the paper's p of it."""
    found = short.compare(*pair(kind, plan, over, rng), rng=rng, along=1, P=199)
    return found.p, found.exchange_p


def summary(results: list[short.Result]) -> dict[str, Any]:
    counts = {verdict: sum(r.verdict == verdict for r in results) for verdict in ("no evidence", "inconclusive")}
    return called([r.verdict == "shortcut" for r in results]) | counts


def called(hits: list[bool]) -> dict[str, Any]:
    limits = binomtest(sum(hits), len(hits)).proportion_ci()
    return {"called": sum(hits), "of": len(hits), "low": round(limits.low, 3), "high": round(limits.high, 3)}


def show(told: dict[str, Any]) -> None:
    console = Console(width=150)
    table = Table(title="verdicts of families of 125 known models")
    for heading in ("world", "shortcut", "95 % interval", "no evidence", "inconclusive"):
        table.add_column(heading)
    for name, n in told["verdicts"].items():
        shares = f"{n['low']:.1%} to {n['high']:.1%}"
        table.add_row(name, f"{n['called']} of {n['of']}", shares, str(n["no evidence"]), str(n["inconclusive"]))
    console.print(table)
    table = Table(title="pairs of equal families that are called different at 5 %")
    for heading in ("world, models, replicates", "called", "95 % interval", "exchanging models (the paper's)"):
        table.add_column(heading)
    for name, n in told["compare"].items():
        table.add_row(name, f"{n['called']} of {n['of']}", f"{n['low']:.1%} to {n['high']:.1%}", str(n["exchange"]))
    console.print(table)


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
