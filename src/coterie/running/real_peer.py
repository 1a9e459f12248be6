"""Runs one real peer: reads its file, sets up keys, data, model and network, and writes its folder."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import os
import shutil
import signal
import socket
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coterie import data
from coterie.config import parsing, provenance
from coterie.config.loading import check_files, from_tables, over, read_tables
from coterie.config.sections import Experiment
from coterie.core import checkpoint
from coterie.core.errors import ConfigError, CoterieError, Interrupted, RunError
from coterie.core.events import EventLog, Offence, PeerRound, RunStarted, of_kind, read
from coterie.core.files import locked, write_whole
from coterie.core.measured_metric import ACCURACY, MeasuredMetric
from coterie.core.others import Others
from coterie.core.peer import Peer, held_by
from coterie.core.run_folder import RunFolder
from coterie.core.settings import setting
from coterie.core.summary import LastAndSelected, PeerSummary
from coterie.core.topology import TopologySettings, links_of
from coterie.data.pool import Unscaled
from coterie.data.scaling import POOLED
from coterie.metrics import selected_round, selection_of
from coterie.network.agreement import agreement, digest
from coterie.network.audit import AuditLog
from coterie.network.engine import NetworkEngine
from coterie.network.keys import Identity
from coterie.network.mailbox import EMPTY
from coterie.network.membership import GATHERING, AddressBook, Announcement
from coterie.network.node import Node, Traffic
from coterie.network.peer_run import PeerRun
from coterie.network.penalties import Penalties
from coterie.network.store import Store
from coterie.report.scores import peer_scores
from coterie.report.summary import diverged_peers, write_json
from coterie.running import finite, saved_models, saved_predictions
from coterie.running.sinks import Sinks
from coterie.training import Trainer
from coterie.wiring import Population, gather, own_data, run_started

STATUS_EVERY = 1.0  # seconds
PARENT = "COTERIE_PARENT"  # environment variable: the id of the process that supervises this one

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PeerSettings:
    """The [peer] section of a peer's file: its identity and addresses."""

    keys: str = setting("keys", "folder of keys, made by `coterie keys issue`")
    name: str = setting("", "if set, must match the name in the certificate")
    listen: str = setting("0.0.0.0:7400", "address and port to listen on")
    endpoint: str = setting("", "host:port at which other peers reach it; default: listen")
    seeds: tuple[str, ...] = setting((), "seed peers to join through, as NAME@HOST:PORT; one that is up is enough")
    server: str = setting("", "name of the peer that acts as the server, if the method has one")
    index: int = setting(-1, "index of its share of a named dataset; -1: the peer's number")
    site: str = setting("", "with data.partition = column or files: the site whose rows this peer has")
    out: str = setting("", "output folder; default: next to the file, with the same name")


@dataclass(frozen=True)
class PeerFile:
    """The content of a peer's file."""

    path: Path
    peer: PeerSettings
    experiment: Experiment

    @property
    def out(self) -> Path:
        return self.path.parent / (self.peer.out or self.path.stem)

    @property
    def files(self) -> RunFolder:
        return RunFolder(self.out)

    @property
    def keys(self) -> Path:
        return self.path.parent / self.peer.keys

    def seeds(self) -> list[tuple[str, str]]:
        parts = [(seed, *seed.partition("@")) for seed in self.peer.seeds]
        for seed, name, at, endpoint in parts:
            if not (name and at and endpoint.rpartition(":")[2].isdigit()):
                raise ConfigError(f"peer.seeds: '{seed}' is not NAME@HOST:PORT, such as north@north.example:7400")
        return [(name, endpoint) for _, name, _, endpoint in parts]


def read_file(path: Path, words: Sequence[str] = ()) -> PeerFile:
    """A peer's TOML file: an experiment (usually on a shared `base`) with a [peer] section."""
    if path.suffix != ".toml":
        raise ConfigError(f"{path} is not a .toml file: give a peer's file, with an experiment and a [peer] section")
    tables = read_tables(str(path))
    changes = parsing.overrides(words)
    given = tables.pop("peer", {})
    if not isinstance(given, dict):
        raise ConfigError("peer is a section, not a value: set one of its keys, such as peer.keys")
    merged = parsing.merge({"peer": given}, {"peer": changes.pop("peer", {})})["peer"]
    tables = over(tables, changes)
    _resolve_paths(path.parent, tables.get("data", {}), tables.get("model", {}))
    check_files(tables)
    return PeerFile(path, parsing.build(PeerSettings, merged, "peer."), from_tables(tables))


