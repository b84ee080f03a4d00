"""Results of ham.py and fundus.py as a page of the documentation, with figures 2 to 4 of the paper.

    python examples/short/page.py docs/results build/short-ham build/short-fundus

Folders of several runs (one attribute each) may be given one after the other.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from families import FIGURES, tables

PANELS = {
    "distribution": "the attribute by label in the training rows",
    "encoding": "how strongly the models encode it, over the scales of its gradient",
    "performance": "fairness against performance, coloured by encoding",
    "disparity": "disparity against encoding",
}
OPENING = """# ShorT on skin lesions and in planted worlds

A family of small CNNs is trained with the gradient of an attribute scaled from -3 to 3;
[ShorT](../how-to/audit-with-short.md) asks whether the models that encode the attribute more are also those whose decisions
lean on it more.
"""
COMMANDS = """Tables and figures are written by

```sh
python examples/short/ham.py --data FOLDER --device cpu --size 32 --width 8 --epochs 8 --scales 13 --seeds 2
python examples/short/fundus.py --device cuda --worlds 2 --scales 13 --seeds 3 --epochs 12
python examples/short/page.py docs/results build/short-ham build/short-fundus
```

All families are judged on the same test rows, so that they differ in their training rows alone. *p, exchange* is what
decides: the attribute exchanged among test rows of one label. *The paper's* rho is that of the encoding over all rows, with
Spearman's own p, which takes the models of a family for independent.
"""
HAM = """## Skin lesions: melanoma, age and sex

HAM10000, 5,971 images with age and sex, images of one lesion in one split. Each attribute has three versions of train, val
and test: *original*; *biased*, subsampled to a gap of 15 years (0.4 in the share of men) between melanomas and other lesions;
and *balanced*, subsampled to no gap. Images of 32 pixels, 26 models a family, on one core of a busy machine. At 64 pixels with
25 scales and five seeds (the defaults, for a GPU) it has not been run to its end.
"""
FUNDUS = """## A number in planted worlds

Fundus-like images whose age shows in vessels and lens. *biased*: age goes with the label in training (agreement 0.75);
*even*: the same images with the age drawn again. Lesion contrast, strength of the cue and range of scales were chosen on the
world of seed 100; these are others. In the world of seed 1 the biased family is a shortcut too (rho 0.40, p 0.026, 36
models); its other family ran out of time.
"""
STUDIES = """## Studies

`rightreasons sweep examples/short/study.toml` (digits with a faint tag, 39 models trained as one and two of the tag itself):
shortcut, rho 0.69, p 0.001; 48 s of processor time. Killed after 45 s and started again, its table is the same to the bit.

`rightreasons sweep examples/short/fundus.toml` (78 models): biased shortcut, rho 0.70 (0.39 to 0.84), p 0.001; even no
evidence, because the training rows have no association (rho of separation 0.03, p 0.88); 142 s on an H200 beside other jobs.
`python examples/short/difference.py rightreasons-short-fundus biased even`: rho 0.70 and 0.15 over 39 models each, a difference
of 0.54 with p 0.006.

`rightreasons sweep examples/short/interventions.toml` (plain, subsampled, reweighted, GroupDRO and a reversed gradient, four
seeds each, one family): shortcut, rho 0.79, p 0.003; 72 s of processor time.
"""


def main() -> None:
    docs, *runs = map(Path, sys.argv[1:])
    parts, figures = [OPENING, *([COMMANDS] if runs else [])], docs / "short"
    shutil.rmtree(figures, ignore_errors=True)
    if runs:
        figures.mkdir(parents=True)
    told: dict[str, dict[str, Any]] = {}
    for run in runs:
        numbers = json.loads((run / "numbers.json").read_text())
        told |= {name: {**part, "device": numbers["device"]} for name, part in numbers.items() if isinstance(part, dict)}
        for file in (run / "figures").glob("*.svg"):
            shutil.copy(file, figures / file.name)
    for text, names in ((HAM, [n for n in told if "world" not in n]), (FUNDUS, [n for n in told if "world" in n])):
        if names:
            parts.append(text)
        for name in names:
            seconds = ", ".join(f"{version} {s:.0f} s" for version, s in told[name]["training_seconds"].items())
            parts += [tables({name: told[name]}), f"\nTraining on {told[name]['device']}, beside other jobs: {seconds}.\n"]
            parts.append(_pictures(name, list(told[name]["families"]), figures))
    kept = {link for part in parts for link in part.split("(short/")[1:]}
    for file in figures.glob("*.svg"):
        if not any(link.startswith(f"{file.name})") for link in kept):
            file.unlink()
    (docs / "short.md").write_text("\n".join([*parts, STUDIES]))


def _pictures(name: str, versions: list[str], folder: Path) -> str:
    """Figures 2 and 3 (three panels a version), and 4 (disparity against encoding)."""
    lines: list[str] = []
    for panels, figure in ((("distribution", *list(FIGURES.values())[:2]), "Figures 2 and 3"), (("disparity",), "Figure 4")):
        drawn = []
        for version in versions:
            files = [f"short-{name}-{version}-{panel}.svg" for panel in panels]
            shown = [f"![{version}: {PANELS[p]}](short/{f})" for p, f in zip(panels, files, strict=True) if (folder / f).exists()]
            drawn += [" ".join(shown)] if shown else []
        if drawn:  # figures are announced only where they are
            lines += [f"\n{figure} of the paper, {name}: {'; '.join(PANELS[p] for p in panels)}.\n", *drawn]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
