"""The public API: exactly these names, each documented with its arguments and what it returns."""

from __future__ import annotations

import inspect

import pytest

import coterie

PUBLIC = {
    "Artifact", "Batch", "CoterieError", "Experiment", "Layout", "Method", "Model", "Net", "Output", "Part", "Peer",
    "Weights", "compare", "cross_entropy", "figures", "load", "mean", "parameter", "proximal", "resume", "rounds",
    "run", "runs", "task_loss",
}  # fmt: skip
FUNCTIONS = sorted(name for name in PUBLIC if name[0].islower())


def test_the_public_names_are_pinned() -> None:
    """A name that goes or comes is a change for users: write it into CHANGELOG.md."""
    assert set(coterie.__all__) == PUBLIC == set(dir(coterie))


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_every_public_name_has_a_docstring(name: str) -> None:
    assert len(inspect.getdoc(getattr(coterie, name)) or "") > 20


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_public_function_documents_its_arguments_and_result(name: str) -> None:
    function = getattr(coterie, name)
    text = inspect.getdoc(function) or ""
    assert "Returns:" in text
    undocumented = [p for p in inspect.signature(function).parameters if f"\n    {p}:" not in text]
    assert not undocumented
