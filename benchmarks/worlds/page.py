"""docs/calibration.md and the rates that ship with the package, from stored worlds.

`python -m benchmarks.worlds.page build/worlds/seed-1 build/worlds/seed-2`: all are reported together, and the first two compared.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
from benchmarks.worlds import outside, tables

from rightreasons import calibration
from rightreasons.files import write
from rightreasons.findings import Bars, Curves, Exhibit
from rightreasons.report.figures import draw
from rightreasons.report.standalone import standalone

ROOT = Path(__file__).parents[2]
SHORT = ROOT / "build" / "short-simulation"
NO_ASSOCIATION = "no association"
ALIGNED = "projected head"  # the nulls with twins whose training rows had an association
Numbers = tables.Numbers


def main(arguments: list[str] | None = None) -> None:
    """Write the page, its figures and numbers, and the package's rates."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.worlds.page", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", type=Path, nargs="+", help="build/worlds/seed-<number>, none of them the one that tuned")
    parser.add_argument("--short", type=Path, default=SHORT, help="stored worlds of short-simulation")
    parser.add_argument("--to", type=Path, default=ROOT / "docs" / "calibration.md")
    parser.add_argument("--package", type=Path, default=calibration.FILE, help="the rates that ship with the package")
    given = parser.parse_args(arguments)
    told = numbers(given.folders, given.short)
    new = parts(told)
    for name, exhibit in figures(told).items():
        drawn = re.search(r"<svg .*?</svg>", draw(exhibit), re.DOTALL)
        if drawn:
            file = given.to.with_name(f"{given.to.stem}-{name}.svg")
            _write(file, standalone(drawn.group()))
            new[f"figure {name}"] = f"![{exhibit.title}]({file.name})"
    _write(given.to.with_suffix(".json"), json.dumps(told, indent=1) + "\n")
    _write(given.to, rewritten(given.to.read_text(encoding="utf-8"), new))
    command = f"python -m benchmarks.worlds.page {' '.join(f'build/worlds/{folder.name}' for folder in given.folders)}"
    _write(given.package, shipped(told, command).model_dump_json(indent=1) + "\n")
    print(f"{given.to}: {told['rows']} audits of {told['models']} models in {told['worlds']} worlds")


def numbers(folders: Sequence[Path], short: Path) -> Numbers:
    """Everything that the page tells, as plain data."""
    rows = [stored(folder) for folder in folders]
    told = tables.tell(pd.concat(rows)) | {"seeds": [_seed(folder) for folder in folders]}
    if len(folders) > 1:
        first, again = (tables.tell(of) for of in rows[:2])
        told["again"] = {"seed": _seed(folders[1]), "worlds": again["worlds"], "judges": tables.compared(first, again)}
    sweeps = short_rows(short)
    if len(sweeps):
        told["short"] = tables.tell(sweeps)
    return told


def stored(folder: Path) -> pd.DataFrame:
    """Rows of every world of a folder, with what other tools said of them."""
    rows = [row for path in sorted(folder.glob("*.json")) for row in json.loads(path.read_text())]
    if not rows:
        raise SystemExit(f"no worlds in {folder}; run `make bench NAME=worlds` first")
    return outside.joined(pd.DataFrame(rows), folder)


def short_rows(folder: Path) -> pd.DataFrame:
    """ShorT's worlds as rows of verdicts: a sweep is judged, and the truth is the decisions of its plain models that flip."""
    lines = [json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()]
    unique = {(row["kind"], row["number"]): row for row in lines if row["data"] == "digits" and row["seed"] == 0}
    return pd.DataFrame(
        {
            "world": f"{kind} {number}", "kind": kind, "is_null": kind.startswith(NO_ASSOCIATION), "model": 0,
            "reliance": row["flips"], "short verdict": row["verdict"], "short p": row["p"], "short seconds": row["judge_seconds"],
        }
        for (kind, number), row in unique.items()
    )  # fmt: skip


def shipped(told: Numbers, command: str) -> calibration.Calibration:
    """What pages of audits show, of all that."""
    judges = {name: _rates(of) for name, of in told["judges"].items()}
    for name, of in told["with twins"].items():
        if name != tables.WITH_TWINS:
            judges[name] = _rates(of, nulls=ALIGNED, note=_unaligned(of))
    if "short" in told:
        judges["short"] = _rates(
            told["short"]["judges"]["short"], unit="sweep", note="truth: decisions of plain models that flip"
        )
    return calibration.Calibration(
        version=version("rightreasons"), made=datetime.now(UTC).date().isoformat(), command=command, seeds=tuple(told["seeds"]),
        worlds=told["worlds"], relies=told["relies"], judges=judges,
    )  # fmt: skip


def _unaligned(of: Numbers) -> str:
    """What `flips` does where the attribute stands for no label and the part of the change that goes one way counts."""
    others = [r for kind, r in of["false alarms"].items() if kind not in (ALIGNED, "all nulls")]
    called, n = (sum(r[key] for r in others) for key in ("called", "n"))
    return (
        f"where the attribute stands for no label what goes one way counts, and {called} of {n} null models are called"
        if n
        else ""
    )


