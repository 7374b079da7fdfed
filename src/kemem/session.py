"""The short-term memory of one session: what to put into a prompt, and checkpoints of it."""

import asyncio
import logging
from collections.abc import Collection, Sequence
from dataclasses import replace
from reprlib import repr as shown

from kemem import records
from kemem.add import summarize as state
from kemem.add.embed import mirror_jobs
from kemem.errors import InvalidArgument, NotFound, Unavailable
from kemem.ports import Deps, read_messages
from kemem.ports.entries import check_enabled, find_entry
from kemem.records import Checkpoint, Layer, Message, Note, Scope, Where
from kemem.records.batch import Batch, Job
from kemem.records.branches import current
from kemem.results import Context
from kemem.search.pages import branch
from kemem.text import summary
from kemem.text.ids import check_id, new_id
from kemem.text.language import count_tokens
from kemem.text.query import asks

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
    """The agent, user and session that a scope names, if that is one session, and none disabled."""
    entry = await find_entry(deps.store, "session", scope)
    found = Scope(entry.agent_id, entry.user_id or "", entry.id)
    await check_enabled(deps.store, found)
    return found


async def context(
    scope: Scope,
    max_tokens: int,
    deps: Deps,
    *,
    sensitive: bool = True,
    state_tokens: int = state.STATE_TOKENS,
    leaf: str | None = None,
) -> Context:
    """What to put into a prompt: notes, summaries of what is older, the newest messages verbatim.

    All that was said is there, verbatim or in a summary, as well as it fits into `max_tokens`.
    What is sensitive no State retells: it is missing where only a State is left of its time.
    It costs the same however long the session is: a State that has fallen far behind, as after an
    import, is brought up to date by rules first. Answers that were regenerated are not in it. With
    `leaf` it is about the branch that ends with that message, and no State tells of that.
    """
    if not isinstance(max_tokens, int) or max_tokens < LEAST_TOKENS:
        raise InvalidArgument(
            f"max_tokens must be at least {LEAST_TOKENS}, not {shown(max_tokens)}",
            field="max_tokens",
        )
    now, notes = deps.clock(), await state.short_term(scope, deps.store)
    notes = tuple(it for it in notes if not it.ended(now) and (sensitive or not it.sensitive))
    if leaf is not None:
        where = Where(scope, sensitive=sensitive)
        messages = await branch(where, check_id(leaf, "leaf"), deps)
        return await asyncio.to_thread(compose, messages, (), notes, max_tokens)
    live = await state.newest_checkpoint(scope, deps.store)
    messages = await _newest_messages(scope, live, max_tokens, deps)
    reach = live.reach if live else 0
    if sum(it.sequence_no > reach and not it.sensitive for it in messages) >= _FAR_BEHIND:
        try:
            by_rules = replace(deps, llm=None)
            live = await state.summarize_session(scope, by_rules, budget=state_tokens)
        except Unavailable as error:  # as where the store takes no writes
            log.warning("%s; session %s is summarised on the fly", error.message, scope.session_id)
        messages = await _newest_messages(scope, live, max_tokens, deps)
    visible = [message for message in messages if sensitive or not message.sensitive]
    layers = live.layers if live else ()
    return await asyncio.to_thread(compose, current(visible), layers, notes, max_tokens)


async def _newest_messages(
    scope: Scope, live: Checkpoint | None, max_tokens: int, deps: Deps
) -> list[Message]:
    """All messages beyond the State, and as many before them as a context could show."""
    reach, count = live.reach if live else 0, _NEWEST
    while True:
        beyond = max(reach - count, 0)
        messages = await state.session_messages(Where(scope, beyond=beyond), deps.store)
        visible = [message for message in messages if not message.sensitive]
        fits = sum(count_tokens(message.content) for message in visible) <= max_tokens
        if not beyond or (len(visible) >= _NEWEST and not fits):
            return messages
        count *= 4


