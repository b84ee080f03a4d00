"""A number that may be undefined, with the reason when it is."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Value:
    """NaN in `value` always comes with a `reason`; a defined value has an empty one."""

    value: float
    reason: str = ""

    @property
    def is_defined(self) -> bool:
        return not math.isnan(self.value)

    def __float__(self) -> float:
        return self.value


def undefined(reason: str) -> Value:
    return Value(math.nan, reason)
