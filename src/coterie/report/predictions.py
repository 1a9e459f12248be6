"""Reads what peers predicted for their own validation and test data: `predictions/peer-N.npz`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from coterie.core.errors import RunError
from coterie.core.events import SPLITS, RunStarted
from coterie.core.run_folder import RunFolder
from coterie.data.dataset import Array, read_arrays
from coterie.metrics import Scores
from coterie.report.figure import NothingToDraw

WHICH = ("last", "selected")
MOST_PEERS = 100  # whose predictions a report reads
NONE_SAVED = "No predictions were saved: set evaluate.predictions=always."
TOO_MANY = f"There are more than {MOST_PEERS} peers: their predictions are not shown."


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
    """The predictions of a run, by peer; empty if there are none, or too many for a report.

    The peers of `coterie up` keep theirs in their own folders.
    """
    files, numbers = RunFolder(folder), {file_name(peer): peer for peer in range(peers)}
    paths = [path for run in (files, *files.members()) for path in run.predictions.glob("*.npz")]
    there = {numbers[path.name]: path for path in paths if path.name in numbers}
    return {peer: read(path) for peer, path in sorted(there.items())} if len(there) <= MOST_PEERS else {}


def require(predicted: Mapping[int, SavedPredictions], start: RunStarted) -> None:
    """Raise NothingToDraw, with the reason, if `of_run` gave no predictions."""
    if not predicted:
        raise NothingToDraw(TOO_MANY if start.peers > MOST_PEERS else NONE_SAVED)
