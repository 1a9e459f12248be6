"""Peers with untidy tables of different forms meet by one schema; models take raw rows, also as ONNX."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pandas
import pytest
from circle_support import Circle

from coterie.cli.main import main
from coterie.config import loading
from coterie.network.agreement import AgreementError
from coterie.report.predictions import read
from coterie.report.run import open_run
from coterie.running import simulated
from coterie.running.real_peer import take_part

SCHEMA = """
missing = ["?"]
[label]
column = "outcome"
classes = ["benign", "malignant"]
synonyms = { B = "benign", M = "malignant" }
[columns.size]
type = "number"
least = 0
most = 100
indicator = true
[columns.sex]
type = "category"
values = ["f", "m"]
[columns.grade]
type = "ordered"
values = ["low", "middle", "high"]
optional = true
indicator = true
[columns.marker]
type = "category"
values = ["0", "1"]
fill = "most frequent"
"""


def table(seed: int, rows: int = 60) -> pandas.DataFrame:
    """The size decides the outcome; some cells are missing."""
    rng = np.random.default_rng(seed)
    size = rng.uniform(1, 99, rows).round(1)
    cells: dict[str, Any] = {
        "size": [str(s) for s in size],
        "sex": rng.choice(["f", "m", "?"], rows).tolist(),
        "grade": rng.choice(["low", "middle", "high", "?"], rows).tolist(),
        "marker": rng.choice(["0", "1", "?"], rows).tolist(),
        "outcome": ["malignant" if s > 50 else "benign" for s in size],
    }
    return pandas.DataFrame(cells)


@pytest.fixture
def two(tmp_path: Path) -> Circle:
    (tmp_path / "schema.toml").write_text(SCHEMA)
    table(0).to_csv(tmp_path / "north.csv", index=False)
    # Another order, an extra column, a column less, other spellings, ';' and decimal commas.
    south = table(1).drop(columns="grade")[["outcome", "marker", "size", "sex"]].assign(ward="7")
    south["outcome"] = south["outcome"].map({"benign": "B", "malignant": "M"})
    south["size"] = south["size"].str.replace(".", ",")
    south.to_csv(tmp_path / "south.csv", index=False, sep=";")
    return Circle(tmp_path, ("north", "south"))


def test_an_untidy_peer_joins_and_is_told_what_was_done(two: Circle) -> None:
    said: dict[str, list[str]] = {name: [] for name in two.names}
    files = {name: two.file(name, data=f"{name}.csv", more='schema = "schema.toml"') for name in two.names}

    async def work() -> list[Any]:
        return await asyncio.gather(*(take_part(file, say=said[name].append) for name, file in files.items()))

    for summary in asyncio.run(asyncio.wait_for(work(), 60)):
        assert summary["messages"] == 2
    for line in (
        "south.csv: cells are separated by ';'",
        "south.csv: columns are in another order than in the schema: matched by name",
        "south.csv: columns that the schema does not declare are left out: ward",
        "south.csv: optional columns that the file lacks count as missing: grade",
        "south.csv: values in another spelling: outcome 60; replaced by their synonym",
    ):
        assert line in said["south"]
        assert not any("south.csv" in text for text in said["north"])


def test_another_schema_is_refused_with_the_name_of_the_column(two: Circle, tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text(SCHEMA.replace("most = 100", "most = 200"))
    north = two.file("north", data="north.csv", more='schema = "schema.toml"')
    south = two.file("south", data="south.csv", more='schema = "other.toml"')

    async def work() -> str:
        waiting = asyncio.create_task(take_part(north, say=lambda _: None))
        with pytest.raises(AgreementError) as error:
            await asyncio.wait_for(take_part(south, say=lambda _: None), 20)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        return str(error.value)

    text = asyncio.run(work())
    assert "schema, column 'size' differs between the two peers" in text
    assert "Use the same schema file (data.schema) at all peers" in text


@pytest.fixture
def run(two: Circle, tmp_path: Path) -> Path:  # noqa: ARG001 (it writes the files)
    words = [
        f"data.name={tmp_path / 'north.csv'}", f"data.schema={tmp_path / 'schema.toml'}", "data.partition=iid",
        "data.train=0.6", "data.validation=0.2", "data.test=0.2", "peers=2", "method.name=gossip", "method.k=1",
        "rounds=2", "baseline=", "model.hidden=[4]",
    ]  # fmt: skip
    simulated.run(loading.load("panm-digits", words), tmp_path / "run")
    return tmp_path / "run"


def test_a_raw_row_goes_into_predict_and_into_the_exported_model(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Missing cells, an unknown category and a size in other units (beyond the range) included."""
    rows = table(2, rows=12).drop(columns="outcome")
    rows.loc[0, "size"], rows.loc[1, "size"], rows.loc[2, "sex"] = "999", "?", "x"
    rows.to_csv(tmp_path / "new.csv", index=False)
    assert main(["predict", str(run), "--peer", "1", "--input", str(tmp_path / "new.csv")]) == 0
    said = capsys.readouterr()
    assert "'size' is outside of its plausible range in 1 of 12 rows" in said.err
    by_coterie = [[float(p) for p in line.split(",")[2:]] for line in said.out.splitlines()[1:]]
    assert main(["export", str(run), "--peer", "1", "--out", str(tmp_path / "model")]) == 0
    session = onnxruntime.InferenceSession(tmp_path / "model" / "model-columns.onnx")
    inputs = {
        given.name: rows[given.name].to_numpy(dtype=object)[:, None]
        if "string" in given.type
        else pandas.to_numeric(rows[given.name], errors="coerce").to_numpy(np.float32)[:, None]
        for given in session.get_inputs()
    }
    np.testing.assert_allclose(session.run(None, inputs)[0], by_coterie, atol=1e-5)
    assert main(["predict", str(tmp_path / "model"), "--input", str(tmp_path / "new.csv")]) == 0
    again = [[float(p) for p in line.split(",")[2:]] for line in capsys.readouterr().out.splitlines()[-12:]]
    np.testing.assert_allclose(again, by_coterie, atol=1e-5)


