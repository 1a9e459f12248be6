"""`coterie dashboard [DIR]`: serve the live page until Ctrl-C."""

from __future__ import annotations

import argparse
import socket
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from coterie.core.errors import CoterieError

if TYPE_CHECKING:
    from coterie.dashboard.server import Dashboard

PORT = 8750
MOST_CONNECTIONS = 200


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    dashboard = commands.add_parser(
        "dashboard",
        help="serve a live page of running simulations and real peers",
        description="Serve a web page with the live status of the runs in a folder. It is read-only unless --control "
        "lets it start, pause, resume and stop its own runs.",
    )
    dashboard.add_argument(
        "folder", nargs="?", type=Path, default=Path("runs"), metavar="DIR", help="folder with runs; default: runs"
    )
    dashboard.add_argument(
        "--host", default="127.0.0.1", help="address to listen on; any address except loopback requires a token"
    )
    dashboard.add_argument(
        "--port", type=int, default=PORT, help=f"port to listen on; 0: any free port; default: {PORT}"
    )
    dashboard.add_argument("--control", action="store_true", help="let the page start and stop runs; requires a token")
    dashboard.add_argument("--token-file", type=Path, help="file with the token; default: a new token, printed once")
    dashboard.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="another host name of this machine; repeatable",
    )
    dashboard.set_defaults(command=_dashboard)


def _dashboard(options: argparse.Namespace) -> int:
    from coterie.dashboard.guard import is_loopback, token_from
    from coterie.dashboard.server import Dashboard

    top: Path = options.folder
    if not top.is_dir():
        if top.exists() or not options.control:
            raise CoterieError(f"there is no folder {top}: give the folder with your runs, such as runs")
        top.mkdir(parents=True)
    needs_token = options.control or options.token_file or not is_loopback(options.host)
    token = token_from(options.token_file) if needs_token else None
    listening = _listen(options.host, options.port)
    port = listening.getsockname()[1]
    dashboard = Dashboard(top.resolve(), options.control)
    host = f"[{options.host}]" if ":" in options.host else options.host
    shown = "" if token is None else f"?token={token}" if options.token_file is None else "?token=..."
    print(f"the dashboard of {top} is at http://{host}:{port}/{shown}", flush=True)
    print(_what_it_may_do(options.control), flush=True)
    _serve(dashboard, listening, options.host, port, token, tuple(name.lower() for name in options.allow_host))
    return 0


def _what_it_may_do(control: bool) -> str:
    if control:
        return "anyone with this address can start and stop runs, and so run code as you; Ctrl-C stops the dashboard"
    return "read-only (--control lets it start and stop runs); Ctrl-C stops it"


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(128)  # connections that arrive before the server is up wait in this queue
    except (OSError, OverflowError) as error:
        listening.close()
        reason = getattr(error, "strerror", None) or error
        raise CoterieError(f"cannot listen on {host}:{port} ({reason}): choose another --port or --host") from error
    return listening


def _serve(
    dashboard: Dashboard, listening: socket.socket, host: str, port: int, token: str | None, names: tuple[str, ...]
) -> None:
    import logging

    import uvicorn

    class Server(uvicorn.Server):
        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            dashboard.watcher.stopping = True  # the event streams then end by themselves
            logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # no log line for each idle page
            super().handle_exit(sig, frame)

    app = dashboard.app(host=host, port=port, token=token, names=names)
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, proxy_headers=False, lifespan="off",
        timeout_graceful_shutdown=1, limit_concurrency=MOST_CONNECTIONS,
    )  # fmt: skip
    try:
        Server(config).run(sockets=[listening])
    except KeyboardInterrupt:
        print("the dashboard has stopped; runs that it started continue")
