"""Settings, names, and which peer gets which architecture."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
import torch

from coterie.core.errors import ConfigError, ModelError
from coterie.models import ModelSettings, assign, build, describe, names

IMAGE = (1, 8, 8)


def assigned(settings: ModelSettings, peers: int, seed: int = 0) -> list[str]:
    return assign(settings, peers, IMAGE, 10, np.random.default_rng(seed))


def test_every_setting_explains_itself() -> None:
    assert all(field.metadata["help"] for field in fields(ModelSettings))


def test_every_name_has_one_line() -> None:
    lines = [describe(name) for name in names()]
    assert len(set(lines)) == len(lines)
    assert all(line and "\n" not in line for line in lines)
    assert describe("mine:net") == "custom: mine:net"


def test_modulo() -> None:
    assert assigned(ModelSettings(zoo=("mlp", "cnn")), 5) == ["mlp", "cnn", "mlp", "cnn", "mlp"]


def test_random_follows_the_generator_and_uses_the_whole_zoo() -> None:
    settings = ModelSettings(zoo=("mlp", "cnn", "cnn3"), assign="random")
    drawn = assigned(settings, 60)
    assert drawn == assigned(settings, 60)
    assert drawn != assigned(settings, 60, seed=1)
    assert set(drawn) == set(settings.zoo)


def test_capacity_picks_by_size_and_cycles() -> None:
    # On 1x8x8 and ten classes: mlp (64-200-200-10) has 55,210 parameters; cnn3 has
    # 320 + 18,496 + 36,928 + 64*64+64 + 650 = 60,554; vgg11 has millions.
    settings = ModelSettings(zoo=("vgg11", "mlp", "cnn3"), assign="capacity", capacity=(0.0, 0.3, 0.34, 0.67, 1.0))
    expected = ["mlp", "mlp", "cnn3", "vgg11", "vgg11", "mlp"]  # floor(3c), at most 2; then from the start
    assert assigned(settings, 6) == expected


def test_capacity_leaves_the_generator_alone() -> None:
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    assigned(ModelSettings(zoo=("mlp", "cnn"), assign="capacity", capacity=(1.0,)), 2)
    assert torch.equal(torch.rand(1), expected)


def test_capacity_needs_capacities() -> None:
    with pytest.raises(ConfigError, match=r"needs model\.capacity"):
        assigned(ModelSettings(assign="capacity"), 2)


@pytest.mark.parametrize("mode", ["modulo", "random"])
def test_assign_refuses_what_cannot_be_built(mode: str) -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(ModelError, match="Did you mean 'resnet9'"):
        assign(ModelSettings(zoo=("mlp", "resnet99"), assign=mode), 1, IMAGE, 10, rng)
    with pytest.raises(ModelError, match="use 'linear', 'mlp'"):
        assign(ModelSettings(zoo=("mlp", "cnn"), assign=mode), 1, (30,), 10, rng)


def test_unknown_name() -> None:
    with pytest.raises(ModelError, match=r"unknown model in model\.zoo 'perceptron'.*module:callable"):
        build("perceptron", IMAGE, 10, ModelSettings())
    with pytest.raises(ModelError, match="unknown model"):
        describe("perceptron")


@pytest.mark.parametrize(("shape", "classes"), [((), 10), ((0, 8, 8), 10), ((64,), 0)])
def test_impossible_data(shape: tuple[int, ...], classes: int) -> None:
    with pytest.raises(ModelError, match=r"model\.zoo: no model for"):
        build("mlp", shape, classes, ModelSettings())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("zoo", ()),
        ("assign", "fair"),
        ("capacity", (0.5, 1.5)),
        ("capacity", (0.5,)),  # and nobody is assigned by it
        ("d_z", -1),
        ("hidden", (200, 0)),
        ("norm", "layer"),
        ("d_p", -1),
        ("projector_hidden", 0),
        ("dropout", 1.0),
    ],
)
def test_impossible_settings_name_their_key(key: str, value: object) -> None:
    with pytest.raises(ConfigError, match=rf"model\.{key}"):
        ModelSettings(**{key: value})  # type: ignore[arg-type]
