"""Every method with all its tensors on another device: the same result as on the CPU, and nothing mixed.

There is no such device on most machines. The one here pretends: it computes on the CPU, and refuses what a real one
would refuse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest
import torch
from contract_support import CASES, simulate, small
from pretend_device import NAME, MixedError, pretend_device

from coterie.training import dispatch


class AtOnce:
    """Workers that are this thread: the device is there for one thread alone."""

    def __init__(self, *_: object) -> None: ...

    def submit(self, function: Callable[..., Any], *given: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(function(*given))
        return done

    def shutdown(self, *_: object, **__: object) -> None: ...


@pytest.fixture
def _device(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(dispatch, "ThreadPoolExecutor", AtOnce)
    with pretend_device():
        yield


@pytest.mark.usefixtures("_device")
@pytest.mark.parametrize("case", ["gossip", "mapl-mixed", "compfl-mixed"])
def test_some_are_the_same_as_on_the_cpu(case: str) -> None:
    check(case, "auto")


@pytest.mark.slow
@pytest.mark.usefixtures("_device")
@pytest.mark.parametrize("batching", ["auto", "never"])
@pytest.mark.parametrize("case", CASES)
def test_every_method_is_the_same_as_on_the_cpu(case: str, batching: str) -> None:
    check(case, batching)


def check(case: str, batching: str) -> None:
    """Up to rounding: the plain loop's optimiser is another one there (torch's fused ones are for some devices)."""
    words = f"engine.batching={batching}", "rounds=3"
    there, here = simulate(small(case, *words, f"engine.device={NAME}")), simulate(small(case, *words))
    assert {vector.device.type for vector in there.vectors} == {NAME}
    for figure in ("bytes", "messages"):
        assert there.summary[figure] == here.summary[figure]
    for a, b in zip(there.vectors, here.vectors, strict=True):
        torch.testing.assert_close(a.cpu(), b, rtol=1e-3, atol=1e-4)


@pytest.mark.usefixtures("_device")
def test_the_device_refuses_what_a_real_one_would() -> None:
    here, there = torch.ones(3, device=NAME), torch.ones(3)
    with pytest.raises(MixedError, match=r"aten\.add"):
        here + there
    assert torch.equal((here + here.clone()).cpu(), there + there)
    assert torch.equal((here * 2).cpu(), (here * torch.tensor(2.0)).cpu())  # a single number may come from anywhere
