"""Tests in environments of their own: what pyproject.toml promises is tried, not believed. It needs uv and a package index.

    python tests/elsewhere.py lowest    the command line and the numbers wing with the lowest versions that pyproject.toml allows
    python tests/elsewhere.py wheel     the wheel, outside the repository, on every Python that pyproject.toml names

A Python that is not on this machine and cannot be fetched is skipped by name.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

HOME = Path(__file__).resolve().parents[1]
UV = shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv") or "uv"
FAST = "not torch and not slow"
FETCH_SECONDS = 120
WITH_THE_WHEEL = (
    "conftest.py", "sample_findings.py", "stored", "test_installed.py", "test_stored.py", "test_seal.py", "test_findings.py",
    "test_gate.py", "test_head.py", "test_measurements.py", "test_files.py", "stats/test_groups.py", "stats/test_resampling.py",
    "data/test_cohort.py", "audits/test_groups_audit.py", "audits/test_pull_audit.py",
)  # fmt: skip
"""Tests, and what they read: nothing else of the repository."""
WITH_THE_LOWEST = (
    "test_installed.py", "test_stored.py", "test_seal.py", "test_partitions.py", "test_evidence.py", "test_exports.py",
    "test_check.py", "data/test_cohort.py", "data/test_images.py", "report", "stats/test_probes.py", "stats/test_spatial.py",
    "stats/test_correlation.py", "stats/test_groups.py", "audits/test_groups_audit.py", "audits/test_excess_audit.py",
    "audits/test_probes_audit.py",
)  # fmt: skip
"""Tests that call what the numbers wing stands on, each dependency at least once."""


def lowest() -> int:
    """The lowest versions go with the lowest Python: older ones than these have no wheels for later Pythons."""
    version = pythons()[0]
    place = HOME / ".venv-lowest"
    if not made(place, version):
        return 0
    install(place, "--resolution", "lowest-direct", "--group", "numbers", "--group", "test")
    install(place, "--no-deps", "--editable", ".")
    # Old packages warn of new neighbours (typer 0.16 of click 8.5): that is not ours to mend.
    tests = [f"tests/{name}" for name in WITH_THE_LOWEST]
    return tested(place, HOME, *tests, "-W", "default::DeprecationWarning", "-W", "default::FutureWarning")


def wheel() -> int:
    with tempfile.TemporaryDirectory(prefix="rightreasons-wheel-") as folder:
        uv("build", "--quiet", "--wheel", "--out-dir", folder, str(HOME))
        (built,) = Path(folder).glob("*.whl")
        failed = [version for version in pythons() if not works(built, version, Path(folder) / version)]
    if failed:
        print(f"the wheel fails on Python {', '.join(failed)}")
    return len(failed)


def works(built: Path, version: str, place: Path) -> bool:
    """Whether the tests pass on one Python with nothing of the repository at hand; true where there is no such Python."""
    environment, tests = place / "venv", place / "tests"
    if not made(environment, version):
        return True
    install(environment, "--constraint", "constraints.txt", "--group", "numbers", "--group", "test")
    install(environment, "--no-deps", str(built))
    for name in WITH_THE_WHEEL:
        source = HOME / "tests" / name
        (tests / name).parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, tests / name)
    shutil.copy(HOME / "pyproject.toml", place)  # how pytest is set up
    imported = subprocess.run(
        [environment / "bin" / "python", "-c", "import rightreasons; print(rightreasons.__file__)"],
        cwd=place, capture_output=True, text=True, check=True,
    )  # fmt: skip
    if not Path(imported.stdout.strip()).is_relative_to(environment):
        print(f"Python {version} imports {imported.stdout.strip()} and not the wheel")
        return False
    print(f"the wheel on Python {version}", flush=True)
    return tested(environment, place) == 0


def tested(environment: Path, place: Path, *more: str) -> int:
    """Exit status of the tests in a folder, run by the Python of an environment."""
    alone = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [environment / "bin" / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", FAST, *more]
    return subprocess.run(command, cwd=place, env=alone, check=False).returncode


# ---- environments --------------------------------------------------------------------------------------------------------


def pythons() -> list[str]:
    """The versions that pyproject.toml names, the lowest first."""
    told = tomllib.loads((HOME / "pyproject.toml").read_text())["project"]["classifiers"]
    found = [match[1] for line in told if (match := re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", line))]
    return sorted(found, key=lambda version: int(version.partition(".")[2]))


def made(place: Path, version: str) -> bool:
    """Make an empty environment with a Python; false, and said, where there is none."""
    for candidate in candidates(version):
        command = [UV, "venv", "--quiet", "--clear", "--python", candidate, str(place)]
        try:
            if subprocess.run(command, capture_output=True, timeout=FETCH_SECONDS, check=False).returncode == 0:
                return True
        except subprocess.TimeoutExpired:
            continue
    print(f"skipped: Python {version} is not on this machine and cannot be fetched", flush=True)
    return False


def candidates(version: str) -> Iterator[str]:
    """What may be that Python: one that is here, then one that uv knows or fetches."""
    here = [
        sys.executable,
        shutil.which(f"python{version}"),
        *map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin/python")),
    ]
    for program in filter(None, here):
        told = subprocess.run(
            [program, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], capture_output=True, text=True, check=False
        )
        if told.stdout.strip() == version:
            yield program
    yield version


def install(environment: Path, *what: str) -> None:
    uv("pip", "install", "--quiet", "--python", str(environment / "bin" / "python"), *what)


def uv(*arguments: str) -> None:
    """Without uv's cache: environments share its files by hard links, so what one of them did to a library would be installed."""
    subprocess.run([UV, *arguments], cwd=HOME, env={**os.environ, "UV_NO_CACHE": "1"}, check=True)


if __name__ == "__main__":
    sys.exit({"lowest": lowest, "wheel": wheel}[sys.argv[1]]())
