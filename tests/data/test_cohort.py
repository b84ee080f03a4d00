"""Cohorts: what is read, how it is coded, how rows are chosen, and that nothing of it changes on the way to disk and back."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from rightreasons.data.cohort import FRACTIONS, Cohort
from rightreasons.data.schema import Schema, Table, parse_boxes, table_problems, text, tidy
from rightreasons.data.sources import read_frame
from rightreasons.errors import DataError, NotRun, RightReasonsError, SettingError


def picture(path: Path, seed: int = 0) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (6, 6, 3), dtype=np.uint8)).save(path)
    return str(path)


def csv(folder: Path, text: str, name: str = "m.csv") -> Path:
    (folder / name).write_text(text)
    return folder / name


def crossed(sizes: dict[tuple[Any, Any], int], seed: int = 0, **columns: Any) -> Cohort:
    """A cohort with so many rows of each (label, attribute), in random order."""
    rows = [pair for pair, n in sizes.items() for _ in range(n)]
    rows = [rows[i] for i in np.random.default_rng(seed).permutation(len(rows))]
    names = {key: column for key, column in columns.items() if key in ("subject", "case")}
    given = {"y": [y for y, _ in rows], "a": [a for _, a in rows], **{key: column(len(rows)) for key, column in names.items()}}
    return Cohort.from_columns(given, label="y", attribute="a", **{key: key for key in names})


# ---- reading ---------------------------------------------------------------------------------------------------------------


def test_a_csv_is_read_by_the_names_of_its_columns(tmp_path: Path) -> None:
    path = csv(
        tmp_path,
        "key,scan,y,sex,fold,who,study,hospital,w,m,t\n"
        "007,a.png,0,F,train,01,s1,A,1,ma.png,flip\n"
        "008,b.png,1,M,test,02,s2,B,2.5,,none\n",
    )
    cohort = Cohort.read(
        path, id="key", image="scan", label="y", attribute="sex", split="fold", subject="who", case="study", site="hospital",
        weight="w", mask="m", transform="t",
    )  # fmt: skip
    assert list(cohort.id) == ["007", "008"]
    assert list(cohort.subject) == ["01", "02"]
    assert list(cohort.image) == ["a.png", "b.png"]
    assert (cohort.classes, list(cohort.label)) == ((0, 1), [0, 1])
    assert (cohort.attribute().levels, list(cohort.attribute("sex").values)) == (("F", "M"), [0, 1])
    assert list(cohort.splits) == ["train", "test"]
    assert (list(cohort.case), list(cohort.site)) == (["s1", "s2"], ["A", "B"])
    assert list(cohort.weight) == [1.0, 2.5]
    assert list(cohort.mask) == ["ma.png", ""]
    assert list(cohort.transform) == ["flip", "none"]
    assert (cohort.name, cohort.root, cohort.label_name) == ("m", tmp_path, "y")
    assert (cohort.twin, cohort.box) == (None, None)
    assert list(cohort.column("w")) == [1.0, 2.5]


def test_parquet_and_tsv_give_the_same_cohort_as_csv(tmp_path: Path) -> None:
    frame = pd.DataFrame({"image": ["a.png", "b.png", "c.png"], "label": [1, 0, None], "age": [31.5, None, 60.0]})
    frame.to_parquet(tmp_path / "m.parquet")
    frame.to_csv(tmp_path / "m.csv", index=False)
    frame.to_csv(tmp_path / "m.tsv", index=False, sep="\t")
    for name in ("m.parquet", "m.csv", "m.tsv"):
        cohort = Cohort.read(tmp_path / name, attribute="age", kinds={"age": "continuous"})
        assert list(cohort.label) == [1, 0, -1]
        assert cohort.classes == (0, 1)
        np.testing.assert_array_equal(cohort.attribute().values, [31.5, np.nan, 60])
        assert list(cohort.id) == ["a.png", "b.png", "c.png"]


def test_a_folder_of_class_folders_is_read_without_what_editors_leave_there(tmp_path: Path) -> None:
    for name in ("cat/1.png", "cat/deep/2.PNG", "dog/3.jpg", ".trash/4.png", "cat/._5.png", "stray.png"):
        picture(tmp_path / name)
    (tmp_path / "dog" / "notes.txt").write_text("x")
    (tmp_path / "dog" / "archive.tar.gz").write_text("x")
    cohort = Cohort.read(tmp_path)
    assert list(cohort.image) == ["cat/1.png", "cat/deep/2.PNG", "dog/3.jpg"]
    assert [cohort.classes[c] for c in cohort.label] == ["cat", "cat", "dog"]
    assert cohort.splits is None
    assert len(set(cohort.digests)) == 2  # the two png are equal, the jpg is not


def test_split_folders_above_class_folders_name_the_splits(tmp_path: Path) -> None:
    for name in ("train/a/1.png", "Validation/a/2.png", "test/b/3.png", "testing/b/4.png"):
        picture(tmp_path / name)
    cohort = Cohort.read(tmp_path)
    assert dict(zip(cohort.image, cohort.splits, strict=True)) == {
        "train/a/1.png": "train", "Validation/a/2.png": "val", "test/b/3.png": "test", "testing/b/4.png": "test",
    }  # fmt: skip
    assert cohort.classes == ("a", "b")


def saved_dataset(folder: Path, seed: int = 0) -> Path:
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    pictures = [Image.fromarray(np.full((4, 4, 3), seed + i, np.uint8)) for i in range(4)]
    features = datasets.Features(
        {"image": datasets.Image(), "label": datasets.ClassLabel(names=["neg", "pos"]), "sex": datasets.Value("string")}
    )
    made = datasets.Dataset.from_dict(
        {"image": pictures, "label": [0, 1, None, 1], "sex": ["F", "M", None, "F"]}, features=features
    )
    parts = datasets.DatasetDict({"train": made.select([0, 1]), "validation": made.select([2, 3])})
    parts.save_to_disk(str(folder))
    return folder


def test_a_saved_hugging_face_dataset_keeps_class_names_splits_and_missing_labels(tmp_path: Path) -> None:
    cohort = Cohort.read(saved_dataset(tmp_path / "d"), attribute="sex")
    assert [cohort.classes[c] if c >= 0 else None for c in cohort.label] == ["neg", "pos", None, "pos"]
    assert list(cohort.splits) == ["train", "train", "val", "val"]
    assert list(cohort.attribute().values) == [0, 1, -1, 0]
    assert np.asarray(Image.open(cohort.root / cohort.image[3])).max() == 3


def test_images_of_a_dataset_saved_anew_in_the_same_folder_are_the_new_ones(tmp_path: Path) -> None:
    before = Cohort.read(saved_dataset(tmp_path / "d")).fingerprint
    again = Cohort.read(saved_dataset(tmp_path / "d", seed=9))
    assert again.fingerprint != before
    assert np.asarray(Image.open(again.root / again.image[0])).max() == 9


def test_a_single_saved_dataset_has_no_split(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    picture(tmp_path / "a.png")
    made = datasets.Dataset.from_dict({"image": [str(tmp_path / "a.png")] * 2, "label": [0, 1]})
    made = made.cast_column("image", datasets.Image())
    made.save_to_disk(str(tmp_path / "d"))
    cohort = Cohort.read(tmp_path / "d")
    assert cohort.splits is None
    assert len(set(cohort.digests)) == 1
    with pytest.raises(DataError, match=r"no column 'scan' \(image=\)"):
        Cohort.read(tmp_path / "d", image="scan")


# ---- labels and attributes -----------------------------------------------------------------------------------------------------


def test_uncertain_labels_become_negative_by_a_mapping(tmp_path: Path) -> None:
    path = csv(tmp_path, "image,label\na,1.0\nb,0.0\nc,-1.0\nd,\n")
    cohort = Cohort.read(path, mapping={-1: 0})
    assert cohort.classes == (0, 1)
    assert list(cohort.label) == [1, 0, 0, -1]
    ignored = Cohort.read(path, mapping={"-1": None})
    assert list(ignored.label) == [1, 0, -1, -1]
    named = Cohort.read(path, mapping={1: "sick", 0: "well", -1: "well"})
    assert named.classes == ("sick", "well")
    assert list(named.label) == [0, 1, 1, -1]


@pytest.mark.parametrize("key", [True, "True", 1])
def test_a_mapping_may_name_truth_as_it_is_written_or_as_it_is_meant(tmp_path: Path, key: Any) -> None:
    path = csv(tmp_path, "image,label\na,True\nb,False\nc,True\n")
    assert Cohort.read(path).classes == (0, 1)
    cohort = Cohort.read(path, mapping={key: "yes", "False": "no"})
    assert [cohort.classes[c] for c in cohort.label] == ["yes", "no", "yes"]


def test_only_empty_and_nan_are_missing_unless_others_are_named(tmp_path: Path) -> None:
    path = csv(tmp_path, "image,label,where\na,0,NA\nb,1,EU\nc,1,\nd,0,None\ne,0,nan\n")
    a = Cohort.read(path, attribute="where").attribute()
    assert a.levels == ("EU", "NA", "None")
    assert list(a.values) == [1, 0, -1, 2, -1]
    assert list(a.present) == [True, True, False, True, False]
    assert Cohort.read(path, attribute="where", missing=["NA", "None"]).attribute().levels == ("EU",)


def test_numbers_of_more_than_ten_values_are_continuous_and_kinds_overrule() -> None:
    columns = {"label": [0, 1] * 6, "ten": [*range(10), 0, 1], "eleven": [*range(11), 0], "word": [f"v{i}" for i in range(12)]}
    cohort = Cohort.from_columns(columns, attribute=["ten", "eleven", "word"])
    assert [cohort.attribute(a).kind for a in cohort.attributes] == ["categorical", "continuous", "categorical"]
    assert cohort.attribute("eleven").values.dtype == np.float64
    other = Cohort.from_columns(columns, attribute=["ten", "eleven"], kinds={"ten": "continuous", "eleven": "categorical"})
    assert [other.attribute(a).kind for a in other.attributes] == ["continuous", "categorical"]
    with pytest.raises(DataError, match="continuous and forms no groups"):
        cohort.counts("eleven")


def test_bins_are_closed_below_and_named_by_their_edges() -> None:
    age = [10, 20, 29.5, 30, 64, 65, None]
    cohort = Cohort.from_columns({"label": [0, 1, 0, 1, 0, 1, 0], "age": age}, attribute="age", bins={"age": [20, 65]})
    a = cohort.attribute()
    assert a.levels == ("below 20", "20 to 65", "65 and above")
    assert list(a.values) == [0, 1, 1, 1, 1, 2, -1]


def test_quantile_bins_have_equal_rows_and_none_of_them_is_empty() -> None:
    age = np.arange(100.0)
    a = Cohort.from_columns({"label": [0, 1] * 50, "age": age}, attribute="age", bins={"age": np.int64(4)}).attribute()
    assert list(np.bincount(a.values)) == [25, 25, 25, 25]
    skewed = [0.0] * 40 + [float(v) for v in range(1, 61)]
    a = Cohort.from_columns({"label": [0, 1] * 50, "age": skewed}, attribute="age", bins={"age": 4}).attribute()
    assert list(np.bincount(a.values)) == [50, 25, 25]  # the first quartile is the minimum and makes no bin
    near = 1e7 + np.arange(8) / 100
    levels = Cohort.from_columns({"label": [0, 1] * 4, "t": near}, attribute="t", bins={"t": 4}).attribute().levels
    assert len(set(levels)) == 4


def test_tidy_gives_numbers_only_where_every_value_is_one() -> None:
    assert tidy(pd.Series(["1", "2.0", None]), ()) == [1, 2, None]
    assert tidy(pd.Series(["1", "2.5", ""]), ()) == [1.0, 2.5, None]
    assert tidy(pd.Series([1, "x", 2.0], dtype=object), ()) == ["1", "x", "2"]
    assert tidy(pd.Series([True, False, None], dtype=object), ()) == [1, 0, None]
    assert tidy(pd.Series(["1", "inf"]), ()) == ["1", "inf"]
    assert tidy(pd.Series([9, 1]), ("9",)) == [None, 1]
    assert [text(v) for v in (1.0, "01 ", None, np.float32("nan"), pd.NaT, pd.NA, 2.5)] == ["1", "01", "", "", "", "", "2.5"]


@pytest.mark.parametrize(
    ("value", "boxes"),
    [
        ("1 2 3 4", [[1, 2, 3, 4]]),
        ("1,2,3,4; 5 6 7 8;", [[1, 2, 3, 4], [5, 6, 7, 8]]),
        ("[[1, 2, 3, 4], [5, 6, 7, 8.5]]", [[1, 2, 3, 4], [5, 6, 7, 8.5]]),
        ("[1, 2, 3, 4]", [[1, 2, 3, 4]]),
        ([1, 2, 3, 4], [[1, 2, 3, 4]]),
        (np.array([np.array([1.0, 2, 3, 4]), np.array([5.0, 6, 7, 8])], dtype=object), [[1, 2, 3, 4], [5, 6, 7, 8]]),
        ("", []), (None, []), (np.nan, []), (pd.NA, []), ("[]", []), ([], []),
    ],
)  # fmt: skip
def test_boxes_are_read_however_they_are_written(value: Any, boxes: list[list[float]]) -> None:
    assert parse_boxes(value).tolist() == boxes
    assert parse_boxes(value).shape == (len(boxes), 4)


@pytest.mark.parametrize(
    "value", ["1 2 3", "1 2; 3 4 5 6 7 8", "a b c d", '[{"x": 1}]', "[1, 2, null, 4]", "[1, 2", 5.0, "1 2 3 inf"]
)
def test_what_is_no_box_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_boxes(value)


def test_boxes_in_one_column_or_in_four_are_the_same(tmp_path: Path) -> None:
    one = Cohort.read(csv(tmp_path, "image,label,b\na,0,1 2 3 4\nb,1,\n"), box="b")
    four = Cohort.read(csv(tmp_path, "image,label,x,y,X,Y\na,0,1,2,3,4\nb,1,,,,\n"), box=["x", "y", "X", "Y"])
    for cohort in (one, four):
        assert [b.tolist() for b in cohort.box] == [[[1, 2, 3, 4]], []]


# ---- views -------------------------------------------------------------------------------------------------------------------


def test_rows_are_selected_by_mask_position_and_value_and_views_keep_classes() -> None:
    cohort = Cohort.from_columns({"label": ["a", "b", "c", "a"], "site": [1, 2, None, 1]}, name="all")
    assert list(cohort.select(np.array([False, True, False, True])).id) == ["1", "3"]
    view = cohort.select([3, 0, 3])
    assert list(view.id) == ["3", "0", "3"]
    assert view.classes == ("a", "b", "c")
    assert list(view.select([1]).id) == ["0"]
    assert list(cohort.select({"site": 1}).id) == ["0", "3"]  # a column with holes holds 1.0
    assert list(cohort.select({"site": [2, "1"], "label": "a"}).id) == ["0", "3"]
    assert len(cohort.select([])) == 0


def test_counts_and_groups_agree_and_leave_out_the_unknown() -> None:
    cohort = Cohort.from_columns({"y": [0, 1, 1, None, 0], "a": ["F", "M", "F", "M", None]}, label="y", attribute="a")
    assert list(cohort.group()) == [0, 3, 2, -1, -1]
    assert cohort.counts().to_numpy().tolist() == [[1, 0], [1, 1]]
    assert list(cohort.complete("a")) == [True, True, True, False, False]
    unknown = Cohort.from_columns({"y": [0, 1], "a": [None, None]}, label="y", attribute="a")
    assert unknown.counts().shape == (2, 0)
    with pytest.raises(DataError, match="an empty group"):
        unknown.balance(rng=np.random.default_rng(0))


def test_balancing_makes_groups_equal_overall_or_within_each_label() -> None:
    cohort = crossed({(0, "F"): 30, (0, "M"): 12, (1, "F"): 9, (1, "M"): 40})
    equal = cohort.balance(rng=np.random.default_rng(0))
    assert equal.counts().to_numpy().tolist() == [[9, 9], [9, 9]]
    assert list(equal.id) == sorted(equal.id, key=int)
    within = cohort.balance(rng=np.random.default_rng(0), within_label=True)
    assert within.counts().to_numpy().tolist() == [[12, 12], [9, 9]]
    again = cohort.balance(rng=np.random.default_rng(0))
    assert list(again.id) == list(equal.id)
    assert list(cohort.balance(rng=np.random.default_rng(1)).id) != list(equal.id)


def test_bias_keeps_so_many_rows_in_each_discordant_group() -> None:
    cohort = crossed({(0, "F"): 30, (0, "M"): 12, (1, "F"): 9, (1, "M"): 40})
    biased = cohort.bias(rng=np.random.default_rng(0), discordant=5)
    assert biased.counts().to_numpy().tolist() == [[30, 5], [5, 40]]
    other = cohort.bias(rng=np.random.default_rng(0), discordant=5, pairs={"M": 0, "F": 1})
    assert other.counts().to_numpy().tolist() == [[5, 12], [9, 5]]
    assert cohort.bias(rng=np.random.default_rng(0), discordant=0).counts().to_numpy().tolist() == [[30, 0], [0, 40]]


@pytest.mark.parametrize("share", [0.0, 0.05, 0.25, 0.5])
def test_bias_to_a_share_of_discordant_rows_keeps_the_size_over_a_sweep(share: float) -> None:
    cohort = crossed({(0, "F"): 300, (0, "M"): 120, (1, "F"): 190, (1, "M"): 400})
    for size in (400, None):
        counts = cohort.bias(rng=np.random.default_rng(0), discordant=share, size=size).counts().to_numpy()
        assert counts[0, 0] == counts[1, 1]
        assert counts[0, 1] == counts[1, 0]
        assert abs((counts[0, 1] + counts[1, 0]) / counts.sum() - share) <= 1 / counts.sum() + 1e-12
        if size:
            assert abs(counts.sum() - size) <= 2


def test_bias_takes_a_class_that_a_view_left_behind_for_none_but_not_an_empty_group() -> None:
    sizes = {(y, a): 20 for y in "xyz" for a in "xyz"}
    view = crossed(sizes).select({"y": ["x", "y"], "a": ["x", "y"]})
    biased = view.bias(rng=np.random.default_rng(0), discordant=0.25)
    assert biased.counts().to_numpy().tolist() == [[20, 7, 0], [7, 20, 0], [0, 0, 0]]
    del sizes["x", "y"]
    for discordant in (3, 0.25):
        with pytest.raises(DataError, match=r"rows from a group of|is empty"):
            crossed(sizes).bias(rng=np.random.default_rng(0), discordant=discordant)


def test_logistic_bias_keeps_rows_with_the_probability_of_its_formula() -> None:
    n, slope, centre, multiplier = 40_000, 0.15, 55.0, 1.4
    rng = np.random.default_rng(0)
    age, label = rng.uniform(20, 90, n).round(1), rng.integers(0, 2, n)
    cohort = Cohort.from_columns({"id": np.arange(n), "label": label, "age": age}, attribute="age")
    kept = np.zeros(n, bool)
    kept[cohort.bias(rng=np.random.default_rng(1), logistic=(slope, centre, multiplier)).id.astype(int)] = True
    for low in range(20, 90, 5):
        for value in (0, 1):
            rows = (age >= low) & (age < low + 5) & (label == value)
            sigmoid = [1 / (1 + np.exp(-slope * (a - centre))) for a in age[rows]]
            expected = np.mean([min(1, max(0, multiplier * (s if value == 1 else 1 - s))) for s in sigmoid])
            assert abs(kept[rows].mean() - expected) < 5 * np.sqrt(0.25 / rows.sum())
    assert kept[(label == 1) & (age > 75)].all()  # m · sigmoid is above 1 there


def test_logistic_bias_can_keep_the_complement_as_the_paper_writes_it() -> None:
    n, (slope, centre, multiplier) = 20_000, (0.14, 50.0, 4.0)
    rng = np.random.default_rng(0)
    age, label = rng.uniform(20, 90, n), rng.integers(0, 2, n)
    cohort = Cohort.from_columns({"id": np.arange(n), "label": label, "age": age}, attribute="age")
    found = cohort.bias(rng=np.random.default_rng(1), logistic=(slope, centre, multiplier), complement=True)
    kept = np.isin(np.arange(n), found.id.astype(int))
    for low in range(20, 50, 5):
        rows = (age >= low) & (age < low + 5) & (label == 0)
        expected = np.mean([1 - min(1, multiplier / (1 + np.exp(-slope * (a - centre)))) for a in age[rows]])
        assert abs(kept[rows].mean() - expected) < 5 * np.sqrt(0.25 / rows.sum())
    assert not kept[(label == 0) & (age > 60)].any()


def test_logistic_bias_takes_numeric_levels_steep_slopes_and_skips_the_unknown() -> None:
    cohort = Cohort.from_columns({"label": [0, 1] * 50, "a": [0, 0, 1, 1, None] * 20}, attribute="a")
    kept = cohort.bias(rng=np.random.default_rng(0), logistic=(1e6, 0.5, 1.0))
    assert set(zip(kept.label, kept.attribute().values, strict=True)) == {(0, 0), (1, 1)}
    assert len(kept) == 40


def test_a_gap_that_is_asked_for_is_met_and_told() -> None:
    n, rng = 20_000, np.random.default_rng(0)
    label = (rng.random(n) < 0.2).astype(int)
    age = np.where(rng.random(n) < 0.01, np.nan, rng.normal(52 + 5 * label, 16))
    cohort = Cohort.from_columns({"id": np.arange(n), "label": label, "age": age}, attribute="age")
    means = [np.nanmean(age[label == k]) for k in (0, 1)]
    assert cohort.gap() == pytest.approx(means[1] - means[0])
    for asked in (-3.0, 0.0, 12.0):
        found = cohort.bias(rng=rng, gap=asked)
        assert found.gap() == pytest.approx(asked, abs=1.2)  # three standard errors
        assert len(found) > 0.4 * n
    assert len(cohort.bias(rng=rng, gap=cohort.gap())) == np.isfinite(age).sum()
    with pytest.raises(DataError, match="can give 'age' gaps from"):
        cohort.bias(rng=rng, gap=90.0)
    assert np.isnan(cohort.select(label == 1).gap())


def test_a_number_in_groups_has_equal_ones_in_the_train_rows_and_keeps_the_number(tmp_path: Path) -> None:
    n, rng = 600, np.random.default_rng(0)
    age = np.where(np.arange(n) % 50 == 0, np.nan, rng.normal(50, 10, n))
    columns = {"id": np.arange(n), "label": np.arange(n) % 2, "age": age, "split": ["train"] * 400 + ["test"] * 200}
    cohort = Cohort.from_columns(columns, attribute="age", split="split", id="id")
    view = cohort.on("test").in_groups("age", 4, of=cohort)
    whole = cohort.in_groups("age", 4)
    assert whole.attributes == ("age", "age groups")
    sizes = np.bincount(whole.on("train").attribute("age groups").values + 1)
    assert sizes[0] == 8
    assert np.ptp(sizes[1:]) <= 1
    assert view.attribute("age groups").levels == whole.attribute("age groups").levels
    for cut in (whole, view):
        codes, values = cut.attribute("age groups").values, cut.attribute("age").values
        assert (np.diff([values[codes == k].mean() for k in range(4)]) > 0).all()
        assert ((codes == -1) == np.isnan(values)).all()
    whole.save(tmp_path / "grouped.parquet")
    again = Cohort.read(tmp_path / "grouped.parquet").attribute("age groups")
    assert again.levels == whole.attribute("age groups").levels
    assert (again.values == whole.attribute("age groups").values).all()
    with pytest.raises(DataError, match="as it is"):
        whole.in_groups("age groups")


# ---- splits ------------------------------------------------------------------------------------------------------------------


def test_splits_meet_their_fractions_in_every_stratum_within_rounding() -> None:
    cohort = crossed({(0, "F"): 400, (0, "M"): 103, (1, "F"): 57, (1, "M"): 211})
    split = cohort.split(rng=np.random.default_rng(0))
    assert set(split.splits) == set(FRACTIONS)
    group = split.group()
    for name, fraction in FRACTIONS.items():
        inside = split.splits == name
        assert abs(inside.sum() - fraction * len(split)) <= 1
        for g in range(4):
            assert abs((inside & (group == g)).sum() - fraction * (group == g).sum()) <= 2
    assert list(cohort.split(rng=np.random.default_rng(0)).splits) == list(split.splits)
    assert list(cohort.split(rng=np.random.default_rng(1)).splits) != list(split.splits)


def test_many_small_strata_do_not_add_up_to_a_bias() -> None:
    cohort = crossed({(y, f"a{i:02d}"): 1 + (i + y) % 4 for y in range(10) for i in range(30)})
    split = cohort.split(rng=np.random.default_rng(0))
    for name, fraction in FRACTIONS.items():
        assert abs((split.splits == name).sum() - fraction * len(split)) <= 2


@pytest.mark.parametrize("seed", range(5))
def test_no_subject_is_in_two_splits_and_fractions_hold_within_the_size_of_a_subject(seed: int) -> None:
    draw = np.random.default_rng(seed)
    cohort = crossed(
        {(0, "F"): 500, (0, "M"): 300, (1, "F"): 200, (1, "M"): 600}, seed=seed, subject=lambda n: draw.integers(0, n // 6, n)
    )
    split = cohort.split(rng=np.random.default_rng(seed))
    homes = pd.DataFrame({"subject": split.subject, "split": split.splits}).groupby("subject")["split"].nunique()
    assert homes.max() == 1
    largest = np.unique(split.subject, return_counts=True)[1].max()
    for name, fraction in FRACTIONS.items():
        assert abs((split.splits == name).sum() - fraction * len(split)) <= largest


def test_rows_of_unknown_subjects_are_not_one_big_subject() -> None:
    cohort = crossed({(0, "F"): 100, (1, "M"): 100}, subject=lambda n: ["" if i % 2 else f"p{i // 4}" for i in range(n)])
    split = cohort.split({"train": 0.5, "test": 0.5}, rng=np.random.default_rng(0))
    unknown = split.splits[split.subject == ""]
    assert 30 <= (unknown == "test").sum() <= 70


def test_images_of_one_case_stay_together_where_there_are_no_subjects() -> None:
    columns = {"label": [i // 5 % 2 for i in range(200)], "case": [f"c{i // 5}" for i in range(200)]}
    split = Cohort.from_columns(columns, case="case").split(rng=np.random.default_rng(0))
    assert pd.Series(split.splits).groupby(split.case).nunique().max() == 1


def test_fractions_below_one_leave_rows_in_no_split() -> None:
    cohort = crossed({(0, "F"): 50, (1, "M"): 50})
    split = cohort.split({"train": 0.5, "test": 0.3}, rng=np.random.default_rng(0))
    assert {name: int((split.splits == name).sum()) for name in ("train", "test", "")} == {"train": 50, "test": 30, "": 20}
    assert len(split.on("test")) == 30


def test_continuous_attributes_are_stratified_on_their_quartiles() -> None:
    age = np.random.default_rng(0).exponential(20, 400)
    cohort = Cohort.from_columns({"label": [0, 1] * 200, "age": age}, attribute="age")
    test = cohort.split({"train": 0.75, "test": 0.25}, rng=np.random.default_rng(0)).on("test")
    inside = np.searchsorted(np.quantile(age, [0.25, 0.5, 0.75]), test.attribute().values)
    assert np.abs(np.bincount(inside) - 25).max() <= 2


def test_roles_are_completed_and_those_that_exist_are_kept() -> None:
    cohort = crossed({(0, "F"): 100, (1, "M"): 100})
    halved = cohort.with_roles(rng=np.random.default_rng(0))
    assert {n: int((halved.splits == n).sum()) for n in set(halved.splits)} == {"audit": 100, "test": 100}
    assert set(cohort.with_roles(rng=np.random.default_rng(0), trains=True).splits) == set(FRACTIONS)
    two = cohort.split({"train": 0.5, "test": 0.5}, rng=np.random.default_rng(0))
    full = two.with_roles(rng=np.random.default_rng(1), trains=True)
    sizes = {n: int((full.splits == n).sum()) for n in set(full.splits)}
    assert sizes == {"train": 85, "val": 15, "audit": 50, "test": 50}
    assert set(full.splits[two.splits == "train"]) == {"train", "val"}
    assert list(full.id) == list(cohort.id)
    given = full.with_roles(rng=np.random.default_rng(2), trains=True)
    assert list(given.splits) == list(full.splits)


# ---- twins, fingerprints, disk -------------------------------------------------------------------------------------------------


def with_twins(folder: Path) -> Cohort:
    for i in range(4):
        picture(folder / f"i{i}.png", i)
        picture(folder / f"t{i}.png", 10 + i)
    text = (
        "image,label,sex,age,twin,twin_sex,b\n"
        "i0.png,0,F,30,t0.png,M,0 0 2 2\ni1.png,1,M,40,,,\ni2.png,1,M,50,t2.png,F,\ni3.png,0,F,,t3.png,,1 1 3 3\n"
    )
    return Cohort.read(csv(folder, text), attribute=["sex", "age"], twin="twin", twin_attribute={"sex": "twin_sex"}, box="b")


def test_twins_have_their_own_image_and_attribute_under_the_ids_of_their_rows(tmp_path: Path) -> None:
    cohort = with_twins(tmp_path)
    twins = cohort.twins()
    assert list(twins.id) == ["i0.png", "i2.png", "i3.png"]
    assert list(twins.image) == ["t0.png", "t2.png", "t3.png"]
    assert list(twins.label) == [0, 1, 0]
    assert twins.attribute("sex").levels == cohort.attribute("sex").levels == ("F", "M")
    assert list(twins.attribute("sex").values) == [1, 0, -1]
    assert not twins.attribute("age").present.any()  # not told of the twin
    assert list(cohort.select([2]).twins().id) == ["i2.png"]
    assert twins.fingerprint != cohort.select([0, 2, 3]).fingerprint
    assert list(cohort.attribute("sex").values) == [0, 1, 1, 0]


def test_attributes_that_trade_places_in_the_twin_do_so() -> None:
    columns = {"image": ["i"], "label": [0], "left": ["x"], "right": ["y"], "twin": ["t"]}
    cohort = Cohort.from_columns(
        columns, attribute=["left", "right"], twin="twin", twin_attribute={"left": "right", "right": "left"}
    )
    twins = cohort.twins()
    assert [twins.attribute(a).levels[twins.attribute(a).values[0]] for a in ("left", "right")] == ["y", "x"]


def test_a_twin_attribute_of_words_makes_levels_of_words() -> None:
    columns = {"image": ["i", "j"], "label": [0, 1], "a": [1, 2], "twin": ["t", "u"], "ta": ["none", "1"]}
    cohort = Cohort.from_columns(columns, attribute="a", twin="twin", twin_attribute="ta")
    assert cohort.attribute().levels == ("1", "2", "none")
    assert list(cohort.attribute().values) == [0, 1]
    assert list(cohort.twins().attribute().values) == [2, 0]


def test_the_fingerprint_follows_bytes_ids_and_order_and_nothing_else(tmp_path: Path) -> None:
    cohort = with_twins(tmp_path)
    before = cohort.fingerprint
    assert Cohort.read(tmp_path / "m.csv", label="sex").fingerprint == before
    assert cohort.select([0, 1, 2, 3]).fingerprint == before
    assert cohort.split(rng=np.random.default_rng(0)).fingerprint == before
    view = cohort.select([3, 1])
    assert view.fingerprint not in (before, cohort.select([1, 3]).fingerprint)
    assert Cohort.read(cohort.select([3, 1]).save(tmp_path / "v.parquet")).fingerprint == view.fingerprint
    picture(tmp_path / "i3.png", 77)
    changed = Cohort.read(tmp_path / "m.csv")
    assert changed.fingerprint != before
    assert list(changed.digests[:3]) == list(cohort.digests[:3])


def test_hashes_of_columns_follow_their_values(tmp_path: Path) -> None:
    cohort = with_twins(tmp_path)
    for part in ("label", "box", "twin", "sex", "age"):
        assert cohort.column_hash(part) == with_twins(tmp_path).column_hash(part)
        assert cohort.column_hash(part) != cohort.select([0, 1, 2]).column_hash(part)
    assert cohort.column_hash("mask") == cohort.select([0]).column_hash("mask")  # there are none


def test_a_saved_cohort_needs_no_keyword_and_is_the_same(tmp_path: Path) -> None:
    cohort = with_twins(tmp_path).split({"train": 0.5, "test": 0.5}, rng=np.random.default_rng(0))
    for view in (cohort, cohort.select([2, 0]), cohort.on("test")):
        again = Cohort.read(view.save(tmp_path / "deep" / "c.parquet"))
        assert list(again.id) == list(view.id)
        assert again.schema.classes == view.schema.classes
        assert list(again.label) == list(view.label)
        assert list(again.splits) == list(view.splits)
        for name in view.attributes:
            np.testing.assert_array_equal(again.attribute(name).values, view.attribute(name).values)
            assert again.attribute(name).levels == view.attribute(name).levels
        assert [b.tolist() for b in again.box] == [b.tolist() for b in view.box]
        assert again.fingerprint == view.fingerprint
        assert list(again.twins().image) == list(view.twins().image)
    assert sorted(p.name for p in (tmp_path / "deep").iterdir()) == ["c.parquet"]


@pytest.mark.parametrize(
    "values",
    [
        ["1", "2", "x", "1"], [1, 2, "x", None], ["01", "1", "x", "01"], [True, False, None, True], [True, "maybe", False, None],
        [1.5, 2, None, 2], ["a", None, "b", "a"], [10**6, 2, 3, 2], [0.1, 0.30000000000000004, 0.3, None],
    ],
    ids=str,
)  # fmt: skip
def test_mixed_columns_keep_their_codes_in_views_and_on_disk(tmp_path: Path, values: list[Any]) -> None:
    is_fractional = any(isinstance(v, float) for v in values)  # which no label may be
    columns = {"id": list("pqrs"), "label": [0, 1, 1, 0] if is_fractional else values, "a": values}
    is_one = is_fractional or (values[0] in (1, "1", "01") and "maybe" not in values)
    for schema in ({}, {"mapping": {"1" if is_one else str(values[0]): "one"}}):
        cohort = Cohort.from_columns(columns, attribute="a", **schema)
        for rows in ([0, 1, 2, 3], [0, 1], [1, 0], [3]):
            view = cohort.select(rows)
            for other in (
                Cohort.read(view.save(tmp_path / "c.parquet")),
                view.split({"train": 1.0}, rng=np.random.default_rng(0)),
            ):
                assert list(other.label) == list(cohort.label[rows])
                assert list(other.attribute().values) == list(cohort.attribute().values[rows])
    known = [v is not None for v in values]
    assert list(cohort.attribute().present) == known
    assert is_fractional or list(cohort.label >= 0) == known


def test_boxes_given_as_arrays_survive_the_disk(tmp_path: Path) -> None:
    boxes = [np.array([[0, 1, 2, 3.5], [4, 5, 6, 7]]), np.zeros((0, 4)), [np.int64(1), 2, 3, 4]]
    cohort = Cohort.from_columns({"label": [0, 1, 0], "b": boxes}, box="b")
    again = Cohort.read(cohort.save(tmp_path / "c.parquet"))
    assert [b.tolist() for b in again.box] == [b.tolist() for b in cohort.box] == [boxes[0].tolist(), [], [[1, 2, 3, 4]]]
    pd.DataFrame({"label": [0, 1], "b": [[[1.0, 2, 3, 4]], []]}).to_parquet(tmp_path / "lists.parquet")
    assert [b.tolist() for b in Cohort.read(tmp_path / "lists.parquet", image=None, box="b").box] == [[[1, 2, 3, 4]], []]


def test_a_saved_cohort_may_be_told_where_its_images_are_now_but_not_to_be_another(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    cohort = with_twins(tmp_path / "here")
    saved, fingerprint = cohort.save(tmp_path / "c.parquet"), cohort.fingerprint
    assert Cohort.read(saved).root == tmp_path / "here"
    (tmp_path / "here").rename(tmp_path / "there")
    assert Cohort.read(saved, root=tmp_path / "there", attribute=["sex", "age"]).fingerprint == fingerprint
    with pytest.raises(DataError, match="is a saved cohort whose label is 'label', not 'sex'"):
        Cohort.read(saved, label="sex")


def test_the_stored_schema_is_plain_json(tmp_path: Path) -> None:
    cohort = Cohort.from_columns({"label": [0, 1, -1]}, mapping={np.int64(-1): np.int64(0)})
    assert list(Cohort.read(cohort.save(tmp_path / "c.parquet")).label) == [0, 1, 0]
    frame, schema = read_frame(tmp_path / "c.parquet", Schema())
    assert schema.resolved
    assert len(frame) == 3
    json.dumps(schema.mapping)


# ---- wrong inputs --------------------------------------------------------------------------------------------------------------

GOOD = "id,image,label,sex,w,split,who,case\n1,a.png,0,F,1,train,p,c\n2,b.png,1,M,1,test,q,d\n"


@pytest.mark.parametrize(
    ("keywords", "sentence"),
    [
        ({"label": "lable"}, r"no column 'lable' \(label=\); did you mean 'label'\?"),
        ({"attribute": ["sex", "age"]}, r"no column 'age' \(attribute=\)"),
        ({"labels": "label"}, "unexpected keyword argument 'labels'"),
        ({"attribute": "sex", "kinds": {"sex": "binary"}}, "'binary'}: an attribute is one of categorical, continuous"),
        ({"attribute": "sex", "kinds": {"sex": "continuous"}}, "'sex' cannot be continuous"),
        ({"attribute": "sex", "kinds": {"age": "continuous"}}, "'age', which is not an attribute"),
        ({"attribute": "sex", "bins": {"sex": 2}}, "values are not numbers"),
        ({"attribute": "w", "bins": {"w": 3}}, "puts every value of 'w' into one bin"),
        ({"attribute": "w", "bins": {"w": 1}}, "puts every value of 'w' into one bin"),
        ({"attribute": "label"}, "is both label= and attribute="),
        ({"attribute": "w", "bins": {"w": [3, 1]}}, "rising edges"),
        ({"box": ["id", "w"]}, "one column or four"),
        ({"box": "sex"}, r"row 1: box cannot be read"),
        ({"attribute": ["sex", "w"], "twin_attribute": "w"}, "needs exactly one attribute"),
        ({"attribute": "sex", "twin_attribute": {"age": "w"}}, "'age', which is not an attribute"),
    ],
)
def test_a_wrong_keyword_gets_one_clear_sentence(tmp_path: Path, keywords: dict[str, Any], sentence: str) -> None:
    with pytest.raises((RightReasonsError, TypeError), match=sentence):
        Cohort.read(csv(tmp_path, GOOD), **keywords)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("id,image,label\n1,a,0\n1,b,1\n", "row 2: id '1' is also the id of row 1"),
        ("id,image,label\n1,a,0\n,b,1\n", "row 2: the id is missing"),
        ("id,image,label\n1,,0\n2,b,1\n", "row 1: no image is named"),
        ("id,image,label\n1,a,0.5\n2,b,1\n", r"fractional values \(0.5\)|fractional values \(0.5, 1.0\)"),
        ("id,image,label\n", "the table has no rows"),
        ("id,image,label\n1,a,0,9\n2,b,1,9\n", "more cells than the header has names"),
        ("id,image,label\n1,a,0\n2,b,1,9,9\n", "cannot be read as a table"),
        ("", "cannot be read as a table"),
    ],
)
def test_a_wrong_table_gets_one_clear_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        Cohort.read(csv(tmp_path, text), id="id")


def test_what_stands_in_two_places_is_refused_with_both_rows(tmp_path: Path) -> None:
    path = csv(tmp_path, GOOD.replace("test,q,d", "test,p,c"))
    assert len(Cohort.read(path, subject="who")) == 2
    with pytest.raises(DataError, match="row 2: subject 'p' has split 'test' here and 'train' in row 1"):
        Cohort.read(path, subject="who", split="split")
    with pytest.raises(DataError, match="row 2: case 'c' has label '1' here and '0' in row 1"):
        Cohort.read(path, case="case")
    with pytest.raises(DataError, match="row 1: weight '-1' is not a number of at least 0"):
        Cohort.read(csv(tmp_path, GOOD.replace("0,F,1", "0,F,-1")), weight="w")


def test_a_subject_with_rows_in_no_split_is_in_one_split() -> None:
    frame = pd.DataFrame({"label": [0, 1, 0], "who": ["p", "p", "p"], "split": ["", "train", None]})
    schema = Schema(image=None, subject="who", split="split", classes=(0, 1), resolved=True)
    assert list(table_problems(Table.of(frame, schema))) == []


def test_many_problems_are_counted_in_one_sentence() -> None:
    with pytest.raises(DataError, match=r"row 2: .*; and 994 more\. `rightreasons check` lists every row"):
        Cohort.from_columns({"id": ["x"] * 1000, "label": [0, 1] * 500})


def test_what_is_no_manifest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no manifest at"):
        Cohort.read(tmp_path / "none.csv")
    with pytest.raises(DataError, match="not a manifest that can be read"):
        Cohort.read(csv(tmp_path, "x", "m.json"))
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        Cohort.read(csv(tmp_path, "x", "m.parquet"))
    with pytest.raises(DataError, match="no images in class folders"):
        Cohort.read(tmp_path)
    (tmp_path / "latin.csv").write_bytes("image,label\nMüller.png,0\n".encode("latin-1"))
    with pytest.raises(DataError, match="cannot be read as a table"):
        Cohort.read(tmp_path / "latin.csv")


def test_wrong_choices_of_rows_get_one_clear_sentence() -> None:
    rng = np.random.default_rng(0)
    cohort = crossed({(0, "F"): 9, (0, "M"): 3, (1, "M"): 5})
    for call, sentence in (
        (lambda: cohort.select([99]), "positions must be whole numbers below the 17 rows"),
        (lambda: cohort.select([0.5]), "positions must be whole numbers"),
        (lambda: cohort.select(np.ones(3, bool)), "a mask of 3 values"),
        (lambda: cohort.select({"sexx": 1}), "no column 'sexx'"),
        (lambda: cohort.on("test"), "has no splits"),
        (lambda: cohort.split(rng=rng).on("tset"), "did you mean 'test'"),
        (lambda: cohort.split({"train": 0.9, "test": 0.2}, rng=rng), "sum to at most 1"),
        (lambda: cohort.balance(rng=rng), "an empty group"),
        (lambda: cohort.attribute("b"), "no attribute 'b'"),
        (lambda: cohort.image, "has no image column"),
        (lambda: cohort.twins(), "has no twins"),
        (lambda: cohort.bias(rng=rng), "one of discordant=, logistic= and gap="),
        (lambda: cohort.bias(rng=rng, discordant=99), "cannot take 99 rows from a group of"),
        (lambda: cohort.bias(rng=rng, discordant=-1), "neither a whole number of rows nor a share"),
        (lambda: cohort.bias(rng=rng, discordant=1.0), "neither a whole number of rows nor a share"),
        (lambda: cohort.bias(rng=rng, discordant=1, size=5), "size= goes with a share"),
        (lambda: cohort.bias(rng=rng, discordant=1, pairs={"X": 0}), "must go from levels of 'a'"),
        (lambda: cohort.bias(rng=rng, logistic=(1, 0, 1)), "only numbers have a mean"),
        (lambda: Cohort.from_columns({"label": [0, 1], "a": [1]}), "different lengths"),
        (lambda: Cohort.from_columns({"label": [0, 1]}, lable="x"), "no keyword 'lable'"),
        (lambda: Cohort.from_columns({"a": ["F", "M"]}, attribute="a").counts(), "has no label and forms no groups"),
        (lambda: Cohort.from_columns({"label": [0, 1]}).attribute(), "has no attribute: name one"),
    ):
        with pytest.raises((DataError, SettingError), match=sentence):
            call()


def test_an_audit_cannot_run_on_a_cohort_without_attributes() -> None:
    with pytest.raises(NotRun, match="cohort 'cohort' has no attribute: name one with attribute="):
        Cohort.from_columns({"label": [0, 1]}).attribute()
