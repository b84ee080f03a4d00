"""ART inside the network: the shift is that of a literal twin, nothing at strength 0, and the audit's own at the last layer."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from rightreasons.audits import Need, art, audit, needs_of  # noqa: E402
from rightreasons.audits.art import layers as art_layers  # noqa: E402
from rightreasons.audits.art.pictures import gradcam  # noqa: E402
from rightreasons.audits.art.procedure import Procedure  # noqa: E402
from rightreasons.audits.art.rows import complete  # noqa: E402
from rightreasons.data.cohort import Cohort  # noqa: E402
from rightreasons.errors import ModelError, SettingError  # noqa: E402
from rightreasons.extraction import extract  # noqa: E402
from rightreasons.findings import Bars, Table  # noqa: E402
from rightreasons.measurements import load_measurement, save_measurement  # noqa: E402
from rightreasons.models.batches import batches  # noqa: E402
from rightreasons.models.classifier import Classifier  # noqa: E402
from rightreasons.stats import restoration  # noqa: E402
from rightreasons.stats.resampling import task_rng  # noqa: E402

pytestmark = pytest.mark.torch

QUICK = {"batch": 40, "chunk": 120, "threads": 1, "device": "cpu", "workers": 1}
N, FEW = 240, {"controls": 20, "B": 40, "layer_controls": 19, "n_min": 5}
LAYERS = {"cnn": ("body.0", "body.3"), "vit": ("blocks.0", "blocks.1")}
LAST = {"cnn": "body", "vit": "blocks.1"}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Grey images whose brightness is the cue, half audit and half test; the label is the contrast."""
    folder, rng = tmp_path_factory.mktemp("rows"), np.random.default_rng(0)
    y, a = rng.integers(0, 2, N), rng.integers(0, 2, N)
    noise = rng.normal(size=(N, 16, 16, 3))
    pixels = 0.5 + 0.15 * (2 * a - 1)[:, None, None, None] + np.where(y, 0.16, 0.05)[:, None, None, None] * noise
    np.save(folder / "images.npy", (255 * np.clip(pixels, 0, 1)).astype(np.uint8))
    columns = {
        "id": [f"r{i}" for i in range(N)],
        "image": [f"images.npy#{i}" for i in range(N)],
        "label": y,
        "cue": np.array(["dark", "light"])[a],
        "site": np.array(["one", "two"])[rng.integers(0, 2, N)],
        "split": np.where(np.arange(N) % 2, "audit", "test"),
    }
    return Cohort.from_columns(columns, attribute=["cue", "site"], split="split", root=folder)


@pytest.fixture(scope="module")
def models():
    return {"cnn": network("small_cnn", width=4), "vit": network("small_vit", dim=16, depth=2, heads=2)}


def network(name, **settings):
    made = Classifier.load(f"rightreasons.models.small:{name}", num_classes=2, size=(16, 16), mean=0.5, std=0.5, **settings)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in made.module.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return made


def restored(after, **settings):
    inner = ",".join(f"{k}={v}" for k, v in {"after": after, "n_min": 5, **settings}.items())
    return f"logits@restored({inner})"


@pytest.mark.parametrize("which", ["cnn", "vit"])
def test_strength_zero_is_the_network_itself_and_a_closed_gate_changes_nothing(which, world, models):
    after = LAYERS[which][0]
    asked = [restored(after, beta=0), restored(after, tau=1e6), restored(after), "logits"]
    rows = extract(models[which], world, asked, **QUICK).on("test")
    assert np.array_equal(rows[asked[0]], rows["logits"])
    assert np.array_equal(rows[asked[1]], rows["logits"])
    assert not np.allclose(rows[asked[2]], rows["logits"])


