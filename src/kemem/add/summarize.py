"""The State of a session: summaries that are coarser the older."""

import asyncio
import logging
import math
import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from kemem.add.embed import read_all
from kemem.add.prompt import instructions, object_schema
from kemem.errors import Unavailable
from kemem.ports import Deps, Schema, Store
from kemem.records import SHORT_TERM, Checkpoint, Layer, Message, Note, Scope, Where
from kemem.records.batch import Batch
from kemem.records.branches import current
from kemem.records.times import to_rfc3339
from kemem.text import summary
from kemem.text.ids import new_id
from kemem.text.language import count_tokens
from kemem.text.summary import Sentence

STATE_TOKENS = 2_000  # of the newest messages, which no summary tells yet
KEPT = 4  # newest messages that are never summarised
_WIDTH = 3  # layers of one level; one more, and the oldest three become one of the next
_MAX_CALLS = 20  # summaries that one call asks of the model; rules make the others
_TOO_LONG = 4  # times the size that is asked for: such a summary has lost its way
_SAMPLE = 500  # messages by which rare words are told from common ones
_LABEL = re.compile(r"\W*(?:user|assistant|system|tool|用户|助手|系统|工具)\s*[:：]", re.I)
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_STATE_SCHEMA = object_schema(summary={"type": "string"})

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
        written = await self._ask("\n".join(lines), chinese, most)
        return await asyncio.to_thread(
            lambda: with_extract(written, summary.sentences_of(chunk, chinese), most, worth)
        )

    async def of_layers(self, layers: Sequence[Layer]) -> Layer:
        texts = [layer.text for layer in layers]
        most = max(self.budget // 4, 30)
        written = await self._ask("\n".join(texts), summary.speaks_chinese(texts), most)
        talk = [one for text in texts for one in summary.sentences_of_summary(text)]
        text = with_extract(written, talk, most, summary.rarity(talk))
        tokens = sum(layer.tokens for layer in layers)
        return Layer(layers[0].level + 1, text, layers[0].first, layers[-1].last, tokens)

    async def _ask(self, talk: str, chinese: bool, most: int) -> str | None:
        if self.deps.llm is None or self.calls >= _MAX_CALLS:
            return None
        self.calls += 1
        try:
            answer = await ask("summarise", talk, chinese, _STATE_SCHEMA, most, self.deps)
            text = answer.get("summary") if isinstance(answer, dict) else None
            if not isinstance(text, str) or not text.strip():
                raise Unavailable("the LLM answered without a summary")
            if count_tokens(text) > _TOO_LONG * most:
                raise Unavailable(f"the LLM's summary is more than {_TOO_LONG} times too long")
        except Unavailable as error:
            log.warning("%s; summarised by rules", error.message)
            self.calls = _MAX_CALLS  # one that is away, or in a loop, is not waited for again
            return None
        return summary.one_line(text, most)


def with_extract(
    written: str | None, talk: Sequence[Sentence], most: int, worth: Mapping[str, float]
) -> str:
    """A model's summary, with sentences of the talk for what it leaves out; `worth` is of terms.

    What nobody said is not kept. Where the sentences of the talk alone tell more, they stay.
    """
    extract = summary.summarise(talk, most, worth)
    if not written:
        return extract
    said = set(_NUMBER.findall(" ".join(f"{one.day} {one.speaker} {one.text}" for one in talk)))
    own = [
        Sentence("", "", one) for one in summary.sentences(written) if _is_said(one, said, worth)
    ]
    merged = summary.summarise([*own, *talk], most, worth)
    return merged if _told(merged, worth) >= _told(extract, worth) else extract


def _is_said(sentence: str, said: Set[str], worth: Mapping[str, float]) -> bool:
    """Whether all numbers of a sentence are among those `said`, and most of its words.

    Numbers alone tell nothing. A sentence that names its speaker poses as a quotation: what was
    said so, the talk has itself.
    """
    if _LABEL.match(sentence):
        return False
    terms = summary.rarity([Sentence("", "", sentence)])
    words = [term for term in terms if not _NUMBER.fullmatch(term)]
    known = sum(word in worth for word in words)
    return 0 < len(words) <= 2 * known and said >= {*_NUMBER.findall(sentence)}


def _told(text: str, worth: Mapping[str, float]) -> float:
    """What the terms of a text are worth together."""
    terms = summary.rarity(summary.sentences_of_summary(text))
    return math.fsum(worth.get(term, 0.0) for term in terms)


async def ask(stage: str, talk: str, chinese: bool, schema: Schema, most: int, deps: Deps) -> Any:
    """What the model makes of a talk, which is data and cannot end itself."""
    system = instructions("zh" if chinese else "en", stage).replace("{most}", str(most))
    data = "<talk>\n" + talk.replace("</talk", "< /talk") + "\n</talk>"
    prompt = [{"role": "system", "content": system}, {"role": "user", "content": data}]
    return await deps.ask(prompt, schema, expected=most)
