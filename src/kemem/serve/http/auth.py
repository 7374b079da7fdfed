"""Authentication and authorization: who may ask, and for whom."""

import hmac
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Container
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from ipaddress import ip_address
from typing import Any

import jwt
import structlog
from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.types import Scope

from kemem.errors import InvalidArgument, NotFound, PermissionDenied, Unauthenticated
from kemem.keys import AsyncKeys
from kemem.records.keys import ApiKey
from kemem.runtime import system_clock
from kemem.serve.http.errors import NOT_FOUND, READ_ONLY
from kemem.settings import Settings, split_origins

OPEN_PATHS = frozenset(["/healthz", "/readyz", "/docs", "/openapi.json"])  # they show no data

SESSION_COOKIE = "kemem_session"  # honoured for the dashboard only, never for the API
SESSION_SECONDS = 12 * 3600

# Every request that is no GET writes, but for these.
READING_POSTS = frozenset(
    [
        *("/v1/memories/search", "/v1/recall"),
        *(f"/v1/messages/{mode}_search" for mode in ("lexical", "semantic", "hybrid")),
        *("/search", "/v2/memories/", "/v2/memories/search/"),  # of mem0's API, as those of /v3
        *("/v3/memories/", "/v3/memories/search/"),
        *("/dashboard/login", "/dashboard/logout"),
        *("/mcp", "/rpc"),  # by their tools and methods
    ]
)
SETTINGS_KEY = "KEMEM_API_KEY"  # the id of the key in the settings
_MOST_KNOWN = 10_000  # credentials
_ALGORITHM = "HS256"
_DASHBOARD = re.compile(r"/|/dashboard(/.*)?", re.DOTALL)
_OPEN_PAGES = re.compile(r"/dashboard/(login|static/.*)", re.DOTALL)  # they show no data
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^\s:\[\]@/]+))(?::\d+)?", re.ASCII | re.IGNORECASE)


log = structlog.get_logger("kemem")


class WrongCredential(Unauthenticated):
    """A credential that may have been guessed."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks: an operator, a service for all users or those of an agent, or one user."""

    user_id: str | None = None  # the one user that is reached
    sensitive: bool = False  # granted by the credential: sensitive memories are visible to a user
    agent_id: str | None = None  # the one agent that is reached
    is_service: bool = False  # reaches memories, and nothing that is for operators
    read_only: bool = False
    key_id: str | None = None  # of the API key; None for a token, or where none is required
    project: str | None = None  # the one project that is reached; None: the default memory

    @classmethod
    def of_key(cls, key: ApiKey) -> "Caller":
        """The caller that an API key stands for."""
        is_service = key.role == "service"
        return cls(
            *(key.user_id, key.sensitive, key.agent_id, is_service, key.read_only, key.key_id),
            project=key.project,
        )

    @property
    def name(self) -> str | None:
        """What requests of the same credential have in common; None where none is required."""
        if self.key_id is not None or self.user_id is None:
            return self.key_id
        return f"token of {self.user_id} in {self.project or 'no project'}"

    @property
    def is_operator(self) -> bool:
        """Whether the caller may do everything, or read it."""
        return self.user_id is None and not self.is_service

    def check_users(self, *user_ids: object) -> None:
        """Let a caller who is bound to a user through only where no other user is named."""
        if self.user_id is not None and any(it not in (None, self.user_id) for it in user_ids):
            raise NotFound(NOT_FOUND)

    def check_agents(self, *agent_ids: object) -> None:
        """Let a caller who is bound to an agent through only where no other agent is named."""
        if self.agent_id is not None and any(it not in (None, self.agent_id) for it in agent_ids):
            raise NotFound(NOT_FOUND)

    def check_any_agent(self) -> None:
        """Let nobody through who is bound to an agent."""
        if self.agent_id is not None:
            raise PermissionDenied("this route is not available to a key of one agent")

    def check_operator(self) -> None:
        """Let nobody through who is not an operator."""
        if not self.is_operator:
            raise PermissionDenied("this route is for operators: it needs an admin key")

    def check_writes(self, method: str, path: str) -> None:
        """Let a read-only caller through only where nothing is written."""
        if self.read_only and is_write(method, path):
            raise PermissionDenied(READ_ONLY)

    def grant(self, sensitive: bool) -> bool:
        """Whether sensitive memories are shown: if the request asks and the token grants it."""
        if sensitive and self.user_id is not None and not self.sensitive:
            raise PermissionDenied(
                'sensitive memories are not granted: a token needs the claim "sensitive": true, '
                "a key has to be created with sensitive"
            )
        return sensitive


