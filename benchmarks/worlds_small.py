"""`worlds`, few of them: an hour on two cores, from nothing. The same tables, with wider intervals.

`make bench NAME=worlds-small`; the variables of `worlds` hold here too.
"""

from __future__ import annotations

from benchmarks import worlds

NEEDS_GPU = False
WORLDS, TESTS = 24, 4


def main() -> None:
    """Print the tables and, as the last line, the JSON object."""
    worlds.main(WORLDS, TESTS, name="worlds-small", out="build/worlds-small")
