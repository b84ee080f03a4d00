"""What ShorT's simulation tells: the tables on the terminal, and the page of the documentation."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from benchmarks._short_worlds import Kind
from rich.console import Console
from rich.table import Table
from scipy.stats import binomtest

from rightreasons.stats.sweeps import spearman

Row = dict[str, Any]
ALPHA = 0.05

HEADINGS = (
    "world", "called", "95 % interval", "inconclusive", "signed p", "along the sample", "colour redrawn", "unsigned p", "paper",
    "paper, Bonferroni", "mean rho", "true flips", "baseline accuracy", "biased like training",
)  # fmt: skip
STEP_HEADINGS = ("colour at label 0 / 1", "worlds", "called", "mean rho", "paper, Bonferroni", "paper's median p", "true flips")


def show(found: dict[Kind, list[Row]], models: int) -> Row:
    """Print the tables; the numbers behind them."""
    told: Row = {"name": "short-simulation", "models_per_sweep": models, "kinds": {}}
    for kind, rows in found.items():
        told["kinds"][kind.name] = summary(rows)
    console = Console(width=200)
    lines = [line(kind.name, told["kinds"][kind.name]) for kind in found]
    console.print(_table(f"worlds called at 5 %, {models} models each", HEADINGS, lines))
    for kind in found:
        if kind.steps:
            cells = by_step(kind, found[kind])
            console.print(_table(f"{kind.name}: the association grows in {kind.steps} steps", STEP_HEADINGS, cells))
    told |= {"sweeps": sum(map(len, found.values())), "speed": speed(found), "cores": os.cpu_count()}
    told["versions"] = {"python": platform.python_version(), "torch": torch.__version__}
    for part in told["speed"]:
        console.print("{machine}, {workers} processes: {sweeps} sweeps in {seconds} s, 100 in {per_100}".format(**part))
    return told


def summary(rows: Sequence[Row]) -> Row:
    """Numbers of worlds that are called at 5 %, and what the worlds are like."""

    def count(hits: Iterable[bool]) -> int:
        return int(sum(map(bool, hits)))

    def mean(name: str, digits: int = 3) -> float:
        return round(float(np.nanmean([r[name] for r in rows])), digits)

    called = count(r["verdict"] == "shortcut" for r in rows)
    limits = binomtest(called, len(rows)).proportion_ci()
    along = [r["rho"] * (1 if r["association"] >= 0 else -1) for r in rows]
    return {
        "worlds": len(rows),
        "called": called,
        "called_low": round(float(limits.low), 3),
        "called_high": round(float(limits.high), 3),
        "inconclusive": count(r["verdict"] == "inconclusive" for r in rows),
        "associated": count(r["sign"] != 0 for r in rows),
        "signed": count(r["p"] < ALPHA for r in rows),
        "signed_along_sample": count(r["p"] < ALPHA and rho > 0 for r, rho in zip(rows, along)),
        "signed_fixed": count(r["p"] < ALPHA and r["rho"] > 0 for r in rows),
        "signed_and_true": count(r["p"] < ALPHA and r["rho"] * r["direct_rho"] > 0 for r in rows),
        "redrawn": count(r["redrawn_p"] < ALPHA for r in rows),
        "unsigned": count(r["unsigned_p"] < ALPHA for r in rows),
        "paper": count(r["paper_p"] < ALPHA for r in rows),
        "paper_bonferroni": count(r["paper_p"] < ALPHA / len(rows) for r in rows),
        "mean_rho": round(float(np.nanmean(along)), 3),
        "rho_with_association": round(float(spearman([r["rho"] for r in rows], [r["association"] for r in rows])), 3),
        "true_flips": mean("flips"),
        "accuracy": mean("accuracy"),
        "accuracy_alike": mean("accuracy_alike"),
        "accuracy_alike_low": round(min(r["accuracy_alike"] for r in rows), 3),
        "accuracy_alike_high": round(max(r["accuracy_alike"] for r in rows), 3),
        "kept": mean("kept", 1),
        "covered": mean("covered", 2),
        "covered_least": round(min(r["covered"] for r in rows), 2),
    }


def line(name: str, n: Row) -> tuple[str, ...]:
    """A row of the table under HEADINGS."""

    def of(key: str) -> str:
        return f"{n[key]} ({n[key] / n['worlds']:.0%})"

    return (
        name, f"{n['called']} of {n['worlds']}", f"{n['called_low']:.0%} to {n['called_high']:.0%}", str(n["inconclusive"]),
        of("signed"), of("signed_along_sample"), of("redrawn"), of("unsigned"), of("paper"), of("paper_bonferroni"),
        f"{n['mean_rho']:.2f}", f"{n['true_flips']:.1%}", f"{n['accuracy']:.3f}",
        f"{n['accuracy_alike']:.3f} ({n['accuracy_alike_low']:.2f} to {n['accuracy_alike_high']:.2f})",
    )  # fmt: skip


def by_step(kind: Kind, rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """The worlds of every step of the association, under STEP_HEADINGS."""
    found = []
    for step in range(kind.steps):
        own = [r for r in rows if r["number"] % kind.steps == step]
        if own:
            one, zero = own[0]["shares"]
            rho = np.mean([-r["rho"] for r in own])  # this colour goes with label 0
            found.append(
                (f"{zero:.2f} / {one:.2f}", str(len(own)), str(sum(r["verdict"] == "shortcut" for r in own)), f"{rho:.2f}",
                 str(sum(r["paper_p"] < ALPHA / len(rows) for r in own)), f"{np.median([r['paper_p'] for r in own]):.1e}",
                 f"{np.mean([r['flips'] for r in own]):.1%}")
            )  # fmt: skip
    return found


def speed(found: dict[Kind, list[Row]]) -> list[Row]:
    """What each run of the command took."""
    every = [row for rows in found.values() for row in rows]
    told = []
    for run in sorted({r["run"] for r in every}):
        own = [r for r in every if r["run"] == run]
        seconds = max(r["at"] for r in own)
        told.append(
            {"machine": own[0]["machine"], "workers": own[0]["workers"], "sweeps": len(own), "seconds": round(seconds),
             "per_100": f"{100 * seconds / len(own):.0f} s"}
        )  # fmt: skip
    return told


def _table(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    table = Table(title=title)
    for heading in headings:
        table.add_column(heading)
    for cells in rows:
        table.add_row(*cells)
    return table


# ---- the page ------------------------------------------------------------------------------------------------------------


def rewritten(text: str, found: dict[Kind, list[Row]], told: Row) -> str:
    """A page whose parts from `<!-- worlds -->`, `<!-- steps -->` and `<!-- time -->` to `<!-- end -->` are written anew."""
    missing = [f"{kind.worlds - len(rows)} of {kind.name}" for kind, rows in found.items() if len(rows) < kind.worlds]
    note = f"\n\nStill to be run: {', '.join(missing)}." if missing else ""
    steps = [cells for kind, rows in found.items() for cells in by_step(kind, rows)]
    runs = "- {machine}, {workers} processes: {sweeps} sweeps in {seconds} s ({per_100} for 100)"
    parts = {
        "worlds": _markdown(HEADINGS, [line(name, n) for name, n in told["kinds"].items()]) + note,
        "steps": _markdown(STEP_HEADINGS, steps),
        "time": "\n".join(runs.format(**part) for part in told["speed"]),
    }
    for name, part in parts.items():
        begin, end = f"<!-- {name} -->\n", "<!-- end -->"
        before, found_it, after = text.partition(begin)
        if not found_it or end not in after:
            raise SystemExit(f"the page has nothing between <!-- {name} --> and <!-- end -->")
        text = f"{before}{begin}\n{part}\n\n{end}{after.partition(end)[2]}"
    return text


def _markdown(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (headings, ["---"] * len(headings), *rows))
