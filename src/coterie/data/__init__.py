"""Datasets, and partitions that divide them as pure functions of indices. Does not depend on peers.

Importing this is cheap: scikit-learn, pandas and Pillow are imported only when a dataset needs them.
"""

from coterie.data.catalog import views_of
from coterie.data.dataset import Dataset, data_home
from coterie.data.fetching import fetch
from coterie.data.loading import available, check_there, default_views, describe, load, of_unknown_content
from coterie.data.partitions import (
    PARTITIONS,
    SITES,
    PartitionSettings,
    Share,
    Shares,
    Transform,
    check_fits,
    partition,
    partition_alone,
    partition_sites,
)
from coterie.data.show import describe_shares, draw_shares
from coterie.data.sites import count_sites, is_pattern, left_out, load_site, load_sites, site_files
from coterie.data.views import Views

__all__ = [
    "PARTITIONS",
    "SITES",
    "Dataset",
    "PartitionSettings",
    "Share",
    "Shares",
    "Transform",
    "Views",
    "available",
    "check_fits",
    "check_there",
    "count_sites",
    "data_home",
    "default_views",
    "describe",
    "describe_shares",
    "draw_shares",
    "fetch",
    "is_pattern",
    "left_out",
    "load",
    "load_site",
    "load_sites",
    "of_unknown_content",
    "partition",
    "partition_alone",
    "partition_sites",
    "site_files",
    "views_of",
]
