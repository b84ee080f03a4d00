"""head(features(x)) == network(x) over the libraries' architectures, at least one of every family that timm lists.

Random weights, the smallest input that the architecture runs on, and a few blocks where a family has no small member.
"""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from rightreasons.errors import ModelError  # noqa: E402
from rightreasons.models.classifier import Classifier  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.slow]

# timm's module: its member with fewest parameters (or one that runs on a much smaller input), the input size, its settings
FAMILIES: dict[str, tuple[str, int, dict[str, int]]] = {
    "beit": ("beit_base_patch16_224", 32, {"depth": 2}),
    "byoanet": ("eca_botnext26ts_256", 32, {}),
    "byobnet": ("test_byobnet", 32, {}),
    "cait": ("cait_xxs24_224", 32, {"depth": 2}),
    "coat": ("coat_tiny", 32, {}),
    "convit": ("convit_tiny", 32, {}),
    "convmixer": ("convmixer_768_32", 32, {}),
    "convnext": ("test_convnext", 32, {}),
    "cpubone": ("cpubone_nano", 32, {}),
    "crossvit": ("crossvit_tiny_240", 240, {}),
    "csatv2": ("csatv2", 64, {}),
    "cspnet": ("cs3darknet_focus_s", 32, {}),
    "davit": ("davit_tiny", 32, {}),
    "deepseek_vit": ("deepseek_vit_412m", 224, {"depth": 1}),
    "deit": ("deit_tiny_patch16_224", 32, {}),
    "densenet": ("densenet121", 32, {}),
    "dla": ("dla46x_c", 32, {}),
    "dpn": ("dpn48b", 32, {}),
    "edgenext": ("edgenext_xx_small", 32, {}),
    "efficientformer": ("efficientformer_l1", 224, {}),
    "efficientformer_v2": ("efficientformerv2_s0", 32, {}),
    "efficientnet": ("test_efficientnet", 32, {}),
    "efficientvim": ("efficientvim_m1", 32, {}),
    "efficientvit_mit": ("efficientvit_b0", 32, {}),
    "efficientvit_msra": ("efficientvit_m0", 224, {}),
    "eva": ("vit_tiny_patch16_dinov3_qkvb", 32, {}),
    "fasternet": ("fasternet_t0", 32, {}),
    "fastvit": ("fastvit_t8", 32, {}),
    "focalnet": ("focalnet_tiny_srf", 32, {}),
    "gcvit": ("gcvit_xxtiny", 32, {}),
    "gemma4_vit": ("gemma4_vit_167m", 32, {"depth": 1}),
    "ghostnet": ("ghostnet_050", 32, {}),
    "hardcorenas": ("hardcorenas_b", 32, {}),
    "hgnet": ("hgnetv2_b0", 32, {}),
    "hiera": ("hiera_tiny_224", 32, {}),
    "hieradet_sam2": ("hieradet_small", 32, {}),
    "hrnet": ("hrnet_w18_small", 32, {}),
    "iformer": ("iformer_t", 32, {}),
    "inception_next": ("inception_next_atto", 32, {}),
    "inception_resnet_v2": ("inception_resnet_v2", 96, {}),
    "inception_v3": ("inception_v3", 96, {}),
    "inception_v4": ("inception_v4", 96, {}),
    "lcnetv2": ("lcnetv2_small", 32, {}),
    "levit": ("levit_128s", 32, {}),
    "lowformer": ("lowformer_b0", 32, {}),
    "mambaout": ("test_mambaout", 32, {}),
    "maxxvit": ("maxvit_pico_rw_256", 32, {}),
    "metaformer": ("poolformerv2_s12", 32, {}),
    "mlp_mixer": ("gmlp_ti16_224", 32, {}),
    "mobilenetv3": ("mobilenetv3_small_050", 32, {}),
    "mobilenetv5": ("mobilenetv5_base", 32, {}),
    "mobilevit": ("mobilevit_xxs", 32, {}),
    "mvitv2": ("mvitv2_tiny", 32, {}),
    "naflexvit": ("naflexvit_base_patch16_parfac_gap", 32, {"depth": 1}),
    "nasnet": ("nasnetalarge", 32, {}),
    "nest": ("nest_tiny", 32, {}),
    "nextvit": ("nextvit_small", 32, {}),
    "nfnet": ("test_nfnet", 32, {}),
    "pit": ("pit_ti_224", 32, {}),
    "pnasnet": ("pnasnet5large", 32, {}),
    "pvt_v2": ("pvt_v2_b0", 32, {}),
    "qwen3_vit": ("qwen3_vit_88m", 32, {"depth": 1}),
    "rdnet": ("rdnet_tiny", 32, {}),
    "regnet": ("regnetx_002", 32, {}),
    "repghost": ("repghostnet_050", 32, {}),
    "repvit": ("repvit_m1", 32, {}),
    "res2net": ("res2next50", 32, {}),
    "resnest": ("resnest14d", 32, {}),
    "resnet": ("test_resnet", 32, {}),
    "resnetv2": ("resnetv2_18", 32, {}),
    "rexnet": ("rexnet_100", 32, {}),
    "selecsls": ("selecsls42", 32, {}),
    "senet": ("legacy_seresnet18", 32, {}),
    "sequencer": ("sequencer2d_s", 32, {}),
    "shvit": ("shvit_s1", 32, {}),
    "sknet": ("skresnet18", 32, {}),
    "starnet": ("starnet_s050", 32, {}),
    "swiftformer": ("swiftformer_xs", 32, {}),
    "swin_transformer": ("swin_tiny_patch4_window7_224", 32, {}),
    "swin_transformer_v2": ("swinv2_tiny_window8_256", 64, {}),
    "swin_transformer_v2_cr": ("swinv2_cr_tiny_224", 32, {}),
    "tiny_vit": ("tiny_vit_5m_224", 32, {}),
    "tnt": ("tnt_s_legacy_patch16_224", 32, {"depth": 2}),
    "tresnet": ("tresnet_m", 32, {}),
    "twins": ("twins_svt_small", 32, {}),
    "vgg": ("vgg11", 32, {}),
    "visformer": ("visformer_tiny", 32, {}),
    "vision_transformer": ("test_vit", 32, {}),
    "vision_transformer_hybrid": ("vit_tiny_r_s16_p8_224", 32, {}),
    "vision_transformer_relpos": ("vit_srelpos_small_patch16_224", 32, {"depth": 2}),
    "vision_transformer_sam": ("samvit_base_patch16_224", 32, {"depth": 2}),
    "vitamin": ("vitamin_small_224", 32, {}),
    "volo": ("volo_d1_224", 32, {}),
    "vovnet": ("ese_vovnet19b_slim_dw", 32, {}),
    "xception": ("legacy_xception", 32, {}),
    "xception_aligned": ("xception41p", 32, {}),
    "xcit": ("xcit_nano_12_p16_224", 32, {}),
}
FURTHER = {
    "test_vit2": 32,
    "test_vit3": 32,
    "deit_tiny_distilled_patch16_224": 32,
    "deit3_small_patch16_224": 32,
    "convnextv2_atto": 32,
    "efficientnet_lite0": 32,
    "mobilenetv2_050": 32,
    "mixer_s32_224": 32,
    "resmlp_12_224": 32,
    "pit_ti_distilled_224": 32,
    "vit_tiny_patch16_224": 32,
    "vit_dlittle_patch16_reg1_gap_256": 32,
    "eva02_tiny_patch14_224": 32,
    "regnety_002": 32,
    "resnet10t": 32,
    "seresnext26t_32x4d": 32,
    "lambda_resnet26rpt_256": 32,
    "coatnet_pico_rw_224": 32,
    "repvgg_a0": 32,
    "ghostnetv2_100": 64,
    "tinynet_e": 32,
    "gernet_s": 32,
    "eca_nfnet_l0": 32,
    "vit_small_patch32_224": 32,
    "twins_pcpvt_small": 32,
    "mobilevitv2_050": 32,
    "poolformer_s12": 32,
}
"""Other kinds of network in the same families: distilled, class token, average pool, 1x1 convolution as head, and so on."""

