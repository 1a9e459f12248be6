"""Nothing that stands in a peer's data leaves it: markers in all kinds of cells, looked for in all that is sent.

What peers learn from each other are models. Labels, columns and categories are compared when they meet, and must not be
told by that; nor may what one says of a difference. Every byte that a peer hands to gRPC is looked at: the requests
that it makes, the answers that it gives, and the reasons with which it refuses. So is all that the other one writes.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from circle_support import Circle
from PIL import Image

from coterie.core.errors import DataError
from coterie.core.peer import held_by
from coterie.network.agreement import AgreementError
from coterie.network.channels import Channels
from coterie.network.keys import Identity
from coterie.network.serving import Service
from coterie.running.real_peer import PeerFile, place, take_part

MARK = "zqmark"
NUMBERS = 8675309.0, 7654321.0  # side by side in a row; float32 has both exactly
ROWS = 40


# -- the wire ----------------------------------------------------------------------------------


class TappedChannel:
    """A channel that keeps what is sent."""

    def __init__(self, channel: Any, sent: list[bytes]) -> None:
        self._channel, self._sent = channel, sent

    def unary_unary(self, method: str) -> Callable[..., Any]:
        return self._keeping(self._channel.unary_unary(method))

    def unary_stream(self, method: str) -> Callable[..., Any]:
        return self._keeping(self._channel.unary_stream(method))

    def stream_unary(self, method: str) -> Callable[..., Any]:
        call = self._channel.stream_unary(method)

        async def kept(messages: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
            async for message in messages:
                self._sent.append(message)
                yield message

        return lambda messages, **options: call(kept(messages), **options)

    def _keeping(self, call: Any) -> Callable[..., Any]:
        def kept(request: bytes, **options: Any) -> Any:
            self._sent.append(request)
            return call(request, **options)

        return kept


class TappedContext:
    """A server's side of a call: keeps what is written, and why it is refused."""

    def __init__(self, context: Any, sent: list[bytes]) -> None:
        self._context, self._sent = context, sent

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    async def write(self, message: bytes) -> None:
        self._sent.append(message)
        await self._context.write(message)

    async def abort(self, code: Any, details: str = "") -> None:
        self._sent.append(details.encode())
        await self._context.abort(code, details)


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bytes]]:
    """All that both peers send."""
    sent: list[bytes] = []
    to = Channels.to
    monkeypatch.setattr(Channels, "to", lambda *arguments: TappedChannel(to(*arguments), sent))

    def tapped(serve: Any) -> Any:
        async def answer(self: Service, request: Any, context: Any) -> Any:
            said = await serve(self, request, TappedContext(context, sent))
            sent.append(said or b"")
            return said

        return answer

    for name in ("meeting", "fetch", "push"):
        monkeypatch.setattr(Service, name, tapped(getattr(Service, name)))
    yield sent
    assert any(b'"agreement"' in message for message in sent), "the test looked at nothing"


# -- data with markers -------------------------------------------------------------------------


def write_table(path: Path, label: str, columns: str, category: str) -> Path:
    rng = np.random.default_rng(0)
    lines = [f"{columns}a,{columns}b,{columns}ward,kind"]
    for row in range(ROWS):
        a, b = NUMBERS if row == 0 else rng.normal(size=2)
        lines.append(f"{a},{b},{category}{row % 2},{label}{row % 4 // 2}")
    path.with_suffix(".csv").write_text("\n".join(lines))
    return path.with_suffix(".csv")


def write_arrays(path: Path, label: str) -> Path:
    x = np.random.default_rng(0).normal(size=(ROWS, 3))
    x[0, :2] = NUMBERS
    np.savez(path.with_suffix(".npz"), x=x, y=np.array([f"{label}{row % 2}" for row in range(ROWS)]))
    return path.with_suffix(".npz")


def write_images(path: Path, label: str, name: str) -> Path:
    rng = np.random.default_rng(0)
    for row in range(ROWS):
        file = path / f"{label}{row % 2}" / f"{name}{row}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(256, size=(4, 4), dtype=np.uint8)).save(file)
    return path


def write(kind: str, folder: Path, name: str, label: str) -> Path:
    """Data whose labels begin so; what need not be equal at both peers has the peer's own name."""
    own = f"{MARK}{name}"
    if kind == "table":
        return write_table(folder / own, label, f"{MARK}column", f"{MARK}ward")
    return write_arrays(folder / own, label) if kind == "arrays" else write_images(folder / own, label, own)


def peers(two: Circle, kind: str, labels: dict[str, str], more: str = "") -> dict[str, PeerFile]:
    declared = f'categories = {{ {MARK}columnward = ["{MARK}ward0", "{MARK}ward1"] }}' if kind == "table" else ""
    return {
        name: two.file(name, data=write(kind, two.folder, name, label).name, more=f"{declared}\n{more}")
        for name, label in labels.items()
    }