@pytest.mark.parametrize("which", ["cnn", "vit"])
def test_the_shift_is_that_of_a_literal_twin_at_every_position(which, world, models):
    model, after = models[which], LAYERS[which][1]
    name = restored(after, beta=1.5)
    evidence = extract(model, world, [name, art_layers.means_array(after)], **QUICK)
    audit_rows = complete(evidence.on("audit"), "cue", art_layers.means_array(after)).rows
    to_find, to_gate = restoration.halves(audit_rows.y, audit_rows.a, rng=task_rng(0, "halves of art's layers"))
    found = restoration.find(*(v[to_find] for v in (audit_rows.z, audit_rows.y, audit_rows.a)))
    found = restoration.gate(found, *(v[to_gate] for v in (audit_rows.z, audit_rows.y, audit_rows.a)), n_min=5)
    assert found.is_open
    test = evidence.on("test")
    label = test.label
    x = torch.cat([b for _, b in batches(test.cohort, model.geometry, model.mean, model.std, batch=40)])

    def move(_module, _given, made):
        made = made.clone()
        for i in range(len(made)):
            flat = made[i].mean((1, 2)) if made.ndim == 4 else made[i].mean(0)
            h = flat.double().numpy()
            basis = found.basis(label[i])
            delta = 1.5 * sum((u @ (h - found.mean[found.labels.index(label[i])])) * u for u in basis)
            delta = torch.from_numpy(np.broadcast_to(delta, h.shape).astype(np.float32))
            made[i] += delta[:, None, None] if made.ndim == 4 else delta[None]
        return made

    handle = model.module.get_submodule(after).register_forward_hook(move)
    with torch.no_grad():
        expected = model.logits(x).numpy()
    handle.remove()
    assert np.allclose(test[name], expected, atol=1e-5)
    assert not model.module.get_submodule(after)._forward_hooks


def test_before_a_pool_and_a_linear_head_it_is_the_audit_on_features(world, models):
    evidence = extract(models["cnn"], world, ["features", "logits", restored("body"), "features@layer(after=body)"], **QUICK)
    test = evidence.on("test")
    assert np.allclose(test["features@layer(after=body)"], test["features"], atol=1e-6)
    directions = art_layers.directions_at(evidence, "body", Procedure(n_min=5), "cue")
    assert directions.is_open
    expected = evidence.head(restoration.restore(test["features"].astype(np.float64), test.label, directions, 2.0))
    assert np.allclose(test[restored("body")], expected, atol=1e-4)


def test_shuffles_are_others_and_the_same_again(world, models):
    names = [restored("body.3", tau=0, draw=k) for k in (0, 1, 2)]
    first = extract(models["cnn"], world, names, **QUICK).on("test")
    assert not np.allclose(first[names[0]], first[names[1]]) and not np.allclose(first[names[1]], first[names[2]])
    again = extract(models["cnn"], world, names[1:2], **{**QUICK, "batch": 120}).on("test")
    assert np.allclose(first[names[1]], again[names[1]], atol=1e-6)


def test_routing_by_the_decision_reads_no_label(world, models):
    label = np.array([-1 if i % 7 == 0 else v for i, v in enumerate(world.label)])
    columns = {c: world.column(c) for c in ("id", "image", "cue", "split")}
    missing = Cohort.from_columns(
        {**columns, "label": ["" if v < 0 else v for v in label]}, attribute="cue", split="split", root=world.root
    )
    name = restored("body.3", routing="predicted")
    assert np.isfinite(extract(models["cnn"], missing, [name], **QUICK).on("test")[name]).all()


@pytest.mark.parametrize("which", ["cnn", "vit"])
def test_the_audit_says_where_in_the_network_the_association_can_be_restored(which, world, models, tmp_path):
    layers = [*LAYERS[which], LAST[which]] if which == "cnn" else list(LAYERS[which])
    settings = {**FEW, "layers": layers, "attribute": "cue", "aligned": {"dark": 0, "light": 1}}
    needs = needs_of(["art"], {"art": settings})
    assert sum(need.array.startswith("logits@restored") and need.role == "test" for need in needs) == 20 * len(layers)
    asked = [need for need in needs if need.role == "test"]
    evidence = extract(models[which], world, asked, **QUICK)
    result = audit("art", evidence, **settings)
    m = result.measurements[0]
    assert m.layers.name == tuple(layers) and m.layers.shuffled.csr.shape == (len(layers), 19) and not m.layers.lacking
    assert (m.layers.open > 0).all() and (m.layers.p >= 1 / 20).all() and all(i.value > 0.9 for i in m.layers.probe)
    plain = evidence.on("test")["logits"].argmax(1)
    moved = evidence.on("test")[art_layers.restored_array(layers[0], Procedure(n_min=5), 2.0, 0, "cue")].argmax(1)
    y, a = evidence.on("test").label, world.on("test").attribute("cue").values
    gain = (moved == a)[y != a].mean() - (plain == a)[y != a].mean()
    assert m.layers.change[0].csr.value == pytest.approx(gain, abs=1e-12)
    exhibits = {e.title: e for e in result.finding().exhibits}
    table, bars = exhibits["ART by layer"], exhibits["Where in the network the association can be restored"]
    assert isinstance(table, Table) and [row[0] for row in table.rows] == [*layers, "features"]
    assert isinstance(bars, Bars) and bars.labels == (*layers, "features")
    again = load_measurement(art.Measurement, save_measurement(m, tmp_path / "m.npz"))
    assert again.layers.change == m.layers.change and again.layers.name == m.layers.name


