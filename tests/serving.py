"""A server of `rightreasons serve` that runs while a test asks it."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rightreasons.serve import Server


@contextmanager
def serving(place: Path) -> Iterator[Server]:
    with Server(place, port=0) as made:
        thread = threading.Thread(target=made.run, daemon=True)
        thread.start()
        yield made
        made.stop()
        thread.join()


def plan_of(name: str, units: Iterable[str]) -> dict[str, Any]:
    """A plan.json that is as short as one can be."""
    named = {"architecture": "cnn", "regime": "erm", "cohort": "data", "method": "erm", "rows": ""}
    unit = {**named, "seed": 0, "extract": {}, "threads": 1}
    empty: dict[str, Any] = {key: {} for key in (
        "code", "engine_settings", "driver", "decoding", "extract", "performance", "axes", "audits", "cohorts", "references",
    )}  # fmt: skip
    known = {"name": name, "seed": 0, "base": "", "engine": "local", "measured": "x"}
    return {**empty, **known, "units": dict.fromkeys(units, unit)}
