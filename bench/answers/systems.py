"""The systems that answer: each finds evidence in one history, or talks with the model itself."""

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from subprocess import PIPE

from bench.answers.model import Model, Reply
from bench.answers.prompt import Line, excerpt, instructions, prompt
from bench.answers.questions import History, Message, Question
from bench.environment import BENCH, peers_environment, peers_python
from bench.retrievers import LONGEST_LINE, Ask, Load, bm25, peer_process
from kemem import AsyncMemory
from kemem.chat import ChatService
from kemem.ports import Reply as ModelReply
from kemem.recall import Evidence
from kemem.records import Message as Row
from kemem.records import Micros
from kemem.records.times import to_micros, to_rfc3339
from kemem.results import Hit, ended_text, is_over
from kemem.settings import load
from kemem.testing import FakeClock
from kemem.text.language import count_tokens

LIMIT = 10  # pieces of evidence
USER = "user"
CHAT = "answers"  # the session in which a question is asked
SECOND = 1_000_000

SYSTEMS = {
    "nothing": "no evidence at all",
    "whole": "the whole history, where the model's context holds it",
    "bm25": "BM25 over the messages, the best ten",
    "mem0": "mem0, every message word by word (infer=False), the best ten",
    "mem0-llm": "mem0 with its own extraction by the model (infer=True), the best ten",
    "search": "KeMem's search, the best ten messages and notes that still hold",
    "recall": "KeMem's recall by rules, all of its evidence",
    "chat": "KeMem's chat: its own prompt, and the evidence as it hands it over",
}
DEFAULT = tuple(it for it in SYSTEMS if it != "mem0-llm")
WITHOUT_MODEL = ("bm25", "mem0", "search", "recall")  # which find evidence and ask nobody

Extract = Callable[[History], Awaitable[Callable[[str], Awaitable[list[Line]]]]]


@dataclass(frozen=True, slots=True)
class Answered:
    """What a system made of a question; no evidence is known where it keeps it to itself."""

    reply: Reply
    evidence: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Limits:
    """What the model can do."""

    context: int  # tokens of a prompt, estimated
    chat_recall: str  # how KeMem's chat hands over evidence: as a note or as a call


class TooLong(Exception):
    """The evidence does not fit the context of the model."""


class Peers:
    """Systems in processes of their own, started when they are first asked."""

    def __init__(self, stack: AsyncExitStack, model: Model) -> None:
        self._stack, self._model = stack, model
        self._load: Load | None = None
        self._extract: Extract | None = None

    async def mem0(self, history: History) -> Ask:
        """mem0 with all messages of a history."""
        if self._load is None:
            self._load = await self._stack.enter_async_context(peer_process("mem0"))
        return await self._load([asdict(it) for it in history.messages])

    async def mem0_llm(self, history: History) -> Callable[[str], Awaitable[list[Line]]]:
        """mem0 with what the model made of a history, session by session."""
        if self._extract is None:
            self._extract = await self._stack.enter_async_context(_extracting(self._model))
        return await self._extract(history)


