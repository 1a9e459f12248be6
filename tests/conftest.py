"""For all tests: one torch thread (they share the machine), property tests that repeat, small models and data."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from functools import partial

import pytest
import torch
from hypothesis import HealthCheck, settings
from torch import nn

import coterie  # noqa: F401  (sets MKL's mode, before anything is computed)
from coterie.core.jobs import Pool
from coterie.core.model import Architecture
from coterie.core.net import Net
from coterie.data.augmentation import FeatureAugmentation, ImageAugmentation
from coterie.methods.parts import resolved
from coterie.models import ModelSettings, build

settings.register_profile(
    "coterie", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("coterie")


def pytest_collection_finish() -> None:
    """Thousands of collected tests stay until the end: the garbage collector need not visit them again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def one_torch_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def make_mlp() -> Callable[..., Architecture]:
    """A fresh architecture at every call: nothing recorded yet."""

    def make(
        hidden: tuple[int, ...] = (5,),
        features: int = 4,
        classes: int = 3,
        dropout: float = 0.0,
        parts: tuple[str, ...] = (),
    ) -> Architecture:
        shape = ModelSettings(hidden=hidden, dropout=dropout, projector_hidden=6)
        return Architecture("mlp", partial(build, "mlp", (features,), classes, shape, resolved(parts)))

    return make


@pytest.fixture
def mlp(make_mlp: Callable[..., Architecture]) -> Architecture:
    return make_mlp()


@pytest.fixture
def batch_normed() -> Architecture:
    return Architecture("normed", lambda: Net(nn.Sequential(nn.Flatten(), nn.BatchNorm1d(4)), 4, 3))


@pytest.fixture
def convolutional() -> Architecture:
    """A convolution with group norm on 1x4x4 images."""

    def net() -> Net:
        layers = [nn.Conv2d(1, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten()]
        return Net(nn.Sequential(*layers), 64, 3)

    return Architecture("conv", net)


@pytest.fixture
def make_pool() -> Callable[..., Pool]:
    def make(samples: int, shape: tuple[int, ...] = (4,), classes: int = 3, seed: int = 0) -> Pool:
        draw = torch.Generator().manual_seed(seed)
        x = torch.randn(samples, *shape, generator=draw)
        augment = FeatureAugmentation(shape[0]) if len(shape) == 1 else ImageAugmentation((0.5,), (0.25,))
        return Pool(x, torch.randint(classes, (samples,), generator=draw), augment)

    return make
