"""What notebooks show: a heading and a table as HTML, every text escaped."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence


def table(heading: str, heads: Sequence[object] = (), rows: Iterable[Sequence[object]] = ()) -> str:
    """A table under a heading; the first cell of a row names it."""
    told = "".join(f"<tr>{_cell(row[0], 'th')}{''.join(_cell(cell, 'td') for cell in row[1:])}</tr>" for row in rows if row)
    top = f"<thead><tr>{''.join(_cell(head, 'th') for head in heads)}</tr></thead>" if heads else ""
    body = f"<table>{top}<tbody>{told}</tbody></table>" if told else ""
    return f"<div><p><strong>{html.escape(heading)}</strong></p>{body}</div>"


def _cell(value: object, tag: str) -> str:
    return f"<{tag} style='text-align:left;padding:2px 12px 2px 0'><bdi>{html.escape(str(value))}</bdi></{tag}>"
