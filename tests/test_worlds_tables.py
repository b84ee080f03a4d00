"""The error rates of benchmarks/worlds on made-up rows, against numbers worked out by hand."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.worlds import mend, outside, page, tables

from rightreasons import case
from rightreasons.calibration import Calibration

SAID = {"s": "shortcut", "n": "no evidence", "i": "inconclusive", "x": "not run"}


@pytest.fixture(autouse=True)
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "B", 50)


def rows() -> pd.DataFrame:
    """Two null worlds and two with a shortcut, two models each."""
    told = []
    for world, null, kind, truth, art, oscar in (
        ("a", True, "no cue", (0.00, 0.00), "ns", "nn"),
        ("b", True, "independent", (0.01, 0.03), "ni", "sx"),
        ("c", False, "shortcut", (0.25, 0.50), "ss", "ns"),
        ("d", False, "shortcut", (0.05, 0.30), "ni", "is"),
    ):
        for k in range(2):
            votes = [case.Vote("reliance", SAID[art[k]]), case.Vote("place", SAID[oscar[k]])]  # type: ignore[arg-type]
            combined = case.combine(votes)
            told.append(
                {
                    "world": world, "kind": kind, "is_null": null, "model": k, "attribute": "cue", "reliance": truth[k],
                    "art verdict": SAID[art[k]], "art p": 0.001 if art[k] == "s" else 0.5, "art row": "reliance",
                    "art seconds": 1.0 + k, "oscar verdict": SAID[oscar[k]], "oscar row": "place", "groups verdict": "None",
                    "oscar IoU": 0.5 if world == "c" else None, "flips verdict": "no evidence" if null else "shortcut",
                    "case verdict": combined.verdict, "case score": combined.score, "probe leakage": 0.5 + truth[k],
                }
            )  # fmt: skip
    return pd.DataFrame(told)


def test_the_exact_interval_is_clopper_and_pearsons() -> None:
    assert tables.exact(0, 10) == pytest.approx((0.0, 1 - 0.025 ** (1 / 10)))
    assert tables.exact(10, 10) == pytest.approx((0.025 ** (1 / 10), 1.0))
    assert tables.exact(2, 10) == pytest.approx((0.02521, 0.55610), abs=1e-5)
    assert tables.exact(28, 400)[1] < 0.1 < tables.exact(29, 400)[1] + 0.01


def test_models_that_are_alike_within_a_world_count_for_less() -> None:
    called, world = np.array([1.0, 1, 0, 0, 0, 0, 0, 0]), np.repeat(["a", "b", "c", "d"], 2)
    # p = 1/4; sums of residuals 1.5, -.5, -.5, -.5; variance 4/3 * 3 / 64 = 1/16, of independent models
    # 3/16 / 7: as many as 8 * 3/7 of these
    # and 3 instead of 7 degrees of freedom: times (2.3646 / 3.1824) squared
    effective = 24 / 7 * (2.36462 / 3.18245) ** 2
    assert tables.by_world(called, world) == pytest.approx(tables.exact(effective / 4, effective), abs=1e-4)
    single = np.arange(8)
    assert tables.by_world(called, single) == pytest.approx(tables.exact(2, 8), abs=1e-9)
    assert tables.by_world(np.zeros(8), world) == tables.exact(0, 8)


def test_false_alarms_power_and_what_is_open() -> None:
    told = tables.tell(rows())
    assert (told["models"], told["rows"], told["worlds"], told["nulls"], told["relying"]) == (8, 8, 4, 4, 3)
    assert list(told["judges"]) == ["case", "art", "oscar"]  # groups describes, flips sees the twins
    assert list(told["with twins"]) == ["flips"]
    art = told["judges"]["art"]
    assert (art["false alarms"]["no cue"]["called"], art["false alarms"]["no cue"]["n"]) == (1, 2)
    assert art["false alarms"]["independent"]["called"] == 0
    assert art["false alarms"]["all nulls"]["rate"] == 0.25
    assert (art["relying"]["called"], art["relying"]["n"]) == (2, 3)
    assert [bin["n"] for bin in art["power"]] == [0, 0, 1, 0, 2, 1]
    assert [bin["rate"] for bin in art["power"]] == [None, None, 0.0, None, 0.5, 1.0]
    assert art["inconclusive"] == 2 / 8
    assert told["judges"]["oscar"]["inconclusive"] == 2 / 8
    assert art["seconds"] == {"median": 1.5, "most": 2.0}
    assert told["judges"]["oscar"]["IoU"]["value"] == 0.5
    assert told["judges"]["oscar"]["IoU"]["n"] == 2
    assert told["kinds"]["independent"] == {"rows": 2, "worlds": 1, "reliance": pytest.approx(0.02)}


def test_an_audit_that_a_row_has_no_word_of_is_not_counted_there() -> None:
    given = rows()
    given.loc[given["world"] == "a", "oscar verdict"] = None
    told = tables.tell(given)["judges"]["oscar"]
    assert told["false alarms"]["all nulls"]["n"] == 2
    assert told["ranked"] == 6


def test_ranking_by_hand() -> None:
    truth, value = np.array([0.0, 0.1, 0.3, 0.5]), np.array([1.0, 3.0, 2.0, 4.0])
    assert tables.auroc(truth >= 0.2, value) == 0.75
    assert tables.auroc(truth >= 0.2, np.array([1.0, 2.0, 2.0, 2.0])) == 0.75  # two ties of four pairs
    assert np.isnan(tables.auroc(truth >= 0.9, value))
    assert tables.spearman(value, truth) == pytest.approx(0.8)  # 1 - 6 * 2 / (4 * 15)
    told = tables.tell(rows())
    assert told["rivals"]["probe leakage"]["AUROC"]["value"] == 1.0
    # art: three relying models with scores 2.9, 2.9, 1.45 against 0.45, 2.9, 0.45, 1.45, 0.45: 15 pairs, 12 in order, 3 ties
    assert told["judges"]["art"]["AUROC"]["value"] == pytest.approx(12.5 / 15)


def test_two_seeds_are_compared_with_the_first_ones_interval() -> None:
    first = tables.tell(rows())
    other = rows()
    other.loc[other["is_null"], "art verdict"] = "shortcut"
    found = tables.compared(first, tables.tell(other))
    assert found["art"]["power"]["within"] is True
    assert found["art"]["false alarms"]["second"]["rate"] == 1.0
    assert found["art"]["false alarms"]["p"] == pytest.approx(1 / 7, abs=1e-9)  # both tables of 5 called in 8: 8 / 56


def test_demands_say_what_is_missed() -> None:
    told = {what: met for what, _, met in tables.demands(tables.tell(rows()))}
    assert told["art: upper limit of false alarms at most 10 %"] is False
    assert told["case: at least 95 % called at a true reliance of 0.2 or more"] is False
    assert told["case: AUROC above that of probe leakage"] is False


def test_the_rule_as_it_is_says_what_the_case_said() -> None:
    given = rows()
    verdict, score = mend.again(given, mend.Rule(case.WEIGHT, ("art", "oscar")))
    assert verdict.tolist() == given["case verdict"].tolist()
    assert score.tolist() == given["case score"].tolist()


def test_other_rules_change_it_and_leave_the_package_alone() -> None:
    given, before = rows(), dict(case.WEIGHT)
    alone, _ = mend.again(given, mend.Rule({"reliance": 1.0, "place": 0.0}, ("art",)))
    assert alone.tolist() == [v if v != "not run" else "inconclusive" for v in given["art verdict"]]
    strict, _ = mend.again(given, mend.Rule({"reliance": 1.0}, ("art",), alpha=0.0005))
    assert "shortcut" not in strict
    assert dict(case.WEIGHT) == before
    line = mend.line(given, mend.Rule({"reliance": 1.0}, ("art",)))
    assert (line["alarms"], line["power"], line["open"]) == (0.25, pytest.approx(2 / 3), 0.25)


def test_a_stored_estimate_can_be_tried_as_a_voter() -> None:
    given = rows()
    stored = [[["pull", r, r - 0.1, r + 0.1, None]] for r in given["reliance"]]
    given["groups estimates"] = [*stored[:-1], []]
    found = mend.derived(given, "groups:pull:0.1:0.2")
    assert found["groups pull 0.1 verdict"].tolist() == [*["no evidence"] * 4, *["shortcut"] * 2, "no evidence", "inconclusive"]
    assert "groups pull 0.1" in mend.voters_of(found)
    told = mend.estimates(given).iloc[0]
    assert (told["estimate"], told["rows"], told["AUROC of value"], told["Spearman of low"]) == ("pull", 7, 1.0, 1.0)


def test_what_other_tools_said_is_joined_by_model_or_by_world(tmp_path: Path) -> None:
    answers = [
        {"tool": "ShortKit-ML", "world": "a", "model": 1, "attribute": "cue", "score": 3.0, "called": True},
        {"tool": "Cleanlab", "world": "c", "score": 0.4, "called": False},
    ]
    (tmp_path / outside.ANSWERS).write_text("\n".join(map(json.dumps, answers)))
    found = outside.joined(rows(), tmp_path)
    assert found["ShortKit-ML"].notna().tolist() == [False, True, *[False] * 6]
    assert found.loc[1, "ShortKit-ML verdict"] == "shortcut"
    assert found.loc[found["world"] == "c", "Cleanlab"].tolist() == [0.4, 0.4]


def test_the_page_its_figures_and_the_rates_are_written_from_stored_rows(tmp_path: Path) -> None:
    for seed in (1, 2):
        folder = tmp_path / f"seed-{seed}"
        folder.mkdir()
        named = rows().assign(world=lambda of, seed=seed: of["world"] + f"-{seed}")
        for world, of in named.groupby("world"):
            (folder / f"{world}.json").write_text(of.to_json(orient="records"))
    sweep = {"data": "digits", "seed": 0, "p": 0.5, "judge_seconds": 1.0}
    lines = [
        {**sweep, "kind": "no association", "number": k, "verdict": "no evidence", "flips": 0.05, "p": 0.5} for k in range(3)
    ] + [{**sweep, "kind": "0.9 / 0.1", "number": k, "verdict": "shortcut", "flips": 0.3, "p": 0.001} for k in range(3)]
    (tmp_path / "short").mkdir()
    (tmp_path / "short" / "a.jsonl").write_text("\n".join(map(json.dumps, lines)))
    target = tmp_path / "calibration.md"
    docs = Path(__file__).parents[1] / "docs" / "calibration.md"
    target.write_text(docs.read_text(encoding="utf-8"), encoding="utf-8")
    folders = [str(tmp_path / f"seed-{seed}") for seed in (1, 2)]
    page.main([*folders, "--short", str(tmp_path / "short"), "--to", str(target), "--package", str(tmp_path / "rates.json")])
    text = target.read_text(encoding="utf-8")
    assert "Not yet measured" not in text
    assert "| art | 2 of 8 | 3.2 to 65.1 % |" in text
    assert "16 audits of 16 models in 8 worlds (seeds 1, 2)" in text
    for name in ("alarms", "power", "ranking"):
        assert "<svg" in (tmp_path / f"calibration-{name}.svg").read_text()
        assert f"(calibration-{name}.svg)" in text
    assert json.loads((tmp_path / "calibration.json").read_text())["judges"]["art"]["relying"]["called"] == 4
    rates = Calibration.read(tmp_path / "rates.json")
    assert set(rates.judges) == {"case", "art", "oscar", "flips", "short"}
    assert rates.seeds == (1, 2)
    assert rates.line("short").startswith(
        "In 3 audits of sweeps without a shortcut (planted worlds) this test raised a false alarm in 0 %"
    )


def test_what_was_mended_can_be_undone_where_it_alone_decided() -> None:
    given = rows()
    only = [["answers follow the attribute"] if v == "no evidence" else [] for v in given["oscar verdict"]]
    given = given.assign(**{"oscar failed": only})
    told = mend.before_and_after(given).set_index(["verdict of", ""])
    assert told.loc[("oscar", "before"), "false alarms"] != told.loc[("oscar", "after"), "false alarms"]
    assert told.loc[("oscar", "before"), "no evidence at 0.2 or more"] == 0
    assert told.loc[("art", "before")].equals(told.loc[("art", "after")])
    assert told.loc[("case", "after"), "AUROC"] == tables.auroc(given["reliance"] >= 0.2, given["case score"])


def test_what_false_alarms_learnt_by_chance_is_told() -> None:
    given = rows()
    alarms = given.index[given["is_null"]][:3]
    verdict = np.where(given.index.isin(alarms), "shortcut", "no evidence")
    signed = np.linspace(0.0, 0.01, len(given))
    signed[alarms[0]] = -0.3
    pulls = [[["pull", 2 * abs(v), 0.0, 1.0, None]] for v in signed]
    given = given.assign(
        **{"case verdict": verdict, "directed": signed, "pull estimates": pulls, "cue": "tag", "attribute": "cue"}
    )
    given = given.drop(columns=["case with twins verdict"], errors="ignore")
    chance, pull = mend.learnt_by_chance(given)
    assert "1 of 3 false alarms" in chance and "(0.30 to 0.30)" in chance
    assert f"correlation 1.00 with the size of the signed change, {len(given)} models" in pull
