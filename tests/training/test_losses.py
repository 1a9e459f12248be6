"""The user's own losses: both loops report an error in one line that names the loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from coterie.core.errors import ConfigError, LossError
from coterie.core.jobs import FitJob, Pool, Split, TrainSettings
from coterie.core.loss import Batch, BoundNet, Given, Loss, cross_entropy
from coterie.core.model import Architecture
from coterie.training import Trainer, batched, plain
from coterie.training.checking import MOST_LOSSES

MakeMLP = Callable[..., Architecture]
MakePool = Callable[..., Pool]
SETTINGS = TrainSettings(epochs=1, batch=4, lr=0.1, momentum=0.0)
both_loops = pytest.mark.parametrize("fit", [plain.fit, lambda job: batched.fit([job])[0]], ids=["plain", "batched"])

# Each as a user might write it; not annotated as losses are, for most are none.


def returns_nothing(net: Any, batch: Any, given: Any) -> None:  # noqa: ARG001
    net(batch.x)


def returns_a_float(net: Any, batch: Any, given: Any) -> float:  # noqa: ARG001
    return 1.0


def one_for_each_sample(net: Any, batch: Any, given: Any) -> Any:  # noqa: ARG001
    return F.cross_entropy(net(batch.x).logits, batch.y, reduction="none")


def in_brackets(net: Any, batch: Any, given: Any) -> Any:
    return one_for_each_sample(net, batch, given).mean()[None]


def asks_for_more(net: Any, batch: Any, given: Any) -> Any:
    return cross_entropy(net, batch, given) * given["strength"]


def of_another_width(net: Any, batch: Any, given: Any) -> Any:  # noqa: ARG001
    return (net(batch.x).logits * torch.ones(7)).mean()


def without_views(net: Any, batch: Any, given: Any) -> Any:  # noqa: ARG001
    return net(batch.views[0]).logits.mean()


def misspelt(net: Any, batch: Any, given: Any) -> Any:  # noqa: ARG001
    return net(batch.x).logit.mean()


def detached(net: Any, batch: Any, given: Any) -> Any:
    return cross_entropy(net, batch, given).detach()


def accuracy(net: Any, batch: Any, given: Any) -> Any:  # noqa: ARG001
    return (net(batch.x).logits.argmax(1) == batch.y).float().mean()


def log_of_zero(net: Any, batch: Any, given: Any) -> Any:  # noqa: ARG001
    return (net(batch.x).logits * 0).log().mean() * 0


def infinite(net: Any, batch: Any, given: Any) -> Any:
    return cross_entropy(net, batch, given) / torch.zeros(())


def two_arguments(net: Any, batch: Any) -> Any:
    return cross_entropy(net, batch, {})


def by_value(net: BoundNet, batch: Batch, given: Given) -> Tensor:
    """Right, but it looks at a value: vmap cannot."""
    loss = cross_entropy(net, batch, given)
    return loss if loss > 1 else 2 * loss


def noisy(net: BoundNet, batch: Batch, given: Given) -> Tensor:
    return cross_entropy(net, batch, given) + torch.randn(()) * net(batch.x).logits.mean()


def job(architecture: Architecture, pool: Pool, loss: Any, given: Mapping[str, Any] | None = None) -> FitJob:
    return FitJob(architecture.initial(0), Split(pool, torch.arange(8)), loss, SETTINGS, ("k",), given or {})


@both_loops
@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (returns_nothing, "returned nothing; a loss returns one number, as a tensor"),
        (returns_a_float, "returned a float; a loss returns one number, as a tensor"),
        (one_for_each_sample, r"returned a tensor of shape \(4,\); a loss is one number: take its \.mean\(\)"),
        (in_brackets, r"returned a tensor of shape \(1,\)"),
        (asks_for_more, r"asks for 'strength', which is neither in `given` \(mu\) nor a parameter"),
        (of_another_width, "failed: RuntimeError: The size of tensor a"),
        (without_views, r"failed: TypeError: 'NoneType' .* batch\.views without me\.train\(views=\.\.\.\)"),
        (misspelt, "failed: AttributeError: 'Output' object has no attribute 'logit'"),
        (detached, "has no gradient: it does not depend on any trained parameter"),
        (accuracy, "has no gradient"),
        (log_of_zero, r"is not a number \(nan\) on its first batch, where the model's outputs are finite"),
        (infinite, "is infinite on its first batch"),
        (two_arguments, "failed: TypeError: two_arguments"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_is_wrong_is_said_in_one_line(
    mlp: Architecture, make_pool: MakePool, fit: Callable[[FitJob], float], loss: Any, message: str
) -> None:
    tried = job(mlp, make_pool(8), loss, {"mu": torch.tensor(1.0)})
    before = tried.model.vector.clone()
    with pytest.raises(LossError, match=message) as caught:
        fit(tried)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"the loss '{loss.__name__}' (test_losses.py, line ")
    assert torch.equal(tried.model.vector, before)


@both_loops
def test_the_line_is_the_one_that_failed(
    mlp: Architecture, make_pool: MakePool, fit: Callable[[FitJob], float]
) -> None:
    line = asks_for_more.__code__.co_firstlineno + 1
    with pytest.raises(LossError, match=rf"\(test_losses\.py, line {line}\)"):
        fit(job(mlp, make_pool(8), asks_for_more))


@both_loops
def test_a_model_that_diverged_is_not_the_fault_of_its_loss(
    mlp: Architecture, make_pool: MakePool, fit: Callable[[FitJob], float]
) -> None:
    """Methods know how to live with such models: training one more round is no error."""
    ruined = job(mlp, make_pool(8), cross_entropy)
    ruined.model.vector.fill_(torch.nan)
    assert fit(ruined) != fit(ruined)  # nan


def test_a_loss_that_looks_at_values_is_computed_for_one_peer_after_the_other(
    make_mlp: MakeMLP, make_pool: MakePool, caplog: pytest.LogCaptureFixture
) -> None:
    pool = make_pool(8)
    jobs = [job(architecture, pool, by_value) for architecture in [make_mlp()] * 3]
    alone = job(make_mlp(), pool, by_value)
    with closing(Trainer("auto")) as trainer:
        losses = trainer.fit(jobs)
        trainer.fit(jobs)
    assert losses == [plain.fit(alone)] * 3
    said = [record.message for record in caplog.records]
    assert len(said) == 1  # not at every call
    assert (
        "one after the other instead of as one, which is slower: the loss 'by_value' (test_losses.py, line" in said[0]
    )


def test_it_is_an_error_where_batching_was_asked_for(make_mlp: MakeMLP, make_pool: MakePool) -> None:
    with closing(Trainer("always")) as trainer, pytest.raises(ConfigError, match="always, but the loss 'by_value'"):
        trainer.fit([job(make_mlp(), make_pool(8), by_value)])


@pytest.mark.parametrize("batching", ["auto", "never"])
def test_a_loss_that_draws_random_numbers_is_refused(make_mlp: MakeMLP, make_pool: MakePool, batching: str) -> None:
    with closing(Trainer(batching)) as trainer, pytest.raises(LossError, match=r"'noisy' .* draws random numbers"):
        trainer.fit([job(make_mlp(), make_pool(8), noisy)])


def test_what_draws_by_a_key_may(make_mlp: MakeMLP, make_pool: MakePool) -> None:
    """With dropout, torch's generator is set by the job's key: the same draws at every try."""
    pool, architecture = make_pool(8), make_mlp(dropout=0.5)
    assert plain.fit(job(architecture, pool, noisy)) == plain.fit(job(architecture, pool, noisy))


def test_losses_made_anew_at_every_call_do_not_fill_the_memory(make_mlp: MakeMLP, make_pool: MakePool) -> None:
    architecture, pool = make_mlp(), make_pool(8)

    def fresh() -> Loss:
        return lambda net, batch, given: cross_entropy(net, batch, given)

    for _ in range(MOST_LOSSES + 2):
        batched.gradients_of(architecture, fresh())
    architecture.caches["losses that draw nothing"] = {fresh() for _ in range(MOST_LOSSES)}
    plain.fit(job(architecture, pool, fresh()))
    assert len(architecture.caches["repeated"]) <= MOST_LOSSES
    assert len(architecture.caches["losses that draw nothing"]) == 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"mu": 0.5}, r"me\.train\(given=\.\.\.\): 'mu' is a float: make it a tensor"),
        ([1], "must be tensors by name, not a list"),
    ],
)
def test_what_is_given_are_tensors(mlp: Architecture, make_pool: MakePool, given: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        job(mlp, make_pool(8), cross_entropy, given)


def test_there_is_a_target_for_every_sample(mlp: Architecture, make_pool: MakePool) -> None:
    split = Split(make_pool(8), torch.arange(8))
    with pytest.raises(ConfigError, match=r"me\.train\(targets=\.\.\.\) has 5 rows for 8 samples"):
        FitJob(mlp.initial(0), split, cross_entropy, SETTINGS, ("k",), targets=torch.zeros(5))
