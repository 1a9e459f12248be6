"""Directions of class vectors for the report: of the mean latent features, and of the prototypes."""

from collections.abc import Collection

import torch
import torch.nn.functional as F
from torch import Tensor

from coterie.core.peer import Peer
from coterie.methods.figures import Plane

MOST_CLASSES = 20  # of a peer whose latent features are noted for the report

FIGURES = (
    Plane(
        "embedding",
        "features",
        "Latent features",
        "the mean over one peer's training samples of one class, in the latent space that its head takes as input",
        "means of latent features",
    ),
    Plane(
        "prototypes",
        "prototypes",
        "Prototypes",
        "one peer's shared prototype of a class that it has samples of",
        "prototypes",
    ),
)


async def note_embeddings(me: Peer) -> None:
    """Note, of each class that the peer holds, the direction of the mean latent feature and of the prototype.

    Means and not samples: notes are written into the run folder, which peers may merge afterwards.
    """
    labels = me.labels()
    classes = sorted(set(labels.tolist()))
    (prediction,) = await me.predict()
    means = [prediction.features[labels == k].mean(0) for k in classes[:MOST_CLASSES]]
    prototypes = me.model["prototypes"][classes]
    me.note(features=_directions(classes, torch.stack(means)), prototypes=_directions(classes, prototypes))


def _directions(classes: Collection[int], vectors: Tensor) -> dict[str, list[float]]:
    """Unit vectors; three decimals are enough for a plot."""
    rows = F.normalize(vectors, dim=-1).tolist()
    return {str(k): [round(x, 3) for x in row] for k, row in zip(classes, rows, strict=False)}
