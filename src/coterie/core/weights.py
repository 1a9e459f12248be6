"""Named tensors in one flat vector: the content of a model and of most artifacts.

With one vector per model, the basic operations of peer-to-peer learning (copy, average, compare, stack a hundred
models) are single tensor operations, whatever the architecture.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from coterie.core.errors import ArtifactError


@dataclass(frozen=True)
class Slot:
    """The position of one named tensor in the vector."""

    name: str
    shape: tuple[int, ...]
    start: int
    size: int

    @property
    def stop(self) -> int:
        return self.start + self.size


@dataclass(frozen=True)
class Layout:
    """The names, shapes and positions of a model's tensors: its parameters first, then its buffers."""

    slots: tuple[Slot, ...]
    trainable: int  # length of the leading part of the vector that holds parameters

    @classmethod
    def of_shapes(cls, shapes: Mapping[str, Sequence[int]], buffers: Iterable[str] = ()) -> Layout:
        slots, start, trainable, not_trained = [], 0, 0, set(buffers)
        for name, shape in shapes.items():
            size = int(torch.Size(shape).numel())
            slots.append(Slot(name, tuple(shape), start, size))
            start += size
            if name not in not_trained:
                trainable = start
        return cls(tuple(slots), trainable)

    @classmethod
    def of_module(cls, module: nn.Module) -> Layout:
        parameters = {name: p.shape for name, p in module.named_parameters()}
        buffers = {name: b.shape for name, b in module.named_buffers()}
        return cls.of_shapes({**parameters, **buffers}, buffers)

    @cached_property
    def size(self) -> int:
        return sum(slot.size for slot in self.slots)

    @cached_property
    def by_name(self) -> dict[str, Slot]:
        return {slot.name: slot for slot in self.slots}

    @cached_property
    def parameters(self) -> tuple[Slot, ...]:
        return tuple(slot for slot in self.slots if slot.stop <= self.trainable)

    @cached_property
    def buffers(self) -> tuple[Slot, ...]:
        return tuple(slot for slot in self.slots if slot.stop > self.trainable)

    def within(self, part: str) -> tuple[Slot, ...]:
        """The slots of one part of the model, such as its "head"."""
        slots = tuple(slot for slot in self.slots if slot.name.split(".")[0] == part)
        if not slots:
            parts = sorted({slot.name.split(".")[0] for slot in self.slots})
            raise ArtifactError(f"the model has no part '{part}'. Its parts: {', '.join(parts)}")
        return slots

    def __eq__(self, other: object) -> bool:
        if self is other:  # the most frequent case, and layouts are compared often
            return True
        return isinstance(other, Layout) and (self.slots, self.trainable) == (other.slots, other.trainable)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.slots, self.trainable))

    def __reduce__(self) -> tuple[Any, ...]:
        """Unpickle to the layout that this process has already: the cached hash is only valid in one process."""
        return _the_layout, (self.slots, self.trainable)


@lru_cache(maxsize=1024)
def _the_layout(slots: tuple[Slot, ...], trainable: int) -> Layout:
    return Layout(slots, trainable)


