"""Three and more versions: what is said of each is what its findings say, and what cannot be followed is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from rightreasons import trend
from rightreasons.cli import app
from rightreasons.compare import Side, sides
from rightreasons.errors import DataError
from rightreasons.evidence import Evidence
from rightreasons.findings import Finding, Verdict
from rightreasons.report import page
from rightreasons.testing import synthetic_evidence
from sample_findings import estimate, finding, saved


def version(verdict: Verdict, effect: float | None, worst: float = 0.5, attribute: str = "sex", **more: object) -> list[Finding]:
    """What an audit of one version finds: an effect with a verdict, and how well the model does."""
    swing = estimate(effect if effect is not None else float("nan"), name="swing", unit="probability")
    if effect is None:
        swing = estimate(0.0, name="swing").model_copy(update={"value": None, "low": None, "high": None, "reason": "closed"})
    told = [
        estimate(worst, 0.1, name="worst-group accuracy", row="behaviour", unit="share"),
        estimate(0.8, 0.02, name="accuracy", row="behaviour", unit="share"),
    ]
    about = {"attribute": attribute, "n_rows": 900, "cohort": "test", **more}
    return [
        finding("art", verdict, estimates=[swing], **about),
        finding("groups", None, row="behaviour", estimates=told, **about),
    ]


def three() -> list[Side]:
    return [
        Side("v1", tuple(version("shortcut", 0.6, 0.3))),
        Side("v2", tuple(version("shortcut", 0.3, 0.6))),
        Side("v3", tuple(version("no evidence", 0.01, 0.75))),
    ]


def test_verdict_effect_and_accuracy_are_those_of_each_version() -> None:
    (found,) = trend.trend(three())
    assert found.verdict is None
    assert found.attribute == "sex"
    assert "“shortcut” (v1 to v2), then “no evidence” (v3)" in found.sentence
    assert "From v1 to v3: swing (art) 0.600 [0.550, 0.650] → 0.010 [-0.040, 0.060]; worst-group accuracy 0.300" in found.sentence
    table, effect, accuracy = found.exhibits
    assert table.columns == ("version", "verdict", "score", "swing (art)", "worst-group accuracy", "accuracy", "images")
    assert [row[0] for row in table.rows] == ["v1", "v2", "v3"]
    assert [row[4].value for row in table.rows] == [0.3, 0.6, 0.75]
    assert table.highlight == (2,)
    assert effect.x == ("v1", "v2", "v3")
    assert effect.y_label == "probability"
    curve = effect.series["swing (art)"]
    assert (curve.y, curve.low) == ((0.6, 0.3, 0.01), (pytest.approx(0.55), pytest.approx(0.25), pytest.approx(-0.04)))
    assert accuracy.series["worst-group accuracy"].y == (0.3, 0.6, 0.75)
    assert all(check.passed for check in found.checks)
    assert trend.lead([found]) == found.sentence


def test_the_effect_followed_is_the_one_known_in_most_versions() -> None:
    gap = Side("v2", tuple(version("inconclusive", None)))
    pull = finding("pull", "shortcut", row="behaviour", estimates=[estimate(0.2, name="pull", row="behaviour")])
    pulled = [Side(side.name, (*side.findings, pull)) for side in (three()[0], gap, three()[2])]
    (found,) = trend.trend(pulled)
    assert "pull (pull)" in found.exhibits[0].columns
    (found,) = trend.trend([three()[0], gap, three()[2]])
    assert found.exhibits[1].series["swing (art)"].y == (0.6, None, 0.01)  # a gap stays a gap


def test_each_attribute_is_followed_and_one_that_a_version_lacks_is_not() -> None:
    two = [*version("shortcut", 0.6), *version("no evidence", 0.0, attribute="age")]
    found = trend.trend([Side("v1", tuple(two)), Side("v2", tuple(two)), Side("v3", tuple(version("no evidence", 0.1)))])
    assert [f.attribute for f in found] == ["sex"]
    assert [f.attribute for f in trend.trend([Side(name, tuple(two)) for name in "abc"])] == ["sex", "age"]


def test_versions_that_have_nothing_in_common_are_refused() -> None:
    other = Side("v3", tuple(version("shortcut", 0.6, attribute="age")))
    with pytest.raises(DataError, match=r"no attribute in common.*v1 has sex; v2 has sex; v3 has age"):
        trend.trend([*three()[:2], other])
    several = [Side(name, (*version("shortcut", 0.6), *version("shortcut", 0.6, model=name))) for name in ("v1", "v2")]
    assert [f.name for f in trend.trend(several)] == ["trend of m · sex"]
    with pytest.raises(DataError, match="v2: no findings there, only evidence"):
        trend.trend([three()[0], Side("v2", evidence=synthetic_evidence()), three()[2]])
    with pytest.raises(DataError, match="2 versions or more, and here is 1"):
        trend.trend(three()[:1])


def test_other_rows_are_said() -> None:
    (found,) = trend.trend([*three()[:2], Side("v3", tuple(version("shortcut", 0.6, n_rows=100)))])
    (check,) = found.checks
    assert check.passed is False
    assert "v3: 100 rows of test" in check.note


def test_neighbours_with_evidence_are_paired_row_by_row() -> None:
    named = zip(three(), (0, 1, 2), strict=True)
    found = trend.trend([Side(side.name, side.findings, synthetic_evidence(seed=seed)) for side, seed in named], B=50)
    assert [f.name for f in found[1:]] == ["v1 → v2, paired", "v2 → v3, paired"]
    assert all("worst-group accuracy" in f.estimates[0].name and not f.not_run for f in found[1:])


def test_the_command_writes_the_page_of_all_versions(tmp_path: Path) -> None:
    folders = [str(saved(tmp_path / side.name, list(side.findings))) for side in three()]
    done = CliRunner().invoke(app, ["report", "--compare", *folders, "--out", str(tmp_path / "trend.html")])
    assert done.exit_code == 0, (done.output, done.exception)
    shown = (tmp_path / "trend.html").read_text(encoding="utf-8")
    assert "v1 to v3: 3 versions" in shown
    for said in ("Effect by version", "Accuracy by version", "Version by version", "then “no evidence” (v3)"):
        assert said in shown
    assert [side.name for side in sides(*folders)] == ["v1", "v2", "v3"]


def test_a_trend_has_no_verdict_of_its_own_on_the_page() -> None:
    found = trend.trend(three())
    shown = page.render(found, title="t", lead=trend.lead(found), first=trend.first(found))
    assert "Verdict:" not in shown
    assert shown.index("Effect by version") < shown.index("All findings</h2>")


def test_evidence_alone_has_no_page_of_versions(tmp_path: Path) -> None:
    view = synthetic_evidence().on("test")
    for name in "abc":
        Evidence.from_arrays({"test": view.cohort}, {"test": {"logits": view["logits"]}}, path=tmp_path / name / "evidence")
    refused = CliRunner().invoke(app, ["report", "--compare", *(str(tmp_path / name) for name in "abc")])
    assert "a trend is made of findings, so audit it first" in str(refused.exception)
