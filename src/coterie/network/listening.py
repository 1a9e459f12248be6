"""Waits for news: whether other peers have shelved something since this peer last looked."""

from __future__ import annotations

import asyncio
import time

from coterie.network.attendance import POLL_INTERVAL, Attendance
from coterie.network.membership import DONE, LISTENING, RUNNING, PeerEntry
from coterie.network.peer_run import Activity


class Listening:
    """Compares what the other peers announce with what they announced at the last news."""

    def __init__(self, attendance: Attendance, activity: Activity) -> None:
        self.attendance, self.activity = attendance, activity
        self.run, self.book = attendance.run, attendance.node.book
        # By peer and incarnation, how many artifacts it had shelved at the last news.
        self._known_counts: dict[tuple[str, int], int] = {}

    async def news(self) -> bool:
        """Wait until another peer has shelved something new, or no peer will any more."""
        self.activity.waits_for = "news"
        self.attendance.announce(LISTENING)
        while not (news := self._has_news()) and self._may_get_news():
            await asyncio.sleep(POLL_INTERVAL)
            self.attendance.check_node()
        self.run.me.meet(self.attendance.peers())  # a peer may have joined since the round began
        self.activity.waits_for = ""
        self.attendance.announce(RUNNING)
        return news

    def _has_news(self) -> bool:
        """Whether another peer announces more shelved artifacts than at the last news."""
        announced = [entry.announcement for entry in self.book.companions()]
        counts = {(a.name, a.incarnation): a.shelved for a in announced}
        news = any(count > self._known_counts.get(peer, 0) for peer, count in counts.items())
        news = news and self._was_useful()  # a peer may announce artifacts that it does not have
        self._known_counts = counts if news else self._known_counts
        return news

    def _may_get_news(self) -> bool:
        """A peer is still working or has yet to join, and the last useful event is recent enough."""
        others = self.book.companions()
        late = time.monotonic() >= self.attendance.joined + self.run.settings.patience
        missing = len(others) + 1 < self.run.expected and not late
        return self._was_useful() and (missing or any(map(self._is_working, others)))

    def _was_useful(self) -> bool:
        """Whether this peer computed or received something in the last `linger` seconds."""
        return time.monotonic() < self.activity.last_use + self.run.settings.linger

    def _is_working(self, entry: PeerEntry) -> bool:
        return entry.announcement.state not in (LISTENING, DONE) and self.attendance.may_return(entry)
