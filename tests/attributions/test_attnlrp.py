"""AttnLRP: each rule alone, the books of relevance, and transformers of three libraries."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torchvision.models import VisionTransformer  # noqa: E402

from rightreasons.attributions import attnlrp  # noqa: E402
from rightreasons.attributions.attnlrp import Ledger, attention_rules  # noqa: E402
from rightreasons.errors import ModelError, SettingError  # noqa: E402
from rightreasons.models.classifier import Classifier  # noqa: E402

pytestmark = pytest.mark.torch


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def relevance(function, *inputs, gamma=0.0):
    """Relevance of the inputs when each output value is its own relevance times `weight`; and the ledger."""
    leaves = [t.clone().requires_grad_() for t in inputs]
    ledger = Ledger(leaves[0])
    with attention_rules(ledger, gamma, gamma, "net"):
        made = function(*leaves)
    arriving = draw(*made.shape, seed=9)
    gradients = torch.autograd.grad(made, leaves, arriving / made.detach())
    return made.detach(), arriving, [t.detach() * g for t, g in zip(leaves, gradients)], ledger.taken


def test_softmax_follows_proposition_3_1():
    x = draw(2, 5)
    s, R, (found,), taken = relevance(lambda t: t.softmax(-1), x)
    for n in range(2):
        for i in range(5):
            assert float(found[n, i]) == pytest.approx(float(x[n, i] * (R[n, i] - s[n, i] * R[n].sum())), abs=1e-5)
    assert torch.allclose(found.sum(1) + taken, R.sum(1), atol=1e-5)


def test_a_matrix_product_follows_proposition_3_3():
    a, b = draw(2, 3, 4), draw(2, 4, 5, seed=1)
    made, R, (of_a, of_b), _ = relevance(torch.matmul, a, b)
    expected = torch.zeros_like(a)
    for n in range(2):
        for j in range(3):
            for i in range(4):
                expected[n, j, i] = sum(a[n, j, i] * b[n, i, p] / (2 * made[n, j, p]) * R[n, j, p] for p in range(5))
    assert torch.allclose(of_a, expected, atol=1e-4 * float(expected.abs().max()))
    assert torch.allclose(of_a.sum((1, 2)), R.sum((1, 2)) / 2, rtol=1e-3)
    assert torch.allclose(of_b.sum((1, 2)), R.sum((1, 2)) / 2, rtol=1e-3)


@pytest.mark.parametrize("function", [F.gelu, F.silu, torch.tanh, nn.ReLU(inplace=True), F.hardswish])
def test_an_elementwise_function_passes_relevance_on(function):
    x = draw(2, 7).abs() + 0.1
    _, R, (found,), _ = relevance(function, x)
    assert torch.allclose(found, R, atol=1e-5)


def test_a_layer_norm_is_linear_with_its_deviation_fixed():
    x, weight, bias = draw(2, 3, 6), draw(6, seed=1), draw(6, seed=2)
    made, R, (found,), taken = relevance(lambda t: F.layer_norm(t, (6,), weight, bias, 1e-5), x)
    deviation = (x.var(-1, keepdim=True, unbiased=False) + 1e-5).sqrt()
    back = R / made * weight / deviation
    expected = x * (back - back.mean(-1, keepdim=True))
    assert torch.allclose(found, expected, atol=1e-4 * float(expected.abs().max()))
    assert torch.allclose(taken, (R / made * bias).sum((1, 2)), rtol=1e-3)
    assert torch.allclose(found.sum((1, 2)) + taken, R.sum((1, 2)), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("gamma", [0.0, 0.1, 2.0])
def test_a_linear_layer_follows_the_gamma_rule_for_inputs_and_outputs_of_both_signs(gamma):
    x, weight, bias = draw(2, 4), draw(3, 4, seed=1), draw(3, seed=2)
    z, R, (found,), taken = relevance(lambda t: F.linear(t, weight, bias), x, gamma=gamma)
    expected, kept = torch.zeros_like(x), torch.zeros(2)
    for n in range(2):
        for j in range(3):
            parts = [*(x[n] * weight[j]), bias[j]]
            own = [c + gamma * (c.clamp(min=0) if z[n, j] > 0 else c.clamp(max=0)) for c in parts]
            for i in range(4):
                expected[n, i] += own[i] / sum(own) * R[n, j]
            kept[n] += own[4] / sum(own) * R[n, j]
    assert torch.allclose(found, expected, atol=1e-4 * float(expected.abs().max()))
    assert torch.allclose(taken, kept, atol=1e-4 * float(expected.abs().max()))


def test_constants_in_sums_and_beside_tokens_are_booked():
    x, position, token = draw(2, 3, 4), draw(1, 4, 4, seed=1), draw(1, 1, 4, seed=2)
    _, R, (found,), taken = relevance(lambda t: torch.cat([token.expand(2, -1, -1), t], 1) + position, x)
    assert torch.allclose(found.sum((1, 2)) + taken, R.sum((1, 2)), rtol=1e-4, atol=1e-4)
    with_number = relevance(lambda t: 2 - t / 3, x)
    assert torch.allclose(with_number[2][0].sum((1, 2)) + with_number[3], with_number[1].sum((1, 2)), rtol=1e-4, atol=1e-4)


def test_fused_attention_is_the_same_as_attention_spelled_out():
    q, k, v = (draw(2, 2, 5, 4, seed=i) for i in range(3))
    fused = relevance(F.scaled_dot_product_attention, q, k, v)
    plain = relevance(lambda q, k, v: (q * 0.5 @ k.transpose(-2, -1)).softmax(-1) @ v, q, k, v)
    assert torch.allclose(fused[0], F.scaled_dot_product_attention(q, k, v), atol=1e-6)
    for one, other in zip((*fused[2], fused[3]), (*plain[2], plain[3])):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-4 * float(other.abs().max()))


# ---- whole networks --------------------------------------------------------------------------------------------------------

HF = {
    "image_size": 32,
    "patch_size": 8,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 32,
}
VIT = {"patch_size": 8, "embed_dim": 24, "depth": 2, "num_heads": 3}
NETWORKS = {
    "timm": ("timm:vit_tiny_patch16_224", {"size": 32, **VIT}),
    "registers, layer scale, mean pool": (
        "timm:vit_tiny_patch16_224",
        {
            "size": (32, 48),
            **VIT,
            "reg_tokens": 2,
            "class_token": False,
            "global_pool": "avg",
            "init_values": 0.5,
            "qk_norm": True,
        },
    ),
    "torchvision": ("torchvision", {"size": 32}),
    "hugging face": ("hf:ViTForImageClassification", {"size": 32, **HF}),
    "windows": ("timm:swin_tiny_patch4_window7_224", {"size": 56, "embed_dim": 12, "depths": (2, 2), "num_heads": (2, 2)}),
}


@pytest.mark.parametrize("gamma", [0.0, 0.1])
@pytest.mark.parametrize("which", NETWORKS)
def test_what_arrives_and_what_was_taken_make_the_score(which, gamma):
    spec, settings = NETWORKS[which]
    if spec.startswith("hf:"):
        pytest.importorskip("transformers")
    if spec == "torchvision":
        network = VisionTransformer(32, 8, num_layers=2, num_heads=3, hidden_dim=24, mlp_dim=32, num_classes=3)
        model = Classifier.wrap(network, size=32)
    else:
        model = Classifier.load(spec, num_classes=3, **settings)
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for parameter in model.module.parameters():  # heads, biases and embeddings start at zero
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    x, target = draw(2, 3, *model.geometry.size), torch.tensor([0, 2])
    maps, sums = attnlrp.maps_and_conservation(model, x, target=target, gamma=gamma, patch_gamma=gamma)
    assert maps.shape == (2, *model.geometry.size)
    assert maps.any()
    assert torch.allclose(sums[:, 2], model.logits(x)[torch.arange(2), target], rtol=1e-3, atol=1e-4)
    assert torch.allclose(sums[:, 0] + sums[:, 1], sums[:, 2], rtol=1e-3, atol=2e-3 * float(sums.abs().max()))


def test_without_biases_or_embeddings_only_softmax_takes_relevance():
    model = Classifier.load("timm:vit_tiny_patch16_224", num_classes=2, size=32, **VIT)
    with torch.no_grad():
        for name, parameter in model.module.named_parameters():
            if (parameter.ndim == 1 and "norm" not in name) or name.endswith("norm.bias") or name in ("pos_embed", "cls_token"):
                parameter.zero_()
        for block in model.module.blocks:  # all scores zero: attention is an even mean, and softmax has no input to explain
            block.attn.qkv.weight[: 2 * 24] = 0
    x = draw(2, 3, 32, 32)
    total, taken, score = attnlrp.maps_and_conservation(model, x, target=torch.tensor([0, 1]), gamma=0, patch_gamma=0)[1].T
    assert (score.abs() > 1e-3).all()
    assert torch.allclose(total + taken, score, atol=1e-5)


def test_class_zero_of_a_one_logit_head_has_the_opposite_relevance():
    model = Classifier.load("rightreasons.models.small:small_vit", num_classes=1, size=(16, 16), dim=16, depth=2, heads=2)
    x = draw(2, 3, 16, 16)
    one, zero = (attnlrp.maps(model, x, target=torch.full((2,), t)) for t in (1, 0))
    assert one.any()
    assert torch.allclose(one, -zero, atol=1e-7)


def test_what_has_no_attention_or_no_rule_is_refused_by_name():
    cnn = Classifier.load("rightreasons.models.small:small_cnn", num_classes=2, size=(16, 16), width=4)
    x, target = draw(1, 3, 16, 16), torch.tensor([0])
    with pytest.raises(ModelError, match=r"attnlrp explains networks with attention, and .*small_cnn has none: use lrp"):
        attnlrp.maps(cnn, x, target=target)

    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(3, 2)

        def forward(self, x):
            return self.fc(torch.exp(x.mean((2, 3)).softmax(-1)))

    with pytest.raises(ModelError, match="no rule for the function 'exp' that wrapped:Odd calls: use integrated_gradients"):
        attnlrp.maps(Classifier.wrap(Odd().eval(), size=16), x, target=target)
    with pytest.raises(SettingError, match="gamma=-1"):
        attnlrp.maps(cnn, x, target=target, gamma=-1)


def test_a_change_in_place_that_the_rules_lose_is_noticed():
    class InPlace(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(3, 2)

        def forward(self, x):
            pooled = x.mean((2, 3)).softmax(-1)
            pooled.add_(1.0)
            return self.fc(pooled)

    with pytest.raises(ModelError, match="attnlrp changed the output of wrapped:InPlace"):
        attnlrp.maps(Classifier.wrap(InPlace().eval(), size=16), draw(1, 3, 16, 16), target=torch.tensor([0]))
