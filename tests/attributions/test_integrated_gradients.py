"""Integrated gradients: completeness, the path integral itself, and what the baselines are."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from rightreasons.attributions import integrated_gradients  # noqa: E402
from rightreasons.errors import SettingError  # noqa: E402
from rightreasons.models.classifier import Classifier  # noqa: E402
from rightreasons.models.fills import FILLS, filled  # noqa: E402

pytestmark = pytest.mark.torch


def draw(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def model():
    return Classifier.load(
        "rightreasons.models.small:small_vit", num_classes=3, size=(16, 16), dim=16, depth=2, heads=2, mean=0.4, std=0.3
    )


@pytest.mark.parametrize("baseline", FILLS)
def test_the_map_adds_up_to_the_change_of_the_score(model, baseline):
    x, target = draw(3, 3, 16, 16), torch.tensor([0, 2, 1])
    maps, sums = integrated_gradients.maps_and_conservation(model, x, target=target, baseline=baseline, steps=64)
    total, start, end = sums.T
    assert maps.shape == (3, 16, 16)
    assert torch.allclose(end, model.logits(x)[torch.arange(3), target], atol=1e-6)
    assert torch.allclose(start, model.logits(filled(model, x, baseline))[torch.arange(3), target], atol=1e-6)
    assert torch.allclose(total + start, end, atol=1e-3 * float(end.abs().max()))
    assert torch.equal(maps, integrated_gradients.maps(model, x, target=target, baseline=baseline, steps=64))


def test_the_map_is_the_integral_of_the_gradient_along_the_path(model):
    x, target, steps = draw(2, 3, 16, 16), torch.tensor([1, 0]), 100
    total = torch.zeros_like(x)
    for i in range(steps):
        point = ((i + 0.5) / steps * x).requires_grad_()
        total += torch.autograd.grad(model.logits(point)[torch.arange(2), target].sum(), point)[0] / steps
    expected = (total * x).sum(1)
    found = integrated_gradients.maps(model, x, target=target, steps=64)
    assert torch.allclose(found, expected, atol=1e-3 * float(expected.abs().max()))


def test_more_steps_come_closer(model):
    x, target = 3 * draw(4, 3, 16, 16), torch.tensor([0, 1, 2, 0])

    def error(steps):
        total, start, end = integrated_gradients.maps_and_conservation(model, x, target=target, steps=steps)[1].T
        return float((total + start - end).abs().max())

    assert error(64) < 0.1 * error(2)


def test_the_baselines_are_what_they_are_called(model):
    x = draw(2, 3, 16, 16)
    assert not filled(model, x, "zero").any()
    assert torch.allclose(filled(model, x, "black") * 0.3 + 0.4, torch.zeros(1), atol=1e-6)
    assert torch.allclose(filled(model, x, "mean"), x.mean((2, 3), keepdim=True).expand_as(x))
    flat = torch.ones(1, 3, 16, 16) * 0.7
    assert torch.allclose(filled(model, flat, "blur"), flat, atol=1e-6)
    assert filled(model, x, "blur").std() < 0.5 * x.std()
    with pytest.raises(SettingError, match="no fill 'blurr'; did you mean 'blur'"):
        integrated_gradients.maps(model, x, target=torch.tensor([0, 1]), baseline="blurr")
    with pytest.raises(SettingError, match="steps=0"):
        integrated_gradients.maps(model, x, target=torch.tensor([0, 1]), steps=0)
