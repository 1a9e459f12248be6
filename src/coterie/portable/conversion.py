"""Converts fitted scikit-learn estimators to ONNX: inputs (N, *input_shape) to probabilities of all classes, or to
numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from skl2onnx import convert_sklearn
from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType
from skl2onnx.helpers.onnx_helper import select_model_inputs_outputs
from skl2onnx.operator_converters.random_forest import (
    convert_sklearn_random_forest_classifier,
    convert_sklearn_random_forest_regressor_converter,
)
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.naive_bayes import GaussianNB

from coterie.core.errors import ModelError, first_line
from coterie.core.task import OF_A_NUMBER
from coterie.portable.checks import LARGEST, check
from coterie.portable.worker import open_session

Shape = tuple[int, ...]

# Fixed, so that the bytes do not depend on installed versions, and older onnxruntimes can read them.
_OPSETS = {"": 17, "ai.onnx.ml": 3}
_IR_VERSION = 8
_ROWS_TO_COMPARE = 256
# On average: rounding in a pipeline may move a row that is on a tree's threshold to the other side.
_FARTHEST_OFF = 1e-3


def convert(name: str, estimator: Any, rows: np.ndarray, input_shape: Shape, classes: int) -> bytes:
    """The classifier as ONNX, compared with the original on some of the rows that it was fitted to."""
    present = np.asarray(estimator.classes_)
    spread = np.zeros((len(present), classes), np.float32)
    spread[np.arange(len(present)), present] = 1
    content = _checked(name, estimator, spread, rows.shape[1], input_shape)
    some = rows[:_ROWS_TO_COMPARE]
    expected = estimator.predict_proba(some.astype(np.float64))
    _compare(name, estimator, _run(content, some, input_shape)[:, present], expected)
    return content


def convert_regressor(name: str, estimator: Any, rows: np.ndarray, input_shape: Shape) -> bytes:
    """The regressor as ONNX, compared with the original."""
    content = _checked(name, estimator, np.ones((1, OF_A_NUMBER), np.float32), rows.shape[1], input_shape)
    some = rows[:_ROWS_TO_COMPARE]
    expected = estimator.predict(some.astype(np.float64)).reshape(-1, OF_A_NUMBER)
    scale = max(float(np.abs(expected).max()), 1.0)
    _compare(name, estimator, _run(content, some, input_shape) / scale, expected / scale)
    return content


def _checked(name: str, estimator: Any, spread: np.ndarray, features: int, input_shape: Shape) -> bytes:
    try:
        graph = _converted(estimator, features).graph
    except Exception as error:  # skl2onnx may raise anything
        raise ModelError(
            f"model.zoo: '{name}' ({type(estimator).__name__}) cannot be converted to ONNX: {first_line(error)}; "
            "convert it yourself, and give the .onnx file in model.zoo"
        ) from error
    content = _with_ends(graph, spread, input_shape)
    reason = check(content, input_shape, spread.shape[1], LARGEST)
    if reason:
        raise ModelError(f"model.zoo: peers would not accept '{name}' ({type(estimator).__name__}) as ONNX: {reason}")
    return content


def constant(always: int, input_shape: Shape, classes: int) -> bytes:
    """A model that always predicts one class, the only one in its training data."""
    certain = np.eye(classes, dtype=np.float32)[always : always + 1]
    nodes = [
        helper.make_node("Shape", ["x"], ["rows"], end=1),
        helper.make_node("Concat", ["rows", "one"], ["shape"], axis=0),
        helper.make_node("Expand", ["certain", "shape"], ["p"]),
    ]
    tensors = [numpy_helper.from_array(certain, "certain"), numpy_helper.from_array(np.array([1]), "one")]
    return _model(nodes, tensors, input_shape, classes)


def _converted(estimator: Any, features: int) -> onnx.ModelProto:
    # Naive Bayes adds up exponents of millions if a pixel hardly varies: single precision would lose them.
    precision = DoubleTensorType if isinstance(estimator, GaussianNB) else FloatTensorType
    classifies = hasattr(estimator, "classes_")
    both: onnx.ModelProto = convert_sklearn(
        estimator,
        initial_types=[("features", precision([None, features]))],
        options={id(estimator): {"zipmap": False}} if classifies else None,
        target_opset=_OPSETS,
        custom_conversion_functions={
            HistGradientBoostingClassifier: _convert_boosting,
            HistGradientBoostingRegressor: _convert_boosting,
        },
    )
    if not classifies:
        return both
    label_and_probabilities = [output.name for output in both.graph.output]
    probabilities: onnx.ModelProto = select_model_inputs_outputs(both, outputs=[label_and_probabilities[1]])
    return probabilities


def _with_ends(graph: onnx.GraphProto, spread: np.ndarray, input_shape: Shape) -> bytes:
    """The graph with a first step that flattens inputs, and a last one that gives every class its column: `spread`, of
    shape (outputs of the graph, outputs)."""
    nodes = [
        helper.make_node("Flatten", ["x"], ["coterie.flat"]),
        helper.make_node("Cast", ["coterie.flat"], [graph.input[0].name], to=graph.input[0].type.tensor_type.elem_type),
        *graph.node,
        helper.make_node("Cast", [graph.output[0].name], ["coterie.single"], to=TensorProto.FLOAT),
        helper.make_node("MatMul", ["coterie.single", "coterie.spread"], ["p"]),
    ]
    tensors = [*graph.initializer, numpy_helper.from_array(spread, "coterie.spread")]
    return _model(nodes, tensors, input_shape, spread.shape[1])


def _model(nodes: list[onnx.NodeProto], tensors: list[TensorProto], input_shape: Shape, classes: int) -> bytes:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", *input_shape])
    p = helper.make_tensor_value_info("p", TensorProto.FLOAT, ["N", classes])
    graph = helper.make_graph(nodes, "coterie", [x], [p], tensors)
    opsets = [helper.make_opsetid(domain, version) for domain, version in _OPSETS.items()]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION, producer_name="coterie")
    content: bytes = model.SerializeToString(deterministic=True)
    return content


def _convert_boosting(scope: Any, operator: Any, container: Any) -> None:
    """skl2onnx's converter without two bugs: it rounds thresholds to nearest, and passes False as an integer."""
    for trees in operator.raw_operator._predictors:
        for tree in trees:
            tree.nodes["num_threshold"] = _rounded_down(tree.nodes["num_threshold"])
    is_classifier = hasattr(operator.raw_operator, "classes_")
    converter = (
        convert_sklearn_random_forest_classifier if is_classifier else convert_sklearn_random_forest_regressor_converter
    )
    converter(scope, operator, _WholeNumbers(container), op_version=_OPSETS["ai.onnx.ml"])