class Authenticator:
    """Checks the credentials of every request: the settings', tokens, and the store's API keys.

    As soon as a key was made the server requires credentials, also if the settings have none.
    """

    def __init__(self, settings: Settings, keys: AsyncKeys) -> None:
        key, secret = settings.api_key, settings.jwt_secret
        self._key = key.get_secret_value().encode() if key else None
        self._secret = secret.get_secret_value() if secret else None
        self._keys = keys
        self.projects = settings.projects
        self._known: OrderedDict[bytes, None] = OrderedDict()  # digests of right credentials
        self._origins = frozenset(split_origins(settings.cors_origins))
        self.has_key = self._key is not None  # its bearer is an operator
        self.issues_tokens = self._secret is not None  # each bound to a user
        # Other machines are never let in without a credential, whatever became of the keys.
        self._always = self.has_key or self.issues_tokens or not is_loopback(settings.host)
        self._session_key = _session_key(self._key) if self._key else b""

    async def requires_credentials(self) -> bool:
        """Whether anybody must prove who they are, or else everybody on this machine may ask."""
        return self._always or await self._keys.exist()

    async def can_sign_in(self) -> bool:
        """Whether there is a key that opens the dashboard."""
        return self.has_key or await self._keys.exist()

    async def authenticate(self, path: str, scheme: str, headers: Headers) -> Caller:
        """The caller of a request, if its credential is right."""
        if path in OPEN_PATHS:
            await self._check_probe(scheme, headers)
            return Caller()
        if not await self.requires_credentials():
            _check_local(scheme, headers, self._origins)
            return Caller()
        if _OPEN_PAGES.fullmatch(path):
            return Caller()
        credential = _credential(headers)
        if credential is None and _DASHBOARD.fullmatch(path):
            if caller := await self.signed_in(headers):
                return caller
            raise Unauthenticated("sign in with an admin key of this server")
        if credential is None:
            reason = "this server needs the header 'Authorization: Bearer <key>'"
            raise Unauthenticated(f"{reason} or 'X-API-Key: <key>'")
        caller = await self._caller(credential) or self._bearer(credential)
        self._known[_digest(credential)] = None
        if len(self._known) > _MOST_KNOWN:
            self._known.popitem(last=False)
        return caller

    def is_guess(self, headers: Headers) -> bool:
        """Whether a request has a credential that was never right before in this process."""
        with suppress(Unauthenticated):
            credential = _credential(headers)
            return credential is not None and _digest(credential) not in self._known
        return False

    def _bearer(self, token: bytes) -> Caller:
        """The user that a token is bound to."""
        if self._secret is None:
            raise WrongCredential("invalid API key")
        claims = _claims(token, self._secret, "sub")
        if claims is None:
            raise WrongCredential(
                "the credential is no valid API key or token; it may have expired"
            )
        project = self._declared(claims.get("project"))
        return Caller(claims["sub"], sensitive=claims.get("sensitive") is True, project=project)

    async def _check_probe(self, scheme: str, headers: Headers) -> None:
        """Let anybody probe a server that requires credentials, else this machine.

        The store, which may be away, is asked only about requests from elsewhere.
        """
        if self._always:
            return
        try:
            _check_local(scheme, headers, self._origins)
        except PermissionDenied:
            if not await self._keys.exist():
                raise

    async def _caller(self, credential: bytes) -> Caller | None:
        """The caller with this API key."""
        if self._key is not None and hmac.compare_digest(credential, self._key):
            return Caller(key_id=SETTINGS_KEY)
        key = await self._keys.find(credential.decode("latin-1"))
        return self._used(key) if key else None

    def _used(self, key: ApiKey) -> Caller:
        now = system_clock()
        if key.has_expired(now):
            raise Unauthenticated("this API key has expired")
        self._declared(key.project)
        self._keys.note_use(key, now)
        return Caller.of_key(key)

    def _declared(self, project: Any) -> Any:
        """The project of a credential; one that is not in the settings any more is refused."""
        if project is None or (isinstance(project, str) and project in self.projects):
            return project
        log.warning("a credential names a project that the settings do not have", project=project)
        raise Unauthenticated("the credential is not valid on this server")

    def issue_token(
        self, user_id: str, seconds: int, *, sensitive: bool = False, project: str | None = None
    ) -> str:
        """A token that is bound to a user, for a while."""
        if self._secret is None:
            raise InvalidArgument("tokens of users require KEMEM_JWT_SECRET")
        claims: dict[str, Any] = {"sub": user_id, "exp": int(time.time()) + seconds}
        claims |= {"project": project} if project else {}
        claims |= {"sensitive": True} if sensitive else {}
        return jwt.encode(claims, self._secret, algorithm=_ALGORITHM)

    async def sign_in(self, text: str) -> tuple[str, Caller]:
        """The session of an operator, if the key is right; it ends by itself, or with the key."""
        caller = await self._caller(text.strip().encode())
        if caller is None or not caller.is_operator:
            raise Unauthenticated("invalid API key")
        claims: dict[str, Any] = {"exp": int(time.time()) + SESSION_SECONDS}
        claims |= {"jti": secrets.token_urlsafe(12)}
        signing_key = self._session_key
        if caller.key_id is not None and (key := await self._keys.get(caller.key_id)):
            claims["key"], signing_key = key.key_id, _session_key(key.digest.encode())
        return jwt.encode(claims, signing_key, algorithm=_ALGORITHM), caller

    async def signed_in(self, headers: Headers) -> Caller | None:
        """The operator whose session a browser holds, unless it has ended."""
        session = cookie_parser(headers.get("cookie", "")).get(SESSION_COOKIE, "").encode()
        key_id = _unverified(session).get("key")
        if not isinstance(key_id, str):
            valid = self.has_key and _claims(session, self._session_key, "exp") is not None
            return Caller(key_id=SETTINGS_KEY) if valid else None
        key = await self._keys.get(key_id)
        if key is None or _claims(session, _session_key(key.digest.encode()), "exp") is None:
            return None
        return None if key.has_expired(system_clock()) else self._used(key)


