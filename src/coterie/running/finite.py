"""Finds models with NaN or infinite numbers at the end of a run, and reports them.

They are the result of diverged training, and their predictions are meaningless. So a run or a peer that ends with one
has failed, whatever its figures are. All of its files are kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from coterie.core.errors import DivergedError, ModelError
from coterie.core.events import NotFinite
from coterie.core.formatting import not_finite_peers
from coterie.core.model import Model
from coterie.core.peer import Peer, held_by
from coterie.core.summary import AnySummary, Summary
from coterie.running.saved_models import Personal, members_of

REMEDY = "lower train.lr (or the step size of the method), or look for extreme values in the data"


def diverged(peers: Iterable[tuple[Peer, int]], time: float) -> list[NotFinite]:
    """An event for each peer whose model or ensemble has such numbers; peers are given with their rounds.

    Servers are skipped: they predict nothing. ONNX members are skipped: the sandbox checks their answers.
    """
    with_data = [(me, round) for me, round in peers if held_by(me) is not None]
    return [NotFinite(me.id, round, time) for me, round in with_data if not _is_finite(me)]


def _is_finite(me: Peer) -> bool:
    models = [member.model for member in members_of(me)]
    return all(bool(model.vector.isfinite().all()) for model in models if isinstance(model, Model))


def refuse(summary: AnySummary, out: Path) -> None:
    """Raise DivergedError if this summary is of a run or peer that ended with such models."""
    if summary.not_finite:
        peers = summary.peers if isinstance(summary, Summary) else None
        raise DivergedError(
            f"{out}: {not_finite_peers(summary.not_finite, peers)}: training diverged. "
            f"To fix it, {REMEDY}, and run it again; figures and events of this run are kept"
        )


def check(personal: Personal) -> None:
    """Raise ModelError if one of the networks that a peer predicts with has such numbers."""
    for part, content in zip(personal.manifest.parts, personal.contents, strict=True):
        for name, tensor in {} if isinstance(content, bytes) else content.items():
            if not np.isfinite(tensor).all():
                member = f"the member '{part.name}' of the ensemble" if personal.manifest.vote else "the model"
                raise ModelError(
                    f"{member} of {personal.manifest.who} in {personal.source} is not finite ('{name}' has NaN or "
                    "infinite numbers): training diverged, and its predictions would be meaningless. "
                    f"To fix it, {REMEDY}, and run it again; or choose another peer"
                )
