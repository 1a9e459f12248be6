"""Views of samples: each step against an independent formula, and properties of all views."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from coterie.core.errors import DataError
from coterie.data.augmentation import Augmentation, FeatureAugmentation, ImageAugmentation, NoAugmentation

SHAPES = ((1, 8, 8), (1, 28, 28), (3, 32, 32), (4, 16, 16), (3, 12, 20), (3, 64, 64))
# The whole image (0), square (1/2), and no step that has a probability (their numbers are above it).
NOTHING = {"area": 0.0, "ratio": 0.5, "top": 0.3, "left": 0.7, "flip": 0.99, "jitter": 0.99, "brightness": 0.1}
NOTHING |= {"contrast": 0.2, "saturation": 0.3, "hue": 0.4, "grey": 0.99, "blur": 0.99, "sigma": 0.5}
PLACES = list(NOTHING)


def numbers(count: int, **chosen: float) -> Tensor:
    """Random numbers that change nothing, except those given by name."""
    assert chosen.keys() <= NOTHING.keys()
    return torch.tensor([list((NOTHING | chosen).values())]).repeat(count, 1)


def jittered(**chosen: float) -> dict[str, float]:
    """A jitter in which only the given numbers have an effect: 1/2 is no change."""
    return {"jitter": 0.0, "brightness": 0.5, "contrast": 0.5, "saturation": 0.5, "hue": 0.5, **chosen}


def augmentation(channels: int, scaled: bool = True) -> ImageAugmentation:
    """With a mean and a standard deviation of its own for each channel."""
    some = (0.5, 0.4, 0.45, 0.3)[:channels], (0.25, 0.2, 0.3, 0.5)[:channels]
    return ImageAugmentation(*some) if scaled else ImageAugmentation((0.0,) * channels, (1.0,) * channels)


def images(count: int, *shape: int, low: float = 0.0, high: float = 1.0, seed: int = 0) -> Tensor:
    """From 0 to 1: raw."""
    generator = torch.Generator().manual_seed(seed)
    return low + (high - low) * torch.rand(count, *shape, generator=generator)


def uniform(count: int, how: Augmentation, seed: int = 1) -> Tensor:
    return torch.rand(count, how.numbers, generator=torch.Generator().manual_seed(seed))


def scaled(raw: Tensor, how: ImageAugmentation) -> Tensor:
    return (raw - torch.tensor(how.mean)[:, None, None]) / torch.tensor(how.std)[:, None, None]


def raw(x: Tensor, how: ImageAugmentation) -> Tensor:
    return x * torch.tensor(how.std)[:, None, None] + torch.tensor(how.mean)[:, None, None]


def view(x: Tensor, how: ImageAugmentation | None = None, **chosen: float) -> Tensor:
    """Of raw images, as a raw image; on the way it is scaled."""
    how = how or augmentation(x.shape[1])
    return raw(how(scaled(x, how), numbers(len(x), **chosen)), how)


def close(first: Tensor, second: Tensor, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(first, second, rtol=0, atol=tolerance)


def grey(x: Tensor) -> Tensor:
    """(N, 1, H, W)"""
    return (0.299 * x[:, 0] + 0.587 * x[:, 1] + 0.114 * x[:, 2])[:, None]


# Crop and flip


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape[1] == shape[2]])
def test_numbers_that_ask_for_nothing_return_the_image(shape: tuple[int, int, int]) -> None:
    close(view(images(5, *shape)), images(5, *shape))


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape[1] == shape[2]])
def test_a_flip_is_a_mirror_image(shape: tuple[int, int, int]) -> None:
    close(view(images(5, *shape), flip=0.49), images(5, *shape).flip(3))


def test_a_quarter_of_a_gradient_by_hand() -> None:
    """Scale 1/4 of 8x8 is a box of 4x4; at the number 1/2 it begins at (8 - 4) / 2 = 2, both ways.

    Pixel i of the view is centred at 2 + (i + 1/2) / 2 of the image, where pixel j's centre is j + 1/2. A picture whose
    pixel j is j / 10 is linear, so the view has (2 + (i + 1/2) / 2 - 1/2) / 10 = 0.175 + 0.05 i.
    """
    gradient = (torch.arange(8) / 10).expand(1, 1, 8, 8)
    how = replace(augmentation(1), scale=(0.25, 0.25))
    expected = (0.175 + 0.05 * torch.arange(8)).expand(1, 1, 8, 8)
    close(view(gradient, how, top=0.5, left=0.5), expected)
    close(view(gradient.mT, how, top=0.5, left=0.5), expected.mT)
    close(view(gradient, how, top=0.5, left=0.5, flip=0.0), expected.flip(3))
    # At the left end the box begins at 0, where the first centre, 1/4, is left of all pixels: it takes the border.
    expected = (0.05 * torch.arange(8) - 0.025).clamp(min=0).expand(1, 1, 8, 8)
    close(view(gradient, how, left=0.0), expected)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("flip", [False, True])
def test_a_crop_is_what_grid_sample_makes_of_its_box(shape: tuple[int, int, int], flip: bool) -> None:
    channels, height, width = shape
    generator = np.random.default_rng(3)
    x, u = images(20, *shape), numbers(20, flip=0.0 if flip else 0.9)
    u[:, :4] = torch.from_numpy(generator.random((20, 4)))
    boxes = []
    for area, ratio, top, left in u[:, :4].tolist():  # as torchvision describes it, one image after another
        kept = (1.0 - 0.8 * area) * height * width
        shape_of_box = math.exp(math.log(3 / 4) + ratio * (math.log(4 / 3) - math.log(3 / 4)))
        h, w = min(height, math.sqrt(kept / shape_of_box)), min(width, math.sqrt(kept * shape_of_box))
        y, x_left = top * (height - h), left * (width - w)
        # grid_sample's coordinates go from -1 to 1 over the image
        across = [w / width * (-1 if flip else 1), 0, (2 * x_left + w) / width - 1]
        boxes.append([across, [0, h / height, (2 * y + h) / height - 1]])
    grid = F.affine_grid(torch.tensor(boxes), [20, *shape], align_corners=False)
    expected = F.grid_sample(x, grid, padding_mode="border", align_corners=False)
    how = augmentation(channels)
    close(raw(how(scaled(x, how), u), how), expected, 5e-5)


# Colours


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_brightness_multiplies(channels: int) -> None:
    # The factor goes from 0.6 to 1.4: at the number 3/4 it is 1.2.
    x = images(5, channels, 8, 8, high=0.8)
    close(view(x, **jittered(brightness=0.75)), 1.2 * x)


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_contrast_is_about_the_mean_grey_of_each_image(channels: int) -> None:
    x = images(5, channels, 8, 8, low=0.3, high=0.7) * torch.linspace(0.8, 1, 5)[:, None, None, None]
    shade = grey(x) if channels == 3 else x
    pivot = torch.stack([image.mean() for image in shade])[:, None, None, None]
    close(view(x, **jittered(contrast=0.75)), 1.2 * x - 0.2 * pivot)
    close(view(x, **jittered(contrast=0.0)), 0.6 * x + 0.4 * pivot)


def test_brightness_comes_before_contrast() -> None:
    x = images(5, 3, 8, 8, low=0.3, high=0.6)
    pivot = 1.2 * grey(x).mean((1, 2, 3), keepdim=True)
    close(view(x, **jittered(brightness=0.75, contrast=0.25)), 0.8 * 1.2 * x + 0.2 * pivot)


def test_saturation_is_away_from_each_pixels_grey() -> None:
    x = images(5, 3, 8, 8, low=0.3, high=0.7)
    close(view(x, **jittered(saturation=0.75)), 1.2 * x - 0.2 * grey(x))
    close(view(x, **jittered(saturation=0.0)), 0.6 * x + 0.4 * grey(x))


def test_greyscale() -> None:
    x = images(5, 3, 8, 8)
    close(view(x, grey=0.19), grey(x).expand(-1, 3, -1, -1))
    close(view(x, grey=0.21), x)


def test_hue_turns_the_colours_and_leaves_grey() -> None:
    x = images(5, 3, 8, 8)
    third = replace(augmentation(3), hue=1 / 3)
    # A third of a circle turns red to green, green to blue, and blue to red. The number 1 is its largest value.
    close(view(x, third, **jittered(hue=1.0)), x[:, [2, 0, 1]])
    close(view(x, third, **jittered(hue=0.0)), x[:, [1, 2, 0]])
    shades = grey(x).expand(-1, 3, -1, -1)
    close(view(shades, **jittered(hue=0.9)), shades)
    # A small turn keeps the mean of a colour, and its distance from grey.
    muted = images(5, 3, 8, 8, low=0.4, high=0.6)
    turned = view(muted, **jittered(hue=0.9))
    close(turned.mean(1), muted.mean(1))
    close(turned.std(1), muted.std(1))
    assert (turned - muted).abs().max() > 0.03


@pytest.mark.parametrize("channels", [1, 2, 4])
def test_without_three_channels_there_are_no_colours(channels: int) -> None:
    x = images(5, channels, 8, 8)
    close(view(x, grey=0.0, **jittered(saturation=0.0, hue=0.0)), x)


def test_colours_end_at_black_and_white() -> None:
    x = images(5, 3, 8, 8)
    close(view(x, **jittered(brightness=0.999999)), (1.4 * x).clamp(max=1))
    assert (1.4 * x).max() > 1.1


# Blur


def kernel(sigma: float, radius: int) -> Tensor:
    weights = torch.tensor([math.exp(-(d**2) / (2 * sigma**2)) for d in range(-radius, radius + 1)])
    return weights / weights.sum()


@pytest.mark.parametrize(("shape", "radius"), [((1, 8, 8), 1), ((3, 32, 32), 1), ((3, 12, 20), 1), ((3, 64, 64), 3)])
@pytest.mark.parametrize("number", [0.0, 0.3, 0.95])
def test_blur_is_a_convolution(shape: tuple[int, int, int], radius: int, number: float) -> None:
    x = images(4, *shape)
    weights = kernel(0.1 + 1.9 * number, radius)
    square = torch.outer(weights, weights).expand(shape[0], 1, -1, -1)
    expected = F.conv2d(F.pad(x, (radius,) * 4, mode="reflect"), square, groups=shape[0])
    whole = replace(augmentation(shape[0]), scale=(1.0, 1.0), ratio=(shape[2] / shape[1],) * 2)
    close(view(x, whole, blur=0.49, sigma=number), expected)
    close(view(x, whole, blur=0.51, sigma=number), x)


@pytest.mark.parametrize("shape", [*SHAPES, (1, 1, 9)])
def test_blur_and_crop_leave_a_constant_image(shape: tuple[int, int, int]) -> None:
    x = torch.full((3, *shape), 0.6)
    close(view(x, area=0.8, ratio=0.1, blur=0.0, flip=0.0), x)


def test_steps_together_are_the_steps_one_after_another() -> None:
    """Crop and flip, blur, then colours: they share matrices, and must still give this."""
    x, box = images(6, 3, 32, 32, low=0.3, high=0.6), {"area": 0.5, "ratio": 0.2, "top": 0.3, "left": 0.6, "flip": 0.1}
    jitter, blur = jittered(brightness=0.8, contrast=0.1, saturation=0.9, hue=0.7), {"blur": 0.1, "sigma": 0.4}
    close(view(x, **box, **blur, **jitter), view(view(view(x, **box), **blur), **jitter))


# What all views promise


@pytest.mark.parametrize("step", ["flip", "jitter", "grey", "blur"])
def test_each_step_is_taken_with_its_probability(step: str) -> None:
    count, p = 4000, {"flip": 0.5, "jitter": 0.8, "grey": 0.2, "blur": 0.5}[step]
    x, u, how = images(1, 3, 8, 8).expand(count, -1, -1, -1), numbers(count), augmentation(3, scaled=False)
    u[:, PLACES.index(step)] = uniform(count, how)[:, 0]
    share = ((how(x, u) - x).abs().amax((1, 2, 3)) > 1e-3).double().mean().item()
    assert abs(share - p) < 4 * math.sqrt(p * (1 - p) / count)


def test_crops_keep_from_a_fifth_to_all_of_the_area() -> None:
    """Two channels that grow along one side each: their spread tells how long the box was on that side."""
    slope = torch.linspace(0, 1, 32).expand(32, 32)
    how, u = augmentation(2, scaled=False), numbers(2000)
    u[:, :4] = uniform(2000, how)[:, :4]
    seen = how(torch.stack([slope, slope.mT]).expand(2000, -1, -1, -1), u)
    # A view takes 31 steps of w / 32 pixels, over which the slope rises by 1/31 each: together w / 32. At the border
    # of the image it is up to 1/62 less.
    wide, tall = (seen[:, c].amax((1, 2)) - seen[:, c].amin((1, 2)) for c in (0, 1))
    area, ratio = wide * tall, wide / tall
    assert 0.18 < area.min() < 0.21
    assert area.max() > 0.95
    assert 0.72 < ratio.min() < 0.8
    assert 1.25 < ratio.max() < 1.38


@pytest.mark.parametrize("shape", SHAPES)
def test_views_have_the_shape_type_and_range_of_images(shape: tuple[int, int, int]) -> None:
    how = augmentation(shape[0])
    for kind in (torch.float32, torch.float64):
        x = scaled(images(50, *shape), how).to(kind)
        before = x.clone()
        seen = how(x, uniform(50, how))
        assert (seen.shape, seen.dtype) == (x.shape, kind)
        assert torch.equal(x, before)
        assert raw(seen, how).min() >= -1e-6
        assert raw(seen, how).max() <= 1 + 1e-6


@pytest.mark.parametrize("how", [augmentation(3), FeatureAugmentation(6)])
def test_everything_stays_on_the_device_of_the_samples(how: ImageAugmentation | FeatureAugmentation) -> None:
    # The device "meta" has no numbers, but refuses tensors of other devices as a GPU does.
    x = torch.empty(2, 6, device="meta") if isinstance(how, FeatureAugmentation) else images(2, 3, 8, 8).to("meta")
    seen = how(x, torch.empty(2, how.numbers, device="meta"))
    assert (seen.device.type, seen.shape) == ("meta", x.shape)


@pytest.mark.parametrize("how", [augmentation(1), augmentation(3), augmentation(4), FeatureAugmentation(6)])
def test_a_view_depends_on_its_own_sample_and_numbers_alone(how: ImageAugmentation | FeatureAugmentation) -> None:
    x = images(12, 6) if isinstance(how, FeatureAugmentation) else scaled(images(12, len(how.mean), 16, 16), how)
    u = uniform(12, how)
    state = torch.get_rng_state()
    seen = how(x, u)
    assert torch.equal(seen, how(x, u))
    assert torch.equal(state, torch.get_rng_state())
    for i in range(12):
        close(how(x[i : i + 1], u[i : i + 1]), seen[i : i + 1], 1e-6)
    close(how(x.flip(0), u.flip(0)).flip(0), seen, 1e-6)
    assert (how(x, uniform(12, how, seed=2)) - seen).abs().max() > 0.1
    # As one of several peers' batches in a vmap, too.
    peers = torch.func.vmap(how)(x.unflatten(0, (3, 4)), u.unflatten(0, (3, 4)))
    close(peers.flatten(0, 1), seen, 1e-6)


@given(
    seed=st.integers(0, 2**32),
    shape=st.tuples(st.integers(1, 5), st.integers(1, 45), st.integers(1, 45)),
    count=st.integers(0, 4),
    mean=st.floats(-2, 2),
    std=st.floats(0.01, 100),
    extreme=st.sampled_from([None, 0.0, 0.5, 1 - 2**-24]),
)
@settings(max_examples=60, deadline=None)
def test_whatever_comes_in_views_are_finite_and_in_range(
    seed: int, shape: tuple[int, int, int], count: int, mean: float, std: float, extreme: float | None
) -> None:
    how = ImageAugmentation((mean,) * shape[0], (std,) * shape[0])
    x = scaled(images(count, *shape, seed=seed), how)
    u = uniform(count, how, seed) if extreme is None else torch.full((count, how.numbers), extreme)
    seen = how(x, u)
    assert seen.shape == x.shape
    assert seen.isfinite().all()
    assert (seen >= (0 - mean) / std - 1e-5 / std).all()
    assert (seen <= (1 - mean) / std + 1e-5 / std).all()


# Features


def test_noise_has_its_standard_deviation_and_is_normal() -> None:
    how = FeatureAugmentation(10, noise=0.3, dropout=0.0)
    x = images(20_000, 10)
    noise = (how(x, uniform(20_000, how)) - x) / 0.3
    assert noise.mean().item() == pytest.approx(0, abs=0.01)  # the standard error is 1 / sqrt(200 000) = 0.0022
    assert noise.std().item() == pytest.approx(1, abs=0.01)
    assert (noise.abs() < 1.959964).float().mean().item() == pytest.approx(0.95, abs=0.003)


def test_dropped_features_are_zero_and_the_others_keep_their_size() -> None:
    how = FeatureAugmentation(10, noise=0.0)
    x = 1 + images(20_000, 10)
    seen = how(x, uniform(20_000, how))
    dropped = seen == 0
    assert dropped.float().mean().item() == pytest.approx(0.1, abs=0.004)  # its standard error is 0.0007
    assert torch.equal(seen[~dropped], x[~dropped])


def test_feature_numbers_by_hand() -> None:
    how = FeatureAugmentation(2)
    # 1/2 is the median of the noise; 0.8413447 is what a normal number of 1 exceeds. The last feature is dropped.
    seen = how(torch.tensor([[3.0, -1.0], [3.0, -1.0]]), torch.tensor([[0.5, 0.8413447, 0.1, 0.1], [0, 0, 0.5, 0.09]]))
    close(seen[0], torch.tensor([3.0, -0.9]))
    # The number 0 would be infinitely far: it counts as 2**-24, 5.29 standard deviations.
    close(seen[1], torch.tensor([3.0 - 0.1 * 5.2947, 0.0]), 1e-3)


# Mistakes


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(DataError, match="1 means, but 2"):
        ImageAugmentation((0.5,), (1.0, 1.0))
    with pytest.raises(DataError, match=r"expected \(N, 3, H, W\), not \(2, 1, 8, 8\)"):
        augmentation(3)(torch.zeros(2, 1, 8, 8), numbers(2))
    with pytest.raises(DataError, match=r"expected 4 features a row, not \(2, 3\)"):
        FeatureAugmentation(4)(torch.zeros(2, 3), torch.zeros(2, 8))


def test_views_of_rows_of_any_shape_are_those_of_the_flat_row() -> None:
    how = FeatureAugmentation(12)
    x, u = torch.randn(5, 3, 4), torch.rand(5, how.numbers)
    close(how(x, u), how(x.flatten(1), u).view(5, 3, 4))


def test_whole_numbers_have_no_views() -> None:
    with pytest.raises(DataError, match=r"trains on views.*integers.*data\.scale = 'standard'"):
        _ = NoAugmentation().numbers
