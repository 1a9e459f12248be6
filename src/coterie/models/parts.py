"""Parts that a method adds to every model: what they are built from, and how they enter the forward pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import nn

from coterie.core.net import Join, Net
from coterie.data.schema import Blocks

if TYPE_CHECKING:
    from coterie.models.zoo import ModelSettings


@dataclass(frozen=True)
class Site:
    """The model that a part is built for. Backbone and head exist, and all parts that the method declares earlier."""

    name: str  # of the architecture, as in model.zoo
    net: Net
    input_shape: tuple[int, ...]  # of one sample
    classes: int
    settings: ModelSettings
    blocks: Blocks = ()  # the features of each category of a schema

    @property
    def d_p(self) -> int:
        """The number of outputs of a projector."""
        return self.settings.d_p or self.net.d_z


@dataclass(frozen=True)
class Part:
    """A part of a model that a method brings: one of its `parts`.

    Args:
        name: its name, with which its parameters' names begin. `me.train(only=name)` trains it alone.
        build: makes it. Its draws come after those of backbone and head, which so start alike with all methods.
        join: `(part, seen, output) -> output`: adds its result to the output of a forward pass, usually
            `output.plus(name=part(output.features))`. None for a part that only the loss reads, in `net.parameters`.
        predicts: whether predictions need it. Other parts are not called outside of training, nor saved with a model.
        check: for a net of the user's that already has this part: raises ModelError if it does not fit.
            None: a net may not have one.
    """

    name: str
    build: Callable[[Site], nn.Module | nn.Parameter]
    join: Join | None = None
    predicts: bool = False
    check: Callable[[Site], None] | None = None

    def add_to(self, site: Site) -> None:
        """Add it to the net, or check the one that the net has."""
        if self.check is not None and getattr(site.net, self.name, None) is not None:
            self.check(site)
        else:
            site.net.add(self.name, self.build(site), self.join, self.predicts)
