"""The gate lets pass what the policy allows and nothing else."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from rightreasons.cli import app
from rightreasons.errors import DataError, SettingError
from rightreasons.findings import not_run
from rightreasons.gate import Policy, judge
from sample_findings import EVIL, estimate, finding, saved, some

CLEAR, OPEN, CALLED = (finding("art", verdict) for verdict in ("no evidence", "inconclusive", "shortcut"))


def policy(**told) -> Policy:
    return Policy.of({"judge": "findings", **told})


def test_a_shortcut_fails_and_no_evidence_passes() -> None:
    assert judge([CALLED]).exit_status == 1
    assert judge([CLEAR]).exit_status == 0


def test_inconclusive_fails_unless_the_policy_allows_it() -> None:
    assert not judge([OPEN], policy()).passed
    other = finding("sdi", "no evidence")
    assert judge([OPEN, other], policy(allow_inconclusive=True)).passed
    assert judge([OPEN, other], policy(allow_inconclusive=["ar*"])).passed
    assert not judge([OPEN, other], policy(allow_inconclusive=["sdi"])).passed


def test_nothing_judged_is_no_pass() -> None:
    quiet = finding("groups", None, row="behaviour")
    assert not judge([quiet], policy()).passed
    assert not judge([OPEN], policy(allow_inconclusive=True)).passed
    with pytest.raises(DataError, match="no findings"):
        judge([])


def test_a_case_without_an_audit_of_reliance_is_inconclusive() -> None:
    quiet = finding("groups", None, row="behaviour")
    found = judge([quiet], Policy())
    assert [(item.group, item.outcome) for item in found.items] == [("case m sex", "failed")]
    assert "inconclusive" in found.one_line()
    assert judge([CLEAR], Policy.of({"judge": "cases"})).passed


def test_what_did_not_run_is_skipped_or_failed() -> None:
    absent = not_run("oscar", "oscar", "Where?", "place", "no reference models")
    assert judge([CLEAR, absent], policy()).passed
    assert not judge([CLEAR, absent], policy(allow_not_run=False)).passed
    assert judge([CLEAR, absent], policy(allow_not_run=["oscar"])).passed
    assert not judge([CLEAR, absent], policy(required=["oscar"])).passed
    missing = judge([CLEAR], policy(required=["artt"]))
    assert "did you mean 'art'" in missing.one_line()


def test_a_name_is_also_its_own_pattern() -> None:
    odd = finding("art [sex]")
    assert judge([odd], policy(accepted=[{"finding": "art [sex]", "verdict": "shortcut", "reason": "known"}])).passed


def test_an_accepted_verdict_passes_with_its_reason() -> None:
    told = {"finding": "art", "verdict": "shortcut", "reason": "known since 2024"}
    found = judge([CALLED], policy(accepted=[told]))
    assert found.passed
    assert "known since 2024" in found.items[0].why
    assert not judge([CALLED], policy(accepted=[{**told, "attribute": "age"}])).passed
    assert not judge([OPEN], policy(accepted=[told])).passed


@pytest.mark.parametrize(
    ("rule", "passes"),
    [
        ({"at_least": 0.3}, True),
        ({"at_least": 0.31}, False),
        ({"at_most": 0.3}, True),
        ({"at_most": 0}, False),
        ({"at_least": 0.3, "by": "interval"}, False),
        ({"at_least": 0.25, "at_most": 0.35, "by": "interval"}, True),
    ],
)
def test_thresholds_hold_of_the_value_or_of_the_whole_interval(rule, passes) -> None:
    described = finding("groups", None, estimates=[estimate(0.3)])
    assert judge([described], policy(thresholds=[{"estimate": "eff*", **rule}])).passed is passes


def test_a_threshold_of_nothing_fails_and_one_of_an_undefined_number_is_inconclusive() -> None:
    described = finding("groups", None, estimates=[estimate(float("nan"), low=None, high=None, reason="no rows")])
    rule = {"estimate": "effect", "at_least": 0.1}
    assert "undefined (no rows)" in judge([described], policy(thresholds=[rule])).one_line()
    assert judge([described, CLEAR], policy(thresholds=[rule], allow_inconclusive=True)).passed
    nothing = judge([described], policy(thresholds=[{**rule, "estimate": "efect"}]))
    assert "did you mean 'effect'" in nothing.one_line()
    elsewhere = judge([described], policy(thresholds=[{**rule, "audit": "flips"}]))
    assert not elsewhere.passed
    bare = finding("groups", None, estimates=[estimate(0.3, low=None, high=None)])
    assert "no interval" in judge([bare], policy(thresholds=[{**rule, "by": "interval"}])).one_line()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tresholds = 1", "has no key 'tresholds'; did you mean 'thresholds'\\? known: accepted,"),
        ("[[thresholds]]\nestimate = 'a'\natleast = 1", "number 1 has no key 'atleast'; did you mean 'at_least'?"),
        ("[[thresholds]]\nestimate = 'a'", "a threshold needs at_least or at_most"),
        ("[thresholds]\nestimate = 'a'", r"begin each with \[\[thresholds\]\]"),
        ("[[accepted]]\nverdict = 'shortcut'", "accepted.1.reason: Field required"),
        ("allow_inconclusive = 'yes'", "allow_inconclusive"),
        ("judge = 'all'", "judge: Input should be 'both', 'findings' or 'cases'"),
        ("a = ", "is not TOML"),
    ],
)
def test_a_policy_that_means_nothing_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "policy.toml").write_text(text)
    with pytest.raises(SettingError, match=said):
        Policy.read(tmp_path / "policy.toml")


def test_junit_shows_odd_texts_as_text() -> None:
    odd = finding("art", sentence=EVIL + "\x00\x1b\ud800", model=EVIL, attribute=EVIL)
    evil = not_run(EVIL, EVIL, EVIL, "place", EVIL)
    found = judge([odd, evil], policy())
    tree = ElementTree.fromstring(found.junit(EVIL))
    assert {e.tag for e in tree.iter()} == {"testsuites", "testsuite", "testcase", "failure", "skipped"}
    assert EVIL in next(tree.iter("failure")).attrib["message"]
    assert next(tree.iter("testsuite")).attrib["failures"] == "1"
    line = found.one_line()
    assert line.count("\n") == 0
    assert not {"\x00", "\x1b", "\u202e"} & set(line)


def test_the_command_gives_a_line_an_exit_status_and_a_file(tmp_path: Path) -> None:
    saved(tmp_path / "audit", some())
    rules = tmp_path / "policy.toml"
    rules.write_text(
        "[[accepted]]\nverdict = 'shortcut'\nreason = 'known'\n[[thresholds]]\nestimate = 'worst*'\nat_least = 0.7\n"
    )
    run = CliRunner()
    strict = run.invoke(app, ["gate", str(tmp_path / "audit")])
    assert strict.exit_code == 1
    assert strict.output.startswith("gate: FAIL: 0 passed, 2 failed, 1 skipped: case m sex: shortcut")
    done = run.invoke(
        app, ["gate", "--policy", str(rules), str(tmp_path / "audit"), "--junit", str(tmp_path / "ci" / "gate.xml")]
    )
    assert done.exit_code == 0, done.output
    assert len(done.output.strip().splitlines()) == 1
    suite = ElementTree.parse(tmp_path / "ci" / "gate.xml").getroot()[0]
    assert suite.attrib["tests"] == "4"
    assert run.invoke(app, ["gate", str(tmp_path)]).exception is not None
