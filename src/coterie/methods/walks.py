"""Random walks that survive the loss of whoever holds the walker: what every node knows of one walk, and does about it.

A walker is at one node at a time, and hops to a neighbour. Nodes tell their neighbours in every round the freshest sign
of it that they know, so a sign reaches every node within as many rounds as the graph is long. If none has come for
longer than that, the walker is lost, with who held it. Then the node that had it last sends its copy on another way.
Should that one be gone too, the one before has its turn, and so on: each waits for so long that it would have heard of
who came before it. So there are never two. If a network that was split leaves two all the same, the younger lineage
wins, and who holds a walker of the older one drops it. So does who holds one that others have seen further on: it began
a round again after a crash. And who cannot tell whether its recipient got the walker sends a younger one elsewhere.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

NEVER = 0  # the hop of a copy that is what everybody began with


@dataclass(frozen=True, order=True)
class Sign:
    """Of a walker: of which lineage it is, in which round it was there, and how many hops it had made."""

    branch: int = 0  # how often it was sent on anew
    creator: int = -1  # who did so last: of two that did so at once, one counts
    round: int = 0
    hop: int = 0

    @property
    def lineage(self) -> tuple[int, int]:
        return self.branch, self.creator


@dataclass(frozen=True)
class Walk:
    """What one node knows of one walker."""

    sign: Sign = Sign()  # the freshest
    had: int = NEVER  # the hop at which the walker was last here: how new this node's copy is
    holds: bool = False

    def heard(self, signs: Iterable[Sign]) -> "Walk":
        """After hearing what others know. Who holds one of an older lineage, or that is further on by now, drops it."""
        freshest = max([self.sign, *signs])
        same = freshest.lineage == self.sign.lineage
        holds = self.holds and same and freshest.hop <= self.sign.hop
        # A copy of a hop that the younger lineage has not made is of the one that is given up: no better than none.
        had = self.had if same or self.had <= freshest.hop else NEVER
        return Walk(freshest, had, holds)

    def arrived(self, sign: Sign, round: int) -> "Walk":
        """After the walker has come, unless it is of an older lineage than one that is known, or a twin."""
        twin = sign.lineage == self.sign.lineage and (sign.hop <= self.had or sign.hop < self.sign.hop)
        if twin or sign.lineage < self.sign.lineage:
            return self
        return Walk(replace(sign, round=round), sign.hop, holds=True)

    def present(self, round: int) -> "Walk":
        """While it is held it is a sign itself."""
        return replace(self, sign=replace(self.sign, round=round)) if self.holds else self

    def left(self) -> "Walk":
        return replace(self, holds=False)

    def not_taken(self, node: int, round: int) -> "Walk":
        """After its recipient did not say that it has it. It may have it even so: what goes elsewhere is younger."""
        return self.anew(node, round)

    def on_its_way(self) -> Sign:
        """Of the walker as it is sent to the next node."""
        return replace(self.sign, hop=self.sign.hop + 1)

    def is_lost_to(self, node: int, reach: int, round: int) -> bool:
        """Whether it is this node's turn to send its copy on: the newer the copy, the sooner.

        `reach` is how many rounds a sign may take to get everywhere.
        """
        if self.holds:
            return False
        turns = 1 + self.sign.hop - self.had + (1 + node if self.had == NEVER else 0)
        return round - self.sign.round > (reach + 2) * turns

    def anew(self, node: int, round: int) -> "Walk":
        """With this node's copy as the walker, newer than anything that is known of."""
        sign = Sign(self.sign.branch + 1, node, round, self.sign.hop + 1)
        return Walk(sign, sign.hop, holds=True)