REFUSED = {
    "efficientvim": "combines 'heads.0', .* otherwise than by their plain mean",
    "volo": "'head' alone: it is combined with 'aux_head'",
}
"""Families that have no feature vector that decides their output, with the reason given."""

TORCHVISION = {
    "alexnet": 64,
    "convnext_tiny": 32,
    "densenet121": 32,
    "efficientnet_b0": 32,
    "googlenet": 64,
    "inception_v3": 96,
    "mnasnet0_5": 32,
    "mobilenet_v2": 32,
    "mobilenet_v3_small": 32,
    "regnet_x_400mf": 32,
    "resnet18": 64,
    "shufflenet_v2_x0_5": 32,
    "swin_t": 64,
    "swin_v2_t": 64,
    "vgg11": 32,
    "vit_b_32": 64,
}

_VIT = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
_STAGES = {"hidden_sizes": [8, 16], "depths": [1, 1]}
TRANSFORMERS: dict[str, tuple[int, dict[str, object]]] = {
    "ViTForImageClassification": (32, _VIT),
    "BeitForImageClassification": (32, _VIT),
    "DeiTForImageClassification": (32, _VIT),
    "DeiTForImageClassificationWithTeacher": (32, _VIT),
    "Dinov2ForImageClassification": (28, _VIT),
    "ConvNextForImageClassification": (64, {"hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1]}),
    "ResNetForImageClassification": (64, {"embedding_size": 8, **_STAGES}),
    "RegNetForImageClassification": (64, {"embedding_size": 8, "groups_width": 8, **_STAGES}),
    "SwinForImageClassification": (64, {"embed_dim": 8, "depths": [1, 1], "num_heads": [1, 2], "window_size": 4}),
    "MobileNetV2ForImageClassification": (64, {}),
}

MONAI: dict[str, tuple[tuple[int, ...], dict[str, object]]] = {
    "DenseNet121": ((32, 32, 32), {}),
    "resnet10": ((32, 32, 32), {"num_classes": 5}),
    "SEResNet50": ((32, 32, 32), {"layers": (1, 1, 1, 1)}),
    "EfficientNetBN": ((32, 32, 32), {"model_name": "efficientnet-b0"}),
}


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def move(net: torch.nn.Module, x: torch.Tensor) -> None:
    """Away from the first weights, as training would: what only looks alike on them must not have been taken for the same.

    Batch statistics are those of the input, else the signal of random weights dies away over dozens of layers.
    """
    generator = torch.Generator().manual_seed(3)
    for parameter in net.parameters():
        if parameter.ndim < 2:
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
    norms = [m for m in net.modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm)]
    for norm in norms:
        norm.momentum = 1.0
        norm.train()
    if norms:
        net(x)
    for norm in norms:
        norm.eval()


def assert_identity(classifier: Classifier) -> None:
    """The network's own output against head(features(x)), in torch and in numpy, where it tells inputs and classes apart."""
    net = classifier.module
    with torch.no_grad():
        # random heads may be zero or tiny, and then anything is equal
        for name in classifier.cut.head:
            if not name.endswith("()"):
                weight = net.get_submodule(name).weight
                weight.copy_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)) * weight[0].numel() ** -0.5)
        x = 2 * torch.randn(
            3, classifier.geometry.channels, *classifier.geometry.size, generator=torch.Generator().manual_seed(2)
        )
        move(net, x)
        raw = net(x)
        own = raw if isinstance(raw, torch.Tensor) else raw.logits if hasattr(raw, "logits") else raw[0]
        z = classifier.features(x)
        found = {
            "logits": classifier.logits(x),
            "torch": classifier.head(z),
            "numpy": torch.tensor(classifier.head_data(z.numpy())),
        }
    assert own.shape == (3, classifier.C) and z.shape == (3, classifier.d) and torch.isfinite(own).all()
    scale = float(own.abs().max())
    assert float(own.std(1).max()) > 1e-3 * scale > 0, "the logits are all alike, so equality would say nothing"
    assert float(own.std(0).max()) > 1e-5 * scale, "the logits do not depend on the input"
    for where, logits in found.items():
        np.testing.assert_allclose(logits.numpy(), own.numpy(), rtol=1e-4, atol=2e-5 * scale, err_msg=where)
    if classifier.has_spatial and classifier.cut.pooled is not None:
        with torch.no_grad():
            maps = classifier.spatial(x)
        pooled = classifier.pooled_head(maps.flatten(2).mean(2).numpy())
        np.testing.assert_allclose(pooled, own.numpy(), rtol=1e-3, atol=1e-4 * scale, err_msg="maps")


