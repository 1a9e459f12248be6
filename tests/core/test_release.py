"""The release chain: what leaves a peer, shelved or sent, passes the steps of the method, in every engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from coterie.config import loading
from coterie.core.artifact import Artifact
from coterie.core.errors import MethodError
from coterie.core.peer import Peer
from coterie.core.release import ORIGINS, Release
from coterie.engines import driving
from coterie.methods import METHODS
from coterie.methods.base import Method
from coterie.wiring import gather

SOURCE = Path(__file__).parents[2] / "src" / "coterie"


class Shelf:
    def __init__(self) -> None:
        self.shelved: list[Artifact] = []

    def shelve(self, artifact: Artifact) -> None:
        self.shelved.append(artifact)

    def inbox(self, peer: int, name: str) -> list[Artifact]:  # noqa: ARG002
        return []


@pytest.fixture
def me() -> Peer:
    [peer, *_] = gather(loading.load("panm-digits", ["peers=4", "method.name=gossip", "method.k=1"])).participants
    peer.desk = Shelf()
    peer.begin(3)
    return peer


def doubled(me: Peer, release: Release) -> Release:  # noqa: ARG001
    return replace(release, content={name: 2 * tensor for name, tensor in release.content.items()})


def plus_one(me: Peer, release: Release) -> Release:  # noqa: ARG001
    for tensor in release.content.values():
        tensor += 1  # in place: a step has copies
    return replace(release, facts={**release.facts, "steps": 2})


def test_steps_apply_in_order_and_to_copies(me: Peer) -> None:
    me.release_steps = (doubled, plus_one)
    own = {"w": torch.tensor([1.0, 3.0])}
    me.shelve("word", own, samples=5)
    sent = me.send(1, "letter", own).artifact
    [shelved] = me.desk.shelved  # type: ignore[attr-defined]
    for artifact in (shelved, sent):
        assert artifact["w"].tolist() == [3.0, 7.0]  # 2 * 1 + 1, 2 * 3 + 1
        assert (artifact.author, artifact.round) == (0, 3)
    assert (shelved.name, dict(shelved.facts)) == ("word", {"samples": 5, "steps": 2})
    assert own["w"].tolist() == [1.0, 3.0]
    me.requested.clear()


def test_a_step_is_told_what_leaves(me: Peer) -> None:
    told: list[Release] = []
    me.release_steps = (lambda _, release: told.append(release) or release,)  # type: ignore[func-returns-value]
    before = me.reference()
    assert before is not None
    me.model.vector.add_(1)
    me.shelve("model", me.model, reference=before, samples=2)
    me.shelve("prototypes", {"m": torch.ones(2)}, made_from="class means")
    me.send(2, "letter", {}, made_from="bookkeeping")
    me.requested.clear()
    assert [(r.name, r.made_from, r.to) for r in told] == [
        ("model", "parameters", None),
        ("prototypes", "class means", None),
        ("letter", "bookkeeping", 2),
    ]
    assert told[0].facts == {"samples": 2}
    assert told[0].reference is before
    torch.testing.assert_close(told[0].content["head.bias"] - before["head.bias"], torch.ones_like(before["head.bias"]))
    assert told[1].reference is None


def test_a_reference_is_of_the_parts_asked_for_and_only_if_a_step_may_read_it(me: Peer) -> None:
    assert me.reference() is None
    me.release_steps = (doubled,)
    part = me.reference("head")
    assert part is not None
    assert set(part) == {"head.weight", "head.bias"}
    other = me.model.copy()
    other.vector.add_(1)
    of_other = me.reference("head", model=other)
    assert of_other is not None
    assert torch.equal(of_other["head.bias"], other["head.bias"])
    other.vector.zero_()  # a copy does not change with the model
    assert torch.equal(of_other["head.bias"], me.model["head.bias"] + 1)


def test_a_step_cannot_rename_what_leaves(me: Peer) -> None:
    me.release_steps = (lambda _, release: replace(release, name="other"),)
    me.shelve("word", {})
    assert me.desk.shelved[0].name == "word"  # type: ignore[attr-defined]


def test_mistakes_are_named(me: Peer) -> None:
    with pytest.raises(MethodError, match=r"unknown made_from 'class mean'. Did you mean 'class means'"):
        me.shelve("x", {}, made_from="class mean")

    def forgetful(me: Peer, release: Release) -> None: ...

    me.release_steps = (forgetful,)  # type: ignore[assignment]
    with pytest.raises(MethodError, match=r"release step .*forgetful returned a NoneType instead of a Release"):
        me.shelve("x", {})


def test_the_method_brings_the_steps(me: Peer) -> None:
    class Doubling(METHODS["gossip"]):  # type: ignore[misc,name-defined]
        def release_steps(self) -> tuple[Callable[[Peer, Release], Release], ...]:
            return (doubled,)

    driving.close(driving.start(Doubling(k=1), me))
    assert me.release_steps == (doubled,)
    driving.close(driving.start(METHODS["gossip"](k=1), me))
    assert me.release_steps == ()
    assert Method.release_steps(METHODS["local"]()) == ()


def test_nothing_else_makes_an_artifact_or_lets_it_out() -> None:
    """`Peer.shelve` and `Peer.send` are the only ways out, and both make the artifact by the chain."""
    for text, places in {
        "Artifact.snapshot(": {"core/release.py"},
        "desk.shelve(": {"core/peer.py"},
    }.items():
        found = {str(p.relative_to(SOURCE)) for p in SOURCE.rglob("*.py") if text in p.read_text(encoding="utf-8")}
        assert found == places, text


def test_the_origins_are_documented() -> None:
    assert all(f'"{origin}"' in (Peer.shelve.__doc__ or "") for origin in ORIGINS)
