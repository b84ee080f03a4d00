"""A study.toml is checked before anything runs: what is wrong is one sentence with the file, the key and what is allowed."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from rightreasons.errors import SettingError
from rightreasons.study.file import StudyFile, checked, parsed, read, schema

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").rglob("*.toml"))
BROUGHT = """
[data]
manifest = "data.csv"
label = "y"
[model]
model = "timm:resnet18"
"""


def wrong(text: str) -> str:
    with pytest.raises(SettingError) as error:
        parsed(text, Path("/somewhere/study.toml"))
    said = str(error.value)
    assert said.startswith("/somewhere/study.toml"), said
    assert "\n" not in said
    return said


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("seed = -1", "seed is -1; expected a number from 0"),
        ('seed = "abc"', 'seed is "abc"; expected a whole number'),
        ("seed = [1]", "seed is [1]; expected a whole number"),
        ("seed = 1.9", "seed is 1.9; expected a whole number"),
        ("seed = true", "seed is true; expected a whole number"),
        ("name = 3", "name is 3; expected a text"),
        ('name = ""', "name is"),
        ('depth = "deep"', "depth is \"deep\"; expected 'quick', 'usual' or 'full'"),
        ('data = "data.csv"', 'data is "data.csv"; expected a table'),
        ("runs = 3", "runs is 3; expected a list"),
        ("runs = [3]", "[[runs]] 1 is 3; expected a table"),
        ('train = "fast"', 'train is "fast"; expected a table'),
        ("audits = [1]", "audits is [1]; expected a table"),
        ("engine = 1", "engine is 1; expected a text"),
        ("unknown = 1", "has no setting 'unknown'"),
        ("refrences = {}", "did you mean 'references'?"),
    ],
)
def test_a_wrong_value_at_the_top_is_one_sentence(change: str, said: str) -> None:
    lines = BROUGHT if not change.startswith("data") else ""
    assert said in wrong(f"{change}\n{lines}")


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("[references]\nbaseline = 3", "[references] baseline is 3; expected a list"),
        ("[audits.groups]\nmethod = 3", "[audits.groups] method is 3; expected a text"),
        ("[audits]\ngroups = 3", "[audits] groups is 3; expected a table"),
        ("[external.b]\nmanifest = 3", "[external.b] manifest is 3; expected a text"),
        ("[train]\nlr = 1", "cannot have 'train'"),
        ("[[runs]]\nseed = 1", "cannot have 'runs'"),
    ],
)
def test_a_wrong_value_in_a_table_names_the_table(table: str, said: str) -> None:
    assert said in wrong(f"{BROUGHT}\n{table}")


def test_what_is_missing_is_said() -> None:
    assert "has no [data]" in wrong('[model]\nmodel = "timm:resnet18"')
    assert "neither [model] nor [architectures]" in wrong('[data]\nmanifest = "d.csv"')
    assert "is not TOML" in wrong("name = ")


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_bytes("name = 'ü'".encode("utf-16"))
    with pytest.raises(SettingError, match="is not UTF-8 text"):
        read(tmp_path / "s.toml")
    with pytest.raises(SettingError, match="no study at"):
        read(tmp_path / "none.toml")


def test_a_file_is_written_so_that_it_reads_the_same() -> None:
    file = parsed(BROUGHT + '[audits.groups]\nB = 50\naligned = {m = "1"}\n', Path("/a/study.toml"))
    again = checked(tomllib.loads(file.to_toml()), "again")
    assert again == file
    assert file.data is not None and file.data.manifest == "/a/data.csv"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_examples_keep_the_schema(example: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    assert isinstance(read(example), StudyFile)
    jsonschema.validate(tomllib.loads(example.read_text()), json.loads(schema()))


def test_the_published_schema_is_current() -> None:
    published = Path(__file__).parents[2] / "docs" / "schema" / "study.schema.json"
    assert published.read_text(encoding="utf-8") == schema(), (
        "run python -c 'from rightreasons.study.file import schema; print(schema(), end=\"\")' > docs/schema/study.schema.json"
    )
