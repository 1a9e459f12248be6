"""The downloader and the package clients themselves, against local servers and commands."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import numpy as np
import pytest

import coterie.data as data
from coterie.core.errors import DataError
from coterie.data.fetching import download, run_client


class Handler(BaseHTTPRequestHandler):
    """Serves 1000 bytes at /whole, promises more than it sends at /short, and nothing else."""

    def do_GET(self) -> None:
        if self.path == "/missing":
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", "1000" if self.path == "/whole" else "2000")
        self.end_headers()
        self.wfile.write(b"x" * 1000)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{listening.server_port}"
        listening.shutdown()
        thread.join()


def test_download_reports_progress(server: str, tmp_path: Path) -> None:
    told: list[tuple[int, int | None, str]] = []
    download(f"{server}/whole", tmp_path / "file", lambda *report: told.append(report))
    assert (tmp_path / "file").read_bytes() == b"x" * 1000
    assert told[-1] == (1000, 1000, "whole")


@pytest.mark.parametrize("page", ["short", "missing"])
def test_failed_downloads_name_the_address(server: str, tmp_path: Path, page: str) -> None:
    with pytest.raises(DataError, match=f"{server}/{page}"):
        download(f"{server}/{page}", tmp_path / "file", lambda *_: None)


def test_nobody_listening_is_a_data_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be reached"):
        download("http://127.0.0.1:9/file", tmp_path / "file", lambda *_: None)


def test_clients_that_fail_or_are_missing(tmp_path: Path) -> None:
    run_client(["true"], tmp_path)
    with pytest.raises(DataError, match="no-such-client is not installed"):
        run_client(["no-such-client"], tmp_path)
    with pytest.raises(DataError, match=r"`sh -c .*` failed: second"):
        run_client(["sh", "-c", "echo first >&2; echo second >&2; exit 3"], tmp_path)


@pytest.mark.slow
def test_fashion_mnist_can_be_fetched_for_real(tmp_path: Path) -> None:
    data.fetch("fashion-mnist", tmp_path)
    pool = data.load("fashion-mnist", home=tmp_path)
    assert pool.x.shape == (70_000, 1, 28, 28)
    assert np.bincount(pool.y).tolist() == [7_000] * 10
