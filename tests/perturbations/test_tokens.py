"""Tokens and regions left out, filled and disturbed, as evidence; what an object covers after the resize and the crop."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from PIL import Image  # noqa: E402

from rightreasons.attributions import token_influence  # noqa: E402
from rightreasons.audits import audit, needs_of  # noqa: E402
from rightreasons.data.cohort import Cohort  # noqa: E402
from rightreasons.errors import DataError, EvidenceError, ModelError, NotTrusted, SettingError  # noqa: E402
from rightreasons.evidence import Evidence  # noqa: E402
from rightreasons.extraction import extract, recipes  # noqa: E402
from rightreasons.models.batches import batches  # noqa: E402
from rightreasons.models.classifier import Classifier  # noqa: E402
from rightreasons.perturbations import find, seeds  # noqa: E402
from rightreasons.perturbations.tokens import field_of_view, united  # noqa: E402
from rightreasons.trust import trusting  # noqa: E402

pytestmark = pytest.mark.torch

QUICK = {"batch": 4, "chunk": 4, "threads": 1, "device": "cpu", "workers": 1}
BOXES = [[(0, 0, 8, 8)], [(8, 8, 16, 16)], [(0, 0, 4, 4), (12, 12, 16, 16)], [], [(1, 1, 7, 7)], [(0, 0, 16, 16)]]


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Six images of 16 pixels; the fourth has no object, the last is all object."""
    folder, rng = tmp_path_factory.mktemp("rows"), np.random.default_rng(0)
    columns = {"id": [f"r{i}" for i in range(6)], "image": [], "label": [0, 1, 0, 1, 0, 1], "mask": []}
    for i, boxes in enumerate(BOXES):
        Image.fromarray(rng.integers(0, 255, (16, 16, 3), np.uint8)).save(folder / f"{i}.png")
        mask = np.zeros((16, 16), np.uint8)
        for x0, y0, x1, y1 in boxes:
            mask[y0:y1, x0:x1] = 255
        Image.fromarray(mask).save(folder / f"m{i}.png")
        columns["image"].append(f"{i}.png")
        columns["mask"].append(f"m{i}.png" if boxes else "")
    columns["box"] = [";".join(" ".join(map(str, b)) for b in boxes) for boxes in BOXES]
    return Cohort.from_columns(columns, label="label", box="box", mask="mask", root=folder, name="test")


@pytest.fixture(scope="module")
def vit():
    made = Classifier.load(
        "rightreasons.models.small:small_vit", num_classes=2, size=(16, 16), dim=16, depth=2, heads=2, mean=0.5, std=0.5
    )
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in made.module.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return made


def whole(model, rows):
    return torch.cat([x for _, x in batches(rows, model.geometry, model.mean, model.std, batch=8)])


def on_tokens(model, x, kept):
    """(1, C) logits of one image through the tokens that are kept, by a hook where timm drops patches."""
    keep = [0, *(k + 1 for k in kept)]
    handle = model.module.patch_drop.register_forward_hook(lambda m, a, out: out[:, keep])
    with torch.no_grad():
        found = model.logits(x[None])
    handle.remove()
    return found[0].numpy()


# ---- objects -------------------------------------------------------------------------------------------------------------


def test_boxes_cover_shares_of_tokens_and_several_unite():
    boxes = np.array([[0, 0, 6, 4], [4, 0, 8, 4], [2, 2, 3, 3]], float)
    assert united(boxes, (4, 4), (2, 3)).tolist() == [[1, 1, 0], [0, 0, 0]]
    part = united(np.array([[3.5, 1.0, 4.25, 3.0]]), (4, 4), (2, 2))
    assert np.allclose(part, [[0.5 * 2 / 16, 0.25 * 2 / 16], [0, 0]])
    assert (united(np.array([[5.0, 5.0, 5.0, 9.0]]), (4, 4), (2, 2)) == 0).all()