def form_token(browser: str, project: str | None) -> str:
    """The CSRF token that the forms of one browser must carry, by the secret in its cookie.

    A form of one project is refused after another tab has switched to another project.
    """
    text = f"kemem dashboard form {project or ''}".strip()
    return hmac.digest(browser.encode(), text.encode(), "sha256").hex()


def _digest(credential: bytes) -> bytes:
    return sha256(credential).digest()


def _session_key(root: bytes) -> bytes:
    """What signs the sessions of those who signed in with a key: they end with it."""
    return hmac.digest(root, b"kemem dashboard session", "sha256")


def _credential(headers: Headers) -> bytes | None:
    """The key or token of a request, as the bytes of its header."""
    if "authorization" not in headers:
        key = headers.get("x-api-key")
        return None if key is None else key.strip().encode("latin-1")
    kind, _, token = headers["authorization"].partition(" ")
    # mem0's client says Token. The credential decides, not its scheme: both are checked alike.
    if kind.lower() not in ("bearer", "token"):
        raise Unauthenticated("this server needs the header 'Authorization: Bearer <key>'")
    return token.strip().encode("latin-1")


def is_loopback(host: str) -> bool:
    """Whether a name or address means this very machine.  "127.0.0.1" -> True"""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def is_write(method: str, path: str) -> bool:
    """Whether a request changes what is stored."""
    return method not in ("GET", "HEAD") and path not in READING_POSTS


def is_open(path: str) -> bool:
    """Whether a path shows no data, so that anybody may ask for it."""
    return path in OPEN_PATHS or _OPEN_PAGES.fullmatch(path) is not None


def is_page(path: str) -> bool:
    """Whether a path is one of the dashboard's."""
    return _DASHBOARD.fullmatch(path) is not None


def is_page_view(scope: Scope) -> bool:
    """Whether somebody opens a page of the dashboard in a browser."""
    accept = Headers(scope=scope).get("accept", "")
    return scope["method"] == "GET" and "text/html" in accept and is_page(scope["path"])


def _check_local(scheme: str, headers: Headers, origins: Container[str]) -> None:
    """Refuse what a web page of another site makes a local browser send, unless it is allowed."""
    host = headers.get("host", "")
    match = _HOST.fullmatch(host)
    if not match or not is_loopback(match[1] or match[2]):
        reason = f"without a key this server answers to localhost only, not to {host!r:.80}"
        raise PermissionDenied(reason)
    origin = headers.get("origin")
    if origin is None or origin in origins:
        return
    if origin.lower() != f"{scheme}://{host}".lower():
        raise PermissionDenied(f"requests from the site {origin!r:.80} are not allowed")


def _unverified(token: bytes) -> dict[str, Any]:
    """What a token claims, before anybody has looked at its signature."""
    try:
        return jwt.decode(token, options={"verify_signature": False})
    except (jwt.InvalidTokenError, ValueError, RecursionError):
        return {}


def _claims(token: bytes, key: str | bytes, required: str) -> dict[str, Any] | None:
    """The claims of a token; None if it is invalid or has expired."""
    try:
        return jwt.decode(token, key, algorithms=[_ALGORITHM], options={"require": [required]})
    except (jwt.InvalidTokenError, ValueError, RecursionError):
        return None
