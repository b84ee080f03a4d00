"""Many two-headed networks fitted at once (benchmarks/_two_heads.py) are those fitted one by one."""

from functools import partial

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from benchmarks import _two_heads as two_heads  # noqa: E402
from benchmarks._two_heads import TwoHeads, batch_rows, fit_many  # noqa: E402
from torch import nn  # noqa: E402

from rightreasons.errors import SettingError  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_quiet_thread")]


def planted_rows(n=300, d=12, dtype=torch.float64):
    rng = np.random.default_rng(0)
    y = rng.random(n) < 0.5
    a = np.where(rng.random(n) < 0.8, y, ~y)
    x = rng.normal(size=(n, d))
    x[:, 0] += 1.5 * y
    x[:, 1] += 2.0 * a
    return tuple(torch.from_numpy(part.astype(np.float64)).to(dtype) for part in (x, y, a))


def rngs(number, task=0):
    return [np.random.default_rng([task, k]) for k in range(number)]


SCALES = torch.tensor([0.0, 0.5, 1.0, -2.0], dtype=torch.float64)
SETTING = {"scale": SCALES, "weight": 0.75}


def starts(S=3, L=4, d=12, **kind):
    return {name: p.double() for name, p in TwoHeads.start(rngs(S, 1), L, d, **kind).items()}


class Scale(torch.autograd.Function):
    """Identity forward, times `scale` backward."""

    @staticmethod
    def forward(ctx, x, scale):
        ctx.scale = scale
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.scale, None


class Plain(nn.Module):
    """The two-headed network as everybody writes it."""

    def __init__(self, params):
        super().__init__()
        self.layers = nn.ModuleDict()
        for name in [key.removesuffix(".weight") for key in params if key.endswith(".weight")]:
            layer = nn.Linear(*params[f"{name}.weight"].shape[::-1], dtype=torch.float64)
            with torch.no_grad():
                layer.weight.copy_(params[f"{name}.weight"])
                layer.bias.copy_(params[f"{name}.bias"])
            self.layers[name.replace(".", "_")] = layer

    def loss(self, x, y, a, scale, weight):
        for name, layer in self.layers.items():
            if name.startswith("body"):
                x = layer(x).relu()
        branch = self.layers["attribute"](self.layers["branch"](Scale.apply(x, scale)).relu())
        of = nn.functional.binary_cross_entropy_with_logits
        label = of(self.layers["label"](x)[:, 0], y)
        return label if scale == 0 else label + weight * of(branch[:, 0], a)


def one_by_one(params, data, steps, batch, make):
    """Trained parameters and losses of every model, in a loop."""
    S, L = params["label.bias"].shape[:2]
    losses = torch.zeros(steps, S, L, dtype=torch.float64)
    trained = {}
    for s, rng in enumerate(rngs(S)):
        order = batch_rows(rng, len(data[0]), batch, steps)
        for j in range(L):
            network = Plain({name: p[s, j] for name, p in params.items()})
            optimizer = make(network.parameters())
            for k in range(steps):
                optimizer.zero_grad()
                loss = network.loss(*(part[order[k]] for part in data), float(SCALES[j]), 0.75)
                loss.backward()
                optimizer.step()
                losses[k, s, j] = loss.detach()
            trained[s, j] = network
    return trained, losses


@pytest.mark.parametrize("is_by_hand", [True, False])
def test_many_fitted_at_once_are_those_fitted_one_by_one(is_by_hand):
    data, params, loss = planted_rows(), starts(), TwoHeads()
    fitted = fit_many(loss if is_by_hand else loss.__call__, params, data, rngs=rngs(3), setting=SETTING, steps=60, batch=32)
    trained, losses = one_by_one(params, data, 60, 32, partial(torch.optim.Adam, lr=1e-3))
    torch.testing.assert_close(fitted.losses, losses, rtol=1e-9, atol=1e-12)
    for (s, j), network in trained.items():
        for name, p in fitted.params.items():
            layer, part = name.rsplit(".", 1)
            torch.testing.assert_close(p[s, j], getattr(network.layers[layer.replace(".", "_")], part).data, rtol=1e-7, atol=1e-9)
    assert not fitted.diverged.any()


@pytest.mark.parametrize("hidden", [(10, 10, 10), (7,), (5, 3)])
@pytest.mark.parametrize("branch", [1, 2, 4])
def test_gradients_by_hand_are_those_of_autograd(hidden, branch):
    params = starts(2, 4, hidden=hidden, branch=branch)
    x, y, a = planted_rows()
    rows = torch.arange(48).view(2, 24)
    setting = {"scale": SCALES.expand(2, 4), "weight": torch.full((2, 4), 0.75, dtype=torch.float64)}
    by_hand = TwoHeads().gradients(params, x[rows], y[rows], a[rows], setting=setting)
    by_autograd = two_heads._by_vmap(TwoHeads().__call__)(params, x[rows], y[rows], a[rows], setting=setting)
    torch.testing.assert_close(by_hand[0], by_autograd[0], rtol=1e-12, atol=1e-14)
    for name, grad in by_autograd[1].items():
        torch.testing.assert_close(by_hand[1][name], grad, rtol=1e-10, atol=1e-14)


