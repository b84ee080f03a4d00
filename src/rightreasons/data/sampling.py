"""Which rows a subsample keeps and which split a row goes to: pure functions of arrays, for `Cohort.bias` and `Cohort.split`."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from scipy.special import expit

from rightreasons.errors import DataError, SettingError

STEEPEST = 20.0  # slope of a subsample, per standard deviation: nearly a cut at the mean


def keep_by_logistic(
    numeric: np.ndarray, is_last: np.ndarray, logistic: tuple[float, float, float], complement: bool = False
) -> np.ndarray:
    """(n,) probability of every row to be kept, by a sigmoid of its attribute (ShorT, Supplementary Methods).

    Parameters
    ----------
    numeric : (n,) the attribute, NaN where it or the label is missing; such rows are never kept
    is_last : (n,) True for rows of the last class
    logistic : slope k, centre a0 and multiplier m, as in `Cohort.bias`
    complement : keep the others with 1 − clip(m·sigmoid, 0, 1), as the paper writes it
    """
    slope, centre, multiplier = logistic
    sigmoid = expit(slope * (numeric - centre))
    kept = np.clip(multiplier * sigmoid, 0, 1)
    if complement:
        others = 1 - kept
    else:
        others = np.clip(multiplier * (1 - sigmoid), 0, 1)
    return np.nan_to_num(np.where(is_last, kept, others))


def keep_for_gap(numeric: np.ndarray, is_last: np.ndarray, wanted: float, name: str) -> np.ndarray:
    """`keep_by_logistic` with the slope, found by bisection, at which the expected gap is as wanted; it rises with the slope."""
    centre, spread = float(np.nanmean(numeric)), float(np.nanstd(numeric)) or 1.0

    def keep(slope: float) -> np.ndarray:
        return keep_by_logistic(numeric, is_last, (slope / spread, centre, 2.0))

    low, high = -STEEPEST, STEEPEST
    least = gap(numeric, is_last, keep(low))
    most = gap(numeric, is_last, keep(high))
    if not least <= wanted <= most:
        raise DataError(f"gap={wanted:g}: subsampling can give {name!r} gaps from {least:.3g} to {most:.3g}")
    while high - low > 1e-9:
        middle = (low + high) / 2
        if gap(numeric, is_last, keep(middle)) < wanted:
            low = middle
        else:
            high = middle
    return keep(low)


def gap(values: np.ndarray, is_last: np.ndarray, weight: np.ndarray) -> float:
    """Weighted mean at the last class less that at the others; rows without a value count for nothing."""
    mass = np.where(np.isnan(values), 0.0, weight)
    sums = [(mass * of).sum() for of in (is_last, ~is_last)]
    totals = [(mass * of * np.nan_to_num(values)).sum() for of in (is_last, ~is_last)]
    if min(sums) > 0:
        return float(totals[0] / sums[0] - totals[1] / sums[1])
    return math.nan


def rows_by_group(
    members: Mapping[int, np.ndarray], agrees: np.ndarray, discordant: float | None, size: int | None
) -> dict[int, int]:
    """How many rows of each group to keep, for a number or a share of discordant rows.

    Parameters
    ----------
    members : group → its rows
    agrees : by group, True where it is concordant
    discordant, size : as in `Cohort.bias`
    """
    wanted = float(discordant or 0)
    is_number = isinstance(discordant, int | np.integer)
    if not (wanted >= 0 and (is_number or wanted < 1)):
        raise SettingError(f"discordant={discordant} is neither a whole number of rows nor a share from 0 to below 1")
    if not is_number:
        return _rows_for_share(members, agrees, wanted, size)
    if size is not None:
        raise SettingError("size= goes with a share of discordant rows, not with their number")
    return {g: len(rows) if agrees[g] else int(wanted) for g, rows in members.items()}


def _rows_for_share(members: Mapping[int, np.ndarray], agrees: np.ndarray, share: float, size: int | None) -> dict[int, int]:
    with_cue = [g for g in members if agrees[g]]
    against = [g for g in members if not agrees[g]]
    if not with_cue or not against:
        raise DataError("bias needs rows in concordant and in discordant groups")
    most = min(len(members[g]) for g in with_cue) * len(with_cue) / (1 - share)
    if share > 0:
        most = min(most, min(len(members[g]) for g in against) * len(against) / share)
    if most < 1:
        raise DataError("a group that must have rows is empty, and a share needs some of each: see Cohort.counts()")
    if size is None:
        total = int(most + 1e-9)
    else:
        total = size
    if total > most + 1e-9:
        raise DataError(f"size={size} with {share:.0%} discordant rows is more than these groups allow ({int(most)})")
    each = {True: round(total * (1 - share) / len(with_cue)), False: round(total * share / len(against))}
    return {g: min(each[bool(agrees[g])], len(rows)) for g, rows in members.items()}


def assign(stratum: np.ndarray, size: np.ndarray, share: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(u,) which split every unit goes to: in random order, to the one that lacks most of its rows in the unit's stratum.

    Parameters
    ----------
    stratum, size : (u,) stratum of each unit (a subject, a case or a row), and its number of rows
    share : of the rows that each split is to have
    """
    chosen = np.empty(len(stratum), np.int64)
    carry = np.zeros(len(share))  # what rounding owed each split so far, so that small strata do not add up to a bias
    for value in np.unique(stratum):
        units = rng.permutation(np.flatnonzero(stratum == value))
        target = share * size[units].sum() + carry
        filled = np.zeros(len(share))
        for unit in units:
            chosen[unit] = np.argmax(target - filled)
            filled[chosen[unit]] += size[unit]
        carry = target - filled
    return chosen
