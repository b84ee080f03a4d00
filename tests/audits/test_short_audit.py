"""ShorT on families of models whose use of the attribute is known."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import false_discovery_control, spearmanr
from sklearn.metrics import roc_auc_score

from rightreasons import testing
from rightreasons.audits import audit, short
from rightreasons.audits.short.encoding import read_values
from rightreasons.audits.short.rows import Question, rows_of
from rightreasons.audits.short.settings import Settings
from rightreasons.data.cohort import Cohort
from rightreasons.errors import DataError, NotRun, SettingError
from rightreasons.evidence import Evidence
from rightreasons.findings import Finding
from rightreasons.measurements import load_measurement, save_measurement
from rightreasons.report.figures import draw
from rightreasons.stats import probes
from rightreasons.stats.resampling import exchange_within_label, p_value, whole

SCALES = (-1.0, -0.5, -0.25, -0.1, 0.0, 0.1, 0.25, 0.5, 1.0)
QUICK = {"B": 40, "permutations": 99}


def family(
    *,
    use: float = 1.0,
    moves: float = 1.0,
    noisier: float = 0.0,
    agreement: float = 0.8,
    continuous: bool = False,
    seeds: int = 2,
    n: int = 900,
    world: int = 0,
    costs: float = 0.0,
    subjects: bool = False,
    levels: int = 2,
) -> dict[str, list[Evidence]]:
    """Models that encode the attribute by `moves` times 1 + scale, and lean on what they encode by `use`.

    `noisier` is noise in the images of one group, and `costs` how much of the label's signal comes with the encoding.
    """
    rng = np.random.default_rng(world)
    split = np.repeat(["train", "val", "test"], [n // 2, n // 6, n - n // 2 - n // 6])
    y = rng.integers(0, 2, n)
    agrees = np.where(split == "train", agreement, 0.5)
    a = np.where(rng.random(n) < agrees, y, 1 - y)
    if levels > 2:
        a = np.where(a == 1, levels - 1, rng.integers(0, levels - 1, n))
    column = (a * 15 + rng.normal(50, 8, n)).round(2) if continuous else a
    look = (column - 57.5) / 10 if continuous else 2.0 * (a > 0) - 1 if levels == 2 else a - (levels - 1) / 2
    columns = {"id": [f"r{i}" for i in range(n)], "label": y, "trait": column, "trait_class": (a > 0).astype(int), "split": split}
    if subjects:
        columns["person"] = [f"p{i // 2}" for i in range(n)]
    cohort = Cohort.from_columns(
        columns, attribute=["trait", "trait_class"], split="split", subject="person" if subjects else None, name="family"
    )
    noise = rng.normal(size=(n, 3)) * np.where(a > 0, 1 + noisier, 1.0)[:, None]
    made = []
    for scale in SCALES:
        for seed in range(seeds):
            own = np.random.default_rng([world, seed, SCALES.index(scale)])
            strength = 0.4 + moves * 0.8 * (1 + scale)
            shown = strength * look + own.normal(size=n)
            amplitude = 0.3 + costs * strength if costs else 1.0
            signal = amplitude * (2 * y - 1) + 1.2 * noise[:, 0] + 0.2 * own.normal(size=n)
            features = np.stack([signal, shown, own.normal(size=n)], axis=1)
            z = signal + use * 0.6 * strength * shown
            logits = np.stack([np.zeros(n), z], axis=1)
            made.append(
                Evidence.from_arrays(
                    cohort,
                    {"features": features, "logits": logits},
                    name=f"m{scale:g}-{seed}",
                    seed=seed,
                    training=cohort.on("train"),
                    regime="gradient_scaling",
                    settings={"scale": scale},
                )
            )
    direct = np.stack([2.5 * look + 0.5 * rng.normal(size=n), rng.normal(size=n)], axis=1)
    bound = Evidence.from_arrays(cohort, {"features": direct}, name="bound", target="trait_class", classes=(0, 1))
    return {"sweep": made, "attribute": [bound]}


def with_encoding(m: short.Measurement, value: float) -> short.Measurement:
    return replace(m, encoding=replace(m.encoding, within=replace(m.encoding.within, value=value)))


@pytest.fixture(scope="module")
def planted() -> short.Result:
    return audit("short", family(), **QUICK)


def test_it_keeps_the_contract_of_an_audit() -> None:
    assert testing.check_audit("short", **QUICK).verdict == "inconclusive"


def test_a_planted_shortcut_is_called_and_every_number_is_there(planted: short.Result) -> None:
    finding = planted.finding()
    assert finding.verdict == "shortcut"
    assert "a shortcut" in finding.sentence
    assert planted.rho > 0.5
    assert planted.p < 0.05
    names = {e.name for e in finding.estimates}
    assert {"rho of encoding and signed disparity", "the same given AUC", "rho of encoding and separation"} <= names
    titles = [x.title for x in finding.exhibits]
    for title in (
        "Disparity against encoding",
        "Encoding over the family",
        "Fairness against performance",
        "Models to choose from",
    ):
        assert title in titles
    assert Finding.from_json(finding.to_json()) == finding


def test_the_papers_statistic_stands_beside_ours(planted: short.Result) -> None:
    j = planted.judged
    metric = next(m for m in j.metrics if m.name == "equalised_odds")
    k = j.first.fairness.metrics.index("equalised_odds")
    values = np.array([m.fairness.value[k] for m in j.family.models])[j.family.kept]
    for strength, test in (("within", metric.test), ("marginal", metric.marginal)):
        expected = spearmanr(
            [getattr(m.encoding, strength).value for m, on in zip(j.family.models, j.family.kept, strict=True) if on], values
        )
        assert test.rho == pytest.approx(expected.statistic)
        assert test.usual_p == pytest.approx(expected.pvalue)


def test_the_permutation_p_equals_a_literal_twin() -> None:
    """Exchange the attribute within label by hand, recompute every model's disparity, rank, correlate."""
    models = family(seeds=1)
    measured = [short.measure(e, rng=np.random.default_rng(5), **QUICK) for e in models["sweep"]]
    view = models["sweep"][0].on("test")
    y, a = view.cohort.label, view.cohort.attribute("trait").values
    exchange = exchange_within_label(y, a)
    rng = np.random.default_rng(5).spawn(3)[2]
    for b in range(3):
        moved = a[exchange.permutation(rng)]
        for m, e in zip(measured, models["sweep"], strict=True):
            yes = (1 / (1 + np.exp(-e.on("test")["logits"][:, 1])) >= m.performance.threshold).astype(float)
            gaps = [yes[(y == c) & (moved == 1)].mean() - yes[(y == c) & (moved == 0)].mean() for c in (0, 1)]
            assert m.fairness.null[-1, b] == pytest.approx(np.mean(gaps))
            assert m.fairness.null[m.fairness.metrics.index("equalised_odds"), b] == pytest.approx(np.mean(np.abs(gaps)))


