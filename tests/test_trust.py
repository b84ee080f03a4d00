"""No code of a file's choosing runs unless somebody at the keyboard has said so; and what was trusted is usable."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from typer.testing import CliRunner

from rightreasons import trust
from rightreasons.cli import app
from rightreasons.errors import NotTrusted, SettingError
from rightreasons.study.file import checked
from rightreasons.study.safe import refuse_unsafe

if TYPE_CHECKING:
    from click.testing import Result

NETS = """
from pathlib import Path
from rightreasons.models.small import small_cnn

Path("imported").touch()

def net(num_classes=2):
    return small_cnn(num_classes, width=4)
"""

STUDY = """
seed = 0
engine = "inline"
[data]
manifest = "data.csv"
id = "id"
label = "y"
attribute = "tag"
[architectures.net]
model = "{model}"
size = [8, 8]
mean = 0.5
std = 0.5
{more}
[[runs]]
architecture = "net"
seed = 0
[train]
epochs = 1
[audits.groups]
"""

BROUGHT = """
[data]
manifest = "data.csv"
id = "id"
label = "y"
attribute = "tag"
[model]
model = "{model}"
size = [8, 8]
mean = 0.5
std = 0.5
{more}
[audits.groups]
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a few images, a module of one's own, and modules that have the names of libraries."""
    rng = np.random.default_rng(0)
    np.save(tmp_path / "images.npy", rng.integers(0, 255, (48, 8, 8, 3), dtype=np.uint8))
    rows = ["id,y,tag,image"] + [f"r{k},{k % 2},{k // 2 % 2},images.npy#{k}" for k in range(48)]
    (tmp_path / "data.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "my_nets.py").write_text(NETS)
    for library in ("pyarrow", "nibabel", "pydantic", "pydicom", "matplotlib"):
        (tmp_path / f"{library}.py").write_text(f"open({str(tmp_path / 'hijacked')!r}, 'w')\nraise SystemExit('hijacked')\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def rightreasons(*arguments: str) -> Result:
    """The command in this process, in the current folder."""
    return CliRunner().invoke(app, list(arguments))


def in_a_process(*arguments: str, module: bool = False) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own; as `python -m rightreasons` where `module`."""
    start = ["-m", "rightreasons"] if module else ["-c", "from rightreasons.cli import main; main()"]
    clean = [] if module else ["-P"]  # an installed command does not have the current folder on its path either
    return subprocess.run([sys.executable, *clean, *start, *arguments], capture_output=True, text=True, check=False)


def is_refused(done: Result, module: str) -> bool:
    return isinstance(done.exception, NotTrusted) and f"--trust {module} " in str(done.exception)


def saved_model(folder: Path, spec: str) -> Path:
    """A folder as `train` writes it, whose model.json names another factory than the one that made it."""
    torch = pytest.importorskip("torch")
    from rightreasons.models.classifier import Classifier

    torch.manual_seed(0)
    settings = {"num_classes": 2, "size": 8, "mean": 0.5, "std": 0.5, "width": 4}
    made = Classifier.load("rightreasons.models.small:small_cnn", **settings)  # type: ignore[arg-type]
    made.save(folder)
    told = json.loads((folder / "model.json").read_text())
    settings = {"command": "touch called"} if spec == "os:system" else {}
    told["recipe"] = {"spec": spec, "num_classes": 2 if spec != "os:system" else None, "settings": settings}
    (folder / "model.json").write_text(json.dumps(told))
    return folder


# ---- the four routes -------------------------------------------------------------------------------------------------------


@pytest.mark.torch
@pytest.mark.parametrize("command", ["audit", "check", "extract", "train"])
def test_a_saved_model_that_names_a_function_of_the_system_calls_nothing(here: Path, command: str) -> None:
    saved_model(here / "model", "os:system")
    from rightreasons.models.classifier import Classifier

    with pytest.raises(NotTrusted, match="'os:system'"):
        Classifier.open(here / "model")
    assert is_refused(rightreasons(command, "data.csv", "--id", "id", "--label", "y", "--model", "model"), "os")
    assert not (here / "called").exists()


@pytest.mark.torch
@pytest.mark.parametrize(
    ("text", "command"),
    [(STUDY, ["sweep", "study.toml", "--dry-run"]), (STUDY, ["sweep", "study.toml"]), (BROUGHT, ["check", "study.toml"]),
     (BROUGHT, ["audit", "study.toml"])],
)  # fmt: skip
def test_a_study_that_names_a_function_of_the_system_calls_nothing(here: Path, text: str, command: list[str]) -> None:
    (here / "study.toml").write_text(text.format(model="os:system", more='command = "touch called"'))
    assert is_refused(rightreasons(*command), "os")
    assert not (here / "called").exists()


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize("module", [False, True])
def test_a_module_in_the_current_folder_is_not_taken_for_a_library(here: Path, module: bool) -> None:
    done = in_a_process("check", "data.csv", "--id", "id", "--label", "y", "--attribute", "tag", module=module)
    assert done.returncode in (0, 1), done.stderr
    assert "48 rows" in done.stdout
    assert not (here / "hijacked").exists()


@pytest.mark.torch
def test_what_was_trusted_is_used_from_the_current_folder_and_libraries_still_come_first(here: Path) -> None:
    (here / "study.toml").write_text(BROUGHT.format(model="my_nets:net", more=""))
    assert is_refused(rightreasons("check", "study.toml"), "my_nets")
    assert not (here / "imported").exists()
    done = rightreasons("check", "study.toml", "--trust", "my_nets")
    assert done.exit_code in (0, 1), done.output
    assert "48 rows" in done.output
    assert (here / "imported").exists()


@pytest.mark.slow
@pytest.mark.torch
def test_workers_of_a_sweep_trust_what_the_command_trusted(here: Path) -> None:
    text = STUDY.format(model="my_nets:net", more="").replace('engine = "inline"', "").replace("[train]", "[train]\nbatch = 16")
    (here / "study.toml").write_text(text)
    done = in_a_process("sweep", "study.toml", "--trust", "my_nets")
    assert done.returncode == 0, done.stdout + done.stderr
    assert list((here / "rightreasons-study" / "findings").glob("*.json"))


# ---- what trust means ------------------------------------------------------------------------------------------------------


def test_trust_covers_a_module_and_what_lies_in_it_and_ends_with_its_block() -> None:
    with trust.trusting("my_lab.nets"):
        trust.require("my_lab.nets", "x")
        trust.require("my_lab.nets.small", "x")
        for other in ("my_lab", "my_lab.netsy", "my_labnets"):
            with pytest.raises(NotTrusted):
                trust.require(other, "x")
    with pytest.raises(NotTrusted, match=r"--trust my_lab.nets"):
        trust.require("my_lab.nets", "x")


@pytest.mark.parametrize("named", ["", "os:system", "../evil", "my-lab", "a..b"])
def test_only_names_of_modules_can_be_trusted(named: str) -> None:
    with pytest.raises(SettingError, match="name of a module"), trust.trusting(named):
        pass


@pytest.mark.torch
@pytest.mark.parametrize(
    "spec",
    ["rightreasons.files:write", "rightreasons.demo:demo", "rightreasons.models.loading:load_file", "monai.bundle:run",
     "timm.utils:setup_default_logging", "torchvision.datasets.utils:download_url",
     "rightreasons.mitigations.attenuation:replace"],
)  # fmt: skip
def test_functions_of_known_packages_that_make_no_network_are_refused(spec: str) -> None:
    pytest.importorskip("torch")
    from rightreasons.models import loading

    with pytest.raises(NotTrusted):
        loading.build(spec)


@pytest.mark.torch
def test_factories_of_this_package_and_of_torchvision_need_no_trust() -> None:
    pytest.importorskip("torchvision")
    from rightreasons.models import loading

    for spec in ("rightreasons.models.small:small_cnn", "torchvision.models:squeezenet1_1"):
        assert loading.build(spec, num_classes=2).module is not None


@pytest.mark.torch
@pytest.mark.parametrize("augment", ["os:system", "subprocess:run"])
def test_an_augmentation_of_ones_own_needs_trust(augment: str) -> None:
    pytest.importorskip("torch")
    from rightreasons.models.training import augmentation_of

    with pytest.raises(NotTrusted):
        augmentation_of(augment)


# ---- what a file may not say -----------------------------------------------------------------------------------------------

DATA = {"data": {"manifest": "data.csv"}, "model": {"model": "model"}}


@pytest.mark.parametrize(
    "tables",
    [{"trust": ["os"]}, {"model": {"model": "os:system", "trust": ["os"]}}, {"architectures": {"a": {"trust": "os"}}},
     {"audits": {"a": {"trust": "os"}}}],
)  # fmt: skip
def test_a_file_cannot_trust_itself(tables: dict[str, object]) -> None:
    with pytest.raises(NotTrusted, match="a file cannot say whose code may run"):
        checked({**DATA, **tables}, "study.toml")


@pytest.mark.parametrize("name", ["../../x", "/tmp/x", "a/b", "..", "a\\b", ".hidden", "x\n"])
@pytest.mark.parametrize("where", ["name", "cohorts", "external", "audits", "regimes", "architectures"])
def test_names_that_would_leave_the_folder_are_refused(where: str, name: str) -> None:
    tables = {"name": name} if where == "name" else {where: {name: {}}}
    with pytest.raises(SettingError, match="no plain name"):
        refuse_unsafe({**DATA, **tables}, "study.toml")


def test_ordinary_names_pass() -> None:
    refuse_unsafe({**DATA, "name": "Röntgen 2026 (v1.2)", "audits": {"oscar-sex": {}, "groups": {}}}, "study.toml")


def test_a_model_that_says_its_own_trust_is_not_loaded(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from rightreasons.models.classifier import Classifier

    folder = saved_model(tmp_path / "model", "os:system")
    told = json.loads((folder / "model.json").read_text())
    told["trust"] = ["os"]
    told["recipe"]["settings"]["trust"] = ["os"]
    (folder / "model.json").write_text(json.dumps(told))
    with pytest.raises(NotTrusted):
        Classifier.open(folder)


def test_the_command_puts_nothing_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    from rightreasons.cli import main

    before = list(sys.path)
    monkeypatch.setattr(sys, "argv", ["rightreasons", "version"])
    with pytest.raises(SystemExit):
        main()
    assert sys.path == before
