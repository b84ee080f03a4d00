"""Extraction: one pass for all needs, nothing twice, the model left as it was, and nothing lost when it ends early."""

import multiprocessing
import os
import re
import time

import numpy as np
import pandas as pd
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from rightreasons.audits import Need  # noqa: E402
from rightreasons.data import planted  # noqa: E402
from rightreasons.data.cohort import Cohort  # noqa: E402
from rightreasons.errors import DataError, EvidenceError, ImageError, ModelError, SettingError  # noqa: E402
from rightreasons.evidence import Evidence, missing_chunks  # noqa: E402
from rightreasons.extraction import (  # noqa: E402
    card_of,
    extract,
    named_cohorts,
    recipes,
)
from rightreasons.models.classifier import Classifier  # noqa: E402

pytestmark = pytest.mark.torch

QUICK = {"batch": 8, "chunk": 16, "threads": 1, "device": "cpu", "workers": 1}


def small(**settings):
    given = {"num_classes": 2, "size": (16, 16), "width": 4, "mean": 0.5, "std": 0.5, "verify": False, **settings}
    return Classifier.load("rightreasons.models.small:small_cnn", **given)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return planted.digits(tmp_path_factory.mktemp("world"), n=120, pixels=16)


@pytest.fixture
def passes(monkeypatch):
    """How many images every forward pass had."""
    seen = []
    read = Classifier.read

    def counted(self, x):
        seen.append(len(x))
        return read(self, x)

    monkeypatch.setattr(Classifier, "read", counted)
    return seen


