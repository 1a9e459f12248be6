"""Properties of all partitions, over many pools, peers and sizes; and of each one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coterie.core.errors import ConfigError
from coterie.data import Dataset, PartitionSettings, Shares, Transform, check_fits, partition
from coterie.data.partitions.deal import _deal
from coterie.data.partitions.plan import Plan
from coterie.data.partitions.plans import PLANS
from coterie.data.partitions.rounding import largest_remainder, round_matrix, split_counts

STRATIFIED = ("iid", "rotation", "label-swap", "independent", "quantity")
CLUSTERED = {"windows", "rotation", "label-swap", "scenario1", "scenario2", "scenario3", "scenario4"}
SPLITS = ("train", "validation", "test")


def pool(seed: int, rows: int, classes: int = 10) -> np.ndarray:
    """Labels of unequal frequency, each class present."""
    rng = np.random.default_rng(seed)
    mix = rng.dirichlet(np.full(classes, 20.0))
    return rng.permutation(np.concatenate([np.arange(classes), rng.choice(classes, rows - classes, p=mix)]))


def all_rows(shares: Shares) -> np.ndarray:
    return np.concatenate([getattr(share, split) for share in shares for split in SPLITS])


def equal(first: Shares, second: Shares) -> bool:
    return all(
        np.array_equal(getattr(a, split), getattr(b, split)) and (a.transform, a.cluster) == (b.transform, b.cluster)
        for a, b in zip(first, second, strict=True)
        for split in SPLITS
    )


cases = st.fixed_dictionaries(
    {
        "partition": st.sampled_from(sorted(PLANS)),
        "clusters": st.sampled_from([2, 4]),
        "alpha": st.sampled_from([0.05, 0.5, 100.0]),
        "classes_per_peer": st.integers(1, 10),
        "skew": st.sampled_from([0.0, 1.0, 2.0]),
        "overlap": st.booleans(),
    }
)
fast = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@fast
@given(case=cases, seed=st.integers(0, 2**40), peers=st.integers(4, 12), rows=st.integers(900, 1500))
def test_fractions(case: dict, seed: int, peers: int, rows: int) -> None:
    labels, wanted = pool(seed, rows), PartitionSettings(**case)
    shares = partition(labels, 10, peers, wanted, seed)
    assert equal(shares, partition(labels.copy(), 10, peers, wanted, seed))
    check_promises(shares, labels, peers, wanted)
    if not wanted.overlap and wanted.partition in (*STRATIFIED, "dirichlet"):
        assert len(all_rows(shares)) == rows  # every row is assigned


@fast
@given(
    case=cases,
    seed=st.integers(0, 2**40),
    peers=st.integers(4, 10),
    sizes=st.tuples(st.integers(1, 30), st.integers(1, 10), st.integers(1, 10)),
)
def test_whole_numbers(case: dict, seed: int, peers: int, sizes: tuple[int, int, int]) -> None:
    labels = pool(seed, 2500)
    train, validation, test = sizes
    wanted = PartitionSettings(**case, train=train, validation=validation, test=test)
    if wanted.partition in ("quantity", "windows") or wanted.partition.startswith("scenario"):
        return  # the sizes are their own, or per class
    shares = partition(labels, 10, peers, wanted, seed)
    check_promises(shares, labels, peers, wanted)
    for share in shares:
        assert (len(share.train), len(share.validation), len(share.test)) == sizes


def check_promises(shares: Shares, labels: np.ndarray, peers: int, wanted: PartitionSettings) -> None:
    """Valid, disjoint, sorted, non-empty, in the right clusters, with the right mix of classes."""
    assert len(shares) == peers
    rows = all_rows(shares)
    assert rows.dtype == np.int64
    assert rows.min() >= 0
    assert rows.max() < len(labels)
    if not wanted.overlap:
        assert len(np.unique(rows)) == len(rows)
    for share in shares:
        own = all_rows([share])
        assert len(np.unique(own)) == len(own)
        for split in SPLITS:
            part = getattr(share, split)
            assert len(part) > 0
            assert (np.diff(part) > 0).all()
    blocks = [share.cluster for share in shares]
    if wanted.partition in CLUSTERED:
        assert blocks == sorted(blocks)
        sizes = np.bincount(blocks)
        assert sizes.max() - sizes.min() <= 1
    else:
        assert set(blocks) == {None}
    if wanted.partition in STRATIFIED:
        check_mix(shares, labels, wanted)


def check_mix(shares: Shares, labels: np.ndarray, wanted: PartitionSettings) -> None:
    """Each split of each peer has the pool's mix: within 1 by number, within 2 after two roundings."""
    mix = np.bincount(labels, minlength=10) / len(labels)
    tolerance = 1 if isinstance(wanted.train, int) else 2
    for share in shares:
        for split in SPLITS:
            part = getattr(share, split)
            counts = np.bincount(labels[part], minlength=10)
            assert np.abs(counts - len(part) * mix).max() <= tolerance + 1e-6


