"""Evaluates portable models in a sandbox, which is started on first use."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from coterie.core.errors import PortableError
from coterie.core.jobs import PortableJob, Prediction, Score
from coterie.core.loss import sample_losses
from coterie.core.task import CLASSIFICATION, task_of

if TYPE_CHECKING:
    from coterie.core.portable_model import Portable
    from coterie.portable.sandbox import Sandbox

LEAST = 1e-9  # smallest probability: zero has no logarithm


class PortableRunner:
    def __init__(self) -> None:
        self._sandbox: Sandbox | None = None
        self._checked: dict[tuple[str, tuple[int, ...], int], str] = {}  # by model: why it cannot be used, or ""

    def predict(self, job: PortableJob) -> Prediction:
        """The logarithms of its probabilities, or its numbers; if it fails, NaN and the reason."""
        x, device = job.split.x.cpu().numpy(), job.split.rows.device
        features = torch.empty(len(x), 0, device=device)
        try:
            self._check(job.model, x.shape[1:], job.classes)
            answers = self._started().answers(job.model.bytes, job.model.digest, x, job.classes)
        except PortableError as error:
            return Prediction(torch.full((len(x), job.classes), math.nan, device=device), features, str(error))
        outputs = torch.from_numpy(np.array(answers, dtype=np.float32))
        if task_of(job.classes) == CLASSIFICATION:
            outputs = outputs.clamp(min=LEAST).log()
        return Prediction(outputs.to(device), features)

    def _check(self, model: Portable, shape: tuple[int, ...], classes: int) -> None:
        """Validate a model once, before it runs for the first time."""
        key = model.digest, shape, classes
        if key not in self._checked:
            self._checked[key] = self._started().check(model.bytes, model.digest, shape, classes, len(model.bytes))
        if self._checked[key]:
            raise PortableError(self._checked[key])

    def evaluate(self, job: PortableJob) -> Score:
        prediction = self.predict(job)
        if prediction.trouble:
            return Score(math.nan, 0.0)
        logits = prediction.logits  # of probabilities, their logarithms
        return score(logits.exp() if task_of(job.classes) == CLASSIFICATION else logits, job.split.y)

    def close(self) -> None:
        if self._sandbox is not None:
            self._sandbox.close()

    def _started(self) -> Sandbox:
        from coterie.portable.sandbox import Sandbox

        if self._sandbox is None:
            self._sandbox = Sandbox()
        return self._sandbox


def score(answers: Tensor, labels: Tensor) -> Score:
    """Cross entropy and accuracy of predicted probabilities, or the mean squared error of predicted numbers."""
    if not len(labels):
        return Score(math.nan, 0.0)
    if labels.is_floating_point():
        return Score(float(sample_losses(answers, labels).mean()), math.nan)
    of_label = answers.gather(1, labels[:, None])[:, 0].clamp(min=LEAST)
    return Score(float(-of_label.log().mean()), float((answers.argmax(1) == labels).double().mean()))
