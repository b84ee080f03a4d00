"""Networks by name and weights from files: what is read, what is inferred, and the sentence for what does not fit."""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from safetensors.torch import save_file  # noqa: E402
from torch import nn  # noqa: E402

from rightreasons.errors import CheckpointError, ModelError, NotTrusted, SettingError  # noqa: E402
from rightreasons.models import checkpoints, loading  # noqa: E402
from rightreasons.models.classifier import Classifier  # noqa: E402

pytestmark = pytest.mark.torch

TINY = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def resnet(**settings: object) -> Classifier:
    return Classifier.load("timm:test_resnet", size=64, **{"num_classes": 3, **settings})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def state() -> dict[str, torch.Tensor]:
    return resnet(rng=np.random.default_rng(5)).module.state_dict()


def same(classifier: Classifier, state: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(value, state[key]) for key, value in classifier.module.state_dict().items())


# --- names -------------------------------------------------------------------------------------------------------------------


def test_timm_says_its_own_input_settings() -> None:
    classifier = Classifier.load("timm:test_resnet")
    assert classifier.geometry.size == (160, 160) and classifier.geometry.crop == pytest.approx(0.95)
    assert classifier.C == 1000 and classifier.classes[:2] == (0, 1)
    assert classifier.geometry.interpolation == "bilinear" and classifier.mean == (0.5, 0.5, 0.5)


def test_every_input_setting_can_be_overridden() -> None:
    given = {"size": 72, "crop": 0.5, "interpolation": "nearest", "mean": (0.1, 0.2, 0.3), "std": 2.0, "mode": "squash"}
    classifier = Classifier.load("timm:test_resnet", num_classes=2, **given)  # type: ignore[arg-type]
    geometry = classifier.geometry
    assert (geometry.size, geometry.crop, geometry.interpolation, geometry.mode) == ((72, 72), 0.5, "nearest", "squash")
    assert classifier.mean == (0.1, 0.2, 0.3) and classifier.std == (2.0, 2.0, 2.0)


def test_a_border_is_padded_with_the_mean() -> None:
    assert resnet(mode="border", mean=0.25).geometry.fill == (0.25, 0.25, 0.25)


def test_a_fixed_size_network_is_built_for_the_size_asked() -> None:
    classifier = Classifier.load("timm:test_vit", num_classes=2, size=(32, 48))
    assert classifier.logits(torch.randn(1, 3, 32, 48)).shape == (1, 2)


def test_grey_networks_read_one_channel() -> None:
    classifier = resnet(channels=1)
    assert classifier.geometry.channels == 1 and classifier.mean == (0.5,)
    assert classifier.logits(torch.randn(1, 1, 64, 64)).shape == (1, 3)


def test_torchvision_says_its_own_input_settings() -> None:
    classifier = Classifier.load("torchvision:shufflenet_v2_x0_5", num_classes=2)
    assert classifier.geometry.size == (224, 224) and classifier.geometry.crop == pytest.approx(224 / 256)
    assert classifier.mean == (0.485, 0.456, 0.406) and classifier.has_spatial
    with pytest.raises(ModelError, match="reads 3 channels, not 1"):
        Classifier.load("torchvision:resnet18", channels=1)
    with pytest.raises(ModelError, match="frames"):
        Classifier.load("torchvision:r3d_18")


def test_monai_needs_a_size_and_knows_its_channels() -> None:
    pytest.importorskip("monai")
    with pytest.raises(ModelError, match=r"size=\(x, y, z\)"):
        Classifier.load("monai:DenseNet121", num_classes=2)
    small = {"block_config": (1, 1), "init_features": 4, "growth_rate": 2}
    classifier = Classifier.load("monai:DenseNet", size=(16, 16, 16), in_channels=2, num_classes=2, **small)
    assert classifier.geometry.channels == 2 and classifier.mean == (0.0, 0.0) and classifier.std == (1.0, 1.0)
    flat = Classifier.load("monai:EfficientNetBN", size=(32, 32), num_classes=2, model_name="efficientnet-b0")
    assert flat.geometry.channels == 1


