"""ART: planted associations come back under a head that uses them and under no other; nothing to amplify is no clean bill."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rightreasons import audits, testing
from rightreasons.audits import art, audit, audit_all
from rightreasons.audits.art import judge as rules
from rightreasons.audits.art import page
from rightreasons.audits.art.checks import checks
from rightreasons.audits.art.controls import Shuffles, run_controls
from rightreasons.audits.art.judge import CLOSED, effect_of, is_substantial, joint_effect, judge
from rightreasons.audits.art.pieces import Change
from rightreasons.audits.art.procedure import Audit, Procedure, Readout, Stage
from rightreasons.data.cohort import Cohort
from rightreasons.errors import DataError, NotRun, SettingError
from rightreasons.evidence import Evidence
from rightreasons.findings import Finding, Table
from rightreasons.head import Head, Layer, linear_head
from rightreasons.measurements import load_measurement, save_measurement
from rightreasons.stats import restoration
from rightreasons.stats.groups import conflict_shortcut_rate, worst_group_accuracy
from rightreasons.stats.probes import Sample
from rightreasons.stats.resampling import Interval

D = 10
FAST = {"controls": 60, "B": 60}
PI = {"no": 0, "yes": 1}
PINNED = {
    "wga": 0.5647058823529412,
    "wga_low": 0.4679591836734694,
    "wga_high": 0.6489845492194967,
    "csr": 0.34806629834254144,
    "csr_low": 0.2841991341991342,
    "csr_high": 0.4072727272727273,
    "wga_after": 0.10588235294117647,
    "wga_after_low": 0.06031512605042019,
    "wga_after_high": 0.16125756266205704,
    "csr_after": 0.8674033149171271,
    "csr_after_low": 0.8226069201069202,
    "csr_after_high": 0.9065839755940912,
    "delta_wga": 0.4588235294117647,
    "delta_wga_low": 0.35481497056349875,
    "delta_wga_high": 0.5260077522308442,
    "delta_csr": 0.5193370165745856,
    "delta_csr_low": 0.45015291607396873,
    "delta_csr_high": 0.567393001735107,
    "probe": 0.9228538634628929,
    "probe_low": 0.9050179124669608,
    "probe_high": 0.9437099327211375,
    "probe_chance": 0.5,
    "probe_line": 0.7,
    "p": 0.01639344262295082,
    "shuffles_closed": 1.0,
}


def features_of(rng, y, a, label=2.0, cue=1.5, d=D):
    z = rng.normal(size=(len(y), d))
    z[:, 0] += label * (2 * y - 1)
    z[:, 1] += cue * (2 * a - 1)
    return z


def head_of(uses=1.0, d=D):
    weight = np.zeros(d)
    weight[0], weight[1] = 1.0, uses
    return linear_head(weight)


def world(seed=0, n=1600, agreement=0.75, uses=1.0, head=None, turn=None, training=True, **carries):
    """Evidence of a model whose features carry label and cue; `uses` is how much its head reads the cue."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    a = np.where(rng.random(n) < agreement, y, 1 - y)
    z = features_of(rng, y, a, **carries)
    head = head or head_of(uses)
    if turn is not None:
        z, head = z @ turn, linear_head(head.weight[1:] @ turn)
    columns = {"id": np.arange(n), "label": y, "cue": np.array(["no", "yes"])[a]}
    columns["split"] = np.where(np.arange(n) % 2, "audit", "test")
    cohort = Cohort.from_columns(columns, attribute="cue", split="split")
    train = Cohort.from_columns({k: v for k, v in columns.items() if k != "split"}, attribute="cue") if training else None
    return Evidence.from_arrays(cohort, {"features": z, "logits": head(z)}, head=head, training=train)


def run(evidence, **settings):
    return audit("art", evidence, **{**FAST, **settings})


def rows_of(finding: Finding, title: str) -> dict[str, tuple]:
    (table,) = (e for e in finding.exhibits if isinstance(e, Table) and e.title == title)
    return {str(row[0]) + (f": {row[1]}" if title == "Ablations" else ""): row for row in table.rows}


# ---- planted worlds -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_a_shortcut_that_the_head_uses_is_restorable(seed):
    result = run(world(seed))
    m, finding = result.measurements[0], result.finding()
    assert result.verdict == "shortcut" and result.taxonomy == "restorable shortcut"
    assert m.p <= 0.05 and m.change.csr.value >= 0.15 and m.before.wga.value >= 0.3 and m.change.wga.value >= 0.15
    assert m.change.csr.low > 0 and m.change.excess.low > 0
    assert finding.estimates[0].p == m.p and finding.row == "reliance"
    assert "restorable shortcut" in finding.sentence


@pytest.mark.parametrize("seed", range(5))
def test_a_model_trained_on_balance_carries_the_cue_and_is_not_restorable(seed):
    result = run(world(seed, uses=0.0))
    m = result.measurements[0]
    assert m.gates.is_open and m.probes.read().accuracy.value > 0.85
    assert result.verdict == "no evidence" and result.taxonomy == "functional decoupling"
    assert abs(m.change.csr.value) < 0.05


