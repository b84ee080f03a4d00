"""Focus: literal twins of eq. 20 to 26, maps whose place is known, frames without a rim, and what is undefined or refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
from PIL import Image

from rightreasons import testing
from rightreasons.audits import audit, focus
from rightreasons.data.cohort import Cohort
from rightreasons.errors import DataError, EvidenceError, NotRun, SettingError
from rightreasons.evidence import Evidence
from rightreasons.measurements import scalars

N = 40
SIZE = 56
FOV = "tokens@fov(patch=4)"


def disc(radius=20.0, size=SIZE, centre=None):
    middle = (size - 1) / 2 if centre is None else centre
    y, x = np.mgrid[:size, :size]
    return np.hypot(y - middle, x - middle) <= radius


def evidence_of(maps, share=None, *, region=FOV, name="model", **columns):
    n = len(maps)
    given = {"id": [f"r{i}" for i in range(n)], "label": np.arange(n) % 2, **columns}
    cohort = Cohort.from_columns(given, name="test", **{k: k for k in ("subject", "image") if k in columns})
    found = Evidence.from_arrays(cohort, {"logits": np.eye(2)[np.arange(n) % 2]}, name=name)
    found.put("test", "maps@gradcam", np.asarray(maps, np.float32))
    if share is not None:
        found.put("test", region, np.asarray(share, np.float32))
    return found


def run(models, B=200, pictures=0, **settings):
    return audit("focus", models, B=B, pictures=pictures, **settings)


# ---- literal twins -------------------------------------------------------------------------------------------------------


def test_the_scores_are_those_of_equations_20_to_24(rng):
    maps, region = rng.normal(size=(12, 5, 7)), rng.random((12, 5, 7)) < 0.5
    ring = region & (rng.random((12, 5, 7)) < 0.4)
    mass = focus.attention_mass(maps)
    found = focus.focus_score(mass, region), focus.peripheral_ratio(mass, region, ring), focus.entropy(mass)
    for i in range(12):
        positive = [[max(float(v), 0.0) for v in row] for row in maps[i]]
        total = sum(map(sum, positive))
        rfs = par = h = 0.0
        for y in range(5):
            for x in range(7):
                a = positive[y][x] / total
                rfs += a * region[i, y, x]
                par += a * ring[i, y, x]
                h -= a * math.log(a) if a > 0 else 0.0
        assert mass[i].sum() == pytest.approx(1.0, abs=1e-12)
        assert found[0][i] == pytest.approx(rfs, abs=1e-10)
        assert found[1][i] == pytest.approx(par / rfs, abs=1e-10)
        assert found[2][i] == pytest.approx(h / math.log(35), abs=1e-10)


def test_entropy_is_0_for_one_cell_and_1_for_an_even_map():
    maps = np.zeros((3, 8, 8))
    maps[0, 3, 3], maps[1], maps[2] = 5.0, 1.0, -1.0
    np.testing.assert_allclose(focus.entropy(focus.attention_mass(maps)), [0.0, 1.0, np.nan], atol=1e-12)
    assert np.isnan(focus.entropy(np.ones((1, 1)))).all()


def test_the_ring_is_a_tenth_of_the_radius_wide():
    inside = disc(100.0, 256)
    ring = focus.peripheral_ring(inside[None], 0.1)[0]
    y, x = np.mgrid[:256, :256]
    distance = np.hypot(y - 127.5, x - 127.5)
    assert not ring[~inside].any()
    assert ring[inside & (distance > 91.5)].all() and not ring[distance < 88.5].any()
    assert ring.sum() / inside.sum() == pytest.approx(1 - 0.9**2, abs=0.01)


def test_the_ring_of_a_ball_and_of_a_tiny_region_is_one_cell_at_least():
    grid = np.stack(np.meshgrid(*(np.arange(31) - 15.0,) * 3, indexing="ij"))
    ball = np.sqrt((grid**2).sum(axis=0)) <= 12
    ring = focus.peripheral_ring(ball[None], 0.25)[0]
    assert ring.sum() / ball.sum() == pytest.approx(1 - 0.75**3, abs=0.06)
    tiny = np.zeros((1, 6, 6), bool)
    tiny[0, 2, 2] = True
    assert focus.peripheral_ring(tiny, 0.1).sum() == 1


def test_the_frame_is_no_boundary():
    half = np.zeros((2, 20, 20), bool)
    half[0, :10] = True
    half[1] = True
    ring = focus.peripheral_ring(half, 0.1)
    assert ring[0, 9].all() and not ring[0, 0].any()
    assert not ring[1].any()


def test_maps_are_enlarged_between_centres(rng):
    maps = rng.random((3, 4, 5))
    found = focus.enlarge(maps, (8, 10))
    for y in range(8):
        for x in range(10):
            v, u = (min(max((k + 0.5) / 2 - 0.5, 0), top) for k, top in ((y, 3), (x, 4)))
            j, i = min(int(v), 2), min(int(u), 3)
            b, a = v - j, u - i
            expected = (1 - b) * ((1 - a) * maps[:, j, i] + a * maps[:, j, i + 1])
            expected += b * ((1 - a) * maps[:, j + 1, i] + a * maps[:, j + 1, i + 1])
            np.testing.assert_allclose(found[:, y, x], expected, atol=1e-10)
    np.testing.assert_array_equal(focus.enlarge(maps, (4, 5)), maps)


# ---- meaning -------------------------------------------------------------------------------------------------------------


def test_maps_at_the_rim_and_in_the_middle_are_told_apart(rng):
    inside = disc()
    share = np.broadcast_to(inside, (N, SIZE, SIZE))
    rim = focus.peripheral_ring(inside[None], 0.1)[0]
    at_rim = run(evidence_of(rim * rng.uniform(0.5, 1, (N, SIZE, SIZE)), share)).finding()
    middle = run(evidence_of(disc(10.0) * rng.uniform(0.5, 1, (N, SIZE, SIZE)), share)).finding()
    for finding, par in ((at_rim, 1.0), (middle, 0.0)):
        rfs, found, _ = finding.estimates
        assert finding.verdict is None and finding.row == "place"
        assert rfs.value == pytest.approx(1.0) and found.value == pytest.approx(par, abs=1e-9)
        assert rfs.n == N and "gives no verdict" in finding.sentence
    outside = run(evidence_of(~inside * np.ones((N, 1, 1)), share)).finding()
    assert outside.estimates[0].value == pytest.approx(0.0) and outside.estimates[1].value is None


def test_a_map_without_preference_has_the_shares_of_the_areas():
    share = np.broadcast_to(disc(), (N, SIZE, SIZE))
    m = run(evidence_of(np.ones((N, 7, 7)), share)).measurements[0]
    assert m.mean.focus.value == pytest.approx(m.mean.area.value) == pytest.approx(disc().mean())
    assert m.mean.peripheral.value == pytest.approx(m.mean.rim.value)
    assert m.mean.entropy.value == pytest.approx(1.0)


def test_a_whole_frame_has_neither_inside_nor_rim(rng):
    share = np.broadcast_to(disc(), (N, SIZE, SIZE)).astype(float).copy()
    share[:10], share[10:15], share[15:18] = 1.0, 0.0, np.nan
    maps = rng.random((N, 7, 7))
    maps[18] = -1.0
    result = run(evidence_of(maps, share))
    m, finding = result.measurements[0], result.finding()
    assert [focus.REASONS[k] for k in m.scores.reason[[0, 10, 15, 18, 19]]] == [
        "the region is the whole frame",
        "the region is empty",
        "no region",
        "no positive value in the map",
        "",
    ]
    scores = m.scores
    assert np.isnan(scores.focus[:19]).all() and np.isnan(scores.peripheral[:19]).all()
    assert not np.isnan(scores.focus[19:]).any()
    assert (~np.isnan(scores.entropy)).sum() == N - 1
    assert finding.estimates[0].n == N - 19 and "10 × the region is the whole frame" in finding.checks[0].note
    everywhere = run(evidence_of(maps, np.ones((N, SIZE, SIZE)))).finding()
    assert everywhere.estimates[0].value is None and "whole frame" in everywhere.estimates[0].reason
    assert everywhere.estimates[2].value is not None and "undefined" in everywhere.sentence


def test_without_a_region_only_the_entropy_is_known(rng):
    finding = run(evidence_of(rng.random((N, 7, 7)))).finding()
    assert [e.value is None for e in finding.estimates] == [True, True, False]
    assert "tokens@fov(patch=4)" in finding.sentence
    blank = run(evidence_of(-np.ones((N, 7, 7)))).finding()
    assert blank.estimates[2].value is None and "No map has a positive value" in blank.sentence


def test_intervals_hold_the_mean_and_subjects_widen_them(rng):
    share = np.broadcast_to(disc(), (N, SIZE, SIZE))
    weight = np.repeat(rng.uniform(0.1, 3.0, 8), 5)
    maps = disc() * weight[:, None, None] + ~disc() * np.ones((N, 1, 1))
    alone = run(evidence_of(maps, share), B=1000).measurements[0]
    grouped = run(evidence_of(maps, share, subject=np.repeat([f"s{i}" for i in range(8)], 5)), B=1000).measurements[0]
    assert grouped.mean.focus.high - grouped.mean.focus.low > 1.5 * (alone.mean.focus.high - alone.mean.focus.low)
    assert grouped.n_subjects == 8 and alone.n_subjects is None


def test_what_is_reported_are_the_means_of_equations_25_and_26_and_their_bootstrap(rng):
    """Twins: plain sums over images that have the score, and the quantiles of means over resampled images."""
    share = np.broadcast_to(disc(), (N, SIZE, SIZE))
    maps = rng.normal(size=(N, SIZE, SIZE))
    maps[3], maps[5] = -1.0, np.where(disc(), -1.0, 1.0)  # nothing positive, and nothing inside: no ratio of the latter
    found = run(evidence_of(maps, share), B=4000).measurements[0]
    for interval, values, known in (
        (found.mean.focus, found.scores.focus, N - 1), (found.mean.peripheral, found.scores.peripheral, N - 2),
        (found.mean.entropy, found.scores.entropy, N - 1),
    ):  # fmt: skip
        defined = [float(v) for v in values if not math.isnan(v)]
        assert len(defined) == known
        assert interval.value == pytest.approx(sum(defined) / len(defined), abs=1e-6)
        draws = [rng.choice(defined, len(defined)).mean() for _ in range(4000)]
        low, high = np.quantile(draws, [0.025, 0.975])
        wide = high - low
        assert abs(interval.low - low) < 0.12 * wide and abs(interval.high - high) < 0.12 * wide


def test_the_row_of_a_table_has_the_columns_that_it_always_had(rng):
    share = np.broadcast_to(disc(), (N, SIZE, SIZE))
    row = scalars(run(evidence_of(rng.random((N, 7, 7)), share)).measurements[0])
    means = ("mean_focus", "mean_peripheral", "mean_entropy", "mean_area", "mean_rim")
    with_limits = [f"{mean}{limit}" for mean in means for limit in ("", "_low", "_high")]
    assert list(row) == ["model", "maps", "region", "width", "n", "left_out", "no_region", *with_limits, "no_pictures"]


def test_several_models_masks_and_blocks(rng, monkeypatch):
    share = np.broadcast_to(disc(), (N, SIZE, SIZE))
    maps = rng.random((N, 7, 7))
    models = [evidence_of(maps, share, region="tokens@mask(patch=4)", name=f"m{k}") for k in range(2)]
    result = run({"test": models}, region="mask")
    assert result.measurements[0].region == "mask"
    table = next(e for e in result.finding().exhibits if e.title == "By model")
    assert [row[0] for row in table.rows] == ["m0", "m1"]
    monkeypatch.setattr(focus, "BLOCK", 7)
    again = run({"test": models}, region="mask").measurements[0]
    np.testing.assert_array_equal(again.scores.focus, result.measurements[0].scores.focus)


def test_volumes_are_measured_too(rng):
    ball = np.zeros((12, 12, 12), bool)
    ball[3:9, 3:9, 3:9] = True
    found = run(evidence_of(rng.random((6, 3, 3, 3)), np.broadcast_to(ball, (6, 12, 12, 12))), pictures=2).measurements[0]
    assert not np.isnan(found.scores.focus).any() and found.no_pictures == "the cohort has no images"


def test_the_gallery_has_pictures(tmp_path, rng):
    paths = [str(tmp_path / f"{k}.png") for k in range(8)]
    for path in paths:
        Image.fromarray(np.full((32, 32, 3), 90, np.uint8)).save(path)
    models = evidence_of(rng.random((8, 7, 7)), np.broadcast_to(disc(), (8, SIZE, SIZE)), image=paths)
    gallery = next(e for e in run(models, pictures=4).finding().exhibits if e.kind == "gallery")
    assert len(gallery.items) == 4 and gallery.items[0].values["entropy"] is not None


# ---- refused -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "what"),
    [({"region": "retina"}, "fov"), ({"cell": 0}, "at least 1"), ({"width": 0.0}, "0 < width"), ({"no_such": 1}, "no_such")],
)
def test_a_bad_setting_is_refused(rng, settings, what):
    with pytest.raises(SettingError, match=what):
        run(evidence_of(rng.random((4, 7, 7))), **settings)


def test_bad_input_is_refused(rng):
    with pytest.raises(DataError, match="first axis images"):
        focus.attention_mass(np.ones(4))
    with pytest.raises(DataError, match="booleans"):
        focus.peripheral_ring(np.ones((1, 4, 4)))
    with pytest.raises(NotRun, match="maps@attention"):
        run(evidence_of(rng.random((4, 7, 7))), maps="attention")
    with pytest.raises(EvidenceError, match="axes"):
        run(evidence_of(rng.random((4, 7, 7)), np.ones((4, 12, 12, 12))))


def test_the_contract_is_kept(monkeypatch):
    original = testing.synthetic_evidence

    def with_maps(*args, **settings):
        found = original(*args, **{k: v for k, v in settings.items() if k != "maps"})
        rng = np.random.default_rng(settings.get("seed", 0))
        n = len(found.on("test"))
        found.put("test", "maps@gradcam", rng.normal(size=(n, 6, 6)).astype(np.float32))
        found.put("test", FOV, np.broadcast_to(disc(9.0, 24), (n, 24, 24)).astype(np.float32))
        return found

    monkeypatch.setattr(testing, "synthetic_evidence", with_maps)
    finding = testing.check_audit("focus", B=100)
    assert finding.verdict is None and finding.estimates[0].value is not None