def test_a_layer_that_the_network_lacks_is_named_and_the_rest_is_measured(world, models):
    settings = {**FEW, "layers": ["body.3", "blocks.7"], "attribute": "cue"}
    asked = [need for need in needs_of(["art"], {"art": settings}) if need.role == "test"]
    result = audit("art", extract(models["cnn"], world, asked, **QUICK), **settings)
    assert result.measurements[0].layers.name == ("body.3",) and result.measurements[0].layers.lacking == ("blocks.7",)
    (check,) = (c for c in result.finding().checks if "layer" in c.name)
    assert check.passed is False and "blocks.7" in check.note
    with pytest.raises(ModelError, match="did you mean"):
        extract(models["cnn"], world, [restored("blocks.7")], **QUICK)


def test_the_first_attribute_is_found_under_either_name(world, models):
    unnamed = {**FEW, "layers": ["body.3"]}
    asked = [need for need in needs_of(["art"], {"art": unnamed}) if need.role == "test"]
    evidence = extract(models["cnn"], world, asked, **QUICK)
    assert audit("art", evidence, **unnamed, attribute="cue").measurements[0].layers.name == ("body.3",)
    assert audit("art", evidence, **unnamed, attribute="site").measurements[0].layers.lacking == ("body.3",)


def test_too_few_shuffles_are_refused(world, models):
    evidence = extract(
        models["cnn"], world, [Need("test", c, v) for c in ("audit", "test") for v in ("features", "logits")], **QUICK
    )
    with pytest.raises(SettingError, match="layer_controls=3"):
        audit("art", evidence, layers=["body.3"], layer_controls=3)


def test_gradcam_before_and_after_explains_what_is_decided_then(world, models):
    rows = [Need("test", c, v) for c in ("audit", "test") for v in ("features", "logits")]
    evidence = extract(models["cnn"], world, [*rows, "spatial", "maps@gradcam"], **QUICK)
    test = evidence.on("test")
    found = gradcam(test["spatial"].astype(np.float64), evidence.head, test["logits"].argmax(1))
    found /= np.prod(found.shape[1:])  # the gradient of an average
    assert np.allclose(found, np.maximum(test["maps@gradcam"], 0), atol=1e-5)
    few = {k: v for k, v in FEW.items() if k != "layer_controls"}
    result = audit("art", evidence, **few, attribute="cue", aligned={"dark": 0, "light": 1}, pictures=4)
    m = result.measurements[0]
    images = m.pictures.images
    assert images.shape[:2] == (4, 2) and images.dtype == np.uint8 and len(m.pictures.captions) == 4
    assert any(e.title == "Grad-CAM before and after" for e in result.finding().exhibits)
    without = extract(models["vit"], world, rows, **QUICK)
    said = audit("art", without, **few, attribute="cue", pictures=4).measurements[0].pictures.missing
    assert "no feature maps" in said


def test_twins_are_restored_inside_the_network_too(world, models):
    columns = {c: world.column(c) for c in ("id", "image", "label", "cue", "split")}
    twin = np.where(columns["cue"] == "dark", "light", "dark")
    paired = Cohort.from_columns(
        {**columns, "twin": columns["image"][::-1], "twin_cue": twin},
        attribute="cue",
        split="split",
        twin="twin",
        twin_attribute="twin_cue",
        root=world.root,
    )
    settings = {**FEW, "layers": ["body.3"], "attribute": "cue", "aligned": {"light": 1}, "twins": True, "pictures": 2}
    asked = [need for need in needs_of(["art"], {"art": settings}) if need.role == "test"]
    evidence = extract(models["cnn"], paired, asked, **QUICK)
    m = audit("art", evidence, **settings).measurements[0]
    assert m.counts.n == 2 * len(evidence.on("test")) and m.layers.name == ("body.3",) and len(m.pictures.images) == 2
    name = art_layers.restored_array("body.3", Procedure(n_min=5), 2.0, 0, "cue")
    views = [evidence.on("test"), evidence.on("twin")]
    a = np.concatenate([view.cohort.attribute("cue").values for view in views])
    y = np.concatenate([view.label for view in views])
    conflict = (a == 1) & (y != 1)
    after, before = (np.concatenate([view[array] for view in views]).argmax(1)[conflict] for array in (name, "logits"))
    assert m.layers.change[0].csr.value == pytest.approx((after == 1).mean() - (before == 1).mean(), abs=1e-12)
