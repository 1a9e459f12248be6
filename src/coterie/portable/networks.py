"""Networks as ONNX, and the scaling of their inputs as a part of it."""

from __future__ import annotations

import io
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from coterie.data.scaling import Scaling
from coterie.errors import ModelError

if TYPE_CHECKING:
    from coterie.models import Net

INPUT, OUTPUT = "input", "probabilities"
# torch's exporter and Python's list of warnings belong to the whole process.
_ONE_AT_A_TIME = threading.Lock()
OPSET = 17
# The exporter by tracing: 0.1 to 3 s for an architecture of the zoo, where the newer one (dynamo) takes 7 s for a
# ResNet-8, and writes to standard error. What it warns of, without being asked to:
WARNINGS = (
    (DeprecationWarning, "You are using the legacy TorchScript-based ONNX export"),
    (DeprecationWarning, "The feature will be removed"),
    # group norm looks at its input's shape, of which only the batch's size may change
    (torch.jit.TracerWarning, "Converting a tensor to a Python boolean"),  # type: ignore[attr-defined]
)


class _Probabilities(nn.Module):
    def __init__(self, net: Net) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.net(x).logits
        return torch.softmax(logits, 1)


def to_onnx(net: Net, input_shape: Sequence[int], scaling: Scaling | None = None) -> bytes:
    """An ONNX file: float32 (N, *input_shape) as "input" to "probabilities" (N, classes), for any N.

    With a scaling it takes raw values (pixels from 0 to 255, a table's numbers), and scales them itself.
    """
    module = _Probabilities(net).eval()
    device = next(net.parameters()).device
    samples = torch.zeros(2, *input_shape, device=device)  # of one, torch would make a constant
    written: Any = io.BytesIO()  # (its types know only of paths)
    varies = {name: {0: "N"} for name in (INPUT, OUTPUT)}
    try:
        with _ONE_AT_A_TIME, _quiet():
            torch.onnx.export(
                module, (samples,), written, dynamo=False, opset_version=OPSET,
                input_names=[INPUT], output_names=[OUTPUT], dynamic_axes=varies,
            )  # fmt: skip
    except Exception as error:  # the exporter raises many kinds, and a module of the user's own any
        raise ModelError(f"the network cannot be written as ONNX: {str(error).strip().splitlines()[0]}") from error
    content: bytes = written.getvalue()
    return content if scaling is None else taking_raw(content, scaling)


@contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        for kind, message in WARNINGS:
            warnings.filterwarnings("ignore", message, kind)
        yield


def taking_raw(content: bytes, scaling: Scaling) -> bytes:
    """The same model for raw values: it begins with their scaling. Its input is then named "input"."""
    import onnx

    model = onnx.load_model_from_string(content)
    constants = {tensor.name for tensor in model.graph.initializer}
    [given] = [value for value in model.graph.input if value.name not in constants]
    before = given.name
    scaled = "input, scaled"
    _rename(model.graph, before, scaled)
    given.name = INPUT
    nodes, numbers = _scaling_nodes(scaling, len(given.type.tensor_type.shape.dim) == 4, scaled)
    rest = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend([*nodes, *rest])
    model.graph.initializer.extend(numbers)
    if not any(opset.domain in ("", "ai.onnx") for opset in model.opset_import):
        model.opset_import.append(onnx.helper.make_opsetid("", OPSET))
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


def _scaling_nodes(scaling: Scaling, images: bool, result: str) -> tuple[list[Any], list[Any]]:
    """Just what `Scaling` does: images in single precision, features in double."""
    from onnx import TensorProto, helper

    kind = TensorProto.FLOAT if images else TensorProto.DOUBLE
    shape = (len(scaling.mean), 1, 1) if images else (len(scaling.mean),)
    numbers = [
        helper.make_tensor("scaling.mean", kind, shape, scaling.mean),
        helper.make_tensor("scaling.deviation", kind, shape, scaling.deviation),
    ]
    nodes = [
        helper.make_node("Cast", [INPUT], ["scaling.raw"], to=kind),
        helper.make_node("Sub", ["scaling.raw", "scaling.mean"], ["scaling.centred"]),
        helper.make_node("Div", ["scaling.centred", "scaling.deviation"], ["scaling.scaled"]),
        helper.make_node("Cast", ["scaling.scaled"], [result], to=TensorProto.FLOAT),
    ]
    return nodes, numbers


def _rename(graph: Any, before: str, after: str) -> None:
    """What reads `before` now reads `after`, in the graph and in those within it."""
    for node in graph.node:
        for place, name in enumerate(node.input):
            if name == before:
                node.input[place] = after
        for attribute in node.attribute:
            for inner in [attribute.g, *attribute.graphs]:
                _rename(inner, before, after)
