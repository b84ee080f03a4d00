"""Nuisance operators: identity at 0, one image one result, range, and what they leave alone; and the field of view they use."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from rightreasons import perturbations  # noqa: E402
from rightreasons.audits import Need  # noqa: E402
from rightreasons.data import images, planted  # noqa: E402
from rightreasons.errors import SettingError  # noqa: E402
from rightreasons.extraction import extract  # noqa: E402
from rightreasons.models.classifier import Classifier  # noqa: E402
from rightreasons.perturbations import _fields, content, nuisance, tokens  # noqa: E402

NUISANCE = dict(perturbations._functions("nuisance"))
CONTENT = dict(perturbations._functions("content"))
ALL = {**NUISANCE, **CONTENT}


@pytest.fixture(scope="module")
def pictures() -> torch.Tensor:
    """Round fundus, collimated X-ray, full frame, all black, all white and noise: (6, 3, 44, 36)."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    h, w = 44, 36
    texture = 0.5 + 0.2 * rng.standard_normal((6, 3, h, w))
    row, column = np.mgrid[:h, :w]
    texture[0] *= (row - 21.5) ** 2 + (column - 17.5) ** 2 < 16**2
    texture[1] *= (row >= 5) & (row < 38) & (column >= 4) & (column < 33)
    texture[2] = np.clip(texture[2], 0.3, 0.9)
    texture[3], texture[4] = 0, 1
    texture[5] = rng.random((3, h, w))
    return torch.from_numpy(np.clip(texture, 0, 1)).float()


def seeded(name: str, n: int, draw: int = 0) -> np.ndarray:
    return perturbations.seeds([f"r{k}" for k in range(n)], name, draw)


def test_the_operators_are_those_that_the_method_asks_for():
    assert set(NUISANCE) == {
        "border", "unborder", "resize", "pad", "periphery", "tags", "channels", "cast", "illumination", "flatfield",
        "histogram", "jpeg", "blur", "grain",
    }  # fmt: skip
    assert set(CONTENT) == {"contrast", "elastic", "patches"}


@pytest.mark.parametrize("name", ALL)
def test_severity_0_is_the_identity_to_the_bit(name, pictures):
    assert torch.equal(ALL[name](pictures, seeded(name, 6), severity=0), pictures)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("severity", [1e-3, 0.3, 1.0])
def test_shape_type_and_range_are_kept_and_the_input_too(name, severity, pictures):
    before = pictures.clone()
    changed = ALL[name](pictures, seeded(name, 6), severity=severity)
    assert changed.shape == pictures.shape and changed.dtype == pictures.dtype
    assert bool(torch.isfinite(changed).all()) and changed.min() >= 0 and changed.max() <= 1
    assert torch.equal(pictures, before)


@pytest.mark.parametrize("name", ALL)
def test_an_image_comes_out_alike_in_any_batch(name, pictures):
    each = seeded(name, 6)
    whole = ALL[name](pictures, each, severity=0.6)
    alone = torch.cat([ALL[name](pictures[k : k + 1], each[k : k + 1], severity=0.6) for k in range(6)])
    assert torch.equal(whole, alone)
    assert torch.equal(whole, ALL[name](pictures, each, severity=0.6))


@pytest.mark.parametrize("name", ALL)
def test_more_severity_changes_more(name, pictures):
    each = seeded(name, 6)
    change = [float((ALL[name](pictures, each, severity=s) - pictures).square().mean().sqrt()) for s in (0.05, 0.3, 0.6, 1.0)]
    assert change == sorted(change)
    assert (
        name in ("periphery", "flatfield") or change[-1] > 0.01
    )  # black is around these pictures as it is, and even light in them


@pytest.mark.parametrize("name", sorted(set(ALL) - {"unborder", "periphery", "flatfield", "histogram", "blur", "jpeg"}))
def test_another_draw_is_another_change(name, pictures):
    first, second = (ALL[name](pictures, seeded(name, 6, draw), severity=0.6) for draw in (0, 1))
    assert not torch.equal(first, second)


@pytest.mark.parametrize("name", ALL)
def test_grey_images_and_double_precision_are_taken(name, pictures):
    grey = pictures[:, :1].double()
    changed = ALL[name](grey, seeded(name, 6), severity=0.5)
    assert changed.shape == grey.shape and changed.dtype == torch.float64


@pytest.mark.parametrize("name", ALL)
def test_what_cannot_be_changed_is_refused_in_words(name, pictures):
    with pytest.raises(SettingError, match=r"severity=1\.5"):
        ALL[name](pictures, seeded(name, 6), severity=1.5)
    with pytest.raises(SettingError, match="volumes"):
        ALL[name](torch.zeros(1, 1, 4, 4, 4), seeded(name, 1), severity=0.5)
    with pytest.raises(SettingError, match="uint8"):
        ALL[name](torch.zeros(1, 3, 8, 8, dtype=torch.uint8), seeded(name, 1), severity=0.5)


