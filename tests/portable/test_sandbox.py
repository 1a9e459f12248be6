"""Models that crash, hang, use up memory or give invalid answers: the caller gets the reason, and continues."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper
from portable_support import (
    CLASSES,
    FEATURES,
    ROWS,
    digest_of,
    end,
    endless,
    huge,
    linear,
    model,
    node,
    run,
    tensor,
)

from coterie.core.errors import PortableError, SandboxError
from coterie.portable import sandbox as sandbox_module
from coterie.portable.sandbox import Sandbox

GOOD = linear().SerializeToString()


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def ends_within(pid: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    return False


@pytest.fixture
def own() -> Iterator[Sandbox]:
    """A sandbox to break, with little memory."""
    breakable = Sandbox(memory=2**29)
    yield breakable
    breakable.close()


@pytest.fixture
def impatient() -> Iterator[Sandbox]:
    """One that waits no longer than a test should take: good models must be loaded in that time, on any machine."""
    breakable = Sandbox(seconds=1)
    yield breakable
    breakable.close()


# -- a good model --------------------------------------------------------------------------------


def test_it_computes(sandbox: Sandbox) -> None:
    weights = np.random.default_rng(0).normal(size=(FEATURES, CLASSES)).astype(np.float32)
    said = run(sandbox, GOOD)
    assert said.dtype == np.float32
    np.testing.assert_allclose(said, softmax(ROWS @ weights), atol=1e-6)


def test_many_rows_go_in_batches(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run(sandbox, GOOD)
    monkeypatch.setattr(sandbox_module, "_FLOATS_AT_ONCE", 7 * FEATURES)
    np.testing.assert_allclose(run(sandbox, GOOD), whole, atol=1e-6)
    assert run(sandbox, GOOD, ROWS[:0]).shape == (0, CLASSES)


def test_the_same_rows_give_the_same_bits(sandbox: Sandbox) -> None:
    other = Sandbox()
    try:
        assert run(other, GOOD).tobytes() == run(sandbox, GOOD).tobytes() == run(sandbox, GOOD).tobytes()
    finally:
        other.close()


def test_a_model_is_sent_once_and_sent_again_if_it_was_forgotten(sandbox: Sandbox) -> None:
    first = run(sandbox, GOOD)
    assert (sandbox.answers(b"", digest_of(GOOD), ROWS) == first).all()
    for seed in range(1, 40):
        run(sandbox, linear(seed))
    with pytest.raises(PortableError):
        sandbox.answers(b"", digest_of(GOOD), ROWS)
    assert (run(sandbox, GOOD) == first).all()


def test_threads_share_it(sandbox: Sandbox) -> None:
    models = [linear(seed).SerializeToString() for seed in range(4)]
    expected = [run(sandbox, content) for content in models]
    with ThreadPoolExecutor(4) as pool:
        said = list(pool.map(lambda i: run(sandbox, models[i % 4]), range(40)))
    assert all((answer == expected[i % 4]).all() for i, answer in enumerate(said))


def test_it_starts_when_needed_and_again_after_its_end() -> None:
    lazy = Sandbox()
    assert lazy.pid is None
    run(lazy, GOOD)
    first = lazy.pid
    lazy.close()
    assert first
    assert lazy.pid is None
    assert ends_within(first, 5)
    run(lazy, GOOD)
    assert lazy.pid
    os.kill(lazy.pid, signal.SIGKILL)  # between two calls: no model's fault
    time.sleep(0.1)
    run(lazy, GOOD)
    lazy.close()


def test_the_child_knows_nothing_of_the_parent_and_can_open_nothing(
    own: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    run(own, GOOD)
    with open(f"/proc/{own.pid}/environ", "rb") as file:  # noqa: PTH123
        assert b"hunter2" not in file.read()
    with open(f"/proc/{own.pid}/limits") as file:  # noqa: PTH123
        limits = {line[:25].strip(): line[25:].split()[0] for line in file}
    assert limits["Max open files"] == limits["Max core file size"] == limits["Max file size"] == "0"
    assert limits["Max address space"] == str(2**29)


def test_a_child_that_cannot_start_is_an_error(own: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(SandboxError, match=r"the sandbox for models does not start: .* run '/bin/false -P -m"):
        run(own, GOOD)
    monkeypatch.undo()
    assert len(run(own, GOOD)) == len(ROWS)  # nobody was blamed


# -- models that do not run ----------------------------------------------------------------------


def test_one_that_runs_for_ever(impatient: Sandbox) -> None:
    with pytest.raises(PortableError, match=r"^it used more than 1 s of CPU time$"):
        run(impatient, endless())
    with pytest.raises(PortableError, match="earlier; it is not tried again"):
        run(impatient, endless())
    assert impatient.pid is None  # no process was asked
    assert len(run(impatient, GOOD)) == len(ROWS)


def test_one_that_wants_all_memory(own: Sandbox) -> None:
    content = huge().SerializeToString()
    assert own.check(content, digest_of(content), (FEATURES,), CLASSES, 10**6) == ""
    with pytest.raises(PortableError, match="it needs more than 512 MiB of memory"):
        run(own, content)
    assert len(run(own, GOOD)) == len(ROWS)


def test_one_whose_reading_takes_all_memory(own: Sandbox) -> None:
    """Two bytes of the file are a node of 150 bytes in memory."""
    nodes = b"\x0a\x00" * 5_000_000
    content = b"\x3a" + _varint(len(nodes)) + nodes
    found = own.check(content, digest_of(content), (FEATURES,), CLASSES, 10**8)
    assert found == "it is not an ONNX model, or a damaged one: its bytes cannot be read"
    assert own.check(GOOD, digest_of(GOOD), (FEATURES,), CLASSES, 10**8) == ""


def _varint(number: int) -> bytes:
    low, rest = number & 127, number >> 7
    return bytes([low | 128]) + _varint(rest) if rest else bytes([low])


def test_a_child_that_is_killed_while_it_computes(own: Sandbox) -> None:
    run(own, GOOD)
    pid = own.pid
    assert pid
    killer = threading.Timer(0.2, os.kill, (pid, signal.SIGKILL))
    killer.start()
    with pytest.raises(PortableError, match="it ended the sandbox with SIGKILL"):
        run(own, endless())
    killer.join()
    assert len(run(own, GOOD)) == len(ROWS)
    assert own.pid != pid


def test_a_child_that_stands_still(impatient: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that takes no more in: what is asked is more than a pipe holds."""
    run(impatient, GOOD)
    assert impatient.pid
    with monkeypatch.context() as patch:
        patch.setattr(sandbox_module, "TIMEOUT_FACTOR", 1)
        os.kill(impatient.pid, signal.SIGSTOP)
        with pytest.raises(PortableError, match=r"it gave no answer for 1 s"):
            impatient.answers(bytes(10**6), "another", np.zeros((10**5, FEATURES), np.float32))
    assert len(run(impatient, GOOD)) == len(ROWS)


