"""A seal: the SHA-256 of every file of a folder, so that whoever gets the folder sees whether it is as it was written.

    seal.json    format, digest, results, circumstances, inputs
    seal.hmac    with a key: the HMAC-SHA256 of seal.json

*Results* are the files that two equal runs write equal to the byte, and `digest` is one hash over them. *Circumstances* are all
others: they hold times, versions, paths or commands, or are pages that show such. *Inputs* lie elsewhere.

The seal shows damage, and changes by whoever does not renew it. It is no signature: without a key anyone can make a new one,
and with a key everyone who can check it can.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rightreasons.errors import DataError, SettingError
from rightreasons.files import read_bytes, write
from rightreasons.progress import track
from rightreasons.stored import known_format

FORMAT = 1
SEAL, MAC = "seal.json", "seal.hmac"
LEAST_KEY = 16  # bytes

# Paths as fnmatch sees them: a star matches slashes too, for units and demos have such folders deeper down.
RESULTS = (
    "*findings/*.json", "*concluded.json",
    "*evidence/*/c/*", "*evidence/*/zarr.json", "*evidence/*.npz",
    "*predictions/*", "*measurements/*", "*panels/*", "*severities*.json", "*model.safetensors",
    "*summary.parquet", "*estimates.parquet",
)  # fmt: skip
UNSEALED = (SEAL, f"{SEAL}.*", MAC, "lock", "*/lock", "*/lock-*", "log.txt", "*/log.txt", ".*", "*/.*")
"""What is no part of a seal: locks, what a worker said, hidden files, and signatures that other tools put beside."""

Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Input(BaseModel):
    """A file that a run read from elsewhere."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str
    sha256: Digest


