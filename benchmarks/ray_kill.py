"""A study of 30 small CNNs on a two-node Ray cluster, one node killed in the middle: the table of the local engine?"""

from __future__ import annotations

import json
import os
import platform
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from benchmarks._thirty import thirty_units
from rich.console import Console
from rich.table import Table

from rightreasons.study import Study
from rightreasons.study.engines import Event
from rightreasons.study.engines import ray as engine_of_ray
from rightreasons.study.folder import DONE
from rightreasons.study.sweep import sweep

NEEDS_GPU = False

KILLED_AFTER = 10  # units
DELAY_SECONDS = 1.5  # so that the node is at work again


@dataclass(frozen=True)
class Outcome:
    """Of one study: units that are done, equality with the local engine's table, and attempts that ended with their worker."""

    units: int
    done: int
    equal: bool
    weights_equal: bool
    died: int
    causes: tuple[str, ...]
    seconds: float


def main() -> None:
    """Print the table and, as the last line, the JSON object."""
    os.environ["RIGHTREASONS_QUIET"] = "1"
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        local, seconds = run(folder, "local", "local", "workers = 2")
        outcomes = {"local": judged(local, local, seconds)}
        cluster, nodes, up = start_cluster()
        try:
            shared = f'address = "{cluster.address}"'
            study, seconds = run(folder, "two nodes, shared disk", "ray", shared)
            outcomes["ray, two nodes, shared disk"] = judged(study, local, seconds)
            through = f'{shared}\nstore = "file://{folder}/store"\nscratch = "{folder}/scratch"\nevery = 1.0'
            kill = after_units(KILLED_AFTER, lambda: cluster.remove_node(nodes[1], allow_graceful=False))
            study, seconds = run(folder, "killed", "ray", through, kill)
            outcomes["ray, store, one node killed"] = judged(study, local, seconds)
        finally:
            cluster.shutdown()
    show(outcomes, up)


def start_cluster() -> tuple[Any, list[Any], float]:
    """A head that runs nothing and two nodes of one CPU each, on the loopback address; and how long it took."""
    engine_of_ray.imported()
    from ray.cluster_utils import Cluster

    began = time.perf_counter()
    common = {"node_ip_address": engine_of_ray.LOOPBACK, "object_store_memory": 100 << 20}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **common})
    nodes = [cluster.add_node(num_cpus=1, **common) for _ in range(2)]
    return cluster, nodes, time.perf_counter() - began


def run(
    folder: Path, name: str, engine: str, settings: str, on_event: Callable[[Event], None] | None = None
) -> tuple[Study, float]:
    """Sweep the study with an engine; `on_event` sees what the driver sees."""
    source = folder / f"{name}.toml"
    source.write_text(thirty_units("ray-kill", n=600, epochs=30, engine=engine, settings=f"threads = 1\n{settings}"))
    next_event = engine_of_ray.Engine.next_event

    def watched(self: engine_of_ray.Engine, timeout: float) -> Event | None:
        event = next_event(self, timeout)
        if event is not None and on_event is not None:
            on_event(event)
        return event

    began = time.perf_counter()
    try:
        engine_of_ray.Engine.next_event = watched  # type: ignore[method-assign]
        study = sweep(source, folder / name, say=lambda _: None)
    finally:
        engine_of_ray.Engine.next_event = next_event  # type: ignore[method-assign]
    return study, time.perf_counter() - began


def after_units(units: int, act: Callable[[], None]) -> Callable[[Event], None]:
    """Act a moment after so many units are done."""
    done: list[Event] = []

    def see(event: Event) -> None:
        if event.kind == "done":
            done.append(event)
            if len(done) == units:
                threading.Timer(DELAY_SECONDS, act).start()

    return see


def judged(study: Study, local: Study, seconds: float) -> Outcome:
    attempts = [attempt for unit in study.units for attempt in study.run(unit)["attempts"]]
    causes = [attempt["cause"] for attempt in attempts if attempt["cause"] != DONE]
    files = ("model/model.safetensors", "predictions/test.parquet")
    pairs = [(study.path(unit) / file, local.path(unit) / file) for unit in study.units for file in files]
    return Outcome(
        units=len(study.units),
        done=sum(study.status(unit) == DONE for unit in study.units),
        equal=numbers(study).equals(numbers(local)),
        weights_equal=all(one.read_bytes() == other.read_bytes() for one, other in pairs),
        died=len(causes),
        causes=tuple(sorted({cause.split(":")[0] for cause in causes})),
        seconds=seconds,
    )


def numbers(study: Study) -> pd.DataFrame:
    """The table without the columns that hold times."""
    table = study.table
    return table[[name for name in table.columns if not str(name).startswith("time_")]]


def show(outcomes: dict[str, Outcome], up: float) -> None:
    table = Table(title="30 units by engine")
    for heading in ("engine", "done", "table equal", "weights and predictions equal", "attempts that died", "seconds"):
        table.add_column(heading)
    for name, o in outcomes.items():
        died = f"{o.died} ({', '.join(o.causes)})" if o.died else "0"
        table.add_row(name, f"{o.done} of {o.units}", str(o.equal), str(o.weights_equal), died, f"{o.seconds:.0f}")
    Console().print(table)
    told = {
        "name": "ray-kill",
        "measured": "units on a two-node Ray cluster whose numbers equal the local engine's, one node killed in the middle",
        "equal": all(o.equal and o.weights_equal for o in outcomes.values()),
        "lost": sum(o.units - o.done for o in outcomes.values()),
        "cluster_seconds": up,
        "outcomes": {name: asdict(o) for name, o in outcomes.items()},
        "versions": {"python": platform.python_version(), "numpy": np.__version__, "torch": torch.__version__},
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
