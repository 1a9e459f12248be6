"""PANM against its theorem, its closed-form cost, and small cases worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from coterie.config.loading import load
from coterie.config.sections import ClockSettings
from coterie.core.errors import ConfigError
from coterie.core.events import PeerRound
from coterie.core.jobs import Pool, Score, Split, TrainSettings
from coterie.core.model import Architecture
from coterie.core.others import Others
from coterie.core.peer import Peer
from coterie.core.peer_data import PeerData
from coterie.core.weights import Weights
from coterie.methods.components.two_gaussians import Similarities, same_cluster, same_cluster_as_printed
from coterie.methods.panm import PANM, SIMILARITY, Models
from coterie.methods.pens import PENS
from coterie.models import ModelSettings, build
from coterie.simulation.clock import Clock
from coterie.simulation.director import Simulation
from coterie.simulation.local_stage import LocalStage
from coterie.training import Trainer


@dataclass(frozen=True)
class PerfectPANM(PANM):
    """PANM whose metric never errs (the theorem's assumption): kin by peer number, modulo `clusters`."""

    clusters: int = 2

    async def compare(
        self,
        me: Peer,
        candidates: Sequence[int],
        update: Weights,  # noqa: ARG002
        samples: int,  # noqa: ARG002
    ) -> tuple[Models, Similarities]:
        models = await me.fetch(candidates, "model")
        noise = me.rng("noise").uniform(0, 0.1, len(models))
        return models, {j: float(j % self.clusters == me.id % self.clusters) + x for j, x in zip(models, noise)}  # noqa: B905


def play(method: PANM | PENS, peers: int, rounds: int, seed: int = 0, away: Sequence[int] = ()) -> list[PeerRound]:
    """The method over peers that do not train: its choices alone. Those who are `away` never come."""
    architecture = Architecture("mlp", partial(build, "mlp", (2,), 2, ModelSettings(hidden=(1,))))
    pool = Pool(torch.randn(4, 2, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 0, 1]))
    split = Split(pool, torch.arange(4))
    still = TrainSettings(epochs=0)
    members = [
        Peer(i, seed, Others(peers, i), architecture.initial(0), still, None, PeerData(split, split, split))  # type: ignore[arg-type]
        for i in range(peers)
    ]
    records: list[PeerRound] = []
    clock = Clock(ClockSettings(offline=tuple((i, 0.0, math.inf) for i in away)), peers, seed)
    see = lambda r: records.append(r) if isinstance(r, PeerRound) else None  # noqa: E731
    Simulation(LocalStage(method, members, rounds, Trainer(), evaluate_every=10**6), clock, on_record=see).run()
    return records


# -- Theorem 1 ---------------------------------------------------------------------------------


@cache
def theorem(n: int, a: int, candidates: int, x: int, t: int) -> float:
    """P^t(x): at least x of the neighbours are kin in round t, as the paper's equation (10) has it."""

    def exactly(m: int) -> float:  # G: m kin among the candidates drawn from the n - 1 others, a - 1 of them kin
        if m > a - 1 or candidates - m > n - a:
            return 0.0
        return math.comb(a - 1, m) * math.comb(n - a, candidates - m) / math.comb(n - 1, candidates)

    at_least = sum(exactly(m) for m in range(x, candidates + 1))  # R
    if t == 1:
        return at_least
    return at_least + sum(exactly(m) * theorem(n, a, candidates, x - m, t - 1) for m in range(x))


def exact_chain(n: int, a: int, candidates: int, k: int, t: int) -> float:
    """The same with candidates drawn among strangers only, as PANM does: a Markov chain over the number of kin."""

    def draw(others: int, kin: int, m: int) -> float:
        if m > kin or candidates - m > others - kin:
            return 0.0
        return math.comb(kin, m) * math.comb(others - kin, candidates - m) / math.comb(others, candidates)

    state = {0: 1.0}
    for step in range(t):
        known = 0 if step == 0 else k
        after: dict[int, float] = {}
        for kin, p in state.items():
            for m in range(candidates + 1):
                found = min(k, kin + m)
                after[found] = after.get(found, 0.0) + p * draw(n - 1 - known, a - 1 - kin, m)
        state = after
    return state.get(k, 0.0)


