"""A finding as a notebook shows it: its question and sentence above a small table."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence


def as_html(heads: Sequence[str], sentence: str, rows: Iterable[Sequence[str]]) -> str:
    """Escaped HTML; the first of `heads` is set in bold."""
    first, *others = (html.escape(head) for head in heads)
    title = " · ".join((f"<strong>{first}</strong>", *others))
    body = "".join(map(_row, rows))
    return f"<div><p>{title}</p><p>{html.escape(sentence)}</p><table>{body}</table></div>"


def _row(texts: Sequence[str]) -> str:
    cells = "".join(f"<td style='text-align:left;padding:2px 12px 2px 0'>{html.escape(text)}</td>" for text in texts)
    return f"<tr>{cells}</tr>"
