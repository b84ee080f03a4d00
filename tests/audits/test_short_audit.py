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
from rightreasons.audits.short.judge import weakest
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
EASY = {"visible": 1.0, "fewest_models": 5}  # for families that are too small to deny anything


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


def said(result: short.Result) -> str:
    return replace(result, context=replace(result.context, name="short")).finding().sentence


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
    assert Finding.from_json(finding.to_json()).to_json() == finding.to_json()


def test_the_papers_statistic_stands_beside_ours(planted: short.Result) -> None:
    j = planted.judged
    metric = next(m for m in j.metrics if m.name == "equalised_odds")
    k = j.first.fairness.metrics.index("equalised_odds")
    values = np.array([m.fairness.value[k] for m in j.family.models])[j.family.kept]
    for strength, test in (("within", metric.whole), ("marginal", metric.marginal)):
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
    result = audit("short", family(use=0.0, noisier=1.5, n=3000, seeds=2), visible=0.99, coverage=0.4, **QUICK)
    assert result.verdict == "no evidence"
    assert "Unfairness is there" in result.finding().sentence
    assert "does not follow the encoding" in result.finding().sentence


def test_no_association_in_training_leaves_nothing_to_exploit() -> None:
    result = audit("short", family(agreement=0.5, seeds=1, n=4000), **QUICK)
    assert result.judged.family.lead.association.answer == "small"
    assert result.verdict == "no evidence"
    assert "no association to exploit" in result.finding().sentence
    assert "does not follow the encoding" not in result.finding().sentence


def test_an_association_that_few_rows_cannot_rule_out_is_not_known() -> None:
    result = audit("short", family(agreement=0.5, seeds=1, n=600), **QUICK)
    assert result.judged.family.lead.association.answer == "not known"
    assert result.verdict == "inconclusive"
    assert "known to go with the label in training, or known not to" in result.finding().sentence


def test_a_correlation_is_denied_only_where_it_could_have_been_seen() -> None:
    models = family(use=0.0, seeds=2)
    measured = [short.measure(e, rng=np.random.default_rng(5), **QUICK) for e in models["sweep"]]
    strict, lax = (short.conclude({"sweep": measured}, visible=v, rng=np.random.default_rng(0)) for v in (0.3, 0.99))
    assert strict.verdict == "inconclusive"
    assert "the smallest |rho| that it could see is" in said(strict)
    assert "does not follow how strongly" not in said(strict)
    assert lax.verdict == "no evidence"
    assert "would have been seen" in said(lax)
    null = lax.judged.signed.test.null
    expected = np.quantile(np.abs(null), 0.95) + 0.8416212 * null.std()
    assert lax.judged.signed.visible == pytest.approx(min(1.0, expected))


def with_scales(measured: list[short.Measurement], lean: dict[float, float]) -> list[short.Measurement]:
    """The models with the lean of their scale instead of their own, the same noise left on it."""
    found = []
    for m in measured:
        value = m.fairness.value.copy()
        value[-1] = lean[m.scale] + 0.1 * value[-1]
        found.append(replace(m, fairness=replace(m.fairness, value=value)))
    return found


def test_what_only_amplified_models_do_is_no_call_on_the_tested_one() -> None:
    """Models that are made to show the attribute come to use it; the baseline and those below it do not."""
    measured = [short.measure(e, rng=np.random.default_rng(5), **QUICK) for e in family(use=0.0, seeds=3)["sweep"]]
    forced = with_scales(measured, {s: 0.4 * max(0.0, s) for s in SCALES})
    result = short.conclude({"sweep": forced}, visible=0.99, rng=np.random.default_rng(0))
    assert result.judged.signed.whole.p < 0.05
    assert result.judged.signed.amplified.rho > 0.5
    assert result.verdict == "no evidence"
    assert "made to encode it more do lean on it" in said(result)


def test_models_that_overshoot_are_not_on_the_removal_side(planted: short.Result) -> None:
    """Strong reversal shows the attribute the other way round: such a model encodes more than the baseline."""
    models = list(planted.judged.family.models)
    at = next(k for k, m in enumerate(models) if m.scale == -1.0)
    models[at] = with_encoding(models[at], 0.999)
    family_of = short.conclude({"sweep": models}, rng=np.random.default_rng(0)).judged.family
    assert planted.judged.family.removal[at]
    assert not family_of.removal[at]
    assert not family_of.removal[family_of.scale > 0].any()
    assert family_of.removal[family_of.is_baseline].all()


