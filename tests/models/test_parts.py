"""Parts that a method brings: where they are added, what they add to the output, and what finds them again."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from coterie.core.errors import ConfigError, ModelError
from coterie.core.net import Net, Output, Seen
from coterie.methods import parts
from coterie.methods.components.projection import PROJECTOR, PROTOTYPES
from coterie.methods.fedrod import PRIVATE
from coterie.methods.mentees import ADAPTER, MENTEE
from coterie.models import ModelSettings, Part, Site, build


def _tripled(site: Site) -> nn.Module:
    layer = nn.Linear(site.net.d_z, 2, bias=False)
    nn.init.constant_(layer.weight, 3.0)
    return layer


def _join(part: nn.Module, seen: Seen, out: Output) -> Output:
    return out.plus(tripled=part(out.features), inputs=seen.x.sum())


TRAINED = Part("tripled", _tripled, _join)


def identity_net() -> Net:
    net = Net(nn.Identity(), d_z=2, classes=2)
    nn.init.constant_(net.head.weight, 1.0)
    nn.init.constant_(net.head.bias, 0.0)
    return net


def site(net: Net) -> Site:
    return Site("mine", net, (2,), 2, ModelSettings())


def test_a_part_joins_in_training_alone() -> None:
    net = identity_net()
    TRAINED.add_to(site(net))
    x = torch.tensor([[1.0, 2.0]])
    out = net(x)
    assert out.of("tripled").tolist() == [[9.0, 9.0]]  # 3 * 1 + 3 * 2
    assert out.of("inputs") == 3
    assert out.logits.tolist() == [[3.0, 3.0]]
    assert net.only_for_training == {"tripled"}
    assert net.eval()(x).extra == {}


def test_a_part_that_predicts_joins_always() -> None:
    net = identity_net()
    PRIVATE.add_to(site(net))
    nn.init.constant_(net.private.weight, 10.0)  # type: ignore[union-attr, arg-type]
    nn.init.constant_(net.private.bias, 1.0)  # type: ignore[union-attr, arg-type]
    x = torch.tensor([[1.0, 2.0]])
    for net_in_mode in (net.train(), net.eval()):
        out = net_in_mode(x)
        assert out.logits.tolist() == [[34.0, 34.0]]  # 1 + 2, and 10 + 20 + 1
        assert out.of("common").tolist() == [[3.0, 3.0]]
    assert net.only_for_training == set()


def test_backbone_and_head_are_drawn_before_a_part() -> None:
    drawn = []
    for more in ((), (Part("decoder", lambda site: nn.Linear(site.net.d_z, 4), _join),)):
        torch.manual_seed(3)
        drawn.append(build("mlp", (4,), 2, ModelSettings(hidden=(3,)), more).state_dict())
    bare, more_parts = drawn
    assert set(more_parts) - set(bare) == {"decoder.weight", "decoder.bias"}
    assert all(torch.equal(more_parts[name], tensor) for name, tensor in bare.items())


def test_a_missing_output_names_the_part_and_the_remedy() -> None:
    class Own(Net):
        def forward(self, x: Tensor) -> Output:
            return Output(self.head(x), x)

    with pytest.raises(ModelError, match=r"no output 'tripled' of a part.*self\.with_parts"):
        Own(nn.Identity(), 2, 2)(torch.ones(1, 2)).of("tripled")


@pytest.mark.parametrize("name", ["head", "drop", "d_z"])
def test_a_part_cannot_replace_something_of_the_net(name: str) -> None:
    with pytest.raises(ModelError, match=f"already has a part '{name}', but the method adds one"):
        build("mlp", (2,), 2, ModelSettings(), [Part(name, _tripled)])


def test_names_of_the_packages_parts() -> None:
    # The order of the package, whatever the method's, as initial weights depend on it; then the others.
    assert parts.resolved(("prototypes", TRAINED, "projector")) == (PROJECTOR, PROTOTYPES, TRAINED)
    assert parts.resolved(("adapter", "mentee", "mine")) == (MENTEE, ADAPTER, "mine")
    assert parts.resolved(("adapter",)) == ("adapter",)  # without a mentee: a part of the user's net
    assert parts.names((PRIVATE, "mine")) == ["private", "mine"]


METHOD = """
from torch import nn
from coterie import Method, Part

class Mine(Method):
    parts = (Part("second", lambda site: nn.Linear(site.net.d_z, site.classes), None, predicts=True),)

    async def round(self, me):
        await me.train()
"""


def test_saved_models_find_the_parts_of_a_users_method(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(METHOD, encoding="utf-8")
    assert [part.name for part in parts.predicting(f"{file}:Mine", {"second"})] == ["second"]
    gone = f"{tmp_path / 'gone.py'}:Mine"
    assert parts.predicting(gone, {"private"}) == [PRIVATE]  # one of the package's needs no file
    with pytest.raises(ConfigError, match="gone"):
        parts.predicting(gone, {"second"})
