"""Random walks that survive the loss of the node that holds the walker: what one node knows of one walk, and does.

A walker is at one node at a time, and hops to a neighbour. In every round, nodes tell their neighbours the latest sign
of it that they know, so a sign reaches every node within as many rounds as the graph's diameter. If no sign has come
for longer than that, the walker is lost, together with its holder. Then the node that last had it sends its own copy to
another neighbour. If that node is gone too, the one before it takes its turn, and so on: each waits long enough to have
heard of a re-sent copy of any node before it. So there are never two walkers. If a network split still leaves two, the
younger lineage wins, and the holder of an older one drops it. A node also drops a walker that others have seen further
on: the node repeated a round after a crash. A node that gets no receipt for a walker sends a younger one elsewhere.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

NEVER = 0  # the hop of a copy that is still the initial model


@dataclass(frozen=True, order=True)
class Sign:
    """A sighting of a walker: its lineage, the round in which it was seen, and the number of hops it had made."""

    branch: int = 0  # how often it was re-sent from a copy
    creator: int = -1  # the node that re-sent it last: decides between two that did so at once
    round: int = 0
    hop: int = 0

    @property
    def lineage(self) -> tuple[int, int]:
        return self.branch, self.creator


@dataclass(frozen=True)
class Walk:
    """What one node knows of one walker."""

    sign: Sign = Sign()  # the latest
    had: int = NEVER  # the hop at which the walker was last here: how new this node's copy is
    holds: bool = False

    def merge(self, signs: Iterable[Sign]) -> "Walk":
        """After hearing others' signs. A node drops a walker of an older lineage, or one that is further on by now."""
        latest = max([self.sign, *signs])
        same = latest.lineage == self.sign.lineage
        holds = self.holds and same and latest.hop <= self.sign.hop
        # A copy of a hop that the younger lineage has not made belongs to the abandoned one: it is worth nothing.
        had = self.had if same or self.had <= latest.hop else NEVER
        return Walk(latest, had, holds)

    def arrive(self, sign: Sign, round: int) -> "Walk":
        """After the walker has come, unless it is of an older lineage than a known one, or a duplicate."""
        duplicate = sign.lineage == self.sign.lineage and (sign.hop <= self.had or sign.hop < self.sign.hop)
        if duplicate or sign.lineage < self.sign.lineage:
            return self
        return Walk(replace(sign, round=round), sign.hop, holds=True)

    def stay(self, round: int) -> "Walk":
        """While this node holds the walker, its sign is of the current round."""
        return replace(self, sign=replace(self.sign, round=round)) if self.holds else self

    def leave(self) -> "Walk":
        return replace(self, holds=False)

    def next_sign(self) -> Sign:
        """The sign of the walker as it is sent to the next node."""
        return replace(self.sign, hop=self.sign.hop + 1)

    def is_lost_to(self, node: int, reach: int, round: int) -> bool:
        """Whether it is this node's turn to re-send its copy: the newer the copy, the sooner.

        `reach` is the number of rounds within which a sign reaches every node.
        """
        if self.holds:
            return False
        turns = 1 + self.sign.hop - self.had + (1 + node if self.had == NEVER else 0)
        return round - self.sign.round > (reach + 2) * turns

    def resend(self, node: int, round: int) -> "Walk":
        """With this node's copy as the walker, of a younger lineage than any known one.

        For a lost walker; and for one whose recipient sent no receipt: it may have it all the same, so the walker that
        goes elsewhere must be younger.
        """
        sign = Sign(self.sign.branch + 1, node, round, self.sign.hop + 1)
        return Walk(sign, sign.hop, holds=True)
