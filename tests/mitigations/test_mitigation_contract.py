"""Every mitigation keeps the contract, and the contract notices what it is for."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from rightreasons import families, testing  # noqa: E402
from rightreasons.data.cohort import Cohort  # noqa: E402
from rightreasons.errors import DataError, ModelError, SettingError  # noqa: E402
from rightreasons.extraction import read  # noqa: E402
from rightreasons.mitigations import _check, mitigate  # noqa: E402
from rightreasons.models.classifier import Classifier  # noqa: E402
from rightreasons.models.grouped_rows import audit_half, every_group, grouped, selection  # noqa: E402
from rightreasons.models.starting import fresh  # noqa: E402
from rightreasons.models.training import train  # noqa: E402
from rightreasons.models.training_keywords import Training, trains  # noqa: E402

pytestmark = pytest.mark.torch

# Settings that make a slow method quick enough for a test; the contract sets epochs, patience, batch and threads itself.
QUICK: dict[str, dict[str, object]] = {
    "attenuation": {"random_maps": 2, "B": 50},
    "art_head": {"n_min": 4, "tau": 0.0},
}


@pytest.mark.parametrize("name", families.members("mitigations"))
def test_a_mitigation_keeps_the_contract(name: str) -> None:
    changed = testing.check_mitigation(name, **QUICK.get(name, {}))
    assert "cnn, 2 classes" in changed


OWN = """
import numpy as np
import torch
from rightreasons.mitigations import card_settings, handed_on
from rightreasons.models.grouped_rows import grouped

STARTS = "model"

def mitigate(classifier, cohort, *, rng, attribute=None, scale=0.9, folder=None, device=None, threads=None):
    settings = card_settings(attribute=attribute, scale=scale)
    rows = grouped(classifier, cohort.on("train"), attribute)
    new = classifier.copy()
    with torch.no_grad():
        for parameter in new.module.parameters():
            parameter.mul_(scale)
            parameter.add_(torch.from_numpy(np.asarray(rng.normal(0, 1e-3, parameter.shape), dtype=np.float32)))
    return handed_on(new, classifier, "plain", settings, selected="not selected", fitted=rows.cohort.id)
