"""An architecture (the net that peers of one kind share) and a model (one peer's weights for it)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from coterie.core.errors import ArtifactError
from coterie.core.named_code import is_import_path
from coterie.core.net import Net, batchable, draws, vmappable
from coterie.core.randomness import torch_seeded
from coterie.core.weights import Layout, Weights, as_weights


class Architecture:
    """A net's shape without its weights; every model of it is one vector."""

    def __init__(
        self, name: str, build: Callable[[], Net], device: str = "cpu", start: Mapping[str, Tensor] | None = None
    ) -> None:
        """`start` are the tensors that new weights have instead of random numbers."""
        self.name = name
        self.build = build
        self.start = dict(start or {})
        self.device = torch.device(device)
        template = build()
        self.layout = Layout.of_module(template)
        # Parameters that training leaves unchanged: the module sets `requires_grad = False` on them.
        self.frozen = frozenset(name for name, p in template.named_parameters() if not p.requires_grad)
        self.only_for_training = frozenset(template.only_for_training)
        self.batches_well = batchable(template)
        self.can_batch = vmappable(template)
        self.draws = draws(template) or is_import_path(name)  # a user's module may draw: its code cannot be inspected
        self._scratch = threading.local()
        self._initial: dict[tuple[int, int], Tensor] = {}
        self.caches: dict[str, Any] = {}  # data that other modules derive from this architecture, with its lifetime

    def scratch(self) -> Net:
        """This thread's module to compute with; its weights are those bound last."""
        net: Net | None = getattr(self._scratch, "net", None)
        if net is None:
            with torch_seeded("scratch"):  # its draws are never used, and must not advance torch's generator
                net = self._scratch.net = self.build().to(self.device)
        return net

    def initial(self, seed: int, draw: int = 0) -> Model:
        """New weights, the same at every peer for the same draw: PANM's w_0, IFCA's cluster models."""
        if (seed, draw) not in self._initial:
            self._initial[seed, draw] = self.drawn(seed, "initial", self.name, draw).vector
        return Model(self, self._initial[seed, draw].clone())

    def drawn(self, *keys: object) -> Model:
        """New weights that depend only on the keys."""
        with torch_seeded(*keys):
            net = self.build()
        state = {**dict(net.named_parameters()), **dict(net.named_buffers()), **self.start}
        parts = [state[slot.name].detach().reshape(-1).to(torch.float32) for slot in self.layout.slots]
        return Model(self, torch.cat(parts).to(self.device))

    def model(self, tensors: Mapping[str, Tensor]) -> Model:
        """A new model from received tensors, to train or to keep."""
        return self.view(tensors).copy()

    def view(self, tensors: Mapping[str, Tensor]) -> Model:
        """Received tensors as a read-only model, without a copy if their layout is equal."""
        content = as_weights(tensors)
        if isinstance(content, Weights) and content.layout == self.layout:
            return Model(self, content.vector)
        model = Model(self, torch.zeros(self.layout.size, device=self.device))
        if set(content) != set(model):
            raise ArtifactError(f"the received tensors are not a complete model of architecture '{self.name}'")
        model.load(content)
        return model


class Model(Weights):
    """One model: weights that know their architecture."""

    __slots__ = ("architecture",)

    def __init__(self, architecture: Architecture, vector: Tensor) -> None:
        super().__init__(architecture.layout, vector)
        self.architecture = architecture

    @property
    def frozen(self) -> frozenset[str]:
        return self.architecture.frozen

    def copy(self) -> Model:
        return Model(self.architecture, self.vector.clone())