def frequency_of_all_kin(n: int, clusters: int, candidates: int, k: int, t: int, seeds: int) -> tuple[float, int]:
    """How often all k neighbours are kin in round t, and in how many trials (each peer's choices are its own)."""
    method = PerfectPANM(l=candidates, k=k, t1=t, clusters=clusters)
    right = trials = 0
    for seed in range(seeds):
        for record in play(method, n, t, seed):
            if record.round == t:
                trials += 1
                right += all(j % clusters == record.peer % clusters for j in record.notes["neighbours"])
    return right / trials, trials


@pytest.mark.parametrize(
    ("n", "clusters", "candidates", "k", "t"),
    [(400, 2, 10, 5, 1), (400, 4, 10, 5, 2), (400, 4, 10, 5, 3), (600, 3, 8, 3, 2), (600, 6, 10, 2, 3)],
)
def test_theorem_1(n: int, clusters: int, candidates: int, k: int, t: int) -> None:
    """The frequency lies in the 99.9% interval around the theorem's probability."""
    seen, trials = frequency_of_all_kin(n, clusters, candidates, k, t, seeds=2)
    expected = theorem(n, n // clusters, candidates, k, t)
    assert abs(seen - expected) <= 3.3 * math.sqrt(expected * (1 - expected) / trials)


def test_theorem_1_holds_in_large_circles_only() -> None:
    """It lets a neighbour be found twice: with few peers it promises too much, and the exact chain is right."""
    promised, exact = theorem(40, 10, 10, 5, 3), exact_chain(40, 10, 10, 5, 3)
    seen, trials = frequency_of_all_kin(40, 4, 10, 5, 3, seeds=50)
    margin = 3.3 * math.sqrt(exact * (1 - exact) / trials)
    assert abs(seen - exact) <= margin
    assert promised - seen > margin
    assert theorem(4000, 1000, 10, 5, 3) == pytest.approx(exact_chain(4000, 1000, 10, 5, 3), abs=0.005)


# -- cost --------------------------------------------------------------------------------------


def closed_form(candidates: int, k: int, t1: int, rounds: int, tau: int) -> int:
    """Models fetched by one peer: l, then l + k in stage one; 2l when matching, else k in stage two."""
    matching = rounds // tau - t1 // tau
    return candidates + (t1 - 1) * (candidates + k) + matching * 2 * candidates + (rounds - t1 - matching) * k


@pytest.mark.parametrize(("k", "models"), [(2, 1118), (3, 1397)])
def test_cost_of_table_6(k: int, models: int) -> None:
    """The paper's l = 4, tau = 10, 100 + 200 rounds, four clusters: every peer fetches exactly so many models."""
    assert closed_form(4, k, 100, 300, 10) == models
    method = PerfectPANM(l=4, k=k, t1=100, tau=10, clusters=4)
    fetched: dict[int, int] = {}
    for record in play(method, 24, 300):
        fetched[record.peer] = fetched.get(record.peer, 0) + record.messages["model"]
        assert set(record.messages) == {"model"}
    assert fetched == dict.fromkeys(range(24), models)


# -- who is of one's cluster ---------------------------------------------------------------------


def test_two_clear_groups_are_told_apart() -> None:
    # Trusted: 0, 1 and the outlier 2. Kin 0.90 +- 0.02; others 0.30 +- 0.02.
    similar = {0: 0.90, 1: 0.92, 2: 0.30, 3: 0.88, 4: 0.28, 5: 0.32, 6: 0.31, 7: 0.29}
    assert same_cluster(similar, [0, 1, 2]) == [0, 1, 3]


def test_the_least_similar_is_never_taken_for_kin() -> None:
    """Kin spread widely and strangers narrowly: by density alone, 0.0 would belong to the wider Gaussian."""
    similar = {0: 1.0, 1: 0.6, 2: 1.4, 3: 0.21, 4: 0.2, 5: 0.19, 6: 0.2, 7: 0.0}
    assert same_cluster(similar, [0, 1, 2]) == [0, 1, 2]


def test_as_printed_the_densities_alone_decide() -> None:
    """The same similarities without the rule for what lies beyond the centres.

    One's own {1.0, 0.6, 1.4}: mean 1, variance 0.32 / 3 = 0.1067. The others {0.21, 0.2, 0.19, 0.2, 0.0}: mean 0.16,
    variance (0.05^2 + 0.04^2 + 0.03^2 + 0.04^2 + 0.16^2) / 5 = 0.00644, deviation 0.0802.
    log(beta / sigma) - (y - mean)^2 / (2 variance) at 0.0: own log(0.375 / 0.3266) - 1 / 0.2133 = -4.55, others
    log(0.625 / 0.0802) - 0.0256 / 0.01288 = 0.07. So 0.0 is not taken yet, nor is anything else: it ends at once.
    """
    similar = {0: 1.0, 1: 0.6, 2: 1.4, 3: 0.21, 4: 0.2, 5: 0.19, 6: 0.2, 7: 0.0}
    assert same_cluster_as_printed(similar, [0, 1, 2]) == [0, 1, 2]
    # Without 7 among the others at the start, they are narrow: mean 0.2, variance 0.0002 / 4, deviation 0.00707. One's
    # own, with it: mean 0.75, variance 1.07 / 4, deviation 0.517. At 0.0, own: log(0.5 / 0.517) - 0.5625 / 0.535
    # = -1.08; others: log(0.5 / 0.00707) - 0.04 / 0.0001 = -396. The least similar of all stays one's own.
    assert same_cluster_as_printed(similar, [0, 1, 2, 7]) == [0, 1, 2, 7]
    assert same_cluster(similar, [0, 1, 2, 7]) == [0, 1, 2]


def test_as_printed_a_component_may_be_as_narrow_as_it_is() -> None:
    """Trusted peers spread less than their cluster does: as printed, its other members stay out.

    Own {1.00, 1.02}: mean 1.01, deviation 0.01. Others {0.9, 0.2, 0.1}: mean 0.4, deviation sqrt(0.38 / 3) = 0.356.
    At 0.9, own: log(0.4 / 0.01) - 0.0121 / 0.0002 = -56.8; others: log(0.6 / 0.356) - 0.25 / 0.2533 = -0.46.
    With the floor, a tenth of the deviation of all (0.403): 0.0403, at 0.9, own: log(0.4 / 0.0403) - 0.0121 / 0.00325
    = -1.43, still out; so with 0.96 instead: others {0.96, 0.2, 0.1}, mean 0.42, deviation 0.384. As printed, own:
    log(40) - 0.0025 / 0.0002 = -8.8; others: log(0.6 / 0.384) - 0.2916 / 0.295 = -0.54: out. With the floor
    (deviation of all 0.415: 0.0415), own: log(0.4 / 0.0415) - 0.0025 / 0.00344 = 1.54: in.
    """
    similar = {0: 1.00, 1: 1.02, 2: 0.96, 3: 0.2, 4: 0.1}
    assert same_cluster_as_printed(similar, [0, 1]) == [0, 1]
    assert same_cluster(similar, [0, 1]) == [0, 1, 2]


def test_as_printed_the_higher_centre_is_ones_own() -> None:
    """Whoever was trusted: of two groups far apart, the paper's text takes the one with the higher mean."""
    similar = {0: 0.9, 1: 0.8, 2: 0.1, 3: 0.2}
    assert same_cluster_as_printed(similar, [2, 3]) == [0, 1]
    assert same_cluster_as_printed(similar, [0, 1]) == [0, 1]


def test_as_printed_one_peer_alone_is_a_point() -> None:
    """A component of one has no width: nothing but its own value is like it."""
    assert same_cluster_as_printed({0: 1.0, 1: 0.99, 2: 0.1, 3: 0.0}, [0]) == [0]
    assert same_cluster_as_printed({0: 1.0, 1: 1.0, 2: 0.1, 3: 0.0}, [0]) == [0, 1]
    assert same_cluster_as_printed({}, []) == []
    assert same_cluster_as_printed({1: 0.5, 2: 0.6}, [1, 2]) == [1, 2]


def test_similarity_by_loss_in_both_forms() -> None:
    """-log(1/4) = log 4; 1 / (1/4) = 4; a loss of 0 is as good as 1e-12."""
    assert SIMILARITY["log"](0.25) == pytest.approx(math.log(4))
    assert SIMILARITY["inverse"](0.25) == 4.0
    assert SIMILARITY["inverse"](0.0) == 1e12


def test_the_chosen_form_of_similarity_is_what_matching_sees() -> None:
    """Peers that do not train all have the same loss, so `inverse` is exp(`log`)."""
    seen: dict[str, float] = {}

    @dataclass(frozen=True)
    class Watched(PANM):
        async def compare(
            self, me: Peer, candidates: Sequence[int], update: Weights, samples: int
        ) -> tuple[Models, Similarities]:
            models, similar = await super().compare(me, candidates, update, samples)
            seen[self.similarity] = min(similar.values())
            return models, similar

    for form in ("log", "inverse"):
        play(Watched(l=3, k=2, t1=1, similarity=form), 5, 1)
    assert seen["inverse"] == pytest.approx(math.exp(seen["log"]))


def test_the_chosen_em_decides_who_stays() -> None:
    """The similarities of the test above, in a matching round of peer 0: l = 2, its neighbours 1 and 2 are trusted."""

    @dataclass(frozen=True)
    class Given(PANM):
        async def compare(
            self,
            me: Peer,
            candidates: Sequence[int],
            update: Weights,  # noqa: ARG002
            samples: int,  # noqa: ARG002
        ) -> tuple[Models, Similarities]:
            models = await me.fetch(candidates, "model")
            return models, {j: {1: 1.0, 2: 1.02, 3: 0.96, 4: 0.2, 5: 0.1}.get(j, 0.0) for j in models}

    kept = {}
    for em in ("guarded", "printed"):
        records = play(Given(l=3, k=2, t1=1, tau=2, em=em), 6, 2)
        kept[em] = [r.notes["neighbours"] for r in records if r.peer == 0]
    assert kept["guarded"][1] == [1, 2, 3]
    assert kept["printed"][1] == [1, 2]


def test_who_has_lost_all_neighbours_matches_with_somebody_who_is_there() -> None:
    """Peer 0 of four knows peer 1 alone, which is gone: nobody is trusted, so the matching finds nobody. Peer 1 must
    not stay its only neighbour: it never answers."""

    class Alone(PANM):
        async def setup(self, me: Peer) -> None:
            me.state["neighbours"] = [1] if me.id == 0 else []

    records = play(Alone(l=3, k=1, t1=0, tau=1), 4, 1, away=[1])
    [kept] = [r.notes["neighbours"] for r in records if r.peer == 0]
    assert kept in ([2], [3])


def test_empty_components_end_the_matching() -> None:
    assert same_cluster({}, []) == []
    assert same_cluster({1: 0.5, 2: 0.6}, [1, 2]) == [1, 2]
    assert same_cluster({1: 0.5, 2: 0.6}, []) == []


@given(
    st.lists(st.floats(0.6, 0.7), min_size=3, max_size=10),
    st.lists(st.floats(0.1, 0.2), min_size=3, max_size=10),
)
def test_separated_groups_stay_apart(kin: list[float], strangers: list[float]) -> None:
    similar = dict(enumerate([*kin, *strangers]))
    assert same_cluster(similar, list(range(len(kin)))) == list(range(len(kin)))


@given(st.dictionaries(st.integers(0, 50), st.floats(-1e6, 1e6), max_size=30), st.data())
def test_any_similarities_give_an_answer(similar: dict[int, float], data: st.DataObject) -> None:
    trusted = data.draw(st.lists(st.sampled_from(sorted(similar)), unique=True)) if similar else []
    for em in (same_cluster, same_cluster_as_printed):
        found = em(similar, trusted)
        assert found == sorted(set(found))
        assert set(found) <= set(similar)


# -- the rounds --------------------------------------------------------------------------------


def test_stage_one_keeps_the_best_and_stage_two_grows_the_list() -> None:
    method = PerfectPANM(l=4, k=2, t1=20, tau=5, clusters=3)
    by_round: dict[int, list[list[int]]] = {}
    records = play(method, 18, 60)
    for record in records:
        by_round.setdefault(record.round, []).append(record.notes["neighbours"])
    assert all(len(neighbours) == 2 for neighbours in by_round[20])
    assert by_round[21] == by_round[24]  # between matchings the list stays
    # Of the five others of one's cluster nearly all are found; nobody else ever is.
    assert np.mean([len(neighbours) for neighbours in by_round[60]]) > 4.5
    assert all(j % 3 == r.peer % 3 for r in records if r.round > 20 for j in r.notes["neighbours"])


def test_gradient_metric_by_hand() -> None:
    """alpha cos(updates) + (1 - alpha) cos(ways since the start), on vectors that are easy to see."""
    seen: dict[int, Similarities] = {}

    @dataclass(frozen=True)
    class Watched(PANM):
        async def compare(
            self,
            me: Peer,
            candidates: Sequence[int],
            update: Weights,  # noqa: ARG002
            samples: int,
        ) -> tuple[Models, Similarities]:
            start = me.initial().vector
            way = torch.zeros_like(start)
            way[me.id] = 2.0  # at right angles for 0 and 1
            me.model.vector.copy_(start + way)
            me.shelve("model", me.model)
            step = torch.zeros_like(start)
            step[0], step[1] = (1.0, 0.0) if me.id == 0 else (3.0, 4.0)  # cos = 3 / 5
            me.shelve("update", Weights(me.model.layout, step))
            models, similar = await super().compare(me, candidates, Weights(me.model.layout, step), samples)
            seen[me.id] = similar
            return models, similar

    play(Watched(metric="grad", l=1, k=1, t1=1, alpha=0.25), 2, 1)
    assert seen[0][1] == pytest.approx(0.25 * 0.6, abs=1e-5)
    assert seen[1][0] == pytest.approx(seen[0][1], abs=1e-6)


def test_pens_keeps_who_was_chosen_more_often_than_chance() -> None:
    # 11 peers, t1 = 4, k = 5: chance is 4 * 5 / 10 = 2 choices.
    class Me:
        peers = range(1, 11)
        state: ClassVar = {"chosen": {1: 4, 2: 3, 3: 2, 4: 1}}

    assert PENS(t1=4, k=5).permanent(Me()) == [1, 2]  # type: ignore[arg-type]
    assert PENS(t1=4, k=3, often=4).permanent(Me()) == [1, 2, 3]  # type: ignore[arg-type]


def test_without_alpha_updates_are_not_sent() -> None:
    """Stage one with l = 2 and k = 1: two models in round 1, then three a round, and as many updates."""
    for alpha, names in ((0.5, {"model", "update"}), (0.0, {"model"})):
        records = play(PANM(metric="grad", l=2, k=1, t1=3, alpha=alpha), 5, 3)
        assert {name for r in records for name in r.messages} == names
        for name in names:
            assert [r.messages[name] for r in records if r.peer == 0] == [2, 3, 3]


@pytest.mark.parametrize(
    ("peers", "k", "candidates", "t1", "threshold"),
    [(100, 5, 10, 100, 15), (200, 5, 10, 100, 8), (100, 10, 20, 100, 30), (50, 5, 10, 20, 6)],
)
def test_the_threshold_of_panms_paper(peers: int, k: int, candidates: int, t1: int, threshold: int) -> None:
    """ceil(T1 (l + k) / n): 15 of Table 2's 100 clients, ceil(7.5) of MNIST's 200, 30 with l = 20 and k = 10."""
    assert PENS(t1=t1, l=candidates, k=k, expected="panm").threshold(peers - 1) == threshold


def test_a_threshold_of_ones_own_wins() -> None:
    assert PENS(t1=100, often=7, expected="panm").threshold(99) == 7
    assert PENS(t1=100, k=5).threshold(99) == pytest.approx(500 / 99)
    assert PENS(t1=100, k=5).threshold(0) == 500  # nobody is there any more


def test_similarity_by_loss_is_the_inverse_of_the_loss() -> None:
    records = play(PANM(metric="loss", l=3, k=2, t1=3), 5, 3)
    assert all(len(r.notes["neighbours"]) == 2 for r in records)
    assert np.isfinite([sum(r.notes["weights"].values()) for r in records]).all()


def test_one_diverged_model_spoils_nothing() -> None:
    """A loss that is no number makes a model unlike anybody's, and the others are told apart as ever."""
    scores = [Score(float("nan"), 0.1), Score(float("inf"), 0.1), Score(0.5, 0.9)]
    assert [s.rank for s in scores] == [math.inf, math.inf, 0.5]
    similar = {1: 1 / 0.2, 2: 1 / 0.196, 3: 1.0, 4: 1 / math.inf, 5: 0.9}
    assert same_cluster(similar, [1, 2]) == [1, 2]


@pytest.mark.parametrize("method", ["panm", "pens"])
def test_stage_one_cannot_be_shorter_than_no_round(method: str) -> None:
    with pytest.raises(ConfigError, match=r"method\.t1 must be at least 0, not -1"):
        load("panm-digits", [f"method.name={method}", "method.t1=-1"])
