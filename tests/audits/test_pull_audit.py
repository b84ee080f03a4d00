"""Pull: predictions that follow the attribute are called, harder images and noise are not, and few rows decide nothing."""

from __future__ import annotations

import numpy as np
import pytest

from rightreasons.audits import audit
from rightreasons.data.cohort import Cohort
from rightreasons.evidence import Evidence
from rightreasons.stats import groups, totals

LEVELS = np.array(["f", "m"])


def cohort_of(y, a, name="test", **columns) -> Cohort:
    given = {"id": [f"{name}{i}" for i in range(len(y))], "label": list(y), "cue": list(LEVELS[a]), **columns}
    return Cohort.from_columns(given, attribute="cue", name=name, **{k: k for k in columns})


def evidence_of(effect, n=400, *, associated=True, harder=0.0, seed=0, **columns) -> Evidence:
    """Logits that read the label, less well in one group, and the attribute by `effect`; audit and test rows."""
    rng = np.random.default_rng(seed)
    cohorts, arrays = {}, {}
    for name in ("audit", "test"):
        y, a = rng.integers(0, 2, n), rng.integers(0, 2, n)
        z = (2 - harder * a) * (2 * y - 1) + effect * (2 * a - 1) + rng.normal(size=n)
        cohorts[name], arrays[name] = cohort_of(y, a, name, **(columns if name == "test" else {})), {"logits": z}
    ty = np.arange(400) % 2
    ta = np.where(rng.random(400) < 0.9, ty, 1 - ty) if associated else np.arange(400) // 2 % 2
    return Evidence.from_arrays(cohorts, arrays, training=cohort_of(ty, ta, "train"))


def run(evidence, B=400, permutations=200, **settings):
    return audit("pull", evidence, B=B, permutations=permutations, **settings)


def test_a_followed_attribute_is_called_with_its_size():
    result = run(evidence_of(1.5))
    finding, m = result.finding(), result.measurements[0]
    test = evidence_of(1.5).on("test").decisions()
    assert finding.verdict == "shortcut" and finding.row == "behaviour"
    assert m.pull.value == pytest.approx(
        groups.pull(test.label, test.probability, test.cohort.attribute().values, {0: 0, 1: 1}), abs=1e-12
    )
    assert m.pull.low < m.pull.value < m.pull.high and m.p == pytest.approx(1 / 201)
    assert "they follow it" in finding.sentence and len(finding.exhibits[0].labels) == 4


def test_a_model_that_ignores_it_and_one_with_a_harder_group_are_not_called():
    for evidence in (evidence_of(0.0), evidence_of(0.0, harder=1.5)):
        finding = run(evidence).finding()
        assert finding.verdict == "no evidence", finding.sentence
    by_label = run(evidence_of(0.0, harder=1.5)).measurements[0].by_label.value
    assert by_label.max() > 0.1 and by_label.min() < -0.1  # one label is drawn along and the other away


def test_moving_against_the_attribute_is_no_shortcut():
    finding = run(evidence_of(-1.5)).finding()
    assert finding.verdict == "no evidence" and "against it" in finding.sentence


def test_where_training_shows_no_direction_the_audit_rows_do():
    finding = run(evidence_of(1.5, associated=False)).finding()
    assert finding.verdict == "shortcut"
    assert any("direction from the audit rows" in check.note for check in finding.checks)


def test_without_association_false_alarms_are_rare():
    called = [run(evidence_of(0.0, associated=False, seed=seed), permutations=19).finding().verdict for seed in range(60)]
    assert called.count("shortcut") <= 2


def test_few_rows_decide_nothing():
    finding = run(evidence_of(0.0, n=40)).finding()
    assert finding.verdict == "inconclusive" and "nor surely below" in finding.sentence
    assert any(check.decides and check.passed is False for check in finding.checks)
    assert run(evidence_of(3.0, n=20)).finding().verdict == "inconclusive"


def test_p_values_are_uniform_without_an_effect():
    p = [run(evidence_of(0.0, n=120, seed=seed), B=50, permutations=99).measurements[0].p for seed in range(120)]
    assert 0.01 <= np.mean(np.array(p) <= 0.1) <= 0.2


