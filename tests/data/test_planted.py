"""Planted worlds: the shortcut is exactly where, and as strong as, it was asked for."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rightreasons.data import images, planted
from rightreasons.data.cohort import Cohort
from rightreasons.data.planted import _world
from rightreasons.errors import DataError, SettingError

SMALL = {"n": 200, "pixels": 16}
LOCAL = ("tag", "patch", "ring")


def stack(cohort: Cohort, column: str) -> np.ndarray:
    references = cohort.column(column)
    if "#" not in references[0]:
        return np.stack([images.read(reference, root=cohort.root) for reference in references])
    (file,) = {reference.split("#")[0] for reference in references}
    pixels = np.load(cohort.root / file)[[int(reference.split("#")[1]) for reference in references]]
    np.testing.assert_array_equal(images.read(references[-1], root=cohort.root).squeeze() > 0, pixels[-1].squeeze() > 0)
    return pixels


def masks(cohort: Cohort, column: str) -> np.ndarray:
    inside = stack(cohort, column) > 0
    return inside[..., 0] if inside.shape[-1] == 1 else inside


def agreement(cohort: Cohort) -> float:
    return float((cohort.attribute().values == cohort.label).mean())


def hashes(folder: Path) -> dict[str, str]:
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    return {str(p.relative_to(folder)): hashlib.blake2b(p.read_bytes()).hexdigest() for p in files}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Cohort:
    return planted.digits(tmp_path_factory.mktemp("planted") / "tag")


@pytest.fixture(scope="module")
def eyes(tmp_path_factory: pytest.TempPathFactory) -> Cohort:
    return planted.fundus(tmp_path_factory.mktemp("planted") / "eyes", n=160, n_external=60, agreement_external=0.1)


# ---- digits ----------------------------------------------------------------------------------------------------------------


def test_all_digits_are_there_once_and_labelled_below_five_or_not(world: Cohort) -> None:
    assert len(world) == 1797 and len(set(world.id)) == 1797
    np.testing.assert_array_equal(world.label, world.column("digit") >= 5)
    assert images.read(world.image[0], root=world.root).shape == (32, 32, 3)


def test_splits_are_60_10_15_15_and_stratified_on_the_digit(world: Cohort) -> None:
    share = pd.crosstab(world.column("digit"), world.splits, normalize="index")
    for split, expected in {"train": 0.6, "val": 0.1, "audit": 0.15, "test": 0.15}.items():
        np.testing.assert_allclose(share[split], expected, atol=0.01)


def test_the_cue_agrees_as_asked_in_train_and_val_and_not_at_all_in_audit_and_test(world: Cohort) -> None:
    for split, expected in {"train": 0.95, "val": 0.95, "audit": 0.5, "test": 0.5}.items():
        part = world.on(split)
        assert agreement(part) == pytest.approx(expected, abs=1.5 / np.bincount(part.label).min())
    np.testing.assert_array_equal(world.column("agrees"), world.attribute().values == world.label)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.8, 1.0])
def test_any_agreement_can_be_asked_for_in_any_split(tmp_path: Path, share: float) -> None:
    world = planted.digits(tmp_path, agreement=share, agreement_test=share, agreement_audit=1.0, **SMALL)
    assert agreement(world.on("train")) == pytest.approx(share, abs=0.02)
    assert agreement(world.on("test")) == pytest.approx(share, abs=0.07)
    assert agreement(world.on("audit")) == 1.0


def test_classes_may_agree_differently(tmp_path: Path) -> None:
    train = planted.digits(tmp_path, agreement=(0.8, 0.95), pixels=16).on("train")
    agrees = train.column("agrees")
    assert agrees[train.label == 0].mean() == pytest.approx(0.8, abs=0.002)
    assert agrees[train.label == 1].mean() == pytest.approx(0.95, abs=0.002)


@pytest.mark.parametrize("cue", planted.KINDS)
def test_a_twin_differs_from_its_image_only_in_the_cue(tmp_path: Path, cue: str) -> None:
    world = planted.digits(tmp_path, cue=cue, **SMALL)
    changed = (stack(world, "image") != stack(world, "twin")).any(axis=-1)
    where = masks(world, "cue_mask")
    assert not changed[~where].any()
    if cue == "none":
        assert not where.any()
    else:
        assert changed.any(axis=(1, 2)).all()
    if cue in ("tag", "ring"):
        np.testing.assert_array_equal(changed, where)
    np.testing.assert_array_equal(world.twins().attribute().values, 1 - world.attribute().values)


@pytest.mark.parametrize("cue", [k for k in planted.KINDS if k != "none"])
def test_an_image_of_one_value_is_the_twin_of_the_other(tmp_path: Path, cue: str) -> None:
    low = planted.digits(tmp_path / "0", cue=cue, agreement=0.0, **SMALL).on("train")
    high = planted.digits(tmp_path / "1", cue=cue, agreement=1.0, **SMALL).on("train")
    np.testing.assert_array_equal(stack(low, "image"), stack(high, "twin"))
    np.testing.assert_array_equal(stack(low, "twin"), stack(high, "image"))


def test_boxes_are_the_bounds_of_the_masks_and_the_tag_lies_outside_the_digit(world: Cohort) -> None:
    part = world.select(np.arange(60))
    cue = [_world.boxes(m[None])[0] for m in masks(part, "cue_mask")]
    assert set(cue) == {"0 0 5 5"}
    np.testing.assert_array_equal(cue, part.column("cue_box"))
    for box, mask in zip(part.box, masks(part, "mask"), strict=True):
        ((x0, y0, x1, y1),) = box.astype(int)
        assert mask[y0:y1, x0:x1].sum() == mask.sum() > 0
        assert mask[y0].any() and mask[y1 - 1].any() and mask[:, x0].any() and mask[:, x1 - 1].any()
        assert x0 >= 5 or y0 >= 5


def test_the_object_is_brighter_than_its_ground(world: Cohort) -> None:
    part = world.select(np.arange(60))
    pixels, inside = stack(part, "image").mean(axis=-1), masks(part, "mask")
    for image, mask in zip(pixels, inside, strict=True):
        assert image[mask].mean() > image[6:26, 6:26][~mask[6:26, 6:26]].mean() + 60


def test_the_colour_of_the_tag_is_the_attribute(world: Cohort) -> None:
    tag = stack(world.on("test"), "image")[:, :5, :5].mean(axis=(1, 2))
    np.testing.assert_array_equal(tag[:, 1] > tag[:, 0], world.on("test").attribute().values == 1)


@pytest.mark.parametrize(
    ("place", "corner"),
    [("top-right", (0, 27)), ("bottom-left", (27, 0)), ("bottom-right", (27, 27)), ("centre", (13, 13)), ((3, 20), (3, 20))],
)
def test_a_tag_stands_where_it_was_asked_to(tmp_path: Path, place: str | tuple[int, int], corner: tuple[int, int]) -> None:
    world = planted.digits(tmp_path, place=place, n=20)
    top, left = corner
    assert set(world.column("cue_box")) == {f"{left} {top} {left + 5} {top + 5}"}


def test_a_tag_without_a_fixed_place_wanders_and_avoids_the_digit(tmp_path: Path) -> None:
    world = planted.digits(tmp_path, place="random", n=200)
    cue = masks(world, "cue_mask")
    assert (cue.sum(axis=(1, 2)) == 25).all()
    assert not (cue & masks(world, "mask")).any()
    assert len(set(world.column("cue_box"))) > 100


def test_worlds_of_one_seed_are_paired_whatever_the_cue(tmp_path: Path) -> None:
    first = planted.digits(tmp_path / "a", cue="tag", **SMALL)
    for name, settings in {"b": {"cue": "ring"}, "c": {"agreement": 0.6}, "d": {"cue": "cast", "continuous": True}}.items():
        other = planted.digits(tmp_path / name, **settings, **SMALL)
        for column in ("id", "label", "split", "digit", "box"):
            np.testing.assert_array_equal(first.column(column), other.column(column))
        np.testing.assert_array_equal(masks(first, "mask"), masks(other, "mask"))
        if name != "d":
            free = ~(masks(first, "cue_mask") | masks(other, "cue_mask"))
            np.testing.assert_array_equal(stack(first, "image")[free], stack(other, "image")[free])


def test_rising_agreement_moves_rows_one_way_only(tmp_path: Path) -> None:
    weak, strong = (planted.digits(tmp_path / str(a), agreement=a, **SMALL).column("agrees") for a in (0.7, 0.9))
    assert (strong >= weak).all()


def test_another_seed_is_another_world(tmp_path: Path) -> None:
    first, second = (planted.digits(tmp_path / str(seed), seed=seed, **SMALL) for seed in (0, 1))
    assert (first.splits != second.splits).any()
    assert first.fingerprint != second.fingerprint


def test_equal_settings_give_equal_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        planted.digits(tmp_path / name, cue="frequency", **SMALL)
        planted.redrawn(tmp_path / name)
    assert hashes(tmp_path / "a") == hashes(tmp_path / "b")


def test_a_finished_folder_is_reused_and_never_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = planted.digits(tmp_path, **SMALL)
    monkeypatch.setattr(_world, "write", lambda *_: pytest.fail("a finished world was written again"))
    assert planted.digits(tmp_path, **SMALL).fingerprint == first.fingerprint
    with pytest.raises(SettingError, match=r"agreement=0\.95, not agreement=0\.8: name another folder"):
        planted.digits(tmp_path, agreement=0.8, **SMALL)


def test_an_unfinished_folder_is_made_again(tmp_path: Path) -> None:
    whole = planted.digits(tmp_path, **SMALL).fingerprint
    (tmp_path / "world.json").unlink()
    (tmp_path / "twins.npy").unlink()
    again = planted.digits(tmp_path, **SMALL)
    assert again.fingerprint == whole and stack(again, "twin").shape == (200, 16, 16, 3)


def test_redrawn_has_the_same_images_with_the_cue_drawn_again(tmp_path: Path) -> None:
    world = planted.digits(tmp_path, pixels=16)
    again = planted.redrawn(tmp_path)
    for column in ("id", "label", "split", "mask", "cue_mask"):
        np.testing.assert_array_equal(world.column(column), again.column(column))
    assert agreement(again.on("train")) == pytest.approx(0.5, abs=0.002)
    for split in ("audit", "test"):
        assert world.on(split).fingerprint == again.on(split).fingerprint
    same = world.attribute().values == again.attribute().values
    assert 0.4 < same[world.splits == "train"].mean() < 0.6
    first, second, twin = stack(world, "image"), stack(again, "image"), stack(world, "twin")
    np.testing.assert_array_equal(second, np.where(same[:, None, None, None], first, twin))
    other = planted.redrawn(tmp_path, draw=2)
    assert other.name == "redrawn-2" and (other.attribute().values != again.attribute().values).any()


def test_a_continuous_cue_lies_on_its_labels_side_in_the_share_asked_for(tmp_path: Path) -> None:
    world = planted.digits(tmp_path, continuous=True, agreement=0.9, pixels=16)
    a = world.attribute()
    assert a.kind == "continuous" and ((a.values > 0) & (a.values < 1)).all()
    train, test = world.on("train"), world.on("test")
    assert ((train.attribute().values > 0.5) == (train.label == 1)).mean() == pytest.approx(0.9, abs=0.01)
    assert abs(np.corrcoef(test.attribute().values, test.label)[0, 1]) < 0.05
    np.testing.assert_allclose(world.twins().attribute().values, 1 - a.values, atol=1e-6)
    green = stack(world, "image")[:, 0, 0, 1]
    assert np.corrcoef(green, a.values)[0, 1] > 0.99
    assert planted.redrawn(tmp_path).on("train").attribute().kind == "continuous"


def test_ten_classes_with_ten_colours(tmp_path: Path) -> None:
    world = planted.digits(tmp_path, classes=10, values=10, agreement=0.8, pixels=16)
    assert world.classes == world.attribute().levels == tuple(range(10))
    assert agreement(world.on("train")) == pytest.approx(0.8, abs=0.01)
    assert agreement(world.on("test")) == pytest.approx(0.1, abs=0.03)
    assert world.counts().to_numpy().min() > 0
    colours = {int(v): tuple(c) for v, c in zip(world.attribute().values, stack(world, "image")[:, 0, 0], strict=True)}
    assert len(set(colours.values())) == 10


def test_a_mapping_of_digits_leaves_the_others_out(tmp_path: Path) -> None:
    world = planted.digits(tmp_path, classes={3: 0, 8: 1}, pixels=16)
    assert set(world.column("digit")) == {3, 8}
    np.testing.assert_array_equal(world.label, world.column("digit") == 8)


def test_label_noise_is_in_train_and_val_only_and_the_cue_goes_with_the_given_label(tmp_path: Path) -> None:
    world = planted.digits(tmp_path, label_noise=0.2, pixels=16)
    wrong = world.label != world.column("true_label")
    biased = np.isin(world.splits, ["train", "val"])
    assert wrong[biased].mean() == pytest.approx(0.2, abs=0.01) and not wrong[~biased].any()
    assert agreement(world.on("train")) == pytest.approx(0.95, abs=0.005)


def test_a_weaker_cue_has_less_contrast(tmp_path: Path) -> None:
    def contrast(strength: float) -> float:
        world = planted.digits(tmp_path / str(strength), strength=strength, **SMALL)
        return float(np.abs(stack(world, "image").astype(float) - stack(world, "twin")).mean())

    assert contrast(0.25) == pytest.approx(contrast(1.0) / 4, rel=0.1)


def test_a_harder_group_has_more_noise_and_its_twins_keep_it(tmp_path: Path) -> None:
    world = planted.digits(tmp_path, harder=0.2, agreement=0.5, **SMALL)
    noise = np.abs(np.diff(stack(world, "image")[:, 14:, :, 0].astype(float), axis=2)).mean(axis=(1, 2))
    a = world.attribute().values
    assert np.median(noise[a == 1]) > 2 * np.median(noise[a == 0])
    changed = (stack(world, "image") != stack(world, "twin")).any(axis=-1)
    assert not changed[~masks(world, "cue_mask")].any()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cue": "tga"}, "did you mean 'tag'"),
        ({"place": "middle"}, "no place named 'middle'"),
        ({"place": (30, 0)}, "from 0 to 27"),
        ({"cue": "cast", "size": 4}, "a cast cue has no size"),
        ({"cue": "ring", "place": "centre"}, "a ring cue has no place"),
        ({"size": 40}, "does not fit"),
        ({"cue": "ring", "size": 16}, "does not fit"),
        ({"strength": 0}, "strength=0"),
        ({"agreement": 1.2}, "shares from 0 to 1"),
        ({"agreement": (0.5, 0.5, 0.9)}, "one per class"),
        ({"agreement": 1.0, "continuous": True}, "never in none or all"),
        ({"classes": 10, "continuous": True}, "needs two classes"),
        ({"classes": 3}, "give 2, 10 or a mapping"),
        ({"classes": {1: 0, 2: 0}}, "at least two"),
        ({"classes": {1: 0, 11: 1}}, "digits 0 to 9"),
        ({"values": 3}, "2 to 2 cue values"),
        ({"n": 5}, "20 to 1797"),
        ({"pixels": 4}, "12 or more"),
        ({"pixel_noise": -1}, "pixel_noise"),
        ({"label_noise": 1.0}, "label_noise"),
        ({"fractions": {"train": 0.5}}, "sum to 1"),
        ({"fractions": {"train": 0.5, "holdout": 0.5}}, "train, val, audit and test"),
    ],
)
def test_a_wrong_setting_is_named_and_leaves_nothing_behind(tmp_path: Path, settings: dict, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        planted.digits(tmp_path / "world", **settings)
    assert not (tmp_path / "world").exists()


def test_what_is_not_there_cannot_be_read_or_redrawn(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no finished world"):
        planted.redrawn(tmp_path)
    planted.digits(tmp_path / "world", **SMALL)
    with pytest.raises(DataError, match="no manifest 'external'; it has manifest"):
        planted.read(tmp_path / "world", "external")
    with pytest.raises(SettingError, match="draw=0"):
        planted.redrawn(tmp_path / "world", draw=0)


# ---- fundus ----------------------------------------------------------------------------------------------------------------


def test_an_eye_has_lesions_if_and_only_if_its_label_says_so(eyes: Cohort) -> None:
    np.testing.assert_array_equal(masks(eyes, "mask").any(axis=(1, 2)), eyes.label == 1)
    assert [len(b) for b in eyes.box] == eyes.label.tolist()


def test_the_field_of_view_is_round_on_black(eyes: Cohort) -> None:
    seen = stack(eyes, "image").max(axis=-1) > 20
    assert not seen[:, [0, 0, -1, -1], [0, -1, 0, -1]].any()
    assert seen[:, 32, 32].all()
    area = seen.mean(axis=(1, 2))
    np.testing.assert_allclose(area, np.pi / 4 * 0.92**2, atol=0.05)


def test_lesions_can_be_seen_and_lie_clear_of_the_rim(eyes: Cohort) -> None:
    ill = eyes.select(eyes.label == 1)
    inside, rim = masks(ill, "mask"), masks(ill, "cue_mask")
    assert not (inside & rim).any()
    grey = stack(ill, "image").mean(axis=-1)
    for image, mask, edge in zip(grey, inside, rim, strict=True):
        around = (image > 15) & ~mask & ~edge
        assert np.abs(image[mask] - image[around].mean()).mean() > 1.2 * np.abs(image[around] - image[around].mean()).mean()


def test_the_cue_agrees_inside_and_no_longer_outside(eyes: Cohort) -> None:
    away = planted.read(eyes.root, "external")
    assert agreement(eyes.on("train")) == pytest.approx(0.95, abs=0.01)
    assert agreement(eyes.on("test")) == pytest.approx(0.5, abs=0.03)
    assert agreement(away) == pytest.approx(0.1, abs=0.02)
    assert set(eyes.site) == {"internal"} and set(away.site) == {"external"}
    assert not set(eyes.id) & set(away.id) and not set(eyes.digests) & set(away.digests)


@pytest.mark.parametrize("cue", ["rim", "notch", "gradient", "cast", "blur", "age", "none"])
def test_an_eyes_twin_differs_only_in_the_cue(tmp_path: Path, cue: str) -> None:
    world = planted.fundus(tmp_path, cue=cue, n=40, n_external=0)
    changed = (stack(world, "image") != stack(world, "twin")).any(axis=-1)
    assert not changed[~masks(world, "cue_mask")].any()
    share = changed.any(axis=(1, 2)).mean()
    assert share == (cue != "none") if cue != "age" else share > 0.8  # those of about 60 are their own twins
    assert world.attribute().name == ("age" if cue == "age" else "device")


def test_age_is_in_years_and_goes_with_the_label(tmp_path: Path) -> None:
    world = planted.fundus(tmp_path, cue="age", agreement=0.85, n=200, n_external=0)
    train = world.on("train")
    age = train.attribute()
    assert age.kind == "continuous" and age.values.min() > 25 and age.values.max() < 95
    assert ((age.values > 60) == (train.label == 1)).mean() == pytest.approx(0.85, abs=0.02)
    np.testing.assert_allclose(world.twins().attribute().values, 120 - world.attribute().values, atol=0.011)
    blue = stack(train, "image")[:, 24:40, 24:40, 2].mean(axis=(1, 2))
    assert np.corrcoef(blue, age.values)[0, 1] < -0.5


def test_eyes_are_paired_and_redrawn_like_digits(tmp_path: Path) -> None:
    first = planted.fundus(tmp_path / "a", n=60, n_external=20)
    second = planted.fundus(tmp_path / "b", n=60, n_external=20, cue="notch", agreement=0.7)
    free = ~(masks(first, "cue_mask") | masks(second, "cue_mask"))
    np.testing.assert_array_equal(stack(first, "image")[free], stack(second, "image")[free])
    again = planted.redrawn(tmp_path / "a")
    assert again.on("test").fingerprint == first.on("test").fingerprint
    assert agreement(again.on("train")) == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cue": "tag"}, "no cue named"),
        ({"n": 3}, "at least 20"),
        ({"prevalence": 0.0}, "class empty"),
        ({"strength": 2}, "strength=2"),
    ],
)
def test_a_wrong_fundus_setting_is_named(tmp_path: Path, settings: dict, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        planted.fundus(tmp_path / "world", **settings)


# ---- blobs -----------------------------------------------------------------------------------------------------------------


def test_each_blob_lies_in_its_region_of_the_atlas(tmp_path: Path) -> None:
    world = planted.blobs(tmp_path, n=60)
    atlas = np.load(tmp_path / "atlas.npy")
    names = pd.read_csv(tmp_path / "names.csv").set_index("name")["value"]
    assert atlas.shape == (24, 24, 24) and set(np.unique(atlas)) == set(names) and names["background"] == 0
    for column, region in (("mask", "left central superior"), ("cue_mask", "right anterior midway")):
        inside = masks(world, column).sum(axis=0)
        assert np.bincount(atlas[inside > 0], inside[inside > 0]).argmax() == names[region]
    np.testing.assert_array_equal(masks(world, "mask").any(axis=(1, 2, 3)), world.label == 1)
    assert agreement(world.on("train")) == pytest.approx(0.95, abs=0.03)


def test_a_volumes_twin_has_the_other_cue_and_nothing_else(tmp_path: Path) -> None:
    world = planted.blobs(tmp_path, n=40, shape=(16, 18, 20))
    volume, twin, cue = (
        stack(world, "image")[..., 0].astype(int),
        stack(world, "twin")[..., 0].astype(int),
        masks(world, "cue_mask"),
    )
    assert volume.shape == (40, 16, 18, 20)
    assert not (volume != twin)[~cue].any()
    brighter = ((volume - twin) * cue).sum(axis=(1, 2, 3)) > 0
    np.testing.assert_array_equal(brighter, world.attribute().values == 1)


def test_nifti_volumes_hold_the_same_values_as_the_stacks(tmp_path: Path) -> None:
    nibabel = pytest.importorskip("nibabel")
    plain = planted.blobs(tmp_path / "a", n=20, shape=(12, 14, 16))
    files = planted.blobs(tmp_path / "b", n=20, shape=(12, 14, 16), nifti=True)
    for column in ("image", "twin"):
        np.testing.assert_array_equal(stack(plain, column), stack(files, column))
    np.testing.assert_array_equal(masks(plain, "cue_mask"), masks(files, "cue_mask"))
    atlas = nibabel.load(tmp_path / "b" / "atlas.nii.gz")
    np.testing.assert_array_equal(np.asarray(atlas.dataobj), np.load(tmp_path / "b" / "atlas.npy"))
    np.testing.assert_array_equal(atlas.affine, nibabel.load(tmp_path / "b" / files.image[0]).affine)
    assert nibabel.aff2axcodes(atlas.affine) == ("R", "A", "S")
    assert len(planted.redrawn(tmp_path / "b")) == 20
    planted.blobs(tmp_path / "c", n=20, shape=(12, 14, 16), nifti=True)
    planted.redrawn(tmp_path / "c")
    assert hashes(tmp_path / "b") == hashes(tmp_path / "c")


def test_a_wrong_blob_setting_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="did you mean 'left central superior'"):
        planted.blobs(tmp_path, task_region="left central superor")
    with pytest.raises(SettingError, match="12 voxels"):
        planted.blobs(tmp_path, shape=(8, 8))


def test_the_settings_are_kept_with_the_world(world: Cohort) -> None:
    kept = json.loads((world.root / "world.json").read_text())
    assert kept["world"] == "digits" and kept["agreement"] == 0.95 and kept["seed"] == 0
