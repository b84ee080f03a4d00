"""The documentation keeps its promises: links resolve, code compiles, names and options exist, and the README's example runs."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def docs() -> ModuleType:
    """docs/build.py, which is a script and lies on no path."""
    spec = importlib.util.spec_from_file_location("docs_build", ROOT / "docs" / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["docs_build"] = module
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


def test_every_page_is_in_the_index(docs: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docs, "OUT", tmp_path / "docs")
    pages = docs.build()
    index = (tmp_path / "docs" / "index.html").read_text()
    for page in pages:
        assert f'href="{page.path.relative_to(docs.DOCS).with_suffix(".html")}"' in index
        for address in re.findall(r'(?:href|src)="(?!https?:)([^":#]+)', page.output.read_text()):
            assert (page.output.parent / address).exists() or (page.output.parent / address).resolve().is_relative_to(ROOT), (
                address
            )


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
