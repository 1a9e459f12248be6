"""The user's own tables, arrays and image folders, and every complaint about them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas
import pytest
from PIL import Image

import coterie.data as data
from coterie.errors import DataError

TABLE = pandas.DataFrame(
    {
        "age": [1.0, 2.0, 3.0, 4.0],
        "colour": ["red", "blue", "red", "red"],
        "constant": [5, 5, 5, 5],
        "label": ["yes", "no", "yes", "no"],
    }
)


def save(folder: Path, table: pandas.DataFrame, suffix: str = ".csv") -> str:
    path = folder / f"mine{suffix}"
    table.to_parquet(path) if suffix == ".parquet" else table.to_csv(path, index=False)
    return str(path)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_tables(tmp_path: Path, suffix: str) -> None:
    mine = data.load(save(tmp_path, TABLE, suffix))
    assert mine.name == "mine"
    assert mine.classes == ("no", "yes")
    assert mine.y.tolist() == [1, 0, 1, 0]
    assert mine.x.dtype == np.float32
    # Columns: age, blue, red, constant. Age 1..4 has mean 2.5 and standard deviation sqrt(1.25).
    spread = 1.25**0.5
    assert np.allclose(mine.x[:, 0], [-1.5 / spread, -0.5 / spread, 0.5 / spread, 1.5 / spread])
    # Blue is 1 of 4: mean 1/4, standard deviation sqrt(3)/4, so 0 becomes -1/sqrt(3) and 1 becomes sqrt(3).
    assert np.allclose(mine.x[:, 1], [-(3**-0.5), 3**0.5, -(3**-0.5), -(3**-0.5)])
    assert np.allclose(mine.x[:, 2], -mine.x[:, 1])
    assert (mine.x[:, 3] == 0).all()


def test_numeric_labels_sort_as_numbers_and_any_column_can_be_the_label(tmp_path: Path) -> None:
    table = pandas.DataFrame({"a": range(6), "kind": [10, 9, 10, 9, 10, 9]})
    mine = data.load(save(tmp_path, table), label="kind")
    assert mine.classes == ("9", "10")
    assert mine.y.tolist() == [1, 0, 1, 0, 1, 0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label": None}, r"has no label column 'label' \(data.label\); its columns: age, colour, constant"),
        ({"age": [1.0, np.nan, np.nan, 2.0]}, r"column 'age' has missing or infinite values in 2 rows"),
        ({"age": [1.0, np.inf, 2.0, 2.0]}, r"column 'age' has missing or infinite values in 1 rows"),
        ({"colour": ["red", None, "red", "red"]}, r"column 'colour' has missing"),
        ({"label": ["yes", None, "yes", "no"]}, r"column 'label' has missing"),
        ({"label": ["yes"] * 4}, "at least two classes"),
        ({"label": [0.1, 0.2, 0.3, 0.4]}, "4 distinct values in 4 rows"),
    ],
)
def test_complaints_about_tables(tmp_path: Path, change: dict[str, list | None], message: str) -> None:
    table = TABLE.copy()
    for name, values in change.items():
        if values is None:
            del table[name]
        else:
            table[name] = values
    with pytest.raises(DataError, match=message):
        data.load(save(tmp_path, table))


def test_more_complaints_about_tables(tmp_path: Path) -> None:
    dates = TABLE.assign(day=pandas.to_datetime(["2020-01-01"] * 4))
    with pytest.raises(DataError, match="column 'day' holds datetime"):
        data.load(save(tmp_path, dates, ".parquet"))
    many = pandas.DataFrame({"id": [f"n{i}" for i in range(1100)], "label": [0, 1] * 550})
    with pytest.raises(DataError, match="column 'id' has 1100 distinct texts"):
        data.load(save(tmp_path, many))
    with pytest.raises(DataError, match="a column beside 'label'"):
        data.load(save(tmp_path, TABLE[["label"]]))
    for suffix in (".csv", ".parquet"):
        (tmp_path / f"broken{suffix}").write_bytes(b"")
        with pytest.raises(DataError, match=rf"broken\{suffix}: cannot be read"):
            data.load(str(tmp_path / f"broken{suffix}"))


def test_arrays(tmp_path: Path) -> None:
    path, labels = tmp_path / "mine.npz", np.array(["b", "a", "b"])
    np.savez(path, x=np.arange(6).reshape(3, 2), y=labels)
    features = data.load(str(path))
    assert features.x.dtype == np.float32
    assert features.classes == ("a", "b")
    assert features.y.tolist() == [1, 0, 1]
    images = np.arange(3 * 4 * 5, dtype=np.uint8).reshape(3, 4, 5)
    rgb = np.stack([images, images + 1, images + 2], axis=1)
    for x, expected in ((images, images[:, None]), (rgb, rgb), (rgb.transpose(0, 2, 3, 1), rgb)):
        np.savez(path, x=x, y=labels)
        assert np.array_equal(data.load(str(path)).x, expected)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.zeros((3, 2))}, "has no array 'y'; it needs x and y, and holds x"),
        ({"x": np.zeros((3, 2)), "y": np.zeros(2)}, "one label for every row"),
        ({"x": np.zeros((3, 2)), "y": np.zeros(3)}, "at least two classes"),
        ({"x": np.zeros((2, 2)), "y": np.array([0.0, np.nan])}, "1 missing or infinite labels"),
        ({"x": np.array([[1.0], [np.nan]]), "y": np.arange(2)}, "missing or infinite values in 1 rows"),
        ({"x": np.zeros((2, 3, 4, 4)), "y": np.arange(2)}, "x is float64"),
    ],
)
def test_complaints_about_arrays(tmp_path: Path, arrays: dict[str, np.ndarray], message: str) -> None:
    np.savez(tmp_path / "mine.npz", **arrays)
    with pytest.raises(DataError, match=message):
        data.load(str(tmp_path / "mine.npz"))


def save_images(folder: Path, modes: dict[str, str], size: tuple[int, int] = (5, 4)) -> None:
    for name, mode in modes.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new(mode, size, 9).save(folder / name)


def test_folders_of_images(tmp_path: Path) -> None:
    save_images(tmp_path, {"dog/1.png": "L", "cat/1.png": "L", "cat/2.jpg": "L"})
    mine = data.load(str(tmp_path))
    assert mine.x.shape == (3, 1, 4, 5)
    assert mine.classes == ("cat", "dog")
    assert mine.y.tolist() == [0, 0, 1]
    save_images(tmp_path, {"dog/2.png": "RGB"})  # one in colour makes all of them RGB
    assert data.load(str(tmp_path)).x.shape == (4, 3, 4, 5)


def test_complaints_about_folders(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="expected a subfolder"):
        data.load(str(tmp_path))
    save_images(tmp_path, {"dog/1.png": "L"})
    with pytest.raises(DataError, match=r"only one class folder \(dog\)"):
        data.load(str(tmp_path))
    save_images(tmp_path, {"eel/odd.png": "L"}, size=(6, 4))
    with pytest.raises(DataError, match=r"eel/odd\.png: 6x4 pixels, but 1\.png has 5x4"):
        data.load(str(tmp_path))
    (tmp_path / "eel/odd.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"odd\.png: not a readable image"):
        data.load(str(tmp_path))
    (tmp_path / "eel/odd.png").unlink()
    with pytest.raises(DataError, match=r"eel: holds no \.png or \.jpg"):
        data.load(str(tmp_path))


def test_paths_and_names_that_do_not_exist(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file or folder"):
        data.load("nowhere.csv")
    with pytest.raises(DataError, match=r"data.name: unknown dataset 'digit'\. Did you mean 'digits'"):
        data.load("digit")
    (tmp_path / "a.txt").write_text("")
    with pytest.raises(DataError, match=r"cannot read '\.txt' files"):
        data.load(str(tmp_path / "a.txt"))


@pytest.mark.parametrize(
    ("name", "shape", "classes"),
    [("digits", (1797, 1, 8, 8), 10), ("breast-cancer", (569, 30), 2), ("wine", (178, 13), 3)],
)
def test_embedded_datasets(name: str, shape: tuple[int, ...], classes: int) -> None:
    embedded = data.load(name)
    assert embedded.x.shape == shape
    assert len(embedded.classes) == classes
    assert embedded.y.dtype == np.int64
    assert set(embedded.y.tolist()) == set(range(classes))
    if name == "digits":
        assert embedded.x.dtype == np.uint8
        assert embedded.x.max() == 255
    else:
        assert np.allclose(embedded.x.mean(axis=0), 0, atol=1e-5)
        assert np.allclose(embedded.x.std(axis=0), 1, atol=1e-4)


def test_importing_the_package_is_cheap() -> None:
    import subprocess
    import sys

    heavy = "sklearn pandas PIL pyarrow scipy torch"
    script = f"import sys, coterie.data; print([m for m in '{heavy}'.split() if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
