"""Docstrings here say `name : what it is`; griffe would take what follows the colon for a type, which stands in the signature."""

from __future__ import annotations

import re
from typing import Any

import griffe

SECTION = re.compile(r"^(Parameters|Attributes|Returns)\n-+\n", re.MULTILINE)
ENTRY = re.compile(r"^(\*{0,2}\w+(?:, \*{0,2}\w+)*) : (.+)$", re.MULTILINE)


class Descriptions(griffe.Extension):
    """Move what follows a parameter's colon to where griffe expects the description."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = described(obj.docstring.value)


def described(docstring: str) -> str:
    """The docstring with `name : text` of its sections as `name`, and the text below it."""
    head, *rest = SECTION.split(docstring)
    parts = [head]
    for title, body in zip(rest[::2], rest[1::2], strict=True):
        parts.append(f"{title}\n{'-' * len(title)}\n{ENTRY.sub(_below, body) if title != 'Returns' else body}")
    return "".join(parts)


def _below(found: re.Match[str]) -> str:
    return f"{found[1]}\n    {found[2]}"
