"""A wrapper of OpenAI clients: answers show no leaked call, and calls of the model are metered."""

import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, replace
from inspect import isawaitable
from typing import Any, TypeVar, cast

from kemem.chat.counts import LeakCounts
from kemem.chat.filters import ChoiceFilter, StreamFilter, ToolPolicy, filter_choice
from kemem.chat.requests import call_ids, retry_with_note, sanitize_request
from kemem.errors import Unavailable
from kemem.ports import OnReply, Reply

C = TypeVar("C")


def guard(client: C, *, only: Collection[str] | None = None, counts: LeakCounts | None = None) -> C:
    """The same client, sync or async, with guarded `chat.completions`: create, stream and parse.

    A call that leaked into the text is hidden, and becomes an ordinary tool call if the request
    offers its tool, `only` (where given) names it, and its arguments fit the tool's schema. An
    answer that leaves nothing to show is asked for once more; `parse` cannot do that. A stream that
    ends without a reason has broken off, and raises Unavailable after what came of it. Not guarded
    are raw responses (`with_raw_response`, `with_streaming_response`). Needs the extra `agents`.

        client = guard(AsyncOpenAI(base_url="https://api.deepseek.com"), only={"recall_memory"})
    """
    return cast(C, _Client(client, _Options(only, counts or LeakCounts())))


def guard_and_meter(client: C, counts: LeakCounts, on_reply: OnReply) -> C:
    """A guarded asynchronous client that reports each call of the model to `on_reply`."""
    return cast(C, _Client(client, _Options(None, counts, on_reply)))


@dataclass(frozen=True, slots=True)
class _Options:
    only: Collection[str] | None
    counts: LeakCounts
    on_reply: OnReply | None = None
    base_url: str = ""


class _Meter:
    """Reports a call of the model once: how long it took, whether it answered, its tokens."""

    def __init__(self, on_reply: OnReply | None) -> None:
        self._on_reply = on_reply
        self._started: float | None = None
        self._tokens = (0, 0)

    async def ask(self, answer: Awaitable[Any]) -> Any:
        self._started, self._tokens = time.perf_counter(), (0, 0)
        try:
            return await answer
        except BaseException:
            self.end(False)
            raise

    def take(self, answer: Any) -> None:
        """Note the tokens of an answer or a chunk; not every server sends them."""
        if usage := getattr(answer, "usage", None):
            self._tokens = (usage.prompt_tokens or 0, usage.completion_tokens or 0)

    def end(self, has_answered: bool) -> None:
        started, self._started = self._started, None
        if self._on_reply and started is not None:
            seconds = time.perf_counter() - started
            self._on_reply(seconds, has_answered, Reply("", *self._tokens))


class _Exchange:
    """A request and its answer, or its two answers where the first was nothing but a leak."""

    def __init__(self, request: Mapping[str, Any], options: _Options) -> None:
        self.request = sanitize_request(request, base_url=options.base_url)
        self.meter = _Meter(options.on_reply)
        tools = self.request.get("tools") or ()
        wanted = not tools or (bool(request.get("tools")) and request.get("tool_choice") != "none")
        self._policy = ToolPolicy.of(tools, options.only, wanted=wanted)
        self._used_ids = call_ids(self.request.get("messages") or ())
        self._counts = options.counts
        self._filters: list[ChoiceFilter] = []
        self._streams: dict[int, StreamFilter] = {}
        self._last: Any = None
        self._has_begun = self._has_ended = False
        self._is_repeated = False

    def whole(self, completion: Any) -> Any:
        """A completion that came at once, filtered."""
        self.meter.take(completion)
        self.meter.end(True)
        choices = getattr(completion, "choices", None) or []
        shown = [filter_choice(choice, self._new_filter()) for choice in choices]
        return completion.model_copy(update={"choices": shown}) if shown else completion

    def feed(self, chunk: Any) -> list[Any]:
        """The chunks to pass on for one that came."""
        self.meter.take(chunk)
        self._last = chunk
        choices = getattr(chunk, "choices", None) or []
        self._has_begun |= bool(choices)
        self._has_ended |= any(choice.finish_reason for choice in choices)
        shown = [it for choice in choices for it in self._feed_choice(choice)]
        if shown == choices:
            return [chunk]
        chunks = [chunk.model_copy(update={"choices": [it], "usage": None}) for it in shown]
        if chunk.usage is None:
            return chunks
        last = chunks.pop() if chunks else chunk.model_copy(update={"choices": []})
        return [*chunks, last.model_copy(update={"usage": chunk.usage})]

    def end(self) -> tuple[list[Any], dict[str, Any] | None]:
        """The chunks that are left when the stream ends; or the request to send once more."""
        self.meter.end(True)
        choices = [it for stream in self._streams.values() for it in stream.close()]
        self._streams = {}
        if again := self.again():
            return [], again
        left = [self._last.model_copy(update={"choices": [it], "usage": None}) for it in choices]
        return left, None

    def again(self) -> dict[str, Any] | None:
        """The request to send once more, if the answer hid something and showed nothing."""
        has_hidden = any(it.has_hidden for it in self._filters)
        if self._is_repeated or not has_hidden or any(it.has_output for it in self._filters):
            return None
        self._is_repeated, self._filters = True, []
        self._has_begun = self._has_ended = False
        return retry_with_note(self.request)

    def check_end(self) -> None:
        """Refuse a stream that ended in the middle of an answer as if that were its end."""
        if self._has_begun and not self._has_ended:
            raise Unavailable("the model's answer broke off")

    def abandon(self, *, has_answered: bool) -> None:
        """Count what was hidden so far: nobody reads on."""
        self.meter.end(has_answered)
        for it in self._filters:
            it.give_up()

    def _feed_choice(self, choice: Any) -> list[Any]:
        if choice.index not in self._streams:
            self._streams[choice.index] = StreamFilter(self._new_filter())
        return self._streams[choice.index].feed(choice)

    def _new_filter(self) -> ChoiceFilter:
        self._filters.append(ChoiceFilter(self._policy, self._counts, self._used_ids))
        return self._filters[-1]


