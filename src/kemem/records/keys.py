"""API keys: what a store keeps of each, which never includes the key itself."""

import secrets
from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated, Literal

from pydantic import Field

from kemem.records.serialization import Hidden, Record, Timestamp
from kemem.records.times import Micros

PREFIX = "kemem_"  # of every key, so that people and secret scanners recognise one
_BYTES = 32  # of randomness: a digest of so much needs no salt and no slow hash

Role = Literal["admin", "service", "user"]
ROLES: tuple[Role, ...] = ("admin", "service", "user")


def new_key() -> str:
    """A fresh API key of 256 random bits."""
    return PREFIX + secrets.token_urlsafe(_BYTES)


def digest_of(key: str) -> str:
    """The SHA-256 of a key, under which a store finds it."""
    return sha256(key.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class ApiKey(Record):
    """An API key as listed: its owner and its rights."""

    key_id: Annotated[str, Field(serialization_alias="id")]
    name: str
    role: Role
    digest: Annotated[str, Hidden]
    last_four: str  # characters, by which people tell keys apart
    created: Annotated[Timestamp, Field(serialization_alias="created_at")]
    agent_id: str | None = None  # the one agent that a service key reaches; None: all
    user_id: str | None = None  # the one user that a user key reaches
    read_only: bool = False
    sensitive: bool = False  # a user key sees sensitive memories
    expires: Annotated[Timestamp | None, Field(serialization_alias="expires_at")] = None
    used: Annotated[Timestamp | None, Field(serialization_alias="last_used_at")] = None
    project: str | None = None  # the one that it reaches; None: the default memory

    def has_expired(self, now: Micros) -> bool:
        """Whether the key is no longer accepted."""
        return self.expires is not None and self.expires <= now