# ---- what stays as it is -------------------------------------------------------------------------------------------------


def test_the_border_leaves_all_farther_in_alone(pictures):
    seen = _fields.aperture(pictures[:3])
    changed = nuisance.border(pictures[:3], seeded("border", 3), severity=0.5)
    inside = (seen.distance <= 0.8)[:, None].expand_as(changed)
    assert torch.equal(changed[inside], pictures[:3][inside])
    assert float(changed[~inside].max()) <= 0.1


@pytest.mark.parametrize("name", ["unborder", "periphery"])
def test_what_is_done_to_the_surround_leaves_the_field_alone(name, pictures):
    seen = _fields.aperture(pictures[:3])
    changed = NUISANCE[name](pictures[:3], seeded(name, 3), severity=1.0)
    inside = (seen.field & (seen.distance <= 1))[:, None].expand_as(changed)
    assert torch.equal(changed[inside], pictures[:3][inside])
    assert torch.equal(changed[2], pictures[2])  # nothing surrounds a full frame


def test_the_periphery_takes_a_tag_that_lies_beside_the_field(pictures):
    tagged = pictures[:1].clone()
    tagged[:, :, 1:5, 1:6] = 0.9
    changed = nuisance.periphery(tagged, seeded("periphery", 1), severity=1.0)
    assert float(changed[:, :, 1:5, 1:6].max()) == 0
    assert torch.equal(changed[:, :, 15:30, 10:25], tagged[:, :, 15:30, 10:25])


def test_a_tag_lies_in_one_corner_and_changes_nothing_else(pictures):
    changed = nuisance.tags(pictures[2:3], seeded("tags", 1), severity=1.0) != pictures[2:3]
    where = changed[0].any(0).nonzero()
    spread = where.amax(0) - where.amin(0)
    assert len(where) > 5 and spread[0] <= 0.16 * 44 and spread[1] <= 0.36 * 36


def test_gains_leave_black_black_and_a_cast_leaves_the_mean_gain_at_one():
    white = torch.full((4, 3, 8, 8), 0.5)
    assert torch.allclose(nuisance.cast(white, seeded("cast", 4), severity=1.0).mean((1, 2, 3)), torch.tensor(0.5), atol=1e-6)
    for operator in (nuisance.cast, nuisance.channels, nuisance.illumination):
        black = torch.zeros(2, 3, 8, 8)
        assert torch.equal(operator(black, seeded("x", 2), severity=1.0), black)


@pytest.fixture(scope="module")
def eyes(tmp_path_factory) -> tuple[torch.Tensor, torch.Tensor]:
    """Planted eyes with lesions (n, 3, 48, 48) in [0, 1], and the lesions' masks (n, 48, 48)."""
    folder = tmp_path_factory.mktemp("eyes")
    cohort = planted.fundus(folder, n=40, n_external=0, pixels=48, cue="none", seed=0)
    ill = cohort.select(cohort.label == 1)
    geometry = images.Geometry((48, 48))
    pixels = np.stack([images.load(r, geometry, root=ill.root) for r in ill.image])
    masks = np.stack([images.load_mask(r, geometry, root=ill.root) for r in ill.mask])
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255, torch.from_numpy(masks)


@pytest.mark.parametrize(("name", "severity"), [("border", 0.6), ("unborder", 1.0), ("periphery", 1.0), ("tags", 1.0)])
def test_what_is_done_around_the_object_leaves_every_lesion_to_the_bit(name, severity, eyes):
    pixels, lesions = eyes
    changed = NUISANCE[name](pixels, seeded(name, len(pixels)), severity=severity)
    inside = lesions[:, None].expand_as(pixels)
    assert torch.equal(changed[inside], pixels[inside])
    assert name == "periphery" or not torch.equal(changed, pixels)  # the surround of these eyes is black as it is


@pytest.mark.parametrize("name", ["channels", "cast", "illumination", "grain"])
def test_gains_and_noise_do_to_a_lesion_what_they_do_to_plain_grey(name, eyes):
    """The documented effect and no other: times a gain, or plus noise, that do not depend on what is seen."""
    pixels, lesions = eyes
    each = seeded(name, len(pixels))
    on_grey = NUISANCE[name](torch.full_like(pixels, 0.5), each, severity=0.5)
    expected = pixels + (on_grey - 0.5) if name == "grain" else pixels * (on_grey / 0.5)
    inside = lesions[:, None].expand_as(pixels)
    changed = NUISANCE[name](pixels, each, severity=0.5)
    assert torch.allclose(changed[inside], expected.clamp(0, 1)[inside], atol=1e-6)
    assert not torch.equal(changed[inside], pixels[inside])


