"""OSCAR as an audit: its numbers are the paper's, planted cues are found and placed, and it knows what it cannot say."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from scipy import stats

from rightreasons.audits import audit, audit_all, oscar
from rightreasons.audits.oscar import judge
from rightreasons.audits.oscar.behaviour import without_direction
from rightreasons.audits.oscar.judge import WANDERING
from rightreasons.audits.oscar.rows import balance_within_label
from rightreasons.data.cohort import Cohort
from rightreasons.errors import DataError, NotRun, SettingError
from rightreasons.evidence import Evidence
from rightreasons.findings import Finding
from rightreasons.head import Head, Layer
from rightreasons.measurements import load_measurement, save_measurement
from rightreasons.stats import probes
from rightreasons.stats.resampling import resamples, task_rng

FAST = {"B": 199, "pictures": 0}
CUE, TASK = (0.2, 0.8), (0.5, 0.5)


def cohort_of(n=160, name="test", ids="r", **columns) -> Cohort:
    given = {"id": [f"{ids}{i}" for i in range(n)], "label": np.arange(n) % 2, "cue": (np.arange(n) // 2) % 2, **columns}
    parts = {k: k for k in ("subject", "image", "transform") if k in given}
    return Cohort.from_columns(given, attribute="cue", name=name, **parts)


def evidence_of(cohort, maps, role="test", seed=0, skill=4.0, recipe="maps@gradcam", follows=0.0, **more) -> Evidence:
    """A model that decides its own target well, with the maps given."""
    target = "cue" if role == "attribute" else ""
    truth = cohort.attribute("cue").values if target else cohort.label
    logits = skill * np.eye(2)[truth] + np.random.default_rng(seed).normal(size=(len(cohort), 2))
    logits += follows * np.eye(2)[cohort.attribute("cue").values]
    arrays = {"logits": logits, recipe: np.asarray(maps, dtype=np.float32)}
    return Evidence.from_arrays({"test": cohort}, {"test": arrays}, name=f"{role}-{seed}", target=target, classes=(0, 1), **more)


def fields(rng, k, side):
    return rng.normal(size=(k, *side))


def blob(side, centre, width=0.1):
    at = np.indices(side) + 0.5
    return np.exp(-sum((a - c * s) ** 2 for a, c, s in zip(at, centre, side)) / (2 * (width * side[0]) ** 2))


def world(kind="none", seed=0, n=160, side=(14, 14), cohort=None, **more):
    """Three models with fields of their own; test and baseline share a task region; `kind`: what test makes of the cue."""
    rng = np.random.default_rng(seed)
    cohort = cohort_of(n) if cohort is None else cohort
    centre, cue = (*TASK, 0.5)[: len(side)], (*CUE, 0.8)[: len(side)]
    own = 0.5 * fields(rng, 3, side)
    maps = {role: own[k] + fields(rng, len(cohort), side) for k, role in enumerate(("test", "baseline", "attribute"))}
    for role in ("test", "baseline"):
        maps[role] += 2.5 * blob(side, centre)
    if kind in ("none", "localised", "counter"):
        maps["attribute"] += 6 * blob(side, cue)
        maps["test"] += {"none": 0, "localised": 6, "counter": -6}[kind] * blob(side, cue)
    if kind == "random":
        wandering = np.stack([8 * blob(side, place) for place in rng.uniform(0.1, 0.9, (len(cohort), len(side)))])
        maps["attribute"] = 0.3 * maps["attribute"] + wandering
        maps["test"] += wandering
    if kind == "diffuse":
        everywhere = 0.5 * rng.normal(size=side)
        maps["attribute"] = 4 + 0.3 * maps["attribute"] + everywhere
        maps["test"] = 0.3 * maps["test"] + 2 + everywhere
    return {role: evidence_of(cohort, m, role, seed, **more) for role, m in maps.items()}


def check_of(finding: Finding, check: str):
    return next(c for c in finding.checks if c.id == check)


# ---- the formulas --------------------------------------------------------------------------------------------------------


def literal_profile(maps, cells, how=np.median, order="rank-then-aggregate"):
    """Algorithm 1, lines 2 to 13, image by image."""
    rows = []
    for m in maps:
        positive = np.maximum(m.astype(np.float32).astype(np.float64), 0)
        positive /= positive.sum()
        step = m.shape[0] // cells
        score = [
            positive[i * step : (i + 1) * step, j * step : (j + 1) * step].mean() for i in range(cells) for j in range(cells)
        ]
        rows.append(stats.rankdata(-np.array(score)) if order == "rank-then-aggregate" else np.float32(score))
    summed = how(np.array(rows, dtype=np.float64), axis=0)
    return summed if order == "rank-then-aggregate" else stats.rankdata(-summed)


def literal_residual(a, given):
    slope = np.sum((given - given.mean()) * (a - a.mean())) / np.sum((given - given.mean()) ** 2)
    return a - (a.mean() + slope * (given - given.mean()))


def literal_correlation(a, b):
    return np.sum((a - a.mean()) * (b - b.mean())) / np.sqrt(np.sum((a - a.mean()) ** 2) * np.sum((b - b.mean()) ** 2))


@pytest.mark.parametrize("how", ["median", "mean"])
@pytest.mark.parametrize("order", ["rank-then-aggregate", "aggregate-then-rank"])
def test_the_audit_gives_the_papers_numbers(how, order):
    rng = np.random.default_rng(5)
    cohort = cohort_of(60)
    maps = {role: rng.normal(size=(60, 16, 16)) + rng.normal(size=(16, 16)) for role in ("test", "baseline", "attribute")}
    models = {role: evidence_of(cohort, m, role) for role, m in maps.items()}
    result = audit("oscar", models, partitions="grid:8", size=16, how=how, order=order, **FAST)
    function = np.median if how == "median" else np.mean
    test, baseline, attribute = (literal_profile(maps[role], 8, function, order) for role in ("test", "baseline", "attribute"))
    first = result.compared[0]
    np.testing.assert_allclose(first.profiles, [test, baseline, attribute], atol=1e-10)
    a, b = literal_residual(test, baseline), literal_residual(attribute, baseline)
    expected = {
        "partial": literal_correlation(a, b),
        "deviation": literal_correlation(a, attribute),
        "test and attribute": literal_correlation(test, attribute),
        "test and baseline": literal_correlation(test, baseline),
        "baseline and attribute": literal_correlation(baseline, attribute),
    }
    for kind, value in expected.items():
        assert first.correlation(kind).interval.value == pytest.approx(value, abs=1e-10), kind
    ranks = [stats.rankdata(p) for p in (test, baseline, attribute)]
    spearman = literal_correlation(literal_residual(ranks[0], ranks[1]), literal_residual(ranks[2], ranks[1]))
    assert first.correlation("partial", "Spearman").interval.value == pytest.approx(spearman, abs=1e-10)
    z = [(r - r.mean()) / r.std(ddof=1) for r in (a, b)]
    np.testing.assert_allclose(first.maps.shortcut, z[0] * z[1], atol=1e-10)
    assert first.maps.shortcut.sum() / 63 == pytest.approx(expected["partial"], abs=1e-10)


def test_the_interval_is_that_of_resampled_images():
    models = world(seed=1, n=60)
    result = audit("oscar", models, partitions="grid:5", **FAST)
    m = result.models
    ranks = [m.of(role)[0].ranking.values.astype(float) for role in ("test", "baseline", "attribute")]
    counts = resamples(60, rng=task_rng(0, "oscar conclude"), B=FAST["B"]).counts()
    draws = []
    for count in counts:
        rows = np.repeat(np.arange(60), count)
        test, baseline, attribute = (np.median(r[rows], axis=0) for r in ranks)
        draws.append(literal_correlation(literal_residual(test, baseline), literal_residual(attribute, baseline)))
    limits = np.quantile(draws, [0.025, 0.975])
    found = result.compared[0].correlation().interval
    np.testing.assert_allclose([found.low, found.high], limits, atol=1e-10)


def test_rising_transforms_of_the_scores_change_nothing():
    rng = np.random.default_rng(2)
    cohort = cohort_of(60)
    maps = {role: rng.random((60, 8, 8)) for role in ("test", "baseline", "attribute")}
    settings = {"partitions": "grid:8", "size": 8, **FAST}
    plain = audit("oscar", {r: evidence_of(cohort, m, r) for r, m in maps.items()}, **settings)
    bent = audit("oscar", {r: evidence_of(cohort, np.expm1(3 * m), r) for r, m in maps.items()}, **settings)
    np.testing.assert_array_equal(plain.compared[0].profiles, bent.compared[0].profiles)
    assert plain.compared[0].correlation() == bent.compared[0].correlation()


def test_several_balanced_seeds_are_one_mean_baseline():
    models = world(seed=3)
    others = [world(seed=s)["baseline"] for s in (31, 32)]
    result = audit("oscar", {**models, "baseline": [models["baseline"], *others]}, partitions="grid:8", **FAST)
    own = [audit("oscar", {**models, "baseline": b}, partitions="grid:8", **FAST).compared[0].profiles[1]
           for b in (models["baseline"], *others)]  # fmt: skip
    np.testing.assert_allclose(result.compared[0].profiles[1], np.mean(own, axis=0), atol=1e-12)


# ---- worlds --------------------------------------------------------------------------------------------------------------


def test_a_planted_cue_is_a_shortcut_at_its_place():
    result = audit("oscar", world("localised", 0), B=999, pictures=0)
    finding = result.finding()
    assert finding.verdict == "shortcut", finding.sentence
    assert "localised" in finding.sentence
    first = result.compared[0]
    part, cells = first.maps.shortcut_part, result.models.first.regions.grid(0)
    top = np.array(np.unravel_index(part.argmax(), cells)) / np.array(cells)
    assert np.abs(top - CUE).max() < 0.15
    at = np.stack(np.unravel_index(np.arange(part.size), cells), axis=1) / np.array(cells)
    near = np.linalg.norm(at - CUE, axis=1) < 0.3
    assert part[near].sum() / part.sum() > 0.7
    assert first.correlation().spatial.p > first.correlation().permutation - 1e-12  # the plain test is the bolder one
    assert {e.name.split(":")[0] for e in finding.estimates} >= {"partial", "deviation", "pairwise"}


def test_looking_at_the_cue_without_answers_that_follow_it_is_no_shortcut():
    models, cohort = world("localised", 0), cohort_of(160)
    maps = models["test"].on("test")["maps@gradcam"]
    biased = cohort_of(200, "train", "t", cue=np.arange(200) % 2)

    def finding(maps, **more):
        return audit("oscar", {**models, "test": evidence_of(cohort, maps, **more)}, **FAST).finding()

    unused, used = (finding(maps, training=biased, follows=f) for f in (0.0, 4.0))
    assert (unused.verdict, used.verdict) == ("inconclusive", "shortcut")
    assert "its answers do not follow it: within a label they lie" in unused.sentence
    unknown = finding(maps)
    assert unknown.verdict == "shortcut"
    assert check_of(unknown, judge.ANSWERS_FOLLOW).passed is None
    assert "training rows unknown" in check_of(unknown, judge.ANSWERS_FOLLOW).note
    elsewhere = finding(world("none", 1)["test"].on("test")["maps@gradcam"], training=biased)
    assert elsewhere.verdict == "no evidence" and not check_of(elsewhere, judge.ANSWERS_FOLLOW).decides


def test_worlds_without_a_shortcut_are_rarely_called():
    said = [audit("oscar", world("none", seed, n=48), B=99, pictures=0).verdict for seed in range(20)]
    assert said.count("shortcut") <= 3
    assert said.count("no evidence") >= 12


def test_a_model_that_looks_away_is_counter_aligned_and_no_shortcut():
    result = audit("oscar", world("counter", 5), B=999, pictures=0)
    assert result.compared[0].correlation().interval.value < -0.3
    assert result.verdict == "no evidence"
    assert "counter-alignment" in result.finding().sentence


def test_a_cue_with_no_fixed_place_is_not_placed():
    result = audit("oscar", world("random", 1), **FAST)
    finding = result.finding()
    assert finding.verdict == "inconclusive"
    assert "no fixed place" in finding.sentence
    assert "localised" not in finding.sentence
    assert check_of(finding, judge.FIXED_PLACE).passed is False
    assert result.models.attribute[0].wandering > WANDERING
    assert not any("localised" in e.caption or "diffuse" in e.caption for e in finding.exhibits)
    where = next(e for e in finding.exhibits if e.title == "Where the correlation comes from")
    assert "does not show where the cue is" in where.caption


def test_an_attribute_model_that_learnt_nothing_says_nothing_of_the_cues_place():
    models = world("random", 1)
    wandering = models["attribute"].on("test")["maps@gradcam"]
    models["attribute"] = evidence_of(cohort_of(160), wandering, "attribute", 1, skill=0.0)
    finding = audit("oscar", models, **FAST).finding()
    assert finding.verdict == "inconclusive"
    assert check_of(finding, judge.ATTRIBUTE_LEARNT).passed is False
    assert "attribute model is better than chance – no" in finding.sentence
    assert "looks at no fixed place" not in finding.sentence


def test_a_cue_that_is_everywhere_is_called_diffuse():
    result = audit("oscar", world("diffuse", 0), **FAST)
    assert result.verdict == "shortcut", result.finding().sentence
    assert "diffuse" in result.finding().sentence


def test_not_finding_a_cue_that_is_everywhere_says_nothing():
    models = world("none", 2)
    rng = np.random.default_rng(0)
    models["attribute"] = evidence_of(cohort_of(), 5 + rng.random((160, 14, 14)), "attribute")
    finding = audit("oscar", models, **FAST).finding()
    assert finding.verdict == "inconclusive"
    assert "no place to compare" in finding.sentence


def test_moving_the_test_models_maps_takes_the_correlation_away():
    result = audit("oscar", world("localised", 0), **FAST)
    assert result.jitter[0] == pytest.approx(result.compared[0].correlation().interval.value)
    assert abs(result.jitter[-1]) < 0.25 < result.jitter[0]


# ---- volumes, atlases, transforms, superpixels ---------------------------------------------------------------------------


def slabs(shape):
    """Eight labelled blocks of a volume, 10, 20, …, 80, and a background rim."""
    half = [np.minimum(np.arange(s) * 2 // s, 1) for s in shape]
    labels = 10 * (1 + half[0][:, None, None] * 4 + half[1][None, :, None] * 2 + half[2][None, None, :])
    labels[0] = 0
    return labels


def test_volumes_are_cut_by_an_atlas_with_names(tmp_path):
    np.save(tmp_path / "atlas.npy", slabs((12, 12, 12)))
    (tmp_path / "names.json").write_text(json.dumps({"40": "hippocampus"}))
    models = world("localised", 0, side=(6, 6, 6), n=80)
    atlas = f"atlas:{tmp_path / 'atlas.npy'}"
    result = audit("oscar", models, partitions=[atlas, "grid:3"], names=str(tmp_path / "names.json"), size=24, **FAST)
    regions = result.models.first.regions
    assert regions.R.tolist() == [8, 27]
    assert regions.name[:8] == ("label 10", "label 20", "label 30", "hippocampus", "label 50", "label 60", "label 70", "label 80")
    # The cue lies at (0.2, 0.8, 0.8): low in the first axis, high in the others.
    assert regions.name[int(result.compared[0].maps.shortcut_part.argmax())] == "hippocampus"
    finding = result.finding()
    named = next(e for e in finding.exhibits if e.title.startswith("The regions that"))
    assert named.rows[0][0] == "hippocampus"
    where = next(e for e in finding.exhibits if e.title == "Where the correlation comes from")
    assert any("slice" in item.caption for item in where.items)


def test_an_atlas_is_laid_over_the_images_by_both_affines(tmp_path):
    nibabel = pytest.importorskip("nibabel")
    rng = np.random.default_rng(0)
    world_of_image = np.diag([2.0, 2.0, 2.0, 1.0])
    for i in range(48):
        nibabel.save(nibabel.Nifti1Image(rng.random((8, 8, 8), dtype=np.float32), world_of_image), tmp_path / f"{i}.nii.gz")
    atlas = slabs((16, 16, 16)).astype(np.int16)
    shifted = np.diag([1.0, 1.0, 1.0, 1.0])
    shifted[:3, 3] = -0.5  # voxels of half the size, over the same field of view
    nibabel.save(nibabel.Nifti1Image(atlas, shifted), tmp_path / "atlas.nii.gz")
    cohort = Cohort.from_columns(
        {"id": [f"r{i}" for i in range(48)], "label": np.arange(48) % 2, "cue": (np.arange(48) // 2) % 2,
         "image": [f"{i}.nii.gz" for i in range(48)]},
        attribute="cue", image="image", root=tmp_path,
    )  # fmt: skip
    evidence = evidence_of(cohort, rng.random((48, 4, 4, 4)))
    m = oscar.measure(evidence, rng=np.random.default_rng(0), partitions=f"atlas:{tmp_path / 'atlas.nii.gz'}", **FAST)
    expected = (slabs((16, 16, 16))[::2, ::2, ::2] // 10) - 1
    agrees = m.regions.drawn[0] == expected
    assert agrees[1:].mean() > 0.95  # the first plane is background in one and cut in half in the other
    assert m.pictures.mean_image.shape == (8, 8, 8, 3)


def test_volumes_with_sides_of_different_lengths_are_drawn(tmp_path):
    n, side = 48, (6, 10, 8)
    np.save(tmp_path / "volumes.npy", np.random.default_rng(0).random((n, *side, 1), dtype=np.float32))
    image = [f"{tmp_path}/volumes.npy#{i}" for i in range(n)]
    models = world("localised", side=(3, 5, 4), cohort=cohort_of(n, image=image))
    result = audit("oscar", models, partitions="grid:2", B=99, pictures=2)
    first = result.models.first
    assert first.pictures.images.shape == (2, 10, 6, 3) and first.pictures.maps.shape == (2, 10, 6)
    assert result.finding().exhibits


def test_transforms_bring_maps_to_the_common_space(tmp_path):
    rng = np.random.default_rng(1)
    n, side = 60, 16
    straight = np.maximum(fields(rng, n, (side, side)) + 3 * blob((side, side), CUE), 0)
    moved, names = np.zeros_like(straight), []
    for i in range(n):
        by = rng.integers(-2, 3, 2)
        moved[i] = np.roll(straight[i], by, axis=(0, 1))
        back = np.eye(3)
        back[:2, 2] = -by
        np.save(tmp_path / f"t{i}.npy", back)
        names.append(f"t{i}.npy")
    settings = {"rng": np.random.default_rng(0), "partitions": "grid:8", "size": side, **FAST}
    table = {"id": [f"r{i}" for i in range(n)], "label": np.arange(n) % 2, "cue": (np.arange(n) // 2) % 2, "transform": names}
    placed = Cohort.from_columns(table, attribute="cue", transform="transform", root=tmp_path)
    aligned = oscar.measure(evidence_of(cohort_of(n), straight), **settings)
    undone = oscar.measure(evidence_of(placed, moved), **{**settings, "rng": np.random.default_rng(0)})
    loose = oscar.measure(evidence_of(cohort_of(n), moved), **{**settings, "rng": np.random.default_rng(0)})
    centre = np.array([r for r in range(64) if 1 <= r // 8 <= 6 and 1 <= r % 8 <= 6])  # the rim moved out of the image
    inner = [np.median(m.ranking.values[:, centre], axis=0) for m in (aligned, undone, loose)]
    assert np.corrcoef(inner[0], inner[1])[0, 1] > 0.98
    assert np.corrcoef(inner[0], inner[1])[0, 1] > np.corrcoef(inner[0], inner[2])[0, 1]
    np.save(tmp_path / "t0.npy", np.zeros((2, side, side)))
    with pytest.raises(DataError, match=r"displacement field is not applied"):
        oscar.measure(evidence_of(placed, moved), **settings)


def test_superpixels_follow_the_edges_of_the_images(tmp_path):
    rng = np.random.default_rng(0)
    for i in range(48):
        pixels = rng.integers(0, 20, (32, 32, 3), dtype=np.uint8)
        pixels[:, 16:] += 200
        Image.fromarray(pixels).save(tmp_path / f"{i}.png")
    table = {"id": [f"r{i}" for i in range(48)], "image": [f"{i}.png" for i in range(48)], "label": np.arange(48) % 2,
             "cue": (np.arange(48) // 2) % 2}  # fmt: skip
    cohort = Cohort.from_columns(table, attribute="cue", image="image", root=tmp_path)
    models = {role: evidence_of(cohort, rng.random((48, 8, 8)), role) for role in ("test", "baseline", "attribute")}
    result = audit("oscar", models, partitions=["superpixel:16", "grid:8"], B=99)
    regions = result.models.first.regions
    assert regions.partition[0].endswith("superpixels")
    assert regions.cells[0].tolist() == [0, 0] and regions.grid(0) is None
    assert result.compared[0].correlation().spatial.null == "dutilleul"
    finding = result.finding()
    same = next(e for e in finding.exhibits if e.title == "The same images, three models")
    assert len(same.items) == 6 * 4
    assert Finding.from_json(finding.to_json()).to_json() == finding.to_json()


# ---- rows ----------------------------------------------------------------------------------------------------------------


def test_test_rows_are_balanced_within_the_label_and_counted():
    rng = np.random.default_rng(0)
    n = 300
    label = rng.integers(0, 2, n)
    cue = (rng.random(n) < np.where(label, 0.8, 0.3)).astype(int)
    cohort = Cohort.from_columns({"id": [f"r{i}" for i in range(n)], "label": label, "cue": cue}, attribute="cue")
    m = oscar.measure(evidence_of(cohort, rng.random((n, 8, 8))), rng=np.random.default_rng(1), **FAST)
    for y in (0, 1):
        sizes = np.bincount(m.rows.level[m.rows.label == y])
        assert sizes[0] == sizes[1] == min(np.bincount(cue[label == y]))
    assert m.rows.left_out == n - m.n
    # A model that may not be judged on some rows keeps the others that the rest keep.
    rows = balance_within_label(cohort, cohort.attribute(), np.random.default_rng(1)).kept
    part = cohort.select(np.flatnonzero(np.arange(n) % 10 != 0))
    again = balance_within_label(part, part.attribute(), np.random.default_rng(1)).kept
    shared = set(cohort.id[rows]) & set(part.id)
    assert len(shared & set(part.id[again])) > 0.85 * len(shared)


def test_an_empty_group_is_inconclusive():
    n = 160
    label, cue = np.arange(n) % 2, np.zeros(n, int)
    cue[label == 1] = (np.arange(n // 2)) % 2  # label 0 has one value only
    cohort = Cohort.from_columns({"id": [f"r{i}" for i in range(n)], "label": label, "cue": cue}, attribute="cue")
    finding = audit("oscar", world("localised", 0, cohort=cohort), **FAST).finding()
    assert finding.verdict == "inconclusive"
    assert "no test row with label 0, cue 1" in check_of(finding, judge.ROWS_BALANCED).note


def test_subjects_are_resampled_whole():
    plain = audit("oscar", world("localised", 0), **FAST)
    few = cohort_of(subject=[f"s{i // 8}" for i in range(160)])
    by_subject = audit("oscar", world("localised", 0, cohort=few), **FAST)
    assert by_subject.context.n_subjects == 20
    assert plain.context.n_subjects is None
    limits = [r.compared[0].correlation().interval for r in (plain, by_subject)]
    assert limits[0].value == limits[1].value
    assert limits[0].low != limits[1].low


def test_models_measured_on_different_rows_meet_on_the_shared_ones():
    models = world("localised", 0)
    models["baseline"] = Evidence.from_arrays(
        {"test": cohort_of()},
        {"test": {name: models["baseline"][name] for name in ("logits", "maps@gradcam")}},
        classes=(0, 1), used=["r3", "r8"], name="baseline",
    )  # fmt: skip
    result = audit("oscar", models, **FAST)
    assert result.models.n < 160
    members = [member for role in result.models.members.values() for member in role]
    ids = [np.array(member.measurement.rows.id)[member.shared] for member in members]
    for other in ids[1:]:
        np.testing.assert_array_equal(ids[0], other)


# ---- what the references must be -----------------------------------------------------------------------------------------


def test_an_attribute_model_that_knows_nothing_decides_nothing():
    models = world("localised", 0)
    models["attribute"] = evidence_of(cohort_of(), models["attribute"]["maps@gradcam"], "attribute", skill=0.0)
    finding = audit("oscar", models, **FAST).finding()
    assert finding.verdict == "inconclusive"
    assert check_of(finding, judge.ATTRIBUTE_LEARNT).passed is False


def test_a_biased_baseline_decides_nothing():
    models = world("localised", 0)
    label = np.arange(100) % 2
    training = Cohort.from_columns({"id": [f"t{i}" for i in range(100)], "label": label, "cue": label}, attribute="cue")
    models["baseline"] = evidence_of(cohort_of(), models["baseline"]["maps@gradcam"], "baseline", training=training)
    finding = audit("oscar", models, **FAST).finding()
    assert finding.verdict == "inconclusive"
    assert "V = 1.00" in check_of(finding, judge.BASELINE_BALANCED).note


def test_every_check_has_an_id_of_its_own():
    models = world("localised", 0, n=60)
    finding = audit("oscar", {**models, "test": [models["test"], world("localised", 9, n=60)["test"]]}, **FAST).finding()
    ids = [check.id for check in finding.checks]
    assert ids == [
        "roles-fit", "rows-balanced", "enough-images", "few-empty-maps", "baseline-balanced", "baseline-learnt",
        "attribute-learnt", "null-available", "could-see", "partitions-agree", "fixed-place", "some-place", "answers-follow",
        "geometry-known", "seeds-agree",
    ]  # fmt: skip


def test_models_in_the_wrong_roles_decide_nothing():
    models = world("localised", 0)
    finding = audit("oscar", {**models, "attribute": models["baseline"]}, **FAST).finding()
    assert finding.verdict == "inconclusive"
    assert check_of(finding, judge.ROLES_FIT).passed is False


def test_a_model_without_maps_has_no_profile():
    models = world("none", 0)
    models["test"] = evidence_of(cohort_of(), np.zeros((160, 14, 14)))
    finding = audit("oscar", models, **FAST).finding()
    assert finding.verdict == "inconclusive"
    assert finding.estimates[0].value is None
    assert "160 of 160 maps" in check_of(finding, judge.FEW_EMPTY_MAPS).note


def test_partitions_that_disagree_decide_nothing():
    result = audit("oscar", world("localised", 0), **FAST)
    first, second = result.compared
    flipped = [replace(c, interval=replace(c.interval, value=-c.interval.value)) for c in second.correlations]
    twisted = replace(result, compared=(first, replace(second, correlations=tuple(flipped))))
    assert result.verdict == "shortcut"
    assert twisted.verdict == "inconclusive"


def test_without_references_it_does_not_run_and_says_what_is_needed():
    models = world("none", 0)
    with pytest.raises(NotRun, match="no baseline and no attribute model"):
        audit("oscar", models["test"], **FAST)
    (finding,) = audit_all(models["test"], audits=["oscar"], settings={"oscar": FAST})
    assert "trained on balanced rows" in finding.not_run


def test_a_continuous_attribute_needs_bins():
    n = 80
    table = {"id": [f"r{i}" for i in range(n)], "label": np.arange(n) % 2, "age": np.linspace(20, 80, n)}
    cohort = Cohort.from_columns(table, attribute="age")
    evidence = Evidence.from_arrays(
        {"test": cohort}, {"test": {"logits": np.zeros((n, 2)), "maps@gradcam": np.ones((n, 4, 4), np.float32)}}
    )
    with pytest.raises(NotRun, match="needs bins"):
        oscar.measure(evidence, rng=np.random.default_rng(0))


# ---- replicates, seeds, slices -------------------------------------------------------------------------------------------


def test_balanced_models_in_the_test_models_place_decide_where_there_are_four():
    models = world("localised", 0)
    balanced = [world("none", 40 + s)["baseline"] for s in range(6)]
    result = audit("oscar", {**models, "baseline": balanced}, **FAST)
    assert result.decide == "replicates"
    assert len(result.replicates.values) == 6
    assert result.replicates.tested > result.replicates.upper
    assert result.verdict == "shortcut"
    finding = result.finding()
    assert "of the way from the balanced models" in finding.sentence
    # A case corrects over attributes by the p of the first estimate: it must be the p that decided.
    assert finding.estimates[0].p == result.replicates.p and finding.estimates[0].value == result.replicates.tested
    bars = next(e for e in finding.exhibits if e.title.startswith("Step from"))
    assert len(bars.labels) == 7
    few = audit("oscar", models, decide="replicates", **FAST).finding()
    assert few.verdict == "inconclusive"
    assert "1 balanced models, at least 4 needed" in check_of(few, judge.ENOUGH_REPLICATES).note
    alone = audit("oscar", models, **FAST)
    assert alone.decide == "spatial" and alone.finding().estimates[0].p == alone.compared[0].correlation().spatial.p


def test_a_test_that_could_not_have_seen_a_shortcut_does_not_say_that_there_is_none():
    wide = [world("none", 80 + s)["baseline"] for s in range(3)] + [world("localised", 5)["test"]]  # one of them moves far
    finding = audit("oscar", {**world("localised", 0), "test": world("none", 77)["baseline"], "baseline": wide}, **FAST).finding()
    assert check_of(finding, judge.COULD_SEE).passed is False
    assert finding.verdict == "inconclusive"
    assert "train more balanced models" in finding.sentence


def test_a_balanced_model_among_its_likes_is_no_shortcut():
    balanced = [world("none", 60 + s)["baseline"] for s in range(6)]
    models = {**world("localised", 0), "test": world("none", 77)["baseline"], "baseline": balanced}
    assert audit("oscar", models, **FAST).verdict == "no evidence"


def test_no_pictures_are_shown_where_none_are_asked_for():
    finding = audit("oscar", world("localised", 0), **{**FAST, "pictures": 0}).finding()
    assert not any(e.title == "The same images, three models" for e in finding.exhibits)


def test_every_test_seed_is_shown():
    models = world("localised", 0)
    finding = audit("oscar", {**models, "test": [models["test"], world("localised", 9)["test"]]}, **FAST).finding()
    table = next(e for e in finding.exhibits if e.title == "Seed by seed")
    assert [row[0] for row in table.rows] == ["test-0", "test-9"]


def test_slices_are_compared_apart():
    hospital = np.where(np.arange(160) < 10, "c", np.where(np.arange(160) % 3, "a", "b"))
    finding = audit("oscar", world("localised", 0, cohort=cohort_of(hospital=hospital)), slices="hospital", **FAST).finding()
    table = next(e for e in finding.exhibits if e.title == "Slice by slice")
    assert [row[0] for row in table.rows] == ["a", "b", "c"]
    assert table.rows[0][2].value > 0.3
    assert table.rows[2][2].reason == "10 images, at least 20 needed"
    where = next(e for e in finding.exhibits if e.title == "Where, slice by slice")
    assert [item.caption for item in where.items] == ["a", "b"]


# ---- features, relevance, storage ----------------------------------------------------------------------------------------


def probed(weight, rng, n=400) -> Evidence:
    """A linear model of five features; the first carries the cue, the second the label."""
    label, cue = np.arange(n) % 2, (np.arange(n) // 2) % 2
    z = rng.normal(size=(n, len(weight)))
    z[:, 0] += 3 * (2 * cue - 1)
    z[:, 1] += 1.5 * (2 * label - 1)
    split = np.where(np.arange(n) % 8 < 4, "audit", "test")
    table = {"id": [f"r{i}" for i in range(n)], "label": label, "cue": cue, "split": split}
    cohort = Cohort.from_columns(table, attribute="cue", split="split")
    head = Head((Layer("linear", {"weight": np.stack([np.zeros(len(weight)), weight]), "bias": np.zeros(2)}),))
    arrays = {"features": z, "logits": head(z), "maps@gradcam": rng.random((n, 6, 6)).astype(np.float32)}
    return Evidence.from_arrays(cohort, arrays, head=head)


def test_a_decision_that_hangs_on_the_probes_direction_changes_without_it():
    rng = np.random.default_rng(0)
    uses = oscar.measure(probed([2.0, 1, 0, 0, 0], rng), rng=rng, **FAST)
    ignores = oscar.measure(probed([0.0, 1, 0, 0, 0], rng), rng=rng, **FAST)
    assert uses.leakage.auc.value > 0.99 and ignores.leakage.auc.value > 0.99
    assert uses.leakage.removed_flips > 0.3
    assert ignores.leakage.removed_flips < 0.05
    assert uses.leakage.removed_worst > uses.decisions.worst_group + 0.3


def test_the_row_of_a_table_has_the_columns_that_it_always_had():
    evidence = probed([1.0, 1, 0, 0, 0], np.random.default_rng(0))
    row = oscar.measure(evidence, rng=np.random.default_rng(1), **FAST).scalars()
    expected = {
        "attribute": "cue", "target": "label", "n": 200, "accuracy": 0.55, "accuracy_low": 0.4955120512051206,
        "accuracy_high": 0.624379759494891, "leakage": 1.0, "leakage_low": 1.0, "leakage_high": 1.0, "worst_group": 0.06,
        "empty": 0, "left_out": 0, "agreement": 0.00377929152494622, "covers": 0.9189270224492236,
        "wandering": 0.9948072039173007, "removed_accuracy": 0.935, "removed_worst": 0.9,
    }  # fmt: skip
    assert list(row) == list(expected)
    assert row == pytest.approx(expected)


def test_what_is_left_of_features_has_nothing_along_the_probe():
    rng = np.random.default_rng(0)
    z, target = rng.normal(size=(90, 6)), np.arange(90) % 3
    probe = probes.fit(z, target)
    left = without_direction(z, probe)
    along = (probe.weight - probe.weight.mean(axis=0)) / probe.scale
    np.testing.assert_allclose((left - probe.mean) @ along.T, 0, atol=1e-10)
    assert np.linalg.matrix_rank(z - left, tol=1e-8) == 2


def test_relevance_that_does_not_add_up_is_told():
    cohort, rng = cohort_of(), np.random.default_rng(0)
    models = {}
    for role in ("test", "baseline", "attribute"):
        models[role] = evidence_of(cohort, rng.random((160, 14, 14)), role, recipe="maps@lrp")
        score = rng.normal(size=160) + 5
        sums = np.stack([score * (0.5 if role == "test" else 1.0), np.zeros(160), score], axis=1)
        models[role].put("test", "conservation@lrp", sums)
    finding = audit("oscar", models, attribution="lrp", **FAST).finding()
    check = check_of(finding, judge.CONSERVES)
    assert check.passed is False
    assert "0.5" in check.note


def test_a_measurement_survives_its_file(tmp_path):
    models = world("localised", 0)
    measured = {role: oscar.measure(e, rng=np.random.default_rng(0), **FAST) for role, e in models.items()}
    again = {
        role: [load_measurement(oscar.Measurement, save_measurement(m, tmp_path / f"{role}.npz"))] for role, m in measured.items()
    }
    first = oscar.conclude({r: [m] for r, m in measured.items()}, rng=np.random.default_rng(1), B=99)
    second = oscar.conclude(again, rng=np.random.default_rng(1), B=99)
    assert first.compared[0].correlation() == second.compared[0].correlation()
    assert measured["test"].scalars()["n"] == 160
    assert again["test"][0].pull.reason == measured["test"].pull.reason != ""


# ---- settings ------------------------------------------------------------------------------------------------------------


def test_the_cards_geometry_is_the_size_that_is_cut():
    cohort, rng = cohort_of(48), np.random.default_rng(0)
    told = evidence_of(cohort, rng.random((48, 7, 7)), settings={"geometry": {"size": [96, 80], "crop": 0.9}})
    m = oscar.measure(told, rng=rng, **FAST)
    assert m.regions.drawn.shape == (2, 96, 80)
    assert m.regions.partition == ("16x16 cells", "8x8 cells")
    assert oscar.measure(told, rng=rng, size=48, **FAST).regions.partition == ("8x8 cells", "4x4 cells")


def test_needs_name_the_maps_of_all_three_roles():
    arrays = {(n.role, n.array) for n in oscar.needs("gradcam(layer=layer4)", "label") if not n.optional}
    assert {role for role, _ in arrays} == {"test", "baseline", "attribute"}
    assert ("attribute", "maps@gradcam(explain=label,layer=layer4)") in arrays
    assert oscar.array_names({"method": "lrp", "rules": "composite"}, "predicted").sums == "conservation@lrp(rules=composite)"
    assert [role.target for role in oscar.roles("sex")] == ["", "sex"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"partitions": "hexagons:7"}, "'hexagons:7' is no partition"),
        ({"partitions": "grid:1"}, "needs at least 4"),
        ({"partitions": "atlas:nowhere.npy"}, "no atlas at nowhere.npy"),
        ({"region": "sum"}, "no statistic of a region"),
        ({"how": "mode"}, "how='mode'"),
        ({"order": "ranked"}, "order='ranked'"),
        ({"explain": "both"}, "explain='both'"),
        ({"size": 4}, "smaller than its maps"),
        ({"size": (32, 32, 32)}, "3 axes"),
        ({"decide": "vote"}, "decide='vote'"),
        ({"null": "none"}, "null='none'"),
        ({"names": "nowhere.csv", "partitions": "grid:8"}, None),
    ],
)
def test_bad_settings_are_refused_with_what_is_known(settings, message):
    models = world("none", 0, n=60)
    if message is None:  # names are read where an atlas asks for them
        assert audit("oscar", models, **settings, **FAST)
        return
    with pytest.raises((SettingError, DataError), match=message):
        audit("oscar", models, **settings, **FAST)


def test_models_cut_differently_are_not_compared():
    models = world("none", 0, n=60)
    measured = {role: oscar.measure(e, rng=np.random.default_rng(0), **FAST) for role, e in models.items()}
    other = oscar.measure(models["test"], rng=np.random.default_rng(0), partitions="grid:5", **FAST)
    with pytest.raises(DataError, match="cut by different regions"):
        oscar.conclude({"test": [other], **{r: [measured[r]] for r in ("baseline", "attribute")}}, rng=np.random.default_rng(0))


@pytest.mark.parametrize("region", ["saliency", 90])
def test_other_statistics_of_a_region_find_the_cue_as_well(region):
    result = audit("oscar", world("localised", 0), region=region, **FAST)
    assert result.compared[0].correlation().interval.value > 0.3
