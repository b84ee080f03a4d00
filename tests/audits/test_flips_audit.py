"""Flips: a change in the cue's direction is a shortcut, noise and the other direction are not, and few twins decide nothing."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from rightreasons.audits import audit, audit_all
from rightreasons.data.cohort import Cohort
from rightreasons.errors import NotRun, SettingError
from rightreasons.evidence import Evidence

N = 120
LEVELS = np.array(["f", "m"])


def rows(n=N, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 2, n), rng.integers(0, 2, n)


def cohort_of(y, cue, name="test", ids=None, **columns) -> Cohort:
    given = {"id": [f"r{i}" for i in range(len(y))] if ids is None else ids, "label": list(y), "cue": list(cue), **columns}
    return Cohort.from_columns(given, attribute="cue", name=name, **{k: k for k in ("subject", "case") if k in columns})


def evidence_of(y, a, z, z_twin, *, training="aligned", twin_cue=None, used=(), **columns) -> Evidence:
    """Test rows with attribute codes `a`, twins with the other one; one logit each."""
    cohorts = {
        "test": cohort_of(y, LEVELS[a], **columns),
        "twin": cohort_of(y, LEVELS[1 - a] if twin_cue is None else twin_cue, "twin", **columns),
    }
    train = None
    if training:
        ty = np.arange(200) % 2
        train = cohort_of(ty, LEVELS[ty if training == "aligned" else 1 - ty], "train", ids=[f"t{i}" for i in range(200)])
    return Evidence.from_arrays(cohorts, {"test": {"logits": z}, "twin": {"logits": z_twin}}, training=train, used=used)


def run(evidence, B=300, **settings):
    return audit("flips", evidence, B=B, **settings)


def value(finding, start):
    return next(e for e in finding.estimates if e.name.startswith(start))


# ---- meaning -------------------------------------------------------------------------------------------------------------


def test_a_model_that_ignores_the_cue_shows_no_evidence(rng):
    y, a = rows()
    z = 2.0 * y - 1 + rng.normal(size=N)
    finding = run(evidence_of(y, a, z, z)).finding()
    assert finding.verdict == "no evidence"
    assert value(finding, "mean change").value == pytest.approx(0)
    assert value(finding, "decisions that flip").value == 0
    assert finding.row == "reliance" and "not beyond the tolerance of 0.02" in finding.sentence


def test_a_model_that_uses_the_cue_is_a_shortcut_of_the_right_size(rng):
    y, a = rows()
    base = 0.5 * (2 * y - 1) + rng.normal(size=N)
    z, z_twin = base + 1.5 * (2 * a - 1), base + 1.5 * (1 - 2 * a)
    finding = run(evidence_of(y, a, z, z_twin)).finding()
    p, q = expit(z), expit(z_twin)
    towards = np.where(1 - a == 1, q - p, p - q)  # the twin's cue stands for label 1 - a
    flip = (z > 0) != (z_twin > 0)
    assert finding.verdict == "shortcut"
    assert value(finding, "mean change of probability towards").value == pytest.approx(towards.mean())
    assert value(finding, "mean absolute").value == pytest.approx(np.abs(q - p).mean())
    assert value(finding, "decisions that flip").value == pytest.approx(flip.mean())
    assert value(finding, "decisions that flip to").value == pytest.approx((flip & ((z_twin > 0) == 1 - a)).mean())
    mean = value(finding, "mean change")
    assert mean.low < mean.value < mean.high
    assert mean.high - mean.low == pytest.approx(2 * 1.96 * towards.std() / np.sqrt(N), rel=0.2)
    assert "the model relies on it" in finding.sentence


def test_a_model_that_moves_away_from_the_aligned_label_is_not_called_a_shortcut(rng):
    y, a = rows()
    base = rng.normal(size=N)
    finding = run(evidence_of(y, a, base + 1.5 * (2 * a - 1), base + 1.5 * (1 - 2 * a), training="against")).finding()
    assert finding.verdict == "no evidence"
    assert value(finding, "mean change").high < -0.02
    assert value(finding, "mean absolute").value > 0.2
    assert "moves against the cue" in finding.sentence


def test_the_direction_follows_the_alignment_that_is_given(rng):
    y, a = rows()
    base = rng.normal(size=N)
    evidence = evidence_of(y, a, base + 2 * a, base + 2 * (1 - a), training=None)
    with_cue, against = (run(evidence, aligned=pi).finding() for pi in ({"f": 0, "m": 1}, {"f": 1, "m": 0}))
    assert (with_cue.verdict, against.verdict) == ("shortcut", "no evidence")
    assert value(with_cue, "mean change").value == pytest.approx(-value(against, "mean change").value)


def test_without_an_alignment_the_part_that_goes_one_way_counts(rng):
    y, a = rows()
    base = rng.normal(size=N)
    evidence = evidence_of(y, a, base + 1.5 * a, base + 1.5 * (1 - a), training=None)
    finding = run(evidence).finding()
    change = np.abs(expit(base + 1.5 * a) - expit(base + 1.5 * (1 - a)))
    assert finding.verdict == "shortcut" and finding.standing == "intervention"
    assert finding.estimates[0].name == "change that goes one way"
    assert finding.estimates[0].value == pytest.approx(change.mean())  # all of it: the cue draws
    assert value(finding, "fragility").value == pytest.approx(0, abs=1e-12)
    check = next(c for c in finding.checks if "stands for a label" in c.name)
    assert check.passed is None and "the part of the change that goes one way is used" in check.note
    assert "one way by" in finding.sentence and "(label = 1 with cue = m)" in finding.sentence


def test_a_cue_that_disturbs_and_draws_nowhere_is_fragility_and_no_shortcut():
    y, a = rows(400)
    base = np.random.default_rng(1).normal(size=400)
    push = np.where(np.arange(400) % 2, 1.5, -1.5)  # with the same cue up in one image and down in the next
    finding = run(evidence_of(y, a, base, base + push, training=None)).finding()
    assert finding.verdict == "no evidence" and abs(finding.estimates[0].value) < 0.05
    assert value(finding, "mean absolute").low > 0.1 and value(finding, "fragility").low > 0.1
    assert "Answers are also fragile" in finding.sentence
    aligned = run(evidence_of(y, a, base, base + push)).finding()
    assert value(aligned, "fragility").low > 0.1 and aligned.verdict == "no evidence"


@pytest.mark.parametrize("shift, verdict", [(0.15, "no evidence"), (0.45, "inconclusive"), (2.0, "shortcut")])
def test_what_goes_one_way_must_reach_a_tenth_and_surely_be_something(shift, verdict):
    y, a = rows(200)
    rng = np.random.default_rng(5)
    base = rng.normal(size=200)
    noise = 1.0 * rng.normal(size=200)
    finding = run(evidence_of(y, a, base + shift * a, base + noise + shift * (1 - a), training=None)).finding()
    assert finding.verdict == verdict, finding.sentence
    check = next(c for c in finding.checks if c.id == "power")
    assert check.decides and check.passed is (verdict != "inconclusive")


def test_the_direction_is_learnt_on_the_other_half_by_subject():
    """One subject with many images cannot teach the direction that its own images are judged by."""
    n = 200
    y, a = rows(n)
    subject = np.array(["many"] * 100 + [f"s{i}" for i in range(100)])
    push = np.where(subject == "many", 2.0, 0.0) * (1 - 2 * a)  # only one subject is drawn
    m = run(evidence_of(y, a, np.zeros(n), push, training=None, subject=subject)).measurements[0]
    literal = np.abs(expit(push) - 0.5)
    assert abs(m.change[:100]).mean() == pytest.approx(literal[:100].mean()) and (m.change[100:] == 0).all()
    assert m.mean.low <= 0 and run(evidence_of(y, a, np.zeros(n), push, training=None, subject=subject)).verdict != "shortcut"


def test_of_four_values_every_step_has_a_direction_of_its_own():
    n = 400
    rng = np.random.default_rng(2)
    levels = np.array(["a", "b", "c", "d"])
    before, step = rng.integers(0, 4, n), rng.integers(1, 4, n)
    after = (before + step) % 4
    drawn = np.array([0.0, 1.5, -1.5, 3.0])  # the second and the fourth value draw up, the third down
    base, y = rng.normal(size=n), rng.integers(0, 2, n)
    cohorts = {"test": cohort_of(y, levels[before]), "twin": cohort_of(y, levels[after], "twin")}
    arrays = {"test": {"logits": base + drawn[before]}, "twin": {"logits": base + drawn[after]}}
    m = run(Evidence.from_arrays(cohorts, arrays)).measurements[0]
    assert (m.change >= 0).all() and m.mean.value == pytest.approx(m.absolute.value)
    assert "rather than" in m.drawn and m.drawn.endswith("and 3 more")


def test_twins_whose_attribute_is_not_told_have_the_other_of_two_values(rng):
    y, a = rows()
    base = rng.normal(size=N)
    z, z_twin = base + 1.5 * (2 * a - 1), base + 1.5 * (1 - 2 * a)
    told, untold = (run(evidence_of(y, a, z, z_twin, twin_cue=cue)).measurements[0] for cue in (None, [None] * N))
    assert untold.decides == told.decides == "label" and np.allclose(untold.change, told.change)
    values = np.array(["a", "b", "c"])[np.arange(N) % 3]
    cohorts = {"test": cohort_of(y, values), "twin": cohort_of(y, [None] * N, "twin")}
    finding = run(Evidence.from_arrays(cohorts, {"test": {"logits": z}, "twin": {"logits": z_twin}})).finding()
    assert finding.verdict == "inconclusive" and finding.sentence.startswith(
        "Only 0 test images have a twin whose attribute is known"
    )


def test_without_any_attribute_the_absolute_change_counts(rng):
    y, _ = rows()
    base = rng.normal(size=N)
    ids = [f"r{i}" for i in range(N)]
    cohorts = {name: Cohort.from_columns({"id": ids, "label": list(y)}, name=name) for name in ("test", "twin")}
    finding = run(Evidence.from_arrays(cohorts, {"test": {"logits": base}, "twin": {"logits": base + 1.5}})).finding()
    assert finding.verdict == "shortcut" and "being drawn cannot be told from being disturbed" in finding.checks[1].note


def test_a_change_within_the_tolerance_is_no_shortcut_however_certain(rng):
    y, a = rows(2000)
    base = rng.normal(size=2000)
    finding = run(evidence_of(y, a, base + 0.03 * a, base + 0.03 * (1 - a))).finding()
    assert value(finding, "mean change").low > 0
    assert finding.verdict == "no evidence"
    assert run(evidence_of(y, a, base + 0.03 * a, base + 0.03 * (1 - a)), tolerance=0.0).finding().verdict == "shortcut"


@pytest.mark.parametrize("spread, training", [(0.5, "aligned"), (0.05, None), (1.0, None), (3.0, None)])
def test_symmetric_noise_between_twins_raises_no_alarm(spread, training):
    alarms = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        y, a = rows(60, seed)
        z = 2.0 * y - 1 + rng.normal(size=60)
        alarms += run(evidence_of(y, a, z, z + spread * rng.normal(size=60), training=training), B=200).verdict == "shortcut"
    assert alarms <= 5  # the lower limit must pass 0.02: below the nominal 2.5 %


# ---- how many, and whose ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n, verdict", [(29, "inconclusive"), (30, "shortcut")])
def test_fewer_than_thirty_twins_decide_nothing(n, verdict):
    y, a = rows(n)
    finding = run(evidence_of(y, a, 3.0 * (2 * a - 1), 3.0 * (1 - 2 * a))).finding()
    assert finding.verdict == verdict
    check = next(c for c in finding.checks if "twins" in c.name)
    assert check.decides and check.passed is (n >= 30)
    assert n == 30 or finding.sentence.startswith("Only 29 test images have a twin")


def test_only_twins_whose_cue_stands_for_a_label_count(rng):
    """100 twins of which 20 have a direction are 20."""
    y, a = np.arange(100) % 2, np.repeat([0, 1], [80, 20])
    z = 3.0 * (2 * a - 1)
    finding = run(evidence_of(y, a, z, -z, training=None), aligned={"f": 0}).finding()
    assert finding.verdict == "inconclusive"
    assert finding.sentence.startswith("Only 20 test images have a twin whose attribute stands for a label")
    assert "80 twins without one left out" in next(c.note for c in finding.checks if "stands for" in c.name)


def test_no_twins_is_not_run():
    y, a = rows()
    evidence = Evidence.from_arrays(cohort_of(y, LEVELS[a]), {"logits": np.zeros(N)})
    with pytest.raises(NotRun, match="no twins: name the column"):
        run(evidence)
    (finding,) = audit_all(evidence, audits=["flips"])
    assert finding.not_run.startswith("no twins") and finding.verdict is None


def test_twins_that_changed_nothing_or_belong_to_no_test_row_are_not_run():
    y, a = rows(40)
    with pytest.raises(NotRun, match="every twin has the attribute of its image"):
        run(evidence_of(y, a, np.zeros(40), np.zeros(40), twin_cue=LEVELS[a]))
    cohorts = {"test": cohort_of(y, LEVELS[a]), "twin": cohort_of(y, LEVELS[1 - a], "twin", ids=[f"q{i}" for i in range(40)])}
    with pytest.raises(NotRun, match="no test row has a twin"):
        run(Evidence.from_arrays(cohorts, {name: {"logits": np.zeros(40)} for name in cohorts}))


def test_twins_are_paired_by_id_and_rows_without_one_are_counted(rng):
    y, a = rows(60)
    z = 3.0 * (2 * a - 1)
    order = rng.permutation(60)[:45]
    cohorts = {
        "test": cohort_of(y, LEVELS[a]),
        "twin": cohort_of(y[order], LEVELS[1 - a[order]], "twin", ids=[f"r{i}" for i in order]),
    }
    evidence = Evidence.from_arrays(cohorts, {"test": {"logits": z}, "twin": {"logits": -z[order]}})
    m = run(evidence, aligned={"f": 0, "m": 1}).measurements[0]
    assert (m.n, m.without_twin) == (45, 15)
    assert np.allclose(m.change, expit(3) - expit(-3))


def test_used_test_rows_have_no_say():
    y, a = rows(80)
    z = np.where(np.arange(80) < 40, 3.0, 0.0) * (2 * a - 1)
    evidence = evidence_of(y, a, z, -z, used=[f"r{i}" for i in range(40)])
    m = run(evidence).measurements[0]
    assert m.n == 40 and m.mean.value == pytest.approx(0)


def test_subjects_are_drawn_whole(rng):
    y, a = (np.repeat(v, 10) for v in rows(20))
    shift = np.repeat(rng.normal(1, 1, 20), 10)
    subject = np.repeat(np.arange(20), 10).astype(str)
    with_subjects, alone = (
        run(evidence_of(y, a, shift * (2 * a - 1), shift * (1 - 2 * a), **more)).measurements[0]
        for more in ({"subject": subject}, {})
    )
    assert (with_subjects.n_subjects, alone.n_subjects) == (20, None)
    assert with_subjects.mean.value == pytest.approx(alone.mean.value)
    assert with_subjects.mean.high - with_subjects.mean.low > 2 * (alone.mean.high - alone.mean.low)


def test_both_sides_of_a_case_rest_on_the_same_images():
    """A case of two images of which one has a twin: only that image counts."""
    n = 40
    y, a = (np.repeat(v, 2) for v in rows(n))
    z = np.tile([1.0, -5.0], n)
    case = np.repeat(np.arange(n), 2).astype(str)
    first = np.arange(0, 2 * n, 2)
    twin = cohort_of(y[first], LEVELS[1 - a[first]], "twin", ids=[f"r{i}" for i in first], case=case[first])
    cohorts = {"test": cohort_of(y, LEVELS[a], case=case), "twin": twin}
    m = run(Evidence.from_arrays(cohorts, {"test": {"logits": z}, "twin": {"logits": z[first]}})).measurements[0]
    assert (m.n, m.without_twin) == (n, n)
    assert np.allclose(m.absolute.value, 0)


def test_several_classes_change_by_half_the_sum_over_them(rng):
    y, a = np.arange(60) % 3, np.arange(60) % 2
    logits, twins = rng.normal(size=(60, 3)), rng.normal(size=(60, 3))
    cohorts = {"test": cohort_of(y, LEVELS[a]), "twin": cohort_of(y, LEVELS[1 - a], "twin")}
    m = run(Evidence.from_arrays(cohorts, {"test": {"logits": logits}, "twin": {"logits": twins}})).measurements[0]
    p, q = (np.exp(v) / np.exp(v).sum(1, keepdims=True) for v in (logits, twins))
    assert m.absolute.value == pytest.approx((np.abs(p - q).sum(1) / 2).mean())
    assert m.flips.value == pytest.approx((logits.argmax(1) != twins.argmax(1)).mean())


def test_a_continuous_cue_goes_up_or_down(rng):
    y = np.arange(60) % 2
    value_of = rng.uniform(size=60)
    cohorts = {"test": cohort_of(y, value_of), "twin": cohort_of(y, 1 - value_of, "twin")}
    evidence = Evidence.from_arrays(cohorts, {"test": {"logits": 4 * value_of}, "twin": {"logits": 4 * (1 - value_of)}})
    finding = run(evidence).finding()
    assert finding.verdict == "shortcut"
    assert "needs bins" in next(c.note for c in finding.checks if "stands for" in c.name)
    assert "(label = 1 with higher cue)" in finding.sentence


def test_groups_say_what_the_cue_was_changed_from_and_to():
    y, a = rows(200)
    m = run(evidence_of(y, a, 2.0 * a, 2.0 * (1 - a))).measurements[0]
    assert set(m.by_group.name) == {f"label = {i}, cue {x}" for i in (0, 1) for x in ("f → m", "m → f")}
    assert m.by_group.size.sum() == 200


def test_a_label_that_no_output_stands_for_is_refused():
    y, a = rows(40)
    with pytest.raises(SettingError, match="aligned= names the label 'horse'"):
        run(evidence_of(y, a, np.zeros(40), np.zeros(40)), aligned={"f": "horse"})


def test_pictures_show_the_most_changed_pairs_with_the_names_of_the_decisions(tmp_path):
    from rightreasons.data import planted

    world = planted.digits(tmp_path, n=120, pixels=16, fractions={"test": 1.0})
    test, twin = world.on("test"), world.on("test").twins()
    size = np.linspace(0, 3, len(test))
    sign = 2 * test.attribute("cue").values - 1
    arrays = {"test": {"logits": size * sign}, "twin": {"logits": -size * sign}}
    evidence = Evidence.from_arrays({"test": test, "twin": twin}, arrays, classes=["0", "1"])
    m = run(evidence, aligned={0: 0, 1: 1}, pictures=4).measurements[0]
    assert m.pictures.pixels.shape == (4, 96, 192, 3)
    assert np.allclose(m.pictures.change, np.sort(m.change)[::-1][:4])
    assert not np.array_equal(m.pictures.pixels[0, :, :96], m.pictures.pixels[0, :, 96:])
    assert "decided" in m.pictures.captions[0] and "the twin" in m.pictures.captions[0]
    gallery = next(e for e in run(evidence, pictures=2).finding().exhibits if e.kind == "gallery")
    assert len(gallery.items) == 2


def test_a_twin_that_is_the_image_itself_clears_nobody(tmp_path):
    """Answers that do not change say nothing where nothing was changed; where something was, they do."""
    from rightreasons.data import planted

    world = planted.digits(tmp_path, n=200, pixels=16, fractions={"test": 1.0})
    test, twin = world.on("test"), world.on("test").twins()
    rng = np.random.default_rng(0)
    logits = np.where(test.label == 1, 2.0, -2.0) + rng.normal(size=len(test))
    arrays = {"test": {"logits": logits}, "twin": {"logits": logits}}

    def told(twins):
        evidence = Evidence.from_arrays({"test": test, "twin": twins}, arrays, classes=["0", "1"])
        return run(evidence, aligned={0: 0, 1: 1}, pictures=0)

    frame = pd.DataFrame({"id": test.id, "label": test.label, "cue": 1 - test.attribute("cue").values, "image": test.image})
    itself = Cohort.from_columns(frame, attribute="cue", image="image", id="id", root=str(test.root))
    with pytest.raises(NotRun, match="byte for byte"):
        told(itself)
    assert told(twin).finding().verdict == "no evidence"