def _resolve_paths(folder: Path, of_data: dict[str, object], of_model: dict[str, object]) -> None:
    """Resolve paths relative to the peer's file, not to the working directory."""
    name, zoo = of_data.get("name"), of_model.get("zoo")
    if isinstance(name, str) and name not in data.available():
        if (folder / name).exists():
            of_data["name"] = str((folder / name).resolve())
        elif data.is_pattern(name):
            of_data["name"] = str((folder / name).absolute())
    schema = of_data.get("schema")
    if isinstance(schema, str) and schema and (folder / schema).exists():
        of_data["schema"] = str((folder / schema).resolve())
    if isinstance(zoo, list):
        of_model["zoo"] = [
            str((folder / kind).resolve()) if str(kind).endswith(".onnx") and (folder / kind).exists() else kind
            for kind in zoo
        ]


# -- data and model ----------------------------------------------------------------------------


def place(file: PeerFile, identity: Identity) -> tuple[Peer, Population]:
    """The peer with its data and model, and the circle as its settings describe it."""
    e = file.experiment
    if e.method.with_server() and not file.peer.server:
        raise ConfigError(f"{e.method_name} needs a server: set peer.server to the name of the peer that serves")
    serves, index = e.method.with_server() and file.peer.server == identity.name, _index(file, identity)
    if e.data.name not in data.available():  # a data file: all of it belongs to this peer
        number = 0 if serves else identity.number  # a server has the first peer's architecture
        pooled = own_data(e, number, file.peer.site)
        first = number if e.data.partition in data.SITES else 0
        circle = gather(dataclasses.replace(e, peers=1, graph=TopologySettings()), pooled, first)
    else:
        circle = gather(e)
        if not (serves or index < e.peers):
            raise ConfigError(
                f"peer.index = {index} is too large: the data are divided among {e.peers} peers (0 to {e.peers - 1})"
            )
    participant = circle.participants[-1 if serves else index]
    links = None if serves else _links(e, identity.number)
    me = dataclasses.replace(participant, id=identity.number, peers=Others(0, 0), server=None, links=links)
    return me, circle


def _index(file: PeerFile, identity: Identity) -> int:
    """Of the peer's rows among those that it has loaded: its own file alone, or a named dataset of all peers."""
    if file.experiment.data.name not in data.available():
        return 0
    return identity.number if file.peer.index < 0 else file.peer.index


def _unscaled(file: PeerFile, identity: Identity, me: Peer, circle: Population) -> Unscaled | None:
    e = file.experiment
    if e.data.scale != POOLED or held_by(me) is None:
        return None
    return Unscaled(circle.pooled, e.data, _index(file, identity), e.engine.device)


def _links(e: Experiment, number: int) -> Sequence[int] | None:
    links = links_of(e.graph, e.peers, e.seed)
    if links is not None and number >= len(links):
        last = len(links) - 1
        raise ConfigError(f"graph.kind = {e.graph.kind} joins peers 0 to {last}, not {number}: set `peers` higher")
    return None if links is None else links[number]


# -- a run -------------------------------------------------------------------------------------


def run(file: PeerFile, **options: Any) -> PeerSummary:
    """`take_part` until the run ends or the process is stopped; returns the peer's summary."""
    return asyncio.run(_until_stopped(take_part(file, **options)))


async def _until_stopped(work: Coroutine[Any, Any, PeerSummary]) -> PeerSummary:
    """SIGINT or SIGTERM cancels the work: the last checkpoint is on disk, so nothing needs saving."""
    task = asyncio.ensure_future(work)
    for kind in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(kind, task.cancel)
    watching = asyncio.create_task(_end_with_parent(task))
    try:
        return await task
    except asyncio.CancelledError:
        raise Interrupted("stopped") from None
    finally:
        watching.cancel()


async def _end_with_parent(task: asyncio.Task[Any]) -> None:
    """Stop a peer of `coterie up` when that process is gone, because it would run unsupervised."""
    parent = os.environ.get(PARENT)
    while parent is None or os.getppid() == int(parent):
        await asyncio.sleep(STATUS_EVERY)
    task.cancel()


async def take_part(
    file: PeerFile,
    *,
    fresh: bool = False,
    say: Callable[[str], None] = print,
    on_round: Callable[[PeerRound, MeasuredMetric], None] = lambda _, __: None,
    on_start: Callable[[NetworkEngine], None] = lambda _: None,
) -> PeerSummary:
    """Take part from the last checkpoint (or from the beginning) to the end; returns the summary. `on_round` gets each
    record with the main metric."""
    identity = Identity.load(file.keys)
    if file.peer.name and file.peer.name != identity.name:
        raise ConfigError(
            f"peer.name = '{file.peer.name}', but the certificate in {file.keys} is that of '{identity.name}'"
        )
    me, circle = place(file, identity)
    for remark in circle.dataset.remarks:
        say(remark)
    file.out.mkdir(parents=True, exist_ok=True)
    with _lock(file.out) as start:
        saved = _prepare(file, fresh, me, circle, say)
        e = file.experiment
        trainer, log = Trainer("never", 1, e.engine.threads), EventLog(file.files.events)
        sinks = Sinks(e.engine.sinks, file.out, e.tables(), resumed=saved is not None)

        main = run_started(e, circle, me).main

        def see(record: PeerRound) -> None:
            sinks.see(record)
            on_round(record, main)

        try:
            engine = _wire(file, identity, me, circle, trainer, log, start, say, see)
            if saved is not None:
                engine.restore(*saved)
            else:
                engine.store.mailbox.open(EMPTY)
            on_start(engine)
            summary = await _live(file, engine, circle, say)
            sinks.finish(summary)
            return summary
        finally:
            trainer.close(wait=False)  # after a stop, the rest of the training is not needed
            log.close()
            sinks.close()


