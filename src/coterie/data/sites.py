"""Loads data that comes from sites, one per peer: the values of a table's column, or one file per site."""

from __future__ import annotations

import glob
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from os.path import commonpath
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from coterie.core.errors import ConfigError, DataError
from coterie.core.formatting import count, plain
from coterie.core.task import CLASSIFICATION, REGRESSION
from coterie.data.catalog import DOWNLOADED, EMBEDDED
from coterie.data.dataset import Array, Dataset
from coterie.data.labels import name_of, read_labels_as
from coterie.data.own import SUFFIXES, check_path, load_own, read_labels
from coterie.data.partitions.settings import COLUMN, FILES, check_sites
from coterie.data.row_columns import RowColumns, natural
from coterie.data.schema import Schema, declared_schema
from coterie.data.tables import SUFFIXES as TABLES
from coterie.data.tables import read_column

if TYPE_CHECKING:
    from coterie.config.sections import DataSettings

MOST_NAMED = 5  # sites, in a sentence


def load_sites(d: DataSettings) -> Dataset:
    """The rows of all sites, in the order of their names; `d.partition` says what a site is."""
    _check(d)
    if d.partition == COLUMN:
        dataset = _load_table(d)
        assert dataset.sites is not None  # its column was read
        sizes = np.bincount(dataset.sites, minlength=len(dataset.site_names))
        return _with_sites(dataset, np.flatnonzero(sizes >= d.least))
    files = site_files(d.name)
    labels, task = _labels_and_task(files, d)
    return _joined(d, files, [_load_file(d, path, labels, task) for path in files.values()])


def load_site(d: DataSettings, site: str) -> Dataset:
    """The rows of one site, for a peer that has no others; it does not open the files of other sites."""
    _check(d)
    if d.partition == COLUMN:
        dataset = _load_table(d)
        return _with_sites(dataset, [_index(site, dataset.site_names, "peer.site")])
    files = site_files(d.name)
    name = list(files)[_index(site, tuple(files), "peer.site")]
    return _joined(d, {name: files[name]}, [_load_file(d, files[name], d.labels, d.task)])


def count_sites(d: DataSettings) -> int:
    """How many sites, and so peers, the data has."""
    _check(d)
    if d.partition == FILES:
        return len(site_files(d.name))
    kept = sum(size >= d.least for size in _sizes(d).values())
    if not kept:
        raise DataError(f"{d.name}: no value of '{d.column}' has {d.least} rows or more: lower data.least")
    return kept


def left_out(d: DataSettings) -> str:
    """A note on the sites that have too few rows; empty if there are none."""
    small = [] if d.partition != COLUMN else [name for name, size in _sizes(d).items() if size < d.least]
    if not small:
        return ""
    more = f" and {len(small) - MOST_NAMED} more" if len(small) > MOST_NAMED else ""
    named = ", ".join(plain(name, 40) for name in small[:MOST_NAMED])
    return f"{count(len(small), 'site')} with fewer than {d.least} rows left out (data.least): {named}{more}"


def site_files(name: str) -> dict[str, Path]:
    """The file (or folder of images) of each site, by name: those of a folder, of a pattern, or a single file."""
    place = Path(name).expanduser()
    if place.is_dir():
        inside = sorted(entry for entry in place.iterdir() if entry.name[0] != ".")
        found = [e for e in inside if e.suffix in SUFFIXES] or [e for e in inside if e.is_dir()]
        if not found:
            raise DataError(f"{name}: has no {', '.join(SUFFIXES)} files and no folders of images, one for each site")
    else:
        whole = place.absolute()
        found = [place] if place.exists() else sorted(Path(whole.anchor).glob(str(whole.relative_to(whole.anchor))))
    if not found:
        raise DataError(f"data.name = '{name}': no file matches; give a folder, or a pattern such as 'sites/*.csv'")
    return dict(sorted(_named(name, found).items(), key=lambda item: natural(item[0])))


def is_pattern(name: str) -> bool:
    """Whether this is a pattern of files, such as `sites/*.csv`."""
    return glob.has_magic(name) and not Path(name).expanduser().exists()


def _named(name: str, files: Sequence[Path]) -> dict[str, Path]:
    """Files by their names without suffix; files of the same name in several folders by their paths."""
    names = [file.stem for file in files]
    if len(set(names)) < len(names):
        common = Path(commonpath([file.parent for file in files]))
        names = [file.relative_to(common).with_suffix("").as_posix() for file in files]
    doubled = [one for one, times in Counter(names).items() if times > 1]
    if doubled:
        raise DataError(f"{name}: two files give the site '{doubled[0]}': rename one")
    return dict(zip(names, files, strict=True))


def _check(d: DataSettings) -> None:
    check_sites(d)
    named = d.name in (*EMBEDDED, *DOWNLOADED)
    if named or (d.partition == COLUMN and Path(d.name).suffix not in TABLES):
        what = "a .csv or .parquet file" if d.partition == COLUMN else "a folder or a pattern of files, one per site"
        raise ConfigError(f"data.partition = {d.partition} needs data.name to be {what}, not {d.name}")


def _rows(d: DataSettings) -> RowColumns:
    return RowColumns(d.column if d.partition == COLUMN else "", d.group, d.time)


