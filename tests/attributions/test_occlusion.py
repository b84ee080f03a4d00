"""Occlusion: the loss of score with each patch covered, in two and three dimensions."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from rightreasons.attributions import occlusion  # noqa: E402
from rightreasons.errors import SettingError  # noqa: E402
from rightreasons.models.classifier import Classifier  # noqa: E402
from rightreasons.models.fills import filled  # noqa: E402

pytestmark = pytest.mark.torch


def draw(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("fill", "together"), [("zero", 4), ("black", 1), ("mean", 7), ("blur", 4)])
def test_each_patch_is_covered_once(fill, together):
    model = Classifier.load("rightreasons.models.small:small_cnn", num_classes=3, size=(12, 20), width=4, mean=0.4, std=0.3)
    x, target, rows = draw(3, 3, 12, 20), torch.tensor([0, 2, 1]), torch.arange(3)
    found = occlusion.maps(model, x, target=target, patch=8, fill=fill, together=together)
    assert found.shape == (3, 2, 3), "the last patches are cut at the edge"
    cover, whole = filled(model, x, fill), model.logits(x)[rows, target]
    for i in range(2):
        for j in range(3):
            covered = x.clone()
            window = (..., slice(8 * i, 8 * i + 8), slice(8 * j, 8 * j + 8))
            covered[window] = cover[window]
            assert torch.allclose(found[:, i, j], whole - model.logits(covered)[rows, target], atol=1e-5)


def test_volumes_have_patches_in_three_dimensions():
    network = nn.Sequential(
        nn.Conv3d(1, 4, 3, stride=2, padding=1), nn.ReLU(), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(4, 1)
    )
    model, x = Classifier.wrap(network, size=(8, 8, 4), channels=1), draw(2, 1, 8, 8, 4)
    found = occlusion.maps(model, x, target=torch.tensor([1, 0]), patch=4)
    assert found.shape == (2, 2, 2, 1)
    assert torch.allclose(found[:1], -occlusion.maps(model, x[:1], target=torch.tensor([0]), patch=4), atol=1e-6)


def test_a_patch_that_does_not_fit_is_refused():
    model = Classifier.load("rightreasons.models.small:small_cnn", num_classes=2, size=(16, 16), width=4)
    with pytest.raises(SettingError, match=r"patch=17 of images of \(16, 16\) pixels: give 1 to 16"):
        occlusion.maps(model, draw(1, 3, 16, 16), target=torch.tensor([0]), patch=17)
    with pytest.raises(SettingError, match="together=0"):
        occlusion.maps(model, draw(1, 3, 16, 16), target=torch.tensor([0]), patch=4, together=0)
