"""Messages as notes, word by word."""

from collections.abc import Sequence
from dataclasses import replace

from kemem.add.extraction import Fact
from kemem.add.task import Decision, Place, Task, new_note
from kemem.records import Message, Micros
from kemem.text.fingerprint import fingerprint


def told(message: Message) -> Fact:
    """A message as a fact of its own."""
    return Fact(message.content, (message.message_id,), memory_type="verbatim")


def verbatim(messages: Sequence[Message], task: Task, now: Micros) -> list[Decision]:
    """Each message a note of its own; two that are equal stay two."""
    decisions = []
    for message in messages:
        fact = told(message)
        place = Place(message.agent_id, message.user_id, message.session_id)
        note = new_note(fact, task, place, message.ts, now)
        metadata = {**message.metadata, **note.metadata, "role": message.role}
        # Its statement is the topic, by which a quotation of it is known again.
        own = fingerprint(f"{message.message_id} {message.content}")
        note = replace(note, metadata=metadata, digest=own, topic=note.digest)
        decisions.append(Decision(fact, note))
    return decisions
