"""Other people's tools, in an environment of their own (outside.py starts it): `python _there.py JOBS.json ANSWERS.json`.

It imports nothing of this project. Both tools are used as their own first pages show, with their default settings.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

METHODS = ["hbac", "probe", "statistical", "geometric", "equalized_odds"]  # of ShortKit-ML's quick start


def main(jobs: str, answers: str) -> None:
    """A line of JSON for every job, in order, written as soon as it is known."""
    with Path(answers).open("a") as file:
        for job in json.loads(Path(jobs).read_text()):
            began = time.process_time()
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                told = {"ShortKit-ML": shortkit, "Cleanlab": cleanlab}[job["tool"]](job)
            file.write(json.dumps(job | told | {"seconds": round(time.process_time() - began, 2)}) + "\n")
            file.flush()


def shortkit(job: dict[str, Any]) -> dict[str, Any]:
    """The quick start on one model's features, with the attribute as groups: how many methods warn, and the summary's word.

    Without groups it would take the labels for them, and a good model reads those.
    """
    from shortcut_detect import ShortcutDetector

    arrays = np.load(job["arrays"])
    features = np.asarray(arrays[f"features {job['model']}"], dtype=np.float64)
    detector = ShortcutDetector(methods=METHODS)
    detector.fit(features, arrays["label"].astype(int), group_labels=arrays[job["attribute"]].astype(int))
    word = next(word for word in ("HIGH RISK", "MODERATE RISK", "LOW RISK") if word in detector.summary())
    results = detector.get_results()
    return {
        "score": float(sum(len(result.get("risk_indicators", ())) for result in results.values())),
        "word": word,
        "called": word == "HIGH RISK",
        "failed": [name for name, result in results.items() if not result.get("success")],
        "version": version("shortkit-ml"),
    }


def cleanlab(job: dict[str, Any]) -> dict[str, Any]:
    """Datalab on the training images and labels: one minus the lowest score of an image property, and whether that is reported.

    It sees neither a model nor the attribute: what it says belongs to the data set, and so to every model trained on it.
    """
    from cleanlab import Datalab
    from datasets import Dataset, Image
    from PIL import Image as Pictures

    arrays = np.load(job["arrays"])
    pictures = [Pictures.fromarray(picture) for picture in arrays["images"]]
    data = Dataset.from_dict({"image": pictures, "label": arrays["label"].astype(int).tolist()}).cast_column("image", Image())
    lab = Datalab(data=data, label_name="label", image_key="image", verbosity=0)
    lab.find_issues()
    found = lab.get_info("spurious_correlations")
    table = found["correlations_df"].sort_values("score")
    lowest = float(table["score"].iloc[0])
    return {
        "score": 1 - lowest,
        "word": str(table["property"].iloc[0]),
        "called": lowest < found["threshold"],
        "properties": {str(row["property"]): float(row["score"]) for _, row in table.iterrows()},
        "version": version("cleanlab"),
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
