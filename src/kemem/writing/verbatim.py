"""Messages as notes, word by word."""

from collections.abc import Sequence
from dataclasses import replace

from kemem.text.fingerprint import fingerprint
from kemem.types import Message, Micros
from kemem.writing.extraction import Fact
from kemem.writing.task import Decision, Place, Task, new_note


def verbatim(messages: Sequence[Message], task: Task, now: Micros) -> list[Decision]:
    """Each message a note of its own; two that are equal stay two."""
    decisions = []
    for message in messages:
        fact = Fact(message.content, (message.message_id,), memory_type="verbatim")
        place = Place(message.agent_id, message.user_id, message.session_id)
        note = new_note(fact, task, place, message.ts, now)
        metadata = {**message.metadata, **note.metadata, "role": message.role}
        digest = fingerprint(f"{message.message_id} {message.content}")
        decisions.append(Decision(fact, replace(note, metadata=metadata, digest=digest)))
    return decisions
