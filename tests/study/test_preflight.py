"""No verdict rests on a model that does not work: the story of a checkpoint with other preprocessing, rebuilt on stripes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import rightreasons as rr  # noqa: E402
from rightreasons.case import cases  # noqa: E402
from rightreasons.findings.preflight import objection_of  # noqa: E402
from rightreasons.study.entrances import audit_classifier  # noqa: E402

pytestmark = pytest.mark.torch

SIDE, ROWS = 16, 320
NETWORK = {"num_classes": 2, "width": 8, "classes": ["narrow", "wide"]}
TRAINED_WITH = {"size": SIDE, "mean": 0.5, "std": 0.25}
AUDITS = ("groups", "pull", "probes")


def quiet(_: str) -> None:
    return None


def world(folder: Path) -> rr.Cohort:
    """Narrow and wide stripes at chance phases, on dark images; a marker that has nothing to do with them."""
    rng = np.random.default_rng(3)
    wide, marked = np.arange(ROWS) % 2, np.arange(ROWS) // 2 % 2
    phase, place = rng.integers(0, 8, ROWS), np.arange(SIDE)
    period = np.where(wide, 8, 4)
    stripes = ((place[None] + phase[:, None]) % period[:, None] < period[:, None] // 2).astype(float)
    pixels = 0.3 + 0.4 * np.broadcast_to(stripes[:, None, :], (ROWS, SIDE, SIDE)).copy()
    pixels[marked == 1, :2, :2] = 1.0
    pixels += rng.normal(0, 0.03, pixels.shape)
    np.save(folder / "images.npy", (np.clip(pixels, 0, 1) * 255).astype(np.uint8)[..., None].repeat(3, axis=-1))
    split = np.where(np.arange(ROWS) < 160, "train", np.where(np.arange(ROWS) < 192, "val", "test"))
    lines = ["id,stripes,marker,split,image"]
    for k in range(ROWS):
        lines.append(f"r{k},{'wide' if wide[k] else 'narrow'},{'yes' if marked[k] else 'no'},{split[k]},images.npy#{k}")
    (folder / "data.csv").write_text("\n".join(lines) + "\n")
    return rr.Cohort.read(folder / "data.csv", id="id", label="stripes", attribute="marker", split="split")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the table and the weights of a network that was trained on it, as a state dict in a container."""
    folder = tmp_path_factory.mktemp("stripes")
    cohort = world(folder)
    start = rr.Classifier.load("rightreasons.models.small:small_cnn", **NETWORK, **TRAINED_WITH)
    model = rr.train(start, cohort, epochs=8, lr=1e-2, batch=16, patience=None, folder=folder / "model", seed=0)
    state = {f"module.{key}": value for key, value in model.module.state_dict().items()}
    torch.save({"state_dict": state, "epoch": 7, "args": {"img_size": SIDE, "mean": [0.5], "std": [0.25]}}, folder / "w.pt")
    return folder


def audited(home: Path, out: Path, split: bool = False, **settings: object) -> tuple[list[rr.Finding], Path]:
    """As a new user would: the checkpoint, a table without training rows, and whatever settings were given."""
    keywords = {"id": "id", "label": "stripes", "attribute": "marker", **({"split": "split"} if split else {})}
    cohort = rr.Cohort.read(home / "data.csv", **keywords)
    model = rr.Classifier.load("rightreasons.models.small:small_cnn", home / "w.pt", **{**NETWORK, **settings})  # type: ignore[arg-type]
    return audit_classifier(model, cohort, out, audits={name: {} for name in AUDITS}, depth="quick", say=quiet), out


def test_with_the_right_settings_the_model_works_and_its_verdicts_stand(home: Path, tmp_path: Path) -> None:
    findings, out = audited(home, tmp_path / "out", **TRAINED_WITH)
    assert not any(map(objection_of, findings))
    (card,) = sheet(out).preflight
    assert card.works and card.balanced > 0.9
    assert len(card.pictures) == 12
    facts = {fact.name: (fact.value, fact.source) for fact in card.facts}
    assert facts["size"] == ("16, 16", "given by you")
    assert facts["container"][0] == "state_dict" and facts["prefix"][0] == "module."
    assert facts["class order"][0] == "0 = narrow, 1 = wide"
    assert any("halved" in warning for warning in card.warnings) and sum(card.splits.values()) == ROWS


