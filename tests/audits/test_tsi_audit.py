"""TSI: literal twins of the formulas, planted cues outside the object, nulls over seeds, and what is undefined or refused."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from rightreasons import testing
from rightreasons.audits import _overlay, audit, audit_all, tsi
from rightreasons.audits._following import FOLLOWS
from rightreasons.audits.tsi import arrays as names
from rightreasons.audits.tsi import tables
from rightreasons.audits.tsi.compare import compare, coverage_names
from rightreasons.data.cohort import Cohort
from rightreasons.errors import DataError, EvidenceError, NotRun, SettingError
from rightreasons.evidence import Evidence
from rightreasons.families import settings_of
from rightreasons.measurements import load_measurement, save_measurement, scalars
from rightreasons.stats import tokens

GRID = (14, 14)
T = 196
N = 160
INFLUENCE = "maps@token_influence(explain=label)"
DRAWS = 2


# ---- worlds --------------------------------------------------------------------------------------------------------------


def boxes(n=N, seed=0, largest=12):
    """Objects as shares of tokens, (n, 14, 14): one rectangle each, the last row and column always free."""
    rng = np.random.default_rng(seed)
    share = np.zeros((n, *GRID), np.float32)
    for k in range(n):
        h, w = rng.integers(2, largest + 1, 2)
        y, x = rng.integers(0, 13 - h + 1), rng.integers(0, 13 - w + 1)
        share[k, y : y + h, x : x + w] = 1.0
    return share


def influence_of(share, on_cue, seed=0, strength=0.3):
    """Influence on the object, and on one token outside where `on_cue` (n,) says so; a little of it everywhere."""
    rng = np.random.default_rng([7, seed])
    z = np.abs(rng.normal(0, 0.002, share.shape))
    z += (share > 0) * rng.uniform(0.0, 0.1, share.shape)
    z[:, 13, 13] += np.where(on_cue, strength, 0.0)
    return z.astype(np.float32)


def logits_of(label, right, confidence=2.0):
    z = np.zeros((len(label), 2))
    z[np.arange(len(label)), np.where(right, label, 1 - label)] = confidence
    return z


def evidence_of(
    on_cue=None,
    share=None,
    *,
    seed=0,
    name="tested",
    mask=None,
    right=None,
    arrays=None,
    twin=None,
    training=True,
    follows=1.0,
    **columns,
):
    """A model whose influence lies on a token outside where `on_cue`; its answers then follow the cue, and stay right."""
    share = boxes() if share is None else share
    n = len(share)
    rng = np.random.default_rng(5)
    label, cue = rng.integers(0, 2, n), rng.integers(0, 2, n)
    given = {"id": [f"r{i}" for i in range(n)], "label": label, "cue": cue, **columns}
    parts = {k: k for k in ("subject", "image") if k in columns}
    cohorts = {"test": Cohort.from_columns(given, attribute="cue", name="test", **parts)}
    right = np.ones(n, bool) if right is None else right
    followed = 0 if on_cue is None else follows * np.eye(2)[cue]
    whole = {"test": {"logits": logits_of(label, right) + followed}}
    if twin is not None:
        values = {"id": given["id"], "label": label, "cue": twin}
        cohorts["twin"] = Cohort.from_columns(values, attribute="cue", name="twin")
        whole["twin"] = {"logits": logits_of(label, right)}
    train = None
    if training:
        y = np.arange(200) % 2
        train = Cohort.from_columns({"id": [f"t{i}" for i in range(200)], "label": y, "cue": y}, attribute="cue", name="train")
    found = Evidence.from_arrays(cohorts, whole, name=name, training=train)
    found.put("test", INFLUENCE, influence_of(share, np.zeros(n, bool) if on_cue is None else on_cue, seed))
    found.put("test", "tokens@box", share)
    if mask is not None:
        found.put("test", "tokens@mask", mask)
    if twin is not None:
        found.put("twin", INFLUENCE, influence_of(share, np.zeros(n, bool), seed + 100))
    for array, values in (arrays or {}).items():
        found.put("test", array, np.asarray(values, np.float32))
    return found


def labels_of(n=N):
    rng = np.random.default_rng(5)
    return rng.integers(0, 2, n), rng.integers(0, 2, n)


def run(models, B=300, pictures=0, **settings):
    return audit("tsi", models, B=B, pictures=pictures, **settings)


def value(finding, start):
    return next(e for e in finding.estimates if e.name.startswith(start))


def check_of(finding, id):
    return next(c for c in finding.checks if c.id == id)


def exhibit(finding, start):
    return next(e for e in finding.exhibits if e.title.startswith(start))


# ---- literal twins -------------------------------------------------------------------------------------------------------


def literal(z, inside, rectify):
    """Eq. 1 and 2, one image, as they stand."""
    z = [{"positive": max(v, 0.0), "abs": abs(v), "signed": v}[rectify] for v in z]
    b_in = [v for v, i in zip(z, inside) if i]
    b_out = [v for v, i in zip(z, inside) if not i]
    if not b_in or not b_out:
        return math.nan, math.nan
    below = sum(b_in) / len(b_in)
    average = (sum(b_out) / len(b_out)) / below if below > 0 else math.nan
    return average, max(b_out) / max(b_in) if max(b_in) > 0 else math.nan


@pytest.mark.parametrize("rectify", ["positive", "signed", "abs"])
def test_both_scores_are_those_of_equations_1_and_2(rng, rectify):
    z, inside = rng.normal(size=(200, 12)), rng.random((200, 12)) < rng.random((200, 1))
    z[:5] = -np.abs(z[:5])
    expected = np.array([literal(a, b, rectify) for a, b in zip(z, inside)])
    for found, twin in zip(tsi.spuriosity(z, inside, rectify), expected.T, strict=True):
        np.testing.assert_allclose(found, twin, atol=1e-10, rtol=1e-10)
    assert np.isnan(expected).any() and (~np.isnan(expected)).any()


def test_a_grid_is_read_like_a_row_of_tokens_and_one_object_serves_all_images(rng):
    z, inside = rng.random((5, 3, 4)), np.zeros((3, 4), bool)
    inside[1, 1:] = True
    whole = np.broadcast_to(inside, z.shape)
    for one, two in zip(tsi.spuriosity(z, inside), tsi.spuriosity(z.reshape(5, 12), whole.reshape(5, 12)), strict=True):
        np.testing.assert_array_equal(one, two)


def test_tokens_that_were_not_run_leave_the_maximum_and_undo_the_average():
    z = np.array([[0.1, np.nan, 0.4, np.nan]])
    average, maximum = tsi.spuriosity(z, np.array([[True, True, False, False]]))
    assert np.isnan(average[0]) and maximum[0] == pytest.approx(4.0)


def test_undefined_scores_have_their_reason():
    z = np.array([[0.1, 0.2], [0.1, 0.2], [-0.1, 0.2], [0.1, 0.2], [-0.1, -0.2]])
    inside = np.array([[False, False], [True, True], [True, False], [True, False], [True, False]])
    assert tokens.why_undefined(z, inside).tolist() == [1, 2, 3, 0, 3]
    assert np.isnan(tsi.spuriosity(z, inside)[1]).tolist() == [True, True, True, False, True]
    assert tokens.only_outside(z, inside).tolist() == [False, False, True, False, False]
    np.testing.assert_array_equal(tokens.strongest_outside(z, inside), [np.nan, np.nan, 1, 1, 1])


def test_noise_spuriosity_is_equations_3_and_4_of_mean_draws(rng):
    p, core, outside = rng.random(30), rng.random((3, 30)), rng.random((3, 30))
    found, lost_core, lost_outside = tokens.noise_spuriosity(p, core, outside)
    for i in range(30):
        d_core = p[i] - sum(core[k, i] for k in range(3)) / 3
        d_out = p[i] - sum(outside[k, i] for k in range(3)) / 3
        assert lost_core[i] == pytest.approx(d_core, abs=1e-12)
        assert lost_outside[i] == pytest.approx(d_out, abs=1e-12)
        assert found[i] == pytest.approx(d_out / d_core, rel=1e-10) if d_core > 0 else np.isnan(found[i])


def test_coverage_groups_are_quarters_of_what_is_admissible():
    assert tokens.coverage_edges(196).tolist() == [0, 40, 80, 120, 160]
    covered = [-1, 0, 1, 40, 41, 80, 120, 121, 160, 161, 196]
    assert tokens.coverage_group(covered, 196).tolist() == [-1, -1, 0, 0, 1, 1, 2, 3, 3, 4, 4]
    for small in (4, 16, 36, 49, 64, 256):
        edges = tokens.coverage_edges(small)
        assert edges[-1] * 196 <= 160 * small < (edges[-1] + 1) * 196
        assert coverage_names(small)[-1] == f"over {edges[-1]} tokens"


def test_a_core_region_holds_the_largest_tokens(rng):
    maps = rng.random((6, 4, 4))
    for top in (1, 5, 16):
        region = tokens.core_region(maps, top)
        assert (region.sum(axis=1) == top).all()
        for z, chosen in zip(maps.reshape(6, -1), region, strict=True):
            assert sorted(z[chosen]) == sorted(sorted(z)[-top:])
    assert tokens.core_region(np.zeros((1, 5)), 2).tolist() == [[True, True, False, False, False]]


def test_images_above_1_weigh_less_and_classes_keep_their_weight(rng):
    maximum, label = rng.uniform(0, 5, 400), rng.integers(0, 3, 400)
    maximum[:3] = [np.nan, np.inf, 0.0]
    weight = tsi.sample_weights(maximum, label)
    assert weight.mean() == pytest.approx(1.0)
    for c in range(3):
        assert weight[label == c].mean() == pytest.approx(1.0)
        same = np.flatnonzero(label == c)
        inner = same[maximum[same] <= 1]
        assert np.ptp(weight[inner]) < 1e-12
        assert (weight[same[maximum[same] > 2]] < weight[inner[0]]).all()
    plain = tsi.sample_weights(maximum)
    assert plain[0] == plain[2] and plain[1] == pytest.approx(plain.min())
    np.testing.assert_allclose(tsi.sample_weights(maximum, power=0.0), 1.0)


@pytest.mark.parametrize(
    ("call", "error", "what"),
    [
        (lambda: tsi.spuriosity(np.ones((2, 3)), np.ones((2, 3), bool), "squared"), SettingError, "squared"),
        (lambda: tsi.spuriosity(np.ones((2, 3)), np.ones((2, 3))), DataError, "booleans"),
        (lambda: tsi.spuriosity(np.ones((2, 3)), np.ones((2, 4), bool)), DataError, "same tokens"),
        (lambda: tsi.spuriosity(np.ones(3), np.ones(3, bool)), DataError, "first axis images"),
        (lambda: tsi.spuriosity(np.full((1, 2), np.inf), np.array([[True, False]])), DataError, "infinite"),
        (lambda: tokens.core_region(np.ones((1, 4)), 5), SettingError, "1 to 4"),
        (lambda: tsi.sample_weights([]), DataError, "one score per image"),
        (lambda: tsi.sample_weights([1.0], [0, 1]), DataError, "same images"),
        (lambda: tsi.sample_weights([1.0], least=0.0), SettingError, "least"),
    ],
)
def test_bad_input_of_the_formulas_is_refused(call, error, what):
    with pytest.raises(error, match=what):
        call()


def test_no_images_give_no_scores():
    average, maximum = tsi.spuriosity(np.zeros((0, 2, 2)), np.zeros((0, 2, 2), bool))
    assert average.shape == maximum.shape == (0,)


# ---- the verdict ---------------------------------------------------------------------------------------------------------


def test_a_cue_outside_the_object_is_a_shortcut_against_a_balanced_model(rng):
    result = run({"test": evidence_of(rng.random(N) < 0.7), "baseline": evidence_of(seed=1, name="balanced")})
    finding = result.finding()
    assert finding.verdict == "shortcut"
    assert finding.row == "place" and finding.attribute == ""
    assert "a cue outside the object" in finding.sentence
    first = finding.estimates[0]
    assert 0.5 < first.low < first.value < first.high < 0.85
    assert first.p < 0.01
    assert {e.name for e in finding.estimates if e.group == "By size of the object"}
    bars = exhibit(finding, "How often a token outside")
    assert set(bars.series) == {"tested", "balanced model", "chance line"}
    assert bars.reference is None


def test_looking_outside_without_answers_that_follow_an_attribute_is_no_shortcut(rng):
    on_cue, balanced = rng.random(N) < 0.7, evidence_of(seed=1)
    unused = run({"test": evidence_of(on_cue, follows=0.0), "baseline": balanced}).finding()
    check = next(c for c in unused.checks if c.name == FOLLOWS)
    assert (unused.verdict, check.passed, check.decides) == ("inconclusive", False, True)
    assert "follow no attribute that is known" in unused.sentence and "“cue”" in unused.sentence
    unknown = run({"test": evidence_of(on_cue, follows=0.0, training=False), "baseline": balanced}).finding()
    check = next(c for c in unknown.checks if c.name == FOLLOWS)
    assert (unknown.verdict, check.passed) == ("shortcut", None) and "training rows unknown" in check.note
    quiet = run({"test": evidence_of(), "baseline": balanced}).finding()  # it turns no evidence into nothing else
    assert quiet.verdict == "no evidence"
    assert run(evidence_of(on_cue, follows=0.0)).verdict == "shortcut"  # a tolerance knows of no attribute


def test_a_balanced_model_shows_no_evidence(rng):
    few = rng.random(N) < 0.03
    finding = run({"test": evidence_of(few), "baseline": evidence_of(seed=1)}).finding()
    assert finding.verdict == "no evidence"
    reverse = run({"test": evidence_of(), "baseline": evidence_of(rng.random(N) < 0.7)}).finding()
    assert reverse.verdict == "no evidence" and "fewer" in reverse.sentence


def test_the_chance_line_is_the_share_of_tokens_outside_and_decides_nothing(rng):
    result = run({"test": evidence_of(rng.random(N) < 0.6), "baseline": evidence_of(seed=1)})
    c, m = result.comparison, result.test[0]
    usable = m.admissible & ~np.isnan(m.maximum)
    assert c.overall.chance == pytest.approx(1 - m.images.covered[usable].mean() / T)
    assert c.overall.share.value < c.overall.chance and result.verdict == "shortcut"


def test_without_anything_to_compare_with_a_tolerance_decides_where_it_was_calibrated(rng):
    models = evidence_of(rng.random(N) < 0.6)
    finding = run(models).finding()
    assert finding.verdict == "shortcut" and "25% that models without such a cue stay below" in finding.sentence
    assert exhibit(finding, "How often").reference_label == "tolerance"
    assert run(evidence_of()).finding().verdict == "no evidence"
    share = run(models).comparison.overall.share.value
    near = run(models, tolerance=share).finding()
    assert near.verdict == "inconclusive" and "neither clearly above nor below" in near.sentence
    other = run(models, rectify="abs").finding()  # another measure of influence
    assert other.verdict == "inconclusive" and "uncalibrated" in other.sentence
    assert any("uncalibrated" in check.note and check.decides for check in other.checks)
    assert run(models, rectify="abs", tolerance=0.3).finding().verdict == "shortcut"


def test_clean_twins_on_the_same_images_can_be_compared_with(rng):
    label, cue = labels_of()
    on_cue = (cue == label) & (rng.random(N) < 0.9)
    gone = [""] * N
    for twin in (gone, 1 - cue):
        result = run(evidence_of(on_cue, twin=twin))
        assert result.comparison.against == "twins" and result.verdict == "shortcut"
        assert result.comparison.overall.images <= (cue == label).sum()  # only images whose cue agrees can fall
    assert run(evidence_of(twin=gone)).verdict == "no evidence"
    nothing_known = run(evidence_of(on_cue, twin=1 - cue, training=False))
    assert nothing_known.comparison.against == "" and "stand for a label" in nothing_known.test[0].twins.reason
    cleaned = run(evidence_of(on_cue, twin=gone, training=False))
    assert cleaned.comparison.against == "twins" and cleaned.verdict == "shortcut"
    with pytest.raises(NotRun, match="no twins"):
        run(evidence_of(on_cue), against="twins")
    with pytest.raises(NotRun, match="baseline"):
        run(evidence_of(on_cue), against="baseline")


@pytest.mark.parametrize("subjects", [False, True])
def test_false_alarms_stay_near_the_nominal_level(subjects):
    """Two models that lean outwards equally often, each on images (with subjects: on whole subjects) of its own."""
    who = np.repeat(np.arange(50), 3) if subjects else np.arange(150)
    columns = {"subject": [f"s{w}" for w in who]} if subjects else {}
    m = run(evidence_of(share=boxes(150, largest=12), **columns)).test[0]
    alarms, worlds = 0, 300
    for seed in range(worlds):
        rng = np.random.default_rng([11, seed])
        pair = []
        for _ in range(2):
            maximum = np.where(rng.random(who.max() + 1)[who] < 0.4, 2.0, 0.5)
            pair.append(replace(m, scores=replace(m.scores, maximum=maximum)))
        found = compare(pair[:1], pair[1:], "baseline", rng=rng, B=400, level=0.95)
        alarms += bool(found.significant(0.0))
    # One-sided 2.5 %; 6 % of 300 would have a probability below 0.1 %.
    assert alarms / worlds < 0.06


def test_subjects_are_drawn_as_a_whole(rng):
    on_cue = np.repeat(rng.random(20) < 0.5, 8)
    rows = {"subject": np.repeat([f"s{i}" for i in range(20)], 8)}
    whole = run({"test": evidence_of(on_cue, **rows), "baseline": evidence_of(seed=1, **rows)})
    alone = run({"test": evidence_of(on_cue), "baseline": evidence_of(seed=1)})
    width = [i.high - i.low for i in (whole.comparison.overall.difference, alone.comparison.overall.difference)]
    assert width[0] > 1.8 * width[1]
    finding = whole.finding()
    assert finding.n_rows == N and finding.n_subjects == 20
    assert finding.verdict == "inconclusive"  # 20 subjects are too few
    assert "only 20 can be judged" in finding.sentence


def test_several_balanced_seeds_tell_how_much_seeds_differ(rng):
    def noisy(share, seed):
        return evidence_of(rng.random(N) < share, seed=seed, name=f"balanced-{seed}")

    scattered = [noisy(share, k) for k, share in enumerate((0.02, 0.45, 0.1))]
    result = run({"test": evidence_of(rng.random(N) < 0.45), "baseline": scattered})
    assert result.comparison.above_seeds is False and result.verdict == "inconclusive"
    assert "balanced models differ" in result.finding().sentence
    steady = [noisy(0.05, k) for k in range(4)]
    assert run({"test": evidence_of(rng.random(N) < 0.45), "baseline": steady}).verdict == "shortcut"
    one = run({"test": evidence_of(rng.random(N) < 0.45), "baseline": steady[:1]}).finding()
    assert check_of(one, "above-seeds").passed is None


def test_a_region_that_nobody_drew_only_describes(rng):
    attention = boxes() + 0.01 * rng.random((N, *GRID))
    models = evidence_of(rng.random(N) < 0.9, arrays={"maps@attention": attention, "tokens@fov": boxes()})
    for region in ("attention", "fov"):
        finding = run(models, region=region).finding()
        assert finding.verdict is None and "This describes" in finding.sentence
    assert run(models, region="attention", top=7).test[0].images.covered.tolist() == [7] * N


def test_other_rows_than_test_only_describe_and_give_weights_for_training(rng):
    share = boxes(60)
    label = np.arange(60) % 2
    cohort = Cohort.from_columns({"id": [f"t{i}" for i in range(60)], "label": label}, name="train")
    models = Evidence.from_arrays({"train": cohort, "test": cohort}, {k: {"logits": np.eye(2)[label]} for k in ("train", "test")})
    models.put("train", INFLUENCE, influence_of(share, label == 1))
    models.put("train", "tokens@box", share)
    result = run(models, cohort="train")
    assert result.finding().verdict is None and result.finding().cohort == "train"
    weight = tsi.sample_weights(result.test[0].maximum)
    assert weight.shape == (60,) and weight[label == 1].mean() < 0.6 * weight[label == 0].mean()


# ---- groups and tables ---------------------------------------------------------------------------------------------------


def test_large_objects_are_their_own_group_and_leave_every_mean():
    share = boxes()
    share[:20] = 1.0
    share[:20, 13, 13] = 0.0
    on_cue = np.zeros(N, bool)
    on_cue[:20] = True
    result = run(evidence_of(on_cue, share))
    m = result.test[0]
    assert (tokens.coverage_group(m.images.covered[:20], T) == 4).all()
    assert m.means.above.value == 0.0 and m.means.above.high > 0
    rows = {(r.images, r.group): r.summary for r in tables.by_coverage(result.panel) if r.metric == "M-TSI"}
    assert rows["all images", "over 160 tokens"].n == 20
    assert rows["all images", "all sizes"].n == N - 20
    assert result.problems["problem"].value_counts()["covers nearly the whole image"] == 20


def test_group_means_are_those_of_a_plain_loop(rng):
    right = rng.random(N) < 0.6
    other = rng.random(N) < 0.8
    models = [evidence_of(rng.random(N) < 0.4, right=right), evidence_of(seed=3, right=other, name="second")]
    result = run({"test": models[0], "panel": models[1:]})
    both = list(result.panel.models)
    assert result.panel.names == ("tested", "second")
    edges = [0, 40, 80, 120, 160, 196]
    for row in tables.by_coverage(result.panel):
        subset, size, summary = row.images, row.group, row.summary
        m = both[result.panel.names.index(row.model)]
        scores = m.maximum if row.metric == "M-TSI" else m.average
        chosen = []
        for i in range(N):
            correct = both[0].images.right[i] == 1 and both[1].images.right[i] == 1
            if (subset.startswith("right") and not correct) or (subset.startswith("wrong") and correct):
                continue
            covered = m.images.covered[i]
            quarter = next(k for k in range(5) if edges[k] < covered <= edges[k + 1])
            wanted = (size == "all sizes" and quarter < 4) or size == coverage_names(T)[quarter]
            if wanted and not math.isnan(scores[i]):
                chosen.append(scores[i])
        assert summary.n == len(chosen)
        if len(chosen) > 1:
            assert summary.mean == pytest.approx(np.mean(chosen), abs=1e-10)
            assert summary.sd == pytest.approx(np.std(chosen, ddof=1), abs=1e-10)
            assert summary.median == pytest.approx(np.median(chosen), abs=1e-10)
    table = exhibit(result.finding(), "TSI by correctness")
    assert "second: mean" in table.columns and len(table.rows) == 2 * 3 * 6


def test_confidence_falls_into_fixed_bins():
    highest = np.array([0.24, 0.26, 0.51, 1 - 4e-9])
    logits = np.log(np.stack([highest, *((1 - highest) / 4 for _ in range(4))], axis=1))
    cohort = Cohort.from_columns({"id": list("abcd"), "label": [0, 1, 2, 3]}, name="test")
    models = Evidence.from_arrays(cohort, {"logits": logits, "tokens@box": boxes(4)}, classes=[0, 1, 2, 3, 4])
    models.put("test", INFLUENCE, influence_of(boxes(4), np.zeros(4)))
    result = run(models)
    rows = [r for r in tables.by_confidence(result.panel) if r.metric == "M-TSI" and r.images == "all images"]
    counts = {row.group: row.summary.n for row in rows}
    assert list(counts.values()) == [1, 1, 1, 1]
    assert list(counts) == ["0%–25%", "25%–50%", "50%–75%", "75%–100%"]


def test_classes_are_ranked_and_recurring_ones_are_counted(rng):
    label, _ = labels_of()
    on_cue = label == 1
    models = {"test": evidence_of(on_cue), "panel": [evidence_of(on_cue, seed=4, name="other")]}
    result = run(models)
    table = result.classes
    first = table[(table["images"] == "all images") & (table["rank"] == 1)]
    assert set(first["class"]) == {"1"} and set(first["recurs"]) == {2}
    assert first["n"].tolist() == [int((on_cue & result.test[0].admissible).sum())] * 2
    m = result.test[0]
    rows = (m.label == 1) & m.admissible
    assert first["M-TSI"].iloc[0] == pytest.approx(m.maximum[rows].mean(), abs=1e-10)
    assert exhibit(result.finding(), "TSI of every class").rows
    assert table.to_csv().startswith(",class,images,model,n,M-TSI")


def test_agreeing_and_conflicting_images_are_shown_apart(rng):
    label, cue = labels_of()
    result = run({"test": evidence_of(label == cue), "baseline": evidence_of(seed=1)})
    finding = result.finding()
    assert value(finding, "cue agrees: above 1").value > 0.95
    assert value(finding, "cue conflicts: above 1").value < 0.05
    assert "cue = 0 → 0" in exhibit(finding, "Where the cue agrees").caption


def test_annotation_problems_are_listed():
    share = boxes()
    share[0], share[1], share[2] = 0.0, 0.0, np.nan
    share[1, 3, 3] = 0.2
    result = run(evidence_of(share=share))
    listed = {r["id"]: r["problem"] for _, r in result.problems.iterrows()}
    assert listed["r0"] == "lies outside the crop"
    assert listed["r1"] == "covers 1 token at most"
    assert listed["r2"] == "has no annotation"
    assert result.test[0].images.covered[[0, 1, 2]].tolist() == [0, 1, -1]
    assert run(evidence_of(share=share), least_share=0.5).test[0].images.covered[1] == 0


def test_the_mask_is_compared_with_the_box(rng):
    share = boxes()
    mask = share * (rng.random(share.shape) < 0.7)
    result = run(evidence_of(share=share, mask=mask))
    m = result.test[0]
    assert (m.influence.region, m.other.name) == ("box", "mask")
    expected = tsi.spuriosity(influence_of(share, np.zeros(N)), mask > 0)
    np.testing.assert_allclose(m.other.scores.maximum, expected[1], atol=1e-10)
    change = value(result.finding(), "M-TSI, mask minus box")
    assert change.value > 0  # a tighter annotation leaves strong tokens outside
    assert exhibit(result.finding(), "The mask instead of the box")
    swapped = run(evidence_of(share=share, mask=mask), region="mask").test[0]
    assert (swapped.influence.region, swapped.other.name) == ("mask", "box")
    nan = np.full_like(share, np.nan)
    assert run(evidence_of(share=nan, mask=mask)).test[0].influence.region == "mask"


# ---- extras --------------------------------------------------------------------------------------------------------------


def everything(rng, on_cue):
    """Arrays of all extras: Grad-CAM is blind, noise and kept tokens tell what the influence tells."""
    label, _ = labels_of()
    rows = np.arange(N)

    def lose(amount):
        p = np.full((N, 2), 0.0)
        p[rows, label] = np.clip(1 / (1 + np.exp(-2)) - amount, 0.01, 0.99)
        p[rows, 1 - label] = 1 - p[rows, label]
        return np.log(p)

    attention = influence_of(boxes(), on_cue) + 0.01 * rng.random((N, *GRID))
    found = {
        "maps@attention": attention,
        "maps@rollout": attention**2,
        "maps@gradcam(explain=label)": rng.normal(size=(N, *GRID)),
    }
    for k, top in enumerate(names.DELETED):
        found[f"logits@drop(explain=label,map=token_influence,top={top})"] = lose(0.05 * (k + 1) + 0.01 * rng.random(N))
        found[f"logits@drop(explain=label,map=gradcam,top={top})"] = lose(0.02 * (k + 1) + 0.01 * rng.random(N))
        found[f"logits@drop(draw=0,map=random,top={top})"] = lose(0.005 * rng.random(N))
    for draw in range(DRAWS):
        found[f"logits@noise(by=box,draw={draw},region=inside,sd=0.25)"] = lose(np.where(on_cue, 0.05, 0.2))
        found[f"logits@noise(by=box,draw={draw},region=outside,sd=0.25)"] = lose(np.where(on_cue, 0.2, 0.05))
    found["logits@keep(by=box,region=inside)"] = logits_of(label, ~on_cue)
    outside = logits_of(label, on_cue)
    outside[0] = np.nan
    found["logits@keep(by=box,region=outside)"] = outside
    for k, fill in enumerate(("zero", "mean", "blur")):
        found[f"logits@fill(draw=0,fill={fill},map=random,top=20)"] = logits_of(label, rng.random(N) < 0.5 + 0.1 * k)
    return found


def test_every_array_that_is_asked_for_is_used(rng):
    on_cue = rng.random(N) < 0.5
    arrays = everything(rng, on_cue)
    asked = {n.array for n in tsi.needs(extras=("all",), draws=DRAWS) if n.role == "test" and n.cohort == "test"}
    assert set(arrays) | {"logits", INFLUENCE, "tokens@box", "tokens@mask"} == asked
    assert all(n.optional for n in tsi.needs(extras=("all",)) if n.array in arrays)
    models = evidence_of(on_cue, arrays=arrays, follows=0.0)
    result = run(models, extras=("all",), draws=DRAWS)
    m, finding = result.test[0], result.finding()
    assert m.extras.notes == ()
    assert m.extras.substitutes.name == ("attention", "rollout", "gradcam")
    assert m.extras.deletion.by == ("token_influence", "gradcam", "random") and m.extras.noise.draws == DRAWS
    p = 1 / (1 + np.exp(-2))
    assert m.extras.noise.index[on_cue] == pytest.approx(np.full(on_cue.sum(), 4.0), rel=1e-4)
    assert m.images.probability == pytest.approx(np.full(N, p))

    curves = exhibit(finding, "Probability lost")
    assert all(a > b for a, b in zip(curves.series["token influence"].y, curves.series["gradcam"].y, strict=True))
    assert value(finding, "influence over gradcam, top 20").low > 0
    kept = exhibit(finding, "What the object alone").series["accuracy"]
    assert kept[0] == 1.0 and kept[1] == pytest.approx((~on_cue)[m.admissible].mean())
    assert np.isnan(m.extras.kept.outside[0])
    missing = exhibit(finding, "Is a missing patch")
    assert [row[0] for row in missing.rows] == ["dropped", "filled (zero)", "filled (mean)", "filled (blur)"]
    assert missing.rows[0][1].value == 1.0
    table = exhibit(finding, "Do tokens and noise agree")
    assert table.rows[0][2] > 0.95
    instead = {tuple(row[:3]): row[4] for row in exhibit(finding, "Cheaper maps").rows}
    assert instead["attention as the map", "M-TSI", "all images"] > 0.8
    assert abs(instead["gradcam as the map", "M-TSI", "all images"]) < 0.4
    assert ("top 80 by attention as the object", "A-TSI", "right") in instead
    assert exhibit(finding, "Tokens left out against noise").group


def test_what_was_asked_for_and_is_not_there_is_said(rng):
    result = run(evidence_of(), extras=["deletion", "noise"])
    assert any("no deletion curve of gradcam" in note for note in result.test[0].extras.notes)
    assert any("noise spuriousity" in note for note in result.test[0].extras.notes)
    assert not any("attention" in note for note in result.test[0].extras.notes)  # substitutes were not asked for
    checks = [c for c in result.finding().checks if c.id == "extracted"]
    assert len(checks) == 4 and all(c.passed is None for c in checks)
    assert run(evidence_of()).test[0].extras.notes == ()


def test_correlations_are_those_of_numpy(rng):
    a, b = rng.normal(size=50), rng.normal(size=50)
    a[:4] = np.nan
    found = tables.correlation(a, b)
    assert found.n == 46 and found.pearson == pytest.approx(np.corrcoef(a[4:], b[4:])[0, 1], abs=1e-10)
    ranks = [np.argsort(np.argsort(v[4:])) for v in (a, b)]
    assert found.spearman == pytest.approx(np.corrcoef(*ranks)[0, 1], abs=1e-10)
    assert np.isnan(tables.correlation(a[:5], b[:5]).pearson)


def test_the_default_needs_are_light():
    mine = {n.array for n in tsi.needs() if n.role == "test" and n.cohort == "test"}
    assert mine == {"logits", INFLUENCE, "tokens@box", "tokens@mask"}
    patched = {n.array for n in tsi.needs(maps="token_influence(by=occlusion,patch=8)", region="box")}
    assert "tokens@box(patch=8)" in patched and "maps@token_influence(by=occlusion,explain=label,patch=8)" in patched
    assert [role.name for role in tsi.roles()] == ["baseline"] and tsi.roles(against="twins") == ()
    assert "attribute" not in settings_of(tsi.measure)  # one finding a case, whatever the attributes


def test_influence_on_the_predicted_class_and_other_arrays_can_be_used(rng):
    models = evidence_of(right=rng.random(N) < 0.5)
    models.put("test", "maps@token_influence(explain=predicted)", influence_of(boxes(), np.ones(N)))
    screened = influence_of(boxes(), np.zeros(N))
    screened[:, :2] = np.nan
    models.put("test", "screened@token_influence(explain=label,keep=24,region=box)", screened)
    m = run(models, explain="predicted").test[0]
    assert m.means.above.value > 0.95
    assert m.images.probability == pytest.approx(m.images.confidence)
    m = run(models, maps="screened@token_influence(keep=24,region=box)").test[0]
    assert np.isnan(m.average).all() and (~np.isnan(m.maximum)).any()


# ---- undefined and refused -----------------------------------------------------------------------------------------------


def test_undefined_images_are_counted_and_too_many_of_them_decide_nothing(rng):
    share = boxes()
    z = influence_of(share, np.ones(N))
    z[: N // 4][share[: N // 4] > 0] = -0.1
    models = evidence_of(share=share)
    models = Evidence.from_arrays(models.on("test").cohort, {"logits": models["logits"], "tokens@box": share, INFLUENCE: z})
    result = run({"test": models, "baseline": evidence_of(seed=1)})
    m = result.test[0]
    assert np.isnan(m.maximum[: N // 4]).all() and m.support.only_outside[: N // 4].all()
    assert result.comparison.undefined == m.admissible[: N // 4].sum() > 0
    assert result.verdict == "shortcut"
    check = check_of(result.finding(), "enough-defined")
    assert "only tokens outside support the class" in check.note
    z[share > 0] = -0.1
    models = Evidence.from_arrays(models.on("test").cohort, {"logits": models["logits"], "tokens@box": share, INFLUENCE: z})
    finding = run({"test": models, "baseline": evidence_of(seed=1)}).finding()
    assert finding.verdict == "inconclusive"
    assert value(finding, "images with M-TSI > 1").value is None and finding.estimates[0].reason


def test_flat_influence_is_told_from_rounding():
    models = evidence_of()
    z = 1e-8 * influence_of(boxes(), np.ones(N))
    flat = Evidence.from_arrays(models.on("test").cohort, {"logits": models["logits"], "tokens@box": boxes(), INFLUENCE: z})
    finding = run(flat).finding()
    assert check_of(finding, "above-rounding").passed is False


def test_what_cannot_run_says_why(rng):
    bare = testing.synthetic_evidence()
    with pytest.raises(NotRun, match="by=occlusion"):
        run(bare)
    found = audit_all(bare, audits=["tsi"])
    assert len(found) == 1 and "extract it" in found[0].not_run
    nowhere = evidence_of()
    with pytest.raises(NotRun, match="nothing says where the object is"):
        run(evidence_of(share=np.full((N, *GRID), np.nan)))
    with pytest.raises(EvidenceError, match="tokens@mask"):
        run(nowhere, region="mask")
    nowhere.put("test", "tokens@mask", np.ones((N, 7, 7), np.float32))
    with pytest.raises(EvidenceError, match="grid of"):
        run(nowhere, region="mask")
    other = Cohort.from_columns({"id": ["x"], "label": [0], "cue": [1]}, attribute="cue", name="test")
    alone = Evidence.from_arrays(
        other, {"logits": [[0, 1]], "tokens@box": boxes(1), INFLUENCE: influence_of(boxes(1), [1])}, classes=[0, 1]
    )
    with pytest.raises(NotRun, match="different images"):
        run({"test": evidence_of(), "baseline": alone})


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"region": "boxes"}, "box"),
        ({"explain": "truth"}, "label"),
        ({"extras": ["delete"]}, "deletion"),
        ({"rectify": "square"}, "positive"),
        ({"draws": 0}, "at least one draw"),
        ({"least_share": 2.0}, "share of a token"),
        ({"pictures": 99}, "0 to 60"),
        ({"against": "nobody"}, "baseline"),
        ({"no_such": 1}, "no_such"),
    ],
)
def test_a_bad_setting_is_refused(settings, what):
    with pytest.raises(SettingError, match=what):
        run(evidence_of(), **settings)


# ---- pictures and files --------------------------------------------------------------------------------------------------


def test_the_gallery_shows_the_highest_first_with_object_and_influence(tmp_path, rng):
    paths = []
    for k in range(40):
        paths.append(str(tmp_path / f"{k}.png"))
        Image.fromarray(np.full((28, 28, 3), 128, np.uint8)).save(paths[-1])
    share = boxes(40)
    models = evidence_of(np.arange(40) % 2 == 0, share, image=paths)
    result = run(models, pictures=10)
    gallery = exhibit(result.finding(), "Where the influence lies")
    assert len(gallery.items) == 10 and gallery.sort == "M-TSI"
    shown = [item.values["M-TSI"] for item in gallery.items]
    assert shown == sorted(shown, reverse=True) and shown[0] == pytest.approx(np.nanmax(result.test[0].maximum), rel=1e-6)
    assert min(shown) < 1 < max(shown)
    assert "decided" in gallery.items[0].caption
    (tmp_path / "0.png").unlink()
    assert "0.png" in run(models, pictures=40).test[0].pictures.reason


def test_an_overlay_has_the_object_outlined_and_the_strongest_token_warm():
    z, inside = np.zeros((4, 4)), np.zeros((4, 4), bool)
    z[0, 0], z[3, 3], inside[1:3, 1:3] = 1.0, -0.5, True
    picture = _overlay.overlay(np.full((64, 64, 3), 100, np.uint8), z, inside)
    assert picture[5, 5, 0] > 200 > picture[5, 5, 2]
    assert picture[60, 60, 2] > picture[60, 60, 0]
    assert picture[16, 20].tolist() == [0, 230, 60] and picture[31, 31].tolist() == [100, 100, 100]
    assert picture[40, 8].tolist() == [100, 100, 100]


def test_a_measurement_survives_its_file(tmp_path, rng):
    on_cue = rng.random(N) < 0.5
    models = evidence_of(on_cue, arrays=everything(rng, on_cue), subject=[f"s{i % 50}" for i in range(N)])
    m = run(models, extras=("all",), draws=DRAWS).test[0]
    again = load_measurement(tsi.Measurement, save_measurement(m, tmp_path / "m.npz"))
    np.testing.assert_array_equal(again.maximum, m.maximum)
    assert again.means == m.means and again.extras.deletion.by == m.extras.deletion.by
    assert again.images.id.tolist() == m.images.id.tolist()
    columns = scalars(m)
    assert {"share_above_1", "share_above_1_low", "mean_M_TSI", "median_NSI", "accuracy_inside_alone"} <= set(columns)
    results = [tsi.conclude({"test": [one]}, rng=np.random.default_rng(0), B=50).comparison.overall for one in (m, again)]
    assert results[0].share == results[1].share


def test_the_columns_of_a_studys_table_stay_as_they_are():
    on_cue = np.random.default_rng(1).random(N) < 0.5
    models = evidence_of(on_cue, arrays=everything(np.random.default_rng(2), on_cue))
    m = tsi.measure(models, rng=np.random.default_rng(0), extras=("all",), draws=DRAWS, B=50, pictures=0)
    columns = scalars(m)
    assert columns.pop("region") == "box"
    expected = {
        "tokens": 196,
        "n": 160,
        "share_above_1": 0.4875,
        "share_above_1_low": 0.39171875,
        "share_above_1_high": 0.5423437499999999,
        "mean_M_TSI": 1.5279043802398873,
        "mean_M_TSI_low": 1.241231103665598,
        "mean_M_TSI_high": 1.6902110391805638,
        "mean_A_TSI": 0.052548437928201575,
        "mean_A_TSI_low": 0.048142561047497805,
        "mean_A_TSI_high": 0.05530559909446222,
        "median_NSI": 0.4480770600618212,
        "accuracy_inside_alone": 0.5125,
        "accuracy_outside_alone": 0.49056603773584906,
    }
    assert list(columns) == list(expected)
    assert columns == pytest.approx(expected, rel=1e-9)


def test_the_contract_is_kept(monkeypatch):
    original = testing.synthetic_evidence

    def with_objects(*args, **settings):
        found = (
            original(*args, **{**settings, "maps": ()})
            if "maps" in original.__code__.co_varnames
            else original(*args, **settings)
        )
        rng = np.random.default_rng(settings.get("seed", 0))
        for cohort in ("test", "twin"):
            n = len(found.on(cohort))
            found.put(cohort, INFLUENCE, rng.normal(size=(n, 6, 6)).astype(np.float32))
            found.put(cohort, "tokens@box", (rng.random((n, 6, 6)) > 0.7).astype(np.float32))
        return found

    monkeypatch.setattr(testing, "synthetic_evidence", with_objects)
    finding = testing.check_audit("tsi", B=200)
    assert finding.verdict in ("shortcut", "no evidence", "inconclusive") and finding.sentence