def test_unfairness_that_is_no_shortcut_is_said_to_be_there() -> None:
    result = audit("short", family(use=0.0, noisier=1.5, n=3000, seeds=2), **QUICK)
    assert result.verdict == "no evidence"
    assert "Unfairness is there" in result.finding().sentence
    assert "does not follow the encoding" in result.finding().sentence


def test_no_association_in_training_leaves_nothing_to_exploit() -> None:
    result = audit("short", family(agreement=0.5, seeds=1), **QUICK)
    assert result.verdict == "no evidence"
    assert "no association to exploit" in result.finding().sentence


def test_a_sweep_that_does_not_move_the_encoding_is_inconclusive() -> None:
    result = audit("short", family(moves=0.0, seeds=1), fewest_models=5, **QUICK)
    assert result.verdict == "inconclusive"
    assert "span" in result.finding().sentence
    assert [c.passed for c in result.finding().checks if c.id == "coverage"] == [False]


def test_use_against_the_association_is_under_use() -> None:
    result = audit("short", family(use=-1.0), **QUICK)
    assert result.verdict == "no evidence"
    assert result.judged.is_under_use
    assert "under-use" in result.finding().sentence


def test_too_few_rows_or_models_are_inconclusive() -> None:
    few = family(seeds=1, n=240)
    sentence = audit("short", few, **QUICK).finding().sentence
    assert "at least 10 models" in sentence
    assert "at least 30 test rows" in sentence


