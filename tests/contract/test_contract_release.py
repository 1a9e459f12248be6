"""Everything that arrives anywhere has passed the release chain of its author, on every engine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from contract_support import (
    CASES,
    ENGINES,
    NETWORK,
    PATIENT,
    PROCESSES,
    RAY,
    SIMULATION,
    SMALL,
    method_of,
    network,
    once,
    run,
    same,
    simulate,
)

from coterie.config import loading
from coterie.core.model_registry import ONNX
from coterie.core.peer import Peer
from coterie.core.release import (
    AVERAGE,
    BOOKKEEPING,
    CLASS_MEANS,
    FEATURES,
    PARAMETERS,
    PORTABLE,
    UPDATE,
    Release,
)
from coterie.methods import METHODS
from coterie.methods.components.experts import by_size

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

    async def round(self, me):
        everyone = sorted([me.id, *me.peers])
        after = everyone[(everyone.index(me.id) + 1) % len(everyone)]
        await me.send(after, "letter", {"w": torch.ones(3)})
        me.shelve("word", {"w": torch.ones(2)})
        words = await me.fetch(me.peers, "word")
        letters = me.inbox("letter")  # in a network, of this round or of the next
        found = [words[j].facts.get("passed") for j in words] + [x.facts.get("passed") for x in letters]
        expected = [f"{j} word None" for j in words] + [f"{x.author} letter {me.id}" for x in letters]
        me.state["letters"] = me.state.get("letters", 0) + len(letters)
        if found != expected or len(words) != 3 or (me.round == me.rounds and not me.state["letters"]):
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


# -- what the methods of the package say of what they release ------------------------------------------

# By the name of an artifact, without the architecture or number after it.
MADE_FROM = {
    "model": PARAMETERS, "update": PARAMETERS, "head": PARAMETERS, "backbone": PARAMETERS, "mentee": PARAMETERS,
    "global": AVERAGE, "whole": AVERAGE, "average": AVERAGE, "body": AVERAGE,
    "prototypes": CLASS_MEANS, "logits": CLASS_MEANS, "embeddings": FEATURES,
    "answered": BOOKKEEPING, "walks": BOOKKEEPING, "turn": BOOKKEEPING,
}  # fmt: skip
# Where a method means something else by such a name.
EXCEPT = {
    ("mapl", "prototypes"): PARAMETERS,  # these train
    ("mapl+", "prototypes"): PARAMETERS,
    ("panm", "update"): UPDATE,
    ("fedkd", "update"): UPDATE,
    ("ifca", "model"): AVERAGE,  # the server's, of each cluster
}


def expected_origin(method: str, me: Peer, release: Release) -> str:
    """What the artifact was made from, by the tables and the two cases in which the name alone does not say."""
    stem = release.name.partition(".")[0].partition("-")[0]
    if method == "fedpae":
        return PORTABLE if ONNX in release.content else PARAMETERS
    if stem == "expert":  # one that is too large for the peer to train is passed on as it came
        order = by_size(me.kinds)
        can_train = order[: order.index(me.kind) + 1]
        return PARAMETERS if release.name.partition(".")[2] in can_train else AVERAGE
    return EXCEPT.get((method, stem), MADE_FROM[stem])


def recorded(case: str, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Peer, Release]]:
    """All that leaves a peer in a run of this case. Recording it changes no result."""
    seen: list[tuple[Peer, Release]] = []
    unrecorded = once(SIMULATION, case)

    def record(me: Peer, release: Release) -> Release:
        before = release.reference and {name: tensor.clone() for name, tensor in release.reference.items()}
        seen.append((me, replace(release, reference=before)))  # as it is now
        return release

    kind = METHODS[method_of(case)]
    recording = type(kind.__name__, (kind,), {"release_steps": lambda _: (record,)})
    monkeypatch.setitem(METHODS, method_of(case), recording)
    same(run(SIMULATION, case), unrecorded)
    return seen


@pytest.mark.parametrize("case", CASES)
def test_a_method_says_what_it_releases_and_since_when_it_changed(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    method, moved = method_of(case), {}
    for me, release in recorded(case, monkeypatch):
        assert release.made_from == expected_origin(method, me, release), release.name
        if release.made_from != PARAMETERS:
            assert release.reference is None, release.name
            continue
        assert release.reference is not None, release.name
        shapes = {name: tensor.shape for name, tensor in release.content.items()}
        assert {name: tensor.shape for name, tensor in release.reference.items()} == shapes, release.name
        same_as_before = all(torch.equal(release.reference[name], release.content[name]) for name in shapes)
        moved[release.name] = moved.get(release.name, False) or not same_as_before
    # A reference to the model itself instead of a copy would have trained along with it.
    assert all(moved.values()), moved
    assert moved or method not in SHARE_PARAMETERS


# The others share class means or updates, or nothing.
SHARE_PARAMETERS = METHODS.keys() - {"local", "local-ensemble", "fedproto", "feddistill", "fedgh", "fedkd"}


def test_an_expert_that_walks_is_compared_with_itself_as_it_arrived(monkeypatch: pytest.MonkeyPatch) -> None:
    """No peer is away, so hop h + 1 starts from what was sent at hop h, and hop 1 from the common initial weights."""
    sent: dict[tuple[str, int], Release] = {}
    for me, release in recorded("compfl-walks", monkeypatch):
        if not release.name.startswith("expert."):
            continue
        kind, hop = release.name.partition(".")[2], int(release.facts["hop"])
        previous = sent.get((kind, hop - 1))
        arrived = me.kinds.network(kind).initial(me.seed).part("backbone") if previous is None else previous.content
        start = release.content if release.reference is None else release.reference
        assert all(torch.equal(start[name], arrived[name]) for name in arrived), (kind, hop)
        sent[kind, hop] = release
    assert len(sent) == 2 * 4  # two experts, four rounds


def test_the_models_of_fedpae_are_compared_with_their_initial_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    published = recorded("fedpae-mixed", monkeypatch)
    assert len(published) == 4 * 2  # four peers, each with a model of both architectures
    for me, release in published:
        initial = me.own_initial(str(release.facts["kind"]), int(release.name.removeprefix("model-")))
        assert release.reference is not None
        assert all(torch.equal(release.reference[name], initial[name]) for name in initial)


def test_the_first_artifacts_of_mapl_are_compared_with_the_initial_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"prototypes": "prototypes", "head": "weight"}
    released = [(me, x) for me, x in recorded("mapl", monkeypatch) if x.name in names]
    for me, release in released[: 4 * len(names)]:  # of the first round
        own = me.own_initial()["prototypes" if release.name == "prototypes" else "head.weight"]
        assert release.reference is not None
        assert torch.equal(release.reference[names[release.name]], own)
