"""A device that computes on the CPU and says that it is another: mixing its tensors with the CPU's is an error.

Its name is torch's "meta": of all devices, only that one and the CPU exist on every machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

NAME = "meta"
_aten = torch.ops.aten
_COPYING = (_aten.copy_.default, _aten._foreach_copy_.default)
_INDEXING = (_aten.index.Tensor, _aten.index_put_.default, _aten.index_put.default)  # by places that the CPU knows


class MixedError(RuntimeError):
    """On a real device, torch would have refused this."""


class OnDevice(Tensor):
    """A tensor that says that it is on the device; `raw` has its numbers."""

    raw: Tensor

    @staticmethod
    def __new__(cls, raw: Tensor) -> OnDevice:
        made: OnDevice = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, raw.shape, strides=raw.stride(), storage_offset=raw.storage_offset(), dtype=raw.dtype, device=NAME
        )
        made.raw = raw
        return made

    def tolist(self) -> Any:
        return self.raw.tolist()

    @classmethod
    def __torch_dispatch__(cls, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _compute(op, args, kwargs or {})


class _Operations(TorchDispatchMode):
    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _compute(op, args, kwargs or {})


class _Numbers(TorchFunctionMode):
    """Numbers that Python gives to tensors (to its own "meta", torch would not even send them), and `tensor.data =`."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        wanted = (kwargs or {}).get("device")
        if function in (torch.tensor, torch.as_tensor) and wanted is not None and torch.device(wanted).type == NAME:
            return function(*args, **{**kwargs, "device": "cpu"}).to(NAME)
        if function is Tensor.new_tensor and isinstance(args[0], OnDevice):
            return Tensor.new_tensor(args[0].raw, *args[1:], **(kwargs or {})).to(NAME)
        found = function(*args, **(kwargs or {}))
        if function == Tensor.data.__set__ and isinstance(args[0], OnDevice):
            args[0].raw = _raw(args[1])
        return found


@contextmanager
def pretend_device() -> Iterator[None]:
    """Meanwhile `device="meta"` is a device that computes."""
    with _Operations(), _Numbers():
        yield


def _compute(op: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    tensors = [t for t in tree_flatten((args, kwargs))[0] if isinstance(t, Tensor)]
    here = [t for t in tensors if isinstance(t, OnDevice)]
    may_mix = op in _COPYING or (op in _INDEXING and isinstance(args[0], OnDevice))
    if here and not may_mix and any(t.dim() for t in tensors if not isinstance(t, OnDevice)):
        raise MixedError(f"{op}: some of its tensors are on the device, some are not")
    wanted = kwargs.get("device")
    is_here = bool(here) if wanted is None else torch.device(wanted).type == NAME
    found = op(*tree_map(_raw, args), **tree_map(_raw, kwargs | ({"device": "cpu"} if wanted is not None else {})))
    if op._schema.is_mutable:  # who changes something in place gets it back, not another one
        owners = {id(t.raw): t for t in here}
        return tree_map(lambda x: owners.get(id(x), x), found)
    return tree_map(_on_device, found) if is_here else found


def _raw(value: Any) -> Any:
    return value.raw if isinstance(value, OnDevice) else value


def _on_device(value: Any) -> Any:
    return OnDevice(value) if isinstance(value, Tensor) else value