def test_predictions_have_the_row_numbers_of_the_file(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head, first, second, *_ = table(2, rows=2).to_csv(index=False).splitlines()
    (tmp_path / "new.csv").write_text(f"{head}\n{first}\n\n{second}\n")
    assert main(["predict", str(run), "--peer", "1", "--input", str(tmp_path / "new.csv")]) == 0
    assert [line.split(",")[0] for line in capsys.readouterr().out.splitlines()] == ["row", "0", "2"]


def test_a_column_in_other_units_is_warned_about(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = table(3, rows=12)
    rows["size"] = [str(10 * float(size)) for size in rows["size"]]
    rows.to_csv(tmp_path / "new.csv", index=False)
    assert main(["predict", str(run), "--peer", "0", "--input", str(tmp_path / "new.csv")]) == 0
    assert "warning: 'size' is outside of its plausible range" in capsys.readouterr().err


def test_a_table_without_a_schema_is_warned_about_as_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame({"height": rng.normal(1.7, 0.1, 60), "label": ["a", "b"] * 30})
    frame.to_csv(tmp_path / "t.csv", index=False)
    words = [f"data.name={tmp_path / 't.csv'}", "data.partition=iid", "data.train=0.6", "data.validation=0.2"]
    words += ["data.test=0.2", "peers=2", "method.name=local", "rounds=1", "baseline=", "model.hidden=[4]"]
    simulated.run(loading.load("panm-digits", words), tmp_path / "run")
    frame.assign(height=100 * frame["height"]).to_csv(tmp_path / "cm.csv", index=False)
    assert main(["predict", str(tmp_path / "run"), "--peer", "0", "--input", str(tmp_path / "cm.csv")]) == 0
    assert "warning: 'height' is far beyond the values that the model was trained on in 60 of 60 rows" in (
        capsys.readouterr().err
    )


def test_sites_with_untidy_files_are_peers(two: Circle, tmp_path: Path) -> None:  # noqa: ARG001 (it writes the files)
    """Peers are called by their files; predictions have the row numbers of the site's own file."""
    words = [
        f"data.name={tmp_path}/*.csv", f"data.schema={tmp_path / 'schema.toml'}", "data.partition=files",
        "method.name=gossip", "method.k=1", "rounds=2", "baseline=", "model.hidden=[4]", "data.train=0.6",
        "data.validation=0.2", "data.test=0.2",
    ]  # fmt: skip
    e = loading.load("panm-digits", words)
    assert e.peers == 2
    simulated.run(e, tmp_path / "run")
    start = open_run(tmp_path / "run").start
    assert start.names == ["north", "south"]
    saved = read(tmp_path / "run" / "predictions" / "peer-1.npz")
    rows = [*saved.validation.rows.tolist(), *saved.test.rows.tolist()]
    assert max(rows) < 60
    south = pandas.read_csv(tmp_path / "south.csv", sep=";")
    assert [saved.classes[c][0].upper() for c in saved.test.labels] == south["outcome"].iloc[saved.test.rows].tolist()
