"""What all tests share: quiet progress bars, few threads, and a word on the data that some need."""

from __future__ import annotations

import os
import sys
import zlib

os.environ.setdefault("RIGHTREASONS_QUIET", "1")
os.environ.setdefault("OMP_NUM_THREADS", "2")

import numpy as np
import pytest


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _same_weights_whatever_ran_before(request):
    """A test that makes a network draws the same weights alone, in another order and in another process."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(zlib.crc32(request.node.nodeid.encode()))


@pytest.fixture(scope="session")
def real_data() -> str:
    """The folder of third-party data that `real_data` tests read."""
    folder = os.environ.get("RIGHTREASONS_DATA")
    if not folder:
        pytest.skip("RIGHTREASONS_DATA names no folder of third-party data")
    return folder


@pytest.fixture
def one_quiet_thread(monkeypatch):
    """One thread of torch, and no progress bars."""
    import torch

    monkeypatch.setenv("RIGHTREASONS_QUIET", "1")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def own_module(tmp_path, monkeypatch):
    """A user's package with one module, importable while the test runs: `own_module(package, name, text)` gives its path."""
    packages = []

    def write(package, name, text):
        packages.append(package)
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
        (tmp_path / package / f"{name}.py").write_text(text)
        return tmp_path / package / f"{name}.py"

    monkeypatch.syspath_prepend(tmp_path)
    yield write
    for module in [m for m in sys.modules if m.partition(".")[0] in packages]:
        del sys.modules[module]
