"""One real peer, from its file to the end of its run: its keys, data and model, its folder, its place in the circle."""

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
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coterie import data
from coterie.config import parsing, provenance
from coterie.config.loading import check_files, from_tables, over, read_tables
from coterie.config.sections import Experiment
from coterie.core import checkpoint
from coterie.core.errors import ConfigError, CoterieError, Interrupted, RunError
from coterie.core.events import EventLog, Offence, PeerRound, RunStarted, of_kind, read
from coterie.core.files import write_whole
from coterie.core.peer import Others, Peer
from coterie.core.topology import TopologySettings, links_of
from coterie.network.agreement import agreement, digest
from coterie.network.audit import AuditLog
from coterie.network.engine import NetworkEngine
from coterie.network.keys import Identity
from coterie.network.mailbox import EMPTY
from coterie.network.membership import GATHERING, AddressBook, Announcement
from coterie.network.node import Node, Traffic
from coterie.network.penalties import Penalties
from coterie.report.summary import whose_is_not_finite, write_json
from coterie.running import finite
from coterie.running.saved_models import FOLDER, keep
from coterie.running.sinks import Sinks
from coterie.training import Trainer
from coterie.wiring import Population, gather

STATUS_EVERY = 1.0  # seconds
PARENT = "COTERIE_PARENT"  # in the environment: the process that looks after this one

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PeerSettings:
    """Who and where a real peer is: the [peer] section of its file."""

    keys: str = field(default="keys", metadata={"help": "its folder of keys, made by `coterie keys issue`"})
    name: str = field(default="", metadata={"help": "its name, if you want it checked against its certificate"})
    listen: str = field(default="0.0.0.0:7400", metadata={"help": "the address and port it listens on"})
    endpoint: str = field(default="", metadata={"help": "host:port under which others reach it; default: listen"})
    seeds: tuple[str, ...] = field(
        default=(), metadata={"help": "others to start from, any one will do, as NAME@HOST:PORT"}
    )
    server: str = field(default="", metadata={"help": "for a method with a server: the name of the peer that serves"})
    index: int = field(
        default=-1, metadata={"help": "which share of a named dataset is its own; -1: the one of its number"}
    )
    out: str = field(default="", metadata={"help": "its folder; default: beside its file, and named like it"})


@dataclass(frozen=True)
class PeerFile:
    """Everything that one peer's file says."""

    path: Path
    peer: PeerSettings
    experiment: Experiment

    @property
    def out(self) -> Path:
        return self.path.parent / (self.peer.out or self.path.stem)

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
        raise ConfigError(f"{path} is not a peer's .toml file: it has an experiment and a [peer] section")
    tables = read_tables(str(path))
    changes = parsing.overrides(words)
    given = tables.pop("peer", {})
    if not isinstance(given, dict):
        raise ConfigError("peer is a section: set one of its keys, such as peer.keys")
    mine = parsing.merge({"peer": given}, {"peer": changes.pop("peer", {})})["peer"]
    tables = over(tables, changes)
    _find_beside(path.parent, tables.get("data", {}), tables.get("model", {}))
    check_files(tables)
    return PeerFile(path, parsing.build(PeerSettings, mine, "peer."), from_tables(tables))


def _find_beside(folder: Path, of_data: dict[str, Any], of_model: dict[str, Any]) -> None:
    """Files that a peer's file names lie beside it, wherever the command is run."""
    name, zoo = of_data.get("name"), of_model.get("zoo")
    if isinstance(name, str) and name not in data.available() and (folder / name).exists():
        of_data["name"] = str((folder / name).resolve())
    if isinstance(zoo, list):
        of_model["zoo"] = [
            str((folder / kind).resolve()) if str(kind).endswith(".onnx") and (folder / kind).exists() else kind
            for kind in zoo
        ]


# -- data and model ----------------------------------------------------------------------------


def place(file: PeerFile, identity: Identity) -> tuple[Peer, Population]:
    """The peer with its data and model, and the circle as far as its settings tell of it."""
    e = file.experiment
    if e.method.with_server() and not file.peer.server:
        raise ConfigError(f"{e.method_name} has a server: set peer.server to the name of the peer that serves")
    serves = e.method.with_server() and file.peer.server == identity.name
    if e.data.name not in data.available():  # a file of one's own: all of it, and nobody else's
        alone = dataclasses.replace(e.data, partition="iid")
        circle = gather(dataclasses.replace(e, peers=1, data=alone, graph=TopologySettings()))
        index = 0
    else:
        circle = gather(e)
        index = identity.number if file.peer.index < 0 else file.peer.index
        if not (serves or index < e.peers):
            raise ConfigError(f"peer.index = {index}: the data are divided among {e.peers} peers (0 to {e.peers - 1})")
    found = circle.participants[-1 if serves else index]
    links = None if serves else _links(e, identity.number)
    me = dataclasses.replace(found, id=identity.number, peers=Others(0, 0), server=None, links=links)
    return me, circle


