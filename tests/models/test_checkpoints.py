"""Checkpoints with several parts, wrong numbers or other grids: a refusal that names the way out, or a choice that is said."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from safetensors.torch import save_file  # noqa: E402
from torch import nn  # noqa: E402

from rightreasons.errors import CheckpointError, ModelError, SettingError  # noqa: E402
from rightreasons.models.checkpoints import load_weights, read_checkpoint  # noqa: E402
from rightreasons.models.classifier import Classifier  # noqa: E402
from rightreasons.models.small import small_cnn  # noqa: E402

pytestmark = pytest.mark.torch
CNN = "rightreasons.models.small:small_cnn"


@pytest.fixture
def weights() -> dict[str, torch.Tensor]:
    return small_cnn(2).state_dict()


@pytest.fixture
def others(weights) -> dict[str, torch.Tensor]:
    return {key: value + 1 if value.is_floating_point() else value for key, value in weights.items()}


def loaded(path: Path, **more) -> nn.Module:
    return Classifier.load(CNN, checkpoint=path, num_classes=2, size=16, **more).module


def first(module: nn.Module) -> torch.Tensor:
    return next(iter(module.state_dict().values()))


def test_of_two_equally_good_prefixes_one_must_be_named(weights, others, tmp_path):
    both = {f"student.{k}": v for k, v in weights.items()} | {f"teacher.{k}": v for k, v in others.items()}
    torch.save(both, tmp_path / "w.pt")
    with pytest.raises(CheckpointError, match=r"'student\.' and 'teacher\.'.*part='teacher' or part='student'"):
        loaded(tmp_path / "w.pt")
    for part, wanted in (("student", weights), ("teacher.", others)):
        assert torch.equal(first(loaded(tmp_path / "w.pt", part=part)), next(iter(wanted.values())))
    save_file({key: value.clone() for key, value in both.items()}, tmp_path / "w.safetensors")
    assert torch.equal(first(loaded(tmp_path / "w.safetensors", part="teacher")), next(iter(others.values())))
    with pytest.raises(CheckpointError, match="no part 'pupil': its names begin with student, teacher"):
        loaded(tmp_path / "w.pt", part="pupil")


def test_two_prefixes_with_the_same_numbers_need_no_name(weights, tmp_path):
    torch.save({f"{part}.{k}": v for part in ("student", "teacher") for k, v in weights.items()}, tmp_path / "w.pt")
    assert torch.equal(first(loaded(tmp_path / "w.pt")), next(iter(weights.values())))


@pytest.mark.slow
def test_the_part_that_is_read_does_not_depend_on_the_hash_seed(weights, tmp_path):
    torch.save({f"{part}.{k}": v.clone() for part in ("student", "teacher") for k, v in weights.items()}, tmp_path / "w.pt")
    load = f"C.load({CNN!r}, {str(tmp_path / 'w.pt')!r}, num_classes=2, size=16)"
    code = f"from rightreasons.models.classifier import Classifier as C; print({load}.card['prefix'])"
    said = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed, "PATH": ""}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("0", "1", "2")
    }
    assert said == {"student.\n"}


def test_a_moving_average_beside_the_weights_is_a_question(weights, others, tmp_path):
    torch.save({"epoch": 3, "state_dict": weights, "state_dict_ema": others}, tmp_path / "w.pt")
    with pytest.raises(CheckpointError, match="'state_dict' and 'state_dict_ema', whose numbers differ"):
        loaded(tmp_path / "w.pt")
    found = Classifier.load(CNN, checkpoint=tmp_path / "w.pt", num_classes=2, size=16, part="state_dict_ema")
    assert torch.equal(first(found.module), next(iter(others.values()))) and found.card["container"] == "state_dict_ema"
    torch.save({"state_dict": weights, "state_dict_ema": dict(weights), "optimizer": {"state": {}}}, tmp_path / "same.pt")
    assert Classifier.load(CNN, checkpoint=tmp_path / "same.pt", num_classes=2, size=16).card["container"] == "state_dict"
    with pytest.raises(SettingError, match="part= names a part of a checkpoint"):
        Classifier.load(CNN, num_classes=2, size=16, part="teacher")


def test_quantised_and_broken_weights_are_refused(weights, tmp_path):
    for changed, word in (
        ({k: v.to(torch.int8) for k, v in weights.items()}, "int8 for .*float32"),
        ({k: v * float("nan") if v.is_floating_point() else v for k, v in weights.items()}, "holds NaN"),
    ):
        torch.save(changed, tmp_path / "w.pt")
        with pytest.raises(CheckpointError, match=word):
            loaded(tmp_path / "w.pt")
    torch.save({k: v.half() if v.is_floating_point() else v for k, v in weights.items()}, tmp_path / "half.pt")
    assert first(loaded(tmp_path / "half.pt")).dtype == torch.float32  # half precision is a number and is widened


@pytest.mark.parametrize(
    "told, word",
    [
        ({"class_to_idx": {"a": 0, 1: "b"}}, "class_to_idx whose numbers are 0, 'b', expected 0 to 1"),
        ({"class_to_idx": {"a": 1, "b": 2}}, "class_to_idx"),
        ({"id2label": {"x": "a", "y": "b"}}, "id2label"),
        ({"classes": ["a", "b", "c"]}, "names the classes 'a', 'b', 'c' and .* has 2 outputs"),
        ({"classes": ["a", "a"]}, "names the classes 'a', 'a'"),
    ],
)
def test_labels_that_cannot_be_read_are_refused_unless_they_are_said(weights, tmp_path, told, word):
    torch.save({"state_dict": weights, **told}, tmp_path / "w.pt")
    with pytest.raises(ModelError, match=word):
        loaded(tmp_path / "w.pt")
    assert Classifier.load(CNN, checkpoint=tmp_path / "w.pt", num_classes=2, size=16, classes=["a", "b"]).classes == ("a", "b")


def test_classes_are_a_list_and_no_text():
    with pytest.raises(SettingError, match="classes='01' is one text"):
        Classifier.load(CNN, num_classes=2, size=16, classes="01")


@pytest.mark.parametrize(
    "name, content, word",
    [
        ("w.pt", b"", "empty"),
        ("w.safetensors", b"", "empty"),
        ("w.pt", b"no weights at all\n", "text that begins with 'no weights"),
        ("w.pth", b"<!doctype html><title>404</title>", "text that begins with '<!doctype"),
        ("w.pt", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS"),
    ],
)
def test_a_file_that_holds_no_weights_says_what_it_is(tmp_path, name, content, word):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=word):
        read_checkpoint(tmp_path / name)


def test_the_positions_of_a_vit_are_resampled_as_timm_does(tmp_path):
    timm = pytest.importorskip("timm")
    name = "test_vit"
    large, small = (timm.create_model(name, num_classes=2, img_size=side) for side in (160, 96))
    torch.save(large.state_dict(), tmp_path / "w.pt")
    found = Classifier.load(f"timm:{name}", checkpoint=tmp_path / "w.pt", size=96)
    small.load_state_dict(timm.models.vision_transformer.checkpoint_filter_fn(large.state_dict(), small))
    assert torch.equal(found.module.pos_embed, small.pos_embed)
    assert found.card["resampled"] == {"pos_embed": "from 10 x 10 to 6 x 6 patches"}
    assert load_weights(large, read_checkpoint(tmp_path / "w.pt")).resampled == {}


# ---- saved models --------------------------------------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path) -> Path:
    return Classifier.load(CNN, num_classes=2, size=16).save(tmp_path / "model")


def change(folder: Path, **changes) -> None:
    told = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps({**told, **changes}))


def test_classes_belong_to_the_fingerprint(saved):
    change(saved, classes=[1, 0])
    with pytest.raises(CheckpointError, match="not of one save"):
        Classifier.open(saved)
    one, other = (Classifier.load(CNN, num_classes=2, size=16, classes=classes) for classes in ((0, 1), (1, 0)))
    assert one.fingerprint != other.fingerprint


def test_classes_of_the_wrong_number_are_refused(saved):
    change(saved, classes=[0, 1, 2])
    with pytest.raises(ModelError, match=r"names 3 classes .* has 2 outputs"):
        Classifier.open(saved)


def test_a_model_that_an_earlier_version_saved_is_opened(saved):
    made = Classifier.open(saved)
    made.format = 1
    before = made.fingerprint  # before format 2 the classes were no part of it, and evidence of such a model has this one
    change(saved, format=1, fingerprint=before)
    again = Classifier.open(saved)
    assert again.fingerprint == before
    assert Classifier.open(again.save(saved.parent / "again")).fingerprint == before


@pytest.mark.parametrize("content", ["[]", "7", "null", "", "{", '{"format": 1}', '{"format": 99}', "[" * 100_000])
def test_a_description_that_is_none_is_one_sentence(saved, content):
    (saved / "model.json").write_text(content)
    with pytest.raises((ModelError, ValueError), match=r"model\.json"):
        Classifier.open(saved)


@pytest.mark.parametrize("key", ["name", "cut", "geometry", "mean", "classes", "card", "used", "fingerprint", "recipe"])
def test_a_description_that_lacks_a_key_names_it(saved, key):
    told = json.loads((saved / "model.json").read_text())
    del told[key]
    (saved / "model.json").write_text(json.dumps(told))
    with pytest.raises(ModelError, match=f"{key} is missing"):
        Classifier.open(saved)
    change(saved, **{key: 7.5})
    with pytest.raises(ModelError, match=key):
        Classifier.open(saved)


def test_numbers_of_numpy_are_classes_too(tmp_path):
    made = Classifier.load(CNN, num_classes=2, size=16, classes=np.array([0, 1]))
    assert Classifier.open(made.save(tmp_path / "m")).fingerprint == made.fingerprint
