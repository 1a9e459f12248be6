"""Drafts of a schema: which types are guessed, and that identifiers of persons are left out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas
import pytest

from coterie.data.drafting import draft
from coterie.data.guessing import guess, is_personal
from coterie.data.schema import Column, Schema, read_schema
from coterie.data.untidy import read_by_schema

HOSPITALS = Path(__file__).resolve().parents[3] / "shared/data/heart-disease"


def drafted(path: Path, label: str = "") -> Schema:
    """The schema of a draft, after it was checked that the file fits it."""
    (path.parent / "draft.toml").write_text(draft([path], label))
    schema = read_schema(path.parent / "draft.toml")
    assert not read_by_schema(path, schema).reading.faults
    return schema


def types(schema: Schema) -> dict[str, str]:
    return {column.name: column.type for column in schema.columns}


@pytest.mark.parametrize(
    "name",
    ["id", "ID", "patient", "patient_id", "patientId", "PatientID", "record id", "recordid", "name", "LastName",
     "surname", "ssn", "SSN", "birth", "birthdate", "date_of_birth", "DOB", "mrn", "e-mail", "zip.code"],
)  # fmt: skip
def test_names_of_identifiers(name: str) -> None:
    assert is_personal(name)


@pytest.mark.parametrize("name", ["age", "lipid", "covid", "inpatient", "thyroid", "idle", "dose", "rename", "", "1"])
def test_names_of_measurements(name: str) -> None:
    assert not is_personal(name)


YEARS = [str(20 + i % 60) for i in range(100)]


@pytest.mark.parametrize(
    ("cells", "missing", "kind", "why"),
    [
        ([], 9, "ignore", "no values here"),
        (["0"] * 5, 0, "ignore", "the same value in all 5 rows"),
        (["yes"] * 5, 5, "category", "1 different text"),  # given or not given: that says something
        (["1", "2"] * 3, 0, "category", "2 different whole numbers"),
        (["50", "61", "72"], 0, "number", "3 different numbers"),  # none repeats: no categories
        (YEARS, 0, "number", "60 different numbers"),
        ([*YEARS, "unknown"], 0, "number", "60 different numbers; 1 cell cannot be read as numbers"),
        ([str(i) for i in range(7)], 0, "ignore", "it numbers the rows"),
        ([str(7 * i) for i in range(30)], 0, "ignore", "30 different whole numbers in 30 rows"),
        ([str(i / 8) for i in range(30)], 0, "number", "30 different numbers"),
        (["2024-03-31", "2024-04-01 10:30:00+02:00"], 0, "date", "dates"),
        (["31.03.2024", "1.4.2024"], 0, "ignore", "dates in another form: write them as 2024-03-31"),
        (["a", "b", "a", "b"], 0, "category", "2 different texts"),
        ([f"x{i}" for i in range(30)], 0, "ignore", "30 different texts in 30 rows: names or identifiers"),
        ([f"felt cold on day {i}" for i in range(30)], 0, "ignore", 'free text without names, type = "text"'),
        (["f"], 0, "ignore", 'too few to tell a "category" from a name'),
        (["63"], 0, "number", "1 different number"),
    ],
)
def test_guesses(cells: list[str], missing: int, kind: str, why: str) -> None:
    guessed, reason = guess("column", cells, missing)
    assert guessed == kind
    assert why in reason


def test_a_parquet_file_with_dates(tmp_path: Path) -> None:
    days = pandas.date_range("2024-01-01", periods=40, freq="D")
    table = pandas.DataFrame(
        {
            "visited": days,
            "stamp": days.tz_localize("Europe/Berlin"),
            "day": days.date,
            "birthday": days,
            "treated": [day if i % 3 else None for i, day in enumerate(days)],
            "flag": np.arange(40) % 2 == 0,
            "label": np.arange(40) % 2,
        }
    )
    table.to_parquet(tmp_path / "t.parquet")
    schema = drafted(tmp_path / "t.parquet")
    assert types(schema) == {
        "visited": "date", "stamp": "date", "day": "date", "treated": "date", "flag": "category",
    }  # fmt: skip
    assert schema.ignored == ("birthday",)
    assert [column.indicator for column in schema.columns] == [False, False, False, True, False]


def test_a_file_of_one_row(tmp_path: Path) -> None:
    """A range and categories cannot be guessed from it, and no text of it is in the draft, except for its class."""
    path = tmp_path / "t.csv"
    path.write_text("age,weight,sex,seen,note,label\n63,70.5,f,2024-01-01,felt cold since monday,ill\n")
    text = draft([path])
    assert 'classes = ["ill"]  # at least two are needed: add those of the other sites' in text
    assert "least" not in text.replace("at least", "")
    assert "cold" not in text
    (tmp_path / "s.toml").write_text(text.replace('["ill"]', '["ill", "well"]'))
    schema = read_schema(tmp_path / "s.toml")
    assert types(schema) == {"age": "number", "weight": "number", "seen": "date"}
    assert schema.ignored == ("sex", "note")


def suggested(column: str, numbers: list[float], tmp_path: Path) -> tuple[str, Column]:
    """The text of a draft, and its column if the suggestions in comments are accepted."""
    rows = "".join(f"{number},{'ab'[i % 2]}\n" for i, number in enumerate(numbers))
    (tmp_path / "t.csv").write_text(f"{column},label\n{rows}")
    text = draft([tmp_path / "t.csv"])
    accepted = text.replace("# least", "least").replace("# most", "most").replace("# missing", "missing")
    (tmp_path / "s.toml").write_text(accepted)
    return text, read_schema(tmp_path / "s.toml").columns[0]


def test_a_plausible_range_contains_all_values(tmp_path: Path) -> None:
    """100 to 103.5: a quarter of 3.5 beyond, 99.125 and 104.375, rounded outwards to tenths."""
    _, column = suggested("dose", [100, 101, 102.5, 103.5], tmp_path)
    assert column.least == pytest.approx(99.1)
    assert column.most == pytest.approx(104.4)


def test_a_zero_far_below_all_others_may_be_a_missing_value(tmp_path: Path) -> None:
    text, column = suggested("chol", [0, 180.5, 200, 240, 0, 300], tmp_path)
    assert '\n# missing = ["0"]  # is 0 a missing value?' in text
    assert column.missing == ("0",)
    assert column.least == 150  # 180.5 less a quarter of 119.5 is 150.6
    text, _ = suggested("pain", [0, 1.5, 2, 40, 0, 30], tmp_path)
    assert "is 0 a missing value" not in text


@pytest.mark.skipif(not HOSPITALS.exists(), reason="the data must not be committed")
@pytest.mark.parametrize(
    ("hospital", "ignored"),
    [("cleveland", ()), ("hungarian", ()), ("switzerland", ("chol",)), ("va", ())],  # Switzerland has only zeros
)
def test_four_hospitals(hospital: str, ignored: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes((HOSPITALS / f"{hospital}.csv").read_bytes())
    schema = drafted(tmp_path / "t.csv", label="target")
    assert schema.ignored == ignored
    found = types(schema)
    assert [name for name, kind in found.items() if kind == "number"] == [
        name for name in ("age", "trestbps", "chol", "thalach", "oldpeak") if name in found
    ]
    assert {name for name, kind in found.items() if kind == "category"} >= {"sex", "cp", "fbs", "restecg", "exang"}
