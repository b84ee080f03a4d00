"""The first screen in words: plain numbers, how sure, what to do next; and the same for programs."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from benchmarks._page_cases import KINDS, case
from typer.main import get_command

from rightreasons.case import Sheet, cases
from rightreasons.cli import app
from rightreasons.errors import DataError
from rightreasons.findings import Answers, Check, Contrast, GroupShare, Share, not_run
from rightreasons.findings.preflight import Preflight
from rightreasons.report import report
from rightreasons.report.first import first_of
from rightreasons.report.summary import Summary, schema, summary_of
from rightreasons.seal import check, seal
from sample_findings import estimate, finding


def answers(**fields):
    told = {
        "label": "no finding",
        "answer": "COVID",
        "value": "AP",
        "other": "PA",
        "share": Share(value=0.651, low=0.6, high=0.7, n=100),
        "share_of_other": Share(value=0.372, low=0.3, high=0.42, n=120),
        "difference": Share(value=0.279, low=0.214, high=0.349, n=220),
        "of": 2,
    }
    contrast = Contrast(**{**told, **{key: fields.pop(key) for key in list(fields) if key in told}})
    right = Share(value=0.8, low=0.75, high=0.85, n=400)
    given = {"noun": "images", "label_name": "covid", "attribute": "view", "right": right, "contrast": contrast}
    return Answers(**{**given, **fields})


def told(given, *findings, sheet=None):
    described = finding("groups", None, row="behaviour", attribute=given.attribute, answers=given)
    return cases([described, *findings], sheet)[0]


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    return request.param, *case(request.param)


# ---- what ----------------------------------------------------------------------------------------------------------------


def test_a_contrast_is_said_in_the_words_of_the_table():
    assert told(answers()).what == (
        "Where view is AP, images labelled no finding are called COVID 65 % of the time; where view is PA, 37 % "
        "(difference 28 points, 21 to 35)."
    )


def test_labels_that_are_numbers_keep_the_name_of_their_column():
    said = told(answers(label="0", answer="1", value="1", other="0")).what
    assert said.startswith("Where view is 1, images with covid = 0 are called covid = 1 in 65 %; where view is 0, in 37 %")


def test_more_than_two_values_have_no_single_other_one():
    said = told(answers(value="above 62.5", other="")).what
    assert "Where view is above 62.5" in said and "; with other values of view, 37 %" in said


def test_the_difference_is_what_a_reader_gets_from_the_two_shares():
    close = {"share": Share(value=0.5961, n=50), "share_of_other": Share(value=0.0217, n=50)}
    assert "60 % of the time; where view is PA, 2 % (difference 58 points" in told(answers(**close)).what
    against = {"share": Share(value=0.1, n=50), "share_of_other": Share(value=0.125, n=50)}
    assert "(difference −2 points" in told(answers(**against)).what


def test_without_a_contrast_it_says_how_many_are_right():
    groups = (GroupShare(label="a", right=Share(value=0.9, n=9)), GroupShare(label="COVID", right=Share(value=0.4, n=9)))
    said = told(answers(attribute="").model_copy(update={"contrast": None, "groups": groups})).what
    assert said == "80 % of 400 images are answered right (75 to 85 %), of those labelled COVID only 40 %."


def test_a_model_that_does_not_work_is_set_beside_guessing():
    card = Preflight(model="m", state="chance", reason="why", options=("--mean",), balanced=0.51, chance=0.5, n=400)
    case = told(answers(), card_objection(card), sheet=Sheet(preflight=(card,)))
    assert case.what == "Averaged over labels, 51 % of 400 images are answered right; guessing gives 50 %."
    assert not case.works and "does not work" in first_of(case).says


def card_objection(card):
    from rightreasons.findings.preflight import guarded

    return guarded(finding("excess", "no evidence", attribute="view", standing="guard"), card)


# ---- five kinds ------------------------------------------------------------------------------------------------------------


def test_every_kind_of_case_says_what_how_sure_and_what_to_do_next(kind):
    name, findings, sheet = kind
    (judged,) = cases(findings, sheet)
    first = first_of(judged)
    assert judged.verdict == {"presentation": "no evidence", "does not work": "inconclusive"}.get(name, name)
    assert " % " in first.what and "test rows" in first.sure
    begins = {
        "shortcut": "Repair:",
        "no evidence": "Nothing to repair:",
        "presentation": "Collect:",
        "inconclusive": "Collect rows",
        "does not work": "Make the model work first:",
    }
    assert first.todo.startswith(begins[name])
    assert first.look.rows and not first.look.has_pictures
    assert len(first.groups) == 4


def test_commands_to_copy_have_only_options_that_exist(kind):
    _, findings, sheet = kind
    (judged,) = cases(findings, sheet)
    program, command, *words = shlex.split(judged.next_step.command)
    known = get_command(app).commands[command]
    options = {option for parameter in known.params for option in parameter.opts}
    assert program == "rightreasons"
    assert [word for word in words if word.startswith("--") and word not in options] == []


# ---- what to do next -------------------------------------------------------------------------------------------------------


def step(*findings, command="rightreasons audit films.csv --label covid --attribute view --model net --out audit", **fields):
    return cases(findings, Sheet(command=command, **fields))[0].next_step


def test_a_table_without_an_attribute_asks_for_one():
    (judged,) = cases([finding("groups", None, row="behaviour", attribute="")], Sheet(command="rightreasons audit films.csv"))
    assert judged.next_step.todo.startswith("Name what the model should not use")
    assert "--attribute COLUMN" in judged.next_step.command


def test_predictions_alone_ask_for_features_and_then_for_the_model():
    pull = finding("pull", row="behaviour", attribute="view")
    lacking = not_run("art", "art", "?", "reliance", "no features", attribute="view", model="m")
    asked = "rightreasons audit --predictions 'their out.csv' --label covid --attribute view --out audit"
    advised = step(pull, lacking, command=asked)
    assert advised.todo.startswith("Ask for the model, or first for features")
    assert advised.command == "rightreasons template 'their out.csv' --to features.csv"
    advised = step(pull, lacking, command=f"{asked} --features features.csv")
    assert advised.todo.startswith("Ask for the model:")
    assert "--label covid --attribute view --model MODEL --checkpoint WEIGHTS" in advised.command


def test_audits_that_contradict_each_other_ask_for_twins():
    flat = finding("b", "no evidence", estimates=[estimate(0.0)])
    advised = step(finding("a"), flat)
    assert advised.todo.startswith("Decide by twins") and advised.command.endswith("--twin COLUMN")


def test_an_audit_that_lacked_rows_asks_for_rows_and_says_which():
    few = Check(id="cells", name="at least 10 audit rows", passed=False, note="the smallest has 3", decides=True)
    advised = step(finding("a", "inconclusive", checks=[few]))
    assert advised.todo == "Collect rows and audit again: needed is at least 10 audit rows (the smallest has 3)."


@pytest.mark.parametrize(
    ("state", "options", "begins", "command"),
    [
        ("random", ("--checkpoint",), "Give the trained weights", "--checkpoint WEIGHTS"),
        ("order", ("--classes", "check --fit-preprocessing"), "Name the classes", "--fit-preprocessing"),
        ("constant", ("--mean", "check --fit-preprocessing"), "Make the model work first: look at --mean", "--fit-preprocessing"),
        ("few", (), "Collect: so few", "audit films.csv"),
    ],
)
def test_a_model_that_does_not_work_comes_before_everything(state, options, begins, command):
    card = Preflight(model="m", state=state, reason="why", options=options)
    advised = step(card_objection(card), preflight=(card,))
    assert advised.todo.startswith(begins) and command in advised.command


def test_levels_in_two_spellings_are_to_be_made_one():
    card = Preflight(model="m", state="works", doubts={"view": "view has levels that look alike: make them one in the table"})
    assert step(card_objection(card), preflight=(card,)).todo == "View has levels that look alike: make them one in the table."


# ---- how sure --------------------------------------------------------------------------------------------------------------


def test_how_sure_says_what_it_rests_on_and_how_often_such_verdicts_are_wrong():
    called = first_of(told(answers(), finding("a", attribute="view", n_rows=400, n_subjects=120))).sure
    assert called.startswith("It rests on 400 test images of 120 subjects. Such a call was wrong for ")
    cleared = first_of(told(answers(), finding("a", "no evidence", attribute="view", n_rows=400))).sure
    assert "It can be wrong: of " in cleared and "subjects" not in cleared
    assert (
        first_of(told(answers(), finding("a", "inconclusive", attribute="view", n_rows=400))).sure
        == "It rests on 400 test images."
    )


# ---- for programs ----------------------------------------------------------------------------------------------------------


def test_the_summary_has_one_object_for_each_model_and_attribute(kind, tmp_path: Path):
    name, findings, sheet = kind
    report(findings, tmp_path / "report.html", sheet=sheet)
    (one,) = Summary.read(tmp_path).cases
    (judged,) = cases(findings, sheet)
    assert (one.model, one.attribute, one.verdict, one.works) == ("net", "view", judged.verdict, name != "does not work")
    assert one.effect.low <= one.effect.value <= one.effect.high and one.effect.unit == "share"
    assert one.next_step.todo and one.next_step.command and one.how_sure and one.sentence
    assert (one.counts.rows, one.counts.audits, one.counts.not_run) == (findings[0].n_rows, 3, 0)


def test_the_number_of_a_case_without_answers_is_that_of_a_finding_that_agrees():
    (one,) = summary_of([finding("b", "no evidence", estimates=[estimate(0.0)]), finding("a", standing="guard")]).cases
    assert (one.verdict, one.what) == ("inconclusive", "")
    (called,) = summary_of([finding("a", estimates=[estimate(0.4)])]).cases
    assert (called.verdict, called.effect.value) == ("shortcut", 0.4)


def test_pages_of_other_names_have_summaries_of_their_own(tmp_path: Path):
    report([finding()], tmp_path / "one.html")
    report([finding(model="other")], tmp_path / "two.html")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.html", "one.summary.json", "two.html", "two.summary.json"]


def test_a_summary_is_sealed(tmp_path: Path):
    report([finding()], tmp_path / "report.html")
    seal(tmp_path)
    file = tmp_path / "summary.json"
    file.write_text(file.read_text().replace('"shortcut"', '"no evidence"'))
    assert check(tmp_path).lines == ["changed: summary.json"]


def test_what_is_no_summary_is_refused(tmp_path: Path):
    for text, why in (("{", "not JSON"), ('{"format": 1}', "not a summary"), ('{"format": 99}', "99")):
        (tmp_path / "summary.json").write_text(text)
        with pytest.raises(DataError, match=why):
            Summary.read(tmp_path)


def test_the_published_schema_is_current_and_summaries_keep_it():
    published = Path(__file__).parents[2] / "docs" / "schema" / "summary.schema.json"
    assert published.read_text(encoding="utf-8") == schema(), (
        "run python -c 'from rightreasons.report.summary import schema; print(schema(), end=\"\")' "
        "> docs/schema/summary.schema.json"
    )
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.validate(json.loads(summary_of([finding()]).to_json()), json.loads(schema()))
