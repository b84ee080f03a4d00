"""What notebooks show: escaped, and enough to know what one has. Progress goes there too."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import rightreasons as rr
from rightreasons import progress
from rightreasons.data.cohort import Cohort
from rightreasons.testing import synthetic_evidence
from sample_findings import EVIL, finding


def cohort(**more: Any) -> Cohort:
    columns = {"id": list("abcd"), EVIL: [EVIL, EVIL, "x", "x"], "sex": [EVIL, "f", "f", "f"], "age": [1.5, 2.5, 3.5, 4.5]}
    return Cohort.from_columns(columns, label=EVIL, name=EVIL, **more)


def test_a_cohort_shows_its_groups() -> None:
    shown = cohort(attribute=["sex", "age"])._repr_html_()
    assert "4 rows" in shown
    assert shown.count("<tr>") == 3
    assert "<bdi>1</bdi>" in shown and "<bdi>2</bdi>" in shown
    assert "rows" in cohort(attribute="age")._repr_html_()
    assert "4 rows" in Cohort.from_columns({"id": list("abcd")}, label=None)._repr_html_()


def test_evidence_shows_cohorts_and_arrays() -> None:
    shown = synthetic_evidence()._repr_html_()
    assert shown.count("features, logits") == 3
    assert "120" in shown


@pytest.mark.parametrize("shown", [lambda: cohort(attribute="sex"), lambda: finding(EVIL, question=EVIL, sentence=EVIL)])
def test_odd_texts_are_shown_as_text(shown: Any) -> None:
    text = shown()._repr_html_()
    assert "<script" not in text and "<img" not in text
    assert "&lt;script&gt;" in text


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A notebook's kernel, as far as progress sees it; gives what was drawn."""
    drawn: list[str] = []

    class Handle:
        def update(self, what: str) -> None:
            drawn.append(what)

    def display(what: str, display_id: bool) -> Handle:
        drawn.append(what)
        return Handle()

    ipython, shown = ModuleType("IPython"), ModuleType("IPython.display")
    ipython.get_ipython = lambda: type("Shell", (), {"kernel": object()})()  # type: ignore[attr-defined]
    shown.HTML, shown.display = str, display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", shown)
    monkeypatch.delenv("RIGHTREASONS_QUIET", raising=False)
    monkeypatch.setattr(progress, "NOTEBOOK_EVERY_SECONDS", 0.0)
    return drawn


def test_a_notebook_shows_a_result_as_its_finding_and_its_class_stays_as_it_is(kernel: list[str]) -> None:
    shown_by: dict[type, Any] = {}
    formatter = SimpleNamespace(for_type=shown_by.__setitem__)
    shell = SimpleNamespace(kernel=object(), display_formatter=SimpleNamespace(formatters={"text/html": formatter}))
    sys.modules["IPython"].get_ipython = lambda: shell  # type: ignore[attr-defined]
    result = rr.audit("groups", synthetic_evidence(), B=50)
    assert shown_by[type(result)](result) == result.finding()._repr_html_()
    assert not hasattr(result, "_repr_html_")


def test_progress_in_a_notebook_is_a_bar_that_is_redrawn(kernel: list[str]) -> None:
    assert list(progress.track(range(3), "<b>", done=1)) == [0, 1, 2]
    assert [text.split("> ")[-1] for text in kernel] == ["1 of 4", "2 of 4", "3 of 4", "4 of 4", "4 of 4"]
    assert all(text.startswith("&lt;b&gt;") for text in kernel)
    assert list(progress.track(iter("ab"), "x")) == ["a", "b"]
    assert kernel[-1].endswith("2") and "value" not in kernel[-1]


def test_a_terminal_of_ipython_is_no_notebook(kernel: list[str]) -> None:
    sys.modules["IPython"].get_ipython = lambda: object()  # type: ignore[attr-defined]
    list(progress.track(range(3), "y"))
    assert kernel == []


def test_training_shows_its_remarks_in_a_notebook(kernel: list[str]) -> None:
    with progress.Meter("train", 3, done=1) as meter:
        meter.advance()
        meter.say("loss <1")
        meter.advance()
    assert kernel[0].endswith("1 of 3")
    assert kernel[-1].endswith("3 of 3 loss &lt;1")