def test_the_union_of_random_boxes_is_that_of_fine_pixels():
    rng = np.random.default_rng(1)
    for _ in range(20):
        corners = np.sort(rng.integers(0, 65, (5, 2, 2)), axis=1)
        boxes = np.stack([corners[:, 0, 0], corners[:, 0, 1], corners[:, 1, 0], corners[:, 1, 1]], 1) / 4.0
        fine = np.zeros((64, 64))
        for x0, y0, x1, y1 in (boxes * 4).astype(int):
            fine[y0:y1, x0:x1] = 1
        expected = fine.reshape(4, 16, 4, 16).mean((1, 3))
        assert np.allclose(united(boxes, (4, 4), (4, 4)), expected, atol=1e-6)


def test_tokens_under_boxes_and_masks_are_evidence(vit, rows):
    evidence = extract(vit, {"test": rows}, ["tokens@box", "tokens@mask"], **QUICK)
    box, mask = evidence["tokens@box"], evidence["tokens@mask"]
    assert box.shape == mask.shape == (6, 4, 4)
    assert box[0].tolist() == [[1, 1, 0, 0], [1, 1, 0, 0], [0] * 4, [0] * 4]
    assert (box[2] > 0).sum() == 2
    assert np.isnan(box[3]).all()
    assert np.isnan(mask[3]).all()
    others = [0, 1, 2, 4, 5]
    assert np.allclose(box[others], mask[others])
    assert box[4, 0, 0] == 9 / 16


def test_an_object_that_the_crop_removes_covers_nothing(rows):
    model = Classifier.load("rightreasons.models.small:small_vit", num_classes=2, size=(8, 8), crop=0.5, dim=16, depth=1, heads=2)
    evidence = extract(model, {"test": rows}, ["tokens@box"], **QUICK)
    assert (evidence["tokens@box"][2] == 0).all()
    assert (evidence["tokens@box"][5] == 1).all()


def test_a_network_without_tokens_needs_the_size_of_a_cell(rows):
    cnn = Classifier.load("rightreasons.models.small:small_cnn", num_classes=2, size=(16, 16), width=4)
    found = extract(cnn, {"test": rows}, ["tokens@box(patch=4)", "maps@token_influence(by=occlusion,patch=4)"], **QUICK)
    assert found["tokens@box(patch=4)"].shape == found["maps@token_influence(by=occlusion,patch=4)"].shape == (6, 4, 4)
    for name, sentence in (("tokens@box", "patch=16"), ("logits@drop", "by=occlusion"), ("maps@token_influence", "by=occlusion")):
        with pytest.raises(ModelError, match=sentence):
            extract(cnn, {"test": rows}, [name], **QUICK)


def test_missingness_is_checked_for_a_vit_and_for_a_cnn(vit, rows, monkeypatch):
    """The ViT leaves out the tokens whose patches are filled; a CNN can only fill."""
    monkeypatch.setattr("rightreasons.audits.tsi.arrays.MISSING", 5)
    cnn = Classifier.load("rightreasons.models.small:small_cnn", num_classes=2, size=(16, 16), width=4)
    for model, maps in ((vit, "token_influence"), (cnn, "token_influence(by=occlusion,patch=4)")):
        settings = {"maps": maps, "extras": ["missingness"]}
        needs = [n for n in needs_of(["tsi"], {"tsi": settings}) if n.role == "test" and n.cohort == "test"]
        found = audit("tsi", extract(model, {"test": rows}, needs, **QUICK), **settings)
        filled = ("filled (zero)", "filled (mean)", "filled (blur)")
        missing = found.test[0].extras.missingness
        assert missing.way == (("dropped", *filled) if model is vit else filled)
        assert np.ptp(missing.lost, axis=0).max() > 0


def test_a_table_without_boxes_is_refused_before_anything_runs(vit, rows):
    plain = Cohort.from_columns(
        {"id": rows.id, "image": rows.image, "label": rows.label}, label="label", root=rows.root, name="test"
    )
    with pytest.raises(DataError, match="reads a box of every image, and cohort 'test' has none"):
        extract(vit, {"test": plain}, ["logits@keep(by=box,region=inside)"], **QUICK)


