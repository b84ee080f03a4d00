"""The case verdict: what votes can and cannot do, and what is said where they differ."""

from __future__ import annotations

import itertools
import re
import shlex
from pathlib import Path

import pytest

from rightreasons.case import ALPHA, COUNTS_ONCE, Case, Sheet, Vote, cases, combine, rule
from rightreasons.errors import DataError
from rightreasons.findings import ROWS, Check, Estimate, Finding, Table, Unevenness, not_run

VERDICTS = ("shortcut", "no evidence", "inconclusive", None)
DECIDED = VERDICTS[:2]
EVERY = [Vote(row, verdict) for row in ROWS for verdict in VERDICTS]
VOTING = ("behaviour", "reliance", "place")


def guard(verdict, **fields):
    return Vote("reliance", verdict, standing="guard", **fields)


def twins(verdict, **fields):
    return Vote("reliance", verdict, standing="intervention", **fields)


OPEN_GUARD = guard("inconclusive", looked=True)
PLAIN = [Vote(row, verdict) for row in VOTING for verdict in DECIDED]
TELLING = [*PLAIN, *(make(verdict) for make in (guard, twins) for verdict in DECIDED), OPEN_GUARD]
ALL_SMALL = [votes for size in range(4) for votes in itertools.combinations_with_replacement(TELLING, size)]


def finding(audit, verdict=None, row="reliance", model="m", attribute="tag", p=None, name=None, **fields):
    return Finding(
        name=name or f"{audit}-{model}-{attribute}", audit=audit, question=f"{audit}?", row=row, verdict=verdict,
        sentence=f"{audit} speaks.", model=model, attribute=attribute, **fields,
        estimates=[Estimate(name="e", value=0.2, p=p, row=row)],
    )  # fmt: skip


def uneven(kind, present, companion="", value=0.2):
    return Unevenness(
        kind=kind,
        present=present,
        companion=companion,
        estimate=Estimate(name=kind, value=value, low=0.1, high=0.3, row="reliance"),
    )


# ---- the rule ------------------------------------------------------------------------------------------------------------


def test_a_shortcut_needs_a_call_of_reliance_whatever_else_is_said():
    for votes in ALL_SMALL:
        if combine(votes).verdict == "shortcut":
            assert any(v.row == "reliance" and v.verdict == "shortcut" for v in votes)


def test_nothing_is_said_until_an_audit_of_reliance_has_decided():
    for votes in ALL_SMALL:
        if not any(v.row == "reliance" and v.verdict in DECIDED for v in votes):
            assert combine(votes).verdict == "inconclusive"


def test_an_audit_that_could_not_look_changes_nothing():
    """Closed gates, too few rows: as if it had not been run, whatever its row and standing."""
    blind = [Vote("reliance", "inconclusive", standing=standing) for standing in ("vote", "guard", "intervention")]
    for votes in ALL_SMALL:
        for vote in blind:
            assert combine((*votes, vote)) == combine(votes)


def test_a_call_of_behaviour_can_keep_a_case_open_and_never_calls_one():
    for votes in ALL_SMALL:
        before, after = combine(votes).verdict, combine((*votes, Vote("behaviour", "shortcut"))).verdict
        assert after == before or (before, after) == ("no evidence", "inconclusive")


def test_no_evidence_is_never_said_over_a_call_that_is_not_overruled():
    for votes in ALL_SMALL:
        if combine(votes).verdict == "no evidence":
            called = [v for v in votes if v.verdict == "shortcut"]
            assert not called or any(v.standing != "vote" and v.verdict == "no evidence" for v in votes)
            assert all(v.standing == "vote" for v in called)


def test_a_guard_that_finds_no_evidence_overrules_every_plain_call():
    for votes in itertools.chain.from_iterable(itertools.combinations_with_replacement(PLAIN, size) for size in range(4)):
        assert combine((*votes, guard("no evidence"))).verdict == "no evidence"


def test_while_a_guard_has_looked_and_cannot_tell_no_plain_vote_can_call():
    for votes in itertools.chain.from_iterable(itertools.combinations_with_replacement(PLAIN, size) for size in range(4)):
        assert combine((*votes, OPEN_GUARD)).verdict != "shortcut"
        assert combine((*votes, OPEN_GUARD)).score == combine(votes).score
        assert combine((*votes, OPEN_GUARD, twins("shortcut"))).verdict == "shortcut"


def test_an_intervention_that_calls_is_believed_against_everything():
    for votes in ALL_SMALL:
        if twins("no evidence") not in votes:
            assert combine((*votes, twins("shortcut"))).verdict == "shortcut"


