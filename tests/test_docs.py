"""The documentation keeps its promises: links resolve, code compiles, names exist, examples run, and the site is whole."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def docs() -> ModuleType:
    """docs/check.py, which is a script and lies on no path."""
    spec = importlib.util.spec_from_file_location("docs_check", ROOT / "docs" / "check.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["docs_check"] = module
    spec.loader.exec_module(module)
    return module


def _page(docs: ModuleType, folder: Path, text: str) -> object:
    path = folder / "page.md"
    path.write_text(text)
    return docs.Page(path)


def test_links_resolve_code_compiles_and_options_exist(docs: ModuleType) -> None:
    assert docs.problems(names=False) == []


@pytest.mark.torch
def test_every_name_that_the_papers_page_mentions_exists(docs: ModuleType) -> None:
    pytest.importorskip("torch")
    page = docs.Page(ROOT / "docs" / "papers.md")
    spans = [child.content for token in page.tokens for child in token.children or () if child.type == "code_inline"]
    assert sum(span.startswith("stats.") for span in spans) > 20  # else the check below looks at nothing
    assert list(docs.unknown_names(page)) == []


def test_the_texts_speak_of_the_project_alone(docs: ModuleType) -> None:
    for path in [*(page.path for page in docs.texts()), ROOT / "CITATION.cff"]:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"/work\b|\.\./shared|issue #?\d|/tmp/", text), path


def test_the_site_reads_every_page_as_a_code_host_does(docs: ModuleType) -> None:
    pytest.importorskip("pymdownx")
    assert [problem for page in docs.pages() for problem in docs.read_otherwise(page)] == []


def test_a_list_that_the_site_would_not_see_is_noticed(docs: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pymdownx")
    monkeypatch.setattr(docs, "ROOT", tmp_path)
    page = _page(docs, tmp_path, "# A page\n\nA list without a line before it:\n- one\n- two\n")
    assert list(docs.read_otherwise(page)) == ["page.md: a code host sees 2 of 'list item', the site 0"]


def test_the_checks_notice_what_is_wrong(docs: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docs, "ROOT", tmp_path)
    fence = "```"
    page = _page(
        docs,
        tmp_path,
        f"# A page\n\n[a](gone.md) [b](#a-page) [c](#no-heading) [d](https://example.org) "
        "`stats.groups.nothing` `stats.groups.f1`\n\n"
        f"{fence}python\nx = (\n{fence}\n\n{fence}sh\nrightreasons audit data.csv --no-such-option 1 \\\n  --label y\n"
        f"rightreasons nothing\nPYTHONPATH=. rightreasons check data.csv\n{fence}\n",
    )
    assert list(docs.dead_links(page)) == [
        "page.md: the link 'gone.md' leads nowhere",
        "page.md: page.md has no heading 'no-heading'",
    ]
    assert len(list(docs.broken_code(page))) == 1
    options = list(docs.unknown_options(page))
    assert len(options) == 2
    assert "has no option '--no-such-option'" in options[0]
    assert "no command 'nothing'" in options[1]
    assert list(docs.unknown_names(page)) == ["page.md: 'stats.groups.nothing' names nothing"]


def test_the_picture_of_the_page_is_small() -> None:
    picture = ROOT / "docs" / "pictures" / "page.png"
    assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert picture.stat().st_size < 300_000


def test_the_audit_of_the_how_to_page_keeps_the_contract(
    docs: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rightreasons.testing import check_audit

    code = max((code for _, code in docs.Page(ROOT / "docs" / "how-to" / "add-an-audit.md").code("python")), key=len)
    (tmp_path / "docs_lab").mkdir()
    (tmp_path / "docs_lab" / "__init__.py").touch()
    (tmp_path / "docs_lab" / "confidence.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    finding = check_audit("docs_lab.confidence", B=100)
    assert finding.estimates[0].low is not None


def test_the_example_of_arrays_runs(docs: ModuleType) -> None:
    code = [code for _, code in docs.Page(ROOT / "docs" / "how-to" / "audit-predictions.md").code("python")][-1]
    found: dict[str, object] = {}
    exec(compile(code, "audit-predictions.md", "exec"), found)
    assert [finding.headline for finding in found["findings"]] == ["described", "described"]  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.torch
def test_the_example_of_the_readme_runs(docs: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    (code,) = (code for _, code in docs.Page(ROOT / "README.md").code("python"))
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    small = code.replace("agreement=0.95", "agreement=0.95, n=400, seed=0").replace("epochs=8", "epochs=2")
    assert small != code
    found: dict[str, object] = {}
    exec(compile(small, "README.md", "exec"), found)
    ran = {finding.audit for finding in found["findings"] if not finding.not_run}  # type: ignore[attr-defined]
    assert ran >= {"art", "flips", "groups", "probes"}
    reasons = {finding.audit: finding.not_run for finding in found["findings"]}  # type: ignore[attr-defined]
    assert all("extract it" in reasons[name] for name in ("oscar", "tsi", "focus"))
    assert (tmp_path / "report.html").stat().st_size > 10_000


# ---- the site ----------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it, without a network, in a folder of its own."""
    pytest.importorskip("mkdocs")
    folder = tmp_path_factory.mktemp("site")
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, **nowhere, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return folder


