"""From what an index finds to the messages themselves."""

from collections.abc import Sequence

from kemem.ports import Parts
from kemem.types import Match, Message, Scope, Where

_ALL = 100_000  # an id can belong to several users where a scope covers them


async def fetch(matches: Sequence[Match], scope: Scope, parts: Parts) -> list[Message | None]:
    """The message of each match; None where it has gone since it was found."""
    ids = frozenset(match.message_id for match in matches)
    messages = await parts.store.scan(Where(scope, ids=ids), limit=_ALL) if ids else []
    by_key = {(each.agent_id, each.user_id, each.message_id): each for each in messages}
    return [by_key.get((each.agent_id, each.user_id, each.message_id)) for each in matches]
