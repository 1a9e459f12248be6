"""Which files a module imports, against random programs whose imports are known."""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import coterie
from coterie.core.errors import ConfigError
from coterie.core.imports import LOADED, Source, closure, imported_at, is_own, located
from coterie.methods import find

# A package of modules a to f, one of them in a package inside: ways to import one from another.
NAMES = "abcdef"
WAYS = {
    "whole": "import pack_{id}.{to}",
    "as": "import pack_{id}.{to} as other_{to}",
    "from": "from pack_{id}.{to} import anything_{to}",
    "from package": "from pack_{id} import {to}",
    "relative": "from .{to} import anything_{to}",
    "relative package": "from . import {to}",
    "in a function": "def use_{to}():\n    from pack_{id} import {to}\n    return {to}",
    "in a class": "class Use_{to}:\n    import pack_{id}.{to}",
    "if it is there": "try:\n    from . import {to}\nexcept ImportError:\n    {to} = None",
}
edges = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES), st.sampled_from(sorted(WAYS))), max_size=12)
runs = iter(range(1_000_000))


def reachable(imports: list[tuple[str, str, str]], first: str) -> set[str]:
    found = {first}
    for _ in NAMES:  # no way is longer
        found |= {to for one, to, _ in imports if one in found}
    return found


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edges, st.sampled_from(NAMES))
def test_all_that_is_imported_is_found_and_nothing_else(imports: list[tuple[str, str, str]], first: str) -> None:
    number = next(runs)
    with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        folder = Path(place).resolve() / f"pack_{number}"
        folder.mkdir()
        (folder / "__init__.py").touch()
        for name in NAMES:
            lines = [WAYS[way].format(id=number, to=to) for one, to, way in imports if one == name]
            (folder / f"{name}.py").write_text("\n".join(["import os.path, json", *lines]))
        patch.syspath_prepend(place)
        root = located(f"pack_{number}.{first}")
        assert root is not None
        found = {source.path.name for source in closure([root])} - {"__init__.py"}
        assert found == {f"{name}.py" for name in reachable(imports, first)}
        assert not any(name.startswith(f"pack_{number}") for name in sys.modules), "nothing is executed"


def test_packages_on_the_way_count_as_they_run_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = tmp_path / "outer_pack" / "inner"
    inner.mkdir(parents=True)
    (inner / "leaf.py").touch()
    (inner / "__init__.py").write_text("from .. import beside")
    (tmp_path / "outer_pack" / "__init__.py").touch()
    (tmp_path / "outer_pack" / "beside.py").touch()
    start = tmp_path / "start.py"
    start.write_text("import torch, numpy\nimport outer_pack.inner.leaf")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = closure([Source(start, "start")])
    assert [source.label for source in found] == [
        "start.py", "outer_pack/__init__.py", "outer_pack/inner/__init__.py", "outer_pack/inner/leaf.py",
        "outer_pack/beside.py",
    ]  # fmt: skip


def test_what_of_coterie_counts(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(
        "from coterie import Method, mean\nfrom coterie.methods.panm import PANM\nimport coterie.core.weights"
    )
    found = {source.label for source in closure([Source(mine, "mine")])}
    modules = ("base", "figures", "notes", "panm", "gossip", "components/two_gaussians")
    assert found == {"mine.py", *(f"coterie/methods/{name}.py" for name in modules)}


def test_a_file_that_is_no_python_imports_nothing(tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("import json (")
    assert closure([Source(broken, "broken")]) == [Source(broken, "broken")]


def test_whose_a_file_is(tmp_path: Path) -> None:
    import json

    import numpy

    import coterie

    assert is_own(tmp_path / "mine.py")
    for module in (json, numpy, coterie):
        assert not is_own(Path(str(module.__file__)).resolve())
    assert not is_own(tmp_path / "data.csv")


def test_the_time_of_an_import_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "watched_leaf.py").touch()
    (tmp_path / "watched_root.py").write_text("import watched_leaf")
    monkeypatch.syspath_prepend(str(tmp_path))
    before = time.time_ns()
    module = importlib.import_module("watched_root")
    after = time.time_ns()
    assert before <= imported_at("watched_root") <= imported_at("watched_leaf") <= after
    assert imported_at("sys") < before  # loaded before imports were timed
    importlib.import_module("watched_root")
    assert imported_at("watched_root") <= after, "it was loaded already"
    setattr(module, LOADED, "of the old source")
    importlib.reload(module)
    assert imported_at("watched_root") >= after
    assert not hasattr(module, LOADED)


METHOD = """
from coterie import Method
import {helper}

class Mine(Method):
    async def round(self, me):
        import {late}
        me.note(told={helper}.TOLD + {late}.TOLD)
"""


def method_with_helpers(folder: Path, helper: str, late: str, told: int) -> str:
    folder.mkdir()
    (folder / "mine.py").write_text(METHOD.format(helper=helper, late=late))
    for name in (helper, late):
        (folder / f"{name}.py").write_text(f"TOLD = {told}\n")
    return f"{folder / 'mine.py'}:Mine"


def test_a_method_imports_modules_next_to_its_file(tmp_path: Path) -> None:
    """At its top and inside a function, whatever the working directory is."""
    name = method_with_helpers(tmp_path / "beside", "helper_beside", "late_beside", 2)
    words = [f"method.name={name}", "peers=2", "rounds=1", "baseline=", "data.clusters=2", "engine.models=false"]
    coterie.run(coterie.load("panm-digits", words), tmp_path / "run")
    records = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    assert [r["notes"]["told"] for r in records if r["event"] == "round"] == [4, 4]


def test_a_helper_of_the_same_name_in_another_folder_is_not_taken_for_it(tmp_path: Path) -> None:
    """Python has one module of each name: the second method would compute with the first one's helper."""
    one, other = (method_with_helpers(tmp_path / f, "twin_helper", "late_twin", 1) for f in ("one", "other"))
    find(one)
    with pytest.raises(ConfigError, match=r"imports 'twin_helper'.*other/twin_helper.py.*rename one of them"):
        find(other)
