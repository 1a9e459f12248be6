"""Loads a dataset by name or by path."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np

from coterie.core.errors import DataError, unknown
from coterie.core.task import AUTO
from coterie.data.catalog import DOWNLOADED, EMBEDDED, file_of, find_entry, views_of
from coterie.data.dataset import Dataset, FeatureColumn, data_home, read_arrays
from coterie.data.fetching import check_form
from coterie.data.own import check_path, image_side, load_own, looks_like_path
from coterie.data.row_columns import ONLY_FEATURES, RowColumns
from coterie.data.schema import declared_schema
from coterie.data.sites import is_pattern, site_files
from coterie.data.tables import Categories
from coterie.data.views import PHOTOGRAPHS, Views, usual_views


def load(
    name_or_path: str,
    *,
    label: str = "label",
    labels: Sequence[str] = (),
    categories: Categories | None = None,
    schema: str = "",
    task: str = AUTO,
    rows: RowColumns = ONLY_FEATURES,
    home: Path | None = None,
) -> Dataset:
    """A named dataset, or your own file or folder.

    For your own data, `label` is the label column of a table, `labels` lists all classes in order if the data may lack
    some, and `categories` lists the values that each text column may have. `schema` is the path of a declared schema,
    which replaces all three. `task` is "classification", "regression" or "auto": by the labels. `rows` names columns
    that describe rows and are not features.

    The official train and test parts of a named dataset are merged into one pool, train rows first. Values are raw:
    images are uint8 (N, C, H, W), anything else is numbers (N, ...). A run scales them for each peer (see
    `coterie.data.pool`).
    """
    for key, given in (("categories", categories), ("schema", schema)):
        if given and name_or_path in (*EMBEDDED, *DOWNLOADED):
            raise DataError(f"data.{key} only applies to your own tables, not to {name_or_path}: remove it")
    if name_or_path in EMBEDDED:
        return _of_task(_load_embedded(name_or_path), task)
    if name_or_path in DOWNLOADED:
        return _of_task(_load_downloaded(name_or_path, data_home(home)), task)
    check_there(name_or_path)
    declared = declared_schema(schema, labels, categories)
    return load_own(Path(name_or_path).expanduser(), label, labels, categories, declared, rows=rows, task=task)


def _of_task(dataset: Dataset, task: str) -> Dataset:
    if task not in (AUTO, dataset.task):
        raise DataError(f"data.task = {task}, but {dataset.name} is for {dataset.task}: remove data.task")
    return dataset


def check_there(name_or_path: str) -> None:
    """Raise DataError if there is no dataset, file or folder of this name."""
    if name_or_path in EMBEDDED or name_or_path in DOWNLOADED:
        return
    if is_pattern(name_or_path):
        site_files(name_or_path)
        return
    if not looks_like_path(name_or_path):
        names = unknown("dataset", name_or_path, [*EMBEDDED, *DOWNLOADED])
        raise DataError(
            f"data.name: {names}; or give the path of a .csv, .parquet or .npz file or of a folder of images"
        )
    check_path(Path(name_or_path).expanduser())


def available(home: Path | None = None) -> dict[str, bool]:
    """The named datasets, and whether each is available on this machine."""
    folder = data_home(home)
    downloaded = {name: (folder / f"{file_of(name)}.npz").exists() for name in DOWNLOADED}
    return dict.fromkeys(EMBEDDED, True) | downloaded


def describe(name: str) -> str:
    """A one-line description of a named dataset."""
    return EMBEDDED[name] if name in EMBEDDED else find_entry(name).summary


def default_views(name_or_path: str) -> Views:
    """How views of a dataset's images are made by default; the value has no meaning for tables."""
    if name_or_path in EMBEDDED or name_or_path in DOWNLOADED:
        return views_of(name_or_path) or PHOTOGRAPHS
    side = image_side(Path(name_or_path).expanduser())
    return PHOTOGRAPHS if side is None else usual_views(side)


def of_unknown_content(name_or_path: str) -> bool:
    """Whether these are the user's own images, whose content is unknown."""
    return name_or_path not in (*EMBEDDED, *DOWNLOADED) and image_side(Path(name_or_path).expanduser()) is not None


def _load_downloaded(name: str, home: Path) -> Dataset:
    entry, path = find_entry(name), home / f"{file_of(name)}.npz"
    if not path.exists():
        raise DataError(f"{name} is not on this machine: run `coterie data get {name}`")
    try:
        arrays = read_arrays(path)
        check_form(name, arrays)
    except DataError as error:
        raise DataError(f"{error}: fetch it again with `coterie data get {name} --force`") from error
    columns = tuple(FeatureColumn(column) for column in entry.columns)
    return Dataset(name, arrays["x"], arrays[entry.labels], entry.classes, columns)


def _load_embedded(name: str) -> Dataset:
    """A dataset that ships with scikit-learn."""
    if name == "digits":
        table = _embedded_table("digits.csv.gz", skip=0)
        # Grey levels 0..16 become 0..255, as in every other image dataset.
        x = np.rint(table[:, :-1].reshape(-1, 1, 8, 8) * (255 / 16)).astype(np.uint8)
        return Dataset(name, x, table[:, -1].astype(np.int64), tuple("0123456789"))
    if name == "diabetes":
        x, y = (_embedded_table(f"diabetes_{part}.csv.gz", skip=0, separator=None) for part in ("data_raw", "target"))
        columns = tuple(map(FeatureColumn, ("age", "sex", "bmi", "bp", *(f"s{i}" for i in range(1, 7)))))
        return Dataset(name, x.copy(), y.copy(), (), columns)
    file = {"breast-cancer": "breast_cancer.csv", "wine": "wine_data.csv"}[name]
    table = _embedded_table(file, skip=1)
    _, _, *classes = (_embedded_folder() / file).read_text(encoding="utf-8").partition("\n")[0].split(",")
    return Dataset(name, table[:, :-1].copy(), table[:, -1].astype(np.int64), tuple(classes))


@cache  # parsing digits takes 20 ms, as long as a round of a small run
def _embedded_table(file: str, skip: int, separator: str | None = ",") -> np.ndarray:
    try:
        return np.loadtxt(_embedded_folder() / file, delimiter=separator, skiprows=skip)
    except OSError as error:
        raise DataError(f"scikit-learn's {file} cannot be read ({error}): install scikit-learn again") from error


def _embedded_folder() -> Path:
    """scikit-learn's data folder, without importing it: that would cost every real peer 100 MB and a second."""
    spec = importlib.util.find_spec("sklearn")
    if spec is None or spec.origin is None:
        raise DataError("this dataset ships with scikit-learn, which is not installed: pip install scikit-learn")
    return Path(spec.origin).parent / "datasets" / "data"