@contextmanager
def _lock(out: Path) -> Iterator[int]:
    """Refuse a second process in the same folder, which would overwrite the state.

    Yields the number of this start: the time, but above the last start's even if the clock was set back.
    """
    path = RunFolder(out).lock
    path.touch()
    with locked(path, "stop that process of this peer first", what=str(out)):
        before = path.read_bytes()
        number = max(time.time_ns(), int(before) + 1 if before.isdigit() else 0)
        try:
            path.write_bytes(str(number).encode())  # in place: the lock is on this very file
        except OSError as error:
            raise RunError(f"{path} could not be written ({error.strerror}): is the disk full?") from error
        yield number


def _prepare(
    file: PeerFile, fresh: bool, me: Peer, circle: Population, say: Callable[[str], None]
) -> tuple[int, checkpoint.Tree] | None:
    """The checkpoint to resume from; None after preparing a new run."""
    out, files = file.out, file.files
    saved = (
        None
        if fresh
        else checkpoint.load(files.checkpoint, on_broken=lambda text: say(f"{text}: using the one before"))
    )
    log = EventLog(files.events)
    if saved is not None:
        _check_same_settings(out, file)
        if warning := provenance.resume(out, file.experiment, saved[0]):
            _log.warning("%s", warning)
        log.keep_until(saved[0])
        return saved
    for old in [*files.checkpoint.glob("round-*"), *files.letters.glob("*.letter")]:
        old.unlink()
    files.summary.unlink(missing_ok=True)
    for folder in (files.models, files.predictions):
        shutil.rmtree(folder, ignore_errors=True)
    log.path.unlink(missing_ok=True)
    provenance.begin(out, file.experiment)
    files.config.write_text(file.experiment.toml(), encoding="utf-8")
    log.write(run_started(file.experiment, circle, me))
    log.close()
    return None


def _check_same_settings(out: Path, file: PeerFile) -> None:
    """A run can only be resumed with the settings that it was started with."""
    before = from_tables(read_tables(str(file.files.config))).tables()
    now = file.experiment.tables()
    for section in ("method", "model", "data", "seed", "rounds"):
        if before[section] != now[section]:
            raise RunError(
                f"{out} holds a run with another {section}: start over with --fresh (its state is then lost), or "
                "choose another peer.out"
            )


def _wire(
    file: PeerFile,
    identity: Identity,
    me: Peer,
    circle: Population,
    trainer: Trainer,
    log: EventLog,
    start: int,
    say: Callable[[str], None],
    on_round: Callable[[PeerRound], None],
) -> NetworkEngine:
    """An engine with its network node."""
    e, out = file.experiment, file.out
    server = file.peer.server if e.method.with_server() else ""
    asynchronous = e.engine.asynchronous or e.method.asynchronous
    peer_run = PeerRun(
        e.method, me, e.rounds, e.peers + e.method.with_server(), e.network, out, asynchronous, server,
        e.evaluate.every, circle.evaluation, _unscaled(file, identity, me, circle),
    )  # fmt: skip
    store = Store(peer_run)

    def on_offence(sender: str, what: str) -> None:
        say(f"dropped data from '{sender}': {what}")
        log.write(Offence(me.id, engine.round, engine.seconds(), sender, what))
        log.flush()

    division = circle.pooled.division if e.data.name in data.available() else ""
    terms = agreement(e, circle.dataset, me, server, division)
    audit = AuditLog(file.files.audit, identity.name, identity.credential.serial, e.method_name)
    announcement = Announcement(
        identity.name, file.peer.endpoint or file.peer.listen, start, 0, GATHERING, 0, 1, digest(terms),
        identity.credential.serial,
    )  # fmt: skip
    book = AddressBook(identity, identity.roster, announcement, time.monotonic)
    penalties = Penalties(time.monotonic, on_offence)
    columns = [column.name for column in circle.dataset.columns]
    node = Node(identity, book, terms, e.network, store, audit, penalties, say, file.seeds(), columns)
    engine = NetworkEngine(peer_run, store, node, trainer, log, on_round)
    return engine


