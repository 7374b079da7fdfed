"""Votes on hits: whether a memory answered a question."""

from contextlib import suppress
from hashlib import blake2b
from typing import get_args

from kemem.add.parse import check_text, refuse
from kemem.errors import Unavailable
from kemem.ports import Deps
from kemem.records import Where
from kemem.records.batch import Batch
from kemem.records.feedback import Feedback, Vote
from kemem.records.privacy import ContentPolicy
from kemem.search.feedback import KIND
from kemem.search.pages import find
from kemem.text.ids import check_id
from kemem.text.personal import apply_policy

_MAX_QUERY = 8_000  # bytes


async def give_feedback(
    memory_id: str, vote: Vote, query: str, where: Where, policy: ContentPolicy, deps: Deps
) -> Feedback:
    """Keep a vote of the user of a Where; another on the same memory and question replaces it."""
    if vote not in get_args(Vote):
        refuse("vote", "be up or down", vote)
    user, row = check_id(where.scope.user_id, "user_id"), await find(memory_id, where, deps)
    text, _ = apply_policy(check_text(query, "query", _MAX_QUERY), policy, "query")
    vector = None
    with suppress(Unavailable):  # words alone tell which questions are alike
        vector = (await deps.embed([text], purpose="query"))[0]
    model = deps.model if vector is not None else None
    given = Feedback(row.id, user, vote, text, deps.clock(), vector, model)
    name = blake2b(f"{user}\0{row.id}\0{text}".encode(), digest_size=16).hexdigest()
    await deps.store.apply(Batch(journal=(given.to_line(KIND, name),)))
    return given
