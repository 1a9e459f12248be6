"""The settings of partitions, which are keys of [data], and their checks."""

from __future__ import annotations

from dataclasses import dataclass

from coterie.core.errors import ConfigError
from coterie.core.settings import check_values, setting
from coterie.core.task import REGRESSION, task_of

PARTITIONS: dict[str, str] = {
    "iid": "every peer has the pool's mix of classes, and the same number of images",
    "dirichlet": "each class is divided by Dirichlet(alpha) proportions: a smaller alpha is more uneven",
    "classes": "every peer has classes_per_peer classes; a class is divided evenly among its peers",
    "windows": "clusters of classes_per_peer neighbouring classes, which may overlap",
    "scenario1": "two clusters with classes 0-4 and 5-9; 300 training images per class",
    "scenario2": "two clusters with classes 0-6 and 3-9; 300 training images per class",
    "scenario3": "like scenario1, with 100 to 300 training images, drawn per peer and class",
    "scenario4": "like scenario2, with 100 to 300 training images, drawn per peer and class",
    "rotation": "like iid; each of 2 or 4 clusters has its images rotated by its own angle",
    "label-swap": "like iid; each of 2 or 4 clusters has another pair of labels swapped",
    "independent": "like iid; every peer has its own random permutation of the labels",
    "quantity": "the pool's mix of classes, but sizes that follow a power law (skew)",
    "column": "one peer per site: per value of the table's column `column`",
    "files": "one peer per site: per file of a folder, or of a pattern such as 'sites/*.csv'",
}
"""Every partition, with a one-line description."""

SITES = COLUMN, FILES = "column", "files"
"""The partitions that take the peers from the data; all others divide one pool artificially."""

OF_NUMBERS = ("iid", "quantity", "rotation", *SITES)
"""The partitions that need no classes."""

_SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class PartitionSettings:
    """How the pool is divided among the peers."""

    partition: str = setting("iid", "how the data is divided", choices=tuple(PARTITIONS))
    clusters: int = setting(2, "number of clusters, for rotation and label-swap (2 or 4) and windows", least=1)
    alpha: float = setting(0.5, "for dirichlet: concentration; smaller is more uneven", above=0)
    classes_per_peer: int = setting(2, "number of classes, for the classes and windows partitions", least=1)
    skew: float = setting(
        1.0, "for quantity: the r-th largest peer has r^-skew times the images of the largest; 0: all equal", least=0
    )
    train: float | int = setting(
        0.7, "fraction of a peer's data, or number of images per peer (scenarios: per class)", above=0
    )
    validation: float | int = setting(0.15, "like train", above=0)
    test: float | int = setting(0.15, "like train", above=0)
    private_labels: bool = setting(
        False, "with any partition: every peer has its own random permutation of the class labels"
    )
    overlap: bool = setting(False, "whether two peers may have the same image")
    column: str = setting("", "for the column partition: the column that holds each row's site")
    least: int = setting(10, "for the column partition: sites with fewer rows are left out", least=3)
    group: str = setting("", "column (or array) of groups, such as patients: a peer's splits have no group in common")
    time: str = setting("", "column (or array) of dates or numbers: a peer's latest rows are its test split")


def exact_sizes(settings: PartitionSettings) -> tuple[int, int, int] | None:
    """The split sizes as numbers of images; None if they are fractions. Mixing the two is an error."""
    sizes = (settings.train, settings.validation, settings.test)
    kinds = {isinstance(size, int) for size in sizes}
    if len(kinds) > 1:
        shown = ", ".join(f"data.{name} = {size}" for name, size in zip(_SPLITS, sizes, strict=True))
        raise ConfigError(f"{shown}: give all three as whole numbers of images, or all three as fractions of 1")
    if kinds == {False}:
        _check_fractions(sizes)
        return None
    return int(sizes[0]), int(sizes[1]), int(sizes[2])


def _check_fractions(sizes: tuple[float, float, float]) -> None:
    if sum(sizes) > 1 + 1e-9:
        raise ConfigError(f"data.train: train, validation and test add up to {sum(sizes):g}; they must not exceed 1")


def fractions_of(settings: PartitionSettings) -> tuple[float, float, float]:
    """The split sizes as fractions."""
    return settings.train, settings.validation, settings.test


def check_settings(settings: PartitionSettings, classes: int) -> None:
    """Raise ConfigError for settings that are impossible with this many classes, before any row is read."""
    check_values(settings, "data.")
    name = settings.partition
    if task_of(classes) == REGRESSION:
        _check_numbers(settings)
    exact = exact_sizes(settings)
    if name in ("rotation", "label-swap") and settings.clusters not in (2, 4):
        raise ConfigError(f"data.clusters: must be 2 or 4 for {name}, not {settings.clusters}")
    if name == "label-swap" and classes < 8:
        raise ConfigError(f"data.partition: label-swap needs at least 8 classes; this dataset has {classes}")
    if name.startswith("scenario") and classes != 10:
        raise ConfigError(f"data.partition: {name} needs a dataset of 10 classes; this one has {classes}")
    if name == "windows" and not 1 <= settings.clusters <= classes:
        raise ConfigError(f"data.clusters: must be 1 to {classes} for windows here, not {settings.clusters}")
    if name in ("classes", "windows") and not 1 <= settings.classes_per_peer <= classes:
        given = settings.classes_per_peer
        raise ConfigError(f"data.classes_per_peer: must be 1 to {classes} here, not {given}")
    check_sites(settings)
    if name == "quantity" and exact:
        raise ConfigError("data.train: the quantity partition sets the sizes itself; give fractions of 1")


def _check_numbers(settings: PartitionSettings) -> None:
    """Raise ConfigError for settings that need classes."""
    why = "needs classes, but these labels are numbers"
    if settings.private_labels:
        raise ConfigError(f"data.private_labels {why}: remove data.private_labels")
    if settings.partition not in OF_NUMBERS:
        raise ConfigError(f"data.partition = {settings.partition} {why}: use data.partition = {', '.join(OF_NUMBERS)}")


def check_sites(settings: PartitionSettings) -> None:
    """Raise ConfigError for keys of sites that the partition does not have, or that exclude each other."""
    name = settings.partition
    if (name == COLUMN) != bool(settings.column):
        raise ConfigError(
            "data.partition = column needs data.column, the name of the column that holds each row's site"
            if name == COLUMN
            else f"data.column only applies to data.partition = column, not {name}: remove it, or set data.partition"
        )
    check_row_columns(settings)
    for key in ("group", "time"):
        if getattr(settings, key) and name not in SITES:
            raise ConfigError(
                f"data.{key} needs peers that are sites, but data.partition = {name} divides the rows artificially: "
                f"set data.partition to column or files, or remove data.{key}"
            )


def check_row_columns(settings: PartitionSettings) -> None:
    """Raise ConfigError if rows are to be split by group and by time at once."""
    if settings.group and settings.time:
        raise ConfigError("data.group and data.time cannot be combined: remove one of the two")


def check_peers(settings: PartitionSettings, peers: int) -> None:
    """Raise ConfigError if the partition cannot be made for so few peers."""
    least = cluster_count(settings)
    if peers < least:
        why = f"{settings.partition} has {least} clusters" if least > 1 else "a run needs peers"
        raise ConfigError(f"peers: must be at least {least}, not {peers} ({why})")


def cluster_count(settings: PartitionSettings) -> int:
    """The number of true clusters that the partition makes; 1 if it makes none."""
    if settings.partition in ("rotation", "label-swap", "windows"):
        return settings.clusters
    return 2 if settings.partition.startswith("scenario") else 1