def test_without_a_model_of_the_attribute_the_strongest_stands_in_or_nothing_does(planted: short.Result) -> None:
    models = planted.judged.family.models
    result = short.conclude({"sweep": models}, rng=np.random.default_rng(0))
    assert "strongest model of the sweep" in result.judged.bound.source
    assert result.verdict == "shortcut"
    weak = [with_encoding(m, 0.5 + 0.1 * (m.encoding.within.value - 0.5)) for m in models]
    found = short.conclude({"sweep": weak}, rng=np.random.default_rng(0))
    assert found.verdict == "inconclusive"
    assert "well enough to stand in" in found.judged.bound.source
    assert short.conclude({"sweep": weak}, bound=0.55, rng=np.random.default_rng(0)).verdict == "shortcut"


def test_training_and_test_sets_are_crossed_in_a_table(planted: short.Result) -> None:
    models = planted.judged.family.models
    crossed = {("biased", "biased"): models[:2], ("biased", "even"): models[2:4], ("even", "even"): models[:1]}
    table = short.cross_table(crossed, metric="separation")
    assert table.columns == ("trained on", "AUC on biased", "AUC on even", "separation on biased", "separation on even")
    k = models[0].fairness.metrics.index("separation")
    assert table.rows[0][3] == pytest.approx(np.mean([m.fairness.value[k] for m in models[:2]]))
    assert table.rows[1][1] is None
    with pytest.raises(SettingError, match="separations"):
        short.cross_table(crossed, metric="separations")


def test_use_that_the_performance_needs_may_be_legitimate() -> None:
    result = audit("short", family(costs=0.8, use=0.4), floor=0.5, **QUICK)
    assert result.judged.cost.low > 0.02
    assert result.verdict == "shortcut"
    assert "may be legitimate" in result.finding().sentence
    assert result.judged.with_auc > 0.3


@pytest.fixture(scope="module")
def ages() -> dict[str, short.Result]:
    return {
        name: audit("short", family(continuous=True, agreement=g, use=u, n=1200), direction=1, **QUICK)
        for name, g, u in (("biased", 0.85, 1.0), ("balanced", 0.5, 0.0))
    }


def test_a_continuous_attribute_is_called_where_it_is_used_and_the_difference_is_significant(
    ages: dict[str, short.Result],
) -> None:
    assert ages["biased"].verdict == "shortcut"
    assert ages["balanced"].verdict == "no evidence"
    m = ages["biased"].judged.first
    assert m.encoding.unit == "MAE"
    assert m.fairness.metrics == ("separation", "independence", "sufficiency", "signed disparity")
    assert 0 < m.encoding.within.value < m.encoding.chance
    assert m.encoding.chance <= m.encoding.no_information * 1.05
    assert any(c.id == "one slope" for c in ages["biased"].finding().checks)
    found = short.compare(ages["biased"], ages["balanced"], rng=np.random.default_rng(0), P=999)
    assert found.value > 0.4
    assert found.p < 0.05
    assert 0 < found.low < found.value < found.high + 0.3
    same = short.compare(ages["biased"], ages["biased"], rng=np.random.default_rng(0), P=99)
    assert same.low <= 0 <= same.high
    assert same.p > 0.5


def test_a_step_of_a_continuous_attribute_gives_odds_ratios(ages: dict[str, short.Result]) -> None:
    models = ages["biased"].judged.family.models
    result = replace(ages["biased"], judged=short.conclude({"sweep": models}, delta=10.0, rng=np.random.default_rng(0)).judged)
    lead = models[int(ages["biased"].judged.family.is_baseline.argmax())]
    shown = next(e for e in result.finding().estimates if e.name.startswith("separation per 10 of trait"))
    k = lead.fairness.metrics.index("separation")
    assert (shown.value, shown.low) == pytest.approx((math.exp(10 * lead.fairness.value[k]), math.exp(10 * lead.fairness.low[k])))


