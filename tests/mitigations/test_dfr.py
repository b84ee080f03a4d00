"""DFR: the l1 fits against scikit-learn, the folded head against the standardised one, and which rows it touches."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from digit_worlds import cnn, digits, vit  # noqa: E402
from sklearn.linear_model import LogisticRegression  # noqa: E402
from torch import nn  # noqa: E402

from rightreasons.errors import DataError, ModelError, SettingError  # noqa: E402
from rightreasons.extraction import read  # noqa: E402
from rightreasons.mitigations import dfr  # noqa: E402
from rightreasons.mitigations._last_layer import last_inputs, standard, with_last_layer  # noqa: E402
from rightreasons.models.classifier import Classifier  # noqa: E402
from rightreasons.models.grouped_rows import audit_half, grouped  # noqa: E402

pytestmark = pytest.mark.torch

SHARES = {"train": 0.3, "val": 0.2, "audit": 0.4, "test": 0.1}


cohort = digits(fractions=SHARES)
three = digits(n=500, three=True, fractions=SHARES)


def features(classes, n=150, d=12):
    rng = np.random.default_rng(0)
    y = np.arange(n) % classes
    x = rng.normal(size=(n, 4)) @ rng.normal(size=(4, d)) + rng.normal(size=(n, d))
    x[:, :3] += y[:, None]
    return (x - x.mean(0)) / x.std(0), y


def objective(x, y, weight, bias, c):
    logits = x @ weight.T + bias
    return np.abs(weight).sum() + c * (np.log(np.exp(logits).sum(1)) - logits[np.arange(len(y)), y]).sum()


@pytest.mark.parametrize("c", [0.02, 0.3, 3.0])
@pytest.mark.parametrize("classes", [2, 3])
def test_the_fits_are_the_minimum_that_scikit_learn_finds(classes, c):
    x, y = features(classes)
    counts = dfr.balanced_counts(y * 2 + (np.arange(len(y)) % 5 > 2), 2, np.random.default_rng(1))
    ours = {
        "fits": dfr.l1_fits(x, y, counts, [c], classes, np.random.default_rng(0))[0],
        "path": dfr.l1_path(x, y, counts, [c / 3, c], classes)[1],
    }
    for r, rows in enumerate(counts > 0):
        twin = LogisticRegression(C=c, l1_ratio=1, solver="saga", max_iter=20_000, tol=1e-6, random_state=0).fit(x[rows], y[rows])
        weight, bias = twin.coef_, twin.intercept_
        if classes == 2:
            weight, bias = np.concatenate([0 * weight, weight]), np.concatenate([[0], bias])
        least = objective(x[rows], y[rows], weight, bias, c)
        for fit in ours.values():
            assert fit.converged
            assert objective(x[rows], y[rows], fit.weight[r], fit.bias[r], c) == pytest.approx(least, rel=1e-3)


def test_a_subsample_has_as_many_of_every_group_as_the_smallest(rng):
    group = np.repeat([0, 1, 3], [5, 9, 30])
    counts = dfr.balanced_counts(group, 4, rng)
    for row in counts:
        assert np.bincount(group[row > 0]).tolist() == [5, 5, 0, 5]
    assert len({row.tobytes() for row in counts}) == 4


def test_a_constant_input_is_not_divided_by_zero():
    mean, std = standard(np.array([[1.0, 5.0], [3.0, 5.0]]))
    assert mean.tolist() == [2, 5]
    assert std.tolist() == [1, 1]


def test_the_folded_head_is_the_mean_of_the_refits_on_standardised_features(cohort):
    """The whole of the method, step by step with scikit-learn, and its logits."""
    old = cnn()
    new = dfr.mitigate(old, cohort, rng=np.random.default_rng(7), C=[0.5], refits=5)
    rng = np.random.default_rng(7)
    fit = grouped(old, audit_half(cohort, rng), None)
    z = read(old, fit.cohort, ("features",))["features"].astype(np.float64)
    mean, std = z.mean(0), z.std(0)
    std[std < 1e-8] = 1
    x, smallest = (z - mean) / std, np.bincount(fit.group).min()
    draws = [
        np.concatenate([rng.choice(np.flatnonzero(fit.group == g), smallest, replace=False) for g in range(4)]) for _ in range(5)
    ]
    settings = {"C": 0.5, "l1_ratio": 1, "solver": "liblinear", "intercept_scaling": 100, "max_iter": 1000}
    refits = [LogisticRegression(**settings, random_state=rng.integers(2**31)).fit(x[rows], fit.y[rows]) for rows in draws]
    w, b = np.mean([m.coef_[0] for m in refits], 0), np.mean([m.intercept_[0] for m in refits], 0)
    test = cohort.on("test")
    found = read(new, test, ("logits", "features"))
    expected = (found["features"] - mean) / std @ w + b
    np.testing.assert_allclose(found["logits"][:, 1] - found["logits"][:, 0], expected, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize(("network", "world"), [(cnn, "cohort"), (vit, "three")])
def test_only_the_last_layer_changes_and_the_old_model_stays(network, world, request):
    rows = request.getfixturevalue(world)
    old = network(rows.classes)
    old.used = frozenset({"earlier"})
    before = old.fingerprint
    new = dfr.mitigate(old, rows, rng=np.random.default_rng(0), C=[0.3, 1.0], refits=3)
    assert old.fingerprint == before != new.fingerprint
    changed = [k for k, v in new.module.state_dict().items() if not torch.equal(v, old.module.state_dict()[k])]
    assert {name.rsplit(".", 1)[0] for name in changed} == {old.cut.head[-1]}
    audit = set(rows.on("audit").id)
    assert new.used >= set(rows.on("val").id) | {"earlier"}
    assert abs(len(new.used & audit) - len(audit) / 2) <= len(rows.classes) * 3
    assert not new.used & set(rows.on("test").id)
    told = new.card["mitigation"]
    assert (new.card["regime"], told["selected_by"]) == ("dfr", "validation WGA")
    assert told["chosen"]["C"] in (0.3, 1.0)
    new.verify()


def test_a_second_time_it_takes_rows_that_it_has_not_seen(cohort):
    first = dfr.mitigate(cnn(), cohort, rng=np.random.default_rng(0), C=[1.0], refits=2)
    second = dfr.mitigate(first, cohort, rng=np.random.default_rng(0), C=[1.0], refits=2)
    audit = set(cohort.on("audit").id)
    assert first.used & audit < second.used & audit


class Net(nn.Module):
    def __init__(self, outputs, hidden=0):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(3 * 64, 6), nn.ReLU())
        self.deep = nn.Sequential(nn.Linear(6, 5), nn.ReLU()) if hidden else nn.Identity()
        self.fc = nn.Linear(5 if hidden else 6, outputs)

    def forward(self, x):
        return self.fc(self.deep(self.body(x)))


@pytest.mark.parametrize(
    ("net", "how"),
    [
        (Net(3), {"classes": (0, 1, 2)}),
        (Net(1), {"classes": (0, 1)}),
        (Net(4), {"output": 2}),
        (Net(3, hidden=5), {"features": "body", "classes": (0, 1, 2)}),
    ],
    ids=["linear", "one logit", "one of four logits", "two layers"],
)
def test_a_new_last_layer_gives_the_logits_it_was_asked_for(net, how, rng):
    model = Classifier.wrap(net, size=8, **how)
    x = torch.randn(5, 3, 8, 8)
    z = last_inputs(model, model.features(x).detach().numpy())
    weight, bias = rng.normal(size=(model.C, z.shape[1])), rng.normal(size=model.C)
    new = with_last_layer(model, weight, bias)
    wanted = z @ weight.T + bias
    found = new.logits(x).detach().numpy()
    np.testing.assert_allclose(found - found[:, :1], wanted - wanted[:, :1], atol=1e-5)
    new.verify()
    if "output" in how:
        assert torch.equal(new.module.fc.weight[[0, 1, 3]], model.module.fc.weight[[0, 1, 3]])


def test_layers_side_by_side_share_the_new_weights(rng):
    spec = "timm:deit_tiny_distilled_patch16_224"
    model = Classifier.load(spec, num_classes=3, size=32, embed_dim=12, depth=1, num_heads=2)
    x = torch.randn(4, 3, 32, 32)
    z = last_inputs(model, model.features(x).detach().numpy())
    weight, bias = rng.normal(size=(3, z.shape[1])), rng.normal(size=3)
    new = with_last_layer(model, weight, bias)
    np.testing.assert_allclose(new.logits(x).detach().numpy(), z @ weight.T + bias, atol=1e-5)


def test_what_it_cannot_use_is_refused(cohort):
    with pytest.raises(SettingError, match="refits"):
        dfr.mitigate(cnn(), cohort, rng=np.random.default_rng(0), refits=0)
    few = (cohort.splits != "audit") | (cohort.label == 0) | (cohort.attribute().values == 1)
    with pytest.raises(DataError, match="label=1, cue=0: 0"):
        dfr.mitigate(cnn(), cohort.select(few), rng=np.random.default_rng(0))
    net = Net(2)
    net.fc = nn.Linear(6, 2, bias=False)
    with pytest.raises(ModelError, match="no bias"):
        with_last_layer(Classifier.wrap(net, size=8), np.zeros((2, 6)), np.zeros(2))
