"""What `coterie data check` says about labels, useless columns and files in other forms."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas
import pytest

from coterie.cli.main import main
from coterie.core.errors import DataError
from coterie.data.labels import read_labels_as
from coterie.data.schema import read_schema
from coterie.data.untidy import read_by_schema

NUMBER = (
    '[label]\ncolumn = "dose"\ntype = "number"\nleast = 0\nmost = 100\n[columns.age]\ntype = "number"\nmost = 120\n'
)
CLASSES = '[label]\ncolumn = "ill"\nclasses = ["no", "yes"]\n[columns.sex]\ntype = "category"\nvalues = ["f", "m"]\n'


def check(tmp_path: Path, schema: str, table: str, name: str = "t.csv") -> int:
    (tmp_path / "schema.toml").write_text(schema)
    (tmp_path / name).write_text(table)
    return main(["data", "check", str(tmp_path / name), "--schema", str(tmp_path / "schema.toml")])


def test_labels_outside_of_their_range_are_not_called_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(tmp_path, NUMBER, "dose,age\n5,50\n500,50\n700,60\n,50\n") == 0
    said = capsys.readouterr().out
    assert "1 row without a label left out" in said
    assert "2 rows with a label outside of its plausible range left out" in said


def test_labels_that_cannot_be_read_are_not_called_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(tmp_path, CLASSES, "ill,sex\nno,f\nperhaps,m\n,m\n") == 1
    said = capsys.readouterr().out
    assert "1 row without a label left out" in said
    assert "neither a class nor a synonym in 1 row" in said


def test_a_column_without_a_usable_cell_is_warned_about(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(tmp_path, CLASSES, "ill,sex\nno,F\nyes,M\n") == 0
    assert "WARNING: column 'sex': no cell is usable" in capsys.readouterr().out
    assert check(tmp_path, NUMBER, "dose,age\n5,500\n6,700\n7,\n") == 0
    assert "WARNING: column 'age': no cell is usable" in capsys.readouterr().out


def test_a_file_without_rows_does_not_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(tmp_path, CLASSES, "ill,sex\n") == 1
    assert "it does not fit: it has no row with a label" in capsys.readouterr().out


def test_a_synonym_must_not_be_a_declared_value(tmp_path: Path) -> None:
    (tmp_path / "schema.toml").write_text(
        CLASSES.replace('["no", "yes"]', '["no", "yes"]\nsynonyms = { "no" = "yes" }')
    )
    with pytest.raises(DataError, match="'no' is declared itself: it cannot stand for 'yes'"):
        read_schema(tmp_path / "schema.toml")


def test_a_list_in_an_undeclared_column_of_a_parquet_file_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "schema.toml").write_text(CLASSES)
    table = pandas.DataFrame({"ill": ["no", "yes"], "sex": ["f", None], "scan": [[1, 2], [3]]})
    table.to_parquet(tmp_path / "t.parquet")
    coded = read_by_schema(tmp_path / "t.parquet", read_schema(tmp_path / "schema.toml"))
    assert coded.reading.extra == ("scan",)
    assert coded.reading.missing == {"sex": 1}


def test_another_encoding_is_named(tmp_path: Path) -> None:
    (tmp_path / "schema.toml").write_text(CLASSES)
    (tmp_path / "t.csv").write_bytes("ill,sex\nno,f\nyes,Männer\n".encode("latin-1"))
    with pytest.raises(DataError, match="is not in UTF-8: save it as CSV in UTF-8"):
        read_by_schema(tmp_path / "t.csv", read_schema(tmp_path / "schema.toml"))


def test_a_site_may_have_equal_numbers_as_labels() -> None:
    y, classes = read_labels_as("regression", "t.csv", "column 'y'", np.full(4, 50.0))
    assert (y == 50).all()
    assert classes == ()