def test_families_are_compared_at_equal_encoding(ages: dict[str, short.Result]) -> None:
    values = [m.encoding.within.value for m in ages["biased"].judged.family.models]
    table = short.matched_encoding(ages, [min(values), float(np.median(values)), max(values)])
    assert len(table.rows) == 4
    assert sum(row[2] for row in table.rows if row[1] == "biased") == ages["biased"].judged.family.kept.sum()
    with pytest.raises(SettingError, match="rise"):
        short.matched_encoding(ages, [1.0, 1.0])


def test_bins_give_a_continuous_attribute_the_metrics_that_are_gaps() -> None:
    one = family(continuous=True)["sweep"][0]
    m = short.measure(one, rng=np.random.default_rng(0), bins=[0, 50, 60, 120], **QUICK)
    assert {"equalised_odds", "max_gap"} <= set(m.fairness.metrics)
    assert not np.isnan(m.fairness.null[m.fairness.metrics.index("max_gap")]).any()
    with pytest.raises(SettingError, match="leave out test rows"):
        short.measure(one, rng=np.random.default_rng(0), bins=[40, 50, 60], **QUICK)


def test_several_attribute_values_are_tested_one_by_one() -> None:
    result = audit("short", family(levels=3, n=1500), **QUICK)
    m = result.judged.first
    assert m.fairness.n_signed == 3
    assert result.verdict == "shortcut"
    assert result.judged.direction.startswith("trait = ")


def test_subjects_are_exchanged_whole() -> None:
    models = family(subjects=True, seeds=1)
    result = audit("short", models, **QUICK)
    assert result.context.n_subjects is not None
    assert result.context.n_subjects < result.context.n_rows


def test_a_readout_with_hidden_layers_reads_what_the_linear_one_reads_and_what_it_misses() -> None:
    one = family()["sweep"][-1]
    quick = {"B": 20, "permutations": 19}
    linear, deep = (short.measure(one, rng=np.random.default_rng(0), hidden=h, **quick) for h in ((), (16,)))
    assert deep.encoding.within.value == pytest.approx(linear.encoding.within.value, abs=0.08)
    rng = np.random.default_rng(0)
    cohort = family(n=1500)["sweep"][0]
    views = {s: cohort.on(s) for s in ("train", "val", "test")}
    arrays = {}
    for name, view in views.items():
        a, z = view.cohort.attribute("trait").values, rng.normal(size=(len(view), 2))
        z += np.sign(z)
        z[:, 1] = np.abs(z[:, 1]) * np.sign(z[:, 0]) * (2 * a - 1)  # the attribute is whether two signs agree
        arrays[name] = {"features": z, "logits": view["logits"]}
    hiding = Evidence.from_arrays({s: v.cohort for s, v in views.items()}, arrays, training=views["train"].cohort, name="signs")
    linear, deep = (short.measure(hiding, rng=np.random.default_rng(0), hidden=h, **quick) for h in ((), (16,)))
    assert linear.encoding.within.value < 0.6
    assert deep.encoding.within.value > 0.8


