"""Exports networks as ONNX, and adds the scaling of their inputs and outputs."""

from __future__ import annotations

import io
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from coterie.core.errors import ModelError, first_line
from coterie.core.task import answers
from coterie.data.scaling import Scaling

if TYPE_CHECKING:
    from coterie.core.net import Net

INPUT, OUTPUT, NUMBER = "input", "probabilities", "prediction"
# torch's exporter and Python's warning filters are process-wide.
_ONE_AT_A_TIME = threading.Lock()
OPSET = 17
# The tracing exporter takes 0.1 to 3 s for an architecture of the zoo; the newer one (dynamo) takes 7 s for a ResNet-8,
# and writes to standard error. Warnings of the tracing exporter to suppress:
WARNINGS = (
    (DeprecationWarning, "You are using the legacy TorchScript-based ONNX export"),
    (DeprecationWarning, "The feature will be removed"),
    # group norm reads its input's shape, of which only the batch size varies
    (torch.jit.TracerWarning, "Converting a tensor to a Python boolean"),  # type: ignore[attr-defined]
)


class _Answers(nn.Module):
    def __init__(self, net: Net) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        return answers(self.net(x).logits)


def to_onnx(net: Net, input_shape: Sequence[int]) -> bytes:
    """An ONNX file: float32 (N, *input_shape) as "input" to "probabilities" (N, classes), for any N.

    A network that predicts a number has the output (N, 1), scaled; `giving_numbers` turns it back.
    Its inputs are scaled, too: `taking_raw` makes it take raw values (pixels from 0 to 255, the numbers of a table).
    """
    module = _Answers(net).eval()
    device = next(net.parameters()).device
    samples = torch.zeros(2, *input_shape, device=device)  # torch would make a batch of one a constant
    written: Any = io.BytesIO()  # torch's type hints only allow paths
    varies = {name: {0: "N"} for name in (INPUT, OUTPUT)}
    try:
        with _ONE_AT_A_TIME, _quiet():
            torch.onnx.export(
                module, (samples,), written, dynamo=False, opset_version=OPSET,
                input_names=[INPUT], output_names=[OUTPUT], dynamic_axes=varies,
            )  # fmt: skip
    except Exception as error:  # the exporter raises many kinds of errors, and the user's module any
        raise ModelError(f"the network cannot be written as ONNX: {str(error).strip().splitlines()[0]}") from error
    content: bytes = written.getvalue()
    return content


@contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        for kind, message in WARNINGS:
            warnings.filterwarnings("ignore", message, kind)
        yield


def taking_raw(content: bytes, scaling: Scaling) -> bytes:
    """The same model for raw values: scaling is prepended. Its input is then named "input"."""
    import onnx

    try:
        model = onnx.load_model_from_string(content)
        _begin_with(model, scaling)
        onnx.checker.check_model(model)
    except Exception as error:  # the model is untrusted, and onnx's errors have no common class
        raise ModelError(f"the scaling of the inputs cannot be added to the model: {first_line(error)}") from error
    return bytes(model.SerializeToString())


def _begin_with(model: Any, scaling: Scaling) -> None:
    from onnx import helper

    graph = model.graph
    constants = {tensor.name for tensor in graph.initializer}
    [given] = [value for value in graph.input if value.name not in constants]
    mark = _unused(graph)
    if given.name != INPUT:
        _rename(graph, INPUT, f"{mark}{INPUT}")  # another tensor inside may have this name
    _rename(graph, given.name, f"{mark}scaled input")
    given.name = INPUT
    nodes, numbers = _scaling_nodes(scaling, len(given.type.tensor_type.shape.dim), mark)
    rest = list(graph.node)
    del graph.node[:]
    graph.node.extend([*nodes, *rest])
    graph.initializer.extend(numbers)
    if not any(opset.domain in ("", "ai.onnx") for opset in model.opset_import):
        model.opset_import.append(helper.make_opsetid("", OPSET))


def giving_numbers(content: bytes, label_scaling: Scaling) -> bytes:
    """The same model with its predicted numbers in the unit of the label, as output "prediction" (N, 1)."""
    import onnx
    from onnx import TensorProto, helper

    try:
        model = onnx.load_model_from_string(content)
        graph = model.graph
        [given] = graph.output
        mark = _unused(graph)
        mean, deviation, exact, spread, number = (f"{mark}label {i}" for i in range(5))
        numbers = {mean: label_scaling.mean, deviation: label_scaling.deviation}
        graph.initializer.extend(helper.make_tensor(n, TensorProto.DOUBLE, (1,), v) for n, v in numbers.items())
        graph.node.extend(
            [
                helper.make_node("Cast", [given.name], [exact], to=TensorProto.DOUBLE),
                helper.make_node("Mul", [exact, deviation], [spread]),
                helper.make_node("Add", [spread, mean], [number]),
                helper.make_node("Cast", [number], [NUMBER], to=TensorProto.FLOAT),
            ]
        )
        given.name = NUMBER
        onnx.checker.check_model(model)
    except Exception as error:  # the model is untrusted, and onnx's errors have no common class
        raise ModelError(f"the unit of the label cannot be added to the model: {first_line(error)}") from error
    return bytes(model.SerializeToString())


def _unused(graph: Any) -> str:
    """A prefix that no name in the graph has."""
    names = {name for node in graph.node for name in (*node.input, *node.output, node.name)}
    names |= {tensor.name for tensor in graph.initializer}
    mark = "scaling/"
    while any(name.startswith(mark) for name in names):
        mark += "/"
    return mark


def _scaling_nodes(scaling: Scaling, dimensions: int, mark: str) -> tuple[list[Any], list[Any]]:
    """Nodes that compute `Scaling`: images (anything of 4 dimensions) in single precision, the rest in double."""
    from onnx import TensorProto, helper

    kind = TensorProto.FLOAT if dimensions == 4 else TensorProto.DOUBLE
    shape = (len(scaling.mean),) + (1,) * (dimensions - 2)
    mean, deviation, raw, centred, scaled = (
        f"{mark}{name}" for name in ("mean", "deviation", "raw", "centred", "scaled")
    )
    numbers = [
        helper.make_tensor(mean, kind, shape, scaling.mean),
        helper.make_tensor(deviation, kind, shape, scaling.deviation),
    ]
    nodes = [
        helper.make_node("Cast", [INPUT], [raw], to=kind),
        helper.make_node("Sub", [raw, mean], [centred]),
        helper.make_node("Div", [centred, deviation], [scaled]),
        helper.make_node("Cast", [scaled], [f"{mark}scaled input"], to=TensorProto.FLOAT),
    ]
    return nodes, numbers


def _rename(graph: Any, before: str, after: str) -> None:
    """Rename a tensor in the graph and its subgraphs, but not the graph's input itself."""
    for node in graph.node:
        for names in (node.input, node.output):
            for place, name in enumerate(names):
                if name == before:
                    names[place] = after
        for attribute in node.attribute:
            for inner in [attribute.g, *attribute.graphs]:
                _rename(inner, before, after)
    for named in (*graph.initializer, *graph.output):
        if named.name == before:
            named.name = after
