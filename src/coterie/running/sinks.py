"""Sends the events of a run to TensorBoard or Weights & Biases, both optional packages.

Metrics on validation data are sent during a run, those on test data only at its end: the test set must not guide
decisions.
"""

from __future__ import annotations

import os
import secrets
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

from coterie.core import notes
from coterie.core.events import Event, PeerRound, RunStarted
from coterie.core.formatting import peer_name
from coterie.core.json_values import table
from coterie.core.measured_metric import ACCURACY
from coterie.core.run_folder import RunFolder
from coterie.core.summary import LAST, SELECTED, AnySummary
from coterie.methods.declared import no_curves
from coterie.running.progress import Progress, RoundProgress

MOST_PEERS = 50  # with more peers, only means are shown


def _tag(where: str, metric: str, what: str) -> str:
    """The tag of a value; that of accuracy does not name it."""
    return f"{where}/{what}" if metric == ACCURACY.name else f"{where}/{metric}/{what}"


class Sink(ABC):
    """Turns the events of a run into curves over rounds."""

    package: str

    def __init__(self, folder: Path, config: Mapping[str, object], resumed: bool) -> None:
        self.folder, self.config, self.resumed = folder, config, resumed
        self.few = True
        self._peers: int | None = None  # None for a real peer, which sees only its own records
        self._names: Sequence[str] = ()
        self._progress: Progress | None = None
        self._tags = notes.Tags()
        self._no_curves = no_curves(str(table(config["method"])["name"]))
        self._noted: dict[int, dict[str, list[float]]] = {}  # by round and tag, until all peers have finished the round
        self._left_out = False
        self._open()

    def see(self, event: Event, tell: bool = True) -> None:
        """Process an event; with `tell` false (before a restart) it is not sent again."""
        if isinstance(event, RunStarted):
            self._peers, self.few = event.peers, event.peers <= MOST_PEERS
            self._names = event.names
            self._progress = Progress(event.peers, event.rounds, event.clusters, self._round, event.measured)
            return
        if tell and self.few and isinstance(event, PeerRound):
            self._measured(event)
        if isinstance(event, PeerRound):
            self._note(event, tell)
        if self._progress is not None:
            self._progress.see(event, tell)

    def _measured(self, event: PeerRound) -> None:
        """What a peer measured on its validation data."""
        peer = self._called(event.peer)
        names = (ACCURACY.name, *event.scores)
        own = {_tag(peer, name, "validation"): event.value(name, "validation") for name in names}
        known = {tag: value for tag, value in own.items() if value is not None}
        if known and event.loss is not None:
            known[f"{peer}/loss"] = event.loss
        if known:
            self.log(event.round, known)

    def _called(self, peer: int) -> str:
        """The peer's name, without the separator of tags."""
        return peer_name(peer, self._names).replace("/", "_")

    def _note(self, event: PeerRound, tell: bool) -> None:
        """The numbers that the method noted: of each participant, and for the mean over peers."""
        is_server = self._peers is not None and event.peer >= self._peers
        participant = "server" if is_server else self._called(event.peer)
        for name, value in notes.numbers(event.notes, self._no_curves).items():
            tag = self._tags.of(name)
            if tag is None:
                self._warn_of_more(name)
            elif tell and value is not None:
                if is_server or self.few:
                    self.log(event.round, {f"{participant}/notes/{tag}": value})
                if not is_server and self._progress is not None:
                    self._noted.setdefault(event.round, {}).setdefault(tag, []).append(value)

    def _warn_of_more(self, name: str) -> None:
        if not self._left_out:
            self._left_out = True
            print(
                f"coterie: {self.package} gets the first {notes.MOST} numbers that the method notes; "
                f"'{notes.shown(name)}' and later ones are only in events.jsonl", file=sys.stderr, flush=True,
            )  # fmt: skip

    def _log_noted(self, until: int) -> None:
        """Send the means of the rounds that all peers have finished."""
        for round in sorted(r for r in self._noted if r <= until):
            by_tag = self._noted.pop(round)
            self.log(round, {f"notes/{tag}": notes.mean(values) for tag, values in by_tag.items()})

    def _round(self, progress: RoundProgress) -> None:
        self._log_noted(progress.round)
        values: dict[str, float] = {"exchanged/bytes": progress.bytes}
        values |= {f"{name}/validation": mean for name, mean in progress.means.items()}
        if progress.neighbours is not None:
            values |= {f"neighbours/{name}": value for name, value in progress.neighbours._asdict().items()}
        self.log(progress.round, values)

    def finish(self, summary: AnySummary) -> None:
        """The run is done: send its figures."""
        self._log_noted(max(self._noted, default=0))
        figures = {
            _tag("test", name, kind): values.at(kind)
            for name, values in summary.test_values.items()
            for kind in (LAST, SELECTED)
        }
        self.total({name: value for name, value in figures.items() if value is not None}, summary.rounds)

    @abstractmethod
    def _open(self) -> None: ...

    @abstractmethod
    def log(self, round: int, values: Mapping[str, float]) -> None:
        """Add points to curves."""

    @abstractmethod
    def total(self, values: Mapping[str, float], rounds: int) -> None:
        """Add figures of the whole run."""

    @abstractmethod
    def close(self) -> None: ...