def test_subjects_travel_together():
    who = [f"s{i // 8}" for i in range(400)]
    alone, together = run(evidence_of(0.5)).measurements[0], run(evidence_of(0.5, subject=who)).measurements[0]
    assert together.n_subjects == 50 and alone.n_subjects is None and together.pull.value == alone.pull.value


def aged(effect, n=400) -> Evidence:
    """Answers that follow an age, which goes with the label in the training rows."""
    rng = np.random.default_rng(0)
    cohorts, arrays = {}, {}
    for name in ("train", "audit", "test"):
        y = rng.integers(0, 2, n)
        age = rng.normal(50, 10, n) + (8 * y if name == "train" else 0)
        columns = {"id": [f"{name}{i}" for i in range(n)], "label": list(y), "age": list(age)}
        cohorts[name] = Cohort.from_columns(columns, attribute="age", name=name)
        arrays[name] = {"logits": 2 * (2 * y - 1) + effect * (age - 50) / 10 + rng.normal(size=n)}
    training = cohorts.pop("train")
    del arrays["train"]
    return Evidence.from_arrays(cohorts, arrays, training=training)


def test_a_number_is_compared_by_its_quarters():
    finding = run(aged(1.0)).finding()
    assert finding.verdict == "shortcut" and len(finding.exhibits[0].labels) >= 4
    assert any("→ 1" in label and "above" in label for label in finding.exhibits[0].labels)
    assert run(aged(0.0)).finding().verdict == "no evidence"


def test_an_attribute_that_the_training_table_lacks_is_looked_at_by_the_audit_rows():
    rng = np.random.default_rng(0)
    n = 400
    y, a = rng.integers(0, 2, n), rng.integers(0, 2, n)
    columns = {"id": np.arange(n), "label": y, "site": a, "split": np.where(np.arange(n) % 2, "audit", "test")}
    cohort = Cohort.from_columns(columns, attribute="site", split="split")
    training = Cohort.from_columns({"id": np.arange(n), "label": y, "sex": a}, attribute="sex")
    logits = np.stack([np.zeros(n), 2.0 * (2 * y - 1) + 2.0 * (2 * a - 1)], axis=1)
    evidence = Evidence.from_arrays(cohort, {"logits": logits}, training=training)
    assert audit("pull", evidence, B=100, permutations=50).verdict == "shortcut"


def alone(effect, n=400, seed=0) -> Evidence:
    """Predictions of test rows and nothing else."""
    rng = np.random.default_rng(seed)
    y, a = rng.integers(0, 2, n), rng.integers(0, 2, n)
    z = 2 * (2 * y - 1) + effect * (2 * a - 1) + rng.normal(size=n)
    return Evidence.from_arrays(cohort_of(y, a), {"logits": z})


def test_predictions_alone_say_the_direction_half_for_half():
    finding = run(alone(1.0)).finding()
    assert finding.verdict == "shortcut" and len(finding.exhibits[0].labels) == 4
    (note,) = (check.note for check in finding.checks if check.id == "direction")
    assert "cue = m → 1" in note and "each half" in note
    assert run(alone(1.0), aligned={"m": 0, "f": 1}).finding().verdict == "no evidence"  # what is said is not looked for


def test_predictions_alone_of_a_model_that_ignores_it_are_not_called():
    called = [run(alone(0.0, n=200, seed=seed), B=200, permutations=19).finding().verdict for seed in range(60)]
    assert called.count("shortcut") <= 2 and called.count("no evidence") > 30


def test_a_large_table_says_of_its_sums_what_a_small_one_says_of_its_rows(monkeypatch):
    found = []
    for large in (0, 10**9):
        monkeypatch.setattr(totals, "LARGE", large)
        (m,) = run(evidence_of(0.1, subject=[f"s{i // 3}" for i in range(400)])).measurements
        found.append(m)
    sums, rows = found
    assert (sums.pull.low, sums.pull.value, sums.pull.high) == pytest.approx((rows.pull.low, rows.pull.value, rows.pull.high))
    assert sums.by_label.name == rows.by_label.name and len(rows.by_label.name) == 4
    for limit in ("value", "low", "high"):
        assert getattr(sums.by_label, limit) == pytest.approx(getattr(rows.by_label, limit))
    assert sums.p == pytest.approx(rows.p, abs=0.15) and 0 < rows.p < 1
