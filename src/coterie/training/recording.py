"""Operations that are worked out once, recorded, and replayed: the same operations, hence the same result to the bit.

What the transforms of torch.func leave behind that does nothing (an expansion to the shape that is there already, a
product with one, a transposition taken back) is left out, and what is the same at every call (the derivative of a
mean) is kept: for small models it would be half of all operations.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, cast

import torch
from torch import Tensor
from torch.fx import GraphModule, Interpreter, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.passes.shape_prop import ShapeProp

_aten = torch.ops.aten
_RESHAPING = (_aten.expand.default, _aten.view.default, _aten._unsafe_view.default)
# What these give depends on the shape of what they are given alone.
_SHAPE_ALONE = (_aten.ones_like.default, _aten.zeros_like.default, _aten.new_zeros.default, _aten.new_ones.default)
MOST_KEPT = 2**20  # numbers of a constant: larger ones are made anew

Stacks = Mapping[str, Tensor] | tuple[Tensor | None, ...]  # some tensors by name, or in a named tuple
Function = Callable[..., list[Tensor]]


class Repeated:
    """A function of stacks of tensors that is recorded for those of a form that it is often called with.

    torch.func works its transforms out anew at every call, which for small models costs more than the numbers
    themselves. Recording takes as long as some dozen calls.
    """

    USES_BEFORE_RECORDING = 3
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, name: str, worked_out: Callable[..., Function], patience: int = 1) -> None:
        """`worked_out` makes the function for such arguments; `patience` is how many times as many uses it takes."""
        self.name, self.worked_out, self.patience = name, worked_out, patience
        self._uses: Counter[object] = Counter()
        self.recorded: dict[object, Function] = {}

    def __call__(self, *arguments: Stacks) -> list[Tensor]:
        key = tuple(map(_form, arguments))
        recorded = self.recorded.get(key)
        if recorded is not None:
            return recorded(*_flat(arguments))
        function = self.worked_out(*arguments)
        uses = self._uses[key] = self._uses[key] + 1
        if uses == self.USES_BEFORE_RECORDING * self.patience:  # if that fails, it is not tried again
            self._record(key, function, arguments)
        return function(*arguments)

    def _record(self, key: object, function: Function, example: Sequence[Stacks]) -> None:
        def of_flat(*tensors: Tensor) -> list[Tensor]:
            return function(*_nested(tensors, example))

        try:
            with self._lock:  # recording patches torch for a moment
                self.recorded[key] = recording(of_flat, _flat(example))
        except Exception as error:
            # What looks at values cannot be recorded; it is still right, only slower.
            logging.getLogger(__name__).info("%s is not recorded: %s", self.name, error)


def _form(stack: Stacks) -> object:
    """Names, shapes, and how they lie in memory: on that depends which operations a reshaping is."""
    if isinstance(stack, tuple):
        return tuple([None if tensor is None else (tensor.shape, tensor.stride()) for tensor in stack])
    return tuple([(name, tensor.shape, tensor.stride()) for name, tensor in stack.items()])


def _flat(stacks: Sequence[Stacks]) -> list[Tensor]:
    tensors = (stack if isinstance(stack, tuple) else stack.values() for stack in stacks)
    return [tensor for some in tensors for tensor in some if tensor is not None]


def _nested(tensors: Sequence[Tensor], like: Sequence[Stacks]) -> Iterator[Any]:
    """The same the other way round."""
    left = iter(tensors)
    for one in like:
        if isinstance(one, tuple):
            whole: Any = type(one)  # a named one
            yield whole(*(None if part is None else next(left) for part in one))
        else:
            yield {name: next(left) for name in one}


def recording(function: Function, example: Sequence[Tensor]) -> Function:
    """A function of tensors, as the operations that it did on these ones; for others of their shapes and types."""
    graph = make_fx(function)(*example)
    ShapeProp(graph).propagate(*example)
    leave_out_what_does_nothing(graph)
    if not any(_writes(node) for node in graph.graph.nodes):  # where somebody writes, what is what is not ours to say
        keep_what_is_always_the_same(graph, example)
        overwrite_what_nobody_reads_again(graph)
    return cast("Function", graph.forward)


def _writes(node: Node) -> bool:
    return hasattr(node.target, "_schema") and node.target._schema.is_mutable


def leave_out_what_does_nothing(graph: GraphModule) -> None:
    for node in graph.graph.nodes:
        same = _same(node)
        if same is not None:
            node.replace_all_uses_with(same)
    graph.graph.eliminate_dead_code()
    graph.recompile()


def keep_what_is_always_the_same(graph: GraphModule, example: Sequence[Tensor]) -> None:
    """What depends on no number that the function is given is computed now, and never again."""
    constant: set[Node] = set()
    for node in graph.graph.nodes:
        given = node.all_input_nodes
        if node.target in _SHAPE_ALONE or (node.op == "call_function" and given and constant.issuperset(given)):
            constant.add(node)
    values = _Values(graph, constant)
    values.run(*example)
    for node in constant:
        # A result belongs to whoever asked for it, who may change it.
        given_away = any(user.op == "output" for user in node.users)
        if not (given_away or constant.issuperset(node.users)) and values.found[node].numel() <= MOST_KEPT:
            name = f"always_{node.name}"
            graph.register_buffer(name, values.found[node])
            with graph.graph.inserting_before(node):
                node.replace_all_uses_with(graph.graph.get_attr(name))
    graph.graph.eliminate_dead_code()
    graph.recompile()


def overwrite_what_nobody_reads_again(graph: GraphModule) -> None:
    """Operations number by number put their result where they read from, if that was made for them alone.

    It is in the cache already, and new memory is not.
    """
    for node in graph.graph.nodes:
        if node.target in _IN_PLACE:
            place = next((at for at in _IN_PLACE[node.target].places if _is_spent(node, at)), None)
            if place is not None:
                _IN_PLACE[node.target].rewrite(node, place)
    graph.graph.lint()
    graph.recompile()


def _is_spent(node: Node, place: int) -> bool:
    """Whether an operation reads something of its result's form that was made in the graph, and is read by it alone."""
    before = node.args[place]
    if not isinstance(before, Node) or not hasattr(before.target, "_schema") or set(before.users) != {node}:
        return False
    if node.all_input_nodes.count(before) != 1 or (_shape(before), _type(before)) != (_shape(node), _type(node)):
        return False
    return before.target in _OVERWRITING or not any(found.alias_info for found in before.target._schema.returns)


