"""Networks as ONNX files: the same outputs as torch, for any number of samples, also with scaling of raw values."""

from __future__ import annotations

import io

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

from coterie.core.errors import ModelError
from coterie.core.net import Net
from coterie.data.scaling import Scaling
from coterie.models import ModelSettings, build, names
from coterie.portable.networks import taking_raw, to_onnx

BLOCKS = ((1, 4), (4, 6))  # the features of categories


def shape_for(name: str) -> tuple[int, ...]:
    return {"cnn1d": (3, 8), "gru": (3, 8), "transformer": (3, 8), "mlp-embedding": (8,)}.get(name, (3, 8, 8))


def drawn(name: str, shape: tuple[int, ...], **settings: object) -> Net:
    """A network in evaluation mode, with statistics of its own where it has some."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        blocks = BLOCKS if name == "mlp-embedding" else ()
        net = build(name, shape, 5, ModelSettings(zoo=(name,), **settings), blocks=blocks)  # type: ignore[arg-type]
        net.train()
        net(torch.randn(8, *shape))
    return net.eval()


def by_torch(net: Net, x: Tensor) -> np.ndarray:
    with torch.no_grad():
        said: np.ndarray = torch.softmax(net(x).logits, 1).numpy()
    return said


def by_onnx(content: bytes, *batches: np.ndarray) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    said = [session.run(["probabilities"], {"input": x})[0] for x in batches]
    assert all(one.dtype == np.float32 for one in said)
    return said


SLOW = ("densenet121", "googlenet")  # seconds to trace; built of the same layers as the others
EVERY = [(name, "group") for name in names()] + [("resnet8", "batch"), ("vgg11", "none")]


@pytest.mark.parametrize(
    ("name", "norm"), [pytest.param(*one, marks=pytest.mark.slow if one[0] in SLOW else ()) for one in EVERY]
)
def test_every_architecture_says_the_same(name: str, norm: str) -> None:
    shape = shape_for(name)
    net = drawn(name, shape, norm=norm, dropout=0.5)
    batches = [torch.randn(count, *shape) for count in (1, 2, 7)]
    for x, said in zip(batches, by_onnx(to_onnx(net, shape), *(x.numpy() for x in batches)), strict=True):
        np.testing.assert_allclose(said, by_torch(net, x), atol=1e-5)


def test_it_says_nothing_and_leaves_the_network_as_it_was(capfd: pytest.CaptureFixture[str]) -> None:
    net = drawn("resnet8", (1, 8, 8), norm="batch")
    net.train()
    before = {key: value.clone() for key, value in net.state_dict().items()}
    to_onnx(net, (1, 8, 8))
    assert capfd.readouterr() == ("", "")
    assert all(torch.equal(value, before[key]) for key, value in net.state_dict().items())


def test_raw_pixels() -> None:
    scaling = Scaling((10.0, 120.5, 0.0), (3.25, 70.0, 255.0))
    net = drawn("cnn3", (3, 6, 6))
    raw = np.random.default_rng(0).integers(0, 256, (4, 3, 6, 6)).astype(np.float32)
    content = taking_raw(to_onnx(net, (3, 6, 6)), scaling)
    np.testing.assert_allclose(
        by_onnx(content, raw)[0], by_torch(net, torch.from_numpy(scaling.of_raw(raw))), atol=1e-5
    )


def test_raw_features_of_very_different_sizes() -> None:
    """Differences of 1 at a mean of a million: in single precision, scaling would lose two digits more."""
    scaling = Scaling((1e6, -3.0, 0.0), (2.0, 1e-3, 1.0))
    net = drawn("mlp", (3,), hidden=(6,))
    raw = np.array([[1e6 + 1, -3.001, 1.0], [1e6 - 2.5, -2.999, -1.0]], dtype=np.float32)
    content = taking_raw(to_onnx(net, (3,)), scaling)
    np.testing.assert_allclose(
        by_onnx(content, raw)[0], by_torch(net, torch.from_numpy(scaling.of_raw(raw))), atol=1e-6
    )


def test_any_model_can_take_raw_values() -> None:
    """Whatever its input is named, and whatever operators it knows."""
    softmax = onnx.helper.make_node("Softmax", ["x"], ["probabilities"])
    kind = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        [softmax], "one", [onnx.helper.make_tensor_value_info("x", kind, ["N", 2])],
        [onnx.helper.make_tensor_value_info("probabilities", kind, ["N", 2])],
    )  # fmt: skip
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8)
    written = io.BytesIO()
    onnx.save_model(model, written)
    content = taking_raw(written.getvalue(), Scaling((1.0, 2.0), (2.0, 4.0)))
    # (1 - 1) / 2 = 0 and (10 - 2) / 4 = 2
    want = np.exp([0, 2]) / np.exp([0, 2]).sum()
    np.testing.assert_allclose(by_onnx(content, np.array([[1.0, 10.0]], dtype=np.float32))[0], [want], rtol=1e-6)


class Complex(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.linalg.eigvals(x.reshape(len(x), 2, 2)).abs()


def test_what_onnx_has_no_word_for() -> None:
    with pytest.raises(ModelError, match="cannot be written as ONNX"):
        to_onnx(Net(Complex(), 2, 2), (4,))


def test_scaling_before_a_model_whose_inner_names_are_in_the_way() -> None:
    """A received model may use any names."""
    from onnx import TensorProto, helper

    nodes = [
        helper.make_node("Flatten", ["x"], ["input"]),
        helper.make_node("MatMul", ["input", "scaling/mean"], ["scaling/scaled input"]),
        helper.make_node("Softmax", ["scaling/scaled input"], ["p"]),
    ]
    weights = np.random.default_rng(0).normal(size=(3, 2)).astype(np.float32)
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])
    found = helper.make_tensor_value_info("p", TensorProto.FLOAT, ["n", 2])
    number = helper.make_tensor("scaling/mean", TensorProto.FLOAT, (3, 2), weights.reshape(-1))
    graph = helper.make_graph(nodes, "names", [given], [found], [number])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    content = taking_raw(model.SerializeToString(), Scaling((1.0, 2.0, 3.0), (2.0, 4.0, 8.0)))
    raw = np.array([[3.0, 6.0, 11.0]], dtype=np.float32)  # scaled: 1, 1, 1
    powers = np.exp(weights.sum(0))
    [said] = onnxruntime.InferenceSession(content).run(None, {"input": raw})
    np.testing.assert_allclose(said[0], powers / powers.sum(), rtol=1e-6)


def test_what_cannot_be_read_is_an_error_of_ours() -> None:
    with pytest.raises(ModelError, match="the scaling of the inputs cannot be added to the model"):
        taking_raw(b"no model", Scaling((0.0,), (1.0,)))
