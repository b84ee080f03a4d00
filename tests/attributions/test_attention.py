"""Attention and rollout: what the class token looks at, seen from outside the network."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from rightreasons.attributions import attention, map_name, rollout  # noqa: E402
from rightreasons.errors import ModelError, SettingError  # noqa: E402
from rightreasons.extraction import recipes  # noqa: E402
from rightreasons.models.classifier import Classifier  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def vit():
    from timm.models.vision_transformer import VisionTransformer

    generator = torch.Generator().manual_seed(0)
    module = VisionTransformer(img_size=32, patch_size=8, embed_dim=16, depth=2, num_heads=2, num_classes=3)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    made = Classifier.wrap(module, size=32)
    made.module.double()
    return made


def literal(classifier, x):
    """(b, heads, N, N) of every block by its definition."""
    module, found = classifier.module, []
    tokens = module._pos_embed(module.patch_embed(x))
    for block in module.blocks:
        qkv = block.attn.qkv(block.norm1(tokens)).reshape(len(x), 17, 3, 2, 8).permute(2, 0, 3, 1, 4)
        found.append((qkv[0] @ qkv[1].transpose(-2, -1) / 8**0.5).softmax(-1))
        tokens = block(tokens)
    return found


def test_attention_is_the_class_tokens_row_of_the_last_block(vit):
    x, target = torch.randn(2, 3, 32, 32, dtype=torch.float64), torch.tensor([0, 2])
    with torch.no_grad():
        expected = literal(vit, x)[-1].mean(1)[:, 0, 1:].view(2, 4, 4)
    found = attention.maps(vit, x, target=target)
    assert torch.allclose(found, expected, atol=1e-12)
    assert torch.equal(found, attention.maps(vit, x, target=2 - target))


def test_rollout_multiplies_attention_through_the_blocks(vit):
    x = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    with torch.no_grad():
        first, last = ((a.mean(1) + torch.eye(17, dtype=torch.float64)) / 2 for a in literal(vit, x))
    found = rollout.maps(vit, x, target=torch.tensor([0, 1]))
    assert torch.allclose(found, (last @ first)[:, 0, 1:].view(2, 4, 4), atol=1e-12)
    assert (found > 0).all()


def test_without_a_class_token_every_patch_asks():
    from timm.models.vision_transformer import VisionTransformer

    module = VisionTransformer(
        img_size=32, patch_size=8, embed_dim=16, depth=1, num_heads=2, num_classes=3, class_token=False, global_pool="avg"
    )
    found = attention.maps(Classifier.wrap(module, size=32), torch.randn(2, 3, 32, 32), target=torch.tensor([0, 1]))
    assert torch.allclose(found.sum((1, 2)), torch.ones(2), atol=1e-5)


def test_a_network_whose_attention_is_multi_head_of_torch_is_seen_too():
    from torchvision.models.vision_transformer import VisionTransformer

    classifier = Classifier.wrap(VisionTransformer(32, 8, 2, 2, 16, 32, num_classes=3), size=32)
    x = torch.randn(2, 3, 32, 32)
    weights = []
    last = classifier.module.encoder.layers[-1]
    handle = last.self_attention.register_forward_pre_hook(lambda m, args: weights.append(args[0]))
    classifier.logits(x)
    handle.remove()
    expected = last.self_attention(*[weights[0]] * 3, need_weights=True)[1][:, 0, 1:].view(2, 4, 4)
    assert torch.allclose(attention.maps(classifier, x, target=torch.tensor([0, 1])), expected, atol=1e-6)


def test_a_cnn_has_no_attention_and_attention_explains_no_class():
    cnn = Classifier.load("rightreasons.models.small:small_cnn", num_classes=2, size=(16, 16))
    for method in (attention, rollout):
        with pytest.raises(ModelError, match="small_cnn"):
            method.maps(cnn, torch.randn(1, 3, 16, 16), target=torch.tensor([0]))
    with pytest.raises(SettingError, match="explains no class"):
        recipes.make("maps@attention(explain=label)")
    assert map_name("attention", "label") == "maps@attention"
    assert map_name("gradcam(layer=norm)", "label") == "maps@gradcam(explain=label,layer=norm)"
