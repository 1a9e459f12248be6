"""The simulation: who goes on when, on a virtual clock. Where participants act is a stage (`engines.stage`).

Events are processed in the order of simulated time. What a peer computes depends on that peer alone, so
computing is put off until its result is needed and then done for everyone who has asked by then: forty
peers that train the same small architecture become one batched call. At one instant all who can go on do
so first, and fetches are served after: what a fetch sees never depends on the order of peers.
"""

from __future__ import annotations

import logging
import math
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from coterie.core import checkpoint, memory
from coterie.core.artifact import Artifact
from coterie.core.checkpoint import packed, unpacked
from coterie.core.errors import CoterieError, DeadlockError, Interrupted, RunError
from coterie.core.events import EventLog, PeerAway, PeerRound
from coterie.core.requests import Fetch, News, Receive, Request, Send
from coterie.engines.driving import SETUP
from coterie.engines.measuring import Measured
from coterie.engines.shelves import Shelved, Shelves
from coterie.simulation.clock import Clock
from coterie.simulation.event_queue import DELIVER, EXPIRE, RESUME, SERVE, SILENCE, TO_ALL, Agenda
from coterie.simulation.fetching import Fetching
from coterie.simulation.mail import Post
from coterie.simulation.news import Bulletin, Silence
from coterie.simulation.participants import OpenFetch, Participant, plea
from coterie.simulation.protocol import Computed, Reply, Turn, Working
from coterie.simulation.stage import Stage

