"""Token influence: leaving a token out equals masking its key in every layer, for every family; what is saved changes nothing."""

from __future__ import annotations

from functools import cache

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from rightreasons.attributions import token_influence  # noqa: E402
from rightreasons.errors import ModelError, SettingError  # noqa: E402
from rightreasons.models import plain_blocks as plain  # noqa: E402
from rightreasons.models import tokens as sequence  # noqa: E402
from rightreasons.models.classifier import Classifier  # noqa: E402

pytestmark = pytest.mark.torch

SMALL = {"img_size": 32, "patch_size": 8, "embed_dim": 16, "depth": 3, "num_heads": 2, "num_classes": 4}


def timm_vit(**settings):
    from timm.models.vision_transformer import VisionTransformer

    return VisionTransformer(**{**SMALL, **settings})


def deit_distilled():
    from timm.models.deit import VisionTransformerDistilled

    return VisionTransformerDistilled(**SMALL)


def clip_tower():
    from timm.layers import QuickGELU

    return timm_vit(pre_norm=True, act_layer=QuickGELU, norm_layer=nn.LayerNorm)


def eva(**settings):
    from timm.models.eva import Eva

    given = {"use_rot_pos_emb": True, "swiglu_mlp": True, "qkv_fused": False, "scale_mlp": True, **settings}
    return Eva(**{**SMALL, **given})


def dinov3():
    return eva(
        rope_type="dinov3", use_abs_pos_emb=False, num_reg_tokens=2, swiglu_mlp=False, scale_mlp=False, qkv_fused=True,
        init_values=0.1, global_pool="avg",
    )  # fmt: skip


def timm_beit(**settings):
    from timm.models.beit import Beit

    return Beit(**{**SMALL, "init_values": 0.1, **settings})


def torchvision_vit():
    from torchvision.models.vision_transformer import VisionTransformer

    return VisionTransformer(32, 8, 3, 2, 16, 32, num_classes=4)


def hf(name, **settings):
    transformers = pytest.importorskip("transformers")
    config = getattr(transformers, f"{name}Config")(
        image_size=32, patch_size=8, hidden_size=16, num_hidden_layers=3, num_attention_heads=2, intermediate_size=32,
        num_labels=4, **settings,
    )  # fmt: skip
    return getattr(transformers, f"{name}ForImageClassification")(config)


FAMILIES = {
    "timm ViT": timm_vit,
    "timm ViT of oblong images": lambda: timm_vit(img_size=(32, 48), patch_size=(8, 16)),
    "timm DeiT, distilled": deit_distilled,
    "timm DeiT-III": lambda: timm_vit(no_embed_class=True, init_values=0.1),
    "timm DINOv2 with registers": lambda: timm_vit(reg_tokens=2, no_embed_class=True, init_values=0.1, class_token=True),
    "timm MAE, mean of the patches": lambda: timm_vit(global_pool="avg"),
    "timm without a class token": lambda: timm_vit(class_token=False, global_pool="avg"),
    "timm with qk norm": lambda: timm_vit(qk_norm=True),
    "timm with attention pooling": lambda: timm_vit(class_token=False, global_pool="map"),
    "timm CLIP tower": clip_tower,
    "timm EVA-02": eva,
    "timm DINOv3": dinov3,
    "timm BEiT": lambda: timm_beit(use_rel_pos_bias=True),
    "timm BEiT, shared table": lambda: timm_beit(use_shared_rel_pos_bias=True, global_pool="token"),
    "torchvision ViT": torchvision_vit,
    "transformers ViT": lambda: hf("ViT"),
    "transformers DeiT": lambda: hf("DeiT"),
    "transformers DINOv2": lambda: hf("Dinov2"),
    "transformers DINOv2 with registers": lambda: hf("Dinov2WithRegisters", num_register_tokens=2),
    "transformers BEiT": lambda: hf("Beit", use_relative_position_bias=True),
    "transformers BEiT, shared table": lambda: hf("Beit", use_shared_relative_position_bias=True, use_mean_pooling=False),
}
PLAIN = {n for n in FAMILIES if not any(w in n for w in ("EVA", "DINOv3", "BEiT", "qk norm"))}

AVERAGING = {
    "timm MAE, mean of the patches",
    "timm without a class token",
    "timm with attention pooling",
    "timm EVA-02",
    "timm DINOv3",
    "timm BEiT",
    "transformers DINOv2",
    "transformers DINOv2 with registers",
    "transformers BEiT",
}


