"""Reads what peers predicted for their own validation and test data: `predictions/peer-N.npz`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from coterie.core.errors import RunError
from coterie.core.run_folder import RunFolder
from coterie.data.dataset import Array, read_arrays
from coterie.metrics import Scores

SPLITS = ("validation", "test")
WHICH = ("last", "selected")
MOST_PEERS = 100  # whose predictions a report reads


@dataclass(frozen=True, eq=False)
class SavedSplit:
    """One peer's predictions for one split, row by row."""

    rows: Array  # row numbers in the peer's file, or in the dataset that all peers divide
    labels: Array  # class numbers
    last: Array  # float32 (rows, classes): the probabilities at the end of its last measured round
    selected: Array  # the same for the round that its validation data select


@dataclass(frozen=True, eq=False)
class SavedPredictions:
    """The content of one peer's file."""

    classes: tuple[str, ...]
    positive: int  # the number of the positive class
    last_round: int
    selected_round: int
    validation: SavedSplit
    test: SavedSplit

    def scores(self, split: str = "test", which: str = "last") -> Scores:
        values = getattr(getattr(self, split), which)
        return Scores(values.astype(float), self.positive)


def file_name(peer: int) -> str:
    return f"peer-{peer}.npz"


def read(path: Path) -> SavedPredictions:
    """Read one peer's file; raises DataError if it is damaged."""
    arrays = read_arrays(path)
    try:
        validation, test = (
            SavedSplit(*(arrays[f"{name}_{part}"] for part in ("rows", "labels", *WHICH))) for name in SPLITS
        )
        classes = tuple(arrays["classes"].tolist())
        positive = int(arrays.get("positive", len(classes) - 1))
        last, selected = (int(arrays[f"{which}_round"]) for which in WHICH)
        return SavedPredictions(classes, positive, last, selected, validation, test)
    except KeyError as error:
        raise RunError(f"{path} is not a file of predictions: it has no array {error}") from error


def of_run(folder: Path, peers: int) -> dict[int, SavedPredictions]:
    """The predictions in a run's folder, by peer; empty if there are none, or too many for a report."""
    paths = {peer: RunFolder(folder).predictions / file_name(peer) for peer in range(peers)}
    there = {peer: path for peer, path in paths.items() if path.exists()}
    return {peer: read(path) for peer, path in there.items()} if len(there) <= MOST_PEERS else {}
