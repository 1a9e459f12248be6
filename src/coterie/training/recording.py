"""Records tensor operations as a graph, optimises it and replays it, with bit-identical results.

The graph passes remove no-ops that the transforms of torch.func leave behind (an expansion to the same shape, a
product with one, a double transposition) and fold constants (the derivative of a mean): for small models these are
half of all operations.
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
# The results of these depend only on the shape of their input.
_SHAPE_ALONE = (_aten.ones_like.default, _aten.zeros_like.default, _aten.new_zeros.default, _aten.new_ones.default)
MOST_KEPT = 2**20  # numbers of a constant: larger ones are recomputed

Stacks = Mapping[str, Tensor] | tuple[Tensor | None, ...]  # some tensors by name, or in a named tuple
Function = Callable[..., list[Tensor]]


class Repeated:
    """A function of stacks of tensors that is recorded for each form of arguments that it is often called with.

    torch.func repeats its transforms at every call, which for small models costs more than the computation itself.
    Recording takes as long as a few dozen calls.
    """

    USES_BEFORE_RECORDING = 3
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, name: str, make: Callable[..., Function], delay: int = 1) -> None:
        """`make` returns the function for given arguments; `delay` multiplies the uses before it is recorded."""
        self.name, self.make, self.delay = name, make, delay
        self._uses: Counter[object] = Counter()
        self.recorded: dict[object, Function] = {}

    def __call__(self, *arguments: Stacks) -> list[Tensor]:
        key = tuple(map(_form, arguments))
        recorded = self.recorded.get(key)
        if recorded is not None:
            return recorded(*_flat(arguments))
        function = self.make(*arguments)
        uses = self._uses[key] = self._uses[key] + 1
        if uses == self.USES_BEFORE_RECORDING * self.delay:  # never retried after a failure
            self._record(key, function, arguments)
        return function(*arguments)

    def _record(self, key: object, function: Function, example: Sequence[Stacks]) -> None:
        def of_flat(*tensors: Tensor) -> list[Tensor]:
            return function(*_nested(tensors, example))

        try:
            with self._lock:  # recording patches torch for a moment
                self.recorded[key] = recording(of_flat, _flat(example))
        except Exception as error:
            # Control flow on values cannot be recorded; the function is still correct, only slower.
            logging.getLogger(__name__).info("%s is not recorded: %s", self.name, error)


def _form(stack: Stacks) -> object:
    """Names, shapes and strides: strides decide which operations a reshape needs."""
    if isinstance(stack, tuple):
        return tuple([None if tensor is None else (tensor.shape, tensor.stride()) for tensor in stack])
    return tuple([(name, tensor.shape, tensor.stride()) for name, tensor in stack.items()])


def _flat(stacks: Sequence[Stacks]) -> list[Tensor]:
    tensors = (stack if isinstance(stack, tuple) else stack.values() for stack in stacks)
    return [tensor for some in tensors for tensor in some if tensor is not None]


def _nested(tensors: Sequence[Tensor], like: Sequence[Stacks]) -> Iterator[Any]:
    """The inverse of `_flat`."""
    remaining = iter(tensors)
    for stack in like:
        if isinstance(stack, tuple):
            named_tuple: Any = type(stack)
            yield named_tuple(*(None if part is None else next(remaining) for part in stack))
        else:
            yield {name: next(remaining) for name in stack}


def recording(function: Function, example: Sequence[Tensor]) -> Function:
    """The operations of a function on the example tensors, replayable on others of the same shapes and types."""
    graph = make_fx(function)(*example)
    ShapeProp(graph).propagate(*example)
    remove_no_ops(graph)
    if not any(_writes(node) for node in graph.graph.nodes):  # in-place operations would break the analysis
        fold_constants(graph, example)
        reuse_buffers(graph)
    return cast("Function", graph.forward)


def _writes(node: Node) -> bool:
    return hasattr(node.target, "_schema") and node.target._schema.is_mutable


def remove_no_ops(graph: GraphModule) -> None:
    for node in graph.graph.nodes:
        equal = _equal_input(node)
        if equal is not None:
            node.replace_all_uses_with(equal)
    graph.graph.eliminate_dead_code()
    graph.recompile()


def fold_constants(graph: GraphModule, example: Sequence[Tensor]) -> None:
    """Compute everything that does not depend on the values of the arguments once, now."""
    constant: set[Node] = set()
    for node in graph.graph.nodes:
        inputs = node.all_input_nodes
        if node.target in _SHAPE_ALONE or (node.op == "call_function" and inputs and constant.issuperset(inputs)):
            constant.add(node)
    values = _Values(graph, constant)
    values.run(*example)
    for node in constant:
        # A returned constant is not shared: the caller may change it.
        returned = any(user.op == "output" for user in node.users)
        if not (returned or constant.issuperset(node.users)) and values.by_node[node].numel() <= MOST_KEPT:
            name = f"always_{node.name}"
            graph.register_buffer(name, values.by_node[node])
            with graph.graph.inserting_before(node):
                node.replace_all_uses_with(graph.graph.get_attr(name))
    graph.graph.eliminate_dead_code()
    graph.recompile()


def reuse_buffers(graph: GraphModule) -> None:
    """Make elementwise operations overwrite an input that nothing else reads.

    That input is in the cache already; new memory is not.
    """
    for node in graph.graph.nodes:
        if node.target in _IN_PLACE:
            place = next((at for at in _IN_PLACE[node.target].places if _is_spent(node, at)), None)
            if place is not None:
                _IN_PLACE[node.target].rewrite(node, place)
    graph.graph.lint()
    graph.recompile()


def _is_spent(node: Node, place: int) -> bool:
    """Whether an argument is a result within the graph, of the node's own shape and type, that only the node reads."""
    before = node.args[place]
    if not isinstance(before, Node) or not hasattr(before.target, "_schema") or set(before.users) != {node}:
        return False
    if node.all_input_nodes.count(before) != 1 or (_shape(before), _type(before)) != (_shape(node), _type(node)):
        return False
    return before.target in _OVERWRITING or not any(result.alias_info for result in before.target._schema.returns)


class _InPlace(NamedTuple):
    """An operation that overwrites its argument at one of these places."""

    operation: Any
    places: tuple[int, ...] = (0,)
    out: str = ""  # the name of its output argument, if it has one

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
    """Runs a graph, and keeps the results of some of its nodes."""

    def __init__(self, graph: GraphModule, wanted: set[Node]) -> None:
        super().__init__(graph)
        self.wanted, self.by_node = wanted, cast("dict[Node, Tensor]", {})

    def run_node(self, n: Node) -> Any:
        value = super().run_node(n)
        if n in self.wanted:
            self.by_node[n] = value
        return value


def _equal_input(node: Node) -> Node | None:
    """The earlier node whose result equals that of a no-op; None for other nodes."""
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
