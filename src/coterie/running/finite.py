"""Models with numbers that are not finite (NaN, infinity): who ends with one, and what is said of it.

Training that diverges leaves them. What they predict is no prediction, so a run or a peer that ends with one has
failed, whatever its figures are; all of its files stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from coterie.core.errors import DivergedError, ModelError
from coterie.core.events import NotFinite
from coterie.core.formatting import not_finite_peers
from coterie.core.model import Model
from coterie.core.peer import Peer
from coterie.running.saved_models import Personal, members_of

REMEDY = "lower train.lr (or the step size of the method), or look for extreme values in the data"


def found(peers: Iterable[tuple[Peer, int]], time: float) -> list[NotFinite]:
    """Of these peers, each with the round that it is at, those whose model, or a member of whose ensemble, is not.

    A server predicts nothing. Of a member that came as ONNX the sandbox looks at the answers.
    """
    with_data = [(me, round) for me, round in peers if me.data is not None]
    return [NotFinite(me.id, round, time) for me, round in with_data if not _is_finite(me)]


def _is_finite(me: Peer) -> bool:
    models = [member.model for member in members_of(me)]
    return all(bool(model.vector.isfinite().all()) for model in models if isinstance(model, Model))


def refuse(summary: Mapping[str, Any], out: Path) -> None:
    """Raise DivergedError if this is the summary of a run, or of a peer, that ended with such models."""
    told = summary.get("not_finite")
    if told:
        raise DivergedError(
            f"{out}: {not_finite_peers(told, summary.get('peers'))}: training diverged. "
            f"To mend it, {REMEDY}, and run it anew; figures and events of this run are kept"
        )


def check(personal: Personal) -> None:
    """Raise ModelError if one of the networks of what a peer predicts with has such numbers."""
    for part, content in zip(personal.manifest.parts, personal.contents, strict=True):
        for name, tensor in {} if isinstance(content, bytes) else content.items():
            if not np.isfinite(tensor).all():
                member = f"the member '{part.name}' of the ensemble" if personal.manifest.vote else "the model"
                raise ModelError(
                    f"{member} of {personal.manifest.who} in {personal.source} is not finite ('{name}' has NaN or "
                    "infinite numbers): training diverged, and nothing can be predicted with it. "
                    f"To mend it, {REMEDY}, and run it anew; or choose another peer"
                )
