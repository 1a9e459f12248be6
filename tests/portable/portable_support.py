"""Small ONNX models, good and bad, and a shared sandbox for tests that do not break it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import FunctionProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from coterie.portable.sandbox import Sandbox

FEATURES, CLASSES = 4, 3
ROWS = np.random.default_rng(0).normal(size=(50, FEATURES)).astype(np.float32)


def node(operator: str, inputs: str, outputs: str, **attributes: Any) -> NodeProto:
    return helper.make_node(operator, inputs.split(), outputs.split(), **attributes)


def tensor(name: str, values: Any, dtype: type = np.float32) -> TensorProto:
    return numpy_helper.from_array(np.asarray(values, dtype), name)


def end(name: str, *shape: int | str | None, dtype: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, dtype, ["N", *shape])


def model(
    nodes: Sequence[NodeProto],
    tensors: Sequence[TensorProto] = (),
    inputs: Sequence[Any] = (end("x", FEATURES),),
    outputs: Sequence[Any] = (end("p", CLASSES),),
    functions: Sequence[FunctionProto] = (),
) -> ModelProto:
    graph = helper.make_graph(list(nodes), "test", list(inputs), list(outputs), list(tensors))
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3), helper.make_opsetid("evil", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8, functions=list(functions))


def linear(seed: int = 0) -> ModelProto:
    """Softmax of a linear map: a model without fault."""
    weights = np.random.default_rng(seed).normal(size=(FEATURES, CLASSES))
    return model([node("MatMul", "x w", "z"), node("Softmax", "z", "p")], [tensor("w", weights)])


def endless() -> ModelProto:
    """It counts to 2**62, and would then answer."""
    body = helper.make_graph(
        [node("Identity", "going", "still"), node("Identity", "carried", "carries")],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("going", TensorProto.BOOL, []),
            helper.make_tensor_value_info("carried", TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("still", TensorProto.BOOL, []),
            helper.make_tensor_value_info("carries", TensorProto.FLOAT, None),
        ],
    )
    nodes = [node("MatMul", "x w", "z"), node("Softmax", "z", "s"), node("Loop", "often go s", "p", body=body)]
    return model(
        nodes, [tensor("w", np.ones((FEATURES, CLASSES))), tensor("often", 2**62, np.int64), tensor("go", True, bool)]
    )


def huge() -> ModelProto:
    """It makes a tensor of 400 GB; every operator is accepted."""
    nodes = [
        node("ReduceMean", "x", "one", keepdims=0),
        node("Expand", "one sizes", "much"),
        node("ReduceMax", "much", "most", keepdims=0),
        node("MatMul", "x w", "z"),
        node("Add", "z most", "moved"),
        node("Softmax", "moved", "p"),
    ]
    return model(nodes, [tensor("sizes", [10**6, 10**5], np.int64), tensor("w", np.ones((FEATURES, CLASSES)))])


def digest_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def run(sandbox: Sandbox, what: ModelProto | bytes, x: np.ndarray = ROWS, classes: int = CLASSES) -> np.ndarray:
    content = what if isinstance(what, bytes) else what.SerializeToString()
    return sandbox.answers(content, digest_of(content), x, classes)
