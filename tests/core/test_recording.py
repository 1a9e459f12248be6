"""Recorded operations: the same results as the function itself, without what does nothing."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.passes.shape_prop import ShapeProp

from coterie.training.recording import leave_out_what_does_nothing, recording


def idle(x: Tensor, y: Tensor) -> list[Tensor]:
    """A product of matrices, and five operations that do nothing."""
    aten = torch.ops.aten
    x = aten.mul.Scalar(aten.view.default(aten.expand.default(x, [2, 3, 4]), [2, 3, 4]), 1)
    return [aten.bmm.default(x, aten.transpose.int(aten.transpose.int(y, 1, 2), -1, -2))]


def busy(x: Tensor, counts: Tensor) -> list[Tensor]:
    """Operations of the same names that do something."""
    aten = torch.ops.aten
    wide = aten.expand.default(aten.view.default(x, [1, 24]), [2, 24])
    turned = aten.transpose.int(aten.transpose.int(x, 0, 1), 1, 2)
    return [aten.mul.Scalar(wide, 2), turned, aten.mul.Scalar(counts, 1.0)]


def operations(function: object, *example: Tensor) -> list[str]:
    graph = make_fx(function)(*example)  # type: ignore[arg-type]
    ShapeProp(graph).propagate(*example)
    leave_out_what_does_nothing(graph)
    return [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]


def test_what_does_nothing_is_left_out() -> None:
    x, y = torch.randn(2, 3, 4), torch.randn(2, 4, 5)
    assert operations(idle, x, y) == ["aten.bmm.default"]
    other_x, other_y = torch.randn(2, 3, 4), torch.randn(2, 4, 5)
    [found] = recording(idle, [x, y])(other_x, other_y)
    assert torch.equal(found, torch.bmm(other_x, other_y))


def test_what_does_something_stays() -> None:
    x, counts = torch.randn(2, 3, 4), torch.arange(3)
    assert len(operations(busy, x, counts)) == 6
    other = torch.randn(2, 3, 4)
    wide, turned, real = recording(busy, [x, counts])(other, counts)
    assert torch.equal(wide, other.reshape(1, 24).expand(2, 24) * 2)
    assert torch.equal(turned, other.permute(1, 2, 0))
    assert real.dtype == torch.float32
