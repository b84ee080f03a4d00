"""Evidence: arrays tied to the rows and the model they were made from, chunk by chunk, in memory and on disk alike."""

from __future__ import annotations

import re
import tracemalloc
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from rightreasons.data.cohort import Cohort
from rightreasons.errors import DataError, EvidenceError, SettingError
from rightreasons.evidence import Card, Evidence, Recipe, as_outputs, missing_chunks
from rightreasons.head import Head, Layer


def rows(n: int = 10, name: str = "test", prefix: str = "r", **columns) -> Cohort:
    given = {
        "id": [f"{prefix}{i}" for i in range(n)],
        "label": np.arange(n) % 2,
        "sex": np.array(["f", "m"])[np.arange(n) // 2 % 2],
    }
    schema = {key: columns.pop(key) for key in ("split", "subject", "case") if isinstance(columns.get(key), str)}
    return Cohort.from_columns({**given, **columns}, attribute="sex", name=name, **schema)


def held(path: Path | None, n: int = 10, model: str = "m1") -> Evidence:
    evidence = Evidence.create(path, Card(name="net", model=model, classes=(0, 1)))
    evidence.add("test", rows(n))
    return evidence


@pytest.fixture(params=["memory", "disk"])
def place(request, tmp_path) -> Path | None:
    return tmp_path / "evidence" if request.param == "disk" else None


# ---- recipes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["logits", "maps@gradcam(layer=layer4)", "features@border(draw=0,severity=0.35)", "logits@drop(map=token_influence,top=20)",
     "logits@x(flag=True)", "maps@my.lab(k=-3)", "x@y(tiny=1e-05)", "x@y(word=nan)", "x@y(word=1_000)"],
)  # fmt: skip
def test_a_recipe_survives_its_own_name(name):
    recipe = Recipe.parse(name)
    assert str(recipe) == name
    assert Recipe.parse(str(recipe)) == recipe


def test_settings_of_a_recipe_have_one_order_and_their_own_types():
    recipe = Recipe.parse("logits@noise(region=outside, draw=3,beta=2.0,on=False)")
    assert str(recipe) == "logits@noise(beta=2.0,draw=3,on=False,region=outside)"
    assert dict(recipe.settings) == {"beta": 2.0, "draw": 3, "on": False, "region": "outside"}
    assert type(dict(recipe.settings)["draw"]) is int


@pytest.mark.parametrize(
    "name, said",
    [("", "not the name of an array"), ("a b", "not the name"), ("maps@", "not the name"), ("maps@g(layer)", "'layer' in"),
     ("maps@g(=4)", "'=4' in"), ("maps@g(a=1,a=2)", "gives 'a' twice")],
)  # fmt: skip
def test_a_name_that_is_no_recipe_is_refused(name, said):
    with pytest.raises(SettingError, match=re.escape(said)):
        Recipe.parse(name)


def test_an_array_is_found_by_any_spelling_of_its_recipe(place):
    evidence = held(place)
    evidence.put("test", "logits@noise(region=outside,draw=3)", np.ones((10, 2)))
    assert evidence.arrays("test") == ("logits@noise(draw=3,region=outside)",)
    assert "logits@noise( draw=3, region=outside )" in evidence.on("test")
    assert evidence["logits@noise(draw=3,region=outside)"].shape == (10, 2)


# ---- the invariant: rows, model and columns -------------------------------------------------------------------------------


def test_another_cohort_under_the_same_name_is_refused_with_both_fingerprints(place):
    evidence, other = held(place), rows(prefix="q")
    with pytest.raises(EvidenceError) as error:
        evidence.add("test", other)
    assert evidence.fingerprint("test") in str(error.value) and other.fingerprint in str(error.value)


@pytest.mark.parametrize("change", ["order", "row", "image"])
def test_order_rows_and_image_contents_are_part_of_a_cohort(tmp_path, change):
    for i in range(3):
        Image.fromarray(np.full((4, 4, 3), i, np.uint8)).save(tmp_path / f"{i}.png")
    table = pd.DataFrame({"image": ["0.png", "1.png", "2.png"], "label": [0, 1, 0]})
    table.to_csv(tmp_path / "a.csv", index=False)
    evidence = Evidence.create(None, Card(model="m"))
    evidence.add("test", Cohort.read(tmp_path / "a.csv"))
    if change == "image":
        Image.fromarray(np.full((4, 4, 3), 9, np.uint8)).save(tmp_path / "2.png")
    else:
        (table.iloc[::-1] if change == "order" else table.iloc[:2]).to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(EvidenceError, match="the ids, their order or the image contents differ"):
        evidence.add("test", Cohort.read(tmp_path / "a.csv"))


