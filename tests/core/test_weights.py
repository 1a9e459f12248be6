"""Weights: named views of one vector, loading tensors, and averaging."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from coterie.core.artifact import Artifact
from coterie.core.errors import ArtifactError
from coterie.core.model import Architecture, Model
from coterie.core.weights import Layout, Slot, Weights, mean, mean_into, place_side_by_side, side_by_side

SHAPES = {"backbone.w": (2, 3), "backbone.b": (), "head.w": (4,), "head.b": (0, 2), "stat": (2,)}


def counted(shapes: dict[str, tuple[int, ...]], buffers: tuple[str, ...] = ()) -> Weights:
    """Every number tells its place in the vector."""
    layout = Layout.of_shapes(shapes, buffers)
    return Weights(layout, torch.arange(layout.size, dtype=torch.float32))


# -- layout ------------------------------------------------------------------------------------


def test_layout_places_tensors_one_after_the_other() -> None:
    layout = Layout.of_shapes(SHAPES, ["stat"])
    assert layout.slots == (
        Slot("backbone.w", (2, 3), 0, 6),
        Slot("backbone.b", (), 6, 1),
        Slot("head.w", (4,), 7, 4),
        Slot("head.b", (0, 2), 11, 0),
        Slot("stat", (2,), 11, 2),
    )
    assert (layout.size, layout.trainable) == (13, 11)
    assert [s.name for s in layout.parameters] == ["backbone.w", "backbone.b", "head.w", "head.b"]
    assert [s.name for s in layout.buffers] == ["stat"]


def test_layout_of_a_module_has_parameters_before_buffers() -> None:
    layout = Layout.of_module(nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 1)))
    names = [
        "0.weight",
        "0.bias",
        "1.weight",
        "1.bias",
        "0.running_mean",
        "0.running_var",
        "0.num_batches_tracked",
    ]
    assert [s.name for s in layout.slots] == names
    assert layout.trainable == 2 + 2 + 2 + 1
    assert layout.size == layout.trainable + 2 + 2 + 1


def test_equal_layouts_are_equal_keys_and_others_are_not() -> None:
    layout = Layout.of_shapes(SHAPES, ["stat"])
    assert {layout: 1}[Layout.of_shapes(dict(SHAPES), ["stat"])] == 1
    assert layout != Layout.of_shapes(SHAPES)
    assert layout != Layout.of_shapes({**SHAPES, "stat": (2, 1)}, ["stat"])


@given(st.dictionaries(st.text(min_size=1, max_size=4), st.lists(st.integers(0, 4), max_size=3).map(tuple), max_size=6))
def test_layout_covers_the_vector_without_gap_or_overlap(shapes: dict[str, tuple[int, ...]]) -> None:
    weights = counted(shapes)
    seen = [number for tensor in weights.values() for number in tensor.flatten().tolist()]
    assert seen == list(range(weights.layout.size))
    assert {name: tuple(tensor.shape) for name, tensor in weights.items()} == shapes


# -- weights -----------------------------------------------------------------------------------


def test_weights_are_views_of_the_vector() -> None:
    weights = counted(SHAPES)
    assert list(weights) == list(SHAPES)
    assert len(weights) == 5
    assert torch.equal(weights["backbone.w"], torch.tensor([[0.0, 1, 2], [3, 4, 5]]))
    assert weights["backbone.b"].item() == 6
    weights["head.w"][1] = -1
    assert weights.vector[8] == -1
    weights.vector[0] = 9
    assert weights["backbone.w"][0, 0] == 9


def test_parameters_leave_out_the_buffers() -> None:
    assert counted(SHAPES, ("stat",)).parameters.tolist() == list(range(11))


def test_a_vector_of_another_size_does_not_fit() -> None:
    layout = Layout.of_shapes(SHAPES)
    for wrong in (torch.zeros(12), torch.zeros(14), torch.zeros(1, 13)):
        with pytest.raises(ArtifactError, match="13"):
            Weights(layout, wrong)


def test_a_name_that_is_not_there_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        counted(SHAPES)["tail"]


def test_of_copies_any_tensors_as_float32() -> None:
    source = {"a": torch.tensor([[1, 2]]), "b": torch.tensor(0.5, dtype=torch.float64, requires_grad=True)}
    weights = Weights.of(source)
    assert weights.vector.dtype == torch.float32
    assert weights.vector.tolist() == [1, 2, 0.5]
    assert not weights.vector.requires_grad
    weights.vector.zero_()
    assert source["a"].tolist() == [[1, 2]]
    assert len(Weights.of({})) == 0


def test_copy_is_independent() -> None:
    weights = counted(SHAPES)
    copy = weights.copy()
    copy.vector.zero_()
    assert weights.vector.tolist() == list(range(13))
    assert copy.layout is weights.layout


def test_part_is_a_copy_of_the_tensors_under_that_name() -> None:
    weights = counted({"header.w": (1,), **SHAPES})
    head = weights.part("head")
    assert {name: tensor.flatten().tolist() for name, tensor in head.items()} == {
        "head.w": [8, 9, 10, 11],
        "head.b": [],
    }
    head.vector.zero_()
    assert weights["head.w"].tolist() == [8, 9, 10, 11]


def test_an_unknown_part_names_the_parts_there_are() -> None:
    with pytest.raises(ArtifactError, match=r"'tail'.*backbone, head, stat"):
        counted(SHAPES).part("tail")


# -- load --------------------------------------------------------------------------------------


def test_load_whole_copies_the_numbers() -> None:
    weights, source = counted(SHAPES), counted(SHAPES)
    source.vector += 100
    weights.load(source)
    assert weights.vector.tolist() == [100 + i for i in range(13)]
    source.vector.zero_()
    assert weights.vector[0] == 100


def test_load_part_keeps_the_rest() -> None:
    weights = counted(SHAPES)
    weights.load(Weights.of({"head.w": torch.full((4,), -1.0)}))
    assert weights.vector.tolist() == [0, 1, 2, 3, 4, 5, 6, -1, -1, -1, -1, 11, 12]


def test_load_takes_plain_mappings_and_artifacts_in_any_order() -> None:
    weights = counted({"a": (2,), "b": (1,)})
    weights.load({"b": torch.tensor([7.0]), "a": torch.tensor([5.0, 6.0])})
    assert weights.vector.tolist() == [5, 6, 7]
    weights.load(Artifact("model", 0, 1, {"a": torch.tensor([1.0, 2.0])}))
    assert weights.vector.tolist() == [1, 2, 7]


def test_load_names_the_tensor_that_does_not_belong() -> None:
    weights = counted(SHAPES)
    with pytest.raises(ArtifactError, match=r"'head\.x'"):
        weights.load({"head.x": torch.zeros(4)})
    with pytest.raises(ArtifactError, match=r"'head.w' has shape \(2, 2\), the model needs \(4,\)"):
        weights.load({"head.w": torch.zeros(2, 2)})
    assert weights.vector.tolist() == list(range(13))


# -- mean --------------------------------------------------------------------------------------

rows = st.integers(1, 5).flatmap(
    lambda size: st.lists(
        st.lists(st.floats(-100, 100, width=32), min_size=size, max_size=size), min_size=1, max_size=6
    )
)


@given(rows, st.data())
def test_mean_is_what_a_loop_over_floats_gives(values: list[list[float]], data: st.DataObject) -> None:
    shares = data.draw(st.none() | st.lists(st.floats(0, 10), min_size=len(values), max_size=len(values)))
    if shares is not None and sum(shares) < 1e-3:
        shares[0] = 1.0
    models = [Weights.of({"w": torch.tensor(row)}) for row in values]
    factors = [1.0] * len(values) if shares is None else shares
    expected = [
        sum(f * row[i] for f, row in zip(factors, values, strict=True)) / sum(factors) for i in range(len(values[0]))
    ]
    assert mean(models, shares).vector.tolist() == pytest.approx(expected, abs=1e-3, rel=1e-5)


def test_mean_of_models_is_a_new_vector() -> None:
    one = counted(SHAPES)
    result = mean([one])
    assert torch.equal(result.vector, one.vector)
    result.vector.zero_()
    assert one.vector[1] == 1


@given(st.integers(2, 5), st.booleans())
def test_what_is_equal_in_all_models_is_so_in_their_mean(count: int, weighted: bool) -> None:
    """x/3 + x/3 + x/3 is not x for every float: a frozen tensor would drift by rounding, round by round."""
    draw = torch.Generator().manual_seed(count)
    same = torch.randn(50, generator=draw)
    models = [Weights.of({"frozen": same, "w": torch.randn(3, generator=draw)}) for _ in range(count)]
    shares = [0.1 + i for i in range(count)] if weighted else None
    assert torch.equal(mean(models, shares)["frozen"], same)
    assert not torch.equal(mean(models, shares)["w"], models[0]["w"])
    mean_into(models[0], models[1:], shares)
    assert torch.equal(models[0]["frozen"], same)


def test_mean_takes_artifacts_and_plain_mappings() -> None:
    two = [Artifact("m", 0, 0, {"w": torch.tensor([1.0])}), {"w": torch.tensor([4.0])}]
    assert mean(two, [2, 1]).vector.tolist() == [2.0]


def test_mean_of_nothing_is_an_error() -> None:
    with pytest.raises(ArtifactError, match="no models"):
        mean([])


def test_mean_of_different_architectures_names_the_first_tensor_that_differs() -> None:
    with pytest.raises(ArtifactError, match=r"'head.w' \(4,\) against 'head.w' \(5,\)"):
        mean([counted(SHAPES), counted({**SHAPES, "head.w": (5,)})])
    with pytest.raises(ArtifactError, match="more tensors"):
        mean([counted(SHAPES), counted({**SHAPES, "more": (1,)})])


@pytest.mark.parametrize("shares", [[1.0], [1.0, 1.0, 1.0], [-1.0, 2.0], [0.0, 0.0]])
def test_bad_shares_are_an_error(shares: list[float]) -> None:
    with pytest.raises(ArtifactError, match="2 models need as many non-negative shares"):
        mean([counted(SHAPES)] * 2, shares)


@pytest.mark.parametrize("share", [float("nan"), float("inf")])
def test_shares_that_are_not_finite_are_an_error(share: float) -> None:
    with pytest.raises(ArtifactError, match="shares"):
        mean([counted(SHAPES)] * 2, [1.0, share])


# -- models ------------------------------------------------------------------------------------


def test_initial_weights_depend_on_seed_and_draw_alone(mlp: Architecture) -> None:
    torch.manual_seed(5)
    first = mlp.initial(1)
    torch.manual_seed(6)
    again = Architecture("mlp", mlp.build).initial(1)
    assert torch.equal(first.vector, again.vector)
    assert not torch.equal(first.vector, mlp.initial(2).vector)
    assert not torch.equal(first.vector, mlp.initial(1, draw=1).vector)
    first.vector.zero_()
    assert torch.equal(mlp.initial(1).vector, again.vector)


def test_received_tensors_become_a_model(mlp: Architecture) -> None:
    model = mlp.initial(0)
    received = mlp.model({name: tensor.clone() for name, tensor in reversed(list(model.items()))})
    assert isinstance(received, Model)
    assert torch.equal(received.vector, model.vector)
    assert mlp.model(model.copy()).architecture is mlp
    with pytest.raises(ArtifactError, match="not a complete model of architecture 'mlp'"):
        mlp.model(model.part("head"))


def test_a_model_that_came_as_bytes_is_averaged_by_name(mlp: Architecture) -> None:
    """The byte form has an order of its own; what is averaged is what has the same name."""
    model, other = mlp.initial(0), mlp.initial(1)
    received = Artifact.from_bytes(Artifact.snapshot("model", 1, 1, other, {}).to_bytes())
    torch.testing.assert_close(mean([model, received]).vector, (model.vector + other.vector) / 2)
    torch.testing.assert_close(mean([received, model]).vector, (model.vector + other.vector) / 2)


# -- side by side --------------------------------------------------------------------------------


def several(count: int, size: int) -> list[Weights]:
    layout = Layout.of_shapes({"w": (size,)})
    return [Weights(layout, torch.arange(size) + 100.0 * i) for i in range(count)]


@given(st.integers(1, 6), st.integers(1, 40))
def test_weights_placed_side_by_side_keep_their_numbers_and_are_read_without_a_copy(count: int, size: int) -> None:
    all_weights = several(count, size)
    expected = torch.stack([w.vector for w in all_weights])
    place_side_by_side(all_weights)
    rows = side_by_side([w.vector for w in all_weights])
    assert torch.equal(rows, expected)
    rows.add_(1)  # of all, at once
    assert torch.equal(torch.stack([w.vector for w in all_weights]), expected + 1)


def test_weights_that_lie_side_by_side_stay_in_place() -> None:
    all_weights = several(3, 5)
    place_side_by_side(all_weights)
    places = [w.vector.data_ptr() for w in all_weights]
    place_side_by_side(all_weights)
    assert [w.vector.data_ptr() for w in all_weights] == places


@pytest.mark.parametrize(
    "order", [(0, 2), (2, 1, 0), (0, 1, 3), (1, 1), (0, 1, 0)], ids=["even", "back", "gap", "twice", "there and back"]
)
def test_any_choice_of_rows_gives_their_numbers(order: tuple[int, ...]) -> None:
    all_weights = several(4, 5)
    place_side_by_side(all_weights)
    chosen = [all_weights[i].vector for i in order]
    assert torch.equal(side_by_side(chosen), torch.stack(chosen))


def test_vectors_of_different_memory_or_with_gaps_are_copied() -> None:
    apart = [torch.arange(5.0), torch.arange(5.0) + 1]
    with_gaps = list(torch.arange(20.0).view(2, 10)[:, ::2])
    for vectors in (apart, with_gaps):
        rows = side_by_side(vectors)
        assert torch.equal(rows, torch.stack(vectors))
        rows.zero_()
        assert vectors[1].sum() > 0


# -- averages in place ---------------------------------------------------------------------------


@given(st.integers(0, 4), st.booleans())
def test_a_mean_in_place_is_the_mean_to_the_bit(others: int, weighted: bool) -> None:
    draw = torch.Generator().manual_seed(others)
    layout = Layout.of_shapes({"w": (37,)})
    models = [Weights(layout, torch.randn(37, generator=draw)) for _ in range(1 + others)]
    shares = [1.0 + i for i in range(1 + others)] if weighted else None
    expected = mean(models, shares)
    mean_into(models[0], models[1:], shares)
    assert torch.equal(models[0].vector, expected.vector)


def test_a_mean_in_place_that_cannot_be_made_changes_nothing() -> None:
    model, stranger = several(1, 5)[0], several(1, 6)[0]
    before = model.vector.clone()
    with pytest.raises(ArtifactError):
        mean_into(model, [stranger])
    with pytest.raises(ArtifactError, match="non-negative shares"):
        mean_into(model, several(1, 5), [1.0, -1.0])
    assert torch.equal(model.vector, before)