class Answerer:
    """The answers of every system to questions about one history; stores are filled when needed."""

    def __init__(
        self, history: History, model: Model, peers: Peers, stack: AsyncExitStack, limits: Limits
    ) -> None:
        self._history, self._model, self._peers, self._stack = history, model, peers, stack
        self._limits = limits
        self._clock = FakeClock(0)
        self._messages = {it.message_id: it for it in history.messages}
        self._memory: AsyncMemory | None = None
        self._chat_service: ChatService | None = None
        self._searches: dict[str, Ask] = {}
        self._notes: Callable[[str], Awaitable[list[Line]]] | None = None

    async def answer(self, system: str, question: Question) -> Answered:
        """What a system answers; TooLong where its evidence does not fit."""
        if system == "chat":
            return await self._chat(question)
        evidence = await self._evidence(system, question)
        if system != "whole":
            cut = (excerpt(it.text, question.text) for it in evidence)
            evidence = [
                Line(it.at, it.speaker, text) for it, text in zip(evidence, cut, strict=True)
            ]
        messages = prompt(question, evidence)
        if sum(count_tokens(it["content"]) for it in messages) > self._limits.context:
            raise TooLong(f"{self._history.name} is longer than {self._limits.context} tokens")
        return Answered(await self._model.reply(messages), tuple(evidence))

    async def _evidence(self, system: str, question: Question) -> Sequence[Line]:
        match system:
            case "nothing":
                return ()
            case "whole":
                return [_line(it) for it in self._history.messages]
            case "bm25" | "mem0":
                query = {"query": question.text, "until": None, "ts": question.now}
                ask = self._searches.get(system) or await self._open(system)
                return [_line(self._messages[name]) for name, _ in await ask(query, LIMIT)]
            case "mem0-llm":
                self._notes = self._notes or await self._peers.mem0_llm(self._history)
                return await self._notes(question.text)
            case "search":
                memory = await self._at(question)
                hits = await memory.search(question.text, USER, limit=LIMIT)
                return [_hit_line(it) for it in hits if hits.past or not is_over(it)]
            case "recall":
                memory = await self._at(question)
                recalled = await memory.recall(question.text, USER)
                return [_evidence_line(it) for it in recalled.evidence]
        raise ValueError(f"a system is one of {', '.join(SYSTEMS)}, not {system!r}")

    async def _open(self, system: str) -> Ask:
        if system == "mem0":
            ask = await self._peers.mem0(self._history)
        else:
            messages = [asdict(it) for it in self._history.messages]
            ask = await self._stack.enter_async_context(bm25(messages))
        self._searches[system] = ask
        return ask

    async def _chat(self, question: Question) -> Answered:
        """The question in a new session, which is erased afterwards."""
        memory, costs = await self._at(question), list[tuple[float, ModelReply | None]]()
        chat = self._chat_service or ChatService(
            memory, client=self._model.client, model=self._model.name, run_jobs=False
        )
        self._chat_service = chat

        def count(seconds: float, usable: bool, reply: ModelReply | None) -> None:
            costs.append((seconds, reply))

        memory.runtime.on_reply.append(count)
        try:
            reply = await chat.reply(
                question.text,
                user_id=USER,
                session_id=CHAT,
                instructions=instructions(question),
            )
        finally:
            memory.runtime.on_reply.remove(count)
            await memory.delete_all(user_id=USER, session_id=CHAT)
        replies = [it for _, it in costs if it]
        cost = (
            sum(it.prompt_tokens for it in replies),
            sum(it.completion_tokens for it in replies),
        )
        events = reply.recall.events if reply.recall else ()
        shown = (Line(it["time"], it.get("said_by", ""), it["content"]) for it in events)
        return Answered(Reply(reply.text, *cost, sum(it for it, _ in costs)), tuple(shown))

    async def _at(self, question: Question) -> AsyncMemory:
        """KeMem with the history, at the time of a question."""
        memory = self._memory or await self._fill()
        self._memory = memory
        self._clock.now = to_micros(question.now)
        return memory

    async def _fill(self) -> AsyncMemory:
        """Each session is added at the time of its last message, without a model."""
        folder = self._stack.enter_context(tempfile.TemporaryDirectory())
        # By default the model would be asked for each history anew whether it handles tools.
        settings = load(data_dir=folder, llm="none", chat_recall=self._limits.chat_recall)
        memory = AsyncMemory(settings=settings, clock=self._clock)
        await self._stack.enter_async_context(memory)
        for session, some in groupby(self._history.messages, lambda it: it.session):
            messages = [*some]
            self._clock.now = to_micros(messages[-1].ts) + SECOND
            given = [
                {
                    "message_id": it.message_id,
                    "role": it.role,
                    "content": it.content,
                    "ts": it.ts,
                    "metadata": {"speaker": it.speaker} if it.speaker else {},
                }
                for it in messages
            ]
            await memory.add(given, user_id=USER, session_id=session[:64])
        return memory


def _line(message: Message) -> Line:
    return Line(message.ts, message.name, message.content)


def _hit_line(hit: Hit) -> Line:
    speaker = ""
    if isinstance(hit.row, Row):
        speaker = str(hit.metadata.get("speaker") or hit.row.role)
    return _told(to_rfc3339(hit.row.ts), speaker, hit.memory, hit.in_reply_to, hit.ended)


def _evidence_line(it: Evidence) -> Line:
    return _told(to_rfc3339(it.event_time), it.said_by, it.content, it.in_reply_to, it.valid_until)


def _told(at: str, speaker: str, text: str, asked: str, ended: Micros | None) -> Line:
    """A memory of KeMem with all that it tells: the question it answers, until when it was true."""
    text = text if ended is None else f"{text} [{ended_text(ended, text)}]"
    return Line(at, "assistant", f"{asked} {speaker}: {text}") if asked else Line(at, speaker, text)


@asynccontextmanager
async def _extracting(model: Model) -> AsyncIterator[Extract]:
    """The process of mem0 with a model; see bench/answers/mem0.py."""
    python = await asyncio.to_thread(peers_python)
    with tempfile.TemporaryDirectory() as home:
        process = await asyncio.create_subprocess_exec(
            *(str(python), "-m", "bench.answers.mem0", model.base_url, model.name),
            cwd=BENCH.parent,
            env=peers_environment(Path(home)),
            stdin=PIPE,
            stdout=PIPE,
            limit=LONGEST_LINE,
        )

        async def ask(line: object) -> str:
            assert process.stdin and process.stdout
            process.stdin.write(json.dumps(line).encode() + b"\n")
            if answered := await process.stdout.readline():
                return answered.decode()
            raise RuntimeError(f"mem0 has ended, with status {await process.wait()}")

        async def extract(history: History) -> Callable[[str], Awaitable[list[Line]]]:
            sessions = []
            for _, some in groupby(history.messages, lambda it: it.session):
                messages = [*some]
                said = [{"role": it.role, "content": it.content} for it in messages]
                sessions.append((messages[-1].ts, said))
            await ask({"sessions": sessions})

            async def search(question: str) -> list[Line]:
                hits = json.loads(await ask({"question": question}))
                return [Line(at, "", text) for at, text in hits]

            return search

        yield extract
        if process.stdin:
            process.stdin.close()
        await process.wait()
