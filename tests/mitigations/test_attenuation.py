"""Attenuation: Algorithm 2 to the number, networks that keep their identity, folds that do not leak, maps that are far away."""

from __future__ import annotations

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from rightreasons.data import planted  # noqa: E402
from rightreasons.errors import DataError, ModelError, SettingError  # noqa: E402
from rightreasons.extraction import read  # noqa: E402
from rightreasons.mitigations import _check, attenuation, mitigate  # noqa: E402
from rightreasons.models.classifier import Classifier  # noqa: E402
from rightreasons.models.grouped_rows import Rows, grouped  # noqa: E402
from rightreasons.models.training import train  # noqa: E402
from rightreasons.partitions import grid  # noqa: E402
from rightreasons.remedy import WORST, own_finding  # noqa: E402
from rightreasons.stats import groups  # noqa: E402
from rightreasons.stats.spatial import region_centroids  # noqa: E402

pytestmark = pytest.mark.torch


# ---- the formula ----------------------------------------------------------------------------------------------------------


def _algorithm_2(F: np.ndarray, rcs: np.ndarray, alpha: float, beta: float, eps: float = 1e-8) -> np.ndarray:
    """Steps 2 to 5 of OSCAR's Algorithm 2, one number after the other."""
    B, C, H, W = F.shape
    z = np.zeros((B, C))
    largest = max(abs(rcs[u, v]) for u in range(H) for v in range(W))
    for b in range(B):
        for c in range(C):
            above = below = 0.0
            for u in range(H):
                for v in range(W):
                    w = rcs[u, v] / (largest + eps)
                    s = alpha if w < 0 else beta
                    a = 1 - w * s
                    above += a * F[b, c, u, v]
                    below += a
            z[b, c] = above / (below + eps)
    return z


@pytest.mark.parametrize(("alpha", "beta"), [(0, 0), (0.25, 1), (5, 0), (0, 10), (50, 30)])
def test_weighted_pooling_is_algorithm_2(rng, alpha: float, beta: float) -> None:
    F, rcs = rng.normal(size=(3, 4, 5, 6)), rng.normal(size=(5, 6))
    found = attenuation.weighted_pool(torch.from_numpy(F), torch.from_numpy(rcs), alpha, beta).numpy()
    np.testing.assert_allclose(found, _algorithm_2(F, rcs, alpha, beta), rtol=1e-10)


def test_no_weighting_is_the_average(rng) -> None:
    F = torch.from_numpy(rng.normal(size=(2, 3, 4, 4)))
    np.testing.assert_allclose(attenuation.weighted_pool(F, rng.normal(size=(4, 4)), 0, 0), F.mean((2, 3)), rtol=1e-8)


def test_volumes_are_pooled_too_and_another_shape_is_refused(rng) -> None:
    F = torch.from_numpy(rng.normal(size=(2, 3, 2, 3, 4)))
    assert attenuation.weighted_pool(F, rng.normal(size=(2, 3, 4)), 1, 1).shape == (2, 3)
    with pytest.raises(DataError, match="same places"):
        attenuation.weighted_pool(F, rng.normal(size=(3, 4)), 1, 1)


def test_the_quadrant_form_never_strengthens_and_never_turns_round(rng) -> None:
    values = np.maximum(rng.normal(size=(4, 4)), 0)
    for beta in attenuation.GRIDS["quadrant"][1]:
        weight = attenuation.spatial_weight(values, 0.0, beta)
        assert weight.min() >= 0
        assert weight.max() <= 1


@pytest.mark.parametrize(("source", "target"), [((8, 8), (4, 4)), ((7, 10), (3, 4)), ((6, 6), (6, 6)), ((4, 6, 9), (2, 4, 3))])
def test_area_averages_keep_the_mean_and_count_parts_of_pixels(rng, source, target) -> None:
    image = rng.normal(size=source)
    found = attenuation.area_average(image, target)
    fine = image  # every pixel cut into target parts along each axis, so that no place shares one
    for axis, parts in enumerate(target):
        fine = np.repeat(fine, parts, axis=axis)
    for axis, (size, parts) in enumerate(zip(source, target, strict=True)):
        shape = [*fine.shape[:axis], parts, size, *fine.shape[axis + 1 :]]
        fine = fine.reshape(shape).mean(axis=axis + 1)
    np.testing.assert_allclose(found, fine, atol=1e-12)
    np.testing.assert_allclose(found.mean(), image.mean())


