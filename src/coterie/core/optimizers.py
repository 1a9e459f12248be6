"""The optimisers: torch's own whose step treats each number alone, so that it works on stacked models, too.

A new one is one entry of `OPTIMIZERS`. The plain loop makes the torch class, the batched loop calls its functional
form; both take the values of all options from the same place, `options`.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim.adadelta import adadelta
from torch.optim.adagrad import adagrad
from torch.optim.adam import adam
from torch.optim.adamax import adamax
from torch.optim.adamw import adamw
from torch.optim.nadam import nadam
from torch.optim.radam import radam
from torch.optim.rmsprop import rmsprop
from torch.optim.sgd import sgd

if TYPE_CHECKING:
    from coterie.core.jobs import TrainSettings

OPTIONS = ("momentum", "betas", "weight_decay")  # settings of [train] that only some optimisers have
State = Mapping[str, list[Tensor]]  # by torch's names
Stepping = Callable[[list[Tensor], list[Tensor], State, int], None]  # of parameters, gradients, state, and a number
_MOMENTS = {"exp_avg": "exp_avgs", "exp_avg_sq": "exp_avg_sqs"}


@dataclass(frozen=True)
class Optimizer:
    """One of torch's optimisers."""

    kind: type[torch.optim.Optimizer]
    step: Callable[..., None]  # its functional form
    state: Mapping[str, str]  # what it keeps of each number, from 0: the class's name, and the functional form's
    uses: tuple[str, ...]  # which of OPTIONS it has
    fused: bool = False  # whether it has a form that passes over the weights once instead of several times
    empty: tuple[str, ...] = ()  # lists of the functional form that stay empty with the options used here

    @cached_property
    def counts_steps(self) -> bool:
        return "state_steps" in self._arguments

    @cached_property
    def _arguments(self) -> Mapping[str, inspect.Parameter]:
        return inspect.signature(self.step).parameters

    @cached_property
    def _constants(self) -> dict[str, Any]:
        """The options of the functional form that are not settings, at the class's defaults."""
        defaults = self.kind([torch.zeros(1, requires_grad=True)], lr=1.0).defaults  # type: ignore[call-arg]
        return {key: value for key, value in defaults.items() if key in self._arguments}

    def options(self, settings: TrainSettings) -> dict[str, Any]:
        """The learning rate and the options that this optimiser has."""
        return {"lr": settings.lr, **{key: getattr(settings, key) for key in self.uses}}

    def names(self, settings: TrainSettings) -> tuple[str, ...]:
        """Torch's names of the state of each number."""
        return tuple(name for name in self.state if name != "momentum_buffer" or settings.momentum)

    def counters(self, settings: TrainSettings, steps: int) -> dict[str, float]:
        """The state that is the same for all numbers: it depends only on the number of steps so far."""
        if not self.counts_steps:
            return {}
        products = {"mu_product": _momentum_product(settings.betas[0], steps)} if self.step is nadam else {}
        return {"step": float(steps), **products}

    def made(self, settings: TrainSettings, parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
        options = self.options(settings)
        if self.fused:
            options["fused"] = parameters[0].device.type in ("cpu", "cuda")
        return self.kind(parameters, **options)

    def stepping(self, settings: TrainSettings) -> Stepping:
        """A function that makes a step on stacked models in place, given the step's number, from 1."""
        options = {**self._constants, **self.options(settings), **({"fused": True} if self.fused else {})}
        if "betas" in options:
            options["beta1"], options["beta2"] = options.pop("betas")
        kept, absent = (
            self.names(settings),
            [self.state[name] for name in self.state if name not in self.names(settings)],
        )
        call = partial(self.step, **options, **{name: [] for name in self.empty})

        def step(parameters: list[Tensor], gradients: list[Tensor], state: State, number: int) -> None:
            lists: dict[str, Sequence[Tensor | None]] = {self.state[name]: state[name] for name in kept}
            for name in absent:
                lists[name] = [None] * len(parameters)
            for name, value in self.counters(settings, number - 1).items():
                lists[_COUNTERS[name]] = [
                    torch.tensor(value, device=p.device if self.fused else None) for p in parameters
                ]
            call(parameters, gradients, **lists)

        return step


_COUNTERS = {"step": "state_steps", "mu_product": "mu_products"}  # as names of `state`


@lru_cache(maxsize=64)
def _momentum_product(beta: float, steps: int) -> float:
    """NAdam's product of the momenta of its steps so far; below 1e-100 after a thousand."""
    momenta = (beta * (1 - 0.5 * 0.96 ** (step * 0.004)) for step in range(1, min(steps, 1000) + 1))
    return math.prod(momenta, start=1.0)


OPTIMIZERS = {
    "sgd": Optimizer(
        torch.optim.SGD, sgd, {"momentum_buffer": "momentum_buffer_list"}, ("momentum", "weight_decay"), fused=True
    ),
    "adam": Optimizer(
        torch.optim.Adam, adam, _MOMENTS, ("betas", "weight_decay"), fused=True, empty=("max_exp_avg_sqs",)
    ),
    "adamw": Optimizer(
        torch.optim.AdamW, adamw, _MOMENTS, ("betas", "weight_decay"), fused=True, empty=("max_exp_avg_sqs",)
    ),
    "nadam": Optimizer(torch.optim.NAdam, nadam, _MOMENTS, ("betas", "weight_decay")),
    "radam": Optimizer(torch.optim.RAdam, radam, _MOMENTS, ("betas", "weight_decay")),
    "adamax": Optimizer(
        torch.optim.Adamax, adamax, {"exp_avg": "exp_avgs", "exp_inf": "exp_infs"}, ("betas", "weight_decay")
    ),
    "rmsprop": Optimizer(
        torch.optim.RMSprop,
        rmsprop,
        {"square_avg": "square_avgs", "momentum_buffer": "momentum_buffer_list"},
        ("momentum", "weight_decay"),
        empty=("grad_avgs",),
    ),
    "adagrad": Optimizer(torch.optim.Adagrad, adagrad, {"sum": "state_sums"}, ("weight_decay",)),
    "adadelta": Optimizer(
        torch.optim.Adadelta, adadelta, {"square_avg": "square_avgs", "acc_delta": "acc_deltas"}, ("weight_decay",)
    ),
}