def _rounded_down(thresholds: np.ndarray) -> np.ndarray:
    """The next float32 that is not larger, so that the same float32 values are below the threshold."""
    nearest = thresholds.astype(np.float32)
    return np.where(nearest > thresholds, np.nextafter(nearest, np.float32(-np.inf)), nearest)


class _WholeNumbers:
    """A container of skl2onnx that converts booleans to integers where ONNX requires them."""

    def __init__(self, container: Any) -> None:
        self._container = container

    def __getattr__(self, name: str) -> Any:
        return getattr(self._container, name)

    def add_node(self, *args: Any, **attributes: Any) -> None:
        key = "nodes_missing_value_tracks_true"
        self._container.add_node(*args, **{**attributes, key: [int(goes_left) for goes_left in attributes[key]]})


def _run(content: bytes, rows: np.ndarray, input_shape: Shape) -> np.ndarray:
    (answers,) = open_session(content).run(None, {"x": rows.reshape(len(rows), *input_shape)})
    return np.asarray(answers)


def _compare(name: str, estimator: Any, converted: np.ndarray, expected: np.ndarray) -> None:
    """Raise ModelError if the converted model differs: skl2onnx silently drops, for example, categories in boosting."""
    off = np.abs(converted - expected).max(1).mean()
    if not off <= _FARTHEST_OFF:
        raise ModelError(
            f"model.zoo: '{name}' ({type(estimator).__name__}) gives other predictions as ONNX: they are off by "
            f"{off:.2g} on average; convert it yourself, and give the .onnx file in model.zoo"
        )
