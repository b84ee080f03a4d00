"""Random changes of study.toml, model.json, tables and requests find no error that is not ours.

Each target runs for its share of RIGHTREASONS_FUZZ_SECONDS, two minutes by default: `make fuzz` gives ten. Every run draws the
same inputs in the same order and differs only in how far it gets; RIGHTREASONS_FUZZ_SEED draws others.
"""

from __future__ import annotations

import itertools
import json
import os
import socket
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from rightreasons.data.cohort import Cohort
from rightreasons.errors import RightReasonsError
from rightreasons.evidence import Evidence
from rightreasons.serve import _Http
from sample_findings import saved, some
from serving import plan_of, serving

pytestmark = pytest.mark.slow
SECONDS = float(os.environ.get("RIGHTREASONS_FUZZ_SECONDS", "120")) / 4
FIRST = int(os.environ.get("RIGHTREASONS_FUZZ_SEED", "0"))

WORDS = st.sampled_from(
    ["", "y", "sex", "erm", "cnn", "x", "../x", "groups", "data", "fresh", "auto", "-1", "nan", "é", "a" * 300]
)
PLAIN = st.one_of(
    WORDS, st.integers(-3, 5), st.integers(), st.floats(), st.booleans(), st.text(max_size=8).filter(lambda t: ":" not in t)
)
VALUES = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3), max_leaves=6)


