"""Any network as features, head and maps: what is cut where, what is refused, and that nothing is left behind."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import Tensor, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from rightreasons.errors import CheckpointError, ModelError, SettingError  # noqa: E402
from rightreasons.models.classifier import Classifier  # noqa: E402

pytestmark = pytest.mark.torch


class Small(nn.Module):
    """A CNN with a stack of layers as its head; in-place steps on purpose."""

    def __init__(self, outputs: int = 3) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Conv2d(8, 6, 3))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(
            nn.BatchNorm1d(6), nn.Linear(6, 12), nn.ReLU(inplace=True), nn.Dropout(0.5), nn.LayerNorm(12), nn.Linear(12, outputs)
        )
        self.classifier[0].running_mean.uniform_(-1, 1)
        self.classifier[0].running_var.uniform_(0.5, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.pool(self.body(x)).flatten(1))


class Functional(nn.Module):
    """A network that calls functions between its layers."""

    def __init__(self, inplace: bool = True) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3)
        self.fc1 = nn.Linear(6, 16)
        self.drop = nn.Dropout(0.5)
        self.fc2 = nn.Linear(16, 2)
        self.inplace = inplace

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.conv(x), inplace=self.inplace).mean((2, 3))
        return self.fc2(self.drop(F.relu(self.fc1(x), inplace=self.inplace)))


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def x() -> Tensor:
    return torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(3))


def small(outputs: int = 3, **names: str) -> Classifier:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return Classifier.wrap(Small(outputs), size=16, **names)  # type: ignore[arg-type]


def functional(inplace: bool, **names: str) -> Classifier:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        return Classifier.wrap(Functional(inplace), size=16, **names)  # type: ignore[arg-type]


def assert_identity(classifier: Classifier, x: Tensor) -> None:
    with torch.no_grad():
        z, expected = classifier.features(x), classifier.logits(x)
    assert z.shape == (len(x), classifier.d) and expected.shape == (len(x), classifier.C)
    assert float(expected[:, -1].std()) > 1e-4
    torch.testing.assert_close(classifier.head(z).detach(), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(classifier.head_data(z.numpy()), expected.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("names", "d", "kinds"),
    [
        ({}, 12, ["linear"]),
        ({"head": "classifier"}, 6, ["affine", "linear", "relu", "layer", "linear"]),
        ({"features": "pool", "head": "classifier"}, 6, ["affine", "linear", "relu", "layer", "linear"]),
        ({"features": "body", "head": "classifier"}, 6, ["affine", "linear", "relu", "layer", "linear"]),
        ({"features": "pool"}, 6, ["affine", "linear", "relu", "layer", "linear"]),
        ({"features": "classifier.1", "head": "classifier.5"}, 12, ["relu", "layer", "linear"]),
        ({"features": "classifier.4", "head": "classifier.5"}, 12, ["linear"]),
        ({"head": "classifier.5"}, 12, ["linear"]),
    ],
)
def test_a_network_is_cut_where_it_is_asked(names: dict[str, str], d: int, kinds: list[str], x: Tensor) -> None:
    classifier = small(**names)
    assert classifier.d == d and [layer.name or layer.kind for layer in classifier.head_data.layers] == kinds
    assert_identity(classifier, x)


@pytest.mark.parametrize("inplace", [True, False])
def test_functions_between_layers_are_seen(inplace: bool, x: Tensor) -> None:
    classifier = functional(inplace, features="fc1", head="fc2")
    assert [layer.name or layer.kind for layer in classifier.head_data.layers] == ["relu", "linear"]
    assert float(classifier.features(x).detach().min()) < 0  # before the function, although the network applies it in place
    assert_identity(classifier, x)
    for features in ("conv", "drop"):
        assert_identity(functional(inplace, features=features, head="fc2"), x)


def test_features_before_an_in_place_step_are_what_the_layer_gave(x: Tensor) -> None:
    classifier = small(features="classifier.1", head="classifier.5")
    net = classifier.module
    with torch.no_grad():
        expected = net.classifier[1](net.classifier[0](net.pool(net.body(x)).flatten(1)))
    torch.testing.assert_close(classifier.features(x).detach(), expected)


def test_the_maps_average_to_what_the_pooled_head_reads(x: Tensor) -> None:
    for classifier in (small(), functional(True), functional(False)):
        assert classifier.has_spatial
        with torch.no_grad():
            maps = classifier.spatial(x)
            expected = classifier.logits(x).numpy()
        assert maps.ndim == 4 and maps.shape[1] == 6
        np.testing.assert_allclose(classifier.pooled_head(maps.mean((2, 3)).numpy()), expected, rtol=1e-4, atol=1e-5)


def test_channels_last_maps_come_channels_first() -> None:
    classifier = Classifier.load(
        "timm:swin_tiny_patch4_window7_224", num_classes=2, size=64, depths=(1, 1), num_heads=(1, 1), embed_dim=8
    )
    x = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        maps, z = classifier.spatial(x), classifier.features(x)
    assert maps.shape == (2, 16, 8, 8)
    torch.testing.assert_close(maps.mean((2, 3)), z, rtol=1e-4, atol=1e-5)


def test_gradients_of_the_logits_reach_the_maps_and_the_input(x: Tensor) -> None:
    classifier = small()
    x.requires_grad_()
    maps, logits = classifier.activations(x, ["body.0"])
    (by_map,) = torch.autograd.grad(logits[:, 1].sum(), maps["body.0"], retain_graph=True)
    (by_input,) = torch.autograd.grad(classifier.head(classifier.features(x))[:, 1].sum(), x)
    assert float(by_map.abs().sum()) > 0
    torch.testing.assert_close(by_input, torch.autograd.grad(logits[:, 1].sum(), x)[0], rtol=1e-4, atol=1e-6)


def test_gradients_reach_the_weights_of_the_head() -> None:
    classifier = small(head="classifier")
    classifier.head(torch.randn(4, 6))[:, 0].sum().backward()
    assert all(p.grad is not None for p in classifier.module.classifier.parameters())


def test_activations_of_any_layer_come_with_the_logits(x: Tensor) -> None:
    classifier = small()
    found, logits = classifier.activations(x, ["body.0", "pool"])
    assert {name: t.shape[1] for name, t in found.items()} == {"body.0": 8, "pool": 6}
    torch.testing.assert_close(logits, classifier.logits(x))
    with pytest.raises(ModelError, match=r"body\.3"):
        classifier.activations(x, ["body.33"])


@pytest.mark.parametrize("training", [False, True])
def test_nothing_is_left_behind(training: bool, x: Tensor) -> None:
    classifier = small()
    classifier.module.train(training)
    classifier.module.body.eval()
    before = {name: value.clone() for name, value in classifier.module.body.state_dict().items()}
    flags = {name: m.training for name, m in classifier.module.named_modules()}
    for call in (classifier.features, classifier.logits, classifier.spatial):
        call(x)
    assert {name: m.training for name, m in classifier.module.named_modules()} == flags
    assert all(p.grad is None and p.requires_grad for p in classifier.module.parameters())
    assert not any(m._forward_hooks or m._forward_pre_hooks or m._backward_hooks for m in classifier.module.modules())
    for name, value in classifier.module.body.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)


def test_hooks_are_removed_when_the_network_fails() -> None:
    classifier = small()
    with pytest.raises(RuntimeError):
        classifier.features(torch.randn(2, 5, 16, 16))
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in classifier.module.modules())


def test_the_head_follows_training(x: Tensor) -> None:
    classifier = small()
    before, print_before = classifier.head_data.weight.copy(), classifier.fingerprint
    with torch.no_grad():
        classifier.module.classifier[5].weight.add_(1)
    np.testing.assert_allclose(classifier.head_data.weight, before + 1, rtol=1e-6)
    assert classifier.fingerprint != print_before
    assert_identity(classifier, x)


def test_one_logit_is_two_logits(x: Tensor) -> None:
    classifier = small(outputs=1)
    assert classifier.classes == (0, 1) and classifier.C == 2
    logits = classifier.logits(x)
    assert not logits[:, 0].any()
    torch.testing.assert_close(logits[:, 1:], classifier.module(x))
    assert_identity(classifier, x)


def test_one_output_of_a_multi_label_head_is_read_as_one_logit(x: Tensor) -> None:
    net = Small(4)
    classifier = Classifier.wrap(net, size=16, output=2, classes=["healthy", "ill"])
    assert classifier.classes == ("healthy", "ill")
    torch.testing.assert_close(classifier.logits(x)[:, 1], net(x)[:, 2])
    assert_identity(classifier, x)
    with pytest.raises(SettingError, match=r"output=4.*4 outputs"):
        Classifier.wrap(net, size=16, output=4)


def test_one_logit_after_an_activation_is_two_logits(x: Tensor) -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 1), nn.Tanh())
    classifier = Classifier.wrap(net, size=16)
    assert [layer.name or layer.kind for layer in classifier.head_data.layers] == ["linear", "tanh", "linear"]
    assert_identity(classifier, x)


def test_the_classes_must_be_as_many_as_the_outputs() -> None:
    with pytest.raises(SettingError, match=r"must list 3 different.*output="):
        Classifier.wrap(Small(3), size=16, classes=["a", "b"])


def test_the_mean_of_two_heads_is_one_linear_head(x: Tensor) -> None:
    class Distilled(nn.Module):
        def __init__(self, shared: bool) -> None:
            super().__init__()
            self.conv, self.other = nn.Conv2d(3, 6, 3), nn.Conv2d(3, 5, 3)
            self.head, self.head_dist, self.shared = nn.Linear(6, 3), nn.Linear(6 if shared else 5, 3), shared

        def forward(self, x: Tensor) -> Tensor:
            z = self.conv(x).mean((2, 3))
            return (self.head(z) + self.head_dist(z if self.shared else self.other(x).mean((2, 3)))) / 2

    apart, shared = (Classifier.wrap(Distilled(s), size=16) for s in (False, True))
    assert apart.d == 11 and shared.d == 6 and apart.head_data.is_linear
    assert shared.has_spatial and not apart.has_spatial
    assert_identity(apart, x)
    assert_identity(shared, x)
    with torch.no_grad():
        np.testing.assert_allclose(
            shared.pooled_head(shared.spatial(x).mean((2, 3)).numpy()), shared.logits(x).numpy(), rtol=1e-4, atol=1e-5
        )


class Scaled(Small):
    def forward(self, x: Tensor) -> Tensor:
        return 3 * super().forward(x)


@pytest.mark.parametrize(
    ("net", "names", "reason"),
    [
        (nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 3, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten()), {}, "'1' .*every place"),
        (nn.Sequential(nn.Flatten(), nn.Linear(768, 3), nn.Softmax(1)), {}, "'2' .Softmax"),
        (Scaled(), {}, "no linear layer's output"),
        (Small(), {"head": "classifer"}, "no layer 'classifer'.*classifier"),
        (Small(), {"head": "body"}, "does not give the output"),
        (Small(), {"features": "body.0", "head": "classifier"}, "features='body.0'.*between the features and the head"),
        (nn.Sequential(nn.Conv2d(3, 4, 3)), {}, "expected a row of logits"),
        (nn.Sequential(nn.Flatten(), nn.Linear(5, 3)), {}, "does not run on an input of"),
    ],
)
def test_what_cannot_be_cut_is_refused_by_name(net: nn.Module, names: dict[str, str], reason: str) -> None:
    with pytest.raises(ModelError, match=reason):
        Classifier.wrap(net, size=16, **names)  # type: ignore[arg-type]


def test_weights_that_are_not_finite_are_refused() -> None:
    net = Small()
    with torch.no_grad():
        net.classifier[5].weight.fill_(float("nan"))
    with pytest.raises(ModelError, match="not finite"):
        Classifier.wrap(net, size=16)


def test_a_zero_head_is_cut_all_the_same() -> None:
    net = Small()
    nn.init.zeros_(net.classifier[5].weight)
    assert Classifier.wrap(net, size=16).cut.features == ("classifier.5:input",)


class Unstarted(nn.Module):
    """Steps that do nothing on the first weights: a norm of unit statistics, a residual branch of zero, a scale of one."""

    def __init__(self, scaled: bool) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 6, 3), nn.BatchNorm1d(6)
        self.branch, self.fc = nn.Linear(6, 6), nn.Linear(6, 3)
        self.scale = nn.Parameter(torch.ones(())) if scaled else None
        nn.init.zeros_(self.branch.weight)
        nn.init.zeros_(self.branch.bias)

    def forward(self, x: Tensor) -> Tensor:
        z = self.norm(self.conv(x).mean((2, 3)))
        y = self.fc(z + self.branch(z))
        return y if self.scale is None else self.scale * y


def test_what_does_nothing_yet_is_seen(x: Tensor) -> None:
    net = Unstarted(scaled=False)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    classifier = Classifier.wrap(net, size=16)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert classifier.cut.features == ("fc:input",) and not classifier.has_spatial
    with pytest.raises(ModelError, match=r"features='norm'.*between the features and the head"):
        Classifier.wrap(net, features="norm", head="fc", size=16)
    with pytest.raises(ModelError, match="no linear layer's output"):
        Classifier.wrap(Unstarted(scaled=True), size=16)


def test_the_weights_are_put_back_when_the_network_fails() -> None:
    net = Small()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    with pytest.raises(ModelError, match="does not run"):
        Classifier.wrap(net, size=16, channels=5)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def test_no_maps_are_refused_with_the_layer_looked_at() -> None:
    classifier = Classifier.wrap(nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten(), nn.Linear(392, 3)), size=16)
    assert not classifier.has_spatial
    with pytest.raises(ModelError, match=r"'2'.*392"):
        classifier.spatial(torch.randn(1, 3, 16, 16))


def test_a_max_pool_is_no_average() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(4, 2))
    assert not Classifier.wrap(net, size=16).has_spatial


def test_volumes_are_cut_like_images() -> None:
    net = nn.Sequential(nn.Conv3d(1, 4, 3), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(4, 2))
    classifier = Classifier.wrap(net, size=(8, 9, 10), channels=1)
    x = torch.randn(3, 1, 8, 9, 10)
    assert classifier.spatial(x).shape == (3, 4, 6, 7, 8)
    assert_identity(classifier, x)


def test_a_copy_has_weights_of_its_own() -> None:
    classifier = small()
    other = classifier.copy()
    other.card["seed"] = 3
    with torch.no_grad():
        other.module.body[0].weight.zero_()
    assert classifier.fingerprint != other.fingerprint and classifier.card["seed"] is None


def test_the_fingerprint_is_of_weights_and_geometry() -> None:
    assert small().fingerprint == small().fingerprint
    assert Classifier.wrap(small().module, size=18).fingerprint != small().fingerprint
    assert Classifier.wrap(small().module, size=16, mean=0.5).fingerprint != small().fingerprint


def test_a_loaded_classifier_comes_back_from_its_folder(tmp_path: Path) -> None:
    classifier = Classifier.load("timm:test_resnet", num_classes=1, size=64, channels=1, classes=["no", "yes"])
    classifier.card.update(seed=4, regime="erm")
    classifier.used, classifier.training = frozenset({"a", "b"}), "f00"
    classifier.save(tmp_path / "m")
    again = Classifier.open(tmp_path / "m")
    for name in ("fingerprint", "classes", "geometry", "mean", "std", "card", "used", "training", "cut", "name", "output"):
        assert getattr(again, name) == getattr(classifier, name), name
    x = torch.randn(2, 1, 64, 64)
    torch.testing.assert_close(again.logits(x), classifier.logits(x), rtol=0, atol=0)
    assert sorted(p.name for p in (tmp_path / "m").iterdir()) == ["model.json", "model.safetensors"]


def test_a_wrapped_network_comes_back_into_a_module_of_its_kind(tmp_path: Path, x: Tensor) -> None:
    classifier = small(features="pool", head="classifier")
    classifier.save(tmp_path)
    with pytest.raises(ModelError, match="module="):
        Classifier.open(tmp_path)
    torch.testing.assert_close(Classifier.open(tmp_path, module=Small()).logits(x), classifier.logits(x), rtol=0, atol=0)
    with pytest.raises(CheckpointError, match="does not fit"):
        Classifier.open(tmp_path, module=Functional())


def test_tied_weights_can_be_saved(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(27, 27), nn.ReLU(), nn.Linear(27, 27))
    net[3].weight = net[1].weight
    Classifier.wrap(net, size=3).save(tmp_path)
    assert (tmp_path / "model.safetensors").is_file()


def test_files_of_two_saves_are_told_apart(tmp_path: Path) -> None:
    classifier = Classifier.load("timm:test_resnet", num_classes=2, size=64)
    classifier.save(tmp_path / "a")
    with torch.no_grad():
        classifier.module.fc.bias.add_(1)
    classifier.save(tmp_path / "b")
    (tmp_path / "b" / "model.json").write_bytes((tmp_path / "a" / "model.json").read_bytes())
    with pytest.raises(CheckpointError, match="not of one save"):
        Classifier.open(tmp_path / "b")


def test_a_folder_without_a_classifier_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="holds no classifier"):
        Classifier.open(tmp_path)
    small().save(tmp_path)
    told = json.loads((tmp_path / "model.json").read_text())
    (tmp_path / "model.json").write_text(json.dumps({**told, "format": 99}))
    with pytest.raises(ModelError, match="format 99"):
        Classifier.open(tmp_path)


def test_a_description_that_names_no_layer_of_the_head_is_refused(tmp_path):
    folder = Classifier.load("rightreasons.models.small:small_cnn", num_classes=2, size=16).save(tmp_path / "m")
    told = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps({**told, "cut": {**told["cut"], "head": []}}))
    with pytest.raises(ModelError, match="names no layer of the head"):
        Classifier.open(folder)


def test_settings_that_are_no_plain_data_are_refused_before_a_file_is_written(tmp_path: Path) -> None:
    classifier = small()
    classifier.card["optimizer"] = torch.optim.SGD
    with pytest.raises(ModelError, match="plain numbers and strings"):
        classifier.save(tmp_path / "m")
    assert not (tmp_path / "m" / "model.safetensors").exists()
