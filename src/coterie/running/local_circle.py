"""`coterie up`: a whole circle on one machine, with a process and throwaway keys for each peer."""

from __future__ import annotations

import itertools
import logging
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coterie.config import parsing, provenance
from coterie.config.sections import Experiment
from coterie.core.errors import DivergedError, Interrupted, RunError
from coterie.core.events import EventLog, PeerRound, RunStarted, from_record, read
from coterie.core.run_folder import RunFolder
from coterie.core.summary import Summary
from coterie.core.tail import Tail
from coterie.network import authority
from coterie.running import finite
from coterie.running.progress import OnRound, Progress, RoundProgress
from coterie.running.real_peer import PARENT
from coterie.running.simulated import check_folder, finish, of_folder
from coterie.running.state import RunState
from coterie.wiring import gather, run_started

POLL_INTERVAL = 0.1  # seconds
RESTARTS = 20  # of one peer, before `up` gives up on it
SERVER = "server"
PORTS = range(20_000, 32_000)  # below the ephemeral ports of Linux (from 32768) and other systems (from 49152)
LONGEST_SITE = 50  # letters of a site's name in a certificate, which allows 63
SEEDS = 3  # seed peers: one would do if it never went down

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
    round: int = 0  # the last one shown
    tail: Tail = field(init=False)  # of its events

    def __post_init__(self) -> None:
        self.tail = Tail(self.files.events)

    @property
    def files(self) -> RunFolder:
        return RunFolder(self.out)


class LocalCircle:
    """Starts, watches and restarts the processes, and collects their events in one run's folder."""

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
        self.files = RunFolder(out)
        self._circle = gather(experiment)  # most errors show here, before anything starts
        sites = self._circle.dataset.site_names
        names = certificate_names(sites) if sites else [f"peer-{i}" for i in range(experiment.peers)]
        names += [SERVER] if experiment.method.with_server() else []
        self.members = [PeerProcess(n, self.files.peer_file(n), self.files.peer(n).path) for n in names]
        self._state = RunState(out, experiment.rounds)
        measured = run_started(experiment, self._circle).measured
        self._progress = Progress(experiment.peers, experiment.rounds, self._circle.clusters, self._report, measured)
        self._on_round = on_round

    # -- a run ---------------------------------------------------------------------------------

    def prepare(self, overwrite: bool = False) -> None:
        """Write the keys and the files of all peers."""
        check_folder(self.out, overwrite)
        if self.out.exists() and any(self.out.iterdir()):
            shutil.rmtree(self.out)
        self.files.peers.mkdir(parents=True)
        provenance.begin(self.out, self.e)
        self.files.config.write_text(self.e.toml(), encoding="utf-8")
        self.files.events.touch()
        keys = self.files.keys
        authority.create_authority(keys, "throwaway", days=30)
        ports = free_ports(len(self.members))
        seeds = [f"{m.name}@127.0.0.1:{port}" for m, port in list(zip(self.members, ports, strict=True))[:SEEDS]]
        for number, (member, port) in enumerate(zip(self.members, ports, strict=True)):
            authority.issue(member.name, keys, days=30)
            self._write_file(member, port, seeds, self._site(number))

    def _site(self, number: int) -> str:
        """The site of a peer; of the first peer for a server, which needs to know what samples look like."""
        sites = self._circle.dataset.site_names
        return sites[number if number < len(sites) else 0] if sites else ""

    def _write_file(self, member: PeerProcess, port: int, seeds: list[str], site: str) -> None:
        tables = self.e.tables()
        if site and not (self.e.data.labels or self.e.data.schema):  # a site may lack some labels, or fractions
            dataset = self._circle.dataset
            tables["data"] |= {"labels": dataset.classes} if dataset.classes else {"task": dataset.task}
        peer = {
            "keys": f"../keys/{member.name}", "listen": f"127.0.0.1:{port}", "seeds": seeds, "out": member.name,
            "server": SERVER if self.e.method.with_server() else "", "site": site,
        }  # fmt: skip
        member.file.write_text(parsing.dump({**tables, "peer": peer}), encoding="utf-8")

    def run(self) -> Summary:
        """Run until every peer has finished; returns the summary. After Ctrl-C the circle can be resumed."""
        with self._state:
            summary = self._run()
            finite.refuse(summary, self.out)
            return summary

    def _run(self) -> Summary:
        began = time.perf_counter()
        try:
            for member in self.members:
                self._start(member)
            while not all(member.done for member in self.members):
                time.sleep(POLL_INTERVAL)
                for member in self.members:
                    self._restart_if_killed(member)
                    self._show_progress(member)
        except KeyboardInterrupt:
            self.stop()
            raise Interrupted("stopped") from None
        except BaseException:
            self.stop()
            raise
        for member in self.members:
            self._show_progress(member)
        return self.collect(time.perf_counter() - began)

    def _report(self, p: RoundProgress) -> None:
        self._state.update(p)
        if self._on_round:
            self._on_round(p)

    def collect(self, seconds: float) -> Summary:
        """Merge the events of all peers into the run's folder."""
        log = EventLog(self.files.events)
        log.path.unlink(missing_ok=True)
        log.write(run_started(self.e, self._circle))
        records = [r for m in self.members for r in read(m.files.events) if not isinstance(r, RunStarted)]
        for record in sorted(records, key=lambda r: (r.round, r.peer)):
            log.write(record)
        log.close()
        return finish(self.out, seconds)

    # -- processes -----------------------------------------------------------------------------

    def _start(self, member: PeerProcess) -> None:
        # One thread per operation: many processes share the cores, and more threads would only contend.
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", PARENT: str(os.getpid())}
        member.out.mkdir(parents=True, exist_ok=True)
        with member.files.output.open("ab") as output:
            member.process = subprocess.Popen(
                [sys.executable, "-m", "coterie", "peer", str(member.file)],
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment,
                start_new_session=True,  # Ctrl-C reaches only this process, which stops the peers
            )  # fmt: skip

    def _restart_if_killed(self, member: PeerProcess) -> None:
        """Restart a peer that was killed; an error of a peer ends the circle."""
        if member.done or member.process is None or member.process.poll() is None:
            return
        code = member.process.returncode
        if code in (0, DivergedError.exit_code):  # the others finish first, then all is reported together
            member.done = True
        elif code > 0 or not self.restart or member.restarts >= RESTARTS:
            raise RunError(f"{member.name} ended ({_reason(code)}): {_last_line(member.files.output)}")
        else:
            member.restarts += 1
            self.say(f"{member.name} was killed ({_reason(code)}): restarting it")
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

    def _show_progress(self, member: PeerProcess) -> None:
        """Report the rounds that a peer finished since the last call."""
        _, records = member.tail.look()
        while member.tail.behind:
            records += member.tail.look()[1]
        for record in records:
            # A peer that restarts replaces its file; its earlier rounds were shown before.
            event = from_record(record) if record.get("event") == "round" else None
            if isinstance(event, PeerRound) and event.round > member.round:
                member.round = event.round
                self._progress.see(event)


