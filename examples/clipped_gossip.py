"""Gossip in which one round of training changes the model that a peer publishes by a bounded length only.

coterie run panm-digits method.name=examples/clipped_gossip.py:ClippedGossip
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from coterie import CoterieError, Peer, parameter
from coterie.core.release import PARAMETERS, Release, Step
from coterie.methods.gossip import Gossip


def clipped(me: Peer, release: Release, bound: float) -> Release:
    """Shorten the change since the start of the round to the bound. What cannot be bounded must not leave."""
    before = release.reference
    if release.made_from != PARAMETERS or before is None:
        raise CoterieError(f"peer {me.id}: '{release.name}' cannot be clipped: nothing says what it is a change of")
    change = {name: tensor - before[name] for name, tensor in release.content.items()}
    length = math.sqrt(sum(float(step.square().sum()) for step in change.values()))
    factor = min(1.0, bound / length) if length else 1.0
    me.note(kept_of_change=factor)
    return replace(release, content={name: before[name] + factor * step for name, step in change.items()})


@dataclass(frozen=True)
class ClippedGossip(Gossip):
    summary: ClassVar[str] = "gossip that bounds how far a round of training moves the published model"

    bound: float = parameter(1.0, "largest Euclidean length of the change, over all parameters", above=0)

    def release_steps(self) -> Sequence[Step]:
        return (partial(clipped, bound=self.bound),)
