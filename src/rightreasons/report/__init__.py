"""The page: findings in, one HTML file out."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rightreasons.case import Sheet
    from rightreasons.findings import Finding

__all__ = ["report"]


def report(
    findings: Iterable[Finding],
    path: str | os.PathLike[str],
    *,
    title: str = "Right for the right reasons?",
    subtitle: str = "",
    sheet: Sheet | None = None,
) -> Path:
    """Write findings as one self-contained HTML page that opens without a network; returns its path.

    `sheet` holds what the page says about the data and about repeating the audit.
    """
    from rightreasons.report import page  # imports templates and drawing, for which `import rightreasons` must not wait

    return page.write(findings, path, title=title, subtitle=subtitle, sheet=sheet)
