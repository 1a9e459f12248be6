"""What models predict: the class of a sample, or a number.

A model of classes has an output for each of two or more classes; a model of numbers has one. Labels that are classes
are integers; labels that are numbers are floats. So both the outputs and the labels tell the task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

TASKS = CLASSIFICATION, REGRESSION = "classification", "regression"
AUTO = "auto"  # the task follows from the labels
OF_A_NUMBER = 1  # outputs of a model that predicts a number


def task_of(outputs: int) -> str:
    """The task of a model with so many outputs."""
    return REGRESSION if outputs == OF_A_NUMBER else CLASSIFICATION


def answers(outputs: Tensor) -> Tensor:
    """What a model's raw outputs (samples, outputs) say: the probability of each class, or the number."""
    return outputs if task_of(outputs.shape[-1]) == REGRESSION else outputs.softmax(-1)
