"""The public scoreboard: every benchmark in a process of its own, its last line kept, and docs/benchmarks.md written of them."""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
KEPT = Path(__file__).with_name("scoreboard.json")
PAGE = ROOT / "docs" / "benchmarks.md"
VERSIONS = ("numpy", "scipy", "numba", "scikit-learn", "pandas", "torch", "fairlearn", "aequitas")

HEAD = """# Benchmarks

Each line is the last line of one benchmark, kept with the machine that it ran on. `make bench NAME=tables` runs one,
`make bench NAME=all` runs them all and writes this page, and `make bench NAME="all tables"` renews one line of it. A *ratio* is
how many times as long the plain way takes on the same machine in the same run, unless the line says what else; where there is
none, the benchmark is about something other than time. `make bench NAME=small` takes under two minutes and fails where a ratio
has fallen by half.

"""


def main(names: Sequence[str]) -> int:
    """Run benchmarks and write the page; the exit status is 1 where one failed."""
    kept: dict[str, Any] = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
    failed = []
    for name in names:
        print(f"---- {name}", flush=True)
        result = last_line(name)
        if result is None:
            failed.append(name)
            continue
        kept[name] = {"result": result, "machine": machine(), "versions": versions(), "date": str(datetime.date.today())}
        KEPT.write_text(json.dumps(dict(sorted(kept.items())), indent=1) + "\n", encoding="utf-8")
        PAGE.write_text(page(kept), encoding="utf-8")
    if failed:
        print(f"failed, or without a last line in JSON: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def last_line(name: str) -> dict[str, Any] | None:
    """What one benchmark says at the end; None where it fails or says no JSON object."""
    process = subprocess.Popen([sys.executable, "-m", "benchmarks", name], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    last = ""
    for line in process.stdout or ():
        print(line, end="", flush=True)
        last = line if line.strip() else last
    if process.wait() != 0 or not last.startswith("{"):
        return None
    found = json.loads(last)
    return found if isinstance(found, dict) else None


def page(kept: Mapping[str, Any]) -> str:
    """The page in Markdown."""
    lines = [HEAD, "| benchmark | ratio | measured | beside | machine, date |", "|---|---|---|---|---|"]
    for name, one in sorted(kept.items()):
        result = one["result"]
        lines.append(f"| `{name}` | {_ratio(result)} | {result.get('measured', '')} | {_beside(result)} | {_where(one)} |")
    lines += ["", "## Versions", "", "| benchmark | versions |", "|---|---|"]
    for name, one in sorted(kept.items()):
        lines.append(f"| `{name}` | {', '.join(f'{what} {number}' for what, number in one['versions'].items())} |")
    return "\n".join(lines) + "\n"


def machine() -> str:
    """The processor, how many cores may be used, and the GPU that torch sees."""
    name = platform.machine()
    cpu = Path("/proc/cpuinfo")
    if cpu.exists():
        models = [line.split(":")[1].strip() for line in cpu.read_text().splitlines() if line.startswith("model name")]
        name = models[0] if models else name
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    found = f"{name}, {cores} cores, Python {platform.python_version()}"
    try:
        import torch
    except ModuleNotFoundError:
        return found
    return f"{found}, {torch.cuda.get_device_name()}" if torch.cuda.is_available() else found


def versions() -> dict[str, str]:
    """Of the libraries that decide how long something takes; those that are installed."""
    found = {}
    for name in VERSIONS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _ratio(result: Mapping[str, Any]) -> str:
    return str(result.get("ratio", "–"))


def _beside(result: Mapping[str, Any]) -> str:
    """Its limits, and peers on the same work."""
    found = []
    for key in ("bars", "limits", "limit", "peer", "peers"):
        value = result.get(key)
        if isinstance(value, Mapping):
            found += [f"{what.replace('_', ' ')}: {number}" for what, number in value.items()]
        elif value is not None:
            found.append(f"{key}: {value}")
    return "; ".join(found)


def _where(one: Mapping[str, Any]) -> str:
    return f"{one['machine']}, {one['date']}"
