"""Trust: who may ask, and for whom."""

import hmac
import re
import secrets
import time
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any
from urllib.parse import quote

import jwt
from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from kemem.errors import InvalidArgument, NotFound, PermissionDenied, Unauthenticated
from kemem.settings import Settings

OPEN_PATHS = frozenset(["/healthz", "/readyz"])
NOTHING_HERE = "nothing is here"  # the same words for what is missing and for what is another's

SESSION_COOKIE = "kemem_session"  # honoured for the dashboard only, never for the API
SESSION_SECONDS = 12 * 3600

_ALGORITHM = "HS256"
_DASHBOARD = re.compile(r"/|/dashboard(/.*)?", re.DOTALL)
_OPEN_PAGES = re.compile(r"/dashboard/(login|static/.*)", re.DOTALL)  # they tell nothing
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^\s:\[\]@/]+))(?::\d+)?", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks: the one user a token is bound to, or without one an operator."""

    user_id: str | None = None
    sensitive: bool = False  # granted by the token: a recall may see what is sensitive

    def check_reach(self, *named: object) -> None:
        """Let a bound caller through only where every user that is named is their own."""
        if self.user_id is None:
            return
        users = [user for user in named if user is not None]
        if not users:
            raise PermissionDenied("this token reaches only requests that name its own user_id")
        if any(user != self.user_id for user in users):
            raise NotFound(NOTHING_HERE)

    def grant(self, wanted: bool) -> bool:
        """Whether sensitive memories may be seen, if that is asked for."""
        if wanted and self.user_id is not None and not self.sensitive:
            raise PermissionDenied(
                'this token does not grant sensitive memories, it lacks the claim "sensitive": true'
            )
        return wanted


class Trust:
    """What the settings demand of every request."""

    def __init__(self, settings: Settings) -> None:
        key, secret = settings.api_key, settings.jwt_secret
        self._key = key.get_secret_value().encode() if key else None
        self._secret = secret.get_secret_value() if secret else None
        root = self._key or secrets.token_bytes(32)
        self._session_key = hmac.digest(root, b"kemem dashboard session", "sha256")
        self._form_key = hmac.digest(root, b"kemem dashboard form", "sha256")

    @property
    def takes_key(self) -> bool:
        """Whether there is a key that makes its bearer an operator."""
        return self._key is not None

    @property
    def asks_for_credentials(self) -> bool:
        """Whether strangers are told from friends; if not, only this machine may ask."""
        return self._key is not None or self._secret is not None

    def check_host(self, host: str) -> None:
        """Refuse an address that strangers can reach while nothing tells them from friends."""
        if not self.asks_for_credentials and not is_loopback(host):
            raise InvalidArgument(
                f"host {host!r:.80} can be reached from other machines: set KEMEM_API_KEY or "
                "KEMEM_JWT_SECRET, or listen on 127.0.0.1",
                field="host",
            )

    def admit(self, path: str, scheme: str, headers: Headers) -> Caller:
        """Whoever sends this request, if they may."""
        if not self.asks_for_credentials:
            _check_local(scheme, headers)
            return Caller()
        if path in OPEN_PATHS or _OPEN_PAGES.fullmatch(path):
            return Caller()
        if "authorization" not in headers and _DASHBOARD.fullmatch(path):
            if self.is_signed_in(headers):
                return Caller()
            raise Unauthenticated("sign in with the key of this server")
        kind, _, token = headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer":
            raise Unauthenticated("this server needs the header 'Authorization: Bearer <key>'")
        sent = token.strip().encode("latin-1")  # the bytes of the header as they came
        if self._key is not None and hmac.compare_digest(sent, self._key):
            return Caller()
        if self._secret is not None:
            return _bound(sent, self._secret)
        raise Unauthenticated("the key is not the one of this server")

    @property
    def mints(self) -> bool:
        """Whether tokens can be made that are bound to a user."""
        return self._secret is not None

    def mint(self, user_id: str, seconds: int, *, sensitive: bool = False) -> str:
        """A token that is bound to a user, for a while."""
        if self._secret is None:
            raise InvalidArgument("set KEMEM_JWT_SECRET: without it there are no tokens of users")
        claims = {"sub": user_id, "exp": int(time.time()) + seconds}
        claims |= {"sensitive": True} if sensitive else {}
        return jwt.encode(claims, self._secret, algorithm=_ALGORITHM)

    def sign_in(self, key: str) -> str:
        """The session of an operator, if the key is right; it ends by itself, or with the key."""
        if self._key is None or not hmac.compare_digest(key.encode(), self._key):
            raise Unauthenticated("the key is not the one of this server")
        claims = {"exp": int(time.time()) + SESSION_SECONDS, "jti": secrets.token_urlsafe(12)}
        return jwt.encode(claims, self._session_key, algorithm=_ALGORITHM)

    def form_token(self, seat: str) -> str:
        """What the forms of one browser must carry."""
        return hmac.digest(self._form_key, seat.encode(), "sha256").hex()

    def is_signed_in(self, headers: Headers) -> bool:
        """Whether a browser holds a session that has not ended."""
        session = cookie_parser(headers.get("cookie", "")).get(SESSION_COOKIE, "").encode()
        needed: Any = {"require": ["exp"]}
        try:
            jwt.decode(session, self._session_key, algorithms=[_ALGORITHM], options=needed)
        except (jwt.InvalidTokenError, ValueError, RecursionError):
            return False
        return True


class Guard:
    """Asks `Trust` before anything else sees a request, and notes who the caller is."""

    def __init__(self, app: ASGIApp, trust: Trust) -> None:
        self._app = app
        self._trust = trust

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            try:
                caller = self._trust.admit(scope["path"], scope["scheme"], headers)
            except Unauthenticated:
                if not _is_visit(scope, headers):
                    raise
                await RedirectResponse(_sign_in_address(scope), 303)(scope, receive, send)
                return
            scope.setdefault("state", {})["caller"] = caller
        await self._app(scope, receive, send)


def is_loopback(host: str) -> bool:
    """Whether a name or address means this very machine.  "127.0.0.1" -> True"""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _is_visit(scope: Scope, headers: Headers) -> bool:
    """Whether somebody opens a page of the dashboard in a browser."""
    return (
        scope["method"] == "GET"
        and "text/html" in headers.get("accept", "")
        and _DASHBOARD.fullmatch(scope["path"]) is not None
    )


def _sign_in_address(scope: Scope) -> str:
    query = scope["query_string"].decode("latin-1")
    wanted = scope["path"] + (f"?{query}" if query else "")
    return f"/dashboard/login?to={quote(wanted)}"


def _check_local(scheme: str, headers: Headers) -> None:
    """Refuse what a web page of another site makes a local browser send."""
    host = headers.get("host", "")
    match = _HOST.fullmatch(host)
    if not match or not is_loopback(match[1] or match[2]):
        raise PermissionDenied(
            f"without a key this server answers to localhost only, not to {host!r:.80}"
        )
    origin = headers.get("origin")
    if origin is not None and origin.lower() != f"{scheme}://{host}".lower():
        raise PermissionDenied(f"requests from the site {origin!r:.80} are not allowed")


def _bound(token: bytes, secret: str) -> Caller:
    try:
        claims = jwt.decode(token, secret, algorithms=[_ALGORITHM], options={"require": ["sub"]})
    except (jwt.InvalidTokenError, ValueError, RecursionError):
        raise Unauthenticated("the token is not valid, or no longer") from None
    return Caller(claims["sub"], sensitive=claims.get("sensitive") is True)