_log = logging.getLogger(__name__)

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
        self.board = Shelves(asynchronous or stage.asynchronous)
        self.agenda = Agenda()
        self.fetching = Fetching(self.agenda, clock, self.board, self.all)
        self.post = Post(self.agenda, clock, stage, self.all, keeps=folder is not None)
        self.start_after = 0  # rounds that a checkpoint says are done
        self.stop_at: int | None = None
        self.following: Callable[[int], int] = lambda round: round + 1  # a rehearsal leaps over some rounds
        self._stop_asked = False
        self._asked: dict[int, set[int]] = defaultdict(set)  # who waits for something to be computed, by round
        self._records: list[PeerRound | PeerAway] = []  # which are still to be measured
        self._diverged: set[int] = set()  # whose loss was no number when it was last measured
        self._listening: set[int] = set()  # who waits for news
        self._tells_news_at = math.nan
        self.bulletin = Bulletin()
        self._at_round: Counter[int] = Counter()
        self._settled = 0  # the oldest round that somebody is in
        self._cuts: dict[int, dict[int, dict[str, Any]]] = {}

    # -- running -------------------------------------------------------------------------------

    def run(self) -> None:
        """Until every participant has done its rounds; raises Interrupted after a stop, DeadlockError if stuck."""
        for p in self.all:
            if p.gone:
                continue
            self._at_round[p.round] += 1
            self.agenda.put(p.time, RESUME, p.id, NEXT_ROUND)
        for peer, windows in self.clock.windows.items():
            for start, _ in windows:
                self.agenda.put(start, EXPIRE, peer, None)
        try:
            with memory.seldom_searched():
                self._until_the_end()
        finally:
            self.stage.end()
            if self.log:
                self.log.flush()
        self._check_deadlock()
        self._warn_of_asked_in_vain()

    def _warn_of_asked_in_vain(self) -> None:
        """Unless training diverged, which is told elsewhere: a method may have nothing to shelve then."""
        for name in sorted(self.fetching.asked_in_vain if not self._diverged else ()):
            _log.warning("nobody ever shelved '%s', which was asked for: a slip in the method?", name)

    def _until_the_end(self) -> None:
        while True:
            if self._nothing_will_come():
                self._tell_of_silence(self.bulletin.silence(self.now))
            if not self.agenda:
                break
            self._instant()
        self._record_rounds(self.rounds)

    def stop(self) -> None:
        """Stop at the next round that everybody can finish, leaving a checkpoint. Safe in a signal handler."""
        self._stop_asked = True

    @property
    def now(self) -> float:
        """Simulated seconds."""
        return self.agenda.now

    def without_checkpoints(self) -> None:
        """Keep nothing that only a checkpoint would need."""
        self.folder, self.post.keeps = None, False

    def _instant(self) -> None:
        """Everything of one time and one phase."""
        phase, events = self.agenda.instant()
        if phase == RESUME:
            self._go_on([(self.all[peer], what) for peer, what in events])
            return
        for peer, what in events:
            if phase == SERVE:
                if isinstance(what, OpenFetch):
                    self.fetching.serve(what)
                else:
                    self._tell_news()
            elif phase == DELIVER:
                self.post.deliver(what)
            elif phase == EXPIRE:
                if what is None:
                    self._goes_away(self.all[peer])
                else:
                    self.fetching.expire(what)
            else:
                self._tell_of_silence(self.bulletin.silence_ahead())

    def _catch_up(self, p: Participant) -> int:
        """The round to do next: one's own, or the circle's current one after having been away."""
        if p.was_away and not self.board.asynchronous:
            p.was_away = False
            others = [q.round for q in self.all if not (q.gone or q.done or q.was_away) and q.time <= self.now]
            before, after = p.round, min(max([p.round, *others]), max(p.round, self.rounds))
            for skipped in range(before, after):
                self.fetching.sits_out(p.id, skipped)
            self._enter(p, after)
        p.was_away = False
        return p.round

    def _enter(self, p: Participant, round: int) -> None:
        """Go on to a round, leaving behind what a checkpoint of any round before it needs."""
        before = p.round
        self._leave_round(p)
        p.round = round
        self._at_round[round] += 1
        self.fetching.went_on(p)
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
            self.fetching.sits_out(p.id, round)
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
            self._end_round(p, p.end_round(self.now, reply.notes))
        return None

    def _leave(self, p: Participant, until: float, what: Any) -> None:
        p.was_away = True
        if until < math.inf:
            self.agenda.put(until, RESUME, p.id, what)
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
            self.agenda.put(self.now + self.clock.training(id, request.samples), RESUME, id, COMPUTED)
        elif isinstance(request, Fetch):
            self.fetching.open(p, request)
        elif isinstance(request, Send):
            self.post.send(p, request)
        elif isinstance(request, Receive):
            self.post.hand_over(p)
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

    def _shelve(self, artifact: Artifact) -> None:
        self.board.put(artifact, self.now, self._oldest_round())
        self.all[artifact.author].shelved += 1
        self.bulletin.shelve(self.now, artifact.round)
        if self._listening:
            self._tell_news_at(self.now)
        self.fetching.shelved(artifact)

    def _oldest_round(self) -> int:
        return min(self._at_round, default=0)

    def _goes_away(self, p: Participant) -> None:
        """Others wait for it in vain. Who itself waits for others would never notice that it has gone for good."""
        self.fetching.goes_away(p.id)
        waits = isinstance(p.waits_for, Receive | News) and not p.gone
        if waits and self.clock.away_until(p.id, self.now) == math.inf:
            self._leave(p, math.inf, None)

    # -- news ----------------------------------------------------------------------------------

    def _tell_news_at(self, time: float) -> None:
        """Tell all who listen, once, after everybody has gone on at that time."""
        if self._tells_news_at != time:
            self._tells_news_at = time
            self.agenda.put(time, SERVE, TO_ALL, None)

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
        return self.agenda.has_only_departures()

    def _tell_of_silence(self, silence: Silence) -> None:
        """There is no news. (After a resume, some may have been told before.)"""
        for p in [self.all[id] for id in sorted(self._listening)]:
            if p.silences < silence.number:
                p.silences = silence.number
                self._answer_news(p, False)

    def _answer_news(self, p: Participant, there_is: bool) -> None:
        self._listening.discard(p.id)
        p.waits_for = None
        self.agenda.put(self.now, RESUME, p.id, there_is)

    # -- the end of a round, checkpoints -------------------------------------------------------

    def _end_round(self, p: Participant, record: PeerRound | PeerAway) -> None:
        self._records.append(record)
        if self._stop_asked and self.stop_at is None:
            if any(q.done or q.round >= self.rounds for q in self.all):  # who is can be part of no new checkpoint
                raise Interrupted("stopped; it goes on from the last checkpoint")
            self.stop_at = max(q.round for q in self.all if not q.gone)
        self._enter(p, self.following(p.round))
        self._settle()
        self.agenda.put(self.now, RESUME, p.id, NEXT_ROUND)

    def _settle(self) -> None:
        """When everybody has left a round behind: measure it, and forget what was only kept for it."""
        oldest = self._oldest_round()
        if oldest <= self._settled:
            return
        self._settled = oldest
        self._record_rounds(oldest - 1)
        self.fetching.settle(oldest)
        self.post.settle(oldest - 1)

    def _record_rounds(self, until: int) -> None:
        """Those up to this one, each measured and written down at once; measuring takes no simulated time."""
        due = [record for record in self._records if record.round <= until]
        self._records = [record for record in self._records if record.round > until]
        for round in sorted({record.round for record in due}):
            measured = self.stage.measured(round)
            of_round = sorted((record for record in due if record.round == round), key=lambda record: record.peer)
            self._record([_with(measured.get(record.peer), record) for record in of_round])

    def _is_cut(self, done: int) -> bool:
        """Whether a checkpoint is to be taken after this round."""
        if self.folder is None or not self.start_after < done < self.rounds:
            return False
        regular = self.checkpoint_every > 0 and done % self.checkpoint_every == 0
        return regular or done == self.stop_at

    def _record(self, records: list[PeerRound | PeerAway]) -> None:
        for record in records:
            if isinstance(record, PeerRound) and record.validation is not None:
                (self._diverged.add if record.loss is None else self._diverged.discard)(record.peer)
        if self.log:
            self.log.write(*records)
        if self.on_record:
            for record in records:
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
        shelved = self.board.until(round)
        shelves = self.stage.whole([s.artifact for s in shelved])
        tree = {
            "participants": [{**kept[p.id], **cut[p.id]} for p in self.all],
            "gone": gone,
            # Only what a participant has skipped beyond this round; what it sits out later it will find out again.
            "sat_out": [list(s) for s in sorted(self.fetching.sat_out) if round < s[1] < cut[s[0]]["round"]],
            "bulletin": self.bulletin.of_cut(round),
            "shelves": [{"time": s.time, **packed(a)} for s, a in zip(shelved, shelves, strict=True)],
            **self.post.of_cut(round),
            "seconds": self.seconds(),
        }  # fmt: skip
        self._record_rounds(round)
        if self.log:
            self.log.flush()
        checkpoint.save(self.folder, round, tree)
        del self._cuts[round]
        self.bulletin.end_cut(round)
        self.post.settle(round)
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
        self.fetching.sat_out = {(peer, r) for peer, r in tree["sat_out"]}
        self.board.restore([Shelved(s["time"], self.stage.known(unpacked(s))) for s in tree["shelves"]])
        self.bulletin.restore(tree["bulletin"], max(p.silences for p in self.all))
        for shelving in self.bulletin.shelvings_ahead:
            self.agenda.put(shelving.time, SERVE, TO_ALL, None)
        for silence in self.bulletin.silences_ahead:
            self.agenda.put(silence.time, SILENCE, TO_ALL, None)
        self.post.restore(round, tree)

    # -- when nobody can go on -----------------------------------------------------------------

    def _check_deadlock(self) -> None:
        stuck = [p for p in self.all if not (p.done or p.gone)]
        if not stuck:
            return
        lines = [plea(p, self.fetching.waiting) for p in stuck[:5]]
        more = f"; and {len(stuck) - 5} more" if len(stuck) > 5 else ""
        raise DeadlockError(f"nobody can go on: {'; '.join(lines)}{more}")


def _with(found: Measured | None, record: PeerRound | PeerAway) -> PeerRound | PeerAway:
    """The record, with what was measured."""
    return found.onto(record) if found and isinstance(record, PeerRound) else record
