"""What a deletion takes with it beside the note itself: the ends that it set, and its echoes."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from kemem.add.embed import by_owner, mirror_jobs
from kemem.errors import InvalidArgument, NotFound
from kemem.ports import Deps, ReadOptions, read_messages, read_notes
from kemem.ports.entries import check_enabled
from kemem.records import NOTES, Change, Message, Micros, Note, Row, Scope, Where
from kemem.records.batch import Batch, Expected
from kemem.text.reading import read
from kemem.text.segment import STOPS, search_text
from kemem.text.summary import sentences

_OVER = "told to be over by "  # the reason of an end without a successor
_REPLACED = "replaced by "
_AGAIN = "holds again: "
_HOLDS = f"{_AGAIN}deleted was "
_UNDONE = f"{_AGAIN}undone"
_LINES = 1000  # of a history
_ADDED = re.compile(r"\bUser\b|用户|[(（][^()（）]*\d[^()（）]*[)）]$")  # by notes to what was said
_REPEATED = 0.5  # of the words of a statement; who says more of them repeats it
_BRIEF = 12  # words of a sentence that repeats one by a single word: "Noted, no shellfish."


def replaced_by(note_id: str) -> str:
    """The reason in the history of a note that another one ended."""
    return f"{_REPLACED}{note_id}"


def over_by(message_id: str) -> str:
    """The reason in the history of a note that a message ended, with no note in its place."""
    return f"{_OVER}{message_id}"


def held_without(note_id: str) -> str:
    """The reason in the history of a note that was to end, but what was announced is taken back."""
    return f"{_AGAIN}taken back was {note_id}"


def ended_by(model: str) -> str:
    """The reason in the history of a note that ended because a language model said so."""
    return f"ended by the model {model}"


@dataclass(frozen=True, slots=True)
class Reopened:
    """Notes as they are once those that had ended them are gone."""

    notes: tuple[Note, ...] = ()
    changes: tuple[Change, ...] = ()
    expects: tuple[Expected, ...] = ()  # what that was decided by


async def reopen(gone: Sequence[Note], now: Micros, deps: Deps) -> Reopened:
    """The notes that deleted ones had ended hold again, or until the deleted ones had ended.

    With Berlin -> Munich -> Rome: without Rome it is Munich, without Munich Berlin until Rome.
    """
    made = Reopened()
    for owner, own in by_owner(gone).items():
        dropped = {note.note_id: note for note in own}
        for note in own:
            if note.supersedes is not None:
                made = await _reopen(note, dropped, owner, now, made, deps)
    return made


async def reopen_without(
    messages: frozenset[str], gone: Sequence[Note], owner: Scope, now: Micros, deps: Deps
) -> Reopened:
    """What holds again where messages no longer count: what they ended, by a note or without."""
    over: dict[str, str] = {}  # the messages that ended notes, by the ids of these
    for message_id in sorted(messages):
        reason = over_by(message_id)
        lines = await deps.store.history(owner, reason=reason, limit=_LINES)
        for name in {line.note_id for line in lines}:
            if await _ended_by(name, owner, deps) == reason:
                over[name] = message_id
    open_again = [replace(it, valid_until=None) if it.note_id in over else it for it in gone]
    made = await reopen(open_again, now, deps)
    names = frozenset(over) - {note.note_id for note in gone}
    if not names:
        return made
    where = Where(owner, kinds=NOTES, ids=names)
    read = await read_notes(deps.store, where, limit=len(names) + 1)
    lines = [
        Change(
            *(it.agent_id, it.user_id, it.note_id, "update", now),
            after=it.content,
            reason=f"{_HOLDS}{over[it.note_id]}",
        )
        for it in read
    ]
    return Reopened(
        (*made.notes, *(replace(it, valid_until=None, updated=now) for it in read)),
        (*made.changes, *lines),
        (*made.expects, Expected(where, tuple(read), len(names) + 1)),
    )


async def undo(note: Row, deps: Deps) -> Note:
    """A note that has ended holds again; the one that replaced it stays beside it."""
    if not isinstance(note, Note):
        raise InvalidArgument(f"{note.id} is a message, and messages do not end")
    owner, now = Scope(note.agent_id, note.user_id), deps.clock()
    await check_enabled(deps.store, owner)
    if note.valid_until is None:
        return note
    again = replace(note, valid_until=None, updated=now)
    by = (await _ended_by(note.note_id, owner, deps) or "").removeprefix(_REPLACED)
    where = Where(owner, kinds=NOTES, ids=frozenset([by]))
    heirs = [it for it in await read_notes(deps.store, where) if it.supersedes == note.note_id]
    line = Change(note.agent_id, note.user_id, note.note_id, "update", now, after=note.content)
    batch = Batch(
        notes=(again, *(replace(it, supersedes=None) for it in heirs)),
        changes=(replace(line, reason=_UNDONE),),
        jobs=tuple(mirror_jobs(owner, [note.note_id], now, deps)),
        present=(note, *heirs),
    )
    if (await deps.store.apply(batch)).refused:
        raise NotFound(f"no memory {note.note_id!r:.80}", memory_id=note.note_id)
    return again


async def _reopen(
    note: Note, gone: Mapping[str, Note], owner: Scope, now: Micros, made: Reopened, deps: Deps
) -> Reopened:
    lines = await deps.store.history(owner, reason=replaced_by(note.note_id), limit=_LINES)
    ended = {line.note_id for line in lines} - gone.keys()
    until, successor = await _end(note, gone, owner, deps)
    names = frozenset(ended | {successor} if successor else ended)
    where = Where(owner, kinds=NOTES, ids=names)
    read = await read_notes(deps.store, where, limit=len(names) + 1) if ended else []
    stored = {it.note_id: it for it in read}
    notes, changes = {it.note_id: it for it in made.notes}, [*made.changes]
    for name in sorted(ended & stored.keys()):
        if await _ended_by(name, owner, deps) != replaced_by(note.note_id):
            continue
        old = stored[name]
        notes[name] = replace(old, valid_until=until, updated=now)
        reason = replaced_by(successor) if successor else f"{_HOLDS}{note.note_id}"
        line = Change(old.agent_id, old.user_id, name, "update", now, after=old.content)
        changes.append(replace(line, reason=reason))
        heir = stored.get(successor or "")
        if heir and heir.supersedes in gone:
            notes[heir.note_id] = replace(heir, supersedes=name)
    expects = (*made.expects, *([Expected(where, tuple(read), len(names) + 1)] if ended else ()))
    return Reopened(tuple(notes.values()), tuple(changes), expects)


async def _ended_by(note_id: str, owner: Scope, deps: Deps) -> str | None:
    """Why a note has ended, by the latest line of its history that tells."""
    lines = await deps.store.history(owner, note_id=note_id, event="update", limit=_LINES)
    reasons = (line.reason or "" for line in lines)
    return next((it for it in reasons if it.startswith((_REPLACED, _AGAIN, _OVER))), None)


async def _end(
    note: Note, gone: Mapping[str, Note], owner: Scope, deps: Deps
) -> tuple[Micros | None, str | None]:
    """When a deleted note ended, and by which note that stays."""
    if note.valid_until is None:
        return None, None
    reason = await _ended_by(note.note_id, owner, deps) or ""
    successor = reason.removeprefix(_REPLACED) if reason.startswith(_REPLACED) else None
    if successor and successor in gone:
        return await _end(gone[successor], gone, owner, deps)
    return note.valid_until, successor


async def echoes(text: str, cited: Sequence[Message], deps: Deps) -> list[Message]:
    """The assistant's messages right after some that repeat what a text says.

    "I'm allergic to nuts", "Got it, no nuts" -> the second
    """
    own, repeated = _words(text), []
    for message in cited:
        scope = Scope(message.agent_id, message.user_id, message.session_id)
        next_one: ReadOptions = {"after": message.position, "limit": 1, "newest_first": False}
        following = await read_messages(deps.store, Where(scope, withdrawn=True), **next_one)
        said = [own, *(words for it in sentences(message.content) if (words := _words(it)) & own)]
        for reply in following:
            heard = _words(reply.content)
            covered = max(len(words & heard) / (len(words) or 1) for words in said)
            brief = (it for it in sentences(reply.content) if len(_words(it)) <= _BRIEF)
            named = any(_telling(read(it).words & read(text).words) for it in brief)
            if reply.role == "assistant" and (covered > _REPEATED or named):
                repeated.append(reply)
    return repeated


def _telling(words: Iterable[str]) -> bool:
    """Whether one of some words is more than a single Chinese character.  {"花", "花生"} -> True"""
    return any(len(it) > 1 or it.isascii() for it in words)


def _words(text: str) -> set[str]:
    return {*search_text(_ADDED.sub("", text)).split()} - STOPS