def test_a_hugging_face_class_takes_its_config_as_settings(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    classifier = Classifier.load("hf:ViTForImageClassification", num_classes=3, size=32, channels=1, **TINY)
    assert classifier.geometry.size == (32, 32) and classifier.d == 16 and classifier.geometry.channels == 1
    assert classifier.geometry.mode == "squash" and classifier.mean == (0.5,)
    classifier.save(tmp_path)
    assert Classifier.open(tmp_path).fingerprint == classifier.fingerprint


def test_a_hugging_face_folder_brings_weights_labels_and_preprocessing(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 12], depths=[1, 1], id2label={0: "cat", 1: "dog"}, label2id={"cat": 0, "dog": 1}
    )
    net = transformers.ResNetForImageClassification(config).eval()
    net.save_pretrained(tmp_path / "net")
    processor = transformers.ConvNextImageProcessor(size={"shortest_edge": 64}, crop_pct=0.8, image_mean=[0.1] * 3, resample=3)
    processor.save_pretrained(tmp_path / "net")
    classifier = Classifier.load(f"hf:{tmp_path / 'net'}")
    assert classifier.classes == ("cat", "dog") and classifier.mean == pytest.approx((0.1,) * 3)
    geometry = classifier.geometry
    assert (geometry.size, geometry.crop, geometry.mode, geometry.interpolation) == ((64, 64), 0.8, "center", "bicubic")
    x = torch.randn(2, 3, 64, 64)
    torch.testing.assert_close(classifier.logits(x), net(x).logits)
    classifier.save(tmp_path / "saved")
    for path in (tmp_path / "net").iterdir():
        path.unlink()
    torch.testing.assert_close(Classifier.open(tmp_path / "saved").logits(x), net(x).logits)


def test_a_multi_label_head_is_refused_without_an_output() -> None:
    pytest.importorskip("transformers")
    settings = {**TINY, "problem_type": "multi_label_classification", "id2label": {0: "effusion", 1: "mass", 2: "none"}}
    with pytest.raises(ModelError, match=r"'effusion', 'mass'.*output="):
        Classifier.load("hf:ViTForImageClassification", size=32, **settings)
    classifier = Classifier.load("hf:ViTForImageClassification", size=32, output="mass", **settings)
    assert classifier.output == 1 and classifier.classes == (0, 1)
    with pytest.raises(SettingError, match="'lung' is none"):
        Classifier.load("hf:ViTForImageClassification", size=32, output="lung", **settings)


def test_own_factories_are_called_with_what_they_ask_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = """
from torch import nn
from rightreasons.models.classifier import Classifier

def net(num_classes=2, width=4):
    return nn.Sequential(nn.Conv2d(3, width, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, num_classes))

def whole(width=4):
    return Classifier.wrap(net(3, width), size=16, classes=["a", "b", "c"])

def text():
    return "net"
"""
    (tmp_path / "my_lab_nets.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_lab_nets", raising=False)
    with pytest.raises(NotTrusted, match="--trust my_lab_nets"):
        Classifier.load("my_lab_nets:net", num_classes=5, size=16, width=7)
    assert "my_lab_nets" not in sys.modules
    made = Classifier.load("my_lab_nets:net", num_classes=5, size=16, width=7, trust="my_lab_nets")
    assert (made.C, made.d, made.name) == (5, 7, "my_lab_nets:net")
    made.save(tmp_path / "a")
    with pytest.raises(NotTrusted, match="'my_lab_nets:net' names code"):
        Classifier.open(tmp_path / "a")
    assert Classifier.open(tmp_path / "a", trust="my_lab_nets").fingerprint == made.fingerprint
    whole = Classifier.load("my_lab_nets:whole", width=6, trust="my_lab_nets")
    assert whole.classes == ("a", "b", "c") and whole.d == 6
    whole.save(tmp_path / "b")
    assert Classifier.open(tmp_path / "b", trust="my_lab_nets").fingerprint == whole.fingerprint
    for spec, reason in {
        "my_lab_nets:net": "give size=",
        "my_lab_nets:ned": "did you mean net",
        "my_lab_nets:text": "must return an nn.Module",
        "no_such_lab:net": "no module 'no_such_lab'",
    }.items():
        with pytest.raises(ModelError, match=reason):
            Classifier.load(spec, trust=["my_lab_nets", "no_such_lab"])