class _InPlace(NamedTuple):
    """An operation that overwrites what it reads at one of these places."""

    operation: Any
    places: tuple[int, ...] = (0,)
    out: str = ""  # it takes where to write to under this name

    def rewrite(self, node: Node, place: int) -> None:
        node.target = self.operation
        if self.out:
            node.kwargs = {**node.kwargs, self.out: node.args[place]}
        elif place:
            node.args = (node.args[1], node.args[0], *node.args[2:])


_IN_PLACE = {
    _aten.relu.default: _InPlace(_aten.relu_.default),
    _aten.exp.default: _InPlace(_aten.exp_.default),
    _aten.add.Tensor: _InPlace(_aten.add_.Tensor, (0, 1)),
    _aten.mul.Tensor: _InPlace(_aten.mul_.Tensor, (0, 1)),
    _aten.sub.Tensor: _InPlace(_aten.sub_.Tensor),
    _aten.div.Tensor: _InPlace(_aten.div_.Tensor),
    _aten.threshold_backward.default: _InPlace(_aten.threshold_backward.grad_input, out="grad_input"),
}


_OVERWRITING = {way.operation for way in _IN_PLACE.values()}


class _Values(Interpreter):
    """Runs a graph, and keeps what some of its nodes give."""

    def __init__(self, graph: GraphModule, wanted: set[Node]) -> None:
        super().__init__(graph)
        self.wanted, self.found = wanted, cast("dict[Node, Tensor]", {})

    def run_node(self, n: Node) -> Any:
        value = super().run_node(n)
        if n in self.wanted:
            self.found[n] = value
        return value


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
