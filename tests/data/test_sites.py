"""One peer per site: loading sites from a column or from files, and their splits by class, group and time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import coterie
from coterie import data
from coterie.config.loading import from_tables, notices
from coterie.config.sections import DataSettings, Experiment
from coterie.core.errors import ConfigError, CoterieError, DataError
from coterie.data.dataset import Dataset
from coterie.data.partitions import PartitionSettings, Share, partition, partition_sites
from coterie.data.pool import PooledData
from coterie.wiring import divide, own_data

SPLITS = ("train", "validation", "test")
FILES = PartitionSettings(partition="files")


def parts(share: Share) -> list[np.ndarray]:
    return [getattr(share, split) for split in SPLITS]


# -- splits of a site --------------------------------------------------------------------------


@st.composite
def sites(draw: st.DrawFn, least: int = 3) -> Dataset:
    """One to three sites, each with `least` to 40 different groups (or times) of several rows, in mixed order."""
    keys = []
    for site in range(draw(st.integers(1, 3))):
        sizes = draw(st.lists(st.integers(1, 6), min_size=least, max_size=40))
        keys += [(site, key) for key, size in enumerate(sizes) for _ in range(size)]
    order = draw(st.permutations(keys))
    site_of, key_of = (np.array(column) for column in zip(*order, strict=True))
    names = tuple(f"site {i}" for i in range(site_of.max() + 1))
    x = np.zeros((len(order), 1))
    return Dataset("d", x, np.arange(len(order)) % 2, ("a", "b"), (), site_of, names, groups=key_of)


def check_rows(dataset: Dataset, shares: list[Share]) -> None:
    """Every row is in one split of the peer of its site, and every split has rows."""
    assert len(shares) == len(dataset.site_names)
    for site, share in enumerate(shares):
        rows = np.concatenate(parts(share))
        assert sorted(rows) == np.flatnonzero(dataset.sites == site).tolist()
        assert all(len(part) for part in parts(share))


@settings(deadline=None)
@given(sites(), st.integers(0, 100))
def test_no_group_is_in_two_splits(dataset: Dataset, seed: int) -> None:
    wanted = replace(FILES, group="patient")
    shares = partition_sites(dataset, len(dataset.site_names), wanted, seed)
    check_rows(dataset, shares)
    for share in shares:
        train, validation, test = (set(dataset.groups[part]) for part in parts(share))
        assert len(train | validation | test) == len(train) + len(validation) + len(test)
    again = partition_sites(dataset, len(shares), wanted, seed)
    assert [[part.tolist() for part in parts(s)] for s in again] == [
        [part.tolist() for part in parts(s)] for s in shares
    ]


@settings(deadline=None)
@given(sites())
def test_times_are_in_order(dataset: Dataset) -> None:
    """The strict order implies that rows of equal time are in the same split."""
    timed = replace(dataset, groups=None, times=dataset.groups * 0.5)
    shares = partition_sites(timed, len(timed.site_names), replace(FILES, time="date"), 0)
    check_rows(timed, shares)
    for share in shares:
        train, validation, test = (timed.times[part] for part in parts(share))
        assert train.max() < validation.min()
        assert validation.max() < test.min()


def one_site(**columns: np.ndarray) -> Dataset:
    rows = len(next(iter(columns.values())))
    return Dataset(
        "d", np.zeros((rows, 1)), np.arange(rows) % 2, ("a", "b"), (), np.zeros(rows, int), ("x",), **columns
    )


def test_sizes_by_time() -> None:
    # 20 days of one row each: 70% are the days 0 to 13, then 15% are 3 days each.
    (share,) = partition_sites(one_site(times=np.arange(20)[::-1]), 1, replace(FILES, time="t"), 0)
    assert [len(part) for part in parts(share)] == [14, 3, 3]
    assert share.test.tolist() == [0, 1, 2]  # the rows are in reverse order
    # Two days of 10 rows and one of 1: a boundary that is nearest to 85% of the 21 rows (17.85) is after 20 rows, the
    # one nearest to 70% (14.7) after 10 or 20, of which 20 would leave validation empty.
    (share,) = partition_sites(one_site(times=np.repeat([1, 2, 3], [10, 10, 1])), 1, replace(FILES, time="t"), 0)
    assert [len(part) for part in parts(share)] == [10, 10, 1]
    # Fractions of 0.4 in all: the test and validation rows are the latest, and the earliest rows are left out.
    few = replace(FILES, time="t", train=0.2, validation=0.1, test=0.1)
    (share,) = partition_sites(one_site(times=np.arange(20)), 1, few, 0)
    assert [part.tolist() for part in parts(share)] == [[12, 13, 14, 15], [16, 17], [18, 19]]


def test_sizes_by_group() -> None:
    # 100 groups of 2 rows: the split that lacks most gets the next group, so no split is off by more than one group.
    (share,) = partition_sites(one_site(groups=np.repeat(np.arange(100), 2)), 1, replace(FILES, group="g"), 3)
    assert [len(part) for part in parts(share)] == [140, 30, 30]
    few = replace(FILES, group="g", train=20, validation=10, test=10)
    (share,) = partition_sites(one_site(groups=np.repeat(np.arange(100), 2)), 1, few, 3)
    assert [len(part) for part in parts(share)] == [20, 10, 10]


def test_without_group_and_time_splits_are_stratified() -> None:
    """As a single peer with all rows would split them: so does a real peer."""
    sites = np.repeat([0, 1], [40, 60])
    y = np.tile([0, 0, 0, 1], 25)
    dataset = Dataset("d", np.zeros((100, 1)), y, ("a", "b"), (), sites, ("x", "y"))
    first, second = partition_sites(dataset, 2, FILES, 5)
    (alone,) = partition(y[40:], 2, 1, PartitionSettings(), 5)
    assert [part.tolist() for part in parts(second)] == [(part + 40).tolist() for part in parts(alone)]
    # 30 rows of class 0 and 10 of class 1: 70% are 21 and 7.
    assert np.bincount(y[first.train]).tolist() == [21, 7]


@pytest.mark.parametrize("key", ["group", "time"])
def test_fewer_than_three_groups(key: str) -> None:
    dataset = one_site(**{f"{key}s": np.repeat([1, 2], 10)})
    with pytest.raises(ConfigError, match=rf"site 'x' has 2 .*\(data\.{key}\), but needs at least 3"):
        partition_sites(dataset, 1, replace(FILES, **{key: "k"}), 0)


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (PartitionSettings(group="patient"), "data.group needs peers that are sites, but data.partition = iid"),
        (PartitionSettings(partition="dirichlet", time="date"), "remove data.time"),
        (PartitionSettings(column="hospital"), "data.column only applies to data.partition = column, not iid"),
    ],
)
def test_artificial_partitions_have_no_groups(wanted: PartitionSettings, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        partition(np.arange(40) % 2, 2, 2, wanted, 0)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (replace(FILES, partition="column"), "needs data.column"),
        (replace(FILES, group="g", time="t"), "data.group and data.time cannot be combined"),
        (replace(FILES, train=30, validation=5, test=5), "site 'x' has 20 rows, too few for data.train = 30"),
    ],
)
def test_settings_of_sites_that_do_not_fit(wanted: PartitionSettings, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        partition_sites(one_site(groups=np.arange(20)), 1, wanted, 0)
    assert said in str(error.value)


# -- a column ----------------------------------------------------------------------------------


def hospitals(sizes: dict[str, int]) -> pandas.DataFrame:
    """A table whose feature x is the row number, with two rows a patient and two classes."""
    names = [name for name, size in sizes.items() for _ in range(size)]
    rows = np.arange(len(names))
    patients = [f"p{row // 2}" for row in rows]
    labels = np.where(rows % 3, "ill", "well")
    return pandas.DataFrame({"x": rows, "hospital": names, "patient": patients, "label": labels})


def save(table: pandas.DataFrame, path: Path) -> Path:
    path.parent.mkdir(exist_ok=True)
    table.to_parquet(path) if path.suffix == ".parquet" else table.to_csv(path, index=False)
    return path


def experiment(name: str | Path, partition: str, *words: str) -> Experiment:
    common = [f"data.name={name}", f"data.partition={partition}", "model.zoo=mlp", "method.name=local"]
    sizes = ["data.train=0.7", "data.validation=0.15", "data.test=0.15"]
    return coterie.load("demo", [*common, *sizes, *words])


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_column_of_sites(tmp_path: Path, suffix: str) -> None:
    path = save(hospitals({"10": 20, "tiny": 4, "9": 12, "007": 14}), tmp_path / f"all{suffix}")
    e = experiment(path, "column", "data.column=hospital", "data.group=patient")
    assert e.peers == 3  # taken from the data: the demo has another number
    assert notices([e]) == ["1 site with fewer than 10 rows left out (data.least): tiny"]
    dataset, shares = divide(e)
    assert dataset.site_names == ("007", "9", "10")
    assert [column.name for column in dataset.columns] == ["x"]
    # Site 10 has the rows 0 to 19, 9 has 24 to 35, 007 has 36 to 49.
    held = [sorted(dataset.x[np.concatenate(parts(share)), 0]) for share in shares]
    assert held == [list(range(36, 50)), list(range(24, 36)), list(range(20))]
    assert dataset.row_ids.tolist() == dataset.x[:, 0].tolist()
    for share in shares:
        patients = [set(dataset.x[part, 0] // 2) for part in parts(share)]
        assert len(set.union(*patients)) == sum(map(len, patients))


def test_the_number_of_peers(tmp_path: Path) -> None:
    path = save(hospitals({"a": 20, "b": 20, "c": 12}), tmp_path / "all.csv")
    of_column = (path, "column", "data.column=hospital", "data.group=patient")
    assert experiment(*of_column).peers == 3
    assert experiment(*of_column, "data.least=13").peers == 2
    assert "peers = 3" in experiment(*of_column).toml()
    assert len(divide(experiment(*of_column, "peers=3"))[1]) == 3
    with pytest.raises(ConfigError, match=r"peers = 4, but the data has 3 sites.*set peers = 3"):
        divide(experiment(*of_column, "peers=4"))
    with pytest.raises(DataError, match=r"no value of 'hospital' has 30 rows or more: lower data.least"):
        experiment(*of_column, "data.least=30")
    with pytest.raises(DataError, match=r"has no column 'clinic' \(data.column\); its columns: x, hospital"):
        experiment(path, "column", "data.column=clinic")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("data.column=label",), "data.column = 'label' is the label column"),
        (("data.column=hospital", "data.group=nobody"), "has no column 'nobody' (data.group)"),
        (("data.column=hospital", "data.time=patient"), "'patient' (data.time) has no date or number in 40 rows"),
        (("data.column=hospital", "data.categories.hospital=a,b"), "remove it from data.categories"),
    ],
)
def test_columns_that_do_not_describe_rows(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    path = save(hospitals({"a": 20, "b": 20}), tmp_path / "all.csv")
    with pytest.raises(DataError) as error:
        divide(experiment(path, "column", *words))
    assert said in str(error.value)
    assert "p1" not in str(error.value)  # the value of a cell


def test_only_own_tables_have_columns() -> None:
    with pytest.raises(ConfigError, match=r"data.partition = column needs data.name to be a .csv or .parquet file"):
        experiment("wine", "column", "data.column=hospital")


# -- files -------------------------------------------------------------------------------------


def test_a_file_for_each_site(tmp_path: Path) -> None:
    """Columns are matched by name, a file may lack a class, and the other columns are not features."""
    table = hospitals({"a": 20, "b": 20, "c": 20}).drop(columns="hospital").assign(z=1.5)
    save(table[:20], tmp_path / "sites/site-10.csv")
    save(table[20:40][["label", "z", "patient", "x"]], tmp_path / "sites/site-2.parquet")
    save(table[40:].assign(label="dead"), tmp_path / "sites/site-3.csv")
    (tmp_path / "sites/README.txt").write_text("no data")
    for name in (tmp_path / "sites", f"{tmp_path}/sites/*"):
        if "*" in str(name):
            (tmp_path / "sites/README.txt").unlink()
        e = experiment(name, "files", "data.group=patient")
        dataset, shares = divide(e)
        assert e.peers == 3
        assert dataset.site_names == ("site-2", "site-3", "site-10")
        assert dataset.classes == ("dead", "ill", "well")
        assert [column.name for column in dataset.columns] == ["x", "z"]
        held = [sorted(dataset.x[np.concatenate(parts(share)), 0]) for share in shares]
        assert held == [list(range(20, 40)), list(range(40, 60)), list(range(20))]
        assert set(dataset.x[:, 1]) == {1.5}
        assert dataset.row_ids.tolist() == [*range(20)] * 3


def test_a_site_alone_has_the_splits_of_the_simulation(tmp_path: Path) -> None:
    table = hospitals({"a": 30, "b": 40}).drop(columns="patient")
    save(table, tmp_path / "all.csv")
    for name in ("a", "b"):
        save(table[table.hospital == name].drop(columns="hospital"), tmp_path / f"sites/{name}.csv")
    of_files = experiment(tmp_path / "sites", "files", "data.labels=ill,well", "data.scale=none")
    of_column = experiment(tmp_path / "all.csv", "column", "data.column=hospital", "data.scale=none")
    for e in (of_files, of_column):
        dataset, (_, b) = divide(e)
        alone = own_data(e, 1, "b")
        assert alone.x[:, 0].tolist() == dataset.x[np.concatenate(parts(b)), 0].tolist()
        assert alone.dataset.site_names == ("b",)
        assert len(alone.dataset.y) == 40  # it has no rows of others
        with pytest.raises(ConfigError, match=r"peer.site = 'c' is not a site of the data"):
            own_data(e, 1, "c")
    (tmp_path / "sites/a.csv").write_text("not a table")  # b does not open the file of a
    assert len(own_data(of_files, 1, "b").y) == 40


def names_given(pooled: PooledData) -> tuple[int, ...]:
    """The number that the only peer gives to each class; its rows are in the order of the dataset's row numbers."""
    given = dict(zip(pooled.dataset.y[pooled.rows].tolist(), pooled.y.tolist(), strict=True))
    return tuple(given[number] for number in sorted(given))


