"""The recipe of extraction: recall what is known, extract, reconcile, commit."""

import asyncio
import random
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from itertools import islice

from kemem.add.commit import Committed, commit
from kemem.add.extract import USER_NAMES, extract
from kemem.add.extraction import Extraction, Fact
from kemem.add.reconcile import marks, reconcile
from kemem.add.task import Place, Task
from kemem.add.verbatim import told, verbatim
from kemem.batch import Ending, Expected, Job
from kemem.errors import Unavailable
from kemem.ports import Deps, read_messages, read_notes
from kemem.records import NOTES, Message, Note, Position, Scope, Where
from kemem.search.recipe import nearest_notes
from kemem.text.fingerprint import as_printed

_TRIES = 20  # of a decision whose premises change while it is written
_PAUSE = 0.01  # seconds, times the number of the try, at most
_RIVALS = 1000  # known notes that facts are compared with
EARLIER = 4  # messages before those that are drawn from
SHOWN = 10  # known notes that a model is shown
_ASKED = 1_000  # characters of a conversation that known notes are looked up by
_QUOTED = 5_000  # fingerprints of lines that are looked up; a database binds no more at once
_SPOKEN = ("user", "assistant")  # what systems and tools say is not worth a memory
# A message as the result of a search prints it.
_RECALLED = re.compile(r"^- \[\d{4}-\d{2}-\d{2}\] \w[^:\n]{0,80}: ")


async def draw(job: Job, deps: Deps, messages: Sequence[Message] | None = None) -> Committed:
    """Notes from the messages of a job, read if need be; Unavailable when the model fails."""
    task = Task.from_details(job.details)
    if messages is None:
        said = Where(job.scope, ids=frozenset(job.ids))
        messages = await read_messages(deps.store, said, limit=len(job.ids), newest_first=False)
    if not task.infer:
        return await _keep_verbatim(messages, task, job, deps)
    messages = await _without_recalled(messages, job.scope, deps)
    known = await _shown(messages, task, job.scope, deps) if messages else []
    if not messages:
        found = Extraction()
    elif task.kind == "knowledge" and deps.llm is None:
        found = Extraction(tuple(told(message) for message in messages))
    else:
        earlier = await _earlier(messages, job, deps)
        found = await extract(messages, known, task.prompt, deps, earlier)
    return await settle(found, messages, job, deps)


async def _keep_verbatim(
    messages: Sequence[Message], task: Task, job: Job, deps: Deps
) -> Committed:
    async for _ in _tries():
        done = await commit(verbatim(messages, task, deps.clock()), {}, job, deps)
        if done is not None:
            return done
        messages = await _still_stored(messages, deps)
    raise Unavailable("the messages of this user change too fast")


async def _tries() -> AsyncIterator[int]:
    """A number for each try, with a pause in between that is another one for every process."""
    for number in range(_TRIES):
        if number:
            await asyncio.sleep(random.uniform(0, _PAUSE * number))
        yield number


async def _still_stored(messages: Sequence[Message], deps: Deps) -> list[Message]:
    """Messages that have not been deleted since they were read."""
    kept = []
    owners = {Scope(message.agent_id, message.user_id) for message in messages}
    for owner in owners:
        ids = frozenset(message.message_id for message in messages)
        stored = await read_messages(deps.store, Where(owner, ids=ids), limit=len(ids))
        kept += [(message.agent_id, message.user_id, message.message_id) for message in stored]
    return [it for it in messages if (it.agent_id, it.user_id, it.message_id) in kept]


async def settle(
    found: Extraction,
    messages: Sequence[Message],
    job: Job,
    deps: Deps,
    ending: Ending | None = None,
) -> Committed:
    """Facts made into notes, one owner at a time, so that equal facts meet each other.

    Another process may write in between: then the store refuses, and it is decided again.
    """
    task, scope = Task.from_details(job.details), job.scope
    owner = Scope(scope.agent_id, scope.user_id)
    place = Place(scope.agent_id or "", scope.user_id or "", scope.session_id)
    # What is short-term belongs to its session; all else is known of a user once.
    where = Where(scope if task.kind == "short_term" else owner, kinds=frozenset({task.kind}))
    times = {message.message_id: message.ts for message in messages}
    named = frozenset(name for fact in found.facts for name in fact.replaces)
    facts: Sequence[Fact] = found.facts
    async with deps.locks.for_owner(owner):
        async for number in _tries():
            if number:  # what was refused may cite what is gone
                facts = await _still_said(facts, owner, deps)
            rivals = await _rivals(facts, named, where, deps)
            known = [note for each in rivals for note in each.notes]
            decisions = reconcile(facts, known, times, task, place, deps.clock())
            done = await commit(decisions, found.entities, job, deps, ending, rivals)
            if done is not None:
                return done
    raise Unavailable("the notes of this user change too fast")