def test_evidence_of_another_model_in_the_folder_is_refused_with_both_fingerprints(tmp_path):
    held(tmp_path)
    with pytest.raises(EvidenceError, match=r"model m1\) and not of net \(model m2\): choose another folder"):
        held(tmp_path, model="m2")


def test_an_array_made_by_another_model_or_from_other_rows_is_refused(place):
    evidence = held(place)
    evidence.put("test", "logits", np.zeros((10, 2)))
    array = evidence.begun("test", "logits")
    array.attrs["model"] = "m7"
    with pytest.raises(EvidenceError, match="was made by model m7 and not by m1"):
        evidence["logits"]
    array.attrs["model"], array.attrs["cohort"] = "m1", "abc"
    with pytest.raises(EvidenceError, match=f"was made from rows abc, and the cohort is {evidence.fingerprint('test')}"):
        evidence["logits"]


def test_an_array_that_read_a_column_is_refused_when_the_column_changes(place):
    evidence = held(place)
    evidence.put("test", "maps@box", np.zeros((10, 3)), reads=["label"])
    assert evidence["maps@box"].shape == (10, 3)
    before = evidence.on("test").cohort.column_hash("label")
    changed = rows(label=1 - np.arange(10) % 2)
    evidence.add("test", changed)
    with pytest.raises(
        EvidenceError, match=rf"read column label \({before}\), which has changed \({changed.column_hash('label')}\)"
    ):
        evidence["maps@box"]


def test_the_same_rows_with_another_attribute_are_taken_as_given_now(tmp_path):
    """Auditing again with a corrected label or another attribute must not read the old columns."""
    evidence = held(tmp_path)
    evidence.put("test", "logits", np.zeros((10, 2)))
    again = Evidence.create(tmp_path, Card(name="net", model="m1", classes=(0, 1)))
    site = Cohort.from_columns({"id": rows().id, "label": rows().label, "site": ["A", "B"] * 5}, attribute="site")
    again.add("test", site)
    for found in (again, Evidence.open(tmp_path)):
        assert found.on("test").cohort.attributes == ("site",)
        assert found["logits"].shape == (10, 2)


def test_what_is_known_of_the_same_weights_is_taken_as_given_now(tmp_path):
    """Outputs that were named in the wrong order can be named again without a new extraction."""
    held(tmp_path)
    Evidence.create(tmp_path, Card(name="net", model="m1", classes=(1, 0)), training=rows(4, "train", "t"), used={"r3"})
    found = Evidence.open(tmp_path)
    assert found.card.classes == (1, 0)
    assert found.on("test").label.tolist() == [1, 0, 1, 1, 0, 1, 0, 1, 0]  # r3 was used
    assert len(found.training) == 4


def test_an_array_begun_with_another_batch_chunk_or_shape_is_refused(place):
    evidence = held(place)
    evidence.begin("test", "logits", (2,), np.float32, 4, batch=4)
    for more, said in (({"batch": 2}, "batch = 4 and is now asked for with batch = 2"), ({"batch": 4, "chunk": 8}, "chunk = 4")):
        with pytest.raises(EvidenceError, match=said):
            evidence.begin("test", "logits", (2,), np.float32, **{"chunk": 4, **more})
    with pytest.raises(EvidenceError, match=r"has shape \(10, 2\) and is given now with \(10, 3\)"):
        evidence.begin("test", "logits", (3,), np.float32, 4, batch=4)


def test_missing_arrays_and_cohorts_are_named_with_what_there_is(place):
    evidence = held(place)
    evidence.put("test", "features", np.zeros((10, 2)))
    with pytest.raises(
        EvidenceError, match=r"'maps@gradcam' is not in the evidence of net on cohort test \(it has features\): extract"
    ):
        evidence["maps@gradcam"]
    for ask in (evidence.on, evidence.arrays, lambda c: evidence.put(c, "logits", np.zeros((10, 2)))):
        with pytest.raises(EvidenceError, match=r"no cohort 'val' \(it has test\)"):
            ask("val")
    assert evidence.cohorts == ("test",)


