"""A folder says itself what is to be audited; `init` writes it down with reasons, and nothing is replaced unasked."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import pandas as pd
import torch
from torchvision.models import mobilenet_v3_small

from rightreasons.errors import SettingError
from rightreasons.models.recognised import fitting
from rightreasons.study.file import read
from rightreasons.study.found import Asked, init, look_around, study_in

pytestmark = pytest.mark.torch


@pytest.fixture
def folder(tmp_path, monkeypatch):
    rows = [(f"{i}.png", i % 2, "fm"[i // 2 % 2], ["train", "val", "test"][i % 3]) for i in range(30)]
    pd.DataFrame(rows, columns=["path", "y", "sex", "part"]).to_csv(tmp_path / "films.csv", index=False)
    (tmp_path / "scans").mkdir()
    for name, *_ in rows:
        (tmp_path / "scans" / name).touch()
    content = {"model_state_dict": mobilenet_v3_small(num_classes=2).state_dict(), "img_size": 64}
    torch.save(content, tmp_path / "weights.pt")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_only_table_and_checkpoint_are_found_and_the_network_by_its_tensors(folder):
    around = look_around(Asked())
    assert around.columns == {"image": "path", "root": "scans", "label": "y", "split": "part", "attribute": ["sex"]}
    assert around.model == {"checkpoint": "weights.pt", "model": "torchvision:mobilenet_v3_small", "size": 64}
    said = "\n".join(around.lines())
    assert "the only one here" in said and "weights.pt says so" in said


def test_what_is_said_is_kept(folder):
    around = look_around(Asked(columns={"label": "sex", "attribute": ["y"]}, model={"checkpoint": "weights.pt", "size": 32}))
    assert around.columns["label"] == "sex" and around.columns["attribute"] == ["y"] and around.model["size"] == 32


def test_init_writes_a_study_with_its_reasons_and_keeps_one_that_is_there(folder):
    _, path = init(Asked(), folder / "study.toml")
    text = path.read_text()
    assert 'root = "scans"  # the folder with the files' in text and "# attribute sex: f, m" in text
    file = read(path)
    assert file.data.keywords["label"] == "y" and file.model.model == "torchvision:mobilenet_v3_small"
    assert study_in(folder) == path
    path.write_text("mine")
    with pytest.raises(SettingError, match="--force"):
        init(Asked(), path)
    assert path.read_text() == "mine"
    init(Asked(), path, force=True)
    assert read(path) == file


def test_two_tables_and_no_table_are_refused(folder):
    (folder / "more.tsv").touch()
    with pytest.raises(SettingError, match=r"2 files .* could be the table"):
        look_around(Asked())
    assert look_around(Asked(manifest=folder / "films.csv")).columns["label"] == "y"
    (folder / "empty").mkdir()
    with pytest.raises(SettingError, match="no table in"):
        look_around(Asked(), folder / "empty")


@pytest.mark.slow
def test_networks_with_the_same_tensors_are_all_named(tmp_path, monkeypatch):
    import timm

    torch.save(
        {f"module.{key}": v for key, v in timm.create_model("resnet18", num_classes=3).state_dict().items()}, tmp_path / "r.pt"
    )
    assert fitting(tmp_path / "r.pt") == ["timm:resnet18", "torchvision:resnet18"]
    monkeypatch.chdir(tmp_path)
    pd.DataFrame({"image": ["a.png", "b.png"], "y": [0, 1]}).to_csv("t.csv", index=False)
    with pytest.raises(SettingError, match="timm:resnet18 and torchvision:resnet18 alike"):
        look_around(Asked())
    torch.save({"a.weight": torch.zeros(3, 3)}, tmp_path / "r.pt")
    with pytest.raises(SettingError, match="no network that is known by name"):
        look_around(Asked())
