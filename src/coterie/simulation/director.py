"""The simulation's director: decides on a virtual clock when each participant acts. A stage (`simulation.protocol`)
executes the participants.

Events are processed in the order of simulated time. A peer's computation depends only on that peer, so it is deferred
until its result is needed, and then done for all peers that have requested one by then: forty peers that train the
same small architecture become one batched call. At each instant all participants act first, and fetches are served
afterwards, so the result of a fetch never depends on the order of peers.
"""

from __future__ import annotations

import logging
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NotRequired, TypedDict, cast

from coterie.core import checkpoint, memory
from coterie.core.artifact import Artifact
from coterie.core.checkpoint import SavedArtifact, Tree, packed, unpacked
from coterie.core.errors import CoterieError, DeadlockError, Interrupted, RunError
from coterie.core.events import EventLog, PeerAway, PeerRound
from coterie.core.requests import Fetch, News, Receive, Request, Send
from coterie.engines.driving import SETUP
from coterie.engines.measuring import Measured
from coterie.engines.predictions import Predictions, SavedPrediction
from coterie.engines.shelves import Shelved, Shelves
from coterie.metrics.selection import BY_ACCURACY
from coterie.simulation.clock import Clock
from coterie.simulation.event_queue import DELIVER, EXPIRE, RESUME, SERVE, SILENCE, TO_ALL, EventQueue
from coterie.simulation.fetching import Fetching
from coterie.simulation.mail import Mail, SavedMail
from coterie.simulation.news import NewsLog, SavedNews, Silence
from coterie.simulation.participants import OpenFetch, Participant, describe_wait
from coterie.simulation.protocol import Computed, Reply, SavedActor, Stage, Turn, Working

_log = logging.getLogger(__name__)

NEXT_ROUND, COMPUTED = object(), Computed()  # what a participant resumes with, if not with an answer


def round_after(round: int) -> int:
    return round + 1


class SavedPosition(TypedDict):
    """The director's part of a participant's snapshot for a checkpoint."""

    round: int
    time: float
    was_away: bool
    letters_sent: int
    shelved: int
    heard: int
    silences: int


class SavedParticipant(SavedActor, SavedPosition):
    pass


class SavedVersion(SavedArtifact):
    time: float  # when it was shelved


class SavedRun(SavedMail):
    """A checkpoint of a simulation."""

    participants: list[SavedParticipant]
    gone: list[int]
    sat_out: list[list[int]]
    bulletin: SavedNews
    shelves: list[SavedVersion]
    seconds: float
    predictions: NotRequired[list[SavedPrediction]]  # older versions wrote none