# ---- random maps ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("shape", "cells"), [((32, 32), 8), ((64, 64), 16), ((32, 64), (4, 8))])
def test_random_maps_move_every_value_at_least_half_the_side(rng, shape, cells) -> None:
    centroids = region_centroids(grid(shape, cells))
    moves = attenuation.far_permutations(centroids, shape, 10, rng)
    assert moves.distance == 0.5
    assert len({tuple(move) for move in moves}) == 10
    for move in moves:
        assert sorted(move) == list(range(len(centroids)))
        assert np.linalg.norm(centroids[move] - centroids, axis=1).min() >= max(shape) / 2 - 1e-9


def test_a_grid_that_allows_no_such_map_says_how_far_its_values_moved(rng) -> None:
    moves = attenuation.far_permutations(region_centroids(grid((9, 9), 3)), (9, 9), 3, rng)
    assert 0 < moves.distance < 0.5


# ---- the network ----------------------------------------------------------------------------------------------------------


class _FunctionalPool(nn.Module):
    """Pools by a function, so that the map is the output of a layer; rectified before, channels last or one logit on demand."""

    def __init__(self, rectified: bool, last: bool, outputs: int) -> None:
        super().__init__()
        self.rectified, self.last = rectified, last
        self.body = nn.Sequential(nn.Conv2d(3, 6, 3, stride=2), nn.Tanh(), nn.Conv2d(6, 5, 3))
        self.turn = nn.Identity()
        self.fc = nn.Linear(5, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        maps = self.body(x)
        maps = torch.relu(maps) if self.rectified else maps
        maps = self.turn(maps.movedim(1, -1)) if self.last else maps
        return self.fc(maps.mean((1, 2) if self.last else (2, 3)))


def _networks() -> dict[str, Classifier]:
    generator = torch.Generator().manual_seed(0)
    small = Classifier.load("rightreasons.models.small:small_cnn", num_classes=3, size=(16, 16), width=4)
    timm = Classifier.load("timm:test_resnet", num_classes=2, size=(96, 96))
    functional = {
        f"functional {r} {last} {C}": Classifier.wrap(_FunctionalPool(r, last, C), size=16)
        for r, last, C in ((False, False, 2), (True, False, 3), (False, True, 1))
    }
    for each in functional.values():
        with torch.no_grad():
            for p in each.module.parameters():
                p.copy_(torch.randn(p.shape, generator=generator) * 0.3)
    return {"small": small, "timm": timm, **functional}


NETWORKS = _networks()


@pytest.mark.parametrize("name", NETWORKS)
def test_an_attenuated_network_pools_with_the_weights_and_keeps_its_identity(name: str, rng) -> None:
    old = NETWORKS[name]
    x = torch.randn(3, 3, *old.geometry.size, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        maps = old.spatial(x)
        values = rng.random(maps.shape[2:])
        new = attenuation.attenuated(old, attenuation.spatial_weight(values, 0.0, 0.75))
        expected = old.pooled_head(attenuation.weighted_pool(maps.double(), values, 0.0, 0.75).float().numpy())
        np.testing.assert_allclose(new.logits(x).numpy(), expected, atol=1e-4 * max(1, np.abs(expected).max()))
        torch.testing.assert_close(new.head(new.features(x)), new.logits(x), rtol=1e-4, atol=1e-5)
        pooled = new.spatial(x).flatten(2).mean(2).numpy()
        np.testing.assert_allclose(new.pooled_head(pooled), expected, atol=1e-4 * max(1, np.abs(expected).max()))
        assert not torch.allclose(new.logits(x), old.logits(x))
    assert new.fingerprint != old.fingerprint


@pytest.mark.parametrize("name", ["small", "timm"])
def test_an_attenuated_network_is_opened_as_it_was_saved_and_attenuated_again(name: str, rng, tmp_path) -> None:
    old = NETWORKS[name]
    x = torch.randn(3, 3, *old.geometry.size, generator=torch.Generator().manual_seed(1))
    space = old.spatial(x).shape[2:]
    once = attenuation.attenuated(old, rng.random(space))
    twice = attenuation.attenuated(once, rng.random(space))
    for k, each in enumerate((once, twice)):
        opened = Classifier.open(each.save(tmp_path / str(k)))
        assert torch.equal(opened.logits(x), each.logits(x))
        assert torch.equal(opened.spatial(x), each.spatial(x))


def test_a_wrapped_network_is_opened_into_the_same_place(rng, tmp_path) -> None:
    old = NETWORKS["functional False False 2"]
    x = torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    space = old.spatial(x).shape[2:]
    new = attenuation.attenuated(old, rng.random(space))
    module = attenuation.weighing(_FunctionalPool(False, False, 2), old.cut.spatial, space, old.cut.spatial_last)
    assert torch.equal(Classifier.open(new.save(tmp_path), module=module).logits(x), new.logits(x))


def test_a_network_without_a_pooled_map_is_refused_by_the_layer_that_was_looked_at(tmp_path) -> None:
    cohort = _check.world(tmp_path, 2)
    vit = _check._trained("vit", cohort)
    with pytest.raises(ModelError, match=r"small_vit.*looked before 'fc_norm'"):
        mitigate("attenuation", vit, cohort, references={"baseline": vit, "attribute": vit})


def test_a_map_that_is_rectified_afterwards_takes_no_negative_weight(tmp_path) -> None:
    rectified = NETWORKS["functional True False 3"]
    with pytest.raises(ModelError, match="rectifies"):
        attenuation._pairs("paper", None, None, rectified)
    assert len(attenuation._pairs("quadrant", None, None, rectified)) == 4


# ---- the protocol ---------------------------------------------------------------------------------------------------------

N, SPACE = 160, (4, 4)
CUE, TASK = 0, 15  # the places that the shortcut and the task use


def _planted(rng: np.random.Generator, tmp_path) -> tuple[attenuation._Seen, Rows]:
    """What models would say in which place 0 follows the attribute, place 15 the label, and the profiles show it."""
    cohort = _check.world(tmp_path, 2)
    audit = cohort.on("audit")
    rows = grouped(NETWORKS["timm"], audit, "cue")
    n = len(rows)
    places = rng.normal(0, 0.3, (n, 2, 16))
    places[:, 1, CUE] += 6.0 * (2 * rows.a - 1)
    places[:, 1, TASK] += 3.0 * (2 * rows.y - 1)

    def ranks(*first: int) -> np.ndarray:
        scores = rng.random((n, 16))
        for k, place in enumerate(first):
            scores[:, place] = 3 - k
        return np.argsort(np.argsort(-scores, axis=1), axis=1) + 1.0

    models = {"test": [ranks(CUE, TASK)], "baseline": [ranks(TASK)], "attribute": [ranks(CUE)]}
    seen = attenuation._Seen(models, grid(SPACE, 4), places, np.zeros(2), SPACE, places.mean(2))
    return seen, rows


@pytest.mark.parametrize("form", ["quadrant", "paper"])
def test_a_planted_place_is_found_and_weakened_on_rows_that_did_not_choose(form: str, rng, tmp_path) -> None:
    seen, rows = _planted(rng, tmp_path)
    pairs = attenuation._pairs(form, None, None, NETWORKS["small"])
    fold = attenuation._folds(rows, 4, rng)
    after = attenuation._out_of_fold(seen, rows, fold, None, form, pairs, 0.005)
    before = groups.worst_group_accuracy(rows.y, seen.before.argmax(1), rows.a)
    assert before < 0.1
    assert groups.worst_group_accuracy(rows.y, after.argmax(1), rows.a) > 0.9
    chosen = attenuation._tuned(seen, rows, fold != 0, None, form, pairs, 0.005)
    assert chosen.pair is not None
    assert np.argmax(chosen.values) == CUE
    if form == "quadrant":
        moves = attenuation.far_permutations(region_centroids(seen.regions), SPACE, 5, rng)
        for move in moves:
            moved = attenuation._out_of_fold(seen, rows, fold, move, form, pairs, 0.005)
            assert groups.worst_group_accuracy(rows.y, moved.argmax(1), rows.a) < 0.2


def test_folds_are_stratified_and_a_folds_choice_never_sees_its_rows(rng, tmp_path) -> None:
    seen, rows = _planted(rng, tmp_path)
    pairs = attenuation._pairs("paper", None, None, NETWORKS["small"])
    fold = attenuation._folds(rows, 4, rng)
    assert (np.stack([np.bincount(rows.group[fold == k], minlength=4) for k in range(4)]) == 8).all()
    held = fold == 2
    broken = {
        role: [np.where(held[:, None], rng.permutation(16) + 1.0, of) for of in ranks] for role, ranks in seen.ranks.items()
    }
    other = attenuation._Seen(
        broken,
        seen.regions,
        np.where(held[:, None, None], rng.normal(size=seen.places.shape), seen.places),
        seen.head,
        SPACE,
        seen.before,
    )
    one, same = (attenuation._tuned(s, rows, ~held, None, "paper", pairs, 0.005) for s in (seen, other))
    assert one.pair == same.pair
    assert (one.weight == same.weight).all()


def test_pooled_sums_give_what_each_pair_gives_alone(rng, tmp_path) -> None:
    seen, _ = _planted(rng, tmp_path)
    pairs = attenuation._pairs("paper", None, None, NETWORKS["small"])
    values, index = rng.normal(size=SPACE), np.arange(10)
    found = seen.logits(index, values, pairs)
    maps = torch.from_numpy(seen.places[index].reshape(10, 2, *SPACE))
    for k, (alpha, beta) in enumerate(pairs):
        if abs(attenuation.spatial_weight(values, alpha, beta).sum()) > attenuation.SMALLEST_SUM:
            np.testing.assert_allclose(
                found[k], attenuation.weighted_pool(maps, values, alpha, beta).numpy(), rtol=1e-6, atol=1e-9
            )


def test_scores_of_many_pairs_are_those_of_the_statistics(rng, tmp_path) -> None:
    _, rows = _planted(rng, tmp_path)
    index = np.flatnonzero(rng.random(len(rows)) < 0.8)
    predicted = rng.integers(0, 2, (5, len(index)))
    worst, balanced = attenuation._scores(predicted == rows.y[index], rows, index)
    for k in range(5):
        assert worst[k] == pytest.approx(groups.worst_group_accuracy(rows.y[index], predicted[k], rows.a[index]))
        assert balanced[k] == pytest.approx(groups.balanced_accuracy(rows.y[index], predicted[k]))


def test_weights_that_sum_to_nothing_are_not_chosen(rng, tmp_path, monkeypatch) -> None:
    seen, rows = _planted(rng, tmp_path)
    monkeypatch.setattr(attenuation._Seen, "map", lambda *_: np.ones(SPACE))  # beta = 1 would leave no weight anywhere
    assert abs(attenuation.spatial_weight(np.ones(SPACE), 0, 1).sum()) < attenuation.SMALLEST_SUM
    pairs = attenuation._pairs("quadrant", None, [1.0], NETWORKS["small"])
    chosen = attenuation._tuned(seen, rows, np.ones(len(rows), bool), None, "quadrant", pairs, 0.005)
    assert chosen.pair is None
    assert "no pair is better" in chosen.reason


def test_a_map_of_nothing_leaves_the_model_as_it_is_and_says_so(rng, tmp_path) -> None:
    seen, rows = _planted(rng, tmp_path)
    same = attenuation._Seen(
        dict.fromkeys(seen.ranks, seen.ranks["test"]), seen.regions, seen.places, seen.head, SPACE, seen.before
    )
    pairs = attenuation._pairs("quadrant", None, None, NETWORKS["small"])
    chosen = attenuation._tuned(same, rows, np.ones(len(rows), bool), None, "quadrant", pairs, 0.005)
    assert chosen.pair is None
    assert "undefined" in chosen.reason or "no region" in chosen.reason


# ---- through the front door -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    cohort = _check.world(tmp_path_factory.mktemp("world"), 2)
    return cohort, _check._trained("cnn", cohort), _check._trained("cnn", cohort, "cue")


def _run(models, **settings):
    cohort, model, attribute = models
    quick = {"random_maps": 2, "B": 50, "device": "cpu", "threads": 1, "workers": 1, "attribute": "cue"}
    references = {"baseline": [model, model], "attribute": attribute}
    return mitigate("attenuation", model, cohort, references=references, **{**quick, **settings})


def test_the_card_holds_the_table_and_what_random_maps_gained(models) -> None:
    cohort = models[0]
    new = _run(models, form="paper")
    chosen = new.card["mitigation"]["chosen"]
    assert json.loads(json.dumps(chosen)) == chosen
    assert len(chosen["random gains"]) == 2
    assert set(cohort.on("audit").id) <= new.used
    finding = own_finding(new.card["mitigation"], model="new")
    assert finding is not None
    assert finding.row == "remedy"
    assert finding.estimates[0].name == f"{WORST}, difference"
    assert "specific to the map" in finding.sentence


def test_the_logits_that_are_tuned_are_those_of_the_network(models) -> None:
    """The model handed on says what the sums of places said when it was chosen."""
    cohort, model, _ = models
    rows = grouped(model, cohort.on("audit"), "cue")
    how = {"batch": 32, "device": "cpu", "threads": 1, "workers": 1}
    seen = attenuation._Seen.of(model, {"baseline": [model], "attribute": [models[2]]}, rows, "gradcam", None, how)
    values = np.random.default_rng(0).random(seen.space)
    new = attenuation.attenuated(model, attenuation.spatial_weight(values, 0, 1.0))
    found = read(new, rows.cohort, **how)["logits"]
    np.testing.assert_allclose(seen.logits(np.arange(len(rows)), values, np.array([[0.0, 1.0]]))[0], found, atol=1e-4)


def test_models_of_the_wrong_column_or_another_crop_are_refused(models) -> None:
    cohort, model, attribute = models
    with pytest.raises(SettingError, match=r"attribute model .* predicts the label, expected 'cue'"):
        mitigate("attenuation", model, cohort, references={"baseline": model, "attribute": model})
    with pytest.raises(SettingError, match=r"baseline model .* predicts 'cue', expected the label"):
        mitigate("attenuation", model, cohort, references={"baseline": attribute, "attribute": attribute})
    cropped = Classifier.load("rightreasons.models.small:small_cnn", num_classes=2, size=(16, 16), width=4, crop=0.5)
    with pytest.raises(ModelError, match="one crop only"):
        mitigate("attenuation", model, cohort, references={"baseline": cropped, "attribute": attribute})


def test_settings_without_a_meaning_are_refused(models) -> None:
    for settings, said in (
        ({"form": "both"}, "quadrant or paper"),
        ({"betas": [2.0]}, "at most 1"),
        ({"folds": 1}, "at least 2"),
    ):
        with pytest.raises(SettingError, match=said):
            _run(models, **settings)


def test_rows_that_a_model_was_fitted_on_tune_nothing(models) -> None:
    cohort, model, attribute = models
    greedy = model.copy()
    greedy.used = frozenset(cohort.on("audit").id)
    with pytest.raises(DataError, match="new to them"):
        mitigate("attenuation", greedy, cohort, references={"baseline": model, "attribute": attribute})


@pytest.mark.slow
def test_a_tag_on_digits_is_weakened_and_the_gain_belongs_to_its_place(tmp_path) -> None:
    world = planted.digits(tmp_path, agreement=0.95, seed=0)
    redrawn = planted.redrawn(tmp_path)

    def trained(cohort, target=None):
        start = Classifier.load(
            "rightreasons.models.small:small_cnn", num_classes=2, classes=cohort.classes, size=(32, 32), mean=0.5, std=0.5
        )
        return train(start, cohort, target=target, epochs=8, lr=3e-3, seed=0, device="cpu", threads=1)

    references = {"baseline": trained(redrawn), "attribute": trained(redrawn, world.attributes[0])}
    new = mitigate("attenuation", trained(world), world, references=references, device="cpu", threads=1)
    chosen = new.card["mitigation"]["chosen"]
    assert chosen["gain"] > 0.2
    assert chosen["specific"]
    assert max(chosen["random gains"]) < 0.05
    weakened = np.array(chosen["map"])
    assert weakened[:4, :4].sum() > 0.8 * weakened.sum()  # the tag is in the first corner
