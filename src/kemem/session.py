"""The short-term memory of one session: what to put into a prompt, and checkpoints of it."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from reprlib import repr as shown

from kemem.add.embed import mirror_jobs
from kemem.add.summarize import (
    STATE_TOKENS,
    count_lines,
    newest_checkpoint,
    next_checkpoint,
    session_messages,
    short_term,
    summarize_session,
    to_line,
)
from kemem.errors import InvalidArgument, NotFound, Unavailable
from kemem.ports import Deps, read_messages
from kemem.records import (
    CHECKPOINTS_KEPT,
    SHORT_TERM,
    Change,
    Checkpoint,
    Layer,
    Message,
    Note,
    Scope,
    Where,
)
from kemem.records.batch import Batch, Job
from kemem.results import Context
from kemem.text.ids import new_id
from kemem.text.language import count_tokens
from kemem.text.summary import (
    cut,
    sentences_of,
    sentences_of_summary,
    speaks_chinese,
    summarise,
)

log = logging.getLogger("kemem")

LEAST_TOKENS = 50
_TRIES = 20  # of a write whose premises change meanwhile
_FAR_BEHIND = 1_000  # messages that the State has yet to summarise
_NEWEST = 50  # messages by which the language is told
_WORTH_WRITING = 12  # tokens below which no summary says anything
_HEADINGS = {
    True: ("# 本次会话的要点", "# 此前对话摘要", "# 最近的对话"),
    False: ("# Notes of this session", "# Earlier in this conversation", "# Recent messages"),
}


async def find_session(scope: Scope, deps: Deps) -> Scope:
    """The agent, user and session that a scope names, if that is one session."""
    entries = await deps.store.directory("session", scope, limit=2)
    if not entries:
        raise NotFound(f"no session {scope.session_id!r:.80}", session_id=scope.session_id)
    if len(entries) > 1:
        raise InvalidArgument(
            f"several users or agents have a session {scope.session_id!r:.80}: "
            "pass user_id and agent_id",
            field="user_id",
        )
    return Scope(entries[0].agent_id, entries[0].user_id or "", entries[0].id)


async def context(
    scope: Scope,
    max_tokens: int,
    deps: Deps,
    *,
    sensitive: bool = True,
    state_tokens: int = STATE_TOKENS,
) -> Context:
    """What to put into a prompt: notes, summaries of what is older, the newest messages verbatim.

    All that was said is there, verbatim or in a summary, as well as it fits into `max_tokens`.
    What is sensitive no State retells: it is missing where only a State is left of its time.
    It costs the same however long the session is: a State that has fallen far behind, as after an
    import, is brought up to date by rules first.
    """
    if not isinstance(max_tokens, int) or max_tokens < LEAST_TOKENS:
        raise InvalidArgument(
            f"max_tokens must be a number from {LEAST_TOKENS} on, not {shown(max_tokens)}",
            field="max_tokens",
        )
    live = await newest_checkpoint(scope, deps.store)
    messages = await _newest_messages(scope, live, max_tokens, deps)
    if _is_far_behind(live, messages):
        live = await _catch_up(scope, live, state_tokens, deps)
        messages = await _newest_messages(scope, live, max_tokens, deps)
    messages = [message for message in messages if sensitive or not message.sensitive]
    now = deps.clock()
    notes = [
        note
        for note in await short_term(scope, deps.store)
        if not note.ended(now) and (sensitive or not note.sensitive)
    ]
    layers = live.layers if live else ()
    return await asyncio.to_thread(compose, messages, layers, notes, max_tokens)


async def _newest_messages(
    scope: Scope, live: Checkpoint | None, max_tokens: int, deps: Deps
) -> list[Message]:
    """All messages beyond the State, and as many before them as a context could show."""
    reach, count = live.reach if live else 0, _NEWEST
    while True:
        beyond = max(reach - count, 0)
        messages = await session_messages(Where(scope, beyond=beyond), deps.store)
        visible = [message for message in messages if not message.sensitive]
        fits = sum(count_tokens(message.content) for message in visible) <= max_tokens
        if not beyond or (len(visible) >= _NEWEST and not fits):
            return messages
        count *= 4


def _is_far_behind(live: Checkpoint | None, messages: Sequence[Message]) -> bool:
    reach = live.reach if live else 0
    waiting = [it for it in messages if it.sequence_no > reach and not it.sensitive]
    return len(waiting) >= _FAR_BEHIND


async def _catch_up(
    scope: Scope, live: Checkpoint | None, state_tokens: int, deps: Deps
) -> Checkpoint | None:
    """The State brought up to date by rules; as it is where the store takes no writes."""
    try:
        return await summarize_session(scope, replace(deps, llm=None), budget=state_tokens)
    except Unavailable as error:
        log.warning("%s; session %s is summarised on the fly", error.message, scope.session_id)
        return live


def compose(
    messages: Sequence[Message], layers: Sequence[Layer], notes: Sequence[Note], max_tokens: int
) -> Context:
    """The context of a session; messages in the order of arrival, layers and notes oldest first.

    The messages may begin anywhere within the layers, if they are more than `max_tokens`.
    """
    texts = [message.content for message in messages[-_NEWEST:]] + [note.content for note in notes]
    chinese = speaks_chinese(texts)
    of_notes, of_summaries, of_messages = _HEADINGS[chinese]
    lines = [to_line(message, chinese) for message in messages]
    room = max_tokens - _cost(of_summaries, of_messages) - 1
    shown_notes = _last_fitting([_bullet(note) for note in notes], room // 4 - _cost(of_notes))
    kept = notes[len(notes) - shown_notes :]
    if kept:
        room -= _cost(of_notes, *map(_bullet, kept))
    transcript = _Transcript(messages, lines, layers, chinese, room)
    recent, written = transcript.recent()
    summaries = transcript.summaries(len(messages) - len(recent), room - _cost(*written))
    in_time = sorted(zip(recent, written, strict=True), key=lambda one: one[0].position)
    sections = [
        (of_notes, [_bullet(note) for note in kept]),
        (of_summaries, summaries),
        (of_messages, [line for _, line in in_time]),
    ]
    text = "\n".join("\n".join((heading, *body)) for heading, body in sections if body)
    return Context(
        summaries=tuple(summaries),
        messages=tuple(message for message, _ in in_time),
        notes=tuple(kept),
        tokens=count_tokens(text),
        full_tokens=count_tokens("\n".join(lines)) + _unread_tokens(messages, layers),
        text=text,
    )


@dataclass(frozen=True, slots=True)
class _Transcript:
    """A session's messages with their lines, its layers, and the tokens for both."""

    messages: Sequence[Message]
    lines: Sequence[str]
    layers: Sequence[Layer]
    chinese: bool
    room: int

    def recent(self) -> tuple[Sequence[Message], list[str]]:
        """The newest messages that fit beside the summaries; of a giant one, the beginning."""
        room = self.room - self._reserved()
        count = _last_fitting(self.lines, room)
        if count or not self.messages:
            start = len(self.messages) - count
            return self.messages[start:], list(self.lines[start:])
        return self.messages[-1:], [cut(self.lines[-1], room - 1)]

    def summaries(self, count: int, room: int) -> list[str]:
        """What stands for the first `count` messages, oldest first: the newer, the more of it."""
        older = self.messages[:count]
        if not older:
            return []
        reach = self.layers[-1].last if self.layers else 0
        gap = [message for message in older if message.sequence_no > reach]
        layers = [layer.text for layer in self.layers if layer.first <= older[-1].sequence_no]
        newest: list[str] = []
        if gap:
            sentences = sentences_of(gap, self.chinese)
            third = sum(count_tokens(message.content) for message in gap) // 3
            share = min(room // 2, third) if layers else room - 1
            newest = _written(summarise(sentences, share) if share >= _WORTH_WRITING else "")
            room -= _cost(*newest)
        whole = _last_fitting(layers, room if _cost(*layers) <= room else room // 2)
        rest, fitting = layers[: len(layers) - whole], layers[len(layers) - whole :]
        room -= _cost(*fitting)
        shortened: list[str] = []
        if rest and room >= _WORTH_WRITING:
            sentences = [one for text in rest for one in sentences_of_summary(text)]
            shortened = _written(summarise(sentences, room - 1))
        return [*shortened, *fitting, *newest]

    def _reserved(self) -> int:
        """Tokens that are kept for summaries: none if all fits verbatim, at most half."""
        if _cost(*self.lines) <= self.room:
            return 0
        needed = _cost(*(layer.text for layer in self.layers))
        reach = self.layers[-1].last if self.layers else 0
        pairs = zip(self.messages, self.lines, strict=True)
        waiting = _cost(*(line for message, line in pairs if message.sequence_no > reach))
        over = waiting + needed - self.room  # becomes a summary of about a third, see above
        return min(needed + (max(over // 3, _WORTH_WRITING * 2) if over > 0 else 0), self.room // 2)


def _unread_tokens(messages: Sequence[Message], layers: Sequence[Layer]) -> int:
    """Tokens of the messages that only layers tell of, as they were counted for the layers."""
    reach = layers[-1].last if layers else 0
    read = [it for it in messages if it.sequence_no <= reach and not it.sensitive]
    summarised = sum(layer.tokens for layer in layers)
    return max(summarised - count_lines(read), 0)


def _cost(*lines: str) -> int:
    """Tokens of lines with their ends; never less than those of the joined text."""
    return sum(count_tokens(line + "\n") for line in lines)


def _last_fitting(lines: Sequence[str], room: int) -> int:
    """How many of the last lines fit."""
    for count, line in enumerate(reversed(lines)):
        room -= _cost(line)
        if room < 0:
            return count
    return len(lines)


def _written(summary: str) -> list[str]:
    return [summary] if summary else []


def _bullet(note: Note) -> str:
    return "- " + " ".join(note.content.split())


async def save_checkpoint(scope: Scope, deps: Deps) -> Checkpoint:
    """Keep the short-term memory of a session as it is now: its layers and its notes."""
    for _ in range(_TRIES):
        live = await newest_checkpoint(scope, deps.store)
        notes = await short_term(scope, deps.store)
        if not notes and not await read_messages(deps.store, Where(scope), limit=1):
            raise NotFound(f"session {scope.session_id!r} has no messages and no notes")
        saved = next_checkpoint(scope, live, live.layers if live else (), notes, deps)
        present = (*notes, *((live,) if live else ()))  # what is deleted must not come back
        if not (await deps.store.apply(Batch(checkpoints=(saved,), present=present))).refused:
            return saved
    raise _conflict(scope)


def _conflict(scope: Scope) -> Unavailable:
    return Unavailable(f"conflicting updates of session {scope.session_id!r}, retry")


async def restore_checkpoint(scope: Scope, checkpoint_id: str | None, deps: Deps) -> Checkpoint:
    """Bring back the layers and notes of a checkpoint, the newest or a named one; messages stay.

    A deleted note whose messages are all deleted as well stays away.
    """
    for _ in range(_TRIES):
        restored = await _restore(scope, checkpoint_id, deps)
        if restored is not None:
            return restored
    raise _conflict(scope)


async def _restore(scope: Scope, checkpoint_id: str | None, deps: Deps) -> Checkpoint | None:
    """One try; None: the session has changed meanwhile, and nothing was written."""
    saved = await deps.store.checkpoints(scope, limit=CHECKPOINTS_KEPT)
    wanted = next((one for one in saved if checkpoint_id in (None, one.checkpoint_id)), None)
    if wanted is None:
        named = "" if checkpoint_id is None else f" {shown(checkpoint_id)}"
        raise NotFound(f"session {scope.session_id!r} has no checkpoint{named}")
    now = {note.id: note for note in await short_term(scope, deps.store)}
    notes = await _with_sources(wanted.notes, now, deps)
    gone = frozenset(now) - {note.id for note in notes}
    back = [note for note in notes if now.get(note.id) != note]
    back.sort(key=lambda note: note.id not in now)  # a new one must not merge into an outdated one
    fresh = next_checkpoint(scope, saved[0], wanted.layers, notes, deps)
    reason = f"restored {wanted.checkpoint_id}"
    applied = await deps.store.apply(
        Batch(
            drop=(Where(scope, ids=gone, kinds=SHORT_TERM),) if gone else (),
            notes=tuple(back),
            changes=tuple(_change(now.get(note.id), note, fresh.created, reason) for note in back),
            # To drop a row of a session drops its checkpoints: these are written again.
            checkpoints=(*(reversed(saved) if gone else ()), fresh),
            at=fresh.created,
            reason=reason,
            jobs=(*_embedding(scope, back, deps), *mirror_jobs(scope, (), fresh.created, deps)),
            present=(saved[0],),  # with any row of a session its checkpoints would be gone
        )
    )
    return None if applied.refused else fresh


async def _with_sources(
    notes: Sequence[Note], now: Mapping[str, Note], deps: Deps
) -> tuple[Note, ...]:
    """Notes with the sources that are left; one that has lost all must not come back with them."""
    sources = frozenset(name for note in notes for name in note.sources)
    if not sources:
        return tuple(notes)
    owner = Scope(notes[0].agent_id, notes[0].user_id)
    stored = await read_messages(deps.store, Where(owner, ids=sources), limit=len(sources))
    left = {message.id for message in stored}
    return tuple(
        replace(note, sources=tuple(name for name in note.sources if name in left))
        for note in notes
        if note.id in now or not note.sources or left.intersection(note.sources)
    )


def _change(before: Note | None, after: Note, at: int, reason: str) -> Change:
    line = Change(after.agent_id, after.user_id, after.id, "add", at, None, after.content, reason)
    return replace(line, event="update", before=before.content) if before else line


def _embedding(scope: Scope, notes: Sequence[Note], deps: Deps) -> tuple[Job, ...]:
    """The work that gives notes which are back their vectors again."""
    if deps.embedder is None or not notes:
        return ()
    now, ids = deps.clock(), tuple(note.id for note in notes)
    return (Job(new_id("j", now), "embed", Scope(scope.agent_id, scope.user_id), now, ids),)