def test_the_field_of_view_is_what_the_dark_surround_leaves():
    pixels = np.full((3, 12, 12), 0.02)
    pixels[:, 3:9, 4:10] = 0.5
    pixels[:, 5, 6] = 0.0  # a dark spot inside belongs to it
    inside = field_of_view(pixels)
    assert inside.sum() == 36
    assert inside[5, 6]
    assert field_of_view(np.full((3, 4, 4), 0.4)).all()
    assert field_of_view(np.zeros((3, 4, 4))).all()


# ---- tokens left out -----------------------------------------------------------------------------------------------------


def test_one_pass_gives_both_classes_and_what_is_ranked_by_them(vit, rows, monkeypatch):
    calls = []
    work = token_influence.work
    monkeypatch.setattr(token_influence, "work", lambda *a, **k: calls.append(1) or work(*a, **k))
    names = [f"maps@token_influence(explain={which})" for which in ("label", "predicted")]
    evidence = extract(vit, {"test": rows}, [*names, "logits@drop(explain=label,map=token_influence,top=3)", "logits"], **QUICK)
    assert len(calls) == 2
    x = whole(vit, rows)
    label, predicted = torch.tensor(rows.label), torch.from_numpy(evidence["logits"].argmax(1))
    for name, target in zip(names, (label, predicted)):
        assert np.allclose(evidence[name], token_influence.maps(vit, x, target=target), atol=1e-6)
    left = evidence["logits@drop(explain=label,map=token_influence,top=3)"]
    for i in range(6):
        order = np.argsort(-evidence[names[0]][i].ravel(), kind="stable")
        assert np.allclose(left[i], on_tokens(vit, x[i], sorted(order[3:])), atol=1e-5)


def test_what_is_read_is_made_first_once_and_tied_to_its_columns(vit, rows, tmp_path):
    evidence = extract(vit, {"test": rows}, ["logits@drop(map=token_influence,top=2)"], out=tmp_path, **QUICK)
    assert evidence.arrays("test") == ("logits@drop(map=token_influence,top=2)", "maps@token_influence(explain=label)")
    columns = {"id": rows.id, "image": rows.image, "label": 1 - rows.label}
    again = Evidence.open(tmp_path)
    again.add("test", Cohort.from_columns(columns, label="label", root=rows.root, name="test"))
    with pytest.raises(EvidenceError, match=r"read column label .* which has changed"):
        again["logits@drop(map=token_influence,top=2)"]


def test_a_killed_extraction_takes_what_was_ranked_from_the_store(vit, rows, tmp_path, monkeypatch):
    names = ["maps@token_influence(explain=label)", "logits@drop(map=token_influence,top=2)"]
    expected = extract(vit, {"test": rows}, names, **QUICK)
    extract(vit, {"test": rows}, names[:1], out=tmp_path, **QUICK)
    monkeypatch.setattr(token_influence, "work", lambda *a, **k: pytest.fail("made again"))
    evidence = extract(vit, {"test": rows}, names, out=tmp_path, **QUICK)
    assert np.array_equal(evidence[names[1]], expected[names[1]])


def test_a_batch_that_had_to_shrink_is_noted_with_the_array(vit, rows, tmp_path, monkeypatch):
    through = token_influence._through

    def scarce(seen, image, *rest):
        if len(image) > 20:
            raise torch.OutOfMemoryError("no memory left")
        return through(seen, image, *rest)

    monkeypatch.setattr(token_influence, "_through", scarce)
    name = "maps@token_influence(explain=label)"
    evidence = extract(vit, {"test": rows}, [name], out=tmp_path, **QUICK)
    assert evidence.begun("test", name).attrs["notes"] == {"0": {"together": 16}, "1": {"together": 16}}


