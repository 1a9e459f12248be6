"""Datasets and how they are divided: sources, and partitions as pure index functions. Knows no peers.

Importing this is cheap: scikit-learn, pandas and Pillow are imported when a dataset needs them.
"""

from coterie.data.dataset import Dataset, data_home
from coterie.data.fetching import fetch
from coterie.data.loading import available, check_there, describe, load
from coterie.data.partitions import (
    PARTITIONS,
    PartitionSettings,
    Share,
    Shares,
    Transform,
    check_fits,
    partition,
)
from coterie.data.show import describe_shares, draw_shares

__all__ = [
    "PARTITIONS",
    "Dataset",
    "PartitionSettings",
    "Share",
    "Shares",
    "Transform",
    "available",
    "check_fits",
    "check_there",
    "data_home",
    "describe",
    "describe_shares",
    "draw_shares",
    "fetch",
    "load",
    "partition",
]
