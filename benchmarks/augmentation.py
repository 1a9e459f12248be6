"""Compare augmented views of image batches with kornia's, with the same list of steps, in one process.

    python benchmarks/augmentation.py

Kornia is not a dependency of Coterie. To use it without changing the environment:

    pip install --target /tmp/kornia --no-deps kornia kornia_rs
    PYTHONPATH=/tmp/kornia python benchmarks/augmentation.py

Both take images from 0 to 1 and return one view of each; both timings include drawing random numbers. They take turns.
On a busy machine trust the ratio of the medians: a short call is less likely to be disturbed, so the minimum favours
the faster one.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from coterie.data.augmentation import ImageAugmentation

BATCHES = ((64, 3, 32, 32), (512, 3, 32, 32))
OURS = ImageAugmentation((0.0,) * 3, (1.0,) * 3)

View = Callable[[Tensor], Tensor]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    # Kornia can crop image by image, which is its default, or all at once.
    views = {"coterie": ours, **{f"kornia, crop by {mode}": kornia(mode) for mode in ("slice", "resample")}}
    print(f"torch {torch.__version__}, {options.threads} thread(s), {options.repeats} repeats")
    for shape in BATCHES:
        times = measure(views, torch.rand(shape), options.repeats)
        for name, taken in times.items():
            figures = []
            for word, figure in (("median", statistics.median), ("least", min)):
                ratio = figure(taken) / figure(times["coterie"])
                figures.append(f"{word} {figure(taken):7.2f} ms, {ratio:4.1f} x coterie's")
            print(f"{'x'.join(map(str, shape)):12} {name:24} {';  '.join(figures)}")


def ours(x: Tensor) -> Tensor:
    return OURS(x, torch.rand(len(x), OURS.numbers))


def kornia(cropping: str) -> View:
    try:
        steps = importlib.import_module("kornia.augmentation")
    except ImportError as error:
        raise SystemExit(f"kornia cannot be imported ({error}); how to get it:\n{__doc__}") from error
    jitter = (OURS.brightness, OURS.contrast, OURS.saturation, OURS.hue)
    view: View = torch.nn.Sequential(
        steps.RandomResizedCrop((32, 32), scale=OURS.scale, ratio=OURS.ratio, cropping_mode=cropping),
        steps.RandomHorizontalFlip(p=OURS.flip),
        steps.ColorJitter(*jitter, p=OURS.jitter),
        steps.RandomGrayscale(p=OURS.grey),
        steps.RandomGaussianBlur((3, 3), OURS.sigma, p=OURS.blur),
    )
    return view


def measure(views: dict[str, View], x: Tensor, repeats: int) -> dict[str, list[float]]:
    """The milliseconds of each call of each view."""
    taken: dict[str, list[float]] = {name: [] for name in views}
    for turn in range(-3, repeats):
        for name, view in views.items():
            start = time.perf_counter()
            view(x)
            if turn >= 0:  # earlier ones are the warm-up
                taken[name].append(1000 * (time.perf_counter() - start))
    return taken


if __name__ == "__main__":
    main()
