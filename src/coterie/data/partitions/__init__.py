"""Divides the pool among the peers, as pure functions of labels, settings and seed."""

from coterie.data.partitions.deal import check_fits, partition
from coterie.data.partitions.settings import PARTITIONS, SITES, PartitionSettings
from coterie.data.partitions.shares import Share, Shares, Transform
from coterie.data.partitions.sites import partition_alone, partition_sites

__all__ = [
    "PARTITIONS",
    "SITES",
    "PartitionSettings",
    "Share",
    "Shares",
    "Transform",
    "check_fits",
    "partition",
    "partition_alone",
    "partition_sites",
]
