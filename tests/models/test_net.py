"""A net's parts, and the rules that say which nets may be trained as one batch."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from coterie.core.net import Net, Output, batchable, vmappable
from coterie.methods.components.projection import PROJECTOR, PROTOTYPES
from coterie.models import ModelSettings, build, names


def test_head_and_projector_read_the_backbones_features() -> None:
    net = build("cnn", (1, 8, 8), 3, ModelSettings(d_z=16, d_p=5, projector_hidden=7), [PROJECTOR])
    assert net.projector is not None
    output = net(torch.randn(4, 1, 8, 8))
    assert isinstance(output, Output)
    assert torch.equal(output.logits, net.head(output.features))
    assert output.projection is not None
    assert torch.equal(output.projection, net.projector(output.features))
    assert (net.d_z, output.features.shape, output.projection.shape) == (16, (4, 16), (4, 5))
    assert net.eval()(torch.randn(4, 1, 8, 8)).projection is None


def test_a_relu_is_before_the_head_alone() -> None:
    net = build("mlp", (6,), 3, ModelSettings(d_z=16, projector_hidden=7, relu=True), [PROJECTOR])
    output = net(torch.randn(4, 6))
    assert output.features.min() < 0  # of a linear layer, which adapts 200 features
    assert torch.equal(output.logits, net.head(output.features.clamp(min=0)))
    assert torch.equal(output.projection, net.projector(output.features))
    assert batchable(net)
    plain = build("mlp", (6,), 3, ModelSettings(d_z=16, projector_hidden=7), [PROJECTOR])
    assert net.state_dict().keys() == plain.state_dict().keys()  # it has no weights: models of before can be loaded


def test_what_a_method_adds_changes_neither_backbone_nor_head() -> None:
    torch.manual_seed(0)
    bare = build("mlp", (6,), 3, ModelSettings()).state_dict()
    torch.manual_seed(0)
    more = build("mlp", (6,), 3, ModelSettings(projector_hidden=7), [PROJECTOR, PROTOTYPES]).state_dict()
    assert {name.split(".")[0] for name in more} == {"backbone", "head", "projector", "prototypes"}
    assert more["prototypes"].shape == (3, 200)
    assert all(torch.equal(more[name], tensor) for name, tensor in bare.items())


def test_a_net_with_projector_and_prototypes_is_batchable() -> None:
    assert batchable(build("mlp", (6,), 3, ModelSettings(projector_hidden=7), [PROJECTOR, PROTOTYPES]))


def test_the_projector_is_mapls() -> None:
    net = build("mlp", (64,), 10, ModelSettings(d_z=512, d_p=128), [PROJECTOR])
    assert net.projector is not None
    first, norm, activation, last = net.projector.children()
    assert isinstance(first, nn.Linear)
    assert (first.in_features, first.out_features) == (512, 4096)
    assert isinstance(norm, nn.BatchNorm1d)
    assert isinstance(activation, nn.ReLU)
    assert isinstance(last, nn.Linear)
    assert last.out_features == 128


def test_its_norm_is_batch_norm() -> None:
    net = build("mlp", (64,), 10, ModelSettings(projector_hidden=7), [PROJECTOR])
    norm = net.projector[1]
    torch.nn.init.normal_(norm.weight)
    torch.nn.init.normal_(norm.bias)
    x = torch.randn(5, 7) * 3 + 1
    expected = torch.nn.functional.batch_norm(x, None, None, norm.weight, norm.bias, training=True, eps=norm.eps)
    torch.testing.assert_close(norm(x), expected)
    torch.testing.assert_close(torch.func.vmap(norm)(torch.stack([x, 2 * x]))[0], expected)


def test_an_adapter_only_where_the_width_differs() -> None:
    natural = build("mlp", (64,), 10, ModelSettings())
    same = build("mlp", (64,), 10, ModelSettings(d_z=200))
    adapted = build("mlp", (64,), 10, ModelSettings(d_z=32))
    assert list(natural.state_dict()) == list(same.state_dict())
    assert adapted.head.in_features == adapted.d_z == 32
    assert len(list(adapted.parameters())) == len(list(natural.parameters())) + 2


def test_dropout_reaches_the_head_only() -> None:
    torch.manual_seed(0)
    net = build("mlp", (64,), 10, ModelSettings(dropout=0.5))
    x = torch.randn(8, 64)
    first, second = net(x), net(x)
    assert torch.equal(first.features, second.features)
    assert not torch.equal(first.logits, second.logits)
    net.eval()
    assert torch.equal(net(x).logits, net(x).logits)


OF_IMAGES = [name for name in names() if name not in {"cnn1d", "gru", "transformer", "mlp-embedding"}]
VMAPPABLE = [name for name in OF_IMAGES if vmappable(build(name, (1, 8, 8), 10, ModelSettings()))]


def test_all_of_the_zoo_is_vmappable_with_group_norm_and_only_dense_ones_batchable() -> None:
    nets = {name: build(name, (1, 8, 8), 10, ModelSettings()) for name in OF_IMAGES}
    assert OF_IMAGES == VMAPPABLE
    assert [name for name, net in nets.items() if batchable(net)] == ["linear", "mlp"]


@pytest.mark.parametrize("name", VMAPPABLE)
def test_vmap_over_stacked_copies_equals_a_loop(name: str) -> None:
    torch.manual_seed(0)
    nets = [build(name, (1, 8, 8), 10, ModelSettings()) for _ in range(3)]
    x = torch.randn(3, 2, 1, 8, 8)
    stacked, buffers = stack_module_state(nets)

    def logits(parameters: dict[str, Tensor], state: dict[str, Tensor], inputs: Tensor) -> Tensor:
        output: Output = functional_call(nets[0], (parameters, state), (inputs,))
        return output.logits

    with torch.no_grad():
        together = vmap(logits)(stacked, buffers, x)
        alone = torch.stack([net(inputs).logits for net, inputs in zip(nets, x, strict=True)])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("settings", "can"),
    [
        (ModelSettings(), True),
        (ModelSettings(d_z=8), True),
        (ModelSettings(dropout=0.1), False),
    ],
)
def test_what_makes_an_mlp_unfit_for_vmap(settings: ModelSettings, can: bool) -> None:
    net = build("mlp", (64,), 10, settings)
    assert vmappable(net) is can
    assert batchable(net) is can


def test_batch_norm_in_a_convolutional_net_is_not_vmappable() -> None:
    assert not vmappable(build("cnn", (1, 8, 8), 10, ModelSettings(norm="batch")))


class OwnParameter(nn.Module):
    """Computes with a parameter of its own, beside a child."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.ones(3))
        self.linear = nn.Linear(3, 3)


@pytest.mark.parametrize(
    ("layer", "can", "fast"),
    [
        (nn.Linear(2, 2), True, True),
        (nn.Sequential(nn.LayerNorm(2), nn.GELU(), nn.GroupNorm(1, 2), nn.Dropout(0.0)), True, True),
        (nn.ModuleList(), True, True),
        (nn.Conv2d(1, 1, 1), True, False),
        (nn.BatchNorm1d(2, track_running_stats=False), True, True),
        (nn.BatchNorm2d(2, track_running_stats=False), True, False),
        (nn.BatchNorm1d(2), False, False),
        (nn.Dropout(0.2), False, False),
        (nn.LSTM(2, 2), False, False),
        (OwnParameter(), True, False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else str(value),
)
def test_the_rules_by_layer(layer: nn.Module, can: bool, fast: bool) -> None:
    assert vmappable(layer) is can
    assert batchable(layer) is fast


def test_a_net_with_custom_parts() -> None:
    net = Net(nn.Flatten(), d_z=4, classes=2)
    assert net(torch.zeros(1, 2, 2)).logits.shape == (1, 2)