def test_seeds_differ() -> None:
    labels = pool(0, 1000)
    for name in PLANS:
        wanted = PartitionSettings(partition=name)
        assert not equal(partition(labels, 10, 5, wanted, 0), partition(labels, 10, 5, wanted, 1))


@fast
@given(
    values=st.lists(st.lists(st.integers(0, 50), min_size=4, max_size=4), min_size=1, max_size=8),
    fractions=st.sampled_from([(0.7, 0.15, 0.15), (0.5, 0.25, 0.25), (0.6, 0.2, 0.1), (0.34, 0.33, 0.33)]),
)
def test_splits_keep_every_peers_mix_within_one(values: list[list[int]], fractions: tuple) -> None:
    totals = np.array(values)
    counts = split_counts(totals, fractions)
    assert (counts >= 0).all()
    assert (counts.sum(axis=1) <= totals).all()
    ideal = totals[:, None, :] * np.array(fractions)[None, :, None]
    assert np.abs(counts - ideal).max() <= 1 + 1e-9
    assert np.abs(counts.sum(axis=2) - ideal.sum(axis=2)).max() < 1 + 1e-9


@fast
@given(
    rows=st.lists(st.integers(0, 400), min_size=1, max_size=30),
    weights=st.lists(st.integers(1, 100), min_size=2, max_size=12),
)
def test_rounding_a_matrix_keeps_rows_columns_and_entries(rows: list[int], weights: list[int]) -> None:
    ideal = np.array(rows)[:, None] * (np.array(weights) / sum(weights))
    rounded = round_matrix(ideal)
    assert rounded.sum(axis=1).tolist() == rows
    assert np.abs(rounded.sum(axis=0) - ideal.sum(axis=0)).max() < 1 + 1e-6
    assert np.abs(rounded - ideal).max() <= 1 + 1e-6


def test_largest_remainder_by_hand() -> None:
    # 2.5 + 1.2 + 0.3 = 4: down to 2, 1, 0; the one left goes to the largest fraction.
    assert largest_remainder(np.array([2.5, 1.2, 0.3]), 4).tolist() == [3, 1, 0]


def mnist_labels() -> np.ndarray:
    """As many of each class as MNIST has."""
    return np.repeat(np.arange(10), [6903, 7877, 6990, 7141, 6824, 6313, 6876, 7293, 6825, 6958])


def test_panm_on_mnist_fits_although_there_are_too_few_fives_for_equal_counts() -> None:
    wanted = PartitionSettings(partition="rotation", clusters=4, train=200, validation=40, test=100)
    labels = mnist_labels()
    shares = partition(labels, 10, 200, wanted, 0)
    check_promises(shares, labels, 200, wanted)
    assert [share.cluster for share in shares] == [0] * 50 + [1] * 50 + [2] * 50 + [3] * 50
    assert [shares[peer].transform.rotate for peer in (0, 50, 100, 150)] == [0, 90, 180, 270]


def test_too_many_images_say_what_would_fit() -> None:
    wanted = PartitionSettings(partition="rotation", train=300, validation=40, test=100)
    message = r"data\.train: 200 peers need 440 .* 6313 to 7877 images per class, has 350 each: data\.train = 210 "
    with pytest.raises(ConfigError, match=message):
        partition(mnist_labels(), 10, 200, wanted, 0)
    partition(mnist_labels(), 10, 200, replace(wanted, train=210), 0)
    partition(mnist_labels(), 10, 200, replace(wanted, overlap=True), 0)
    for name, fits in (("scenario1", 8), ("classes", 259), ("dirichlet", 295)):
        asked = replace(wanted, partition=name, train=3000, validation=30, test=25)
        with pytest.raises(ConfigError, match=rf"data\.train = {fits} would fit"):
            partition(mnist_labels(), 10, 200, asked, 0)
        partition(mnist_labels(), 10, 200, replace(asked, train=fits), 0)


