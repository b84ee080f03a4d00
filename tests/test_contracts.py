"""Every member of a family keeps its contract; members are found by their existence."""

from __future__ import annotations

from pathlib import Path

import pytest

from rightreasons import families, testing
from rightreasons.errors import NotTrusted, SettingError
from rightreasons.trust import trusting

NEEDED: dict[str, dict[str, object]] = {"sdi": {"operators": ("border", "blur")}}  # which measures nothing by default


@pytest.mark.parametrize("name", families.members("audits"))
def test_an_audit_keeps_its_contract(name: str) -> None:
    module = families.member("audits", name)
    fast = {"B": 200} if "B" in families.settings_of(module.measure) else {}
    finding = testing.check_audit(name, **fast, **NEEDED.get(name, {}))
    assert finding.sentence


@pytest.mark.torch
@pytest.mark.parametrize("name", families.members("attributions"))
def test_an_attribution_keeps_its_contract(name: str) -> None:
    pytest.importorskip("torch")
    if name == "lrp":
        pytest.importorskip("zennit")
    module = families.member("attributions", name)
    assert testing.check_attribution(name, **({"patch": 4} if "patch" in families.settings_of(module.maps) else {}))


OWN = """
from dataclasses import dataclass, field
from rightreasons.audits import Context, Need
QUESTION = "How large are the logits?"
ROW = "behaviour"

def needs(): return (Need("test", "test", "logits"),)
def roles(): return ()

@dataclass(frozen=True)
class Measurement:
    mean: float

@dataclass(frozen=True)
class Result:
    mean: float
    context: Context = field(default_factory=Context)
    def finding(self):
        return self.context.finding(question=QUESTION, row=ROW, sentence=f"The mean logit is {self.mean:.2f}.")

def measure(evidence, *, rng, power=1):
    return Measurement(float((evidence["logits"] ** power).mean()))

def conclude(measurements, *, rng):
    return Result(measurements["test"][0].mean)
"""


@pytest.fixture
def own_audit(own_module):
    return own_module("my_lab", "sizes", OWN)


def test_an_audit_of_ones_own_runs_by_its_dotted_name(own_audit: Path) -> None:
    assert testing.check_audit("my_lab.sizes", power=2).settings == {"power": 2}


def test_the_contract_notices_a_measurement_that_is_not_flat(own_audit: Path) -> None:
    own_audit.write_text(
        OWN.replace("return Measurement(float(", "return Measurement(dict(x=float(").replace(".mean()))", ".mean())))")
    )
    own_audit.write_text(own_audit.read_text().replace('measurements["test"][0].mean', "1.0"))
    with pytest.raises(AssertionError, match="mean of a measurement is a dict"):
        testing.check_audit("my_lab.sizes")


def test_the_contract_notices_an_answer_that_changes(own_audit: Path) -> None:
    own_audit.write_text("import itertools\nCOUNT = itertools.count()\n" + OWN.replace(".mean()))", ".mean()) + next(COUNT))"))
    with pytest.raises(AssertionError, match="another answer for the same seed"):
        testing.check_audit("my_lab.sizes")


def test_an_unknown_member_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(SettingError, match=r"no audits named 'group'; did you mean 'groups'\?"):
        families.member("audits", "group")


def test_an_unknown_setting_lists_the_known_ones() -> None:
    from rightreasons.audits import audit

    with pytest.raises(SettingError, match=r"no setting 'threshhold'; did you mean 'threshold'\? known: B, aligned"):
        audit("groups", testing.synthetic_evidence(), threshhold="argmax")


def test_a_dotted_name_that_does_not_exist_says_so() -> None:
    with pytest.raises(NotTrusted, match=r"Nothing of it was imported"):
        families.member("audits", "my_lab.nothing")
    with pytest.raises(SettingError, match=r"'my_lab\.nothing' cannot be imported"), trusting("my_lab"):
        families.member("audits", "my_lab.nothing")
