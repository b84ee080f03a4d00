"""The training loops' progress is the one that everything else has."""

from rightreasons.progress import Meter

__all__ = ["Meter"]