def class_sets(shares: Shares, labels: np.ndarray) -> list[set[int]]:
    return [set(labels[all_rows([share])].tolist()) for share in shares]


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("scenario1", set(range(5)), set(range(5, 10))),
        ("scenario2", set(range(7)), set(range(3, 10))),
        ("scenario3", set(range(5)), set(range(5, 10))),
        ("scenario4", set(range(7)), set(range(3, 10))),
    ],
)
def test_scenarios_have_the_papers_classes_and_sizes(name: str, first: set[int], second: set[int]) -> None:
    labels = np.arange(80_000) % 10
    shares = partition(labels, 10, 20, PartitionSettings(partition=name), 3)
    assert class_sets(shares, labels) == [first] * 10 + [second] * 10
    for share in shares:
        held = sorted(first if share.cluster == 0 else second)
        train = np.bincount(labels[share.train], minlength=10)[held]
        if name in ("scenario1", "scenario2"):
            assert (train == 300).all()
        else:
            assert train.min() >= 100
            assert train.max() <= 300
            assert len(set(train.tolist())) > 1
        for part in (share.validation, share.test):
            assert (np.bincount(labels[part], minlength=10)[held] == 15).all()


def test_scenarios_shrink_on_a_small_pool_unless_sizes_are_given() -> None:
    labels = np.arange(1800) % 10  # 180 a class, ten holders: 18 each, of which 15 % are 2.7
    shares = partition(labels, 10, 20, PartitionSettings(partition="scenario1"), 0)
    sizes = {(len(share.train) / 5, len(share.validation) / 5, len(share.test) / 5) for share in shares}
    assert sizes == {(12, 3, 3)}
    given_fractions = PartitionSettings(partition="scenario1", train=0.5, validation=0.25, test=0.25)
    shares = partition(labels, 10, 20, given_fractions, 0)
    assert {len(share.train) for share in shares} == {45}
    given_sizes = PartitionSettings(partition="scenario1", train=20, validation=1, test=1)
    with pytest.raises(ConfigError, match=r"has 18 of a class each: data\.train = 16 would fit"):
        partition(labels, 10, 20, given_sizes, 0)
    shares = partition(labels, 10, 20, replace(given_sizes, overlap=True), 0)
    assert {len(share.train) for share in shares} == {100}


def test_classes_are_shared_evenly() -> None:
    labels = np.arange(2000) % 10
    shares = partition(labels, 10, 15, PartitionSettings(partition="classes", classes_per_peer=2), 0)
    sets = class_sets(shares, labels)
    assert {len(each) for each in sets} == {2}
    assert np.bincount([number for each in sets for number in each]).tolist() == [3] * 10
    held = [np.bincount(labels[all_rows([share])], minlength=10) for share in shares]
    assert {int(count) for row in held for count in row} <= {0, 66, 67}  # 200 images, three holders


def test_dirichlet_is_uneven_and_leaves_no_peer_out() -> None:
    labels = np.arange(2000) % 10
    shares = partition(labels, 10, 40, PartitionSettings(partition="dirichlet", alpha=0.05), 0)
    sizes = [len(all_rows([share])) for share in shares]
    assert min(sizes) >= 10
    assert max(sizes) > 3 * np.mean(sizes)
    even = partition(labels, 10, 10, PartitionSettings(partition="dirichlet", alpha=1e4), 0)
    assert max(len(all_rows([share])) for share in even) < 230


def test_quantity_follows_its_power_law() -> None:
    labels = np.arange(30_000) % 10
    shares = partition(labels, 10, 4, PartitionSettings(partition="quantity", skew=1.0), 0)
    sizes = sorted((len(all_rows([share])) - 10 for share in shares), reverse=True)
    # Beyond the 10 that everyone has: 29960 in proportions 1, 1/2, 1/3, 1/4, which sum to 25/12.
    assert np.abs(np.array(sizes) - 29960 * 12 / 25 / np.array([1, 2, 3, 4])).max() <= 1


