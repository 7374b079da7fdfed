"""The recipe of extraction: recall what is known, extract, reconcile, commit."""

import re
from collections.abc import Sequence
from dataclasses import replace

from kemem.batch import Ending, Job
from kemem.ports import Parts
from kemem.reading.search import search
from kemem.text.fingerprint import fingerprint
from kemem.types import NOTES, Message, Note, Scope, Where
from kemem.writing.commit import Committed, commit
from kemem.writing.extract import extract
from kemem.writing.extraction import Extraction
from kemem.writing.reconcile import marks, reconcile
from kemem.writing.task import Place, Task
from kemem.writing.verbatim import verbatim

SHOWN = 10  # known notes that a model is shown
_ASKED = 1_000  # characters of a conversation that known notes are looked up by
_SPOKEN = ("user", "assistant")  # what systems and tools say is not worth a memory
# A message as the result of a search prints it.
_RECALLED = re.compile(r"^- \[\d{4}-\d{2}-\d{2}\] \w[^:\n]{0,80}: ")


async def draw(job: Job, parts: Parts) -> Committed:
    """Notes from the messages of a job; raises Unavailable when the model fails."""
    task = Task.from_details(job.details)
    said = Where(job.scope, ids=frozenset(job.ids))
    messages = await parts.store.scan(said, limit=len(job.ids), newest_first=False)
    if not task.infer:
        return await commit(verbatim(messages, task, parts.clock()), {}, job, parts)
    messages = await _without_recalled(messages, job.scope, parts)
    known = await _shown(messages, task, job.scope, parts)
    found = await extract(messages, known, task.prompt, parts) if messages else Extraction()
    return await settle(found, messages, known, job, parts)


async def settle(
    found: Extraction,
    messages: Sequence[Message],
    known: Sequence[Note],
    job: Job,
    parts: Parts,
    ending: Ending | None = None,
) -> Committed:
    """Facts made into notes, one owner at a time, so that equal facts meet each other."""
    task, scope = Task.from_details(job.details), job.scope
    owner = Scope(scope.agent_id, scope.user_id)
    place = Place(scope.agent_id or "", scope.user_id or "", scope.session_id)
    async with parts.turns.of(owner):
        # What is short-term belongs to its session; all else is known of a user once.
        seen = scope if task.kind == "short_term" else owner
        where = Where(seen, kinds=frozenset({task.kind}))
        named = frozenset(note.note_id for note in known)
        rivals = [
            *await parts.store.notes(replace(where, marks=marks(found.facts)), limit=1000),
            *await parts.store.notes(replace(where, ids=named), limit=len(named)),
        ]
        times = {message.message_id: message.ts for message in messages}
        decisions = reconcile(found.facts, rivals, times, task, place, parts.clock())
        return await commit(decisions, found.entities, job, parts, ending)


async def _without_recalled(
    messages: Sequence[Message], scope: Scope, parts: Parts
) -> list[Message]:
    """What was really said: lines that only quote a memory are left out, empty messages too."""
    lines = {
        message.message_id: [
            line for line in message.content.splitlines() if not _RECALLED.match(line)
        ]
        for message in messages
        if message.role in _SPOKEN
    }
    digests = frozenset(fingerprint(line) for said in lines.values() for line in said)
    owner = Scope(scope.agent_id, scope.user_id)
    quoted = await parts.store.notes(Where(owner, kinds=NOTES, marks=digests), limit=1000)
    known = {note.digest for note in quoted}
    kept = []
    for message in messages:
        own = [it for it in lines.get(message.message_id, ()) if fingerprint(it) not in known]
        if any(line.strip() for line in own):
            kept.append(replace(message, content="\n".join(own)))
    return kept


async def _shown(messages: Sequence[Message], task: Task, scope: Scope, parts: Parts) -> list[Note]:
    """Known notes that a model should see: those nearest to what was said."""
    if parts.llm is None or not messages:
        return []
    text = "\n".join(message.content for message in messages)[:_ASKED]
    owner = Scope(scope.agent_id, scope.user_id)
    where = Where(owner, kinds=frozenset({task.kind}), valid_at=parts.clock())
    return [hit.note for hit in await search(text, where, SHOWN, parts)]