def _load_table(d: DataSettings) -> Dataset:
    path = Path(d.name).expanduser()
    return load_own(path, d.label, d.labels, d.categories, _schema(d), rows=_rows(d), task=d.task)


def _load_file(d: DataSettings, path: Path, labels: Sequence[str], task: str) -> Dataset:
    return _sorted_columns(load_own(path, d.label, labels, d.categories, _schema(d), rows=_rows(d), task=task))


def _schema(d: DataSettings) -> Schema | None:
    return declared_schema(d.schema, d.labels, d.categories)


def _sorted_columns(dataset: Dataset) -> Dataset:
    """Columns in alphabetical order, so that their order in a site's file does not matter to other sites."""
    widths = [len(column.features) for column in dataset.columns]
    starts = np.cumsum([0, *widths])
    order = sorted(range(len(widths)), key=lambda i: dataset.columns[i].name)
    if order == list(range(len(widths))):
        return dataset
    features = np.concatenate([np.arange(starts[i], starts[i + 1]) for i in order])
    return replace(dataset, x=dataset.x[:, features], columns=tuple(dataset.columns[i] for i in order))


def _labels_and_task(files: dict[str, Path], d: DataSettings) -> tuple[Sequence[str], str]:
    """The labels of all files, because a file may lack some of them, and the task that all files together show."""
    if d.schema or d.labels or d.task == REGRESSION:  # declared
        return d.labels, d.task
    found = [read_labels(path, d.label) for path in files.values()]
    if len({labels.dtype.kind in "iufb" for labels in found}) > 1:  # names of numbers, as of texts
        found = [np.array([name_of(label) for label in labels]) for labels in found]
    classes = read_labels_as(d.task, d.name, "the label", np.concatenate(found))[1]
    if len(classes) == 1:
        raise DataError(f"{d.name}: all rows of all files have the same label; at least two classes are needed")
    return classes, CLASSIFICATION if classes else REGRESSION


def _joined(d: DataSettings, files: dict[str, Path], parts: Sequence[Dataset]) -> Dataset:
    """One dataset of the files of all sites. Raises DataError that names a file that does not fit the first."""
    paths = list(files.values())
    for path, part in zip(paths, parts, strict=True):
        _refuse_difference(path, part, paths[0], parts[0])
    ids = [np.arange(len(part.y)) if part.row_ids is None else part.row_ids for part in parts]
    return replace(
        parts[0], name=Path(d.name).name, x=np.concatenate([p.x for p in parts]),
        y=np.concatenate([p.y for p in parts]), sites=np.repeat(np.arange(len(parts)), [len(p.y) for p in parts]),
        site_names=tuple(files), groups=_stacked([p.groups for p in parts]), times=_stacked([p.times for p in parts]),
        row_ids=np.concatenate(ids), remarks=tuple(remark for part in parts for remark in part.remarks),
    )  # fmt: skip


def _stacked(parts: Sequence[Array | None]) -> Array | None:
    given = [part for part in parts if part is not None]
    return np.concatenate(given) if given else None


def _refuse_difference(path: Path, part: Dataset, first_path: Path, first: Dataset) -> None:
    """Raise DataError if a file does not have the columns, or samples of the shape, that the first file has."""
    has, needs = {column.name for column in part.columns}, {column.name for column in first.columns}
    for verb, names in (("lacks the", needs - has), ("also has a", has - needs)):
        if names:
            raise DataError(
                f"{path}: {verb} column '{min(names)}' in comparison to {first_path}: all files need the same columns"
            )
    if part.kind != first.kind or part.x.shape[1:] != first.x.shape[1:]:
        raise DataError(
            f"{path}: holds {part.kind} of shape {part.x.shape[1:]}, but {first_path} {first.kind} of shape "
            f"{first.x.shape[1:]}: all files need the same"
        )


def _with_sites(dataset: Dataset, kept: Sequence[int] | Array) -> Dataset:
    """The rows of these sites alone."""
    assert dataset.sites is not None
    rows = np.flatnonzero(np.isin(dataset.sites, kept))
    taken = dataset.taken(rows)
    names = tuple(dataset.site_names[i] for i in kept)
    return replace(taken, sites=np.searchsorted(kept, dataset.sites[rows]), site_names=names)


def _index(site: str, names: Sequence[str], key: str) -> int:
    if not site and len(names) == 1:
        return 0
    if site not in names:
        raise ConfigError(f"{key} = '{plain(site)}' is not a site of the data: set it to the name of this peer's site")
    return list(names).index(site)


def _sizes(d: DataSettings) -> dict[str, int]:
    """The number of rows of each site of a table, in the order of their names."""
    path = Path(d.name).expanduser()
    check_path(path)
    state = path.stat()
    return _sizes_in(path, d.column, bool(d.schema), state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=16)
def _sizes_in(path: Path, column: str, untidy: bool, *_state: int) -> dict[str, int]:
    """Cached, because every command counts the sites before it loads them."""
    values = read_column(path, column, "data.column", text=True, untidy=untidy).dropna()
    sizes = Counter(name_of(value).strip() for value in values.to_numpy())
    return {name: sizes[name] for name in sorted(sizes, key=natural)}