def test_a_baseline_that_hardly_encodes_the_attribute_leaves_nothing_to_remove(planted: short.Result) -> None:
    hardly = [with_encoding(m, 0.51) if m.scale <= 0 else m for m in planted.judged.family.models]
    result = short.conclude({"sweep": hardly}, rng=np.random.default_rng(0))
    assert result.verdict == "inconclusive"
    assert "there is something to remove" in said(result)


def test_the_case_weighs_a_lean_and_no_correlation(planted: short.Result) -> None:
    """The first estimate is a share of decisions, with the p that decides: rho says that it is there, not how strong it is."""
    first = planted.finding().estimates[0]
    j = planted.judged
    base, weak = j.family.is_baseline, weakest(j.family)
    assert first.value == pytest.approx(j.family.disparity[base].mean() - j.family.disparity[weak].mean())
    assert first.low < first.value < first.high
    assert first.p == planted.p
    assert "baseline itself leans by" in planted.finding().sentence


def test_a_u_is_an_association_and_its_use_is_seen_along_it() -> None:
    """Label shares of 48, 6 and 47 per cent over a number have no slope; models that lean along the U are called all the same."""
    rng = np.random.default_rng(0)
    n = 3000
    split = np.repeat(["train", "val", "test"], [1500, 300, 1200])
    age = rng.uniform(0, 90, n)
    likely = np.where((age > 30) & (age < 60), 0.06, 0.475)
    y = (rng.random(n) < np.where(split == "train", likely, 0.5)).astype(int)
    ids = [f"r{i}" for i in range(n)]
    cohort = Cohort.from_columns({"id": ids, "label": y, "age": age, "split": split}, attribute=["age"], split="split")
    bent = np.abs(age - 45) / 22.5 - 1
    shared, made = rng.normal(size=n), []
    for scale in (*SCALES, -0.7, -0.35):
        strength = 1 + scale
        shown = np.stack([2 * y + rng.normal(size=n), strength * age / 30 + rng.normal(size=n)], axis=1)
        z = 2 * y - 1 + 0.9 * shared + 0.3 * rng.normal(size=n) + strength * bent
        arrays = {"features": shown, "logits": np.stack([0 * z, z], axis=1)}
        settings = {"scale": scale}
        made.append(
            Evidence.from_arrays(cohort, arrays, name=f"m{scale}", training=cohort.on("train"), seed=0, settings=settings)
        )
    result = audit("short", {"sweep": made}, bound=5.0, fewest_models=5, floor=0.5, **QUICK)
    association = result.judged.family.lead.association
    assert association.answer == "there"
    assert association.sign.tolist() == [0.0, 1.0]
    assert result.judged.direction.endswith("along no slope")
    assert result.verdict == "shortcut"


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
    assert table.rows[0][3].value == pytest.approx(np.mean([m.fairness.value[k] for m in models[:2]]))
    assert table.rows[0][3].low < table.rows[0][3].value < table.rows[0][3].high
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
        name: audit("short", family(continuous=True, agreement=g, use=u, n=1200), direction=1, **EASY, **QUICK)
        for name, g, u in (("biased", 0.85, 1.0), ("balanced", 0.5, 0.0))
    }


def test_a_continuous_attribute_is_called_where_it_is_used_and_two_seeds_leave_the_difference_open(
    ages: dict[str, short.Result],
) -> None:
    assert ages["biased"].verdict == "shortcut"
    assert ages["balanced"].verdict == "no evidence"
    m = ages["biased"].judged.first
    assert m.encoding.unit == "MAE"
    assert m.fairness.metrics == (
        "separation", "independence", "sufficiency", "signed disparity", "signed disparity: along the shape",
    )  # fmt: skip
    assert 0 < m.encoding.within.value < m.encoding.chance
    assert m.encoding.chance <= m.encoding.no_information * 1.05
    assert any(c.id == "one slope" for c in ages["biased"].finding().checks)
    found = short.compare(ages["biased"], ages["balanced"], rng=np.random.default_rng(0), P=999)
    assert found.value > 0.4
    assert found.low < 0 < found.value < found.high  # nine models and two seeds a family are few
    assert found.replicates == (2, 2)
    same = short.compare(ages["biased"], ages["biased"], rng=np.random.default_rng(0), P=99)
    assert same.low <= 0 <= same.high
    assert same.p > 0.5


