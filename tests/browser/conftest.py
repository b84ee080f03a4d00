"""A real browser for tests; where there is none they are skipped, and the summary says what is missing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from rightreasons.exports import browser as installed

AXE = "axe_playwright_python"  # carries axe-core's script
WAIT = 180_000  # milliseconds for anything a browser is asked for: a busy machine may be very slow


@pytest.fixture(scope="session")
def chrome() -> Iterator[Any]:
    """Chromium, driven by Playwright."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")
    with api.sync_playwright() as playwright:
        own = Path(playwright.chromium.executable_path)
        program = installed() or (str(own) if own.exists() else None)
        if program is None:
            pytest.skip("no browser: install chromium, or run playwright install chromium")
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        launched = playwright.chromium.launch(executable_path=program, args=sandbox, timeout=WAIT)
        api.expect.set_options(timeout=WAIT)
        yield launched
        launched.close()


@dataclass
class Visit:
    """A page as somebody sees it, and all that it asked for or complained of."""

    page: Any
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.page, name)

    def expect(self, selector: str) -> Any:
        """What is, or soon will be, true of an element: what a key or a click does may take a moment to be seen."""
        from playwright.sync_api import expect

        return expect(self.page.locator(selector))

    def unfold(self) -> Visit:
        """Open everything that paper shows (all but the numbers below a drawing); returns itself."""
        self.page.evaluate("document.querySelectorAll('details:not(.numbers)').forEach(d => { d.open = true; })")
        return self

    def violations(self) -> list[str]:
        """What axe-core calls serious or critical."""
        found = find_spec(AXE)
        if found is None or found.submodule_search_locations is None:
            pytest.skip("axe-core is not installed: pip install axe-playwright-python")
        self.page.evaluate((Path(found.submodule_search_locations[0]) / "axe.min.js").read_text(encoding="utf-8"))
        told = self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        return [
            f"{one['id']}: {one['help']}: {[node['target'] for node in one['nodes']][:3]}"
            for one in told["violations"]
            if one["impact"] in ("serious", "critical")
        ]


@pytest.fixture
def visit(chrome: Any) -> Iterator[Callable[..., Visit]]:
    """`visit(address or file, width=…, dark=…)`."""
    contexts = []

    def go(address: str | Path, *, width: int = 1280, height: int = 900, dark: bool = False, **more: Any) -> Visit:
        scheme = "dark" if dark else "light"
        context = chrome.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion="reduce", **more
        )
        context.set_default_timeout(WAIT)
        contexts.append(context)
        made = Visit(context.new_page())
        made.page.on("request", lambda request: made.requests.append(request.url))
        made.page.on("console", lambda message: message.type == "error" and made.complaints.append(message.text))
        made.page.on("pageerror", lambda error: made.complaints.append(str(error)))
        made.page.on("dialog", lambda dialog: (made.complaints.append(f"dialog {dialog.message}"), dialog.dismiss()))
        made.page.goto(address.as_uri() if isinstance(address, Path) else address)
        return made

    yield go
    for context in contexts:
        context.close()