@pytest.mark.parametrize("name", ["a/b", "..", ".x", "", "a\\b"])
def test_a_cohort_is_not_named_by_a_path(name):
    with pytest.raises(EvidenceError, match="cannot name a cohort"):
        Evidence.create(None, Card()).add(name, rows())


def test_a_folder_without_evidence_says_so(tmp_path):
    with pytest.raises(EvidenceError, match=r"no evidence in .*: extract it first"):
        Evidence.open(tmp_path)


# ---- chunks --------------------------------------------------------------------------------------------------------------


def test_a_chunk_of_zeros_is_done_and_a_chunk_never_written_is_not(place):
    evidence = held(place)
    array = evidence.begin("test", "features", (3,), np.float32, 4)
    assert missing_chunks(array).tolist() == [0, 1, 2]
    assert evidence.arrays("test") == ()
    array[0:4] = 0
    if place is not None:
        assert missing_chunks(array).tolist() == [1, 2]
    with pytest.raises(
        EvidenceError, match=r"'features' in the evidence of net on cohort test is not finished \(\d chunks missing\)"
    ):
        evidence["features"]
    array[4:10] = 0
    assert missing_chunks(array).tolist() == []
    assert (evidence["features"] == 0).all()


def test_an_array_begun_earlier_still_counts_chunks_of_zeros(tmp_path):
    held(tmp_path).begin("test", "features", (3,), np.float32, 4)
    again = Evidence.open(tmp_path).begun("test", "features")
    again[4:8] = 0
    assert missing_chunks(again).tolist() == [0, 2]


@pytest.mark.parametrize("shape", [(), (3,), (2, 2)])
def test_what_a_killed_write_leaves_behind_is_no_chunk(tmp_path, shape):
    array = held(tmp_path).begin("test", "x", shape, np.float32, 4)
    array[0:4] = 1
    home = tmp_path / "test" / "x" / "c" / Path(*["1", *["0"] * len(shape)])
    home.parent.mkdir(parents=True, exist_ok=True)
    home.with_suffix(".0123abcd.partial").write_bytes(b"half")
    assert missing_chunks(array).tolist() == [1, 2]


def test_a_folder_killed_before_its_group_was_written_is_begun_anew(tmp_path):
    head = Head((Layer("linear", {"weight": np.eye(2), "bias": np.zeros(2)}),))
    Evidence.create(tmp_path, Card(model="m1"), head=head)
    (tmp_path / "zarr.json").unlink()
    assert Evidence.create(tmp_path, Card(model="m1"), head=head).cohorts == ()
    assert np.array_equal(Evidence.open(tmp_path).head.weight, np.eye(2))


# ---- views ---------------------------------------------------------------------------------------------------------------


def test_a_view_reads_its_parents_rows_in_its_own_order(place, rng):
    evidence = held(place, n=50)
    values = rng.normal(size=(50, 3)).astype(np.float32)
    array = evidence.begin("test", "features", (3,), np.float32, 8)
    array[:] = values
    view = evidence.on("test")
    for pick in (np.arange(50) % 3 == 0, rng.permutation(50)[:20], np.array([7, 7, 3]), np.array([], int), [], [49]):
        some = view.select(pick)
        index = np.flatnonzero(pick) if np.asarray(pick).dtype.kind == "b" else np.asarray(pick, int)
        assert np.array_equal(some["features"], values[index])
        assert some.cohort.id.tolist() == [f"r{i}" for i in index]
        assert some["features"].dtype == np.float32
        again = some.select(np.arange(len(some))[::-1])
        assert np.array_equal(again["features"], values[index][::-1])
    nested = view.select(np.arange(10, 40)).select(np.arange(30) % 2 == 0)
    assert np.array_equal(nested["features"], values[10:40:2])


def test_blocks_put_together_are_the_array(place, rng):
    evidence = held(place, n=50)
    evidence.begin("test", "features", (3,), np.float64, 8)[:] = values = rng.normal(size=(50, 3))
    view = evidence.on("test").select(np.r_[0:5, 20:45])
    parts = list(view.blocks("features", chunks=1))
    assert len(parts) > 3
    assert np.concatenate([at for at, _ in parts]).tolist() == list(range(30))
    assert np.array_equal(np.concatenate([block for _, block in parts]), values[np.r_[0:5, 20:45]])


