"""Collect everything that the page shows of one run from its files, as versioned values."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import asdict
from typing import TypedDict

from coterie.core.formatting import peer_name
from coterie.core.json_values import Json, JsonValue, finite, parsed, sequence, table
from coterie.core.summary import AnySummary, Summary
from coterie.core.tail import LONGEST_LINE, Tail
from coterie.dashboard import ties
from coterie.dashboard.history import History
from coterie.dashboard.real_peers import PeerFolder, RealPeers, Seen
from coterie.dashboard.versions import Sections, Versions
from coterie.running.folders import CIRCLE, PEER, SIMULATION, RunEntry, short
from coterie.running.state import FAILED, KILLED, RUNNING, SILENT, SavedState

SHOWN_OFFENCES = 30
SHOWN_LEAVING = 40
IT = "it"  # the key of a section with a single value


class About(TypedDict):
    """What is fixed for a run."""

    id: str
    kind: str
    method: str | None
    seed: float | None
    peers: float | None
    rounds: float | None
    data: str | None
    partition: JsonValue
    clusters: list[int]
    architectures: list[JsonValue]
    names: list[str]  # of the peers' sites, by peer; empty if peers have no names
    metrics: list[Json]  # what is measured, the main one first
    drawn: bool  # whether its graph is small enough to be drawn


class TestMean(TypedDict):
    """The mean of the main metric over peers."""

    last: float | None
    selected: float | None


class Figures(TypedDict):
    state: str
    round: int
    ahead: int  # the round of the first peer
    rounds: float | None
    bytes: int
    messages: int
    read: float  # the share of the files that has been read
    gone: int
    events: int
    selected: TestMean | None
    report: bool
    silent_for: int  # seconds


class PeerRow(TypedDict):
    name: str
    state: str
    detail: str
    round: float
    validation: float | None
    test: float | None
    bytes: int
    takes: ties.Favourites | None
    remarks: str


class Leaving(TypedDict):
    """The artifacts that peers sent."""

    audited: bool
    artifacts: list[tuple[str, int, int]]  # of each, how often and bytes
    recent: list[dict[str, object]]
    senders: list[tuple[str, int, int]]


class RunView:
    """A run shown by at least one page."""

    def __init__(self, run: RunEntry) -> None:
        self.run = run
        self.versions = Versions()
        self.history = History()
        self._places = ties.Places()
        self.real = None if run.kind == SIMULATION else RealPeers(run)
        self._tail = Tail(run.files.events)

    def refresh(self) -> bool:
        """Read what is new. Returns whether there is more to read immediately."""
        if self.real:
            self.real.look()
        members = list(self.real.members.values()) if self.real else []
        tails = [m.events for m in members] if self.real else [self._tail]
        updates = [m.read_events() for m in members] if self.real else [self._tail.look()]
        if any(replaced for replaced, _ in updates):
            self._restart(tails)
            return True
        for _, records in updates:
            for record in records:
                self.history.see(record)
        self._read_true_clusters()
        self.versions.put(self._sections(tails))
        return any(tail.behind for tail in tails)

    def _restart(self, tails: list[Tail]) -> None:
        """Read everything again: a file was replaced because a run was resumed or a peer came back."""
        self.history = History()
        for tail in tails:
            tail.rewind()
        self.versions.reset()

    def _read_true_clusters(self) -> None:
        """Real peers do not know the true clusters; the merged log that `coterie up` writes at the end has them."""
        if self.run.kind != CIRCLE or self.history.start.get("clusters") or self.run.summary() is None:
            return
        with suppress(OSError, ValueError), self.run.files.events.open("rb") as file:
            record = parsed(file.readline(LONGEST_LINE))
            if isinstance(record, dict) and record.get("event") == "run":
                self.history.see(record)

    # -- what a page shows ---------------------------------------------------------------------

    def _sections(self, tails: list[Tail]) -> Sections:
        h = self.history
        summary = self.run.summary()
        state = self.run.state(summary)
        absent = self.real.absent() if self.real else set()
        matrix = ties.matrix(h)
        return {
            "about": {IT: self._about()},
            "figures": {IT: self._figures(state, absent, summary, tails)},
            "points": h.points(absent),
            "peers": self._real_rows() if self.real else self._rows(state),
            "ties": ties.rows(h),
            "places": {IT: self._places.of(h)},
            "matrix": {} if matrix is None else {IT: matrix},
            "errors": {IT: self._errors(state, tails)},
            "leaving": {IT: self._leaving()},
        }

    def _about(self) -> About:
        start, config = self.history.start, self.run.config()
        data = table(config.get("data"))
        return {
            "id": self.run.id, "kind": self.run.kind,
            "method": short(start.get("method") or table(config.get("method")).get("name")),
            "seed": finite(config.get("seed", start.get("seed"))),
            "peers": self.history.peers or finite(config.get("peers")),
            "rounds": self.history.rounds or finite(config.get("rounds")),
            "data": short(data.get("name")),
            "partition": data.get("partition"), "clusters": ties.clusters_of(self.history),
            "architectures": self._architectures(), "names": self._names(),
            "metrics": [asdict(metric) for metric in self.history.metrics],
            "drawn": self.history.peers <= ties.MOST_DRAWN,
        }  # fmt: skip

    def _names(self) -> list[str]:
        names = [name for name in sequence(self.history.start.get("names")) if isinstance(name, str)]
        return [peer_name(peer, names) for peer in range(len(names))] if len(names) == self.history.peers else []

    def _architectures(self) -> list[JsonValue]:
        if self.real:
            by_number = {number: member.architecture for number, member in self.real.by_number()}
            return [by_number.get(peer, "") for peer in range(self.history.peers)]
        architectures = self.history.start.get("architectures", [])
        return architectures if isinstance(architectures, list) and len(architectures) >= self.history.peers > 0 else []

    def _figures(self, state: SavedState, absent: set[int], summary: AnySummary | None, tails: list[Tail]) -> Figures:
        h = self.history
        size = sum(tail.size for tail in tails)
        read = sum(tail.position for tail in tails) / size if any(tail.behind for tail in tails) else 1.0
        return {
            "state": state.state, "round": h.done(absent), "ahead": max(h.at.values(), default=0),
            "rounds": h.rounds or state.rounds, "bytes": sum(h.bytes.values()), "messages": sum(h.messages.values()),
            "read": round(read, 2), "gone": len(h.gone.keys() | absent), "events": h.count,
            "selected": _selected(summary), "report": self.run.files.report.exists(),
            "silent_for": round(state.age) if state.state == SILENT else 0,
        }  # fmt: skip

    def _rows(self, state: SavedState) -> dict[str, PeerRow]:
        """The peers of a simulation: their status while it runs, afterwards the state in which their events end."""
        doings = {str(d.get("peer")): d for d in state.peers} if state.state == RUNNING else {}
        rows, names = {}, self._names()
        for peer in range(self.history.peers):
            word, detail = _doing(doings[str(peer)]) if str(peer) in doings else self._final_state(peer, state.state)
            row = self._row(peer, names[peer] if names else str(peer), word, detail, [])
            if names and row["takes"]:
                row["takes"]["who"] = [names[int(other)] for other in row["takes"]["who"]]
            rows[str(peer)] = row
        return rows

    def _final_state(self, peer: int, state: str) -> tuple[str, str]:
        h = self.history
        if peer in h.gone:
            return "gone", f"left in round {h.gone[peer]}"
        if h.at.get(peer, 0) >= h.rounds:
            return "done", ""
        return ("away", f"missed round {h.away[peer]}") if peer in h.away else (_ended(state), "")

    def _real_rows(self) -> dict[str, PeerRow]:
        assert self.real is not None
        seen, rows = self.real.seen_by_others(), {}
        for number, member in self.real.by_number():
            word, detail = member.state()
            rows[str(number)] = self._row(number, member.name, word, detail, _remarks(member, seen.get(number)))
            if number >= self.history.peers:  # a server, or a peer that joined late
                rows[str(number)]["round"] = finite(member.status.get("round")) or 0
        if self.run.kind == PEER:  # it knows other peers only from what they announce
            for number, about in seen.items():
                word = "gone" if about.silent else about.state
                row = self._row(number, about.name, word, "as seen by this peer", _seen(about))
                rows[str(number)] = {**row, "round": about.round}
        return rows

    def _row(self, peer: int, name: str, word: str, detail: str, remarks: list[str]) -> PeerRow:
        h = self.history
        if peer in h.back:
            remarks = [f"rejoined in round {h.back[peer]}", *remarks]
        if peer in h.not_finite:
            remarks = ["its model is not finite", *remarks]
        if h.offended[name]:
            remarks = [*remarks, f"{h.offended[name]} of its artifacts dropped"]
        return {
            "name": name, "state": word, "detail": detail, "round": h.at.get(peer, 0),
            "validation": h.validation.get(peer), "test": h.test.get(peer), "bytes": h.received[peer],
            "takes": ties.favourites(h, peer) if peer < h.peers else None, "remarks": "; ".join(remarks),
        }  # fmt: skip

    def _errors(self, state: SavedState, tails: list[Tail]) -> list[dict[str, str]]:
        errors = []
        if state.state == FAILED:
            errors.append(_error("The run failed.", state.error, state.traceback))
        if state.state == KILLED:
            errors.append(_error("The run's process ended without an error message.", self._after_kill()))
        for number, member in self.real.by_number() if self.real else ():
            if member.is_gone():
                errors.append(
                    _error(f"{member.name} (number {number}) is gone.", member.state()[1], member.last_output())
                )
            if member.status.get("error"):
                errors.append(_error(f"{member.name} (number {number}) failed.", str(member.status["error"])))
        troubles = [*(tail.trouble for tail in tails), self.history.trouble]
        troubles += [m.leaving.tail.trouble for m in self.real.members.values()] if self.real else []
        errors += [_error("A file is damaged.", trouble) for trouble in troubles if trouble]
        for offence in list(self.history.offences)[: -SHOWN_OFFENCES - 1 : -1]:
            head = f"Peer {offence.peer} dropped an artifact from {offence.sender} in round {offence.round}."
            errors.append(_error(head, offence.what))
        return errors

    def _after_kill(self) -> str:
        reason = "It was killed, or the machine went down."
        command = {SIMULATION: "coterie run --resume", CIRCLE: "coterie up --resume"}.get(self.run.kind)
        return f"{reason} To continue from its last checkpoint, run {command} with its folder." if command else reason

    def _leaving(self) -> Leaving:
        """The artifacts that peers sent: from audit logs where available, otherwise counted from events."""
        h = self.history
        if not self.real:
            artifacts = [(name, h.messages[name], h.bytes[name]) for name in sorted(h.bytes)]
            return {"audited": False, "artifacts": artifacts, "recent": [], "senders": []}
        times: Counter[str] = Counter()
        sizes: Counter[str] = Counter()
        recent: list[dict[str, object]] = []
        for member in self.real.members.values():
            times.update(member.leaving.times)
            sizes.update(member.leaving.by_artifact)
            newest_first = list(member.leaving.recent)[: -SHOWN_LEAVING - 1 : -1]
            recent += [{"from": member.name, **record} for record in newest_first]
        recent.sort(
            key=lambda record: str(record["time"]), reverse=True
        )  # a stable sort keeps each peer's order within a second
        senders = [
            (m.name, m.leaving.times.total(), m.leaving.by_artifact.total())
            for _, m in sorted(self.real.by_number(), key=lambda pair: pair[0])
        ]
        artifacts = [(name, times[name], sizes[name]) for name in sorted(sizes)]
        return {"audited": True, "artifacts": artifacts, "recent": recent[:SHOWN_LEAVING], "senders": senders}


def _doing(doing: Json) -> tuple[str, str]:
    """A participant's state and details, from the status of the simulation's process."""
    sources = ", ".join(f"{peer}" for peer in sequence(doing.get("waits_for")))
    more = f" and {doing['waits_for_more']} more" if doing.get("waits_for_more") else ""
    artifact = f"'{doing['artifact']}'" if doing.get("artifact") else ""
    detail = " ".join(part for part in (artifact and f"for {artifact}", sources and f"from {sources}{more}") if part)
    return str(doing.get("state")), detail


def _ended(state: str) -> str:
    return {"finished": "done", RUNNING: "between rounds"}.get(state, "stopped")


def _remarks(member: PeerFolder, seen: Seen | None) -> list[str]:
    back = ["rejoined"] if member.back_since else []
    return back + (_seen(seen) if seen else [])


def _seen(seen: Seen) -> list[str]:
    """Remarks of other peers about a peer."""
    remarks = []
    if seen.silent:
        remarks.append(f"no answer to {', '.join(seen.silent[:3])}{' and others' if len(seen.silent) > 3 else ''}")
    if seen.offences:
        remarks.append(f"{seen.offences} offences")
    if seen.trouble:
        remarks.append(seen.trouble)
    return remarks


def _error(head: str, text: str = "", more: str = "") -> dict[str, str]:
    return {"head": head, "text": text, "more": more}


def _selected(summary: AnySummary | None) -> TestMean | None:
    """The main metric of a finished run on test data: in the last round, and in each peer's selected round."""
    if not isinstance(summary, Summary):
        return None
    last, selected = finite(summary.test.last), finite(summary.test.selected)
    return None if last is None else {"last": last, "selected": selected}
