"""Fifty watchers of a running sweep: do all get their answers, and how much slower is the sweep for it?

The same study is swept alone, watched and pressed, in turn. Watched: by a server as `rightreasons serve` is, and clients that do
what its pages do: open the list, an audit and its page, then ask for the progress every three seconds. Pressed: they never pause.

Where the machine has four cores or more, the sweep and the server share two of them, and the clients, who are other people's
machines, have the rest. The server's own processor time is told beside, for machines that are busy with other things.

UNITS, REPEATS and CLIENTS in the environment change its size.
"""

from __future__ import annotations

import http.client
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks._seeds import seeds_of_a_cnn
from rich.console import Console
from rich.table import Table

from rightreasons.findings import Estimate, Finding
from rightreasons.report import report
from rightreasons.study import Study

UNITS, REPEATS, CLIENTS = (int(os.environ.get(name, usual)) for name, usual in (("UNITS", 8), ("REPEATS", 3), ("CLIENTS", 50)))
PAUSE = 3.0  # as in serve.js
WAYS = {"alone": None, "watched": PAUSE, "pressed": 0.0}


def main() -> None:
    """Print the table and, as the last line, the JSON object."""
    os.environ["RIGHTREASONS_QUIET"] = "1"
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    answers: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS if WAYS[way] is not None}
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        (root / "watched.toml").write_text(seeds_of_a_cnn("watched", units=UNITS, epochs=30, workers=2))
        _audit(root / "audit")
        for number in range(REPEATS):
            for way, pause in WAYS.items():
                with _watching(root, f"{way}-{number}", pause) as told:
                    seconds[way].append(_sweep(root, f"{way}-{number}"))
                if told is not None:
                    answers[way].append(told)
                console.print(f"{way} {number + 1} of {REPEATS}: {seconds[way][-1]:.1f} s {told or ''}")
    _tell(seconds, answers)


console = Console()


def _tell(seconds: dict[str, list[float]], answers: dict[str, list[dict[str, Any]]]) -> None:
    alone = statistics.median(seconds["alone"])
    heads = ("sweep", "seconds (each)", "slower by", "answers", "errors", "middle", "slowest of 100", "server's processor time")
    shown = Table(*heads, title=f"{CLIENTS} clients")
    result: dict[str, Any] = {"name": "serve", "clients": CLIENTS, "units": UNITS, "seconds": seconds}
    for way, taken in seconds.items():
        slower = statistics.median(taken) / alone - 1
        told = answers.get(way, [])
        count, errors = sum(t["answers"] for t in told), sum(t["errors"] for t in told)
        middle, late = (max((t[key] for t in told), default=0.0) for key in ("median_ms", "p99_ms"))
        row = [f"{s:.1f}" for s in taken]
        busy = statistics.median(t["server_seconds"] / t["seconds"] for t in told) if told else 0.0
        counts = (str(count), str(errors), f"{middle:.0f} ms", f"{late:.0f} ms", f"{busy:.1%} of a core")
        shown.add_row(way, " ".join(row), f"{slower:+.1%}", *counts)
        result[way] = {"slower": round(slower, 4), "answers": count, "errors": errors, "median_ms": middle, "p99_ms": late}
        result[way]["server_share_of_a_core"] = round(busy, 4)
    console.print(shown)
    result |= {"under_5_percent": result["watched"]["slower"] <= 0.05, "no_error": result["watched"]["errors"] == 0}
    print(json.dumps({**result, "cores": os.cpu_count(), "versions": {"python": platform.python_version()}}))


def _audit(folder: Path) -> None:
    one = Estimate(name="effect", value=0.3, low=0.2, high=0.4, row="reliance")
    found = Finding(
        name="a", audit="a", question="Does it?", row="reliance", verdict="shortcut", sentence="It does.", estimates=[one]
    )
    found.save(folder)
    report([found], folder / "report.html")


# ---- the sweep -----------------------------------------------------------------------------------------------------------