def test_rows_that_the_model_was_fitted_on_leave_audit_and_test_only():
    cohorts = {name: rows(10, name) for name in ("train", "val", "audit", "test")}
    evidence = Evidence.from_arrays(cohorts, {n: {"logits": np.zeros((10, 2))} for n in cohorts}, used=["r0", "r4", "zz"])
    assert {n: len(evidence.on(n)) for n in cohorts} == {"train": 10, "val": 10, "audit": 8, "test": 8}
    assert evidence.on("test").left_out == 2
    assert "r4" not in evidence.on("test").cohort.id


def test_in_memory_and_on_disk_are_equal(tmp_path, rng):
    cohort = rows(30, split="s", s=np.where(np.arange(30) < 12, "audit", "test"))
    arrays = {"logits": rng.normal(size=(30, 2)), "features": rng.normal(size=(30, 4)).astype(np.float32), "ids@x": np.arange(30)}
    head = Head((Layer("linear", {"weight": rng.normal(size=(2, 4)), "bias": np.zeros(2)}),))
    memory, disk = (Evidence.from_arrays(cohort, arrays, head=head, used=["r1"], path=p, seed=4) for p in (None, tmp_path / "e"))
    again = Evidence.open(tmp_path / "e")
    for other in (disk, again):
        assert other.card == memory.card
        assert other.cohorts == memory.cohorts == ("audit", "test")
        assert other.used == {"r1"}
        assert np.array_equal(other.head.weight, head.weight)
        for name in memory.cohorts:
            assert other.fingerprint(name) == memory.fingerprint(name)
            assert other.arrays(name) == memory.arrays(name)
            for array in memory.arrays(name):
                assert other.on(name)[array].tobytes() == memory.on(name)[array].tobytes()
                assert other.on(name)[array].dtype == memory.on(name)[array].dtype


def test_a_large_array_is_written_and_read_in_bounded_memory(tmp_path):
    n, d = 200_000, 64  # 51 MB
    evidence = Evidence.create(tmp_path, Card(model="m", classes=(0, 1)))
    evidence.add("test", Cohort.from_columns({"id": np.arange(n), "label": np.arange(n) % 2}))
    view = evidence.on("test")
    tracemalloc.start()
    array = evidence.begin("test", "features", (d,), np.float32, 4096)
    for start in range(0, n, 4096):
        array[start : start + 4096] = np.full((min(4096, n - start), d), start, np.float32)
    total = 0.0
    for at, block in view.blocks("features", chunks=4):
        total += float(block[:, 0].astype(np.float64).sum())
        assert len(at) == len(block)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert total == sum(s * min(4096, n - s) for s in range(0, n, 4096))
    assert peak < 25e6, f"{peak / 1e6:.0f} MB at the peak, for an array of {n * d * 4 / 1e6:.0f} MB"


# ---- labels and cases ----------------------------------------------------------------------------------------------------


def test_labels_are_counted_in_the_models_order():
    cohort = Cohort.from_columns({"id": list("abc"), "label": ["cat", "dog", None]})
    evidence = Evidence.from_arrays(cohort, {"logits": np.zeros((3, 3))}, classes=["dog", "bird", "cat"])
    assert evidence.on("test").label.tolist() == [2, 0, -1]
    assert as_outputs(np.array([0, 1, -1]), ["cat", "dog"], ["dog", "cat"]).tolist() == [1, 0, -1]


def test_a_label_that_no_output_stands_for_is_shown_beside_the_outputs():
    evidence = Evidence.from_arrays(rows(), {"logits": np.zeros((10, 2))}, classes=["benign", "malignant"])
    with pytest.raises(DataError, match=r"0, 1.*benign.*malignant.*classes="):
        _ = evidence.on("test").label


def test_a_model_of_an_attribute_is_judged_by_that_attribute():
    evidence = Evidence.from_arrays(rows(), {"logits": np.zeros((10, 2))}, classes=["m", "f"], target="sex")
    assert evidence.on("test").label.tolist() == [1, 1, 0, 0, 1, 1, 0, 0, 1, 1]


def case_evidence(head, features):
    cohort = Cohort.from_columns(
        {"id": list("abcdef"), "label": [0, 1, 0, 1, 1, 1], "case": ["x", "y", "x", None, "", "y"]}, case="case"
    )
    return Evidence.from_arrays(cohort, {"features": features, "logits": head(features)}, head=head)


