"""A made-up world for a fresh store: what seven people told their agents in half a year."""

import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from kemem.memory import AsyncMemory
from kemem.records import Micros
from kemem.serve.telemetry.metrics import Metrics
from kemem.settings import Settings
from kemem.text.times import to_rfc3339

_MINUTE: Micros = 60_000_000
_DAY: Micros = 86_400_000_000
_PAUSE: Micros = 40_000_000  # between two messages of a talk
_STATE_TOKENS = 600  # little, so that the State of a long session has layers of two levels
QUESTIONS = "asked.toml"
_ROLES = {">": "user", "<": "assistant"}


@dataclass(frozen=True, slots=True)
class Talk:
    """What was said in one sitting; in a group the members' agents listen, by id and name."""

    user_id: str
    session_id: str
    ts: Micros  # of its end
    said: tuple[tuple[str, str], ...]  # who and what; who is ">", "<" or a member's name
    members: Mapping[str, str] = field(default_factory=dict)
    sensitive: bool = False
    short: bool = False
    ends: bool = False

    async def tell(self, memory: AsyncMemory) -> None:
        """Store it and draw notes from it; a short one leaves a checkpoint, an ending one ends."""
        for agent_id in self.members or ("default",):
            await memory.add(
                [self._message(at, agent_id) for at in range(len(self.said))],
                self.user_id,
                agent_id,
                self.session_id,
                memory_type="short" if self.short else None,
                sensitive=self.sensitive,
            )
        if self.short:
            await memory.checkpoint(self.session_id, self.user_id, "default")
        if self.ends:
            await memory.end_session(self.session_id, self.user_id, "default")

    def _message(self, at: int, listener: str) -> dict[str, Any]:
        """A message as the log of a listener holds it: in a group, others are named."""
        who, content = self.said[at]
        ts = self.ts - _PAUSE * (len(self.said) - 1 - at)
        message: dict[str, Any] = {
            "role": _ROLES.get(who, "assistant"),
            "content": content,
            "ts": to_rfc3339(ts),
        }
        others = {name: id_ for id_, name in self.members.items() if id_ != listener}
        if who in others:
            message["metadata"] = {"speaker": who, "member_id": others[who]}
        return message


@dataclass(frozen=True, slots=True)
class Entry:
    """Knowledge that an agent was taught."""

    ts: Micros
    content: str
    summary: str
    tags: Sequence[str]
    agent_id: str

    async def tell(self, memory: AsyncMemory) -> None:
        """Teach it."""
        await memory.learn(
            self.content, summary=self.summary, tags=self.tags, agent_id=self.agent_id
        )


@dataclass(frozen=True, slots=True)
class World:
    """Everything that happened, oldest first, and the files of workspaces by task and path."""

    happened: tuple[Talk | Entry, ...]
    files: Mapping[tuple[str, str], str]


class Calendar:
    """A clock that stands at what is being told, so that the store looks as if it had grown."""

    def __init__(self, now: Micros) -> None:
        self.now = now

    def __call__(self) -> Micros:
        return self.now


def read_world(now: Micros) -> World:
    """The world that ships with the package; its last day is the one before `now`."""
    happened: list[Talk | Entry] = []
    kept: dict[tuple[str, str], str] = {}
    for resource in sorted(files(__package__).iterdir(), key=lambda each: each.name):
        if resource.name.endswith(".toml") and resource.name != QUESTIONS:
            told = tomllib.loads(resource.read_text("utf-8"))
            happened += _happened(told, now)
            kept |= {(it["task"], it["path"]): it["text"] for it in told.get("file", ())}
    return World(tuple(sorted(happened, key=lambda each: each.ts)), kept)


def _happened(told: Mapping[str, Any], now: Micros) -> Iterator[Talk | Entry]:
    for given in (*told.get("talk", ()), *told.get("group", ())):
        day, at, session, said = (given.pop(name) for name in ("day", "at", "session", "said"))
        lines = (line.partition(" ") for line in said.strip().splitlines())
        spoken = tuple((who.rstrip(":"), content) for who, _, content in lines)
        over = _time(now, day, at) + _PAUSE * (len(spoken) - 1)
        yield Talk(told["user"], session, over, spoken, **given)
    for given in told.get("knowledge", ()):
        agent_id = given.pop("agent", "default")
        yield Entry(_time(now, given.pop("day"), "08:00"), agent_id=agent_id, **given)


def _time(now: Micros, days_ago: int, clock_time: str) -> Micros:
    """A moment of a day before this one.  (…, 1, "12:30") -> yesterday at half past twelve, UTC"""
    hours, minutes = map(int, clock_time.split(":"))
    return now - now % _DAY - days_ago * _DAY + (hours * 60 + minutes) * _MINUTE


async def tell(
    world: World, settings: Settings, now: Micros, advance: Callable[[float], None]
) -> None:
    """Let everything happen in a store; notes are drawn by rules, vectors are left to a job.

    A model that is set is not asked: it would cost money, and each time tell another story. What
    it took is counted, so that the growth of half a year can be seen.
    """
    changed = {"llm": "none", "embedder": "none", "state_tokens": _STATE_TOKENS}
    plain = settings.model_copy(update=changed)
    calendar = Calendar(now)
    async with AsyncMemory(settings=plain, clock=calendar) as memory:
        metrics = Metrics(memory, clock=calendar)
        for each in world.happened:
            calendar.now = each.ts
            begun = time.perf_counter()
            await each.tell(memory)
            metrics.count("add_memories", time.perf_counter() - begun)
            await metrics.flush()
            advance(1)
        calendar.now = now
        workspaces = await memory.workspaces()
        for (task_id, path), text in world.files.items():
            workspaces.put(task_id, path, 0o600, [text.lstrip().encode()])
