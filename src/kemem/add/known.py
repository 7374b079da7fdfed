"""Facts of messages, extracted with what is known already in view."""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

from kemem.add.extract import USER_NAMES, extract
from kemem.add.facts import Extraction, Work
from kemem.add.reconcile import verbatim_fact
from kemem.ports import Deps, read_messages, read_notes
from kemem.records import NOTES, Message, Note, Where
from kemem.search.recipe import nearest_notes
from kemem.text.fingerprint import as_printed

EARLIER = 4  # messages before those that are extracted from
SHOWN = 10  # known notes that a model is shown
_QUERY_CHARACTERS = 1_000  # of a conversation that known notes are looked up by
_MAX_FINGERPRINTS = 5_000  # of lines that are looked up; a database binds no more at once
_MAX_QUOTED = 1_000  # notes that messages may quote
_ROLES = ("user", "assistant")  # what systems and tools say is not worth a memory
# A message as the result of a search prints it.
_PRINTED = re.compile(r"^- \[\d{4}-\d{2}-\d{2}\] \w[^:\n]{0,80}: ")

Lines = dict[str, dict[str, frozenset[str]]]  # message id -> line -> its fingerprints


async def extract_facts(work: Work, deps: Deps) -> Extraction:
    """The facts of messages, by the LLM or by rules; Unavailable when the model fails.

    Lines that only quote a memory are left out: what was recalled is not said again.
    """
    if not work.task.infer:
        return Extraction()
    lines = await asyncio.to_thread(_fingerprints, work.messages)
    if not lines:
        return Extraction()
    notes = await _notes_by_marks(lines, work, deps)
    messages = _without_quotes(work.messages, lines, notes)
    if not messages:
        return Extraction()
    if deps.llm is not None:
        shown = await _notes_to_show(messages, work, deps)
        earlier = await _earlier(messages, work, deps)
        return await extract(messages, shown, work.task.prompt, deps, earlier)
    if work.task.kind == "knowledge":
        return Extraction(tuple(verbatim_fact(message) for message in messages))
    return await extract(messages, _names(notes, work), None, deps)


def _fingerprints(messages: Sequence[Message]) -> Lines:
    """The fingerprints of each line of each message, without lines that a search printed."""
    lines = {
        message.message_id: {
            line: frozenset(as_printed(line))
            for line in message.content.splitlines()
            if line.strip() and not _PRINTED.match(line)
        }
        for message in messages
        if message.role in _ROLES
    }
    return {name: own for name, own in lines.items() if own}


async def _notes_by_marks(lines: Lines, work: Work, deps: Deps) -> list[Note]:
    """In one read: notes that lines may quote, and for rules those that tell the user's name."""
    marks = (mark for own in lines.values() for each in own.values() for mark in each)
    names = () if deps.llm else USER_NAMES
    wanted = frozenset((*names, *islice(marks, _MAX_FINGERPRINTS)))
    where = Where(work.owner, kinds=NOTES, marks=wanted, valid_at=deps.clock())
    return await read_notes(deps.store, where, limit=_MAX_QUOTED) if wanted else []


def _without_quotes(
    messages: Sequence[Message], lines: Lines, notes: Sequence[Note]
) -> list[Message]:
    """Messages without lines that quote a note, and without those that have no other line."""
    known = {mark for note in notes for mark in (note.digest, note.topic)}
    kept = []
    for message in messages:
        fingerprints = lines.get(message.message_id, {})
        own = [line for line, marks in fingerprints.items() if not marks & known]
        if own:
            kept.append(replace(message, content="\n".join(own)))
    return kept


def _names(notes: Sequence[Note], work: Work) -> list[Note]:
    """Notes that tell the user's name; sensitive ones only for what is sensitive itself."""
    return [
        note
        for note in notes
        if note.kind == "user_info"
        and note.topic in USER_NAMES
        and (work.task.sensitive or not note.sensitive)
    ]


async def _earlier(messages: Sequence[Message], work: Work, deps: Deps) -> list[Message]:
    """What was said just before in the same session: without it a model cannot read an answer.

    Where a model has failed it is left out: it may be what the model refuses.
    """
    if work.scope.session_id is None or (work.job and work.job.attempts):
        return []
    first = messages[0].position
    where = Where(work.scope, sensitive=work.task.sensitive)
    return (await read_messages(deps.store, where, after=first, limit=EARLIER))[::-1]


async def _notes_to_show(messages: Sequence[Message], work: Work, deps: Deps) -> list[Note]:
    """Known notes for the model: those nearest to what was said, then the newest.

    What is sensitive could be retold: it is shown only where what comes out of it is sensitive too.
    """
    kinds, sensitive = frozenset({work.task.kind}), work.task.sensitive
    where = Where(work.owner, kinds=kinds, valid_at=deps.clock(), sensitive=sensitive)
    text = "\n".join(message.content for message in messages)[:_QUERY_CHARACTERS]
    newest = await read_notes(deps.store, where, limit=SHOWN)
    if len(newest) < SHOWN:  # that is all there is
        return newest
    nearest = await nearest_notes(text, where, SHOWN, deps)
    notes = {note.note_id: note for note in (*nearest, *newest)}
    return list(notes.values())[:SHOWN]
