"""A disk that is full, or a limit on the size of files, is one sentence; what was there before stays."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, resource.RLIM_INFINITY))
from rightreasons import cli
sys.argv = ["rightreasons", *sys.argv[1:]]
cli.main()
"""


@pytest.fixture
def predictions(tmp_path: Path) -> Path:
    table = pd.DataFrame({"id": range(60), "y": [0, 1] * 30, "sex": ["f", "m", "m"] * 20, "p": [0.2, 0.7, 0.4] * 20})
    table.to_csv(tmp_path / "p.csv", index=False)
    return tmp_path / "p.csv"


@pytest.mark.slow  # each starts a process of its own
@pytest.mark.skipif(not hasattr(resource, "RLIMIT_FSIZE"), reason="this system has no limit on the size of files")
@pytest.mark.parametrize("limit", [0, 2000])
def test_a_limit_on_the_size_of_files_is_one_sentence(predictions, tmp_path, limit):
    given = ["audit", "--predictions", str(predictions), "--id", "id", "--label", "y", "--attribute", "sex", "--audits", "groups"]
    more = ["--set", "groups.B=50", "--out", str(tmp_path / "out")]
    code = LIMITED.format(limit=limit)
    found = subprocess.run([sys.executable, "-c", code, *given, *more], capture_output=True, text=True, check=False)
    assert found.returncode == 2, found
    # Libraries may warn that they cannot write either; what is ours is one sentence.
    ours = [line for line in found.stderr.splitlines() if line.startswith("error:")]
    assert len(ours) == 1 and ours[0].startswith("error: File too large"), found.stderr
    assert "Traceback" not in found.stderr
    assert not [p for p in (tmp_path / "out").rglob("*") if p.name.endswith(".partial") or p.name == "report.html"]