def classifier_of(module, size=(32, 32), scale=0.15, dtype=torch.float64):
    """With weights large enough that every token matters."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(scale * torch.randn(parameter.shape, generator=generator))
    made = Classifier.wrap(module, size=size)
    made.module.to(dtype)
    return made


@cache
def family_of(name):
    """Made once: no test changes it."""
    return classifier_of(FAMILIES[name](), (32, 48) if "oblong" in name else (32, 32))


def images_of(classifier, n=2):
    x = torch.randn(n, 3, *classifier.geometry.size, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return x, torch.tensor([1, 3])[:n]


def masked(classifier, x, token):
    """(b, C) logits with one patch's key masked in every layer; where patches are averaged, without it."""
    seen = sequence.read(classifier, x)
    hidden = torch.zeros(seen.start.shape[1], dtype=x.dtype)
    hidden[seen.prefix + token] = -torch.inf

    def attend(q, k, v, mask, scale):
        weights = q @ k.transpose(-2, -1) * (q.shape[-1] ** -0.5 if scale is None else scale)
        weights = weights + hidden if mask is None else weights + hidden + mask
        return weights.softmax(-1) @ v

    tokens = seen.start
    with sequence.attending(attend):
        for i in range(len(seen.blocks)):
            tokens = seen.block(i, tokens, None)
    rest = [i for i in range(tokens.shape[1]) if i != seen.prefix + token]
    return seen.after(tokens[:, rest])


@pytest.mark.parametrize("family", FAMILIES)
def test_dropping_a_token_equals_masking_its_key_in_every_layer(family):
    classifier = family_of(family)
    x, target = images_of(classifier)
    found = token_influence.maps(classifier, x, target=target)
    assert found.dtype == torch.float64
    assert found.shape == ((2, 4, 3) if "oblong" in family else (2, 4, 4))
    with torch.no_grad():
        whole = classifier.logits(x).softmax(1)
        expected = torch.stack([whole - masked(classifier, x, k).softmax(1) for k in range(found[0].numel())], 1)
    expected = expected.gather(2, target[:, None, None].expand(-1, expected.shape[1], 1))[..., 0].view_as(found)
    assert found.abs().max() > 1e-4
    assert (found - expected).abs().max() < 1e-12


def test_rotary_tables_of_every_block_and_head_are_cut_too():
    """In single precision, because timm's mixed tables have no other."""
    classifier = classifier_of(eva(rope_type="mixed"), dtype=torch.float32)
    x, target = images_of(classifier)
    found = token_influence.maps(classifier, x.float(), target=target)
    with torch.no_grad():
        whole = classifier.logits(x.float()).softmax(1)
        expected = torch.stack([whole - masked(classifier, x.float(), k).softmax(1) for k in range(16)], 1)
    assert (found.flatten(1) - expected[torch.arange(2), :, target]).abs().max() < 1e-6
    assert found.abs().max() > 1e-5


@pytest.mark.parametrize("family", FAMILIES)
def test_common_blocks_take_the_short_way_and_others_their_own(family):
    classifier = family_of(family)
    with torch.no_grad():
        seen = sequence.read(classifier, images_of(classifier)[0])
    assert bool(seen.plain) == (family in PLAIN)
    averages = family in AVERAGING
    assert seen.reads_prefix_only != averages


def test_the_whole_network_on_fewer_tokens_is_the_plain_loop():
    """The literal way: the network itself, with a hook where timm drops patches."""
    classifier = classifier_of(timm_vit())
    x, target = images_of(classifier)
    found = token_influence.maps(classifier, x, target=target)
    with torch.no_grad():
        whole = classifier.logits(x).softmax(1)
        for k in range(16):
            keep = [i for i in range(17) if i != k + 1]
            handle = classifier.module.patch_drop.register_forward_hook(lambda m, a, out, keep=keep: out[:, keep])
            lost = whole - classifier.logits(x).softmax(1)
            handle.remove()
            assert torch.allclose(found.flatten(1)[:, k], lost[torch.arange(2), target], atol=1e-13)


@pytest.mark.parametrize("together", [1, 5, 16, 1000])
def test_how_many_run_together_changes_nothing(together):
    classifier = classifier_of(timm_vit())
    x, target = images_of(classifier)
    found = token_influence.maps(classifier, x, target=target)
    assert torch.allclose(token_influence.maps(classifier, x, target=target, together=together), found, atol=1e-13)


