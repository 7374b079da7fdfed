"""The stage that extracts facts: one question to the model, or rules where there is no model."""

import asyncio
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib.resources import files
from itertools import islice
from typing import Any

from kemem.add.branch import followed
from kemem.add.corrections import looks_like_correction, put_right, with_corrections
from kemem.add.parse import Task
from kemem.add.quotes import Quoted, fingerprints
from kemem.add.rules import VERBATIM, Extraction, Fact, Triple, rate, read_by_rules
from kemem.errors import InvalidArgument, Unavailable
from kemem.facts.worth import EMBEDDER, Vectors
from kemem.ports import Deps, Prompt, read_messages, read_notes
from kemem.records import NOTES, Message, Micros, Note, Scope, Where
from kemem.records.batch import Job, JobKind
from kemem.records.times import to_micros, to_rfc3339
from kemem.search.recipe import nearest_notes
from kemem.text.ids import new_id
from kemem.text.language import is_chinese
from kemem.text.segment import dated, fingerprint, normalise

MAX_FACTS = 50
MAX_FACT_CHARACTERS = 1_000
MAX_KEYWORDS = 10
MAX_ENTITIES = 100
MAX_RELATIONS = 20  # of one fact
MAX_NAME_CHARACTERS = 200
MAX_LABEL_CHARACTERS = 64  # of a type, a relationship or a keyword

# What the model is shown.
MAX_SHOWN_CHARACTERS = 24_000
MAX_SHOWN_OF_MESSAGE = 4_000
MAX_SHOWN_EARLIER = 4  # messages before those that are extracted from
MAX_SHOWN_OF_EARLIER = 500
MAX_SHOWN_NOTES = 10
MAX_SHOWN_OF_NOTE = 300
MAX_SHOWN_OF_PROMPT = 4_000

_USER_NAMES = ("user/name", "user/nickname")  # topics of the notes that tell it
_QUERY_CHARACTERS = 1_000  # of a conversation that stored notes are looked up by
_MAX_FINGERPRINTS = 5_000  # of lines that are looked up; a database binds no more at once
_SHORT = 1_000  # characters whose fingerprints take no longer than to start a thread's work
_MAX_QUOTED = 1_000  # notes that messages may quote
_BLOCK = re.compile(r"<(?=\s*/?\s*(?:earlier|conversation|memories|instructions))", re.IGNORECASE)
_LABEL = re.compile(r"[a-z][a-z0-9_]*", re.ASCII)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_NUMBER = re.compile(r"[\[(]?M?(\d{1,6})[\])]?", re.ASCII)  # "2", "[2]", "M2", "(M2)"

Item = Mapping[str, Any]  # an object in the answer of a model
log = logging.getLogger("kemem")


def object_schema(**fields: Any) -> dict[str, Any]:
    """An object that has all of these fields and no other, as strict schemas demand."""
    properties = {"properties": fields, "required": list(fields)}
    return {"type": "object", **properties, "additionalProperties": False}


def list_schema(item: Mapping[str, Any]) -> dict[str, Any]:
    """A list of such items."""
    return {"type": "array", "items": item}


_TEXT, _INTEGERS = {"type": "string"}, list_schema({"type": "integer"})
_RELATION = object_schema(source=_TEXT, relationship=_TEXT, destination=_TEXT)
_FACT = object_schema(
    text=_TEXT,
    type=_TEXT,
    keywords=list_schema(_TEXT),
    importance={"type": "number"},
    date={"type": ["string", "null"]},
    sources=_INTEGERS,
    replaces=_INTEGERS,
    relations=list_schema(_RELATION),
)
_ENTITY = object_schema(name=_TEXT, type=_TEXT)
SCHEMA = object_schema(facts=list_schema(_FACT), entities=list_schema(_ENTITY))


