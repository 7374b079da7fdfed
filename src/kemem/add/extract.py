"""The stage that extracts facts: one question to the model, or rules where there is no model."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Any

from kemem.add.branch import by_session, followed
from kemem.add.corrections import looks_like_correction, put_right, with_corrections
from kemem.add.grounding import Heard
from kemem.add.merge import Claim, added_by_model, merge, texts_of
from kemem.add.parse import Task
from kemem.add.prompt import (
    MAX_SHOWN_EARLIER,
    MAX_SHOWN_NOTES,
    MAX_SHOWN_OF_MESSAGE,
    question,
    read_claims,
    schema_of,
)
from kemem.add.quotes import Quoted, fingerprints
from kemem.add.rules import VERBATIM, Extraction, Fact, rate, read_by_rules
from kemem.add.types import own_types
from kemem.errors import Unavailable
from kemem.facts.worth import EMBEDDER, Vectors
from kemem.ports import Deps, read_messages, read_notes, too_long
from kemem.records import NOTES, Message, Micros, Note, Scope, Where
from kemem.records.batch import Job, JobKind
from kemem.records.ontology import OWN_TYPE
from kemem.records.times import to_rfc3339
from kemem.search.recipe import nearest_notes
from kemem.text.ids import new_id, without_bidi
from kemem.text.language import count_tokens
from kemem.text.segment import dated, fingerprint

_USER_NAMES = ("user/name", "user/nickname")  # topics of the notes that tell it
_QUERY_CHARACTERS = 1_000  # of a conversation that stored notes are looked up by
_MAX_FINGERPRINTS = 5_000  # of lines that are looked up; a database binds no more at once
_ANSWER_TOKENS = 500  # of a context that are left for the answer
_SURELY_FITS = 2_000  # tokens, which every model in use reads
_LEAST_SHOWN = 400  # characters of a message; where these are too many, the context is too small
_SHORT = 1_000  # characters whose fingerprints take no longer than to start a thread's work
_MAX_QUOTED = 1_000  # notes that messages may quote
_LOOKED_AT = 2 * MAX_SHOWN_NOTES  # as some may be drawn from the same messages

# Among a job's details:
READ = "read"  # the ids of messages whose facts by rules are stored
SINCE = "since"  # when its first message came, of a job that has waited for more of them

log = logging.getLogger("kemem")


@dataclass(frozen=True, slots=True)
class Work:
    """Messages of one session to extract notes from."""

    scope: Scope
    task: Task
    messages: tuple[Message, ...] = ()
    job: Job | None = None  # done as soon as the notes are written; None: nothing is stored yet
    rest: Job | None = None  # what the job becomes instead, where a model is still to be asked

    @property
    def owner(self) -> Scope:
        """Whose notes they become."""
        return Scope(self.scope.agent_id, self.scope.user_id)

    @property
    def keeps_rules(self) -> bool:
        """Whether what rules read is kept beside what a model says.

        Whoever tells the model what is worth extracting wants nothing else.
        """
        return self.task.infer and self.task.kind != "knowledge" and not self.task.prompt

    @property
    def unread(self) -> tuple[Message, ...]:
        """The messages whose facts by rules are not stored yet."""
        read = {*self.job.details.get(READ, ())} if self.job else set[str]()
        return tuple(it for it in self.messages if it.message_id not in read)

    @classmethod
    def of(cls, job: Job, messages: Sequence[Message] = ()) -> "Work":
        """What a job promised."""
        return cls(job.scope, Task(**asked(job)), tuple(messages), job)

    def to_job(self, kind: JobKind, now: Micros, due: Micros) -> Job:
        """The promise of notes, to be stored with the messages."""
        ids = tuple(message.message_id for message in self.messages)
        return Job(new_id("j", now), kind, self.scope, due, ids, details=asdict(self.task))


def asked(job: Job) -> dict[str, Any]:
    """The task that a job keeps in its details."""
    return {name: value for name, value in job.details.items() if name not in (READ, SINCE)}


async def extract_facts(work: Work, deps: Deps) -> Extraction:
    """The facts of messages, by the LLM or by rules; Unavailable when the model fails."""
    if not work.task.infer:
        return Extraction()
    source, short = readable(work.messages), sum(len(it.content) for it in work.messages) <= _SHORT
    lines = fingerprints(source) if short else await asyncio.to_thread(fingerprints, source)
    if not lines:
        return Extraction()
    # One read: notes that lines may quote, as what was recalled is not said again; and those that
    # tell the user's name.
    marks = (mark for _, own in lines for some in own.values() for mark in some)
    looked_up = frozenset((*_USER_NAMES, *islice(marks, _MAX_FINGERPRINTS)))
    where = Where(work.owner, kinds=NOTES, marks=looked_up, valid_at=deps.clock())
    notes = await read_notes(deps.store, where, limit=_MAX_QUOTED)
    keeps_words = work.task.kind == "knowledge" and deps.llm is None
    quoted = Quoted([it for it in notes if not _is_drawn(it, work)], keeps_words)
    messages = [
        replace(message, content="\n".join(new_lines))
        for message, own in lines
        if (new_lines := [it for it, some in own.items() if not quoted.by(message, it, some)])
    ]
    shared = {note.digest for note in notes if note.kind == work.task.kind == "knowledge"}
    repeated = tuple(  # by somebody, not by a search, whose results have a bullet
        verbatim_fact(message)
        for message, own in lines
        if shared.intersection(*own.values())
        if fingerprint(message.content) in shared and not message.content.startswith("- ")
    )
    if not messages:
        return Extraction(repeated)
    is_shared = work.task.kind == "knowledge"
    if is_shared and deps.llm is None:
        return Extraction((*repeated, *map(verbatim_fact, messages)))
    visible = [note for note in notes if work.task.sensitive or not note.sensitive]
    name = _user_name([note for note in visible if note.kind == "user_info"])
    taken_back = any(looks_like_correction(it.content) for it in messages)
    earlier = readable(await _earlier(messages, work, deps)) if deps.llm or taken_back else []
    shown = await _notes_to_show(messages, work, deps) if deps.llm else []
    attempts = work.job.attempts if work.job else 1
    extraction = await extract(
        *(messages, shown, work.task.prompt, deps, earlier),
        name=name,
        kept=work.keeps_rules,
        stored=work.keeps_rules and not work.unread,
        attempts=attempts,
    )
    return replace(extraction, facts=repeated + extraction.facts)


def readable(messages: Sequence[Message]) -> list[Message]:
    """Messages as notes are extracted from them: a note reads as everybody sees it."""
    return [replace(it, content=without_bidi(it.content)) for it in messages]


def _is_drawn(note: Note, work: Work) -> bool:
    """Whether a note was drawn by rules from the messages that a model reads now."""
    read = {it.message_id for it in work.messages} - {it.message_id for it in work.unread}
    return bool(note.sources) and read.issuperset(note.sources)


async def _claims(
    messages: Sequence[Message],
    notes: Sequence[Note],
    prompt: str | None,
    earlier: Sequence[Message],
    attempts: int,
    deps: Deps,
) -> list[Claim]:
    """What the model says of messages; of half of them at a time where all are too long for it."""
    ontology = await deps.ontology.read(deps.store)
    asked = question(messages, notes, prompt, earlier, ontology)
    size = sum(count_tokens(it["content"]) for it in asked) + _ANSWER_TOKENS
    try:
        context = await _context(size, deps)
        if 0 < context < size:
            raise too_long(context)
        schema = schema_of(ontology)
        answer = await deps.ask(asked, schema, expected=_ANSWER_TOKENS, attempts=attempts)
        return read_claims(answer, asked, len(notes), ontology)
    except Unavailable as error:
        if "cut" in error.details:
            log.warning("%s; it adds no facts", error.message)
            return []
        if "context" not in error.details:
            raise
        if earlier:  # first goes what only helps to understand
            return await _claims(messages, notes, prompt, (), attempts, deps)
        if len(messages) == 1:
            text = messages[0].content[:MAX_SHOWN_OF_MESSAGE]
            if len(text) < _LEAST_SHOWN:
                raise Unavailable(f"{error.message}: about {size} tokens") from error
            half = [replace(messages[0], content=text[: len(text) // 2])]
            return await _claims(half, notes, prompt, (), attempts, deps)
        middle = len(messages) // 2
        parts = (messages[:middle], messages[middle:])
        return [it for own in parts for it in await _claims(own, notes, prompt, (), attempts, deps)]


async def _context(size: int, deps: Deps) -> int:
    """The tokens of the model's context, 0 where they are not known.

    A server is asked only for a prompt that may not fit: every model in use reads a short one.
    """
    known: int = deps.llm_context or getattr(deps.llm, "context", 0)
    ask = getattr(deps.llm, "ask_context", None)
    return known if known or ask is None or size <= _SURELY_FITS else await ask()


def _user_name(notes: Sequence[Note]) -> str | None:
    names = {it.topic: it.keywords[0] for it in reversed(notes) if it.keywords}
    return next(filter(None, map(names.get, _USER_NAMES)), None)


async def _embedded(texts: Sequence[str], deps: Deps) -> Vectors | None:
    """The embeddings that clauses are rated by; None for an embedder that no weights are for."""
    if deps.embedder is None or deps.embedder.name != EMBEDDER or not texts:
        return None
    try:
        matrix = await deps.embed(texts, purpose="passage")
    except Unavailable as error:
        log.warning("%s; clauses are rated by their words", error.message)
        return None
    return dict(zip(texts, matrix, strict=True))


def verbatim_fact(message: Message) -> Fact:
    """A message as a fact of its own."""
    return Fact(message.content, (message.message_id,), memory_type=VERBATIM)


def digest(fact: Fact) -> str:
    """Equal for facts that say the same of the same day."""
    return dated(fact.text, None if fact.when is None else to_rfc3339(fact.when)[:10])


def new_note(fact: Fact, task: Task, scope: Scope, since: Micros, now: Micros) -> Note:
    """A fact as a note that has been true since it was said."""
    own = {OWN_TYPE: fact.own_type} if fact.own_type else {}
    return Note(
        note_id=new_id("n", now),
        agent_id=scope.agent_id or "",
        user_id=scope.user_id or "",
        session_id=scope.session_id,
        kind=task.kind,
        content=fact.text,
        digest=digest(fact),
        ts=since if fact.when is None else fact.when,
        created=now,
        updated=now,
        valid_from=since,
        expires=task.expires,
        memory_type=fact.memory_type,
        keywords=fact.keywords,
        metadata={**own, **task.metadata},
        sources=fact.sources,
        topic=fact.topic,
        importance=fact.importance,
        sensitive=task.sensitive,
    )


async def _earlier(messages: Sequence[Message], work: Work, deps: Deps) -> list[Message]:
    """What was said just before in the same session: without it a model cannot read an answer."""
    if work.scope.session_id is None or (work.job and work.job.attempts > 1):
        return []  # where a model has failed, it may be what the model refuses
    return await _said_before(messages[0], Where(work.scope, sensitive=work.task.sensitive), deps)


async def _said_before(first: Message, where: Where, deps: Deps) -> list[Message]:
    """The last messages before one, on its branch."""
    if first.parent_message_id is not None:
        return await followed(first, where, MAX_SHOWN_EARLIER, deps)
    before = await read_messages(deps.store, where, after=first.position, limit=MAX_SHOWN_EARLIER)
    return before[::-1]


async def mark_corrections(messages: Sequence[Message], deps: Deps) -> list[Message]:
    """New messages, of which those that correct a sensitive one are sensitive as well."""
    if not any(looks_like_correction(it.content) for it in messages if not it.sensitive):
        return list(messages)
    marked = set[str]()
    for scope, own in by_session(messages).items():
        earlier = await _said_before(own[0], Where(scope, sensitive=True), deps)
        right, _ = put_right(own, earlier)
        last = next((it.sensitive for it in reversed(earlier) if it.role == "user"), False)
        for message, read in zip(own, right, strict=True):
            if message.role != "user":
                continue
            # Where it is unclear of what, it still may have the right value of a secret.
            last = read.sensitive or (last and looks_like_correction(message.content))
            marked |= {message.message_id} if last else set()
    return [replace(it, sensitive=it.sensitive or it.message_id in marked) for it in messages]


async def _notes_to_show(messages: Sequence[Message], work: Work, deps: Deps) -> list[Note]:
    """Stored notes for the model: those nearest to what was said, then the newest."""
    # What is sensitive could be retold: it is shown only for what is sensitive itself.
    kinds, sensitive = frozenset({work.task.kind}), work.task.sensitive
    where = Where(work.owner, kinds=kinds, valid_at=deps.clock(), sensitive=sensitive)
    newest = await read_notes(deps.store, where, limit=_LOOKED_AT)
    nearest: Sequence[Note] = ()
    if len(newest) == _LOOKED_AT:  # there are more
        text = "\n".join(message.content for message in messages)[:_QUERY_CHARACTERS]
        nearest = await nearest_notes(text, where, _LOOKED_AT, deps)
    # What rules have made of the same messages is not shown, but what was true before them is.
    drawn = {it.note_id: it for it in newest if _is_drawn(it, work)}
    ended = frozenset(it.supersedes for it in drawn.values() if it.supersedes)
    before = replace(where, valid_at=None, ids=ended)
    earlier = await read_notes(deps.store, before, limit=len(ended)) if ended else []
    notes = {it.note_id: it for it in (*earlier, *nearest, *newest) if it.note_id not in drawn}
    return list(notes.values())[:MAX_SHOWN_NOTES]


async def extract(
    messages: Sequence[Message],
    notes: Sequence[Note],
    prompt: str | None,
    deps: Deps,
    earlier: Sequence[Message] = (),
    *,
    name: str | None = None,
    kept: bool = True,
    stored: bool = False,
    attempts: int = 1,
) -> Extraction:
    """The facts of some messages; Unavailable where the model gives no usable answer.

    `notes` are those that the model may declare untrue; `prompt` is advice of the caller's;
    `earlier` messages tell a model what "yes, that" means, and rules what "no, I meant" corrects;
    `name` is the user's. What rules read is kept beside what a model says, if it is to be `kept`;
    where it is `stored` already, only what the model adds to it is returned. The more `attempts`
    there were, the longer a model is waited for.
    """
    right, corrections = put_right(messages, earlier)
    # Not on the event loop: a long message takes a second.
    reading = await asyncio.to_thread(read_by_rules, right, name)
    vectors = await _embedded(reading.texts(), deps)
    own = await own_types(reading, vectors, deps)
    rated = await asyncio.to_thread(rate, reading, vectors, own=own)
    local = with_corrections(rated, reading, corrections)
    if deps.llm is None:
        return Extraction(changes=local.changes) if stored else local
    shown = notes[:MAX_SHOWN_NOTES]
    claims = await _claims(messages, shown, prompt, earlier, attempts, deps)
    heard = Heard(messages, reading, local, shown, name, earlier)
    vectors = await _embedded(texts_of(claims, heard), deps)
    merged = await asyncio.to_thread(merge, claims, heard, deps.llm.name, vectors, kept=kept)
    return added_by_model(merged, local) if stored else merged
