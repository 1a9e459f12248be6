"""The common structure of every model: a backbone, a head and the parts that a method adds.

Methods exchange *parts* of a model by name: the parameters of a part have names that begin with ``backbone.``,
``head.`` or the name of another part. A method adds its parts with `Net.add`; a subclass of `Net` may have parts of its
own: the attribute name of each of its modules is the name of a part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd

from coterie.core.errors import ModelError

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Output(NamedTuple):
    """The outputs of a forward pass for a batch of B inputs."""

    logits: Tensor  # (B, classes)
    features: Tensor  # (B, d_z)
    projection: Tensor | None = None  # (B, d_p); None without a projector, and outside of training
    extra: Mapping[str, Any] = _NOTHING  # outputs of the parts that the method added, by name; empty as above

    def plus(self, **extra: Any) -> Output:
        """This output with further outputs of parts."""
        return self._replace(extra={**self.extra, **extra})

    def of(self, name: str) -> Any:
        """The output of a part that the method added."""
        if name not in self.extra:
            raise ModelError(
                f"the forward pass has no output '{name}' of a part: the method must declare the part in `parts`, and "
                "a Net with a `forward` of its own must return `self.with_parts(...)`"
            )
        return self.extra[name]


class Seen(NamedTuple):
    """The inputs of a forward pass that a part may read besides the net's output."""

    x: Tensor  # (B, ...): the inputs
    head_input: Tensor  # (B, d_z): the features as the head reads them, after ReLU and dropout


Join = Callable[[Any, Seen, Output], Output]  # (part, seen, output so far) -> output


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
        self._joins: dict[str, Join] = {}  # how added parts enter the forward pass, by name, in the order of addition
        self.only_for_training: set[str] = set()  # parts that a method added for its losses; unused for predictions
        # Applied before the head only: prototypes and projections see the raw features, without dropout.
        self.relu: nn.Module = nn.ReLU() if relu else nn.Identity()
        self.drop: nn.Module = nn.Dropout(dropout) if dropout > 0 else nn.Identity()

    def add(self, name: str, part: nn.Module | nn.Parameter, join: Join | None = None, predicts: bool = False) -> None:
        """Add a part of a method's.

        Args:
            name: the name of the part, with which its parameters' names begin.
            part: the module, or a single parameter.
            join: computes the part's share of the output; None for a part that only losses read, by its parameters.
            predicts: whether predictions need it; otherwise only training does.
        """
        setattr(self, name, part)
        if join is not None:
            self._joins[name] = join
        if not predicts:
            self.only_for_training.add(name)

    def forward(self, x: Tensor) -> Output:
        features: Tensor = self.backbone(x)
        head_input = self.drop(self.relu(features))
        logits: Tensor = self.head(head_input)
        return self.with_parts(Output(logits, features), Seen(x, head_input))

    def with_parts(self, out: Output, seen: Seen) -> Output:
        """The output after all parts that a method added have joined; in evaluation only those that predict."""
        if self.training and self.projector is not None:
            out = out._replace(projection=self.projector(out.features))
        for name, join in self._joins.items():
            if self.training or name not in self.only_for_training:
                out = join(getattr(self, name), seen, out)
        return out


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
