"""One agent, user or session: found by its ids, or refused where it is disabled."""

from kemem.errors import InvalidArgument, NotFound, PermissionDenied
from kemem.ports import Store
from kemem.records import Entry, Level, Scope


async def find_entry(store: Store, level: Level, scope: Scope) -> Entry:
    """The one agent, user or session that a scope names."""
    name = getattr(scope, f"{level}_id")
    entries = await store.directory(level, scope, limit=2)
    if not entries:
        raise NotFound(f"no {level} {name!r:.80}", **{f"{level}_id": name})
    if len(entries) > 1:
        raise InvalidArgument(
            f"several users or agents have a {level} {name!r:.80}: pass user_id and agent_id",
            field="user_id",
        )
    return entries[0]


def refusal(level: str, name: str) -> PermissionDenied:
    """The error of a call in the name of who is disabled."""
    return PermissionDenied(f"{level} {name!r:.80} is disabled", level=level, id=name)


async def check_enabled(store: Store, scope: Scope) -> None:
    """Refuse a call in the name of an agent, user or session that is disabled."""
    named: list[tuple[Level, Scope]] = []
    if scope.user_id:
        named.append(("user", Scope(user_id=scope.user_id)))
    if scope.agent_id:
        named.append(("agent", Scope(agent_id=scope.agent_id)))
    if scope.session_id:
        named.append(("session", scope))
    for level, whose in named:
        for entry in await store.directory(level, whose, limit=2):
            if entry.disabled:
                raise refusal(level, entry.id)
