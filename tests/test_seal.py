"""A seal names every file that is not as it was written, is the same for equal runs, and says whose key made it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from rightreasons.errors import DataError, SettingError
from rightreasons.seal import MAC, SEAL, check, is_signed_with, read, renew, seal, sign

FILES = {
    "findings/groups.json": '{"verdict": null}',
    "circumstances/groups.json": '{"seconds": 1.5}',
    "evidence/test/logits/c/0/0": "numbers",
    "evidence/cohorts/test.parquet": "rows at /here",
    "model/model.safetensors": "weights",
    "report.html": "a page of today",
}


def written(folder: Path, **changed: str) -> Path:
    for name, text in {**FILES, **changed}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    seal(written(tmp_path / "audit"))
    return tmp_path / "audit"


def test_a_folder_as_it_was_written_is_whole(folder):
    seen = check(folder)
    assert seen.is_whole and seen.lines == []
    assert seen.files == len(FILES)


def test_hashes_are_those_that_sha256sum_prints(folder):
    told = json.loads((folder / SEAL).read_text())
    for name, digest in {**told["results"], **told["circumstances"]}.items():
        assert digest == hashlib.sha256((folder / name).read_bytes()).hexdigest()
    lines = "".join(f"{digest}  {name}\n" for name, digest in sorted(told["results"].items()))
    assert told["digest"] == hashlib.sha256(lines.encode()).hexdigest()


def test_changed_missing_and_added_files_are_named(folder):
    (folder / "findings" / "groups.json").write_text('{"verdict": "no evidence"}')
    (folder / "report.html").unlink()
    (folder / "findings" / "flips.json").write_text("{}")
    seen = check(folder)
    assert seen.lines == ["changed: findings/groups.json", "missing: report.html", "added: findings/flips.json"]
    assert not seen.is_whole
    assert seen.digest != read(folder).digest


def test_one_flipped_bit_is_seen(folder):
    file = folder / "model" / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(bytes(content))
    assert check(folder).changed == ("model/model.safetensors",)


def test_locks_words_of_workers_and_foreign_signatures_are_no_part_of_it(folder):
    for name in ("lock", "model/lock", "model/log.txt", ".hidden", "model/.x.partial", "seal.json.sig"):
        (folder / name).write_text("anything")
    assert check(folder).is_whole


def test_runs_that_differ_in_time_and_place_alone_have_the_same_digest(tmp_path):
    later = {"circumstances/groups.json": "4 s", "evidence/cohorts/test.parquet": "rows at /there", "report.html": "tomorrow"}
    assert seal(written(tmp_path / "a")).digest == seal(written(tmp_path / "b", **later)).digest
    assert seal(written(tmp_path / "a")).digest != seal(written(tmp_path / "c", **{"findings/groups.json": "{}"})).digest


def test_a_seal_whose_own_list_was_changed_is_refused(folder):
    told = json.loads((folder / SEAL).read_text())
    told["results"]["findings/groups.json"] = "0" * 64
    (folder / SEAL).write_text(json.dumps(told))
    with pytest.raises(DataError, match="its digest is not that of its results"):
        check(folder)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"format": 1}', '{"format": "1"}', '{"format": true}'])
def test_what_is_no_seal_is_refused_in_a_sentence(folder, text):
    (folder / SEAL).write_text(text)
    with pytest.raises(DataError, match=SEAL):
        check(folder)


def test_a_folder_without_a_seal_says_what_to_do(tmp_path):
    with pytest.raises(DataError, match="rightreasons seal"):
        check(written(tmp_path))


def test_a_run_that_did_nothing_else_renews_what_it_has_written_and_hides_no_other_change(folder):
    (folder / "report.html").write_text("written again")
    (folder / "findings" / "groups.json").write_text("damaged")
    renew(folder, ["report.html", "no-such-file"])
    assert check(folder).lines == ["changed: findings/groups.json"]


def test_renewing_the_same_bytes_leaves_the_seal_alone(folder, tmp_path):
    (tmp_path / "key").write_bytes(b"k" * 32)
    sign(folder, tmp_path / "key")
    renew(folder, ["report.html"])
    assert is_signed_with(folder, tmp_path / "key")


def test_inputs_are_compared_where_they_still_lie(folder, tmp_path):
    table, weights = tmp_path / "table.csv", tmp_path / "weights.pt"
    table.write_text("id,label")
    weights.write_text("weights")
    seal(folder, inputs={"table": table, "checkpoint": weights})
    assert check(folder).inputs == ()
    table.write_text("id,label,more")
    weights.unlink()
    seen = check(folder)
    assert seen.is_whole  # nothing in the folder has changed
    assert seen.inputs == (
        f"table {table} is not the file that was read",
        f"checkpoint {weights} is not there any more: not compared",
    )
    assert set(seal(folder).inputs) == {"table", "checkpoint"}  # sealing again forgets none


# ---- with a key ----------------------------------------------------------------------------------------------------------


def test_only_the_key_that_signed_is_believed(folder, tmp_path):
    (tmp_path / "key").write_bytes(b"k" * 32)
    (tmp_path / "other").write_bytes(b"o" * 32)
    sign(folder, tmp_path / "key")
    assert is_signed_with(folder, tmp_path / "key")
    assert not is_signed_with(folder, tmp_path / "other")


def test_whoever_seals_anew_without_the_key_is_found_out(folder, tmp_path):
    (tmp_path / "key").write_bytes(b"k" * 32)
    sign(folder, tmp_path / "key")
    signature = (folder / MAC).read_text()
    (folder / "findings" / "groups.json").write_text("forged")
    seal(folder)
    assert check(folder).is_whole
    with pytest.raises(DataError, match=MAC):  # sealing removes a signature that no longer holds
        is_signed_with(folder, tmp_path / "key")
    (folder / MAC).write_text(signature)
    assert not is_signed_with(folder, tmp_path / "key")


def test_a_key_too_short_to_be_secret_is_refused(folder, tmp_path):
    (tmp_path / "key").write_bytes(b"secret\n")
    with pytest.raises(SettingError, match="7 bytes, and at least 16"):
        sign(folder, tmp_path / "key")


def test_a_key_that_cannot_be_read_leaves_the_seal_and_its_signature_alone(folder, tmp_path, monkeypatch):
    from rightreasons import cli

    (tmp_path / "key").write_bytes(b"k" * 32)
    sign(folder, tmp_path / "key")
    before = {name: (folder / name).read_bytes() for name in (SEAL, MAC)}
    monkeypatch.setattr("sys.argv", ["rightreasons", "seal", str(folder), "--key", str(tmp_path / "none")])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert before == {name: (folder / name).read_bytes() for name in (SEAL, MAC)}


def test_a_folder_without_files_is_not_sealed(tmp_path):
    with pytest.raises(DataError, match="no files to seal"):
        seal(tmp_path)
    assert not (tmp_path / SEAL).exists()
