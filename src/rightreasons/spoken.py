"""Errors in the words of whoever reads them.

Functions speak of their keywords, `bins=`, because that is what their callers type. At the command line the same setting is an
option, `--bins`, and in a study.toml a key, `bins = `.
"""

from __future__ import annotations

import re
from collections.abc import Callable

OTHER_NAMES = {"mapping": "map", "kinds": "kind"}
"""Options that are called otherwise than their keywords."""
KEYWORDS = (
    "label", "attribute", "image", "id", "split", "subject", "case", "site", "box", "mask", "twin", "twin_attribute", "root",
    "mapping", "bins", "kinds", "missing", "model", "checkpoint", "part", "num_classes", "classes", "output", "size", "crop",
    "interpolation", "mean", "std", "channels", "device", "workers", "cache", "start", "threshold", "aligned", "batch", "epochs",
    "lr", "score", "prediction", "patience", "stop_on", "augment", "target", "seed", "out", "audits", "new_head", "truth",
)  # fmt: skip
"""Keywords that are options of some command."""

_ANY = "|".join(KEYWORDS)
_PAIR = re.compile(r"\b(bins|kinds|mapping)=\{'?([^':}]*)'?: '?([^'}]*)'?\}")
_ALIGNED = re.compile(r"\baligned=\{'?([^':}]*)'?: \{value: label\}, …\}")
_NAMED = re.compile(rf"(?<![-\w.@=])(?<!--set )(?<!\w\()({_ANY})=(True\b)?(?=(.?))")
_FIRST = re.compile(rf"^({_ANY})(?= (?:is|has) )")


def as_option(keyword: str) -> str:
    """`--num-classes` for num_classes."""
    return f"--{OTHER_NAMES.get(keyword, keyword).replace('_', '-')}"


def as_key(keyword: str) -> str:
    """As in a study.toml: num_classes."""
    return keyword


def spoken(sentence: str, spelled: Callable[[str], str] = as_option) -> str:
    """A sentence about keywords (`bins=` somewhere, or `batch is …` at its beginning), spelled for its reader.

    Parameters
    ----------
    spelled : how a keyword is written, `as_option` or `as_key`
    """

    def named(found: re.Match[str]) -> str:
        keyword, is_flag, after = found.groups()
        if spelled is as_key and is_flag:
            return f"{keyword} = true"
        if not after or after not in "{['\"0123456789<…":
            return spelled(keyword)
        return f"{keyword} = " if spelled is as_key else f"{spelled(keyword)} "

    if spelled is as_option:
        sentence = _ALIGNED.sub(r"--aligned \1:value=label", sentence)
        sentence = _PAIR.sub(lambda found: f"{as_option(found[1])} {found[2]}={found[3]}", sentence)
        sentence = _FIRST.sub(lambda found: as_option(found[1]), sentence)
    sentence = _NAMED.sub(named, sentence)
    return sentence.replace(" when reading the manifest", "").replace(" when reading", "")
