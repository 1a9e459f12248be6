"""A whole circle on one machine, as real processes with throwaway keys: `coterie up`."""

from __future__ import annotations

import json
import logging
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coterie.config import parsing, provenance
from coterie.config.sections import Experiment
from coterie.core.errors import DivergedError, Interrupted, RunError
from coterie.core.events import EventLog, PeerRound, RunStarted, read
from coterie.network import authority
from coterie.running import finite
from coterie.running.progress import OnRound, Progress, RoundProgress
from coterie.running.real_peer import PARENT
from coterie.running.simulated import check_folder, finish, of_folder, run_started
from coterie.running.state import RunState
from coterie.wiring import gather

LOOK = 0.1  # seconds between two looks at the processes
RESTARTS = 20  # of one peer, before `up` gives up on it
SERVER = "server"
PORTS = range(20_000, 32_000)  # below those of outgoing connections, on Linux (from 32768) and elsewhere (from 49152)
SEEDS = 3  # of the peers are told to everybody: one would do, if it were never down

_log = logging.getLogger(__name__)


@dataclass
class PeerProcess:
    """One process of the circle."""

    name: str
    file: Path
    out: Path
    process: subprocess.Popen[bytes] | None = None
    restarts: int = 0
    done: bool = False
    events: int = 0  # which file its events were read from (it makes another when it comes back)
    position: int = 0  # how much of that was read
    round: int = 0  # the last that was shown


