"""Studies: many models, planned in one file, run once, resumed after anything, tabulated; read without torch."""

from rightreasons.study.folder import Study

__all__ = ["Study"]