def test_an_intervention_that_finds_nothing_overrules_plain_calls_and_not_a_guard():
    """Twins may not change all that the attribute looks like."""
    for votes in itertools.chain.from_iterable(itertools.combinations_with_replacement(PLAIN, size) for size in range(4)):
        assert combine((*votes, twins("no evidence"))).verdict == "no evidence"
    assert combine([guard("shortcut"), twins("no evidence")]).verdict == "inconclusive"


def test_votes_that_are_nearly_the_same_number_are_one_vote():
    one, other = (Vote("reliance", "shortcut", effect, alike="last layer") for effect in (0.1, 0.4))
    against = [Vote("reliance", "no evidence")]
    assert combine([one, other]) == combine([other])
    assert combine([one, other, *against]).verdict == "inconclusive"
    assert combine([one, Vote("reliance", "shortcut"), *against]).verdict == "shortcut"
    assert combine([one, Vote("reliance", "no evidence", alike="last layer")]) == combine([])  # they contradict each other
    assert combine([guard("shortcut", alike="x"), Vote("reliance", "no evidence", alike="x")]) == combine([guard("shortcut")])


def test_what_is_encoded_or_was_mended_and_what_says_nothing_changes_nothing():
    silent = [v for v in EVERY if v.row not in VOTING or v.verdict not in DECIDED]
    for votes in ALL_SMALL:
        for vote in silent:
            assert combine((*votes, vote)) == combine(votes)


def test_a_further_call_never_lowers_the_score_and_a_further_no_never_raises_it():
    order = {"no evidence": 0, "inconclusive": 1, "shortcut": 2}
    for votes in ALL_SMALL:
        before = combine(votes)
        for make in (guard, twins, *(lambda verdict, row=row: Vote(row, verdict) for row in VOTING)):
            more, less = (combine((*votes, make(verdict))) for verdict in DECIDED)
            assert less.score <= before.score <= more.score
            assert order[more.verdict] >= order[before.verdict] or before.verdict == "inconclusive"
            assert less.verdict != "shortcut" or before.verdict == "shortcut"


def test_the_order_of_votes_does_not_matter_and_the_score_is_a_share():
    for votes in ALL_SMALL:
        assert {combine(order) for order in itertools.permutations(votes)} == {combine(votes)}
        assert 0 < combine(votes).score < 1
    assert combine([]).score == 0.5


def test_a_larger_effect_raises_the_score_and_leaves_the_verdict():
    small, large = (combine([Vote("reliance", "shortcut", size), Vote("behaviour", "no evidence")]) for size in (0.1, 0.9))
    assert small.score < large.score and small.verdict == large.verdict == "inconclusive"
    assert combine([Vote("reliance", "shortcut", 0.2)]) == combine([Vote("reliance", "shortcut")])
    assert combine([Vote("behaviour", "shortcut", 0.9)]).score > combine([Vote("behaviour", "shortcut", 0.1)]).score
    weak, strong = (
        finding("swap", "shortcut", p=0.01).model_copy(update={"estimates": (Estimate(name="e", value=v, row="reliance"),)})
        for v in (0.1, 0.6)
    )
    assert cases([weak])[0].score < cases([strong])[0].score


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


def test_an_audit_that_could_not_look_is_named_as_such_and_one_that_could_not_tell_is_not():
    closed = finding("gates", "inconclusive", checks=[Check(name="a gate is open", passed=False, decides=True)])
    wide = finding("wide", "inconclusive", checks=[Check(id="power", name="told from none", passed=False, decides=True)])
    (case,) = cases([closed, wide])
    assert case.could_not_look == ("gates-m-tag",)
    (case,) = cases([finding("answers", "shortcut", "behaviour"), closed])
    assert "no audit of reliance could look" in case.sentence and "gates: a gate is open" in case.needs


def test_predictions_alone_give_a_verdict_of_behaviour_and_say_so():
    """No audit of reliance can run on them."""
    follows, follows_not = (cases([finding("answers", verdict, "behaviour")])[0] for verdict in DECIDED)
    assert follows.verdict == follows_not.verdict == "inconclusive"
    assert follows.score > 0.5 > follows_not.score
    assert follows.sentence.startswith("The answers of m follow tag, and it is undecided why")
    assert follows_not.sentence.startswith("The answers of m do not follow tag")


