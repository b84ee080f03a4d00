"""ART's swing: amplified and turned round, against a head that gains nothing from the attribute."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rightreasons.audits import art, audit
from rightreasons.audits.art import judge as rules
from rightreasons.audits.art import page
from rightreasons.audits.art.checks import checks
from rightreasons.audits.art.controls import Shuffles
from rightreasons.audits.art.judge import judge
from rightreasons.audits.art.settings import Settings
from rightreasons.audits.art.swing import crossed, shuffled_swings
from rightreasons.data.cohort import Cohort
from rightreasons.errors import SettingError
from rightreasons.evidence import Evidence
from rightreasons.head import linear_head
from rightreasons.stats import restoration
from rightreasons.stats.resampling import Interval

D = 16
PI = {"no": 0, "yes": 1}
FAST = {"controls": 40, "B": 100, "refits": 4}


def world(seed=0, kind="used", uses=1.0, n=1600):
    """Features that hold the label, how strongly it shows, and a cue; the head reads the label's axis and `uses` of the cue."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    side, strength = 2 * y - 1, rng.normal(size=n)
    z = rng.normal(size=(n, D))
    z[:, 0] += 1.2 * side + strength
    a = np.where(rng.random(n) < 0.75, y, 1 - y)
    if kind == "presentation":  # the attribute is not in the image: it only goes with how strongly the label shows
        a = (rng.random(n) < 1 / (1 + np.exp(-1.5 * strength - 0.5 * side))).astype(int)
    elif kind == "shared":  # the cue lies on the label's axis too
        z[:, 0] += 1.5 * (2 * a - 1)
        z[:, 1] += 1.0 * (2 * a - 1)
    else:
        z[:, 1] += 1.5 * (2 * a - 1)
    weight = np.zeros(D)
    weight[0], weight[1] = 1.0, 0.0 if kind in ("presentation", "unused") else uses
    return evidence_of(y, a, z, linear_head(weight))


def evidence_of(y, a, z, head):
    columns = {"id": np.arange(len(y)), "label": y, "cue": np.array(["no", "yes"])[a]}
    columns["split"] = np.where(np.arange(len(y)) % 2, "audit", "test")
    cohort = Cohort.from_columns(columns, attribute="cue", split="split")
    return Evidence.from_arrays(cohort, {"features": z, "logits": head(z)}, head=head)


def run(evidence, **settings):
    return audit("art", evidence, **{**FAST, "aligned": PI, **settings})


def failed_checks(judged):
    return {check.id for check in checks(judged) if check.decides and check.passed is False}


# ---- worlds --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_a_used_cue_swings_the_model_and_not_the_refitted_head(seed):
    result = run(world(seed, uses=0.5))
    swing = result.measurements[0].swing
    assert result.verdict == "shortcut" and result.taxonomy == "restorable shortcut"
    assert swing.excess.low > 0.1 and abs(swing.refitted_value.value) < 0.12 and swing.p <= 0.05
    assert result.finding().alike == "last layer"
    first = result.finding().estimates[0]
    assert first.value == swing.excess.value and first.p == swing.p


@pytest.mark.parametrize("seed", range(3))
def test_an_attribute_that_goes_with_the_labels_look_swings_both_heads_and_is_cleared(seed):
    result = run(world(seed, "presentation"))
    swing = result.measurements[0].swing
    assert swing.value.low > 0.05 and swing.p <= 0.05  # without the second head this would be called
    assert result.verdict == "no evidence"
    assert "how strongly the label shows" in result.finding().sentence


def test_a_cue_in_the_labels_own_direction_is_called_although_the_papers_correction_takes_most_of_it_out():
    result = run(world(0, "shared", uses=1.0))
    swing = result.measurements[0].swing
    assert result.verdict == "shortcut" and swing.cosine > 0.6


@pytest.mark.parametrize("seed", range(3))
def test_an_encoded_cue_that_the_head_ignores_is_cleared(seed):
    result = run(world(seed, "unused"))
    assert result.verdict == "no evidence" and result.taxonomy == "functional decoupling"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["unused", "presentation"])
def test_false_alarms_of_the_swing_stay_at_their_level(kind):
    verdicts = [run(world(seed, kind, n=800)).verdict for seed in range(100, 140)]
    assert verdicts.count("shortcut") <= 3
    assert verdicts.count("no evidence") >= 30


# ---- the number ----------------------------------------------------------------------------------------------------------


def follows(evidence, directions, beta):
    """CSR less errors on aligned rows, counted by hand."""
    test = evidence.on("test")
    a = test.cohort.attribute("cue").values
    moved = art.restore(test["features"], test.label, directions, beta) if beta else test["features"]
    decided = evidence.head(moved).argmax(axis=1)
    conflict, agrees = a != test.label, a == test.label
    return np.mean(decided[conflict] == a[conflict]) - np.mean(decided[agrees] != test.label[agrees])


