"""The simulation: who goes on when, on a virtual clock. Where participants act is a stage (`engines.stage`).

Events are processed in the order of simulated time. What a peer computes depends on that peer alone, so
computing is put off until its result is needed and then done for everyone who has asked by then: forty
peers that train the same small architecture become one batched call. At one instant all who can go on do
so first, and fetches are served after: what a fetch sees never depends on the order of peers.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import math
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from coterie import memory
from coterie.engines import checkpoint
from coterie.engines.acts import SETUP, Computed, Letters, Reply, Turn, Working
from coterie.engines.board import Board, Shelved
from coterie.engines.bulletin import Bulletin, Silence
from coterie.engines.clock import Clock
from coterie.engines.participants import Letter, OpenFetch, Participant, packed, plea, unpacked
from coterie.engines.stage import Stage
from coterie.errors import CoterieError, DeadlockError, Interrupted, RunError
from coterie.events import EventLog, PeerAway, PeerRound
from coterie.peer import Fetch, News, Receive, Request, Send
from coterie.shelf import Artifact

_log = logging.getLogger(__name__)

# The order of what happens at one instant.
DELIVER, RESUME, SERVE, EXPIRE, SILENCE = range(5)
TO_ALL = -1  # in the place of a peer
NEXT_ROUND, COMPUTED = object(), Computed()  # with what a participant goes on, if not with an answer


class Simulation:
    """Directs the participants on a stage (the server is the last, where there is one) through their rounds."""

    def __init__(
        self,
        stage: Stage,
        clock: Clock,
        log: EventLog | None = None,
        *,
        asynchronous: bool = False,
        checkpoint_every: int = 0,
        folder: Path | None = None,
        on_record: Callable[[PeerRound | PeerAway], None] | None = None,
        seconds: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.stage, self.rounds, self.clock, self.log = stage, stage.rounds, clock, log
        self.checkpoint_every, self.folder = checkpoint_every, folder
        self.on_record = on_record
        self.seconds = seconds  # of computing so far, over all parts of a resumed run
        self.all = [Participant(id) for id in sorted(stage.peers)]
        self.board = Board(asynchronous or stage.asynchronous)
        self.now = 0.0
        self.start_after = 0  # rounds that a checkpoint says are done
        self.stop_at: int | None = None
        self.following: Callable[[int], int] = lambda round: round + 1  # a rehearsal leaps over some rounds
        self._stop_asked = False
        self._events: list[tuple[float, int, int, Any, Any]] = []
        self._order = itertools.count()
        self._asked: dict[int, set[int]] = defaultdict(set)  # who waits for something to be computed, by round
        self._records: list[PeerRound | PeerAway] = []  # which are still to be measured
        self._waiting: dict[int, dict[OpenFetch, None]] = defaultdict(dict)  # by the peer waited for
        self._listening: set[int] = set()  # who waits for news
        self._tells_news_at = math.nan
        self.bulletin = Bulletin()
        self._at_round: Counter[int] = Counter()
        self._settled = 0  # the oldest round that somebody is in
        self._sat_out: set[tuple[int, int]] = set()
        self._asked_in_vain: set[str] = set()  # names of artifacts that nobody has shelved so far
        self._letters: list[Letter] = []
        self._known_letters: set[tuple[int, int]] = set()
        self._cuts: dict[int, dict[int, dict[str, Any]]] = {}

    # -- running -------------------------------------------------------------------------------

    def run(self) -> None:
        """Until every participant has done its rounds; raises Interrupted after a stop, DeadlockError if stuck."""
        for p in self.all:
            if p.gone:
                continue
            self._at_round[p.round] += 1
            self._push(p.time, RESUME, p.id, NEXT_ROUND)
        for peer, windows in self.clock.windows.items():
            for start, _ in windows:
                self._push(start, EXPIRE, peer, None)
        try:
            with memory.seldom_searched():
                self._until_the_end()
        finally:
            self.stage.end()
            if self.log:
                self.log.flush()
        self._check_deadlock()
        for name in sorted(self._asked_in_vain):
            _log.warning("nobody ever shelved '%s', which was asked for: a slip in the method?", name)

    def _until_the_end(self) -> None:
        while True:
            if self._nothing_will_come():
                self._tell_of_silence(self.bulletin.silence(self.now))
            if not self._events:
                break
            self._instant()
        self._record_rounds(self.rounds)

    def stop(self) -> None:
        """Stop at the next round that everybody can finish, leaving a checkpoint. Safe in a signal handler."""
        self._stop_asked = True

    def _instant(self) -> None:
        """Everything of one time and one phase."""
        self.now, phase = self._events[0][:2]
        batch = []
        while self._events and self._events[0][:2] == (self.now, phase):
            batch.append(heapq.heappop(self._events))
        if phase == RESUME:
            self._go_on([(self.all[peer], what) for _, _, peer, _, what in batch])
            return
        for _, _, peer, _, what in batch:
            if phase == SERVE:
                if isinstance(what, OpenFetch):
                    self._serve(what)
                else:
                    self._tell_news()
            elif phase == DELIVER:
                self._deliver(what)
            elif phase == EXPIRE:
                self._expire(peer, what)
            else:
                self._tell_of_silence(self.bulletin.silence_ahead())

    def _post(self, time: float, letter: Letter) -> None:
        """Letters of one instant come in the order of their arrival, then of their senders: also after a resume."""
        heapq.heappush(self._events, (time, DELIVER, letter.to, (letter.arrival, *letter.number), letter))

    def _push(self, time: float, phase: int, peer: int, what: Any) -> None:
        heapq.heappush(self._events, (time, phase, peer, next(self._order), what))

    def _catch_up(self, p: Participant) -> int:
        """The round to do next: one's own, or the circle's current one after having been away."""
        if p.was_away and not self.board.asynchronous:
            p.was_away = False
            others = [q.round for q in self.all if not (q.gone or q.done or q.was_away) and q.time <= self.now]
            before, after = p.round, min(max([p.round, *others]), max(p.round, self.rounds))
            for skipped in range(before, after):
                self._sit_out(p.id, skipped)
            self._enter(p, after)
        p.was_away = False
        return p.round

    def _enter(self, p: Participant, round: int) -> None:
        """Go on to a round, leaving behind what a checkpoint of any round before it needs."""
        before = p.round
        self._leave_round(p)
        p.round = round
        self._at_round[round] += 1
        for waiting in list(self._waiting.get(p.id, ())):
            if not self._may_shelve(p.id, waiting.request.round):
                self._arrive(waiting, p.id, None)
        for done in range(before, round):
            if self._is_cut(done):
                if done not in self._cuts:
                    self.bulletin.begin_cut(done, self.now)
                self._cuts.setdefault(done, {})[p.id] = self._snapshot(p, done)
                self.board.retain = True
                self._complete(done)

    def _leave_round(self, p: Participant) -> None:
        self._at_round[p.round] -= 1
        if not self._at_round[p.round]:
            del self._at_round[p.round]

    # -- one participant goes on ---------------------------------------------------------------

    def _go_on(self, cues: list[tuple[Participant, Any]]) -> None:
        """All whose time has come act, each until it asks for something."""
        for round in sorted({p.round for p, what in cues if what is COMPUTED and not p.computed}):
            self._compute(round)
        turns = [turn for p, what in cues if (turn := self._turn(p, what))]
        while turns:  # who has set itself up goes on with its first round
            turns = [turn for reply in self.stage.act(self.now, turns) if (turn := self._hear(reply))]

    def _turn(self, p: Participant, what: Any) -> Turn | None:
        away_until = self.clock.away_until(p.id, self.now)
        if away_until is not None:
            self._leave(p, away_until, what)
            return None
        p.time = self.now
        return self._next_round(p) if what is NEXT_ROUND else Turn(p.id, answer=what)

    def _next_round(self, p: Participant) -> Turn | None:
        if p.round == SETUP:
            return Turn(p.id, SETUP)
        if p.round > self.rounds:
            p.done = True
            self._leave_round(p)
            return None
        round = self._catch_up(p)
        if self.clock.sits_out(p.id, round):
            self._sit_out(p.id, round)
            self._end_round(p, PeerAway(p.id, round, self.now, self.now))
            return None
        return Turn(p.id, round)

    def _hear(self, reply: Reply) -> Turn | None:
        """What somebody did, and what it wants next."""
        p = self.all[reply.peer]
        for artifact in reply.shelved:
            self._shelve(artifact)
        for name in reply.emptied:
            del p.inbox[name]
        p.waits_for = reply.request
        if reply.request is not None:
            self._accept(p, reply.request)
        elif p.round == SETUP:
            self._enter(p, 1)
            return self._next_round(p)
        else:
            self._end_round(p, PeerRound(p.id, p.round, self.now, notes=reply.notes))
        return None

    def _leave(self, p: Participant, until: float, what: Any) -> None:
        p.was_away = True
        if until < math.inf:
            self._push(until, RESUME, p.id, what)
            return
        p.gone = True
        self._listening.discard(p.id)
        self._leave_round(p)
        self._records.append(PeerAway(p.id, p.round, self.now, None))
        for round in list(self._cuts):
            self._complete(round)

    def _accept(self, p: Participant, request: Request[Any]) -> None:
        id = p.id
        if isinstance(request, Working):
            p.computed = False
            self._asked[p.round].add(id)
            self._push(self.now + self.clock.training(id, request.samples), RESUME, id, COMPUTED)
        elif isinstance(request, Fetch):
            p.fetching = OpenFetch(request, id, self.now, set(request.peers))
            self._push(self.now, SERVE, id, p.fetching)
        elif isinstance(request, Send):
            self._send(p, request)
        elif isinstance(request, Receive):
            self._hand_over(p)
        elif isinstance(request, News):
            self._listening.add(id)
            self._tell_news_at(self.now)
        else:
            raise CoterieError(f"peer {id} awaited {request!r}: only the verbs of `me` can be awaited in a method")

    def _compute(self, round: int) -> None:
        """Everything that anybody in this round has asked for, at once."""
        self._record_rounds(round - 1)
        self.stage.compute(round)
        for id in self._asked.pop(round, ()):
            self.all[id].computed = True

    # -- fetching ------------------------------------------------------------------------------

    def _shelve(self, artifact: Artifact) -> None:
        self.board.put(artifact, self.now, self._oldest_round())
        self._asked_in_vain.discard(artifact.name)
        self.all[artifact.author].shelved += 1
        self.bulletin.shelve(self.now, artifact.round)
        if self._listening:
            self._tell_news_at(self.now)
        for open_fetch in list(self._waiting.get(artifact.author, ())):
            wanted = open_fetch.request
            if wanted.name == artifact.name and artifact.round >= wanted.round:
                self._arrive(open_fetch, artifact.author, Shelved(self.now, artifact))

    def _oldest_round(self) -> int:
        return min(self._at_round, default=0)

    def _serve(self, f: OpenFetch) -> None:
        """Answer a fetch with what is there; wait for the rest, if it can still come."""
        if f.request.peers and not self.board.knows(f.request.name):
            self._asked_in_vain.add(f.request.name)
        for author in f.request.peers:
            found = None
            if self._reachable(author, f.request.round):
                found = self.board.find(author, f.request.name, f.request.round, self.now)
                if found is None and self._may_shelve(author, f.request.round):
                    self._waiting[author][f] = None
                    continue
            f.missing.discard(author)
            if found is not None:
                f.arrived[author] = found
        if f.missing and self.clock.settings.deadline:
            self._push(self.now + self.clock.settings.deadline, EXPIRE, f.by, f)
        self._finish_if_whole(f)

    def _may_shelve(self, author: int, round: int) -> bool:
        """Whether something of this round may still come: who has gone on to another shelves no more of it."""
        return not self.board.asynchronous and self.all[author].round <= round

    def _reachable(self, author: int, round: int) -> bool:
        if not 0 <= author < len(self.all):
            raise CoterieError(f"peer {author} was asked for something, but there are {len(self.all)} participants")
        if self.clock.away_until(author, self.now) is not None:
            return False
        # Without common rounds, sitting one out takes no time, and what is on the shelf stays there.
        return self.board.asynchronous or (author, round) not in self._sat_out

    def _arrive(self, f: OpenFetch, author: int, found: Shelved | None) -> None:
        self._waiting[author].pop(f, None)
        f.missing.discard(author)
        if found is not None:
            f.arrived[author] = found
        self._finish_if_whole(f)

    def _finish_if_whole(self, f: OpenFetch) -> None:
        if f.missing:
            return
        p = self.all[f.by]
        p.waited += self.now - f.time
        sizes = {a: s.artifact.nbytes for a, s in f.arrived.items() if a != f.by}
        p.bytes[f.request.name] += sum(sizes.values())
        p.messages[f.request.name] += len(sizes)
        takes = self.clock.transfer(f.by, sum(sizes.values())) if sizes else 0.0
        self._push(self.now + takes, RESUME, f.by, {a: f.arrived[a].artifact for a in sorted(f.arrived)})

    def _expire(self, peer: int, f: OpenFetch | None) -> None:
        """A fetch's deadline has passed, or (no fetch named) a peer that others wait for goes away."""
        if f is None:
            for waiting in list(self._waiting.get(peer, ())):
                self._arrive(waiting, peer, None)
            p = self.all[peer]
            if (
                isinstance(p.waits_for, Receive | News)
                and not p.gone
                and self.clock.away_until(peer, self.now) == math.inf
            ):
                self._leave(p, math.inf, None)
            return
        for author in list(f.missing):
            self._arrive(f, author, None)

    def _sit_out(self, peer: int, round: int) -> None:
        self._sat_out.add((peer, round))
        for waiting in list(self._waiting.get(peer, ())):
            if waiting.request.round == round:
                self._arrive(waiting, peer, None)

    # -- news ----------------------------------------------------------------------------------

    def _tell_news_at(self, time: float) -> None:
        """Tell all who listen, once, after everybody has gone on at that time."""
        if self._tells_news_at != time:
            self._tells_news_at = time
            self._push(time, SERVE, TO_ALL, None)

    def _tell_news(self) -> None:
        """Let those go on for whom there is more on the others' shelves than they have been told of."""
        self._tells_news_at = math.nan
        total = self.bulletin.shelved_by(self.now)
        for id in sorted(self._listening):
            p = self.all[id]
            if total - p.shelved > p.heard:
                p.heard = total - p.shelved
                self._answer_news(p, True)

    def _nothing_will_come(self) -> bool:
        """Whether all who are left wait for news, and nothing is under way."""
        if not self._listening or len(self._listening) < self._at_round.total():
            return False
        return all(phase == EXPIRE and what is None for _, phase, _, _, what in self._events)

    def _tell_of_silence(self, silence: Silence) -> None:
        """There is no news. (After a resume, some may have been told before.)"""
        for p in [self.all[id] for id in sorted(self._listening)]:
            if p.silences < silence.number:
                p.silences = silence.number
                self._answer_news(p, False)

    def _answer_news(self, p: Participant, there_is: bool) -> None:
        self._listening.discard(p.id)
        p.waits_for = None
        self._push(self.now, RESUME, p.id, there_is)

    # -- sending -------------------------------------------------------------------------------

    def _send(self, p: Participant, request: Send) -> None:
        if not 0 <= request.to < len(self.all):
            raise CoterieError(f"peer {request.to} was sent something, but there are {len(self.all)} participants")
        size = request.artifact.nbytes
        arrival = self.now + self.clock.transfer(p.id, size)
        letter = Letter((p.id, p.letters_sent), p.round, request.to, arrival, request.artifact)
        p.letters_sent += 1
        delivered = self.clock.away_until(request.to, arrival) != math.inf
        if delivered:
            p.bytes[request.artifact.name] += size
            p.messages[request.artifact.name] += 1
        if self.folder is not None:  # kept for checkpoints alone
            self._letters.append(letter)
        if letter.number in self._known_letters:
            letter.delivered_in = self.start_after
        else:
            self._post(arrival, letter)
        self._push(self.now, RESUME, p.id, delivered)

    def _deliver(self, letter: Letter) -> None:
        p = self.all[letter.to]
        back = self.clock.away_until(letter.to, self.now)
        if back is not None:  # waits at the door
            if back < math.inf:
                self._post(back, letter)
            elif letter in self._letters:
                self._letters.remove(letter)  # nobody will ever open it
            return
        letter.delivered_in = p.round
        self.stage.deliver(p.id, letter.artifact)
        p.inbox[letter.artifact.name] += 1
        self._hand_over(p)

    def _hand_over(self, p: Participant) -> None:
        """If a participant waits for messages and there are some, it goes on."""
        if isinstance(p.waits_for, Receive) and p.inbox[p.waits_for.name]:
            p.waited += self.now - p.time
            name = p.waits_for.name
            self._push(self.now, RESUME, p.id, Letters(name, p.inbox.pop(name)))
            p.waits_for = None

    # -- the end of a round, checkpoints -------------------------------------------------------

    def _end_round(self, p: Participant, record: PeerRound | PeerAway) -> None:
        if isinstance(record, PeerRound):
            record.bytes.update(+p.bytes)
            record.messages.update(+p.messages)
            if p.waited:
                record.notes["waited"] = round(p.waited, 6)
            p.bytes, p.messages, p.waited = Counter(), Counter(), 0.0
        self._records.append(record)
        if self._stop_asked and self.stop_at is None:
            if any(q.done or q.round >= self.rounds for q in self.all):  # who is can be part of no new checkpoint
                raise Interrupted("stopped; it goes on from the last checkpoint")
            self.stop_at = max(q.round for q in self.all if not q.gone)
        self._enter(p, self.following(p.round))
        self._settle()
        self._push(self.now, RESUME, p.id, NEXT_ROUND)

    def _settle(self) -> None:
        """When everybody has left a round behind: measure it, and forget what was only kept for it."""
        oldest = self._oldest_round()
        if oldest <= self._settled:
            return
        self._settled = oldest
        self._record_rounds(oldest - 1)
        self.board.settle(oldest)
        self._sat_out = {s for s in self._sat_out if s[1] >= oldest}
        self._letters = [x for x in self._letters if not (x.sent_in < oldest and x.had_by(oldest - 1))]

    def _record_rounds(self, until: int) -> None:
        """Those up to this one, each measured and written down at once; measuring takes no simulated time."""
        due = [record for record in self._records if record.round <= until]
        self._records = [record for record in self._records if record.round > until]
        for round in sorted({record.round for record in due}):
            measured = self.stage.measured(round)
            for record in sorted((r for r in due if r.round == round), key=lambda record: record.peer):
                found = measured.get(record.peer)
                self._record(found.onto(record) if found and isinstance(record, PeerRound) else record)

    def _is_cut(self, done: int) -> bool:
        """Whether a checkpoint is to be taken after this round."""
        if self.folder is None or not self.start_after < done < self.rounds:
            return False
        regular = self.checkpoint_every > 0 and done % self.checkpoint_every == 0
        return regular or done == self.stop_at

    def _record(self, record: PeerRound | PeerAway) -> None:
        if self.log:
            self.log.write(record)
        if self.on_record:
            self.on_record(record)

    def _snapshot(self, p: Participant, round: int) -> dict[str, Any]:
        """What a checkpoint of this round has of a participant, as it is now; the stage keeps the rest of it."""
        self.stage.keep(p.id, round)
        return {
            "round": p.round, "time": self.now, "was_away": p.was_away, "letters_sent": p.letters_sent,
            "shelved": p.shelved, "heard": p.heard, "silences": p.silences,
        }  # fmt: skip

    def _complete(self, round: int) -> None:
        """Write the checkpoint once every participant that is still there has come to the end of its round."""
        cut = self._cuts[round]
        if any(p.id not in cut and not p.gone for p in self.all):
            return
        assert self.folder is not None
        # Who left for good after this round is still to leave, for a run that goes on from here.
        gone = [p.id for p in self.all if p.gone and p.id not in cut]
        cut.update({id: self._snapshot(self.all[id], round) for id in gone})
        kept = self.stage.kept(round)
        in_flight = [x for x in self._letters if x.sent_in <= round and not x.had_by(round)]
        already = [list(x.number) for x in self._letters if x.sent_in > round and x.had_by(round)]
        shelved = self.board.until(round)
        shelves = self.stage.whole([s.artifact for s in shelved])
        letters = self.stage.whole([x.artifact for x in in_flight])
        tree = {
            "participants": [{**kept[p.id], **cut[p.id]} for p in self.all],
            "gone": gone,
            # Only what a participant has skipped beyond this round; what it sits out later it will find out again.
            "sat_out": [list(s) for s in sorted(self._sat_out) if round < s[1] < cut[s[0]]["round"]],
            "bulletin": self.bulletin.of_cut(round),
            "shelves": [{"time": s.time, **packed(a)} for s, a in zip(shelved, shelves, strict=True)],
            "in_flight": [{**x.label(), **packed(a)} for x, a in zip(in_flight, letters, strict=True)],
            "already": already,
            "seconds": self.seconds(),
        }  # fmt: skip
        self._record_rounds(round)
        if self.log:
            self.log.flush()
        checkpoint.save(self.folder, round, tree)
        del self._cuts[round]
        self.bulletin.end_cut(round)
        self._letters = [x for x in self._letters if not (x.sent_in <= round and x.had_by(round))]
        if not self._cuts:
            self.board.release(self.now)
        if round == self.stop_at:
            raise Interrupted(f"stopped after round {round} of {self.rounds}")

    def restore(self, round: int, tree: dict[str, Any]) -> None:
        """Go on from a checkpoint, as if nothing had happened."""
        if len(tree["participants"]) != len(self.all):
            raise RunError(f"the checkpoint has {len(tree['participants'])} participants, the run {len(self.all)}")
        self.start_after = round
        self.stage.restore(dict(enumerate(tree["participants"])))
        for p, saved in zip(self.all, tree["participants"], strict=True):
            p.round, p.time, p.was_away = saved["round"], saved["time"], saved["was_away"]
            p.letters_sent, p.gone = saved["letters_sent"], p.id in tree["gone"]
            p.shelved, p.heard, p.silences = saved["shelved"], saved["heard"], saved["silences"]
            p.inbox = Counter({name: len(artifacts) for name, artifacts in saved["inbox"].items()})
        self._sat_out = {(peer, r) for peer, r in tree["sat_out"]}
        self.board.restore([Shelved(s["time"], self.stage.known(unpacked(s))) for s in tree["shelves"]])
        self.bulletin.restore(tree["bulletin"], max(p.silences for p in self.all))
        for shelving in self.bulletin.shelvings_ahead:
            self._push(shelving.time, SERVE, TO_ALL, None)
        for silence in self.bulletin.silences_ahead:
            self._push(silence.time, SILENCE, TO_ALL, None)
        self._known_letters = {(sender, count) for sender, count in tree["already"]}
        for x in tree["in_flight"]:
            artifact = self.stage.known(unpacked(x))
            letter = Letter(tuple(x["number"]), x["sent_in"], x["to"], x["arrival"], artifact)
            self._letters.append(letter)
            self._post(letter.arrival, letter)

    # -- when nobody can go on -----------------------------------------------------------------

    def _check_deadlock(self) -> None:
        stuck = [p for p in self.all if not (p.done or p.gone)]
        if not stuck:
            return
        lines = [plea(p, self._waiting) for p in stuck[:5]]
        more = f"; and {len(stuck) - 5} more" if len(stuck) > 5 else ""
        raise DeadlockError(f"nobody can go on: {'; '.join(lines)}{more}")
