"""A drawing of the page as its own file: the rules of page.css become attributes, since few programs know CSS variables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from rightreasons.findings import as_xml

SVG = "http://www.w3.org/2000/svg"
MARGIN = 14  # for labels and marks that reach over the edge of a drawing, for which the page has room
ElementTree.register_namespace("", SVG)
# Properties that a drawing takes over; layout belongs to the page.
DRAWN = re.compile(r"fill|stroke|opacity|font|paint-order|image-rendering|unicode-bidi|--")


def standalone(svg: str) -> str:
    """An <svg> of the page with the page's look written into its elements."""
    root = ElementTree.fromstring(as_xml(svg).replace("<svg ", f'<svg xmlns="{SVG}" ', 1))
    _dress(root, (), {})
    width, height = (float(side) for side in root.attrib["viewBox"].split()[2:])
    room = {"viewBox": (-MARGIN, -MARGIN, width + 2 * MARGIN, height + 2 * MARGIN)}
    for name, sides in {**room, "width": room["viewBox"][2:3], "height": room["viewBox"][3:]}.items():
        root.set(name, " ".join(f"{side:g}" for side in sides))
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _dress(element: ElementTree.Element, above: Sequence[_Kind], inherited: Mapping[str, str]) -> None:
    kind = _Kind(element.tag.rpartition("}")[2], frozenset(element.get("class", "").split()))
    matching = sorted((rule for rule in _rules() if _matches(rule.parts, (*above, kind))), key=lambda rule: rule.weight)
    given = {name: value for rule in matching for name, value in rule.declarations.items()}
    variables = {**inherited, **{name: value for name, value in given.items() if name.startswith("--")}}
    style = {n: _resolved(v, variables) for n, v in given.items() if not n.startswith("--")}
    if style:
        element.set("style", ";".join(f"{name}:{value}" for name, value in style.items()))
    for child in element:
        _dress(child, (*above, kind), variables)


class _Kind(NamedTuple):
    """What a selector looks at; an empty tag and no classes match everything."""

    tag: str
    classes: frozenset[str]


class _Rule(NamedTuple):
    parts: tuple[_Kind, ...]  # an element inside another, as a selector lists them
    declarations: Mapping[str, str]

    @property
    def weight(self) -> tuple[int, int]:
        return sum(len(part.classes) for part in self.parts), sum(bool(part.tag) for part in self.parts)


def _matches(parts: Sequence[_Kind], chain: Sequence[_Kind]) -> bool:
    """Whether a selector matches the last element of `chain`, which begins at the root."""
    if not _is(parts[-1], chain[-1]):
        return False
    rest = list(parts[:-1])
    for element in reversed(chain[:-1]):
        if rest and _is(rest[-1], element):
            rest.pop()
    return not rest


def _is(part: _Kind, element: _Kind) -> bool:
    return part.tag in ("", element.tag) and part.classes <= element.classes


@cache
def _rules() -> tuple[_Rule, ...]:
    """The simple rules of page.css (tags and classes, nested) that say how something is drawn."""
    return tuple(_read((Path(__file__).parent / "page.css").read_text(encoding="utf-8")))


def _read(css: str) -> Iterator[_Rule]:
    css = re.sub(r"/\*.*?\*/", "", css, flags=re.DOTALL)
    css = re.sub(r"@[^{;]*\{(?:[^{}]*\{[^{}]*\})*[^{}]*\}", "", css)  # @media and the like: for screens, not for paper
    for selectors, body in re.findall(r"([^{}]+)\{([^{}]*)\}", css):
        pairs = (part.partition(":") for part in body.split(";") if ":" in part)
        declarations = {name.strip(): value.strip() for name, _, value in pairs if DRAWN.match(name.strip())}
        for selector in map(str.strip, selectors.split(",")):
            plain = re.fullmatch(r"(?:[\w-]*(?:\.[\w-]+)*\s*)+", selector)
            if declarations and selector == ":root":
                yield _Rule((_Kind("svg", frozenset()),), declarations)
            elif declarations and plain and selector:
                parts = (re.findall(r"^[\w-]*|\.[\w-]+", word) for word in selector.split())
                yield _Rule(tuple(_Kind(p[0], frozenset(c[1:] for c in p[1:])) for p in parts), declarations)


def _resolved(value: str, variables: Mapping[str, str]) -> str:
    while "var(" in value:
        value = re.sub(r"var\((--[\w-]+)\)", lambda m: variables.get(m.group(1), "inherit"), value)
    return value