@pytest.mark.parametrize("seed", range(3))
def test_an_attribute_that_was_projected_out_is_deletion_and_no_clean_bill(seed):
    result = run(world(seed, cue=0.0))
    m, finding = result.measurements[0], result.finding()
    assert not m.gates.is_open and not m.gates.open.any()
    assert result.verdict == "inconclusive" and result.taxonomy == "representational deletion"
    assert np.isnan(m.change.csr.value) and m.change.csr.reason == CLOSED and np.isnan(m.p)
    assert CLOSED in finding.sentence and "deletion" in finding.sentence
    assert {row[2] for row in rows_of_all(finding, "Gates")} == {"closed: separation not above tau"}


def rows_of_all(finding: Finding, title: str) -> list[tuple]:
    (table,) = (e for e in finding.exhibits if isinstance(e, Table) and e.title == title)
    return list(table.rows)


def test_the_label_direction_is_called_damage():
    for seed in range(2):
        finding = run(world(seed, uses=0.0)).finding()
        controls = rows_of(finding, "Controls")
        assert controls["label direction"][-1] == "damage"
        assert controls["label direction less the attribute's"][-1] == "damage"
        result = run(world(seed, uses=0.0), direction="label", reading="paper")
        assert result.verdict == "no evidence" and "damage" in result.finding().sentence


def test_a_label_that_shares_its_direction_with_the_attribute_is_damage_only_beside_it():
    """The features hold label and cue on one axis, as a network does that learned the cue as the label."""
    rng = np.random.default_rng(0)
    n = 2000
    y, a = rng.integers(0, 2, n), rng.integers(0, 2, n)
    z = rng.normal(size=(n, D))
    z[:, 0] += 0.8 * (2 * y - 1) + 1.5 * (2 * a - 1)
    z[:, 1] += 1.5 * (2 * y - 1)
    columns = {"id": np.arange(n), "label": y, "cue": np.array(["no", "yes"])[a]}
    columns["split"] = np.where(np.arange(n) % 2, "audit", "test")
    evidence = Evidence.from_arrays(Cohort.from_columns(columns, attribute="cue", split="split"), {"features": z}, head=head_of())
    result = run(evidence, aligned=PI)
    controls = rows_of(result.finding(), "Controls")
    assert result.verdict == "shortcut" and result.measurements[0].label.overlap > 0.4
    assert "the attribute's direction too" in controls["label direction"][-1]
    assert controls["label direction less the attribute's"][-1] != "restoration"


def test_restoration_and_damage_by_the_rules():
    def at(value, low=None):
        return Interval(value, value - 0.02 if low is None else low, value + 0.02)

    def change(wga, csr, excess=at(0.0)):
        return Change(wga, csr, at(0.0), excess)

    assert is_substantial(change(at(0.0), at(0.15)))
    assert is_substantial(change(at(0.2), at(0.06)))
    assert not is_substantial(change(at(0.2), at(0.06, low=-0.01)))
    assert not is_substantial(change(at(0.3), at(0.04)))
    assert not is_substantial(change(at(0.14), at(0.14)))
    assert effect_of(change(at(0.07), at(0.36), at(0.3))) == "restoration"  # the paper's Waterbirds ERM
    assert effect_of(change(at(0.28), at(-0.01), at(-0.2))) == "damage"  # its label direction
    assert effect_of(change(at(0.2), at(0.2), at(0.0))) == "damage"  # as many errors against the attribute
    assert effect_of(change(at(0.01), at(0.02), at(0.0))) == "none"


def failed_checks(judged) -> set[str]:
    """Ids of the checks that make a verdict inconclusive."""
    return {check.id for check in checks(judged) if check.decides and check.passed is False}


@pytest.mark.parametrize("uses", [0.0, 0.3, 1.0, 6.0])
def test_a_verdict_is_inconclusive_where_a_check_that_decides_failed_and_nowhere_else(uses):
    for carries in ({}, {"cue": 0.0}, {"agreement": 0.5}):
        judged = run(world(uses=uses, **carries)).methods[0]
        assert (judged.verdict == "inconclusive") == bool(failed_checks(judged))
        assert {failed.id for failed in judged.failed} <= failed_checks(judged)
        ids = [check.id for check in checks(judged)]
        assert all(ids) and len(set(ids)) == len(ids)


def test_a_rate_that_cannot_rise_is_not_called_decoupling():
    for uses in (4.0, 6.0, 40.0):
        assert run(world(uses=uses)).verdict == "shortcut"  # turned round, it has all the room there is
        result = run(world(uses=uses), reading="paper")
        assert result.methods[0].before.csr.value > 0.7
        assert result.verdict != "no evidence", result.finding().sentence
        if result.verdict == "inconclusive":
            assert "ceiling" in result.finding().sentence
            assert failed_checks(result.methods[0]) == {rules.ROOM_TO_RISE}


def test_a_small_restoration_beyond_the_shuffles_is_not_called_decoupling():
    seen = set()
    for uses in (0.1, 0.2, 0.3, 0.4, 0.5):
        result = run(world(uses=uses), reading="paper")
        judged = result.methods[0]
        if judged.p <= 0.05 and 0.05 <= judged.change.csr.value < 0.15:
            seen.add(uses)
            assert result.verdict == "inconclusive" and "halfway" in result.finding().sentence and not judged.taxonomy
            assert failed_checks(judged) == {rules.SUBSTANTIAL_OR_NOTHING}
    assert seen


