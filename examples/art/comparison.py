"""The study that both examples run: ERM and the methods that ART audits, their tables as markdown, their numbers as JSON."""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from rightreasons.errors import SettingError
from rightreasons.findings import Cell, Finding, Table
from rightreasons.study import Study
from rightreasons.study.sweep import sweep

REGIMES = {
    "erm": "",
    "balanced": 'method = "balanced"\nhow = "reweight"',  # a subsample would leave too few photos to learn from
    "groupdro": 'method = "groupdro"',
    "jtt": 'method = "jtt"\nearly = [4]\nupweight = [5.0, 20.0]',
    "dfr": 'method = "dfr"\nstart = "erm"',
    "neggrad": 'method = "neggrad"\nstart = "erm"\nepochs = {unlearning}',
    "scrub": 'method = "scrub"\nstart = "erm"\nepochs = {unlearning}',
    "salun": 'method = "salun"\nstart = "erm"\nepochs = {unlearning}',
    "ssd": 'method = "ssd"\nstart = "erm"\nrows = 1000',
    "art_head": 'method = "art_head"\nstart = "erm"\nn_min = {n_min}',
    "art_head_neggrad": 'method = "art_head"\nstart = "neggrad"\nn_min = {n_min}',
}


def options(what: str, out: str, seeds: int) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=what, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("RIGHTREASONS_DATA"), help="folder of the zip files")
    parser.add_argument("--out", type=Path, default=Path(out), help="a second run does what is missing there")
    parser.add_argument("--seeds", type=int, default=seeds, help="models of every method")
    parser.add_argument("--methods", nargs="+", choices=REGIMES, default=list(REGIMES))
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--workers", type=int, default=None, help="models at once; 6 on a GPU, one per core otherwise")
    parser.add_argument("--no-layers", action="store_true", help="leave out ART inside the network and its pictures")
    parser.add_argument("--quick", action="store_true", help="few photos and epochs: shows that all of it runs, and nothing else")
    return parser


def told(parser: argparse.ArgumentParser) -> argparse.Namespace:
    given = parser.parse_args()
    if given.data is None:
        parser.error("say where the zip files are: --data FOLDER, or the environment variable RIGHTREASONS_DATA")
    if given.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    elif not torch.cuda.is_available():
        parser.error("--device cuda, and torch sees no GPU")
    if "erm" not in given.methods:
        given.methods = ["erm", *given.methods]
    return given


def is_prepared(folder: Path, **made_from: Any) -> bool:
    """Whether the images in a folder were made with the same settings; notes these where they were not."""
    note = folder / "made_from.json"
    if note.exists() and json.loads(note.read_text()) == made_from and (folder / "manifest.csv").exists():
        return True
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "manifest.csv").unlink(missing_ok=True)
    note.write_text(json.dumps(made_from))
    return False


def plan(
    name: str,
    architecture: Mapping[str, str],
    training: Mapping[str, Any],
    given: argparse.Namespace,
    *,
    unlearning: int,
    data: Mapping[str, Any],
    art: Mapping[str, Any],
) -> str:
    """The text of a study.toml, for one architecture."""
    unknown = [m for m in given.methods if m not in REGIMES]
    if unknown:
        raise SettingError(f"no method {unknown}; known: {', '.join(REGIMES)}")
    methods = [m for m in given.methods if m != "art_head_neggrad" or "neggrad" in given.methods]
    n_min = 5 if given.quick else 20
    quick = {"B": 200, "controls": 50, "n_min": n_min} if given.quick else {}
    gpu = given.device == "cuda"
    workers = given.workers or (6 if gpu else None)
    parts = [
        f'name = "{name}"\nseed = 0',
        _table("data", {**data, "manifest": "data/manifest.csv"}),
        _table(f"architectures.{architecture['name']}", {k: v for k, v in architecture.items() if k != "name"}),
        *(f"[regimes.{m}]\n{REGIMES[m].format(unlearning=unlearning, n_min=n_min)}" for m in methods),
        _table("train", training),
        "[[runs]]\n" + f"architecture = {json.dumps(architecture['name'])}\nseed = {list(range(given.seeds))}",
        _table("extract", {"batch": 64, "chunk": 256}),
        "[audits.groups]",
        "[audits.flips]",
        _table("audits.art", {**art, **quick}) + '\nroles = {test = "erm", panel = ["*", "!erm"]}',
        '[curves.flips]\ny = "flips"\nx = "regime"',
        _table("engine_settings", {"threads": 2 if gpu else 1, **({"workers": workers} if workers else {})}),
    ]
    return "\n\n".join(parts) + "\n"