@pytest.mark.parametrize("wrong", [{"size": 32}, {"mean": -4.0, "std": 0.25}])
def test_a_checkpoint_with_other_preprocessing_is_never_cleared(home: Path, tmp_path: Path, wrong: dict[str, object]) -> None:
    findings, out = audited(home, tmp_path / "out", **{**TRAINED_WITH, **wrong})
    assert {f.verdict for f in findings} <= {None, "inconclusive"}
    (case,) = cases(findings)
    assert case.verdict == "inconclusive"
    option = f"--{next(iter(wrong))}"
    assert "the model does not work on these rows" in case.sentence and option in case.sentence
    (card,) = sheet(out).preflight
    assert not card.works
    assert any(option in warning and "the checkpoint says of itself" in warning for warning in card.warnings)


def test_reversed_classes_are_never_cleared_and_the_sentence_names_the_order(home: Path, tmp_path: Path) -> None:
    findings, out = audited(home, tmp_path / "out", **TRAINED_WITH, classes=["wide", "narrow"])
    assert {f.verdict for f in findings} <= {None, "inconclusive"}
    (case,) = cases(findings)
    assert case.verdict == "inconclusive" and "--classes (here narrow,wide scores" in case.sentence
    assert sheet(out).preflight[0].state == "order"


def test_random_weights_are_never_cleared(home: Path, tmp_path: Path) -> None:
    cohort = rr.Cohort.read(home / "data.csv", id="id", label="stripes", attribute="marker")
    model = rr.Classifier.load("rightreasons.models.small:small_cnn", **NETWORK, **TRAINED_WITH)
    findings = audit_classifier(model, cohort, tmp_path, audits={"groups": {}, "pull": {}}, depth="quick", say=quiet)
    assert {f.verdict for f in findings} <= {None, "inconclusive"}
    (case,) = cases(findings)
    assert "--checkpoint" in case.sentence


def test_the_card_is_said_before_and_stands_on_the_page(home: Path, tmp_path: Path) -> None:
    said: list[str] = []
    cohort = rr.Cohort.read(home / "data.csv", id="id", label="stripes", attribute="marker")
    settings = {**NETWORK, **TRAINED_WITH, "size": 32}
    model = rr.Classifier.load("rightreasons.models.small:small_cnn", home / "w.pt", **settings)  # type: ignore[arg-type]
    audit_classifier(model, cohort, tmp_path, audits={"groups": {}}, depth="quick", say=said.append)
    assert said[0].startswith("preflight of ") and "does not work on these rows" in said[0] and "--size" in said[0]
    page = (tmp_path / "report.html").read_text()
    assert "Does the model work on these rows?" in page and page.count("data:image/png") >= 12


def sheet(out: Path):  # type: ignore[no-untyped-def]
    from rightreasons.case import Sheet

    found = Sheet.read(out)
    assert found is not None
    return found


def test_fitting_finds_the_size_and_mean_that_the_checkpoint_was_trained_with(home: Path) -> None:
    from rightreasons.study import fitting

    settings = {**NETWORK, "size": 32, "mean": -4.0, "std": 0.25}
    model = rr.Classifier.load("rightreasons.models.small:small_cnn", home / "w.pt", **settings)  # type: ignore[arg-type]
    rows = rr.Cohort.read(home / "data.csv", id="id", label="stripes", split="split")
    few = (SIDE, 32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "SIZES", few)
        found = fitting.fit_preprocessing(model, rows)
    assert found.works and found.best.balanced > 0.9 > found.given.balanced
    assert found.best.settings["size"] == "16,16" and found.best.settings["mean"] == "0.5"
    assert list(found.lines())[-1].startswith("--size 16,16 --mean 0.5")


