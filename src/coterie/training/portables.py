"""Measuring models that only a sandbox runs. It is started when the first of them comes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from coterie.core.errors import PortableError
from coterie.core.jobs import PortableJob, Prediction, Score

if TYPE_CHECKING:
    from coterie.core.portable_model import Portable
    from coterie.portable.sandbox import Sandbox

LEAST = 1e-9  # a probability of zero has no logarithm


class PortableRunner:
    def __init__(self) -> None:
        self._sandbox: Sandbox | None = None
        self._checked: dict[tuple[str, tuple[int, ...], int], str] = {}  # models, and why they cannot be used

    def predict(self, job: PortableJob) -> Prediction:
        """Logarithms of its probabilities; where it fails, none that are numbers, and why."""
        x, device = job.split.x.cpu().numpy(), job.split.rows.device
        features = torch.empty(len(x), 0, device=device)
        try:
            self._check(job.model, x.shape[1:], job.classes)
            found = self._opened().probabilities(job.model.bytes, job.model.digest, x, job.classes)
        except PortableError as error:
            return Prediction(torch.full((len(x), job.classes), math.nan, device=device), features, str(error))
        return Prediction(_logarithms(found).to(device), features)

    def _check(self, model: Portable, shape: tuple[int, ...], classes: int) -> None:
        """Before it runs for the first time, see that it is what it should be."""
        key = model.digest, shape, classes
        if key not in self._checked:
            self._checked[key] = self._opened().check(model.bytes, model.digest, shape, classes, len(model.bytes))
        if self._checked[key]:
            raise PortableError(self._checked[key])

    def evaluate(self, job: PortableJob) -> Score:
        said = self.predict(job)
        if said.trouble:
            return Score(math.nan, 0.0)
        return score(said.logits.exp(), job.split.y)

    def close(self) -> None:
        if self._sandbox is not None:
            self._sandbox.close()

    def _opened(self) -> Sandbox:
        from coterie.portable.sandbox import Sandbox

        if self._sandbox is None:
            self._sandbox = Sandbox()
        return self._sandbox


def _logarithms(probabilities: np.ndarray) -> Tensor:
    return torch.from_numpy(np.array(probabilities, dtype=np.float32)).clamp(min=LEAST).log()


def score(probabilities: Tensor, labels: Tensor) -> Score:
    """Cross entropy and accuracy of predictions that are probabilities already."""
    if not len(labels):
        return Score(math.nan, 0.0)
    right = probabilities.gather(1, labels[:, None])[:, 0].clamp(min=LEAST)
    return Score(float(-right.log().mean()), float((probabilities.argmax(1) == labels).double().mean()))
