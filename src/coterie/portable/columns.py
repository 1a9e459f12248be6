"""Puts a peer's preparation in front of its ONNX model, so that a raw row goes in: one named input for each column."""

from __future__ import annotations

from typing import Any

import numpy as np

from coterie.core.errors import ModelError, first_line
from coterie.data.preparation import Preparation
from coterie.data.schema import INDICATOR, NUMBER, Column, Schema, tidy

FEATURES, ROWS = "coterie.features", "N"  # a column may be called features
ML, ML_VERSION = "ai.onnx.ml", 3  # the domain of LabelEncoder


def taking_columns(content: bytes, preparation: Preparation) -> bytes:
    """The same model with an input (N, 1) for each column of the schema, by its name: texts for categories, numbers
    for everything else (a date as years since its origin), with NaN where missing."""
    import onnx
    from onnx import compose

    try:
        model = onnx.load_model_from_string(content)
        front = _front(preparation, model)
        whole = compose.merge_models(front, model, [(FEATURES, model.graph.input[0].name)], prefix1="columns/")
        _rename_inputs(whole, "columns/")
        onnx.checker.check_model(whole)
    except Exception as error:  # onnx raises many kinds of errors
        raise ModelError(f"the preparation of the columns cannot be added to the model: {first_line(error)}") from error
    merged: bytes = whole.SerializeToString()
    return merged


def _front(preparation: Preparation, model: Any) -> Any:
    """The graph from columns to features, with the versions of the model that it is put in front of."""
    from onnx import TensorProto, helper

    graph = _Graph()
    outputs = [
        name
        for i, column in enumerate(preparation.schema.columns)
        for name in _nodes(graph, preparation.schema, column, preparation.fills[i], preparation.seen[i])
    ]
    graph.add("Concat", outputs, FEATURES, axis=1)
    width = len(preparation.schema.features)
    made = helper.make_graph(
        graph.nodes, "preparation", graph.inputs,
        [helper.make_tensor_value_info(FEATURES, TensorProto.FLOAT, [ROWS, width])], graph.constants,
    )  # fmt: skip
    versions = {imported.domain: imported.version for imported in model.opset_import}
    versions.setdefault(ML, ML_VERSION)
    imports = [helper.make_opsetid(domain, version) for domain, version in versions.items()]
    return helper.make_model(made, opset_imports=imports, ir_version=model.ir_version)


class _Graph:
    """Collects the nodes of a graph."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.inputs: list[Any] = []
        self.constants: list[Any] = []

    def input(self, name: str, *, text: bool) -> str:
        from onnx import TensorProto, helper

        kind = TensorProto.STRING if text else TensorProto.FLOAT
        self.inputs.append(helper.make_tensor_value_info(name, kind, [ROWS, 1]))
        return name

    def constant(self, *values: float) -> str:
        from onnx import numpy_helper

        name = f"constant {len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.array([values], dtype=np.float32), name))
        return name

    def add(self, operator: str, inputs: list[str], output: str = "", **attributes: Any) -> str:
        from onnx import helper

        output = output or f"step {len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [output], **attributes))
        return output

    def as_numbers(self, condition: str) -> str:
        from onnx import TensorProto

        return self.add("Cast", [condition], to=TensorProto.FLOAT)


def _nodes(graph: _Graph, schema: Schema, column: Column, fill: float, seen: bool) -> list[str]:
    """The outputs (N, features of the column) of its nodes."""
    if column.is_category:
        return [_indicators(graph, schema, column, fill)]
    given = _encoded(graph, schema, column, np.nan, np.nan) if column.values else graph.input(column.name, text=False)
    missing = _missing(graph, schema, column, given)
    replaced = missing if seen else graph.add("Or", [missing, graph.add("Not", [missing])])
    filled = graph.add("Where", [replaced, graph.constant(fill), given])
    return [filled, graph.as_numbers(missing)] if column.indicator else [filled]


def _missing(graph: _Graph, schema: Schema, column: Column, given: str) -> str:
    """Whether a number, a rank or a date is missing, or counts as missing."""
    conditions = [graph.add("IsNaN", [given])]
    if column.least is not None:
        conditions.append(graph.add("Less", [given, graph.constant(column.least)]))
    if column.most is not None:
        conditions.append(graph.add("Greater", [given, graph.constant(column.most)]))
    if column.type == NUMBER:
        marks = sorted({float(mark) for mark in schema.markers(column) if _is_number(mark)})
        conditions += [graph.add("Equal", [given, graph.constant(mark)]) for mark in marks]
    missing = conditions[0]
    for condition in conditions[1:]:
        missing = graph.add("Or", [missing, condition])
    return missing


def _indicators(graph: _Graph, schema: Schema, column: Column, fill: float) -> str:
    unknown = float(len(column.values))
    encoded = _encoded(graph, schema, column, unknown + 1 if column.filled_by == INDICATOR else fill, unknown)
    numbers = graph.constant(*map(float, range(len(column.feature_names))))
    return graph.as_numbers(graph.add("Equal", [encoded, numbers]))


def _encoded(graph: _Graph, schema: Schema, column: Column, missing: float, unknown: float) -> str:
    """The numbers of the declared values; `missing` for markers, and `unknown` for all other texts."""
    codes = {value: float(i) for i, value in enumerate(column.values)}
    codes |= {spelling: codes[value] for spelling, value in column.synonyms.items()}
    codes |= dict.fromkeys(sorted(schema.markers(column)), missing)
    return graph.add(
        "LabelEncoder", [graph.input(column.name, text=True)], domain=ML, keys_strings=list(codes),
        values_floats=list(codes.values()), default_float=unknown,
    )  # fmt: skip


def _is_number(text: str) -> bool:
    try:
        return bool(np.isfinite(float(tidy(text))))
    except ValueError:
        return False


def _rename_inputs(model: Any, prefix: str) -> None:
    """Give the inputs the names of their columns: merging has prefixed all names, so that none clashes."""
    names = {given.name: given.name.removeprefix(prefix) for given in model.graph.input}
    for given in model.graph.input:
        given.name = names[given.name]
    for node in model.graph.node:
        for i, name in enumerate(node.input):
            node.input[i] = names.get(name, name)
