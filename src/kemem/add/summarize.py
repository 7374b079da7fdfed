"""Sessions in short: the State, in summaries that are coarser the older, and the experience."""

import asyncio
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from kemem.add.embed import read_all
from kemem.add.extract import instructions, list_schema, object_schema
from kemem.add.rules import Fact
from kemem.errors import Unavailable
from kemem.ports import Deps, Schema, Store
from kemem.records import SHORT_TERM, Checkpoint, Layer, Message, Note, Scope, Where
from kemem.records.batch import Batch
from kemem.records.branches import current
from kemem.records.times import to_rfc3339
from kemem.text import summary
from kemem.text.ids import new_id
from kemem.text.language import count_tokens
from kemem.text.lexicon import load
from kemem.text.query import asks

STATE_TOKENS = 2_000  # of the newest messages, which no summary tells yet
KEPT = 4  # newest messages that are never summarised
_WIDTH = 3  # layers of one level; one more, and the oldest three become one of the next
_MAX_CALLS = 20  # summaries that one call asks of the model; rules make the others
_SAMPLE = 500  # messages by which rare words are told from common ones
_STATE_SCHEMA = object_schema(summary={"type": "string"})

MIN_MESSAGES = 4  # fewer teach nothing
_SHOWN = 6_000  # tokens of a session that the model is shown
_LONGEST = 300  # tokens of an experience
_STEPS = 4
_KEYWORDS = 8
_EXPERIENCE_SCHEMA = object_schema(
    experience={"type": ["string", "null"]}, keywords=list_schema({"type": "string"})
)
_LATIN_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_.+#-]+[A-Za-z0-9_+#]")

Layers = tuple[Layer, ...]
log = logging.getLogger("kemem")


async def summarize_session(
    scope: Scope, deps: Deps, *, budget: int = STATE_TOKENS
) -> Checkpoint | None:
    """Summarise what a session has beyond `budget` tokens; the live State, if there is one.

    What is sensitive gets into no summary: a State may be shown to whoever may see the session.
    """
    live = await newest_checkpoint(scope, deps.store)
    before = live.layers if live else ()
    unread = Where(scope, beyond=live.reach if live else 0, sensitive=False)
    waiting = current(await session_messages(unread, deps.store))
    layers = await _layers(before, waiting, _Summarizer(deps, budget))
    if layers == before:
        return live
    notes = await short_term(scope, deps.store)
    fresh = next_checkpoint(scope, live, layers, notes, deps)
    # What it quotes must be there still: what is deleted must not come back.
    quoted = (*(one for one in waiting if one.sequence_no <= fresh.reach), *notes)
    present = (*quoted, *((live,) if live else ()))
    if (await deps.store.apply(Batch(checkpoints=(fresh,), present=present))).refused:
        log.warning("session %s changed while it was summarised; left for later", scope.session_id)
        return await newest_checkpoint(scope, deps.store)
    return fresh


async def newest_checkpoint(scope: Scope, store: Store) -> Checkpoint | None:
    """The live State of a session."""
    return next(iter(await store.checkpoints(scope)), None)


async def short_term(scope: Scope, store: Store) -> tuple[Note, ...]:
    """All short-term notes of a session, oldest first."""
    return tuple(await read_all(Note, Where(scope, kinds=SHORT_TERM), store, newest_first=False))


async def session_messages(where: Where, store: Store) -> list[Message]:
    """All messages that a Where of one session admits, in the order of arrival."""
    messages = await read_all(Message, where, store)
    return sorted(messages, key=lambda message: message.sequence_no)


def to_line(message: Message, chinese: bool) -> str:
    """A message as a line; further lines are indented, so that none can pose as a speaker's."""
    return f"{summary.speaker(message, chinese)}: " + "\n  ".join(message.content.splitlines())


def count_lines(messages: Sequence[Message]) -> int:
    """Tokens of messages as the lines of a context."""
    chinese = summary.speaks_chinese(message.content for message in messages)
    return sum(count_tokens(to_line(message, chinese)) for message in messages)


def next_checkpoint(
    scope: Scope, live: Checkpoint | None, layers: Layers, notes: tuple[Note, ...], deps: Deps
) -> Checkpoint:
    """A checkpoint newer than the live one, even if the clock stands still or steps back."""
    now = max(deps.clock(), live.created + 1 if live else 0)
    owner = (scope.agent_id or "", scope.user_id or "", scope.session_id or "")
    return Checkpoint(new_id("c", now), *owner, now, layers, notes)