def test_private_labels_of_real_peers(tmp_path: Path) -> None:
    """Each has its own permutation, that of its simulated twin; also with a file of its own and another partition."""
    for site in ("a", "b", "c"):
        save(pandas.DataFrame({"x": range(50), "label": np.arange(50) % 5}), tmp_path / f"sites/{site}.csv")
    e = experiment(tmp_path / "sites", "files", "data.private_labels=true", "data.scale=none")
    twins = [share.transform.relabel for share in divide(e)[1]]
    assert len(set(twins)) == 3
    assert [names_given(own_data(e, peer, site)) for peer, site in enumerate("abc")] == twins
    alone = experiment(tmp_path / "sites/a.csv", "scenario1", "data.private_labels=true", "data.scale=none")
    assert [names_given(own_data(alone, peer)) for peer in range(3)] == twins


@pytest.mark.parametrize("by", ["data.group=patient", "data.time=day", "data.group="])
def test_private_labels_of_real_peers_need_classes(tmp_path: Path, by: str) -> None:
    rows = np.arange(30)
    table = pandas.DataFrame({"x": rows, "label": rows + 0.5, "patient": rows // 2, "day": rows})
    save(table, tmp_path / "sites/a.csv")
    e = experiment(tmp_path / "sites", "files", by, "data.private_labels=true", "data.task=regression")
    with pytest.raises(ConfigError, match=r"data.private_labels needs classes, but these labels are numbers"):
        own_data(e, 0, "a")


def test_own_file_of_a_real_peer_by_time(tmp_path: Path) -> None:
    """Whatever partition the shared file has: it is for the simulation."""
    table = pandas.DataFrame({"x": range(20), "label": [0, 1] * 10, "day": pandas.date_range("2024-01-01", periods=20)})
    path = save(table[::-1], tmp_path / "north.csv")
    own = own_data(experiment(path, "dirichlet", "data.time=day", "data.scale=none"), 0)
    assert own.cuts == [(0, 14, 17, 20)]
    assert sorted(own.x[17:, 0]) == [17, 18, 19]


def test_arrays_and_images_of_sites(tmp_path: Path) -> None:
    for name, size in (("a", 12), ("b", 15)):
        (tmp_path / "arrays").mkdir(exist_ok=True)
        patients = np.arange(size) // 2
        np.savez(tmp_path / f"arrays/{name}.npz", x=np.ones((size, 2)), y=np.arange(size) % 2, patient=patients)
        for row in range(size):
            folder = tmp_path / "images" / name / ("cat" if row % 2 else "dog")
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.full((8, 8), row, np.uint8)).save(folder / f"{row}.png")
    dataset, shares = divide(experiment(tmp_path / "arrays/*.npz", "files", "data.group=patient"))
    assert [sum(map(len, parts(share))) for share in shares] == [12, 15]
    assert dataset.groups.tolist() == [*(np.arange(12) // 2), *(np.arange(15) // 2)]
    pictures, shares = divide(experiment(tmp_path / "images", "files"))
    assert pictures.site_names == ("a", "b")
    assert pictures.classes == ("cat", "dog")
    assert sorted(pictures.x[np.concatenate(parts(shares[1])), 0, 0, 0]) == list(range(15))
    with pytest.raises(DataError, match=r"data.group only applies to tables and .npz files, not to the folder"):
        divide(experiment(tmp_path / "images", "files", "data.group=patient"))


def test_files_that_do_not_fit(tmp_path: Path) -> None:
    table = hospitals({"a": 20}).drop(columns=["hospital", "patient"])
    save(table, tmp_path / "sites/a.csv")

    def said() -> str:
        with pytest.raises(CoterieError) as error:
            divide(experiment(tmp_path / "sites", "files"))
        return str(error.value)

    save(table.rename(columns={"x": "age"}), tmp_path / "sites/b.csv")
    assert "b.csv: lacks the column 'x' in comparison to" in said()
    save(table.assign(age=1), tmp_path / "sites/b.csv")
    assert "b.csv: also has a column 'age' in comparison to" in said()
    save(table.drop(columns="label"), tmp_path / "sites/b.csv")
    assert "b.csv: has no column 'label' (data.label)" in said()
    save(table[:2], tmp_path / "sites/b.csv")
    assert "site 'b' has 2 rows, too few for data.train = 0.7" in said()
    (tmp_path / "sites/b.csv").unlink()
    save(table, tmp_path / "sites/a.parquet")
    assert "two files give the site 'a': rename one" in said()


def test_names_of_files_in_several_folders(tmp_path: Path) -> None:
    table = hospitals({"a": 20}).drop(columns=["hospital", "patient"])
    for name in ("north", "south"):
        (tmp_path / name).mkdir()
        save(table, tmp_path / name / "data.csv")
    assert list(data.site_files(f"{tmp_path}/*/data.csv")) == ["north/data", "south/data"]
    with pytest.raises(DataError, match="no file matches"):
        data.site_files(f"{tmp_path}/*.csv")


def test_patterns_are_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(hospitals({"a": 20}).drop(columns=["hospital", "patient"]), tmp_path / "sites/a.csv")
    monkeypatch.chdir(tmp_path)
    assert experiment("sites/*.csv", "files", "peers=2").data.name == f"{tmp_path}/sites/*.csv"
    with pytest.raises(DataError, match=r"a pattern needs data.partition = files"):
        divide(experiment("sites/*.csv", "iid"))


def test_settings_are_hashable() -> None:
    assert hash(DataSettings(partition="files")) != hash(DataSettings())


def test_settings_of_a_run_whose_files_are_gone(tmp_path: Path) -> None:
    """A finished run can be opened without its data."""
    path = save(hospitals({"a": 20}).drop(columns=["hospital", "patient"]), tmp_path / "sites/a.csv")
    tables = experiment(tmp_path / "sites/*.csv", "files").tables()
    path.unlink()
    assert from_tables(tables).peers == 1
