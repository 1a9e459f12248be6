"""Where the files of a run are: the only place that knows their names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_CONFIG, _EVENTS, _REPORT = "config.toml", "events.jsonl", "report.html"
_PEERS, _KEYS, _MODELS, _CHECKPOINT, _LETTERS = "peers", "keys", "models", "checkpoint", "letters"
_PREDICTIONS = "predictions"
_BASELINE = "baseline-"  # and the method's name

# Subfolders of a run that hold no runs of their own.
PARTS = frozenset((_PEERS, _KEYS, _MODELS, _PREDICTIONS, _CHECKPOINT, _LETTERS))


@dataclass(frozen=True)
class RunFolder:
    """The folder of a simulation, of one real peer, or of a circle of `coterie up`. No kind of run has all the files.

    Only paths: a property is there whether or not the file is.
    """

    path: Path

    @property
    def config(self) -> Path:
        """All settings of the run."""
        return self.path / _CONFIG

    @property
    def events(self) -> Path:
        """One record for each round of each peer; the figures and the report are made from it."""
        return self.path / _EVENTS

    @property
    def summary(self) -> Path:
        """The figures. It is written last: a run that has it is complete."""
        return self.path / "summary.json"

    @property
    def state(self) -> Path:
        """The live state of a simulation or a circle."""
        return self.path / "state.json"

    @property
    def status(self) -> Path:
        """The live status of one real peer."""
        return self.path / "status.json"

    @property
    def provenance(self) -> Path:
        """The digests of the sources that the run was made with."""
        return self.path / "provenance.json"

    @property
    def report(self) -> Path:
        return self.path / _REPORT

    @property
    def graph(self) -> Path:
        """The weights on others, by round."""
        return self.path / "graph.npz"

    @property
    def audit(self) -> Path:
        """What a real peer sent."""
        return self.path / "audit.jsonl"

    @property
    def output(self) -> Path:
        """What the process of a peer of `coterie up` printed."""
        return self.path / "output.txt"

    @property
    def error(self) -> Path:
        """The traceback of an unexpected error in a run of a comparison."""
        return self.path / "error.txt"

    @property
    def lock(self) -> Path:
        """Locked by the process of a real peer; holds the number of its last start."""
        return self.path / "running"

    @property
    def wandb_id(self) -> Path:
        """The run's id at Weights & Biases: a resumed run continues it."""
        return self.path / "wandb-id"

    # -- subfolders ----------------------------------------------------------------------------

    @property
    def checkpoint(self) -> Path:
        return self.path / _CHECKPOINT

    @property
    def models(self) -> Path:
        """The final models."""
        return self.path / _MODELS

    @property
    def predictions(self) -> Path:
        """What each peer predicts for its own validation and test data."""
        return self.path / _PREDICTIONS

    @property
    def letters(self) -> Path:
        """A real peer's mailbox."""
        return self.path / _LETTERS

    @property
    def keys(self) -> Path:
        """The throwaway keys of `coterie up`."""
        return self.path / _KEYS

    @property
    def figures(self) -> Path:
        return self.path / "figures"

    @property
    def tensorboard(self) -> Path:
        return self.path / "tensorboard"

    @property
    def peers(self) -> Path:
        """The files and folders of the peers of `coterie up`."""
        return self.path / _PEERS

    def peer(self, name: str) -> RunFolder:
        return RunFolder(self.peers / name)

    def peer_file(self, name: str) -> Path:
        """The settings that a peer of `coterie up` is started with."""
        return self.peers / f"{name}.toml"

    def members(self) -> list[RunFolder]:
        """The folders of the peers of `coterie up` that exist, in order of their names."""
        return [RunFolder(folder) for folder in sorted(self.peers.glob("*/"))]

    def baseline(self, name: str) -> RunFolder:
        """The run of the baseline that `coterie run` adds, by the name of its method."""
        return RunFolder(self.path / f"{_BASELINE}{name}")

    def baselines(self) -> list[RunFolder]:
        """The baselines that have events, in order of their names."""
        return [RunFolder(path.parent) for path in sorted(self.path.glob(f"{_BASELINE}*/{_EVENTS}"))]

    # -- states --------------------------------------------------------------------------------

    def is_started(self) -> bool:
        return self.config.exists()

    def is_finished(self) -> bool:
        return self.summary.exists()

    def is_circle(self) -> bool:
        """Whether `coterie up` made it."""
        return self.peers.is_dir()


def runs_in(top: Path) -> Iterator[RunFolder]:
    """The runs directly below a folder, in order of their names."""
    return (RunFolder(config.parent) for config in sorted(top.glob(f"*/{_CONFIG}")))


@dataclass(frozen=True)
class ComparisonFolder:
    """The folder of a comparison or a sweep, beside the runs in it."""

    path: Path

    @property
    def record(self) -> Path:
        """The figures, and which runs they are from."""
        return self.table("json")

    def table(self, form: str) -> Path:
        """The tables as "md", "tex", "csv" or "json"."""
        return self.path / f"comparison.{form}"

    @property
    def report(self) -> Path:
        return self.path / _REPORT

    @property
    def lock(self) -> Path:
        return self.path / ".lock"
