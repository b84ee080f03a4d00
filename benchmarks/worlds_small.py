"""`worlds`, few of them: an hour on two cores, from nothing. The same tables, with wider intervals.

`make bench NAME=worlds-small`; the variables of `worlds` hold here too.
"""

from __future__ import annotations

from benchmarks import worlds

NEEDS_GPU = False
WORLDS, TESTS = 18, 4  # on one core a world of CNNs takes about two minutes, one of ViTs about ten


def main() -> None:
    """Print the tables and, as the last line, the JSON object."""
    worlds.main(WORLDS, TESTS, name="worlds-small", out="build/worlds-small")
