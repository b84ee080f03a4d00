"""ShorT with a number: fundus-like images whose age shows in vessels and lens, with age tied to the label in training and not.

    python examples/short/fundus.py --device cuda

In each of several worlds one family is trained on rows where age goes with the label, and one on the same images with the age
drawn again (see `planted.redrawn`). The first should be called a shortcut, the second not, and their correlations should differ.
"""

from __future__ import annotations

from families import Recipe, options, run

from rightreasons.data import planted

# Chosen on seed 100: with a fainter lesion or a stronger tie models decide by age alone, and hiding it costs all they know.
WORLD = {"cue": "age", "agreement": 0.75, "agreement_test": 0.5, "strength": 0.5, "lesion_contrast": 0.8, "pixels": 32}
FRACTIONS = {"train": 0.53, "val": 0.1, "audit": 0.03, "test": 0.34}


def main() -> None:
    parser = options("ShorT in a fundus-like world", "build/short-fundus")
    parser.add_argument("--worlds", type=int, nargs="+", default=[0, 1, 2], help="seeds of the worlds")
    parser.add_argument("--n", type=int, default=2400, help="images of a world")
    given = parser.parse_args()
    plans = {}
    for seed in given.worlds:
        folder = given.out / f"world-{seed}"
        world = planted.fundus(folder, n=given.n, n_external=0, fractions=FRACTIONS, seed=seed, **WORLD)
        cohorts = {"biased": world.in_groups("age"), "even": planted.redrawn(folder).in_groups("age", of=world)}
        recipe = Recipe(
            "age", "age groups", 32, given.scales, given.seeds, epochs=given.epochs, width=given.width, augment=None
        )  # fmt: skip
        plans[f"world-{seed}"] = (recipe, cohorts)
    run(plans, given.out, device=given.device, workers=given.workers, title="ShorT in a fundus-like world")


if __name__ == "__main__":
    main()