def fuzz(strategy: st.SearchStrategy[Any], check: Callable[[Any], None]) -> None:
    """Try what a strategy draws until the time is over; hypothesis makes what fails as small as it can."""
    end = time.monotonic() + SECONDS
    limits = settings(max_examples=50, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    for drawn in itertools.count(FIRST):
        if time.monotonic() > end:
            return
        seed(drawn)(limits(given(strategy)(check)))()


def changed(value: Any, path: list[int], new: Any, drops: bool) -> Any:
    """The same plain data with another value at a place, or without it."""
    if not path or not isinstance(value, dict | list) or not value:
        return new
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    key = keys[path[0] % len(keys)]
    found = dict(value) if isinstance(value, dict) else list(value)
    if drops and len(path) == 1:
        del found[key]
    else:
        found[key] = changed(value[key], path[1:], new, drops)
    return found


CHANGES = st.lists(st.tuples(st.lists(st.integers(0, 20), min_size=1, max_size=4), VALUES, st.booleans()), min_size=1, max_size=3)


def ours_or_none(call: Callable[[], object]) -> None:
    """An error of ours is an answer; any other one is what is looked for."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            call()
    except RightReasonsError as error:
        assert str(error).strip()


@pytest.fixture
def images(tmp_path: Path) -> Path:
    from rightreasons.data import planted

    world = planted.digits(tmp_path / "world", n=80, pixels=16)
    return world.save(tmp_path / "rows.parquet")


@pytest.mark.torch
def test_a_study_that_is_changed_at_random_is_planned_or_refused(images, tmp_path):
    from rightreasons.study.runs import plan

    tables = {
        "name": "x",
        "seed": 0,
        "engine": "local",
        "data": {"manifest": str(images)},
        "architectures": {"cnn": {"model": "rightreasons.models.small:small_cnn", "size": 16, "width": 4}},
        "regimes": {"erm": {"method": "erm"}, "balanced": {"method": "balanced"}},
        "train": {"epochs": 1, "lr": 0.1, "batch": 8},
        "runs": [{"architecture": "cnn", "regime": ["erm", "balanced"], "seed": [0, 1]}],
        "extract": {"batch": 32},
        "performance": {"B": 50},
        "audits": {"groups": {"B": 50, "level": 0.9}, "flips": {}},
        "curves": {"c": {"y": "accuracy"}},
        "tables": {"t": {"columns": ["accuracy"]}},
        "relations": {"r": {"x": "accuracy", "y": "auc"}},
        "pairs": {"p": {"of": ["erm", "balanced"], "columns": "accuracy"}},
    }

    def check(changes: list[tuple[list[int], Any, bool]]) -> None:
        told: Any = tables
        for path, new, drops in changes:
            told = changed(told, path, new, drops)
        if not isinstance(told, dict):
            return
        try:
            text = tomli_w.dumps(told)
        except (TypeError, ValueError):
            return
        source = tmp_path / "study.toml"
        source.write_text(text, encoding="utf-8", errors="surrogateescape")
        ours_or_none(lambda: plan(source, tmp_path / "out", save=False))

    fuzz(CHANGES, check)


@pytest.mark.torch
def test_a_model_whose_description_is_changed_at_random_is_opened_or_refused(tmp_path):
    from rightreasons.models.classifier import Classifier

    folder = Classifier.load("rightreasons.models.small:small_cnn", num_classes=2, size=16).save(tmp_path / "model")
    told = json.loads((folder / "model.json").read_text())

    def check(changes: list[tuple[list[int], Any, bool]]) -> None:
        found: Any = told
        for path, new, drops in changes:
            found = changed(found, path, new, drops)
        (folder / "model.json").write_text(json.dumps(found))
        ours_or_none(lambda: Classifier.open(folder))

    fuzz(CHANGES, check)


CELLS = st.one_of(
    st.sampled_from(
        ["", "0", "1", "0.5", "f", "m", "nan", "inf", "-1", "1e400", "True", "9007199254740993", '"', "a;b", "0,5", "é", "\0"]
    ),
    st.text(max_size=4),
)
NAMES = st.one_of(st.sampled_from(["id", "y", "sex", "p", "p_0", "p_1", "p_ill", "", "split", " y"]), st.text(max_size=4))


def test_a_table_of_any_header_and_cells_is_read_or_refused(tmp_path):
    drawn = st.tuples(
        st.lists(NAMES, max_size=6), st.lists(st.lists(CELLS, max_size=7), max_size=6), st.sampled_from([",", ";", "\t", "|"]),
        st.sampled_from(["utf-8", "utf-16", "latin-1", "utf-8-sig"]),
    )  # fmt: skip

    def check(told: tuple[list[str], list[list[str]], str, str]) -> None:
        header, rows, separator, encoding = told
        text = "\n".join(separator.join(cells) for cells in [header, *rows])
        (tmp_path / "t.csv").write_bytes(text.encode(encoding, "replace"))
        columns = {"label": "y", "attribute": "sex", "image": None}
        ours_or_none(lambda: Cohort.read(tmp_path / "t.csv", **columns, mapping={"1": "one"}, bins={"sex": 2}))
        ours_or_none(lambda: Cohort.read(tmp_path / "t.csv", **columns, id="id", split="split", missing="f"))
        ours_or_none(lambda: Evidence.from_predictions(tmp_path / "t.csv", label="y", attribute="sex"))

    fuzz(drawn, check)


def test_no_request_ends_in_an_error_of_the_server(tmp_path, monkeypatch):
    saved(tmp_path / "audit", some())
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "plan.json").write_text(json.dumps(plan_of("study", ["u0"])))
    seen: list[BaseException | None] = []

    def note(self: object, request: object, client: object) -> None:
        import sys

        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            seen.append(sys.exception())

    monkeypatch.setattr(_Http, "handle_error", note)
    known = ["/", "/at/audit/", "/at/study/", "/at/study/progress.json", "/compare?a=audit&b=audit", "/at/audit/report.html"]
    odd = ["//[", "/at/%00", "/at/..%2f..", "http://[/", "/compare?" + "a=1&" * 50, "*", "/at/audit/findings/x.json"]
    begins = st.sampled_from(["/", "/at/", "/compare?a="])
    paths = st.one_of(st.sampled_from([*known, *odd]), st.tuples(begins, st.text(max_size=20)).map("".join))
    hosts = st.one_of(
        st.sampled_from(["127.0.0.1", "[", "]", "[::1]", "localhost:99999999", "a" * 500, "", "[v1.x]"]), st.text(max_size=8)
    )
    requests = st.tuples(
        st.sampled_from(["GET", "HEAD", "POST", "XX", ""]), paths, hosts, st.sampled_from(["HTTP/1.1", "HTTP/1.0", "HTTP/9", ""])
    )

    with serving(tmp_path) as server:
        host, _, port = server.address.split("/")[2].partition(":")

        def check(told: tuple[str, str, str, str]) -> None:
            method, path, name, version = told
            line = f"{method} {path} {version}\r\nHost: {name}\r\nConnection: close\r\n\r\n"
            with socket.create_connection((host, int(port)), timeout=60) as connection:
                connection.sendall(line.encode("utf-8", "replace"))
                connection.shutdown(socket.SHUT_WR)
                status = connection.makefile("rb").readline()
            assert not seen, seen
            assert b" 500 " not in status, status

        fuzz(requests, check)
