"""What is refused before anything runs it, and the reason given."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable

import onnx
import pytest
import torch
from onnx import ModelProto, TensorProto, helper
from portable_support import CLASSES, FEATURES, digest_of, end, endless, linear, model, node, tensor
from torch import nn

from coterie.models.zoo import ModelSettings, build, names
from coterie.portable.checks import check
from coterie.portable.sandbox import Sandbox

LARGEST = 10**6


def reason(what: ModelProto | bytes, shape: tuple[int, ...] = (FEATURES,), classes: int = CLASSES) -> str:
    return check(what if isinstance(what, bytes) else what.SerializeToString(), shape, classes, LARGEST)


def test_a_model_without_fault() -> None:
    assert reason(linear()) == ""


# -- bytes ---------------------------------------------------------------------------------------


def test_too_large() -> None:
    content = linear().SerializeToString()
    assert check(content, (FEATURES,), CLASSES, len(content)) == ""
    assert check(content, (FEATURES,), CLASSES, len(content) - 1) == (
        f"it has {len(content):,} bytes; at most {len(content) - 1:,} are accepted"
    )


@pytest.mark.parametrize("content", [b"", b"\x00", b"ORTM" * 50, bytes(range(256)) * 40, b"\x80\x04]q\x00.", b"{}"])
def test_bytes_that_are_no_model(content: bytes) -> None:
    assert reason(content).startswith("it is not an ONNX model")


def test_a_truncated_model() -> None:
    whole = linear()
    content = whole.SerializeToString()
    after_the_graph = sum(2 + len(opset.SerializeToString()) for opset in whole.opset_import)
    assert all(reason(content[:length]) for length in range(len(content) - after_the_graph))


def test_graphs_within_graphs_without_end() -> None:
    deep = b""
    for _ in range(300):  # attribute g = graph of one node with that attribute
        inner = b"\x2a" + _varint(len(deep) + 1 + len(_varint(len(deep)))) + b"\x32" + _varint(len(deep)) + deep
        deep = b"\x0a" + _varint(len(inner)) + inner
    assert reason(b"\x3a" + _varint(len(deep)) + deep).startswith("it is not an ONNX model")


def _varint(number: int) -> bytes:
    low, rest = number & 127, number >> 7
    return bytes([low | 128]) + _varint(rest) if rest else bytes([low])


# -- what it is made of --------------------------------------------------------------------------


def passwords(where: TensorProto) -> None:
    """The tensor's data are those of /etc/passwd."""
    where.data_location = TensorProto.EXTERNAL
    where.external_data.add(key="location", value="/etc/passwd")
    where.ClearField("raw_data")


def in_an_initializer(bad: ModelProto) -> None:
    passwords(bad.graph.initializer[0])


def in_an_attribute(bad: ModelProto) -> None:
    constant = helper.make_node("Constant", [], ["c"], value=tensor("w", [1.0]))
    passwords(constant.attribute[0].t)
    bad.graph.node.append(constant)


def in_a_list_of_an_attribute(bad: ModelProto) -> None:
    passwords(bad.graph.node[0].attribute.add(name="many", tensors=[tensor("w", [1.0])]).tensors[0])


def in_a_graph_of_an_attribute(bad: ModelProto) -> None:
    attribute = bad.graph.node[0].attribute.add(name="inner")
    passwords(attribute.g.initializer.add(name="w"))


def in_a_function(bad: ModelProto) -> None:
    constant = helper.make_node("Constant", [], ["c"], value=tensor("w", [1.0]))
    passwords(constant.attribute[0].t)
    bad.functions.append(helper.make_function("evil", "f", [], ["c"], [constant], [helper.make_opsetid("", 17)]))


def in_a_sparse_tensor(bad: ModelProto) -> None:
    passwords(bad.graph.sparse_initializer.add().values)


def in_what_is_for_training(bad: ModelProto) -> None:
    passwords(bad.training_info.add().algorithm.initializer.add(name="w"))


@pytest.mark.parametrize(
    "hide",
    [
        in_an_initializer,
        in_an_attribute,
        in_a_list_of_an_attribute,
        in_a_graph_of_an_attribute,
        in_a_function,
        in_a_sparse_tensor,
        in_what_is_for_training,
    ],
)
def test_data_of_another_file(hide: Callable[[ModelProto], None]) -> None:
    bad = linear()
    hide(bad)
    found = reason(bad)
    assert found == "its tensor 'w' is in another file; all data must be in the model" or found.startswith(
        ("its attribute 'inner' holds a graph", "it defines its own function 'f'", "it has a sparse tensor")
    )


@pytest.mark.parametrize(
    ("bad", "expected"),
    [
        (endless(), "it uses the operator 'Loop', which is not accepted"),
        (model([node("Relu", "x", "p", domain="evil")]), "it uses operators of the domain 'evil'; only ai.onnx and"),
        (model([node("RandomNormalLike", "x", "p")]), "it uses the operator 'RandomNormalLike', which is not"),
        (model([node("Boom\n\x1b[31m" + "m" * 99, "x", "p")]), r"it uses the operator 'Boom\n\x1b[31mm"),
    ],
)
def test_operators(bad: ModelProto, expected: str) -> None:
    found = reason(bad)
    assert found.startswith(expected)
    assert found.isprintable()
    assert len(found) < 150


