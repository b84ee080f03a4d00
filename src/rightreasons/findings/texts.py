"""Texts made safe for where they go: a terminal, an XML file."""

from __future__ import annotations

import re


def as_line(text: str) -> str:
    """Text on one line, without characters that move a terminal's cursor or reverse the direction of writing."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]+", " ", text)


def as_xml(text: str) -> str:
    """Text that XML 1.0 can hold: control characters and lone surrogates are replaced."""
    return re.sub("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\ufffd", text)
