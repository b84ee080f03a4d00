"""What is stored says its format, a number that rises when a later version writes a file in another way.

Formats of earlier versions are read. One of a later version is refused, because what it means is not known here.
"""

from __future__ import annotations

import os

from rightreasons.errors import DataError, RightReasonsError


def known_format(
    told: object, newest: int, where: str | os.PathLike[str], *, first: int = 1, error: type[RightReasonsError] = DataError
) -> int:
    """The format that a file tells, if this version can read it.

    Parameters
    ----------
    told : what the file says; None, of a file written before formats had numbers, means `first`
    newest : the one that this version writes, and the highest that it reads
    where : the file, for the error
    """
    if told is None:
        return first
    if isinstance(told, bool) or not isinstance(told, int) or told < first:
        raise error(f"{os.fspath(where)} says format {told!r}, and a whole number from {first} to {newest} is expected")
    if told > newest:
        raise error(
            f"{os.fspath(where)} has format {told}, written by a later version of rightreasons; this one reads up to {newest}: "
            "install the later version"
        )
    return told
