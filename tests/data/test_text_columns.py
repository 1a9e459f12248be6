"""A column of free text in a schema: hashed words that are neither filled nor scaled."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from coterie.cli.main import main
from coterie.config.sections import DataSettings
from coterie.core.errors import DataError
from coterie.data import Share
from coterie.data.own import load_own
from coterie.data.pool import pool_data
from coterie.data.preparation import Preparation
from coterie.data.schema import Schema, read_schema
from coterie.data.texts import hashed
from coterie.data.untidy import read_by_schema

SCHEMA = """
missing = ["none"]
[label]
column = "label"
classes = ["ill", "well"]
[columns.age]
type = "number"
mean = 50
deviation = 10
[columns.note]
type = "text"
features = 8
[columns.sex]
type = "category"
values = ["f", "m"]
"""
TABLE = """age,note,sex,label
40,Chest pain,f,ill
60,none,m,well
50,"no pain, no cough",f,well
70,,m,ill
"""


@pytest.fixture
def schema(tmp_path: Path) -> Schema:
    (tmp_path / "schema.toml").write_text(SCHEMA)
    return read_schema(tmp_path / "schema.toml")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    (tmp_path / "t.csv").write_text(TABLE)
    return tmp_path / "t.csv"


def test_a_text_becomes_hashed_words_and_zeros_where_it_is_missing(schema: Schema, table: Path) -> None:
    coded = read_by_schema(table, schema)
    expected = hashed(["Chest pain", "", "no pain, no cough", ""], 8)
    assert not expected[[1, 3]].any()
    np.testing.assert_array_equal(coded.x[:, 1:9], expected)
    assert coded.x[:, 0].tolist() == [40, 60, 50, 70]
    assert coded.x[:, 9].tolist() == [0, 1, 0, 1]
    assert coded.reading.lines() == ["missing texts: note 2; their features are 0"]
    features = Preparation.fitted(schema, coded.x).features(coded.x)
    np.testing.assert_array_equal(features[:, 1:9], expected)
    assert features.shape == (4, len(schema.features)) == (4, 1 + 8 + 4)
    assert schema.features[1] == "note hash 0"


def test_an_optional_text_that_a_file_lacks_is_zeros(tmp_path: Path) -> None:
    (tmp_path / "schema.toml").write_text(SCHEMA.replace("features = 8", "optional = true"))
    (tmp_path / "t.csv").write_text("age,sex,label\n40,f,ill\n")
    schema = read_schema(tmp_path / "schema.toml")
    coded = read_by_schema(tmp_path / "t.csv", schema)
    assert coded.x.shape == (1, 1 + 64 + 1)  # 64 by default
    assert not coded.x[:, 1:65].any()
    assert coded.reading.absent == ("note",)


@pytest.mark.parametrize(("scale", "age"), [("standard", [-1.0, 0.0, 1.0]), ("schema", [-1.0, 0.0, 1.0])])
def test_only_measurements_are_scaled(schema: Schema, tmp_path: Path, scale: str, age: list[float]) -> None:
    """The ages 50 - d, 50, 50 + d with d = sqrt(3 / 2) * 10 have the mean 50 and the deviation 10, the agreed ones."""
    d = np.sqrt(1.5) * 10
    rows = [f"{50 + sign * d},chest pain {sign},{sex},{label}" for sign, sex, label in
            ((-1, "f", "ill"), (0, "m", "well"), (1, "x", "ill"))]  # fmt: skip
    (tmp_path / "t.csv").write_text("age,note,sex,label\n" + "\n".join(rows) + "\n")
    dataset = load_own(tmp_path / "t.csv", "label", schema=schema)
    share = Share(np.arange(3), np.arange(0), np.arange(0))
    pooled = pool_data(dataset, [share], replace(DataSettings(), scale=scale))
    np.testing.assert_allclose(pooled.x[:, 0], np.array(age) * np.sqrt(1.5), atol=1e-6)
    np.testing.assert_allclose(pooled.x[:, 1:9], dataset.x[:, 1:9], atol=1e-7)
    assert pooled.x[:, 9:].tolist() == [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]]


def test_a_schema_with_text_survives_json_and_its_features_are_agreed_on(schema: Schema, tmp_path: Path) -> None:
    assert Schema.of_tree(json.loads(json.dumps(schema.tree()))) == schema
    (tmp_path / "other.toml").write_text(SCHEMA.replace("features = 8", "features = 16"))
    other = read_schema(tmp_path / "other.toml").digests()
    assert [name for name, digest in schema.digests().items() if other[name] != digest] == ["column 'note'"]


def test_a_manifest_of_a_schema_without_texts_is_still_read(schema: Schema) -> None:
    """Earlier manifests have no `features` of a column."""
    tree = schema.tree()
    tree["columns"] = [{k: v for k, v in c.items() if k != "features"} for c in tree["columns"] if c["name"] == "age"]
    assert Schema.of_tree(tree).columns == (schema.columns[0],)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("features = 8", "features = 0", r"\[columns.note\]: `features` must be a whole number from 1 to 65,536"),
        ("features = 8", "features = true", "`features` must be a whole number"),
        ("features = 8", 'features = 8\nfill = "median"', "a text has no fill"),
        ("features = 8", "features = 8\nleast = 0", "a text has no fill, indicator, range"),
        ("features = 8", 'features = 8\nvalues = ["a"]', "`values` must list"),
        ("deviation = 10", "deviation = 10\nfeatures = 3", r"\[columns.age\]: `features` is for a \"text\" column"),
        ('values = ["f", "m"]', 'values = ["f", "m"]\nleast = 0', "a category has no indicator, range"),
    ],
)
def test_a_wrong_declaration_is_explained(tmp_path: Path, old: str, new: str, message: str) -> None:
    (tmp_path / "schema.toml").write_text(SCHEMA.replace(old, new, 1))
    with pytest.raises(DataError, match=message):
        read_schema(tmp_path / "schema.toml")


def test_a_check_counts_missing_texts_without_a_word_of_them(
    schema: Schema, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert schema.texts == ("note",)
    assert main(["data", "check", str(table), "--schema", str(table.with_name("schema.toml"))]) == 0
    said = capsys.readouterr().out
    assert "4 rows, 3 columns, 13 features" in said
    assert "missing texts: note 2; their features are 0" in said
    assert "pain" not in said.lower()
    assert main(["data", "check", str(table), "--schema", str(table.with_name("schema.toml")), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["missing_texts"] == {"note": 2}
