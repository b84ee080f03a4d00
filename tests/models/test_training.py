"""Training: what it learns, what it leaves alone, and that a killed run ends with the bytes of an undisturbed one."""

import json
import multiprocessing
import random
import time

import numpy as np
import pandas as pd
import pytest

torch = pytest.importorskip("torch")

from sklearn.datasets import load_digits  # noqa: E402
from torch import nn  # noqa: E402

from rightreasons.data.cohort import Cohort  # noqa: E402
from rightreasons.errors import DataError, SettingError, TrainingError  # noqa: E402
from rightreasons.models import training  # noqa: E402
from rightreasons.models.augment import flip_and_shift  # noqa: E402
from rightreasons.models.classifier import Classifier  # noqa: E402
from rightreasons.models.training import Batch, cross_entropy, evaluate, train  # noqa: E402
from rightreasons.models.training_plan import METRICS  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_quiet_thread")]

N = 240


def digits(folder, n=N, agreement=0.9):
    """Digits below five or not, 16 pixels, with a tag in a corner that mostly goes with the label."""
    source = load_digits()
    rng = np.random.default_rng(0)
    label = (source.target[:n] >= 5).astype(int)
    tag = np.where(rng.random(n) < agreement, label, 1 - label)
    grey = np.kron(source.images[:n] * 15.9, np.ones((1, 2, 2))).astype(np.uint8)
    pixels = np.repeat(grey[..., None], 3, axis=-1)
    pixels[tag == 1, :3, :3] = (255, 0, 0)
    pixels[tag == 0, :3, :3] = (0, 255, 0)
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "stack.npy", pixels)
    splits = np.array(["train"] * (n * 3 // 4) + ["val"] * (n - n * 3 // 4), dtype=object)
    return {
        "id": [f"d{i}" for i in range(n)],
        "image": [f"stack.npy#{i}" for i in range(n)],
        "label": label,
        "tag": np.array(["green", "red"])[tag],
        "split": splits,
    }


def as_cohort(columns, folder, **schema):
    named = {"attribute": ["tag"], "split": "split" if "split" in columns else None, "root": folder, **schema}
    return Cohort.from_columns(columns, name="digits", **named)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("digits")


@pytest.fixture(scope="module")
def columns(folder):
    return digits(folder)


@pytest.fixture(scope="module")
def cohort(columns, folder):
    return as_cohort(columns, folder)


def small(seed=0, **settings):
    return Classifier.load(
        "rightreasons.models.small:small_cnn",
        size=(16, 16),
        rng=np.random.default_rng(seed),
        **{"num_classes": 2, "width": 4, **settings},
    )


def weights_of(model):
    return {name: tensor.clone() for name, tensor in model.module.state_dict().items()}


def same(one, two):
    return all(torch.equal(a, b) for a, b in zip(weights_of(one).values(), weights_of(two).values(), strict=True))


QUICK = {"epochs": 3, "batch": 32, "lr": 3e-3, "patience": None}


# ---- the same seed, the same weights ------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(cohort):
    first, second, other = (train(small(), cohort, **QUICK, seed=seed) for seed in (1, 1, 2))
    assert same(first, second)
    assert first.card == second.card
    assert not same(first, other)


def test_dropout_and_augmentation_are_drawn_from_the_seed(cohort):
    network = nn.Sequential(nn.Flatten(), nn.Linear(768, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 2))
    start = Classifier.wrap(network, size=16)
    runs = []
    for noise in (0, 1):
        torch.manual_seed(noise)
        runs.append(train(start, cohort, **QUICK, seed=1, augment="flip_and_shift"))
    assert same(*runs)
    assert not same(runs[0], train(start, cohort, **QUICK, seed=1))


def test_training_leaves_every_global_state_as_it_was(cohort):
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    torch.manual_seed(1)
    before = (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state(), torch.is_grad_enabled())  # noqa: NPY002
    train(small(), cohort, epochs=1, batch=180, threads=2)
    after = (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state(), torch.is_grad_enabled())  # noqa: NPY002
    assert before[:2] == after[:2]
    assert torch.equal(before[2], after[2])
    assert before[3] == after[3]
    assert torch.get_num_threads() == 1


def test_the_starting_model_stays_untouched(cohort):
    start = small()
    start.module.train()
    start.module.body[0].eval()
    hook = start.module.fc.register_forward_hook(lambda *_: None)
    frozen = start.module.body[0][0].weight.requires_grad_(False)
    print_before, card = start.fingerprint, json.dumps(start.card)
    flags = [m.training for m in start.module.modules()]
    made = train(start, cohort, **QUICK)
    assert start.fingerprint == print_before != made.fingerprint
    assert json.dumps(start.card) == card
    assert [m.training for m in start.module.modules()] == flags
    assert list(start.module.fc._forward_hooks) == [hook.id]
    assert all(p.grad is None for p in start.parameters())
    assert not any(m.training for m in made.module.modules())
    assert all(p.grad is None for p in made.parameters())
    assert torch.equal(made.module.body[0][0].weight, frozen)  # what does not require gradients is not trained
    assert start.used == frozenset()


# ---- what it learns -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_small_cnn_learns_digits_in_seconds(tmp_path):
    cohort = as_cohort(digits(tmp_path, 1000, agreement=0.5), tmp_path)
    made = train(small(width=8), cohort, epochs=12, lr=5e-3, patience=None)
    assert made.card["metric"]["value"] > 0.9


def test_a_model_can_learn_the_attribute_instead_of_the_label(cohort):
    made = train(small(), cohort, **{**QUICK, "epochs": 6}, target="tag", regime="attribute")
    assert made.classes == ("green", "red")
    assert (made.card["target"], made.card["regime"]) == ("tag", "attribute")
    assert made.card["metric"]["value"] > 0.95
    val = cohort.on("val")
    assert (predicted(made, val) == val.attribute("tag").values).mean() > 0.95


def predicted(model, cohort):
    stream = training.Examples.batches(training.Examples(cohort, cohort.label, np.ones(len(cohort)), None, 0), model, 64)
    with torch.no_grad():
        return np.concatenate([model.logits(x).argmax(1).numpy() for _, x in stream])


def test_the_card_tells_what_the_model_was_made_from(cohort):
    start = small()
    made = train(start, cohort, **QUICK, seed=3, regime="balanced")
    assert made.training == cohort.on("train").fingerprint
    assert made.used == {*cohort.on("train").id, *cohort.on("val").id}
    assert made.card["start"] == start.fingerprint or start.card["start"] == made.card["start"] == "fresh"
    assert (made.card["seed"], made.card["regime"], made.card["target"]) == (3, "balanced", "")
    assert made.card["settings"]["lr"] == QUICK["lr"]
    assert made.card["settings"]["objective"] == "rightreasons.models.training:cross_entropy"
    assert made.card["versions"]["torch"] == torch.__version__.partition("+")[0] or made.card["versions"]["torch"]
    further = train(made, cohort, **QUICK)
    assert further.card["start"] == made.fingerprint
    assert further.used == made.used


def test_the_best_epoch_is_kept_and_the_first_of_equal_ones(cohort):
    for metric, best in (("macro_f1", np.argmax), ("loss", np.argmin), ("auc", np.argmax), ("balanced_accuracy", np.argmax)):
        made = train(small(), cohort, epochs=5, batch=32, lr=2e-2, patience=None, stop_on=metric)
        scores = [row[f"val_{metric}"] for row in made.card["curves"]]
        assert len(scores) == 5
        assert made.card["selected_epoch"] == best(scores) + 1
        val = cohort.on("val")
        part = training.Examples(val, val.label, np.ones(len(val)), val.attribute().values, 0)
        with torch.no_grad():
            logits = np.concatenate([made.logits(x).numpy() for _, x in part.batches(made, 32)])
        assert evaluate(logits, part.y, part.groups)[metric] == scores[made.card["selected_epoch"] - 1]


def test_training_stops_when_patience_is_over(cohort):
    made = train(small(), cohort, epochs=30, batch=32, lr=1e-12, patience=2, stop_on="accuracy")
    assert made.card["selected_epoch"] + 2 == len(made.card["curves"]) < 30


def test_worst_group_accuracy_can_stop_training(cohort):
    biased = cohort.on("train")
    made = train(small(), cohort, **QUICK, stop_on="wga", stopping=biased)
    assert made.card["metric"]["name"] == "wga"
    assert made.card["metric"]["value"] == max(row["val_wga"] for row in made.card["curves"])
    assert made.used == set(biased.id)


def test_metrics_are_those_of_scikit_learn():
    from sklearn import metrics

    rng = np.random.default_rng(0)
    for classes in (2, 4):
        logits, y = rng.normal(size=(200, classes)), rng.integers(0, classes, 200)
        p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        found = evaluate(logits, y)
        assert found["loss"] == pytest.approx(metrics.log_loss(y, p))
        assert found["accuracy"] == pytest.approx(metrics.accuracy_score(y, logits.argmax(1)))
        assert found["balanced_accuracy"] == pytest.approx(metrics.balanced_accuracy_score(y, logits.argmax(1)))
        assert found["macro_f1"] == pytest.approx(metrics.f1_score(y, logits.argmax(1), average="macro"))
        assert found["auc"] == pytest.approx(metrics.roc_auc_score(y, p[:, 1] if classes == 2 else p, multi_class="ovr"))
        assert np.isnan(found["wga"])


def test_the_loss_of_a_one_logit_head_is_the_binary_cross_entropy():
    model = small(num_classes=1)
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(8, 3, 16, 16, generator=generator), torch.tensor([0, 1] * 4)
    weight = torch.rand(8, generator=generator)
    batch = Batch(x, y, {}, weight, np.arange(8), 0, 0, generator)
    literal = nn.functional.binary_cross_entropy_with_logits(model.module(x)[:, 0], y.float(), weight=weight)
    torch.testing.assert_close(cross_entropy(model, batch), literal)


def test_the_learning_rate_rises_and_falls_as_asked(cohort):
    made = train(small(), cohort, **{**QUICK, "epochs": 4}, warmup=2)
    rates = [row["lr"] for row in made.card["curves"]]
    steps = -(-180 // 32)
    assert rates[:2] == pytest.approx([QUICK["lr"] / 2, QUICK["lr"]])
    assert rates[2:] == pytest.approx([QUICK["lr"] * (1 + np.cos(np.pi * (k * steps - 1) / (2 * steps))) / 2 for k in (1, 2)])
    flat = train(small(), cohort, **QUICK, schedule=None)
    assert [row["lr"] for row in flat.card["curves"]] == [QUICK["lr"]] * 3


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_other_optimizers_learn_too(cohort, optimizer):
    made = train(small(), cohort, **{**QUICK, "lr": 1e-2}, optimizer=optimizer)
    losses = [row["loss"] for row in made.card["curves"]]
    assert losses[-1] < losses[0]


def test_lower_precision_learns_too_and_says_so(cohort):
    made = train(small(), cohort, **QUICK, amp="bf16")
    assert made.card["ran"]["precision"] == "torch.bfloat16"
    assert all(t.dtype in (torch.float32, torch.int64) for t in made.module.state_dict().values())
    assert made.card["curves"][-1]["loss"] < made.card["curves"][0]["loss"]


# ---- rows and weights ---------------------------------------------------------------------------------------------------


def test_rows_of_weight_zero_do_not_matter(columns, folder, cohort):
    rng = np.random.default_rng(0)
    weight = np.where(rng.random(N) < 0.3, 0.0, rng.integers(1, 4, N))
    weighted = train(small(), cohort, weights=weight, **QUICK)
    kept = (weight > 0) | (cohort.splits == "val")
    assert same(weighted, train(small(), cohort.select(kept), weights=weight[kept], **QUICK))
    by_column = as_cohort({**columns, "w": weight}, folder, weight="w")
    assert same(weighted, train(small(), by_column, **QUICK))
    assert not same(weighted, train(small(), cohort.select(kept), **QUICK))
    zero_in_train = int(((weight == 0) & (cohort.splits == "train")).sum())
    assert weighted.card["left_out"] == {"train": zero_in_train, "stopping": 0}


def test_only_the_proportions_of_weights_matter(cohort):
    assert same(train(small(), cohort, **QUICK), train(small(), cohort, weights=np.full(N, 3.0), **QUICK))


def test_upweighted_rows_are_learned(cohort):
    """Labels are flipped in half of the rows; weights decide which half is believed."""
    columns = {"id": cohort.id, "image": cohort.image, "label": cohort.label.copy(), "split": cohort.splits}
    flipped = np.arange(N) % 2 == 1
    columns["label"][flipped & (cohort.splits == "train")] ^= 1
    noisy = as_cohort(columns, cohort.root, attribute=[])
    settings = {**QUICK, "epochs": 8, "lr": 1e-2, "stop_on": "accuracy"}
    right = train(small(), noisy, weights=np.where(flipped, 0.02, 1.0), **settings)
    wrong = train(small(), noisy, weights=np.where(flipped, 1.0, 0.02), **settings)
    assert right.card["curves"][-1]["val_accuracy"] > 0.7
    assert wrong.card["curves"][-1]["val_accuracy"] < 0.3


def test_rows_without_a_target_leave_and_are_counted(columns, folder):
    label = columns["label"].astype(object)
    label[[0, 5, N - 1]] = None
    made = train(small(), as_cohort({**columns, "label": label}, folder), **QUICK)
    assert made.card["left_out"] == {"train": 2, "stopping": 1}
    assert {"d0", "d5", f"d{N - 1}"}.isdisjoint(made.used)


def test_a_cohort_without_val_gives_part_of_train_to_it(columns, folder):
    splits = np.where(columns["split"] == "val", "test", "train").astype(object)
    cohort = as_cohort({**columns, "split": splits}, folder)
    made = train(small(), cohort, **QUICK)
    assert made.used == set(cohort.on("train").id)
    assert made.card["rows"] == {"train": 153, "stopping": 27}
    unsplit = train(small(), as_cohort({k: v for k, v in columns.items() if k != "split"}, folder), **QUICK)
    assert len(unsplit.used) == pytest.approx(0.7 * N, abs=2)


def test_outputs_are_found_by_the_value_of_the_label(columns, folder):
    words = np.array(["low", "high"])[columns["label"]]
    cohort = as_cohort({**columns, "label": words}, folder)
    made = train(small(num_classes=3, classes=["low", "odd", "high"]), cohort, **{**QUICK, "epochs": 6})
    assert made.classes == ("low", "odd", "high")
    assert set(predicted(made, cohort.on("val"))) == {0, 2}
    with pytest.raises(TrainingError, match=r"'high', 'low'.*\[0, 1\].*no output for"):
        train(small(), cohort, **QUICK)


def test_repeated_rows_are_learned_repeatedly(cohort):
    rows = np.r_[np.arange(N), np.flatnonzero((cohort.splits == "train") & (cohort.label == 1))]
    made = train(small(), cohort.select(rows), **QUICK)
    assert made.card["rows"]["train"] == 180 + int((cohort.on("train").label == 1).sum())


def test_a_last_batch_of_one_row_is_left_out(cohort):
    sizes = []
    keep = np.r_[np.arange(33), np.flatnonzero(cohort.splits == "val")]

    def spy(classifier, batch):
        sizes.append(len(batch.y))
        return cross_entropy(classifier, batch)

    train(small(), cohort.select(keep), **QUICK, objective=spy)
    assert sizes == [32] * 3
    sizes.clear()
    train(small(), cohort.select(keep), **{**QUICK, "batch": 10}, objective=spy)
    assert sizes == [10, 10, 10, 3] * 3


def test_a_pixel_cache_and_streaming_change_nothing(cohort, tmp_path, monkeypatch):
    in_memory = train(small(), cohort, **QUICK)
    assert same(in_memory, train(small(), cohort, **QUICK, cache=tmp_path / "pixels"))
    assert any((tmp_path / "pixels").iterdir())
    monkeypatch.setattr("rightreasons.models._examples.IN_MEMORY_BYTES", 0)
    assert same(in_memory, train(small(), cohort, **QUICK, workers=2))


# ---- objectives ---------------------------------------------------------------------------------------------------------


class Adversary(nn.Module):
    """An objective with a head, a count and draws of its own, as later methods have."""

    def __init__(self, d, strength=0.1):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.strength = strength
        self.weight = nn.Parameter(torch.randn(d, 2, generator=generator) / d)
        self.register_buffer("seen", torch.zeros(2))

    def forward(self, classifier, batch):
        z, logits = classifier.read(batch.x)
        noise = torch.randn(z.shape, generator=batch.generator, device=z.device)
        with torch.no_grad():
            self.seen += torch.bincount(batch.attributes["tag"], minlength=2)
        side = nn.functional.cross_entropy((z + 0.1 * noise) @ self.weight, batch.attributes["tag"])
        return nn.functional.cross_entropy(logits, batch.y) + self.strength * side


def test_an_objective_with_parameters_and_state_is_trained_and_resumed(cohort, tmp_path):
    plain, broken = Adversary(16), Adversary(16)
    before = plain.weight.detach().clone()
    whole = train(small(), cohort, **QUICK, objective=plain, folder=tmp_path / "whole")
    assert not torch.equal(before, plain.weight)
    with pytest.raises(KeyboardInterrupt):
        train(small(), cohort, **QUICK, objective=broken, folder=tmp_path / "broken", augment=Fuse(9))
    again = Adversary(16)
    resumed = train(small(), cohort, **QUICK, objective=again, folder=tmp_path / "broken", augment=Fuse())
    fresh = Adversary(16)
    reread = train(small(), cohort, **QUICK, objective=fresh, folder=tmp_path / "broken", augment=Fuse())
    assert same(resumed, reread)
    assert same(resumed, whole)
    for other in (again, fresh):
        assert torch.equal(other.weight, plain.weight)
        assert torch.equal(other.seen, plain.seen)
    assert plain.seen.sum() == 180 * whole.card["selected_epoch"]


class Fuse:
    """An augmentation that changes nothing and stops the run at a given batch."""

    def __init__(self, burns_at=None):
        self._left = burns_at

    def __call__(self, x, generator):
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                raise KeyboardInterrupt
        return x


def test_an_objective_sees_rows_attributes_and_steps(cohort):
    seen = []

    def spy(classifier, batch):
        seen.append(batch)
        return cross_entropy(classifier, batch)

    train(small(), cohort, **QUICK, objective=spy)
    fit = cohort.on("train")
    for number, batch in enumerate(seen):
        assert (batch.step, batch.epoch) == (number, number // 6)
        assert batch.y.tolist() == fit.label[batch.rows].tolist()
        assert batch.attributes["tag"].tolist() == fit.attribute("tag").values[batch.rows].tolist()
        assert batch.weight.tolist() == [1.0] * len(batch.rows)
    for epoch in range(3):
        rows = np.concatenate([b.rows for b in seen if b.epoch == epoch])
        assert sorted(rows) == list(range(180))
    assert seen[0].rows.tolist() != seen[6].rows.tolist()


# ---- folders, kills -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("moment", [0, 5, 6, 13])
def test_an_interrupted_run_goes_on_to_the_same_bytes(cohort, tmp_path, moment):
    whole = train(small(), cohort, **QUICK, folder=tmp_path / "whole", augment=Fuse())
    with pytest.raises(KeyboardInterrupt):
        train(small(), cohort, **QUICK, folder=tmp_path / "cut", augment=Fuse(moment))
    calls = Fuse(10_000)
    resumed = train(small(), cohort, **QUICK, folder=tmp_path / "cut", augment=calls)
    assert 10_000 - calls._left == 18 - moment // 6 * 6  # whole epochs are not done again
    assert same(whole, resumed)
    assert bytes_of(tmp_path / "whole") == bytes_of(tmp_path / "cut")


def bytes_of(folder):
    curves = pd.read_csv(folder / "curves.csv").drop(columns="time_seconds")
    return (folder / "model.safetensors").read_bytes(), (folder / "model.json").read_bytes(), curves.to_csv()


def test_a_checkpoint_that_was_not_written_to_its_end_does_not_count(cohort, tmp_path, monkeypatch):
    whole = train(small(), cohort, **QUICK, folder=tmp_path / "whole")
    save, calls = torch.save, []

    def half(state, stream):
        calls.append(1)
        if len(calls) < 2:
            return save(state, stream)
        stream.write(b"half of it")
        raise KeyboardInterrupt

    monkeypatch.setattr(torch, "save", half)
    with pytest.raises(KeyboardInterrupt):
        train(small(), cohort, **QUICK, folder=tmp_path / "cut")
    monkeypatch.setattr(torch, "save", save)
    assert same(whole, train(small(), cohort, **QUICK, folder=tmp_path / "cut"))
    assert {p.name for p in (tmp_path / "cut").iterdir()} == {"plan.json", "curves.csv", "model.json", "model.safetensors"}


def test_a_finished_folder_gives_its_model_without_training(cohort, tmp_path):
    made = train(small(), cohort, **QUICK, folder=tmp_path, augment=Fuse())
    again = train(small(), cohort, **QUICK, folder=tmp_path, augment=Fuse(0))
    assert same(made, again)
    assert (again.card, again.used, again.training, again.classes) == (made.card, made.used, made.training, made.classes)


def test_a_wrapped_network_resumes_too(cohort, tmp_path):
    def start():
        torch.manual_seed(0)
        return Classifier.wrap(
            nn.Sequential(nn.Flatten(), nn.Linear(768, 8), nn.Dropout(0.3), nn.ReLU(), nn.Linear(8, 2)), size=16
        )

    whole = train(start(), cohort, **QUICK, augment=Fuse())
    with pytest.raises(KeyboardInterrupt):
        train(start(), cohort, **QUICK, folder=tmp_path, augment=Fuse(8))
    assert same(whole, train(start(), cohort, **QUICK, folder=tmp_path, augment=Fuse()))
    assert same(whole, train(start(), cohort, **QUICK, folder=tmp_path, augment=Fuse(0)))


def test_another_plan_in_the_folder_is_refused(columns, cohort, tmp_path):
    train(small(), cohort, **QUICK, folder=tmp_path)
    with pytest.raises(TrainingError, match=r"another training run \(lr is 0.1 and was 0.003\): give another folder"):
        train(small(), cohort, **{**QUICK, "lr": 0.1}, folder=tmp_path)
    with pytest.raises(TrainingError, match="starting weights"):
        train(small(seed=5), cohort, **QUICK, folder=tmp_path)
    with pytest.raises(TrainingError, match="training rows"):
        train(small(), cohort.select(np.arange(1, N)), **QUICK, folder=tmp_path)
    relabelled = as_cohort({**columns, "label": 1 - columns["label"]}, cohort.root)
    with pytest.raises(TrainingError, match="training columns"):
        train(small(), relabelled, **QUICK, folder=tmp_path)
    with pytest.raises(TrainingError, match="objective"):
        train(small(), cohort, **QUICK, objective=Adversary(16), folder=tmp_path)
    (tmp_path / "plan.json").unlink()
    with pytest.raises(TrainingError, match="not trained there"):
        train(small(), cohort, **QUICK, folder=tmp_path)


def test_curves_are_stored_epoch_by_epoch(cohort, tmp_path):
    made = train(small(), cohort, **QUICK, folder=tmp_path)
    curves = pd.read_csv(tmp_path / "curves.csv")
    assert curves["epoch"].tolist() == [1, 2, 3]
    assert {"loss", "lr", "time_seconds", *(f"val_{m}" for m in METRICS)} <= set(curves)
    assert curves["val_macro_f1"].tolist() == [row["val_macro_f1"] for row in made.card["curves"]]


def kill_job(place, target):
    """What the killed process does; it must be importable by its name."""
    torch.set_num_threads(1)
    cohort = as_cohort(digits(place), place)
    settings = {"epochs": 30, "batch": 32, "lr": 3e-3, "patience": None, "augment": flip_and_shift, "threads": 1}
    train(small(width=8), cohort, folder=target, **settings)


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_bytes(tmp_path):
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["pytest", "sklearn.datasets", "rightreasons.models.training", "rightreasons.models.small", "rightreasons.stats._kernels"]
    )

    def start(target):
        process = context.Process(target=kill_job, args=(tmp_path / "data", target))
        process.start()
        return process

    def finish(target):
        process = start(target)
        process.join(600)
        assert process.exitcode == 0

    def epochs_of(target):
        """How many are done; -1 before the first begins."""
        file = target / "curves.csv"
        return len(file.read_text().splitlines()) - 1 if file.exists() else (target / "plan.json").exists() - 1

    finish(tmp_path / "whole")
    lasts = pd.read_csv(tmp_path / "whole" / "curves.csv")["time_seconds"].median()
    killed, rng = 0, np.random.default_rng(0)
    # Killed by what it has done, not by the clock, which says little on a busy machine; but anywhere in the epoch after.
    for epochs in (0, 3, 7, 12, 18):
        target = tmp_path / f"killed after {epochs}"
        process = start(target)
        while epochs_of(target) < epochs and process.is_alive():
            time.sleep(0.001)
        process.join(rng.random() * lasts)
        process.kill()
        process.join()
        killed += process.exitcode != 0
        finish(target)
        assert bytes_of(target) == bytes_of(tmp_path / "whole")
    assert killed >= 3


# ---- what is refused ----------------------------------------------------------------------------------------------------


def test_one_class_in_the_training_rows_is_one_clear_sentence(cohort, tmp_path):
    only = cohort.select((cohort.splits == "val") | (cohort.label == 1))
    with pytest.raises(TrainingError, match=r"all \d+ training rows have 'label' = 1, and training needs two classes"):
        train(small(), only, **QUICK, folder=tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_loss_that_is_not_a_number_names_its_step_and_keeps_what_was_done(cohort, tmp_path):
    def breaks(classifier, batch):
        return cross_entropy(classifier, batch) * (float("nan") if batch.step == 8 else 1)

    with pytest.raises(TrainingError, match=r"loss is nan in epoch 2, step 3 of 6: lower lr \(now 0.003\)"):
        train(small(), cohort, **QUICK, objective=breaks, folder=tmp_path)
    assert len(pd.read_csv(tmp_path / "curves.csv")) == 1


def test_weights_that_explode_are_an_error(cohort):
    with pytest.raises(TrainingError, match=r"(not finite|loss is (nan|inf)).*lower lr"):
        train(small(), cohort, **{**QUICK, "lr": 1e30, "clip": None}, optimizer="sgd")


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"stop_on": "f2"}, "stop_on is 'f2'"),
        ({"optimizer": "lion"}, "optimizer is 'lion'"),
        ({"schedule": "step"}, "schedule is 'step'"),
        ({"amp": "fp8"}, "amp is 'fp8'"),
        ({"epochs": 0}, "epochs is 0"),
        ({"batch": 0}, "batch is 0"),
        ({"lr": 0.0}, "lr is 0.0"),
        ({"lr": float("nan")}, "lr is nan"),
        ({"seed": -1}, "seed is -1"),
        ({"augment": "flip_shift"}, "did you mean 'flip_and_shift'"),
        ({"augment": "no.such:thing"}, "no.such"),
    ],
)
def test_a_wrong_setting_is_named(cohort, settings, sentence):
    with pytest.raises(SettingError, match=sentence):
        train(small(), cohort, **settings)