async def _layers(layers: Layers, waiting: Sequence[Message], summarizer: "_Summarizer") -> Layers:
    """The layers with all but the newest messages of the budget in them."""
    budget, sample = summarizer.budget, waiting[:_SAMPLE]
    costs = await asyncio.to_thread(lambda: [count_tokens(it.content) for it in waiting])
    worth: Mapping[str, float] = {}
    if sum(costs) > budget:
        worth = await asyncio.to_thread(lambda: summary.rarity(summary.sentences_of(sample, True)))
    start = 0
    while sum(costs[start:]) > budget and len(waiting) - start >= KEPT + 2:
        stop = start + 2
        while stop < len(waiting) - KEPT and sum(costs[start : stop + 1]) <= budget // 2:
            stop += 1
        first = layers[-1].last + 1 if layers else 1
        text = await summarizer.of_messages(waiting[start:stop], worth)
        tokens = await asyncio.to_thread(count_lines, waiting[start:stop])
        layers = (*layers, Layer(1, text, first, waiting[stop - 1].sequence_no, tokens))
        start = stop
        while (at := _crowded(layers)) is not None:
            coarser = await summarizer.of_layers(layers[at : at + _WIDTH])
            layers = (*layers[:at], coarser, *layers[at + _WIDTH :])
    return layers


def _crowded(layers: Layers) -> int | None:
    """Where a level begins that has one layer too many, if one has."""
    levels = [layer.level for layer in layers]
    return next((at for at, level in enumerate(levels) if levels.count(level) > _WIDTH), None)