def test_the_encoding_has_a_p_by_exchange() -> None:
    """Exchange the attribute by hand and score the same readout again; and a readout of noise has any p."""
    one = family(world=3)["sweep"][0]
    strong = short.measure(one, rng=np.random.default_rng(5), **QUICK)
    assert strong.encoding.p == pytest.approx(1 / 100)
    question = Question(one.on("test").cohort.attribute("trait"), positive=1)
    fit, test = (rows_of(one.on(name), question) for name in ("train", "test"))
    readout = read_values(fit, test, Settings(), 0)
    exchange = exchange_within_label(test.y, test.a)
    donors = exchange.permutation(np.random.default_rng(1))
    score = probes.fit(fit.z, fit.a, weight=probes.equal_weights(2 * fit.a + fit.y)).score(test.z)[:, 1]
    own = [roc_auc_score(test.a[donors][test.y == k], score[test.y == k]) for k in (0, 1)]
    assert readout.exchanged(donors[None])[0] == pytest.approx(np.mean(own))
    found = []
    for world in range(40):
        noise = np.random.default_rng(world).normal(size=(len(one.on("train")) + len(one.on("test")), 3))
        cut = len(one.on("train"))
        pair = [replace(rows, z=z) for rows, z in zip((fit, test), (noise[:cut], noise[cut:]), strict=True)]
        of_noise = read_values(*pair, Settings(), 0)
        draws = np.stack(list(exchange.permutations(39, np.random.default_rng(world))))
        found.append(p_value(float(of_noise.within(whole(len(test)))[0]), of_noise.exchanged(draws), "greater"))
    assert 0.3 < np.mean(found) < 0.7
    assert np.mean(np.array(found) <= 0.1) < 0.3


def test_a_continuous_encoding_has_a_p_by_exchange(ages: dict[str, short.Result]) -> None:
    m = ages["biased"].judged.family.models[-1]
    assert m.encoding.unit == "MAE"
    assert m.encoding.p == pytest.approx(1 / 100)
    shown = next(e for e in ages["biased"].finding().estimates if e.name.startswith("encoding within the label"))
    assert shown.p == ages["biased"].judged.family.models[int(ages["biased"].judged.family.is_baseline.argmax())].encoding.p


def test_several_metrics_are_corrected_for_one_another(planted: short.Result) -> None:
    metrics = planted.judged.metrics
    assert len(metrics) == len(short.METRICS)
    expected = false_discovery_control([m.test.p for m in metrics], method="bh")
    np.testing.assert_allclose([m.adjusted for m in metrics], expected)
    assert planted.judged.signed.adjusted == planted.judged.signed.test.p  # one test that decides is one test


def test_models_below_the_floor_are_shown_hollow(planted: short.Result) -> None:
    floor = float(np.sort(planted.judged.family.auc)[3]) + 1e-9
    result = replace(
        planted, judged=short.conclude({"sweep": planted.judged.family.models}, floor=floor, rng=np.random.default_rng(0)).judged
    )
    cloud = next(x for x in result.finding().exhibits if x.title == "Disparity against encoding")
    assert sum(group in cloud.hollow for group in cloud.group) == (~result.judged.family.kept).sum() == 4
    marks = [part.split("/>")[0] for part in str(draw(cloud)).split('<g class="cloud"')[1:]]
    assert sum("hollow" in part for part in marks) == 1


def test_twins_add_a_counterfactual_gap() -> None:
    evidence = testing.synthetic_evidence(n=400)
    m = short.measure(evidence, rng=np.random.default_rng(0), twins=True, **QUICK)
    k = m.fairness.metrics.index("counterfactual gap")
    flips = (evidence.on("twin")["logits"].argmax(1) != evidence.on("test")["logits"].argmax(1)).mean()
    assert m.fairness.value[k] == pytest.approx(flips)
    assert np.isnan(m.fairness.null[k]).all()


def test_measurements_are_kept_on_disk(tmp_path, planted: short.Result) -> None:
    m = planted.judged.first
    again = load_measurement(short.Measurement, save_measurement(m, tmp_path / "m.npz"))
    assert again.encoding.within == m.encoding.within
    np.testing.assert_array_equal(again.fairness.null, m.fairness.null)
    assert m.scalars()["auc"] == m.performance.auc.value


def test_a_studys_table_shows_the_same_columns_whatever_the_pieces(planted: short.Result) -> None:
    m = planted.judged.family.models[0]
    limits = [f"{name}{end}" for name in ("encoding", "encoding_marginal", "auc") for end in ("", "_low", "_high")]
    assert list(m.scalars()) == ["attribute", "scale", "n", *limits, *short.METRICS, "signed_disparity"]
    assert m.scalars()["encoding_marginal_low"] == m.encoding.marginal.low
    assert m.scalars()["signed_disparity"] == m.fairness.value[-1]
    bound = short.measure(family(seeds=1)["attribute"][0], rng=np.random.default_rng(0), attribute="trait", **QUICK)
    assert list(bound.scalars()) == ["attribute", "scale", "n", *limits[:6]]