async def _rivals(
    facts: Sequence[Fact], named: frozenset[str], where: Where, deps: Deps
) -> tuple[Expected, ...]:
    """Known notes that facts may repeat or replace."""
    asked = []
    if facts:
        asked.append((replace(where, marks=marks(facts)), _RIVALS))
    if named:
        asked.append((replace(where, ids=named), len(named)))
    return tuple(
        [
            Expected(each, tuple(await read_notes(deps.store, each, limit=limit)), limit)
            for each, limit in asked
        ]
    )


async def _still_said(facts: Sequence[Fact], owner: Scope, deps: Deps) -> list[Fact]:
    """Facts whose messages have not been deleted while a model thought about them."""
    sources = frozenset(name for fact in facts for name in fact.sources)
    present = await read_messages(deps.store, Where(owner, ids=sources), limit=len(sources))
    ids = {message.message_id for message in present}
    return [fact for fact in facts if set(fact.sources) <= ids]


async def _without_recalled(messages: Sequence[Message], scope: Scope, deps: Deps) -> list[Message]:
    """What was really said: lines that only quote a memory are left out, empty messages too."""
    lines = await asyncio.to_thread(_fingerprints, messages)
    printed = (mark for said in lines.values() for each in said.values() for mark in each)
    marks = frozenset(islice(printed, _QUOTED))
    owner = Scope(scope.agent_id, scope.user_id)
    where = Where(owner, kinds=NOTES, marks=marks, valid_at=deps.clock())
    quoted = await read_notes(deps.store, where, limit=1000) if marks else []
    known = {mark for note in quoted for mark in (note.digest, note.topic)}
    kept = []
    for message in messages:
        said = lines.get(message.message_id, {})
        own = [line for line, marked in said.items() if not marked & known]
        if own:
            kept.append(replace(message, content="\n".join(own)))
    return kept


def _fingerprints(messages: Sequence[Message]) -> dict[str, dict[str, frozenset[str]]]:
    """The fingerprints of each line of each message, without lines that a search printed."""
    return {
        message.message_id: {
            line: frozenset(as_printed(line))
            for line in message.content.splitlines()
            if line.strip() and not _RECALLED.match(line)
        }
        for message in messages
        if message.role in _SPOKEN
    }


async def _earlier(messages: Sequence[Message], job: Job, deps: Deps) -> list[Message]:
    """What was said just before in the same session: without it a model cannot read an answer.

    Where a model has failed it is left out: it may be what a model refuses.
    """
    if deps.llm is None or job.scope.session_id is None or job.attempts:
        return []
    first = Position(messages[0].ts, messages[0].message_id)
    where = Where(job.scope, sensitive=Task.from_details(job.details).sensitive)
    return (await read_messages(deps.store, where, after=first, limit=EARLIER))[::-1]


async def _shown(messages: Sequence[Message], task: Task, scope: Scope, deps: Deps) -> list[Note]:
    """Known notes that an extractor should see: for a model those nearest to what was said, then
    the newest; rules need no more than the user's name. What is sensitive could be retold: it is
    seen only where what comes out of it is sensitive too.
    """
    owner = Scope(scope.agent_id, scope.user_id)
    kinds, now = frozenset({task.kind}), deps.clock()
    where = Where(owner, kinds=kinds, valid_at=now, sensitive=task.sensitive)
    if deps.llm is None:
        who = replace(where, kinds=frozenset({"user_info"}), marks=frozenset(USER_NAMES))
        return await read_notes(deps.store, who, limit=2)
    text = "\n".join(message.content for message in messages)[:_ASKED]
    newest = await read_notes(deps.store, where, limit=SHOWN)
    if len(newest) < SHOWN:  # that is all there is
        return newest
    near = await nearest_notes(text, where, SHOWN, deps)
    found = {note.note_id: note for note in (*near, *newest)}
    return list(found.values())[:SHOWN]
