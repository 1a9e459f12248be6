"""Every architecture for images: shapes, gradients, sizes, determinism. test_series.py has those for series,
test_mlp_embedding.py the one for categories."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from coterie.core.errors import ModelError
from coterie.core.net import Net
from coterie.methods.components.projection import PROJECTOR
from coterie.models import ModelSettings, build, names
from coterie.models.layers import group_count, halve, halved

SHAPES = [(1, 8, 8), (1, 28, 28), (3, 32, 32)]
OF_IMAGES = [name for name in names() if name not in {"cnn1d", "gru", "transformer", "mlp-embedding"}]
NORMED = [name for name in OF_IMAGES if name not in {"linear", "mlp", "cnn3", "lenet"}]


def parameter_count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def batch_of(shape: tuple[int, ...], size: int = 4) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(size, *shape, generator=generator), torch.arange(size) % 10


def check_forward_and_backward(net: Net, shape: tuple[int, ...]) -> None:
    x, y = batch_of(shape)
    output = net(x)
    assert output.logits.shape == (4, 10)
    assert output.features.shape == (4, net.d_z)
    assert output.projection is None
    torch.autograd.backward(F.cross_entropy(output.logits, y))
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", OF_IMAGES)
def test_forward_and_backward(name: str, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    check_forward_and_backward(build(name, shape, 10, ModelSettings()), shape)


@pytest.mark.parametrize("norm", ["batch", "none"])
@pytest.mark.parametrize("name", NORMED)
def test_the_other_norms(name: str, norm: str) -> None:
    torch.manual_seed(0)
    net = build(name, (1, 8, 8), 10, ModelSettings(norm=norm))
    check_forward_and_backward(net, (1, 8, 8))
    norms = [m for m in net.modules() if isinstance(m, nn.BatchNorm2d | nn.GroupNorm)]
    assert all(isinstance(m, nn.BatchNorm2d) for m in norms)
    assert bool(norms) == (norm == "batch")


@pytest.mark.parametrize("shape", [(5, 9, 13), (3, 1, 1), (2, 3, 2)], ids=str)
@pytest.mark.parametrize("name", OF_IMAGES)
def test_any_channel_count_and_any_size(name: str, shape: tuple[int, ...]) -> None:
    net = build(name, shape, 10, ModelSettings())
    with torch.no_grad():
        assert net(batch_of(shape)[0]).logits.shape == (4, 10)


@pytest.mark.parametrize("name", OF_IMAGES)
def test_parameter_names_begin_with_the_part(name: str) -> None:
    net = build(name, (1, 8, 8), 10, ModelSettings(d_p=4, projector_hidden=8), [PROJECTOR])
    parts = {key.partition(".")[0] for key in net.state_dict()}
    assert parts == {"head", "projector"} | ({"backbone"} if name != "linear" else set())  # which has none to train


@pytest.mark.parametrize("name", OF_IMAGES)
def test_the_seed_decides_the_weights(name: str) -> None:
    def weights(seed: int) -> Tensor:
        torch.manual_seed(seed)
        net = build(name, (1, 8, 8), 10, ModelSettings())
        return nn.utils.parameters_to_vector(net.parameters())

    first = weights(3)
    assert torch.equal(first, weights(3))
    assert not torch.equal(first, weights(4))


@pytest.mark.parametrize("name", [name for name in OF_IMAGES if name not in {"linear", "mlp"}])
def test_convolutions_refuse_feature_vectors(name: str) -> None:
    with pytest.raises(
        ModelError, match=rf"model\.zoo: '{name}' takes images .* use 'linear', 'mlp', or a module of yours"
    ):
        build(name, (30,), 2, ModelSettings())


def test_mlp_is_exactly_the_papers() -> None:
    net = build("mlp", (1, 28, 28), 10, ModelSettings())
    # 784*200+200 + 200*200+200 + 200*10+10 = 157,000 + 40,200 + 2,010
    assert parameter_count(net) == 199_210
    kinds = [type(layer) for layer in net.backbone.children()]
    assert kinds == [nn.Flatten, nn.Linear, nn.ReLU, nn.Linear, nn.ReLU]
    assert net.d_z == 200


def test_mlp_takes_feature_vectors_and_may_have_no_hidden_layer() -> None:
    net = build("mlp", (30,), 2, ModelSettings(hidden=()))
    x = torch.randn(5, 30)
    assert torch.equal(net(x).features, x)
    assert parameter_count(net) == 30 * 2 + 2


def test_size_of_cnn3() -> None:
    # On 3x32x32: conv 3->32: 3*32*9+32 = 896; 32->64: 32*64*9+64 = 18,496; 64->64: 64*64*9+64 = 36,928;
    # 32 -> 16 -> 8 -> 4 leaves 64*4*4 = 1,024 values: 1,024*64+64 = 65,600; head 64*10+10 = 650.
    expected = 896 + 18_496 + 36_928 + 65_600 + 650
    assert parameter_count(build("cnn3", (3, 32, 32), 10, ModelSettings())) == expected


@pytest.mark.parametrize(
    ("name", "shape", "expected"),
    [
        # McMahan et al. 2017 print 1,663,370 for their MNIST CNN.
        ("lenet", (1, 28, 28), 1_663_370),
        # The known CIFAR-10 size: ImageNet's 11,689,512 less its head (513,000), plus ours (5,130),
        # less the 7x7 stem (9,408), plus the 3x3 one (1,728).
        ("resnet18", (3, 32, 32), 11_173_962),
        # ImageNet's 7,978,856 - 1,025,000 (head) + 10,250 (ours) - 9,408 (7x7 stem) + 1,728 (3x3 stem).
        ("densenet121", (3, 32, 32), 6_956_426),
        # ImageNet's 2,278,604 - 1,025,000 (head) + 10,250 (ours): the stems differ only in their stride.
        ("shufflenetv2", (3, 32, 32), 1_263_854),
        # Weights of 3x3 convolutions 64-128-256-256-512-512-512-512: 9,217,728; batch norm: 2 * 2,752;
        # head: 5,130.
        ("vgg11", (3, 32, 32), 9_217_728 + 5_504 + 5_130),
    ],
)
def test_published_sizes(name: str, shape: tuple[int, ...], expected: int) -> None:
    assert parameter_count(build(name, shape, 10, ModelSettings(norm="batch"))) == expected


def test_size_of_resnet8() -> None:
    # On 3x32x32, with batch norm (two numbers a channel) and no biases beside it.
    stem = 3 * 16 * 9 + 2 * 16  # 464
    first = 2 * 16 * 16 * 9 + 2 * 2 * 16  # 4,672; the shape stays, so does the shortcut
    second = (16 * 32 + 32 * 32) * 9 + 16 * 32 + 3 * 2 * 32  # 14,528, with a 1x1 convolution as the shortcut
    third = (32 * 64 + 64 * 64) * 9 + 32 * 64 + 3 * 2 * 64  # 57,728
    head = 64 * 10 + 10  # 650
    net = build("resnet8", (3, 32, 32), 10, ModelSettings(norm="batch"))
    assert parameter_count(net) == stem + first + second + third + head == 78_042
    assert net.d_z == 64
    # 6n + 2 with n = 1: seven 3x3 convolutions and the head; the shortcuts' do not count as layers.
    kernels = [m.kernel_size for m in net.modules() if isinstance(m, nn.Conv2d)]
    assert (kernels.count((3, 3)), kernels.count((1, 1))) == (7, 2)


@pytest.mark.parametrize(("size", "left"), [(8, 2), (28, 7), (32, 8)])
def test_resnet8_halves_the_image_twice(size: int, left: int) -> None:
    net = build("resnet8", (3, size, size), 10, ModelSettings())
    assert isinstance(net.backbone, nn.Sequential)
    assert net.backbone[:-1](torch.zeros(2, 3, size, size)).shape == (2, 64, left, left)


def test_size_of_googlenet() -> None:
    # torchvision's (batch norm, no auxiliary heads, 1000 classes) has 6,624,904 parameters. Its head has
    # 1,025,000; its stem 7x7 3->64, 1x1 64->64 and 3x3 64->192: 9,408 + 4,096 + 110,592 and 640 of norm.
    inception_with_3x3 = 6_624_904 - 1_025_000 - 9_408 - 4_096 - 110_592 - 640
    # It has 3x3 kernels where the paper has 5x5: 16 more weights for each pair of channels there.
    pairs = 16 * 32 + 32 * 96 + 16 * 48 + 2 * 24 * 64 + 32 * 64 + 2 * 32 * 128 + 48 * 128
    stem, head = 3 * 192 * 9 + 2 * 192, 1024 * 10 + 10
    net = build("googlenet", (3, 32, 32), 10, ModelSettings(norm="batch"))
    assert parameter_count(net) == inception_with_3x3 + 16 * pairs + stem + head == 5_871_914


@pytest.mark.parametrize("channels", [1, 3, 8, 24, 58, 64, 116, 232, 464, 512, 1000, 1024])
def test_groups_divide_the_channels_and_are_never_tiny(channels: int) -> None:
    groups = group_count(channels)
    assert channels % groups == 0
    assert 1 <= groups <= 32
    assert groups == 1 or channels // groups >= 8


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 28, 32])
@pytest.mark.parametrize("times", [0, 1, 2, 3, 5])
def test_halved_predicts_what_halve_does(size: int, times: int) -> None:
    x = torch.zeros(1, 1, size, size)
    for _ in range(times):
        x = halve()(x)
    assert x.shape[-1] == halved(size, times)
