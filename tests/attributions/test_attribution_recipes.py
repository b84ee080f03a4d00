"""Maps as evidence: made by their recipe's name, of the predicted or the right class, tied to the label where they read it."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from rightreasons.attributions import gradcam, integrated_gradients  # noqa: E402
from rightreasons.data import planted  # noqa: E402
from rightreasons.data.cohort import Cohort  # noqa: E402
from rightreasons.errors import DataError, EvidenceError, SettingError  # noqa: E402
from rightreasons.evidence import Evidence  # noqa: E402
from rightreasons.extraction import extract, recipes  # noqa: E402
from rightreasons.models.batches import batches  # noqa: E402
from rightreasons.models.classifier import Classifier  # noqa: E402

pytestmark = pytest.mark.torch

QUICK = {"batch": 8, "chunk": 16, "threads": 1, "device": "cpu", "workers": 1}


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    return planted.digits(tmp_path_factory.mktemp("world"), n=120, pixels=16).on("test")


@pytest.fixture(scope="module")
def model():
    return Classifier.load("rightreasons.models.small:small_cnn", num_classes=2, size=(16, 16), width=4, mean=0.5, std=0.5)


def whole(model, rows):
    return torch.cat([x for _, x in batches(rows, model.geometry, model.mean, model.std, batch=8)])


def test_maps_explain_the_predicted_class_or_the_right_one(model, rows, tmp_path):
    names = ["maps@gradcam(layer=body.2)", "maps@gradcam(explain=label)", "logits"]
    evidence = extract(model, {"test": rows}, names, out=tmp_path, **QUICK)
    x, predicted, label = (
        whole(model, rows),
        torch.from_numpy(evidence["logits"].argmax(1)),
        torch.tensor(evidence.on("test").label),
    )
    assert (predicted != label).any()
    inner = gradcam.maps(model, x, target=predicted, layer="body.2")
    right = gradcam.maps(model, x, target=label)
    assert inner.shape == right.shape == (len(rows), 4, 4)
    assert np.allclose(evidence["maps@gradcam(layer=body.2)"], inner, atol=1e-6)
    assert np.allclose(evidence["maps@gradcam(explain=label)"], right, atol=1e-6)


def test_a_map_and_its_conservation_are_one_computation(model, rows, monkeypatch):
    calls = []
    both = integrated_gradients.maps_and_conservation
    monkeypatch.setattr(integrated_gradients, "maps_and_conservation", lambda *a, **k: calls.append(1) or both(*a, **k))
    names = [f"{quantity}@integrated_gradients(steps=8)" for quantity in ("maps", "conservation")]
    evidence = extract(model, {"test": rows}, names, **QUICK)
    assert len(calls) == -(-len(rows) // 8)
    maps, sums = (evidence[name] for name in names)
    assert sums.shape == (len(rows), 3)
    assert np.allclose(maps.sum((1, 2)), sums[:, 0], atol=1e-5)
    assert np.abs(sums[:, 0] + sums[:, 1] - sums[:, 2]).max() < 0.05 * np.abs(sums[:, 2]).max()


def test_maps_of_the_right_class_are_tied_to_the_labels(model, rows, tmp_path):
    names = ["maps@gradcam", "maps@gradcam(explain=label)"]
    extract(model, {"test": rows}, names, out=tmp_path, **QUICK)
    evidence = Evidence.open(tmp_path)
    columns = {"id": rows.id, "image": rows.image, "label": 1 - rows.label}
    evidence.add("test", Cohort.from_columns(columns, label="label", root=rows.root, name="test"))
    assert evidence["maps@gradcam"].any()
    with pytest.raises(EvidenceError, match=r"'maps@gradcam\(explain=label\)' .* read column label .*, which has changed"):
        evidence["maps@gradcam(explain=label)"]


def test_a_model_of_an_attribute_explains_that_attribute(model, rows, tmp_path):
    attribute = model.copy()
    attribute.card["target"] = "cue"
    evidence = extract(attribute, {"test": rows}, ["maps@gradcam(explain=label)"], out=tmp_path, **QUICK)
    right = torch.tensor(rows.attribute("cue").values)
    expected = gradcam.maps(model, whole(model, rows), target=right)
    assert np.allclose(evidence["maps@gradcam(explain=label)"], expected, atol=1e-6)


def test_rows_without_a_label_have_no_right_class(model, rows):
    label = rows.label.astype(object)
    label[3] = None
    columns = {"id": rows.id, "image": rows.image, "label": label}
    part = Cohort.from_columns(columns, label="label", root=rows.root, name="test")
    assert extract(model, {"test": part}, ["maps@gradcam"], **QUICK)["maps@gradcam"].any()
    with pytest.raises(DataError, match=rf"explain the label, and 1 rows of cohort 'test' have none, first id '{rows.id[3]}'"):
        extract(model, {"test": part}, ["maps@gradcam(explain=label)"], **QUICK)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("maps@gradcamm", "no attributions named 'gradcamm'; did you mean 'gradcam'"),
        ("maps@gradcam(layr=x)", "attribution 'gradcam' has no setting 'layr'; did you mean 'layer'"),
        ("maps@gradcam(explain=both)", "give one of predicted, label"),
        ("conservation@gradcam", "the maps of gradcam add up to nothing in particular"),
    ],
)
def test_a_recipe_that_cannot_be_made_is_refused_before_anything_runs(name, sentence):
    with pytest.raises(SettingError, match=sentence):
        recipes.make(name)