def test_a_restoration_that_shuffles_reach_too_is_not_called_decoupling():
    m = run(world(uses=1.0), reading="paper").measurements[0]
    assert judge((m,)).verdict == "shortcut" and judge((m,)).effect == "restoration"
    chance = judge((replace(m, p=0.07),))
    assert (chance.verdict, chance.taxonomy) == ("inconclusive", "") and "p = 0.070" in page.sentence(chance)
    assert failed_checks(chance) == {rules.BEYOND_SHUFFLES_OR_NOTHING}
    errors = Interval(-0.1, -0.2, 0.0)  # as many errors against the attribute: damage restores nothing
    harmed = replace(m, p=0.07, change=replace(m.change, excess=errors), pull=Interval(0.0, -0.01, 0.01))
    assert judge((harmed,)).verdict == "no evidence"


def test_answers_that_follow_the_attribute_are_not_called_decoupled():
    m = run(world(uses=0.0)).measurements[0]
    assert judge((m,)).verdict == "no evidence" and m.pull.low < 0 < m.pull.high
    seen = judge((replace(m, pull=Interval(0.2, 0.1, 0.3)),))
    assert (seen.verdict, seen.taxonomy) == ("inconclusive", "") and "answers follow the attribute" in page.sentence(seen)
    assert failed_checks(seen) == {rules.NOT_FOLLOWED}
    unknown = judge((replace(m, pull=Interval(np.nan, np.nan, np.nan, reason="no logits on the test rows")),))
    assert unknown.verdict == "no evidence"
    assert any(c.passed is None and "no logits" in c.note for c in checks(unknown))
    evidence = world(uses=1.0)
    restored = run(evidence).measurements[0]
    assert restored.pull.value == audit("pull", evidence, B=60, permutations=60).measurements[0].pull.value
    assert judge((replace(restored, pull=m.pull),)).verdict == "shortcut"  # what is hidden in the answers is what ART looks for


def test_a_worst_group_without_a_right_decision_has_an_interval_with_width():
    m = run(world(uses=40.0, cue=6.0)).measurements[0]
    assert m.before.wga.value == m.before.wga.low == 0 and 0.01 < m.before.wga.high < 0.2


def test_a_low_worst_group_is_flagged_as_floor():
    result = run(world(0, uses=2.0))
    assert result.measurements[0].before.wga.value < 0.3
    assert result.methods[0].floor
    assert any("floor" in e.note for e in result.finding().estimates)


@pytest.mark.slow
def test_false_alarms_stay_at_their_level():
    """No structure: with gates that never close, p is uniform; with their own gate nothing is called."""
    p, called = [], 0
    for seed in range(100):
        evidence = world(seed, n=400, cue=0.0, uses=1.0)
        p.append(run(evidence, tau=0.0, n_min=1, B=20, controls=99).measurements[0].p)
        called += run(evidence, B=20, controls=39).verdict == "shortcut"
    assert np.mean(np.array(p) <= 0.05) <= 0.11
    assert 0.35 < np.mean(p) < 0.65
    assert called == 0


# ---- the numbers --------------------------------------------------------------------------------------------------------


def plain_numbers(evidence, m, beta):
    """WGA and CSR by find, gate, restore and the head, with the same halves."""
    test, rows = evidence.on("test"), evidence.on("audit")
    halving = np.random.default_rng(5).spawn(4)[0]
    label, a = rows.label, rows.cohort.attribute("cue").values
    first, second = restoration.halves(label, a, rng=halving)
    z = rows["features"]
    found = art.gate(art.find(z[first], label[first], a[first]), z[second], label[second], a[second])
    decided = evidence.head(art.restore(test["features"], test.label, found, beta)).argmax(axis=1)
    b = test.cohort.attribute("cue").values
    return worst_group_accuracy(test.label, decided, b), conflict_shortcut_rate(test.label, decided, b, {0: 0, 1: 1})


@pytest.mark.parametrize("kind", ["linear", "relu", "layer norm"])
def test_every_strength_agrees_with_restoring_and_reading_by_hand(kind):
    rng = np.random.default_rng(3)
    first = Layer("linear", {"weight": rng.normal(size=(7, D)), "bias": rng.normal(size=7)})
    last = Layer("linear", {"weight": rng.normal(size=(2, 7)), "bias": np.zeros(2)})
    norm = Layer("norm", {"weight": rng.normal(size=D), "bias": np.zeros(D)}, "layer", 1e-5)
    layers = {"linear": (first, last), "relu": (first, Layer("activation", {}, "relu"), last), "layer norm": (norm, first, last)}
    evidence = world(1, head=Head(layers[kind]))
    m = art.measure(evidence, rng=np.random.default_rng(5), **FAST)
    assert m.head.agreement == 1.0 and m.gates.is_open
    curve, change = m.curve, m.curve.change
    for k, beta in enumerate(curve.betas):
        wga, csr = plain_numbers(evidence, m, beta)
        assert curve.wga[k].value == pytest.approx(wga, abs=1e-10)
        assert curve.csr[k].value == pytest.approx(csr, abs=1e-10)
    assert change.wga[0].value == change.csr[0].value == change.aligned[0].value == 0.0  # beta 0
    assert m.change.csr.value == pytest.approx(curve.csr[curve.main].value - curve.csr[0].value, abs=1e-12)
    assert m.change.wga.value == pytest.approx(curve.wga[0].value - curve.wga[curve.main].value, abs=1e-12)