class Weights(Mapping[str, Tensor]):
    """Named tensors as views of one vector: a state dict that can be computed with like a vector.

    Args:
        layout: names, shapes and positions of the tensors.
        vector: all their numbers, of shape ``(layout.size,)``.

    Raises:
        ArtifactError: the vector does not fit the layout.
    """

    __slots__ = ("layout", "vector")

    def __init__(self, layout: Layout, vector: Tensor) -> None:
        if vector.shape != (layout.size,):
            raise ArtifactError(f"a vector of shape {tuple(vector.shape)} does not fit a layout of size {layout.size}")
        self.layout = layout
        self.vector = vector

    @property
    def frozen(self) -> frozenset[str] | None:
        """The names of parameters that are never trained; None if unknown, as for received tensors."""
        return None

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> Weights:
        """Copy any named tensors into one vector (as float32)."""
        layout = Layout.of_shapes({name: t.shape for name, t in tensors.items()})
        parts = [t.detach().reshape(-1).to(torch.float32) for t in tensors.values()]
        return cls(layout, torch.cat(parts) if parts else torch.empty(0))

    def __getitem__(self, name: str) -> Tensor:
        slot = self.layout.by_name[name]
        return self.vector[slot.start : slot.stop].view(slot.shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self.layout.by_name)

    def __len__(self) -> int:
        return len(self.layout.slots)

    @property
    def parameters(self) -> Tensor:
        """The trainable part of the vector, without normalisation statistics."""
        return self.vector[: self.layout.trainable]

    def copy(self) -> Weights:
        return Weights(self.layout, self.vector.clone())

    def part(self, *names: str) -> Weights:
        """A copy of one part, such as "head" (what LG-FedAvg shares and FedPer keeps), or of several."""
        return Weights.of({slot.name: self[slot.name] for name in names for slot in self.layout.within(name)})

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Copy the given tensors; the others keep their values."""
        given = as_weights(tensors)
        if isinstance(given, Weights) and given.layout == self.layout:
            self.vector.copy_(given.vector)
            return
        for name, tensor in given.items():
            slot = self.layout.by_name.get(name)
            if slot is None:
                raise ArtifactError(f"the model has no tensor '{name}': it has another architecture")
            if tuple(tensor.shape) != slot.shape:
                raise ArtifactError(f"'{name}' has shape {tuple(tensor.shape)}, the model needs {slot.shape}")
            self[name].copy_(tensor)


ALIGNED = 16  # numbers: rows are aligned like separate vectors, so that they compute to the same bits


def place_side_by_side(all_weights: Sequence[Weights]) -> None:
    """Move weights of one layout into one contiguous block, so that `side_by_side` need not copy them."""
    vectors = [weights.vector for weights in all_weights]
    if lie_side_by_side(vectors):
        return
    size = vectors[0].numel()
    rows = vectors[0].new_empty(len(vectors), math.ceil(size / ALIGNED) * ALIGNED)[:, :size]
    for weights, row in zip(all_weights, rows.unbind(0), strict=True):
        row.copy_(weights.vector)
        weights.vector = row


def side_by_side(vectors: Sequence[Tensor]) -> Tensor:
    """Vectors of one length as the rows of a matrix: views if they lie in one block of memory, else copies."""
    if not lie_side_by_side(vectors):
        return torch.stack(list(vectors))
    first = vectors[0]
    return first.as_strided((len(vectors), first.numel()), (_distance(vectors), 1))


def lie_side_by_side(vectors: Sequence[Tensor]) -> bool:
    """Whether all start at equal distances, in the given order, in the first one's block of memory."""
    first, distance = vectors[0], _distance(vectors)
    start, step = first.data_ptr(), distance * first.element_size()
    available = first.untyped_storage().nbytes() // first.element_size() - first.storage_offset()
    if distance < first.numel() or (len(vectors) - 1) * distance + first.numel() > available:
        return False
    return all(v.data_ptr() == start + i * step and v.is_contiguous() for i, v in enumerate(vectors))


def _distance(vectors: Sequence[Tensor]) -> int:
    """Numbers from the start of one vector to the start of the next, assuming equal distances."""
    first, steps = vectors[0], len(vectors) - 1
    apart = vectors[-1].data_ptr() - first.data_ptr()
    return apart // (steps * first.element_size()) if steps else first.numel()


@dataclass(frozen=True, eq=False)
class Frozen:
    """Weights that never change, such as received ones: shared by many peers, and written to a checkpoint once."""

    content: Weights | Tensor


