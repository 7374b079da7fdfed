"""Lines of the audit log, as a store keeps them in its journal."""

from dataclasses import dataclass
from typing import Literal

from kemem.records.operations import Line
from kemem.records.serialization import OwnerId, Record, Timestamp
from kemem.records.times import Micros

ActorType = Literal["key", "token", "command", "anonymous"]
Interface = Literal["http", "dashboard", "mcp", "rpc", "command"]
Result = Literal["ok", "refused", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEvent(Record):
    """An entry of the audit log: who did what to which user's data, never contents."""

    id: str = ""
    at: Timestamp = 0
    operation: str  # memory.add, user.erase
    result: Result
    interface: Interface
    actor_type: ActorType
    actor_id: str = ""  # of the key; the user of a token; the system's user of a command
    actor_name: str = ""  # of the key
    address: str = ""  # that the request came from
    user_id: OwnerId = ""  # whose data; empty: nobody's, or everybody's
    agent_id: str | None = None
    record_ids: tuple[str, ...] = ()  # the first of those that were written, read or named
    count: int = 0  # of records
    error: str | None = None  # its code

    def to_line(self, kind: str, at: Micros, name: str) -> Line:
        """This event as a line of the journal."""
        hidden = ("at", "id", "user_id")
        body = {it: each for it, each in self.to_dict().items() if it not in hidden and each}
        return Line(kind, name, at, body, self.user_id)

    @classmethod
    def of(cls, line: Line) -> "AuditEvent":
        """The event of a line."""
        body = {**line.body, "record_ids": tuple(line.body.get("record_ids", ()))}
        return cls(**body, user_id=line.user_id, at=line.ts, id=line.id)
