"""Webhooks: the endpoints that hear of changes, the events, and how a delivery is signed."""

import base64
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, get_args

from pydantic import Field

from kemem.records import Line, Scope
from kemem.records.batch import Job
from kemem.records.serialization import Hidden, Record, Timestamp
from kemem.records.times import Micros

EventType = Literal[
    "memory.added", "memory.updated", "memory.deleted", "session.ended", "job.failed"
]
EVENTS: tuple[EventType, ...] = get_args(EventType)
TEST = "webhook.test"  # the type of an event that `test` sends
SECRET_PREFIX = "whsec_"
_SECRET_BYTES = 32
# Kinds of journal lines: every delivery, and the last one of each endpoint.
DELIVERIES, LAST_DELIVERY = "delivery", "webhook"


def new_secret() -> str:
    """A fresh signing secret of 256 random bits, as Standard Webhooks writes one."""
    return SECRET_PREFIX + base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()


def sign(secret: str, message_id: str, seconds: int, body: bytes) -> str:
    """The value of the header `webhook-signature`."""
    key = base64.b64decode(secret.removeprefix(SECRET_PREFIX))
    digest = hmac.digest(key, f"{message_id}.{seconds}.".encode() + body, "sha256")
    return "v1," + base64.b64encode(digest).decode()


@dataclass(frozen=True, slots=True)
class Delivery(Record):
    """One attempt to deliver an event, and its result."""

    event_id: str
    webhook_id: str
    type: str
    at: Timestamp
    attempt: int
    status: int | None = None  # of the answer; None: there was none
    error: str | None = None  # None: delivered

    def to_lines(self) -> tuple[Line, Line]:
        """The attempt in the journal, and in the place of the endpoint's last one.

        They say of no user whose data it was about.
        """
        names = ("event_id", "webhook_id", "type", "attempt", "status", "error")
        body = {name: getattr(self, name) for name in names}
        place = f"{self.webhook_id}.{self.event_id}"
        return (
            Line(DELIVERIES, place, self.at, body),
            Line(LAST_DELIVERY, self.webhook_id, self.at, body),
        )

    @classmethod
    def of(cls, line: Line) -> "Delivery":
        """The attempt that a line of the journal tells of."""
        return cls(at=line.ts, **line.body)


@dataclass(frozen=True, slots=True)
class Webhook(Record):
    """An endpoint as it is listed: where events are sent, and which."""

    webhook_id: Annotated[str, Field(serialization_alias="id")]
    url: str
    events: tuple[EventType, ...]
    secret: Annotated[str, Hidden]
    created: Annotated[Timestamp, Field(serialization_alias="created_at")]
    agent_id: str | None = None  # only what is about this agent; None: all
    user_id: str | None = None
    include_text: bool = False  # events about notes carry the note, unless that is sensitive
    last_delivery: Delivery | None = None

    def wants(self, event: "Event") -> bool:
        """Whether an event is to be delivered here."""
        return (
            event.type in self.events
            and self.agent_id in (None, event.scope.agent_id)
            and self.user_id in (None, event.scope.user_id)
        )


@dataclass(frozen=True, slots=True)
class Event:
    """A change that endpoints are told of; `data` is what its ids do not say."""

    event_id: str
    type: EventType
    at: Micros
    scope: Scope
    data: Mapping[str, Any] = field(default_factory=dict)

    def to_job(self, webhook_id: str) -> Job:
        """The delivery to an endpoint. It has no text of a note: that is read when it is sent."""
        details = {"event_id": self.event_id, "type": self.type, "at": self.at, "data": self.data}
        name = f"{webhook_id}.{self.event_id}"  # the jobs of an endpoint are a range of ids
        return Job(name, "webhook", self.scope, self.at, details=details)

    @classmethod
    def of(cls, job: Job) -> "Event":
        """The event that a job delivers."""
        return cls(scope=job.scope, **job.details)