class TensorBoard(Sink):
    """Event files in the run's folder: `tensorboard --logdir runs`."""

    package = "tensorboard"

    def _open(self) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(RunFolder(self.folder).tensorboard), flush_secs=10)

    def log(self, round: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name.replace(" ", "_"), value, round)

    def total(self, values: Mapping[str, float], rounds: int) -> None:
        self.log(rounds, values)

    def close(self) -> None:
        self.writer.close()


class WandB(Sink):
    """A run in Weights & Biases, configured by its environment variables: WANDB_PROJECT, WANDB_MODE=offline, ..."""

    package = "wandb"

    def _open(self) -> None:
        import wandb

        id_file = RunFolder(self.folder).wandb_id  # a resumed run continues the same run there
        if not (self.resumed and id_file.exists()):
            id_file.write_text(secrets.token_hex(4), encoding="utf-8")
        self.run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "coterie"),
            name=self.folder.name,
            id=id_file.read_text(encoding="utf-8"),
            resume="allow",
            dir=str(self.folder),
            config=dict(self.config),
        )
        self.run.define_metric("round")
        self.run.define_metric("*", step_metric="round")  # peers may be at different rounds

    def log(self, round: int, values: Mapping[str, float]) -> None:
        self.run.log({"round": round, **values})

    def total(self, values: Mapping[str, float], rounds: int) -> None:  # noqa: ARG002
        self.run.summary.update(dict(values))

    def close(self) -> None:
        self.run.finish()


SINKS: dict[str, type[Sink]] = {"tensorboard": TensorBoard, "wandb": WandB}


class Sinks:
    """All sinks of a run. A sink that fails is reported and dropped; the run continues without it."""

    def __init__(self, names: Sequence[str], folder: Path, config: Mapping[str, object], resumed: bool = False) -> None:
        self._all: dict[str, Sink] = {}
        for name in names:
            try:
                self._all[name] = SINKS[name](folder, config, resumed)
            except Exception as error:  # third-party code may raise anything
                self._report(name, error)

    def see(self, event: Event, tell: bool = True) -> None:
        self._call_all("see", event, tell)

    def finish(self, summary: AnySummary) -> None:
        self._call_all("finish", summary)

    def close(self) -> None:
        self._call_all("close")

    def _call_all(self, method: str, *arguments: object) -> None:
        for name, sink in list(self._all.items()):
            try:
                getattr(sink, method)(*arguments)
            except Exception as error:
                del self._all[name]
                self._report(name, error)

    @staticmethod
    def _report(name: str, error: Exception) -> None:
        reason = str(error).split("\n")[0] or type(error).__name__
        print(f"coterie: {name} failed and is disabled for the rest of the run: {reason}", file=sys.stderr, flush=True)
