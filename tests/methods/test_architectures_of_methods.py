"""A method that cannot run with mixed architectures, or with different numbers of features, says so before training."""

from __future__ import annotations

import pytest
from methods_support import MIXED, small

from coterie import wiring
from coterie.core.errors import ModelError

AGNOSTIC = ["fedsim", "lg-fedavg", "fedclassavg", "fedproto", "fedgh"]


@pytest.mark.parametrize("method", ["pfedsim", "flt", "dfedavgm"])
def test_one_architecture_only(method: str) -> None:
    with pytest.raises(
        ModelError, match=f"{method} needs one architecture at all peers, but model.zoo gives cnn3, mlp"
    ):
        wiring.gather(small(method, *MIXED, peers=4))


@pytest.mark.parametrize("method", AGNOSTIC)
def test_any_architectures_with_as_many_features(method: str) -> None:
    *peers, server = wiring.gather(small(method, *MIXED)).participants
    assert [me.architecture.name for me in peers] == ["mlp", "cnn3", "mlp"]
    assert server.architecture is peers[0].architecture


@pytest.mark.parametrize("method", AGNOSTIC)
def test_different_numbers_of_features_are_refused(method: str) -> None:
    with pytest.raises(ModelError, match=f"{method} shares parts that read features.*set model.d_z"):
        wiring.gather(small(method, MIXED[0]))
