"""Audits with reference models: what a plan adds for them, who is compared with whom, and what the study concludes."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("torch")

from rightreasons.audits import Context, Need, Role
from rightreasons.errors import NotRun, SettingError
from rightreasons.evidence import Evidence
from rightreasons.findings import Estimate, Finding
from rightreasons.study import Study
from rightreasons.study.checklist import verify
from rightreasons.study.roles import cases
from rightreasons.study.runs import plan
from rightreasons.study.sweep import dry_run, estimate, sweep
from rightreasons.trust import trusting

pytestmark = pytest.mark.torch

QUESTION, ROW = "Is the test model's accuracy above that of its references?", "behaviour"


@dataclass(frozen=True)
class Measurement:
    model: str
    accuracy: float


@dataclass(frozen=True)
class Result:
    said: str
    value: float
    context: Context = field(default_factory=Context)

    def finding(self) -> Finding:
        headline = Estimate(name="accuracy above the baseline", value=self.value, row="behaviour")
        return self.context.finding(question=QUESTION, row=ROW, sentence=self.said, estimates=(headline,), verdict=None)


class Compares:
    """An audit like OSCAR: a tested model, a baseline on balanced rows, and a model of the attribute."""

    QUESTION, ROW = QUESTION, ROW
    Measurement = Measurement

    @staticmethod
    def needs() -> tuple[Need, ...]:
        return (
            *(Need(role, "test", "logits") for role in ("test", "baseline", "attribute")),
            Need("baseline", "test", "features"),
        )

    @staticmethod
    def roles(attribute: str | None = None, rows: str = "balanced") -> tuple[Role, ...]:
        return Role("baseline", regime="balanced", rows=rows), Role("attribute", rows=rows, target=attribute or "@attribute")

    @staticmethod
    def measure(
        evidence: Evidence, *, rng: np.random.Generator, attribute: str | None = None, rows: str = "balanced"
    ) -> Measurement:
        decided = evidence.on("test").decisions()
        return Measurement(evidence.card.name, float((decided.probability.argmax(axis=1) == decided.label).mean()))

    @staticmethod
    def conclude(measurements: Mapping[str, Sequence[Measurement]], *, rng: np.random.Generator) -> Result:
        if not measurements.get("baseline"):
            raise NotRun("no baseline")
        told = {role: [m.model for m in members] for role, members in measurements.items()}
        means = {role: np.mean([m.accuracy for m in members]) for role, members in measurements.items()}
        return Result(repr(told), float(means["test"] - means["baseline"]))


class Families(Compares):
    """An audit like ShorT: a whole sweep of models and one of the attribute; no model is tested alone."""

    @staticmethod
    def needs() -> tuple[Need, ...]:
        return Need("sweep", "test", "logits"), Need("attribute", "test", "logits"), Need("panel", "test", "logits")

    @staticmethod
    def roles(attribute: str | None = None) -> tuple[Role, ...]:
        return (Role("attribute", target=attribute or "@attribute"),)

    @staticmethod
    def conclude(measurements: Mapping[str, Sequence[Measurement]], *, rng: np.random.Generator) -> Result:
        return Result(repr({role: [m.model for m in members] for role, members in measurements.items()}), 0.0)


@pytest.fixture(autouse=True)
def _toys(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, "toys.compares", Compares)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "toys.families", Families)  # type: ignore[arg-type]
    with trusting("toys"):
        yield


COMPARES = '[audits.compares]\nmethod = "toys.compares"\n'


def written(tmp_path: Path, text: str) -> Path:
    (tmp_path / "s.toml").write_text(text)
    return tmp_path / "s.toml"


def planned_from(tmp_path: Path, text: str) -> Study:
    return plan(written(tmp_path, text), tmp_path / "study")


def of(study: Study, regime: str) -> list[dict[str, Any]]:
    return [unit for unit in study.plan.units.values() if unit.regime == regime]


def test_references_are_added_with_the_rows_and_target_that_the_audit_asks_for(tmp_path: Path, tiny: str) -> None:
    study = planned_from(tmp_path, tiny.replace("n = 200", "n = 500", 1) + COMPARES)
    assert {u.regime for u in study.plan.units.values()} == {"erm", "compares-baseline", "compares-attribute"}
    for regime, target in (("compares-baseline", None), ("compares-attribute", "cue")):
        units = of(study, regime)
        assert [u.seed for u in units] == [0, 1]
        assert {u.cohort for u in units} == {"compares-balanced"}
        assert {u.train["target"] for u in units} == {target}
        assert {u.train["epochs"] for u in units} == {2}
    assert study.cohort("compares-balanced").on("train").counts().to_numpy().std() == 0
    assert study.plan.audits["compares"].roles == {
        "baseline": {"regime": ["compares-baseline"]},
        "attribute": {"regime": ["compares-attribute"]},
    }
    assert len(dry_run(study)) == 6
    assert "regime compares-attribute added (cohort compares-balanced, predicts cue)" in estimate(study, dry_run(study))


def test_adding_references_leaves_the_other_units_what_they_were(tmp_path: Path, tiny: str) -> None:
    before = planned_from(tmp_path, tiny)
    assert set(before.units) < set(planned_from(tmp_path, tiny + COMPARES.replace("\n", '\nrows = "redrawn"\n', 1)).units)


def test_redrawn_rows_are_drawn_in_a_world_and_balanced_elsewhere(tmp_path: Path, tiny: str) -> None:
    redrawn = COMPARES + 'rows = "redrawn"\n'
    study = planned_from(tmp_path, tiny.replace("n = 200", "n = 600", 1) + redrawn)
    assert len(study.cohort("compares-redrawn")) == 600
    columns = 'manifest = "study/world/manifest.csv"\nid = "id"\nattribute = "cue"\nsplit = "split"\n'
    head, tail = tiny.split("[external", 1)
    text = head.split("[data]")[0] + "[data]\n" + columns + "[external" + tail + redrawn
    other = plan(written(tmp_path, text), tmp_path / "other")
    assert other.cohort("compares-balanced").on("train").counts().to_numpy().std() == 0
    assert any("no planted world" in note for note in other.plan.notes)


def test_references_are_trained_as_their_table_says(tmp_path: Path, tiny: str) -> None:
    text = tiny.replace("[performance]", '[references]\nseed = [7, 8, 9]\nrows = "redrawn"\nepochs = 5\n[performance]')
    text = text.replace("seed = [0, 1]", "seed = [0, 1]\nlr = [0.1, 0.01]\nepochs = 3")
    study = planned_from(tmp_path, text + COMPARES)
    units = of(study, "compares-baseline")
    assert sorted({u.seed for u in units}) == [7, 8, 9]
    assert {u.train["epochs"] for u in units} == {5}
    assert {u.axes["lr"] for u in units} == {0.1, 0.01}
    assert len(units) == 6
    found = cases(study.plan, "compares", study.groups())
    assert list(found) == [("cnn", "erm", "lr=0.01"), ("cnn", "erm", "lr=0.1")]
    for key, roles in found.items():
        assert all(f"-{key[2]}-" in unit for units in roles.values() for unit in units)
        assert [len(roles[role]) for role in ("test", "baseline", "attribute")] == [2, 3, 3]


def test_regimes_that_the_file_names_are_the_roles(tmp_path: Path, tiny: str) -> None:
    text = tiny.replace("[train]", '[regimes.erm]\n[regimes.fair]\n[regimes.of-cue]\ntarget = "cue"\n[train]')
    study = planned_from(tmp_path, text + COMPARES + 'roles = {baseline = "fair", attribute = "of-cue"}\n')
    assert study.plan.references == {}
    assert len(study.units) == 6
    found = cases(study.plan, "compares", study.groups())
    assert list(found) == [("cnn", "erm")]  # what it compares with is not tested
    assert [study.plan.units[u].regime for u in found["cnn", "erm"]["attribute"]] == ["of-cue"] * 2
    assert list(cases(study.plan, "groups", study.groups())) == [("cnn", "erm"), ("cnn", "fair")]


def test_an_audit_without_a_tested_model_is_about_a_family(tmp_path: Path, tiny: str) -> None:
    text = tiny.replace("seed = [0, 1]", "seed = [0, 1]\nlr = [0.1, 0.01]\nregime = ['erm', 'other']")
    text = text.replace("[train]", "[regimes.erm]\n[regimes.other]\n[train]")
    table = '[audits.families]\nmethod = "toys.families"\nroles = {sweep = {regime = "erm"}, panel = ["*", "!erm"]}\n'
    study = planned_from(tmp_path, text + table)
    assert study.plan.audits["families"].subject == "sweep"
    ((key, roles),) = cases(study.plan, "families", study.groups()).items()
    assert key == ("cnn", "erm")
    assert [len(roles[role]) for role in ("sweep", "panel", "attribute")] == [4, 4, 4]
    assert {study.plan.units[u].regime for u in roles["panel"]} == {"other"}
    assert {u.cohort for u in of(study, "families-attribute")} == {"data"}


def test_a_family_is_of_several_regimes_and_of_one_cohort(tmp_path: Path, tiny: str) -> None:
    text = tiny.replace("seed = [0, 1]", "seed = [0, 1]\nregime = ['erm', 'other', 'even']")
    text = text.replace(
        "[train]", "[cohorts.even]\nredrawn = 1\n[regimes.erm]\n[regimes.other]\n[regimes.even]\ncohort = 'even'\n[train]"
    )
    table = '[audits.families]\nmethod = "toys.families"\nroles = {sweep = {regime = ["erm", "other", "even"]}}\n'
    study = planned_from(tmp_path, text + table)
    found = cases(study.plan, "families", study.groups())
    assert {key: len(roles["sweep"]) for key, roles in found.items()} == {("cnn", "erm+other"): 4, ("cnn", "even"): 2}
    told = " ".join(study.plan.notes)
    assert "cohort even: 120 train and 20 val rows; gap of cue between the last class and the others 0" in told


def test_a_sweep_of_scales_is_written_in_one_line(tmp_path: Path, tiny: str) -> None:
    text = tiny.replace("[train]", '[regimes.scaled]\nmethod = "gradient_scaling"\n[train]')
    study = planned_from(tmp_path, text.replace("seed = [0, 1]", "scale = {number = 5, largest = 2.0, smallest = 0.02}"))
    assert study.plan.axes["scale"] == [-2.0, -0.02, 0.0, 0.02, 2.0]
    assert len(study.units) == 5


def test_one_regime_on_two_cohorts_is_two_families(tmp_path: Path, tiny: str) -> None:
    text = tiny.replace("[train]", "[cohorts.even]\nredrawn = 1\n[train]") + '[audits.families]\nmethod = "toys.families"\n'
    study = planned_from(tmp_path, text.replace("seed = [0, 1]", "seed = [0, 1]\ncohort = ['data', 'even']"))
    found = cases(study.plan, "families", study.groups())
    assert list(found) == [("cnn", "erm", "cohort=data"), ("cnn", "erm", "cohort=even")]


def test_references_that_two_audits_ask_for_are_trained_once(tmp_path: Path, tiny: str) -> None:
    text = tiny.replace("n = 200", "n = 600", 1) + COMPARES + COMPARES.replace("[audits.compares]", "[audits.again]")
    study = planned_from(tmp_path, text)
    assert {u.regime for u in study.plan.units.values()} == {"erm", "compares-baseline", "compares-attribute"}
    assert study.plan.audits["again"].roles["baseline"] == {"regime": ["compares-baseline"]}


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ('roles = {base = "erm"}', "did you mean 'baseline'?"),
        ('roles = {baseline = {regim = "erm"}}', "did you mean 'regime'?"),
        ("roles = {baseline = 3}", "give a regime"),
        ("[references]\nrow = 1", "did you mean 'rows'?"),
        ('[references]\nrows = "blanced"', "did you mean 'balanced'?"),
        ("[curves.a]\nx = 1", "needs y"),
        ('[curves.a]\ny = "groups"\nx = "lr"', "nothing that the units differ in"),
    ],
)
def test_a_wrong_role_or_reference_is_an_error_that_helps(tmp_path: Path, tiny: str, table: str, said: str) -> None:
    with pytest.raises(SettingError, match=said):
        planned_from(tmp_path, tiny + COMPARES + table)


def test_models_of_a_number_learn_it_in_groups_where_the_audit_allows_it(tmp_path: Path, tiny: str) -> None:
    text = tiny.replace("agreement = 0.9\n", "agreement = 0.9\ncontinuous = true\n", 1) + '[audits.short]\nattribute = "cue"\n'
    text = text.replace("[train]", "[cohorts.even]\nredrawn = 1\n[train]")
    study = planned_from(tmp_path, text)
    units = of(study, "short-attribute")
    assert {(u.train["target"], u.train["regress"]) for u in units} == {("cue groups", "cue")}
    assert {len(u.load["classes"]) for u in units} == {8}
    levels = [study.cohort(name).attribute("cue groups").levels for name in ("data", "even")]
    assert levels[0] == levels[1]


def test_references_that_cannot_be_trained_are_said_so_and_stop_nothing(tmp_path: Path, tiny: str) -> None:
    text = tiny.replace("agreement = 0.9\n", "agreement = 0.9\ncontinuous = true\n")
    study = planned_from(tmp_path, text + COMPARES)
    assert {u.regime for u in study.plan.units.values()} == {"erm"}
    assert "continuous" in study.plan.audits["compares"].unavailable["baseline"]
    with pytest.raises(SettingError, match="is continuous"):
        planned_from(tmp_path, text.replace("[train]", '[regimes.of-cue]\ntarget = "cue"\n[train]'))


def test_a_study_concludes_over_roles(tmp_path: Path, tiny: str) -> None:
    text = tiny.replace("agreement = 0.9", "agreement = 0.7").replace("[external.siteb]", "[external.siteb]\nattribute = 'other'")
    study = sweep(written(tmp_path, text + COMPARES + "[audits.probes]\n"), tmp_path / "study", say=lambda _: None)
    assert {study.status(unit) for unit in study.units} == {"done"}
    assert verify(study) == []
    findings = {finding.name: finding for finding in study.findings()}
    assert {name for name in findings if name.startswith("compares")} == {"compares-cnn-erm"}
    assert {name for name in findings if name.startswith("groups")} == {"groups-cnn-erm", "groups-cnn-compares-baseline"}
    finding = findings["compares-cnn-erm"]
    told = dict(eval(finding.sentence))
    assert {role: len(models) for role, models in told.items()} == {"test": 2, "baseline": 2, "attribute": 2}
    assert all("compares-attribute" in model for model in told["attribute"])
    estimates = pd.read_parquet(study.folder / "estimates.parquet")
    own = estimates[estimates["audit"] == "compares"].set_index("model")["value"]
    assert own.drop("").mean() == pytest.approx(own[""])
    assert own[""] == finding.estimates[0].value


def test_a_model_of_the_attribute_is_measured_for_what_it_is(tmp_path: Path, tiny: str) -> None:
    text = tiny.replace("agreement = 0.9", "agreement = 0.7").replace("[external.siteb]", "[external.siteb]\nattribute = 'other'")
    text = text.replace("[train]", '[regimes.of-cue]\ntarget = "cue"\n[train]').replace("seed = [0, 1]", "seed = 0")
    study = sweep(written(tmp_path, text), tmp_path / "study", say=lambda _: None)
    (unit,) = study.units
    row = study.table.iloc[0]
    assert row["status"] == "done"
    right = study.predictions(unit)
    assert row["test_accuracy"] == pytest.approx(((right["p_1"] > right["p_0"]) == right["cue"]).mean())
    assert "groups_accuracy" not in row
    assert "siteb_auc" not in row  # whose rows lack the column that it predicts
    assert verify(study) == []
    assert study.findings() == []


def test_a_missing_reference_is_the_reason_that_nothing_was_concluded(tmp_path: Path, tiny: str) -> None:
    text = tiny.replace("agreement = 0.9\n", "agreement = 0.9\ncontinuous = true\n").replace("seed = [0, 1]", "seed = 0")
    head = text.split("[audits.groups]")[0] + "[engine_settings]\nthreads = 1\n"
    study = sweep(written(tmp_path, head + COMPARES), tmp_path / "study", say=lambda _: None)
    (finding,) = study.findings()
    assert "no baseline model can be trained: cue is continuous" in finding.not_run