async def _live(file: PeerFile, engine: NetworkEngine, circle: Population, say: Callable[[str], None]) -> PeerSummary:
    node, status = engine.node, file.files.status
    port = await node.start(file.peer.listen)
    node.book.announce(endpoint=_endpoint(file.peer, port))
    say(f"'{node.identity.name}' (number {node.identity.number}) listens on {node.book.mine.endpoint}")
    node.talk()
    status_task, error = asyncio.create_task(_keep_writing_status(engine, status)), ""
    try:
        await engine.run()
        return _end(file, engine, circle)
    except CoterieError as failed:
        error = str(failed)
        raise
    finally:
        status_task.cancel()
        await node.stop()
        _write_status(engine, status, running=False, error=error)
        engine.close()
        node.audit.close()


def _end(file: PeerFile, engine: NetworkEngine, circle: Population) -> PeerSummary:
    """Write the files of a finished peer; then raise an error if its model is not finite."""
    e, name, peers = file.experiment, engine.node.identity.name, [(engine.me, file.experiment.rounds)]
    saved_models.keep(file.out, e, circle, peers, name)
    saved_predictions.keep(file.out, circle, [engine.me], engine.predictions)
    engine.log.write(*finite.diverged(peers, engine.seconds()))
    engine.log.flush()
    summary = summarise_peer(file.out, name, engine.seconds())
    write_json(file.files.summary, summary)
    finite.refuse(summary, file.out)
    return summary


def _endpoint(peer: PeerSettings, port: int) -> str:
    """Where other peers reach it; port 0 stands for the one that the system chose."""
    host, _, wanted = (peer.endpoint or peer.listen).rpartition(":")
    return f"{host}:{port}" if wanted == "0" else f"{host}:{wanted}"


def summarise_peer(out: Path, name: str, seconds: float) -> PeerSummary:
    """One peer's figures, from its events."""
    events = list(read(RunFolder(out).events))
    start: RunStarted = of_kind(events, RunStarted)[0]
    rounds: list[PeerRound] = of_kind(events, PeerRound)
    tested = [r for r in rounds if r.is_measured]
    best = selected_round(tested, selection_of(start)) if tested else None
    summary = PeerSummary(
        name=name,
        method=start.method,
        seed=start.seed,
        rounds=len(rounds),
        main=start.main.name,
        main_metric=start.main,
        accuracy=LastAndSelected(tested[-1].test if tested else None, best.test if best else None)
        if ACCURACY in start.measured
        else None,
        bytes=sum(sum(r.bytes.values()) for r in rounds),
        messages=sum(sum(r.messages.values()) for r in rounds),
        waited=round(sum(float(r.notes.get("waited", 0.0)) for r in rounds), 3),
        offences=len(of_kind(events, Offence)),
        seconds=seconds,
        not_finite=diverged_peers(events),
        scores=peer_scores(start, tested[-1], best) if best else {},
    )
    return provenance.with_mixture(summary, out)


# -- status ------------------------------------------------------------------------------------


async def _keep_writing_status(engine: NetworkEngine, path: Path) -> None:
    while True:
        _write_status(engine, path)
        await asyncio.sleep(STATUS_EVERY)


def _write_status(engine: NetworkEngine, path: Path, running: bool = True, error: str = "") -> None:
    node, now = engine.node, time.monotonic()
    others = []
    for name, entry in sorted(node.book.entries.items()):
        traffic = node.traffic.get(name, Traffic())
        others.append({
            "name": name, "number": entry.credential.number, "endpoint": entry.announcement.endpoint,
            "state": entry.announcement.state, "round": entry.announcement.round, "silent": entry.silent,
            "answered": None if entry.answered is None else round(now - entry.answered, 1),
            "trouble": entry.trouble, "ignored": node.penalties.ignores(name),
            "offences": node.penalties.offences[name],
            "received": traffic.received.total(), "received_bytes": traffic.received_bytes,
            "sent": traffic.sent.total(), "sent_bytes": traffic.sent_bytes,
        })  # fmt: skip
    status = {
        "name": node.identity.name, "number": node.identity.number, "endpoint": node.book.mine.endpoint,
        "process": os.getpid() if running else None, "host": socket.gethostname(), "time": time.time(),
        "state": node.book.mine.state, "round": min(engine.round, engine.rounds), "rounds": engine.rounds,
        "doing": engine.activity.doing, "waits_for": engine.activity.waits_for,
        "awaits": [node.book.by_number.get(j, str(j)) for j in sorted(engine.activity.awaited)],
        "deadline": round(engine.exchange.deadline.seconds, 3),
        "audit": {"records": node.audit.count, "head": node.audit.head},
        "roster": node.book.roster.version, "error": error, "peers": others,
    }  # fmt: skip
    with suppress(OSError):  # a full disk shows at the next checkpoint; the status is optional
        write_whole(path, json.dumps(status), sync=False)