def test_data_of_another_file_is_not_read_even_without_a_check(own: Sandbox) -> None:
    for place in ("/etc/passwd", "etc/passwd", "../../../../../../../etc/passwd", "pyproject.toml"):
        bad = linear()
        weights = bad.graph.initializer[0]
        weights.ClearField("raw_data")
        weights.data_location = TensorProto.EXTERNAL
        weights.external_data.add(key="location", value=place)
        with pytest.raises(PortableError):
            run(own, bad)


@pytest.mark.parametrize("content", [b"", b"\x00", b"ORTM" * 50, bytes(range(256)) * 40, GOOD[:-20]])
def test_bytes_that_are_no_model(content: bytes, sandbox: Sandbox) -> None:
    with pytest.raises(PortableError) as caught:
        run(sandbox, content)
    assert str(caught.value).isprintable()


def test_a_tree_that_goes_in_circles(sandbox: Sandbox) -> None:
    ids = {"nodes_treeids": [0], "nodes_nodeids": [0], "nodes_truenodeids": [0], "nodes_falsenodeids": [0]}
    tests = {"nodes_featureids": [0], "nodes_modes": ["BRANCH_LEQ"], "nodes_values": [0.0]}
    leaves = {"class_treeids": [0], "class_nodeids": [0], "class_ids": [0], "class_weights": [1.0]}
    labels = {"classlabels_int64s": list(range(CLASSES))}
    bad = model(
        [node("TreeEnsembleClassifier", "x", "label p", domain="ai.onnx.ml", **ids, **tests, **leaves, **labels)]
    )
    with pytest.raises(PortableError, match=r"^onnxruntime cannot run it: .* A node cannot point to itself"):
        run(sandbox, bad)


