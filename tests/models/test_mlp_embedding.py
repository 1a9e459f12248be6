"""The perceptron with embeddings of categories: what it computes, how it trains, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.nn import functional as F

from coterie.core.errors import ModelError
from coterie.core.net import Net, batchable
from coterie.methods.mentees import MENTEE
from coterie.models import ModelSettings, assign, build
from coterie.models.mlp_embedding import Embeddings, width

NAME = "mlp-embedding"
# A number, a category of four features, two numbers, two categories of three and of two features.
BLOCKS, FEATURES = ((1, 5), (7, 10), (10, 12)), 12


def drawn(hidden: tuple[int, ...] = (6, 5)) -> Net:
    torch.manual_seed(0)
    return build(NAME, (FEATURES,), 4, ModelSettings(hidden=hidden), blocks=BLOCKS)


def batch(*sizes: int) -> Tensor:
    """Random numbers, and a random category in each block."""
    rng = torch.Generator().manual_seed(1)
    x = torch.randn(*sizes, FEATURES, generator=rng)
    for start, stop in BLOCKS:
        chosen = torch.randint(stop - start, sizes, generator=rng)
        x[..., start:stop] = F.one_hot(chosen, stop - start).float()
    return x


def test_a_category_becomes_its_row_of_the_table_and_numbers_pass() -> None:
    """In the order of the features: number 0, the embedding of 1 to 4, numbers 5 and 6, the two other embeddings."""
    torch.manual_seed(0)
    layer, x = Embeddings(FEATURES, BLOCKS), batch(9)
    rows = []
    for (start, stop), table in zip(BLOCKS, layer.tables, strict=True):
        assert isinstance(table, nn.Linear)
        rows.append(F.embedding(x[:, start:stop].argmax(1), table.weight.T))
    expected = torch.cat([x[:, :1], rows[0], x[:, 5:7], rows[1], rows[2]], 1)
    torch.testing.assert_close(layer(x), expected)
    assert layer.width == expected.shape[1] == 1 + 2 + 2 + 2 + 1


@pytest.mark.parametrize(("features", "expected"), [(2, 1), (3, 2), (4, 2), (31, 16), (100, 16)])
def test_widths(features: int, expected: int) -> None:
    assert width(features) == expected


def test_numbers_may_come_last_or_be_absent() -> None:
    assert Embeddings(3, ((0, 2),))(torch.tensor([[1.0, 0.0, 7.0]]))[0, -1] == 7
    assert Embeddings(2, ((0, 2),))(torch.tensor([[1.0, 0.0]])).shape == (1, 1)


def test_forward_and_backward() -> None:
    net = drawn()
    output = net(batch(50))
    assert (output.logits.shape, output.features.shape, net.d_z) == ((50, 4), (50, 5), 5)
    torch.autograd.backward(F.cross_entropy(output.logits, torch.arange(50) % 4))
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


def test_size() -> None:
    # tables 4 x 2, 3 x 2 and 2 x 1; 3 numbers and 5 of embeddings -> 6 -> 5 -> 4 classes
    expected = 8 + 6 + 2 + (8 + 1) * 6 + (6 + 1) * 5 + (5 + 1) * 4
    assert sum(parameter.numel() for parameter in drawn().parameters()) == expected
    assert drawn(hidden=()).d_z == 8


def test_gradients_of_stacked_copies_equal_those_of_a_loop() -> None:
    nets = [drawn() for _ in range(3)]
    for number, net in enumerate(nets):
        nn.init.normal_(net.head.weight, std=1 + number)
    x, y = batch(3, 5), torch.arange(15).reshape(3, 5) % 4

    def loss(parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(nets[0], parameters, (x,)).logits, y)

    assert batchable(nets[0])
    together = vmap(grad(loss))(stack_module_state(nets)[0], x, y)
    for number, net in enumerate(nets):
        torch.autograd.backward(F.cross_entropy(net(x[number]).logits, y[number]))
        for name, parameter in net.named_parameters():
            torch.testing.assert_close(together[name][number], parameter.grad, rtol=1e-4, atol=1e-5)


def test_data_without_categories_are_refused_with_the_remedy() -> None:
    message = r"'mlp-embedding' takes rows with categories that a schema declares \(data\.schema\).*\(30,\) without "
    message += r"any: declare them, or use 'linear', 'mlp', or a module of yours"
    with pytest.raises(ModelError, match=message):
        build(NAME, (30,), 2, ModelSettings())
    rng = np.random.default_rng(0)
    with pytest.raises(ModelError, match=message):
        assign(ModelSettings(zoo=(NAME,)), 1, (30,), 2, rng)
    with pytest.raises(ModelError, match=r"use 'linear', 'mlp', 'mlp-embedding', or"):
        build("cnn", (FEATURES,), 2, ModelSettings(), blocks=BLOCKS)


def test_peers_of_other_capacities_can_have_it() -> None:
    # 12 -> 6 -> 5 -> 4 without embeddings has more weights: 78 + 35 + 24, against 16 + 54 + 35 + 24
    settings = ModelSettings(zoo=("mlp", NAME), assign="capacity", capacity=(0.0, 1.0), hidden=(6, 5))
    assert assign(settings, 2, (FEATURES,), 4, np.random.default_rng(0), BLOCKS) == [NAME, "mlp"]


def test_it_can_be_the_small_model_of_fml() -> None:
    net = build("mlp", (FEATURES,), 4, ModelSettings(mentee=NAME, hidden=(6,)), [MENTEE], BLOCKS)
    assert any(name.startswith("mentee.backbone.0.tables.0") for name, _ in net.named_parameters())