class LocalCircle:
    """Starts, watches and restarts the processes; gathers their events into one run's folder."""

    def __init__(
        self,
        experiment: Experiment,
        out: Path,
        *,
        on_round: OnRound | None = None,
        say: Callable[[str], None] = lambda _: None,
        restart: bool = True,
    ) -> None:
        self.e, self.out, self.say, self.restart = experiment, out, say, restart
        names = [f"peer-{i}" for i in range(experiment.peers)]
        names += [SERVER] if experiment.method.with_server() else []
        self.members = [PeerProcess(n, out / "peers" / f"{n}.toml", out / "peers" / n) for n in names]
        self._circle = gather(experiment)  # most mistakes show here, before anything starts
        self._state = RunState(out, experiment.rounds)
        self._progress = Progress(experiment.peers, experiment.rounds, self._circle.clusters, self._tell)
        self._on_round = on_round

    # -- a run ---------------------------------------------------------------------------------

    def prepare(self, overwrite: bool = False) -> None:
        """Keys, and a file for every peer."""
        check_folder(self.out, overwrite)
        if self.out.exists() and any(self.out.iterdir()):
            shutil.rmtree(self.out)
        (self.out / "peers").mkdir(parents=True)
        provenance.begin(self.out, self.e)
        (self.out / "config.toml").write_text(self.e.toml(), encoding="utf-8")
        (self.out / "events.jsonl").touch()
        keys = self.out / "keys"
        authority.create_authority(keys, "throwaway", days=30)
        ports = free_ports(len(self.members))
        seeds = [f"{m.name}@127.0.0.1:{port}" for m, port in list(zip(self.members, ports, strict=True))[:SEEDS]]
        for member, port in zip(self.members, ports, strict=True):
            authority.issue(member.name, keys, days=30)
            self._write_file(member, port, seeds)

    def _write_file(self, member: PeerProcess, port: int, seeds: list[str]) -> None:
        tables = self.e.tables()
        peer = {
            "keys": f"../keys/{member.name}", "listen": f"127.0.0.1:{port}", "seeds": seeds, "out": member.name,
            "server": SERVER if self.e.method.with_server() else "",
        }  # fmt: skip
        member.file.write_text(parsing.dump({**tables, "peer": peer}), encoding="utf-8")

    def run(self) -> dict[str, Any]:
        """Until every peer has finished; returns the summary of all. Ctrl-C leaves a circle that can go on."""
        with self._state:
            summary = self._run()
            finite.refuse(summary, self.out)
            return summary

    def _run(self) -> dict[str, Any]:
        began = time.perf_counter()
        try:
            for member in self.members:
                self._start(member)
            while not all(member.done for member in self.members):
                time.sleep(LOOK)
                for member in self.members:
                    self._look_after(member)
                    self._follow(member)
        except KeyboardInterrupt:
            self.stop()
            raise Interrupted("stopped") from None
        except BaseException:
            self.stop()
            raise
        for member in self.members:
            self._follow(member)
        return self.collect(time.perf_counter() - began)

    def _tell(self, p: RoundProgress) -> None:
        self._state.tell(round=p.round, accuracy=p.accuracy, bytes=p.bytes)
        if self._on_round:
            self._on_round(p)

    def collect(self, seconds: float) -> dict[str, Any]:
        """One folder of a run out of everybody's events."""
        log = EventLog(self.out / "events.jsonl")
        log.path.unlink(missing_ok=True)
        log.write(run_started(self.e, self._circle))
        records = [r for m in self.members for r in read(m.out / "events.jsonl") if not isinstance(r, RunStarted)]
        for record in sorted(records, key=lambda r: (r.round, r.peer)):
            log.write(record)
        log.close()
        return finish(self.out, seconds)

    # -- processes -----------------------------------------------------------------------------

    def _start(self, member: PeerProcess) -> None:
        # One thread an operation: many processes share the cores, and their threads would only wait for each other.
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", PARENT: str(os.getpid())}
        member.out.mkdir(parents=True, exist_ok=True)
        with (member.out / "output.txt").open("ab") as output:
            member.process = subprocess.Popen(
                [sys.executable, "-m", "coterie", "peer", str(member.file)],
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment,
                start_new_session=True,  # Ctrl-C is for us: we tell them
            )  # fmt: skip

    def _look_after(self, member: PeerProcess) -> None:
        """A peer that was killed comes back; one that ended with an error ends the circle."""
        if member.done or member.process is None or member.process.poll() is None:
            return
        code = member.process.returncode
        if code in (0, DivergedError.exit_code):  # the others go on to their ends, and then all is told at once
            member.done = True
        elif code > 0 or not self.restart or member.restarts >= RESTARTS:
            raise RunError(f"{member.name} ended ({_reason(code)}): {_last_line(member.out / 'output.txt')}")
        else:
            member.restarts += 1
            self.say(f"{member.name} was killed ({_reason(code)}): starting it again")
            self._start(member)

    def stop(self) -> None:
        alive = [m.process for m in self.members if m.process is not None and m.process.poll() is None]
        for process in alive:
            process.send_signal(signal.SIGTERM)
        until = time.monotonic() + 10
        for process in alive:
            try:
                process.wait(max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _follow(self, member: PeerProcess) -> None:
        """Show what a peer has finished since the last look."""
        path = member.out / "events.jsonl"
        try:
            with path.open("rb") as file:
                about = os.fstat(file.fileno())
                if about.st_ino != member.events or about.st_size < member.position:
                    member.events, member.position = about.st_ino, 0  # it came back, and cut its file at a checkpoint
                file.seek(member.position)
                lines = file.read()
        except OSError:
            return
        whole = lines[: lines.rfind(b"\n") + 1]
        member.position += len(whole)
        for line in whole.splitlines():
            record = json.loads(line)
            if record["event"] == "round" and record["round"] > member.round:
                member.round = record["round"]
                self._progress.see(PeerRound(**record))


def resumable(out: Path, **options: Any) -> LocalCircle:
    """The circle of a folder that `up` made, to go on with."""
    if not (out / "peers").is_dir():
        raise RunError(f"{out} was not made by `coterie up`")
    experiment = of_folder(out)
    if why := provenance.outdated(out, experiment):  # its peers record it, each when it goes on
        mixed = f"{why}: its figures will be a mixture"
        _log.warning("%s goes on, but %s", out, provenance.NOT_KNOWN if why == provenance.NOT_RECORDED else mixed)
    return LocalCircle(experiment, out, **options)


def free_ports(count: int) -> list[int]:
    """Ports of the loopback that nobody uses now, out of those that the system gives to nobody by itself: a peer
    that starts late, or again, must not find its port taken by another's outgoing connection."""
    ports: list[int] = []
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        with socket.socket() as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                continue
        ports.append(port)
        if len(ports) == count:
            return ports
    raise RunError(f"this machine has no {count} free ports from {PORTS.start} to {PORTS.stop - 1}")


def _reason(code: int) -> str:
    return f"exit code {code}" if code > 0 else f"signal {-code}"


def _last_line(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines() if path.exists() else []
    return lines[-1].removeprefix("coterie: ") if lines else "it said nothing"
