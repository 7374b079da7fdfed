"""The State of a session: what was said longer ago as summaries, the coarser the older."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import groupby

from kemem.errors import Unavailable
from kemem.ports import Deps, Schema, Store, read_messages, read_notes
from kemem.records import SHORT_TERM, Checkpoint, Layer, Message, Note, Position, Scope, Where
from kemem.records.batch import Batch
from kemem.records.times import to_rfc3339
from kemem.text.ids import new_id
from kemem.text.language import count_tokens
from kemem.text.summary import (
    cut,
    rarity,
    sentences_of,
    sentences_of_summary,
    speaker,
    speaks_chinese,
    summarise,
)

STATE_TOKENS = 2_000  # of the newest messages, which no summary tells yet
KEPT = 4  # newest messages that are never summarised
_WIDTH = 3  # layers of one level; one more, and the oldest three become one of the next
_MOST_ASKED = 20  # summaries that one call asks of the model; rules make the others
_PAGE = 500
_SAMPLE = 500  # messages by which rare words are told from common ones

_SCHEMA: Schema = {
    "type": "object",
    "properties": {"summary": {"type": "string"}},
    "required": ["summary"],
    "additionalProperties": False,
}

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
    waiting = await session_messages(unread, deps.store)
    layers = await _layers(before, waiting, budget, _Summariser(deps, budget))
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
    notes: list[Note] = []
    after: Position | None = None
    where = Where(scope, kinds=SHORT_TERM)
    while page := await read_notes(store, where, after=after, limit=_PAGE, newest_first=False):
        notes += page
        after = page[-1].position
    return tuple(notes)


async def session_messages(where: Where, store: Store) -> list[Message]:
    """All messages that a Where of one session admits, in the order of arrival."""
    messages: list[Message] = []
    after: Position | None = None
    while page := await read_messages(store, where, after=after, limit=_PAGE):
        messages += page
        if len(page) < _PAGE:
            break
        after = page[-1].position
    return sorted(messages, key=lambda message: message.sequence_no)


def to_line(message: Message, chinese: bool) -> str:
    """A message as a line; further lines are indented, so that none can pose as a speaker's."""
    return f"{speaker(message, chinese)}: " + "\n  ".join(message.content.splitlines())


def count_lines(messages: Sequence[Message]) -> int:
    """Tokens of messages as the lines of a context."""
    chinese = speaks_chinese(message.content for message in messages)
    return sum(count_tokens(to_line(message, chinese)) for message in messages)


def next_checkpoint(
    scope: Scope,
    live: Checkpoint | None,
    layers: tuple[Layer, ...],
    notes: tuple[Note, ...],
    deps: Deps,
) -> Checkpoint:
    """A checkpoint newer than the live one, even if the clock stands still or steps back."""
    now = max(deps.clock(), live.created + 1 if live else 0)
    owner = (scope.agent_id or "", scope.user_id or "", scope.session_id or "")
    return Checkpoint(new_id("c", now), *owner, now, layers, notes)


async def _layers(
    layers: tuple[Layer, ...], waiting: Sequence[Message], budget: int, model: "_Summariser"
) -> tuple[Layer, ...]:
    """The layers with all but the newest messages of the budget in them."""
    costs = await asyncio.to_thread(lambda: [count_tokens(it.content) for it in waiting])
    worth: Mapping[str, float] = {}
    if sum(costs) > budget:
        worth = await asyncio.to_thread(lambda: rarity(sentences_of(waiting[:_SAMPLE], True)))
    start = 0
    while sum(costs[start:]) > budget and len(waiting) - start >= KEPT + 2:
        stop = start + 2
        while stop < len(waiting) - KEPT and sum(costs[start : stop + 1]) <= budget // 2:
            stop += 1
        first = layers[-1].last + 1 if layers else 1
        text = await model.of_messages(waiting[start:stop], worth)
        tokens = await asyncio.to_thread(count_lines, waiting[start:stop])
        layers = (*layers, Layer(1, text, first, waiting[stop - 1].sequence_no, tokens))
        start = stop
        while (at := _crowded(layers)) is not None:
            coarser = await model.of_layers(layers[at : at + _WIDTH])
            layers = (*layers[:at], coarser, *layers[at + _WIDTH :])
    return layers


def _crowded(layers: Sequence[Layer]) -> int | None:
    """Where a level has one layer too many, if one has."""
    at = 0
    for _, run in groupby(layers, lambda layer: layer.level):
        size = len(list(run))
        if size > _WIDTH:
            return at
        at += size
    return None


@dataclass(slots=True)
class _Summariser:
    """Summaries by the model while it answers, by rules where it does not."""

    deps: Deps
    budget: int
    asked: int = 0

    async def of_messages(self, chunk: Sequence[Message], worth: Mapping[str, float]) -> str:
        chinese = speaks_chinese(message.content for message in chunk)
        most = max(self.budget // 8, 20)
        talk = "\n".join(
            f"[{to_rfc3339(one.ts)[:10]}] {speaker(one, chinese)}: {cut(one.content, self.budget)}"
            for one in chunk
        )
        if summary := await self._ask(talk, chinese, most):
            return summary
        return await asyncio.to_thread(lambda: summarise(sentences_of(chunk, chinese), most, worth))

    async def of_layers(self, layers: Sequence[Layer]) -> Layer:
        texts = [layer.text for layer in layers]
        most = max(self.budget // 4, 30)
        summary = await self._ask("\n".join(texts), speaks_chinese(texts), most)
        text = summary or summarise(
            [one for text in texts for one in sentences_of_summary(text)], most
        )
        tokens = sum(layer.tokens for layer in layers)
        return Layer(layers[0].level + 1, text, layers[0].first, layers[-1].last, tokens)

    async def _ask(self, talk: str, chinese: bool, most: int) -> str | None:
        if self.deps.llm is None or self.asked >= _MOST_ASKED:
            return None
        self.asked += 1
        prompt = files(__package__) / f"summarise_{'zh' if chinese else 'en'}.md"
        system = prompt.read_text("utf-8").replace("{most}", str(most))
        data = talk.replace("</talk", "< /talk")  # a message cannot end what is data
        try:
            answer = await self.deps.ask(
                [
                    {"role": "system", "content": system},
                    {"role": "user", "content": f"<talk>\n{data}\n</talk>"},
                ],
                _SCHEMA,
            )
            return cut(_summary(answer), most)
        except Unavailable as error:
            log.warning("%s; summarised by rules", error.message)
            self.asked = _MOST_ASKED  # a model that is away would be waited for again and again
            return None


def _summary(answer: object) -> str:
    text = answer.get("summary") if isinstance(answer, dict) else None
    if not isinstance(text, str) or not text.strip():
        raise Unavailable("the LLM answered without a summary")
    return " ".join(text.split())  # one line, so that it cannot pose as a heading or a speaker