@dataclass(frozen=True, slots=True)
class Work:
    """Messages of one session to extract notes from."""

    scope: Scope
    task: Task
    messages: tuple[Message, ...] = ()
    job: Job | None = None  # done as soon as the notes are written; None: nothing is stored yet

    @property
    def owner(self) -> Scope:
        """Whose notes they become."""
        return Scope(self.scope.agent_id, self.scope.user_id)

    @classmethod
    def of(cls, job: Job, messages: Sequence[Message] = ()) -> "Work":
        """What a job promised."""
        return cls(job.scope, Task(**job.details), tuple(messages), job)

    def to_job(self, kind: JobKind, now: Micros, due: Micros) -> Job:
        """The promise of notes, to be stored with the messages."""
        ids = tuple(message.message_id for message in self.messages)
        return Job(new_id("j", now), kind, self.scope, due, ids, details=asdict(self.task))


async def extract_facts(work: Work, deps: Deps) -> Extraction:
    """The facts of messages, by the LLM or by rules; Unavailable when the model fails."""
    if not work.task.infer:
        return Extraction()
    source, short = work.messages, sum(len(it.content) for it in work.messages) <= _SHORT
    lines = fingerprints(source) if short else await asyncio.to_thread(fingerprints, source)
    if not lines:
        return Extraction()
    # One read: notes that lines may quote, as what was recalled is not said again; and for rules
    # those that tell the user's name.
    marks = (mark for _, own in lines for some in own.values() for mark in some)
    names = () if deps.llm else _USER_NAMES
    looked_up = frozenset((*names, *islice(marks, _MAX_FINGERPRINTS)))
    where = Where(work.owner, kinds=NOTES, marks=looked_up, valid_at=deps.clock())
    notes = await read_notes(deps.store, where, limit=_MAX_QUOTED)
    keeps_words = work.task.kind == "knowledge" and deps.llm is None
    quoted = Quoted(notes, keeps_words)
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
    if deps.llm is not None:
        shown = await _notes_to_show(messages, work, deps)
        earlier = await _earlier(messages, work, deps)
        extraction = await extract(messages, shown, work.task.prompt, deps, earlier)
        return replace(extraction, facts=repeated + extraction.facts)
    if work.task.kind == "knowledge":
        return Extraction((*repeated, *map(verbatim_fact, messages)))
    visible = [note for note in notes if work.task.sensitive or not note.sensitive]
    own = [note for note in visible if note.kind == "user_info"]
    taken_back = any(looks_like_correction(it.content) for it in messages)
    earlier = await _earlier(messages, work, deps) if taken_back else []
    return await extract(messages, own, None, deps, earlier)


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
        metadata=task.metadata,
        sources=fact.sources,
        topic=fact.topic,
        importance=fact.importance,
        sensitive=task.sensitive,
    )


async def _earlier(messages: Sequence[Message], work: Work, deps: Deps) -> list[Message]:
    """What was said just before in the same session: without it a model cannot read an answer."""
    if work.scope.session_id is None or (work.job and work.job.attempts > 1):
        return []  # where a model has failed, it may be what the model refuses
    where, first = Where(work.scope, sensitive=work.task.sensitive), messages[0]
    if first.parent_message_id is not None:
        return await followed(first, where, MAX_SHOWN_EARLIER, deps)
    before = await read_messages(deps.store, where, after=first.position, limit=MAX_SHOWN_EARLIER)
    return before[::-1]


async def _notes_to_show(messages: Sequence[Message], work: Work, deps: Deps) -> list[Note]:
    """Stored notes for the model: those nearest to what was said, then the newest."""
    # What is sensitive could be retold: it is shown only for what is sensitive itself.
    kinds, sensitive = frozenset({work.task.kind}), work.task.sensitive
    where = Where(work.owner, kinds=kinds, valid_at=deps.clock(), sensitive=sensitive)
    newest = await read_notes(deps.store, where, limit=MAX_SHOWN_NOTES)
    if len(newest) < MAX_SHOWN_NOTES:  # that is all there is
        return newest
    text = "\n".join(message.content for message in messages)[:_QUERY_CHARACTERS]
    nearest = await nearest_notes(text, where, MAX_SHOWN_NOTES, deps)
    notes = {note.note_id: note for note in (*nearest, *newest)}
    return list(notes.values())[:MAX_SHOWN_NOTES]


