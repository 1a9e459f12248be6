"""The training and evaluation loops: a plain one, and a batched one that trains many equal peers as one."""

from coterie.training.dispatch import Trainer

__all__ = ["Trainer"]
