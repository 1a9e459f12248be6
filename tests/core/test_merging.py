"""Merging models: the forms of the mean, a rule of the method's own, and who is told what."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor

from coterie.config import loading
from coterie.core.artifact import Artifact
from coterie.core.errors import ArtifactError, MethodError
from coterie.core.merging import Models, Rule, Shares, merge, sum_over_total, weighted_mean, weighted_sum
from coterie.core.weights import Weights, mean
from coterie.engines import driving
from coterie.methods.gossip import Gossip
from coterie.wiring import gather


def three() -> dict[int, Weights]:
    numbers = {0: [1.0, 2.0], 4: [5.0, 6.0], 7: [0.0, 10.0]}
    return {j: Weights.of({"w": torch.tensor(values)}) for j, values in numbers.items()}


def test_the_mean_by_hand() -> None:
    assert merge(weighted_mean, three(), None, 0)["w"].tolist() == [2.0, 6.0]  # (1 + 5 + 0) / 3, (2 + 6 + 10) / 3
    # By shares 1, 1, 2, whatever their order: (1 + 5 + 0) / 4, (2 + 6 + 20) / 4
    assert merge(weighted_mean, three(), {7: 2, 4: 1, 0: 1}, 0)["w"].tolist() == [1.5, 7.0]


@pytest.mark.parametrize("rule", [weighted_mean, weighted_sum, sum_over_total])
def test_every_form_is_the_mean(rule: Rule) -> None:
    """Of these numbers, none rounds."""
    found = merge(rule, three(), {0: 0.25, 4: 0.25, 7: 0.5}, 0)
    assert found["w"].tolist() == [1.5, 7.0]


def test_it_is_the_public_mean_to_the_bit() -> None:
    torch.manual_seed(0)
    models = {j: Weights.of({"w": torch.randn(50), "b": torch.randn(7)}) for j in range(5)}
    shares = {j: 1 / (j + 3) for j in models}
    expected = mean(list(models.values()), list(shares.values())).vector
    assert torch.equal(merge(weighted_mean, models, shares, 0).vector, expected)
    assert torch.equal(merge(weighted_mean, models, shares, 0, into=models[0]).vector, expected)
    assert torch.equal(models[0].vector, expected)


def test_the_result_is_loaded_into_any_model() -> None:
    models = three()
    other = Weights.of({"v": torch.zeros(1), "w": torch.zeros(2)})
    assert merge(weighted_mean, models, None, 0, into=other) is other
    assert other.vector.tolist() == [0.0, 2.0, 6.0]
    assert models[0]["w"].tolist() == [1.0, 2.0]


def test_a_rule_that_picks_a_model_gives_a_copy() -> None:
    """As Krum does. Later changes of the result must not change the peer's model."""
    models = three()
    found = merge(lambda models, _, own: models[own], models, None, 4)
    found.vector.zero_()
    assert models[4]["w"].tolist() == [5.0, 6.0]


def test_what_cannot_be_merged_is_refused() -> None:
    with pytest.raises(ArtifactError, match="no models"):
        merge(weighted_mean, {}, None, 0)
    with pytest.raises(ArtifactError, match=r"models of the peers \[0, 4, 7\] need a share each, not shares of \[0\]"):
        merge(weighted_mean, three(), {0: 1.0}, 0)

    def shortened(models: Models, shares: Shares, own: int) -> Mapping[str, Tensor]:  # noqa: ARG001
        return {"w": models[0]["w"][:1]}

    with pytest.raises(MethodError, match=r"merge rule .*shortened returned .*keep names"):
        merge(shortened, three(), None, 0)


@dataclass(frozen=True)
class First(Gossip):
    """Gossip whose rule takes the model of the first author."""

    def merge_rule(self) -> Rule:
        return lambda models, shares, own: models[min(models)]  # noqa: ARG005


def test_the_rule_of_the_method_replaces_any_form_of_the_mean() -> None:
    [me, *_] = gather(loading.load("panm-digits", ["peers=4", "method.name=gossip", "method.k=1"])).participants
    me.begin(1)
    driving.close(driving.start(First(k=1), me))
    assert me.average(three())["w"].tolist() == [1.0, 2.0]
    assert me.average(three(), default=weighted_sum)["w"].tolist() == [1.0, 2.0]
    driving.close(driving.start(Gossip(k=1), me))
    assert me.average(three())["w"].tolist() == [2.0, 6.0]


def test_artifacts_are_merged_as_their_tensors() -> None:
    models = {j: Artifact.snapshot("model", j, 1, weights, {}) for j, weights in three().items()}
    plain = {j: Artifact.snapshot("model", j, 1, dict(weights), {}) for j, weights in three().items()}
    for rule in (weighted_mean, weighted_sum):
        assert merge(rule, models, {0: 0.5, 4: 0.5, 7: 0}, 0)["w"].tolist() == [3.0, 4.0]
        assert merge(rule, plain, {0: 0.5, 4: 0.5, 7: 0}, 0)["w"].tolist() == [3.0, 4.0]


def test_no_method_averages_by_itself() -> None:
    """A rule would not apply there: only `core.merging` knows the mean."""
    files = list((Path(__file__).parents[2] / "src" / "coterie" / "methods").rglob("*.py"))
    assert len(files) > 30
    averaging = re.compile(r"weights import .*\bmean|mean_into")
    assert [p.name for p in files if averaging.search(p.read_text(encoding="utf-8"))] == []
