"""Release: everything that leaves a peer passes one chain of steps first, whether it is shelved or sent.

A step sees the tensors and facts that are about to leave, what they were made from, and what they are a change of. It
returns them, changed or not: clipped, noised, rounded. The chain is empty unless `Method.release_steps` returns one.

The result is the artifact, in every engine. Compression on a network (`network.compression`) comes after it: it encodes
the artifact for one connection, and cannot see what the artifact was made from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from torch import Tensor

from coterie.core.artifact import Artifact, Fact
from coterie.core.errors import MethodError, unknown

if TYPE_CHECKING:
    from coterie.core.peer import Peer

PARAMETERS: Final = "parameters"  # trained parameters of a model, or of a part of it
UPDATE: Final = "update"  # the change of parameters by training
CLASS_MEANS: Final = "class means"  # of features or predictions, and the number of samples of each class
FEATURES: Final = "features"  # of single samples
# data.scale = "pooled": count, mean and squared deviations of each input feature, and for regression of the labels
FEATURE_SUMS: Final = "feature sums"
PORTABLE: Final = "portable model"  # an estimator or network as ONNX
AVERAGE: Final = "average"  # what other peers released, merged or passed on
BOOKKEEPING: Final = "bookkeeping"  # of the method, such as rounds and peers; not computed from data
ORIGINS: Final = (PARAMETERS, UPDATE, CLASS_MEANS, FEATURES, FEATURE_SUMS, PORTABLE, AVERAGE, BOOKKEEPING)


@dataclass(frozen=True, eq=False)
class Release:
    """Something that is about to leave a peer.

    Attributes:
        name: of the artifact, such as "model".
        content: the tensors, by name. A step gets copies, so it may change them in place.
        facts: numbers and texts that go with them, such as ``samples``.
        made_from: one of `ORIGINS`.
        reference: the same tensors before the peer trained in this round, so that a step can bound the change; read
            only. Of a model that is released once, after several rounds of training: before all of them. None if the
            method does not say, or if there is no such thing.
        to: the receiver of a message; None: it is shelved, for any peer to fetch.
    """

    name: str
    content: Mapping[str, Tensor]
    facts: Mapping[str, Fact]
    made_from: str = PARAMETERS
    reference: Mapping[str, Tensor] | None = None
    to: int | None = None


Step = Callable[["Peer", Release], Release]  # returns the release with other content or facts: dataclasses.replace


def released(me: Peer, release: Release, steps: Iterable[Step]) -> Artifact:
    """Apply the steps in order, and make the artifact. A step cannot change its name, author or round."""
    if release.made_from not in ORIGINS:
        raise MethodError(unknown("made_from", release.made_from, ORIGINS))
    name, author, round = release.name, me.id, me.round
    artifact = Artifact.snapshot(name, author, round, release.content, release.facts)
    for step in steps:
        copied = Release(name, artifact.content, artifact.facts, release.made_from, release.reference, release.to)
        changed = step(me, copied)
        if not isinstance(changed, Release):
            who = getattr(step, "__qualname__", repr(step))
            raise MethodError(f"the release step {who} returned a {type(changed).__name__} instead of a Release")
        artifact = Artifact.snapshot(name, author, round, changed.content, changed.facts)
    return artifact