def test_a_case_is_the_head_of_its_mean_features_and_no_case_is_a_decision_of_its_own(rng):
    linear = Layer("linear", {"weight": rng.normal(size=(3, 4)), "bias": rng.normal(size=3)})
    last = Layer("linear", {"weight": rng.normal(size=(2, 3)), "bias": rng.normal(size=2)})
    features = rng.normal(size=(6, 4))
    for head in (Head((linear, last)), Head((linear, Layer("activation", name="relu"), last))):
        found = case_evidence(head, features).on("test").decisions()
        by_id = dict(zip(found.cohort.id, found.logits, strict=True))
        expected = {"a": features[[0, 2]].mean(0), "b": features[[1, 5]].mean(0), "d": features[3], "e": features[4]}
        assert set(by_id) == set(expected)
        for key, z in expected.items():
            assert np.allclose(by_id[key], head(z[None])[0])
        assert dict(zip(found.cohort.id, found.label, strict=True)) == {"a": 0, "b": 1, "d": 1, "e": 1}
        assert np.allclose(found.probability.sum(axis=1), 1)


def test_a_case_of_a_head_with_an_activation_needs_features():
    head = Head((Layer("linear", {"weight": np.eye(2), "bias": np.zeros(2)}), Layer("activation", name="relu")))
    cohort = Cohort.from_columns({"id": list("ab"), "label": [0, 0], "case": ["x", "x"]}, case="case")
    evidence = Evidence.from_arrays(cohort, {"logits": np.zeros((2, 2))}, head=head, classes=[0, 1])
    with pytest.raises(EvidenceError, match="cases of cohort test need the features of model: extract them"):
        evidence.on("test").decisions()


# ---- a user's own arrays and predictions -----------------------------------------------------------------------------------


def test_one_logit_is_read_as_two():
    for z in (np.arange(10.0), np.arange(10.0)[:, None]):
        logits = Evidence.from_arrays(rows(), {"logits": z})["logits"]
        assert np.array_equal(logits, np.stack([np.zeros(10), np.arange(10.0)], axis=1))


@pytest.mark.parametrize(
    "arrays, said",
    [({"logits": np.zeros((9, 2))}, "cohort 'test' has 10 rows"),
     ({"logits": np.zeros((10, 3))}, r"3 columns and there are 2 classes"),
     ({"features": np.where(np.arange(20).reshape(10, 2) == 9, np.nan, 1.0)}, r"'features' is not finite in row 5 \(id r4\)"),
     ({"features": np.array(1.0)}, "has shape")],
)  # fmt: skip
def test_arrays_that_do_not_fit_are_refused_with_the_row(arrays, said):
    with pytest.raises(EvidenceError, match=said):
        Evidence.from_arrays(rows(), arrays)


def predictions(tmp_path: Path, **columns) -> Path:
    frame = pd.DataFrame({"id": [f"r{i}" for i in range(4)], "label": [0, 1, 0, 1], "sex": ["f", "f", "m", "m"], **columns})
    frame.to_csv(tmp_path / "p.csv", index=False)
    return tmp_path / "p.csv"


def test_a_table_of_predictions_is_evidence(tmp_path):
    p = [0.1, 0.9, 0.0, 1.0]
    binary = Evidence.from_predictions(predictions(tmp_path, p=p), id="id", attribute="sex")
    assert np.allclose(binary.on("test").decisions().probability[:, 1], p)
    assert binary.on("test").cohort.id.tolist() == ["r0", "r1", "r2", "r3"]
    named = Evidence.from_predictions(predictions(tmp_path, p_1=p, p_0=1 - np.array(p)), attribute="sex")
    assert np.allclose(named["logits"], binary["logits"])


def test_predictions_may_know_more_classes_than_the_labels(tmp_path):
    path = predictions(tmp_path, p_2=[0.2] * 4, p_0=[0.3] * 4, p_1=[0.5] * 4)
    evidence = Evidence.from_predictions(path, attribute="sex")
    assert [str(c) for c in evidence.card.classes] == ["0", "1", "2"]
    assert np.allclose(evidence.on("test").decisions().probability, [[0.3, 0.5, 0.2]] * 4)


def test_a_column_that_plays_another_part_is_no_prediction(tmp_path):
    path = predictions(tmp_path, p_0=[0.5] * 4, p_1=[0.5] * 4, p_site=["A", "B", "A", "B"])
    assert Evidence.from_predictions(path, attribute="p_site").card.classes == (0, 1)