def test_tokens_inside_and_outside_alone(vit, rows):
    names = [f"{q}@keep(by=box,region={r})" for q in ("logits", "features") for r in ("inside", "outside")]
    evidence = extract(vit, {"test": rows}, names, **QUICK)
    inside, outside = (evidence[name] for name in names[:2])
    x = whole(vit, rows)
    corner = [0, 1, 4, 5]
    assert np.allclose(inside[0], on_tokens(vit, x[0], corner), atol=1e-5)
    assert np.allclose(outside[0], on_tokens(vit, x[0], [k for k in range(16) if k not in corner]), atol=1e-5)
    assert np.allclose(inside[5], vit.logits(x[5:6]).detach()[0], atol=1e-5)
    assert np.isnan(inside).all(1).tolist() == [False, False, False, True, False, False]
    assert np.isnan(outside).all(1).tolist() == [False, False, False, True, False, True]
    assert np.allclose(evidence.head(evidence[names[2]][:3]), inside[:3], atol=1e-5)


def test_random_tokens_are_the_same_whatever_the_batch_and_the_model(vit, rows):
    name, filled = "logits@drop(draw=1,map=random,top=5)", "logits@fill(draw=1,fill=black,map=random,top=5)"
    once = extract(vit, {"test": rows}, [name, filled], **QUICK)
    other = extract(vit, {"test": rows}, [name, filled], **{**QUICK, "batch": 2})
    assert np.allclose(once[name], other[name], atol=1e-5)
    x, gone = whole(vit, rows), torch.randperm(16, generator=torch.Generator().manual_seed(_seed("r2", 1)))[:5]
    assert np.allclose(once[name][2], on_tokens(vit, x[2], [k for k in range(16) if k not in gone]), atol=1e-5)
    covered = x[2].clone()
    for k in gone.tolist():
        covered[:, k // 4 * 4 : k // 4 * 4 + 4, k % 4 * 4 : k % 4 * 4 + 4] = -1.0
    assert np.allclose(once[filled][2], vit.logits(covered[None]).detach()[0], atol=1e-5)
    again = extract(vit, {"test": rows}, ["logits@drop(draw=2,map=random,top=5)"], **QUICK)
    assert not np.allclose(once[name], again["logits@drop(draw=2,map=random,top=5)"])


def _seed(name, draw):
    return int(seeds([name], "random tokens", draw)[0]) & (2**63 - 1)


def test_noise_falls_on_one_side_of_the_object(vit, rows):
    names = [f"logits@noise(by={by},draw=0,region={r},sd=0.25)" for by in ("box", "mask") for r in ("inside", "outside")]
    evidence = extract(vit, {"test": rows}, names, **QUICK)
    for box, mask in zip(names[:2], names[2:]):
        assert np.allclose(evidence[box], evidence[mask], atol=1e-6, equal_nan=True)
    assert np.isnan(evidence[names[0]]).all(1).tolist() == [False, False, False, True, False, False]
    assert np.isnan(evidence[names[1]]).all(1).tolist() == [False, False, False, True, False, True]
    x = whole(vit, rows)
    field = torch.randn(3, 16, 16, generator=torch.Generator().manual_seed(int(seeds(["r0"], "noise", 0)[0]) & (2**63 - 1)))
    pixels = x[0] / 2 + 0.5
    pixels[:, :8, :8] = (pixels[:, :8, :8] + 0.25 * field[:, :8, :8]).clamp(0, 1)
    assert np.allclose(evidence[names[0]][0], vit.logits((pixels[None] - 0.5) / 0.5).detach()[0], atol=1e-5)


def test_a_screen_reads_the_object(vit, rows):
    name = "screened@token_influence(explain=label,keep=2,region=box)"
    evidence = extract(vit, {"test": rows}, [name, "maps@token_influence(explain=label)"], **QUICK)
    run = ~np.isnan(evidence[name])
    assert np.allclose(evidence[name][run], evidence["maps@token_influence(explain=label)"][run], atol=1e-5)
    assert run.sum((1, 2)).tolist() == [4, 4, 4, 2, 4, 2]


# ---- names ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("logits@dorp", "no perturbation named 'dorp'; did you mean 'drop'"),
        ("logits@drop(tp=3)", "has no setting 'tp'; did you mean 'top'"),
        ("logits@drop(map=gradcamm)", "no attributions named 'gradcamm'"),
        ("logits@drop(top=0)", "1 or more"),
        ("logits@keep(region=beside)", "region=beside"),
        ("logits@noise(sd=0)", "above 0"),
        ("tokens@spots", "tokens=spots"),
        ("screened@gradcam", "has no screen"),
    ],
)
def test_a_recipe_that_cannot_be_made_is_refused(name, sentence):
    with pytest.raises(SettingError, match=sentence):
        recipes.make(name)