def _sweep(root: Path, name: str) -> float:
    """Seconds from the first unit's begin to the last one's end; imports and the images are made before."""
    _run(f"from rightreasons.study.sweep import sweep; sweep({str(root / 'watched.toml')!r}, {str(root / name)!r})").wait()
    study = Study.open(root / name)
    runs = [study.run(unit) for unit in study.units]
    if any(run["status"] != "done" for run in runs):
        raise RuntimeError(f"{name}: {[run['status'] for run in runs]}")
    ends = [datetime.fromisoformat(run["finished"]) for run in runs]  # of a unit; findings and page come after
    return (max(ends) - min(datetime.fromisoformat(run["started"]) for run in runs)).total_seconds()


def _run(program: str, **more: Any) -> subprocess.Popen[str]:
    own, _ = _cores()
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **more}
    start = f"import os; os.sched_setaffinity(0, {own}); {program}"
    return subprocess.Popen([sys.executable, "-c", start], text=True, **quiet)


def _cores() -> tuple[set[int], set[int]]:
    """Cores of the sweep and the server, and of the clients."""
    cores = sorted(os.sched_getaffinity(0))
    return (set(cores[:2]), set(cores[2:])) if len(cores) >= 4 else (set(cores), set(cores))


# ---- the server and its clients ------------------------------------------------------------------------------------------


@contextmanager
def _watching(root: Path, name: str, pause: float | None) -> Iterator[dict[str, Any] | None]:
    """A server and clients in a process of their own, until the block ends; gives what they saw."""
    if pause is None:
        yield None
        return
    start = "from rightreasons.serve import Server, step_back; step_back()"
    server = f"{start}; server = Server({str(root)!r}, port=0); print(server.address, flush=True); server.run()"
    served = _run(server, stdout=subprocess.PIPE)
    line = served.stdout.readline() if served.stdout else ""
    host = re.findall(r"http://([\d.:]+)/", line)[0]
    before = _processor_seconds(served.pid)
    command = [sys.executable, __file__, host, name, str(pause)]
    clients = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    told: dict[str, Any] = {}
    try:
        yield told
    finally:
        said, _ = clients.communicate("stop\n", timeout=120)
        told.update(json.loads(said), server_seconds=round(_processor_seconds(served.pid) - before, 2))
        served.terminate()
        served.wait()


def _processor_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def clients(host: str, name: str, pause: float) -> None:
    """What a process of fifty clients does until somebody writes to it."""
    os.sched_setaffinity(0, _cores()[1])
    os.nice(19)  # they stand for other machines
    stop, began = threading.Event(), time.perf_counter()
    seen: list[float] = []
    errors: list[str] = []
    threads = [threading.Thread(target=_client, args=(host, name, pause, k, stop, seen, errors)) for k in range(CLIENTS)]
    for thread in threads:
        thread.start()
    sys.stdin.readline()
    stop.set()
    for thread in threads:
        thread.join()
    ordered = sorted(seen)
    at = {"median_ms": 0.5, "p99_ms": 0.99}
    late: dict[str, Any] = {"seconds": round(time.perf_counter() - began, 1)}
    late |= {key: round(1000 * ordered[int(share * (len(ordered) - 1))], 1) for key, share in at.items()}
    print(json.dumps({"answers": len(seen), "errors": len(errors), **late, "first_errors": errors[:3]}))


def _client(host: str, name: str, pause: float, number: int, stop: threading.Event, seen: list[float], errors: list[str]) -> None:
    stop.wait(pause * number / CLIENTS)  # people do not come at once
    paths = ["/", "/at/audit/", "/at/audit/report.html"]
    connection = http.client.HTTPConnection(host, timeout=60)
    while not stop.is_set():
        path = paths.pop(0) if paths else f"/at/{name}/progress.json"
        began = time.perf_counter()
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read()
        except OSError as error:
            errors.append(f"{path}: {type(error).__name__} {error}")
            connection.close()
            continue
        # Before its plan is written the study is not there, and the server rightly says so.
        if answer.status != 200 and not (answer.status == 404 and path.endswith("progress.json") and len(body) < 60):
            errors.append(f"{path}: {answer.status}")
        seen.append(time.perf_counter() - began)
        if not paths:
            stop.wait(pause)
    connection.close()


if __name__ == "__main__":
    clients(sys.argv[1], sys.argv[2], float(sys.argv[3])) if len(sys.argv) == 4 else main()
