"""What the stages of add hand to each other."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from hashlib import blake2b
from typing import Any

from kemem.add.extraction import Fact
from kemem.add.parse import check_metadata, check_prompt
from kemem.batch import Job
from kemem.errors import InvalidArgument
from kemem.ports import Deps
from kemem.records import Micros, Note, Scope
from kemem.scope import Owner
from kemem.text.fingerprint import dated
from kemem.text.ids import new_id
from kemem.times import to_rfc3339


@dataclass(frozen=True, slots=True)
class Task:
    """How notes are drawn from messages."""

    kind: str  # of the notes
    infer: bool = True  # False: messages become notes word by word
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

    def to_details(self) -> dict[str, Any]:
        """The task as a job keeps it."""
        return {**asdict(self), "metadata": dict(self.metadata)}

    @classmethod
    def from_details(cls, details: Mapping[str, Any]) -> "Task":
        """The task of a job."""
        return cls(**details)


@dataclass(frozen=True, slots=True)
class Place:
    """Where notes belong: what the messages have in common that they are drawn from."""

    agent_id: str
    user_id: str
    session_id: str | None


@dataclass(slots=True)
class Decision:
    """What became of one fact, and the notes that change with it."""

    fact: Fact
    note: Note | None  # new, or the known one that says it already; None: only an end was told
    known: bool = False
    ended: list[Note] = field(default_factory=list)  # as they are from now on


def digest(fact: Fact) -> str:
    """Equal for facts that say the same of the same day."""
    return dated(fact.text, None if fact.when is None else to_rfc3339(fact.when)[:10])


def new_note(fact: Fact, task: Task, place: Place, said: Micros, now: Micros) -> Note:
    """A fact as a note that has been true since it was said."""
    return Note(
        note_id=new_id("n", now),
        agent_id=place.agent_id,
        user_id=place.user_id,
        session_id=place.session_id,
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


def mirror_jobs(scope: Scope, ids: Sequence[str], now: Micros, deps: Deps) -> tuple[Job, ...]:
    """The job that carries changed rows over to the databases beside the store, if there are any.

    Without ids all of the scope is carried over again.
    """
    if deps.graph is None and deps.vectors is None:
        return ()
    return (Job(new_id("j", now), "mirror", scope, now, tuple(ids)),)


async def expiry_jobs(
    owner: Scope, due: Micros | None, deps: Deps, running: str | None = None
) -> tuple[Job, ...]:
    """The job that forgets what has expired: one for each owner, due when the next note expires.

    One that runs at this moment may have looked already: then there is another, unless it is the
    one that asks.
    """
    if due is None:
        return ()
    name = blake2b(repr(owner).encode(), digest_size=15).hexdigest()
    job = Job(f"f_{name}", "forget", owner, due)
    for known in await deps.store.jobs(ids=[job.job_id]):
        if known.attempts and known.job_id != running:
            return (replace(job, job_id=new_id("j", deps.clock())),)
        if known.due <= due and known.job_id != running:
            return ()
    return (job,)