class Seal(BaseModel):
    """What seal.json holds: path within the folder → hash."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: int = FORMAT
    digest: Digest
    results: dict[str, Digest]
    circumstances: dict[str, Digest]
    inputs: dict[str, Input] = {}

    @property
    def files(self) -> dict[str, str]:
        return {**self.results, **self.circumstances}


@dataclass(frozen=True)
class Seen:
    """A folder beside its seal.

    Attributes
    ----------
    files : how many are sealed
    digest : of the results as they lie there now
    changed, missing, added : paths within the folder
    inputs : what became of files that lie elsewhere, in words; they do not break a seal
    """

    files: int
    digest: str
    changed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        return not (self.changed or self.missing or self.added)

    @property
    def lines(self) -> list[str]:
        """Every file that is not as it was sealed."""
        kinds = (("changed", self.changed), ("missing", self.missing), ("added", self.added))
        return [f"{kind}: {name}" for kind, names in kinds for name in names]


def seal(folder: str | os.PathLike[str], *, inputs: Mapping[str, str | os.PathLike[str]] | None = None) -> Seal:
    """Hash every file of a folder and write seal.json; a MAC of an earlier seal is removed.

    Parameters
    ----------
    inputs : what it is → a file that was read from elsewhere; the inputs of an earlier seal by default
    """
    place = Path(folder)
    if not place.is_dir():
        raise DataError(f"{place} is not a folder: name the folder that audit, sweep or mitigate wrote")
    if inputs is None:
        known = read(place).inputs if (place / SEAL).is_file() else {}
    else:
        known = {what: Input(path=str(Path(file).absolute()), sha256=_hash(Path(file))) for what, file in inputs.items()}
    hashes = _hashes(place)
    if not hashes:
        raise DataError(f"{place} has no files to seal: name the folder that audit, sweep or mitigate wrote")
    return _write(place, hashes, known)


def renew(folder: str | os.PathLike[str], names: Iterable[str]) -> Seal:
    """Hash again what a run that did nothing else has written anew; all other hashes, and what became of the files, stay."""
    place = Path(folder)
    if not (place / SEAL).is_file():
        return seal(place)
    before = read(place)
    now = {name: _hash(place / name) for name in names if (place / name).is_file()}
    if all(before.files.get(name) == digest for name, digest in now.items()):
        return before
    return _write(place, {**before.files, **now}, before.inputs)


def check(folder: str | os.PathLike[str]) -> Seen:
    """Compare a folder with its seal."""
    place = Path(folder)
    sealed, now = read(place), _hashes(place)
    was = sealed.files
    return Seen(
        files=len(was),
        digest=_digest({name: now[name] for name in now if _is_result(name)}),
        changed=tuple(sorted(name for name in was.keys() & now.keys() if was[name] != now[name])),
        missing=tuple(sorted(was.keys() - now.keys())),
        added=tuple(sorted(now.keys() - was.keys())),
        inputs=tuple(_input_lines(sealed.inputs)),
    )


def is_sealed(folder: str | os.PathLike[str]) -> bool:
    """Whether there is a seal, broken or not."""
    return (Path(folder) / SEAL).is_file()


def read(folder: str | os.PathLike[str]) -> Seal:
    """The seal of a folder."""
    file = Path(folder) / SEAL
    if Path(folder).is_file():
        raise DataError(f"{folder} is a file: name the folder that audit, sweep or mitigate wrote")
    try:
        content = json.loads(read_bytes(file))
        if isinstance(content, dict):
            known_format(content.get("format"), FORMAT, file)
        sealed = Seal.model_validate(content)
    except FileNotFoundError as error:
        raise DataError(
            f"{folder} has no {SEAL}: it was not finished, or written by an earlier version; finish it with the command that "
            f"began it, or seal it as it is with rightreasons seal {folder}"
        ) from error
    except DataError:
        raise
    except (ValidationError, ValueError) as error:
        raise DataError(f"{file} is not a seal: {_reason(error)}") from error
    if sealed.digest != _digest(sealed.results):
        raise DataError(f"{file} was changed: its digest is not that of its results")
    return sealed


# ---- with a key ----------------------------------------------------------------------------------------------------------


def sign(folder: str | os.PathLike[str], key: str | os.PathLike[str]) -> Path:
    """Write seal.hmac, which only who has the key can make."""
    return write(Path(folder) / MAC, _mac(Path(folder), Path(key)) + "\n")


def refuse_weak_key(key: str | os.PathLike[str]) -> None:
    """Refuse a key that is not there or too short, before anything is sealed."""
    _secret(Path(key))


def is_signed_with(folder: str | os.PathLike[str], key: str | os.PathLike[str]) -> bool:
    """Whether seal.hmac was made of this seal with this key."""
    file = Path(folder) / MAC
    if not file.is_file():
        raise DataError(f"{folder} has no {MAC}: make it with rightreasons seal {folder} --key {key}")
    return hmac.compare_digest(file.read_bytes().strip(), _mac(Path(folder), Path(key)).encode())


def _mac(folder: Path, key: Path) -> str:
    return hmac.new(_secret(key), (folder / SEAL).read_bytes(), hashlib.sha256).hexdigest()


def _secret(key: Path) -> bytes:
    if not key.exists():
        raise SettingError(f"there is no key at {key}: make one, as with openssl rand -out {key} 32")
    secret = read_bytes(key)
    if len(secret) < LEAST_KEY:
        raise SettingError(
            f"the key {key} has {len(secret)} bytes, and at least {LEAST_KEY} are needed: make one, as with "
            f"openssl rand -out {key} 32"
        )
    return secret


# ---- hashes --------------------------------------------------------------------------------------------------------------


def _write(folder: Path, hashes: Mapping[str, str], inputs: Mapping[str, Input]) -> Seal:
    results = {name: hashes[name] for name in sorted(hashes) if _is_result(name)}
    others = {name: hashes[name] for name in sorted(hashes) if not _is_result(name)}
    made = Seal(digest=_digest(results), results=results, circumstances=others, inputs=dict(inputs))
    write(folder / SEAL, made.model_dump_json(indent=1) + "\n")
    (folder / MAC).unlink(missing_ok=True)
    return made


def _hashes(folder: Path) -> dict[str, str]:
    return {name: _hash(folder / name) for name in track(list(_names(folder)), "hashes of files")}


def _names(folder: Path) -> Iterator[str]:
    """Paths of the files to be sealed within a folder, with slashes. A link is sealed as what it leads to."""
    for place, folders, files in os.walk(folder):
        folders.sort()
        for file in sorted(files):
            path = Path(place) / file
            name = path.relative_to(folder).as_posix()
            if path.is_file() and not any(fnmatchcase(name, pattern) for pattern in UNSEALED):
                yield name


def _hash(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _digest(results: Mapping[str, str]) -> str:
    """One hash over names and hashes, as `sha256sum` would list them."""
    return hashlib.sha256("".join(f"{results[name]}  {name}\n" for name in sorted(results)).encode()).hexdigest()


def _is_result(name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in RESULTS)


def _input_lines(inputs: Mapping[str, Input]) -> Iterator[str]:
    for what, given in inputs.items():
        file = Path(given.path)
        if not file.is_file():
            yield f"{what} {given.path} is not there any more: not compared"
        elif _hash(file) != given.sha256:
            yield f"{what} {given.path} is not the file that was read"


def _reason(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        return f"{'.'.join(map(str, first['loc'])) or 'the file'}: {first['msg']}"
    return str(error)