@dataclass(slots=True)
class _Summarizer:
    """Summaries by the model while it answers, by rules where it does not."""

    deps: Deps
    budget: int
    calls: int = 0

    async def of_messages(self, chunk: Sequence[Message], worth: Mapping[str, float]) -> str:
        chinese = summary.speaks_chinese(message.content for message in chunk)
        most = max(self.budget // 8, 20)
        lines = [
            f"[{to_rfc3339(one.ts)[:10]}] {summary.speaker(one, chinese)}: "
            f"{summary.cut(one.content, self.budget)}"
            for one in chunk
        ]
        if text := await self._ask("\n".join(lines), chinese, most):
            return text
        return await asyncio.to_thread(
            lambda: summary.summarise(summary.sentences_of(chunk, chinese), most, worth)
        )

    async def of_layers(self, layers: Sequence[Layer]) -> Layer:
        texts = [layer.text for layer in layers]
        most = max(self.budget // 4, 30)
        text = await self._ask("\n".join(texts), summary.speaks_chinese(texts), most)
        if not text:
            sentences = [one for text in texts for one in summary.sentences_of_summary(text)]
            text = summary.summarise(sentences, most)
        tokens = sum(layer.tokens for layer in layers)
        return Layer(layers[0].level + 1, text, layers[0].first, layers[-1].last, tokens)

    async def _ask(self, talk: str, chinese: bool, most: int) -> str | None:
        if self.deps.llm is None or self.calls >= _MAX_CALLS:
            return None
        self.calls += 1
        try:
            answer = await _ask("summarise", talk, chinese, _STATE_SCHEMA, most, self.deps)
            text = answer.get("summary") if isinstance(answer, dict) else None
            if not isinstance(text, str) or not text.strip():
                raise Unavailable("the LLM answered without a summary")
        except Unavailable as error:
            log.warning("%s; summarised by rules", error.message)
            self.calls = _MAX_CALLS  # a model that is away would be waited for again and again
            return None
        # One line, so that it cannot pose as a heading or a speaker.
        return summary.cut(" ".join(text.split()), most)


async def _ask(stage: str, talk: str, chinese: bool, schema: Schema, most: int, deps: Deps) -> Any:
    """What the model makes of a talk, which is data and cannot end itself."""
    system = instructions("zh" if chinese else "en", stage).replace("{most}", str(most))
    data = "<talk>\n" + talk.replace("</talk", "< /talk") + "\n</talk>"
    prompt = [{"role": "system", "content": system}, {"role": "user", "content": data}]
    return await deps.ask(prompt, schema)


async def extract_experience(
    messages: Sequence[Message], notes: Sequence[Note], deps: Deps
) -> Fact | None:
    """The lesson of a session, by the model or else by rules; None where it teaches nothing.

    It tells what was wanted, what was tried, and how it ended.
    """
    if len(messages) < MIN_MESSAGES:
        return None
    chinese = summary.speaks_chinese(message.content for message in messages)
    if deps.llm is not None:
        try:
            talk = await asyncio.to_thread(_shown, messages, notes, chinese)
            answer = await _ask("experience", talk, chinese, _EXPERIENCE_SCHEMA, _LONGEST, deps)
            if not isinstance(answer, dict) or not isinstance(answer.get("experience"), str | None):
                raise Unavailable("the LLM answered without an experience")
            text, words = (answer.get("experience") or "").strip(), answer.get("keywords")
            listed = words if isinstance(words, list) else []
            keywords = [word.strip() for word in listed if isinstance(word, str)]
            return _experience(text, [it.id for it in messages], keywords) if text else None
        except Unavailable as error:
            log.warning("%s; the experience is extracted by rules", error.message)
    return await asyncio.to_thread(_experience_by_rules, messages, notes, chinese)


def _shown(messages: Sequence[Message], notes: Sequence[Note], chinese: bool) -> str:
    """A session for the model: its newest half verbatim, what is older by its main sentences."""
    lines = [
        f"{summary.speaker(one, chinese)}: {summary.cut(one.content, _SHOWN // 8)}"
        for one in messages
    ]
    start, room = len(lines), _SHOWN // 2
    while start and (room := room - count_tokens(lines[start - 1])) >= 0:
        start -= 1
    older = summary.summarise(summary.sentences_of(messages[:start], chinese), _SHOWN // 4)
    bullets = summary.cut("\n".join(f"- {note.content}" for note in notes), _SHOWN // 4)
    return "\n".join(part for part in (bullets, older, *lines[start:]) if part)


class _Sentence(NamedTuple):
    text: str
    sources: tuple[str, ...]
    by_user: bool


def _experience_by_rules(
    messages: Sequence[Message], notes: Sequence[Note], chinese: bool
) -> Fact | None:
    """What the user asked for first, what was tried or learned then, and how it ended."""
    rules = load(__package__, "experience.rules")
    request, outcomes = rules.pattern("request").search, rules.pattern("outcome").search
    talk = [
        _Sentence(text, (one.id,), one.role == "user")
        for one in messages
        if one.role in ("user", "assistant")
        for text in summary.sentences(one.content)
    ]
    texts = {one.text for one in talk}
    talk += [
        _Sentence(text, note.sources, False)
        for note in notes
        for text in summary.sentences(note.content)
        if text not in texts
    ]
    requests = (it for it in talk if it.by_user and count_tokens(it.text) >= 5 and request(it.text))
    goal = next(requests, None)
    if goal is None:
        return None
    later = [one for one in talk[talk.index(goal) + 1 :] if not asks(one.text)]
    outcome = next((one for one in reversed(later) if outcomes(one.text)), None)
    others = [one for one in later if one is not outcome]
    lessons = [one for one in others if rules.pattern("lesson").search(one.text)]
    if outcome is None and not lessons:
        return None
    attempts = [one for one in others if rules.pattern("attempt").search(one.text)]
    taught = set(lessons)
    ranked = sorted(
        dict.fromkeys(lessons + attempts), key=lambda one: (one not in taught, not one.by_user)
    )
    parts = [[goal], sorted(ranked[:_STEPS], key=later.index), [outcome] if outcome else []]
    titles = ("目标：", "过程：", "结果：") if chinese else ("Goal: ", "Steps: ", "Outcome: ")
    text = "\n".join(
        title + ("" if chinese else " ").join(one.text for one in part)
        for title, part in zip(titles, parts, strict=True)
        if part
    )
    # Names and longer words in Latin letters; Chinese words are found by the text itself.
    keywords = [
        word
        for word in _LATIN_WORD.findall(goal.text)
        if not ((word.islower() and len(word) < 5) or request(word))
    ]
    sources = [source for part in parts for one in part for source in one.sources]
    return _experience(text, sources, keywords)


def _experience(text: str, sources: Sequence[str], keywords: Sequence[str]) -> Fact:
    words = tuple(dict.fromkeys(word[:50] for word in keywords if word))[:_KEYWORDS]
    unique, text = tuple(dict.fromkeys(sources)), summary.cut(text, _LONGEST)
    return Fact(text, unique, memory_type="experience", keywords=words, importance=0.6)
