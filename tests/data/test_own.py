"""The user's own tables, arrays and image folders, and every error about them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas
import pytest
from PIL import Image

import coterie.data as data
from coterie.core.errors import DataError
from coterie.data.dataset import FeatureColumn

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


COLOURS = {"colour": ("red", "blue", "green")}


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_tables(tmp_path: Path, suffix: str) -> None:
    mine = data.load(save(tmp_path, TABLE, suffix), categories=COLOURS)
    assert mine.name == "mine"
    assert mine.classes == ("no", "yes")
    assert mine.y.tolist() == [1, 0, 1, 0]
    # Columns: age, then red, blue and green as declared (there is no green one), then constant. All raw.
    assert mine.x.T.tolist() == [[1, 2, 3, 4], [1, 0, 1, 1], [0, 1, 0, 0], [0, 0, 0, 0], [5, 5, 5, 5]]
    assert mine.columns == (
        FeatureColumn("age"),
        FeatureColumn("colour", ("red", "blue", "green")),
        FeatureColumn("constant"),
    )
    assert mine.columns[1].features == ("colour = red", "colour = blue", "colour = green")


def test_categories_may_look_like_numbers(tmp_path: Path) -> None:
    """Codes are texts where they are declared, however the file writes whole numbers; and 07 is not 7."""
    (tmp_path / "mine.csv").write_text("code,zip,label\n1.0,07,a\n2, 7 ,b\n1,07,a\n2,7,b\n")
    mine = data.load(str(tmp_path / "mine.csv"), categories={"code": ("1", "2"), "zip": ("07", "7")})
    assert mine.x.tolist() == [[1, 0, 1, 0], [0, 1, 0, 1]] * 2


def test_booleans_are_numbers(tmp_path: Path) -> None:
    table = TABLE.assign(colour=[True, False, True, True])
    assert data.load(save(tmp_path, table)).x[:, 1].tolist() == [1, 0, 1, 1]


def test_numeric_labels_sort_as_numbers_and_any_column_can_be_the_label(tmp_path: Path) -> None:
    table = pandas.DataFrame({"a": range(6), "kind": [10, 9, 10, 9, 10, 9]})
    mine = data.load(save(tmp_path, table), label="kind")
    assert mine.classes == ("9", "10")
    assert mine.y.tolist() == [1, 0, 1, 0, 1, 0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label": None}, r"has no label column 'label' \(data.label\); its columns: age, colour, constant"),
        ({"colour": None}, r"has no column 'colour' of data.categories; its columns: age, constant, label"),
        ({"age": [1.0, np.nan, np.nan, 2.0]}, r"column 'age' has missing or infinite values in 2 rows"),
        ({"age": [1.0, np.inf, 2.0, 2.0]}, r"column 'age' has missing or infinite values in 1 rows"),
        ({"colour": ["red", None, "red", "red"]}, r"column 'colour' has missing"),
        ({"label": ["yes", None, "yes", "no"]}, r"column 'label' has missing"),
        ({"label": ["yes"] * 4}, "at least two classes"),
        ({"label": [1, 2, 3, 4]}, "column 'label' has 4 distinct values in 4 rows.*data.labels"),
        ({"label": [1.5, 2, 1.5, 2]}, "column 'label' contains fractions.*pandas.cut.*data.label"),
        ({"colour": ["red", "red", "MARKER", "MARKER"]}, r"'colour' .* \(red, blue, green\) in 2 rows, .* row 2 "),
        ({"name": ["MARKER A", "B", "C", "D"]}, r"column 'name' contains texts or dates.*categories = \{ 'name' = "),
        ({"born": ["1950-01-02", "MARKER", "", "x"]}, r"column 'born' has missing"),
        ({"born": ["1950-01-02", "1951-01-02", "1952-07-08", "MARKER"]}, r"column 'born' contains texts or dates"),
        ({"age": ["1", "MARKER", "3", "?"]}, r"column 'age' contains texts"),
        ({"age": ["1", "MARKER", "3", "4"]}, r"column 'age' has no number in 1 row, the first is row 1 \(counted"),
    ],
)
def test_errors_about_tables(tmp_path: Path, change: dict[str, list | None], message: str) -> None:
    table = TABLE.copy()
    for name, values in change.items():
        if values is None:
            del table[name]
        else:
            table[name] = values
    with pytest.raises(DataError, match=message) as error:
        data.load(save(tmp_path, table), categories=COLOURS)
    assert "MARKER" not in str(error.value)


def test_more_errors_about_tables(tmp_path: Path) -> None:
    numbers = TABLE.drop(columns="colour")
    dates = numbers.assign(day=pandas.to_datetime(["2020-01-01"] * 4))
    with pytest.raises(DataError, match="column 'day' contains dates or times: drop it"):
        data.load(save(tmp_path, dates, ".parquet"))
    with pytest.raises(DataError, match="column 'colour' contains texts"):
        data.load(save(tmp_path, TABLE.astype({"colour": "category"}), ".parquet"))
    with pytest.raises(DataError, match=r"'label' is the label column: list its classes in data\.labels"):
        data.load(save(tmp_path, numbers), categories={"label": ["yes", "no"]})
    with pytest.raises(DataError, match="a column besides 'label'"):
        data.load(save(tmp_path, TABLE[["label"]]))
    for suffix in (".csv", ".parquet"):
        (tmp_path / f"broken{suffix}").write_bytes(b"")
        with pytest.raises(DataError, match=rf"broken\{suffix}: cannot be read"):
            data.load(str(tmp_path / f"broken{suffix}"))


def test_a_table_without_a_header_shows_no_row(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("Marker,63.5,yes\nB,4,no\n")
    with pytest.raises(DataError, match="its first line must be a header") as error:
        data.load(str(tmp_path / "mine.csv"))
    assert "Marker" not in str(error.value)


@pytest.mark.parametrize(
    ("values", "fits"),
    [
        (np.arange(442) % 214, False),  # the target of a table of 442 diabetics: 2 rows for each value
        (np.arange(1000) % 100, True),  # exactly 10 rows a class
        (np.arange(999) % 100, False),
        (np.arange(20020) % 2000, False),  # more than a thousand classes
        (np.array(["a", "b", "c"] * 3 + ["d"]), True),  # a small table: few classes, few rows
        (np.array([f"person {i}" for i in range(40)]), False),
        (np.arange(60) % 3 / 1.0, True),  # whole numbers, as floats
        (np.arange(60) % 3 / 2.0, False),
    ],
)
def test_what_is_a_label_of_classes(tmp_path: Path, values: np.ndarray, fits: bool) -> None:
    """In tables and in arrays alike; labels listed in data.labels are always classes."""
    x = np.zeros((len(values), 1), np.float32)
    np.savez(tmp_path / "mine.npz", x=x, y=values)
    table = save(tmp_path, pandas.DataFrame({"a": x[:, 0], "label": values}))
    names = [f"{v:g}" if values.dtype.kind in "if" else str(v) for v in np.unique(values)]
    for path in (table, str(tmp_path / "mine.npz")):
        assert data.load(path, labels=names).classes == tuple(names)
        if fits:
            assert data.load(path).classes == tuple(names)
        else:
            with pytest.raises(DataError, match=r"(fractions|distinct values in \d+ rows)"):
                data.load(path)


def test_a_label_that_was_not_declared_is_not_shown(tmp_path: Path) -> None:
    table = save(tmp_path, TABLE.drop(columns="colour"))
    with pytest.raises(DataError, match=r"not in data\.labels \(no, maybe\) in 2 rows, the first is row 0") as error:
        data.load(table, labels=["no", "maybe"])
    assert "yes" not in str(error.value)


def test_arrays(tmp_path: Path) -> None:
    path, labels = tmp_path / "mine.npz", np.array(["b", "a", "b"])
    np.savez(path, x=np.arange(6).reshape(3, 2), y=labels)
    features = data.load(str(path))
    assert (features.kind, features.x.tolist()) == ("integers", [[0, 1], [2, 3], [4, 5]])
    assert features.classes == ("a", "b")
    assert features.y.tolist() == [1, 0, 1]
    images = np.arange(3 * 4 * 5, dtype=np.uint8).reshape(3, 4, 5)
    rgb = np.stack([images, images + 1, images + 2], axis=1)
    for x, expected in ((images, images[:, None]), (rgb, rgb), (rgb.transpose(0, 2, 3, 1), rgb)):
        np.savez(path, x=x, y=labels)
        mine = data.load(str(path))
        assert mine.kind == "images"
        assert np.array_equal(mine.x, expected)


@pytest.mark.parametrize("shape", [(3, 2), (3, 2, 7), (3, 2, 4, 5), (3, 2, 2, 2, 2), (3, 3, 4, 4)])
def test_arrays_of_any_shape(tmp_path: Path, shape: tuple[int, ...]) -> None:
    for x, kind in (
        (np.random.default_rng(0).normal(size=shape).astype(np.float32), "features"),
        (np.ones(shape, bool), "features"),
        (np.arange(np.prod(shape)).reshape(shape), "integers"),
    ):
        np.savez(tmp_path / "mine.npz", x=x, y=np.array([0, 1, 0]))
        mine = data.load(str(tmp_path / "mine.npz"))
        assert mine.kind == kind
        assert np.array_equal(mine.x, x)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.zeros((3, 2))}, "has no array 'y'; it needs x and y, but has x"),
        ({"x": np.zeros((3, 2)), "y": np.zeros(2)}, "one label for every row"),
        ({"x": np.zeros((3, 2)), "y": np.zeros(3)}, "at least two classes"),
        ({"x": np.zeros((2, 2)), "y": np.array([0.0, np.nan])}, "1 missing or infinite labels"),
        ({"x": np.array([[1.0], [np.nan]]), "y": np.arange(2)}, "missing or infinite values in 1 rows"),
        ({"x": np.array([["a"], ["b"]]), "y": np.arange(2)}, "x holds <U1; give numbers"),
        ({"x": np.zeros(2), "y": np.arange(2)}, r"x has shape \(2,\); expected is \(rows, \.\.\.\)"),
        ({"x": np.zeros((2, 0)), "y": np.arange(2)}, r"x has shape \(2, 0\)"),
    ],
)
def test_errors_about_arrays(tmp_path: Path, arrays: dict[str, np.ndarray], message: str) -> None:
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


def test_errors_about_folders(tmp_path: Path) -> None:
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
        assert embedded.kind == "features"
        assert embedded.x.mean() > 1  # raw


def test_importing_the_package_is_cheap() -> None:
    import subprocess
    import sys

    heavy = "sklearn pandas PIL pyarrow scipy torch"
    script = f"import sys, coterie.data; print([m for m in '{heavy}'.split() if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
