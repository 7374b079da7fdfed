"""Agents, users and sessions that are disabled: they take nothing new, and nothing serves them."""

from kemem.errors import PermissionDenied
from kemem.ports import Store
from kemem.records import Level, Scope


def refusal(level: str, name: str) -> PermissionDenied:
    """The error of a call in the name of who is disabled."""
    return PermissionDenied(f"{level} {name!r:.80} is disabled", level=level, id=name)


async def check_enabled(store: Store, scope: Scope) -> None:
    """Refuse a call in the name of an agent, user or session that is disabled."""
    named: dict[Level, Scope | str | None] = {
        "user": scope.user_id and Scope(user_id=scope.user_id),
        "agent": scope.agent_id and Scope(agent_id=scope.agent_id),
        "session": scope.session_id and scope,
    }
    for level, whose in named.items():
        if isinstance(whose, Scope):
            for entry in await store.directory(level, whose, limit=1):
                if entry.disabled:
                    raise refusal(level, entry.id)
