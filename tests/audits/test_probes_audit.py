"""Probes: what is in the features is read, noise is not, and a label that goes with the attribute does not stand in for it."""

from __future__ import annotations

import numpy as np
import pytest

from rightreasons.audits import audit, audit_all
from rightreasons.data.cohort import Cohort
from rightreasons.errors import EvidenceError, NotRun
from rightreasons.evidence import Evidence


def evidence_of(features, y, a, split=None, **columns) -> Evidence:
    n = len(y)
    given = {"id": np.arange(n), "label": list(y), "sex": list(a), **columns}
    given["split"] = np.where(np.arange(n) % 2, "audit", "test") if split is None else split
    schema = {key: key for key in ("subject", "case") if key in columns}
    cohort = Cohort.from_columns(given, attribute="sex", split="split", **schema)
    return Evidence.from_arrays(cohort, {"features": features})


def run(evidence, B=100, **settings):
    return audit("probes", evidence, B=B, **settings)


def entry(m, table, kind, target):
    return getattr(m.readings, table)[m.readings.of(kind, target)]


def test_an_attribute_in_the_features_is_readable(rng):
    y, a = rng.integers(0, 2, 400), rng.integers(0, 2, 400)
    z = rng.normal(size=(400, 8))
    z[:, 3] += 3 * a
    result = run(evidence_of(z, y, np.array(["f", "m"])[a]))
    finding, m = result.finding(), result.measurements[0]
    assert "sex is readable" in finding.sentence and finding.verdict is None and finding.row == "encoding"
    for kind in ("linear", "centre"):
        assert entry(m, "within_accuracy", kind, "class-conditional").value > 0.85
        assert entry(m, "auc", kind, "global").value > 0.95
    assert finding.estimates[0].low > 0.7
    assert (m.n_audit, m.n_test, m.d) == (200, 200, 8)


def test_a_probe_reads_nothing_from_noise():
    aucs, within, readable = [], [], 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        y, a = rng.integers(0, 2, 240), rng.integers(0, 2, 240)
        result = run(evidence_of(rng.normal(size=(240, 6)), y, a), B=20)
        m = result.measurements[0]
        aucs.append(entry(m, "auc", "linear", "global").value)
        within.append(entry(m, "within_auc", "linear", "class-conditional").value)
        readable += "is readable" in result.finding().sentence
    assert np.mean(aucs) == pytest.approx(0.5, abs=0.03)
    assert np.mean(within) == pytest.approx(0.5, abs=0.03)
    assert readable == 0


def test_a_label_that_goes_with_the_attribute_leaks_into_all_rows_but_not_within_the_label():
    marginal, within = [], []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        y = rng.integers(0, 2, 600)
        a = np.where(rng.random(600) < 0.85, y, 1 - y)
        z = rng.normal(size=(600, 5))
        z[:, 0] += 4 * y  # the features know the label and nothing else
        result = run(evidence_of(z, y, a), B=20)
        m = result.measurements[0]
        marginal.append(entry(m, "auc", "linear", "global").value)
        within.append(entry(m, "within_auc", "linear", "class-conditional").value)
        assert "is not readable" in result.finding().sentence
    assert np.mean(marginal) > 0.78
    assert np.mean(within) == pytest.approx(0.5, abs=0.04)


def test_an_attribute_that_lies_elsewhere_in_each_class_is_found_within_the_label_and_jointly(rng):
    y, a = rng.integers(0, 2, 600), rng.integers(0, 2, 600)
    z = rng.normal(size=(600, 4))
    z[:, 0] += 5 * y
    z[:, 1] += 4 * np.where(y == 1, 2 * a - 1, 1 - 2 * a)  # the direction turns round with the label
    m = run(evidence_of(z, y, a)).measurements[0]
    assert entry(m, "within_accuracy", "linear", "class-conditional").value > 0.9
    assert entry(m, "accuracy", "linear", "global").value < 0.7
    assert entry(m, "accuracy", "centre", "joint").value > 0.9


