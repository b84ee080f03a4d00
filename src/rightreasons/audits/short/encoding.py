"""How well the attribute is read from frozen features, within the label and over all rows.

Methods, "Assessing the encoding of demographic information".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata
from sklearn.neural_network import MLPClassifier, MLPRegressor

from rightreasons.audits.short.rows import Rows
from rightreasons.audits.short.settings import Settings
from rightreasons.stats import probes, resampling
from rightreasons.stats.resampling import Counts

ByCounts = Callable[[Counts], np.ndarray]  # resamples (B, n) to (B,)
ByDonors = Callable[[np.ndarray], np.ndarray]  # (P, n) rows whose attribute each row takes, to (P,)


@dataclass(frozen=True)
class Readout:
    """A readout of the attribute, scored on test rows.

    Attributes
    ----------
    within, marginal : the score of resamples, within the label and over all rows
    exchanged : the score within the label when rows exchange the attribute
    chance, no_information, label_alone : see `Encoding`
    """

    unit: str
    within: ByCounts
    marginal: ByCounts
    exchanged: ByDonors
    chance: float
    no_information: float
    label_alone: float
    converged: bool

    def both(self, counts: Counts) -> np.ndarray:
        """Within the label and over all rows, (B, 2)."""
        return np.stack([self.within(counts), self.marginal(counts)], axis=1)


def read_values(fit: Rows, test: Rows, settings: Settings, seed: int) -> Readout:
    """A categorical attribute: (macro one-vs-rest) AUC. Within the label the groups weigh equally in the fit."""
    levels = np.unique(fit.a)
    by_value, by_group = probes.equal_weights(fit.a), probes.equal_weights(2 * fit.a + fit.y)
    if settings.hidden:
        overall, inside = (_hidden_scores(fit, test, weight, settings, seed) for weight in (by_value, by_group))
        converged = True
    else:
        fits = [probes.fit(fit.z, fit.a, weight=weight, C=settings.C) for weight in (by_value, by_group)]
        overall, inside = (probe.score(test.z) for probe in fits)
        converged = all(probe.converged for probe in fits)
    scored = range(1, 2) if len(levels) == 2 else range(len(levels))
    by_label = [np.flatnonzero(test.y == y) for y in (0, 1)]
    everything = np.arange(len(test))

    def auc(score: np.ndarray, rows: np.ndarray, counts: Counts) -> np.ndarray:
        here = np.take(counts, rows, axis=1)
        return np.mean([resampling.auc_draws(test.a[rows] == levels[k], score[rows, k], here) for k in scored], axis=0)

    def within(counts: Counts) -> np.ndarray:
        return np.mean([auc(inside, rows, counts) for rows in by_label], axis=0)

    def marginal(counts: Counts) -> np.ndarray:
        return auc(overall, everything, counts)

    def exchanged(donors: np.ndarray) -> np.ndarray:
        """An AUC is a sum of ranks, which stay where they are: one product for all exchanges."""
        exchanges = []
        for rows in by_label:
            a, rank = test.a[donors[:, rows]], rankdata(inside[rows], axis=0)
            for k in scored:
                is_it = a == levels[k]
                n = is_it.sum(axis=1)
                over = is_it @ rank[:, k] - n * (n + 1) / 2
                pairs, both = n * (len(rows) - n), (n > 0) & (n < len(rows))
                exchanges.append(np.divide(over, pairs, out=np.full(len(n), np.nan), where=both))
        return np.mean(exchanges, axis=0)

    shares = np.array([_shares(fit.a[fit.y == y], levels) for y in (0, 1)])
    label_alone = float(auc(shares[test.y], everything, resampling.whole(len(test)))[0])
    return Readout("AUC", within, marginal, exchanged, 0.5, 0.5, label_alone, converged)


def read_numbers(fit: Rows, test: Rows, settings: Settings, seed: int) -> Readout:
    """A continuous attribute: mean absolute error. Within the label, features and attribute are taken from their means there.

    Test rows are taken from their own means: where their mix differs from training, a readout of nothing is then neither better
    nor worse than the chance that it is compared with.
    """
    fit_mean, test_mean = _means_by_label(fit.a, fit.y), _means_by_label(test.a, test.y)
    inside_fit = fit.z - _means_by_label(fit.z, fit.y)[fit.y]
    inside_test = test.z - _means_by_label(test.z, test.y)[test.y]
    target_fit, target_test = fit.a - fit_mean[fit.y], test.a - test_mean[test.y]
    if settings.hidden:
        guess = _hidden_numbers(fit.z, fit.a, test.z, settings, seed)
        inside_guess = _hidden_numbers(inside_fit, target_fit, inside_test, settings, seed)
    else:
        guess = probes.fit_ridge(fit.z, fit.a, weight=None).score(test.z)
        equal = probes.equal_weights(fit.y)
        inside_guess = probes.fit_ridge(inside_fit, target_fit, weight=equal).score(inside_test)
    error, inside_error = np.abs(guess - test.a), np.abs(inside_guess - target_test)

    def within(counts: Counts) -> np.ndarray:
        total, number = (resampling.tally(counts, test.y, 2, v) for v in (inside_error, np.ones(len(test))))
        return np.divide(total, number, out=np.full(total.shape, np.nan), where=number > 0).mean(axis=1)

    def marginal(counts: Counts) -> np.ndarray:
        return resampling.sums(counts, error) / counts.sum(axis=1)

    def exchanged(donors: np.ndarray) -> np.ndarray:
        by_label = []
        for y in (0, 1):
            moved = test.a[donors[:, test.y == y]]
            off = inside_guess[test.y == y] - (moved - moved.mean(axis=1, keepdims=True))
            by_label.append(np.abs(off).mean(axis=1))
        return np.mean(by_label, axis=0)

    chance = float(np.mean([np.abs(target_test[test.y == y]).mean() for y in (0, 1)]))
    no_information = float(np.abs(test.a - fit.a.mean()).mean())
    label_alone = float(np.abs(test.a - fit_mean[test.y]).mean())
    return Readout("MAE", within, marginal, exchanged, chance, no_information, label_alone, True)


def _shares(values: np.ndarray, levels: np.ndarray) -> list[float]:
    """Share of each level among the values; 0 where there are none."""
    return [float((values == level).mean()) if len(values) else 0.0 for level in levels]


def _means_by_label(values: np.ndarray, y: np.ndarray) -> np.ndarray:
    """(2, …) means at label 0 and 1; the overall mean where a label has no rows."""
    return np.stack([values[y == k].mean(axis=0) if (y == k).any() else values.mean(axis=0) for k in (0, 1)])


# ---- readouts with hidden layers -----------------------------------------------------------------------------------------


def _hidden_scores(fit: Rows, test: Rows, weight: np.ndarray, settings: Settings, seed: int) -> np.ndarray:
    """Log odds (n, K) of a readout with hidden layers, fitted on rows that are drawn by their weights."""
    rng = np.random.default_rng(seed)
    rows = rng.choice(len(fit), len(fit), p=weight / weight.sum())
    mean, scale = fit.z.mean(axis=0), _scale(fit.z)
    widths = tuple(int(h) for h in settings.hidden)
    network = MLPClassifier(hidden_layer_sizes=widths, random_state=seed, early_stopping=True, max_iter=300)
    network.fit((fit.z[rows] - mean) / scale, fit.a[rows])
    p = np.clip(network.predict_proba((test.z - mean) / scale), 1e-9, 1 - 1e-9)
    return np.log(p / (1 - p))


def _hidden_numbers(z: np.ndarray, a: np.ndarray, z_test: np.ndarray, settings: Settings, seed: int) -> np.ndarray:
    """Numbers (n,) that a readout with hidden layers reads from test features."""
    mean, scale = z.mean(axis=0), _scale(z)
    # By name: scikit-learn 1.7 put another argument before the widths.
    widths = tuple(int(h) for h in settings.hidden)
    network = MLPRegressor(hidden_layer_sizes=widths, random_state=seed, early_stopping=True, max_iter=300)
    network.fit((z - mean) / scale, (a - a.mean()) / a.std())
    guess: np.ndarray = network.predict((z_test - mean) / scale) * a.std() + a.mean()
    return guess


def _scale(z: np.ndarray) -> np.ndarray:
    """Standard deviation of every feature, 1 where it is constant."""
    spread = z.std(axis=0)
    return np.where(spread > 0, spread, 1.0)