@pytest.mark.parametrize("name", ["test_resnet", "mobilenetv3_small_050", "test_convnext", "test_vit", "test_efficientnet"])
def test_the_cut_is_where_timm_says_it_is(name: str) -> None:
    pytest.importorskip("timm")
    classifier = Classifier.load(f"timm:{name}", num_classes=3, size=64 if name.startswith("mobile") else None)
    net, x = classifier.module, torch.randn(2, 3, *classifier.geometry.size, generator=torch.Generator().manual_seed(0))
    assert net.get_submodule(classifier.cut.head[-1]) is net.get_classifier()
    with torch.no_grad():
        maps = net.forward_features(x)
        assert torch.equal(classifier.features(x), net.forward_head(maps, pre_logits=True))
        if classifier.has_spatial:
            assert torch.equal(classifier.spatial(x), maps)


def test_every_family_of_timm_is_tried() -> None:
    timm = pytest.importorskip("timm")
    assert set(timm.list_modules()) - set(FAMILIES) == set()
    assert len({name for name, _, _ in FAMILIES.values()} | set(FURTHER)) - len(REFUSED) >= 100
    for family, (name, _, _) in FAMILIES.items():
        assert name in timm.list_models(module=family)


@pytest.mark.parametrize("family", [family for family in FAMILIES if family not in REFUSED])
def test_timm_families_hold(family: str) -> None:
    name, size, settings = FAMILIES[family]
    assert_identity(Classifier.load(f"timm:{name}", num_classes=7, size=size, **settings))