# -- what is looked for ------------------------------------------------------------------------


def patterns(two: Circle, file: PeerFile, kind: str) -> list[bytes]:
    """The markers as text; and two cells side by side as numbers, raw and as models see them."""
    found = [MARK.encode()]
    if kind == "images":
        return found
    data = held_by(place(file, Identity.load(two.folder / "keys" / "north"))[0])
    assert data is not None
    assert data.scaling is not None
    scaled = data.scaling.of_raw(np.array([[*NUMBERS, *[0.0] * (len(data.scaling.mean) - 2)]]))[0, :2].tolist()
    assert any(row[:2] == scaled for split in (data.train, data.validation, data.test) for row in split.x.tolist())
    return [
        *found, *(str(int(number)).encode() for number in NUMBERS),
        *(struct.pack(form, *pair) for form in ("<ff", "<dd", ">ff", ">dd") for pair in (NUMBERS, scaled)),
    ]  # fmt: skip


def look(sent: list[bytes], wanted: list[bytes]) -> None:
    for message in sent:
        for pattern in wanted:
            assert pattern not in message, f"{pattern!r} is in {message[:2000]!r}"


def look_at_files(folder: Path, wanted: list[bytes]) -> None:
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert {"events.jsonl", "status.json"} <= {path.name for path in files}
    look([path.read_bytes() for path in files], wanted)


# -- the tests ---------------------------------------------------------------------------------


@pytest.fixture
def two(tmp_path: Path) -> Circle:
    return Circle(tmp_path, ("north", "south"))


@pytest.mark.parametrize(
    ("kind", "scale"),
    [(k, "auto") for k in ("table", "arrays", "images")] + [(k, "pooled") for k in ("table", "arrays")],
)
def test_peers_that_agree(kind: str, scale: str, two: Circle, wire: list[bytes]) -> None:
    """Their labels, columns and categories are the same: markers of both, which neither may send."""
    files = peers(two, kind, {"north": f"{MARK}label", "south": f"{MARK}label"}, f'scale = "{scale}"')
    said: dict[str, list[str]] = {name: [] for name in files}

    async def work() -> list[dict[str, Any]]:
        return await asyncio.gather(*(take_part(file, say=said[name].append) for name, file in files.items()))

    for summary in asyncio.run(asyncio.wait_for(work(), 60)):
        assert summary["messages"] == 2 + (scale == "pooled")  # they did exchange models, and their sums
    look(wire, patterns(two, files["north"], kind))
    for here, other in (("north", "south"), ("south", "north")):
        own = f"{MARK}{other}".encode()
        look_at_files(two.folder / here, [own])
        look([line.encode() for line in said[here]], [own])


@pytest.mark.parametrize("kind", ["table", "arrays", "images"])
def test_peers_that_do_not_agree(kind: str, two: Circle, wire: list[bytes]) -> None:
    """Of labels that are in one file only, the other peer gets to know that they are not its own."""
    files = peers(two, kind, {name: f"{MARK}label{name}" for name in ("north", "south")})
    said: dict[str, list[str]] = {name: [] for name in files}

    async def work() -> str:
        waiting = asyncio.create_task(take_part(files["north"], say=said["north"].append))
        with pytest.raises(AgreementError, match="labels differ between the two peers") as error:
            await asyncio.wait_for(take_part(files["south"], say=said["south"].append), 20)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        return str(error.value)

    said["south"].append(asyncio.run(work()))
    assert any("'south' was refused" in line for line in said["north"])
    look(wire, patterns(two, files["north"], kind))
    for here, other in (("north", "south"), ("south", "north")):
        owns = [f"{MARK}{other}".encode(), f"{MARK}label{other}".encode()]
        look_at_files(two.folder / here, owns)
        look([line.encode() for line in said[here]], owns)


@pytest.mark.parametrize(
    "change",
    [
        {"category": "nobody declared this "},
        {"columns": "another "},
    ],
)
def test_a_cell_that_is_refused_is_not_shown(change: dict[str, str], two: Circle) -> None:
    """Nor to the peer's own user, whose terminal and logs others may see."""
    cells = {"label": "x", "columns": "", "category": "known ", **change}
    write_table(two.folder / "t", **cells)
    declared = "" if "columns" in change else 'categories = { ward = ["known 0", "known 1"] }'
    file = two.file("north", data="t.csv", more=declared)
    with pytest.raises(DataError, match=r"(not one of its categories|contains texts)") as error:
        asyncio.run(take_part(file, say=lambda _: None))
    assert cells["category"] not in str(error.value).replace("(known 0, known 1)", "")
