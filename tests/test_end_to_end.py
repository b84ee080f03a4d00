"""From a planted world to a page: a model that learnt the cue is called, one trained without the association is not."""

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

torch = pytest.importorskip("torch")

import rightreasons as rr  # noqa: E402
from rightreasons.data import planted  # noqa: E402
from rightreasons.findings import Finding  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.slow]

NETWORK = "rightreasons.models.small:small_cnn"


def trained(cohort, folder, name, **settings):
    start = rr.Classifier.load(NETWORK, num_classes=2, size=(16, 16), mean=0.5, std=0.5)
    given = {"epochs": 6, "lr": 5e-3, "batch": 32, "patience": None, "threads": 1, "device": "cpu", "regime": name}
    return rr.train(start, cohort, folder=folder, **{**given, **settings})


AUDITS = ["excess", "flips", "groups", "probes"]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    return planted.digits(folder, pixels=16, agreement=0.98, size=4, seed=0), planted.redrawn(folder), folder


@pytest.fixture(scope="module")
def audited(world, tmp_path_factory):
    """Findings of the biased and of the balanced model, by name, and the page."""
    out = tmp_path_factory.mktemp("out")
    found = {}
    for name, cohort in (("biased", world[0]), ("balanced", world[1])):
        model = trained(cohort, out / "models" / name, name)
        model.card["name"] = name
        evidence = rr.extract(model, cohort, out=out / "evidence" / name, threads=1, device="cpu")
        findings = rr.audit_all(evidence, audits=AUDITS, settings={audit: {"B": 500} for audit in AUDITS})
        found[name] = ({f.name: f for f in findings}, evidence, model)
    page = rr.report([f for findings, _, _ in found.values() for f in findings.values()], out / "report.html")
    return found, page


def estimate(finding, name):
    return next(e for e in finding.estimates if e.name.startswith(name))


def test_the_biased_model_is_called_and_the_balanced_one_is_not(audited):
    biased, balanced = (audited[0][name][0]["flips"] for name in ("biased", "balanced"))
    assert biased.verdict == "shortcut", biased.sentence
    assert balanced.verdict == "no evidence", balanced.sentence
    assert estimate(biased, "mean change").low > balanced.estimates[0].high  # where no value stands for a label, the part one way
    assert biased.n_rows == 269 and "towards the label that it stands for" in biased.sentence


def test_the_biased_model_follows_the_cue_more_than_its_own_refitted_head_and_the_balanced_one_does_not(audited):
    biased, balanced = (audited[0][name][0]["excess"] for name in ("biased", "balanced"))
    assert biased.verdict == "shortcut", biased.sentence
    assert balanced.verdict == "no evidence", balanced.sentence
    assert any("answer differently" in exhibit.title and exhibit.items for exhibit in biased.exhibits)


def test_the_groups_tell_the_same_story(audited):
    biased, balanced = (audited[0][name][0]["groups"] for name in ("biased", "balanced"))
    assert estimate(biased, "worst-group accuracy").high < estimate(balanced, "worst-group accuracy").value
    rate = estimate(biased, "conflict shortcut rate")
    assert rate.value > 0.3
    known = next(c for c in biased.checks if c.name == "training rows known")
    assert known.passed and next(c for c in biased.checks if "fitted or tuned" in c.name).passed
    # On redrawn rows nothing goes with the label: the rate is undefined, and says why.
    assert estimate(balanced, "conflict shortcut rate").value is None
    assert "no value of cue goes with a label in the training rows" in estimate(balanced, "conflict shortcut rate").reason


def test_the_cue_is_readable_from_the_biased_model(audited):
    assert "cue is readable" in audited[0]["biased"][0]["probes"].sentence


def test_training_and_audit_rows_do_not_meet(audited):
    _, evidence, model = audited[0]["biased"]
    assert not set(evidence.on("test").cohort.id) & model.used
    assert not set(evidence.on("audit").cohort.id) & model.used
    assert len(evidence.training) == 1078 and set(evidence.training.id) <= model.used


def test_the_page_holds_everything_and_needs_no_network(audited):
    text = audited[1].read_text()
    for word in ("shortcut", "no evidence", "biased", "balanced", "worst-group accuracy", "data:image/png;base64"):
        assert word in text
    assert 'src="http' not in text and 'href="http' not in text.replace('href="https://github', "")


def test_findings_survive_their_files(audited, tmp_path):
    for finding in audited[0]["biased"][0].values():
        finding.save(tmp_path)
    assert {f.name: f for f in Finding.read_all(tmp_path)} == audited[0]["biased"][0]


def test_a_second_run_gives_the_same_findings(audited, world):
    first, evidence, _ = audited[0]["biased"]
    again = rr.audit_all(evidence, audits=["groups"], settings={"groups": {"B": 500}})[0]
    plain = {"created": "", "seconds": None}
    assert again.model_copy(update=plain) == first["groups"].model_copy(update=plain)


def test_the_command_line_says_the_same_of_a_csv_and_a_checkpoint(audited, world, tmp_path):
    """The same model brought as bare weights: its training rows are unknown, its reliance is the same."""
    from PIL import Image

    cohort = world[0].on("test")
    for column, references in (("image", cohort.image), ("twin", cohort.twin)):
        (tmp_path / column).mkdir()
        stack = np.load(cohort.root / references[0].partition("#")[0])
        for i, reference in enumerate(references):
            Image.fromarray(stack[int(reference.partition("#")[2])]).save(tmp_path / column / f"{i}.png")
    cue = cohort.attribute("cue").values
    n = len(cohort)
    table = {"id": cohort.id, "image": [f"image/{i}.png" for i in range(n)], "twin": [f"twin/{i}.png" for i in range(n)]}
    pd.DataFrame({**table, "y": cohort.label, "cue": cue, "twin_cue": 1 - cue, "split": "test"}).to_csv(
        tmp_path / "d.csv", index=False
    )
    weights = audited[1].parent / "models" / "biased" / "model.safetensors"
    command = [
        sys.executable,
        "-m",
        "rightreasons",
        "audit",
        tmp_path / "d.csv",
        "--model",
        NETWORK,
        "--num-classes",
        "2",
        "--size",
        "16",
    ]
    command += ["--mean", "0.5", "--std", "0.5", "--checkpoint", weights, "--label", "y", "--attribute", "cue", "--id", "id"]
    command += ["--twin", "twin", "--twin-attribute", "twin_cue", "--aligned", "0=0", "--aligned", "1=1", "--out", tmp_path / "o"]
    command += ["--audits", "flips,groups,probes"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "verdict: shortcut: rightreasons.models.small:small_cnn uses cue to decide: flips" in done.stdout
    found = {f.name: f for f in Finding.read_all(tmp_path / "o")}
    assert found["flips"].verdict == "shortcut"
    assert (
        abs(estimate(found["flips"], "mean change").value - estimate(audited[0]["biased"][0]["flips"], "mean change").value) < 0.1
    )
    assert next(c for c in found["groups"].checks if c.name == "training rows known").passed is False
    assert json.loads((tmp_path / "o" / "findings" / "flips.json").read_text())["verdict"] == "shortcut"
    assert (tmp_path / "o" / "report.html").exists()