def test_the_swing_is_half_of_what_lies_between_both_ends_averaged_over_both_ways_to_halve():
    evidence = world(4, uses=0.6)
    m = art.measure(evidence, rng=np.random.default_rng(5), **FAST, aligned=PI)
    rows = evidence.on("audit")
    z, y, a = rows["features"], rows.label, rows.cohort.attribute("cue").values
    first, second = restoration.halves(y, a, rng=np.random.default_rng(5).spawn(1)[0])
    curves = []
    for find_on, gate_on in ((first, second), (second, first)):
        found = art.find(z[find_on], y[find_on], a[find_on], rho=0.0)
        gated = art.gate(found, z[gate_on], y[gate_on], a[gate_on], n_min=10)
        curves.append([follows(evidence, gated, beta) for beta in m.swing.betas])
    mean = np.mean(curves, axis=0)
    assert [i.value for i in m.swing.model] == pytest.approx(mean, abs=1e-12)
    at = m.swing.betas.tolist().index
    assert m.swing.value.value == pytest.approx((mean[at(2.0)] - mean[at(-2.0)]) / 2, abs=1e-12)
    assert m.swing.excess.value == pytest.approx(m.swing.value.value - m.swing.refitted_value.value, abs=1e-12)


def test_shuffled_swings_agree_with_a_plain_loop():
    from tests.audits.test_art_audit import audit_parts

    parts, head = audit_parts()
    settings = Settings(controls=19, tau=0.1, n_min=10)
    folds = crossed(parts, settings)
    found = shuffled_swings(folds, settings, np.random.default_rng(4))
    shuffles = Shuffles(folds[0], 19, np.random.default_rng(4))
    test = parts.stage.rows
    conflict, agrees = test.a != test.y, test.a == test.y

    def follows_at(directions, beta):
        decided = head(art.restore(test.z, test.y, directions, beta)).argmax(axis=1)
        return np.mean(decided[conflict] == test.a[conflict]) - np.mean(decided[agrees] != test.y[agrees])

    for k in range(19):
        swings = []
        halves = ((parts.finding, shuffles.find_a[k]), (parts.gating, shuffles.gate_a[k]))
        for (finding, find_a), (gating, gate_a) in (halves, halves[::-1]):
            one = art.gate(art.find(finding.z, finding.y, find_a, 0.0), gating.z, gating.y, gate_a, 0.1, 5)
            swings.append((follows_at(one, 2.0) - follows_at(one, -2.0)) / 2)
        assert found[k] == pytest.approx(np.mean(swings), abs=1e-12)


# ---- conditions ----------------------------------------------------------------------------------------------------------


def test_too_few_rows_are_said_with_the_number_that_would_be_enough():
    result = run(world(0, n=100))
    m, finding = result.measurements[0], result.finding()
    assert m.swing.smallest < 20 == m.swing.needed
    assert result.verdict == "inconclusive" and "20 are enough" in finding.sentence
    assert failed_checks(result.methods[0]) >= {rules.GATE_OPEN}


def test_a_swing_without_a_head_to_compare_with_is_no_call():
    m = run(world(0)).measurements[0]
    lacking = replace(m, swing=replace(m.swing, guard="a label has 3 audit rows with one of the attribute's values"))
    judged = judge((lacking,))
    assert judged.verdict == "inconclusive" and failed_checks(judged) == {rules.NOTHING_TO_GAIN}
    chance = replace(m, swing=replace(m.swing, accuracy=Interval(0.52, 0.49, 0.55)))
    assert "hardly better than chance" in page.sentence(judge((chance,)))


def test_a_swing_that_shuffles_reach_is_no_call():
    m = run(world(0)).measurements[0]
    judged = judge((replace(m, swing=replace(m.swing, p=0.07)),))
    assert judged.verdict == "inconclusive" and failed_checks(judged) == {rules.BEYOND_SHUFFLES_OR_NOTHING}


def test_a_small_swing_that_is_surely_there_is_neither_use_nor_none():
    m = run(world(0)).measurements[0]
    judged = judge((replace(m, swing=replace(m.swing, excess=Interval(0.06, 0.03, 0.09))),))
    assert judged.verdict == "inconclusive" and failed_checks(judged) == {rules.SUBSTANTIAL_OR_NOTHING}


def test_answers_that_follow_what_swings_nothing_stay_open():
    m = run(world(0, "unused")).measurements[0]
    judged = judge((replace(m, pull=Interval(0.2, 0.1, 0.3)),))
    assert judged.verdict == "inconclusive" and failed_checks(judged) == {rules.NOT_FOLLOWED}


def test_readings_that_point_opposite_ways_are_said():
    m = run(world(0)).measurements[0]
    down = Interval(-0.2, -0.3, -0.1)
    judged = judge((replace(m, change=replace(m.change, csr=down)),))
    assert judged.verdict == "shortcut" and "points the other way" in page.sentence(judged)
    assert next(check for check in checks(judged) if check.id == "readings-agree").passed is False


def test_a_constant_network_is_not_called_deletion():
    evidence = world(0, "unused")
    silent = linear_head(np.zeros(D), bias=5.0)
    z = np.random.default_rng(1).normal(size=(1600, D))
    y = np.concatenate([evidence.on("audit").label, evidence.on("test").label])
    constant = evidence_of(y, np.random.default_rng(2).integers(0, 2, 1600), z, silent)
    result = run(constant)
    assert result.measurements[0].counts.outputs == 1
    assert result.verdict == "inconclusive" and result.taxonomy == ""


def test_seeds_are_judged_by_the_mean_of_their_swings():
    members = [run(world(seed, uses=0.5)).measurements[0] for seed in range(3)]
    judged = judge(members)
    assert judged.verdict == "shortcut"
    assert judged.swing.excess.value == pytest.approx(np.mean([m.swing.excess.value for m in members]))


def test_an_unknown_reading_is_refused_with_the_known_ones():
    with pytest.raises(SettingError, match="known: swing, paper"):
        run(world(0), reading="both")
