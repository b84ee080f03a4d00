"""A study of two very small CNNs, as text to be changed, and one that is finished."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rightreasons.trust import trusting

TINY = """
name = "tiny"
engine = "inline"
[data]
world = "digits"
agreement = 0.9
n = 200
pixels = 12
[external.siteb]
world = "digits"
n = 200
pixels = 12
pixel_noise = 0.3
[architectures.cnn]
model = "rightreasons.models.small:small_cnn"
size = 12
width = 4
[train]
epochs = 2
batch = 32
[[runs]]
architecture = "cnn"
seed = [0, 1]
[performance]
B = 50
[audits.groups]
B = 50
[audits.flips]
B = 50
[engine_settings]
threads = 1
"""

HELD = '''
"""A network that is not built in a worker while the file that HELD names is there. Drivers only try whether it can be."""
import os
import time
from pathlib import Path
from rightreasons.models.small import small_cnn


def network(num_classes):
    is_worker = "rightreasons.study.engines.local" in Path("/proc/self/cmdline").read_text()
    while is_worker and Path(os.environ["HELD"]).exists():
        time.sleep(0.01)
    return small_cnn(num_classes, width=4)
'''


@pytest.fixture(scope="session")
def tiny() -> str:
    return TINY


@pytest.fixture
def toml(tmp_path: Path, tiny: str) -> Path:
    file = tmp_path / "tiny.toml"
    file.write_text(tiny)
    return file


@pytest.fixture
def held(toml: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """While this file is there the workers of the study in `toml` begin their units and go no further, however slow we are."""
    told = toml.read_text().replace("rightreasons.models.small:small_cnn", "held:network")
    toml.write_text(told.replace("width = 4", "mean = 0.5\nstd = 0.5"))
    (toml.parent / "modules").mkdir()
    (toml.parent / "modules" / "held.py").write_text(HELD)
    monkeypatch.syspath_prepend(toml.parent / "modules")
    monkeypatch.setenv("PYTHONPATH", str(toml.parent / "modules"))
    file = toml.parent / "hold"
    file.touch()
    monkeypatch.setenv("HELD", str(file))
    with trusting("held"):
        yield file


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished study; copy it before changing anything."""
    pytest.importorskip("torch")
    from rightreasons.study.sweep import sweep

    folder = tmp_path_factory.mktemp("finished")
    (folder / "tiny.toml").write_text(TINY)
    return sweep(folder / "tiny.toml", folder / "study", say=lambda _: None).folder
