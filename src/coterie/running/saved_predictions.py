"""Saves what every peer predicts for its own validation and test data as `predictions/peer-N.npz`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from coterie.core.errors import RunError
from coterie.core.events import SPLITS
from coterie.core.files import replacing_folder
from coterie.core.peer import Peer, held_by
from coterie.core.peer_data import PeerData
from coterie.core.run_folder import RunFolder
from coterie.data.dataset import Array
from coterie.engines.predictions import LastAndSelected, Predictions
from coterie.report.predictions import WHICH, file_name
from coterie.wiring import Population


def keep(out: Path, circle: Population, peers: Iterable[Peer], predictions: Predictions) -> None:
    """Write the predictions of these peers, all or none of them."""
    kept = [(me, data, of_peer) for me in peers if (data := held_by(me)) and (of_peer := predictions.of(me.id))]
    folder = RunFolder(out).predictions
    if not kept:
        return
    try:
        with replacing_folder(folder) as temporary:  # there is a folder after an earlier end of this run
            for me, data, of_peer in kept:
                with (temporary / file_name(me.id)).open("wb") as file:
                    np.savez_compressed(file, **_arrays(circle, data, of_peer))  # type: ignore[arg-type]
    except OSError as error:
        raise RunError(f"the predictions {folder} could not be written ({error}): is the disk full?") from error


def _arrays(circle: Population, data: PeerData, of_peer: LastAndSelected) -> dict[str, Array]:
    arrays: dict[str, Array] = {
        "classes": np.array(circle.dataset.classes, dtype=str), "positive": np.array(circle.evaluation.positive),
    }  # fmt: skip
    for which in WHICH:
        arrays[f"{which}_round"] = np.array(getattr(of_peer, which).record.round)
    for number, name in enumerate(SPLITS):
        split = getattr(data, name)
        arrays[f"{name}_rows"] = circle.pooled.rows[split.rows.cpu().numpy()]
        labels = split.y.cpu().numpy()
        arrays[f"{name}_labels"] = data.label_scaling.restored(labels) if data.label_scaling else labels
        for which in WHICH:
            arrays[f"{name}_{which}"] = getattr(of_peer, which).probabilities[number]
    return arrays
