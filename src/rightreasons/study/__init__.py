"""Studies: many models, planned in one file, run once, resumed after anything, tabulated; read without torch."""

from rightreasons.study.record import Study

__all__ = ["Study"]
