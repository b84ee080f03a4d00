"""LRP: the rules written out for small networks, conservation, and networks that have no rules refused."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("zennit")

from torch import nn  # noqa: E402

from rightreasons.attributions import gradcam, lrp  # noqa: E402
from rightreasons.errors import ModelError, SettingError  # noqa: E402
from rightreasons.models.classifier import Classifier  # noqa: E402

pytestmark = pytest.mark.torch


def draw(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def lived_in(model):
    """Statistics and biases as after training: at their start, norms do nothing."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for norm in model.module.modules():
            if isinstance(norm, nn.modules.batchnorm._BatchNorm):
                for t, low, high in (
                    (norm.running_mean, -0.3, 0.3),
                    (norm.running_var, 0.5, 2),
                    (norm.weight, 0.5, 2),
                    (norm.bias, -0.3, 0.3),
                ):
                    t.copy_(low + (high - low) * torch.rand(t.shape, generator=generator))
    return model


def test_the_rules_written_out_give_the_same_relevance():
    """z-plus for a convolution, epsilon for the linear layer, proportional for the pool: every product by hand."""
    first, second, fc = nn.Conv2d(1, 3, 1, bias=False), nn.Conv2d(3, 4, 1, bias=False), nn.Linear(4, 2, bias=False)
    network = nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), fc)
    model, x = Classifier.wrap(network, size=4, channels=1), draw(1, 1, 4, 4).abs()
    a = first(x).relu().detach()[0].flatten(1)  # (3, 16)
    b = second(a.view(1, 3, 4, 4)).relu().detach()[0].flatten(1)  # (4, 16)
    pooled = b.mean(1)
    at_pool = pooled * fc.weight[1].detach()  # R_j = x_j w_j / z * z
    at_b = b / 16 / (pooled[:, None] + 1e-12) * at_pool[:, None]
    positive = second.weight.detach().flatten(1).clamp(min=0)  # (4, 3)
    at_a = torch.zeros_like(a)
    for place in range(16):
        for j in range(4):
            brought = a[:, place] * positive[j]
            at_a[:, place] += brought / (brought.sum() + 1e-12) * at_b[j, place]
    found = lrp.maps(model, x, target=torch.tensor([1]))  # flat for the first layer: one input channel takes all
    assert torch.allclose(found[0].flatten(), at_a.sum(0), rtol=1e-3, atol=1e-4 * float(at_a.abs().max()))


class Residual(nn.Module):
    """A sum in place, a shared activation, a gate, pools by function: what layers alone do not show."""

    def __init__(self, outputs=2):
        super().__init__()
        self.norm1, self.norm2 = nn.BatchNorm2d(8), nn.BatchNorm2d(8)  # in another order than they are called
        self.conv2, self.conv1 = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.squeeze, self.relu, self.fc = nn.Conv2d(8, 8, 1), nn.ReLU(inplace=True), nn.Linear(16, outputs)

    def forward(self, x):
        x = self.relu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(x))
        y = y * torch.sigmoid(self.squeeze(y.mean((2, 3), keepdim=True)))
        y += x
        y = nn.functional.avg_pool2d(torch.cat([self.relu(y), x], 1), 2)
        return self.fc(nn.functional.max_pool2d(y, 2).mean((2, 3)))


@pytest.mark.parametrize("rules", lrp.RULES)
def test_all_relevance_arrives_when_biases_take_none(rules):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = lived_in(Classifier.wrap(Residual().eval(), size=16))
    x, target = draw(3, 3, 16, 16), torch.tensor([0, 1, 1])
    maps, sums = lrp.maps_and_conservation(model, x, target=target, rules=rules)
    assert maps.shape == (3, 16, 16)
    assert torch.allclose(sums[:, 2], model.logits(x)[torch.arange(3), target], rtol=1e-4)
    assert not sums[:, 1].any()
    assert torch.allclose(sums[:, 0], sums[:, 2], rtol=0.01)
    taken = lrp.maps_and_conservation(model, x, target=target, rules=rules, bias=True)[1]
    assert ((taken[:, 0] - taken[:, 2]).abs() > 0.01 * taken[:, 2].abs()).all(), "biases take relevance when they may"


