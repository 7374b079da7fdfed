"""The small world's notes: few ids, texts that say the same, every kind of filter.

Most values are drawn from products of a few, in one draw: to generate must not cost more than to
test.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from itertools import product
from random import Random
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from kemem.records import (
    MESSAGES,
    NOTES,
    ROLES,
    Change,
    Checkpoint,
    Layer,
    Link,
    Message,
    Note,
    Scope,
    Where,
)
from kemem.records.batch import Batch, Ending, Job, Use
from kemem.records.filters import COMPARISONS, Filter
from kemem.text.segment import fingerprint
from kemem_conformance.world import (
    AGENTS,
    EXTREMES,
    JOB_IDS,
    MESSAGE_IDS,
    METADATA,
    NOW,
    SESSIONS,
    TIMES,
    embeddings,
    jobs,
    scopes_of,
    times,
    transcripts,
)

T = TypeVar("T")

NOTE_USERS = ("u_", "u_%", "")  # the last is what the users of an agent share
NOTE_IDS = MESSAGE_IDS[:5]  # a message and a note may have one id
NOTE_TEXTS = (  # each says in other characters what its neighbour says
    *("用户不吃辣", "- 用户不吃辣。 (2026-01-26)"),
    *("Ann likes hotpot", "* ann likes Hotpot!"),
    *("小明在北京大学读书", "We moved to Berlin 柏林"),
)
ENTITIES = ("小明", "Beijing University", "beijing  UNIVERSITY", "北京", "Ann", "ＡＮＮ", "Berlin")
DETAILS: tuple[dict[str, Any], ...] = (
    {},
    {"importance": 1.0, "topic": "饮食", "sensitive": True},
    {"memory_type": "饮食", "keywords": ("火锅", "hotpot"), "topic": "home"},
    {"keywords": ("辣",), "sensitive": True},
    {"importance": 0.25, "memory_type": "work"},
)
FILTERED: dict[str, tuple[Any, ...]] = {  # fields, and what they are compared with
    "tag": ("工作", "work", "WORK", "wor", None, True),
    "metadata.tag": ("工作", "Work"),
    "n": (1, 1.0, True, "1", 2, None),
    "missing": (None, "没有"),
    "role": ("user", "tool", None),
    "kind": ("message", "knowledge"),
    "content": ("辣", "hotpot", "用户不吃辣", ""),
    "keywords": ("火锅", "HOTPOT", "hot"),
    "memory_type": ("general", "饮食"),
    "importance": (0.5, 1, True, "1"),
    "topic": ("饮食", None),
    "sensitive": (True, 1),
    "user_id": ("u_", "u_%"),
    "session_id": ("s", None),
    "id": ("a", "消息"),
    "created_at": (NOW, NOW + 1),
    "updated_at": (NOW, NOW + 1),
    "timestamp": (NOW + 1, NOW + 3),
}
ALL_KINDS = MESSAGES | NOTES
KINDS = (
    *((ALL_KINDS,) * 3 + (NOTES,) * 3),
    *(MESSAGES, frozenset[str](), frozenset({"knowledge"}), frozenset({"message", "user_info"})),
)


NOTE_SCOPES = scopes_of(NOTE_USERS)
WIDE_SCOPES = (*NOTE_SCOPES, *(3 * [scope for scope in NOTE_SCOPES if scope.session_id is None]))
ERASURES = tuple(
    Where(scope, kinds=ALL_KINDS, sensitive=sensitive)
    for scope, sensitive in product(WIDE_SCOPES, (True, True, False))
)
BORDERS = TIMES[:3]  # so that one begins where another ends


@cache
def filter_pool() -> tuple[Filter, ...]:
    """Conditions on fields and metadata: each alone, then some of them nested."""
    choose = Random(0)
    single = tuple(operator for operator in COMPARISONS if operator not in ("in", "nin"))
    leaves = [
        Filter(operator, key, value)
        for key, values in FILTERED.items()
        for operator, value in product(single, values)
    ]
    leaves += [
        Filter(operator, key, values[start:])
        for key, values in FILTERED.items()
        for operator, start in product(("in", "nin"), (0, 1, len(values)))
    ]

    def groups(members: list[Filter]) -> list[Filter]:
        operators = choose.choices(("AND", "OR", "NOT"), k=300)
        return [Filter(each, parts=tuple(choose.sample(members, 2))) for each in operators]

    flat = groups(leaves)
    # More often than others, as SQL sees them otherwise: to it nothing is unequal to NULL.
    unequal = [leaf for leaf in leaves if leaf.operator in ("ne", "nin")]
    return (*leaves, *unequal * 3, *flat, *groups([*flat, *leaves]))


def filters() -> SearchStrategy[Filter]:
    """Any of these."""
    return st.sampled_from(filter_pool())


def among(*columns: Iterable[Any]) -> SearchStrategy[tuple[Any, ...]]:
    """A value of each column."""
    return st.sampled_from(tuple(product(*columns)))


def notes(
    users: tuple[str, ...] = NOTE_USERS, ids: tuple[str, ...] = NOTE_IDS
) -> SearchStrategy[Note]:
    """Notes of which many say the same, and many change one that is known."""

    def build(
        whose: tuple[Any, ...], what: tuple[Any, ...], times: tuple[Any, ...], ts: int
    ) -> Note:
        note_id, agent_id, user_id = whose
        session_id, kind, content, details, metadata = what
        updated, valid_from, valid_until, expires = times
        return Note(
            *(note_id, agent_id, user_id, session_id, kind, content, fingerprint(content)),
            *(ts, NOW, updated, valid_from, valid_until, expires),
            **{**details, "metadata": metadata},
        )

    kinds = ("user_info", "user_info", "knowledge")
    return st.builds(
        build,
        among(ids, (AGENTS[0], *AGENTS), users),
        among((None, None, "s"), kinds, NOTE_TEXTS, DETAILS, METADATA),
        among(BORDERS, BORDERS, *((None, None, None, *BORDERS),) * 2),
        times(),
    )


def citing(told: tuple[Note, ...], messages: tuple[Message, ...]) -> tuple[Note, ...]:
    """Most notes cite messages of their owner; now and then one cites what is not there."""

    def sources(place: int, note: Note) -> tuple[str, ...]:
        if (note.importance, note.note_id, note.kind) == (0.25, "b", "knowledge"):
            return ("消息",)
        owner = (note.agent_id, note.user_id)
        own = [one.id for one in messages if (one.agent_id, one.user_id) == owner]
        return () if note.importance == 0.25 else tuple(own[place % 2 :: 2])

    return tuple(replace(note, sources=sources(at, note)) for at, note in enumerate(told))


def notebooks(
    *,
    min_size: int = 0,
    users: tuple[str, ...] = NOTE_USERS,
    ids: tuple[str, ...] = NOTE_IDS,
) -> SearchStrategy[tuple[Note, ...]]:
    """Notes for one batch: links name a note by its id alone, so no id comes twice."""
    one = notes(users, ids)
    told = st.lists(one, min_size=min_size, max_size=len(ids), unique_by=lambda note: note.id)
    return told.map(tuple)


def row_wheres(
    scopes: tuple[Scope, ...] = WIDE_SCOPES, *, at_most: int = 3
) -> SearchStrategy[Where]:
    """A few of all the conditions that there are on messages and notes."""
    marks = (*sorted(map(fingerprint, NOTE_TEXTS)), "饮食", "home")
    conditions = (
        among(("since", "until"), (*TIMES, *EXTREMES))
        | among(("valid_at",), BORDERS)
        | among(("known_by",), BORDERS)
        | among(("role",), ROLES)
        | among(("shared",), AGENTS)
        | st.tuples(st.just("ids"), st.frozensets(st.sampled_from(MESSAGE_IDS), max_size=6))
        | st.tuples(st.just("sources"), st.frozensets(st.sampled_from(MESSAGE_IDS), max_size=6))
        | st.tuples(st.just("marks"), st.frozensets(st.sampled_from(marks), max_size=4))
        | st.tuples(st.just("filters"), filters())
    )
    return st.builds(
        lambda seen, chosen: Where(seen[0], kinds=seen[1], sensitive=seen[2], **dict(chosen)),
        among(scopes, KINDS, (True, True, False)),
        st.lists(conditions, max_size=at_most),
    )


def links(places: int) -> SearchStrategy[tuple[tuple[Any, ...], ...]]:
    """Who is who to whom, according to one of some notes."""
    types = ("thing", "person", "place")
    words = ("就读于", "就读于", "lives in")
    ends = among(range(places), ENTITIES, words, ENTITIES, types, types)
    return st.lists(ends, min_size=places, max_size=3 * places).map(tuple)


def linked(told: tuple[Note, ...], ends: tuple[tuple[Any, ...], ...]) -> tuple[Link, ...]:
    """Links as notes of a batch support them."""
    return tuple(Link(told[at % len(told)].note_id, *rest) for at, *rest in ends if told)


QUOTED = Note(
    *("q", "agent", "u_", "s", "short_term", "要去吃火锅 off to hotpot", "digest"),
    *(NOW, NOW, NOW, NOW, NOW + 1),
    keywords=("火锅",),
    metadata=METADATA[2],
)
LAYERS = ((), (Layer(1, "他们谈了火锅 hotpot", 1, 4), Layer(0, "And then 咖啡", 5, 6)))


def note_batches() -> SearchStrategy[Batch]:
    """Writes of every kind, most of them about notes."""

    def build(told: tuple[Note, ...], ends: tuple[tuple[Any, ...], ...], **more: Any) -> Batch:
        told = citing(told, more["put"])
        changes = tuple(
            Change(
                note.agent_id, note.user_id, note.note_id, "add", note.updated, after=note.content
            )
            for note in told
        )
        return Batch(notes=told, links=linked(told, ends), changes=changes, **more)

    def some(
        kind: Callable[..., T], *columns: Iterable[Any], at_most: int = 1
    ) -> SearchStrategy[tuple[T, ...]]:
        one = among(*columns).map(lambda values: kind(*values))
        return st.lists(one, max_size=at_most).map(tuple)

    whose = (AGENTS, ("u_", "u_", ""))
    sessions = tuple(Scope(*names) for names in product(*whose, SESSIONS))
    open_jobs = [
        (Job(name, "embed", sessions[0], TIMES[0], ids),)
        for name, ids in product(JOB_IDS, ((), ("a", "消息")))
    ]
    own_jobs = st.builds(replace, jobs(), scope=st.sampled_from(sessions))
    saved = (("c", "存档"), *whose, SESSIONS, BORDERS, LAYERS, ((), (QUOTED,)))
    # Only of users who have something: other drops and vectors would change nothing.
    wide = tuple(scope for scope in WIDE_SCOPES if scope.user_id in (None, *whose[1]))
    erasures = st.sampled_from([where for where in ERASURES if where.scope in wide])
    return st.builds(
        build,
        notebooks(min_size=3, users=whose[1]),
        links(4),
        put=transcripts(min_size=2, max_size=3, users=("u_",), agents=(AGENTS[0], *AGENTS)),
        vectors=embeddings(wide).map(lambda one: (one,)),
        checkpoints=some(Checkpoint, *saved, at_most=3),
        used=some(Use, *whose, NOTE_IDS, (1, 2), BORDERS, at_most=3),
        drop=st.lists(erasures | row_wheres(wide, at_most=1), max_size=1).map(tuple),
        at=st.sampled_from(TIMES),
        reason=st.sampled_from((None, "忘记 forget")),
        ended=some(Ending, sessions, BORDERS),
        jobs=st.lists(own_jobs, max_size=2, unique_by=lambda job: job.job_id).map(tuple),
        only_if=st.sampled_from([()] * 18 + open_jobs),
    )
