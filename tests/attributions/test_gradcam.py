"""Grad-CAM: the formula, the layer it reads, maps of any dimension, tokens on their grid."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from rightreasons.attributions import gradcam  # noqa: E402
from rightreasons.errors import ModelError, SettingError  # noqa: E402
from rightreasons.models.classifier import Classifier  # noqa: E402

pytestmark = pytest.mark.torch


def draw(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def small(which="cnn", **settings):
    return Classifier.load(f"rightreasons.models.small:small_{which}", **{"num_classes": 3, "size": (16, 16), **settings})


def literal(activation, score):
    """Selvaraju et al., eq. 1 and 2, one image and one channel at a time, without the final ReLU."""
    (gradient,) = torch.autograd.grad(score.sum(), activation)
    maps = []
    for image in range(len(activation)):
        total = torch.zeros(activation.shape[2:])
        for k in range(activation.shape[1]):
            alpha = gradient[image, k].sum() / gradient[image, k].numel()
            total = total + alpha * activation[image, k].detach()
        maps.append(total)
    return torch.stack(maps)


def test_the_map_is_the_sum_of_channels_by_their_mean_gradient():
    model, x, target = small(width=4), draw(3, 3, 16, 16), torch.tensor([0, 2, 1])
    activation = model.module.body(x).detach().requires_grad_()
    scores = model.module.fc(model.module.pool(activation))[torch.arange(3), target]
    found = gradcam.maps(model, x, target=target)
    assert found.shape == (3, 4, 4)
    assert torch.allclose(found, literal(activation, scores), atol=1e-6)
    assert (found < 0).any(), "the map is signed"


def test_an_inner_layer_is_read_where_it_lies():
    model, x, target = small(width=4), draw(2, 3, 16, 16), torch.tensor([0, 1])
    activation = model.module.body[:2](x).detach().requires_grad_()
    rest = model.module.body[2:]
    scores = model.module.fc(model.module.pool(rest(activation.clone())))[torch.arange(2), target]
    found = gradcam.maps(model, x, target=target, layer="body.1")
    assert found.shape == (2, 8, 8)
    assert torch.allclose(found, literal(activation, scores), atol=1e-6)
    assert torch.equal(found, gradcam.maps(model, x, target=target, layer="body.2:input"))


def test_class_zero_of_a_one_logit_head_is_explained_by_minus_z():
    model, x = small(num_classes=1, width=4), draw(2, 3, 16, 16)
    one, zero = (gradcam.maps(model, x, target=torch.full((2,), t)) for t in (1, 0))
    assert one.abs().max() > 0
    assert torch.equal(one, -zero)


def test_one_logit_picked_from_many_is_explained_alone():
    x = draw(2, 3, 16, 16)
    whole, picked = small(width=4), small(width=4, output=2)
    expected = gradcam.maps(whole, x, target=torch.tensor([2, 2]))
    assert torch.equal(gradcam.maps(picked, x, target=torch.tensor([1, 0])), expected * torch.tensor([1, -1])[:, None, None])


def test_a_volume_has_a_map_of_three_dimensions():
    body = nn.Sequential(nn.Conv3d(1, 4, 3, stride=2, padding=1), nn.ReLU(), nn.Conv3d(4, 6, 3, padding=1), nn.ReLU())
    network = nn.Sequential(body, nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(6, 2))
    model, x, target = Classifier.wrap(network, size=(8, 12, 10), channels=1), draw(2, 1, 8, 12, 10), torch.tensor([1, 0])
    activation = body(x).detach().requires_grad_()
    found = gradcam.maps(model, x, target=target)
    assert found.shape == (2, 4, 6, 5)
    assert torch.allclose(found, literal(activation, network[1:](activation)[torch.arange(2), target]), atol=1e-6)


def test_a_function_between_the_map_and_the_pool_is_part_of_the_map():
    class Rectifying(nn.Module):
        def __init__(self):
            super().__init__()
            self.features = nn.Conv2d(3, 8, 3, stride=2, padding=1)
            self.classifier = nn.Linear(8, 2)

        def forward(self, x):
            return self.classifier(torch.relu(self.features(x)).mean((2, 3)))

    network, x, target = Rectifying().eval(), draw(2, 3, 12, 12), torch.tensor([1, 0])
    model = Classifier.wrap(network, size=12)
    assert model.cut.spatial_activation == "relu"
    activation = network.features(x).relu().detach().requires_grad_()
    scores = network.classifier(activation.mean((2, 3)))[torch.arange(2), target]
    assert torch.allclose(gradcam.maps(model, x, target=target), literal(activation, scores), atol=1e-6)


def test_channels_may_be_last():
    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.patches = nn.Conv2d(3, 5, 4, stride=4)
            self.mix = nn.Linear(5, 5)
            self.fc = nn.Linear(5, 2)

        def forward(self, x):
            return self.fc(self.mix(self.patches(x).movedim(1, -1)).mean((1, 2)))

    model, x, target = Classifier.wrap(Last().eval(), size=(16, 24)), draw(2, 3, 16, 24), torch.tensor([1, 0])
    assert model.cut.spatial_last
    expected = gradcam.maps(model, x, target=target)
    assert expected.shape == (2, 4, 6)
    for channels in ("auto", "last"):
        assert torch.equal(gradcam.maps(model, x, target=target, layer="mix", channels=channels), expected)
    with pytest.raises(SettingError, match="give auto, first or last"):
        gradcam.maps(model, x, target=target, channels="middle")


# ---- tokens ----------------------------------------------------------------------------------------------------------------


def test_tokens_lie_on_their_grid_without_the_class_token():
    model, x, target = small("vit", size=(16, 24), dim=16, depth=2, heads=2), draw(2, 3, 16, 24), torch.tensor([0, 2])
    tokens, logits = model.activations(x, ["blocks.1.norm1"])
    tokens = tokens["blocks.1.norm1"]
    (gradient,) = torch.autograd.grad(logits[torch.arange(2), target].sum(), tokens)
    expected = (gradient[:, 1:].mean(1, keepdim=True) * tokens[:, 1:]).sum(-1).reshape(2, 4, 6)
    found = gradcam.maps(model, x, target=target)
    assert torch.allclose(found, expected, atol=1e-6)
    assert torch.equal(found, gradcam.maps(model, x, target=target, layer="blocks.1.norm1"))


def test_after_the_last_attention_only_the_class_token_counts_so_the_map_there_is_empty():
    model, x, target = small("vit", dim=16, depth=2, heads=2), draw(2, 3, 16, 16), torch.tensor([0, 2])
    assert not gradcam.maps(model, x, target=target, layer="blocks.1").any()
    assert gradcam.maps(model, x, target=target).any()


@pytest.mark.parametrize(
    ("settings", "layer"),
    [({"class_token": False, "global_pool": "avg", "reg_tokens": 0}, "blocks.1.norm2"), ({"reg_tokens": 3}, "blocks.1.norm1")],
)
def test_register_tokens_and_mean_pooling_are_understood(settings, layer):
    size = {"size": 32, "patch_size": 8, "embed_dim": 16, "depth": 2, "num_heads": 2}
    model = Classifier.load("timm:vit_tiny_patch16_224", num_classes=2, **size, **settings)
    x, target = draw(2, 3, 32, 32), torch.tensor([0, 1])
    found = gradcam.maps(model, x, target=target)
    assert found.shape == (2, 4, 4)
    assert torch.equal(found, gradcam.maps(model, x, target=target, layer=layer))


def test_the_layer_is_found_although_the_head_is_still_zero():
    model = small("vit", dim=16, depth=2, heads=2)
    nn.init.zeros_(model.module.head.weight)
    assert gradcam.maps(model, draw(1, 3, 16, 16), target=torch.tensor([1])).shape == (1, 4, 4)


# ---- refusals --------------------------------------------------------------------------------------------------------------


def test_what_cannot_be_a_map_is_refused_by_name():
    model, vit = small(width=4), small("vit", dim=16, depth=2, heads=2)
    x, target = draw(2, 3, 16, 16), torch.tensor([0, 1])
    with pytest.raises(ModelError, match=r"'pool:output' of .*small_cnn gives \(2, 16\): expected a map with 2 axes"):
        gradcam.maps(model, x, target=target, layer="pool")
    with pytest.raises(ModelError, match="no layer 'bodi': did you mean one of body"):
        gradcam.maps(model, x, target=target, layer="bodi")
    with pytest.raises(ModelError, match=r"'blocks.0.attn.q_norm:output' of .*small_vit gives \(2, 2, 17, 8\) for images of"):
        gradcam.maps(vit, x, target=target, layer="blocks.0.attn.q_norm")  # heads, tokens and channels are no map
    with pytest.raises(SettingError, match=r"target goes from 0 to 3, and .* has the outputs 0 to 2"):
        gradcam.maps(model, x, target=torch.tensor([0, 3]))
    with pytest.raises(SettingError, match="explained output of each of 2 images"):
        gradcam.maps(model, x, target=torch.tensor([0.0, 1.0]))


def test_tokens_that_fit_no_grid_are_refused():
    class Reduced(nn.Module):
        def __init__(self):
            super().__init__()
            self.patches = nn.Conv2d(3, 6, 4, stride=4)
            self.fewer = nn.Linear(16, 7)
            self.norm = nn.LayerNorm(6)
            self.fc = nn.Linear(6, 2)

        def forward(self, x):
            tokens = self.fewer(self.patches(x).flatten(2)).transpose(1, 2)
            return self.fc(self.norm(tokens).mean(1))

    model = Classifier.wrap(Reduced().eval(), size=16)
    with pytest.raises(ModelError, match=r"gives \(2, 7, 6\), read as \(images, tokens, channels\), .* grid of \(4, 4\)"):
        gradcam.maps(model, draw(2, 3, 16, 16), target=torch.tensor([0, 1]), layer="norm")


def test_a_map_that_is_not_finite_is_an_error():
    model = small(width=4)
    x = draw(2, 3, 16, 16)
    x[1, 0, 0, 0] = float("nan")
    with pytest.raises(ModelError, match=r"gradcam of .* is not finite for 1 of 2 images"):
        gradcam.maps(model, x, target=torch.tensor([0, 1]))