"""
FAULTS = {
    "leaves weights or buffers": (
        "new = classifier.copy()",
        "next(classifier.module.parameters()).data.add_(1); new = classifier.copy()",
    ),
    "leaves gradients": ("new = classifier.copy()", "classifier.module.zero_grad(); new = classifier.copy()"),
    "leaves the mode": ("new = classifier.copy()", "classifier.module.eval(); new = classifier.copy()"),
    "leaves the card": ("new = classifier.copy()", "classifier.card['regime'] = 'x'; new = classifier.copy()"),
    "global generator": ("new = classifier.copy()", "torch.rand(1); new = classifier.copy()"),
    "other weights for the same seed": ("rng.normal(", "np.random.default_rng().normal("),
    "fitted or tuned on test rows": ("fitted=rows.cohort.id", "fitted=cohort.on('test').id"),
    "regime is": ('"plain"', '"other"'),
    "selected by": ('selected="not selected"', 'selected=""'),
    "continuous attribute": (
        'rows = grouped(classifier, cohort.on("train"), attribute)',
        'rows = grouped(classifier, cohort.on("train"))',
    ),
    "settings are": ("card_settings(attribute=attribute, scale=scale)", "{}"),
}


@pytest.fixture
def own(own_module):
    return own_module("my_fixes", "plain", OWN)


def test_a_mitigation_of_ones_own_is_checked_by_its_dotted_name(own) -> None:
    assert set(testing.check_mitigation("my_fixes.plain")) == {f"{w}, {c} classes" for w in ("cnn", "vit") for c in (2, 3)}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_contract_notices(own, fault: str) -> None:
    good, bad = FAULTS[fault]
    assert good in OWN
    own.write_text(OWN.replace(good, bad))
    with pytest.raises(AssertionError, match=fault):
        testing.check_mitigation("my_fixes.plain")


# ---- the shared pieces ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cohort(tmp_path_factory):
    return _check.world(tmp_path_factory.mktemp("world"), 2)


def _fresh(seed: int = 0) -> Classifier:
    return Classifier.load(
        "rightreasons.models.small:small_cnn", num_classes=2, size=(16, 16), width=4, rng=np.random.default_rng(seed)
    )


def test_a_model_that_was_never_trained_starts_from_its_own_weights() -> None:
    given = _fresh()
    assert fresh(given, np.random.default_rng(1)).fingerprint == given.fingerprint


def test_a_trained_model_starts_from_random_weights_of_the_rng(cohort) -> None:
    trained = _check._trained("cnn", cohort)
    one, same, other = (fresh(trained, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert one.fingerprint == same.fingerprint != other.fingerprint
    assert one.fingerprint != trained.fingerprint
    assert not one.used
    assert one.training is None
    assert one.card["start"] == "fresh"
    assert one.card["regime"] is None


def test_named_starting_weights_are_taken_from_a_folder_a_file_or_the_model(cohort, tmp_path) -> None:
    trained, pretrained = _check._trained("cnn", cohort), _check._trained("cnn", cohort)
    with torch.no_grad():
        pretrained.module.fc.bias.add_(1)
    pretrained.save(tmp_path)
    rng = np.random.default_rng(0)
    for start in (str(tmp_path), str(tmp_path / "model.safetensors")):
        assert torch.equal(fresh(trained, rng, start).module.fc.bias, pretrained.module.fc.bias)
    assert fresh(trained, rng, "given").fingerprint == trained.fingerprint
    for start in (str(tmp_path), "given"):  # what the weights have seen stays known
        assert fresh(trained, rng, start).used == trained.used
    assert fresh(trained, rng, "given").card["start"] is None


def test_a_fingerprint_of_starting_weights_does_not_give_them_back(cohort) -> None:
    trained = _check._trained("cnn", cohort)
    trained.card["start"] = "0123456789abcdef"
    with pytest.raises(ModelError, match="start="):
        fresh(trained, np.random.default_rng(0))


def test_groups_are_numbered_by_the_models_outputs_and_not_by_the_cohorts_classes(cohort) -> None:
    turned = _fresh()
    turned.classes = (1, 0)
    rows = grouped(turned, cohort.on("val"), "cue")
    assert (rows.y == 1 - rows.cohort.label).all()
    assert rows.name(1) == "label=1, cue=1"
    assert (rows.group == rows.y * 2 + rows.a).all()


def test_attributes_that_make_no_groups_are_refused_by_name(cohort) -> None:
    with pytest.raises(DataError, match=r"age.*continuous"):
        grouped(_fresh(), cohort, "age")
    with pytest.raises(SettingError, match="did you mean 'cue'"):
        grouped(_fresh(), cohort, "cu")
    lacking = cohort.select((cohort.label == 0) | (cohort.attribute("cue").values == 1))
    with pytest.raises(DataError, match=r"label=1, cue=0: 0"):
        every_group(grouped(_fresh(), lacking, "cue"))


def test_selection_is_by_the_worst_group_where_groups_are_known(cohort) -> None:
    assert selection(_fresh(), cohort, "cue") == "wga"
    few = cohort.select((cohort.splits != "val") | (np.arange(len(cohort)) % 12 == 0))
    assert selection(_fresh(), few, "cue") == "wga"  # small groups count too
    unknown = Cohort.from_columns(
        {"id": cohort.id, "image": cohort.image, "label": cohort.label, "split": cohort.splits},
        image="image", split="split", root=cohort.root,
    )  # fmt: skip
    assert selection(_fresh(), unknown) == "accuracy"


def test_the_half_of_the_audit_rows_is_stratified_and_seeded(cohort) -> None:
    one, same = (audit_half(cohort, np.random.default_rng(4), "cue") for _ in range(2))
    assert list(one.id) == list(same.id)
    assert (one.counts("cue").to_numpy() == _check.PER_GROUP["audit"] // 2).all()


def test_what_a_model_says_has_the_rows_of_the_cohort(cohort) -> None:
    model = _fresh()
    model.used = frozenset(cohort.id)  # what it was fitted on is left out of audits, never here
    audit = cohort.on("audit")
    found = read(model, audit, ("logits", "features"), batch=20, device="cpu", workers=1)
    assert found["logits"].shape == (len(audit), 2)
    np.testing.assert_allclose(model.head_data(found["features"]), found["logits"], atol=1e-4)


def test_unknown_methods_settings_and_roles_are_refused_with_the_nearest(cohort) -> None:
    with pytest.raises(SettingError, match="did you mean 'balanced'"):
        mitigate("balance", _fresh(), cohort)
    with pytest.raises(SettingError, match="did you mean 'epochs'"):
        mitigate("erm", _fresh(), cohort, epoch=1)
    with pytest.raises(SettingError, match="no role 'baseline'"):
        mitigate("erm", _fresh(), cohort, references={"baseline": _fresh()})
    with pytest.raises(SettingError, match="lacks references for baseline, attribute"):
        mitigate("attenuation", _fresh(), cohort)


def test_settings_of_train_stand_in_the_signature_and_unknown_ones_are_refused():
    @trains(patience=None, epochs=7)
    def mitigate(classifier, cohort, *, rng, own=1, **training):
        return own, training

    known = families.settings_of(mitigate)
    assert known["epochs"] == 7 and known["patience"] is None and known["lr"] == families.settings_of(train)["lr"]
    assert list(known) == ["own", *Training.__annotations__]
    own, training = mitigate(None, None, rng=None, own=2, lr=0.5)
    assert own == 2 and {"own": 1, **training} == {**known, "lr": 0.5}
    with pytest.raises(TypeError, match="momentum"):
        mitigate(None, None, rng=None, momentum=0.9)
    with pytest.raises(SettingError, match="momentum"):
        trains(momentum=0.9)
