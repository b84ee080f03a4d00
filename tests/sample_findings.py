"""Findings for tests of what is made of them: every kind of exhibit, and texts that want to be markup."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rightreasons.findings import (
    Bars,
    Check,
    Curves,
    Estimate,
    Exhibit,
    Finding,
    Gallery,
    Heatmap,
    Picture,
    Scatter,
    Table,
    Verdict,
    not_run,
)

EVIL = """<script>alert(1)</script><img src=x onerror=alert(1)>"'&|`*_[a](javascript:alert(1)) ]]>{{ 7 * 7 }} مرحبا \u202e 🩻"""


def estimate(value: float = 0.3, half: float = 0.05, name: str = "effect", **more: Any) -> Estimate:
    return Estimate(
        **{"name": name, "value": value, "low": value - half, "high": value + half, "n": 900, "row": "reliance", **more}
    )


def finding(name: str = "art", verdict: Verdict = "shortcut", **fields: Any) -> Finding:
    given = {
        "audit": name,
        "question": f"Question of {name}?",
        "sentence": f"Sentence of {name}.",
        "row": "reliance",
        "estimates": [estimate()],
        "model": "m",
        "attribute": "sex",
    }
    return Finding(name=name, verdict=verdict, **{**given, **fields})


def exhibits(text: str = "plain") -> list[Exhibit]:
    """One of each kind."""
    pictures = [np.random.default_rng(k).random((16, 16, 3)) for k in range(4)]
    told = {"title": text, "caption": f"caption {text}"}
    return [
        Table(columns=[text, "b"], rows=[[text, 1.0], [None, {"value": 2.0, "low": 1.0, "high": 3.0}]], **told),
        Bars(labels=[text, "two"], series={text: [1, 2], "other": [2, None]}, low={"other": [1, None]}, **told),
        Curves(x=[0, 1, 2], series={text: {"y": [1, 2, 3], "low": [0, 1, 2], "high": [2, 3, 4]}, "other": [2, 3, 4]}, **told),
        Scatter(x=[1, 2, 3], y=[1, 2, 1], label=[text, "b", "c"], group=[text, "other", "other"], **told),
        Heatmap(values=[[1, 2], [3, None]], row_labels=[text, "b"], col_labels=["x", "y"], **told),
        Heatmap(values=np.ones((2, 2)), background=pictures[0], **told),
        Gallery(
            items=[
                Picture(png=p, caption=f"{text} {k}", group="odd" if k % 2 else "even", values={"score": [0.3, 0.9, 0.1, 0.5][k]})
                for k, p in enumerate(pictures)
            ],
            sort="score",
            **told,
        ),
    ]


def some(text: str = "plain", verdict: Verdict = "shortcut", **fields: Any) -> list[Finding]:
    """A verdict with every exhibit, a description and one that did not run."""
    whole = finding("art", verdict, exhibits=exhibits(text), checks=[Check(name=text, passed=False, note=text)], **fields)
    described = finding("groups", None, row="behaviour", estimates=[estimate(0.8, name="worst-group accuracy", row="behaviour")])
    return [
        whole,
        described,
        not_run("oscar", "oscar", "Where?", "place", f"no reference models {text}", model="m", attribute="sex"),
    ]


def saved(folder: Path, findings: list[Finding]) -> Path:
    for one in findings:
        one.save(folder)
    return folder
