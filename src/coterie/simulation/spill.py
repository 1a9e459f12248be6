"""Keeps models in memory-mapped files, for runs with more models than fit into memory.

The operating system writes pages to disk when memory is short, and reads them back on access. The files are unlinked
as soon as they are mapped, so nothing is left on disk, however a run ends.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from coterie.core.artifact import Artifact
from coterie.core.errors import ConfigError, RunError
from coterie.core.model import Model
from coterie.core.weights import Weights

BLOCK = 64_000_000  # bytes of a file, or one row if that is longer


class Spill:
    """Models in files of a folder; artifacts only if they carry a model or a part of one: others are small."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder).expanduser()
        self.blocks = 0
        self._free: dict[int, list[np.ndarray]] = defaultdict(list)  # unused rows, by size
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"engine.spill = '{folder}' cannot be used: {error.strerror}") from error

    def copied(self, model: Model) -> Model:
        return Model(model.architecture, self._row(model.vector))

    def moved(self, artifact: Artifact) -> Artifact:
        content = artifact.content
        if not isinstance(content, Weights):
            return artifact
        return replace(artifact, content=Weights(content.layout, self._row(content.vector)))

    def _row(self, vector: Tensor) -> Tensor:
        """A copy in a file. Its row becomes free when the last tensor that refers to it, even a view, is gone."""
        if vector.device.type != "cpu" or vector.dtype != torch.float32 or not vector.numel():
            return vector
        size = vector.numel()
        if not self._free[size]:
            self._free[size].extend(self._block(size))
        row = self._free[size].pop()
        view = row[:]  # torch keeps it alive as long as any tensor refers to it
        weakref.finalize(view, self._free[size].append, row).atexit = False
        tensor = torch.from_numpy(view)
        tensor.copy_(vector)
        return tensor

    def _block(self, size: int) -> list[np.ndarray]:
        rows = max(1, BLOCK // (4 * size))
        length = 4 * size * rows
        try:
            with tempfile.TemporaryFile(dir=self.folder) as file:
                # Allocate everything now: if the disk were full later, the process would be killed silently.
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(file.fileno(), 0, length)
                else:
                    file.truncate(length)
                mapped = mmap.mmap(file.fileno(), length)
        except OSError as error:
            raise RunError(
                f"engine.spill: cannot allocate {length / 1e6:.0f} MB in {self.folder} ({error.strerror}): free some "
                "disk space, or choose another folder, then continue with --resume"
            ) from error
        self.blocks += 1
        return list(np.frombuffer(mapped, dtype=np.float32).reshape(rows, size))
