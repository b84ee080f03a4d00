"""Names of numbers, probes and targets as the page has them."""

DROP_OF_WGA = "drop of worst-group accuracy"
GAIN_OF_CSR = "gain of conflict shortcut rate"
PROBES = {"linear": "linear probe", "centre": "nearest centre"}
TARGETS = {
    "class-conditional": "attribute, within label",
    "global": "attribute, all rows",
    "joint": "group (label and attribute)",
}
