"""The Ray engine: files through a store, a two-node cluster, a node killed in the middle; always the local engine's numbers."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

torch = pytest.importorskip("torch")

from rightreasons.errors import DataError, SettingError  # noqa: E402
from rightreasons.study import Study  # noqa: E402
from rightreasons.study.engines import Event, Task, _store  # noqa: E402
from rightreasons.study.engines import ray as engine_of_ray  # noqa: E402
from rightreasons.study.engines._store import Publisher, Store  # noqa: E402
from rightreasons.study.engines.ray import Order, Post, cause, perform  # noqa: E402
from rightreasons.study.runs import plan  # noqa: E402
from rightreasons.study.sweep import sweep  # noqa: E402

pytestmark = pytest.mark.torch

STUDY = """
name = "tiny"
engine = "{engine}"

[data]
world = "digits"
n = 240
pixels = 16

[architectures.cnn]
model = "rightreasons.models.small:small_cnn"
size = 16
width = 8

[train]
epochs = {epochs}
batch = 32

[[runs]]
seed = {seeds}

[extract]
batch = 8
chunk = 8

[performance]
B = 50

[audits.groups]
B = 50

[engine_settings]
{settings}
"""


def write_study(folder: Path, engine: str = "local", epochs: int = 2, seeds: int = 1, **settings: Any) -> Path:
    lines = "\n".join(f"{key} = {value!r}".replace("True", "true") for key, value in {"threads": 1, **settings}.items())
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{engine}.toml"
    file.write_text(STUDY.format(engine=engine, epochs=epochs, seeds=list(range(seeds)), settings=lines))
    return file


def numbers(study: Study) -> pd.DataFrame:
    """The table without the columns that hold times."""
    return study.table[[name for name in study.table if not name.startswith("time_")]]


def same_files(one: Study, other: Study, unit: str) -> bool:
    names = ("model/model.safetensors", "predictions/test.parquet")
    return all((one.path(unit) / name).read_bytes() == (other.path(unit) / name).read_bytes() for name in names)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """One unit, worked on in this process without any engine."""
    from rightreasons.study.unit import work

    folder = tmp_path_factory.mktemp("alone")
    study = plan(write_study(folder), folder / "study")
    torch.set_num_threads(1)
    assert work(study.folder, Task(study.units[0], (study.units[0],))) == "done"
    return study


# ---- the store -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["path", "file", "memory"])
def test_files_come_out_of_a_store_as_they_went_in(tmp_path: Path, kind: str) -> None:
    url = {"path": str(tmp_path / "store"), "file": f"file://{tmp_path}/store", "memory": f"memory://{tmp_path.name}"}[kind]
    store, home = Store(url), tmp_path / "home"
    (home / "runs" / "a").mkdir(parents=True)
    for name, content in {"x.bin": os.urandom(3_000_000), "y.json": b"{}", "same.json": b"{}", "lock": b""}.items():
        (home / "runs" / "a" / name).write_bytes(content)
    listing = store.send(home, _store.files_in(home, ["runs"]), "tiny/files")
    assert sorted(listing) == ["runs/a/same.json", "runs/a/x.bin", "runs/a/y.json"]
    assert listing["runs/a/same.json"] == listing["runs/a/y.json"]
    assert store.published("tiny") is None
    store.publish("tiny", listing)
    store.fetch(store.published("tiny") or {}, tmp_path / "other")
    for path in listing:
        assert (tmp_path / "other" / path).read_bytes() == (home / path).read_bytes()
    store.remove("tiny")
    store.remove("tiny")
    assert store.published("tiny") is None


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "store"))
    (tmp_path / "a").write_bytes(b"content")
    listing = store.send(tmp_path, ["a"], "place")
    (tmp_path / "store" / listing["a"]).write_bytes(b"contents")
    with pytest.raises(DataError, match="another content"):
        store.fetch(listing, tmp_path / "other")
    assert not (tmp_path / "other" / "a").exists()


def test_a_store_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(SettingError, match="nosuch://bucket"):
        Store("nosuch://bucket")


def test_a_place_that_is_written_to_while_it_is_removed_goes_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that was given up may still send something."""
    store = Store(str(tmp_path / "store"))
    (tmp_path / "a").write_bytes(b"content")
    store.send(tmp_path, ["a"], "place")
    errors, remove = [OSError(errno.ENOTEMPTY, "Directory not empty"), FileNotFoundError()], store.fs.rm

    def meddled_with(*given: Any, **settings: Any) -> None:
        if errors:
            raise errors.pop()
        remove(*given, **settings)

    monkeypatch.setattr(store.fs, "rm", meddled_with)
    store.remove("place")
    assert not errors and not (tmp_path / "store" / "place").exists()


