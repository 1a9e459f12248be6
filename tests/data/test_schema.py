"""Untidy tables are read by a declared schema; what was done to their rows is reported, without a cell's value."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.cli.main import main
from coterie.core.errors import DataError
from coterie.data.drafting import draft
from coterie.data.own import load_own
from coterie.data.preparation import Preparation, suspicious_features
from coterie.data.row_columns import RowColumns
from coterie.data.scaling import Scaling
from coterie.data.schema import Schema, read_schema, tidy
from coterie.data.untidy import read_by_schema

SCHEMA = """
missing = ["?", "-9"]

[label]
column = "outcome"
classes = ["benign", "malignant"]
synonyms = { "B" = "benign", "M" = "malignant" }

[columns.age]
type = "number"
least = 0
most = 120
mean = 50
deviation = 10

[columns.sex]
type = "category"
values = ["f", "m"]
synonyms = { "w" = "f" }

[columns.stage]
type = "ordered"
values = ["low", "high"]
mean = 0.5
deviation = 0.5

[columns.seen]
type = "date"
origin = 2000-01-01
optional = true
indicator = true
mean = 20
deviation = 5

[columns.note]
type = "ignore"
"""


@pytest.fixture
def schema(tmp_path: Path) -> Schema:
    (tmp_path / "schema.toml").write_text(SCHEMA)
    return read_schema(tmp_path / "schema.toml")


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


TIDY = """age,sex,stage,seen,note,outcome
50,f,low,2000-01-01,a,benign
60,m,high,2001-01-01,b,malignant
?,f,low,,c,benign
"""
# The same rows: other order, ';', decimal commas, blanks, a byte order mark, an extra column, synonyms, no dates.
UNTIDY = """\ufeffoutcome; stage;sex;age;ward
B;low;w; 50,0 ;7
M;high;m;60;8
B;low;f;-9;9
"""


def test_the_same_rows_from_a_tidy_and_an_untidy_file(tmp_path: Path, schema: Schema) -> None:
    """2001-01-01 is 366 days after 2000-01-01, a leap year: 366 / 365.25 years."""
    first = read_by_schema(write(tmp_path / "tidy.csv", TIDY), schema)
    second = read_by_schema(write(tmp_path / "untidy.csv", UNTIDY), schema)
    nan = np.nan
    np.testing.assert_allclose(first.x, [[50, 0, 0, 0], [60, 1, 1, 366 / 365.25], [nan, 0, 0, nan]])
    np.testing.assert_array_equal(second.x[:, :3], first.x[:, :3])
    assert np.isnan(second.x[:, 3]).all()
    assert first.y is not None
    assert first.y.tolist() == [0, 1, 0]
    assert second.y is not None
    assert second.y.tolist() == [0, 1, 0]
    assert first.reading.lines() == ["missing values: age 1, seen 1; filled from the training rows"]
    assert second.reading.lines() == [
        "cells are separated by ';'",
        "columns are in another order than in the schema: matched by name",
        "columns that the schema does not declare are left out: ward",
        "optional columns that the file lacks count as missing: seen",
        "missing values: age 1; filled from the training rows",
        "values in another spelling: sex 1, outcome 3; replaced by their synonym",
    ]


@pytest.mark.parametrize(
    ("ages", "numbers"),
    [
        (("1,5", "70"), [1.5, 70]),
        (("1,234", "70"), None),  # a thousand, or one and a bit?
        (("1,5", "70.5"), None),  # both marks
    ],
)
def test_commas_in_numbers(tmp_path: Path, schema: Schema, ages: tuple[str, str], numbers: list[float] | None) -> None:
    """A comma is a decimal mark only if it can be nothing else."""
    text = "age;sex;stage;outcome\n" + "".join(f"{age};f;low;B\n" for age in ages)
    coded = read_by_schema(write(tmp_path / "t.csv", text), schema)
    if numbers is None:
        assert [fault.what for fault in coded.reading.faults] == ["no number"]
    else:
        assert coded.x[:, 0].tolist() == numbers


def test_columns_that_describe_rows_are_no_features(tmp_path: Path, schema: Schema) -> None:
    """The row without a label is left out of the groups as well."""
    text = "age,sex,stage,outcome,patient,day\n1,f,low,B,p1,2\n2,f,low,?,p2,1\n3,f,low,M,p1,1\n"
    rows = RowColumns(group="patient", time="day")
    dataset = load_own(write(tmp_path / "t.csv", text), "label", schema=schema, rows=rows)
    assert dataset.groups is not None
    assert dataset.groups.tolist() == [0, 0]
    assert dataset.row_ids is not None
    assert dataset.row_ids.tolist() == [0, 2]
    assert dataset.shape == (len(schema.features),)
    with pytest.raises(DataError, match=r"has no column 'ward' \(data.group\)"):
        load_own(tmp_path / "t.csv", "label", schema=schema, rows=RowColumns(group="ward"))
    with pytest.raises(DataError, match=r"data.group = 'sex' .*: remove it from the columns of data.schema"):
        load_own(tmp_path / "t.csv", "label", schema=schema, rows=RowColumns(group="sex"))


# Below the header: rows in the lines 0, 2 and 4, of which the second has no label; the others are blank.
WITH_BLANK_LINES = """
age,sex,stage,outcome,day
1,f,low,B,2024-05-01