def test_scale_zero_is_single_task_training_to_the_last_bit():
    data, params = planted_rows(dtype=torch.float32), {name: p.float() for name, p in starts(2, 1).items()}
    runs = [
        fit_many(TwoHeads(), params, data, rngs=rngs(2), setting={"scale": scale, "weight": weight}, steps=40)
        for scale, weight in ((0.0, 0.75), (0.0, 0.0))
    ]
    assert torch.equal(runs[0].losses, runs[1].losses)
    assert torch.equal(runs[0].params["body.0.weight"], runs[1].params["body.0.weight"])


def test_the_body_sees_the_scaled_gradient_and_the_branch_the_whole():
    params = {name: p.expand(1, 2, *p.shape[2:]) for name, p in starts(1, 1).items()}
    x, y, a = (part[None, :64] for part in planted_rows())
    ones = torch.ones(1, 2, dtype=torch.float64)

    def grads(scale, weight):
        return TwoHeads().gradients(params, x, y, a, setting={"scale": ones * scale, "weight": ones * weight})[1]

    label, whole, scaled = grads(0.0, 0.75), grads(1.0, 0.75), grads(-3.0, 0.75)
    attribute = whole["body.1.weight"] - label["body.1.weight"]
    torch.testing.assert_close(scaled["body.1.weight"] - label["body.1.weight"], -3 * attribute)
    torch.testing.assert_close(scaled["branch.weight"], whole["branch.weight"])


def test_the_number_of_threads_and_the_chunks_change_nothing(monkeypatch):
    data, params = planted_rows(dtype=torch.float32), {name: p.float() for name, p in starts(5, 4).items()}

    def run(threads):
        return fit_many(
            TwoHeads(), params, data, rngs=rngs(5), setting={"scale": SCALES.float(), "weight": 0.75}, steps=30, threads=threads
        )

    monkeypatch.setattr(two_heads, "CHUNK", 6)
    one, two = run(1), run(2)
    assert all(torch.equal(one.params[name], two.params[name]) for name in params)
    monkeypatch.setattr(two_heads, "CHUNK", 64)
    torch.testing.assert_close(run(2).losses, one.losses, rtol=1e-4, atol=1e-5)
    assert torch.get_num_threads() == 1


@pytest.mark.parametrize(("S", "L"), [(1, 1), (5, 25), (250, 25), (3, 200), (1, 1000), (1000, 1)])
def test_chunks_cover_every_model_once(S, L):
    seen = np.zeros((S, L), int)
    for part in two_heads._parts(S, L):
        seen[part] += 1
    assert (seen == 1).all()


def test_each_seed_draws_from_its_own_rows_and_every_row_before_any_twice():
    order = batch_rows(np.random.default_rng(0), np.arange(100, 130), 10, 6)
    assert sorted(order[:3].ravel()) == sorted(order[3:].ravel()) == list(range(100, 130))
    x, y, a = planted_rows()
    params = starts(2, 4)
    halves = [np.arange(150), np.arange(150, 300)]
    both = fit_many(TwoHeads(), params, (x, y, a), rngs=rngs(2), setting=SETTING, rows=halves, steps=20)
    for s, rows in enumerate(halves):
        own = {name: p[s : s + 1] for name, p in params.items()}
        alone = fit_many(TwoHeads(), own, (x[rows], y[rows], a[rows]), rngs=rngs(2)[s : s + 1], setting=SETTING, steps=20)
        torch.testing.assert_close(alone.losses[:, 0], both.losses[:, s])


def test_a_model_that_diverges_is_marked_and_the_others_are_not():
    lr = torch.tensor([1e-3, 1e300, 1e-3, 1e-3], dtype=torch.float64).expand(2, 4)
    fitted = fit_many(TwoHeads(), starts(2, 4), planted_rows(), rngs=rngs(2), setting=SETTING, steps=20, lr=lr, optimizer="sgd")
    assert fitted.diverged.tolist() == [[False, True, False, False]] * 2


@pytest.mark.parametrize(
    "given", [{"steps": 0}, {"rngs": []}, {"rows": [[0]]}, {"setting": {"scale": [1.0, 2.0], "weight": 1.0}}]
)
def test_arguments_that_do_not_fit_are_refused(given):
    with pytest.raises(SettingError):
        fit_many(TwoHeads(), starts(), planted_rows(), **{"rngs": rngs(3), "setting": SETTING, "steps": 5, **given})


def test_hand_written_and_stacked_work_on_a_gpu_too():
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    data, params = planted_rows(), starts()
    given = {"rngs": rngs(3), "setting": SETTING, "steps": 50}
    on_gpu = fit_many(TwoHeads(), params, data, device="cuda", **given)
    on_cpu = fit_many(TwoHeads(), params, data, **{**given, "rngs": rngs(3)})
    torch.testing.assert_close(on_gpu.losses.cpu(), on_cpu.losses, rtol=1e-7, atol=1e-9)
