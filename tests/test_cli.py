"""The command line: what works writes its page, and what does not is one sentence with the value and the way out."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rightreasons import cli
from rightreasons.cli import columns_of, model_settings
from rightreasons.errors import SettingError
from rightreasons.findings import Finding


@pytest.fixture
def run(monkeypatch, capsys):
    """Call the command line as a shell would: exit status, stdout, stderr."""

    def call(*arguments) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["rightreasons", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return call


def refused(found: tuple[int, str, str], *words: str) -> None:
    status, _, err = found
    assert status == 2, found
    assert err.count("\n") == 1 and err.startswith("error: "), err
    assert "Traceback" not in err
    for word in words:
        assert word in err, (word, err)


@pytest.fixture
def predictions(tmp_path) -> Path:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 120)
    z = rng.normal(size=120) + y
    table = pd.DataFrame({"id": [f"r{i}" for i in range(120)], "y": y, "sex": ["f", "m"] * 60, "age": rng.uniform(20, 90, 120)})
    table.assign(p=1 / (1 + np.exp(-z))).to_csv(tmp_path / "p.csv", index=False)
    return tmp_path / "p.csv"


# ---- help ----------------------------------------------------------------------------------------------------------------


def test_help_is_readable_and_imports_nothing_heavy():
    code = (
        "import sys; sys.argv = ['rightreasons', '--help']\n"
        "from rightreasons.cli import main\n"
        "try: main()\n"
        "finally: print([m for m in ('torch', 'timm', 'numba', 'pandas', 'sklearn', 'zarr') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip().endswith("[]")
    commands = found.stdout.partition("Commands:")[2]
    for name in ("demo", "audit", "extract", "train", "check", "report"):
        line = next(text for text in commands.splitlines() if text.strip().startswith(name))
        assert not line.endswith("..."), line


@pytest.mark.parametrize("command", ["audit", "extract", "train", "check"])
def test_commands_share_the_options_of_table_and_model(run, command):
    status, out, _ = run(command, "--help")
    assert status == 0
    for option in ("--label", "--attribute", "--split", "--twin-attribute", "--bins", "--model", "--checkpoint", "--num-classes"):
        assert option in out


@pytest.mark.parametrize("command", ["audit", "mitigate", "sweep"])
def test_help_is_ordered_by_topic(run, command):
    out = run(command, "--help")[1]
    topics = [line.removesuffix(":") for line in out.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert topics[0] == "Arguments" and topics[-1] == "Options" and len(topics) == len(set(topics)) >= 3
    assert out.rpartition("Options:")[2].count("--") <= 6, "an option of the command stands in no topic"


def test_the_version_is_printed(run):
    assert run("version")[1].strip() == __import__("rightreasons").__version__


def test_options_become_keywords():
    given = {"label": "y", "attribute": ["sex", "age"], "map": ["-1=0"], "kind": ["n=continuous"], "box": [], "split": None}
    keywords = columns_of({**given, "bins": ["age=40,60", "bmi=4", "iq=100.0"]})
    assert keywords == {
        "label": "y", "attribute": ["sex", "age"], "mapping": {"-1": "0"}, "bins": {"age": [40.0, 60.0], "bmi": 4, "iq": [100.0]},
        "kinds": {"n": "continuous"},
    }  # fmt: skip
    found = model_settings({"size": "224,192", "mean": "0.5", "classes": "cat, dog", "output": "3", "crop": None})
    assert found == {"size": (224, 192), "mean": [0.5], "classes": ["cat", "dog"], "output": 3}


@pytest.mark.parametrize("shared", [{"bins": ["age=old"]}, {"map": ["x"]}, {"kind": ["=continuous"]}])
def test_options_that_cannot_be_read_are_refused(shared):
    with pytest.raises(SettingError, match="is not"):
        columns_of(shared)


# ---- predictions alone: no torch --------------------------------------------------------------------------------------------


def test_predictions_alone_give_a_page(run, predictions, tmp_path):
    out = tmp_path / "out"
    status, said, _ = run("audit", "--predictions", predictions, "--label", "y", "--attribute", "sex", "--id", "id", "--out", out)
    assert status == 0
    assert "the page is" in said and "a column of twins" in said
    assert "verdict: inconclusive: The answers of p do not follow sex" in said
    page = (out / "report.html").read_text()
    assert "test decisions are right" in page
    found = {f.name: f for f in Finding.read_all(out)}
    assert set(found) == {"groups", "pull"} and found["groups"].n_rows == 120
    assert said.count("9 other audits") == 1 and "ask the vendor" in said
    assert (
        "behaviour, sex: " in said and "false positive rate" in said.splitlines()[-1] and "where sex = f" in said.splitlines()[-1]
    )


def test_several_attributes_are_audited_one_by_one(run, predictions, tmp_path):
    out = tmp_path / "out"
    attributes = ("--attribute", "sex", "--attribute", "age", "--bins", "age=50.0")
    assert run("audit", "--predictions", predictions, "--label", "y", *attributes, "--audits", "groups", "--out", out)[0] == 0
    found = {f.name: f for f in Finding.read_all(out)}
    assert set(found) == {"groups-sex", "groups-age"}
    assert (
        run("audit", "--predictions", predictions, "--label", "y", "--attribute", "sex", "--audits", "groups", "--out", out)[0]
        == 0
    )
    assert [f.name for f in Finding.read_all(out)] == ["groups"]  # what an earlier question left is gone
    assert any("age = below 50" in str(e) for e in found["groups-age"].exhibits)


def test_aligned_and_threshold_reach_the_audit(run, predictions, tmp_path):
    frame = pd.read_csv(predictions).assign(split=["val", "test", "test"] * 40)
    frame.to_csv(predictions, index=False)
    given = (
        "audit",
        "--predictions",
        predictions,
        "--label",
        "y",
        "--attribute",
        "sex",
        "--audits",
        "groups",
        "--split",
        "split",
    )
    assert run(*given, "--aligned", "f=0", "--aligned", "m=1", "--threshold", "max_f1", "--out", tmp_path / "o")[0] == 0
    (finding,) = Finding.read_all(tmp_path / "o")
    assert finding.settings["threshold"] == "max_f1" and finding.settings["aligned"] == {"f": "0", "m": "1"}
    assert next(e for e in finding.estimates if e.name == "conflict shortcut rate").value is not None
    assert any("max-F1 threshold" in str(e) for e in finding.exhibits)


def test_report_reads_findings_again(run, predictions, tmp_path):
    run("audit", "--predictions", predictions, "--label", "y", "--attribute", "sex", "--out", tmp_path / "o")
    status, said, _ = run("report", tmp_path / "o", "--out", tmp_path / "again.html", "--title", "Once more <b>")
    assert status == 0 and "groups" in said
    assert "Once more &lt;b&gt;" in (tmp_path / "again.html").read_text()


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--label", "yy"], ["no column 'yy'", "did you mean 'y'?"]),
        (["--label", "y", "--attribute", "gender"], ["no column 'gender'", "known: age, id, p, sex, y"]),
        (["--label", "age"], ["'age' has fractional values", "name another column"]),
        (["--label", "y", "--audits", "group"], ["no audits named 'group'", "did you mean 'groups'?"]),
        (
            ["--label", "y", "--attribute", "sex", "--aligned", "x=1"],
            ["--aligned names 'x'", "f, m", "--aligned sex:value=label"],
        ),
        (["--label", "y", "--aligned", "x"], ["--aligned 'x' is not name=value"]),
        (["--label", "y", "--threshold", "best"], ["threshold 'best' is not known: argmax, f1, max_f1"]),
        (["--label", "y", "--model", "timm:resnet18"], ["--model goes with a table of images"]),
        (["--label", "y", "--split", "sex"], ["no cohort 'test'", "it has f, m"]),
        (["--label", "y", "--truth", "sex"], ["--truth goes with a table of images and a model"]),
    ],
)
def test_a_wrong_option_is_one_sentence(run, predictions, tmp_path, arguments, words):
    refused(run("audit", "--predictions", predictions, "--out", tmp_path / "o", *arguments), *words)


def test_bad_probabilities_are_one_sentence_with_the_row(run, predictions, tmp_path):
    frame = pd.read_csv(predictions)
    frame.loc[7, "p"] = 1.5
    frame.to_csv(predictions, index=False)
    refused(run("audit", "--predictions", predictions, "--label", "y", "--out", tmp_path / "o"), "row 8", "1.5")


def test_files_that_are_not_there_are_one_sentence(run, tmp_path):
    missing = tmp_path / "nothing.csv"
    refused(run("audit", "--predictions", missing), str(missing))
    refused(run("report", tmp_path / "nowhere", "--out", tmp_path / "r.html"), str(tmp_path / "nowhere"))
    refused(run("audit"), "give either a table of images with --model, or --predictions")


def test_an_out_folder_that_is_a_file_is_one_sentence(run, predictions, tmp_path):
    (tmp_path / "taken").write_text("mine")
    refused(run("audit", "--predictions", predictions, "--label", "y", "--out", tmp_path / "taken"), "taken")
    assert (tmp_path / "taken").read_text() == "mine"


# ---- a table of images and a model --------------------------------------------------------------------------------------------

NETWORK = (
    "--model",
    "rightreasons.models.small:small_cnn",
    "--num-classes",
    "2",
    "--size",
    "16",
    "--mean",
    "0.5",
    "--std",
    "0.5",
)


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """A CSV with PNG images, label y, attribute sex, and weights of a small CNN, as a user would bring them."""
    pytest.importorskip("torch")
    from PIL import Image
    from safetensors.torch import save_file

    from rightreasons.data import planted
    from rightreasons.models.small import small_cnn

    folder = tmp_path_factory.mktemp("data")
    world = planted.digits(folder / "world", n=160, pixels=16, agreement=0.5)
    stack = np.load(world.root / world.image[0].partition("#")[0])
    rows = [int(reference.partition("#")[2]) for reference in world.image]
    for i, row in enumerate(rows):
        Image.fromarray(stack[row]).save(folder / f"{i}.png")
    sex = np.array(["f", "m"])[world.attribute("cue").values]
    table = pd.DataFrame({"image": [f"{i}.png" for i in range(len(rows))], "y": world.label, "sex": sex, "split": world.splits})
    table.to_csv(folder / "data.csv", index=False)
    save_file(small_cnn(2).state_dict(), folder / "w.safetensors")
    save_file(small_cnn(2, width=8).state_dict(), folder / "other.safetensors")
    return folder


@pytest.mark.torch
def test_the_audit_of_the_first_page_runs_end_to_end(run, data, tmp_path):
    given = ("--checkpoint", data / "w.safetensors", "--label", "y", "--attribute", "sex", "--out", tmp_path / "o")
    status, said, err = run("audit", data / "data.csv", *NETWORK, *given)
    assert status == 0, err
    assert "split split" in " ".join(said.split()) and "will run: " in said and "will not run: flips: " in said
    assert (tmp_path / "o" / "report.html").stat().st_size > 10_000
    found = {f.name: f for f in Finding.read_all(tmp_path / "o")}
    assert found["groups"].n_rows == 20 and found["probes"].n_rows == 20  # the column of splits is found
    assert found["flips"].not_run.startswith("no twins")
    before = sorted(p.stat().st_mtime_ns for p in (tmp_path / "o" / "evidence").rglob("c/*/*") if p.is_file())
    assert run("audit", data / "data.csv", *NETWORK, *given)[0] == 0  # a second run makes nothing again
    assert before == sorted(p.stat().st_mtime_ns for p in (tmp_path / "o" / "evidence").rglob("c/*/*") if p.is_file())


@pytest.mark.torch
def test_an_audit_leaves_a_study_that_repeats_and_can_be_checked(run, data, tmp_path):
    given = ("--checkpoint", data / "w.safetensors", "--label", "y", "--attribute", "sex", "--set", "groups.B=50")
    more = ("--audits", "groups,oscar", "--quick", "--out", tmp_path / "o")
    status, said, err = run("audit", data / "data.csv", *NETWORK, *given, *more)
    assert status == 0, err
    assert "quick audit of" in said and "verdict: inconclusive" in said
    first = {f.name: f for f in Finding.read_all(tmp_path / "o")}
    assert "nothing is trained with --quick" in first["oscar"].not_run
    study = tmp_path / "o" / "study.toml"
    assert run("audit", study, "--out", tmp_path / "again")[0] == 0
    again = {f.name: f for f in Finding.read_all(tmp_path / "again")}
    assert again["groups"].estimates == first["groups"].estimates and again["groups"].settings == first["groups"].settings
    status, said, _ = run("check", study)
    assert status == 0, said
    text = (tmp_path / "o" / "report.html").read_text()
    assert "rightreasons audit" in text and str(study) in text
    refused(run("audit", study, "--label", "y", "--set", "groups.B=9"), "leave out --set, --label")
    refused(run("audit", study, "--quick", "--full"), "give one of them")


@pytest.mark.torch
def test_a_threshold_from_validation_rows_extracts_them_too(run, data, tmp_path):
    given = ("--checkpoint", data / "w.safetensors", "--label", "y", "--attribute", "sex", "--split", "split")
    more = ("--audits", "groups", "--threshold", "max_f1", "--out", tmp_path)
    assert run("audit", data / "data.csv", *NETWORK, *given, *more)[0] == 0
    (finding,) = Finding.read_all(tmp_path)
    assert not finding.not_run, finding.not_run


@pytest.mark.torch
def test_extract_keeps_what_audit_then_reads(run, data, tmp_path):
    given = ("--checkpoint", data / "w.safetensors", "--label", "y", "--attribute", "sex", "--out", tmp_path)
    status, said, _ = run("extract", data / "data.csv", *NETWORK, *given)
    assert status == 0 and "features, logits" in said
    assert run("audit", data / "data.csv", *NETWORK, *given)[0] == 0


@pytest.mark.torch
def test_another_attribute_in_the_same_folder_is_not_answered_with_the_old_one(run, data, tmp_path):
    frame = pd.read_csv(data / "data.csv").assign(site=["A", "B"] * 80)
    table = data / "sites.csv"
    frame.to_csv(table, index=False)
    given = ("--checkpoint", data / "w.safetensors", "--label", "y", "--split", "split", "--audits", "groups", "--out", tmp_path)
    for attribute in ("sex", "site"):
        assert run("audit", table, *NETWORK, *given, "--attribute", attribute)[0] == 0
        (finding,) = Finding.read_all(tmp_path)
        assert finding.attribute == attribute


@pytest.mark.torch
@pytest.mark.parametrize(
    "change, words",
    [
        ({"--label": "why"}, ["no column 'why'", "known:"]),
        ({"--checkpoint": "other.safetensors"}, ["other.safetensors", "body.0.0.weight"]),
        ({"--checkpoint": "none.pt"}, ["none.pt"]),
        ({"--checkpoint": "data.csv"}, ["data.csv"]),
        ({"--model": "timm:resnet19"}, ["resnet19", "resnet18"]),
        ({"--model": None}, ["give --model"]),
        ({"--split": "sex"}, ["no rows in split 'test' (it has", "leave --split out"]),
        ({"--size": "big"}, ["'big' is not numbers"]),
        ({"--classes": "ill,well"}, ["ill", "--classes"]),
    ],
)
def test_a_wrong_table_or_model_is_one_sentence(run, data, tmp_path, change, words):
    options = dict(zip(NETWORK[::2], NETWORK[1::2], strict=True))
    options |= {"--checkpoint": "w.safetensors", "--label": "y", "--attribute": "sex", **change}
    if options["--checkpoint"]:
        options["--checkpoint"] = data / options["--checkpoint"]
    given = [part for option, value in options.items() if value is not None for part in (option, value)]
    found = run("audit", data / "data.csv", *given, "--out", tmp_path)
    status, _, err = found
    assert status == 2 and "Traceback" not in err and err.startswith("error: "), found
    for word in words:
        assert word in err, (word, err)
    assert not (tmp_path / "report.html").exists()


@pytest.mark.torch
def test_a_broken_image_is_one_sentence_and_mended_it_is_audited(run, data, tmp_path):
    frame = pd.read_csv(data / "data.csv")
    frame["split"] = "test"
    frame.loc[:79, "split"] = "audit"
    table, broken = data / "broken.csv", data / "broken.png"
    broken.write_bytes((data / "120.png").read_bytes()[:60])
    frame.loc[120, "image"] = "broken.png"
    frame.to_csv(table, index=False)
    given = ("--checkpoint", data / "w.safetensors", "--label", "y", "--attribute", "sex", "--split", "split", "--out", tmp_path)
    refused(run("audit", table, *NETWORK, *given), "broken.png")
    broken.write_bytes((data / "120.png").read_bytes())
    assert run("audit", table, *NETWORK, *given, "--audits", "groups")[0] == 0


@pytest.mark.torch
def test_one_class_and_an_empty_group_are_said_on_the_page(run, data, tmp_path):
    frame = pd.read_csv(data / "data.csv")
    given = ("--checkpoint", data / "w.safetensors", "--label", "y", "--attribute", "sex")
    frame.assign(y=1).to_csv(data / "one.csv", index=False)
    status, _, err = run("audit", data / "one.csv", *NETWORK, *given, "--out", tmp_path / "one")
    assert status == 0, err
    groups = next(f for f in Finding.read_all(tmp_path / "one") if f.name == "groups")
    assert next(e for e in groups.estimates if e.name == "AUC").reason == "one class only"
    frame[~((frame.y == 1) & (frame.sex == "m"))].to_csv(data / "empty.csv", index=False)
    assert run("audit", data / "empty.csv", *NETWORK, *given, "--out", tmp_path / "empty")[0] == 0
    groups = next(f for f in Finding.read_all(tmp_path / "empty") if f.name == "groups")
    assert "y = 1, sex = m: 0" in str(groups.checks)


@pytest.mark.torch
def test_random_weights_are_said(run, data, tmp_path):
    given = ("--model", "timm:test_resnet", "--num-classes", "2", "--size", "32", "--label", "y", "--attribute", "sex")
    status, _, err = run("audit", data / "data.csv", *given, "--audits", "groups", "--out", tmp_path)
    assert status == 0 and "note: no --checkpoint: the weights of timm:test_resnet are random" in err


@pytest.mark.torch
def test_check_has_its_own_exit_status(run, data):
    given = ("--label", "y", "--attribute", "sex", "--split", "split")
    status, out, _ = run("check", data / "data.csv", *given)
    assert status == 0, out
    frame = pd.read_csv(data / "data.csv")
    frame.loc[3, "image"] = "gone.png"
    frame.to_csv(data / "gone.csv", index=False)
    status, out, _ = run("check", data / "gone.csv", *given)
    assert status == 1 and "gone.png" in out
    status, out, _ = run("check", data / "gone.csv", *given, "--json")
    assert status == 1 and json.loads(out)
    assert run("check", data / "data.csv", *given, *NETWORK, "--checkpoint", data / "w.safetensors")[0] == 0
    refused(run("check", data / "data.csv", *given, *NETWORK, "--checkpoint", data / "none.pt"), "none.pt")


@pytest.mark.torch
def test_a_trained_folder_is_audited_by_its_name(run, data, tmp_path):
    columns = ("--label", "y", "--attribute", "sex", "--split", "split")
    given = ("train", data / "data.csv", *NETWORK, *columns, "--epochs", "2", "--batch", "16", "--out", tmp_path / "m")
    status, said, err = run(*given)
    assert status == 0, err
    assert "audit it with --model" in said
    status, _, err = run("audit", data / "data.csv", "--model", tmp_path / "m", *columns, "--out", tmp_path / "o")
    assert status == 0, err
    groups = next(f for f in Finding.read_all(tmp_path / "o") if f.name == "groups")
    assert next(c for c in groups.checks if c.name == "training rows known").passed
    refused(run("audit", data / "data.csv", "--model", tmp_path / "m", "--size", "8", *columns), "leave out --size")
    refused(run(*given, "--lr", "0.5"), str(tmp_path / "m"))  # another plan in a finished folder


@pytest.mark.torch
def test_training_that_cannot_start_is_one_sentence(run, data, tmp_path):
    frame = pd.read_csv(data / "data.csv").assign(age=np.linspace(20, 90, 160))
    frame.to_csv(data / "ages.csv", index=False)
    given = ("train", data / "ages.csv", *NETWORK, "--label", "y", "--attribute", "age", "--out", tmp_path)
    refused(run(*given, "--target", "age"), "age has no classes to learn", "--bins age=")
    refused(run(*given, "--target", "height"), "no attribute 'height'", "known: age")
    refused(run(*given, "--stop-on", "luck"), "luck")
    frame.assign(y=1).to_csv(data / "ages.csv", index=False)
    status, _, err = run(*given)
    assert status == 2 and err.startswith("error: ") and "Traceback" not in err, err
