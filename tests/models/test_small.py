"""The small networks: usable by name, of the shapes they promise, with maps and tokens where audits look for them."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from rightreasons.models.classifier import Classifier  # noqa: E402
from rightreasons.models.small import small_cnn, small_vit  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("name", ["small_cnn", "small_vit"])
@pytest.mark.parametrize(("classes", "size", "channels"), [(2, 32, 3), (5, 24, 1)])
def test_a_small_network_loads_by_name(name, classes, size, channels):
    model = Classifier.load(f"rightreasons.models.small:{name}", num_classes=classes, size=(size, size), channels=channels)
    x = torch.randn(4, channels, size, size, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert model.logits(x).shape == (4, classes)
        torch.testing.assert_close(model.head(model.features(x)), model.logits(x))
    assert model.d == 64
    assert model.geometry.size == (size, size)


def test_the_map_of_the_small_cnn_is_what_its_head_averages():
    model = Classifier.load("rightreasons.models.small:small_cnn", num_classes=2, size=(32, 32))
    x = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        maps = model.spatial(x)
        assert maps.shape == (3, 64, 8, 8)
        torch.testing.assert_close(maps.mean(dim=(2, 3)), model.features(x))


def test_the_small_vit_has_a_grid_of_tokens_of_its_patches():
    assert small_vit(2).patch_embed.grid_size == (8, 8)
    assert small_vit(2, size=(32, 16), patch=8).patch_embed.grid_size == (4, 2)


def test_training_the_small_vit_leaves_out_patches_where_asked_and_deciding_does_not():
    model, x = small_vit(2, patch_drop=0.25), torch.zeros(1, 65, 64)
    assert model.train().patch_drop(x).shape == (1, 49, 64)
    assert model.eval().patch_drop(x).shape == (1, 65, 64)


def test_width_and_depth_are_settings_of_the_loader():
    narrow = Classifier.load("rightreasons.models.small:small_cnn", num_classes=2, size=(32, 32), width=4)
    assert narrow.d == 16
    shallow = Classifier.load("rightreasons.models.small:small_vit", num_classes=2, size=(32, 32), depth=2, dim=32)
    assert (len(shallow.module.blocks), shallow.d) == (2, 32)


def test_small_networks_stay_small():
    assert sum(p.numel() for p in small_cnn(2).parameters()) < 100_000
    assert sum(p.numel() for p in small_vit(2).parameters()) < 200_000


def test_a_small_network_has_the_weights_of_its_seed():
    one, two, other = (
        Classifier.load("rightreasons.models.small:small_cnn", num_classes=2, size=(32, 32), rng=np.random.default_rng(seed))
        for seed in (1, 1, 2)
    )
    assert one.fingerprint == two.fingerprint != other.fingerprint