def content(folder):
    """Every chunk file of the evidence in a folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file() and "/c/" in p.as_posix()}


# ---- what it makes -------------------------------------------------------------------------------------------------------


def test_the_arrays_are_what_the_model_says_of_each_image(world):
    model = small()
    evidence = extract(model, world, **QUICK)
    for name in ("audit", "test", "twin"):
        rows = evidence.on(name).cohort
        stack = np.load(rows.root / rows.image[0].partition("#")[0])
        x = torch.from_numpy(stack[[int(i.partition("#")[2]) for i in rows.image]]).float().div(255).sub(0.5).div(0.5)
        with torch.no_grad():
            logits = model.module(x.movedim(-1, 1)).numpy()
        assert np.allclose(evidence.on(name)["logits"], logits, atol=1e-5)
    view = evidence.on("test")
    assert np.allclose(evidence.head(view["features"]), view["logits"], atol=1e-5)


def test_one_pass_serves_features_and_logits(world, passes):
    test = world.on("test")
    extract(small(), {"test": test}, ["features", "logits"], **QUICK)
    assert sum(passes) == len(test)
    assert set(passes[:-1]) == {8}


def test_a_second_call_makes_nothing_again_and_a_further_need_only_itself(world, passes, tmp_path):
    test = world.on("test")
    first = extract(small(), {"test": test}, ["logits"], out=tmp_path, **QUICK)
    before, count = content(tmp_path), len(passes)
    extract(small(), {"test": test}, ["logits"], out=tmp_path, **QUICK)
    assert len(passes) == count
    both = extract(small(), {"test": test}, ["logits", "features"], out=tmp_path, **QUICK)
    assert len(passes) == 2 * count
    assert {k: v for k, v in content(tmp_path).items() if k in before} == before
    assert np.allclose(both.head(both["features"]), first["logits"], atol=1e-5)


def test_spatial_maps_are_made_by_their_name(world):
    evidence = extract(small(), {"test": world.on("test")}, ["spatial"], **QUICK)
    assert evidence["spatial"].shape == (len(world.on("test")), 16, 4, 4)


def test_needs_are_audits_arrays_or_needs(world):
    named = {"test": world.on("test"), "audit": world.on("audit")}
    evidence = extract(small(), named, [Need("test", "audit", "features"), "logits", "groups"], **QUICK)
    assert evidence.arrays("audit") == ("features", "logits")
    assert evidence.arrays("test") == ("logits",)
    assert extract(small(), named, "features", **QUICK).arrays("test") == ("features",)


@pytest.mark.parametrize("need", ["grups", "maps", "spots@drop(top=3)"])
def test_a_need_that_nobody_makes_is_refused_by_name(world, need):
    with pytest.raises(SettingError, match=rf"no recipe {re.escape(repr(need))}; .*known: features, logits, spatial"):
        extract(small(), {"test": world.on("test")}, [need], **QUICK)
    with pytest.raises(SettingError, match="no recipe"):
        recipes.make(need)


def test_the_card_says_what_the_model_is(world):
    model = small()
    model.card.update(name="net", regime="erm", seed=3, settings={"lr": 0.1})
    evidence = extract(model, {"test": world.on("test")}, ["logits"], **QUICK)
    assert evidence.card == card_of(model)
    assert (evidence.card.name, evidence.card.regime, evidence.card.seed) == ("net", "erm", 3)
    assert evidence.card.model == model.fingerprint
    assert evidence.card.classes == (0, 1)


# ---- which rows ----------------------------------------------------------------------------------------------------------


def test_twins_of_the_test_rows_are_a_cohort_of_their_own(world):
    evidence = extract(small(), world, ["flips"], **QUICK)
    test, twin = evidence.on("test"), evidence.on("twin")
    assert twin.cohort.id.tolist() == test.cohort.id.tolist()
    assert (twin.cohort.attribute("cue").values == 1 - test.cohort.attribute("cue").values).all()
    assert not np.allclose(twin["logits"], test["logits"])


def test_a_cohort_without_splits_is_halved_by_the_seed_and_stratified(world):
    whole = Cohort.from_columns(
        {"image": world.image, "label": world.label, "cue": world.attribute("cue").values}, attribute="cue", root=world.root
    )
    named = named_cohorts(whole, seed=0)
    assert set(named) == {"audit", "test"}
    assert not set(named["audit"].id) & set(named["test"].id)
    assert np.abs(named["audit"].counts() - named["test"].counts()).to_numpy().max() <= 1
    assert named_cohorts(whole, seed=0)["test"].fingerprint == named["test"].fingerprint
    assert named_cohorts(whole, seed=1)["test"].fingerprint != named["test"].fingerprint


def test_splits_without_test_rows_are_refused_with_what_there_is(world):
    renamed = Cohort.from_columns(
        {"image": world.image, "label": world.label, "split": np.where(world.splits == "test", "holdout", world.splits)},
        split="split", root=world.root,
    )  # fmt: skip
    with pytest.raises(
        DataError, match=r"no rows in split 'test' \(it has .*holdout.*\): call the rows .* 'test', or leave split="
    ):
        extract(small(), renamed, **QUICK)


def test_training_rows_are_those_that_the_model_says_it_was_fitted_on(world):
    model = small()
    train = world.on("train")
    assert extract(model, world, ["groups"], **QUICK).training is None
    model.training, model.used = train.fingerprint, frozenset(train.id[:30])
    found = extract(model, world, ["groups"], **QUICK)
    assert found.training.id.tolist() == train.id[:30].tolist()
    assert len(extract(model, world, ["groups"], training=train, **QUICK).training) == len(train)


def test_other_rows_or_another_model_in_the_folder_are_refused(world, tmp_path):
    extract(small(), {"test": world.on("test")}, ["logits"], out=tmp_path, **QUICK)
    with pytest.raises(EvidenceError, match="the ids, their order or the image contents differ"):
        extract(small(), {"test": world.on("audit")}, ["logits"], out=tmp_path, **QUICK)
    other = small(rng=np.random.default_rng(5))
    with pytest.raises(EvidenceError, match=rf"\(model {other.fingerprint}\): choose another folder"):
        extract(other, {"test": world.on("test")}, ["logits"], out=tmp_path, **QUICK)


# ---- the model stays as it was --------------------------------------------------------------------------------------------


def test_weights_hooks_flags_and_gradients_are_as_they_were(world):
    model = small()
    model.module.train()
    model.module.body[0].eval()
    model.module.fc.weight.requires_grad_(False)
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    before = {key: value.clone() for key, value in model.module.state_dict().items()}
    modes = [m.training for m in model.module.modules()]
    asks = [p.requires_grad for p in model.parameters()]
    threads = torch.get_num_threads()
    extract(model, world, ["groups", "probes", "spatial"], **QUICK)
    assert all(torch.equal(before[key], value) for key, value in model.module.state_dict().items())
    assert [m.training for m in model.module.modules()] == modes
    assert [p.requires_grad for p in model.parameters()] == asks
    assert all((p.grad == 1).all() for p in model.parameters())
    assert all(not m._forward_hooks and not m._forward_pre_hooks for m in model.module.modules())
    assert torch.get_num_threads() == threads and torch.is_grad_enabled()


# ---- what ends it early ---------------------------------------------------------------------------------------------------


class Fragile(nn.Module):
    """Gives NaN for very bright images."""

    def __init__(self):
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(3, 2)

    def forward(self, x):
        z = self.pool(x).flatten(1)
        return self.fc(torch.where(z > 0.95, torch.nan, z))


def pictures(folder, n=40, odd=None):
    """Small PNG files; one of them bright or broken."""
    from PIL import Image

    rng = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(n):
        pixels = rng.integers(0, 200, (8, 8, 3)).astype(np.uint8)
        Image.fromarray(np.full_like(pixels, 255) if odd == ("bright", i) else pixels).save(folder / f"{i:02d}.png")
        if odd == ("broken", i):
            data = (folder / f"{i:02d}.png").read_bytes()
            (folder / f"{i:02d}.png").write_bytes(data[: len(data) // 2])
    table = pd.DataFrame({"image": [f"{i:02d}.png" for i in range(n)], "label": np.arange(n) % 2})
    table.to_csv(folder / "table.csv", index=False)
    return Cohort.read(folder / "table.csv", name="mine")


def fragile():
    torch.manual_seed(0)
    return Classifier.wrap(Fragile(), head="fc", size=8)


def test_an_output_that_is_not_finite_names_the_image_and_keeps_earlier_chunks(tmp_path):
    cohort = pictures(tmp_path / "data", odd=("bright", 21))
    with pytest.raises(
        EvidenceError, match=r"'features' .* not finite for 1 images .* first for id '21\.png' \(21\.png\).*mean="
    ):
        extract(fragile(), {"test": cohort}, ["features", "logits"], out=tmp_path / "e", **{**QUICK, "chunk": 8})
    begun = Evidence.open(tmp_path / "e").begun("test", "features")
    assert missing_chunks(begun).tolist() == [2, 3, 4]
    assert np.isfinite(begun[:16]).all() and (begun[:16] != 0).all()


@pytest.mark.filterwarnings("ignore:Truncated File Read")
def test_a_broken_image_in_the_middle_is_one_sentence_and_keeps_finished_chunks(tmp_path, passes):
    cohort = pictures(tmp_path / "data", odd=("broken", 21))
    with pytest.raises(ImageError, match=r"21\.png") as error:
        extract(fragile(), {"test": cohort}, ["logits"], out=tmp_path / "e", **{**QUICK, "chunk": 8})
    assert "\n" not in str(error.value)
    assert missing_chunks(Evidence.open(tmp_path / "e").begun("test", "logits")).tolist() == [2, 3, 4]


def test_an_extraction_that_ended_early_goes_on_at_the_last_whole_chunk(world, tmp_path, monkeypatch, passes):
    rows = {"test": world.on("train")}
    extract(small(), rows, ["features", "logits"], out=tmp_path / "whole", **QUICK)
    total, left = len(passes), [5]
    passes.clear()
    plain = Classifier.read

    def fuse(self, x):
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return plain(self, x)

    monkeypatch.setattr(Classifier, "read", fuse)
    with pytest.raises(KeyboardInterrupt):
        extract(small(), rows, ["features", "logits"], out=tmp_path / "cut", **QUICK)
    monkeypatch.setattr(Classifier, "read", plain)
    passes.clear()
    extract(small(), rows, ["features", "logits"], out=tmp_path / "cut", **QUICK)
    assert len(passes) == total - 4  # two whole chunks of two batches were done
    assert content(tmp_path / "cut") == content(tmp_path / "whole")


def test_a_chunk_of_zeros_is_not_made_again_when_it_goes_on(world, tmp_path, passes):
    model = small()
    with torch.no_grad():
        model.module.fc.weight.zero_(), model.module.fc.bias.zero_()
    rows = {"test": world.on("train")}
    extract(model, rows, ["logits"], out=tmp_path, **QUICK)
    chunk = tmp_path / "test" / "logits" / "c" / "1" / "0"
    chunk.unlink()
    passes.clear()
    for _ in range(2):
        extract(model, rows, ["logits"], out=tmp_path, **QUICK)
        assert len(passes) == 2
    assert chunk.exists()


def test_only_what_is_missing_of_each_array_is_written(world, tmp_path, passes):
    rows = {"test": world.on("train")}
    extract(small(), rows, ["features", "logits"], out=tmp_path, **QUICK)
    before = content(tmp_path)
    for array, chunk in (("logits", "0"), ("features", "2")):
        (tmp_path / "test" / array / "c" / chunk / "0").unlink()
    passes.clear()
    extract(small(), rows, ["features", "logits"], out=tmp_path, **QUICK)
    assert sum(passes) == 32
    assert content(tmp_path) == before


@pytest.mark.parametrize("change", [{"batch": 4}, {"chunk": 8}])
def test_going_on_with_other_batches_or_chunks_is_refused_before_anything_runs(world, tmp_path, passes, change):
    rows = {"test": world.on("train")}
    extract(small(), rows, ["logits"], out=tmp_path, **QUICK)
    (tmp_path / "test" / "logits" / "c" / "1" / "0").unlink()
    passes.clear()
    with pytest.raises(EvidenceError, match=f"{next(iter(change))} = .* and is now asked for with"):
        extract(small(), rows, ["logits"], out=tmp_path, **{**QUICK, **change})
    assert not passes


def test_a_chunk_that_is_no_multiple_of_the_batch_is_refused(world):
    with pytest.raises(SettingError, match="12 rows of a chunk are not a whole number of such batches: give 6 or 12"):
        extract(small(), world, **{**QUICK, "chunk": 12})


@pytest.mark.parametrize("settings", [{"chunk": 32}, {"batch": 16}, {"workers": 3}])
def test_chunks_batches_of_equal_kernels_and_workers_do_not_change_a_bit(world, settings):
    rows = {"test": world.on("train")}
    one, other = (extract(small(), rows, ["logits"], **{**QUICK, **more})["logits"] for more in ({}, settings))
    assert one.tobytes() == other.tobytes() if "batch" not in settings else np.allclose(one, other, atol=1e-6)


def test_decoded_pixels_give_the_same_bits_as_images(world, tmp_path):
    rows = {"test": world.on("test")}
    plain, cached = (extract(small(), rows, ["logits"], cache=c, **QUICK)["logits"] for c in (None, tmp_path))
    assert plain.tobytes() == cached.tobytes()


def kill_job(data, target):
    """What the killed process does; it must be importable by its name."""
    cohort = planted.digits(data, n=400, pixels=16)
    extract(small(), {"test": cohort}, ["logits", "features"], out=target, **{**QUICK, "chunk": 8})


@pytest.mark.slow
def test_a_killed_extraction_goes_on_to_the_same_bytes(tmp_path):
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["pytest", "rightreasons.extraction", "rightreasons.models.small", "rightreasons.data.planted"]
    )

    def start(target):
        process = context.Process(target=kill_job, args=(tmp_path / "data", target))
        process.start()
        return process

    def finish(target):
        process = start(target)
        process.join(600)
        assert process.exitcode == 0

    def chunks_of(target):  # `os.walk` passes over what has been renamed since, where `Path.rglob` raises
        return sum(len(files) for place, _, files in os.walk(target) if "/c/" in place)

    finish(tmp_path / "whole")
    expected, killed, rng = content(tmp_path / "whole"), 0, np.random.default_rng(0)
    assert len(expected) == 100
    # Killed by what it has done, not by the clock, which says little on a busy machine.
    for number, chunks in enumerate(map(int, 20 * (np.arange(5) + rng.random(5)))):
        target = tmp_path / f"killed-{number}"
        process = start(target)
        while chunks_of(target) < chunks and process.is_alive():
            time.sleep(0.001)
        process.kill()
        process.join()
        killed += process.exitcode != 0
        finish(target)
        assert {k: v for k, v in content(target).items() if not k.endswith(".partial")} == expected
        assert Evidence.open(target).arrays("test") == ("features", "logits")
    assert killed >= 2


def test_labels_that_no_output_stands_for_are_refused_before_any_forward_pass(world, passes):
    model = small()
    model.classes = ("healthy", "sick")
    passes.clear()
    with pytest.raises(DataError, match="healthy"):
        extract(model, world, ["logits"], **QUICK)
    assert not passes


def test_maps_that_a_network_lacks_are_passed_over_for_an_audit_and_refused_by_name(world):
    vit = Classifier.load(
        "rightreasons.models.small:small_vit", num_classes=2, classes=world.classes, size=(16, 16), dim=16, depth=1
    )
    assert not vit.has_spatial
    evidence = extract(vit, world, [Need("test", "test", "spatial", optional=True), Need("test", "test", "logits")])
    assert evidence.arrays("test") == ("logits",)
    with pytest.raises(ModelError, match="no maps before a global average pool"):
        extract(vit, world, ["spatial"])