def test_a_lesion_moves_with_its_image_when_that_is_padded(eyes):
    pixels, lesions = eyes
    each = seeded("pad", len(pixels))
    changed = nuisance.pad(pixels, each, severity=0.5)
    moved = nuisance.pad(lesions[:, None].float(), each, severity=0.5) - nuisance.pad(
        torch.zeros_like(pixels[:, :1]), each, severity=0.5
    )
    before, after = (_weighted(p, w) for p, w in ((pixels, lesions[:, None].float()), (changed, moved)))
    assert float((before - after).abs().max()) < 0.06  # small spots, read between pixels


def test_a_lesion_grows_or_shrinks_with_its_field_and_stays_where_it_was_in_it(eyes):
    """Twin: every pixel of the lesions read from its place before, image by image."""
    from scipy.ndimage import map_coordinates

    pixels, lesions = eyes
    each = seeded("resize", len(pixels))
    changed, seen = nuisance.resize(pixels, each, severity=0.5), _fields.aperture(pixels)
    grown = 0
    for one, before, centre, lesion in zip(changed, pixels, seen.centre.tolist(), lesions):
        row, column = np.nonzero(lesion.numpy())
        errors = []
        for factor in (1.15, 1 / 1.15):
            source = [centre[k] + (at - centre[k]) / factor for k, at in enumerate((row, column))]
            twin = np.stack([map_coordinates(c, source, order=1, mode="nearest") for c in before.numpy()])
            errors.append(float(np.abs(one.numpy()[:, row, column] - twin).max()))
        assert min(errors) < 1e-4
        grown += int(errors[0] < errors[1])
    assert 0 < grown < len(pixels)  # both are drawn


def test_blur_is_a_gaussian_of_its_documented_width_everywhere(eyes):
    from scipy.ndimage import gaussian_filter

    pixels, lesions = eyes
    changed = nuisance.blur(pixels, seeded("blur", len(pixels)), severity=0.8)
    twin = gaussian_filter(pixels.double().numpy(), (0, 0, 0.03 * 0.8 * 48, 0.03 * 0.8 * 48), mode="nearest", truncate=4.0)
    inside = lesions[:, None].expand_as(pixels).numpy()
    assert np.abs(changed.numpy() - twin)[inside].max() < 2e-3


def test_a_lesion_keeps_its_rank_under_histogram_matching_and_takes_the_gain_of_its_neighbourhood_under_evening(eyes):
    pixels, lesions = eyes
    matched = nuisance.histogram(pixels, seeded("histogram", len(pixels)), severity=0.5)
    even = nuisance.flatfield(pixels, seeded("flatfield", len(pixels)), severity=1.0)
    for before, after, light, lesion, field in zip(pixels, matched, even, lesions, _fields.field_of_view(pixels)):
        for channel in range(3):
            order = before[channel][field].argsort()
            assert float(after[channel][field][order].diff().min()) >= -1e-6
        gain = (light / before.clamp(min=1e-6))[:, lesion & (before > 0.02).all(0) & (light < 1).all(0)]
        assert float((gain - gain[0]).abs().max()) < 1e-4 and float(gain.min()) >= 0.5 and float(gain.max()) <= 2