def run(text: str, out: Path) -> dict[str, Any]:
    """Run what is missing of a study in `out`, print its tables, and give them with the seconds it took."""
    began = time.perf_counter()
    out.mkdir(parents=True, exist_ok=True)
    (out / "study.toml").write_text(text)
    study = sweep(out / "study.toml", out)
    for unit in study.units:
        if study.status(unit) == "failed":
            print(f"\n{unit} failed; see {out / 'runs' / unit / 'run.json'}")
    tables = _tables(study)
    for title, table in tables.items():
        print(f"\n### {title}\n\n{_markdown(table)}")
    numbers = {
        "study": study.name,
        "seconds": round(time.perf_counter() - began, 1),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor() or "cpu",
        "versions": {"python": platform.python_version(), "numpy": np.__version__, "torch": torch.__version__},
        "units": {unit: study.status(unit) for unit in study.units},
        "tables": {title: {"columns": list(table.columns), "rows": _plain(table)} for title, table in tables.items()},
        "summary": summary(study),
    }
    (out / "numbers.json").write_text(json.dumps(numbers, indent=1))
    print(f"\n{numbers['seconds']:.0f} s; page {out / 'report.html'}, numbers {out / 'numbers.json'}")
    return numbers


def summary(study: Study) -> list[dict[str, Any]]:
    """Accuracies, flips and ART's numbers of every method: mean and interval over seeds."""
    every = pd.read_parquet(study.folder / "summary.parquet")
    wanted = every[every["metric"].str.contains("accuracy|flips_|art_")]
    return json.loads(wanted.to_json(orient="records"))  # type: ignore[no-any-return]


def _tables(study: Study) -> dict[str, Table]:
    """Tables of ART's finding by their title."""
    files = sorted((study.folder / "findings").glob("art*"))
    findings = [Finding.read(file) for file in files]
    for finding in findings:
        print(f"\n{finding.name}: {finding.verdict or finding.not_run}. {finding.sentence}")
    return {e.title: e for finding in findings for e in finding.exhibits if isinstance(e, Table)}


def _table(name: str, values: Mapping[str, Any]) -> str:
    return f"[{name}]\n" + "\n".join(f"{key} = {_toml(value)}" for key, value in values.items())


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(inner)}" for key, inner in value.items()) + "}"
    return json.dumps(value)


def _plain(table: Table) -> list[list[Any]]:
    return [[c.model_dump() if isinstance(c, Cell) else c for c in row] for row in table.rows]


def _markdown(table: Table) -> str:
    rows = [table.columns, ["---"] * len(table.columns), *([_say(c) for c in row] for row in table.rows)]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _say(cell: Any) -> str:
    value = cell.value if isinstance(cell, Cell) else cell
    if value is None:
        return "–"
    if not isinstance(value, float):
        return str(value)
    limits: Sequence[float | None] = (cell.low, cell.high) if isinstance(cell, Cell) else (None, None)
    around = "" if None in limits else f" ({_rounded(limits[0])} to {_rounded(limits[1])})"
    return f"{_rounded(value)}{around}"


def _rounded(value: float | None) -> str:
    return "–" if value is None else f"{round(value, 3) + 0.0:.3f}"  # no minus before a zero
