"""The paths of a run's files, and that no other module spells their names."""

import ast
from collections.abc import Iterator
from pathlib import Path

import coterie
from coterie.core.run_folder import PARTS, ComparisonFolder, RunFolder, runs_in

SOURCES = Path(coterie.__file__).parent
FILES = {
    "config.toml", "events.jsonl", "summary.json", "state.json", "status.json", "provenance.json", "report.html",
    "graph.npz", "audit.jsonl", "output.txt", "error.txt", "comparison.json", "comparison.md", "wandb-id",
}  # fmt: skip


def test_the_paths_of_a_run() -> None:
    run = RunFolder(Path("runs/a"))
    files = [
        run.config, run.events, run.summary, run.state, run.status, run.provenance, run.report, run.graph, run.audit,
        run.output, run.error, run.wandb_id,
    ]  # fmt: skip
    names = [
        "config.toml", "events.jsonl", "summary.json", "state.json", "status.json", "provenance.json", "report.html",
        "graph.npz", "audit.jsonl", "output.txt", "error.txt", "wandb-id",
    ]  # fmt: skip
    assert files == [Path("runs/a") / name for name in names]
    folders = [run.peers, run.keys, run.models, run.predictions, run.checkpoint, run.letters]
    assert {folder.name for folder in folders} == PARTS
    assert run.peer("north").events == Path("runs/a/peers/north/events.jsonl")
    assert run.peer_file("north") == Path("runs/a/peers/north.toml")
    assert run.baseline("local").summary == Path("runs/a/baseline-local/summary.json")


def test_the_paths_of_a_comparison() -> None:
    comparison = ComparisonFolder(Path("runs/c"))
    assert comparison.record == Path("runs/c/comparison.json")
    assert comparison.table("tex") == Path("runs/c/comparison.tex")
    assert (comparison.report, comparison.lock) == (Path("runs/c/report.html"), Path("runs/c/.lock"))


def test_states(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    assert (run.is_started(), run.is_finished(), run.is_circle()) == (False, False, False)
    run.config.touch()
    assert (run.is_started(), run.is_finished(), run.is_circle()) == (True, False, False)
    run.summary.touch()
    assert (run.is_started(), run.is_finished(), run.is_circle()) == (True, True, False)
    run.peers.mkdir()
    assert (run.is_started(), run.is_finished(), run.is_circle()) == (True, True, True)


def test_runs_inside(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    for name in ("peer-1", "peer-0"):
        run.peer(name).path.mkdir(parents=True)
        run.peer_file(name).touch()  # a file, not a member
    assert run.members() == [run.peer("peer-0"), run.peer("peer-1")]
    for name in ("local", "fedavg", "empty"):
        run.baseline(name).path.mkdir()
    for name in ("local", "fedavg"):
        run.baseline(name).events.touch()
    assert run.baselines() == [run.baseline("fedavg"), run.baseline("local")]  # the empty one has no events
    run.baseline("local").config.touch()
    assert list(runs_in(tmp_path)) == [run.baseline("local")]


def test_only_this_module_spells_the_names() -> None:
    """A text that is a file's name, also after a folder (`*/config.toml`), and a subfolder's name after a `/`."""
    places = [
        f"{path.relative_to(SOURCES)}:{line} {name}"
        for path in sorted(SOURCES.rglob("*.py"))
        if path != SOURCES / "core" / "run_folder.py"
        for line, name in _spelt(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert not places


def test_the_search_finds_a_name() -> None:
    text = 'read(folder / "events.jsonl")\nfolder.glob("*/config.toml")\nfolder / "peers"\nsay("has no config.toml")'
    assert list(_spelt(ast.parse(text))) == [(1, "events.jsonl"), (2, "*/config.toml"), (3, "peers")]


def _spelt(tree: ast.AST) -> Iterator[tuple[int, str]]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.rpartition("/")[2] in FILES:
            found.add((node.lineno, node.value))
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and isinstance(node.right, ast.Constant):
            found |= {(node.lineno, node.right.value)} if node.right.value in PARTS else set()
    return iter(sorted(found))
