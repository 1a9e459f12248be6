"""The child process of the sandbox: checks and runs models, one at a time, and can do nothing else.

``python -m coterie.portable.worker SECONDS MEMORY``, controlled through its standard input and output. It imports
neither torch nor the rest of Coterie, so that it starts quickly and needs little memory.
"""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import struct
import sys
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import numpy as np

Header = dict[str, Any]

LONGEST_HEADER = 4096
SESSIONS = 32  # models to keep loaded at most
_LENGTHS = struct.Struct(">IQ")


def send(stream: IO[bytes], header: Header, body: bytes = b"") -> None:
    """Write one message: two lengths, a JSON header, and raw bytes."""
    text = json.dumps(header).encode()
    stream.write(_LENGTHS.pack(len(text), len(body)))
    stream.write(text)
    stream.write(body)
    stream.flush()


def receive(stream: IO[bytes], longest_body: int) -> tuple[Header, bytes]:
    """The next message. EOFError: there is none. ValueError: it is malformed or too long."""
    header_length, body_length = _LENGTHS.unpack(_read(stream, _LENGTHS.size))
    if header_length > LONGEST_HEADER or body_length > longest_body:
        raise ValueError(f"a message of {header_length:,} and {body_length:,} bytes is too long")
    header = json.loads(_read(stream, header_length))
    if not isinstance(header, dict):
        raise ValueError("a message's header is not an object")
    return header, _read(stream, body_length)


def _read(stream: IO[bytes], length: int) -> bytes:
    data = stream.read(length)
    if len(data) != length:
        raise EOFError
    return data


class InvalidOutput(Exception):  # noqa: N818
    """A model that runs, but whose inputs or outputs do not have the required form."""


class Worker:
    """Answers requests; keeps the most recently used sessions."""

    def __init__(self, seconds: float, memory: int) -> None:
        self._seconds = seconds
        self._largest_together = memory // 8  # bytes of the files; a session needs several times as much
        self._sessions: OrderedDict[str, tuple[Any, int]] = OrderedDict()

    def answer(self, request: Header, body: bytes) -> tuple[Header, bytes]:
        """The answer to a request; an error of the model becomes an answer, too."""
        try:
            with _cpu_time_limit(self._seconds):
                return self._handle(request, body)
        except MemoryError:
            return {"error": "", "memory": True}, b""
        except InvalidOutput as error:
            return {"error": str(error)}, b""
        except Exception as error:  # onnxruntime may raise anything for an untrusted model
            text = str(error)
            no_memory = "bad_alloc" in text or "ailed to allocate" in text
            return {"error": f"onnxruntime cannot run it: {_plain(text)[:500]}", "memory": no_memory}, b""

    def _handle(self, request: Header, body: bytes) -> tuple[Header, bytes]:
        match request["do"]:
            case "check":
                from coterie.portable.checks import check

                reason = check(body, tuple(request["input_shape"]), request["classes"], request["largest"])
                return {"reason": reason}, b""
            case "find":
                return {"found": request["digest"] in self._sessions}, b""
            case "load":
                self._load(request["digest"], body)
                return {}, b""
            case _:
                return self._run(request["digest"], np.frombuffer(body, np.float32).reshape(request["shape"]))

    def _load(self, digest: str, content: bytes) -> None:
        while self._sessions and self._full(len(content)):
            self._sessions.popitem(last=False)
        self._sessions[digest] = open_session(content), len(content)

    def _full(self, coming: int) -> bool:
        together = coming + sum(size for _, size in self._sessions.values())
        return len(self._sessions) >= SESSIONS or together > self._largest_together

    def _run(self, digest: str, x: np.ndarray) -> tuple[Header, bytes]:
        self._sessions.move_to_end(digest)
        session, _ = self._sessions[digest]
        inputs, outputs = session.get_inputs(), session.get_outputs()
        if len(inputs) != 1 or len(outputs) != 1:
            raise InvalidOutput(f"it has {len(inputs)} inputs and {len(outputs)} outputs, but must have one of each")
        (made,) = session.run(None, {inputs[0].name: x})
        if not isinstance(made, np.ndarray) or made.dtype != np.float32:
            raise InvalidOutput(f"its output is of type {outputs[0].type}; expected is tensor(float)")
        return {"shape": made.shape}, made.tobytes()


def _plain(text: str) -> str:
    """onnxruntime's message without file names, lines and functions."""
    text = re.sub(r"^\[ONNXRuntimeError\] : \d+ : |/onnxruntime_src/.*?\[with .*?\] ", "", text)
    for before_the_reason in ("Status Message: ", "was false. "):
        text = text.rpartition(before_the_reason)[2]
    return text


def open_session(content: bytes) -> Any:
    """A session with bit-identical results: one thread, operations in sequence."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.enable_cpu_mem_arena = False  # an arena would keep the memory of the largest model
    options.log_severity_level = 4
    # Otherwise the bytes decide whether they are read as ONNX or in onnxruntime's own format.
    options.add_session_config_entry("session.load_model_format", "ONNX")
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


@contextmanager
def _cpu_time_limit(seconds: float) -> Iterator[None]:
    """SIGPROF ends the process after so many seconds of CPU time, which does not depend on how busy the machine is."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _import_everything() -> None:
    """Import all modules by running a session: after `_lock_in`, nothing can be imported."""
    from onnx import TensorProto, helper

    import coterie.portable.checks  # noqa: F401

    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 1]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "warm-up", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    open_session(model.SerializeToString()).run(None, {"x": np.zeros((1, 1), np.float32)})


def _lock_in(memory: int) -> None:
    """From here on, limit memory, and forbid opening files or sockets, writing files and core dumps."""
    for limit, largest in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_NOFILE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(limit, (largest, largest))


def _own_output() -> IO[bytes]:
    """Standard output reserved for messages: output of libraries must not mix with them."""
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return output


def main() -> None:
    seconds, memory = float(sys.argv[1]), int(sys.argv[2])
    output = _own_output()
    try:
        _import_everything()
        _lock_in(memory)
    except Exception as error:
        return send(output, {"error": f"{type(error).__name__}: {error}"[:1000]})
    send(output, {"ready": True})
    worker = Worker(seconds, memory)
    while True:
        try:
            request, body = receive(sys.stdin.buffer, memory)
        except EOFError:  # the parent closed it, or is gone
            return None
        except MemoryError:
            return None  # a partial message cannot be answered; the parent sees the process end
        send(output, *worker.answer(request, body))


if __name__ == "__main__":
    main()