@pytest.mark.slow
def test_every_page_is_built_and_in_the_navigation(docs: ModuleType, site: Path) -> None:
    built = [page.path.relative_to(docs.DOCS).with_suffix(".html") for page in docs.pages()]
    menu = (site / "index.html").read_text(encoding="utf-8")
    tabs = re.findall(r'<a href="([^"]+)" class="md-tabs__link"', menu)
    seen = "".join((site / tab).read_text(encoding="utf-8") for tab in tabs)
    for page in built:
        assert (site / page).exists(), page
        assert page.name in seen, page
    notebooks = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
    for path in notebooks:
        assert (site / "notebooks" / path.name).read_bytes() == path.read_bytes()
        assert (site / "notebooks" / f"{path.stem}.html").exists()


@pytest.mark.slow
def test_the_reference_has_every_public_name(site: Path) -> None:
    import rightreasons as rr

    reference = "".join(page.read_text(encoding="utf-8") for page in (site / "reference").glob("*.html"))
    index = (site / "reference" / "index.html").read_text(encoding="utf-8")
    for name in set(rr.__all__) - {"errors"}:
        assert f">rr.{name}</code></a>" in index, name
    for name in ("stats.groups.accuracy", "models.classifier.Classifier.wrap", "audits.audit", "extraction.extract"):
        assert f'id="rightreasons.{name}"' in reference, name


@pytest.mark.slow
def test_a_description_in_a_docstring_is_not_taken_for_a_type(site: Path) -> None:
    models = (site / "reference" / "models.html").read_text(encoding="utf-8")
    rows = re.findall(r"<tr[^>]*>\s*<td>\s*<code>new_head</code>.*?</tr>", models, re.DOTALL)
    cells = [[re.sub(r"<[^>]+>", "", cell).strip() for cell in re.findall(r"<td.*?</td>", row, re.DOTALL)] for row in rows]
    assert any(row[1] == "bool" and row[2].startswith("keep the random head") for row in cells), cells


@pytest.mark.slow
def test_the_site_fetches_nothing_and_no_link_in_it_is_dead(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        fetched = re.findall(r'<(?:script|img|iframe|source)\b[^>]*?\bsrc="([^"]*)"', text)
        fetched += re.findall(r'<link\b[^>]*?\bhref="([^"]*)"', text)
        assert [address for address in fetched if re.match(r"(?:https?:)?//", address)] == [], page
        for address in {*fetched, *re.findall(r'<a\b[^>]*?\bhref="([^"]*)"', text)}:
            path = address.partition("#")[0]
            if path and not re.match(r"[a-z]+:", path) and page.name != "404.html":
                assert (page.parent / path).exists(), f"{page.relative_to(site)}: {address}"


@pytest.mark.slow
def test_the_search_finds_a_page_from_the_disk(site: Path) -> None:
    index = (site / "search" / "search_index.js").read_text(encoding="utf-8")
    entries = json.loads(index.removeprefix("var __index = "))["docs"]
    assert any(entry["location"].startswith("papers/oscar.html") for entry in entries)
    assert any(entry["location"].startswith("reference/") for entry in entries)
    assert "unpkg" not in (site / "index.html").read_text(encoding="utf-8")


@pytest.mark.torch
def test_every_network_of_the_page_on_wrapping_is_wrapped(
    docs: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    found: dict[str, object] = {}
    for line, code in docs.Page(ROOT / "docs" / "how-to" / "wrap-a-network.md").code("python"):
        exec(compile(code, f"wrap-a-network.md, line {line}", "exec"), found)
    from rightreasons.attributions import token_influence

    images, labels = torch.randn(2, 3, 32, 32), torch.zeros(2, dtype=torch.long)
    assert tuple(token_influence.maps(found["vit"], images, target=labels).shape) == (2, 4, 4)  # type: ignore[arg-type]
    assert {found[name].geometry.channels for name in ("grey", "model", "spectral")} == {1, 3, 6}  # type: ignore[attr-defined]
