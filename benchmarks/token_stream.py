"""Token influence of many images: does memory stay bounded, and what does a killed run lose?

50,000 rows of a .npy stack (TOKEN_STREAM_IMAGES of them) through a ViT of one block with 16 tokens: the network is tiny because
the question is about the stream. Memory is the process's own (anonymous) pages: those of the memory-mapped stack can be dropped
at any time and do not count. Another run is killed (SIGKILL) when half of its chunks are written, and started again.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import platform
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from rightreasons.data.cohort import Cohort
from rightreasons.evidence import Evidence
from rightreasons.extraction import extract
from rightreasons.models.classifier import Classifier

NEEDS_GPU = False

ARRAY = "maps@token_influence(explain=label)"
SIDE, BATCH, CHUNK = 16, 256, 1024
SAMPLED = 0.05  # seconds between looks at the memory
BARS = {"growth_mb": 64, "chunks_lost": 1}


def main() -> None:
    """Print what was found and, as the last line, the JSON object."""
    os.environ["RIGHTREASONS_QUIET"] = "1"
    count = int(os.environ.get("TOKEN_STREAM_IMAGES", 50_000))
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        _draw(data, count)
        few, all_ = (_finish(data, data / f"first {n}", n) for n in (max(CHUNK, count // 10), count))
        kill = _kill_and_resume(data, data / "killed", count)
        whole, again = (Evidence.open(data / name).on("test")[ARRAY] for name in (f"first {count}", "killed"))
        kill["equal_to_an_undisturbed_run"] = bool(np.array_equal(whole, again))
    growth = all_["late_mb"] - all_["early_mb"]
    Console().print(
        f"{count} images: {all_['images_per_second']:.0f} images/s; at most {all_['early_mb']:.0f} MB of own memory in the first "
        f"fifth of the chunks, {all_['late_mb']:.0f} MB in the rest ({growth:+.1f} MB); a tenth of the images: "
        f"{few['late_mb']:.0f} MB"
    )
    Console().print(
        f"killed with {kill['chunks_written']} of {kill['chunks']} chunks written; {kill['chunks_made_again']} of these were "
        f"made again; equal to an undisturbed run: {kill['equal_to_an_undisturbed_run']}; bars: {BARS}"
    )
    print(
        json.dumps(
            {
                "name": "token-stream",
                "measured": "peak of anonymous memory over the run, and chunks that a killed run makes again",
                "images": count,
                "batch": BATCH,
                "chunk": CHUNK,
                "whole": all_,
                "a_tenth": few,
                "growth_mb": round(growth, 2),
                "killed": kill,
                "bars": BARS,
                "passed": growth <= BARS["growth_mb"] and kill["chunks_made_again"] == 0 and kill["equal_to_an_undisturbed_run"],
                "versions": {"python": platform.python_version(), "torch": torch.__version__},
            }
        )
    )


def run(data: Path, target: Path, count: int, told: Any = None) -> None:
    """Extract the maps; hand back images a second and the highest memory while the first chunks and the later were made."""
    torch.set_num_threads(1)
    rows = np.arange(count)
    columns = {"id": [str(k) for k in rows], "image": [str(data / f"stack.npy#{k}") for k in rows], "label": rows % 2}
    cohort = Cohort.from_columns(columns, label="label", id="id")
    model = Classifier.load(
        "rightreasons.models.small:small_vit", num_classes=2, size=SIDE, mean=0.5, std=0.5, dim=16, depth=1, heads=2
    )
    peaks, stop = {"early": 0.0, "late": 0.0}, threading.Event()
    total = -(-count // CHUNK)

    def watch() -> None:
        while not stop.wait(SAMPLED):
            part = "early" if len(_written(target)) * 5 < total else "late"
            peaks[part] = max(peaks[part], _own_memory())

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    start = time.perf_counter()
    extract(model, {"test": cohort}, [ARRAY], out=target, batch=BATCH, chunk=CHUNK, threads=1, device="cpu")
    seconds = time.perf_counter() - start
    stop.set()
    watcher.join()
    if told is not None:
        told.put({"images_per_second": round(count / seconds, 1), "early_mb": peaks["early"], "late_mb": peaks["late"]})


# ---- what the functions above use ----------------------------------------------------------------------------------------


def _draw(data: Path, count: int) -> None:
    stack = np.lib.format.open_memmap(data / "stack.npy", mode="w+", dtype=np.uint8, shape=(count, SIDE, SIDE, 3))
    rng = np.random.default_rng(0)
    for start in range(0, count, 4096):
        stack[start : start + 4096] = rng.integers(0, 256, stack[start : start + 4096].shape, dtype=np.uint8)
    stack.flush()


def _finish(data: Path, target: Path, count: int) -> dict[str, float]:
    """In a process of its own, so that nothing that came before counts."""
    context = multiprocessing.get_context("spawn")
    told = context.Queue()
    process = context.Process(target=run, args=(data, target, count, told))
    process.start()
    process.join()
    if process.exitcode != 0:
        raise RuntimeError(f"the run in {target} ended with status {process.exitcode}")
    return told.get()  # type: ignore[no-any-return]


def _kill_and_resume(data: Path, target: Path, count: int) -> dict[str, Any]:
    total = -(-count // CHUNK)
    process = multiprocessing.get_context("spawn").Process(target=run, args=(data, target, count))
    process.start()
    while process.is_alive() and len(_written(target)) * 2 < total:
        time.sleep(0.002)
    process.kill()
    process.join()
    before = _written(target)
    _finish(data, target, count)
    after = _written(target)
    return {
        "chunks": total,
        "chunks_written": len(before),
        "was_running": process.exitcode != 0,
        "chunks_made_again": sum(after.get(number) != when for number, when in before.items()),
    }


def _written(target: Path) -> dict[str, int]:
    """Chunk files and when each was written."""
    folder = target / "test" / ARRAY / "c"
    if not folder.is_dir():
        return {}
    files = [(p, p / "0" / "0") for p in folder.iterdir() if p.name.isdigit()]
    return {p.name: f.stat().st_mtime_ns for p, f in files if f.is_file()}


def _own_memory() -> float:
    """Anonymous pages of this process in MB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("this system does not tell a process's anonymous memory: run it on Linux")


if __name__ == "__main__":
    main()
