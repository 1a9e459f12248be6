"""Checkpoints: they round-trip, and a broken file does not stop a run that has an older one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from coterie import wiring
from coterie.config import loading
from coterie.core import checkpoint
from coterie.core.errors import RunError
from coterie.core.model import Architecture
from coterie.core.peer import Peer
from coterie.core.weights import Frozen, Layout, Weights

plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text('aé!\n"', max_size=4)
tensors = st.sampled_from(
    [
        torch.tensor([1.0, 2.0]),
        torch.tensor(3),
        torch.zeros(0, 2),
        torch.arange(6).view(2, 3).t(),
        torch.tensor([True]),
    ]
)
weights = st.builds(
    lambda buffers: Weights(Layout.of_shapes({"a": (2,), "b": (), "c": (1,)}, buffers), torch.arange(4.0)),
    st.sampled_from([(), ("c",), ("b", "c")]),
)
keys = st.integers() | st.text(max_size=3) | st.tuples(st.integers(), st.text(max_size=2))
trees = st.recursive(
    plain | tensors | weights,
    lambda inner: (
        st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple) | st.dictionaries(keys, inner, max_size=3)
    ),
    max_leaves=8,
)


def same(a: Any, b: Any) -> bool:
    """Equal in value and in type, all the way down."""
    if type(a) is not type(b):
        return False
    if isinstance(a, Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, Weights):
        return a.layout == b.layout and torch.equal(a.vector, b.vector)
    if isinstance(a, dict):
        return list(a) == list(b) and [*map(type, a)] == [*map(type, b)] and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


@settings(max_examples=40)
@given(st.dictionaries(keys, trees, max_size=4))
def test_trees_come_back_as_they_were(tmp_path_factory: pytest.TempPathFactory, tree: dict[Any, Any]) -> None:
    folder = tmp_path_factory.mktemp("trees")
    checkpoint.save(folder, 3, tree)
    loaded = checkpoint.load(folder)
    assert loaded is not None
    assert loaded[0] == 3
    assert same(loaded[1], tree)


def test_a_tree_by_hand(tmp_path: Path) -> None:
    tree = {"peers": {0: {"losses": [1, 2.5, None], "pair": (1, "a")}, 1: torch.tensor([1.5])}, "!": "tensor"}
    checkpoint.save(tmp_path / "new" / "folder", 12, tree)
    loaded = checkpoint.load(tmp_path / "new" / "folder")
    assert loaded is not None
    round, back = loaded
    assert round == 12
    assert back["peers"][0] == {"losses": [1, 2.5, None], "pair": (1, "a")}
    assert back["peers"][1].tolist() == [1.5]
    assert back["!"] == "tensor"


def test_numbers_without_end_come_back(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 1, {"a": [float("inf"), -float("inf"), float("nan")]})
    loaded = checkpoint.load(tmp_path)
    assert loaded is not None
    a, b, c = loaded[1]["a"]
    assert (a, b) == (float("inf"), -float("inf"))
    assert c != c


@pytest.mark.parametrize(
    ("tree", "place"),
    [
        ({"peers": {3: {"state": {"x": [1, {2}]}}}}, r"checkpoint.peers.3.state.x\[1\] holds a set"),
        ({"a": (object(),)}, r"checkpoint.a\[0\] holds a object"),
        ({"f": len}, r"checkpoint.f holds a builtin_function_or_method"),
        ({"a": b"bytes"}, "checkpoint.a holds a bytes"),
    ],
)
def test_what_cannot_be_kept_is_named_by_its_place(tmp_path: Path, tree: dict[str, Any], place: str) -> None:
    with pytest.raises(RunError, match=place):
        checkpoint.save(tmp_path, 1, tree)
    assert list(tmp_path.iterdir()) == []


def test_the_two_newest_are_kept_and_nothing_temporary(tmp_path: Path) -> None:
    for round in (1, 2, 9, 10):
        checkpoint.save(tmp_path, round, {"round": round})
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "round-000009.safetensors",
        "round-000010.safetensors",
    ]
    assert checkpoint.load(tmp_path) == (10, {"round": 10})


def test_a_write_that_fails_leaves_the_old_one_and_nothing_temporary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint.save(tmp_path, 1, {"round": 1})

    def full(_: object, path: Path, **__: object) -> None:
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "save_file", full)
    with pytest.raises(RunError, match=r"round-000002.safetensors could not be written.*No space left"):
        checkpoint.save(tmp_path, 2, {"round": 2})
    assert [p.name for p in tmp_path.iterdir()] == ["round-000001.safetensors"]
    assert checkpoint.load(tmp_path) == (1, {"round": 1})


def test_a_process_that_dies_while_writing_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint.save(tmp_path, 1, {"round": 1})

    def dies(_: object, path: Path, **__: object) -> None:
        path.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint, "save_file", dies)
    with pytest.raises(KeyboardInterrupt):
        checkpoint.save(tmp_path, 2, {"round": 2})
    assert checkpoint.load(tmp_path) == (1, {"round": 1})


def cut(keep: float) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(path.read_bytes()[: int(keep * path.stat().st_size)]) and None


DAMAGE: dict[str, Callable[[Path], Any]] = {
    "empty": cut(0),
    "a few bytes": lambda path: path.write_bytes(path.read_bytes()[:5]),
    "half": cut(0.5),
    "last byte missing": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "noise": lambda path: path.write_bytes(bytes(range(256))),
    "text": lambda path: path.write_text("hello"),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_broken_newest_file_gives_the_one_before(tmp_path: Path, damage: Callable[[Path], Any]) -> None:
    for round in (1, 2):
        checkpoint.save(tmp_path, round, {"t": torch.arange(4), "round": round})
    newest, before = tmp_path / "round-000002.safetensors", tmp_path / "round-000001.safetensors"
    damage(newest)
    loaded = checkpoint.load(tmp_path)
    assert loaded is not None
    assert loaded[0] == loaded[1]["round"] == 1
    damage(before)
    with pytest.raises(RunError, match=r"no checkpoint can be read.*round-000002.*round-000001.*--overwrite"):
        checkpoint.load(tmp_path)


def test_safetensors_of_another_kind_are_no_checkpoint(tmp_path: Path) -> None:
    checkpoint.save_file({"w": torch.zeros(1)}, tmp_path / "round-000001.safetensors")
    with pytest.raises(RunError, match="no checkpoint can be read"):
        checkpoint.load(tmp_path)


def test_weights_that_do_not_fill_their_layout_are_no_checkpoint(tmp_path: Path) -> None:
    """A file that is whole but inconsistent (another version wrote it) must not stop a run either."""
    checkpoint.save(tmp_path, 1, {"round": 1})
    wrong = {
        "!": "dict",
        "pairs": [
            [
                "w",
                {"!": "weights", "slots": [["a", [2]]], "buffers": [], "vector": {"!": "tensor", "key": "0"}},
            ]
        ],
    }
    text = checkpoint.json.dumps(wrong)
    checkpoint.save_file({"0": torch.zeros(3)}, tmp_path / "round-000002.safetensors", metadata={"tree": text})
    assert checkpoint.load(tmp_path) == (1, {"round": 1})


def test_no_checkpoint_is_none(tmp_path: Path) -> None:
    assert checkpoint.load(tmp_path) is None
    assert checkpoint.load(tmp_path / "not there") is None


def test_copied_is_isolated_all_the_way_down() -> None:
    tensor, weights = torch.ones(2), Weights.of({"a": torch.ones(1)})
    tree = {"list": [tensor, (weights, {1: tensor})], "n": 1}
    copy = checkpoint.copied(tree)
    assert same(copy, tree)
    tensor.zero_()
    weights.vector.zero_()
    tree["list"].append(1)  # type: ignore[union-attr]
    assert len(copy["list"]) == 2
    assert copy["list"][0].tolist() == copy["list"][1][1][1].tolist() == [1, 1]
    assert copy["list"][1][0]["a"].item() == 1


# -- models of several architectures -------------------------------------------------------------


def a_peer() -> Peer:
    return wiring.gather(loading.load("panm-digits", ["method.name=local", "peers=4", "data.clusters=2"])).participants[
        0
    ]


def test_a_model_comes_back_as_one_of_its_architecture(tmp_path: Path) -> None:
    me = a_peer()
    other = me.own_initial("cnn3")
    me.state = {
        "other": other,
        "own": me.model.copy(),
        "list": [(other,)],
        "frozen": Frozen(other),
        "plain": other.part("head"),
    }
    checkpoint.save(tmp_path, 1, checkpoint.of_peer(me))
    found = checkpoint.load(tmp_path)
    assert found is not None
    fresh = a_peer()
    checkpoint.to_peer(fresh, found[1])
    models = [fresh.state["other"], fresh.state["list"][0][0], fresh.state["frozen"].content]
    assert [model.architecture for model in models] == [fresh.kinds.network("cnn3")] * 3
    assert all(torch.equal(model.vector, other.vector) for model in models)
    assert fresh.state["own"].architecture is fresh.architecture
    assert type(fresh.state["plain"]) is Weights


def test_a_checkpoint_of_an_older_version_names_no_architecture(tmp_path: Path) -> None:
    """There, weights that fit the peer's own architecture are a model of it, and others are plain."""
    me = a_peer()
    bare = {"own": Weights(me.model.layout, me.model.vector), "other": Weights.of(me.own_initial("cnn3"))}
    checkpoint.save(tmp_path, 1, {**checkpoint.of_peer(me), "state": bare})
    found = checkpoint.load(tmp_path)
    assert found is not None
    checkpoint.to_peer(me, found[1])
    assert me.state["own"].architecture is me.architecture
    assert type(me.state["other"]) is Weights


def test_an_architecture_that_only_the_method_knows_leaves_its_weights() -> None:
    me = a_peer()
    mine = Architecture("of-my-own", me.architecture.build)
    saved = checkpoint.copied({"mine": mine.initial(0)})
    assert type(checkpoint.revived(saved, me)["mine"]) is Weights


def test_a_changed_architecture_is_an_error() -> None:
    me = a_peer()
    changed = Architecture("cnn3", me.architecture.build)  # the tensors of an mlp, under the name of another
    saved = checkpoint.copied([changed.initial(0)])
    with pytest.raises(RunError, match=r"me\.state of peer 0 holds a model of 'cnn3' whose tensors differ from those"):
        checkpoint.revived(saved, me)
