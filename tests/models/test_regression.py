"""A network that learns a number: by squared error, with a head of groups that does not teach it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from rightreasons.data.cohort import Cohort  # noqa: E402
from rightreasons.errors import SettingError, TrainingError  # noqa: E402
from rightreasons.models.classifier import Classifier  # noqa: E402
from rightreasons.models.regression import Regression  # noqa: E402
from rightreasons.models.training import Batch, cross_entropy, train  # noqa: E402

pytestmark = pytest.mark.torch


def network(classes: int) -> Classifier:
    spec = "rightreasons.models.small:small_cnn"
    levels = tuple(range(classes))
    rng = np.random.default_rng(0)
    return Classifier.load(spec, num_classes=classes, classes=levels, size=(8, 8), width=2, mean=0.5, std=0.5, rng=rng)


def batch(n: int = 12) -> Batch:
    rng = np.random.default_rng(1)
    age = torch.from_numpy(rng.normal(50, 10, n))
    age[0] = torch.nan
    x = torch.from_numpy(rng.normal(size=(n, 3, 8, 8)).astype(np.float32))
    y = torch.from_numpy(rng.integers(0, 4, n))
    return Batch(x, y, {"age": age}, torch.ones(n), np.arange(n), 0, 0, torch.Generator())


def test_the_loss_is_the_squared_error_over_the_variance_and_the_heads_own() -> None:
    model, rows = network(4), batch()
    objective = Regression(model.d, "age", 50.0, 100.0, np.random.default_rng(2))
    z = model.features(rows.x)
    guess = objective.reading(z)[:, 0].detach().numpy()
    target = (rows.attributes["age"].numpy() - 50) / 10
    expected = np.mean((guess[1:] - target[1:]) ** 2) + float(cross_entropy(model, rows).detach())
    assert float(objective(model, rows).detach()) == pytest.approx(expected, rel=1e-5)


def test_the_network_learns_by_the_number_alone() -> None:
    """Other groups give the head another gradient, and the network the same."""
    gradients = []
    for shift in (0, 1):
        model, rows = network(4), batch()
        rows = Batch(**{**vars(rows), "y": (rows.y + shift) % 4})
        Regression(model.d, "age", 50.0, 100.0, np.random.default_rng(2))(model, rows).backward()
        gradients.append({name: p.grad.clone() for name, p in model.module.named_parameters()})
    head = [name for name in gradients[0] if name.startswith(model.cut.head[0])]
    for name, grad in gradients[0].items():
        assert torch.equal(grad, gradients[1][name]) == (name not in head), name


def test_what_is_no_number_and_a_second_objective_are_refused(tmp_path: Path) -> None:
    columns = {"id": ["a", "b"], "label": [0, 1], "image": ["a.png", "b.png"], "sex": [0, 1], "split": ["train", "val"]}
    cohort = Cohort.from_columns(columns, attribute=["sex"], split="split")
    with pytest.raises((SettingError, TrainingError)):
        train(network(2), cohort, regress="sex", epochs=1, stop_on="loss")
