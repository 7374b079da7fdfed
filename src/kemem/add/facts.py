"""What the stages of add hand to each other: facts, the task that asks for them, decisions."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from kemem.add.parse import check_metadata, check_prompt
from kemem.errors import InvalidArgument
from kemem.records import Message, Micros, Note, Scope
from kemem.records.batch import Ending, Job
from kemem.records.times import to_rfc3339
from kemem.scope import Owner
from kemem.text.fingerprint import dated
from kemem.text.ids import new_id


@dataclass(frozen=True, slots=True)
class Triple:
    """One relation by the names of its ends.  李明 --studies_at--> 北京大学"""

    source: str
    relationship: str
    destination: str


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing worth remembering, understandable by itself, in the language it was said in."""

    text: str  # empty: what it replaces is over, and nothing is in its place
    sources: tuple[str, ...]  # ids of the messages that say it
    memory_type: str = "general"
    keywords: tuple[str, ...] = ()
    importance: float = 0.5  # 0-1
    when: Micros | None = None  # when it happens or happened; None: when it was said
    topic: str | None = None  # facts of one topic replace each other: "user/lives_in"
    replaces: tuple[str, ...] = ()  # ids of notes that it makes untrue
    relations: tuple[Triple, ...] = ()


@dataclass(frozen=True, slots=True)
class Extraction:
    """The facts of some messages, and the types of the entities that they speak of."""

    facts: tuple[Fact, ...] = ()
    entities: Mapping[str, str] = field(default_factory=dict)  # name -> person, place, …


@dataclass(frozen=True, slots=True)
class Task:
    """How notes are extracted from messages; a job keeps it as its details."""

    kind: str  # of the notes
    infer: bool = True  # False: each message becomes a note verbatim
    prompt: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    expires: Micros | None = None
    sensitive: bool = False

    @classmethod
    def parse(
        cls,
        memory_type: str | None,
        owner: Owner,
        *,
        infer: bool,
        prompt: object,
        metadata: object,
        sensitive: bool,
    ) -> "Task":
        """The task that the arguments of `add` describe; what nobody owns is knowledge."""
        if memory_type not in (None, "long", "short"):
            raise InvalidArgument(
                f"memory_type must be short or long, not {memory_type!r:.80}", field="memory_type"
            )
        long = "user_info" if owner.user_id else "knowledge"
        return cls(
            kind="short_term" if memory_type == "short" else long,
            infer=infer,
            prompt=check_prompt(prompt),
            metadata=check_metadata(metadata, "metadata"),
            sensitive=sensitive,
        )


@dataclass(frozen=True, slots=True)
class Work:
    """Messages of one session to extract notes from.

    Without a job the messages are not stored yet: they are written together with their notes.
    """

    scope: Scope
    task: Task
    messages: tuple[Message, ...]
    job: Job | None = None  # done as soon as the notes are written
    ending: Ending | None = None  # the session ends with it

    @property
    def owner(self) -> Scope:
        """Whose notes they become."""
        return Scope(self.scope.agent_id, self.scope.user_id)

    @property
    def new_messages(self) -> tuple[Message, ...]:
        """Messages that are stored together with their notes."""
        return () if self.job else self.messages

    def to_job(self, now: Micros, due: Micros) -> Job:
        """The promise of notes, to be stored with the messages."""
        ids = tuple(message.message_id for message in self.messages)
        return Job(new_id("j", now), "extract", self.scope, due, ids, details=asdict(self.task))


@dataclass(slots=True)
class Decision:
    """What becomes of one fact, and the notes that change with it."""

    fact: Fact
    note: Note | None  # new, or the known one that says it already; None: only an end was told
    known: bool = False
    ended: list[Note] = field(default_factory=list)  # as they are from now on


def digest(fact: Fact) -> str:
    """Equal for facts that say the same of the same day."""
    return dated(fact.text, None if fact.when is None else to_rfc3339(fact.when)[:10])


def new_note(fact: Fact, task: Task, scope: Scope, said: Micros, now: Micros) -> Note:
    """A fact as a note that has been true since it was said."""
    return Note(
        note_id=new_id("n", now),
        agent_id=scope.agent_id or "",
        user_id=scope.user_id or "",
        session_id=scope.session_id,
        kind=task.kind,
        content=fact.text,
        digest=digest(fact),
        ts=said if fact.when is None else fact.when,
        created=now,
        updated=now,
        valid_from=said,
        expires=task.expires,
        memory_type=fact.memory_type,
        keywords=fact.keywords,
        metadata=task.metadata,
        sources=fact.sources,
        topic=fact.topic,
        importance=fact.importance,
        sensitive=task.sensitive,
    )
