"""Refuse what is not true in the documentation: dead links, broken code, unknown names and options, lists that the site misses.

`make docs` runs it before MkDocs builds the site. `problems()` is what the tests ask.
"""

from __future__ import annotations

import importlib
import re
import shlex
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import typer
from markdown_it import MarkdownIt
from markdown_it.token import Token

from rightreasons.cli import app

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
MARKDOWN = MarkdownIt("commonmark").enable("table")
# Code is compared as it is written; everything else of the package is reached by its rooms.
ROOMS = sorted(p.stem for p in (ROOT / "src" / "rightreasons").iterdir() if p.suffix == ".py" or (p / "__init__.py").exists())


@dataclass(frozen=True)
class Page:
    """One Markdown file, parsed."""

    path: Path

    @cached_property
    def tokens(self) -> list[Token]:
        tokens = MARKDOWN.parse(self.path.read_text(encoding="utf-8"))
        for opening, inline in pairwise(tokens):
            if opening.type == "heading_open":
                opening.attrSet("id", slug(inline.content))
        return tokens

    @property
    def name(self) -> str:
        return str(self.path.relative_to(ROOT))

    @property
    def anchors(self) -> set[str]:
        return {str(t.attrs["id"]) for t in self.tokens if t.type == "heading_open"}

    def links(self) -> Iterator[Token]:
        """Links and pictures; their target is the attribute `href` or `src`."""
        for token in self.tokens:
            yield from (child for child in token.children or () if child.type in ("link_open", "image"))

    def code(self, language: str) -> Iterator[tuple[int, str]]:
        """Blocks of one language, with the line on which they begin."""
        for token in self.tokens:
            if token.type == "fence" and token.info.strip() == language:
                yield (token.map or [0])[0] + 2, token.content


def slug(heading: str) -> str:
    """The anchor of a heading, as code hosts make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def pages() -> list[Page]:
    """The pages of the site that are written by hand."""
    return [Page(path) for path in sorted(DOCS.rglob("*.md"))]


def texts() -> list[Page]:
    """All that is checked: the pages and the texts beside them."""
    return [*(Page(ROOT / name) for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")), *pages()]


# ---- checks --------------------------------------------------------------------------------------------------------------


def problems(*, names: bool = True) -> list[str]:
    """Everything that is wrong, one sentence each.

    Parameters
    ----------
    names : whether to look up the names in papers.md, some of which need torch
    """
    found = [problem for page in texts() for check in (dead_links, broken_code, unknown_options) for problem in check(page)]
    return found + (list(unknown_names(Page(DOCS / "papers.md"))) if names else [])


def dead_links(page: Page) -> Iterator[str]:
    for token in page.links():
        target = str(token.attrs.get("href", token.attrs.get("src", "")))
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = unquote(target).partition("#")
        file = (page.path.parent / path).resolve() if path else page.path
        if not file.exists():
            yield f"{page.name}: the link {target!r} leads nowhere"
        elif anchor and file.suffix == ".md" and anchor not in Page(file).anchors:
            yield f"{page.name}: {file.name} has no heading {anchor!r}"


def broken_code(page: Page) -> Iterator[str]:
    for line, code in page.code("python"):
        try:
            compile(code, page.name, "exec")
        except SyntaxError as error:
            yield f"{page.name}, line {line + (error.lineno or 1) - 1}: {error.msg}"


def unknown_options(page: Page) -> Iterator[str]:
    """Commands of ours in shell blocks that do not exist, and options that they do not have."""
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for line, code in page.code("sh"):
        for words in (shlex.split(row, comments=True) for row in code.replace("\\\n", " ").splitlines()):
            if "rightreasons" not in words:
                continue
            name, *rest = words[words.index("rightreasons") + 1 :]
            if name not in commands:
                yield f"{page.name}, block at line {line}: no command {name!r}"
                continue
            known = {option for parameter in commands[name].params for option in parameter.opts}
            for word in rest:
                if word.startswith("--") and word.partition("=")[0] not in known:
                    yield f"{page.name}, block at line {line}: rightreasons {name} has no option {word!r}"


def unknown_names(page: Page) -> Iterator[str]:
    """Code spans such as `stats.groups.accuracy` that name nothing."""
    for token in page.tokens:
        for span in (child.content for child in token.children or () if child.type == "code_inline"):
            dotted = span.removeprefix("rightreasons.")
            if re.fullmatch(r"\w+(\.\w+)+", dotted) and dotted.split(".")[0] in ROOMS and not exists(f"rightreasons.{dotted}"):
                yield f"{page.name}: {span!r} names nothing"


def exists(dotted: str) -> bool:
    """Whether a dotted name is a module, or something in one."""
    parts = dotted.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError as error:
            if not dotted.startswith(str(error.name)):
                raise  # a dependency is missing, which says nothing about the name
            continue
        for part in parts[cut:]:
            found = getattr(found, part, None)
        return found is not None
    return False


# ---- what MkDocs makes of it ------------------------------------------------------------------------------------------------

ELEMENTS = {**{f"h{level}": "heading" for level in range(1, 5)}, "li": "list item", "tr": "table row", "pre": "block"}


def read_otherwise(page: Page) -> Iterator[str]:
    """Headings, list items, rows of tables and blocks that Python-Markdown, and so the site, counts otherwise than a code host.

    It wants a blank line before a list and four spaces inside one.
    """
    import markdown

    text = page.path.read_text(encoding="utf-8")
    extensions = ["admonition", "attr_list", "md_in_html", "tables", "pymdownx.superfences"]
    site, host = markdown.markdown(text, extensions=extensions), MARKDOWN.render(text)
    seen = [Counter(ELEMENTS[tag] for tag in re.findall(rf"<({'|'.join(ELEMENTS)})\b", html)) for html in (host, site)]
    for element in sorted(set(ELEMENTS.values())):
        if seen[0][element] != seen[1][element]:
            yield f"{page.name}: a code host sees {seen[0][element]} of {element!r}, the site {seen[1][element]}"


def main() -> int:
    found = problems() + [problem for page in pages() for problem in read_otherwise(page)]
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
