"""Votes on hits, as a store keeps them in its journal."""

import base64
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, SkipValidation

from kemem.records import Model
from kemem.records.operations import Line
from kemem.records.serialization import Hidden, Record, Timestamp

Vote = Literal["up", "down"]


@dataclass(frozen=True, slots=True)
class Feedback(Record):
    """The vote of a user on one hit for one question."""

    memory_id: str
    user_id: str
    vote: Vote
    query: str
    created: Annotated[Timestamp, Field(serialization_alias="created_at")]
    vector: Annotated[SkipValidation[Any], Hidden] = field(default=None, compare=False)
    model: Annotated[Model | None, Hidden] = None  # that made the vector

    def to_line(self, kind: str, name: str) -> Line:
        """This vote as a line of the journal."""
        body: dict[str, Any] = {"memory_id": self.memory_id, "vote": self.vote, "query": self.query}
        if self.vector is not None and self.model is not None:
            halves = np.asarray(self.vector, np.float16).tobytes()
            body |= {"vector": base64.b64encode(halves).decode(), "model": self.model.name}
        return Line(kind, name, self.created, body, self.user_id)

    @classmethod
    def of(cls, line: Line) -> "Feedback":
        """The vote of a line."""
        body, vector, model = line.body, None, None
        if text := body.get("vector"):
            vector = np.frombuffer(base64.b64decode(text), np.float16).astype(np.float32)
            model = Model(body["model"], len(vector))
        named = (body["memory_id"], line.user_id, body["vote"], body["query"], line.ts)
        return cls(*named, vector, model)