def test_a_metric_that_is_undefined_on_the_stopping_rows_is_refused_before_training(cohort):
    one_class = cohort.on("val").select(cohort.on("val").label == 0)
    with pytest.raises(TrainingError, match=r"auc is undefined on the \d+ stopping rows \(they are of one class\)"):
        train(small(), cohort, stopping=one_class, stop_on="auc")


def test_the_smallest_group_counts_where_an_epoch_is_chosen():
    label, attribute = np.array([0] * 50 + [1] * 52), np.array([0] * 49 + [1] + [0] * 2 + [1] * 50)
    logits = np.eye(2)[np.where(np.arange(102) == 49, 1, label)]  # the only row of its group is wrong
    assert evaluate(logits, label, attribute)["wga"] == 0


def test_wrong_rows_weights_and_targets_are_refused(columns, folder, cohort):
    with pytest.raises(TrainingError, match=r"shape \(3,\), expected \(240,\)"):
        train(small(), cohort, weights=np.ones(3))
    with pytest.raises(TrainingError, match=r"1 weights .* first -1.0 for id 'd7'"):
        train(small(), cohort, weights=np.where(np.arange(N) == 7, -1.0, 1.0))
    with pytest.raises(TrainingError, match="no rows in split 'train'"):
        train(small(), cohort.on("val"), stopping=cohort.on("val"))
    with pytest.raises(DataError, match="no attribute 'age'"):
        train(small(), cohort, target="age")
    with pytest.raises(TrainingError, match=r"has the 2 levels .* 3 outputs"):
        train(small(num_classes=3), cohort, target="tag")
    aged = as_cohort({**columns, "age": np.linspace(20, 80, N)}, folder, attribute=["age"])
    with pytest.raises(TrainingError, match="'age' is continuous"):
        train(small(), aged, target="age")
    with pytest.raises(TrainingError, match="no stopping rows"):
        train(small(), cohort, stopping=cohort.on("val").select(np.zeros(60, bool)))


