"""Find, gate and restore agree with the paper's formulas written out row by row; many draws at once agree with one at a time."""

from __future__ import annotations

import numpy as np
import pytest

from rightreasons.errors import DataError, SettingError
from rightreasons.stats import restoration
from rightreasons.stats.restoration import FEW, ONE_VALUE, WEAK, ShuffledRows, find, find_and_gate_draws, gate, halves, restore


def world(rng, n=160, d=9, C=2, A=2, size=1.0):
    y, a = rng.integers(0, C, n), rng.integers(0, A, n)
    z = rng.normal(size=(n, d)) + 1.5 * rng.normal(size=(C, d))[y] + size * rng.normal(size=(C, A, d))[y, a]
    return z, y, a


# ---- the paper's formulas, literally ------------------------------------------------------------------------------------


def literal_direction(z, y, a, c, rho, value=1):
    """u_c of sec. 3: centre in the class, correct for the label subspace, contrast a value with the others, normalise."""
    mu = np.array([sum(z[i] for i in range(len(y)) if y[i] == k) / sum(y == k) for k in sorted(set(y.tolist()))])
    overall = sum(z) / len(z)
    Q = np.linalg.qr((mu - overall).T)[0][:, : len(mu) - 1]
    P = Q @ Q.T
    corrected = {i: (np.eye(z.shape[1]) - rho * P) @ (z[i] - mu[c]) for i in range(len(y)) if y[i] == c}
    ones = [h for i, h in corrected.items() if a[i] == value]
    others = [h for i, h in corrected.items() if a[i] != value]
    v = sum(ones) / len(ones) - sum(others) / len(others)
    return v / np.linalg.norm(v), mu, P


def literal_T(u, z, y, a, c, mu, P, rho, value=1):
    s = {i: u @ (np.eye(len(u)) - rho * P) @ (z[i] - mu[c]) for i in range(len(y)) if y[i] == c}
    one = [v for i, v in s.items() if a[i] == value]
    other = [v for i, v in s.items() if a[i] != value]
    return abs(np.mean(one) - np.mean(other)) / np.sqrt(0.5 * (np.var(one) + np.var(other)) + 1e-12)


