"""The case verdict: what votes can and cannot do, and what is said where they differ."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from rightreasons.case import ALPHA, COUNTS_ONCE, Case, Sheet, Vote, cases, combine, rule
from rightreasons.errors import DataError
from rightreasons.findings import ROWS, Check, Estimate, Finding, Table, not_run

VERDICTS = ("shortcut", "no evidence", "inconclusive", None)
EVERY = [Vote(row, verdict) for row in ROWS for verdict in VERDICTS]
VOTING = ("behaviour", "reliance", "place")
TELLING = [*(Vote(row, verdict) for row in VOTING for verdict in VERDICTS[:2]), Vote("reliance", "inconclusive")]
ALL_SMALL = [votes for size in range(5) for votes in itertools.combinations_with_replacement(TELLING, size)]


def finding(audit, verdict=None, row="reliance", model="m", attribute="tag", p=None, name=None, **fields):
    return Finding(
        name=name or f"{audit}-{model}-{attribute}", audit=audit, question=f"{audit}?", row=row, verdict=verdict,
        sentence=f"{audit} speaks.", model=model, attribute=attribute, **fields,
        estimates=[Estimate(name="e", value=0.2, p=p, row=row)],
    )  # fmt: skip


# ---- the rule ------------------------------------------------------------------------------------------------------------


def test_a_shortcut_needs_a_call_of_behaviour_or_reliance_whatever_else_is_said():
    for votes in ALL_SMALL:
        if combine(votes).verdict == "shortcut":
            assert {Vote("reliance", "shortcut"), Vote("behaviour", "shortcut")} & set(votes)


def test_where_no_audit_of_reliance_has_looked_it_is_inconclusive():
    for votes in ALL_SMALL:
        if not any(v.row == "reliance" for v in votes):
            assert combine(votes).verdict == "inconclusive"


def test_without_a_decided_audit_of_behaviour_or_reliance_it_is_inconclusive():
    for votes in ALL_SMALL:
        if not any(v.row in ("behaviour", "reliance") and v.verdict in ("shortcut", "no evidence") for v in votes):
            assert combine(votes).verdict == "inconclusive"


def test_no_evidence_is_never_said_over_a_call():
    for votes in ALL_SMALL:
        if combine(votes).verdict == "no evidence":
            assert not any(v.verdict == "shortcut" and v.row in VOTING for v in votes)


def test_what_is_encoded_or_was_mended_and_what_says_nothing_changes_nothing():
    silent = [
        v
        for v in EVERY
        if v.row not in VOTING or v.verdict is None or (v.verdict, v.row == "reliance") == ("inconclusive", False)
    ]
    for votes in ALL_SMALL:
        for vote in silent:
            assert combine((*votes, vote)) == combine(votes)


def test_a_further_call_never_lowers_the_score_and_a_further_no_never_raises_it():
    order = {"no evidence": 0, "inconclusive": 1, "shortcut": 2}
    for votes in ALL_SMALL:
        before = combine(votes)
        for row in VOTING:
            more, less = (combine((*votes, Vote(row, verdict))) for verdict in ("shortcut", "no evidence"))
            assert less.score <= before.score <= more.score
            assert order[more.verdict] >= order[before.verdict] or before.verdict == "inconclusive"
            looked = any(v.row == "reliance" for v in votes)
            assert less.verdict != "shortcut" or before.verdict == "shortcut" or not looked


def test_the_order_of_votes_does_not_matter_and_the_score_is_a_share():
    for votes in ALL_SMALL:
        assert {combine(order) for order in itertools.permutations(votes)} == {combine(votes)}
        assert 0 < combine(votes).score < 1
    assert combine([]).score == 0.5


def test_a_larger_effect_raises_the_score_and_leaves_the_verdict():
    small, large = (combine([Vote("reliance", "shortcut", size), Vote("behaviour", "no evidence")]) for size in (0.1, 0.9))
    assert small.score < large.score and small.verdict == large.verdict == "inconclusive"
    assert combine([Vote("reliance", "shortcut", 0.2)]) == combine([Vote("reliance", "shortcut")])
    weak, strong = (
        finding("swap", "shortcut", p=0.01).model_copy(update={"estimates": (Estimate(name="e", value=v, row="reliance"),)})
        for v in (0.1, 0.6)
    )
    assert cases([weak])[0].score < cases([strong])[0].score


@pytest.mark.parametrize(
    "behaviour, reliance, place, verdict",
    [
        ([], ["shortcut"], [], "shortcut"),
        ([], ["no evidence"], [], "no evidence"),
        ([], ["shortcut", "no evidence"], [], "inconclusive"),
        ([], ["shortcut", "no evidence"], ["shortcut"], "shortcut"),
        ([], ["no evidence"], ["shortcut"], "inconclusive"),
        ([], ["shortcut"], ["no evidence"], "shortcut"),
        ([], ["inconclusive"], ["shortcut"], "inconclusive"),
        (["shortcut"], [], [], "inconclusive"),
        (["shortcut"], ["inconclusive"], [], "shortcut"),
        (["shortcut"], ["inconclusive"], ["no evidence", "no evidence"], "shortcut"),
        (["shortcut"], ["no evidence"], [], "inconclusive"),
        (["shortcut"], ["shortcut", "no evidence"], [], "shortcut"),
        (["no evidence"], ["inconclusive"], [], "no evidence"),
        (["no evidence"], ["shortcut"], [], "inconclusive"),
        (["no evidence"], ["inconclusive"], ["shortcut"], "inconclusive"),
    ],
)
def test_the_table_in_the_documentation(behaviour, reliance, place, verdict):
    told = {"behaviour": behaviour, "reliance": reliance, "place": place}
    votes = [Vote(row, v) for row, given in told.items() for v in given]
    assert combine(votes).verdict == verdict


# ---- cases ---------------------------------------------------------------------------------------------------------------


def test_encoded_but_unused_is_no_shortcut():
    (case,) = cases([finding("probe", row="encoding"), finding("swap", "no evidence")])
    assert case.verdict == "no evidence" and [f.audit for f in case.rows["encoding"]] == ["probe"]
    (case,) = cases([finding("probe", row="encoding")])
    assert case.verdict == "inconclusive" and "twins" in case.needs and case.needs in case.sentence


def test_disagreement_is_named_on_both_sides_with_the_checks_that_failed():
    weak = finding("weak", "no evidence", checks=[Check(name="rows enough", passed=False, note="12 rows")])
    (case,) = cases([finding("strong", "shortcut"), weak])
    (said,) = case.disagreements
    assert case.verdict == "inconclusive"
    for word in ("strong calls a shortcut (strong?)", "weak finds no evidence", "rows enough", "12 rows"):
        assert word in said
    assert "strong" in case.sentence and "weak" in case.sentence


def test_models_are_cases_of_their_own_and_a_remedy_belongs_to_both_sides():
    remedy = finding("mend", row="remedy", model="after", settings={"before": "before"})
    found = cases([finding("swap", "shortcut", model="before"), finding("swap", "no evidence", model="after"), remedy])
    assert [(c.model, c.verdict) for c in found] == [("before", "shortcut"), ("after", "no evidence")]
    assert all(c.rows["remedy"] == (remedy,) for c in found)


def test_a_finding_about_no_attribute_votes_where_there_is_only_one():
    free = finding("tokens", "shortcut", row="place", attribute="")
    (case,) = cases([finding("swap", "no evidence"), free])
    assert case.verdict == "inconclusive" and free in case.findings
    both = cases([finding("swap", "no evidence"), finding("swap", "no evidence", attribute="age"), free])
    assert [c.verdict for c in both] == ["no evidence"] * 2 and all(free in c.findings for c in both)


def test_attributes_of_one_model_are_corrected_together():
    p = {"sex": 0.001, "age": 0.03, "site": 0.04, "camera": 0.9}
    found = {
        c.attribute: c
        for c in cases(
            finding("swap", "shortcut" if value < ALPHA else "no evidence", attribute=name, p=value) for name, value in p.items()
        )
    }
    assert [c.verdict for c in found.values()] == ["shortcut", "inconclusive", "inconclusive", "no evidence"]
    assert found["sex"].smallest_q == pytest.approx(0.004) and found["age"].smallest_q == pytest.approx(4 * 0.04 / 3)
    assert found["age"].withdrawn == ("swap-m-age",) and not found["sex"].withdrawn
    (alone,) = cases([finding("swap", "shortcut", p=0.04)])
    assert alone.verdict == "shortcut" and not alone.q


@pytest.mark.parametrize(
    "verdict, strength, word",
    [
        ("shortcut", 0.6, "harmful"),
        ("no evidence", 0.6, "not harmful"),
        ("no evidence", 0.01, "nothing to exploit"),
        (None, 0.6, "not decided"),
    ],
)
def test_which_imbalance_is_harmful(verdict, strength, word):
    sheet = Sheet(imbalance=(Estimate(name="tag", value=strength, row="behaviour"),))
    (case,) = cases([finding("swap", verdict)], sheet)
    assert case.harm.startswith(word)
    assert cases([finding("swap", verdict)])[0].harm == ""


def test_an_attribute_that_is_missing_is_what_helps_most():
    (case,) = cases([not_run("swap", "swap", "swap?", "reliance", "no twins", model="m")])
    assert isinstance(case, Case) and "column with an attribute" in case.needs


def test_what_is_told_of_a_whole_study_makes_no_case():
    curve = finding("curves", row="reliance", model="one, two", attribute="")
    assert [c.model for c in cases([finding("swap", "shortcut", model="one"), curve])] == ["one"]
    assert [c.model for c in cases([curve])] == ["one, two"]


def test_no_findings_are_no_cases():
    assert cases([]) == []


def test_a_sheet_comes_back_from_its_folder(tmp_path):
    sheet = Sheet(tables=(Table(title="t", columns=["a"], rows=[[1]]),), facts={"seed": "0"}, command="rightreasons audit 'x y'")
    assert Sheet.read(tmp_path) is None
    sheet.save(tmp_path)
    assert Sheet.read(tmp_path) == sheet
    (tmp_path / "sheet.json").write_text('{"odd": 1}')
    with pytest.raises(DataError, match="not a data sheet"):
        Sheet.read(tmp_path)


# ---- what code asks and what readers read ---------------------------------------------------------------------------------


def test_twins_are_asked_for_by_what_a_finding_lacks_and_not_by_its_words():
    tried = finding("swap", "inconclusive", checks=[Check(name="enough rows", passed=False, decides=True)])
    silent = not_run("twin-free", "flip", "flip?", "reliance", "other words", model="m", attribute="tag", lacks="twins")
    worded = not_run("worded", "flip", "flip?", "reliance", "no twins at all", model="m", attribute="tag")
    assert "a column of twins" in cases([tried, silent])[0].needs
    assert cases([tried, worded])[0].needs == "what the audits of reliance lacked: swap: enough rows"


@pytest.mark.parametrize("row", ["behaviour", "reliance"])
def test_a_disagreement_names_the_row_that_both_are_about(row):
    (case,) = cases([finding("one", "shortcut", row), finding("other", "no evidence", row), finding("third", "inconclusive")])
    assert f"Both are about {row}, but they test it in different ways." in case.disagreements[0]


DOC = Path(__file__).parents[1] / "docs" / "how-to" / "read-a-finding.md"


def test_the_documentation_states_the_rule_as_the_constants_have_it():
    doc = " ".join(DOC.read_text().split())
    for sentence in rule():
        assert sentence in doc, sentence
    assert f"not significant at {100 * ALPHA:g} % after that" in doc
    assert f"An effect of {COUNTS_ONCE:g} therefore counts once" in doc


def test_the_documentation_s_table_of_votes_is_what_the_rule_says():
    table = re.findall(r"^\| (.*) \| (.*) \| (.*) \| (.*) \|$", DOC.read_text(), re.MULTILINE)
    lines = [line for line in table if line[3] in VERDICTS]
    assert len(lines) == 15
    for *said, verdict in lines:
        votes = []
        for row, verdicts in zip(VOTING, said):
            votes += [Vote(row, each) for each in verdicts.split(", ") if each != "–"]
        assert combine(votes).verdict == verdict, said
