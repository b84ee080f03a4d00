"""The planted worlds of the calibration (benchmarks/worlds): what is drawn, what is hidden, what is kept, what is found."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.special import expit

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

sys.path.insert(0, str(Path(__file__).parent.parent))

import benchmarks.worlds as bench  # noqa: E402
from benchmarks.worlds import judge, kinds, place, tables  # noqa: E402
from benchmarks.worlds.kinds import World, worlds  # noqa: E402

from rightreasons.case import Vote, combine  # noqa: E402
from rightreasons.data import planted  # noqa: E402

NO_CUE = World("no cue", "digits", "none", "cnn", 3, True, {"agreement": 0.9, "n": 400}, unrelated=kinds.UNRELATED)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """One epoch and the fewest references: what is judged is the bookkeeping, not the models."""
    monkeypatch.setattr(judge, "NETWORKS", {"cnn": ("small_cnn", {**judge.PLAN, "epochs": 2})})
    monkeypatch.setattr(judge, "BASELINES", 1)
    monkeypatch.setattr(judge, "ATTRIBUTES", 1)


def test_worlds_of_a_seed_are_the_same_and_their_names_differ() -> None:
    found = worlds(60, 1, ("cnn", "vit"))
    assert found == worlds(60, 1, ("cnn", "vit"))
    assert len({world.name for world in found}) == 60
    assert found[:20] == worlds(20, 1, ("cnn", "vit"))
    assert {world.kind for world in found} == {"shortcut", *kinds.NULLS}
    assert not {world.seed for world in found} & {world.seed for world in worlds(60, 0, ("cnn", "vit"))}


@pytest.mark.parametrize("base", ["digits", "eyes"])
def test_an_audit_sees_neither_the_twins_nor_their_attribute(base: str, tmp_path: Path) -> None:
    cue = {"digits": "tag", "eyes": "rim"}[base]
    tables = judge.Tables.of(World("shortcut", base, cue, "cnn", 0, False, {"agreement": 0.9, "n": 200}), tmp_path / "world")
    assert tables.hidden.twin is None and tables.free.twin is None and tables.twins["cue"].twin is not None
    assert not [name for name in (*tables.hidden.columns, *tables.free.columns) if "twin" in name or "true" in name]
    agreement = [(t.on("train").attribute("cue").values == t.on("train").label).mean() for t in (tables.hidden, tables.free)]
    assert agreement == pytest.approx([0.9, 0.5], abs=0.02)
    assert (tables.hidden.on("test").attribute().values == tables.free.on("test").attribute().values).all()


def test_unrelated_attributes_go_with_the_label_in_the_training_rows_alone(tmp_path: Path) -> None:
    tables = judge.Tables.of(
        World("no cue", "digits", "none", "cnn", 0, True, {"agreement": 0.9}, unrelated=(0.95,)), tmp_path / "w"
    )
    agrees = {
        (name, split): (t.on(split).attribute("unrelated 0").values == t.on(split).label).mean()
        for name, t in (("hidden", tables.hidden), ("free", tables.free))
        for split in ("train", "test")
    }
    assert agrees["hidden", "train"] == pytest.approx(0.95, abs=0.03)
    assert agrees["free", "train"] == pytest.approx(0.5, abs=0.06)
    assert agrees["hidden", "test"] == agrees["free", "test"] == pytest.approx(0.5, abs=0.1)


def test_imbalance_is_the_share_of_label_one(tmp_path: Path) -> None:
    for base, cue in (("digits", "tag"), ("eyes", "rim")):
        world = World("shortcut", base, cue, "cnn", 0, False, {"agreement": 0.9, "n": 300, "prevalence": 0.3})
        assert world.make(tmp_path / base).label.mean() == pytest.approx(0.3, abs=0.02)


def test_a_slant_moves_whole_pixels_and_its_twin_leans_the_other_way(tmp_path: Path) -> None:
    cohort = planted.digits(tmp_path / "w", cue="slant", n=40, seed=0)
    images, twins = (np.load(tmp_path / "w" / f"{name}.npy") for name in ("images", "twins"))
    assert (np.sort(images, axis=2) == np.sort(twins, axis=2)).all()  # the same pixels in every row, at other places
    lean = cohort.attribute().values
    masks = np.load(tmp_path / "w" / "masks.npy")
    above = [masks[lean == value][:, :12].nonzero()[2].mean() for value in (0, 1)]
    below = [masks[lean == value][:, 20:].nonzero()[2].mean() for value in (0, 1)]
    assert above[0] < below[0] + 1 and above[1] > above[0] + 1 and below[1] < below[0] - 1
    assert (images[:, 15:17] == twins[:, 15:17]).all()  # the middle stays


def test_overlap_of_a_region_with_the_cue() -> None:
    cue = np.zeros((3, 8, 8), bool)
    cue[:2, :4, :4] = True
    scores = np.zeros((3, 8, 8))
    scores[0, :4, :4] = 2.0
    scores[1, 4:, 4:] = 2.0
    scores[1, :2, :4] = 1.0
    iou, pointed = place.overlap(scores, cue)  # the third map has no cue and does not count
    assert iou == pytest.approx((1 + 8 / 32) / 2, abs=1e-4)
    assert pointed == 0.5
    assert place.overlap(np.zeros((1, 8, 8)), cue[:1]) == (0.0, 0.0)  # a map that finds nothing points nowhere


def test_operators_that_remember_give_the_same_pixels_and_tell_twins_apart() -> None:
    from rightreasons.perturbations import nuisance

    x = torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    seeds = np.array([1, 2], dtype=np.uint64)
    plain = {image: nuisance.grain(image_of, seeds, severity=0.1) for image, image_of in (("own", x), ("twin", 1 - x))}
    original = nuisance.grain
    with judge.remembered():
        for _ in range(2):
            assert torch.equal(nuisance.grain(x, seeds, severity=0.1), plain["own"])
        assert torch.equal(nuisance.grain(1 - x, seeds, severity=0.1), plain["twin"])
        assert not torch.equal(nuisance.grain(x, seeds, severity=0.2), plain["own"])
    assert nuisance.grain is original


def test_models_trained_as_one_are_those_trained_one_by_one(tmp_path: Path, quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World("shortcut", "digits", "tag", "cnn", 0, False, {"agreement": 0.9, "n": 300})
    tables = judge.Tables.of(world, tmp_path / "w")
    single = judge.trained(world, tables.hidden, ["a", "b"], "cue")
    monkeypatch.setattr(judge, "IS_BATCHED", True)
    together = judge.trained(world, tables.hidden, ["a", "b"], "cue")
    test = tables.hidden.on("test")
    for one, other in zip(single, together, strict=True):
        np.testing.assert_allclose(judge._read(other, test, "logits"), judge._read(one, test, "logits"), atol=1e-2)


def test_a_projected_head_answers_the_twin_as_the_image(tmp_path: Path) -> None:
    world = World("projected head", "digits", "tag", "cnn", 0, True, {"agreement": 0.95, "n": 600}, kinds.PROJECTED)
    tables = judge.Tables.of(world, tmp_path / "w")
    (model,) = judge.trained(world, tables.hidden, ["model"])
    test = tables.twins["cue"].on("test")

    def reliance(one: object) -> float:
        before, after = (judge._read(one, rows, "logits") @ [-1, 1] for rows in (test, test.twins()))  # type: ignore[arg-type]
        return float(np.abs(expit(after) - expit(before)).mean())

    new = judge.projected(model, tables.twins["cue"])
    assert reliance(new) < 0.03 < 0.2 < reliance(model)
    assert (judge._read(new, test, "logits").argmax(axis=1) == test.label).mean() > 0.7  # and it can still tell the label
    assert (judge._read(new, test, "features") == judge._read(model, test, "features")).all()


def test_a_judged_world_is_written_once_and_can_be_read_again(tmp_path: Path, quick: None) -> None:
    bench._world(NO_CUE, tmp_path, 2, float("inf"))
    rows = bench.read([NO_CUE, kinds.worlds(1, 5, ("cnn",))[0]], tmp_path)
    assert len(rows) == 8 and set(rows["attribute"]) == {"cue", "unrelated 0", "unrelated 1", "unrelated 2"}
    assert (rows["reliance"] == 0).all() and rows["is_null"].all() and rows.groupby(["world", "model"]).ngroups == 2
    with np.load(tmp_path / f"{NO_CUE.name}.npz") as arrays:
        assert arrays["features 1"].shape == (len(arrays["label"]), 64) and arrays["features 1"].dtype == np.float16
    for row in json.loads((tmp_path / f"{NO_CUE.name}.json").read_text()):
        voters = [name for name in judge.AUDITS["cnn"] if row.get(f"{name} verdict") in tables.VERDICTS]
        parts = ("row", "verdict", "effect", "standing", "alike", "looked")
        again = combine(Vote(*(row[f"{name} {part}"] for part in parts)) for name in voters)
        assert (again.verdict, again.score) == (row["case verdict"], row["case score"])  # a row has all that the rule needs
        assert "flips verdict" not in row
    before = (tmp_path / f"{NO_CUE.name}.json").stat().st_mtime_ns
    bench.run([NO_CUE], tmp_path, 2, 0.0)
    assert (tmp_path / f"{NO_CUE.name}.json").stat().st_mtime_ns == before


def test_no_world_is_begun_after_its_seconds(tmp_path: Path) -> None:
    bench._world(NO_CUE, tmp_path, 1, 0.0)
    assert not list(tmp_path.iterdir())
