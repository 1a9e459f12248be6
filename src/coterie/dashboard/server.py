"""The dashboard's HTTP server: the page and its assets, the stream of changes, and the control requests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib import resources
from pathlib import Path

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from coterie.core.json_values import Json, parsed
from coterie.dashboard.control import Control, ControlError, presets
from coterie.dashboard.guard import Guard
from coterie.dashboard.watch import RunWatcher

TYPES = {".js": "text/javascript", ".css": "text/css", ".html": "text/html", ".svg": "image/svg+xml"}
LONGEST_BODY = 10_000  # bytes
# A report may run its own script, but sandboxed from the dashboard.
REPORT_POLICY = (
    "sandbox allow-scripts allow-downloads; default-src 'none'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; img-src data: blob:"
)


def assets(control: bool) -> dict[str, tuple[bytes, str]]:
    """Every file of the page by name, with its media type. Nothing else is served by name."""
    files: dict[str, tuple[bytes, str]] = {}
    marks = resources.files("coterie.report") / "marks.css"  # the same colours and marks as in the reports
    for entry in (marks, *(resources.files("coterie.dashboard") / "assets").iterdir()):
        suffix = Path(entry.name).suffix
        if suffix in TYPES:
            files[entry.name] = entry.read_bytes(), TYPES[suffix]
    page = files["index.html"][0].replace(
        b'data-control="no"', b'data-control="yes"' if control else b'data-control="no"'
    )
    files["index.html"] = page, TYPES[".html"]
    return files


class Dashboard:
    """One folder of runs, watched and (if allowed) controlled."""

    def __init__(self, top: Path, control: bool) -> None:
        self.watcher = RunWatcher(top)
        self.control = Control(top) if control else None
        self.watcher.more_rows = self.control.rows if self.control else None
        self.files = assets(control)

    def app(self, *, host: str, port: int, token: str | None, names: tuple[str, ...] = ()) -> Starlette:
        routes = [
            Route("/", self._page),
            Route("/assets/{name}", self._asset),
            Route("/api/stream", self._stream),
            Route("/api/runs", self._runs),
            Route("/api/peer", self._peer),
            Route("/api/presets", self._presets),
            Route("/report", self._report),
            Route("/api/start", self._action(self._start), methods=["POST"]),
            Route("/api/pause", self._action(lambda c, given: c.pause(_text(given, "run"))), methods=["POST"]),
            Route("/api/resume", self._action(lambda c, given: c.resume(_text(given, "run"))), methods=["POST"]),
            Route("/api/stop", self._action(lambda c, given: c.stop(_text(given, "run"))), methods=["POST"]),
        ]
        guard = Middleware(Guard, host=host, port=port, token=token, names=names)
        return Starlette(routes=routes, middleware=[guard])

    async def _page(self, _: Request) -> Response:
        return self._file("index.html")

    async def _asset(self, request: Request) -> Response:
        return self._file(request.path_params["name"])

    def _file(self, name: str) -> Response:
        if name not in self.files:
            return PlainTextResponse("There is no such file.\n", status_code=404)
        content, kind = self.files[name]
        return Response(content, media_type=kind, headers={"Cache-Control": "no-cache"})

    async def _stream(self, request: Request) -> Response:
        events = self.watcher.stream(request.query_params.get("run", ""))
        return StreamingResponse(events, media_type="text/event-stream")

    async def _runs(self, _: Request) -> Response:
        return JSONResponse((await self.watcher.list()).after(0)["set"].get("runs", {}))

    async def _peer(self, request: Request) -> Response:
        """One peer: its curves and the artifacts it sent."""
        await self.watcher.list()
        watched = await self.watcher.view(request.query_params.get("run", ""))
        number = request.query_params.get("peer", "")
        if watched is None or not number.isdecimal() or len(number) > 6:
            return _no("There is no such run or peer.", 404)
        view = watched.view
        left = [m.leaving.as_json() for n, m in view.real.by_number() if n == int(number)] if view.real else []
        return JSONResponse({"curves": view.history.curves(int(number)), "left": left[0] if left else None})

    async def _presets(self, _: Request) -> Response:
        return JSONResponse(presets())

    async def _report(self, request: Request) -> Response:
        await self.watcher.list()
        run = self.watcher.runs.get(request.query_params.get("run", ""))
        if run is None or not run.files.report.is_file():
            return _no("There is no such report.", 404)
        return FileResponse(run.files.report, headers={"Content-Security-Policy": REPORT_POLICY})

    # -- control -------------------------------------------------------------------------------

    @staticmethod
    def _start(control: Control, given: Json) -> str:
        return control.start(_text(given, "experiment"), _text(given, "words"))

    def _action(self, do: Callable[[Control, Json], str | None]) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            if self.control is None:
                return _no("The dashboard is read-only. Start it with --control to start and stop runs.", 403)
            try:
                given = parsed(await _body(request))
                if not isinstance(given, dict):
                    raise ControlError("The request must be a JSON object.")
                id = do(self.control, given)
            except ControlError as error:
                return _no(str(error), 400)
            except ValueError:
                return _no("The request must be JSON.", 400)
            await self.watcher.list(at_once=True)
            return JSONResponse({"run": id})

        return answer


async def _body(request: Request) -> bytes:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > LONGEST_BODY:
            raise ControlError("The request is too long.")
    return body


def _text(given: Json, key: str) -> str:
    value = given.get(key, "")
    if not isinstance(value, str):
        raise ControlError(f"{key} must be text.")
    return value


def _no(text: str, status: int) -> Response:
    return JSONResponse({"error": text}, status_code=status)
