"""Votes → one verdict: the rule of the case, its constants, and the same rule in plain sentences.

No audit is named here. A finding says how its verdict counts (`standing`), and this rule says what that means.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from rightreasons.findings import ROWS, Row, Standing, Verdict

WEIGHT: Mapping[str, float] = {"behaviour": 1.0, "reliance": 1.0, "place": 0.25}
"""The weight of a vote in each row. Other rows describe and have no vote: a model need not use what it encodes."""
CALLS = "reliance"  # the row whose audits can call a shortcut, and one of which must have decided before anything is said
ASKS_WHY = "behaviour"  # a call of this row says that answers follow, not why: it has no weight in the verdict, only in the score
PRIOR = 0.5  # weight on either side before anything is known: without votes the score is one half
COUNTS_ONCE = 0.2  # effect at which a call counts once in the score: from there on a model leans on a cue
STANDINGS: tuple[Standing, ...] = ("vote", "guard", "intervention")  # in rising order


@dataclass(frozen=True)
class Vote:
    """What one finding says.

    Attributes
    ----------
    effect : from 0 to 1; the score weighs a call by it
    standing, alike : as the finding has them
    looked : of an inconclusive one: whether it looked and could not tell, rather than could not look
    """

    row: Row
    verdict: Verdict
    effect: float = COUNTS_ONCE
    standing: Standing = "vote"
    alike: str = ""
    looked: bool = False

    @property
    def is_call(self) -> bool:
        return self.verdict == "shortcut"

    @property
    def is_decided(self) -> bool:
        return self.row in WEIGHT and self.verdict in ("shortcut", "no evidence")

    @property
    def weight(self) -> float:
        return WEIGHT[self.row]

    @property
    def is_undecided_guard(self) -> bool:
        return self.standing == "guard" and self.verdict == "inconclusive" and self.looked


@dataclass(frozen=True)
class Combined:
    """A verdict, and a score from 0 (everything against a shortcut) to 1 (everything for one); one half is undecided.

    The verdict counts votes. The score also weighs each call by the size of its effect.
    """

    verdict: Verdict
    score: float


def combine(votes: Iterable[Vote]) -> Combined:
    """Combine votes into one verdict.

    Shortcut: an audit of reliance calls it, and the votes for it outweigh those against. No evidence: an audit of reliance could
    have seen one and did not, and no vote calls it. Inconclusive: everything else. Votes that are overruled do not count.
    """
    given = list(votes)
    heard = one_for_all_alike([vote for vote in given if vote.is_decided])
    counted = [vote for vote in heard if not is_overruled(vote, heard)]
    calls = [vote for vote in counted if vote.is_call]
    against = [vote for vote in counted if not vote.is_call]
    weight_for = sum(vote.weight for vote in calls if vote.row != ASKS_WHY)
    weight_against = sum(vote.weight for vote in against)
    score = _score(calls, weight_against)
    is_held_back = any(vote.is_undecided_guard for vote in given)
    can_call = [vote for vote in calls if vote.row == CALLS and (vote.standing != "vote" or not is_held_back)]
    if can_call and weight_for > weight_against:
        return Combined("shortcut", score)
    if not calls and any(vote.row == CALLS for vote in against):
        return Combined("no evidence", score)
    return Combined("inconclusive", score)


def one_for_all_alike(votes: Sequence[Vote]) -> list[Vote]:
    """Votes that are nearly the same number share one: that of the highest standing, none where they contradict each other."""
    shared: dict[str, list[Vote]] = {}
    found = []
    for vote in votes:
        if vote.alike:
            shared.setdefault(vote.alike, []).append(vote)
        else:
            found.append(vote)
    for members in shared.values():
        highest = max(STANDINGS.index(vote.standing) for vote in members)
        speaking = [vote for vote in members if STANDINGS.index(vote.standing) == highest]
        if len({vote.verdict for vote in speaking}) == 1:
            strongest = max(speaking, key=lambda vote: (vote.weight, vote.row))
            found.append(replace(strongest, effect=max(vote.effect for vote in speaking)))
    return found


def is_overruled(vote: Vote, votes: Iterable[Vote]) -> bool:
    """Whether another vote shows that this one does not count.

    A call is overruled by a guard that finds no use, and any plain vote by an intervention that says otherwise. An intervention's
    call also overrules a guard; its `no evidence` does not, because twins may not change all that the attribute looks like.
    """
    return any(_overrules(other, vote) for other in votes)


def _overrules(other: Vote, vote: Vote) -> bool:
    if other.verdict == vote.verdict or not (other.is_decided and vote.is_decided):
        return False
    if other.standing == "intervention":
        return vote.standing == "vote" or (vote.standing == "guard" and other.is_call)
    return other.standing == "guard" and vote.standing == "vote" and vote.is_call


def _score(calls: Iterable[Vote], weight_against: float) -> float:
    weighed = sum(vote.weight * vote.effect / COUNTS_ONCE for vote in calls)
    return (PRIOR + weighed) / (2 * PRIOR + weighed + weight_against)


# ---- in words ------------------------------------------------------------------------------------------------------------


def rule() -> tuple[str, ...]:
    """The rule of `combine` in plain sentences, made from its constants: what the page and the documentation say of it."""
    by_weight: dict[float, list[str]] = {}
    for row, weight in WEIGHT.items():
        by_weight.setdefault(weight, []).append(row)
    voting = ", ".join(f"audits of {listed(rows)} vote with weight {_as_fraction(w)}" for w, rows in by_weight.items())
    silent = listed([row for row in ROWS if row not in WEIGHT])
    return (
        f"{capital(voting)}; audits of {silent} have no vote.",
        f"A shortcut needs a call by an audit of {CALLS}, and more weight for it than against it.",
        f"A call by an audit of {ASKS_WHY} says that answers follow the attribute and not why: it has no weight here, only in "
        "the score.",
        f"Until an audit of {CALLS} has said shortcut or no evidence the case is inconclusive: an audit that could not look "
        "counts as if it had not been run.",
        "Findings that are nearly the same number share one vote.",
        "A guard can tell use from a label that shows more strongly with the attribute, an intervention changes the cue itself, "
        "and any other verdict is a plain vote.",
        "A guard that finds no evidence overrules plain calls; while it has looked and cannot tell, a plain vote cannot call.",
        "An intervention overrules every vote that says otherwise, except a guard's call where it finds no evidence.",
        f"The score is ({_as_fraction(PRIOR)} + for) / ({_as_fraction(2 * PRIOR)} + for + against), so that "
        f"{_as_fraction(0.5)} is undecided.",
        f"In the score a call counts with its weight times its effect divided by {COUNTS_ONCE:g}.",
    )


def _as_fraction(number: float) -> str:
    """A simple fraction such as 1/4, where the number is one; else its decimals."""
    fraction = Fraction(number).limit_denominator(12)
    if float(fraction) == number:
        return str(fraction)
    return f"{number:g}"


def listed(names: Sequence[str]) -> str:
    if len(names) > 1:
        return f"{', '.join(names[:-1])} and {names[-1]}"
    return "".join(names)


def capital(words: str) -> str:
    return words[:1].upper() + words[1:]
