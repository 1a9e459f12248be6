"""The simulation: every participant's coroutine in one process, on a virtual clock.

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
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from coterie.engines import checkpoint
from coterie.engines.board import Board, Shelved
from coterie.engines.bulletin import Bulletin, Silence
from coterie.engines.clock import EVALUATION_COST, Clock
from coterie.engines.measuring import Measure, is_due, measure_of, settle
from coterie.engines.participants import Answer, EndOfRound, Letter, OpenFetch, Participant, packed, plea, unpacked
from coterie.errors import CoterieError, DeadlockError, Interrupted, RunError
from coterie.events import EventLog, PeerAway, PeerRound
from coterie.methods.base import Method
from coterie.peer import Compute, Evaluate, Fetch, News, Peer, Predict, Receive, Request, Send, Train
from coterie.shelf import Artifact
from coterie.training import FitJob, Trainer

_log = logging.getLogger(__name__)

T = TypeVar("T")

# The order of what happens at one instant.
DELIVER, RESUME, SERVE, EXPIRE, SILENCE = range(5)
TO_ALL = -1  # in the place of a peer


class Simulation:
    """Runs a method with these participants (the server last, where there is one) for so many rounds."""

    def __init__(
        self,
        method: Method,
        participants: Sequence[Peer],
        rounds: int,
        trainer: Trainer,
        clock: Clock,
        log: EventLog | None = None,
        *,
        asynchronous: bool = False,
        evaluate_every: int = 1,
        checkpoint_every: int = 0,
        folder: Path | None = None,
        on_record: Callable[[PeerRound | PeerAway], None] | None = None,
        seconds: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.method, self.rounds, self.trainer, self.clock, self.log = method, rounds, trainer, clock, log
        self.evaluate_every, self.checkpoint_every, self.folder = evaluate_every, checkpoint_every, folder
        self.on_record = on_record
        self.seconds = seconds  # of computing so far, over all parts of a resumed run
        self.all = [Participant(peer) for peer in participants]
        self.board = Board(asynchronous or method.asynchronous)
        self.now = 0.0
        self.start_after = 0  # rounds that a checkpoint says are done
        self.stop_at: int | None = None
        self._stop_asked = False
        self._events: list[tuple[float, int, int, Any, Any]] = []
        self._order = itertools.count()
        # By round, and then by peer: what is computed together, and in which order, must not depend on where a run was
        # resumed, for the last bits of the numbers do.
        self._fits: dict[int, dict[int, tuple[Answer, FitJob]]] = defaultdict(dict)
        self._asked: dict[int, dict[int, tuple[Answer, Evaluate | Predict | Compute[Any]]]] = defaultdict(dict)
        self._measures: list[Measure | PeerAway] = []
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
        for peer in participants:
            peer.desk = self

    # -- running -------------------------------------------------------------------------------

    def run(self) -> None:
        """Until every participant has done its rounds; raises Interrupted after a stop, DeadlockError if stuck."""
        for p in self.all:
            if p.gone:
                continue
            p.coroutine = self._life(p)
            self._at_round[p.round] += 1
            self._push(p.time, RESUME, p.peer.id, Answer())
        for peer, windows in self.clock.windows.items():
            for start, _ in windows:
                self._push(start, EXPIRE, peer, None)
        try:
            while True:
                if self._nothing_will_come():
                    self._tell_of_silence(self.bulletin.silence(self.now))
                if not self._events:
                    break
                self._instant()
            self._record_measures(self.rounds)
        finally:
            for p in self.all:
                if p.coroutine is not None:
                    p.coroutine.close()
            if self.log:
                self.log.flush()
        self._check_deadlock()
        for name in sorted(self._asked_in_vain):
            _log.warning("nobody ever shelved '%s', which was asked for: a slip in the method?", name)

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
            for round in sorted({self.all[event[2]].round for event in batch if not event[4].ready}):
                self._compute(round)
        for _, _, peer, _, what in batch:
            if phase == RESUME:
                self._resume(self.all[peer], what)
            elif phase == SERVE:
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

    async def _life(self, p: Participant) -> None:
        """One participant's run: its method's rounds, each measured and recorded."""
        me, is_server = p.peer, p.peer.id == p.peer.server
        if p.round == 0:
            await self.method.setup(me)
            self._enter(p, 1)
        while p.round <= self.rounds:
            t = self._catch_up(p)
            me.begin(t)
            if self.clock.sits_out(me.id, t):
                self._sit_out(me.id, t)
                await EndOfRound(PeerAway(me.id, t, self.now, self.now))
                continue
            await (self.method.serve(me, t) if is_server else self.method.round(me, t))
            await EndOfRound(PeerRound(me.id, t, self.now, notes=me.notes))

    def _catch_up(self, p: Participant) -> int:
        """The round to do next: one's own, or the circle's current one after having been away."""
        if p.was_away and not self.board.asynchronous:
            p.was_away = False
            others = [q.round for q in self.all if not (q.gone or q.done or q.was_away) and q.time <= self.now]
            before, after = p.round, min(max([p.round, *others]), max(p.round, self.rounds))
            for skipped in range(before, after):
                self._sit_out(p.peer.id, skipped)
            self._enter(p, after)
        p.was_away = False
        return p.round

    def _enter(self, p: Participant, round: int) -> None:
        """Go on to a round, leaving behind what a checkpoint of any round before it needs."""
        before = p.round
        self._leave_round(p)
        p.round = round
        self._at_round[round] += 1
        for waiting in list(self._waiting.get(p.peer.id, ())):
            if not self._may_shelve(p.peer.id, waiting.request.round):
                self._arrive(waiting, p.peer.id, None)
        for done in range(before, round):
            if self._is_cut(done):
                if done not in self._cuts:
                    self.bulletin.begin_cut(done, self.now)
                self._cuts.setdefault(done, {})[p.peer.id] = self._snapshot(p)
                self.board.retain = True
                self._complete(done)

    def _leave_round(self, p: Participant) -> None:
        self._at_round[p.round] -= 1
        if not self._at_round[p.round]:
            del self._at_round[p.round]

    # -- one participant goes on ---------------------------------------------------------------

    def _resume(self, p: Participant, answer: Answer) -> None:
        away_until = self.clock.away_until(p.peer.id, self.now)
        if away_until is not None:
            self._leave(p, away_until, answer)
            return
        assert p.coroutine is not None
        try:
            request = p.coroutine.send(answer.value)
        except StopIteration:
            p.done = True
            p.waits_for = None
            self._leave_round(p)
            return
        p.waits_for, p.time = request, self.now
        self._accept(p, request)

    def _leave(self, p: Participant, until: float, answer: Answer) -> None:
        p.was_away = True
        if until < math.inf:
            self._push(until, RESUME, p.peer.id, answer)
            return
        p.gone = True
        self._listening.discard(p.peer.id)
        self._leave_round(p)
        self._measures.append(PeerAway(p.peer.id, p.round, self.now, None))
        for round in list(self._cuts):
            self._complete(round)

    def _accept(self, p: Participant, request: Request[Any]) -> None:
        id, clock = p.peer.id, self.clock
        if isinstance(request, Train):
            answer = Answer(ready=False)
            self._fits[p.round][id] = answer, request.job
            job = request.job
            samples = len(job.split) * job.settings.epochs * max(1, job.views)
            self._push(self.now + clock.training(id, samples), RESUME, id, answer)
        elif isinstance(request, Evaluate | Predict | Compute):
            answer = Answer(ready=False)
            self._asked[p.round][id] = answer, request
            self._push(self.now + clock.training(id, _worth(request)), RESUME, id, answer)
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
        elif isinstance(request, EndOfRound):
            self._end_round(p, request.record)
        else:
            raise CoterieError(f"peer {id} awaited {request!r}: only the verbs of `me` can be awaited in a method")

    def _compute(self, round: int) -> None:
        """Everything that anybody in this round has asked for, at once."""
        self._record_measures(round - 1)
        fits = _by_peer(self._fits.pop(round, {}))
        for (answer, _), loss in zip(fits, self.trainer.fit([job for _, job in fits]), strict=True):
            answer.value, answer.ready = loss, True
        asked = _by_peer(self._asked.pop(round, {}))
        for kind, compute in ((Evaluate, self.trainer.evaluate), (Predict, self.trainer.predict)):
            of_kind = [(answer, request.jobs) for answer, request in asked if isinstance(request, kind)]
            results: Iterator[Any] = iter(compute([job for _, jobs in of_kind for job in jobs]))
            for answer, jobs in of_kind:
                answer.value, answer.ready = [next(results) for _ in jobs], True
        calls = [(answer, request) for answer, request in asked if isinstance(request, Compute)]
        for (answer, _), value in zip(calls, self.trainer.call([c.function for _, c in calls]), strict=True):
            answer.value, answer.ready = value, True

    # -- fetching ------------------------------------------------------------------------------

    def shelve(self, artifact: Artifact) -> None:
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
        answer = Answer({a: f.arrived[a].artifact for a in sorted(f.arrived)})
        self._push(self.now + takes, RESUME, f.by, answer)

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
                self._leave(p, math.inf, Answer())
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
        self._listening.discard(p.peer.id)
        p.waits_for = None
        self._push(self.now, RESUME, p.peer.id, Answer(there_is))

    # -- sending -------------------------------------------------------------------------------

    def _send(self, p: Participant, request: Send) -> None:
        if not 0 <= request.to < len(self.all):
            raise CoterieError(f"peer {request.to} was sent something, but there are {len(self.all)} participants")
        size = request.artifact.nbytes
        arrival = self.now + self.clock.transfer(p.peer.id, size)
        letter = Letter((p.peer.id, p.letters_sent), p.round, request.to, arrival, request.artifact)
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
        self._push(self.now, RESUME, p.peer.id, Answer(delivered))

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
        p.inbox.setdefault(letter.artifact.name, []).append(letter.artifact)
        self._hand_over(p)

    def _hand_over(self, p: Participant) -> None:
        """If a participant waits for messages and there are some, it goes on."""
        if isinstance(p.waits_for, Receive) and p.inbox.get(p.waits_for.name):
            p.waited += self.now - p.time
            self._push(self.now, RESUME, p.peer.id, Answer(p.inbox.pop(p.waits_for.name)))
            p.waits_for = None

    def inbox(self, peer: int, name: str) -> list[Artifact]:
        return self.all[peer].inbox.pop(name, [])

    # -- the end of a round, checkpoints -------------------------------------------------------

    def _end_round(self, p: Participant, record: PeerRound | PeerAway) -> None:
        if isinstance(record, PeerRound):
            record.bytes.update(+p.bytes)
            record.messages.update(+p.messages)
            if p.waited:
                record.notes["waited"] = round(p.waited, 6)
            p.bytes, p.messages, p.waited = Counter(), Counter(), 0.0
        self._measure(p.peer, record)
        if self._stop_asked and self.stop_at is None:
            if any(q.done or q.round >= self.rounds for q in self.all):  # who is can be part of no new checkpoint
                raise Interrupted("stopped; it goes on from the last checkpoint")
            self.stop_at = max(q.round for q in self.all if not q.gone)
        self._enter(p, p.round + 1)
        self._settle()
        self._push(self.now, RESUME, p.peer.id, Answer())

    def _settle(self) -> None:
        """When everybody has left a round behind: measure it, and forget what was only kept for it."""
        oldest = self._oldest_round()
        if oldest <= self._settled:
            return
        self._settled = oldest
        self._record_measures(oldest - 1)
        self._sat_out = {s for s in self._sat_out if s[1] >= oldest}
        self._letters = [x for x in self._letters if not (x.sent_in < oldest and x.had_by(oldest - 1))]

    def _measure(self, me: Peer, record: PeerRound | PeerAway) -> None:
        """Have the model measured as it is now, whenever the next computation is due; takes no simulated time."""
        if isinstance(record, PeerAway):
            self._measures.append(record)
        else:
            due = is_due(record.round, self.evaluate_every, self.rounds)
            self._measures.append(measure_of(record, me) if due else Measure(record, me))

    def _record_measures(self, until: int) -> None:
        """Those of the rounds up to this one, each round's at once."""
        due = [m for m in self._measures if _record_of(m).round <= until]
        for round in sorted({_record_of(m).round for m in due}):
            self._record_round([m for m in due if _record_of(m).round == round])
        self._measures = [m for m in self._measures if _record_of(m).round > until]

    def _record_round(self, measures: list[Measure | PeerAway]) -> None:
        in_order = sorted((m for m in measures if isinstance(m, Measure)), key=lambda m: m.record.peer)
        away = [m for m in measures if isinstance(m, PeerAway)]
        records: list[PeerRound | PeerAway] = [*settle(in_order, self.trainer), *away]
        for record in sorted(records, key=lambda record: record.peer):
            self._record(record)

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

    def _snapshot(self, p: Participant) -> dict[str, Any]:
        return {
            **checkpoint.of_peer(p.peer), "round": p.round, "time": self.now, "was_away": p.was_away,
            "letters_sent": p.letters_sent, "shelved": p.shelved, "heard": p.heard,
            "silences": p.silences,
            "inbox": {name: [packed(a) for a in artifacts] for name, artifacts in p.inbox.items()},
        }  # fmt: skip

    def _complete(self, round: int) -> None:
        """Write the checkpoint once every participant that is still there has come to the end of its round."""
        cut = self._cuts[round]
        if any(p.peer.id not in cut and not p.gone for p in self.all):
            return
        assert self.folder is not None
        # Who left for good after this round is still to leave, for a run that goes on from here.
        gone = [p.peer.id for p in self.all if p.gone and p.peer.id not in cut]
        cut.update({id: self._snapshot(self.all[id]) for id in gone})
        in_flight = [x for x in self._letters if x.sent_in <= round and not x.had_by(round)]
        already = [list(x.number) for x in self._letters if x.sent_in > round and x.had_by(round)]
        tree = {
            "participants": [cut[p.peer.id] for p in self.all],
            "gone": gone,
            # Only what a participant has skipped beyond this round; what it sits out later it will find out again.
            "sat_out": [list(s) for s in sorted(self._sat_out) if round < s[1] < cut[s[0]]["round"]],
            "bulletin": self.bulletin.of_cut(round),
            "shelves": [{"time": s.time, **packed(s.artifact)} for s in self.board.until(round)],
            "in_flight": [x.packed() for x in in_flight],
            "already": already,
            "seconds": self.seconds(),
        }  # fmt: skip
        self._record_measures(round)
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
        for p, saved in zip(self.all, tree["participants"], strict=True):
            checkpoint.to_peer(p.peer, saved)
            self.method.revive(p.peer)
            p.round, p.time, p.was_away = saved["round"], saved["time"], saved["was_away"]
            p.letters_sent, p.gone = saved["letters_sent"], p.peer.id in tree["gone"]
            p.shelved, p.heard, p.silences = saved["shelved"], saved["heard"], saved["silences"]
            p.inbox = {name: [unpacked(a) for a in artifacts] for name, artifacts in saved["inbox"].items()}
        self._sat_out = {(peer, r) for peer, r in tree["sat_out"]}
        self.board.restore([Shelved(s["time"], unpacked(s)) for s in tree["shelves"]])
        self.bulletin.restore(tree["bulletin"], max(p.silences for p in self.all))
        for shelving in self.bulletin.shelvings_ahead:
            self._push(shelving.time, SERVE, TO_ALL, None)
        for silence in self.bulletin.silences_ahead:
            self._push(silence.time, SILENCE, TO_ALL, None)
        self._known_letters = {(sender, count) for sender, count in tree["already"]}
        for x in tree["in_flight"]:
            letter = Letter(tuple(x["number"]), x["sent_in"], x["to"], x["arrival"], unpacked(x))
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


def _worth(request: Evaluate | Predict | Compute[Any]) -> float:
    """In samples trained."""
    if isinstance(request, Compute):
        return request.samples
    return EVALUATION_COST * sum(len(job.split) for job in request.jobs)


def _record_of(measure: Measure | PeerAway) -> PeerRound | PeerAway:
    return measure.record if isinstance(measure, Measure) else measure


def _by_peer(requests: dict[int, T]) -> list[T]:
    return [requests[peer] for peer in sorted(requests)]
