"""Studies: many models, planned in one file, run once, resumed after anything, tabulated. `Study.open` reads one without torch."""

from rightreasons.study.record import Study

__all__ = ["Study"]
