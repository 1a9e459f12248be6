"""How well the probability of a class ranks its samples above the others."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from coterie.metrics.metric import Array, Metric, Scores

PAIRWISE = 128  # samples: up to this many, comparing all pairs is faster than sorting


def one_vs_rest(scores: Scores, labels: Array, of_class: Callable[[Array, Array], float]) -> float | None:
    """The figure of the positive class; with more than two classes, the mean over the classes present."""
    present = np.unique(labels)
    if len(present) < 2:
        return None
    columns = [scores.positive] if scores.classes == 2 else present.tolist()
    return float(np.mean([of_class(labels == c, scores.values[:, c]) for c in columns]))


def auroc(scores: Scores, labels: Array) -> float | None:
    from sklearn.metrics import roc_auc_score

    return one_vs_rest(scores, labels, roc_auc_score)


def auprc(scores: Scores, labels: Array) -> float | None:
    from sklearn.metrics import average_precision_score

    return one_vs_rest(scores, labels, average_precision_score)


def stacked_auroc(values: Array, labels: Array, positive: int) -> Array:
    """From ranks: the area is the share of pairs (a sample of the class, another) in the right order, ties counting
    half. A sample of class c only needs its rank in column c."""
    peers, samples, classes = values.shape
    columns = np.ascontiguousarray(values.transpose(0, 2, 1)).reshape(-1, samples)  # (peers x classes, samples)
    of_label = (np.arange(peers)[:, None] * classes + labels).ravel()  # for each sample, its row of `columns`
    ranks = (_ranks_by_pairs if samples <= PAIRWISE else _ranks_by_sorting)(columns, of_label)
    count = np.bincount(of_label, minlength=len(columns)).reshape(peers, classes)
    sums = np.bincount(of_label, ranks, len(columns)).reshape(peers, classes)
    pairs = count * (samples - count)
    areas = (sums - count * (count + 1) / 2) / np.maximum(pairs, 1)  # 0 for a class that is absent
    if classes == 2:
        return np.where(pairs[:, positive] > 0, areas[:, positive], np.nan)
    present = (pairs > 0).sum(1)
    mean: Array = np.where(present > 0, areas.sum(1) / np.maximum(present, 1), np.nan)
    return mean


def _ranks_by_pairs(columns: Array, of_label: Array) -> Array:
    """For each sample, the rank of the probability of its own class among those of all samples; the mean for ties."""
    samples = columns.shape[1]
    compared = columns.take(of_label, axis=0)
    own = compared[np.arange(len(compared)), np.arange(len(compared)) % samples][:, None]
    # Twice the mean rank, less 1, is the number of samples below plus the number of those not above.
    twice = (compared < own).view(np.int8) + (compared <= own).view(np.int8)
    ranks: Array = (twice.astype(np.float32) @ np.ones(samples, np.float32) + 1) / 2  # exact: small whole numbers
    return ranks


def _ranks_by_sorting(columns: Array, of_label: Array) -> Array:
    samples = columns.shape[1]
    in_order, ranks = np.sort(columns, axis=1), np.empty((len(of_label) // samples, samples))
    for of_peer, rows in zip(ranks, of_label.reshape(ranks.shape), strict=True):
        for row in np.unique(rows):
            own = rows == row
            below, until = (np.searchsorted(in_order[row], columns[row, own], side) for side in ("left", "right"))
            of_peer[own] = below + (until - below + 1) / 2
    return ranks.ravel()


METRICS = (
    Metric(
        "auroc", "AUROC", True, "%", auroc,
        help="area under the ROC curve of the positive class; with more than two classes, the mean over the classes "
        "present, each against the rest",
        stacked=stacked_auroc,
    ),
    Metric(
        "auprc", "AUPRC", True, "%", auprc,
        help="average precision of the positive class; with more than two classes, the mean over the classes present, "
        "each against the rest",
    ),
)  # fmt: skip
