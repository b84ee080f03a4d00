"""The scoreboard: last lines become a page, one that says no JSON is refused, and a ratio that fell by half fails."""

from __future__ import annotations

import json

import numpy as np
import pytest
from benchmarks import _scoreboard, small, tables
from benchmarks.__main__ import known, main

KEPT = {"ratio": 12.5, "measured": "seconds", "limits": {"seconds": 60}, "peer": "a plain loop"}


def test_the_page_has_a_line_for_each_benchmark_with_its_ratio_its_limits_and_its_machine():
    one = {"result": KEPT, "machine": "a machine", "versions": {"numpy": "2"}, "date": "2026-01-01"}
    page = _scoreboard.page({"tables": one, "art": {**one, "result": {"name": "art"}}})
    lines = [line for line in page.splitlines() if line.startswith("| `")]
    assert lines[1] == "| `tables` | 12.5 | seconds | seconds: 60; peer: a plain loop | a machine, 2026-01-01 |"
    assert lines[0].startswith("| `art` | – |") and lines[3] == "| `tables` | numpy 2 |"


def test_all_runs_what_is_named_keeps_the_rest_and_fails_where_one_says_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(_scoreboard, "KEPT", tmp_path / "kept.json")
    monkeypatch.setattr(_scoreboard, "PAGE", tmp_path / "benchmarks.md")
    monkeypatch.setattr(_scoreboard, "last_line", lambda name: None if name == "art" else {"ratio": len(name)})
    assert main(["all", "tables"]) == 0 and main(["all", "bootstrap", "art"]) == 1
    kept = json.loads((tmp_path / "kept.json").read_text())
    assert {name: one["result"]["ratio"] for name, one in kept.items()} == {"bootstrap": 9, "tables": 6}
    assert "`tables`" in (tmp_path / "benchmarks.md").read_text()
    assert main(["all", "no such"]) == 2


def test_the_small_version_holds_a_ratio_for_everything_that_it_measures(monkeypatch, capsys):
    kept = json.loads(small.KEPT.read_text())
    assert list(kept) == list(small.RATIOS) and "small" in known()
    monkeypatch.setattr(small, "ratios", lambda: {name: 0.6 * ratio for name, ratio in kept.items()})
    small.main()
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["ratio"] == pytest.approx(0.6)
    monkeypatch.setattr(small, "ratios", lambda: {name: 0.4 * ratio for name, ratio in kept.items()})
    with pytest.raises(SystemExit, match="fallen"):
        small.main()


def test_planted_tables_have_subjects_that_stay_in_one_split_and_a_model_that_leans_on_the_first_attribute():
    table = tables.planted(4000)
    assert (table.groupby("subject")["split"].nunique() == 1).all()
    means = [table.groupby(name)["p_1"].mean().to_numpy() for name in ("a0", "a4")]
    assert np.ptp(means[0]) > 2 * np.ptp(means[1])
