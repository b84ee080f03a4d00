"""A-SSD: the dampening, and importances from the gradients of single rows."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from unlearning_worlds import erm, same, started, world  # noqa: E402

from rightreasons.errors import ModelError, SettingError  # noqa: E402
from rightreasons.mitigations.ssd import damp, importances, mitigate  # noqa: E402
from rightreasons.models.classifier import Classifier  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def cohort(tmp_path_factory):
    return world(tmp_path_factory.mktemp("stripes"), missing=5)


@pytest.fixture(scope="module", params=["cnn", "vit"])
def model(request, cohort):
    return erm(cohort, request.param, epochs=1)


def test_every_weight_is_damped_by_the_formula_of_ssd():
    g = torch.Generator().manual_seed(0)
    network = nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 2))
    before = {name: weight.detach().clone() for name, weight in network.named_parameters()}
    task = {name: torch.rand(w.shape, generator=g).double() * 0.1 for name, w in before.items()}
    association = {name: torch.rand(w.shape, generator=g).double() for name, w in before.items()}
    task["0.bias"][0], association["0.bias"][0] = 0.0, 0.3  # matters for the association alone
    task["0.bias"][1], association["0.bias"][1] = 0.0, 0.0  # matters for nothing
    for alpha, damping in [(10.0, 1.0), (2.0, 5.0)]:
        damped = 0
        expected = {name: w.clone() for name, w in before.items()}
        for name, w in expected.items():
            for at in np.ndindex(*w.shape):
                i_d, i_f = float(task[name][at]), float(association[name][at])
                if i_f > alpha * i_d:
                    w[at] *= min(damping * i_d / i_f, 1)
                    damped += 1
        with torch.no_grad():
            for name, w in network.named_parameters():
                w.copy_(before[name])
        assert damp(network, task, association, alpha, damping) == damped > 0
        for name, w in network.named_parameters():
            assert torch.allclose(w, expected[name], rtol=1e-6, atol=0), name
    assert float(network[0].bias[0].detach()) == 0
    assert torch.equal(network[0].bias[1].detach(), before["0.bias"][1])


def test_importances_are_means_of_squared_gradients_of_single_rows(model, cohort):
    start = started(model, cohort)
    chosen = np.arange(0, len(start.rows), 7)
    task, association = importances(start, chosen, chunk=8)
    one_by_one = importances(start, chosen, chunk=1)
    made = model.copy()
    weights = dict(made.module.named_parameters())
    sums = [{name: torch.zeros_like(w, dtype=torch.float64) for name, w in weights.items()} for _ in range(2)]
    totals = [0.0, 0.0]
    pixels = np.load(cohort.root / "stack.npy")
    mean, std = (torch.tensor(v).view(-1, 1, 1) for v in (made.mean, made.std))
    for row in chosen:
        image = pixels[int(start.rows.cohort.image[row].split("#")[1])]
        x = ((torch.from_numpy(image).movedim(-1, 0).float() / 255 - mean) / std)[None]
        y, a = torch.tensor([start.rows.y[row]]), torch.tensor([start.rows.a[row]])
        z, logits = made.read(x)
        log_q = torch.log_softmax(start.association.logits(z, y, learns=False), dim=1)[0, a[0]]
        losses = [nn.functional.cross_entropy(logits, y), -log_q]
        for k, share in enumerate([1.0, float(start.association.share[y[0], a[0]])]):
            gradients = torch.autograd.grad(losses[k], list(weights.values()), retain_graph=True, allow_unused=True)
            totals[k] += share
            for name, gradient in zip(weights, gradients, strict=True):
                if gradient is not None:
                    sums[k][name] += share * gradient.double() ** 2
    for found in ((task, association), one_by_one):
        for k in range(2):
            for name in weights:
                expected = sums[k][name] / totals[k]
                assert torch.allclose(found[k][name], expected, rtol=1e-3, atol=1e-5 * float(expected.max())), (k, name)


def test_nothing_is_damped_where_the_association_matters_too_little(model, cohort):
    made = mitigate(model, cohort, rng=np.random.default_rng(0), alpha=1e30, rows=60, batch=50, threads=1, device="cpu")
    found = made.card["mitigation"]["chosen"]["tried"][0]
    changed = sum(int((p != q).sum()) for p, q in zip(made.module.parameters(), model.module.parameters(), strict=True))
    assert changed <= found["damped_weights"]  # only weights without any task importance
    assert made.card["mitigation"]["chosen"]["rows_of_importances"] == 60


class Counts(nn.Module):
    """A network whose forward pass looks at a number, which vmap cannot."""

    def __init__(self):
        super().__init__()
        self.first, self.fc = nn.Linear(768, 8), nn.Linear(8, 2)

    def forward(self, x):
        z = torch.relu(self.first(x.flatten(1)))
        return self.fc(z * 2 if float(z.detach().sum()) > 1e9 else z)


def test_a_network_that_vmap_cannot_take_is_told_the_way_out(cohort):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        odd = Classifier.wrap(Counts(), size=16, classes=cohort.classes)
    settings = {"rows": 20, "batch": 50, "threads": 1, "device": "cpu", "alpha": 1e30}
    with pytest.raises(ModelError, match="chunk=1"):
        mitigate(odd, cohort, rng=np.random.default_rng(0), **settings)
    made = mitigate(odd, cohort, rng=np.random.default_rng(0), chunk=1, **settings)
    assert made.card["regime"] == "ssd"
    assert same(made, made.copy())


def test_settings_below_one_are_refused(model, cohort):
    for name in ("rows", "chunk"):
        with pytest.raises(SettingError, match=f"{name} is 0"):
            mitigate(model, cohort, rng=np.random.default_rng(0), **{name: 0})
