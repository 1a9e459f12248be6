"""Operations that are worked out once, recorded, and replayed: the same operations, hence the same result to the bit.

What the transforms of torch.func leave behind that does nothing (an expansion to the shape that is there already, a
product with one, a transposition taken back) is left out: for small models it would be a third of all operations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.passes.shape_prop import ShapeProp

_aten = torch.ops.aten
_RESHAPING = (_aten.expand.default, _aten.view.default, _aten._unsafe_view.default)


def recording(function: Callable[..., list[Tensor]], example: Sequence[Tensor]) -> Callable[..., list[Tensor]]:
    """A function of tensors, as the operations that it did on these ones; for others of their shapes and types."""
    graph = make_fx(function)(*example)
    ShapeProp(graph).propagate(*example)
    leave_out_what_does_nothing(graph)
    return cast("Callable[..., list[Tensor]]", graph.forward)


def leave_out_what_does_nothing(graph: GraphModule) -> None:
    for node in graph.graph.nodes:
        same = _same(node)
        if same is not None:
            node.replace_all_uses_with(same)
    graph.graph.eliminate_dead_code()
    graph.recompile()


def _same(node: Node) -> Node | None:
    """What a node gives without doing anything, if that is so."""
    if node.op != "call_function" or not node.args or not isinstance(node.args[0], Node):
        return None
    before = node.args[0]
    if node.target in _RESHAPING and _shape(before) == _shape(node):
        return before
    if node.target is _aten.mul.Scalar and node.args[1] == 1 and _type(before) == _type(node):
        return before
    if node.target is _aten.transpose.int and before.target is _aten.transpose.int and _axes(node) == _axes(before):
        origin = before.args[0]
        assert isinstance(origin, Node)
        return origin
    return None


def _shape(node: Node) -> Any:
    return getattr(node.meta.get("tensor_meta"), "shape", None)


def _type(node: Node) -> Any:
    return getattr(node.meta.get("tensor_meta"), "dtype", None)


def _axes(node: Node) -> set[Any]:
    dimensions = len(_shape(node))
    return {axis % dimensions for axis in node.args[1:] if isinstance(axis, int)}