def _rates(of: Numbers, nulls: str = "all nulls", **more: Any) -> calibration.Rates:
    alarms, power = (
        calibration.Rate(n=r["n"], called=r["called"], low=round(r["low by world"], 4), high=round(r["high by world"], 4))
        if r["n"]
        else None
        for r in (of["false alarms"].get(nulls, of["false alarms"]["all nulls"]), of["relying"])
    )
    return calibration.Rates(alarms=alarms, power=power, inconclusive=round(of["inconclusive"] or 0.0, 4), **more)


# ---- the page ------------------------------------------------------------------------------------------------------------


def parts(told: Numbers) -> dict[str, str]:
    """Name of a marker → Markdown that belongs after it."""
    found = {title: markdown(*cells) for title, cells in tables.overview(told).items()}
    seeds = ", ".join(map(str, told["seeds"]))
    found["set"] = (
        f"{told['rows']} audits of {told['models']} models in {told['worlds']} worlds (seeds {seeds}): "
        f"{told['nulls']} audits of null models, {told['relying']} with a true reliance of {told['relies']:g} or more."
    )
    if "again" in told:
        found["seeds"] = f"Seed {told['seeds'][0]} and seed {told['again']['seed']}.\n\n{markdown(*_seed_table(told['again']))}"
    if "short" in told:
        of = tables.overview(told["short"])
        found["short"] = "\n\n".join(markdown(*of[title]) for title in ("false alarms", "power", "others"))
        found["demands"] = "\n".join([found["demands"], *markdown(*of["demands"]).splitlines()[2:]])
    return found


def rewritten(text: str, new: dict[str, str]) -> str:
    """A page whose parts from `<!-- name -->` to `<!-- end -->` are written anew; those that are not known say so."""

    def part(found: re.Match[str]) -> str:
        name = found.group(1)
        return f"<!-- {name} -->\n\n{new.get(name, 'Not yet measured.')}\n\n<!-- end -->"

    text, count = re.subn(r"<!-- (?!end)([\w ]+) -->.*?<!-- end -->", part, text, flags=re.DOTALL)
    if not count:
        raise SystemExit("the page has no part between <!-- name --> and <!-- end -->")
    return text


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))


def _seed_table(again: Numbers) -> tables.Cells:
    body = []
    for judge, of in again["judges"].items():
        for what, pair in of.items():
            if pair["within"] is not None:
                rates = [f"{r['called']} of {r['n']} ({100 * r['rate']:.1f} %)" for r in (pair["first"], pair["second"])]
                limits = f"{100 * pair['first']['low by world']:.1f} to {100 * pair['first']['high by world']:.1f} %"
                body.append([judge, what, rates[0], limits, rates[1], "yes" if pair["within"] else "**no**", f"{pair['p']:.2f}"])
    return ["verdict of", "", "first seed", "95 %, by world", "second seed", "within", "p of a difference"], body


def figures(told: Numbers) -> dict[str, Exhibit]:
    """False alarms, power along the true reliance, and AUROC."""
    alarms = {name: of["false alarms"]["all nulls"] for name, of in told["judges"].items()}
    alarms = {name: r for name, r in alarms.items() if r["n"]}
    every = {**told["judges"], **told["rivals"]}
    ranked = {name: of["AUROC"] for name, of in every.items() if of["AUROC"]["value"] is not None}
    ordered = sorted(ranked, key=lambda name: -ranked[name]["value"])
    bins = [f"{low:g} to {min(high, 1):g}" for low, high in pairwise(tables.EDGES)]
    found: dict[str, Exhibit] = {
        "power": Curves(
            title="Called, by true reliance", x=bins, x_label="true reliance", y_label="share called",
            series={name: _curve(of["power"], name == tables.CASE) for name, of in told["judges"].items()},
        ),
    }  # fmt: skip
    if alarms:
        found["alarms"] = Bars(
            title="False alarms by audit", labels=tuple(alarms), series=[r["rate"] for r in alarms.values()],
            low=[r["low by world"] for r in alarms.values()], high=[r["high by world"] for r in alarms.values()],
            reference=0.1, reference_label="10 %", value_label="share of null models called",
        )  # fmt: skip
    if ranked:
        found["ranking"] = Bars(
            title="AUROC of the case, the audits and what people use today",
            labels=tuple(ordered), series=[ranked[name]["value"] for name in ordered],
            low=[ranked[name]["low"] for name in ordered], high=[ranked[name]["high"] for name in ordered],
            reference=0.5, reference_label="chance", value_label=f"AUROC for a true reliance of {told['relies']:g} or more",
        )  # fmt: skip
    return found


def _curve(rates: Sequence[Numbers], limits: bool) -> dict[str, list[float | None]]:
    """Only one line has its interval drawn: those of several would cover each other."""
    return {key: [r[of] for r in rates] for key, of in (("y", "rate"), ("low", "low"), ("high", "high"))[: 3 if limits else 1]}


def _seed(folder: Path) -> int:
    return int(folder.name.rpartition("-")[2])


def _write(path: Path, text: str) -> None:
    write(path, text.encode())


if __name__ == "__main__":
    main()