def test_presentation_is_what_is_said_where_a_guard_finds_no_use_and_the_label_shows_more():
    found = [
        finding("answers", "shortcut", "behaviour"),
        finding("plain", "shortcut"),
        finding("other", "no evidence", standing="guard", unevenness=[uneven("presentation", True), uneven("use", False)]),
    ]
    (case,) = cases(found)
    assert case.verdict == "no evidence" and case.overruled == ("answers-m-tag", "plain-m-tag")
    assert "because the label shows more strongly with it (other)" in case.sentence
    assert "plain calls a shortcut and cannot tell that from use" in case.sentence
    assert "other counts: it tells use of the attribute from what merely goes with it" in case.disagreements[-1]


def test_a_call_without_a_guard_says_what_it_cannot_tell():
    (alone,) = cases([finding("plain", "shortcut")])
    (guarded,) = cases([finding("plain", "shortcut"), finding("other", "shortcut", standing="guard")])
    assert alone.verdict == guarded.verdict == "shortcut"
    assert "No audit that looked can tell this from a label that shows more strongly" in alone.sentence
    assert "No audit that looked" not in guarded.sentence


def test_a_guard_that_cannot_tell_keeps_plain_calls_open_and_twins_decide():
    wide = finding("other", "inconclusive", standing="guard", checks=[Check(id="power", name="n", passed=False, decides=True)])
    few = finding("other", "inconclusive", standing="guard", checks=[Check(id="cells", name="n", passed=False, decides=True)])
    plain = finding("plain", "shortcut")
    assert cases([plain, wide])[0].verdict == "inconclusive"
    assert "plain says so, but other looked and cannot tell use" in cases([plain, wide])[0].sentence
    assert cases([plain, few])[0].verdict == "shortcut"
    direct = finding("swap", "shortcut", standing="intervention")
    assert cases([wide, direct])[0].verdict == "shortcut"


# ---- several attributes --------------------------------------------------------------------------------------------------


def of_two(first, second, **present):
    """What a guard says of `tag` beside `site` and of `site` beside `tag`, each with the companion it names."""
    found = []
    for name, other, verdict in (("tag", "site", first), ("site", "tag", second)):
        named = [uneven("companion", present[name], other)] if name in present else []
        checks = [Check(id="told apart", name="told apart", passed=False, decides=True)] if verdict == "inconclusive" else []
        found.append(finding("other", verdict, attribute=name, standing="guard", unevenness=named, checks=checks))
    return {case.attribute: case for case in cases(found)}


def test_an_attribute_that_another_explains_is_cleared_and_both_sentences_say_so():
    found = of_two("no evidence", "shortcut", tag=True)
    assert [case.verdict for case in found.values()] == ["no evidence", "shortcut"]
    assert "because tag goes with site" in found["tag"].sentence
    assert "That is why its answers also follow tag." in found["site"].sentence
    assert found["tag"].companions[0].relation == "explained by" and not found["site"].companions


def test_attributes_that_cannot_be_told_apart_are_both_open_and_name_each_other():
    found = of_two("inconclusive", "inconclusive", tag=None, site=None)
    assert [case.verdict for case in found.values()] == ["inconclusive"] * 2
    assert "uses tag or site: they go together" in found["tag"].sentence
    assert "uses site or tag: they go together" in found["site"].sentence


def test_attributes_that_are_both_used_name_each_other():
    found = of_two("shortcut", "shortcut", tag=False, site=False)
    assert "It uses site as well" in found["tag"].sentence and "It uses tag as well" in found["site"].sentence


def test_how_far_answers_follow_and_how_far_the_model_uses_are_read_by_their_ids_and_not_by_their_words():
    numbers = {name: Estimate(name="any words", value=k / 10, row="reliance", id=name) for k, name in enumerate(AMONG)}
    (case,) = cases([finding("other", "no evidence").model_copy(update={"estimates": tuple(numbers.values())})])
    assert case.among.following == numbers["following"] and case.among.use_within == numbers["use within"]
    assert not cases([finding("plain", "no evidence")])[0].among.is_known


# ---- which unevenness ----------------------------------------------------------------------------------------------------

AMONG = ("following", "following within", "use", "use within")
STUDY = """
[data]
manifest = "a table.csv"
label = "y"
split = "split"
attribute = ["tag", "site"]
truth = "panel"
[model]
model = "timm:resnet18"
checkpoint = "w.safetensors"
"""


def sheet_with(strength):
    known = (Estimate(name="tag", value=strength, row="behaviour"),)
    return Sheet(imbalance=known, command="rightreasons audit study.toml --out audit", study=STUDY)


def kinds_of(case):
    return {each.kind: each for each in case.unevenness}


