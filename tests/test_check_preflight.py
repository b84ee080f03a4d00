"""Which models work on rows, by labels and logits alone; and what a card lets a verdict say."""

from __future__ import annotations

import numpy as np
import pytest

from rightreasons.check.preflight import About, answers, doubts, near_levels, preflight, preflight_of, repeated
from rightreasons.data.cohort import Cohort
from rightreasons.evidence import Evidence
from rightreasons.findings import Estimate, Finding
from rightreasons.findings.preflight import Preflight, guarded, objection_of
from rightreasons.study.preflight import checked

ABOUT = About(name="m")


def logits_of(answered: np.ndarray, classes: int = 2) -> np.ndarray:
    return np.eye(classes)[answered] * 4.0


def drawn(n: int, accuracy: float, seed: int, classes: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Labels, and logits that name the true class in a share of the rows and any other class in the rest."""
    rng = np.random.default_rng(seed)
    label = np.arange(n) % classes
    wrong = (label + rng.integers(1, classes, n)) % classes
    return label, logits_of(np.where(rng.random(n) < accuracy, label, wrong), classes)


def cohort(label: np.ndarray, cue: np.ndarray, **columns: object) -> Cohort:
    table = {"id": [f"r{k}" for k in range(len(label))], "y": label, "cue": cue, **columns}
    return Cohort.from_columns(table, label="y", attribute="cue", id="id")


def card(label: np.ndarray, logits: np.ndarray, cue: np.ndarray, **more: object) -> Preflight:
    return preflight(label, logits, cohort(label, cue), tuple(range(logits.shape[1])), ABOUT, **more)  # type: ignore[arg-type]


def finding(verdict: str | None, attribute: str = "cue") -> Finding:
    estimate = Estimate(name="pull", value=0.3, low=0.1, high=0.5, row="reliance")
    return Finding(
        name="pull", audit="pull", question="?", row="reliance", verdict=verdict, sentence="Says so.", estimates=(estimate,),
        attribute=attribute, model="m",
    )  # type: ignore[arg-type]  # fmt: skip


# ---- the rule --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "classes"), [(40, 2), (300, 2), (300, 5)])
def test_a_model_at_chance_hardly_ever_works(n: int, classes: int) -> None:
    worked = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        found = answers(np.arange(n) % classes, logits_of(rng.integers(0, classes, n), classes))
        assert found is not None
        worked += found.state == "works"
    assert worked <= 7  # one in a hundred is the rule; 7 of 200 has probability below 0.005


@pytest.mark.parametrize(
    ("accuracy", "classes", "state"),
    [(0.8, 2, "works"), (0.5, 2, "chance"), (0.2, 2, "order"), (0.6, 5, "works"), (0.2, 5, "chance"), (0.48, 2, "chance")],
)
def test_states_by_accuracy(accuracy: float, classes: int, state: str) -> None:
    label, logits = drawn(400, accuracy, 3, classes)
    found = answers(label, logits)
    assert found is not None
    assert found.state == state


def test_one_answer_to_everything_is_constant_however_uneven_the_classes_are() -> None:
    label = (np.arange(300) % 10 == 0).astype(int)
    found = answers(label, logits_of(np.zeros(300, dtype=int)))
    assert found is not None
    assert found.state == "constant" and found.balanced == 0.5


def test_rare_classes_that_are_named_now_and_then_work() -> None:
    label = (np.arange(1000) % 50 == 0).astype(int)
    answered = ((label == 1) & (np.arange(1000) % 100 == 0)).astype(int)
    found = answers(label, logits_of(answered))
    assert found is not None
    assert found.state == "works" and found.accuracy == 0.99


def test_two_of_three_classes_swapped_are_an_order() -> None:
    label, logits = drawn(300, 0.9, 0, 3)
    found = answers(label, logits[:, [1, 0, 2]])
    assert found is not None
    assert found.state == "order"
    told = card(label, logits[:, [1, 0, 2]], label % 2)
    assert "--classes (here 1,0,2 scores" in told.advice
    assert "output 1 is 0" in told.reason


def test_few_rows_cannot_say_that_a_model_works() -> None:
    label, logits = drawn(12, 0.7, 1)
    found = answers(label, logits)
    assert found is None or found.state in ("few", "chance")
    assert answers(label[:6], logits[:6]) is None


def test_too_few_rows_do_not_say_that_a_model_fails() -> None:
    label, logits = drawn(128, 0.58, 4)
    told = card(label[:8], logits[:8], label[:8])
    assert told.state == "few" and "does not work" not in told.sentence
    assert told.sentence.startswith("It cannot be told whether the model works on these rows. Of 8 rows too few")
    said = guarded(finding("no evidence"), told)
    assert said.verdict == "inconclusive" and "cannot be told" in said.sentence


def test_rows_without_labels_or_with_broken_logits_are_left_out() -> None:
    label, logits = drawn(200, 0.9, 0)
    label[:20], logits[20:40] = -1, np.nan
    found = answers(label, logits)
    assert found is not None
    assert found.n == 160 and found.state == "works"


# ---- what may be said --------------------------------------------------------------------------------------------------------


def test_no_evidence_needs_a_model_that_works_and_a_call_may_stand_where_answers_follow() -> None:
    rng = np.random.default_rng(0)
    label, cue = np.arange(400) % 2, rng.integers(0, 2, 400)
    follows = card(label, logits_of(cue), cue)
    assert follows.state == "chance" and follows.follows == ("cue",)
    assert guarded(finding("shortcut"), follows).verdict == "shortcut"
    assert guarded(finding("no evidence"), follows).verdict == "inconclusive"
    guesses = card(label, logits_of(rng.integers(0, 2, 400)), cue)
    assert guarded(finding("shortcut"), guesses).verdict == "inconclusive"
    assert guarded(finding(None), guesses).verdict is None


def test_a_guarded_finding_says_why_and_names_what_to_look_at() -> None:
    label, cue = np.arange(400) % 2, np.arange(400) // 2 % 2
    told = guarded(finding("no evidence"), card(label, logits_of(np.zeros(400, dtype=int)), cue))
    assert told.sentence.startswith("Inconclusive (it would have been: no evidence): the model does not work on these rows")
    for option in ("--size", "--mean", "--std", "--crop", "--classes", "--fit-preprocessing"):
        assert option in told.sentence
    (check,) = told.checks
    assert check.decides and check.passed is False
    assert objection_of(told)


def test_a_model_that_works_elsewhere_may_be_called_and_not_cleared() -> None:
    label, cue = np.arange(400) % 2, np.arange(400) // 2 % 2
    reversed_here = logits_of(1 - label)
    other = answers(label, logits_of(label))
    assert other is not None
    told = card(label, reversed_here, cue, elsewhere={"val": other})
    assert guarded(finding("shortcut"), told).verdict == "shortcut"
    assert guarded(finding("no evidence"), told).verdict == "inconclusive"


def test_levels_in_two_spellings_leave_that_attribute_open() -> None:
    label, logits = drawn(200, 0.9, 0)
    rows = cohort(label, np.array(["m", "M", "f", " f"])[np.arange(200) % 4], age=np.arange(200) % 3)
    told = preflight(label, logits, rows, (0, 1), ABOUT)
    assert told.works and "'M' and 'm'" in told.doubts["cue"]
    assert guarded(finding("no evidence"), told).verdict == "inconclusive"
    assert "two spellings" in guarded(finding("shortcut"), told).sentence
    assert guarded(finding("no evidence", "age"), told).verdict == "no evidence"


@pytest.mark.parametrize(
    ("levels", "pairs"),
    [(["m", "M"], 1), (["f", "m"], 0), (["1", "1.0", "x"], 1), (["left hand", "left_hand"], 1), (["-1", "1", "x"], 0),
     (["10-20", "10 20"], 1), (["nan", "inf"], 0), (["ｍ", "m"], 1)],
)  # fmt: skip
def test_levels_that_look_like_one(levels: list[str], pairs: int) -> None:
    values = np.array(levels, dtype=object)[np.arange(60) % len(levels)]
    rows = cohort(np.arange(60) % 2, values)
    assert len(near_levels(rows.attribute("cue"))) == pairs


def test_repeated_images_are_counted_and_many_of_them_leave_everything_open() -> None:
    label = np.arange(100) % 2
    rows = cohort(label, label, image=[f"{k // 2}.png" for k in range(100)])
    assert repeated(rows) == 50
    assert "50 of 100 rows repeat" in doubts(rows)[""]
    assert repeated(cohort(label, label, image=[f"{k}.png" for k in range(100)])) == 0


def test_ids_that_are_one_number_are_said() -> None:
    label, logits = drawn(60, 0.9, 0)
    rows = Cohort.from_columns({"id": ["7", "07", *map(str, range(100, 158))], "y": label, "cue": label}, label="y", id="id")
    told = preflight(label, logits, rows, (0, 1), ABOUT)
    assert any("ids would be one number" in warning for warning in told.warnings)


# ---- of evidence -------------------------------------------------------------------------------------------------------------


def test_evidence_of_a_model_at_chance_gives_no_verdict_and_names_the_columns() -> None:
    from rightreasons.study.entrances import audit_all

    rng = np.random.default_rng(5)
    label, cue = np.arange(400) % 2, np.arange(400) // 2 % 2
    arrays = {"test": {"logits": logits_of(rng.integers(0, 2, 400))}}
    evidence = Evidence.from_arrays({"test": cohort(label, cue)}, arrays, classes=(0, 1), name="m")
    found = audit_all(evidence, audits=["groups", "pull"], settings={"groups": {"B": 100}})
    assert {f.verdict for f in found} <= {None, "inconclusive"}
    _, (told,) = checked(found, evidence)
    assert not told.works and any("p_<class>" in option for option in told.options)


def test_evidence_without_logits_has_no_card() -> None:
    label = np.arange(40) % 2
    evidence = Evidence.from_arrays({"test": cohort(label, label)}, {"test": {"features": np.zeros((40, 2))}}, classes=(0, 1))
    assert preflight_of(evidence, ABOUT) is None


def test_a_card_survives_its_own_json() -> None:
    label, logits = drawn(100, 0.9, 0)
    told = card(label, logits, label)
    assert Preflight.model_validate_json(told.model_dump_json()) == told


def test_long_ids_are_compared_to_the_last_digit() -> None:
    label, logits = drawn(60, 0.9, 0)
    for first in (10**13, 2**53, 10**30):
        rows = Cohort.from_columns(
            {"id": [str(first + k) for k in range(60)], "y": label, "cue": label[::-1]}, label="y", attribute="cue", id="id"
        )
        assert preflight(label, logits, rows, (0, 1), ABOUT).warnings == ()


def test_subjects_in_two_spellings_are_said() -> None:
    label, logits = drawn(60, 0.9, 0)
    names = [f"{'pP'[k % 2]}{k // 2}" for k in range(60)]
    rows = Cohort.from_columns({"id": [f"r{k}" for k in range(60)], "y": label, "s": names}, label="y", id="id", subject="s")
    (warning,) = preflight(label, logits, rows, (0, 1), ABOUT).warnings
    assert "60 subjects look like others in another spelling" in warning
