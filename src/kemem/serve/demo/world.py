"""A made-up world for a fresh store: what seven people told their agents in half a year."""

import time
import tomllib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from types import SimpleNamespace
from typing import Any, NamedTuple

from kemem import __version__
from kemem.memory import AsyncMemory
from kemem.records import Micros
from kemem.records.times import to_rfc3339
from kemem.runtime import system_clock
from kemem.serve.telemetry.journal import Run, Traces, save_runs
from kemem.serve.telemetry.metrics import DAY, HOUR, MINUTE, Metrics
from kemem.settings import Settings
from kemem.text.language import is_chinese

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
        """Add the messages for each listener, in whose log the other members are named."""
        for agent_id in self.members or ("default",):
            others = {name: id_ for id_, name in self.members.items() if id_ != agent_id}
            messages = []
            ts = self.ts - _PAUSE * (len(self.lines) - 1)
            for at, (speaker, content) in enumerate(self.lines):
                role = _ROLES.get(speaker, "assistant")
                message = {"role": role, "content": content, "ts": to_rfc3339(ts + _PAUSE * at)}
                named = {"speaker": speaker, "member_id": others.get(speaker)}
                messages.append(message | ({"metadata": named} if speaker in others else {}))
            kind = "short" if self.short else None
            ids = (self.user_id, agent_id, self.session_id)
            await memory.add(messages, *ids, memory_type=kind, sensitive=self.sensitive)
        if self.short:
            await memory.checkpoint(self.session_id, self.user_id, "default")
        if self.ends:
            await memory.end_session(self.session_id, self.user_id, "default")


class World(NamedTuple):
    """Conversations and entries of knowledge by their times, and files by task and path."""

    events: Sequence[tuple[Micros, Conversation | dict[str, Any]]]
    files: Mapping[tuple[str, str], str]


class Question(NamedTuple):
    """A question, and a text that occurs in what answers it."""

    user: str
    category: str
    question: str
    answer: str


def read_world(now: Micros) -> World:
    """The world that ships with the package; its last day is the one before `now`."""
    today = now - now % DAY
    events: list[tuple[Micros, Conversation | dict[str, Any]]] = []
    contents: dict[tuple[str, str], str] = {}
    for resource in files(__package__).iterdir():
        if not resource.name.endswith(".toml") or resource.name == _QUESTIONS:
            continue
        tables = tomllib.loads(resource.read_text("utf-8"))
        for table in (*tables.get("talk", ()), *tables.get("group", ())):
            day, at, session, said = (table.pop(name) for name in ("day", "at", "session", "said"))
            hours, minutes = map(int, at.split(":"))
            parts = (line.partition(" ") for line in said.strip().splitlines())
            lines = tuple((speaker.rstrip(":"), content) for speaker, _, content in parts)
            ts = today - day * DAY + hours * HOUR + minutes * MINUTE + _PAUSE * (len(lines) - 1)
            events.append((ts, Conversation(tables["user"], session, ts, lines, **table)))
        for table in tables.get("knowledge", ()):
            events.append((today - table.pop("day") * DAY + 8 * HOUR, table))
        contents |= {(it["task"], it["path"]): it["text"] for it in tables.get("file", ())}
    return World(sorted(events, key=lambda event: event[0]), dict(sorted(contents.items())))


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
    settings, clock = settings.model_copy(update=changed), SimpleNamespace(now=now)
    async with AsyncMemory(settings=settings, clock=lambda: clock.now) as memory:
        metrics = Metrics(memory, clock=lambda: clock.now)
        for ts, event in world.events:
            clock.now = ts
            started = time.perf_counter()
            if isinstance(event, Conversation):
                await event.store(memory)
            else:
                await memory.learn(**event)
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
    outcomes: defaultdict[tuple[str, str, str], list[bool]] = defaultdict(list)
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
        language = "zh" if is_chinese(each.question) else "en"
        for name, contents in texts.items():
            for category in ("all", each.category):
                has_answer = any(each.answer in content for content in contents)
                outcomes[name, language, category].append(has_answer)
        advance(1)
    await traces.flush()
    await metrics.flush()
    common = {"at": to_rfc3339(system_clock()), "set": "demo", "version": __version__}
    runs = []
    for (name, language, category), results in outcomes.items():
        ids = {"name": name, "language": language, "category": category, **common}
        metric = {f"recall@{_LIMIT}": sum(results) / len(results)}
        runs.append(Run.model_validate({**ids, "n": len(results), "metrics": metric}))
    await save_runs(memory, runs)
