"""The common structure of every model: a backbone, a head and, if a method needs one, a projector.

Methods exchange *parts* of a model by name. In every architecture, parameter names begin with ``backbone.``,
``head.``, ``projector.``, ``mentee.``, ``adapter.`` or ``private.``, or are ``prototypes``. A subclass of `Net` may
have other parts: the attribute name of each of its modules is the name of a part.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd


class Output(NamedTuple):
    """The outputs of a forward pass for a batch of B inputs."""

    logits: Tensor  # (B, classes)
    features: Tensor  # (B, d_z)
    projection: Tensor | None = None  # (B, d_p); None without a projector, and outside of training
    mentee: Output | None = None  # of the small net that is trained alongside; None as above
    adapted: Tensor | None = None  # (B, d_z): the mentee's features, mapped to this net's feature space
    common: Tensor | None = None  # (B, classes): the logits without those of a private head; None without one


class NormOfBatch(nn.BatchNorm1d):
    """Batch norm without running statistics, written out as a formula.

    Torch's kernel rounds elements that do not fill a register differently, so a model's result would depend on how
    many models are stacked.
    """

    def __init__(self, features: int) -> None:
        super().__init__(features, track_running_stats=False)

    def forward(self, x: Tensor) -> Tensor:
        centred = x - x.mean(0)
        return centred * (centred.square().mean(0) + self.eps).rsqrt() * self.weight + self.bias


class Net(nn.Module):
    """A backbone that maps inputs to ``d_z`` features, and the head and other parts that read them.

    Args:
        backbone: a module from inputs (B, ...) to features (B, d_z).
        d_z: the number of features.
        classes: the number of classes, the outputs of the head.
        projector: a module on the features for contrastive losses; methods that need one add it if it is None.
        dropout: probability of dropping a feature on the way to the head.
        relu: whether a ReLU stands between features and head.
    """

    def __init__(
        self,
        backbone: nn.Module,
        d_z: int,
        classes: int,
        *,
        projector: nn.Module | None = None,
        dropout: float = 0.0,
        relu: bool = False,
    ) -> None:
        super().__init__()
        self.d_z = d_z
        self.channels_last = False  # whether training is faster on images in that layout
        self.backbone = backbone
        self.head = nn.Linear(d_z, classes)
        self.projector: Any = projector
        self.mentee: Net | None = None
        self.adapter: nn.Linear | None = None
        self.private: nn.Linear | None = None
        self.only_for_training: set[str] = set()  # parts that a method added for its losses; unused for predictions
        # Applied before the head only: prototypes and projections see the raw features, without dropout.
        self.relu: nn.Module = nn.ReLU() if relu else nn.Identity()
        self.drop: nn.Module = nn.Dropout(dropout) if dropout > 0 else nn.Identity()

    def add_projector(self, hidden: int, d_p: int) -> None:
        """MAPL's projection network: two layers, batch norm and ReLU on the hidden one only.

        Only losses use it, so it needs no statistics beyond the current batch.
        """
        self.only_for_training.add("projector")
        first = nn.Linear(self.d_z, hidden, bias=False)  # the norm would cancel a bias
        self.projector = nn.Sequential(first, NormOfBatch(hidden), nn.ReLU(), nn.Linear(hidden, d_p))

    def add_prototypes(self, d_p: int) -> None:
        """One learnable point in projection space per class."""
        self.only_for_training.add("prototypes")
        self.prototypes = nn.Linear(d_p, self.head.out_features, bias=False).weight

    def add_mentee(self, mentee: Net, adapter: bool) -> None:
        """A small net that is trained alongside this one and shared with other peers, and an optional adapter from its
        features to this net's."""
        self.only_for_training |= {"mentee", "adapter"}
        self.mentee = mentee
        self.adapter = nn.Linear(mentee.d_z, self.d_z, bias=False) if adapter else None

    def add_private(self) -> None:
        """A second head, whose logits are added to the first one's."""
        self.private = nn.Linear(self.d_z, self.head.out_features)

    def forward(self, x: Tensor) -> Output:
        features: Tensor = self.backbone(x)
        head_input = self.drop(self.relu(features))
        logits: Tensor = self.head(head_input)
        common = None
        if self.private is not None:
            common, logits = logits, logits + self.private(head_input)
        if not self.training:
            return Output(logits, features, None)
        mentee: Output | None = self.mentee(x) if self.mentee is not None else None
        adapted = self.adapter(mentee.features) if self.adapter is not None and mentee is not None else None
        projection = self.projector(features) if self.projector is not None else None
        return Output(logits, features, projection, mentee, adapted, common)


# Layers without children whose vmap over stacked parameters is one batched kernel.
_FAST_LEAVES: tuple[type[nn.Module], ...] = (
    nn.Linear,
    nn.Flatten,
    nn.Unflatten,
    nn.Identity,
    nn.LayerNorm,
    nn.GroupNorm,
    nn.ReLU,
    nn.ReLU6,
    nn.LeakyReLU,
    nn.ELU,
    nn.SELU,
    nn.CELU,
    nn.GELU,
    nn.SiLU,
    nn.Mish,
    nn.Tanh,
    nn.Sigmoid,
    nn.Softplus,
    nn.Hardswish,
    nn.Hardsigmoid,
    nn.Hardtanh,
    nn.Softmax,
    nn.LogSoftmax,
)


def vmappable(net: nn.Module) -> bool:
    """Whether ``torch.func.vmap`` over stacked parameters gives the same results as a loop over the nets.

    Judged by the layers: running statistics are updated in place and dropout draws from one generator,
    so neither batches; recurrent layers have no batching rule. A functional call in the ``forward`` of a user's
    module (``F.dropout``, control flow on values) is not detected.
    """
    return not any(map(_resists_vmap, net.modules()))


def batchable(net: nn.Module) -> bool:
    """Whether training many copies of `net` at once is *faster* than a loop.

    True only for nets of dense layers, activations and per-sample normalisation. Convolutions
    batch too, but as grouped convolutions, which are slower than a loop on a CPU.
    """
    return vmappable(net) and all(map(_is_fast, net.modules()))


def draws(net: nn.Module) -> bool:
    """Whether a training pass draws random numbers (dropout), judged by the layers."""
    return any(isinstance(module, _DropoutNd) and module.p > 0 for module in net.modules())


def _resists_vmap(module: nn.Module) -> bool:
    if isinstance(module, _NormBase):  # batch norm and instance norm
        return module.running_mean is not None
    if isinstance(module, _DropoutNd):
        return module.p > 0
    return isinstance(module, nn.RNNBase)


def _is_fast(module: nn.Module) -> bool:
    if isinstance(module, _DropoutNd):
        return module.p == 0
    is_container = isinstance(module, nn.Sequential | nn.ModuleList | nn.ModuleDict)
    if is_container or next(module.children(), None) is not None:
        # A composite with parameters of its own uses them in an unknown way. (A net only stores its prototypes, for
        # the loss.)
        return isinstance(module, Net) or next(module.parameters(recurse=False), None) is None
    if isinstance(module, nn.BatchNorm1d):
        return module.running_mean is None
    return isinstance(module, _FAST_LEAVES)