def test_a_model_is_picked_from_the_front(planted: short.Result) -> None:
    picked = planted.pick(tolerance=0.05)
    j = planted.judged
    able = j.family.auc >= j.family.auc[j.family.is_baseline].mean() - 0.05
    assert (
        abs(j.family.disparity[picked])
        == np.abs(j.family.disparity[able]).min()
        < np.abs(j.family.disparity[j.family.is_baseline]).mean()
    )
    best = int(np.argmax(np.where(j.family.kept, j.family.auc, -1)))
    assert best in planted.front
    assert int(np.argmin(np.where(j.family.kept, np.abs(j.family.disparity), np.inf))) in planted.front
    for k in planted.front:
        assert not (
            (j.family.auc > j.family.auc[k]) & (np.abs(j.family.disparity) < np.abs(j.family.disparity[k])) & j.family.kept
        ).any()
    shown = next(x for x in planted.finding().exhibits if x.title == "Models to choose from")
    assert j.family.models[planted.pick()].model in shown.caption
    with pytest.raises(SettingError, match="larger tolerance"):
        planted.pick(tolerance=-1.0)


def test_what_cannot_run_says_why() -> None:
    models = family(seeds=1)
    with pytest.raises(SettingError, match="direction"):
        audit("short", models, direction=2)
    with pytest.raises(SettingError, match="no p can reach"):
        audit("short", models, permutations=5)
    with pytest.raises(SettingError, match="max_f1 or argmax"):
        audit("short", models, threshold="half", **QUICK)
    with pytest.raises(SettingError, match="no class of the label"):
        audit("short", models, positive=7)
    with pytest.raises(SettingError, match="no fairness metric"):
        audit("short", models, metrics=["separations"], **QUICK)
    with pytest.raises(NotRun, match="no model of the label"):
        short.conclude({}, rng=np.random.default_rng(0))
    other = family(seeds=1, world=1)
    with pytest.raises(DataError, match="the same rows"):
        audit("short", {"sweep": [models["sweep"][0], other["sweep"][0]]}, **QUICK)


def test_a_constant_decision_leaves_metrics_undefined_with_the_reason() -> None:
    models = family(seeds=1)
    first = models["sweep"][0]
    arrays = {s: {k: first.on(s)[k] for k in ("features", "logits")} for s in ("train", "val", "test")}
    arrays["test"]["logits"] = np.tile([0.0, 9.0], (len(arrays["test"]["logits"]), 1))
    cohorts = {s: first.on(s).cohort for s in arrays}
    flat = Evidence.from_arrays(cohorts, arrays, training=cohorts["train"], settings={"scale": -1.0}, name="flat")
    m = short.measure(flat, rng=np.random.default_rng(0), threshold="argmax", **QUICK)
    k = m.fairness.metrics.index("separation")
    assert math.isnan(m.fairness.value[k])
    assert "one outcome only" in m.fairness.reason[k]
    result = audit(
        "short", {**models, "sweep": [*models["sweep"], flat]}, threshold="argmax", floor=0.0, fewest_models=5, **QUICK
    )
    assert next(t for t in result.judged.metrics if t.name == "separation").test.n == len(models["sweep"])


@pytest.mark.slow
def test_worlds_without_a_shortcut_are_rarely_called() -> None:
    called = 0
    for world in range(20):
        measured = family(use=0.0, seeds=1, world=world, n=600)
        called += audit("short", measured, B=20, permutations=99, fewest_models=5, smallest_group=10).verdict == "shortcut"
    assert called <= 3


def test_balanced_models_alone_are_no_sweep():
    models = family(seeds=1)
    with pytest.raises(NotRun, match="a study trains one"):
        audit("short", {"baseline": models["sweep"][:4], "attribute": models["attribute"]}, **QUICK)