def test_a_query_that_saw_little_but_the_missing_key_is_summed_anew():
    """Without it, o - a v over 1 - a is rounding over rounding."""
    module = timm_vit()
    classifier = classifier_of(module)
    with torch.no_grad():
        module.blocks[0].attn.qkv.weight.mul_(12)
    x, target = images_of(classifier)
    with torch.no_grad():
        seen = sequence.read(classifier, x)
        weights = plain.Opening.of(seen.start, seen.plain[0]).weights
        whole = classifier.logits(x).softmax(1)
        expected = torch.stack([whole - masked(classifier, x, k).softmax(1) for k in range(16)], 1)[torch.arange(2), :, target]
    assert (weights > 1 - 1e-9).any()
    assert (token_influence.maps(classifier, x, target=target).flatten(1) - expected).abs().max() < 1e-12
    single = classifier.copy()
    single.module.float()
    found = token_influence.maps(single, x.float(), target=target).flatten(1)
    assert (found - expected).abs().max() < 1e-5


def test_one_pass_serves_every_class():
    classifier = classifier_of(timm_vit())
    x, target = images_of(classifier)
    done = token_influence.work(classifier, x)
    for each in (target, 3 - target):
        assert torch.equal(done.maps(each), token_influence.maps(classifier, x, target=each))
    assert torch.allclose(done.removed.sum(-1), torch.ones(1, dtype=torch.float64))


def test_one_logit_is_explained_by_its_probability():
    classifier = classifier_of(timm_vit(num_classes=1))
    x, _ = images_of(classifier)
    zero, one = (token_influence.maps(classifier, x, target=torch.full((2,), k)) for k in (0, 1))
    assert torch.allclose(zero, -one, atol=1e-14)
    assert one.abs().max() > 1e-4


def test_memory_that_runs_out_halves_the_batch_to_a_divisor(monkeypatch):
    classifier = classifier_of(timm_vit())
    x, target = images_of(classifier)
    expected = token_influence.maps(classifier, x, target=target)
    through, sizes = token_influence._through, []

    def scarce(seen, image, *rest):
        sizes.append(len(image))
        if len(image) > 9:
            raise torch.OutOfMemoryError("no memory left")
        return through(seen, image, *rest)

    monkeypatch.setattr(token_influence, "_through", scarce)
    done = token_influence.work(classifier, x, together=20)
    assert sizes[:2] == [20, 8]
    assert done.notes == {"together": 8}
    assert torch.allclose(done.maps(target), expected, atol=1e-13)


def test_lower_precisions_keep_the_map_and_bfloat_is_refused():
    classifier = classifier_of(timm_vit())
    classifier.module.float()
    x, target = images_of(classifier)
    exact, half = (token_influence.maps(classifier, x.float(), target=target, precision=p) for p in ("float32", "fp16"))
    assert half.dtype == torch.float32
    assert not torch.equal(exact, half)
    assert (exact - half).abs().max() < 0.03 * exact.abs().max()
    before = torch.get_float32_matmul_precision()
    token_influence.maps(classifier, x.float(), target=target, precision="tf32")
    assert torch.get_float32_matmul_precision() == before
    with pytest.raises(SettingError, match=r"median Spearman of only 0\.78"):
        token_influence.maps(classifier, x.float(), target=target, precision="bf16")


def test_half_precision_runs_where_blocks_are_their_own():
    classifier = classifier_of(eva())
    classifier.module.float()
    x, target = images_of(classifier)
    exact, half = (token_influence.maps(classifier, x.float(), target=target, precision=p) for p in ("float32", "fp16"))
    assert (exact - half).abs().max() < 0.05 * exact.abs().max()
    assert all(p.dtype == torch.float32 for p in classifier.module.parameters())


