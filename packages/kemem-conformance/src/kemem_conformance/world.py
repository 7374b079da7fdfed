"""A small world for hypothesis: few names, few instants and awkward texts, so that ties are common.

The constants are as useful as the strategies: tests of your own may draw from both.
"""

from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from kemem.records import ROLES, Embedded, Message, Model, Scope, Vector, Where
from kemem.records.batch import Batch, Job, JobKind
from kemem.text.query import Query, parse

T = TypeVar("T")

AGENTS = ("agent", "助手")
USERS = ("u_", "u_%", "小明")  # one begins another; to LIKE both are patterns
SESSIONS = ("s", "会话")
MESSAGE_IDS = ("a", "A", "B", "b", "消息", "\u00e9", "e\u0301", "m%", "m_", "'; --")
JOB_IDS = ("j", "J", "任务")

NOW = 1_767_225_600_000_000  # 2026-01-01
TIMES = tuple(range(NOW, NOW + 6))
EXTREMES = (-62_135_596_800_000_000, 0, 253_402_214_400_000_000)  # the years 1, 1970 and 9999

CONTENTS = (
    "我不吃辣",
    "I can't eat spicy food",
    "明天去吃火锅吗",
    "Hotpot tomorrow?",
    "hotpots 火锅 hotpot 火锅",
    "我喜欢喝kopi咖啡",
    "the spicy hotpot and the coffee of the house",
    "C++ and C#",
    "用C++写的",
    "mail user@x.com",
    "发到 user@x.com",
    "100%",
    "100_000",
    "ＨＯＴＰＯＴ　１００％",
    "caf\u00e9",
    "cafe\u0301 咖啡",
    "！！！",
    "",
    "hot\0pot 火\0锅",
    "家人 👩\u200d👩\u200d👧 family",
    '" OR * NEAR(',
    "'; DROP TABLE message; --",
    "2026-01-26",
    "𠮷野家 𪚥",
    "ｶﾞ が straße STRASSE",
    "\\u0000 \\0 \U000f5c5c0",
)
WORDS = (
    *("火锅", "吃", "辣", "咖啡", "𠮷", "！", "hotpots", "hot", "spicy food", "the"),
    *("café", "strasse", "C++", "user@x.com", "100", "100%", "2026-01-26"),
)
HOSTILE = (
    *("", '"', "*", "火*", "NOT", "AND OR", "((火锅", "\0"),
    *('" OR * NEAR(', "a:b ^c -d", "'; DROP TABLE message; --"),
)

MODELS = (Model("one", 4), Model("two", 4))
# Along the axes, so that scores are far apart or exactly equal in any precision.
DIRECTIONS = ((1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1000, 0), (0, 0, 0, 0.001), (-1, 0, 0, 0))
NO_DIRECTIONS = ((0, 0, 0, 0), (1, 0, float("nan"), 0), (0, float("inf"), 0, 0))

METADATA: tuple[dict[str, Any], ...] = (
    {},
    {"speaker": "小明", "tag": "工作", "n": 1},
    {"speaker": "Ann", "tag": ["work", "工作"], "n": 1.0},
    {"speaker": "Ann", "tag": "Work", "n": True},
    {"speaker": "小明", "tag": None, "n": "1"},
    {"tag": {"深": "deep"}, "n": [1, 2]},
)


def scopes_of(users: tuple[str, ...]) -> tuple[Scope, ...]:
    """Every way to name a part of what these users have."""
    return tuple(
        Scope(agent_id, user_id, session_id)
        for agent_id in (None, *AGENTS)
        for user_id in (None, *users)
        for session_id in (None, *SESSIONS)
        if (agent_id, user_id, session_id) != (None, None, None)
    )


SCOPES = scopes_of(USERS)


def times() -> SearchStrategy[int]:
    """Instants a microsecond apart, two of them often, and the ends of the calendar."""
    return st.sampled_from((*TIMES[:2] * 4, *TIMES, *EXTREMES))


def messages(
    users: tuple[str, ...] = USERS, agents: tuple[str, ...] = AGENTS
) -> SearchStrategy[Message]:
    """Messages whose ids often collide; every other one came without a time."""
    timed = st.builds(
        Message,
        message_id=st.sampled_from(MESSAGE_IDS),
        agent_id=st.sampled_from(agents),
        user_id=st.sampled_from(users),
        session_id=st.sampled_from(SESSIONS),
        role=st.sampled_from(ROLES),
        content=st.sampled_from(CONTENTS),
        ts=times(),
        ingest_time=st.sampled_from(TIMES),
        content_type=st.sampled_from(("text", "code")),
        parent_message_id=st.none() | st.sampled_from(MESSAGE_IDS),
        metadata=st.sampled_from(METADATA),
        sensitive=st.sampled_from((False, False, True)),
    )
    return timed | timed.map(lambda one: replace(one, ingest_time=one.ts))


