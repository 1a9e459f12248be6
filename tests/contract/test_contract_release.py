"""Everything that arrives anywhere has passed the release chain of its author, on every engine."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from contract_support import ENGINES, NETWORK, PATIENT, PROCESSES, RAY, SIMULATION, SMALL, network, simulate

from coterie.config import loading

MARKED = '''
from dataclasses import dataclass, replace

import torch

from coterie import Method


def marked(me, release):
    return replace(release, facts={**release.facts, "passed": f"{me.id} {release.name} {release.to}"})


@dataclass(frozen=True)
class Marked(Method):
    """Each peer shelves a word and sends a letter to the next one; all that arrives must carry its author's mark."""

    def release_steps(self):
        return (marked,)

    async def round(self, me, t):
        everyone = sorted([me.id, *me.peers])
        after = everyone[(everyone.index(me.id) + 1) % len(everyone)]
        await me.send(after, "letter", {"w": torch.ones(3)})
        me.shelve("word", {"w": torch.ones(2)})
        words = await me.fetch(me.peers, "word")
        letters = me.inbox("letter")  # in a network, of this round or of the next
        found = [words[j].facts.get("passed") for j in words] + [x.facts.get("passed") for x in letters]
        expected = [f"{j} word None" for j in words] + [f"{x.author} letter {me.id}" for x in letters]
        me.state["letters"] = me.state.get("letters", 0) + len(letters)
        if found != expected or len(words) != 3 or (t == me.rounds and not me.state["letters"]):
            raise ValueError(f"peer {me.id} received {found} instead of {expected}")
'''


@pytest.mark.parametrize("engine", [SIMULATION, PROCESSES, NETWORK, pytest.param(RAY, marks=pytest.mark.slow)])
def test_all_that_arrives_has_passed_the_chain(engine: str, tmp_path: Path) -> None:
    (tmp_path / "marked.py").write_text(MARKED)
    more = PATIENT if engine == NETWORK else ()
    e = loading.load("panm-digits", [f"method.name={tmp_path / 'marked.py'}:Marked", *SMALL, "rounds=2", *more])
    messages = ENGINES[engine](e).summary["messages"]["by_artifact"]
    # Four peers in two rounds: each fetches three words and sends one letter.
    assert messages == {"letter": 8, "word": 24}


@pytest.mark.parametrize("method", ["median_gossip.py:MedianGossip", "clipped_gossip.py:ClippedGossip"])
def test_a_rule_or_a_step_of_a_method_applies_over_sockets_as_in_the_simulation(method: str) -> None:
    examples = Path(__file__).parents[2] / "examples"
    words = [*SMALL, *PATIENT, "engine.batching=never", "method.k=2", "rounds=2"]
    e = loading.load("panm-digits", [f"method.name={examples / method}", *words])
    plain = simulate(loading.load("panm-digits", ["method.name=gossip", *words])).vectors
    expected = simulate(e).vectors
    assert not any(torch.equal(mine, mean) for mine, mean in zip(expected, plain, strict=True))
    for mine, theirs in zip(network(e).vectors, expected, strict=True):
        assert torch.equal(mine, theirs)
