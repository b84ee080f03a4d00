"""Models trained as one are the models that training one by one gives."""

import multiprocessing
import re
import time
from functools import partial

import numpy as np
import pandas as pd
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from rightreasons.data import planted  # noqa: E402
from rightreasons.errors import SettingError, TrainingError  # noqa: E402
from rightreasons.models import batched  # noqa: E402
from rightreasons.models.batched import GROUP, is_small, refusal, train_batched  # noqa: E402
from rightreasons.models.classifier import Classifier  # noqa: E402
from rightreasons.models.stacked_optimizer import StackedOptimizer, schedule_factors  # noqa: E402
from rightreasons.models.training import cross_entropy, train  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_quiet_thread")]

LOSS_TOLERANCE, WEIGHT_TOLERANCE = 1e-3, 5e-3  # float32: Adam turns the last bits of a small gradient into whole steps
QUICK = {"epochs": 3, "batch": 32, "lr": 3e-3, "patience": None, "device": "cpu"}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return tmp_path_factory.mktemp("digits")


@pytest.fixture(scope="module")
def cohort(world):
    return planted.digits(world, n=240, pixels=16)


def cnn(seed=0, **settings):
    given = {"num_classes": 2, "size": 16, "width": 4, **settings}
    return Classifier.load("rightreasons.models.small:small_cnn", rng=np.random.default_rng(seed), **given)


def vit(seed=0):
    given = {"num_classes": 2, "size": 16, "dim": 16, "depth": 2, "heads": 2}
    return Classifier.load("rightreasons.models.small:small_vit", rng=np.random.default_rng(seed), **given)


def mlp(seed=0, *extra):
    torch.manual_seed(seed)
    return Classifier.wrap(nn.Sequential(nn.Flatten(), nn.Linear(768, 16), nn.ReLU(), *extra, nn.Linear(16, 2)), size=16)


def off(one, two):
    """Largest difference between two classifiers' tensors."""
    pairs = zip(one.module.state_dict().values(), two.module.state_dict().values(), strict=True)
    return max(float((a.double() - b.double()).abs().max()) for a, b in pairs)


def assert_same_training(together, alone):
    for a, b in zip(together, alone, strict=True):
        assert a.card["selected_epoch"] == b.card["selected_epoch"]
        one, two = (pd.DataFrame(model.card["curves"]) for model in (a, b))
        assert list(one) == list(two)
        assert len(one) == len(two)
        np.testing.assert_allclose(one["loss"], two["loss"], rtol=LOSS_TOLERANCE)
        np.testing.assert_allclose(one["val_loss"], two["val_loss"], rtol=LOSS_TOLERANCE)
        np.testing.assert_allclose(one["lr"], two["lr"], rtol=1e-12, atol=1e-18)
        assert off(a, b) < WEIGHT_TOLERANCE
        assert a.used == b.used
        assert a.training == b.training
        assert {**a.card, "curves": 0, "metric": 0} == {**b.card, "curves": 0, "metric": 0}


# ---- as one by one ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [cnn, vit, mlp])
@pytest.mark.parametrize("optimizer", ["adamw", "adam", "sgd"])
def test_models_trained_as_one_are_those_trained_one_by_one(cohort, make, optimizer):
    settings = [
        {**QUICK, "optimizer": optimizer, "seed": seed, "lr": lr, "weight_decay": decay, "warmup": 0.5}
        for seed in (1, 2)
        for lr, decay in ((3e-3, 0.0), (1e-3, 0.1))
    ]
    starts = [make(k) for k in range(4)]
    before = [start.fingerprint for start in starts]
    together = train_batched(starts, cohort, settings)
    assert [start.fingerprint for start in starts] == before
    assert_same_training(together, [train(start, cohort, **one) for start, one in zip(starts, settings)])


def test_the_loss_falls_far_from_where_it_began(cohort):
    [model] = train_batched([cnn()], cohort, [{**QUICK, "epochs": 8}])
    curve = model.card["curves"]
    assert curve[-1]["loss"] < 0.5 * curve[0]["loss"]


