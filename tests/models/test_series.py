"""The architectures for series and token ids: what they compute, how they train, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.nn import functional as F

from coterie.config.loading import from_tables
from coterie.core.errors import ConfigError, DataError, ModelError
from coterie.core.net import Net, batchable, vmappable
from coterie.models import ModelSettings, assign, build
from coterie.models.gru import LastState
from coterie.models.layers import TokenEmbedding
from coterie.models.transformer import Attention, positions
from coterie.wiring import gather

NAMES = ["gru", "transformer", "cnn1d"]
IDS = 30
INPUTS = {"series": ((3, 9), 0), "one step": ((2, 1), 0), "ids": ((7,), IDS)}


def drawn(name: str, inputs: str, **settings: object) -> Net:
    torch.manual_seed(0)
    shape, vocabulary = INPUTS[inputs]
    return build(name, shape, 4, ModelSettings(vocabulary=vocabulary, **settings))  # type: ignore[arg-type]


def batch(inputs: str, *sizes: int) -> Tensor:
    shape, vocabulary = INPUTS[inputs]
    rng = torch.Generator().manual_seed(1)
    if vocabulary:
        return torch.randint(vocabulary, (*sizes, *shape), generator=rng).float()
    return torch.randn(*sizes, *shape, generator=rng)


def parameter_count(net: Net) -> int:
    return sum(parameter.numel() for parameter in net.parameters())


@pytest.mark.parametrize("inputs", INPUTS)
@pytest.mark.parametrize("name", NAMES)
def test_forward_and_backward(name: str, inputs: str) -> None:
    net = drawn(name, inputs)
    output = net(batch(inputs, 5))
    assert (output.logits.shape, output.features.shape, net.d_z) == ((5, 4), (5, 64), 64)
    torch.autograd.backward(F.cross_entropy(output.logits, torch.arange(5) % 4))
    # a first step has no state before it, and a single one has nothing else to attend to: no gradient there
    idle = {"gru": "weight_hh", "transformer": "queries_keys_values"}.get(name) if inputs == "one step" else None
    for parameter_name, parameter in net.named_parameters():
        assert parameter.grad is not None, parameter_name
        if idle is None or idle not in parameter_name:
            assert parameter.grad.abs().sum() > 0, parameter_name


@pytest.mark.parametrize("inputs", ["series", "ids"])
@pytest.mark.parametrize("name", NAMES)
def test_gradients_of_stacked_copies_equal_those_of_a_loop(name: str, inputs: str) -> None:
    nets = [drawn(name, inputs) for _ in range(3)]
    for number, net in enumerate(nets):
        nn.init.normal_(net.head.weight, std=1 + number)
    x, y = batch(inputs, 3, 5), torch.arange(15).reshape(3, 5) % 4

    def loss(parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(nets[0], parameters, (x,)).logits, y)

    assert vmappable(nets[0])
    together = vmap(grad(loss))(stack_module_state(nets)[0], x, y)
    for number, net in enumerate(nets):
        torch.autograd.backward(F.cross_entropy(net(x[number]).logits, y[number]))
        for parameter_name, parameter in net.named_parameters():
            torch.testing.assert_close(together[parameter_name][number], parameter.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_a_loop_is_faster_than_one_batch(name: str) -> None:
    """Measured: so `engine.batching = auto` takes the loop."""
    assert not batchable(drawn(name, "series"))


def test_the_last_state_is_that_of_torchs_gru() -> None:
    torch.manual_seed(0)
    ours, torchs = LastState(3, 5), nn.GRU(3, 5, batch_first=True)
    torchs.load_state_dict({f"{name}_l0": tensor for name, tensor in ours.cell.state_dict().items()})
    x = torch.randn(4, 3, 6)
    torch.testing.assert_close(ours(x), torchs(x.transpose(1, 2))[1][0])


def test_attention_is_torchs() -> None:
    torch.manual_seed(0)
    ours, torchs = Attention(16), nn.MultiheadAttention(16, num_heads=4, batch_first=True)
    own = ours.state_dict()
    torchs.load_state_dict(
        {
            "in_proj_weight": own["queries_keys_values.weight"],
            "in_proj_bias": own["queries_keys_values.bias"],
            "out_proj.weight": own["out.weight"],
            "out_proj.bias": own["out.bias"],
        }
    )
    x = torch.randn(3, 5, 16)
    torch.testing.assert_close(ours(x), torchs(x, x, x)[0])


def test_positions() -> None:
    # width 4: frequencies 10,000 ** 0 = 1 and 10,000 ** -(2 / 4) = 0.01; sines, then cosines, of step * frequency
    expected = [[np.sin(t), np.sin(0.01 * t), np.cos(t), np.cos(0.01 * t)] for t in range(3)]
    torch.testing.assert_close(positions(3, 4), torch.tensor(expected, dtype=torch.float32))


def test_the_transformer_and_the_gru_read_the_order_of_steps() -> None:
    for name in ("gru", "transformer"):
        net, x = drawn(name, "series").eval(), batch("series", 2)
        assert not torch.allclose(net(x).logits, net(x.flip(-1)).logits, atol=1e-4)


def test_ids_become_rows_of_the_table() -> None:
    embedding = TokenEmbedding(5, 2)
    embedding.table.weight.data = torch.arange(10.0).reshape(5, 2)  # id i: (2 i, 2 i + 1)
    assert embedding(torch.tensor([[4.0, 0.0, 1.0]])).tolist() == [[[8.0, 0.0, 2.0], [9.0, 1.0, 3.0]]]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # three gates, each with weights from 3 channels and 64 units, and two biases
        ("gru", 3 * 64 * (3 + 64 + 2)),
        # 3 -> 64; per block: two norms, queries, keys, values and output (4 of 64 x 64), 64 -> 128 -> 64; last norm
        ("transformer", 4 * 64 + 2 * (2 * 128 + 4 * 65 * 64 + 65 * 128 + 129 * 64) + 128),
        # kernels 7, 5 and 3 without bias, beside two numbers of group norm for each channel
        ("cnn1d", 7 * 3 * 64 + 5 * 64 * 128 + 3 * 128 * 64 + 2 * (64 + 128 + 64)),
    ],
)
def test_sizes(name: str, expected: int) -> None:
    head = 64 * 4 + 4
    assert parameter_count(drawn(name, "series")) == expected + head
    assert drawn(name, "series", width=0.5).d_z == 32
    assert drawn(name, "series", d_z=7).d_z == 7


def test_cnn1d_has_the_other_norms() -> None:
    kinds = {norm: {type(m) for m in drawn("cnn1d", "series", norm=norm).modules()} for norm in ("batch", "none")}
    assert nn.BatchNorm1d in kinds["batch"]
    assert not {nn.BatchNorm1d, nn.GroupNorm} & kinds["none"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("shape", "vocabulary", "others"),
    [
        ((30,), 0, "'linear', 'mlp', or"),
        ((3, 8, 8), 0, "'linear', 'mlp', 'cnn3',"),
        ((3, 9), 10, "'linear', 'mlp', or"),
    ],
)
def test_other_inputs_are_refused(name: str, shape: tuple[int, ...], vocabulary: int, others: str) -> None:
    message = rf"'{name}' takes series \(channels, time\), or token ids \(time\) with model\.vocabulary, .*use {others}"
    with pytest.raises(ModelError, match=message):
        build(name, shape, 2, ModelSettings(vocabulary=vocabulary))


def test_a_network_for_images_names_those_for_series() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(ModelError, match=r"'cnn' takes images.*\(3, 9\); use 'linear', 'mlp', 'gru', 'transformer'"):
        assign(ModelSettings(zoo=("cnn",)), 1, (3, 9), 2, rng)


# -- ids in an experiment --------------------------------------------------------------------------


@pytest.fixture
def experiment(tmp_path: Path) -> Callable[..., object]:
    """Gathers the peers of an experiment on these arrays."""

    def of(x: np.ndarray, **model: object) -> object:
        np.savez(tmp_path / "rows.npz", x=x, y=np.arange(len(x)) % 2)
        data = {"name": str(tmp_path / "rows.npz"), "partition": "iid"}
        return gather(
            from_tables({"peers": 2, "method": {"name": "local"}, "data": data, "model": {"zoo": ["gru"], **model}})
        )

    return of


def test_ids_must_be_in_the_vocabulary(experiment: Callable[..., object]) -> None:
    x = np.zeros((40, 5), dtype=np.int64)
    x[7, 2], x[9, 4] = 9, -1
    with pytest.raises(
        DataError, match=r"rows: has token ids outside 0 to 9 in 1 row, the first is row 9 .*vocabulary"
    ):
        experiment(x, vocabulary=10)
    with pytest.raises(DataError, match=r"outside 0 to 8 in 2 rows, the first is row 7"):
        experiment(x, vocabulary=9)
    x[9, 4] = 0
    assert experiment(x, vocabulary=10)


def test_a_vocabulary_is_for_integers_over_time(experiment: Callable[..., object]) -> None:
    for x in (np.zeros((40, 5)), np.zeros((40, 2, 5), dtype=np.int64)):
        with pytest.raises(ConfigError, match=r"model\.vocabulary = 10 is for token ids.*set model\.vocabulary = 0"):
            experiment(x, vocabulary=10)