2,f,low,?,2024-05-02

3,f,low,M,2024-05-03

"""


def test_blank_lines_are_no_rows_but_are_counted(tmp_path: Path, schema: Schema) -> None:
    dataset = load_own(write(tmp_path / "t.csv", WITH_BLANK_LINES), "label", schema=schema)
    assert dataset.row_ids is not None
    assert dataset.row_ids.tolist() == [0, 4]
    unreadable = write(tmp_path / "t.csv", WITH_BLANK_LINES.replace("3,f", "x,f"))
    assert [fault.rows for fault in read_by_schema(unreadable, schema).reading.faults] == [(4,)]
    assert len(read_by_schema(write(tmp_path / "t.csv", "age,sex,stage,outcome\n\n"), schema).x) == 0


@pytest.mark.parametrize(
    ("ending", "message"),
    [
        ("", "there are more or fewer in 1 row, the first is row 4"),
        (",", r"'day' \(data.time\) is empty in 1 row, the first is row 4"),
        (",soon", r"'day' \(data.time\) has no date or number in 1 row, the first is row 4"),
    ],
)
def test_errors_count_blank_lines_as_well(tmp_path: Path, schema: Schema, ending: str, message: str) -> None:
    path = write(tmp_path / "t.csv", WITH_BLANK_LINES.replace(",2024-05-03", ending))
    with pytest.raises(DataError, match=message):
        read_by_schema(path, schema, rows=RowColumns(time="day"))


def test_rows_of_parquet_files_are_numbered_by_position(tmp_path: Path, schema: Schema) -> None:
    """A table that was filtered before it was saved has the index 5 and 7."""
    table = pandas.DataFrame({"age": [1, 2], "sex": "f", "stage": "low", "outcome": "B"}, index=[5, 7])
    table.to_parquet(tmp_path / "t.parquet")
    assert read_by_schema(tmp_path / "t.parquet", schema).kept.tolist() == [0, 1]


def test_unusual_cells_are_counted(tmp_path: Path, schema: Schema) -> None:
    """500 is no plausible age; x is no declared sex; a row without a label is left out."""
    text = "age,sex,stage,outcome\n500,x,medium,B\n40,f,low,?\n41,f,low,M\n"
    coded = read_by_schema(write(tmp_path / "t.csv", text), schema)
    np.testing.assert_array_equal(coded.x[:, :3], [[np.nan, 2, np.nan], [41, 0, 0]])
    assert coded.kept.tolist() == [0, 2]
    r = coded.reading
    assert (r.unlikely, r.unknown, r.unlabelled) == ({"age": 1}, {"sex": 1, "stage": 1}, 1)


def test_cells_that_cannot_be_read_are_faults_without_their_value(
    tmp_path: Path, schema: Schema, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "age,sex,stage,seen,outcome\nSECRET,f,low,yesterday,B\n40,f,low,2001-01-01,SECRET\n"
    path = write(tmp_path / "t.csv", text)
    faults = [str(fault) for fault in read_by_schema(path, schema).reading.faults]
    assert faults == [
        "column 'age': no number in 1 row (counted from 0: 0)",
        "column 'seen': no date in 1 row (counted from 0: 0)",
        "column 'outcome': a label that is neither a class nor a synonym in 1 row (counted from 0: 1)",
    ]
    with pytest.raises(DataError, match=r"column 'age': no number in 1 row .* \(and 2 more\). `coterie data check"):
        load_own(path, "label", schema=schema)
    assert main(["data", "check", str(path), "--schema", str(tmp_path / "schema.toml")]) == 1
    assert main(["data", "check", str(path), "--schema", str(tmp_path / "schema.toml"), "--json"]) == 1
    printed = capsys.readouterr().out
    assert "WRONG: column 'age': no number" in printed
    assert "SECRET" not in printed
    assert json.loads(printed[printed.index("{\n") :])["fits"] is False


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("age,stage,outcome\n1,low,B\n", r"lacks the column 'sex' of the schema.*optional = true"),
        ("age,age,sex,stage,outcome\n1,1,f,low,B\n", "has the column 'age' twice"),
        ("age,sex,stage\n1,f,low\n", "lacks the column 'outcome'"),
        ("age,sex,stage,outcome\n63,5,f,low,B\n", r"the header has 4 cells, but there are more or fewer in 1 row"),
        ("age,sex,stage,outcome\n63,f,low\n", r"the header has 4 cells, but there are more or fewer in 1 row"),
    ],
)
def test_missing_columns_are_named(tmp_path: Path, schema: Schema, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_own(write(tmp_path / "t.csv", text), "label", schema=schema)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('type = "ordered"', 'type = "ordinal"', r"\[columns.stage\]: unknown type 'ordinal'"),
        ("most = 120", "mots = 120", r"\[columns.age\]: unknown key 'mots'.*most"),
        ("most = 120", "most = -1", "`least` must be below `most`"),
        ('type = "number"', 'type = ["number"]', r"\[columns.age\]: unknown type"),
        ("least = 0", "least = nan", r"\[columns.age\]: `least` must be a finite number"),
        ("mean = 50", "mean = -inf", "`mean` must be a finite number"),
        ("deviation = 10", f"deviation = 1{400 * '0'}", "`deviation` must be a finite number"),
        ("deviation = 10", "deviation = 0", "`deviation` \\(above 0\\)"),
        ('values = ["f", "m"]', "", "`values` must list"),
        ('"w" = "f"', '"w" = "x"', "'w' stands for 'x', which is not declared"),
        ('classes = ["benign", "malignant"]', 'classes = ["benign"]', "two or more different names"),
        ('column = "outcome"', 'column = "age"', "is the label column"),
        ("[label]", "[lable]", "unknown key 'lable'"),
        ("missing =", "missing", "cannot be read as TOML"),
        (
            'values = ["low", "high"]',
            'values = ["low", "?"]',
            r"stage\]: '\?' is a declared value and a marker of missing",
        ),
        ('"w" = "f"', '"-9.0" = "f"', r"sex\]: '-9' is a declared value .*: remove it from `missing`"),
        ('values = ["f", "m"]', 'values = ["f", "m"]\nmissing = ["m"]', r"sex\]: 'm' is a declared value and a marker"),
        ('values = ["f", "m"]', 'values = ["f", "m", ""]', "an empty cell is always missing: remove it from `values`"),
    ],
)
def test_a_wrong_schema_is_explained(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in SCHEMA
    with pytest.raises(DataError, match=message):
        read_schema(write(tmp_path / "schema.toml", SCHEMA.replace(old, new, 1)))


def test_synonyms_are_tidied_like_values(tmp_path: Path) -> None:
    """1.0 is 1, among the values and in what a synonym stands for."""
    text = SCHEMA.replace('["low", "high"]', '["1.0", "2"]\nsynonyms = { one = "1.0" }')
    schema = read_schema(write(tmp_path / "schema.toml", text))
    coded = read_by_schema(write(tmp_path / "t.csv", "age,sex,stage,outcome\n1,f,one,B\n1,f,1.0,B\n"), schema)
    assert coded.x[:, 2].tolist() == [0, 0]
    assert coded.reading.respelled == {"stage": 1, "outcome": 2}


def test_a_declared_value_is_no_marker_by_default(tmp_path: Path) -> None:
    """The first file lists no markers, so that None is one by default; but stage declares it, and age does not."""
    declared = SCHEMA.replace('missing = ["?", "-9"]\n', "").replace('values = ["low"', 'values = ["None"')
    schema = read_schema(write(tmp_path / "schema.toml", declared))
    coded = read_by_schema(write(tmp_path / "t.csv", "age,sex,stage,outcome\nNone,None,None,B\n"), schema)
    np.testing.assert_array_equal(coded.x, [[np.nan, np.nan, 0, np.nan]])
    assert coded.reading.missing == {"age": 1, "sex": 1}


def test_features_follow_from_the_schema_alone(schema: Schema) -> None:
    assert schema.features == (
        "age", "sex = f", "sex = m", "sex unknown", "sex missing", "stage", "seen", "seen missing",
    )  # fmt: skip


def test_a_preparation_fills_from_the_training_rows(schema: Schema) -> None:
    """The ages 30, 50, 90 have the median 50; no training row has a date, so every date becomes the agreed mean, 20."""
    nan = np.nan
    train = np.array([[30, 0, 0, nan], [50, 1, 1, nan], [90, 2, 1, nan], [nan, nan, nan, nan]])
    prepared = Preparation.fitted(schema, train)
    rows = prepared.features(np.array([[nan, nan, nan, 3.0], [40, 2, 0, nan]]))
    assert rows.tolist() == [[50, 0, 0, 0, 1, 1, 20, 0], [40, 0, 0, 1, 0, 0, 20, 1]]
    assert Preparation.of_tree(json.loads(json.dumps(prepared.tree()))) == prepared


def test_agreed_constants_scale_numbers_and_leave_indicators(schema: Schema) -> None:
    scaling = Preparation.fitted(schema, np.zeros((2, 4))).agreed_scaling()
    assert scaling == Scaling((50, 0, 0, 0, 0, 0.5, 20, 0), (10, 1, 1, 1, 1, 0.5, 5, 1))


cells = st.one_of(st.none(), st.floats(-1e6, 1e6))


@given(st.lists(st.tuples(cells, st.integers(0, 2), st.integers(0, 1), cells), min_size=2, max_size=8), st.data())
def test_other_rows_change_nothing(rows: list[tuple[float | None, ...]], data: st.DataObject) -> None:
    """A preparation is a function of the training rows: what stands in a test row changes no other row's features."""
    schema = _parsed()
    coded = np.array(rows, dtype=np.float64)
    cut = data.draw(st.integers(1, len(rows) - 1))
    planted = coded.copy()
    planted[cut:, 0] = 1e9
    before, after = (Preparation.fitted(schema, table[:cut]) for table in (coded, planted))
    assert before == after
    np.testing.assert_array_equal(before.features(coded)[:cut], after.features(planted)[:cut])
    assert np.isfinite(before.features(coded)).all()
    assert before.features(coded).shape == (len(rows), len(schema.features))


