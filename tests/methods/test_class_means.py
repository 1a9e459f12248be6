"""FedProto, FedDistill and FedGH: class means, their average, and what is made of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from methods_support import MIXED, STILL, LinearNet, cross_entropy, gather, play, small

from coterie.core.jobs import EvaluateJob
from coterie.core.loss import Batch
from coterie.methods.class_means import FedDistill, FedGH, feddistill_loss, fedproto_loss
from coterie.methods.components.heads import head_loss
from coterie.methods.components.prototypes import average, class_means
from coterie.training import plain

SERVER = gather(small("fedproto"))[-1]


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6), st.integers(1, 8), st.floats(0, 10))
def test_the_loss_is_its_formula(seed: int, batch: int, lam: float) -> None:
    rng = np.random.default_rng(seed)
    net = LinearNet(rng, inputs=5, features=4, classes=3)
    x, y = rng.normal(size=(batch, 5)), rng.integers(3, size=batch)
    prototypes, known = rng.normal(size=(3, 4)), rng.integers(2, size=3)
    tensors = {"means": torch.from_numpy(prototypes), "known": torch.from_numpy(known), "lam": torch.tensor(lam)}
    loss = fedproto_loss(net, Batch(torch.from_numpy(x), torch.from_numpy(y)), tensors)
    logits, features = net.numpy(x)
    apart = 0.0
    for i in range(batch):
        if known[y[i]]:
            apart += sum((features[i, d] - prototypes[y[i], d]) ** 2 for d in range(4)) / 4
    assert float(loss) == pytest.approx(cross_entropy(logits, y) + lam * apart / batch, rel=1e-5)


def test_classes_without_a_prototype_are_left_alone() -> None:
    """Nor do they pull in the gradient: all labels are of class 1, and only class 0 has a prototype."""
    net = LinearNet(np.random.default_rng(0), inputs=5, features=4, classes=3)
    net.parameters = {key: p.requires_grad_() for key, p in net.parameters.items()}
    batch = Batch(torch.randn(6, 5, dtype=torch.float64), torch.ones(6, dtype=torch.int64))
    gradients = []
    for lam in (0.0, 1000.0):
        tensors = {"means": torch.ones(3, 4), "known": torch.tensor([1.0, 0, 0]), "lam": torch.tensor(lam)}
        loss = fedproto_loss(net, batch, tensors)
        gradients.append(torch.autograd.grad(loss, list(net.parameters.values())))
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


def test_averages_by_hand() -> None:
    last = {"means": torch.tensor([[9.0, 9], [9, 9], [7, 7]]), "counts": torch.tensor([1, 1, 2])}
    one = {"means": torch.tensor([[0.0, 0], [0, 0], [0, 0]]), "counts": torch.tensor([1, 0, 0])}
    two = {"means": torch.tensor([[4.0, 8], [1, 2], [0, 0]]), "counts": torch.tensor([3, 5, 0])}
    found = average(SERVER, last, {0: one, 1: two})
    # Class 0: (1 * 0 + 3 * (4, 8)) / 4. Class 1: only the second has it. Class 2: nobody has it, so it stays.
    assert found["means"].tolist() == [[3, 6], [1, 2], [7, 7]]
    assert found["counts"].tolist() == [4, 5, 2]


@settings(deadline=None)
@given(st.integers(0, 10**6), st.lists(st.integers(1, 12), min_size=1, max_size=5))
def test_the_average_is_the_mean_over_all_samples(seed: int, sizes: list[int]) -> None:
    rng = np.random.default_rng(seed)
    features, labels = [rng.normal(size=(n, 3)) for n in sizes], [rng.integers(4, size=n) for n in sizes]
    sent = [class_means(torch.from_numpy(f), torch.from_numpy(y), 4) for f, y in zip(features, labels, strict=True)]
    nothing = {"means": torch.zeros(4, 3, dtype=torch.float64), "counts": torch.zeros(4, dtype=torch.int64)}
    found = average(SERVER, nothing, dict(enumerate(sent)))
    for k in range(4):
        of_class = np.concatenate(features)[np.concatenate(labels) == k]
        assert found["counts"][k] == len(of_class)
        expected = of_class.mean(0) if len(of_class) else np.zeros(3)
        np.testing.assert_allclose(found["means"][k], expected, atol=1e-12)


@pytest.mark.parametrize("words", [(), MIXED], ids=["one", "mixed"])
def test_a_round_gives_everybody_the_mean_features_of_all(words: tuple[str, ...]) -> None:
    # 12, 9 and 6 samples of ten classes.
    e = small("fedproto", STILL, *words)
    peers = gather(e)[:3]
    features, labels = [], []
    for me in peers:
        assert me.data is not None
        features.append(plain.predict(EvaluateJob(me.model, me.data.train)).features)
        labels.append(me.labels())
    played = play(e, gather(e))
    for me in played.participants:  # the server too
        assert me.state["counts"].sum() == 27
        for k in range(10):
            of_class = torch.cat(features)[torch.cat(labels) == k]
            expected = of_class.mean(0) if len(of_class) else torch.zeros(4)
            torch.testing.assert_close(me.state["means"][k], expected)
    for me, old in zip(played.participants, peers, strict=False):
        assert torch.equal(me.model.vector, old.model.vector)  # models stay where they are
    assert played.messages == {"prototypes": 3, "global": 3}


def test_prototypes_draw_features_together() -> None:
    """The same peers, with and without: after some rounds the features of a class lie nearer to its prototype."""
    spread = {}
    for lam in (0.0, 3.0):
        e = small("fedproto", f"method.lam={lam}", "train.lr=0.02", "train.momentum=0", rounds=15)
        played = play(e, gather(e))
        apart = []
        for me in played.participants[:3]:
            assert me.data is not None
            found = plain.predict(EvaluateJob(me.model, me.data.train)).features
            apart.append((found - me.state["means"][me.labels()]).square().mean())
        spread[lam] = float(torch.stack(apart).mean())
    assert spread[3.0] < 0.5 * spread[0.0]


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10**6), st.integers(1, 8), st.floats(0, 10))
def test_feddistills_loss_is_its_formula(seed: int, batch: int, lam: float) -> None:
    rng = np.random.default_rng(seed)
    net = LinearNet(rng, inputs=5, features=4, classes=3)
    x, y = rng.normal(size=(batch, 5)), rng.integers(3, size=batch)
    means, known = rng.normal(size=(3, 3)), rng.integers(2, size=3)
    tensors = {"means": torch.from_numpy(means), "known": torch.from_numpy(known), "lam": torch.tensor(lam)}
    loss = feddistill_loss(net, Batch(torch.from_numpy(x), torch.from_numpy(y)), tensors)
    logits, _ = net.numpy(x)
    apart = sum(known[k] * ((row - means[k]) ** 2).mean() for row, k in zip(logits, y, strict=True))
    assert float(loss) == pytest.approx(cross_entropy(logits, y) + lam * apart / batch, rel=1e-5)


def test_feddistill_shares_the_mean_logits_of_any_architectures() -> None:
    """Different widths of features, too: logits have one width, the number of classes."""
    e = small("feddistill", STILL, "model.zoo=mlp,cnn3")
    peers = gather(e)[:3]
    said = [plain.predict(EvaluateJob(me.model, me.data.train)).logits for me in peers if me.data is not None]
    labels = torch.cat([me.labels() for me in peers])
    played = play(e, gather(e))
    for me in played.participants:
        for k in labels.unique().tolist():
            torch.testing.assert_close(me.state["means"][k], torch.cat(said)[labels == k].mean(0))
    assert played.messages == {"logits": 3, "global": 3}
    assert isinstance(e.method, FedDistill)


def test_fedghs_server_trains_its_head_on_everybodys_means() -> None:
    """Against a loop of plain PyTorch: full batches, so that no order matters; no momentum."""
    words = ("train.momentum=0", "train.batch=1000", "method.server_epochs=4", "method.server_lr=0.3")
    e = small("fedgh", STILL, *words)
    server = gather(e)[3]
    head = torch.nn.Linear(4, 10)
    head.load_state_dict({"weight": server.model["head.weight"], "bias": server.model["head.bias"]})
    x, y = [], []
    for me in gather(e)[:3]:
        assert me.data is not None
        features = plain.predict(EvaluateJob(me.model, me.data.train)).features
        for k in sorted(set(me.labels().tolist())):
            x.append(features[me.labels() == k].mean(0))
            y.append(k)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.3)
    assert isinstance(e.method, FedGH)
    for _ in range(0 if e.train.epochs else 4):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(head(torch.stack(x)), torch.tensor(y)).backward()
        optimizer.step()
    played = play(e, gather(e))
    for me in played.participants:  # everybody has the server's head, and its own backbone
        torch.testing.assert_close(me.model["head.weight"], head.weight.detach(), atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(me.model["head.bias"], head.bias.detach(), atol=1e-5, rtol=1e-4)
    for me, old in zip(played.participants[:3], gather(e), strict=False):
        assert torch.equal(me.model.part("backbone").vector, old.model.part("backbone").vector)


def test_head_loss_is_the_cross_entropy_of_the_head() -> None:
    rng = np.random.default_rng(0)
    net = LinearNet(rng, inputs=5, features=4, classes=3)
    z, y = rng.normal(size=(6, 4)), rng.integers(3, size=6)
    loss = head_loss(net, Batch(torch.from_numpy(z), torch.from_numpy(y)), {})
    assert float(loss) == pytest.approx(cross_entropy(z @ net.w.T + net.b, y))