class _Wrapper:
    """Delegates every attribute that is not overridden to the wrapped object."""

    def __init__(self, inner: Any, options: _Options) -> None:
        self._inner = inner
        self._options = options

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _Client(_Wrapper):
    @property
    def chat(self) -> "_Chat":
        return _Chat(self._inner.chat, self._options_here())

    @property
    def beta(self) -> "_Client":
        return _Client(self._inner.beta, self._options_here())  # has a `chat` as well

    def __getattr__(self, name: str) -> Any:
        attribute = super().__getattr__(name)
        if name not in ("with_options", "copy"):
            return attribute
        return lambda **options: _Client(attribute(**options), self._options)

    def __enter__(self) -> "_Client":
        self._inner.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._inner.__exit__(*error)

    async def __aenter__(self) -> "_Client":
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._inner.__aexit__(*error)

    def _options_here(self) -> _Options:
        base_url = self._options.base_url or str(getattr(self._inner, "base_url", ""))
        return replace(self._options, base_url=base_url)


class _Chat(_Wrapper):
    @property
    def completions(self) -> "_Completions":
        return _Completions(self._inner.completions, self._options)


class _Completions(_Wrapper):
    def create(self, **request: Any) -> Any:
        exchange = _Exchange(request, self._options)
        answer = self._inner.create(**exchange.request)
        return (self._receive_async if isawaitable(answer) else self._receive)(answer, exchange)

    def stream(self, **request: Any) -> Any:
        return type(self._inner).stream(self, **request)  # calls this object's `create`

    def parse(self, **request: Any) -> Any:
        # `parse` of the openai package calls its private `_post`, here on this object: only there
        # can the text be filtered before it is parsed. tests/test_guard.py pins that it does.
        return type(self._inner).parse(self, **request)

    def _post(self, path: str, *, body: Any, options: Any, **more: Any) -> Any:
        exchange, parse = _Exchange(body, self._options), options["post_parser"]
        options = {**options, "post_parser": lambda completion: parse(exchange.whole(completion))}
        return self._inner._post(path, body=exchange.request, options=options, **more)

    def _receive(self, answer: Any, exchange: _Exchange) -> Any:
        if hasattr(answer, "__next__"):
            return _Stream(answer, exchange, self._inner.create)
        filtered = exchange.whole(answer)
        again = exchange.again()
        return exchange.whole(self._inner.create(**again)) if again else filtered

    async def _receive_async(self, coming: Any, exchange: _Exchange) -> Any:
        answer = await exchange.meter.ask(coming)
        if hasattr(answer, "__anext__"):
            return _AsyncStream(answer, exchange, self._inner.create)
        filtered = exchange.whole(answer)
        if again := exchange.again():
            return exchange.whole(await exchange.meter.ask(self._inner.create(**again)))
        return filtered


class _StreamBase:
    """A filtered stream; it continues with another where the first held nothing but a leak."""

    def __init__(self, inner: Any, exchange: _Exchange, create: Callable[..., Any]) -> None:
        self._inner = inner
        self._exchange = exchange
        self._create = create
        self._ready: deque[Any] = deque()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def _end(self) -> dict[str, Any] | None:
        """What to ask once more; None at the end, which is refused where it comes too early."""
        left, again = self._exchange.end()
        self._ready.extend(left)
        if not again and not left:
            self._exchange.check_end()
        return again


class _Stream(_StreamBase):
    def __iter__(self) -> "_Stream":
        return self

    def __next__(self) -> Any:
        while not self._ready:
            try:
                self._ready.extend(self._exchange.feed(next(self._inner)))
            except StopIteration:
                if again := self._end():
                    self._inner = self._create(**again)
                elif not self._ready:
                    raise
            except Exception:  # of whatever kind: an open block was not the end of a call
                self._exchange.abandon(has_answered=False)
                raise
        return self._ready.popleft()

    def __enter__(self) -> "_Stream":
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def close(self) -> None:
        self._exchange.abandon(has_answered=True)
        self._inner.close()


class _AsyncStream(_StreamBase):
    def __aiter__(self) -> "_AsyncStream":
        return self

    async def __anext__(self) -> Any:
        while not self._ready:
            try:
                self._ready.extend(self._exchange.feed(await anext(self._inner)))
            except StopAsyncIteration:
                if again := self._end():
                    self._inner = await self._exchange.meter.ask(self._create(**again))
                elif not self._ready:
                    raise
            except Exception:  # of whatever kind: an open block was not the end of a call
                self._exchange.abandon(has_answered=False)
                raise
        return self._ready.popleft()

    async def __aenter__(self) -> "_AsyncStream":
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.close()

    async def close(self) -> None:
        self._exchange.abandon(has_answered=True)
        await self._inner.close()

    aclose = close