def audit_parts(seed=0, A=2, C=2, n=300, head=None, routing="true", subject=None):
    rng = np.random.default_rng(seed)
    parts = []
    for _ in range(3):
        y, a = rng.integers(0, C, n), rng.integers(0, A, n)
        z = rng.normal(size=(n, D))
        z[:, :C] += 2 * np.eye(C)[y]
        z[:, C : C + A] += 2 * np.eye(A)[a]
        parts.append(Sample(z, y, a, subject))
    weight = np.concatenate([np.eye(C), 0.5 * np.eye(C)[:, :A] if A <= C else np.zeros((C, A)), np.zeros((C, D - C - A))], axis=1)
    head = head or linear_head(weight)
    stage = Stage(parts[2], head, {0: 0, 1: 1}, 10)
    procedure = Procedure(tau=0.1, n_min=5, routing=routing)
    directions = procedure.directions(parts[0], parts[1])
    return Audit(stage, parts[0], parts[1], procedure, directions, (0.0, 0.5, 2.0), 2), head


@pytest.mark.parametrize(
    ("C", "A", "nonlinear", "routing"), [(2, 2, False, "true"), (3, 3, False, "predicted"), (2, 2, True, "true")]
)
def test_shuffles_agree_with_a_plain_loop_over_them(C, A, nonlinear, routing):
    head = None
    if nonlinear:
        weight = np.random.default_rng(1).normal(size=(6, D))
        last = np.random.default_rng(2).normal(size=(2, 6))
        head = Head(
            (
                Layer("linear", {"weight": weight, "bias": np.zeros(6)}),
                Layer("activation", {}, "gelu"),
                Layer("linear", {"weight": last, "bias": np.zeros(2)}),
            )
        )
    parts, head = audit_parts(C=C, A=A, head=head, routing=routing)
    found = run_controls(parts, 8, np.random.default_rng(4))
    shuffling = np.random.default_rng(4).spawn(2)[0]
    find_a, gate_a = (
        [half.a[rows] for rows in exchange.permutations(8, shuffling)]
        for half, exchange in zip((parts.finding, parts.gating), Shuffles.exchanges(parts), strict=True)
    )
    test = parts.stage.rows
    before = head(test.z).argmax(axis=1)
    route = test.y if routing == "true" else before
    numbers = lambda p: (worst_group_accuracy(test.y, p, test.a), conflict_shortcut_rate(test.y, p, test.a, {0: 0, 1: 1}))  # noqa: E731
    for k in range(8):
        one = art.find(parts.finding.z, parts.finding.y, find_a[k])
        judged = art.gate(one, parts.gating.z, parts.gating.y, gate_a[k], 0.1, 5)
        assert found.closed[k] == (not judged.is_open)
        for control, directions in (("shuffled", judged), ("forced", one)):
            after = head(art.restore(test.z, route, directions, 2.0)).argmax(axis=1)
            expected = np.array(numbers(before)) - numbers(after)
            np.testing.assert_allclose(found.change[control][2, k, :2], [expected[0], -expected[1]], atol=1e-10)
    assert not found.closed.all()


def test_random_controls_move_every_row_as_far_as_art_did_and_beside_its_direction(monkeypatch):
    parts, _ = audit_parts()
    seen = []
    shifted = Readout.shifted

    def spy(self, rows, coefficient, basis, betas):
        seen.append((rows, coefficient, basis))
        return shifted(self, rows, coefficient, basis, betas)

    monkeypatch.setattr(Readout, "shifted", spy)
    run_controls(parts, 5, np.random.default_rng(0))
    for c in range(2):
        rows, _, _ = seen[4 * c]
        mine = parts.directions.basis(c)
        length = np.linalg.norm((parts.stage.rows.z[rows] - parts.directions.mean[c]) @ mine.T, axis=1)
        for _, coefficient, basis in seen[4 * c + 2 : 4 * c + 4]:
            moved = np.matmul(coefficient, basis)
            np.testing.assert_allclose(np.linalg.norm(moved, axis=2), np.broadcast_to(length, moved.shape[:2]), atol=1e-8)
            np.testing.assert_allclose(basis @ mine.T, 0, atol=1e-8)
        assert seen[4 * c + 3][2].shape[1] == 2


