"""Authentication and authorization: who may ask, and for whom."""

import hmac
import re
import secrets
import time
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

import jwt
from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.types import Scope

from kemem.errors import InvalidArgument, NotFound, PermissionDenied, Unauthenticated
from kemem.serve.http.errors import NOT_FOUND
from kemem.settings import Settings

OPEN_PATHS = frozenset(["/healthz", "/readyz", "/docs", "/openapi.json"])  # they show no data

SESSION_COOKIE = "kemem_session"  # honoured for the dashboard only, never for the API
SESSION_SECONDS = 12 * 3600

_ALGORITHM = "HS256"
_DASHBOARD = re.compile(r"/|/dashboard(/.*)?", re.DOTALL)
_OPEN_PAGES = re.compile(r"/dashboard/(login|static/.*)", re.DOTALL)  # they show no data
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^\s:\[\]@/]+))(?::\d+)?", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks: the one user a token is bound to, or without one an operator."""

    user_id: str | None = None
    sensitive: bool = False  # granted by the token: sensitive memories are visible

    def check_users(self, *user_ids: object) -> None:
        """Let a bound caller through only where every user that is named is their own."""
        if self.user_id is None:
            return
        users = [user_id for user_id in user_ids if user_id is not None]
        if not users:
            raise PermissionDenied("this token requires its own user_id in the request")
        if any(user != self.user_id for user in users):
            raise NotFound(NOT_FOUND)

    def check_operator(self) -> None:
        """Let nobody through who is bound to a user."""
        if self.user_id is not None:
            reason = "this route is for operators: it needs the API key, not the token of a user"
            raise PermissionDenied(reason)

    def grant(self, sensitive: bool) -> bool:
        """Whether sensitive memories are shown: if the request asks and the token grants it."""
        if sensitive and self.user_id is not None and not self.sensitive:
            reason = 'this token lacks the claim "sensitive": true, which grants sensitive memories'
            raise PermissionDenied(reason)
        return sensitive


class Authenticator:
    """Checks the credentials that the settings demand of every request."""

    def __init__(self, settings: Settings) -> None:
        key, secret = settings.api_key, settings.jwt_secret
        self._key = key.get_secret_value().encode() if key else None
        self._secret = secret.get_secret_value() if secret else None
        self.has_key = self._key is not None  # its bearer is an operator
        self.issues_tokens = self._secret is not None  # each bound to a user
        self.requires_credentials = self.has_key or self.issues_tokens  # or only this machine asks
        root = self._key or secrets.token_bytes(32)
        self._session_key = hmac.digest(root, b"kemem dashboard session", "sha256")
        self._form_key = hmac.digest(root, b"kemem dashboard form", "sha256")

    def check_host(self, host: str) -> None:
        """Refuse an address that other machines can reach while no credential is required."""
        if not self.requires_credentials and not is_loopback(host):
            reason = f"host {host!r:.80} can be reached from other machines: set KEMEM_API_KEY "
            reason += "or KEMEM_JWT_SECRET, or listen on 127.0.0.1"
            raise InvalidArgument(reason, field="host")

    def authenticate(self, path: str, scheme: str, headers: Headers) -> Caller:
        """The caller of a request, if its credential is right."""
        if not self.requires_credentials:
            _check_local(scheme, headers)
            return Caller()
        if path in OPEN_PATHS or _OPEN_PAGES.fullmatch(path):
            return Caller()
        if "authorization" not in headers and _DASHBOARD.fullmatch(path):
            if self.is_signed_in(headers):
                return Caller()
            raise Unauthenticated("sign in with the API key of this server")
        kind, _, token = headers.get("authorization", "").partition(" ")
        # mem0's client says Token. The credential decides, not its scheme: both are checked alike.
        if kind.lower() not in ("bearer", "token"):
            raise Unauthenticated("this server needs the header 'Authorization: Bearer <key>'")
        sent = token.strip().encode("latin-1")  # the bytes of the header as they came
        if self._key is not None and hmac.compare_digest(sent, self._key):
            return Caller()
        if self._secret is None:
            raise Unauthenticated("invalid API key")
        claims = _claims(sent, self._secret, "sub")
        if claims is None:
            either = "neither the API key nor a valid token" if self.has_key else "no valid token"
            raise Unauthenticated(f"the credential is {either}; a token may have expired")
        return Caller(claims["sub"], sensitive=claims.get("sensitive") is True)

    def issue_token(self, user_id: str, seconds: int, *, sensitive: bool = False) -> str:
        """A token that is bound to a user, for a while."""
        if self._secret is None:
            raise InvalidArgument("tokens of users require KEMEM_JWT_SECRET")
        claims = {"sub": user_id, "exp": int(time.time()) + seconds}
        claims |= {"sensitive": True} if sensitive else {}
        return jwt.encode(claims, self._secret, algorithm=_ALGORITHM)

    def sign_in(self, key: str) -> str:
        """The session of an operator, if the key is right; it ends by itself, or with the key."""
        if self._key is None or not hmac.compare_digest(key.encode(), self._key):
            raise Unauthenticated("invalid API key")
        claims = {"exp": int(time.time()) + SESSION_SECONDS, "jti": secrets.token_urlsafe(12)}
        return jwt.encode(claims, self._session_key, algorithm=_ALGORITHM)

    def form_token(self, browser: str) -> str:
        """The CSRF token that the forms of one browser must carry."""
        return hmac.digest(self._form_key, browser.encode(), "sha256").hex()

    def is_signed_in(self, headers: Headers) -> bool:
        """Whether a browser holds a session that has not ended."""
        session = cookie_parser(headers.get("cookie", "")).get(SESSION_COOKIE, "").encode()
        return _claims(session, self._session_key, "exp") is not None


def is_loopback(host: str) -> bool:
    """Whether a name or address means this very machine.  "127.0.0.1" -> True"""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def is_page_view(scope: Scope) -> bool:
    """Whether somebody opens a page of the dashboard in a browser."""
    accept, page = Headers(scope=scope).get("accept", ""), _DASHBOARD.fullmatch(scope["path"])
    return scope["method"] == "GET" and "text/html" in accept and page is not None


def _check_local(scheme: str, headers: Headers) -> None:
    """Refuse what a web page of another site makes a local browser send."""
    host = headers.get("host", "")
    match = _HOST.fullmatch(host)
    if not match or not is_loopback(match[1] or match[2]):
        reason = f"without a key this server answers to localhost only, not to {host!r:.80}"
        raise PermissionDenied(reason)
    origin = headers.get("origin")
    if origin is not None and origin.lower() != f"{scheme}://{host}".lower():
        raise PermissionDenied(f"requests from the site {origin!r:.80} are not allowed")


def _claims(token: bytes, key: str | bytes, required: str) -> dict[str, Any] | None:
    """The claims of a token; None if it is invalid or has expired."""
    try:
        return jwt.decode(token, key, algorithms=[_ALGORITHM], options={"require": [required]})
    except (jwt.InvalidTokenError, ValueError, RecursionError):
        return None
