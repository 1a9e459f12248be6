"""Access control for the dashboard: the host name, the token where one is needed, and the origin of requests.

- An unknown name in the Host header is refused. Otherwise a foreign site could point its own name at this machine (DNS
  rebinding), and its page would count as the same site.
- The token comes once in the URL, then as a cookie that other sites' pages cannot send.
- Requests that change something must come from the dashboard's own page, by their Origin.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import socket
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from coterie.core.errors import CoterieError

LOOPBACK = ("127.0.0.1", "localhost", "::1")
SHORTEST_TOKEN = 16  # characters
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def is_loopback(host: str) -> bool:
    return host in LOOPBACK or (_is_address(host) and ipaddress.ip_address(host).is_loopback)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def token_from(file: Path | None) -> str:
    """The token in a file, or a new random one."""
    if file is None:
        return secrets.token_urlsafe(24)
    try:
        token = file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CoterieError(f"--token-file {file} cannot be read: {error}") from error
    if len(token) < SHORTEST_TOKEN or not all(c.isalnum() or c in "-_" for c in token):
        raise CoterieError(
            f"--token-file {file} must contain one token of at least {SHORTEST_TOKEN} letters, digits, '-' and '_'"
        )
    return token


class Guard:
    """Middleware that checks every request before the dashboard handles it."""

    def __init__(self, app: ASGIApp, *, host: str, port: int, token: str | None, names: Sequence[str] = ()) -> None:
        self.app, self.token = app, token
        self.any_address = host in ("0.0.0.0", "::")
        self.names = {*LOOPBACK, host, *names} | ({socket.gethostname().lower()} if self.any_address else set())
        self.cookie = f"coterie-{port}"  # cookies are shared between the ports of a machine

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        answer = self._answer(Request(scope))
        await (answer or self.app)(scope, receive, with_headers)

    def _answer(self, request: Request) -> Response | None:
        """A refusal or redirect; None if the request may pass."""
        host = request.headers.get("host", "")
        if not self._is_ours(host):
            return _refused(
                403, f"'{host[:100]}' is not a host name of this dashboard. Start it with --allow-host to add the name."
            )
        if request.method not in ("GET", "HEAD") and not _same_site(request, host):
            return _refused(403, "This request did not come from the dashboard's own page.")
        if self.token is None:
            return None
        given = request.query_params.get("token")
        if given is not None and self._is_token(given):
            return self._signed_in(request)
        if self._is_token(request.cookies.get(self.cookie, "")):
            return None
        return _refused(401, "A token is needed: open the URL that `coterie dashboard` printed, including ?token=.")

    def _is_token(self, given: str) -> bool:
        assert self.token is not None
        return hmac.compare_digest(given.encode("utf-8", "replace"), self.token.encode())

    def _signed_in(self, request: Request) -> Response:
        """Set the cookie and redirect to the URL without the token: URLs show on screens and stay in histories."""
        assert self.token is not None
        rest = urlencode([(k, v) for k, v in parse_qsl(request.url.query) if k != "token"])
        answer = RedirectResponse(f"{request.url.path}{'?' + rest if rest else ''}", status_code=303)
        answer.set_cookie(self.cookie, self.token, httponly=True, samesite="strict", path="/")
        return answer

    def _is_ours(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        return name in self.names or (self.any_address and _is_address(name))


def _same_site(request: Request, host: str) -> bool:
    origin = request.headers.get("origin", "")
    site = request.headers.get("sec-fetch-site", "same-origin")
    return urlsplit(origin).netloc == host and bool(host) and site == "same-origin"


def _refused(status: int, text: str) -> Response:
    return PlainTextResponse(text + "\n", status_code=status)
