"""What requests leave in the audit log: the caller, the operation, whose data, the result."""

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs

from fastapi.routing import iter_route_contexts
from starlette.datastructures import Headers
from starlette.routing import Match
from starlette.types import Message, Scope

from kemem.errors import KeMemError
from kemem.keys import AsyncKeys
from kemem.records.audit import ActorType, AuditEvent, Interface
from kemem.serve.http.auth import SETTINGS_KEY, Caller, is_page, is_write
from kemem.serve.http.limits import address_of
from kemem.serve.telemetry.audit import MOST_IDS, AuditLog, operation_of, result_of, valid_id

# They show no data, or tell what they do by each of their calls.
_SILENT = frozenset(["healthz", "readyz", "metrics", "docs", "openapi", "list_models", "mem0_ping"])
_SILENT |= {"dashboard.login_page", "dashboard.not_found", "dashboard.root", "dashboard.follow"}
_SILENT |= {"dashboard.overview", "dashboard.overview_figures", "mcp", "rpc", ""}
_OWNERS = ("user_id", "agent_id")


class RequestAudit:
    """Records the requests of a server."""

    def __init__(self, log: AuditLog, keys: AsyncKeys) -> None:
        self._log, self._keys = log, keys

    async def respond(self, scope: Scope, status: int, message: Message) -> None:
        """Record a request as the body of its response begins; once, and not what was throttled."""
        state = scope.setdefault("state", {})
        if message["type"] != "http.response.body" or state.get("is_audited") or status == 429:
            return
        state["is_audited"] = True
        name, caller = _route_name(scope), state.get("caller")
        if caller is None:
            has_credential = not {"authorization", "x-api-key"}.isdisjoint(Headers(scope=scope))
            name = "auth.credential" if status == 401 and has_credential else ""
        operation = state.get("operation") or operation_of(name)
        writes = is_write(scope["method"], scope["path"]) or operation.startswith("auth.")
        if name in _SILENT or not self._log.wants(operation, writes or _is_sensitive(state)):
            return
        answer = _parsed(message) if writes or status >= 400 else {}
        error = answer.get("error")
        await self._log.write(
            AuditEvent(
                operation=operation,
                result=result_of(status),
                interface="dashboard" if is_page(scope["path"]) else "http",
                **await self._actor(scope),
                **(_subject(scope, answer) if not operation.startswith("audit.") else {}),
                error=error.get("code") if isinstance(error, dict) else None,
            )
        )

    async def call(
        self,
        scope: Scope,
        interface: Interface,
        name: str,
        is_writing: bool,
        error: KeMemError | None = None,
    ) -> None:
        """Record one call of a tool or method that a request has made."""
        operation = operation_of(name)
        if not self._log.wants(operation, is_writing or _is_sensitive(scope["state"])):
            return
        await self._log.write(
            AuditEvent(
                operation=operation,
                result=result_of(0 if error is None else error.status),
                interface=interface,
                **await self._actor(scope),
                **_subject(scope, {}),
                error=None if error is None else error.code,
            )
        )

    async def _actor(self, scope: Scope) -> dict[str, Any]:
        """Who asks, and from where."""
        caller: Caller = scope["state"].get("caller") or Caller()
        kind: ActorType = "anonymous"
        if caller.key_id is not None:
            kind = "key"
        elif caller.user_id is not None:
            kind = "token"
        return {
            "actor_type": kind,
            "actor_id": caller.key_id or caller.user_id or "",
            "actor_name": await self._key_name(caller.key_id),
            "address": address_of(scope),
        }

    async def _key_name(self, key_id: str | None) -> str:
        """The name of an API key that was just used, and is cached."""
        if key_id is None or key_id == SETTINGS_KEY:
            return ""
        with suppress(KeMemError):  # the store may be away: the id says enough
            key = await self._keys.get(key_id)
            return key.name if key else ""
        return ""


def _route_name(scope: Scope) -> str:
    """The name of the route of a request, also of one that was refused before it got there."""
    if "route" in scope:
        return str(scope["route"].name)
    for context in iter_route_contexts(scope["app"].routes):
        match, _ = context.original_route.matches(scope)
        if match is Match.FULL:
            return str(context.name)
    return ""


def _is_sensitive(state: Mapping[str, Any]) -> bool:
    """Whether a user's sensitive memories were shown, by the grant of the credential."""
    caller = state.get("caller")
    return bool(state.get("is_sensitive")) or (caller is not None and caller.sensitive)


def _subject(scope: Scope, answer: Mapping[str, Any]) -> dict[str, Any]:
    """Whose data a request is about, and which records."""
    query = parse_qs(scope["query_string"].decode("latin-1"))
    path, state = scope.get("path_params", {}), scope["state"]
    owners = {it: state.get(it) or path.get(it) or query.get(it, [None])[0] for it in _OWNERS}
    owners["user_id"] = owners["user_id"] or next(iter(described(answer, "user_id")), "")
    ids = [str(value) for name, value in path.items() if name.endswith("_id")]
    ids = [it for it in ids if it not in owners.values()]
    ids += [*described(answer, "id"), *(answer.get("message_ids") or ())]
    ids = [it for it in dict.fromkeys(ids) if valid_id(it)]
    gone = answer.get("deleted", answer.get("erased"))
    if isinstance(gone, dict):  # of a receipt
        gone = gone.get("messages", 0) + gone.get("notes", 0)
    return {
        "user_id": valid_id(owners["user_id"]) or "",
        "agent_id": valid_id(owners["agent_id"]),
        "record_ids": tuple(ids[:MOST_IDS]),
        "count": gone if isinstance(gone, int) else len(ids),
    }


def _parsed(message: Message) -> dict[str, Any]:
    """The JSON object in the whole body of a response, if it is one."""
    if message.get("more_body"):
        return {}
    try:
        answer = json.loads(message.get("body", b""))
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}


def described(answer: Any, name: str) -> list[str]:
    """The texts that a field has in an answer and its results; never in what users have put there.

    {"id": "n_1", "metadata": {"id": "my words"}} -> ["n_1"]
    """
    if not isinstance(answer, dict):
        return []
    results = answer.get("results")
    entries = [answer, *(results if isinstance(results, list) else ())]
    found = [entry.get(name) for entry in entries if isinstance(entry, dict)]
    return [text for text in found if isinstance(text, str)]