def test_label_swaps_and_permutations() -> None:
    labels = np.arange(1000) % 10
    two = partition(labels, 10, 4, PartitionSettings(partition="label-swap"), 0)
    assert two[0].transform.relabel == (1, 0, 2, 3, 4, 5, 6, 7, 8, 9)
    assert two[3].transform.relabel == (0, 1, 2, 3, 4, 5, 7, 6, 8, 9)
    four = partition(labels, 10, 4, PartitionSettings(partition="label-swap", clusters=4), 0)
    assert [str(share.transform) for share in four] == ["0<->1", "2<->3", "4<->5", "6<->7"]
    own = partition(labels, 10, 4, PartitionSettings(partition="independent"), 0)
    assert all(sorted(share.transform.relabel or ()) == list(range(10)) for share in own)
    assert len({share.transform.relabel for share in own}) == 4


def test_a_rotation_is_counter_clockwise_and_no_flip() -> None:
    image = np.array([[[[1, 2], [3, 4]]]], dtype=np.uint8)
    x, y = Transform(rotate=90).apply(image, np.array([0]))
    assert x.tolist() == [[[[2, 4], [1, 3]]]]
    assert x.flags.c_contiguous
    assert Transform(rotate=180).apply(image, y)[0].tolist() == [[[[4, 3], [2, 1]]]]
    assert Transform(rotate=270).apply(image, y)[0].tolist() == [[[[3, 1], [4, 2]]]]
    assert Transform().apply(image, y)[0] is image
    relabelled = Transform(relabel=(2, 0, 1)).apply(image, np.array([0, 1, 2, 1]))[1]
    assert relabelled.tolist() == [2, 0, 1, 0]