@pytest.mark.parametrize(
    "columns, said",
    [({}, r"has no predictions: a column 'p' or the columns p_0, p_1 expected, found \[\]"),
     ({"p_2": [0.1] * 4}, "p_0, p_1 expected, found"),
     ({"p": [0.1, 1.2, 0.3, 0.4]}, r"row 2: probabilities .*1\.2.* are not between 0 and 1 with sum 1 \(1 such rows\)"),
     ({"p_0": [0.5] * 4, "p_1": [0.5, 0.5, 0.4, 0.5]}, r"row 3: probabilities \[0\.5, 0\.4\]"),
     ({"p": [0.1, None, 0.3, 0.4]}, "row 2: p is 'nan', and a probability between 0 and 1 is expected"),
     ({"p": [0.1, 0.2, "high", 0.4]}, "row 3: p is 'high'")],
)  # fmt: skip
def test_predictions_that_are_none_are_refused_with_the_row(tmp_path, columns, said):
    with pytest.raises(DataError, match=said):
        Evidence.from_predictions(predictions(tmp_path, **columns), attribute="sex")


def test_p_needs_two_classes(tmp_path):
    path = predictions(tmp_path, p=[0.1] * 4)
    frame = pd.read_csv(path).assign(label=[0, 1, 2, 0])
    frame.to_csv(path, index=False)
    with pytest.raises(DataError, match=r"column 'p' needs two classes, and 'label' has \[0, 1, 2\]: give p_<class>"):
        Evidence.from_predictions(path)


def test_in_memory_an_array_whose_name_begins_like_another_counts_its_own_chunks() -> None:
    from rightreasons.testing import synthetic_evidence

    evidence = synthetic_evidence()
    evidence.begin("test", "logits@other", (2,), "f4", chunk=16)
    assert "logits@other" not in evidence.arrays("test")
    assert "logits" in evidence.arrays("test")
    evidence.put("test", "features@border(draw=0)", evidence["features"])
    assert "features@border(draw=0)" in evidence.arrays("test")


def test_scores_of_other_names_and_decisions_are_predictions(tmp_path):
    p = [0.1, 0.8, 0.4, 0.9]
    usual = Evidence.from_predictions(predictions(tmp_path, p=p), attribute="sex")["logits"]
    for columns, score in (
        ({"risk": p}, "risk"), ({"risk": p}, "risk=1"), ({"none": 1 - np.array(p)}, "none=0"),
        ({"prob_0": 1 - np.array(p), "prob_1": p}, ["prob_0", "prob_1"]),
    ):  # fmt: skip
        found = Evidence.from_predictions(predictions(tmp_path, **columns), attribute="sex", score=score)["logits"]
        assert np.allclose(found, usual)
    decided = Evidence.from_predictions(predictions(tmp_path, called=[0, 1, 0, 1]), attribute="sex", prediction="called")
    assert decided["logits"].argmax(axis=1).tolist() == [0, 1, 0, 1]
    for wrong, said in (
        ({"score": "rsk"}, "no column 'rsk'"),
        ({"score": "risk=7"}, "'7' is no label"),
        ({"prediction": "risk"}, "row 1"),
    ):
        with pytest.raises(DataError, match=said):
            Evidence.from_predictions(predictions(tmp_path, risk=p), **wrong)
    with pytest.raises(SettingError, match="not both"):
        Evidence.from_predictions(predictions(tmp_path, risk=p), score="risk", prediction="risk")


def test_features_join_predictions_whose_rows_are_then_halved(tmp_path):
    n = 40
    columns = {"id": [f"r{i}" for i in range(n)], "label": [0, 1] * (n // 2), "p": np.linspace(0.1, 0.9, n)}
    pd.DataFrame(columns).to_csv(tmp_path / "many.csv", index=False)
    features = np.arange(2.0 * n).reshape(n, 2)
    evidence = Evidence.from_predictions(tmp_path / "many.csv", id="id", features=features, rng=np.random.default_rng(0))
    assert set(evidence.cohorts) == {"audit", "test"} and len(evidence.on("audit")) == len(evidence.on("test")) == n // 2
    for part in ("audit", "test"):
        rows = [int(name[1:]) for name in evidence.on(part).cohort.id]
        assert np.array_equal(evidence.on(part)["features"], features[rows])