async def extract(
    messages: Sequence[Message],
    notes: Sequence[Note],
    prompt: str | None,
    deps: Deps,
    earlier: Sequence[Message] = (),
) -> Extraction:
    """The facts of some messages; Unavailable where the model gives no usable answer.

    `notes` are those that the model may declare untrue, and that tell rules the user's name;
    `prompt` is advice of the caller's; `earlier` messages tell a model what "yes, that" means, and
    rules what "no, I meant" corrects.
    """
    if deps.llm is None:
        names = {it.topic: it.keywords[0] for it in reversed(notes) if it.keywords}
        name = next(filter(None, map(names.get, _USER_NAMES)), None)
        right, corrections = put_right(messages, earlier)
        # Not on the event loop: a long message takes a second.
        reading = await asyncio.to_thread(read_by_rules, right, name)
        vectors = await _embedded(reading.texts(), deps)
        rated = await asyncio.to_thread(rate, reading, vectors)
        return with_corrections(rated, reading, corrections)
    shown = notes[:MAX_SHOWN_NOTES]
    memories = enumerate((_indented(note.content, MAX_SHOWN_OF_NOTE) for note in shown), start=1)
    blocks = {
        "earlier": [_message_line(it, MAX_SHOWN_OF_EARLIER) for it in earlier],
        "conversation": list(_within_limit(messages)),
        "memories": [f"(M{number}) {text}" for number, text in memories],
        "instructions": [_indented(prompt, MAX_SHOWN_OF_PROMPT)] if prompt else [],
    }
    day = max((message.ts for message in messages), default=0)
    texts = [f"Date of the conversation: {to_rfc3339(day)[:10]}"]
    for name, lines in blocks.items():
        if lines:
            texts.append("\n".join([f"<{name}>", *lines, f"</{name}>"]))
    chinese = is_chinese("\n".join(message.content for message in messages))
    question: Prompt = [
        {"role": "system", "content": instructions("zh" if chinese else "en")},
        {"role": "user", "content": "\n\n".join(texts)},
    ]
    return _read(await deps.ask(question, SCHEMA), messages, shown)


@cache
def instructions(language: str, stage: str = "extract") -> str:
    """What the model is told to do, in the language of the conversation: zh or en."""
    return (files(__package__) / f"{stage}_{language}.md").read_text("utf-8")


def _within_limit(messages: Sequence[Message]) -> Iterator[str]:
    """The messages by their numbers, as many as may be shown."""
    left = MAX_SHOWN_CHARACTERS
    for number, message in enumerate(messages, start=1):
        if left <= 0:
            log.warning("%d messages were too long to extract from", len(messages) - number + 1)
            return
        line = f"[{number}] {_message_line(message, min(left, MAX_SHOWN_OF_MESSAGE))}"
        left -= len(line)
        yield line


def _message_line(message: Message, most: int) -> str:
    """A message as a model reads it:  "2026-01-01 user 李明: 我不吃辣" """
    speaker = _clean(message.metadata.get("speaker"))[:MAX_LABEL_CHARACTERS]
    who = _BLOCK.sub("< ", f"{message.role} {speaker}".strip())
    return f"{to_rfc3339(message.ts)[:10]} {who}: {_indented(message.content, most)}"


def _indented(text: str, most: int) -> str:
    """A text that can open no line and no block of its own: data cannot pose as anything else."""
    shown = text if len(text) <= most else text[:most] + "…"
    return "\n    ".join(_BLOCK.sub("< ", shown).splitlines())


def _read(answer: object, messages: Sequence[Message], notes: Sequence[Note]) -> Extraction:
    """Reads an answer, of which nothing is trusted: what is wrong is left out, item by item."""
    fields = answer if isinstance(answer, Mapping) else {"facts": answer}
    items, listed = fields.get("facts"), fields.get("entities")
    if not isinstance(items, list):
        raise Unavailable("the model answered without a list of facts")
    if isinstance(listed, Mapping):  # of names to types
        listed = [{"name": name, "type": kind} for name, kind in listed.items()]
    entities: dict[str, str] = {}
    for item in _objects(listed):
        name = _name(item.get("name"))
        if name and len(entities) < MAX_ENTITIES:
            entities.setdefault(name, _label(item.get("type"), "thing"))
    read = (_fact(item, messages, notes, entities) for item in _objects(items))
    facts = tuple(islice((fact for fact in read if fact is not None), MAX_FACTS))
    if items and not facts:
        raise Unavailable(f"the model answered {len(items)} facts, none of them readable")
    return Extraction(facts, entities)