@pytest.mark.parametrize("spec", ["timm:resnet18", "torchvision:resnet18", "timm:resnetv2_50", "timm:regnety_002"])
def test_relevance_is_conserved_in_residual_networks(spec):
    model = lived_in(Classifier.load(spec, num_classes=3, size=32))
    x = draw(2, 3, 32, 32)
    total, _, score = lrp.maps_and_conservation(model, x, target=model.logits(x).argmax(1))[1].T
    assert torch.allclose(total, score, rtol=0.01)


def test_without_its_rule_a_sum_would_make_relevance_out_of_nothing(monkeypatch):
    model = lived_in(Classifier.load("timm:resnet18", num_classes=3, size=32))
    x = draw(2, 3, 32, 32)
    rules = lrp._between_layers("net").rules
    monkeypatch.setattr(
        lrp,
        "_between_layers",
        lambda name: lrp.Functions(
            {k: v for k, v in rules.items() if k != "add"}, {*lrp.REARRANGING, "conv2d", "linear", "add"}, "lrp", name, ""
        ),
    )
    total, _, score = lrp.maps_and_conservation(model, x, target=model.logits(x).argmax(1))[1].T
    assert (total.abs() > 2 * score.abs()).all()


def test_class_zero_of_a_one_logit_head_has_the_opposite_relevance():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = lived_in(Classifier.wrap(Residual(1).eval(), size=16))
    x = draw(2, 3, 16, 16)
    one, zero = (lrp.maps_and_conservation(model, x, target=torch.full((2,), t)) for t in (1, 0))
    assert torch.allclose(one[0], -zero[0], atol=1e-6)
    assert torch.allclose(one[1][:, 2], model.logits(x)[:, 1], rtol=1e-4)


def test_relevance_can_be_read_at_a_layer():
    model, x, target = (
        lived_in(Classifier.load("timm:resnet18", num_classes=3, size=64)),
        draw(2, 3, 64, 64),
        torch.tensor([0, 1]),
    )
    maps, sums = lrp.maps_and_conservation(model, x, target=target, layer="layer3")
    assert maps.shape == (2, 4, 4)
    assert torch.allclose(sums[:, 0], sums[:, 2], rtol=0.01)
    auto = lrp.maps(model, x, target=target, layer="auto")
    assert auto.shape == gradcam.maps(model, x, target=target).shape
    assert torch.allclose(auto, lrp.maps(model, x, target=target, layer="layer4"), atol=1e-6)


def test_volumes_have_relevance_too():
    body = nn.Sequential(
        nn.Conv3d(1, 4, 3, padding=1, bias=False), nn.BatchNorm3d(4), nn.ReLU(), nn.Conv3d(4, 4, 3, padding=1), nn.ReLU()
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for layer in body:
            if hasattr(layer, "reset_parameters"):
                layer.reset_parameters()
        network = nn.Sequential(body, nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(4, 2))
    model = lived_in(Classifier.wrap(network.eval(), size=(6, 5, 4), channels=1))
    maps, sums = lrp.maps_and_conservation(model, draw(2, 1, 6, 5, 4), target=torch.tensor([1, 0]))
    assert maps.shape == (2, 6, 5, 4)
    assert torch.allclose(sums[:, 0], sums[:, 2], rtol=0.01)


def test_a_transformer_is_refused_by_name_and_sent_to_attnlrp():
    """The library alone gives NaN for it, or passes relevance through attention as through an activation, without a word."""
    model = Classifier.load("rightreasons.models.small:small_vit", num_classes=2, size=(16, 16), dim=16, depth=1, heads=2)
    with pytest.raises(ModelError, match=r"no rule for the function 'layer_norm' that .*small_vit calls: use attnlrp"):
        lrp.maps(model, draw(1, 3, 16, 16), target=torch.tensor([0]))


def test_unknown_rules_are_refused():
    model = Classifier.load("rightreasons.models.small:small_cnn", num_classes=2, size=(16, 16), width=4)
    with pytest.raises(SettingError, match=r"no LRP rules 'epsilon'; .*epsilon_plus"):
        lrp.maps(model, draw(1, 3, 16, 16), target=torch.tensor([0]), rules="epsilon")
