"""Named datasets as CSV files, one for each site: written, and read again as sites."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_diabetes

from coterie.cli.main import main
from coterie.config.sections import DataSettings
from coterie.core.errors import DataError
from coterie.data import load, load_sites
from coterie.data.as_tables import write_tables
from coterie.data.dataset import write_arrays

ROWS, COLUMNS = 920, 13


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a file in the form of heart-disease: hospitals of 303, 294, 123 and 200 patients."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 100, (ROWS, COLUMNS)).astype(float)
    x[300:, 11] = np.nan
    site = np.repeat(np.arange(4), [303, 294, 123, 200])
    write_arrays(tmp_path / "home" / "heart-disease.npz", {"x": x, "y": np.arange(ROWS) % 2, "site": site})
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.mark.usefixtures("home")
def test_one_file_for_each_site(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "get", "heart-disease", "--tables", str(tmp_path / "sites")]) == 0
    assert "4 tables in" in capsys.readouterr().out
    lines = {path.stem: path.read_text().splitlines() for path in sorted((tmp_path / "sites").iterdir())}
    assert {name: len(rows) - 1 for name, rows in lines.items()} == {
        "cleveland": 303, "hungary": 294, "switzerland": 123, "long-beach-va": 200,
    }  # fmt: skip
    assert lines["cleveland"][0] == "age,sex,cp,trestbps,chol,fbs,restecg,thalach,exang,oldpeak,slope,ca,thal,target"
    x = load("heart-disease").x
    assert lines["hungary"][1].split(",")[11] == ""  # missing
    assert lines["hungary"][1].split(",")[0] == f"{x[303, 0]:.0f}"
    assert lines["hungary"][1].split(",")[-1] == "disease"  # row 303 has the label 1


@pytest.mark.usefixtures("home")
def test_a_folder_with_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "sites").mkdir()
    (tmp_path / "sites" / "mine.csv").write_text("a")
    with pytest.raises(DataError, match="is not empty"):
        write_tables("heart-disease", tmp_path / "sites")
    for folder in (tmp_path / "sites" / "mine.csv", tmp_path / "sites" / "mine.csv" / "inside"):
        with pytest.raises(DataError, match=r"mine.csv.* cannot be made a folder \(.*\): choose another"):
            write_tables("heart-disease", folder)
    with pytest.raises(DataError, match="digits is no table with named columns"):
        write_tables("digits", tmp_path / "others")


def test_an_embedded_table_of_numbers_reads_back(tmp_path: Path) -> None:
    assert main(["data", "get", "diabetes", "--tables", str(tmp_path / "sites")]) == 0
    again = load_sites(DataSettings(name=str(tmp_path / "sites"), partition="files", task="regression"))
    raw = load_diabetes(scaled=False)
    order = np.argsort(raw.feature_names)  # sites have their columns in alphabetical order
    np.testing.assert_allclose(again.x, raw.data[:, order])
    assert again.y.tolist() == raw.target.tolist()