def _links(e: Experiment, number: int) -> Sequence[int] | None:
    everybody = links_of(e.graph, e.peers, e.seed)
    if everybody is not None and number >= len(everybody):
        last = len(everybody) - 1
        raise ConfigError(f"graph.kind = {e.graph.kind} joins peers 0 to {last}; this is {number}: set `peers` higher")
    return None if everybody is None else everybody[number]


# -- a run -------------------------------------------------------------------------------------


def run(file: PeerFile, **options: Any) -> dict[str, Any]:
    """`take_part`, until it has finished or somebody stops the process; returns the peer's summary."""
    return asyncio.run(_until_stopped(take_part(file, **options)))


async def _until_stopped(work: Coroutine[Any, Any, dict[str, Any]]) -> dict[str, Any]:
    """Ctrl-C or a polite kill ends it after its last checkpoint: nothing needs saving."""
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
    """A peer of `coterie up` stops when that is gone, however it went: nobody else would look after it."""
    parent = os.environ.get(PARENT)
    while parent is None or os.getppid() == int(parent):
        await asyncio.sleep(STATUS_EVERY)
    task.cancel()


async def take_part(
    file: PeerFile,
    *,
    fresh: bool = False,
    say: Callable[[str], None] = print,
    on_round: Callable[[PeerRound], None] = lambda _: None,
    on_start: Callable[[NetworkEngine], None] = lambda _: None,
) -> dict[str, Any]:
    """Take part from where this peer was (or from the beginning) to the end; returns its summary."""
    identity = Identity.load(file.keys)
    if file.peer.name and file.peer.name != identity.name:
        raise ConfigError(f"peer.name = '{file.peer.name}', but {file.keys} has the certificate of '{identity.name}'")
    me, circle = place(file, identity)
    file.out.mkdir(parents=True, exist_ok=True)
    with _only_one(file.out) as start:
        begun = _prepare(file, fresh, me, circle, say)
        e = file.experiment
        trainer, log = Trainer("never", 1, e.engine.threads), EventLog(file.out / "events.jsonl")
        sinks = Sinks(e.engine.sinks, file.out, e.tables(), begun=begun is not None)

        def see(record: PeerRound) -> None:
            sinks.see(record)
            on_round(record)

        try:
            engine = _wire(file, identity, me, circle, trainer, log, start, say, see)
            if begun is not None:
                engine.restore(*begun)
            else:
                engine.mailbox.open(EMPTY)
            on_start(engine)
            summary = await _live(file, engine, circle, say)
            sinks.finish(summary)
            return summary
        finally:
            trainer.close(wait=False)  # who was stopped while it trained does not need the rest
            log.close()
            sinks.close()


class _only_one:  # noqa: N801 (reads as a word)
    """Two processes in one folder would write over each other's state: the second is refused."""

    def __init__(self, out: Path) -> None:
        self.path = out / "running"

    def __enter__(self) -> int:
        """The number of this start: the time, but above that of the last start even if the clock was set back."""
        import fcntl

        self.file = self.path.open("ab+", buffering=0)
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.file.close()
            raise RunError(f"{self.path.parent} is in use by another process of this peer: stop that one") from error
        self.file.seek(0)
        before = self.file.read()
        number = max(time.time_ns(), int(before) + 1 if before.isdigit() else 0)
        try:
            self.file.truncate(0)
            self.file.write(str(number).encode())
        except OSError as error:
            self.file.close()
            raise RunError(f"{self.path} could not be written ({error.strerror}): is the disk full?") from error
        return number

    def __exit__(self, *_: object) -> None:
        self.file.close()


def _prepare(
    file: PeerFile, fresh: bool, me: Peer, circle: Population, say: Callable[[str], None]
) -> tuple[int, dict[str, Any]] | None:
    """The checkpoint to go on from, if there is one; else the beginning of a new run."""
    out = file.out
    found = (
        None
        if fresh
        else checkpoint.load(out / "checkpoint", on_broken=lambda text: say(f"{text}: going on from the one before"))
    )
    log = EventLog(out / "events.jsonl")
    if found is not None:
        _check_same(out, file)
        if warning := provenance.resume(out, file.experiment, found[0]):
            _log.warning("%s", warning)
        log.keep_until(found[0])
        return found
    for old in [*(out / "checkpoint").glob("round-*"), *(out / "letters").glob("*.letter")]:
        old.unlink()
    (out / "summary.json").unlink(missing_ok=True)
    shutil.rmtree(out / FOLDER, ignore_errors=True)
    log.path.unlink(missing_ok=True)
    provenance.begin(out, file.experiment)
    (out / "config.toml").write_text(file.experiment.toml(), encoding="utf-8")
    e = file.experiment
    counts = [] if me.data is None else [_class_counts(me, len(circle.dataset.classes))]
    samples = [] if me.data is None else [me.samples]
    log.write(RunStarted(e.method_name, e.seed, e.peers, e.rounds, [me.architecture.name], samples, counts, None))
    log.close()
    return None


def _class_counts(me: Peer, classes: int) -> list[int]:
    return [int((me.labels() == c).sum()) for c in range(classes)]


