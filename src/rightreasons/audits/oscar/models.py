"""The models of the three roles, on the images that all of them share (sec. III-A)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from rightreasons.audits.oscar.measurement import Measurement, ProfileDrawer
from rightreasons.errors import DataError, NotRun
from rightreasons.stats.resampling import Counts, whole

Floats = NDArray[np.float64]

ROLES = ("test", "baseline", "attribute")


@dataclass(frozen=True)
class Member:
    """One model among those compared.

    Attributes
    ----------
    shared : (n,) which of its rows are the shared ones, in the order that all models have
    """

    measurement: Measurement
    shared: np.ndarray

    def profile_drawer(self, subset: np.ndarray | None = None) -> ProfileDrawer:
        """Rank profiles of the shared rows, or of those at the positions `subset` among them."""
        return self.measurement.profile_drawer(self.shared if subset is None else self.shared[subset])


@dataclass(frozen=True)
class Models:
    """The models of the three roles on the images that all of them share."""

    members: Mapping[str, tuple[Member, ...]]

    def of(self, role: str) -> tuple[Measurement, ...]:
        """The measurements of one role."""
        return tuple(member.measurement for member in self.members[role])

    @property
    def test(self) -> tuple[Measurement, ...]:
        return self.of("test")

    @property
    def baseline(self) -> tuple[Measurement, ...]:
        return self.of("baseline")

    @property
    def attribute(self) -> tuple[Measurement, ...]:
        return self.of("attribute")

    @property
    def first(self) -> Measurement:
        return self.test[0]

    @property
    def all(self) -> tuple[Measurement, ...]:
        return self.test + self.baseline + self.attribute

    @property
    def n(self) -> int:
        return len(self.members["test"][0].shared)

    @property
    def subject(self) -> np.ndarray | None:
        """(n,) subjects of the shared rows; None where they are unknown."""
        return self._column(self.first.rows.subject)

    @property
    def slices(self) -> np.ndarray | None:
        """(n,) values of the slicing column on the shared rows; None where there is none."""
        return self._column(self.first.rows.slices)

    def _column(self, values: Sequence[str]) -> np.ndarray | None:
        if not values:
            return None
        return np.asarray(values)[self.members["test"][0].shared]

    def profile_drawer(self, subset: np.ndarray | None = None) -> ProfileDrawer:
        """Mean profiles of the three roles, (B, 3, R) of every partition, as a function of counts (B, n) of resamples.

        `subset` are positions among the shared rows.
        """
        drawers = [self._role_drawer(role, subset) for role in ROLES]

        def draw(counts: Counts) -> list[Floats]:
            of_roles = [draw_role(counts) for draw_role in drawers]
            return [np.stack(of_partition, axis=1) for of_partition in zip(*of_roles, strict=True)]

        return draw

    def _role_drawer(self, role: str, subset: np.ndarray | None) -> ProfileDrawer:
        """Mean profiles of the models of one role."""
        drawers = [member.profile_drawer(subset) for member in self.members[role]]

        def draw(counts: Counts) -> list[Floats]:
            of_models = [draw_model(counts) for draw_model in drawers]
            return [np.mean(of_partition, axis=0) for of_partition in zip(*of_models, strict=True)]

        return draw

    def profiles(self, subset: np.ndarray | None = None) -> list[Floats]:
        """Mean profiles (3, R) of the three roles, for every partition."""
        if subset is None:
            n = self.n
        else:
            n = len(subset)
        return [p[0] for p in self.profile_drawer(subset)(whole(n))]

    def own(self, role: str) -> list[Floats]:
        """The profile (R,) of every model of a role, by the deciding partition."""
        return [member.profile_drawer()(whole(self.n))[0][0] for member in self.members[role]]


def shared_models(measurements: Mapping[str, Sequence[Measurement]]) -> Models:
    """The models on the images that all of them were measured on; models cut by different regions cannot be compared."""
    lacking = [role for role in ROLES if not measurements.get(role)]
    if lacking:
        raise NotRun(
            f"no {' and no '.join(lacking)} model: OSCAR compares the test model with a baseline trained on balanced rows and "
            'with a model trained on the same rows to predict the attribute; give {"test": …, "baseline": …, "attribute": …}'
        )
    every = list(chain.from_iterable(measurements[role] for role in ROLES))
    first = every[0]
    for other in every:
        if not _comparable(first, other):
            raise DataError(
                f"{first.model} and {other.model} were cut by different regions ({_said_regions(first)} and "
                f"{_said_regions(other)}), or summed up differently: measure all models with the same settings and input size"
            )
    common = set(first.rows.id).intersection(*(m.rows.id for m in every))
    if not common:
        raise NotRun("the three models share no test image: extract their maps on the same rows")
    ids = [i for i in first.rows.id if i in common]
    members = {}
    for role in ROLES:
        members[role] = tuple(_member(m, ids) for m in measurements[role])
    return Models(members)


def _member(m: Measurement, ids: Sequence[str]) -> Member:
    position = {i: k for k, i in enumerate(m.rows.id)}
    return Member(m, np.array([position[i] for i in ids], dtype=np.int64))


def _comparable(first: Measurement, other: Measurement) -> bool:
    return (
        first.regions.same_as(other.regions)
        and first.attribute == other.attribute
        and (first.ranking.how, first.ranking.order) == (other.ranking.how, other.ranking.order)
    )


def _said_regions(m: Measurement) -> str:
    return f"{', '.join(m.regions.partition)} of {m.regions.drawn.shape[1:]}"