@pytest.mark.parametrize(
    "verdict, strength, present, begins",
    [
        ("shortcut", 0.6, True, "Balance:"),
        ("shortcut", 0.01, False, "tag does not go with the label"),
        ("no evidence", 0.6, True, "Leave it:"),
        ("no evidence", 0.01, False, ""),
        (None, 0.6, True, "Wait:"),
    ],
)
def test_what_to_do_about_prevalence_follows_the_verdict(verdict, strength, present, begins):
    (case,) = cases([finding("swap", verdict)], sheet_with(strength))
    prevalence = kinds_of(case)["prevalence"]
    assert prevalence.present is present and prevalence.estimate.value == strength
    assert prevalence.todo.startswith(begins) and bool(prevalence.command) == begins.startswith("Balance")
    assert not cases([finding("swap", verdict)])[0].unevenness


@pytest.mark.parametrize(
    "kind, verdict, todo, command",
    [
        ("presentation", "no evidence", "Collect:", "rightreasons audit study.toml --out audit"),
        ("annotation", "no evidence", "Relabel:", "rightreasons train 'a table.csv' --label panel --split split"),
        ("use", "shortcut", "Repair:", "rightreasons mitigate auto 'a table.csv' --label y --split split --attribute tag"),
        ("companion", "no evidence", "Look at site:", "--attribute site"),
    ],
)
def test_every_kind_that_is_there_has_a_sentence_and_a_command(kind, verdict, todo, command):
    measured = uneven(kind, True, "site" if kind == "companion" else "")
    (case,) = cases([finding("other", verdict, standing="guard", unevenness=[measured])], sheet_with(0.0))
    told = kinds_of(case)[kind]
    assert told.present is True and told.estimate == measured.estimate
    assert told.todo.startswith(todo) and command in told.command
    assert shlex.split(told.command)[0] == "rightreasons"


def test_an_attribute_that_stands_in_for_what_is_no_column_is_cleared_and_what_shows_is_to_be_recorded():
    (case,) = cases([finding("other", "no evidence", standing="guard", unevenness=[uneven("companion", True)])], sheet_with(0.0))
    assert "something that the images show, that tag goes with" in case.sentence and not case.companions
    told = kinds_of(case)["companion"]
    assert told.todo.startswith("Record what shows:") and told.command.startswith("rightreasons audit")


def test_a_kind_that_is_not_there_asks_for_nothing():
    measured = [uneven(kind, False) for kind in ("presentation", "annotation", "use")]
    (case,) = cases([finding("other", "no evidence", standing="guard", unevenness=measured)], sheet_with(0.0))
    assert [each.kind for each in case.unevenness] == ["prevalence", "presentation", "annotation", "use"]
    assert not any(each.todo or each.command for each in case.unevenness)


def test_annotation_that_nobody_measured_asks_for_adjudicated_labels():
    (case,) = cases([finding("other", "no evidence", standing="guard", unevenness=[uneven("use", False)])], sheet_with(0.0))
    told = kinds_of(case)["annotation"]
    assert told.present is None and told.estimate is None
    assert "adjudicated labels" in told.todo and told.command.endswith("--truth ADJUDICATED")


def test_a_broken_study_text_still_leaves_a_command():
    sheet = Sheet(study="[data", imbalance=(Estimate(name="tag", value=0.6, row="behaviour"),))
    (case,) = cases([finding("swap", "shortcut")], sheet)
    assert kinds_of(case)["prevalence"].command.startswith(
        "rightreasons mitigate balanced data.csv --attribute tag --model MODEL"
    )


# ---- what makes no case --------------------------------------------------------------------------------------------------


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


COLUMNS = (
    lambda verdict: Vote("behaviour", verdict),
    lambda verdict: Vote("reliance", verdict),
    lambda verdict: guard("inconclusive", looked=True) if verdict == "cannot tell" else guard(verdict),
    twins,
    lambda verdict: Vote("place", verdict),
)


def test_the_documentation_s_table_of_votes_is_what_the_rule_says():
    table = re.findall(r"^\| (.*) \| (.*) \| (.*) \| (.*) \| (.*) \| (.*) \|$", DOC.read_text(), re.MULTILINE)
    lines = [line for line in table if line[-1] in VERDICTS]
    assert len(lines) == 20
    for *said, verdict in lines:
        votes = []
        for make, verdicts in zip(COLUMNS, said, strict=True):
            votes += [make(each) for each in verdicts.split(", ") if each != "–"]
        assert combine(votes).verdict == verdict, said