@pytest.mark.parametrize(
    ("spec", "settings", "reason"),
    [
        ("resnet18", {}, "names no model"),
        ("timm:resnet1888", {}, "did you mean.*resnet"),
        ("timm:resnet18", {"depths": 3}, "cannot be built with depths=3"),
        ("timm:vit_tiny_patch16_dinov3_qkvb", {}, "give num_classes="),
        ("torchvision:fasterrcnn_resnet50_fpn", {}, "not in torchvision's classifiers"),
        ("hf:ViTForImageClassificatio", {}, "did you mean ViTForImageClassification"),
        ("monai:DenseNet11", {"size": (8, 8)}, "did you mean"),
    ],
)
def test_a_wrong_name_is_answered_with_near_ones(spec: str, settings: dict[str, object], reason: str) -> None:
    with pytest.raises(ModelError, match=reason):
        Classifier.load(spec, **settings)  # type: ignore[arg-type]


def test_random_weights_come_from_the_generator_alone() -> None:
    before, numpy_before = torch.random.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    one, two = resnet(), resnet()
    other = resnet(rng=np.random.default_rng(1))
    assert torch.equal(before, torch.random.get_rng_state()) and (numpy_before == np.random.get_state()[1]).all()  # noqa: NPY002
    assert one.fingerprint == two.fingerprint != other.fingerprint
    assert not one.module.training and torch.is_grad_enabled()


# --- checkpoints -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["", "module.", "model.", "net.", "module.model.", "_orig_mod.", "model.backbone."])
@pytest.mark.parametrize("container", [None, "state_dict", "model", "model_state_dict", "model_ema"])
def test_containers_and_prefixes_are_taken_off(
    prefix: str, container: str | None, state: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    content: object = {prefix + key: value for key, value in state.items()}
    if container:
        content = {container: content, "epoch": 3, "optimizer": {"lr": 0.1}}
    torch.save(content, tmp_path / "w.pt")
    net = loading.build("timm:test_resnet", num_classes=3).module
    assert checkpoints.load_weights(net, checkpoints.read_checkpoint(tmp_path / "w.pt")).ignored == []
    assert all(torch.equal(value, state[key]) for key, value in net.state_dict().items())


def test_safetensors_are_read_and_classes_counted(state: dict[str, torch.Tensor], tmp_path: Path) -> None:
    save_file(state, tmp_path / "w.safetensors")
    classifier = Classifier.load("timm:test_resnet", checkpoint=tmp_path / "w.safetensors", size=64)
    assert classifier.C == 3 and same(classifier, state)
    with pytest.raises(CheckpointError, match=r"fc\.weight \(3, \d+\) in the file, \(5, \d+\) in the network.*num_classes"):
        resnet(checkpoint=tmp_path / "w.safetensors", num_classes=5)


def test_a_new_head_keeps_the_rest_of_the_weights(state: dict[str, torch.Tensor], tmp_path: Path) -> None:
    save_file(state, tmp_path / "w.safetensors")
    classifier = resnet(checkpoint=tmp_path / "w.safetensors", num_classes=5, new_head=True)
    assert classifier.C == 5
    assert all(torch.equal(v, state[k]) for k, v in classifier.module.state_dict().items() if not k.startswith("fc."))


def test_half_precision_weights_become_single(state: dict[str, torch.Tensor], tmp_path: Path) -> None:
    torch.save({key: value.half() if value.is_floating_point() else value for key, value in state.items()}, tmp_path / "w.pt")
    classifier = resnet(checkpoint=tmp_path / "w.pt")
    assert {p.dtype for p in classifier.module.parameters()} == {torch.float32}


def test_what_a_training_script_adds_is_left_and_named(state: dict[str, torch.Tensor], tmp_path: Path) -> None:
    lightning = {"state_dict": {f"model.{k}": v for k, v in state.items()} | {"criterion.weight": torch.ones(3)}}
    torch.save(lightning, tmp_path / "w.ckpt")
    classifier = resnet(checkpoint=tmp_path / "w.ckpt")
    assert same(classifier, state) and classifier.card["ignored_keys"] == ["criterion.weight"]


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        ({"class_to_idx": {"mel": 2, "nv": 0, "bcc": 1}}, ("nv", "bcc", "mel")),
        ({"id2label": {"0": "a", "2": "c", "1": "b"}}, ("a", "b", "c")),
        ({"classes": ["x", "y", "z"]}, ("x", "y", "z")),
    ],
)
def test_labels_in_the_file_are_used(labels: dict, classes: tuple, state: dict[str, torch.Tensor], tmp_path: Path) -> None:  # type: ignore[type-arg]
    torch.save({"state_dict": state, **labels}, tmp_path / "w.pt")
    assert resnet(checkpoint=tmp_path / "w.pt").classes == classes
    assert resnet(checkpoint=tmp_path / "w.pt", classes=[7, 8, 9]).classes == (7, 8, 9)


