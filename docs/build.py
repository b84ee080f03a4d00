"""Render docs/*.md to build/docs, and refuse what is not true: dead links, code that does not compile, names and options unknown.

`make docs` runs it. `problems()` is what the tests ask.
"""

from __future__ import annotations

import importlib
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import typer
from jinja2 import Template
from markdown_it import MarkdownIt
from markdown_it.token import Token

from rightreasons.cli import app

ROOT = Path(__file__).resolve().parents[1]
DOCS, OUT = ROOT / "docs", ROOT / "build" / "docs"
MARKDOWN = MarkdownIt("commonmark").enable("table")
# Code is compared as it is written; everything else of the package is reached by its rooms.
ROOMS = sorted(p.stem for p in (ROOT / "src" / "rightreasons").iterdir() if p.suffix == ".py" or (p / "__init__.py").exists())
SECTIONS = {"": "Begin", "paths": "Paths", "how-to": "How to", "results": "Results", "design": "Design"}


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
    def title(self) -> str:
        return next((text for kind, text in self._texts() if kind == "heading_open"), self.path.stem)

    @property
    def summary(self) -> str:
        return next((text for kind, text in self._texts() if kind == "paragraph_open"), "")

    @property
    def anchors(self) -> set[str]:
        return {str(t.attrs["id"]) for t in self.tokens if t.type == "heading_open"}

    @property
    def output(self) -> Path:
        return (OUT / self.path.relative_to(DOCS)).with_suffix(".html")

    def links(self) -> Iterator[Token]:
        """Links and pictures; their target is the attribute `href` or `src`."""
        for token in self.tokens:
            yield from (child for child in token.children or () if child.type in ("link_open", "image"))

    def code(self, language: str) -> Iterator[tuple[int, str]]:
        """Blocks of one language, with the line on which they begin."""
        for token in self.tokens:
            if token.type == "fence" and token.info.strip() == language:
                yield (token.map or [0])[0] + 2, token.content

    def _texts(self) -> Iterator[tuple[str, str]]:
        for opening, inline in pairwise(self.tokens):
            if inline.type == "inline":
                yield opening.type, inline.content


def slug(heading: str) -> str:
    """The anchor of a heading, as code hosts make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def pages() -> list[Page]:
    """The pages that are rendered."""
    return [Page(path) for path in sorted(DOCS.rglob("*.md"), key=lambda p: (p.parent != DOCS, p.name != "start.md", p))]


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


# ---- rendering -----------------------------------------------------------------------------------------------------------


def render(page: Page, rendered: list[Page]) -> str:
    """The page as HTML, links turned towards what lies in build/docs."""
    for token in page.links():
        key = "href" if token.type == "link_open" else "src"
        target = str(token.attrs[key])
        path, sign, anchor = target.partition("#")
        if path and not re.match(r"[a-z]+:", target):
            file = (page.path.parent / unquote(path)).resolve()
            known = next((other.output for other in rendered if other.path == file), None)
            copied = OUT / file.relative_to(DOCS) if known is None and file.is_relative_to(DOCS) else file
            token.attrSet(key, os.path.relpath(known or copied, page.output.parent) + sign + anchor)
    body = MARKDOWN.renderer.render(page.tokens, MARKDOWN.options, {})
    return _html(page.title, body, page.output, rendered)


def build() -> list[Page]:
    """Write every page and the index; returns the pages."""
    shutil.rmtree(OUT, ignore_errors=True)
    rendered = pages()
    for page in rendered:
        page.output.parent.mkdir(parents=True, exist_ok=True)
        page.output.write_text(render(page, rendered), encoding="utf-8")
    for beside in (file for file in DOCS.rglob("*") if file.suffix in (".png", ".svg", ".json")):
        place = OUT / beside.relative_to(DOCS)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(beside, place)
    index = OUT / "index.html"
    index.write_text(_html("rightreasons", INDEX.render(sections=_sections(rendered, index)), index, rendered), encoding="utf-8")
    return rendered


def _sections(rendered: list[Page], seen_from: Path) -> list[tuple[str, list[tuple[str, str, str]]]]:
    """Heading → (address, title, summary as HTML) of its pages."""
    found: dict[str, list[tuple[str, str, str]]] = {title: [] for title in SECTIONS.values()}
    for page in rendered:
        folder = str(page.path.parent.relative_to(DOCS)).removeprefix(".")
        address = os.path.relpath(page.output, seen_from.parent)
        summary = re.sub(r"</?a\b[^>]*>", "", MARKDOWN.renderInline(page.summary))
        found.setdefault(SECTIONS.get(folder, folder), []).append((address, page.title, summary))
    return [(title, entries) for title, entries in found.items() if entries]


def _html(title: str, body: str, output: Path, rendered: list[Page]) -> str:
    home = os.path.relpath(OUT / "index.html", output.parent)
    return PAGE.render(title=title, body=body, home=home, sections=_sections(rendered, output))


PAGE = Template(
    """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ title | e }}</title>
<style>
:root { color-scheme: light dark; --ink: light-dark(#1b2430, #e6e9ee); --soft: light-dark(#5a6675, #9aa6b4);
  --line: light-dark(#dfe3e8, #333b45); --code: light-dark(#f4f6f8, #1d232b); --link: light-dark(#1f5f99, #7db7ea); }
body { margin: 0; color: var(--ink); font: 17px/1.6 system-ui, sans-serif; display: grid;
  grid-template-columns: 15rem minmax(0, 46rem); gap: 3rem; padding: 2rem; }
nav { font-size: 15px; } nav h2 { font-size: 13px; color: var(--soft); margin: 1.2rem 0 .3rem; }
nav ul { list-style: none; margin: 0; padding: 0; } a { color: var(--link); } nav a { text-decoration: none; }
h1 { line-height: 1.2; margin-top: 0; } h2 { margin-top: 2.2rem; }
pre, code { font: 14px/1.5 ui-monospace, monospace; background: var(--code); border-radius: 4px; }
code { padding: .1em .3em; } pre { padding: .8rem 1rem; overflow-x: auto; } pre code { padding: 0; }
table { border-collapse: collapse; display: block; overflow-x: auto; font-size: 15px; }
th, td { border-bottom: 1px solid var(--line); padding: .4rem .8rem .4rem 0; text-align: left; vertical-align: top; }
img { max-width: 100%; } dd { margin: 0 0 .8rem; color: var(--soft); }
@media (max-width: 52rem) { body { display: block; padding: 1rem; } }
</style>
</head>
<body>
<nav aria-label="Pages"><a href="{{ home | e }}"><strong>rightreasons</strong></a>
{% for heading, entries in sections %}<h2>{{ heading | e }}</h2>
<ul>{% for address, name, _ in entries %}<li><a href="{{ address | e }}">{{ name | e }}</a></li>{% endfor %}</ul>
{% endfor %}</nav>
<main>{{ body }}</main>
</body>
</html>
"""
)

INDEX = Template(
    """<h1>rightreasons</h1>
<p>Is your image classifier right for the right reasons?</p>
{% for heading, entries in sections %}<h2>{{ heading | e }}</h2>
<dl>{% for address, name, summary in entries %}<dt><a href="{{ address | e }}">{{ name | e }}</a></dt><dd>{{ summary }}</dd>
{% endfor %}</dl>{% endfor %}
"""
)


def main() -> int:
    found = problems()
    for problem in found:
        print(problem, file=sys.stderr)
    if found:
        print(f"{len(found)} problem(s); nothing was written", file=sys.stderr)
        return 1
    print(f"{len(build())} pages are in {OUT.relative_to(ROOT)}: open {OUT.relative_to(ROOT) / 'index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
