"""A file is seen whole, or as it was before."""

from __future__ import annotations

from pathlib import Path

import pytest

from rightreasons.errors import DataError, SettingError
from rightreasons.files import as_folder, read_bytes, read_json, replacing, write, write_json


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    assert read_json(write_json(tmp_path / "new" / "one.json", {"a": [1, None]})) == {"a": [1, None]}
    assert write(tmp_path / "text", "µ").read_text() == "µ"


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    write(tmp_path / "one", b"old")
    with pytest.raises(RuntimeError), replacing(tmp_path / "one") as partial:
        partial.write_bytes(b"half")
        raise RuntimeError
    assert [file.name for file in tmp_path.iterdir()] == ["one"]
    assert (tmp_path / "one").read_bytes() == b"old"


def test_others_may_read_what_is_written(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    assert write(tmp_path / "one", b"").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_link_that_leads_nowhere_is_no_folder_to_write_to(tmp_path):
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(SettingError, match="a link that leads nowhere"):
        as_folder(tmp_path / "link")


def test_a_folder_in_place_of_a_file_is_named(tmp_path):
    with pytest.raises(DataError, match=f"{tmp_path.name} is a folder"):
        read_bytes(tmp_path)
