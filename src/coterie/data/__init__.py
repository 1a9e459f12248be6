"""Datasets, and partitions that divide them as pure functions of indices. Does not depend on peers.

Importing this is cheap: scikit-learn, pandas and Pillow are imported only when a dataset needs them.
"""

from coterie.data.catalog import views_of
from coterie.data.dataset import Dataset, data_home
from coterie.data.fetching import fetch
from coterie.data.loading import available, check_there, default_views, describe, load, of_unknown_content
from coterie.data.partitions import PARTITIONS, PartitionSettings, Share, Shares, Transform, check_fits, partition
from coterie.data.show import describe_shares, draw_shares
from coterie.data.views import Views

__all__ = [
    "PARTITIONS",
    "Dataset",
    "PartitionSettings",
    "Share",
    "Shares",
    "Transform",
    "Views",
    "available",
    "check_fits",
    "check_there",
    "data_home",
    "default_views",
    "describe",
    "describe_shares",
    "draw_shares",
    "fetch",
    "load",
    "of_unknown_content",
    "partition",
    "views_of",
]