def test_folders_that_vanish_are_passed_over(tmp_path: Path) -> None:
    """A worker removes folders while they are listed; what stays is always listed."""
    (tmp_path / "runs" / "kept").mkdir(parents=True)
    (tmp_path / "runs" / "kept" / "x.json").write_bytes(b"{}")
    stop = threading.Event()

    def come_and_go() -> None:
        while not stop.is_set():
            for k in range(20):
                (tmp_path / "runs" / "gone" / str(k)).mkdir(parents=True)
            shutil.rmtree(tmp_path / "runs" / "gone")

    worker = threading.Thread(target=come_and_go)
    worker.start()
    try:
        found = [_store.files_in(tmp_path, ["runs"]) for _ in range(300)]
    finally:
        stop.set()
        worker.join()
    assert {path for listing in found for path in listing} == {"runs/kept/x.json"} and all(found)


def test_every_published_state_is_one_that_there_was(tmp_path: Path) -> None:
    """A writer replaces two files in turn; no state may hold the second without the first."""
    store, home = Store(str(tmp_path / "store")), tmp_path / "home"
    run = home / "runs" / "a"
    run.mkdir(parents=True)
    stop = threading.Event()

    def replace(name: str, content: str) -> None:
        (run / f".{name}.partial").write_text(content)
        (run / f".{name}.partial").replace(run / name)

    def keep_writing() -> None:
        for number in itertools.count():
            if stop.is_set():
                return
            replace("first", str(number))
            replace("second", str(number))
            # Also long pauses: on a busy machine it may take longer than a short one to see that nothing changes.
            stop.wait(0.002 if number % 20 else 0.2)

    replace("first", "0")
    writer = threading.Thread(target=keep_writing)
    writer.start()
    seen, last, until = [], None, time.monotonic() + 300
    try:
        with Publisher(store, home, ["runs/a"], "place", every=0.01):
            for number in itertools.count():
                if len(seen) > 10 or time.monotonic() > until:
                    break
                time.sleep(0.02)
                listing = store.published("place")
                if listing is None or listing == last:
                    continue
                try:
                    store.fetch(listing, tmp_path / f"seen-{number}")
                except FileNotFoundError:  # superseded while it was read
                    continue
                values = [int(f.read_text()) for f in sorted((tmp_path / f"seen-{number}" / "runs" / "a").iterdir())]
                seen.append(values[0] - values[-1] if len(values) == 2 else 0)
                last = listing
    finally:
        stop.set()
        writer.join()
    assert len(seen) > 10
    assert set(seen) <= {0, 1}
    kept = [file for file in (tmp_path / "store" / "place").rglob("*") if file.is_file()]
    assert len(kept) <= 3  # the last state and its listing: what is superseded is removed


# ---- a task through the store, in this process ---------------------------------------------------------------------------


def through_store(study: Study, store: Path, task: Task, scratch: Path, every: float = 60.0) -> str:
    post = Post(str(store), study.folder.absolute(), str(scratch), every)
    said, listing = perform(Order(task.to_json(), "", 1, engine_of_ray.rightreasons.__version__, post.pack(task)))
    post.collect(task, listing, failed=said == "failed")
    post.clear()
    return said


def test_a_unit_that_went_through_a_store_has_the_same_numbers(tmp_path: Path, alone: Study) -> None:
    study = plan(write_study(tmp_path), tmp_path / "study")
    (unit,) = study.units
    assert through_store(study, tmp_path / "store", Task(unit, (unit,)), tmp_path / "scratch") == "done"
    pd.testing.assert_frame_equal(numbers(study), numbers(alone), check_exact=True)
    assert same_files(study, alone, unit)
    assert study.run(unit)["status"] == "done"
    assert not [file for file in (tmp_path / "store").rglob("*") if file.is_file()]
    assert not list((tmp_path / "scratch").glob("*/*/study/runs/*"))