def test_labels_of_another_number_than_the_outputs_are_refused(state: dict[str, torch.Tensor], tmp_path: Path) -> None:
    torch.save({"state_dict": state, "class_to_idx": {"a": 0, "b": 1}}, tmp_path / "w.pt")
    with pytest.raises(ModelError, match=r"names the classes 'a', 'b' and timm:test_resnet has 3 outputs"):
        resnet(checkpoint=tmp_path / "w.pt")
    assert resnet(checkpoint=tmp_path / "w.pt", classes=[7, 8, 9]).classes == (7, 8, 9)


def test_a_mismatch_names_what_is_missing_and_unexpected(state: dict[str, torch.Tensor], tmp_path: Path) -> None:
    wrong = {key: value for key, value in state.items() if key != "layer1.0.conv1.weight"} | {"stem.weight": torch.ones(2)}
    torch.save(wrong, tmp_path / "w.pt")
    with pytest.raises(CheckpointError, match=r"1 missing \(layer1\.0\.conv1\.weight\); 1 unexpected \(stem\.weight\)"):
        resnet(checkpoint=tmp_path / "w.pt")
    save_file({f"x{i}": torch.ones(1) for i in range(9)}, tmp_path / "w.safetensors")
    with pytest.raises(CheckpointError, match=r"9 unexpected .*and 4 more"):
        resnet(checkpoint=tmp_path / "w.safetensors")


class _Code:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch ran",)


def test_a_file_with_code_is_refused_and_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"state_dict": _Code()}, tmp_path / "w.pt")
    with pytest.raises(CheckpointError, match=r"Python objects.*torch\.save"):
        resnet(checkpoint=tmp_path / "w.pt")
    (tmp_path / "old.pt").write_bytes(pickle.dumps(_Code(), protocol=2))
    with pytest.raises(CheckpointError):
        resnet(checkpoint=tmp_path / "old.pt")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["w.pt", "w.safetensors"])
def test_a_broken_file_is_refused(name: str, state: dict[str, torch.Tensor], tmp_path: Path) -> None:
    path = tmp_path / name
    with pytest.raises(CheckpointError, match="no checkpoint at"):
        checkpoints.read_checkpoint(path)
    for content in (b"", b"not weights at all" * 9):
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match=name):
            checkpoints.read_checkpoint(path)
    torch.save(state, path) if name == "w.pt" else save_file(state, path)
    path.write_bytes(path.read_bytes()[:-500])
    with pytest.raises(CheckpointError, match=name):
        checkpoints.read_checkpoint(path)


def test_a_whole_pickled_network_is_refused(tmp_path: Path) -> None:
    torch.save(nn.Linear(2, 2), tmp_path / "w.pt")
    with pytest.raises(CheckpointError, match="Python objects"):
        checkpoints.read_checkpoint(tmp_path / "w.pt")
    torch.save({"epoch": 3}, tmp_path / "w.pt")
    with pytest.raises(CheckpointError, match=r"holds no weights: found the keys \['epoch'\]"):
        checkpoints.read_checkpoint(tmp_path / "w.pt")


@pytest.mark.real_data
def test_real_weights_are_read_and_hold_the_identity() -> None:
    folder = os.environ.get("RIGHTREASONS_DATA")
    if not folder:
        pytest.skip("RIGHTREASONS_DATA is not set")
    classifier = Classifier.load("timm:vit_tiny_patch16_224", checkpoint=Path(folder) / "vit_tiny_patch16_224.safetensors")
    x = torch.randn(4, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        z, expected, own = classifier.features(x), classifier.logits(x), classifier.module(x)
    assert classifier.mean == (0.5, 0.5, 0.5) and expected.shape == (4, 1000) and float(expected.std()) > 0.1
    torch.testing.assert_close(expected, own, rtol=0, atol=0)
    torch.testing.assert_close(classifier.head(z).detach(), own, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(classifier.head_data(z.numpy()), own.numpy(), rtol=1e-4, atol=1e-4)


def test_random_weights_say_that_they_are_fresh_and_brought_ones_do_not(tmp_path) -> None:
    fresh = Classifier.load("timm:resnet18", num_classes=2)
    assert fresh.card["start"] == "fresh"
    fresh.save(tmp_path)
    brought = Classifier.load("timm:resnet18", checkpoint=tmp_path / "model.safetensors", num_classes=2)
    assert brought.card["start"] is None
