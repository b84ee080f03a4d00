"""What notebooks show: a heading and a table as HTML, every text escaped; a result as its finding."""

from __future__ import annotations

import html
import sys
from collections.abc import Iterable, Sequence
from typing import Any


def notebook() -> Any | None:
    """The shell of the notebook that this runs in, else None. A notebook has imported IPython; it is not imported to find out."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return shell if hasattr(shell, "kernel") else None


def show_as_finding(kind: type) -> None:
    """Let a notebook show results of this class as their finding, so that an audit need not know of notebooks."""
    shell = notebook()
    if shell is not None and not hasattr(kind, "_repr_html_"):
        shell.display_formatter.formatters["text/html"].for_type(kind, lambda result: result.finding()._repr_html_())


def table(heading: str, heads: Sequence[object] = (), rows: Iterable[Sequence[object]] = ()) -> str:
    """A table under a heading; the first cell of a row names it."""
    body = "".join(_row(row) for row in rows if row)
    if not body:
        return _under(heading, "")
    head = "".join(_cell(name, "th") for name in heads)
    top = f"<thead><tr>{head}</tr></thead>" if heads else ""
    return _under(heading, f"<table>{top}<tbody>{body}</tbody></table>")


def _under(heading: str, body: str) -> str:
    return f"<div><p><strong>{html.escape(heading)}</strong></p>{body}</div>"


def _row(cells: Sequence[object]) -> str:
    values = "".join(_cell(value, "td") for value in cells[1:])
    return f"<tr>{_cell(cells[0], 'th')}{values}</tr>"


def _cell(value: object, tag: str) -> str:
    return f"<{tag} style='text-align:left;padding:2px 12px 2px 0'><bdi>{html.escape(str(value))}</bdi></{tag}>"
