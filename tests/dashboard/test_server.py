"""What the dashboard answers, and to whom."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from dashboard_support import make_run, serving, write_round

from coterie.cli import main
from coterie.cli.dashboard import PORT
from coterie.core.errors import CoterieError
from coterie.core.measured_metric import ACCURACY
from coterie.dashboard.guard import token_from
from coterie.dashboard.server import Dashboard
from coterie.dashboard.watch import RunWatcher

HERE = f"http://127.0.0.1:{PORT}"
TOKEN = "a-token-of-some-length"


class Client:
    """Asks the application without a network; keeps its cookies."""

    def __init__(self, app: Any) -> None:
        self.transport, self.cookies = httpx.ASGITransport(app), httpx.Cookies()

    def get(self, path: str, **options: Any) -> httpx.Response:
        return asyncio.run(self._ask("GET", path, **options))

    def post(self, path: str, **options: Any) -> httpx.Response:
        return asyncio.run(self._ask("POST", path, **options))

    async def _ask(self, how: str, path: str, **options: Any) -> httpx.Response:
        async with httpx.AsyncClient(transport=self.transport, base_url=HERE, cookies=self.cookies) as client:
            answer = await client.request(how, path, **options)
            self.cookies.update(client.cookies)
            return answer


def client(top: Path, *, control: bool = False, token: str | None = None, host: str = "127.0.0.1") -> Client:
    return Client(Dashboard(top, control).app(host=host, port=PORT, token=token))


def test_the_page_and_its_parts_come_from_the_package(tmp_path: Path) -> None:
    asked = client(tmp_path)
    page = asked.get("/")
    assert page.status_code == 200
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert "unsafe" not in page.headers["content-security-policy"]
    assert asked.get("/assets/main.js").headers["content-type"].startswith("text/javascript")
    assert asked.get("/assets/marks.css").status_code == 200


def test_the_list_of_runs(tmp_path: Path) -> None:
    log = make_run(tmp_path / "a", peers=2, rounds=3)
    write_round(log, 1, [0.5, 0.7])
    runs = client(tmp_path).get("/api/runs").json()
    assert runs["a"] | {"time": 0} == {
        "id": "a", "kind": "simulation", "state": "unfinished", "round": None, "rounds": 3, "peers": 2, "seed": 0,
        "method": "gossip", "data": "digits", "partition": "iid", "validation": None, "test": None, "bytes": None,
        "error": "", "time": 0, "report": False, "metric": vars(ACCURACY),
    }  # fmt: skip


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "[::1", "192.0.2.1"])
def test_a_foreign_name_is_refused(tmp_path: Path, host: str) -> None:
    answer = client(tmp_path).get("/api/runs", headers={"host": host})
    assert answer.status_code == 403
    assert "not a host name of this dashboard" in answer.text


def test_names_that_are_ours(tmp_path: Path) -> None:
    for host in ("localhost:8750", "[::1]:8750", "127.0.0.1"):
        assert client(tmp_path).get("/api/runs", headers={"host": host}).status_code == 200
    open_to_all = client(tmp_path, host="0.0.0.0")
    assert open_to_all.get("/api/runs", headers={"host": "192.0.2.1:8750"}).status_code == 200
    assert open_to_all.get("/api/runs", headers={"host": "evil.example"}).status_code == 403


def test_without_the_token_nothing_is_served(tmp_path: Path) -> None:
    asked = client(tmp_path, token=TOKEN)
    for path in ("/", "/api/runs", "/assets/main.js", "/api/stream", "/report?run=a", "/?token=wrong"):
        answer = asked.get(path)
        assert answer.status_code == 401, path
        assert "A token is needed" in answer.text


def test_the_token_comes_once_in_the_address_then_as_a_cookie(tmp_path: Path) -> None:
    asked = client(tmp_path, token=TOKEN)
    first = asked.get(f"/?token={TOKEN}&x=1")
    assert first.status_code == 303
    assert first.headers["location"] == "/?x=1"
    cookie = first.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert asked.get("/api/runs").status_code == 200
    asked.cookies.clear()
    assert asked.get("/api/runs", headers={"cookie": f"coterie-{PORT}=wrong"}).status_code == 401


def test_a_token_file_must_hold_a_token(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n", encoding="utf-8")
    assert token_from(tmp_path / "token") == TOKEN
    for text in ("short", "", "two words of some length", "ümläut-and-so-on-and-on"):
        (tmp_path / "token").write_text(text, encoding="utf-8")
        with pytest.raises(CoterieError, match="token-file"):
            token_from(tmp_path / "token")
    assert len(token_from(None)) >= 32
    assert token_from(None) != token_from(None)


def test_it_is_read_only_unless_told(tmp_path: Path) -> None:
    for what in ("start", "pause", "resume", "stop"):
        answer = client(tmp_path).post(f"/api/{what}", json={}, headers={"origin": HERE})
        assert answer.status_code == 403
        assert "--control" in answer.json()["error"]
    assert b'data-control="no"' in client(tmp_path).get("/").content


@pytest.mark.parametrize(
    "headers",
    [{}, {"origin": "http://evil.example"}, {"origin": "null"}, {"origin": "http://127.0.0.1:9999"},
     {"origin": HERE, "sec-fetch-site": "cross-site"}],
)  # fmt: skip
def test_other_sites_cannot_ask_for_anything(tmp_path: Path, headers: dict[str, str]) -> None:
    answer = client(tmp_path, control=True).post("/api/start", json={"experiment": "panm-digits"}, headers=headers)
    assert answer.status_code == 403
    assert "own page" in answer.text
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("given", "said"),
    [({"experiment": "panm-digit"}, "Did you mean 'panm-digits'"),
     ({"experiment": "../../etc/x.toml"}, "is not below"),
     ({"experiment": "nowhere.toml"}, "There is no file"),
     ({"experiment": "panm-digits", "words": "--out=/x"}, "is not key=value"),
     ({"experiment": "panm-digits", "words": "rounds 3"}, "is not key=value"),
     ({"experiment": "panm-digits", "words": "a='"}, "cannot be read"),
     ({"experiment": "panm-digits", "words": "a=" + "x" * 3000}, "longer than"),
     ({"experiment": "panm-digits", "words": "a=" + "x" * 30000}, "too long"),
     ({"experiment": 3}, "must be text"),
     ([], "must be a JSON object")],
)  # fmt: skip
def test_what_cannot_be_started_is_refused_with_a_reason(tmp_path: Path, given: Any, said: str) -> None:
    answer = client(tmp_path, control=True).post("/api/start", json=given, headers={"origin": HERE})
    assert answer.status_code == 400
    assert said in answer.json()["error"]
    assert not list(tmp_path.iterdir())


def test_only_runs_that_it_started_can_be_stopped(tmp_path: Path) -> None:
    make_run(tmp_path / "a")
    for what in ("pause", "resume", "stop"):
        answer = client(tmp_path, control=True).post(f"/api/{what}", json={"run": "a"}, headers={"origin": HERE})
        assert answer.status_code == 400
        assert "was not started by this dashboard" in answer.json()["error"]


@pytest.mark.parametrize(
    "path",
    ["/assets/../server.py", "/assets/..%2fserver.py", "/assets/%2e%2e/server.py", "/assets//etc/passwd",
     "/report?run=../secret", "/report?run=%2e%2e%2fsecret", "/report?run=/etc", "/api/peer?run=../secret&peer=0"],
)  # fmt: skip
def test_no_way_leads_out_of_the_folder(tmp_path: Path, path: str) -> None:
    make_run(tmp_path / "secret")
    (tmp_path / "secret/report.html").write_text("secret", encoding="utf-8")
    (tmp_path / "runs").mkdir()
    answer = client(tmp_path / "runs").get(path)
    assert answer.status_code == 404
    assert "secret" not in answer.text


def test_a_report_is_sandboxed_from_the_dashboard(tmp_path: Path) -> None:
    make_run(tmp_path / "a")
    (tmp_path / "a/report.html").write_text("<p>hello", encoding="utf-8")
    answer = client(tmp_path).get("/report?run=a")
    assert answer.text == "<p>hello"
    assert answer.headers["content-security-policy"].startswith("sandbox allow-scripts")
    assert "same-origin" not in answer.headers["content-security-policy"]


def test_one_peer(tmp_path: Path) -> None:
    log = make_run(tmp_path / "a", peers=2)
    write_round(log, 1, [0.25, 0.5])
    write_round(log, 2, [0.75, 0.5])
    asked = client(tmp_path)
    assert asked.get("/api/peer?run=a&peer=0").json() == {
        "curves": {"accuracy": [[1, 0.25], [2, 0.75]]},
        "left": None,
    }
    assert asked.get("/api/peer?run=a&peer=-1").status_code == 404
    assert asked.get("/api/peer?run=a&peer=9999999").status_code == 404


# -- the stream --------------------------------------------------------------------------------


async def next_of(stream: AsyncIterator[bytes], kind: str) -> dict[str, Any]:
    async for message in stream:
        if message.startswith(f"event: {kind}\n".encode()):
            told: dict[str, Any] = json.loads(message.split(b"data: ", 1)[1])
            return told
    raise AssertionError("the stream ended")


def test_a_stream_tells_of_rounds_as_they_come(tmp_path: Path) -> None:
    async def follow() -> None:
        log = make_run(tmp_path / "a", peers=2)
        stream = RunWatcher(tmp_path).stream("a")
        assert list((await next_of(stream, "runs"))["set"]["runs"]) == ["a"]
        first = await next_of(stream, "run")
        assert first["anew"]
        assert first["set"]["figures"]["it"]["round"] == 0
        write_round(log, 1, [0.5, 0.7])
        second = await next_of(stream, "run")
        assert second["set"]["points"]["0"]["validation"] == pytest.approx(0.6)
        assert second["set"]["figures"]["it"]["bytes"] == 200
        assert "about" not in second["set"], "what did not change is not told again"

    asyncio.run(asyncio.wait_for(follow(), 20))


def test_a_run_that_appears_later_and_one_that_vanishes(tmp_path: Path) -> None:
    async def follow() -> None:
        stream = RunWatcher(tmp_path).stream("late")
        assert await next_of(stream, "missing") == {"run": "late"}
        log = make_run(tmp_path / "late")
        write_round(log, 1, [0.5, 0.5])
        assert list((await next_of(stream, "runs"))["set"]["runs"]) == ["late"]
        assert (await next_of(stream, "run"))["set"]["figures"]["it"]["round"] == 1
        log.close()
        (tmp_path / "late").rename(tmp_path / ".away")
        assert (await next_of(stream, "runs"))["set"]["runs"] == {"late": None}

    asyncio.run(asyncio.wait_for(follow(), 20))


def test_a_damaged_file_is_reported_and_the_rest_shown(tmp_path: Path) -> None:
    async def follow() -> None:
        log = make_run(tmp_path / "a")
        write_round(log, 1, [0.5, 0.5])
        with log.path.open("ab") as file:
            file.write(b'\x00\xff damaged {"\n{"peer": 0, "rou')
        told = (await next_of(RunWatcher(tmp_path).stream("a"), "run"))["set"]
        assert told["figures"]["it"]["round"] == 1
        assert [e["text"] for e in told["errors"]["it"]] == ["events.jsonl: line 4 is damaged and was skipped."]

    asyncio.run(asyncio.wait_for(follow(), 20))


def test_a_stream_ends_when_the_server_stops(tmp_path: Path) -> None:
    async def follow() -> None:
        watcher = RunWatcher(tmp_path)
        stream = watcher.stream("")
        await anext(stream)
        watcher.stopping = True
        assert [message async for message in stream] == []

    asyncio.run(asyncio.wait_for(follow(), 5))


# -- the command -------------------------------------------------------------------------------


def test_bad_arguments_give_a_one_line_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["dashboard", str(tmp_path / "nowhere")]) == 2
    assert "there is no folder" in capsys.readouterr().err
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert main.main(["dashboard", str(tmp_path), "--port", str(taken.getsockname()[1])]) == 2
    assert "choose another --port" in capsys.readouterr().err
    assert main.main(["dashboard", str(tmp_path), "--port", "99999"]) == 2


def test_it_ends_at_once_even_with_pages_that_do_not_read(tmp_path: Path) -> None:
    log = make_run(tmp_path / "a", peers=2)
    write_round(log, 1, [0.5, 0.5])
    with serving(tmp_path) as served:
        place = urlsplit(served.url)
        pages = []
        for _ in range(3):
            page = socket.create_connection((place.hostname, place.port))
            page.sendall(f"GET /api/stream?run=a HTTP/1.1\r\nHost: {place.netloc}\r\n\r\n".encode())
            pages.append(page)
        assert b"200 OK" in pages[0].recv(1000)  # the others are never read
        served.process.send_signal(signal.SIGINT)
        assert served.process.wait(10) == 0
        assert served.process.stdout is not None
        assert "Traceback" not in served.process.stdout.read()
        for page in pages:
            page.close()


@pytest.mark.parametrize("words", [("--control",), ("--host", "0.0.0.0")])
def test_a_token_is_needed_beyond_the_loopback(tmp_path: Path, words: tuple[str, ...]) -> None:
    with serving(tmp_path, *words) as served:
        assert len(served.url.partition("?token=")[2]) >= 32