def test_inputs_of_another_shape(sandbox: Sandbox) -> None:
    with pytest.raises(PortableError, match=r"^onnxruntime cannot run it: INVALID_ARGUMENT"):
        run(sandbox, GOOD, np.zeros((5, FEATURES + 1), np.float32))


# -- models with invalid answers -----------------------------------------------------------------


def of(operator: str, constants: list[list[float]]) -> ModelProto:
    """x w, and then that operator with a constant."""
    zeros = np.zeros((FEATURES, CLASSES))
    return model([node("MatMul", "x w", "z"), node(operator, "z c", "p")], [tensor("w", zeros), tensor("c", constants)])


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (of("Add", [[np.nan, 0.5, 0.5]]), "its answer has 50 of 50 rows with numbers that are not finite"),
        (of("Add", [[np.inf, 0, 0]]), "its answer has 50 of 50 rows with numbers that are not finite"),
        (of("Add", [[-0.5, 1, 0.5]]), "its answer has 50 of 50 rows with negative numbers, not probabilities"),
        (of("Add", [[2, 3, 4]]), "its answer has 50 of 50 rows with numbers whose sum is not 1, not probabilities"),
        (of("Add", [[0, 0, 0]]), "its answer has 50 of 50 rows with numbers whose sum is not 1, not probabilities"),
        (of("Add", [[[0, 0, 1]]]), r"its answer for 50 rows has shape \[1, 50, 3\]; expected is \(rows, classes\)"),
        (
            model([node("MatMul", "x w", "z"), node("Softmax", "z", "p")], [tensor("w", np.zeros((FEATURES, 5)))]),
            "its answer has 5 outputs per row; expected are 3",
        ),
        (
            model([node("ReduceMean", "x", "m", axes=[0]), node("MatMul", "m w", "z"), node("Softmax", "z", "p")],
                  [tensor("w", np.zeros((FEATURES, CLASSES)))]),
            r"its answer for 50 rows has shape \[1, 3\]; expected is \(rows, classes\)",
        ),
        (
            model([node("ArgMax", "x", "p", axis=1)], outputs=[end("p", 1, dtype=TensorProto.INT64)]),
            r"its output is of type tensor\(int64\); expected is tensor\(float\)",
        ),
        (
            model([node("Relu", "x", "p"), node("Relu", "x", "q")], outputs=[end("p", FEATURES), end("q", FEATURES)]),
            "it has 1 inputs and 2 outputs, but must have one of each",
        ),
        (
            model([node("SequenceConstruct", "x", "p")],
                  outputs=[helper.make_tensor_sequence_value_info("p", TensorProto.FLOAT, None)]),
            "its output is of type",
        ),
    ],
)  # fmt: skip
def test_answers_that_are_no_probabilities(bad: ModelProto, reason: str, sandbox: Sandbox) -> None:
    with pytest.raises(PortableError, match=reason):
        run(sandbox, bad)


def test_what_is_off_by_rounding_is_taken(sandbox: Sandbox) -> None:
    said = run(sandbox, of("Add", [[-1e-6, 0.4, 0.600002]]))
    np.testing.assert_array_equal(said[0], np.float32([0, 0.4, 0.600002]))


# -- anything ------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, len(GOOD) - 1), st.integers(0, 255)), min_size=1, max_size=6), st.booleans())
def test_any_change_of_bytes_is_survived(sandbox: Sandbox, changes: list[tuple[int, int]], cut: bool) -> None:
    content = bytearray(GOOD)
    for place, value in changes:
        content[place] = value
    changed = bytes(content[: changes[0][0]] if cut else content)
    reason = sandbox.check(changed, digest_of(changed), (FEATURES,), CLASSES, 10**6)
    assert reason.isprintable()
    with contextlib.suppress(PortableError):
        assert run(sandbox, changed).shape == (len(ROWS), CLASSES)


# -- the end -------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["exit", "killed"])
def test_the_child_ends_with_its_parent(way: str) -> None:
    script = (
        "import os, signal, numpy as np\n"
        "from coterie.portable.sandbox import Sandbox\n"
        "sandbox = Sandbox()\n"
        f"sandbox.answers({GOOD!r}, 'good', np.zeros((2, {FEATURES}), np.float32))\n"
        "print(sandbox.pid, flush=True)\n" + ("os.kill(os.getpid(), signal.SIGKILL)\n" if way == "killed" else "")
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == (-signal.SIGKILL if way == "killed" else 0), done.stderr
    assert ends_within(int(done.stdout), 5)
