"""A comparison says what changed and how sure that is, and never pairs what does not belong together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from rightreasons.cli import app
from rightreasons.compare import Side, compare, difference, first, lead, matched, sides
from rightreasons.errors import DataError
from rightreasons.evidence import Evidence
from rightreasons.findings import Finding, not_run
from rightreasons.report import page
from rightreasons.stats.groups import worst_group_accuracy
from rightreasons.testing import synthetic_evidence
from sample_findings import EVIL, estimate, finding, saved, some


def test_a_difference_of_two_symmetric_intervals_adds_their_variances() -> None:
    change = difference(estimate(0.3, 0.03), estimate(0.5, 0.04))
    assert change.value == pytest.approx(0.2)
    assert (change.low, change.high) == (pytest.approx(0.15), pytest.approx(0.25))


def test_each_limit_of_a_difference_comes_from_the_limits_that_it_rests_on() -> None:
    a, b = estimate(0.5, low=0.4, high=0.52), estimate(0.6, low=0.57, high=0.7)
    change = difference(a, b)
    assert change.low == pytest.approx(0.1 - np.hypot(0.03, 0.02))
    assert change.high == pytest.approx(0.1 + np.hypot(0.1, 0.1))


def test_the_interval_of_a_difference_covers_the_truth_as_often_as_it_says(rng: np.random.Generator) -> None:
    n, p, q, z = 80, 0.9, 0.75, 1.959964
    covered = 0
    for _ in range(2000):
        ends = []
        for share in (p, q):
            x = rng.binomial(n, share) / n  # Wilson's interval, which is not symmetric
            middle, half = (
                (x + z * z / (2 * n)) / (1 + z * z / n),
                z / (1 + z * z / n) * np.sqrt(x * (1 - x) / n + z * z / (4 * n * n)),
            )
            ends.append(estimate(x, low=middle - half, high=middle + half))
        change = difference(*ends)
        assert change.low is not None
        assert change.high is not None
        covered += change.low <= q - p <= change.high
    assert 0.94 <= covered / 2000 <= 0.965


@pytest.mark.parametrize(
    ("a", "b", "reason"),
    [
        (estimate(0.3, low=None, high=None), estimate(0.4), "no interval on both sides"),
        (estimate(0.3, level=0.9), estimate(0.4), "the intervals have different levels"),
        (estimate(float("nan"), low=None, high=None, reason="no rows"), estimate(0.4), "no rows"),
        (None, estimate(0.4), "on one side only"),
    ],
)
def test_a_difference_that_cannot_be_given_says_why(a, b, reason) -> None:
    change = difference(a, b)
    assert change.low is None
    assert change.reason == reason


def test_findings_meet_by_name_and_else_by_audit_and_attribute() -> None:
    before = [finding("art-one", audit="art"), finding("groups", None), finding("sdi")]
    after = [finding("groups", None), finding("art-two", audit="art"), finding("tsi")]
    both = matched(before, after)
    pairs, alone = both.pairs, (both.only_before, both.only_after)
    assert [(a.name, b.name) for a, b in pairs] == [("art-one", "art-two"), ("groups", "groups")]
    assert [f.name for part in alone for f in part] == ["sdi", "tsi"]


def test_a_changed_verdict_is_said_and_marked() -> None:
    found = compare(Side("A", tuple(some())), Side("B", tuple(some(verdict="no evidence", estimates=[estimate(0.1)]))))
    by_name = {f.name: f for f in found}
    assert by_name["changes"].sentence.startswith("1 of the 3 findings on both sides changed")
    assert "art: shortcut → no evidence" in lead(found)
    assert by_name["changes"].exhibits[0].highlight == (0,)
    art = by_name["change of art"]
    assert art.verdict is None
    assert art.estimates[0].value == pytest.approx(-0.2)
    assert art.row == "reliance"
    assert "no reference models" in by_name["change of oscar"].not_run


def test_other_settings_rows_and_failed_checks_are_said() -> None:
    a = finding(settings={"B": 100}, n_rows=10)
    b = finding(settings={"B": 200}, n_rows=20, checks=[{"name": "enough rows", "passed": False}])
    checks = {c.name: c for c in compare(Side("A", (a,)), Side("B", (b,)))[1].checks}
    assert [c.passed for c in checks.values()] == [False, False, False]
    assert "B: 100 and 200" in checks["both sides were audited with the same settings"].note


def _other(evidence: Evidence, order: np.ndarray | None = None, classes: list[int] | None = None) -> Evidence:
    """The same answers with rows or outputs in another order."""
    view = evidence.on("test")
    rows = np.arange(len(view)) if order is None else order
    logits = view["logits"][rows]
    columns = [0, 1] if classes is None else classes
    return Evidence.from_arrays({"test": view.cohort.select(rows)}, {"test": {"logits": logits[:, columns]}}, classes=columns)


def test_paired_differences_are_those_of_the_same_rows() -> None:
    before, after = synthetic_evidence(seed=0), synthetic_evidence(seed=1)
    (found,) = compare(Side("A", evidence=before), Side("B", evidence=after), B=200)
    rows = before.on("test").cohort
    cue = rows.attribute("cue").values
    worst = [worst_group_accuracy(rows.label, e["logits"].argmax(1), cue) for e in (before, after)]
    assert found.estimates[0].value == pytest.approx(worst[1] - worst[0])
    assert all(check.passed for check in found.checks if "same images" in check.name)
    assert found.sentence.startswith("Going from A to B takes the worst-group accuracy")


def test_rows_and_outputs_in_another_order_change_nothing(rng: np.random.Generator) -> None:
    before = synthetic_evidence(seed=0)
    shuffled = _other(before, order=rng.permutation(len(before.on("test"))))
    turned = _other(before, classes=[1, 0])
    for other in (shuffled, turned):
        (found,) = compare(Side("A", evidence=before), Side("B", evidence=other), B=50)
        assert [e.value for e in found.estimates if "difference" in e.name] == pytest.approx([0.0, 0.0, 0.0])
        assert found.estimates[0].low == found.estimates[0].high == 0.0  # paired: no chance is left
    last = found.checks[-1]
    assert last.passed is True


def test_models_of_different_questions_are_not_paired() -> None:
    before = synthetic_evidence()
    view = before.on("test")
    other = Evidence.from_arrays({"test": view.cohort}, {"test": {"logits": view["logits"]}}, classes=[0, 1], target="cue")
    (found,) = compare(Side("A", evidence=before), Side("B", evidence=other))
    assert "only models that answer the same question" in found.not_run


def test_evidence_without_what_is_compared_is_not_paired() -> None:
    whole = synthetic_evidence()
    view = whole.on("test")
    bare = Evidence.from_arrays({"audit": view.cohort}, {"audit": {"logits": view["logits"]}}, classes=[0, 1])
    for one, other in ((whole, bare), (bare, whole)):
        (found,) = compare(Side("A", evidence=one), Side("B", evidence=other))
        assert "no cohort 'test'" in found.not_run


def test_a_side_is_read_from_findings_or_evidence(tmp_path: Path) -> None:
    saved(tmp_path / "one" / "out", some())
    saved(tmp_path / "two" / "out", some())
    one, other = sides(tmp_path / "one" / "out", tmp_path / "two" / "out")
    assert (one.name, other.name) == ("one", "two")
    assert len(one.findings) == 3
    assert one.evidence is None
    view = synthetic_evidence().on("test")
    place = tmp_path / "e" / "evidence"
    Evidence.from_arrays({"test": view.cohort}, {"test": {"logits": view["logits"]}}, path=place)
    assert Side.read(tmp_path / "e").evidence is not None
    assert Side.read(place).evidence is not None
    with pytest.raises(DataError, match="no findings"):
        Side.read(tmp_path)


def test_the_command_writes_one_page_and_shows_odd_names_as_text(tmp_path: Path) -> None:
    odd = {"model": EVIL, "attribute": EVIL}
    a, b = tmp_path / "a<b>&", tmp_path / "b"
    saved(a, [finding("x", question=EVIL, **odd), not_run("y", "y", EVIL, "place", EVIL)])
    saved(b, [finding("x", "no evidence", question=EVIL, **odd)])
    done = CliRunner().invoke(app, ["report", "--compare", str(a), str(b), "--out", str(tmp_path / "c.html")])
    assert done.exit_code == 0, done.output
    shown = (tmp_path / "c.html").read_text(encoding="utf-8")
    assert "<script>alert" not in shown
    assert "&lt;script&gt;alert" in shown
    assert "Verdict:" not in shown  # a comparison has no verdict of its own


def test_what_cannot_be_compared_is_said(tmp_path: Path) -> None:
    a = saved(tmp_path / "a", some())
    for folders, said in {
        (): "name a folder of findings, or --compare and two of them or more",
        (a,): "a comparison takes two folders or more, and here is one",
        (a, a): "is named more than once",
        (a, tmp_path / "gone"): "gone does not exist",
        (a, tmp_path): "no findings",
    }.items():
        refused = CliRunner().invoke(app, ["report", "--compare", *map(str, folders)])
        assert refused.exit_code != 0
        assert said in str(refused.exception), folders


def test_a_page_of_a_comparison_has_its_lead_in_place_of_a_verdict() -> None:
    found = compare(Side("A", tuple(some())), Side("B", tuple(some())))
    shown = page.render(found, title="t", lead=lead(found))
    assert "Both sides give the same verdict, 1 in all." in shown
    assert "It is undecided" not in shown
    side_by_side = page.render(found, title="t", lead=lead(found), first=first(found))
    assert side_by_side.index("Verdicts and first estimates") < side_by_side.index("All findings</h2>")
    assert [table.title for table in first(found)] == ["Verdicts and first estimates"]
    assert all(isinstance(f, Finding) for f in found)