@pytest.mark.parametrize(
    ("name", "settings", "why"),
    [
        ("timm:swin_tiny_patch4_window7_224", {"depths": (1, 1), "embed_dim": 24, "num_heads": (2, 2), "size": 56}, "windows"),
        ("timm:resnet18", {"size": 32}, "no blocks of attention"),
        ("rightreasons.models.small:small_cnn", {"size": (16, 16)}, "no blocks of attention"),
    ],
)
def test_a_network_without_a_sequence_is_refused_and_pointed_to_occlusion(name, settings, why):
    classifier = Classifier.load(name, num_classes=2, **settings)
    x = torch.randn(1, 3, *classifier.geometry.size)
    with pytest.raises(ModelError, match=f"{name}.*{why}.*by=occlusion"):
        token_influence.maps(classifier, x, target=torch.tensor([0]))
    with pytest.raises(ModelError, match="by=occlusion"):
        token_influence.check(classifier)
    token_influence.check(classifier, by="occlusion")
    found = token_influence.maps(classifier, x, target=torch.tensor([0]), by="occlusion", patch=8)
    assert found.shape == (1, classifier.geometry.size[0] // 8, classifier.geometry.size[1] // 8)


def test_occlusion_covers_the_pixels_of_a_token():
    classifier = classifier_of(timm_vit())
    x, target = images_of(classifier)
    found = token_influence.maps(classifier, x, target=target, by="occlusion", fill="mean", together=3)
    gone = x.clone()
    gone[:, :, 8:16, 24:32] = x.mean((2, 3), keepdim=True)
    with torch.no_grad():
        lost = (classifier.logits(x).softmax(1) - classifier.logits(gone).softmax(1))[torch.arange(2), target]
    assert torch.allclose(found[:, 1, 3], lost, atol=1e-12)


# ---- the screen ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_the_screen_is_exact_where_it_looks(family):
    classifier = family_of(family)
    x, target = images_of(classifier)
    exact = token_influence.maps(classifier, x, target=target)
    inside = torch.zeros(exact.shape, dtype=torch.bool)
    inside[:, 1:3, 1:3] = True
    inside[1] = False
    found = token_influence.screened(classifier, x, target=target, inside=inside, keep=3)
    run = ~found.isnan()
    assert torch.allclose(found[run], exact[run], atol=1e-12)
    assert (run & inside).sum((1, 2)).tolist() == [3, 0]
    assert (run & ~inside).sum((1, 2)).tolist() == [3, 3]
    everything = token_influence.screened(classifier, x, target=target, inside=inside, keep=99)
    assert torch.allclose(everything, exact, atol=1e-12)


def test_the_best_of_either_side_are_candidates_and_a_small_side_leaves_its_rest():
    score = torch.tensor([[5.0, 4.0, 3.0, 2.0, 1.0, 0.0], [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]])
    inside = torch.tensor([[True, False, False, False, False, False], [True, True, True, False, False, False]])
    found = token_influence.candidates(score, inside, 2)
    assert found.int().tolist() == [[1, 1, 1, 1, 0, 0], [0, 1, 1, 0, 1, 1]]


@pytest.mark.parametrize("pool", ["token", "avg"])
def test_what_is_expected_is_the_slope_along_the_exact_change_of_attention(pool):
    """By differences: every other query moves a small share of the way to what it sees without the key."""
    classifier = classifier_of(timm_vit(depth=1, global_pool=pool))
    x, target = images_of(classifier, 1)
    found = token_influence.expected(classifier, x, target=target).flatten()
    with torch.no_grad():
        seen = sequence.read(classifier, x)
    gone, step = 7, 1e-5
    hidden = torch.zeros(17, dtype=torch.float64)
    hidden[gone] = -torch.inf

    def end(share):
        def attend(q, k, v, mask, scale):
            logits = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
            whole, without = logits.softmax(-1) @ v, (logits + hidden).softmax(-1) @ v
            moved = whole + share * (without - whole)
            moved[:, :, gone] = whole[:, :, gone]
            return moved

        with sequence.attending(attend):
            return seen.block(0, seen.start, None)

    with torch.no_grad():
        chance = [seen.after(end(share)).softmax(1)[0, target[0]] for share in (-step, step)]
        expected = (chance[0] - chance[1]) / (2 * step)
        if pool == "avg":
            rest = [i for i in range(17) if i != gone]
            both = [seen.after(tokens).softmax(1)[0, target[0]] for tokens in (end(0), end(0)[:, rest])]
            expected = expected + both[0] - both[1]
    assert torch.allclose(found[gone - 1], expected, rtol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_expected_comes_near_what_is_lost(family):
    """With weights so small that a token changes little."""
    classifier = classifier_of(FAMILIES[family](), (32, 48) if "oblong" in family else (32, 32), scale=0.03)
    x, target = images_of(classifier)
    exact, found = (f(classifier, x, target=target).flatten(1) for f in (token_influence.maps, token_influence.expected))
    assert torch.corrcoef(torch.stack([exact.flatten(), found.flatten()]))[0, 1] > 0.7