def _parsed() -> Schema:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        return read_schema(write(Path(folder) / "schema.toml", SCHEMA))


def test_digests_name_the_column_that_differs(tmp_path: Path, schema: Schema) -> None:
    other = read_schema(write(tmp_path / "other.toml", SCHEMA.replace("most = 120", "most = 110  # a comment")))
    same = read_schema(write(tmp_path / "same.toml", "# a comment\n" + SCHEMA.replace("least = 0", "least  =  0")))
    differing = {name for name, digest in schema.digests().items() if other.digests()[name] != digest}
    assert differing == {"column 'age'"}
    assert same.digests() == schema.digests()
    assert Schema.of_tree(json.loads(json.dumps(schema.tree()))) == schema


@pytest.mark.parametrize(
    ("text", "expected"), [(" 1.0 ", "1"), ("-9.00", "-9"), ("1.5", "1.5"), ("a.0", "a.0"), (".", ".")]
)
def test_tidy_texts(text: str, expected: str) -> None:
    assert tidy(text) == expected


def test_a_column_in_other_units_is_suspicious() -> None:
    """Mean 10 and deviation 2: 100 is 45 deviations away. One outlier among twenty rows is none."""
    scaling = Scaling((10.0, 10.0), (2.0, 2.0))
    rows = np.full((20, 2), 10.0)
    rows[:, 0] *= 10
    rows[0, 1] = 1000
    assert suspicious_features(("a", "b"), rows, scaling) == {"a": 20}


