"""MAPL: its losses and its graph against the formulas, what it costs, and peers that come and go."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from torch import Tensor
from torch.func import functional_call

from coterie import wiring
from coterie.config import loading
from coterie.config.sections import ClockSettings
from coterie.core.artifact import Artifact
from coterie.core.errors import ConfigError, ModelError
from coterie.core.events import PeerRound
from coterie.core.jobs import Pool, Split, TrainSettings
from coterie.core.loss import Batch
from coterie.core.model import Architecture
from coterie.core.net import Output
from coterie.core.others import Others
from coterie.core.peer import Peer
from coterie.core.peer_data import PeerData
from coterie.core.weights import Weights
from coterie.methods.components.collaboration import (
    Acquaintance,
    alike_in_gram,
    alike_in_rows,
    on_simplex,
    shares,
    similarities,
)
from coterie.methods.components.graph_steps import EPSILON, by_adam, gradient
from coterie.methods.components.simplex import project_to_simplex
from coterie.methods.mapl import MAPL, MAPLPlus
from coterie.methods.mapl_losses import (
    authors_loss,
    contrastive_of_sums,
    exponential_uniformity,
    mapl_loss,
    to_long_prototypes,
    to_prototypes,
    uniformity,
)
from coterie.models import ModelSettings, build
from coterie.simulation.clock import Clock
from coterie.simulation.director import Simulation
from coterie.simulation.local_stage import LocalStage
from coterie.training import Trainer
from coterie.training.losses import supervised_contrastive

# -- the losses, from the formulas -------------------------------------------------------------


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def contrastive_twin(p: np.ndarray, y: np.ndarray, tau: float) -> float:
    total = 0.0
    for q in range(len(y)):
        positives = [r for r in range(len(y)) if r != q and y[r] == y[q]]
        below = sum(math.exp(cosine(p[q], p[m]) / tau) for m in range(len(y)) if m != q)
        total -= sum(math.log(math.exp(cosine(p[q], p[r]) / tau) / below) for r in positives) / max(len(positives), 1)
    return total / len(y)


def prototype_twin(p: np.ndarray, y: np.ndarray, xi: np.ndarray, tau: float) -> float:
    shares = [
        math.exp(cosine(p[q], xi[y[q]]) / tau) / sum(math.exp(cosine(p[q], k) / tau) for k in xi) for q in range(len(y))
    ]
    return -sum(map(math.log, shares)) / len(y)


def uniformity_twin(xi: np.ndarray) -> float:
    return sum(cosine(xi[k], xi[r]) for k in range(len(xi)) for r in range(len(xi)) if r != k) / len(xi)


cases = st.tuples(
    st.integers(1, 6), st.integers(2, 5), st.integers(1, 4), st.sampled_from([0.1, 0.5, 100.0]), st.integers(0, 999)
)


@given(cases)
@settings(deadline=None, max_examples=40)
def test_losses_are_those_of_the_formulas(case: tuple[int, int, int, float, int]) -> None:
    size, width, classes, tau, seed = case
    rng = np.random.default_rng(seed)
    p, xi = rng.normal(size=(2 * size, width)), rng.normal(size=(classes, width))
    y = np.tile(rng.integers(classes, size=size), 2)
    tensors = torch.from_numpy(p), torch.from_numpy(y)
    at = torch.tensor(tau, dtype=torch.float64)
    assert float(supervised_contrastive(*tensors, at)) == pytest.approx(contrastive_twin(p, y, tau), abs=1e-9)
    assert float(to_prototypes(*tensors, torch.from_numpy(xi), at)) == pytest.approx(
        prototype_twin(p, y, xi, tau), abs=1e-9
    )
    assert float(uniformity(torch.from_numpy(xi))) == pytest.approx(uniformity_twin(xi), abs=1e-9)


def test_a_sample_without_a_twin_counts_as_zero() -> None:
    """Three samples at right angles; the third is alone in its class, and each has two others below the line."""
    p, y = torch.eye(3), torch.tensor([0, 0, 1])
    assert float(supervised_contrastive(p, y, torch.tensor(1.0))) == pytest.approx(2 / 3 * math.log(2))


class Plain:
    """A net whose projection and logits are its inputs."""

    def __init__(self, prototypes: Tensor) -> None:
        self.parameters = {"prototypes": prototypes}

    def __call__(self, x: Tensor) -> Output:
        return Output(x, x, x)


@pytest.mark.parametrize("off", ["ce", "contrast", "proto", "uniform"])
def test_each_term_can_be_switched_off(off: str) -> None:
    rng = np.random.default_rng(0)
    views, y, xi = rng.normal(size=(2, 3, 4)), np.array([0, 1, 1]), rng.normal(size=(4, 4))
    p, both = views.reshape(6, 4), np.tile(y, 2)
    log_shares = p - np.log(np.exp(p).sum(1, keepdims=True))
    expected = {
        "ce": -log_shares[np.arange(6), both].mean(),
        "contrast": contrastive_twin(p, both, 0.7),
        "proto": prototype_twin(p, both, xi, 0.3),
        "uniform": uniformity_twin(xi),
    }
    weights = {**dict.fromkeys(expected, 1.0), off: 0.0, "tau": 0.7, "tau_proto": 0.3}
    batch = Batch(torch.from_numpy(views[0]), torch.from_numpy(y), torch.from_numpy(views))
    loss = mapl_loss(Plain(torch.from_numpy(xi)), batch, {k: torch.tensor(v) for k, v in weights.items()})
    assert float(loss) == pytest.approx(sum(expected.values()) - expected[off], abs=1e-6)


@pytest.mark.parametrize(("tau", "tau_proto", "expected"), [(0.5, 0.0, 0.5), (100.0, 1.0, 1.0), (100.0, 0.0, 100.0)])
def test_the_temperature_of_prototypes_is_the_others_unless_it_is_set(
    tau: float, tau_proto: float, expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings of before it could be set mean what they meant."""
    given: list[Mapping[str, Tensor]] = []
    train = Peer.train

    def watched(self: Peer, *args: Any, **named: Any) -> Any:
        given.append(named["given"])
        return train(self, *args, **named)

    monkeypatch.setattr(Peer, "train", watched)
    play(MAPL(tau=tau, tau_proto=tau_proto), 2, 1)
    assert {(float(g["tau"]), float(g["tau_proto"])) for g in given} == {(tau, expected)}


