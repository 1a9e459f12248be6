"""Low-rank compression of model updates: matrices are sent as two factors (FedKD)."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from coterie.core.weights import Weights


def difference(one: Weights, other: Weights) -> Weights:
    return Weights(one.layout, one.vector - other.vector)


def added(one: Weights, step: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor + step[name] for name, tensor in one.items()}


def packed(update: Mapping[str, Tensor], energy: float) -> dict[str, Tensor]:
    """Each matrix as two factors of the lowest rank that keeps this share of its energy, if they are smaller."""
    return {key: factor for name, tensor in update.items() for key, factor in _factors(name, tensor, energy)}


def _factors(name: str, tensor: Tensor, energy: float) -> Iterable[tuple[str, Tensor]]:
    if tensor.dim() < 2:
        return [(name, tensor)]
    matrix = tensor.reshape(len(tensor), -1)
    # Eigenvectors of A A' are singular vectors of A, in a tenth of the time where A is wide. In double precision, as
    # squaring halves the digits; on the CPU, as not every device has double precision.
    wide = (matrix if len(matrix) <= matrix.shape[1] else matrix.T).to("cpu", torch.float64)
    squares, vectors = torch.linalg.eigh(wide @ wide.T)  # the largest last
    shares = squares.flip(0).clamp(min=0).cumsum(0)
    rank = int((shares < energy * shares[-1]).sum()) + 1
    if rank * sum(matrix.shape) >= matrix.numel():
        return [(name, tensor)]
    left = vectors[:, -rank:]
    right = left.T @ wide
    pair = (left, right) if len(matrix) <= matrix.shape[1] else (right.T, left.T)
    return [
        (f"{name}.{side}", factor.to(tensor).contiguous()) for side, factor in zip(("left", "right"), pair, strict=True)
    ]


def unpacked(sent: Mapping[str, Tensor], like: Mapping[str, Tensor]) -> dict[str, Tensor] | None:
    """The update that was packed; None if it does not give tensors like these: never trust received data."""
    update = {}
    for name, expected in like.items():
        if name in sent:
            update[name] = sent[name]
            continue
        left, right = sent.get(f"{name}.left"), sent.get(f"{name}.right")
        if left is None or right is None or left.dim() != 2 or right.dim() != 2 or left.shape[1] != right.shape[0]:
            return None
        if expected.dim() < 2 or len(left) * right.shape[1] != expected.numel():
            return None
        update[name] = (left @ right).reshape(expected.shape)
    fits = all(update[name].shape == t.shape and update[name].dtype == t.dtype for name, t in like.items())
    return update if fits else None