def test_a_draft_can_be_read_and_leaves_out_identifiers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        f"{1000 + 7 * i},P{i},{20 + i % 50},{'fm'[i % 2]},{i % 3},{'' if i % 4 else 1.5 * i},x{i % 2}"
        for i in range(60)
    ]
    path = write(tmp_path / "t.csv", "record,patient,age,sex,grade,dose,label\n" + "\n".join(rows) + "\n")
    assert main(["data", "schema", str(path)]) == 0
    text = capsys.readouterr().out
    assert text == draft([path])
    schema = read_schema(write(tmp_path / "draft.toml", text))
    assert schema.ignored == ("record", "patient")
    assert {c.name: c.type for c in schema.columns} == {
        "age": "number", "sex": "category", "grade": "category", "dose": "number",
    }  # fmt: skip
    assert schema.label.classes == ("x0", "x1")
    assert "P1" not in text
    assert not read_by_schema(path, schema).reading.faults


HOSPITALS = Path(__file__).resolve().parents[3] / "shared/data/heart-disease"
HEART = Path(__file__).resolve().parents[2] / "examples/heart_disease/schema.toml"


@pytest.mark.skipif(not HOSPITALS.exists(), reason="the data must not be committed")
@pytest.mark.parametrize(
    ("hospital", "patients", "ill"),
    [("cleveland", 303, 139), ("hungarian", 294, 106), ("switzerland", 123, 115), ("va", 200, 149)],
)
def test_one_schema_reads_four_hospitals(hospital: str, patients: int, ill: int) -> None:
    """Patients and cases of disease, as UCI's documentation counts them."""
    dataset = load_own(HOSPITALS / f"{hospital}.csv", "label", schema=read_schema(HEART))
    assert (len(dataset.y), int(dataset.y.sum())) == (patients, ill)
    assert dataset.shape == (len(read_schema(HEART).features),)