def test_turning_features_and_head_changes_nothing():
    turn = np.linalg.qr(np.random.default_rng(8).normal(size=(D, D)))[0]
    straight, turned = (run(world(2, turn=t)).measurements[0] for t in (None, turn))
    for number in ("wga", "csr", "aligned"):
        curves = [[(i.value, i.low, i.high) for i in getattr(m.curve, number)] for m in (straight, turned)]
        np.testing.assert_allclose(*curves, atol=1e-3, equal_nan=True)
        for (_, one), (_, other) in zip(straight.controls.named(), turned.controls.named(), strict=True):
            np.testing.assert_allclose(getattr(one.draws, number), getattr(other.draws, number), atol=5e-3)
    np.testing.assert_allclose(straight.gates.T, turned.gates.T, atol=1e-6)
    assert straight.p == turned.p


# ---- settings -----------------------------------------------------------------------------------------------------------


def test_ablations_are_settings_and_rows_of_one_table():
    evidence = world(0)
    base = run(evidence)
    rows = rows_of(base.finding(), "Ablations")
    for setting, row in (
        ({"direction": "global"}, "find: global direction"),
        ({"direction": "label"}, "find: label direction"),
        ({"gated": False}, "gate: without gate"),
        ({"routing": "predicted"}, "restore: predicted label"),
        ({"rho": 1.0}, "rho: 1"),
        ({"beta": 0.5}, "beta: 0.5"),
    ):
        m = run(evidence, **setting).measurements[0]
        assert rows[row][3].value == pytest.approx(m.curve.change[m.curve.main].csr.value), row
        assert rows[row][2].value == pytest.approx(m.curve.change[m.curve.main].wga.value), row
    gain = {name: row[3].value for name, row in rows.items()}
    assert gain["restore: predicted label"] <= gain["restore: true label"]
    assert gain["beta: 0.25"] < gain["beta: 2"]
    assert gain["beta: 0"] == 0


def test_bad_settings_are_refused():
    evidence = world(0)
    for setting in ({"direction": "x"}, {"routing": "x"}, {"controls": 5}, {"beta": 0.0}, {"betas": (-1.0,)}, {"rho": 3.0}):
        with pytest.raises(SettingError, match=next(iter(setting))):
            run(evidence, **setting)


# ---- what else is in the data -------------------------------------------------------------------------------------------


