"""What MkDocs asks of us: the reference by rooms, the notebooks as pages, and the texts that lie beside the documentation.

They are made from what is there when the site is built: a new module, notebook or change needs no word here.
"""

from __future__ import annotations

import ast
import json
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
SOURCE, EXAMPLES = ROOT / "src" / "rightreasons", ROOT / "examples"
BESIDE = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
"""Texts at the top of the repository → their page."""
LINK = re.compile(r"(?<=\]\()([^)\s]+)(?=\))")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages made here into the navigation."""
    nav = {title: pages for section in config.nav or () for title, pages in section.items()}
    nav["Researcher"].append({"Notebooks": [f"notebooks/{path.stem}.md" for path in notebooks()]})
    nav["Contributor"] += BESIDE.values()
    nav["Reference"] = ["reference/index.md", *(f"reference/{room}.md" for room in rooms())]
    config.nav = [{title: pages} for title, pages in nav.items()]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages made here, and notebooks and study files to take along."""
    made = {"reference/index.md": public_names(), **{f"reference/{room}.md": reference(room) for room in rooms()}}
    made |= {f"notebooks/{path.stem}.md": notebook(path) for path in notebooks()}
    made |= {f"notebooks/{path.name}": path.read_text(encoding="utf-8") for path in notebooks()}
    made |= {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in EXAMPLES.rglob("*.toml")}
    made |= {page: (ROOT / name).read_text(encoding="utf-8") for name, page in BESIDE.items()}
    for address, text in made.items():
        files.append(File.generated(config, address, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links that are written for the repository towards the pages that the site has for their files."""
    if page.file.src_uri.startswith("reference/"):
        page.meta["search"] = {"boost": 0.3}  # a page that explains comes before the function that it explains
    here = next((name for name, made in BESIDE.items() if made == page.file.src_uri), f"docs/{page.file.src_uri}")
    return LINK.sub(lambda found: turned(found[1], here, page.file.src_uri), markdown)


def turned(target: str, here: str, page: str) -> str:
    """A link in the file `here` of the repository, as one in the page `page` of the site."""
    path, sign, anchor = target.partition("#")
    if not path or re.match(r"[a-z]+:", path):
        return target
    file = posixpath.normpath(posixpath.join(posixpath.dirname(here), path))
    address = BESIDE.get(file)
    if file == "examples/notebooks":
        address = "how-to/notebooks.md"
    elif file.startswith("examples/notebooks/"):
        address = file.removeprefix("examples/").replace(".ipynb", ".md")
    elif file.startswith("examples/"):
        address = file
    elif file.startswith("docs/"):
        address = file.removeprefix("docs/")
    if address is None:
        return target
    return posixpath.relpath(address, posixpath.dirname(page) or ".") + sign + anchor


# ---- the reference ---------------------------------------------------------------------------------------------------------


def rooms() -> list[str]:
    """Folders and files of the package that have public names, in alphabetical order."""
    found = (p for p in SOURCE.iterdir() if p.suffix == ".py" or (p / "__init__.py").exists())
    return sorted(p.stem for p in found if not p.name.startswith("_"))


def modules(room: str) -> Iterator[tuple[str, Path]]:
    """(dotted name, file) of every public module of a room, the room itself first."""
    single = SOURCE / f"{room}.py"
    if single.exists():
        yield f"rightreasons.{room}", single
        return
    for path in sorted((SOURCE / room).rglob("*.py"), key=lambda p: (p.parent, p.name != "__init__.py", p.name)):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        if not any(part.startswith("_") and part != "__init__" for part in parts):
            yield ".".join(["rightreasons", *(part for part in parts if part != "__init__")]), path


def reference(room: str) -> str:
    """The page of a room: its modules with the docstrings of their public names."""
    return f"# {room}\n\n" + "\n".join(f"::: rightreasons.{name.removeprefix('rightreasons.')}\n" for name, _ in modules(room))


def public_names() -> str:
    """The page of `import rightreasons as rr`: where its names live, then the rooms with what each is for."""
    tree = ast.parse((SOURCE / "__init__.py").read_text(encoding="utf-8"))
    homes = next(
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and [getattr(t, "id", "") for t in node.targets] == ["_HOMES"]
    )
    homes |= {"report": "rightreasons.report"}
    lines = ["# Reference", "", "From the docstrings. `import rightreasons as rr` gives these names:", ""]
    lines += [f"- [`rr.{name}`][{home}.{name}]" for name, home in sorted(homes.items(), key=lambda item: item[0].lower())]
    lines += ["", "| room | what it is for |", "|---|---|"]
    return "\n".join([*lines, *(f"| [`{room}`]({room}.md) | {purpose(room)} |" for room in rooms())]) + "\n"


def purpose(room: str) -> str:
    """The first line of a room's docstring."""
    _, path = next(modules(room))
    said: Any = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return str(said).partition("\n")[0].replace("|", "\\|")


# ---- the notebooks ---------------------------------------------------------------------------------------------------------


def notebooks() -> list[Path]:
    return sorted((EXAMPLES / "notebooks").glob("*.ipynb"))


def notebook(path: Path) -> str:
    """A notebook as a page: its text and code, and itself to take along."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
    return "\n\n".join([parts[0], f"[Take the notebook along]({path.name}){{ download }}", *parts[1:]]) + "\n"