def test_a_model_with_every_weight_frozen_is_refused(cohort):
    start = small()
    start.module.requires_grad_(False)
    with pytest.raises(TrainingError, match=r"no parameter of .* may change"):
        train(start, cohort)


# ---- augmentation -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(64, 3, 20, 30), (64, 1, 10, 12, 14)])
def test_flips_and_shifts_move_pixels_and_make_none(shape):
    x = torch.arange(int(np.prod(shape)), dtype=torch.float32).view(shape)
    made = flip_and_shift(x, torch.Generator().manual_seed(0))
    assert made.shape == x.shape
    assert torch.equal(made, flip_and_shift(x, torch.Generator().manual_seed(0)))
    for one, source in zip(made, x, strict=True):
        assert torch.isin(one, source).all()
    ascending = made.flatten(2)[:, 0].view(64, *shape[2:])[(slice(None), *[0] * (len(shape) - 3))].diff(dim=1)
    mirrored = (ascending <= 0).all(dim=1)
    assert (mirrored | (ascending >= 0).all(dim=1)).all()
    assert 16 < int(mirrored.sum()) < 48


def test_a_shift_reaches_as_far_as_asked_in_both_directions():
    x = torch.arange(20.0).expand(500, 1, 20, 20).clone()
    made = flip_and_shift(x, torch.Generator().manual_seed(0), share=0.1)
    middle = made[:, 0, 10, 10]
    assert sorted(set(middle.tolist())) == [7.0, 8.0, 9.0, 10.0, 11.0, 12.0]