@pytest.mark.parametrize("rho", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("C", [2, 3])
def test_find_gate_and_restore_are_the_papers_formulas(rng, rho, C):
    z, y, a = world(rng, C=C)
    gate_z, gate_y, gate_a = world(rng, C=C)
    test_z, test_y, _ = world(rng, C=C)
    found = find(z, y, a, rho)
    judged = gate(found, gate_z, gate_y, gate_a, tau=0.3, n_min=5)
    expected = test_z.copy()
    for c in range(C):
        u, mu, P = literal_direction(z, y, a, c, rho)
        np.testing.assert_allclose(found.u[c, 1], u, atol=1e-10)
        np.testing.assert_allclose(found.u[c, 0], -u, atol=1e-10)
        T = literal_T(u, gate_z, gate_y, gate_a, c, mu, P, rho)
        np.testing.assert_allclose(judged.T[c], [T, T], atol=1e-10)
        assert judged.open[c].tolist() == [T > 0.3] * 2
        assert judged.counts[c].tolist() == [int(np.sum((gate_y == c) & (gate_a == v))) for v in (0, 1)]
        for i in np.flatnonzero(test_y == c):
            if T > 0.3:
                expected[i] = test_z[i] + 2 * np.outer(u, u) @ (test_z[i] - mu[c])
    assert judged.is_open
    np.testing.assert_allclose(restore(test_z, test_y, judged, 2.0), expected, atol=1e-10)


def test_several_values_are_orthonormalised_and_P_projects_on_their_span(rng):
    z, y, a = world(rng, n=400, A=3, size=2.0)
    found = find(z, y, a)
    for c in (0, 1):
        us = np.array([literal_direction(z, y, a, c, 0.5, v)[0] for v in range(3)])
        np.testing.assert_allclose(found.u[c], us, atol=1e-10)
        P = np.linalg.pinv(us) @ us
        basis = found.basis(c)
        assert len(basis) == 2  # each against the rest of the class: the third is a combination of the others
        np.testing.assert_allclose(basis @ basis.T, np.eye(2), atol=1e-10)
        np.testing.assert_allclose(basis.T @ basis, P, atol=1e-8)
        here = y == c
        expected = z[here] + 0.5 * (z[here] - z[here].mean(axis=0)) @ P
        np.testing.assert_allclose(restore(z, y, found, 0.5)[here], expected, atol=1e-8)


def test_beta_zero_is_the_identity_to_the_bit(rng):
    z, y, a = world(rng)
    assert (restore(z, y, find(z, y, a), 0.0) == z).all()
    assert restore(z.astype(np.float32), y, find(z, y, a), 0.0).dtype == np.float32


@pytest.mark.parametrize("kind", restoration.KINDS)
def test_turning_the_feature_space_turns_everything_with_it(rng, kind):
    z, y, a = world(rng, n=300, C=3, A=3)
    turn = np.linalg.qr(rng.normal(size=(9, 9)))[0]
    first, second = halves(y, a, rng=rng)
    straight, turned = (
        gate(find(x[first], y[first], a[first], kind=kind), x[second], y[second], a[second]) for x in (z, z @ turn)
    )
    np.testing.assert_allclose(straight.T, turned.T, atol=1e-9)
    assert (straight.open == turned.open).all()
    np.testing.assert_allclose(restore(z, y, straight) @ turn, restore(z @ turn, y, turned), atol=1e-9)


def test_full_correction_takes_the_label_direction_out(rng):
    z, y, a = world(rng)
    found = find(z, y, a, rho=1.0)
    label = z[y == 1].mean(axis=0) - z[y == 0].mean(axis=0)
    np.testing.assert_allclose(found.u @ label, 0, atol=1e-9)
    assert np.abs(find(z, y, a, rho=0.0).u @ label).max() > 0.01


def test_a_restored_row_moves_away_from_its_class_mean_along_the_direction_only(rng):
    z, y, a = world(rng)
    found = find(z, y, a)
    moved = restore(z, y, found, 2.0) - z
    for c in (0, 1):
        u = found.u[c, 1]
        here = y == c
        np.testing.assert_allclose(moved[here], 2 * np.outer((z[here] - z[here].mean(axis=0)) @ u, u), atol=1e-10)


# ---- gates and odd inputs -----------------------------------------------------------------------------------------------


def test_a_gate_says_why_it_is_closed(rng):
    z, y, a = world(rng, n=400, size=3.0)
    a[(y == 1) & (np.cumsum(y) > 30)] = 0  # few rows of one group
    noise = rng.normal(size=(400, 9))
    few = gate(find(z, y, a), z, y, a, n_min=25)
    assert few.open.tolist() == [[True, True], [False, False]]
    assert few.reason[1] == (FEW, FEW)
    weak = gate(find(noise[:200], y[:200], a[:200]), noise[200:], y[200:], a[200:], tau=0.9, n_min=1)
    assert not weak.is_open
    assert weak.reason[0] == (WEAK, WEAK)
    assert (restore(noise, y, weak) == noise).all()


def test_a_class_with_one_attribute_value_has_no_direction(rng):
    z, y, a = world(rng)
    a[y == 1] = 0
    found = find(z, y, a)
    assert found.reason[1] == (ONE_VALUE, ONE_VALUE)
    assert len(found.basis(1)) == 0
    judged = gate(found, z, y, a, n_min=1)
    assert judged.reason[1] == (ONE_VALUE, ONE_VALUE)
    assert np.isnan(judged.T[1]).all()
    assert (restore(z, y, judged)[y == 1] == z[y == 1]).all()


def test_constant_features_have_no_direction(rng):
    found = find(np.ones((40, 3)), np.arange(40) % 2, np.arange(40) // 2 % 2)
    assert not found.is_open
    assert not gate(found, np.ones((40, 3)), np.arange(40) % 2, np.arange(40) // 2 % 2, n_min=1).is_open


def test_names_and_missing_rows_are_fine(rng):
    z, y, a = world(rng)
    names, values = np.array(["cat", "dog"])[y], np.array(["none", "tag"])[a].astype(object)
    by_name, by_code = find(z, names, values), find(z, y, a)
    assert by_name.labels == ("cat", "dog")
    np.testing.assert_array_equal(by_name.u, by_code.u)
    lacking = y.copy()
    lacking[:30] = -1
    np.testing.assert_array_equal(find(z, lacking, a).u, find(z[30:], y[30:], a[30:]).u)
    assert (restore(z, lacking, by_code)[:30] == z[:30]).all()


def test_bad_inputs_are_refused_with_what_was_found(rng):
    z, y, a = world(rng)
    bad = z.copy()
    bad[3, 2] = np.nan
    with pytest.raises(DataError, match=r"not finite.*row 3"):
        find(bad, y, a)
    with pytest.raises(DataError, match="same rows"):
        find(z, y[:-1], a)
    with pytest.raises(DataError, match="expected"):
        find(z[0], y, a)
    with pytest.raises(DataError, match="no row has a label"):
        find(z, np.full(len(y), -1), a)
    with pytest.raises(SettingError, match="rho"):
        find(z, y, a, rho=2)
    with pytest.raises(SettingError, match="kind"):
        find(z, y, a, kind="other")
    found = find(z, y, a)
    with pytest.raises(DataError, match="same layer"):
        gate(found, z[:, :4], y, a)
    with pytest.raises(SettingError, match="n_min"):
        gate(found, z, y, a, n_min=0)
    with pytest.raises(DataError, match="have no directions"):
        restore(z, y + 1, found)
    with pytest.raises(DataError, match="same rows"):
        restore(z, y[:-1], found)


# ---- halves, draws, components ------------------------------------------------------------------------------------------


def test_halves_halve_every_group(rng):
    _, y, a = world(rng, n=501, C=3, A=2)
    first, second = halves(y, a, rng=rng)
    assert sorted([*first, *second]) == list(range(501))
    for c in range(3):
        for v in range(2):
            sizes = [int(np.sum((y[rows] == c) & (a[rows] == v))) for rows in (first, second)]
            assert abs(sizes[0] - sizes[1]) <= 1


def test_halves_keep_subjects_together_and_leave_incomplete_rows_out(rng):
    subject = np.repeat(np.arange(100), 4)
    y, a = np.repeat(rng.integers(0, 2, 100), 4), rng.integers(0, 2, 400)
    y[:8] = -1
    first, second = halves(y, a, rng=rng, subject=subject)
    assert not set(subject[first]) & set(subject[second])
    assert not set(range(8)) & {*first, *second}
    assert abs(len(first) - len(second)) < 20


@pytest.mark.parametrize("A", [2, 3])
def test_many_draws_agree_with_one_at_a_time(rng, A):
    z, y, a = world(rng, n=240, A=A, size=2.0)
    gz, gy, ga = world(rng, n=240, A=A, size=2.0)
    found = find(z, y, a)
    draws = [np.where(y == 1, rng.permutation(a), a) for _ in range(6)]
    gate_draws = [np.where(gy == 1, rng.permutation(ga), ga) for _ in range(6)]
    many = find_and_gate_draws(
        ShuffledRows(z[y == 1] - found.mean[1], np.stack(draws)[:, y == 1]),
        ShuffledRows(gz[gy == 1] - found.mean[1], np.stack(gate_draws)[:, gy == 1]),
        A, found.label_basis, 0.5, 0.1, 5,
    )  # fmt: skip
    assert many.open.any() and not many.open.all()
    for k, (shuffled, shuffled_gate) in enumerate(zip(draws, gate_draws, strict=True)):
        one = find(z, y, shuffled)
        judged = gate(one, gz, gy, shuffled_gate, tau=0.1, n_min=5)
        np.testing.assert_allclose(many.T[k], judged.T[1, -many.T.shape[1] :], atol=1e-10)
        for span, directions in ((many.forced[k], one), (many.gated[k], judged)):
            basis = directions.basis(1)
            np.testing.assert_allclose(span.T @ span, basis.T @ basis, atol=1e-9)


def test_leading_components_are_those_of_a_singular_value_decomposition_and_leave_out_what_is_asked(rng):
    z = rng.normal(size=(80, 12)) * np.linspace(6, 0.1, 12) ** 2
    without = np.linalg.qr(rng.normal(size=(12, 1)))[0].T
    found = restoration.leading_components(z, without, 3, 0.999, rng)
    x = z - z.mean(axis=0)
    x = x - (x @ without.T) @ without
    exact = np.linalg.svd(x, full_matrices=False)[2][:3]
    np.testing.assert_allclose(found.T @ found, exact.T @ exact, atol=1e-6)
    np.testing.assert_allclose(found @ without.T, 0, atol=1e-8)
    assert len(restoration.leading_components(z, without, 12, 0.5, rng)) < 3


def test_the_label_direction_holds_the_label_and_not_the_attribute(rng):
    n = 2000
    y = rng.integers(0, 2, n)
    a = np.where(rng.random(n) < 0.95, y, 1 - y)
    z = rng.normal(size=(n, 4))
    z[:, 0] += 2 * y
    z[:, 1] += 2 * a
    u = find(z, y, a, kind="label").u[1, 0]
    assert u[0] > 0.95
    assert abs(u[1]) < 0.2
    assert gate(find(z, y, a, kind="label"), z, y, a).is_open