def stamped(seed=0, n=1200, uses=2.0, wide=6):
    """Three lesions; every test image clean and, as its twin, stamped; the stamp stands for the third label."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    stamp = (rng.random(n) < np.where(y == 2, 0.6, 0.3)).astype(int)
    split = np.where(np.arange(n) % 2, "audit", "test")
    noise = rng.normal(size=(n, wide))

    def features(s):
        z = noise.copy()
        z[:, :3] += 3 * np.eye(3)[y]
        z[:, 3] += 2 * s
        return z

    weight = np.zeros((3, wide))
    weight[:, :3] = np.eye(3)
    weight[2, 3] = uses / 2
    head = linear_head(weight, np.array([0, 0, -0.5]))
    names = np.array(["clean", "stamped"])
    kinds = ["AKIEC", "BCC", "MEL"]

    def cohort(rows, s, name):
        columns = {"id": rows, "label": np.array(kinds)[y[rows]], "stamp": names[s[rows]]}
        return Cohort.from_columns(columns, attribute="stamp", name=name)

    rows = {name: np.flatnonzero(split == name) for name in ("audit", "test")}
    cohorts = {"audit": cohort(rows["audit"], stamp, "audit"), "test": cohort(rows["test"], stamp, "test")}
    cohorts["twin"] = cohort(rows["test"], 1 - stamp, "twin")
    z = {"audit": features(stamp)[rows["audit"]], "test": features(stamp)[rows["test"]]}
    z["twin"] = features(1 - stamp)[rows["test"]]
    arrays = {name: {"features": x, "logits": head(x)} for name, x in z.items()}
    return Evidence.from_arrays(cohorts, arrays, head=head, classes=kinds)


def test_clean_and_stamped_twins_give_the_timestamp_shortcut_rate():
    evidence = stamped()
    result = run(evidence, twins=True, aligned={"stamped": "MEL"})
    m = result.measurements[0]
    stamps = {name: evidence.on(name).cohort.attribute("stamp").values for name in ("test", "twin")}
    label = np.concatenate([evidence.on(name).label[stamps[name] == 1] for name in stamps])
    logits = np.concatenate([evidence.on(name)["logits"][stamps[name] == 1] for name in stamps])
    other = label != 2
    rate = np.mean(logits.argmax(axis=1)[other] == 2)
    assert m.groups.rate.name == ("stamp = stamped → label = MEL",)
    assert m.groups.rate.before[0].value == pytest.approx(rate) == pytest.approx(m.before.csr.value)
    assert m.counts.n == 1200 and m.counts.n_conflict == other.sum() and m.counts.n_subjects is None
    assert len(m.groups.accuracy.name) == 6
    assert result.verdict == "shortcut" and m.groups.rate.after[0].value > rate + 0.15
    assert m.gates.open.shape == (3, 2) and m.association.classes[2] == "label = MEL"
    with pytest.raises(NotRun, match="no test row has a twin"):
        other_ids = Cohort.from_columns(
            {"id": ["x", "y"], "label": ["MEL"] * 2, "stamp": ["clean", "stamped"]}, attribute="stamp"
        )
        parts = {name: evidence.on(name).cohort for name in ("audit", "test")} | {"twin": other_ids}
        arrays = {name: {"features": evidence.on(name)["features"]} for name in ("audit", "test")}
        arrays["twin"] = {"features": np.zeros((2, 6))}
        run(Evidence.from_arrays(parts, arrays, head=evidence.head, classes=["AKIEC", "BCC", "MEL"]), twins=True)


def test_without_the_stamp_in_the_head_the_multiclass_model_is_not_restorable():
    result = run(stamped(uses=0.0), twins=True, aligned={"stamped": "MEL"})
    assert result.verdict == "no evidence" and result.taxonomy == "functional decoupling"


def test_an_attribute_of_three_values_has_a_direction_for_each():
    rng = np.random.default_rng(0)
    n = 3000
    y = rng.integers(0, 3, n)
    a = np.where(rng.random(n) < 0.6, y, rng.integers(0, 3, n))
    z = rng.normal(size=(n, 8))
    z[:, :3] += 2.5 * np.eye(3)[y]
    z[:, 3:6] += 2.5 * np.eye(3)[a]
    weight = np.zeros((3, 8))
    weight[:, :3], weight[:, 3:6] = np.eye(3), 0.7 * np.eye(3)
    split = np.where(np.arange(n) % 2, "audit", "test")
    columns = {"id": np.arange(n), "label": y, "site": np.array(["a", "b", "c"])[a], "split": split}
    cohort = Cohort.from_columns(columns, attribute="site", split="split")
    evidence = Evidence.from_arrays(cohort, {"features": z}, head=linear_head(weight))
    result = run(evidence, aligned={"a": 0, "b": 1, "c": 2})
    m = result.measurements[0]
    assert m.gates.open.all() and m.gates.T.shape == (3, 3)
    assert result.verdict == "shortcut"
    assert m.probes.read().chance == pytest.approx(1 / 3)


def test_subjects_travel_together_and_too_few_cannot_judge():
    rng = np.random.default_rng(1)
    subjects, per = 150, 6
    who = np.repeat(np.arange(subjects), per)
    y = rng.integers(0, 2, subjects)[who]
    a = rng.integers(0, 2, subjects)[who]
    z = features_of(rng, y, a) + 1.0 * rng.normal(size=(subjects, D))[who]
    split = np.where(who % 2, "audit", "test")

    def evidence(keep):
        columns = {
            "id": np.arange(len(who)),
            "label": y,
            "cue": np.array(["no", "yes"])[a],
            "split": split,
            "who": who.astype(str),
        }
        cohort = Cohort.from_columns({k: v[keep] for k, v in columns.items()}, attribute="cue", split="split", subject="who")
        return Evidence.from_arrays(cohort, {"features": z[keep]}, head=head_of())

    m = run(evidence(np.full(len(who), True)), aligned=PI).measurements[0]
    assert m.counts.n_subjects == 75 and m.counts.n == 450
    assert m.controls.exchangeable == 75
    few = run(evidence((split == "test") | (who < 30)), aligned=PI)
    assert few.verdict == "inconclusive" and "exchangeable subjects" in few.finding().sentence


def test_pi_comes_from_training_rows_from_errors_or_not_at_all():
    assert run(world(0)).measurements[0].association.source == "training rows"
    errors = run(world(0, training=False))
    assert errors.measurements[0].association.source == "π from the model's errors" and errors.verdict == "shortcut"
    none = run(world(1, agreement=0.5))
    assert none.verdict == "inconclusive" and "no value of cue goes with a label" in none.finding().sentence
    assert np.isnan(none.measurements[0].before.csr.value) and none.measurements[0].before.csr.reason
    assert none.taxonomy == ""


def test_rows_without_label_or_attribute_leave_and_are_counted():
    evidence = world(0)
    columns = {}
    for name in ("audit", "test"):
        cohort = evidence.on(name).cohort
        cue = cohort.column("cue").astype(object).copy()
        cue[:5] = None
        columns[name] = Cohort.from_columns({"id": cohort.id, "label": cohort.label, "cue": cue}, attribute="cue")
    arrays = {name: {"features": evidence.on(name)["features"], "logits": evidence.on(name)["logits"]} for name in columns}
    m = run(Evidence.from_arrays(columns, arrays, head=evidence.head), aligned=PI).measurements[0]
    assert (m.counts.missing, m.counts.missing_audit, m.counts.n, m.head.agreement) == (5, 5, 795, 1.0)


def test_a_head_that_is_not_the_models_is_noticed():
    evidence = world(0)
    wrong = head_of(uses=-3.0)
    parts = {name: evidence.on(name).cohort for name in ("audit", "test")}
    arrays = {name: {"features": evidence.on(name)["features"], "logits": evidence.on(name)["logits"]} for name in parts}
    result = run(Evidence.from_arrays(parts, arrays, head=wrong), aligned=PI)
    assert result.verdict == "inconclusive" and "stored decision" in result.finding().sentence


def test_attribute_values_that_are_counted_otherwise_in_another_table_are_refused():
    evidence = world(0)
    parts = {name: evidence.on(name).cohort for name in ("audit", "test")}
    columns = {"id": parts["test"].id, "label": parts["test"].label, "cue": np.full(len(parts["test"]), "yes")}
    parts["test"] = Cohort.from_columns(columns, attribute="cue")
    arrays = {name: {"features": evidence.on(name)["features"]} for name in parts}
    with pytest.raises(DataError, match="from one table"):
        run(Evidence.from_arrays(parts, arrays, head=evidence.head), aligned={"yes": 1})


@pytest.mark.parametrize("what", ["one value", "no conflict", "ten rows", "a class that audit rows lack"])
def test_the_worst_inputs_are_inconclusive_and_not_a_crash(what):
    rng = np.random.default_rng(0)
    n = 10 if what == "ten rows" else 300
    y, a = np.arange(n) // 2 % 2, np.arange(n) // 4 % 2
    split = np.where(np.arange(n) % 2, "audit", "test")
    if what == "one value":
        a[split == "audit"] = 0
    if what == "no conflict":
        a[split == "test"] = y[split == "test"]
    if what == "a class that audit rows lack":
        y[split == "audit"] = 1
    columns = {"id": np.arange(n), "label": y, "cue": np.array(["no", "yes"])[a], "split": split}
    cohort = Cohort.from_columns(columns, attribute="cue", split="split")
    result = run(Evidence.from_arrays(cohort, {"features": features_of(rng, y, a)}, head=head_of()), aligned=PI)
    finding = result.finding()
    if what == "a class that audit rows lack":
        assert result.measurements[0].association.classes == ("label = 1",)
    else:
        assert result.verdict == "inconclusive" and finding.sentence
    assert Finding.from_json(finding.to_json()).to_json() == finding.to_json()


def test_what_cannot_run_says_why():
    cohort = Cohort.from_columns(
        {"id": range(40), "label": [0, 1] * 20, "age": np.linspace(1, 90, 40), "split": ["audit", "test", "test", "audit"] * 10},
        attribute="age", split="split",
    )  # fmt: skip
    z = np.random.default_rng(0).normal(size=(40, D))
    (finding,) = audit_all(Evidence.from_arrays(cohort, {"features": z}, head=head_of()), audits=["art"])
    assert "needs bins" in finding.not_run
    (finding,) = audit_all(Evidence.from_arrays(cohort, {"features": z}), audits=["art"], settings={"art": {"attribute": "age"}})
    assert finding.not_run
    evidence = world(0)
    parts = {name: evidence.on(name).cohort for name in ("audit", "test")}
    with pytest.raises(NotRun, match="head"):
        run(Evidence.from_arrays(parts, {name: {"features": evidence.on(name)["features"]} for name in parts}))


# ---- several models, the page, the contract -----------------------------------------------------------------------------


def told(evidence, regime, seed, start="erm"):
    parts = {name: evidence.on(name).cohort for name in ("audit", "test")}
    arrays = {name: {"features": evidence.on(name)["features"], "logits": evidence.on(name)["logits"]} for name in parts}
    return Evidence.from_arrays(
        parts, arrays, head=evidence.head, training=evidence.training, name=f"{regime}-{seed}", regime=regime, seed=seed,
        settings={"regime": start},
    )  # fmt: skip


def test_seeds_are_judged_together_and_methods_side_by_side():
    use = {"erm": 1.0, "balanced": 0.0, "dfr": 0.0, "groupdro": 0.6}
    models = {regime: [told(world(s, uses=uses), regime, s) for s in range(2)] for regime, uses in use.items()}
    result = audit(
        "art", {"test": models["erm"], "panel": [e for r in ("balanced", "dfr", "groupdro") for e in models[r]]}, **FAST
    )
    assert [j.name for j in result.methods] == list(use)
    assert [j.verdict for j in result.methods] == ["shortcut", "no evidence", "no evidence", "shortcut"]
    erm = result.methods[0]
    assert erm.change.csr.value == pytest.approx(np.mean([m.change.csr.value for m in erm.members]))
    assert erm.p <= 0.05 and erm.n_open == 2
    finding = result.finding()
    table = rows_of(finding, "Restoration by method")
    assert list(table) == [*use, "mean of dfr, groupdro"]
    assert table["mean of dfr, groupdro"][3].value == pytest.approx(
        np.mean([j.change.csr.value for j in result.methods if j.name in ("dfr", "groupdro")])
    )
    names = [f.name for f in result.findings()]
    assert names == [f"art-{regime}" for regime in use]
    assert {"Before restoring", "Readability by method", "Controls by method"} <= {e.title for e in finding.exhibits}
    alone = run(models["erm"][0])
    assert alone.measurements[0].p == erm.members[0].p


def test_ablations_name_their_methods_and_a_fitted_head_is_held_against_its_start():
    use = {"erm": 1.0, "neggrad": 0.9, "dfr": 0.3, "art_head": 0.0, "art_head_neggrad": 0.1}
    told_as = {"art_head_neggrad": ("art_head", "neggrad"), "neggrad": ("neggrad", "neggrad")}
    models = {}
    for name, uses in use.items():
        regime, start = told_as.get(name, (name, "erm"))
        models[name] = [told(world(s, uses=uses), regime, s, start) for s in range(2)]
    others = [e for name in list(use)[1:] for e in models[name]]
    result = audit("art", {"test": models["erm"], "panel": others}, **FAST)
    assert [j.name for j in result.methods] == list(use)
    (over,) = (e for e in result.finding().exhibits if e.title == "Ablations over methods")
    assert "4 methods (neggrad, dfr, art_head, art_head_neggrad)" in over.caption
    audited = [j for j in result.methods if j.name != "erm"]
    first = [np.mean([one.ablations.change.csr[0].value for one in j.members]) for j in audited]
    assert over.rows[0][:2] == ("find", "class-conditional direction")
    assert over.rows[0][3].value == pytest.approx(np.mean(first))
    assert over.rows[0][5].value == pytest.approx(np.mean([m.ablations.change.csr[0].value for m in result.methods[0].members]))
    (both,) = (e for e in result.finding().exhibits if e.title == "Before and after restoring")
    assert both.highlight == (3, 4)
    wga = {j.name: j.before.wga.value for j in result.methods}
    for head, start in (("art_head", "erm"), ("art_head_neggrad", "neggrad")):
        assert f"{head} raises clean WGA by {100 * (wga[head] - wga[start]):.1f} points against {start}" in both.caption
    row = rows_of(result.finding(), "Before and after restoring")["erm"]
    assert row[3].value == pytest.approx(row[1].value - row[2].value)
    assert row[6].value == pytest.approx(row[5].value - row[4].value)


def test_what_restoring_does_is_told_by_each_model_and_not_by_the_spread_of_two():
    none, some, half = Interval(0.0, -0.1, 0.1), Interval(0.2, 0.1, 0.3), Interval(0.5, 0.4, 0.6)
    strong, weak = Change(half, half, none, Interval(0.4, 0.3, 0.5)), Change(some, some, none, some)
    harm = Change(half, none, none, Interval(-0.3, -0.4, -0.2))
    assert joint_effect([strong, weak]) == "restoration"
    assert joint_effect([strong, harm, harm]) == "damage"
    assert joint_effect([strong, harm]) == "mixed"


def test_closed_seeds_count_as_unchanged_in_the_mean():
    models = [told(world(0), "erm", 0), told(world(1, cue=0.0), "erm", 1)]
    j = audit("art", {"test": models}, **FAST).methods[0]
    assert j.n_open == 1
    assert j.change.csr.value == pytest.approx(j.members[0].change.csr.value / 2)


def test_the_finding_survives_disk_and_a_table(tmp_path):
    result = run(world(0))
    finding = result.finding()
    assert Finding.read(finding.save(tmp_path)) == finding
    m = result.measurements[0]
    again = load_measurement(art.Measurement, save_measurement(m, tmp_path / "art.npz"))
    assert again.change == m.change and again.gates.reason == m.gates.reason and again.curve.change == m.curve.change
    assert (again.controls.shuffled.csr_band == m.controls.shuffled.csr_band).all() and again.procedure == m.procedure
    stored = art.conclude({"test": [again]}, rng=np.random.default_rng(0)).methods
    assert tuple(page.exhibits(stored[0], stored)) == finding.exhibits
    scalars = m.scalars()
    assert scalars["taxonomy"] == "restorable shortcut" and scalars["restorable"] is True
    assert scalars["delta_csr_low"] == m.change.csr.low
    assert all(isinstance(v, bool | int | float | str) for v in scalars.values())


def test_a_row_of_a_table_has_these_columns_and_numbers():
    """Pinned: tables of studies and benchmarks read these columns by name."""
    row = run(world(0)).measurements[0].scalars()
    whole = {name: value for name, value in row.items() if not isinstance(value, float)}
    assert whole == {
        "attribute": "cue", "n": 800, "n_audit": 800, "open_gates": 2, "classes": 2, "restorable": True, "floor": False,
        "effect": "restoration", "verdict": "shortcut", "taxonomy": "restorable shortcut",
    }  # fmt: skip
    limits = (
        "wga", "csr", "wga_after", "csr_after", "delta_wga", "delta_csr", "swing", "swing_refitted", "swing_excess", "probe",
    )  # fmt: skip
    numbers = [f"{name}{limit}" for name in limits for limit in ("", "_low", "_high")]
    names = ["attribute", "n", "n_audit", *numbers, "probe_chance", "probe_line", "p", "p_swing", "open_gates", "classes"]
    assert list(row) == [*names, "shuffles_closed", "restorable", "floor", "effect", "verdict", "taxonomy"]
    assert {name: row[name] for name in PINNED} == pytest.approx(PINNED, abs=1e-12)


def test_the_page_draws_it(tmp_path):
    from rightreasons.report import report

    report([run(world(0)).finding(), run(world(0, cue=0.0)).finding()], tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "Readable against restorable" in text and "Ablations" in text


def test_the_contract_and_the_stable_names():
    assert testing.check_audit("art", B=50, controls=30).audit == "art"
    assert art.aligned_label([0] * 50 + [1] * 50, [0] * 45 + [1] * 50 + [0] * 5) == {0: 0, 1: 1}
    needed = audits.needs_of(["art"], {"art": {"twins": True}})
    assert any(need.cohort == "twin" for need in needed)