def test_a_constant_answer_scores_exactly_chance_whatever_the_balance(rng):
    y = np.arange(800) // 2 % 2
    a = (np.arange(800) // 4 % 10 == 0).astype(int)  # a tenth
    m = run(evidence_of(np.ones((800, 3)), y, a)).measurements[0]
    assert entry(m, "within_accuracy", "linear", "class-conditional").value == pytest.approx(0.5)
    assert entry(m, "auc", "linear", "global").value == pytest.approx(0.5)
    assert m.readings.chance[0] == 0.5 and m.readings.line[0] == pytest.approx(0.7)


def test_a_number_is_read_by_concordance(rng):
    y, age = rng.integers(0, 2, 400), rng.uniform(20, 90, 400)
    z = rng.normal(size=(400, 5))
    z[:, 2] += age / 10
    result = run(evidence_of(z, y, age))
    m = result.measurements[0]
    assert m.continuous and set(m.readings.kind) == {"ridge"}
    assert entry(m, "within_auc", "ridge", "class-conditional").value > 0.8
    assert "concordance" in result.finding().sentence
    noise = run(evidence_of(rng.normal(size=(400, 5)), y, age)).measurements[0]
    assert entry(noise, "within_auc", "ridge", "class-conditional").value == pytest.approx(0.5, abs=0.08)


def test_test_rows_are_never_fitted_on(rng):
    """As many features as rows: a probe that saw its test rows would be perfect."""
    y, a = rng.integers(0, 2, 200), rng.integers(0, 2, 200)
    m = run(evidence_of(rng.normal(size=(200, 150)), y, a)).measurements[0]
    assert entry(m, "auc", "linear", "global").value < 0.7
    check = next(c for c in run(evidence_of(rng.normal(size=(200, 150)), y, a)).finding().checks if "more audit rows" in c.name)
    assert check.passed is False and "100 rows, 150 features" in check.note


def test_small_values_and_groups_are_left_out_by_their_names(rng):
    y = np.array(["ill", "well"])[np.arange(400) % 4 // 2]
    a = np.array(["f", "m"])[np.arange(400) // 4 % 2].astype(object)
    a[:6] = "x"
    a[(y == "ill") & (a == "m")] = "f"  # no ill men
    result = run(evidence_of(rng.normal(size=(400, 3)), y, a))
    note = next(c.note for c in result.finding().checks if "large enough" in c.name)
    assert "label = ill: fewer than two attribute values" in note
    assert "sex = x: 3 rows to fit, 3 to read" in note
    assert "label = ill, sex = x" in note


def test_one_label_or_one_value_is_undefined_with_a_reason_and_no_crash(rng):
    for y, a in ((np.zeros(100, int), np.zeros(100, int)), (np.arange(100) % 4 // 2, np.zeros(100, int))):
        (finding,) = audit_all(evidence_of(rng.normal(size=(100, 3)), y, a), audits=["probes"])
        assert finding.estimates[0].value is None and finding.estimates[0].reason
        assert "could not be measured" in finding.sentence
    same = run(evidence_of(rng.normal(size=(100, 3)), np.zeros(100, int), np.arange(100) % 4 // 2)).finding()
    assert same.estimates[0].value is not None


def test_rows_without_label_or_attribute_are_counted_on_both_sides(rng):
    y, a = (rng.integers(0, 2, 200).astype(object) for _ in range(2))
    y[:10], a[10:20] = None, None
    check = next(c for c in run(evidence_of(rng.normal(size=(200, 3)), y, a)).finding().checks if "has a label" in c.name)
    assert check.passed is False and check.note == "10 audit rows and 10 test rows left out"


def test_images_of_a_case_are_read_as_one(rng):
    y, a = (np.repeat(rng.integers(0, 2, 120), 4) for _ in range(2))
    z = rng.normal(size=(480, 3)) + 1.5 * a[:, None] * np.array([1, 0, 0])
    case, split = np.repeat(np.arange(120), 4).astype(str), np.repeat(np.where(np.arange(120) % 2, "audit", "test"), 4)
    with_cases = run(evidence_of(z, y, a, split, case=case)).measurements[0]
    alone = run(evidence_of(z, y, a, split)).measurements[0]
    assert (with_cases.n_test, alone.n_test) == (60, 240)
    assert entry(with_cases, "auc", "linear", "global").value > entry(alone, "auc", "linear", "global").value + 0.03


def test_subjects_are_drawn_whole(rng):
    y, a = (np.repeat(rng.integers(0, 2, 60), 10) for _ in range(2))
    z = np.repeat(rng.normal(size=(60, 2)), 10, axis=0) + a[:, None]
    subject, split = np.repeat(np.arange(60), 10).astype(str), np.repeat(np.where(np.arange(60) % 2, "audit", "test"), 10)
    with_subjects = run(evidence_of(z, y, a, split, subject=subject), B=300).measurements[0]
    alone = run(evidence_of(z, y, a, split), B=300).measurements[0]
    reading = [entry(m, "auc", "linear", "global") for m in (with_subjects, alone)]
    width = [i.high - i.low for i in reading]
    assert with_subjects.n_subjects == 30 and width[0] > 2 * width[1]


def test_without_audit_rows_or_attribute_it_is_not_run(rng):
    z = rng.normal(size=(40, 2))
    bare = Cohort.from_columns({"id": np.arange(40), "label": np.arange(40) % 2, "split": ["audit", "test"] * 20}, split="split")
    with pytest.raises(NotRun, match="no attribute: name one with attribute="):
        run(Evidence.from_arrays(bare, {"features": z}))
    alone = evidence_of(z, np.arange(40) % 2, np.arange(40) % 2, ["test"] * 40)
    with pytest.raises(EvidenceError, match="no cohort 'audit'"):
        run(alone)
    logits = Evidence.from_arrays(bare, {"logits": z})
    (finding,) = audit_all(logits, audits=["probes"])
    assert finding.not_run


def test_the_readings_of_a_model_are_columns_of_a_table() -> None:
    from rightreasons.audits import probes
    from rightreasons.measurements import scalars
    from rightreasons.testing import synthetic_evidence

    m = probes.measure(synthetic_evidence(), rng=np.random.default_rng(0), B=50)
    found = scalars(m)
    reading = entry(m, "decides", "linear", "class-conditional")
    assert found["linear_class_conditional_within_accuracy"] == reading.value
    assert found["linear_class_conditional_within_accuracy_low"] == reading.low
    assert not any(np.isnan(v) for v in found.values() if isinstance(v, float))
