"""Excess: a cue that the head uses is called; one that only goes with the label's look, or is not used, is cleared."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from benchmarks._feature_worlds import drawn, world

from rightreasons.audits import audit
from rightreasons.data.cohort import Cohort
from rightreasons.errors import NotRun
from rightreasons.evidence import Evidence
from rightreasons.head import Head, Layer, linear_head


def judged(kind, seed=0, **fixed):
    rng = np.random.default_rng(seed)
    planted = world(drawn(kind, rng, **fixed), rng)
    return planted, audit("excess", planted.evidence, B=200, refits=8)


@pytest.mark.parametrize("kept", [False, True], ids=["independent rows", "associated rows"])
def test_a_used_cue_is_called_with_about_its_reliance(kept):
    planted, result = judged("used", kept=kept, size=1.0, agreement=0.9)
    finding = result.finding()
    assert planted.reliance > 0.1 and finding.verdict == "shortcut", finding.sentence
    assert finding.row == "reliance" and finding.standing == "guard" and finding.estimates[0].name == "excess"
    assert "the model uses it" in finding.sentence


@pytest.mark.parametrize("kept", [False, True], ids=["independent rows", "associated rows"])
def test_an_attribute_that_goes_with_the_labels_look_is_cleared(kept):
    _, result = judged("presentation", kept=kept, strength=0.6, shown=0.8, one_sided=False)
    finding = result.finding()
    assert finding.verdict == "no evidence", finding.sentence
    assert result.first.pulls.model.low > 0.05  # which the pull alone would call
    assert {one.kind: one.present for one in finding.unevenness} == {"prevalence": True, "presentation": True, "use": False}


def test_without_audit_rows_it_says_so():
    planted, _ = judged("no cue")
    test = planted.evidence.on("test")
    with pytest.raises(NotRun, match="no audit rows"):
        audit("excess", Evidence.from_arrays({"test": test.cohort}, {"test": {"logits": test["logits"]}}))


def test_a_proxy_is_explained_by_the_cue_where_the_cue_is_a_column():
    _, result = judged("proxy, cue recorded", kept=False, size=1.0, agreement=0.9, rate=0.12, strength=0.6)
    finding = result.finding()
    assert result.first.pulls.excess.low > 0.03 and finding.verdict == "no evidence", finding.sentence
    assert "mark explains it" in finding.sentence
    companion = next(one for one in finding.unevenness if one.kind == "companion")
    assert companion.companion == "mark" and companion.estimate.value > 0.1
    table = next(e for e in finding.exhibits if e.title == "Several attributes at once")
    assert [row[-1] for row in table.rows] == ["explained by mark", "used"]


def test_a_proxy_is_told_from_an_unrecorded_cue_by_rows_that_show_the_other_value():
    _, result = judged("proxy, cue not recorded", kept=False, size=1.0, agreement=0.9, rate=0.12, strength=0.6)
    finding = result.finding()
    assert result.first.pulls.excess.low > 0.03 and finding.verdict == "no evidence", finding.sentence
    assert "not of “cue” as it is recorded" in finding.sentence
    assert result.first.shown.otherwise.value == pytest.approx(0.12, abs=0.04)
    assert any(one.kind == "companion" and not one.companion for one in finding.unevenness)


def test_two_cues_that_are_both_used_are_both_called():
    planted, result = judged("used beside another", kept=True, size=1.0, agreement=0.85)
    assert planted.reliance > 0.1 and result.verdict == "shortcut"
    assert "and mark as well" in result.finding().sentence
    assert audit("excess", planted.evidence, attribute="mark", B=200, refits=8).verdict == "shortcut"


# ---- labels, attributes and heads of every kind ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """What is planted: classes, values of the attribute (0: a number), the effect of each value on its class."""

    effect: float
    C: int = 2
    levels: int = 2
    n: int = 600
    images: int = 1  # of a case
    subjects: int = 1  # rows per subject
    wrong: float = 0.0  # share of labels of class 1 that the table has as 0, where the attribute is 0


def table(kind, name, rng, associated):
    """Columns and features; `truth` is what the features show."""
    n = kind.n
    truth = np.repeat(rng.integers(0, kind.C, n // kind.subjects), kind.subjects)
    drawn = rng.normal(size=n) + (truth if associated else 0)
    cue = drawn if not kind.levels else np.where(rng.random(n) < 0.8 * associated, truth, rng.integers(0, kind.levels, n))
    marks = cue[:, None] if not kind.levels else 2.0 * np.eye(kind.levels)[cue] + 0.3 * rng.normal(size=(n, kind.levels))
    shows = 2.0 * np.eye(kind.C)[truth] + rng.normal(size=(n, kind.C))
    label = np.where((truth == 1) & (cue == 0) & (rng.random(n) < kind.wrong), 0, truth)
    columns = {
        "id": [f"{name}{i}" for i in range(n)],
        "label": label,
        "truth": truth,
        "cue": cue,
        "person": [f"{name}-p{i // kind.subjects}" for i in range(n)],
        "visit": [f"{name}-v{i}" for i in range(n)],
    }
    features = np.concatenate([shows, marks, rng.normal(size=(n, 4))], axis=1)
    picked = np.repeat(np.arange(n), kind.images)
    columns = {key: list(np.asarray(values)[picked]) for key, values in columns.items()}
    columns["id"] = [f"{one}-{i}" for i, one in enumerate(columns["id"])]
    return columns, features[picked] + (kind.images > 1) * rng.normal(size=(len(picked), features.shape[1]))


def weights(kind):
    marks = kind.levels or 1
    weight = np.zeros((kind.C, kind.C + marks + 4))
    weight[:, : kind.C] = 1.5 * np.eye(kind.C)
    for value in range(marks):
        weight[value % kind.C if kind.levels else 1, kind.C + value] = kind.effect
    return weight


def planted(kind, head=None, seed=0):
    rng = np.random.default_rng(seed)
    head = head or linear_head(weights(kind))
    cohorts, arrays = {}, {}
    for name in ("train", "audit", "test"):
        columns, features = table(kind, name, rng, associated=name == "train")
        more = {"subject": "person"} if kind.subjects > 1 else {}
        more |= {"case": "visit"} if kind.images > 1 else {}
        cohorts[name] = Cohort.from_columns(columns, attribute="cue", name=name, **more)
        arrays[name] = {"features": features, "logits": head(features)}
    training = cohorts.pop("train")
    del arrays["train"]
    return Evidence.from_arrays(cohorts, arrays, head=head, training=training)


def run(evidence, **settings):
    return audit("excess", evidence, **{"B": 100, "refits": 4, **settings})


EVERY_KIND = {
    "three classes": Kind(1.0, C=3, levels=3),
    "four values of two classes": Kind(1.0, levels=4),
    "a number": Kind(1.0, levels=0),
    "cases of two images": Kind(1.0, images=2),
    "subjects of four rows": Kind(1.0, subjects=4),
}


@pytest.mark.parametrize("kind", EVERY_KIND.values(), ids=EVERY_KIND)
def test_every_kind_of_label_and_attribute_is_called_where_it_is_used_and_cleared_where_it_is_not(kind):
    used, unused = run(planted(kind)), run(planted(replace(kind, effect=0.0)))
    assert used.verdict == "shortcut", used.finding().sentence
    assert unused.verdict == "no evidence", unused.finding().sentence
    assert used.first.n == kind.n and (used.first.n_subjects is not None) == (kind.subjects > 1)


def test_a_number_is_compared_by_quarters_and_the_finding_says_where_they_end():
    first = run(planted(EVERY_KIND["a number"])).first
    assert first.cut.count(" to ") == 3 and len(first.cells.name) == 8


def test_a_nonlinear_head_is_refitted_at_its_last_layer_and_a_single_logit_is_two():
    kind = Kind(1.0)
    weight = weights(kind)
    d = weight.shape[1]
    bent = Head(
        (
            Layer("linear", {"weight": np.concatenate([np.eye(d), -np.eye(d)]), "bias": np.zeros(2 * d)}),
            Layer("activation", {}, "relu"),
            Layer("linear", {"weight": np.concatenate([weight, -weight], axis=1), "bias": np.zeros(2)}),
        )
    )
    plain = run(planted(kind)).first
    by_bent = run(planted(kind, bent)).first
    by_one = run(planted(kind, linear_head(weight[1:] - weight[:1]))).first
    assert by_bent.pulls.model.value == pytest.approx(plain.pulls.model.value, abs=1e-5)
    for other in (by_bent, by_one):
        assert other.pulls.excess.value == pytest.approx(plain.pulls.excess.value, abs=0.03)


def test_labels_that_follow_the_attribute_are_told_by_the_adjudicated_ones():
    finding = run(planted(Kind(0.0, wrong=0.4, n=1_000)), truth="truth").finding()
    told = {one.kind: one for one in finding.unevenness}
    assert told["annotation"].present and told["annotation"].estimate.value == pytest.approx(0.2, abs=0.06)
    right = {one.kind: one for one in run(planted(Kind(0.0)), truth="truth").finding().unevenness}
    assert right["annotation"].present is False
    assert "annotation" not in {one.kind for one in run(planted(Kind(0.0))).finding().unevenness}


def test_too_few_audit_rows_of_a_group_decide_nothing():
    evidence = planted(Kind(1.0, n=24))
    finding = run(evidence).finding()
    assert finding.verdict == "inconclusive"
    assert any(check.id in ("cells", "power") and check.passed is False for check in finding.checks)


def few_rows(kind, smallest):
    """A world that keeps its association, and what its judge says where the smallest cell has so many audit rows."""
    rng = np.random.default_rng(2)
    planted = world(drawn(kind, rng, kept=True, size=1.0, agreement=0.9, strength=0.6, shown=0.8, one_sided=False), rng)
    result = audit("excess", planted.evidence, B=200, refits=8)
    cells = result.first.cells
    fewer = replace(cells, audit=np.where(cells.audit == cells.smallest, smallest, cells.audit))
    return replace(result, measurements=(replace(result.first, cells=fewer),))


@pytest.mark.parametrize(("smallest", "verdict"), [(4, "inconclusive"), (5, "shortcut"), (9, "shortcut"), (10, "shortcut")])
def test_five_rows_of_a_group_are_enough_to_call_an_excess_that_is_sure(smallest, verdict):
    finding = few_rows("used", smallest).finding()
    assert finding.verdict == verdict, finding.sentence
    check = next(check for check in finding.checks if check.id == "cells")
    assert check.passed is (smallest >= 10) and check.decides is (verdict != "shortcut" or smallest >= 10)
    assert ("audit rows; at least 10 are needed" in finding.sentence) is (verdict == "inconclusive")


@pytest.mark.parametrize(("smallest", "verdict"), [(9, "inconclusive"), (10, "no evidence")])
def test_ten_rows_of_a_group_are_needed_to_clear(smallest, verdict):
    assert few_rows("presentation", smallest).finding().verdict == verdict


def test_a_value_whose_test_rows_have_one_label_only_is_judged_by_the_others():
    kind = Kind(1.0)
    evidence = planted(kind)
    test = evidence.on("test")
    value = np.asarray(test.cohort.attribute(None).values)
    kept = np.flatnonzero(~((value == 0) & (np.asarray(test.label) == 1)))
    arrays = {"test": {name: test[name][kept] for name in ("features", "logits")}}
    audit_rows = evidence.on("audit")
    arrays["audit"] = {name: audit_rows[name] for name in ("features", "logits")}
    cohorts = {"test": test.cohort.select(kept), "audit": audit_rows.cohort}
    finding = run(Evidence.from_arrays(cohorts, arrays, head=evidence.head, training=evidence.training)).finding()
    assert finding.verdict in ("shortcut", "no evidence", "inconclusive") and finding.sentence


def test_balanced_networks_are_shown_beside_it_and_decide_nothing():
    model, balanced = planted(Kind(1.0)), [planted(Kind(0.0)) for _ in range(2)]
    finding = run({"test": model, "baseline": balanced}).finding()
    beside = next(e for e in finding.estimates if e.name == "excess over balanced networks")
    alone = run(model)
    assert beside.value == pytest.approx(alone.first.pulls.model.value, abs=0.06) and beside.low < beside.value
    assert finding.verdict == alone.verdict


def test_the_page_shows_both_heads_by_label_side_by_side():
    finding = run(planted(Kind(1.0))).finding()
    bars = next(e for e in finding.exhibits if e.title == "What both heads follow, by label")
    assert set(bars.series) == {"the model", "the refitted head"} and len(bars.labels) == 4
    assert min(bars.series["the model"]) > max(bars.series["the refitted head"])
    sizes = next(e for e in finding.exhibits if e.title == "Rows by label and value")
    assert sum(row[1] for row in sizes.rows) == 600
