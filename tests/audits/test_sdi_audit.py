"""SDI: literal twins of its equations, planted models, and every reason for which it gives no verdict."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import softmax

import rightreasons as rr
from rightreasons.audits import needs_of, sdi
from rightreasons.audits.sdi.effect import Effects, at_working_point, taken
from rightreasons.audits.sdi.severities import DEPENDS, EXCLUDED, Severities, Severity, nuisance_recipe, read_severities
from rightreasons.data.cohort import Cohort
from rightreasons.errors import DataError, NotRun, SettingError
from rightreasons.evidence import Evidence
from rightreasons.findings import Finding, Gallery, Table
from rightreasons.head import Head, Layer, linear_head
from rightreasons.measurements import load_measurement, save_measurement, scalars

N, D = 400, 8
OPERATORS = (
    Severity("border", 0.3, {"patches": 0.2}, change=0.1),
    Severity("blur", 0.3, {"patches": 0.1, "contrast": 0.3}, change=0.05),
)
CALIBRATED = Severities(OPERATORS, True, baseline="baseline", cohort="val", rows=100)


@pytest.fixture
def file(tmp_path):
    return str(CALIBRATED.save(tmp_path / "severities.json"))


def cohort_of(attribute="cue", values=None, n=N):
    rng = np.random.default_rng(7)
    label = rng.integers(0, 2, n)
    cue = np.where(rng.random(n) < 0.7, label, 1 - label) if values is None else values
    columns = {"id": [f"r{i}" for i in range(n)], "label": label, "split": np.where(np.arange(n) % 2, "audit", "test")}
    if attribute:
        columns[attribute] = cue
    return Cohort.from_columns(columns, attribute=[attribute] if attribute else [], split="split", name="planted")


def evidence_of(weight=(1.0, 1.0), cohort=None, encoded=True, seed=0, operators=OPERATORS, name="model", head=None, **more):
    """Features: label, cue and noise. The border takes the cue, the blur takes little of anything, content takes the label."""
    cohort = cohort_of() if cohort is None else cohort
    rng = np.random.default_rng(seed)
    z = 0.5 * rng.standard_normal((N, D))
    z[:, 0] += 2.0 * (2 * cohort.label - 1)
    cue = cohort.attribute().values.astype(float) if cohort.attributes else rng.integers(0, 2, N).astype(float)
    if encoded:
        z[:, 1] += 2.0 * (2 * (cue - cue.min()) / max(np.ptp(cue), 1) - 1)
    w = np.zeros((2, D))
    w[1, 0], w[1, 1] = weight
    arrays = {"features": z}
    for o in operators:
        moved = z.copy()
        if o.operator == "border":
            moved[:, 1] = 0.5 * rng.standard_normal(N)
            moved[:, 2] += 1.5  # the border itself is seen, too
        else:
            moved += 0.05 * rng.standard_normal(z.shape)
        arrays[nuisance_recipe("features", o, 0)] = moved
        arrays[nuisance_recipe("change", o, 0)] = np.full(N, o.change)
        for content, severity in o.content.items():
            gone = z.copy()
            gone[:, 0] *= 1 - 2.5 * o.change
            gone += 0.05 * rng.standard_normal(z.shape)
            arrays[f"features@{content}(draw=0,severity={severity})"] = gone
            arrays[f"change@{content}(draw=0,severity={severity})"] = np.full(N, o.change)
    return Evidence.from_arrays(cohort, arrays, head=linear_head(w) if head is None else head, name=name, **more)


def result_of(file, models, **settings):
    return rr.audit("sdi", models, severities=file, B=300, **settings)


def check_of(result, id):
    return next(check for check in result.finding().checks if check.id == id)


# ---- the equations -------------------------------------------------------------------------------------------------------


def test_sensitivities_are_equations_1_to_3():
    rng = np.random.default_rng(0)
    z, moved = rng.standard_normal((2, 37, 5))
    norm = sum(sum(v * v for v in row) ** 0.5 for row in z) / 37
    twin = [sum((a - b) ** 2 for a, b in zip(one, two)) ** 0.5 / norm for one, two in zip(z, moved)]
    assert np.allclose(sdi.sensitivity(z, moved), twin, atol=1e-12)
    assert np.isclose(sdi.sensitivity(z, moved).mean(), sum(twin) / 37, atol=1e-12)
    assert np.isnan(sdi.sensitivity(np.zeros((3, 2)), np.ones((3, 2)))).all()
    with pytest.raises(DataError, match="of one shape"):
        sdi.sensitivity(z, moved[:, :3])


def test_the_ratio_is_equation_4_and_undefined_where_content_moves_nothing():
    assert sdi.ratio(0.3, 0.2, 1e-8) == 0.3 / (0.2 + 1e-8)
    assert np.isnan(sdi.ratio([0.3, 0.0], [0.0, 0.0])).all()


def test_the_index_is_equations_5_and_6():
    rng = np.random.default_rng(1)
    components = rng.random((6, 3))
    weights = (0.5, 0.3, 0.2)
    twin = []
    for row in components:
        total = 0.0
        for k in range(3):
            column = [other[k] for other in components]
            total += weights[k] * (row[k] - min(column)) / (max(column) - min(column))
        twin.append(total)
    panel = np.stack([components.min(axis=0), components.max(axis=0)])
    assert np.allclose(sdi.combine(components, panel, weights), twin, atol=1e-12)


def test_a_component_in_which_the_panel_does_not_vary_is_left_out():
    components = np.array([[0.0, 1.0, 0.5], [1.0, 1.0, 1.0]])
    panel = np.stack([components.min(axis=0), components.max(axis=0)])
    assert sdi.combine(components, panel).tolist() == [0.0, 1.0]
    assert np.isnan(sdi.normalise(components, panel)[:, 1]).all()
    assert np.isnan(sdi.combine(components, np.ones((2, 3)))).all()
    assert np.isnan(sdi.combine([[np.nan, 1.0, 0.5]], panel)).all()


def test_values_beyond_the_panel_are_cut_and_bad_weights_refused():
    panel = np.array([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]])
    assert sdi.combine([[5.0, -3.0, 0.5]], panel).tolist() == pytest.approx([0.5])
    for weights in ((0.5, 0.5, 0.5), (1.5, -0.5, 0.0), (0.5, 0.5)):
        with pytest.raises(SettingError, match="sum 1"):
            sdi.combine([[0.1, 0.1, 0.1]], panel, weights)


def test_what_the_head_reads_ignores_what_it_does_not_read_and_what_it_adds_to_all_logits():
    rng = np.random.default_rng(2)
    weight, z = rng.standard_normal((3, 6)), rng.standard_normal((20, 6))
    read = sdi.head_read(linear_head(weight), z)
    assert read.shape == (20, 2)
    shifted = sdi.head_read(linear_head(weight + rng.standard_normal(6)), z)
    assert np.allclose(np.linalg.norm(read, axis=1), np.linalg.norm(shifted, axis=1), atol=1e-5)
    basis = np.linalg.svd(weight - weight.mean(axis=0))[2]
    unread = z + rng.standard_normal((20, 4)) @ basis[2:]
    assert np.allclose(sdi.head_read(linear_head(weight), unread), read, atol=1e-5)


def test_a_head_of_several_layers_is_read_by_its_centred_logits():
    rng = np.random.default_rng(3)
    layers = (
        Layer("linear", {"weight": rng.standard_normal((5, 6)), "bias": np.zeros(5)}),
        Layer("activation", name="relu"),
        Layer("linear", {"weight": rng.standard_normal((3, 5)), "bias": np.zeros(3)}),
    )
    head, z = Head(layers), rng.standard_normal((9, 6))
    logits = head(z)
    assert np.allclose(sdi.head_read(head, z), logits - logits.mean(axis=1, keepdims=True))


# ---- the cue's effect ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("classes", "values"), [(2, 2), (3, 4)])
def test_the_cues_and_the_labels_effect_are_differences_of_cell_means(classes, values):
    rng = np.random.default_rng(4)
    p, y, a = rng.dirichlet(np.ones(classes), (2, 240)), rng.integers(0, classes, 240), rng.integers(0, values, 240)
    found = Effects(p, y, a).draws(np.ones((1, 240), np.uint8))[0]
    for k in range(2):
        cell = {(u, v): p[k][(y == u) & (a == v)].mean(axis=0) for u in range(classes) for v in range(values)}
        sizes = []
        for v in range(values):
            others = [w for w in range(values) if w != v]
            away = [cell[u, v] - np.mean([cell[u, w] for w in others], axis=0) for u in range(classes)]
            sizes.append(sum(abs(d) for d in np.mean(away, axis=0)) / 2)
        assert found[0, k] == pytest.approx(max(sizes), abs=1e-12)
        of = [np.mean([cell[u, v] for v in range(values)], axis=0) for u in range(classes)]
        rest = [np.mean([of[w] for w in range(classes) if w != u], axis=0) for u in range(classes)]
        assert found[1, k] == pytest.approx(np.mean([np.abs(o - r).sum() / 2 for o, r in zip(of, rest)]), abs=1e-12)


def test_a_resample_is_the_effect_of_its_rows():
    rng = np.random.default_rng(5)
    p, y, a = rng.dirichlet(np.ones(2), (1, 90)), rng.integers(0, 2, 90), rng.integers(0, 2, 90)
    counts = np.bincount(rng.integers(0, 90, 90), minlength=90).astype(np.uint8)[None]
    again = np.repeat(np.arange(90), counts[0])
    for values, continuous in ((a, False), (rng.random(90), True)):
        whole = Effects(p[:, again], y[again], values[again], continuous=continuous).draws(np.ones((1, 90), np.uint8))
        assert np.allclose(Effects(p, y, values, continuous=continuous).draws(counts), whole, atol=1e-12)


def test_a_continuous_cues_effect_spans_two_standard_deviations_and_equals_the_difference_of_an_even_split():
    rng = np.random.default_rng(6)
    p, y, a = rng.dirichlet(np.ones(2), (1, 300)), rng.integers(0, 2, 300), rng.random(300)
    ones = np.ones((1, 300), np.uint8)
    slopes = [2 * np.cov(p[0][y == u, 1], a[y == u], bias=True)[0, 1] / a[y == u].std() for u in range(2)]
    assert Effects(p, y, a, continuous=True).draws(ones)[0, 0, 0] == pytest.approx(abs(np.mean(slopes)), abs=1e-12)
    even, order = np.arange(300) % 2, np.argsort(np.arange(300) % 4 // 2)
    label = np.arange(300) % 4 // 2
    both = [Effects(p[:, order], label[order], even[order].astype(float), continuous=c).draws(ones)[0] for c in (False, True)]
    assert np.allclose(both[0], both[1], atol=1e-12)


def test_a_push_of_all_predictions_to_one_side_is_taken_off():
    logits = 3 * np.random.default_rng(8).standard_normal((200, 3))
    p = softmax(logits, axis=1)
    assert np.allclose(at_working_point(logits + np.array([4.0, -2.0, 1.0]), p.mean(axis=0)), p, atol=2e-3)
    other = 2 * logits[::-1] + np.array([9.0, 0.0, 0.0])
    assert np.allclose(at_working_point(other, p.mean(axis=0)).mean(axis=0), p.mean(axis=0), atol=2e-3)


def test_what_spoils_cue_and_label_alike_takes_nothing_and_a_model_without_label_effect_loses_none():
    effects = np.array([[[0.4, 0.2, 0.0, 0.4], [0.8, 0.4, 0.8, 0.9]]])  # as it is; both halved; the cue gone; the label more
    assert taken(effects, True)[0] == pytest.approx([0.0, 0.4, 0.0])
    assert taken(effects, False)[0] == pytest.approx([0.2, 0.4, 0.0])


def test_rows_that_lack_cue_or_label_and_cells_of_few_rows_are_left_out():
    rng = np.random.default_rng(7)
    p, y, a = rng.dirichlet(np.ones(2), (1, 100)), rng.integers(0, 2, 100), rng.integers(0, 2, 100)
    gone = np.arange(100) < 20
    ones = np.ones((1, 100), np.uint8)
    kept = Effects(p[:, ~gone], y[~gone], a[~gone]).draws(ones[:, :80])
    assert np.array_equal(Effects(p, np.where(gone, -1, y), a).draws(ones), kept)
    assert np.array_equal(Effects(p, y, np.where(gone, -1, a)).draws(ones), kept)
    third = np.where(np.arange(100) < 3, 2, a)  # three rows of a value of their own
    assert np.array_equal(Effects(p, y, third).draws(ones), Effects(p, y, np.where(third == 2, -1, third)).draws(ones))
    assert Effects(p, y, y).problem and np.isnan(Effects(p, y, y).draws(ones)).all()


# ---- what is measured ----------------------------------------------------------------------------------------------------


def test_the_measurement_is_the_equations_over_the_test_rows(file):
    evidence = evidence_of()
    m = result_of(file, evidence).measurement
    view, head = evidence.on("test"), evidence.head
    z = view["features"].astype(float)
    for k, o in enumerate(OPERATORS):
        moved = view[nuisance_recipe("features", o, 0)].astype(float)
        content = [view[f"features@{c}(draw=0,severity={s})"].astype(float) for c, s in o.content.items()]
        for space, of in enumerate((lambda x: x, lambda x: sdi.head_read(head, x))):
            s_nc = sdi.sensitivity(of(z), of(moved)).mean()
            s_c = np.mean([sdi.sensitivity(of(z), of(c)).mean() for c in content])
            found = m.spaces[space]
            assert found.s_nc.value[k] == pytest.approx(s_nc, abs=1e-6)
            assert found.s_c.value[k] == pytest.approx(s_c, abs=1e-6)
            assert found.r_sc.value[k] == pytest.approx(s_nc / (s_c + 1e-8), rel=1e-6)
    assert np.allclose(m.components[0, 0], m.features.s_nc.value.mean())
    for r_sc in (m.features.r_sc, m.head.r_sc):
        assert (r_sc.low <= r_sc.value).all() and (r_sc.value <= r_sc.high).all()


def test_measurements_are_saved_and_become_rows_of_tables(file, tmp_path):
    m = sdi.measure(evidence_of(), rng=np.random.default_rng(0), severities=file, B=50)
    again = load_measurement(sdi.Measurement, save_measurement(m, tmp_path / "m.npz"))
    assert np.array_equal(again.head.r_sc.low, m.head.r_sc.low) and again.operators.name == m.operators.name
    assert again.probe.auc == m.probe.auc and np.array_equal(again.components, m.components)
    assert scalars(m)["r_sc_head_border"] == m.head.r_sc.value[0]


def test_the_columns_of_a_studys_table_stay_as_they_are(file):
    columns = scalars(sdi.measure(evidence_of(), rng=np.random.default_rng(0), severities=file, B=50))
    assert columns.pop("attribute") == "cue"
    expected = {
        "n": 200,
        "auc_nc": 1.0,
        "s_nc_features": 0.42583351280381915,
        "r_sc_features": 3.344984264284871,
        "s_nc_features_border": 0.807397114623396,
        "r_sc_features_border": 4.88738649804289,
        "s_nc_features_blur": 0.04426991098424229,
        "r_sc_features_blur": 0.49513379342531216,
        "s_nc_head": 0.36251038456861845,
        "r_sc_head": 2.748863385964225,
        "s_nc_head_border": 0.7035756133824239,
        "r_sc_head_border": 3.954182962865088,
        "s_nc_head_blur": 0.02144515575481297,
        "r_sc_head_blur": 0.24988253609759623,
    }
    assert list(columns) == list(expected)
    assert columns == pytest.approx(expected, rel=1e-9)


def test_more_draws_are_averaged(tmp_path):
    one = Severity("border", 0.3, {"patches": 0.2}, change=0.1)
    file = str(Severities((one,), True).save(tmp_path / "s.json"))
    evidence = evidence_of(operators=(one,))
    with pytest.raises(NotRun, match="extract"):
        result_of(file, evidence, draws=2)
    assert {n.array for n in needs_of(["sdi"], {"sdi": {"severities": file, "draws": 2}})} >= {
        "features@border(draw=0,severity=0.3)", "features@border(draw=1,severity=0.3)", "change@patches(draw=1,severity=0.2)",
    }  # fmt: skip


# ---- verdicts ------------------------------------------------------------------------------------------------------------


def test_a_head_that_reads_the_cue_is_a_shortcut(file):
    finding = result_of(file, evidence_of((1.0, 1.0))).finding()
    assert finding.verdict == "shortcut"
    assert finding.sentence.startswith("The model relies on cue:") and "border, which removes it" in finding.sentence
    assert finding.estimates[0].row == "reliance" and finding.estimates[0].low > 0.3
    assert Finding.from_json(finding.to_json()).to_json() == finding.to_json()


@pytest.mark.parametrize("seed", range(5))
def test_a_cue_that_is_encoded_and_not_read_is_no_shortcut(file, seed):
    result = result_of(file, evidence_of((1.0, 0.0), seed=seed))
    assert result.verdict == "no evidence"
    assert result.measurement.features.r_sc.low[0] > 1  # the paper's ratio, of the features, is fooled
    assert result.measurement.head.r_sc.high[0] < 1


def test_what_the_ratio_cannot_compare_the_cues_effect_judges(file):
    """A content operator that moves the head as much makes R_sc 1 and leaves the verdict where it was."""
    evidence = evidence_of((1.0, 1.0))
    arrays = {c: {a: evidence.on(c)[a] for a in evidence.arrays(c)} for c in ("audit", "test")}
    for rows in arrays.values():
        rows["features@patches(draw=0,severity=0.2)"] = 0.0 * rows["features"]
    fragile = Evidence.from_arrays({c: evidence.on(c).cohort for c in arrays}, arrays, head=evidence.head)
    assert result_of(file, fragile).verdict == "shortcut"
    assert result_of(file, fragile, decide="ratio").verdict == "inconclusive"
    assert result_of(file, evidence, decide="ratio").verdict == "shortcut"
    with pytest.raises(SettingError, match="decide"):
        result_of(file, evidence, decide="cues")


def test_an_operator_that_silences_the_model_speaks_for_nothing(tmp_path):
    """Under it neither cue nor label has an effect, and the probe reads nothing: that is no reliance."""
    file = str(replace(CALIBRATED, operators=OPERATORS[:1]).save(tmp_path / "s.json"))
    evidence = evidence_of((1.0, 1.0))
    arrays = {c: {a: evidence.on(c)[a] for a in evidence.arrays(c)} for c in ("audit", "test")}
    for rows in arrays.values():
        rows[nuisance_recipe("features", OPERATORS[0], 0)] = 0.0 * rows["features"]
    result = result_of(file, Evidence.from_arrays({c: evidence.on(c).cohort for c in arrays}, arrays, head=evidence.head))
    assert result.touches.all() and not result.takes.any()
    assert result.verdict == "inconclusive" and "label's effect" in result.problem


def test_without_the_cue_in_the_features_nothing_can_be_judged(file):
    result = result_of(file, evidence_of(encoded=False))
    assert result.verdict == "inconclusive" and "removes the cue" in result.problem


def test_reference_severities_that_no_baseline_has_seen_give_no_verdict():
    chosen = read_severities(None, ["border", "blur"])
    evidence = evidence_of(operators=tuple(replace(o, change=0.1) for o in chosen.operators))
    result = rr.audit("sdi", evidence, operators=["border", "blur"], B=100)
    assert result.verdict == "inconclusive" and "not calibrated" in result.problem


def test_an_operator_that_costs_the_baseline_auc_unexplained_leaves_the_verdict_open(tmp_path):
    for resolved, verdict in ((False, "inconclusive"), (True, "shortcut")):
        operators = (replace(OPERATORS[0], status=DEPENDS, resolved=resolved), OPERATORS[1])
        file = str(replace(CALIBRATED, operators=operators).save(tmp_path / f"{resolved}.json"))
        result = result_of(file, evidence_of())
        assert result.verdict == verdict
        assert "that is evidence" in check_of(result, "baseline-independent").note


def test_an_operator_under_which_the_reference_falls_as_much_is_no_evidence_against_the_baseline(tmp_path):
    for reference, is_evidence in ((0.04, True), (0.10, False)):
        border = replace(OPERATORS[0], status=DEPENDS, drop=0.11, drop_reference=reference)
        file = str(replace(CALIBRATED, operators=(border, OPERATORS[1])).save(tmp_path / f"{reference}.json"))
        check = check_of(result_of(file, evidence_of()), "baseline-independent")
        assert check.passed is not is_evidence and ("that is evidence" in check.note) is is_evidence
        assert ("so does the reference" in check.note) is not is_evidence


def test_content_that_changes_pixels_otherwise_is_not_compared_with(tmp_path):
    evidence = evidence_of(operators=(replace(OPERATORS[0], change=0.1),))
    far = replace(CALIBRATED, operators=(OPERATORS[0],))
    file = str(far.save(tmp_path / "s.json"))
    name = "change@patches(draw=0,severity=0.2)"
    moved = {c: {a: evidence.on(c)[a] for a in evidence.arrays(c)} for c in ("audit", "test")}
    moved["test"][name] = np.full(len(moved["test"][name]), 0.3)
    rows = {c: evidence.on(c).cohort for c in ("audit", "test")}
    result = result_of(file, Evidence.from_arrays(rows, moved, head=evidence.head), decide="ratio")
    assert result.verdict == "inconclusive" and np.isnan(result.measurement.components[:, 1]).all()
    assert np.isnan(result.measurement.features.r_sc.value).all() and np.isnan(result.measurement.head.r_sc.value).all()
    assert "patches changes pixels 3.00 times as much" in result.measurement.operators.uncompared[0]


def test_excluded_operators_are_listed_and_all_excluded_do_not_run(tmp_path):
    gone = replace(OPERATORS[1], status=EXCLUDED, reason="AUC falls")
    file = str(replace(CALIBRATED, operators=(OPERATORS[0], gone)).save(tmp_path / "s.json"))
    assert result_of(file, evidence_of()).measurement.calibration.excluded == ("blur: AUC falls",)
    file = str(replace(CALIBRATED, operators=(gone,)).save(tmp_path / "none.json"))
    with pytest.raises(NotRun, match="every nuisance operator was excluded"):
        result_of(file, evidence_of())


def test_a_head_that_is_not_known_leaves_reliance_undefined(file):
    evidence = evidence_of()
    arrays = {c: {a: evidence.on(c)[a] for a in evidence.arrays(c)} for c in ("audit", "test")}
    bare = Evidence.from_arrays({c: evidence.on(c).cohort for c in arrays}, arrays, classes=(0, 1))
    result = result_of(file, bare)
    assert result.verdict == "inconclusive" and np.isnan(result.measurement.head.r_sc.value).all()
    assert not np.isnan(result.measurement.features.r_sc.value).any()


# ---- kinds of cue --------------------------------------------------------------------------------------------------------


def test_a_continuous_and_a_categorical_cue_are_probed(file):
    rng = np.random.default_rng(5)
    for values in (rng.random(N), rng.integers(0, 3, N)):
        result = result_of(file, evidence_of(cohort=cohort_of(values=values)))
        m = result.measurement
        assert m.probe.auc.value > 0.8 and m.probe.drop.low[0] > 0.1 and result.verdict == "shortcut"
        assert m.continuous == (values.dtype.kind == "f")


def test_rows_without_a_cue_column_get_a_border_and_no_verdict(file):
    cohort = cohort_of(attribute="")
    evidence = evidence_of(cohort=cohort)
    result = result_of(file, evidence)
    assert result.verdict == "inconclusive" and result.problem == "no cue is named"
    assert result.measurement.probe.auc.value > 0.9
    assert "border was inserted" in {e.name: e for e in result.finding().estimates}["AUC_nc, of the cue's probe"].note


def test_rows_that_lack_the_cue_leave_its_probe_alone(file):
    values = cohort_of().attribute().values.astype(object)
    values[:60] = None
    m = result_of(file, evidence_of(cohort=cohort_of(values=values))).measurement
    assert m.n == N // 2 and m.probe.n_cue == N // 2 - 30


# ---- the panel -----------------------------------------------------------------------------------------------------------


def three(file):
    weights = ((1.0, 0.0), (1.0, 0.5), (1.0, 1.0))
    return [evidence_of(w, seed=k, name=f"model-{k}") for k, w in enumerate(weights)]


def test_one_model_alone_has_components_and_no_index(file):
    result = result_of(file, evidence_of())
    assert result.panel is None and np.isnan(result.index(result.measurement))
    estimate = {e.name: e for e in result.finding().estimates}["SDI (features)"]
    assert estimate.value is None and "one model alone" in estimate.reason


def test_a_model_beside_a_frozen_panel_changes_no_other_index(file, tmp_path):
    models = three(file)
    first = result_of(file, {"test": models[0], "panel": models})
    frozen = str(first.panel.save(tmp_path / "panel.json"))
    other = evidence_of((0.2, 3.0), seed=9, name="newcomer")
    second = result_of(file, {"test": models[0], "panel": [*models, other]}, panel=frozen)
    for space in (0, 1):
        for one, two in zip(first.others, second.others):
            assert first.index(one.measurement, space) == second.index(two.measurement, space)
    assert second.panel == first.panel
    middle = first.others[1].measurement
    found = first.index_interval(middle, 1)
    twin = sdi.combine(middle.component_draws[:, 1], first.panel.limits(1))
    assert found.value == first.index(middle, 1) and (found.low, found.high) == tuple(np.quantile(twin, [0.025, 0.975]))
    assert found.low < found.value < found.high
    indices = [second.index(model.measurement, 1) for model in second.others]
    assert indices[0] < indices[1] < indices[2]
    third = result_of(file, {"test": other}, panel=frozen)
    assert "cut to the panel's range" in check_of(third, "inside-panel").note


def test_the_page_has_bars_components_ablations_and_the_gallery(file, tmp_path):
    pictures = tuple((name, 0.3, rr.findings.png(np.full((8, 8, 3), 0.5))) for name in ("border", "blur"))
    shown = str(replace(CALIBRATED, pictures=pictures).save(tmp_path / "shown.json"))
    finding = result_of(shown, {"test": three(file)[0], "panel": three(file)}).finding()
    titles = {e.title: e for e in finding.exhibits}
    assert isinstance(titles["What the operators do"], Gallery) and len(titles["What the operators do"].items) == 2
    assert isinstance(titles["The index from one family of operators"], Table)
    assert len(titles["Components of the index"].rows) == 8
    assert {
        "Every operator and the cue",
        "Every operator and content of equal pixel change",
        "The index from fewer components",
    } <= set(titles)


def test_files_that_are_something_else_are_refused(file, tmp_path):
    with pytest.raises(SettingError, match="calibrate"):
        read_severities(str(tmp_path / "none.json"))
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(DataError, match="holds no severities"):
        read_severities(str(tmp_path / "other.json"))
    with pytest.raises(DataError, match="holds no SDI panel"):
        sdi.Panel.read(tmp_path / "other.json")
    with pytest.raises(SettingError, match="boarder"):
        read_severities(file, ["boarder"])