def coded_the_other_way(m: short.Measurement) -> short.Measurement:
    """The model, measured with the two values of the attribute exchanged."""
    f, a = m.fairness, m.association
    turned = replace(f, value=f.value.copy(), draws=f.draws.copy(), null=f.null.copy())
    for part in (turned.value, turned.draws, turned.null):
        part[-1] *= -1
    return replace(m, fairness=turned, association=replace(a, sign=-a.sign, estimate=-a.estimate))


def test_a_difference_does_not_hang_on_how_the_attribute_is_coded(planted: short.Result) -> None:
    models = planted.judged.family.models
    even = [replace(m, association=replace(m.association, answer="small", sign=0 * m.association.sign)) for m in models]
    differences = []
    for family_of in ((models, even), tuple([coded_the_other_way(m) for m in f] for f in (models, even))):
        results = [short.conclude({"sweep": f}, rng=np.random.default_rng(0)) for f in family_of]
        differences.append(short.compare(*results, rng=np.random.default_rng(0), P=99))
    assert differences[0].value == differences[1].value == pytest.approx(0.0)
    turned = short.compare(*results, rng=np.random.default_rng(0), P=99, along=-1)
    assert turned.value == pytest.approx(0.0)
    with pytest.raises(SettingError, match="no family has"):
        short.compare(results[1], results[1], rng=np.random.default_rng(0))


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
    assert all(row[4] is None or row[4].low <= row[4].value <= row[4].high for row in table.rows)
    assert sum(row[2] for row in table.rows if row[1] == "biased") == ages["biased"].judged.family.kept.sum()
    with pytest.raises(SettingError, match="rise"):
        short.matched_encoding(ages, [1.0, 1.0])


def test_families_stand_beside_each_other_on_one_page(ages: dict[str, short.Result]) -> None:
    finding = short.across(ages, name="short-families", rng=np.random.default_rng(0))
    assert finding.verdict is None
    (difference,) = finding.estimates
    assert difference.name == "difference in rho, biased less balanced"
    assert difference.low < difference.value < difference.high
    assert [x.title for x in finding.exhibits] == [
        "Families against each other", "Disparity at equal encoding", "Lean at equal encoding", "AUC at equal encoding",
        "Training sets against test sets",
    ]  # fmt: skip
    drawn = finding.exhibits[2]
    assert set(drawn.group) == {"biased", "balanced"}
    assert all(low <= y <= high for low, y, high in zip(drawn.y_low, drawn.y, drawn.y_high, strict=True))
    assert 'class="spreads"' in str(draw(drawn))
    assert [c.passed for c in finding.checks if c.id == "replicates"] == [False]
    with pytest.raises(SettingError, match="at least two"):
        short.across({"biased": ages["biased"]}, name="short-families", rng=np.random.default_rng(0))


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


def test_a_readout_with_hidden_layers_reads_a_number() -> None:
    one = family(continuous=True, seeds=1)["sweep"][-1]
    quick = {"B": 20, "permutations": 19}
    linear, deep = (short.measure(one, rng=np.random.default_rng(0), hidden=h, **quick) for h in ((), (16,)))
    assert deep.encoding.unit == "MAE"
    assert deep.encoding.within.value == pytest.approx(linear.encoding.within.value, rel=0.15)


def test_the_gap_of_auc_is_one_of_scores() -> None:
    one = family(use=1.0)["sweep"][-1]
    m = short.measure(one, rng=np.random.default_rng(0), of="auc", **QUICK)
    view = one.on("test")
    a, score = view.cohort.attribute("trait").values, view["logits"][:, 1]
    areas = [roc_auc_score(view.cohort.label[a == k], score[a == k]) for k in (0, 1)]
    k = m.fairness.metrics.index("max_gap")
    assert m.fairness.value[k] == pytest.approx(max(areas) - min(areas))
    assert not np.isnan(m.fairness.null[k]).any()


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
    assert 'class="spreads"' in str(draw(cloud))  # every model with its interval
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
    chosen = j.family.models[planted.pick()]
    assert f"scale {chosen.scale:+.3g}, seed {chosen.seed}" in shown.caption
    with pytest.raises(SettingError, match="larger tolerance"):
        planted.pick(tolerance=-1.0)


def test_what_cannot_run_says_why() -> None:
    models = family(seeds=1)
    with pytest.raises(SettingError, match="direction"):
        audit("short", models, direction=2)
    with pytest.raises(SettingError, match="permutations is 5: give 19"):
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
    assert next(t for t in result.judged.metrics if t.name == "separation").whole.n == len(models["sweep"])


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
