"""Maps of trained networks lie on the cue that the networks use; the paper's five backbones pass the whole path."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from rightreasons.attributions import gradcam  # noqa: E402
from rightreasons.data import planted  # noqa: E402
from rightreasons.extraction import extract  # noqa: E402
from rightreasons.models.classifier import Classifier  # noqa: E402
from rightreasons.models.training import train  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.slow]

CELLS = 8


def trained(folder, which, place, settings, **plan):
    """A network that has only the tag to go by, and the test images whose tag contradicts the digit."""
    world = planted.digits(folder, n=600, agreement=1.0, place=place, size=6)
    start = Classifier.load(
        f"rightreasons.models.small:small_{which}", num_classes=2, size=(32, 32), mean=0.5, std=0.25, **settings
    )
    model = train(start, world, batch=32, seed=0, patience=None, device="cpu", threads=1, **plan)
    test = world.on("test")
    test = test.select(test.attribute("cue").values != test.label)
    masks = np.load(folder / "cue_masks.npy")[[int(image.partition("#")[2]) for image in test.image]]
    return model, test, masks


def from_tag(maps, masks):
    """(n,) cells between the cell of the largest mean positive value and the tag; 0 is on it."""
    n, step = len(maps), masks.shape[1] // CELLS
    positive = np.maximum(maps, 0).reshape(n, CELLS, maps.shape[1] // CELLS, CELLS, -1).mean((2, 4))
    best = np.stack(np.unravel_index(positive.reshape(n, -1).argmax(1), (CELLS, CELLS)), 1)
    tags = masks.reshape(n, CELLS, step, CELLS, step).any((2, 4))
    return np.array([np.abs(np.argwhere(tag) - where).max(1).min() for tag, where in zip(tags, best)])


def test_maps_of_a_cnn_follow_the_tag_wherever_it_lies(tmp_path):
    pytest.importorskip("zennit")
    model, test, masks = trained(tmp_path, "cnn", "random", {"width": 8}, epochs=10, lr=3e-3)
    pixels = ["maps@integrated_gradients", "maps@occlusion(patch=4)", "maps@lrp"]
    evidence = extract(model, {"test": test}, ["logits", "maps@gradcam", "conservation@lrp", *pixels], device="cpu", threads=1)
    assert (evidence["logits"].argmax(1) == test.attribute("cue").values).mean() > 0.9
    for name in pixels:
        assert (from_tag(evidence[name], masks) == 0).mean() > 0.9, name
    # The cells of the last layer see a neighbourhood that is wider than they are.
    assert (from_tag(evidence["maps@gradcam"], masks) <= 1).mean() > 0.9
    total, _, score = evidence["conservation@lrp"].T
    assert np.abs(total - score).max() < 0.02 * np.abs(score).max()


def test_maps_of_a_vit_lie_on_the_tag_where_covering_it_costs_most(tmp_path):
    model, test, masks = trained(tmp_path, "vit", "top-left", {"dim": 32, "depth": 2}, epochs=12, lr=2e-3, warmup=1)
    names = ["logits", "maps@occlusion(patch=4)", "maps@attnlrp", "maps@gradcam", "conservation@attnlrp"]
    evidence = extract(model, {"test": test}, names, device="cpu", threads=1)
    assert (evidence["logits"].argmax(1) == test.attribute("cue").values).mean() > 0.9
    costs = (
        from_tag(evidence["maps@occlusion(patch=4)"], masks) == 0
    )  # one value of the tag may be told by the absence of the other
    assert costs.sum() >= 10
    for name in ("maps@attnlrp", "maps@gradcam"):
        assert (from_tag(evidence[name], masks)[costs] == 0).mean() > 0.9, name
    total, taken, score = evidence["conservation@attnlrp"].T
    assert np.abs(total + taken - score).max() < 0.01 * np.abs(score).max()


PAPER = {  # OSCAR, appendix I: the layer, its map at this input size, and whether LRP or AttnLRP explains the pixels
    "timm:resnet50": ("layer4.2", 96, (3, 3), "lrp"),
    "timm:inception_v3": ("Mixed_7c", 139, (3, 3), "lrp"),
    "timm:vgg16": ("features.29", 64, (4, 4), "lrp"),
    "timm:mobilenetv3_large_100": ("blocks.5.2", 96, (3, 3), "lrp"),
    "timm:vit_base_patch16_224": ("blocks.11.norm1", 64, (4, 4), "attnlrp"),
}


@pytest.mark.parametrize("spec", PAPER)
def test_the_papers_backbones_pass_the_whole_path(spec, tmp_path):
    layer, size, cells, pixelwise = PAPER[spec]
    if pixelwise == "lrp":
        pytest.importorskip("zennit")
    test = planted.digits(tmp_path, n=60, pixels=32).on("test").select(np.arange(2))
    model = Classifier.load(spec, num_classes=2, size=size, classes=(0, 1))
    names = ["logits", "maps@gradcam", f"maps@gradcam(layer={layer})", f"maps@{pixelwise}", f"conservation@{pixelwise}"]
    evidence = extract(model, {"test": test}, names, out=tmp_path / "evidence", batch=2, chunk=2, device="cpu", threads=1)
    assert evidence["maps@gradcam"].shape == (2, *cells)
    assert np.allclose(evidence["maps@gradcam"], evidence[f"maps@gradcam(layer={layer})"], rtol=1e-4, atol=1e-9)
    assert evidence[f"maps@{pixelwise}"].shape == (2, size, size)
    total, taken, score = evidence[f"conservation@{pixelwise}"].T
    assert np.allclose(total + taken, score, rtol=0.05 if pixelwise == "lrp" else 1e-2, atol=1e-3)


@pytest.mark.parametrize(
    "spec", ["torchvision:vgg16", "torchvision:mobilenet_v3_large", "torchvision:densenet121", "torchvision:vit_b_32"]
)
def test_torchvisions_backbones_have_their_layers_found(spec):
    layers = {"vgg16": "features.29", "mobilenet_v3_large": "features.15", "vit_b_32": "encoder.layers.encoder_layer_11.ln_1"}
    model = Classifier.load(spec, num_classes=2, size=64)
    if isinstance(getattr(model.module, "heads", None), nn.Sequential):
        nn.init.normal_(model.module.heads[-1].weight, generator=torch.Generator().manual_seed(0))
    x = torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    found = gradcam.maps(model, x, target=torch.tensor([1]))
    name = spec.partition(":")[2]
    assert found.any()
    if name in layers:
        assert torch.allclose(found, gradcam.maps(model, x, target=torch.tensor([1]), layer=layers[name]), atol=1e-9)
