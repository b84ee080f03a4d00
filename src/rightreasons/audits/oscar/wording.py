"""What models and correlations are called on the page."""

from __future__ import annotations

from rightreasons.audits.oscar.compare import BASELINE_ATTRIBUTE, DEVIATION, PARTIAL, TEST_ATTRIBUTE, TEST_BASELINE

MODELS = {"test": "test model", "baseline": "baseline", "attribute": "attribute model"}
CORRELATIONS = {
    PARTIAL: "partial: test and attribute, given baseline",
    DEVIATION: "deviation: test without baseline, and attribute",
    TEST_ATTRIBUTE: "pairwise: test and attribute",
    TEST_BASELINE: "pairwise: test and baseline",
    BASELINE_ATTRIBUTE: "pairwise: baseline and attribute",
}