@pytest.mark.parametrize(
    ("change", "classes", "message"),
    [
        (
            {"partition": "dirichlett"},
            10,
            "data.partition must be one of iid, .* mean 'dirichlet'",
        ),
        ({"partition": "rotation", "clusters": 3}, 10, "data.clusters: must be 2 or 4"),
        ({"partition": "label-swap"}, 7, "needs at least 8 classes"),
        ({"partition": "scenario2"}, 11, "needs a dataset of 10 classes"),
        ({"partition": "dirichlet", "alpha": 0.0}, 10, "data.alpha must be above 0"),
        ({"partition": "dirichlet", "alpha": float("nan")}, 10, "data.alpha must be above 0"),
        ({"partition": "classes", "classes_per_peer": 11}, 10, "data.classes_per_peer: must be 1 to 10"),
        ({"partition": "quantity", "skew": -1.0}, 10, "data.skew"),
        ({"partition": "quantity", "train": 9, "validation": 9, "test": 9}, 10, "sets the sizes itself"),
        ({"train": 5}, 10, "data.train = 5, data.validation = 0.15, .* give all three"),
        ({"train": 0.9}, 10, "add up to 1.2; they must not exceed 1"),
        ({"validation": 0.0}, 10, "data.validation must be above 0"),
        ({"train": 9, "validation": 0, "test": 9}, 10, "data.validation must be above 0"),
        ({"validation": 0.001}, 10, "data.validation: peer 0 would have no validation images"),
    ],
)
def test_impossible_settings_name_their_key(change: dict, classes: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        partition(np.arange(770) % classes, classes, 8, PartitionSettings(**change), 0)


def test_impossible_peers_and_seeds() -> None:
    labels = np.arange(100) % 10
    with pytest.raises(ConfigError, match="peers: must be at least 1"):
        partition(labels, 10, 0, PartitionSettings(), 0)
    with pytest.raises(ConfigError, match="peers: must be at least 4, not 3"):
        partition(labels, 10, 3, PartitionSettings(partition="rotation", clusters=4), 0)
    with pytest.raises(ConfigError, match="seed"):
        partition(labels, 10, 3, PartitionSettings(), -1)
    with pytest.raises(ConfigError, match="would have no"):
        partition(labels, 10, 90, PartitionSettings(), 0)


def test_rotation_needs_square_images() -> None:
    def dataset(*shape: int) -> Dataset:
        return Dataset("mine", np.zeros(shape, dtype=np.uint8), np.zeros(shape[0], dtype=int), ("a", "b"))

    wanted = PartitionSettings(partition="rotation")
    check_fits(dataset(2, 1, 4, 4), wanted)
    check_fits(dataset(2, 3), PartitionSettings())
    with pytest.raises(ConfigError, match="rotation needs images"):
        check_fits(dataset(2, 3), wanted)
    with pytest.raises(ConfigError, match="square images; mine has 4x5"):
        check_fits(dataset(2, 1, 4, 5), wanted)
    with pytest.raises(ConfigError, match="8 classes"):
        check_fits(dataset(2, 1, 4, 4), PartitionSettings(partition="label-swap"))


def test_windows_are_neighbouring_classes_that_wrap() -> None:
    labels = np.tile(np.arange(10), 30)
    wanted = PartitionSettings(partition="windows", clusters=5, classes_per_peer=3, train=3, validation=1, test=2)
    shares = partition(labels, 10, 10, wanted, 0)
    held = [set(labels[share.train]) for share in shares]
    assert held == [s for s in ({0, 1, 2}, {2, 3, 4}, {4, 5, 6}, {6, 7, 8}, {8, 9, 0}) for _ in range(2)]
    assert [share.cluster for share in shares] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert all((len(s.train), len(s.validation), len(s.test)) == (9, 3, 6) for s in shares)


def test_windows_say_what_fits() -> None:
    labels = np.tile(np.arange(10), 30)  # classes 0, 2, 4, ... are with four peers: 7 images each
    wanted = PartitionSettings(partition="windows", clusters=5, classes_per_peer=3, train=5, validation=1, test=2)
    with pytest.raises(ConfigError, match=r"data.train = 4 would fit"):
        partition(labels, 10, 10, wanted, 0)
    with pytest.raises(ConfigError, match=r"data.clusters: must be 1 to 10"):
        partition(labels, 10, 10, replace(wanted, clusters=11), 0)


@pytest.mark.parametrize("name", ["classes", "dirichlet", "label-swap", "iid"])
def test_private_labels_change_the_names_and_nothing_else(name: str) -> None:
    labels = pool(3, 600)
    wanted = PartitionSettings(partition=name, classes_per_peer=3)
    plain = partition(labels, 10, 6, wanted, 1)
    private = partition(labels, 10, 6, replace(wanted, private_labels=True), 1)
    seen = set()
    for one, other in zip(plain, private, strict=True):
        for split in ("train", "validation", "test"):
            np.testing.assert_array_equal(getattr(one, split), getattr(other, split))
        assert other.transform.rotate == one.transform.rotate
        _, before = one.transform.apply(np.zeros((10, 1)), np.arange(10))
        _, after = other.transform.apply(np.zeros((10, 1)), np.arange(10))
        assert sorted(after) == list(range(10))
        seen.add(tuple(after[np.argsort(before)]))  # what the peer calls what it would have called 0, 1, 2, ...
    assert len(seen) == 6


def test_peers_that_share_images_do_not_learn_from_those_that_others_are_measured_with() -> None:
    """MAPL's scenario 2 with the paper's 300 images: 20 peers hold the four shared classes, of 6,000 images each."""
    labels = np.repeat(np.arange(10), 6000)
    wanted = PartitionSettings(partition="scenario2", train=300, validation=15, test=15, overlap=True)
    shares = list(partition(labels, 10, 20, wanted, 0))
    trained = np.concatenate([share.train for share in shares])
    measured = np.concatenate([rows for share in shares for rows in (share.validation, share.test)])
    assert {len(share.train) for share in shares} == {7 * 300}
    assert {len(np.unique(np.concatenate([s.train, s.validation, s.test]))) for s in shares} == {7 * 330}
    assert len(np.unique(trained)) < len(trained)  # they do share
    assert not set(trained.tolist()) & set(measured.tolist())


def test_where_there_are_too_few_images_for_that_they_may() -> None:
    """One peer needs eleven of fifteen to train on, another nine to be measured with."""
    counts = np.array([[[11], [2], [2]], [[2], [4], [5]]])
    shares = _deal(np.zeros(15, dtype=np.int64), Plan(counts), True, np.random.default_rng(0))
    assert [[len(share.train), len(share.validation), len(share.test)] for share in shares] == [[11, 2, 2], [2, 4, 5]]
    for share in shares:
        assert len(np.unique(np.concatenate([share.train, share.validation, share.test]))) == sum(
            map(len, (share.train, share.validation, share.test))
        )
