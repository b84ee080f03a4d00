"""The association loss: the formula, what its head can read, and whom its gradients reach."""

import itertools
import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from unlearning_worlds import erm, world  # noqa: E402

from rightreasons.data.cohort import Cohort  # noqa: E402
from rightreasons.errors import DataError  # noqa: E402
from rightreasons.mitigations._association import RIDGE, Association, Unlearning, fit_association, shares  # noqa: E402
from rightreasons.models.grouped_rows import Rows, grouped  # noqa: E402
from rightreasons.models.training import Batch  # noqa: E402

pytestmark = pytest.mark.torch


def rows_of(y, a, C, A):
    return Rows(world_cohort(len(y)), np.asarray(y), np.asarray(a), "tag", (tuple(range(C)), tuple(range(A))), 0)


def world_cohort(n):
    return Cohort.from_columns({"id": [str(i) for i in range(n)], "label": [0, 1] * (n // 2) + [0] * (n % 2)}, label="label")


def association(y, a, C, A, d=5, seed=0):
    g = torch.Generator().manual_seed(seed)
    made = Association(
        torch.from_numpy(shares(rows_of(y, a, C, A))), torch.randn(d, generator=g), torch.rand(d, generator=g) + 0.5
    )
    made = made.double()
    with torch.no_grad():
        made.weight.copy_(torch.randn(made.weight.shape, generator=g, dtype=torch.float64))
        made.bias.copy_(torch.randn(made.bias.shape, generator=g, dtype=torch.float64))
    return made


def literal_loss(made, z, y, a):
    """(1/K) Σ_c (1/A_c) Σ_a mean CE, one number at a time."""
    weight, bias = made.weight.detach(), made.bias.detach()
    classes = []
    for c in sorted(set(y.tolist())):
        values = sorted({int(v) for v in a[y == c] if v >= 0})
        if len(values) < 2:
            continue
        of_values = []
        for value in values:
            losses = []
            for i in np.flatnonzero((y == c) & (a == value)):
                scaled = [(float(z[i, k]) - float(made.mean[k])) / float(made.scale[k]) for k in range(z.shape[1])]
                logit = {
                    v: sum(float(w) * s for w, s in zip(weight[c, v], scaled, strict=True)) + float(bias[c, v]) for v in values
                }
                losses.append(math.log(sum(math.exp(v) for v in logit.values())) - logit[value])
            of_values.append(sum(losses) / len(losses))
        classes.append(sum(of_values) / len(of_values))
    return sum(classes) / len(classes)


CASES = {
    "two classes, two values, 95 to 5": (2, 2, [(0, 0, 19), (0, 1, 1), (1, 0, 3), (1, 1, 17)]),
    "three classes, three values, one group empty": (
        3,
        3,
        [(0, 0, 9), (0, 1, 2), (1, 0, 3), (1, 1, 8), (1, 2, 1), (2, 1, 2), (2, 2, 6)],
    ),
    "a class with one value": (3, 2, [(0, 0, 9), (0, 1, 2), (1, 0, 3), (1, 1, 8), (2, 1, 7)]),
}


@pytest.mark.parametrize("case", CASES)
def test_the_loss_is_the_mean_over_classes_of_the_mean_over_their_values(case):
    C, A, groups = CASES[case]
    y = np.concatenate([[c] * n for c, _, n in groups])
    a = np.concatenate([[v] * n for _, v, n in groups])
    made = association(y, a, C, A)
    z = torch.randn(len(y), 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = float(made.loss(z, torch.from_numpy(y), torch.from_numpy(a)).detach())
    assert found == pytest.approx(literal_loss(made, z, y, a), rel=1e-10)


def test_rows_without_attribute_do_not_count():
    y, a = np.array([0, 0, 1, 1, 0]), np.array([0, 1, 0, 1, -1])
    made = association(y[:4], a[:4], 2, 2)
    z = torch.randn(5, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    both = [made.loss(z[:n], torch.from_numpy(y[:n]), torch.from_numpy(a[:n])) for n in (4, 5)]
    assert float(both[0].detach()) == pytest.approx(float(both[1].detach()), rel=1e-12)
    nothing = made.loss(z[4:].requires_grad_(), torch.from_numpy(y[4:]), torch.from_numpy(a[4:]))
    nothing.backward()
    assert float(nothing.detach()) == 0
    assert torch.isfinite(made.weight.grad).all()


def test_the_majority_value_is_no_knowledge():
    """A head that always says the common value of its class does no better than chance, because values count alike."""
    y, a = np.repeat([0, 1], 100), np.tile([0] * 95 + [1] * 5, 2)
    made = association(y, a, 2, 2)
    with torch.no_grad():
        made.weight.zero_()
        made.bias.copy_(torch.tensor([math.log(0.95), math.log(0.05)]).expand(2, 2))
    loss = float(made.loss(torch.zeros(200, 5), torch.from_numpy(y), torch.from_numpy(a)).detach())
    made.bias.data.zero_()
    chance = float(made.loss(torch.zeros(200, 5), torch.from_numpy(y), torch.from_numpy(a)).detach())
    assert chance == pytest.approx(math.log(2))
    assert loss > chance


def test_one_value_in_every_class_leaves_nothing_to_unlearn():
    with pytest.raises(DataError, match="nothing tells what to unlearn"):
        shares(rows_of([0, 0, 1, 1], [0, 0, 1, 1], 2, 2))


def test_confusion_is_the_loss_averaged_over_all_draws_of_the_values():
    y, a = np.array([0, 0, 0, 1, 1]), np.array([0, 1, 2, 0, 1])
    made = association(y, a, 2, 3)
    z = torch.randn(5, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    Y, weight = torch.from_numpy(y), made.row_weight(torch.from_numpy(y), torch.from_numpy(a))
    draws = [
        float((weight * made.losses(z, Y, torch.tensor(drawn))).sum().detach()) / 5
        for drawn in itertools.product(range(3), range(3), range(3), range(2), range(2))
    ]
    assert float(made.confusion(z, Y, torch.from_numpy(a)).detach()) == pytest.approx(np.mean(draws), rel=1e-10)


# ---- the head -----------------------------------------------------------------------------------------------------------


def fitted(monkeypatch, z, y, a, C=2, A=2):
    monkeypatch.setattr("rightreasons.mitigations._association.read", lambda *_, **__: {"features": z.astype(np.float32)})
    made = fit_association(None, rows_of(y, a, C, A))
    return made, float(made.loss(torch.from_numpy(z).float(), torch.from_numpy(y), torch.from_numpy(a)).detach())


def test_the_head_reads_a_planted_attribute_and_nothing_from_the_label(monkeypatch):
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 500)
    a = np.where(rng.random(1000) < 0.9, y, 1 - y)
    noise = rng.normal(size=(1000, 4))
    label_only = noise + 5 * y[:, None] * np.array([1, 0, 0, 0])
    _, loss = fitted(monkeypatch, label_only, y, a)
    assert loss > 0.6  # the label tells the attribute in 90 % of the rows, and within a class it tells nothing
    _, loss = fitted(monkeypatch, label_only + 4 * a[:, None] * np.array([0, 1, 0, 0]), y, a)
    assert loss < 0.2


def test_the_fitted_head_is_the_minimum_of_the_ridge_loss(monkeypatch):
    rng = np.random.default_rng(0)
    y, a = np.repeat([0, 1], 60), np.tile([0, 0, 1], 40)
    z = rng.normal(size=(120, 3)) * np.array([1, 10, 0]) + 7  # one feature is constant
    made, _ = fitted(monkeypatch, z, y, a)
    assert made.weight.dtype == torch.float32
    made = made.double()
    loss = made.loss(torch.from_numpy(z.astype(np.float32)), torch.from_numpy(y), torch.from_numpy(a))
    (loss + RIDGE / 2 * made.weight.square().sum()).backward()
    assert made.weight.grad.abs().max() < 1e-5
    assert made.bias.grad.abs().max() < 1e-5


def test_the_head_is_fitted_on_a_models_own_features_and_leaves_it_alone(tmp_path):
    cohort = world(tmp_path, missing=9)
    model = erm(cohort, epochs=1)
    before = model.fingerprint
    rows = grouped(model, cohort.on("train"))
    first, second = (fit_association(model, rows, batch=50, threads=1, device="cpu") for _ in range(2))
    assert all(torch.equal(p, q) for p, q in zip(first.state_dict().values(), second.state_dict().values(), strict=True))
    assert model.fingerprint == before
    assert first.weight.shape == (2, 2, model.d)
    assert first.weight.grad is None


# ---- gradients ----------------------------------------------------------------------------------------------------------


def test_features_and_head_are_pulled_apart():
    y, a = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1])
    made = association(y.numpy(), a.numpy(), 2, 2)
    z = torch.randn(4, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64, requires_grad=True)
    batch = Batch(z, y, {"tag": a}, torch.ones(4), np.arange(4), 0, 0, torch.Generator())
    objective = Unlearning(made, "tag", 1.0)

    objective.features_only(z, batch).backward()
    assert made.weight.grad is None
    assert z.grad.abs().sum() > 0
    z.grad = None
    worth = objective.head_only(z, batch)
    worth.backward()
    assert float(worth.detach()) == 0
    assert z.grad is None
    (expected,) = torch.autograd.grad(made.loss(z, y, a), [made.weight])
    assert torch.allclose(made.weight.grad, expected)
