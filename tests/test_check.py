"""A manifest's defects: every planted one is found with its row, in one run, and nothing else is."""

import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from rich.console import Console

from rightreasons.check import Report, check
from rightreasons.check import files as checked_files
from rightreasons.data.cohort import Cohort
from rightreasons.data.images import Geometry
from rightreasons.errors import SettingError

COLUMNS = {
    "id": "id", "label": "label", "attribute": "sex", "split": "split", "subject": "subject", "case": "case", "weight": "weight",
    "box": "box", "mask": "mask", "twin": "twin", "twin_attribute": "twin_sex",
}  # fmt: skip


def model(
    classes: tuple[Any, ...] = (0, 1), size: tuple[int, ...] = (16, 16), channels: int = 3, **geometry: Any
) -> SimpleNamespace:
    return SimpleNamespace(geometry=Geometry(size, channels=channels, **geometry), classes=classes, C=len(classes))


def picture(path: Path, rng: np.random.Generator, size: tuple[int, ...] = (16, 16, 3)) -> str:
    Image.fromarray(rng.integers(0, 256, size, dtype=np.uint8)).save(path)
    return path.name


def mask(path: Path, size: tuple[int, int] = (16, 16), inside: bool = True) -> str:
    pixels = np.zeros(size, np.uint8)
    pixels[2:5, 2:5] = 255 * inside
    Image.fromarray(pixels).save(path)
    return path.name