def as_weights(tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """The content of an artifact, or the mapping itself."""
    content: Mapping[str, Tensor] = getattr(tensors, "content", tensors)
    return content


def mean(models: Sequence[Mapping[str, Tensor]], shares: Sequence[float] | None = None) -> Weights:
    """The average of models of one layout.

    Summed in the given order: callers pass peers in a fixed order, so that results are bit-reproducible. A frozen
    tensor that is equal in all models is equal in their mean, to the bit: it does not drift by rounding.

    Args:
        models: at least one; models, or artifacts that carry them.
        shares: their weights, normalised here; default: equal.

    Returns:
        New weights, of the layout of the models.

    Raises:
        ArtifactError: the models differ in their layout.
    """
    if not models:
        raise ArtifactError("there are no models to average: pass at least one")
    contents = [as_weights(m) for m in models]
    layout = next((c.layout for c in contents if isinstance(c, Weights)), None) or Weights.of(contents[0]).layout
    part, *parts = _parts(len(models), shares)
    vectors = (_vector(content, layout) for content in contents)  # lazily, because some are copies
    first = next(vectors)
    result, equal = first * part, _perhaps_frozen(contents, layout)
    for vector, share in zip(vectors, parts, strict=True):
        result.add_(vector, alpha=share)
        equal = _equal(first, vector, equal)
    for slot in equal:
        _of(result, slot).copy_(_of(first, slot))
    return Weights(layout, result)


def mean_into(model: Weights, others: Sequence[Mapping[str, Tensor]], shares: Sequence[float] | None = None) -> None:
    """The same as `model.load(mean([model, *others], shares))`, without a copy of the model."""
    vectors = [_vector(as_weights(other), model.layout) for other in others]  # before anything is changed
    part, *parts = _parts(1 + len(vectors), shares)
    equal = _perhaps_frozen([model], model.layout)
    for vector in vectors:
        equal = _equal(model.vector, vector, equal)
    kept = [_of(model.vector, slot).clone() for slot in equal]
    model.vector.mul_(part)
    for vector, share in zip(vectors, parts, strict=True):
        model.vector.add_(vector, alpha=share)
    for slot, values in zip(equal, kept, strict=True):
        _of(model.vector, slot).copy_(values)


def _parts(count: int, shares: Sequence[float] | None) -> list[float]:
    """The weight of each model; they sum to one."""
    if shares is None:
        return [1.0 / count] * count
    if len(shares) != count or min(shares) < 0 or not 0 < sum(shares) < math.inf:
        raise ArtifactError(f"{count} models need as many non-negative shares, not all zero, not {shares}")
    total = float(sum(shares))
    return [share / total for share in shares]


def _perhaps_frozen(contents: Iterable[Mapping[str, Tensor]], layout: Layout) -> tuple[Slot, ...]:
    """The tensors that are frozen according to one of the models; if none knows, all tensors."""
    declared = (content.frozen for content in contents if isinstance(content, Weights))
    frozen = next((names for names in declared if names is not None), None)
    if frozen is None:
        return layout.slots
    return tuple([slot for slot in layout.slots if slot.name in frozen]) if frozen else ()


def _equal(one: Tensor, other: Tensor, slots: tuple[Slot, ...]) -> tuple[Slot, ...]:
    """Those of the tensors that are equal in both vectors (cheap: most differ in their first numbers)."""
    return tuple([slot for slot in slots if torch.equal(_of(one, slot), _of(other, slot))])


def _of(vector: Tensor, slot: Slot) -> Tensor:
    return vector[slot.start : slot.stop]


def _vector(tensors: Mapping[str, Tensor], layout: Layout) -> Tensor:
    """The tensors in this layout's order: deserialised ones may have another order."""
    if isinstance(tensors, Weights) and tensors.layout == layout:
        return tensors.vector
    if {name: tuple(t.shape) for name, t in tensors.items()} != {s.name: s.shape for s in layout.slots}:
        raise ArtifactError(_difference(layout, Weights.of(tensors).layout))
    return torch.cat([tensors[slot.name].detach().reshape(-1).to(torch.float32) for slot in layout.slots])


def _difference(one: Layout, other: Layout) -> str:
    for a, b in zip(one.slots, other.slots, strict=False):
        if (a.name, a.shape) != (b.name, b.shape):
            return (
                f"models of different architectures cannot be averaged: '{a.name}' {a.shape} "
                f"against '{b.name}' {b.shape}. Use one architecture in model.zoo, or a method for mixed ones"
            )
    return (
        "models of different architectures cannot be averaged: one has more tensors than the other. "
        "Use one architecture in model.zoo, or a method for mixed ones"
    )
