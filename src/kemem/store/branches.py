"""Which messages their sessions have left: kept with them, so that no search has to find it out."""

from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa

from kemem.records import Message, Micros
from kemem.records.branches import SPEAKERS, branch_ends
from kemem.store import tables
from kemem.store.database import bound, in_list
from kemem.store.schema import message

_of_session = bound(message, space_no="of_space", session_id="of_session")
_name = sa.select(message.c.message_id)
_whole = sa.select(*tables.messages.columns).where(*_of_session)
_whole = _whole.order_by(message.c.create_time, message.c.id)
_mark = (
    sa.update(message)
    .where(*bound(message, space_no="of_space", id="of_row"))
    .values(valid_until=sa.bindparam("until"))
)
_alternatives = _name.where(
    *_of_session, in_list(message.c.parent_message_id, "parents"), message.c.role.in_(SPEAKERS)
)
_children = _name.where(*_of_session, in_list(message.c.parent_message_id, "names"))
_replaced = _name.where(
    *(*_of_session, in_list(message.c.message_id, "parents"), message.c.valid_until.is_not(None))
)
_later = _name.where(*_of_session, message.c.create_time >= sa.bindparam("first"))
_later = _later.limit(sa.bindparam("most"))
_branched = sa.select(message.c.space_no, message.c.session_id).distinct()
_branched = _branched.where(message.c.parent_message_id.is_not(None))


def mark_branches(connection: sa.Connection, space_no: int, session_id: str) -> dict[str, Micros]:
    """Record when messages of a session were replaced; returns it by their ids."""
    values = {"of_space": space_no, "of_session": session_id}
    rows = tables.messages.load(connection.execute(_whole, values))
    ends = branch_ends([stored.row for stored in rows])
    changed = [
        {"of_space": space_no, "of_row": it.id, "until": ends.get(it.row.id)}
        for it in rows
        if it.row.valid_until != ends.get(it.row.id)
    ]
    if changed:
        connection.execute(_mark, changed)
    return ends


def mark_all_branches(connection: sa.Connection) -> None:
    """Record it for every session in which messages have parents."""
    for space_no, session_id in connection.execute(_branched).all():
        mark_branches(connection, space_no, session_id)


def may_branch(
    connection: sa.Connection, space_no: int, session_id: str, new: Sequence[Message]
) -> bool:
    """Whether messages that a session has got may have replaced others, or brought some back.

    What goes on from a message that counts, later than all others, changes nothing.
    """
    attached = [it for it in new if it.parent_message_id is not None]
    if not attached:
        return False
    speakers = [it.parent_message_id for it in attached if it.role in SPEAKERS]
    values: dict[str, Any] = {"of_space": space_no, "of_session": session_id}
    values |= {"first": min(it.ts for it in new), "most": len(new) + 1}
    values |= {"parents": sorted({str(it.parent_message_id) for it in attached})}
    values |= {"names": sorted(it.message_id for it in attached)}
    own = {it.message_id for it in new}

    def others(*statements: Any) -> Iterable[str]:
        for statement in statements:
            yield from {*connection.execute(statement, values).scalars()} - own

    is_alone = len({*speakers}) == len(speakers)
    return not is_alone or any(others(_later, _alternatives, _children, _replaced))