def test_copies_under_other_names_leave_everything_open(home: Path, tmp_path: Path) -> None:
    pixels = np.load(home / "images.npy")
    lines = ["id,stripes,marker,image"]
    for k in range(100):
        np.save(tmp_path / f"{k}.npy", pixels[k // 2])
        lines.append(f"r{k},{('narrow', 'wide')[k // 2 % 2]},{('no', 'yes')[k // 4 % 2]},{k}.npy")
    (tmp_path / "copies.csv").write_text("\n".join(lines) + "\n")
    cohort = rr.Cohort.read(tmp_path / "copies.csv", id="id", label="stripes", attribute="marker")
    settings = {**NETWORK, **TRAINED_WITH}
    model = rr.Classifier.load("rightreasons.models.small:small_cnn", home / "w.pt", **settings)  # type: ignore[arg-type]
    findings = audit_classifier(model, cohort, tmp_path / "out", audits={"pull": {}}, depth="quick", say=quiet)
    assert {f.verdict for f in findings} == {"inconclusive"}
    (card,) = sheet(tmp_path / "out").preflight
    assert "repeat the image of another row" in card.doubts[""]
    assert any("every repeat makes intervals too narrow" in warning for warning in card.warnings)


def test_rows_in_no_split_are_counted_and_said(home: Path, tmp_path: Path) -> None:
    text = (home / "data.csv").read_text().replace(",train,", ",,")
    (home / "unsplit.csv").write_text(text)
    cohort = rr.Cohort.read(home / "unsplit.csv", id="id", label="stripes", attribute="marker", split="split")
    settings = {**NETWORK, **TRAINED_WITH}
    model = rr.Classifier.load("rightreasons.models.small:small_cnn", home / "w.pt", **settings)  # type: ignore[arg-type]
    said: list[str] = []
    audit_classifier(model, cohort, tmp_path, audits={"groups": {}}, depth="quick", say=said.append)
    assert "  note: 160 rows are in no split and were left out" in said
    assert any(line.startswith("  rows: 160 in no split, ") for line in said)
    assert "160 in no split" in (tmp_path / "report.html").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["auto", "dfr"])
def test_a_mitigation_begins_with_the_preflight_and_its_page_with_the_card(
    home: Path, tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from rightreasons import cli

    columns = ["--id", "id", "--label", "stripes", "--attribute", "marker", "--split", "split"]
    settings = {**NETWORK, **TRAINED_WITH, "mean": -4.0}
    wrong = rr.Classifier.load("rightreasons.models.small:small_cnn", home / "w.pt", **settings)  # type: ignore[arg-type]
    wrong.save(tmp_path / "wrong")
    out = tmp_path / "out"
    given = ["mitigate", method, str(home / "data.csv"), *columns, "--model", str(tmp_path / "wrong"), "--out", str(out)]
    monkeypatch.setattr("sys.argv", ["rightreasons", *given])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    said, err = capsys.readouterr()
    assert not ended.value.code, err
    first = said.splitlines()[0]
    assert first.startswith("preflight of ") and "does not work on these rows" in first and "--mean" in first
    assert "Does the model work on these rows?" in (out / "report.html").read_text()
    assert not sheet(out).preflight[0].works


def test_evidence_of_a_model_that_does_not_work_says_so(home: Path) -> None:
    label = np.arange(200) % 2
    table = {"id": [f"r{k}" for k in range(200)], "y": label, "cue": np.arange(200) // 2 % 2}
    rows = rr.Cohort.from_columns(table, label="y", attribute="cue", id="id")
    evidence = rr.Evidence.from_arrays(rows, {"logits": np.zeros((200, 2))}, classes=(0, 1), name="guesses")
    said: list[str] = []
    rr.audit_all(evidence, audits=["groups"], settings={"groups": {"B": 50}}, say=said.append)
    assert len(said) == 1 and said[0].startswith("preflight of guesses: The model does not work on these rows.")