def resumable(out: Path, **options: Any) -> LocalCircle:
    """The circle in a folder of `coterie up`, to resume it."""
    if not RunFolder(out).is_circle():
        raise RunError(f"{out} was not made by `coterie up`: give the folder of such a run")
    experiment = of_folder(out)
    if reason := provenance.outdated(out, experiment):  # each peer records it when it resumes
        mixed = f"{reason}: its figures will be a mixture"
        unknown = reason == provenance.NOT_RECORDED
        _log.warning("%s is resumed, but %s", out, provenance.NOT_KNOWN if unknown else mixed)
    return LocalCircle(experiment, out, **options)


def certificate_names(sites: Sequence[str]) -> list[str]:
    """A different name for each site, of the letters that certificates allow."""
    names: list[str] = []
    for site in sites:
        letters = unicodedata.normalize("NFKD", site).encode("ascii", "ignore").decode().lower()
        name = re.sub("[^a-z0-9]+", "-", letters)[:LONGEST_SITE].strip("-") or "site"
        numbered = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
        names.append(next(one for one in numbered if one not in (*names, SERVER)))
    return names


def free_ports(count: int) -> list[int]:
    """Unused loopback ports outside the ephemeral range: the outgoing connection of another process must not take the
    port of a peer that starts late or restarts."""
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
    raise RunError(f"this machine does not have {count} free ports from {PORTS.start} to {PORTS.stop - 1}")


def _reason(code: int) -> str:
    return f"exit code {code}" if code > 0 else f"signal {-code}"


def _last_line(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines() if path.exists() else []
    return lines[-1].removeprefix("coterie: ") if lines else "without output"