@pytest.mark.parametrize("name", FURTHER)
def test_further_timm_networks_hold(name: str) -> None:
    assert_identity(Classifier.load(f"timm:{name}", num_classes=7, size=FURTHER[name]))


@pytest.mark.parametrize("family", REFUSED)
def test_timm_families_that_cannot_say_why(family: str) -> None:
    name, size, settings = FAMILIES[family]
    with pytest.raises(ModelError, match=REFUSED[family]):
        Classifier.load(f"timm:{name}", num_classes=7, size=size, **settings)


@pytest.mark.parametrize("name", TORCHVISION)
def test_torchvision_holds(name: str) -> None:
    assert_identity(Classifier.load(f"torchvision:{name}", num_classes=7, size=TORCHVISION[name]))


def test_torchvision_video_holds() -> None:
    assert_identity(Classifier.load("torchvision:r3d_18", num_classes=7, size=(4, 32, 32)))


def test_a_convolutional_head_is_refused_by_name() -> None:
    with pytest.raises(ModelError, match=r"'classifier\.1' \(Conv2d\) runs on every place"):
        Classifier.load("torchvision:squeezenet1_1", size=64)


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_transformers_hold(name: str) -> None:
    pytest.importorskip("transformers")
    size, settings = TRANSFORMERS[name]
    assert_identity(Classifier.load(f"hf:{name}", num_classes=7, size=size, **settings))


@pytest.mark.parametrize("name", MONAI)
def test_monai_volumes_hold(name: str) -> None:
    pytest.importorskip("monai")
    size, settings = MONAI[name]
    assert_identity(Classifier.load(f"monai:{name}", size=size, **{"num_classes": 7, **settings}))


@pytest.mark.parametrize("name", ["deit_tiny_distilled_patch16_224", "levit_128s", "efficientformer_l1", "crossvit_tiny_240"])
def test_several_heads_are_one_linear_head(name: str) -> None:
    size = {"crossvit_tiny_240": 240, "efficientformer_l1": 224}.get(name, 32)
    head = Classifier.load(f"timm:{name}", num_classes=7, size=size).head_data
    assert head.is_linear and head.weight.shape[0] == 7
