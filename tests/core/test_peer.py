"""A peer's verbs, as far as they need no engine."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from coterie.core.artifact import Artifact
from coterie.core.errors import ConfigError, MethodError, ModelError
from coterie.core.jobs import Pool, Split, TrainSettings
from coterie.core.loss import task_loss
from coterie.core.model import Architecture
from coterie.core.others import Others
from coterie.core.peer import Peer
from coterie.core.peer_data import PeerData


class Shelf:
    def __init__(self) -> None:
        self.shelved: list[Artifact] = []

    def shelve(self, artifact: Artifact) -> None:
        self.shelved.append(artifact)

    def inbox(self, peer: int, name: str) -> list[Artifact]:
        return [Artifact(name, 9, peer, {})]


@pytest.fixture
def peer(mlp: Architecture, make_pool: Callable[..., Pool]) -> Peer:
    pool = make_pool(10)
    data = PeerData(*(Split(pool, torch.arange(a, b)) for a, b in ((0, 6), (6, 8), (8, 10))))
    return Peer(2, 0, Others(6, 2), mlp.initial(0), TrainSettings(lr=0.1, lr_decay=0.5), Shelf(), data)


@given(st.integers(0, 8), st.integers(0, 9))
def test_others_is_the_list_without_one(count: int, but: int) -> None:
    expected = [i for i in range(count) if i != but]
    others = Others(count, but)
    assert list(others) == expected
    assert len(others) == len(expected)
    assert list(others[1:]) == expected[1:]
    assert [i in others for i in range(10)] == [i in expected for i in range(10)]
    for i in range(-len(expected), len(expected)):
        assert others[i] == expected[i]
    with pytest.raises(IndexError):
        others[len(expected)]


def test_a_sample_is_of_different_peers_in_order(peer: Peer) -> None:
    drawn = [peer.sample(3) for _ in range(20)]
    assert all(s == sorted(set(s)) and len(s) == 3 and set(s) <= {0, 1, 3, 4, 5} for s in drawn)
    assert len(set(map(tuple, drawn))) > 3  # fresh at every call
    assert peer.sample(99) == [0, 1, 3, 4, 5]
    assert peer.sample(2, [4]) == [4]
    assert peer.sample(2, []) == []


def test_draws_belong_to_the_round(peer: Peer) -> None:
    peer.begin(1)
    first = [peer.rng("x").random(), peer.rng("x").random()]
    peer.begin(2)
    assert peer.rng("x").random() not in first
    peer.begin(1)
    peer.rng("y").random()  # another purpose does not disturb
    assert [peer.rng("x").random(), peer.rng("x").random()] == first


def test_the_learning_rate_decays_by_round(peer: Peer) -> None:
    rates = []
    for round in (0, 1, 2, 4):
        peer.begin(round)
        rates.append(peer.train().job.settings.lr)
    assert rates == pytest.approx([0.1, 0.1, 0.05, 0.0125])


def test_train_describes_the_job(peer: Peer) -> None:
    peer.begin(3)
    job = peer.train(only="head", epochs=7, keep_optimizer=True).job
    assert (job.model, job.loss, job.only, job.memory) == (peer.model, task_loss, "head", peer.memory)
    assert (job.settings.epochs, len(job.split), peer.samples) == (7, 6, 6)
    other = peer.initial(1)
    second = peer.train(model=other, keep_optimizer=True).job
    assert second.model is other
    assert second.memory is None  # the memory belongs to the peer's own model
    assert second.key != job.key


def test_an_unknown_setting_of_train_is_named(peer: Peer) -> None:
    with pytest.raises(ConfigError, match=r"'epoch'. Did you mean 'epochs'"):
        peer.train(epoch=2)


def test_an_optimiser_that_does_not_exist_is_named(peer: Peer) -> None:
    with pytest.raises(ConfigError, match=r"me.train: optimizer must be .*Did you mean 'rmsprop'"):
        peer.train(optimizer="rmsporp")


def test_a_learning_rate_of_the_methods_own_follows_the_schedule(peer: Peer) -> None:
    """Half a cosine over 4 rounds: in round 3, halfway, its factor is (1 + cos(pi / 2)) / 2 = 1/2."""
    peer.rounds = 4
    peer.begin(3)
    assert peer.train(lr=0.6, schedule="cosine").job.settings.lr == pytest.approx(0.3)


def test_evaluate_reads_models_on_the_split_asked_for(peer: Peer) -> None:
    jobs = peer.evaluate([peer.model, dict(peer.initial(1))], split="validation").jobs
    assert [len(job.split) for job in jobs] == [2, 2]
    assert torch.equal(jobs[1].model.vector, peer.initial(1).vector)


def test_what_is_shelved_is_a_snapshot_of_this_round(peer: Peer) -> None:
    peer.begin(5)
    peer.shelve("model", peer.model, samples=6)
    (artifact,) = peer.desk.shelved  # type: ignore[attr-defined]
    before = peer.model.vector.clone()
    peer.model.vector.zero_()
    assert (artifact.name, artifact.author, artifact.round, artifact.facts) == ("model", 2, 5, {"samples": 6})
    assert torch.equal(artifact.content.vector, before)


def test_requests_carry_peer_job_and_round(peer: Peer) -> None:
    peer.begin(4)
    fetch = peer.fetch([5, 1, 5], "model")
    assert (fetch.peers, fetch.name, fetch.round) == ((1, 5), "model", 4)
    assert peer.fetch(3, "model").peers == (3,)
    send = peer.send(1, "walk", {"w": torch.ones(1)}, steps=3)
    assert (send.to, send.artifact.name, send.artifact.round, send.artifact.facts) == (
        1,
        "walk",
        4,
        {"steps": 3},
    )
    assert peer.receive("walk").name == "walk"
    assert [a.name for a in peer.inbox("walk")] == ["walk"]


def test_a_round_begins_with_empty_notes(peer: Peer) -> None:
    peer.note(neighbours=[1], figure=2)
    assert peer.notes == {"neighbours": [1], "figure": 2}
    peer.begin(1)
    assert peer.notes == {}


def test_a_server_has_no_data(peer: Peer) -> None:
    peer._held = None
    for act in (peer.train, lambda: peer.evaluate([]), lambda: peer.samples):
        with pytest.raises(ConfigError, match="participant 2 is a server"):
            act()


def test_a_fetch_from_the_server_without_a_server_is_an_error(peer: Peer) -> None:
    with pytest.raises(MethodError, match=r"peer 2 fetches 'global' from the server .*sets `server = True`"):
        peer.fetch(peer.server, "global")


def test_a_peer_without_a_registry_names_the_model_that_it_cannot_make(peer: Peer) -> None:
    with pytest.raises(ModelError, match="'cnn3' cannot be built"):
        peer.own_initial("cnn3")
    with pytest.raises(ModelError, match="'forest' cannot be fitted"):
        peer.fit("forest").function()