def test_more_tokens_than_there_are_cannot_be_dropped(vit, rows):
    with pytest.raises(SettingError, match="top=16 of 16 tokens"):
        extract(vit, {"test": rows}, ["logits@drop(map=random,top=16)"], **QUICK)


def test_a_change_that_is_fitted_to_whole_arrays_comes_when_they_are_whole(vit, rows, tmp_path, monkeypatch):
    (tmp_path / "my_fits.py").write_text(
        "import torch\n"
        "from rightreasons.perturbations import Perturbation\n"
        "def shifted(*, by=1.0) -> Perturbation:\n"
        "    def fit(evidence):\n"
        "        mean = torch.from_numpy(evidence.on('audit')['features'].mean(0))\n"
        "        def change(batch):\n"
        "            z = batch.read[0] + by * mean\n"
        "            return batch.with_network(lambda x: (z, batch.classifier.head(z)))\n"
        "        return change\n"
        "    return Perturbation(arrays=('audit/features',), fit=fit)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    name = "logits@my_fits.shifted(by=2.0)"
    cohorts = {"test": rows.select(np.arange(3)), "audit": rows.select(np.arange(3, 6))}
    with trusting("my_fits"):
        evidence = extract(vit, cohorts, ["features", name], **QUICK)
    mean = evidence.on("audit")["features"].mean(0)
    assert np.allclose(evidence[name], evidence.head(evidence["features"] + 2 * mean), atol=1e-5)
    with pytest.raises(DataError, match=r"reads 'features' of cohort 'audit', and there are test"), trusting("my_fits"):
        extract(vit, {"test": cohorts["test"]}, [name], **QUICK)


def test_an_operator_on_pixels_is_used_by_its_name(vit, rows, tmp_path, monkeypatch):
    (tmp_path / "my_operators.py").write_text(
        "import torch\n"
        "def brighter(pixels, seeds, *, severity=0.5):\n"
        "    by = torch.tensor([(int(s) % 7) / 7 for s in seeds]).view(-1, 1, 1, 1)\n"
        "    return pixels + severity * by\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    names = [f"{q}@my_operators.brighter(draw=1,severity=0.25)" for q in ("logits", "features")]
    with pytest.raises(NotTrusted, match="--trust my_operators"):
        extract(vit, {"test": rows}, names, **QUICK)
    with trusting("my_operators"):
        evidence = extract(vit, {"test": rows}, names, **QUICK)
    x = whole(vit, rows)
    by = torch.tensor([(int(s) % 7) / 7 for s in seeds(rows.id, "brighter", 1)]).view(-1, 1, 1, 1)
    changed = ((x / 2 + 0.5 + 0.25 * by).clamp(0, 1) - 0.5) / 0.5
    assert np.allclose(evidence[names[0]], vit.logits(changed).detach(), atol=1e-5)
    assert np.allclose(evidence.head(evidence[names[1]]), evidence[names[0]], atol=1e-5)
    with pytest.raises(SettingError, match="cannot be used"), trusting("my_operators"):
        find("my_operators.darker")
