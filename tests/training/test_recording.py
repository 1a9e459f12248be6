"""Recorded operations: the same results as the function itself, without no-ops."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.passes.shape_prop import ShapeProp

from coterie.training.recording import Repeated, recording, remove_no_ops


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
    remove_no_ops(graph)
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


def with_constants(x: Tensor, y: Tensor) -> list[Tensor]:
    """The gradient of a mean begins with ones over the count: the same at every call."""
    aten = torch.ops.aten
    share = aten.div.Scalar(aten.expand.default(aten.ones_like.default(x), [2, 3]), 3)
    return [aten.mul.Tensor(share, y), aten.new_zeros.default(x, [2])]


def code_of(function: object, *example: Tensor) -> str:
    forward = recording(function, list(example))  # type: ignore[arg-type]
    return str(forward.__self__.code)  # type: ignore[attr-defined]


def test_what_depends_on_no_number_is_computed_once() -> None:
    x, y = torch.randn(2, 1), torch.randn(2, 3)
    code = code_of(with_constants, x, y)
    assert "aten.mul" in code
    assert not any(f"aten.{name}" in code for name in ("ones_like", "expand", "div"))
    recorded, other = recording(with_constants, [x, y]), torch.randn(2, 3)
    for _ in range(2):
        found, zeros = recorded(torch.randn(2, 1), other)
        assert torch.equal(found, other * (1 / torch.tensor(3.0)))
        assert zeros.tolist() == [0, 0]
        zeros.add_(1)  # a result belongs to the caller


def test_large_constants_are_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coterie.training.recording.MOST_KEPT", 5)
    assert "ones_like" in code_of(with_constants, torch.randn(2, 1), torch.randn(2, 3))


def chain(x: Tensor, w: Tensor, bias: Tensor) -> list[Tensor]:
    """A layer, and the way back through it."""
    aten = torch.ops.aten
    out = aten.relu.default(aten.add.Tensor(bias, aten.bmm.default(x, w)))
    back = aten.threshold_backward.default(aten.bmm.default(out, w), out, 0)
    return [back, aten.exp.default(aten.sub.Tensor(out, bias))]


def test_buffers_are_reused_and_inputs_stay_unchanged() -> None:
    x, w, bias = torch.randn(2, 3, 3), torch.randn(2, 3, 3), torch.randn(2, 1, 3)
    given = [t.clone() for t in (x, w, bias)]
    code = code_of(chain, x, w, bias)
    for name in ("add_.Tensor(bmm", "relu_.default", "threshold_backward.grad_input", "exp_.default"):
        assert name in code
    assert "sub_" not in code  # what it reads is asked for by another
    found = recording(chain, [x, w, bias])(x, w, bias)
    assert all(torch.equal(a, b) for a, b in zip(found, chain(*given), strict=True))
    assert all(torch.equal(a, b) for a, b in zip((x, w, bias), given, strict=True))


def looked_at_twice(x: Tensor) -> list[Tensor]:
    """Each of the first three is read again: as it is, through a view, or as a result."""
    aten = torch.ops.aten
    doubled = aten.mul.Tensor(x, x)
    view = aten.view.default(doubled, [6])
    tripled = aten.add.Tensor(doubled, x)
    return [aten.exp.default(tripled), tripled, aten.exp.default(view), aten.add.Tensor(x, x)]


def test_what_is_read_again_is_not_overwritten() -> None:
    x = torch.randn(2, 3)
    found = recording(looked_at_twice, [x])(x)
    assert all(torch.equal(a, b) for a, b in zip(found, looked_at_twice(x), strict=True))


def writing(x: Tensor) -> list[Tensor]:
    """A function that itself writes into what it made."""
    zeros = torch.zeros_like(x)
    zeros.add_(x)
    return [zeros.exp(), zeros]


def test_a_function_that_writes_is_left_as_it_is() -> None:
    recorded = recording(writing, [torch.randn(3)])
    for _ in range(2):
        x = torch.randn(3)
        exponent, sum_ = recorded(x)
        assert torch.equal(sum_, x)
        assert torch.equal(exponent, x.exp())


def test_what_is_called_often_with_the_same_shapes_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Repeated, "USES_BEFORE_RECORDING", 2)
    made = []

    def double(_: dict[str, Tensor]) -> Callable[..., list[Tensor]]:
        made.append(1)
        return lambda stack: [2 * stack["x"]]

    repeated = Repeated("double", double, delay=2)
    for _ in range(6):
        x = torch.randn(3)
        assert torch.equal(repeated({"x": x})[0], 2 * x)
    assert len(made) == 4
    repeated({"x": torch.randn(4)})
    assert len(made) == 5
    assert len(repeated.recorded) == 1


def test_tensors_that_lie_otherwise_in_memory_are_another_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reshaping that is a view of one is a copy of the other."""
    monkeypatch.setattr(Repeated, "USES_BEFORE_RECORDING", 1)
    flat = Repeated("flat", lambda _: lambda stack: [stack["x"].reshape(-1)])
    whole, part = torch.randn(3, 4), torch.randn(3, 9)[:, :4]
    for x in (whole, part, part + 1, whole):
        assert torch.equal(flat({"x": x})[0], x.reshape(-1))
    assert len(flat.recorded) == 2


def test_what_cannot_be_recorded_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def refuse(*_: object) -> None:
        tried.append(1)
        raise RuntimeError("it looks at values")

    monkeypatch.setattr(Repeated, "USES_BEFORE_RECORDING", 2)
    monkeypatch.setattr("coterie.training.recording.recording", refuse)
    repeated = Repeated("double", lambda _: lambda stack: [2 * stack["x"]])
    for number in range(5):
        assert repeated({"x": torch.tensor([float(number)])})[0].item() == 2 * number
    assert (len(tried), repeated.recorded) == (1, {})