def test_a_split_extraction_goes_through_the_store_piece_by_piece(tmp_path: Path, alone: Study) -> None:
    study = plan(write_study(tmp_path), tmp_path / "study")
    (unit,) = study.units
    rows = len(study.cohort("data").on("test"))
    pieces = [Task(f"{unit} {lo}", (unit,), "extract", "test", (lo, lo + 2)) for lo in range(0, -(-rows // 8), 2)]
    for task in (Task(f"{unit} train", (unit,), "train"), *pieces):
        assert through_store(study, tmp_path / "store", task, tmp_path / "scratch") == "done"
    assert len(list((study.path(unit) / "pieces").iterdir())) == len(pieces) > 1
    assert through_store(study, tmp_path / "store", Task(unit, (unit,)), tmp_path / "scratch") == "done"
    assert not (study.path(unit) / "pieces").exists()
    pd.testing.assert_frame_equal(numbers(study), numbers(alone), check_exact=True)


def test_the_members_of_a_batched_model_come_home_together(tmp_path: Path) -> None:
    from rightreasons.study.unit import work

    here, there = (plan(write_study(tmp_path, seeds=2, batched=True), tmp_path / name) for name in ("here", "there"))
    group = Task("group", here.units, "train")
    for task in (group, *(Task(unit, (unit,)) for unit in here.units)):
        assert work(here.folder, task) == "done"
        assert through_store(there, tmp_path / "store", task, tmp_path / "scratch") == "done"
    pd.testing.assert_frame_equal(numbers(there), numbers(here), check_exact=True)
    assert all(same_files(here, there, unit) for unit in here.units)


def test_a_failed_unit_brings_its_error_home(tmp_path: Path) -> None:
    study = plan(write_study(tmp_path), tmp_path / "study")
    (unit,) = study.units
    model = study.path(unit) / "model"
    model.mkdir(parents=True)
    (model / "model.json").write_text("no JSON")
    assert through_store(study, tmp_path / "store", Task(unit, (unit,)), tmp_path / "scratch") == "failed"
    assert study.status(unit) == "failed"
    assert study.run(unit)["error"]["traceback"]


def test_what_a_dead_worker_told_of_is_where_the_next_goes_on(
    tmp_path: Path, alone: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = plan(write_study(tmp_path), tmp_path / "study")
    (unit,) = study.units
    task = Task(unit, (unit,))
    post = Post(str(tmp_path / "store"), study.folder.absolute(), str(tmp_path / "scratch"), 0.05)
    order = Order(task.to_json(), "", 1, engine_of_ray.rightreasons.__version__, post.pack(task))

    def die_when_the_model_is_told_of(run: Any) -> None:
        def told() -> dict[str, str]:
            return post.store.published(order.parcel.place) or {}  # type: ignore[union-attr]

        def is_told(name: str) -> str:
            return next((sent for path, sent in told().items() if path.endswith(name)), "")

        while not is_told("model/model.json"):
            time.sleep(0.02)
        before = is_told("run.json")  # perhaps from before the training was noted there
        run.record["attempts"][-1]["step"] = "about to die"
        run._write()
        while is_told("run.json") == before:
            time.sleep(0.02)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("rightreasons.study.unit._Run.extract", die_when_the_model_is_told_of)
        with pytest.raises(KeyboardInterrupt):
            perform(order)
    post.collect(task, None)
    assert study.run(unit)["status"] == "running"
    assert through_store(study, tmp_path / "store", task, tmp_path / "scratch") == "done"
    assert [("train" in attempt["did"]) for attempt in study.run(unit)["attempts"]] == [True, False]
    pd.testing.assert_frame_equal(numbers(study), numbers(alone), check_exact=True)


def test_another_version_on_a_node_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="install one version"):
        perform(Order(Task("a", ("a",)).to_json(), str(tmp_path), 1, "0.0.0", None))


def test_a_cause_is_one_line() -> None:
    class Wrapped(Exception):
        cause = OSError("disk is gone\nmore")

    assert cause(Wrapped("a long traceback")) == "OSError: disk is gone"
    assert cause(ValueError("\n a\nb")) == "ValueError: a"
    assert cause(KeyError()) == "KeyError"


def test_settings_that_make_no_sense_are_refused_before_ray_starts(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="threads=0"):
        engine_of_ray.Engine(tmp_path, threads=0)


EPOCHS = 150  # seconds of training: long enough to be killed in the middle

# ---- a cluster -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head that runs nothing and two nodes of one CPU, all on the loopback address."""
    if find_spec("ray") is None:
        pytest.skip("Ray is not installed")
    engine_of_ray.imported()  # before anybody else imports it: this is where it is told to be quiet
    from ray.cluster_utils import Cluster

    common = {"node_ip_address": engine_of_ray.LOOPBACK, "object_store_memory": 100 << 20}
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **common})
    made.workers = [made.add_node(num_cpus=1, **common) for _ in range(2)]
    yield made
    made.shutdown()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Study:
    folder = tmp_path_factory.mktemp("local")
    return sweep(write_study(folder, epochs=EPOCHS, seeds=4, workers=2), folder / "study", say=lambda _: None)


@pytest.mark.slow
def test_two_nodes_give_the_local_table_to_the_bit(
    cluster: Any, undisturbed: Study, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    toml = write_study(tmp_path, "ray", epochs=EPOCHS, seeds=4, address=cluster.address)
    study = sweep(toml, tmp_path / "study", say=lambda _: None)
    pd.testing.assert_frame_equal(numbers(study), numbers(undisturbed), check_exact=True)
    assert all(same_files(study, undisturbed, unit) for unit in study.units)
    assert "raylet" not in "".join(capfd.readouterr())


@pytest.mark.slow
def test_a_node_killed_in_the_middle_costs_nothing_but_time(
    cluster: Any, undisturbed: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Workers work in scratch folders and meet the driver in a store only."""
    victim = cluster.workers.pop()
    next_event = engine_of_ray.Engine.next_event
    killed: list[Any] = []
    stopped: set[int] = set()

    def training() -> set[int]:
        """Workers that train; two of them are one on either node.

        By what run.json says, not by which files there are: a worker that is done removes its folder file by file. They remove
        folders meanwhile: `os.walk` passes over what has gone, where `Path.rglob` raises.
        """
        busy = set()
        for name, _, files in os.walk(tmp_path / "scratch"):
            folder = Path(name)
            if "run.json" not in files or not folder.match("study/runs/*"):  # no links of `study-state`
                continue
            with contextlib.suppress(FileNotFoundError):
                told = json.loads((folder / "run.json").read_bytes())
                last = told["attempts"][-1]
                if told["status"] == "running" and last.get("training") and not last["did"]:
                    busy.add(int(folder.parents[2].name.rpartition("-")[2]))  # a worker's home ends in its number
        return busy

    def send(worker: int, what: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, what)

    def kill_when_both_are_busy(self: engine_of_ray.Engine, timeout: float) -> Event | None:
        """Who trains is stopped until the other trains too: how far apart they begin is for a busy machine to say."""
        event = next_event(self, min(timeout, 0.1))
        busy = set() if killed else training()
        if len(busy) > 1:
            killed.append(victim)
            cluster.remove_node(victim, allow_graceful=False)
            busy = set()
        for worker in busy - stopped:
            send(worker, signal.SIGSTOP)
        for worker in stopped - busy:  # there is no more to wait for, or it was over before it was stopped
            send(worker, signal.SIGCONT)
        stopped.clear()
        stopped.update(busy)
        return event

    monkeypatch.setattr(engine_of_ray.Engine, "next_event", kill_when_both_are_busy)
    settings = {"address": cluster.address, "store": f"file://{tmp_path}/store", "scratch": f"{tmp_path}/scratch", "every": 0.5}
    toml = write_study(tmp_path, "ray", epochs=EPOCHS, seeds=4, **settings)
    try:
        study = sweep(toml, tmp_path / "study", say=lambda _: None)
    finally:
        for worker in stopped:
            send(worker, signal.SIGCONT)
    assert killed
    pd.testing.assert_frame_equal(numbers(study), numbers(undisturbed), check_exact=True)
    assert all(same_files(study, undisturbed, unit) for unit in study.units)
    causes = [attempt["cause"] for unit in study.units for attempt in study.run(unit)["attempts"]]
    assert any(said.startswith(("NodeDiedError", "WorkerCrashedError")) for said in causes), causes
    assert not [file for file in (tmp_path / "store").rglob("*") if file.is_file()]
    assert "raylet" not in "".join(capfd.readouterr()).lower()
