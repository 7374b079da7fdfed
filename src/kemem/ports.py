"""The plugs: what the core asks of a store and of models."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from kemem.errors import Unavailable
from kemem.text.query import Query
from kemem.types import (
    Applied,
    Batch,
    Found,
    Health,
    Job,
    Match,
    Matrix,
    Message,
    Micros,
    Model,
    Position,
    Rank,
    Scope,
    Vector,
    Where,
)

MAX_EMBEDDED_CHARACTERS = 2_000  # a vector cannot say more about a text than its beginning does


class Log(Protocol):
    """The truth: messages in, messages out."""

    async def apply(self, batch: Batch) -> Applied:
        """Write a batch wholly or not at all; messages and jobs are durable when this returns."""

    async def scan(
        self,
        where: Where,
        *,
        after: Position | None = None,
        limit: int = 100,
        newest_first: bool = True,
    ) -> list[Message]:
        """Visible messages in time order, strictly beyond `after`; equal times go by id."""

    async def scopes(self) -> list[Scope]:
        """Every (agent, user) pair that has messages: for operators, never for a caller's read."""


class TextIndex(Protocol):
    """Messages by their words."""

    async def search(
        self, where: Where, query: Query, *, limit: int, after: Rank | None = None
    ) -> Found:
        """The best matches beyond `after`, ranked by the statistics of the scope alone."""


class VectorIndex(Protocol):
    """Messages by their meaning."""

    async def nearest(self, where: Where, vector: Vector, model: Model, limit: int) -> list[Match]:
        """The most similar messages among those embedded by `model`."""


class Outbox(Protocol):
    """Later work; it is put and removed by `apply`."""

    async def claim(self, now: Micros, lease: Micros) -> Job | None:
        """A job that is due, hidden from other workers until the lease ends."""

    async def jobs(self, limit: int = 100) -> list[Job]:
        """Jobs that wait or have failed, oldest first."""


class Store(Log, TextIndex, VectorIndex, Outbox, Protocol):
    """A database that fills all four roles in one transaction."""

    async def secret(self) -> bytes:
        """A random key kept with the data; it seals cursors so that they outlive the process."""

    async def embedded_by(self, model: Model) -> Model | None:
        """Record the model in use; return the one recorded before."""

    async def rebuild_words(self) -> None:
        """Derive the word index again from the messages, in one transaction."""

    async def health(self) -> Health:
        """Counts and versions; raises Unavailable when the database cannot be reached."""

    async def close(self) -> None:
        """Finish what was begun and let go of files and connections."""


class Embedder(Protocol):
    """Texts to vectors."""

    name: str
    width: int

    async def embed(self, texts: Sequence[str], *, purpose: Literal["query", "passage"]) -> Matrix:
        """One row of `width` numbers for each text."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The bundle that is handed down."""

    store: Store
    embedder: Embedder | None
    clock: Callable[[], Micros]

    @property
    def model(self) -> Model | None:
        """The fingerprint of the embedder in use."""
        return Model(self.embedder.name, self.embedder.width) if self.embedder else None

    async def embed(self, texts: Sequence[str], *, purpose: Literal["query", "passage"]) -> Matrix:
        """A usable vector for each text; whatever the model does wrong is Unavailable."""
        if self.embedder is None:
            raise Unavailable("no embedder is configured")
        beginnings = [text[:MAX_EMBEDDED_CHARACTERS] for text in texts]
        try:
            matrix = await self.embedder.embed(beginnings, purpose=purpose)
        except Exception as error:  # the model's code or network, which may raise anything
            raise Unavailable(f"the embedder failed: {type(error).__name__}: {error}") from error
        shape = (len(texts), self.embedder.width)
        if np.shape(matrix) != shape:
            raise Unavailable(f"the embedder returned shape {np.shape(matrix)}, not {shape}")
        if not np.isfinite(matrix).all() or not np.any(matrix, axis=1).all():
            raise Unavailable("the embedder returned a vector that is zero or not finite")
        return np.asarray(matrix, dtype=np.float32)