# -- whether it fits -----------------------------------------------------------------------------

NODES = [node("Identity", "x", "p")]


@pytest.mark.parametrize(
    ("bad", "expected"),
    [
        (model(NODES, inputs=[end("x", 5)]), "its input has shape (N, 5); expected is (N, 4)"),
        (model(NODES, inputs=[end("x", 1, 4)]), "its input has shape (N, 1, 4); expected is (N, 4)"),
        (model(NODES, inputs=[end("x", "any")]), "its input has shape (N, ?); expected is (N, 4)"),
        (
            model(NODES, inputs=[helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4])]),
            "its input has shape (1, 4); expected is (N, 4)",
        ),
        (
            model(NODES, inputs=[helper.make_tensor_value_info("x", TensorProto.FLOAT, None)]),
            "its input has shape (?); expected is (N, 4)",
        ),
        (
            model(NODES, inputs=[end("x", 4, dtype=TensorProto.DOUBLE)]),
            "its input is of type double; expected is float32",
        ),
        (model(NODES, inputs=[end("x", 4), end("y", 4)]), "it has 2 inputs (x, y), but must have one"),
        (model(NODES, inputs=[]), "it has 0 inputs (none), but must have one"),
        (model(NODES, outputs=[end("p", 10)]), "its output has shape (N, 10); expected is (N, 3)"),
        (model(NODES, outputs=[end("p")]), "its output has shape (N); expected is (N, 3)"),
        (model(NODES, outputs=[end("label"), end("p", 3)]), "it has 2 outputs (label, p), but must have one"),
        (
            model(NODES, outputs=[end("p", 3, dtype=TensorProto.INT64)]),
            "its output is of type int64; expected is float32",
        ),
        (
            model(NODES, outputs=[helper.make_tensor_sequence_value_info("p", TensorProto.FLOAT, ["N", 3])]),
            "its output is not a tensor",
        ),
    ],
)
def test_another_input_or_output(bad: ModelProto, expected: str) -> None:
    assert reason(bad) == expected


def test_weights_that_are_also_inputs_are_none() -> None:
    """As models were before version 4 of the format."""
    old = linear()
    old.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [FEATURES, CLASSES]))
    assert reason(old) == ""


# -- networks ------------------------------------------------------------------------------------


class Probabilities(nn.Module):
    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x).logits.softmax(1)


def exported(net: nn.Module, shape: tuple[int, ...], dynamo: bool) -> bytes:
    example, ends = torch.zeros(2, *shape), {"input_names": ["x"], "output_names": ["p"]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's exporters warn of themselves
        if dynamo:
            free = ({0: torch.export.Dim("n")},)
            made = torch.onnx.export(net, (example,), dynamo=True, dynamic_shapes=free, verbose=False, **ends)
            return made.model_proto.SerializeToString()
        file = io.BytesIO()
        torch.onnx.export(net, (example,), file, dynamo=False, dynamic_axes={"x": {0: "n"}, "p": {0: "n"}}, **ends)
        return file.getvalue()


def passes(name: str, norm: str, shape: tuple[int, ...], dynamo: bool, sandbox: Sandbox) -> None:
    blocks = ((1, 4), (4, 6)) if name == "mlp-embedding" else ()
    net = Probabilities(build(name, shape, 5, ModelSettings(norm=norm), blocks=blocks)).eval()
    content = exported(net, shape, dynamo)
    assert sandbox.check(content, digest_of(content), shape, 5, 10**8) == ""
    x = torch.randn(4, *shape, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = net(x)
    said = sandbox.answers(content, digest_of(content), x.numpy(), 5)
    torch.testing.assert_close(torch.from_numpy(said), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "norm", "shape"),
    [
        ("mlp", "none", (30,)),
        ("mlp-embedding", "none", (30,)),
        ("cnn", "group", (1, 8, 8)),
        ("resnet8", "batch", (3, 16, 16)),
        ("cnn1d", "group", (3, 9)),
        ("gru", "none", (3, 9)),
        ("transformer", "none", (3, 9)),
    ],
)
def test_networks(name: str, norm: str, shape: tuple[int, ...], sandbox: Sandbox) -> None:
    passes(name, norm, shape, False, sandbox)


@pytest.mark.slow
@pytest.mark.parametrize("dynamo", [False, True])
@pytest.mark.parametrize("norm", ["group", "batch"])
@pytest.mark.parametrize("name", names())
def test_every_network_of_the_zoo(name: str, norm: str, dynamo: bool, sandbox: Sandbox) -> None:
    others = {"cnn1d": (3, 32), "gru": (3, 32), "transformer": (3, 32), "mlp-embedding": (30,)}
    shape = others.get(name, (3, 32, 32))
    passes(name, norm, shape, dynamo, sandbox)


def test_every_operator_taken_is_one_of_onnx() -> None:
    from coterie.portable.checks import _OPERATORS

    known = {schema.name for schema in onnx.defs.get_all_schemas() if schema.domain in ("", "ai.onnx.ml")}
    assert known >= _OPERATORS
