"""Divides the pool among the peers, as pure functions of labels, settings and seed."""

from coterie.data.partitions.deal import check_fits, partition
from coterie.data.partitions.settings import PARTITIONS, PartitionSettings
from coterie.data.partitions.shares import Share, Shares, Transform

__all__ = ["PARTITIONS", "PartitionSettings", "Share", "Shares", "Transform", "check_fits", "partition"]