class Simulation:
    """Directs the participants of a stage (a server is the last of them) through their rounds."""

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
        following: Callable[[int], int] = round_after,
        predictions: Predictions | None = None,
    ) -> None:
        self.stage, self.rounds, self.clock, self.log = stage, stage.rounds, clock, log
        self.checkpoint_every, self.folder = checkpoint_every, folder
        self.on_record = on_record
        self.predictions = predictions or Predictions(BY_ACCURACY)
        self.following = following  # the round after this one: a rehearsal skips some
        self.seconds = seconds  # computing time so far, over all parts of a resumed run
        self.participants = [Participant(id) for id in sorted(stage.peers)]
        self.shelves = Shelves(asynchronous or stage.asynchronous)
        self.queue = EventQueue()
        self.fetching = Fetching(self.queue, clock, self.shelves, self.participants)
        self.mail = Mail(self.queue, clock, stage, self.participants, keeps=folder is not None)
        self.start_after = 0  # rounds that the checkpoint has completed
        self.stop_at: int | None = None
        self.computing = 0  # the round that the stage is currently computing
        self._stop_requested = False
        self._computing: dict[int, set[int]] = defaultdict(set)  # participants that wait for a computation, by round
        self._records: list[PeerRound | PeerAway] = []  # not yet measured
        self._diverged: set[int] = set()  # participants whose loss was not finite when last measured
        self._listening: set[int] = set()  # participants that wait for news
        self._announces_news_at = math.nan
        self.news = NewsLog()
        self._at_round: Counter[int] = Counter()
        self._oldest_finished = 0  # the oldest round of any participant, when rounds were last finished
        self._cuts: dict[int, dict[int, SavedPosition]] = {}  # by round and participant

    # -- running -------------------------------------------------------------------------------

    def run(self) -> None:
        """Run until every participant has done its rounds; raises Interrupted after a stop, DeadlockError if stuck."""
        for p in self.participants:
            if p.gone:
                continue
            self._at_round[p.round] += 1
            self.queue.put(p.time, RESUME, p.id, NEXT_ROUND)
        for peer, windows in self.clock.windows.items():
            for start, _ in windows:
                self.queue.put(start, EXPIRE, peer, None)
        try:
            with memory.infrequent_gc():
                self._process_events()
        finally:
            self.stage.end()
            if self.log:
                self.log.flush()
        self._check_deadlock()
        self._warn_of_never_shelved()

    def _warn_of_never_shelved(self) -> None:
        """Not if training diverged, which is reported elsewhere: a method may have nothing to shelve then."""
        for name in sorted(self.fetching.never_shelved if not self._diverged else ()):
            _log.warning("'%s' was fetched, but no peer ever shelved it: is the name misspelt in the method?", name)

    def _process_events(self) -> None:
        while True:
            if self._nothing_will_come():
                self._announce_silence(self.news.silence(self.now))
            if not self.queue:
                break
            self._process_next()
        self._record_rounds(self.rounds)

    def stop(self) -> None:
        """Stop with a checkpoint at the next round that all participants can finish. Safe in a signal handler."""
        self._stop_requested = True

    @property
    def now(self) -> float:
        """Simulated seconds."""
        return self.queue.now

    def _process_next(self) -> None:
        """Process all events of the next time and phase."""
        phase, events = self.queue.pop()
        if phase == RESUME:
            self._resume([(self.participants[peer], what) for peer, what in events])
            return
        for peer, what in events:
            if phase == SERVE:
                if isinstance(what, OpenFetch):
                    self.fetching.serve(what)
                else:
                    self._announce_news()
            elif phase == DELIVER:
                self.mail.deliver(what)
            elif phase == EXPIRE:
                if what is None:
                    self._goes_away(self.participants[peer])
                else:
                    self.fetching.expire(what)
            else:
                self._announce_silence(self.news.silence_ahead())

    def _catch_up(self, p: Participant) -> int:
        """The round to do next: the participant's own or, after an absence, the current one of the others."""
        if p.was_away and not self.shelves.asynchronous:
            p.was_away = False
            others = [q.round for q in self.participants if not (q.gone or q.done or q.was_away) and q.time <= self.now]
            before, after = p.round, min(max([p.round, *others]), max(p.round, self.rounds))
            for skipped in range(before, after):
                self.fetching.sits_out(p.id, skipped)
            self._enter(p, after)
        p.was_away = False
        return p.round

    def _enter(self, p: Participant, round: int) -> None:
        """Move to a round, after taking the snapshots that checkpoints of earlier rounds need."""
        before = p.round
        self._leave_round(p)
        p.round = round
        self._at_round[round] += 1
        self.fetching.entered_round(p)
        for done in range(before, round):
            if self._is_cut(done):
                if done not in self._cuts:
                    self.news.begin_cut(done, self.now)
                self._cuts.setdefault(done, {})[p.id] = self._snapshot(p, done)
                self.shelves.retain = True
                self._complete(done)

    def _leave_round(self, p: Participant) -> None:
        self._at_round[p.round] -= 1
        if not self._at_round[p.round]:
            del self._at_round[p.round]

    # -- participants act ----------------------------------------------------------------------

    def _resume(self, events: list[tuple[Participant, Any]]) -> None:
        """Let these participants act, each until its next request."""
        for round in sorted({p.round for p, what in events if what is COMPUTED and not p.computed}):
            self._compute(round)
        turns = [turn for p, what in events if (turn := self._turn(p, what))]
        while turns:  # a participant continues with its first round right after its setup
            turns = [turn for reply in self.stage.act(self.now, turns) if (turn := self._handle(reply))]

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

    def _handle(self, reply: Reply) -> Turn | None:
        """Process what a participant did, and its next request."""
        p = self.participants[reply.peer]
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
            self.queue.put(until, RESUME, p.id, what)
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
            self._computing[p.round].add(id)
            self.queue.put(self.now + self.clock.training(id, request.samples), RESUME, id, COMPUTED)
        elif isinstance(request, Fetch):
            self.fetching.open(p, request)
        elif isinstance(request, Send):
            self.mail.send(p, request)
        elif isinstance(request, Receive):
            self.mail.hand_over(p)
        elif isinstance(request, News):
            self._listening.add(id)
            self._announce_news_at(self.now)
        else:
            raise CoterieError(f"peer {id} awaited {request!r}: only the verbs of `me` can be awaited in a method")

    def _compute(self, round: int) -> None:
        """Do all computations that participants in this round have requested, at once."""
        self._record_rounds(round - 1)
        self.computing = round
        self.stage.compute(round)
        for id in self._computing.pop(round, ()):
            self.participants[id].computed = True

    def _shelve(self, artifact: Artifact) -> None:
        self.shelves.put(artifact, self.now, self._oldest_round())
        self.participants[artifact.author].shelved += 1
        self.news.shelve(self.now, artifact.round)
        if self._listening:
            self._announce_news_at(self.now)
        self.fetching.shelved(artifact)

    def _oldest_round(self) -> int:
        return min(self._at_round, default=0)

    def _goes_away(self, p: Participant) -> None:
        """Complete the fetches of others without it. If it waits for others itself and will not return, it leaves
        now, because nothing would ever resume it."""
        self.fetching.goes_away(p.id)
        waits = isinstance(p.waits_for, Receive | News) and not p.gone
        if waits and self.clock.away_until(p.id, self.now) == math.inf:
            self._leave(p, math.inf, None)

    # -- news ----------------------------------------------------------------------------------

    def _announce_news_at(self, time: float) -> None:
        """Schedule one announcement to all listening participants, after all have acted at that time."""
        if self._announces_news_at != time:
            self._announces_news_at = time
            self.queue.put(time, SERVE, TO_ALL, None)

    def _announce_news(self) -> None:
        """Resume listening participants for which others have shelved something new."""
        self._announces_news_at = math.nan
        total = self.news.shelved_by(self.now)
        for id in sorted(self._listening):
            p = self.participants[id]
            if total - p.shelved > p.news_seen:
                p.news_seen = total - p.shelved
                self._answer_news(p, True)

    def _nothing_will_come(self) -> bool:
        """Whether all remaining participants wait for news, and no event can bring any."""
        if not self._listening or len(self._listening) < self._at_round.total():
            return False
        return self.queue.has_only_departures()

    def _announce_silence(self, silence: Silence) -> None:
        """Tell listening participants that there is no news. (After a resume, some have been told already.)"""
        for p in [self.participants[id] for id in sorted(self._listening)]:
            if p.silences < silence.number:
                p.silences = silence.number
                self._answer_news(p, False)

    def _answer_news(self, p: Participant, any_news: bool) -> None:
        self._listening.discard(p.id)
        p.waits_for = None
        self.queue.put(self.now, RESUME, p.id, any_news)

    # -- the end of a round, checkpoints -------------------------------------------------------

    def _end_round(self, p: Participant, record: PeerRound | PeerAway) -> None:
        self._records.append(record)
        if self._stop_requested and self.stop_at is None:
            if any(q.done or q.round >= self.rounds for q in self.participants):  # too late for a new checkpoint
                raise Interrupted("stopped; a resume starts from the last checkpoint")
            self.stop_at = max(q.round for q in self.participants if not q.gone)
        self._enter(p, self.following(p.round))
        self._finish_rounds()
        self.queue.put(self.now, RESUME, p.id, NEXT_ROUND)

    def _finish_rounds(self) -> None:
        """Measure the rounds that all participants have left, and drop what was only kept for these."""
        oldest = self._oldest_round()
        if oldest <= self._oldest_finished:
            return
        self._oldest_finished = oldest
        self._record_rounds(oldest - 1)
        self.fetching.forget_before(oldest)
        self.mail.forget_delivered(oldest - 1)

    def _record_rounds(self, until: int) -> None:
        """Measure and record all rounds up to this one; measuring takes no simulated time."""
        due = [record for record in self._records if record.round <= until]
        self._records = [record for record in self._records if record.round > until]
        for round in sorted({record.round for record in due}):
            self.computing = round
            measured = self.stage.measured(round)
            of_round = sorted((record for record in due if record.round == round), key=lambda record: record.peer)
            records = [_with(measured.get(record.peer), record) for record in of_round]
            self._keep_predictions(measured, records)
            self._record(records)

    def _keep_predictions(self, measured: Mapping[int, Measured], records: Sequence[PeerRound | PeerAway]) -> None:
        for record in records:
            of_peer = measured.get(record.peer)
            if of_peer and of_peer.predicted and isinstance(record, PeerRound):
                self.predictions.see(record, of_peer.predicted)

    def _is_cut(self, done: int) -> bool:
        """Whether to take a checkpoint after this round."""
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

    def _snapshot(self, p: Participant, round: int) -> SavedPosition:
        """The director's part of a participant's snapshot for this checkpoint; the stage keeps the other part."""
        self.stage.keep(p.id, round)
        return {
            "round": p.round, "time": self.now, "was_away": p.was_away, "letters_sent": p.messages_sent,
            "shelved": p.shelved, "heard": p.news_seen, "silences": p.silences,
        }  # fmt: skip

    def _complete(self, round: int) -> None:
        """Write the checkpoint once every participant that has not left has ended this round."""
        cut = self._cuts[round]
        if any(p.id not in cut and not p.gone for p in self.participants):
            return
        assert self.folder is not None
        # A participant that left after this round has yet to leave in a run that resumes from here.
        gone = [p.id for p in self.participants if p.gone and p.id not in cut]
        cut.update({id: self._snapshot(self.participants[id], round) for id in gone})
        kept = self.stage.kept(round)
        shelved = self.shelves.until(round)
        shelves = self.stage.whole([s.artifact for s in shelved])
        self._record_rounds(round)
        tree: SavedRun = {
            "participants": [{**kept[p.id], **cut[p.id]} for p in self.participants],
            "gone": gone,
            # Only the rounds that a participant has already skipped; it will determine later ones again.
            "sat_out": [list(s) for s in sorted(self.fetching.sat_out) if round < s[1] < cut[s[0]]["round"]],
            "bulletin": self.news.of_cut(round),
            "shelves": [{"time": s.time, **packed(a)} for s, a in zip(shelved, shelves, strict=True)],
            **self.mail.of_cut(round),
            "seconds": self.seconds(),
            "predictions": self.predictions.state(round),
        }  # fmt: skip
        if self.log:
            self.log.flush()
        checkpoint.save(self.folder, round, tree)
        self.predictions.saved(round)
        del self._cuts[round]
        self.news.end_cut(round)
        self.mail.forget_delivered(round)
        if not self._cuts:
            self.shelves.release(self.now)
        if round == self.stop_at:
            raise Interrupted(f"stopped after round {round} of {self.rounds}")

    def restore(self, round: int, saved_run: Tree) -> None:
        """Restore a checkpoint; the run continues as if it had not been interrupted."""
        tree = cast("SavedRun", saved_run)  # its checksum proves that `_complete` wrote it
        if len(tree["participants"]) != len(self.participants):
            raise RunError(
                f"the checkpoint has {len(tree['participants'])} participants, the run {len(self.participants)}"
            )
        self.start_after = round
        self.predictions.restore(tree.get("predictions", ()), round)
        self.stage.restore(dict(enumerate(tree["participants"])))
        for p, saved in zip(self.participants, tree["participants"], strict=True):
            p.round, p.time, p.was_away = saved["round"], saved["time"], saved["was_away"]
            p.messages_sent, p.gone = saved["letters_sent"], p.id in tree["gone"]
            p.shelved, p.news_seen, p.silences = saved["shelved"], saved["heard"], saved["silences"]
            p.inbox = Counter({name: len(artifacts) for name, artifacts in saved["inbox"].items()})
        self.fetching.sat_out = {(peer, r) for peer, r in tree["sat_out"]}
        self.shelves.restore([Shelved(s["time"], self.stage.adopt(unpacked(s))) for s in tree["shelves"]])
        self.news.restore(tree["bulletin"], max(p.silences for p in self.participants))
        for shelving in self.news.shelvings_ahead:
            self.queue.put(shelving.time, SERVE, TO_ALL, None)
        for silence in self.news.silences_ahead:
            self.queue.put(silence.time, SILENCE, TO_ALL, None)
        self.mail.restore(round, tree)

    # -- deadlocks -----------------------------------------------------------------------------

    def _check_deadlock(self) -> None:
        stuck = [p for p in self.participants if not (p.done or p.gone)]
        if not stuck:
            return
        lines = [describe_wait(p, self.fetching.waiting) for p in stuck[:5]]
        more = f"; and {len(stuck) - 5} more" if len(stuck) > 5 else ""
        raise DeadlockError(f"deadlock, no peer can continue: {'; '.join(lines)}{more}")


def _with(measured: Measured | None, record: PeerRound | PeerAway) -> PeerRound | PeerAway:
    """The record, with the scores if there are any."""
    return measured.onto(record) if measured and isinstance(record, PeerRound) else record