def _check_same(out: Path, file: PeerFile) -> None:
    """A state can only be gone on with under the settings that it came from."""
    before = from_tables(read_tables(str(out / "config.toml"))).tables()
    now = file.experiment.tables()
    for section in ("method", "model", "data", "seed", "rounds"):
        if before[section] != now[section]:
            raise RunError(
                f"{out} holds a run with another {section}: start anew with --fresh (its state is then lost), or "
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
    """An engine with its way to the others."""
    e, out = file.experiment, file.out
    server = file.peer.server if e.method.with_server() else ""
    engine = NetworkEngine(
        e.method, me, e.rounds, e.peers + e.method.with_server(), trainer, e.network, out, log, server=server,
        asynchronous=e.engine.asynchronous, evaluate_every=e.evaluate.every, on_round=on_round, say=say,
    )  # fmt: skip

    def offended(sender: str, what: str) -> None:
        say(f"dropped what '{sender}' sent: {what}")
        log.write(Offence(me.id, engine.round, engine.seconds(), sender, what))
        log.flush()

    terms = agreement(e, circle.dataset, me, server)
    audit = AuditLog(out / "audit.jsonl", identity.name, identity.credential.serial, e.method_name)
    mine = Announcement(
        identity.name, file.peer.endpoint or file.peer.listen, start, 0, GATHERING, 0, 1, digest(terms),
        identity.credential.serial,
    )  # fmt: skip
    book = AddressBook(identity, identity.roster, mine, time.monotonic)
    penalties = Penalties(time.monotonic, offended)
    columns = [column.name for column in circle.dataset.columns]
    engine.node = Node(identity, book, terms, e.network, engine, audit, penalties, say, file.seeds(), columns)
    return engine


async def _live(
    file: PeerFile, engine: NetworkEngine, circle: Population, say: Callable[[str], None]
) -> dict[str, Any]:
    node, status = engine.node, file.out / "status.json"
    port = await node.start(file.peer.listen)
    node.book.announce(endpoint=_endpoint(file.peer, port))
    say(f"'{node.identity.name}' (number {node.identity.number}) listens on {node.book.mine.endpoint}")
    node.talk()
    telling, error = asyncio.create_task(_tell_status(engine, status)), ""
    try:
        await engine.run()
        return _end(file, engine, circle)
    except CoterieError as failed:
        error = str(failed)
        raise
    finally:
        telling.cancel()
        await node.stop()
        _write_status(engine, status, running=False, error=error)
        engine.close()
        node.audit.close()


def _end(file: PeerFile, engine: NetworkEngine, circle: Population) -> dict[str, Any]:
    """What a peer that did all its rounds leaves; an error, once all of it is there, if its model is not finite."""
    e, name, mine = file.experiment, engine.node.identity.name, [(engine.me, file.experiment.rounds)]
    keep(file.out, e, circle, mine, name)
    engine.log.write(*finite.found(mine, engine.seconds()))
    engine.log.flush()
    summary = summarise_peer(file.out, name, engine.seconds())
    write_json(file.out / "summary.json", summary)
    finite.refuse(summary, file.out)
    return summary


def _endpoint(peer: PeerSettings, port: int) -> str:
    """Where others reach it; a port of 0 is one that the system chose."""
    host, _, wanted = (peer.endpoint or peer.listen).rpartition(":")
    return f"{host}:{port}" if wanted == "0" else f"{host}:{wanted}"


def summarise_peer(out: Path, name: str, seconds: float) -> dict[str, Any]:
    """One peer's figures, from its events."""
    events = list(read(out / "events.jsonl"))
    start: RunStarted = of_kind(events, RunStarted)[0]
    rounds: list[PeerRound] = of_kind(events, PeerRound)
    tested = [r for r in rounds if r.test is not None]
    best = max(tested, key=lambda r: (r.validation or 0.0, -r.round), default=None)
    not_finite = whose_is_not_finite(events)
    summary = {
        "name": name, "method": start.method, "seed": start.seed, "rounds": len(rounds),
        "accuracy": {"last": tested[-1].test if tested else None, "selected": best.test if best else None},
        "bytes": sum(sum(r.bytes.values()) for r in rounds), "messages": sum(sum(r.messages.values()) for r in rounds),
        "waited": round(sum(float(r.notes.get("waited", 0.0)) for r in rounds), 3),
        "offences": len(of_kind(events, Offence)), "seconds": seconds,
        **({"not_finite": not_finite} if not_finite else {}),
    }  # fmt: skip
    return provenance.with_mixture(summary, out)


# -- status ------------------------------------------------------------------------------------


async def _tell_status(engine: NetworkEngine, path: Path) -> None:
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
        "doing": engine.doing, "waits_for": engine.waits_for,
        "awaits": [node.book.by_number.get(j, str(j)) for j in sorted(engine.awaited)],
        "deadline": round(engine.deadline.seconds, 3), "audit": {"records": node.audit.count, "head": node.audit.head},
        "roster": node.book.roster.version, "error": error, "peers": others,
    }  # fmt: skip
    with suppress(OSError):  # a full disk shows at the next checkpoint; the status is only a courtesy
        write_whole(path, json.dumps(status))