def test_how_weak_the_prototype_loss_is_at_the_papers_temperature() -> None:
    """Gradients on prototypes as a peer begins with them: at 100 that of the prototype loss is hundreds of times
    smaller than uniformity's, at 1 it is some times smaller."""
    torch.manual_seed(0)
    bound = 1 / math.sqrt(512)
    prototypes = torch.empty(10, 512).uniform_(-bound, bound).requires_grad_(True)
    projected, labels = torch.randn(128, 512), torch.arange(128) % 10

    def size(loss: Tensor) -> float:
        (slope,) = torch.autograd.grad(loss, prototypes)
        return float(slope.norm())

    uniform = size(uniformity(prototypes))
    at_100, at_1 = (size(to_prototypes(projected, labels, prototypes, torch.tensor(t))) for t in (100.0, 1.0))
    assert uniform / at_100 > 300
    assert uniform / at_1 < 30


# -- the losses, from what the authors' code computes ------------------------------------------


def sums_twin(p: np.ndarray, y: np.ndarray, tau: float) -> float:
    """The log of the share of all positives together, one pair at a time."""
    total = 0.0
    for q in range(len(y)):
        at = {r: math.exp(cosine(p[q], p[r]) / tau) for r in range(len(y)) if r != q}
        total -= math.log(sum(v for r, v in at.items() if y[r] == y[q]) / sum(at.values()))
    return total / len(y)


def long_prototype_twin(p: np.ndarray, y: np.ndarray, xi: np.ndarray, divided_by: float) -> float:
    """Exponentials first, divided afterwards, as in the authors' code: what they are divided by makes no difference."""
    total = 0.0
    for q in range(len(y)):
        at = [math.exp(float(p[q] @ k) / np.linalg.norm(p[q])) / divided_by for k in xi]
        total -= math.log(at[y[q]] / sum(at))
    return total / len(y)


def exponential_twin(xi: np.ndarray, tau: float) -> float:
    pairs = [(k, r) for k in range(len(xi)) for r in range(len(xi)) if r != k]
    return sum(math.exp(float(xi[k] @ xi[r]) / tau) for k, r in pairs) / len(xi)


@given(cases)
@settings(deadline=None, max_examples=40)
def test_the_authors_losses_are_those_of_their_code(case: tuple[int, int, int, float, int]) -> None:
    size, width, classes, tau, seed = case
    rng = np.random.default_rng(seed)
    views, xi = rng.normal(size=(2, size, width)), rng.normal(size=(classes, width))
    y = rng.integers(classes, size=size)
    p, both = views.reshape(2 * size, width), np.tile(y, 2)
    projected, labels, prototypes = torch.from_numpy(p), torch.from_numpy(both), torch.from_numpy(xi)
    at, one = torch.tensor(tau, dtype=torch.float64), torch.tensor(1.0, dtype=torch.float64)
    assert float(contrastive_of_sums(projected, labels, at)) == pytest.approx(sums_twin(p, both, tau), abs=1e-9)
    assert float(to_long_prototypes(projected, labels, prototypes, one)) == pytest.approx(
        long_prototype_twin(p, both, xi, 100.0), abs=1e-9
    )
    assert float(exponential_uniformity(prototypes, at)) == pytest.approx(exponential_twin(xi, tau), rel=1e-9)