def _fact(
    item: Item, messages: Sequence[Message], notes: Sequence[Note], entities: Iterable[str]
) -> Fact | None:
    text = _clean(item.get("text"))[:MAX_FACT_CHARACTERS]
    numbers = _numbers(item.get("replaces"))
    invented = [number for number in numbers if not 1 <= number <= len(notes)]
    if invented:
        log.warning("the model replaces memories that it was not shown: %s", invented[:10])
    replaces = tuple(notes[it - 1].note_id for it in numbers if it not in invented)
    if not text and not replaces:
        return None
    ids = [message.message_id for message in messages]
    cited = [ids[it - 1] for it in _numbers(item.get("sources")) if 1 <= it <= len(ids)]
    users = [message.message_id for message in messages if message.role == "user"]
    words, importance = item.get("keywords"), item.get("importance")
    cleaned = map(_clean, words if isinstance(words, list) else ())
    keywords = [word for word in cleaned if 0 < len(word) <= MAX_LABEL_CHARACTERS]
    if isinstance(importance, bool) or not isinstance(importance, int | float):
        importance = 0.5
    return Fact(
        text=text,
        sources=tuple(cited or users or ids),
        memory_type=_label(item.get("type"), "general"),
        keywords=tuple(dict.fromkeys(keywords))[:MAX_KEYWORDS],
        importance=float(min(max(importance, 0), 1)),
        when=_when(item.get("date")),
        replaces=replaces,
        relations=_relations(item.get("relations"), entities),
    )


def _relations(value: object, entities: Iterable[str]) -> tuple[Triple, ...]:
    """Relations between entities that are listed, by their listed names."""
    names = {normalise(name): name for name in entities}
    triples: dict[Triple, None] = {}
    for item in _objects(value):
        source = names.get(normalise(_name(item.get("source"))))
        destination = names.get(normalise(_name(item.get("destination"))))
        relationship = _snake(item.get("relationship"))
        if source and destination and relationship and len(triples) < MAX_RELATIONS:
            triples[Triple(source, relationship, destination)] = None
    return tuple(triples)


def _objects(value: object) -> list[Item]:
    """The objects in what should be a list of objects."""
    items = value if isinstance(value, list) else []
    return [item for item in items if isinstance(item, Mapping)]


def _clean(value: object) -> str:
    """A text that every store can keep, on one line; empty where there is no text."""
    if not isinstance(value, str):
        return ""
    text = value[: 4 * MAX_FACT_CHARACTERS].encode("utf-8", "ignore").decode()
    return " ".join(text.replace("\0", " ").split())


def _name(value: object) -> str:
    name = _clean(value)
    return name if len(name) <= MAX_NAME_CHARACTERS else ""


def _snake(value: object) -> str:
    """A label for programs.  "Studies at" -> "studies_at"; "导师" stays."""
    spaced = _CAMEL.sub("_", _clean(value)[:MAX_NAME_CHARACTERS])
    return re.sub(r"\W+", "_", spaced.casefold()).strip("_")[:MAX_LABEL_CHARACTERS]


def _label(value: object, otherwise: str) -> str:
    label = _snake(value)
    return label if _LABEL.fullmatch(label) else otherwise


def _when(value: object) -> Micros | None:
    """A date or a time as the model wrote it; without a zone it is UTC."""
    for written in (value, f"{value}Z", f"{value}T00:00:00Z") if isinstance(value, str) else ():
        try:
            return to_micros(written, "date")
        except InvalidArgument:
            continue
    return None


def _numbers(value: object) -> list[int]:
    """The numbers in what should be a list of numbers, each once.  [1, "M2", None] -> [1, 2]"""
    numbers: dict[int, None] = {}
    for each in value if isinstance(value, list) else [value]:
        if isinstance(each, int) and not isinstance(each, bool):
            numbers[each] = None
        elif isinstance(each, str) and (match := _NUMBER.fullmatch(each)):
            numbers[int(match[1])] = None
    return list(numbers)
