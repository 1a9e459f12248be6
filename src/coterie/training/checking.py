"""Calls a loss and reports its errors in one line that names it: it is often the user's own code."""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import torch
from torch import Tensor

from coterie.core.errors import CoterieError, LossError
from coterie.core.loss import Batch, BoundNet, Given, Loss
from coterie.core.randomness import watching_draws

T = TypeVar("T")
MOST_LOSSES = 256  # in caches: a method that makes a new loss at every call would fill the memory
LONGEST_REASON = 200  # characters
_NONE = (
    ". These are None: batch.views without me.train(views=...), batch.targets without me.train(targets=...), and "
    "outputs of parts that the method does not request"
)
_OURS = (str(Path(__file__).resolve().parents[1]), str(Path(torch.__file__).parent))


def value_of(loss: Loss, net: BoundNet, batch: Batch, given: Given) -> Tensor:
    """The value of a loss, checked to be one number with a gradient."""
    value: object = guarded(loss, lambda: loss(net, batch, given), given)
    if not isinstance(value, Tensor):
        what = "nothing" if value is None else f"a {type(value).__name__}"
        raise LossError(f"{described(loss)} returned {what}; a loss returns one number, as a tensor")
    if value.dim():
        raise LossError(
            f"{described(loss)} returned a tensor of shape {tuple(value.shape)}; a loss is one number: take its .mean()"
        )
    if not value.requires_grad:
        raise LossError(
            f"{described(loss)} has no gradient: it does not depend on any trained parameter. Look for "
            ".detach(), .item(), argmax and torch.no_grad(), or for `only` and frozen parameters"
        )
    return value


def guarded(loss: Loss, compute: Callable[[], T], given: Given) -> T:
    """The result of `compute`; errors name the loss and the user's line."""
    try:
        return compute()
    except CoterieError:
        raise
    except KeyError as error:
        key = error.args[0] if error.args else ""
        if key in given:
            raise _failed(loss, error) from error
        names = ", ".join(map(str, given)) or "nothing"
        raise LossError(
            f"{described(loss, error.__traceback__)} asks for '{key}', which is neither in `given` ({names}) nor a "
            "parameter of the net: pass it with me.train(loss, given={...})"
        ) from error
    except Exception as error:  # the user's code may raise anything
        raise _failed(loss, error) from error


def check_draws(loss: Loss, compute: Callable[[], T]) -> T:
    """The result of `compute`, which must not draw random numbers: they would depend on which peers train together."""
    with watching_draws() as drawn:
        value = compute()
        if drawn():
            raise LossError(
                f"{described(loss)} draws random numbers, so its results would not be reproducible: draw them in the "
                "method, with me.rng, and pass them in `given` or `targets`"
            )
    return value


def not_finite(loss: Loss, value: float) -> LossError:
    """The error for a loss that is not finite on a batch where the model's outputs are."""
    what = "not a number (nan)" if math.isnan(value) else "infinite"
    return LossError(
        f"{described(loss)} is {what} on its first batch, where the model's outputs are finite: look for a division by "
        "0, a log of 0, or values that are not finite in `given` or `targets`"
    )


def described(loss: Loss, trace: TracebackType | None = None) -> str:
    """A loss by name and location: the user's line that failed, or else its first line."""
    inner = getattr(loss, "func", loss)  # of a partial
    name = getattr(inner, "__qualname__", type(inner).__name__).rpartition("<locals>.")[2]
    frames = [frame for frame in traceback.extract_tb(trace) if not frame.filename.startswith(_OURS)] if trace else []
    if frames:
        return f"the loss '{name}' ({Path(frames[-1].filename).name}, line {frames[-1].lineno})"
    code = getattr(inner, "__code__", None)
    where = f" ({Path(code.co_filename).name}, line {code.co_firstlineno})" if code else ""
    return f"the loss '{name}'{where}"


def _failed(loss: Loss, error: Exception) -> LossError:
    reason = str(error).strip().split("\n")[0].removesuffix(".")
    if len(reason) > LONGEST_REASON:
        reason = f"{reason[:LONGEST_REASON]}..."
    hint = _NONE if "NoneType" in reason else ""
    return LossError(f"{described(loss, error.__traceback__)} failed: {type(error).__name__}: {reason}{hint}")