def test_the_authors_contrast_by_hand() -> None:
    """Four samples at right angles, but the first two are one: cosines 1 and 0. Three are of class 0.

    At temperature 1, samples 0 and 1 have others e, 1, 1 of which e and 1 are positive; sample 2 has 1, 1, 1, of which
    two are positive. With the paper's mean of logs, samples 0 and 1 would have log(e+2) - 1/2.
    """
    p, y = torch.tensor([[1.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]), torch.tensor([0, 0, 0, 1])
    three = p[:3], y[:3]
    both = torch.cat([p, p[3:]]), torch.cat([y, y[3:]])  # and the fourth once more, which needs one of its class
    assert float(contrastive_of_sums(*three, torch.tensor(1.0))) == pytest.approx(0, abs=1e-6)  # all are positive
    e = math.e
    expected = (2 * math.log((e + 3) / (e + 1)) + math.log(4 / 2) + 2 * math.log((e + 3) / e)) / 5
    assert float(contrastive_of_sums(*both, torch.tensor(1.0))) == pytest.approx(expected)


def test_the_authors_loss_is_the_sum_of_its_terms() -> None:
    rng = np.random.default_rng(1)
    views, y, xi = rng.normal(size=(2, 3, 4)), np.array([0, 1, 1]), rng.normal(size=(4, 4))
    p, both = views.reshape(6, 4), np.tile(y, 2)
    log_shares = p - np.log(np.exp(p).sum(1, keepdims=True))
    expected = (
        -log_shares[np.arange(6), both].mean()
        + 2 * sums_twin(p, both, 100.0)
        + 3 * long_prototype_twin(p, both, xi, 1.0)
        + 4 * exponential_twin(xi, 100.0)
    )
    weights = {"ce": 1.0, "contrast": 2.0, "proto": 3.0, "uniform": 4.0, "tau": 100.0, "tau_proto": 1.0}
    batch = Batch(torch.from_numpy(views[0]), torch.from_numpy(y), torch.from_numpy(views))
    loss = authors_loss(Plain(torch.from_numpy(xi)), batch, {k: torch.tensor(v) for k, v in weights.items()})
    assert float(loss) == pytest.approx(expected, abs=1e-6)


# -- the graph ---------------------------------------------------------------------------------

points = st.lists(st.floats(-3, 3), min_size=1, max_size=8).map(np.array)


@given(points)
def test_the_projection_is_that_of_bisection(point: np.ndarray) -> None:
    """max(point - c, 0) for the one c that makes its sum one."""
    low, high = point.min() - 1, point.max()
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if np.maximum(point - middle, 0).sum() > 1 else (low, middle)
    projected = project_to_simplex(point)
    assert projected == pytest.approx(np.maximum(point - low, 0), abs=1e-9)
    assert projected.sum() == pytest.approx(1)


@given(points)
@settings(deadline=None, max_examples=30)
def test_the_projection_solves_the_quadratic_programme(point: np.ndarray) -> None:
    start = np.full(len(point), 1 / len(point))
    solved = minimize(
        lambda w: ((w - point) ** 2).sum(), start, jac=lambda w: 2 * (w - point), method="SLSQP",
        bounds=[(0, 1)] * len(point), constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
        options={"maxiter": 500, "ftol": 1e-14},
    )  # fmt: skip
    assert project_to_simplex(point) == pytest.approx(solved.x, abs=1e-5)


@pytest.mark.parametrize("norm", ["l1", "l2"])
@given(seed=st.integers(0, 999), size=st.integers(2, 6))
@settings(deadline=None)
def test_the_graphs_gradient_is_that_of_finite_differences(norm: str, seed: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    method, own = MAPL(mu1=0.7, mu2=0.3, beta=0.5, norm=norm), seed % size
    w, gamma, s = rng.dirichlet(np.ones(size)), rng.dirichlet(np.ones(size)), -rng.uniform(-1, 1, size)

    def loss(w: np.ndarray) -> float:
        length = np.abs(w).sum() if norm == "l1" else np.sqrt((w**2).sum())
        degree = sum(w[j] for j in range(size) if j != own)
        return float(0.7 * (gamma * w * s).sum() + 0.3 * (0.5 * length - math.log(degree + EPSILON)))

    h = 1e-4 * w.min()
    differences = [(loss(w + step) - loss(w - step)) / (2 * h) for step in h * np.eye(size)]
    assert gradient(w, own, 0.7 * gamma * -s, method) == pytest.approx(np.array(differences), rel=1e-4, abs=1e-5)


def test_the_degree_really_pulls() -> None:
    """Without it, a peer that is most like itself would give all weight to itself."""
    row = {j: Acquaintance(1 / 3, 10) for j in range(3)}
    alike = {1: 0.5, 2: 0.5}
    learned = MAPL(step=0.5 / 3, mu1=0.5, mu2=0.1, beta=0.0).learn(0, row, alike)
    # gamma is 1/3, the similarities 1 and 1 (both the largest): the pull is 1/6 for all, the degree's 0.1 / (2/3 + eps)
    push = 0.1 / (2 / 3 + EPSILON)
    expected = project_to_simplex(1 / 3 + 0.5 * np.array([1 / 6, 1 / 6 + push, 1 / 6 + push]))
    assert [learned[j].weight for j in range(3)] == pytest.approx(expected)
    assert learned[0].weight < 1 / 3 < learned[1].weight


def test_one_step_by_hand() -> None:
    """Two others of 10 and 30 samples, one half as alike as the other."""
    row = {0: Acquaintance(0.2, 10), 1: Acquaintance(0.4, 10), 2: Acquaintance(0.4, 30)}
    learned = MAPL(step=0.1 / 3, mu1=1.0, mu2=0.5, beta=2.0).learn(0, row, {1: 0.6, 2: 0.3})
    length, degree = math.sqrt(0.2**2 + 2 * 0.4**2), 0.8 + EPSILON
    gradient = [
        -0.2 * 1 + 0.5 * (2 * 0.2 / length),
        -0.2 * 1 + 0.5 * (2 * 0.4 / length - 1 / degree),
        -0.6 * 0.5 + 0.5 * (2 * 0.4 / length - 1 / degree),
    ]
    expected = project_to_simplex(np.array([0.2, 0.4, 0.4]) - 0.1 * np.array(gradient))
    assert [learned[j].weight for j in range(3)] == pytest.approx(expected)


def test_one_step_of_adam_by_hand() -> None:
    """Gradients by their sign, a tenth far: the degree, which would pull towards others, has no part in it.

    The pulls are 0.5 * 1/4 * (1, 1, 0.5, -0.5), the norm's 0.1 * 0.5 * 0.25 / 0.5 = 0.025: the gradients of the first
    three are negative, that of the last is positive. From 0.25 to 0.35, 0.35, 0.35 and 0.15; 0.05 too much each.
    """
    row = {j: Acquaintance(0.25, 10) for j in range(4)}
    learned = MAPL(graph_step="adam").learn(0, row, {1: 0.8, 2: 0.4, 3: -0.4})
    assert [learned[j].weight for j in range(4)] == pytest.approx([0.3, 0.3, 0.3, 0.1], abs=1e-6)


@given(seed=st.integers(0, 999), size=st.integers(2, 6))
@settings(deadline=None, max_examples=30)
def test_the_step_of_adam_is_torchs_first(seed: int, size: int) -> None:
    """Their loss with torch's own optimiser: the degree is a number, so its log adds nothing to the gradient."""
    rng = np.random.default_rng(seed)
    own, start = seed % size, rng.dirichlet(np.ones(size))
    gamma, s = rng.dirichlet(np.ones(size)), rng.uniform(-1, 1, size)
    w = torch.from_numpy(start.copy()).requires_grad_(True)
    adam = torch.optim.Adam([w], lr=0.1, betas=(0.5, 0.999))
    loss = 0.5 * (torch.from_numpy(-s * gamma) * w).sum() + 0.1 * (0.5 * w.norm() - math.log(1 - start[own] + 1e-6))
    loss.backward()
    adam.step()
    assert by_adam(start, own, 0.5 * gamma * s, MAPL()) == pytest.approx(w.detach().numpy(), abs=1e-9)


def test_shares_of_an_average() -> None:
    """Of weights 0, 0.3 and 0.1: alone they count 3/4 and 1/4; one's own as the mean other's, 0.2: 1/3, 1/2, 1/6."""
    row = {0: Acquaintance(0.0, 5), 1: Acquaintance(0.3, 5), 2: Acquaintance(0.1, 5), 3: Acquaintance(0.6, 5)}
    assert shares(0, row, [1, 2], keep_own=False) == pytest.approx({0: 0, 1: 3 / 4, 2: 1 / 4})
    assert shares(0, row, [1, 2], keep_own=True) == pytest.approx({0: 1 / 3, 1: 1 / 2, 2: 1 / 6})
    assert shares(3, row, [1, 2], keep_own=True) == pytest.approx({3: 0.6, 1: 0.3, 2: 0.1})  # it has more than that
    assert shares(0, row, [], keep_own=True) == {0: 1.0}


@pytest.mark.parametrize("peers", [2, 5, 20, 100, 400])
def test_rows_settle_in_circles_of_any_size(peers: int) -> None:
    """Half are alike, half are not: repeated steps come to rest, with more weight on one's kind."""
    method, row = MAPL(), {j: Acquaintance(1 / peers, 10) for j in range(peers)}
    similar = {j: 0.95 if j < peers / 2 else 0.1 for j in range(1, peers)}
    for _ in range(60):
        before, row = row, method.learn(0, row, similar)
    assert max(abs(row[j].weight - before[j].weight) for j in row) < 1e-3 / peers
    assert peers < 3 or sum(a.weight for j, a in row.items() if j < peers / 2) > 0.5


def test_l1_is_constant_on_the_simplex() -> None:
    row = {0: Acquaintance(0.0, 10), 1: Acquaintance(0.7, 10), 2: Acquaintance(0.3, 30)}
    rows = [MAPL(norm="l1", beta=beta).learn(0, row, {1: 0.6, 2: 0.3}) for beta in (0.0, 0.5, 3.0)]
    for j in row:
        assert rows[1][j].weight == pytest.approx(rows[0][j].weight)
        assert rows[2][j].weight == pytest.approx(rows[0][j].weight)


def test_switches_of_the_graphs_ablation() -> None:
    row = {0: Acquaintance(1 / 3, 10), 1: Acquaintance(1 / 3, 10), 2: Acquaintance(1 / 3, 30)}
    unlike, alike = {1: 0.9, 2: 0.1}, {1: 0.5, 2: 0.5}
    blind = MAPL(similarity=False)
    assert blind.learn(0, row, unlike) == blind.learn(0, row, alike)
    equal = MAPL(confidence=False).learn(0, row, alike)
    assert equal[1].weight == pytest.approx(equal[2].weight)
    assert MAPL().learn(0, row, alike)[2].weight > MAPL().learn(0, row, alike)[1].weight


@given(st.dictionaries(st.integers(1, 9), st.floats(-1, 1), max_size=6), st.integers(0, 99))
def test_rows_stay_stochastic(similar: dict[int, float], seed: int) -> None:
    rng = np.random.default_rng(seed)
    row = {0: Acquaintance(float(rng.random()), 5), **{j: Acquaintance(float(rng.random()), 3) for j in similar}}
    learned = MAPL(e_g=3).learn(0, row, similar)
    weights = [a.weight for a in learned.values()]
    assert min(weights) >= 0
    assert sum(weights) == pytest.approx(1)


def test_a_row_that_everybody_has_left_is_ones_own() -> None:
    assert on_simplex(3, {3: Acquaintance(0.0, 5), 1: Acquaintance(0.0, 2)})[3].weight == 1
    assert MAPL().learn(3, {3: Acquaintance(0.0, 5)}, {})[3].weight == 1


def test_similarity_is_the_mean_cosine_of_rows() -> None:
    mine = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    theirs = torch.tensor([[3.0, 4.0], [0.0, -1.0]])  # 0.6 and -1
    heads = {
        4: Artifact.snapshot("head", 4, 1, {"weight": theirs}, {}),
        5: Artifact.snapshot("head", 5, 1, {"weight": mine * math.nan}, {}),
    }
    assert similarities(mine, heads, "rows", alike_in_rows) == pytest.approx({4: -0.2, 5: -1.0})
    # Inner products: mine 1, 0, 0, 4; theirs 25, -4, -4, 1.
    assert similarities(mine, heads, "gram", alike_in_gram) == pytest.approx({4: 29 / math.sqrt(17 * 658), 5: -1.0})


@given(st.integers(0, 99))
def test_gram_does_not_see_how_features_are_turned(seed: int) -> None:
    rng = np.random.default_rng(seed)
    mine = torch.from_numpy(rng.normal(size=(4, 6)))
    turn = torch.from_numpy(np.linalg.qr(rng.normal(size=(6, 6)))[0])
    assert alike_in_gram(mine, mine @ turn) == pytest.approx(1)
    assert alike_in_rows(mine, mine @ turn) < 0.9


# -- whole rounds ------------------------------------------------------------------------------

CLASSES, FEATURES, PROJECTED = 3, 4, 5


def play(
    method: MAPL,
    peers: int,
    rounds: int,
    clock: ClockSettings | None = None,
    zoo: tuple[str, ...] = ("mlp",),
    asynchronous: bool = False,
) -> tuple[list[PeerRound], list[Peer]]:
    """The method over peers that do not train: what they exchange and decide alone."""
    shape = (1, 4, 4) if len(zoo) > 1 else (2,)
    settings = ModelSettings(hidden=(2,), d_z=FEATURES, d_p=PROJECTED, projector_hidden=2)
    make = partial(build, input_shape=shape, classes=CLASSES, settings=settings, parts=method.parts)
    kinds = [Architecture(name, partial(make, name)) for name in zoo]
    pool = Pool(torch.randn(4, *shape), torch.tensor([0, 1, 2, 0]))
    split = Split(pool, torch.arange(4))
    members = [
        Peer(
            i, 0, Others(peers, i), kinds[i % len(kinds)].initial(0), TrainSettings(epochs=0), None,  # type: ignore[arg-type]
            PeerData(split, split, split), rounds=rounds,
        )
        for i in range(peers)
    ]  # fmt: skip
    records: list[PeerRound] = []
    see = lambda r: records.append(r) if isinstance(r, PeerRound) else None  # noqa: E731
    ticks = Clock(clock or ClockSettings(), peers, 0)
    stage = LocalStage(method, members, rounds, Trainer(), evaluate_every=10**6)
    Simulation(stage, ticks, on_record=see, asynchronous=asynchronous).run()
    return records, members


def test_without_graph_learning_everybody_fetches_from_everybody() -> None:
    """The paper's 152,000 = 20 x 19 x 400, at a twentieth of the rounds: 7,600."""
    records, _ = play(MAPL(graph=False), 20, 20)
    assert sum(r.messages.get("prototypes", 0) for r in records) == 20 * 19 * 20
    assert all("head" not in r.messages for r in records)


@pytest.mark.slow
def test_the_papers_number_of_messages() -> None:
    records, _ = play(MAPL(graph=False), 20, 400)
    assert sum(r.messages["prototypes"] for r in records) == 152_000


def test_bytes_are_those_of_table_7() -> None:
    """d_p K numbers of prototypes and d_z K of a head (the paper's phi without its bias), and a header."""
    records, members = play(MAPL(t_thr=1, step=0.0), 3, 1)
    for name, numbers in (("prototypes", PROJECTED * CLASSES), ("head", FEATURES * CLASSES)):
        got = {(r.bytes[name], r.messages[name]) for r in records}
        ((size, messages),) = got
        assert messages == 2
        assert 0 < size / 2 - 4 * numbers < 300
    assert members[0].model["head.weight"].numel() == FEATURES * CLASSES


def test_heads_are_fetched_only_when_they_are_compared() -> None:
    records, _ = play(MAPL(t_thr=3), 4, 4)
    assert {r.round for r in records if r.messages.get("head")} == {3, 4}


def test_prototypes_are_averaged_with_the_row() -> None:
    _, before = play(MAPL(graph=False), 3, 0)
    start = [peer.own_initial()["prototypes"] for peer in before]
    _, after = play(MAPL(graph=False), 3, 1)
    for peer in after:
        torch.testing.assert_close(peer.model["prototypes"], torch.stack(start).mean(0))


def test_the_report_is_told_the_directions_of_prototypes_before_they_are_averaged() -> None:
    """When the graph is first learned, and in the last round; of the classes that a peer has. So for latent
    features."""
    records, members = play(MAPL(t_thr=1), 3, 3)
    told = {(r.peer, r.round): r.notes["prototypes"] for r in records if "prototypes" in r.notes}
    assert sorted(told) == [(p, t) for p in range(3) for t in (1, 3)]
    features = {(r.peer, r.round): r.notes["features"] for r in records if "features" in r.notes}
    assert sorted(features) == sorted(told)
    for peer in members:  # their samples are of classes 0, 1, 2, 0
        assert peer.data is not None
        net = peer.architecture.scratch().eval()
        z = functional_call(net, dict(peer.own_initial()), (peer.data.train.x,)).features
        for k, rows in {"0": [0, 3], "1": [1], "2": [2]}.items():
            mean = z[rows].mean(0)
            assert features[peer.id, 1][k] == pytest.approx((mean / mean.norm()).tolist(), abs=5.1e-4)
    for peer in members:
        start = peer.own_initial()["prototypes"]
        first = told[peer.id, 1]
        assert list(first) == ["0", "1", "2"]
        for k in range(CLASSES):
            assert first[str(k)] == pytest.approx((start[k] / start[k].norm()).tolist(), abs=5.1e-4)


def test_only_those_with_weight_are_fetched() -> None:
    records, _ = play(MAPL(t_thr=2, beta=0.0, step=5.0, revisit=0), 6, 6)
    by_peer = {(r.peer, r.round): r for r in records}
    sparse = 0
    for t in range(3, 7):
        for i in range(6):
            now = by_peer[i, t]
            assert now.messages.get("head", 0) == len(by_peer[i, t - 1].notes["neighbours"])
            assert now.messages.get("prototypes", 0) == len(now.notes["neighbours"])
            sparse += len(now.notes["neighbours"]) < 5
    assert sparse > 0


def test_mapl_plus_averages_backbones_of_one_architecture_only() -> None:
    """Peers 0, 2 are MLPs, 1, 3 CNNs: a backbone is averaged with one other, its normalisation and head are not."""
    zoo = ("mlp", "cnn3")
    _, members = play(MAPLPlus(graph=False), 4, 1, zoo=zoo)
    start = [peer.initial() for peer in members]
    for peer in members:  # backbones begin alike, and were not trained: their average is what it was
        names = [n for n in peer.model if n.startswith("backbone.")]
        assert all(torch.allclose(peer.model[n], start[peer.id][n]) for n in names)
    assert not torch.allclose(members[0].model["head.weight"], members[2].model["head.weight"])
    records, _ = play(MAPLPlus(graph=False), 4, 2, zoo=zoo)
    assert {r.messages["backbone"] for r in records} == {1}
    assert {r.messages["prototypes"] for r in records} == {3}


def test_two_of_one_architecture_average_their_backbones_and_do_not_swap_them() -> None:
    """Also when all their weight is on each other, as graph learning makes it."""
    _, members = play(Marked(), 2, 1)
    rows = [{j: w for j, w, _ in peer.state["row"]} for peer in members]
    assert [rows[0][0], rows[1][1]] == [0, 0]
    for peer in members:
        torch.testing.assert_close(
            peer.model["backbone.1.weight"], torch.full_like(peer.model["backbone.1.weight"], 0.5)
        )


@pytest.mark.parametrize(("keep_own", "after"), [(True, [0.5, 0.5]), (False, [1.0, 0.0])])
def test_two_peers_average_their_prototypes_unless_the_paper_is_asked_for(keep_own: bool, after: list[float]) -> None:
    """All their weight is on each other. The paper's average then swaps what they have."""
    _, members = play(Marked(keep_own=keep_own), 2, 1)
    for peer, value in zip(members, after, strict=True):
        torch.testing.assert_close(peer.model["prototypes"], torch.full_like(peer.model["prototypes"], value))


def test_backbones_are_averaged_by_ones_row_within_an_architecture() -> None:
    """Peers 0, 2, 4 are MLPs marked 0, 2, 4. Peer 0's weights on the others' are 0.3 and 0.1, its own counts as 0.2."""
    _, members = play(Marked(fixed=True), 6, 1, zoo=("mlp", "cnn3"))
    assert torch.allclose(members[0].model["backbone.1.weight"], torch.tensor((0.2 * 0 + 0.3 * 2 + 0.1 * 4) / 0.6))


class Marked(MAPLPlus):
    """Backbones that are all 0, all 1, ...: one can see where an average comes from."""

    def __init__(self, fixed: bool = False, **parameters: Any) -> None:
        super().__init__(t_thr=1, **{"step": 0.0 if fixed else 50.0, **parameters})
        object.__setattr__(self, "fixed", fixed)

    async def setup(self, me: Peer) -> None:
        await super().setup(me)
        me.model["prototypes"].fill_(float(me.id))
        if "backbone.1.weight" in me.model:
            me.model["backbone.1.weight"].fill_(float(me.id))
        if self.fixed:
            weights = (0.0, 0.2, 0.3, 0.2, 0.1, 0.2)
            me.state["row"] = [[j, w, 4] for j, w in enumerate(weights)]


# -- another look at those who lost their weight ----------------------------------------------


class Noisy(MAPL):
    """Peers are all alike; but up to round 3, the heads of odd peers are the opposite of the even ones'."""

    async def round(self, me: Peer) -> None:
        sign = -1.0 if me.round <= 3 and me.id % 2 else 1.0
        me.model["head.weight"].fill_(sign)
        await super().round(me)


def test_a_weight_that_was_lost_comes_back() -> None:
    """Peers look unlike when the graph is first learned. Without another look the odd and the even never meet again."""
    lost, _ = play(Noisy(t_thr=2, likeness="rows", revisit=0), 6, 30)
    found, _ = play(Noisy(t_thr=2, likeness="rows", revisit=1), 6, 30)
    last = {r.peer: r for r in lost if r.round == 30}
    for p, r in last.items():
        assert r.notes["neighbours"] == [j for j in range(6) if j % 2 == p % 2 and j != p]
    again = {r.peer: r for r in found if r.round == 30}
    assert all(len(r.notes["neighbours"]) == 5 for r in again.values())


@pytest.mark.parametrize(("revisit", "heads"), [(0, 2), (1, 3), (2, 4), (19, 5)])
def test_another_look_costs_so_many_heads_a_round(revisit: int, heads: int) -> None:
    """Two clusters of three, apart after round 3: two heads of one's kind, and of the three others as many as asked."""
    records, _ = play(Noisy(t_thr=2, likeness="rows", revisit=revisit), 6, 4)
    assert {r.messages["head"] for r in records if r.round == 2} == {5}
    assert {len(r.notes["neighbours"]) for r in records if r.round == 3} == {2}
    assert {r.messages["head"] for r in records if r.round == 4} == {heads}


def test_another_look_is_at_somebody_who_is_there() -> None:
    """Real peers know who is there: of 1, 2 and 3, which have no weight, 2 and 3 are gone."""
    _, [me, *_] = play(MAPL(), 5, 1)
    row = {j: Acquaintance(w, 4) for j, w in enumerate((0.5, 0.0, 0.0, 0.0, 0.5))}
    assert MAPL(revisit=3)._again(me, row) == [1, 2, 3]
    me.meet([1, 4])
    assert [MAPL(revisit=1)._again(me, row) for _ in range(5)] == [[1]] * 5


class OfTwoKinds(MAPL):
    """The heads of the first ten peers know the first class alone, those of the others the second."""

    async def round(self, me: Peer) -> None:
        me.model["head.weight"].zero_()[me.id // 10] = 1.0
        await super().round(me)


@pytest.mark.parametrize(("preset", "heads"), [("mapl-scenario1", 9), ("mapl-scenario1-small", 10)])
def test_the_papers_preset_asks_its_own_kind_alone(preset: str, heads: int) -> None:
    """The paper's saving: from 19 prototypes a round to those of one's cluster. Ours looks at one more head."""
    parameters = {**asdict(loading.load(preset).method), "t_thr": 2}
    records, _ = play(OfTwoKinds(**parameters), 20, 8)
    assert {r.messages["prototypes"] for r in records if r.round == 1} == {19}
    assert {r.messages["prototypes"] for r in records if r.round == 8} == {9}
    assert {r.messages["head"] for r in records if r.round == 8} == {heads}


# -- exploring, and a circle that changes ------------------------------------------------------


def test_exploring_costs_the_same_in_any_circle() -> None:
    costs = {}
    for peers in (50, 100, 400):
        records, _ = play(MAPL(explore=3, t_thr=3), peers, 5)
        costs[peers] = max(sum(r.messages.values()) for r in records if r.round > 1)
        assert all(len(r.notes["neighbours"]) <= 3 for r in records)
    assert set(costs.values()) == {3 + 3 + 3}  # heads of three friends and three strangers, prototypes of three


def test_exploring_meets_others_every_round() -> None:
    records, _ = play(MAPL(explore=2, t_thr=99), 30, 12)
    assert {r.messages["head"] for r in records if r.round == 1} == {2}
    assert {r.messages["head"] for r in records if r.round > 1} == {4}


def test_who_leaves_loses_its_weight_and_who_comes_gets_some() -> None:
    """Peer 1 is away from the start to round 6, peer 2 leaves for good in round 5: a round lasts a second."""
    clock = ClockSettings(speed=(4.0,), offline=((1, 0.0, 5.5), (2, 4.5, math.inf)))
    # Without training no time would pass: one pass over the four samples is a second.
    method = Ticking(t_thr=3, mu1=0.0)
    records, _ = play(method, 5, 10, clock)
    rows = {(r.peer, r.round): {int(j): w for j, w in r.notes["weights"].items()} for r in records}
    for row in rows.values():
        assert sum(row.values()) == pytest.approx(1)
        assert min(row.values()) > 0
    assert 1 not in rows[0, 4]
    assert 2 in rows[0, 4]
    assert rows[0, 10].get(1, 0) > 0
    assert 2 not in rows[0, 10]
    assert 2 not in {r.peer for r in records if r.round > 5}
    assert rows[1, 10].keys() >= {0, 3, 4}


class Ticking(MAPL):
    """MAPL for peers that stand still: each round takes the time of an evaluation of their data."""

    async def round(self, me: Peer) -> None:
        await me.train(epochs=1, lr=1e-12)
        await super().round(me)


def test_a_fast_peer_of_an_asynchronous_run_keeps_its_neighbours() -> None:
    """It comes to t_thr three times as fast as the others, who do not need heads yet."""
    clock = ClockSettings(speed=(12.0, 4.0, 4.0, 4.0))
    records, _ = play(Ticking(t_thr=5, mu1=0.0), 4, 9, clock, asynchronous=True)
    assert all(len(r.notes["neighbours"]) == 3 for r in records if r.round >= 5)


# -- what others get wrong ---------------------------------------------------------------------


class Wrong(MAPL):
    """Peer 1 shelves something else under the names that are expected."""

    def __init__(self, name: str, tensors: Mapping[str, Tensor], facts: Mapping[str, Any], **parameters: Any) -> None:
        super().__init__(**parameters)
        object.__setattr__(self, "says", (name, tensors, facts))

    def _shelve(self, me: Peer, before: Weights | None) -> None:
        super()._shelve(me, before)
        name, tensors, facts = self.says
        if me.id == 1:
            me.shelve(name, tensors, **facts)


NAN, FACTS = float("nan"), {"samples": 4, "architecture": "mlp"}


@pytest.mark.parametrize(
    ("name", "tensors", "facts", "reason"),
    [
        ("prototypes", {"prototypes": torch.full((CLASSES, PROJECTED), NAN)}, FACTS, "not finite"),
        ("prototypes", {"prototypes": torch.ones(1, PROJECTED)}, FACTS, "(3, 5) float32 but is (1, 5) float32"),
        ("prototypes", {"prototypes": torch.ones(7, PROJECTED)}, FACTS, "but is (7, 5)"),
        ("prototypes", {"others": torch.ones(2)}, FACTS, "but is missing"),
        ("prototypes", {"prototypes": torch.ones(CLASSES, PROJECTED)}, {}, "'samples' should be a number above 0"),
        ("head", {"weight": torch.ones(CLASSES, FEATURES)}, {"samples": -27}, "above 0, not -27"),
        ("head", {"weight": torch.ones(CLASSES, FEATURES)}, {"samples": 10**400}, "above 0"),
        ("head", {"weight": torch.ones(CLASSES, FEATURES)}, {"samples": "many"}, "above 0, not 'many'"),
        ("head", {"weight": torch.ones(1, FEATURES)}, FACTS, "should be (3, 4) float32 but is (1, 4)"),
    ],
)
@pytest.mark.parametrize("t_thr", [1, 2, 9])
def test_who_sends_what_does_not_fit_is_absent_and_named(
    name: str, tensors: dict[str, Tensor], facts: dict[str, Any], reason: str, t_thr: int
) -> None:
    records, members = play(Wrong(name, tensors, facts, t_thr=t_thr), 4, 3)
    for peer in members:
        assert torch.isfinite(peer.model.vector).all()
    last = [r for r in records if r.peer != 1 and r.round == 3]
    if name == "head" and t_thr == 9:  # never looked at
        assert all("1" in map(str, r.notes["weights"]) for r in last)
        return
    for r in last:
        assert 1 not in map(int, r.notes["weights"])
    declined = [r.notes["declined"] for r in records if r.peer != 1 and "declined" in r.notes]
    assert declined
    assert all(reason in next(iter(d.values())) and list(map(int, d)) == [1] for d in declined)


# -- before anything trains --------------------------------------------------------------------


def test_mixed_architectures_need_one_number_of_features() -> None:
    words = ["method.name=mapl", "model.zoo=mlp,cnn3", "baseline="]
    with pytest.raises(ModelError, match=r"cnn3 has 64, mlp has 200: set model.d_z \(such as 200\)"):
        wiring.gather(loading.load("panm-digits", ["method.name=mapl", *words[1:], "model.hidden=[200]"]))
    circle = wiring.gather(loading.load("panm-digits", [*words, "model.d_z=16"]))
    assert {p.model["head.weight"].shape for p in circle.participants} == {(10, 16)}


def test_no_two_heads_begin_alike() -> None:
    _, members = play(MAPL(), 4, 0)
    vectors = {tuple(p.model["head.weight"].flatten().tolist()) for p in members}
    assert len(vectors) == 4


@pytest.mark.parametrize("word", ["tau=0", "norm=l3", "explore=5", "mu1=-1"])
def test_bad_parameters_are_refused(word: str) -> None:
    with pytest.raises(ConfigError, match=f"method.{word.split('=')[0]} must be"):
        loading.load("panm-digits", ["method.name=mapl", "peers=5", f"method.{word}"])
