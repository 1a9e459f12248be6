"""A walker on a graph whose nodes fail at random: never two of it, never lost for good, and it gets everywhere."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import pairwise

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from coterie.methods.components.random_walk import NEVER, Sign, Walk

NODES = 6
Edges = set[tuple[int, int]]


def connected(nodes: set[int], edges: Edges) -> bool:
    if not nodes:
        return False
    reached, border = {min(nodes)}, [min(nodes)]
    while border:
        here = border.pop()
        for a, b in edges:
            for one, other in ((a, b), (b, a)):
                if one == here and other in nodes and other not in reached:
                    reached.add(other)
                    border.append(other)
    return reached == nodes


@dataclass
class World:
    """Nodes in common rounds. In each round every living node tells its neighbours what it knows, then acts."""

    edges: Edges
    rng: random.Random
    walks: dict[int, Walk] = field(default_factory=dict)
    alive: set[int] = field(default_factory=set)
    asleep: set[int] = field(default_factory=set)  # they come back, and their letters wait
    letters: dict[int, list[Sign]] = field(default_factory=dict)
    visited: dict[int, int] = field(default_factory=dict)  # by node, the last round
    round: int = 0
    doubt: float = 0.0  # how often who sends it is not told that it was taken

    @classmethod
    def begin(cls, edges: Edges, seed: int) -> World:
        world = cls(edges, random.Random(seed), alive=set(range(NODES)), letters={i: [] for i in range(NODES)})
        world.walks = {i: Walk() for i in range(NODES)}
        world.walks[0] = Walk().arrive(Sign(hop=1), 0)
        return world

    def near(self, i: int) -> list[int]:
        found = {b if a == i else a for a, b in self.edges if i in (a, b)}
        return sorted(j for j in found if j in self.alive and j not in self.asleep)

    def step(self) -> None:
        self.round += 1
        awake = sorted(self.alive - self.asleep)
        told = {i: self.walks[i].sign for i in awake}
        for i in awake:
            walk = self.walks[i].merge(told[j] for j in self.near(i))
            if walk.is_lost_to(i, NODES - 1, self.round):
                walk = walk.resend(i, self.round)
            for sign in self.letters[i]:
                walk = walk.arrive(sign, self.round)
            self.letters[i] = []
            if walk.holds:
                walk = walk.stay(self.round)
                self.visited[i] = self.round
                walk = self.sent_on(i, walk)
            self.walks[i] = walk

    def sent_on(self, i: int, walk: Walk) -> Walk:
        for j in self.rng.sample(near := self.near(i), len(near)):
            self.letters[j].append(walk.next_sign())
            if self.rng.random() >= self.doubt:
                return walk.leave()
            if self.rng.random() < 0.5:
                self.letters[j].pop()  # it was not
            walk = walk.resend(i, self.round)
        return walk

    def walkers(self) -> list[tuple[int, Sign]]:
        """All that are held or on their way, wherever their holder still lives."""
        held = [(i, w.sign) for i, w in self.walks.items() if w.holds and i in self.alive]
        sent = [(i, sign) for i, signs in self.letters.items() if i in self.alive for sign in signs]
        return held + sent

    def newest_copies(self) -> list[int]:
        """Who has the newest copy: the one that would send it on."""
        best = max(self.walks[i].had for i in self.alive)
        return [i for i in self.alive if self.walks[i].had == best]

    def longest_silence(self) -> int:
        """Until it is the turn of who has the newest copy: later, the more hops it made among those who are gone."""
        best, hop = max(self.walks[i].had for i in self.alive), max(self.walks[i].sign.hop for i in self.alive)
        turns = 1 + hop - best + (NODES if best == NEVER else 0)
        return (NODES + 1) * turns + NODES


graphs = st.sets(
    st.tuples(st.integers(0, NODES - 1), st.integers(0, NODES - 1)).filter(lambda e: e[0] < e[1]), min_size=NODES - 1
).filter(lambda edges: connected(set(range(NODES)), edges))
deaths = st.lists(st.tuples(st.integers(1, 60), st.sampled_from(["holder", "before", "any"])), max_size=4)


@settings(deadline=None, max_examples=300)
@given(graphs, st.integers(0, 10**6), deaths)
def test_there_is_one_and_it_gets_everywhere(edges: Edges, seed: int, plan: list[tuple[int, str]]) -> None:
    """Holders, those who held it before them, and others die at any time, as long as the rest can reach each other."""
    world = World.begin(edges, seed)
    when = dict(plan)
    silent = 0
    while world.round <= 60 or silent:
        world.step()
        there = world.walkers()
        assert len(there) <= 1, f"round {world.round}: {there}"
        silent = 0 if there else silent + 1
        assert silent <= world.longest_silence(), "lost for good"
        if world.round in when:
            _kill(world, when[world.round])
            assert len(world.walkers()) <= 1
    world.visited.clear()
    while world.visited.keys() != world.alive:
        world.step()
        assert len(world.walkers()) == 1
        assert world.round < 5000, "a walk on six nodes takes some dozens of hops to be everywhere"
    assert len(world.newest_copies()) == 1


def _kill(world: World, whom: str) -> None:
    holders = [i for i, _ in world.walkers()]
    if whom == "holder" and holders:
        victim = holders[0]
    elif whom == "before":
        [victim] = world.newest_copies()[:1]
    else:
        victim = min(world.alive)
    if connected(world.alive - {victim}, world.edges):
        world.alive.discard(victim)


@settings(deadline=None, max_examples=100)
@given(graphs, st.integers(0, 10**6), st.integers(1, 30), st.integers(1, 120))
def test_who_sleeps_with_it_finds_on_waking_that_it_is_old(edges: Edges, seed: int, when: int, nap: int) -> None:
    """However long its holder was away: in the end there is one, and never two of one lineage."""
    world = World.begin(edges, seed)
    for _ in range(when):
        world.step()
    [(holder, _)] = world.walkers()
    assume(connected(world.alive - {holder}, edges))
    world.asleep = {holder}
    for _ in range(nap):
        world.step()
        lineages = [sign.lineage for _, sign in world.walkers()]
        assert len(lineages) == len(set(lineages)) <= 2
    world.asleep = set()
    for _ in range(NODES + 1):
        world.step()
    for _ in range(100):
        world.step()
        assert len(world.walkers()) == 1


def only_one_from_now_on(world: World) -> None:
    for _ in range(100):
        world.step()
        assert len(world.walkers()) == 1


@settings(deadline=None, max_examples=150)
@given(graphs, st.integers(0, 10**6), st.floats(0.1, 1), st.integers(1, 30))
def test_who_is_not_told_that_it_was_taken_makes_no_twin(edges: Edges, seed: int, doubt: float, rounds: int) -> None:
    """Whoever sends it once more sends a younger one: in the end it is the only one."""
    world = World.begin(edges, seed)
    world.doubt = doubt
    for _ in range(rounds):
        world.step()
        lineages = [sign.lineage for _, sign in world.walkers()]
        assert len(lineages) == len(set(lineages))
    world.doubt = 0.0
    for _ in range(NODES):
        world.step()
    only_one_from_now_on(world)


@settings(deadline=None, max_examples=150)
@given(graphs, st.integers(0, 10**6), st.integers(1, 30), st.integers(0, 60))
def test_who_begins_a_round_again_and_sends_it_elsewhere_makes_no_twin(
    edges: Edges, seed: int, when: int, later: int
) -> None:
    """Killed after it had sent the walker on, and before it could write that down; back when others have gone on."""
    world = World.begin(edges, seed)
    for _ in range(when):
        world.step()
    [(holder, sign)] = world.walkers()
    assume(connected(world.alive - {holder}, edges))
    before = world.walks[holder].arrive(sign, world.round + 1)
    world.step()
    world.asleep = {holder}
    for _ in range(later):
        world.step()
    world.asleep, world.walks[holder] = set(), before
    for j in world.near(holder):
        world.letters[j].append(before.next_sign())
    for _ in range(NODES):
        world.step()
    only_one_from_now_on(world)


sides = st.sets(st.integers(0, NODES - 1), min_size=1, max_size=NODES - 1)


@settings(deadline=None, max_examples=150)
@given(graphs, st.integers(0, 10**6), sides, st.integers(1, 150))
def test_of_two_sides_that_were_apart_one_has_the_walker(edges: Edges, seed: int, left: set[int], rounds: int) -> None:
    """However far the one that is given up has come meanwhile."""
    world = World.begin(edges, seed)
    for _ in range(10):
        world.step()
    world.edges = {(a, b) for a, b in edges if (a in left) == (b in left)}
    for _ in range(rounds):
        world.step()
    world.edges = edges
    for _ in range(NODES):
        world.step()
    only_one_from_now_on(world)


def test_the_copy_that_is_sent_on_is_the_newest_there_is() -> None:
    """On a path 0-1-2-3 the walker goes to 2, which dies; node 1, who had it before, sends it on; not 0."""
    world = World.begin({(0, 1), (1, 2), (1, 3), (2, 3), (3, 4), (4, 5)}, 0)
    world.walks = {i: Walk() for i in range(NODES)}
    world.walks[0] = Walk(Sign(round=1, hop=1), 1)
    world.walks[1] = Walk(Sign(round=2, hop=2), 2)
    world.alive.discard(2)  # on whose table the walker lay
    world.round = 3
    for _ in range(100):
        world.step()
        if world.walkers():
            break
    [(_, sign)] = world.walkers()
    assert sign.lineage == (1, 1)
    assert sign.hop > 2


def test_who_never_had_it_waits_longest() -> None:
    sign = Sign(round=10, hop=5)
    turns = {}
    for node, had in ((0, 5), (1, 4), (2, 1), (3, NEVER), (4, NEVER)):
        walk = Walk(sign, had)
        turns[node] = next(t for t in range(10, 1000) if walk.is_lost_to(node, NODES - 1, t))
    gaps = sorted(turns.values())
    assert [turns[i] for i in range(5)] == gaps
    assert all(later - sooner >= NODES for sooner, later in pairwise(gaps))


def test_a_twin_or_an_older_lineage_is_not_taken() -> None:
    walk = Walk(Sign(branch=1, creator=2, round=9, hop=7), had=6)
    assert walk.arrive(Sign(branch=0, creator=5, round=8, hop=9), 10) is walk
    assert walk.arrive(Sign(branch=1, creator=2, round=8, hop=6), 10) is walk
    taken = walk.arrive(Sign(branch=1, creator=2, round=8, hop=8), 10)
    assert taken == Walk(Sign(1, 2, 10, 8), had=8, holds=True)


def test_who_hears_of_a_younger_lineage_drops_what_it_holds() -> None:
    mine = Walk(Sign(branch=0, creator=-1, round=9, hop=7), had=7, holds=True)
    younger = Sign(branch=1, creator=3, round=5, hop=4)
    assert mine.merge([younger]) == Walk(younger, had=NEVER, holds=False)
    assert mine.merge([Sign(round=99, hop=6)]).holds


def test_a_copy_of_a_lineage_that_is_given_up_is_no_reason_to_hurry() -> None:
    """The younger lineage has made 4 hops, and this node's copy is of hop 7 of the older: there is nothing to miss."""
    mine = Walk(Sign(round=9, hop=7), had=7).merge([Sign(branch=1, creator=3, round=9, hop=4)])
    assert mine.had == NEVER
    assert not mine.is_lost_to(0, NODES - 1, 10)
    assert Walk(Sign(round=9, hop=4), had=3).merge([Sign(branch=1, creator=3, round=9, hop=5)]).had == 3


def test_what_has_moved_on_long_ago_is_not_held_nor_taken() -> None:
    on = Sign(round=12, hop=9)
    assert not Walk(Sign(round=9, hop=7), had=7, holds=True).merge([on]).holds
    elsewhere = Walk(on, had=3)
    assert elsewhere.arrive(Sign(round=9, hop=8), 13) is elsewhere