def test_augmentation_weights_and_a_schedule_without_cosine_are_those_of_the_seed(cohort):
    weights = np.random.default_rng(0).uniform(0, 2, len(cohort))
    weights[::7] = 0
    fixed = {**QUICK, "augment": "flip_and_shift", "weights": weights, "schedule": None, "clip": None, "batch": 25}
    settings = [{**fixed, "seed": seed} for seed in (1, 1, 2)]  # unequal numbers of models a seed
    starts = [cnn(k) for k in range(3)]
    assert_same_training(
        train_batched(starts, cohort, settings), [train(start, cohort, **one) for start, one in zip(starts, settings)]
    )


def test_a_model_that_stops_early_leaves_and_the_others_go_on(cohort):
    settings = [{**QUICK, "epochs": 8, "patience": 2, "seed": seed, "lr": lr} for seed in (1, 2) for lr in (3e-4, 1e-9)]
    starts = [mlp(k) for k in range(4)]
    alone = [train(start, cohort, **one) for start, one in zip(starts, settings)]
    lengths = [len(model.card["curves"]) for model in alone]
    assert len(set(lengths)) > 2, "the case must have models that stop at different epochs"
    assert_same_training(train_batched(starts, cohort, settings), alone)


def test_a_target_and_rows_split_by_the_seed_are_as_in_train(cohort):
    without = cohort.select(cohort.splits != "val")
    settings = [{**QUICK, "epochs": 2, "target": cohort.attributes[0], "seed": seed} for seed in (1, 2)]
    starts = [mlp(k) for k in range(2)]
    alone = [train(start, without, **one) for start, one in zip(starts, settings)]
    assert alone[0].training != alone[1].training
    assert_same_training(train_batched(starts, without, settings), alone)


def test_frozen_and_unused_parameters_stay(cohort):
    def start(k):
        model = mlp(k)
        model.module.register_parameter("unused", nn.Parameter(torch.ones(3, 3)))
        model.module[1].weight.requires_grad_(False)
        return model

    settings = [{**QUICK, "weight_decay": 0.5, "seed": seed} for seed in (1, 2)]
    together = train_batched([start(k) for k in range(2)], cohort, settings)
    assert_same_training(together, [train(start(k), cohort, **one) for k, one in enumerate(settings)])
    assert torch.equal(together[0].module.unused, torch.ones(3, 3))


# ---- objectives ---------------------------------------------------------------------------------------------------------


class WithHead(nn.Module):
    """Cross-entropy and, by `weight`, that of an attribute read from the features by a head of its own."""

    def __init__(self, weight, seed=0):
        super().__init__()
        self.weight = weight
        generator = torch.Generator().manual_seed(seed)
        self.head = nn.Linear(16, 2)
        with torch.no_grad():
            self.head.weight.copy_(torch.randn(2, 16, generator=generator) / 4)
            self.head.bias.zero_()

    def forward(self, classifier, batch):
        features, logits = classifier.read(batch.x)
        attribute = next(iter(batch.attributes.values()))
        both = [nn.functional.cross_entropy(*pair) for pair in ((logits, batch.y), (self.head(features), attribute))]
        return both[0] + self.weight * both[1]


def test_objectives_may_learn_and_differ_in_numbers(cohort, tmp_path):
    def objectives():
        return [WithHead(weight, seed) for seed, weight in enumerate((0.0, 0.5, 2.0))]

    settings = [{**QUICK, "seed": 1, "objective": objective} for objective in objectives()]
    alone = [train(cnn(k, width=4), cohort, **one) for k, one in enumerate(settings)]
    ours = objectives()
    folders = [tmp_path / str(k) for k in range(3)]
    together = train_batched(
        [cnn(k, width=4) for k in range(3)], cohort, [{**QUICK, "seed": 1, "objective": o} for o in ours], folders=folders
    )
    for a, b in zip(together, alone):
        np.testing.assert_allclose(*([row["loss"] for row in model.card["curves"]] for model in (a, b)), rtol=LOSS_TOLERANCE)
        assert off(a, b) < WEIGHT_TOLERANCE
    for one, theirs in zip(ours, settings):
        assert torch.allclose(one.head.weight, theirs["objective"].head.weight, atol=WEIGHT_TOLERANCE)
    assert all((folder / "objective.pt").exists() for folder in folders)


