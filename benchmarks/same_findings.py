"""Every finding of four whole runs, kept or compared: does a change of the code's shape change a number?

    make bench NAME=same-findings                      runs into build/same-findings/now, compares with …/before
    KEEP=before make bench NAME=same-findings          runs into build/same-findings/before

The runs are the demo, `examples/digits/quick.toml`, a brought network with every audit (references and a family are trained
for it), and a study of [[runs]] that names no audits, so that all are added with their references. Numbers, verdicts, checks and
exhibits must be equal to the last digit; words that differ are listed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console

HERE = Path(__file__).parents[1]
HOME = HERE / "build" / "same-findings"
NOT_RESULTS = ("seconds", "created", "versions")
NEW_FIELDS = ("id", "lacks", "criterion")  # names that code asks for; findings of before 0.1.0's redesign have none
STUDY = """
name = "references"
[data]
world = "digits"
agreement = 0.95
n = 900
pixels = 16
[architectures.cnn]
model = "rightreasons.models.small:small_cnn"
size = 16
width = 8
mean = 0.5
std = 0.5
[train]
epochs = 6
lr = 3e-3
batch = 32
[[runs]]
seed = [0, 1]
"""
WORLD = "from rightreasons.data import planted; planted.digits('world', agreement=0.95, n=900, pixels=16)"
COLUMNS = "--label label --attribute cue --split split --box box --mask mask --twin twin --twin-attribute twin_cue"
BROUGHT = (
    f"train world/manifest.csv {COLUMNS} --model rightreasons.models.small:small_vit --size 16 --mean 0.5 --std 0.5 "
    "--epochs 5 --lr 0.001 --out model",
    f"audit world/manifest.csv {COLUMNS} --model model --start fresh --full --out .",
)

console = Console()


def main() -> None:
    """Run everything, then compare with what was kept."""
    name = os.environ.get("KEEP", "now")
    for run in (demo, quick, study, brought):
        place = HOME / name / run.__name__
        place.mkdir(parents=True, exist_ok=True)
        run(place)
        console.print(f"{run.__name__}: {len(list(findings_in(place)))} findings in {place}")
    if name == "before":
        return
    before, now = dict(all_findings(HOME / "before")), dict(all_findings(HOME / name))
    numbers, words = [], []
    for file in sorted(before.keys() | now.keys()):
        if file not in before or file not in now:
            numbers.append(f"{file} is only in {'now' if file in now else 'before'}")
            continue
        for path, old, new in differences(before[file], now[file]):
            is_words = isinstance(old, str) and isinstance(new, str) and not path.endswith("verdict")
            (words if is_words else numbers).append(f"{file}: {path}: {old!r} → {new!r}")
    for line in numbers:
        console.print(f"NUMBER {line}", markup=False)
    for line in words:
        console.print(f"words {line}", markup=False)
    print(json.dumps({"benchmark": "same-findings", "findings": len(now), "numbers": len(numbers), "words": len(words)}))


def demo(place: Path) -> None:
    rightreasons(place, "demo --out .")


def quick(place: Path) -> None:
    rightreasons(place, f"sweep {HERE / 'examples' / 'digits' / 'quick.toml'} --out .")


def study(place: Path) -> None:
    (place / "asked.toml").write_text(STUDY)
    rightreasons(place, "audit asked.toml --out .")


def brought(place: Path) -> None:
    subprocess.run([sys.executable, "-c", WORLD], cwd=place, check=True)
    for command in BROUGHT:
        rightreasons(place, command)


def rightreasons(place: Path, command: str) -> None:
    quiet = {**os.environ, "RIGHTREASONS_QUIET": "1"}
    with (place / "log.txt").open("a") as log:
        subprocess.run([sys.executable, "-m", "rightreasons", *command.split()], cwd=place, check=True, stdout=log, env=quiet)


def findings_in(place: Path) -> Iterator[Path]:
    return (file for file in place.glob("findings/*.json"))


def all_findings(home: Path) -> Iterator[tuple[str, Any]]:
    for place in sorted(home.iterdir()):
        for file in findings_in(place):
            yield f"{place.name}/{file.name}", json.loads(file.read_text())


def differences(old: Any, new: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Where two JSON values differ."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            if (not path and key in NOT_RESULTS) or (key in NEW_FIELDS and key not in old):
                continue
            yield from differences(old.get(key), new.get(key), f"{path}.{key}" if path else key)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for k, (one, other) in enumerate(zip(old, new, strict=True)):
            yield from differences(one, other, f"{path}[{k}]")
    elif old != new:
        yield path, old, new


if __name__ == "__main__":
    main()
