"""A table says itself what it is: columns by name and value, the folder of its images, and nothing guessed between two."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from rightreasons.data.found import look, predicted_columns
from rightreasons.errors import DataError

N = 60


def films(**changed) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    columns = {
        "file": [f"{i}.png" for i in range(N)],
        "finding no": np.arange(N),
        "y": np.arange(N) % 2,
        "view": np.where(np.arange(N) % 3, "AP", "PA"),
        "age": rng.integers(20, 90, N),
        "PatientID": [f"p{i // 2}" for i in range(N)],
        "fold": ["train", "val", "test"] * (N // 3),
        "report": [f"text {i}" for i in range(N)],
        "vendor": ["S"] * N,
        "prob_1": rng.uniform(size=N),
        **changed,
    }
    return pd.DataFrame({name: values for name, values in columns.items() if values is not None})


@pytest.fixture
def seen(tmp_path):
    def of(frame, given=None, folder="scans", **more):
        frame.to_csv(tmp_path / "t.csv", index=False)
        (tmp_path / folder).mkdir(exist_ok=True)
        for i in range(N):
            (tmp_path / folder / f"{i}.png").touch()
        return look(tmp_path / "t.csv", given, **more)

    return of


def test_every_part_of_a_table_is_found_with_its_reason(seen, tmp_path):
    found = seen(films())
    assert found.keywords == {
        "image": "file", "root": str(tmp_path / "scans"), "label": "y", "split": "fold", "subject": "PatientID",
        "attribute": ["view", "age"],
    }  # fmt: skip
    assert found.left == {
        "finding no": "a number of its own in every row", "report": "text of 60 values", "vendor": "one value",
        "prob_1": "its name is that of an answer",
    }  # fmt: skip
    said = "\n".join(found.lines())
    assert "train 20, val 20, test 20" in said and "compared by its quartiles" in said and "not used" in said


def test_what_the_caller_says_is_not_looked_for(seen):
    found = seen(films(), {"label": "view", "attribute": ["y"], "subject": "report", "split": "vendor"})
    assert set(found.keywords) == {"image", "root"}


def test_a_column_that_says_the_label_is_no_attribute(seen):
    assert seen(films(name=np.where(np.arange(N) % 2, "ill", "well"))).left["name"] == "its values say the label"


def test_the_classes_of_the_model_tell_the_label(seen):
    words = films(y=None, status=np.where(np.arange(N) % 2, "ill", "well"), state=["a", "b", "c"] * (N // 3))
    with pytest.raises(DataError, match="no column of the name label"):
        seen(words)
    assert seen(words, classes=("well", "ill")).keywords["label"] == "status"
    twice = words.assign(second=words["status"])
    with pytest.raises(DataError, match=r"'status' and 'second'.*label="):
        seen(twice, classes=("well", "ill"))


@pytest.mark.parametrize(
    "changed, words",
    [
        ({"target": np.arange(N) % 2}, "'y' and 'target'.*label="),
        ({"other": [f"{i}.png" for i in range(N)]}, "'file' and 'other'.*image="),
        ({"set": ["train", "test"] * (N // 2)}, "'fold' and 'set'.*split="),
        ({"subject": np.arange(N)}, "'PatientID' and 'subject'.*subject="),
    ],
)
def test_two_that_could_be_meant_are_refused_naming_both(seen, changed, words):
    with pytest.raises(DataError, match=words):
        seen(films(**changed))


def test_two_folders_with_the_images_are_refused(seen):
    seen(films(), folder="again")
    with pytest.raises(DataError, match=r"again' and .*scans'.*root="):
        seen(films())


def test_images_beside_the_table_and_those_that_are_nowhere_need_no_folder(tmp_path):
    films().to_csv(tmp_path / "t.csv", index=False)
    assert "root" not in look(tmp_path / "t.csv").keywords
    for i in range(N):
        (tmp_path / f"{i}.png").touch()
    assert "root" not in look(tmp_path / "t.csv").keywords


def test_scores_are_found_by_name_and_two_are_refused(tmp_path):
    def of(**columns):
        pd.DataFrame({"y": [0, 1] * 9, **columns}).to_csv(tmp_path / "p.csv", index=False)
        seen = look(tmp_path / "p.csv", has_images=False)
        return [(one.part, one.value) for one in predicted_columns(seen, ["0", "1"], tmp_path / "p.csv")]

    p = [0.3] * 18
    assert of(p=p) == [] and of(p_1=p) == []  # these are read anyway
    assert of(Score=p) == [("score", "Score")]
    assert of(prob_0=p, prob_1=p) == [("score", "prob_0"), ("score", "prob_1")]
    assert of(prediction=[0, 1] * 9) == [("prediction", "prediction")]
    assert of(score=p, prediction=[0, 1] * 9) == [("score", "score")]
    with pytest.raises(DataError, match="'score' and 'risk'"):
        of(score=p, risk=p)


def test_lists_and_dates_in_cells_are_left_aside(tmp_path):
    days = pd.date_range("2024-01-01", periods=24)
    frame = pd.DataFrame({"y": [0, 1] * 12, "when": days, "boxes": [[1, 2, 3, 4]] * 24, "flag": [True, False, None] * 8})
    frame.to_parquet(tmp_path / "t.parquet")
    found = look(tmp_path / "t.parquet", has_images=False)
    assert found.keywords == {"label": "y", "attribute": ["flag"]} and found.left["boxes"] == "lists or tables in its cells"


def test_a_workbook_is_read_as_the_same_table_in_csv_would_be(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    films().to_excel(tmp_path / "t.xlsx", index=False)
    films().to_csv(tmp_path / "t.csv", index=False)
    one, other = (look(tmp_path / f"t.{suffix}").keywords for suffix in ("xlsx", "csv"))
    assert one == other and one["attribute"] == ["view", "age"]
    book = openpyxl.load_workbook(tmp_path / "t.xlsx")
    book.create_sheet("more").append(["a"])
    book.save(tmp_path / "two.xlsx")
    with pytest.raises(DataError, match=r"2 sheets with cells \(Sheet1, more\)"):
        look(tmp_path / "two.xlsx")


def test_without_openpyxl_a_workbook_is_refused_with_what_to_install(tmp_path, monkeypatch):
    import sys

    (tmp_path / "t.xlsx").touch()
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(DataError, match=r"rightreasons\[excel\]"):
        look(tmp_path / "t.xlsx")