def transcripts(
    *,
    min_size: int = 0,
    max_size: int = 12,
    users: tuple[str, ...] = USERS,
    agents: tuple[str, ...] = AGENTS,
) -> SearchStrategy[tuple[Message, ...]]:
    """Messages that can be stored together: no id twice for a user."""
    return st.lists(
        messages(users, agents),
        min_size=min_size,
        max_size=max_size,
        unique_by=lambda one: (one.user_id, one.message_id),
    ).map(tuple)


def wheres(scopes: tuple[Scope, ...] = SCOPES) -> SearchStrategy[Where]:
    """Every combination of filters over some scopes."""
    return st.builds(
        Where,
        scope=st.sampled_from(scopes),
        since=rarely(times()),
        until=rarely(times()),
        role=rarely(st.sampled_from(ROLES)),
        ids=rarely(st.frozensets(st.sampled_from(MESSAGE_IDS), max_size=6)),
        sensitive=st.sampled_from((True, True, False)),
    )


def rarely(strategy: SearchStrategy[T]) -> SearchStrategy[T | None]:
    """One value in four; otherwise None."""
    return st.integers(0, 3).flatmap(lambda number: st.none() if number else strategy)


def queries() -> SearchStrategy[Query]:
    """Plain words, every operator, whole messages, and what tries to break a parser."""
    word = st.sampled_from((*("火锅", "辣", "hotpots") * 6, *WORDS))  # most find something
    texts = (
        word
        | st.builds("{} {}".format, word, word)
        | st.builds('"{}"'.format, word)
        | st.builds("“{} {}”".format, word, word)
        | st.builds("{}*".format, word)
        | st.builds("{} AND {}".format, word, word)
        | st.builds("{} OR {}".format, word, word)
        | st.builds("NOT {}".format, word)
        | st.builds('("{}" OR {}) NOT {}*'.format, word, word, word)
        | st.sampled_from(CONTENTS)
        | st.sampled_from(HOSTILE)
    )
    return texts.map(parse)


def vector(numbers: tuple[float, ...]) -> Vector:
    """Numbers as an embedder returns them."""
    return np.array(numbers, dtype=np.float32)


def embeddings(scopes: tuple[Scope, ...] = SCOPES) -> SearchStrategy[Embedded]:
    """Vectors for a few ids; now and then one without a direction."""
    rows = st.sampled_from(DIRECTIONS * 30 + NO_DIRECTIONS)

    def build(scope: Scope, model: Model, chosen: dict[str, tuple[float, ...]]) -> Embedded:
        matrix = np.array([*chosen.values()], dtype=np.float32).reshape(len(chosen), model.width)
        return Embedded(scope, model, tuple(chosen), matrix)

    chosen = st.dictionaries(st.sampled_from(MESSAGE_IDS), rows, max_size=8)
    return st.builds(build, st.sampled_from(scopes), st.sampled_from(MODELS), chosen)


def jobs() -> SearchStrategy[Job]:
    """Jobs that wait and jobs that have failed."""
    kinds: tuple[JobKind, ...] = ("embed", "reembed")
    return st.builds(
        Job,
        job_id=st.sampled_from(JOB_IDS),
        kind=st.sampled_from(kinds),
        scope=st.sampled_from(SCOPES),
        due=st.sampled_from(TIMES),
        ids=st.sampled_from(((), ("a", "消息"))),
        attempts=st.integers(0, 2),
        state=st.sampled_from(("pending", "failed")),
        error=st.sampled_from((None, "timed out", "超时")),
    )


def batches(put: SearchStrategy[Message], scopes: tuple[Scope, ...]) -> SearchStrategy[Batch]:
    """Writes of every kind, some of them refused."""
    half = st.frozensets(st.sampled_from(MESSAGE_IDS), min_size=4, max_size=6)
    some_rows = st.builds(Where, st.sampled_from(scopes), ids=half)
    return st.builds(
        Batch,
        put=st.lists(put, min_size=3, max_size=6).map(tuple),
        vectors=embeddings(scopes).map(lambda one: (one,)),
        drop=st.lists(wheres(scopes) | some_rows, max_size=2).map(tuple),
        jobs=st.lists(jobs(), max_size=2, unique_by=lambda job: job.job_id).map(tuple),
        done=st.lists(st.sampled_from(JOB_IDS), max_size=1).map(tuple),
    )


def histories() -> SearchStrategy[list[Batch]]:
    """Batches that draw on one pool of messages, so that retries and conflicts are both common."""
    users = USERS[:2]
    wide = (*map(Scope, AGENTS), *(Scope(user_id=user_id) for user_id in users))
    pools = transcripts(min_size=8, users=users).map(
        lambda told: (*told * 3, *(replace(one, content="another 辣") for one in told[:3]))
    )
    return pools.flatmap(
        lambda pool: st.lists(batches(st.sampled_from(pool), wide), min_size=3, max_size=3)
    )
