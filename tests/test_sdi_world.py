"""SDI on networks trained in a planted world (benchmarks/sdi_world.py): a biased one is called, one that only encodes is not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.slow]

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks import sdi_world  # noqa: E402


def test_a_biased_network_is_called_and_one_that_encodes_the_cue_without_using_it_is_not(monkeypatch):
    monkeypatch.setattr(sdi_world, "N", 1400)
    monkeypatch.setattr(sdi_world, "BALANCED", 1)
    threads = torch.get_num_threads()
    try:
        found = {row["kind"]: row for row in sdi_world.world("rim", 50)}
    finally:
        torch.set_num_threads(threads)
    assert found["biased"]["verdict"] == "shortcut" and found["biased"]["flip"] > 0.3
    for kind in ("balanced", "two tasks"):
        assert found[kind]["verdict"] != "shortcut" and abs(found[kind]["flip"]) < 0.1
        assert found[kind]["probe"] > 0.95  # the cue is encoded all the same
