"""The only fit and evaluate loops: a plain one, and a batched one that trains many equal peers as one."""

from coterie.training.dispatch import Trainer
from coterie.training.jobs import EvaluateJob, FitJob, OptimizerMemory, Pool, Score, Split, TrainSettings
from coterie.training.losses import Batch, BoundNet, Loss, cross_entropy, proximal

__all__ = [
    "Batch",
    "BoundNet",
    "EvaluateJob",
    "FitJob",
    "Loss",
    "OptimizerMemory",
    "Pool",
    "Score",
    "Split",
    "TrainSettings",
    "Trainer",
    "cross_entropy",
    "proximal",
]