def compose(
    messages: Sequence[Message], layers: Sequence[Layer], notes: Sequence[Note], max_tokens: int
) -> Context:
    """The context of a session; messages in the order of arrival, layers and notes oldest first.

    The messages may begin anywhere within the layers, if they are more than `max_tokens`.
    """
    texts = [message.content for message in messages[-_NEWEST:]] + [note.content for note in notes]
    chinese = summary.speaks_chinese(texts)
    of_notes, of_summaries, of_messages = _HEADINGS[chinese]
    lines = [state.to_line(message, chinese) for message in messages]
    room = max_tokens - _cost(of_summaries, of_messages) - 1
    bullets = ["- " + " ".join(note.content.split()) for note in notes]
    bullets = _last_fitting(bullets, room // 4 - _cost(of_notes))
    if bullets:
        room -= _cost(of_notes, *bullets)
    # What does not fit loses its politeness first.
    polite = _politeness(messages) if _cost(*lines) > room else set[int]()
    told = [at for at in range(len(messages)) if at not in polite]
    share = room - _reserved([(messages[at], lines[at]) for at in told], layers, room)
    # The newest messages that fit beside the summaries; of a giant one, the beginning.
    newest = _last_fitting([lines[at] for at in told], share)
    newest = newest or [summary.cut(lines[at], share - 1) for at in told[-1:]]
    shown = told[len(told) - len(newest) :]
    older = [messages[at] for at in told[: len(told) - len(newest)]]
    topic = next((one for one in map(messages.__getitem__, reversed(told)) if _opens(one)), None)
    summaries = _summaries(older, layers, topic, chinese, room - _cost(*newest))
    pairs = zip([messages[at] for at in shown], newest, strict=True)
    recent = sorted(pairs, key=lambda it: it[0].position)
    spoken = [line for _, line in recent]
    sections = ((of_notes, bullets), (of_summaries, summaries), (of_messages, spoken))
    text = "\n".join("\n".join((heading, *body)) for heading, body in sections if body)
    # Tokens of the messages that only layers tell of, as they were counted for the layers.
    reach = layers[-1].last if layers else 0
    read = [it for it in messages if it.sequence_no <= reach and not it.sensitive]
    unread = max(sum(layer.tokens for layer in layers) - state.count_lines(read), 0)
    return Context(
        summaries=tuple(summaries),
        messages=tuple(message for message, _ in recent),
        notes=tuple(notes[len(notes) - len(bullets) :]),
        tokens=count_tokens(text),
        full_tokens=count_tokens("\n".join(lines)) + unread,
        text=text,
    )


def _politeness(messages: Sequence[Message]) -> set[int]:
    """Where an exchange is politeness alone. It goes in pairs, so that speakers still take turns.

    "Got it, thanks!", "You're welcome."
    """
    polite, at = set[int](), 0
    while at + 1 < len(messages):
        asked = at > 0 and asks(messages[at - 1].content)
        one, two = messages[at], messages[at + 1]
        if {one.role, two.role} == {"user", "assistant"} and (
            summary.acknowledges(one.content, answer=asked) and summary.acknowledges(two.content)
        ):
            polite |= {at, at + 1}
            at += 1
        at += 1
    return polite if len(polite) < len(messages) else set()


def _opens(message: Message) -> bool:
    """Whether a message says what the conversation is about."""
    return message.role == "user" and not summary.acknowledges(message.content)


def _reserved(lines: Sequence[tuple[Message, str]], layers: Sequence[Layer], room: int) -> int:
    """Tokens that are kept for summaries: none if all fits verbatim, at most three fifths."""
    if _cost(*(line for _, line in lines)) <= room:
        return 0
    needed = _cost(*(layer.text for layer in layers))
    reach = layers[-1].last if layers else 0
    waiting = _cost(*(line for message, line in lines if message.sequence_no > reach))
    over = waiting + needed - room  # becomes a summary of about a third, see below
    more = max(over // 3, 2 * _WORTH_WRITING) if over > 0 else 0
    return min(max(needed + more, 2 * _WORTH_WRITING), room * 3 // 5)


def _summaries(
    older: Sequence[Message],
    layers: Sequence[Layer],
    topic: Message | None,
    chinese: bool,
    room: int,
) -> list[str]:
    """What stands for messages, oldest first: the newer, the more of it, and always the topic."""
    if not older:
        return []
    reach = layers[-1].last if layers else 0
    gap = [it for it in older if it.sequence_no > reach or it is topic]
    texts = [layer.text for layer in layers if layer.first <= older[-1].sequence_no]
    newest = shortened = ""
    if gap:
        third = sum(count_tokens(message.content) for message in gap) // 3
        share = min(room // 2, third) if texts else room - 1
        if topic in gap:
            share = max(share, min(2 * _WORTH_WRITING, room - 1))
        if share >= _WORTH_WRITING or topic in gap:
            newest = _summary(gap, topic, chinese, share)
        room -= _cost(newest) if newest else 0
    whole = _last_fitting(texts, room if _cost(*texts) <= room else room // 2)
    rest = texts[: len(texts) - len(whole)]
    room -= _cost(*whole)
    if rest and room >= _WORTH_WRITING:
        sentences = [one for text in rest for one in summary.sentences_of_summary(text)]
        shortened = summary.summarise(sentences, room - 1)
    return [*filter(None, [shortened]), *whole, *filter(None, [newest])]


def _summary(gap: Sequence[Message], topic: Message | None, chinese: bool, share: int) -> str:
    """A summary of messages; what tells most of the topic is in it however short it is."""
    talk = summary.sentences_of(gap, chinese)
    if topic is None or topic not in gap:
        return summary.summarise(talk, share)
    start = len(summary.sentences_of(gap[: gap.index(topic)], chinese))
    of_topic = summary.sentences_of([topic], chinese)
    first = start + summary.most_telling(of_topic) if of_topic else None
    return summary.summarise(talk, share, first=first)


def _cost(*lines: str) -> int:
    """Tokens of lines with their ends; never less than those of the joined text."""
    return sum(count_tokens(line + "\n") for line in lines)


def _last_fitting(lines: Sequence[str], room: int) -> list[str]:
    """As many of the last lines as fit."""
    start = len(lines)
    while start and (room := room - _cost(lines[start - 1])) >= 0:
        start -= 1
    return list(lines[start:])


async def save_checkpoint(scope: Scope, deps: Deps) -> Checkpoint:
    """Keep the short-term memory of a session as it is now: its layers and its notes."""
    for _ in range(_TRIES):
        live = await state.newest_checkpoint(scope, deps.store)
        notes = await state.short_term(scope, deps.store)
        if not notes and not await read_messages(deps.store, Where(scope), limit=1):
            raise NotFound(f"session {scope.session_id!r} has no messages and no notes")
        saved = state.next_checkpoint(scope, live, live.layers if live else (), notes, deps)
        present = (*notes, *((live,) if live else ()))  # what is deleted must not come back
        if not (await deps.store.apply(Batch(checkpoints=(saved,), present=present))).refused:
            return saved
    raise Unavailable(f"conflicting updates of session {scope.session_id!r}, retry")


async def restore_checkpoint(scope: Scope, checkpoint_id: str | None, deps: Deps) -> Checkpoint:
    """Bring back the layers and notes of a checkpoint, the newest or a named one; messages stay.

    A deleted note whose messages are all deleted as well stays away.
    """
    for _ in range(_TRIES):
        saved = await deps.store.checkpoints(scope, limit=records.CHECKPOINTS_KEPT)
        chosen = next((one for one in saved if checkpoint_id in (None, one.checkpoint_id)), None)
        if chosen is None:
            named = "" if checkpoint_id is None else f" {shown(checkpoint_id)}"
            raise NotFound(f"session {scope.session_id!r} has no checkpoint{named}")
        stored = {note.id: note for note in await state.short_term(scope, deps.store)}
        notes = await _with_sources(chosen.notes, stored, deps)
        gone = frozenset(stored) - {note.id for note in notes}
        back = [note for note in notes if stored.get(note.id) != note]
        back.sort(key=lambda note: note.id not in stored)  # none may merge into an outdated one
        fresh = state.next_checkpoint(scope, saved[0], chosen.layers, notes, deps)
        now, reason = fresh.created, f"restored {chosen.checkpoint_id}"
        jobs = mirror_jobs(scope, (), now, deps)
        if deps.embedder is not None and back:  # they get their vectors again
            ids, owner = tuple(note.id for note in back), Scope(scope.agent_id, scope.user_id)
            jobs += (Job(new_id("j", now), "embed", owner, deps.clock(), ids),)
        batch = Batch(
            drop=(Where(scope, ids=gone, kinds=records.SHORT_TERM),) if gone else (),
            notes=tuple(back),
            changes=tuple(_change(stored.get(note.id), note, now, reason) for note in back),
            # To drop a row of a session drops its checkpoints: these are written again.
            checkpoints=(*(reversed(saved) if gone else ()), fresh),
            at=now,
            reason=reason,
            jobs=jobs,
            present=(saved[0],),  # with any row of a session its checkpoints would be gone
        )
        if not (await deps.store.apply(batch)).refused:
            return fresh
    raise Unavailable(f"conflicting updates of session {scope.session_id!r}, retry")


async def _with_sources(
    notes: Sequence[Note], stored: Collection[str], deps: Deps
) -> tuple[Note, ...]:
    """Notes with the sources that are left; one that has lost all must not come back with them."""
    sources = frozenset(name for note in notes for name in note.sources)
    if not sources:
        return tuple(notes)
    owner = Scope(notes[0].agent_id, notes[0].user_id)
    messages = await read_messages(deps.store, Where(owner, ids=sources), limit=len(sources))
    left = {message.id for message in messages}
    return tuple(
        replace(note, sources=tuple(name for name in note.sources if name in left))
        for note in notes
        if note.id in stored or not note.sources or left.intersection(note.sources)
    )


def _change(before: Note | None, after: Note, at: int, reason: str) -> records.Change:
    owner = (after.agent_id, after.user_id)
    line = records.Change(*owner, after.id, "add", at, None, after.content, reason)
    return replace(line, event="update", before=before.content) if before else line
