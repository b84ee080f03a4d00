"""What all tests share: quiet progress bars, few threads, and a word on the data that some need."""

from __future__ import annotations

import os

os.environ.setdefault("RIGHTREASONS_QUIET", "1")
os.environ.setdefault("OMP_NUM_THREADS", "2")

import numpy as np
import pytest


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def real_data() -> str:
    """The folder of third-party data that `real_data` tests read."""
    folder = os.environ.get("RIGHTREASONS_DATA")
    if not folder:
        pytest.skip("RIGHTREASONS_DATA names no folder of third-party data")
    return folder