def clean(folder: Path, n: int = 256) -> pd.DataFrame:
    """A manifest without fault: half train and half test, every group of both of 32 rows."""
    rng = np.random.default_rng(0)
    rows = np.arange(n)
    label, sex = rows % 2, rows // 2 % 2
    return pd.DataFrame(
        {
            "id": [f"{i:05d}" for i in rows],
            "image": [picture(folder / f"i{i}.png", rng) for i in rows],
            "label": label.astype(str),
            "sex": np.array(["F", "M"])[sex],
            "split": np.repeat(["train", "test"], [n // 2, n - n // 2]),
            "subject": [f"p{i // 4}" for i in rows],
            "case": [f"c{i}" for i in rows],
            "weight": np.full(n, "1.0"),
            "box": np.full(n, "1 1 9 9"),
            "mask": [mask(folder / "mask.png")] * n,
            "twin": [picture(folder / f"t{i}.png", rng) for i in rows],
            "twin_sex": np.array(["M", "F"])[sex],
        }
    )


def planted(folder: Path) -> tuple[pd.DataFrame, set[tuple[int, str]]]:
    """The clean manifest with one defect of each kind, and where each is."""
    rng = np.random.default_rng(1)
    frame = clean(folder)
    (folder / "corrupt.png").write_bytes(b"this is not an image, whatever its name says")
    whole = (folder / "i11.png").read_bytes()
    (folder / "short.png").write_bytes(whole[: len(whole) // 2])
    np.save(folder / "volume.npy", rng.integers(0, 256, (16, 16, 16, 1), dtype=np.uint8))
    picture(folder / "grey.png", rng, (16, 16))
    picture(folder / "small.png", rng, (7, 7, 3))
    picture(folder / "wide.png", rng, (16, 40, 3))
    Image.new("RGB", (16, 16), (9, 9, 9)).save(folder / "blank.png")
    mask(folder / "mask8.png", (8, 8))
    mask(folder / "mask0.png", inside=False)
    picture(folder / "twin8.png", rng, (8, 8, 3))
    defects = {
        (3, "image-missing"): {"image": "nowhere.png"},
        (5, "image-unreadable"): {"image": "corrupt.png"},
        (7, "image-unreadable"): {"image": "short.png"},
        (9, "no-image"): {"image": ""},
        (12, "duplicate-id"): {"id": "00002"},
        (16, "duplicate-image"): {"image": "i17.png"},  # the later of the two rows is named
        (201, "image-in-two-splits"): {"image": "i21.png"},
        (24, "label-missing"): {"label": ""},
        (27, "fractional-label"): {"label": "0.37"},
        (30, "attribute-missing"): {"sex": ""},
        (33, "bad-box"): {"box": "1 2 three 4"},
        (36, "empty-box"): {"box": "5 5 5 9"},
        (39, "box-outside"): {"box": "20 20 30 30"},
        (42, "box-reaches-out"): {"box": "1 1 9 9; 10 10 18 18"},
        (45, "mask-missing"): {"mask": "nowhere.png"},
        (48, "mask-size"): {"mask": "mask8.png"},
        (51, "mask-empty"): {"mask": "mask0.png"},
        (54, "twin-missing"): {"twin": "nowhere.png"},
        (57, "twin-size"): {"twin": "twin8.png"},
        (60, "twin-identical"): {"twin": "i60.png"},
        (63, "twin-attribute-same"): {"twin_sex": frame["sex"][63]},
        (66, "twin-attribute-missing"): {"twin_sex": ""},
        (210, "subject-in-two-splits"): {"subject": "p2"},
        (73, "case-in-two-labels"): {"case": "c72"},
        (76, "unknown-split"): {"split": "tset", "subject": "p-tset"},
        (79, "no-split"): {"split": "", "subject": "p-none"},
        (82, "bad-weight"): {"weight": "-2"},
        (85, "image-grey"): {"image": "grey.png"},
        (88, "image-small"): {"image": "small.png", "box": "", "mask": "", "twin": ""},
        (91, "image-aspect"): {"image": "wide.png", "box": "", "mask": "", "twin": ""},
        (94, "image-axes"): {"image": "volume.npy", "box": "", "mask": "", "twin": ""},
        (97, "class-unknown"): {"label": "7"},
        (100, "image-blank"): {"image": "blank.png"},
        (103, "subject-missing"): {"subject": ""},
        (106, "no-id"): {"id": ""},
    }
    for (row, _), cells in defects.items():
        for column, value in cells.items():
            frame.loc[row, column] = value
    where = set(defects) - {(16, "duplicate-image")} | {(17, "duplicate-image")}
    return frame, where


@pytest.fixture(scope="module")
def defective(tmp_path_factory: pytest.TempPathFactory) -> tuple[Report, set[tuple[int, str]], Path]:
    folder = tmp_path_factory.mktemp("defective")
    frame, where = planted(folder)
    frame.to_csv(folder / "manifest.csv", index=False)
    return check(folder / "manifest.csv", classifier=model(), **COLUMNS), where, folder


def rows_of(report: Report) -> set[tuple[int, str]]:
    return {(p.row, p.kind) for p in report.problems if p.row is not None}


def kinds(report: Report) -> set[str]:
    return {p.kind for p in report.problems}


def printed(report: Report, **options: Any) -> str:
    console = Console(file=io.StringIO(), width=160, force_terminal=False)
    report.print(console, **options)
    return console.file.getvalue()


def test_every_planted_defect_is_reported_with_its_row_in_one_run_and_nothing_else(
    defective: tuple[Report, set[tuple[int, str]], Path],
) -> None:
    report, where, _ = defective
    assert len({kind for _, kind in where}) >= 30
    assert rows_of(report) == where
    assert report.exit_status == 1
    assert not report.ok


def test_problems_name_the_id_and_the_line_of_their_row(defective: tuple[Report, set[tuple[int, str]], Path]) -> None:
    report, _, folder = defective
    lines = (folder / "manifest.csv").read_text().split("\n")
    for problem in report.problems:
        if problem.row is not None:
            assert problem.line == problem.row + 2
            assert lines[problem.line - 1].startswith(problem.id + ",")


def test_lines_count_blank_lines_and_line_breaks_within_cells(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    picture(tmp_path / "a.png", rng)
    text = 'image,label,remark\na.png,0,"two\nlines"\n\nnowhere.png,1,x\n'
    (tmp_path / "m.csv").write_text(text)
    missing = [p for p in check(tmp_path / "m.csv").problems if p.kind == "image-missing"]
    assert [(p.row, p.line) for p in missing] == [(1, 5)]


def test_a_clean_manifest_has_no_errors_and_no_warnings(tmp_path: Path) -> None:
    clean(tmp_path).to_csv(tmp_path / "manifest.csv", index=False)
    report = check(tmp_path / "manifest.csv", classifier=model(), **COLUMNS)
    assert report.problems == ()
    assert report.exit_status == 0
    assert printed(report).rstrip().endswith("0 errors, 0 warnings in 256 rows")


def test_the_json_is_plain_and_reads_back_as_the_same_report(defective: tuple[Report, set[tuple[int, str]], Path]) -> None:
    report, _, folder = defective
    text = json.dumps(report.to_json())
    assert Report.from_json(json.loads(text)) == report
    again = check(folder / "manifest.csv", classifier=model(), **COLUMNS)
    assert json.dumps(again.to_json()) == text
    assert report.to_json()["counts"]["image-unreadable"] == 2


def test_all_problems_stand_in_the_groups_table_and_in_the_last_line(
    defective: tuple[Report, set[tuple[int, str]], Path],
) -> None:
    report, _, _ = defective
    sizes = {(g["label"], g["level"]): g["n"] for g in report.groups if g["attribute"] == "sex" and not g["split"]}
    assert sum(sizes.values()) == 256 - 3  # two labels and one sex are not known
    assert sizes[7, "M"] + sizes[7, "F"] == 1
    assert printed(report).rstrip().endswith("in 256 rows: fix the errors first")


def test_names_from_the_manifest_are_printed_as_text(tmp_path: Path) -> None:
    names = ["<script>alert(1)</script>", "[red]not red[/red]", "🦄:smile:", "\x1b[31mred", "[/]", "a\u202eb"]
    frame = pd.DataFrame({"id": names, "image": [f"{n.replace('/', '_')}.png" for n in names], "label": [0, 1, 0, 1, 0, 1]})
    frame["sex"] = ["[bold]F", "M"] * 3
    report = check(Cohort.from_columns(frame.to_dict("list"), attribute="sex", root=tmp_path))
    out = printed(report, all=True)
    assert report.counts["image-missing"] == 6
    for name in ["<script>alert(1)</script>", "[red]not red[/red]", "🦄:smile:", "[/]", "[bold]F"]:
        assert name in out
    assert "\x1b" not in out
    assert "\\x1b[31mred" in out
    assert "\u202e" not in out


def test_long_lists_are_cut_unless_all_are_asked_for(tmp_path: Path) -> None:
    cohort = Cohort.from_columns({"image": [f"{i}.png" for i in range(317)], "label": [0, 1] * 158 + [0]}, root=tmp_path)
    report = check(cohort)
    assert "and 312 more" in printed(report)
    assert "row 317" not in printed(report)
    assert "row 317" in printed(report, all=True)


def test_missing_columns_and_bad_settings_are_listed_and_the_rest_is_checked(tmp_path: Path) -> None:
    frame = clean(tmp_path, 64)
    frame.loc[5, "image"] = "nowhere.png"
    frame["age"] = "unknown"
    frame.to_csv(tmp_path / "m.csv", index=False)
    report = check(
        tmp_path / "m.csv", label="lable", attribute=["sex", "gender", "age"], box=["box", "sex"], bins={"age": 2, "site": 3},
        kinds={"sex": "categorical"}, split="split",
    )  # fmt: skip
    found = {(p.kind, p.column) for p in report.level("error")}
    assert ("no-column", "lable") in found
    assert ("no-column", "gender") in found
    assert ("bad-attribute", "age") in found
    assert ("bad-setting", "") in found
    assert "did you mean 'label'" in next(p.message for p in report.problems if p.column == "lable")
    assert (5, "image-missing") in rows_of(report)


@pytest.mark.parametrize("text", [None, "a,b\n1,2,3\n1,2,3,4,5\n", ""])
def test_a_table_that_cannot_be_read_is_a_report_of_one_error(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "m.csv").write_text(text)
    report = check(tmp_path / "m.csv")
    assert [p.kind for p in report.problems] == ["unreadable-table"]
    assert report.exit_status == 1


def test_a_table_without_rows_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "m.csv").write_text("image,label\n")
    assert kinds(check(tmp_path / "m.csv")) == {"empty-table"}


def test_a_label_of_measurements_is_listed_row_by_row(tmp_path: Path) -> None:
    (tmp_path / "m.csv").write_text("image,label\n" + "".join(f"{i}.png,{i / 10}\n" for i in range(1, 9)))
    report = check(tmp_path / "m.csv", images=False)
    assert report.counts == {"fractional-label": 8, "label-missing": 1}
    assert not report.ok


def test_constant_labels_and_attributes_are_errors_overall_and_warnings_in_a_split() -> None:
    n = 40
    columns = {"label": [0] * 20 + [0, 1] * 10, "sex": ["F"] * n, "split": ["train"] * 20 + ["test"] * 20}
    report = check(Cohort.from_columns(columns, attribute="sex", split="split"))
    assert "attribute-constant" in {p.kind for p in report.level("error")}
    constant = [p for p in report.problems if p.kind == "label-constant-in-split"]
    assert len(constant) == 1
    assert "'train'" in constant[0].message
    assert "label-constant" in {p.kind for p in check(Cohort.from_columns({"label": [3] * 5})).level("error")}


def test_small_groups_say_what_each_audit_needs_in_its_split() -> None:
    sizes = {(0, "F"): 40, (0, "M"): 25, (1, "F"): 7, (1, "M"): 0}
    label = [y for (y, _), n in sizes.items() for _ in range(n)]
    sex = [a for (_, a), n in sizes.items() for _ in range(n)]
    n = len(label)
    columns = {"label": label * 2, "sex": sex * 2, "split": ["audit"] * n + ["test"] * n}
    report = check(Cohort.from_columns(columns, attribute="sex", split="split"))
    said = {(p.kind, p.message.split(":")[0]): p.message for p in report.problems if p.kind.endswith("-group")}
    assert set(said) == {
        ("small-group", "group label=0, sex=M has 25 rows in split 'test'"),
        ("tiny-group", "group label=1, sex=F has 7 rows in split 'test'"),
        ("tiny-group", "group label=1, sex=F has 7 rows in split 'audit'"),
        ("empty-group", "group label=1, sex=M has 0 rows in split 'test'"),
        ("empty-group", "group label=1, sex=M has 0 rows in split 'audit'"),
    }
    empty = next(p.message for p in report.problems if p.kind == "empty-group" and "'test'" in p.message)
    assert "OSCAR" in empty
    assert "ShorT" in empty
    assert "ART" in said["tiny-group", "group label=1, sex=F has 7 rows in split 'audit'"]


def test_without_splits_groups_are_held_against_the_half_that_an_audit_will_see() -> None:
    columns = {"label": [0, 1] * 36, "sex": ["F", "F", "M", "M"] * 18}
    report = check(Cohort.from_columns(columns, attribute="sex"))
    assert report.counts == {"tiny-group": 4}
    assert "18 rows, about 9 of them in test" in report.problems[0].message


def test_a_word_among_numbers_is_named_before_it_makes_categories_of_them() -> None:
    age = [str(20 + i) for i in range(40)]
    age[17] = "NA"
    report = check(Cohort.from_columns({"label": [0, 1] * 20, "age": age}, attribute="age"))
    assert (17, "attribute-not-a-number") in rows_of(report)
    assert "attribute-continuous" not in kinds(report)
    known = check(Cohort.from_columns({"label": [0, 1] * 20, "age": age}, attribute="age", missing=["NA"]))
    assert (17, "attribute-missing") in rows_of(known)
    assert "attribute-continuous" in kinds(known)


def test_images_that_do_not_fit_the_model_are_summed_up_when_most_do_not(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    columns = {"image": [picture(tmp_path / f"{i}.png", rng, (16, 16)) for i in range(30)], "label": [0, 1] * 15}
    cohort = Cohort.from_columns(columns, root=tmp_path)
    report = check(cohort, classifier=model(size=(64, 64)))
    assert {(p.kind, p.row, p.level) for p in report.problems} == {
        ("image-grey", None, "warning"),
        ("image-small", None, "warning"),
    }
    assert check(cohort, classifier=model(channels=1)).problems == ()
    assert "image-axes" in {p.kind for p in check(cohort, classifier=model(size=(16, 16, 16), channels=1)).level("error")}


def test_colour_into_a_grey_model_and_odd_channels_and_mixed_sizes_are_told(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.save(tmp_path / "five.npy", rng.random((16, 16, 5), dtype=np.float32))
    columns = {
        "image": [picture(tmp_path / "a.png", rng), picture(tmp_path / "b.png", rng, (16, 20)), "five.npy"],
        "label": [0, 1, 0],
    }
    report = check(Cohort.from_columns(columns, root=tmp_path), classifier=model(channels=1))
    assert rows_of(report) == {(0, "image-colour"), (2, "image-channels")}
    assert {"mixed-sizes", "mixed-channels"} <= {p.kind for p in report.level("info")}


def test_volumes_among_images_are_an_error_without_a_model_too(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.save(tmp_path / "v.npy", rng.random((8, 8, 8, 1), dtype=np.float32))
    columns = {"image": [picture(tmp_path / "a.png", rng), "v.npy"], "label": [0, 1], "box": ["", "1 1 3 3"]}
    report = check(Cohort.from_columns(columns, root=tmp_path, box="box"))
    assert rows_of(report) == {(1, "mixed-axes"), (1, "box-on-volume")}


def test_a_box_that_the_models_crop_removes_is_named(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    columns = {"image": [picture(tmp_path / f"{i}.png", rng, (16, 30, 3)) for i in range(2)], "label": [0, 1]}
    columns["box"] = ["0 0 5 5", "10 4 14 8"]
    report = check(Cohort.from_columns(columns, root=tmp_path, box="box"), classifier=model())
    assert rows_of(report) == {(0, "box-cropped-away")}


def test_headers_alone_do_not_show_a_truncated_image_and_the_report_says_so(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    columns = {"image": [picture(tmp_path / f"{i}.png", rng) for i in range(4)], "label": [0, 1, 0, 1]}
    whole = (tmp_path / "2.png").read_bytes()
    (tmp_path / "2.png").write_bytes(whole[:-60])
    cohort = Cohort.from_columns(columns, root=tmp_path)
    assert rows_of(check(cohort)) == {(2, "image-unreadable")}
    header = check(cohort, images="header")
    assert header.ok
    assert "headers" in header.notes[0]
    assert check(cohort, images=False).problems == ()


def test_big_sets_are_read_by_header_and_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checked_files, "DECODED_AT_MOST", 10)
    monkeypatch.setattr(checked_files, "DECODED_SAMPLE", 6)
    rng = np.random.default_rng(0)
    columns = {"image": [picture(tmp_path / f"{i}.png", rng) for i in range(11)], "label": [0, 1] * 5 + [0]}
    for i in (0, 1, 2):  # 0 and 2 are in the sample
        (tmp_path / f"{i}.png").write_bytes((tmp_path / f"{i}.png").read_bytes()[:-60])
    cohort = Cohort.from_columns(columns, root=tmp_path)
    report = check(cohort)
    assert rows_of(report) == {(0, "image-unreadable"), (2, "image-unreadable")}
    assert report.notes[0].startswith("11 files: all headers were read and 6 files")
    assert check(cohort, images="full").counts == {"image-unreadable": 3}


def test_files_alike_at_both_ends_are_not_taken_for_copies(tmp_path: Path) -> None:
    for name, value in (("a", 1), ("b", 2), ("c", 1)):
        pixels = np.zeros((128, 128), np.uint8)
        pixels[64, 64] = value
        np.save(tmp_path / f"{name}.npy", pixels)
    cohort = Cohort.from_columns({"image": ["a.npy", "b.npy", "c.npy"], "label": [0, 1, 1]}, root=tmp_path)
    report = check(cohort)
    assert rows_of(report) == {(2, "duplicate-image")}
    assert "the label is 1 here and 0 there" in report.problems[0].message


def test_rows_of_a_stack_are_compared_by_their_content(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    stack = rng.integers(0, 256, (4, 8, 8), dtype=np.uint8)
    stack[3] = stack[1]
    np.save(tmp_path / "s.npy", stack)
    references = [f"s.npy#{i}" for i in range(5)]
    report = check(Cohort.from_columns({"image": references, "label": [0, 1, 0, 1, 0]}, root=tmp_path))
    assert rows_of(report) == {(3, "duplicate-image"), (4, "image-unreadable")}


def test_one_image_with_two_transforms_is_no_duplicate(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    name = picture(tmp_path / "a.png", rng)
    columns = {"image": [name] * 3, "label": [0, 1, 0], "transform": ["none", "flip", "flip"]}
    report = check(Cohort.from_columns(columns, root=tmp_path, transform="transform"))
    assert rows_of(report) == {(2, "duplicate-image")}


def test_names_that_no_file_system_takes_are_listed(tmp_path: Path) -> None:
    columns = {"image": ["x" * 5000 + ".png", "a\x00b.png", "."], "label": [0, 1, 0]}
    report = check(Cohort.from_columns(columns, root=tmp_path))
    assert {row for row, kind in rows_of(report) if kind.startswith("image-")} == {0, 1, 2}


def test_more_label_values_than_outputs_and_unknown_names_are_errors() -> None:
    cohort = Cohort.from_columns({"label": ["cat", "dog", "emu", "cat"]})
    report = check(cohort, classifier=model(("cat", "dog")))
    assert report.counts == {"class-count": 1, "class-unknown": 1}
    assert next(p.row for p in report.problems if p.kind == "class-unknown") == 2
    assert check(Cohort.from_columns({"label": [0, 1]}), classifier=model(("0", "1"))).ok
    superset = check(cohort, classifier=model(("ant", "cat", "dog", "emu")))
    assert [(p.level, p.kind) for p in superset.problems] == [("info", "class-unused")]


def logits_of(output: np.ndarray, classes: int) -> np.ndarray:
    return np.eye(classes)[output] * 3.0


def test_swapped_outputs_of_a_binary_model_are_noticed() -> None:
    rng = np.random.default_rng(0)
    label = rng.integers(0, 2, 100)
    wrong = rng.random(100) < 0.2
    cohort, rows = Cohort.from_columns({"label": label}), np.arange(100)
    swapped = check(cohort, classifier=model(), sample=(rows, logits_of(1 - (label ^ wrong), 2)))
    assert [(p.kind, p.level) for p in swapped.problems] == [("class-order", "warning")]
    assert check(cohort, classifier=model(), sample=(rows, logits_of(label ^ wrong, 2))).problems == ()
    one_logit = np.where(label ^ wrong, -1.0, 1.0)
    assert check(cohort, classifier=model(), sample=(rows, one_logit)).counts == {"class-order": 1}


def test_a_permutation_of_many_outputs_is_found_and_named() -> None:
    rng = np.random.default_rng(0)
    label, order = rng.integers(0, 5, 250), np.array([0, 3, 1, 2, 4])
    predicted = np.where(rng.random(250) < 0.3, rng.integers(0, 6, 250), order[label])
    names = tuple("abcde")
    cohort = Cohort.from_columns({"label": [names[c] for c in label]})
    report = check(cohort, classifier=model((*names, "spare")), sample=(np.arange(250), logits_of(predicted, 6)))
    message = next(p.message for p in report.problems if p.kind == "class-order")
    assert "b → output 3, c → output 1, d → output 2:" in message


@pytest.mark.parametrize("classes", [2, 10])
def test_chance_and_a_constant_guess_raise_no_alarm_about_the_order_of_outputs(classes: int) -> None:
    alarms = at_chance = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        label = rng.choice(classes, 256, p=np.arange(1, classes + 1) / np.arange(1, classes + 1).sum())
        cohort = Cohort.from_columns({"label": label})
        guess = rng.integers(0, classes, 256) if seed % 2 else np.full(256, classes - 1)
        report = check(cohort, classifier=model(tuple(range(classes))), sample=(np.arange(256), logits_of(guess, classes)))
        about = {problem.kind for problem in report.level("warning")}
        alarms += "class-order" in about
        at_chance += bool(about & {"model-chance", "model-constant", "model-below"})
    assert alarms <= 1
    assert at_chance >= 38  # what the preflight says of them instead


def test_logits_that_are_not_finite_are_listed_with_their_rows() -> None:
    logits = logits_of(np.array([0, 1, 0, 1]), 2)
    logits[2, 0] = np.nan
    report = check(Cohort.from_columns({"label": [0, 1, 0, 1]}), classifier=model(), sample=(np.arange(4), logits))
    assert rows_of(report) == {(2, "logits-not-finite")}


def test_wrong_calls_get_one_clear_sentence(tmp_path: Path) -> None:
    cohort = Cohort.from_columns({"label": [0, 1]})
    with pytest.raises(SettingError, match="images='some'"):
        check(cohort, images="some")  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="needs classifier="):
        check(cohort, sample=([0], np.zeros((1, 2))))
    with pytest.raises(SettingError, match=r"expected \(1, 2\)"):
        check(cohort, classifier=model(), sample=([0], np.zeros((1, 3))))
    with pytest.raises(SettingError, match="names rows"):
        check(cohort, classifier=model(), sample=([9], np.zeros((1, 2))))
    with pytest.raises(SettingError, match="go with a path"):
        check(cohort, label="y")
    with pytest.raises(SettingError, match="no keyword 'lable'"):
        check(tmp_path / "m.csv", lable="y")


def test_a_saved_cohort_is_checked_by_its_own_schema(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    columns = {"scan": [picture(tmp_path / f"{i}.png", rng) for i in range(4)], "y": [0, 1, 0, 1]}
    cohort = Cohort.from_columns(columns, image="scan", label="y", root=tmp_path)
    saved = cohort.select([1, 3, 2]).save(tmp_path / "c.parquet")
    (tmp_path / "3.png").unlink()
    report = check(saved)
    assert [(p.row, p.id, p.line, p.kind) for p in report.problems] == [(1, "3.png", None, "image-missing")]
    view = check(cohort.select([3, 0, 1]))
    assert [(p.row, p.id) for p in view.problems] == [(0, "3.png")]
