"""The exported preparation reads a cell as a schema does: declared values, markers, and the plausible range."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from coterie.data.preparation import Preparation
from coterie.data.schema import Schema, read_schema
from coterie.data.untidy import read_by_schema
from coterie.portable.columns import taking_columns

LABEL = '[label]\ncolumn = "y"\nclasses = ["0", "1"]\n'
VALUES = 'values = ["None", "mild", "severe"]\nsynonyms = { "NA" = "mild" }\n'
CELLS = ["None", "mild", "severe", "NA", "?", "", "other", "-"]
SEVERE = 2.0  # the rank with which the preparation of these tests fills missing values


def schema_of(tmp_path: Path, column: str) -> Schema:
    (tmp_path / "schema.toml").write_text(f"{LABEL}[columns.pain]\n{column}")
    return read_schema(tmp_path / "schema.toml")


def identity(width: int) -> bytes:
    """A model that returns its inputs."""
    given, returned = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", width]) for name in ("x", "out"))
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["out"])], "identity", [given], [returned])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    content: bytes = model.SerializeToString()
    return content


def features(tmp_path: Path, schema: Schema) -> tuple[np.ndarray, np.ndarray]:
    """Of the cells, by the package and by the exported preparation."""
    preparation = Preparation(schema, (SEVERE,), (True,))
    (tmp_path / "t.csv").write_text("pain,n\n" + "".join(f"{cell},0\n" for cell in CELLS))
    coded = read_by_schema(tmp_path / "t.csv", schema, labelled=False)
    session = onnxruntime.InferenceSession(taking_columns(identity(len(schema.features)), preparation))
    [exported] = session.run(None, {"pain": np.array(CELLS, dtype=object)[:, None]})
    return preparation.features(coded.x), exported


@pytest.mark.parametrize(
    ("bounds", "ranks"),
    [
        # "None" and "NA" are declared, so they are no markers; "?", "", "other" and "-" have no rank.
        ("", [0, 1, 2, 1, SEVERE, SEVERE, SEVERE, SEVERE]),
        ("least = 1\n", [SEVERE, 1, 2, 1, SEVERE, SEVERE, SEVERE, SEVERE]),
        ("most = 0\n", [0, SEVERE, SEVERE, SEVERE, SEVERE, SEVERE, SEVERE, SEVERE]),
    ],
)
def test_an_ordered_column(tmp_path: Path, bounds: str, ranks: list[float]) -> None:
    schema = schema_of(tmp_path, f'type = "ordered"\nmissing = ["-"]\nindicator = true\n{VALUES}{bounds}')
    read, exported = features(tmp_path, schema)
    assert read[:, 0].tolist() == ranks
    np.testing.assert_array_equal(exported, read)


def test_a_category(tmp_path: Path) -> None:
    """The features are those of None, mild and severe, of an unknown value and of a missing one."""
    read, exported = features(tmp_path, schema_of(tmp_path, f'type = "category"\nmissing = ["-"]\n{VALUES}'))
    assert read.argmax(axis=1).tolist() == [0, 1, 2, 1, 4, 4, 3, 4]
    np.testing.assert_array_equal(exported, read)