def smoothed(classifier, batch, share):
    return (1 - share) * cross_entropy(classifier, batch) - share * classifier.logits(batch.x).log_softmax(1).mean()


def test_partial_objectives_differ_in_their_keywords(cohort):
    settings = [{**QUICK, "objective": partial(smoothed, share=share)} for share in (0.0, 0.3)]
    together = train_batched([mlp(), mlp()], cohort, settings)
    assert_same_training(together, [train(mlp(), cohort, **one) for one in settings])


def noisy(classifier, batch):
    return cross_entropy(classifier, batch) + torch.rand((), generator=batch.generator)


def by_row(classifier, batch):
    return cross_entropy(classifier, batch) * float(batch.rows[0])


@pytest.mark.parametrize(("objective", "says"), [(noisy, "random|generator"), (by_row, "batch.rows")])
def test_objectives_that_draw_or_read_rows_are_refused(cohort, objective, says):
    with pytest.raises(TrainingError, match=says):
        train_batched([mlp(), mlp()], cohort, [{**QUICK, "objective": objective, "seed": seed} for seed in (1, 2)])


# ---- what cannot be -----------------------------------------------------------------------------------------------------


class Assigns(nn.Module):
    """Counts its calls in a buffer that is replaced rather than changed."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(768, 4), nn.Linear(4, 2)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        if self.training:
            self.calls = self.calls + 1
        return self.head(self.body(x.flatten(1)))


class Drops(Assigns):
    def forward(self, x):
        return self.head(nn.functional.dropout(self.body(x.flatten(1)), 0.5, self.training))


@pytest.mark.parametrize(
    ("network", "says"),
    [
        (mlp(0, nn.Dropout(0.2)), "0.2.*draws at random"),
        (Classifier.wrap(Drops(), size=16), "vmap"),
        (Classifier.wrap(Assigns(), size=16), "calls is not changed in place"),
        (Classifier.wrap(nn.Sequential(nn.Flatten(), nn.Linear(768, 3000), nn.Linear(3000, 2)), size=16), "2,313,002 parameters"),
    ],
)
def test_networks_that_cannot_be_stacked_are_refused_with_the_reason(network, says):
    assert re.search(says, refusal(network))


def test_small_networks_can_be_stacked_and_dropout_of_zero_is_none(cohort):
    for network in (cnn(), vit(), mlp(), mlp(0, nn.Dropout(0.0))):
        assert refusal(network) == ""
    assert is_small(mlp())
    assert not is_small(Classifier.load("timm:resnet18", num_classes=2))
    with pytest.raises(TrainingError, match="draws at random"):
        train_batched([mlp(0, nn.Dropout(0.2))] * 2, cohort, [{**QUICK, "seed": seed} for seed in (1, 2)])


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ([{"epochs": 2}, {"epochs": 3}], "epochs is 2 for one model and 3 for another"),
        ([{"epoch": 2}, {}], "did you mean 'epochs'"),
        ([{}], "give one of each"),
        ([{"amp": "bf16"}, {"amp": "bf16"}], "in float32"),
        ([{"objective": cross_entropy}, {"objective": smoothed}], "objectives"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(cohort, settings, says):
    with pytest.raises(SettingError, match=says):
        train_batched([mlp(), mlp()], cohort, settings)


def test_networks_of_two_kinds_and_one_folder_for_two_are_refused(cohort, tmp_path):
    with pytest.raises(SettingError, match="not of one architecture"):
        train_batched([mlp(), cnn()], cohort, [QUICK, QUICK])
    with pytest.raises(SettingError, match="share a folder"):
        train_batched([mlp(), mlp()], cohort, [QUICK, QUICK], folders=[tmp_path, tmp_path])


def test_a_model_that_diverges_is_an_error_and_the_others_finish(cohort, tmp_path):
    settings = [{**QUICK, "clip": None, "optimizer": "sgd", "lr": lr} for lr in (1e-3, 1e30)]
    folders = [tmp_path / "a", tmp_path / "b"]
    good, bad = train_batched([mlp(), mlp()], cohort, settings, folders=folders)
    assert isinstance(bad, TrainingError)
    assert "lower lr (now 1e+30)" in str(bad)
    assert_same_training([good], [train(mlp(), cohort, **settings[0])])
    assert (folders[0] / "model.json").exists()
    assert not (folders[1] / "model.json").exists()
    again = train_batched([mlp(), mlp()], cohort, settings, folders=folders)
    assert off(again[0], good) == 0
    assert str(again[1]) == str(bad)


# ---- folders ------------------------------------------------------------------------------------------------------------


def test_folders_hold_what_train_writes_and_open_again(cohort, tmp_path):
    settings = [{**QUICK, "seed": seed} for seed in (1, 2)]
    folders = [tmp_path / "a", tmp_path / "b"]
    models = train_batched([cnn(1), cnn(2)], cohort, settings, folders=folders)
    train(cnn(1), cohort, **settings[0], folder=tmp_path / "alone")
    for folder, model in zip(folders, models):
        assert {file.name for file in folder.iterdir()} == {file.name for file in (tmp_path / "alone").iterdir()}
        assert list(pd.read_csv(folder / "curves.csv")) == list(pd.read_csv(tmp_path / "alone" / "curves.csv"))
        assert Classifier.open(folder).fingerprint == model.fingerprint
    before = (folders[0] / "model.safetensors").stat().st_mtime_ns
    again = train_batched([cnn(1), cnn(2)], cohort, settings, folders=folders)
    assert [off(a, b) for a, b in zip(again, models)] == [0, 0]
    assert (folders[0] / "model.safetensors").stat().st_mtime_ns == before
    with pytest.raises(TrainingError, match="another training run"):
        train(cnn(1), cohort, **settings[0], folder=folders[0])
    with pytest.raises(TrainingError, match="another training run"):
        train_batched([cnn(1)], cohort, settings[:1], folders=folders[:1])


class Killed(BaseException):
    """Not an error that anybody may catch."""


@pytest.mark.parametrize("moment", ["epoch", "finish"])
def test_a_group_that_was_ended_goes_on_and_ends_with_the_same_weights(cohort, tmp_path, monkeypatch, moment):
    settings = [{**QUICK, "epochs": 5, "patience": 2, "seed": seed, "lr": lr} for seed in (1, 2) for lr in (3e-3, 1e-6)]
    starts = [cnn(k) for k in range(4)]
    undisturbed = train_batched(starts, cohort, settings)
    folders = [tmp_path / str(k) for k in range(4)]
    calls = []
    kind, name = (batched._Group, "step") if moment == "epoch" else (batched._Group, "finish")
    own = getattr(kind, name)

    def killing(*given):
        calls.append(1)
        if len(calls) == (14 if moment == "epoch" else 3):
            raise Killed
        return own(*given)

    monkeypatch.setattr(kind, name, killing)
    with pytest.raises(Killed):
        train_batched(starts, cohort, settings, folders=folders)
    assert (folders[0] / GROUP).exists()
    monkeypatch.setattr(kind, name, own)
    resumed = train_batched(starts, cohort, settings, folders=folders)
    assert [off(a, b) for a, b in zip(resumed, undisturbed)] == [0] * 4
    assert [a.card == b.card for a, b in zip(resumed, undisturbed)] == [True] * 4
    assert not (folders[0] / GROUP).exists()


def _train_group(world, target, begun=None):
    torch.set_num_threads(1)
    cohort = planted.digits(world, n=240, pixels=16)
    settings = [{**QUICK, "epochs": 12, "seed": seed, "threads": 1} for seed in range(3)]
    classifiers = [cnn(k) for k in range(3)]
    if begun is not None:
        begun.set()
    train_batched(classifiers, cohort, settings, folders=[target / str(k) for k in range(3)])


@pytest.mark.slow
def test_a_group_killed_at_any_moment_ends_with_the_same_bytes(world, tmp_path):
    def files(target):
        names = ("model.safetensors", "model.json")
        return {(k, name): (target / str(k) / name).read_bytes() for k in range(3) for name in names}

    def epochs_of(target):
        file = target / "0" / "curves.csv"
        return len(file.read_text().splitlines()) - 1 if file.exists() else 0

    _train_group(world, tmp_path / "whole")
    lasts = pd.read_csv(tmp_path / "whole" / "0" / "curves.csv")["time_seconds"].median()
    rng, kills = np.random.default_rng(0), 0
    context = multiprocessing.get_context("spawn")
    # Killed by what it has done, not by the clock, which says little on a busy machine; but anywhere in the epoch after.
    for epochs in (0, 1, 2, 4, 6, 8):
        begun = context.Event()
        process = context.Process(target=_train_group, args=(world, tmp_path / "killed", begun))
        process.start()
        assert begun.wait(600)
        while epochs_of(tmp_path / "killed") < epochs and process.is_alive():
            time.sleep(0.001)
        process.join(rng.random() * lasts)
        kills += process.exitcode is None
        process.kill()
        process.join()
    assert kills >= 2
    _train_group(world, tmp_path / "killed")
    assert files(tmp_path / "killed") == files(tmp_path / "whole")


# ---- the optimizer ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["adam", "adamw", "sgd"])
@pytest.mark.parametrize("is_uniform", [True, False])
@pytest.mark.parametrize("clip", [None, 0.5])
def test_the_stacked_optimizer_is_torchs_own_for_every_model(kind, is_uniform, clip):
    generator = torch.Generator().manual_seed(0)
    shapes = {"weight": (4, 3), "bias": (4,), "number": ()}
    params = {name: torch.randn(2, 3, *shape, generator=generator, dtype=torch.float64) for name, shape in shapes.items()}
    lr = torch.full((2, 3), 0.01, dtype=torch.float64) * (1 if is_uniform else torch.arange(1, 7).view(2, 3))
    decay = torch.full((2, 3), 0.1, dtype=torch.float64) * (1 if is_uniform else torch.arange(6).view(2, 3))
    grads = [{n: torch.randn(p.shape, generator=generator, dtype=torch.float64) for n, p in params.items()} for _ in range(5)]
    factors = schedule_factors(5, "cosine", 2)
    ours = StackedOptimizer(
        kind,
        params,
        lr=lr,
        weight_decay=decay,
        clip=None if clip is None else torch.full((2, 3), clip, dtype=torch.float64),
        factors=torch.tensor(factors, dtype=torch.float64),
    )
    for k, grad in enumerate(grads):
        ours.step(grad, torch.tensor([k]))
    theirs = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": partial(torch.optim.SGD, momentum=0.9)}[kind]
    for s in range(2):
        for j in range(3):
            own = {name: nn.Parameter(p[s, j].clone()) for name, p in params.items()}
            groups = [{"params": [p], "weight_decay": float(decay[s, j]) if p.ndim > 1 else 0.0} for p in own.values()]
            optimizer = theirs(groups, lr=float(lr[s, j]))
            for k, grad in enumerate(grads):
                for name, p in own.items():
                    p.grad = grad[name][s, j].clone()
                for group in optimizer.param_groups:
                    group["lr"] = float(lr[s, j]) * factors[k]
                if clip is not None:
                    nn.utils.clip_grad_norm_(own.values(), clip)
                optimizer.step()
            for name, p in own.items():
                torch.testing.assert_close(ours.params[name][s, j], p.data, rtol=1e-10, atol=1e-12)