def _weighted(pixels: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return (pixels * weight).sum((2, 3)) / weight.sum((2, 3))


def test_evening_the_light_takes_a_gradient_and_leaves_colours(eyes):
    pixels, _ = eyes
    slope = torch.linspace(0.75, 1.25, 48)
    uneven = (pixels * 0.8 * slope).clamp(0, 1)
    seen = _fields.aperture(uneven)
    even = nuisance.flatfield(uneven, seeded("flatfield", len(pixels)), severity=1.0)
    middle = (seen.distance < 0.8)[:, None]
    tilt = [
        ((p * middle)[..., 24:].sum((1, 2, 3)) / (p * middle)[..., :24].sum((1, 2, 3)) - 1).abs().mean() for p in (uneven, even)
    ]
    assert float(tilt[1]) < 0.4 * float(tilt[0])
    inside = middle & (even < 1).all(1, keepdim=True)
    assert float(((even[:, :1] * uneven[:, 1:] - even[:, 1:] * uneven[:, :1]).abs() * inside).max()) < 1e-6
    assert torch.equal(even[~seen.field[:, None].expand_as(even)], uneven[~seen.field[:, None].expand_as(even)])


def test_histogram_matching_gives_the_reference_and_keeps_the_order(pictures):
    matched = nuisance.histogram(pictures[2:3], seeded("histogram", 1), severity=1.0, mean=0.4, sd=0.1)
    assert torch.allclose(matched.mean((0, 2, 3)), torch.tensor(0.4), atol=0.01)
    assert torch.allclose(matched.std((0, 2, 3)), torch.tensor(0.1), atol=0.01)
    order = pictures[2, 0].flatten().argsort()
    assert float(matched[0, 0].flatten()[order].diff().min()) >= -1e-6


def test_jpeg_is_what_an_encoder_does(pictures):
    """Against Pillow at the same quality and full chroma: the same picture, but for coefficients that lie on a rounding edge."""
    from io import BytesIO

    from PIL import Image

    source = (pictures[2] * 255).round().byte()
    stream = BytesIO()
    Image.fromarray(source.permute(1, 2, 0).numpy()).save(stream, "JPEG", quality=55, subsampling=0)
    real = torch.from_numpy(np.asarray(Image.open(stream)).copy()).permute(2, 0, 1).float()
    ours = nuisance.jpeg(source[None].float() / 255, seeded("jpeg", 1), severity=0.5)[0] * 255
    other = nuisance.jpeg(source[None].float() / 255, seeded("jpeg", 1), severity=0.55)[0] * 255
    error, effect, neighbour = (float((a - real).abs().mean()) for a in (ours, source, other))
    assert (
        float(((ours - real).abs() < 1.5).float().mean()) > 0.8
    )  # bytes of the decoder round by up to 0.5 in each of three steps
    assert error < 0.1 * effect and error < 0.25 * neighbour, (error, effect, neighbour)


# ---- numbers and the field of view ---------------------------------------------------------------------------------------


def test_numbers_of_a_seed_are_uniform_and_independent():
    each = perturbations.seeds([str(k) for k in range(64)], "x")
    u = _fields.uniform(each, 4000, 1).double()
    assert abs(float(u.mean()) - 0.5) < 0.003 and abs(float(u.var()) - 1 / 12) < 0.002
    assert float(np.abs(np.corrcoef(u.numpy()) - np.eye(64)).max()) < 0.08
    assert abs(float((u[:, 1:] * u[:, :-1]).mean()) - 0.25) < 0.003
    z = _fields.normal(each, 4000, 1).double()
    assert abs(float(z.mean())) < 0.01 and abs(float(z.std()) - 1) < 0.01 and abs(float((z**4).mean()) - 3) < 0.1
    assert not torch.equal(_fields.uniform(each, 10, 1), _fields.uniform(each, 10, 2))


def test_the_field_of_view_of_a_batch_is_that_of_its_images(pictures):
    """Twin: scipy's connected pieces, image by image; mazes of noise need many rounds."""
    rng = np.random.default_rng(1)
    maze = torch.from_numpy((rng.random((20, 3, 30, 25)) < 0.3) * 0.9).float()
    for batch in (pictures, maze):
        twin = np.stack([tokens.field_of_view(p) for p in batch.numpy()])
        assert np.array_equal(_fields.field_of_view(batch).numpy(), twin)


def test_the_outline_is_round_for_a_fundus_and_straight_for_an_x_ray(pictures):
    seen = _fields.aperture(pictures[:3])
    assert torch.allclose(seen.half[0], torch.tensor([16.0, 16.0]), atol=0.8)
    assert seen.half[1].tolist() == [16.5, 14.5] and seen.half[2].tolist() == [22, 18]
    assert seen.is_full.tolist() == [False, False, True]
    assert float(seen.distance[0][seen.field[0]].max()) < 1.06
    assert float(seen.distance[1][seen.field[1]].max()) <= 1


# ---- as recipes ----------------------------------------------------------------------------------------------------------


def test_operators_are_recipes_and_their_change_is_an_array(tmp_path):
    cohort = planted.digits(tmp_path, n=40, pixels=16, seed=0).on("test")
    torch.manual_seed(0)
    model = Classifier.load(
        "rightreasons.models.small:small_cnn", num_classes=len(cohort.classes), classes=cohort.classes, size=16
    )
    names = [f"{q}@border(severity={s})" for q in ("features", "logits", "change") for s in (0.0, 0.4)]
    rows = {"test": cohort}
    found = [
        extract(model, rows, ["features", "logits", *names], batch=batch, chunk=32, threads=1).on("test") for batch in (32, 8)
    ]
    for view in found:
        assert np.array_equal(view["features@border(severity=0.0)"], view["features"])
        assert view["change@border(severity=0.0)"].tolist() == [0.0] * len(cohort)
        assert (view["change@border(severity=0.4)"] > 0).all()
        assert not np.array_equal(view["logits@border(severity=0.4)"], view["logits"])
    assert np.array_equal(found[0]["change@border(severity=0.4)"], found[1]["change@border(severity=0.4)"])
    assert Need("test", "test", names[0])


def test_every_operator_says_its_reference_severity():
    for name, operator in ALL.items():
        default = inspect.signature(operator).parameters["severity"].default
        assert f"s_ref {default:g}" in inspect.getdoc(operator), name
    assert content.INNER == 0.8
