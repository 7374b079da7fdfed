"""A made-up world for a fresh store: what seven people told their agents in half a year."""

import time
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from importlib.resources import files
from types import SimpleNamespace
from typing import Any, Literal

from kemem.memory import AsyncMemory
from kemem.records import Micros
from kemem.records.times import to_rfc3339
from kemem.runtime import system_clock
from kemem.serve.telemetry.journal import Run, Traces, save_runs
from kemem.serve.telemetry.metrics import Metrics
from kemem.settings import Settings
from kemem.text.language import is_chinese

_MINUTE: Micros = 60_000_000
_DAY: Micros = 86_400_000_000
_PAUSE: Micros = 40_000_000  # between two messages of a conversation
_STATE_TOKENS = 600  # little, so that the State of a long session has layers of two levels
_LIMIT = 10  # hits among which an answer is looked for
_QUESTIONS = "questions.toml"
_ROLES = {">": "user", "<": "assistant"}


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages of one sitting; in a group the members' agents listen, by id and name."""

    user_id: str
    session_id: str
    ts: Micros  # of its end
    lines: tuple[tuple[str, str], ...]  # speaker and text; a speaker is ">", "<" or a member's name
    members: Mapping[str, str] = field(default_factory=dict)
    sensitive: bool = False
    short: bool = False  # short-term notes, and a checkpoint of them
    ends: bool = False

    async def store(self, memory: AsyncMemory) -> None:
        for agent_id in self.members or ("default",):
            await memory.add(
                [self._message(at, agent_id) for at in range(len(self.lines))],
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
        """A message in the log of a listener, where the other members of a group are named."""
        speaker, content = self.lines[at]
        ts = to_rfc3339(self.ts - _PAUSE * (len(self.lines) - 1 - at))
        message = {"role": _ROLES.get(speaker, "assistant"), "content": content, "ts": ts}
        others = {name: id_ for id_, name in self.members.items() if id_ != listener}
        if speaker not in others:
            return message
        return {**message, "metadata": {"speaker": speaker, "member_id": others[speaker]}}


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of an agent's knowledge base."""

    ts: Micros
    content: str
    summary: str
    tags: Sequence[str]
    agent: str = "default"

    async def store(self, memory: AsyncMemory) -> None:
        await memory.learn(self.content, summary=self.summary, tags=self.tags, agent_id=self.agent)


@dataclass(frozen=True, slots=True)
class World:
    """All events, oldest first, and the files of workspaces by task and path."""

    events: tuple[Conversation | Entry, ...]
    files: Mapping[tuple[str, str], str]


@dataclass(frozen=True, slots=True)
class Question:
    """A question, and a text that occurs in what answers it."""

    user: str
    category: str
    question: str
    answer: str

    @property
    def language(self) -> Literal["zh", "en"]:
        return "zh" if is_chinese(self.question) else "en"


def read_world(now: Micros) -> World:
    """The world that ships with the package; its last day is the one before `now`."""
    events: list[Conversation | Entry] = []
    contents: dict[tuple[str, str], str] = {}
    for resource in files(__package__).iterdir():
        if resource.name.endswith(".toml") and resource.name != _QUESTIONS:
            tables = tomllib.loads(resource.read_text("utf-8"))
            events += _events(tables, now - now % _DAY)
            contents |= {(it["task"], it["path"]): it["text"] for it in tables.get("file", ())}
    return World(tuple(sorted(events, key=lambda event: event.ts)), dict(sorted(contents.items())))


def _events(tables: Mapping[str, Any], today: Micros) -> Iterator[Conversation | Entry]:
    for table in (*tables.get("talk", ()), *tables.get("group", ())):
        day, at, session, said = (table.pop(name) for name in ("day", "at", "session", "said"))
        hours, minutes = map(int, at.split(":"))
        parts = (line.partition(" ") for line in said.strip().splitlines())
        lines = tuple((speaker.rstrip(":"), content) for speaker, _, content in parts)
        start = today - day * _DAY + (hours * 60 + minutes) * _MINUTE
        end = start + _PAUSE * (len(lines) - 1)
        yield Conversation(tables["user"], session, end, lines, **table)
    for table in tables.get("knowledge", ()):
        yield Entry(today - table.pop("day") * _DAY + 8 * 60 * _MINUTE, **table)


def read_questions() -> list[Question]:
    """The questions that ship with the package."""
    tables = tomllib.loads((files(__package__) / _QUESTIONS).read_text("utf-8"))
    return [Question(**table) for table in tables["question"]]


async def fill(
    world: World, settings: Settings, now: Micros, advance: Callable[[float], None]
) -> None:
    """Store every event at its own time; rules make the notes, vectors are left to a job.

    An LLM that is configured is not called: it would cost money and make each demo another. Calls
    are counted at the time of the events, so that the growth of half a year can be seen.
    """
    changed = {"llm": "none", "embedder": "none", "state_tokens": _STATE_TOKENS}
    clock = SimpleNamespace(now=now)
    async with AsyncMemory(
        settings=settings.model_copy(update=changed), clock=lambda: clock.now
    ) as memory:
        metrics = Metrics(memory, clock=lambda: clock.now)
        for event in world.events:
            clock.now = event.ts
            started = time.perf_counter()
            await event.store(memory)
            metrics.count("add_memories", time.perf_counter() - started)
            await metrics.flush()
            advance(1)
        clock.now = now
        workspaces = await memory.workspaces()
        for (task_id, path), text in world.files.items():
            workspaces.put(task_id, path, 0o600, [text.lstrip().encode()])


async def evaluate(
    questions: Sequence[Question], memory: AsyncMemory, advance: Callable[[float], None]
) -> None:
    """Search and recall for each question; leaves traces, metrics and a run of a benchmark."""
    metrics, traces = Metrics(memory), Traces(memory, route="kemem demo")
    outcomes: defaultdict[tuple[str, Literal["zh", "en"], str], list[bool]] = defaultdict(list)
    for each in questions:
        started = time.perf_counter()
        hits = await memory.search(each.question, each.user, limit=_LIMIT)
        between = time.perf_counter()
        recalled = await memory.recall(each.question, each.user)
        metrics.count("search_memories", between - started)
        metrics.count("recall", time.perf_counter() - between)
        texts = {
            "search": [hit.row.content for hit in hits],
            "recall": [evidence.content for evidence in recalled.evidence[:_LIMIT]],
        }
        for name, contents in texts.items():
            answered = any(each.answer in content for content in contents)
            for category in ("all", each.category):
                outcomes[name, each.language, category].append(answered)
        advance(1)
    await traces.flush()
    await metrics.flush()
    common: dict[str, Any] = {"at": to_rfc3339(system_clock()), "set": "demo"}
    common["version"] = version("kemem-memory")
    runs = [
        Run(
            name=name,
            language=language,
            category=category,
            n=len(answered),
            **common,
            metrics={f"recall@{_LIMIT}": sum(answered) / len(answered)},
        )
        for (name, language, category), answered in outcomes.items()
    ]
    await save_runs(memory, runs)
