"""The only fit and evaluate loops: a plain one, and a batched one that trains many equal peers as one."""

from coterie.core.jobs import EvaluateJob, FitJob, OptimizerMemory, Pool, Prediction, Score, Split, TrainSettings
from coterie.core.loss import Batch, BoundNet, Loss, cross_entropy
from coterie.training.dispatch import Trainer
from coterie.training.losses import proximal, supervised_contrastive

__all__ = [
    "Batch",
    "BoundNet",
    "EvaluateJob",
    "FitJob",
    "Loss",
    "OptimizerMemory",
    "Pool",
    "Prediction",
    "Score",
    "Split",
    "TrainSettings",
    "Trainer",
    "cross_entropy",
    "proximal",
    "supervised_contrastive",
]
